"""Half messages come in: a transaction begins, or gets more of them. Hot."""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.errors import KernelError, TooManyTransactions, TransactionTooLarge
from gatehouse.kernel.groups.group_settings import check_name
from gatehouse.kernel.halves.half_records import PAGE_BYTES, Half, cut_pages
from gatehouse.kernel.message import Message, Owner
from gatehouse.kernel.write.pending_frame import PendingFrame, Places, Run, Submission
from gatehouse.transactions.access import Access
from gatehouse.transactions.answering import refusal, refuse, refuse_settled
from gatehouse.transactions.book import Book
from gatehouse.transactions.fresh import Begun, Origin
from gatehouse.transactions.plan import Hold
from gatehouse.transactions.records import Transaction
from gatehouse.transactions.settings import CheckSettings, TransactionSettings
from gatehouse.transactions.states import Answer, Event, step

if TYPE_CHECKING:
    from gatehouse.kernel.halves.halves import Halves

ORIGINS: Final = 10_000            # that are remembered


class Holding:
    def __init__(self, halves: Halves, book: Book, access: Access, settings: TransactionSettings) -> None:
        self._halves = halves
        self._book = book
        self._access = access
        self._origins: dict[tuple[str, str, str, CheckSettings], Origin] = {}
        self.settings = settings

    def origin(self, tenant: str, group: str, by: str, checks: CheckSettings) -> Origin:
        """Whose transaction it is. Raises InvalidGroup, InvalidCheckBack."""
        name = tenant, group, by, checks
        origin = self._origins.get(name)
        if origin is None:
            if group:
                check_name(group, "group")
            checks.check()
            if len(self._origins) >= ORIGINS:
                self._origins.clear()
            origin = self._origins[name] = Origin(tenant, group, by, checks)
        return origin

    def begin(self, origin: Origin, halves: list[Half], owner: Owner | None, token: object, name: str | None) -> None:
        """See `Transactions.begin`."""
        if name is not None:                   # what is known already needs no room
            self._halves.append_once(halves, owner, token, origin.key_of(name),
                                     partial(self._check_and_begin, origin, halves))
            return
        size_bytes = self._check_new(halves)
        pending_frame = self._halves.open_frame()
        places: Places = []
        self._begin(origin, halves, size_bytes, pending_frame, places)
        if owner is not None:
            pending_frame.submissions.append(Submission(owner, token, places, None))

    def _check_new(self, halves: list[Half]) -> int:
        """Bytes of their values and headers."""
        if not halves:
            raise TransactionTooLarge("a transaction begins with a half message")
        size_bytes = _size(halves)
        self._check_size(len(halves), size_bytes)
        if self._book.open_count >= self.settings.max_open:
            raise TooManyTransactions(f"{self._book.open_count} transactions are undecided already")
        self._halves.check(halves)
        return size_bytes

    def _check_size(self, messages: int, size_bytes: int) -> None:
        settings = self.settings
        if messages > settings.max_messages or size_bytes > settings.max_bytes:
            raise TransactionTooLarge(f"a transaction has {settings.max_messages} messages and {settings.max_bytes} "
                                      "bytes of them at most")
        if self._book.open_bytes + size_bytes > settings.max_open_bytes:
            raise TooManyTransactions(f"undecided half messages have {self._book.open_bytes} bytes already")

    def _check_and_begin(self, origin: Origin, halves: list[Half], pending_frame: PendingFrame, _: list[Message],
                         places: Places) -> None:
        self._begin(origin, halves, self._check_new(halves), pending_frame, places)

    def _begin(self, origin: Origin, halves: list[Half], size_bytes: int, pending_frame: PendingFrame, places: Places
               ) -> None:
        rows = self._halves.rows(halves)
        messages: list[Message] | None = []
        for half in halves:
            places.append((Run(0, 0), 0))
            if half.when is not None or half.delay_ms:
                messages = None
            elif messages is not None:
                messages.append(half.message)
        begun = Begun(origin, pending_frame.now_ms, rows, size_bytes, messages, places)
        plan = self._book.plan_of(pending_frame)
        if size_bytes <= PAGE_BYTES:
            plan.begin(begun)
        else:
            pages = cut_pages(rows)
            plan.hold(Hold([run for run, _ in places], pages, 0, begun.transaction()._replace(pages=len(pages))),
                      size_bytes)
        self._book.note_open()
        self._halves.on_held(pending_frame, halves, places, 0)
        self._note(pending_frame, size_bytes)

    def _note(self, pending_frame: PendingFrame, size_bytes: int) -> None:
        self._book.note_bytes(size_bytes)
        self._halves.note_bytes(pending_frame, size_bytes)

    # ---- more

    def add(self, transaction_id: int, halves: list[Half], tenant: str, owner: Owner | None, token: object,
            candidate: Transaction | None) -> None:
        """See `Transactions.add`; this is the transaction as it is."""
        transaction = candidate if candidate is not None and candidate.tenant == tenant else None
        answer = step(transaction.state if transaction is not None else None, Event.ADD).answer
        if transaction is None or answer is not Answer.STORED:
            refuse_settled(self._book, transaction_id, owner, token,
                           refusal(self._book, answer, transaction_id, transaction))
            return
        size_bytes = _size(halves)
        try:
            self._check_size(transaction.messages + len(halves), transaction.size_bytes + size_bytes)
            self._halves.check(halves)
            pending_frame = self._halves.open_frame()
        except KernelError as refused:
            refuse(owner, token, refused)
            return
        self._add(transaction, halves, size_bytes, pending_frame, owner, token)

    def _add(self, transaction: Transaction, halves: list[Half], size_bytes: int, pending_frame: PendingFrame,
             owner: Owner | None,
             token: object) -> None:
        """Nobody decides about the transaction before these are durable."""
        pages = cut_pages(self._halves.rows(halves))
        plan = self._book.plan_of(pending_frame)
        next_ms = transaction.next_ms
        if transaction.group and not transaction.attempts:  # a sign of life
            next_ms = plan.now_ms + transaction.settings.first_ms
        after = transaction._replace(messages=transaction.messages + len(halves), pages=transaction.pages + len(pages),
                                     size_bytes=transaction.size_bytes + size_bytes, next_ms=next_ms)
        runs = [Run(0, 0) for _ in halves]
        plan.hold(Hold(runs, pages, transaction.pages, after), size_bytes)
        places = [(run, 0) for run in runs]
        self._halves.on_held(pending_frame, halves, places, transaction.id)
        self._note(pending_frame, size_bytes)
        self._book.change(plan, transaction, after)
        self._access.hold(transaction.id)
        plan.told.append(lambda _: self._access.free_again(transaction.id))
        self._halves.answer(owner, token, 0, places)


def _size(halves: list[Half]) -> int:
    size_bytes = 0
    for half in halves:
        _, value, headers, _, _ = half.message
        size_bytes += len(headers) + (0 if value is None else len(value))
    return size_bytes
