"""One hub per data directory, and only on a format that it understands."""
from __future__ import annotations

import os

import pytest

from gatehouse import exits
from gatehouse.datadir import FORMAT, DataDirError, open_data_dir, require_empty, running_process


def refused(folder, **options) -> DataDirError:
    with pytest.raises(DataDirError) as caught:
        open_data_dir(folder, **options)
    return caught.value


def test_a_new_folder_is_made_locked_and_given_the_format(tmp_path):
    folder = tmp_path / "a" / "data"
    data_dir = open_data_dir(folder)
    assert (folder / "format").read_text() == f"{FORMAT}\n"
    assert running_process(folder) == os.getpid()
    data_dir.close()
    assert running_process(folder) is None


def mode_of(folder) -> int:
    return folder.stat().st_mode & 0o777


@pytest.mark.parametrize("make", [lambda folder: open_data_dir(folder).close(), require_empty])
def test_what_is_in_it_is_for_its_owner(tmp_path, make):
    """Password hashes, the hub's secrets, every message; `umask` is 022 nearly everywhere."""
    before = os.umask(0o022)
    try:
        make(tmp_path / "new" / "data")
        shared, narrow = tmp_path / "shared", tmp_path / "narrow"
        shared.mkdir(mode=0o755)
        narrow.mkdir(mode=0o700)
        make(shared)
        make(narrow)
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "new" / "data") == mode_of(narrow) == 0o700
    assert mode_of(shared) == 0o750, "a group that may read it stays able to: that was somebody's decision"


def test_what_is_in_a_folder_that_was_open_is_shut(tmp_path):
    (tmp_path / "data" / "log").mkdir(parents=True, mode=0o755)
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "data" / "index").symlink_to(tmp_path / "elsewhere")
    for name in ("reserve", "log/1.log", "catalogue.sqlite-wal", "somebody's notes"):
        (tmp_path / "data" / name).write_text("")
        (tmp_path / "data" / name).chmod(0o664)
    open_data_dir(tmp_path / "data").close()
    assert mode_of(tmp_path / "data" / "somebody's notes") == 0o664, "what is not ours stays as it is"
    (tmp_path / "data" / "somebody's notes").unlink()
    assert mode_of(tmp_path / "data" / "log") == mode_of(tmp_path / "elsewhere") == 0o700
    assert {mode_of(file) for file in (tmp_path / "data").rglob("*") if file.is_file()} == {0o600}


def test_a_second_hub_is_refused_until_the_first_has_ended(tmp_path):
    first = open_data_dir(tmp_path)
    error = refused(tmp_path)
    assert error.exit_code == exits.DATA_IN_USE
    assert str(error) == (f"another hub (process {os.getpid()}) runs on {tmp_path}; stop it, or give this one another "
                          "folder with --data")
    first.close()
    open_data_dir(tmp_path).close()


def test_a_newer_format_is_refused_and_the_folder_left_free(tmp_path):
    (tmp_path / "format").write_text(f"{FORMAT + 1}\n")
    error = refused(tmp_path)
    assert error.exit_code == exits.DATA_FORMAT
    assert f"has format {FORMAT + 1}, this version knows up to {FORMAT}" in str(error)
    assert running_process(tmp_path) is None


def test_an_older_format_is_upgraded_step_by_step(tmp_path):
    (tmp_path / "format").write_text("1\n")
    steps: list[int] = []
    upgrades = {number: lambda _folder, number=number: steps.append(number) for number in (1, 2)}
    open_data_dir(tmp_path, 3, upgrades).close()
    assert steps == [1, 2]
    assert (tmp_path / "format").read_text() == "3\n"


def test_a_folder_of_the_first_format_is_taken_over(tmp_path):
    (tmp_path / "format").write_text("1\n")
    open_data_dir(tmp_path).close()
    assert (tmp_path / "format").read_text() == f"{FORMAT}\n"


def test_an_upgrade_that_fails_is_tried_again_from_where_it_was(tmp_path):
    (tmp_path / "format").write_text("1\n")

    def broken(_folder):
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        open_data_dir(tmp_path, 3, {1: lambda _folder: None, 2: broken})
    assert (tmp_path / "format").read_text() == "2\n"
    assert running_process(tmp_path) is None


def test_a_format_nobody_can_upgrade_is_refused(tmp_path):
    (tmp_path / "format").write_text("0\n")
    assert "cannot upgrade" in str(refused(tmp_path))


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "format").write_text("ext4\n")
    assert "is no data directory of Gatehouse" in str(refused(tmp_path))


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    error = refused(tmp_path / "file" / "data")
    assert error.exit_code == exits.STORAGE
    assert str(error).endswith("data: Not a directory")


def test_no_hub_on_no_folder(tmp_path):
    assert running_process(tmp_path / "none") is None
