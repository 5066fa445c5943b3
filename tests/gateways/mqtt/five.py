"""A reader of what an MQTT 5 client is sent, and a client to play with: for tests, on a hub without a socket."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gatehouse.gateways.contract import Session
from gatehouse.gateways.kit import FakeHub, FakeLink
from gatehouse.gateways.mqtt import GATEWAY
from gatehouse.gateways.mqtt.codec import body_at, fixed_header, packet_size
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.properties import NONE, Packet, Properties, decode_properties, encode_properties
from gatehouse.gateways.mqtt.reading import Fields

Pairs = list[tuple[int, Any]]


@dataclass
class Seen:
    """One packet that the hub sent."""

    kind: Packet | int
    first: int
    packet_id: int = 0
    reasons: list[int] = field(default_factory=list)
    properties: Properties = NONE
    topic: str = ""
    value: bytes = b""
    session_present: int = 0

    @property
    def reason(self) -> int:
        return self.reasons[0] if self.reasons else 0

    @property
    def qos(self) -> int:
        return self.first >> 1 & 3

    @property
    def retain(self) -> bool:
        return bool(self.first & 1)

    def user(self) -> list[tuple[str, str]]:
        return self.properties.user


def read_packets(data: bytes) -> list[Seen]:
    """Everything in these bytes, which end with a packet."""
    found, at = [], 0
    while at < len(data):
        size = packet_size(data, at, 1 << 28)
        assert size and at + size <= len(data), data[at:].hex(" ")
        found.append(_read(data[at], data[at:at + size]))
        at += size
    return found


def _read(first: int, packet: bytes) -> Seen:
    fields = Fields(packet[body_at(packet, 0):])
    number = first >> 4
    if number == 13:
        return Seen(13, first)
    kind = Packet(number)
    seen = Seen(kind, first)
    if kind is Packet.CONNACK:
        seen.session_present = fields.byte()
        seen.reasons = [fields.byte()]
    elif kind is Packet.PUBLISH:
        seen.topic = fields.text()
        seen.packet_id = fields.short() if seen.qos else 0
    elif kind in (Packet.DISCONNECT, Packet.AUTH):
        seen.reasons = [fields.byte()] if fields.more() else [0]
    else:
        seen.packet_id = fields.short()
        if kind not in (Packet.SUBACK, Packet.UNSUBACK):
            seen.reasons = [fields.byte()] if fields.more() else [0]
    if fields.more():
        start, end = fields.span()
        seen.properties = decode_properties(fields.body, start, end, kind)
    rest = fields.body[fields.at:]
    if kind is Packet.PUBLISH:
        seen.value = rest
    elif kind in (Packet.SUBACK, Packet.UNSUBACK):
        seen.reasons = list(rest)
    else:
        assert not rest
    return seen


def sized(raw: bytes) -> bytes:
    return len(raw).to_bytes(2, "big") + raw


def packet(first: int, body: bytes) -> bytes:
    return fixed_header(first, len(body)) + body


def connect_packet(client_id: str = "c", *, clean: bool = True, keep_alive_s: int = 0, properties: Pairs | None = None,
                   will: tuple[str, bytes, int, bool, Pairs] | None = None, user: str | None = None,
                   password: str | None = None) -> bytes:
    flags = 2 if clean else 0
    payload = sized(client_id.encode())
    if will is not None:
        topic, value, qos, retain, will_properties = will
        flags |= 4 | qos << 3 | (0x20 if retain else 0)
        payload += encode_properties(will_properties) + sized(topic.encode()) + sized(value)
    if user is not None:
        flags |= 0x80
        payload += sized(user.encode())
    if password is not None:
        flags |= 0x40
        payload += sized(password.encode())
    return packet(0x10, b"\0\4MQTT\5" + bytes((flags,)) + keep_alive_s.to_bytes(2, "big")
                  + encode_properties(properties or []) + payload)


def publish_packet(topic: str, value: bytes = b"", packet_id: int = 0, *, qos: int | None = None, retain: bool = False,
                   dup: bool = False, properties: Pairs | None = None) -> bytes:
    level = (1 if packet_id else 0) if qos is None else qos
    body = sized(topic.encode()) + (packet_id.to_bytes(2, "big") if level else b"")
    return packet(0x30 | level << 1 | retain | dup << 3, body + encode_properties(properties or []) + value)


def subscribe_packet(packet_id: int, *filters: tuple[str, int], properties: Pairs | None = None) -> bytes:
    return packet(0x82, packet_id.to_bytes(2, "big") + encode_properties(properties or [])
                  + b"".join(sized(name.encode()) + bytes((options,)) for name, options in filters))


def unsubscribe_packet(packet_id: int, *filters: str) -> bytes:
    return packet(0xA2, packet_id.to_bytes(2, "big") + b"\0" + b"".join(sized(name.encode()) for name in filters))


def ack_packet(first: int, packet_id: int, reason: int | None = None) -> bytes:
    return packet(first, packet_id.to_bytes(2, "big") + (b"" if reason is None else bytes((reason, 0))))


class Client:
    """An MQTT 5 client of a hub that a test holds in its hand."""

    def __init__(self, hub: FakeHub, client_id: str = "c", config: MqttConfig | None = None, *, connects: bool = True,
                 **said: Any) -> None:
        self.hub = hub
        session, link = hub.open(GATEWAY, config or MqttConfig())
        self.session: Session = session
        self.link: FakeLink = link
        self.connack = Seen(0, 0)
        self.behind: list[Seen] = []             # what came with CONNACK or SUBACK
        if connects:
            self.send(connect_packet(client_id, **said))
            hub.kernel.flush()
            [self.connack, *self.behind] = self.take()
            assert self.connack.kind is Packet.CONNACK and not self.connack.reason, self.connack

    def send(self, *data: bytes) -> None:
        self.session.handle_data(b"".join(data))

    def take(self) -> list[Seen]:
        return read_packets(self.link.take())

    def ask(self, *data: bytes) -> list[Seen]:
        """Send, let it become durable, and what came back."""
        self.send(*data)
        self.hub.kernel.flush()
        return self.take()

    def subscribe(self, *filters: tuple[str, int], identifier: int = 0) -> list[int]:
        properties: Pairs = [(0x0B, identifier)] if identifier else []
        seen = self.ask(subscribe_packet(9, *filters, properties=properties))
        assert seen[0].kind is Packet.SUBACK
        self.behind = seen[1:]
        return seen[0].reasons

    def received(self) -> list[Seen]:
        return [seen for seen in self.take() if seen.kind is Packet.PUBLISH]

    def ended(self) -> Seen:
        """How the hub ended the connection."""
        assert self.link.closed, "the connection is still open"
        seen = self.take()
        assert seen and seen[-1].kind in (Packet.DISCONNECT, Packet.CONNACK), (seen, self.link.reason)
        return seen[-1]
