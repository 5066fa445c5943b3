"""A durable session at the door: what its client is sent and answers above QoS 0, and what waits for the disk.

    kernel ──► on_messages ──► PUBLISH, PUBREL        packet ids below `OWN_IDS`, durable already
    PUBACK, PUBCOMP ──► the session, answered by nobody
    PUBREC ──► the session ──► [durable] ──► PUBREL
    PUBLISH with QoS 2 ──► its id is taken in, in the frame of its message ──► [durable] ──► PUBREC, by `inbox`
    PUBREL ──► the session ──► [durable] ──► PUBCOMP

    retained values, messages of shared groups with QoS 2 ──► entrusted to the session ──► [durable] ──► PUBLISH

The ids from `OWN_IDS` on are the connection's: messages of shared groups with QoS 1, and histories, which do not
outlive it. Both share the client's receive maximum.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from gatehouse.gateways.admission.guarded_session import GuardedSession
from gatehouse.gateways.mqtt import properties, reasons
from gatehouse.gateways.mqtt.codec import (
    PACKET_ID_BYTES,
    encode_publish,
    encode_pubrels,
    first_too_large,
)
from gatehouse.gateways.mqtt.mapping import topic_field
from gatehouse.gateways.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, encode_ack
from gatehouse.gateways.mqtt.properties import encode_property, with_length
from gatehouse.kernel.message import Stored
from gatehouse.kernel.records.batch import add_header, encode_headers
from gatehouse.kernel.sessions.session_values import IDS_MAX, Entrusted, Outgoing, Owed, Released, Subscribed

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.mqtt.outbox import Outbox
    from gatehouse.kernel.api import Message, SessionsPort

OWN_IDS: Final = IDS_MAX + 1           # the lowest packet id of what does not outlive the connection
DUP: Final = 8
ANSWERED_BY: Final = {PUBACK: frozenset((1,)), PUBREC: frozenset((2, 3)), PUBCOMP: frozenset((3,))}
"""Which steps of what is in flight (`SessionPort.steps`) a packet answers; a PUBREC may come again."""

RETAIN: Final = 1


Waiting = tuple[bytes, "Callable[[], None] | None"]
"""What is written once something is durable, and what is done then."""


class Welcome:
    """Waits for what must be durable before a client is let in."""

    def __init__(self, then: Callable[[], None], fail: Callable[[str], None]) -> None:
        self._then = then
        self._fail = fail
        self._awaited = 0
        self.waits = False

    def expect(self) -> Welcome:
        """One answer more; then itself, as the owner to be told."""
        self._awaited += 1
        self.waits = True
        return self

    def on_stored(self, stored: list[Stored]) -> None:
        for answer in stored:
            if not self.waits:
                return
            self._awaited -= 1
            if answer.error is not None:
                self.waits = False
                self._fail(f"{getattr(answer.error, 'code', 'internal_error')}: {answer.error}")
        if self.waits and not self._awaited:
            self.waits = False
            self._then()


class DurableSession:
    """What a connection has of the session that outlives it. Made when CONNECT is accepted; `start` when CONNACK has
    left."""

    __slots__ = ("_end", "_held", "_link", "_most", "_outbox", "_over", "_session")

    def __init__(self, guard: Guard, sessions: SessionsPort, outbox: Outbox, client_id: str, receive_maximum: int,
                 end: Callable[[str], None], *, clean: bool, expiry_ms: int, welcome: Welcome) -> None:
        """Raises SessionRefused, TooManySessions, Stopping."""
        self._outbox = outbox
        self._link = outbox.link
        self._end = end
        self._most = receive_maximum               # in flight, those of the connection included
        self._held = True
        self._over = False
        self._session = GuardedSession(guard, sessions, self, client_id, clean=clean, expiry_ms=expiry_ms,
                                       window=receive_maximum, owner=welcome, token=None)
        welcome.expect()

    @property
    def present(self) -> bool:
        """Whether it was there before."""
        return self._session.present

    @property
    def in_flight(self) -> int:
        return self._session.in_flight

    def start(self) -> None:
        """CONNACK has left: what waits may follow."""
        self._held = False
        self.share()
        self._session.hold(False)

    def sleep(self, expiry_ms: int) -> None:
        """The connection is over; the session waits so long for another."""
        self._over = True
        self._session.sleep(expiry_ms)

    def on_session_ended(self, reason: str) -> None:
        """See `guarded_session.SessionConnection`."""
        if not self._over:
            self._over = True
            self._end(reason)

    # ---- filters

    def subscriptions(self) -> list[Subscribed]:
        return self._session.subscriptions()

    def subscribe(self, subscribed: Subscribed) -> None:
        """Raises Denied, and what `api.SessionPort.subscribe` raises."""
        self._session.subscribe(subscribed)

    def unsubscribe(self, topic_filter: str) -> None:
        self._session.unsubscribe(topic_filter)

    def begin_history(self, topic_filter: str, owed: Owed) -> None:
        """What the filter, which was just subscribed, is owed of before. Raises Stopping."""
        self._session.begin_history(topic_filter, owed)

    def histories(self) -> dict[str, Owed]:
        """What is owed still, by filter."""
        return self._session.histories()

    def move_history(self, topic_filter: str, reached: dict[int, int]) -> None:
        """The client is done with what is before these offsets."""
        if not self._over:
            self._session.move_history(topic_filter, reached)

    def end_history(self, topic_filter: str) -> None:
        """All of it has been sent."""
        if not self._over:
            self._session.end_history(topic_filter)

    def when_stored(self, packet: bytes, then: Callable[[], None] | None = None) -> None:
        """Write a packet when everything before it is durable, and then do what follows on it. Raises Stopping."""
        self._session.flush(self, (packet, then))

    # ---- pace

    def share(self) -> None:
        """What the client takes at once is shared with what its connection sends beside the session."""
        window = self._outbox.window
        window.set_max(max(0, self._most - self._session.in_flight))
        self._session.set_window(max(0, self._most - window.in_flight()))

    def pump(self) -> None:
        """The socket has room, or the window."""
        if self._over:
            return
        self.share()
        if self._held and self._outbox.has_room:
            self._held = False
            self._session.hold(False)

    # ---- out

    def on_messages(self, messages: list[Outgoing | Released]) -> None:
        """See `guarded_session.SessionConnection`."""
        if self._over:
            return
        try:
            self._send(messages)
        except Exception:
            self._end("internal_error: a delivery failed")     # rather than go on with a gap; the kernel logs it
            raise

    def _send(self, messages: list[Outgoing | Released]) -> None:
        parts: list[bytes] = []
        not_sent: list[int] = []
        count = len(messages)
        for message in messages:
            if isinstance(message, Released):
                parts.append(encode_pubrels([PACKET_ID_BYTES[message.packet_id]]))
                continue
            packet = self._encode(message)
            if packet:
                parts.append(packet)
            elif message.qos:
                not_sent.append(message.packet_id)
            else:
                count -= 1
        if not_sent:
            self._session.acknowledge(not_sent)
        if parts:
            self._link.write_many(parts)
            self._outbox.handed_out(count - len(not_sent), sum([len(part) for part in parts]))
        if not self._outbox.has_room:
            self._held = True
            self._session.hold(True)
        self.share()

    def _encode(self, message: Outgoing) -> bytes:
        """The PUBLISH; nothing where the client cannot have it, as if it had been sent [MQTT5-3.1.2-25]."""
        topic = topic_field(message.address)
        first = 0x30 | (DUP if message.dup else 0) | message.qos << 1 | (RETAIN if message.retain else 0)
        tail = b""
        outgoing = self._outbox.outgoing
        if outgoing is not None:
            stored: Message = (0, message.value, encode_headers(message.headers), message.attributes,
                               message.timestamp_ms)
            shown = outgoing.properties_of(stored, message.address, message.dup)
            if shown is None:
                self._outbox.trace.on_event("mqtt", "expired")
                return b""
            for identifier in message.identifiers:
                shown += encode_property(properties.SUBSCRIPTION_ID, identifier)
            topic, alias = outgoing.named(topic, message.address, message.qos)
            tail = with_length(shown + alias)
            if self._is_too_large(stored, topic, tail, message.qos):
                topic, tail = topic_field(message.address), with_length(shown)     # an alias may make it larger
                if self._is_too_large(stored, topic, tail, message.qos):
                    self._outbox.trace.on_event("mqtt", "dropped_large")
                    return b""
            elif alias:
                outgoing.has_named(message.address)
        packet_id = PACKET_ID_BYTES[message.packet_id] if message.qos else b""
        return encode_publish(first, topic, packet_id, tail, message.value or b"")

    def _is_too_large(self, stored: Message, topic: bytes, tail: bytes, qos: int) -> bool:
        outgoing = self._outbox.outgoing
        fixed = len(topic) + len(tail) + (2 if qos else 0)
        return outgoing is not None and first_too_large([stored], 0, 1, fixed, outgoing.packet_bytes_max) == 0

    def awaits(self, first: int, packet_ids: list[int]) -> bool:
        """Whether the client may answer each of these with the packet that begins so; what is not in flight it may
        answer with any."""
        return self._session.steps(packet_ids) <= ANSWERED_BY[first]

    def acknowledge(self, packet_ids: list[int]) -> None:
        """PUBACK or PUBCOMP came for these, or a refusal."""
        self._session.acknowledge(packet_ids)
        self.share()

    def receive(self, packet_ids: list[bytes]) -> None:
        """PUBREC came for these: PUBREL leaves when that is durable."""
        released: list[bytes] = []
        numbers = [int.from_bytes(raw, "big") for raw in packet_ids]
        unknown = set(self._session.receive(numbers, self, (b"", partial(self._send_released, released))))
        if unknown and self._outbox.outgoing is not None:      # 3.1.1 has no other word for them
            self._link.write(b"".join([encode_ack(PUBREL, PACKET_ID_BYTES[number], reasons.ID_NOT_FOUND)
                                       for number in unknown]))
            packet_ids = [raw for raw, number in zip(packet_ids, numbers, strict=True) if number not in unknown]
        released += packet_ids

    def _send_released(self, packet_ids: list[bytes]) -> None:
        if packet_ids:
            self._link.write(encode_pubrels(packet_ids))

    # ---- what the connection entrusts to its session  # decision 270

    def entrust(self, messages: Sequence[Entrusted], topic: bytes, tail: bytes, first: int, group: str = "") -> None:
        """Send these, all with the same topic and properties, once they are in flight over any end of the hub. `first`
        is the first byte of their packets. Raises Stopping."""
        parts: list[bytes] = []
        packet_ids: list[int] = []
        packet_ids += self._session.entrust(messages, self, (b"", partial(self._send_entrusted, messages[0].address,
                                                                           packet_ids, parts, group)))
        parts += [encode_publish(first, topic, PACKET_ID_BYTES[packet_id], tail, message.value)
                  for packet_id, message in zip(packet_ids, messages, strict=True) if packet_id]
        self.share()

    def _send_entrusted(self, address: str, packet_ids: list[int], parts: list[bytes], group: str) -> None:
        if parts and not self._outbox.guard.may_consume(address):      # not any more
            self._session.deny([packet_id for packet_id in packet_ids if packet_id])
        elif parts:
            self._link.write_many(parts)
            self._outbox.handed_out(len(parts), sum([len(part) for part in parts]), group=group)

    def owe_retained(self, topic_filter: str, qos: int, start: str | None) -> None:
        """Those of a filter's retained values from this address on are still to be sent; None: none. Raises
        Stopping."""
        if not self._over:
            self._session.owe_retained(topic_filter, qos, start)

    def owed_retained(self) -> dict[str, tuple[int, str]]:
        """QoS and first address of those that were still to be sent when the last connection ended, by filter."""
        return self._session.owed_retained()

    # ---- in

    def received(self) -> list[bytes]:
        """The packet ids of QoS 2 that came in before, and are not released."""
        return [PACKET_ID_BYTES[number] for number in self._session.received()]

    def take_in(self, packet_ids: list[bytes]) -> None:
        """These came with QoS 2, and their messages were appended in this turn."""
        for raw in packet_ids:
            self._session.take_in(int.from_bytes(raw, "big"))

    def release(self, packet_ids: list[bytes], comps: bytes) -> None:
        """PUBREL came: PUBCOMP (`comps`) leaves when that is durable."""
        self._session.release([int.from_bytes(raw, "big") for raw in packet_ids], self, (comps, None))

    def marked(self, messages: list[Message]) -> list[Message]:
        """What the client publishes says that it is its own, where it has a filter with no-local."""
        publisher = self._session.publisher
        if not publisher:
            return messages
        return [(place, value, add_header(headers, publisher), attributes, timestamp_ms)
                for place, value, headers, attributes, timestamp_ms in messages]

    # ---- durable

    def on_stored(self, stored: list[Stored]) -> None:
        """What waited for the disk leaves. What was refused has ended the session (`on_session_ended`)."""
        for answer in stored:
            if answer.error is None and not self._over:
                packet, then = cast(Waiting, answer.token)
                if packet:
                    self._link.write(packet)
                if then is not None:
                    then()
