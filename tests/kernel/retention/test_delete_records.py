"""Records before an offset are given to no reader any more, over restarts too."""
from __future__ import annotations

import pytest

from gatehouse.kernel.errors import OffsetOutOfRange
from tests.kernel.batches import encode_record, wrap
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


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("batches", [[(1000, 2000, 3000, 4000)], [(1000,), (2000,), (3000,), (4000,)],
                                     [(1000, 5000, 3000), (4000,)]])
def test_by_its_time_no_record_is_found_that_was_deleted(batches: list[tuple[int, ...]], restarted: bool) -> None:
    """In one batch, in several, and where a batch is so late for the sake of a record that is deleted."""
    rig = Rig()
    partition_id = rig.kernel.create_topic("t", partitions=1).partition_id(0)
    rig.run()
    for times in batches:
        records = b"".join(encode_record(i, b"k", b"v", delta_ms=time_ms - times[0]) for i, time_ms in enumerate(times))
        rig.kernel.append_batch(partition_id, wrap(records, len(times), base_ms=times[0], max_ms=max(times)), None)
    rig.run()
    rig.kernel.delete_records({partition_id: 2}, None)
    rig.run()
    if restarted:
        rig.restart()
    found: list[tuple[int | None, int]] = []
    for time_ms in (0, 1000, 3500, 6000):
        rig.kernel.offset_for_time(partition_id, time_ms, lambda *answer: found.append(answer))
        rig.run()
    assert found == [(2, 3000), (2, 3000), (3, 4000), (None, -1)]


def test_the_record_with_the_largest_timestamp_is_no_deleted_one() -> None:
    rig = Rig()
    placement = rig.kernel.place("t/k")
    ahead_ms = rig.world.loop.now_ms() + 60_000
    for later_ms in (5, 1, 0):
        rig.kernel.append([(placement, b"v", b"\0", 0, ahead_ms + later_ms)], None)
        rig.run()
    rig.kernel.delete_records({placement.partition_id: 1}, None)
    rig.run()
    found: list[tuple[int | None, int]] = []
    rig.port().offset_of_largest_timestamp(placement.partition_id, lambda *answer: found.append(answer))
    rig.run()
    assert found == [(1, ahead_ms + 1)]


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
