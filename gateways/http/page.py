"""One page of messages out of what was fetched from several partitions. Pure.

Inside a partition, so for every key, messages keep their order. Across partitions a page follows the message ids, which
grow from flush to flush of the hub, as far as the fetched pieces reach. A page always moves on: what cannot be given is
named in it and stepped over.

    lost         offsets before the log's start: retention deleted them before this reader came
    skipped      how many messages a selector passed over
    unreadable   offsets of stored batches at which their producer wrote nothing that makes sense, and offsets that no
                 piece has (the log is damaged there)
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from typing import Any, Final, NamedTuple, Protocol

from gatehouse.kernel.errors import CorruptBatch, StorageFailed
from gatehouse.kernel.message import Fetched, Piece, Record
from gatehouse.kernel.records.batch import missing, sound_records

DAMAGED: Final = (StorageFailed.code, "the log is damaged there")
SENSELESS: Final = (CorruptBatch.code, "the producer's batch has no sound record there")


class PageSource(NamedTuple):
    """One partition of a page: its number, the offset that the reader wants next, and what was fetched from there."""

    partition: int
    position: int
    fetched: Fetched
    compacted: bool = False              # offsets that no piece has are no damage


class _Entry(NamedTuple):
    """One step of a reader through one partition."""

    order: int                           # message id
    partition: int
    next_offset: int                     # the reader's position after this step
    record: Record | None                # None: nothing to show (a control batch), or `unreadable`
    unreadable: dict[str, Any] | None


class Page(NamedTuple):
    """What one request is answered with."""

    records: list[tuple[int, Record]]    # (partition, record)
    positions: dict[int, int]            # next offset by partition
    lost: list[dict[str, Any]]
    unreadable: list[dict[str, Any]]
    skipped: int = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to tell, so that a long poll goes on waiting."""
        return not (self.records or self.lost or self.unreadable)


OpenPiece = Callable[[Piece], list[Record]]


def build_page(sources: list[PageSource], max_messages: int, max_bytes: int,
               selects: Callable[[Record], bool] | None = None, open_piece: OpenPiece = sound_records) -> Page:
    """Take messages that `selects` wants until there are `max_messages`, or over `max_bytes` of keys and values."""
    page = Page([], {source.partition: max(source.position, source.fetched.log_start_offset) for source in sources},
                [], [])
    for source in sources:
        missing = page.positions[source.partition] - source.position
        if missing:
            page.lost.append({"partition": source.partition, "offset": source.position, "count": missing})
        position, behind = page.positions[source.partition], source.fetched.next_offset
        if not source.fetched.pieces and behind > position:
            if not source.compacted:
                page.unreadable.append(_unreadable(source.partition, position, behind, DAMAGED))
            page.positions[source.partition] = behind
    size_bytes = skipped = 0
    for entry in merge(*(_entries(source, page.positions[source.partition], open_piece) for source in sources)):
        if max(len(page.records), len(page.unreadable)) >= max_messages or size_bytes >= max_bytes:
            break
        page.positions[entry.partition] = entry.next_offset
        if entry.record is not None and selects is not None and not selects(entry.record):
            skipped += 1
        elif entry.record is not None:
            page.records.append((entry.partition, entry.record))
            size_bytes += len(entry.record[2] or b"") + len(entry.record[3] or b"")
        elif entry.unreadable is not None:
            page.unreadable.append(entry.unreadable)
    return page._replace(skipped=skipped)


def _entries(source: PageSource, position: int, open_piece: OpenPiece) -> Iterator[_Entry]:
    """The steps of one partition from `position` on; opens a piece only when the page has come to it."""
    for piece in source.fetched.pieces:
        end = piece.first_offset + piece.count
        if end <= position:
            continue
        if piece.first_offset > position and not source.compacted:
            yield _gap(source.partition, piece.first_id, position, piece.first_offset, DAMAGED)
        first, position = max(position, piece.first_offset), end
        records = open_piece(piece)
        gaps = missing(piece, [record[0] for record in records]) if len(records) < piece.count else []
        steps: Iterator[_Entry] = (_Entry(record[6], source.partition, record[0] + 1, record, None)
                                   for record in records
                                   if record[0] >= first)
        if gaps:
            steps = merge(steps, (_gap(source.partition, piece.first_id + start - piece.first_offset, max(start, first),
                                       stop, SENSELESS) for start, stop in gaps if stop > first))
        yield from steps
        if not records and not gaps:                 # control records
            yield _Entry(piece.first_id, source.partition, end, None, None)


def _gap(partition: int, order: int, start: int, stop: int, why: tuple[str, str]) -> _Entry:
    return _Entry(order, partition, stop, None, _unreadable(partition, start, stop, why))


def _unreadable(partition: int, start: int, stop: int, why: tuple[str, str]) -> dict[str, Any]:
    code, detail = why
    return {"partition": partition, "offset": start, "count": stop - start, "code": code, "detail": detail}


class PartitionReader(Protocol):
    """Who reads partitions: a guard, for its principal; or the door's port, where each reader's right was asked
    before."""

    def fetch(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None],
              stored: bool) -> None:
        """See `KernelPort.fetch`."""

    def offset_for_time(self, partition_id: int, timestamp_ms: int, on_done: Callable[[int | None, int], None]) -> None:
        """See `KernelPort.offset_for_time`."""

    def note_unreadable(self, partition_id: int, offset: int, count: int) -> None:
        """See `KernelPort.note_unreadable`."""


def note_unreadable(reader: PartitionReader, page: Page, partition_id_of: Callable[[int], int]) -> None:
    """Tell the kernel what producers' batches did not hold; `partition_id_of` makes a partition id of a page's
    partition."""
    for gap in page.unreadable:
        if gap["code"] == CorruptBatch.code:
            reader.note_unreadable(partition_id_of(gap["partition"]), gap["offset"], gap["count"])
