"""What is leased again is read again: from the disk after a start, however scattered it lies, and whatever fails."""
from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from gatehouse.kernel.errors import OffsetOutOfRange
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import GroupSettings
from gatehouse.kernel.groups.handing_out import FETCH_BYTES, STRETCHES
from gatehouse.kernel.index.reader import COLD_BYTES
from gatehouse.kernel.message import Fetched, Leased
from tests.kernel.rig import Rig
from tests.simulation.disk import BROKEN, SimDisk

LAST_MS = 60_000


def new_rig() -> tuple[Rig, SimDisk]:
    disk = SimDisk(Random(1))
    return Rig(disk=disk), disk


def pop(rig: Rig, group: LeasedGroup, count: int, invisible_ms: int = 1_000) -> list[Leased]:
    found: list[Leased] = []
    waiting = group.pop(count, invisible_ms, found.extend)
    rig.run()
    waiting.cancel()
    return found


def fill(rig: Rig, count: int) -> list[Leased]:
    rig.kernel.create_topic("orders", partitions=1)
    rig.publish("orders/a", *[b"%d" % i for i in range(count)])
    return pop(rig, rig.kernel.groups.group("billing", "orders"), count)


def test_messages_scattered_over_a_queue_all_come_again_after_a_start() -> None:
    """A fetch reads so much of the disk at most; what it left out was taken for gone."""
    assert STRETCHES * FETCH_BYTES <= COLD_BYTES
    rig, _ = new_rig()
    taken = fill(rig, 4_000)
    rig.kernel.groups.group("billing", "orders").ack([one[:3] for one in taken if one[1] % 50], rig.witness)
    rig.run()
    rig.restart()
    group = rig.kernel.groups.group("billing", "orders")
    rig.world.advance(LAST_MS)
    assert [one[1] for one in pop(rig, group, 4_000)] == list(range(0, 4_000, 50))
    assert group.counts().lost == 0


def test_what_cannot_be_read_is_not_lost_and_is_tried_again_after_a_while() -> None:
    rig, disk = new_rig()
    fill(rig, 10)
    rig.restart()
    rig.world.advance(LAST_MS)
    group = rig.kernel.groups.group("billing", "orders")
    disk.read_fault = BROKEN
    found: list[Leased] = []
    group.pop(10, 1_000, found.extend)
    rig.run()
    cold_reads = rig.kernel.statistics()["cold_reads_total"]
    rig.run()
    assert rig.kernel.statistics()["cold_reads_total"] == cold_reads, "it is tried again without a pause"
    assert found == []
    disk.read_fault = None
    rig.world.advance(2_000)
    assert [one[1] for one in found] == list(range(10))
    assert group.counts().lost == 0


def test_of_what_comes_again_little_more_is_read_than_is_wanted() -> None:
    """One of many, each in a frame of its own: not its neighbours, too."""
    rig, _ = new_rig()
    rig.kernel.create_topic("orders", partitions=1)
    for number in range(300):
        rig.publish("orders/a", b"%d" % number + bytes(1_000))
    group = rig.kernel.groups.group("billing", "orders")
    taken = pop(rig, group, 300)
    asked: list[int] = []
    prefetcher, = group.prefetchers.values()
    fetch = prefetcher.fetch

    def counting(wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None]) -> None:
        def on_read(answers: list[Fetched]) -> None:
            asked.append(sum(len(piece.data) for answer in answers for piece in answer.pieces))
            on_done(answers)
        fetch(wants, max_bytes, on_read)

    prefetcher.fetch = counting
    group.release([taken[150][:3]], 0)
    rig.run()
    assert [one[1:3] for one in pop(rig, group, 1)] == [(150, 2)]
    assert asked and sum(asked) < 10_000


@pytest.mark.parametrize("attempts", [16, 1])
def test_a_key_whose_message_was_lost_before_it_came_again_goes_on(attempts: int) -> None:
    rig = Rig()
    rig.publish("orders/a", b"1", b"2")
    rig.kernel.groups.define("billing", GroupSettings(ordered=True, max_attempts=attempts))
    group = rig.kernel.groups.group("billing", "orders")
    (first,) = pop(rig, group, 10)
    prefetcher = group.prefetchers[first[0][0]]
    fetch = prefetcher.fetch

    def without_the_first(wants: list[tuple[int, int, int]], most: int, on_done: Callable[[list[Fetched]], None]
                          ) -> None:
        if wants[0][1] == first[1]:
            on_done([Fetched(wants[0][0], OffsetOutOfRange("damaged"), 1, 2, [])])
        else:
            fetch(wants, most, on_done)

    prefetcher.fetch = without_the_first
    group.release([first[:3]], 0)
    rig.run()
    assert [one[6] for one in pop(rig, group, 10)] == [b"2"]
    assert group.counts().lost == 1
