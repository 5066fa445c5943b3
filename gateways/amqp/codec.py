"""AMQP 0-9-1, the hot frames: publishes, deliveries, acknowledgements, bursts at a time. Compiled where it can be.

    frame     type (1) | channel (2) | size (4) | payload | 0xCE
    publish   method: 60 40 · reserved (2) · exchange s · routing key s · bits
              header: 60 · weight (2) · body size (8) · flags (2) · properties
              body:   as many frames as the size needs, none for an empty body
    deliver   method: 60 60 · consumer tag s · delivery tag (8) · redelivered (1) · exchange s · routing key s
    ack       method: 60 80 · delivery tag (8) · multiple (1)

Rules kept here: one pass over the buffer; a run of publishes of one shape (same names, properties and size) is
recognised by comparing the bytes up to the body; the only look-up per shape is the dictionary from the method frame's
payload to its route. What is stored of a message's AMQP side is one private record header: exchange and routing key as
short strings, then flags and properties as they came; a delivery splices both back.
"""
from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from gatehouse.gateways.amqp.errors import ConnectionFault
from gatehouse.kernel.api import Message
from gatehouse.kernel.message import DOOR_MASK, TRANSIENT, Leased
from gatehouse.kernel.records.batch import MARK, encode_header, read_varint, varint
from gatehouse.kernel.records.headers import CONTEXT_MARK, CORRELATION
from gatehouse.tracing.context import OWN_BYTES

DOOR: Final = 3                        # this door's number in each record's attributes

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
END: Final = b"\xce"
FRAME_OVERHEAD: Final = 8              # seven bytes before the payload, one after
HEARTBEAT_FRAME: Final = b"\x08\0\0\0\0\0\0\xce"

PUBLISH: Final = b"\0\x3c\0\x28"
DELIVER: Final = b"\0\x3c\0\x3c"
ACK: Final = b"\0\x3c\0\x50"
NACK: Final = b"\0\x3c\0\x78"
REPLY_TO: Final = b"amq.rabbitmq.reply-to"         # RabbitMQ's direct reply-to: see `direct_reply`
REPLY_TO_FIELD: Final = b"\x15" + REPLY_TO         # as a property
BASIC_HEADER: Final = b"\0\x3c\0\0"
ACK_SIZE: Final = 13                   # of an ack's payload
ACK_FRAME_SIZE: Final = ACK_SIZE + FRAME_OVERHEAD
SMALLEST_HEADER: Final = 14            # class, weight, body size, flags

AMQP_HEADER: Final = MARK + b"amqp"
"""Name of the record header that holds a message's AMQP side."""

DEAD_HEADER: Final = MARK + b"amqp-dead"
"""Name of an empty record header: what the message says of its deaths is the hub's own word."""

BLIND_HEADER: Final = MARK + b"amqp-bcc"
"""Name of the record header that holds the routing keys of BCC."""

SIDE_START: Final = varint(len(AMQP_HEADER)) + AMQP_HEADER
ONE: Final = varint(1)
TWO: Final = varint(2)                 # headers of a record

CONTEXT_START: Final = CONTEXT_MARK + varint(OWN_BYTES)
"""Before a `traceparent` that the hub gives; it is the last header then."""

CONTEXT_AT: Final = len(CONTEXT_START) + OWN_BYTES

# Why `decode_publishes` stopped.
NEED_MORE: Final = 0                   # the buffer ends, perhaps within a publish
OTHER_FRAME: Final = 1                 # something that is no plain publish of this channel: one frame at a time

# A publish with one of these properties is looked at closely: headers, priority, expiration, user-id; or unknown flags.
SPECIAL: Final = 0x2000 | 0x0800 | 0x0100 | 0x0010 | 0x0003
DELIVERY_MODE: Final = 0x1000

_FRAME: Final = struct.Struct(">BHI")


def short_string(text: str) -> bytes:
    """A text of up to 255 bytes, behind its size."""
    raw = text.encode()
    return bytes((len(raw),)) + raw


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + END


def frame_size(data: bytes, pos: int, frame_max: int) -> int:
    """Size of the frame at `pos`, with its overhead; 0 while its size is not all there. Raises ConnectionFault 501."""
    if pos + 7 > len(data):
        return 0
    size = int.from_bytes(data[pos + 3:pos + 7], "big") + FRAME_OVERHEAD
    if size > frame_max:
        raise ConnectionFault(501, f"a frame of {size} bytes is larger than the {frame_max} that were negotiated")
    return size


# decision 62: as they lay on the wire, in one header
def stored_headers(names: bytes, raw: bytes) -> bytes:
    """A record's encoded headers with the AMQP side of a message, which is sound, and where it has one its correlation
    id: by that it is looked for. `names`: two short strings."""
    side = SIDE_START + varint(len(names) + len(raw)) + names + raw
    correlation = correlation_of(raw)
    return TWO + side + encode_header(CORRELATION, correlation) if correlation else ONE + side


def correlation_of(raw: bytes) -> bytes:
    """The correlation id of flags and properties, which are sound; empty where they have none."""
    if len(raw) < 2 or not raw[0] & 0x04:
        return b""
    at = 2
    for bit in (0x80, 0x40):                       # content-type, content-encoding
        if raw[0] & bit:
            at += 1 + raw[at]
    if raw[0] & 0x20:                              # headers
        at += 4 + int.from_bytes(raw[at:at + 4], "big")
    for bit in (0x10, 0x08):                       # delivery-mode, priority
        if raw[0] & bit:
            at += 1
    return raw[at + 1:at + 1 + raw[at]]


def own_side_at(headers: bytes) -> int:
    """Where the size of the AMQP side stands in a record's encoded headers; -1 where that is not the first of them:
    somebody else may have written the record, or a relay brought it, whatever door's number it bears."""
    _, at = read_varint(headers, 0) if headers else (0, 0)
    return at + len(SIDE_START) if headers.startswith(SIDE_START, at) else -1


def is_side(side: bytes) -> bool:
    """Whether these are two short strings, flags, and as many bytes as their properties have: somebody else may have
    written it. Headers are not looked into."""
    end = len(side)
    at = 0
    for _ in range(2):
        if at >= end:
            return False
        at += 1 + side[at]
    if at + 2 > end:
        return False
    flags = side[at] << 8 | side[at + 1]
    at += 2
    bit = 0x8000
    while bit > 2:
        if flags & bit:
            if at >= end:
                return False
            if bit == 0x2000:                  # headers
                at += 4 + int.from_bytes(side[at:at + 4], "big")
            elif bit == DELIVERY_MODE or bit == 0x0800:        # and the priority
                at += 1
            elif bit == 0x0040:                # the timestamp
                at += 8
            else:
                at += 1 + side[at]
        bit >>= 1
    return at == end and not flags & 3


def own_side(headers: bytes) -> bytes:
    """The AMQP side of a record that came by this door, as it came; empty where it has none that is sound, see
    `own_side_at`."""
    at = own_side_at(headers)
    if at < 0:
        return b""
    size, at = read_varint(headers, at)
    side = headers[at:at + size]
    return side if is_side(side) else b""


def plain_attributes(raw: bytes) -> int:
    """A record's attributes for these flags and properties; -1 where they must be looked at closely."""
    flags = raw[0] << 8 | raw[1]
    if flags == 0:
        return DOOR | TRANSIENT if len(raw) == 2 else -1
    if flags & SPECIAL:
        return -1
    at = 2
    end = len(raw)
    attributes = DOOR | TRANSIENT
    bit = 0x8000
    while bit > 2:
        if flags & bit:
            if at >= end:
                return -1
            if bit == DELIVERY_MODE:
                if raw[at] == 2:
                    attributes = DOOR
                at += 1
            elif bit == 0x0040:            # the timestamp
                at += 8
            elif bit == 0x0200 and raw[at:at + 22] == REPLY_TO_FIELD:
                return -1
            else:
                at += 1 + raw[at]
        bit >>= 1
    return attributes if at == end else -1


HEAD_BYTES: Final = 1_024              # of a publish up to its body: a longer one is not remembered


class PublishHead:  # decision 355
    """The publish that was decoded last, up to its body: most publishers send the same with every message."""

    def __init__(self) -> None:
        self.data: bytes = b""         # empty: there is none
        self.body_size: int = 0
        self.attributes: int = 0
        self.headers: bytes = b""
        self.place: int = 0

    def forget(self) -> None:
        """Its place may be another now."""
        self.data = b""


def decode_publishes(data: bytes, pos: int, channel: bytes, body_max: int, routes: dict[bytes, tuple[int, bool]],
                     last: PublishHead, messages: list[Message]) -> tuple[int, int, int]:
    """Decode every whole, plain publish of one channel from `pos` on into `messages`.

    `channel`: its number in two bytes; `body_max`: the largest body of one frame; `routes`: place, and whether that is
    a queue alone, by the payload of the method; `last`: of the same routes. Returns (position behind the last
    decoded publish, why it stopped, bytes needed from there on or 0 where not known). Never raises: whatever is not
    plain is left to be read frame by frame.
    """
    end = len(data)
    head = last.data
    head_size = len(head)
    body_size = last.body_size
    attributes = last.attributes
    headers = last.headers
    place = last.place
    while pos < end:
        if head_size == 0 or data[pos:pos + head_size] != head:
            head_size = 0
            if data[pos] != METHOD or data[pos + 1:pos + 3] != channel:
                return pos, (OTHER_FRAME if pos + 3 <= end else NEED_MORE), 0
            if pos + 7 > end:
                return pos, NEED_MORE, 0
            at = pos + 7 + (data[pos + 3] << 24 | data[pos + 4] << 16 | data[pos + 5] << 8 | data[pos + 6])
            if at < pos + 11 or pos + 11 <= end and data[pos + 7:pos + 11] != PUBLISH:
                return pos, OTHER_FRAME, 0
            if at + 2 <= end and data[at + 1] != HEADER:
                return pos, OTHER_FRAME, 0                 # a heartbeat, or a method that may not come here
            if at + 8 + 12 > end:
                return pos, NEED_MORE if at - pos <= body_max else OTHER_FRAME, 0
            payload = data[pos + 7:at]
            cached = routes.get(payload)
            if cached is None or data[at] != FRAME_END or data[at + 1] != HEADER or data[at + 2:at + 4] != channel:
                return pos, OTHER_FRAME, 0
            header_at = at + 8
            at = header_at + (data[at + 4] << 24 | data[at + 5] << 16 | data[at + 6] << 8 | data[at + 7])
            if at - header_at > body_max or at - header_at < SMALLEST_HEADER \
                    or data[header_at:header_at + 8] != b"\0\x3c\0\0\0\0\0\0":
                return pos, OTHER_FRAME, 0
            if at + 8 > end:
                if at + 1 <= end and data[header_at + 8:header_at + 12] == b"\0\0\0\0":
                    return pos, OTHER_FRAME, 0             # an empty body: no frame follows
                return pos, NEED_MORE, 0
            raw = data[header_at + 12:at]
            body_size = (data[header_at + 8] << 24 | data[header_at + 9] << 16 | data[header_at + 10] << 8
                         | data[header_at + 11])
            if body_size == 0 or body_size > body_max or data[at] != FRAME_END or data[at + 1] != BODY \
                    or data[at + 2:at + 4] != channel or data[at + 4:at + 8] != data[header_at + 8:header_at + 12]:
                return pos, OTHER_FRAME, 0
            attributes = plain_attributes(raw)
            if attributes < 0:
                return pos, OTHER_FRAME, 0
            place, is_queue = cached
            if not is_queue and raw[0] & 0xEF | raw[1]:
                return pos, OTHER_FRAME, 0             # a topic's readers see properties as headers of the record
            headers = stored_headers(payload[6:len(payload) - 1], raw)
            head = data[pos:at + 8]
            head_size = at + 8 - pos
            if head_size <= HEAD_BYTES:
                last.data, last.body_size, last.attributes, last.headers, last.place = (
                    head, body_size, attributes, headers, place)
        size = head_size + body_size + 1
        if pos + size > end:
            return pos, NEED_MORE, size
        at = pos + head_size
        if data[at + body_size] != FRAME_END:
            return pos, OTHER_FRAME, 0
        messages.append((place, data[at:at + body_size], headers, attributes, 0))
        pos += size
    return pos, NEED_MORE, 0


def decode_acks(data: bytes, pos: int, channel: bytes, tags: list[int]) -> int:
    """Every basic.ack of one channel from `pos` on: its tag, negative where it stands for all before it too.

    Returns the position behind the last. Tag 0 with multiple, "all so far", is left to the caller.
    """
    end = len(data)
    head = b"\x01" + channel + b"\0\0\0\x0d" + ACK
    while pos + ACK_FRAME_SIZE <= end and data[pos:pos + 11] == head and data[pos + 20] == FRAME_END:
        tag = int.from_bytes(data[pos + 11:pos + 19], "big")
        if tag == 0 or tag >> 62:
            return pos
        tags.append(-tag if data[pos + 19] & 1 else tag)
        pos += ACK_FRAME_SIZE
    return pos


def encode_confirm(channel: bytes, tag: int, multiple: bool, *, nack: bool = False) -> bytes:
    """basic.ack or basic.nack, hub to publisher."""
    method = NACK if nack else ACK
    return (b"\x01" + channel + b"\0\0\0\x0d" + method + tag.to_bytes(8, "big") + (b"\x01" if multiple else b"\0")
            + END)


def names_end(side: bytes) -> int:
    """Where exchange and routing key end in a message's AMQP side, and flags and properties begin."""
    key_at = 1 + side[0]
    return key_at + 1 + side[key_at]


def encode_content(channel: bytes, raw: bytes, body: bytes, body_max: int) -> bytes:
    """Header and body frames."""
    parts = [content_head(channel, raw, len(body))]
    for at in range(0, len(body), body_max):
        piece = body[at:at + body_max]
        parts.append(b"\x03" + channel + len(piece).to_bytes(4, "big"))
        parts.append(piece)
        parts.append(END)
    return b"".join(parts)


def content_head(channel: bytes, raw: bytes, body_size: int) -> bytes:
    """The header frame."""
    return (b"\x02" + channel + (12 + len(raw)).to_bytes(4, "big") + BASIC_HEADER + body_size.to_bytes(8, "big") + raw
            + END)


def encode_deliveries(channel: bytes, consumer_tag: bytes, tag: int, body_max: int, leased: list[Leased],
                      side_of: Callable[[Leased], bytes]) -> bytes:
    """Deliveries with consecutive tags from `tag` on. `consumer_tag` is a short string with its size.

    `side_of` gives the AMQP side of a message; it is asked once for messages that follow on each other with the same
    headers but for a trace context that the hub gave them, unless they came by other doors, where more than the headers
    says it, or come again, and may say so.
    """
    parts: list[bytes] = []
    last_headers = b""
    last_size = -1
    last_redelivered = False
    before = b""
    between = b""
    start, around = b"", [b""]                   # headers up to a trace context; `between`, without it where it is told
    for message in leased:
        value = message[6]
        body = b"" if value is None else value
        headers = message[7]
        redelivered = message[2] > 1
        size = len(body)
        if size != last_size or headers != last_headers or redelivered != last_redelivered:
            if start and size == last_size and not redelivered and len(headers) == len(start) + OWN_BYTES \
                    and headers.startswith(start):
                last_headers = headers
                between = headers[-OWN_BYTES:].join(around)
            else:
                is_own = message[8] & DOOR_MASK == DOOR and own_side_at(headers) >= 0
                last_headers = headers if is_own and not redelivered else b""
                last_size = size
                last_redelivered = redelivered
                side = side_of(message)
                split = names_end(side)
                before = (b"\x01" + channel + (13 + len(consumer_tag) + split).to_bytes(4, "big") + DELIVER
                          + consumer_tag)
                between = ((b"\x01" if redelivered else b"\0") + side[:split] + END
                           + content_head(channel, side[split:], size))
                if 0 < size <= body_max:
                    between += b"\x03" + channel + size.to_bytes(4, "big")
                start = b""
                if last_headers[-CONTEXT_AT:-OWN_BYTES] == CONTEXT_START:
                    around = between.split(headers[-OWN_BYTES:])
                    if len(around) <= 2:         # it is told once, or not at all
                        start = headers[:-OWN_BYTES]
        parts.append(before)
        parts.append(tag.to_bytes(8, "big"))
        parts.append(between)
        if size > body_max:
            for at in range(0, size, body_max):
                piece = body[at:at + body_max]
                parts.append(b"\x03" + channel + len(piece).to_bytes(4, "big") + piece + END)
        elif size:
            parts.append(body)
            parts.append(END)
        tag += 1
    return b"".join(parts)
