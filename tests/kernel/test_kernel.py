"""The kernel as doors use it, over both logs: what goes in comes out, in order, and is there after a crash."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.errors import (
    IdempotencyConflict,
    MessageTooLarge,
    OffsetOutOfRange,
    OutOfOrderSequence,
    TopicExists,
    UnknownTopic,
)
from gatehouse.kernel.message import RETAIN, Piece
from gatehouse.kernel.records.batch import as_batch, check_batch, encode_headers, encode_key, varint
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.state.topics import TopicSettings
from gatehouse.kernel.write.validating import OPEN_HERE_BYTES
from tests.gateways.kafka.steps import steps_of
from tests.kernel.records.placing import placed
from tests.kernel.rig import Rig, Witness


@pytest.fixture(params=["memory", "files"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    return Rig(tmp_path if request.param == "files" else None)


def producer_batch(values: list[bytes], producer_id: int = -1, sequence: int = -1, key: bytes | None = None) -> bytes:
    """A record batch as a Kafka producer sends it."""
    import struct

    from crc32c import crc32c

    records = b""
    for i, value in enumerate(values):
        body = b"\0\0" + varint(i) + encode_key(key) + varint(len(value)) + value + b"\0"
        records += varint(len(body)) + body
    epoch = 0 if producer_id >= 0 else -1
    tail = struct.pack(">hiqqqhii", 0, len(values) - 1, 1000, 1000, producer_id, epoch, sequence, len(values)) + records
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


def test_a_message_is_read_back_with_key_headers_and_time(rig: Rig) -> None:
    (position,) = rig.publish("plant/line1/temp", b"21.5", headers=[(b"unit", b"C"), (b"unit", None)])
    (record,) = rig.read("plant")
    offset, timestamp_ms, key, value, headers, attributes, message_id = record
    assert (offset, key, value) == (0, b"line1/temp", b"21.5")
    assert headers == ((b"unit", b"C"), (b"unit", None)) and attributes == 2
    assert timestamp_ms == rig.witness.stored[0].append_ms and message_id == position[2]


def test_messages_of_a_key_keep_their_order_over_flushes_and_restarts(rig: Rig) -> None:
    for i in range(5):
        rig.publish("t/k", *[b"%d-%d" % (i, j) for j in range(50)])
    expected = [b"%d-%d" % (i, j) for i in range(5) for j in range(50)]
    before = rig.read("t")
    assert [record[3] for record in before] == expected
    rig.restart()
    assert rig.read("t") == before
    rig.restart(lose_index=True)
    assert rig.read("t") == before
    rig.publish("t/k", b"after")
    assert rig.values("t") == [*expected, b"after"]
    assert rig.read("t")[-1][6] > before[-1][6], "message ids only grow"


def test_reads_go_on_from_checkpoints(rig: Rig) -> None:
    for i in range(600):
        rig.publish("t/k", b"%d" % i)
        if i % 100 == 50:
            rig.world.advance(5_000)
    assert rig.values("t") == [b"%d" % i for i in range(600)]
    partition_id = rig.witness.stored[0].positions[0][0]
    assert [record[3] for record in rig.read_partition(partition_id, 299)][:2] == [b"299", b"300"]
    rig.restart()
    assert rig.kernel.recovered_frames < 200
    assert rig.values("t") == [b"%d" % i for i in range(600)]


def test_nothing_is_visible_or_answered_before_it_is_durable(rig: Rig) -> None:
    placement = rig.kernel.place("t/k")
    rig.kernel.append([(placement, b"v", b"\0", 0, 0)], rig.witness, "token")
    while rig.world.loop.step():
        pass
    assert not rig.witness.stored and rig.kernel.bounds(placement.partition_id) == (0, 0)
    rig.run()
    assert [stored.token for stored in rig.witness.stored] == ["token"]
    assert rig.kernel.bounds(placement.partition_id) == (0, 1)


def test_how_long_the_disk_keeps_messages_waiting_is_known(rig: Rig) -> None:
    assert rig.kernel.unflushed_ms() == 0
    rig.kernel.append([(rig.kernel.place("orders"), b"a", b"\0", 2, 0)], rig.witness, "a")
    while rig.world.loop.step():                       # and not the log's thread: the disk takes nothing
        pass
    rig.world.loop.advance(7_000)
    assert rig.kernel.unflushed_ms() == 7_000 and not rig.witness.stored
    rig.run()
    assert rig.kernel.unflushed_ms() == 0 and rig.witness.stored[0].error is None


def test_answers_come_in_order_once_per_flush(rig: Rig) -> None:
    calls: list[list[object]] = []

    class Owner:
        def on_stored(self, stored: list[object]) -> None:
            calls.append([one.token for one in stored])  # type: ignore[attr-defined]

    placement, owner = rig.kernel.place("t/k"), Owner()
    for i in range(5):
        rig.kernel.append([(placement, b"v", b"\0", 0, 0)], owner, i)  # type: ignore[arg-type]
    rig.run()
    assert calls == [[0, 1, 2, 3, 4]]


def test_a_producers_batch_is_stored_as_sent(rig: Rig) -> None:
    topic = rig.kernel.create_topic("k", partitions=2)
    batch = producer_batch([b"a", b"b", b"c"], key=b"key")
    for token in range(2):
        rig.kernel.append_batch(topic.partition_id(1), batch, rig.witness, token)
    rig.run()
    assert [stored.positions[0][1] for stored in rig.witness.stored] == [0, 3]
    fetched = rig.fetch(topic.partition_id(1), 4)
    (piece,) = fetched.pieces
    assert piece.first_offset == 3 and piece.whole and fetched.high_watermark == 6
    assert piece.data == placed(batch, 3, rig.kernel.epoch)
    assert [record[:4] for record in rig.read("k")] == [
        (i, 1000, b"key", value) for i, value in enumerate([b"a", b"b", b"c"] * 2)]


def test_batches_and_messages_of_one_queue_keep_the_order_of_arrival(rig: Rig) -> None:
    topic = rig.kernel.create_topic("t", partitions=1)
    placement = rig.kernel.place("t/k")
    rig.kernel.append([(placement, b"1", b"\0", 1, 0)], None)
    rig.kernel.append_batch(topic.partition_id(0), producer_batch([b"2", b"3"]), None)
    rig.kernel.append([(placement, b"4", b"\0", 1, 0)], None)
    rig.run()
    assert [(record[0], record[3]) for record in rig.read("t")] == [(0, b"1"), (1, b"2"), (2, b"3"), (3, b"4")]


def test_a_run_of_messages_reads_as_a_kafka_batch(rig: Rig) -> None:
    rig.publish("t/k", *[b"%d" % i for i in range(10)])
    partition_id = rig.witness.stored[0].positions[0][0]
    (piece,) = rig.fetch(partition_id).pieces
    header = check_batch(as_batch(piece, 7))
    assert (header.base_offset, header.record_count, header.leader_epoch) == (0, 10, 7)


def test_a_repeated_batch_is_stored_once_and_gets_the_same_answer(rig: Rig) -> None:
    topic = rig.kernel.create_topic("t", partitions=1)
    partition_id = topic.partition_id(0)
    first = producer_batch([b"a", b"b"], producer_id=9, sequence=0)
    rig.kernel.append_batch(partition_id, first, rig.witness, 1)
    rig.kernel.append_batch(partition_id, first, rig.witness, 2)           # while the first is pending
    rig.run()
    rig.kernel.append_batch(partition_id, first, rig.witness, 3)
    rig.run()
    rig.restart()
    rig.kernel.append_batch(partition_id, first, rig.witness, 4)           # the state is found in the log
    rig.run()
    rig.restart(lose_index=True)
    rig.kernel.append_batch(partition_id, producer_batch([b"c"], producer_id=9, sequence=2), rig.witness, 5)
    rig.run()
    assert rig.witness.stored[0].positions[0][1] == 2
    assert rig.values("t") == [b"a", b"b", b"c"]


def test_a_gap_and_a_forgotten_repeat_in_a_producers_sequence_are_refused(rig: Rig) -> None:
    partition_id = rig.kernel.create_topic("t", partitions=1).partition_id(0)
    for sequence in range(7):
        rig.kernel.append_batch(partition_id, producer_batch([b"%d" % sequence], 9, sequence), rig.witness)
    with pytest.raises(OutOfOrderSequence):
        rig.kernel.append_batch(partition_id, producer_batch([b"x"], 9, 8), rig.witness)
    rig.run()
    with pytest.raises(OutOfOrderSequence):
        rig.kernel.append_batch(partition_id, producer_batch([b"0"], 9, 0), rig.witness)
    assert rig.values("t") == [b"%d" % i for i in range(7)]


def test_a_batch_of_which_a_part_is_stored_is_no_repeat(rig: Rig) -> None:
    """Its client would take the rest for stored."""
    partition_id = rig.kernel.create_topic("t", partitions=1).partition_id(0)
    rig.kernel.append_batch(partition_id, producer_batch([b"a", b"b", b"c"], 9, 0), rig.witness)
    rig.run()
    with pytest.raises(OutOfOrderSequence):
        rig.kernel.append_batch(partition_id, producer_batch([b"b", b"c", b"d"], 9, 1), rig.witness)


def test_a_producer_that_was_silent_for_a_week_is_forgotten(rig: Rig) -> None:
    partition_id = rig.kernel.create_topic("t", partitions=1).partition_id(0)
    for producer_id in (8, 9):
        rig.kernel.append_batch(partition_id, producer_batch([b"a"], producer_id, 0), None)
    rig.run()
    for _ in range(8):
        rig.world.advance(24 * 3_600_000)
        rig.kernel.append_batch(partition_id, producer_batch([b"b"], 9, 1), None)     # the same batch again and again
        rig.run()
    rig.world.advance(2 * 3_600_000)
    remembered = {key[8:] for key, _ in rig.kernel._state.scan(Kind.PRODUCER)}
    assert (8).to_bytes(8, "big") not in remembered
    rig.restart(lose_index=True)
    rig.kernel.append_batch(partition_id, producer_batch([b"z"], 8, 5), rig.witness)
    rig.run()
    assert rig.witness.stored[0].error is None and rig.values("t") == [b"a", b"a", b"b", b"z"]


def test_an_idempotency_key_gets_its_first_answer(rig: Rig) -> None:
    first = rig.publish("t/k", b"v", idempotency_key="key-1")
    assert rig.publish("t/k", b"v", idempotency_key="key-1") == first
    with pytest.raises(IdempotencyConflict):
        rig.publish("t/k", b"other", idempotency_key="key-1")
    with pytest.raises(IdempotencyConflict):
        rig.publish("t/k", b"v", attributes=RETAIN, idempotency_key="key-1")
    rig.restart()
    assert rig.publish("t/k", b"v", idempotency_key="key-1") == first
    assert rig.values("t") == [b"v"]
    rig.world.advance(rig.settings.idempotency_ms + 1)
    rig.publish("t/k", b"other", idempotency_key="key-1")
    assert rig.values("t") == [b"v", b"other"]
    rig.restart()
    rig.publish("t/k", b"other", idempotency_key="key-1")
    assert rig.values("t") == [b"v", b"other"], "the new answer outlives the old one's deletion"


def test_subscribers_hear_what_matches_once_it_is_durable(rig: Rig) -> None:
    witness = Witness()
    rig.kernel.subscribe("plant/+/temp", witness, 1)
    rig.kernel.subscribe("plant/#", witness, 0)
    rig.publish("plant/a/temp", b"1", b"2")
    rig.publish("plant/a/other", b"3")
    rig.publish("elsewhere", b"4")
    assert witness.delivered == [("plant/a/temp", b"1", 0, 1), ("plant/a/temp", b"2", 1, 1),
                                 ("plant/a/other", b"3", witness.delivered[2][2], 0)]
    rig.kernel.unsubscribe("plant/#", witness)
    rig.publish("plant/a/other", b"5")
    assert len(witness.delivered) == 3


@pytest.mark.parametrize("value_bytes", [10, 100_000])
def test_subscribers_hear_the_records_of_producers_batches_in_order(rig: Rig, value_bytes: int) -> None:
    topic = rig.kernel.create_topic("plant", partitions=1)
    witness = Witness()
    rig.kernel.subscribe("plant/a/temp", witness, 1)
    placement = rig.kernel.place("plant/a/temp")
    rig.kernel.append([(placement, b"first", b"\0", 1, 0)], None)
    rig.kernel.append_batch(topic.partition_id(0), producer_batch([b"x" * value_bytes], key=b"a/temp"), None)
    rig.kernel.append_batch(topic.partition_id(0), producer_batch([b"y" * value_bytes], key=b"b/temp"), None)
    if value_bytes > OPEN_HERE_BYTES:
        rig.world.validation_worker.step()           # opened on another thread: it enters when that is done
        rig.world.validation_worker.step()
        while rig.world.loop.step():
            pass
    rig.kernel.append([(placement, b"last", b"\0", 1, 0)], None)
    rig.run()
    assert [(value or b"")[:5] for _, value, _, _ in witness.delivered] == [b"first", b"xxxxx", b"last"]
    assert [offset for _, _, offset, _ in witness.delivered] == [0, 1, 3]


def test_offsets_outside_the_queue_are_refused_with_its_bounds(rig: Rig) -> None:
    rig.publish("t/k", b"v")
    partition_id = rig.witness.stored[0].positions[0][0]
    fetched = rig.fetch(partition_id, 5)
    assert isinstance(fetched.error, OffsetOutOfRange)
    assert (fetched.log_start_offset, fetched.high_watermark) == (0, 1)
    assert rig.fetch(partition_id, 1).pieces == []


def test_a_watch_of_a_whole_topic(rig: Rig) -> None:
    woken: list[str] = []
    topic = rig.kernel.create_topic("wide", partitions=1000)
    first = topic.partition_id(0)
    rig.kernel.watch(range(first, first + 1000), lambda: woken.append("wide"))
    rig.kernel.watch(range(first, first + 1000), lambda: woken.append("cancelled")).cancel()
    rig.publish("elsewhere/x", b"v")
    assert woken == []
    for _ in range(2):
        rig.kernel.append_batch(topic.partition_id(999), producer_batch([b"v"]), None)
        rig.run()
    assert woken == ["wide"]


def test_a_watch_of_a_large_topic_is_kept_once(rig: Rig) -> None:
    """Also where it has grown; what enters other topics, with ids in between or behind, wakes nobody."""
    woken: list[str] = []
    topic = rig.kernel.create_topic("wide", partitions=2_000)
    rig.kernel.create_topic("between", partitions=50)
    topic = rig.kernel.change_topic("wide", partitions=4_000)
    rig.run()
    assert steps_of(lambda: rig.kernel.watch(topic.partition_ids(), lambda: woken.append("cancelled")).cancel()) < 100
    for partition in (0, 1_999, 2_000, 3_999):
        rig.kernel.watch(topic.partition_ids(), lambda at=partition: woken.append(at))
        rig.publish("between/x", b"v")
        rig.publish("behind/x", b"v")
        assert woken == []
        for _ in range(2):
            rig.kernel.append_batch(topic.partition_id(partition), producer_batch([b"v"]), None)
            rig.run()
        assert woken == [partition]
        woken.clear()


def test_the_bounds_of_a_whole_topic(rig: Rig) -> None:
    topic = rig.kernel.create_topic("wide", partitions=300)
    rig.kernel.create_topic("between")
    topic = rig.kernel.change_topic("wide", partitions=700)
    for partition in (0, 299, 300, 699, 699):
        rig.kernel.append_batch(topic.partition_id(partition), producer_batch([b"v"]), None)
    rig.run()
    bounds = rig.kernel.bounds_of(topic)
    assert list(zip(bounds[::2], bounds[1::2], strict=True)) == [rig.kernel.bounds(partition_id)
                                                                 for partition_id in topic.partition_ids()]
    assert [bounds[2 * partition + 1] for partition in (0, 1, 299, 300, 699)] == [1, 0, 1, 1, 2]


def test_a_watch_wakes_once_when_its_queue_gets_records(rig: Rig) -> None:
    here, there = rig.kernel.place("t/k"), rig.kernel.place("other/k")
    woken: list[str] = []
    rig.kernel.watch({here.partition_id}, lambda: woken.append("here"))
    rig.kernel.watch({there.partition_id}, lambda: woken.append("there")).cancel()
    rig.publish("other/k", b"v")
    assert woken == []
    rig.publish("t/k", b"v")
    rig.publish("t/k", b"v")
    assert woken == ["here"]


def test_offsets_are_found_by_time(rig: Rig) -> None:
    times = []
    for i in range(10):
        rig.publish("t/k", b"%d" % i)
        times.append(rig.witness.stored[-1].append_ms)
        rig.world.advance(10_000)
    partition_id = rig.witness.stored[0].positions[0][0]
    found: list[tuple[int | None, int]] = []
    for time in (0, times[3], times[3] + 1, times[9] + 1):
        rig.kernel.offset_for_time(partition_id, time, lambda offset, at: found.append((offset, at)))
        rig.run()
    assert found == [(0, times[0]), (3, times[3]), (4, times[4]), (None, -1)]


def test_the_record_with_the_largest_timestamp_is_found_in_memory_and_in_the_store(rig: Rig) -> None:
    placement = rig.kernel.place("t/k")
    partition_id = placement.partition_id
    found: list[tuple[int | None, int]] = []

    def look() -> tuple[int | None, int]:
        rig.port().offset_of_largest_timestamp(partition_id, lambda offset, at: found.append((offset, at)))
        rig.run()
        return found[-1]

    assert look() == (None, -1)
    ahead_ms = rig.world.loop.now_ms() + 60_000
    for timestamp_ms in (0, ahead_ms, ahead_ms, ahead_ms - 1):
        rig.kernel.append([(placement, b"v", b"\0", 0, timestamp_ms)], None)
        rig.run()
    assert look() == (1, ahead_ms)
    rig.restart()
    assert look() == (1, ahead_ms)
    rig.kernel.append([(rig.kernel.place("t/k"), b"v", b"\0", 0, ahead_ms + 5)], None)
    rig.run()
    assert look() == (4, ahead_ms + 5)


def test_topics_are_defined_changed_deleted_and_found_again(rig: Rig) -> None:
    topic = rig.kernel.create_topic("t", partitions=2, settings=TopicSettings(max_message_bytes=1000))
    with pytest.raises(TopicExists):
        rig.kernel.create_topic("t")
    placement = rig.kernel.place("t/k")
    with pytest.raises(MessageTooLarge):
        rig.kernel.append([(placement, b"v" * 2000, b"\0", 0, 0)], None)
    rig.kernel.change_topic("t", partitions=5, settings=TopicSettings(max_message_bytes=3000))
    rig.kernel.append([(placement, b"v" * 2000, b"\0", 0, 0)], None)
    rig.run()
    rig.restart()
    found = rig.kernel.topic("t")
    assert found is not None and found.uuid == topic.uuid and found.partitions == 5
    assert list(found.partition_ids())[:2] == list(topic.partition_ids())
    rig.kernel.delete_topic("t")
    rig.run()
    with pytest.raises(UnknownTopic):
        rig.kernel.change_topic("t", partitions=6)
    rig.restart()
    assert rig.kernel.topic("t") is None
    again = rig.kernel.create_topic("t", partitions=1)
    assert not set(again.partition_ids()) & set(found.partition_ids()), "partition ids are never used again"


def test_the_largest_message_changes_while_running(rig: Rig) -> None:
    placement = rig.kernel.place("t/k")
    rig.kernel.append([(placement, b"v" * 5000, b"\0", 0, 0)], None)
    rig.kernel.configure(KernelSettings(max_message_bytes=2000, fsync="never"))
    with pytest.raises(MessageTooLarge):
        rig.kernel.append([(placement, b"v" * 5000, b"\0", 0, 0)], None)
    assert rig.kernel.settings.fsync == "commit", "what is not live waits for the next start"
    rig.run()


def test_a_deleted_topics_placement_finds_the_new_one(rig: Rig) -> None:
    placement = rig.kernel.place("t/k")
    rig.kernel.append([(placement, b"old", b"\0", 0, 0)], None)
    rig.run()
    rig.kernel.delete_topic("t")
    rig.run()
    rig.kernel.append([(placement, b"new", b"\0", 0, 0)], None)
    rig.run()
    assert rig.values("t") == [b"new"]


def test_without_auto_creation_an_unknown_topic_is_refused() -> None:
    rig = Rig(settings=KernelSettings(auto_create_topics=False))
    with pytest.raises(UnknownTopic):
        rig.kernel.place("a/1")


def test_committed_offsets_of_groups_survive(rig: Rig) -> None:
    partition_id = rig.kernel.place("t/k").partition_id
    rig.kernel.groups.commit_offsets("g", {partition_id: (5, b"meta")}, rig.witness)
    rig.run()
    rig.kernel.groups.commit_offsets("g", {partition_id: (7, b"")}, rig.witness)
    rig.run()
    assert rig.kernel.groups.committed("g") == {partition_id: (7, b"")}
    rig.restart()
    assert rig.kernel.groups.committed("g") == {partition_id: (7, b"")} and rig.kernel.groups.committed("none") == {}


def test_offsets_that_were_on_their_way_go_with_their_topic(rig: Rig) -> None:
    partition_id = rig.kernel.place("t/k").partition_id
    rig.run()
    rig.kernel.groups.commit_offsets("g", {partition_id: (5, b"")}, rig.witness)
    while rig.world.loop.step():                          # on its way to the disk
        pass
    rig.kernel.groups.commit_offsets("h", {partition_id: (7, b"")}, rig.witness)
    rig.kernel.delete_topic("t")
    rig.run()
    assert rig.kernel.groups.committed("g") == {} and rig.kernel.groups.committed("h") == {}
    rig.restart()
    assert rig.kernel.groups.committed("g") == {} and rig.kernel.groups.committed("h") == {}


def test_producer_ids_are_never_given_twice(rig: Rig) -> None:
    given = []
    for _ in range(3):
        rig.kernel.new_producer_id(rig.witness)
        rig.run()
        given.append(rig.witness.stored[-1].positions[0][0])
        rig.restart()
    assert len(set(given)) == 3


def test_closing_leaves_nothing_to_replay(rig: Rig) -> None:
    rig.publish("t/k", b"v")
    closed: list[bool] = []
    rig.kernel.close(lambda: closed.append(True))
    rig.run()
    assert closed == [True]
    rig.restart()
    assert rig.kernel.recovered_frames == 0 and rig.values("t") == [b"v"]


def test_headers_are_kept_as_pairs() -> None:
    headers = ((b"a", b"1"), (b"a", None), (b"", b""))
    record = b"\0\0\0" + encode_key(b"k") + varint(1) + b"v" + encode_headers(headers)
    from gatehouse.kernel.records.batch import records_of

    (read,) = records_of(Piece(3, 1, False, varint(len(record)) + record, 10, 10, 99))
    assert read == (3, 10, b"k", b"v", headers, 0, 99)
