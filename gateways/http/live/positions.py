"""Where a reader of a stream is: the next offset in each partition, and the opaque word for it, an event's id.

    base64url without padding of
    ┌─────────┬──────────────┬───────┬─────────────────────────────────────┬───────────┐
    │ version │ hub          │ count │ count x (partition id, next offset) │ CRC-32    │
    │ 1 byte  │ 4 bytes of   │       │                                     │ 4 bytes   │
    │         │ its identity │       │                                     │ big-endian│
    └─────────┴──────────────┴───────┴─────────────────────────────────────┴───────────┘
    numbers in unsigned LEB128

Partition ids are the hub's own and never used again, so a word outlives topics that come and go: a partition that is
not in it is read from its beginning. Each partition's numbers are kept encoded; a word costs a join, not a loop over
all partitions. The checksum tells a word from garbage and proves nothing: what a reader may see is decided by its
rights. Pure.
"""
from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from typing import Final
from zlib import crc32

from gatehouse.gateways.http.page import encode_number, read_number

VERSION: Final = 2
MAX_PARTITIONS: Final = 512  # decision 67
"""The most partitions of a stream that can be resumed: as many as a word within `MAX_WORD_CHARS` holds."""

MAX_WORD_CHARS: Final = 7000
"""The longest word, in characters. A browser sends it back in a header, which has at most 8190 bytes."""

_HUB_BYTES: Final = 4
_CRC_BYTES: Final = 4
NUMBER_BITS: Final = 63
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")


# decision 67: the place in every partition, the server keeps nothing
class Positions:
    """Where a reader is: next offsets by partition id. Offset 0 is where everybody begins and is not written down."""

    __slots__ = ("_head", "_parts", "offsets")

    def __init__(self, hub: bytes, offsets: Mapping[int, int] | None = None) -> None:
        self._head = bytes((VERSION,)) + hub[:_HUB_BYTES]
        self.offsets: dict[int, int] = {}
        self._parts: dict[int, bytes] = {}
        for partition_id, offset in (offsets or {}).items():
            self.move(partition_id, offset)

    def copy(self) -> Positions:
        """A copy of these positions, to go on from independently."""
        twin = Positions.__new__(Positions)
        twin._head = self._head
        twin.offsets = self.offsets.copy()
        twin._parts = self._parts.copy()
        return twin

    def at(self, partition_id: int) -> int:
        """The next offset in a partition."""
        return self.offsets.get(partition_id, 0)

    def move(self, partition_id: int, offset: int) -> None:
        """The reader is at this offset of the partition now."""
        if offset != self.offsets.get(partition_id, 0):
            self.offsets[partition_id] = offset
            self._parts[partition_id] = encode_number(partition_id) + encode_number(offset)

    def forget(self, partition_id: int) -> None:
        """Forget a partition that is gone."""
        self.offsets.pop(partition_id, None)
        self._parts.pop(partition_id, None)

    def word(self) -> bytes:
        """The opaque word for these positions; "" where they have more partitions than go into a word."""
        if len(self._parts) > MAX_PARTITIONS:
            return b""
        out = b"".join((self._head, encode_number(len(self._parts)), *self._parts.values()))
        out += crc32(out).to_bytes(_CRC_BYTES, "big")
        return b2a_base64(out, newline=False).translate(_TO_URL).rstrip(b"=")


def decode_word(text: str, hub: bytes) -> Positions:
    """The positions that a word stands for. Raises ValueError for what is no word of this hub."""
    if len(text) > MAX_WORD_CHARS or not text.isascii():
        raise ValueError("too long or not ASCII")
    data = a2b_base64(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), strict_mode=True)
    head = 1 + _HUB_BYTES
    if len(data) <= head + _CRC_BYTES or data[0] != VERSION:
        raise ValueError("too short or of another version")
    if crc32(data[:-_CRC_BYTES]) != int.from_bytes(data[-_CRC_BYTES:], "big"):
        raise ValueError("wrong checksum")
    if data[1:head] != hub[:_HUB_BYTES]:
        raise ValueError("of another hub")
    return Positions(hub, _decode_offsets(data[head:-_CRC_BYTES]))


def _decode_offsets(body: bytes) -> dict[int, int]:
    count, at = read_number(body, 0, NUMBER_BITS)
    if count > MAX_PARTITIONS:
        raise ValueError("too many partitions")
    offsets: dict[int, int] = {}
    for _ in range(count):
        partition_id, at = read_number(body, at, NUMBER_BITS)
        offsets[partition_id], at = read_number(body, at, NUMBER_BITS)
    if at != len(body) or len(offsets) != count:
        raise ValueError("wrong length")
    return offsets
