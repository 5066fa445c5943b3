"""Who takes messages of a leased group: members, which are pushed them, and pops, which take them once.

The group hands out; these know what they were handed, how much more they take, and whom to tell of it.
"""
from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gatehouse.kernel.errors import KernelError, Stopping
from gatehouse.kernel.groups.cursor import Key, Lease
from gatehouse.kernel.groups.prefetcher import Prefetcher
from gatehouse.kernel.message import NOBODY, Handle, Leased, Origin, Stored

if TYPE_CHECKING:
    from gatehouse.kernel.groups.group import LeasedGroup
    from gatehouse.kernel.groups.leasing import Core

PRUNE_LEASES: Final = 64             # leases of a member, before those that are over are let go of

POP_BYTES: Final = 1 << 20
"""Of values and headers, after which a pop is given no more: its answer is held whole, and anybody may ask for one."""


class Member(Protocol):
    """Who is pushed messages."""

    def on_leased(self, messages: list[Leased]) -> None:
        """New messages, in order per cursor; at most the credit. Must not block or raise."""

    def on_gone(self) -> None:
        """The queue or topic was deleted; the membership is over."""


class HoldLimit(NamedTuple):  # decision 126
    """How long a member may hold a message without a word about it."""

    after_ms: int

    on_overdue: Callable[[], None]
    """Told when it has held one for longer: what it is on its door is to be ended, and what it holds to be given back.
    Until that happens the messages stay with it. An `after_ms` of 0: never."""

    take_back: Callable[[list[Handle]], list[Handle]] | None = None  # decision 225
    """Which of what is held for the group's invisible time may go to another; the rest stays, up to `after_ms`."""


class Budget:
    """How many messages several memberships may be handed together, whatever their own credits are."""

    def __init__(self, left: int) -> None:
        self.left = left
        self._untold = 0                       # that were handed out, of which nobody was told yet

    def spend(self, count: int) -> None:
        """So many were handed out."""
        self.left -= count
        self._untold += count

    def note_told(self, count: int) -> None:
        """Of so many that were handed out their member was told, or never will be."""
        self._untold -= count

    def set_left(self, left: int) -> None:
        """So many may be handed out from now on, what members were handed and not told of yet among them."""
        self.left = left - self._untold


class Membership:
    """One member's place in a group; ended by `leave`.

    `is_once`: it is told, with nothing, when there is nothing to be had just now. `is_lazy`: what it is handed is noted
    with the next frame, whoever's that is. Without `keeps` what it gets counts as acked at once.
    """

    def __init__(self, group: LeasedGroup, member: Member, credit: int, *, keeps: bool = True,
                 budget: Budget | None = None, hold: HoldLimit | None = None, is_lazy: bool = False,
                 is_once: bool = False, priority: int = 0, taker: Origin = NOBODY) -> None:
        self._group = group
        self.priority = priority
        self._hold = hold
        self._member = member
        self._budget = budget
        self.credit = credit
        self.is_once = is_once
        self.taker = taker
        self.is_lazy = is_lazy
        self.keeps = keeps
        self._leases: dict[Lease, Prefetcher] = {}
        self._asked: set[Lease] = set()                        # whose invisible time is over, and which stay
        self._prune_at = PRUNE_LEASES
        self._outbox: list[Leased] = []

    def note(self, prefetcher: Prefetcher, lease: Lease, core: Core) -> None:
        """It holds this too. Leases that are over are let go of now and then."""
        self._leases[lease] = prefetcher
        if self._hold is not None:
            hold_ms = self._hold.after_ms if self._hold.take_back is None else self._group.settings.invisible_ms
            core.deadlines.hold_for(self._group, prefetcher, lease, hold_ms)
        if len(self._leases) > self._prune_at:
            self._leases = {held_lease: of for held_lease, of in self._leases.items() if held_lease.left}
            self._prune_at = max(PRUNE_LEASES, 2 * len(self._leases))

    def let_go(self) -> list[tuple[Lease, Prefetcher]]:
        """It holds nothing any more, and is told of nothing; what it held."""
        leases, self._leases = self._leases, {}
        self._take_outbox()
        return list(leases.items())

    def _take_outbox(self) -> list[Leased]:
        messages, self._outbox = self._outbox, []
        if self._budget is not None:
            self._budget.note_told(len(messages))
        return messages

    @property
    def room(self) -> int:
        """How many messages it may be handed now."""
        return self.credit if self._budget is None else min(self.credit, self._budget.left)

    def hand(self, messages: list[Leased]) -> None:
        """These are its own; `send` tells it."""
        assert 0 < len(messages) <= self.room, "a member is handed what it has room for"
        self.credit -= len(messages)
        if self._budget is not None:
            self._budget.spend(len(messages))
        self._outbox += messages

    @property
    def untold(self) -> int:
        """How many messages it was handed of which it has not been told."""
        return len(self._outbox)

    @property
    def has_news(self) -> bool:
        """Whether it was handed messages of which it has not been told."""
        return bool(self._outbox)

    def send(self) -> None:
        """Tell the member what it was handed."""
        self._member.on_leased(self._take_outbox())

    def end(self) -> None:
        """The group is not there any more."""
        self._member.on_gone()

    def add_credit(self, count: int) -> None:
        """It takes so many more messages, or fewer."""
        self.credit += count
        if self.room > 0:
            self._group.wake()

    def retire(self) -> None:
        """It is handed nothing more, and keeps what it holds until it settles that or leaves. Of what it was handed it
        is told now."""
        self._group.retire(self)
        if self._outbox:
            self.send()

    def leave(self, delay_ms: int | None = 0) -> None:
        """What it holds is ready again after `delay_ms`; None: as the group's retry says."""
        self._group.leave(self, delay_ms)

    def take_back(self, prefetcher: Prefetcher, lease: Lease, held: list[int], core: Core) -> list[int]:
        """It has held these (`held`) for the group's invisible time, or for too long; those that another may have."""
        hold = self._hold
        assert hold is not None, "a member without a limit has no deadlines"
        if hold.take_back is None or lease in self._asked:
            hold.on_overdue()
            return []
        key = prefetcher.cursor.key
        back = [handle[1] for handle in hold.take_back([(key, offset, lease.attempt) for offset in held])]
        if len(back) < len(held) and hold.after_ms:
            self._asked = {asked for asked in self._asked if asked.left} | {lease}
            left_ms = max(0, hold.after_ms - self._group.settings.invisible_ms)
            core.deadlines.hold_for(self._group, prefetcher, lease, left_ms)
        return back


class Pop:
    """One request for messages; `cancel` it when nobody waits for the answer any more."""

    def __init__(self, group: LeasedGroup, count: int, invisible_ms: int, on_popped: Callable[[list[Leased]], None],
                 taker: Origin = NOBODY) -> None:
        self._group = group
        self._on_popped = on_popped
        self.count = count
        self.invisible_ms = invisible_ms
        self.taker = taker
        self.leased: list[Leased] = []
        self._leased_bytes = 0
        self.done = False
        self.error: KernelError | None = None

    @property
    def room(self) -> int:
        """How many messages more it takes."""
        return self.count - len(self.leased) if self._leased_bytes < POP_BYTES else 0

    def hand(self, messages: list[Leased]) -> None:
        """These are leased for it."""
        assert not self.done and len(messages) <= self.room, "a request is given what it asked for"
        self.leased += messages
        self._leased_bytes += _bytes_of(messages)

    def drop(self, key: Key) -> None:
        """What it has of the cursor of this key is not its own any more."""
        self.leased = [message for message in self.leased if message[0] != key]
        self._leased_bytes = _bytes_of(self.leased)

    def finish(self) -> None:
        """It gets no more; its answer waits for the frame of its leases."""
        self.done = True

    def cancel(self) -> None:
        """Nothing is leased for it any more; what was found meanwhile is ready again."""
        if not self.done:
            self.done = True
            self._group.drop_pop(self)

    def on_time(self) -> None:
        """It has waited long enough: answered with what it has, while more is being read, or with nothing."""
        if self.done:
            return
        if self.leased:
            with suppress(Stopping):
                self._group.answer_pop(self)
                return
        self.cancel()
        self._on_popped([])

    def fail(self, error: KernelError) -> None:
        """It is answered with nothing, for this reason."""
        self.done = True
        self.error = error
        self._on_popped([])

    def on_stored(self, stored: list[Stored]) -> None:
        """Its leases are durable, or were refused."""
        error = stored[0].error
        self.error = error if isinstance(error, KernelError) else None
        self._on_popped([] if error is not None else self.leased)


def _bytes_of(messages: list[Leased]) -> int:
    return sum([len(message[7]) + (0 if message[6] is None else len(message[6])) for message in messages])
