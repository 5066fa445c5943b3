"""Producers' batches of topics whose records have the time of their append."""
from __future__ import annotations

import pytest
from crc32c import crc32c

from gatehouse.kernel.records.batch import CRC_COVERS_FROM, LOG_APPEND_TIME, read_header
from gatehouse.kernel.state.topics import TopicSettings
from tests.kernel.batches import batch_of
from tests.kernel.rig import Rig

BATCH = batch_of([(b"a", b"1", ()), (b"b", b"2", ())])             # made in 1970


def new_rig(**settings: bool) -> tuple[Rig, int]:
    rig = Rig()
    topic = rig.kernel.create_topic("t", partitions=1, settings=TopicSettings(**settings))
    rig.run()
    return rig, topic.partition_id(0)


def offset_for(rig: Rig, partition_id: int, time_ms: int) -> tuple[int | None, int]:
    answers: list[tuple[int | None, int]] = []
    rig.kernel.offset_for_time(partition_id, time_ms, lambda *answer: answers.append(answer))
    rig.run()
    return answers[0]


@pytest.mark.parametrize("compact", [False, True])
def test_records_have_the_time_at_which_they_were_stored(compact: bool) -> None:
    rig, partition_id = new_rig(log_append_time=True, compact=compact)
    rig.kernel.append_batch(partition_id, BATCH, rig.witness, "batch")
    rig.run()
    stored = rig.witness.stored[-1]
    for _ in range(2):
        records = rig.read_partition(partition_id)
        assert [(record[2], record[1]) for record in records] == [(b"a", stored.append_ms), (b"b", stored.append_ms)]
        assert offset_for(rig, partition_id, stored.append_ms) == (0, stored.append_ms)
        assert offset_for(rig, partition_id, stored.append_ms + 1) == (None, -1)
        rig.restart(lose_index=True)


def test_the_batch_says_so_and_its_checksum_is_right() -> None:
    rig, partition_id = new_rig(log_append_time=True)
    rig.kernel.append_batch(partition_id, BATCH, rig.witness)
    rig.run()
    batches: list[bytes] = []
    rig.kernel.fetch([(partition_id, 0, 1 << 20)], 1 << 20,
                     lambda answers: batches.extend(piece.data for piece in answers[0].pieces), stored=True)
    rig.run()
    header = read_header(batches[0])
    assert header.attributes & LOG_APPEND_TIME and header.crc == crc32c(batches[0][CRC_COVERS_FROM:])
    assert header.max_ms == rig.witness.stored[-1].append_ms and header.base_ms == 1000


def test_who_listens_hears_the_same_time() -> None:
    rig, partition_id = new_rig(log_append_time=True)
    times: list[int] = []

    class Listener:
        def on_delivery(self, deliveries: list[tuple[object, list[tuple[object, bytes, bytes, int, int]], int, int]]
                        ) -> None:
            times.extend(message[4] for _, messages, _, _ in deliveries for message in messages)

    rig.kernel.subscribe("t/#", Listener())                                   # type: ignore[arg-type]
    rig.kernel.append_batch(partition_id, BATCH, rig.witness)
    rig.run()
    assert times == [rig.witness.stored[-1].append_ms] * 2


def test_elsewhere_they_have_their_own() -> None:
    rig, partition_id = new_rig()
    rig.kernel.append_batch(partition_id, BATCH, rig.witness)
    rig.run()
    assert [record[1] for record in rig.read_partition(partition_id)] == [1000, 1000]


def test_a_batch_that_is_sent_again_is_stored_once() -> None:
    """And each is answered with the time that it was stored at, which its records have."""
    rig, partition_id = new_rig(log_append_time=True)
    sent = [batch_of([(b"a", b"%d" % sequence, ())], producer_id=7, sequence=sequence) for sequence in range(3)]
    for batch in (*sent, *sent):
        rig.world.loop.advance(1_000)
        rig.kernel.append_batch(partition_id, batch, rig.witness, "again")
        rig.run()
    answers = [(stored.positions, stored.append_ms) for stored in rig.witness.stored[-6:]]
    assert answers[:3] == answers[3:]
    assert [record[1] for record in rig.read_partition(partition_id)] == [append_ms for _, append_ms in answers[:3]]
    assert rig.kernel.bounds(partition_id) == (0, 3)
