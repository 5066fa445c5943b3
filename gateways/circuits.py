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

MOST_ISOLATED_PERCENT: Final = 30
NOBODY: Final = -1


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
    """All circuits of a hub, by tenant and id. `wall_of` gives a hub time as wall time, for what is shown."""

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


# decision 272: while some answer few are isolated, and when all fail one at a time is tried
class TargetCircuits:
    """Circuits where one name has several targets: which of them is asked next, and when none is. Ask `choose` before
    each request, and tell `note` how it ended. Times in ms.

        every target has a circuit           one that fails is isolated: it is not asked but for its probes
        at most 30 % are isolated at once    one at least; what fails beyond that is asked on, or the others had too
                                             much
        all of them fail                     the name has a circuit too, which opens: one probe at a time is sent, to
                                             the target that has been isolated longest

    So a name that is down costs one request each time, however many targets it has. With one target its circuit is that
    of the name. Targets are asked in turn.
    """

    def __init__(self, settings: CircuitSettings, count: int = 1) -> None:
        self.whole: Final = CircuitBreaker(settings)
        self.each: Final = [CircuitBreaker(settings) for _ in range(count)] if count > 1 else [self.whole]
        """By the number of the target."""

        self._isolated_ms: dict[int, int] = {}           # since when, or when it was tried last
        self._next = 0

    @property
    def until_ms(self) -> int:
        """When a name of which nobody is asked is tried; 0: it is asked, or stopped by hand."""
        return self.whole.until_ms

    @property
    def most_isolated(self) -> int:
        """So many targets at most, as long as some are asked."""
        return max(1, len(self.each) * MOST_ISOLATED_PERCENT // 100)

    def choose(self, now_ms: int) -> int:
        """The target of the next request; NOBODY: it waits."""
        if len(self.each) == 1:
            return 0 if self.whole.may_pass(now_ms) else NOBODY
        if self.whole.state is not CircuitState.CLOSED:
            return self._longest_isolated() if self.whole.may_pass(now_ms) else NOBODY
        for step in range(len(self.each)):
            target = (self._next + step) % len(self.each)
            if self.each[target].may_pass(now_ms):
                self._next = target + 1
                return target
        return self._longest_isolated()

    def _longest_isolated(self) -> int:
        """The target that has been isolated longest, of those that people have not stopped."""
        targets = [target for target, circuit in enumerate(self.each) if not circuit.by_hand]
        return min(targets, key=lambda target: self._isolated_ms.get(target, 0), default=NOBODY)

    def note(self, target: int, succeeded: bool, now_ms: int, took_ms: int = 0, reason: str = "") -> bool:
        """How a request ended. Returns whether that opened or closed the circuit of the target or of the name."""
        circuit = self.each[target]
        if circuit is self.whole:
            return circuit.note(succeeded, now_ms, took_ms, reason)
        others = sum(other.state is not CircuitState.CLOSED for other in self.each) - (
            circuit.state is not CircuitState.CLOSED)
        changed = circuit.note(succeeded, now_ms, took_ms, reason, may_open=others < self.most_isolated)
        if circuit.state is CircuitState.CLOSED:
            self._isolated_ms.pop(target, None)
        else:
            self._isolated_ms[target] = now_ms
        if self.whole.state is not CircuitState.CLOSED:
            return self.whole.note(succeeded, now_ms, took_ms, reason) or changed
        return self._trip_if_all_fail(now_ms, reason) or changed

    def _trip_if_all_fail(self, now_ms: int, reason: str) -> bool:
        if not all(circuit.state is not CircuitState.CLOSED or circuit.is_failing for circuit in self.each):
            return False
        for target, circuit in enumerate(self.each):
            if circuit.trip(now_ms):
                self._isolated_ms[target] = now_ms
        return self.whole.trip(now_ms, reason)

    def give_up_probe(self, target: int, until_ms: int) -> None:
        """Nobody will learn how a request to this target ended, or its answer says nothing."""
        self.each[target].give_up_probe(until_ms)
        self.whole.give_up_probe(until_ms)

    def give_up_probes(self, until_ms: int) -> None:
        """Nobody will learn how the requests that are under way ended."""
        for target in range(len(self.each)):
            self.give_up_probe(target, until_ms)
