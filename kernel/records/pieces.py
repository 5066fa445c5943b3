"""Pieces of many partitions as bytes, for readers in bulk: all heads in columns, then all bodies as they lie in the
log.

    first offset   i64 x n
    append time    i64 x n    milliseconds since 1970
    first id       i64 x n    message id of the first record; the others follow
    count          u32 x n    records
    length         u32 x n    bytes of the body
    whole          u8  x n    1: a record batch as a producer sent it; 0: bare v2 records
    bodies

Numbers are little-endian. How many pieces there are is told beside them.
"""
from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Final

from gatehouse.kernel.message import Piece

BYTES_PER_HEAD: Final = 33
"""Bytes that one piece's head takes in all columns together."""


def encode_pieces(pieces: Sequence[Piece]) -> list[bytes]:  # decision 102
    """The columns and the bodies, to be sent one after the other."""
    columns = [array("q", [piece.first_offset for piece in pieces]), array("q", [piece.append_ms for piece in pieces]),
               array("q", [piece.first_id for piece in pieces]), array("I", [piece.count for piece in pieces]),
               array("I", [len(piece.data) for piece in pieces])]
    if sys.byteorder != "little":
        for column in columns:
            column.byteswap()
    return [*(column.tobytes() for column in columns), bytes([piece.whole for piece in pieces]),
            *(piece.data for piece in pieces)]
