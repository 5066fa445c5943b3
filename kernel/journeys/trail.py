"""Finds events again: by the message that they tell of, by its key, address, trace id and correlation id.

What the topic `journeys` holds is the truth; this follows it, in memory for the newest events and in the index's store
for those before:

    b"j" bucket(u32) hash(8 B) low(u16)      no value: an event of this hash lies at the offset bucket << 16 | low
    b"jm"                                    the topic's id, and the offset up to which this is complete

A hash is of what is looked for; whoever reads an event looks whether it is the one. Buckets that retention has passed
are deleted as one range. A store that is lost, or that lacks the newest events after a crash, is filled from the topic.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from typing import Final

from gatehouse.kernel.errors import StorageFailed
from gatehouse.kernel.journeys.settings import TENANT, TOPIC
from gatehouse.kernel.message import Fetched, Record
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.records.batch import sound_records
from gatehouse.kernel.state.store import IndexStore, StoreFull
from gatehouse.kernel.state.topics import Topic, Topics
from gatehouse.kernel.state.watermarks import Watermarks
from gatehouse.tracing.events import OF_CLIENTS, CorruptEvent, Event, Kind, decode

PREFIX: Final = b"j"
META: Final = b"jm"
BUCKET_SHIFT: Final = 16
MAX_BUCKETS: Final = 4_096           # that one look-up goes through: 268 million events

WRITE_MS: Final = 5_000
"""The newest entries go to the store after this, or when there are this many."""

WRITE_ENTRIES: Final = 50_000
READ_BYTES: Final = 1 << 20          # of the topic at a time, when the store is filled from it
RESUMED: Final = 20_000              # newest events that are read at a start, for what is followed still
EXTENT: Final = 1 << 62

_KEY: Final = struct.Struct(">cI8sH")
_META: Final = struct.Struct(">QQ")
_ID: Final = struct.Struct(">Q")

Read = Callable[[list[tuple[int, int, int]], int, Callable[[list[Fetched]], None]], None]


def hash_of(what: str, value: bytes) -> bytes:
    """Of what an event may be looked for by: `id`, `key`, `address`, `trace`, `correlation`; the tenant is in it."""
    return blake2b(value, digest_size=8, person=what.encode()).digest()


def named(tenant: str, value: bytes) -> bytes:
    """A value as one tenant means it."""
    return value if tenant in ("", TENANT) else tenant.encode() + b"\0" + value


def hashes(event: Event) -> list[bytes]:
    """What an event is wanted by."""
    if event.kind in OF_CLIENTS:
        return [hash_of(what, named(event.tenant, value.encode()))
                for what, value in (("told-user", event.user), ("told-client", event.client),
                                    ("told-address", event.address)) if value]
    of_event = [hash_of("id", _ID.pack(event.message_id))]
    if event.kind == Kind.STORED:
        of_event.append(hash_of("address", named(event.tenant, event.address.encode())))
        if event.key:
            of_event.append(hash_of("key", named(event.tenant, event.key)))
        if event.correlation_id:
            of_event.append(hash_of("correlation", named(event.tenant, event.correlation_id)))
    if event.trace_id:
        of_event.append(hash_of("trace", event.trace_id))
    return of_event


def id_hash(message_id: int) -> bytes:
    """What every event of a message is wanted by."""
    return hash_of("id", _ID.pack(message_id))


class Trail:  # decision 201
    """See the module's text. `worker` reads the store, `writer` writes it; `read` is the reader's fetch; `resume` is
    told at a start of the newest events."""

    def __init__(self, *, loop: Loop, worker: Worker, writer: Worker, store: IndexStore, topics: Topics,
                 watermarks: Watermarks, read: Read, on_error: Callable[[Exception], None]) -> None:
        self._loop = loop
        self._worker = worker
        self._writer = writer
        self._store = store
        self._topics = topics
        self._watermarks = watermarks
        self._read = read
        self._on_error = on_error
        self.topic_id = -1
        self._partition_id = -1
        self._newest: dict[bytes, list[int]] = {}
        self._entries = 0
        self._behind = 0                     # of the newest event that is noted
        self._filled = EXTENT                # events before this one are in the store, or in memory
        self._writing: dict[bytes, list[int]] | None = None
        self._dropped = 0                    # buckets below are deleted
        self._armed = False
        self._stopped = False

    # ---- beginning

    def begin(self, topic: Topic) -> None:
        """This is the topic from here on; there is nothing in it yet."""
        self.topic_id, self._partition_id = topic.id, topic.partition_id(0)
        self._newest, self._entries, self._behind, self._filled = {}, 0, 0, EXTENT

    def open(self, resume: Callable[[Event], None]) -> None:
        """After recovery: fill the store from the topic where it lacks something."""
        topic = self._topics.get(TOPIC, TENANT)
        if topic is None:
            return
        self.topic_id, self._partition_id = topic.id, topic.partition_id(0)
        meta = self._store.get(META)
        of, complete = (0, 0) if meta is None else _META.unpack(meta)
        start, end = self._bounds()
        complete = min(complete, end) if of == topic.id else 0
        self._behind = end
        self._fill(min(max(complete, start), max(start, end - RESUMED)), max(complete, start), end, resume)

    def _bounds(self) -> tuple[int, int]:
        return self._watermarks.log_start(self._partition_id), self._watermarks.next_offset(self._partition_id)

    def _fill(self, at: int, complete: int, end: int, resume: Callable[[Event], None]) -> None:
        self._filled = at
        if at >= end or self._stopped:
            self._filled = EXTENT
            return
        self._read([(self._partition_id, at, READ_BYTES)], READ_BYTES,
                   lambda answers: self._on_filled(answers, at, complete, end, resume))

    def _on_filled(self, answers: list[Fetched], at: int, complete: int, end: int, resume: Callable[[Event], None]
                   ) -> None:
        after = max(at, answers[0].next_offset)
        for piece in answers[0].pieces:
            for record in sound_records(piece):
                if at <= record[0] < end:
                    event = event_of(record)
                    if event is not None:
                        if record[0] >= complete:
                            self._add(record[0], event)
                        if record[0] >= end - RESUMED:
                            resume(event)
            after = max(after, piece.first_offset + piece.count)
        if after == at:                      # nothing can be read there: the rest is what it is
            self._filled = EXTENT
            return
        self._loop.call_soon(partial(self._fill, after, complete, end, resume))

    # ---- new events

    def note(self, offset: int, event: Event) -> None:
        """An event is durable."""
        self._add(offset, event)
        self._behind = max(self._behind, offset + 1)

    def _add(self, offset: int, event: Event) -> None:
        for wanted in hashes(event):
            self._newest.setdefault(wanted, []).append(offset)
            self._entries += 1
        if self._entries >= WRITE_ENTRIES:
            self._write()
        elif not self._armed and not self._stopped:
            self._armed = True
            self._loop.call_at(self._loop.now_ms() + WRITE_MS, self._on_time)

    def _on_time(self) -> None:
        self._armed = False
        self._write()

    def _write(self) -> None:
        """What is in memory goes to the store."""
        if self._stopped or self._writing is not None or not self._newest:
            return
        writing = self._writing = self._newest
        self._newest, self._entries = {}, 0
        start, _ = self._bounds()
        ranges = []
        if start >> BUCKET_SHIFT > self._dropped:
            ranges.append((PREFIX + _ID.pack(self._dropped)[4:], PREFIX + _ID.pack(start >> BUCKET_SHIFT)[4:]))
            self._dropped = start >> BUCKET_SHIFT
        complete = self._behind if self._filled == EXTENT else self._filled
        puts = [(_KEY.pack(PREFIX, offset >> BUCKET_SHIFT, wanted, offset & 0xFFFF), b"")
                for wanted, offsets in writing.items() for offset in offsets]
        puts.append((META, _META.pack(self.topic_id, complete)))
        self._writer.submit(lambda: self._store.write(puts, (), ranges), self._written)

    def _written(self, _: None, error: BaseException | None) -> None:
        writing, self._writing = self._writing, None
        if error is not None and writing is not None:
            for wanted, offsets in writing.items():
                self._newest.setdefault(wanted, [])[:0] = offsets
                self._entries += len(offsets)
            if not isinstance(error, StoreFull) and isinstance(error, Exception):
                self._on_error(error)
        if self._newest and not self._armed and not self._stopped:
            self._armed = True
            self._loop.call_at(self._loop.now_ms() + WRITE_MS, self._on_time)

    def stop(self) -> None:
        """Nothing is written any more: a start reads it from the topic."""
        self._stopped = True

    # ---- looking

    def find(self, wanted: bytes, most: int, on_done: Callable[[list[tuple[int, Event]], StorageFailed | None], None],
             *, newest: bool = False) -> None:
        """The events of a hash with their offsets, the first `most` of them (the last, with `newest`), in order; an
        event of another message may be among them."""
        if self._partition_id < 0:
            on_done([], None)
            return
        fresh = [offset for part in (self._writing, self._newest) if part is not None
                 for offset in part.get(wanted, ())]
        start, end = self._bounds()
        self._worker.submit(lambda: self._stored(wanted, start, end, most, newest),
                            partial(self._on_found, fresh, start, most, newest, on_done))

    def _stored(self, wanted: bytes, start: int, end: int, most: int, newest: bool) -> list[int]:
        """On the reading thread: offsets that the store has."""
        offsets: list[int] = []
        buckets = list(range(start >> BUCKET_SHIFT, (end >> BUCKET_SHIFT) + 1))[-MAX_BUCKETS:]
        cursor = self._store.cursor()
        for bucket in reversed(buckets) if newest else buckets:
            offsets += self._of_bucket(cursor.seek, cursor.next, bucket, wanted)
            if len(offsets) >= most:
                break
        return offsets

    @staticmethod
    def _of_bucket(seek: Callable[[bytes], bytes | None], following: Callable[[], bytes | None], bucket: int,
                   wanted: bytes) -> Iterator[int]:
        prefix = _KEY.pack(PREFIX, bucket, wanted, 0)[:-2]
        key = seek(prefix)
        while key is not None and key.startswith(prefix):
            yield bucket << BUCKET_SHIFT | int.from_bytes(key[-2:])
            key = following()

    def _on_found(self, fresh: list[int], start: int, most: int, newest: bool,
                  on_done: Callable[[list[tuple[int, Event]], StorageFailed | None], None], stored: list[int] | None,
                  error: BaseException | None) -> None:
        if stored is None:
            on_done([], StorageFailed(f"the index of journeys cannot be read: {error}"))
            return
        offsets = sorted({offset for offset in [*stored, *fresh] if offset >= start})
        offsets = offsets[-most:] if newest else offsets[:most]
        if not offsets:
            on_done([], None)
            return
        self._read([(self._partition_id, offset, 1) for offset in offsets], READ_BYTES,
                   partial(self._on_read, offsets, [], on_done))

    def _on_read(self, offsets: list[int], events: list[tuple[int, Event]],
                 on_done: Callable[[list[tuple[int, Event]], StorageFailed | None], None], answers: list[Fetched]
                 ) -> None:
        """What one fetch left out for its size is read by the next."""
        rest: list[int] = []
        for offset, answer in zip(offsets, answers, strict=True):
            if isinstance(answer.error, StorageFailed):
                on_done(events, answer.error)
                return
            if not answer.pieces and answer.error is None and answer.next_offset < 0:
                rest.append(offset)
            events += [(record[0], event) for piece in answer.pieces for record in sound_records(piece)
                       if record[0] == offset and (event := event_of(record)) is not None]
        if not rest or len(rest) == len(offsets):
            on_done(sorted(events, key=lambda event: event[0]), None)
            return
        self._read([(self._partition_id, offset, 1) for offset in rest], READ_BYTES,
                   partial(self._on_read, rest, events, on_done))


def event_of(record: Record) -> Event | None:
    """The event of a record of the topic; None where it is none."""
    try:
        return decode(record[3] or b"", record[1])
    except CorruptEvent:
        return None
