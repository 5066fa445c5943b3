"""Asking the senders of silent transactions, and giving up those nobody answers for.

    due, or asked for ─► taken ─► read, on the reading thread ─► who is asked ─► into the pending frame
    ─► durable ─► members are told

In rounds of so many transactions, a few of them under way at a time, and one step of one round in a turn of the loop:
however many are due, nobody else waits for longer than that. While publishers are held up, or checkpoints fall behind,
no round begins: checks are late then, and nobody else is.
"""
from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from gatehouse.kernel.alarm import Alarm
from gatehouse.kernel.errors import KernelError, Stopping
from gatehouse.kernel.halves.half_records import half_key
from gatehouse.kernel.message import Owner, StateRecord
from gatehouse.kernel.state.reading import StateWalk
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.write.pending_frame import PendingFrame
from gatehouse.transactions.access import Access
from gatehouse.transactions.answering import refuse
from gatehouse.transactions.book import RETRY_MS, Book
from gatehouse.transactions.due import DueTransaction
from gatehouse.transactions.members import Check, Members, Membership
from gatehouse.transactions.plan import Plan
from gatehouse.transactions.records import Transaction, decode, open_key
from gatehouse.transactions.states import Event, step
from gatehouse.transactions.undecided import Name

if TYPE_CHECKING:
    from gatehouse.kernel.halves.halves import Halves
    from gatehouse.kernel.kernel import Kernel

ROUND_BYTES: Final = 4 << 20          # half messages that are read for one round
BURY: Final = 4                       # one that is over costs as much as so many that are asked
ROUNDS: Final = 4                     # under way at a time; decision 45
BUSY_MS: Final = 100                  # somebody decides about it just now: looked at again after this
MAX_TOLD: Final = 20                  # checks that each dead letter tells of, the last ones

UNANSWERED: Final = "unanswered"
"""Reason of the dead letters of a transaction that nobody decided about."""

Asking = tuple["Owner | None", object]
"""Who wants a transaction to be checked now."""

Read = tuple["DueTransaction | None", list[bytes]]
"""A transaction, None where it has been decided, and pages of its half messages: all, where it is over."""


class Round:
    """Some transactions that nobody else can touch before their checks are durable."""

    def __init__(self, now_ms: int, ids: list[int], asked: dict[int, list[Asking]] | None = None,
                 anew: Name | None = None) -> None:
        self.now_ms = now_ms
        self.ids = ids
        self.asked = asked or {}                 # by somebody, whatever their time; or
        self.anew = anew                         # of this group, what reached nobody: that does not count; or due
        self.checked: list[DueTransaction] = []
        self.told: list[tuple[Membership, Check]] = []

    @property
    def is_due(self) -> bool:
        """Their time has come, as far as timers know."""
        return not self.asked and self.anew is None

    def step(self, transaction: DueTransaction) -> Event | None:
        """What is to become of one; None: nothing yet."""
        if not self.is_due:
            return Event.CHECK
        return transaction.event if transaction.next_ms <= self.now_ms else None


class Checking:
    def __init__(self, kernel: Kernel, halves: Halves, book: Book, access: Access, members: Members, slice_: int
                 ) -> None:
        self._kernel = kernel
        self._loop = halves.loop
        self._halves = halves
        self._book = book
        self._undecided = book.undecided
        self._access = access
        self._slice = slice_                             # transactions of one round
        self._members = members
        self._asked: dict[int, list[Asking]] = {}        # by id, at once and whatever their time
        self._joined: dict[Name, None] = {}              # groups in which somebody can be asked what reached nobody
        self._anew: Counter[Name] = Counter()            # of these, how many are being read
        self._rounds = 0
        self._steps: deque[Callable[[], None]] = deque()
        self._will_turn = False
        self._stopped = False
        self._alarm = Alarm(halves.loop.call_at, self._turn)
        self._not_before_ms = 0
        self.made = self.reached_nobody = 0
        book.listeners.append(self._plan_ended)

    def stop(self) -> None:
        self._stopped = True
        self._alarm.cancel()

    def ask_now(self, transaction_id: int, owner: Owner | None, token: object) -> None:
        """Check this one in the next round."""
        self._asked.setdefault(transaction_id, []).append((owner, token))
        self.look()

    def come_to(self, unasked: Iterable[Name]) -> None:
        """Go on soon: more may be due, and in these groups some checks reached nobody."""
        for name in unasked:
            if self._members.room(*name) > 0:
                self.on_room(*name)
        self.look()

    def on_room(self, tenant: str, group: str) -> None:
        """Somebody can be asked in this group."""
        if (tenant, group) in self._undecided.unasked:
            self._joined[tenant, group] = None
            self.look()

    def _step(self, step: Callable[[], None]) -> None:
        """In a turn of the loop of its own."""
        self._steps.append(step)
        if len(self._steps) == 1:
            self._loop.call_soon(self._run_step)

    def _run_step(self) -> None:
        step = self._steps.popleft()
        if self._steps:
            self._loop.call_soon(self._run_step)
        step()

    # ---- a round begins

    def look(self) -> None:
        """Something may be due."""
        if not self._will_turn:
            self._will_turn = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Begin a round if something is due, or be woken when it is."""
        self._will_turn = False
        if self._stopped or self._rounds >= ROUNDS:
            return
        now_ms = self._loop.now_ms()
        # decision 45: checks are late, publishers are not
        if now_ms >= self._not_before_ms and self._kernel.keeps_pace:
            round_ = self._take_asked(now_ms) or self._take_unasked(now_ms) or self._take_due(now_ms)
            if round_ is not None:
                self._rounds += 1
                self._read(round_)
                self.look()
                return
        self._arm()

    def _take_asked(self, now_ms: int) -> Round | None:
        asked: dict[int, list[Asking]] = {}
        for transaction_id in [*islice(self._asked, self._slice)]:
            if self._access.take(transaction_id):
                asked[transaction_id] = self._asked.pop(transaction_id)
        return Round(now_ms, [*asked], asked) if asked else None

    # decision 43: who joins is asked at once, and that does not count
    def _take_unasked(self, now_ms: int) -> Round | None:
        """What reached nobody, of a group in which there is somebody now, as far as there is room."""
        for name in [*self._joined]:
            room = self._members.room(*name) - self._anew[name]
            taken = self._undecided.take_unasked(name, max(0, min(room, self._slice)))
            if not taken:
                del self._joined[name]
            mine: list[int] = []
            for transaction_id in taken:
                if self._access.take(transaction_id):
                    mine.append(transaction_id)
                else:
                    self._undecided.put_unasked(name, transaction_id)
            if mine:
                self._anew[name] += len(mine)
                return Round(now_ms, mine, None, name)
        return None

    def _take_due(self, now_ms: int) -> Round | None:
        mine: list[int] = []
        for transaction_id in self._undecided.timers.take(now_ms, self._slice):
            if self._access.take(transaction_id):
                mine.append(transaction_id)
            else:
                self._undecided.timers.add(now_ms + BUSY_MS, transaction_id)
        return Round(now_ms, mine) if mine else None

    # ---- into the frame

    def _read(self, round_: Round) -> None:
        records, pages = self._halves.walk(Kind.TRANSACTION), self._halves.walk(Kind.HALF)
        read = partial(_read, round_, records, pages, self._slice, self._members.count > 0)
        self._halves.worker.submit(read, partial(self._was_read, round_))

    def _was_read(self, round_: Round, transactions: list[Read] | None, error: BaseException | None) -> None:
        if transactions is None:
            self._halves.fatal(f"the index cannot be read: {error}")
        else:
            self._step(partial(self._apply, round_, transactions))

    def _apply(self, round_: Round, transactions: list[Read]) -> None:
        try:
            pending_frame = self._halves.open_frame()
        except Stopping:                              # all of it is due at the next start
            self.stop()
            for taken_id in round_.ids:
                self._access.free_again(taken_id)
            return
        if round_.anew is not None:                   # from here on their members' credit says it
            self._anew[round_.anew] -= len(round_.ids)
            assert self._anew[round_.anew] >= 0, "what is read was counted"
        assert len(transactions) <= len(round_.ids), "what was read was asked for"
        plan = self._book.plan_of(pending_frame)
        for transaction_id, (silent, pages) in zip(round_.ids, transactions, strict=False):
            if silent is not None:
                self._carry_out(round_, pending_frame, plan, silent, pages)
                continue
            for owner, token in round_.asked.get(transaction_id, ()):
                self._answer(owner, token, plan.now_ms)
            self._access.free_again(transaction_id)
        for transaction_id in round_.ids[len(transactions):]:
            self._postpone(round_, transaction_id)
        plan.told.append(partial(self._round_ended, round_))

    def _carry_out(self, round_: Round, pending_frame: PendingFrame, plan: Plan, transaction: DueTransaction,
                   pages: list[bytes]) -> None:
        event = round_.step(transaction)
        if event is None:
            self._undecided.timers.add(transaction.next_ms, transaction.id, transaction.wait_ms)
            self._access.free_again(transaction.id)
        elif event is Event.SILENCE:
            self._expire(pending_frame, plan, decode(transaction.id, transaction.value), pages)
        else:
            member = self._members.pick(*transaction.name) if pages else None
            if round_.anew is not None and member is None:
                self._postpone(round_, transaction.id)
                return
            self._check(round_, pending_frame, plan, transaction, member, pages)
            for owner, token in round_.asked.get(transaction.id, ()):
                self._answer(owner, token, plan.now_ms)

    def _postpone(self, round_: Round, transaction_id: int) -> None:
        """It is not come to in this round."""
        if transaction_id in round_.asked:
            self._asked.setdefault(transaction_id, []).extend(round_.asked[transaction_id])
        elif round_.anew is not None:
            self._undecided.put_unasked(round_.anew, transaction_id)
            self.on_room(*round_.anew)
        else:
            self._undecided.timers.put_back(round_.now_ms, transaction_id)
        self._access.free_again(transaction_id)

    def _check(self, round_: Round, pending_frame: PendingFrame, plan: Plan, transaction: DueTransaction,
               member: Membership | None,
               pages: list[bytes]) -> None:
        if not self._undecided.knows(transaction.id):
            self._book.meet(decode(transaction.id, transaction.value))
        transaction.check(plan.now_ms, member.name if member is not None else "", round_.anew is None)
        # decision 43: in the log first, heard or not
        pending_frame.state.append(StateRecord(Kind.TRANSACTION, open_key(transaction.id), transaction.value))
        round_.checked.append(transaction)
        self._halves.on_checked(transaction.id, transaction.name[1], member.name if member is not None else "",
                                transaction.attempts)
        self.made += 1
        if member is None:
            self.reached_nobody += 1
        else:
            round_.told.append((member, transaction.question(plan.now_ms, pages[0])))

    def _expire(self, pending_frame: PendingFrame, plan: Plan, transaction: Transaction, pages: list[bytes]) -> None:
        if pages:
            death = {"reason": UNANSWERED, "attempts": transaction.attempts, "at_ms": self._halves.wall_of(plan.now_ms),
                     "transaction": _history(transaction, self._halves.wall_of)}
            self._halves.dead_letter(pending_frame, pages, transaction.group, transaction.tenant, death)
        else:
            pending_frame.frees = True
        self._halves.on_unanswered(transaction.id, transaction.group, UNANSWERED)
        pending_frame.state += self._halves.deletions(transaction.id, transaction.pages)
        state = step(transaction.state, Event.SILENCE).state
        assert state is not None, "a transaction that is known stays so"
        self._book.change(plan, transaction, transaction.ended(state, plan.now_ms, ""))
        self._access.free_again(transaction.id)

    # ---- afterwards

    def _round_ended(self, round_: Round, stored: bool) -> None:
        assert 0 < self._rounds <= ROUNDS, "a round ends once"
        self._rounds -= 1
        if stored:
            for transaction in round_.checked:
                self._undecided.checked(transaction, was_taken=round_.is_due)
            self._step(partial(self._tell, round_.told))
        else:
            self._not_before_ms = self._loop.now_ms() + RETRY_MS
            for transaction in round_.checked:
                self._undecided.not_checked(transaction, self._not_before_ms)
            for membership, _ in round_.told:
                self._members.put_back(membership)
        for transaction in round_.checked:
            self._access.free_again(transaction.id)
        names = {transaction.name for transaction in round_.checked if transaction.unasked or not stored}
        self.come_to(names if round_.anew is None else {*names, round_.anew})      # somebody may have room for them

    def _tell(self, questions: list[tuple[Membership, Check]]) -> None:
        by_member: dict[Membership, list[Check]] = {}
        for membership, check in questions:
            if self._book.outcomes.find(check.id) is not None:       # decided since: nobody is asked any more
                self._members.put_back(membership)
                self.on_room(check.tenant, check.group)
                continue
            other = membership if not membership.left else self._members.pick(check.tenant, check.group)
            if other is not None:                     # else it is asked again in time
                by_member.setdefault(other, []).append(check)
        for membership, checks in by_member.items():
            try:
                membership.member.on_checks(checks)
            except Exception as fault:                # one member's bug must not cost the others their checks
                self._halves.on_error(fault)

    def _plan_ended(self, plan: Plan, stored: bool) -> None:
        if plan.moved:                                # some may be due by now
            self.look()
        elif plan.begun or plan.changes:
            self._arm()

    def _answer(self, owner: Owner | None, token: object, stamp_ms: int) -> None:
        try:
            self._halves.answer(owner, token, stamp_ms)
        except KernelError as error:
            refuse(owner, token, error)

    # ---- waking up

    def _arm(self) -> None:
        if self._stopped or self._rounds >= ROUNDS:
            return
        now_ms = self._loop.now_ms()
        when_ms = self._undecided.timers.next_ms()
        if self._asked or self._joined:               # somebody decides about these just now
            when_ms = now_ms
        if when_ms is None:
            return
        when_ms = max(when_ms, self._not_before_ms)
        if when_ms <= now_ms:
            when_ms = now_ms + BUSY_MS
        self._alarm.ring_by(when_ms)


def _read(round_: Round, records: StateWalk, halves: StateWalk, limit: int, is_heard: bool) -> list[Read]:
    """On the reading thread: as many as one turn should see to. Where nobody can be asked no page is read."""
    transactions: list[Read] = []
    size_bytes = cost = 0
    for transaction_id in round_.ids:
        value = records.get(open_key(transaction_id))
        if value is None:
            transactions.append((None, []))
            continue
        transaction = DueTransaction(transaction_id, value)
        event = round_.step(transaction)
        wanted = (int(is_heard) if event is Event.CHECK
                  else transaction.pages if event is not None and transaction.name[1] else 0)
        read = [halves.get(half_key(transaction_id, page)) for page in range(wanted)]
        pages = [page for page in read if page is not None]
        assert len(pages) == wanted, "an open transaction has its half messages"
        transactions.append((transaction, pages))
        size_bytes += sum(map(len, pages))
        cost += BURY * transaction.messages if event is Event.SILENCE else 1
        if size_bytes > ROUND_BYTES or cost >= limit:
            break
    return transactions


def _history(transaction: Transaction, wall_of: Callable[[int], int]) -> dict[str, Any]:
    """What its dead letters tell of it when nobody else remembers it any more."""
    checks = [{"at_ms": wall_of(at_ms), "to": to} for at_ms, to in transaction.checks[-MAX_TOLD:]]
    return {"id": str(transaction.id), "by": transaction.by, "begun_ms": wall_of(transaction.begun_ms),
            "checks": checks}
