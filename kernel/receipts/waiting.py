"""Messages whose senders wait for a receipt: by their ids, and by where they lie. Pure.

The state record of one, by its id (u64), is JSON:

    [tenant, address of the receipt, group, asked at (ms), correlation id, traceparent,
     [[partition id, offset], ...], [told, ...], address, may create, maker]

The two headers are Latin-1 text, so that any bytes fit. `told` are the groups that have acknowledged it; the last two
are what its sender might do at the address, see `receipts.Allowed`.
"""
from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

import orjson

from gatehouse.kernel.records.headers import Asked

MAX_WAITING: Final = 50_000
"""Messages that may wait for receipts at a time. Of those beyond, the oldest are let go of, and counted."""

MAX_PLACES: Final = 32
"""Of one message: its partition, queues that it entered, dead letters, what was redriven."""

MAX_TOLD: Final = 64
"""Groups that one message is told of."""

_ID: Final = struct.Struct(">Q")


def key_of(message_id: int) -> bytes:
    """The key of its state record."""
    return _ID.pack(message_id)


class Awaited:
    """One message. `group`: "" for whoever acknowledges it."""

    __slots__ = ("message_id", "tenant", "asked", "asked_ms", "places", "told", "address", "may_create", "maker")

    def __init__(self, message_id: int, tenant: str, asked: Asked, asked_ms: int, address: str, may_create: bool,
                 maker: str) -> None:
        self.message_id = message_id
        self.tenant = tenant
        self.asked = asked
        self.asked_ms = asked_ms
        self.address = address
        self.may_create = may_create
        self.maker = maker
        self.places: list[tuple[int, int]] = []
        self.told: list[str] = []

    def wants(self, group: str) -> bool:
        """Whether its sender is to be told of this group."""
        return self.asked.group in ("", group) and group not in self.told and len(self.told) < MAX_TOLD

    def encode(self) -> bytes:
        """The value of its state record."""
        asked = self.asked
        return orjson.dumps([
            self.tenant, asked.address, asked.group, self.asked_ms, asked.correlation.decode("latin-1"),
            asked.traceparent.decode("latin-1"), self.places, self.told, self.address, self.may_create, self.maker])


def decode(key: bytes, value: bytes) -> Awaited:
    """From a state record."""
    tenant, to, group, asked_ms, correlation, traceparent, places, groups, address, may_create, maker = (
        orjson.loads(value))
    waiting = Awaited(_ID.unpack(key)[0], tenant, Asked(
        to, group, correlation.encode("latin-1"), traceparent.encode("latin-1")), asked_ms, address, may_create, maker)
    waiting.places = [(partition_id, offset) for partition_id, offset in places]
    waiting.told = groups
    return waiting


class AllAwaited:
    """All of them."""

    def __init__(self, most: int = MAX_WAITING) -> None:
        self._most = most
        self._by_id: dict[int, Awaited] = {}                       # the oldest first
        self._ids: list[int] = []                                  # sorted
        self._of: dict[int, dict[int, Awaited]] = {}               # by partition id, then by offset
        self._offsets: dict[int, list[int]] = {}                   # by partition id, sorted

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Awaited]:
        """The oldest first."""
        return iter(self._by_id.values())

    @property
    def has_room(self) -> bool:
        """Whether one more may wait without another being let go of."""
        return len(self._by_id) < self._most

    def by_id(self, message_id: int) -> Awaited | None:
        """The one with this id."""
        return self._by_id.get(message_id)

    def add(self, waiting: Awaited) -> None:
        """It waits; its places are in it."""
        if waiting.message_id in self._by_id:
            self.remove(waiting)
        self._by_id[waiting.message_id] = waiting
        insort(self._ids, waiting.message_id)
        for partition_id, offset in waiting.places:
            self._note(waiting, partition_id, offset)

    def place(self, waiting: Awaited, partition_id: int, offset: int) -> bool:
        """It lies there, too. Whether that is new, and there was room for it."""
        if len(waiting.places) >= MAX_PLACES or (partition_id, offset) in waiting.places:
            return False
        waiting.places.append((partition_id, offset))
        self._note(waiting, partition_id, offset)
        return True

    def take_away(self, waiting: Awaited, partition_id: int, offset: int) -> None:
        """It does not lie there after all."""
        waiting.places.remove((partition_id, offset))
        self._forget(waiting, partition_id, offset)

    def _note(self, waiting: Awaited, partition_id: int, offset: int) -> None:
        of = self._of.setdefault(partition_id, {})
        if offset not in of:
            insort(self._offsets.setdefault(partition_id, []), offset)
        of[offset] = waiting

    def remove(self, waiting: Awaited) -> None:
        """Nobody is told of it any more."""
        if self._by_id.pop(waiting.message_id, None) is None:
            return
        del self._ids[bisect_left(self._ids, waiting.message_id)]
        for partition_id, offset in waiting.places:
            self._forget(waiting, partition_id, offset)

    def _forget(self, waiting: Awaited, partition_id: int, offset: int) -> None:
        of = self._of.get(partition_id, {})
        if of.get(offset) is waiting:
            del of[offset]
            offsets = self._offsets[partition_id]
            del offsets[bisect_left(offsets, offset)]
            if not of:
                del self._of[partition_id], self._offsets[partition_id]

    def at(self, partition_id: int, offset: int) -> Awaited | None:
        """The one at this offset."""
        of = self._of.get(partition_id)
        return None if of is None else of.get(offset)

    def reads(self, partition_id: int) -> bool:
        """Whether one lies in this partition."""
        return partition_id in self._of

    def within(self, partition_id: int, start: int, stop: int) -> list[Awaited]:
        """Those that lie from one offset to before another."""
        offsets = self._offsets.get(partition_id)
        if offsets is None:
            return []
        of = self._of[partition_id]
        return [of[offset] for offset in offsets[bisect_left(offsets, start):bisect_left(offsets, stop)]]

    def ids_within(self, first_id: int, count: int) -> list[int]:
        """Those with ids from `first_id` on."""
        at = bisect_left(self._ids, first_id)
        return self._ids[at:bisect_left(self._ids, first_id + count, at)]
