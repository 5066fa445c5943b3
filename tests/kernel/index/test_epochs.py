"""Where a partition ended when an epoch of the hub did, and how many bytes it has."""
from __future__ import annotations

from random import Random

import pytest

from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Kind
from tests.kernel.retention.test_retention import SEGMENT_BYTES, turn_over
from tests.kernel.rig import Rig
from tests.simulation.disk import SimDisk


def end_of(rig: Rig, partition_id: int, epoch: int) -> int:
    answers: list[int] = []
    rig.port().end_of_epoch(partition_id, epoch, answers.append)
    rig.run()
    return answers[0]


def sizes(rig: Rig, *partition_ids: int) -> list[int]:
    answers: list[list[int]] = []
    rig.kernel.sizes(list(partition_ids), answers.append)
    rig.run()
    return answers[0]


@pytest.mark.parametrize("lose_index", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_an_epoch_ends_where_the_next_one_begins(lose_index: bool, checkpoint: bool) -> None:
    rig = Rig()
    first = rig.kernel.epoch
    partition_id = rig.kernel.place("t/k").partition_id
    for count in (3, 0, 2):
        for i in range(count):
            rig.publish("t/k", b"%d" % i)
        if checkpoint:
            rig.world.advance(10_000)
        rig.restart(lose_index=lose_index)
    rig.publish("t/k", b"now")
    assert [end_of(rig, partition_id, first + i) for i in range(-1, 5)] == [0, 3, 3, 5, 6, -1]
    rig.kernel.delete_records({partition_id: 4}, None)
    rig.run()
    assert end_of(rig, partition_id, first) == 4, "readers begin there"


def test_epochs_that_the_log_has_nothing_of_are_forgotten() -> None:
    rig = Rig(disk=SimDisk(Random(1)), settings=KernelSettings(
        segment_bytes=SEGMENT_BYTES, default_partitions=1, retention_bytes=2 * SEGMENT_BYTES))
    for _ in range(5):
        rig.publish("t/k", b"1")
        rig.restart()
    turn_over(rig)
    rig.restart()
    begun = list(rig.kernel._state.scan(Kind.BEGUN))
    assert len(begun) == 2, "the one before the log's beginning says where the next begins"
    assert end_of(rig, rig.kernel.place("t/k").partition_id, 1) >= 0


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_partition_has_the_bytes_of_what_can_be_read(checkpoint: bool) -> None:
    rig = Rig()
    rig.kernel.create_topic("t", partitions=1)
    partition_id = rig.kernel.place("t/k").partition_id
    for _ in range(4):
        rig.publish("t/k", b"x" * 1_000)
    if checkpoint:
        rig.world.advance(10_000)
    whole, = sizes(rig, partition_id)
    assert 4_000 < whole < 4_400
    rig.kernel.delete_records({partition_id: 3}, None)
    rig.run()
    assert sizes(rig, partition_id, partition_id + 1) == [whole // 4, 0]
