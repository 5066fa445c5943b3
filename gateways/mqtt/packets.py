"""MQTT 3.1.1, the packets of which there are few: CONNECT, SUBSCRIBE, UNSUBSCRIBE, and the answers to them.

    CONNECT      0x10 | length | 0 4 "MQTT" | 4 | flags | keep alive s (2) | client id | will topic, will message |
                 user name | password        (each two bytes of size and as many bytes; those that the flags name)
                 flags: user name 0x80, password 0x40, will retain 0x20, will QoS 0x18, will 0x04, clean session 0x02
    SUBSCRIBE    0x82 | length | packet id (2) | (filter, QoS (1)) ...
    UNSUBSCRIBE  0xA2 | length | packet id (2) | filter ...

The decoders get the whole packet's body. Text is checked for well-formed UTF-8 without NUL; what topic names and
filters may hold is `mapping`'s business.
"""
from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Final

from gatehouse.gateways.mqtt.codec import fixed_header
from gatehouse.gateways.mqtt.errors import MalformedPacket, ProtocolError, Unsupported

# First bytes as a client must send them: type and reserved flags [MQTT-2.2.2-1].
CONNECT: Final = 0x10
PUBACK: Final = 0x40
SUBSCRIBE: Final = 0x82
UNSUBSCRIBE: Final = 0xA2
PINGREQ: Final = 0xC0
DISCONNECT: Final = 0xE0

CONNACK_ACCEPTED: Final = 0
CONNACK_BAD_PROTOCOL: Final = 1
CONNACK_BAD_CLIENT_ID: Final = 2
CONNACK_UNAVAILABLE: Final = 3
CONNACK_BAD_LOGIN: Final = 4
CONNACK_NOT_AUTHORIZED: Final = 5

PINGRESP: Final = b"\xd0\x00"
SUBACK_REFUSED: Final = 0x80

PROTOCOL_LEVEL: Final = 4              # 3.1.1
FILTERS_MAX: Final = 1024              # of one packet; all of them are taken before anybody else's turn
CONNECT_BYTES_MAX: Final = 5 + 10 + 5 * (2 + 65535)      # fixed and variable header, five fields of the largest size


@dataclass(frozen=True, slots=True)
class Will:
    topic: bytes
    payload: bytes
    qos: int
    retain: bool


@dataclass(frozen=True, slots=True)
class Connect:
    """`protocol_level` other than 4: nothing behind it has been read, and every other field is empty."""

    protocol_level: int
    clean_session: bool = True
    keep_alive_s: int = 0
    client_id: str = ""
    will: Will | None = None
    user: str | None = None
    password: str | None = None


class _Fields:
    """Reads a packet's body from front to back."""

    __slots__ = ("_at", "_body")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def byte(self) -> int:
        self._at += 1
        if self._at > len(self._body):
            raise MalformedPacket("a packet shorter than its fields")
        return self._body[self._at - 1]

    def short(self) -> int:
        return self.byte() << 8 | self.byte()

    def binary(self) -> bytes:
        size = self.short()
        start = self._at
        self._at += size
        if self._at > len(self._body):
            raise MalformedPacket("a field longer than its packet")
        return self._body[start:self._at]

    def text(self) -> str:
        return decode_text(self.binary())

    def more(self) -> bool:
        return self._at < len(self._body)


def decode_text(raw: bytes) -> str:
    """Raises MalformedPacket."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise MalformedPacket("[MQTT-1.5.3-1] text that is not well-formed UTF-8") from None
    if "\0" in text:
        raise MalformedPacket("[MQTT-1.5.3-2] text with a NUL")
    return text


def decode_connect(body: bytes) -> Connect:
    """The body of a CONNECT. Raises ProtocolError."""
    fields = _Fields(body)
    name = fields.binary()
    level = fields.byte()
    if name != b"MQTT":
        if name == b"MQIsdp" and level == 3:
            return Connect(level)              # MQTT 3.1: told that its level is not spoken here
        raise ProtocolError("[MQTT-3.1.2-1] a protocol name other than MQTT")
    if level != PROTOCOL_LEVEL:
        return Connect(level)
    flags = fields.byte()
    _check_connect_flags(flags)
    keep_alive_s = fields.short()
    client_id = fields.text()
    will = None
    if flags & 0x04:
        topic = fields.binary()
        decode_text(topic)
        will = Will(topic, fields.binary(), flags >> 3 & 3, flags & 0x20 != 0)
    user = fields.text() if flags & 0x80 else None
    password = fields.binary() if flags & 0x40 else None
    if fields.more():
        raise MalformedPacket("a CONNECT longer than its fields (3.1)")
    return Connect(level, flags & 0x02 != 0, keep_alive_s, client_id, will, user,
                   None if password is None else password.decode(errors="surrogateescape"))


def _check_connect_flags(flags: int) -> None:
    if flags & 0x01:
        raise ProtocolError("[MQTT-3.1.2-3] the reserved flag of CONNECT is set")
    if flags & 0x04:
        if flags & 0x18 == 0x18:
            raise ProtocolError("[MQTT-3.1.2-14] a will with QoS 3")
    elif flags & 0x38:
        raise ProtocolError("[MQTT-3.1.2-11] will QoS or will retain without a will")
    if flags & 0x40 and not flags & 0x80:
        raise ProtocolError("[MQTT-3.1.2-22] a password without a user name")


def decode_subscribe(body: bytes) -> tuple[int, list[tuple[bytes, int]]]:
    """(packet id, (raw filter, QoS) in order). Raises ProtocolError."""
    fields = _Fields(body)
    packet_id = _packet_id(fields)
    wishes: list[tuple[bytes, int]] = []
    while fields.more():
        raw = fields.binary()
        qos = fields.byte()
        if qos > 2:
            raise MalformedPacket("[MQTT-3-8.3-4] a requested QoS above 2")
        wishes.append((raw, qos))
        _check_count(wishes)
    if not wishes:
        raise ProtocolError("[MQTT-3.8.3-3] a SUBSCRIBE without a filter")
    return packet_id, wishes


def decode_unsubscribe(body: bytes) -> tuple[int, list[bytes]]:
    """(packet id, raw filters in order). Raises ProtocolError."""
    fields = _Fields(body)
    packet_id = _packet_id(fields)
    filters: list[bytes] = []
    while fields.more():
        filters.append(fields.binary())
        _check_count(filters)
    if not filters:
        raise ProtocolError("[MQTT-3.10.3-2] an UNSUBSCRIBE without a filter")
    return packet_id, filters


def _check_count(filters: Sized) -> None:
    if len(filters) > FILTERS_MAX:
        raise Unsupported(f"more than {FILTERS_MAX} filters in one packet")


def _packet_id(fields: _Fields) -> int:
    packet_id = fields.short()
    if not packet_id:
        raise ProtocolError("[MQTT-2.3.1-1] packet id 0")
    return packet_id


def encode_connack(code: int) -> bytes:
    """Session present is always 0: no session outlives its connection here."""
    return bytes((0x20, 2, 0, code))


def encode_suback(packet_id: int, codes: list[int]) -> bytes:
    return fixed_header(0x90, 2 + len(codes)) + packet_id.to_bytes(2, "big") + bytes(codes)


def encode_retained(topic: str, packet_id: bytes, value: bytes) -> bytes:
    """A PUBLISH with RETAIN set [MQTT-3.3.1-8]; of QoS 1 where there is a packet id, two bytes, else of QoS 0."""
    name = topic.encode()
    remaining = 2 + len(name) + len(packet_id) + len(value)
    head = fixed_header(0x33 if packet_id else 0x31, remaining)
    return b"".join((head, len(name).to_bytes(2, "big"), name, packet_id, value))


def encode_unsuback(packet_id: int) -> bytes:
    return b"\xb0\x02" + packet_id.to_bytes(2, "big")
