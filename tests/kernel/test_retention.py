"""Retention: segments go, what is owed stays, and nothing comes back."""
from __future__ import annotations

from pathlib import Path

import pytest

from kernel.errors import OffsetOutOfRange
from kernel.retention import CHECK_MS
from kernel.settings import KernelSettings
from kernel.topics import TopicSettings
from tests.kernel.batches import batch_of
from tests.kernel.rig import Rig

SEGMENT_BYTES = 16 << 10


def rig_with(folder: Path, **settings: int) -> Rig:
    return Rig(folder, KernelSettings(**{"segment_bytes": SEGMENT_BYTES, "default_queues": 1, **settings}))  # type: ignore[arg-type]


def turn_over(rig: Rig, frames: int = 40, address: str = "filler/k") -> None:
    """More log than retention allows, with time for its passes."""
    for i in range(frames):
        rig.publish(address, b"%d" % i + b"x" * 3_000)
        rig.world.advance(2_500)


def positions_of(rig: Rig, address: str) -> int:
    return rig.kernel.place(address).queue_id


def test_old_segments_go_and_the_rest_is_read_on(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, retention_bytes=3 * SEGMENT_BYTES)
    turn_over(rig)
    queue_id = positions_of(rig, "filler/k")
    start, high = rig.kernel.bounds(queue_id)
    assert 0 < start < high == 40
    assert isinstance(rig.fetch(queue_id, 0).error, OffsetOutOfRange)
    assert [record[0] for record in rig.read_queue(queue_id)] == list(range(start, high))
    assert sum(segment.size_bytes for segment in rig.log.segments()) <= 4 * SEGMENT_BYTES


def test_a_segment_that_the_index_is_not_complete_to_stays(tmp_path: Path) -> None:
    """Found by the simulator, seed 3: entries that were only in memory lost their bodies."""
    rig = rig_with(tmp_path, retention_bytes=7 * SEGMENT_BYTES, checkpoint_ms=3_600_000)
    for i in range(40):
        rig.publish("t/k", b"%d" % i + b"x" * 3_000)
    rig.world.advance(CHECK_MS)
    queue_id = positions_of(rig, "t/k")
    start, high = rig.kernel.bounds(queue_id)
    assert [record[0] for record in rig.read_queue(queue_id)] == list(range(start, high))
    assert not rig.damage


def test_an_idle_queue_keeps_its_next_offset_when_all_of_it_is_gone(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, retention_bytes=2 * SEGMENT_BYTES)
    rig.publish("idle/k", b"only")
    turn_over(rig)
    for lose_index in (False, True):
        assert rig.kernel.bounds(positions_of(rig, "idle/k")) == (1, 1)
        rig.restart(lose_index=lose_index)
    assert rig.publish("idle/k", b"second")[0][1] == 1


@pytest.mark.parametrize("lose_index", [False, True])
def test_state_outlives_the_segments_it_was_written_to(tmp_path: Path, lose_index: bool) -> None:
    rig = rig_with(tmp_path, retention_bytes=2 * SEGMENT_BYTES)
    topic = rig.kernel.create_topic("t", queues=2, settings=TopicSettings(max_message_bytes=9_999))
    rig.kernel.append_batch(topic.queue_id(0), batch_of([(b"k", b"first", ())], 7, 0), rig.witness)
    once = rig.publish("t/once", b"v", idempotency_key="key")
    rig.kernel.commit_offsets("g", {topic.queue_id(1): (5, b"meta")}, rig.witness)
    turn_over(rig)
    turn_over(rig)
    assert rig.log.segments()[0].base > 0 and rig.log.kept_segments()
    rig.restart(lose_index=lose_index)
    assert rig.kernel.topic("t") == topic
    assert rig.kernel.committed("g") == {topic.queue_id(1): (5, b"meta")}
    assert rig.publish("t/once", b"v", idempotency_key="key") == once
    rig.kernel.append_batch(topic.queue_id(0), batch_of([(b"k", b"first", ())], 7, 0), rig.witness, "repeat")
    rig.run()
    assert rig.witness.stored[-1].positions[0][:2] == (topic.queue_id(0), 0)
    assert rig.kernel.bounds(topic.queue_id(0))[1] + rig.kernel.bounds(topic.queue_id(1))[1] == 2


def test_a_topic_keeps_less_than_the_hub(tmp_path: Path) -> None:
    rig = rig_with(tmp_path)
    rig.kernel.create_topic("t", queues=1, settings=TopicSettings(retention_ms=30_000))
    for i in range(10):
        rig.publish("t/k", b"%d" % i)
        rig.world.advance(10_000)
    start, high = rig.kernel.bounds(positions_of(rig, "t/k"))
    assert high == 10 and 6 <= start <= 8
    rig.restart(lose_index=True)
    assert rig.kernel.bounds(positions_of(rig, "t/k")) == (start, high)
