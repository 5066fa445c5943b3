"""Kafka's wire format: frames, headers, the primitives of bodies, and Produce and Fetch. Pure and hot.

    frame           := size i32 | header | body
    request header  := api key i16 | api version i16 | correlation id i32 | client id string | tags (flexible versions)
    answer header   := correlation id i32 | tags (flexible versions)

    version         fixed                          flexible
    string, bytes   length i16 / i32, -1 null      length + 1 as unsigned varint, 0 null
    array           count i32, -1 null             count + 1 as unsigned varint, 0 null
    end of struct                                  tags: count, then (tag, size, bytes) each

    fetch           := [replica id i32 |] max wait i32 | min bytes i32 | max bytes i32 | isolation i8
                       | [session id i32 | session epoch i32 |] topics | [forgotten topics |] [rack |] tags
    its answer      := throttle i32 | [error i16 | session id i32 |] topics | tags
    topic           := name, or 16 bytes of topic id from version 13 | partitions | tags

Rules: every length and count is held against the bytes that are there before it is believed, so each loop is bounded
by its frame; what does not fit raises `Malformed`. A produced batch is copied out of its frame once, otherwise never.
The answer to a fetch is a list of buffers, in which batches stand as they came from the log between joined rows. Its
partitions are drawn in `fetch_columns`, which takes them where there are many.

Source: https://kafka.apache.org/protocol and the message schemas it is generated from. Every body here is held against
those schemas, byte for byte, in every version, by tests/gateways/kafka/test_codec.py.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.connections.wrong_port import came_to
from gatehouse.gateways.door_side import ReceiveBuffer
from gatehouse.gateways.kafka.error_codes import (
    FENCED_LEADER_EPOCH,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from gatehouse.gateways.kafka.fetch_columns import MANY, REQUESTS, Block, partitions_of, read_block, scan_block
from gatehouse.kernel.state.partition_ids import PartitionIds

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

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


FETCH_FLEXIBLE: Final = 12
FETCH_SESSIONS: Final = 7            # sessions, and an error for the whole answer
FETCH_LEADER_EPOCH: Final = 9
FETCH_PREFERRED_REPLICA: Final = 11
FETCH_TOPIC_IDS: Final = 13
FETCH_REPLICA_STATE: Final = 15      # the replica id moved into the tags

_WAIT_MIN_MAX: Final = struct.Struct(">iiib")
_SESSION: Final = struct.Struct(">ii")
_THROTTLE_ERROR_SESSION: Final = struct.Struct(">ihi")

# One partition of a fetch: index, [leader epoch,] offset, [last fetched epoch, log start,] most bytes.
_PARTITION_V4: Final = struct.Struct(">iqi")
_PARTITION_V5: Final = struct.Struct(">iq8xi")
_PARTITION_V9: Final = struct.Struct(">iiq8xi")
_PARTITION_V12: Final = struct.Struct(">iiq12xi")

# One partition of a fetch's answer up to its records: index, error, high watermark, last stable offset, [log start,]
# aborted transactions, [preferred replica,] length of the records.
_ROW_V4: Final = struct.Struct(">ihqqii")
_ROW_V5: Final = struct.Struct(">ihqqqii")
_ROW_V11: Final = struct.Struct(">ihqqqiii")
_ROW_V12: Final = struct.Struct(">ihqqqBi")
_EMPTY_ROW_V12: Final = struct.Struct(">ihqqqBiBB")

PARTITION_BYTES: Final = tuple(shape.itemsize for shape in REQUESTS)
"""By version: the least that one partition of a fetch takes."""

FetchPartition = tuple[int, int, int, int]
"""(partition, leader epoch the client believes in or -1, offset, most bytes)"""

FetchTopic = tuple[bytes, list[FetchPartition], "Block | None"]
"""(name, or 16 bytes of topic id from version 13; partitions; or all of them in a block, where there are many)"""

Forgotten = tuple[bytes, list[int]]
"""(name or topic id, partitions) that a fetch session is to follow no longer"""


class FetchRequest:
    """What a Fetch 4 to 18 asks for. The rack is passed over: there is one node."""

    def __init__(self, max_wait_ms: int, min_bytes: int, max_bytes: int, read_committed: bool, session_id: int,
                 session_epoch: int, topics: list[FetchTopic], forgotten: list[Forgotten]) -> None:
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.read_committed = read_committed
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.topics = topics
        self.forgotten = forgotten


def decode_fetch(data: bytes, at: int, end: int, version: int, max_partitions: int) -> FetchRequest:
    """A Fetch 4 to 18. Raises Malformed, also for more than `max_partitions` in all."""
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
    if count > max_partitions:
        raise Malformed(f"a fetch of more than {max_partitions} topics")
    for _ in range(count):
        name, at = _read_topic(data, at, end, version)
        many, at = read_count(data, at, end, flexible, PARTITION_BYTES[version])
        room -= max(many, 0)
        if room < 0:
            raise Malformed(f"a fetch of more than {max_partitions} partitions")
        partitions: list[FetchPartition] = []
        block = read_block(data, at, many, version) if many >= MANY else None
        if block is not None:
            at += many * PARTITION_BYTES[version]
        else:
            partitions, at = _read_partitions(data, at, end, version, many)
        if flexible:
            at = skip_tags(data, at, end)
        if many > 0:                    # of a topic without any nothing is asked
            topics.append((name, partitions, block))
    forgotten: list[Forgotten] = []
    if version >= FETCH_SESSIONS:
        forgotten, at = _read_forgotten(data, at, end, version)
    if version >= FETCH_PREFERRED_REPLICA:
        _rack, at = read_string(data, at, end, flexible)
    if flexible:
        at = skip_tags(data, at, end)
    if at != end:
        raise Malformed(f"{end - at} bytes after a fetch request")
    return FetchRequest(max_wait_ms, min_bytes, max_bytes, isolation == 1, session_id, session_epoch, topics,
                        forgotten)


def _read_topic(data: bytes, at: int, end: int, version: int) -> tuple[bytes, int]:
    if version >= FETCH_TOPIC_IDS:
        if end - at < UUID_BYTES:
            raise Malformed("a topic id is cut off")
        return data[at:at + UUID_BYTES], at + UUID_BYTES
    name, at = read_string(data, at, end, version >= FETCH_FLEXIBLE)
    if name is None:
        raise Malformed("a topic without a name")
    return name, at


def _read_partitions(data: bytes, at: int, end: int, version: int, count: int) -> tuple[list[FetchPartition], int]:
    """The partitions of one topic, one by one."""
    shape = _PARTITION_V12
    if version < 5:
        shape = _PARTITION_V4
    elif version < FETCH_LEADER_EPOCH:
        shape = _PARTITION_V5
    elif version < FETCH_FLEXIBLE:
        shape = _PARTITION_V9
    size = shape.size
    partitions: list[FetchPartition] = []
    for _ in range(count):
        if end - at < size:
            raise Malformed("a partition is cut off")
        if version < FETCH_LEADER_EPOCH:
            index, offset, most = shape.unpack_from(data, at)
            partitions.append((index, -1, offset, most))
        else:
            partitions.append(shape.unpack_from(data, at))
        at += size
        if version >= FETCH_FLEXIBLE:
            at = skip_tags(data, at, end)
    return partitions, at


def _read_forgotten(data: bytes, at: int, end: int, version: int) -> tuple[list[Forgotten], int]:
    flexible = version >= FETCH_FLEXIBLE
    topics: list[Forgotten] = []
    count, at = read_count(data, at, end, flexible, 2)
    for _ in range(count):
        name, at = _read_topic(data, at, end, version)
        many, at = read_count(data, at, end, flexible, 4)
        partitions: list[int] = []
        for _ in range(many):
            partitions.append(_I32.unpack_from(data, at)[0])
            at += 4
        if flexible:
            at = skip_tags(data, at, end)
        topics.append((name, partitions))
    return topics, at


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
        self.filled: list[tuple[int, list[bytes]]] = []
        self.errors = 0                      # of reading; not counted: partitions that are not there
        self.more = False                    # besides `wants` there are others that have something to read
        self.topics = 0
        self._there = 0
        # (partition ids by partition, partitions asked for: all there, where they are in a block)
        self._listed: list[tuple[PartitionIds, list[int], Block | None]] = []

    def open_topic(self, name: bytes, partitions: int) -> None:
        self.topics += 1
        if self.version >= FETCH_TOPIC_IDS:
            self.rows.append(name + encode_uvarint(partitions + 1))
        else:
            self.rows.append(encode_string(name, self.flexible) + encode_count(partitions, self.flexible))

    def close_topic(self) -> None:
        if self.flexible:
            self.rows.append(b"\0")

    def refuse(self, partitions: list[FetchPartition], block: Block | None, error: int) -> None:
        """Every partition of a topic with one error."""
        if block is not None:
            partitions = partitions_of(block)
        for index, _epoch, _offset, _most in partitions:
            self._add(index, error, -1, -1)

    def scan(self, partitions: list[FetchPartition], partition_ids: PartitionIds,
             bounds: Callable[[int], tuple[int, int]]) -> None:
        """Each partition of a topic against what its partition holds: a row, or a wish to read.

        `partition_ids` by partition number; `bounds` gives a partition's log start and high watermark.
        """
        count = len(partition_ids)
        for index, epoch, offset, most in partitions:
            if index < 0 or index >= count:
                self._add(index, UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
                continue
            self._there += 1
            partition_id = partition_ids[index]
            start, high = bounds(partition_id)
            if epoch >= 0 and epoch != self.leader_epoch:
                self.errors += 1
                older = epoch < self.leader_epoch
                self._add(index, FENCED_LEADER_EPOCH if older else UNKNOWN_LEADER_EPOCH, high, start)
            elif offset < start or offset > high:
                self.errors += 1
                self._add(index, OFFSET_OUT_OF_RANGE, high, start)
            elif offset == high:
                self._add(index, NONE, high, start)
            else:
                self._want(index, partition_id, offset, most)
        self._listed.append((partition_ids, [partition[0] for partition in partitions], None))

    def scan_many(self, block: Block, partition_ids: PartitionIds, bounds_by_partition: npt.NDArray[np.int64],
                  bounds: Callable[[int], tuple[int, int]]) -> None:
        """Check every partition of a block, as `scan` does. `bounds_by_partition` holds (log start, high watermark)
        rows."""
        scan = scan_block(block, self.version, bounds_by_partition, self.leader_epoch, self.read_committed)
        if scan is None:
            self.scan(partitions_of(block), partition_ids, bounds)
            return
        done = 0
        for row, index, offset, most in scan.wants:
            self.rows.append(scan.rows[done:row * scan.row_bytes])
            self._want(index, partition_ids[index], offset, most)
            done = (row + 1) * scan.row_bytes
        self.rows.append(scan.rows[done:])
        self.errors += scan.errors
        self._there += len(block)
        self._listed.append((partition_ids, [], block))

    def anything_there(self) -> bool:
        """Whether there is a partition to wait for."""
        return self._there > 0

    def partition_ids(self) -> Collection[int]:
        """The partitions that were asked for and are there; the whole topic where that is half of it or more."""
        if len(self._listed) == 1:
            partition_ids, listed, block = self._listed[0]
            count = len(listed) if block is None else len(block)
            if count >= MANY and count * 2 >= len(partition_ids):
                return partition_ids
        ids: set[int] = set()
        for partition_ids, listed, block in self._listed:
            if block is not None:
                listed = block["index"].tolist()
            ids.update([partition_ids[index] for index in listed if 0 <= index < len(partition_ids)])
        return ids

    def _add(self, index: int, error: int, high_watermark: int, log_start: int) -> None:
        self.rows.append(encode_row(self.version, index, error, high_watermark, log_start, self.read_committed))

    def _want(self, index: int, partition_id: int, offset: int, most: int) -> None:
        self.places.append((len(self.rows), index))
        self.wants.append((partition_id, offset, most))
        self.rows.append(b"")

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

    def encode(self, correlation_id: int, throttle_ms: int, session_id: int = 0) -> list[bytes]:
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
        head = _fetch_head(self.version, throttle_ms, NONE, session_id, self.topics)
        size = len(head)
        for part in parts:
            size += len(part)
        parts[0] = frame_header(size, correlation_id, self.flexible) + head
        return parts


def encode_fetch_error(version: int, correlation_id: int, error: int) -> bytes:
    """An answer that refuses a whole fetch (version 7 and later: before, an answer has no error of its own)."""
    flexible = version >= FETCH_FLEXIBLE
    body = _fetch_head(version, 0, error, 0, 0) + (b"\0" if flexible else b"")
    return frame_header(len(body), correlation_id, flexible) + body


def _fetch_head(version: int, throttle_ms: int, error: int, session_id: int, topics: int) -> bytes:
    """What stands before the topics. Session id 0: no session, the next fetch lists all it wants."""
    count = encode_count(topics, version >= FETCH_FLEXIBLE)
    if version >= FETCH_SESSIONS:
        return _THROTTLE_ERROR_SESSION.pack(throttle_ms, error, session_id) + count
    return _I32.pack(throttle_ms) + count
