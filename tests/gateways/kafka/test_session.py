"""The connection's rules: order of answers, the bound on waiting requests, what ends a connection, stopping."""
from __future__ import annotations

import struct
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceResponse

from gatehouse.gateways.admission.limits.limit import Quota
from gatehouse.gateways.kafka.api import APIS
from gatehouse.kernel.errors import CorruptBatch, StorageFull
from gatehouse.kernel.shedding import WAIT_MS, Rung
from tests.gateways.kafka.batches import batch
from tests.gateways.kafka.fakes import FakeKernel, Peer
from tests.gateways.kafka.judge import decoded, fetch, framed, produce

METADATA = MetadataRequest(version=5, topics=[])


def correlation_ids(frames: list[bytes]) -> list[int]:
    return [struct.unpack_from(">i", frame)[0] for frame in frames]


def peer_with_topic(**settings: Any) -> Peer:
    peer = Peer(**settings)
    peer.kernel.create_topic("plant", partitions=2)
    peer.kernel.flush()
    return peer


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_the_table(version: int) -> None:
    peer = Peer()
    names = {"client_software_name": "judge", "client_software_version": "1"} if version >= 3 else {}
    frame, = peer.send(framed(ApiVersionsRequest(version=version, **names), 9))
    assert struct.unpack_from(">i", frame) == (9,)
    answer = ApiVersionsResponse.decode(frame, version=version, header=True)
    listed = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert answer.error_code == 0
    assert listed.pop(0) == (0, 13), "librdkafka compresses only where Produce 0 is listed (KAFKA-18659)"
    assert listed == {key: (api.first_version, api.last_version) for key, api in APIS.items() if key}
    if version >= 3:
        assert peer.session.describe()["client_software"] == "judge 1"


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    """KIP-511: a newer client must be able to read which versions there are."""
    peer = Peer()
    frame, = peer.send(b"\0\0\0\x0e" + struct.pack(">hhih", 18, 99, 7, -1) + b"\xde\xad\xbe\xef")
    assert struct.unpack_from(">ihi", frame) == (7, 35, len(APIS))
    assert len(frame) == 10 + 6 * len(APIS)
    assert peer.send(framed(METADATA, 8)), "the connection goes on"


@pytest.mark.parametrize("version", [*range(APIS[0].first_listed or 0, APIS[0].first_version), 14, -1, 32767])
def test_a_version_that_is_not_offered_closes_the_connection(version: int) -> None:
    peer = Peer()
    assert peer.send(b"\0\0\0\x0a" + struct.pack(">hhih", 0, version, 7, -1)) == []
    assert peer.link.reason == f"malformed: Produce version {version} is not offered"


@pytest.mark.parametrize("key", [-1, 4, 27, 38, 41, 83, 999, 32767])
def test_an_api_that_is_not_offered_closes_the_connection(key: int) -> None:
    peer = Peer()
    assert peer.send(b"\0\0\0\x0a" + struct.pack(">hhih", key, 0, 7, -1)) == []
    assert peer.link.reason == f"malformed: API {key} is not offered"


def test_a_request_that_is_too_large_closes_the_connection_at_its_first_bytes() -> None:
    peer = Peer(max_request_bytes=65_536)
    assert peer.send(struct.pack(">i", 65_537)) == []
    assert peer.link.reason == "malformed: a request of 65537 bytes; at most 65536 are taken"


def test_requests_after_a_malformed_one_are_not_handled() -> None:
    peer = Peer()
    frames = peer.send(framed(METADATA, 1) + b"GET / HTTP/1.1\r\n" + framed(METADATA, 2))
    assert correlation_ids(frames) == [1]
    assert peer.link.closed
    assert peer.send(framed(METADATA, 3)) == []


def test_answers_leave_in_the_order_of_the_requests() -> None:
    peer = peer_with_topic()
    append = produce(7, {("plant", 0): batch(b"a")})
    assert peer.send(framed(append, 1) + framed(METADATA, 2) + framed(append, 3)) == []
    peer.kernel.flush()
    assert correlation_ids(peer.link.frames()) == [1, 2, 3]


def test_a_produce_behind_a_waiting_fetch_is_appended_and_answered_after_it() -> None:
    peer = peer_with_topic()
    waiting = fetch(11, {("plant", 0): 0}, max_wait_ms=500)
    assert peer.send(framed(waiting, 1) + framed(produce(7, {("plant", 1): batch(b"a")}), 2)) == []
    peer.kernel.flush()
    assert peer.kernel.bounds(peer.kernel.by_name["plant"].partition_id(1)) == (0, 1)
    assert peer.link.frames() == []
    assert correlation_ids(peer.wait(500)) == [1, 2]


def test_only_the_oldest_request_reads() -> None:
    """A connection never holds more than one fetch's records, however many fetches it sends at once."""
    peer = peer_with_topic()
    peer.send(framed(fetch(11, {("plant", 0): 0}, max_wait_ms=500), 1) + framed(fetch(11, {("plant", 1): 0}), 2))
    assert len(peer.kernel.watches) == 1
    assert peer.kernel.fetches == 0
    assert correlation_ids(peer.wait(500)) == [1, 2]


def test_the_peer_is_paused_while_too_many_requests_wait() -> None:
    peer = peer_with_topic(max_in_flight=2)
    append = produce(7, {("plant", 0): batch(b"a")})
    peer.send(b"".join(framed(append, i) for i in range(5)))
    assert len(peer.kernel.pending) == 2
    assert peer.link.paused
    peer.kernel.flush()
    assert correlation_ids(peer.link.frames()) == [0, 1]
    assert len(peer.kernel.pending) == 2 and peer.link.paused
    peer.kernel.flush()
    peer.kernel.flush()
    assert correlation_ids(peer.link.frames()) == [2, 3, 4]
    assert not peer.link.paused


def test_nothing_is_dispatched_while_the_peer_does_not_take_its_answers() -> None:
    peer = peer_with_topic(fetch_max_bytes=65_536)
    peer.link.unsent_bytes = 65_537
    assert peer.send(framed(METADATA, 1)) == []
    assert peer.link.paused
    peer.link.unsent_bytes = 0
    peer.session.handle_drained()
    assert correlation_ids(peer.link.frames()) == [1]
    assert not peer.link.paused


def test_a_turn_is_bounded_whatever_a_peer_sends_at_once() -> None:
    """Questions of a few bytes for answers of hundreds of kilobytes: others get their turn in between."""
    peer = Peer(idle_timeout_ms=0)
    peer.kernel.create_topic("wide", partitions=10_000)
    question = MetadataRequest(version=5, topics=None)
    frames = peer.send(b"".join(framed(question, i) for i in range(20)))
    assert 1 <= len(frames) <= 4
    assert peer.link.paused
    for _ in range(20):
        frames += peer.wait(10)
    assert correlation_ids(frames) == list(range(20))
    assert not peer.link.paused and not peer.link.wake_ms


def test_fetches_sent_at_once_are_bounded_too() -> None:
    peer = peer_with_topic()
    peer.kernel.append_batch(peer.kernel.by_name["plant"].partition_id(0), batch(b"x" * 800_000), None)
    peer.kernel.flush()
    frames = peer.send(b"".join(framed(fetch(11, {("plant", 0): 0}), i) for i in range(6)))
    assert len(frames) == 2
    for _ in range(6):
        frames += peer.wait(10)
    assert correlation_ids(frames) == list(range(6))


def test_one_large_answer_does_not_pause_its_reader() -> None:
    peer = peer_with_topic()
    for _ in range(3):
        peer.kernel.append_batch(peer.kernel.by_name["plant"].partition_id(0), batch(b"x" * 800_000), None)
    peer.kernel.flush()
    for i in range(4):
        request = fetch(11, {("plant", 0): 0}, max_bytes=4 << 20, most=4 << 20)
        assert correlation_ids(peer.send(framed(request, i))) == [i]
        assert not peer.link.paused


def test_a_throttled_peer_is_told_and_not_read_for_that_time() -> None:
    peer = peer_with_topic(quotas={"anonymous": Quota(messages_per_s=5)})
    append = framed(produce(7, {("plant", 0): batch(*[b"x"] * 10)}), 1)
    peer.send(append)
    peer.kernel.flush()
    answer = decoded(ProduceResponse, 7, *peer.link.frames())
    assert answer.throttle_time_ms > 0
    assert peer.link.paused
    assert peer.send(framed(METADATA, 2)) == []
    assert correlation_ids(peer.wait(answer.throttle_time_ms)) == [2]
    assert not peer.link.paused


def test_while_publishing_waits_a_producer_is_told_so_and_not_read_and_who_reads_is() -> None:
    peer = peer_with_topic()
    assert correlation_ids(peer.send(framed(METADATA, 0))) == [0]
    peer.kernel.shedding.level = Rung.PUBLISHERS
    peer.services.admission.look_at_overload()
    peer.send(framed(produce(7, {("plant", 0): batch(b"x")}), 1))
    peer.kernel.flush()
    assert decoded(ProduceResponse, 7, *peer.link.frames()).throttle_time_ms == WAIT_MS
    assert peer.link.paused and peer.send(framed(METADATA, 2)) == []
    assert correlation_ids(peer.wait(WAIT_MS)) == [2]


def test_who_may_not_be_anonymous_is_sent_away_after_api_versions() -> None:
    peer = Peer(allow_anonymous=False)
    assert peer.send(framed(ApiVersionsRequest(version=0), 1))
    assert peer.send(framed(METADATA, 2)) == []
    assert peer.link.reason == "not_authenticated: credentials are needed"


def test_a_closed_connection_lets_go_of_everything() -> None:
    peer = peer_with_topic()
    peer.send(framed(fetch(11, {("plant", 0): 0}, max_wait_ms=500), 1)
              + framed(produce(7, {("plant", 0): batch(b"a")}), 2))
    peer.session.handle_closed()
    assert peer.kernel.watches == []
    peer.kernel.flush()
    peer.session.handle_timer(peer.now_ms + 1000)
    assert peer.link.frames() == []


def test_a_read_that_comes_back_after_the_end_is_nobodys() -> None:
    peer = peer_with_topic()
    peer.kernel.late = True
    peer.send(framed(produce(7, {("plant", 0): batch(b"a")}), 1))
    peer.kernel.flush()
    peer.link.frames()
    peer.send(framed(fetch(11, {("plant", 0): 0}), 2))
    peer.session.handle_closed()
    peer.kernel.read()
    assert peer.link.frames() == []


def test_stopping_answers_what_is_in_flight_and_closes() -> None:
    peer = peer_with_topic()
    peer.send(framed(fetch(11, {("plant", 0): 0}, max_wait_ms=30_000), 1)
              + framed(produce(7, {("plant", 0): batch(b"a")}), 2))
    peer.session.handle_stopping()
    frames = peer.link.frames()
    assert correlation_ids(frames) == [1]
    assert decoded(FetchResponse, 11, frames[0]).responses[0].partitions[0].error_code == 0
    assert peer.send(framed(METADATA, 3)) == []
    assert not peer.link.closed
    peer.kernel.flush()
    assert correlation_ids(peer.link.frames()) == [2]
    assert peer.link.reason == "stopping"


def test_stopping_an_idle_connection_closes_it() -> None:
    peer = Peer()
    peer.session.handle_stopping()
    assert peer.link.reason == "stopping"


def test_one_peers_fault_leaves_another_alone() -> None:
    kernel = FakeKernel()
    bad, good = Peer(kernel), Peer(kernel)
    bad.send(b"\xff" * 64)
    assert bad.link.closed
    assert good.send(framed(METADATA, 1))


def test_metadata_names_the_hub_and_the_advertised_address() -> None:
    peer = Peer(advertise="[::1]:9094")
    answer = decoded(MetadataResponse, 5, *peer.send(framed(METADATA, 1)))
    assert (answer.cluster_id, answer.controller_id) == ("hub", 1)
    assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [(1, "::1", 9094)]


@pytest.mark.parametrize(("error", "code"), [(StorageFull("full"), 56), (CorruptBatch("bad"), 2)])
def test_what_cannot_be_stored_is_told(error: Exception, code: int) -> None:
    peer = peer_with_topic()
    peer.send(framed(produce(8, {("plant", 0): batch(b"a")}), 1))
    peer.kernel.flush(error)
    part = decoded(ProduceResponse, 8, *peer.link.frames()).responses[0].partition_responses[0]
    assert (part.error_code, part.base_offset, part.error_message) == (code, -1, str(error))
