"""Records before an offset are given to no reader any more, over restarts too."""
from __future__ import annotations

import pytest

from gatehouse.kernel.errors import OffsetOutOfRange
from tests.kernel.rig import Rig


def filled(count: int = 10) -> tuple[Rig, int]:
    rig = Rig()
    rig.kernel.create_topic("t", partitions=2)
    for i in range(count):
        rig.publish("t/k", b"%d" % i)
    return rig, rig.kernel.place("t/k").partition_id


@pytest.mark.parametrize("lose_index", [False, True])
def test_a_partition_begins_where_it_was_cut(lose_index: bool) -> None:
    rig, partition_id = filled()
    rig.kernel.delete_records({partition_id: 4}, rig.witness, "cut")
    assert rig.kernel.bounds(partition_id) == (0, 10), "not before it is durable"
    rig.run()
    assert rig.witness.stored[-1].token == "cut" and rig.witness.stored[-1].error is None
    for _ in range(2):
        assert rig.kernel.bounds(partition_id) == (4, 10)
        assert isinstance(rig.fetch(partition_id, 3).error, OffsetOutOfRange)
        assert [record[0] for record in rig.read_partition(partition_id)] == [4, 5, 6, 7, 8, 9]
        rig.restart(lose_index=lose_index)
    assert rig.publish("t/k", b"next")[0][1] == 10


def test_a_partition_never_begins_behind_its_end_nor_earlier_than_before() -> None:
    rig, partition_id = filled()
    rig.kernel.delete_records({partition_id: 99}, None)
    rig.run()
    assert rig.kernel.bounds(partition_id) == (10, 10)
    rig.kernel.delete_records({partition_id: 2}, None)
    rig.publish("t/k", b"next")
    assert rig.kernel.bounds(partition_id) == (10, 11)
    assert [record[3] for record in rig.read_partition(partition_id)] == [b"next"]


def test_what_arrives_in_the_same_frame_stays() -> None:
    rig, partition_id = filled()
    rig.kernel.delete_records({partition_id: 10}, None)
    rig.publish("t/k", b"beside")
    assert [record[3] for record in rig.read_partition(partition_id)] == [b"beside"]
