"""A burst: messages and batches of many partitions become one body, whose entries say where each run lies."""
from __future__ import annotations

import time

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.message import WHOLE, FirstLevel, Piece, Placement
from gatehouse.kernel.records.batch import as_batch, check_batch, encode_headers, encode_key, records_of
from gatehouse.kernel.write.pending_frame import RUN_LIMIT, BatchBuilder, Sealed
from tests.kernel.batches import batch_of

NOW_MS = 1_700_000_000_000


def placement(partition_id: int, key: bytes | None) -> Placement:
    return Placement("/", "t/k", "t", 1, partition_id, partition_id, key, encode_key(key), b"", 1 << 20, FirstLevel())


def pieces(sealed: Sealed) -> dict[int, list[Piece]]:
    """By partition, as a reader would find them."""
    found: dict[int, list[Piece]] = {}
    for partition_id, first_offset, max_ms, message_id, count, at, size, crc, flags in zip(
            *sealed.entries.columns(), strict=True):
        data = sealed.body[at:at + size]
        assert crc32c(data) == crc
        found.setdefault(partition_id, []).append(
            Piece(first_offset, count, bool(flags & WHOLE), data, NOW_MS, max_ms, message_id))
    return found


# a partition, and a message of (key, value, timestamp) or a producer's batch of some records
messages = st.tuples(st.integers(1, 3), st.none() | st.binary(max_size=5), st.none() | st.binary(max_size=40),
                     st.sampled_from([0, NOW_MS - 5, NOW_MS + 7]))
batches = st.tuples(st.integers(1, 3), st.integers(1, 4))


@given(st.lists(messages | batches, min_size=1, max_size=30))
def test_every_queue_has_its_messages_in_the_order_of_arrival(arrived: list[tuple]) -> None:  # type: ignore[type-arg]
    burst = BatchBuilder(NOW_MS)
    expected: dict[int, list[tuple[bytes | None, bytes | None, int]]] = {}
    for one in arrived:
        mine = expected.setdefault(one[0], [])
        if len(one) == 2:
            values = [b"%d of %d" % (i, len(mine)) for i in range(one[1])]
            burst.add_batch(one[0], batch_of([(b"k", value, ()) for value in values]), one[1], 1_000)
            mine += [(b"k", value, 1_000) for value in values]
        else:
            partition_id, key, value, timestamp_ms = one
            burst.add([(placement(partition_id, key), value, encode_headers([]), 1, timestamp_ms)], None)
            mine.append((key, value, timestamp_ms or NOW_MS))
        assert burst.entering(one[0]) == len(mine)
    sealed = burst.seal([100 * run.partition_id for run in burst.runs], 5_000, 3)
    assert sealed.record_count == sealed.id_count == sum(map(len, expected.values()))
    ids: list[int] = []
    for partition_id, of_partition in pieces(sealed).items():
        records = [record for piece in of_partition for record in records_of(piece)]
        assert [record[0] for record in records] == list(range(100 * partition_id, 100 * partition_id + len(records)))
        assert [(record[2], record[3], record[1]) for record in records] == expected[partition_id]
        ids += [record[6] for record in records]
        for piece in of_partition:
            header = check_batch(as_batch(piece, 3))
            assert (header.base_offset, header.leader_epoch) == (piece.first_offset, 3)
            assert piece.max_timestamp_ms >= max(record[1] for record in records_of(piece))
    assert sorted(ids) == list(range(5_000, 5_000 + sealed.record_count))


def test_to_ask_how_many_enter_a_partition_costs_the_same_however_much_is_in_a_frame() -> None:
    burst = BatchBuilder(NOW_MS)
    begin_s = time.process_time()
    for number in range(5_000):
        place = placement(number, None)
        place.also = place.fleeting = (1 << 20,)
        burst.add([(place, b"v", encode_headers([]), 1, 0)], None)
        assert (burst.entering(1 << 20), burst.entering(number), burst.entering(5_000)) == (number + 1, 1, 0)
    assert time.process_time() - begin_s < 1


def test_callers_learn_where_each_message_went() -> None:
    burst = BatchBuilder(NOW_MS)
    places: list[tuple] = []  # type: ignore[type-arg]
    burst.add([(placement(partition_id, b"k"), b"v", b"\0", 1, 0) for partition_id in (1, 2, 1, 2, 1)], places)
    burst.seal([10, 20], 7, 1)
    assert [(run.partition_id, run.first_offset + i) for run, i in places] == [(1, 10), (2, 20), (1, 11), (2, 21),
                                                                               (1, 12)]


def test_a_run_is_bounded_and_the_next_goes_on() -> None:
    burst = BatchBuilder(NOW_MS)
    to = placement(1, b"k")
    burst.add([(to, b"%d" % i, b"\0", 1, 0) for i in range(RUN_LIMIT + 10)], None)
    assert [run.count for run in burst.runs] == [RUN_LIMIT, 10]
    found = pieces(burst.seal([0, 0], 1, 1))[1]
    assert [(piece.first_offset, piece.count) for piece in found] == [(0, RUN_LIMIT), (RUN_LIMIT, 10)]
    assert records_of(found[1])[-1][3] == b"%d" % (RUN_LIMIT + 9)


def test_copies_keep_their_ids_and_use_up_none() -> None:
    burst = BatchBuilder(NOW_MS)
    to, other = placement(1, b"k"), placement(2, b"k")
    burst.add([(to, b"new", b"\0", 1, 0)], None)
    places: list[tuple] = []  # type: ignore[type-arg]
    copies = [(to, 70), (to, 71), (to, 60), (other, 61), (to, 72)]
    burst.add_copies([(one, b"%d" % own, b"\0", 1, 0) for one, own in copies], [own for _, own in copies], places)
    burst.add([(to, b"newer", b"\0", 1, 0), (other, b"newest", b"\0", 1, 0)], None)
    sealed = burst.seal([10 * run.partition_id for run in burst.runs], 5_000, 1)
    assert (sealed.record_count, sealed.id_count) == (8, 3)
    records = {partition_id: [(record[0], record[6], record[3]) for piece in found for record in records_of(piece)]
               for partition_id, found in pieces(sealed).items()}
    assert records == {1: [(10, 5_000, b"new"), (11, 70, b"70"), (12, 71, b"71"), (13, 60, b"60"), (14, 72, b"72"),
                           (15, 5_001, b"newer")],
                       2: [(20, 61, b"61"), (21, 5_002, b"newest")]}
    assert [run.first_id + i for run, i in places] == [70, 71, 60, 61, 72]
    assert len(burst.runs) == 7, "70 and 71 share a run"


def test_only_stretches_that_somebody_listens_to_are_remembered() -> None:
    burst = BatchBuilder(NOW_MS)
    heard, unheard = placement(1, b"a"), placement(1, b"b")
    heard.targets = ((object(), 0),)  # type: ignore[assignment]
    arrived = ((heard, b"1"), (heard, b"2"), (unheard, b"3"), (heard, b"4"))
    burst.add([(to, value, b"\0", 1, 0) for to, value in arrived], None)
    assert [([message[1] for message in messages], index) for _, messages, _, index in burst.heard] == [
        ([b"1", b"2"], 0), ([b"4"], 3)]
