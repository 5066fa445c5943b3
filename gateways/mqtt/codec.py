"""MQTT 3.1.1, the hot packets: PUBLISH both ways and PUBACK, whole bursts at a time. Compiled by mypyc where it can be.

    PUBLISH   0011 d qq r | remaining length | topic size (2) | topic name | packet id (2, QoS above 0) | payload
    PUBACK    0100 0000   | 2                | packet id (2)

    d DUP   qq QoS   r RETAIN     remaining length: 1 to 4 bytes, seven bits each, low first, high bit: more follow

Rules kept here: one pass over the buffer; a burst becomes one list of message tuples that the kernel takes as it is;
the only look-up per message is the dictionary from raw topic name to place; a run of packets of one shape (same
topic, same size) is recognised by comparing the bytes up to the end of the topic name. Acknowledgements are never
built one by one: `PUBACKS` holds all of them in order and a run is a slice of it.
"""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.mqtt.errors import MalformedPacket, PacketTooLarge, ProtocolError, Unsupported
from gatehouse.kernel.api import Message
from gatehouse.kernel.message import RETAIN, TRANSIENT
from gatehouse.kernel.records.record import NO_HEADERS

DOOR: Final = 1                        # this door's number in each record's attributes
PACKET_IDS: Final = 65536              # ids are 1 to 65535; 0 is none [MQTT-2.3.1-1]

PACKET_ID_BYTES: Final[list[bytes]] = [packet_id.to_bytes(2, "big") for packet_id in range(PACKET_IDS)]
PUBACK_HEAD: Final = b"\x40\x02"
PUBACKS: Final[bytes] = PUBACK_HEAD + PUBACK_HEAD.join(PACKET_ID_BYTES)
PUBACK_SIZE: Final = 4

# Why `decode_publishes` stopped.
NEED_MORE: Final = 0                   # the buffer ends, perhaps within a packet
OTHER_PACKET: Final = 1                # a packet that is no PUBLISH
UNKNOWN_TOPIC: Final = 2               # a whole PUBLISH whose topic name is not among the places

def fixed_header(first: int, remaining: int) -> bytes:
    """First byte and remaining length (2.2)."""
    header = bytearray((first,))
    while remaining > 127:
        header.append(remaining & 127 | 128)
        remaining >>= 7
    header.append(remaining)
    return bytes(header)

HEADERS_KNOWN: Final = 2048            # remaining lengths whose fixed headers stand ready; most messages are smaller
QOS0_HEADERS: Final[list[bytes]] = [fixed_header(0x30, remaining) for remaining in range(HEADERS_KNOWN)]
QOS1_HEADERS: Final[list[bytes]] = [fixed_header(0x32, remaining) for remaining in range(HEADERS_KNOWN)]

def packet_size(data: bytes, pos: int, packet_bytes_max: int) -> int:
    """Size of the packet that begins at `pos`, fixed header included; 0 while its length is not all there.

    Raises MalformedPacket, PacketTooLarge.
    """
    end = len(data)
    at = pos + 1
    remaining = 0
    shift = 0
    while at < end:
        byte = data[at]
        at += 1
        remaining |= (byte & 127) << shift
        if byte < 128:
            size = at - pos + remaining
            if size > packet_bytes_max:
                raise PacketTooLarge(f"a packet of {size} bytes; the largest is {packet_bytes_max}")
            return size
        shift += 7
        if shift > 21:
            raise MalformedPacket("a remaining length of more than four bytes (2.2.3)")
    return 0

def decode_publishes(data: bytes, pos: int, packet_bytes_max: int, places: dict[bytes, int],
                     messages: list[Message], packet_ids: list[bytes]) -> tuple[int, int, int]:
    """Decode every whole PUBLISH from `pos` on into `messages`, and the ids of those with QoS 1 into `packet_ids`.

    Returns (position behind the last decoded packet, why it stopped, size of the packet there or 0 where not known).
    Raises ProtocolError; what came before the bad packet is in the lists and stands.
    """
    end = len(data)
    head = b""                         # the packet before, up to the end of its topic name
    head_size = 0
    size = 0                           # of the whole packet
    attributes = 0
    acknowledged = False
    place: int | None = None
    while pos < end:
        if head_size == 0 or data[pos:pos + head_size] != head:
            first = data[pos]
            if first >> 4 != 3:
                return pos, OTHER_PACKET, 0
            size = packet_size(data, pos, packet_bytes_max)
            if size == 0 or pos + size > end:
                return pos, NEED_MORE, size
            head_size = 0
            topic_at = body_at(data, pos) + 2
            acknowledged = first & 6 != 0
            fixed = topic_at + 2 if acknowledged else topic_at
            if fixed > pos + size:
                raise MalformedPacket("a PUBLISH too short for its fields (3.3.2)")
            topic_end = topic_at + (data[topic_at - 2] << 8 | data[topic_at - 1])
            if topic_end + (fixed - topic_at) > pos + size:
                raise MalformedPacket("a topic name longer than its packet (3.3.2.1)")
            if first & 4:
                raise _refused_qos(first)
            if first & 10 == 8:
                raise MalformedPacket("[MQTT-3.3.1-2] DUP set with QoS 0")
            place = places.get(data[topic_at:topic_end])
            if place is None:
                return pos, UNKNOWN_TOPIC, size
            attributes = DOOR if acknowledged else DOOR | TRANSIENT
            if first & 1:
                attributes |= RETAIN
            head = data[pos:topic_end]
            head_size = topic_end - pos
        elif pos + size > end:
            return pos, NEED_MORE, size
        at = pos + head_size
        if acknowledged:
            packet_ids.append(_checked_id(data[at:at + 2]))
            at += 2
        pos += size
        assert place is not None
        messages.append((place, data[at:pos], NO_HEADERS, attributes, 0))
    return pos, NEED_MORE, 0

def _refused_qos(first: int) -> ProtocolError:
    if first & 6 == 6:
        return MalformedPacket("[MQTT-3.3.1-4] QoS 3")
    return Unsupported("PUBLISH with QoS 2")

def body_at(data: bytes, pos: int) -> int:
    """Where the body of the whole packet at `pos` begins: behind its remaining length."""
    at = pos + 2
    while data[at - 1] > 127:
        at += 1
    return at

def publish_topic(data: bytes, pos: int) -> bytes:
    """The raw topic name of the whole, well-formed PUBLISH at `pos`."""
    at = body_at(data, pos)
    return data[at + 2:at + 2 + (data[at] << 8 | data[at + 1])]

def packet_id_of(data: bytes, pos: int) -> bytes:
    """The packet id of that PUBLISH as two bytes; empty with QoS 0. Raises ProtocolError for 0."""
    if not data[pos] & 6:
        return b""
    at = body_at(data, pos)
    at += 2 + (data[at] << 8 | data[at + 1])
    return _checked_id(data[at:at + 2])

def value_of(packet: bytes) -> bytes:
    """The payload of a whole, well-formed PUBLISH."""
    at = body_at(packet, 0)
    at += 2 + (packet[at] << 8 | packet[at + 1])
    return packet[at + 2:] if packet[0] & 6 else packet[at:]


def _checked_id(packet_id: bytes) -> bytes:
    if packet_id == b"\0\0":
        raise ProtocolError("[MQTT-2.3.1-1] a PUBLISH with packet id 0")
    return packet_id

def encode_pubacks(packet_ids: list[bytes]) -> bytes:
    """One PUBACK per id, in order; ids as two bytes each. At least one."""
    return PUBACK_HEAD + PUBACK_HEAD.join(packet_ids)

def run_of(messages: list[Message], start: int) -> int:
    """Where the run ends of messages that, like the one at `start`, were sent with or without acknowledgement."""
    transient = messages[start][3] & TRANSIENT
    end = len(messages)
    at = start + 1
    while at < end and messages[at][3] & TRANSIENT == transient:
        at += 1
    return at

def size_of(messages: list[Message], start: int, stop: int) -> int:
    """Bytes of the values of `messages[start:stop]`."""
    size = 0
    for at in range(start, stop):
        value = messages[at][1]
        if value is not None:
            size += len(value)
    return size

def fitting(messages: list[Message], start: int, stop: int, room: int, fixed: int) -> tuple[int, int]:
    """How far `messages[start:stop]` fit into `room` bytes, with the message that goes beyond it, and their size as
    packets. `fixed`: bytes of topic name and packet id."""
    size = 0
    at = start
    while at < stop and size < room:
        value = messages[at][1]
        remaining = fixed if value is None else fixed + len(value)
        size += remaining + (2 if remaining < 128 else 3 if remaining < 16_384 else 4 if remaining < 2_097_152 else 5)
        at += 1
    return at, size

def encode_qos0(topic: bytes, messages: list[Message], start: int, stop: int) -> bytes:
    """`messages[start:stop]` as PUBLISH packets of QoS 0. `topic`: its size in two bytes and its name."""
    parts: list[bytes] = []
    fixed = len(topic)
    head = b""
    head_for = -1
    for at in range(start, stop):
        value = messages[at][1]
        if value is None:
            value = b""
        size = len(value)
        if size != head_for:
            remaining = fixed + size
            head = (QOS0_HEADERS[remaining] if remaining < HEADERS_KNOWN else fixed_header(0x30, remaining)) + topic
            head_for = size
        parts.append(head)
        parts.append(value)
    return b"".join(parts)

def encode_qos1(topic: bytes, messages: list[Message], start: int, stop: int, packet_id: int) -> bytes:
    """`messages[start:stop]` as PUBLISH packets of QoS 1, with packet ids from `packet_id` on, 1 following 65535.
    `topic`: its size in two bytes and its name."""
    return b"".join(parts_qos1(topic, messages, start, stop, packet_id))

def parts_qos1(topic: bytes, messages: list[Message], start: int, stop: int, packet_id: int) -> list[bytes]:
    """PUBLISH packets of QoS 1, as `encode_qos1` makes them, but as parts that are not joined. The values are those of
    the messages, shared by all clients that are sent them."""
    parts: list[bytes] = []
    fixed = len(topic) + 2
    head = b""
    head_for = -1
    for at in range(start, stop):
        value = messages[at][1]
        if value is None:
            value = b""
        size = len(value)
        if size != head_for:
            remaining = fixed + size
            head = (QOS1_HEADERS[remaining] if remaining < HEADERS_KNOWN else fixed_header(0x32, remaining)) + topic
            head_for = size
        parts.append(head)
        parts.append(PACKET_ID_BYTES[packet_id])
        parts.append(value)
        packet_id += 1
        if packet_id == PACKET_IDS:
            packet_id = 1
    return parts
