"""Which transactions nobody has decided about, as far as that is durable: ids in sets, four of them at most. Pure. Hot.

    of_tenant  all of a tenant          of_group   those of a group
    unasked    of a group, those whose last check reached nobody
    timers     when each of them is due

What a start has not read yet is not in here: ids from `known_below` on, up to `new_from`, but for those of `met`, which
something has happened to since.
"""
from __future__ import annotations

from typing import Final, TypeVar

from gatehouse.transactions.due import DueTransaction
from gatehouse.transactions.id_set import IdSet
from gatehouse.transactions.records import Brief, Transaction
from gatehouse.transactions.timers import Timers

ALL_IDS: Final = 1 << 63

Key = TypeVar("Key")
Name = tuple[str, str]
"""Tenant and group."""


# decision 44: everything else stands in state records
class Undecided:
    def __init__(self) -> None:
        self.of_tenant: dict[str, IdSet] = {}
        self.of_group: dict[Name, IdSet] = {}
        self.unasked: dict[Name, IdSet] = {}
        self.timers = Timers()
        self.known_below = self.new_from = ALL_IDS
        self.met = IdSet()

    # ---- while a start reads them

    def begin_loading(self, new_from: int) -> None:
        """Nothing is known of ids below this one."""
        assert not self.of_tenant, "a start reads before anything happens"
        self.known_below, self.new_from = 0, new_from

    def load(self, transaction_id: int, name: Name, brief: Brief, earliest_ms: int) -> None:
        """One that a start has come to; it is due at `earliest_ms` if it has been due for longer."""
        self._enter(transaction_id, name, brief, earliest_ms)

    def loaded(self, below: int) -> None:
        """All ids below this one are known."""
        assert below >= self.known_below, "what is known stays known"
        self.known_below = below
        if below == ALL_IDS:
            self.met = IdSet()

    @property
    def is_loading(self) -> bool:
        return self.known_below < ALL_IDS

    def has(self, tenant: str, transaction_id: int) -> bool:
        """Whether it is in here."""
        ids = self.of_tenant.get(tenant)
        return ids is not None and transaction_id in ids

    def knows(self, transaction_id: int) -> bool:
        """Whether it is in here, if it is undecided."""
        return transaction_id < self.known_below or transaction_id >= self.new_from or transaction_id in self.met

    def meet(self, transaction: Transaction) -> None:
        """A start has not come to it yet, and it is about to change."""
        assert not self.knows(transaction.id), "it is met once"
        self.met.add(transaction.id)
        self.put(transaction)

    # ---- what happens to them

    def put(self, transaction: Transaction, earliest_ms: int = 0) -> None:
        """One that comes in; it is due at `earliest_ms` if it has been due for longer."""
        self._enter(transaction.id, (transaction.tenant, transaction.group), transaction, earliest_ms)

    def move(self, before: Transaction, after: Transaction) -> None:
        """It stays undecided."""
        assert before.id == after.id, "it is the same"
        self.timers.discard(before.next_ms, before.id, before.wait_ms)
        self.timers.add(after.next_ms, after.id, after.wait_ms)

    def remove(self, transaction: Transaction) -> None:
        """This is how it was."""
        name = transaction.tenant, transaction.group
        self.timers.discard(transaction.next_ms, transaction.id, transaction.wait_ms)
        _discard(self.of_tenant, transaction.tenant, transaction.id)
        _discard(self.of_group, name, transaction.id)
        if transaction.unasked:
            _discard(self.unasked, name, transaction.id)

    def checked(self, transaction: DueTransaction, *, was_taken: bool) -> None:
        """It has been asked; whether it was taken from the timers for that."""
        if not was_taken:
            self.timers.discard(transaction.due_ms, transaction.id, transaction.waited_ms)
        self.timers.add(transaction.next_ms, transaction.id, transaction.wait_ms)
        if transaction.unasked:
            self.put_unasked(transaction.name, transaction.id)
        elif transaction.was_unasked:
            _discard(self.unasked, transaction.name, transaction.id)

    def not_checked(self, transaction: DueTransaction, retry_ms: int) -> None:
        """That could not be stored."""
        if transaction.due_ms > retry_ms:
            self.timers.add(transaction.due_ms, transaction.id, transaction.waited_ms)
        else:
            self.timers.add(retry_ms, transaction.id)
        if transaction.was_unasked:
            self.put_unasked(transaction.name, transaction.id)

    def take_unasked(self, name: Name, limit: int) -> list[int]:
        """Up to so many of a group that reached nobody, taken out."""
        ids = self.unasked.get(name)
        if ids is None:
            return []
        taken = ids.take(limit)
        if not ids:
            del self.unasked[name]
        return taken

    def put_unasked(self, name: Name, transaction_id: int) -> None:
        """Its last check reached nobody."""
        _of(self.unasked, name).add(transaction_id)

    def _enter(self, transaction_id: int, name: Name, transaction: Transaction | Brief, earliest_ms: int) -> None:
        _of(self.of_tenant, name[0]).add(transaction_id)
        _of(self.of_group, name).add(transaction_id)
        if transaction.unasked:
            self.put_unasked(name, transaction_id)
        self.timers.add(max(transaction.next_ms, earliest_ms), transaction_id, transaction.wait_ms)


def _of(sets: dict[Key, IdSet], key: Key) -> IdSet:
    ids = sets.get(key)
    if ids is None:
        ids = sets[key] = IdSet()
    return ids


def _discard(sets: dict[Key, IdSet], key: Key, transaction_id: int) -> None:
    ids = sets.get(key)
    if ids is not None:
        ids.discard(transaction_id)
        if not ids:
            del sets[key]
