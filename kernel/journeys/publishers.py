"""Finds out who published messages of which nothing was recorded: by the columns of authors in their frames."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from gatehouse.kernel.index.reader import Reader
from gatehouse.kernel.log.log import Log
from gatehouse.kernel.message import (
    AUTHOR_BITS,
    COLUMN_HEAD_BYTES,
    Authors,
    CorruptAuthors,
    Origin,
    Piece,
    Stretches,
    column_length,
    decode_authors,
)
from gatehouse.kernel.ports import Worker

MAX_COLUMN_BYTES: Final = 128 << 20          # MAX_AUTHORS with the longest names
START_BYTES: Final = 256                     # of a frame, read first: most columns are no longer
FRAMES: Final = 64                           # of which one job reads the columns
MAX_NAMES: Final = 10_000                    # that are remembered, by where they stand

OnAuthors = Callable[[list[Stretches]], None]
"""Of each piece: from which offset on it is whose; None where that is not known."""


class Publishers:
    """`worker` reads the log for somebody who looks a message up, `bulk_worker` for who reads in bulk."""

    def __init__(self, *, log: Log, worker: Worker, bulk_worker: Worker, reader: Reader) -> None:
        self._log = log
        self._worker = worker
        self._bulk_worker = bulk_worker
        self._reader = reader
        self._names: dict[int, Origin | None] = {}       # by where they stand; of the reading thread

    def find(self, partition_id: int, offset: int, message_id: int, on_done: Callable[[Origin | None], None]) -> None:
        """Who published the message that lies there; None where that is not recorded: it is older than this, the hub
        itself wrote it, or it waited before it entered the partition."""
        position = self._reader.position_of(partition_id, offset)
        if position < 0:
            on_done(None)
            return
        self._worker.submit(partial(self._author, position, message_id),
                            lambda author, error: on_done(author if error is None else None))

    def find_all(self, pieces: Sequence[Piece], on_done: OnAuthors) -> None:
        """Who published these, as they were fetched. What cannot be read is not known."""
        positions = list(dict.fromkeys(piece.position for piece in pieces if piece.position))
        self._read_columns(pieces, positions, {}, on_done)

    def _read_columns(self, pieces: Sequence[Piece], positions: list[int], columns: dict[int, Authors],
                      on_done: OnAuthors) -> None:
        """Frame after frame, so many at a time; then the names."""
        if positions:
            def on_read(read: dict[int, Authors] | None, error: BaseException | None) -> None:
                columns.update(read or {})
                self._read_columns(pieces, positions[FRAMES:], columns, on_done)

            self._bulk_worker.submit(partial(read_columns, self._log, positions[:FRAMES]), on_read)
            return
        self._bulk_worker.submit(partial(self._authors, pieces, columns),
                                 lambda authors, error: on_done([[] for _ in pieces] if authors is None else authors))

    def _authors(self, pieces: Sequence[Piece], columns: dict[int, Authors]) -> list[Stretches]:
        """On the reading thread."""
        of_pieces: list[Stretches] = []
        for piece in pieces:
            column = columns.get(piece.position)
            of_pieces.append([] if column is None else [
                (piece.first_offset + message_id - piece.first_id, self._name(column, where, columns))
                for message_id, where in column.within(piece.first_id, piece.count)])
        return of_pieces

    def _author(self, position: int, message_id: int) -> Origin | None:
        """On the reading thread."""
        column = read_columns(self._log, [position]).get(position)
        where = -1 if column is None else column.author_of(message_id)
        return None if column is None else self._name(column, where, {})

    def _name(self, column: Authors, where: int, columns: dict[int, Authors]) -> Origin | None:
        """The name that stands there, in this column or in one of before."""
        said_at, number = where >> AUTHOR_BITS, where & ((1 << AUTHOR_BITS) - 1)
        if where < 0:
            return None
        if not said_at:
            return column.names[number] if number < len(column.names) else None
        if where not in self._names:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            said = columns.get(said_at) or read_columns(self._log, [said_at]).get(said_at)
            self._names[where] = said.names[number] if said is not None and number < len(said.names) else None
        return self._names[where]


def read_columns(log: Log, positions: Sequence[int]) -> dict[int, Authors]:
    """The columns of the frames at these positions; those that have none, or are gone, are not among them."""
    columns: dict[int, Authors] = {}
    for position, start in zip(positions, log.read([(each, 0, START_BYTES) for each in positions]), strict=True):
        length = column_length(start[:COLUMN_HEAD_BYTES])
        if not 0 < length <= MAX_COLUMN_BYTES:
            continue
        column = start[:length] if length <= len(start) else log.read([(position, 0, length)])[0]
        try:
            columns[position] = decode_authors(column)
        except CorruptAuthors:
            continue
    return columns
