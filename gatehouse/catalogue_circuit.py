"""The catalogue behind a circuit: a database that is down or slow is not asked at every checkpoint.

What it was not given it is given whole, once it is asked again: it knows how far it is complete.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gatehouse.kernel.circuit_breaker import CircuitBreaker
    from gatehouse.kernel.state.catalogue import Catalogue
    from gatehouse.kernel.state.projection import Step


class CircuitCatalogue:  # decision 256
    """`kernel.state.projection.Projection`, on the checkpoints' thread."""

    def __init__(self, catalogue: Catalogue, circuit: CircuitBreaker, now_ms: Callable[[], int]) -> None:
        self.circuit = circuit
        self._catalogue = catalogue
        self._now_ms = now_ms

    def take(self, step: Step) -> None:
        """Write the step, unless the circuit is open."""
        began_ms = self._now_ms()
        if not self.circuit.may_pass(began_ms):
            return
        self._catalogue.take(step)
        now_ms = self._now_ms()
        self.circuit.note(not self._catalogue.failing, now_ms, now_ms - began_ms, self._catalogue.fault)
