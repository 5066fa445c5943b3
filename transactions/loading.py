"""A start reads what is undecided, and what is remembered, in slices while the doors are open already.

    a page of records, on the reading thread ─► into the book, on the loop ─► the next page

What is undecided comes first, then what has been decided; what of those that began together is neither is fresh still.
What is asked about one transaction, by its id, is answered from its record meanwhile, and everything can happen to it:
the book meets it then, and the page that brings it later passes it over. Nobody is asked about one before it has been
read here. Lists wait for what they show, and limits count what is known.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.errors import Busy
from gatehouse.kernel.state.state import Kind
from gatehouse.transactions.book import Book
from gatehouse.transactions.fresh import Batch, Begun, decode_batch
from gatehouse.transactions.records import BEGUN, ENDED, OPEN, Brief, decode_brief
from gatehouse.transactions.shared_records import Ended, decode_ended
from gatehouse.transactions.undecided import ALL_IDS, Name

if TYPE_CHECKING:
    from gatehouse.kernel.halves.halves import Halves

# decision 43
GRACE_MS: Final = 6_000                # after a start, for members to come back before anything is asked of nobody
MAX_WAITING: Final = 1_000             # lists that wait for the end of it


# decision 50: read in slices, while the doors are open
class Loading:
    def __init__(self, halves: Halves, book: Book, slice_: int) -> None:
        self._worker = halves.worker
        self._fatal = halves.fatal
        self._book = book
        self._slice = slice_
        self._open = halves.pages(Kind.TRANSACTION, OPEN)
        self._ended = halves.pages(Kind.TRANSACTION, ENDED)
        self._begun = halves.pages(Kind.TRANSACTION, BEGUN)
        self._new_from = halves.first_id
        self._earliest_ms = halves.loop.now_ms() + GRACE_MS
        self._names: dict[tuple[bytes, int], Name] = {}
        self._waiting: list[Callable[[], None]] = []
        self._count = 0                                  # of what has been read
        self._tell_at = 1                                # who waits is told when it is twice what it was
        self._stopped = False
        self.done = False
        book.undecided.begin_loading(self._new_from)
        book.outcomes.begin_loading()

    def start(self, on_loaded: Callable[[set[Name]], None], on_done: Callable[[], None]) -> None:
        """`on_loaded` is called after each page, with the groups in which it found what reached nobody; `on_done` at
        the end."""
        self._on_loaded, self._on_done = on_loaded, on_done
        self._worker.submit(self._read_open, self._open_read)

    def stop(self) -> None:
        self._stopped = True

    def wait(self, callback: Callable[[], None]) -> None:
        """Call when more is known, at last when everything is. Raises Busy."""
        if len(self._waiting) >= MAX_WAITING:
            raise Busy("transactions are being read, and too many requests wait for that")
        self._waiting.append(callback)

    # ---- what is undecided

    def _read_open(self) -> tuple[list[tuple[int, Brief]], bool]:
        """On the reading thread."""
        records, more = self._open.page(self._slice)
        return [(int.from_bytes(key[len(OPEN):], "big"), decode_brief(value)) for key, value in records], more

    def _open_read(self, page: tuple[list[tuple[int, Brief]], bool] | None, error: BaseException | None) -> None:
        if page is None or self._stopped:
            self._end_early(error)
            return
        rows, more = page
        book, unasked = self._book, set[Name]()
        for transaction_id, brief in rows:
            if not book.undecided.knows(transaction_id):
                name = self._name_of(brief)
                book.load(transaction_id, name, brief, self._earliest_ms)
                if brief.unasked:
                    unasked.add(name)
        if rows:
            book.undecided.loaded(rows[-1][0] + 1)
        if not more:
            book.undecided.loaded(ALL_IDS)
        self._on_loaded(unasked)
        self._count += len(rows)
        if self._count >= self._tell_at:
            self._tell_at = 2 * self._count
            self._tell()
        if more:
            self._worker.submit(self._read_open, self._open_read)
        else:
            self._worker.submit(self._read_ended, self._ended_read)

    def _name_of(self, brief: Brief) -> Name:
        """The same object for all of a group."""
        key = brief.name, brief.tenant_length
        group_name = self._names.get(key)
        if group_name is None:
            name, length = key
            group_name = self._names[key] = name[:length].decode(), name[length:].decode()
        return group_name

    # ---- what is remembered

    def _read_ended(self) -> tuple[list[Ended], bool]:
        """On the reading thread."""
        records, more = self._ended.page(self._slice)
        return [decode_ended(key, value) for key, value in records], more

    def _ended_read(self, page: tuple[list[Ended], bool] | None, error: BaseException | None) -> None:
        if page is None or self._stopped:
            self._end_early(error)
            return
        rows, more = page
        for ended in rows:
            self._book.outcomes.load(ended)
        if more:
            self._worker.submit(self._read_ended, self._ended_read)
            return
        self._book.outcomes.loaded()
        self._names.clear()
        self._worker.submit(self._read_begun, self._begun_read)

    # ---- what is neither, of those that began together

    def _read_begun(self) -> tuple[list[Begun], bool]:
        """On the reading thread: one record."""
        records, more = self._begun.page(1)
        return [begun for _, value in records for begun in decode_batch(value)], more

    def _begun_read(self, page: tuple[list[Begun], bool] | None, error: BaseException | None) -> None:
        if page is None or self._stopped:
            self._end_early(error)
            return
        rows, more = page
        book = self._book
        fresh = [begun for begun in rows if begun.id < self._new_from and book.outcomes.find(begun.id) is None
                 and not book.undecided.has(begun.origin.tenant, begun.id)]
        if fresh:
            book.load_batch(Batch(rows[0].id, fresh, self._earliest_ms))
        if more:
            self._worker.submit(self._read_begun, self._begun_read)
            return
        assert not self.done and not self._book.undecided.is_loading, "a start reads everything once"
        self.done = True
        self._on_done()
        self._tell()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def _end_early(self, error: BaseException | None) -> None:
        if error is not None:
            self._fatal(f"the index cannot be read: {error}")
