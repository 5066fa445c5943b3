"""The circuits of groups: a group whose members only fail is handed nothing for a while, and then one message.

    a lease that ends ─► acked: it works                                                  ─► breaker
                    └──► given back, refused, not in time, its holder gone: it has failed ─┘

An open circuit holds back what would be handed out; members and requests wait as if nothing were there, on every door,
and no message loses an attempt. When its time is over one message goes out, and what becomes of that decides. What was
out when it opened is settled as ever: whatever of it is acked closes the circuit.

A circuit that is open is a state record, so that neither a crash nor a start hands everything out again. A group
without `pausing` has none and asks nothing.
"""
# decision 271: a group is paused by the one circuit breaker, on what becomes of its leases
from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from gatehouse.kernel.circuit_breaker import WINDOW, CircuitBreaker, CircuitSettings, CircuitState
from gatehouse.kernel.groups.group_settings import Pausing, named_key, split_key
from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.state.state import Kind, StateTable
from gatehouse.kernel.write.pending_frame import PendingFrame

if TYPE_CHECKING:
    from gatehouse.kernel.groups.group import LeasedGroup
    from gatehouse.kernel.groups.handing_out import Prefetcher
    from gatehouse.kernel.groups.leasing import Core

UNBOUNDED: Final = 1 << 30

# Why a lease ended without an ack, for people.
GIVEN_BACK: Final = "a member gave a message back"
REFUSED: Final = "a member refused a message"
NOT_IN_TIME: Final = "a message was not settled in time"
GONE_AWAY: Final = "a member went away with a message"

Named = Callable[[str, str], "Sequence[LeasedGroup]"]
"""The groups in memory of a tenant and name."""


class CircuitListener(Protocol):
    """Who shows the circuits of groups, and lets people turn them."""

    def on_kept(self, tenant: str, name: str, breaker: CircuitBreaker, on_turned: Callable[[], None]) -> None:
        """The group has a circuit; `on_turned` is to be called when people have turned it."""

    def on_forgotten(self, tenant: str, name: str) -> None:
        """It has none any more."""


class GroupCircuit:
    """The circuit of one group, whatever topics and queues it reads."""

    def __init__(self, circuits: GroupCircuits, tenant: str, name: str, pausing: Pausing) -> None:
        self.tenant: Final = tenant
        self.name: Final = name
        self.pausing = pausing
        self.breaker: Final = CircuitBreaker(_breaker_settings(pausing))
        self._circuits = circuits
        self._probe: tuple[Prefetcher, int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether more than one message is held back."""
        return self.breaker.state is not CircuitState.CLOSED

    def configure(self, pausing: Pausing) -> None:
        """Other settings from now on; one that is open stays so for as long as it was to."""
        if pausing != self.pausing:
            self.pausing = pausing
            self.breaker.configure(_breaker_settings(pausing))

    def room(self) -> int:
        """How many messages may be handed out now."""
        if self.breaker.state is CircuitState.CLOSED:
            return UNBOUNDED
        now_ms = self._circuits.now_ms()
        if self.breaker.state is CircuitState.HALF_OPEN and not self._is_probe_out():
            self.breaker.give_up_probe(now_ms)           # it expired, or its cursor went on elsewhere
        return 1 if self.breaker.would_pass(now_ms) else 0

    def _is_probe_out(self) -> bool:
        return self._probe is not None and self._probe[0].cursor.is_leased(self._probe[1])

    def on_handed_out(self, prefetcher: Prefetcher, offset: int) -> None:
        """The first of what was handed out; of an open circuit it was the only one: its probe."""
        if self.breaker.state is CircuitState.CLOSED:
            return
        if prefetcher.cursor.is_leased(offset):
            if self.breaker.may_pass(self._circuits.now_ms()):
                self._probe = (prefetcher, offset)
        elif prefetcher.cursor.is_settled(offset):       # its taker acks nothing: having it is all that can be said
            self.on_acked(1)

    def on_acked(self, count: int) -> None:
        """So many were acked."""
        for _ in range(min(count, WINDOW)):
            if self.breaker.note(True, self._circuits.now_ms()):
                self._circuits.on_changed(self)

    def on_failed(self, prefetcher: Prefetcher, offsets: Sequence[int], count: int, reason: str) -> None:
        """Leases of these ended without an ack, and count as so many failures. While a probe is out it alone counts."""
        if self.breaker.state is CircuitState.HALF_OPEN:
            if self._probe is None or self._probe[0] is not prefetcher or self._probe[1] not in offsets:
                return
            count = 1
        for _ in range(min(count, WINDOW)):
            if self.breaker.note(False, self._circuits.now_ms(), reason=reason):
                self._circuits.on_changed(self)
                return


class GroupCircuits:
    """The circuits of all groups; a `kernel.write.pending_frame.Participant` of frames before which one opened or
    closed."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._circuits: dict[tuple[str, str], GroupCircuit] = {}
        self._changed: dict[tuple[str, str], None] = {}          # what the pending frame says of
        self._on_way: dict[tuple[str, str], None] = {}           # what the frame on its way says of
        self._named: Named = lambda tenant, name: ()
        self._listener: CircuitListener | None = None

    def load(self, state: StateTable, named: Named) -> None:
        """At a start, before groups are there: what was open is."""
        self._named = named
        for key, value in state.scan(Kind.GROUP_CIRCUIT):
            kept = json.loads(value)
            tenant, name = split_key(key)
            circuit = self._add(tenant, name, Pausing(kept["failures"], kept["first_ms"], kept["longest_ms"]))
            circuit.breaker.restore(kept)
            self._wake_in_time(circuit)

    def follow(self, listener: CircuitListener) -> None:
        """Tell it of every circuit, those that are there first."""
        self._listener = listener
        for circuit in self._circuits.values():
            self._tell(circuit)

    def of(self, tenant: str, name: str, pausing: Pausing) -> GroupCircuit | None:
        """The circuit of a group that is paused so; None: it never is. Raises Stopping."""
        circuit = self._circuits.get((tenant, name)) if self._circuits else None
        if not pausing.failures or not name:
            if circuit is not None:
                self._forget(circuit)
            return None
        if circuit is None:
            return self._add(tenant, name, pausing)
        circuit.configure(pausing)
        return circuit

    def now_ms(self) -> int:
        """Hub time."""
        return self._core.now_ms()

    def _add(self, tenant: str, name: str, pausing: Pausing) -> GroupCircuit:
        circuit = self._circuits[tenant, name] = GroupCircuit(self, tenant, name, pausing)
        self._tell(circuit)
        return circuit

    def _tell(self, circuit: GroupCircuit) -> None:
        if self._listener is not None:
            self._listener.on_kept(circuit.tenant, circuit.name, circuit.breaker,
                                   partial(self._core.deadlines.act, partial(self.on_changed, circuit)))

    def _forget(self, circuit: GroupCircuit) -> None:
        del self._circuits[circuit.tenant, circuit.name]
        if circuit.is_open:
            circuit.breaker.close()                  # nobody is held back by it who has it still
            self._note(circuit)
        if self._listener is not None:
            self._listener.on_forgotten(circuit.tenant, circuit.name)

    def on_changed(self, circuit: GroupCircuit) -> None:
        """It opened or closed, by itself or by hand: that is to be durable, and its members may be handed more. Raises
        Stopping."""
        self._note(circuit)
        if circuit.is_open:
            self._wake_in_time(circuit)
        self._wake(circuit)

    def _wake_in_time(self, circuit: GroupCircuit) -> None:
        if circuit.breaker.until_ms:
            self._core.deadlines.at(circuit.breaker.until_ms, partial(self._wake, circuit))

    def _wake(self, circuit: GroupCircuit) -> None:
        for group in self._named(circuit.tenant, circuit.name):
            group.wake()

    # ---- frames

    def _note(self, circuit: GroupCircuit) -> None:
        self._core.when_stored(self)
        self._changed[circuit.tenant, circuit.name] = None

    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """What has changed, as it is now."""
        self._on_way, self._changed = self._changed, {}
        frame.state.extend([StateRecord(Kind.GROUP_CIRCUIT, named_key(*key), self._encoded(self._circuits.get(key)))
                            for key in self._on_way])
        return 0

    @staticmethod
    def _encoded(circuit: GroupCircuit | None) -> bytes | None:
        if circuit is None or not circuit.is_open:
            return None
        pausing = circuit.pausing
        return json.dumps({"failures": pausing.failures, "first_ms": pausing.open_ms,
                           "longest_ms": pausing.longest_open_ms, **circuit.breaker.kept()}).encode()

    def applied(self, frame: PendingFrame) -> None:
        """What was sealed is durable."""
        self._on_way = {}

    def failed(self, frames: list[PendingFrame]) -> None:
        """What was sealed, and what the pending frame would have said, was refused: the next one says it."""
        self._changed |= self._on_way
        self._on_way = {}
        self._core.when_next_stored(self)


def _breaker_settings(pausing: Pausing) -> CircuitSettings:
    return CircuitSettings(pausing.failures, pausing.open_ms, max(pausing.open_ms, pausing.longest_open_ms))
