"""Members that hold messages and never say a word about them, and what comes again when they are ended."""
from __future__ import annotations

import pytest

from gatehouse.kernel.groups.dead_lettering import deaths_of
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import ASSIGNED, GroupSettings, QueueSettings, Retry
from gatehouse.kernel.groups.handing_out import HoldLimit, Membership
from gatehouse.kernel.groups.leasing import HOLD_STEP_MS
from gatehouse.kernel.message import Handle
from tests.kernel.groups.test_full_disk import FullRig
from tests.kernel.groups.test_groups import Taker, handles, join, pop, send, values
from tests.kernel.rig import Rig

HOLD_MS = 60_000


class Holder(Taker):
    """A member that is told when it holds a message for too long, and then leaves."""

    def __init__(self, group: LeasedGroup, *, leaves: bool = True) -> None:
        super().__init__()
        self.told = 0
        self.leaves = leaves
        self.membership: Membership = group.join(self, 100, hold=HoldLimit(HOLD_MS, self.on_overdue))

    def on_overdue(self) -> None:
        self.told += 1
        if self.leaves:
            self.membership.leave()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def work(rig: Rig) -> LeasedGroup:
    queue = rig.kernel.groups.declare_queue("work")
    send(rig, queue, b"1", b"2", b"3")
    return rig.kernel.groups.queue_group(queue)


# ---- the time to acknowledge

def test_a_member_that_never_acks_is_told_and_others_get_what_it_held(rig: Rig) -> None:
    group = work(rig)
    silent = Holder(group)
    rig.run()
    other, _ = join(rig, group)
    rig.world.advance(HOLD_MS - 1)
    assert (silent.told, other.values) == (0, [])
    rig.world.advance(HOLD_STEP_MS)
    assert (silent.told, other.values) == (1, [b"1", b"2", b"3"])
    assert [one[2] for one in other.got] == [2, 2, 2]


def test_who_acks_in_time_is_not_told(rig: Rig) -> None:
    group = work(rig)
    holder = Holder(group)
    rig.run()
    rig.world.advance(HOLD_MS - 1)
    group.ack(handles(holder.got))
    rig.world.advance(10 * HOLD_MS)
    assert holder.told == 0


def test_the_oldest_that_is_missing_counts_whatever_came_and_went_behind_it(rig: Rig) -> None:
    group = work(rig)
    holder = Holder(group, leaves=False)
    rig.run()
    group.ack(handles(holder.got[:2]))
    queue = rig.kernel.groups.queue("work")
    assert queue is not None
    for _ in range(5):
        rig.world.advance(HOLD_MS // 5)
        del holder.got[:]
        send(rig, queue, b"more")
        group.ack(handles(holder.got))
    rig.world.advance(HOLD_STEP_MS)
    assert holder.told == 1


def test_one_message_at_once_is_held_as_long(rig: Rig) -> None:
    group = work(rig)
    taker, told = Taker(), []
    group.take_now(taker, HoldLimit(HOLD_MS, lambda: told.append(True)))
    rig.run()
    assert taker.values == [b"1"]
    rig.world.advance(HOLD_MS + HOLD_STEP_MS)
    assert told == [True]


# ---- the group's invisible time

class Shower(Taker):
    """A member that gives back what it has held for the group's invisible time, but for what it keeps."""

    def __init__(self, group: LeasedGroup, keeps: tuple[bytes, ...] = (), hold_ms: int = HOLD_MS) -> None:
        super().__init__()
        self.keeps = keeps
        self.overdue = 0
        self.asked: list[list[int]] = []
        self.membership = group.join(self, 100, hold=HoldLimit(hold_ms, self.on_overdue, self.take_back))

    def take_back(self, handles: list[Handle]) -> list[Handle]:
        self.asked.append([handle[1] for handle in handles])
        kept = {one[1] for one in self.got if one[6] in self.keeps}
        return [handle for handle in handles if handle[1] not in kept]

    def on_overdue(self) -> None:
        self.overdue += 1


INVISIBLE_MS = GroupSettings().invisible_ms


def test_what_is_held_for_the_invisible_time_goes_to_another_member(rig: Rig) -> None:
    group = work(rig)
    silent = Shower(group, keeps=(b"2",))
    rig.run()
    other, _ = join(rig, group)
    rig.world.advance(INVISIBLE_MS - 1)
    assert (silent.asked, other.values) == ([], [])
    rig.world.advance(HOLD_STEP_MS)
    assert (len(silent.asked), silent.values) == (1, [b"1", b"2", b"3"])
    assert (other.values, [one[2] for one in other.got]) == ([b"1", b"3"], [2, 2])


def test_what_stays_is_held_for_as_long_as_the_limit_says(rig: Rig) -> None:
    group = work(rig)
    silent = Shower(group, keeps=(b"1", b"2", b"3"))
    rig.run()
    rig.world.advance(INVISIBLE_MS)
    rig.world.advance(HOLD_MS - INVISIBLE_MS - 1)
    assert silent.overdue == 0
    rig.world.advance(2 * HOLD_STEP_MS)
    assert (silent.overdue, len(silent.asked), group.counts().leased) == (1, 1, 3)


def test_what_stays_without_a_limit_stays(rig: Rig) -> None:
    group = work(rig)
    silent = Shower(group, keeps=(b"1", b"2", b"3"), hold_ms=0)
    rig.run()
    rig.world.advance(100 * HOLD_MS)
    assert (silent.overdue, len(silent.asked), group.counts().leased) == (0, 1, 3)


def test_a_receipt_from_before_settles_nothing(rig: Rig) -> None:
    group = work(rig)
    silent = Shower(group)
    rig.run()
    late = handles(silent.got)
    other, _ = join(rig, group)
    rig.world.advance(INVISIBLE_MS + HOLD_STEP_MS)
    assert all(group.ack(late)) and group.counts().leased == 3
    assert group.ack(handles(other.got)) == [None] * 3


def test_who_is_alone_is_handed_it_again(rig: Rig) -> None:
    group = work(rig)
    silent = Shower(group)
    rig.run()
    rig.world.advance(INVISIBLE_MS + HOLD_STEP_MS)
    assert [one[2] for one in silent.got] == [1, 1, 1, 2, 2, 2]


def test_another_has_it_whoevers_turn_it_is(rig: Rig) -> None:
    group = work(rig)
    silent = Shower(group)
    rig.run()
    others = [join(rig, group)[0] for _ in range(3)]
    rig.world.advance(INVISIBLE_MS + HOLD_STEP_MS)
    assert silent.values == [b"1", b"2", b"3"]
    assert sorted(value for other in others for value in other.values) == [b"1", b"2", b"3"]


def test_a_member_without_a_limit_is_left_alone(rig: Rig) -> None:
    group = work(rig)
    taker, _ = join(rig, group)
    rig.world.advance(1_000 * HOLD_MS)
    assert group.counts().leased == 3


def test_what_is_acked_leaves_no_deadline_behind(rig: Rig) -> None:
    group = work(rig)
    holder = Holder(group)
    rig.run()
    group.ack(handles(holder.got))
    deadlines = rig.kernel.leasing.core.deadlines
    assert not any(deadlines._steps.values())


def test_the_limit_holds_also_after_an_ack_that_the_disk_refused() -> None:
    rig = FullRig()
    rig.publish("orders/a", b"1", b"2")
    group = rig.kernel.groups.group("g", "orders")
    holder = Holder(group, leaves=False)
    rig.run()
    with rig.full():
        group.ack(handles(holder.got[:1]))
    assert group.counts().leased == 1
    rig.world.advance(HOLD_MS + HOLD_STEP_MS)
    assert holder.told == 1


# ---- when it comes again

def test_what_a_member_leaves_comes_again_as_the_groups_retry_says(rig: Rig) -> None:
    rig.kernel.groups.define("g", GroupSettings(retry=Retry((5_000, 20_000))))
    rig.publish("orders/a", b"1")
    group = rig.kernel.groups.group("g", "orders")
    for wait_ms in (5_000, 20_000):
        taker, membership = join(rig, group)
        assert taker.values == [b"1"]
        membership.leave(None)
        rig.run()
        rig.world.advance(wait_ms - 100)
        assert pop(rig, group, 1) == []
        rig.world.advance(200)
    assert values(pop(rig, group, 1)) == [b"1"]


def test_a_shared_filter_tries_again_and_gives_up_as_its_group_says(rig: Rig) -> None:
    rig.kernel.groups.define("g", GroupSettings(max_attempts=2, retry=Retry((7_000,))))
    taker = Taker()
    rig.kernel.groups.share("$share/g/plant/+/temp", taker, 10)
    rig.publish("plant/line1/temp", b"hot")
    group = rig.kernel.groups.shared_group("$share/g/plant/+/temp")
    group.release(handles(taker.got))
    rig.run()
    rig.world.advance(6_900)
    assert len(taker.got) == 1
    rig.world.advance(200)
    assert len(taker.got) == 2
    group.release(handles(taker.got[1:]))
    rig.run()
    letters = rig.kernel.groups.queue("$dead-letters/g")
    assert letters is not None
    (letter,) = pop(rig, rig.kernel.groups.queue_group(letters))
    (death,) = deaths_of(letter[7])
    assert (letter[6], death["reason"], death["group"], death["attempts"]) == (b"hot", "attempts", "g", 2)


def test_a_shared_filter_hears_of_other_settings(rig: Rig) -> None:
    taker = Taker()
    rig.kernel.groups.share("$share/g/plant/+/temp", taker, 10)
    group = rig.kernel.groups.shared_group("$share/g/plant/+/temp")
    assert group.settings.max_attempts == GroupSettings().max_attempts
    rig.kernel.groups.define("g", GroupSettings(max_attempts=3, dead_letters=False))
    assert (group.settings.max_attempts, group.settings.dead_letters) == (3, False)
    rig.run()
    rig.kernel.groups.delete("g")
    assert group.settings.max_attempts == GroupSettings().max_attempts
    rig.kernel.groups.define("g", GroupSettings(kind=ASSIGNED, max_attempts=9))
    assert group.settings.max_attempts == GroupSettings().max_attempts


def test_a_queue_of_another_name_has_no_group_to_ask(rig: Rig) -> None:
    rig.kernel.groups.define("work", GroupSettings(max_attempts=3))
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_attempts=7))
    assert rig.kernel.groups.queue_group(queue).settings.max_attempts == 7
