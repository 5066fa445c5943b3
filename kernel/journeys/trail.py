"""Finds events again: by the message that they tell of, by its key, address, trace id and correlation id.

What the topic `journeys` holds is the truth; this follows it, in memory for the newest events and in the index's store
for those before. Events that lie together in a frame are a *chunk*, which is found as one:

    b"j" bucket(u32) hash(8 B) low(20 bits) count - 1 (8 bits, of 12)
                                             no value: so many events from the offset bucket << 20 | low on are a chunk
    b"jm"                                    the topic's id, the offset up to which this is complete, the layout

A hash is of what is looked for; of ids and numbers of traces it is a block that some of the chunk lie in. Blocks
have several sizes; a chunk is in those of the size that fits its width. Whoever reads an event looks whether it is the
one. Buckets that retention has passed are deleted as one range. A store that is lost, or that lacks the newest events
after a crash, is filled from the topic.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

from gatehouse.kernel.errors import StorageFailed
from gatehouse.kernel.message import Fetched, Record
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.records.batch import sound_records
from gatehouse.kernel.state.state import Watermarks
from gatehouse.kernel.state.store import IndexStore, StoreFull
from gatehouse.kernel.state.topics import Topic, Topics
from gatehouse.tracing.events import (
    BEGINNINGS,
    HALF,
    MASK,
    NAMING,
    OF_CLIENTS,
    CorruptEvent,
    Event,
    cut,
    decode,
    may_tell,
    number_of,
)

TOPIC: Final = "journeys"
TENANT: Final = "/"

PREFIX: Final = b"j"
META: Final = b"jm"
LAYOUT: Final = 2
LOW_BITS: Final = 20
COUNT_BITS: Final = 12
MAX_BUCKETS: Final = 4_096           # that one look-up goes through: four thousand million events

IDS: Final = 1 << 62
"""Tells blocks of ids from those of traces' numbers."""

CHUNK: Final = 128
"""Events of one chunk."""

CHUNK_WIDTH: Final = 1_024
"""Ids from the lowest to the highest that events of a chunk tell of, unless it is one event."""

SHIFTS: Final = (4, 8, 11, 15, 20)
"""Sizes of blocks, as powers of two: a chunk is in those that are twice as wide as it, in one or two of them."""

WRITE_MS: Final = 5_000
"""The newest entries go to the store after this, or when there are this many."""

WRITE_ENTRIES: Final = 50_000
READ_BYTES: Final = 1 << 20          # of the topic at a time, when the store is filled from it
RESUMED: Final = 20_000              # newest events that are read at a start, for what is followed still
EXTENT: Final = 1 << 62

AT_ONCE: Final = 32                  # chunks that are read before it is looked whether there is enough
MAX_CHUNKS: Final = 4_096            # that one look-up reads

_KEY: Final = struct.Struct(">cI8sI")
_META: Final = struct.Struct(">QQB")
_ID: Final = struct.Struct(">Q")

_LOW_PART: Final = (1 << LOW_BITS + COUNT_BITS) - 1

Read = Callable[[list[tuple[int, int, int]], int, Callable[[list[Fetched]], None]], None]

Matches = Callable[[Event], list[Event]]
"""What of an event is looked for: itself, messages of its run, or nothing."""


class Found(NamedTuple):
    """By what an event is found: ids from one to another, numbers of traces alike, and hashes."""

    low: int = 0
    high: int = -1                   # below `low`: it tells of no message
    own: bytes = b""                 # the first half of its trace ids, where they have numbers
    first_trace: int = 0
    last_trace: int = -1
    exact: tuple[bytes, ...] = ()


def hash_of(what: str, value: bytes) -> bytes:
    """Of what an event may be looked for by: `key`, `address`, `trace`, `correlation`; the tenant is in it."""
    return blake2b(value, digest_size=8, person=what.encode()).digest()


def named(tenant: str, value: bytes) -> bytes:
    """A value as one tenant means it."""
    return value if tenant in ("", TENANT) else tenant.encode() + b"\0" + value


# decision 264
def blocks(own: int, low: int, high: int) -> list[bytes]:
    """The blocks that these numbers lie in; `own` tells apart of what they are."""
    wide = 2 * (high - low + 1)
    shift = SHIFTS[-1]
    for narrower in SHIFTS:
        if wide <= 1 << narrower:
            shift = narrower
            break
    return [_block(own, shift, block) for block in range(low >> shift, (high >> shift) + 1)]


def blocks_of(own: int, number: int) -> list[bytes]:
    """The blocks of every size that a number may be found in."""
    return [_block(own, shift, number >> shift) for shift in SHIFTS]


def _block(own: int, shift: int, block: int) -> bytes:
    return _ID.pack((own ^ shift << 56 ^ block) & MASK)


def own_of(trace_id: bytes) -> int:
    """What tells the numbers of a hub's traces from those of another."""
    return int.from_bytes(trace_id[:HALF], "big")


def names_of(tenant: str, address: str, key: bytes, correlation_id: bytes) -> tuple[bytes, ...]:
    """What a message is found by when it is stored: what its event keeps of each."""
    names = [hash_of("address", named(tenant, cut(address.encode())))]
    if key:
        names.append(hash_of("key", named(tenant, cut(key))))
    if correlation_id:
        names.append(hash_of("correlation", named(tenant, cut(correlation_id))))
    return tuple(names)


def found_by(event: Event) -> Found:
    """What an event is found by."""
    if event.kind in OF_CLIENTS:
        return Found(exact=tuple([
            hash_of(what, named(event.tenant, cut(value.encode())))
            for what, value in (("told-user", event.user), ("told-client", event.client),
                                ("told-address", event.address)) if value]))
    exact = names_of(event.tenant, event.address, event.key, event.correlation_id) \
        if event.kind in BEGINNINGS or event.kind in NAMING and event.address else ()
    if not event.trace_id:
        return Found(event.message_id, event.last_id, exact=exact)
    if not event.is_numbered:
        return Found(event.message_id, event.last_id, exact=(*exact, hash_of("trace", event.trace_id)))
    first = number_of(event.trace_id)
    return Found(event.message_id, event.last_id, event.trace_id[:HALF], first, first + max(1, event.rows) - 1, exact)


def of_id(message_id: int) -> list[bytes]:
    """What every event of a message is found by."""
    return blocks_of(IDS, message_id)


def of_trace(trace_id: bytes) -> list[bytes]:
    """What events of a trace are found by."""
    return [hash_of("trace", trace_id), *blocks_of(own_of(trace_id), number_of(trace_id))]


def of_message(message_id: int) -> Matches:
    """What events say of one message."""
    def matches(event: Event) -> list[Event]:
        said = event.of(message_id)
        return [] if said is None or event.kind in OF_CLIENTS else [said]

    return matches


class Trail:  # decision 201
    """Finds events again by what they tell of. `worker` reads the store, `writer` writes it; `read` is the reader's
    fetch; `resume` is told at a start of the newest events."""

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
        self.partition_id = -1               # in which all events are
        self._newest: dict[bytes, list[int]] = {}
        self._entries = 0
        self._behind = 0                     # of the newest event that is noted
        self._filled = EXTENT                # events before this one are in the store, or in memory
        self._writing: dict[bytes, list[int]] | None = None
        self._dropped = 0                    # buckets below are deleted
        self._is_older = False               # the store has keys of an older layout or topic
        self._armed = False
        self._stopped = False

    # ---- beginning

    def begin(self, topic: Topic) -> None:
        """This is the topic from here on; there is nothing in it yet. What the store has is of one that is gone."""
        self.topic_id, self.partition_id = topic.id, topic.partition_id(0)
        self._is_older, self._dropped = True, 0
        self._newest, self._entries, self._behind, self._filled = {}, 0, 0, EXTENT

    def open(self, resume: Callable[[Event], None]) -> None:
        """After recovery: fill the store from the topic where it lacks something."""
        topic = self._topics.get(TOPIC, TENANT)
        if topic is None:
            return
        self.topic_id, self.partition_id = topic.id, topic.partition_id(0)
        meta = self._store.get(META)
        of, complete, layout = (0, 0, 0) if meta is None else (
            _META.unpack(meta) if len(meta) == _META.size else (0, 0, 0))
        self._is_older = meta is not None and (layout, of) != (LAYOUT, topic.id)
        start, end = self._bounds()
        complete = min(complete, end) if of == topic.id and layout == LAYOUT else 0
        self._behind = end
        self._fill(min(max(complete, start), max(start, end - RESUMED)), max(complete, start), end, resume)

    def _bounds(self) -> tuple[int, int]:
        return self._watermarks.log_start(self.partition_id), self._watermarks.next_offset(self.partition_id)

    def _fill(self, at: int, complete: int, end: int, resume: Callable[[Event], None]) -> None:
        self._filled = at
        if at >= end or self._stopped:
            self._filled = EXTENT
            return
        self._read([(self.partition_id, at, READ_BYTES)], READ_BYTES,
                   lambda answers: self._on_filled(answers, at, complete, end, resume))

    def _on_filled(self, answers: list[Fetched], at: int, complete: int, end: int, resume: Callable[[Event], None]
                   ) -> None:
        after = max(at, answers[0].next_offset)
        for piece in answers[0].pieces:
            founds: list[tuple[int, Found]] = []
            for record in sound_records(piece):
                if at <= record[0] < end:
                    event = event_of(record)
                    if event is not None:
                        if record[0] >= complete:
                            founds.append((record[0], found_by(event)))
                        if record[0] >= end - RESUMED:
                            resume(event)
            self._add(founds)
            after = max(after, piece.first_offset + piece.count)
        if after == at:                      # nothing can be read there: the rest is what it is
            self._filled = EXTENT
            return
        self._loop.call_soon(partial(self._fill, after, complete, end, resume))

    # ---- new events

    def note(self, founds: Sequence[tuple[int, Found]]) -> None:
        """Events are durable, at these offsets, in their order; those that follow on each other lie in one frame."""
        self._add(founds)
        if founds:
            self._behind = max(self._behind, founds[-1][0] + 1)

    def _add(self, founds: Sequence[tuple[int, Found]]) -> None:
        at = 0
        while at < len(founds):
            at = self._add_chunk(founds, at)
        if self._entries >= WRITE_ENTRIES:
            self._write()
        elif not self._armed and not self._stopped and self._entries:
            self._armed = True
            self._loop.call_at(self._loop.now_ms() + WRITE_MS, self._on_time)

    def _add_chunk(self, founds: Sequence[tuple[int, Found]], start: int) -> int:
        """The chunk that begins there; where the next one does."""
        offset, by = founds[start]
        low, high, own, first, last = by.low, by.high, by.own, by.first_trace, by.last_trace
        exact = set(by.exact)
        stop = start + 1
        while stop < len(founds) and stop - start < CHUNK:
            next_offset, by = founds[stop]
            if next_offset != offset + stop - start or by.own and own and by.own != own:
                break
            if by.high >= by.low:
                if high >= low and max(high, by.high) - min(low, by.low) > CHUNK_WIDTH:
                    break
                low, high = (min(low, by.low), max(high, by.high)) if high >= low else (by.low, by.high)
            if by.own:
                first, last = (min(first, by.first_trace), max(last, by.last_trace)) if own else (
                    by.first_trace, by.last_trace)
                own = by.own
            exact.update(by.exact)
            stop += 1
        if high >= low:
            exact.update(blocks(IDS, low, high))
        if own:
            exact.update(blocks(own_of(own), first, last))
        chunk = offset << COUNT_BITS | stop - start - 1
        newest = self._newest
        for wanted in exact:
            chunks = newest.get(wanted)
            if chunks is None:
                newest[wanted] = [chunk]
            else:
                chunks.append(chunk)
        self._entries += len(exact)
        return stop

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
        if self._is_older:
            ranges.append((PREFIX, META))
            self._is_older = False
        if start >> LOW_BITS > self._dropped:
            ranges.append((PREFIX + _ID.pack(self._dropped)[4:], PREFIX + _ID.pack(start >> LOW_BITS)[4:]))
            self._dropped = start >> LOW_BITS
        complete = self._behind if self._filled == EXTENT else self._filled
        puts = [(_KEY.pack(PREFIX, chunk >> COUNT_BITS + LOW_BITS, wanted, chunk & _LOW_PART), b"")
                for wanted, chunks in writing.items() for chunk in chunks]
        puts.append((META, _META.pack(self.topic_id, complete, LAYOUT)))
        self._writer.submit(lambda: self._store.write(puts, (), ranges), self._written)

    def _written(self, _: None, error: BaseException | None) -> None:
        writing, self._writing = self._writing, None
        if error is not None and writing is not None:
            for wanted, chunks in writing.items():
                self._newest.setdefault(wanted, [])[:0] = chunks
                self._entries += len(chunks)
            if not isinstance(error, StoreFull) and isinstance(error, Exception):
                self._on_error(error)
        if self._newest and not self._armed and not self._stopped:
            self._armed = True
            self._loop.call_at(self._loop.now_ms() + WRITE_MS, self._on_time)

    def stop(self) -> None:
        """Nothing is written any more: a start reads it from the topic."""
        self._stopped = True

    # ---- looking

    def find(self, wanted: Sequence[bytes], matches: Matches, most: int,
             on_done: Callable[[list[tuple[int, Event]], StorageFailed | None], None], *, newest: bool = False,
             message_id: int = -1, before: int = EXTENT) -> None:
        """What `matches` says of the events that are found by one of these hashes, with their offsets: of the first
        ones until there are `most` (of the last ones, with `newest`), in order. With `message_id` nothing else is
        looked for. Of events behind the offset `before` nothing is read."""
        if self.partition_id < 0:
            on_done([], None)
            return
        fresh = [chunk for part in (self._writing, self._newest) if part is not None
                 for each in wanted for chunk in part.get(each, ())]
        log_start, high = self._bounds()
        looked = Looked(self.partition_id, log_start, min(high, before), matches, most, newest, message_id, on_done)
        self._worker.submit(lambda: self._stored(wanted, looked), partial(self._on_found, fresh, looked))

    def _stored(self, wanted: Sequence[bytes], looked: Looked) -> list[int]:
        """On the reading thread: chunks that the store has."""
        chunks: list[int] = []
        if looked.first >= looked.end:
            return chunks
        buckets = list(range(looked.first >> LOW_BITS, (looked.end - 1 >> LOW_BITS) + 1))[-MAX_BUCKETS:]
        cursor = self._store.cursor()
        for bucket in reversed(buckets) if looked.newest else buckets:
            for each in wanted:
                prefix = _KEY.pack(PREFIX, bucket, each, 0)[:-4]
                key = cursor.seek(prefix)
                while key is not None and key.startswith(prefix):
                    chunk = (bucket << LOW_BITS + COUNT_BITS) | int.from_bytes(key[-4:], "big")
                    if looked.reaches(chunk):
                        chunks.append(chunk)
                    key = cursor.next()
            if len(chunks) >= MAX_CHUNKS:
                break
        return chunks

    def _on_found(self, fresh: list[int], looked: Looked, stored: list[int] | None, error: BaseException | None
                  ) -> None:
        if stored is None:
            looked.on_done([], StorageFailed(f"the index of journeys cannot be read: {error}"))
            return
        looked.take([*stored, *fresh])
        self._go_on(looked)

    def _go_on(self, looked: Looked) -> None:
        wants = looked.wants()
        if not wants:
            looked.finish(None)
            return
        self._read(wants, READ_BYTES, partial(self._on_read, looked))

    def _on_read(self, looked: Looked, answers: list[Fetched]) -> None:
        error = looked.read(answers)
        if error is not None:
            looked.finish(error)
        else:
            self._go_on(looked)


class Looked:
    """One look-up. Chunks are read some at a time, until there is enough."""

    def __init__(self, partition_id: int, first: int, end: int, matches: Matches, most: int, newest: bool,
                 message_id: int, on_done: Callable[[list[tuple[int, Event]], StorageFailed | None], None]) -> None:
        self.partition_id = partition_id
        self.first = first
        self.end = end
        self.newest = newest
        self._matches = matches
        self._message_id = message_id
        self._most = most
        self._on_done = on_done
        self._waiting: list[int] = []                        # chunks; the next one is the last
        self._asked: list[int] = []
        self._events: list[tuple[int, Event]] = []

    def on_done(self, events: list[tuple[int, Event]], error: StorageFailed | None) -> None:
        """Tell whoever asked."""
        self._on_done(events, error)

    def reaches(self, chunk: int) -> bool:
        """Whether some of its events lie where it is looked."""
        return self.first <= (chunk >> COUNT_BITS) + (chunk & _COUNT) and chunk >> COUNT_BITS < self.end

    def take(self, chunks: list[int]) -> None:
        """These are to be read."""
        within = sorted({chunk for chunk in chunks if self.reaches(chunk)}, reverse=not self.newest)
        self._waiting = within[-MAX_CHUNKS:]

    def wants(self) -> list[tuple[int, int, int]]:
        """What is to be read now; nothing where that is all."""
        if len(self._events) >= self._most:
            return []
        self._asked = self._waiting[-AT_ONCE:]
        del self._waiting[-AT_ONCE:]
        return [(self.partition_id, max(self.first, chunk >> COUNT_BITS), 1) for chunk in self._asked]

    def read(self, answers: list[Fetched]) -> StorageFailed | None:
        """It was read; what one fetch left out for its size is read by the next."""
        rest: list[int] = []
        for chunk, answer in zip(self._asked, answers, strict=True):
            if isinstance(answer.error, StorageFailed):
                return answer.error
            if not answer.pieces and answer.error is None and answer.next_offset < 0:
                rest.append(chunk)
            first = max(self.first, chunk >> COUNT_BITS)
            stop = min(self.end, (chunk >> COUNT_BITS) + (chunk & _COUNT) + 1)
            for piece in answer.pieces:
                for record in sound_records(piece):
                    if not first <= record[0] < stop \
                            or self._message_id >= 0 and not may_tell(record[3] or b"", self._message_id):
                        continue
                    event = event_of(record)
                    if event is not None:
                        self._events += [(record[0], said) for said in self._matches(event)]
        if len(rest) < len(self._asked):
            self._waiting += rest
        return None

    def finish(self, error: StorageFailed | None) -> None:
        """There is enough, or no more."""
        once = {(offset, event.message_id): (offset, event) for offset, event in self._events}
        events = [once[place] for place in sorted(once)]             # a start may have made chunks that overlap
        self._on_done(events[-self._most:] if self.newest else events[:self._most], error)


_COUNT: Final = (1 << COUNT_BITS) - 1


def event_of(record: Record) -> Event | None:
    """The event of a record of the topic; None where it is none."""
    try:
        return decode(record[3] or b"", record[1])
    except CorruptEvent:
        return None
