"""What a start cuts off or passes over is in `damaged/` first; that folder is bounded, and costs no start."""
from __future__ import annotations

from random import Random

import pytest

from gatehouse.kernel.log import set_aside
from gatehouse.kernel.log.log import Damage
from gatehouse.kernel.log.segments import SegmentLog
from gatehouse.kernel.log.set_aside import Note
from tests.simulation.disk import FULL, SimDisk

FRAME_BYTES = 32 + 4 + 100


def opened(disk: SimDisk) -> tuple[SegmentLog, list[Damage], list[Note]]:
    damage: list[Damage] = []
    notes: list[Note] = []
    log = SegmentLog(disk, 1 << 20, notes.append)
    list(log.recover(0, 0, damage.append))
    return log, damage, notes


def filled(frames: int) -> SimDisk:
    disk = SimDisk(Random(1))
    log, _, _ = opened(disk)
    for number in range(frames):
        log.append(b"%04d" % number, b"b" * 100)
    log.sync()
    return disk


def contents(disk: SimDisk) -> dict[str, bytes]:
    return {name: disk.open_read(f"damaged/{name}").read(0, 1 << 20) for name in disk.names("damaged")}


def leave_behind_the_end(disk: SimDisk, data: bytes) -> None:
    file = disk.open_append(f"log/{0:020d}.log")
    file.append([data])
    file.sync()


def test_zeros_behind_the_end_are_not_worth_a_word() -> None:
    disk = filled(3)
    leave_behind_the_end(disk, bytes(5_000))
    _, damage, notes = opened(disk)
    assert not damage and not notes and not contents(disk)


def test_a_frame_that_was_never_whole_is_kept_and_is_no_alarm() -> None:
    disk = filled(3)
    torn = disk.open_read(f"log/{0:020d}.log").read(32, FRAME_BYTES - 30)
    leave_behind_the_end(disk, torn + bytes(5_000))
    _, damage, notes = opened(disk)
    assert not damage and [note.is_warning for note in notes] == [False]
    (name, data), = contents(disk).items()
    assert data == torn and name.startswith(f"log-tail-{32 + 3 * FRAME_BYTES:020d}-") and name in notes[0].text
    assert not opened(disk)[2], "it is cut off"


def test_of_tails_the_newest_are_kept() -> None:
    disk = filled(1)
    for number in range(set_aside.MAX_TAILS + 3):
        log, _, _ = opened(disk)
        log.append(b"next", b"")
        log.sync()
        leave_behind_the_end(disk, b"tail %02d" % number)
    opened(disk)
    assert sorted(contents(disk).values()) == [b"tail %02d" % number for number in range(3, set_aside.MAX_TAILS + 3)]


def test_a_range_that_cannot_be_read_is_copied_once() -> None:
    disk = filled(10)
    damaged_at = 32 + 4 * FRAME_BYTES
    disk.flip(f"log/{0:020d}.log", damaged_at + 33)
    for _ in range(3):
        _, damage, _ = opened(disk)
        (name, data), = contents(disk).items()
        assert data == disk.open_read(f"log/{0:020d}.log").read(damaged_at, FRAME_BYTES)
        assert [(one.start, one.end) for one in damage] == [(damaged_at, damaged_at + FRAME_BYTES)]
        assert f"a copy is in damaged/{name}" in damage[0].reason


@pytest.mark.parametrize("bound, copies", [("MAX_FILES", 2), ("MAX_BYTES", 2 * FRAME_BYTES)])
def test_a_full_folder_takes_no_more_and_that_is_said(monkeypatch: pytest.MonkeyPatch, bound: str, copies: int) -> None:
    monkeypatch.setattr(set_aside, bound, copies)
    disk = filled(10)
    for number in (1, 3, 5, 7):
        disk.flip(f"log/{0:020d}.log", 32 + number * FRAME_BYTES + 33)
    _, damage, _ = opened(disk)
    assert ["no copy was made" in one.reason for one in damage] == [False, False, True, True]
    assert len(contents(disk)) == 2
    leave_behind_the_end(disk, b"tail")
    opened(disk)
    assert b"tail" in contents(disk).values(), "tails have room of their own"


def test_a_disk_that_is_full_holds_up_no_start() -> None:
    disk = filled(10)
    disk.flip(f"log/{0:020d}.log", 32 + 33)
    leave_behind_the_end(disk, b"tail")
    disk.fault_on = lambda kind, name: FULL if kind == "append" and name.startswith("damaged/") else None
    log, damage, notes = opened(disk)
    assert not any(contents(disk).values()), "what room there is, is for something better"
    assert "no copy could be made" in damage[0].reason and "no copy could be made" in notes[0].text
    assert log.append(b"and on", b"")


def test_a_copy_that_a_crash_cut_off_is_made_whole() -> None:
    disk = filled(10)
    disk.flip(f"log/{0:020d}.log", 32 + 33)
    opened(disk)
    name, = contents(disk)
    file = disk.open_append(f"damaged/{name}")
    file.truncate(5)
    file.append([b"garbage"])
    opened(disk)
    assert len(contents(disk)[name]) == FRAME_BYTES


def test_what_is_told_of_one_start_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_aside, "MAX_NOTES", 2)
    disk = SimDisk(Random(1))
    log = SegmentLog(disk, 200)
    list(log.recover(0, 0, lambda damage: None))
    for number in range(10):
        log.append(b"%04d" % number, b"b" * 100)
    log.sync()
    for segment in log.segments():
        disk.flip(f"log/{segment.base:020d}.log", 3)
    notes: list[Note] = []
    again = SegmentLog(disk, 200, notes.append)
    assert len(list(again.recover(0, 0, lambda damage: None))) == 10
    assert len(notes) == 2 and again.aside.mended == 10
