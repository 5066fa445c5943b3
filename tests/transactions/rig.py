"""A kernel with transactions in a world of one thread: begin, decide, let time go by, look at what members heard."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from gatehouse.kernel.log.disk_guard import Reserve
from gatehouse.kernel.log.log import Log
from gatehouse.kernel.log.segments import Disk
from gatehouse.kernel.message import Message, Stored, When
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.settings import KernelSettings
from gatehouse.transactions.coordinator import (
    Check,
    CheckSettings,
    Decision,
    Half,
    Membership,
    Query,
    State,
    Transaction,
    Transactions,
    TransactionSettings,
)
from tests.kernel.rig import Rig

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK


class Asked:
    """A member that remembers what it was asked."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def on_checks(self, checks: list[Check]) -> None:
        self.checks += checks

    @property
    def ids(self) -> list[int]:
        return [check.id for check in self.checks]


class TransactionRig(Rig):
    def __init__(self, transactions: TransactionSettings | None = None, *, folder: Path | None = None,
                 settings: KernelSettings | None = None, log: Log | None = None, disk: Disk | None = None,
                 reserve: Reserve | None = None, emergency_reserve: Reserve | None = None) -> None:
        self.transaction_settings = transactions or TransactionSettings()
        super().__init__(folder, settings, log=log, disk=disk, reserve=reserve, emergency_reserve=emergency_reserve)
        self._open_transactions()

    def _open_transactions(self) -> None:
        self.transactions = Transactions(self.kernel, self.transaction_settings)
        self.transactions.open()

    def restart(self, *, lose_index: bool = False) -> None:
        super().restart(lose_index=lose_index)
        self._open_transactions()

    @property
    def now_ms(self) -> int:
        return self.world.loop.now_ms()

    def message(self, address: str, value: bytes | None, headers: list[tuple[bytes, bytes | None]] | None = None,
                attributes: int = 2) -> Message:
        return self.kernel.place(address), value, encode_headers(headers or []), attributes, 0

    def half(self, address: str, value: bytes, *, delay_ms: int = 0, when: When | None = None) -> Half:
        return Half(self.message(address, value), when, delay_ms)

    def answer(self) -> Stored:
        """The last one. Raises its error."""
        self.run()
        answer = self.witness.stored[-1]
        if answer.error is not None:
            raise answer.error
        return answer

    def begin(self, *messages: tuple[str, bytes] | Half, group: str = "shop", tenant: str = "/",
              checks: CheckSettings | None = None, name: str | None = None, by: str = "the sender") -> int:
        """A transaction of these; its id once it is durable."""
        halves = [one if isinstance(one, Half) else self.half(*one) for one in messages]
        self.transactions.begin(halves, group=group, tenant=tenant, by=by, settings=checks,
                                owner=self.witness, token="begin", name=name)
        return self.answer().positions[0][2]

    def add(self, transaction_id: int, *messages: tuple[str, bytes]) -> list[int]:
        self.transactions.add(transaction_id, [self.half(*one) for one in messages], owner=self.witness)
        return [message_id for _, _, message_id in self.answer().positions]

    def decide(self, transaction_id: int, decision: Decision, **more: Any) -> Stored:
        self.transactions.decide(transaction_id, decision, by="the sender", owner=self.witness, token=decision, **more)
        return self.answer()

    def commit(self, transaction_id: int, **more: Any) -> Stored:
        return self.decide(transaction_id, COMMIT, **more)

    def rollback(self, transaction_id: int, **more: Any) -> Stored:
        return self.decide(transaction_id, ROLLBACK, **more)

    def join(self, group: str = "shop", name: str = "", credit: int | None = None) -> tuple[Asked, Membership]:
        asked = Asked()
        membership = self.transactions.join(group, "/", asked, name=name, credit=credit)
        self.run()
        return asked, membership

    def advance(self, by_ms: int, step_ms: int = 100) -> None:
        while by_ms > 0:
            self.world.advance(min(step_ms, by_ms))
            by_ms -= step_ms
        self.run()

    def show(self, transaction_id: int, tenant: str = "/") -> Transaction | None:
        found: list[Transaction | None] = []
        self.transactions.show(transaction_id, tenant, found.append)
        self.run()
        return found[0]

    def state(self, transaction_id: int) -> State | None:
        found = self.show(transaction_id)
        return found.state if found is not None else None

    def page(self, **query: Any) -> tuple[list[int], str | None]:
        found: list[Any] = []
        self.transactions.page(Query("/", **query), found.append)
        self.run()
        transactions, after = found[0]
        return [one.id for one in transactions], after

    def forget_memory(self) -> None:
        """As after a checkpoint: what is asked for next is read from the store."""
        self.advance(self.settings.checkpoint_ms + 100)
        assert not self.kernel._state.changes.newest
