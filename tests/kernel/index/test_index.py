"""The index over both stores, against a plain list of entries."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from gatehouse.kernel.index.index import BLOCK_ENTRIES, Entry, Index, block_key
from gatehouse.kernel.index.memtable import Checkpoint, Memtable, Positions
from gatehouse.kernel.log.log import Segment
from gatehouse.kernel.message import Entries
from gatehouse.kernel.state.state import StateChanges
from gatehouse.kernel.state.store import IndexStore, MemoryStore, RocksStore

SEGMENTS = [Segment(0, 1 << 40, 1 << 40)]


@pytest.fixture(params=["memory", "rocks"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IndexStore]:
    made: IndexStore = MemoryStore() if request.param == "memory" else RocksStore(tmp_path / "index")
    yield made
    made.close()


class Filler:
    """Checkpoints of random frames, and what they hold as a plain list."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._random = Random(1)
        self._position = 100
        self.entries: dict[int, list[Entry]] = {1: [], 2: [], 300: []}

    def checkpoint(self, frames: int, consumed: dict[int, int] | None = None) -> None:
        tail = Memtable(self._position)
        for _ in range(frames):
            entries = Entries()
            append_ms = 1_000 + self._position
            for partition_id in self._random.sample(list(self.entries), self._random.randrange(1, 4)):
                self._add(entries, partition_id, append_ms)
            tail.absorb(self._position, self._position + 500, append_ms, 500, entries)
            self._position += 500
        self.index.write(Checkpoint(tail, StateChanges(), {}, Positions(self._position, 0, 9), consumed or {}),
                          SEGMENTS)

    def _add(self, entries: Entries, partition_id: int, append_ms: int) -> None:
        mine = self.entries[partition_id]
        first, count = mine[-1].end_offset if mine else 0, self._random.randrange(1, 10)
        n = len(entries)
        message_id = self._position * 10 + n
        row = (partition_id, first, append_ms + self._random.randrange(-50, 50), message_id, count, n * 100, 100, 77, 0)
        for column, value in zip(entries.columns(), row, strict=True):
            column.append(value)
        mine.append(Entry(first, self._position, message_id, append_ms, row[2], n * 100, 100, count, 77, 0))


@pytest.fixture
def filled(store: IndexStore) -> tuple[Index, Filler]:
    index = Index(store)
    filler = Filler(index)
    for frames in (1, 50, 2 * BLOCK_ENTRIES, 7):
        filler.checkpoint(frames)
    return index, filler


def test_entries_are_found_from_any_offset(filled: tuple[Index, Filler]) -> None:
    index, filler = filled
    for partition_id, entries in filler.entries.items():
        assert index.entries_from(partition_id, 0, 1 << 40, 1 << 40) == entries
        for offset in range(0, entries[-1].end_offset, 17):
            expected = [entry for entry in entries if entry.end_offset > offset]
            assert index.entries_from(partition_id, offset, 450, 1 << 40) == expected[:4]
            assert index.entries_from(partition_id, offset, 1, 1 << 40) == expected[:1], "one, whatever its size"
    assert index.entries_from(299, 0, 1 << 40, 1 << 40) == []


def test_entries_end_where_memory_begins(filled: tuple[Index, Filler]) -> None:
    index, filler = filled
    stop = filler.entries[2][20].first_offset
    assert index.entries_from(2, 0, 1 << 40, stop) == filler.entries[2][:20]


def test_offsets_are_found_by_time_and_by_position(filled: tuple[Index, Filler]) -> None:
    index, filler = filled
    for partition_id, entries in filler.entries.items():
        for entry in entries[::25]:
            late = [one for one in entries if one.max_ms >= entry.max_ms]
            assert index.first_at_or_after(partition_id, entry.max_ms, 0) == late[0]
            assert index.first_from_position(partition_id, entry.position) == entry.first_offset
            assert index.first_appended_since(partition_id, entry.append_ms) == entry.first_offset
        assert index.first_at_or_after(partition_id, 1 << 40, 0) is None
        assert index.first_from_position(partition_id, 1 << 40) is None


def test_writing_a_checkpoint_again_changes_nothing(store: IndexStore) -> None:
    dumps = []
    for repeats in (1, 2):
        store.write([], (), [(b"", b"\xff" * 32)])
        for _ in range(repeats):
            Filler(Index(store)).checkpoint(300)
        dumps.append(list(store.scan(b"", b"\xff" * 32)))
    assert dumps[0] == dumps[1]


def test_blocks_of_a_checkpoint_that_was_cut_off_hide_nothing(store: IndexStore) -> None:
    """It left out what was consumed by then, which the next one does not know of: their blocks begin elsewhere."""
    cut_off = Filler(Index(store))
    cut_off.checkpoint(20, dict.fromkeys(cut_off.entries, 30))
    again = Filler(Index(store))
    again.checkpoint(50)
    for partition_id, entries in again.entries.items():
        for offset in range(0, entries[-1].end_offset, 7):
            expected = [entry for entry in entries if entry.end_offset > offset]
            assert again.index.entries_from(partition_id, offset, 1 << 40, 1 << 40) == expected


def test_a_dropped_segments_entries_go_and_no_other(filled: tuple[Index, Filler]) -> None:
    index, filler = filled
    start = filler.entries[1][300].first_offset
    index.forget_segment(0, {1: start})
    left = index.entries_from(1, 0, 1 << 40, 1 << 40)
    assert len(left) < len(filler.entries[1])
    assert [entry for entry in left if entry.end_offset > start] == filler.entries[1][300:]
    assert index.entries_from(2, 0, 1 << 40, 1 << 40) == filler.entries[2]


def test_deleted_queues_are_forgotten(filled: tuple[Index, Filler]) -> None:
    index, filler = filled
    index.forget_partitions(((1, 2),))
    assert index.entries_from(1, 0, 1 << 40, 1 << 40) == index.entries_from(2, 0, 1 << 40, 1 << 40) == []
    assert index.entries_from(300, 0, 1 << 40, 1 << 40) == filler.entries[300]


def test_positions_and_pages_are_found_again(store: IndexStore) -> None:
    index = Index(store)
    assert index.positions() == Positions(0, 0, 1)
    index.write(Checkpoint(Memtable(0), StateChanges(), {3: b"page"}, Positions(5, 6, 7), {}), SEGMENTS, sync=True)
    assert index.positions() == Positions(5, 6, 7) and index.head_pages() == [(3, b"page")]


def test_both_stores_do_the_same(tmp_path: Path) -> None:
    random = Random(2)
    rocks, memory = RocksStore(tmp_path / "index"), MemoryStore()
    keys = [block_key(n, 0) for n in range(40)]
    for step in range(60):
        puts = [(random.choice(keys), b"%d" % step) for _ in range(random.randrange(30))]
        deletes = random.sample(keys, random.randrange(5))
        lowest, below = sorted(random.sample(keys, 2))
        for store in (rocks, memory):
            store.write(puts, deletes, [(lowest, below)] if step % 3 == 0 else [], sync=step % 10 == 0)
            assert store.get(b"absent") is None
        assert [(key, value) for key, value in rocks.scan(keys[0], b"c")] == list(memory.scan(keys[0], b"c"))
        key = random.choice(keys)
        assert rocks.floor(key, lowest) == memory.floor(key, lowest) and rocks.get(key) == memory.get(key)
    rocks.close()
    assert list(RocksStore(tmp_path / "index").scan(keys[0], b"c")) == list(memory.scan(keys[0], b"c"))
