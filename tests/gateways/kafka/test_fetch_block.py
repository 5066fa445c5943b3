"""Many partitions of one topic as a block: the same bytes as one by one, in every version, and what it costs."""
from __future__ import annotations

import random
import uuid

import numpy as np
import pytest

from gatehouse.gateways.kafka import codec, fetch_columns
from gatehouse.gateways.kafka.api.fetch import FETCH
from gatehouse.kernel.state.partition_ids import PartitionIds
from tests.gateways.kafka.fakes import EPOCH, Peer
from tests.gateways.kafka.judge import fetch, framed
from tests.gateways.kafka.steps import steps_of

VERSIONS = range(FETCH.first_version, FETCH.last_version + 1)
MANY = 300


def body_of(version: int, offsets: dict[int, int], epoch: int) -> bytes:
    name = "plant" if version < 13 else uuid.UUID(int=5)
    return bytes(fetch(version, {(name, index): offset for index, offset in offsets.items()}, epoch=epoch).encode())


def answer(version: int, partitions: list[codec.FetchPartition], block: fetch_columns.Block | None,
           bounds: list[tuple[int, int]], read_committed: bool) -> tuple[bytes, list[tuple[int, int, int]], set[int],
                                                                         int]:
    """(the whole answer, what the kernel is asked for, the partitions that are waited for, errors)"""
    rows = codec.FetchRows(version, read_committed, EPOCH)
    partition_ids = PartitionIds(((1000, 7), (1007, len(bounds) - 7)))
    rows.open_topic(b"plant" if version < 13 else bytes(16), MANY)
    if block is None:
        rows.scan(partitions, partition_ids, lambda partition_id: bounds[partition_id - 1000])
    else:
        rows.scan_many(block, partition_ids, np.array(bounds, np.int64),
                       lambda partition_id: bounds[partition_id - 1000])
    rows.close_topic()
    for place, (partition_id, _, _) in zip(rows.places, rows.wants, strict=True):
        rows.fill(place, 0, bounds[partition_id - 1000][1], 0, [b"batch", b"%d" % partition_id])
    return b"".join(rows.encode(9, 0)), rows.wants, set(rows.partition_ids()), rows.errors


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("read_committed", [False, True])
@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("epoch", [-1, EPOCH, EPOCH - 1, EPOCH + 1])
def test_a_block_gives_the_same_bytes_as_one_by_one(version: int, read_committed: bool, missing: int,
                                                    epoch: int) -> None:
    chance = random.Random(version)
    bounds = [(start := chance.randrange(5), start + chance.choice([0, 0, 3])) for _ in range(MANY - missing)]
    offsets = {index: chance.randrange(-1, 9) if chance.random() < 0.3 else bounds[index % len(bounds)][1]
               for index in chance.sample(range(MANY), MANY)}
    body = body_of(version, offsets, epoch)
    wanted = codec.decode_fetch(body, 0, len(body), version, MANY)
    (_, partitions, block), = wanted.topics
    assert partitions == [] and block is not None
    listed = fetch_columns.partitions_of(block)
    assert [(index, offset) for index, _, offset, _ in listed] == list(offsets.items())
    assert {one[1] for one in listed} == {epoch if version >= 9 else -1}
    assert (answer(version, [], block, bounds, read_committed)
            == answer(version, listed, None, bounds, read_committed))


@pytest.mark.parametrize("version", [12, 16])
def test_tagged_fields_in_one_of_many_partitions(version: int) -> None:
    body = body_of(version, dict.fromkeys(range(MANY), 0), -1)
    row = codec._PARTITION_V12.pack(7, -1, 0, 1 << 20)
    at = body.index(b"\0\0\0\x07\xff\xff\xff\xff") + len(row)
    tagged = body[:at] + b"\1\x1f\2ab" + body[at + 1:]
    (_, partitions, block), = codec.decode_fetch(tagged, 0, len(tagged), version, MANY).topics
    assert block is None
    assert [one[0] for one in partitions] == list(range(MANY))


def test_negative_partitions_among_many() -> None:
    body = body_of(11, {index - 1: 0 for index in range(MANY)}, -1)
    (_, _, block), = codec.decode_fetch(body, 0, len(body), 11, MANY).topics
    assert block is not None
    bounds = [(0, 0)] * MANY
    assert answer(11, [], block, bounds, False)[1:] == ([], set(range(1000, 1000 + MANY)), 0)


def test_ten_thousand_partitions_with_nothing_new_cost_little() -> None:
    peer = Peer()
    topic = peer.kernel.create_topic("plant", partitions=10_000)
    peer.kernel.flush()
    idle = peer.kernel.bounds_of(topic)
    peer.kernel.bounds_of = lambda topic: idle  # type: ignore[method-assign]
    request = framed(fetch(11, {("plant", index): 0 for index in range(10_000)}), 1)
    peer.session.handle_data(request)          # with the first come a guard and the door's port
    assert steps_of(lambda: peer.session.handle_data(request)) < 700
    assert [len(frame) > 10_000 * 40 for frame in peer.link.frames()] == [True, True]
