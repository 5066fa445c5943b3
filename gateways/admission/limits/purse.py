"""What small bursts may take without a bucket being asked: a part of what the limits have left, reserved.

    set aside     an eighth of the least that the meters have left is taken out of all of them, while none owes anything
    take          three subtractions; no clock is read
    settle        what was not taken is given back: once the part is used up, twice a second, and after 20 ms where
                  somebody else finds little left

Everybody whose messages are charged to the same meters has one purse, so a hundred connections of one user reserve one
part. What is reserved is gone for all others, so however many purses there are, they hold no more together than there
is; and what was taken was charged before, so over time a limit is as exact as without. Where little is left nothing is
set aside, and each burst is weighed. Pure.
"""
# decision 254: a limit that is far away costs a subtraction; decision 293: what is set aside is reserved
from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gatehouse.gateways.admission.limits.meter import Meter

PART: Final = 8
SET_ASIDE_MS: Final = 20
"""For so long a part is its purse's alone; from then on whoever finds little left has the rest given back."""

LEAST: Final = 16
"""Of messages, or operations, that are worth it."""

MOST: Final = 1 << 20
MOST_BYTES: Final = 1 << 30
"""What is set aside at most, where nothing bounds it."""


class Purse:
    """Of everybody whose messages are charged to `common`, and to `own` as what is stored at one place."""

    __slots__ = ("_bytes", "_bytes_left", "_common", "_messages", "_messages_left", "_operations", "_operations_left",
                 "_own", "_values_bytes", "opened_ms")

    def __init__(self, common: Sequence[Meter], own: Sequence[Meter]) -> None:
        self._common: tuple[Meter, ...] = tuple(common)
        self._own: tuple[Meter, ...] = tuple(own)
        self._messages: int = 0                       # what is reserved, and what is left of that
        self._bytes: int = 0
        self._operations: int = 0
        self._messages_left: int = 0
        self._bytes_left: int = 0
        self._operations_left: int = 0
        self._values_bytes: int = 0                   # of what was taken, for `own`
        self.opened_ms: int = 0
        """When the part was set aside."""

    def take(self, messages: int, size_bytes: int, values_bytes: int) -> bool:
        """Whether this could be taken out of what was set aside."""
        if messages > self._messages_left or size_bytes > self._bytes_left or not self._operations_left:
            return False
        self._messages_left -= messages
        self._bytes_left -= size_bytes
        self._operations_left -= 1
        self._values_bytes += values_bytes
        return True

    @property
    def is_used(self) -> bool:
        """Whether something was taken since the part was set aside: another part may be larger."""
        return self._operations_left < self._operations

    def left(self) -> tuple[int, int]:
        """Messages and bytes that may be taken out of it now."""
        return (self._messages_left, self._bytes_left) if self._operations_left else (0, 0)

    def give_back(self, messages: int, size_bytes: int, values_bytes: int) -> None:
        """What was taken last was not stored: it is an operation alone."""
        self._messages_left += messages
        self._bytes_left += size_bytes
        self._values_bytes -= values_bytes

    def settle(self) -> None:
        """Give back what was not taken; nothing is set aside any more."""
        if not self._operations:
            return
        messages, operations = self._messages - self._messages_left, self._operations - self._operations_left
        size_bytes, values_bytes = self._bytes - self._bytes_left, self._values_bytes
        for meter in self._common:
            meter.settle(self._messages, self._bytes, self._operations, messages, size_bytes, operations)
        for meter in self._own:
            meter.settle(self._messages, self._bytes, self._operations, messages, values_bytes, operations)
        self._messages = self._bytes = self._operations = self._values_bytes = 0
        self._messages_left = self._bytes_left = self._operations_left = 0

    def set_aside(self, now_ms: int) -> bool:
        """Settle, and reserve a part of what is left; False: there is not enough for that."""
        self.settle()
        messages = operations = MOST * PART
        size_bytes = MOST_BYTES * PART
        for meters in (self._common, self._own):
            for meter in meters:
                spare = meter.spare(now_ms)
                messages, size_bytes = min(messages, spare[0]), min(size_bytes, spare[1])
                operations = min(operations, spare[2])
        messages, size_bytes, operations = messages // PART, size_bytes // PART, operations // PART
        if min(messages, operations) < LEAST:
            return False
        for meters in (self._common, self._own):
            for meter in meters:
                meter.reserve(messages, size_bytes, operations)
        self._messages = self._messages_left = messages
        self._bytes = self._bytes_left = size_bytes
        self._operations = self._operations_left = operations
        self.opened_ms = now_ms
        return True
