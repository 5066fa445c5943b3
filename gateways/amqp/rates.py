"""Rates of counts that only grow, as the management interface shows them: since they were asked for before. Pure."""
from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

SAMPLE_MS: Final = 5_000               # between two samples at least, as in RabbitMQ
COUNTS_MAX: Final = 100_000            # whose samples are remembered; forgotten all at once beyond that


class Samples(NamedTuple):
    """Two looks at a count, the earlier one first."""

    value: int
    at_ms: int
    newer_value: int
    newer_at_ms: int


class Rates:
    """The samples of every count that somebody looks at."""

    def __init__(self) -> None:
        self._samples: dict[Hashable, Samples] = {}

    def of(self, name: Hashable, count: int, now_ms: int) -> float:
        """How fast a count grows, a second; 0 where it is looked at for the first time."""
        samples = self._samples.get(name)
        if samples is None or count < samples.newer_value:             # the queue was made anew
            if len(self._samples) >= COUNTS_MAX:
                self._samples.clear()
            self._samples[name] = Samples(count, now_ms, count, now_ms)
            return 0.0
        if now_ms - samples.newer_at_ms >= SAMPLE_MS:
            samples = self._samples[name] = Samples(samples.newer_value, samples.newer_at_ms, count, now_ms)
        past_ms = now_ms - samples.at_ms
        return round((count - samples.value) * 1_000 / past_ms, 1) if past_ms > 0 else 0.0
