"""One page of messages out of what was fetched from several queues. Pure.

Inside a queue, so for every key, messages keep their order. Across queues a page follows the message ids, which grow
from flush to flush of the hub, as far as the fetched pieces reach. A page always moves on: what cannot be given is
named in it and stepped over.

    lost         offsets before the log's start: retention deleted them before this reader came
    skipped      how many messages a selector passed over
    unreadable   stored batches that cannot be opened (a producer's broken compression), and offsets that no piece has
                 (the log is damaged there)
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from typing import Any, NamedTuple

from kernel.errors import CorruptBatch, StorageFailed
from kernel.message import Fetched, Piece, Record
from kernel.records.batch import records_of


class Source(NamedTuple):
    """One queue of a page: its number, the offset that the reader wants next, and what was fetched from there."""

    queue: int
    position: int
    fetched: Fetched
    compacted: bool = False              # offsets that no piece has are no damage


class _Entry(NamedTuple):
    """One step of a reader through one queue."""

    order: int                           # message id
    queue: int
    next_offset: int                     # the reader's position after this step
    record: Record | None                # None: nothing to show (a control batch), or `unreadable`
    unreadable: dict[str, Any] | None


class Page(NamedTuple):
    """What one request is answered with."""

    records: list[tuple[int, Record]]    # (queue, record)
    positions: dict[int, int]            # next offset by queue
    lost: list[dict[str, Any]]
    unreadable: list[dict[str, Any]]
    skipped: int = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to tell, so that a long poll goes on waiting."""
        return not (self.records or self.lost or self.unreadable)


OpenPiece = Callable[[Piece], list[Record]]


def build_page(sources: list[Source], max_messages: int, max_bytes: int,
               selects: Callable[[Record], bool] | None = None, open_piece: OpenPiece = records_of) -> Page:
    """Take messages that `selects` wants until there are `max_messages`, or over `max_bytes` of keys and values."""
    page = Page([], {source.queue: max(source.position, source.fetched.log_start_offset) for source in sources}, [], [])
    for source in sources:
        missing = page.positions[source.queue] - source.position
        if missing:
            page.lost.append({"queue": source.queue, "offset": source.position, "count": missing})
        if not source.fetched.pieces and source.fetched.next_offset > page.positions[source.queue]:
            if not source.compacted:
                page.unreadable.append(_damaged(source, page.positions[source.queue], source.fetched.next_offset))
            page.positions[source.queue] = source.fetched.next_offset
    size_bytes = skipped = 0
    for entry in merge(*(_entries(source, page.positions[source.queue], open_piece) for source in sources)):
        if len(page.records) >= max_messages or size_bytes >= max_bytes:
            break
        page.positions[entry.queue] = entry.next_offset
        if entry.record is not None and selects is not None and not selects(entry.record):
            skipped += 1
        elif entry.record is not None:
            page.records.append((entry.queue, entry.record))
            size_bytes += len(entry.record[2] or b"") + len(entry.record[3] or b"")
        elif entry.unreadable is not None:
            page.unreadable.append(entry.unreadable)
    return page._replace(skipped=skipped)


def _damaged(source: Source, start: int, stop: int) -> dict[str, Any]:
    return {"queue": source.queue, "offset": start, "count": stop - start, "code": StorageFailed.code,
            "detail": "the log is damaged there"}


def _entries(source: Source, position: int, open_piece: OpenPiece) -> Iterator[_Entry]:
    """The steps of one queue from `position` on; opens a piece only when the page has come to it."""
    for piece in source.fetched.pieces:
        end = piece.first_offset + piece.count
        if end <= position:
            continue
        if piece.first_offset > position and not source.compacted:
            yield _Entry(piece.first_id, source.queue, piece.first_offset, None,
                         _damaged(source, position, piece.first_offset))
        first, position = max(position, piece.first_offset), end
        try:
            records = [record for record in open_piece(piece) if record[0] >= first]
        except CorruptBatch as error:
            yield _Entry(piece.first_id, source.queue, end, None, {
                "queue": source.queue, "offset": first, "count": end - first, "code": error.code, "detail": str(error)})
            continue
        for record in records[:-1]:
            yield _Entry(record[6], source.queue, record[0] + 1, record, None)
        last = records[-1] if records else None
        yield _Entry(last[6] if last else piece.first_id, source.queue, end, last, None)
