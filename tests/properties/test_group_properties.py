"""Leased groups over the kernel against the plain model: any order of publishing, taking, ending leases, time, restarts
and full disks.

Three groups at once: one over a topic, one of a queue that is bound to the topic, one of a queue with
priorities. Whatever is handed out must be the model's to hand out, lowest offset first; and nothing that somebody wants
stays behind.
"""
from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gatehouse.kernel.errors import ExpiredReceipt, StorageFull, UnknownReceipt
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import GroupSettings, QueueSettings, Retry
from gatehouse.kernel.groups.handing_out import Prefetcher
from gatehouse.kernel.groups.policy import Ordering
from gatehouse.kernel.message import Leased, Message, Placement
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Kind
from tests.kernel.rig import Rig
from tests.properties.group_model import ACKED, DEAD, EXPIRED, LEASED, OPEN, READY, WAITING, GroupModel, Place
from tests.properties.group_taker import Taker
from tests.simulation.disk import SimDisk

DELAYS_MS = (1_000, 5_000)
STEP_MS = 50                    # a lease may last so much longer
LONG_MS = 100_000               # longer than any lease, wait or life of a message here
SPACE_BYTES = 1 << 40
WORK_PRIORITIES = 3
NAMES = ("billing", "copies", "work")

NamedHandle = tuple[str, int, int, int, int]
"""Group, then as in a handle's text: partition id, offset, attempt, epoch."""

some_name = st.sampled_from(NAMES)
some_number = st.integers(0, 1_000)
some_time = st.sampled_from([1_000, 5_000, 30_000])
some_delay = st.sampled_from([None, 0, 0, 1_000, 10_000])


class Subject:
    """One group: the real one is looked up by name, since every start makes it anew."""

    def __init__(self, name: str, model: GroupModel) -> None:
        self.name = name
        self.model = model
        self.members: list[Taker] = []
        self.pops: list[Taker] = []
        self.single_active = False


class GroupMachine(RuleBasedStateMachine):
    rig: Rig
    disk: SimDisk

    @initialize(partitions=st.sampled_from([1, 3]), ordered=st.booleans(), attempts=st.sampled_from([0, 0, 2, 3]),
                queue_attempts=st.sampled_from([0, 2]), single_active=st.booleans(),
                recent_bytes=st.sampled_from([1 << 10, 1 << 20]))
    def begin(self, partitions: int, ordered: bool, attempts: int, queue_attempts: int, single_active: bool,
              recent_bytes: int) -> None:
        self.disk = SimDisk(Random(1))
        self.rig = Rig(disk=self.disk, settings=KernelSettings(segment_bytes=1 << 20, recent_bytes=recent_bytes))
        kernel = self.rig.kernel
        kernel.background.stop()                   # what is read waits for workers, not for time
        kernel.create_topic("t", partitions=partitions)
        retry = Retry(delays_ms=DELAYS_MS)
        kernel.groups.define("billing", GroupSettings(ordered=ordered, max_attempts=attempts, retry=retry))
        settings = QueueSettings(max_attempts=queue_attempts, single_active=single_active)
        copies = kernel.groups.declare_queue("copies", settings)
        kernel.groups.declare_queue("work", QueueSettings(priorities=WORK_PRIORITIES))
        kernel.groups.bind("t/#", copies)
        kernel.groups.declare_queue("$dead-letters/billing")
        self.rig.run()
        self.subjects = {
            "billing": Subject("billing", GroupModel(ordered=ordered, max_attempts=attempts, delays_ms=DELAYS_MS)),
            "copies": Subject("copies", GroupModel(ordered=False, max_attempts=queue_attempts, delays_ms=())),
            "work": Subject("work", GroupModel(ordered=False, max_attempts=0, delays_ms=()))}
        self.subjects["copies"].single_active = single_active
        self.told: list[tuple[Taker, list[Leased]]] = []
        self.handles: list[NamedHandle] = []                     # of every lease there ever was
        self.sent = self.numbers = 0
        self.full = False
        self.unwritten: set[tuple[str, Place]] = set()           # leases of members that a full disk did not take
        self.before: dict[str, dict[Place, Any]] = {}
        self.ended: set[tuple[str, Place]] = set()               # members' leases that this step ended
        for name in NAMES:
            self.group(name)
        self.rig.run()

    # ---- looking

    @property
    def now_ms(self) -> int:
        return self.rig.world.loop.now_ms()

    def group(self, name: str) -> LeasedGroup:
        kernel = self.rig.kernel
        if name == "billing":
            return kernel.groups.group("billing", "t")
        queue = kernel.groups.queue(name)
        assert queue is not None
        return kernel.groups.queue_group(queue)

    @property
    def has_members(self) -> bool:
        return any(subject.members for subject in self.subjects.values())

    def is_settled(self, name: str, place: Place) -> bool:
        prefetcher = self.group(name).prefetchers.get(place[0])
        return prefetcher is not None and prefetcher.cursor.is_settled(place[1])

    # ---- one step

    def ready(self) -> None:
        """Before anything is done."""
        self.before = {name: subject.model.copy() for name, subject in self.subjects.items()}
        self.ended.clear()
        if self.full:
            self.disk.space_bytes = self.disk.used_bytes()

    def finish(self, *, in_order: bool = True) -> None:
        """Run until nothing moves, then compare. `in_order`: whatever came free did so before anybody was served."""
        refused = self.rig.kernel.statistics()["refused_flushes_total"]
        self.rig.run()
        refused = self.rig.kernel.statistics()["refused_flushes_total"] - refused
        if self.full:
            self.disk.space_bytes = SPACE_BYTES
            self.full = False
        if refused:
            self._undo()
        told, self.told = self.told, []
        self._take_told(told, in_order and not refused, stored=not refused)
        if refused:                                    # what could not be written down is tried again after a while
            self.advance(2_000)

    def _undo(self) -> None:
        """Nothing of this step was stored; members keep what they hold."""
        for name, subject in self.subjects.items():
            subject.model.messages = dict(self.before[name])
        for name, place in self.ended:
            self.subjects[name].model.end(place, READY)
            self._recount(name, place)
        for subject in self.subjects.values():
            subject.model.tick(self.now_ms)

    def _recount(self, name: str, place: Place) -> None:
        """That a member had this may have been forgotten, if it was never written down."""
        if (name, place) in self.unwritten:
            self.unwritten.remove((name, place))
            model, prefetcher = self.subjects[name].model, self.group(name).prefetchers.get(place[0])
            known = model.messages[place]
            attempt = 0
            if prefetcher is not None:                       # what is written down may be a lease that ended long ago
                attempt = prefetcher.cursor.attempt_of(place[1])
            assert known.attempt - 1 <= attempt <= known.attempt
            model.messages[place] = replace(known, attempt=attempt)

    def _take_told(self, told: list[tuple[Taker, list[Leased]]], in_order: bool, stored: bool) -> None:
        by_place: list[tuple[Place, Taker, Leased]] = []
        for taker, messages in told:
            ordered = self.subjects[taker.name].model.ordered
            last: dict[tuple[int, bytes | None], int] = {}           # by partition, or by partition and key
            for message in messages:
                partition_id = message[0][0]
                of = (partition_id, message[5] if ordered else None)
                assert last.get(of, -1) < message[1] or ordered and message[5] is None, f"{taker.name}: {messages}"
                last[of] = message[1]
                by_place.append(((partition_id, message[1]), taker, message))
        for place, taker, message in sorted(by_place, key=lambda one: one[0]):
            self._look_for_spent(self.subjects[taker.name])
            self._take(place, taker, message, stored)
        for subject in self.subjects.values():
            subject.pops = [taker for taker in subject.pops if not taker.answered]
            self._look_for_spent(subject)
            if in_order and not subject.model.ordered:
                self._check_lowest_first(subject, [place for place, taker, _ in by_place if taker.name == subject.name])

    def _take(self, place: Place, taker: Taker, message: Leased, stored: bool) -> None:
        model = self.subjects[taker.name].model
        known = model.messages[place]
        assert place in model.available(self.now_ms), f"{taker.name}: {place} was handed out and is {known}"
        assert message[2] == known.attempt + 1, (place, message, known)
        assert (message[5], message[6]) == (known.key, known.value)
        if not taker.keeps and not stored:             # it counted as acked, which could not be written down
            return
        until_ms = 0 if taker.pop is None else self.now_ms + taker.invisible_ms
        model.lease(place, until_ms, taker.number)
        if not stored:
            self.unwritten.add((taker.name, place))
        if not taker.keeps:
            model.end(place, ACKED)
        self.handles.append((taker.name, place[0], place[1], message[2], message[0][1]))

    def _look_for_spent(self, subject: Subject) -> None:
        """Messages that could not be handed out any more leave when somebody could have had them."""
        for place in subject.model.of(READY):
            spent = subject.model.spent(place, self.now_ms)
            if spent and self.is_settled(subject.name, place):
                subject.model.end(place, spent)

    def _check_lowest_first(self, subject: Subject, handed_out: list[Place]) -> None:
        left = subject.model.available(self.now_ms)
        for partition_id, offset in handed_out:
            better = [place for place in left if place[0] == partition_id and place[1] < offset
                      or subject.name == "work" and place[0] > partition_id]
            assert not better, f"{subject.name}: {(partition_id, offset)} was handed out and {better} are left"

    # ---- publishing

    @rule(key=st.sampled_from(["a", "b", "c", ""]), count=st.integers(1, 5), life_ms=st.sampled_from([0, 0, 0, 3_000]))
    def publish(self, key: str, count: int, life_ms: int) -> None:
        self.ready()
        placement = self.rig.kernel.place(f"t/{key}" if key else "t")
        stored = self._append(placement, count, life_ms)
        if stored is None:
            return
        bound = self.rig.kernel.groups.queue("copies")
        assert bound is not None
        copies = self.subjects["copies"].model
        for partition_id, offset, value, expires_ms in stored:
            self.subjects["billing"].model.enter((partition_id, offset), placement.key, value, expires_ms)
            copies.enter((bound.first_partition_id, len(copies.messages)), placement.key, value, expires_ms)
        self.finish()

    @rule(priority=st.integers(0, WORK_PRIORITIES), count=st.integers(1, 5), life_ms=st.sampled_from([0, 0, 3_000]))
    def send(self, priority: int, count: int, life_ms: int) -> None:
        self.ready()
        queue = self.rig.kernel.groups.queue("work")
        assert queue is not None
        stored = self._append(self.rig.kernel.place_queue(queue, priority), count, life_ms)
        for partition_id, offset, value, expires_ms in stored or []:
            assert partition_id == queue.partition_id(priority)
            self.subjects["work"].model.enter((partition_id, offset), None, value, expires_ms)
        if stored is not None:
            self.finish()

    def _append(self, placement: Placement, count: int, life_ms: int) -> list[tuple[int, int, bytes, int]] | None:
        """Partition id, offset, value, expiry of each; None where the disk is full: the step is over."""
        expires_ms = self.now_ms + life_ms if life_ms else 0
        headers = encode_headers([(b"expires-at", b"%d" % expires_ms)] if life_ms else [])
        values = [b"%d" % (self.sent + i) for i in range(count)]
        self.sent += count
        messages: list[Message] = [(placement, value, headers, 1, 0) for value in values]
        self.rig.kernel.append(messages, self.rig.witness, positions=True)
        if self.full:
            self.finish()
            assert isinstance(self.rig.witness.stored[-1].error, StorageFull)
            return None
        self.rig.run()
        answer = self.rig.witness.stored[-1]
        assert answer.error is None
        return [(partition_id, offset, value, expires_ms)
                for (partition_id, offset, _), value in zip(answer.positions, values, strict=True)]

    # ---- taking

    @rule(name=some_name, count=st.integers(1, 8), invisible_ms=some_time, waits=st.sampled_from([False, False, True]))
    def pop(self, name: str, count: int, invisible_ms: int, waits: bool) -> None:
        self.ready()
        self.numbers += 1
        subject = self.subjects[name]
        taker = Taker(self, name, self.numbers)
        taker.invisible_ms = invisible_ms
        taker.pop = self.group(name).pop(count, invisible_ms, taker.on_popped)
        subject.pops.append(taker)
        self.finish()
        if not taker.answered and not waits:
            if count % 2:
                taker.pop.cancel()
            else:
                taker.pop.on_time()
                assert taker.answered
            self.told.clear()
            subject.pops.remove(taker)

    @rule(name=some_name, credit=st.integers(1, 6), keeps=st.sampled_from([True, True, False]))
    def join(self, name: str, credit: int, keeps: bool) -> None:
        if len(self.subjects[name].members) >= 3:
            return
        self.ready()
        self.numbers += 1
        taker = Taker(self, name, self.numbers, keeps)
        taker.membership = self.group(name).join(taker, credit, keeps=keeps)
        self.subjects[name].members.append(taker)
        self.finish()

    @precondition(lambda self: self.has_members)
    @rule(name=some_name, which=some_number, credit=st.integers(1, 6))
    def add_credit(self, name: str, which: int, credit: int) -> None:
        members = self.subjects[name].members
        if members:
            self.ready()
            membership = members[which % len(members)].membership
            assert membership is not None
            membership.add_credit(credit)
            self.finish()

    @precondition(lambda self: self.has_members)
    @rule(name=some_name, which=some_number, delay_ms=st.sampled_from([0, None]))
    def leave(self, name: str, which: int, delay_ms: int | None = 0) -> None:
        subject = self.subjects[name]
        if not subject.model.delays_ms:          # a queue's own retries wait for a time that is drawn by lot
            delay_ms = 0
        if subject.members:
            self.ready()
            taker = subject.members.pop(which % len(subject.members))
            self.ended.update((name, place) for place, known in subject.model.messages.items()
                              if known.holder == taker.number)
            subject.model.leave(taker.number, self.now_ms, delay_ms)
            assert taker.membership is not None
            taker.membership.leave(delay_ms)
            self.finish()

    # ---- ending leases

    def some_handles(self, name: str, which: int, count: int) -> list[NamedHandle]:
        """Handles of this group, most of them good, some of leases that are over, one perhaps twice."""
        model = self.subjects[name].model
        mine = [one for one in self.handles if one[0] == name]
        good = [one for one in mine if model.is_lease((one[1], one[2]), one[3])]
        pool = good or mine
        found = [pool[(which + i * (1 + which % 3)) % len(pool)] for i in range(min(count, len(pool)))]
        return found + mine[which % 5:which % 5 + 1]

    def _end(self, verb: str, name: str, which: int, count: int, *numbers: Any) -> None:
        self.ready()
        model = self.subjects[name].model
        group = self.group(name)
        handles, found = [], []
        for handle in self.some_handles(name, which, count):
            known = self.rig.kernel.groups.find("/", *handle)
            if known is None:             # of a member that was handed it just before the hub ended
                assert not model.is_lease((handle[1], handle[2]), handle[3])
                continue
            assert known[0] is group
            handles.append(handle)
            found.append(known[1])
        good = [model.is_lease((one[1], one[2]), one[3]) for one in handles]
        answers = getattr(group, verb)(found, *numbers, owner=self.rig.witness)
        for handle, answer, is_good in zip(handles, answers, good, strict=True):
            assert answer is None if is_good else isinstance(answer, ExpiredReceipt), (handle, answer)
        places = {(one[1], one[2]) for one, is_good in zip(handles, good, strict=True) if is_good}
        self.ended.update((name, place) for place in places if not model.messages[place].until_ms)
        for place in sorted(places):
            if verb == "ack":
                model.end(place, ACKED)
            elif verb == "reject":
                model.end(place, DEAD)
            elif verb == "release":
                model.release(place, self.now_ms, *numbers)
            else:
                model.extend(place, self.now_ms + numbers[0])
        self.finish()

    @precondition(lambda self: self.handles)
    @rule(name=some_name, which=some_number, count=st.integers(1, 8))
    def ack(self, name: str, which: int, count: int) -> None:
        self._end("ack", name, which, count)

    @precondition(lambda self: self.handles)
    @rule(name=some_name, which=some_number, count=st.integers(1, 8), delay_ms=some_delay)
    def release(self, name: str, which: int, count: int, delay_ms: int | None) -> None:
        if delay_ms is None and name != "billing":               # a partition's own retry jitters
            delay_ms = 2_000
        self._end("release", name, which, count, delay_ms)

    @precondition(lambda self: self.handles)
    @rule(name=some_name, which=some_number, count=st.integers(1, 4), invisible_ms=some_time)
    def extend(self, name: str, which: int, count: int, invisible_ms: int) -> None:
        self._end("extend", name, which, count, invisible_ms)

    @precondition(lambda self: self.handles)
    @rule(name=some_name, which=some_number, count=st.integers(1, 2))
    def reject(self, name: str, which: int, count: int) -> None:
        self._end("reject", name, which, count)

    @precondition(lambda self: self.handles)
    @rule(name=some_name, other=some_name, which=some_number)
    def use_the_handle_of_another(self, name: str, other: str, which: int) -> None:
        mine = [one for one in self.handles if one[0] == name]
        if not mine or name == other:
            return
        known = self.rig.kernel.groups.find("/", *mine[which % len(mine)])
        if known is None:
            return
        group = self.group(other)
        for refused in (group.ack([known[1]]), group.release([known[1]], 0), group.reject([known[1]]),
                        group.extend([known[1]], 1_000)):
            assert isinstance(refused[0], UnknownReceipt)

    # ---- time, crashes, the disk

    @rule(by_ms=st.sampled_from([50, 1_000, 3_000, 20_000]))
    def advance(self, by_ms: int) -> None:
        self.ready()
        self.rig.world.loop.advance(by_ms)
        for subject in self.subjects.values():
            subject.model.tick(self.now_ms)
        self.finish(in_order=False)

    @rule(lose_index=st.booleans())
    def restart(self, lose_index: bool) -> None:
        self.full = False
        self.rig.restart(lose_index=lose_index)
        self.rig.kernel.background.stop()
        self.told.clear()
        for name, subject in self.subjects.items():
            for place in subject.model.of(LEASED):
                if not subject.model.messages[place].until_ms:
                    self._recount(name, place)
            subject.members.clear()
            subject.pops.clear()
            subject.model.restart()
            subject.model.tick(self.now_ms)
        self.unwritten.clear()
        self.rig.world.advance(STEP_MS)
        self.rig.world.advance(0)
        for subject in self.subjects.values():
            subject.model.tick(self.now_ms)
        self.ready()
        self.finish(in_order=False)

    @precondition(lambda self: not self.full)
    @rule()
    def fill_the_disk(self) -> None:
        """For the next step."""
        self.full = True

    # ---- what always holds

    @invariant()
    def nobody_who_wants_is_left_waiting(self) -> None:
        for subject in self.subjects.values():
            active = subject.members[:1] if subject.single_active else subject.members
            hungry = subject.pops or any(one.membership is not None and one.membership.credit > 0 for one in active)
            left = subject.model.free()
            assert not hungry or not left, f"{subject.name}: {left} are not handed out"

    @invariant()
    def the_counts_agree(self) -> None:
        for name, subject in self.subjects.items():
            model, counts = subject.model, self.group(name).counts()
            assert (counts.leased, counts.waiting) == (len(model.of(LEASED)), len(model.of(WAITING))), name
            assert counts.ready == len(model.of(READY)), f"{name}: {counts} and {model.of(READY)}"
            assert counts.lost == 0

    # ---- the end

    def teardown(self) -> None:
        if not hasattr(self, "subjects"):
            return
        self.full, self.disk.space_bytes = False, SPACE_BYTES          # a step that failed leaves it full
        for name, subject in self.subjects.items():
            while subject.members:
                self.leave(name, 0)
        self.advance(LONG_MS)
        for _ in range(self.sent):               # an ordered group gives one message of a key at a time
            if not any(subject.model.of(*OPEN) for subject in self.subjects.values()):
                break
            for name in NAMES:
                self.pop(name, 8, 1_000, False)
                self.ack(name, 0, 8)
        self._check_end()
        self.restart(True)
        self.the_counts_agree()

    def _keys_are_free(self, name: str, prefetcher: Prefetcher) -> bool:
        orderings = [policy for policy in self.group(name).policies if isinstance(policy, Ordering)]
        assert len(orderings) == (self.group(name).queue is None)
        return all(ordering.keys_of(prefetcher).is_empty for ordering in orderings)

    def _check_end(self) -> None:
        """Everything has ended one way; dead letters are where they belong; nothing is remembered of the rest."""
        for name, subject in self.subjects.items():
            assert not subject.model.of(*OPEN), (name, subject.model.of(*OPEN))
            for prefetcher in self.group(name).prefetchers.values():
                line = prefetcher.cursor
                assert (line._settled, line._out, line._tries, line._waiting, line._again, line._stored) == \
                    ({}, {}, {}, {}, [], set()), name
                assert not prefetcher._aside and self._keys_are_free(name, prefetcher)
        assert not list(self.rig.kernel._state.scan(Kind.LEASES))
        billing = self.subjects["billing"].model
        queue = self.rig.kernel.groups.queue("$dead-letters/billing")
        assert queue is not None
        letters = [record[3] or b"" for record in self.rig.read_partition(queue.first_partition_id)]
        kept = [known.value for known in billing.messages.values()
                if known.state == EXPIRED or known.state == DEAD and not known.expires_ms]
        may_expire_there = {known.value for known in billing.messages.values() if known.state == DEAD}
        assert len(letters) == len(set(letters))
        assert set(kept) <= set(letters) <= set(kept) | may_expire_there


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(max_examples=50, stateful_step_count=60, deadline=None,
                               suppress_health_check=[HealthCheck.too_slow])
