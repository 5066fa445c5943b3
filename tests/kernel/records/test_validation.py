"""What a producer sends is what it claims, or is refused: every attack in every codec, mutations of sound batches."""
from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.errors import CorruptBatch, InvalidRecord, KernelError, MessageTooLarge
from gatehouse.kernel.message import Piece
from gatehouse.kernel.records import validation
from gatehouse.kernel.records.batch import (
    MAX_OPENED_BYTES,
    MAX_TIMESTAMP_MS,
    SENT_HEADERS,
    check_batch,
    read_header,
    records_of,
)
from gatehouse.kernel.records.compression import OpenedTooLarge
from gatehouse.kernel.records.validation import (
    OPENED_RATIO,
    SMALL_BYTES,
    TIME_SLACK_MS,
    Validated,
    opened_limit,
    validate,
)
from tests.kernel.batches import encode_record, wrap
from tests.kernel.hostile import ATTACKS, BASE_MS, TEN, WAYS, Attack, Way, changed
from tests.kernel.records.test_batch import built

LIMIT_BYTES = 4 << 20
every_way = pytest.mark.parametrize("way", [Way(*way) for way in WAYS.values()], ids=WAYS)


def opened(batch: bytes, record_bytes: int = LIMIT_BYTES) -> Validated:
    return validate(batch, check_batch(batch), record_bytes, True)


@every_way
@pytest.mark.parametrize(("attack", "error"), ATTACKS.values(), ids=ATTACKS)
def test_every_attack_is_refused(way: Way, attack: Attack, error: type[KernelError]) -> None:
    """Memory stays at what a batch may open to, whatever it claims."""
    batch = attack(way)
    if len(batch) > LIMIT_BYTES:
        return                                                   # the kernel refuses it before it is opened
    tracemalloc.start()
    with pytest.raises(error):
        opened(batch)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4 * opened_limit(len(batch), LIMIT_BYTES)


@every_way
def test_a_sound_batch_is_stored_as_it_was_sent_and_opened_once(way: Way) -> None:
    batch = way.batch(TEN, 10)
    validated = opened(batch)
    assert (validated.batch, validated.header, validated.opened_bytes > 0) == (batch, check_batch(batch), True)
    assert validated.records == records_of(Piece(0, 10, True, batch, 0, BASE_MS, 0))
    assert validate(batch, check_batch(batch), LIMIT_BYTES, False).records is None


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_of_another_implementation_is_sound(codec: int) -> None:
    batch = built(codec)
    assert opened(batch).batch == batch


@every_way
def test_bytes_behind_the_compressed_records_are_refused(way: Way) -> None:
    error = InvalidRecord if way.codec == 0 else CorruptBatch
    for behind in (b"\0", way.pack(TEN)):
        with pytest.raises(error):
            opened(way.batch(TEN, 10, behind=behind))


@every_way
def test_garbage_in_place_of_what_is_compressed(way: Way) -> None:
    with pytest.raises((CorruptBatch, InvalidRecord)):
        opened(wrap(b"\x0b\xad" * 50, 3, codec=way.codec))


# ---- sizes

@every_way
def test_a_record_may_be_as_large_as_its_topic_takes(way: Way) -> None:
    largest = encode_record(0, None, bytes(1_000 - 7))           # what is counted is the record behind its length
    assert opened(way.batch(largest, 1), 1_000).opened_bytes > 0
    with pytest.raises(MessageTooLarge):
        opened(way.batch(encode_record(0, None, bytes(1_000 - 6)), 1), 1_000)


def test_what_a_batch_may_open_to() -> None:
    assert opened_limit(100, 1_000) == SMALL_BYTES, "test data that repeats itself"
    assert opened_limit(100, 2 * SMALL_BYTES) == 2 * SMALL_BYTES
    assert opened_limit(SMALL_BYTES // 2, 1_000) == OPENED_RATIO * SMALL_BYTES // 2
    assert opened_limit(1 << 30, 1_000) == MAX_OPENED_BYTES


def test_the_headers_of_a_batch_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    records = b"".join(encode_record(i, None, None, ((b"", b""),) * 300) for i in range(4))
    monkeypatch.setattr(validation, "MAX_BATCH_HEADERS", 1_200)
    assert len(opened(wrap(records, 4)).records or []) == 4
    monkeypatch.setattr(validation, "MAX_BATCH_HEADERS", 1_199)
    with pytest.raises(MessageTooLarge):
        opened(wrap(records, 4))


def test_a_record_has_room_for_headers_of_the_hub() -> None:
    assert opened(wrap(encode_record(0, None, b"v", ((b"", b""),) * SENT_HEADERS), 1))
    with pytest.raises(InvalidRecord):
        opened(wrap(encode_record(0, None, b"v", ((b"", b""),) * (SENT_HEADERS + 1)), 1))


def test_a_batch_is_walked_over_in_slices() -> None:
    count = 2 * validation.SLICE_RECORDS + 3
    is_what_it_claims(opened(wrap(b"".join(encode_record(i, None, b"v") for i in range(count)), count)))


@pytest.mark.parametrize("way", [Way(*way) for name, way in WAYS.items() if name != "none"],
                         ids=[name for name in WAYS if name != "none"])
def test_who_opens_with_less_room_is_told_so_and_not_that_the_batch_is_too_large(way: Way) -> None:
    batch = way.batch(encode_record(0, None, bytes(100_000)), 1)
    with pytest.raises(OpenedTooLarge):
        validate(batch, check_batch(batch), LIMIT_BYTES, False, 10_000)


# ---- times

def stamps(*deltas: int, base_ms: int = BASE_MS, max_ms: int) -> bytes:
    records = b"".join(encode_record(i, None, b"v", (), delta) for i, delta in enumerate(deltas))
    return wrap(records, len(deltas), base_ms=base_ms, max_ms=max_ms)


@pytest.mark.parametrize("max_ms", [
    -1, BASE_MS, BASE_MS + TIME_SLACK_MS, BASE_MS + 7_000 - TIME_SLACK_MS, BASE_MS + 6_999],
    ids=["none (sarama)", "the first one", "late by less than an hour (ruby-kafka)", "early by less", "rounded"])
def test_a_largest_time_that_clients_get_wrong_is_written_anew(max_ms: int) -> None:
    batch = stamps(0, 7_000, 5_000, max_ms=max_ms)
    validated = opened(batch)
    assert validated.header.max_ms == BASE_MS + 7_000
    assert check_batch(validated.batch).max_ms == BASE_MS + 7_000, "and the CRC is right"
    assert validated.batch[:17] == batch[:17] and validated.batch[43:] == batch[43:]
    assert DefaultRecordBatch(validated.batch).validate_crc()


@pytest.mark.parametrize(("base_ms", "deltas"), [
    (-1, (0, 0)), (0, (0, -1)), (0, (0, MAX_TIMESTAMP_MS)), (MAX_TIMESTAMP_MS, (0, -MAX_TIMESTAMP_MS - 1)),
    (BASE_MS, (0, -5, 3))])
def test_times_from_none_to_the_year_9999(base_ms: int, deltas: tuple[int, ...]) -> None:
    largest_ms = base_ms + max(deltas)
    batch = stamps(*deltas, base_ms=base_ms, max_ms=largest_ms)
    validated = opened(batch)
    assert validated.batch == batch
    assert [record[1] for record in validated.records or []] == [base_ms + delta for delta in deltas]


# ---- anything

texts = st.text(max_size=5).map(str.encode)
messages = st.lists(st.tuples(st.none() | st.binary(max_size=6), st.none() | st.binary(max_size=200), st.lists(
    st.tuples(texts, st.none() | st.binary(max_size=5)), max_size=3).map(tuple), st.integers(-1000, 1000)),
    min_size=1, max_size=6)


def is_what_it_claims(validated: Validated) -> None:
    """Judged by our decoder as readers use it, and by another implementation's."""
    batch, header = validated.batch, read_header(validated.batch)
    records = records_of(Piece(0, header.record_count, True, batch, 0, header.max_ms, 0))
    assert records == validated.records
    assert [record[0] for record in records] == list(range(header.record_count))
    assert max(record[1] for record in records) == header.max_ms
    assert all(-1 <= record[1] <= MAX_TIMESTAMP_MS for record in records)
    try:
        theirs = [(r.offset, r.timestamp, r.key, r.value) for r in DefaultRecordBatch(batch)]
    except UnicodeDecodeError:
        return                                                   # a header's name that is no text
    assert theirs == [(header.base_offset + record[0], *record[1:4]) for record in records]


@every_way
@given(sent=messages)
def test_what_is_sound_is_taken(way: Way, sent: list[tuple[bytes | None, bytes | None, tuple[()], int]]) -> None:
    records = b"".join(encode_record(i, *message) for i, message in enumerate(sent))
    largest_ms = BASE_MS + max(delta for *_, delta in sent)
    batch = way.batch(records, len(sent), max_ms=largest_ms)
    validated = opened(batch)
    assert validated.batch == batch
    is_what_it_claims(validated)


@every_way
@given(sent=messages, data=st.data())
def test_a_mutation_is_refused_or_is_what_it_claims(
        way: Way, sent: list[tuple[bytes | None, bytes | None, tuple[()], int]], data: st.DataObject) -> None:
    """Of the records before they are compressed, or of the batch behind its CRC, which is right again."""
    records = mutated(b"".join(encode_record(i, *message) for i, message in enumerate(sent)), data)
    batch = way.batch(records, len(sent), max_ms=BASE_MS + max(delta for *_, delta in sent))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(21, len(batch) - 1))
        batch = changed(batch, at, ">B", data.draw(st.integers(0, 255)))
    try:
        validated = opened(batch)
    except KernelError:
        return
    is_what_it_claims(validated)


def mutated(records: bytes, data: st.DataObject) -> bytes:
    out = bytearray(records)
    changes: dict[str, Callable[[int], None]] = {
        "set": lambda at: out.__setitem__(at, data.draw(st.integers(0, 255))),
        "flip": lambda at: out.__setitem__(at, out[at] ^ 1 << data.draw(st.integers(0, 7))),
        "drop": lambda at: out.__delitem__(at),
        "repeat": lambda at: out.insert(at, out[at])}
    for _ in range(data.draw(st.integers(0, 2))):
        if out:
            changes[data.draw(st.sampled_from(sorted(changes)))](data.draw(st.integers(0, len(out) - 1)))
    return bytes(out)
