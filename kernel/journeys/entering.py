"""Messages that are followed from the start, on their way in: they are given trace contexts, and gathered by what is
true of all of them, so that an event tells of many. Hot.

    messages of a call ──► sendings: of one placement and sender ──► trace contexts, one number after the other
                                                                          │
    pending frame ──► rows: of a sending, those that lie evenly in a run ◄──┘ ──► one event each, when ids are by_place
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gatehouse.kernel.journeys.following import evenly
from gatehouse.kernel.message import Origin, Placement
from gatehouse.kernel.records.batch import NO_HEADERS, add_header, encode_header, named_headers, without_headers
from gatehouse.kernel.write.pending_frame import Run
from gatehouse.tracing.context import HEADER, OF_CONTEXT, STATE, Context, only_context
from gatehouse.tracing.events import TEXT_BYTES, Kind, scattered, scattered_texts, text, trace_of, unsigned

CORRELATION: Final = b"correlation-id"
_WANTED: Final = frozenset((HEADER, CORRELATION))

MAX_SENDERS: Final = 10_000
"""Senders and places of which it is kept how events tell of them."""


class Sender:
    """Who sends where: what the events of these messages have in common, encoded."""

    def __init__(self, fields: int, texts: bytes, key: bytes, names: tuple[bytes, ...], tenant: str) -> None:
        self.fields = fields
        self.texts = texts
        self.key = key
        self.names = names               # hashes that they are found by
        self.tenant = tenant             # as events say it


class Sending:
    """Messages of a call: their indices, who sent them where."""

    def __init__(self, placement: Placement, origin: Origin, indexes: list[int]) -> None:
        self.placement = placement
        self.origin = origin
        self.indexes = indexes
        self.number: int = 0             # of the trace of the first; 0: its own context
        self.context: Context | None = None
        self.correlation: bytes = b""

    def keep(self, indexes: list[int], number: int = 0) -> None:
        """Follow these of its messages alone; the first has the trace of this number."""
        self.indexes = indexes
        self.number = number


class FollowedRows:
    """Followed messages in a pending frame: they have no ids before that is sealed. `placement` is None where they
    are of a producer's batch."""

    def __init__(self, run: Run, first: int, rows: int, step: int, sender: Sender, topic_id: int,
                 placement: Placement | None) -> None:
        self.run = run
        self.first = first
        self.rows = rows
        self.step = step
        self.sender = sender
        self.topic_id = topic_id
        self.placement = placement
        self.number: int = 0             # of the trace of the first; 0: see `context`
        self.context: Context | None = None
        self.correlation: bytes = b""

    def lying(self) -> range:
        """Their indices in the run."""
        return range(self.first, self.first + (self.rows - 1) * self.step + 1, self.step)

    def goes_on_with(self, other: FollowedRows) -> bool:
        """Whether these are more of the same, and lie evenly behind: they are counted in then."""
        if other.run is not self.run or other.sender is not self.sender or self.number == 0 \
                or other.number != self.number + self.rows or other.placement is not self.placement \
                or self.correlation or other.correlation:
            return False
        step = other.first - self.first - (self.rows - 1) * self.step
        if step < 1 or self.rows > 1 and step != self.step or other.rows > 1 and step != other.step:
            return False
        self.step = step
        self.rows += other.rows
        return True


class Contexts:
    """Gives trace contexts. `own`: the first half of the trace ids, the hub's since its start."""

    def __init__(self, own: bytes) -> None:
        self.own = own
        self._next: int = 1
        sample = Context(trace_of(own, 1), trace_of(own, 1)[8:], True).header()
        encoded = encode_header(HEADER, sample)
        self._whole: bytes = encoded[:len(encoded) - len(sample)] + b"00-" + own.hex().encode()

    def take(self, count: int) -> int:
        """So many numbers, from this one on."""
        first = self._next
        self._next = first + count
        return first

    def trace_id(self, number: int) -> bytes:
        """The trace id that a number stands for."""
        return trace_of(self.own, number)

    def header(self, number: int) -> bytes:
        """A `traceparent`, encoded as headers are."""
        half = b"%016x" % scattered(number)
        return self._whole + half + b"-" + half + b"-01"

    def add(self, messages: list[Any], indexes: Sequence[int]) -> int:
        """To messages that have none; the number of the first."""
        count = len(indexes)
        first = self.take(count)
        texts = scattered_texts(first, count)
        last, start = b"", b""              # headers of the message before, and what its new ones begin with
        at = 0
        for index in indexes:
            message = messages[index]
            headers: bytes = message[2]
            half = texts[at:at + TEXT_BYTES]
            at += TEXT_BYTES
            if headers != last:
                last, start = headers, add_header(headers, self._whole)
            messages[index] = (message[0], message[1], b"".join((start, half, b"-", half, b"-01")), message[3],
                               message[4])
        return first


def grouped(messages: list[Any], placements: dict[int, Placement] | None, picks: Sequence[Sequence[int]],
            turns: list[tuple[int, Origin]]) -> list[Sending]:
    """Those of these messages that are picked, by placement and sender. `turns`: who sent those before an index, from
    the turn before on."""
    sendings: list[Sending] = []
    turn = 0
    stop, origin = turns[0]
    by_place: dict[Any, Sending] = {}
    last: object = None
    sending: Sending | None = None
    for pick in picks:
        for index in pick:
            while index >= stop:
                turn += 1
                stop, origin = turns[turn]
                by_place = {}
                sending = None
            where = messages[index][0]
            if sending is None or where is not last:
                last = where
                sending = by_place.get(where)
                if sending is None:
                    placement: Placement = where if placements is None else placements[where]
                    sending = Sending(placement, origin, [])
                    by_place[where] = sending
                    sendings.append(sending)
            sending.indexes.append(index)
    return sendings


def with_contexts(messages: list[Any], sendings: list[Sending], contexts: Contexts) -> list[Sending]:
    """Every message of these sendings has one trace context then, and no state of another. Those that came with one, or
    with a correlation id, are sendings of their own."""
    result: list[Sending] = []
    last = NO_HEADERS                                    # of the message before, which said none of it
    for sending in sendings:
        plain: list[int] = []
        for index in sending.indexes:
            headers: bytes = messages[index][2]
            if headers == last or headers.find(HEADER) < 0 and headers.find(CORRELATION) < 0 \
                    and headers.find(STATE) < 0:
                last = headers
                plain.append(index)
                continue
            context, correlation = named_in(headers)
            alone = Sending(sending.placement, sending.origin, [index])
            alone.context, alone.correlation = context, correlation
            if context is None:
                message = messages[index]
                messages[index] = (message[0], message[1], without_headers(headers, OF_CONTEXT), message[3], message[4])
                alone.number = contexts.add(messages, [index])
            result.append(alone)
        if plain:
            sending.keep(plain, contexts.add(messages, plain))
            result.append(sending)
    return result


def named_in(headers: bytes) -> tuple[Context | None, bytes]:
    """The trace context and the correlation id of encoded headers."""
    said = named_headers(headers, _WANTED)
    correlation = b""
    for name, value in said:
        if name == CORRELATION and not correlation:
            correlation = value or b""
    return only_context(said), correlation


def rows_of(sending: Sending, places: Sequence[tuple[Run, int]], sender: Sender) -> list[FollowedRows]:
    """A sending whose messages are in a pending frame."""
    placement = sending.placement
    indexes = sending.indexes
    count = len(indexes)
    result: list[FollowedRows] = []
    done = 0
    while done < count:
        run = places[indexes[done]][0]
        ats: list[int] = []
        stop = done
        while stop < count:
            place = places[indexes[stop]]
            if place[0] is not run:
                break
            ats.append(place[1])
            stop += 1
        number = sending.number + done if sending.number else 0
        for part in evenly(ats):
            rows = FollowedRows(run, part[0], len(part), part.step, sender, placement.topic_id, placement)
            rows.number, rows.context, rows.correlation = number, sending.context, sending.correlation
            result.append(rows)
            if number:
                number += len(part)
        done = stop
    return result


# Which fields follow, as `tracing.events` counts them; `Journeys` checks that they are what they were.
ID_BIT: Final = 1 << 0
PARTITION_BIT: Final = 1 << 1
OFFSET_BIT: Final = 1 << 2
TRACE_BIT: Final = 1 << 15
SPAN_BIT: Final = 1 << 16
KEY_BIT: Final = 1 << 17
CORRELATION_BIT: Final = 1 << 18
ROWS_BIT: Final = 1 << 19
STEP_BIT: Final = 1 << 20


def stored_event(rows: FollowedRows, first_id: int, first_offset: int, trace_id: bytes) -> bytes:
    """The event that these were stored, where the run has its first id and offset."""
    sender = rows.sender
    fields = sender.fields | ID_BIT | PARTITION_BIT
    offset = first_offset + rows.first
    numbers = unsigned(first_id + rows.first) + unsigned(rows.run.partition_id)
    if offset:
        fields |= OFFSET_BIT
        numbers += unsigned(offset)
    traces = b""
    if trace_id:
        fields |= TRACE_BIT
        traces = text(trace_id)
        if rows.context is not None:
            fields |= SPAN_BIT
            traces += text(rows.context.span_id)
    tail = sender.key
    if rows.correlation:
        fields |= CORRELATION_BIT
        tail += text(rows.correlation)
    if rows.rows > 1:
        fields |= ROWS_BIT
        tail += unsigned(rows.rows)
        if rows.step > 1:
            fields |= STEP_BIT
            tail += unsigned(rows.step)
    return b"".join((STORED, unsigned(fields), numbers, sender.texts, traces, tail))


STORED: Final = bytes((Kind.STORED,))
