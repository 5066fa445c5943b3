"""The RocksDB store, where it differs from memory: what it says when the disk is full."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gatehouse.kernel.state.store import RocksStore, StoreFull

# Measured on a full file system; closing says something else.
FULL = "IO error: No space left on device: While appending to file: 000004.log: No space left on device"
CLOSING_FULL = "IO error: Writer has previous error.; IO error: Writer has previous error."


class FullDisk:
    """The database of a store whose disk takes nothing."""

    def write(self, batch: object) -> None:
        raise Exception(FULL)

    def close(self) -> None:
        raise Exception(CLOSING_FULL)


def test_a_full_disk_is_told_apart_and_closing_goes_on(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "index")
    store.write([(b"a", b"1")])
    store.close()
    store._db = FullDisk()
    with pytest.raises(Exception, match="previous error"):
        store.close()
    with pytest.raises(StoreFull, match="No space left"):
        store.write([(b"b", b"2")])
    store.close()
    again = RocksStore(tmp_path / "index")
    assert again.get(b"a") == b"1"
    again.close()


def test_a_store_whose_files_reached_a_limit_is_written_again_when_that_is_lifted(tmp_path: Path) -> None:
    """In a process of its own, since the limit is one of the process."""
    subprocess.run([sys.executable, "-m", "tests.kernel.quota", str(tmp_path / "index")], check=True,
                   cwd=Path(__file__).parents[3])
