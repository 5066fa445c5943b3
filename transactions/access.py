"""One thing at a time per transaction: whoever asks about one finds it as it is, or waits until it is free.

What is in memory is answered at once. The rest is read on the reading thread, and while it is, nobody changes it: that
is why what was read is still true when it comes.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.halves.half_records import HeldMessage, decode_page, half_key
from gatehouse.kernel.state.state import Kind
from gatehouse.transactions.book import Book
from gatehouse.transactions.loading import Loading
from gatehouse.transactions.records import Transaction, decode, open_key
from gatehouse.transactions.shared_records import Ended, decode_ending

if TYPE_CHECKING:
    from gatehouse.kernel.halves.halves import Halves

MAX_WAITING: Final = 1_000            # requests about one transaction, while it is read
MAX_LATER: Final = 100_000            # transactions that are looked for while a start reads what there is
MAX_ID: Final = 1 << 63

Step = Callable[["Transaction | None"], None]


class Access:
    def __init__(self, halves: Halves, book: Book, loading: Loading) -> None:
        self._halves = halves
        self._book = book
        self._loading = loading
        self._later: list[int] = []              # which are looked for again when everything is known
        self._taken: dict[int, deque[Step]] = {}

    def find(self, transaction_id: int, step: Step) -> bool:
        """Call `step` with the transaction once it is free; None: unknown. False: too many wait for it."""
        if not 0 < transaction_id < MAX_ID:
            step(None)
            return True
        waiting = self._taken.get(transaction_id)
        if waiting is not None:
            if len(waiting) >= MAX_WAITING:
                return False
            waiting.append(step)
            return True
        transaction = self._book.known(transaction_id)
        if transaction is not None:
            step(transaction)
            return True
        if len(self._later) >= MAX_LATER:
            return False
        ended = self._book.outcomes.find(transaction_id)
        names = [(Kind.TRANSACTION, ended.key if ended is not None else open_key(transaction_id))]
        self._taken[transaction_id] = deque([step])
        values = self._halves.recent(names)
        if values is not None:
            self._found(transaction_id, ended, values)
        else:
            self._halves.read(names, partial(self._found, transaction_id, ended))
        return True

    def _found(self, transaction_id: int, ended: Ended | None, values: list[bytes | None]) -> None:
        value = values[0]
        if value is None:
            if self._loading.done:
                self.free(transaction_id, None)
            else:
                self._later.append(transaction_id)
        elif ended is None:
            self.free(transaction_id, decode(transaction_id, value))
        else:
            self.free(transaction_id, decode_ending(value, transaction_id))

    def all_known(self) -> None:
        """A start has read everything."""
        later, self._later = self._later, []
        for transaction_id in later:
            self.free_again(transaction_id)

    # ---- taking

    # decision 42: nobody reads a record of which a newer one is on its way
    def take(self, transaction_id: int) -> bool:
        """Have it to oneself until `free`; False where somebody else has, or what became of it is not durable yet: a
        record that is read meanwhile might be the one before."""
        if transaction_id in self._taken or transaction_id in self._book.settling:
            return False
        self._taken[transaction_id] = deque()
        return True

    def free(self, transaction_id: int, transaction: Transaction | None) -> None:
        """Others may go on with it, as it is now."""
        assert transaction is None or transaction.id == transaction_id, "it is this one"
        waiting = self._taken.pop(transaction_id)
        while waiting:
            step = waiting.popleft()
            step(self._book.settling.get(transaction_id, transaction))
            taken = self._taken.get(transaction_id)
            if taken is not None:                # by that step
                taken.extend(waiting)
                return

    def free_again(self, transaction_id: int) -> None:
        """Give a transaction free, where it has to be looked up how it is now."""
        for step in self._taken.pop(transaction_id):
            self.find(transaction_id, step)

    def hold(self, transaction_id: int) -> None:
        """Have it to oneself, whoever finds it, until `free_again`."""
        assert transaction_id not in self._taken, "one thing at a time"
        self._taken[transaction_id] = deque()

    # ---- half messages

    def half_messages(self, transaction: Transaction, on_read: Callable[[list[HeldMessage]], None]) -> None:
        """All of them, of one that has records of its own; nobody else goes on with it before `on_read` has returned.
        At once where they are in memory."""
        names = page_names(transaction)
        pages = self._halves.recent(names)
        if pages is not None:
            on_read(_held(pages))
            return
        self.hold(transaction.id)
        self._halves.read(names, partial(self._pages_read, transaction, on_read))

    def _pages_read(self, transaction: Transaction, on_read: Callable[[list[HeldMessage]], None],
                    pages: list[bytes | None]) -> None:
        on_read(_held(pages))
        self.free_again(transaction.id)


def page_names(transaction: Transaction) -> list[tuple[int, bytes]]:
    return [(Kind.HALF, half_key(transaction.id, page)) for page in range(transaction.pages)]


def _held(pages: Iterable[bytes | None]) -> list[HeldMessage]:
    messages: list[HeldMessage] = []
    for page in pages:
        assert page is not None, "an open transaction has its half messages"
        messages += decode_page(page)
    return messages
