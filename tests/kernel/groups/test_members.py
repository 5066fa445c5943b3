"""What doors ask of members beyond plain groups: shared budgets, retiring, one message at once, purging, lazy notes."""
from __future__ import annotations

import marshal
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from gatehouse.kernel.groups.group import LINGER_MS, LINGERING_MAX, ROUND_BYTES, LeasedGroup
from gatehouse.kernel.groups.group_settings import GroupSettings, QueueSettings
from gatehouse.kernel.groups.handing_out import Budget
from gatehouse.kernel.groups.leasing import LAZY_MS
from gatehouse.kernel.message import Leased
from gatehouse.kernel.settings import KernelSettings
from tests.kernel.groups.test_groups import Taker, handles, join, pop, send
from tests.kernel.rig import Rig
from tests.simulation.disk import SimDisk


def test_members_that_share_a_budget_are_handed_no_more_than_it() -> None:
    rig = Rig()
    queues = [rig.kernel.groups.declare_queue(name) for name in ("a", "b")]
    budget = Budget(3)
    takers = [Taker() for _ in queues]
    members = [rig.kernel.groups.queue_group(queue).join(taker, 10, budget=budget)
               for queue, taker in zip(queues, takers, strict=True)]
    for queue in queues:
        send(rig, queue, b"1", b"2", b"3", b"4")
    rig.run()
    assert sum(len(taker.got) for taker in takers) == 3
    budget.left = 4
    for member in members:
        member.add_credit(0)
    rig.run()
    assert sum(len(taker.got) for taker in takers) == 7


def test_two_members_of_one_group_may_share_a_budget() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("a")
    group = rig.kernel.groups.queue_group(queue)
    takers = [Taker(), Taker()]
    budget = Budget(3)
    members = [group.join(taker, 10, budget=budget) for taker in takers]
    send(rig, queue, *[b"%d" % n for n in range(6)])
    assert sum(len(taker.got) for taker in takers) == 3
    assert group.counts().ready == 3
    budget.left = 10
    members[0].add_credit(0)
    rig.run()
    assert sorted(value for taker in takers for value in taker.values) == [b"%d" % n for n in range(6)]


def test_a_member_that_retires_keeps_what_it_holds() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("a")
    group = rig.kernel.groups.queue_group(queue)
    first, membership = join(rig, group)
    send(rig, queue, b"1", b"2")
    membership.retire()
    send(rig, queue, b"3")
    second, _ = join(rig, group)
    assert (first.values, second.values) == ([b"1", b"2"], [b"3"])
    assert group.ack(handles(first.got[:1])) == [None]
    membership.leave()
    rig.run()
    assert second.values == [b"3", b"2"]


def test_a_member_with_much_credit_is_told_before_more_is_read_than_a_round_has() -> None:
    """It was given room for thousands of small messages, and large ones come: it says anew what it has room for."""
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("a")
    large = bytes(ROUND_BYTES // 2)

    class Full(Taker):
        def on_leased(self, messages):
            super().on_leased(messages)
            if sum(len(message[6] or b"") for message in self.got) >= len(large):
                membership.add_credit(-membership.credit)

    taker = Full()
    membership = rig.kernel.groups.queue_group(queue).join(taker, 8_000)
    send(rig, queue, *[large] * 12)
    rig.run()
    assert 1 <= len(taker.got) <= 3
    membership.add_credit(8_000)
    rig.run()
    assert 2 <= len(taker.got) <= 6


@pytest.mark.parametrize("pops", [False, True])
def test_a_group_that_wants_nothing_of_much_in_memory_gives_way(pops: bool) -> None:
    rig = Rig(settings=KernelSettings(default_partitions=1))
    for _ in range(100):
        rig.publish("orders/a", *[b"a value"] * 500)
    rig.kernel.groups.define("billing", GroupSettings(selector="unit = 'C'"))
    group = rig.kernel.groups.group("billing", "orders")
    taker = Taker()
    if pops:
        group.pop(10, 1_000, taker.on_leased)
    else:
        group.join(taker, 10)
    (prefetcher,) = group.prefetchers.values()
    steps = [0]
    while rig.world.loop.step():
        steps.append(prefetcher.cursor.next)
    assert max(after - before for before, after in pairwise(steps)) < 20_000
    rig.publish("orders/a", b"wanted", headers=[(b"unit", b"C")])
    assert taker.values == [b"wanted"]


def test_one_large_message_at_once_beside_others() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("a")
    send(rig, queue, *[bytes(2 * ROUND_BYTES)] * 3)
    taker = Taker()
    rig.kernel.groups.queue_group(queue).take_now(taker)
    rig.run()
    assert len(taker.got) == 1


def test_one_message_at_once_or_none() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("a")
    group = rig.kernel.groups.queue_group(queue)
    asked: list[list[bytes | None]] = []

    class Once(Taker):
        def on_leased(self, messages):
            super().on_leased(messages)
            asked.append(self.values)

    empty = Once()
    group.take_now(empty)
    assert asked == [[]]
    send(rig, queue, b"1", b"2")
    one = Once()
    group.take_now(one)
    rig.run()
    assert asked[1:] == [[b"1"]]
    assert group.counts()[:2] == (1, 1)
    assert group.ack(handles(one.got)) == [None]


@pytest.mark.parametrize("held", [True, False])
def test_a_purge_settles_what_nobody_holds(held: bool) -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("a")
    group = rig.kernel.groups.queue_group(queue)
    send(rig, queue, b"1", b"2", b"3")
    messages = pop(rig, group, 2)
    if not held:
        group.release(handles(messages), 0)
    assert group.purge() == (1 if held else 3)
    send(rig, queue, b"4")
    taker, _ = join(rig, group)
    assert taker.values == [b"4"]
    assert group.counts().leased == (3 if held else 1)


def test_lazy_notes_travel_with_the_next_frame_or_get_their_own(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    queue = rig.kernel.groups.declare_queue("a")
    group = rig.kernel.groups.queue_group(queue)
    taker = Taker()
    send(rig, queue, b"1", b"2")
    rig.run()
    flushes = rig.kernel.statistics()["flushes_total"]
    group.join(taker, 10, lazily=True)
    rig.run()
    assert taker.values == [b"1", b"2"]
    assert group.ack(handles(taker.got[:1]), lazily=True) == [None]
    rig.run()
    assert rig.kernel.statistics()["flushes_total"] == flushes
    rig.world.advance(LAZY_MS)
    assert rig.kernel.statistics()["flushes_total"] == flushes + 1
    group.ack(handles(taker.got[1:]), lazily=True)
    send(rig, queue, b"3")
    assert rig.kernel.statistics()["flushes_total"] == flushes + 2
    rig.restart()
    group = rig.kernel.groups.queue_group(rig.kernel.groups.queue("a"))
    again, _ = join(rig, group)
    assert again.values == [b"3"]


def test_what_is_given_back_again_and_again_shares_a_frame_and_is_counted(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    queue = rig.kernel.groups.declare_queue("a")
    group = rig.kernel.groups.queue_group(queue)
    taker = Taker()
    send(rig, queue, b"1")
    rig.run()
    flushes = rig.kernel.statistics()["flushes_total"]
    membership = group.join(taker, 1, lazily=True)
    rig.run()
    for _ in range(50):
        assert group.release(handles(taker.got[-1:]), 0) == [None]
        membership.add_credit(1)
        rig.run()
    assert [message[2] for message in taker.got] == list(range(1, 52))
    assert rig.kernel.statistics()["flushes_total"] == flushes
    rig.world.advance(LAZY_MS)
    assert rig.kernel.statistics()["flushes_total"] == flushes + 1
    rig.restart()
    again, _ = join(rig, rig.kernel.groups.queue_group(rig.kernel.groups.queue("a")))
    assert [message[2] for message in again.got] == [52]


def test_what_members_are_handed_is_plain_and_a_copy_of_a_handle_is_as_good() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work")
    group = rig.kernel.groups.queue_group(queue)
    send(rig, queue, b"1", b"2", b"3")
    messages = pop(rig, group)
    copies = marshal.loads(marshal.dumps(messages))
    assert copies == messages and copies[0] is not messages[0]
    assert group.ack(handles(copies)) == [None] * 3 and group.counts()[:3] == (0, 0, 0)


# ---- priorities of members

def join_ranked(rig: Rig, group, credit: int, priority: int):
    taker = Taker()
    return taker, group.join(taker, credit, priority=priority)


def test_a_member_of_a_lower_priority_is_handed_what_a_higher_one_has_no_room_for() -> None:
    rig = Rig()
    group = rig.kernel.groups.queue_group(rig.kernel.groups.declare_queue("a"))
    low, _ = join_ranked(rig, group, 10, 0)
    high, membership = join_ranked(rig, group, 2, 5)
    lowest, _ = join_ranked(rig, group, 10, -5)
    send(rig, rig.kernel.groups.queue("a"), b"1", b"2", b"3")
    assert (high.values, low.values, lowest.values) == ([b"1", b"2"], [b"3"], [])
    membership.add_credit(1)
    send(rig, rig.kernel.groups.queue("a"), b"4", b"5")
    assert (high.values[2:], low.values[1:], lowest.values) == ([b"4"], [b"5"], [])


def test_members_of_one_priority_share() -> None:
    rig = Rig()
    group = rig.kernel.groups.queue_group(rig.kernel.groups.declare_queue("a"))
    low, _ = join_ranked(rig, group, 10, 1)
    both = [join_ranked(rig, group, 10, 2)[0] for _ in range(2)]
    send(rig, rig.kernel.groups.queue("a"), *[b"%d" % n for n in range(6)])
    assert [len(taker.got) for taker in (*both, low)] == [3, 3, 0]


def test_one_that_takes_more_as_soon_as_it_is_told_is_never_full() -> None:
    rig = Rig()
    group = rig.kernel.groups.queue_group(rig.kernel.groups.declare_queue("a"))

    class Greedy(Taker):
        def on_leased(self, messages):
            super().on_leased(messages)
            membership.add_credit(len(messages))

    low, _ = join_ranked(rig, group, 10, 0)
    greedy = Greedy()
    membership = group.join(greedy, 2, priority=1)
    send(rig, rig.kernel.groups.queue("a"), *[b"%d" % n for n in range(7)])
    assert (len(greedy.got), low.got) == (7, [])


def test_the_active_one_is_the_first_of_the_highest_priority() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("a", QueueSettings(single_active=True))
    group = rig.kernel.groups.queue_group(queue)
    first, _ = join_ranked(rig, group, 10, 0)
    second, membership = join_ranked(rig, group, 10, 1)
    send(rig, queue, b"1")
    assert (first.values, second.values) == ([], [b"1"])
    membership.retire()
    send(rig, queue, b"2")
    assert (first.values, second.values) == ([b"2"], [b"1"])


def test_who_takes_one_message_comes_before_any_priority() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("a")
    group = rig.kernel.groups.queue_group(queue)
    high, membership = join_ranked(rig, group, 0, 9)
    send(rig, queue, b"1")
    one = Taker()
    group.take_now(one)
    membership.add_credit(1)
    rig.run()
    assert (one.values, high.values) == ([b"1"], [])


# ---- one message after the other

def reads_for(rig: Rig, queue) -> list[int]:
    """Counts the reads of a queue's partition from now on."""
    prefetcher = next(iter(rig.kernel.groups.queue_group(queue).prefetchers.values()))
    reads: list[int] = []
    fetch, recent = prefetcher.fetch, prefetcher.recent

    def counted(wants, max_bytes, on_done):
        reads.append(len(wants))
        fetch(wants, max_bytes, on_done)

    def counted_in_memory(partition_id, offset, max_bytes):
        pieces = recent(partition_id, offset, max_bytes)
        reads.extend([1] if pieces else [])
        return pieces

    prefetcher.fetch, prefetcher.recent = counted, counted_in_memory
    return reads


def test_what_was_read_for_one_message_is_there_for_the_next() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("a")
    group = rig.kernel.groups.queue_group(queue)
    send(rig, queue, *[b"%d" % n for n in range(50)])
    reads = reads_for(rig, queue)
    takers = [Taker() for _ in range(20)]
    for taker in takers:
        group.take_now(taker)
        rig.run()
    assert [taker.values for taker in takers] == [[b"%d" % n] for n in range(20)]
    assert len(reads) == 1
    assert group.counts().ready == 30
    rig.world.advance(LINGER_MS)
    rig.run()
    group.take_now(takers[0])
    rig.run()
    assert (len(reads), takers[0].values) == (2, [b"0", b"20"])


def test_a_queue_that_was_taken_from_once_leaves_memory_when_that_is_durable() -> None:
    rig = Rig()
    queues = [rig.kernel.groups.declare_queue(f"q{number}") for number in range(LINGERING_MAX + 3)]
    for queue in queues:
        send(rig, queue, b"1")
    takers = [Taker() for _ in queues]
    for queue, taker in zip(queues, takers, strict=True):
        rig.kernel.groups.queue_group(queue).take_now(taker)
        rig.run()
    assert all(taker.values == [b"1"] for taker in takers)
    settled, held, given_back = queues[-3:]
    rig.kernel.groups.queue_group(settled).ack(handles(takers[-3].got), lazily=True)
    rig.run()
    assert settled in [group.queue for group in rig.kernel.leasing.queues.in_memory()], "its frame is to come"
    rig.kernel.groups.queue_group(given_back).release(handles(takers[-1].got), 0)
    rig.world.advance(LAZY_MS)
    in_memory = [group.queue for group in rig.kernel.leasing.queues.in_memory()]
    assert settled not in in_memory and held in in_memory and given_back in in_memory
    again = Taker()
    rig.kernel.groups.queue_group(settled).take_now(again)
    rig.run()
    assert (again.values, rig.kernel.groups.queue_group(settled).counts().ready) == ([], 0)


def test_what_is_ready_is_counted_without_the_group() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("a", QueueSettings(priorities=3))
    rig.run()
    assert rig.kernel.groups.ready(queue) == 0
    placement = rig.kernel.place_queue(queue, 2)
    rig.kernel.append([(placement, b"1", b"\0", 3, 0)] * 3, rig.witness)
    assert rig.kernel.groups.ready(queue) == 3, "on their way in"
    send(rig, queue, b"4", priority=0)
    assert (rig.kernel.groups.ready(queue), rig.kernel.leasing.queues.in_memory()) == (4, [])
    assert len(pop(rig, rig.kernel.groups.queue_group(queue), 1)) == 1
    assert rig.kernel.groups.ready(queue) == 3


class Batches(Taker):
    """A member that remembers what it was told at once."""

    def __init__(self) -> None:
        super().__init__()
        self.told_at_once: list[list[bytes | None]] = []

    def on_leased(self, messages: list[Leased]) -> None:
        super().on_leased(messages)
        self.told_at_once.append([message[6] for message in messages])


def low_on_the_disk_and_high_in_memory() -> tuple[Rig, LeasedGroup]:
    rig = Rig(disk=SimDisk(Random(1)))
    send(rig, rig.kernel.groups.declare_queue("a", QueueSettings(priorities=3)), b"low")
    rig.restart()
    queue = rig.kernel.groups.queue("a")
    send(rig, queue, b"high", priority=2)
    return rig, rig.kernel.groups.queue_group(queue)


def test_by_priority_what_is_in_memory_is_told_with_what_is_read_at_once() -> None:
    rig, group = low_on_the_disk_and_high_in_memory()
    taker = Batches()
    group.join(taker, 10)
    rig.run()
    assert taker.told_at_once == [[b"high", b"low"]]


def test_by_priority_who_retires_while_something_is_read_is_told_before() -> None:
    rig, group = low_on_the_disk_and_high_in_memory()
    taker = Taker()
    membership = group.join(taker, 10)
    while rig.world.loop.step():       # and no job of a worker
        pass
    assert taker.values == []
    membership.retire()
    assert taker.values == [b"high"]
    rig.run()
    assert (taker.values, group.counts().ready, group.counts().leased) == ([b"high"], 1, 1)


def test_by_priority_who_leaves_while_something_is_read_is_told_of_nothing() -> None:
    rig, group = low_on_the_disk_and_high_in_memory()
    taker = Taker()
    membership = group.join(taker, 10)
    while rig.world.loop.step():
        pass
    membership.leave()
    membership.retire()
    rig.run()
    assert (taker.values, group.counts().ready, group.counts().leased) == ([], 2, 0)


def test_only_so_many_groups_keep_what_was_read() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("a")
    send(rig, queue, b"1", b"2")
    reads = reads_for(rig, queue)
    core = rig.kernel.groups.queue_group(queue)._core
    assert all(core.begin_lingering(LINGERING_MAX) for _ in range(LINGERING_MAX))
    for _ in range(2):
        rig.kernel.groups.queue_group(queue).take_now(Taker())
        rig.run()
    assert len(reads) >= 2


def test_what_was_read_does_not_outlive_a_purge() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("a")
    group = rig.kernel.groups.queue_group(queue)
    send(rig, queue, b"1", b"2", b"3")
    group.take_now(Taker())
    rig.run()
    assert group.purge() == 2
    send(rig, queue, b"4")
    one = Taker()
    group.take_now(one)
    rig.run()
    assert one.values == [b"4"]
