"""Produce: what is appended, and each refusal in Kafka's number."""
from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import pytest
from kafka.protocol.producer import ProduceResponse

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.api import APIS
from gatehouse.gateways.kafka.api.produce import Produce, Produced
from gatehouse.gateways.kafka.request import Request
from gatehouse.kernel import errors
from gatehouse.kernel.state.topics import TopicSettings
from tests.gateways.kafka.batches import batch, changed
from tests.gateways.kafka.fakes import EPOCH, NOW_MS, Peer
from tests.gateways.kafka.judge import decoded, framed, id_of, produce
from tests.kernel.records.placing import placed

VERSIONS = range(APIS[0].first_version, APIS[0].last_version + 1)


def peer_with_topic(**settings: Any) -> Peer:
    peer = Peer(**settings)
    peer.kernel.create_topic("plant", partitions=2)
    peer.kernel.flush()
    return peer


def send(peer: Peer, version: int, batches: dict[tuple[str, int], bytes | None], acks: int = -1,
         transactional_id: str | None = None) -> dict[Any, Any]:
    """The answer per partition, after a flush."""
    frames = peer.send(framed(produce(version, batches, acks, transactional_id), 5))
    peer.kernel.flush()
    frames += peer.link.frames()
    answer = decoded(ProduceResponse, version, frames[0], 5)
    names = {id_of(name): name for name, _ in batches}
    return {(names[topic.topic_id] if version >= 13 else topic.name, part.index): part
            for topic in answer.responses for part in topic.partition_responses}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_is_stored_as_it_was_sent(version: int, acks: int) -> None:
    peer = peer_with_topic()
    data = batch(b"a", b"b", codec=1)
    assert send(peer, version, {("plant", 1): data}, acks)["plant", 1].base_offset == 0
    answer = send(peer, version, {("plant", 1): data}, acks)["plant", 1]
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 2, -1)
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    pieces = peer.kernel.partitions[peer.kernel.by_name["plant"].partition_id(1)]
    assert [piece.data for piece in pieces] == [placed(data, 0, EPOCH), placed(data, 2, EPOCH)]


def in_transaction(*values: bytes, headers: Sequence[tuple[str, bytes]] = ()) -> bytes:
    return batch(*values, transactional=True, producer_id=7, producer_epoch=2, base_sequence=0, headers=headers)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_of_a_transaction_is_held(version: int) -> None:
    peer = peer_with_topic()
    answer = send(peer, version, {("plant", 1): in_transaction(b"a", b"b")}, transactional_id="t")["plant", 1]
    assert (answer.error_code, answer.base_offset) == (0, -1)
    partition_id = peer.kernel.by_name["plant"].partition_id(1)
    assert peer.kernel.producing.asked == [("hold", "t", partition_id, 2)]
    assert peer.kernel.bounds(partition_id) == (0, 0)


@pytest.mark.parametrize(("data", "transactional_id", "code"), [
    (in_transaction(b"a"), None, 48), (batch(b"a"), "t", 48),
    (in_transaction(b"a", headers=[("half", b"g")]), "t", 87), (in_transaction(b"a")[:-1] + b"\xff", "t", 2)])
def test_what_is_no_batch_of_its_transaction_is_refused(data: bytes, transactional_id: str | None, code: int) -> None:
    peer = peer_with_topic()
    peer.kernel.change_topic("plant", settings=TopicSettings(interpret_headers=True))
    assert send(peer, 9, {("plant", 1): data}, transactional_id=transactional_id)["plant", 1].error_code == code
    assert peer.kernel.producing.asked == []


@pytest.mark.parametrize(("refusal", "code"), [
    (errors.FencedProducer("x"), 47), (errors.OtherProducer("x"), 49), (errors.NoTransaction("x"), 48),
    (errors.TransactionEnding("x"), 51), (errors.TransactionTooLarge("x"), 87), (errors.StorageFull("x"), 56)])
def test_why_a_batch_is_not_held(refusal: Exception, code: int) -> None:
    peer = peer_with_topic()
    peer.kernel.producing.refusal = refusal
    assert send(peer, 9, {("plant", 1): in_transaction(b"a")}, transactional_id="t")["plant", 1].error_code == code
    assert peer.services.admission.trace.flow("kafka").messages_in == 0, "what is refused did not come in"
    assert peer.services.door("kafka")._submitted == {}


@pytest.mark.parametrize(("refusal", "code"), [
    (errors.QueueFull("queue 'q' is full"), 44), (errors.KeptFull("x"), 56), (errors.StorageFull("x"), 56)])
def test_why_a_batch_is_not_stored(refusal: errors.KernelError, code: int) -> None:
    peer = peer_with_topic()
    peer.kernel.refusal = refusal
    answer = send(peer, 9, {("plant", 1): batch(b"a")})["plant", 1]
    assert (answer.error_code, answer.error_message) == (code, str(refusal))


def test_a_transactional_id_takes_the_right_to_transact() -> None:
    peer = peer_with_topic(decision=lambda _, operation, name: operation is not Operation.TRANSACT)
    answers = send(peer, 9, {("plant", index): in_transaction(b"a") for index in (0, 1)}, transactional_id="t")
    assert {answer.error_code for answer in answers.values()} == {53}
    assert peer.kernel.producing.asked == []


def test_nothing_is_kept_of_a_batch_that_goes_elsewhere() -> None:
    """It is answered by whoever takes it: here as half messages of a group without a name."""
    peer = peer_with_topic()
    peer.kernel.change_topic("plant", settings=TopicSettings(interpret_headers=True))
    peer.kernel.flush()
    for headers, code in ([], 0), ([("half", b"")], 87):
        assert send(peer, 9, {("plant", 1): batch(b"a", headers=headers)})["plant", 1].error_code == code
        assert peer.services.door("kafka")._submitted == {}


def test_half_messages_of_who_may_not_publish_any_more_are_refused() -> None:
    """A batch may be opened on another thread; here the right to its addresses is gone, and that to the topic is not.
    """
    peer = Peer(decision=lambda _, operation, name: name != "plant")
    peer.kernel.create_topic("plant", partitions=2, settings=TopicSettings(interpret_headers=True))
    peer.kernel.flush()
    half = batch(b"a", headers=[("half", b"g")])
    assert send(peer, 9, {("plant", 1): half})["plant", 1].error_code == 29


def test_the_time_of_the_append_is_told_where_records_have_it() -> None:
    peer = peer_with_topic()
    peer.kernel.change_topic("plant", settings=TopicSettings(log_append_time=True))
    assert send(peer, 9, {("plant", 1): batch(b"a")})["plant", 1].log_append_time_ms == NOW_MS


def test_the_answer_leaves_when_all_batches_are_durable() -> None:
    peer = peer_with_topic()
    request = produce(7, {("plant", 0): batch(b"a"), ("plant", 1): batch(b"b"), ("plant", 7): batch(b"c")})
    assert peer.send(framed(request, 5)) == []
    peer.kernel.flush()
    answer = decoded(ProduceResponse, 7, *peer.link.frames())
    assert [part.error_code for part in answer.responses[0].partition_responses] == [0, 0, 3]


def test_acks_0_has_no_answer() -> None:
    peer = peer_with_topic()
    assert peer.send(framed(produce(7, {("plant", 0): batch(b"a")}, acks=0), 5)) == []
    peer.kernel.flush()
    assert peer.link.frames() == []
    assert peer.kernel.bounds(peer.kernel.by_name["plant"].partition_id(0)) == (0, 1)
    assert not peer.link.closed


def test_acks_0_that_is_refused_closes_the_connection() -> None:
    """As Kafka does: the producer has no other way to notice."""
    peer = peer_with_topic()
    assert peer.send(framed(produce(7, {("other", 0): batch(b"a")}, acks=0), 5)) == []
    assert peer.link.reason == "produce_refused: acks=0 and error 3: there is no topic 'other'"


def test_a_request_without_topics_is_answered_at_once() -> None:
    assert decoded(ProduceResponse, 9, *Peer().send(framed(produce(9, {}), 5))).responses == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [0, -1])
def test_a_topic_without_partitions_is_left_out(version: int, acks: int) -> None:
    peer = peer_with_topic()
    request = produce(version, {("other", 0): None, ("plant", 0): batch(b"a")}, acks)
    request.topic_data[0].partition_data = []
    frames = peer.send(framed(request, 5))
    peer.kernel.flush()
    frames += peer.link.frames()
    assert not peer.link.closed
    assert [len(decoded(ProduceResponse, version, frame, 5).responses) for frame in frames] == [1] * (acks != 0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("where", "code"), [(("other", 0), 3), (("plant", 2), 3), (("plant", -1), 3), (("", 0), 3)])
def test_what_is_not_there(version: int, where: tuple[str, int], code: int) -> None:
    peer = peer_with_topic()
    answer = send(peer, version, {where: batch(b"a")})[where]
    by_id = version >= 13 and where[0] != "plant"
    assert (answer.error_code, answer.base_offset) == (100 if by_id else code, -1)
    assert bool(answer.error_message) == (version >= 8)
    assert "other" not in peer.kernel.by_name, "producing creates nothing; Metadata does"


def test_a_name_that_is_not_utf8_is_invalid() -> None:
    peer = peer_with_topic()
    request = framed(produce(7, {("plant", 0): batch(b"a")}), 5).replace(b"plant", b"pl\xff\xffn")
    answer, = peer.send(request)
    assert answer[4 + 4 + 2 + 5 + 4 + 4:][:2] == (17).to_bytes(2, "big")


def small(data: bytes) -> bytes:
    """A message set of the old format: offset, size, crc, magic 1."""
    return bytes(8) + len(data).to_bytes(4, "big") + bytes(4) + b"\1" + data


REFUSED = {
    "null records": (None, 87),
    "no records": (b"", 87),
    "shorter than a header": (batch(b"a")[:60], 2),
    "cut off": (batch(b"a" * 100)[:-1], 2),
    "two batches": (batch(b"a") + batch(b"b"), 87),
    "magic 0": (small(b"x" * 80)[:16] + b"\0" + b"x" * 80, 43),
    "magic 1": (small(b"x" * 80), 43),
    "magic 3": (changed(batch(b"a"), 16, ">b", 3), 87),
    "a control batch": (changed(batch(b"a"), 21, ">h", 0x20), 87),
    "a transactional batch": (batch(b"a", transactional=True), 48),
    "a codec that is not there": (changed(batch(b"a"), 21, ">h", 5), 76),
    "a wrong CRC": (batch(b"a")[:-1] + b"\xff", 2),
    "counts that lie": (changed(batch(b"a", b"b"), 57, ">i", 1), 2),
    "a negative count": (changed(batch(b"a"), 57, ">i", -5), 2),
}


@pytest.mark.parametrize("case", REFUSED)
def test_batches_that_are_refused(case: str) -> None:
    data, code = REFUSED[case]
    peer = peer_with_topic()
    answers = send(peer, 9, {("plant", 0): data, ("plant", 1): batch(b"a")})
    assert answers["plant", 0].error_code == code
    assert answers["plant", 1].error_code == 0, "the other partition is stored"
    assert not peer.link.closed


def test_zstd_needs_version_7() -> None:
    """KIP-110: older consumers could not read it."""
    data = changed(batch(b"a"), 21, ">h", 4)
    assert send(peer_with_topic(), 6, {("plant", 0): data})["plant", 0].error_code == 76
    assert send(peer_with_topic(), 7, {("plant", 0): data})["plant", 0].error_code == 0


@pytest.mark.parametrize(("error", "code"), [
    (errors.MessageTooLarge("4 MiB"), 10), (errors.OutOfOrderSequence("gap"), 45),
    (errors.FencedProducer("newer"), 47), (errors.UnknownPartition("gone"), 3),
    (errors.Stopping("bye"), 6), (errors.UnsupportedBatch("?"), 43), (errors.KernelError("?"), -1)])
def test_the_kernels_refusals(error: Exception, code: int) -> None:
    peer = peer_with_topic()
    peer.kernel.refusal = error
    answer = send(peer, 8, {("plant", 0): batch(b"a")})["plant", 0]
    assert (answer.error_code, answer.error_message) == (code, str(error))


def test_without_the_right_to_publish() -> None:
    peer = peer_with_topic(decision=lambda principal, operation, address: operation is not Operation.PUBLISH)
    assert send(peer, 9, {("plant", 0): batch(b"a")})["plant", 0].error_code == 29


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_that_are_none(acks: int) -> None:
    assert send(peer_with_topic(), 7, {("plant", 0): batch(b"a")}, acks)["plant", 0].error_code == 21


@pytest.mark.parametrize("acks", [0, 1])
def test_an_answered_request_awaits_no_collection(acks: int) -> None:
    """Thousands a second would: what points back at them is let go of."""
    def there() -> int:
        return sum(isinstance(one, (Produce, Produced, Request)) for one in gc.get_objects())

    peer = peer_with_topic()
    gc.collect()
    gc.disable()
    try:
        before = there()
        for _ in range(3):
            peer.send(framed(produce(7, {("plant", 0): batch(b"a"), ("plant", 1): batch(b"b")}, acks=acks), 5))
            peer.kernel.flush()
        assert there() == before
    finally:
        gc.enable()
