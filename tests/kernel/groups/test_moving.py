"""Messages move from a queue to another queue or an address: once, with all that they are, whatever happens."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.kernel.errors import CreateDenied, ExpiredReceipt, InvalidQueue, QueueFull, UnknownQueue
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import Queue, QueueSettings
from gatehouse.kernel.records.batch import MARK, encode_headers, read_headers
from tests.kernel.groups.test_groups import handles, pop, values
from tests.kernel.rig import Rig

PRIVATE = (MARK + b"side", b"of a door")


def rig_with_waiting(count: int = 3, **settings: Any) -> tuple[Rig, Queue, LeasedGroup]:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(**settings))
    rig.kernel.groups.declare_queue("later", QueueSettings(priorities=2))
    for number in range(count):
        placement = rig.kernel.place_queue(queue, number % queue.settings.priorities)
        rig.kernel.append([(placement, b"%d" % number, encode_headers(((b"unit", b"C"), PRIVATE)), 3, 0)], rig.witness)
    rig.run()
    return rig, queue, rig.kernel.groups.queue_group(queue)


def test_what_is_moved_is_as_it_was_with_its_priority() -> None:
    rig, queue, group = rig_with_waiting(3, priorities=3)
    leases = pop(rig, group)
    assert rig.kernel.groups.move(queue, leases, "$queue/later", rig.witness, "moved") == [None] * 3
    rig.run()
    assert rig.witness.stored[-1].token == "moved"
    later = rig.kernel.groups.queue("later")
    assert later is not None
    there = pop(rig, rig.kernel.groups.queue_group(later))
    assert [(leased[0][0] - later.first_partition_id, leased[6]) for leased in there] == [
        (1, b"2"), (1, b"1"), (0, b"0")]
    assert [leased[3] for leased in there] == [leased[3] for leased in leases]                  # ids
    assert PRIVATE in read_headers(there[0][7], 0)[0]
    assert pop(rig, group) == []


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_crash_leaves_each_message_in_one_place(is_durable: bool) -> None:
    rig, queue, group = rig_with_waiting(2)
    leases = pop(rig, group)
    rig.kernel.groups.move(queue, leases, "$queue/later")
    if is_durable:
        rig.run()
    rig.restart()
    here, there = (rig.kernel.groups.queue_group(found) for name in ("work", "later")
                   if (found := rig.kernel.groups.queue(name)) is not None)
    rig.world.advance(60_000)
    found = values(pop(rig, here)), values(pop(rig, there))
    assert found == (([], [b"0", b"1"]) if is_durable else ([b"0", b"1"], []))


def test_in_a_topic_it_is_a_message_like_any_other() -> None:
    rig, queue, group = rig_with_waiting(1)
    assert rig.kernel.groups.move(queue, pop(rig, group), "plant/line1", may_create=True) == [None]
    rig.run()
    (record,) = rig.read("plant")
    assert (record[2], record[3], record[4]) == (b"line1", b"0", ((b"unit", b"C"),))


def test_who_no_longer_holds_a_message_does_not_move_it() -> None:
    rig, queue, group = rig_with_waiting(2)
    leases = pop(rig, group)
    group.ack(handles(leases[:1]))
    results = rig.kernel.groups.move(queue, leases, "$queue/later")
    assert [type(result) for result in results] == [ExpiredReceipt, type(None)]


def test_what_is_refused_stays_leased() -> None:
    rig, queue, group = rig_with_waiting(3)
    rig.kernel.groups.declare_queue("small", QueueSettings(max_length=1, overflow="reject"))
    leases = pop(rig, group)
    results = rig.kernel.groups.move(queue, leases, "$queue/small")
    assert [type(result) for result in results] == [type(None), QueueFull, QueueFull]
    assert group.release(handles(leases[1:]), 0) == [None, None]


@pytest.mark.parametrize(("to", "refusal"), [
    ("$queue/work", InvalidQueue), ("$queue/nowhere", UnknownQueue), ("nowhere/a", CreateDenied)])
def test_where_nothing_can_go(to: str, refusal: type[Exception]) -> None:
    rig, queue, group = rig_with_waiting(1)
    leases = pop(rig, group)
    with pytest.raises(refusal):
        rig.kernel.groups.move(queue, leases, to)
    assert group.ack(handles(leases)) == [None]


class ByUnit:
    """A door's rule that has to see each message: those in a unit enter a queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def choose(self, address: str) -> tuple[int, ...] | None:
        return None

    def choose_for(self, address: str, headers: bytes, attributes: int, timestamp_ms: int) -> tuple[int, ...]:
        return (self._queue.first_partition_id,) if b"unit" in headers else ()


@pytest.mark.parametrize("way", ["moved", "died", "redriven"])
def test_what_moves_to_an_address_enters_the_queues_that_a_door_chooses_for_it(way: str) -> None:
    rig, queue, group = rig_with_waiting(1, **({"dead_letter": "address:plant/line1"} if way == "died" else {}))
    groups = rig.kernel.groups
    chosen = groups.declare_queue("chosen")
    leases = pop(rig, group)
    if way == "redriven":
        rig.publish("plant/line1", b"0", headers=[(b"unit", b"C")])
        of_topic = groups.group("g", "plant")
        of_topic.reject(handles(pop(rig, of_topic)))
        rig.run()
    groups.bind_chooser("plant/#", ByUnit(chosen))
    if way == "moved":
        assert groups.move(queue, leases, "plant/line1", may_create=True) == [None]
    elif way == "died":
        group.reject(handles(leases))
    else:
        dead = groups.queue("$dead-letters/g")
        assert dead is not None
        assert groups.redrive(dead, rig.read_partition(dead.first_partition_id)) == [None]
    rig.run()
    assert values(pop(rig, groups.queue_group(chosen))) == [b"0"]
