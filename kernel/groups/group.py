"""A leased group: any number of members take messages of its cursors, each message leased to one of them at a time.

A *member* is pushed messages as far as its credit goes and holds them until it leaves; a *pop* takes messages once and
holds them for a time. Whoever comes first is served first, cursors in turn, partitions by priority.

Memory changes at once; the pages of the cursors travel in the pending frame. A pop is answered once its leases
are durable, since they outlive the hub. A member is handed its messages at once: its leases end with its connection.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.errors import InvalidGroup, KernelError, UnknownGroup
from gatehouse.kernel.groups.cursor import Cursor, Lease
from gatehouse.kernel.groups.dead_letter_answer import DeadLetterAnswer
from gatehouse.kernel.groups.keys import KeysFreed
from gatehouse.kernel.groups.members import Budget, Core, Counts, HoldLimit, Member, Membership, Pop
from gatehouse.kernel.groups.prefetcher import Prefetcher, Rules, Taken
from gatehouse.kernel.groups.reasons import ATTEMPTS, EXPIRED, OVERFLOW, REJECTED
from gatehouse.kernel.groups.receipts import good_handles
from gatehouse.kernel.groups.settings import MAX_DELAY_MS, MAX_INVISIBLE_MS, GroupSettings, Queue
from gatehouse.kernel.message import Handle, Leased, Owner

if TYPE_CHECKING:
    from gatehouse.kernel.groups.expiry import Expiry
    from gatehouse.kernel.groups.max_length import MaxLength

SHARE: Final = 1_000                 # taken from one cursor before the next has its turn
MAX_POP: Final = 10_000              # messages of one pop
READ_AGAIN_MS: Final = 1_000         # a read that failed is tried again after this


class LeasedGroup:
    """See the module's text. `topic_id` is 0 for a queue's own group, which is called \"\"."""

    def __init__(self, core: Core, tenant: str, name: str, topic_id: int, settings: GroupSettings) -> None:
        self._core = core
        self.tenant = tenant
        self.name = name
        self.topic_id = topic_id
        self.settings = settings
        self.queue: Queue | None = None               # whose own group this is
        self.shared = ""                                   # of such a queue: the group's name, see `sharing`
        self.limit: MaxLength | None = None                    # of such a queue
        self.expiry: Expiry | None = None                  # likewise
        self.ttl_ms = 0                                    # of a queue; a topic says itself
        self.prefetchers: dict[int, Prefetcher] = {}              # by partition id
        self.by_priority = False                           # else cursors take turns
        self.members: list[Membership] = []
        self.wants: Callable[[Leased], bool] | None = None
        self._turn: deque[Prefetcher] = deque()
        self._pops: deque[Pop] = deque()
        self._reading: set[Prefetcher] = set()
        self._refused: dict[Prefetcher, None] = {}             # a full disk did not take what they gave: they rest
        self._next_member = 0
        self._serving = False
        self.settled = self.dead = self.expired = self.dropped = 0
        self.gone = False

    # ---- members and pops

    def join(self, member: Member, credit: int, *, keeps: bool = True, budget: Budget | None = None,
             lazily: bool = False, hold: HoldLimit | None = None) -> Membership:
        """Push messages to `member`, up to `credit` until it adds more. Without `keeps` they need no ack.

        `lazily`: what it is handed is noted in the log with whatever is stored next, and soon in any case. A crash
        before hands that out again as if for the first time. `hold`: what becomes of a member that never acks.
        """
        membership = Membership(self, member, credit, keeps, budget, hold)
        membership.lazily = lazily
        self.members.append(membership)
        self._note_use()
        self.wake()
        return membership

    def _note_use(self) -> None:
        if self.queue is not None:
            self._core.used(self.queue)

    def leave(self, membership: Membership, delay_ms: int | None) -> None:
        """See `Membership.leave`."""
        for lease, prefetcher in membership.leases.items():
            held = prefetcher.cursor.held(lease)
            if held:
                self._end_leases(prefetcher, held, delay_ms)
        membership.leases = {}
        self.retire(membership)

    def take_now(self, member: Member, hold: HoldLimit | None = None) -> Membership:
        """One message for `member`, at once or when it has been read; an empty list where there is none. It holds it
        without being among those who are pushed more."""
        membership = Membership(self, member, 1, True, None, hold)
        membership.once = membership.lazily = True
        self.members.insert(0, membership)
        self._ask_again()
        if self._serving:
            self._core.soon(self)
        else:
            self.serve()
        return membership

    def retire(self, membership: Membership) -> None:
        """See `Membership.retire`."""
        if membership not in self.members:
            return
        self.members.remove(membership)
        self._note_use()
        if not self.members and not self._pops:
            for prefetcher in self.prefetchers.values():
                prefetcher.forget()
                if prefetcher.has_more:
                    self.cursor_ready(prefetcher)
        self.wake()

    def pop(self, count: int, invisible_ms: int, on_popped: Callable[[list[Leased]], None]) -> Pop:  # decision 22
        """Lease up to `count` messages; answered once there is one, or by `Pop.on_time` with none. Raises InvalidGroup
        for numbers that cannot be."""
        if not 1 <= count <= MAX_POP:
            raise InvalidGroup(f"a pop takes 1 to {MAX_POP} messages, not {count}")
        if not 1 <= invisible_ms <= MAX_INVISIBLE_MS:
            raise InvalidGroup(f"an invisible time is 1 to {MAX_INVISIBLE_MS} ms, not {invisible_ms}")
        pop = Pop(self, count, invisible_ms, on_popped)
        self._pops.append(pop)
        self._note_use()
        self._ask_again()
        self.wake()
        return pop

    def drop_pop(self, pop: Pop) -> None:
        """See `Pop.cancel`."""
        if pop in self._pops:
            self._pops.remove(pop)
            self.wake()

    # ---- ending leases

    def ack(self, handles: Sequence[Handle], owner: Owner | None = None, token: object = None, *, lazily: bool = False
            ) -> list[KernelError | None]:
        """These are done. Answers per handle why not; `owner` is told when the rest is durable. Raises Stopping.

        `lazily`: they become durable with whatever is stored next, and soon in any case; for who asks no answer.
        """
        refused, by_cursor = good_handles(handles, self.prefetchers, self.name)
        for prefetcher, offsets in by_cursor:
            self._settle(prefetcher, offsets, lazily=lazily)
        self._core.answer(owner, token)
        return refused

    def release(self, handles: Sequence[Handle], delay_ms: int | None = None, owner: Owner | None = None,
                token: object = None) -> list[KernelError | None]:
        """Give these back: ready again after `delay_ms`, at their old place where it is 0; None: as the group's retry
        says. Answers as `ack`. Raises InvalidGroup, Stopping."""
        if delay_ms is not None and not 0 <= delay_ms <= MAX_DELAY_MS:
            raise InvalidGroup(f"a delay is 0 to {MAX_DELAY_MS} ms, not {delay_ms}")
        refused, by_cursor = good_handles(handles, self.prefetchers, self.name)
        for prefetcher, offsets in by_cursor:
            self._end_leases(prefetcher, offsets, delay_ms)
        self._core.answer(owner, token)
        self.wake()
        return refused

    def extend(self, handles: Sequence[Handle], invisible_ms: int, owner: Owner | None = None,
               token: object = None) -> list[KernelError | None]:
        """Keep these for `invisible_ms` from now on. Answers as `ack`. Raises InvalidGroup, Stopping."""
        if not 1 <= invisible_ms <= MAX_INVISIBLE_MS:
            raise InvalidGroup(f"an invisible time is 1 to {MAX_INVISIBLE_MS} ms, not {invisible_ms}")
        refused, by_cursor = good_handles(handles, self.prefetchers, self.name)
        until_ms = self._core.now_ms() + invisible_ms
        for prefetcher, offsets in by_cursor:
            for lease in prefetcher.cursor.extend(offsets, until_ms):
                self._core.lease_until(self, prefetcher, lease)
            self._core.touch(prefetcher.cursor)
        self._core.answer(owner, token)
        return refused

    def reject(self, handles: Sequence[Handle], owner: Owner | None = None, token: object = None
               ) -> list[KernelError | None]:
        """These will not be tried again: dead letters. Answers as `ack`, once they are dead-lettered."""
        refused, by_cursor = good_handles(handles, self.prefetchers, self.name)
        dead_letter_answer = None if owner is None else DeadLetterAnswer(self._core, owner, token, len(by_cursor))
        for prefetcher, offsets in by_cursor:
            self._doom(prefetcher, offsets, REJECTED, dead_letter_answer)
        self._core.answer(dead_letter_answer, None)
        return refused

    def _settle(self, prefetcher: Prefetcher, offsets: list[int], *, lazily: bool) -> None:
        self.settled += len(offsets)
        self.settle_unleased(prefetcher, offsets, lazily=lazily)

    def settle_unleased(self, prefetcher: Prefetcher, offsets: list[int], *, lazily: bool = False) -> None:
        """These are done with, in hand or leased, and do not count as settled."""
        (self._core.touch_lazily if lazily else self._core.touch)(prefetcher.cursor)
        prefetcher.cursor.settle(offsets)
        if prefetcher.key_of:
            self._core.when_stored(KeysFreed(self, prefetcher, offsets))

    def _end_leases(self, prefetcher: Prefetcher, offsets: list[int], delay_ms: int | None) -> None:  # decision 126
        """These are not leased any more: ready again, waiting for their retry, or dead."""
        core, cursor, most, retry = self._core, prefetcher.cursor, self.settings.max_attempts, self.settings.retry
        core.touch(cursor)
        now_ms = core.now_ms()
        doomed = cursor.leased_as_often(offsets, most) if most else []
        if doomed:
            self._doom(prefetcher, doomed, ATTEMPTS)
            offsets = [offset for offset in offsets if cursor.is_leased(offset)]
        if delay_ms == 0:
            cursor.release(offsets, 0)
        else:
            for offset in offsets:
                wait_ms = delay_ms if delay_ms is not None else retry.delay_ms(cursor.attempt_of(offset),
                                                                               core.chance())
                cursor.release([offset], now_ms + wait_ms if wait_ms else 0)
                if wait_ms:
                    core.wait_until(self, prefetcher, offset, now_ms + wait_ms)
        self.cursor_ready(prefetcher)

    def _doom(self, prefetcher: Prefetcher, offsets: list[int], reason: str,
              dead_letter_answer: DeadLetterAnswer | None = None) -> None:
        """End these leases and dead_letter the messages. Until that they count as ready, should the hub end."""
        self._core.touch(prefetcher.cursor)
        prefetcher.cursor.doom(offsets)
        prefetcher.read_doomed(offsets, lambda messages: self._core.dead_letter(self, prefetcher, messages, reason),
                               dead_letter_answer)

    # ---- time

    def on_lease_over(self, prefetcher: Prefetcher, lease: Lease) -> None:
        """Its time is up: what is still out comes again at once, or when the member that holds it has been ended."""
        held = prefetcher.cursor.held(lease)
        if held and not self.gone and lease.holder is None:
            self._end_leases(prefetcher, held, 0)
        elif held and not self.gone:
            lease.holder.on_overdue()

    def on_wait_over(self, prefetcher: Prefetcher, offset: int, when_ms: int) -> None:
        """One that waited may come again, or a cursor that could not be read be tried again."""
        if self.gone:
            return
        if offset < 0:
            self.cursor_ready(prefetcher)
        elif prefetcher.cursor.wake(offset, when_ms):
            self._core.touch(prefetcher.cursor)
            self.cursor_ready(prefetcher)

    def on_refused(self, prefetcher: Prefetcher) -> None:
        """The cursor was put back to what is stored: what pops have found of it is not theirs. It is not served before
        somebody asks again, or a while has passed, whatever has been read of it or of another cursor meanwhile."""
        prefetcher.failed = True
        self._refused[prefetcher] = None
        self.drop_found(prefetcher.cursor)

    def _ask_again(self) -> None:
        while self._refused:
            self.queue_up(self._refused.popitem()[0])

    def drop_found(self, cursor: Cursor) -> None:
        """What waiting pops have of this cursor is not theirs any more."""
        for pop in self._pops:
            pop.leased = [message for message in pop.leased if message[0] is not cursor]

    # ---- serving

    def cursor_ready(self, prefetcher: Prefetcher) -> None:
        """Serve the members: there may be something to take from this cursor."""
        self.queue_up(prefetcher)
        if self.limit is not None:
            self.limit.enforce()
        self.wake()

    @property
    def taken_from(self) -> bool:
        """Whether anybody is there to take."""
        return bool(self._pops or self.members)

    def queue_up(self, prefetcher: Prefetcher) -> None:
        """Look at this cursor when somebody asks next."""
        prefetcher.failed = False
        if not prefetcher.queued:
            prefetcher.queued = True
            self._turn.append(prefetcher)

    def wake(self) -> None:
        """Serve in this turn, if there is anything to give and anybody to take it."""
        if not self._serving and self._turn:
            if self.taken_from:
                self._core.soon(self)
            elif self.expiry is not None:
                self.expiry.look()

    def serve(self) -> None:
        """Hand out what there is to whoever wants it."""
        if self._serving or self.gone:
            return
        self._serving = True
        try:
            self._serve()
        finally:
            self._serving = False
        reads_first = self.by_priority and self._reading       # which serves again when it is done
        if self._turn and self._wanted() and not reads_first:  # a member asked for more while it was handed some
            self._core.soon(self)

    def _serve(self) -> None:
        ttl_ms = self._core.message_ttl_ms(self.topic_id) if self.topic_id else self.ttl_ms
        rules = Rules(self.wants, ttl_ms, self.settings.ordered, self.settings.max_attempts)
        now_ms, wall_ms = self._core.now_ms(), self._core.wall_ms()
        while self._turn:
            wanted = self._wanted()
            if not wanted:
                break
            prefetcher = self._next_supply()
            if self.by_priority and any(other.cursor.partition_id > prefetcher.cursor.partition_id
                                        for other in self._reading):
                self._turn.append(prefetcher)            # what is being read goes first
                break
            taken = prefetcher.take(min(wanted, SHARE), wall_ms, rules)
            self._take_out(prefetcher, taken)
            if taken.leased:
                self._hand_out(prefetcher, taken.leased, now_ms)
            elif prefetcher.has_more and not prefetcher.fetching:
                prefetcher.read(partial(self.on_read, prefetcher))
                if prefetcher.fetching:
                    self._reading.add(prefetcher)
            if prefetcher.fetching or not prefetcher.has_more:
                prefetcher.queued = False                # a read brings it back, or something new
            else:
                self._turn.append(prefetcher)
        self._send()
        if self._turn and self.expiry is not None:         # nobody takes any more
            self.expiry.look()

    def on_read(self, prefetcher: Prefetcher) -> None:
        """Something of the cursor is in memory now; or it could not be read, and rests."""
        self._reading.discard(prefetcher)
        if prefetcher.failed:
            self._core.wait_until(self, prefetcher, -1, self._core.now_ms() + READ_AGAIN_MS)
            self._core.soon(self)
        else:
            self.cursor_ready(prefetcher)

    def _next_supply(self) -> Prefetcher:
        """The cursor whose turn it is: the highest priority, or the one that waits longest."""
        if not self.by_priority:
            return self._turn.popleft()
        prefetcher = max(self._turn, key=lambda candidate: candidate.cursor.partition_id)
        self._turn.remove(prefetcher)
        return prefetcher

    def _wanted(self) -> int:
        """How many messages somebody waits for."""
        wanted = sum([pop.count - len(pop.leased) for pop in self._pops])
        members = self.members[:1] if self.settings.single_active else self.members
        return wanted + sum([member.room for member in members if member.room > 0])

    def _take_out(self, prefetcher: Prefetcher, taken: Taken) -> None:
        """What is not handed out: expired, or not what the group wants."""
        if taken.unwanted:
            self.settle_unleased(prefetcher, taken.unwanted)
        if taken.expired:
            self.expire(prefetcher, taken.expired)
        if taken.doomed:
            self._core.dead_letter(self, prefetcher, taken.doomed, ATTEMPTS)

    def expire(self, prefetcher: Prefetcher, messages: list[Leased]) -> None:
        """These were in hand, and it is too late for them."""
        self._core.dead_letter(self, prefetcher, messages, EXPIRED)

    def _hand_out(self, prefetcher: Prefetcher, messages: list[Leased], now_ms: int) -> None:
        at = 0
        while self._pops and at < len(messages):
            pop = self._pops[0]
            mine = messages[at:at + pop.count - len(pop.leased)]
            at += len(mine)
            pop.leased += mine
            self._lease(prefetcher, mine, None, now_ms + pop.invisible_ms)
            if len(pop.leased) == pop.count:
                self._finish(self._pops.popleft())
        if at < len(messages):
            self._hand_to_members(prefetcher, messages[at:])

    def _hand_to_members(self, prefetcher: Prefetcher, messages: list[Leased]) -> None:
        members = self.members[:1] if self.settings.single_active else self.members
        hungry = [candidate for candidate in members if candidate.room > 0]
        share = max(1, len(messages) // max(1, len(hungry)))
        at = idle = 0
        while at < len(messages):
            if idle == len(members):                       # a budget they share is spent
                prefetcher.front[:0] = messages[at:]
                break
            self._next_member = (self._next_member + 1) % len(members)
            member = members[self._next_member]
            if member.room <= 0:
                idle += 1
                continue
            idle = 0
            mine = messages[at:at + min(share, member.room)]
            at += len(mine)
            member.spend(len(mine))
            member.outbox += mine
            if member.keeps:
                self._lease(prefetcher, mine, member, 0)
            else:
                self._settle(prefetcher, [message[1] for message in mine], lazily=member.lazily)

    def _lease(self, prefetcher: Prefetcher, messages: list[Leased], member: Membership | None, until_ms: int) -> None:
        """One lease for what was handed out equally often; nearly always that is all of it."""
        at = 0
        while at < len(messages):
            attempt = messages[at][2]
            # Those that were handed out before are among the cursor's tries.
            stop = at + 1 if prefetcher.cursor.may_have_tries else len(messages)
            while stop < len(messages) and messages[stop][2] == attempt:
                stop += 1
            lease = Lease(member, until_ms, attempt, [message[1] for message in messages[at:stop]])
            prefetcher.cursor.lease(lease)
            if member is not None and member.lazily:
                self._core.touch_lazily(prefetcher.cursor)
            else:
                self._core.touch(prefetcher.cursor)
            if member is not None:
                member.note(prefetcher, lease, self._core)
            else:
                self._core.lease_until(self, prefetcher, lease)
            at = stop

    def _finish(self, pop: Pop) -> None:
        pop.done = True
        self._core.answer(pop, None)

    def _send(self) -> None:
        while self._pops and self._pops[0].leased and not self._reading:      # else there is more to come at once
            self._finish(self._pops.popleft())
        for member in [*self.members]:
            if member.once and (member.outbox or not self._reading):
                self.retire(member)
            elif not member.outbox:
                continue
            messages, member.outbox = member.outbox, []
            try:
                member.member.on_leased(messages)
            except Exception as fault:       # one member's bug must not cost the others their messages
                self._core.on_error(fault)

    def purge(self) -> int:
        """Settle everything that is ready, and what is on its way in; how many messages that was. Raises Stopping."""
        count = 0
        for prefetcher in self.prefetchers.values():
            self._core.touch(prefetcher.cursor)
            count += prefetcher.purge(prefetcher.end() + self._core.entering(prefetcher.cursor.partition_id))
        self.settled += count
        return count

    # ---- looking

    def count_ended(self, reason: str, count: int) -> None:
        """So many came to an end without an ack."""
        if reason == EXPIRED:
            self.expired += count
        elif reason == OVERFLOW:
            self.dropped += count
        else:
            self.dead += count

    @property
    def ready(self) -> int:
        """Messages that could be handed out now."""
        return sum([prefetcher.cursor.ready(prefetcher.end()) + prefetcher.in_hand
                    for prefetcher in self.prefetchers.values()])

    def counts(self) -> Counts:
        """Ready, leased, waiting, and what has become of the rest."""
        prefetchers = list(self.prefetchers.values())
        leased = sum([prefetcher.cursor.leased_count for prefetcher in prefetchers])
        waiting = sum([prefetcher.cursor.waiting_count for prefetcher in prefetchers])
        lost = sum([prefetcher.lost for prefetcher in prefetchers])
        oldest = [prefetcher.oldest_ms(self._core.append_ms) for prefetcher in prefetchers
                  if prefetcher.cursor.committed < prefetcher.end()]
        return Counts(self.ready, leased, waiting, self.settled, self.dead, self.expired, lost, self.dropped,
                      min(oldest, default=0))

    def end(self) -> None:
        """Its queue, its topic or itself is deleted."""
        self.gone = True
        members, self.members = self.members, []
        pops, self._pops = self._pops, deque()
        self._turn.clear()
        for pop in pops:
            pop.done = True
            pop.error = UnknownGroup(f"group {self.name!r} was deleted")
            pop.on_popped([])
        for member in members:
            member.member.on_gone()

    def configure(self, settings: GroupSettings) -> None:
        """Other settings from now on; leases that run go on as they are."""
        self.settings = settings
        self.wake()
