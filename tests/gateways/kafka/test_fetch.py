"""Fetch: what is read, when it waits and for how long, and each refusal in Kafka's number."""
from __future__ import annotations

import gc
import uuid
from typing import Any

import pytest
from crc32c import crc32c
from kafka.protocol.consumer import FetchResponse

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.limits.limit import read_limit
from gatehouse.gateways.kafka.api import APIS
from gatehouse.gateways.kafka.api.fetch import Fetch
from gatehouse.gateways.kafka.config import KafkaConfig
from gatehouse.gateways.kafka.request import Request
from gatehouse.kernel.errors import StorageFailed
from gatehouse.kernel.message import Fetched, Piece
from gatehouse.kernel.records.batch import NO_HEADERS, encode_key, read_header, records_of, varint
from tests.gateways.kafka.batches import batch
from tests.gateways.kafka.fakes import EPOCH, NOW_MS, Peer
from tests.gateways.kafka.judge import decoded, fetch, framed
from tests.kernel import poison
from tests.kernel.groups.test_claims import little_memory

VERSIONS = range(APIS[1].first_version, APIS[1].last_version + 1)


def peer_with_records(*batches: bytes, **settings: Any) -> Peer:
    """Topic `plant` with two partitions, the batches in the first."""
    peer = Peer(**settings)
    topic = peer.kernel.create_topic("plant", partitions=2)
    for data in batches:
        peer.kernel.append_batch(topic.partition_id(0), data, None)
    peer.kernel.flush()
    return peer


def append(peer: Peer, partition: int, data: bytes) -> None:
    peer.kernel.append_batch(peer.kernel.by_name["plant"].partition_id(partition), data, None)
    peer.kernel.flush()


def name_of(peer: Peer, version: int) -> Any:
    return uuid.UUID(bytes=peer.kernel.by_name["plant"].uuid) if version >= 13 else "plant"


def parts_of(version: int, frames: list[bytes]) -> dict[int, Any]:
    """The answer's partitions by number."""
    answer = decoded(FetchResponse, version, frames[0], 5)
    return {part.partition_index: part for topic in answer.responses for part in topic.partitions}


def send(peer: Peer, version: int, wants: dict[tuple[Any, int], int], **fields: Any) -> dict[int, Any]:
    return parts_of(version, peer.send(framed(fetch(version, wants, **fields), 5)))


@pytest.mark.parametrize("version", VERSIONS)
def test_records_come_as_they_were_sent(version: int) -> None:
    peer = peer_with_records(batch(b"a", b"b"), batch(b"c", codec=1))
    name = name_of(peer, version)
    parts = send(peer, version, {(name, 0): 0, (name, 1): 0})
    stored = [piece.data for piece in peer.kernel.partitions[peer.kernel.by_name["plant"].partition_id(0)]]
    assert bytes(parts[0].records) == b"".join(stored)
    assert (parts[0].error_code, parts[0].high_watermark, parts[0].last_stable_offset) == (0, 3, 3)
    assert parts[0].aborted_transactions is None
    assert (parts[1].error_code, parts[1].high_watermark, bytes(parts[1].records)) == (0, 0, b"")
    assert stored[0] in peer.link.parts, "batches are not copied"


def test_a_fetch_in_the_middle_of_a_batch_gets_the_whole_batch() -> None:
    peer = peer_with_records(batch(b"a", b"b", b"c"))
    part = send(peer, 11, {("plant", 0): 2})[0]
    assert read_header(bytes(part.records)).base_offset == 0


def test_what_another_door_published_comes_as_a_batch() -> None:
    """The door's own records have no batch around them in the log; one is put there."""
    peer = peer_with_records(batch(b"a"))
    body = b"\x01" + varint(0) + varint(0) + encode_key(b"line1/temp") + varint(2) + b"21" + NO_HEADERS
    data = varint(len(body)) + body
    partition_id = peer.kernel.by_name["plant"].partition_id(0)
    peer.kernel.add(partition_id, Piece(1, 1, False, data, NOW_MS, NOW_MS, 77))
    part = send(peer, 11, {("plant", 0): 1})[0]
    records = bytes(part.records)
    header = read_header(records)
    assert (header.base_offset, header.leader_epoch, header.record_count) == (1, EPOCH, 1)
    record, = records_of(Piece(1, 1, True, records, NOW_MS, NOW_MS, 77))
    assert record[:4] == (1, NOW_MS, b"line1/temp", b"21")


def test_an_empty_fetch_waits_for_the_first_record() -> None:
    peer = peer_with_records()
    assert peer.send(framed(fetch(11, {("plant", 0): 0, ("plant", 1): 0}, max_wait_ms=500), 5)) == []
    append(peer, 1, batch(b"a"))
    parts = parts_of(11, peer.link.frames())
    assert (len(parts[0].records), parts[1].high_watermark) == (0, 1)
    assert peer.kernel.watches == []
    assert peer.link.wake_ms == NOW_MS + KafkaConfig().idle_timeout_ms, "nothing but the look whether it is idle"


def test_an_empty_fetch_is_answered_when_its_time_is_up() -> None:
    peer = peer_with_records()
    assert peer.send(framed(fetch(11, {("plant", 0): 0}, max_wait_ms=500), 5)) == []
    assert peer.wait(499) == []
    assert parts_of(11, peer.wait(1))[0].error_code == 0
    assert peer.kernel.watches == []


def test_the_hub_bounds_how_long_a_fetch_waits() -> None:
    peer = peer_with_records(fetch_max_wait_ms=100)
    assert peer.send(framed(fetch(11, {("plant", 0): 0}, max_wait_ms=2**31 - 1), 5)) == []
    assert peer.wait(100)


def test_too_few_bytes_wait_for_more_and_leave_in_time() -> None:
    peer = peer_with_records(batch(b"a"))
    assert peer.send(framed(fetch(11, {("plant", 0): 0}, max_wait_ms=500, min_bytes=10_000), 5)) == []
    assert peer.wait(100) == []
    append(peer, 0, batch(b"b" * 100))
    assert peer.link.frames() == []
    append(peer, 0, batch(b"c" * 10_000))
    frames = peer.wait(10)
    assert parts_of(11, frames)[0].high_watermark == 3

    assert peer.send(framed(fetch(11, {("plant", 0): 2}, max_wait_ms=500, min_bytes=1 << 20), 5)) == []
    assert len(parts_of(11, peer.wait(500))[0].records) > 10_000


def test_a_busy_queue_does_not_make_a_fetch_look_all_the_time() -> None:
    peer = peer_with_records(batch(b"a"))
    peer.send(framed(fetch(11, {("plant", 0): 0}, max_wait_ms=500, min_bytes=100_000), 5))
    for _ in range(50):
        append(peer, 0, batch(b"b"))
    assert peer.kernel.fetches <= 2


def test_more_bytes_are_wanted_than_may_be_given() -> None:
    """min_bytes above what one answer may hold would never be reached."""
    peer = peer_with_records(batch(b"a" * 200), batch(b"b" * 200))
    assert send(peer, 11, {("plant", 0): 0}, max_wait_ms=500, min_bytes=1 << 30, max_bytes=250)[0].records


def test_limits_hold_but_one_batch_always_comes() -> None:
    peer = peer_with_records(batch(b"a" * 300), batch(b"b" * 300), batch(b"c" * 300))
    one = len(batch(b"a" * 300))
    assert len(send(peer, 11, {("plant", 0): 0}, most=1)[0].records) == one
    assert len(send(peer, 11, {("plant", 0): 0}, most=2 * one)[0].records) == 2 * one
    assert len(send(peer, 11, {("plant", 0): 0}, max_bytes=1)[0].records) == one
    assert len(send(peer, 11, {("plant", 0): 0}, max_bytes=0)[0].records) == one
    assert len(send(peer, 11, {("plant", 0): 0}, max_bytes=-1, most=-1)[0].records) == one


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("offset", [-1, 0, 4, 2**62])
def test_offsets_out_of_range_say_what_there_is(version: int, offset: int) -> None:
    peer = peer_with_records(batch(b"a", b"b", b"c"))
    peer.kernel.starts[peer.kernel.by_name["plant"].partition_id(0)] = 1
    name = name_of(peer, version)
    part = send(peer, version, {(name, 0): offset, (name, 1): 0}, max_wait_ms=500)[0]
    assert (part.error_code, part.high_watermark) == (1, 3)
    assert part.log_start_offset == (1 if version >= 5 else -1)


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (EPOCH, 0), (EPOCH - 1, 74), (EPOCH + 1, 75)])
def test_leader_epochs(epoch: int, code: int) -> None:
    """KIP-320. The epoch is the number of this start of the hub."""
    peer = peer_with_records(batch(b"a"))
    part = send(peer, 11, {("plant", 0): 0}, epoch=epoch)[0]
    assert (part.error_code, bool(part.records)) == (code, code == 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_there(version: int) -> None:
    peer = peer_with_records()
    name = name_of(peer, version)
    other = uuid.UUID(int=5) if version >= 13 else "other"
    request = fetch(version, {(name, 2): 0, (name, -1): 0, (other, 0): 0})
    answer = decoded(FetchResponse, version, *peer.send(framed(request, 5)))
    codes = {(topic.topic_id if version >= 13 else topic.topic, part.partition_index): part.error_code
             for topic in answer.responses for part in topic.partitions}
    assert codes == {(name, 2): 3, (name, -1): 3, (other, 0): 100 if version >= 13 else 3}


def test_what_is_not_there_does_not_hurry_the_rest() -> None:
    """Else a consumer of a deleted topic beside a live one would ask without a pause."""
    peer = peer_with_records()
    assert peer.send(framed(fetch(11, {("plant", 0): 0, ("other", 0): 0}, max_wait_ms=500), 5)) == []
    assert decoded(FetchResponse, 11, *peer.wait(500)).responses[1].partitions[0].error_code == 3


def test_a_topic_deleted_while_a_fetch_waits() -> None:
    peer = peer_with_records()
    assert peer.send(framed(fetch(11, {("plant", 0): 0}, max_wait_ms=500), 5)) == []
    del peer.kernel.by_name["plant"]
    assert parts_of(11, peer.wait(500))[0].error_code == 3


def test_a_fetch_of_nothing_is_answered_at_once() -> None:
    peer = peer_with_records()
    assert decoded(FetchResponse, 11, *peer.send(framed(fetch(11, {}, max_wait_ms=500), 5))).responses == []


def test_without_the_right_to_consume() -> None:
    peer = peer_with_records(batch(b"a"), decision=lambda principal, operation, _: operation is not Operation.CONSUME)
    assert send(peer, 11, {("plant", 0): 0})[0].error_code == 29
    assert send(peer, 13, {(name_of(peer, 13), 0): 0})[0].error_code == 29


def test_a_slow_read_is_answered_when_it_comes() -> None:
    peer = peer_with_records(batch(b"a"))
    peer.kernel.late = True
    assert peer.send(framed(fetch(11, {("plant", 0): 0}), 5)) == []
    peer.kernel.read()
    assert parts_of(11, peer.link.frames())[0].records


def slow_peer() -> Peer:
    """Its fetch has looked at two partitions, the first of which has too few bytes, and reads them from the disk."""
    peer = peer_with_records(batch(b"a"))
    peer.kernel.late = True
    wants = {("plant", 0): 0, ("plant", 1): 0}
    assert peer.send(framed(fetch(11, wants, min_bytes=10_000, max_wait_ms=500), 5)) == []
    return peer


def test_the_time_of_a_fetch_is_up_while_it_reads() -> None:
    peer = slow_peer()
    peer.kernel.read()
    peer.wait(100)
    append(peer, 0, batch(b"b"))
    assert len(peer.kernel.reads) == 1, "it looks again, and reads"
    append(peer, 1, batch(b"of the other"))
    peer.kernel.starts[peer.kernel.by_name["plant"].partition_id(0)] = 2           # all of it was deleted
    assert peer.wait(600) == [] and len(peer.kernel.reads) == 2
    peer.kernel.read()
    parts = parts_of(11, peer.link.frames())
    assert parts[0].high_watermark == 2 and parts[1].high_watermark == 1
    assert bytes(parts[1].records).endswith(batch(b"of the other")[61:])


def test_what_comes_while_a_fetch_reads_is_not_missed() -> None:
    peer = slow_peer()
    append(peer, 1, batch(bytes(10_000)))
    peer.kernel.read()
    assert peer.link.frames() == []
    peer.wait(5)
    peer.kernel.read()
    assert len(parts_of(11, peer.link.frames())[1].records) > 10_000, "it does not wait until its time is up"
    assert not peer.kernel.watches


def test_a_wait_is_given_up_by_somebody_who_is_woken_before() -> None:
    kernel = peer_with_records().kernel
    port, woken = kernel.port(None), list[int]()

    def first() -> None:
        woken.append(1)
        port.unwatch(second)

    port.watch({1}, first)
    second = port.watch({1}, lambda: woken.append(2))
    port.watch({1}, lambda: woken.append(3))
    kernel.wake({1})
    assert woken == [1, 3] and not kernel.watches


def test_a_failed_read_is_a_storage_error() -> None:
    peer = peer_with_records(batch(b"a"))
    partition_id = peer.kernel.by_name["plant"].partition_id(0)
    peer.kernel.fetch = lambda wants, max_bytes, on_done, stored, max_records: on_done(  # type: ignore[method-assign]
        [Fetched(partition_id, StorageFailed("does not match its checksum"), 0, 1, [])])
    assert send(peer, 11, {("plant", 0): 0}, max_wait_ms=500)[0].error_code == 56


def test_a_topic_of_several_queue_ranges() -> None:
    """Partitions that were added later have ids of another range."""
    peer = peer_with_records()
    topic = peer.kernel.by_name["plant"]
    object.__setattr__(topic, "ranges", (*topic.ranges, (9_000_000, 3)))
    peer.kernel.append_batch(9_000_002, batch(b"a"), None)
    peer.kernel.flush()
    parts = send(peer, 11, {("plant", 1): 0, ("plant", 4): 0, ("plant", 5): 0})
    assert [(index, part.error_code, part.high_watermark) for index, part in parts.items()] == [
        (1, 0, 0), (4, 0, 1), (5, 3, -1)]


def test_an_answered_fetch_lets_go_of_its_records_at_once() -> None:
    def alive() -> int:
        return sum(type(one) in (Request, Fetch) for one in gc.get_objects())

    peer = peer_with_records(batch(b"a"))
    gc.collect()
    gc.disable()
    try:
        before = alive()
        assert send(peer, 11, {("plant", 0): 0})[0].error_code == 0
        assert alive() == before
    finally:
        gc.enable()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stored_batch_that_claims_two_milliards_of_records_costs_its_bytes(version: int) -> None:
    """A hub that looked into no batch stored it. Kafka's readers open batches themselves, and get it as it lies."""
    peer = peer_with_records(batch(b"a"))
    partition_id = peer.kernel.by_name["plant"].partition_id(0)
    data = poison.lying()
    peer.kernel.partitions[partition_id].append(Piece(1, poison.CLAIMED, True, data, NOW_MS, NOW_MS, 9))
    with little_memory(1 << 20):
        part = send(peer, version, {(name_of(peer, version), 0): 1})[0]
    assert (part.records, part.high_watermark) == (data, poison.CLAIMED + 1)
    with little_memory(1 << 20):
        later = send(peer, version, {(name_of(peer, version), 0): poison.CLAIMED + 1}, max_wait_ms=0)[0]
    assert later.error_code == 0 and not later.records


@pytest.mark.parametrize("version", [4, 11, 12])
def test_offsets_at_which_nothing_is_left_are_answered_with_an_empty_batch(version: int) -> None:
    """A reader would otherwise ask there for ever; behind a compacted tail a broker answers the same."""
    peer = Peer()
    partition_id = peer.kernel.create_topic("plant", partitions=1).partition_id(0)
    peer.kernel.flush()
    peer.kernel.ends[partition_id] = 1000
    answer = decoded(FetchResponse, version, *peer.send(framed(fetch(version, {("plant", 0): 7}), 5))[-1:], 5)
    header = read_header(bytes(answer.responses[0].partitions[0].records))
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (7, 992, 0)
    assert header.crc == crc32c(bytes(answer.responses[0].partitions[0].records)[21:])


def test_who_is_limited_takes_few_messages_at_once_however_many_would_fit() -> None:
    peer = Peer()
    peer.kernel.create_topic("plant", partitions=1)
    for _ in range(100):
        peer.kernel.append_batch(peer.kernel.by_name["plant"].partition_id(0), batch(*[b"x" * 50] * 10), None)
    peer.kernel.flush()
    limits = peer.services.admission.limits
    limits.put(read_limit({"of": "hub", "direction": "out", "messages_per_s": 100}, "1"), peer.now_ms)
    first = decoded(FetchResponse, 11, *peer.send(framed(fetch(11, {("plant", 0): 0}), 1)))
    taken = limits.most_used("1", 1)[0].messages_taken
    assert 50 <= taken <= 110 and first.throttle_time_ms <= 100, "a burst, about, and not all thousand"
    assert peer.send(framed(fetch(11, {("plant", 0): taken}), 2)) == [] or not first.throttle_time_ms
    peer.wait(2_000)
    assert limits.most_used("1", 1)[0].messages_taken <= taken + 120


def test_what_is_fetched_beyond_a_limit_is_throttled() -> None:
    peer = Peer()
    peer.kernel.create_topic("plant", partitions=1)
    peer.kernel.append_batch(peer.kernel.by_name["plant"].partition_id(0), batch(*[b"x"] * 30), None)
    peer.kernel.flush()
    limits = peer.services.admission.limits
    limits.put(read_limit({"of": "topic:plant", "direction": "out", "messages_per_s": 10}, "1"), peer.now_ms)
    limits.put(read_limit({"of": "user:anonymous", "direction": "out", "messages_per_s": 1000}, "2"), peer.now_ms)
    answer = decoded(FetchResponse, 11, *peer.send(framed(fetch(11, {("plant", 0): 0}), 1)))
    assert answer.throttle_time_ms == 2000
    assert peer.send(framed(fetch(11, {("plant", 0): 0}), 2)) == []
    again, = peer.wait(2000)
    assert decoded(FetchResponse, 11, again).throttle_time_ms == 3000
    assert limits.most_used("2", 1)[0].messages_taken == 60


def test_who_took_a_whole_batch_waits_while_others_take_theirs() -> None:
    peer = Peer()
    peer.kernel.create_topic("plant", partitions=1)
    peer.kernel.append_batch(peer.kernel.by_name["plant"].partition_id(0), batch(*[b"x"] * 40), None)
    peer.kernel.flush()
    limits = peer.services.admission.limits
    limits.put(read_limit({"of": "hub", "direction": "out", "messages_per_s": 10}, "1"), peer.now_ms)
    other = peer.services.guard("mqtt", peer.services.admission.anonymous, None)
    other.hand_out(11, 0)
    first = decoded(FetchResponse, 11, *peer.send(framed(fetch(11, {("plant", 0): 0}), 1)))
    other.hand_out(1, 0)
    peer.wait(first.throttle_time_ms)
    assert peer.send(framed(fetch(11, {("plant", 0): 0}, max_wait_ms=500), 2)) == []
    other.hand_out(1, 0)
    answer, = peer.wait(500)
    assert decoded(FetchResponse, 11, answer).responses[0].partitions[0].records in (b"", None)
    assert peer.send(framed(fetch(11, {("plant", 0): 0}, max_wait_ms=10_000), 3)) == []
    answers: list[bytes] = []
    for _ in range(20):
        answers += peer.wait(500)                # nobody else takes any more
    assert decoded(FetchResponse, 11, *answers).responses[0].partitions[0].records
