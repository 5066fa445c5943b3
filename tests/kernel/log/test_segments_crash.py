"""The log on a disk that forgets: what a killed process left to the system is made durable by the next one."""
from __future__ import annotations

from random import Random

import pytest

from gatehouse.kernel.log.log import Damage, LogFailed, LogFull
from gatehouse.kernel.log.segments import SegmentLog, SegmentReader
from tests.simulation.disk import BROKEN, FULL, Crash, Fault, SimDisk


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


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("failing", ["append", "sync_folder"])
def test_a_segment_that_could_not_be_begun_does_not_come_back(seed: int, failing: str) -> None:
    """What is appended afterwards may still fit in the segment before, at positions that the other one would have
    had."""
    disk = SimDisk(Random(seed))
    log, _ = open_log(disk)
    log.append(b"first", b"x" * 3_000)
    log.sync()
    made: list[str] = []

    def full(kind: str, name: str) -> Fault | None:
        if kind == "make":
            made.append(name)
        return FULL if made and kind == failing else None

    disk.fault_on = full
    with pytest.raises(LogFull):
        log.append(b"large", b"x" * 3_000)
    disk.fault_on = lambda kind, name: None
    position = log.append(b"small", b"y" * 100)
    log.sync()
    disk.crash("power")
    log, heads = open_log(disk)
    assert heads == [b"first", b"small"] and log.read([(position, 0, 100)]) == [b"y" * 100]


def test_a_failed_sync_is_the_end() -> None:
    disk = SimDisk(Random(1))
    log, _ = open_log(disk)
    log.append(b"lost", b"")
    disk.fault_on = lambda kind, name: BROKEN if kind == "sync" else None
    with pytest.raises(LogFailed):
        log.sync()


@pytest.mark.parametrize("at, left", [(35, [b"head 0", b"head 2"]), (40, [b"head 0", b"head 1", b"head 2"])],
                         ids=["head", "body"])
def test_rot_is_reported_and_the_rest_is_found(at: int, left: list[bytes]) -> None:
    """A damaged body costs bytes of messages only: what the head says, offsets and state, is whole."""
    disk = SimDisk(Random(1))
    log, _ = open_log(disk)
    for i in range(3):
        log.append(b"head %d" % i, b"x" * 100)
    log.sync()
    disk.flip("log/00000000000000000000.log", 32 + 138 + at)
    damage: list[Damage] = []
    again = SegmentLog(disk, 4_096)
    assert [frame.head for frame in again.recover(0, 0, damage.append)] == left
    assert [one.is_known for one in damage] == [len(left) == 3]


def test_many_bodies_that_are_torn_are_looked_behind_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looked behind all that follow: a start took hours where a power cut had taken the bodies of a segment."""
    disk = SimDisk(Random(1))
    log = SegmentLog(disk, 1 << 20)
    list(log.recover(0, 0, lambda damage: None))
    positions = [log.append(b"%04d" % i, b"x" * 10) for i in range(200)]
    log.sync()
    for position in positions[:-1]:
        disk.flip("log/00000000000000000000.log", position)
    looked: list[int] = []
    real = SegmentReader.next_frame
    monkeypatch.setattr(SegmentReader, "next_frame", lambda reader, at: (looked.append(at), real(reader, at))[1])
    damage: list[Damage] = []
    assert len(list(SegmentLog(disk, 1 << 20).recover(0, 0, damage.append))) == 200
    assert len(damage) == 199 and len(looked) == 1
