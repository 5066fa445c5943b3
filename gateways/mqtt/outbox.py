"""What one client is sent: deliveries to the wire while it keeps up, else what its QoS allows.

    on_delivery -> [sent at once]       while the client keeps up
                -> backlog              when its socket is full, or its window (QoS 1, 2), or something older waits
                -> dropped and counted  QoS 0, when the backlog is full too

What waits is sent before anything newer of its QoS, so the order of each topic and QoS is kept [MQTT-4.6.0-6].

What is written and not taken is bounded twice: by `max_unsent_bytes` and by what the budget of all connections allows.
Of a large burst one piece is sent at once and the rest waits for its turn (`backlog.CatchingUp`); either the socket
takes such a piece, or the connection is slow and is told when it is not any more. Large values are not copied: they are
the same bytes for every client.

What was sent with QoS 1 or 2 is in the window until the client has answered:

    QoS 1    PUBLISH ─► PUBACK
    QoS 2    PUBLISH ─► PUBREC ─► PUBREL ─► PUBCOMP
"""
from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Final, Protocol

from gatehouse.gateways.admission.limits.meter import NO_BOUND
from gatehouse.gateways.mqtt import reasons
from gatehouse.gateways.mqtt.backlog import Backlog
from gatehouse.gateways.mqtt.codec import (
    PACKET_ID_BYTES,
    PACKET_IDS,
    PUBACK_SIZE,
    PUBACKS,
    encode_publish,
    encode_pubrels,
    encode_qos0,
    encode_qos1,
    encode_variable,
    first_too_large,
    fitting,
    parts_qos1,
    plain_ids,
    run_of,
)
from gatehouse.gateways.mqtt.errors import ProtocolError
from gatehouse.gateways.mqtt.mapping import qos_of, stored_message, topic_field
from gatehouse.gateways.mqtt.outgoing import NO_TOPIC
from gatehouse.gateways.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, encode_ack
from gatehouse.gateways.mqtt.subscriptions import NO_FILTERS
from gatehouse.gateways.retained_feed import PAGE_VALUES, RetainedFeed
from gatehouse.kernel.message import EXACTLY_ONCE, RETAIN, TRANSIENT, Retained
from gatehouse.kernel.sessions.session_values import IDS_MAX, Entrusted
from gatehouse.kernel.shedding import QOS_0

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.admission.trace import Trace
    from gatehouse.gateways.contract import Link
    from gatehouse.gateways.door_side import Delivery, HeardAddress
    from gatehouse.gateways.mqtt.clients import Clients
    from gatehouse.gateways.mqtt.config import MqttConfig
    from gatehouse.gateways.mqtt.durable import DurableSession
    from gatehouse.gateways.mqtt.outgoing import Outgoing, OwnMessages
    from gatehouse.gateways.mqtt.shares import Shares
    from gatehouse.gateways.mqtt.subscriptions import Choosing
    from gatehouse.gateways.mqtt.transacting import Transacting
    from gatehouse.kernel.api import Message


# --- packet ids in flight -----------------------------------------------------------------------------------------

RUN_MAX: Final = 1024          # acknowledgements compared at once: a longer try costs too much when it fails
LAST_ID: Final = PACKET_IDS - 1
INFLIGHT_LIMIT: Final = LAST_ID - 1
NOTHING_EARLY: Final[set[int]] = set()         # of who acknowledges in order: a set of its own takes 216 bytes
NOTHING_EXACT: Final[dict[int, bool]] = {}

NOT_ITS_ANSWER: Final = {PUBACK: "[MQTT-4.3.3-1] a PUBACK for a PUBLISH with QoS 2",
                         PUBREC: "[MQTT-4.3.2-2] a PUBREC for a PUBLISH with QoS 1",
                         PUBCOMP: "[MQTT-4.3.3-2] a PUBCOMP without a PUBREC before it"}
"""Answers that no client has a reason to send (4.8)."""


class Window:
    """Which packet ids of our PUBLISH packets are in flight. `inflight_max`: 1 to `INFLIGHT_LIMIT`.

    Ids are given in order, 1 after 65535, so that what is in flight is a span of the ring and acknowledgements in the
    order of sending, as [MQTT-4.6.0-2] demands, are checked a run at a time by comparing bytes. Those that come out of
    order are kept until what is before them has come: no id is given again while it is in flight. A client that never
    acknowledges one message therefore gets no more than `INFLIGHT_LIMIT` after it.

    `lowest`: the ids below belong to somebody else, the client's durable session. Then what is given at once does not
    go beyond the end of the ring.
    """

    def __init__(self, inflight_max: int, lowest: int = 1) -> None:
        self._inflight_max: int = inflight_max
        self._lowest: int = lowest
        self._size: int = LAST_ID - lowest + 1     # of the ring
        self._oldest: int = lowest                     # the id that was given longest ago and is not acknowledged
        self._span: int = 0                        # ids given from there on, acknowledged out of order or not
        self._early: set[int] = NOTHING_EARLY      # those of the span that are acknowledged already
        self._exact: dict[int, bool] = NOTHING_EXACT   # those with QoS 2, and whether PUBREC has come

    def room(self) -> int:
        """How many messages may be sent now."""
        span_room = self._size - 1 - self._span
        quota = self._inflight_max - self._span + len(self._early)
        if self._lowest > 1:
            span_room = min(span_room, PACKET_IDS - self._first())
        return quota if quota < span_room else span_room

    def set_max(self, inflight_max: int) -> None:
        """So many may be in flight from now on."""
        self._inflight_max = inflight_max

    def _first(self) -> int:
        """The id that is given next."""
        first = self._oldest + self._span
        return first - self._size if first > LAST_ID else first

    def in_flight(self) -> int:
        return self._span - len(self._early)

    def take(self, count: int, exact: bool = False) -> int:
        """Give out `count` ids, at most `room()`; returns the first, the others follow it on the ring. `exact`: for
        QoS 2."""
        first = self._first()
        self._span += count
        if exact:
            if self._exact is NOTHING_EXACT:
                self._exact = {}
            for n in range(count):
                self._exact[(first - self._lowest + n) % self._size + self._lowest] = False
        return first

    def acknowledge(self, data: bytes, pos: int) -> int:
        """Take the whole PUBACK packets from `pos` on; returns the position of what is no whole PUBACK of four bytes.

        An id that is not in flight is ignored: it may be a late answer on a connection that began anew.
        Ends before one that breaks the protocol; raises ProtocolError where that is the first.
        """
        start, end = pos, len(data)
        while end - pos >= PUBACK_SIZE and data[pos] == 0x40:
            run = min((end - pos) // PUBACK_SIZE, RUN_MAX)
            in_order = min(run, self._span, PACKET_IDS - self._oldest)
            size = in_order * PUBACK_SIZE
            at = self._oldest * PUBACK_SIZE
            if in_order > 0 and not self._early and not self._exact and data[pos:pos + size] == PUBACKS[at:at + size]:
                self._advance(in_order)
                pos += size
                continue
            while run > 0 and data[pos] == 0x40:
                if data[pos + 1] != 2:
                    return pos
                try:
                    self.acknowledge_one(data[pos + 2] << 8 | data[pos + 3])
                except ProtocolError:
                    if pos == start:
                        raise
                    return pos
                pos += PUBACK_SIZE
                run -= 1
        return pos

    def acknowledge_one(self, packet_id: int) -> None:
        """A PUBACK. Raises ProtocolError."""
        if packet_id == 0:
            raise ProtocolError("[MQTT-2.3.1-1] a PUBACK with packet id 0")
        if packet_id in self._exact:
            raise ProtocolError(NOT_ITS_ANSWER[PUBACK])
        self._give_back(packet_id)

    def has_received(self, packet_id: int) -> bool:
        """A PUBREC that says yes: the client has the message. False where nothing is in flight under this id. Raises
        ProtocolError for what was sent with QoS 1."""
        if packet_id not in self._exact:
            if self._is_in_flight(packet_id):
                raise ProtocolError(NOT_ITS_ANSWER[PUBREC])
            return False
        self._exact[packet_id] = True
        return True

    def _is_in_flight(self, packet_id: int) -> bool:
        distance = packet_id - self._oldest
        if distance < 0:
            distance += self._size
        return packet_id >= self._lowest and distance < self._span and packet_id not in self._early

    def finish(self, packet_id: int) -> bool:
        """A PUBCOMP: as `complete`. Raises ProtocolError where PUBREC has not come."""
        if not self._exact.get(packet_id, not self._is_in_flight(packet_id)):
            raise ProtocolError(NOT_ITS_ANSWER[PUBCOMP])
        return self.complete(packet_id)

    def complete(self, packet_id: int) -> bool:
        """PUBCOMP, or a PUBREC that says no: the id is free. False where no such PUBLISH with QoS 2 is in flight."""
        if self._exact.pop(packet_id, None) is None:
            return False
        self._give_back(packet_id)
        return True

    def _give_back(self, packet_id: int) -> None:
        if packet_id < self._lowest:
            return
        distance = packet_id - self._oldest
        if distance < 0:
            distance += self._size
        if distance >= self._span:
            return
        if distance:
            if self._early is NOTHING_EARLY:
                self._early = set()
            self._early.add(packet_id)
            return
        self._advance(1)
        while self._oldest in self._early:
            self._early.discard(self._oldest)
            self._advance(1)

    def _advance(self, count: int) -> None:
        self._span -= count
        self._oldest += count
        if self._oldest > LAST_ID:
            self._oldest -= self._size


# --- the outbox ---------------------------------------------------------------------------------------------------

LARGE_BYTES: Final = 4096              # packets of QoS 1 that are larger on average are not joined: a buffer costs 1 us
NOT_RECEIVED: Final = 0x80             # and above: the client has not taken the message (2.4)


class Sender(Protocol):
    """A session, as its outbox knows it."""

    def give_up(self, reason: str) -> None:
        """End the connection of a client that can no longer be served without a gap."""

    def pump_later(self, wait_ms: int) -> None:
        """`Outbox.pump` then, in hub time."""


class Outbox:
    """What one client is sent, and what of it is in flight. The switchboard's `LiveListener`."""

    def __init__(self, link: Link, guard: Guard, clients: Clients, config: MqttConfig, trace: Trace,
                 session: Sender, outgoing: Outgoing | None = None) -> None:
        self.link = link
        self.guard = guard
        self.clients = clients
        self.config = config
        self.trace = trace
        self.flow = trace.flow("mqtt")
        self.session: Sender = session             # decision 319
        self.outgoing = outgoing                   # MQTT 5 alone
        self.most_in_flight: int = (config.max_inflight if outgoing is None
                                    else min(config.max_inflight, outgoing.receive_maximum))
        self.window = Window(self.most_in_flight)
        self.own: OwnMessages | None = None        # where the client has a filter with no-local
        self.durable: DurableSession | None = None             # what is above QoS 0 comes from it,
        self.durable_has_all = False                           # and QoS 0, too
        self._backlog: Backlog | None = None       # made when needed: most clients never fall behind
        self._feed: RetainedFeed | None = None
        self.choosing: Choosing | None = None      # where a filter has a selector or a history
        self.shares: Shares | None = None          # likewise: made with the first shared subscription
        self.transacting: Transacting | None = None            # likewise
        self._ended = False
        self._room = 0                             # bytes that may still be written
        self.left = NO_BOUND                      # messages that limits let out
        self._parts: list[bytes] = []              # sent and not written yet

    def take_part_by(self, shares: Shares) -> None:
        """The client has a shared filter: this is what it takes by them."""
        self.shares = shares

    def describe(self) -> dict[str, int]:
        backlog = self._backlog
        durable = 0 if self.durable is None else self.durable.in_flight
        return {"in_flight": self.window.in_flight() + durable,
                "waiting_bytes": 0 if backlog is None else backlog.waiting_bytes,
                "waiting_ranges": 0 if backlog is None else backlog.ranges}

    def end(self) -> None:
        """The connection is over: nothing is sent any more and nothing is kept."""
        self._ended = True
        if self._feed is not None:
            self._feed.clear()
        if self._backlog is not None:
            self._backlog.clear()
        if self.choosing is not None:
            self.choosing.end()
        if self.shares is not None:
            self.shares.end()
        if self.transacting is not None:
            self.transacting.end()
        self._feed = self._backlog = self.choosing = self.shares = self.transacting = None  # decision 297
        self.durable = self.outgoing = None

    def may_send(self, acknowledged: bool) -> bool:
        """Whether socket, and above QoS 0 the window, have room."""
        if acknowledged and self.durable is not None:
            self.durable.share()
        return (self.window.room() > 0 or not acknowledged) and self.room_now() > 0

    @property
    def has_room(self) -> bool:
        """Whether the socket takes more."""
        return self.room_now() > 0

    def room_now(self) -> int:
        """Bytes that may be written now; `left` says how many messages."""
        room = self.clients.unsent.allowed(self.config.max_unsent_bytes) - self.link.unsent_bytes
        if not self.guard.limits_out:
            self.left = NO_BOUND
            return room
        self.left, size_bytes = self.guard.out_room()
        if not self.left:
            self.session.pump_later(self.guard.out_wait_ms())
        return min(room, size_bytes)

    def handed_out(self, messages: int, size_bytes: int, topic: str = "", address: str = "", group: str = "") -> None:
        """So much was written: for counters and limits."""
        self.flow.messages_out += messages
        self.flow.bytes_out += size_bytes
        if self.guard.limits_out:
            self.left -= messages
            wait_ms = self.guard.hand_out(messages, size_bytes, topic, address, group)
            if wait_ms:
                self._room = self.left = 0
                self.session.pump_later(wait_ms)

    def take(self, count: int, exact: bool) -> int:
        """`Window.take`; the client's session, where there is one, has so much less room."""
        first = self.window.take(count, exact)
        if self.durable is not None:
            self.durable.share()
        return first

    def acknowledge(self, data: bytes, pos: int) -> int:
        """`Window.acknowledge`, and send what was waiting for room."""
        if self.durable is not None:
            return self._acknowledge_by_id(data, pos, self.durable)
        start = pos
        pos = self.window.acknowledge(data, pos)
        if self.shares is not None and pos > start:
            self.shares.on_acknowledged(data, start, pos)
        self.pump()
        return pos

    def _acknowledge_by_id(self, data: bytes, pos: int, durable: DurableSession) -> int:
        """`acknowledge`, where some packet ids are those of a durable session."""
        packet_ids = plain_ids(data, pos, PUBACK)
        numbers = [int.from_bytes(raw, "big") for raw in packet_ids]
        self._acknowledge_durable(PUBACK, [number for number in numbers if number <= IDS_MAX], durable)
        for number in numbers:
            if number > IDS_MAX:
                self.window.acknowledge_one(number)
                self._answered(number, True)
        self.pump()
        return pos + len(packet_ids) * PUBACK_SIZE

    @staticmethod
    def _acknowledge_durable(first: int, numbers: list[int], durable: DurableSession) -> None:
        """These packet ids are done with, as the packet that begins with `first` says. Raises ProtocolError."""
        if not durable.awaits(first, numbers):
            durable.acknowledge(_before_fault(first, numbers, durable))
            raise ProtocolError(NOT_ITS_ANSWER[first])
        durable.acknowledge(numbers)

    def _answered(self, packet_id: int, taken: bool) -> None:
        """The client has what was sent under this packet id of the connection's, or says that it does not want it."""
        if self.shares is not None:
            self.shares.on_answered(packet_id, taken)
        if self.choosing is not None:
            self.choosing.on_answered(packet_id)

    def acknowledge_one(self, packet_id: int, reason: int) -> None:
        """An MQTT 5 PUBACK that says more than yes. Raises ProtocolError."""
        if self.durable is not None and 0 < packet_id <= IDS_MAX:
            self._acknowledge_durable(PUBACK, [packet_id], self.durable)
            return
        self.window.acknowledge_one(packet_id)
        self._answered(packet_id, reason < NOT_RECEIVED)
        self.pump()

    def take_exact(self, data: bytes, pos: int, size: int) -> int:
        """Take the PUBREC packets from `pos` on, or the PUBCOMP packets, that say yes and nothing else; the first has
        this size. Returns the position behind them. Raises ProtocolError."""
        first = data[pos]
        packet_ids = plain_ids(data, pos, first)
        if not packet_ids:
            return pos + size
        if first == PUBREC:
            self.receive(packet_ids)
        else:
            numbers = [int.from_bytes(packet_id, "big") for packet_id in packet_ids]
            if self.durable is not None:
                self._acknowledge_durable(PUBCOMP, [number for number in numbers if number <= IDS_MAX], self.durable)
                numbers = [number for number in numbers if number > IDS_MAX]
            for number in numbers:
                self.window.finish(number)
            self.pump()
        return pos + len(packet_ids) * PUBACK_SIZE

    def receive(self, packet_ids: list[bytes]) -> None:
        """The client has these messages of QoS 2: they are released. Raises ProtocolError."""
        if self.durable is not None:
            durable_ids = [raw for raw in packet_ids if int.from_bytes(raw, "big") <= IDS_MAX]
            if durable_ids:
                numbers = [int.from_bytes(raw, "big") for raw in durable_ids]
                if not self.durable.awaits(PUBREC, numbers):
                    sound = _before_fault(PUBREC, numbers, self.durable)
                    self.durable.receive([PACKET_ID_BYTES[number] for number in sound])
                    raise ProtocolError(NOT_ITS_ANSWER[PUBREC])
                self.durable.receive(durable_ids)
                packet_ids = [raw for raw in packet_ids if int.from_bytes(raw, "big") > IDS_MAX]
        released: list[bytes] = []
        unknown: list[bytes] = []
        for raw in packet_ids:
            packet_id = int.from_bytes(raw, "big")
            if self.window.has_received(packet_id) or self.outgoing is None:
                released.append(raw)
                self._answered(packet_id, True)
            else:
                unknown.append(raw)
        if unknown:
            self.link.write(b"".join([encode_ack(PUBREL, raw, reasons.ID_NOT_FOUND) for raw in unknown]))
        if released:
            self.link.write(encode_pubrels(released))

    def answer_exact(self, first: int, packet_id: int, reason: int) -> None:
        """An MQTT 5 PUBREC or PUBCOMP that says more than yes. Raises ProtocolError."""
        if first == PUBREC and reason < NOT_RECEIVED:
            self.receive([packet_id.to_bytes(2, "big")])
            return
        if self.durable is not None and packet_id <= IDS_MAX:
            self._acknowledge_durable(first, [packet_id], self.durable)
            return
        if first == PUBREC:
            self.window.has_received(packet_id)
            self.window.complete(packet_id)
            self._answered(packet_id, False)
        else:
            self.window.finish(packet_id)
        self.pump()

    def pump(self) -> None:
        """Send what waits, as far as window and socket allow."""
        if self.durable is not None:
            self.durable.pump()
        feed = self._feed
        if feed is not None:
            if feed.waits:
                feed.pump()
            else:                          # all was sent: nobody asks it again for each message
                self._feed = None
        if self.choosing is not None:
            self.choosing.pump()
        backlog = self._backlog
        if backlog is not None:
            backlog.pump()
        if self.shares is not None:
            self.shares.pump()
        if self.transacting is not None:
            self.transacting.pump()

    def give_retained(self, topic_filter: str, granted: int, start: str = "") -> None:
        """A new subscription, or the same again [MQTT-3.8.4-3]: it is sent what is retained, from an address on."""
        if self._feed is None:
            self._feed = RetainedFeed(self.guard, self._retained_room, self._send_retained, self._retained_moved)
        self._feed.add(topic_filter, granted, start)

    def _retained_moved(self, topic_filter: str, granted: int, start: str | None) -> None:
        if granted and self.durable is not None:
            self.durable.owe_retained(topic_filter, granted, start)

    def _retained_room(self, granted: int) -> int:
        if not self.may_send(granted > 0):
            return 0
        return self.window.room() if granted else PAGE_VALUES

    def _send_retained(self, topic_filter: str, granted: int, value: Retained) -> bool:
        """[MQTT-3.3.1-6], [MQTT-3.3.1-8] with RETAIN set."""
        if self.choosing is not None and not self.choosing.wants_retained(topic_filter, value.address, value.topic,
                                                                          value.record):
            return True
        message = stored_message(value.record)
        qos = qos_of(message[3], granted)
        if not self.may_send(qos > 0):
            return False
        outgoing = self.outgoing
        tail = b"" if outgoing is None else outgoing.retained_tail(message, value.address, topic_filter)
        topic = topic_field(value.address)
        fixed = len(topic) + (2 if qos else 0) + (0 if tail is None else len(tail))
        if tail is None:
            self.trace.on_event("mqtt", "expired")
        elif outgoing is not None and first_too_large([message], 0, 1, fixed, outgoing.packet_bytes_max) == 0:
            self.trace.on_event("mqtt", "dropped_large")
        elif qos and self.durable is not None:
            entrusted = Entrusted(qos, value.address, 0 if outgoing is None else outgoing.identifier_of(topic_filter),
                                  message[2], message[1] or b"", message[3], message[4])
            self.durable.entrust([entrusted], topic, tail, 0x31 | qos << 1)
        else:
            self._send_one(0x31 | qos << 1, topic, qos, tail, message[1] or b"")
        return True

    def send_document(self, topic: bytes, qos: int, document: bytes, *, retain: bool = False) -> bool:
        """Something that the hub itself tells the client; False where socket or window have no room."""
        if not self.may_send(qos > 0):
            return False
        outgoing = self.outgoing
        size = len(topic) + len(document) + (2 if qos else 0) + 1
        if outgoing is not None and len(encode_variable(size)) + 1 + size > outgoing.packet_bytes_max:
            self.trace.on_event("mqtt", "dropped_large")
        else:
            self._send_one(0x30 | qos << 1 | retain, topic, qos, b"" if outgoing is None else b"\0", document)
        return True

    def _send_one(self, first: int, topic: bytes, qos: int, tail: bytes, value: bytes) -> None:
        packet_id = PACKET_ID_BYTES[self.take(1, qos == 2)] if qos else b""
        encoded = encode_publish(first, topic, packet_id, tail, value)
        self.link.write(encoded)
        self.handed_out(1, len(encoded))

    def look_again(self) -> None:
        """Rights have changed: what waits and may not be had any more is dropped."""
        if self._backlog is not None:
            self._backlog.look_again()
            self.pump()

    def forget_filter(self, topic_filter: str) -> None:
        """The subscription is over."""
        if self._feed is not None:
            self._feed.remove(topic_filter)

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        """Everything of one flush for this client, in append order. `options` of a delivery is the granted QoS."""
        if self._ended:
            return
        try:
            self._deliver(deliveries)
        except Exception:
            self.session.give_up("internal_error: a delivery failed")  # no gap is gone on with; the kernel logs it
            raise
        self.pump()

    def _deliver(self, deliveries: list[Delivery]) -> None:
        self.begin()
        for address, messages, offset, granted in deliveries:
            if self.choosing is not None:
                for start, end, qos in self.choosing.portions(address, messages, offset, granted):
                    self._deliver_chosen(address, messages, offset, qos, start, end)
            elif self.own is None:
                self._deliver_run(address, messages, offset, granted, 0, len(messages))
            else:
                self._deliver_chosen(address, messages, offset, granted, 0, len(messages))
            if self._ended:              # it was given up
                return
        self.flush()

    def _deliver_run(self, address: HeardAddress, messages: list[Message], offset: int, granted: int, start: int,
                     end: int, own_qos: int = -1) -> None:
        """`messages[start:end]`; the first of all of them is at `offset`. `own_qos`: they are the client's own, and go
        to its filters that want those, with this QoS at most; -1: they are not."""
        while start < end:
            stop = min(end, run_of(messages, start)) if granted else end
            qos = 0 if messages[start][3] & TRANSIENT else granted
            if (qos or self.durable_has_all) and self.durable is not None:
                start = stop
                continue
            if not qos and self.guard.shedding.level >= QOS_0:
                self.guard.shedding.counts[QOS_0] += stop - start
                self.trace.on_event("mqtt", "dropped_overload", stop - start)
                start = stop
                continue
            if own_qos >= 0:
                qos = min(qos, own_qos)
            backlog = self._backlog
            sent = start
            if backlog is None or not backlog.holds(qos > 0):
                sent = self.send(address, messages, start, stop, qos, own_qos >= 0)
            if sent < stop:
                self._keep(address, messages, sent, stop, offset + sent, qos, own_qos >= 0)
                if self._ended:          # it was given up
                    return
            start = stop

    def _deliver_chosen(self, address: HeardAddress, messages: list[Message], offset: int, granted: int, start: int,
                        end: int) -> None:
        """`messages[start:end]`. Where the client has a filter with no-local, what it has published itself is left out
        unless another filter asks for it [MQTT5-3.8.3-3]; then that alone counts."""
        own, outgoing = self.own, self.outgoing
        no_local, own_qos = (NO_FILTERS, -1) if own is None or outgoing is None else outgoing.of_own(address.address)
        if own is None or not no_local:
            self._deliver_run(address, messages, offset, granted, start, end)
            return
        while start < end and not self._ended:
            is_own = own.holds(address.partition_id, offset + start)
            stop = start + 1
            while stop < end and own.holds(address.partition_id, offset + stop) is is_own:
                stop += 1
            if not is_own:
                self._deliver_run(address, messages, offset, granted, start, stop)
            elif own_qos >= 0:
                self._deliver_run(address, messages, offset, granted, start, stop, own_qos)
            start = stop

    def begin(self) -> None:
        """Look how much may be written; then `send`, any number of times, then `flush`."""
        self._room = self.room_now()

    def send(self, address: HeardAddress, messages: list[Message], start: int, stop: int, qos: int, is_own: bool
             ) -> int:
        """Send of `messages[start:stop]` what window and socket have room for; returns the first that was not sent.
        `qos`: the highest they are sent with; with 0 all of them are. `is_own`: the client has published them, and has
        filters that leave those out."""
        if qos:
            stop = min(stop, start + self.window.room())
        stop = min(stop, start + self.left)
        if start >= stop or self._room <= 0:
            return start
        if self.outgoing is not None:
            return self._send_dressed(address, messages, start, stop, qos, self.outgoing, is_own)
        topic = self.clients.topic_fields[address.address]
        if qos < 2:
            return self._send_run(address, topic, b"", messages, start, stop, qos, False)
        while start < stop and self._room > 0:
            end = min(stop, run_of(messages, start, EXACTLY_ONCE))
            reached = self._send_run(address, topic, b"", messages, start, end, qos_of(messages[start][3], 2), False)
            if reached < end:
                return reached
            start = end
        return start

    def _send_dressed(self, address: HeardAddress, messages: list[Message], start: int, stop: int, qos: int,
                      outgoing: Outgoing, is_own: bool) -> int:
        """MQTT 5: runs of messages with the same properties."""
        mask = EXACTLY_ONCE if qos == 2 else 0
        choosing = self.choosing if self.choosing is not None and self.choosing.has_selector(address.address) else None
        but = no_local = outgoing.of_own(address.address)[0] if is_own else NO_FILTERS
        as_published = outgoing.hands_on_retain(address.address, but)
        if as_published:
            mask |= RETAIN
        while start < stop and self._room > 0:
            end = min(stop, run_of(messages, start, mask, True))
            message = messages[start]
            if choosing is not None:         # a selector may look at the value
                end, but = start + 1, no_local | choosing.not_for(address, message)
                as_published = outgoing.hands_on_retain(address.address, but)
            shown = outgoing.properties_of(message, address.address)
            if shown is None:
                self.trace.on_event("mqtt", "expired", end - start)
                start = end
                continue
            run_qos = qos_of(message[3], qos) if qos else 0
            topic, tail = outgoing.topic_and_tail(self.clients.topic_fields[address.address], address.address, shown,
                                                  run_qos, but)
            fixed = len(tail) + (2 if run_qos else 0)
            large = first_too_large(messages, start, end, len(topic) + fixed, outgoing.packet_bytes_max)
            if large == start and topic != NO_TOPIC:           # an alias may make it larger
                topic, tail = outgoing.topic_and_tail(topic, address.address, shown, run_qos, but, aliased=False)
                fixed = len(tail) + (2 if run_qos else 0)
                large = first_too_large(messages, start, end, len(topic) + fixed, outgoing.packet_bytes_max)
            if large == start:           # [MQTT5-3.1.2-25] as if it had been sent
                self.trace.on_event("mqtt", "dropped_large")
                start += 1
                continue
            end = min(end, large)
            retain = as_published and message[3] & RETAIN != 0
            reached = self._send_run(address, topic, tail, messages, start, end, run_qos, retain)
            if reached > start:
                outgoing.has_named(address.address)
            if reached < end:
                return reached
            start = end
        return start

    def _send_run(self, address: HeardAddress, topic: bytes, tail: bytes, messages: list[Message], start: int,
                  stop: int, qos: int, retain: bool) -> int:
        """Send of messages that differ in nothing but their values what the socket has room for."""
        fixed = len(topic) + len(tail) + (2 if qos else 0)
        stop, size = fitting(messages, start, stop, self._room, fixed)
        count = stop - start
        first = 0x30 | qos << 1 | retain
        if not qos:
            if count == len(messages) and len(address.sessions) > 1 and not retain and (not tail or tail == b"\0"):
                self._parts.append(self.clients.encode_shared(topic + tail, messages, dressed=len(tail) > 0))
            else:
                self._parts.append(encode_qos0(topic + tail, messages, start, stop, first))
        elif size >= count * LARGE_BYTES:
            self._parts += parts_qos1(topic, messages, start, stop, self.window.take(count, qos == 2), tail, first)
        else:
            self._parts.append(encode_qos1(topic, messages, start, stop, self.window.take(count, qos == 2), tail,
                                           first))
        self._room -= size
        self.handed_out(count, size, address.topic, address.address)
        return stop

    def flush(self) -> None:
        """Write what was sent."""
        parts = self._parts
        if parts:
            self._parts = []
            if len(parts) == 1:
                self.link.write(parts[0])
            else:
                self.link.write_many(parts)

    def _keep(self, address: HeardAddress, messages: list[Message], start: int, stop: int, offset: int,
              qos: int, is_own: bool) -> None:
        if self._backlog is None:
            self._backlog = Backlog(self)
        self._backlog.keep(address, messages, start, stop, offset, qos, is_own)


def _before_fault(first: int, numbers: list[int], durable: DurableSession) -> list[int]:
    """Which of these may be answered by packets that begin so, up to the first that may not."""
    return list(takewhile(lambda number: durable.awaits(first, [number]), numbers))
