"""What queues hold at most, and what gives way."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from time import process_time

import pytest

from gatehouse.kernel.errors import InvalidQueue, QueueFull
from gatehouse.kernel.groups.dead_lettering import deaths_of
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import NOTHING, Queue, QueueSettings
from gatehouse.kernel.groups.max_length import DROPPED_AT_ONCE, MaxLength
from gatehouse.kernel.message import Leased
from gatehouse.kernel.records.batch import encode_headers
from tests.kernel.batches import batch_of
from tests.kernel.groups.test_full_disk import FullRig
from tests.kernel.groups.test_groups import Taker, handles, join, pop, send, values
from tests.kernel.rig import Rig


def ready(rig: Rig, queue: Queue) -> int:
    return rig.kernel.groups.queue_group(queue).counts().ready


def group_of(rig: Rig) -> LeasedGroup:
    queue = rig.kernel.groups.queue("work")
    assert queue is not None
    return rig.kernel.groups.queue_group(queue)


def taken(rig: Rig, name: str) -> list[bytes | None]:
    queue = rig.kernel.groups.queue(name)
    assert queue is not None
    return values(pop(rig, rig.kernel.groups.queue_group(queue), 1_000))


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


# ---- nothing is held

@pytest.mark.parametrize(("settings", "left"), [
    (QueueSettings(max_length=NOTHING), []), (QueueSettings(max_bytes=NOTHING), [b""]),
    (QueueSettings(max_length=0, max_bytes=0), [b"1", b"22", b""])])
def test_a_queue_that_holds_nothing(settings: QueueSettings, left: list[bytes]) -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", settings)
    send(rig, queue, b"1", b"22", b"")
    assert ready(rig, queue) == len(left)
    assert taken(rig, "work") == left
    rig.restart()
    assert rig.kernel.groups.queue("work") == queue


def test_a_queue_that_holds_nothing_and_refuses() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_length=NOTHING, overflow="reject"))
    with pytest.raises(QueueFull):
        send(rig, queue, b"1")


def test_a_limit_below_that_is_none() -> None:
    for settings in (QueueSettings(max_length=-2), QueueSettings(ttl_ms=-2)):
        with pytest.raises(InvalidQueue):
            Rig().kernel.groups.declare_queue("work", settings)


# ---- the oldest goes

@pytest.mark.parametrize("burst", [1, 7, 100])
def test_the_oldest_give_way(burst: int) -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_length=5))
    group = rig.kernel.groups.queue_group(queue)
    for start in range(0, 100, burst):
        send(rig, queue, *numbers(start, min(100, start + burst)))
        assert ready(rig, queue) <= 5
    assert group.counts().dropped == 95
    assert taken(rig, "work") == numbers(95, 100)


def test_nobody_is_handed_what_has_to_go() -> None:
    """One who asks while a burst enters gets what is left of it."""
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_length=3))
    taker, _ = join(rig, rig.kernel.groups.queue_group(queue), 2)
    send(rig, queue, *numbers(0, 10))
    assert taker.values == numbers(7, 9)
    assert ready(rig, queue) == 1


def test_what_is_leased_does_not_count_and_what_comes_back_does() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_length=3))
    group = rig.kernel.groups.queue_group(queue)
    send(rig, queue, *numbers(0, 3))
    held = pop(rig, group, 3)
    send(rig, queue, *numbers(3, 6))
    assert group.counts()[:2] == (3, 3)
    group.release(handles(held[1:]), 0)
    rig.run()
    assert group.counts()[:2] == (3, 1)
    assert taken(rig, "work") == numbers(3, 6)


@pytest.mark.parametrize("limits", [{"max_length": 10}, {"max_bytes": 10_000}], ids=lambda limits: next(iter(limits)))
def test_what_is_far_too_much_for_new_limits_goes_over_several_turns(limits: dict[str, int]) -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings())
    for _ in range(10):
        send(rig, queue, *[bytes(1_000)] * 500)
    rig.kernel.groups.change_queue(queue, replace(queue.settings, **limits))
    left = [ready(rig, queue)]
    while rig.world.loop.step():
        left.append(ready(rig, queue))
    rig.run()
    assert ready(rig, queue) == 10
    assert max(before - after for before, after in zip([5_000, *left], left, strict=False)) <= DROPPED_AT_ONCE
    send(rig, queue, *[bytes(1_000)] * 2_500)
    assert ready(rig, queue) == 10


def test_lower_priorities_give_way_first() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(priorities=3, max_length=4))
    for priority in (2, 0, 1):
        send(rig, queue, *[b"%d%d" % (priority, number) for number in range(3)], priority=priority)
    assert taken(rig, "work") == [b"20", b"21", b"22", b"12"]


def test_references_through_bindings_count() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_length=2))
    rig.kernel.groups.bind("orders/#", queue)
    rig.publish("orders/a", *numbers(0, 5))
    rig.publish("orders/b", *numbers(5, 6))
    assert taken(rig, "work") == numbers(4, 6)
    assert len(rig.values("orders")) == 6


@pytest.mark.parametrize("lose_index", [False, True])
def test_a_queue_is_held_to_its_length_after_a_start(tmp_path: Path, lose_index: bool) -> None:
    """A crash may come between the messages and what gives way to them."""
    rig = Rig(tmp_path)
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_length=2))
    send(rig, queue, *numbers(0, 2))
    placement = rig.kernel.place_queue(queue)
    rig.kernel.append([(placement, value, b"\0", 3, 0) for value in numbers(2, 6)], rig.witness)
    while rig.kernel.bounds(queue.first_partition_id)[1] < 6:
        rig.world.loop.step() or rig.world.log_worker.step()
    rig.restart(lose_index=lose_index)
    rig.run()
    assert taken(rig, "work") == numbers(4, 6)


def test_what_gives_way_is_a_dead_letter_where_the_queue_says_so() -> None:
    rig = Rig()
    rig.kernel.groups.declare_queue("late")
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_length=2, dead_letter="queue:late"))
    send(rig, queue, *numbers(0, 5))
    assert taken(rig, "work") == numbers(3, 5)
    late = rig.kernel.groups.queue("late")
    assert late is not None
    dead = pop(rig, rig.kernel.groups.queue_group(late))
    assert values(dead) == numbers(0, 3)
    assert [(death["reason"], death["address"]) for death in deaths_of(dead[0][7])] == [("overflow", "$queue/work")]


def test_dead_letters_for_an_address_are_messages_like_others() -> None:
    """Stored in its topic, in the queues that are bound to it, and told to who listens."""
    rig = Rig()
    rig.kernel.groups.bind("deaths/#", rig.kernel.groups.declare_queue("bound"))
    rig.kernel.subscribe("deaths/#", rig.witness)
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_length=1, dead_letter="address:deaths/of/work"))
    send(rig, queue, b"1", b"2")
    assert rig.values("deaths") == [b"1"]
    assert taken(rig, "bound") == [b"1"]
    assert [(address, value) for address, value, *_ in rig.witness.delivered] == [("deaths/of/work", b"1")]


def test_dead_letters_for_a_queue_that_is_not_there_are_dropped_and_counted() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_length=1, dead_letter="queue:nowhere"))
    send(rig, queue, b"1", b"2")
    assert taken(rig, "work") == [b"2"]
    assert rig.kernel.groups.queue_group(queue).counts().dropped == 1


def test_an_overflow_of_dead_letters_has_a_queue_of_its_own() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_length=2, overflow="dead-letter"))
    send(rig, queue, *numbers(0, 3))
    assert taken(rig, "$dead-letters/work") == numbers(0, 1)


def test_an_overflow_into_itself_ends() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_length=2, dead_letter="queue:work"))
    send(rig, queue, *numbers(0, 5))
    assert taken(rig, "work") == numbers(3, 5)


def test_two_queues_that_overflow_into_each_other_end() -> None:
    rig = Rig()
    one = rig.kernel.groups.declare_queue("one", QueueSettings(max_length=2, dead_letter="queue:two"))
    rig.kernel.groups.declare_queue("two", QueueSettings(max_length=2, dead_letter="queue:one"))
    send(rig, one, *numbers(0, 10))
    assert taken(rig, "one") == numbers(8, 10)
    assert len(taken(rig, "two")) == 2


# ---- the new one is refused

def refusing(rig: Rig, **limits: int) -> Queue:
    return rig.kernel.groups.declare_queue("work", QueueSettings(overflow="reject", **limits))


def test_what_was_purged_on_its_way_in_takes_no_room() -> None:
    rig = Rig()
    queue = refusing(rig, max_length=2)
    placement = rig.kernel.place_queue(queue)
    rig.kernel.append([(placement, value, b"\0", 3, 0) for value in (b"1", b"2")], rig.witness)
    assert rig.kernel.groups.purge(queue) == 2
    rig.kernel.append([(placement, b"3", b"\0", 3, 0)], rig.witness)
    rig.run()
    assert taken(rig, "work") == [b"3"]


def offer(rig: Rig, queue: Queue, *payloads: bytes) -> None:
    """Append without waiting for the disk."""
    placement = rig.kernel.place_queue(queue)
    rig.kernel.append([(placement, value, b"\0", 3, 0) for value in payloads], rig.witness)


def test_a_full_queue_refuses_with_nothing_taken() -> None:
    rig = Rig()
    queue = refusing(rig, max_length=3)
    send(rig, queue, *numbers(0, 2))
    with pytest.raises(QueueFull) as refused:
        offer(rig, queue, *numbers(2, 5))
    assert refused.value.index == 1, "one has room"
    rig.run()
    assert ready(rig, queue) == 2
    send(rig, queue, b"2")
    with pytest.raises(QueueFull):
        offer(rig, queue, b"3")
    group = rig.kernel.groups.queue_group(queue)
    group.ack(handles(pop(rig, group, 1)))
    send(rig, queue, b"3")
    assert taken(rig, "work") == [b"1", b"2", b"3"]


def test_what_is_gathered_and_on_its_way_counts() -> None:
    rig = Rig()
    queue = refusing(rig, max_length=3)
    rig.run()
    offer(rig, queue, b"0")
    rig.world.loop.step()                                   # on its way to the disk
    offer(rig, queue, b"1")
    offer(rig, queue, b"2")
    with pytest.raises(QueueFull):
        offer(rig, queue, b"3")
    rig.run()
    with pytest.raises(QueueFull):
        offer(rig, queue, b"3")
    assert taken(rig, "work") == numbers(0, 3)


def test_a_full_queue_refuses_references_and_the_topic_gets_nothing_either() -> None:
    rig = Rig()
    queue = refusing(rig, max_length=2)
    rig.kernel.groups.bind("orders/#", queue)
    rig.publish("orders/a", b"0")
    with pytest.raises(QueueFull):
        rig.publish("orders/b", b"1", b"2")
    rig.publish("orders/a", b"1")
    with pytest.raises(QueueFull):
        rig.publish("orders/a", b"2", idempotency_key="key")
    assert sorted(value or b"" for value in rig.values("orders")) == numbers(0, 2)
    assert taken(rig, "work") == numbers(0, 2)
    rig.kernel.groups.delete_queue(queue)
    rig.publish("orders/a", b"2")


def test_a_producers_batch_is_refused_whole() -> None:
    rig = Rig()
    queue = refusing(rig, max_length=2)
    topic = rig.kernel.create_topic("orders", partitions=1)
    rig.kernel.groups.bind("orders/#", queue)
    rig.kernel.append_batch(topic.partition_id(0), batch_of([(b"k", b"0", ()), (b"k", b"1", ())]), rig.witness)
    rig.run()
    with pytest.raises(QueueFull):
        rig.kernel.append_batch(topic.partition_id(0), batch_of([(b"k", b"2", ())]), rig.witness)
    rig.run()
    assert rig.values("orders") == numbers(0, 2)
    assert taken(rig, "work") == numbers(0, 2)


def test_a_refused_frame_leaves_room() -> None:
    rig = FullRig()
    queue = refusing(rig, max_length=2, max_bytes=20)
    rig.run()
    with rig.full():
        offer(rig, queue, b"x" * 10, b"x" * 10)
        with pytest.raises(QueueFull):
            offer(rig, queue, b"3")
    send(rig, queue, b"1" * 10, b"2" * 10)
    assert taken(rig, "work") == [b"1" * 10, b"2" * 10]


# ---- bytes

def test_bytes_are_limited_too() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_bytes=100))
    for number in range(10):
        send(rig, queue, b"%d" % number * 30)
    assert taken(rig, "work") == [b"%d" % number * 30 for number in (7, 8, 9)]


def test_bytes_of_what_is_leased_or_settled_out_of_order_do_not_count() -> None:
    rig = Rig()
    queue = refusing(rig, max_bytes=100)
    group = rig.kernel.groups.queue_group(queue)
    send(rig, queue, b"a" * 40, b"b" * 30, b"c" * 30)
    with pytest.raises(QueueFull):
        offer(rig, queue, b"d")
    held = pop(rig, group, 2)
    group.ack(handles(held[1:]))
    send(rig, queue, b"d" * 70)
    with pytest.raises(QueueFull):
        offer(rig, queue, b"e")
    group.release(handles(held[:1]), 0)
    assert taken(rig, "work") == [b"a" * 40, b"c" * 30, b"d" * 70]


def limit_of(group: LeasedGroup) -> MaxLength:
    return next(policy for policy in group.policies if isinstance(policy, MaxLength))


@pytest.mark.parametrize("seed", range(4))
def test_bytes_are_those_of_what_is_neither_leased_nor_settled_whatever_happens(seed: int) -> None:
    random = Random(seed)
    rig = FullRig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_bytes=1 << 30))
    held: list[Leased] = []
    for _ in range(80):
        group = group_of(rig)
        step = random.choice(["send", "send", "pop", "pop", "ack", "ack", "release", "give back", "refuse", "purge"])
        random.shuffle(held)
        some = [held.pop() for _ in range(min(len(held), random.randrange(4)))]
        if step == "send":
            send(rig, queue, *[b"x" * random.randrange(50) for _ in range(random.randrange(1, 300))])
        elif step == "pop":
            held += pop(rig, group, random.randrange(1, 400))
        elif step == "ack":
            group.ack(handles(some))
        elif step == "release":
            group.release(handles(some), random.choice([0, 500]))
        elif step == "give back":
            group.give_back(handles(some))
        elif step == "refuse" and not random.randrange(4):
            with rig.full():
                group.ack(handles(held))
            held = []
        elif step == "purge" and not random.randrange(4):
            group.purge()
        rig.world.advance(random.choice([0, 100, 2_000]))
        partition_id = queue.first_partition_id
        free = sum(len(record[3] or b"") for record in rig.read_partition(partition_id)
                   if not group.is_settled(partition_id, record[0]) and not group.is_leased(partition_id, record[0]))
        assert limit_of(group).room()[1] == (1 << 30) - free


def test_a_queue_with_limited_bytes_costs_the_same_however_much_of_it_is_leased() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_bytes=1 << 30))
    group = group_of(rig)
    for _ in range(50):
        send(rig, queue, *[b"x"] * 1_000)
    join(rig, group, 50_000)
    limit = limit_of(group)
    assert (group.counts().leased, limit.room()[1]) == (50_000, 1 << 30)
    began_s = process_time()
    for _ in range(100):
        limit.room()
    assert process_time() - began_s < 1                    # it was seven, and is a hundredth of one


def test_bytes_that_are_pending_count() -> None:
    rig = Rig()
    partition = refusing(rig, max_bytes=100)
    rig.run()
    offer(rig, partition, b"a" * 50)
    rig.world.loop.step()
    offer(rig, partition, b"b" * 30)
    with pytest.raises(QueueFull):
        offer(rig, partition, b"c" * 30)
    offer(rig, partition, b"d" * 20)
    rig.run()
    with pytest.raises(QueueFull):
        offer(rig, partition, b"e")
    assert len(taken(rig, "work")) == 3


def test_bytes_are_known_again_after_a_start(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    queue = refusing(rig, max_bytes=100)
    group = rig.kernel.groups.queue_group(queue)
    send(rig, queue, b"a" * 40, b"b" * 30, b"c" * 30)
    group.ack(handles(pop(rig, group, 2)[1:]))
    rig.world.advance(31_000)
    rig.restart()
    rig.run()
    found = rig.kernel.groups.queue("work")
    assert found is not None
    with pytest.raises(QueueFull):
        offer(rig, found, b"d" * 31)
    send(rig, found, b"d" * 30)


def test_a_queue_without_limits_pays_nothing() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work")
    placement = rig.kernel.place_queue(queue)
    send(rig, queue, b"1")
    policies = rig.kernel.groups.queue_group(queue).policies
    assert not placement.limited and not any(isinstance(policy, MaxLength) for policy in policies)


# ---- purging

def test_a_purge_takes_what_is_ready_and_what_is_on_its_way() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(priorities=2))
    group = rig.kernel.groups.queue_group(queue)
    send(rig, queue, *numbers(0, 5))
    send(rig, queue, b"high", priority=1)
    held = pop(rig, group, 3, 60_000)
    group.release(handles(held[1:2]), 0)
    group.release(handles(held[2:3]), 5_000)
    rig.run()
    offer(rig, queue, b"flying")
    rig.world.loop.step()
    offer(rig, queue, b"gathered")
    assert group.purge() == 6
    offer(rig, queue, b"after")
    rig.run()
    assert group.counts()[:3] == (1, 1, 1)
    rig.restart()
    rig.world.advance(61_000)
    assert taken(rig, "work") == [b"high", b"1", b"after"]


def test_a_purge_that_was_not_stored_did_not_happen() -> None:
    rig = FullRig()
    queue = rig.kernel.groups.declare_queue("work")
    send(rig, queue, *numbers(0, 3))
    with rig.full():
        offer(rig, queue, b"lost")
        rig.kernel.groups.queue_group(queue).purge()
    assert taken(rig, "work") == numbers(0, 3)
    send(rig, queue, b"3")
    assert taken(rig, "work") == [b"3"]


def test_what_is_read_while_a_queue_is_purged_is_not_handed_out(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    queue = rig.kernel.groups.declare_queue("work")
    send(rig, queue, *numbers(0, 5))
    rig.world.advance(5_000)
    rig.restart()
    found = rig.kernel.groups.queue("work")
    assert found is not None
    group = rig.kernel.groups.queue_group(found)
    rig.run()
    taker = Taker()
    group.join(taker, 10)
    rig.world.loop.step()                                   # the read is under way
    assert group.purge() == 5
    rig.run()
    assert taker.values == []
    send(rig, found, b"5")
    assert taker.values == [b"5"]


def test_headers_make_no_weight() -> None:
    rig = Rig()
    queue = refusing(rig, max_bytes=10)
    headers = encode_headers([(b"name", b"x" * 1_000)])
    rig.kernel.append([(rig.kernel.place_queue(queue), b"1234567890", headers, 3, 0)], rig.witness)
    rig.run()
    assert taken(rig, "work") == [b"1234567890"]
