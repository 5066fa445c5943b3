"""Ranges of the log that cannot be read: told, stepped over, and nobody waits before them for ever."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.log.log import Damage
from gatehouse.kernel.settings import KernelSettings
from tests.kernel.rig import Rig

VALUE_BYTES = 5_000


def damaged(folder: Path, *numbers: int) -> tuple[Rig, int]:
    """A hub that was started again after these of its ten messages were hit; and their partition."""
    rig = Rig(folder)
    for i in range(10):
        ((partition_id, _, _),) = rig.publish("t/k", b"message %d." % i + bytes(VALUE_BYTES))
    rig.world.advance(5_000)
    (file,) = (folder / "log").iterdir()
    data = bytearray(file.read_bytes())
    for number in numbers:
        data[data.index(b"message %d." % number)] ^= 1
    rig.log.close()
    file.write_bytes(data)
    rig.restart()
    return rig, partition_id


def read_in_small_steps(rig: Rig, partition_id: int) -> list[int]:
    """Offsets as a reader gets them that asks for little at a time and goes on behind what it was given."""
    offsets: list[int] = []
    at, end = rig.kernel.bounds(partition_id)
    while at < end:
        fetched = rig.fetch(partition_id, at, max_bytes=100)
        if not fetched.pieces:
            break
        for piece in fetched.pieces:
            offsets += range(piece.first_offset, piece.first_offset + piece.count)
            at = piece.first_offset + piece.count
    return offsets


@pytest.mark.parametrize("hit", [(0,), (5,), (4, 5, 6), (9,)])
def test_a_reader_gets_past_what_cannot_be_read(tmp_path: Path, hit: tuple[int, ...]) -> None:
    rig, partition_id = damaged(tmp_path, *hit)
    assert read_in_small_steps(rig, partition_id) == [offset for offset in range(10) if offset not in hit]
    assert len({(damage.start, damage.end) for damage in rig.damage}) == len(hit)
    assert all(isinstance(damage, Damage) and "do not match their checksum" in damage.reason for damage in rig.damage)


def test_so_it_is_in_a_file_whose_header_was_written_anew(tmp_path: Path) -> None:
    rig, partition_id = damaged(tmp_path, 5)
    rig.log.close()
    (file,) = (tmp_path / "log").iterdir()
    data = bytearray(file.read_bytes())
    data[10] ^= 1
    file.write_bytes(data)
    rig.damage.clear()
    rig.restart()
    assert read_in_small_steps(rig, partition_id) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert len({(damage.start, damage.end) for damage in rig.damage}) == 1


def test_new_messages_behind_damage_at_the_end_are_read(tmp_path: Path) -> None:
    rig, partition_id = damaged(tmp_path, 8, 9)
    assert rig.fetch(partition_id, 8, 100).pieces == []
    rig.publish("t/k", b"new")
    assert [piece.first_offset for piece in rig.fetch(partition_id, 8, 100).pieces] == [10]


def test_what_retention_takes_while_it_is_read_is_no_damage(tmp_path: Path) -> None:
    rig = Rig(tmp_path, KernelSettings(segment_bytes=20_000, retention_bytes=30_000, recent_bytes=0))
    for _ in range(20):
        ((partition_id, _, _),) = rig.publish("t/k", bytes(VALUE_BYTES))
    rig.world.advance(5_000)
    entries = rig.kernel._reader._index.entries_from(partition_id, 0, 1 << 20,
                                                  1 << 62)  # the reading thread has looked ...
    rig.world.advance(10_000)
    start = rig.kernel.bounds(partition_id)[0]
    assert start > 0
    pieces = rig.kernel._reader._read(entries)                                  # ... and comes to the log too late
    assert [piece.first_offset for piece in pieces] == list(range(start, 20))
    assert not rig.damage
