"""Refusals that are found after the call has returned: answered as everything else is."""
from __future__ import annotations

from gatehouse.kernel.errors import AlreadyDecided, KernelError, StorageFull, UnknownTransaction
from gatehouse.kernel.message import Owner, Stored, tell
from gatehouse.transactions.book import Book
from gatehouse.transactions.records import Transaction
from gatehouse.transactions.states import Answer, State

WORDS = {State.COMMITTED: "has been committed", State.ROLLED_BACK: "has been rolled back",
         State.EXPIRED: "was given up, as nobody decided in time"}


def refuse(owner: Owner | None, token: object, error: Exception) -> None:
    """Tell the owner of an error."""
    if owner is not None:
        tell(owner, [Stored(token, error, 0, [])])


# decision 42: a refusal waits for what it goes by, too
def refuse_settled(book: Book, transaction_id: int, owner: Owner | None, token: object, error: Exception) -> None:
    """Answer with an error that says what became of a transaction: when that is durable."""
    full = StorageFull("the disk is full: nothing has become of it")
    book.when_settled(transaction_id, lambda stored: refuse(owner, token, error if stored else full))


def refusal(book: Book, answer: Answer, transaction_id: int, transaction: Transaction | None) -> KernelError:
    """The error that an answer is which refuses."""
    if answer is Answer.REFUSED and transaction is not None:
        return AlreadyDecided(f"transaction {transaction_id} {WORDS[transaction.state]}",
                              transaction.state.name.lower(), book.wall_of(transaction.decided_ms))
    return unknown(transaction_id)


def unknown(transaction_id: int) -> UnknownTransaction:
    """What whoever may not see one is told, too, and in the same words."""
    return UnknownTransaction(f"there is no transaction {transaction_id}, or its decision is no longer remembered")
