"""Which producers a partition knows: from memory and from the store, and only what is durable."""
from __future__ import annotations

import pytest

from gatehouse.kernel.message import KnownProducer
from gatehouse.kernel.state.state import Kind
from tests.kernel.rig import Rig
from tests.kernel.test_kernel import producer_batch


def known(rig: Rig, partition_id: int) -> list[tuple[int, int, int]]:
    """(producer id, epoch, last sequence)"""
    answers: list[list[KnownProducer]] = []
    rig.port().producers_of(partition_id, answers.append)
    rig.run()
    assert all(one.append_ms > 0 for one in answers[0])
    return [one[:3] for one in answers[0]]


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_producers_are_found_wherever_they_are(checkpoint: bool, restart: bool) -> None:
    rig = Rig()
    topic = rig.kernel.create_topic("t", partitions=3)
    first, second = topic.partition_id(0), topic.partition_id(1)
    for partition_id, producer_id, sequence, count in ((first, 9, 0, 2), (second, 9, 0, 1), (first, 7, 3, 1)):
        rig.kernel.append_batch(partition_id, producer_batch([b"a"] * count, producer_id, sequence), None)
    rig.run()
    if checkpoint:
        rig.world.advance(10_000)
    rig.kernel.append_batch(first, producer_batch([b"b"], 9, 2), None)
    rig.run()
    if restart:
        rig.restart()
    assert known(rig, first) == [(7, 0, 3), (9, 0, 2)]
    assert known(rig, second) == [(9, 0, 0)]
    assert known(rig, topic.partition_id(2)) == []


def test_what_is_not_durable_is_not_shown() -> None:
    rig = Rig()
    partition_id = rig.kernel.create_topic("t", partitions=1).partition_id(0)
    rig.kernel.append_batch(partition_id, producer_batch([b"a"], 9, 0), None)
    rig.run()
    rig.kernel.append_batch(partition_id, producer_batch([b"b"], 9, 1), None)
    rig.kernel.append_batch(partition_id, producer_batch([b"b"], 8, 0), None)
    found = rig.kernel._known_producers._read(partition_id, rig.kernel._state.changed(Kind.PRODUCER))
    assert [one[:3] for one in found] == [(9, 0, 0)]
    rig.run()
    assert known(rig, partition_id) == [(8, 0, 0), (9, 0, 1)]
