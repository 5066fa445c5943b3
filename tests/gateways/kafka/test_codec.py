"""The hot codecs against the classes that kafka-python generates from Kafka's schemas, in every offered version."""
from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from gatehouse.gateways.door_side import SMALL_PART_BYTES
from gatehouse.gateways.kafka import codec
from gatehouse.gateways.kafka.api.fetch import FETCH
from gatehouse.gateways.kafka.api.produce import PRODUCE
from gatehouse.kernel.state.partition_ids import PartitionIds
from tests.gateways.kafka.judge import framed

PRODUCE_VERSIONS = range(PRODUCE.first_version, PRODUCE.last_version + 1)
FETCH_VERSIONS = range(FETCH.first_version, FETCH.last_version + 1)
TOPIC_ID = uuid.UUID(int=7)
LONG = b"x" * 300           # its length is two bytes as a varint


def encoded(message: Any, version: int) -> bytes:
    return bytes(message.encode(version=version))


def produce_request(version: int) -> ProduceRequest:
    topic = ProduceRequest.TopicProduceData
    part = topic.PartitionProduceData
    return ProduceRequest(version=version, transactional_id="t", acks=-1, timeout_ms=1500, topic_data=[
        topic(version=version, name="plant", topic_id=TOPIC_ID, partition_data=[
            part(version=version, index=0, records=LONG), part(version=version, index=9, records=None)]),
        topic(version=version, name="", topic_id=TOPIC_ID, partition_data=[])])


def fetch_request(version: int, **fields: Any) -> FetchRequest:
    topic = FetchRequest.FetchTopic
    part = topic.FetchPartition
    forgotten = FetchRequest.ForgottenTopic
    epoch = {"current_leader_epoch": 3} if version >= 9 else {}
    return FetchRequest(version=version, max_wait_ms=500, min_bytes=1, max_bytes=1000, isolation_level=1, topics=[
        topic(version=version, topic="plant", topic_id=TOPIC_ID, partitions=[
            part(version=version, partition=i, fetch_offset=i * 10, partition_max_bytes=100 + i, **epoch)
            for i in range(3)]),
        topic(version=version, topic="", topic_id=TOPIC_ID, partitions=[])],
        forgotten_topics_data=[forgotten(version=version, topic="old", topic_id=TOPIC_ID, partitions=[1, 2])]
        if version >= 7 else [], rack_id="r1", **fields)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_decodes_produce(version: int) -> None:
    body = encoded(produce_request(version), version)
    assert codec.decode_produce(b"??" + body + b"!", 2, 2 + len(body), version) == (
        b"t", -1, 1500, [(named(b"plant", version), [(0, LONG), (9, None)]), (named(b"", version), [])])


def named(name: bytes, version: int) -> bytes:
    """A topic in a produce request or its answer."""
    return name if version < 13 else TOPIC_ID.bytes


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_encodes_what_was_produced(version: int) -> None:
    rows: list[tuple[int, int, int, int, int, bytes | None, list[int]]] = [
        (0, 0, 1 << 40, 77_000, 5, None, []), (9, 10, -1, -1, -1, b"too large", [0, 300])]
    answer = codec.encode_produced(version, 77, [(named(b"plant", version), rows)], 25)
    topic = ProduceResponse.TopicProduceResponse
    part = topic.PartitionProduceResponse
    start = {"log_start_offset": 5} if version >= 5 else {}
    text = {"error_message": "too large", "record_errors": [
        part.BatchIndexAndErrorMessage(version=version, batch_index=at, batch_index_error_message="too large")
        for at in (0, 300)]} if version >= 8 else {}
    expected = ProduceResponse(version=version, throttle_time_ms=25, responses=[topic(
        version=version, name="plant", topic_id=TOPIC_ID, partition_responses=[
            part(version=version, index=0, error_code=0, base_offset=1 << 40, log_append_time_ms=77_000, **start),
            part(version=version, index=9, error_code=10, base_offset=-1, **text)])])
    assert answer == framed(expected, 77)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_decodes_fetch(version: int) -> None:
    session = {"session_id": 5, "session_epoch": 6} if version >= 7 else {}
    body = encoded(fetch_request(version, **session), version)
    wanted = codec.decode_fetch(b"??" + body + b"!", 2, 2 + len(body), version, 100)
    assert (wanted.max_wait_ms, wanted.min_bytes, wanted.max_bytes, wanted.read_committed) == (500, 1, 1000, True)
    assert (wanted.session_id, wanted.session_epoch) == ((5, 6) if version >= 7 else (0, -1))
    epoch = 3 if version >= 9 else -1
    name = TOPIC_ID.bytes if version >= 13 else b"plant"
    assert wanted.topics == [(name, [(i, epoch, i * 10, 100 + i) for i in range(3)], None)], "not of the empty one"


@pytest.mark.parametrize("version", [version for version in FETCH_VERSIONS if version >= 12])
def test_decodes_fetch_with_tagged_fields(version: int) -> None:
    """Tagged fields that are not known must be ignored (KIP-482), wherever they stand."""
    request = fetch_request(version, cluster_id="c")
    body = with_tag(encoded(request, version), struct.pack(">iiqiqi", 1, 3, 10, -1, -1, 101) + b"\0")
    wanted = codec.decode_fetch(body, 0, len(body), version, 100)
    assert [part[0] for part in wanted.topics[0][1]] == [0, 1, 2]
    assert wanted.topics[0][1][1] == (1, 3, 10, 101)


def with_tag(body: bytes, row: bytes) -> bytes:
    """The body with an unknown tagged field (tag 31, three bytes) in the struct that was encoded as `row`."""
    assert body.count(row) == 1
    return body.replace(row, row[:-1] + b"\x01\x1f\x03abc")


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("read_committed", [False, True])
def test_encodes_what_was_fetched(version: int, read_committed: bool) -> None:
    bounds = {100: (2, 5), 101: (0, 0), 102: (0, 900), 103: (4, 9)}
    name = TOPIC_ID.bytes if version >= 13 else b"plant"
    rows = codec.FetchRows(version, read_committed, 3)
    rows.open_topic(name, 6)
    rows.scan([(0, 3, 5, 100), (1, -1, 0, 100), (2, -1, 899, 100), (3, -1, 3, 100), (3, -1, 5, 100), (4, -1, 0, 100)],
              PartitionIds(((100, 3), (103, 1))), bounds.__getitem__)
    rows.close_topic()
    rows.open_topic(name, 1)
    rows.refuse([(0, -1, 0, 100)], None, 29)
    rows.close_topic()
    assert rows.wants == [(102, 899, 100), (103, 5, 100)]
    assert set(rows.partition_ids()) == {100, 101, 102, 103}
    rows.fill(rows.places[0], 0, 901, 1, [LONG, b"second"])
    rows.fill(rows.places[1], 56, 9, 4, [])
    parts = rows.encode(77, 0)
    assert LONG in parts and b"second" in parts, "batches are not copied"

    topic, part = FetchResponse.FetchableTopicResponse, FetchResponse.FetchableTopicResponse.PartitionData
    aborted = [] if read_committed else None

    def row(index: int, error: int, high: int, start: int, records: bytes = b"") -> Any:
        log_start = {"log_start_offset": start} if version >= 5 else {}
        return part(version=version, partition_index=index, error_code=error, high_watermark=high,
                    last_stable_offset=high, aborted_transactions=aborted, records=records, **log_start)

    expected = FetchResponse(version=version, throttle_time_ms=0, responses=[
        topic(version=version, topic="plant", topic_id=TOPIC_ID, partitions=[
            row(0, 0, 5, 2), row(1, 0, 0, 0), row(2, 0, 901, 1, LONG + b"second"), row(3, 1, 9, 4), row(3, 56, 9, 4),
            row(4, 3, -1, -1)]),
        topic(version=version, topic="plant", topic_id=TOPIC_ID, partitions=[row(0, 29, -1, -1)])])
    assert b"".join(parts) == framed(expected, 77)


@pytest.mark.parametrize("version", [version for version in FETCH_VERSIONS if version >= 7])
def test_refuses_a_whole_fetch(version: int) -> None:
    expected = FetchResponse(version=version, throttle_time_ms=0, error_code=70, responses=[])
    assert codec.encode_fetch_error(version, 5, 70) == framed(expected, 5)


def test_leader_epochs_are_compared() -> None:
    rows = codec.FetchRows(12, False, 3)
    rows.scan([(0, 2, 0, 1), (0, 4, 0, 1), (0, 3, 0, 1), (0, -1, 0, 1)], PartitionIds(((5, 1),)),
              lambda partition_id: (0, 0))
    errors = [int.from_bytes(row[4:6], "big") for row in rows.rows]
    assert errors == [codec.FENCED_LEADER_EPOCH, codec.UNKNOWN_LEADER_EPOCH, 0, 0]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_cut_produce_is_malformed(version: int) -> None:
    body = encoded(produce_request(version), version)
    for end in range(len(body)):
        with pytest.raises(codec.Malformed):
            codec.decode_produce(body, 0, end, version)
    with pytest.raises(codec.Malformed):
        codec.decode_produce(body + b"\0", 0, len(body) + 1, version)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_cut_fetch_is_malformed(version: int) -> None:
    body = encoded(fetch_request(version), version)
    for end in range(len(body)):
        with pytest.raises(codec.Malformed):
            codec.decode_fetch(body, 0, end, version, 100)
    with pytest.raises(codec.Malformed):
        codec.decode_fetch(body + b"\0", 0, len(body) + 1, version, 100)


def test_a_fetch_of_too_many_partitions_is_malformed() -> None:
    body = encoded(fetch_request(11), 11)
    codec.decode_fetch(body, 0, len(body), 11, 3)
    with pytest.raises(codec.Malformed, match="more than 2 partitions"):
        codec.decode_fetch(body, 0, len(body), 11, 2)
    with pytest.raises(codec.Malformed, match="more than 1 topics"):
        codec.decode_fetch(body, 0, len(body), 11, 1)


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\0\0\0"])
def test_counts_that_lie_are_malformed_before_anything_is_made(count: bytes) -> None:
    with pytest.raises(codec.Malformed):
        codec.decode_produce(b"\xff\xff" + b"\0\1" + bytes(4) + count + bytes(64), 0, 76, 7)
    with pytest.raises(codec.Malformed):
        codec.read_count(count + bytes(64), 0, 68, False, 1)


def test_variable_length_numbers_end() -> None:
    assert codec.read_uvarint(b"\xff\xff\xff\xff\x0f", 0, 5) == (0xFFFFFFFF, 5)
    for raw in (b"", b"\x80", b"\xff\xff\xff\xff\xff", b"\x80\x80\x80\x80\x80\x01"):
        with pytest.raises(codec.Malformed):
            codec.read_uvarint(raw, 0, len(raw))


def frame(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def test_frames_come_out_however_they_are_cut() -> None:
    contents = [bytes([65 + i]) * size for i, size in enumerate((8, 9, 300, 20_000, 8, 70_000, 12))]
    stream = b"".join(map(frame, contents))
    for step in (1, 3, 7, 1000, 8192, 65_536, len(stream)):
        reader = codec.RequestReader(100_000)
        found = []
        for at in range(0, len(stream), step):
            reader.feed(stream[at:at + step])
            while (one := reader.next_frame()) is not None:
                data, start, end = one
                found.append(data[start:end])
        assert found == contents
        assert reader.held_bytes() == 0


def test_an_unfinished_frame_in_single_bytes_is_held_in_few_parts() -> None:
    reader = codec.RequestReader(1 << 20)
    for byte in frame(b"x" * 100_000)[:-1]:
        reader.feed(bytes([byte]))
        assert reader.next_frame() is None
    assert len(reader._received._parts) <= 1 + 2 * 100_000 // SMALL_PART_BYTES


@pytest.mark.parametrize("size", [b"\0\0\0\7", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\1\0\1", b"GET "])
def test_sizes_that_cannot_be_are_malformed(size: bytes) -> None:
    reader = codec.RequestReader(65_536)
    reader.feed(size)
    with pytest.raises(codec.Malformed):
        reader.next_frame()


def test_header() -> None:
    assert codec.decode_header(b"\0\1\0\x0b\0\0\0\x09\0\3abcREST", 0, 17) == (1, 11, 9, b"abc", 13)
    assert codec.decode_header(b"\0\1\0\x0b\0\0\0\x09\xff\xffREST", 0, 14) == (1, 11, 9, None, 10)
    for raw in (b"\0\1\0\x0b\0\0\0\x09", b"\0\1\0\x0b\0\0\0\x09\0\3ab", b"\0\1\0\x0b\0\0\0\x09\xff\xfe"):
        with pytest.raises(codec.Malformed):
            codec.decode_header(raw, 0, len(raw))


def test_tags_are_passed_over() -> None:
    assert codec.skip_tags(b"\0x", 0, 2) == 1
    assert codec.skip_tags(b"\x02\0\x01a\x05\0x", 0, 7) == 6
    for raw in (b"", b"\x01", b"\x01\0\x05abc", b"\xff\xff\xff\xff\x0f", b"\x02\0\0"):
        with pytest.raises(codec.Malformed):
            codec.skip_tags(raw, 0, len(raw))
