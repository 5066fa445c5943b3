"""Whatever bytes come to the Kafka door: nothing is raised, a fault closes that connection alone, no other notices."""
from __future__ import annotations

import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest

from gatehouse.gateways.kafka.api import APIS
from tests.gateways.kafka.batches import batch
from tests.gateways.kafka.fakes import FakeKernel, Peer
from tests.gateways.kafka.judge import fetch, framed, list_offsets, produce

LIMIT = 65_536

VALID = [framed(message, 1) for message in (
    ApiVersionsRequest(version=3, client_software_name="a", client_software_version="1"),
    MetadataRequest(version=1, topics=None), MetadataRequest(version=12, topics=[]),
    CreateTopicsRequest(version=5, topics=[CreateTopicsRequest.CreatableTopic(
        version=5, name="made", num_partitions=1, replication_factor=1, assignments=[], configs=[])]),
    FindCoordinatorRequest(version=3, key="g", key_type=0), JoinGroupRequest(version=5, group_id="g", member_id=""),
    JoinGroupRequest(version=3, group_id="g", member_id="", session_timeout_ms=10_000, protocol_type="consumer",
                     protocols=[JoinGroupRequest.JoinGroupRequestProtocol(version=3, name="range", metadata=b"x")]),
    SyncGroupRequest(version=4, group_id="g", generation_id=1), HeartbeatRequest(version=4, group_id="g"),
    LeaveGroupRequest(version=5, group_id="g", members=[LeaveGroupRequest.MemberIdentity(version=5, member_id="m")]),
    DescribeGroupsRequest(version=6, groups=["g"]), ListGroupsRequest(version=5),
    DeleteGroupsRequest(version=2, groups_names=["g"]),
    OffsetFetchRequest(version=5, group_id="g", topics=None),
    OffsetCommitRequest(version=8, group_id="g", topics=[OffsetCommitRequest.OffsetCommitRequestTopic(
        version=8, name="plant", partitions=[])]),
    InitProducerIdRequest(version=4, transactional_id=None), list_offsets(7, {("plant", 0): -1, ("plant", 1): 5}),
    produce(7, {("plant", 0): batch(b"a"), ("plant", 9): None}), produce(9, {("plant", 1): batch(b"a", codec=1)}),
    fetch(11, {("plant", 0): 0, ("plant", 1): 7}), fetch(12, {("plant", 0): 0}, max_wait_ms=100))]

bodies = st.binary(max_size=300) | st.lists(st.sampled_from(
    [b"\0", b"\1", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\1", b"\0\5plant", b"\6plant",
     b"\0\0\0\0", b"\x80\x80\x80\x80\x10", b"\xff\xff", bytes(8), bytes(33)]), max_size=40).map(b"".join)


def hub() -> FakeKernel:
    kernel = FakeKernel()
    kernel.create_topic("plant", partitions=2)
    kernel.flush()
    return kernel


def feed(data: bytes, size: int) -> Peer:
    """Feed it in pieces beside a healthy peer, let everything that is pending come about, and check the healthy one."""
    kernel = hub()
    peer, other = Peer(kernel, max_request_bytes=LIMIT), Peer(kernel)
    for at in range(0, len(data), size):
        peer.session.handle_data(data[at:at + size])
        kernel.flush()
    for _ in range(2):
        kernel.flush()
        peer.wait(60_000)
    if not peer.link.closed:
        assert peer.session._reader.held_bytes() <= LIMIT + 4 + size
        peer.session.handle_stopping()
        kernel.flush()
    assert peer.link.closed
    assert kernel.watches == []
    assert other.send(framed(MetadataRequest(version=1, topics=[]), 1))
    return peer


@given(st.binary(max_size=2000), st.integers(1, 500))
def test_bytes(data: bytes, size: int) -> None:
    feed(data, size)


@settings(max_examples=400)
@given(st.sampled_from(sorted(APIS)), st.integers(-1, 17), bodies, st.integers(1, 500))
def test_whole_frames_with_any_body(key: int, version: int, body: bytes, size: int) -> None:
    content = struct.pack(">hhih", key, version, 7, -1) + body
    feed(struct.pack(">i", len(content)) + content, size)


@settings(max_examples=400)
@given(st.lists(st.sampled_from(VALID), min_size=1, max_size=4), st.data())
def test_requests_with_bytes_changed(requests: list[bytes], data: Any) -> None:
    stream = bytearray(b"".join(requests))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    feed(bytes(stream), data.draw(st.integers(1, len(stream))))


@given(st.lists(st.sampled_from(VALID), min_size=1, max_size=8), st.integers(1, 300))
def test_requests_are_answered_alike_however_they_are_cut(requests: list[bytes], size: int) -> None:
    stream = b"".join(requests)

    def answers(step: int) -> bytes:
        kernel = hub()
        peer = Peer(kernel)
        for at in range(0, len(stream), step):
            peer.session.handle_data(stream[at:at + step])
        for _ in range(2 * len(requests)):
            kernel.flush()
            kernel.pass_time(60_000)
            peer.now_ms += 60_000
            peer.session.handle_timer(peer.now_ms)
        assert len(peer.session._waiting) == 0
        return peer.link.take()

    assert answers(size) == answers(len(stream))
