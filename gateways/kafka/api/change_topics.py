"""DeleteTopics 0 to 6, CreatePartitions 0 to 3, DeleteRecords 0 to 2: topics that are there are changed.

Each takes the right to alter the topic, and is answered when it is durable. Deleting topics and adding partitions has
a pace: `pacing.py`.
"""
from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.api.metadata import NO_UUID, NODE_ID
from gatehouse.gateways.kafka.api.pacing import Pace
from gatehouse.gateways.kafka.api.parts import REFUSALS, AskedPart, AskedParts, refuse
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REQUEST,
    NONE,
    OFFSET_OUT_OF_RANGE,
    POLICY_VIOLATION,
    UNKNOWN_TOPIC_ID,
)
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.gateways.kafka.remembered import RememberedConfigs
from gatehouse.gateways.kafka.request import Api, Request
from gatehouse.gateways.kafka.topics import find_topic
from gatehouse.kernel.errors import UnknownTopic

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession
    from gatehouse.kernel.state.topics import Topic

BY_ID: Final = 6                 # the first version of DeleteTopics that may name a topic by its id
DELETION_THROTTLED: Final = 5    # clients know THROTTLING_QUOTA_EXCEEDED from these versions on
ADDITION_THROTTLED: Final = 3
END: Final = -1                  # DeleteRecords: everything that is there

def delete_topics(request: Request) -> Iterator[None]:
    asked, session = request.decode(DeleteTopicsRequest), request.session
    wanted = [(topic.name, topic.topic_id) for topic in asked.topics] if request.version >= BY_ID \
        else [(name, NO_UUID) for name in asked.topic_names]
    times = Counter(wanted)
    rows: list[Row] = []
    pace = Pace(request, DELETION_THROTTLED)
    parts = AskedParts(lambda: request.answer(DeleteTopicsResponse, throttle_time_ms=pace.wait_ms, responses=rows))
    for name, topic_id in times:
        row = Row(name=name, topic_id=topic_id, error_code=NONE, error_message=None)
        rows.append(row)
        if times[name, topic_id] > 1 or (name is None) == (topic_id == NO_UUID):
            refuse(row, Refused(INVALID_REQUEST, "a topic is named once, by its name or by its id"))
        else:
            parts.begin(row, partial(delete_topic, session, pace, row))
        yield
    parts.settle()


def delete_topic(session: KafkaSession, pace: Pace, row: Row, part: AskedPart) -> None:
    """Raises Denied, UnknownTopic, Refused, Stopping."""
    if row.name is None:
        try:
            topic = session.guard.topic_by_uuid(row.topic_id.bytes, Operation.ALTER)
        except UnknownTopic:
            raise Refused(UNKNOWN_TOPIC_ID, "This server does not host this topic ID.") from None
        if session.guard.sees_topic(topic.name):
            row.name = topic.name
    else:
        topic = find_topic(session, row.name, Operation.ALTER)
        row.topic_id = uuid.UUID(bytes=topic.uuid)
    pace.change()
    session.guard.delete_topic(topic.name, session, part)
    RememberedConfigs.of(session.services).forget(topic)
    part.done = lambda: session.audit("topic.deleted", {"topic": topic.name})

def create_partitions(request: Request) -> Iterator[None]:
    asked, session = request.decode(CreatePartitionsRequest), request.session
    names = Counter(topic.name for topic in asked.topics)
    rows: list[Row] = []
    pace = Pace(request, ADDITION_THROTTLED)
    parts = AskedParts(lambda: request.answer(CreatePartitionsResponse, throttle_time_ms=pace.wait_ms, results=rows))
    for topic in asked.topics:
        row = Row(name=topic.name, error_code=NONE, error_message=None)
        rows.append(row)
        if names[topic.name] > 1:
            refuse(row, Refused(INVALID_REQUEST, "the request names this topic twice"))
        elif asked.validate_only:
            try:
                check_count(session, topic)
            except REFUSALS as refusal:
                refuse(row, refusal)
        else:
            parts.begin(row, partial(add_partitions, session, pace, topic), partial(
                session.audit, "topic.changed", {"topic": topic.name, "partitions": topic.count}))
        yield
    parts.settle()


def add_partitions(session: KafkaSession, pace: Pace, asked: Any, part: AskedPart) -> None:
    """Raises what is wrong with it."""
    check_count(session, asked)
    pace.change()
    session.guard.change_topic(asked.name, asked.count, None, session, part)


def check_count(session: KafkaSession, asked: Any) -> None:
    """Raises Denied, UnknownTopic, Refused."""
    now = find_topic(session, asked.name, Operation.ALTER).partitions
    if asked.count <= now:
        raise Refused(INVALID_PARTITIONS, f"The topic {asked.name} currently has {now} partition(s); {asked.count} "
                                          "would not be an increase.")
    if asked.count > session.config.max_partitions:
        raise Refused(INVALID_PARTITIONS, f"a topic has at most {session.config.max_partitions} partitions here")
    if asked.assignments is not None and (
            len(asked.assignments) != asked.count - now
            or any(assignment.broker_ids != [NODE_ID] for assignment in asked.assignments)):
        raise Refused(INVALID_REPLICA_ASSIGNMENT, f"each new partition lives on node {NODE_ID} alone")

class RecordDeletion:
    """One request: rows, and what is deleted of them in one go."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.guard = request.session.guard                   # that is asked for its topics: see `Produce`
        self.topics: list[Row] = []
        self.before: dict[int, int] = {}
        self.deleted: list[tuple[Row, int]] = []             # and the partition's id

    def add(self, asked: Any) -> Iterator[None]:
        """A topic's partitions; what is wrong with one of them stands in its row."""
        rows = [Row(partition_index=partition.partition_index, low_watermark=-1, error_code=NONE)
                for partition in asked.partitions]
        self.topics.append(Row(name=asked.name, partitions=rows))
        yield
        for row, partition in zip(rows, asked.partitions, strict=True):
            try:
                self.add_one(find_topic(self.request.session, asked.name, Operation.ALTER), row, partition.offset)
            except REFUSALS as refusal:
                refuse(row, refusal)
            yield

    def add_one(self, topic: Topic, row: Row, offset: int) -> None:
        """Raises Refused, UnknownPartition, Denied."""
        partition_id = topic.partition_id(row.partition_index)
        if topic.settings.compact:
            raise Refused(POLICY_VIOLATION, "records of a compacted topic are deleted by their keys")
        _, end = self.request.session.guard.bounds(partition_id)
        if not END <= offset <= end:
            raise Refused(OFFSET_OUT_OF_RANGE, f"the partition ends at {end}")
        self.before[partition_id] = max(self.before.get(partition_id, 0), end if offset == END else offset)
        self.deleted.append((row, partition_id))

    def begin(self, part: AskedPart) -> None:
        """Delete all records that were asked for, at once. Raises Denied, Stopping."""
        self.request.session.guard.delete_records(self.before, self.request.session, part)

    def end(self, outcome: Row) -> None:
        """The deletion is durable, or was refused."""
        for row, partition_id in self.deleted:
            row.error_code = outcome.error_code
            if outcome.error_code == NONE:
                row.low_watermark = self.guard.bounds(partition_id)[0]
        self.request.answer(DeleteRecordsResponse, throttle_time_ms=0, topics=self.topics)


def delete_records(request: Request) -> Iterator[None]:
    deletion = RecordDeletion(request)
    for topic in request.decode(DeleteRecordsRequest).topics:
        yield from deletion.add(topic)
    outcome = Row(error_code=NONE, error_message=None)
    parts = AskedParts(lambda: deletion.end(outcome))
    if deletion.before:
        names = [topic.name for topic in deletion.topics]
        parts.begin(outcome, deletion.begin,
                 lambda: request.session.audit("topic.records_deleted", {"topics": names}))
    parts.settle()


# Kafka 4 has no version 0 any more; kafka-go's `Conn.DeleteTopics` sends no other.
DELETE_TOPICS = Api(key=20, name="DeleteTopics", first_version=0, last_version=6, first_flexible=4,
                    dispatch=delete_topics, message=DeleteTopicsRequest)
DELETE_RECORDS = Api(key=21, name="DeleteRecords", first_version=0, last_version=2, first_flexible=2,
                     dispatch=delete_records, message=DeleteRecordsRequest)
CREATE_PARTITIONS = Api(key=37, name="CreatePartitions", first_version=0, last_version=3, first_flexible=2,
                        dispatch=create_partitions, message=CreatePartitionsRequest)
