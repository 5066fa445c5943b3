"""A leased group: any number of members take messages of its cursors, each message leased to one of them at a time.

A *member* is pushed messages as far as its credit goes and holds them until it leaves; a *pop* takes messages once and
holds them for a time. Whoever comes first is served first, cursors in turn, partitions by priority. What else happens
to messages its policies say (see `kernel.groups.policy`).

Memory changes at once; the pages of the cursors travel in the pending frame. A pop is answered once its leases
are durable, since they outlive the hub. A member is handed its messages at once: its leases end with its connection.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.kernel.addresses.placing import QUEUE_PREFIX
from gatehouse.kernel.errors import ExpiredReceipt, InvalidGroup, KernelError, Stopping, UnknownGroup, UnknownReceipt
from gatehouse.kernel.groups.circuits import GIVEN_BACK, GONE_AWAY, NOT_IN_TIME, REFUSED
from gatehouse.kernel.groups.cursor import ENDLESS_MS, Lease
from gatehouse.kernel.groups.group_settings import MAX_DELAY_MS, MAX_INVISIBLE_MS, GroupSettings, Queue
from gatehouse.kernel.groups.handing_out import Budget, HoldLimit, Member, Membership, Pop, Prefetcher, Verdict
from gatehouse.kernel.groups.policy import ATTEMPTS, EXPIRED, OVERFLOW, REJECTED, Policy, speakers
from gatehouse.kernel.message import NOBODY, Handle, Leased, Origin, Owner, Stored, tell
from gatehouse.kernel.retention.holders import Stretch

if TYPE_CHECKING:
    from gatehouse.kernel.groups.leasing import Core

SHARE: Final = 1_000                 # taken from one cursor before the next has its turn
ROUND_BYTES: Final = 1 << 20         # handed to members, about, before they are told and say anew what room they have
PASSED_MAX: Final = 1_000            # messages that a round passes over, before others than the group have their turn
MAX_POP: Final = 10_000              # messages of one pop
LINGER_MS: Final = 1_000             # what was read for who took one message is kept in memory so long
LINGERING_MAX: Final = 128           # groups of which it is, at once
READ_AGAIN_MS: Final = 1_000         # a read that failed is tried again after this

FIRST_OF_ALL: Final = 1 << 31        # the priority of who takes one message at once: above any that a member can have

ELSEWHERE_MAX: Final = 10_000         # messages of a group of which it is remembered who held them for too long

ByCursor = list[tuple[Prefetcher, list[int]]]
"""Offsets of a group's messages, cursor by cursor."""


class LeasedGroup:
    """One group over a topic, or behind a queue. `queue` is whose own group it is: then its name is "" and its
    `topic_id` 0. `shared` is the name of the group that such a queue stands for, see `sharing`."""

    def __init__(self, core: Core, tenant: str, name: str, topic_id: int, settings: GroupSettings,
                 queue: Queue | None = None, shared: str = "") -> None:
        self._core = core
        self.tenant = tenant
        self.name = name
        self.topic_id = topic_id
        self.settings = settings
        self.queue: Queue | None = queue
        self.shared = shared
        self.prefetchers: dict[int, Prefetcher] = {}              # by partition id
        self.gone = False
        self.used_ms = 0                  # of a queue's: when somebody came or went last, by hub time; 0: never
        self._by_priority = queue is not None and queue.settings.priorities > 1      # else cursors take turns
        self._policies: list[Policy] = []
        self._judges: list[Policy] = []                        # of them, those that have something to say at a moment
        self._on_settled: list[Policy] = []
        self._on_ready: list[Policy] = []
        self._on_idle: list[Policy] = []
        self._judges_plain = False
        self._members: list[Membership] = []
        self._pops: deque[Pop] = deque()
        self._members_next = False                    # they have their share before pops that wait
        self._turn: deque[Prefetcher] = deque()
        self._queued: set[Prefetcher] = set()                  # those in `_turn`, and the one that has it
        self._reading: set[Prefetcher] = set()
        self._refused: dict[Prefetcher, None] = {}             # a full disk did not take what they gave: they rest
        self._next_member = 0
        self._lingers = False                                  # what was read for one message stays for a while
        self._is_ranked = False                                # members differ in priority
        self._elsewhere: dict[tuple[Prefetcher, int], Membership] = {}     # for others than who held it for too long
        self._serving = False
        self._started = False
        self._settled = self._dead = self._expired = self._dropped = 0
        self._circuit = core.circuits.of(tenant, shared or name, settings.pausing)

    @property
    def shown_name(self) -> str:
        """What others call it: a queue by its address."""
        return self.shared or (self.name if self.queue is None else QUEUE_PREFIX + self.queue.name)

    def follow(self, policies: list[Policy]) -> None:
        """Its policies, in the order in which they judge."""
        self._policies = policies
        self._judges = speakers(policies, "judge")
        self._on_settled = speakers(policies, "on_settled")
        self._on_ready = speakers(policies, "on_ready")
        self._on_idle = speakers(policies, "on_idle")
        self._judges_plain = any(policy.judges_plain for policy in policies)

    def redefine(self, queue: Queue) -> None:
        """Its queue has other settings now."""
        self.queue = queue

    @property
    def policies(self) -> Sequence[Policy]:
        return self._policies

    def start(self) -> None:
        """What happens to its messages without anybody's doing begins."""
        self._started = True
        for policy in self._policies:
            policy.on_start()

    def add(self, prefetcher: Prefetcher) -> None:
        """It reads this partition too."""
        self.prefetchers[prefetcher.cursor.partition_id] = prefetcher

    # ---- members and pops

    def join(self, member: Member, credit: int, *, keeps: bool = True, budget: Budget | None = None,
             lazily: bool = False, hold: HoldLimit | None = None, priority: int = 0, taker: Origin = NOBODY
             ) -> Membership:
        """Push messages to `member`, up to `credit` until it adds more. Without `keeps` they need no ack.

        `lazily`: what it is handed is noted in the log with whatever is stored next, and soon in any case. A crash
        before hands that out again as if for the first time. `hold`: what becomes of a member that never acks.
        `priority`: members of a lower one are handed something only while none of a higher one has room.
        `taker`: who it is, for journeys.
        """
        membership = Membership(self, member, credit, keeps=keeps, budget=budget, hold=hold, is_lazy=lazily,
                                priority=priority, taker=taker)
        at = len(self._members)
        while at and self._members[at - 1].priority < priority:
            at -= 1
        self._members.insert(at, membership)
        self._rank()
        self._note_use()
        self.wake()
        return membership

    def _rank(self) -> None:
        """Members have come or gone."""
        ranks = {member.priority for member in self._members if not member.is_once}
        self._is_ranked = len(ranks) > 1

    def _note_use(self) -> None:
        if self.queue is not None:
            self.used_ms = self._core.now_ms()

    def leave(self, membership: Membership, delay_ms: int | None) -> None:
        """See `Membership.leave`."""
        has_failed = False
        for lease, prefetcher in membership.let_go():
            held = prefetcher.cursor.held(lease)
            if held:
                self._end_leases(prefetcher, held, delay_ms)
                if self._circuit is not None and not has_failed:
                    has_failed = True                  # who goes away fails once, however much it was handed ahead
                    self._circuit.on_failed(prefetcher, held, 1, GONE_AWAY)
        self.retire(membership)

    def take_now(self, member: Member, hold: HoldLimit | None = None, taker: Origin = NOBODY) -> Membership:
        """One message for `member`, at once or when it has been read; an empty list where there is none. It holds it
        without being among those who are pushed more."""
        membership = Membership(self, member, 1, hold=hold, is_lazy=True, is_once=True, priority=FIRST_OF_ALL,
                                taker=taker)
        self._members.insert(0, membership)
        self._ask_again()
        if self._serving:
            self._core.soon(self)
        else:
            self.serve()
        return membership

    def retire(self, membership: Membership) -> None:
        """See `Membership.retire`."""
        if membership not in self._members:
            return
        self._members.remove(membership)
        self._elsewhere = {key: holder for key, holder in self._elsewhere.items() if holder is not membership}
        self._rank()
        self._note_use()
        if not self.taken_from:
            lingers = membership.is_once and self._linger()
            for prefetcher in self.prefetchers.values():
                if not lingers:
                    self.put_back(prefetcher)
                if prefetcher.has_more:
                    self.cursor_ready(prefetcher)
            if membership.is_once and not lingers and not self.shared:   # who asks a shared filter knows its group
                self._core.note_unused(self)
        self.wake()

    def _linger(self) -> bool:  # decision 213
        """Who takes messages one by one comes again soon: what was read stays for a while. False where it may not: what
        so many groups have read does."""
        if not self._lingers and self._core.begin_lingering(LINGERING_MAX):
            self._lingers = True
            self._core.deadlines.at(self._core.now_ms() + LINGER_MS, self._put_back_unused)
        return self._lingers

    def _put_back_unused(self) -> None:
        self._lingers = False
        self._core.end_lingering()
        if not self.gone and not self.taken_from:
            for prefetcher in self.prefetchers.values():
                self.put_back(prefetcher)
                if prefetcher.has_more:
                    self.cursor_ready(prefetcher)

    def pop(self, count: int, invisible_ms: int, on_popped: Callable[[list[Leased]], None],  # decision 22
            taker: Origin = NOBODY) -> Pop:
        """Lease up to `count` messages; answered once there is one, or by `Pop.on_time`. Raises InvalidGroup
        for numbers that cannot be."""
        if not 1 <= count <= MAX_POP:
            raise InvalidGroup(f"a pop takes 1 to {MAX_POP} messages, not {count}")
        if not 1 <= invisible_ms <= MAX_INVISIBLE_MS:
            raise InvalidGroup(f"an invisible time is 1 to {MAX_INVISIBLE_MS} ms, not {invisible_ms}")
        pop = Pop(self, count, invisible_ms, on_popped, taker)
        self._pops.append(pop)
        self._note_use()
        self._ask_again()
        self.wake()
        return pop

    def drop_pop(self, pop: Pop) -> None:
        """See `Pop.cancel`."""
        if pop in self._pops:
            self._pops.remove(pop)
            if pop.leased:
                with suppress(Stopping):             # their time runs out by itself
                    self.give_back([message[:3] for message in pop.leased])
            self.wake()

    def answer_pop(self, pop: Pop) -> None:
        """Answer it with what it has, though there may be more to come. Raises Stopping."""
        self._pops.remove(pop)
        self._finish(pop)

    @property
    def is_paused(self) -> bool:
        """Whether nothing is handed out, as its members only failed or somebody said so."""
        return self._circuit is not None and self._circuit.is_open

    @property
    def taken_from(self) -> bool:
        """Whether anybody is there to take."""
        return bool(self._pops or self._members)

    # ---- ending leases

    def ack(self, handles: Sequence[Handle], owner: Owner | None = None, token: object = None, *, lazily: bool = False
            ) -> list[KernelError | None]:
        """These are done. Answers per handle why not; `owner` is told when the rest is durable. Raises Stopping.

        `lazily`: they become durable with whatever is stored next, and soon in any case; for who asks no answer.
        """
        refused, by_cursor = self.good_handles(handles)
        for prefetcher, offsets in by_cursor:
            self._settle(prefetcher, offsets, lazily=lazily)
        self._core.answer(owner, token)
        return refused

    def release(self, handles: Sequence[Handle], delay_ms: int | None = None, owner: Owner | None = None,
                token: object = None, reason: str = GIVEN_BACK) -> list[KernelError | None]:
        """Give these back: ready again after `delay_ms`, at their old place where it is 0; None: as the group's retry
        says. Answers as `ack`; without an owner, what is ready at once is stored as acks that nobody waits for. Raises
        InvalidGroup, Stopping."""
        if delay_ms is not None and not 0 <= delay_ms <= MAX_DELAY_MS:
            raise InvalidGroup(f"a delay is 0 to {MAX_DELAY_MS} ms, not {delay_ms}")
        refused, by_cursor = self.good_handles(handles)
        for at, (prefetcher, offsets) in enumerate(by_cursor):
            self._end_leases(prefetcher, offsets, delay_ms, lazily=delay_ms == 0 and owner is None)  # decision 334
            failed = len(offsets) if reason != GONE_AWAY else int(at == 0)     # who goes away fails once, as in `leave`
            if self._circuit is not None and failed:
                self._circuit.on_failed(prefetcher, offsets, failed, reason)
        self._core.answer(owner, token)
        self.wake()
        return refused

    def give_back(self, handles: Sequence[Handle]) -> None:
        """Who these were leased for never had them: ready again, and nothing has failed. Stored as acks that nobody
        waits for. Raises Stopping."""
        for prefetcher, offsets in self.good_handles(handles)[1]:
            self._core.touch_lazily(prefetcher.cursor)
            self._tell_ended(prefetcher, offsets, 0, False)
            prefetcher.cursor.unlease(offsets)
            self.cursor_ready(prefetcher)

    def extend(self, handles: Sequence[Handle], invisible_ms: int, owner: Owner | None = None,
               token: object = None) -> list[KernelError | None]:
        """Keep these for `invisible_ms` from now on. Answers as `ack`. Raises InvalidGroup, Stopping."""
        if not 1 <= invisible_ms <= MAX_INVISIBLE_MS:
            raise InvalidGroup(f"an invisible time is 1 to {MAX_INVISIBLE_MS} ms, not {invisible_ms}")
        refused, by_cursor = self.good_handles(handles)
        until_ms = self._core.now_ms() + invisible_ms
        for prefetcher, offsets in by_cursor:
            for lease in prefetcher.cursor.extend(offsets, until_ms):
                self._core.deadlines.lease_until(self, prefetcher, lease)
            self._core.touch(prefetcher.cursor)
            if (recorder := self._core.recorder_in(prefetcher.cursor.partition_id)) is not None:
                recorder.on_extended(self, prefetcher.cursor, offsets, until_ms)
        self._core.answer(owner, token)
        return refused

    def entrust(self, handles: Sequence[Handle]) -> list[KernelError | None]:  # decision 270
        """Nothing but a word about them ends these leases from now on. What is wrong with each. Raises Stopping."""
        refused, by_cursor = self.good_handles(handles)
        for prefetcher, offsets in by_cursor:
            prefetcher.cursor.extend(offsets, ENDLESS_MS)
            self._core.touch(prefetcher.cursor)
        return refused

    def reject(self, handles: Sequence[Handle], owner: Owner | None = None, token: object = None
               ) -> list[KernelError | None]:
        """These will not be tried again: dead letters. Answers as `ack`, once they are given up."""
        refused, by_cursor = self.good_handles(handles)
        answer = None if owner is None else DeadLetterAnswer(self._core, owner, token, len(by_cursor))
        for prefetcher, offsets in by_cursor:
            self._doom(prefetcher, offsets, REJECTED, None if answer is None else answer.on_given_up)
            if self._circuit is not None:
                self._circuit.on_failed(prefetcher, offsets, len(offsets), REFUSED)
        self._core.answer(answer, None)
        return refused

    def good_handles(self, handles: Sequence[Handle]) -> tuple[list[KernelError | None], ByCursor]:
        """Per handle why it is not good; and the offsets of those that are: their leases run, in cursors of this very
        group. One that comes twice is good once."""
        refused: list[KernelError | None] = [None] * len(handles)
        by_cursor: dict[Prefetcher, list[int]] = {}
        start = 0
        while start < len(handles):                    # those of one cursor at a time
            key = handles[start][0]
            stop = start + 1
            while stop < len(handles) and handles[stop][0] is key:
                stop += 1
            prefetcher = self.prefetchers.get(key[0])
            if prefetcher is None or prefetcher.cursor.key != key:
                rewound = prefetcher is not None and key[2] == self.name
                refused[start:stop] = [ExpiredReceipt("the group was rewound") if rewound
                                       else UnknownReceipt("this receipt handle is not of this group")] * (stop - start)
            else:
                ended = prefetcher.cursor.ended(handles, start, stop)
                for i in ended:
                    refused[i] = ExpiredReceipt("the lease has ended")
                good = [handles[i][1] for i in range(start, stop) if not ended or refused[i] is None]
                if good:
                    by_cursor.setdefault(prefetcher, []).extend(good)
            start = stop
        if len(handles) > 1:
            by_cursor = {of: list(dict.fromkeys(good_offsets)) for of, good_offsets in by_cursor.items()}
        return refused, list(by_cursor.items())

    def _settle(self, prefetcher: Prefetcher, offsets: list[int], *, lazily: bool) -> None:
        self._settled += len(offsets)
        if self._circuit is not None:
            self._circuit.on_acked(len(offsets))
        if (recorder := self._core.recorder_in(prefetcher.cursor.partition_id)) is not None:
            recorder.on_acked(self, prefetcher.cursor, offsets)
        receipts = self._core.receipts
        if receipts is not None and receipts.waiting and receipts.on_acked(
                self.shown_name, prefetcher.cursor.partition_id, offsets, prefetcher.cursor.attempt_of):
            lazily = False                               # it is in the frame of the receipt
        self._settle_uncounted(prefetcher, offsets, lazily=lazily)

    def _settle_uncounted(self, prefetcher: Prefetcher, offsets: list[int], *, lazily: bool = False) -> None:
        """These are done with, in hand or leased, and do not count as settled."""
        (self._core.touch_lazily if lazily else self._core.touch)(prefetcher.cursor)
        prefetcher.cursor.settle(offsets)
        for policy in self._on_settled:
            policy.on_settled(prefetcher, offsets)

    def settle_anywhere(self, prefetcher: Prefetcher, offsets: list[int], gaps: Sequence[Stretch]) -> None:
        """These are done with, wherever in their cursor they are; none of them is leased. There is nothing in `gaps`.
        Raises Stopping."""
        self.put_back(prefetcher)
        prefetcher.take_back(offsets, gaps)
        self._settle_uncounted(prefetcher, offsets)
        self.cursor_ready(prefetcher)

    def give_up(self, prefetcher: Prefetcher, messages: list[Leased], reason: str) -> None:
        """These end without an ack: settled, with what policies keep of them in the same frame. Raises Stopping, with
        nothing done."""
        for policy in self._policies:
            policy.on_given_up(prefetcher, messages, reason)
        if self._core.recorder is not None:
            self._core.recorder.on_given_up(self, prefetcher.cursor, messages, reason)
        if self._core.receipts is not None and self._core.receipts.waiting:
            self._core.receipts.on_given_up(self.shown_name, prefetcher.cursor.partition_id, messages, reason)
        if reason == EXPIRED:
            self._expired += len(messages)
        elif reason == OVERFLOW:
            self._dropped += len(messages)
        else:
            self._dead += len(messages)
        self._settle_uncounted(prefetcher, [message[1] for message in messages] + prefetcher.take_missing())

    def give_up_leased(self, prefetcher: Prefetcher, offsets: list[int], messages: list[Leased], reason: str) -> None:
        """As `give_up`, of what is leased; what of these offsets is not among the messages was lost. Raises
        Stopping."""
        self._core.touch(prefetcher.cursor)
        prefetcher.cursor.doom(offsets)
        self.give_up(prefetcher, prefetcher.as_doomed(offsets, messages), reason)

    def _end_leases(self, prefetcher: Prefetcher, offsets: list[int], delay_ms: int | None,  # decision 126
                    is_over: bool = False, *, lazily: bool = False) -> None:
        """These are not leased any more: ready again, waiting for their retry, or dead."""
        core, cursor, most, retry = self._core, prefetcher.cursor, self.settings.max_attempts, self.settings.retry
        (core.touch_lazily if lazily else core.touch)(cursor)
        now_ms = core.now_ms()
        doomed = cursor.leased_as_often(offsets, most) if most else []
        if doomed:
            self._doom(prefetcher, doomed, ATTEMPTS, None)
            offsets = [offset for offset in offsets if cursor.is_leased(offset)]
        if delay_ms == 0:
            self._tell_ended(prefetcher, offsets, 0, is_over)
            cursor.release(offsets, 0)
        else:
            for offset in offsets:
                wait_ms = delay_ms if delay_ms is not None else retry.delay_ms(cursor.attempt_of(offset),
                                                                               core.chance())
                self._tell_ended(prefetcher, [offset], now_ms + wait_ms if wait_ms else 0, is_over)
                cursor.release([offset], now_ms + wait_ms if wait_ms else 0)
                if wait_ms:
                    core.deadlines.wait_until(self, prefetcher, offset, now_ms + wait_ms)
        self.cursor_ready(prefetcher)

    def _tell_ended(self, prefetcher: Prefetcher, offsets: list[int], until_ms: int, is_over: bool) -> None:
        """For journeys: these come again, from a time on."""
        if self._core.recorder is not None and offsets:
            self._core.recorder.on_lease_ended(self, prefetcher.cursor, offsets, until_ms, is_over)

    def _doom(self, prefetcher: Prefetcher, offsets: list[int], reason: str, on_done: Callable[[], None] | None
              ) -> None:
        """End these leases and give the messages up. Until that they count as ready, should the hub end."""
        self._core.touch(prefetcher.cursor)
        prefetcher.cursor.doom(offsets)
        prefetcher.read_doomed(offsets, partial(self._give_up_doomed, prefetcher, reason), on_done)

    def _give_up_doomed(self, prefetcher: Prefetcher, reason: str, messages: list[Leased]) -> None:
        if not self.gone:                      # else nothing of it is written down any more
            self.give_up(prefetcher, messages, reason)

    # ---- time

    def on_lease_over(self, prefetcher: Prefetcher, lease: Lease) -> None:
        """Its time is up: what is still out comes again at once, or when the member that holds it has been ended."""
        held, holder = prefetcher.cursor.held(lease), lease.holder
        if not held or self.gone:
            return
        if holder is not None:
            held = holder.take_back(prefetcher, lease, held, self._core)
            if len(self._elsewhere) + len(held) > ELSEWHERE_MAX:
                self._elsewhere.clear()
            self._elsewhere.update(dict.fromkeys([(prefetcher, offset) for offset in held], holder))
        if held:
            self._end_leases(prefetcher, held, 0, True)
            if self._circuit is not None:
                self._circuit.on_failed(prefetcher, held, len(held), NOT_IN_TIME)

    def on_wait_over(self, prefetcher: Prefetcher, offset: int, when_ms: int) -> None:
        """One that waited may come again, or a cursor that could not be read be tried again."""
        if self.gone:
            return
        if offset < 0:
            self.cursor_ready(prefetcher)
        elif prefetcher.cursor.wake(offset, when_ms):
            self._core.touch(prefetcher.cursor)
            self.cursor_ready(prefetcher)

    # ---- a cursor that goes on elsewhere

    def rewind(self, prefetcher: Prefetcher, offset: int, epoch: int) -> None:
        """Go on from this offset, forward or back; leases that run there are void. Raises Stopping."""
        self._drop_found(prefetcher)
        prefetcher.begin_anew(offset, epoch)
        self._core.touch(prefetcher.cursor)
        for policy in self._policies:
            policy.on_reset(prefetcher)
        self.cursor_ready(prefetcher)

    def on_loaded(self, prefetcher: Prefetcher, leases: list[Lease]) -> None:
        """A cursor was read from the state: these leases run on until their time, and what waits comes again then."""
        for lease in [lease for lease in leases if lease.until_ms < ENDLESS_MS]:
            self._core.deadlines.lease_until(self, prefetcher, lease)
        for offset, when_ms in prefetcher.cursor.waits():
            self._core.deadlines.wait_until(self, prefetcher, offset, when_ms)
        for policy in self._policies:
            policy.on_loaded(prefetcher)

    def restore(self, prefetcher: Prefetcher, committed: int, pages: Sequence[tuple[int, bytes]], again_ms: int
                ) -> None:
        """Put a cursor back to what is stored: members keep what they hold, what pops have found is not theirs. It is
        not served before somebody asks again, or this time has come, whatever has been read of it or of another
        cursor meanwhile."""
        leases, held = prefetcher.restore(committed, pages)
        for policy in self._policies:
            policy.on_reset(prefetcher)
        for lease in held:
            lease.holder.note(prefetcher, lease, self._core)
        self.on_loaded(prefetcher, leases)
        prefetcher.pause()
        self._refused[prefetcher] = None
        self._drop_found(prefetcher)
        self._core.deadlines.wait_until(self, prefetcher, -1, again_ms)

    def _drop_found(self, prefetcher: Prefetcher) -> None:
        for pop in self._pops:
            pop.drop(prefetcher.cursor.key)

    def _ask_again(self) -> None:
        while self._refused:
            self._queue_up(self._refused.popitem()[0])

    # ---- serving

    def cursor_ready(self, prefetcher: Prefetcher) -> None:
        """Serve the members: there may be something to take from this cursor."""
        if self.gone:
            return
        self._queue_up(prefetcher)
        if self._started:
            for policy in self._on_ready:
                policy.on_ready()
        self.wake()

    def _queue_up(self, prefetcher: Prefetcher) -> None:
        """Look at this cursor when somebody asks next."""
        prefetcher.try_again()
        if prefetcher not in self._queued:
            self._queued.add(prefetcher)
            self._turn.append(prefetcher)

    def wake(self) -> None:
        """Serve in this turn, if there is anything to give and anybody to take it."""
        if not self._serving and self._turn:
            if self.taken_from:
                self._core.soon(self)
            else:
                self._rest()

    def _rest(self) -> None:
        """Something is ready, and nobody takes."""
        if self._started:
            for policy in self._on_idle:
                policy.on_idle()

    def serve(self) -> None:
        """Hand out what there is to whoever wants it."""
        if self._serving or self.gone:
            return
        self._core.not_soon(self)
        self._serving = True
        try:
            self._serve()
        finally:
            self._serving = False
        reads_first = self._by_priority and self._reading       # which serves again when it is done
        if self._turn and not reads_first and self._wanted(self._takers()):
            self._core.soon(self)                              # a member asked for more while it was handed some

    def _serve(self) -> None:
        now_ms, wall_ms = self._core.now_ms(), self._core.wall_ms()
        takers = self._takers()
        left_bytes, passed = ROUND_BYTES, 0
        while self._turn:
            wanted = self._wanted(takers)
            if not wanted:
                break
            # decision 269: `serve` goes on when they have been told
            if left_bytes <= 0 and not self._pops or passed >= PASSED_MAX:
                self._tell([member for member in self._members if member.has_news])
                return
            prefetcher = self._next_cursor()
            if self._by_priority and any(other.cursor.partition_id > prefetcher.cursor.partition_id
                                         for other in self._reading):
                self._turn.append(prefetcher)            # what is being read goes first
                break
            waits = not self._pops and not takers[0].is_once         # decision 288: who asks once has not waited
            verdict = Verdict(self._judges, wall_ms, self._judges_plain, waits)
            prefetcher.read_recent()
            most = SHARE if self._pops else max(1, min(SHARE, left_bytes // prefetcher.mean_bytes))
            messages = prefetcher.take(min(wanted, most), verdict)
            left_bytes -= len(messages) * prefetcher.mean_bytes
            passed += verdict.count
            self.carry_out(prefetcher, verdict)
            if messages:
                self._hand_out(prefetcher, messages, now_ms, takers)
                if self._circuit is not None:
                    self._circuit.on_handed_out(prefetcher, messages[0][1])
            elif prefetcher.has_more and not prefetcher.fetching:
                self.read(prefetcher)
                if prefetcher.fetching:
                    self._reading.add(prefetcher)
            if prefetcher.fetching or not prefetcher.has_more:
                self._queued.discard(prefetcher)         # a read brings it back, or something new
            else:
                self._turn.append(prefetcher)
        self._send()
        if self._turn:                                   # nobody takes any more
            self._rest()

    def read(self, prefetcher: Prefetcher) -> None:
        """Read what there is to take of a cursor; it has its turn when something is there."""
        prefetcher.read(partial(self.on_read, prefetcher))

    def on_read(self, prefetcher: Prefetcher) -> None:
        """Something of the cursor is in memory now; or it could not be read, and rests."""
        self._reading.discard(prefetcher)
        missing = prefetcher.take_missing()
        if missing and not self.gone:          # policies hear of them as of all that is settled
            self._core.deadlines.act(partial(self._settle_uncounted, prefetcher, missing))
        if prefetcher.failed:
            self._core.deadlines.wait_until(self, prefetcher, -1, self._core.now_ms() + READ_AGAIN_MS)
            self._core.soon(self)
        else:
            self.cursor_ready(prefetcher)

    def _next_cursor(self) -> Prefetcher:
        """The cursor whose turn it is: the highest priority, or the one that waits longest."""
        if not self._by_priority:
            return self._turn.popleft()
        prefetcher = max(self._turn, key=lambda candidate: candidate.cursor.partition_id)
        self._turn.remove(prefetcher)
        return prefetcher

    def _takers(self) -> list[Membership]:  # decision 186
        """The members that are served now: all of them, the first alone, or those of the highest priority that has
        room."""
        if self.settings.single_active:
            return self._members[:1]
        if not self._is_ranked:
            return self._members
        hungry = [member for member in self._members if member.room > 0]
        return [member for member in hungry if member.priority == hungry[0].priority]

    def _wanted(self, takers: list[Membership]) -> int:
        """How many messages somebody waits for, and may be handed."""
        wanted = sum([pop.room for pop in self._pops]) + sum([member.room for member in takers if member.room > 0])
        return wanted if self._circuit is None else min(wanted, self._circuit.room())

    def verdict_of_all(self) -> Verdict:
        """A verdict of the policies that judge whatever leaves a cursor, for one that takes on its own."""
        return Verdict([policy for policy in self._judges if policy.judges_all], self._core.wall_ms(), True)

    def carry_out(self, prefetcher: Prefetcher, verdict: Verdict) -> None:
        """What a verdict says of messages that are not handed out. Raises Stopping."""
        if verdict.unwanted:
            self._settle_uncounted(prefetcher, verdict.unwanted)
        for reason, messages in verdict.given_up.items():
            self.give_up(prefetcher, messages, reason)

    def _hand_out(self, prefetcher: Prefetcher, messages: list[Leased], now_ms: int, takers: list[Membership]) -> None:
        at = 0
        if self._pops:  # decision 348: by turns, else who asks again and again leaves nothing for members
            if self._members_next:
                at = min(len(messages), sum([member.room for member in takers if member.room > 0]))
                self._hand_to_members(prefetcher, messages[:at], takers)
            self._members_next = not self._members_next
        while self._pops and at < len(messages):
            pop = self._pops[0]
            mine = messages[at:at + pop.room]
            at += len(mine)
            pop.hand(mine)
            self._lease(prefetcher, mine, None, now_ms + pop.invisible_ms, pop.taker)
            if not pop.room:
                self._finish(self._pops.popleft())
        if at < len(messages):
            self._hand_to_members(prefetcher, messages[at:], takers)

    def _hand_to_members(self, prefetcher: Prefetcher, messages: list[Leased], members: list[Membership]) -> None:
        if self._elsewhere:
            messages = self._hand_elsewhere(prefetcher, messages, members)
        hungry = [candidate for candidate in members if candidate.room > 0]
        share = max(1, len(messages) // max(1, len(hungry)))
        at = idle = 0
        while at < len(messages):
            if idle == len(members):                       # a budget they share is spent
                prefetcher.give_back(messages[at:])
                break
            self._next_member = (self._next_member + 1) % len(members)
            member = members[self._next_member]
            if member.room <= 0:
                idle += 1
                continue
            idle = 0
            mine = messages[at:at + min(share, member.room)]
            at += len(mine)
            self._hand_to(member, prefetcher, mine)

    def _hand_elsewhere(self, prefetcher: Prefetcher, messages: list[Leased], members: list[Membership]
                        ) -> list[Leased]:
        """What was taken back from a member goes to another one that has room; the rest is returned, in order."""
        rest: list[Leased] = []
        for message in messages:
            before = self._elsewhere.pop((prefetcher, message[1]), None)
            others = [] if before is None else [
                member for member in members if member is not before and member.room > 0]
            if not others:
                rest.append(message)
            else:
                self._hand_to(others[0], prefetcher, [message])
        return rest

    def _hand_to(self, member: Membership, prefetcher: Prefetcher, messages: list[Leased]) -> None:
        """These are leased to the member, or settled where it keeps nothing."""
        member.hand(messages)
        if member.keeps:
            self._lease(prefetcher, messages, member, 0, member.taker)
            return
        if (recorder := self._core.recorder_in(prefetcher.cursor.partition_id)) is not None:
            recorder.on_handed_out(self, prefetcher.cursor, messages, 0, member.taker)
        self._settle(prefetcher, [message[1] for message in messages], lazily=member.is_lazy)

    def _lease(self, prefetcher: Prefetcher, messages: list[Leased], member: Membership | None, until_ms: int,
               taker: Origin) -> None:
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
            if (recorder := self._core.recorder_in(prefetcher.cursor.partition_id)) is not None:
                recorder.on_handed_out(self, prefetcher.cursor, messages[at:stop], until_ms, taker)
            if member is not None and member.is_lazy:
                self._core.touch_lazily(prefetcher.cursor)
            else:
                self._core.touch(prefetcher.cursor)
            if member is not None:
                member.note(prefetcher, lease, self._core)
            else:
                self._core.deadlines.lease_until(self, prefetcher, lease)
            at = stop

    def _finish(self, pop: Pop) -> None:
        pop.finish()
        self._core.answer(pop, None)

    def _send(self) -> None:
        while self._pops and self._pops[0].leased and not self._reading:      # else there is more to come at once
            self._finish(self._pops.popleft())
        if self._by_priority and self._reading:          # decision 340: `on_read` serves again
            return
        self._tell([member for member in self._members
                    if member.has_news or member.is_once and not self._reading])

    def _tell(self, members: list[Membership]) -> None:
        for member in members:
            if member.is_once:
                self.retire(member)
            try:
                member.send()
            except Exception as fault:       # one member's bug must not cost the others their messages
                self._core.on_error(fault)

    def put_back(self, prefetcher: Prefetcher) -> None:
        """What was read of a cursor and is not leased is ready again."""
        prefetcher.forget()
        for policy in self._policies:
            policy.on_put_back(prefetcher)

    def note_entry(self) -> None:
        """Its policies ask from now on when messages entered its partitions."""
        for prefetcher in self.prefetchers.values():
            prefetcher.note_entry()
            self.cursor_ready(prefetcher)

    def purge(self) -> int:
        """Settle everything that is ready, and what is on its way in; how many messages that was. Raises Stopping."""
        count = 0
        for prefetcher in self.prefetchers.values():
            self._core.touch(prefetcher.cursor)
            self.put_back(prefetcher)
            count += prefetcher.purge(prefetcher.end() + self._core.entering(prefetcher.cursor.partition_id))
        self._settled += count
        return count

    # ---- looking

    @property
    def ready(self) -> int:
        """Messages that could be handed out now."""
        return sum([prefetcher.cursor.ready(prefetcher.end()) + prefetcher.in_hand
                    for prefetcher in self.prefetchers.values()])

    @property
    def has_ready(self) -> bool:
        """Whether something may be handed out now, or is read to be. Costs next to nothing where nothing is ready, over
        however many partitions."""
        return bool(self._reading) or any(prefetcher.has_more for prefetcher in self._turn)

    @property
    def entering(self) -> int:
        """Messages that are on their way in, and were not purged before they are there."""
        return sum([max(0, self._core.entering(partition_id) - prefetcher.cursor.passed_over(prefetcher.end()))
                    for partition_id, prefetcher in self.prefetchers.items()])

    def counts(self) -> Counts:
        """Ready, leased, waiting, and what has become of the rest."""
        prefetchers = list(self.prefetchers.values())
        leased = sum([prefetcher.cursor.leased_count for prefetcher in prefetchers])
        waiting = sum([prefetcher.cursor.waiting_count for prefetcher in prefetchers])
        lost = sum([prefetcher.lost for prefetcher in prefetchers])
        oldest = [prefetcher.oldest_ms(self._core.append_ms) for prefetcher in prefetchers
                  if prefetcher.cursor.committed < prefetcher.end()]
        return Counts(self.ready, leased, waiting, self._settled, self._dead, self._expired, lost, self._dropped,
                      min(oldest, default=0))

    def committed(self, partition_id: int) -> int:
        """The first offset of a partition that is not settled."""
        return self.prefetchers[partition_id].cursor.committed

    def is_settled(self, partition_id: int, offset: int) -> bool:
        """Whether a message of a partition that it reads is done with."""
        return self.prefetchers[partition_id].cursor.is_settled(offset)

    def is_leased(self, partition_id: int, offset: int) -> bool:
        """Whether somebody holds a message of a partition that it reads."""
        return self.prefetchers[partition_id].cursor.is_leased(offset)

    def unsettled(self) -> list[tuple[int, int]]:
        """(partition id, committed offset) of every partition in which something is not settled."""
        return [(partition_id, prefetcher.cursor.committed) for partition_id, prefetcher in self.prefetchers.items()
                if prefetcher.cursor.committed < prefetcher.end()]

    @property
    def rests(self) -> bool:
        """Whether nobody takes, nothing is outstanding, and nothing is to happen by itself."""
        return not self.taken_from and not any(policy.is_watching for policy in self._policies) \
            and all(prefetcher.rests for prefetcher in self.prefetchers.values())

    # ---- the group as a whole

    def configure(self, settings: GroupSettings) -> None:
        """Other settings from now on; leases that run go on as they are."""
        self.settings = settings
        self._circuit = self._core.circuits.of(self.tenant, self.shared or self.name, settings.pausing)
        for policy in self._policies:
            policy.on_configured()
        self._judges_plain = any(policy.judges_plain for policy in self._policies)
        self.wake()

    def end(self) -> None:
        """Its queue, its topic or itself is deleted."""
        self.gone = True
        members, self._members = self._members, []
        pops, self._pops = self._pops, deque()
        self._turn.clear()
        for prefetcher in self.prefetchers.values():
            prefetcher.cursor.clear()
        for pop in pops:
            pop.fail(UnknownGroup(f"group {self.name!r} was deleted"))
        for member in members:
            member.end()


class Counts(NamedTuple):
    """A group at this second, in numbers."""

    ready: int
    leased: int
    waiting: int
    settled: int           # since the hub's start
    dead: int              # likewise
    expired: int           # likewise
    lost: int              # likewise: overtaken by retention, or damaged
    dropped: int           # likewise: gave way at the queue's limit
    oldest_ms: int         # when the oldest message that is not settled was appended; 0 where there is none


class DeadLetterAnswer:
    """Stands for an owner that waits for several frames: the one that ends the leases, and after it that in which the
    messages of each cursor are given up, or come again. What is given up is read before. The owner is answered once,
    when all of them are durable."""

    def __init__(self, core: Core, owner: Owner, token: object, cursors: int) -> None:
        self._core = core
        self._owner = owner
        self._token = token
        self._left = cursors + 1
        self._error: Exception | None = None

    def on_given_up(self) -> None:
        """One cursor's are in the pending frame. Raises Stopping."""
        self._core.answer(self, None)

    def on_stored(self, stored: list[Stored]) -> None:
        """Called by the kernel for each of the frames."""
        for answer in stored:
            assert self._left > 0, "every frame answers once"
            self._left -= 1
            self._error = self._error or answer.error
            if not self._left:
                tell(self._owner, [Stored(self._token, self._error, answer.append_ms, [])])
