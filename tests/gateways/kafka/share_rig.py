"""A hub with share groups, and clients that speak of them by the door's own schemas."""
from __future__ import annotations

import struct
import uuid
from io import BytesIO
from types import SimpleNamespace as Row
from typing import Any

from kafka.record import MemoryRecords

from gatehouse.gateways.kafka import GATEWAY
from gatehouse.gateways.kafka.api import APIS, share_fetch, share_groups
from gatehouse.gateways.kit import FakeHub
from gatehouse.kernel.message import Message
from gatehouse.kernel.records.batch import encode_headers

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"
RESPONSES = {76: share_groups.SHARE_GROUP_HEARTBEAT_RESPONSE, 77: share_groups.SHARE_GROUP_DESCRIBE_RESPONSE,
             78: share_fetch.SHARE_FETCH_RESPONSE, 79: share_fetch.SHARE_ACKNOWLEDGE_RESPONSE,
             90: share_groups.DESCRIBE_OFFSETS_RESPONSE, 91: share_groups.ALTER_OFFSETS_RESPONSE,
             92: share_groups.DELETE_OFFSETS_RESPONSE}


class Rig:
    """A hub with a topic of two partitions, and clients of it."""

    def __init__(self, decision: Any = None, **config: Any) -> None:
        self.hub = FakeHub(decision=decision)
        self.config = GATEWAY.config(**config)
        self.topic = self.hub.kernel.create_topic("jobs", partitions=2)
        self.hub.kernel.flush()

    def connect(self) -> Client:
        return Client(self)

    def publish(self, count: int, partition: int = 0, topic: str = "jobs", headers: Any = (), body: bytes = b""
                ) -> None:
        """So many messages into one partition."""
        found = self.hub.kernel.topic(topic)
        assert found is not None
        for at in range(count):
            placement = self.hub.kernel.place_in(topic, b"k", partition=partition)
            message: Message = (placement, body or b"v%d" % at, encode_headers(list(headers)), 0, 0)
            self.hub.kernel.append([message], None)
        self.hub.kernel.flush()


class Client:
    """One connection; requests and answers by their schemas."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.session, self.link = rig.hub.open(GATEWAY, rig.config)
        self.correlation = 0
        self.epoch = 0

    def send(self, key: int, version: int | None = None, **fields: Any) -> None:
        api = APIS[key]
        version = api.last_version if version is None else version
        self.correlation += 1
        body = api.message(version=version, **fields).encode(version)
        head = struct.pack(">hhih", key, version, self.correlation, 1) + b"c" + b"\0"
        self.session.handle_data(struct.pack(">i", len(head) + len(body)) + head + body)

    def answers(self, key: int, version: int | None = None) -> list[Any]:
        """What has come since, each an answer to such a request."""
        written, rows = self.link.take(), []
        while written:
            size, = struct.unpack_from(">i", written)
            frame, written = written[4:4 + size], written[4 + size:]
            data = BytesIO(frame[5:])
            struct_of = RESPONSES[key]._struct
            rows.append(struct_of.decode(data, version=APIS[key].last_version if version is None else version,
                                         compact=True, tagged=True, data_class=lambda version, **fields: fields))
            assert not data.read()
        return rows

    def ask(self, key: int, version: int | None = None, wait_ms: int = 0, **fields: Any) -> Any:
        """The answer, which may take a while, and the disk."""
        self.send(key, version, **fields)
        rows = self.answers(key, version)
        for _ in range(6):
            if rows:
                break
            self.rig.hub.kernel.flush()
            self.rig.hub.advance(1 + wait_ms // 4)
            rows = self.answers(key, version)
        assert len(rows) == 1, "one answer"
        return rows[0]

    def beat(self, epoch: int = 0, topics: list[str] | None = None, member: str = MEMBER, group: str = "g",
             rack: str | None = None) -> Any:
        return self.ask(76, group_id=group, member_id=member, member_epoch=epoch, rack_id=rack,
                        subscribed_topic_names=topics)

    def fetching(self, acks: dict[int, list[tuple[int, int, list[int]]]] | None = None, *, epoch: int | None = None,
                 most: int = 500, max_wait_ms: int = 0, group: str = "g", member: str = MEMBER, renews: bool = False,
                 partitions: tuple[int, ...] = (0, 1), topic: bytes | None = None,
                 forgotten: list[int] | None = None, min_bytes: int = 1, max_bytes: int = 1 << 20) -> dict[str, Any]:
        """The fields of a fetch; `acks` are (first, last, types) by partition."""
        if epoch is None:
            epoch, self.epoch = self.epoch, self.epoch + 1
        topic_id = uuid.UUID(bytes=topic or self.rig.topic.uuid)
        return {"group_id": group, "member_id": member, "share_session_epoch": epoch, "max_wait_ms": max_wait_ms,
                "min_bytes": min_bytes, "max_bytes": max_bytes, "max_records": most, "batch_size": most,
                "share_acquire_mode": 0, "is_renew_ack": renews, "topics": [Row(topic_id=topic_id, partitions=[
                    Row(partition_index=number, acknowledgement_batches=batches_of((acks or {}).get(number, [])))
                    for number in partitions])],
                "forgotten_topics_data": [] if forgotten is None else [Row(topic_id=topic_id, partitions=forgotten)]}

    def fetch(self, acks: Any = None, **options: Any) -> Any:
        return self.ask(78, wait_ms=options.get("max_wait_ms", 0) + 1000, **self.fetching(acks, **options))

    def acknowledge(self, acks: dict[int, list[tuple[int, int, list[int]]]], *, epoch: int | None = None,
                    renews: bool = False, group: str = "g") -> Any:
        fields = self.fetching(acks, epoch=epoch, renews=renews, group=group, partitions=tuple(acks))
        return self.ask(79, **{name: fields[name] for name in (
            "group_id", "member_id", "share_session_epoch", "is_renew_ack", "topics")})


def batches_of(acks: list[tuple[int, int, list[int]]]) -> list[Row]:
    return [Row(first_offset=first, last_offset=last, acknowledge_types=types) for first, last, types in acks]


def rows_of(answer: Any) -> dict[int, Any]:
    """The partitions of an answer about one topic."""
    assert answer["error_code"] == 0, answer["error_message"]
    return {row["partition_index"]: row for topic in answer["responses"] for row in topic["partitions"]}


def values_of(row: Any) -> list[bytes]:
    return [record.value for record in records_in(row)]


def records_in(row: Any) -> list[Any]:
    """By kafka-python's reader."""
    batches = MemoryRecords(row["records"])
    records = []
    while (batch := batches.next_batch()) is not None:
        assert batch.validate_crc()
        records += batch
    assert [record.offset for record in records] == [offset for first, last, _ in acquired(row)
                                                     for offset in range(first, last + 1)]
    return records


def acquired(row: Any) -> list[tuple[int, int, int]]:
    return [(each["first_offset"], each["last_offset"], each["delivery_count"]) for each in row["acquired_records"]]


def joined(rig: Rig, topics: tuple[str, ...] = ("jobs",)) -> Client:
    client = rig.connect()
    assert client.beat(0, list(topics))["error_code"] == 0
    return client
