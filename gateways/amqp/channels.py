"""The channels of one connection, and what each does: its methods in the order they came, its deliveries, its end.

Rules kept here: what the client asked before is done before (publishes are appended, acknowledgements applied, then the
next method), and what one turn of reading asked is done together; replies leave in the order of the requests, a durable
change's once it is durable, and any once what was acknowledged before it is. A refused channel (channel.close) is not
listened to until the client has agreed (channel.close-ok) or closes it itself.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.amqp import codec
from gatehouse.gateways.amqp.arguments import (
    OF_CONSUMERS,
    OF_STREAM_CONSUMERS,
    check_consumer_arguments,
    queue_type,
    read_consumer_timeout,
    read_priority,
    unknown,
)
from gatehouse.gateways.amqp.asked import UNKNOWN
from gatehouse.gateways.amqp.consuming import UNACKNOWLEDGED_MAX, Consumer, Got, Origin, Unacked
from gatehouse.gateways.amqp.definitions import Definitions
from gatehouse.gateways.amqp.direct_reply import NAMED, REPLY_TO, ReplyConsumer
from gatehouse.gateways.amqp.errors import NO_METHOD, AmqpError, ChannelFault, ConnectionFault, precondition, refused
from gatehouse.gateways.amqp.methods import IDS, Arguments, decode_method, encode_method, start_of
from gatehouse.gateways.amqp.publishing import Publishing
from gatehouse.gateways.amqp.recalling import TOLD, DelayListener
from gatehouse.gateways.amqp.rights import READ
from gatehouse.gateways.amqp.streams import StreamConsumer, read_filter, read_start
from gatehouse.gateways.amqp.transacting import TXN, CheckListener
from gatehouse.gateways.amqp.tx import Tx
from gatehouse.gateways.amqp.vhost import RESERVED
from gatehouse.kernel.groups.members import Budget
from gatehouse.kernel.groups.sharing import SHARE

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.session import AmqpSession
    from gatehouse.gateways.amqp.tables import Table
    from gatehouse.gateways.amqp.telling import NoticeConsumer
    from gatehouse.gateways.amqp.vhost import AmqpQueue
    from gatehouse.kernel.message import Handle, Stored

FRAME_ERROR: Final = 501
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
OPEN: Final = start_of("channel.open")
CLOSE: Final = start_of("channel.close")
CLOSE_OK: Final = start_of("channel.close-ok")
CONTENT_BYTES_MAX: Final = 64 << 20    # of contents that have begun on all channels of a connection
CONSUMERS_MAX: Final = 10_000          # of one channel
WAITING_REPLIES_MAX: Final = 10_000    # requests of one channel whose answers wait for the disk


class Channels:
    """All of one connection: opened, fed, refused, closed."""

    def __init__(self, connection: AmqpSession) -> None:
        self.channel_max = 0
        self.open: dict[bytes, Channel] = {}
        """The channels that the hub listens to, by their number in two bytes."""

        self.tx_bytes = 0
        """Of publishes that wait for a commit, on all of them."""

        self._connection = connection
        self._content_bytes = 0                            # of contents that have begun and are not whole
        self._by_number: dict[int, Channel] = {}           # and those that were refused
        self._unfinished: dict[Channel, None] = {}

    def limit(self, channel_max: int) -> None:
        """How many channels there may be, as it was agreed."""
        self.channel_max = channel_max

    def keep_tx(self, size_bytes: int) -> None:
        """So much more of publishes waits for a commit; less where it is negative."""
        self.tx_bytes += size_bytes

    def has_tx(self, raw: bytes) -> bool:
        """Whether the channel of this number in two bytes has transactions."""
        channel = self.open.get(raw)
        return channel is not None and channel.tx is not None

    def __iter__(self) -> Iterator[Channel]:
        return iter([*self._by_number.values()])

    # ---- frames

    def take_frame(self, kind: int, number: int, payload: bytes) -> None:
        """One whole frame. Raises AmqpError for what ends the connection."""
        channel = self._by_number.get(number)
        if channel is None:
            self._open(kind, number, payload)
        elif channel.closing:
            if kind == codec.METHOD and payload[:4] in (CLOSE, CLOSE_OK):
                self._drop(channel)
                if payload[:4] == CLOSE:
                    channel.reply(encode_method("channel.close-ok"))
        else:
            try:
                self._take(channel, kind, payload)
            except ChannelFault as error:
                self.refuse(channel, error)

    def _take(self, channel: Channel, kind: int, payload: bytes) -> None:
        if kind == codec.METHOD:
            self._take_method(channel, payload)
        elif kind == codec.HEADER:
            channel.publishing.take_header(payload)
        elif kind == codec.BODY:
            channel.publishing.take_body(payload)
        else:
            raise ConnectionFault(FRAME_ERROR, f"a frame of the unknown type {kind}")
        if channel.publishing.pending:
            self._unfinished[channel] = None

    def _take_method(self, channel: Channel, payload: bytes) -> None:
        name, arguments = decode_method(payload)
        try:
            if name == "channel.close":
                self.finish_turn()
                self._connection.guard.settle()
                channel.hold_answers()
                channel.end()
                self._drop(channel)
                channel.reply(encode_method("channel.close-ok"))
            elif name == "channel.open":
                raise ConnectionFault(CHANNEL_ERROR, "second 'channel.open' seen")
            else:
                channel.take_method(name, arguments, payload)
        except AmqpError as error:
            error.method = error.method if any(error.method) else IDS[name]
            raise

    def take_acks(self, channel: Channel, tags: list[int]) -> None:
        """A burst of acknowledgements, negative tags standing for all before them too."""
        try:
            channel.ack_many(tags)
        except ChannelFault as error:
            error.method = IDS["basic.ack"]
            self.refuse(channel, error)

    # ---- what is put together

    def reserve(self, size: int) -> None:
        """A content of this size is on its way. Raises ConnectionFault 506 where too much is."""
        self._content_bytes += size
        if self._content_bytes > max(CONTENT_BYTES_MAX, self._connection.message_bytes_max):
            raise ConnectionFault(RESOURCE_ERROR, f"contents of more than {CONTENT_BYTES_MAX} bytes begun at once")

    def note_part(self, size: int) -> None:  # decision 231
        """A part of a content has come, and waits for the rest. Raises ConnectionFault 506 where the connections of
        this door have too much of that together."""
        broker = self._connection.broker
        broker.note_begun(size)
        if broker.begun_bytes > broker.begun_bytes_max:
            raise ConnectionFault(RESOURCE_ERROR, f"contents of more than {broker.begun_bytes_max} bytes begun at once "
                                                  "by all connections")

    def release(self, size: int, parts: int) -> None:
        """A content of this size, for which `reserve` was called, is whole or was dropped; `parts`: what had come."""
        self._content_bytes -= size
        self._connection.broker.note_begun(-parts)

    # ---- the end of a turn

    def note_unfinished(self, channel: Channel) -> None:
        """Remember a channel that has something to append or settle at the end of the turn."""
        self._unfinished[channel] = None

    def finish_turn(self) -> None:
        """Append and settle what the frames so far asked for. Raises AmqpError for what ends the connection."""
        while self._unfinished:
            channel = next(iter(self._unfinished))         # in the order they began: Spring publishes by many channels
            del self._unfinished[channel]
            try:
                channel.finish_turn()
            except ChannelFault as error:
                self.refuse(channel, error)

    def hold_answers(self) -> bool:
        """As each channel does. Whether any answer waits."""
        waiting = [channel.hold_answers() for channel in self]         # each of them, whatever the first says
        return any(waiting)

    # ---- opening and closing

    def _open(self, kind: int, number: int, payload: bytes) -> None:
        if kind != codec.METHOD or payload[:4] != OPEN:
            if payload[:4] == CLOSE_OK:
                return
            fault = ConnectionFault(CHANNEL_ERROR, "expected 'channel.open'")
            if kind == codec.METHOD:
                fault.method = int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")
            raise fault
        if len(self._by_number) >= self.channel_max:  # decision 325
            raise ConnectionFault(NOT_ALLOWED, f"number of channels opened ({len(self._by_number)}) has reached the "
                                               f"negotiated channel_max ({self.channel_max})")
        channel = self._by_number[number] = Channel(number, self._connection)
        self.open[channel.raw] = channel
        channel.reply(encode_method("channel.open-ok"))

    def refuse(self, channel: Channel, error: ChannelFault) -> None:
        """The channel is closed; what it had asked for before stands."""
        if self.open.get(channel.raw) is not channel:      # there may be another of its number by now
            return
        del self.open[channel.raw]
        self._unfinished[channel] = None
        self.finish_turn()
        self._connection.guard.settle()        # what is refused of that is told before another has its number
        self._connection.count(f"channel_{error.code}")
        channel.refuse(error)

    def _drop(self, channel: Channel) -> None:
        del self._by_number[channel.number]
        self.open.pop(channel.raw, None)

    def wake(self) -> None:
        """Deliver more on every channel: the client takes more."""
        for channel in self:
            channel.wake()

    def check_rights(self) -> None:
        """Consumers whose right has gone end."""
        for channel in self:
            channel.check_rights()

    def describe(self) -> dict[str, Any]:
        """For people."""
        return {"subscriptions": sum([len(channel.consumers) for channel in self]),
                "channels": [channel.describe() for channel in self]}

    def end(self) -> None:
        """The connection has ended. Idempotent."""
        ended, self._by_number, self.open, self._unfinished = self._by_number, {}, {}, {}
        for channel in ended.values():
            channel.end()


class Channel:
    """One of them: what it was asked, has published and was given."""

    def __init__(self, number: int, connection: AmqpSession) -> None:
        self.number = number
        self.raw = number.to_bytes(2, "big")
        self.connection = connection
        connection.broker.totals.channels_opened += 1
        self.publishing = Publishing(self, confirms=False)
        self._unconfirmed: Publishing | None = None        # of before confirm.select: its numbers are never told
        self.consumers: dict[str, Consumer] = {}
        self.listeners: dict[str, NoticeConsumer] = {}           # consumers of what is told, of transactions and delays
        self.reply_consumer: ReplyConsumer | None = None        # who gets answers that pass no queue
        self.tx: Tx | None = None              # from tx.select on
        self.unacked: Unacked[Origin] = Unacked()
        self.budget = Budget(UNACKNOWLEDGED_MAX)           # what its consumers may be given together
        self.got_out = 0                       # deliveries of basic.get that await their acknowledgement
        self._served_first = 0                 # the consumer that is asked first whether it has room
        self.closing = False                   # refused; only channel.close and channel.close-ok are listened to
        self._limit = 0                        # of the whole channel; 0: none
        self._consumer_limit = 0               # of consumers to come
        self._last_queue = ""
        self._replies: deque[list[Any]] = deque()      # [bytes, whether it may leave, what then], the first may not
        self._has_acked = False                # something that no answer waits for, and may not be on the disk
        self._settling: dict[tuple[str, Origin], list[Handle]] = {}
        self._definitions = Definitions(self)
        self._methods: dict[str, Callable[[Arguments], None]] = {
            "channel.flow": self._flow, "access.request": self._give_ticket, "basic.qos": self._qos,
            "basic.consume": self._consume, "basic.cancel": self._cancel, "basic.get": self._get,
            "basic.recover": self._recover, "basic.recover-async": self._recover_async,
            "confirm.select": self._select_confirms, "tx.select": self._select_tx, "tx.commit": self._commit,
            "tx.rollback": self._roll_back, **self._definitions.methods}

    # ---- methods

    def note_got(self, by: int) -> None:
        """So many more of what it was given one by one await their acknowledgement; fewer where it is negative. The
        budget is as it was: these are not in it."""
        self.got_out += by

    def take_method(self, name: str, arguments: Arguments, payload: bytes) -> None:
        """Anything but open and close. Raises AmqpError."""
        publishing = self.publishing
        publishing.check_no_content()
        if name == "basic.publish":
            publishing.begin(payload, arguments)
        elif name == "basic.ack":
            self._settle("ack", arguments["delivery_tag"], arguments["multiple"])
        elif name == "basic.nack":
            how = "release" if arguments["requeue"] else "reject"
            self._settle(how, arguments["delivery_tag"], arguments["multiple"])
        elif name == "basic.reject":
            self._settle("release" if arguments["requeue"] else "reject", arguments["delivery_tag"], False)
        else:
            method = self._methods.get(name)
            if method is None:
                raise ConnectionFault(COMMAND_INVALID, "unimplemented method")
            self.connection.channels.finish_turn()
            self.connection.guard.settle()         # whatever this is comes after what was gathered
            self.hold_answers()
            method(arguments)

    def hold_answers(self) -> bool:  # decision 339
        """What is answered from here on leaves once all that was acknowledged before is on the disk. Whether there was
        any that may not be."""
        if self._has_acked:
            self._has_acked = False
            self.connection.broker.queues.when_acked(self, self.reply_when_stored(b""))
        return bool(self._replies)

    def on_stored(self, stored: list[Stored]) -> None:
        """What was acknowledged is on the disk, or never will be."""
        for answer in stored:
            if answer.error is not None:
                self.connection.fail(ConnectionFault(RESOURCE_ERROR, str(answer.error)))
            waiting: Any = answer.token
            self.release_replies(waiting)

    def reply(self, payload: bytes, then: Callable[[], None] | None = None) -> None:
        """Send a method to the client, after the answers to everything that was asked before; `then` is called when it
        has left."""
        frame = codec.frame(codec.METHOD, self.number, payload)
        if self._replies:
            self._replies.append([frame, True, then])
            return
        self.connection.write(frame)
        if then is not None:
            then()

    def reply_when_stored(self, payload: bytes) -> list[Any]:
        """Send a method to the client in its turn, but only once `release_replies` is called with what this returns."""
        if len(self._replies) >= WAITING_REPLIES_MAX:
            raise ConnectionFault(RESOURCE_ERROR, "too many requests before the answers to earlier ones")
        waiting = [codec.frame(codec.METHOD, self.number, payload) if payload else b"", False, None]
        self._replies.append(waiting)
        return waiting

    def release_replies(self, waiting: list[Any]) -> None:
        """This answer may leave, and with it those behind it that wait for nothing themselves."""
        waiting[1] = True
        out = []
        while self._replies and self._replies[0][1]:
            frame, _, then = self._replies.popleft()
            out.append(frame)
            if then is not None:
                self.connection.write(b"".join(out))
                out = []
                then()
        self.connection.write(b"".join(out))

    def drop_reply(self, waiting: list[Any]) -> None:
        """This answer is not to be given."""
        waiting[0] = b""
        self.release_replies(waiting)

    def fail(self, error: ChannelFault, method: str) -> None:
        """What was asked some time ago by this method came to nothing."""
        error.method = IDS.get(method, NO_METHOD)
        try:
            self.connection.channels.refuse(self, error)
        except AmqpError as fault:                         # what it had published before could not be taken
            self.connection.fail(fault)

    def fail_publish(self, error: AmqpError) -> None:
        """What was published some time ago cannot be taken."""
        try:
            if not isinstance(error, ChannelFault):
                raise error
            self.connection.channels.refuse(self, error)
        except AmqpError as fault:
            self.connection.fail(fault)

    # ---- settling deliveries

    def ack_many(self, tags: list[int]) -> None:
        """A burst of acknowledgements, negative tags standing for all before them too. Raises ChannelFault."""
        for tag in tags:
            self._settle("ack", abs(tag), tag < 0)

    def _settle(self, how: str, tag: int, multiple: bool) -> None:
        if self.tx is not None:
            if not self.tx.settle(how, tag, multiple) and (tag or not multiple):
                raise precondition(f"unknown delivery tag {tag}")
            return
        if multiple and tag == 0:
            taken = self.unacked.take_all()
        elif multiple:
            taken = self.unacked.take_through(tag)
        else:
            delivery = self.unacked.take(tag)
            taken = [] if delivery is None else [delivery]
        if not taken and tag:
            raise precondition(f"unknown delivery tag {tag}")
        if not taken and not multiple:
            raise precondition("unknown delivery tag 0")
        for source, handles in taken:
            source.note_out(-len(handles))
            settling = self._settling.get((how, source))
            if settling is None:
                self._settling[how, source] = list(handles)
            else:
                settling += handles
        self.connection.channels.note_unfinished(self)

    def finish_turn(self) -> None:
        """Append what was published and settle what was acknowledged since the last call. Raises AmqpError."""
        if self._settling:
            settling, self._settling = self._settling, {}
            for (how, source), handles in settling.items():
                self._has_acked |= how == "ack"
                source.settle(how, handles)
            self._wake_settled({source for _, source in settling})
        self.publishing.submit()

    def give_back(self) -> None:
        """Whatever awaits its acknowledgement is ready again."""
        for source, handles in self.unacked.take_all():
            source.note_out(-len(handles))
            source.settle("release", handles)

    @property
    def settled(self) -> bool:
        """Whether everything that was published on the channel has been answered."""
        return self.publishing.settled and (self._unconfirmed is None or self._unconfirmed.settled) \
            and (self.tx is None or self.tx.is_answered)

    def wake(self) -> None:
        """Deliver more messages and checks on this channel: its consumers and listeners may have room again."""
        self._note_budget()
        consumers = list(self.consumers.values())
        first = self._served_first = self._served_first + 1 if self._served_first < len(consumers) else 0
        for consumer in consumers[first:] + consumers[:first]:     # what they share is for each of them in turn
            consumer.top_up()
        for listener in self.listeners.values():
            listener.pump()

    def _wake_settled(self, settled: set[Origin]) -> None:
        """As `wake`, after deliveries of these were settled: where the channel had room, nobody else has more."""
        if self.budget.left <= 0 or self.listeners:
            self.wake()
            return
        self._note_budget()
        for source in settled:
            if isinstance(source, Consumer):
                source.top_up()

    @property
    def is_full(self) -> bool:
        """Whether the prefetch of the whole channel is used up: nobody is given more, also who acknowledges nothing, as
        in RabbitMQ."""
        return self._limit > 0 and self.budget.left <= 0

    def hold_others(self) -> None:
        """The channel has become full: consumers without acknowledgements are not in its budget."""
        for consumer in self.consumers.values():
            if consumer.no_ack:
                consumer.top_up()

    def _note_budget(self) -> None:
        held = 0 if self.tx is None else self.tx.held
        self.budget.set_left((self._limit or UNACKNOWLEDGED_MAX) - self.unacked.count - held + self.got_out)

    # ---- consuming

    def may_deliver(self) -> bool:
        return not self.closing and self.connection.may_deliver()

    def _flow(self, arguments: Arguments) -> None:
        if not arguments["active"]:
            raise ConnectionFault(NOT_IMPLEMENTED, "active=false")
        self.reply(encode_method("channel.flow-ok", active=True))

    def _give_ticket(self, _: Arguments) -> None:
        """0-8's way to ask for rights: granted, and worth nothing, as in RabbitMQ."""
        self.reply(encode_method("access.request-ok", ticket=1))

    def _qos(self, arguments: Arguments) -> None:
        if arguments["prefetch_size"]:
            raise ConnectionFault(NOT_IMPLEMENTED, f"prefetch_size!=0 ({arguments['prefetch_size']})")
        if arguments["global"]:
            self._limit = arguments["prefetch_count"]
            self.wake()
        else:
            self._consumer_limit = arguments["prefetch_count"]
        self.reply(encode_method("basic.qos-ok"))

    def _consume(self, arguments: Arguments) -> None:
        listens = arguments["queue"].startswith(TXN) or arguments["queue"] == TOLD
        answers = arguments["queue"] == REPLY_TO
        queue = None if listens or answers else self.source(arguments["queue"])
        tag = arguments["consumer_tag"] or self.connection.broker.new_name("amq.ctag-")
        if tag in self.consumers or tag in self.listeners or self.reply_consumer and self.reply_consumer.tag == tag:
            raise ConnectionFault(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
        if len(self.consumers) + len(self.listeners) >= CONSUMERS_MAX:
            raise ConnectionFault(NOT_ALLOWED, f"more than {CONSUMERS_MAX} consumers on a channel")
        if answers:
            self._await_replies(arguments, tag)
            return
        if queue is None:
            self._listen(arguments, tag)
            return
        table: Table = arguments["arguments"]
        check_consumer_arguments(table, queue.where, queue_type(queue.arguments))
        priority, timeout_ms = read_priority(table, queue.where), read_consumer_timeout(table, queue.where)
        if unknown(table, OF_CONSUMERS | OF_STREAM_CONSUMERS if queue.settings.is_stream else OF_CONSUMERS):
            self.connection.note_not_honoured(UNKNOWN)
        if arguments["no_local"]:
            self.connection.note_not_honoured("no_local")
        if queue.settings.is_stream:
            self._read_stream(arguments, queue, tag)
            return
        others = queue.consumers
        if arguments["exclusive"] and (others or queue.settings.single_active) or others and others[0].exclusive:
            raise refused(f"{queue.where} in exclusive use")
        consumer = Consumer(self, queue, tag, no_ack=arguments["no_ack"], exclusive=arguments["exclusive"],
                            limit=self._consumer_limit, priority=priority, timeout_ms=timeout_ms)
        self._begin(consumer, arguments["no_wait"])

    def _begin(self, consumer: Consumer, no_wait: bool) -> None:
        """Its deliveries come behind the answer."""
        self.consumers[consumer.tag] = consumer
        self.connection.broker.add_consumer(consumer)
        if no_wait:
            self._attach(consumer)
        else:
            self.reply(encode_method("basic.consume-ok", consumer_tag=consumer.tag), partial(self._attach, consumer))

    def _attach(self, consumer: Consumer) -> None:
        if self.consumers.get(consumer.tag) is consumer:
            consumer.attach()

    def _read_stream(self, arguments: Arguments, queue: AmqpQueue, tag: str) -> None:
        """Consumers of a stream do not know each other: there is no `exclusive`, as in RabbitMQ."""
        wall_ms = self.connection.services.wall_ms()
        table: Table = arguments["arguments"]
        consumer = StreamConsumer(self, queue, tag, read_start(table, queue.where, wall_ms),
                                  read_filter(table, queue.where), no_ack=arguments["no_ack"],
                                  limit=self._consumer_limit)
        self._begin(consumer, arguments["no_wait"])

    def _await_replies(self, arguments: Arguments, tag: str) -> None:
        if not arguments["no_ack"]:
            raise precondition("reply consumer cannot acknowledge")
        if self.reply_consumer is not None:
            raise precondition("reply consumer already set")
        broker = self.connection.broker
        self.reply_consumer = ReplyConsumer(self, tag, broker.new_name(NAMED))
        broker.replies.add(self.connection.vhost.name, self.reply_consumer)
        if not arguments["no_wait"]:
            self.reply(encode_method("basic.consume-ok", consumer_tag=tag))

    def _end_replies(self) -> None:
        if self.reply_consumer is not None:
            self.connection.broker.replies.remove(self.connection.vhost.name, self.reply_consumer)
            self.reply_consumer = None

    def _listen(self, arguments: Arguments, tag: str) -> None:
        name, no_ack = arguments["queue"], arguments["no_ack"]
        listener = DelayListener(self, name, tag, no_ack=no_ack) if name == TOLD \
            else CheckListener(self, name, tag, no_ack=no_ack, limit=self._consumer_limit)
        self.listeners[tag] = listener
        if arguments["no_wait"]:
            listener.join()
        else:
            self.reply(encode_method("basic.consume-ok", consumer_tag=tag), partial(self._join, listener))

    def _join(self, listener: NoticeConsumer) -> None:
        if self.listeners.get(listener.tag) is listener:
            listener.join()

    def _cancel(self, arguments: Arguments) -> None:
        tag = arguments["consumer_tag"]
        consumer = self.consumers.pop(tag, None)
        listener = self.listeners.pop(tag, None)
        if listener is not None:
            listener.leave()
        if self.reply_consumer is not None and self.reply_consumer.tag == tag:
            self._end_replies()
        if consumer is not None:                   # what it was handed and not told of yet goes before the answer
            self.connection.broker.remove_consumer(consumer)
        if not arguments["no_wait"]:
            self.reply(encode_method("basic.cancel-ok", consumer_tag=tag))

    def _get(self, arguments: Arguments) -> None:
        queue = self.source(arguments["queue"])
        if queue.settings.is_quorum and queue.settings.single_active:
            raise ChannelFault(405, f"cannot obtain access to locked {queue.where}. basic.get operations are not "
                                    "supported by quorum queues with single active consumer")
        Got(self, queue, no_ack=arguments["no_ack"]).begin()

    def _recover(self, arguments: Arguments) -> None:
        if not arguments["requeue"]:
            raise ConnectionFault(NOT_IMPLEMENTED, "requeue=false")
        self.give_back()
        self.wake()
        self.reply(encode_method("basic.recover-ok"))

    def _recover_async(self, arguments: Arguments) -> None:
        """As `_recover`, and nothing is answered."""
        if not arguments["requeue"]:
            raise ConnectionFault(NOT_IMPLEMENTED, "requeue=false")
        self.give_back()
        self.wake()

    def _select_confirms(self, arguments: Arguments) -> None:
        if self.tx is not None:
            raise precondition("cannot switch from tx to confirm mode")
        if not self.publishing.confirms:
            self._unconfirmed, self.publishing = self.publishing, Publishing(self, confirms=True)
        if not arguments["no_wait"]:
            self.reply(encode_method("confirm.select-ok"))

    def _select_tx(self, _: Arguments) -> None:
        if self.publishing.confirms:
            raise precondition("cannot switch from confirm to tx mode")
        if self.tx is None:
            self.tx = Tx(self)
        self.reply(encode_method("tx.select-ok"))

    def _commit(self, _: Arguments) -> None:
        self._require_tx().commit()

    def _roll_back(self, _: Arguments) -> None:
        self._require_tx().rollback()
        self.wake()
        self.reply(encode_method("tx.rollback-ok"))

    def _require_tx(self) -> Tx:
        if self.tx is None:
            raise precondition("channel is not transactional")
        return self.tx

    def on_confirmed(self, frames: bytes) -> None:
        if not self.closing:
            self.connection.write(frames)
        self.connection.on_settled()

    # ---- queues by name

    def source(self, name: str) -> AmqpQueue:
        """What to consume from: a queue, the leased group `$share/GROUP/FILTER` of all doors, or a partition of a
        topic, `TOPIC-0`. Raises ChannelFault."""
        connection = self.connection
        if name.startswith(SHARE):
            connection.rights.require_share(name)
        queue = connection.broker.queues.share(connection.vhost, name)
        if queue is None and connection.vhost.find_queue(name) is None:
            queue = connection.broker.queues.streams.partition(connection.vhost, name)
            if queue is not None and not connection.rights.may_take(queue):
                queue = None                   # and is told what he is told of a queue that is not there
        queue = queue or self.queue(name)
        self.connection.rights.require_source(queue)
        return queue

    def queue(self, name: str, operation: Operation = Operation.CONSUME, access: str = READ) -> AmqpQueue:
        """The queue of that name, or the last one declared here. Raises ChannelFault: where it is not there, or another
        connection's, 403 for whoever could not do this with it otherwise, so that nobody learns which queues others
        have."""
        if not name:
            name = self._last_queue
            if not name:
                raise ChannelFault(404, "no previously declared queue")
        self.check_hidden(name, operation, access)
        return self.connection.vhost.require_queue(name, self.connection)

    def check_hidden(self, name: str, operation: Operation, access: str) -> None:
        """See `queue`. A generated name is nobody's secret to find out, and clients ask for their own that are gone."""
        queue = self.connection.vhost.find_queue(name)
        is_hidden = queue is None or queue.owner not in (None, self.connection)
        if is_hidden and not name.startswith(RESERVED):
            self.connection.rights.require_queue(name, operation, access)

    def note_declared(self, name: str) -> None:
        self._last_queue = name

    @property
    def last_queue(self) -> str:
        return self._last_queue

    def check_rights(self) -> None:
        """Rights have changed: consumers that may no longer be end, and the client is told."""
        for consumer in list(self.consumers.values()):
            if not self.connection.rights.may_take(consumer.queue):
                self.connection.broker.remove_consumer(consumer)
                consumer.on_gone()
        for listener in list(self.listeners.values()):
            if not listener.allowed():
                listener.on_gone()

    # ---- the end

    def on_overdue(self, timeout_ms: int) -> None:
        """A delivery was not acknowledged for so long: as RabbitMQ ends such channels."""
        self.fail(precondition(
            f"delivery acknowledgement on channel {self.number} timed out. Timeout value used: {timeout_ms} ms. "
            "This timeout value can be configured, see consumers doc guide to learn more"), "")

    def refuse(self, error: AmqpError) -> None:
        """Close the channel with a reason; the client answers with channel.close-ok."""
        class_id, method_id = error.method
        self.reply(encode_method("channel.close", code=error.code, text=error.reply_text, class_id=class_id,
                                 method_id=method_id))
        self.end()

    def end(self) -> None:
        """Nothing more goes in or out; what was not acknowledged is given back. Idempotent."""
        self.connection.broker.totals.channels_closed += not self.closing
        self.closing = True
        self.publishing.drop_content()
        for listener in self.listeners.values():
            listener.leave()
        self.listeners.clear()
        consumers, self.consumers = self.consumers, {}
        for consumer in consumers.values():
            self.connection.broker.remove_consumer(consumer)
        self._end_replies()
        if self.tx is not None:
            self.tx.rollback()
        self.give_back()

    def describe(self) -> dict[str, Any]:
        return {"channel": self.number, "consumers": len(self.consumers) + len(self.listeners),
                "unacknowledged": self.unacked.count, "confirms": self.publishing.confirms,
                "publishes": self.publishing.has_begun,
                "prefetch": self._consumer_limit, "global_prefetch": self._limit}
