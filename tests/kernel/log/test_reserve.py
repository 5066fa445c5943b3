"""Full disks: room that is held back lets retention free some; messages wait, everything else goes on."""
from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest

from gatehouse.kernel.errors import StorageFull
from gatehouse.kernel.log.disk_guard import NoReserve, Reserve, ReserveFile
from gatehouse.kernel.log.log import LogFull
from gatehouse.kernel.settings import KernelSettings
from tests.kernel.rig import Rig
from tests.kernel.sim_reserve import SimReserve
from tests.simulation.disk import SimDisk

SEGMENT_BYTES = 16 << 10
RESERVE_BYTES = 8 << 10


def rig_with(retention_bytes: int, checkpoint_ms: int = 100, reserve: bool = True) -> tuple[Rig, SimDisk, SimReserve]:
    disk = SimDisk(Random(1))
    held = SimReserve(disk, RESERVE_BYTES)
    rig = Rig(disk=disk, reserve=held if reserve else None, settings=KernelSettings(
        segment_bytes=SEGMENT_BYTES, default_partitions=1, retention_bytes=retention_bytes,
        checkpoint_ms=checkpoint_ms))
    return rig, disk, held


def fill_up(rig: Rig, disk: SimDisk, messages: int = 20) -> None:
    """So many messages, and then not a byte more than is there."""
    for i in range(messages):
        rig.publish("t/k", b"%d" % i + bytes(3_000))
    rig.world.advance(200)
    disk.space_bytes = disk.used_bytes()
    with pytest.raises(StorageFull):
        rig.publish("t/k", b"refused" + bytes(3_000))


def wait(rig: Rig, seconds: int) -> None:
    for _ in range(seconds):
        rig.world.advance(1_000)


def is_short(rig: Rig) -> bool:
    return rig.kernel._disk_guard.short


def test_retention_frees_space_on_a_full_disk() -> None:
    rig, disk, held = rig_with(3 * SEGMENT_BYTES)
    fill_up(rig, disk)
    before = len(rig.log.segments())
    wait(rig, 30)
    assert len(rig.log.segments()) < before
    assert held.given_up >= 1 and not is_short(rig)
    assert disk.names("reserve") == ["file"]
    rig.publish("t/k", b"after")
    assert rig.values("t")[-1] == b"after"


def test_without_a_reserve_it_cannot() -> None:
    rig, disk, _ = rig_with(3 * SEGMENT_BYTES, reserve=False)
    fill_up(rig, disk)
    before = len(rig.log.segments())
    wait(rig, 30)
    assert len(rig.log.segments()) == before


def test_where_nothing_may_go_the_reserve_is_kept_and_what_fits_is_taken() -> None:
    rig, disk, held = rig_with(1 << 30)
    fill_up(rig, disk)
    wait(rig, 30)
    assert not held.given_up and not is_short(rig)
    disk.space_bytes += 1_000
    rig.publish("t/k", b"small")
    assert rig.values("t")[-1] == b"small"


def test_people_are_told_once_that_messages_are_refused_and_once_that_they_are_taken_again() -> None:
    rig, disk, _ = rig_with(1 << 30)
    told = rig.told.refusing
    fill_up(rig, disk)
    assert told == [True]
    for _ in range(20):
        disk.space_bytes = disk.used_bytes() + 1_000
        rig.publish("t/k", b"small")
        with pytest.raises(StorageFull):
            rig.publish("t/k", b"refused" + bytes(3_000))
        wait(rig, 1)
    assert told == [True], "a small one that fits is no end of it"
    disk.space_bytes = 1 << 30
    wait(rig, 30)
    assert told == [True], "nobody has tried"
    rig.publish("t/k", b"after")
    wait(rig, 30)
    assert told == [True, False]
    disk.space_bytes = disk.used_bytes()
    with pytest.raises(StorageFull):
        rig.publish("t/k", b"refused" + bytes(3_000))
    assert told == [True, False, True]


def test_a_reserve_that_is_given_up_and_held_again_is_part_of_the_same_refusal() -> None:
    rig, disk, held = rig_with(3 * SEGMENT_BYTES)
    told = rig.told.refusing
    fill_up(rig, disk)
    wait(rig, 30)
    assert held.given_up >= 1 and told[:2] == [True, False] and not rig.kernel._disk_guard.refusing


def test_messages_wait_while_the_reserve_is_given_up_and_acknowledgements_do_not() -> None:
    rig, disk, held = rig_with(1 << 30)
    rig.publish("t/k", b"before")
    rig.kernel._disk_guard.full = True
    done: list[bool] = []
    rig.kernel._disk_guard.make(lambda: done.append(True))
    rig.run()
    assert done == [True] and is_short(rig) and held.given_up == 1
    with pytest.raises(StorageFull, match="no messages are taken"):
        rig.publish("t/k", b"refused")
    with pytest.raises(StorageFull):
        rig.publish("t/k", b"refused", idempotency_key="once")
    partition_id = rig.kernel.place("t/k").partition_id
    rig.kernel.groups.commit_offsets("group", {partition_id: (1, b"")}, rig.witness, None)
    rig.run()
    assert rig.witness.stored[-1].error is None
    assert rig.values("t") == [b"before"]
    wait(rig, 2)
    assert not is_short(rig)
    rig.publish("t/k", b"after")


def test_an_index_that_lags_is_written_first() -> None:
    """Retention drops only what the index is complete to; on a full disk that needs room too."""
    rig, disk, held = rig_with(2 * SEGMENT_BYTES, checkpoint_ms=3_600_000)
    fill_up(rig, disk)
    wait(rig, 3)
    assert held.given_up == 1


def test_a_start_without_room_for_the_reserve_takes_no_messages_until_there_is() -> None:
    rig, disk, held = rig_with(1 << 30)
    rig.publish("t/k", b"before")
    held.give_up()
    disk.space_bytes = disk.used_bytes() + RESERVE_BYTES // 2
    rig.restart()
    assert is_short(rig)
    assert rig.values("t") == [b"before"]
    with pytest.raises(StorageFull):
        rig.publish("t/k", b"refused")
    disk.space_bytes = 1 << 30
    wait(rig, 2)
    rig.publish("t/k", b"after")


def test_a_start_on_a_full_disk_fails_and_from_the_reserve_it_does_not() -> None:
    rig, disk, held = rig_with(3 * SEGMENT_BYTES)
    fill_up(rig, disk)
    with pytest.raises(LogFull):
        rig.restart()
    held.give_up()
    rig.restart()
    assert is_short(rig)
    wait(rig, 30)
    assert not is_short(rig)
    rig.publish("t/k", b"after")


# ---- the file

def test_the_file_is_held_given_up_and_held_again(tmp_path: Path) -> None:
    reserve: Reserve = ReserveFile(tmp_path / "reserve", 1 << 20)
    assert not reserve.give_up()
    for _ in range(2):
        assert reserve.take() and reserve.take()
        assert (tmp_path / "reserve").stat().st_blocks * 512 >= 1 << 20
        assert reserve.give_up() and not (tmp_path / "reserve").exists()


def test_a_file_that_a_crash_left_short_or_with_holes_is_made_anew(tmp_path: Path) -> None:
    reserve = ReserveFile(tmp_path / "reserve", 1 << 20)
    (tmp_path / "reserve").touch()
    os.truncate(tmp_path / "reserve", 1 << 20)
    assert reserve.take()
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= 1 << 20


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_room_leaves_no_file_and_anything_else_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                              number: int) -> None:
    reserve = ReserveFile(tmp_path / "reserve", 1 << 20)

    def refuse(*arguments: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert not reserve.take()
    assert not (tmp_path / "reserve").exists()
    number = errno.EIO
    with pytest.raises(OSError):
        reserve.take()


def test_a_file_system_without_allocation_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert ReserveFile(tmp_path / "reserve", 3 << 19).take()
    assert (tmp_path / "reserve").stat().st_size == 3 << 19


def test_none_is_always_there() -> None:
    assert NoReserve().take() and not NoReserve().give_up()
