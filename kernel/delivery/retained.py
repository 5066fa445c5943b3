"""Retained values: per address the last message that came with the mark RETAIN, stored with its frame.

    key     tenant NUL address, its levels joined by NUL: addresses sort by level, which `kernel.addresses.skip_scan`
            makes use of
    value   partition id u64, its number in the topic u32, offset i64, topic length u16, topic, record
            (`records.inline`)

A look-up reads pages: on the reading thread a scan of the store that skips what cannot match, laid over by what
changed since the last checkpoint; then, back on the kernel's thread, what changed meanwhile. So a page is true when it
is given. The first waits for values that are on their way to the disk: they were appended before the subscriber was
entered, which hears of what is appended from then on, so it misses nothing. Expired values are not given, and
are deleted when a look-up comes across them.

Where addresses are shared with other hubs, each value, and each end of one, has a hybrid clock: the hub's time, or one
more than the clock of what it replaces, if that is higher; with the hub where it was written. Of two values the higher
(clock, hub) stays, on every hub, whatever their clocks say and in whatever order they meet. decision 241

    RETAINED_CLOCK    key as above; value: clock u64, hub 16, partition id u64, offset i64
"""
from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from gatehouse.kernel.addresses.filters import parse_filter
from gatehouse.kernel.addresses.skip_scan import NUL, SkipScan, address_of, join_levels, retained_key
from gatehouse.kernel.errors import InvalidAddress, Stopping, StorageFailed
from gatehouse.kernel.message import (
    RETAIN,
    Message,
    OnRetained,
    ReadStamp,
    Retained,
    Stamp,
    StateRecord,
    Stored,
    Written,
)
from gatehouse.kernel.ports import Worker
from gatehouse.kernel.records import inline
from gatehouse.kernel.records.batch import public_record, records_of
from gatehouse.kernel.records.headers import expires_at
from gatehouse.kernel.state.state import Changed, Kind, StateTable, decode_held, store_key
from gatehouse.kernel.state.store import IndexStore, SortedCursor
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.pending_frame import PendingFrame, Run

MAX_PAGE: Final = 1_000
PAGE_BYTES: Final = 1 << 20                    # of values; a page holds at least one
PAGE_STEPS: Final = 5_000                      # of the scan in one job, some 20 ms: fetches wait behind it

_PLACE = struct.Struct(">QIqH")
_CLOCK = struct.Struct(">Q16sQq")


def _stored(message: Message, run: Run, at: int, append_ms: int) -> bytes | None:
    """What a message that retains its value leaves in the state."""
    placement, value, _, _, _ = message
    if not value:
        return None
    topic = placement.topic.encode()
    return (_PLACE.pack(run.partition_id, placement.partition, run.first_offset + at, len(topic)) + topic
            + inline.of_message(message, append_ms, run.first_id + at))


def _written_by(clock: bytes) -> Written:
    clock_ms, hub, partition_id, offset = _CLOCK.unpack(clock)
    return Written(Stamp(clock_ms, hub), partition_id, offset)


def decode_retained(key: bytes, stored: bytes) -> Retained:
    """A RETAINED record. The tenant in its key is known to whoever asked."""
    partition_id, partition, offset, topic_len = _PLACE.unpack_from(stored)
    record_at = _PLACE.size + topic_len
    record = records_of(inline.piece_of(stored[record_at:], offset))[0]
    return Retained(address_of(key.partition(NUL)[2]), stored[_PLACE.size:record_at].decode(), partition, partition_id,
                    public_record(record))


class Page(NamedTuple):
    """What one job found: keys with the store's values, None where only memory knows one; and where to go on."""

    entries: list[tuple[bytes, bytes | None]]
    reached: bytes | None


class Lookup(NamedTuple):
    """One question, from a key on."""

    prefix: bytes
    pattern: tuple[str, ...]
    start: bytes
    max_values: int
    on_done: OnRetained


class WhenDurable:
    """The `Owner` of a look-up that waits for what was appended before it."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def on_stored(self, stored: list[Stored]) -> None:
        """What was on its way is a value now, or was refused."""
        self._then()


class RetainedValues:
    """Answers look-ups, and takes part in frames that change values: see `kernel.write.pending_frame.Participant`.
    `worker` reads the store."""

    def __init__(self, *, store: IndexStore, state: StateTable, topics: Topics, committer: Committer, worker: Worker,
                 wall_ms: Callable[[], int]) -> None:
        self._store = store
        self._state = state
        self._topics = topics
        self._committer = committer
        self._worker = worker
        self._wall_ms = wall_ms
        self._hub = b""
        self._stamp_in: ReadStamp | None = None                # None: no address is shared with another hub
        self._with_clock: set[int] = set()                     # partitions that have messages with a clock

    def keep_clocks(self, hub: bytes, stamp_in: ReadStamp) -> None:
        """From now on. `hub`: this one."""
        self._hub, self._stamp_in = hub, stamp_in
        self._with_clock = {_written_by(value).partition_id for _, value in self._state.scan(Kind.RETAINED_CLOCK, b"")}

    def has_clocks(self, partition_id: int) -> bool:
        """Whether a partition may have messages with a clock."""
        return partition_id in self._with_clock

    def written(self, address: str, tenant: str) -> Written | None:
        """The newest of an address, as far as it is durable. None for one that can retain nothing."""
        try:
            return self._written(retained_key(tenant, address))
        except InvalidAddress:
            return None

    def seal(self, frame: PendingFrame, first_id: int) -> int:  # decision 15
        """The last value of each address; an empty one ends it."""
        append_ms, hub, stamp_in = frame.builder.now_ms, self._hub, self._stamp_in
        newest: dict[bytes, bytes | None] = {}
        clocks: dict[bytes, Written] = {}
        for message, run, at in frame.builder.noted:
            placement, _, headers, attributes, _ = message
            if not attributes & RETAIN:
                continue
            key = retained_key(placement.tenant, placement.address)
            if stamp_in is not None:
                before = clocks.get(key) or self._written(key)
                stamp = stamp_in(headers)
                if stamp is None:
                    stamp = Stamp(append_ms if before is None else max(append_ms, before.stamp.clock_ms + 1), hub)
                elif before is not None and stamp <= before.stamp:
                    continue
                clocks[key] = Written(stamp, run.partition_id, run.first_offset + at)
            newest[key] = _stored(message, run, at, append_ms)
        frame.state += [StateRecord(Kind.RETAINED, key, stored) for key, stored in newest.items()]
        for key, written in clocks.items():
            self._with_clock.add(written.partition_id)
            frame.state.append(StateRecord(Kind.RETAINED_CLOCK, key, _CLOCK.pack(*written.stamp, *written[1:])))
        return 0

    def _written(self, key: bytes) -> Written | None:
        clock = self._state.get(Kind.RETAINED_CLOCK, key)
        if clock is not None:
            return _written_by(clock)
        value = self._state.get(Kind.RETAINED, key)             # from before clocks were kept
        if value is None:
            return None
        partition_id, _, offset, topic_len = _PLACE.unpack_from(value)
        piece = inline.piece_of(value[_PLACE.size + topic_len:], offset)
        return Written(Stamp(piece.append_ms, self._hub), partition_id, offset)

    def applied(self, frame: PendingFrame) -> None:
        """The values are state like any other."""

    def failed(self, frames: list[PendingFrame]) -> None:
        """Nothing was changed beforehand."""

    def look_up(self, filter_text: str, tenant: str, max_values: int, start: str, on_done: OnRetained) -> None:
        """See `Kernel.retained`."""
        prefix = tenant.encode() + NUL
        lookup = Lookup(prefix, parse_filter(filter_text), prefix + join_levels(start),
                        max(1, min(max_values, MAX_PAGE)), on_done)
        if start or not self._has_pending():  # decision 227
            self._read(lookup)
            return
        try:
            self._committer.open_frame().answer(WhenDurable(partial(self._read, lookup)), None)
        except Stopping:
            self._read(lookup)

    def _has_pending(self) -> bool:
        """Whether values are on their way: who has subscribed since they were appended hears of them here alone."""
        return any(message[3] & RETAIN for frame in self._committer.pending() for message, _, _ in frame.builder.noted)

    def _read(self, lookup: Lookup) -> None:
        changed = self._state.changed(Kind.RETAINED)
        self._worker.submit(partial(self._scan, lookup, changed), partial(self._scanned, lookup, changed))

    # ---- on the reading thread

    def _scan(self, lookup: Lookup, changed: Changed) -> Page:
        """At most a page of the store, and of the changes as far as that reaches."""
        values, reached = self._scan_store(lookup)
        keys = changed.keys()
        fresh = SkipScan(lookup.prefix, lookup.pattern)
        cursor = SortedCursor(keys, {})
        for key in islice(fresh.matches(cursor, lookup.start, PAGE_STEPS), lookup.max_values):
            values[key] = None
        if fresh.reached is not None and (reached is None or fresh.reached < reached):
            reached = fresh.reached
        ordered = sorted(item for item in values.items() if reached is None or item[0] < reached)
        if len(ordered) > lookup.max_values:
            ordered = ordered[:lookup.max_values]
            reached = ordered[-1][0] + NUL
        return Page(ordered, reached)

    def _scan_store(self, lookup: Lookup) -> tuple[dict[bytes, bytes | None], bytes | None]:
        base = store_key(Kind.RETAINED, b"")
        scan = SkipScan(base + lookup.prefix, lookup.pattern)
        cursor = self._store.cursor()
        values: dict[bytes, bytes | None] = {}
        size_bytes = 0
        for key in scan.matches(cursor, base + lookup.start, PAGE_STEPS):
            value = decode_held(cursor.value()).value
            if value is not None:
                values[key[len(base):]] = value
                size_bytes += len(value)
                if len(values) >= lookup.max_values or size_bytes >= PAGE_BYTES:
                    break
        return values, None if scan.reached is None else scan.reached[len(base):]

    # ---- on the kernel's thread

    def _scanned(self, lookup: Lookup, changed: Changed, page: Page | None, error: BaseException | None) -> None:
        if page is None:
            lookup.on_done([], None, StorageFailed(f"the index cannot be read: {error}"))
            return
        if not changed.is_current(self._state):
            self._read(lookup)                     # what changed meanwhile may be in the store by now
            return
        values = self._living(page, changed)
        if values or page.reached is None:
            after = None if page.reached is None else address_of(page.reached[len(lookup.prefix):])
            lookup.on_done(values, after, None)
        else:
            self._read(lookup._replace(start=page.reached))

    def _living(self, page: Page, changed: Changed) -> list[Retained]:
        wall_ms = self._wall_ms()
        living: list[Retained] = []
        expired: list[StateRecord] = []
        for key, stored in page.entries:
            recent = self._state.recent(Kind.RETAINED, key) or changed.get(key)
            if recent is not None:
                stored = recent[2]
            if stored is None:
                continue
            retained = decode_retained(key, stored)
            topic = self._topics.of_partition(retained.partition_id)
            record = retained.record
            if expires_at(record[4], record[1], topic[0].settings if topic else None) > wall_ms:
                living.append(retained)
            else:
                expired.append(StateRecord(Kind.RETAINED, key, None))
        if expired:
            self._committer.delete_state(expired)
        return living
