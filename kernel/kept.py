"""Reading what retention took out of the log because somebody still needs it: KEPT records (`kernel.owed`).

Below the start of its queue in the log, a reader who asks for what is kept finds these, each a piece of its own.
"""
from __future__ import annotations

from typing import Final

from kernel import inline
from kernel.index import Index
from kernel.message import Piece
from kernel.owed import kept_key, split_kept_key
from kernel.state import Changed, Kind

MAX_PIECES: Final = 4_096                      # of one queue in one fetch


def kept_pieces(index: Index, changed: Changed, queue_id: int, start: int, stop: int, max_bytes: int) -> list[Piece]:
    """What is kept of a queue from one offset until before another, up to a size, but one piece in any case."""
    lowest, below = kept_key(queue_id, start), kept_key(queue_id, stop)
    fresh = [key for key in changed.keys() if lowest <= key < below]
    found: dict[bytes, bytes | None] = {}
    size_bytes = 0
    for key, value in index.state_range(Kind.KEPT, lowest, below):
        if value is None:
            continue
        if found and (size_bytes + len(value) > max_bytes or len(found) == MAX_PIECES):
            fresh = [one for one in fresh if one < key]
            break
        found[key] = value
        size_bytes += len(value)
    for key in fresh:
        newest = changed.get(key)
        if newest is not None:
            found[key] = newest[2]
    return _pieces_within([(key, value) for key, value in sorted(found.items()) if value is not None], max_bytes)


def _pieces_within(records: list[tuple[bytes, bytes]], max_bytes: int) -> list[Piece]:
    pieces: list[Piece] = []
    size_bytes = 0
    for key, value in records[:MAX_PIECES]:
        size_bytes += len(value)
        if pieces and size_bytes > max_bytes:
            break
        pieces.append(inline.piece_of(value, split_kept_key(key)[1]))
    return pieces
