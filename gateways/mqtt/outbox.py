"""What one client is sent: deliveries to the wire while it keeps up, else what its QoS allows.

    on_delivery -> [sent at once]       while the client keeps up
                -> backlog              when its socket is full, or its window (QoS 1), or something older waits
                -> dropped and counted  QoS 0, when the backlog is full too

What waits is sent before anything newer of its QoS, so the order of each topic and QoS is kept [MQTT-4.6.0-6].

What is written and not taken is bounded twice: by `max_unsent_bytes` and by what the budget of all connections allows.
Of a large burst one piece is sent at once and the rest waits for its turn (`backlog.CatchingUp`); either the socket
takes such a piece, or the connection is slow and is told when it is not any more. Large values are not copied: they are
the same bytes for every client.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.mqtt.backlog import Backlog
from gatehouse.gateways.mqtt.codec import (
    PACKET_ID_BYTES,
    PACKET_IDS,
    PUBACK_SIZE,
    PUBACKS,
    encode_qos0,
    encode_qos1,
    fitting,
    parts_qos1,
    run_of,
)
from gatehouse.gateways.mqtt.errors import MalformedPacket, ProtocolError
from gatehouse.gateways.mqtt.packets import encode_retained
from gatehouse.gateways.retained_feed import PAGE_VALUES, RetainedFeed
from gatehouse.kernel.message import TRANSIENT, Retained

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.admission.trace import Trace
    from gatehouse.gateways.contract import Link
    from gatehouse.gateways.mqtt.clients import Clients
    from gatehouse.gateways.mqtt.config import MqttConfig
    from gatehouse.gateways.mqtt.shares import Shares
    from gatehouse.gateways.mqtt.transacting import Transacting
    from gatehouse.gateways.switchboard import Delivery, HeardAddress
    from gatehouse.kernel.api import Message

LARGE_BYTES: Final = 4096              # packets of QoS 1 that are larger on average are not joined: a buffer costs 1 us
RUN_MAX: Final = 1024          # acknowledgements compared at once: a longer try costs too much when it fails
LAST_ID: Final = PACKET_IDS - 1
INFLIGHT_LIMIT: Final = LAST_ID - 1


class Window:
    """Which packet ids of our PUBLISH packets are in flight. `inflight_max`: 1 to `INFLIGHT_LIMIT`.

    Ids are given in order, 1 after 65535, so that what is in flight is a span of the ring and acknowledgements in the
    order of sending, as [MQTT-4.6.0-2] demands, are checked a run at a time by comparing bytes. Those that come out of
    order are kept until what is before them has come: no id is given again while it is in flight. A client that never
    acknowledges one message therefore gets no more than `inflight_max` after it.
    """

    def __init__(self, inflight_max: int) -> None:
        self._inflight_max: int = inflight_max
        self._oldest: int = 1                      # the id that was given longest ago and is not acknowledged
        self._span: int = 0                        # ids given from there on, acknowledged out of order or not
        self._early: set[int] = set()              # those of the span that are acknowledged already

    def room(self) -> int:
        """How many messages may be sent now."""
        return self._inflight_max - self._span

    def in_flight(self) -> int:
        return self._span - len(self._early)

    def take(self, count: int) -> int:
        """Give out `count` ids, at most `room()`; returns the first, the others follow it on the ring."""
        first = self._oldest + self._span
        if first > LAST_ID:
            first -= LAST_ID
        self._span += count
        return first

    def acknowledge(self, data: bytes, pos: int) -> int:
        """Take the whole PUBACK packets from `pos` on; returns the position of what is no whole PUBACK.

        An id that is not in flight is ignored: it may be a late answer on a connection that began anew.
        Raises ProtocolError.
        """
        end = len(data)
        while end - pos >= PUBACK_SIZE and data[pos] == 0x40:
            run = min((end - pos) // PUBACK_SIZE, RUN_MAX)
            in_order = min(run, self._span, PACKET_IDS - self._oldest)
            size = in_order * PUBACK_SIZE
            at = self._oldest * PUBACK_SIZE
            if in_order > 0 and not self._early and data[pos:pos + size] == PUBACKS[at:at + size]:
                self._advance(in_order)
                pos += size
                continue
            while run > 0 and data[pos] == 0x40:
                if data[pos + 1] != 2:
                    raise MalformedPacket("a PUBACK whose remaining length is not 2 (3.4.1)")
                self._acknowledge_one(data[pos + 2] << 8 | data[pos + 3])
                pos += PUBACK_SIZE
                run -= 1
        return pos

    def _acknowledge_one(self, packet_id: int) -> None:
        if packet_id == 0:
            raise ProtocolError("[MQTT-2.3.1-1] a PUBACK with packet id 0")
        distance = packet_id - self._oldest
        if distance < 0:
            distance += LAST_ID
        if distance >= self._span:
            return
        if distance:
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
            self._oldest -= LAST_ID


class Outbox:
    """The switchboard's `LiveListener`.

    `give_up(reason)` ends the connection of a client that can no longer be served without a gap.
    """

    def __init__(self, link: Link, guard: Guard, clients: Clients, config: MqttConfig, trace: Trace,
                 give_up: Callable[[str], None]) -> None:
        self.link = link
        self.guard = guard
        self.clients = clients
        self.config = config
        self.trace = trace
        self.flow = trace.flow("mqtt")
        self.give_up = give_up
        self.window = Window(config.max_inflight)
        self._backlog: Backlog | None = None       # made when needed: most clients never fall behind
        self._feed: RetainedFeed | None = None
        self.shares: Shares | None = None          # likewise: made with the first shared subscription
        self.transacting: Transacting | None = None            # likewise
        self._ended = False
        self._room = 0                             # bytes that may still be written
        self._parts: list[bytes] = []              # sent and not written yet

    def describe(self) -> dict[str, int]:
        backlog = self._backlog
        return {"in_flight": self.window.in_flight(),
                "waiting_bytes": 0 if backlog is None else backlog.waiting_bytes,
                "waiting_ranges": 0 if backlog is None else backlog.ranges}

    def end(self) -> None:
        """The connection is over: nothing is sent any more and nothing is kept."""
        self._ended = True
        if self._feed is not None:
            self._feed.clear()
        if self._backlog is not None:
            self._backlog.clear()
        if self.shares is not None:
            self.shares.end()
        if self.transacting is not None:
            self.transacting.end()

    def may_send(self, acknowledged: bool) -> bool:
        """Whether socket, and for QoS 1 the window, have room."""
        return (self.window.room() > 0 or not acknowledged) and self._room_now() > 0

    def _room_now(self) -> int:
        """Bytes that may be written now."""
        return self.clients.unsent.allowed(self.config.max_unsent_bytes) - self.link.unsent_bytes

    def acknowledge(self, data: bytes, pos: int) -> int:
        """`Window.acknowledge`, and send what was waiting for room."""
        start = pos
        pos = self.window.acknowledge(data, pos)
        if self.shares is not None and pos > start:
            self.shares.on_acknowledged(data, start, pos)
        self.pump()
        return pos

    def pump(self) -> None:
        """Send what waits, as far as window and socket allow."""
        if self._feed is not None:
            self._feed.pump()
        backlog = self._backlog
        if backlog is not None:
            backlog.pump()
        if self.shares is not None:
            self.shares.pump()
        if self.transacting is not None:
            self.transacting.pump()

    def give_retained(self, topic_filter: str, granted: int) -> None:
        """A new subscription, or the same again [MQTT-3.8.4-3]: it is sent what is retained."""
        if self._feed is None:
            self._feed = RetainedFeed(self.guard, self._retained_room, self._send_retained)
        self._feed.add(topic_filter, granted)

    def _retained_room(self, granted: int) -> int:
        if not self.may_send(granted > 0):
            return 0
        return self.window.room() if granted else PAGE_VALUES

    def _send_retained(self, topic_filter: str, granted: int, value: Retained) -> bool:
        """[MQTT-3.3.1-6], [MQTT-3.3.1-8] with RETAIN set."""
        acknowledged = granted > 0 and not value.record[5] & TRANSIENT
        if not self.may_send(acknowledged):
            return False
        packet_id = PACKET_ID_BYTES[self.window.take(1)] if acknowledged else b""
        encoded = encode_retained(value.address, packet_id, value.record[3] or b"")
        self.link.write(encoded)
        self.flow.messages_out += 1
        self.flow.bytes_out += len(encoded)
        return True

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
            self.give_up("internal_error: a delivery failed")      # rather than go on with a gap; the kernel logs it
            raise
        self.pump()

    def _deliver(self, deliveries: list[Delivery]) -> None:
        self.begin()
        for address, messages, offset, granted_qos in deliveries:
            end = len(messages)
            start = 0
            while start < end:
                stop = run_of(messages, start) if granted_qos else end
                acknowledged = granted_qos > 0 and not messages[start][3] & TRANSIENT
                backlog = self._backlog
                sent = start
                if backlog is None or not backlog.holds(acknowledged):
                    sent = self.send(address, messages, start, stop, acknowledged)
                if sent < stop:
                    self._keep(address, messages, sent, stop, offset + sent, acknowledged)
                    if self._ended:      # it was given up
                        return
                start = stop
        self.flush()

    def begin(self) -> None:
        """Look how much may be written; then `send`, any number of times, then `flush`."""
        self._room = self._room_now()

    def send(self, address: HeardAddress, messages: list[Message], start: int, stop: int, acknowledged: bool) -> int:
        """Send of `messages[start:stop]` what window and socket have room for; returns the first that was not sent."""
        if acknowledged:
            stop = min(stop, start + self.window.room())
        if start >= stop or self._room <= 0:
            return start
        topic = self.clients.topic_field(address)
        stop, size = fitting(messages, start, stop, self._room, len(topic) + 2 if acknowledged else len(topic))
        count = stop - start
        if not acknowledged:
            if count == len(messages) and len(address.sessions) > 1:
                self._parts.append(self.clients.encode_shared(topic, messages))
            else:
                self._parts.append(encode_qos0(topic, messages, start, stop))
        elif size >= count * LARGE_BYTES:
            self._parts += parts_qos1(topic, messages, start, stop, self.window.take(count))
        else:
            self._parts.append(encode_qos1(topic, messages, start, stop, self.window.take(count)))
        self.flow.messages_out += count
        self.flow.bytes_out += size
        self._room -= size
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
              acknowledged: bool) -> None:
        if self._backlog is None:
            self._backlog = Backlog(self)
        self._backlog.keep(address, messages, start, stop, offset, acknowledged)
