"""A channel of a connection, and what it does: its methods in the order they came, what it publishes and is confirmed,
its deliveries, its end.

Rules kept here: what the client asked before is done before (publishes are appended, acknowledgements applied, then the
next method), and what one turn of reading asked is done together; replies leave in the order of the requests, a durable
change's once it is durable, and any once what was acknowledged before it is.

A burst of publishes is one append, and a small one enters with those of other connections (`door_side.Gathering`). With
confirms (RabbitMQ's extension) one acknowledgement with `multiple` answers everything of a channel that one flush made
durable.

Who gets messages of a queue on it: consumers with their prefetch, and basic.get. A consumer says how many messages it
has `room` for and is handed them once per flush; they become one write. A delivery that needs an acknowledgement stays
with the channel until it is settled: acknowledged, given back, refused. It has a tag; tags count up from 1 for the life
of the channel. What one flush brought to one consumer is one run of them: acknowledging all up to a tag releases whole
runs, and only single acknowledgements look inside one.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from gatehouse.gateways.admission.errors import OverQuota
from gatehouse.gateways.amqp import codec, mapping
from gatehouse.gateways.amqp.errors import (
    NO_METHOD,
    AmqpError,
    ChannelFault,
    ConnectionFault,
    not_placed,
    precondition,
    refused,
)
from gatehouse.gateways.amqp.methods import IDS, Arguments, encode_method, of_publish
from gatehouse.gateways.amqp.tables import Field
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
from gatehouse.kernel.groups.handing_out import Budget, HoldLimit
from gatehouse.kernel.message import DOOR_MASK, Handle, Stored
from gatehouse.tracing.context import HEADER as TRACEPARENT

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.amqp.channel_requests import ChannelRequests
    from gatehouse.gateways.amqp.direct_reply import ReplyConsumer
    from gatehouse.gateways.amqp.publishing import Contents
    from gatehouse.gateways.amqp.session import AmqpSession
    from gatehouse.gateways.amqp.telling import NoticeConsumer
    from gatehouse.gateways.amqp.tx import Tx
    from gatehouse.gateways.amqp.vhost import AmqpQueue
    from gatehouse.kernel.api import LeasedGroupPort, MembershipPort, Message
    from gatehouse.kernel.message import Leased

COMMAND_INVALID: Final = 503
RESOURCE_ERROR: Final = 506
WAITING_REPLIES_MAX: Final = 10_000    # requests of one channel whose answers wait for the disk

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


class Channel:
    """One of them: what it was asked, has published and was given."""

    def __init__(self, number: int, connection: AmqpSession, make_contents: Callable[[Channel], Contents],
                 make_requests: Callable[[Channel], ChannelRequests]) -> None:
        self.number = number
        self.raw = number.to_bytes(2, "big")
        self.connection = connection
        connection.broker.totals.channels_opened += 1
        self.contents = make_contents(self)
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
        self._requests = make_requests(self)

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

    def begin_tx(self, tx: Tx) -> None:
        """What is published and settled from here on waits for a commit of this one."""
        self.tx = tx

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
        """See `door_side.Gatherer`."""
        last = token if isinstance(token, int) else len(messages)
        try:
            self._append_what_fits(messages, list(range(last - len(messages) + 1, last + 1)), was_gathered=True)
        except AmqpError as error:
            self._channel.fail_publish(error)
        return False

    def on_gathered(self, token: object, error: Exception | None) -> bool:
        """See `door_side.Gatherer`: what is answered together has one acknowledgement."""
        self._gathered.append(Stored(token, error, 0, []))
        return len(self._gathered) == 1

    def on_all_gathered(self) -> None:
        """See `door_side.Gatherer`."""
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


# --- deliveries -------------------------------------------------------------------------------------------------------

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
