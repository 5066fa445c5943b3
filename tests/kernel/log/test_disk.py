"""The real disk: room allocated ahead, which nobody takes for content, and what happens where there is none."""
from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gatehouse.kernel.log.log import Damage
from gatehouse.kernel.log.segments import AHEAD_BYTES, LARGE_BYTES, PIECE_BYTES, RealDisk, SegmentLog

SEGMENT_BYTES = 64 << 10


def frames_of(folder: Path, damage: list[Damage]) -> list[bytes]:
    log = SegmentLog(RealDisk(folder), SEGMENT_BYTES)
    heads = [frame.head for frame in log.recover(0, 0, damage.append)]
    log.close()
    return heads


def sizes(folder: Path) -> list[int]:
    return [file.stat().st_size for file in sorted((folder / "log").iterdir())]


def filled(folder: Path, frames: int) -> SegmentLog:
    """A log with so many frames of a few KB, that has not been closed."""
    log = SegmentLog(RealDisk(folder), SEGMENT_BYTES)
    assert list(log.recover(0, 0, lambda damage: None)) == []
    for number in range(frames):
        log.append(b"head %d" % number, bytes(3_000))
        log.sync()
    return log


@pytest.mark.parametrize("frames", [0, 1, 20, 21, 50])
def test_what_a_crash_leaves_allocated_is_no_damage(tmp_path: Path, frames: int) -> None:
    log = filled(tmp_path, frames)
    assert sizes(tmp_path)[-1] >= AHEAD_BYTES, "there is room ahead"
    assert all(size <= SEGMENT_BYTES for size in sizes(tmp_path)[:-1]), "and none behind what is finished"
    assert sum(segment.size_bytes for segment in log.segments()) < 200_000, "nor is it counted"
    damage: list[Damage] = []
    assert frames_of(tmp_path, damage) == [b"head %d" % number for number in range(frames)]
    assert damage == []
    assert sizes(tmp_path)[-1] <= SEGMENT_BYTES


def test_the_log_goes_on_where_it_was_after_that(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    log = SegmentLog(RealDisk(tmp_path), SEGMENT_BYTES)
    assert len(list(log.recover(0, 0, lambda damage: None))) == 3
    position = log.append(b"head 3", b"body")
    log.sync()
    assert log.read([(position, 0, 4)]) == [b"body"]
    damage: list[Damage] = []
    assert len(frames_of(tmp_path, damage)) == 4 and damage == []


def test_a_close_gives_back_what_was_not_used(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    size = log.segments()[-1].size_bytes
    log.close()
    assert sizes(tmp_path) == [size]


def test_a_torn_frame_before_the_zeros_is_cut_off(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    size = log.segments()[-1].size_bytes
    (file,) = (tmp_path / "log").iterdir()
    with file.open("r+b") as opened:
        opened.seek(size - 1_000)
        opened.write(b"\1" * 10)
    damage: list[Damage] = []
    assert frames_of(tmp_path, damage) == [b"head 0", b"head 1"]
    assert damage == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EOPNOTSUPP, errno.EFBIG])
def test_where_no_room_can_be_allocated_ahead_it_is_written_all_the_same(tmp_path: Path, number: int,
                                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    filled(tmp_path, 30)
    assert all(size <= SEGMENT_BYTES for size in sizes(tmp_path))
    assert len(frames_of(tmp_path, [])) == 30


@pytest.mark.parametrize("short", [False, True], ids=["whole", "short-writes"])
def test_what_is_large_goes_to_the_disk_piece_by_piece(tmp_path: Path, short: bool,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """The system is told of each piece, and of all of it once it is synced; the file is the same as of one write, also
    where the system takes less at a time."""
    told: list[tuple[int, int]] = []
    write = os.pwritev

    def advise(descriptor: int, start: int, size: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        told.append((start, size))

    def write_less(descriptor: int, parts: list[bytes], at: int) -> int:
        return write(descriptor, [memoryview(parts[0])[:1 + len(parts[0]) // 2]], at)

    monkeypatch.setattr(os, "posix_fadvise", advise)
    if short:
        monkeypatch.setattr(os, "pwritev", write_less)
    body = os.urandom(LARGE_BYTES + PIECE_BYTES // 2)
    file = RealDisk(tmp_path).open_append("file")
    file.append([b"before"])
    file.sync()
    assert not told, "what is small is written at once, and stays"
    file.append([b"envelope", b"", body])
    assert [size for _, size in told] == [8, *[PIECE_BYTES] * (LARGE_BYTES // PIECE_BYTES), PIECE_BYTES // 2]
    assert all(start == 6 + sum([size for _, size in told[:at]]) for at, (start, _) in enumerate(told))
    told.clear()
    file.append([b"behind"])
    file.sync()
    file.sync()
    assert told == [(6, 8 + len(body) + 6)], "all of it, once"
    file.close()
    assert (tmp_path / "file").read_bytes() == b"".join([b"beforeenvelope", body, b"behind"])
