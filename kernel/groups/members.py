"""Who takes from a group: members that are pushed messages, pops that take once; and what a group needs around it."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.groups.cursor import Cursor, Lease
from gatehouse.kernel.groups.settings import Queue
from gatehouse.kernel.message import Leased, Owner, Stored

if TYPE_CHECKING:
    from gatehouse.kernel.groups.group import LeasedGroup
    from gatehouse.kernel.groups.prefetcher import Prefetcher
    from gatehouse.kernel.write.pending_frame import Participant

PRUNE_LEASES: Final = 64             # leases of a member, before those that are over are let go of


class Counts(NamedTuple):
    """A group at this second."""

    ready: int
    leased: int
    waiting: int
    settled: int           # since the hub's start
    dead: int              # likewise
    expired: int           # likewise
    lost: int              # likewise: overtaken by retention, or damaged
    dropped: int           # likewise: gave way at the queue's limit
    oldest_ms: int         # when the oldest message that is not settled was appended; 0 where there is none


class Member(Protocol):
    """Who is pushed messages."""

    def on_leased(self, messages: list[Leased]) -> None:
        """New messages, in order per cursor; at most the credit. Must not block or raise."""

    def on_gone(self) -> None:
        """The queue or topic was deleted; the membership is over."""


class Core(Protocol):
    """What a group needs of the kernel around it; see `kernel.groups.leasing.Leasing`."""

    def now_ms(self) -> int:
        """Hub time: leases and waits end in it."""

    def wall_ms(self) -> int:
        """Wall time: messages expire by it."""

    def chance(self) -> float:
        """A number in [0, 1), for jitter."""

    def touch(self, cursor: Cursor) -> None:
        """The cursor has changed: its pages go into the pending frame. Raises Stopping."""

    def touch_lazily(self, cursor: Cursor) -> None:
        """The cursor has changed in a way that nobody waits for: its pages go into the next frame, whoever's it is."""

    def answer(self, owner: Owner | None, token: object) -> None:
        """Tell the owner once the pending frame is durable."""

    def when_stored(self, waiting: Participant) -> None:
        """Tell it once the pending frame is durable or refused."""

    def lease_until(self, group: LeasedGroup, prefetcher: Prefetcher, lease: Lease) -> None:
        """Call `group.on_lease_over` when the lease's time is up, unless it has ended by then."""

    def hold_for(self, group: LeasedGroup, prefetcher: Prefetcher, lease: Lease, hold_ms: int) -> None:
        """Call `on_lease_over` so long after now for a lease that otherwise lasts as long as its holder."""

    def wait_until(self, group: LeasedGroup, prefetcher: Prefetcher, offset: int, when_ms: int) -> None:
        """Call `group.on_wait_over` then. An offset of -1 is the cursor as a whole."""

    def soon(self, group: LeasedGroup) -> None:
        """Call `group.serve` in this turn, once."""

    def entering(self, partition_id: int) -> int:
        """How many messages are on their way into a partition: behind its end, and not durable yet."""

    def message_ttl_ms(self, topic_id: int) -> int:
        """How long after its timestamp a message of a topic is worth anything; 0: for ever."""

    def used(self, queue: Queue) -> None:
        """Somebody comes to a queue, or goes."""

    def append_ms(self, partition_id: int, offset: int) -> int:
        """When a message, or the first behind it, was appended; 0 where there is none."""

    def on_error(self, fault: Exception) -> None:
        """A fault of our own that was contained."""

    def dead_letter(self, group: LeasedGroup, prefetcher: Prefetcher, messages: list[Leased], reason: str) -> None:
        """Settle these, and keep them as dead letters where the group wants it."""


class HoldLimit(NamedTuple):  # decision 126
    """How long a member may hold a message without a word about it."""

    after_ms: int

    on_overdue: Callable[[], None]
    """Told when it has held one for longer: what it is on its door is to be ended, and what it holds to be given back.
    Until that happens the messages stay with it."""


class Budget:
    """How many messages several memberships may be handed together, whatever their own credits are."""

    def __init__(self, left: int) -> None:
        self.left = left


class Membership:
    """One member's place in a group; ended by `leave`."""

    def __init__(self, group: LeasedGroup, member: Member, credit: int, keeps: bool, budget: Budget | None,
                 hold: HoldLimit | None = None) -> None:
        self._group = group
        self._hold = hold
        self.member = member
        self.credit = credit
        self.budget = budget
        self.once = False                    # told, with nothing, when there is nothing to be had just now
        self.lazily = False                  # what it is handed is noted with the next frame, whoever's that is
        self.keeps = keeps                   # False: what it gets counts as acked at once
        self.leases: dict[Lease, Prefetcher] = {}
        self._prune_at = PRUNE_LEASES
        self.outbox: list[Leased] = []

    def note(self, prefetcher: Prefetcher, lease: Lease, core: Core) -> None:
        """It holds this too. Leases that are over are let go of now and then."""
        self.leases[lease] = prefetcher
        if self._hold is not None:
            core.hold_for(self._group, prefetcher, lease, self._hold.after_ms)
        if len(self.leases) > self._prune_at:
            self.leases = {held_lease: of for held_lease, of in self.leases.items() if held_lease.left}
            self._prune_at = max(PRUNE_LEASES, 2 * len(self.leases))

    @property
    def room(self) -> int:
        """How many messages it may be handed now."""
        return self.credit if self.budget is None else min(self.credit, self.budget.left)

    def spend(self, count: int) -> None:
        """So many were handed to it."""
        self.credit -= count
        if self.budget is not None:
            self.budget.left -= count

    def add_credit(self, count: int) -> None:
        """It takes so many more messages, or fewer."""
        self.credit += count
        if self.room > 0:
            self._group.wake()

    def retire(self) -> None:
        """It is handed nothing more, and keeps what it holds until it settles that or leaves."""
        self._group.retire(self)

    def leave(self, delay_ms: int | None = 0) -> None:
        """What it holds is ready again after `delay_ms`; None: as the group's retry says."""
        self._group.leave(self, delay_ms)

    def on_overdue(self) -> None:
        """It has held something for too long."""
        if self._hold is not None:
            self._hold.on_overdue()


class Pop:
    """One request for messages; `cancel` it when nobody waits for the answer any more."""

    def __init__(self, group: LeasedGroup, count: int, invisible_ms: int, on_popped: Callable[[list[Leased]], None]
                 ) -> None:
        self._group = group
        self.count = count
        self.invisible_ms = invisible_ms
        self.on_popped = on_popped
        self.leased: list[Leased] = []
        self.done = False
        self.error: KernelError | None = None

    def cancel(self) -> None:
        """Nothing is leased for it any more; what was found meanwhile is ready again."""
        if not self.done:
            self.done = True
            self._group.drop_pop(self)

    def on_time(self) -> None:
        """It has waited long enough: answered with nothing."""
        if not self.done:
            self.done = True
            self._group.drop_pop(self)
            self.on_popped([])

    def on_stored(self, stored: list[Stored]) -> None:
        """Its leases are durable, or were refused."""
        error = stored[0].error
        self.error = error if isinstance(error, KernelError) else None
        self.on_popped([] if error is not None else self.leased)
