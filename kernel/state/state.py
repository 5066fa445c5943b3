"""Durable state as keyed records: for each (kind, key) the newest record is the whole truth.

Records travel in frame heads; what is in memory here is what changed since the last checkpoint, the rest is in the
store. A record's *order* is the position of the frame that first carried it, its *home* where it lies now: retention
moves what is still the newest of its key out of a segment before the segment goes.

A deleted key keeps a record for as long as an older one of it lies in a kept segment (`copies` counts those): without
it, a rebuild from the log would bring the key back to life.

What of it is in memory whole, and what one record does to that: `Views`.
"""
from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.state.watermarks import PAGE_PARTITIONS, Watermarks

if TYPE_CHECKING:
    from gatehouse.kernel.state.store import IndexStore

_STORED = struct.Struct(">QQBB")
_STORED_DELETED: Final = 1

MAX_GROUP_BYTES = 65_000
MAX_METADATA_BYTES = 4_096

_OFFSET = struct.Struct(">q")
_PARTITION = struct.Struct(">Q")
_PAGE = struct.Struct(">Q")

RECORD_BYTES: Final = 300       # of memory that a change costs beside its value, for the checkpoint's bound


class Kind(IntEnum):
    """What a state record is about; numbers are for ever."""

    COUNTERS = 1          # next ids to give out; one record
    EPOCH = 2             # starts of the hub; one record
    TOPIC = 3             # a topic's definition, by its id
    WATERMARKS = 4             # a page of watermarks, by page number
    PRODUCER = 5          # an idempotent producer's last batches, by partition id and producer id
    OFFSET = 6            # a group's committed offset, by group and partition id
    IDEMPOTENCY = 7       # the answer given for an idempotency key
    HUB = 8               # the 16 bytes that tell this log from every other; one record, written at the first start
    DEFINITION = 9        # a definition of a door's own, by space, tenant and name
    QUEUE = 10            # a queue's definition, by tenant and name
    GROUP = 11            # what is set for a leased or assigned group
    LEASES = 12           # what is settled and leased of 256 offsets of a cursor, by partition id, page and group
    BINDING = 13          # an address filter that leads to a queue
    SCHEDULED = 14        # a message to be delivered later, by message id; its record inline
    TIMER = 15            # when something scheduled falls due, by time and message id; no value
    RETAINED = 16         # the message an address retains, by tenant and levels; its record inline
    KEPT = 17             # a record below its partition's start that somebody still needs, by partition id and offset
    LATEST = 18           # the newest offset of a compacted topic's key, by partition id and key
    SECRET = 19           # random bytes that sign handles; one record
    HALF = 20             # messages of a transaction that nobody sees yet, by its id and a number; inline
    TRANSACTION = 21      # what is known of transactions: those that began together, by id, and those decided together
    CLOCK = 22            # how far hub time and wall time are apart; one record, see `kernel.state.clock`
    SHARD = 23            # who gives this log's ids, see `kernel.ids`; one record, written at the first start
    MEMBERS = 24          # members, generation and assignment of an assigned group, by tenant and name
    SESSION = 25          # whose a session is, and until when it waits, by tenant and client id
    SUBSCRIPTION = 26     # a session's filter with its options, by partition id of the session, number and filter
    FLIGHT = 27           # how far a session has been handed messages and which are in flight, by partition id
    RECEIVED = 28         # packet ids with QoS 2 that came in and are not released, by partition id
    WILL = 29             # what is published when a client's connection breaks, by tenant and client id
    ARRIVED = 30          # how far a partition of another hub's topic has arrived, by hub, topic uuid and partition
    SENT = 31             # how far a link's other hub has a partition of ours, by link, topic uuid and partition
    LINK = 32             # the hub at the other end of a link, its key, and what people have said of the link
    INVITATION = 33       # an invitation to a link that nobody has used, by its number
    NAMED = 34            # a message to be delivered later, by the name that its sender gave it and its id; no value
    CONSUMER_GROUP = 36   # epochs of a consumer group, by tenant and name
    CONSUMER_MEMBER = 37  # a member of a consumer group, with what it has and is to have, by group and member id
    BEGUN = 38            # where in the log an epoch began, by its number
    RECEIPT = 40          # a message whose sender is to be told what becomes of it, by message id
    TERMS = 39            # a session filter's selector, and what it is owed of its history, by partition id and filter
    ENTRUSTED = 45        # a message in flight that a session has of a group, or that was retained, by partition id and
                          # packet id; by filter, how far it was given retained values
    LOSSES = 42           # what of a history is lost to one of two hubs, by the other hub and the way
    SPOOL_KEY = 47        # a key that letters at a meeting point are sealed for, by hub, whose it is, and its number
    SPOOLED = 48          # how far a partition of ours is kept at a meeting point, by hub, topic uuid and partition
    GROUP_CIRCUIT = 43    # a circuit of a group that is open, by tenant and name; see `kernel.groups.circuits`
    PRODUCER_TRANSACTION = 49    # a producer's id, epoch and transaction, by tenant and the name that it gave itself
    HELD_BATCH = 50       # a batch of an open transaction of a producer, by producer id and number; inline
    RETAINED_CLOCK = 46   # when and on which hub an address's value was retained or ended, by tenant and levels


RANGED: Final = frozenset((Kind.RETAINED, Kind.KEPT, Kind.NAMED, Kind.PRODUCER))
"""Kinds that are read by ranges of their keys: what changed of them since a checkpoint is listed by kind."""


class Held(NamedTuple):
    """The newest record of a key."""

    order: int
    home: int
    copies: int                 # records of the key in kept segments, this one included if it is there; never too few
    value: bytes | None         # None: deleted


def store_key(kind: int, key: bytes) -> bytes:
    return b"s" + bytes((kind,)) + key


def behind(prefix: bytes) -> bytes:
    """What lies in order behind every key of the store that begins so; a prefix of `store_key`'s is never all 0xff."""
    prefix = prefix.rstrip(b"\xff")
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def encode_held(held: Held) -> bytes:
    deleted = held.value is None
    return _STORED.pack(held.order, held.home, held.copies, _STORED_DELETED if deleted else 0) + (held.value or b"")


def decode_held(stored: bytes) -> Held:
    order, home, copies, flags = _STORED.unpack_from(stored)
    return Held(order, home, copies, None if flags & _STORED_DELETED else stored[_STORED.size:])


Newest = tuple[int, int, "bytes | None"]
"""(order, home, value) of a key's newest record; the value is None where it is a deletion."""


class StateChanges:  # decision 12
    """The records since a checkpoint: newest value per key, and how many kept copies were made meanwhile."""

    def __init__(self) -> None:
        self.newest: dict[tuple[int, bytes], Newest] = {}
        self.copied: dict[tuple[int, bytes], int] = {}
        self.size_bytes = 0              # of memory, about; keys that come again are counted again
        self.keys: dict[int, list[bytes]] = {kind: [] for kind in RANGED}       # in no particular order

    def absorb(self, position: int, records: list[StateRecord]) -> None:
        """The state records of one durable frame; kept frames carry each record's first position."""
        size_bytes = len(records) * RECORD_BYTES
        for kind, key, value, order in records:
            name = (kind, key)
            if value is not None:
                size_bytes += len(value)
            if order:
                self.copied[name] = self.copied.get(name, 0) + 1
            newest = self.newest.get(name)
            if newest is None:
                self.put(name, (order or position, position, value))
            elif newest[0] <= (order or position):
                self.newest[name] = (order or position, position, value)
        self.size_bytes += size_bytes

    def put(self, name: tuple[int, bytes], newest: Newest) -> None:
        """What is known of a key that was not in here; nothing changes where it was."""
        if name not in self.newest:
            self.newest[name] = newest
            if name[0] in self.keys:
                self.keys[name[0]].append(name[1])


class Changed:
    """The keys of one kind that changed since the store was complete, newest changes first.

    Values are those at the time of asking, so that nothing is copied but the list of keys.
    """

    def __init__(self, kind: int, parts: list[tuple[StateChanges, list[bytes]]]) -> None:
        self._kind = kind
        self._parts = parts

    def keys(self) -> list[bytes]:
        """Sorted, each once."""
        if len(self._parts) == 1:
            return sorted(self._parts[0][1])
        return sorted({key for _, keys in self._parts for key in keys})

    def get(self, key: bytes) -> Newest | None:
        """None where the store knows it all."""
        for changes, _ in self._parts:
            newest = changes.newest.get((self._kind, key))
            if newest is not None:
                return newest
        return None

    def has(self, key: bytes) -> bool:
        """Whether it is in here, and no deletion."""
        newest = self.get(key)
        return newest is not None and newest[2] is not None

    def is_current(self, state: StateTable) -> bool:
        """Whether every change since is in memory still: no checkpoint has begun and ended meanwhile."""
        all_changes = [changes for changes, _ in self._parts]
        return state.changes is all_changes[0] or state.frozen is all_changes[0]


class StateTable:  # decision 12
    """Reads through the changes in memory to the store."""

    def __init__(self, store: IndexStore) -> None:
        self._store = store
        self.changes = StateChanges()
        self.frozen: StateChanges | None = None        # being written by a checkpoint

    def begin(self) -> None:
        """Everything before what comes now is in the store."""
        self.changes = StateChanges()

    def freeze(self) -> StateChanges:
        """Begin to collect anew; the changes so far are read until `thaw`."""
        frozen = self.frozen = self.changes
        self.changes = StateChanges()
        return frozen

    def thaw(self) -> None:
        """What was frozen is in the store."""
        self.frozen = None

    def absorb(self, position: int, records: list[StateRecord]) -> None:
        """The state records of a durable frame."""
        self.changes.absorb(position, records)

    def absorb_kept(self, position: int, records: list[StateRecord]) -> None:
        """A frame of the kept chain that was written while its records were the newest in the store.

        A checkpoint may be writing newer ones. If such a one is a deletion the store is about to forget it, as it knows
        of no copy: it is said once more, so that the copy cannot bring its key back to life.
        """
        if self.frozen is not None:
            for kind, key, _, order in records:
                newer = self.frozen.newest.get((kind, key))
                if newer is not None and newer[0] > order:
                    self.changes.put((kind, key), newer)
        assert all(record.order for record in records), "a kept record says where it was first"
        self.changes.absorb(position, records)

    def get(self, kind: int, key: bytes) -> bytes | None:
        recent = self.recent(kind, key)
        if recent is not None:
            return recent[2]
        stored = self._store.get(store_key(kind, key))
        return None if stored is None else decode_held(stored).value

    def recent(self, kind: int, key: bytes) -> Newest | None:
        """The key's newest record where it is in memory."""
        for changes in (self.changes, self.frozen):
            newest = None if changes is None else changes.newest.get((kind, key))
            if newest is not None:
                return newest
        return None

    def changed(self, kind: int) -> Changed:
        """What of a kind in RANGED is in memory, to be looked at on another thread."""
        return Changed(kind, [(changes, changes.keys[kind].copy()) for changes in (self.changes, self.frozen)
                              if changes is not None])

    def parts(self) -> tuple[IndexStore, list[StateChanges]]:
        """Where records are now: in the store, and what is newer in memory, the newest first."""
        return self._store, [changes for changes in (self.changes, self.frozen) if changes is not None]

    def scan(self, kind: int, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Every live key of a kind that begins so, and its value, in no particular order."""
        seen: set[bytes] = set()
        for changes in (self.changes, self.frozen):
            for (of_kind, key), (_, _, value) in (changes.newest.items() if changes is not None else ()):
                if of_kind == kind and key not in seen and key.startswith(prefix):
                    seen.add(key)
                    if value is not None:
                        yield key, value
        lowest = store_key(kind, prefix)
        for stored_key, stored in self._store.scan(lowest, behind(lowest)):
            held = decode_held(stored)
            if held.value is not None and stored_key[2:] not in seen:
                yield stored_key[2:], held.value


def offset_key(group: str, partition_id: int) -> bytes:
    """The key of an OFFSET record; the group of a queue itself is ""."""
    return _PARTITION.pack(partition_id) + group.encode()


def offset_record(group: str, partition_id: int, offset: tuple[int, bytes] | None) -> StateRecord:
    """A group's committed offset in one partition; None deletes it."""
    value = None if offset is None else _OFFSET.pack(offset[0]) + offset[1][:MAX_METADATA_BYTES]
    return StateRecord(Kind.OFFSET, offset_key(group, partition_id), value)


def decode_offset_key(key: bytes) -> tuple[int, str]:
    """Partition id and group of an OFFSET record."""
    return _PARTITION.unpack_from(key)[0], key[_PARTITION.size:].decode()


def decode_offset(value: bytes) -> tuple[int, bytes]:
    """Offset and metadata of an OFFSET record."""
    return _OFFSET.unpack_from(value)[0], value[_OFFSET.size:]


def epoch_key(epoch: int) -> bytes:
    """Of where an epoch began."""
    return epoch.to_bytes(4, "big")


def decode_epoch_key(key: bytes) -> int:
    return int.from_bytes(key, "big")


def encode_position(position: int) -> bytes:
    return position.to_bytes(8, "big")


def decode_position(value: bytes) -> int:
    return int.from_bytes(value, "big")


def heads_record(page: int, packed: bytes) -> StateRecord:
    return StateRecord(Kind.WATERMARKS, _PAGE.pack(page), packed)


def partitions_of_watermarks(key: bytes) -> range:
    """The partitions whose watermarks a WATERMARKS record holds."""
    first = int(_PAGE.unpack(key)[0]) * PAGE_PARTITIONS
    return range(first, first + PAGE_PARTITIONS)


class Views:
    """Topics, watermarks, committed offsets and the epoch, kept up to date by state records."""

    def __init__(self, topics: Topics, watermarks: Watermarks) -> None:
        self._topics = topics
        self._watermarks = watermarks
        self.epoch = 0
        self.offsets: dict[str, dict[int, tuple[int, bytes]]] = {}

    def apply(self, record: StateRecord) -> None:
        """A record at replay; a kind that is not kept in memory does nothing."""
        if record.kind == Kind.COUNTERS and record.value is not None:
            self._topics.apply_counters(record.value)
        elif record.kind == Kind.TOPIC:
            self._topics.apply(record.key, record.value)
        elif record.kind == Kind.EPOCH and record.value is not None:
            self.epoch = max(self.epoch, int.from_bytes(record.value, "big"))
        else:
            self.apply_stored(record)

    def apply_stored(self, record: StateRecord) -> None:
        """A record that has just become durable: only what was not changed beforehand."""
        if record.kind == Kind.WATERMARKS and record.value is not None:
            self._watermarks.merge(_PAGE.unpack(record.key)[0], record.value)
        elif record.kind == Kind.OFFSET:
            self._apply_offset(record.key, record.value)

    def _apply_offset(self, key: bytes, value: bytes | None) -> None:
        partition_id, group = decode_offset_key(key)
        if not group:                             # a queue's own: nobody needs what lies before it
            gone = self._watermarks.next_offset(partition_id)          # of a deleted partition nobody needs anything
            self._watermarks.advance(partition_id, gone if value is None else decode_offset(value)[0])
        elif value is not None:
            self.offsets.setdefault(group, {})[partition_id] = decode_offset(value)
        elif group in self.offsets:
            self.offsets[group].pop(partition_id, None)
            if not self.offsets[group]:
                del self.offsets[group]
