"""The hot packets: PUBLISH both ways, and what acknowledges it, whole bursts at a time. Compiled by mypyc.

    PUBLISH   0011 d qq r | remaining length | topic size (2) | topic name | packet id (2, QoS above 0) |
              [properties: length (1 to 4), as many bytes; MQTT 5 alone] | payload
    PUBACK    0100 0000   | 2                | packet id (2)              QoS 1
    PUBREC    0101 0000   | 2                | packet id (2)              QoS 2: received,
    PUBREL    0110 0010   | 2                | packet id (2)                     released,
    PUBCOMP   0111 0000   | 2                | packet id (2)                     complete

    d DUP   qq QoS   r RETAIN     remaining length: 1 to 4 bytes, seven bits each, low first, high bit: more follow

Rules kept here: one pass over the buffer; a burst becomes one list of message tuples that the kernel takes as it is;
the only look-up per message is the dictionary from raw topic name to place; a run of packets of one shape (same
topic, same size) is recognised by comparing the bytes up to the end of the topic name. Acknowledgements are never
built one by one: `PUBACKS` holds all of them in order and a run is a slice of it. What properties mean is looked up
like a topic name: by their bytes, in a dictionary of what such bytes meant before.
"""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.mqtt import reasons
from gatehouse.gateways.mqtt.errors import MalformedPacket, PacketTooLarge, ProtocolError
from gatehouse.gateways.slowing import COUNTS, GOES, LAST
from gatehouse.kernel.api import Message
from gatehouse.kernel.message import EXACTLY_ONCE, RETAIN, TRANSIENT
from gatehouse.kernel.records.batch import NO_HEADERS

DOOR: Final = 1                        # this door's number in each record's attributes
PACKET_IDS: Final = 65536              # ids are 1 to 65535; 0 is none [MQTT-2.3.1-1]

PACKET_ID_BYTES: Final[list[bytes]] = [packet_id.to_bytes(2, "big") for packet_id in range(PACKET_IDS)]
PUBACK_HEAD: Final = b"\x40\x02"
PUBACKS: Final[bytes] = PUBACK_HEAD + PUBACK_HEAD.join(PACKET_ID_BYTES)
PUBREC_HEAD: Final = b"\x50\x02"
PUBREL_HEAD: Final = b"\x62\x02"
PUBCOMP_HEAD: Final = b"\x70\x02"
PUBACK_SIZE: Final = 4

# Why `decode_publishes` stopped.
NEED_MORE: Final = 0                   # the buffer ends, perhaps within a packet
OTHER_PACKET: Final = 1                # a packet that is no PUBLISH
UNKNOWN_TOPIC: Final = 2               # a whole PUBLISH whose topic name is not among the places
UNKNOWN_PROPERTIES: Final = 3          # one whose properties were not seen before
REPEATED: Final = 4                    # one with QoS 1 and DUP, or with QoS 2 whose packet id is not released yet

Meaning = tuple[bytes, int]
"""What the properties of a PUBLISH mean: (headers as they are stored, timestamp in ms or 0)."""

PUBLISH: Final = 3
DISCONNECT: Final = 14


def fixed_header(first: int, remaining: int) -> bytes:
    """First byte and remaining length (2.2)."""
    return bytes((first,)) + encode_variable(remaining)


def encode_variable(value: int) -> bytes:
    """A variable byte integer (1.5.5)."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


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
                     messages: list[Message], packet_ids: list[bytes], received: dict[bytes, int] | None = None,
                     turn: int = 0, exact_ids: list[bytes] | None = None, meanings: dict[bytes, Meaning] | None = None,
                     refused: int = 0) -> tuple[int, int, int]:
    """Decode every whole PUBLISH from `pos` on into `messages`, the ids of those with QoS 1 into `packet_ids`, and of
    those with QoS 2 into `exact_ids`, and with `turn` into `received`.

    `meanings`: what properties mean, where the packets have some (MQTT 5). `refused`: bits of the first byte that the
    client may not set. Returns (position behind the last decoded packet, why it stopped, size of the packet there or 0
    where not known). Raises ProtocolError; what came before the bad packet is in the lists and stands.
    """
    end = len(data)
    head = b""                         # the packet before, up to the end of its topic name
    head_size = 0
    size = 0                           # of the whole packet
    attributes = 0
    qos = 0
    headers = NO_HEADERS
    timestamp_ms = 0
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
            qos = first >> 1 & 3
            fixed = topic_at + 2 if qos else topic_at
            if fixed > pos + size:
                raise MalformedPacket("a PUBLISH too short for its fields (3.3.2)")
            topic_end = topic_at + (data[topic_at - 2] << 8 | data[topic_at - 1])
            if topic_end + (fixed - topic_at) > pos + size:
                raise MalformedPacket("a topic name longer than its packet (3.3.2.1)")
            if qos == 3:
                raise MalformedPacket("[MQTT-3.3.1-4] QoS 3")
            if first & 14 == 8:
                raise MalformedPacket("[MQTT-3.3.1-2] DUP set with QoS 0")
            if first & refused:
                raise _not_here(first & refused)
            place = places.get(data[topic_at:topic_end])
            if place is None:
                return pos, UNKNOWN_TOPIC, size
            if first & 14 == 10:
                return pos, REPEATED, size
            attributes = DOOR if qos == 1 else DOOR | TRANSIENT if qos == 0 else DOOR | EXACTLY_ONCE
            if first & 1:
                attributes |= RETAIN
            if pos + size < end:
                head = data[pos:topic_end]
            head_size = topic_end - pos
        elif pos + size > end:
            return pos, NEED_MORE, size
        at = pos + head_size
        id_at = at
        if qos:
            at += 2
        if meanings is not None:
            if at >= pos + size:
                raise MalformedPacket("a PUBLISH without the length of its properties (3.3.2.3.1)")
            if data[at] == 0:
                headers = NO_HEADERS
                timestamp_ms = 0
                at += 1
            else:
                properties_end = end_of_properties(data, at, pos + size)
                meaning = meanings.get(data[at:properties_end])
                if meaning is None:
                    return pos, UNKNOWN_PROPERTIES, size
                headers, timestamp_ms = meaning
                at = properties_end
        if qos:
            packet_id = _checked_id(data[id_at:id_at + 2])
            if qos == 1:
                packet_ids.append(packet_id)
            elif received is None or exact_ids is None or packet_id in received:
                return pos, REPEATED, size
            else:
                received[packet_id] = turn
                exact_ids.append(packet_id)
        pos += size
        assert place is not None
        messages.append((place, data[at:pos], headers, attributes, timestamp_ms))
    return pos, NEED_MORE, 0


def _not_here(bits: int) -> ProtocolError:
    """What the hub has said in CONNACK that it does not take."""
    if bits & 1:
        return ProtocolError("[MQTT5-3.2.2-14] a PUBLISH with RETAIN", reasons.NO_RETAIN)
    return ProtocolError("[MQTT5-3.2.2-11] a PUBLISH with more than the highest QoS", reasons.NO_QOS)


def end_of_properties(data: bytes, at: int, end: int) -> int:
    """Where the properties end whose length stands at `at`. Raises MalformedPacket where that is beyond `end`."""
    size = 0
    shift = 0
    while at < end and shift <= 21:
        byte = data[at]
        at += 1
        size |= (byte & 127) << shift
        if byte < 128:
            if at + size > end:
                break
            return at + size
        shift += 7
    raise MalformedPacket("properties longer than their packet (2.2.2.1)")


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


def value_of(packet: bytes, has_properties: bool = False) -> bytes:
    """The payload of a whole, well-formed PUBLISH. `has_properties`: it is MQTT 5's."""
    at = behind_id(packet, 0)
    return packet[end_of_properties(packet, at, len(packet)) if has_properties else at:]


def behind_id(data: bytes, pos: int) -> int:
    """Where the properties of the whole, well-formed PUBLISH at `pos` begin, or before MQTT 5 its payload."""
    at = body_at(data, pos)
    at += 2 + (data[at] << 8 | data[at + 1])
    return at + 2 if data[pos] & 6 else at


def _checked_id(packet_id: bytes) -> bytes:
    if packet_id == b"\0\0":
        raise ProtocolError("[MQTT-2.3.1-1] a PUBLISH with packet id 0")
    return packet_id


def encode_pubacks(packet_ids: list[bytes]) -> bytes:
    """One PUBACK per id, in order; ids as two bytes each. At least one."""
    if len(packet_ids) == 1:
        return PUBACK_HEAD + packet_ids[0]
    return PUBACK_HEAD + PUBACK_HEAD.join(packet_ids)


def encode_pubrecs(packet_ids: list[bytes]) -> bytes:
    """One PUBREC per id, in order. At least one."""
    return PUBREC_HEAD + PUBREC_HEAD.join(packet_ids)


def encode_pubrels(packet_ids: list[bytes]) -> bytes:
    """One PUBREL per id, in order. At least one."""
    return PUBREL_HEAD + PUBREL_HEAD.join(packet_ids)


def encode_pubcomps(packet_ids: list[bytes]) -> bytes:
    """One PUBCOMP per id, in order. At least one."""
    return PUBCOMP_HEAD + PUBCOMP_HEAD.join(packet_ids)


def plain_ids(data: bytes, pos: int, first: int) -> list[bytes]:
    """The ids of the whole packets of four bytes from `pos` on that begin with `first`: PUBREC, PUBREL or PUBCOMP that
    say yes and nothing else, as far as they are sound. Raises ProtocolError where the first is not."""
    packet_ids: list[bytes] = []
    end = len(data) - PUBACK_SIZE
    while pos <= end and data[pos] == first and data[pos + 1] == 2:
        packet_id = data[pos + 2:pos + 4]
        if packet_id == b"\0\0" and packet_ids:
            break
        packet_ids.append(_checked_id(packet_id))
        pos += PUBACK_SIZE
    return packet_ids


def run_of(messages: list[Message], start: int, mask: int = TRANSIENT, dressed: bool = False) -> int:
    """Where the run ends of messages that are like the one at `start`: their attributes under `mask`, and where they
    are `dressed` their headers and times."""
    same = messages[start][3] & mask
    end = len(messages)
    at = start + 1
    if not dressed:
        while at < end and messages[at][3] & mask == same:
            at += 1
        return at
    headers = messages[start][2]
    timestamp_ms = messages[start][4]
    while at < end:
        message = messages[at]
        if message[3] & mask != same or message[2] != headers or message[4] != timestamp_ms:
            break
        at += 1
    return at


def first_too_large(messages: list[Message], start: int, stop: int, fixed: int, packet_bytes_max: int) -> int:
    """The first of `messages[start:stop]` that makes a larger packet; `stop` where there is none. `fixed`: bytes of
    topic name, packet id and properties."""
    most = packet_bytes_max
    room = most - fixed - (2 if most < 130 else 3 if most < 16_387 else 4 if most < 2_097_156 else 5)
    for at in range(start, stop):
        value = messages[at][1]
        if (0 if value is None else len(value)) > room:
            return at
    return stop


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


def encode_qos0(topic: bytes, messages: list[Message], start: int, stop: int, first: int = 0x30) -> bytes:
    """`messages[start:stop]` as PUBLISH packets of QoS 0. `topic`: its size in two bytes and its name, and in MQTT 5
    the properties."""
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
            head = (QOS0_HEADERS[remaining] if remaining < HEADERS_KNOWN and first == 0x30
                    else fixed_header(first, remaining)) + topic
            head_for = size
        parts.append(head)
        parts.append(value)
    return b"".join(parts)


def encode_qos1(topic: bytes, messages: list[Message], start: int, stop: int, packet_id: int, tail: bytes = b"",
                first: int = 0x32) -> bytes:
    """`messages[start:stop]` as PUBLISH packets of QoS 1, with packet ids from `packet_id` on, 1 following 65535.
    `topic`: its size in two bytes and its name. `tail`: MQTT 5's properties, the same for all. `first`: 0x34 for QoS 2,
    and with the bit of RETAIN."""
    return b"".join(parts_qos1(topic, messages, start, stop, packet_id, tail, first))


def parts_qos1(topic: bytes, messages: list[Message], start: int, stop: int, packet_id: int, tail: bytes = b"",
               first: int = 0x32) -> list[bytes]:
    """The same packets as `encode_qos1` makes, but as parts that are not joined. The values are those of the messages,
    shared by all clients that are sent them."""
    parts: list[bytes] = []
    fixed = len(topic) + 2 + len(tail)
    head = b""
    head_for = -1
    for at in range(start, stop):
        value = messages[at][1]
        if value is None:
            value = b""
        size = len(value)
        if size != head_for:
            remaining = fixed + size
            head = (QOS1_HEADERS[remaining] if remaining < HEADERS_KNOWN and first == 0x32
                    else fixed_header(first, remaining)) + topic
            head_for = size
        parts.append(head)
        parts.append(PACKET_ID_BYTES[packet_id])
        if tail:
            parts.append(tail)
        parts.append(value)
        packet_id += 1
        if packet_id == PACKET_IDS:
            packet_id = 1
    return parts


def encode_publish(first: int, topic: bytes, packet_id: bytes, tail: bytes, value: bytes) -> bytes:
    """One PUBLISH. `packet_id`: two bytes, or none with QoS 0."""
    return b"".join((fixed_header(first, len(topic) + len(packet_id) + len(tail) + len(value)), topic, packet_id, tail,
                     value))


def sort_packet(data: bytes, pos: int, *, packet_bytes_max: int) -> tuple[int, int, int]:
    """What a packet is while its client is slowed down for a limit, see `gateways.slowing`: (size, kind, stream) of the
    packet at a place. Messages of another QoS are another kind: what is answered
    together can be refused together."""
    try:
        size = packet_size(data, pos, packet_bytes_max)
    except ProtocolError:
        return len(data) - pos, LAST, 0
    sort = data[pos] >> 4
    if sort == PUBLISH:
        return size, COUNTS + (data[pos] >> 1 & 3), 0
    return size, LAST if sort == DISCONNECT else GOES, 0
