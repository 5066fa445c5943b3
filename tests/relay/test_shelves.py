"""A meeting point's shelves: what is held is there after a kill, what is cut off is cut away, what is taken is gone."""
from __future__ import annotations

import random
from pathlib import Path

import pytest

from gatehouse.relay.shelves import FILE_BYTES, DiskShelf, DiskShelves
from gatehouse.relay.spools import Letter, NamedWay
from tests.relay.network import at_once

SENDER = b"s" * 16


def shelf(folder: Path, work=at_once) -> DiskShelf:
    made = DiskShelf(folder / "way", work, random.Random(1).randbytes)
    made.load()
    return made


def keep(on: DiskShelf, *payloads: bytes) -> list[bool]:
    held: list[bool] = []
    for payload in payloads:
        on.keep(Letter(SENDER, "plant", payload, held.append), 1_000)
    return held


def read(of: DiskShelf) -> list[bytes]:
    found: list[bytes] = []
    of.read(list(of.entries), lambda letters: found.extend(letters or []))
    return found


def test_what_is_held_is_there_after_a_kill(tmp_path: Path) -> None:
    first = shelf(tmp_path)
    assert keep(first, b"a", b"bb", b"") == [True, True, True]
    again = shelf(tmp_path)
    assert (again.id, read(again)) == (first.id, [b"a", b"bb", b""])
    assert list(again.entries) == list(first.entries)
    assert again.used_bytes == first.used_bytes and not first.unwritten_bytes
    assert [(entry.number, entry.sender, entry.topic, entry.kept_ms) for entry in again.entries] == [
        (number, SENDER, "plant", 1_000) for number in range(3)]
    keep(again, b"c")
    assert read(shelf(tmp_path)) == [b"a", b"bb", b"", b"c"]


@pytest.mark.parametrize("lost", [1, 5, 40])
def test_what_is_cut_off_at_the_end_is_cut_away(tmp_path: Path, lost: int) -> None:
    keep(shelf(tmp_path), b"first", b"x" * 20)
    file, = (tmp_path / "way").glob("*.letters")
    file.write_bytes(file.read_bytes()[:-lost])
    again = shelf(tmp_path)
    assert read(again) == [b"first"]
    keep(again, b"next")
    assert read(shelf(tmp_path)) == [b"first", b"next"]


def test_a_flipped_bit_ends_a_file(tmp_path: Path) -> None:
    keep(shelf(tmp_path), b"first", b"second")
    file, = (tmp_path / "way").glob("*.letters")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert read(shelf(tmp_path)) == [b"first"]


def test_files_go_with_their_last_letter(tmp_path: Path) -> None:
    on = shelf(tmp_path)
    keep(on, bytes(FILE_BYTES), b"in the next file", b"too")
    files = sorted((tmp_path / "way").glob("*.letters"))
    assert len(files) == 2
    cost = on.entries[0].cost
    assert on.take(1) == cost and sorted((tmp_path / "way").glob("*.letters")) == files[1:]
    on.take(99)
    assert not list((tmp_path / "way").glob("*.letters")) and not on.used_bytes
    keep(on, b"again")
    assert read(shelf(tmp_path)) == [b"again"]


def test_a_shelf_that_is_cleared_has_another_id(tmp_path: Path) -> None:
    on = shelf(tmp_path)
    keep(on, b"a")
    before = on.id
    on.clear()
    assert on.id != before and not on.entries and not on.used_bytes
    assert shelf(tmp_path).id == on.id and not shelf(tmp_path).entries


def test_what_cannot_be_written_is_not_held(tmp_path: Path) -> None:
    on = shelf(tmp_path)
    keep(on, b"a")
    held: list[bool] = []

    def fails(job, then) -> None:
        then(OSError("no room"))

    on._work = fails
    on.keep(Letter(SENDER, "plant", b"b", held.append), 1_000)
    assert held == [False] and "no room" in on.fault
    on._work = at_once
    assert keep(on, b"c") == [True]
    assert read(shelf(tmp_path)) == [b"a", b"c"]


def test_nothing_is_held_before_the_disk_has_it(tmp_path: Path) -> None:
    jobs = []
    on = shelf(tmp_path, lambda job, then: jobs.append((job, then)))
    held = keep(on, b"a", b"b", b"c")
    assert held == [] and on.unwritten_bytes
    at_once(*jobs.pop(0))
    assert held == [True], "the others are written together"
    at_once(*jobs.pop(0))
    assert held == [True] * 3 and not jobs and not on.unwritten_bytes


def test_shelves_of_ways_that_are_no_more_are_removed(tmp_path: Path) -> None:
    shelves = DiskShelves(tmp_path, at_once, random.Random(1).randbytes)
    ways = [NamedWay("a", "b"), NamedWay("b", "a")]
    for way in ways:
        keep(shelves.open(way), b"x")
    (tmp_path / "not ours").mkdir()
    shelves.keep_only({ways[0]})
    assert [len(shelves.open(way).entries) for way in ways] == [1, 0]
    assert (tmp_path / "not ours").is_dir()
