"""What late checkpoints have written, and what pages have read, is answered from memory; it is the same as on disk."""
from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from gatehouse.kernel.errors import OffsetOutOfRange
from gatehouse.kernel.index.memtable import AT_HAND, BLOCK_BYTES, CHUNKS, Pages, WrittenBlocks, block_key
from gatehouse.kernel.message import Fetched, Piece
from gatehouse.kernel.settings import KernelSettings
from tests.kernel.rig import Rig

CHECKPOINT_MS = 2_000
FAR = 1 << 30


def settled(rig: Rig) -> None:
    """A checkpoint has been taken: memory that it needs no more is gone."""
    taken = rig.kernel._checkpoints.taken
    rig.world.advance(CHECKPOINT_MS + 1)
    rig.run()
    assert rig.kernel._checkpoints.taken > taken
    assert not len(rig.kernel._memtables.newest.entries)


def at_once(rig: Rig, partition_id: int, offset: int, max_bytes: int = FAR, max_records: int = 0) -> Fetched | None:
    """The answer, if no thread is needed for it; with `run` it comes in any case."""
    answers: list[Fetched] = []
    rig.kernel.fetch([(partition_id, offset, max_bytes)], max_bytes, answers.extend, max_records=max_records)
    at_hand = answers[0] if answers else None
    rig.run()
    assert len(answers) == 1
    return at_hand


def later(rig: Rig, partition_id: int, offset: int, max_bytes: int = FAR, max_records: int = 0) -> Fetched:
    answers: list[Fetched] = []
    rig.kernel.fetch([(partition_id, offset, max_bytes)], max_bytes, answers.extend, max_records=max_records)
    rig.run()
    return answers[0]


def told(answer: Fetched) -> list[tuple[object, ...]]:
    return [(piece.first_offset, piece.count, piece.data, piece.first_id, piece.append_ms) for piece in answer.pieces]


def filled(rig: Rig, checkpoints: int = 5, between: int = 4) -> int:
    """Messages of several checkpoints, and some behind the last; the partition."""
    random = Random(7)
    for number in range(checkpoints):
        for _ in range(between):
            rig.publish("plant/a", *[bytes(random.randrange(1, 200)) for _ in range(random.randrange(1, 4))])
            rig.publish("other/b", b"x")
        if number < checkpoints - 1 or random.random() < 0:
            settled(rig)
    topic = rig.kernel.topic("plant")
    assert topic is not None
    return topic.partition_id(0)


def settings(**more: int) -> KernelSettings:
    return KernelSettings(segment_bytes=1 << 20, default_partitions=1, **more)


def test_what_a_checkpoint_has_written_needs_no_thread() -> None:
    rig = Rig(settings=settings())
    rig.publish("plant/a", b"1", b"2")
    settled(rig)
    topic = rig.kernel.topic("plant")
    assert topic is not None
    answer = at_once(rig, topic.partition_id(0), 1)
    assert answer is not None and told(answer)[0][:2] == (0, 2)
    assert rig.kernel._reader.cold_reads == 0


@pytest.mark.parametrize("max_bytes", [1, 150, 700, FAR])
@pytest.mark.parametrize("max_records", [0, 1, 3, 20])
def test_it_is_what_the_disk_has(max_bytes: int, max_records: int) -> None:
    rig = Rig(settings=settings())
    partition_id = filled(rig)
    _, end = rig.kernel.bounds(partition_id)
    in_memory = [at_once(rig, partition_id, offset, max_bytes, max_records) for offset in range(end)]
    assert rig.kernel._reader.cold_reads == 0
    settled(rig)
    rig.restart()
    for offset, answer in enumerate(in_memory):
        assert answer is not None
        before = later(rig, partition_id, offset, max_bytes, max_records)
        if max_records or told(before) == told(answer):
            assert told(before)[:len(answer.pieces)] == told(answer)
            assert sum(piece.count for piece in answer.pieces) >= min(end - offset, max_records) or max_bytes < FAR
        else:                            # what is behind the store's part may come with the next fetch
            assert told(answer) and told(before)[:len(answer.pieces)] == told(answer)[:len(before.pieces)]


def test_few_at_a_time_are_laid_together_and_the_oldest_go_with_their_bodies() -> None:
    rig = Rig(settings=settings(recent_bytes=20_000))
    for _ in range(60):
        rig.publish("plant/a", bytes(500))
        settled(rig)
    written = rig.kernel._memtables.written
    assert 0 < len(written._chunks) <= 2 * CHUNKS
    assert 0 < written.size_bytes <= 20_000 // 8
    assert written.size_bytes == sum(chunk.size_bytes for chunk in written._chunks)
    partition_id = rig.kernel.topic("plant").partition_id(0)     # type: ignore[union-attr]
    assert at_once(rig, partition_id, 0) is None
    assert at_once(rig, partition_id, 59) is not None


def test_nothing_is_kept_where_nothing_may() -> None:
    rig = Rig(settings=settings(recent_bytes=0))
    partition_id = filled(rig)
    later(rig, partition_id, 0, max_records=1)
    assert at_once(rig, partition_id, 0, max_records=1) is None
    assert rig.kernel._memtables.cached_bytes == 0


def test_too_many_for_the_loop_are_read_by_the_thread() -> None:
    rig = Rig(settings=settings())
    for _ in range(AT_HAND + 10):
        rig.publish("plant/a", b"1")
    settled(rig)
    partition_id = rig.kernel.topic("plant").partition_id(0)     # type: ignore[union-attr]
    assert at_once(rig, partition_id, 0) is None
    assert at_once(rig, partition_id, 20) is not None, "fewer are left"
    answer = at_once(rig, partition_id, 0, max_records=AT_HAND)
    assert answer is not None and len(answer.pieces) == AT_HAND


def test_what_is_deleted_is_not_given_though_it_is_in_memory() -> None:
    rig = Rig(settings=settings())
    rig.publish("plant/a", b"1")
    rig.publish("plant/a", b"2")
    settled(rig)
    topic = rig.kernel.topic("plant")
    assert topic is not None
    partition_id = topic.partition_id(0)
    rig.kernel.delete_records({partition_id: 1}, None, None)
    rig.run()
    answer = later(rig, partition_id, 0)
    assert isinstance(answer.error, OffsetOutOfRange) and not answer.pieces
    assert told(later(rig, partition_id, 1))[0][0] == 1


def test_of_a_deleted_topic_nothing_is_given() -> None:
    rig = Rig(settings=settings())
    partition_id = filled(rig)
    settled(rig)
    page = at_once(rig, partition_id, 0, max_records=2)
    assert page is not None and page.pieces
    rig.kernel.delete_topic("plant")
    rig.run()
    settled(rig)
    answer = later(rig, partition_id, 0)
    assert not answer.pieces and not later(rig, partition_id, 0, max_records=2).pieces
    other = rig.kernel.topic("other")
    assert other is not None
    beside = at_once(rig, other.partition_id(0), 0)
    assert beside is not None and beside.pieces


def test_deleted_partitions_go_while_a_checkpoint_is_written() -> None:
    written = WrittenBlocks(1 << 20)
    written.take(written.prepare([(block_key(number, 0), block(0)) for number in (1, 2, 3)], 1), 0)
    chunk = written.prepare([(block_key(2, 5), block(5)), (block_key(3, 5), block(5))], 2)
    assert chunk.joined
    written.forget_partitions(((2, 1),))
    assert written.block_of(2, 0) is None and written.block_of(1, 0) and written.block_of(3, 0)
    written.take(chunk, 0)
    assert written.block_of(2, 7) is None and written.block_of(3, 7) == block(5)
    written.take(written.prepare([(block_key(2, 9), block(9))], 3), 0)         # which was in memory meanwhile
    assert written.block_of(2, 9) is None
    assert written.size_bytes == sum(each.size_bytes for each in written._chunks)


def test_thousands_may_be_deleted_between_two_checkpoints() -> None:
    written = WrittenBlocks(16 << 20)
    count = 30_000
    chunk = written.prepare([(block_key(number, 0), bytes(60)) for number in range(count)], 1)
    for number in range(0, count, 3):
        written.forget_partitions(((number, 1),))
    written.take(chunk, 0)
    for number in range(1, count, 3):
        written.forget_partitions(((number, 1),))
    assert written.block_of(4, 0) is None and written.block_of(5, 0) == bytes(60)
    written.take(written.prepare([], 2), 0)
    assert [key for each in written._chunks for key in each.keys] == [block_key(number, 0)
                                                                      for number in range(2, count, 3)]
    assert written.size_bytes == count // 3 * (60 + BLOCK_BYTES)


def test_a_page_is_read_once_and_what_comes_behind_it_changes_nothing() -> None:
    rig = Rig(settings=settings())
    for _ in range(3):
        rig.publish("plant/a", b"1")
    partition_id = rig.kernel.topic("plant").partition_id(0)     # type: ignore[union-attr]
    settled(rig)
    rig.restart()
    assert at_once(rig, partition_id, 0, max_records=2) is None
    answer = at_once(rig, partition_id, 0, max_records=2)
    assert answer is not None and [piece.first_offset for piece in answer.pieces] == [0, 1]
    assert at_once(rig, partition_id, 0, max_records=5) is None, "it has come to the end"
    rig.publish("plant/a", b"2")
    rig.publish("plant/a", b"2")
    assert len(later(rig, partition_id, 0, max_records=5).pieces) == 5
    rig.kernel.delete_records({partition_id: 1}, None, None)
    rig.run()
    assert isinstance(later(rig, partition_id, 0, max_records=2).error, OffsetOutOfRange)


def test_who_asks_for_fewer_bytes_is_not_given_more() -> None:
    rig = Rig(settings=settings())
    rig.publish("plant/a", bytes(400))
    rig.publish("plant/a", bytes(400))
    settled(rig)
    rig.restart()
    partition_id = rig.kernel.topic("plant").partition_id(0)     # type: ignore[union-attr]
    assert len(later(rig, partition_id, 0, 1_000, max_records=2).pieces) == 2
    assert len(later(rig, partition_id, 0, 500, max_records=2).pieces) == 1


# --- the parts --------------------------------------------------------------------------------------------------

def block(first: int) -> bytes:
    return b"%d" % first


def test_the_block_that_may_hold_an_offset_is_found_among_chunks() -> None:
    written = WrittenBlocks(1 << 20)
    for start in range(0, 100, 20):
        blocks = [(block_key(partition_id, first), block(first)) for partition_id in (3, 4)
                  for first in range(start, start + 20, 5)]
        chunk = written.prepare(blocks, start + 20)
        written.take(chunk, 0)
    assert all(before <= after for chunk in written._chunks for before, after in pairwise(chunk.keys))
    for offset in range(100):
        assert written.block_of(3, offset) == block(offset - offset % 5)
    assert written.block_of(2, 7) is None
    assert written.block_of(5, 7) is None


def test_pages_are_bounded_and_the_one_that_nobody_asks_for_goes_first() -> None:
    pages = Pages(100_000)
    for offset in range(1_000):
        pages.add(1, offset, 1, [Piece(offset, 1, False, bytes(100), 0, 0, offset)])
        pages.get(1, 0, 1)
    assert pages.size_bytes <= 100_000
    assert pages.get(1, 0, 1) and pages.get(1, 999, 1) and pages.get(1, 1, 1) is None
    pages.add(1, 0, 1, [Piece(0, 1, False, bytes(50), 0, 0, 0)])
    assert pages.size_bytes <= 100_000
    assert pages.get(1, 0, 2) is None
    pages.add(2, 5, 4, [Piece(4, 2, False, b"x", 0, 0, 0), Piece(7, 3, False, b"x", 0, 0, 0)])
    assert pages.get(2, 5, 4) is None, "one is missing between"
    pages.add(2, 5, 4, [Piece(4, 2, False, b"x", 0, 0, 0)])
    assert pages.get(2, 5, 4) is None, "they are too few"
    pages.add(3, 0, 1, [Piece(0, 1, False, bytes(50_000), 0, 0, 0)])
    assert pages.get(3, 0, 1) is None, "it is too large"
