"""Copying into a folder: only what is new, whole at every moment, and whatever cuts it off is gone on with."""
from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.backup import copying, manifest
from gatehouse.backup.copying import Copying, Done, open_folder
from gatehouse.backup.manifest import INCOMPLETE, MANIFEST, Copy, Manifest, locked
from gatehouse.backup.restoring import find_backup, verify
from gatehouse.backup.sources import Part, Plan
from gatehouse.exits import Refused

PIECE = 1000


class FakeHub:
    """A hub's files, which grow and go."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.base = 0
        self.segments: dict[str, bytes] = {}
        self.roll()
        self.taken = 0
        self.lineage = "first"

    def roll(self) -> None:
        self.segments[f"log/{self.base:020d}.log"] = b""
        self.base += 100_000

    def grow(self) -> None:
        last = next(reversed(self.segments))
        self.segments[last] += self.random.randbytes(self.random.randrange(5 * PIECE))

    def drop(self) -> None:
        if len(self.segments) > 1:
            del self.segments[next(iter(self.segments))]


class FakeSource:
    """One backup of a fake hub; `budget` is how many pieces it gives before it is gone."""

    def __init__(self, hub: FakeHub, budget: int = 1 << 30) -> None:
        hub.taken += 1
        self.budget = budget
        self.read_bytes = 0
        self.files = {**hub.segments, "catalogue.sqlite": hub.random.randbytes(2 * PIECE + 1)}
        last = next(reversed(hub.segments))
        parts = [Part(name, len(data), name not in (last, "catalogue.sqlite")) for name, data in self.files.items()]
        self.plan = Plan(f"{hub.taken:016x}", {
            "name": "fake", "hub": "aa" * 16, "lineage": hub.lineage, "version": "1", "format": 2, "epoch": 1,
            "next_id": 1, "created": hub.taken, "catalogue": "included"}, parts)

    def read(self, name: str, offset: int, size: int) -> bytes:
        if not self.budget:
            raise ConnectionAbortedError("the hub is gone")
        self.budget -= 1
        piece = self.files[name][offset:offset + min(size, PIECE)]
        self.read_bytes += len(piece)
        return piece


def backed_up(source: FakeSource, folder: Path) -> Done:
    open_folder(folder)
    with locked(folder):
        return Copying(source, folder, lambda size: None).run()


def what_it_holds(folder: Path) -> dict[str, bytes]:
    """The files of the complete backup, checked."""
    found, _ = find_backup(folder)
    verify(folder, found, lambda size: None)
    return {copy.name: (folder / copy.file).read_bytes()[:copy.bytes] for copy in found.files}


@pytest.fixture(autouse=True)
def small_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "OVERLAP_BYTES", PIECE // 2)
    monkeypatch.setattr(copying, "NOTE_BYTES", PIECE)


def test_the_second_backup_copies_what_is_new(tmp_path: Path) -> None:
    hub = FakeHub(Random(1))
    for _ in range(20):
        hub.grow()
    hub.roll()
    hub.grow()
    backed_up(FakeSource(hub), tmp_path)
    before = sum(map(len, hub.segments.values()))
    hub.grow()
    source = FakeSource(hub)
    done = backed_up(source, tmp_path)
    grown = sum(map(len, hub.segments.values())) - before
    assert done.copied_bytes == grown + len(source.files["catalogue.sqlite"])
    assert source.read_bytes - done.copied_bytes <= PIECE // 2
    assert what_it_holds(tmp_path) == source.files
    assert len(list(tmp_path.glob("catalogue-*"))) == 1


def test_what_retention_dropped_goes_from_the_folder_too(tmp_path: Path) -> None:
    hub = FakeHub(Random(1))
    for _ in range(3):
        hub.grow()
        hub.roll()
    backed_up(FakeSource(hub), tmp_path)
    hub.drop()
    source = FakeSource(hub)
    backed_up(source, tmp_path)
    assert what_it_holds(tmp_path) == source.files
    assert len(list((tmp_path / "log").iterdir())) == len(hub.segments)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("grow", "grow", "roll", "drop", "backup", "cut off", "killed")),
                          st.integers(0, 30)), min_size=3, max_size=25), st.integers(0, 1 << 30))
def test_a_crash_at_any_point_leaves_the_complete_one_whole(tmp_path_factory: pytest.TempPathFactory,
                                                            steps: list[tuple[str, int]], seed: int) -> None:
    folder = tmp_path_factory.mktemp("crash") / "backup"
    hub = FakeHub(Random(seed))
    complete: dict[str, bytes] | None = None
    for step, number in steps:
        if step in ("grow", "roll", "drop"):
            getattr(hub, step)()
            continue
        source = FakeSource(hub, number if step == "cut off" else 1 << 30)
        try:
            if step == "killed":
                with killed_at(number):
                    backed_up(source, folder)
            else:
                backed_up(source, folder)
            complete = source.files
        except (Refused, Killed):
            if complete is None and (folder / MANIFEST).exists():
                complete = source.files              # killed behind the moment from which on it holds
            elif complete is not None and find_backup(folder)[0].created == hub.taken:
                complete = source.files
        if complete is not None:
            assert what_it_holds(folder) == complete
    source = FakeSource(hub)
    backed_up(source, folder)
    assert what_it_holds(folder) == source.files
    assert not (folder / INCOMPLETE).exists()


class Killed(BaseException):
    """The process is no more."""


class killed_at:
    """Dies at a call that makes something durable or takes something away."""

    def __init__(self, call: int) -> None:
        self.left = call
        self.patch = pytest.MonkeyPatch()

    def __enter__(self) -> None:
        for holder, name in ((manifest, "sync_folder"), (manifest, "sync_file"), (Path, "replace"), (Path, "unlink")):
            self.patch.setattr(holder, name, self._deadly(getattr(holder, name)))

    def _deadly(self, call):  # type: ignore[no-untyped-def]
        def deadly(*arguments):  # type: ignore[no-untyped-def]
            self.left -= 1
            if self.left < 0:
                raise Killed
            return call(*arguments)
        return deadly

    def __exit__(self, *_: object) -> None:
        self.patch.undo()


def test_a_full_disk_is_told_and_leaves_the_complete_one_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = FakeHub(Random(1))
    hub.grow()
    source = FakeSource(hub)
    backed_up(source, tmp_path)
    hub.grow()
    hub.grow()

    def full(file: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(manifest, "sync_file", full)
    with pytest.raises(Refused, match="is full, .* make room and run the same again"):
        backed_up(FakeSource(hub), tmp_path)
    monkeypatch.undo()
    assert what_it_holds(tmp_path) == source.files


def test_another_hub_is_refused_and_so_is_one_that_was_put_back(tmp_path: Path) -> None:
    hub = FakeHub(Random(1))
    hub.grow()
    backed_up(FakeSource(hub), tmp_path)
    hub.lineage = "second"
    with pytest.raises(Refused, match="another course of this hub"):
        backed_up(FakeSource(hub), tmp_path)
    source = FakeSource(hub)
    source.plan.about["hub"] = "bb" * 16
    with pytest.raises(Refused, match="backups of another hub"):
        backed_up(source, tmp_path)


def test_a_segment_that_is_not_what_it_was_is_not_added_to(tmp_path: Path) -> None:
    """A machine that was set back to a snapshot of itself."""
    hub = FakeHub(Random(1))
    hub.grow()
    backed_up(FakeSource(hub), tmp_path)
    name = next(iter(hub.segments))
    hub.segments[name] = Random(7).randbytes(len(hub.segments[name]) + 10)
    with pytest.raises(Refused, match="is not what the hub had"):
        backed_up(FakeSource(hub), tmp_path)
    hub.segments[name] = hub.segments[name][:10]
    with pytest.raises(Refused, match="is not what the hub had"):
        backed_up(FakeSource(hub), tmp_path)


def test_only_a_folder_for_backups_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(Refused, match="not empty and holds no backup"):
        open_folder(tmp_path)
    empty = tmp_path / "letters" / "deep"
    open_folder(empty)
    assert empty.stat().st_mode & 0o777 == 0o700
    with locked(empty), pytest.raises(Refused, match="at work"), locked(empty):
        pass


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    hub = FakeHub(Random(1))
    hub.grow()
    backed_up(FakeSource(hub), tmp_path)
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in tmp_path.rglob("*") if file.is_file())


@pytest.mark.parametrize("name", ["/etc/passwd", "../log", "log/../../x", "other/x", "log/a/b", "", "."])
def test_a_manifest_names_nothing_outside_its_folder(tmp_path: Path, name: str) -> None:
    copies = (Copy(name, "log/x", 1, 0, True),)
    manifest.write(tmp_path, Manifest("n", "h", "l", "1", 2, 1, 1, 1, "included", copies))
    with pytest.raises(Refused, match="outside its folder"):
        manifest.read(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"gatehouse_backup": 2}', '{"gatehouse_backup": 1}',
                                  '{"gatehouse_backup": 1, "files": [3]}', '{"gatehouse_backup": 1, "files": []}'])
def test_a_manifest_that_makes_no_sense_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(Refused):
        manifest.read(tmp_path)
