"""Circuits where one name has several targets: which of them is asked next, and when none is. Pure; times in ms.

    every target has a circuit           one that fails is isolated: it is not asked but for its probes
    at most 30 % are isolated at once    one at least; what fails beyond that is asked on, or the others had too much
    all of them fail                     the name has a circuit too, which opens: one probe at a time is sent, to the
                                         target that has been isolated longest

So a name that is down costs one request each time, however many targets it has. With one target its circuit is that of
the name. Targets are asked in turn.
"""
# decision 272: while some answer few are isolated, and when all fail one at a time is tried
from __future__ import annotations

from typing import Final

from gatehouse.kernel.circuit_breaker import CircuitBreaker, CircuitSettings, CircuitState

MOST_ISOLATED_PERCENT: Final = 30
NOBODY: Final = -1


class TargetCircuits:
    """See the module's text. Ask `choose` before each request, and tell `note` how it ended."""

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
