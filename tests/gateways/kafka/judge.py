"""The judge: messages as kafka-python's generated classes encode and decode them."""
from __future__ import annotations

import uuid
from typing import Any

from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.producer import ProduceRequest

CLIENT_ID = "judge"


def framed(message: Any, correlation_id: int) -> bytes:
    """A request or an answer as it stands on the wire."""
    if message.is_request():
        message.with_header(correlation_id, CLIENT_ID)
    else:
        message.with_header(correlation_id)
    return bytes(message.encode(header=True, framed=True))


def decoded(kind: Any, version: int, frame: bytes, correlation_id: int | None = None) -> Any:
    """An answer from a frame without its size; checks that nothing is left over, by encoding it again."""
    message = kind.decode(frame, version=version, header=True)
    again = kind.decode(frame, version=version, header=True)
    if kind.__name__ != "ApiVersionsResponse":
        assert bytes(again.encode(header=True)) == frame
    if correlation_id is not None:
        assert message.header.correlation_id == correlation_id
    return message


def produce(version: int, batches: dict[tuple[str, int], bytes | None], acks: int = -1,
            transactional_id: str | None = None) -> Any:
    topic = ProduceRequest.TopicProduceData
    part = topic.PartitionProduceData
    topics: dict[str, list[Any]] = {}
    for (name, index), batch in batches.items():
        topics.setdefault(name, []).append(part(version=version, index=index, records=batch))
    return ProduceRequest(version=version, transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[
        topic(version=version, name=name, topic_id=id_of(name), partition_data=parts)
        for name, parts in topics.items()])


def id_of(name: str) -> uuid.UUID:
    """The id of a topic in `fakes`."""
    return uuid.uuid5(uuid.NAMESPACE_OID, name)


def fetch(version: int, wants: dict[tuple[Any, int], int], *, epoch: int = -1, max_wait_ms: int = 0, min_bytes: int = 1,
          max_bytes: int = 1 << 20, most: int = 1 << 20, **fields: Any) -> Any:
    """`wants` is offset by (topic name, or topic id from version 13 on, and partition)."""
    topic = FetchRequest.FetchTopic
    part = topic.FetchPartition
    leader_epoch = {"current_leader_epoch": epoch} if version >= 9 else {}
    topics: dict[Any, list[Any]] = {}
    for (name, index), offset in wants.items():
        topics.setdefault(name, []).append(part(version=version, partition=index, fetch_offset=offset,
                                                partition_max_bytes=most, **leader_epoch))
    key = "topic_id" if version >= 13 else "topic"
    return FetchRequest(version=version, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=[
        topic(version=version, partitions=parts, **{key: name}) for name, parts in topics.items()], **fields)


def list_offsets(version: int, wants: dict[tuple[str, int], int], epoch: int = -1) -> Any:
    """`wants` is timestamp by (topic, partition)."""
    topic = ListOffsetsRequest.ListOffsetsTopic
    part = topic.ListOffsetsPartition
    leader_epoch = {"current_leader_epoch": epoch} if version >= 4 else {}
    topics: dict[str, list[Any]] = {}
    for (name, index), timestamp in wants.items():
        topics.setdefault(name, []).append(part(version=version, partition_index=index, timestamp=timestamp,
                                                **leader_epoch))
    return ListOffsetsRequest(version=version, replica_id=-1, topics=[
        topic(version=version, name=name, partitions=parts) for name, parts in topics.items()])
