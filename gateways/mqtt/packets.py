"""The packets of which there are few: CONNECT, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH, and the answers to them.

    CONNECT      0x10 | length | name | level | flags | keep alive s (2) | [properties] | client id |
                 [will properties] will topic, will message | user name | password   (those that the flags name)
                 name and level: 6 "MQIsdp" 3 (MQTT 3.1), 4 "MQTT" 4 (3.1.1), 4 "MQTT" 5
                 flags: user name 0x80, password 0x40, will retain 0x20, will QoS 0x18, will 0x04, clean 0x02
    SUBSCRIBE    0x82 | length | packet id (2) | [properties] | (filter, options (1)) ...
    UNSUBSCRIBE  0xA2 | length | packet id (2) | [properties] | filter ...
    DISCONNECT   0xE0 | length | [reason (1) [properties]]
    AUTH         0xF0 | length | [reason (1) [properties]]            MQTT 5 alone
    PUBACK ...   0x40 | length | packet id (2) | [reason (1) [properties]]     and PUBREC, PUBREL, PUBCOMP

What stands in brackets is MQTT 5's. The decoders get the whole packet's body. Text is checked for well-formed UTF-8
without NUL; what topic names and filters may hold is `mapping`'s business.
"""
from __future__ import annotations

from collections.abc import Sized
from typing import Any, Final, NamedTuple

from gatehouse.gateways.mqtt import properties, reasons
from gatehouse.gateways.mqtt.codec import fixed_header
from gatehouse.gateways.mqtt.errors import MalformedPacket, ProtocolError, Unsupported
from gatehouse.gateways.mqtt.properties import NONE, Packet, Properties, decode_properties, encode_properties
from gatehouse.gateways.mqtt.reading import Fields, decode_text

# First bytes as a client must send them: type and reserved flags [MQTT-2.2.2-1].
CONNECT: Final = 0x10
PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70
SUBSCRIBE: Final = 0x82
UNSUBSCRIBE: Final = 0xA2
PINGREQ: Final = 0xC0
DISCONNECT: Final = 0xE0
AUTH: Final = 0xF0

CONNACK_ACCEPTED: Final = 0
CONNACK_BAD_PROTOCOL: Final = 1
CONNACK_BAD_CLIENT_ID: Final = 2
CONNACK_UNAVAILABLE: Final = 3
CONNACK_BAD_LOGIN: Final = 4
CONNACK_NOT_AUTHORIZED: Final = 5

PINGRESP: Final = b"\xd0\x00"
SERVERS_ALONE: Final = frozenset((0x20, 0x90, 0xB0, 0xD0))     # CONNACK, SUBACK, UNSUBACK, PINGRESP
SUBACK_REFUSED: Final = 0x80           # and above, in MQTT 5

MQTT31: Final = 3                      # protocol levels
MQTT311: Final = 4
MQTT5: Final = 5
LEVELS: Final = {b"MQIsdp": (MQTT31,), b"MQTT": (MQTT311, MQTT5)}

FILTERS_MAX: Final = 1024              # of one packet; all of them are taken before anybody else's turn
PROPERTY_BYTES_MAX: Final = 65_535     # of a CONNECT, and of its will
CONNECT_BYTES_MAX: Final = 5 + 10 + 5 * (2 + 65535) + 2 * (4 + PROPERTY_BYTES_MAX)
"""Fixed and variable header, five fields of the largest size, two sets of properties."""

_ANSWERS: Final = frozenset((0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99))
SAID_BY_CLIENTS: Final = {
    Packet.PUBACK: _ANSWERS, Packet.PUBREC: _ANSWERS,
    Packet.PUBREL: frozenset((0, 0x92)), Packet.PUBCOMP: frozenset((0, 0x92)),
    Packet.DISCONNECT: frozenset((0, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, *range(0x93, 0x9A)))}
"""Reason codes that a client may give (tables of 3.4.2.1, 3.5.2.1, 3.6.2.1, 3.7.2.1, 3.14.2.1)."""

NO_LOCAL: Final = 0x04                 # options of a filter in SUBSCRIBE (3.8.3.1), beside two bits of QoS
RETAIN_AS_PUBLISHED: Final = 0x08
RETAIN_HANDLING: Final = 0x30
SEND_IF_NEW: Final = 0x10              # retained values are sent if the filter is new
SEND_NOT: Final = 0x20                 # they are not sent


class Will(NamedTuple):
    """What a CONNECT says of the will."""

    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    properties: Properties = NONE


class Connect(NamedTuple):
    """Where `is_spoken` is not, nothing behind the level has been read, and every other field is empty."""

    protocol_level: int
    clean_session: bool = True         # MQTT 5: clean start
    keep_alive_s: int = 0
    client_id: str = ""
    will: Will | None = None
    user: str | None = None
    password: str | None = None
    properties: Properties = NONE
    is_spoken: bool = True


def decode_connect(body: bytes) -> Connect:
    """The body of a CONNECT. Raises ProtocolError."""
    fields = Fields(body)
    name = fields.binary()
    level = fields.byte()
    if name not in LEVELS:
        raise ProtocolError("[MQTT-3.1.2-1] a protocol name other than MQTT")
    if level not in LEVELS[name]:
        return Connect(level, is_spoken=False)
    flags = fields.byte()
    _check_connect_flags(flags, level)
    keep_alive_s = fields.short()
    given = _properties(fields, Packet.CONNECT, level)
    client_id = fields.text()
    will = None
    if flags & 0x04:
        will_properties = _properties(fields, Packet.WILL, level)
        topic = fields.binary()
        decode_text(topic)
        will = Will(topic, fields.binary(), flags >> 3 & 3, flags & 0x20 != 0, will_properties)
    # MQTT 3.1 lets a client leave out what its flags name, at the end (3.1, user name flag)
    user = fields.text() if flags & 0x80 and (level > MQTT31 or fields.more()) else None
    password = fields.binary() if flags & 0x40 and (level > MQTT31 or fields.more()) else None
    if fields.more():
        raise MalformedPacket("a CONNECT longer than its fields (3.1)")
    return Connect(level, flags & 0x02 != 0, keep_alive_s, client_id, will, user,
                   None if password is None else password.decode(errors="surrogateescape"), given)


def _check_connect_flags(flags: int, level: int) -> None:
    if flags & 0x01 and level > MQTT31:                # 3.1 calls it unused
        raise ProtocolError("[MQTT-3.1.2-3] the reserved flag of CONNECT is set", reasons.MALFORMED)
    if flags & 0x04:
        if flags & 0x18 == 0x18:
            raise ProtocolError("[MQTT-3.1.2-14] a will with QoS 3", reasons.MALFORMED)
    elif flags & 0x38 and level > MQTT31:
        raise ProtocolError("[MQTT-3.1.2-11] will QoS or will retain without a will", reasons.MALFORMED)
    if flags & 0x40 and not flags & 0x80 and level < MQTT5:
        raise ProtocolError("[MQTT-3.1.2-22] a password without a user name")


def _properties(fields: Fields, packet: Packet, level: int) -> Properties:
    if level < MQTT5:
        return NONE
    start, end = fields.span()
    return decode_properties(fields.body, start, end, packet) if end > start else NONE


def decode_subscribe(body: bytes, level: int = MQTT311) -> tuple[int, list[tuple[bytes, int]], Properties]:
    """(packet id, (raw filter, options) in order, properties); before MQTT 5 the options are a QoS. Raises
    ProtocolError."""
    fields = Fields(body)
    packet_id = _packet_id(fields)
    given = _properties(fields, Packet.SUBSCRIBE, level)
    wishes: list[tuple[bytes, int]] = []
    while fields.more():
        raw = fields.binary()
        options = fields.byte()
        _check_options(options, level)
        wishes.append((raw, options))
        _check_count(wishes)
    if not wishes:
        raise ProtocolError("[MQTT-3.8.3-3] a SUBSCRIBE without a filter")
    return packet_id, wishes, given


def _check_options(options: int, level: int) -> None:
    if options & 3 == 3 or level < MQTT5 and options > 2:
        raise MalformedPacket("[MQTT-3-8.3-4] a requested QoS above 2")
    if options & 0xC0:
        raise MalformedPacket("[MQTT5-3.8.3-5] reserved bits of the options of a filter")
    if options & RETAIN_HANDLING == RETAIN_HANDLING:
        raise ProtocolError("a retain handling of 3 (3.8.3.1)")


def decode_unsubscribe(body: bytes, level: int = MQTT311) -> tuple[int, list[bytes]]:
    """(packet id, raw filters in order). Raises ProtocolError."""
    fields = Fields(body)
    packet_id = _packet_id(fields)
    _properties(fields, Packet.UNSUBSCRIBE, level)
    filters: list[bytes] = []
    while fields.more():
        filters.append(fields.binary())
        _check_count(filters)
    if not filters:
        raise ProtocolError("[MQTT-3.10.3-2] an UNSUBSCRIBE without a filter")
    return packet_id, filters


def decode_reason(body: bytes, packet: Packet) -> tuple[int, Properties]:
    """The body of an MQTT 5 DISCONNECT or AUTH: (reason code, properties). Raises ProtocolError."""
    if not body:
        return 0, NONE
    fields = Fields(body)
    reason = fields.byte()
    given = _last_properties(fields, packet)
    _check_reason(reason, packet)
    return reason, given


def decode_ack(body: bytes, packet: Packet) -> tuple[int, int]:
    """The body of an MQTT 5 PUBACK, PUBREC, PUBREL or PUBCOMP: (packet id, reason code). Raises ProtocolError."""
    fields = Fields(body)
    packet_id = _packet_id(fields)
    if not fields.more():
        return packet_id, 0
    reason = fields.byte()
    _last_properties(fields, packet)
    _check_reason(reason, packet)
    return packet_id, reason


def _check_reason(reason: int, packet: Packet) -> None:
    if reason not in SAID_BY_CLIENTS.get(packet, (reason,)):
        raise ProtocolError(f"(2.4) a {packet.name} with reason code {reason:#04x}")


def _last_properties(fields: Fields, packet: Packet) -> Properties:
    """Properties that may be left out altogether at the end of a packet."""
    if not fields.more():
        return NONE
    given = _properties(fields, packet, MQTT5)
    if fields.more():
        raise MalformedPacket(f"a {packet.name} longer than its fields")
    return given


def _check_count(filters: Sized) -> None:
    if len(filters) > FILTERS_MAX:
        raise Unsupported(f"more than {FILTERS_MAX} filters in one packet")


def _packet_id(fields: Fields) -> int:
    packet_id = fields.short()
    if not packet_id:
        raise ProtocolError("[MQTT-2.3.1-1] packet id 0")
    return packet_id


def encode_connack(code: int, *, session_present: bool = False) -> bytes:
    """CONNACK of MQTT 3.1 and 3.1.1."""
    return bytes((0x20, 2, session_present, code))


def encode_connack5(reason: int, pairs: list[tuple[int, Any]], *, session_present: bool = False) -> bytes:
    """CONNACK of MQTT 5, with these properties."""
    body = bytes((session_present, reason)) + encode_properties(pairs)
    return fixed_header(0x20, len(body)) + body


def encode_suback(packet_id: int, codes: list[int], level: int = MQTT311, text: str = "") -> bytes:
    """One code for each filter. `text`: why some are refused, for MQTT 5."""
    gap = encode_properties(_told(text, None)) if level == MQTT5 else b""
    return fixed_header(0x90, 2 + len(gap) + len(codes)) + packet_id.to_bytes(2, "big") + gap + bytes(codes)


def encode_unsuback(packet_id: int, codes: list[int] | None = None) -> bytes:
    """`codes`: one for each filter, in MQTT 5 alone."""
    if codes is None:
        return b"\xb0\x02" + packet_id.to_bytes(2, "big")
    return fixed_header(0xB0, 3 + len(codes)) + packet_id.to_bytes(2, "big") + b"\0" + bytes(codes)


def encode_ack(first: int, packet_id: bytes, reason: int, text: str = "", user: list[tuple[str, str]] | None = None
               ) -> bytes:
    """An MQTT 5 PUBACK, PUBREC, PUBREL or PUBCOMP (by its first byte) that says more than yes."""
    pairs = _told(text, user)
    body = packet_id + bytes((reason,)) + (encode_properties(pairs) if pairs else b"")
    return fixed_header(first, len(body)) + body


def encode_disconnect(reason: int, text: str = "", reference: str = "") -> bytes:
    """An MQTT 5 DISCONNECT of the hub's. `reference`: another server."""
    pairs = _told(text, None)
    if reference:
        pairs.append((properties.SERVER_REFERENCE, reference))
    body = bytes((reason,)) + (encode_properties(pairs) if pairs else b"")
    return fixed_header(DISCONNECT, len(body)) + body


def encode_auth(reason: int, method: str, data: bytes | None) -> bytes:
    """An MQTT 5 AUTH."""
    pairs: list[tuple[int, Any]] = [(properties.AUTH_METHOD, method)]
    if data is not None:
        pairs.append((properties.AUTH_DATA, data))
    body = bytes((reason,)) + encode_properties(pairs)
    return fixed_header(AUTH, len(body)) + body


REASON_CHARACTERS: Final = 200         # of an error's text, told to the client


def _told(text: str, user: list[tuple[str, str]] | None) -> list[tuple[int, Any]]:
    pairs: list[tuple[int, Any]] = [(properties.REASON_STRING, text[:REASON_CHARACTERS].replace("\0", ""))
                                    ] if text else []
    return pairs + [(properties.USER, pair) for pair in user or ()]


def return_code_of(reason: int) -> int:
    """What CONNACK of MQTT 3.1 and 3.1.1 says for a reason code of MQTT 5."""
    return _RETURN_CODES.get(reason, CONNACK_UNAVAILABLE)


_RETURN_CODES: Final = {reasons.SUCCESS: CONNACK_ACCEPTED, reasons.BAD_VERSION: CONNACK_BAD_PROTOCOL,
                        reasons.BAD_CLIENT_ID: CONNACK_BAD_CLIENT_ID, reasons.BUSY: CONNACK_UNAVAILABLE,
                        reasons.BAD_LOGIN: CONNACK_BAD_LOGIN, reasons.NOT_AUTHORIZED: CONNACK_NOT_AUTHORIZED}
