"""Whoever gives messages up is answered once they are dead letters, wherever they had to be read first."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.errors import StorageFull
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.message import Stored
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Kind
from tests.kernel.groups.test_full_disk import FullRig
from tests.kernel.groups.test_groups import handles, pop, pop_all, send, values
from tests.kernel.rig import Rig

DEAD = "$dead-letters/billing"


def dead(rig: Rig) -> int:
    """How many dead letters there are by now."""
    queue = rig.kernel.groups.queue(DEAD)
    return 0 if queue is None else rig.kernel.groups.queue_group(queue).counts().ready


class Onlooker:
    """An owner that looks how many dead letters there are when it is answered."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.seen: list[tuple[object, Exception | None, int]] = []

    def on_stored(self, stored: list[Stored]) -> None:
        self.seen += [(one.token, one.error, dead(self._rig)) for one in stored]


def group_of(rig: Rig) -> LeasedGroup:
    return rig.kernel.groups.group("billing", "plant")


@pytest.mark.parametrize("cold", [False, True])
def test_it_is_answered_when_all_lines_are_buried(tmp_path: Path, cold: bool) -> None:
    rig = Rig(tmp_path)
    rig.kernel.create_topic("plant", partitions=3)
    for number in range(9):
        rig.publish(f"plant/{number}", b"%d" % number)
    group_of(rig)
    rig.world.advance(5_000)
    if cold:
        rig.restart()                                           # nothing is in memory: reads take their time
    held = handles(pop(rig, group_of(rig)))
    assert len(held) == 9 and len({cursor for cursor, _, _ in held}) == 3
    onlooker = Onlooker(rig)
    assert group_of(rig).reject(held, onlooker, "given up") == [None] * 9
    rig.run()
    assert onlooker.seen == [("given up", None, 9)]
    rig.restart()
    assert dead(rig) == 9 and pop(rig, group_of(rig)) == []


def test_however_many_reads_it_takes_of_what_checkpoints_have_left_in_memory() -> None:
    rig = Rig(settings=KernelSettings(default_partitions=1))
    count = 300
    for number in range(count):
        rig.publish("plant/a", bytes(150_000))
        if number % 50 == 49:
            rig.world.advance(5_000)
            rig.run()
    held = handles(pop_all(rig, group_of(rig), count))
    assert len(held) == count
    assert group_of(rig).reject(held) == [None] * count
    rig.run()
    assert dead(rig) == count and group_of(rig).counts().ready == 0


def test_nothing_to_bury_is_answered_too(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.publish("plant/a", b"1")
    group = group_of(rig)
    held = handles(pop(rig, group))
    group.ack(held)
    onlooker = Onlooker(rig)
    assert len(group.reject(held, onlooker, "late")) == 1
    rig.run()
    assert onlooker.seen == [("late", None, 0)]


def test_a_full_disk_is_told_once(tmp_path: Path) -> None:
    rig = FullRig()
    rig.publish("plant/a", b"1")
    group = group_of(rig)
    held = handles(pop(rig, group, 1, 60_000))
    onlooker = Onlooker(rig)
    with rig.full():
        group.reject(held, onlooker, "full")
    (told,) = onlooker.seen
    assert told[0] == "full" and isinstance(told[1], StorageFull) and dead(rig) == 0
    assert group.reject(held, onlooker, "again") == [None]
    rig.run()
    assert onlooker.seen[1:] == [("again", None, 1)]


def held_after_a_start(rig: Rig, group: LeasedGroup) -> list[tuple[object, int, int]]:
    """What a pop holds, and no memory has any more."""
    held = handles(pop(rig, group, 10, 3_600_000))
    rig.world.advance(10_000)
    rig.restart()
    return held


def turn(rig: Rig) -> None:
    """Whatever can be done while the disk has not answered."""
    while rig.world.loop.step():
        pass


def test_a_group_that_is_deleted_while_its_messages_are_read_stays_deleted(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.publish("plant/a", b"1", b"2")
    held = held_after_a_start(rig, group_of(rig))
    onlooker = Onlooker(rig)
    assert group_of(rig).reject(held, onlooker, "late") == [None, None]
    turn(rig)                                        # what is rejected is being read
    rig.kernel.groups.delete("billing")
    turn(rig)
    rig.run()
    assert rig.kernel.groups.settings("billing") is None
    assert onlooker.seen == [("late", None, 0)]
    assert values(pop(rig, group_of(rig))) == [b"1", b"2"]


def test_a_queue_that_is_deleted_while_its_messages_are_read_leaves_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    queue = rig.kernel.groups.declare_queue("work")
    send(rig, queue, b"1", b"2")
    held = held_after_a_start(rig, rig.kernel.groups.queue_group(queue))
    rig.kernel.groups.queue_group(queue).reject(held)
    turn(rig)
    rig.kernel.groups.delete_queue(queue)
    turn(rig)
    rig.run()
    assert rig.kernel.link_states(Kind.OFFSET) == []
