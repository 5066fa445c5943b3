"""The channels of one connection, and what each does: its methods in the order they came, what it publishes and is
confirmed, its deliveries, its end.

Rules kept here: what the client asked before is done before (publishes are appended, acknowledgements applied, then the
next method), and what one turn of reading asked is done together; replies leave in the order of the requests, a durable
change's once it is durable, and any once what was acknowledged before it is. A refused channel (channel.close) is not
listened to until the client has agreed (channel.close-ok) or closes it itself.

A burst of publishes is one append, and a small one enters with those of other connections (`switchboard.Gathering`).
With confirms (RabbitMQ's extension) one acknowledgement with `multiple` answers everything of a channel that one flush
made durable.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from gatehouse.gateways.admission.errors import OverQuota
from gatehouse.gateways.amqp import codec
from gatehouse.gateways.amqp.channel_requests import ChannelRequests
from gatehouse.gateways.amqp.consuming import UNACKNOWLEDGED_MAX, Consumer, Got, Origin, Unacked
from gatehouse.gateways.amqp.errors import (
    NO_METHOD,
    AmqpError,
    ChannelFault,
    ConnectionFault,
    not_placed,
    precondition,
    refused,
)
from gatehouse.gateways.amqp.methods import IDS, Arguments, decode_method, encode_method, start_of
from gatehouse.gateways.amqp.publishing import Contents, of_publish
from gatehouse.gateways.amqp.tx import Tx
from gatehouse.kernel.errors import (
    CreateDenied,
    IdempotencyConflict,
    KernelError,
    MessageTooLarge,
    QueueFull,
    ReceiptDenied,
    TooManyTopics,
    UnknownTopic,
)
from gatehouse.kernel.groups.members import Budget
from gatehouse.kernel.message import Stored

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.amqp.direct_reply import ReplyConsumer
    from gatehouse.gateways.amqp.session import AmqpSession
    from gatehouse.gateways.amqp.telling import NoticeConsumer
    from gatehouse.kernel.api import Message
    from gatehouse.kernel.message import Handle

FRAME_ERROR: Final = 501
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
OPEN: Final = start_of("channel.open")
CLOSE: Final = start_of("channel.close")
CLOSE_OK: Final = start_of("channel.close-ok")
CONTENT_BYTES_MAX: Final = 64 << 20    # of contents that have begun on all channels of a connection
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
            channel.contents.take_header(payload)
        elif kind == codec.BODY:
            channel.contents.take_body(payload)
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
        self.contents = Contents(self)
        self.publishing = Publishing(self, confirms=False)
        self._unconfirmed: Publishing | None = None        # of before confirm.select: its numbers are never told
        self.consumers: dict[str, Consumer] = {}
        self.listeners: dict[str, NoticeConsumer] = {}           # consumers of what is told, of transactions and delays
        self.reply_consumer: ReplyConsumer | None = None        # who gets answers that pass no queue
        self.tx: Tx | None = None              # from tx.select on
        self.unacked: Unacked[Origin] = Unacked()
        self._held_gets: deque[Got] = deque()  # until limits let something out
        self.budget = Budget(UNACKNOWLEDGED_MAX)           # what its consumers may be given together
        self.got_out = 0                       # deliveries of basic.get that await their acknowledgement
        self._served_first = 0                 # the consumer that is asked first whether it has room
        self.closing = False                   # refused; only channel.close and channel.close-ok are listened to
        self._limit = 0                        # of the whole channel; 0: none
        self._replies: deque[list[Any]] = deque()      # [bytes, whether it may leave, what then], the first may not
        self._has_acked = False                # something that no answer waits for, and may not be on the disk
        self._settling: dict[tuple[str, Origin], list[Handle]] = {}
        self._requests = ChannelRequests(self)

    # ---- methods

    def note_got(self, by: int) -> None:
        """So many more of what it was given one by one await their acknowledgement; fewer where it is negative. The
        budget is as it was: these are not in it."""
        self.got_out += by

    def take_method(self, name: str, arguments: Arguments, payload: bytes) -> None:
        """Anything but open and close. Raises AmqpError."""
        self.contents.check_no_content()
        if name == "basic.publish":
            self.contents.begin(payload, arguments)
        elif name == "basic.ack":
            self._settle("ack", arguments["delivery_tag"], arguments["multiple"])
        elif name == "basic.nack":
            how = "release" if arguments["requeue"] else "reject"
            self._settle(how, arguments["delivery_tag"], arguments["multiple"])
        elif name == "basic.reject":
            self._settle("release" if arguments["requeue"] else "reject", arguments["delivery_tag"], False)
        else:
            method = self._requests.methods.get(name)
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
        if self._held_gets:
            for _ in range(min(len(self._held_gets), self.connection.out_room())):
                self._held_gets.popleft().begin()
        self._note_budget()
        consumers = list(self.consumers.values())
        first = self._served_first = self._served_first + 1 if self._served_first < len(consumers) else 0
        for consumer in consumers[first:] + consumers[:first]:     # what they share is for each of them in turn
            consumer.top_up()
        for listener in self.listeners.values():
            listener.pump()

    def hold_get(self, got: Got) -> None:
        """It begins when limits let something out: a message that is asked for is handed out like any other."""
        self._held_gets.append(got)

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

    def may_deliver(self) -> bool:
        return not self.closing and self.connection.may_deliver()

    def limit(self, deliveries: int) -> None:
        """So many may await their acknowledgement on the whole channel; 0: no limit."""
        self._limit = deliveries
        self.wake()

    def begin_replies(self, consumer: ReplyConsumer) -> None:
        """It gets the answers to what the channel asks others."""
        self.reply_consumer = consumer
        self.connection.broker.replies.add(self.connection.vhost.name, consumer)

    def end_replies(self) -> None:
        """Nobody gets answers here any more."""
        if self.reply_consumer is not None:
            self.connection.broker.replies.remove(self.connection.vhost.name, self.reply_consumer)
            self.reply_consumer = None

    # ---- confirms and transactions

    def begin_confirms(self) -> None:
        """What is published from here on is confirmed."""
        if not self.publishing.confirms:
            self._unconfirmed, self.publishing = self.publishing, Publishing(self, confirms=True)

    def begin_tx(self) -> None:
        """What is published and settled from here on waits for a commit."""
        if self.tx is None:
            self.tx = Tx(self)

    def on_confirmed(self, frames: bytes) -> None:
        if not self.closing:
            self.connection.write(frames)
        self.connection.on_settled()

    # ---- the end

    def check_rights(self) -> None:
        """Rights have changed: consumers that may no longer be end, and the client is told."""
        for consumer in list(self.consumers.values()):
            if not self.connection.rights.may_take(consumer.queue):
                self.connection.broker.remove_consumer(consumer)
                consumer.on_gone()
        for listener in list(self.listeners.values()):
            if not listener.allowed():
                listener.on_gone()
        for got in list(self._held_gets):
            if not self.connection.rights.may_take(got.queue):
                self._held_gets.remove(got)
                got.on_gone()

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
        self.contents.drop_content()
        for got in self._held_gets:
            got.drop()
        self._held_gets.clear()
        for listener in self.listeners.values():
            listener.leave()
        self.listeners.clear()
        consumers, self.consumers = self.consumers, {}
        for consumer in consumers.values():
            self.connection.broker.remove_consumer(consumer)
        self.end_replies()
        if self.tx is not None:
            self.tx.rollback()
        self.give_back()

    def describe(self) -> dict[str, Any]:
        return {"channel": self.number, "consumers": len(self.consumers) + len(self.listeners),
                "unacknowledged": self.unacked.count, "confirms": self.publishing.confirms,
                "publishes": self.publishing.has_begun,
                "prefetch": self._requests.consumer_limit, "global_prefetch": self._limit}


class Publishing:
    """One channel's, up to confirm.select or from there on: its numbers count from 1, and what was published before is
    not promised. The kernel's `Owner` of what it appends."""

    def __init__(self, channel: Channel, *, confirms: bool) -> None:
        self.confirms = confirms
        self.settled = True
        """Whether everything appended has been answered."""

        self.pending: list[Message] = []
        """Decoded and not appended yet; `submit` before anything that must not overtake it."""

        self._channel = channel
        self._totals = channel.connection.broker.totals
        self._tag = 0                          # of the last publish that is not in `pending`
        self._submitted = 0                    # of the last publish that will be answered
        self._answered = 0                     # of the last that was
        self._alone = 0                        # of the last that will be and was not gathered
        self._gathered: list[Stored] = []      # answers of now
        self._counted = self._refused = 0      # through this tag confirms were counted; so many are none

    @property
    def has_begun(self) -> bool:
        """Whether anything was published."""
        return self._tag > 0

    def next_tag(self) -> int:
        """The delivery tag of a publish that is not in `pending`."""
        self._tag += 1
        self._totals.confirming += self.confirms
        return self._tag

    def _count(self, tag: int) -> None:
        """All through this tag are answered."""
        if tag <= self._counted:
            return
        answered, self._counted = tag - self._counted, tag
        refused = min(answered, self._refused)
        self._refused -= refused
        self._totals.confirmed += answered - refused

    def expect(self, tag: int) -> None:
        """This publish will be answered, and what is gathered must not be before it."""
        self._submitted = self._alone = tag
        self.settled = False

    def confirm(self, tag: int, *, nack: bool = False) -> None:
        """Acknowledge (or refuse, `nack`) one publish alone, if the publisher wants confirms."""
        if self.confirms:
            self._refused += nack
            if self.settled:
                self._count(tag)
            self._channel.connection.write(codec.encode_confirm(self._channel.raw, tag, False, nack=nack))

    # ---- appending

    def submit(self) -> None:
        """Append what is pending; what a full queue does not take is refused. Raises AmqpError where the kernel takes
        nothing."""
        messages = self.pending
        if not messages:
            return
        self.pending = []
        first = self._tag + 1
        self._tag += len(messages)
        if self.confirms:
            self._totals.confirming += len(messages)
        # What was appended otherwise is answered in its turn, and what is gathered behind it must not be before.
        if (self._answered >= self._alone or not self.confirms) and self._channel.connection.gather(
                messages, self, self._tag if self.confirms else None, refuses=self.confirms):  # decision 259
            if self.confirms:
                self._submitted = self._tag
                self.settled = False
            return
        self._append_what_fits(messages, list(range(first, self._tag + 1)))

    def _append_what_fits(self, messages: list[Message], tags: list[int], was_gathered: bool = False) -> None:
        """Append; what a full queue does not take is refused. Raises AmqpError."""
        while messages:
            try:
                self.append(messages, tags[-1], was_gathered=was_gathered)
                return
            except QueueFull as full:
                place = messages[full.index][0]
                without_room = [at for at in range(full.index, len(messages)) if messages[at][0] == place]
                connection = self._channel.connection
                connection.broker.bury_refused(connection.vhost, full.queue, [messages[at] for at in without_room])
            except OverQuota as over:
                without_room = [at for at, message in enumerate(messages) if message[0] in over.places]
            self.refuse([tags[at] for at in without_room])
            kept = sorted({*range(len(messages))}.difference(without_room))
            messages, tags = [messages[at] for at in kept], [tags[at] for at in kept]

    def append(self, messages: list[Message], tag: int, repeat_key: str | None = None, was_gathered: bool = False
                ) -> None:
        """`tag`: of the last. Raises QueueFull, OverQuota where the publisher wants confirms, AmqpError."""
        try:
            self._channel.connection.append(messages, self if self.confirms else None, tag, repeat_key,
                                            refuses=self.confirms, was_gathered=was_gathered)
        except QueueFull:
            raise
        except OverQuota as over:
            if self.confirms:
                raise
            raise of_publish(ConnectionFault(RESOURCE_ERROR, str(over))) from None
        except (MessageTooLarge, IdempotencyConflict) as error:
            raise of_publish(precondition(str(error))) from None
        except ReceiptDenied as error:                       # what came before it is sound
            if error.index:
                self.append(messages[:error.index], tag - len(messages) + error.index, was_gathered=was_gathered)
            raise of_publish(refused(str(error))) from None
        except (CreateDenied, TooManyTopics, UnknownTopic) as error:           # deleted since it was placed
            raise of_publish(not_placed(error)) from None
        except KernelError as error:
            raise of_publish(ConnectionFault(RESOURCE_ERROR, str(error))) from None
        if self.confirms:
            self.expect(tag)

    def enter_alone(self, guard: Guard, messages: list[Message], token: object, size_bytes: int) -> bool:
        """See `switchboard.Gatherer`."""
        last = token if isinstance(token, int) else len(messages)
        try:
            self._append_what_fits(messages, list(range(last - len(messages) + 1, last + 1)), was_gathered=True)
        except AmqpError as error:
            self._channel.fail_publish(error)
        return False

    def on_gathered(self, token: object, error: Exception | None) -> bool:
        """See `switchboard.Gatherer`: what is answered together has one acknowledgement."""
        self._gathered.append(Stored(token, error, 0, []))
        return len(self._gathered) == 1

    def on_all_gathered(self) -> None:
        """See `switchboard.Gatherer`."""
        gathered, self._gathered = self._gathered, []
        self.on_stored(gathered)

    def refuse(self, tags: list[int]) -> None:
        """Refuse publishes with basic.nack, if the publisher wants confirms."""
        if self.confirms:
            self._refused += len(tags)
            if self.settled:
                self._count(tags[-1])
            raw = self._channel.raw
            frames = [codec.encode_confirm(raw, tag, False, nack=True) for tag in tags]
            self._channel.connection.write(b"".join(frames))

    def on_stored(self, stored: list[Stored]) -> None:
        """Answer the publishes of one flush: one acknowledgement for all that was stored, one refusal for what was not.
        Answers come in order; `multiple` is said of several alone, as by RabbitMQ."""
        out = []
        good = bad = 0
        before = self._answered
        for answer in stored:
            tag = answer.token if isinstance(answer.token, int) else cast(Callable[[Stored], int], answer.token)(answer)
            if answer.error is None:
                if bad:
                    out.append(codec.encode_confirm(self._channel.raw, bad, bad - before > 1, nack=True))
                    before = bad
                good, bad = tag, 0
            else:
                if good:
                    out.append(codec.encode_confirm(self._channel.raw, good, good - before > 1))
                    before = good
                good, bad = 0, tag
                self._refused += tag - self._answered
            self._answered = tag
            self.settled = tag == self._submitted
        if good:
            out.append(codec.encode_confirm(self._channel.raw, good, good - before > 1))
        if bad:
            out.append(codec.encode_confirm(self._channel.raw, bad, bad - before > 1, nack=True))
        if self.confirms:
            self._count(self._answered)
        self._channel.on_confirmed(b"".join(out) if self.confirms else b"")
