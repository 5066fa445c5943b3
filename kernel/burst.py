"""What gathers between two flushes: messages encoded as they arrive, sealed into one frame. Hot.

Messages of one queue lie together in a *run*: bare v2 records whose offset deltas count from the run's own zero, so
that a run becomes a Kafka batch by writing a header before it. A producer's own batch is a run of its own, kept as
sent. Runs of one queue stand in the order of arrival.
"""
from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Final

from crc32c import crc32c

from kernel.batch import placed
from kernel.errors import MessageTooLarge
from kernel.frame import WHOLE, Entries
from kernel.message import Message, Placement
from kernel.record import SMALL, SMALL_LIMIT, add_header, varint

RUN_LIMIT: Final = SMALL_LIMIT - 1          # records of one run

COMPACT: Final = 0x100                      # no attribute bit: those are eight

ATTRIBUTES_NOW: Final[list[bytes]] = [bytes((attributes, 0)) for attributes in range(256)]
"""Attribute byte and a timestamp delta of zero: nearly every message is stamped with the append time."""


class Run:
    """Records of one queue within the frame being gathered."""

    def __init__(self, queue_id: int, now_ms: int) -> None:
        self.queue_id: int = queue_id
        self.count: int = 0
        self.first: bytes = b""                      # most runs of a wide burst are one record: no list for them
        self.more: list[bytes] | None = None
        self.max_ms: int = now_ms
        self.flags: int = 0
        self.own_id: int = -1                        # >= 0: its messages keep the ids they have, from this on
        # known once sealed:
        self.first_offset: int = -1
        self.first_id: int = -1


def check(messages: list[Message], refresh: Callable[[Placement], None]) -> int:
    """Refuse the whole list with MessageTooLarge if one is; bring placements up to date that have changed.

    Returns the attribute bits of all messages together, and COMPACT where one goes to a compacted topic: what few
    messages have is looked for only where one has it.
    """
    last: Placement | None = None
    limit = 0
    seen = 0
    for message in messages:
        placement = message[0]
        if placement is not last:
            last = placement
            if placement.version != placement.first_level.version:
                refresh(placement)
            limit = placement.max_message_bytes
            if placement.compact:
                seen |= COMPACT
        seen |= message[3]
        value = message[1]
        size = len(message[2]) + (0 if value is None else len(value))
        if size > limit:
            raise MessageTooLarge(f"a message of {size} bytes is more than {placement.topic} takes: {limit}")
    return seen


class Sealed:
    """A burst as it goes to the log."""

    def __init__(self, entries: Entries, body: bytes, record_count: int, id_count: int) -> None:
        self.entries: Entries = entries
        self.body: bytes = body
        self.record_count: int = record_count
        self.id_count: int = id_count                # message ids used up; copies use none


class Burst:
    """Gathers until `seal`; then a new one is begun."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms: int = now_ms
        self.size_bytes: int = 0
        self.runs: list[Run] = []
        self._open: dict[int, Run] = {}
        # stretches of messages with one placement that somebody listens to: (placement, messages, run, index in the
        # run) or a producer's batch that somebody may listen to: (None, [], run, 0)
        self.heard: list[tuple[Placement | None, list[Message], Run, int]] = []

    def add(self, messages: list[Message], places: list[tuple[Run, int]] | None) -> None:
        """Encode messages, in order. Their placements' targets are fresh and their sizes checked.

        `places` is given where the caller wants to know: run and index in it are added per message.
        """
        now_ms = self.now_ms
        size_bytes = 0
        last: Placement | None = None
        run: Run | None = None
        heard: list[Message] | None = None
        for message in messages:
            placement, value, headers, attributes, timestamp_ms = message
            if placement is not last or run is None or run.count >= RUN_LIMIT:
                last = placement
                run = self._run(placement.queue_id)
                heard = None
                if placement.targets:
                    heard = []
                    self.heard.append((placement, heard, run, run.count))
            if heard is not None:
                heard.append(message)
            if placement.address_header:
                headers = add_header(headers, placement.address_header)
            n = run.count
            if places is not None:
                places.append((run, n))
            if timestamp_ms == 0:
                front = ATTRIBUTES_NOW[attributes]
            else:
                front = bytes((attributes,)) + varint(timestamp_ms - now_ms)
                if timestamp_ms > run.max_ms:
                    run.max_ms = timestamp_ms
            if value is None:
                tail = b"\x01" + headers
            else:
                length = len(value)
                tail = (SMALL[length] if length < SMALL_LIMIT else varint(length)) + value + headers
            middle = SMALL[n] + placement.key_part
            size = len(front) + len(middle) + len(tail)
            record = (SMALL[size] if size < SMALL_LIMIT else varint(size)) + front + middle + tail
            if n == 0:
                run.first = record
            elif run.more is None:
                run.more = [record]
            else:
                run.more.append(record)
            run.count = n + 1
            size_bytes += size
        self.size_bytes += size_bytes

    def _run(self, queue_id: int) -> Run:
        run = self._open.get(queue_id)
        if run is None or run.count >= RUN_LIMIT:
            run = Run(queue_id, self.now_ms)
            self._open[queue_id] = run
            self.runs.append(run)
        return run

    def add_batch(self, queue_id: int, batch: bytes, count: int, max_ms: int) -> Run:
        """A producer's batch, already checked."""
        run = Run(queue_id, max_ms)
        run.count = count
        run.flags = WHOLE
        run.first = batch
        self._open.pop(queue_id, None)
        self.runs.append(run)
        self.size_bytes += len(batch)
        return run

    def add_copies(self, messages: list[Message], ids: list[int], places: list[tuple[Run, int]] | None) -> None:
        """As `add`, for messages that keep the ids they have. What follows on each other lies in one run."""
        start = 0
        while start < len(messages):
            queue_id = messages[start][0].queue_id
            stop = start + 1
            while stop < len(messages) and stop - start < RUN_LIMIT and messages[stop][0].queue_id == queue_id \
                    and ids[stop] == ids[start] + stop - start:
                stop += 1
            run = Run(queue_id, self.now_ms)
            run.own_id = ids[start]
            self._open[queue_id] = run
            self.runs.append(run)
            self.add(messages[start:stop], places)
            del self._open[queue_id]
            start = stop

    def seal(self, next_offsets: list[int], first_id: int, epoch: int) -> Sealed:
        """Give every run its place; `next_offsets` holds, per run, the next offset of its queue before this frame.

        A queue with several runs is listed with the same number each time; later runs are moved on here.
        """
        runs = self.runs
        first_offsets: list[int] = []
        first_ids: list[int] = []
        counts: list[int] = []
        lengths: list[int] = []
        crcs: list[int] = []
        bodies: list[bytes] = []
        moved: dict[int, int] = {}
        several = len(self._open) != len(runs)          # some queue may have several runs
        next_id = first_id
        record_count = 0
        i = 0
        for run in runs:
            count = run.count
            offset = next_offsets[i]
            i += 1
            if several:
                offset += moved.get(run.queue_id, 0)
                moved[run.queue_id] = moved.get(run.queue_id, 0) + count
            run.first_offset = offset
            message_id = run.own_id
            if message_id < 0:
                message_id = next_id
                next_id += count
            run.first_id = message_id
            record_count += count
            data = run.first
            if run.flags:
                data = placed(data, offset, epoch)
            elif run.more is not None:
                data = data + b"".join(run.more)
            first_offsets.append(offset)
            first_ids.append(message_id)
            counts.append(count)
            lengths.append(len(data))
            crcs.append(crc32c(data))
            bodies.append(data)
        entries = Entries()
        entries.queue_id.fromlist([run.queue_id for run in runs])
        entries.first_offset.fromlist(first_offsets)
        entries.max_ms.fromlist([run.max_ms for run in runs])
        entries.message_id.fromlist(first_ids)
        entries.count.fromlist(counts)
        entries.byte_offset.fromlist([0, *accumulate(lengths)][:-1])
        entries.byte_length.fromlist(lengths)
        entries.crc.fromlist(crcs)
        entries.flags.fromlist([run.flags for run in runs])
        return Sealed(entries, bodies[0] if len(bodies) == 1 else b"".join(bodies), record_count, next_id - first_id)
