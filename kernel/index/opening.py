"""Producers' batches on their way to readers: what a fetch found is opened, within the bytes that were asked for.

What opens to a little is opened here. The first batch of an answer that opens to more is cut on the reading thread,
where those that were cut last are held for whoever reads on: so many readers of one batch hold it once, and a step of
theirs costs what it gives. Batches behind it come with the next fetch.
"""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from gatehouse.kernel.errors import StorageFailed
from gatehouse.kernel.message import Fetched, Piece
from gatehouse.kernel.ports import Worker
from gatehouse.kernel.records.opened import Opened, opened_whole

OPEN_HERE_BYTES: Final = 256 << 10     # of one batch, opened: a millisecond's work
HELD_BYTES: Final = 32 << 20           # of opened batches, for all readers; one that is larger is held alone
MAX_LARGE: Final = 1_000               # batches that are known to open to more than fitted


class _Cut(NamedTuple):
    """The part of one batch that an answer lacks."""

    answer: Fetched
    piece: Piece
    offset: int
    max_bytes: int
    max_record_bytes: int


class Opening:
    """`limit_of` says how large a record of a partition may be."""

    def __init__(self, worker: Worker, limit_of: Callable[[int], int]) -> None:
        self._worker = worker
        self._limit_of = limit_of
        self._large: dict[tuple[int, int], None] = {}
        self._held: OrderedDict[tuple[int, int], Opened] = OrderedDict()      # the reading thread's own
        self.held_bytes = 0

    def open(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None],
             answers: list[Fetched]) -> None:
        """Open the pieces of these answers; `on_done` before this returns, unless something has to be cut."""
        cuts: list[_Cut] = []
        for (_, offset, partition_bytes), answer in zip(wants, answers, strict=True):
            if answer.pieces:
                max_bytes -= self._open_answer(answer, offset, min(partition_bytes, max_bytes), cuts)
        if cuts:
            self._worker.submit(partial(self._cut_all, cuts), partial(self._cut_done, answers, cuts, on_done))
        else:
            on_done(answers)

    def _open_answer(self, answer: Fetched, offset: int, max_bytes: int, cuts: list[_Cut]) -> int:
        """How many bytes of it are given, or will be."""
        left = max_bytes
        given: list[Piece] = []
        for piece in answer.pieces:
            opened = self._open_here(answer.partition_id, piece, left) if piece.whole else piece
            if opened is None and not given and max_bytes > 0:
                limit = self._limit_of(answer.partition_id)
                cuts.append(_Cut(answer, piece, offset, max_bytes, limit))
                answer.pieces = []
                return max_bytes
            if opened is None or left <= 0 or given and len(opened.data) > left:
                answer.next_offset = given[-1].first_offset + given[-1].count if given else -1
                break
            given.append(opened)
            left -= len(opened.data)
        answer.pieces = given
        return max_bytes - left

    def _open_here(self, partition_id: int, piece: Piece, max_bytes: int) -> Piece | None:
        key = (partition_id, piece.first_offset)
        if key in self._large:
            return None
        max_bytes = min(max_bytes, OPEN_HERE_BYTES)
        opened = opened_whole(piece, max_bytes, self._limit_of(partition_id)) if max_bytes > 0 else None
        if opened is None and max_bytes == OPEN_HERE_BYTES:
            if len(self._large) >= MAX_LARGE:
                self._large.clear()
            self._large[key] = None
        return opened

    # ---- on the reading thread

    def _cut_all(self, cuts: list[_Cut]) -> list[Piece]:
        return [self._cut(cut) for cut in cuts]

    def _cut(self, cut: _Cut) -> Piece:
        key = (cut.answer.partition_id, cut.piece.first_offset)
        opened = self._held.get(key)
        if opened is None:
            opened = self._held[key] = Opened(cut.piece)
            self.held_bytes += opened.size_bytes
            while self.held_bytes > HELD_BYTES and len(self._held) > 1:
                self.held_bytes -= self._held.popitem(last=False)[1].size_bytes
        else:
            self._held.move_to_end(key)
        return opened.part(cut.offset, cut.max_bytes, cut.max_record_bytes)

    # ---- back on the kernel's thread

    @staticmethod
    def _cut_done(answers: list[Fetched], cuts: list[_Cut], on_done: Callable[[list[Fetched]], None],
                  parts: list[Piece] | None, error: BaseException | None) -> None:
        for i, cut in enumerate(cuts):
            answer = cut.answer
            if parts is None:
                answer.error = StorageFailed(f"a batch cannot be opened: {error}")
            else:
                answer.pieces = [parts[i]]
                answer.next_offset = parts[i].first_offset + parts[i].count
        on_done(answers)
