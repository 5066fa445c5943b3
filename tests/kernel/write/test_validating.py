"""Producers' batches between arrival and entering: nothing hostile gets in by any way, order holds, what waits is
bounded."""
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.errors import (
    InvalidRecord,
    KernelError,
    MessageTooLarge,
    OutOfOrderSequence,
    Stopping,
    StorageFull,
    UnknownPartition,
)
from gatehouse.kernel.records import batch as batch_module
from gatehouse.kernel.records import validation
from gatehouse.kernel.records.compression import decompress
from gatehouse.kernel.records.validation import Validated
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.topics import TopicSettings
from gatehouse.kernel.write import validating
from gatehouse.kernel.write.validating import OPEN_HERE_BYTES, TURN_RECORDS
from tests.kernel.batches import encode_record, wrap
from tests.kernel.full_log import FullLog
from tests.kernel.hostile import ATTACKS, TEN, WAYS, Attack, Way
from tests.kernel.packers import gzip
from tests.kernel.rig import Rig, Witness

ZSTD_WAY = Way(*WAYS["zstd"])
LARGE = OPEN_HERE_BYTES + 1


def noise(size: int) -> bytes:
    """Bytes that do not compress, and are the same every time."""
    out, state = bytearray(), 1
    while len(out) < size:
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        out += state.to_bytes(8, "big")[:4]
    return bytes(out[:size])


NOISE = noise(LARGE)


def packed(name: bytes, *, large: bool, producer_id: int = -1, sequence: int = -1, count: int = 1) -> bytes:
    """A gzip batch whose last value begins with `name`; a large one is opened on another thread."""
    records = b"".join(encode_record(i, b"k", name + (NOISE if large else b"")) for i in range(count))
    return wrap(gzip(records), count, codec=1, producer_id=producer_id, epoch=0 if producer_id >= 0 else -1,
                sequence=sequence)


def partition_of(rig: Rig, name: str = "t", **settings: Any) -> int:
    topic = rig.kernel.create_topic(name, partitions=1, settings=TopicSettings(**settings))
    rig.run()
    return topic.partition_id(0)


def names(rig: Rig, topic: str = "t") -> list[bytes]:
    return [(value or b"")[:5] for value in rig.values(topic)]


def answers(rig: Rig) -> list[tuple[object, type[Exception] | None]]:
    return [(one.token, None if one.error is None else type(one.error)) for one in rig.witness.stored]


# ---- what is refused, by every way in

@pytest.mark.parametrize("way", [Way(*way) for way in WAYS.values()], ids=WAYS)
@pytest.mark.parametrize(("attack", "error"), ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("bulk", [False, True], ids=["one", "bulk"])
def test_every_attack_is_refused_and_nothing_is_stored(way: Way, attack: Attack, error: type[KernelError], bulk: bool
                                                       ) -> None:
    rig = Rig()
    partition_id, batch = partition_of(rig), attack(way)
    sound = [] if not bulk else [(partition_id, ZSTD_WAY.batch(TEN, 10))]
    try:
        if bulk:
            rig.kernel.append_batches([*sound, (partition_id, batch)], rig.witness, "attack")
        else:
            rig.kernel.append_batch(partition_id, batch, rig.witness, "attack")
    except error:
        pass
    else:
        rig.run()
        limit = rig.settings.max_message_bytes
        assert answers(rig)[-1] == ("attack", error if len(batch) <= limit else MessageTooLarge)
    rig.run()
    assert rig.kernel.bounds(partition_id) == (0, 0)


def test_what_is_small_is_refused_at_once_and_what_is_large_by_its_answer() -> None:
    rig = Rig()
    partition_id = partition_of(rig)
    with pytest.raises(InvalidRecord):
        rig.kernel.append_batch(partition_id, wrap(TEN, 11), rig.witness, "here")
    rig.witness.stored.clear()
    rig.kernel.append_batch(partition_id, wrap(gzip(encode_record(1, None, NOISE)), 1, codec=1), rig.witness, "there")
    assert answers(rig) == [], "it is on another thread"
    rig.run()
    assert answers(rig) == [("there", InvalidRecord)]


def test_all_batches_that_enter_together_or_none() -> None:
    rig = Rig()
    partition_id = partition_of(rig)
    bad = wrap(gzip(encode_record(1, None, NOISE)), 1, codec=1)
    rig.kernel.append_batches([(partition_id, packed(b"large", large=True)), (partition_id, bad)], rig.witness, "bad")
    rig.kernel.append_batches([(partition_id, packed(b"large", large=True)),
                               (partition_id, packed(b"small", large=False))],
                              rig.witness, "good", idempotency_key="key")
    rig.kernel.append_batches([(partition_id, packed(b"large", large=True)),
                               (partition_id, packed(b"small", large=False))],
                              rig.witness, "again", idempotency_key="key")
    rig.run()
    assert answers(rig) == [("bad", InvalidRecord), ("good", None), ("again", None)]
    assert rig.witness.stored[-1].positions == rig.witness.stored[-2].positions
    assert names(rig) == [b"large", b"small"]


def test_batches_that_enter_together_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    partition_id = partition_of(rig)
    monkeypatch.setattr(validating, "MAX_OPENED_BYTES", 3 * LARGE)
    four = [(partition_id, packed(b"large", large=True))] * 4
    rig.kernel.append_batches(four, rig.witness, "four")
    rig.kernel.append_batches(four[:2], rig.witness, "two")
    rig.run()
    assert answers(rig) == [("four", MessageTooLarge), ("two", None)]
    many = wrap(b"".join(encode_record(i, None, b"") for i in range(9_000)), 9_000)
    with pytest.raises(MessageTooLarge, match="one request"):
        rig.kernel.append_batches([(partition_id, many)] * 30, rig.witness)


# ---- order

def test_a_batch_does_not_overtake_a_large_one_of_its_partition() -> None:
    rig = Rig()
    partition_id, other_id = partition_of(rig), partition_of(rig, "other")
    for number, large in enumerate([True, False, True, False, False]):
        rig.kernel.append_batch(partition_id, packed(b"%05d" % number, large=large), rig.witness, number)
    rig.kernel.append_batch(other_id, packed(b"other", large=False), rig.witness, "other")
    while rig.world.loop.step() or rig.world.log_worker.step():
        pass
    assert answers(rig) == [("other", None)], "another partition does not wait"
    rig.run()
    assert answers(rig)[1:] == [(number, None) for number in range(5)]
    assert names(rig) == [b"%05d" % number for number in range(5)]


def test_sequences_are_looked_at_in_order_and_repetitions_are_answered_again() -> None:
    rig = Rig()
    partition_id = partition_of(rig)
    sent = [packed(b"%05d" % number, large=number % 2 == 0, producer_id=7, sequence=number) for number in range(4)]
    for number, batch in enumerate([*sent, *sent, packed(b"gap..", large=True, producer_id=7, sequence=9)]):
        rig.kernel.append_batch(partition_id, batch, rig.witness, number)
    rig.run()
    assert sorted(answers(rig), key=str) == [*((number, None) for number in range(8)), (8, OutOfOrderSequence)]
    placed = {one.token: one.positions for one in rig.witness.stored if one.error is None}
    assert [placed[number] for number in range(4)] == [placed[number] for number in range(4, 8)]
    assert names(rig) == [b"%05d" % number for number in range(4)]


@given(st.lists(st.tuples(st.integers(0, 1), st.booleans(), st.lists(st.sampled_from(("loop", "log", "worker")),
                                                                     max_size=4)), max_size=10))
def test_batches_of_a_producer_stay_in_order_whatever_comes_between(plan: list[tuple[int, bool, list[str]]]) -> None:
    """Two producers, one partition; after each batch some steps of the loop and of the threads."""
    rig = Rig()
    partition_id = partition_of(rig)
    steps = {"loop": rig.world.loop.step, "log": rig.world.log_worker.step, "worker": rig.world.validation_worker.step}
    sent: list[list[bytes]] = [[], []]
    for producer, large, between in plan:
        name = b"%d%04d" % (producer, len(sent[producer]))
        batch = packed(name, large=large, producer_id=7 + producer, sequence=len(sent[producer]))
        rig.kernel.append_batch(partition_id, batch, rig.witness, name)
        sent[producer].append(name)
        for step in between:
            steps[step]()
    rig.run()
    assert all(error is None for _, error in answers(rig))
    for producer, names_sent in enumerate(sent):
        mine = [name for name in names(rig) if name.startswith(b"%d" % producer)]
        assert mine == names_sent == [token for token, _ in answers(rig) if token in names_sent]


def test_one_turn_of_the_loop_opens_so_much_and_leaves_the_rest_to_the_worker() -> None:
    rig = Rig(settings=KernelSettings(max_message_bytes=4 << 20))
    partitions = [partition_of(rig, f"t{number}") for number in range(8)]
    megabytes = [wrap(gzip(encode_record(0, None, bytes(300_000))), 1, codec=1)] * 8
    for partition_id, batch in zip(partitions, megabytes, strict=True):
        rig.kernel.append_batch(partition_id, batch, rig.witness)
    assert len(rig.world.validation_worker.jobs) == 5, "three of 300 kB were opened at once"
    rig.run()
    assert all(rig.kernel.bounds(partition_id) == (0, 1) for partition_id in partitions)
    records = wrap(b"".join(encode_record(i, None, b"") for i in range(9_000)), 9_000)
    for _ in range(TURN_RECORDS // 9_000):
        rig.kernel.append_batch(partitions[0], records, None)
    assert not rig.world.validation_worker.jobs
    rig.kernel.append_batch(partitions[0], records, None)
    assert rig.world.validation_worker.jobs
    rig.run()
    rig.kernel.append_batch(partitions[0], records, None)
    assert not rig.world.validation_worker.jobs, "the next turn"


def test_who_is_refused_has_had_the_turns_share() -> None:
    """Else a request of a thousand partitions would open a thousand mebibytes in one turn."""
    rig = Rig()
    partition_id = partition_of(rig)
    bad = wrap(gzip(encode_record(0, None, bytes(900_000)) + b"\0"), 1, codec=1)
    with pytest.raises(InvalidRecord):
        rig.kernel.append_batch(partition_id, bad, rig.witness, "here")
    rig.kernel.append_batch(partition_id, bad, rig.witness, "there")
    assert rig.world.validation_worker.jobs
    rig.run()
    assert answers(rig) == [("there", InvalidRecord)]


def test_many_records_for_subscribers_are_decoded_elsewhere() -> None:
    rig = Rig()
    partition_id = partition_of(rig)
    records = b"".join(encode_record(i, b"k", b"") for i in range(5_000))
    rig.kernel.append_batch(partition_id, wrap(records, 5_000), None)
    assert not rig.world.validation_worker.jobs, "nobody listens: they are walked over"
    rig.run()
    witness = Witness()
    rig.kernel.subscribe("t/#", witness, 1)
    rig.kernel.append_batch(partition_id, wrap(records, 5_000), None)
    assert rig.world.validation_worker.jobs
    rig.run()
    assert len(witness.delivered) == 5_000


# ---- what may happen meanwhile

def test_a_topic_that_is_deleted_while_its_batch_is_opened() -> None:
    rig = Rig()
    partition_id = partition_of(rig)
    rig.kernel.append_batch(partition_id, packed(b"large", large=True), rig.witness, "large")
    rig.kernel.delete_topic("t")
    rig.run()
    assert answers(rig) == [("large", UnknownPartition)]


def test_a_disk_that_is_full_by_then() -> None:
    log = FullLog()
    rig = Rig(log=log)
    partition_id = partition_of(rig)
    rig.kernel.append_batch(partition_id, packed(b"large", large=True), rig.witness, "large")
    log.full = True
    rig.run()
    assert answers(rig) == [("large", StorageFull)]


def test_a_hub_that_stops_refuses_what_is_being_opened() -> None:
    rig = Rig()
    partition_id = partition_of(rig)
    rig.kernel.append_batch(partition_id, packed(b"large", large=True), rig.witness, "large")
    closed: list[bool] = []
    rig.kernel.close(lambda: closed.append(True))
    assert answers(rig) == [("large", Stopping)], "before the kernel is closed"
    with pytest.raises(Stopping):
        rig.kernel.append_batch(partition_id, packed(b"later", large=True), rig.witness, "later")
    with pytest.raises(Stopping):
        rig.kernel.append_batch(partition_id, packed(b"later", large=False), rig.witness, "small")
    rig.run()
    assert closed and len(rig.witness.stored) == 1 and rig.kernel.bounds(partition_id) == (0, 0)


def test_a_mistake_of_ours_is_told_and_costs_nobody_else_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    partition_id = partition_of(rig)
    monkeypatch.setattr(validating, "validate", lambda *_: 1 // 0)
    rig.kernel.append_batch(partition_id, packed(b"large", large=True), rig.witness, "large")
    rig.world.run()
    monkeypatch.undo()
    assert answers(rig) == [("large", ZeroDivisionError)] and [type(one) for one in rig.errors] == [ZeroDivisionError]
    rig.errors.clear()
    rig.kernel.append_batch(partition_id, packed(b"large", large=True), rig.witness, "next")
    rig.run()
    assert answers(rig)[1:] == [("next", None)]


# ---- bounds

def test_publishers_are_not_read_while_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    partition_id = partition_of(rig)
    monkeypatch.setattr(validating, "VALIDATING_BYTES", 2 * LARGE + 1_000)
    relieved: list[bool] = []
    for number in range(3):
        assert not rig.kernel.congested
        rig.kernel.append_batch(partition_id, packed(b"%05d" % number, large=True), rig.witness, number)
    assert rig.kernel.congested
    assert rig.kernel.statistics()["pending_bytes"] > 3 * LARGE
    rig.kernel.on_relief(lambda: relieved.append(True))
    rig.run()
    assert relieved and not rig.kernel.congested
    assert rig.kernel.statistics()["pending_bytes"] == 0
    assert len(names(rig)) == 3


def test_the_worker_is_given_no_more_than_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(settings=KernelSettings(max_message_bytes=4 << 20))
    partition_id = partition_of(rig)
    monkeypatch.setattr(validating, "MAX_OPENED_BYTES", 9 << 20)
    for number in range(5):                                      # each may open to 4 MiB
        rig.kernel.append_batch(partition_id, packed(b"%05d" % number, large=True), rig.witness, number)
    assert len(rig.world.validation_worker.jobs) == 2
    rig.run()
    assert names(rig) == [b"%05d" % number for number in range(5)]


# ---- a record is opened once

@pytest.mark.parametrize("large", [False, True])
def test_records_are_opened_once_for_everybody_who_needs_them(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compacted topic whose headers count, with a subscriber and a bound queue."""
    rig = Rig()
    partition_id = partition_of(rig, compact=True, interpret_headers=True)
    witness = Witness()
    rig.kernel.subscribe("t/#", witness, 1)
    queue = rig.kernel.groups.declare_queue("q")
    rig.kernel.groups.bind("t/#", queue)
    rig.run()
    times: list[int] = []

    def counted(*arguments: Any) -> bytes:
        times.append(1)
        return decompress(*arguments)

    monkeypatch.setattr(validation, "decompress", counted)
    monkeypatch.setattr(batch_module, "decompress", None)
    rig.kernel.append_batch(partition_id, packed(b"value", large=large), rig.witness, "batch")
    rig.run()
    assert len(times) == 1
    monkeypatch.undo()
    copies = [record[3] for record in rig.read_partition(queue.first_partition_id)]
    assert copies == rig.values("t") and copies != []
    assert [(value or b"")[:5] for _, value, _, _ in witness.delivered] == [b"value"]


def test_who_subscribes_while_a_batch_is_opened_hears_it() -> None:
    """What he reads of the history ends before it."""
    rig = Rig()
    partition_id = partition_of(rig)
    rig.kernel.append_batch(partition_id, packed(b"value", large=True), rig.witness, "batch")
    witness = Witness()
    rig.kernel.subscribe("t/#", witness, 1)
    rig.run()
    assert [(value or b"")[:5] for _, value, _, _ in witness.delivered] == [b"value"]


def test_records_may_be_taken_elsewhere_in_their_turn() -> None:
    rig = Rig()
    partition_id = partition_of(rig)
    seen: list[tuple[int, list[bytes | None]]] = []

    def divert(validated: Validated) -> bool:
        seen.append((validated.header.record_count, [(record[3] or b"")[:5] for record in validated.records or []]))
        return seen[-1][1][0] == b"taken"

    for name, large in ((b"taken", True), (b"first", True), (b"taken", False), (b"after", False)):
        rig.kernel.append_batch(partition_id, packed(name, large=large), rig.witness, name, divert)
    rig.run()
    assert [values for _, values in seen] == [[b"taken"], [b"first"], [b"taken"], [b"after"]]
    assert names(rig) == [b"first", b"after"]
    assert answers(rig) == [(b"first", None), (b"after", None)]


def test_a_topic_whose_records_are_smaller_than_a_batch() -> None:
    rig = Rig(settings=KernelSettings(max_message_bytes=1_000))
    partition_id = partition_of(rig)
    small = b"".join(encode_record(i, None, bytes(900)) for i in range(50))
    rig.kernel.append_batch(partition_id, wrap(gzip(small), 50, codec=1), rig.witness)
    with pytest.raises(MessageTooLarge):
        rig.kernel.append_batch(partition_id, wrap(gzip(encode_record(0, None, bytes(1_001))), 1, codec=1), rig.witness)
    rig.run()
    assert len(names(rig)) == 50
