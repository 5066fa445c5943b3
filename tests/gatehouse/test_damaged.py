"""A damaged index is set aside, bounded; what lies in `damaged/` is counted."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.damaged import MAX_INDEXES, Damaged, count_damaged, set_index_aside
from gatehouse.kernel.state.store import RocksStore, StoreDamaged


def an_index(folder: Path) -> Path:
    store = RocksStore(folder)
    store.write([(b"k%06d" % number, b"value" * 20) for number in range(5_000)], sync=True)
    store._db.flush()
    store.close()
    return max(folder.glob("*.sst"), key=lambda file: file.stat().st_size)


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 4
    file.write_bytes(data)


def test_an_index_is_moved_as_it_is_and_the_newest_are_kept(tmp_path: Path) -> None:
    for number in range(MAX_INDEXES + 2):
        (tmp_path / "index").mkdir()
        (tmp_path / "index" / "file").write_text(str(number))
        set_index_aside(tmp_path)
        assert not (tmp_path / "index").exists()
    kept = sorted((tmp_path / "damaged").iterdir())
    assert [(folder / "file").read_text() for folder in kept] == ["2", "3"]
    assert count_damaged(tmp_path) == Damaged(2, 2)


def test_an_index_on_another_disk_stays_there(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "index").symlink_to(tmp_path / "fast")
    for number in range(2):
        (tmp_path / "fast").mkdir(exist_ok=True)
        (tmp_path / "fast" / "file").write_text(str(number))
        new = set_index_aside(tmp_path / "data")
        assert (new / "file").read_text() == str(number) and new.parent == tmp_path
        assert (tmp_path / "data" / "index").is_symlink() and not any((tmp_path / "fast").iterdir())


def test_tails_are_not_counted(tmp_path: Path) -> None:
    assert count_damaged(tmp_path) == Damaged(0, 0)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "log-tail-1-2").write_text("tail")
    assert count_damaged(tmp_path) == Damaged(0, 0)
    (tmp_path / "damaged" / "log-range-1-2").write_text("range")
    assert count_damaged(tmp_path) == Damaged(1, 5)


def walk(store: RocksStore) -> None:
    cursor = store.cursor()
    key = cursor.seek(b"")
    while key is not None:
        key = cursor.next()


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6])
def test_a_damaged_block_is_no_end_of_what_is_stored(tmp_path: Path, part: float) -> None:
    """RocksDB's iterators end there as if there were nothing more; a start would have forgotten topics and offsets."""
    file = an_index(tmp_path / "index")
    flip(file, int(file.stat().st_size * part))
    told: list[str] = []
    store = RocksStore(tmp_path / "index", told.append)
    with pytest.raises(StoreDamaged):
        list(store.scan(b"", b"\xff"))
    with pytest.raises(StoreDamaged):
        walk(store)
    with pytest.raises(StoreDamaged):
        for number in range(5_000):
            store.get(b"k%06d" % number)
    assert told and "Corruption" in told[0]
    store.close()
    with pytest.raises(StoreDamaged):
        RocksStore(tmp_path / "index")
    set_index_aside(tmp_path)
    RocksStore(tmp_path / "index").close()
