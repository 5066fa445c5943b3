"""Backups of a kernel that goes on: cuts at any time, retention held back, ids that are never given twice."""
from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.kernel.backup.backups import IDLE_MS, MAX_BACKUPS, PIECE_BYTES, Backup, Backups
from gatehouse.kernel.errors import KernelError, StorageFull, TooManyBackups, UnknownBackup
from gatehouse.kernel.log.log import KEPT_BASE
from gatehouse.kernel.log.segments import SegmentLog
from gatehouse.kernel.message import RETAIN
from gatehouse.kernel.recovery.resuming import look_through, resume
from gatehouse.kernel.settings import KernelSettings
from tests.kernel.rig import Rig
from tests.simulation.disk import SimDisk

SEGMENT_BYTES = 16 << 10
RETENTION_BYTES = 3 * SEGMENT_BYTES


def rig_with(**more: int) -> Rig:
    return Rig(disk=SimDisk(Random(1)), settings=KernelSettings(
        **{"segment_bytes": SEGMENT_BYTES, "default_partitions": 1, "retention_bytes": RETENTION_BYTES, **more}))


def backups_of(rig: Rig) -> Backups:
    return rig.kernel.backups(rig.log, lambda: {"beside": b"what lies beside"}, {"name": "rig"})


def begun(rig: Rig, backups: Backups) -> Backup:
    found: list[Backup | None] = []
    backups.begin(lambda backup, error: found.append(backup))
    rig.run()
    (backup,) = found
    assert backup is not None
    return backup


def content(backups: Backups, backup: Backup, name: str) -> bytes:
    file, whole = backup.files[name], b""
    while piece := backups.read(file, len(whole), file.size_bytes):
        whole += piece
    return whole


def copy_of(rig: Rig, backups: Backups, backup: Backup) -> SimDisk:
    """A disk with the backup's segments on it."""
    disk = SimDisk(Random(2))
    for name, file in backup.files.items():
        if file.base is not None:
            disk.open_append(name).append([content(backups, backup, name)])
    return disk


def fill(rig: Rig, frames: int = 40) -> None:
    for i in range(frames):
        rig.publish("filler/k", b"%d" % i + b"x" * 3_000)
        rig.world.advance(2_500)


def test_retention_waits_while_a_backup_is_read_and_goes_on_afterwards() -> None:
    rig = rig_with()
    backups = backups_of(rig)
    backup = begun(rig, backups)
    before = rig.log.segments()[0].base
    for _ in range(3):
        fill(rig, 20)
        backups.find(backup.id)
    assert rig.log.segments()[0].base == before
    backups.end(backup.id)
    rig.world.advance(1)
    fill(rig, 1)
    assert rig.log.segments()[0].base > before
    assert sum(one.size_bytes for one in rig.log.segments()) <= RETENTION_BYTES + SEGMENT_BYTES


def test_a_backup_that_nobody_reads_ends_by_itself() -> None:
    rig = rig_with()
    backups = backups_of(rig)
    backup = begun(rig, backups)
    for _ in range(3):
        rig.world.advance(IDLE_MS - 1)
        assert backups.find(backup.id) is backup
    rig.world.advance(IDLE_MS)
    assert not len(backups)
    with pytest.raises(UnknownBackup):
        backups.find(backup.id)
    with pytest.raises(UnknownBackup):
        backups.end(backup.id)


@pytest.mark.parametrize("step_ms", [-2 * IDLE_MS, 86_400_000])
def test_a_wall_clock_that_was_stepped_ends_a_backup_neither_at_once_nor_later(step_ms: int) -> None:
    rig = rig_with()
    backups = backups_of(rig)
    rig.world.step_wall(step_ms)
    backup = begun(rig, backups)
    rig.world.advance(IDLE_MS - 1)
    assert backups.find(backup.id) is backup
    rig.world.advance(IDLE_MS)
    assert not len(backups)


def test_no_more_backups_at_a_time_than_there_may_be() -> None:
    rig = rig_with()
    backups = backups_of(rig)
    for _ in range(MAX_BACKUPS):
        begun(rig, backups)
    with pytest.raises(TooManyBackups):
        backups.begin(lambda backup, error: None)


def test_what_lies_beside_the_log_is_in_it_and_where_that_fails_retention_is_let_go() -> None:
    rig = rig_with()
    assert content(backups_of(rig), begun(rig, backups_of(rig)), "beside") == b"what lies beside"
    told: list[KernelError | None] = []

    def broken() -> dict[str, bytes]:
        raise OSError("a broken disk")

    rig = rig_with()
    rig.kernel.backups(rig.log, broken, {}).begin(lambda backup, error: told.append(error))
    rig.run()
    assert "a broken disk" in str(told[0])
    before = rig.log.segments()[0].base
    fill(rig)
    assert rig.log.segments()[0].base > before


def test_backups_end_where_the_disk_is_full_and_retention_could_free_some_of_it() -> None:
    rig = rig_with()
    backups = backups_of(rig)
    fill(rig)
    begun(rig, backups)
    for _ in range(20):
        rig.publish("filler/k", bytes(3_000))
    rig.world.advance(20_000)
    assert len(backups), "there is room: nothing is more important"
    assert isinstance(rig.disk, SimDisk)
    rig.disk.space_bytes = rig.disk.used_bytes() + 2_000
    with pytest.raises(StorageFull):
        rig.publish("filler/k", bytes(3_000))
    rig.world.advance(20_000)
    assert not len(backups)


def test_pieces_are_bounded() -> None:
    rig = rig_with(segment_bytes=4 << 20)
    backups = backups_of(rig)
    for _ in range(3):
        rig.publish("t/k", bytes(1 << 20))
    backup = begun(rig, backups)
    file = max(backup.files.values(), key=lambda one: one.size_bytes)
    assert file.size_bytes > PIECE_BYTES
    assert len(backups.read(file, 0, file.size_bytes)) == PIECE_BYTES
    assert backups.read(file, file.size_bytes, 10) == b""


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(("publish", "retain", "wait", "begin", "read", "restart")), min_size=5, max_size=60),
       st.integers(0, 1 << 30))
def test_a_copy_opens_as_the_log_was_at_its_beginning(steps: list[str], seed: int) -> None:
    """Whatever goes on while it is read: what was acknowledged before it began is in it, and nothing behind."""
    random = Random(seed)
    rig = rig_with(retention_bytes=2 * SEGMENT_BYTES)
    backups = backups_of(rig)
    backup: Backup | None = None
    there: list[tuple[int, bytes | None]] = []
    for number, step in enumerate([*steps, "begin"]):
        if step == "publish":
            rig.publish(f"t/k{random.randrange(5)}", b"%d" % number + bytes(random.randrange(6_000)))
        elif step == "retain":
            rig.publish(f"t/r{random.randrange(3)}", b"%d" % number, attributes=2 | RETAIN)
        elif step == "wait":
            rig.world.advance(random.choice((100, 3_000, 20_000)))
        elif step == "restart":
            rig.restart(lose_index=random.random() < 0.3)
            backups, backup = backups_of(rig), None
        elif step == "begin" and (backup is None or not backups.is_running(backup)):
            backup = begun(rig, backups)
            there = [(one[0], one[3]) for one in rig.read_partition(rig.kernel.place("t/k").partition_id)]
    assert backup is not None
    if not backups.is_running(backup):
        backup = begun(rig, backups)
        there = [(one[0], one[3]) for one in rig.read_partition(rig.kernel.place("t/k").partition_id)]
    disk = copy_of(rig, backups, backup)
    other = Rig(disk=disk, settings=rig.settings)
    assert not other.damage
    assert other.kernel.hub == rig.kernel.hub
    assert [(one[0], one[3]) for one in other.read_partition(other.kernel.place("t/k").partition_id)] == there


def test_a_log_that_is_put_back_gives_out_nothing_that_its_hub_gave_out_since() -> None:
    rig = rig_with(retention_bytes=1 << 30)
    backups = backups_of(rig)
    rig.publish("t/k", b"before")
    backup = begun(rig, backups)
    disk = copy_of(rig, backups, backup)
    given_out: set[int] = set()
    epochs = set()
    for _ in range(5):
        for i in range(20):
            rig.publish(f"t{i}/k", b"after")
        given_out |= {position[2] for stored in rig.witness.stored for position in stored.positions or ()}
        epochs.add(rig.kernel.epoch)
        counters = rig.kernel._topics.counters()
        rig.world.advance(60_000)
        rig.restart()
    log = SegmentLog(disk, SEGMENT_BYTES)
    found = look_through(log, rig.damage.append)
    resumed = resume(log, found, backup.cut.at_ms, rig.world.loop.now_ms(), b"another secret of 32 bytes......")
    log.close()
    other = Rig(disk=disk, settings=rig.settings)
    assert other.kernel.hub == rig.kernel.hub
    assert other.kernel.secret == resumed.secret != rig.kernel.secret
    other.publish("new/k", b"restored")
    ids = {position[2] for stored in other.witness.stored for position in stored.positions or ()}
    assert min(ids) > max(given_out)
    assert other.kernel.epoch > max(epochs)
    assert other.kernel._topics.counters() > counters
    assert other.kernel.topic("t0") is None
    assert other.kernel.topic("t") is not None


def test_putting_the_same_backup_back_later_leaves_out_the_more() -> None:
    rig = rig_with()
    rig.publish("t/k", b"before")
    backups = backups_of(rig)
    backup = begun(rig, backups)
    ids = []
    for later_ms in (0, 1_000, 86_400_000, -5_000):
        log = SegmentLog(copy_of(rig, backups, backup), SEGMENT_BYTES)
        found = look_through(log, rig.damage.append)
        ids.append(resume(log, found, backup.cut.at_ms, backup.cut.at_ms + later_ms, bytes(32)).next_id)
    assert ids[0] == ids[3], "a clock that went back leaves out what there is room for at least"
    assert ids[0] - found.next_id >= 1 << 38
    assert ids[1] - ids[0] == 1_000 << 12
    assert ids[2] > ids[1]


def test_kept_segments_are_in_it() -> None:
    rig = rig_with(retention_bytes=2 * SEGMENT_BYTES)
    rig.publish("t/r", b"retained", attributes=2 | RETAIN)
    fill(rig)
    backups = backups_of(rig)
    backup = begun(rig, backups)
    assert any(file.base is not None and file.base >= KEPT_BASE and file.size_bytes > 100
               for file in backup.files.values())
    other = Rig(disk=copy_of(rig, backups, backup), settings=rig.settings)
    values: list[bytes | None] = []
    other.kernel.retained("t/r", "/", lambda found, start, error: values.extend(one.record[3] for one in found))
    other.run()
    assert values == [b"retained"]
