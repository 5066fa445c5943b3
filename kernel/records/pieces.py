"""Pieces of many partitions as bytes, for readers in bulk: all heads in columns, then all bodies as they lie in the
log.

    first offset   i64 x n
    append time    i64 x n    milliseconds since 1970
    first id       i64 x n    message id of the first record; the others follow
    count          u32 x n    records
    length         u32 x n    bytes of the body
    whole          u8  x n    1: a record batch as a producer sent it; 0: bare v2 records
    bodies

Behind them, where a reader asks who published them (`encode_principals`):

    first offset   i64 x m    a stretch begins there, which ends with its range or where the next begins
    number         u32 x m    of the name of whose it is, among those that are told beside; NOBODY_NUMBER: not known

Numbers are little-endian. How many pieces and stretches there are is told beside them.
"""
from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Final

from gatehouse.kernel.message import Piece

BYTES_PER_HEAD: Final = 33
"""Bytes that one piece's head takes in all columns together."""

NOBODY_NUMBER: Final = 0xFFFF_FFFF


def encode_pieces(pieces: Sequence[Piece]) -> list[bytes]:  # decision 102
    """The columns and the bodies, to be sent one after the other."""
    columns = [array("q", [piece.first_offset for piece in pieces]), array("q", [piece.append_ms for piece in pieces]),
               array("q", [piece.first_id for piece in pieces]), array("I", [piece.count for piece in pieces]),
               array("I", [len(piece.data) for piece in pieces])]
    return [*_little_endian(columns), bytes([piece.whole for piece in pieces]), *(piece.data for piece in pieces)]


def encode_principals(of_ranges: Sequence[Sequence[tuple[int, str]]]) -> tuple[list[str], list[int], bytes]:
    """Of the stretches of each range, (first offset, name or ""): the names, how many stretches each range has, and the
    columns. What has one name is one stretch."""
    numbers: dict[str, int] = {"": NOBODY_NUMBER}
    firsts, whose = array("q"), array("I")
    counts: list[int] = []
    for stretches in of_ranges:
        before = len(firsts)
        for first, name in stretches:
            number = numbers.setdefault(name, len(numbers) - 1)
            if len(firsts) == before or whose[-1] != number:
                firsts.append(first)
                whose.append(number)
        counts.append(len(firsts) - before)
    return list(numbers)[1:], counts, b"".join(_little_endian([firsts, whose]))


def _little_endian(columns: Sequence[array[int]]) -> list[bytes]:
    if sys.byteorder != "little":
        for column in columns:
            column.byteswap()
    return [column.tobytes() for column in columns]
