"""What comes frame by frame to be published: contents put together, checked, routed, placed, returned.

What goes nowhere is acknowledged at once, by itself, after its basic.return.

The channels of a connection share an `AmqpSender`. What is routed the same every time is remembered there by the exact
bytes of its method frame, for the codec (`routes`), until something is declared, bound or deleted.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.addresses import queue_address, reply_address
from gatehouse.gateways.admission.errors import Denied, OverQuota
from gatehouse.gateways.amqp import codec, mapping, properties
from gatehouse.gateways.amqp.addresses import TOPIC_EXCHANGE, address_of_amqp, routing_key_of
from gatehouse.gateways.amqp.arguments import MAX_EXPIRY_MS
from gatehouse.gateways.amqp.codec import PublishHead
from gatehouse.gateways.amqp.direct_reply import NAMED, REPLY_TO
from gatehouse.gateways.amqp.errors import (
    AmqpError,
    ChannelFault,
    ConnectionFault,
    SyntaxFault,
    not_placed,
    precondition,
    refused,
)
from gatehouse.gateways.amqp.exchanges import DELAY, DELAYED, delay_in, waited
from gatehouse.gateways.amqp.methods import Arguments, encode_method, of_publish
from gatehouse.gateways.amqp.properties import Traits
from gatehouse.gateways.amqp.recalling import RECALL, read_key, recall, tell_accepted
from gatehouse.gateways.amqp.streams import place_copies
from gatehouse.gateways.amqp.transacting import DECIDE, decide, hold
from gatehouse.kernel.errors import (
    IdempotencyConflict,
    InvalidDelay,
    KeptFull,
    KernelError,
    QueueFull,
    StorageFull,
    TooManyScheduled,
    Unroutable,
)
from gatehouse.kernel.message import Stored, When

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.amqp.broker import Broker
    from gatehouse.gateways.amqp.channel import Channel
    from gatehouse.gateways.amqp.direct_reply import ReplyConsumer
    from gatehouse.gateways.amqp.rights import AmqpRights
    from gatehouse.gateways.amqp.tables import Table
    from gatehouse.gateways.amqp.vhost import AmqpQueue, VirtualHost
    from gatehouse.gateways.contract import Services
    from gatehouse.kernel.api import Message

NO_ROUTE: Final = 312
UNEXPECTED_FRAME: Final = 505
NOT_IMPLEMENTED: Final = 540
RESOURCE_ERROR: Final = 506
NO_HEADER: Final = "expected content header for class 60, got non content header frame instead"
NO_BODY: Final = "expected content body, got non content body frame instead"
COMMANDS: Final = (DECIDE, RECALL)     # routing keys of the default exchange that are no queues
ROUTES_MAX: Final = 65_536             # names remembered per connection; forgotten all at once beyond that
FOUND: Final = frozenset(("receipt", "traceparent", "x-trace"))
"""Headers that are kept where the kernel finds them, in queues too."""

IDEMPOTENT: Final = "x-idempotent"
INTEGER: Final = re.compile(r"[+-]?\d+", re.ASCII)


class Sent(NamedTuple):
    message: Message | None    # None: it goes nowhere
    routed: bool               # whether it enters a queue
    half: mapping.HalfHeaders | None = None
    reply: ReplyConsumer | None = None         # who gets it without a queue
    delay_ms: int = 0          # it waits so long before it goes anywhere
    copies: tuple[Message, ...] = ()                   # for streams that it enters, too
    delay_key: str = ""        # by which it is recalled while it waits
    repeat_key: str | None = None              # however often it is sent with this, it is stored once


class SendTarget(NamedTuple):
    place: int | None          # None: it goes nowhere
    is_queue: bool             # it is a queue alone
    routed: bool
    timed: bool                # one of its queues counts from when the message came: the sender's time may not be kept
    copies: tuple[int, ...] = ()                       # places in streams


class Content:
    """A publish whose header and body frames are still to come."""

    __slots__ = ("arguments", "got", "parts", "payload", "raw", "size")

    def __init__(self, payload: bytes, arguments: Arguments) -> None:
        self.payload = payload                 # of the method frame
        self.arguments = arguments
        self.raw = b""                         # flags and properties, once the header has come
        self.size = -1                         # of the body; -1 until then
        self.parts: list[bytes] = []
        self.got = 0


class Contents:
    """What one channel publishes frame by frame: everything but plain messages that came whole."""

    def __init__(self, channel: Channel) -> None:
        self.begun: Content | None = None
        """A publish that is not whole yet."""

        self._channel = channel
        self._totals = channel.connection.broker.totals

    def begin(self, payload: bytes, arguments: Arguments) -> None:
        """A basic.publish method. Raises AmqpError."""
        if arguments["immediate"]:
            raise ConnectionFault(NOT_IMPLEMENTED, "immediate=true")
        self.begun = Content(payload, arguments)

    def check_no_content(self) -> None:
        """A method may not come between a publish and its content."""
        if self.begun is not None:
            raise of_publish(ConnectionFault(UNEXPECTED_FRAME, NO_HEADER if self.begun.size < 0 else NO_BODY))

    def take_header(self, payload: bytes) -> None:
        content = self.begun
        if content is None:
            raise ConnectionFault(UNEXPECTED_FRAME, "expected method frame, got non method frame instead")
        if content.size >= 0:
            raise of_publish(ConnectionFault(UNEXPECTED_FRAME, NO_BODY))
        if len(payload) < codec.SMALLEST_HEADER:
            raise SyntaxFault("a content header that is cut off")
        if payload[:2] != codec.BASIC_HEADER[:2]:
            raise of_publish(ConnectionFault(UNEXPECTED_FRAME, "expected content header for class 60, got one for "
                                                                f"class {int.from_bytes(payload[:2], 'big')} instead"))
        if payload[:4] != codec.BASIC_HEADER:
            raise SyntaxFault("a content header with a weight")
        size = int.from_bytes(payload[4:12], "big")
        connection = self._channel.connection
        if size > connection.message_bytes_max:
            self.begun = None
            raise of_publish(precondition(f"message size {size} is larger than configured max size "
                                           f"{connection.message_bytes_max}"))
        connection.channels.reserve(size)
        content.size, content.raw = size, payload[12:]
        if size == 0:
            self._complete(content)

    def take_body(self, payload: bytes) -> None:
        content = self.begun
        if content is None:
            raise ConnectionFault(UNEXPECTED_FRAME, "expected method frame, got non method frame instead")
        if content.size < 0:
            raise of_publish(ConnectionFault(UNEXPECTED_FRAME, NO_HEADER))
        content.parts.append(payload)
        content.got += len(payload)
        self._channel.connection.channels.note_part(len(payload))
        if content.got > content.size:
            raise SyntaxFault(f"a body of {content.got} bytes whose header says {content.size}")
        if content.got == content.size:
            self._complete(content)

    def drop_content(self) -> None:
        """Drop a publish whose content is not whole yet."""
        if self.begun is not None and self.begun.size > 0:
            self._channel.connection.channels.release(self.begun.size, self.begun.got)
        self.begun = None

    def _complete(self, content: Content) -> None:
        self.drop_content()
        channel = self._channel
        publishing = channel.publishing
        body = content.parts[0] if len(content.parts) == 1 else b"".join(content.parts)
        if not content.arguments["exchange"] and content.arguments["routing_key"] in COMMANDS:
            self._carry_out(content.arguments["routing_key"], body)
            return
        try:
            raw = self._with_reply_name(content.raw)
            sent = self.look_up(content, raw, body)
            if channel.tx is not None:
                channel.tx.publish(content, raw, body, sent)
                return
        except AmqpError as error:
            raise of_publish(error) from None
        if sent.half is not None:
            self._hold(content, sent, sent.half, body)
            return
        if sent.message is not None and sent.delay_ms:
            self._let_wait([sent.message, *sent.copies], sent)
        elif sent.message is not None and (sent.copies or sent.repeat_key is not None):
            self._append_apart([sent.message, *sent.copies], sent.repeat_key)
        elif sent.message is not None:
            publishing.pending.append(sent.message)
        if sent.routed and sent.message is not None:
            return
        publishing.submit()                    # tags count in the order of the publishes
        self.tell_fate(content, raw, body, sent)
        if sent.message is None:
            self._totals.nowhere += sent.reply is None
            self._totals.dropped += not content.arguments["mandatory"] and sent.reply is None
            publishing.confirm(publishing.next_tag())

    def _carry_out(self, command: str, body: bytes) -> None:
        """A publish that is no message. Raises AmqpError."""
        channel = self._channel
        if channel.tx is not None:
            raise of_publish(precondition("half messages are not decided, and nothing is recalled, within a "
                                           "transaction of the channel"))
        channel.publishing.submit()
        (decide if command == DECIDE else recall)(channel, channel.publishing.next_tag(), body)

    def tell_fate(self, content: Content, raw: bytes, body: bytes, sent: Sent) -> None:
        """Return what goes nowhere, and hand over what passes no queue."""
        if sent.reply is not None:
            sent.reply.deliver(content.payload[6:-1], raw, body)
        elif content.arguments["mandatory"] and not sent.routed:
            self._return(content, body)

    def look_up(self, content: Content, raw: bytes, body: bytes) -> Sent:
        """Where it goes. Raises AmqpError."""
        connection, arguments = self._channel.connection, content.arguments
        if arguments["exchange"] or not arguments["routing_key"].startswith(NAMED):
            return connection.sender.send(content.payload, arguments, raw, body)
        reply = connection.broker.replies.find(connection.vhost.name, arguments["routing_key"])
        connection.sender.check_reply(raw)
        return Sent(None, reply is not None, None, reply)

    def _with_reply_name(self, raw: bytes) -> bytes:
        """A request that is to be answered directly says where. Raises ChannelFault 406."""
        if properties.traits(raw).reply_to != REPLY_TO:
            return raw
        reply = self._channel.reply_consumer
        if reply is None:
            raise precondition("fast reply consumer does not exist")
        return properties.with_text(raw, "reply_to", reply.name)

    def _hold(self, content: Content, sent: Sent, half: mapping.HalfHeaders, body: bytes) -> None:
        """A half message. One that goes nowhere is returned and confirmed like any other."""
        publishing = self._channel.publishing
        publishing.submit()
        tag = publishing.next_tag()
        if content.arguments["mandatory"] and not sent.routed:
            self._return(content, body)
        if sent.message is None:
            publishing.confirm(tag)
            return
        try:
            held = hold(self._channel, half, [sent.message, *sent.copies], tag)
        except AmqpError as error:
            raise of_publish(error) from None
        if not held:
            publishing.refuse([tag])
            return
        publishing.expect(tag)

    def _append_apart(self, messages: list[Message], repeat_key: str | None) -> None:
        """One publish that is several messages, as streams are among its queues, or that may be repeated: all of it or
        nothing."""
        publishing = self._channel.publishing
        publishing.submit()
        tag = publishing.next_tag()
        try:
            publishing.append(messages, tag, repeat_key)
        except QueueFull as full:
            connection = self._channel.connection
            connection.broker.bury_refused(connection.vhost, full.queue, messages[:1])
            publishing.refuse([tag])
        except OverQuota:
            publishing.refuse([tag])

    def _let_wait(self, messages: list[Message], sent: Sent) -> None:  # decision 196
        """One publish to a delayed-message exchange: confirmed once it is stored, delivered later."""
        channel = self._channel
        connection, publishing = channel.connection, channel.publishing
        publishing.submit()
        tag = publishing.next_tag()

        def on_stored(answer: Stored) -> int:
            tell_accepted(channel, tag, sent.delay_key, answer)
            return tag

        whens = [When(delay_ms=sent.delay_ms, name=sent.delay_key)] * len(messages)
        try:
            connection.slow_down(connection.guard.schedule.add(
                messages, whens, publishing if publishing.confirms else None, on_stored, 0,
                idempotency_key=sent.repeat_key, refuses=publishing.confirms))
        except (InvalidDelay, IdempotencyConflict) as error:
            raise of_publish(precondition(str(error))) from None
        except (TooManyScheduled, StorageFull, KeptFull, OverQuota) as refusal:
            if isinstance(refusal, OverQuota) and not publishing.confirms:
                raise of_publish(ConnectionFault(RESOURCE_ERROR, str(refusal))) from None
            publishing.refuse([tag])
            return
        except KernelError as error:
            raise of_publish(ConnectionFault(RESOURCE_ERROR, str(error))) from None
        if publishing.confirms:
            publishing.expect(tag)

    def _return(self, content: Content, body: bytes) -> None:
        channel = self._channel
        self._totals.returned += 1
        method = encode_method("basic.return", code=NO_ROUTE, text="NO_ROUTE")[:-2] + content.payload[6:-1]
        channel.connection.write(
            codec.frame(codec.METHOD, channel.number, method)
            + codec.encode_content(channel.raw, content.raw, body, channel.connection.body_max))


def _milliseconds(expiration: str) -> int:
    """Raises ChannelFault 406, saying why as RabbitMQ does."""
    match = INTEGER.match(expiration)
    if match is None:
        why = "no_integer"
    elif match.end() < len(expiration):
        why = f'{{leftover_string,"{expiration[match.end():]}"}}'
    elif int(expiration) < 0:
        why = f"{{value_negative,{int(expiration)}}}"
    elif int(expiration) > MAX_EXPIRY_MS:
        why = f"{{value_too_large,{int(expiration)}}}"
    else:
        return int(expiration)
    raise precondition(f"invalid expiration '{expiration}': {why}")


def _repeat_key(traits: Traits) -> str | None:  # decision 230
    """What makes a message repeatable: its `message_id`, where the sender asks for that. Raises ChannelFault 406."""
    field = traits.headers.get(IDEMPOTENT)
    if field is None:
        return None
    if field.type != "t":
        raise precondition(f"the header {IDEMPOTENT} is true or false")
    if not field.value:
        return None
    message_id: str = traits.said.get("message_id", "")
    if not message_id:
        raise precondition(f"a message with the header {IDEMPOTENT} has a message_id")
    return message_id


class AmqpSender:
    """From a publish to the message that is appended: checked, routed, placed. One per connection."""

    def __init__(self, broker: Broker, services: Services, vhost: VirtualHost, rights: AmqpRights,
                 guard: Guard, note_not_honoured: Callable[[str], None]) -> None:
        self.routes: dict[bytes, tuple[int, bool]] = {}
        """Payloads of publish methods that lead to the same place whatever the message; read by the codec."""

        self.head = PublishHead()
        """What came last by one of them; the codec's."""

        self._broker = broker
        self.guard = guard
        self._wall_ms = services.wall_ms
        self._vhost = vhost
        self._rights = rights
        self._note_not_honoured = note_not_honoured
        self.version = vhost.version, guard.version
        """What everything that is remembered was looked up in."""

        self._targets: dict[tuple[str, str, int, tuple[str, ...]], SendTarget] = {}
        self._by_headers: dict[str, bool] = {}     # exchange: whether headers decide where its messages go

    def refresh(self) -> None:
        """Forget what a change of the virtual host may have made untrue."""
        version = self._vhost.version, self.guard.version
        if self.version != version:
            self.version = version
            self.forget()

    def forget(self) -> None:
        """Look everything up anew: rights have changed."""
        self.routes.clear()
        self.head.forget()
        self._targets.clear()
        self._by_headers.clear()
        self.guard.let_go()

    def send(self, payload: bytes, arguments: Arguments, raw: bytes, body: bytes) -> Sent:
        """`payload`: of the method frame; `raw`: flags and properties. Raises AmqpError."""
        self.refresh()
        name, routing_key = arguments["exchange"], arguments["routing_key"]
        traits = properties.traits(raw)
        answered = None if name else reply_address(routing_key)
        if answered is not None:                                # decision 240
            name, routing_key = TOPIC_EXCHANGE, routing_key_of(answered)
        self._check_exchange(name, routing_key, raw)
        ttl_ms = self._check(traits)
        delay_ms = self._delay_ms(name, traits.headers) if DELAY in traits.headers else 0
        delay_key, repeat_key = read_key(traits.headers), _repeat_key(traits)
        target = self._target(name, routing_key, traits, raw)
        place = target.place
        if place is None:
            return Sent(None, False)
        if not traits.priority and not target.copies and not self._depends_on_headers(name) \
                and traits.headers.keys().isdisjoint(mapping.CARBON_COPIES) \
                and (target.routed or not arguments["mandatory"]):
            if len(self.routes) >= ROUTES_MAX:
                self.routes.clear()
            self.routes[payload] = place, target.is_queue  # decision 61
        wall_ms = self._wall_ms() + delay_ms           # its time to live begins when it has waited
        raw = mapping.without_own_headers(raw, traits.headers)
        if delay_ms:                           # who gets it is told that it has waited: as RabbitMQ's plug-in says it
            raw = properties.replaced(raw, {**properties.traits(raw).headers, DELAY: waited(delay_ms)})
        names, timestamp_ms = payload[6:-1], 0
        if target.is_queue and FOUND.isdisjoint(traits.headers):
            headers = mapping.headers_for_queues(names, raw, wall_ms + ttl_ms if ttl_ms is not None else 0)
        else:
            headers, timestamp_ms = mapping.headers_for_topic(names, raw, wall_ms)
            if target.timed or target.is_queue:
                timestamp_ms = 0
        if mapping.BCC in traits.headers:
            headers = mapping.with_blind_keys(headers, mapping.copies_in(traits.headers, mapping.BCC))
        attributes = mapping.attributes_of(traits)
        copies = tuple([(copy, body, headers, attributes, timestamp_ms) for copy in target.copies])
        return Sent((place, body, headers, attributes, timestamp_ms), target.routed or answered is not None,
                    mapping.half_headers(traits.headers), delay_ms=delay_ms, copies=copies, delay_key=delay_key,
                    repeat_key=repeat_key)

    def _delay_ms(self, name: str, headers: Table) -> int:
        """How long a delayed-message exchange lets a message wait. Others let none."""
        exchange = self._vhost.exchanges.get(name)
        if exchange is None or exchange.type != DELAYED:
            self._note_not_honoured(DELAY)
            return 0
        return delay_in(headers)

    def _check_exchange(self, name: str, routing_key: str, raw: bytes) -> None:
        """Raises ChannelFault where nothing may be published to the exchange. A user without rights there does not
        learn whether the exchange exists."""
        exchange = self._vhost.exchanges.get(name)
        if not name or exchange is not None and not exchange.internal:
            return
        self._require_publish(name, [routing_key], raw)
        self._vhost.require_exchange(name)
        raise refused(f"cannot publish to internal exchange '{name}' in vhost '{self._vhost.name}'")

    def check_reply(self, raw: bytes) -> None:
        """What the client answers a request with directly. Raises ChannelFault."""
        self._check(properties.traits(raw))

    def _check(self, traits: Traits) -> int | None:
        """The message's time to live in ms, or None. Raises ChannelFault."""
        ttl_ms = None if traits.ttl_ms is None else _milliseconds(traits.ttl_ms)
        principal = self._rights.principal
        if traits.user_id is not None and traits.user_id not in (principal.name, principal.anonymous and "guest"):
            name = "guest" if principal.anonymous else principal.name
            raise precondition(f"user_id property set to '{traits.user_id}' but authenticated user was '{name}'")
        return ttl_ms

    def _depends_on_headers(self, name: str) -> bool:
        """Whether headers decide where a message goes, at this exchange or at one behind it."""
        answer = self._by_headers.get(name)
        if answer is None:
            answer = any(exchange.router.looks_inside or exchange.type == DELAYED
                         for exchange in self._vhost.reachable(name))
            self._by_headers[name] = answer
        return answer

    def _require_publish(self, name: str, keys: list[str], raw: bytes) -> None:
        """Raises ChannelFault, of which journeys know, and the log with the trace id in the properties."""
        for key in keys:
            try:
                self._rights.require_publish(name, [key])
            except ChannelFault as fault:
                address = address_of_amqp(name, key) if name else queue_address(key)
                self.guard.tell_refused(address, Denied.code, str(fault), raw)
                raise

    def _target(self, name: str, routing_key: str, traits: Traits, raw: bytes) -> SendTarget:
        headers = traits.headers
        mapping.check_copies(headers)
        keys = mapping.keys_of(routing_key, headers) if headers else [routing_key]
        if len(keys) > 1:
            self._require_publish(name, keys[1:], raw)
        by_keys = name != "" and not self._depends_on_headers(name)
        key = (name, routing_key, traits.priority, tuple(keys[1:]))
        target = self._targets.get(key) if by_keys else None   # decision 342
        if target is not None:
            return target
        queues = self._vhost.route(name, keys, headers, traits.said)
        if not by_keys:
            key = (name, routing_key, traits.priority, tuple([queue.name for queue in queues]))
            target = self._targets.get(key)
        if target is None:
            if len(self._targets) >= ROUTES_MAX:
                self._targets.clear()
            target = self._targets[key] = self._place(name, routing_key, queues, traits.priority, raw)
        return target

    def _place(self, name: str, routing_key: str, queues: list[AmqpQueue], priority: int, raw: bytes) -> SendTarget:
        address = address_of_amqp(name, routing_key)
        self._require_publish(name, [routing_key], raw)
        if not name and not queues:
            return SendTarget(None, False, False, False)
        streams = [queue for queue in queues if queue.stream is not None]
        if not name and len(queues) > 1:
            return self._place_in_each(queues, priority)
        if streams:
            return self._place_with_streams(name, address, queues, streams, priority)
        try:
            place = self._broker.queues.place(self.guard, address if name else "", queues, priority)
        except Unroutable:                         # an exchange whose name is no topic's, and no queue is bound to it
            return SendTarget(None, False, False, False)
        except KernelError as error:
            raise not_placed(error) from None
        timed = any(queue.settings.message_ttl_ms is not None for queue in queues)
        others = any(queue.kernel_queue is not None and not queue.kernel_queue.settings.door for queue in queues)
        return SendTarget(place, not name and not others, bool(queues), timed)     # another door reads its own queue

    def _place_in_each(self, queues: list[AmqpQueue], priority: int) -> SendTarget:
        """Of the default exchange, where CC and BCC name more queues: no topic leads to them, so each has its own."""
        try:
            places = place_copies(self.guard, queues)
            places += [self._broker.queues.place(self.guard, "", [queue], priority) for queue in queues
                       if queue.stream is None]
        except KernelError as error:
            raise not_placed(error) from None
        return SendTarget(places[0], False, True, True, tuple(places[1:]))

    def _place_with_streams(self, name: str, address: str, queues: list[AmqpQueue], streams: list[AmqpQueue],
                            priority: int) -> SendTarget:
        """Of the default exchange the one stream; of others the topic of the address, queues, and a copy for each
        stream."""
        others = [queue for queue in queues if queue.stream is None]
        try:
            copies = place_copies(self.guard, streams)
            if not name:
                return SendTarget(copies[0], False, True, False)
            place = self._broker.queues.place(self.guard, address, others, priority)
        except Unroutable:                             # an exchange whose name is no topic's
            return SendTarget(copies[0], False, True, False, tuple(copies[1:]))
        except KernelError as error:
            raise not_placed(error) from None
        timed = any(queue.settings.message_ttl_ms is not None for queue in others)
        return SendTarget(place, False, True, timed, tuple(copies))
