"""A disk that is full refuses frames: groups and queues are as if they had never been asked."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gatehouse.kernel.errors import StorageFull, UnknownGroup
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import GroupSettings, Queue, QueueSettings
from gatehouse.kernel.groups.leasing import PAUSE_MS
from gatehouse.kernel.message import Leased
from tests.kernel.full_log import FullLog
from tests.kernel.groups.test_groups import Taker, handles, join, pop, send, values
from tests.kernel.rig import Rig


class FullRig(Rig):
    """A rig whose disk can be filled."""

    def __init__(self) -> None:
        self.full_log = FullLog()
        super().__init__(log=self.full_log)
        self.kernel.create_topic("orders", partitions=1)
        self.run()

    @contextmanager
    def full(self) -> Iterator[None]:
        """Everything that is asked inside is refused."""
        self.full_log.full = True
        yield
        self.run()
        self.full_log.full = False

    def after_the_pause(self) -> None:
        self.world.advance(PAUSE_MS + 100)

    def error(self) -> Exception | None:
        return self.witness.stored[-1].error


@pytest.fixture
def rig() -> FullRig:
    return FullRig()


def billing(rig: Rig) -> LeasedGroup:
    return rig.kernel.groups.group("billing", "orders")


def take_all(rig: Rig, group: LeasedGroup) -> list[bytes | None]:
    """What is ready, acked."""
    found: list[Leased] = []
    while more := pop(rig, group, 100):
        group.ack(handles(more))
        found += more
    rig.run()
    return values(found)


def test_a_pop_says_that_the_disk_is_full_and_its_messages_stay(rig: FullRig) -> None:
    rig.publish("orders/a", b"1", b"2")
    group = billing(rig)
    rig.run()
    with rig.full():
        popped = group.pop(10, 1_000, lambda found: None)
    assert isinstance(popped.error, StorageFull)
    assert group.counts()[:3] == (2, 0, 0)
    assert take_all(rig, group) == [b"1", b"2"]


def test_an_ack_that_was_not_stored_can_be_given_again(rig: FullRig) -> None:
    rig.publish("orders/a", b"1", b"2", b"3")
    group = billing(rig)
    held = pop(rig, group, 3, 60_000)
    with rig.full():
        assert group.ack(handles(held[:2]), rig.witness) == [None, None]
    assert isinstance(rig.error(), StorageFull)
    assert group.counts()[:3] == (0, 3, 0)
    assert group.ack(handles(held[:1]), rig.witness) == [None]
    rig.run()
    assert rig.error() is None
    rig.restart()
    rig.world.advance(61_000)
    assert values(pop(rig, billing(rig))) == [b"2", b"3"]


@pytest.mark.parametrize("delay_ms", [0, 5_000])
def test_releases_that_were_not_stored_did_not_happen(rig: FullRig, delay_ms: int) -> None:
    rig.publish("orders/a", b"1", b"2")
    group = billing(rig)
    held = pop(rig, group, 2, 60_000)
    with rig.full():
        group.release(handles(held[:1]), delay_ms)
        group.extend(handles(held[1:]), 120_000)
    assert group.counts()[:3] == (0, 2, 0)
    rig.world.advance(61_000)
    assert values(pop(rig, group)) == [b"1", b"2"]


def test_members_keep_what_they_hold_and_give_it_back_when_they_leave(rig: FullRig) -> None:
    """Nothing of what was handed out in a refused frame is handed out again."""
    group = billing(rig)
    rig.publish("orders/a", *[b"%d" % n for n in range(6)])
    with rig.full():
        one, first = Taker(), None
        first = group.join(one, 4)
    assert one.values == [b"0", b"1", b"2", b"3"]
    rig.after_the_pause()
    two, second = join(rig, group, 10)
    assert two.values == [b"4", b"5"]
    assert group.counts()[:3] == (0, 6, 0)
    assert group.ack(handles(one.got[1:2])) == [None]
    first.leave()
    rig.run()
    assert two.values == [b"4", b"5", b"0", b"2", b"3"]
    assert [message[2] for message in two.got] == [1, 1, 2, 2, 2]
    assert group.ack(handles(two.got)) == [None] * 5
    rig.run()
    cursor = group.prefetchers[two.got[0][0][0]].cursor
    assert (cursor.committed, cursor._stored, cursor._out, group.counts().ready) == (6, set(), {}, 0)


def test_what_a_member_acked_in_vain_comes_again_and_what_it_holds_does_not(rig: FullRig) -> None:
    group = billing(rig)
    rig.publish("orders/a", b"1", b"2", b"3")
    taker, _ = join(rig, group, 3)
    rig.world.advance(100)                                      # its leases are written when nothing else is
    with rig.full():
        group.ack(handles(taker.got[1:2]), rig.witness)
    assert isinstance(rig.error(), StorageFull)
    rig.after_the_pause()
    again = pop(rig, group)
    assert values(again) == [b"2"]
    assert group.ack(handles(taker.got)) != [None] * 3          # the lease of the second is the pop's
    assert group.ack(handles(again)) == [None]


def test_the_order_of_keys_holds_over_a_full_disk(rig: FullRig) -> None:
    rig.kernel.groups.define("billing", GroupSettings(ordered=True))
    rig.publish("orders/a", b"a0", b"a1")
    rig.publish("orders/b", b"b0")
    group = billing(rig)
    taker, membership = join(rig, group, 1)
    assert taker.values == [b"a0"]
    with rig.full():
        membership.add_credit(1)
    rig.after_the_pause()
    assert taker.values == [b"a0", b"b0"]
    membership.add_credit(5)
    rig.run()
    assert taker.values == [b"a0", b"b0"]
    group.ack(handles(taker.got[:1]))
    rig.run()
    assert taker.values == [b"a0", b"b0", b"a1"]


def test_a_dead_letter_is_in_one_place(rig: FullRig) -> None:
    rig.publish("orders/a", b"1")
    group = billing(rig)
    held = pop(rig, group, 1, 60_000)
    with rig.full():
        group.reject(handles(held))
    assert rig.kernel.groups.queue("$dead-letters/billing") is None
    assert group.reject(handles(held)) == [None]
    rig.run()
    queue = rig.kernel.groups.queue("$dead-letters/billing")
    assert queue is not None
    assert take_all(rig, rig.kernel.groups.queue_group(queue)) == [b"1"]
    assert take_all(rig, group) == []


def test_leases_end_while_the_disk_is_full_without_asking_it_over_and_over(rig: FullRig) -> None:
    rig.publish("orders/a", b"1")
    group = billing(rig)
    pop(rig, group, 1, 1_000)
    rig.full_log.full = True
    refused = rig.kernel.statistics()["refused_flushes_total"]
    for _ in range(50):
        rig.world.advance(100)
    assert 2 <= rig.kernel.statistics()["refused_flushes_total"] - refused <= 5
    rig.full_log.full = False
    rig.after_the_pause()
    assert values(pop(rig, group)) == [b"1"]


def test_lines_that_are_read_in_turn_do_not_ask_a_full_disk_for_each_other(rig: FullRig) -> None:
    """Found by its property: what was read of one cursor brought back the other, whose lease had just been refused, and
    so on without end."""
    rig.kernel.create_topic("plant", partitions=3)
    sent = [b"%d" % number for number in range(9)]
    for value in sent:
        rig.publish(f"plant/{value.decode()}", value)
    rig.world.advance(5_000)
    rig.restart()                                               # nothing is in memory: reads take their time
    group = rig.kernel.groups.group("billing", "plant")
    rig.run()
    refused = rig.kernel.statistics()["refused_flushes_total"]
    with rig.full():
        popped = group.pop(10, 60_000, lambda found: None)
    assert rig.kernel.statistics()["refused_flushes_total"] - refused <= 3, "one for each cursor"
    popped.cancel()
    assert sorted(take_all(rig, group)) == sent


def test_a_rewind_that_was_not_stored_did_not_happen(rig: FullRig) -> None:
    topic = rig.kernel.topic("orders")
    assert topic is not None
    rig.publish("orders/a", b"1", b"2", b"3")
    group = billing(rig)
    held = pop(rig, group, 2, 60_000)
    group.ack(handles(held[:1]))
    rig.run()
    with rig.full():
        rig.kernel.groups.rewind("billing", topic, {topic.partition_id(0): 0}, rig.witness)
    assert isinstance(rig.error(), StorageFull)
    assert rig.kernel.groups.offsets("billing", topic) == {topic.partition_id(0): 1}
    assert values(pop(rig, group)) == [b"3"]
    rig.world.advance(61_000)
    assert values(pop(rig, group)) == [b"2", b"3"]


def test_a_group_made_in_a_refused_frame_is_defined_by_its_next(rig: FullRig) -> None:
    rig.publish("orders/a", b"1", b"2")
    with rig.full():
        group = billing(rig)
        taker = Taker()
        group.join(taker, 1)
    rig.after_the_pause()
    assert group.ack(handles(taker.got)) == [None]
    rig.run()
    rig.restart()
    assert take_all(rig, billing(rig)) == [b"2"]


def test_a_group_deleted_in_vain_is_there_with_what_it_did(rig: FullRig) -> None:
    rig.publish("orders/a", *[b"%d" % n for n in range(5)])
    group = billing(rig)
    held = pop(rig, group, 5, 60_000)
    group.ack(handles(held[:1] + held[2:3]))
    rig.run()
    taker = Taker()
    group.join(taker, 1)
    with rig.full():
        rig.kernel.groups.delete("billing", owner=rig.witness)
    assert isinstance(rig.error(), StorageFull)
    assert taker.gone
    rig.world.advance(61_000)
    assert take_all(rig, billing(rig)) == [b"1", b"3", b"4"]


def test_a_topic_deleted_in_vain_is_there_with_its_groups(rig: FullRig) -> None:
    rig.publish("orders/a", b"1", b"2", b"3")
    group = billing(rig)
    group.ack(handles(pop(rig, group, 3, 60_000)[1:2]))
    rig.run()
    with rig.full():
        rig.kernel.delete_topic("orders", owner=rig.witness)
    assert isinstance(rig.error(), StorageFull)
    rig.world.advance(61_000)
    assert take_all(rig, billing(rig)) == [b"1", b"3"]


def test_a_deleted_topic_leaves_nothing_of_its_groups(rig: FullRig) -> None:
    rig.publish("orders/a", b"1", b"2", b"3")
    group = billing(rig)
    group.ack(handles(pop(rig, group, 3, 60_000)[1:2]))
    taker, _ = join(rig, group)
    rig.kernel.delete_topic("orders")
    rig.run()
    assert taker.gone
    assert [(kind, key) for kind, key in rig.kernel._state.changes.newest
            if kind in (6, 12) and rig.kernel._state.get(kind, key) is not None] == []
    rig.restart(lose_index=True)
    assert rig.kernel.groups.topics("billing") == []
    rig.publish("orders/a", b"new")
    assert take_all(rig, billing(rig)) == [b"new"]


def test_a_queue_that_was_not_stored_is_not_there(rig: FullRig) -> None:
    with rig.full():
        queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_length=3), owner=rig.witness)
        rig.kernel.groups.bind("orders/#", queue)
        taker = Taker()
        rig.kernel.groups.queue_group(queue).join(taker, 5)
    assert isinstance(rig.error(), StorageFull)
    assert taker.gone
    assert rig.kernel.groups.queue("work") is None
    fresh = rig.kernel.groups.declare_queue("work", QueueSettings())
    rig.publish("orders/a", b"1")
    assert take_all(rig, rig.kernel.groups.queue_group(fresh)) == []


def test_a_queue_deleted_in_vain_is_there_with_its_bindings(rig: FullRig) -> None:
    queue = rig.kernel.groups.declare_queue("work")
    rig.kernel.groups.bind("orders/#", queue)
    rig.publish("orders/a", b"1", b"2", b"3")
    group = rig.kernel.groups.queue_group(queue)
    group.ack(handles(pop(rig, group, 3, 60_000)[1:2]))
    rig.run()
    with rig.full():
        rig.kernel.groups.delete_queue(queue, rig.witness)
    assert isinstance(rig.error(), StorageFull)
    found = rig.kernel.groups.queue("work")
    assert found == queue
    rig.publish("orders/a", b"4")
    rig.world.advance(61_000)
    assert take_all(rig, rig.kernel.groups.queue_group(found)) == [b"1", b"3", b"4"]


def test_an_unbinding_that_was_not_stored_did_not_happen(rig: FullRig) -> None:
    queue = rig.kernel.groups.declare_queue("work")
    rig.kernel.groups.bind("orders/a", queue)
    rig.run()
    with rig.full():
        rig.kernel.groups.unbind("orders/a", queue)
        rig.kernel.groups.bind("orders/b", queue)
    rig.publish("orders/a", b"1")
    rig.publish("orders/b", b"2")
    assert take_all(rig, rig.kernel.groups.queue_group(queue)) == [b"1"]


def test_messages_that_were_not_stored_are_in_no_queue(rig: FullRig) -> None:
    queue: Queue = rig.kernel.groups.declare_queue("work")
    group = rig.kernel.groups.queue_group(queue)
    send(rig, queue, b"1")
    with rig.full():
        rig.kernel.append([(rig.kernel.place_queue(queue), b"lost", b"\0", 3, 0)], rig.witness)
    send(rig, queue, b"2")
    assert take_all(rig, group) == [b"1", b"2"]
    with pytest.raises(UnknownGroup):
        rig.kernel.groups.delete("work")
