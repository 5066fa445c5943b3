"""Messages that the hub holds, in no partition yet: those that wait for their time, and half messages.

Their steps are written once their frame is durable, as they have no ids before; the next frame takes them along. What
happens to a transaction is told of all its messages that are followed, and of none where its beginning was not
recorded.
"""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from gatehouse.kernel.journeys.entering import named_in
from gatehouse.kernel.journeys.following import MAX_FOLLOWED, Following
from gatehouse.kernel.journeys.trail import TENANT
from gatehouse.kernel.message import Message, Origin, Placement
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.write.pending_frame import Run
from gatehouse.tracing.context import HEADER, Context
from gatehouse.tracing.events import Event, Kind
from gatehouse.tracing.sampling import Budget

CORRELATION: Final = b"correlation-id"

MAX_TRANSACTIONS: Final = 10_000
"""Open transactions whose messages are followed. Of those beyond, the oldest are let go of."""

HELD_ID: Final = -5
"""The budget of what is recalled and was not followed."""

HELD: Final = Kind.HELD                  # decision 357: looked up once
DECISIONS: Final = (Kind.COMMITTED, Kind.ROLLED_BACK, Kind.GIVEN_UP)


class HeldRows:
    """Messages of one frame of which the same is true; they have no ids before that is sealed. `event` says it of each,
    `begins` is the first message of the transaction that begins with them."""

    def __init__(self, event: Event, runs: list[Run], topic_id: int, begins: Run | None) -> None:
        self.event = event
        self.runs = runs
        self.topic_id = topic_id
        self.begins = begins


class HeldJourneys:  # decision 278
    """What happens to messages that the hub holds, in no partition yet. `add` takes an event into the next frame, and
    says whether there was room for it."""

    def __init__(self, *, loop: Loop, following: Following, budget: Budget, add: Callable[[Event], bool]) -> None:
        self._loop = loop
        self._following = following
        self._budget = budget
        self._add = add
        self._transactions: OrderedDict[int, list[tuple[int, int]]] = OrderedDict()   # ids: the first, and how many

    # ---- they come in

    def choose(self, kind: Kind, messages: Sequence[Message], runs: Sequence[Run], untils: Sequence[int],
               transaction_id: int, origin: Origin, own_topic_id: int) -> list[HeldRows]:
        """Those of these that are followed, as far as the budgets of their topics go. `untils`: when they fall due, by
        hub time; none are said where they wait for a decision."""
        chosen: list[HeldRows] = []
        now_ms = self._loop.now_ms()
        begins = runs[0] if kind == HELD and not transaction_id else None
        last: Placement | None = None
        for at, message in enumerate(messages):
            placement: Placement = message[0]
            if placement.topic_id == own_topic_id or not self._budget.spend(placement.topic_id, now_ms):
                last = None
                continue
            headers = message[2]
            is_plain = headers.find(HEADER) < 0 and headers.find(CORRELATION) < 0
            if is_plain and not untils and placement is last:
                chosen[-1].runs.append(runs[at])
                continue
            context, correlation = (None, b"") if is_plain else named_in(headers)
            event = _event(kind, placement, origin, context, correlation)._replace(
                until_ms=untils[at] if untils else 0, transaction=transaction_id)
            chosen.append(HeldRows(event, [runs[at]], placement.topic_id, begins))
            last = placement if is_plain else None
        return chosen

    def follow(self, rows: HeldRows) -> None:
        """They are durable, and have ids, which follow each other."""
        first_id, count = rows.runs[0].first_id, len(rows.runs)
        event = rows.event._replace(message_id=first_id, at_ms=self._loop.wall_ms(), rows=count if count > 1 else 0)
        if rows.begins is not None:
            event = event._replace(transaction=rows.begins.first_id)
        self._note(event, rows.topic_id)
        self._add(event)

    def resume(self, event: Event) -> None:
        """An event of before the start: what waits is followed still."""
        if event.kind in (Kind.ACCEPTED, HELD):
            self._note(event, 0)
        elif event.kind in DECISIONS and event.transaction:
            self._transactions.pop(event.transaction, None)

    def _note(self, event: Event, topic_id: int) -> None:
        last_id = event.last_id
        for message_id in range(max(event.message_id, last_id + 1 - MAX_FOLLOWED), last_id + 1):
            self._following.add(message_id, topic_id)
        if event.transaction:
            self._transactions.setdefault(event.transaction, []).append((event.message_id, max(1, event.rows)))
            while len(self._transactions) > MAX_TRANSACTIONS:
                self._transactions.popitem(last=False)

    # ---- what becomes of them

    def check(self, transaction_id: int, group: str, asked: str, attempt: int) -> None:
        """Somebody is asked about the transaction; "": nobody was there."""
        event = Event(Kind.CHECKED, transaction=transaction_id, group=group, client=asked, attempt=attempt)
        for first_id, count in self._transactions.get(transaction_id, ()):
            self._tell(event, first_id, count, False)

    def decide(self, transaction_id: int, event: Event) -> None:
        """This became of all messages of the transaction."""
        for first_id, count in self._transactions.pop(transaction_id, ()):
            self._tell(event._replace(transaction=transaction_id), first_id, count, True)

    def forget(self, transaction_id: int) -> None:
        """It is decided, and each of its messages is told of by itself."""
        self._transactions.pop(transaction_id, None)

    def keep(self, message_id: int, event: Event) -> None:
        """A half message is committed, and waits for its time."""
        if self._following.by_id(message_id) is not None:
            self._tell(event, message_id, 1, True)

    def recall(self, message_id: int, tenant: str, address: str, who: Origin) -> None:
        """It is taken back before its time."""
        if self._following.by_id(message_id) is None:
            if not self._budget.spend(HELD_ID, self._loop.now_ms()):
                return
            self._following.add(message_id, 0)
        self._tell(Event(Kind.RECALLED, address=address, tenant=tenant if tenant != TENANT else "", door=who.door,
                         user=who.user, client=who.client, peer=who.peer), message_id, 1, True)

    def _tell(self, event: Event, first_id: int, count: int, is_last: bool) -> None:
        """Of messages whose ids follow each other. What is between the first and the last is told as the budget goes,
        and counted beyond it."""
        followed = self._following.by_id(first_id)
        if not is_last and not self._budget.spend(followed.topic_id if followed is not None else HELD_ID,
                                                  self._loop.now_ms(), False):
            if followed is not None:
                followed.leave_out()
            return
        if self._add(event._replace(message_id=first_id, at_ms=self._loop.wall_ms(), rows=count if count > 1 else 0,
                                    number=followed.left_out if followed is not None else 0)) and followed is not None:
            followed.take_left_out()


def _event(kind: Kind, placement: Placement, origin: Origin, context: Context | None, correlation: bytes) -> Event:
    return Event(kind, address=placement.address, tenant=placement.tenant if placement.tenant != TENANT else "",
                 key=placement.key or b"", door=origin.door, user=origin.user, client=origin.client, peer=origin.peer,
                 trace_id=context.trace_id if context is not None else b"",
                 span_id=context.span_id if context is not None else b"", correlation_id=correlation)
