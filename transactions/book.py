"""What is known of transactions in memory, as it is durable, and what waits to become so.

    fresh         those that have just begun, whole
    undecided     the others: ids in sets, and when each of them is due
    outcomes      ids of decisions that are remembered, oldest decision first, and which record each stands in
    settling      by id, what a transaction will be once frames that are on their way are durable

Everything else stands in the state records: an undecided transaction that is not fresh costs some thirty bytes here.
After a start `transactions.loading` fills it while everything else goes on. Hot.
"""
from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.write.pending_frame import PendingFrame
from gatehouse.transactions.fresh import Batch, Begun, Fresh
from gatehouse.transactions.outcomes import Outcomes
from gatehouse.transactions.plan import Plan
from gatehouse.transactions.records import Brief, Transaction
from gatehouse.transactions.states import State
from gatehouse.transactions.undecided import Name, Undecided

if TYPE_CHECKING:
    from gatehouse.kernel.halves.halves import Halves

RETRY_MS: Final = 1_000           # after the disk refused a frame
OPEN: Final = State.OPEN            # decision 357: looked up once
ENDS: Final = (State.COMMITTED, State.ROLLED_BACK, State.EXPIRED)

_ID: Final = attrgetter("id")


class Book:
    """`listeners` are told of every plan's end, after the book, with whether it was stored."""

    def __init__(self, halves: Halves, slice_: int) -> None:
        self._now_ms = halves.loop.now_ms
        self.wall_of = halves.wall_of        # of a hub time, for what is shown
        self.undecided = Undecided()
        self.outcomes = Outcomes()
        self.fresh = Fresh()
        self.settling: dict[int, Transaction] = {}
        self._settling_with: dict[int, Plan] = {}
        self.listeners: list[Callable[[Plan, bool], None]] = []
        self.open_count = self.open_bytes = 0        # on their way included; after a start, as far as they are known
        self.begun_total = 0
        self.ended_totals = dict.fromkeys(ENDS, 0)
        self._slice = slice_                         # transactions that share a record
        self._pending_frame: PendingFrame | None = None     # of the last plan
        self._plans: list[Plan] = []                 # that have not ended

    def note_open(self) -> None:
        """One more is on its way to be open."""
        self.open_count += 1

    def note_bytes(self, size_bytes: int) -> None:
        """So much more is held of those that are open."""
        self.open_bytes += size_bytes

    def load(self, transaction_id: int, name: Name, brief: Brief, earliest_ms: int) -> None:
        """A start has come to this undecided one, and nothing has happened to it since."""
        assert self.fresh.get(transaction_id) is None, "one that has records of its own is not fresh"
        self.undecided.load(transaction_id, name, brief, earliest_ms)
        self.open_count += 1
        self.open_bytes += brief.size_bytes

    def load_batch(self, batch: Batch) -> None:
        """A start has come to what of these is undecided."""
        self.fresh.put(batch)
        self.open_count += len(batch.ones)
        self.open_bytes += sum([begun.size_bytes for begun in batch.ones])

    # decision 50: what happens before the start has come to it
    def meet(self, transaction: Transaction) -> None:
        """This is about to change, as it stands here; a start may not have come to it."""
        if not self.undecided.knows(transaction.id):
            self.undecided.meet(transaction)
            self.open_count += 1
            self.open_bytes += transaction.size_bytes

    # ---- plans

    def plan_of(self, pending_frame: PendingFrame) -> Plan:
        """What the pending frame does to transactions."""
        if self._pending_frame is not pending_frame:
            self._pending_frame = pending_frame
            self._plans.append(Plan(pending_frame.now_ms, self.wall_of(pending_frame.now_ms), self._slice, self._ended))
            pending_frame.join_to_give_ids(self._plans[-1])
        return self._plans[-1]

    def change(self, plan: Plan, before: Transaction, after: Transaction) -> None:
        """A transaction with records of its own is something else with this frame."""
        assert before.id == after.id and before.state is OPEN, "a decision is for ever"
        plan.change(before, after)
        self.settling[after.id] = after
        self._settling_with[after.id] = plan

    def decide(self, plan: Plan, begun: Begun, state: State, by: str) -> None:
        """A fresh one ends with this frame."""
        assert begun.state is OPEN and state is not OPEN, "a decision is for ever"
        self.fresh.take(begun)
        begun.decide(state, plan.now_ms, by)
        plan.decided[begun.id] = begun

    def move(self, plan: Plan, begun: Begun) -> None:
        """A fresh one gets records of its own with this frame."""
        assert begun.state is OPEN, "what is decided stays where it is"
        self.fresh.take(begun)
        plan.move(begun)

    def known(self, transaction_id: int) -> Transaction | None:
        """A transaction that need not be read, as it will be once all frames are durable."""
        begun = self.fresh.get(transaction_id)
        for plan in self._plans:
            begun = begun or plan.decided.get(transaction_id)
        return begun.transaction() if begun is not None else self.settling.get(transaction_id)

    def fresh_of(self, tenant: str, group: str | None, after: int) -> dict[int, Begun]:
        """The fresh ones above an id of a tenant, and of a group where one is named, in order of their ids: as far as
        that is durable, so with those that frames on their way decide or move."""
        candidates = list(self.fresh)
        for plan in self._plans:
            candidates += [*plan.decided.values(), *[begun for begun, _ in plan.moved]]
        matches = [begun for begun in candidates
                   if begun.id > after and begun.origin.tenant == tenant and group in (None, begun.origin.group)]
        return {begun.id: begun for begun in sorted(matches, key=_ID)}

    def _plan_with(self, transaction_id: int) -> Plan | None:
        """That says what becomes of it."""
        for plan in self._plans:
            if transaction_id in plan.decided:
                return plan
        return self._settling_with.get(transaction_id)

    def is_settling(self, transaction_id: int) -> bool:
        """Whether what it will be is not durable yet."""
        return self._plan_with(transaction_id) is not None

    def when_settled(self, transaction_id: int, tell: Callable[[bool], None]) -> None:
        """Call when it is decided whether what a transaction is now is durable; at once where it is."""
        plan = self._plan_with(transaction_id)
        if plan is None:
            tell(True)
        else:
            plan.told.append(tell)

    def _ended(self, plan: Plan, stored: bool) -> None:
        assert plan in self._plans, "a plan ends once"
        assert not stored or plan is self._plans[0], "frames are applied in order"
        self._plans.remove(plan)
        for transaction_id, change in plan.changes.items():
            if self.settling.get(transaction_id) is change.after or not stored:
                self.settling.pop(transaction_id, None)
                self._settling_with.pop(transaction_id, None)
        if stored:
            self._apply(plan)
        else:
            self._undo(plan)
        for listener in self.listeners:
            listener(plan, stored)
        for tell in plan.told:
            tell(stored)

    def _undo(self, plan: Plan) -> None:
        self.open_count -= plan.new_count
        self.open_bytes -= plan.new_bytes
        assert self.open_count >= 0 and self.open_bytes >= 0, "counts are those of what is open"
        for change in plan.changes.values():
            self.undecided.timers.add(max(change.before.next_ms, self._now_ms() + RETRY_MS), change.before.id)
        for begun in plan.decided.values():
            begun.decide(OPEN, 0, "")
            self.fresh.give_back(begun)
        for begun, _ in plan.moved:
            self.fresh.give_back(begun)

    def _apply(self, plan: Plan) -> None:
        self._apply_fresh(plan)
        for new in plan.begun:
            self.undecided.put(new)
        self.begun_total += plan.new_count
        for before, after in plan.changes.values():
            self.meet(before)
            if after.state is OPEN:
                self.undecided.move(before, after)
            else:
                self.undecided.remove(before)
                self._count_ended(after.state, 1, after.size_bytes)
        for ended in plan.ended:
            self.outcomes.add(ended)
        for gone in plan.forgotten:
            self.outcomes.drop(gone)

    def _apply_fresh(self, plan: Plan) -> None:
        for batch in plan.batches:
            self.fresh.put(batch)
        for batch in plan.emptied:
            self.fresh.drop(batch)
        for begun, after in plan.moved:
            self.undecided.put(after, begun.batch.earliest_ms if begun.batch is not None else 0)
        for state in ENDS:
            sizes = [transaction.size_bytes for transaction in plan.decided.values() if transaction.state is state]
            if sizes:
                self._count_ended(state, len(sizes), sum(sizes))

    def _count_ended(self, state: State, count: int, size_bytes: int) -> None:
        self.open_count -= count
        self.open_bytes -= size_bytes
        assert self.open_count >= 0 and self.open_bytes >= 0, "what ends was open"
        self.ended_totals[state] += count
