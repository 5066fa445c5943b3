"""Leased groups over partitions whose stored batches lie, or lack what the log has lost: bounded work, and nothing
sound is lost."""
from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gatehouse.kernel.groups.cursor import PAGE_OFFSETS, Cursor, Lease
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import QueueSettings
from gatehouse.kernel.groups.max_length import ByteCount
from gatehouse.kernel.message import Fetched, Piece
from gatehouse.kernel.retention.holders import joined
from gatehouse.kernel.settings import KernelSettings
from tests.kernel import poison
from tests.kernel.groups.test_groups import handles, join, pop, pop_all, send, values
from tests.kernel.rig import Rig

MEMORY = 96 << 20            # one batch being opened may take 64 MiB; a list of two milliards takes 16 GB
WIDE = 1 << 31


@contextmanager
def little_memory(limit: int = MEMORY) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def group_of(rig: Rig) -> LeasedGroup:
    return rig.kernel.groups.group("shop", "plant")


def drained(rig: Rig, group: LeasedGroup, most: int = 10_000) -> list[bytes | None]:
    """Everything, popped and acknowledged."""
    found: list[bytes | None] = []
    while messages := pop(rig, group, most):
        found += values(messages)
        group.ack(handles(messages))
        rig.run()
    return found


NUMBERS = [b"%d" % i for i in range(10)]
POISON = [
    ("a count that lies", poison.lying(), poison.CLAIMED, NUMBERS, poison.CLAIMED - 10),
    ("a count that is too small", poison.lying(10, 4), 4, NUMBERS[:4], 0),
    ("a record that makes no sense", poison.broken_in_the_middle(poison.SENSELESS), 7,
     [b"0", b"1", b"2", b"4", b"5", b"6"], 1),
    ("a length that points nowhere", poison.broken_in_the_middle(poison.ENDLESS), 7, [b"0", b"1", b"2"], 4),
    ("a record that is too large", poison.huge_in_the_middle(KernelSettings().max_message_bytes + 1), 7,
     [b"0", b"1", b"2", b"4", b"5", b"6"], 1),
    ("garbage", poison.garbage(), 5, [], 5),
    ("deltas that lie", poison.lying_deltas(), 3, [b"0", b"1", b"2"], 0),
]


@pytest.mark.parametrize(("batch", "count", "sound", "lost"), [row[1:] for row in POISON],
                         ids=[row[0] for row in POISON])
def test_what_is_sound_is_handed_out_and_the_rest_passed_over(batch: bytes, count: int, sound: list[bytes], lost: int
                                                              ) -> None:
    rig = Rig()
    topic = poison.topic_of(rig)
    rig.publish("plant/k", b"before")
    with little_memory():
        poison.store(rig, topic, batch, count)
        rig.publish("plant/k", b"after")
        group = group_of(rig)
        assert drained(rig, group) == [b"before", *sound, b"after"]
    assert group.prefetchers[topic.partition_id(0)].cursor.committed == count + 2
    assert (group.counts().lost, group.ready) == (lost, 0)
    assert rig.kernel.statistics()["unreadable_stretches_total"] == (1 if lost else 0)


def test_offsets_follow_from_the_place_and_not_from_what_a_record_says() -> None:
    rig = Rig()
    topic = poison.topic_of(rig)
    poison.store_all(rig, topic, [(poison.lying_deltas(), 3)] * 2)
    assert [one[1] for one in pop(rig, group_of(rig))] == [0, 1, 2, 3, 4, 5]


def test_a_member_is_pushed_what_is_sound() -> None:
    rig = Rig()
    topic = poison.topic_of(rig)
    taker, _ = join(rig, group_of(rig), 1_000)
    with little_memory():
        poison.store(rig, topic, poison.lying(), poison.CLAIMED)
        rig.publish("plant/k", b"after")
    assert taker.values == [*NUMBERS, b"after"]


@pytest.mark.parametrize("lose_index", [False, True])
def test_a_hub_that_starts_with_such_a_log_serves_it(tmp_path: Path, lose_index: bool) -> None:
    """One message stays leased before the gap and one behind it, so that the cursor has to remember what is between."""
    rig = Rig(tmp_path)
    topic = poison.topic_of(rig)
    with little_memory():
        poison.store_all(rig, topic, [(poison.lying(), poison.CLAIMED)] * 3)
        rig.publish("plant/k", b"last")
        group = group_of(rig)
        held = pop(rig, group, 31, 600_000)
        assert values(held) == [*NUMBERS * 3, b"last"]
        group.ack(handles(held[5:25]))
        rig.run()
        for _ in range(2):
            rig.restart(lose_index=lose_index)
            group = group_of(rig)
            cursor = group.prefetchers[topic.partition_id(0)].cursor
            assert (cursor.committed, cursor.leased_count, pop(rig, group)) == (0, 11, [])
        rig.world.loop.advance(700_000)
        rig.run()
        assert drained(rig, group) == [*NUMBERS[:5], *NUMBERS[5:], b"last"]
    assert group.prefetchers[topic.partition_id(0)].cursor.committed == 3 * poison.CLAIMED + 1


def test_a_broken_batch_behind_a_message_that_is_out_does_not_stop_its_group() -> None:
    """The cursor cannot move its committed over it, and must not read it for ever."""
    rig = Rig()
    topic = poison.topic_of(rig)
    rig.publish("plant/k", b"held")
    group = group_of(rig)
    assert values(pop(rig, group)) == [b"held"]
    poison.store(rig, topic, poison.garbage(), 5)
    assert pop(rig, group) == []
    rig.publish("plant/k", b"next")
    assert values(pop(rig, group)) == [b"next"]


def test_purging_costs_nothing_by_claims() -> None:
    rig = Rig()
    topic = poison.topic_of(rig)
    rig.publish("plant/k", b"held")
    group = group_of(rig)
    pop(rig, group)
    with little_memory():
        poison.store(rig, topic, poison.lying(), poison.CLAIMED)
        assert group.purge() == poison.CLAIMED
        rig.run()
        assert pop(rig, group) == []
    rig.publish("plant/k", b"new")
    assert values(pop(rig, group)) == [b"new"]


def test_retention_and_what_is_kept_cost_nothing_by_claims(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic = poison.topic_of(rig)
    poison.store(rig, topic, poison.lying(), poison.CLAIMED)
    group = group_of(rig)
    held = pop(rig, group, 3)
    partition_id = topic.partition_id(0)
    with little_memory():
        (holder,) = rig.kernel._spill._holders
        assert joined(holder.needed(partition_id, 0, poison.CLAIMED)) == [(0, 3)]
        group.ack(handles(held[1:2]))
        assert joined(holder.needed(partition_id, 0, poison.CLAIMED)) == [(0, 1), (2, 3)]


def test_headers_that_lie_do_not_stop_a_group() -> None:
    """They would be looked into when it is asked whether the message expires."""
    body = b"\0\0\0" + b"\x01\x02v" + b"\x7e" + b"\x14expires-at"
    bad = bytes((2 * len(body),)) + body
    rig = Rig()
    topic = poison.topic_of(rig)
    poison.store(rig, topic, poison.broken_in_the_middle(bad), 7)
    assert drained(rig, group_of(rig)) == [b"0", b"1", b"2", b"4", b"5", b"6"]


def test_large_messages_that_are_ready_again_far_from_each_other_are_all_read() -> None:
    """One fetch does not hold them all; what it left out is not gone."""
    rig = Rig()
    poison.topic_of(rig)
    large = [b"%d" % i * 1_000_000 for i in range(8)]
    for value in large:
        rig.publish("plant/k", value)
        rig.publish("plant/k", *[b"small"] * 40)
    group = group_of(rig)
    found = pop_all(rig, group, 1_000)
    group.ack([one[:3] for one in found if one[6] == b"small"])
    group.release([one[:3] for one in found if one[6] != b"small"], 0)
    rig.run()
    assert drained(rig, group) == large
    assert group.counts().lost == 0


# ---- a wide gap, however it came about

def test_a_wide_gap_is_one_span_and_is_remembered() -> None:
    cursor = Cursor(7, "group", 0)
    cursor.take_to(3)
    with little_memory(1 << 20):
        cursor.skip_to(WIDE + 5)
        cursor.settle([1])
        assert (cursor.committed, cursor.next, len(cursor._settled), len(cursor._spans)) == (0, WIDE + 5, 2, 1)
        assert cursor.settled_ahead == WIDE + 5 - 3 + 1
        assert cursor.is_settled(WIDE // 2) and not cursor.is_settled(2) and not cursor.is_settled(WIDE + 5)
        assert joined(cursor.unsettled_stretches(0, WIDE + 9)) == [(0, 1), (2, 3), (WIDE + 5, WIDE + 9)]
        stored = {page: value for page in cursor._dirty if (value := cursor.page_record(page)) is not None}
        assert len(stored) == 3
        again = Cursor(7, "group", 0)
        again.load(stored.items(), WIDE + 5)
        assert (again.next, again._again, again._spans, again.settled_ahead) == (
            cursor.next, [0, 2], cursor._spans, cursor.settled_ahead)
        again.settle([0, 2])
        assert (again.committed, again.settled_ahead, again._spans, again._settled) == (WIDE + 5, 0, [], {})
        assert {0, 1} <= again._dirty and again.page_record(0) is None and again.page_record(1) is None


def test_a_floor_within_a_stored_span_leaves_the_rest_of_it() -> None:
    cursor = Cursor(7, "group", 0)
    cursor.take_to(1)
    cursor.skip_to(10 * PAGE_OFFSETS)
    value = cursor.page_record(1)
    assert value is not None
    behind = Cursor(7, "group", 3 * PAGE_OFFSETS + 7)
    behind.load([(1, value)], 10 * PAGE_OFFSETS)
    assert behind._spans == [(4, 10)] and len(behind._again) == PAGE_OFFSETS - 7


def test_what_is_held_behind_a_wide_gap_is_held_again_after_a_refused_frame() -> None:
    cursor = Cursor(7, "group", 0)
    cursor.take_to(1)
    with little_memory(1 << 20):
        cursor.skip_to(WIDE)
        cursor.take_to(WIDE + 1)
        cursor.lease(Lease("a member", 0, 1, [WIDE]))
        spans = list(cursor._spans)
        cursor.restore(0, (), WIDE + 1)
        assert cursor._spans == spans and cursor.next == WIDE + 1
        assert cursor._again == list(range(PAGE_OFFSETS))


def test_the_weight_of_a_queue_with_a_wide_gap_is_that_of_its_messages() -> None:
    """The log has lost segments in which a queue had very many messages."""
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(max_bytes=10_000))
    send(rig, queue, b"a" * 10, b"b" * 20)
    prefetcher = rig.kernel.groups.queue_group(queue).prefetchers[queue.first_partition_id]
    pieces = rig.fetch(queue.first_partition_id).pieces

    def with_gap(wants: list[tuple[int, int, int]], most: int, on_done: object) -> None:
        behind = Piece(WIDE, 2, False, pieces[0].data, 0, 0, 9)
        assert callable(on_done)
        on_done([Fetched(wants[0][0], None, 0, WIDE + 2, [*pieces, behind])])

    prefetcher.fetch, prefetcher.end = with_gap, lambda: WIDE + 2
    with little_memory(1 << 20):
        byte_count = ByteCount(prefetcher, rig.world.loop.call_soon)
        assert byte_count.free_bytes(lambda: None) == 60
        prefetcher.cursor.take_to(1)
        prefetcher.cursor.skip_to(WIDE + 1)
        assert byte_count.free_bytes(lambda: None) == 30
        prefetcher.cursor.settle([0])
        assert byte_count.free_bytes(lambda: None) == 20
