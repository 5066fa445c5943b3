"""The circuits of a hub: one for each thing that it depends on and that may be down or slow, or only fail.

    webhook:NAME          the receiver of a webhook, of the tenant that has it; where it has several targets each of
                          them is webhook:NAME:1, webhook:NAME:2, ...
    issuer:jwt            whoever gives out the key set of `[auth.jwt]`; where it has mirrors each address is
                          issuer:jwt:1, issuer:jwt:2, ...
    catalogue:database    the catalogue's database
    relay:meeting-point   what this hub's links meet at
    link:NAME             the other hub of a link
    group:NAME            a group that is paused while its members only fail, of the tenant that has it

Whoever depends on something has its circuit here, asks it, and tells it how each try ended; people see all of them in
one list, and open or close them by their ids. Of one that is opened by hand nothing is asked until it is closed by hand
or the hub ends; of a group it is kept over that, too.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from gatehouse.gateways.target_circuits import TargetCircuits
from gatehouse.kernel.circuit_breaker import CircuitBreaker, CircuitSettings, CircuitState

HUB: Final = "/"
"""The tenant that sees the circuits of the hub itself."""

ISSUER: Final = "issuer:jwt"
CATALOGUE: Final = "catalogue:database"
RELAY: Final = "relay:meeting-point"

HALF_A_MINUTE_MS: Final = 30_000
A_MINUTE_MS: Final = 60_000

ISSUER_CIRCUIT: Final = CircuitSettings(failures=3, open_ms=A_MINUTE_MS, longest_open_ms=10 * A_MINUTE_MS,
                                        slow_ms=5_000)
"""Keys of before stay in use meanwhile; who comes with a new one is let in at most ten minutes late."""

CATALOGUE_CIRCUIT: Final = CircuitSettings(failures=5, open_ms=A_MINUTE_MS, longest_open_ms=10 * A_MINUTE_MS,
                                           slow_ms=HALF_A_MINUTE_MS)
"""What is not written is written whole, once it can be."""

RELAY_CIRCUIT: Final = CircuitSettings(failures=8, open_ms=A_MINUTE_MS, longest_open_ms=5 * A_MINUTE_MS)
"""Eight tries, each after a longer wait, take more than a minute: what starts anew is back before."""


SHOWN_MAX: Final = 20
"""Circuits that are named in a status."""


class Guarded(NamedTuple):
    """One circuit, and who is told that people have turned it."""

    breaker: CircuitBreaker
    on_turned: Callable[[], None]


def link_circuit(name: str) -> str:
    """The id of a link's circuit."""
    return f"link:{name}"


def group_circuit(name: str) -> str:
    """The id of a group's circuit."""
    return f"group:{name}"


class Circuits:
    """See the module's text. `wall_of` gives a hub time as wall time, for what is shown."""

    def __init__(self, wall_of: Callable[[int], int]) -> None:
        self._wall_of = wall_of
        self._known: dict[tuple[str, str], Guarded] = {}

    def keep(self, circuit_id: str, breaker: CircuitBreaker, on_turned: Callable[[], None], tenant: str = HUB
             ) -> CircuitBreaker:
        """This is the circuit of that id from now on; returns it."""
        self._known[tenant, circuit_id] = Guarded(breaker, on_turned)
        return breaker

    def forget(self, circuit_id: str, tenant: str = HUB) -> None:
        """What it stood for is there no more, or is not asked."""
        self._known.pop((tenant, circuit_id), None)

    def on_kept(self, tenant: str, name: str, breaker: CircuitBreaker, on_turned: Callable[[], None]) -> None:
        """A group has a circuit; see `kernel.groups.circuits.CircuitListener`."""
        self.keep(group_circuit(name), breaker, on_turned, tenant)

    def on_forgotten(self, tenant: str, name: str) -> None:
        """A group has none any more."""
        self.forget(group_circuit(name), tenant)

    def keep_targets(self, circuit_id: str, circuits: TargetCircuits | None, on_turned: Callable[[], None]) -> None:
        """The circuits of a name of the hub's and of its several targets, in place of those that it had; None: it has
        none any more."""
        for of, kept in list(self._known):
            if of == HUB and (kept == circuit_id or kept.startswith(f"{circuit_id}:")):
                self.forget(kept)
        if circuits is not None:
            self.keep(circuit_id, circuits.whole, on_turned)
            for number, breaker in enumerate(circuits.each, 1):
                if breaker is not circuits.whole:
                    self.keep(f"{circuit_id}:{number}", breaker, on_turned)

    def ids(self, tenant: str) -> list[str]:
        """Sorted."""
        return sorted(circuit_id for of, circuit_id in self._known if of == tenant)

    def turn(self, tenant: str, circuit_id: str, is_open: bool) -> bool:
        """Open or close one by hand; False: there is none."""
        guarded = self._known.get((tenant, circuit_id))
        if guarded is None:
            return False
        if is_open:
            guarded.breaker.open()
        else:
            guarded.breaker.close()
        guarded.on_turned()
        return True

    def describe(self, tenant: str, circuit_id: str) -> dict[str, Any] | None:
        """For people; None: there is none."""
        guarded = self._known.get((tenant, circuit_id))
        if guarded is None:
            return None
        breaker = guarded.breaker
        return {"id": circuit_id, "circuit": breaker.state, "by_hand": breaker.by_hand, "opened": breaker.opened,
                "until": self._wall_of(breaker.until_ms) if breaker.until_ms else None, "reason": breaker.reason}

    def not_closed(self) -> list[dict[str, Any]]:
        """All that are open or half-open, whoever's, as `describe` with their tenant; at most `SHOWN_MAX`."""
        names = sorted(key for key, guarded in self._known.items()
                       if guarded.breaker.state is not CircuitState.CLOSED)[:SHOWN_MAX]
        return [{"tenant": tenant, **(self.describe(tenant, circuit_id) or {})} for tenant, circuit_id in names]

    def describe_all(self) -> dict[str, Any]:
        """For the hub's status: how many are in each state, and which are not closed."""
        states = Counter(guarded.breaker.state for guarded in self._known.values())
        return {"closed": states[CircuitState.CLOSED], "open": states[CircuitState.OPEN],
                "half_open": states[CircuitState.HALF_OPEN], "not_closed": self.not_closed()}

    def counts(self) -> Iterator[tuple[str, CircuitState, int]]:
        """(kind, state, circuits in it), all tenants together, for the metrics."""
        circuits = Counter((circuit_id.partition(":")[0], guarded.breaker.state)
                        for (_, circuit_id), guarded in self._known.items())
        for (kind, state), count in sorted(circuits.items()):
            yield kind, state, count

    def opened(self) -> Iterator[tuple[str, int]]:
        """(kind, times that circuits opened), of those that are there."""
        times: Counter[str] = Counter()
        for (_, circuit_id), guarded in self._known.items():
            times[circuit_id.partition(":")[0]] += guarded.breaker.opened
        yield from sorted(times.items())
