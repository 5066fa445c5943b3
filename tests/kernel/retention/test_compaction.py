"""Compacted topics: the newest of every key stays, offsets stay, deletions go after a while."""
from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.kernel.errors import InvalidRecord, InvalidTopic, KeptFull, OffsetOutOfRange
from gatehouse.kernel.message import RETAIN, Record
from gatehouse.kernel.retention.compaction import LOOK_MS
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.state.topics import TopicSettings
from tests.kernel.batches import batch_of
from tests.kernel.delivery.test_retained import values as retained
from tests.kernel.retention.test_retention import SEGMENT_BYTES, turn_over
from tests.kernel.rig import Rig
from tests.simulation.disk import SimDisk

DAY_MS = 24 * 3_600_000


def new_rig(partitions: int = 1, **topic: int | None) -> Rig:
    rig = Rig(disk=SimDisk(Random(1)), settings=KernelSettings(segment_bytes=SEGMENT_BYTES, default_partitions=1,
                                                               retention_bytes=2 * SEGMENT_BYTES))
    rig.kernel.create_topic("c", partitions=partitions, settings=TopicSettings(compact=True, **topic))
    rig.run()
    return rig


def newest(records: list[Record]) -> dict[bytes | None, bytes | None]:
    return {record[2]: record[3] for record in records}


def kept_count(rig: Rig) -> int:
    return len(list(rig.kernel._state.scan(Kind.KEPT)))


def delete(rig: Rig, key: str) -> None:
    rig.kernel.append([(rig.kernel.place(f"c/{key}"), None, b"\0", 2, 0)], None)
    rig.run()


@pytest.mark.parametrize("lose_index", [False, True])
def test_from_the_earliest_the_newest_of_each_key(lose_index: bool) -> None:
    rig = new_rig()
    partition_id = rig.kernel.place("c/k").partition_id
    for i in range(5):
        rig.publish("c/a", b"a%d" % i)
        rig.publish("c/b", b"b%d" % i)
    offsets = [record[0] for record in rig.read_partition(partition_id)]
    assert offsets == list(range(10)), "nothing goes before its segment"
    turn_over(rig)
    for _ in range(2):
        assert rig.kernel.bounds(partition_id) == (0, 10)
        topic = rig.kernel.topic("c")
        assert topic is not None and list(rig.kernel.bounds_of(topic)) == [0, 10]
        records = rig.read_partition(partition_id)
        assert [(record[0], record[2], record[3]) for record in records] == [(8, b"a", b"a4"), (9, b"b", b"b4")]
        assert rig.fetch(partition_id, 9).pieces[0].first_offset == 9
        rig.restart(lose_index=lose_index)
    assert not rig.damage


def test_what_is_superseded_later_goes() -> None:
    rig = new_rig()
    rig.publish("c/a", b"old")
    rig.publish("c/b", b"stays")
    turn_over(rig)
    assert kept_count(rig) == 2
    rig.publish("c/a", b"new")
    rig.world.advance(5_000)
    assert kept_count(rig) == 1
    turn_over(rig)
    for lose_index in (False, True):
        assert newest(rig.read("c")) == {b"a": b"new", b"b": b"stays"} and kept_count(rig) == 2
        rig.restart(lose_index=lose_index)


def test_what_producers_send_counts_and_headers_where_they_are_interpreted() -> None:
    rig = new_rig(interpret_headers=True)
    partition_id = rig.kernel.place("c/k").partition_id
    batch = batch_of([(b"a", b"1", ()), (b"a", b"2", ()), (b"b", b"1", ((b"retain", b"true"),)),
                      (b"y" * 5_000, b"1", ()), (b"y" * 5_000, b"2", ())])
    rig.kernel.append_batch(partition_id, batch, None)
    rig.run()
    assert retained(rig, "#") == {"c/b": b"1"}
    turn_over(rig)
    assert newest(rig.read("c")) == {b"a": b"2", b"b": b"1", b"y" * 5_000: b"2"}
    assert [record[0] for record in rig.read("c")] == [1, 2, 4]
    second = batch_of([(b"b", b"", ((b"retain", b"1"),)), (b"a", b"9", ((b"retain", b"no"),))])
    rig.kernel.append_batch(partition_id, second, None)
    rig.run()
    assert retained(rig, "#") == {}


def test_producers_records_have_keys_where_keys_count() -> None:
    rig = new_rig()
    partition_id = rig.kernel.place("c/k").partition_id
    with pytest.raises(InvalidRecord, match="without key"):
        rig.kernel.append_batch(partition_id, batch_of([(b"a", b"1", ()), (None, b"x", ())]), rig.witness, "batch")
    rig.run()
    assert rig.kernel.bounds(partition_id) == (0, 0), "all of a batch, or nothing"


@pytest.mark.parametrize("lose_index", [False, True])
def test_the_newest_goes_by_age_where_the_topic_says_so(lose_index: bool) -> None:
    rig = new_rig(retention_ms=60_000)
    partition_id = rig.kernel.place("c/k").partition_id
    rig.publish("c/old", b"1")
    rig.publish("c/other", b"1")
    rig.world.advance(40_000)
    rig.publish("c/young", b"1")
    assert rig.kernel.bounds(partition_id) == (0, 3)
    rig.world.advance(32_000)
    topic = rig.kernel.topic("c")
    assert topic is not None
    for _ in range(2):
        assert rig.kernel.bounds(partition_id) == (2, 3) and list(rig.kernel.bounds_of(topic)) == [2, 3]
        assert isinstance(rig.fetch(partition_id, 0).error, OffsetOutOfRange)
        assert newest(rig.read("c")) == {b"young": b"1"}
        rig.restart(lose_index=lose_index)
        rig.world.advance(11_000)
    rig.world.advance(60_000)
    assert rig.kernel.bounds(partition_id) == (3, 3)


def test_what_is_kept_of_a_segment_goes_by_age_too() -> None:
    rig = new_rig(retention_ms=3_600_000)
    rig.publish("c/k", b"1")
    turn_over(rig)
    assert newest(rig.read("c")) == {b"k": b"1"} and kept_count(rig) == 1
    rig.world.advance(3_600_000 + LOOK_MS)
    rig.world.advance(5_000)
    assert list(rig.kernel._state.scan(Kind.LATEST)) == [] and kept_count(rig) == 0


def test_headers_do_not_count_elsewhere() -> None:
    rig = Rig()
    partition_id = rig.kernel.place("t/k").partition_id
    rig.kernel.append_batch(partition_id, batch_of([(b"b", b"1", ((b"retain", b"true"),))]), None)
    rig.run()
    assert retained(rig, "#") == {}


def test_a_batch_that_cannot_be_opened_is_refused() -> None:
    rig = new_rig()
    from tests.kernel.batches import wrap
    with pytest.raises(InvalidRecord):
        rig.kernel.append_batch(rig.kernel.place("c/k").partition_id, wrap(b"\xff\xff\xff", 2), None)


def test_deletions_go_after_their_time_but_for_the_last_record() -> None:
    rig = new_rig(delete_retention_ms=1_000_000)
    for key in ("a", "b"):
        rig.publish(f"c/{key}", b"1")
        delete(rig, key)
    turn_over(rig)
    assert newest(rig.read("c")) == {b"a": None, b"b": None}
    rig.world.advance(1_000_000 + LOOK_MS)
    rig.world.advance(5_000)
    assert newest(rig.read("c")) == {b"b": None}, "a reader finds the end"
    rig.publish("c/d", b"1")
    rig.world.advance(LOOK_MS)
    rig.world.advance(LOOK_MS)
    for lose_index in (False, True):
        assert newest(rig.read("c")) == {b"d": b"1"}
        assert [key[9:] for key, _ in rig.kernel._state.scan(Kind.LATEST)] == [b"d"]
        rig.restart(lose_index=lose_index)


def test_a_key_written_anew_while_its_deletion_is_forgotten_stays() -> None:
    rig = new_rig(delete_retention_ms=1_000)
    delete(rig, "a")
    rig.publish("c/b", b"1")
    rig.world.advance(10_000)
    rig.world.loop.advance(LOOK_MS)
    rig.kernel.append([(rig.kernel.place("c/a"), b"anew", b"\0", 2, 0)], None)
    rig.run()
    turn_over(rig)
    assert newest(rig.read("c")) == {b"a": b"anew", b"b": b"1"}


def test_a_topic_that_is_compacted_no_more_follows_retention() -> None:
    rig = new_rig()
    rig.publish("c/a", b"1")
    turn_over(rig)
    assert rig.values("c") == [b"1"]
    rig.kernel.change_topic("c", settings=TopicSettings())
    rig.world.advance(LOOK_MS)
    rig.world.advance(5_000)
    rig.run()
    assert rig.values("c") == [] and kept_count(rig) == 0


def test_deleting_the_topic_deletes_what_is_kept() -> None:
    rig = new_rig()
    rig.publish("c/a", b"1")
    turn_over(rig)
    rig.kernel.delete_topic("c")
    rig.world.advance(LOOK_MS)
    rig.world.advance(5_000)
    for kind in (Kind.KEPT, Kind.LATEST):
        assert list(rig.kernel._state.scan(kind)) == []


def test_bad_settings() -> None:
    rig = new_rig()
    with pytest.raises(InvalidTopic):
        rig.kernel.create_topic("d", settings=TopicSettings(delete_retention_ms=0))
    rig.kernel._disk_guard.note_kept_full(True)
    with pytest.raises(KeptFull):
        rig.publish("c/a", b"1")
    with pytest.raises(KeptFull):
        rig.kernel.append_batch(rig.kernel.place("c/a").partition_id, batch_of([(b"a", b"1", ())]), None)
    delete(rig, "a")


Keys = st.sampled_from(["a", "b", "c", "d/e"])
Steps = st.lists(st.one_of(
    st.tuples(st.just("put"), Keys, st.integers(0, 3)), st.tuples(st.just("delete"), Keys, st.just(0)),
    st.tuples(st.just("retain"), Keys, st.integers(0, 2)), st.tuples(st.just("batch"), Keys, st.integers(0, 3)),
    st.tuples(st.just("turn"), st.just(""), st.integers(1, 25)), st.tuples(st.just("rest"), st.just(""), st.just(0)),
    st.tuples(st.just("restart"), st.just(""), st.integers(0, 1))), max_size=40)


@settings(max_examples=60, deadline=None)
@given(Steps)
def test_against_two_dictionaries(steps: list[tuple[str, str, int]]) -> None:
    """One of the newest per key, one of the retained values."""
    rig = new_rig(partitions=2)
    latest: dict[bytes, bytes | None] = {}
    marked: dict[str, bytes] = {}
    for number, (verb, key, size) in enumerate(steps):
        value = b"%d" % number + b"x" * (size * 1_000)
        if verb == "put":
            rig.publish(f"c/{key}", value)
            latest[key.encode()] = value
        elif verb == "delete":
            delete(rig, key)
            latest[key.encode()] = None
        elif verb == "retain":
            kept = value if size else b""
            rig.publish(f"c/{key}", kept, attributes=RETAIN | 2)
            latest[key.encode()] = kept
            marked.pop(f"c/{key}", None)
            if kept:
                marked[f"c/{key}"] = kept
        elif verb == "batch":
            rig.kernel.append_batch(rig.kernel.place(f"c/{key}").partition_id,
                                    batch_of([(key.encode(), b"before", ()), (key.encode(), value, ())]), None)
            rig.run()
            latest[key.encode()] = value
        elif verb == "turn":
            turn_over(rig, size)
        elif verb == "rest":
            rig.world.advance(15_000)
        else:
            rig.restart(lose_index=bool(size))
        assert newest(rig.read("c")) == latest
        assert retained(rig, "c/#", 2) == marked
    turn_over(rig, 30)
    rig.world.advance(15_000)
    assert newest(rig.read("c")) == latest and len(rig.read("c")) == len(latest), "only the newest are left"
    assert not rig.damage
