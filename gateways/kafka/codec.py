"""Kafka's wire format: frames, headers, the primitives of bodies, and Produce. Pure and hot.

    frame           := size i32 | header | body
    request header  := api key i16 | api version i16 | correlation id i32 | client id string | tags (flexible versions)
    answer header   := correlation id i32 | tags (flexible versions)

    version         fixed                          flexible
    string, bytes   length i16 / i32, -1 null      length + 1 as unsigned varint, 0 null
    array           count i32, -1 null             count + 1 as unsigned varint, 0 null
    end of struct                                  tags: count, then (tag, size, bytes) each

Rules: every length and count is held against the bytes that are there before it is believed, so each loop is bounded
by its frame; what does not fit raises `Malformed`. A produced batch is copied out of its frame once, otherwise never.

Source: https://kafka.apache.org/protocol and the message schemas it is generated from. Every body here is held against
those schemas, byte for byte, by tests/gateways/kafka/test_codec.py.
"""
from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from gatehouse.gateways.connections.flow import ReceiveBuffer
from gatehouse.gateways.connections.wrong_port import came_to

PRODUCE_FLEXIBLE: Final = 9
PRODUCE_TOPIC_IDS: Final = 13         # topics are named by 16 bytes of their ids (KIP-516)
PRODUCE_PARTITIONS: Final = 50_000     # of one request, as many as of a fetch
UUID_BYTES: Final = 16
SMALLEST_REQUEST: Final = 8          # a header without its client id

_SIZE: Final = struct.Struct(">i")
_SIZE_AND_ID: Final = struct.Struct(">ii")
_HEADER: Final = struct.Struct(">hhih")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
# One partition of a produce's answer: index, error, base offset, append time, [log start].
_PRODUCED_V3: Final = struct.Struct(">ihqq")
_PRODUCED_V5: Final = struct.Struct(">ihqqq")

Frame = tuple[bytes, int, int]
"""(buffer, where the frame's content begins, where it ends)"""

ProduceTopic = tuple[bytes, "list[tuple[int, bytes | None]]"]
"""(name, or topic id from version 13; [(partition, record batch)])"""

ProducedTopic = tuple[bytes, "list[tuple[int, int, int, int, int, bytes | None, Sequence[int]]]"]
"""(name, or topic id from version 13; [(partition, error code, base offset, append time in ms or -1, log start offset,
error text, which records of the batch it is about)])"""

class Malformed(Exception):
    """The peer sent bytes that are not what they claim to be. Kafka closes the connection, and so does the door."""


# ---- primitives -----------------------------------------------------------------------------------------------------

def read_uvarint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes; returns (value, index after it)."""
    value = 0
    shift = 0
    while shift < 35:
        if at >= end:
            raise Malformed("a variable-length number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise Malformed("a variable-length number does not end")


def encode_uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_count(data: bytes, at: int, end: int, flexible: bool, least_bytes: int) -> tuple[int, int]:
    """How many elements of an array follow, -1 for a null array. Each takes at least `least_bytes`."""
    if flexible:
        count, at = read_uvarint(data, at, end)
        count -= 1
    else:
        if end - at < 4:
            raise Malformed("an array's count is cut off")
        count = _I32.unpack_from(data, at)[0]
        at += 4
    if count < -1 or count * least_bytes > end - at:
        raise Malformed(f"an array claims {count} elements in {end - at} bytes")
    return count, at


def read_string(data: bytes, at: int, end: int, flexible: bool) -> tuple[bytes | None, int]:
    """A string's bytes, or None; returns (string, index after it)."""
    if flexible:
        length, at = read_uvarint(data, at, end)
        length -= 1
    else:
        if end - at < 2:
            raise Malformed("a string's length is cut off")
        length = _I16.unpack_from(data, at)[0]
        at += 2
    if length == -1:
        return None, at
    if length < 0 or length > end - at:
        raise Malformed(f"a string claims {length} bytes of {end - at}")
    return data[at:at + length], at + length


def read_bytes(data: bytes, at: int, end: int, flexible: bool) -> tuple[bytes | None, int]:
    """A byte field, copied out once, or None; returns (bytes, index after it)."""
    if flexible:
        length, at = read_uvarint(data, at, end)
        length -= 1
    else:
        if end - at < 4:
            raise Malformed("a byte field's length is cut off")
        length = _I32.unpack_from(data, at)[0]
        at += 4
    if length == -1:
        return None, at
    if length < 0 or length > end - at:
        raise Malformed(f"a byte field claims {length} bytes of {end - at}")
    return data[at:at + length], at + length


def skip_tags(data: bytes, at: int, end: int) -> int:
    """Pass over a struct's tagged fields; returns the index after them."""
    if at < end and data[at] == 0:
        return at + 1
    count, at = read_uvarint(data, at, end)
    if count * 2 > end - at:
        raise Malformed(f"{count} tagged fields in {end - at} bytes")
    for _ in range(count):
        _tag, at = read_uvarint(data, at, end)
        size, at = read_uvarint(data, at, end)
        if size > end - at:
            raise Malformed(f"a tagged field claims {size} bytes of {end - at}")
        at += size
    return at


def encode_string(value: bytes | None, flexible: bool) -> bytes:
    if value is None:
        return b"\0" if flexible else b"\xff\xff"
    if flexible:
        return encode_uvarint(len(value) + 1) + value
    return _I16.pack(len(value)) + value


def encode_count(count: int, flexible: bool) -> bytes:
    return encode_uvarint(count + 1) if flexible else _I32.pack(count)


# ---- frames ---------------------------------------------------------------------------------------------------------

class RequestReader:
    """Cuts what the peer sends into frames. Holds at most one unfinished frame, or what came behind the last that was
    asked for."""

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.min_frame_bytes = SMALLEST_REQUEST
        self._received = ReceiveBuffer()
        self._data = b""                   # what is cut into frames
        self._at = 0                       # the next one begins here

    def take_at_most(self, frame_bytes: int) -> None:
        """A longer frame than this is a fault from now on."""
        self.max_frame_bytes = frame_bytes

    def take_at_least(self, frame_bytes: int) -> None:
        """So is a shorter one than this."""
        self.min_frame_bytes = frame_bytes

    def feed(self, data: bytes) -> None:
        if self._at < len(self._data):     # frames wait that nobody has asked for
            self._received.keep(self._data, self._at)
            self._received.add(data)
            self._data = b""
        else:
            self._data = self._received.take(data)
        self._at = 0

    def next_frame(self) -> Frame | None:
        """The next whole frame, or None until more has come. Raises Malformed on a size that cannot be."""
        if self._at == len(self._data):
            self._data, self._at = self._received.take(b""), 0
        data, at = self._data, self._at
        needed_bytes = 4
        if len(data) - at >= 4:
            size: int = _SIZE.unpack_from(data, at)[0]
            if size < self.min_frame_bytes or size > self.max_frame_bytes:
                raise Malformed(came_to(data[at:at + 12], "Kafka",
                                        f"a request of {size} bytes; at most {self.max_frame_bytes} are taken"))
            needed_bytes = size + 4
        if len(data) - at < needed_bytes:
            self._received.keep(data, at, needed_bytes)
            self._data, self._at = b"", 0
            return None
        self._at = at + needed_bytes
        return data, at + 4, self._at

    def held_bytes(self) -> int:
        """How much has come and is not yet handed out."""
        return len(self._data) - self._at + self._received.held_bytes


def decode_header(data: bytes, at: int, end: int) -> tuple[int, int, int, bytes | None, int]:
    """(api key, api version, correlation id, client id, index after it); a flexible header's tags come next."""
    if end - at < 8:
        raise Malformed("a request without a whole header")
    if end - at < 10:
        raise Malformed("a request header without a client id")
    api_key, version, correlation_id, length = _HEADER.unpack_from(data, at)
    at += 10
    if length == -1:
        return api_key, version, correlation_id, None, at
    if length < 0 or length > end - at:
        raise Malformed(f"a client id claims {length} bytes of {end - at}")
    return api_key, version, correlation_id, data[at:at + length], at + length


def frame_header(body_bytes: int, correlation_id: int, flexible: bool) -> bytes:
    """Size and answer header in front of a body of `body_bytes`."""
    if flexible:
        return _SIZE_AND_ID.pack(body_bytes + 5, correlation_id) + b"\0"
    return _SIZE_AND_ID.pack(body_bytes + 4, correlation_id)


# ---- Produce --------------------------------------------------------------------------------------------------------

def decode_produce(data: bytes, at: int, end: int, version: int) -> tuple[bytes | None, int, int, list[ProduceTopic]]:
    """(transactional id, acks, timeout in ms, topics) of a Produce 3 to 13."""
    flexible = version >= PRODUCE_FLEXIBLE
    transactional_id, at = read_string(data, at, end, flexible)
    if end - at < 6:
        raise Malformed("a produce request is cut off")
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(data, at)
    at += 6
    topics: list[ProduceTopic] = []
    room = PRODUCE_PARTITIONS
    count, at = read_count(data, at, end, flexible, 2)
    for _ in range(count):
        name: bytes | None
        if version >= PRODUCE_TOPIC_IDS:
            if end - at < UUID_BYTES:
                raise Malformed("a topic id is cut off")
            name, at = data[at:at + UUID_BYTES], at + UUID_BYTES
        else:
            name, at = read_string(data, at, end, flexible)
        if name is None:
            raise Malformed("a topic without a name")
        partitions: list[tuple[int, bytes | None]] = []
        many, at = read_count(data, at, end, flexible, 5)
        room -= max(many, 1)
        if room < 0:
            raise Malformed(f"a produce request of more than {PRODUCE_PARTITIONS} topics and partitions")
        for _ in range(many):
            if end - at < 5:
                raise Malformed("a partition is cut off")
            index = _I32.unpack_from(data, at)[0]
            batch, at = read_bytes(data, at + 4, end, flexible)
            if flexible:
                at = skip_tags(data, at, end)
            partitions.append((index, batch))
        if flexible:
            at = skip_tags(data, at, end)
        topics.append((name, partitions))
    if flexible:
        at = skip_tags(data, at, end)
    if at != end:
        raise Malformed(f"{end - at} bytes after a produce request")
    return transactional_id, acks, timeout_ms, topics


def encode_produced(version: int, correlation_id: int, topics: list[ProducedTopic], throttle_ms: int) -> bytes:
    """The whole answer to a Produce 3 to 13."""
    flexible = version >= PRODUCE_FLEXIBLE
    parts: list[bytes] = [encode_count(len(topics), flexible)]
    for name, partitions in topics:
        parts.append(name if version >= PRODUCE_TOPIC_IDS else encode_string(name, flexible))
        parts.append(encode_count(len(partitions), flexible))
        for index, error, base_offset, append_ms, log_start, text, records in partitions:
            if version < 5:
                parts.append(_PRODUCED_V3.pack(index, error, base_offset, append_ms))
                continue
            parts.append(_PRODUCED_V5.pack(index, error, base_offset, append_ms, log_start))
            if version >= 8:
                parts.append(encode_count(len(records), flexible))
                for at in records:                             # KIP-467: each with its text
                    parts.append(_I32.pack(at))
                    parts.append(encode_string(text, flexible))
                    if flexible:
                        parts.append(b"\0")
                parts.append(encode_string(text, flexible))
            if flexible:
                parts.append(b"\0")
        if flexible:
            parts.append(b"\0")
    parts.append(_I32.pack(throttle_ms))
    if flexible:
        parts.append(b"\0")
    body = b"".join(parts)
    return frame_header(len(body), correlation_id, flexible) + body
