"""A store whose list of files is damaged is not opened: RocksDB would, without what is listed behind the damage."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.state.store import BLOCK_BYTES, RocksStore, StoreDamaged, fault_in_manifest


def filled(folder: Path) -> Path:
    """A store that was opened and closed some times; its manifest."""
    for life in range(3):
        store = RocksStore(folder)
        store.write([(b"%d-%d" % (life, number), bytes(100)) for number in range(50)], (), (), sync=True)
        store.close()
    return folder / (folder / "CURRENT").read_text().strip()


def test_no_flipped_bit_goes_unseen(tmp_path: Path) -> None:
    manifest = filled(tmp_path / "index")
    assert fault_in_manifest(tmp_path / "index") == ""
    content = manifest.read_bytes()
    assert len(content) > 100
    for at in range(len(content)):
        for bit in (0, 2, 7):
            flipped = bytearray(content)
            flipped[at] ^= 1 << bit
            manifest.write_bytes(flipped)
            assert fault_in_manifest(tmp_path / "index"), (at, bit)
    with pytest.raises(StoreDamaged, match="manifest"):
        RocksStore(tmp_path / "index")
    manifest.write_bytes(content)
    RocksStore(tmp_path / "index").close()


def test_an_end_that_is_cut_off_is_seen_unless_a_record_ends_there(tmp_path: Path) -> None:
    manifest = filled(tmp_path / "index")
    content = manifest.read_bytes()
    whole = 0
    for end in range(1, len(content)):
        manifest.write_bytes(content[:end])
        whole += fault_in_manifest(tmp_path / "index") == ""
    assert whole < 20, "as many as there are records"
    manifest.write_bytes(content + bytes(1000))
    assert fault_in_manifest(tmp_path / "index") == "", "room that was made beforehand"


def test_records_go_on_over_blocks(tmp_path: Path) -> None:
    """As RocksDB writes them: hundreds of tables make a manifest of several blocks."""
    folder = tmp_path / "index"
    store = RocksStore(folder)
    manifest = folder / (folder / "CURRENT").read_text().strip()
    for number in range(400):
        store.write([(b"%d" % number, b"x")], (), (), sync=True)
        store._db.flush()
        if manifest.stat().st_size > BLOCK_BYTES + 1000:
            break
    store.close()
    assert manifest.stat().st_size > BLOCK_BYTES, "it has two blocks"
    assert fault_in_manifest(folder) == ""


def test_a_folder_without_a_store_has_no_fault(tmp_path: Path) -> None:
    assert fault_in_manifest(tmp_path) == ""
