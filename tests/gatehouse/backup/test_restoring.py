"""Restoring: checked first, into an empty folder, whole or not at all."""
from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from gatehouse import exits
from gatehouse.backup import restoring
from gatehouse.backup.copying import Copying, open_folder
from gatehouse.backup.restoring import find_backup, restore, verify
from gatehouse.backup.sources import stopped_hub
from gatehouse.datadir import DataDirError, open_data_dir
from gatehouse.exits import Refused
from gatehouse.kernel.log.log import LogFull
from gatehouse.kernel.log.segments import RealDisk, SegmentLog
from gatehouse.kernel.recovery.resuming import look_through
from tests.gatehouse.backup.test_copying import FakeHub, FakeSource, backed_up
from tests.kernel.rig import Rig


def say_nothing(size: int) -> None:
    pass


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup of a hub that does not run: two messages in the topic `t`."""
    folder = tmp_path / "data"
    open_data_dir(folder).close()
    rig = Rig(folder)
    rig.publish("t/k", b"one", b"two")
    rig.log.close()
    dest = tmp_path / "backup"
    open_folder(dest)
    with stopped_hub(folder, "rig", "included", None) as source:
        Copying(source, dest, say_nothing).run()
    return dest


def test_what_comes_back_is_the_same_hub(backup: Path, tmp_path: Path) -> None:
    manifest, cut_off = find_backup(backup)
    assert not cut_off and manifest.name == "rig"
    verify(backup, manifest, say_nothing)
    done = restore(backup, manifest, tmp_path / "again", say_nothing)
    assert (done.summary.topics, done.damage) == (1, [])
    open_data_dir(tmp_path / "again").close()
    rig = Rig(tmp_path / "again")
    assert rig.kernel.hub.hex() == manifest.hub
    assert rig.values("t") == [b"one", b"two"]
    assert rig.publish("t/k", b"three")[0][2] > manifest.next_id


def test_a_folder_with_something_in_it_is_left_alone(backup: Path, tmp_path: Path) -> None:
    manifest, _ = find_backup(backup)
    folder = tmp_path / "again"
    folder.mkdir()
    (folder / "lost+found").mkdir()
    restore(backup, manifest, folder, say_nothing)
    with pytest.raises(DataDirError, match="is not empty"):
        restore(backup, manifest, folder, say_nothing)


def test_damage_is_found_before_anything_is_written(backup: Path) -> None:
    manifest, _ = find_backup(backup)
    copies = [backup / copy.file for copy in manifest.files if copy.bytes > 100]
    whole = copies[0].read_bytes()
    for broken in (whole[:40] + b"?" + whole[41:], whole[:-1]):
        copies[0].write_bytes(broken)
        with pytest.raises(Refused, match="damaged: .*nothing was restored"):
            verify(backup, manifest, say_nothing)
    copies[0].unlink()
    with pytest.raises(Refused, match="cannot be read"):
        verify(backup, manifest, say_nothing)


def test_what_lies_behind_a_backup_in_its_files_is_not_of_it(backup: Path, tmp_path: Path) -> None:
    manifest, _ = find_backup(backup)
    for copy in manifest.files:
        with (backup / copy.file).open("ab") as file:
            file.write(b"of a backup that was cut off")
    verify(backup, manifest, say_nothing)
    assert restore(backup, manifest, tmp_path / "again", say_nothing).damage == []


def test_a_restore_that_was_cut_off_is_no_data_directory(backup: Path, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise LogFull("no space left on device")

    monkeypatch.setattr(restoring, "resume", broken)
    manifest, _ = find_backup(backup)
    with pytest.raises(Refused, match="empty it and restore again") as refused:
        restore(backup, manifest, tmp_path / "again", say_nothing)
    assert refused.value.exit_code == exits.STORAGE
    with pytest.raises(DataDirError, match="a restore into .* was cut off"):
        open_data_dir(tmp_path / "again")


def test_a_first_backup_that_was_cut_off_is_none(tmp_path: Path) -> None:
    hub = FakeHub(Random(1))
    hub.grow()
    with pytest.raises(Refused):
        backed_up(FakeSource(hub, 0), tmp_path / "backup")
    with pytest.raises(Refused, match="was cut off before it was complete"):
        find_backup(tmp_path / "backup")
    with pytest.raises(Refused, match="holds no backup"):
        find_backup(tmp_path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    source = FakeSource(FakeHub(Random(1)))
    source.plan.about["format"] = 99
    backed_up(source, tmp_path / "backup")
    with pytest.raises(Refused, match="has data of format 99"):
        find_backup(tmp_path / "backup")


def test_a_log_of_another_hub_than_the_manifest_says_is_refused(backup: Path, tmp_path: Path) -> None:
    manifest, _ = find_backup(backup)
    from dataclasses import replace
    with pytest.raises(Refused, match="not that of the hub"):
        restore(backup, replace(manifest, hub=uuid4().hex), tmp_path / "again", say_nothing)


def test_a_folder_that_is_no_data_directory_is_not_made_one(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no data directory"), stopped_hub(tmp_path / "typo", "", "included", None):
        pass
    assert not (tmp_path / "typo").exists()


def test_a_data_directory_without_a_log_has_nothing_to_back_up(tmp_path: Path) -> None:
    open_data_dir(tmp_path / "empty").close()
    with pytest.raises(Refused, match="nothing to back up"), stopped_hub(tmp_path / "empty", "", "included", None):
        pass


@contextmanager
def log_in(folder: Path):  # type: ignore[no-untyped-def]
    log = SegmentLog(RealDisk(folder))
    yield log
    log.close()


def test_the_log_says_where_it_goes_on(backup: Path, tmp_path: Path) -> None:
    manifest, _ = find_backup(backup)
    done = restore(backup, manifest, tmp_path / "again", say_nothing)
    with log_in(tmp_path / "again") as log:
        found = look_through(log, lambda damage: None)
    assert found == done.summary
