"""State records: the newest of a key is the truth, through checkpoints, copies and deletions."""
from __future__ import annotations

import pytest

from gatehouse.kernel.index.index import Index
from gatehouse.kernel.index.memtable import Checkpoint, Memtable, Positions
from gatehouse.kernel.log.log import KEPT_BASE, Segment
from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.state.reading import StatePages
from gatehouse.kernel.state.state import Held, Kind, StateChanges, StateTable, decode_held, encode_held
from gatehouse.kernel.state.store import MemoryStore

SEGMENTS = [Segment(0, 1_000, 1_000), Segment(1_001, 2_000, 999), Segment(KEPT_BASE, KEPT_BASE + 1_000, 1_000),
            Segment(KEPT_BASE + 1_001, KEPT_BASE + 2_000, 999)]


class Table:
    """A state table with the index that its checkpoints go to."""

    def __init__(self) -> None:
        store = MemoryStore()
        self.index, self.table = Index(store), StateTable(store)

    def log(self, position: int, value: bytes | None, order: int = 0, key: bytes = b"k") -> None:
        record = StateRecord(Kind.OFFSET, key, value, order)
        if order:
            self.table.absorb_kept(position, [record])
        else:
            self.table.changes.absorb(position, [record])

    def freeze(self) -> None:
        self.table.frozen, self.table.changes = self.table.changes, StateChanges()

    def thaw(self) -> None:
        assert self.table.frozen is not None
        self.index.write(Checkpoint(Memtable(0), self.table.frozen, {}, Positions(0, 0, 0), {}), SEGMENTS)
        self.table.frozen = None

    def checkpoint(self) -> None:
        self.freeze()
        self.thaw()

    def value(self) -> bytes | None:
        return self.table.get(Kind.OFFSET, b"k")


def test_held_records_are_packed_and_opened() -> None:
    for held in (Held(1, 2, 3, b"value"), Held(1 << 62, 5, 0, b""), Held(7, 8, 1, None)):
        assert decode_held(encode_held(held)) == held


def test_the_newest_value_is_read_wherever_it_is() -> None:
    table = Table()
    table.log(10, b"1")
    assert table.value() == b"1"
    table.freeze()
    assert table.value() == b"1"
    table.log(20, b"2")
    assert table.value() == b"2" and dict(table.table.scan(Kind.OFFSET)) == {b"k": b"2"}
    table.thaw()
    assert table.value() == b"2"
    table.log(30, None)
    assert table.value() is None and dict(table.table.scan(Kind.OFFSET)) == {}
    table.checkpoint()
    assert table.value() is None and table.index.held(Kind.OFFSET, b"k") is None


@pytest.mark.parametrize("prefix", [b"", b"k", b"k\xff", b"\xff", b"\xff\xff"])
def test_keys_are_found_by_any_prefix(prefix: bytes) -> None:
    table = Table()
    keys = [b"", b"j", b"k", b"k\xfe", b"k\xff", b"k\xff\0", b"k\xff\xff", b"l", b"\xff", b"\xff\xff\1"]
    for number, key in enumerate(keys):
        table.log(10 + number, b"value", key=key)
        if number == len(keys) // 2:
            table.checkpoint()                           # some are in the store, some in memory
    wanted = sorted(key for key in keys if key.startswith(prefix))
    assert sorted(key for key, _ in table.table.scan(Kind.OFFSET, prefix)) == wanted
    assert [key for key, _ in StatePages(table.table, Kind.OFFSET, prefix).page(100)[0]] == wanted


def test_live_records_are_counted_by_the_segment_they_lie_in() -> None:
    table = Table()
    table.log(10, b"1")
    table.checkpoint()
    assert (table.index.live(0), table.index.live(1_001)) == (1, 0)
    table.log(1_500, b"2")
    table.checkpoint()
    assert (table.index.live(0), table.index.live(1_001)) == (0, 1)
    table.log(KEPT_BASE + 40, b"2", order=1_500)
    table.checkpoint()
    assert (table.index.live(1_001), table.index.live(KEPT_BASE)) == (0, 1)
    assert table.index.held(Kind.OFFSET, b"k") == Held(1_500, KEPT_BASE + 40, 1, b"2")


def test_a_deletion_is_held_as_long_as_copies_of_older_records_are() -> None:
    table = Table()
    table.log(10, b"1")
    table.checkpoint()
    table.log(KEPT_BASE + 40, b"1", order=10)
    table.log(KEPT_BASE + 1_040, b"1", order=10)
    table.checkpoint()
    table.log(1_500, None)
    table.checkpoint()
    assert table.index.held(Kind.OFFSET, b"k") == Held(1_500, 1_500, 2, None)
    table.index.forget_copies([(Kind.OFFSET, b"k")], KEPT_BASE)
    assert table.index.held(Kind.OFFSET, b"k") == Held(1_500, 1_500, 1, None)
    table.index.forget_copies([(Kind.OFFSET, b"k")], KEPT_BASE + 1_001)
    assert table.index.held(Kind.OFFSET, b"k") is None


def test_two_copies_in_one_segment_go_together() -> None:
    table = Table()
    table.log(KEPT_BASE + 40, b"1", order=10)
    table.log(KEPT_BASE + 80, b"1", order=10)
    table.log(1_500, None)
    table.checkpoint()
    table.index.forget_copies([(Kind.OFFSET, b"k"), (Kind.OFFSET, b"k")], KEPT_BASE)
    assert table.index.held(Kind.OFFSET, b"k") is None


def test_a_record_deleted_while_it_was_being_moved_stays_deleted() -> None:
    """The deletion is on its way to the store, which will forget it, when the copy becomes known."""
    table = Table()
    table.log(10, b"1")
    table.checkpoint()
    table.log(1_500, None)
    table.freeze()
    table.log(KEPT_BASE + 40, b"1", order=10)
    assert table.value() is None
    table.thaw()
    assert table.value() is None
    table.checkpoint()
    assert table.index.held(Kind.OFFSET, b"k") == Held(1_500, 1_500, 1, None)
