"""Kafka's wire format where it is hot: frames, request headers, Produce and Fetch. Pure; compiled if mypyc is there.

    frame           := size i32 | header | body
    request header  := api key i16 | api version i16 | correlation id i32 | client id string | tags (flexible versions)
    answer header   := correlation id i32 | tags (flexible versions)

    version         fixed                          flexible
    string, bytes   length i16 / i32, -1 null      length + 1 as unsigned varint, 0 null
    array           count i32, -1 null             count + 1 as unsigned varint, 0 null
    end of struct                                  tags: count, then (tag, size, bytes) each

Rules: every length and count is held against the bytes that are there before it is believed, so each loop is bounded
by its frame; what does not fit raises `Malformed`. A produced batch is copied out of its frame once and otherwise
never; an answer is a list of buffers in which batches stand as they came from the log. Fetched partitions lie one after
the other at a fixed stride, so ten thousand of them are one `iter_unpack`.

Source: https://kafka.apache.org/protocol and the message schemas it is generated from. Every body here is held against
those schemas, byte for byte, by tests/gateways/kafka/test_codec.py.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

from gateways.kafka.error_codes import (
    FENCED_LEADER_EPOCH,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
)

PRODUCE_FLEXIBLE: Final = 9
FETCH_FLEXIBLE: Final = 12
FETCH_SESSIONS: Final = 7            # sessions, and an error for the whole answer
FETCH_LEADER_EPOCH: Final = 9
FETCH_PREFERRED_REPLICA: Final = 11
FETCH_TOPIC_IDS: Final = 13
FETCH_REPLICA_STATE: Final = 15      # the replica id moved into the tags

SMALL_PART_BYTES: Final = 8192       # parts of an unfinished frame are merged up to this, so their number is bounded
UUID_BYTES: Final = 16
NO_UUID: Final = b"\0" * UUID_BYTES

_SIZE: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">hhih")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_WAIT_MIN_MAX: Final = struct.Struct(">iiib")
_SESSION: Final = struct.Struct(">ii")
_THROTTLE_ERROR_SESSION: Final = struct.Struct(">ihi")

# One partition of a fetch: index, [leader epoch,] offset, [last fetched epoch, log start,] most bytes [, no tags].
_PARTITION_V4: Final = struct.Struct(">iqi")
_PARTITION_V5: Final = struct.Struct(">iq8xi")
_PARTITION_V9: Final = struct.Struct(">iiq8xi")
_PARTITION_V12: Final = struct.Struct(">iiq12xi")
_PARTITION_V12_UNTAGGED: Final = struct.Struct(">iiq12xix")

# One partition of a fetch's answer up to its records: index, error, high watermark, last stable offset, [log start,]
# aborted transactions, [preferred replica,] length of the records.
_ROW_V4: Final = struct.Struct(">ihqqii")
_ROW_V5: Final = struct.Struct(">ihqqqii")
_ROW_V11: Final = struct.Struct(">ihqqqiii")
_ROW_V12: Final = struct.Struct(">ihqqqBi")
_EMPTY_ROW_V12: Final = struct.Struct(">ihqqqBiBB")

# One partition of a produce's answer: index, error, base offset, append time, [log start].
_PRODUCED_V3: Final = struct.Struct(">ihqq")
_PRODUCED_V5: Final = struct.Struct(">ihqqq")

Frame = tuple[bytes, int, int]
"""(buffer, where the frame's content begins, where it ends)"""

ProduceTopic = tuple[bytes, "list[tuple[int, bytes | None]]"]
"""(name, [(partition, record batch)])"""

ProducedTopic = tuple[bytes, "list[tuple[int, int, int, int, bytes | None]]"]
"""(name, [(partition, error code, base offset, log start offset, error text)])"""

FetchPartition = tuple[int, int, int, int]
"""(partition, leader epoch the client believes in or -1, offset, most bytes)"""

FetchTopic = tuple[bytes, list[FetchPartition]]
"""(name, or 16 bytes of topic id from version 13; partitions)"""


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

class FrameReader:
    """Cuts what the peer sends into frames. Holds at most one unfinished frame and what came behind it."""

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.buffer = b""
        self.at = 0                        # the next frame begins here
        self.parts: list[bytes] = []       # what came after `buffer`
        self.parts_bytes = 0

    def feed(self, data: bytes) -> None:
        if self.at == len(self.buffer):
            self.buffer = data
            self.at = 0
            return
        self.parts_bytes += len(data)
        parts = self.parts
        if parts and len(parts[-1]) + len(data) <= SMALL_PART_BYTES:
            parts[-1] += data
        else:
            parts.append(data)

    def next_frame(self) -> Frame | None:
        """The next whole frame, or None until more has come. Raises Malformed on a size that cannot be."""
        here = len(self.buffer) - self.at
        if here < 4:
            if here + self.parts_bytes < 4:
                return None
            self._join()
            here = len(self.buffer)
        size: int = _SIZE.unpack_from(self.buffer, self.at)[0]
        if size < 8 or size > self.max_frame_bytes:
            raise Malformed(f"a request of {size} bytes; at most {self.max_frame_bytes} are taken")
        if here < size + 4:
            if here + self.parts_bytes < size + 4:
                return None
            self._join()
        start = self.at + 4
        self.at = start + size
        return self.buffer, start, self.at

    def held_bytes(self) -> int:
        """How much has come and is not yet handed out."""
        return len(self.buffer) - self.at + self.parts_bytes

    def _join(self) -> None:
        self.parts.insert(0, self.buffer[self.at:])
        self.buffer = b"".join(self.parts)
        self.at = 0
        self.parts = []
        self.parts_bytes = 0


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
        return _SESSION.pack(body_bytes + 5, correlation_id) + b"\0"
    return _SESSION.pack(body_bytes + 4, correlation_id)


# ---- Produce --------------------------------------------------------------------------------------------------------

def decode_produce(data: bytes, at: int, end: int, version: int) -> tuple[bytes | None, int, int, list[ProduceTopic]]:
    """(transactional id, acks, timeout in ms, topics) of a Produce 3 to 12."""
    flexible = version >= PRODUCE_FLEXIBLE
    transactional_id, at = read_string(data, at, end, flexible)
    if end - at < 6:
        raise Malformed("a produce request is cut off")
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(data, at)
    at += 6
    topics: list[ProduceTopic] = []
    count, at = read_count(data, at, end, flexible, 2)
    for _ in range(count):
        name, at = read_string(data, at, end, flexible)
        if name is None:
            raise Malformed("a topic without a name")
        partitions: list[tuple[int, bytes | None]] = []
        many, at = read_count(data, at, end, flexible, 5)
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
    """The whole answer to a Produce 3 to 12."""
    flexible = version >= PRODUCE_FLEXIBLE
    parts: list[bytes] = [encode_count(len(topics), flexible)]
    for name, partitions in topics:
        parts.append(encode_string(name, flexible))
        parts.append(encode_count(len(partitions), flexible))
        for index, error, base_offset, log_start, text in partitions:
            if version < 5:
                parts.append(_PRODUCED_V3.pack(index, error, base_offset, -1))
                continue
            parts.append(_PRODUCED_V5.pack(index, error, base_offset, -1, log_start))
            if version >= 8:
                parts.append(encode_count(0, flexible))        # record errors: none are told apart
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


# ---- Fetch ----------------------------------------------------------------------------------------------------------

class FetchRequest:
    """What a Fetch 4 to 16 asks for. Forgotten topics and the rack matter only to sessions and are passed over."""

    def __init__(self, max_wait_ms: int, min_bytes: int, max_bytes: int, read_committed: bool, session_id: int,
                 session_epoch: int, topics: list[FetchTopic]) -> None:
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.read_committed = read_committed
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.topics = topics


def decode_fetch(data: bytes, at: int, end: int, version: int, max_partitions: int) -> FetchRequest:
    """A Fetch 4 to 16. Raises Malformed, also for more than `max_partitions` in all."""
    flexible = version >= FETCH_FLEXIBLE
    if version < FETCH_REPLICA_STATE:
        at += 4
    if end - at < 13:
        raise Malformed("a fetch request is cut off")
    max_wait_ms, min_bytes, max_bytes, isolation = _WAIT_MIN_MAX.unpack_from(data, at)
    at += 13
    session_id, session_epoch = 0, -1
    if version >= FETCH_SESSIONS:
        if end - at < 8:
            raise Malformed("a fetch session is cut off")
        session_id, session_epoch = _SESSION.unpack_from(data, at)
        at += 8
    topics: list[FetchTopic] = []
    room = max_partitions
    count, at = read_count(data, at, end, flexible, 2)
    for _ in range(count):
        name, at = _read_topic(data, at, end, version)
        partitions, at = _read_fetch_partitions(data, at, end, version, room)
        room -= len(partitions)
        if flexible:
            at = skip_tags(data, at, end)
        topics.append((name, partitions))
    if version >= FETCH_SESSIONS:
        at = _skip_forgotten(data, at, end, version)
    if version >= FETCH_PREFERRED_REPLICA:
        _rack, at = read_string(data, at, end, flexible)
    if flexible:
        at = skip_tags(data, at, end)
    if at != end:
        raise Malformed(f"{end - at} bytes after a fetch request")
    return FetchRequest(max_wait_ms, min_bytes, max_bytes, isolation == 1, session_id, session_epoch, topics)


def _read_topic(data: bytes, at: int, end: int, version: int) -> tuple[bytes, int]:
    if version >= FETCH_TOPIC_IDS:
        if end - at < UUID_BYTES:
            raise Malformed("a topic id is cut off")
        return data[at:at + UUID_BYTES], at + UUID_BYTES
    name, at = read_string(data, at, end, version >= FETCH_FLEXIBLE)
    if name is None:
        raise Malformed("a topic without a name")
    return name, at


def _read_fetch_partitions(data: bytes, at: int, end: int, version: int, room: int) -> tuple[list[FetchPartition], int]:
    """The partitions of one topic. They have one size unless a client tags them, which none is known to do."""
    flexible = version >= FETCH_FLEXIBLE
    shape = _PARTITION_V12_UNTAGGED
    if version < 5:
        shape = _PARTITION_V4
    elif version < FETCH_LEADER_EPOCH:
        shape = _PARTITION_V5
    elif version < FETCH_FLEXIBLE:
        shape = _PARTITION_V9
    stride = shape.size
    count, at = read_count(data, at, end, flexible, stride)
    if count > room:
        raise Malformed(f"a fetch of more than {room} partitions")
    if count < 1:
        return [], at
    stop = at + count * stride
    if flexible and data[at + stride - 1:stop:stride].count(0) != count:
        return _read_tagged_partitions(data, at, end, count)
    if version < FETCH_LEADER_EPOCH:
        return [(index, -1, offset, most) for index, offset, most in shape.iter_unpack(data[at:stop])], stop
    return list(shape.iter_unpack(data[at:stop])), stop


def _read_tagged_partitions(data: bytes, at: int, end: int, count: int) -> tuple[list[FetchPartition], int]:
    partitions: list[FetchPartition] = []
    size = _PARTITION_V12.size
    for _ in range(count):
        if end - at < size:
            raise Malformed("a partition is cut off")
        index, epoch, offset, most = _PARTITION_V12.unpack_from(data, at)
        partitions.append((index, epoch, offset, most))
        at = skip_tags(data, at + size, end)
    return partitions, at


def _skip_forgotten(data: bytes, at: int, end: int, version: int) -> int:
    flexible = version >= FETCH_FLEXIBLE
    count, at = read_count(data, at, end, flexible, 2)
    for _ in range(count):
        _name, at = _read_topic(data, at, end, version)
        many, at = read_count(data, at, end, flexible, 4)
        if many > 0:
            at += many * 4
        if flexible:
            at = skip_tags(data, at, end)
    return at


def encode_row(version: int, index: int, error: int, high_watermark: int, log_start: int,
               read_committed: bool) -> bytes:
    """One partition of a fetch's answer without records, whole."""
    if version >= FETCH_FLEXIBLE:
        return _EMPTY_ROW_V12.pack(index, error, high_watermark, high_watermark, log_start, 1 if read_committed else 0,
                                   -1, 1, 0)
    return _row(version, index, error, high_watermark, log_start, 0 if read_committed else -1, 0)


def encode_row_start(version: int, index: int, high_watermark: int, log_start: int, read_committed: bool,
                     records_bytes: int) -> bytes:
    """One partition of a fetch's answer up to its records; in flexible versions an empty tag byte follows them."""
    if version >= FETCH_FLEXIBLE:
        return _ROW_V12.pack(index, 0, high_watermark, high_watermark, log_start, 1 if read_committed else 0,
                             -1) + encode_uvarint(records_bytes + 1)
    return _row(version, index, 0, high_watermark, log_start, 0 if read_committed else -1, records_bytes)


def _row(version: int, index: int, error: int, high: int, log_start: int, aborted: int, records_bytes: int) -> bytes:
    if version >= FETCH_PREFERRED_REPLICA:
        return _ROW_V11.pack(index, error, high, high, log_start, aborted, -1, records_bytes)
    if version >= 5:
        return _ROW_V5.pack(index, error, high, high, log_start, aborted, records_bytes)
    return _ROW_V4.pack(index, error, high, high, aborted, records_bytes)


class FetchRows:
    """The answer to a fetch while it is put together: one encoded row per partition, in the order asked for.

    Rows with something to read are left empty and listed: `wants` is what the kernel is asked for, `places` says which
    row and partition each of them fills.
    """

    def __init__(self, version: int, read_committed: bool, leader_epoch: int) -> None:
        self.version = version
        self.flexible = version >= FETCH_FLEXIBLE
        self.read_committed = read_committed
        self.leader_epoch = leader_epoch
        self.rows: list[bytes] = []
        self.wants: list[tuple[int, int, int]] = []
        self.places: list[tuple[int, int]] = []
        self.waiting: list[int] = []         # queue ids with nothing new
        self.filled: list[tuple[int, list[bytes]]] = []
        self.errors = 0                      # of reading; not counted: partitions that are not there
        self.topics = 0

    def open_topic(self, name: bytes, partitions: int) -> None:
        self.topics += 1
        if self.version >= FETCH_TOPIC_IDS:
            self.rows.append(name + encode_uvarint(partitions + 1))
        else:
            self.rows.append(encode_string(name, self.flexible) + encode_count(partitions, self.flexible))

    def close_topic(self) -> None:
        if self.flexible:
            self.rows.append(b"\0")

    def refuse(self, partitions: list[FetchPartition], error: int) -> None:
        """Every partition of a topic with one error."""
        for index, _epoch, _offset, _most in partitions:
            self.rows.append(encode_row(self.version, index, error, -1, -1, self.read_committed))

    def scan(self, partitions: list[FetchPartition], queue_ids: Sequence[int],
             bounds: Callable[[int], tuple[int, int]]) -> None:
        """Each partition of a topic against what its queue holds: a row, or a wish to read. The hot loop of a fetch.

        `queue_ids` by partition number; `bounds` gives a queue's log start and high watermark.
        """
        version = self.version
        leader_epoch = self.leader_epoch
        aborted = 0 if self.read_committed else -1
        rows = self.rows
        waiting = self.waiting
        count = len(queue_ids)
        for index, epoch, offset, most in partitions:
            if index < 0 or index >= count:
                rows.append(encode_row(version, index, UNKNOWN_TOPIC_OR_PARTITION, -1, -1, self.read_committed))
                continue
            queue_id = queue_ids[index]
            start, high = bounds(queue_id)
            error = 0
            if epoch != leader_epoch and epoch >= 0:
                error = FENCED_LEADER_EPOCH if epoch < leader_epoch else UNKNOWN_LEADER_EPOCH
            elif offset == high:
                waiting.append(queue_id)
            elif start <= offset < high:
                self.places.append((len(rows), index))
                self.wants.append((queue_id, offset, most))
                rows.append(b"")
                continue
            else:
                error = OFFSET_OUT_OF_RANGE
            if error:
                self.errors += 1
            if version >= FETCH_FLEXIBLE:
                rows.append(_EMPTY_ROW_V12.pack(index, error, high, high, start, aborted + 1, -1, 1, 0))
            elif version >= FETCH_PREFERRED_REPLICA:
                rows.append(_ROW_V11.pack(index, error, high, high, start, aborted, -1, 0))
            else:
                rows.append(_row(version, index, error, high, start, aborted, 0))

    def fill(self, place: tuple[int, int], error: int, high_watermark: int, log_start: int,
             batches: list[bytes]) -> None:
        """What the kernel gave for one of `wants`; called in their order."""
        at, index = place
        if error != NONE or not batches:
            self.rows[at] = encode_row(self.version, index, error, high_watermark, log_start, self.read_committed)
            return
        size = 0
        for batch in batches:
            size += len(batch)
        self.rows[at] = encode_row_start(self.version, index, high_watermark, log_start, self.read_committed, size)
        self.filled.append((at, batches))

    def encode(self, correlation_id: int, throttle_ms: int) -> list[bytes]:
        """The whole answer: joined rows, and between them the batches as they came."""
        rows = self.rows
        parts: list[bytes] = [b""]
        done = 0
        for at, batches in self.filled:
            parts.append(b"".join(rows[done:at + 1]))
            parts.extend(batches)
            if self.flexible:
                parts.append(b"\0")
            done = at + 1
        parts.append(b"".join(rows[done:]) + (b"\0" if self.flexible else b""))
        head = _fetch_head(self.version, throttle_ms, NONE, self.topics)
        size = len(head)
        for part in parts:
            size += len(part)
        parts[0] = frame_header(size, correlation_id, self.flexible) + head
        return parts


def encode_fetch_error(version: int, correlation_id: int, error: int) -> bytes:
    """An answer that refuses a whole fetch (version 7 and later: before, an answer has no error of its own)."""
    flexible = version >= FETCH_FLEXIBLE
    body = _fetch_head(version, 0, error, 0) + (b"\0" if flexible else b"")
    return frame_header(len(body), correlation_id, flexible) + body


def _fetch_head(version: int, throttle_ms: int, error: int, topics: int) -> bytes:
    """What stands before the topics. Session id 0: this door keeps no fetch sessions, each fetch lists all it wants."""
    count = encode_count(topics, version >= FETCH_FLEXIBLE)
    if version >= FETCH_SESSIONS:
        return _THROTTLE_ERROR_SESSION.pack(throttle_ms, error, 0) + count
    return _I32.pack(throttle_ms) + count
