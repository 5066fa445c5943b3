"""Every id says which shard gave it; a log from before is that of shard 0; ids of two shards are never mixed."""
from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.connections.open_connections import OpenConnections
from gatehouse.kernel.groups.group_settings import QueueSettings, decode_queue, encode_queue
from gatehouse.kernel.ids import NUMBER_BITS, SHARD_BITS, ForeignShard, check_shards, first_id, shard_of, shards_of
from gatehouse.kernel.log.memory_log import MemoryLog
from gatehouse.kernel.message import Entries, StateRecord, encode_head
from gatehouse.kernel.recovery.resuming import look_through, resume
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.state.topics import TopicSettings, decode_topic, encode_topic
from tests.kernel.groups.test_groups import handles, pop, send, values
from tests.kernel.rig import Rig

BEFORE_SHARDS = Path(__file__).parent / "log" / "frames_without_shard.txt"
LAST = (1 << SHARD_BITS) - 1


# ---- the layout

@given(st.integers(0, LAST), st.integers(0, (1 << NUMBER_BITS) - 1))
def test_an_id_is_a_positive_64_bit_number_and_says_its_shard(shard: int, number: int) -> None:
    given_id = first_id(shard) + number
    assert shard_of(given_id) == shard
    assert 0 <= given_id < 1 << 63


@given(st.integers(0, LAST), st.integers(0, LAST))
def test_the_ids_of_a_shard_are_below_those_of_the_next(shard: int, other: int) -> None:
    assert (first_id(shard) < first_id(other)) == (shard < other)


def test_the_ids_of_shard_0_are_exact_in_javascript() -> None:
    assert first_id(0) == 0
    assert first_id(1) == 2**53


@given(st.lists(st.integers(0, 3), max_size=8))
def test_ids_of_another_shard_are_found_among_many(shards: list[int]) -> None:
    ids = [first_id(shard) + 7 for shard in shards]
    if set(shards) <= {2}:
        check_shards(shards_of(ids), 2)
    else:
        with pytest.raises(ForeignShard, match="of shard 2"):
            check_shards(shards_of(ids), 2)


# ---- what a hub gives

def ids_given(rig: Rig) -> list[int]:
    """One id of each kind, at least."""
    topic = rig.kernel.create_topic("orders", partitions=300)
    positions = rig.publish("orders/a", b"1", b"2")
    queue = rig.kernel.groups.declare_queue("jobs")
    send(rig, queue, b"3")
    group = rig.kernel.groups.group("billing", "orders")
    pop(rig, group, 1)
    rig.kernel.new_producer_id(rig.witness, "producer")
    rig.run()
    producers = [position[0] for stored in rig.witness.stored if stored.token == "producer"
                 for position in stored.positions]
    cursors = [prefetcher.cursor.epoch for prefetcher in group.prefetchers.values()]
    connections = OpenConnections(rig.kernel.epoch, rig.kernel.shard)
    numbers = [int(connections.add(None).split("-")[1]) for _ in range(2)]  # type: ignore[arg-type]
    assert producers and cursors
    return [topic.id, *topic.partition_ids(), *queue.partition_ids(), *producers, *cursors, *numbers,
            *(part for position in positions for part in (position[0], position[2]))]


@pytest.mark.parametrize("shard", [0, 1, 700, LAST])
def test_every_id_says_the_shard_that_gave_it(shard: int) -> None:
    rig = Rig(shard=shard)
    assert shards_of(ids_given(rig)) == {shard}
    rig.restart(lose_index=True)
    assert rig.kernel.shard == shard
    assert shards_of([part for position in rig.publish("plant/x", b"4") for part in position[::2]]) == {shard}
    assert rig.values("orders") == [b"1", b"2"]


@pytest.mark.parametrize("lose_index", [False, True])
def test_a_hub_keeps_its_shard(lose_index: bool) -> None:
    rig = Rig(shard=5)
    rig.publish("orders/a", b"1")
    rig.shard = 6
    rig.restart(lose_index=lose_index)
    assert rig.kernel.shard == 5
    assert shard_of(rig.publish("orders/a", b"2")[0][2]) == 5


def test_two_shards_never_give_the_same_id() -> None:
    one, other = ids_given(Rig(shard=1)), ids_given(Rig(shard=2))
    assert not set(one) & set(other)


def test_a_cursor_gets_another_epoch_after_each_start_and_rewind() -> None:
    rig = Rig()
    rig.publish("orders/a", b"1")
    topic = rig.kernel.topic("orders")
    assert topic is not None
    epochs = []
    for _ in range(3):
        group = rig.kernel.groups.group("billing", "orders")
        pop(rig, group)
        epochs += [prefetcher.cursor.epoch for prefetcher in group.prefetchers.values()]
        rig.kernel.groups.rewind("billing", topic, {topic.partition_id(1): 0})
        rig.run()
        epochs.append(group.prefetchers[topic.partition_id(1)].cursor.epoch)
        rig.kernel.groups.delete("billing")
        rig.run()
        rig.restart()
    ids = [position[2] for position in rig.publish("orders/a", b"2")]
    assert len({*epochs, *ids}) == 7 == len(epochs) + len(ids)


def test_a_log_that_is_put_back_goes_on_in_its_shard() -> None:
    rig = Rig(shard=9)
    contents = look_through(rig.log, rig.damage.append)
    resume(rig.log, contents, 0, 1_000, bytes(32))
    rig.restart()
    assert shards_of(ids_given(rig)) == {9}


# ---- what is kept as JSON

@given(st.integers(0, LAST))
def test_ids_are_exact_in_json_whoever_reads_it(shard: int) -> None:
    """JSON's numbers are doubles to many: all of them are read as such here."""
    topics = Rig(shard=shard).kernel._topics
    topic = topics.create("orders", "/", 7, TopicSettings(), 0)
    read = json.loads(encode_topic(topic), parse_int=float)
    assert int(read["id"]) == topic.id
    assert [int(first) for first, _ in read["ranges"]] == [first for first, _ in topic.ranges]
    assert decode_topic(encode_topic(topic)) == topic


def test_the_first_partition_of_a_queue_is_exact_in_json() -> None:
    queue = Rig(shard=LAST).kernel.groups.declare_queue("jobs", QueueSettings(priorities=3))
    assert int(json.loads(encode_queue(queue), parse_int=float)["first_partition_id"]) == queue.first_partition_id
    assert decode_queue(b"/\0jobs", encode_queue(queue)) == queue


# ---- what is found in a log

def log_from_before() -> MemoryLog:
    """The frames of a hub from before ids said their shard: topics, messages, a group's lease, a queue, a producer."""
    log = MemoryLog()
    for line in BEFORE_SHARDS.read_text().splitlines():
        head, _, body = line.partition(" ")
        log.append(b64decode(head), b64decode(body))
    return log


def test_a_log_from_before_shards_is_that_of_shard_0() -> None:
    rig = Rig(log=log_from_before(), shard=3)
    assert rig.kernel.shard == 0
    orders, queue = rig.kernel.topic("orders"), rig.kernel.groups.queue("jobs")
    assert orders is not None and queue is not None
    assert (orders.id, orders.ranges, queue.first_partition_id) == (1, ((1, 3),), 8)
    records = [record for partition_id in orders.partition_ids() for record in rig.read_partition(partition_id)]
    assert [(record[3], record[6]) for record in records] == [(b"1", 2097152), (b"2", 2097153), (b"3", 2097154)]
    group = rig.kernel.groups.group("billing", "orders")
    assert [prefetcher.cursor.epoch for prefetcher in group.prefetchers.values()] == [1 << 32 | 1]
    assert values(pop(rig, rig.kernel.groups.queue_group(queue))) == [b"5"]
    rig.world.advance(60_000)
    again = pop(rig, group)
    assert values(again) == [b"2", b"3"]
    assert group.ack(handles(again)) == [None, None]
    assert rig.kernel.create_topic("more", partitions=1).id == 3
    rig.kernel.new_producer_id(rig.witness, "producer")
    rig.run()
    assert rig.witness.stored[-1].positions[0][0] == 2
    assert rig.publish("more/a", b"6")[0][2] >= 2097152 + (1 << 20)
    rig.restart(lose_index=True)
    assert rig.kernel.shard == 0 and rig.values("more") == [b"6"]


def foreign_frame(rig: Rig, kind: str) -> bytes:
    """The head of a frame that holds something of shard 4."""
    entries, state, next_id = Entries(), [], rig.kernel._identity.first_id
    if kind == "message ids":
        next_id = first_id(4) + 7
    elif kind == "partition ids":
        for column, value in zip(entries.columns(), (first_id(4) + 7, 0, 0, next_id, 1, 0, 0, 0, 0), strict=True):
            column.append(value)
    elif kind == "a topic":
        topics = Rig(shard=4).kernel._topics
        topic = topics.create("theirs", "/", 7, TopicSettings(), 0)
        state.append(StateRecord(Kind.TOPIC, topic.id.to_bytes(8, "big"), encode_topic(topic)))
    elif kind == "counters":
        state.append(StateRecord(Kind.COUNTERS, b"", Rig(shard=4).kernel._topics.counters()))
    else:
        state.append(StateRecord(Kind.WATERMARKS, (first_id(4) + 512 >> 8).to_bytes(8, "big"), bytes(256 * 16)))
    return encode_head(rig.kernel.epoch, 0, next_id, 1, entries, state)


@pytest.mark.parametrize("kind", ["message ids", "partition ids", "a topic", "counters", "watermarks"])
@pytest.mark.parametrize("shard", [0, 3])
def test_a_log_with_ids_of_another_shard_is_refused(kind: str, shard: int) -> None:
    rig = Rig(shard=shard)
    rig.publish("orders/a", b"1")
    rig.log.append(foreign_frame(rig, kind), b"")
    before = rig.log.end()
    with pytest.raises(ForeignShard, match=f"that of shard {shard}, and has ids that shard 4 gave"):
        rig.restart()
    assert rig.log.end() == before
