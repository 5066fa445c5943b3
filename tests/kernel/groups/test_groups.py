"""Leased groups over topics and queues: who gets what, and what a restart leaves of it."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.errors import (
    AssignedGroup,
    ExpiredReceipt,
    KernelError,
    MessageTooLarge,
    QueueExists,
    UnknownReceipt,
)
from gatehouse.kernel.groups.cursor import MAX_ATTEMPT, Lease
from gatehouse.kernel.groups.dead_lettering import deaths_of
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import GroupSettings, Queue, QueueSettings, Retry
from gatehouse.kernel.groups.handing_out import POP_BYTES, Membership
from gatehouse.kernel.groups.leasing import LAZY_MS
from gatehouse.kernel.message import Leased
from gatehouse.kernel.records.batch import CARRIED_HEADERS, read_headers
from gatehouse.kernel.settings import KernelSettings
from tests.kernel.rig import Rig


class Taker:
    """A member that remembers what it was given."""

    def __init__(self) -> None:
        self.got: list[Leased] = []
        self.gone = False

    def on_leased(self, messages: list[Leased]) -> None:
        self.got += messages

    def on_gone(self) -> None:
        self.gone = True

    @property
    def values(self) -> list[bytes | None]:
        return [one[6] for one in self.got]


def pop(rig: Rig, group: LeasedGroup, count: int = 32, invisible_ms: int = 30_000) -> list[Leased]:
    found: list[Leased] = []
    waiting = group.pop(count, invisible_ms, found.extend)
    rig.run()
    waiting.cancel()
    return found


def pop_all(rig: Rig, group: LeasedGroup, count: int) -> list[Leased]:
    """Up to so many, however large: by as many pops as that takes."""
    messages: list[Leased] = []
    while len(messages) < count and (more := pop(rig, group, count - len(messages))):
        messages += more
    return messages


def join(rig: Rig, group: LeasedGroup, credit: int = 100, *, keeps: bool = True) -> tuple[Taker, Membership]:
    taker = Taker()
    membership = group.join(taker, credit, keeps=keeps)
    rig.run()
    return taker, membership


def values(messages: list[Leased]) -> list[bytes | None]:
    return [one[6] for one in messages]


def handles(messages: list[Leased]) -> list[tuple[object, int, int]]:
    return [one[:3] for one in messages]


def send(rig: Rig, queue: Queue, *payloads: bytes, priority: int = 0) -> None:
    placement = rig.kernel.place_queue(queue, priority)
    rig.kernel.append([(placement, value, b"\0", 3, 0) for value in payloads], rig.witness)
    rig.run()


# ---- over a topic

def test_a_pop_takes_each_message_once() -> None:
    rig = Rig()
    rig.publish("orders/a", b"1", b"2", b"3")
    group = rig.kernel.groups.group("billing", "orders")
    first, second = pop(rig, group, 2), pop(rig, group, 2)
    assert values(first) + values(second) == [b"1", b"2", b"3"]
    assert pop(rig, group) == []


def test_a_pop_waits_for_what_comes() -> None:
    rig = Rig()
    rig.publish("orders/a", b"old")
    group = rig.kernel.groups.group("billing", "orders")
    found: list[Leased] = []
    pop(rig, group)
    group.pop(10, 1_000, found.extend)
    rig.run()
    assert found == []
    rig.publish("orders/b", b"new")
    assert values(found) == [b"new"]


def test_a_pop_takes_no_more_of_large_messages_than_it_may_hold() -> None:
    rig = Rig(settings=KernelSettings(max_message_bytes=2 * POP_BYTES))
    sizes = [POP_BYTES + 1, *[POP_BYTES // 4] * 9, *[1] * 9]
    for size in sizes:
        rig.publish("orders/a", b"x" * size)
    for name in ("from the disk", "from memory"):
        group = rig.kernel.groups.group(name, "orders")
        taken = [pop(rig, group, 100) for _ in range(8)]
        assert [len(value or b"") for messages in taken for value in values(messages)] == sizes
        assert all(len(b"".join([value or b"" for value in values(messages)[:-1]])) < POP_BYTES for messages in taken)
        assert len(taken[0]) == 1 and len(taken[1]) > 1


@pytest.mark.parametrize("hangs_up", [False, True])
def test_what_a_pop_has_when_it_ends_is_its_answer_or_ready_again(hangs_up: bool) -> None:
    rig = Rig(settings=KernelSettings(segment_bytes=1 << 20, default_partitions=2))
    addresses = {rig.publish(f"orders/{number}", b"old")[0][0]: f"orders/{number}" for number in range(20)}
    cold, hot = addresses.values()
    group = rig.kernel.groups.group("billing", "orders")
    group.ack(handles(pop(rig, group)))
    rig.publish(cold, b"cold")
    rig.restart()
    rig.publish(hot, b"hot")
    group = rig.kernel.groups.group("billing", "orders")
    found: list[Leased] = []
    asked = group.pop(10, 30_000, found.extend)
    while rig.world.loop.step():                     # the disk has not answered yet
        pass
    assert values(asked.leased) == [b"hot"]
    if hangs_up:
        asked.cancel()
    else:
        asked.on_time()
    rig.run()
    assert values(found) == ([] if hangs_up else [b"hot"])
    assert sorted(values(found + pop(rig, group)), key=str) == [b"cold", b"hot"]


def test_what_is_not_acked_comes_again_when_its_time_is_up_and_what_is_acked_never() -> None:
    rig = Rig()
    rig.publish("orders/a", b"1", b"2", b"3")
    group = rig.kernel.groups.group("billing", "orders")
    first = pop(rig, group, 3, 1_000)
    assert group.ack(handles(first[1:2]), rig.witness) == [None]
    rig.run()
    rig.world.advance(1_100)
    again = pop(rig, group)
    assert values(again) == [b"1", b"3"]
    assert [one[2] for one in again] == [2, 2]
    assert isinstance(group.ack(handles(first[:1]))[0], ExpiredReceipt)
    assert group.ack(handles(again)) == [None, None]
    rig.world.advance(60_000)
    assert pop(rig, group) == []


def test_extending_keeps_a_message_and_releasing_gives_it_back() -> None:
    rig = Rig()
    rig.publish("orders/a", b"1", b"2")
    group = rig.kernel.groups.group("billing", "orders")
    first = pop(rig, group, 2, 1_000)
    assert group.extend(handles(first[:1]), 10_000) == [None]
    assert group.release(handles(first[1:]), 0) == [None]
    rig.run()
    assert values(pop(rig, group)) == [b"2"]
    rig.world.advance(5_000)
    assert pop(rig, group) == []
    rig.world.advance(6_000)
    assert values(pop(rig, group)) == [b"1"]


def test_a_release_with_a_delay_waits() -> None:
    rig = Rig()
    rig.publish("orders/a", b"1")
    group = rig.kernel.groups.group("billing", "orders")
    group.release(handles(pop(rig, group)), 5_000)
    rig.run()
    assert group.counts()[:3] == (0, 0, 1)
    rig.world.advance(4_900)
    assert pop(rig, group) == []
    rig.world.advance(200)
    assert values(pop(rig, group)) == [b"1"]


def test_a_member_gets_what_its_credit_allows_and_leaves_what_it_holds() -> None:
    rig = Rig()
    rig.publish("orders/a", *[b"%d" % i for i in range(10)])
    group = rig.kernel.groups.group("billing", "orders")
    one, membership = join(rig, group, 4)
    two, _ = join(rig, group, 3)
    assert sorted(one.values + two.values) == [b"%d" % i for i in range(7)]
    group.ack(handles(one.got[:1]))
    membership.leave()
    three, _ = join(rig, group, 100)
    assert sorted(three.values) == sorted([*one.values[1:], b"7", b"8", b"9"])
    redelivered = [one[6] for one in three.got if one[2] == 2]
    assert redelivered == one.values[1:]


def test_members_that_come_together_share() -> None:
    rig = Rig()
    group = None
    rig.publish("orders/a", b"first")
    group = rig.kernel.groups.group("billing", "orders")
    takers = [join(rig, group)[0] for _ in range(3)]
    for n in range(10):
        rig.publish("orders/a", *[b"%d" % (n * 10 + i) for i in range(9)])
    counts = [len(taker.got) for taker in takers]
    assert sum(counts) == 91
    assert min(counts) >= 25


def test_members_and_pops_share_what_comes_one_by_one() -> None:
    """Who always waits in a long poll does not leave nothing for members that are handed messages as they come."""
    rig = Rig()
    rig.publish("orders/a", b"first")
    group = rig.kernel.groups.group("billing", "orders")
    popped = values(pop(rig, group))
    taker, _ = join(rig, group)
    for n in range(20):
        messages: list[Leased] = []
        waiting = group.pop(1, 30_000, messages.extend)
        rig.publish("orders/a", b"%d" % n)
        waiting.cancel()
        popped += values(messages)
    assert sorted(popped + taker.values) == sorted([b"first", *[b"%d" % n for n in range(20)]])
    assert len(taker.got) == len(popped) - 1 == 10


def test_a_burst_for_members_and_a_pop_reaches_both() -> None:
    rig = Rig()
    rig.publish("orders/a", b"first")
    group = rig.kernel.groups.group("billing", "orders")
    pop(rig, group)
    taker, membership = join(rig, group, 5)
    for burst in range(1, 3):
        messages: list[Leased] = []
        group.pop(10, 30_000, messages.extend)
        rig.publish("orders/a", *[b"%d" % n for n in range(15)])
        assert (len(messages), len(taker.got)) == (10, 5 * burst)
        membership.add_credit(5)


@pytest.mark.parametrize("lose_index", [False, True])
def test_leases_acks_and_attempts_are_there_after_a_restart(tmp_path: Path, lose_index: bool) -> None:
    rig = Rig(tmp_path)
    rig.publish("orders/a", *[b"%d" % i for i in range(6)])
    group = rig.kernel.groups.group("billing", "orders")
    mine = pop(rig, group, 3, 60_000)
    taker, _ = join(rig, group, 2)
    group.ack(handles(mine[1:2]), rig.witness)
    rig.run()
    text = rig.kernel.groups.handles("/", "billing").encode(mine[0][:3])
    rig.restart(lose_index=lose_index)
    group = rig.kernel.groups.group("billing", "orders")
    after = pop(rig, group)
    assert values(after) == [b"3", b"4", b"5"]                  # the member's are free again, the pop's are not
    assert [one[2] for one in after] == [2, 2, 1]
    found = rig.kernel.groups.find("/", "billing", *rig.kernel.groups.handles("/", "billing").decode(text))
    assert found is not None and found[0] is group
    assert group.ack([found[1]]) == [None]
    rig.run()
    rig.world.advance(61_000)
    assert values(pop(rig, group)) == [b"2", b"3", b"4", b"5"]


def test_a_forged_handle_and_another_groups_are_refused() -> None:
    rig = Rig()
    rig.publish("orders/a", b"1")
    one, two = rig.kernel.groups.group("one", "orders"), rig.kernel.groups.group("two", "orders")
    mine = pop(rig, one)
    assert isinstance(two.ack(handles(mine))[0], UnknownReceipt)
    text = rig.kernel.groups.handles("/", "one").encode(mine[0][:3])
    for wrong in (text[:-1], "x" + text[1:], "", "ä" * 48, text + "A"):
        with pytest.raises(UnknownReceipt):
            rig.kernel.groups.handles("/", "one").decode(wrong)
    with pytest.raises(UnknownReceipt):
        rig.kernel.groups.handles("/", "two").decode(text)
    assert one.ack(handles(mine)) == [None]


def test_after_its_attempts_a_message_is_a_dead_letter_with_its_history() -> None:
    rig = Rig()
    rig.kernel.groups.define("billing", GroupSettings(max_attempts=2, retry=Retry(delays_ms=(1_000,))))
    position = rig.publish("orders/a", b"poison", headers=[(b"color", b"red")])[0]
    group = rig.kernel.groups.group("billing", "orders")
    group.release(handles(pop(rig, group)))
    rig.run()
    assert pop(rig, group) == []
    rig.world.advance(1_100)
    group.release(handles(pop(rig, group)))
    rig.run()
    rig.world.advance(100_000)
    assert pop(rig, group) == []
    queue = rig.kernel.groups.queue("$dead-letters/billing")
    assert queue is not None
    dead = pop(rig, rig.kernel.groups.queue_group(queue))
    assert [(one[3], one[5], one[6]) for one in dead] == [(position[2], b"a", b"poison")]
    death = deaths_of(dead[0][7])
    assert [(one["reason"], one["attempts"], one["address"]) for one in death] == [("attempts", 2, "orders/a")]
    assert b"color" in dead[0][7]


def test_an_expired_message_is_not_handed_out() -> None:
    rig = Rig()
    soon = b"%d" % (rig.world.loop.now_ms() + 1_000)
    rig.publish("orders/a", b"1", headers=[(b"expires-at", soon)])
    rig.publish("orders/a", b"2")
    group = rig.kernel.groups.group("billing", "orders")
    rig.world.advance(2_000)
    assert values(pop(rig, group)) == [b"2"]
    assert group.counts().expired == 1


def test_a_key_is_handed_out_one_at_a_time_and_others_flow() -> None:
    rig = Rig()
    rig.kernel.create_topic("orders", partitions=1)
    rig.kernel.groups.define("billing", GroupSettings(ordered=True))
    for n in range(3):
        rig.publish("orders/a", b"a%d" % n)
        rig.publish("orders/b", b"b%d" % n)
    group = rig.kernel.groups.group("billing", "orders")
    first = pop(rig, group)
    assert values(first) == [b"a0", b"b0"]
    assert pop(rig, group) == []
    group.ack(handles(first[:1]))
    group.release(handles(first[1:]), 5_000)
    second = pop(rig, group)
    assert values(second) == [b"a1"]
    group.ack(handles(second))
    assert values(pop(rig, group)) == [b"a2"]
    rig.world.advance(6_000)
    third = pop(rig, group)
    assert values(third) == [b"b0"]
    group.ack(handles(third))
    assert values(pop(rig, group)) == [b"b1"]


def test_order_per_key_holds_over_a_restart(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.kernel.create_topic("orders", partitions=1)
    rig.kernel.groups.define("billing", GroupSettings(ordered=True))
    rig.publish("orders/a", b"a0", b"a1")
    rig.publish("orders/b", b"b0")
    group = rig.kernel.groups.group("billing", "orders")
    held = pop(rig, group, 1, 60_000)
    assert values(held) == [b"a0"]
    rig.restart()
    group = rig.kernel.groups.group("billing", "orders")
    assert values(pop(rig, group)) == [b"b0"]
    rig.world.advance(61_000)
    again = pop(rig, group)
    assert values(again) == [b"a0", b"b0"]
    group.ack(handles(again))
    assert values(pop(rig, group)) == [b"a1"]


def test_a_pop_on_a_group_that_commits_offsets_is_refused() -> None:
    rig = Rig()
    partition_id = rig.publish("orders/a", b"1")[0][0]
    rig.kernel.groups.commit_offsets("kafka", {partition_id: (1, b"")}, rig.witness)
    rig.run()
    with pytest.raises(AssignedGroup):
        rig.kernel.groups.group("kafka", "orders")


def test_a_group_that_starts_late_gets_what_comes_after() -> None:
    rig = Rig()
    rig.publish("orders/a", b"old")
    rig.kernel.groups.define("late", GroupSettings(start="latest"))
    group = rig.kernel.groups.group("late", "orders")
    rig.publish("orders/a", b"new")
    assert values(pop(rig, group)) == [b"new"]


@pytest.mark.parametrize("lose_index", [False, True])
def test_what_enters_an_empty_partition_while_nobody_takes_is_the_groups_over_a_restart(
        tmp_path: Path, lose_index: bool) -> None:
    """The group begins with what is new, and began before: what another key brings then is new, too."""
    rig = Rig(tmp_path)
    rig.publish("orders/0", b"old")
    rig.kernel.groups.define("late", GroupSettings(start="latest"))
    assert pop(rig, rig.kernel.groups.group("late", "orders")) == []
    rig.restart(lose_index=lose_index)
    sent = [b"%d" % i for i in range(20)]
    for i, value in enumerate(sent):
        rig.publish(f"orders/{i}", value)
    rig.restart(lose_index=lose_index)
    assert sorted(values(pop(rig, rig.kernel.groups.group("late", "orders"))), key=str) == sorted(sent, key=str)


def test_a_million_offsets_settled_in_any_order_leave_no_pages() -> None:
    rig = Rig()
    rig.kernel.create_topic("orders", partitions=1)
    rig.publish("orders/a", *[b"x"] * 3_000)
    group = rig.kernel.groups.group("billing", "orders")
    messages = pop(rig, group, 3_000)
    for part in (messages[1::2], messages[::2]):
        group.ack(handles(part))
        rig.run()
    cursor = next(iter(group.prefetchers.values())).cursor
    assert (cursor.committed, cursor._stored, cursor._settled, cursor.settled_ahead) == (3_000, set(), {}, 0)


# ---- queues

def test_a_queue_holds_what_is_sent_to_it_and_nothing_else_does(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    queue = rig.kernel.groups.declare_queue("work", QueueSettings())
    send(rig, queue, b"1", b"2")
    rig.restart()
    found = rig.kernel.groups.queue("work")
    assert found == queue
    group = rig.kernel.groups.queue_group(found)
    taker, _ = join(rig, group)
    assert taker.values == [b"1", b"2"]
    group.ack(handles(taker.got))
    rig.run()
    rig.restart()
    found = rig.kernel.groups.queue("work")
    assert found is not None
    assert pop(rig, rig.kernel.groups.queue_group(found)) == []
    assert rig.kernel.topics() == []


def test_a_bound_queue_gets_references_to_what_matches(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    hot, everything = rig.kernel.groups.declare_queue("hot"), rig.kernel.groups.declare_queue("everything")
    rig.kernel.groups.bind("plant/+/temp", hot)
    rig.kernel.groups.bind("plant/#", everything)
    for n in range(3):
        rig.publish(f"plant/cursor{n}/temp", b"t%d" % n)
        rig.publish(f"plant/cursor{n}/power", b"p%d" % n)
    rig.restart()
    names = {name: rig.kernel.groups.queue(name) for name in ("hot", "everything")}
    got = {name: pop(rig, rig.kernel.groups.queue_group(queue)) for name, queue in names.items() if queue is not None}
    assert values(got["hot"]) == [b"t0", b"t1", b"t2"]
    assert values(got["everything"]) == [b"t0", b"p0", b"t1", b"p1", b"t2", b"p2"]
    rig.publish("plant/line9/temp", b"late")
    assert values(pop(rig, rig.kernel.groups.queue_group(hot))) == [b"late"]
    assert sorted(value or b"" for value in rig.values("plant")) == [b"late", b"p0", b"p1", b"p2", b"t0", b"t1", b"t2"]


def test_interleaved_addresses_in_one_burst_reach_the_right_queues() -> None:
    rig = Rig()
    rig.kernel.create_topic("t", partitions=1)
    queues = [rig.kernel.groups.declare_queue(name) for name in ("a", "b")]
    rig.kernel.groups.bind("t/a", queues[0])
    rig.kernel.groups.bind("t/b", queues[1])
    rig.kernel.groups.bind("t/#", queues[1])
    places = {name: rig.kernel.place(f"t/{name}") for name in "abc"}
    rig.kernel.append([(places["abc"[n % 3]], b"%d" % n, b"\0", 1, 0) for n in range(30)], rig.witness)
    rig.run()
    assert values(pop(rig, rig.kernel.groups.queue_group(queues[0]))) == [b"%d" % n for n in range(0, 30, 3)]
    assert values(pop(rig, rig.kernel.groups.queue_group(queues[1]), 100)) == [b"%d" % n for n in range(30)]


def test_higher_priorities_are_served_first() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(priorities=10))
    for priority, value in ((0, b"low"), (9, b"high"), (5, b"middle"), (99, b"highest")):
        send(rig, queue, value, priority=priority)
    group = rig.kernel.groups.queue_group(queue)
    assert values(pop(rig, group, 1)) == [b"high"]
    assert values(pop(rig, group)) == [b"highest", b"middle", b"low"]


def test_a_returned_message_is_served_first_at_its_old_place() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work")
    send(rig, queue, *[b"%d" % n for n in range(6)])
    group = rig.kernel.groups.queue_group(queue)
    first = pop(rig, group, 3)
    group.release(handles([first[2], first[0]]), 0)
    assert values(pop(rig, group)) == [b"0", b"2", b"3", b"4", b"5"]


def test_a_queue_declared_again_is_the_same_and_with_other_settings_refused() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_length=5))
    assert rig.kernel.groups.declare_queue("work", QueueSettings(max_length=5)) == queue
    with pytest.raises(QueueExists):
        rig.kernel.groups.declare_queue("work", QueueSettings())


def test_a_deleted_queue_is_gone_for_good(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    queue = rig.kernel.groups.declare_queue("work")
    rig.kernel.groups.bind("t/#", queue)
    rig.publish("t/a", b"1")
    taker, _ = join(rig, rig.kernel.groups.queue_group(queue))
    rig.kernel.groups.delete_queue(queue)
    rig.run()
    assert taker.gone
    assert rig.kernel.groups.queue("work") is None
    rig.publish("t/a", b"2")
    rig.restart()
    assert rig.kernel.groups.queue("work") is None
    fresh = rig.kernel.groups.declare_queue("work")
    assert fresh.first_partition_id != queue.first_partition_id
    assert pop(rig, rig.kernel.groups.queue_group(fresh)) == []


def test_an_only_active_member_is_followed_by_the_next() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(single_active=True))
    one, membership = join(rig, rig.kernel.groups.queue_group(queue))
    two, _ = join(rig, rig.kernel.groups.queue_group(queue))
    send(rig, queue, b"1", b"2")
    assert (one.values, two.values) == ([b"1", b"2"], [])
    membership.leave()
    rig.run()
    assert two.values == [b"1", b"2"]


def test_a_member_that_needs_no_ack_settles_at_once() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work")
    send(rig, queue, b"1", b"2")
    group = rig.kernel.groups.queue_group(queue)
    taker, membership = join(rig, group, keeps=False)
    membership.leave()
    assert taker.values == [b"1", b"2"]
    assert pop(rig, group) == []
    assert group.counts().leased == 0


def test_what_was_consumed_leaves_nothing_in_the_index(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    queue = rig.kernel.groups.declare_queue("work")
    group = rig.kernel.groups.queue_group(queue)
    for n in range(20):
        send(rig, queue, *[b"%d" % i for i in range(100)])
        if n % 3 == 2:
            rig.world.advance(3_000)                        # a checkpoint
    blocks = list(rig.store.scan(b"b", b"c"))
    assert blocks
    group.ack(handles(pop(rig, group, 1_950)))
    rig.run()
    rig.world.advance(3_000)
    left = list(rig.store.scan(b"b", b"c"))
    assert len(left) < len(blocks)
    rig.restart()
    found = rig.kernel.groups.queue("work")
    assert found is not None
    messages = pop(rig, rig.kernel.groups.queue_group(found), 100)
    assert values(messages) == [b"%d" % i for i in range(50, 100)]
    rig.kernel.groups.queue_group(found).ack(handles(messages))
    rig.run()
    rig.world.advance(3_000)
    assert list(rig.store.scan(b"b", b"c")) == []


def test_a_member_that_asks_for_more_while_it_is_handed_something_gets_it() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work")
    send(rig, queue, *[b"%d" % n for n in range(10)])

    class Greedy(Taker):
        membership: Membership | None = None

        def on_leased(self, messages: list[Leased]) -> None:
            super().on_leased(messages)
            if self.membership is not None:
                self.membership.add_credit(len(messages))

    taker = Greedy()
    taker.membership = rig.kernel.groups.queue_group(queue).join(taker, 2)
    rig.run()
    assert len(taker.got) == 10


def test_a_queue_that_nobody_uses_leaves_memory_and_goes_on_where_it_was() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work")
    send(rig, queue, b"1", b"2")
    group = rig.kernel.groups.queue_group(queue)
    group.ack(handles(pop(rig, group, 1)))
    rig.run()
    assert rig.kernel.leasing.queues.in_memory() == [group]
    for _ in range(3):
        rig.world.advance(20_000)
    assert rig.kernel.leasing.queues.in_memory() == []
    again = rig.kernel.groups.queue_group(queue)
    assert values(pop(rig, again, invisible_ms=3_600_000)) == [b"2"]
    for _ in range(3):
        rig.world.advance(20_000)
    assert rig.kernel.leasing.queues.in_memory() == [again]                 # a lease runs


def test_a_handle_as_text_is_good_also_after_more_attempts_than_it_can_say() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work")
    send(rig, queue, b"1")
    group = rig.kernel.groups.queue_group(queue)
    pop(rig, group)
    [prefetcher] = group.prefetchers.values()
    prefetcher.cursor.doom([0])
    prefetcher.cursor.lease(Lease(None, 1 << 50, MAX_ATTEMPT + 2, [0]))
    text = rig.kernel.groups.handles("/", "work").encode((prefetcher.cursor.key, 0, MAX_ATTEMPT + 2))
    [held] = rig.kernel.groups.held_in("/", "work", [text])
    assert not isinstance(held, KernelError)
    assert group.ack([(prefetcher.cursor.key, 0, MAX_ATTEMPT - 1)])[0] is not None
    assert group.ack([held[1]]) == [None]


@pytest.mark.parametrize("restarts", [True, False])
def test_a_pop_whose_taker_has_gone_is_no_attempt(restarts: bool) -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_attempts=1))
    send(rig, queue, b"1")
    group = rig.kernel.groups.queue_group(queue)
    for _ in range(3):
        group.give_back(handles(pop(rig, group)))
        rig.world.advance(LAZY_MS)
        if restarts:
            rig.restart()
            group = rig.kernel.groups.queue_group(queue)
    [message] = pop(rig, group)
    assert (message[2], message[6], group.counts().dead) == (1, b"1", 0)


@pytest.mark.parametrize("waits", [False, True])
def test_a_group_that_begins_to_keep_order_knows_what_is_out(tmp_path: Path, waits: bool) -> None:
    rig = Rig(tmp_path)
    rig.publish("orders/a", b"1", b"2")
    rig.restart()                                          # what is out is read from the disk
    group = rig.kernel.groups.group("billing", "orders")
    out = pop(rig, group, 1)
    if waits:
        group.release(handles(out), 60_000)
    rig.kernel.groups.define("billing", GroupSettings(ordered=True))
    rig.run()
    assert pop(rig, group) == []
    if waits:
        rig.world.advance(60_000)
        out = pop(rig, group)
    assert values(out) == [b"1"]
    group.ack(handles(out))
    rig.run()
    assert values(pop(rig, group)) == [b"2"]


def test_as_many_headers_as_a_message_may_have_leave_room_for_those_of_the_hub() -> None:
    rig = Rig()
    groups = rig.kernel.groups
    bound = groups.declare_queue("bound")
    groups.bind("plant/#", bound)
    with pytest.raises(MessageTooLarge):
        rig.publish("plant/k", b"refused", headers=[(b"", b"")] * (CARRIED_HEADERS + 1))
    rig.publish("plant/k", b"1", headers=[(b"", b"")] * CARRIED_HEADERS)
    rig.publish("plant/k", b"2")
    group = groups.group("g", "plant")
    group.reject(handles(pop(rig, group)))
    rig.run()
    dead = groups.queue("$dead-letters/g")
    assert dead is not None
    for queue in bound, dead:
        assert [(values([leased]), len(read_headers(leased[7], 0)[0]) > 2) for leased in pop(
            rig, groups.queue_group(queue))] == [([b"1"], True), ([b"2"], False)]
