"""What small bursts may take without a bucket being asked: a part of what the limits have left, set aside for a moment.

    set aside     an eighth of the least that the meters have left, for 20 ms, while none of them owes anything
    take          four subtractions and a comparison
    settle        what was taken is charged: when the part is used up or old, and twice a second

Everybody whose messages are charged to the same meters has one purse, so a hundred connections of one user set aside
one part. What was taken is charged in any case, only a little later: so over time a limit is as exact as without. Where
little is left nothing is set aside, and each burst is weighed. Pure.
"""
# decision 254: a limit that is far away costs a subtraction
from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gatehouse.gateways.admission.limits.meter import NO_BOUND, Meter, charge_all

PART: Final = 8
SET_ASIDE_MS: Final = 20
LEAST: Final = 16
"""Of messages, or operations, that are worth it."""


class Purse:
    """Of everybody whose messages are charged to `common`, and to `own` as what is stored at one place."""

    __slots__ = ("_at_ms", "_bytes", "_bytes_left", "_common", "_messages", "_messages_left", "_operations",
                 "_operations_left", "_own", "_until_ms", "_values_bytes")

    def __init__(self, common: Sequence[Meter], own: Sequence[Meter]) -> None:
        self._common = common
        self._own = own
        self._messages_left = self._bytes_left = self._operations_left = 0
        self._until_ms = self._at_ms = 0
        self._messages = self._bytes = self._values_bytes = self._operations = 0        # taken and not charged

    def take(self, messages: int, size_bytes: int, values_bytes: int, now_ms: int) -> bool:
        """Whether this could be taken out of what was set aside."""
        if now_ms >= self._until_ms or messages > self._messages_left or size_bytes > self._bytes_left \
                or not self._operations_left:
            return False
        self._messages_left -= messages
        self._bytes_left -= size_bytes
        self._operations_left -= 1
        self._messages += messages
        self._bytes += size_bytes
        self._values_bytes += values_bytes
        self._operations += 1
        self._at_ms = now_ms
        return True

    def left(self, now_ms: int) -> tuple[int, int]:
        """Messages and bytes that may be taken out of it now."""
        return (self._messages_left, self._bytes_left) if now_ms < self._until_ms and self._operations_left else (0, 0)

    def give_back(self, messages: int, size_bytes: int, values_bytes: int) -> None:
        """What was taken last was not stored: it is an operation alone."""
        self._messages -= messages
        self._bytes -= size_bytes
        self._values_bytes -= values_bytes

    def settle(self) -> None:
        """Charge what was taken; nothing is set aside any more."""
        self._until_ms = 0
        if self._operations:
            charge_all(self._common, self._messages, self._bytes, self._operations, self._at_ms)
            charge_all(self._own, self._messages, self._values_bytes, self._operations, self._at_ms)
            self._messages = self._bytes = self._values_bytes = self._operations = 0

    def set_aside(self, now_ms: int) -> bool:
        """Charge what was taken, and set aside a part of what is left; False: there is not enough for that."""
        self.settle()
        messages = size_bytes = operations = NO_BOUND
        for meters in (self._common, self._own):
            for meter in meters:
                spare = meter.spare(now_ms)
                messages, size_bytes = min(messages, spare[0]), min(size_bytes, spare[1])
                operations = min(operations, spare[2])
        self._messages_left, self._bytes_left, self._operations_left = (
            messages // PART, size_bytes // PART, operations // PART)
        if min(self._messages_left, self._operations_left) < LEAST:
            self._until_ms = 0
            return False
        self._until_ms = now_ms + SET_ASIDE_MS
        return True
