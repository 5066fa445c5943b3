"""A Kafka session over the real kernel, and batches that are not what they claim: refused in Kafka's words."""
from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.producer import ProduceResponse

from gatehouse.gateways.kafka.error_codes import CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE
from gatehouse.kernel.errors import InvalidRecord, InvalidTimestamp, KernelError, MessageTooLarge
from gatehouse.kernel.records.validation import SMALL_BYTES
from gatehouse.kernel.state.topics import TopicSettings
from gatehouse.kernel.write.batches import MAX_NAMED_RECORDS
from tests.gateways.kafka.batches import batch
from tests.gateways.kafka.fakes import Peer
from tests.gateways.kafka.judge import decoded, framed, produce
from tests.kernel.batches import encode_record, wrap
from tests.kernel.hostile import ATTACKS, TEN, WAYS, Attack, Way
from tests.kernel.packers import gzip
from tests.kernel.rig import Rig

CODES: dict[type[KernelError], int] = {
    InvalidRecord: INVALID_RECORD, InvalidTimestamp: INVALID_TIMESTAMP, MessageTooLarge: MESSAGE_TOO_LARGE}
LARGE = bytes(2 * SMALL_BYTES)                                # more than one turn of the loop opens


class KernelPeer(Peer):
    """A peer of a session over a real kernel."""

    def __init__(self, **settings: Any) -> None:
        self.rig = Rig()
        super().__init__(self.rig.kernel, **settings)             # type: ignore[arg-type]
        self.topic = self.rig.kernel.create_topic("plant", partitions=2, settings=TopicSettings())
        self.rig.run()

    def produced(self, *requests: Any) -> list[dict[tuple[str, int], Any]]:
        """The answers per partition, in the order of the requests."""
        for number, request in enumerate(requests):
            self.session.handle_data(framed(request, number))
        self.rig.run()
        answers = [decoded(ProduceResponse, 9, frame, number) for number, frame in enumerate(self.link.frames())]
        return [{(topic.name, part.index): part for topic in answer.responses for part in topic.partition_responses}
                for answer in answers]


@pytest.mark.parametrize("way", [Way(*way) for way in WAYS.values()], ids=WAYS)
@pytest.mark.parametrize(("attack", "error"), ATTACKS.values(), ids=ATTACKS)
def test_every_attack_is_refused_in_kafkas_words(way: Way, attack: Attack, error: type[KernelError]) -> None:
    peer = KernelPeer(max_request_bytes=200 << 20)
    data = attack(way)
    answer, = peer.produced(produce(9, {("plant", 0): data, ("plant", 1): way.batch(TEN, 10)}))
    limit = peer.rig.settings.max_message_bytes
    assert answer["plant", 0].error_code == (CODES[error] if len(data) <= limit else MESSAGE_TOO_LARGE)
    assert answer["plant", 0].error_message
    assert answer["plant", 1].error_code == 0, "the other partition is stored"
    assert peer.rig.kernel.bounds(peer.topic.partition_id(0)) == (0, 0)
    assert not peer.link.closed


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_what_does_not_decompress_is_corrupt(codec: int) -> None:
    peer = KernelPeer()
    for packed in (b"\x0b\xad" * 40, Way(*list(WAYS.values())[1]).pack(TEN)[:-1]):
        answer, = peer.produced(produce(9, {("plant", 0): wrap(packed, 3, codec=codec)}))
        assert answer["plant", 0].error_code == CORRUPT_MESSAGE


def large(name: bytes, delta: int = 0) -> bytes:
    """Opened on another thread, since it opens to more than one turn of the loop opens."""
    return wrap(gzip(encode_record(delta, b"k", name + LARGE)), 1, codec=1)


def test_requests_are_answered_in_order_whatever_is_opened_elsewhere() -> None:
    peer = KernelPeer()
    answers = peer.produced(
        produce(9, {("plant", 0): large(b"1")}), produce(9, {("plant", 1): batch(b"2")}),
        produce(9, {("plant", 0): large(b"lie", delta=1)}), produce(9, {("plant", 0): batch(b"3")}))
    assert [[(part.error_code, part.base_offset) for part in answer.values()] for answer in answers] == [
        [(0, 0)], [(0, 0)], [(INVALID_RECORD, -1)], [(0, 1)]]
    assert [(record[3] or b"")[:1] for record in peer.rig.read_partition(peer.topic.partition_id(0))] == [b"1", b"3"]


@pytest.mark.parametrize("data", [wrap(TEN, 11), large(b"lie", delta=1)], ids=["here", "there"])
def test_a_producer_without_acks_notices_by_its_connection(data: bytes) -> None:
    peer = KernelPeer()
    peer.session.handle_data(framed(produce(9, {("plant", 0): data}, acks=0), 1))
    peer.rig.run()
    assert peer.link.frames() == []
    assert peer.link.reason is not None and peer.link.reason.startswith("produce_refused: acks=0 and error 87: ")


def test_a_sound_batch_without_acks_is_stored_and_not_answered() -> None:
    peer = KernelPeer()
    peer.session.handle_data(framed(produce(9, {("plant", 0): large(b"1"), ("plant", 1): batch(b"2")}, acks=0), 1))
    peer.rig.run()
    assert peer.link.frames() == [] and not peer.link.closed
    assert [peer.rig.kernel.bounds(partition_id) for partition_id in peer.topic.partition_ids()] == [(0, 1), (0, 1)]


def test_a_client_that_is_gone_before_its_batch_is_opened() -> None:
    peer = KernelPeer()
    peer.session.handle_data(framed(produce(9, {("plant", 0): large(b"1")}), 1))
    peer.session.handle_closed()
    peer.rig.run()
    assert peer.link.frames() == []
    assert peer.rig.kernel.bounds(peer.topic.partition_id(0)) == (0, 1)


def test_a_session_that_stops_answers_what_is_being_opened() -> None:
    peer = KernelPeer()
    peer.session.handle_data(framed(produce(9, {("plant", 0): large(b"1")}), 0))
    peer.session.handle_stopping()
    assert not peer.link.closed
    answer, = peer.produced()
    assert answer["plant", 0].error_code == 0 and peer.link.closed


def told(part: Any) -> dict[int, str]:
    """The records that an answer names, with what it says of each."""
    return {error.batch_index: error.batch_index_error_message for error in part.record_errors}


def test_the_records_without_a_key_are_named_to_a_compacted_topic() -> None:
    peer = KernelPeer()
    peer.rig.kernel.create_topic("state", partitions=1, settings=TopicSettings(compact=True))
    peer.rig.run()
    keyless = b"".join(encode_record(i, b"k" if i % 3 else None, b"v") for i in range(8))
    answer, = peer.produced(produce(9, {("state", 0): wrap(keyless, 8), ("plant", 0): batch(b"v")}))
    part = answer["state", 0]
    assert part.error_code == INVALID_RECORD
    assert list(told(part)) == [0, 3, 6] and set(told(part).values()) == {part.error_message}
    assert "without key in topic partition state-0" in part.error_message
    assert (answer["plant", 0].error_code, told(answer["plant", 0])) == (0, {})


def test_not_more_records_are_named_than_a_bound() -> None:
    peer = KernelPeer()
    peer.rig.kernel.create_topic("state", partitions=1, settings=TopicSettings(compact=True))
    peer.rig.run()
    many = b"".join(encode_record(i, None, b"v") for i in range(MAX_NAMED_RECORDS + 5))
    answer, = peer.produced(produce(9, {("state", 0): wrap(many, MAX_NAMED_RECORDS + 5)}))
    assert list(told(answer["state", 0])) == [*range(MAX_NAMED_RECORDS)]


@pytest.mark.parametrize(("fault", "code"), [
    ({"delta_ms": -5_000}, INVALID_TIMESTAMP), ({"value": bytes(2_000)}, MESSAGE_TOO_LARGE)])
def test_the_first_record_that_cannot_be_is_named(fault: dict[str, Any], code: int) -> None:
    peer = KernelPeer()
    peer.rig.kernel.create_topic("small", partitions=1, settings=TopicSettings(max_message_bytes=1_000))
    peer.rig.run()
    records = b"".join(encode_record(i, b"k", **{"value": b"v", **(fault if i == 2 else {})}) for i in range(4))
    answer, = peer.produced(produce(9, {("small", 0): wrap(gzip(records), 4, codec=1)}))
    part = answer["small", 0]
    assert (part.error_code, told(part)) == (code, {2: part.error_message})
    assert part.error_message.startswith("record 2 has ")


def test_a_batch_that_lies_as_a_whole_names_none() -> None:
    answer, = KernelPeer().produced(produce(9, {("plant", 0): wrap(TEN, 11)}))
    assert (answer["plant", 0].error_code, told(answer["plant", 0])) == (INVALID_RECORD, {})
