"""Fetch on the wire. Pure and hot.

    request  := [replica id i32 |] max wait i32 | min bytes i32 | max bytes i32 | isolation i8
                | [session id i32 | session epoch i32 |] topics | [forgotten topics |] [rack |] tags
    answer   := throttle i32 | [error i16 | session id i32 |] topics | tags
    topic    := name, or 16 bytes of topic id from version 13 | partitions | tags

Partitions, and their rows in the answer, are drawn in `fetch_block`, which takes them where there are many. An answer
is a list of buffers, in which batches stand as they came from the log between joined rows. Every byte, in every
version, is held against the message schemas by tests/gateways/kafka/test_codec.py.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.kafka.codec import (
    UUID_BYTES,
    Malformed,
    encode_count,
    encode_string,
    encode_uvarint,
    frame_header,
    read_count,
    read_string,
    skip_tags,
)
from gatehouse.gateways.kafka.error_codes import (
    FENCED_LEADER_EPOCH,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from gatehouse.gateways.kafka.fetch_block import MANY, REQUESTS, Block, partitions_of, read_block, scan_block
from gatehouse.kernel.state.partition_ids import PartitionIds

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

FETCH_FLEXIBLE: Final = 12
FETCH_SESSIONS: Final = 7            # sessions, and an error for the whole answer
FETCH_LEADER_EPOCH: Final = 9
FETCH_PREFERRED_REPLICA: Final = 11
FETCH_TOPIC_IDS: Final = 13
FETCH_REPLICA_STATE: Final = 15      # the replica id moved into the tags

_I32: Final = struct.Struct(">i")
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
