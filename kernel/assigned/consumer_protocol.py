"""What consumers tell each other in a classic group, as far as the hub has to read it to assign in their stead. Pure.

    subscription   version i16 │ topics: count i32, (string i16)... │ bytes of the assignor's own i32
                   │ from version 1: what it has: count i32, (topic, count i32, partition i32 ...)...
    assignment     version i16 │ count i32, (topic, count i32, partition i32 ...)... │ bytes of the assignor's own i32

A group of others (Connect's workers, say) tells other things under another protocol type.
"""
from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

PROTOCOL_TYPE: Final = "consumer"
FIRST_SAYS_OWNED: Final = 1

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")

Parts = list[tuple[str, list[int]]]
"""Numbers of partitions by topic."""


class Subscription(NamedTuple):
    topics: frozenset[str]
    owned: Parts


class _PartReader:
    """Reads fields in turn. Raises ValueError where they are not there."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, shape: struct.Struct) -> int:
        at = self._at
        self._at += shape.size
        if self._at > len(self._data):
            raise ValueError("cut off")
        value: int = shape.unpack_from(self._data, at)[0]
        return value

    def count(self, least_bytes: int) -> int:
        count = self.number(_I32)
        if count * least_bytes > len(self._data) - self._at:
            raise ValueError("a count that cannot be")
        return max(count, 0)

    def take(self, size: int) -> bytes:
        at = self._at
        self._at += max(size, 0)
        if self._at > len(self._data):
            raise ValueError("cut off")
        return self._data[at:self._at]

    def text(self) -> str:
        return self.take(self.number(_I16)).decode()

    def parts(self) -> Parts:
        return [(self.text(), [self.number(_I32) for _ in range(self.count(4))]) for _ in range(self.count(6))]


def read_subscription(metadata: bytes) -> Subscription | None:
    """None where it is no such thing."""
    read = _PartReader(metadata)
    try:
        version = read.number(_I16)
        topics = frozenset([read.text() for _ in range(read.count(2))])
        read.take(read.number(_I32))
        return Subscription(topics, read.parts() if version >= FIRST_SAYS_OWNED else [])
    except ValueError:
        return None


def read_assignment(assignment: bytes) -> Parts:
    """Nothing where it is no such thing."""
    read = _PartReader(assignment)
    try:
        read.number(_I16)
        return read.parts()
    except ValueError:
        return []


def encode_assignment(parts: Iterable[tuple[str, list[int]]]) -> bytes:
    rows = list(parts)
    pieces = [_I16.pack(0), _I32.pack(len(rows))]
    for topic, numbers in rows:
        name = topic.encode()
        pieces += [_I16.pack(len(name)), name, _I32.pack(len(numbers)), *[_I32.pack(number) for number in numbers]]
    return b"".join([*pieces, _I32.pack(0)])
