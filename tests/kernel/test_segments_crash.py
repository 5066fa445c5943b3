"""The log on a disk that forgets: what a killed process left to the system is made durable by the next one."""
from __future__ import annotations

from random import Random

import pytest

from kernel.segments import SegmentLog
from tests.simulation.disk import Crash, SimDisk


def open_log(disk: SimDisk) -> tuple[SegmentLog, list[bytes]]:
    log = SegmentLog(disk, 4_096)
    return log, [frame.head for frame in log.recover(0, 0, lambda damage: None)]


def die_at_sync_of_folder(kind: str, name: str) -> None:
    if kind == "sync_folder":
        raise Crash(name)


@pytest.mark.parametrize("seed", range(8))
def test_a_segment_whose_name_was_not_synced_before_a_kill(seed: int) -> None:
    """Found by the simulator, seed 1: everything that was acknowledged in it went with its name."""
    disk = SimDisk(Random(seed))
    log, _ = open_log(disk)
    disk.fault_on = die_at_sync_of_folder
    with pytest.raises(Crash):
        for i in range(100):
            log.append(b"%d" % i, b"x" * 1_000)
    disk.crash("kill")
    disk.fault_on = lambda kind, name: None
    log, before = open_log(disk)
    log.append(b"acknowledged", b"")
    log.sync()
    disk.crash("power")
    assert open_log(disk)[1] == [*before, b"acknowledged"]


@pytest.mark.parametrize("seed", range(8))
def test_kept_frames_that_were_not_synced_before_a_kill(seed: int) -> None:
    disk = SimDisk(Random(seed))
    log, _ = open_log(disk)
    log.keep(b"kept", b"")
    disk.crash("kill")
    log, heads = open_log(disk)
    assert heads == [b"kept"]
    log.sync_kept()
    disk.crash("power")
    assert open_log(disk)[1] == [b"kept"]
