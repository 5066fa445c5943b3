"""Which messages are followed from the start: some of each topic, chosen as they come. Pure.

Whoever takes messages in counts down to the next one that is looked at; so a message that is not followed costs
nothing, and a batch without any one subtraction. Gaps between two are drawn evenly about their mean, so that nothing
that repeats (every hundredth message is of the same kind) is followed always, or never. Each is kept for some turns,
so that what is followed of a burst lies evenly and is told as one. They are drawn for the topic that is followed most;
of the others some of these are left out.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NEVER: Final = 1 << 60
"""Messages until the next one, where none is followed."""

KEPT: Final = 16
"""Messages that are looked at before another gap is drawn."""

_STEP: Final = 0x9E3779B97F4A7C15       # 2**64 over the golden ratio: its multiples lie evenly
_MASK: Final = (1 << 64) - 1
_HALF: Final = 1 << 64


class Sampling:
    """`rate` is how much of a topic is followed, from 0 to 1; `topics` are those with a rate of their own."""

    def __init__(self, rate: float, topics: Mapping[str, float] | None = None) -> None:
        self._rate = rate
        self._topics = dict(topics or {})
        self._highest = max([rate, *self._topics.values()])
        self._drawn = 0
        self._owed: dict[str, float] = {}
        self._step = self._left = 0

    def gap(self) -> int:
        """How many messages come before the next one that is looked at."""
        if self._highest <= 0:
            return NEVER
        if self._highest >= 1:
            return 0
        self._drawn += 1
        fraction = (self._drawn * _STEP & _MASK) / _HALF
        return int(fraction * 2 * (1 / self._highest - 0.5))

    def picks(self, at: int, count: int) -> tuple[list[range], int]:
        """Which of so many messages are looked at, from that at `at` on; and how many pass before the next one."""
        if self._highest >= 1:
            return [range(at, count)], max(0, at - count)
        picked: list[range] = []
        while at < count:
            if not self._left:
                self._step, self._left = 1 + self.gap(), KEPT
            most = min(self._left, -(-(count - at) // self._step))
            stop = at + most * self._step
            picked.append(range(at, min(stop, count), self._step))
            self._left -= most
            at = stop
        return picked, at - count

    @property
    def is_even(self) -> bool:
        """Whether all topics have one rate."""
        return not self._topics

    def rate_of(self, topic: str) -> float:
        """How much of a topic is followed."""
        return self._topics.get(topic, self._rate)

    def follows(self, topic: str) -> bool:
        """Whether a message of this topic that is looked at is followed."""
        rate = self.rate_of(topic)
        if rate >= self._highest:
            return True
        if rate <= 0:
            return False
        owed = self._owed.get(topic, 0.5) + rate / self._highest
        taken = owed >= 1
        if rate != self._rate or taken or len(self._owed) < MAX_TOPICS or topic in self._owed:
            self._owed[topic] = owed - 1 if taken else owed
        return taken


MAX_TOPICS: Final = 10_000
"""Topics of which it is remembered how much is owed to their rate; of others none is followed from the start."""
