"""Names and headers of segments are not believed: frames are. Nothing that a frame says is lost, nothing is deleted."""
from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from gatehouse.kernel.log.log import KEPT_BASE, Damage
from gatehouse.kernel.log.segments import SEGMENT_HEADER_BYTES, RealDisk, SegmentLog, encode_header
from gatehouse.kernel.log.set_aside import Note
from tests.simulation.disk import SimDisk

SEGMENT_BYTES = 4_096
FRAMES = [b"head %d" % number for number in range(100)]


class Opened:
    """A log, what it replayed and what it told."""

    def __init__(self, root: Path, start: int = 0) -> None:
        self.damage: list[Damage] = []
        self.notes: list[Note] = []
        self.log = SegmentLog(RealDisk(root), SEGMENT_BYTES, self.notes.append)
        self.heads = [frame.head for frame in self.log.recover(start, 0, self.damage.append)]


def filled(root: Path) -> list[Path]:
    """A log of several segments; their files."""
    log = Opened(root).log
    for head in FRAMES:
        log.append(head, b"b" * 100)
        log.keep(head, b"")
    log.sync()
    log.sync_kept()
    log.close()
    return sorted((root / "log").iterdir())


def flip(file: Path, at: int, bit: int = 3) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bit
    file.write_bytes(data)


@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("at", range(0, 32, 3))
def test_a_flipped_bit_in_a_header_costs_nothing(tmp_path: Path, which: int, at: int) -> None:
    files = filled(tmp_path)
    flip(files[which], at)
    opened = Opened(tmp_path)
    assert opened.heads == FRAMES * 2 and not opened.damage
    assert [note.is_warning for note in opened.notes] == [True] and files[which].name in opened.notes[0].text
    position = opened.log.append(b"and on", b"body")
    opened.log.sync()
    assert opened.log.read([(position, 0, 4)]) == [b"body"]
    opened.log.close()
    assert files[which].read_bytes()[:32] == encode_header(int(files[which].stem)), "it is written anew"
    again = Opened(tmp_path)
    assert again.heads == [*FRAMES, *FRAMES, b"and on"] and not again.notes


def test_so_it_is_in_the_kept_chain(tmp_path: Path) -> None:
    filled(tmp_path)
    for file in (tmp_path / "kept").iterdir():
        flip(file, 17)
    opened = Opened(tmp_path)
    assert opened.heads == FRAMES * 2 and not opened.damage


def test_a_segment_whose_first_frame_is_damaged_too_is_read_from_the_second(tmp_path: Path) -> None:
    file = filled(tmp_path)[-1]
    flip(file, 1)
    flip(file, SEGMENT_HEADER_BYTES)
    opened = Opened(tmp_path)
    assert len(opened.heads) == 2 * len(FRAMES) - 1 and len(opened.damage) == 1
    assert "a copy is in damaged/log-range-" in opened.damage[0].reason


@pytest.mark.parametrize("content", [b"", b"GATE", bytes(4_000), b"\0" * 8 + b"\1" * 24])
def test_a_segment_that_a_crash_cut_off_is_begun_anew_where_it_is(tmp_path: Path, content: bytes) -> None:
    filled(tmp_path)
    end = Opened(tmp_path).log.end()
    file = tmp_path / "log" / f"{end + 1:020d}.log"
    file.write_bytes(content)
    inode = file.stat().st_ino
    opened = Opened(tmp_path)
    assert opened.heads == FRAMES * 2 and not opened.damage and not opened.notes
    opened.log.append(b"and on", b"body")
    opened.log.sync()
    opened.log.close()
    assert file.stat().st_ino == inode and not (tmp_path / "damaged").exists()
    assert Opened(tmp_path).heads == [*FRAMES, *FRAMES, b"and on"]


def test_garbage_where_a_new_segment_was_to_be_is_kept(tmp_path: Path) -> None:
    filled(tmp_path)
    end = Opened(tmp_path).log.end()
    file = tmp_path / "log" / f"{end + 1:020d}.log"
    file.write_bytes(b"garbage" * 10)
    opened = Opened(tmp_path)
    assert opened.heads == FRAMES * 2 and not opened.damage
    assert [note.is_warning for note in opened.notes] == [False]
    kept, = (tmp_path / "damaged").iterdir()
    assert kept.read_bytes() == b"garbage" * 10
    opened.log.close()
    assert file.read_bytes() == encode_header(end + 1)


@pytest.mark.parametrize("name", ["notes.txt", "1.log", "abc.log", ".log", "0" * 19 + "x.log", "9" * 20 + ".log",
                                  "٠" * 20 + ".log", "00000000000000000000.log.bak", f"{5:020d}.log"])
@pytest.mark.parametrize("content", [b"", b"whatever this is"])
def test_what_else_lies_in_the_folder_stops_nothing(tmp_path: Path, name: str, content: bytes) -> None:
    filled(tmp_path)
    (tmp_path / "log" / name).write_bytes(content)
    opened = Opened(tmp_path)
    assert opened.heads == FRAMES * 2
    opened.log.append(b"and on", b"body")
    opened.log.sync()
    opened.log.close()
    assert (tmp_path / "log" / name).read_bytes() == content, "it stays as it is"
    assert Opened(tmp_path).heads == [*FRAMES, *FRAMES, b"and on"]


@pytest.mark.parametrize("content", [b"", b"garbage" * 10])
def test_no_name_leads_the_log_out_of_its_positions(tmp_path: Path, content: bytes) -> None:
    filled(tmp_path)
    (tmp_path / "log" / f"{KEPT_BASE - 100:020d}.log").write_bytes(content)
    opened = Opened(tmp_path)
    position = 0
    for _ in range(100):
        position = opened.log.append(b"and on", b"body" * 100)
    assert position < 1 << 40 and opened.log.read([(position, 0, 4)]) == [b"body"]


@pytest.mark.parametrize("by", [1, 100, 1 << 40, 1 << 60])
def test_a_copy_of_a_segment_under_another_name_is_moved_away_whole(tmp_path: Path, by: int) -> None:
    files = filled(tmp_path)
    content = files[0].read_bytes()
    (tmp_path / "log" / f"{int(files[-1].stem) + by:020d}.log").write_bytes(content)
    opened = Opened(tmp_path)
    assert opened.heads == FRAMES * 2
    assert len(opened.damage) + len(opened.notes) == 1
    moved, = (tmp_path / "damaged").iterdir()
    assert moved.read_bytes() == content
    opened.log.append(b"and on", b"body")
    opened.log.sync()
    opened.log.close()
    assert Opened(tmp_path).heads == [*FRAMES, *FRAMES, b"and on"]


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_segment_without_one_whole_frame_is_a_loss_and_a_stray_file_is_none(tmp_path: Path, rebuilt: bool) -> None:
    files = filled(tmp_path)
    size = files[1].stat().st_size
    files[1].write_bytes(b"x" * size)
    (tmp_path / "log" / f"{int(files[0].stem) + 5:020d}.log").write_bytes(b"a stray file" * 10)
    opened = Opened(tmp_path, 0 if rebuilt else int(files[-1].stem))
    assert [(damage.start, damage.end) for damage in opened.damage] == [(int(files[1].stem), int(files[1].stem) + size)]
    assert [note.is_warning for note in opened.notes] == [True] and "5.log" in opened.notes[0].text
    assert {file.read_bytes() for file in (tmp_path / "damaged").iterdir()} == {b"x" * size, b"a stray file" * 10}


def test_a_message_full_of_the_frames_first_bytes_does_not_hold_up_the_search(tmp_path: Path) -> None:
    """It was looked for by reading a mebibyte anew at each of them: some 64 GiB here."""
    log = SegmentLog(RealDisk(tmp_path), 1 << 20)
    list(log.recover(0, 0, lambda damage: None))
    log.append(b"head", b"GHF1" * 250_000)
    log.append(b"next", b"")
    log.sync()
    log.close()
    flip(next((tmp_path / "log").iterdir()), SEGMENT_HEADER_BYTES)
    assert Opened(tmp_path).heads == [b"next"]


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_while_a_header_is_written_anew_is_no_harm(seed: int) -> None:
    for number in range(1, 12):
        disk = SimDisk(Random(seed))
        log = SegmentLog(disk, SEGMENT_BYTES)
        list(log.recover(0, 0, lambda damage: None))
        for head in FRAMES[:40]:
            log.append(head, b"b" * 100)
        log.sync()
        disk.flip(f"log/{log.segments()[-1].base:020d}.log", seed * 2, seed % 8)
        disk.crash_after(number, "during" if seed % 2 else "after")
        for _ in range(2):
            heads = []
            try:
                heads = [frame.head for frame in SegmentLog(disk, SEGMENT_BYTES).recover(0, 0, lambda damage: None)]
            except BaseException as error:
                assert type(error).__name__ == "Crash", error
            disk.crash("power")
        assert heads == FRAMES[:40]
