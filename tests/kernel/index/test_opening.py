"""Readers of stored batches: opened bytes count, many readers share what is opened, and the loop opens only little."""
from __future__ import annotations

import tracemalloc

import pytest

from gatehouse.kernel.errors import StorageFailed
from gatehouse.kernel.index import opening
from gatehouse.kernel.message import Fetched, Piece
from gatehouse.kernel.records.batch import HEADER_BYTES, sound_records
from gatehouse.kernel.records.opened import PART_RECORDS
from tests.kernel import poison
from tests.kernel.batches import encode_record
from tests.kernel.rig import Rig

PAGE_BYTES = 64 << 10
MIB = 1 << 20


def values_of(size: int, count: int) -> bytes:
    return b"".join(encode_record(i, b"k", bytes((i % 251,)) * size) for i in range(count))


def read(rig: Rig, partition_id: int, max_bytes: int = PAGE_BYTES) -> list[Fetched]:
    """Page by page to the end."""
    found = []
    at, end = rig.kernel.bounds(partition_id)
    while at < end:
        page = rig.fetch(partition_id, at, max_bytes)
        assert page.error is None and page.pieces
        found.append(page)
        at = page.pieces[-1].first_offset + page.pieces[-1].count
    return found


def test_a_large_batch_comes_in_pages_of_opened_bytes_and_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Piece] = []

    class Counted(opening.Opened):
        def __init__(self, piece: Piece) -> None:
            made.append(piece)
            super().__init__(piece)

    monkeypatch.setattr(opening, "Opened", Counted)
    rig = Rig()
    topic = poison.topic_of(rig)
    batch = poison.packed(values_of(10_000, 500), 500)                  # 5 MB in some hundred bytes
    assert len(batch) < 20_000
    poison.store(rig, topic, batch, 500)
    for _ in range(3):
        pages = read(rig, topic.partition_id(0))
        assert len(pages) >= 5_000_000 // PAGE_BYTES
        assert max(sum(len(piece.data) for piece in page.pieces) for page in pages) <= PAGE_BYTES + HEADER_BYTES
        records = [record for page in pages for piece in page.pieces for record in sound_records(piece)]
        assert [record[0] for record in records] == list(range(500))
    assert len(made) == 1


def test_many_readers_of_one_batch_hold_it_once() -> None:
    rig = Rig()
    topic = poison.topic_of(rig)
    poison.store(rig, topic, poison.packed(values_of(100_000, 200), 200), 200)       # 20 MB
    found: list[Fetched] = []
    tracemalloc.start()
    for _ in range(20):
        rig.kernel.fetch([(topic.partition_id(0), 150, PAGE_BYTES)], PAGE_BYTES, found.extend)
    rig.run()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [one.pieces[0].first_offset for one in found] == [150] * 20
    assert most < 130 * MIB                                             # once, while it is opened, and not twenty times


def test_the_loop_opens_no_more_than_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is larger is opened by a job of the reading thread."""
    rig = Rig()
    topic = poison.topic_of(rig)
    poison.store(rig, topic, poison.packed(values_of(1_000, 100), 100), 100)
    poison.store(rig, topic, poison.packed(values_of(1_000, 1_500), 1_500), 1_500)
    found: list[Fetched] = []
    rig.kernel.fetch([(topic.partition_id(0), 0, 100 * MIB)], 100 * MIB, found.extend)
    assert [piece.count for piece in found[0].pieces] == [100] and not rig.world.reader_worker.jobs
    rig.kernel.fetch([(topic.partition_id(0), 100, 100 * MIB)], 100 * MIB, found.extend)
    assert len(found) == 1 and len(rig.world.reader_worker.jobs) == 1
    rig.run()
    assert [piece.count for piece in found[1].pieces] == [1_500]


def test_held_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "HELD_BYTES", MIB)
    rig = Rig()
    topic = poison.topic_of(rig)
    for _ in range(6):
        poison.store(rig, topic, poison.packed(values_of(1_000, 500), 500), 500)
    read(rig, topic.partition_id(0))
    held = rig.kernel._reader._opening
    assert 0 < held.held_bytes <= MIB and held.held_bytes == sum(one.size_bytes for one in held._held.values())


def test_many_small_records_come_some_thousands_at_a_time() -> None:
    rig = Rig()
    topic = poison.topic_of(rig)
    count = 200_000
    poison.store(rig, topic, poison.packed(encode_record(0, None, None) * count, count), count)
    pages = read(rig, topic.partition_id(0), 100 * MIB)
    assert sum(piece.count for page in pages for piece in page.pieces) == count
    assert max(piece.count for page in pages for piece in page.pieces) == PART_RECORDS


def test_what_is_asked_for_as_stored_is_not_opened() -> None:
    rig = Rig()
    topic = poison.topic_of(rig)
    poison.store(rig, topic, poison.lying(), poison.CLAIMED)
    found: list[Fetched] = []
    rig.kernel.fetch([(topic.partition_id(0), 0, 1)], 1, found.extend, stored=True)
    (piece,) = found[0].pieces
    assert piece.count == poison.CLAIMED and piece.data[HEADER_BYTES:] == poison.lying()[HEADER_BYTES:]


def test_a_reader_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    topic = poison.topic_of(rig)
    poison.store(rig, topic, poison.packed(values_of(1_000, 500), 500), 500)

    def fail(piece: Piece) -> None:
        raise MemoryError

    monkeypatch.setattr(opening, "Opened", fail)
    assert isinstance(rig.fetch(topic.partition_id(0)).error, StorageFailed)


def test_a_time_is_looked_for_without_holding_every_record() -> None:
    rig = Rig()
    topic = poison.topic_of(rig)
    count = 300_000
    records = encode_record(0, None, None) * count + encode_record(0, None, None, delta_ms=5_000)
    poison.store(rig, topic, poison.packed(records, count + 1), count + 1, 6_000)
    told: list[tuple[int | None, int]] = []
    tracemalloc.start()
    rig.kernel.offset_for_time(topic.partition_id(0), 6_000, lambda *found: told.append(found))
    rig.run()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert told == [(count, 6_000)] and most < 90 * MIB
