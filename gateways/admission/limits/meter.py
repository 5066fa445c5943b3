"""What one limit has left for one of those whom it speaks of. Pure: time is an argument.

    wait_ms      asked of all that apply, before any is charged
    charge       once for each burst that was taken
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gatehouse.gateways.admission.limits.bucket import TokenBucket
from gatehouse.gateways.admission.limits.limit import Limit
from gatehouse.gateways.admission.limits.stored import StoredBound

NO_BOUND: Final = 1 << 60
"""More than any burst has."""

LOOK_AGAIN_MS: Final = 1000
"""How long who waits does not look whether limits have changed meanwhile."""


TAKERS_MAX: Final = 4096
"""Those who share a meter that are told apart; further ones count as one of them."""


class Meter:
    """The buckets of a limit, for one name. `observed`, `refused` and `slowed_ms` count from the start of the hub."""

    __slots__ = ("_bytes", "_looked_ms", "_messages", "_operations", "_takers", "bytes_taken", "limit",
                 "messages_taken", "name", "observed", "refused", "slowed_ms", "stored")

    def __init__(self, limit: Limit, name: str, now_ms: int) -> None:
        self.limit = limit
        self.name = name
        self.messages_taken = 0
        self.bytes_taken = 0
        self.observed = 0                    # bursts that were too much for a limit that only observes
        self.refused = 0                     # messages
        self.slowed_ms = 0                   # the sum of what was told
        self._messages = _bucket(limit.messages_per_s, limit.messages_burst, now_ms)
        self._bytes = _bucket(limit.bytes_per_s, limit.bytes_burst, now_ms)
        self._operations = _bucket(limit.operations_per_s, limit.operations_burst, now_ms)
        self.stored = StoredBound(limit.stored_messages, limit.stored_bytes) if limit.bounds_stored else None
        """How much there may be, where the limit says."""

        self._takers: dict[int, int] | None = None       # who takes more than there is: when he was last heard of
        self._looked_ms = 0                              # when those were forgotten who are not heard of any more

    def change(self, limit: Limit, now_ms: int) -> None:
        """The limit reads otherwise from now on; those who hold this meter need not look it up again."""
        self.limit = limit
        self._messages = _changed(self._messages, limit.messages_per_s, limit.messages_burst, now_ms)
        self._bytes = _changed(self._bytes, limit.bytes_per_s, limit.bytes_burst, now_ms)
        self._operations = _changed(self._operations, limit.operations_per_s, limit.operations_burst, now_ms)
        if not limit.bounds_stored:
            self.stored = None
        elif self.stored is None:
            self.stored = StoredBound(limit.stored_messages, limit.stored_bytes)
        else:
            self.stored.change(limit.stored_messages, limit.stored_bytes)

    @property
    def is_full(self) -> bool:
        """Whether as much is stored as may be."""
        return self.stored is not None and not self.limit.observe and self.stored.is_full

    @property
    def is_closed(self) -> bool:
        """Whether nothing may ever pass."""
        if self.limit.observe:
            return False
        for bucket in (self._messages, self._bytes, self._operations):
            if bucket is not None and bucket.is_closed:
                return True
        return False

    def worth_ms(self, messages: int, size_bytes: int) -> int:
        """How long it takes until so much may pass."""
        of_messages = 0 if self._messages is None else self._messages.worth_ms(messages)
        return max(of_messages, 0 if self._bytes is None else self._bytes.worth_ms(size_bytes))

    def share(self, taker: int, now_ms: int) -> int:
        """Among how many what there is is to be shared, since this one takes too. `taker`: what tells it from others;
        it is one of them for some seconds, and has to be heard of again."""
        takers = self._takers
        if takers is None:
            takers = self._takers = {}
        if now_ms - self._looked_ms > LOOK_AGAIN_MS:
            self._looked_ms = now_ms
            for gone in [other for other, heard_ms in takers.items() if now_ms - heard_ms > 2 * LOOK_AGAIN_MS]:
                del takers[gone]
        if len(takers) < TAKERS_MAX or taker in takers:
            takers[taker] = now_ms
        return len(takers)

    def wait_ms(self, now_ms: int) -> int:
        """For how many ms nothing may pass; 0: something may."""
        if self.limit.observe:
            return 0
        wait_ms = 0
        for bucket in (self._messages, self._bytes, self._operations):
            if bucket is not None:
                owed_ms = bucket.wait_ms(now_ms)
                if owed_ms > wait_ms:
                    wait_ms = owed_ms
        return max(wait_ms, LOOK_AGAIN_MS) if self.stored is not None and self.stored.is_full else wait_ms

    def charge(self, messages: int, size_bytes: int, operations: int, now_ms: int) -> int:
        """Something was taken. Returns for how many ms its sender is to be slowed down."""
        self.messages_taken += messages
        self.bytes_taken += size_bytes
        bucket = self._messages
        wait_ms = 0 if bucket is None else bucket.take(messages, now_ms)
        bucket = self._bytes
        if bucket is not None:
            owed_ms = bucket.take(size_bytes, now_ms)
            if owed_ms > wait_ms:
                wait_ms = owed_ms
        bucket = self._operations
        if bucket is not None:
            owed_ms = bucket.take(operations, now_ms)
            if owed_ms > wait_ms:
                wait_ms = owed_ms
        stored = self.stored
        if stored is not None:
            stored.add(messages, size_bytes)
            if stored.is_full and wait_ms < LOOK_AGAIN_MS:
                wait_ms = LOOK_AGAIN_MS
        if wait_ms:
            if self.limit.observe:
                self.observed += 1
                return 0
            self.slowed_ms += wait_ms
        return wait_ms

    def reserve(self, messages: int, size_bytes: int, operations: int) -> None:
        """Take what `spare` has just said to be there, and more; `settle` follows."""
        for bucket, amount in ((self._messages, messages), (self._bytes, size_bytes), (self._operations, operations)):
            if bucket is not None:
                bucket.reserve(amount)
        if self.stored is not None:
            self.stored.add(messages, size_bytes)

    def settle(self, messages: int, size_bytes: int, operations: int, messages_used: int, bytes_used: int,
               operations_used: int) -> None:
        """Of what was reserved so much was used: the rest is given back. The limit may read otherwise by now."""
        self.messages_taken += messages_used
        self.bytes_taken += bytes_used
        for bucket, unused in ((self._messages, messages - messages_used), (self._bytes, size_bytes - bytes_used),
                               (self._operations, operations - operations_used)):
            if bucket is not None:
                bucket.give_back(unused)
        if self.stored is not None:
            self.stored.add(messages_used - messages, bytes_used - size_bytes)

    def refuse(self, messages: int, now_ms: int) -> None:
        """Messages were refused for this limit or another: that is an operation, and nothing else is charged."""
        self.refused += messages
        if self._operations is not None:
            self._operations.take(1, now_ms)

    def room(self, now_ms: int) -> tuple[int, int]:
        """How many messages, and how many bytes of them, may be taken at once; at least one of each."""
        if self.limit.observe:
            return NO_BOUND, NO_BOUND
        messages = NO_BOUND if self._messages is None else max(1, self._messages.room(now_ms))
        size_bytes = NO_BOUND if self._bytes is None else max(1, self._bytes.room(now_ms))
        if self.stored is not None:
            left = self.stored.room()
            messages, size_bytes = min(messages, max(1, left[0])), min(size_bytes, max(1, left[1]))
        return messages, size_bytes

    def spare(self, now_ms: int) -> tuple[int, int, int]:
        """Messages, bytes and operations that are there, also of a limit that only observes; 0 where some are owed."""
        messages = NO_BOUND if self._messages is None else max(0, self._messages.level(now_ms))
        size_bytes = NO_BOUND if self._bytes is None else max(0, self._bytes.level(now_ms))
        operations = NO_BOUND if self._operations is None else max(0, self._operations.level(now_ms))
        if self.stored is not None:
            left = self.stored.room()
            messages, size_bytes = min(messages, left[0]), min(size_bytes, left[1])
        return messages, size_bytes, operations

    def levels(self, now_ms: int) -> dict[str, int]:
        """What is left of each, for people; below 0: what is owed."""
        named = (("messages", self._messages), ("bytes", self._bytes), ("operations", self._operations))
        levels = {name: bucket.level(now_ms) for name, bucket in named if bucket is not None}
        if self.stored is not None:
            left = zip(("stored_messages", "stored_bytes"), self.stored.left(), strict=True)
            levels |= {name: room for name, room in left if room is not None}
        return levels


def charge_all(meters: Sequence[Meter], messages: int, size_bytes: int, operations: int, now_ms: int) -> int:
    """Charge each of them; returns the longest wait."""
    wait_ms = 0
    for meter in meters:
        owed_ms = meter.charge(messages, size_bytes, operations, now_ms)
        if owed_ms > wait_ms:
            wait_ms = owed_ms
    return wait_ms


def _bucket(rate: float | None, burst: int | None, now_ms: int) -> TokenBucket | None:
    return None if rate is None else TokenBucket(rate, _burst(rate, burst), now_ms)


def _changed(bucket: TokenBucket | None, rate: float | None, burst: int | None, now_ms: int) -> TokenBucket | None:
    if bucket is None or rate is None:
        return _bucket(rate, burst, now_ms)
    bucket.change(rate, _burst(rate, burst), now_ms)
    return bucket


def _burst(rate: float, burst: int | None) -> int:
    """One second of the rate where nothing is said: at least one token, or nothing would ever fit."""
    return max(1, int(rate)) if burst is None else burst
