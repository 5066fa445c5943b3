"""Reading what retention took out of the log because somebody still needs it: KEPT records
(`kernel.retention.holders`).

Below the start of its partition in the log, a reader who asks for what is kept finds these, each a piece of its own.
"""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.index.index import Index
from gatehouse.kernel.message import Piece
from gatehouse.kernel.records import inline
from gatehouse.kernel.retention.holders import kept_key, split_kept_key
from gatehouse.kernel.state.state import Changed, Kind

MAX_PIECES: Final = 4_096                      # of one partition in one fetch


def kept_pieces(index: Index, changed: Changed, partition_id: int, start: int, stop: int, max_bytes: int
                ) -> tuple[list[Piece], int]:
    """What is kept of a partition from one offset until before another, up to a size, but one piece in any case.

    And the offset up to which nothing is left out: `stop`, or less where there is more than was asked for.
    """
    assert start <= stop, "a stretch begins before it ends"
    lowest, below = kept_key(partition_id, start), kept_key(partition_id, stop)
    records: dict[bytes, bytes | None] = {key: None for key in changed.keys() if lowest <= key < below}
    count = size_bytes = 0
    for key, value in index.state_range(Kind.KEPT, lowest, below):
        if value is not None:
            records[key] = value
            count += 1
            size_bytes += len(value)
            if size_bytes > max_bytes or count == MAX_PIECES:
                stop = split_kept_key(key)[1] + 1
                break
    for key in records:
        newest = changed.get(key)
        if newest is not None:
            records[key] = newest[2]
    below = kept_key(partition_id, stop)
    living = [(key, value) for key, value in sorted(records.items()) if value is not None and key < below]
    count = _count_within([len(value) for _, value in living], max_bytes)
    pieces = [inline.piece_of(value, split_kept_key(key)[1]) for key, value in living[:count]]
    reached = split_kept_key(living[count][0])[1] if count < len(living) else stop
    assert not pieces or start <= pieces[0].first_offset <= pieces[-1].first_offset < reached <= stop, \
        "what is kept lies where it was asked for"
    return pieces, reached


def _count_within(sizes: list[int], max_bytes: int) -> int:
    """How many of these go into a size, and into one fetch; one in any case."""
    total = 0
    for count, size in enumerate(sizes[:MAX_PIECES]):
        total += size
        if count and total > max_bytes:
            return count
    return min(len(sizes), MAX_PIECES)
