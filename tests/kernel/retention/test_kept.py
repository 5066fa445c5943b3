"""What somebody needs outlives its segment, read as before; what nobody needs any more goes."""
from __future__ import annotations

from random import Random

import pytest

from gatehouse.kernel.errors import KeptFull, OffsetOutOfRange, StorageFailed
from gatehouse.kernel.groups.group_settings import QueueSettings
from gatehouse.kernel.message import RETAIN, Leased, Record, When
from gatehouse.kernel.records.batch import records_of
from gatehouse.kernel.retention.holders import NONE_NEEDED, Stretch
from gatehouse.kernel.scheduling.queries import Page
from gatehouse.kernel.scheduling.schedule_records import Pending
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Kind
from tests.kernel.batches import batch_of
from tests.kernel.delivery.test_retained import values as retained
from tests.kernel.retention.test_retention import SEGMENT_BYTES, turn_over
from tests.kernel.rig import Rig
from tests.simulation.disk import Crash, CrashAt, CrashKind, SimDisk
from tests.simulation.store import SimStore


class Needing:
    """Somebody who needs single offsets."""

    def __init__(self, offsets: dict[int, set[int]]) -> None:
        self.offsets = offsets

    def needed(self, partition_id: int, start: int, stop: int) -> list[Stretch]:
        return [(offset, offset + 1) for offset in self.offsets.get(partition_id, ()) if start <= offset < stop]

    def first_needed(self, partition_id: int) -> int:
        return min(self.offsets.get(partition_id, ()), default=NONE_NEEDED)


def new_rig(disk: SimDisk | None = None, store: SimStore | None = None, **settings: int) -> Rig:
    return Rig(disk=disk or SimDisk(Random(1)), store=store,
               settings=KernelSettings(**{"segment_bytes": SEGMENT_BYTES, "default_partitions": 1,  # type: ignore[arg-type]
                                          "retention_bytes": 2 * SEGMENT_BYTES, **settings}))


def fetch_kept(rig: Rig, partition_id: int, offset: int, max_bytes: int = 1 << 20) -> list[Record]:
    found: list[Record] = []
    rig.kernel.fetch([(partition_id, offset, max_bytes)], max_bytes, lambda answers: found.extend(
        record for piece in answers[0].pieces for record in records_of(piece)), kept=True)
    rig.run()
    return [record for record in found if record[0] >= offset]


def all_kept(rig: Rig, partition_id: int) -> list[Record]:
    """From the first offset on, a little at a time."""
    found: list[Record] = []
    at = 0
    while at < rig.kernel.bounds(partition_id)[1]:
        some = fetch_kept(rig, partition_id, at, 200)
        if not some:
            break
        found += some
        at = found[-1][0] + 1
    return found


def kept_count(rig: Rig) -> int:
    return len(list(rig.kernel._state.scan(Kind.KEPT)))


@pytest.mark.parametrize("lose_index", [False, True])
def test_needed_records_are_read_as_they_were(lose_index: bool) -> None:
    rig = new_rig()
    partition_id = rig.kernel.place("t/k").partition_id
    for i in range(6):
        rig.publish("t/k", b"%d" % i, b"%d+" % i, headers=[(b"n", b"%d" % i)])
    rig.kernel.append_batch(partition_id, batch_of([(b"k", b"in a batch", ()), (None, None, ())]), None)
    rig.run()
    before = rig.read_partition(partition_id)
    needing = Needing({partition_id: {2, 3, 9, 12, 13}})
    rig.kernel.keep_for(needing)
    turn_over(rig)
    for _ in range(2):
        assert rig.kernel.bounds(partition_id) == (14, 14) and rig.log.segments()[0].base > 0
        assert isinstance(rig.fetch(partition_id, 2).error, OffsetOutOfRange)
        assert all_kept(rig, partition_id) == [before[i] for i in (2, 3, 9, 12, 13)]
        assert [record[0] for record in fetch_kept(rig, partition_id, 4)] == [9, 12, 13]
        rig.restart(lose_index=lose_index)
    assert not rig.damage


def test_reading_goes_on_with_the_log() -> None:
    rig = new_rig()
    partition_id = rig.kernel.place("t/k").partition_id
    rig.kernel.keep_for(Needing({partition_id: {0, 5}}))
    turn_over(rig, address="t/k")
    start, high = rig.kernel.bounds(partition_id)
    assert start > 6
    assert [record[0] for record in all_kept(rig, partition_id)] == [0, 5, *range(start, high)]
    assert [record[0] for record in rig.read_partition(partition_id)] == list(range(start, high))


def test_what_is_settled_goes_and_does_not_come_back() -> None:
    rig = new_rig()
    partition_id = rig.kernel.place("t/k").partition_id
    for i in range(6):
        rig.publish("t/k", b"%d" % i)
    needing = Needing({partition_id: {1, 2, 4}})
    other = Needing({partition_id: {2}})
    rig.kernel.keep_for(needing)
    rig.kernel.keep_for(other)
    turn_over(rig)
    needing.offsets[partition_id] = set()
    rig.kernel.forget_kept(partition_id)
    rig.run()
    assert kept_count(rig) == 3                     # somebody needs 2, and what is before it goes a thousand at a time
    other.offsets[partition_id] = set()
    rig.kernel.forget_kept(partition_id)
    rig.run()
    assert kept_count(rig) == 0
    turn_over(rig)
    for lose_index in (False, True):
        rig.restart(lose_index=lose_index)
        assert kept_count(rig) == 0


def test_what_is_settled_while_it_is_moved_is_not_kept_for_ever() -> None:
    rig = new_rig()
    partition_id = rig.kernel.place("t/k").partition_id
    rig.publish("t/k", b"value")

    class Once(Needing):
        def needed(self, partition_id: int, start: int, stop: int) -> list[Stretch]:
            found = super().needed(partition_id, start, stop)
            if found:
                self.offsets.clear()
            return found

    rig.kernel.keep_for(Once({partition_id: {0}}))
    turn_over(rig)
    assert kept_count(rig) == 0


def test_what_is_kept_of_a_deleted_topic_goes() -> None:
    rig = new_rig()
    partition_id = rig.kernel.place("t/k").partition_id
    rig.publish("t/k", b"value")
    rig.kernel.keep_for(Needing({partition_id: {0}}))
    turn_over(rig)
    assert kept_count(rig) == 1
    rig.kernel.delete_topic("t")
    rig.run()
    assert kept_count(rig) == 0


def test_nothing_new_is_owed_once_kept_bytes_is_reached() -> None:
    rig = new_rig(kept_bytes=2 * SEGMENT_BYTES)
    queue = rig.kernel.groups.declare_queue("q", QueueSettings())
    rig.run()
    placement = rig.kernel.place_queue(queue)
    stored = 0
    with pytest.raises(KeptFull):
        for _ in range(100):
            rig.kernel.append([(placement, b"x" * 3_000, b"\0", 2, 0)], None)
            stored += 1
            turn_over(rig, 2)
    with pytest.raises(KeptFull):
        rig.publish("plant/a", b"1", attributes=RETAIN | 2)
    rig.publish("plant/a", b"1")
    partition_id = queue.first_partition_id
    assert len(all_kept(rig, partition_id)) == stored, "nothing was dropped"


def test_a_queue_outlives_the_log_and_is_consumed_from_what_is_kept() -> None:
    rig = new_rig()
    queue = rig.kernel.groups.declare_queue("q", QueueSettings())
    rig.run()
    placement = rig.kernel.place_queue(queue)
    for i in range(20):
        rig.kernel.append([(placement, b"%d" % i, b"\0", 2, 0)], None)
        rig.run()
    turn_over(rig)
    for lose_index in (False, True):
        rig.restart(lose_index=lose_index)
        queue = rig.kernel.groups.queue("q")
        assert queue is not None
        group = rig.kernel.groups.queue_group(queue)
        leased: list[Leased] = []
        group.pop(10, 60_000, leased.extend)
        rig.run()
        assert [one[6] for one in leased] == [b"%d" % i for i in (range(10, 20) if lose_index else range(10))]
        assert group.ack([one[:3] for one in leased]) == [None] * 10
        rig.run()
    turn_over(rig)
    assert kept_count(rig) == 0


# ---- a crash at every write of the moving

def play(disk: SimDisk, store: SimStore) -> Rig:
    """One entry of a queue, one leased one, one delay, one retained value, and the log turns over them."""
    rig = new_rig(disk, store)
    queue = rig.kernel.groups.declare_queue("q", QueueSettings())
    rig.publish("plant/a", b"retained", attributes=RETAIN | 2)
    rig.kernel.append([(rig.kernel.place_queue(queue), b"light", b"\0", 2, 0)], None)
    rig.publish("t/k", b"0", b"leased", b"2")
    in_a_year = When(rig.world.loop.now_ms() + 365 * 24 * 3_600_000)
    rig.kernel.schedule([(rig.kernel.place("later/x"), b"delayed", b"\0", 2, 0)], [in_a_year], None)
    rig.run()
    return rig


def check(rig: Rig, partition_id: int) -> None:
    assert retained(rig, "#") == {"plant/a": b"retained"}
    pages: list[Page | StorageFailed] = []
    rig.kernel.scheduling.page("/", b"", 10, pages.append)
    rig.run()
    assert not isinstance(pages[0], StorageFailed)
    assert [one.what.value for one in pages[0][0] if isinstance(one.what, Pending)] == [b"delayed"]
    found: list[Leased] = []
    queue = rig.kernel.groups.queue("q")
    assert queue is not None
    rig.kernel.groups.queue_group(queue).pop(10, 1, found.extend)
    rig.run()
    rig.world.advance(1_000)
    assert [one[6] for one in found] == [b"light"]
    assert [record[3] for record in all_kept(rig, partition_id)][:1] == [b"leased"] or \
        [record[3] for record in all_kept(rig, partition_id)][:2] == [b"0", b"leased"]


def turned_over(crash_at: CrashAt | None, kind: CrashKind) -> tuple[SimDisk, range]:
    """The disk, and the numbers of its operations while the log turned over."""
    disk = SimDisk(Random(7))
    store = SimStore(Random(8), disk.operate)
    rig = play(disk, store)
    partition_id = rig.kernel.place("t/k").partition_id
    rig.kernel.keep_for(Needing({partition_id: {1}}))
    disk.crash_at = crash_at
    first = disk.operations + 1
    try:
        turn_over(rig, 14)
    except Crash:
        store.crash(kind)
        disk.crash(kind)
        disk.crash_at = None
        rig.restart()
        rig.kernel.keep_for(Needing({partition_id: {1}}))
        check(rig, partition_id)
        turn_over(rig, 30)
    moving = range(first, disk.operations + 1)
    assert rig.log.segments()[0].base > 0
    check(rig, partition_id)
    rig.kernel.keep_for(Needing({partition_id: {1}}))
    for lose_index in (False, True):
        rig.restart(lose_index=lose_index)
        check(rig, partition_id)
    assert not rig.damage
    return disk, moving


@pytest.mark.parametrize("kind", ["kill", "power"])
def test_a_crash_at_every_write_of_the_moving_loses_nothing(kind: CrashKind) -> None:
    disk, moving = turned_over(None, kind)
    assert sum("kept" in line for line in disk.history) > 3, "something was moved"
    for number in moving:
        turned_over(CrashAt(number, Random(number).choice(("before", "during", "after"))), kind)
