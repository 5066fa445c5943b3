"""Commit and rollback: by the sender, by an operator, in one frame with everything that belongs to it. Hot."""
from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from gatehouse.kernel.errors import Busy, KernelError
from gatehouse.kernel.halves.half_records import HeldMessage
from gatehouse.kernel.message import Owner
from gatehouse.kernel.write.pending_frame import PendingFrame, Submission
from gatehouse.transactions.access import Access
from gatehouse.transactions.answering import refusal, refuse, refuse_settled
from gatehouse.transactions.book import Book
from gatehouse.transactions.fresh import Begun
from gatehouse.transactions.plan import Plan
from gatehouse.transactions.records import Transaction
from gatehouse.transactions.settings import MAX_BY
from gatehouse.transactions.states import Answer, Effect, Event, State, step

if TYPE_CHECKING:
    from gatehouse.kernel.halves.halves import Acks, Halves, Offsets


class Decision(Enum):
    COMMIT = "commit"
    ROLLBACK = "rollback"

    @property
    def event(self) -> Event:
        return Event.COMMIT if self is Decision.COMMIT else Event.ROLLBACK


COMMITS: Final = step(State.OPEN, Event.COMMIT)
ROLLS_BACK: Final = step(State.OPEN, Event.ROLLBACK)

# decision 357: looked up once
OPEN: Final = State.OPEN
COMMIT: Final = Decision.COMMIT
APPEND: Final = Effect.APPEND
DROP: Final = Effect.DROP


# decision 51: as it lies in memory
class Guarded(Protocol):
    """What a guard goes by: a transaction in whatever form it is at hand, as none is made for it."""

    @property
    def id(self) -> int: ...

    @property
    def group(self) -> str: ...

    @property
    def by(self) -> str: ...

    @property
    def state(self) -> State: ...


Guard = Callable[[Guarded], None]
"""Raises what a caller who may not touch this transaction is answered."""


class Deciding:
    """A decision that was asked for, and by whom."""

    __slots__ = ("id", "decision", "tenant", "by", "acks", "offsets", "guard", "owner", "token")

    def __init__(self, transaction_id: int, decision: Decision, tenant: str, by: str, acks: Acks, offsets: Offsets,
                 guard: Guard | None, owner: Owner | None, token: object) -> None:
        self.id = transaction_id
        self.decision = decision
        self.tenant = tenant
        self.by = by[:MAX_BY]
        self.acks = acks
        self.offsets = offsets
        self.guard = guard
        self.owner = owner
        self.token = token


class Decisions:
    def __init__(self, halves: Halves, book: Book, access: Access) -> None:
        self._halves = halves
        self._book = book
        self._access = access

    def decide(self, asked: Deciding) -> None:
        """See `Transactions.decide`."""
        begun = self._book.fresh.get(asked.id)
        if begun is not None and begun.origin.tenant == asked.tenant:
            self._decide_fresh(asked, begun)
        elif not self._access.find(asked.id, partial(self._decide, asked)):
            refuse(asked.owner, asked.token, Busy(f"too many requests wait for transaction {asked.id}"))

    def _decide_fresh(self, asked: Deciding, begun: Begun) -> None:
        """All of it is at hand."""
        assert begun.id == asked.id and begun.state is OPEN, "what is fresh is undecided"
        if asked.guard is not None and not self._may(asked, begun):
            return
        state, effect, _ = COMMITS if asked.decision is COMMIT else ROLLS_BACK
        pending_frame = self._begin(asked, effect)
        if pending_frame is None or state is None:
            return
        if effect is APPEND and (begun.messages is None or not self._halves.release_unchanged(
                pending_frame, begun.messages, begun.id, asked.by)):
            self._halves.release(pending_frame, begun.held(), asked.by)
        plan = self._book.plan_of(pending_frame)
        self._book.decide(plan, begun, state, asked.by)
        self._end(pending_frame, asked, effect, plan)

    def _decide(self, asked: Deciding, candidate: Transaction | None) -> None:
        """This is the transaction as it is."""
        if self._book.fresh.get(asked.id) is not None and candidate is not None and candidate.tenant == asked.tenant:
            self.decide(asked)                       # a start has come to it, or its move was refused
            return
        transaction = candidate if candidate is not None and candidate.tenant == asked.tenant else None
        if transaction is not None and asked.guard is not None and not self._may(asked, transaction):
            return
        state, effect, answer = step(transaction.state if transaction is not None else None, asked.decision.event)
        if transaction is None or state is None or answer in (Answer.REFUSED, Answer.UNKNOWN):
            error = refusal(self._book, answer, asked.id, transaction)
            refuse_settled(self._book, asked.id, asked.owner, asked.token, error)
        elif answer is Answer.AGAIN:
            self._answer(asked, transaction.decided_ms)
        elif effect is APPEND:
            self._access.half_messages(transaction, partial(self._decide_own, asked, transaction, state, effect))
        else:
            self._decide_own(asked, transaction, state, effect, [])

    def _decide_own(self, asked: Deciding, transaction: Transaction, state: State, effect: Effect,
                    held: list[HeldMessage]) -> None:
        """It has records of its own; `held` is what was read of them."""
        assert effect is not APPEND or len(held) == transaction.messages, "all of it is committed, or nothing"
        pending_frame = self._begin(asked, effect)
        if pending_frame is None:
            return
        if effect is APPEND:
            self._halves.release(pending_frame, held, asked.by)
        pending_frame.state += self._halves.deletions(transaction.id, transaction.pages)
        plan = self._book.plan_of(pending_frame)
        self._book.change(plan, transaction, transaction.ended(state, plan.now_ms, asked.by))
        self._end(pending_frame, asked, effect, plan)

    # ---- what both have in common

    def _may(self, asked: Deciding, transaction: Guarded) -> bool:
        """Whether whoever asks may; else it is answered."""
        assert asked.guard is not None
        try:
            asked.guard(transaction)
        except Exception as denied:                  # the caller's own
            refuse(asked.owner, asked.token, denied)
            return False
        return True

    # decision 40: checks come first, what follows them fails only as a whole
    def _begin(self, asked: Deciding, effect: Effect) -> PendingFrame | None:
        """The frame that it will be part of, once all that can be refused has been checked; None: it was refused."""
        try:
            if effect is APPEND and (asked.acks or asked.offsets):
                self._halves.check_commit(asked.acks, asked.offsets)
            return self._halves.open_frame()
        except KernelError as error:
            refuse(asked.owner, asked.token, error)
            return None

    def _end(self, pending_frame: PendingFrame, asked: Deciding, effect: Effect, plan: Plan) -> None:
        if effect is APPEND and (asked.acks or asked.offsets):
            self._halves.settle(asked.acks, asked.offsets)
        elif effect is DROP:
            pending_frame.frees = True
            self._halves.on_undone(asked.id, asked.by)
        if asked.owner is not None:
            pending_frame.submissions.append(Submission(asked.owner, asked.token, None, (plan.wall_ms, [])))

    def _answer(self, asked: Deciding, decided_ms: int) -> None:
        """With the next frame: the decision may be in one that is on its way."""
        try:
            self._halves.answer(asked.owner, asked.token, decided_ms)
        except KernelError as error:
            refuse(asked.owner, asked.token, error)
