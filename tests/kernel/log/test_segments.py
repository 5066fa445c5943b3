"""The log in files: what was synced is found again; what was torn or rotted is cut off or reported."""
from __future__ import annotations

import errno
from pathlib import Path

import pytest

from gatehouse.kernel.log.log import KEPT_BASE, Damage, Log, LogFailed, LogFull
from gatehouse.kernel.log.memory_log import MemoryLog
from gatehouse.kernel.log.segments import RealDisk, SegmentChain, SegmentLog


def open_log(root: Path, segment_bytes: int = 4096) -> tuple[SegmentLog, list[bytes], list[Damage]]:
    log = SegmentLog(RealDisk(root), segment_bytes)
    damage: list[Damage] = []
    heads = [frame.head for frame in log.recover(0, 0, damage.append)]
    return log, heads, damage


def segment_file(root: Path, n: int) -> Path:
    return sorted((root / "log").iterdir())[n]


@pytest.fixture(params=["files", "memory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    made: Log = SegmentLog(RealDisk(tmp_path), 4096) if request.param == "files" else MemoryLog(10)
    list(made.recover(0, 0, lambda damage: None))
    return made


def test_bodies_are_read_by_position_and_offset(log: Log) -> None:
    positions = [log.append(b"head", b"body-%03d" % i) for i in range(200)]
    log.sync()
    assert positions == sorted(positions)
    assert log.read([(positions[7], 0, 8), (positions[150], 5, 3)]) == [b"body-007", b"150"]
    assert positions[-1] < log.end()


def test_segments_cover_every_position_and_the_oldest_can_be_dropped(log: Log) -> None:
    positions = [log.append(b"h%d" % i, b"x" * 100) for i in range(100)]
    segments = log.segments()
    assert len(segments) > 3
    assert all(any(s.base <= p < s.end for s in segments) for p in positions)
    in_first = [frame.head for frame in log.heads(segments[0])]
    assert in_first and in_first == [b"h%d" % i for i in range(len(in_first))]
    log.drop(segments[0])
    assert log.segments() == segments[1:]
    assert log.read([(positions[0], 0, 100)]) == [b""]
    assert log.read([(positions[-1], 0, 100)]) == [b"x" * 100]


def test_a_frame_without_a_body_lies_in_its_own_segment(log: Log) -> None:
    positions = [log.append(b"state only %d" % i + b"x" * 500, b"") for i in range(40)]
    log.sync()
    segments = log.segments()
    assert len(segments) > 3
    found = {frame.position: segment for segment in segments for frame in log.heads(segment)}
    assert sorted(found) == positions
    for position, segment in found.items():
        assert segment.base <= position < segment.end
        assert [one for one in segments if one.base <= position < one.end] == [segment]


def test_kept_frames_have_their_own_chain(log: Log) -> None:
    kept = log.keep(b"k", b"kept body")
    log.sync_kept()
    assert kept >= KEPT_BASE > log.append(b"m", b"main body")
    assert log.read([(kept, 5, 4)]) == [b"body"]


def test_every_frame_is_found_again(tmp_path: Path) -> None:
    log, heads, _ = open_log(tmp_path)
    assert heads == []
    written = [b"head %d" % i for i in range(300)]
    for head in written:
        log.append(head, b"b" * 50)
    log.sync()
    end = log.end()
    log.close()
    again, heads, damage = open_log(tmp_path)
    assert heads == written and not damage and again.end() == end


def test_replay_begins_where_it_is_asked_to(tmp_path: Path) -> None:
    log, _, _ = open_log(tmp_path)
    for i in range(100):
        log.append(b"old %d" % i, b"b" * 100)
    start = log.end()
    log.append(b"new", b"b")
    log.sync()
    log.close()
    again = SegmentLog(RealDisk(tmp_path), 4096)
    assert [frame.head for frame in again.recover(start, 0, lambda damage: None)] == [b"new"]


@pytest.mark.parametrize("lost", [1, 5, 49, 60, 81])
def test_a_torn_last_frame_is_cut_off(tmp_path: Path, lost: int) -> None:
    log, _, _ = open_log(tmp_path, 1 << 20)
    for i in range(10):
        log.append(b"h%d" % i, b"b" * 48)                  # 82 bytes a frame with its envelope
    log.sync()
    log.close()
    path = segment_file(tmp_path, 0)
    path.write_bytes(path.read_bytes()[:-lost])
    again, heads, damage = open_log(tmp_path, 1 << 20)
    assert heads == [b"h%d" % i for i in range(9)] and not damage
    position = again.append(b"after", b"new body")
    again.sync()
    again.close()
    last, heads, _ = open_log(tmp_path, 1 << 20)
    assert heads[-1] == b"after" and last.read([(position, 0, 8)]) == [b"new body"]


def test_a_damaged_frame_in_the_middle_is_reported_and_the_rest_served(tmp_path: Path) -> None:
    log, _, _ = open_log(tmp_path, 1 << 20)
    for i in range(10):
        log.append(b"h%d" % i, b"b" * 48)
    log.sync()
    log.close()
    path = segment_file(tmp_path, 0)
    data = bytearray(path.read_bytes())
    data[32 + 82 * 4 + 33] ^= 0x10                         # one bit of the fifth frame's head
    path.write_bytes(data)
    _, heads, damage = open_log(tmp_path, 1 << 20)
    assert heads == [b"h%d" % i for i in range(10) if i != 4]
    assert [(d.start, d.end) for d in damage] == [(32 + 82 * 4, 32 + 82 * 5)]


def test_a_segment_whose_header_never_reached_the_disk_is_begun_anew(tmp_path: Path) -> None:
    log, _, _ = open_log(tmp_path, 4096)
    for i in range(100):
        log.append(b"h%d" % i, b"b" * 100)
    log.sync()
    end = log.end()
    log.close()
    (tmp_path / "log" / f"{end:020d}.log").write_bytes(b"GATE")
    again, heads, damage = open_log(tmp_path, 4096)
    assert len(heads) == 100 and not damage and again.end() == end


class FailingFile:
    """An append file that writes half and then fails."""

    def __init__(self, real: object, error: int) -> None:
        self.real, self.error = real, error

    def append(self, parts: list[bytes]) -> None:
        self.real.append([parts[0]])  # type: ignore[attr-defined]
        raise OSError(self.error, "injected")

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)


def break_writes(log: SegmentLog, error: int) -> None:
    chain = log._main
    assert isinstance(chain, SegmentChain)
    chain._file = FailingFile(chain._file, error)  # type: ignore[assignment]


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    log, _, _ = open_log(tmp_path, 1 << 20)
    log.append(b"before", b"body")
    end = log.end()
    real = log._main._file
    break_writes(log, errno.ENOSPC)
    with pytest.raises(LogFull):
        log.append(b"lost", b"body")
    assert log.end() == end
    log._main._file = real
    log.append(b"after", b"body")
    log.sync()
    log.close()
    assert open_log(tmp_path, 1 << 20)[1] == [b"before", b"after"]


def test_any_other_write_error_is_the_end(tmp_path: Path) -> None:
    log, _, _ = open_log(tmp_path)
    break_writes(log, errno.EIO)
    with pytest.raises(LogFailed):
        log.append(b"lost", b"body")
