"""The deduplication window: what leaves it, and when."""
from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.errors import (
    CorruptBatch,
    IdempotencyConflict,
    MessageTooLarge,
    StorageFull,
    UnknownPartition,
    UnsupportedBatch,
)
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.write.idempotency import Answer, Window, decode_answer, encode_answer
from tests.kernel.batches import encode_record, wrap
from tests.kernel.full_log import FullLog
from tests.kernel.rig import Rig


def remembered(rig: Rig) -> list[str]:
    return sorted(key.decode() for key, _ in rig.kernel._state.scan(Kind.IDEMPOTENCY))


def test_more_keys_than_are_remembered_push_out_the_oldest() -> None:
    rig = Rig(settings=KernelSettings(max_idempotency_keys=3))
    for n in range(6):
        rig.publish("t/k", b"v", idempotency_key=f"key-{n}")
    rig.publish("t/k", b"after")
    assert remembered(rig) == ["key-3", "key-4", "key-5"]


def test_more_bytes_than_are_remembered_push_out_the_oldest() -> None:
    rig = Rig(settings=KernelSettings(max_idempotency_bytes=3 * 65))
    for n in range(6):
        rig.publish("t/k", b"v", idempotency_key=f"key-{n}")
    rig.publish("t/k", b"after")
    assert remembered(rig) == ["key-3", "key-4", "key-5"]
    rig.restart()
    rig.publish("t/k", b"large", *[b"v"] * 99, idempotency_key="large")
    assert rig.publish("t/k", b"large", *[b"v"] * 99, idempotency_key="large")[99][1] == 106
    rig.publish("t/k", b"after")
    assert remembered(rig) == ["key-4", "key-5", "large"]


POSITIONS = st.lists(st.tuples(st.integers(1, 4), st.integers(-1, 5), st.integers(0, 5)), max_size=30)


@given(POSITIONS)
def test_positions_are_what_they_were(positions: list[tuple[int, int, int]]) -> None:
    answer = Answer(bytes(range(16)), 1_700_000_000_000, 1_600_000_000_000, positions)
    assert decode_answer(encode_answer(answer)) == answer


def test_a_large_answer_is_small() -> None:
    partitions = [(1 << 63) + number % 4 for number in range(1000)]
    positions = [(partition, number // 4, (1 << 62) + 1000 * (partition & 3) + number // 4)
                 for number, partition in enumerate(partitions)]
    answer = Answer(bytes(16), 7, 8, positions)
    assert len(encode_answer(answer)) < 2200
    assert decode_answer(encode_answer(answer)) == answer
    many = Answer(bytes(16), 7, 8, [(number, 5, number) for number in range(70_000)])
    assert decode_answer(encode_answer(many)) == many


def test_answers_recorded_as_json_are_understood() -> None:
    window = Window(1000, 10, 10_000)
    window.load([("new", encode_answer(Answer(bytes(16), 200, 200, [(1, 2, 3)]))),
                 ("old", json.dumps([bytes(16).hex(), 100, [[1, 2, 3], [1, 3, 4]]]).encode())])
    assert window.get("old", 150) == Answer(bytes(16), 100, 100, [(1, 2, 3), (1, 3, 4)])
    assert window.expired(1150) == ["old"]


def test_a_key_whose_deletion_could_not_be_stored_is_deleted_later() -> None:
    """Found by the simulator, seed 198."""
    log = FullLog()
    rig = Rig(log=log)
    rig.publish("t/k", b"v", idempotency_key="key")
    rig.world.advance(rig.settings.idempotency_ms + 1)
    log.full = True
    with pytest.raises(StorageFull):
        rig.publish("t/k", b"lost")
    log.full = False
    rig.publish("t/k", b"stored")
    assert remembered(rig) == []


# ---- record batches, stored together under one key

def store(rig: Rig, key: str | None, *batches: tuple[int, bytes]) -> list[tuple[int, int, int]]:
    rig.kernel.append_batches(list(batches), rig.witness, key, idempotency_key=key)
    rig.run()
    answer = rig.witness.stored[-1]
    if answer.error is not None:
        raise answer.error
    return answer.positions


def two_partitions(rig: Rig) -> tuple[int, int]:
    topic = rig.kernel.create_topic("t", partitions=2)
    rig.run()
    return topic.partition_id(0), topic.partition_id(1)


def values_of(*numbers: int, base_ms: int = 1000) -> bytes:
    records = b"".join(encode_record(i, b"k", b"%d" % number) for i, number in enumerate(numbers))
    return wrap(records, len(numbers), base_ms=base_ms, max_ms=base_ms)


def test_batches_of_one_key_are_stored_once_whenever_they_were_made() -> None:
    rig = Rig()
    first, second = two_partitions(rig)
    stored = store(rig, "key", (first, values_of(1, 2)), (second, values_of(3)))
    assert [position[:2] for position in stored] == [(first, 0), (second, 0)]
    assert store(rig, "key", (first, values_of(1, 2, base_ms=2000)), (second, values_of(3, base_ms=2000))) == stored
    rig.restart()
    assert store(rig, "key", (first, values_of(1, 2)), (second, values_of(3))) == stored
    assert rig.values("t") == [b"1", b"2", b"3"]
    assert store(rig, None, (first, values_of(1, 2)))[0][1] == 2
    assert rig.values("t") == [b"1", b"2", b"1", b"2", b"3"]


def test_other_batches_under_the_same_key_are_refused() -> None:
    rig = Rig()
    first, second = two_partitions(rig)
    store(rig, "key", (first, values_of(1, 2)))
    for other in ((first, values_of(1, 3)), (second, values_of(1, 2)), (first, values_of(1))):
        with pytest.raises(IdempotencyConflict):
            store(rig, "key", other)
    assert rig.values("t") == [b"1", b"2"]


def test_one_batch_that_is_refused_refuses_all() -> None:
    rig = Rig(settings=KernelSettings(max_message_bytes=200))
    first, second = two_partitions(rig)
    good = values_of(1)
    bad: list[tuple[tuple[int, bytes], type[Exception]]] = [
        ((second, good[:-1] + b"x"), CorruptBatch), ((1 << 40, good), UnknownPartition),
        ((second, values_of(*range(1000, 1050))), MessageTooLarge),
        ((second, wrap(b"", 1, producer_id=7, epoch=0, sequence=0)), UnsupportedBatch)]
    for one, error in bad:
        with pytest.raises(error):
            store(rig, "key", (first, good), one)
    assert rig.values("t") == []
    assert store(rig, "key", (first, good), (second, good)) != []
