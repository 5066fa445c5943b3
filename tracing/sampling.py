"""How much of what happens is recorded: which messages are followed from the start, some of each topic, chosen as they
come; and how many errors of a topic. Pure. Hot.

Whoever takes messages in counts down to the next one that is looked at; so a message that is not followed costs
nothing, and a batch without any one subtraction. Gaps between two are drawn evenly about their mean, so that nothing
that repeats (every hundredth message is of the same kind) is followed always, or never. They are drawn for the topic
that is followed most; of the others some of these are left out.

Where many messages come, those that are looked at lie together, and gaps are as much longer: what happens to a group is
told as one, and groups are a few each tenth of a second, however many messages they have.

An hour in which every message fails must not fill the disk. So errors have a budget:

    the first error of a message        as long as anything of the budget is left
    one between its first and its last  as long as half of it is left: messages that fail for ever take the rest from
                                        nobody
    the last of one that is followed    always: there was room for its first
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NEVER: Final = 1 << 60
"""Messages until the next one, where none is followed."""

WINDOW_MS: Final = 100
GROUPS: Final = 2
"""Groups that begin in a window, about: with more of them the next ones are larger, with fewer smaller."""

MAX_TOGETHER: Final = 4_096

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
        self._together, self._left = 1, 0     # messages of a group, and of the one that has begun
        self._window = self._begun = 0       # and how many began in it
        self._looked_at = 0                  # messages in it
        self._size = 1                       # of the group that has begun

    def gap(self) -> int:
        """How many messages come before the next one that is looked at."""
        if self._highest <= 0:
            return NEVER
        if self._highest >= 1:
            return 0
        return int(self._fraction() * 2 * (1 / self._highest - 0.5))

    def picks(self, at: int, count: int, now_ms: int) -> tuple[list[range], int]:  # decision 266
        """Which of so many messages are looked at, from that at `at` on; and how many pass before the next one."""
        if self._highest >= 1:
            return [range(at, count)], max(0, at - count)
        if now_ms // WINDOW_MS != self._window:
            self._turn(now_ms // WINDOW_MS)
        picked: list[range] = []
        while at < count:
            if not self._left:
                self._begin()
            stop = min(at + self._left, count)
            picked.append(range(at, stop))
            self._left -= stop - at
            self._looked_at += stop - at
            at = stop if self._left else stop + self._behind()
        return picked, at - count

    def _turn(self, window: int) -> None:
        """Another window has begun: groups are as large as the one before asks for."""
        windows = max(1, window - self._window)
        self._together = min(MAX_TOGETHER, max(1, self._looked_at // (GROUPS * windows)))
        self._window, self._begun, self._looked_at = window, 0, 0

    def _begin(self) -> None:
        """A group begins; where that are too many in this window already, it is larger than the one before."""
        self._begun += 1
        if self._begun > GROUPS:
            self._together = min(MAX_TOGETHER, 2 * self._together)
        self._size = self._left = self._together

    def _behind(self) -> int:
        """How many messages come behind the group that has ended before the next one."""
        if self._highest <= 0:
            return NEVER
        return int(self._fraction() * (2 * self._size * (1 / self._highest - 1) + 1))

    def _fraction(self) -> float:
        self._drawn += 1
        return (self._drawn * _STEP & _MASK) / _HALF

    @property
    def is_together(self) -> bool:
        """Whether messages that are looked at lie together, and the gap that was drawn last is a long one."""
        return self._together > 1

    def calm(self) -> None:
        """Nothing was looked at for a while: the next gap is that of single messages."""
        self._together, self._left = 1, 0

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


BUDGET_MS: Final = 60_000
MAX_COUNTED: Final = 10_000
"""Topics that are counted apart; the others share one budget."""

ELSE: Final = -1


class Budget:
    """`most` events of a topic in a minute. What comes beyond is counted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun_ms = 0
        self._spent: dict[int, int] = {}
        self.left_out = 0
        """Events that were not recorded, since the start."""

    def spend(self, topic_id: int, now_ms: int, is_first: bool = True) -> bool:
        """Whether one more event of this topic is recorded: the first error of a message, or one that follows it."""
        if not 0 <= now_ms - self._begun_ms < BUDGET_MS:      # also where the clock was set back
            self._begun_ms = now_ms
            self._spent.clear()
        if topic_id not in self._spent and len(self._spent) >= MAX_COUNTED:
            topic_id = ELSE
        spent = self._spent.get(topic_id, 0)
        if spent >= (self._most if is_first else self._most // 2):
            self.left_out += 1
            return False
        self._spent[topic_id] = spent + 1
        return True
