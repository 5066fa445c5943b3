"""A disk that is full, fails or rots under the whole kernel: what is answered, what is stored, what goes on."""
from __future__ import annotations

from random import Random

import pytest

from gatehouse.kernel.errors import StorageFailed, StorageFull
from gatehouse.kernel.settings import KernelSettings
from tests.kernel.batches import batch_of
from tests.kernel.rig import Rig
from tests.simulation.disk import BROKEN, FULL, Fault, SimDisk

PAUSE_MS = 5_000         # enough for a checkpoint


def new_rig(**settings: int) -> tuple[Rig, SimDisk]:
    disk = SimDisk(Random(1))
    return Rig(disk=disk, settings=KernelSettings(**{"segment_bytes": 1 << 20, "default_partitions": 1,
                                                     **settings})), disk  # type: ignore[arg-type]


def failing(kind: str, fault: Fault) -> object:
    return lambda of, name: fault if of == kind else None


@pytest.mark.parametrize("kind", ["append", "make", "sync_folder"])
def test_a_full_disk_refuses_and_goes_on_when_there_is_space(kind: str) -> None:
    rig, disk = new_rig(segment_bytes=8 << 10)
    rig.publish("t/k", b"before" + b"x" * 5_000)
    producer = batch_of([(b"k", b"batch", ())], 5, 0)
    partition_id = rig.kernel.place("t/k").partition_id
    disk.fault_on = failing(kind, FULL)  # type: ignore[assignment]
    rig.kernel.append_batch(partition_id, producer, rig.witness, "batch")
    with pytest.raises(StorageFull):
        rig.publish("t/k", b"x" * 5_000, b"second half", idempotency_key="key")
    with pytest.raises(StorageFull):
        rig.publish("new/k", b"x" * 5_000)
    assert rig.kernel.topic("new") is None and [value[:6] for value in rig.values("t") if value] == [b"before"]
    disk.fault_on = lambda of, name: None
    rig.kernel.append_batch(partition_id, producer, rig.witness, "again")
    rig.publish("t/k", b"other", idempotency_key="key")
    rig.publish("new/k", b"new")
    for lose_index in (False, True):
        found = [(record[0], (record[3] or b"")[:6]) for record in rig.read("t")]
        assert found == [(0, b"before"), (1, b"batch"), (2, b"other")]
        assert rig.values("new") == [b"new"]
        rig.restart(lose_index=lose_index)


@pytest.mark.parametrize("kind", ["append", "sync"])
def test_after_any_other_failure_nothing_is_answered(kind: str) -> None:
    """A failed fdatasync is not tried again: the system may have let go of the data, and the next one would succeed."""
    rig, disk = new_rig()
    rig.publish("t/k", b"before")
    disk.fault_on = failing(kind, BROKEN)  # type: ignore[assignment]
    placement = rig.kernel.place("t/k")
    answered = len(rig.witness.stored)
    rig.kernel.append([(placement, b"lost", b"\0", 0, 0)], rig.witness)
    rig.world.run()
    assert len(rig.fatal) == 1
    disk.fault_on = lambda of, name: None
    rig.kernel.append([(placement, b"too late", b"\0", 0, 0)], rig.witness)
    rig.world.run()
    rig.world.advance(PAUSE_MS)
    assert len(rig.witness.stored) == answered and rig.kernel.bounds(placement.partition_id) == (0, 1)
    disk.crash("power")
    rig.fatal.clear()
    rig.restart()
    assert (rig.values("t") + [b""])[0] == b"before"


def test_a_failed_read_is_answered_and_reading_goes_on() -> None:
    rig, disk = new_rig(recent_bytes=0)
    rig.publish("t/k", b"value")
    partition_id = rig.kernel.place("t/k").partition_id
    disk.read_fault = BROKEN
    assert isinstance(rig.fetch(partition_id).error, StorageFailed)
    disk.read_fault = None
    assert rig.values("t") == [b"value"]


def test_a_rotten_record_is_left_out_and_reported() -> None:
    rig, disk = new_rig(recent_bytes=0)
    for value in (b"first", b"second", b"third"):
        rig.publish("t/k", value)
    name = "log/00000000000000000000.log"
    data = disk.open_read(name).read(0, 1 << 20)
    disk.flip(name, data.index(b"second"))
    partition_id = rig.kernel.place("t/k").partition_id
    fetched = rig.fetch(partition_id)
    assert [piece.first_offset for piece in fetched.pieces] == [0, 2] and fetched.error is None
    assert len(rig.damage) == 1 and "offsets 1 to 1" in rig.damage[0].reason


def test_a_full_disk_does_not_stop_retention_for_good() -> None:
    rig, disk = new_rig(segment_bytes=16 << 10, retention_bytes=32 << 10)
    rig.kernel.create_topic("kept", partitions=1)
    for i in range(12):
        rig.publish("t/k", b"%d" % i + b"x" * 3_000)
    disk.fault_on = lambda of, name: FULL if of == "append" and name.startswith("kept") else None
    rig.world.advance(PAUSE_MS)
    rig.world.advance(PAUSE_MS)
    rig.world.advance(PAUSE_MS)
    assert rig.kernel.statistics()["dropped_segments_total"] == 0
    disk.fault_on = lambda of, name: None
    rig.world.advance(2 * PAUSE_MS)
    assert rig.kernel.statistics()["dropped_segments_total"] > 0 and not rig.fatal
    rig.restart(lose_index=True)
    assert rig.kernel.topic("kept") is not None
