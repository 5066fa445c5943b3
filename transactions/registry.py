"""Looking at transactions: one with every check and decision, or page by page."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.kernel.ports import Loop
from gatehouse.kernel.state.state import Kind
from gatehouse.transactions.access import Access
from gatehouse.transactions.book import Book
from gatehouse.transactions.loading import Loading
from gatehouse.transactions.outcomes import BEFORE_ALL
from gatehouse.transactions.records import Transaction, decode, open_key
from gatehouse.transactions.shared_records import Ended, decode_ending
from gatehouse.transactions.states import State

if TYPE_CHECKING:
    from gatehouse.kernel.halves.halves import Halves

PAGE: Final = 1_000               # transactions of a page at most, and as many are looked at for it


class Query(NamedTuple):
    tenant: str
    state: State = State.OPEN
    group: str | None = None              # None: any
    older_than_ms: int = 0                # begun so long ago at least
    after: str = ""                       # where the page before ended
    limit: int = 100


Page = tuple[list[Transaction], "str | None"]
"""Transactions, and where to go on; None: there are no more. A page may be short of its limit."""


class Registry:
    def __init__(self, loop: Loop, halves: Halves, book: Book, access: Access, loading: Loading) -> None:
        self._now_ms = loop.now_ms
        self._halves = halves
        self._book = book
        self._access = access
        self._loading = loading

    def show(self, transaction_id: int, tenant: str, on_done: Callable[[Transaction | None], None]) -> bool:
        """See `Transactions.show`."""
        def found(transaction: Transaction | None) -> None:
            if self._book.is_settling(transaction_id):           # nobody is shown what could still vanish
                self._book.when_settled(transaction_id, lambda _: again())
            else:
                on_done(transaction if transaction is not None and transaction.tenant == tenant else None)

        def again() -> None:
            self._access.find(transaction_id, found)
        return self._access.find(transaction_id, found)

    def page(self, query: Query, on_done: Callable[[Page], None]) -> None:
        """See `Transactions.page`. Raises ValueError for an `after` that no page gave, Busy."""
        query = query._replace(limit=max(1, min(query.limit, PAGE)))
        if query.state is State.OPEN:
            self._page_of_open(query, on_done)
        else:
            self._page_of_ended(query, on_done)

    def _page_of_open(self, query: Query, on_done: Callable[[Page], None]) -> None:
        fresh = self._book.fresh_of(query.tenant, query.group, int(query.after or 0))
        ids = list(islice(merge(self._moved(query), fresh), query.limit + 1))
        if not self._loading.done and (len(ids) <= query.limit or ids[-1] >= self._book.undecided.known_below):
            self._loading.wait(partial(self.page, query, on_done))
            return
        own = [transaction_id for transaction_id in ids if transaction_id not in fresh]

        def read(values: Sequence[bytes | None]) -> None:
            of_own = {transaction_id: decode(transaction_id, value)
                      for transaction_id, value in zip(own, values, strict=True) if value is not None}
            transactions = [fresh[transaction_id].as_begun() if transaction_id in fresh else of_own.get(transaction_id)
                            for transaction_id in ids]
            self._finish(query, transactions, list(map(str, ids)), on_done)
        self._read([(Kind.TRANSACTION, open_key(transaction_id)) for transaction_id in own], read)

    def _page_of_ended(self, query: Query, on_done: Callable[[Page], None]) -> None:
        if not self._loading.done:
            self._loading.wait(partial(self.page, query, on_done))
            return
        decisions = list(islice(self._ended(query), PAGE + 1))
        keys = list(dict.fromkeys([ended.key for ended, _ in decisions]))

        def read(values: Sequence[bytes | None]) -> None:
            records = dict(zip(keys, values, strict=True))
            transactions = [decode_ending(record, transaction_id)
                            if (record := records[ended.key]) is not None else None
                            for ended, transaction_id in decisions]
            self._finish(query, transactions,
                         [f"{ended.decided_ms}.{transaction_id}" for ended, transaction_id in decisions], on_done)
        self._read([(Kind.TRANSACTION, key) for key in keys], read)

    def _read(self, names: list[tuple[int, bytes]], then: Callable[[Sequence[bytes | None]], None]) -> None:
        values = self._halves.recent(names)
        if values is not None:
            then(values)
        else:
            self._halves.read(names, then)

    def _moved(self, query: Query) -> Iterator[int]:
        """Undecided ones with records of their own, oldest first."""
        undecided = self._book.undecided
        if query.group is not None:
            ids = undecided.of_group.get((query.tenant, query.group))
        else:
            ids = undecided.of_tenant.get(query.tenant)
        return ids.after(int(query.after or 0)) if ids is not None else iter(())

    def _ended(self, query: Query) -> Iterator[tuple[Ended, int]]:
        """Newest decision first."""
        before_ms, dot, before_id = query.after.partition(".")
        before = (int(before_ms), int(before_id)) if dot else BEFORE_ALL
        return self._book.outcomes.newest(query.tenant, before)

    def _finish(self, query: Query, transactions: list[Transaction | None], cursors: list[str],
                on_done: Callable[[Page], None]) -> None:
        until_ms = self._now_ms() - query.older_than_ms
        matches: list[Transaction] = []
        for number, transaction in enumerate(transactions):
            if len(matches) == query.limit or number == PAGE:
                on_done((matches, cursors[number - 1]))
                return
            if (transaction is None or transaction.state is not query.state
                    or query.group not in (None, transaction.group)):
                continue                                     # decided, or forgotten, meanwhile
            if transaction.begun_ms <= until_ms:
                matches.append(transaction)
            elif query.state is State.OPEN:                  # and younger ones follow
                break
        on_done((matches, None))
