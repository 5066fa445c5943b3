"""The links of a hub, put together: the machine of `relay/`, the kernel and the rights it works with, and who dials."""
from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_bytes
from typing import Any, Final

from gatehouse.config.relay import RelayConfig
from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.audit import By
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.circuits import RELAY, RELAY_CIRCUIT, Circuits, link_circuit
from gatehouse.gateways.contract import LinkFault
from gatehouse.gateways.runtime import HubLoop
from gatehouse.kernel.circuit_breaker import CircuitBreaker
from gatehouse.kernel.kernel import Kernel
from gatehouse.metrics import Sample
from gatehouse.relay.dialing import Dialler
from gatehouse.relay.errors import RelayError
from gatehouse.relay.hub_links import ONLINE, HubLinks
from gatehouse.relay.incoming import Allowed
from gatehouse.relay.settings import LinkSettings

log = logging.getLogger("gatehouse.relay")

BY: Final = "relay"
"""Who the audit topic says did it, where nobody asked for it."""


CPU_INFO: Final = Path("/proc/cpuinfo")


def has_aes(cpu_info: Path) -> bool:
    """Whether the processor does AES by itself, as far as the system says so."""
    try:
        lines = cpu_info.read_text().splitlines()
    except OSError:
        return False
    return any(line.lower().startswith(("flags", "features")) and "aes" in line.split() for line in lines)


class ShownCircuits:
    """`hub_links.LinkCircuits` among all of a hub."""

    def __init__(self, circuits: Circuits) -> None:
        self._circuits = circuits

    def keep(self, link: str, circuit: CircuitBreaker, on_turned: Callable[[], None]) -> None:
        self._circuits.keep(link_circuit(link), circuit, on_turned)

    def forget(self, link: str) -> None:
        self._circuits.forget(link_circuit(link))


class Relaying:
    """A hub's links from its start to its stop. See `gateways.contract.Links`."""

    def __init__(self, config: RelayConfig, kernel: Kernel, admission: Admission, loop: HubLoop, hub_name: str) -> None:
        self._admission = admission
        self._by: By = BY
        self.links = HubLinks(
            kernel=kernel, section=config.section, settings=config.links, secret=kernel.secret, hub_name=hub_name,
            chance=token_bytes, now_ms=loop.now_ms, wall_ms=loop.wall_ms, allowed=self._allowed,
            rights=lambda: admission.version, tell=self._tell, has_aes=has_aes(CPU_INFO))
        kernel.keep_for(self.links.owed)
        kernel.looking.ask_links(self.links.owed)
        self.circuit = CircuitBreaker(RELAY_CIRCUIT)
        self._dialler = Dialler(self.links, config.section, kernel.note_fault, self.circuit, loop.now_ms)
        self.on_circuit = self._dialler.on_circuit

    def keep_circuits(self, circuits: Circuits) -> None:
        """Have people see the circuits of the meeting point and of every link."""
        circuits.keep(RELAY, self.circuit, self.on_circuit)
        self.links.keep_circuits(ShownCircuits(circuits))

    def start(self) -> None:
        self._dialler.start()

    async def stop(self) -> None:
        await self._dialler.stop()

    def cut(self, lasts_s: float) -> None:
        """For a drill: the meeting point is out of reach for so long."""
        self._dialler.cut(round(lasts_s * 1000))

    def _allowed(self, settings: LinkSettings) -> Allowed:
        """What comes over a link is asked for the rights of its user, where it has one."""
        if not settings.user:
            return lambda address: None
        principal = Principal(settings.user, tenant=settings.tenant)
        return lambda address: self._admission.require(principal, Operation.PUBLISH, address)

    def _tell(self, link: str, action: str, details: str) -> None:
        log.info("relay: %s%s: %s", f"link {link}: " if link else "", action, details)
        self._admission.audit(self._by, f"relay.{action.replace(' ', '_')}", {"link": link, "details": details})

    # ---- what people ask

    def describe(self) -> dict[str, Any]:
        return self.links.describe()

    def act(self, by: By, action: str, link: str, **given: Any) -> dict[str, Any]:
        """Do what somebody asked for, in his name. Raises LinkFault, KernelError."""
        self._by = by
        try:
            match action:
                case "invite":
                    return {"invitation": self.links.invite(link, given["lasts_ms"])}
                case "join":
                    return {"link": self.links.join(given["invitation"])}
                case "rotate":
                    return self.links.use_next_key() if given["use"] else self.links.rotate()
                case "pause":
                    self.links.pause(link)
                case "resume":
                    self.links.resume(link, given["go_on"])
                case "unlink":
                    self.links.unlink(link)
                case "explain":
                    return self.links.explain(link, given["address"])
                case "rewind":
                    return {"partitions": self.links.rewind(link, given["topic"], given["offset"])}
            return self.links.describe_link(link) if action != "unlink" else {}
        except RelayError as error:
            raise LinkFault(error.code, str(error)) from None
        finally:
            self._by = BY

    def samples(self) -> Iterator[Sample]:
        """For the metrics."""
        links = self.links
        yield "gatehouse_relay_connected", (), int(links.state == ONLINE)
        yield "gatehouse_relay_connections", (), links.connections
        for name, link in links.links.items():
            out, into = link.counts.out, link.counts.into
            messages, lag_ms = links.owed.lag(link)
            outgoing = link.outgoing
            yield "gatehouse_relay_link_open", (name,), int(link.state == "open")
            yield "gatehouse_relay_link_sessions", (name,), link.counts.sessions
            yield "gatehouse_relay_link_lag_messages", (name,), messages
            yield "gatehouse_relay_link_lag_bytes", (name,), 0 if outgoing is None else outgoing.unstored_bytes
            yield "gatehouse_relay_link_lag_seconds", (name,), lag_ms / 1000
            yield "gatehouse_relay_link_sent_messages", (name,), out.messages
            yield "gatehouse_relay_link_sent_bytes", (name,), out.bytes
            yield "gatehouse_relay_link_received_messages", (name,), into.messages
            yield "gatehouse_relay_link_received_bytes", (name,), into.bytes
            yield "gatehouse_relay_link_repeated_messages", (name,), into.repeated
            yield "gatehouse_relay_link_lost_messages", (name,), out.lost_messages
            yield "gatehouse_relay_link_tampered", (name,), link.counts.tampered
            spool = link.spooling.counts
            yield "gatehouse_relay_link_spooled_messages", (name,), spool.out.messages
            yield "gatehouse_relay_link_spool_taken_letters", (name,), spool.taken
            for reason, count in spool.passed_over.items():
                yield "gatehouse_relay_link_spool_passed_over", (name, reason), count
            refused = {"not_allowed": into.not_allowed, "loop": into.loops, "other_way": into.other_way, **into.reasons,
                       **{f"relay_{code}": count for code, count in link.counts.bounced.items()}}
            for reason, count in refused.items():
                yield "gatehouse_relay_link_refused", (name, reason), count
