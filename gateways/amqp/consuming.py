"""Who gets messages of a queue on one channel: consumers with their prefetch, and basic.get; and what they have not
acknowledged yet.

A consumer says how many messages it has `room` for and is handed them once per flush; they become one write. A
delivery that needs an acknowledgement stays with the channel until it is settled: acknowledged, given back, refused.
It has a tag; tags count up from 1 for the life of the channel. What one flush brought to one consumer is one run of
them: acknowledging all up to a tag releases whole runs, and only single acknowledgements look inside one.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from gatehouse.gateways.amqp import codec, mapping
from gatehouse.gateways.amqp.methods import encode_method
from gatehouse.gateways.amqp.tables import Field
from gatehouse.kernel.groups.members import HoldLimit
from gatehouse.kernel.message import DOOR_MASK, Handle
from gatehouse.tracing.context import HEADER as TRACEPARENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from gatehouse.gateways.amqp.channels import Channel
    from gatehouse.gateways.amqp.vhost import AmqpQueue
    from gatehouse.kernel.api import LeasedGroupPort, MembershipPort
    from gatehouse.kernel.message import Leased

UNACKNOWLEDGED_MAX: Final = 1 << 16
"""Deliveries of one channel that may await acknowledgement where the client set no prefetch: more wait in the queue."""

DELIVERY_COUNT: Final = "x-delivery-count"
"""The header that says how often a message of a queue with a delivery limit has come back."""

ROUND_MIN: Final = 16                  # deliveries of the first flush to a consumer, before their size is known
ROUND_MAX: Final = 8192                # and of any later one
UNKNOWN_BYTES: Final = 1 << 30         # where bytes are limited the first delivery comes alone: its size is known then

S = TypeVar("S")
"""Who the deliveries went to."""

Open = Handle | None
"""None: acknowledged already."""


class Origin(ABC):
    """Where deliveries of a channel came from."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.out = 0                           # deliveries that await their acknowledgement

    def note_out(self, by: int) -> None:
        """So many more, or fewer, await it."""
        self.out += by

    @abstractmethod
    def settle(self, how: str, handles: list[Handle], *, at_once: bool = False) -> None:
        """What became of these: `ack`, `release` or `reject`. `at_once`: in the frame that is being filled."""

    def read(self, handles: list[Handle], on_read: Callable[[list[Leased] | None], None]) -> None:
        """Read these, as they are to be rejected; None where that cannot be. What is no queue has nothing to read."""
        on_read([])

    def reject_read(self, handles: list[Handle], messages: list[Leased]) -> None:
        """Reject these, which were read, in the frame that is being filled."""
        self.settle("reject", handles, at_once=True)


class ConsumerSource(Origin):
    """A queue: what settling its deliveries needs."""

    def __init__(self, channel: Channel, queue: AmqpQueue, timeout_ms: int | None = None) -> None:
        super().__init__(channel)
        self.queue = queue
        self._timeout_ms = timeout_ms          # its own, for its deliveries
        self._group: LeasedGroupPort | None = None     # whose messages it was given

    def settle(self, how: str, handles: list[Handle], *, at_once: bool = False) -> None:
        broker = self.channel.connection.broker
        queues = broker.queues
        if how == "ack":
            broker.totals.acknowledged += len(handles)
            if self._group is not None:
                self._group.ack(handles, lazily=not at_once)
        elif how == "release":
            broker.totals.given_back += len(handles)
            queues.release(self.queue, handles)
        else:
            queues.reject(self.queue, handles)

    def read(self, handles: list[Handle], on_read: Callable[[list[Leased] | None], None]) -> None:
        self.channel.connection.broker.queues.read_leased(self.queue, handles, on_read)

    def reject_read(self, handles: list[Handle], messages: list[Leased]) -> None:
        self.channel.connection.broker.queues.reject_read(self.queue, handles, messages)

    def hold_limit(self) -> HoldLimit | None:
        """How long a delivery may be without an acknowledgement: as the consumer says, its queue, or the
        hub."""
        own_ms = self.queue.settings.consumer_timeout_ms if self._timeout_ms is None else self._timeout_ms
        timeout_ms = self.channel.connection.consumer_timeout_ms if own_ms is None else own_ms
        return HoldLimit(timeout_ms, partial(self.channel.on_overdue, timeout_ms)) if timeout_ms else None

    def side_of(self, leased: Leased) -> bytes:
        """Exchange, routing key and properties that the client sees, as bytes."""
        headers = leased[7]
        is_plain = leased[8] & DOOR_MASK == codec.DOOR and headers.find(TRACEPARENT) < 0
        side = codec.own_side(headers) if is_plain else b""
        side = side or self.channel.connection.broker.queues.side_of(self.queue, leased)
        if leased[2] < 2 or self.queue.settings.delivery_limit is None:
            return side
        return mapping.with_header(side, DELIVERY_COUNT, Field("l", leased[2] - 1))


class Got(ConsumerSource):
    """One basic.get, which no limit of consumers counts."""

    def __init__(self, channel: Channel, queue: AmqpQueue, *, no_ack: bool) -> None:
        super().__init__(channel, queue)
        self._no_ack = no_ack
        self._reply = channel.reply_when_stored(b"")

    def begin(self) -> None:
        """Ask for a message, as soon as limits let one out; the answer goes to the client in its turn. Raises
        ConnectionFault 540 for streams."""
        connection = self.channel.connection
        if connection.guard.limits_out and not self.queue.settings.is_stream and not connection.out_room():
            self.channel.hold_get(self)
            return
        hold = None if self._no_ack else self.hold_limit()
        connection.broker.queues.take(self.queue, self._answer, hold, connection.guard.origin)

    def on_gone(self) -> None:
        """The right to the queue is gone while this was held."""
        self._answer(None)

    def drop(self) -> None:
        """It is not to be answered: the channel ends."""
        self.channel.drop_reply(self._reply)

    def _answer(self, leased: Leased | None) -> None:
        channel = self.channel
        broker = channel.connection.broker
        if leased is None:
            broker.totals.got_nothing += 1
            self._reply[0] = codec.frame(codec.METHOD, channel.number, encode_method("basic.get-empty"))
        elif channel.closing:
            broker.queues.release(self.queue, [leased[:3]])
        else:
            tag = self._tag_of(leased)
            self._reply[0] = encode_get_ok(self, tag, leased, broker.queues.ready(self.queue))
            channel.connection.handed_out(1, len(self._reply[0]), self.queue.name)
        channel.release_replies(self._reply)

    def _tag_of(self, leased: Leased) -> int:
        """The delivery tag of a message that awaits its acknowledgement, or has it by that."""
        channel, broker = self.channel, self.channel.connection.broker
        if self._no_ack:
            broker.totals.got_auto += 1
            broker.queues.ack(self.queue, [leased[:3]])
            return channel.unacked.give_tags(1)
        broker.totals.got_manual += 1
        self._group = broker.queues.group_of(self.queue)
        tag = channel.unacked.add(self, [leased[:3]])
        self.note_out(1)
        return tag

    def note_out(self, by: int) -> None:
        self.out += by
        self.channel.note_got(by)


class Consumer(ConsumerSource):
    """One basic.consume; a member of its queue's group."""

    def __init__(self, channel: Channel, queue: AmqpQueue, tag: str, *, no_ack: bool, exclusive: bool,
                 limit: int, priority: int = 0, timeout_ms: int | None = None) -> None:
        super().__init__(channel, queue, timeout_ms)
        self.priority = priority
        self.tag = tag
        self.raw_tag = codec.short_string(tag)
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.limit = limit                     # deliveries without acknowledgement; 0: no limit of its own
        self._membership: MembershipPort | None = None         # while it is attached
        self._round = ROUND_MIN                # messages of one flush: as many as fit the bytes that may wait unsent
        self._size_bytes = UNKNOWN_BYTES       # of one delivery, about

    @property
    def is_attached(self) -> bool:
        """Whether it is handed messages."""
        return self._membership is not None

    # decision 61: a consumer is a member of the queue's own group
    def attach(self) -> None:
        """Be handed messages from now on, as many as there is room for, once per flush."""
        connection = self.channel.connection
        group = self._group = connection.broker.queues.group_of(self.queue)
        budget = None if self.no_ack else self.channel.budget
        self._membership = group.join(self, 0, keeps=not self.no_ack, budget=budget, lazily=True,
                                      hold=self.hold_limit(), priority=self.priority, taker=connection.guard.origin)
        self.top_up()

    def detach(self) -> None:
        """Be given no more messages; what was handed over stays with the channel."""
        membership, self._membership = self._membership, None
        if membership is not None:
            membership.retire()

    def top_up(self) -> None:
        """Its room has changed: it may be given more messages, or fewer."""
        membership = self._membership
        if membership is not None:
            membership.add_credit(self.room() - membership.untold - membership.credit)

    def room(self) -> int:
        """How many messages it may be given now; the channel's own limit is its budget."""
        if not self.channel.may_deliver():
            return 0
        connection = self.channel.connection
        most = self._round
        if connection.guard.limits_out:
            most = min(most, connection.out_room(self._size_bytes))
        if self.no_ack:
            return 0 if self.channel.is_full else most
        return most if self.limit == 0 else min(most, self.limit - self.out)

    def on_leased(self, messages: list[Leased]) -> None:
        """Messages for this consumer, in order. Called once per flush at most."""
        channel = self.channel
        connection = channel.connection
        if self.no_ack:
            first = channel.unacked.give_tags(len(messages))
            connection.broker.totals.consumed_auto += len(messages)
        else:
            first = channel.unacked.add(self, [message[:3] for message in messages])
            self.out += len(messages)
            connection.broker.totals.consumed_manual += len(messages)
        frames = codec.encode_deliveries(channel.raw, self.raw_tag, first, connection.body_max, messages, self.side_of)
        if not channel.closing:                # what it was handed before goes back with all that it holds
            connection.write(frames)
        connection.handed_out(len(messages), len(frames), self.queue.name)
        self._size_bytes = len(frames) // len(messages)
        self._round = min(max(connection.unsent_max // self._size_bytes, 1), ROUND_MAX)
        if not self.no_ack and channel.is_full:
            channel.hold_others()
        self.top_up()

    def on_gone(self) -> None:
        """The consumer ends: its queue is gone, or the right to it. The client is told if it wants that (RabbitMQ's
        extension consumer_cancel_notify)."""
        channel = self.channel
        self._membership = None
        channel.consumers.pop(self.tag, None)
        if channel.connection.wants_cancels:
            channel.reply(encode_method("basic.cancel", consumer_tag=self.tag, no_wait=True))


def encode_get_ok(source: ConsumerSource, tag: int, leased: Leased, left: int) -> bytes:
    """basic.get-ok with its content. `left`: messages that are ready after this one."""
    side, body, redelivered = source.side_of(leased), leased[6] or b"", leased[2] > 1
    split = codec.names_end(side)
    channel = source.channel
    method = (b"\0\x3c\0\x47" + tag.to_bytes(8, "big") + bytes((redelivered,)) + side[:split]
              + min(left, 0xFFFFFFFF).to_bytes(4, "big"))
    return (codec.frame(codec.METHOD, channel.number, method)
            + codec.encode_content(channel.raw, side[split:], body, channel.connection.body_max))


class Run(Generic[S]):
    """Deliveries of one source, with consecutive tags."""

    def __init__(self, first: int, source: S, handles: list[Open]) -> None:
        self.first: int = first
        self.source: S = source
        self.handles: list[Open] = handles
        self.open: int = len(handles)


class Unacked(Generic[S]):
    """Deliveries of one channel that await their acknowledgement."""

    def __init__(self) -> None:
        self.next_tag: int = 1
        self.count: int = 0
        self._runs: list[Run[S]] = []

    def give_tags(self, count: int) -> int:
        """Tags for deliveries that need no acknowledgement; returns the first."""
        first = self.next_tag
        self.next_tag = first + count
        return first

    def add(self, source: S, handles: list[Handle]) -> int:
        """Give tags to deliveries; returns the first."""
        first = self.give_tags(len(handles))
        self._runs.append(Run(first, source, [*handles]))
        self.count += len(handles)
        return first

    def take(self, tag: int) -> tuple[S, list[Handle]] | None:
        """The one delivery of this tag, which is no longer awaited; None if it is not."""
        at = bisect_right(self._runs, tag, key=_first) - 1
        if at < 0:
            return None
        run = self._runs[at]
        index = tag - run.first
        handle = run.handles[index] if index < len(run.handles) else None
        if handle is None:
            return None
        run.handles[index] = None
        run.open -= 1
        self.count -= 1
        if run.open == 0:
            del self._runs[at]
        return run.source, [handle]

    def take_through(self, tag: int) -> list[tuple[S, list[Handle]]]:
        """Every delivery up to and with this tag, in order; nothing if this tag itself is not awaited."""
        at = bisect_right(self._runs, tag, key=_first) - 1
        if at < 0:
            return []
        last = self._runs[at]
        index = tag - last.first
        if index >= len(last.handles) or last.handles[index] is None:
            return []
        taken = [(run.source, _open(run.handles)) for run in self._runs[:at]]
        taken.append((last.source, _open(last.handles[:index + 1])))
        del last.handles[:index + 1]
        last.first += index + 1
        last.open = len(last.handles) - last.handles.count(None)
        del self._runs[:at if last.open else at + 1]
        self.count -= sum(len(handles) for _, handles in taken)
        return taken

    def take_runs(self, tag: int, multiple: bool) -> list[Run[S]]:
        """What `take`, `take_through` and (for tag 0 with `multiple`) `take_all` take, for `put_back`."""
        if not multiple:
            taken = self.take(tag)
            return [] if taken is None else [Run(tag, taken[0], [*taken[1]])]
        at = len(self._runs) if tag == 0 else max(bisect_right(self._runs, tag, key=_first), 1)
        before = [(run, run.first, [*run.handles]) for run in self._runs[:at]]
        if tag == 0:
            self.take_all()
        elif not self.take_through(tag):
            return []
        runs: list[Run[S]] = []
        for run, first, handles in before:
            if tag:
                handles = handles[:tag - first + 1]
            taken_run = Run(first, run.source, handles)
            taken_run.open = len(handles) - handles.count(None)
            runs.append(taken_run)
        return runs

    def put_back(self, runs: list[Run[S]]) -> None:
        """These were not settled: they await their acknowledgement again."""
        awaited = [(run.first + at, run.source, handle) for run in [*self._runs, *runs]
                   for at, handle in enumerate(run.handles) if handle is not None]
        awaited.sort(key=_tag)
        self._runs = []
        self.count = len(awaited)
        for tag, source, handle in awaited:
            last = self._runs[-1] if self._runs else None
            if last is not None and last.source is source and last.first + len(last.handles) == tag:
                last.handles.append(handle)
                last.open += 1
            else:
                self._runs.append(Run(tag, source, [handle]))

    def take_all(self) -> list[tuple[S, list[Handle]]]:
        taken = [(run.source, _open(run.handles)) for run in self._runs]
        self._runs = []
        self.count = 0
        return taken


def _first(run: Run[S]) -> int:
    return run.first


def _tag(awaited: tuple[int, S, Handle]) -> int:
    return awaited[0]


def _open(handles: list[Open]) -> list[Handle]:
    return [handle for handle in handles if handle is not None]
