"""Leased groups in the simulator: steps that publish, take and settle, and whether the hub kept its word.

Three groups read the same messages: one as they come, one in order per key, one a queue that is bound to them.
They belong to a tenant of their own, so that `checker` need not know of them. What each group said is kept in `fates`.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gatehouse.kernel.errors import ExpiredReceipt, KeptFull, StorageFull, UnknownTopic
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import GroupSettings, QueueSettings, Retry
from gatehouse.kernel.groups.handing_out import HoldLimit, Membership, Pop
from gatehouse.kernel.message import Fetched, Handle, Leased, Stored
from gatehouse.kernel.records.batch import NO_HEADERS, records_of
from gatehouse.kernel.state.state import Kind
from tests.simulation.checker import Broken
from tests.simulation.clients import LEASED
from tests.simulation.fates import ASKED, DONE, FOREVER_MS, OPEN, UNKNOWN, Fate, Fates

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

TENANT: Final = "leased"
TOPIC: Final = LEASED[:-1]
BOX: Final = "box"
GRAVES: Final = "graves"
SETTINGS: Final = {
    "plain": GroupSettings(invisible_ms=2_000, max_attempts=0, retry=Retry(delays_ms=(300, 4_000))),
    "ordered": GroupSettings(invisible_ms=2_000, ordered=True, max_attempts=4, retry=Retry(delays_ms=(500,))),
}
LETTERS: Final = {"plain": "$dead-letters/plain", "ordered": "$dead-letters/ordered", BOX: GRAVES}
NAMES: Final = ("plain", "ordered", BOX)
BOX_SETTINGS: Final = QueueSettings(max_attempts=6, dead_letter=f"queue:{GRAVES}")
INVISIBLE_MS: Final = (500, 3_000, 20_000)
DELAYS_MS: Final = (None, 0, 0, 700, 15_000)
MEMBERS_MAX: Final = 3
HOLD_MS: Final = 5_000                  # of every other member: then it is told, and leaves
DRAINED_MS: Final = 700_000             # longer than every lease, wait and retry
PLENTY_BYTES: Final = 1 << 60           # as on a disk with space
SETTLED_MS: Final = 1_000               # by then what nobody waits for is written down
ROUNDS: Final = 60


class Told:
    """The owner of one call: what to do with its answer, in one life of the hub."""

    def __init__(self, then: Callable[[bool], None]) -> None:
        self._then = then

    def on_stored(self, stored: list[Stored]) -> None:
        for answer in stored:
            if answer.error is not None and not isinstance(answer.error, StorageFull):
                raise Broken(f"refused for no good reason: {answer.error!r}")
            self._then(answer.error is None)


class Sent:
    """One message for the groups."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.stored = False                     # said to be
        self.refused = False
        self.boxed = False                      # the queue was bound when it was sent


class Member:
    def __init__(self, leasing: Leasing, name: str, number: int) -> None:
        self._leasing = leasing
        self.name = name
        self.number = number
        self.membership: Membership | None = None

    def on_leased(self, messages: list[Leased]) -> None:
        for message in messages:
            self._leasing.take(self.name, message, FOREVER_MS, self.number)

    def take_back(self, handles: list[Handle]) -> list[Handle]:
        """The group's invisible time is over: others may have some of it, and it keeps the rest."""
        back = [handle for handle in handles if handle[1] % 3]
        self._leasing.give_back(self, back)
        return back

    def on_overdue(self) -> None:
        """It has held something for too long."""
        self._leasing.leave(self, 0)

    def on_gone(self) -> None:
        """Its partition or topic was to be made, and a full disk has refused that."""
        self._leasing.gone(self)


class Leasing:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.sent: list[Sent] = []
        self.fates = {name: Fates(name, ordered=name == "ordered") for name in NAMES}
        self._members: list[Member] = []
        self._pops: list[Pop] = []
        self._numbers = 0

    @property
    def _now_ms(self) -> int:
        return self._simulation.hub.world.loop.now_ms()

    @property
    def _kernel(self) -> Any:
        return self._simulation.hub.kernel

    def crashed(self) -> None:
        self._members.clear()
        self._pops.clear()
        for fates in self.fates.values():
            fates.crashed()

    def _group(self, name: str) -> LeasedGroup | None:
        kernel = self._kernel
        if name == BOX:
            return kernel.groups.queue_group(self._box())  # type: ignore[no-any-return]
        if kernel.groups.settings(name, TENANT) != SETTINGS[name]:
            kernel.groups.define(name, SETTINGS[name], TENANT)
        try:
            return kernel.groups.group(name, TOPIC, TENANT)  # type: ignore[no-any-return]
        except UnknownTopic:
            return None

    def _box(self) -> Any:
        """Made and bound in one frame, whenever it is not there."""
        kernel = self._kernel
        box = kernel.groups.queue(BOX, TENANT)
        if box is None:
            kernel.groups.declare_queue(GRAVES, None, TENANT)
            box = kernel.groups.declare_queue(BOX, BOX_SETTINGS, TENANT)
            kernel.groups.bind(f"{LEASED}#", box)
        return box

    # ---- steps

    def send_work(self, key: int, count: int, size: int, *_: int) -> None:
        box = self._box()
        batch = [Sent(len(self.sent) + i) for i in range(1 + count % 9)]
        self.sent += batch
        placement = self._kernel.place(f"{LEASED}k{key % 4}", tenant=TENANT)
        padding = b"x" * (10, 10, 100, 3_000)[size % 4]

        def answered(good: bool) -> None:
            for one in batch:
                one.stored, one.refused = good, not good

        try:
            self._kernel.append([(placement, b"%d:" % one.number + padding, NO_HEADERS, 1, 0) for one in batch],
                                Told(answered))
        except KeptFull:
            answered(False)
        for one in batch:
            one.boxed = box.first_partition_id in placement.also

    def pop_work(self, which: int, count: int, invisible: int, *_: int) -> None:
        name, asked_ms = NAMES[which % len(NAMES)], self._now_ms
        invisible_ms = INVISIBLE_MS[invisible % len(INVISIBLE_MS)]
        group = self._group(name)
        if group is None:
            return

        def on_popped(messages: list[Leased]) -> None:
            for message in messages:
                self.take(name, message, asked_ms + invisible_ms, 0)

        self._pops.append(group.pop(1 + count % 20, invisible_ms, on_popped))
        self._pops = [pop for pop in self._pops if not pop.done]
        if len(self._pops) > MEMBERS_MAX:
            self._pops[0].on_time()

    def join_work(self, which: int, credit: int, *_: int) -> None:
        name = NAMES[which % len(NAMES)]
        group = self._group(name)
        if group is not None and len(self._members) < MEMBERS_MAX:
            self._numbers += 1
            member = Member(self, name, self._numbers)
            self._members.append(member)
            take_back = member.take_back if credit % 4 == 1 else None
            hold = HoldLimit(HOLD_MS, member.on_overdue, take_back) if credit % 2 else None
            member.membership = group.join(member, 1 + credit % 10, hold=hold)

    def give_back(self, member: Member, handles: list[Handle]) -> None:
        """These are not the member's any more."""
        places = {(handle[0][0], handle[1]) for handle in handles}
        for fate in self.fates[member.name].all.values():
            if fate.place in places and fate.member == member.number:
                fate.let_go()

    def leave_work(self, which: int, *_: int) -> None:
        if self._members:
            self.leave(self._members[which % len(self._members)], (0, None)[which // MEMBERS_MAX % 2])

    def leave(self, member: Member, delay_ms: int | None) -> None:
        """A member goes; what it holds comes again."""
        assert member.membership is not None
        self._members.remove(member)
        self.fates[member.name].left(member.number)
        member.membership.leave(delay_ms)

    def gone(self, member: Member) -> None:
        there = member.name != BOX and self._kernel._topics.get(TOPIC, TENANT) is not None
        if there or self._simulation.hub.disk.space_bytes == PLENTY_BYTES and not self._refused:
            raise Broken(f"{member.name} was deleted by nobody")
        self._members.remove(member)
        self.fates[member.name].left(member.number)

    @property
    def _refused(self) -> bool:
        return bool(self._kernel.statistics()["refused_flushes_total"])

    def more_credit(self, which: int, credit: int, *_: int) -> None:
        if self._members:
            membership = self._members[which % len(self._members)].membership
            assert membership is not None
            membership.add_credit(1 + credit % 5)

    def ack_work(self, which: int, count: int, first: int, *_: int) -> None:
        self._settle("ack", which, count, first)

    def reject_work(self, which: int, first: int, *_: int) -> None:
        self._settle("reject", which, 1, first)

    def release_work(self, which: int, count: int, first: int, delay: int) -> None:
        delay_ms = DELAYS_MS[delay % len(DELAYS_MS)]
        fates = self._some(which, count, first)

        def answered(good: bool) -> None:
            for fate, handle in asked:
                if fate.handle == handle and not fate.until_ms and fate.state == OPEN:
                    fate.not_before_ms = asked_ms + (delay_ms or 0) if good else 0

        asked_ms = self._now_ms
        asked = [(fate, fate.handle) for fate in fates]
        for fate in fates:
            fate.let_go()
        self._call(which, "release", fates, delay_ms, owner=Told(answered))

    def extend_work(self, which: int, count: int, first: int, invisible: int) -> None:
        until_ms = self._now_ms + INVISIBLE_MS[invisible % len(INVISIBLE_MS)]
        fates = self._some(which, count, first)

        def answered(good: bool) -> None:
            for fate, handle, ends in asked:
                if good and fate.handle == handle and fate.ends == ends and fate.state == OPEN:
                    fate.until_ms = max(fate.until_ms, until_ms)

        for fate in fates:
            if fate.member:                     # until that is stored it may be as if nobody had it
                fate.let_go()
            fate.until_ms = min(fate.until_ms, until_ms)
            fate.ends += 1                      # answers to what was asked before say nothing any more
        asked = [(fate, fate.handle, fate.ends) for fate in fates]
        self._call(which, "extend", fates, until_ms - self._now_ms, owner=Told(answered))

    # ---- how they do it

    def take(self, name: str, message: Leased, until_ms: int, member: int) -> None:
        """A message was handed out."""
        try:
            one = self.sent[int((message[6] or b"").partition(b":")[0])]
        except (ValueError, IndexError):
            raise Broken(f"invented: {message[6]!r}") from None
        if one.refused:
            raise Broken(f"invented: {one.number} was refused, and {name} hands it out")
        self.fates[name].handed_out(message, one.number, self._now_ms, until_ms, member)

    def _some(self, which: int, count: int, first: int) -> list[Fate]:
        """Messages whose leases run still."""
        leased = [fate for fate in self.fates[NAMES[which % len(NAMES)]].all.values()
                  if fate.state == OPEN and fate.until_ms > self._now_ms]
        return [leased[(first + i) % len(leased)] for i in range(min(1 + count % 12, len(leased)))]

    def _settle(self, verb: str, which: int, count: int, first: int) -> None:
        fates = self._some(which, count, first)

        def answered(good: bool) -> None:
            for fate in fates:
                if fate.state == ASKED:
                    fate.state = done if good else OPEN

        done = DONE if verb == "ack" else UNKNOWN         # buried in a later frame: a crash before brings it back
        for fate in fates:
            fate.state = ASKED
            fate.let_go()
        self._call(which, verb, fates, owner=Told(answered))

    def _call(self, which: int, verb: str, fates: list[Fate], *numbers: int | None, owner: Told) -> None:
        """Handles whose leases run must be good."""
        group = self._group(NAMES[which % len(NAMES)])
        if group is None or not fates:
            return
        handles = []
        for fate in fates:
            assert fate.handle is not None
            found = self._kernel.groups.find(TENANT, NAMES[which % len(NAMES)], *fate.handle)
            if found is None or found[0] is not group:
                raise Broken(f"refused: {fate.number} has the handle {fate.handle}, and nobody knows it")
            handles.append(found[1])
        for fate, error in zip(fates, getattr(group, verb)(handles, *numbers, owner=owner), strict=True):
            if error is not None:
                raise Broken(f"refused: {verb} of {fate.number} with {fate.handle}: {error!r}")
        stale = [(line, offset, attempt + 1) for line, offset, attempt in handles[:1]]
        if not isinstance(group.ack(stale)[0], ExpiredReceipt):
            raise Broken(f"a lease that nobody has was acked: {stale}")

    # ---- the end

    def drain(self) -> None:
        """Everything that is owed comes, and is acked; then what became of each message is known."""
        while self._members:
            self.leave_work(0)
        for _ in range(ROUNDS):
            before = sum(len(fates.all) + sum(fate.state == DONE for fate in fates.all.values())
                         for fates in self.fates.values())
            self._simulation.settle()
            for pop in self._pops:
                pop.on_time()
            self._simulation.hub.advance(DRAINED_MS)
            for which in range(len(NAMES)):
                self.pop_work(which, 19, 2)
                self._simulation.settle()
                self.ack_work(which, 11, 0)
                self.ack_work(which, 11, 0)
                self._simulation.settle()
            if before == sum(len(fates.all) + sum(fate.state == DONE for fate in fates.all.values())
                             for fates in self.fates.values()):
                break
        self._check_end()

    def _check_end(self) -> None:
        overtaken = self._simulation.plan.settings.retention_bytes < FOREVER_MS >> 11 \
            or self._simulation.plan.settings.retention_ms < FOREVER_MS >> 11
        for name, fates in self.fates.items():
            letters = self._letters(name)
            for one in self.sent:
                fate = fates.all.get(one.number)
                ended = fate is not None and fate.state in (DONE, UNKNOWN) or one.number in letters
                if ended or not one.stored or name == BOX and not one.boxed:
                    continue
                if name != BOX and overtaken and (fate is None or not fate.attempt):
                    continue                    # what nobody has had for sure is lost to a group that is overtaken
                raise Broken(f"lost: {name} owes {one.number}, {fate and vars(fate)}")
            counts = self._group(name)
            if counts is not None and counts.counts()[:3] != (0, 0, 0):
                raise Broken(f"{name} is drained and counts {counts.counts()}")

        self._simulation.hub.advance(SETTLED_MS)
        self._simulation.settle()
        pages = [key for key, _ in self._kernel._state.scan(Kind.LEASES)]
        if pages:
            raise Broken(f"everything is settled, and pages are left: {pages}")

    def _letters(self, name: str) -> set[int]:
        queue = self._kernel.groups.queue(LETTERS[name], TENANT)
        found: set[int] = set()
        if queue is None:
            return found
        at, high = 0, self._kernel.bounds(queue.first_partition_id)[1]
        while at < high:
            answers: list[Fetched] = []
            self._kernel.fetch([(queue.first_partition_id, at, 1 << 30)], 1 << 30, answers.extend, kept=True)
            world = self._simulation.hub.world
            while not answers and (world.reader_worker.step() or world.loop.step()):
                pass
            pieces = answers[0].pieces
            if answers[0].error is not None or not pieces:
                raise Broken(f"lost: dead letters of {name} from {at} to {high}: {answers[0].error!r}")
            for record in (record for piece in pieces for record in records_of(piece) if record[0] >= at):
                number = int((record[3] or b"").partition(b":")[0])
                if number in found:
                    raise Broken(f"doubled: {number} is a dead letter of {name} twice")
                found.add(number)
            at = pieces[-1].first_offset + pieces[-1].count
        return found
