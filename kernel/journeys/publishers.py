"""Finds out who published a message of which nothing was recorded: by the column of authors in its frame."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from gatehouse.kernel.index.reader import Reader
from gatehouse.kernel.log.log import Log
from gatehouse.kernel.message import Origin
from gatehouse.kernel.ports import Worker
from gatehouse.kernel.records.authors import (
    HEAD_BYTES,
    NUMBER_BITS,
    Authors,
    CorruptAuthors,
    decode_authors,
    length_of,
)

MAX_COLUMN_BYTES: Final = 128 << 20          # MAX_AUTHORS with the longest names


class Publishers:
    """`worker` reads the log."""

    def __init__(self, *, log: Log, worker: Worker, reader: Reader) -> None:
        self._log = log
        self._worker = worker
        self._reader = reader

    def find(self, partition_id: int, offset: int, message_id: int, on_done: Callable[[Origin | None], None]) -> None:
        """Who published the message that lies there; None where that is not recorded: it is older than this, the hub
        itself wrote it, or it waited before it entered the partition."""
        position = self._reader.position_of(partition_id, offset)
        if position < 0:
            on_done(None)
            return
        self._worker.submit(partial(self._author, position, message_id),
                            lambda author, error: on_done(author if error is None else None))

    def _author(self, position: int, message_id: int) -> Origin | None:
        """On the reading thread."""
        column = read_column(self._log, position)
        where = -1 if column is None else column.author_of(message_id)
        if column is None or where < 0:
            return None
        said_at, number = where >> NUMBER_BITS, where & ((1 << NUMBER_BITS) - 1)
        if said_at:
            column = read_column(self._log, said_at)
        return column.names[number] if column is not None and number < len(column.names) else None


def read_column(log: Log, position: int) -> Authors | None:
    """The column of the frame at a position; None where it has none, or is gone."""
    length = length_of(log.read([(position, 0, HEAD_BYTES)])[0])
    if not 0 < length <= MAX_COLUMN_BYTES:
        return None
    try:
        return decode_authors(log.read([(position, 0, length)])[0])
    except CorruptAuthors:
        return None
