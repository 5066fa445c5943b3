"""What gathers between two flushes: messages as they arrive, encoded when they are sealed into one frame; who has a
part in it, and who waits for it. Hot.

Messages of one partition lie together in a *run*: bare v2 records whose offset deltas count from the run's own zero, so
that a run becomes a Kafka batch by writing a header before it. A producer's own batch is a run of its own, kept as
sent. Runs of one partition stand in the order of arrival.

What is laid down as it arrives becomes the frame's body, the records of one run after the other. Laid are, for
messages: the number of their run, the key as it stands in a record, and behind those the messages themselves; for a
producer's batch: the number of its run, None, its place, and what follows that; for messages that are encoded
(`message.Encoded`): the number of their run, b"", and (records, what their times count from, how many). Each message
becomes a record once, where it stays: nothing of it is encoded, or copied, before its frame is sealed. Whose they are
is said for the messages of a call, and not with each of them. `encode_body` and `authors_of` are native in the compiled
wheel (native_body.c), and say the same as `encode_plain` and `authors_plain`.
"""
# decision 279: a message is encoded when its frame is sealed
from __future__ import annotations

from array import array
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from itertools import accumulate
from typing import Any, Final, NamedTuple, Protocol

from crc32c import crc32c

from gatehouse.kernel.addresses.routes import STATED, stated
from gatehouse.kernel.addresses.skip_scan import retained_key
from gatehouse.kernel.errors import MessageTooLarge, UnknownPlace
from gatehouse.kernel.message import (
    MAX_AUTHORS,
    NOBODY_NUMBER,
    RETAIN,
    TRANSIENT,
    U32,
    WHOLE,
    Encoded,
    Entries,
    Message,
    NumberedMessage,
    Origin,
    Owner,
    Placement,
    Record,
    StateRecord,
    Stored,
    encode_authors,
)
from gatehouse.kernel.records.batch import (
    CARRIED_HEADERS,
    FEW_HEADERS_BYTES,
    NULL,
    PLACE_BYTES,
    SMALL,
    SMALL_LIMIT,
    BatchHeader,
    add_header,
    are_too_many,
    place_of,
    read_varint,
    varint,
)
from gatehouse.kernel.records.headers import CONTEXT_MARK, RECEIPT_MARK, TRACE_MARK
from gatehouse.kernel.state.state import Kind, decode_offset_key

FIRST: Final = 14
"""The length of STATED, RECEIPT_MARK and TRACE_MARK, as it stands in front of their names."""

assert STATED[0] == RECEIPT_MARK[0] == TRACE_MARK[0] == FIRST

CONTEXT_FIRST: Final = CONTEXT_MARK[0]

RUN_LIMIT: Final = SMALL_LIMIT - 1          # records of one run
AROUND: Final = 9                           # bytes of a record beside key, value and headers, about


ENCODED_FIELDS: Final = 3
"""Of (records, what their times count from, how many they are); a message has five."""

Laid = list[Any]
"""What is laid down of messages and of batches until their frame is sealed: runs, keys, messages in turn."""

Body = tuple[bytes, bytes, bytes, bytes]
"""The body; of each run its length; of each its CRC-32C; where each record ends in its run, u32, run by run without
producers' batches, or b""."""

Turn = tuple[int, list[int] | None, Any]
"""From which message on, as they were laid, who published them: (message, None, author), where nobody knows it None; or
(message, stops, authors): those before each of these, counted from it. A producer's batch counts as one message, and so
do messages that are encoded."""

Authorship = tuple[list[Origin], bytes, bytes]
"""Who published messages of a frame; where stretches of messages begin, u32, counted from its first id; whose each of
them is, u16, by his number in the list, or NOBODY_NUMBER."""


class Run:  # decision 3
    """Records of one partition within the pending frame."""

    def __init__(self, partition_id: int, now_ms: int) -> None:
        self.partition_id: int = partition_id
        self.number: int = -1                        # among the runs of its frame
        self.count: int = 0
        self.batch: bytes = b""                      # a producer's own, as it was sent
        self.batch_at: int = -1                      # where that is laid
        self.max_ms: int = now_ms
        self.flags: int = 0
        self.own_id: int = -1                        # >= 0: its messages keep the ids they have, from this on
        self.beside: bool = False                    # what the hub wrote: the ids are those of other messages
        self.records: list[Record] | None = None     # of a producer's batch that was opened; offsets count from 0
        # known once sealed:
        self.first_offset: int = -1
        self.first_id: int = -1


Entering = tuple[Any, "bytes | None", bytes, int, int]
"""A message with its placement in front, or where placements are given by number, with the number."""


def check(messages: list[Entering], refresh: Callable[[Placement], None],
          places: dict[int, Placement] | None = None, asking: list[int] | None = None,
          tracing: list[int] | None = None) -> bool:
    """Bring placements up to date that have changed, and what senders say of addresses in place (`stated`). Where
    `places` is given, messages have numbers of places in front; UnknownPlace where one is not in it.

    Refuses the whole list with MessageTooLarge if one is, or has too many headers, with InvalidAddress if one is to be
    retained under an address that is too long for it. True where one enters a queue that may be full. Those that
    perhaps ask for a receipt are added to `asking`, those that perhaps ask to be followed to `tracing`."""
    last: object = None
    plain: object = None                 # headers that say nothing of this; messages of a burst often share theirs
    limit = 0
    limited = False
    for at, message in enumerate(messages):
        where = message[0]
        if where is not last:
            last = where
            looked_up: Placement | None = where if places is None else places.get(where)
            if looked_up is None:
                raise UnknownPlace("the place was given to somebody else, or under other rights")
            placement = looked_up
            if placement.version != placement.first_level.version:
                refresh(placement)
            limit = placement.max_message_bytes
            limited = limited or placement.limited
        if message[3] & RETAIN:
            retained_key(placement.tenant, placement.address)
        value, headers = message[1], message[2]
        size = len(headers) + (0 if value is None else len(value))
        if size > limit:
            raise MessageTooLarge(f"a message of {size} bytes is more than "
                                  f"{placement.topic or placement.address} takes: {limit}")
        if headers is plain:
            continue
        if len(headers) > FEW_HEADERS_BYTES and are_too_many(headers):       # no call for nearly every message
            raise MessageTooLarge(f"a message has at most {CARRIED_HEADERS} headers")
        plain = headers
        # their names begin with the same byte, and looking for a number is quick; not `STATED in headers`: Python first
        # takes the left side for a number, and formats an error that it drops
        if FIRST in headers:
            if headers.find(STATED) >= 0:
                plain = None
                if not placement.address_header:
                    messages[at] = stated(message, placement)
            if asking is not None and headers.find(RECEIPT_MARK) >= 0:
                plain = None
                asking.append(at)
        if tracing is not None and (FIRST in headers and headers.find(TRACE_MARK) >= 0
                                    or CONTEXT_FIRST in headers and headers.find(CONTEXT_MARK) >= 0):
            plain = None
            tracing.append(at)
    return limited


class Stretch:
    """Records of a run that enter queues as well: by reference, their bytes lie in the run."""

    def __init__(self, partition_ids: tuple[int, ...], run: Run, start: int) -> None:
        self.partition_ids: tuple[int, ...] = partition_ids
        self.run: Run = run
        self.start: int = start                      # index in the run
        self.stop: int = start


class Reference:  # decision 24
    """Consecutive records of a run as one queue gets them."""

    def __init__(self, partition_id: int, run: Run, start: int, stop: int) -> None:
        self.partition_id: int = partition_id
        self.run: Run = run
        self.start: int = start
        self.stop: int = stop
        self.first_offset: int = -1                  # known once sealed


Heard = list[tuple["Placement | None", list[NumberedMessage], Run, int]]
"""Stretches of messages with one placement that somebody listens to (placement, messages, run, index in the run), and
producers' batches that somebody may listen to (None, [], run, 0)."""


class Sealed:
    """Everything a builder holds, as it goes to the log."""

    def __init__(self, entries: Entries, body: bytes, record_count: int, id_count: int,
                 naming: list[Origin] | None) -> None:
        self.naming: list[Origin] | None = naming    # whose names stand in it
        self.entries: Entries = entries
        self.body: bytes = body
        self.record_count: int = record_count
        self.id_count: int = id_count                # message ids used up; copies use none


class BatchBuilder:
    """Gathers until `seal`; then a new one is begun."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms: int = now_ms
        self.size_bytes: int = 0
        self.runs: list[Run] = []
        self._laid: Laid = []                            # what the body is made of, in the order of arrival
        self._open: dict[int, Run] = {}
        self.heard: Heard = []
        # messages that change state of their own, the value of their address or the newest record of their key:
        # (message, run, index in the run)
        self.noted: list[tuple[Message, Run, int]] = []
        self.stretches: list[Stretch] = []
        self.references: list[Reference] = []            # known once `partition_ids` was asked
        self.has_copies: bool = False                    # messages in it have the ids that they had
        self.beside_count: int = 0                       # of what the hub wrote beside the others'
        self.has_authors: bool = False                   # of some it is known who published them
        self._turns: list[Turn] = []
        self._laid_count: int = 0                        # messages that are laid, as `Turn` counts them
        self._author: Origin | None = None               # of what was laid last
        # known once `entering` was asked:
        self._entering: dict[int, int] = {}              # messages by partition id, those of `_newest` aside
        self._newest: dict[int, Run] = {}                # runs, by partition id
        self._counted_runs: int = 0
        self._counted_stretches: int = 0

    def add(self, messages: list[Entering], places: list[tuple[Run, int]] | None, own: Run | None = None,
            placements: dict[int, Placement] | None = None, author: Origin | None = None,
            stops: list[int] | None = None, authors: list[Origin] | None = None) -> None:
        """Take messages, in order. Their placements' targets are fresh and their sizes checked.

        `places` is given where the caller wants to know: run and index in it are added per message. `own` is the run
        that they enter, where they have ids already: they are all of its partition, and it has room for them.
        `placements` by number, where messages have numbers in front. `author` published them; or those before each of
        `stops` the one of `authors`.
        """
        laid = self._laid
        if stops is not None and authors is not None:
            self._turns.append((self._laid_count, stops, authors))
            self._author, self.has_authors = authors[-1], True
        elif own is None and self._author is not author:
            self._turn(author)
        self._laid_count += len(messages)
        size_bytes = 0
        last: object = None
        placement: Placement | None = None
        run: Run | None = None
        heard: list[NumberedMessage] | None = None
        stretch: Stretch | None = None
        compact = picky = False
        passing = 0
        address_header = b""
        around = 0
        for message in messages:
            where, value, headers, attributes, timestamp_ms = message
            if where is not last or run is None or run.count >= RUN_LIMIT:
                if stretch is not None:
                    stretch.stop = stretch.run.count
                    stretch = None
                last = where
                placement = where if placements is None else placements[where]
                assert placement is not None, "a place is known since its message was checked"
                key_part = placement.key_part
                compact, address_header, around = placement.compact, placement.address_header, len(key_part) + AROUND
                run = self._run(placement.partition_id) if own is None else own
                laid.append(run.number)
                laid.append(key_part)
                heard = None
                if placement.targets:
                    heard = []
                    self.heard.append((placement, heard, run, run.count))
                picky = placement.also is not placement.fleeting
                if picky:
                    passing = -1
                elif placement.also:
                    stretch = Stretch(placement.also, run, run.count)
                    self.stretches.append(stretch)
            if picky and attributes & TRANSIENT != passing:      # some of what it enters takes no such messages
                assert placement is not None
                passing = attributes & TRANSIENT
                if stretch is not None:
                    stretch.stop = run.count
                    stretch = None
                also = placement.fleeting if passing else placement.also
                if also:
                    stretch = Stretch(also, run, run.count)
                    self.stretches.append(stretch)
            if heard is not None:
                heard.append(message if placements is not None else (0, value, headers, attributes, timestamp_ms))
            n = run.count
            if compact or attributes & RETAIN:
                assert placement is not None
                self.noted.append(((placement, value, headers, attributes, timestamp_ms), run, n))
            if places is not None:
                places.append((run, n))
            if timestamp_ms > run.max_ms:
                run.max_ms = timestamp_ms
            assert 0 <= attributes < 256, "a record has one byte of attributes"
            if address_header:
                laid.append((where, value, add_header(headers, address_header), attributes, timestamp_ms))
            else:
                laid.append(message)
            run.count = n + 1
            size_bytes += around + len(headers)
            if value is not None:
                size_bytes += len(value)
        if stretch is not None:
            stretch.stop = stretch.run.count
        self.size_bytes += size_bytes

    def _run(self, partition_id: int) -> Run:
        run = self._open.get(partition_id)
        if run is None or run.count >= RUN_LIMIT or run.own_id >= 0:
            run = Run(partition_id, self.now_ms)
            self._open[partition_id] = run
            self._number(run)
        return run

    def _turn(self, author: Origin | None) -> None:
        """What is laid from here on is his."""
        self._turns.append((self._laid_count, None, author))
        self._author, self.has_authors = author, True

    def _number(self, run: Run) -> None:
        """It is part of this frame."""
        run.number = len(self.runs)
        self.runs.append(run)

    def add_batch(self, partition_id: int, batch: bytes, count: int, max_ms: int, author: Origin | None = None) -> Run:
        """A producer's batch, already checked."""
        assert count > 0 and batch, "a batch without records enters nothing"
        run = Run(partition_id, max_ms)
        if self._author is not author:
            self._turn(author)
        self._laid_count += 1
        run.count = count
        run.flags = WHOLE
        run.batch = batch
        self._open.pop(partition_id, None)
        self._number(run)
        run.batch_at = len(self._laid) + 2               # its place, which is known once it is sealed
        self._laid += [run.number, None, b"", memoryview(batch)[PLACE_BYTES:]]
        self.size_bytes += len(batch)
        return run

    def add_encoded(self, encoded: Encoded, author: Origin | None = None) -> None:
        """Messages that are records already, at most RUN_LIMIT of them."""
        run = self._run(encoded.partition_id)
        if run.count + encoded.record_count > RUN_LIMIT:
            del self._open[encoded.partition_id]
            run = self._run(encoded.partition_id)
        if self._author is not author:
            self._turn(author)
        self._laid_count += 1
        self._laid += [run.number, b"", (encoded.data, encoded.base_ms, encoded.record_count)]
        run.count += encoded.record_count
        run.max_ms = max(run.max_ms, encoded.max_ms)
        self.size_bytes += len(encoded.data)

    def hear_batch(self, run: Run, records: list[Record] | None, opened_bytes: int) -> None:
        """Somebody may listen to a producer's batch. Its records, if it was opened, wait to be delivered."""
        self.heard.append((None, [], run, 0))
        if records is not None:
            run.records = records
            self.size_bytes += opened_bytes

    # decision 25
    def add_copies(self, messages: list[Message], ids: list[int], places: list[tuple[Run, int]] | None) -> None:
        """As `add`, for messages that keep the ids they have. What follows on each other lies in one run."""
        assert len(messages) == len(ids), "a copy has the id of its message"
        start = 0
        while start < len(messages):
            partition_id = messages[start][0].partition_id
            run = self._run_of_copies(partition_id, ids[start])
            stop = start + 1
            while stop < len(messages) and run.count + stop - start < RUN_LIMIT \
                    and messages[stop][0].partition_id == partition_id and ids[stop] == ids[start] + stop - start:
                stop += 1
            self.add(messages[start:stop], places, run)
            start = stop

    def _run_of_copies(self, partition_id: int, message_id: int) -> Run:
        """One that a message with this id follows in, or a new one."""
        run = self._open.get(partition_id)
        if run is None or run.own_id < 0 or run.own_id + run.count != message_id or run.count >= RUN_LIMIT:
            self.has_copies = True
            run = Run(partition_id, self.now_ms)
            run.own_id = message_id
            self._open[partition_id] = run
            self._number(run)
        return run

    def add_beside(self, messages: list[Message], first_id: int, places: list[tuple[Run, int]]) -> None:
        """As `add`, for what the hub writes beside messages into one partition: no id is used up. `first_id` is one
        that a message has."""
        for start in range(0, len(messages), RUN_LIMIT):
            part = messages[start:start + RUN_LIMIT]
            run = Run(part[0][0].partition_id, self.now_ms)
            run.own_id = first_id
            run.beside = True
            self._open.pop(run.partition_id, None)
            self._number(run)
            self.add(part, places, run)
        self.beside_count += len(messages)

    def note_bytes(self, size_bytes: int) -> None:
        """State of this size gathers beside the messages."""
        self.size_bytes += size_bytes

    def note(self, run: Run, numbered: list[tuple[int, Message]]) -> None:
        """These messages of a producer's batch, with their index in it, change state of their own."""
        self.noted += [(message, run, at) for at, message in numbered]

    def partition_ids(self) -> list[int]:
        """What this enters: the partition of every run, then of every reference."""
        partition_ids = [run.partition_id for run in self.runs]
        if self.stretches:
            self._refer()
            partition_ids += [reference.partition_id for reference in self.references]
        return partition_ids

    def entering(self, partition_id: int) -> int:
        """How many messages of it enter a partition, themselves or by reference. What was counted once stays so: of a
        partition's runs the newest alone grows."""
        for run in self.runs[self._counted_runs:]:
            before = self._newest.get(run.partition_id)
            if before is not None:
                self._entering[before.partition_id] = self._entering.get(before.partition_id, 0) + before.count
            self._newest[run.partition_id] = run
        self._counted_runs = len(self.runs)
        for stretch in self.stretches[self._counted_stretches:]:
            for entered in stretch.partition_ids:
                self._entering[entered] = self._entering.get(entered, 0) + stretch.stop - stretch.start
        self._counted_stretches = len(self.stretches)
        newest = self._newest.get(partition_id)
        return self._entering.get(partition_id, 0) + (0 if newest is None else newest.count)

    def _refer(self) -> None:
        """Stretches as references, partition by partition; what follows on each other in a run is one."""
        last: dict[int, Reference] = {}
        for stretch in self.stretches:
            for partition_id in stretch.partition_ids:
                reference = last.get(partition_id)
                if reference is not None and reference.run is stretch.run and reference.stop == stretch.start:
                    reference.stop = stretch.stop
                else:
                    last[partition_id] = Reference(partition_id, stretch.run, stretch.start, stretch.stop)
                    self.references.append(last[partition_id])

    def seal(self, next_offsets: list[int], first_id: int, epoch: int, since: int = 0) -> Sealed:
        """Give every run its place; `next_offsets` holds, per entry of `partition_ids`, the next offset before this
        frame. Names of authors that were said before the position `since` are said again.

        A partition with several runs is listed with the same number each time; later runs are moved on here.
        """
        runs = self.runs
        assert len(next_offsets) == len(runs) + len(self.references), "an offset for each run and each reference"
        entries = Entries()
        partition_ids, first_offsets = entries.partition_id, entries.first_offset
        first_ids: list[int] = []
        counts: list[int] = []
        moved: dict[int, int] = {}
        several = len(self._open) != len(runs) or len(self.references) > 0     # of a partition, perhaps
        next_id = first_id
        record_count = 0
        for i, run in enumerate(runs):
            count = run.count
            offset = next_offsets[i]
            if several:
                offset += moved.get(run.partition_id, 0)
                moved[run.partition_id] = moved.get(run.partition_id, 0) + count
                next_offsets[i] = offset
            run.first_offset = offset
            message_id = run.own_id
            if message_id < 0:
                message_id = next_id
                next_id += count
            run.first_id = message_id
            assert count > 0 and offset >= 0 and message_id >= 0, "no run is empty, and each has its place"
            record_count += count
            if run.flags:                    # a producer's batch
                self._laid[run.batch_at] = place_of(run.batch, offset, epoch)
            first_ids.append(message_id)
            counts.append(count)
        column = b""
        naming: list[Origin] | None = None
        if self.has_authors:
            begins = array("q", [-1 if run.own_id >= 0 else run.first_id - first_id for run in runs])
            column, naming = encode_authors(first_id, *authors_of(self._laid, self._turns, begins, MAX_AUTHORS),
                                            since)
        data, lengths, crcs, ends = encode_body(self._laid, len(runs), self.now_ms, column, len(self.references) > 0)
        self._laid = []
        partition_ids.fromlist([run.partition_id for run in runs])
        first_offsets.fromlist(next_offsets[:len(runs)])
        entries.max_ms.fromlist([run.max_ms for run in runs])
        entries.message_id.fromlist(first_ids)
        entries.count.fromlist(counts)
        entries.byte_length.frombytes(lengths)
        entries.byte_offset.fromlist(list(accumulate(entries.byte_length, initial=len(column)))[:-1])
        entries.crc.frombytes(crcs)
        entries.flags.fromlist([run.flags for run in runs])
        assert len(data) == len(column) + sum(entries.byte_length), "entries lie in the body"
        if self.references:
            self._add_references(entries, next_offsets, moved, data, ends)
        return Sealed(entries, data, record_count, next_id - first_id, naming)

    def _add_references(self, entries: Entries, next_offsets: list[int], moved: dict[int, int], data: bytes,
                        ends: bytes) -> None:
        """An entry per reference: the bytes of its records within their run, which has its own entry. `ends`: see
        `encode_body`."""
        record_ends = memoryview(ends).cast("I")
        firsts = list(accumulate([0 if run.flags else run.count for run in self.runs], initial=0))
        i = len(self.runs)
        for reference in self.references:
            run, start, stop = reference.run, reference.start, reference.stop
            partition_id, number = reference.partition_id, run.number
            assert 0 <= start < stop <= run.count, "a reference points into its run"
            offset = reference.first_offset = next_offsets[i] + moved.get(partition_id, 0)
            i += 1
            moved[partition_id] = moved.get(partition_id, 0) + stop - start
            byte_offset, length, crc = entries.byte_offset[number], entries.byte_length[number], entries.crc[number]
            if stop - start < run.count and not run.flags:
                before = record_ends[firsts[number] + start - 1] if start else 0
                byte_offset += before
                length = record_ends[firsts[number] + stop - 1] - before
                crc = crc32c(memoryview(data)[byte_offset:byte_offset + length])
            entries.partition_id.append(partition_id)
            entries.first_offset.append(offset)
            entries.max_ms.append(run.max_ms)
            entries.message_id.append(run.first_id + start)
            entries.count.append(stop - start)
            entries.byte_offset.append(byte_offset)
            entries.byte_length.append(length)
            entries.crc.append(crc)
            entries.flags.append(0)


Places = list[tuple[Run, int]]
"""Where each message of a submission went: its run and its index in it."""

Ranges = tuple[tuple[int, int], ...]
"""Partitions, as (first partition id, count)."""


class Submission:
    """One call's claim to an answer."""

    __slots__ = ("owner", "token", "places", "fixed")

    def __init__(self, owner: Owner, token: object, places: Places | None,
                 fixed: tuple[int, list[tuple[int, int, int]]] | None) -> None:
        self.owner = owner
        self.token = token
        self.places = places
        self.fixed = fixed                # known beforehand: append time and positions


class Repeatable(NamedTuple):
    """A submission that came with an idempotency key."""

    fingerprint: bytes
    places: Places


# decision 136: one protocol and a list, for everything that is not a message in a partition
class Participant(Protocol):
    """Whoever has something in a frame beside messages. It joins the frame, is asked for its state records when the
    frame is sealed, and hears what became of them. One of `applied` and `failed` is called afterwards."""

    # decision 39: ids, and no offset yet
    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """Add the state records of this frame to `frame.state`: runs have their offsets and ids now.

        Returns how many message ids are used up by messages that enter no partition yet: `first_id` and those after it.
        """

    def applied(self, frame: PendingFrame) -> None:
        """The frame is durable and in the state's memory; nobody has been told yet."""

    def failed(self, frames: list[PendingFrame]) -> None:
        """None of these was stored, and nobody has been told yet: take back what was changed beforehand. The
        participant has joined at least one of them."""


class Follower(Protocol):
    """Whoever goes on from what a durable frame brought, after its answers."""

    @property
    def waiting(self) -> Collection[object]:
        """Those who wait for records; while there are none, `follow` is not called."""

    def follow(self, entered: AbstractSet[int]) -> None:
        """Records entered these partitions."""


class Forgetter(Protocol):
    """Whoever knows of partitions, and forgets those that are gone."""

    def forget_partitions(self, ranges: Ranges) -> None:
        """A durable frame has deleted these."""


class PendingFrame:
    """Everything between two flushes. One is being filled; one may be on its way to the disk."""

    def __init__(self, append_ms: int, now_ms: int) -> None:
        self.builder = BatchBuilder(append_ms)
        self.now_ms = now_ms                                 # hub time, as what is to end is counted in
        self.submissions: list[Submission] = []
        self.state: list[StateRecord] = []
        self.participants: dict[Participant, bool] = {}      # and whether it has something that must be stored
        self.giving_ids: list[Participant] = []              # those of them that are sealed before the others
        self.produced: dict[tuple[int, int], list[tuple[BatchHeader, Run]]] = {}     # by partition and producer id
        self.repeatable: dict[str, Repeatable] = {}
        self.answered: dict[str, bytes] = {}                 # encoded, by idempotency key
        self.expired: list[str] = []                         # idempotency keys that leave the window with this frame
        self.deleted: Ranges = ()                            # partitions of topics and queues that are deleted
        self.topic_changes = 0
        self.frees = False                                   # more than it takes: the reserve is there for it
        self.entering_bytes: dict[int, int] = {}             # into queues that refuse what exceeds their bytes
        self.has_journeys: bool = False                      # a message in it is followed, see `kernel.journeys`
        self._offsets: list[StateRecord] = []                # of the first `_looked` of `state`
        self._looked: int = 0
        self._offsets_of: dict[str, list[int]] = {}          # partition ids of the first `_sorted` of these, by group
        self._sorted: int = 0

    def join(self, participant: Participant) -> None:
        """It has something that goes into this frame."""
        self.participants[participant] = True

    def join_to_give_ids(self, participant: Participant) -> None:
        """It gives ids to messages that enter no partition yet. What others write may name these ids: it is sealed
        before them."""
        self.join(participant)
        self.giving_ids.append(participant)

    def wait(self, owner: Owner | None, token: object, places: Places | None) -> None:
        """Tell the owner once this is durable, and where these went."""
        if owner is not None:
            self.submissions.append(Submission(owner, token, places, None))

    def answer(self, owner: Owner | None, token: object) -> None:
        """Tell the owner once this is durable."""
        if owner is not None:
            self.submissions.append(Submission(owner, token, None, (self.builder.now_ms, [])))

    def produced_run(self, partition_id: int, header: BatchHeader) -> Run | None:
        """The run of this very batch, if it is in here."""
        for produced_header, run in self.produced.get((partition_id, header.producer_id), ()):
            if (produced_header.producer_epoch, produced_header.base_sequence, produced_header.record_count) == \
                    (header.producer_epoch, header.base_sequence, header.record_count):
                return run
        return None

    def offsets(self) -> list[StateRecord]:
        """What of `state` is committed offsets; what was looked at is not looked at again."""
        self._offsets += [record for record in self.state[self._looked:] if record.kind == Kind.OFFSET]
        self._looked = len(self.state)
        return self._offsets

    def offsets_of(self, group: str) -> list[int]:
        """The ids of partitions in which a group's committed offset changes."""
        offsets = self.offsets()
        for record in offsets[self._sorted:]:
            partition_id, name = decode_offset_key(record.key)
            self._offsets_of.setdefault(name, []).append(partition_id)
        self._sorted = len(offsets)
        return self._offsets_of.get(group, [])

    def delete_partitions(self, first_partition_id: int, count: int) -> None:
        """These partitions go with it."""
        self.deleted += ((first_partition_id, count),)

    @property
    def stores_nothing(self) -> bool:
        """Whether nothing of it goes to the log. It may have answers to give all the same."""
        return not self.builder.runs and not self.state and True not in self.participants.values()


def answers(submissions: list[Submission], append_ms: int, error: Exception | None) -> dict[Owner, list[Stored]]:
    """Each owner's answers, in the order of its calls."""
    owner_answers: dict[Owner, list[Stored]] = {}
    for submission in submissions:
        owner, places = submission.owner, submission.places
        stamp, positions = (append_ms, []) if submission.fixed is None else submission.fixed
        if error is not None:
            positions = []
        elif places is not None:
            positions = [(run.partition_id, run.first_offset + i, run.first_id + i) for run, i in places]
        answer = Stored(submission.token, error, stamp, positions)
        mine = owner_answers.get(owner)
        if mine is None:
            owner_answers[owner] = [answer]
        else:
            mine.append(answer)
    return owner_answers


def encode_plain(laid: Laid, run_count: int, now_ms: int, front: bytes, with_ends: bool) -> Body:
    """`front` stands before the first run. Times of messages count from `now_ms`; ends are given on wish.
    Raises OverflowError where a body has more than four gigabytes."""
    runs: list[list[bytes]] = [[] for _ in range(run_count)]
    whole: dict[int, bytes] = {}
    key_part: Any = b""                                        # None before a producer's batch
    run: list[bytes] = []
    at = 0
    while at < len(laid):
        item = laid[at]
        at += 1
        if type(item) is int:
            run, key_part = runs[item], laid[at]
            at += 1
            if key_part is None:
                whole[item] = b"".join(laid[at:at + 2])
                at += 2
            continue
        if len(item) == ENCODED_FIELDS:
            records, base_ms, _ = item
            run += _placed(records, base_ms, now_ms, len(run))
            continue
        _, value, headers, attributes, timestamp_ms = item
        before = b"".join((bytes((attributes,)), varint(timestamp_ms - now_ms) if timestamp_ms else b"\0",
                           SMALL[len(run)], key_part, NULL if value is None else _length(len(value))))
        size = len(before) + len(headers) + (0 if value is None else len(value))
        run.append(b"".join((_length(size), before, b"" if value is None else value, headers)))
    parts = [whole[number] if number in whole else b"".join(run) for number, run in enumerate(runs)]
    ends = array("I")
    if with_ends:
        for run in runs:
            ends.extend(accumulate([len(record) for record in run]))
    return (b"".join([front, *parts] if front else parts), array("I", [len(part) for part in parts]).tobytes(),
            array("I", [crc32c(part) for part in parts]).tobytes(), ends.tobytes())


def _length(size: int) -> bytes:
    """A length as it stands in a record."""
    return SMALL[size] if size < SMALL_LIMIT else varint(size)


def _placed(data: bytes, base_ms: int, now_ms: int, number: int) -> list[bytes]:
    """Encoded records with the places and the times of their run."""
    records: list[bytes] = []
    at = 0
    while at < len(data):
        length, at = read_varint(data, at)
        end = at + length
        attributes = data[at:at + 1]
        delta_ms, at = read_varint(data, at + 1)
        record = b"".join((attributes, varint(base_ms + delta_ms - now_ms), varint(number + len(records)),
                           data[at + 1:end]))
        records.append(varint(len(record)) + record)
        at = end
    return records


# decision 298
def authors_plain(laid: Laid, turns: list[Turn], begins: array[int], most: int) -> Authorship:
    """`begins`: by run, where the ids of its messages begin, counted from the frame's first; below 0, they have ids of
    their own and are passed over. Beyond `most` authors nobody is known."""
    numbers: dict[Origin, int] = {}
    parts: list[tuple[int, int]] = []                          # from which message on whose they are
    for first, stops, authors in turns:
        starts = [first] if stops is None else [first, *[first + stop for stop in stops[:-1]]]
        for start, author in zip(starts, [authors] if stops is None else authors, strict=True):
            if author is not None and len(numbers) < most:
                numbers.setdefault(author, len(numbers))
            parts.append((start, NOBODY_NUMBER if author is None else numbers.get(author, NOBODY_NUMBER)))
    if len(parts) == 1 and not parts[0][0]:                    # nearly every frame is one author's
        firsts = array(U32, [begin for begin in begins if begin >= 0][:1])
        return list(numbers), firsts.tobytes(), array("H", [parts[0][1]] * len(firsts)).tobytes()
    of_runs: list[list[int]] = [[] for _ in begins]            # the author's number of each message
    at = part = message = 0
    number = NOBODY_NUMBER
    while at < len(laid):
        if type(laid[at]) is int:
            of_run = of_runs[laid[at]]
            at += 2
            if laid[at - 1] is not None:
                continue
            at += 1                                            # a producer's batch
        item = laid[at]
        at += 1
        while part < len(parts) and parts[part][0] <= message:
            number = parts[part][1]
            part += 1
        message += 1
        of_run += [number] * (item[2] if type(item) is tuple and len(item) == ENCODED_FIELDS else 1)
    firsts = array(U32)
    of_stretches = array("H")
    for begin, of_run in zip(begins, of_runs, strict=True):
        for first, number in enumerate(of_run if begin >= 0 else (), begin):
            if not of_stretches or of_stretches[-1] != number:
                firsts.append(first)
                of_stretches.append(number)
    return list(numbers), firsts.tobytes(), of_stretches.tobytes()


encode_body: Callable[[Laid, int, int, bytes, bool], Body] = encode_plain
authors_of: Callable[[Laid, list[Turn], array[int], int], Authorship] = authors_plain
try:
    from gatehouse.kernel.write import native_body
    encode_body, authors_of = native_body.encode_body, native_body.authors_of
except ImportError:
    pass
