"""The kernel's durable state, and what of it is in memory: keyed records, where partitions begin and end, and the two
clocks. Hot.

State records
-------------
For each (kind, key) the newest record is the whole truth. Records travel in frame heads; what is in memory here is what
changed since the last checkpoint, the rest is in the store. A record's *order* is the position of the frame that first
carried it, its *home* where it lies now: retention moves what is still the newest of its key out of a segment before
the segment goes.

A deleted key keeps a record for as long as an older one of it lies in a kept segment (`copies` counts those): without
it, a rebuild from the log would bring the key back to life.

What of it is in memory whole, and what one record does to that: `Views`.

Watermarks
----------
Where each partition begins and ends: two numbers per partition, in pages of 256 partitions. Partition ids of a topic
follow one another, so a million partitions are some four thousand pages; a partition that never held a message has no
page. Both numbers only ever grow, so applying a page or an entry twice changes nothing.

The clock
---------
What the kernel knows of its two clocks (see `kernel.ports`), over starts and steps of the wall clock.

    hub time      goes on over a restart where the log ended, and for as long as the wall clock says that the hub was
                  away; where it says a time before the end of the log, the hub counts as having been away for no time
    append time   is wall time, but never falls: behind a step back it stands still until wall time has caught up
    stretches     between two steps the clocks are so far apart: what hub time it was at an append time, and the
                  other way round, is known from these, so that the age of what is stored counts no step

The state record (Kind.CLOCK, one) is in the first frame of every start, in each that follows a step, and in each while
append time stands still. All numbers are i64, big-endian:

    append_ms, hub_ms, wall_ms     of its frame
    hub_ms, wall_ms                where each stretch begins, the oldest first
"""
from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import IntEnum
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.ids import shards_of
from gatehouse.kernel.message import Entries, StateRecord
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.state.topics import Topics

if TYPE_CHECKING:
    from gatehouse.kernel.state.store import IndexStore

# --- where partitions begin and end -----------------------------------------------------------------------------------

PAGE_PARTITIONS: Final = 256
_PAGE_SHIFT: Final = 8
_PAGE_MASK: Final = PAGE_PARTITIONS - 1


class Watermarks:  # decision 11
    """log_start and next offset of every partition, as far as they are durable."""

    def __init__(self) -> None:
        self.pages: dict[int, array[int]] = {}
        self.dirty: set[int] = set()
        self.floors: dict[int, int] = {}
        """Compacted partitions of which not even the newest of a key is kept before this offset. Retention looks anew
        after a start: until then they begin at 0."""

        self.consumed: dict[int, int] = {}  # partitions whose beginning was consumed since a checkpoint: their start

    def begin_at(self, floors: dict[int, int]) -> None:
        """These are all floors that there are."""
        self.floors = floors

    def next_offset(self, partition_id: int) -> int:
        page = self.pages.get(partition_id >> _PAGE_SHIFT)
        if page is None:
            return 0
        offset: int = page[(partition_id & _PAGE_MASK) * 2 + 1]
        return offset

    def log_start(self, partition_id: int) -> int:
        page = self.pages.get(partition_id >> _PAGE_SHIFT)
        if page is None:
            return 0
        offset: int = page[(partition_id & _PAGE_MASK) * 2]
        return offset

    def bounds_of(self, first: int, count: int) -> array[int]:
        """log_start and next offset of each of `count` partitions that follow one another."""
        bounds: array[int] = array("q")
        end = first + count
        while first < end:
            stop = min(end, (first | _PAGE_MASK) + 1)
            page = self.pages.get(first >> _PAGE_SHIFT)
            if page is None:
                bounds.frombytes(bytes((stop - first) * 16))
            elif stop - first == PAGE_PARTITIONS:
                bounds.extend(page)                  # nothing is made of it in between
            else:
                at = (first & _PAGE_MASK) * 2
                bounds.extend(page[at:at + (stop - first) * 2])
            first = stop
        return bounds

    def next_offsets(self, partition_ids: list[int]) -> list[int]:
        """Next offsets of many partitions at once."""
        offsets: list[int] = []
        pages = self.pages
        for partition_id in partition_ids:
            page = pages.get(partition_id >> _PAGE_SHIFT)
            if page is None:
                offsets.append(0)
            else:
                offset: int = page[(partition_id & _PAGE_MASK) * 2 + 1]
                offsets.append(offset)
        return offsets

    def apply(self, entries: Entries) -> None:
        """Records entered these partitions."""
        pages = self.pages
        partition_ids: list[int] = entries.partition_id.tolist()
        firsts: list[int] = entries.first_offset.tolist()
        counts: list[int] = entries.count.tolist()
        number_before = -1
        page: array[int] | None = None
        for i in range(len(partition_ids)):
            partition_id = partition_ids[i]
            number = partition_id >> _PAGE_SHIFT
            if number != number_before or page is None:
                number_before = number
                page = pages.get(number)
                if page is None:
                    page = pages[number] = array("q", bytes(PAGE_PARTITIONS * 16))
                self.dirty.add(number)
            end = firsts[i] + counts[i]
            at = (partition_id & _PAGE_MASK) * 2 + 1
            if page[at] < end:
                page[at] = end

    def advance(self, partition_id: int, start: int) -> None:
        """What lies before `start` was consumed: the partition begins there, unless it begins later already."""
        number = partition_id >> _PAGE_SHIFT
        page = self._page(number)
        at = (partition_id & _PAGE_MASK) * 2
        if page[at] < start:
            page[at] = start
            self.dirty.add(number)
            self.consumed[partition_id] = start

    def take_changes(self) -> tuple[dict[int, bytes], dict[int, int]]:
        """For a checkpoint: the pages that have changed since the one before, and the partitions whose beginning was
        consumed since then."""
        pages = {number: self.packed(number) for number in self.dirty}
        consumed, self.consumed = self.consumed, {}
        self.dirty.clear()
        return pages, consumed

    def pages_starting_at(self, starts: dict[int, int]) -> dict[int, bytes]:
        """The pages of these partitions as they are once the records before these offsets are gone; nothing changes
        here."""
        changed: dict[int, array[int]] = {}
        for partition_id, offset in starts.items():
            number = partition_id >> _PAGE_SHIFT
            page = changed.get(number)
            if page is None:
                page = changed[number] = array("q", self.packed(number))
            at = (partition_id & _PAGE_MASK) * 2
            assert offset >= 0, "offsets count from 0"
            page[at] = max(page[at], min(offset, page[at + 1]))
        return {number: page.tobytes() for number, page in changed.items()}

    def used(self) -> list[int]:
        """Partitions that have given out offsets."""
        return [number << _PAGE_SHIFT | at for number, page in self.pages.items() for at in range(PAGE_PARTITIONS)
                if page[at * 2 + 1]]

    def shards(self) -> set[int]:
        """The shards that gave the ids of the partitions in use."""
        return shards_of([number << _PAGE_SHIFT for number in self.pages])

    def pages_leaping(self, partition_ids: Iterable[int], by: int) -> dict[int, bytes]:
        """The pages of these partitions as they are once each goes on so many offsets later; nothing changes here."""
        assert by >= 0, "watermarks never fall"
        changed: dict[int, array[int]] = {}
        for partition_id in partition_ids:
            number = partition_id >> _PAGE_SHIFT
            page = changed.get(number)
            if page is None:
                page = changed[number] = array("q", self.packed(number))
            page[(partition_id & _PAGE_MASK) * 2 + 1] += by
        return {number: page.tobytes() for number, page in changed.items()}

    def merge(self, number: int, packed: bytes) -> None:
        """A page as `packed` made it, from a checkpoint or a state record."""
        page = self._page(number)
        self.dirty.add(number)
        newer = array("q", packed)
        assert len(newer) == len(page), "a page has two numbers for each of its partitions"
        for i in range(len(page)):
            if page[i] < newer[i]:
                page[i] = newer[i]

    def packed(self, number: int) -> bytes:
        return self._page(number).tobytes()

    def _page(self, number: int) -> array[int]:
        page = self.pages.get(number)
        if page is None:
            page = self.pages[number] = array("q", bytes(PAGE_PARTITIONS * 16))
        return page


# --- state records ----------------------------------------------------------------------------------------------------

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
    CLOCK = 22            # how far hub time and wall time are apart; one record, see `Clock`
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


# --- the clock --------------------------------------------------------------------------------------------------------

STEP_MS: Final = 500
"""Clocks further apart than a stretch says begin another one."""

UNSEEN_MS: Final = 10_000
"""A frame looks for itself whether the clocks are further apart: the loop may not have seen a step yet."""

MAX_STRETCHES: Final = 64
"""What is older than the oldest that is remembered counts as of its distance. A clock is stepped at a start, mostly."""

_TIME = struct.Struct(">qqq")
_STRETCH = struct.Struct(">qq")

Stretch = tuple[int, int]
"""Hub time and wall time at which it begins."""


def _stretch_at(stretches: tuple[Stretch, ...], hub_ms: int) -> int:
    """The moment at which one begins is the last of the one before: what was said then stays said."""
    return max(0, bisect_left(stretches, hub_ms, key=itemgetter(0)) - 1)


class Ages:
    """How old what is stored is, as of one moment. May be asked by any thread."""

    def __init__(self, now_ms: int, stretches: tuple[Stretch, ...]) -> None:
        self._now_ms = now_ms
        self._stretches = stretches

    def appended_by(self, age_ms: int) -> int:
        """What was appended earlier than this append time is older than `age_ms` of hub time."""
        hub_ms = self._now_ms - age_ms
        at = _stretch_at(self._stretches, hub_ms)
        begin_ms, wall_ms = self._stretches[at]
        reached = [wall_ms + end_ms - begin_ms for (begin_ms, wall_ms), (end_ms, _)
                   in zip(self._stretches[:at], self._stretches[1:], strict=False)]
        return max([wall_ms + hub_ms - begin_ms, *reached])


class Clock:  # decision 123
    """`on_step` is told of steps of the wall clock, in ms; negative: back."""

    def __init__(self, loop: Loop, on_step: Callable[[int], None]) -> None:
        self._loop = loop
        self._on_step = on_step
        self.append_ms = 0                               # of the newest frame
        self._stretches: tuple[Stretch, ...] = ()
        self.apart_ms = 0                                # wall time - hub time, where the newest stretch begins
        self._noted = True                               # the distance of the clocks is in the log
        self.steps = 0

    # ---- over a restart

    def begin(self, value: bytes | None, append_ms: int) -> None:
        """A start: `value` is the newest record, `append_ms` that of the newest frame known."""
        wall_ms = self._loop.wall_ms()
        last_append_ms, hub_ms, last_wall_ms = (append_ms, append_ms, append_ms)
        if value is not None:
            last_append_ms, hub_ms, last_wall_ms = _TIME.unpack_from(value)
            self._stretches = tuple(_STRETCH.iter_unpack(value[_TIME.size:]))
        if append_ms > last_append_ms:                   # frames since, and append time did not stand still
            hub_ms += append_ms - last_wall_ms
            last_wall_ms = last_append_ms = append_ms
        self.append_ms = last_append_ms
        self._loop.begin_at(hub_ms + max(0, wall_ms - last_wall_ms))
        if self._stretches:
            self.apart_ms = self._stretches[-1][1] - self._stretches[-1][0]
        self._measure()

    # ---- while it runs

    def start(self, put_state: Callable[[list[StateRecord]], object]) -> None:
        """Note steps in the log, at once: after a crash from there on nobody else would know."""
        self._loop.on_step(partial(self._stepped, put_state))

    def _stepped(self, put_state: Callable[[list[StateRecord]], object], by_ms: int) -> None:
        self.steps += 1
        self._measure()
        self._on_step(by_ms)
        with suppress(Stopping):
            put_state(self.records())

    def _measure(self) -> None:
        """Begin another stretch where the clocks are not as far apart as they were."""
        hub_ms, wall_ms = self._loop.now_ms(), self._loop.wall_ms()
        if not self._stretches or abs(wall_ms - self.wall_of(hub_ms)) >= STEP_MS:
            if self._stretches:            # what comes now is not older than what came before
                self.append_ms = max(self.append_ms, self.wall_of(hub_ms))
            assert not self._stretches or self._stretches[-1][0] <= hub_ms, "hub time never falls"
            self._stretches = (*self._stretches, (hub_ms, wall_ms))[-MAX_STRETCHES:]
            self.apart_ms = wall_ms - hub_ms
            self._noted = False

    def append_time(self, now_ms: int) -> int:
        """For the frame that is begun now, at this hub time."""
        wall_ms = self._loop.wall_ms()
        if abs(wall_ms - now_ms - self.apart_ms) >= UNSEEN_MS:
            self._measure()
        if wall_ms < self.append_ms:
            self._noted = False
        else:
            self.append_ms = wall_ms
        assert self.append_ms >= wall_ms, "append time stands still, it does not lag"
        return self.append_ms

    def records(self) -> list[StateRecord]:
        """What this frame has to say of the clocks; mostly nothing."""
        if self._noted:
            return []
        return [self._record()]

    def begun(self) -> StateRecord:
        """For the first frame of a start."""
        self.append_time(self._loop.now_ms())
        return self._record()

    def _record(self) -> StateRecord:
        self._noted = True
        times = _TIME.pack(self.append_ms, self._loop.now_ms(), self._loop.wall_ms())
        return StateRecord(Kind.CLOCK, b"", times + b"".join([_STRETCH.pack(*stretch) for stretch in self._stretches]))

    def refused(self) -> None:
        """The disk did not take a frame: the next one says it."""
        self._noted = False

    # ---- from one clock to the other

    def ages(self) -> Ages:
        return Ages(self._loop.now_ms(), self._stretches)

    def wall_of(self, hub_ms: int) -> int:
        """What the wall clock said at a hub time, or will say if it is not stepped before; for what is shown."""
        begin_ms, wall_ms = self._stretches[_stretch_at(self._stretches, hub_ms)]
        return wall_ms + hub_ms - begin_ms
