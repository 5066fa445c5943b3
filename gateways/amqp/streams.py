"""Streams: queues whose messages stay until retention lets them go, read from any place by any number of consumers.

A stream is a topic of the same name with one partition: what is published to it is stored there, its offsets count from
0, and Kafka's, HTTP's and MQTT's clients see it as that topic. And each partition of any topic is read as a stream,
`TOPIC-0` and so on.

    first, last, next    where it begins, its last message, what comes from now on (as without `x-stream-offset`)
    a number             that offset; what is gone begins at the first, what is not there yet at the end
    a time, `2h`, `7D`   what was stored from then on; so long ago: Y, M, D, h, m, s

Acknowledgements make room for more, and nothing else: where a consumer is it knows itself, from the header
`x-stream-offset` of each delivery.
"""
from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.amqp import codec, mapping, properties
from gatehouse.gateways.amqp.arguments import INTERVALS_S
from gatehouse.gateways.amqp.channel import Consumer
from gatehouse.gateways.amqp.errors import ConnectionFault, SyntaxFault, precondition
from gatehouse.gateways.amqp.tables import INTEGERS, TYPE_NAMES, Field, Table, plain, text
from gatehouse.gateways.amqp.vhost import AmqpQueue, StreamPlace
from gatehouse.kernel.errors import OffsetOutOfRange, TopicExists
from gatehouse.kernel.records.batch import encode_headers, sound_records
from gatehouse.kernel.state.topics import TopicSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.amqp.channel import Channel
    from gatehouse.gateways.amqp.vhost import VirtualHost
    from gatehouse.kernel.api import HubPort
    from gatehouse.kernel.message import Fetched, Handle, Leased, Stored
    from gatehouse.kernel.state.topics import Topic

NOT_IMPLEMENTED: Final = 540
OFFSET: Final = "x-stream-offset"
FILTER: Final = "x-stream-filter"
UNFILTERED: Final = "x-stream-match-unfiltered"
FILTER_VALUE: Final = "x-stream-filter-value"
FILTERS_MAX: Final = 1_000             # values of one consumer
LOOKED_AT: Final = 64                  # reads in a row that a filter leaves nothing of: others have their turn then
PARTITION_NAME: Final = re.compile(r"(.+)-(\d{1,6})", re.ASCII | re.DOTALL)
READ_BYTES: Final = 128 << 10          # read ahead for one consumer
EDGES: Final = ("first", "last", "next")


class Start(NamedTuple):
    """Where a consumer begins: at an edge, an offset, or a time."""

    edge: str = ""
    offset: int = -1
    time_ms: int = -1


def read_start(arguments: Table, where: str, wall_ms: int) -> Start:
    """What `basic.consume` says. Raises ChannelFault 406."""
    field = arguments.get(OFFSET)
    if field is None:
        return Start("next")
    if field.type in INTEGERS:
        return Start(offset=max(0, field.value))
    if field.type == "T":
        return Start(time_ms=field.value * 1000)
    said = plain(field) if field.type == "S" else None
    if said in EDGES:
        return Start(said)
    interval_s = _interval_s(said) if isinstance(said, str) else None
    if interval_s is None:
        shown = f'<<"{said}">>' if isinstance(said, str) else str(plain(field)).lower()
        raise precondition(f"invalid arg '{OFFSET}' for {where}: {{invalid_stream_offset_arg,"
                           f"{{{TYPE_NAMES[field.type]},{shown}}}}}")
    return Start(time_ms=max(0, wall_ms - interval_s * 1000))


class StreamFilter(NamedTuple):
    """Which messages a consumer wants: by the value of their header `x-stream-filter-value`."""

    values: frozenset[bytes]
    unfiltered: bool                   # and those without such a header

    def takes(self, headers: Table) -> bool:
        field = headers.get(FILTER_VALUE)
        return self.unfiltered if field is None or field.type != "S" else field.value in self.values


def read_filter(arguments: Table, where: str) -> StreamFilter | None:  # decision 232
    """What `basic.consume` says; None: it wants all. Raises ChannelFault 406."""
    field, unfiltered = arguments.get(FILTER), arguments.get(UNFILTERED)
    if unfiltered is not None and unfiltered.type != "t":
        raise precondition(f"invalid arg '{UNFILTERED}' for {where}: "
                           f"{{unacceptable_type,{TYPE_NAMES[unfiltered.type]}}}")
    if field is None:
        return None
    values = field.value if field.type == "A" else [field]
    if any(value.type != "S" for value in values) or not 0 < len(values) <= FILTERS_MAX:
        raise precondition(f"invalid arg '{FILTER}' for {where}: a text, or an array of 1 to {FILTERS_MAX} texts")
    return StreamFilter(frozenset([value.value for value in values]), unfiltered is not None and bool(unfiltered.value))


def _interval_s(said: str) -> int | None:
    unit, number = said[-1:], said[:-1]
    if unit not in INTERVALS_S or not number.isascii() or not number.isdigit() or len(number) > 9:
        return None
    return int(number) * INTERVALS_S[unit]


def _at_least_one(limit: int | None) -> int | None:
    """RabbitMQ takes 0 for a stream of as little as can be; a topic's limit is 1 or more."""
    return None if limit is None else max(1, limit)


def not_of_streams(method: str, queue: AmqpQueue) -> ConnectionFault:
    return ConnectionFault(NOT_IMPLEMENTED, f"{method} not supported by stream queues {queue.where}")


class Streams:  # decision 197
    """The topics behind streams, of all virtual hosts."""

    def __init__(self, kernel: HubPort) -> None:
        self._kernel = kernel

    def open(self, queue: AmqpQueue) -> None:
        """Make its topic, or take one of its name that has one partition. Raises KernelError, ChannelFault."""
        settings = TopicSettings(retention_ms=queue.settings.max_age_ms,
                                 retention_bytes=_at_least_one(queue.settings.max_bytes))
        tenant = queue.vhost.name
        try:
            self._kernel.create_topic(queue.name, partitions=1, settings=settings, tenant=tenant)
            queue.stream = StreamPlace(queue.name, 0, True)
        except TopicExists:
            topic = self._kernel.topic(queue.name, tenant)
            if topic is None or topic.partitions != 1:
                raise precondition(f"{queue.where}: there is a topic of this name with several partitions; read them "
                                   f"as '{queue.name}-0' and so on") from None
            queue.stream = StreamPlace(queue.name, 0, False)

    def change(self, queue: AmqpQueue) -> None:
        """What it keeps now, if its topic is its own. Raises Stopping."""
        topic = self._topic(queue)
        if topic is None or queue.stream is None or not queue.stream.is_made:
            return
        settings = replace(topic.settings, retention_ms=queue.settings.max_age_ms,
                           retention_bytes=_at_least_one(queue.settings.max_bytes))
        if settings != topic.settings:
            self._kernel.change_topic(topic.name, settings=settings, tenant=queue.vhost.name)

    def drop(self, queue: AmqpQueue) -> None:
        """A stream is deleted: with its topic, where it has made that."""
        stream = queue.stream
        if stream is not None and stream.is_made and self._topic(queue) is not None:
            self._kernel.delete_topic(stream.topic, tenant=queue.vhost.name)

    def partition(self, vhost: VirtualHost, name: str) -> AmqpQueue | None:
        """The partition of a topic that is called so, as a stream that is consumed from and nothing else."""
        match = PARTITION_NAME.fullmatch(name)
        topic = None if match is None else self._kernel.topic(match[1], vhost.name)
        if match is None or topic is None or int(match[2]) >= topic.partitions:
            return None
        queue = AmqpQueue(vhost, name, durable=True, auto_delete=False, owner=None,
                          arguments={"x-queue-type": text("stream")})
        queue.stream = StreamPlace(topic.name, int(match[2]), False)
        return queue

    def _topic(self, queue: AmqpQueue) -> Topic | None:
        stream = queue.stream
        return None if stream is None else self._kernel.topic(stream.topic, queue.vhost.name)

    def partition_id(self, queue: AmqpQueue) -> int | None:
        """None where its topic has gone."""
        topic = self._topic(queue)
        if topic is None or queue.stream is None or queue.stream.partition >= topic.partitions:
            return None
        return topic.partition_id(queue.stream.partition)

    def length(self, queue: AmqpQueue) -> int:
        """How many messages it has."""
        partition_id = self.partition_id(queue)
        if partition_id is None:
            return 0
        start, end = self._kernel.bounds(partition_id)
        return end - start


class StreamConsumer(Consumer):
    """One basic.consume of a stream."""

    def __init__(self, channel: Channel, queue: AmqpQueue, tag: str, start: Start, wanted: StreamFilter | None, *,
                 no_ack: bool, limit: int) -> None:
        """Raises AmqpError."""
        if not limit:                          # first, as in RabbitMQ: this ends the channel alone
            raise precondition(f"consumer prefetch count is not set for '{queue.where}'")
        if no_ack:
            raise not_of_streams("automatic acknowledgement", queue)
        super().__init__(channel, queue, tag, no_ack=False, exclusive=False, limit=limit)
        connection = channel.connection
        self._kernel = connection.services.kernel
        self._guard = connection.guard
        self._streams = connection.broker.queues.streams
        self._start = start
        self._wanted = wanted
        self._in_vain = 0                      # reads in a row of which nothing was wanted
        self._partition_id: int | None = None  # of the topic that was there when it began
        self._position = -1                    # of what is read next; -1: not known yet
        self._ahead: list[Leased] = []         # read, and not delivered
        self._running = False
        self._reading = False
        self._pumping = False
        self._watch = 0

    def settle(self, how: str, handles: list[Handle], *, at_once: bool = False) -> None:
        """There is room for more; the stream stays as it is."""

    def read(self, handles: list[Handle], on_read: Callable[[list[Leased] | None], None]) -> None:
        on_read([])

    def reject_read(self, handles: list[Handle], messages: list[Leased]) -> None:
        self.settle("reject", handles)

    def side_of(self, leased: Leased) -> bytes:
        side = self.channel.connection.broker.queues.side_of(self.queue, leased)
        return mapping.with_header(side, OFFSET, Field("l", leased[1]))

    # ---- begun and ended

    def attach(self) -> None:
        """Find where it begins, and go on from there."""
        self._running = True
        partition_id = self._partition_id = self._streams.partition_id(self.queue)
        if partition_id is None:
            self.on_gone()
            return
        start, end = self._kernel.bounds(partition_id)
        if self._start.time_ms >= 0:
            self._reading = True
            self._kernel.offset_for_time(partition_id, self._start.time_ms, self._found_time)
            return
        places = {"first": start, "last": max(start, end - 1), "next": end, "": min(self._start.offset, end)}
        self._position = places[self._start.edge]
        self.top_up()

    def _found_time(self, offset: int | None, timestamp_ms: int) -> None:
        self._reading = False
        partition_id = self._streams.partition_id(self.queue)
        if partition_id is not None:
            self._position = self._kernel.bounds(partition_id)[1] if offset is None else offset
            self.top_up()

    def detach(self) -> None:
        """Deliver nothing more."""
        self._running = False
        self._ahead = []
        self._unwatch()

    def on_gone(self) -> None:
        self.detach()
        super().on_gone()

    def _unwatch(self) -> None:
        if self._watch:
            self._guard.unwatch(self._watch)
            self._watch = 0

    # ---- delivering

    def top_up(self) -> None:
        """Deliver as much as there is room for."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._step():
                pass
        finally:
            self._pumping = False

    def _step(self) -> bool:
        """Whether there may be something more to do now."""
        room = self.room()
        if not self._running or self._reading or room <= 0:
            return False
        if self._ahead:
            messages, self._ahead = self._ahead[:room], self._ahead[room:]
            self.on_leased(messages)
            return True
        partition_id = self._partition_id
        if partition_id is None or self._streams.partition_id(self.queue) != partition_id:     # perhaps one of its name
            self.on_gone()
            return False
        start, end = self._kernel.bounds(partition_id)
        self._position = max(self._position, start)
        if self._position >= end:
            self._unwatch()
            self._watch = self._guard.watch([partition_id], self._wake)
            return False
        self._reading = True
        wants = [(partition_id, self._position, READ_BYTES)]
        self._kernel.fetch_private(wants, READ_BYTES, partial(self._read, partition_id))
        return not self._reading

    def _is_wanted(self, leased: Leased) -> bool:
        if self._wanted is None:
            return True
        side = self.channel.connection.broker.queues.side_of(self.queue, leased)
        try:
            return self._wanted.takes(properties.traits(side[codec.names_end(side):]).headers)
        except SyntaxFault:                    # headers that cannot be read say nothing
            return self._wanted.unfiltered

    def _wake(self) -> None:
        self._watch = 0
        self.top_up()

    def _read(self, partition_id: int, answers: list[Fetched]) -> None:
        self._reading = False
        answer = answers[0]
        if isinstance(answer.error, OffsetOutOfRange):
            self._position = max(self._position, self._kernel.bounds(partition_id)[0])
        elif answer.error is not None:
            self.on_gone()
            return
        for piece in answer.pieces:
            for offset, timestamp_ms, key, value, headers, attributes, message_id in sound_records(piece):
                leased: Leased = ((partition_id, 0, ""), offset, 1, message_id, timestamp_ms, key, value,
                                  encode_headers(headers), attributes)
                if offset >= self._position and self._is_wanted(leased):
                    self._ahead.append(leased)
            self._position = max(self._position, piece.first_offset + piece.count)
        if not answer.pieces and answer.error is None:         # nothing is there: damaged, or compacted
            self._position = max(self._position + 1, answer.next_offset)
        self._in_vain = 0 if self._ahead else self._in_vain + 1
        if self._in_vain % LOOKED_AT == LOOKED_AT - 1:
            self._kernel.append([], self, None)            # as soon as it is told
        else:
            self.top_up()

    def on_stored(self, stored: list[Stored]) -> None:
        """Others have had their turn."""
        self._in_vain += 1
        self.top_up()

    def on_leased(self, messages: list[Leased]) -> None:
        """Each says its offset in its headers, so none is like the one before."""
        channel = self.channel
        connection = channel.connection
        first = channel.unacked.add(self, [message[:3] for message in messages])
        self.out += len(messages)
        frames = b"".join([
            codec.encode_deliveries(channel.raw, self.raw_tag, first + number, connection.body_max, [message],
                                    self.side_of) for number, message in enumerate(messages)])
        connection.write(frames)
        connection.handed_out(len(messages), len(frames), self.queue.name)
        self._size_bytes = len(frames) // len(messages)


def place_copies(guard: Guard, queues: list[AmqpQueue]) -> list[int]:
    """Where copies of a message go that enters these streams beside its own topic. Raises KernelError."""
    return [guard.place_bound(queue.stream.topic, queue.stream.partition) for queue in queues
            if queue.stream is not None]
