"""CreateTopics 0 to 7, DeleteTopics 0 to 6, CreatePartitions 0 to 3, DeleteRecords 0 to 2: topics are made and changed,
and that is answered when it is durable. To change one takes the right to alter it.

Making and deleting topics and adding partitions has a pace: a user who does it faster than he may is told by
THROTTLING_QUOTA_EXCEEDED and `throttle_time_ms` when he may again, as by Kafka's quota of controller mutations
(KIP-599); clients try again by themselves then. Those who do not know this answer are refused with POLICY_VIOLATION.
"""
from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.api.configs import DEFAULT_SOURCE, TOPIC_SOURCE
from gatehouse.gateways.kafka.api.metadata import NO_UUID, NODE_ID
from gatehouse.gateways.kafka.api.parts import REFUSALS, AskedPart, AskedParts, refuse
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.configs import TOPIC_CONFIGS, checked, configs_of, default_of, settings_of
from gatehouse.gateways.kafka.error_codes import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    NONE,
    OFFSET_OUT_OF_RANGE,
    POLICY_VIOLATION,
    THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_TOPIC_ID,
)
from gatehouse.gateways.kafka.kept_configs import RememberedConfigs
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.gateways.kafka.request import Api, Request, find_topic
from gatehouse.kernel.addresses.address import is_topic_name
from gatehouse.kernel.errors import InvalidTopic, TooManyTopics, TopicExists, UnknownTopic

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession
    from gatehouse.kernel.state.topics import Topic, TopicSettings


DEFAULT: Final = -1              # as many partitions, or replicas, as the hub gives by itself
REPLICAS: Final = 1              # every partition lives on this one node
FIRST_THROTTLED: Final = 6       # clients know THROTTLING_QUOTA_EXCEEDED from this version on


class Pace:
    """How fast the parts of one request may change topics. Clients know the answer that says so from `first_version`
    on."""

    def __init__(self, request: Request, first_version: int) -> None:
        self.wait_ms = 0
        """How long its client is to wait with the next."""

        self._guard = request.session.guard
        self._is_known = request.version >= first_version

    @contextmanager
    def told(self) -> Iterator[None]:
        """What is raised for want of time, as this client is told it."""
        try:
            yield
        except TooManyTopics as refusal:
            if not refusal.wait_ms or not self._is_known:
                raise
            self.wait_ms = max(self.wait_ms, refusal.wait_ms)
            raise Refused(THROTTLING_QUOTA_EXCEEDED, str(refusal)) from None

    def change(self) -> None:
        """One topic is to be changed. Raises Refused, TooManyTopics."""
        with self.told():
            self._guard.topics.pace()


class Creation:
    """One request: its rows, and how fast its client may go on."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.rows: list[Row] = []
        self.pace = Pace(request, FIRST_THROTTLED)

    def create(self, asked: Any, row: Row, part: AskedPart) -> None:
        """Make a topic. Raises what is wrong with it."""
        with self.pace.told():
            create(self.request.session, asked, row, part)

    def answer(self) -> None:
        """What was refused, now or by the disk, has nothing to show."""
        for row in self.rows:
            if row.error_code != NONE:
                row.topic_id, row.num_partitions, row.replication_factor, row.configs = None, -1, -1, None
        self.request.answer(CreateTopicsResponse, throttle_time_ms=self.pace.wait_ms, topics=self.rows)


def _wanted(session: KafkaSession, asked: Any) -> tuple[int | None, dict[str, str], TopicSettings]:
    """How a topic is to be made: partitions, configs, and the settings that they mean. Raises what is wrong with it."""
    if not is_topic_name(asked.name):
        raise InvalidTopic(f"{asked.name[:300]!r} is no legal topic name")
    session.admission.require_topic(session.principal, Operation.CREATE, asked.name)
    partitions = partitions_of(asked, session.config.max_partitions)
    configs = read_configs(asked.configs)
    settings = settings_of(configs, session.kernel.settings)
    settings.check()
    return partitions, configs, settings


def create(session: KafkaSession, asked: Any, row: Row, part: AskedPart) -> None:
    """Make a topic. Raises what is wrong with it."""
    partitions, configs, settings = _wanted(session, asked)
    remembered = RememberedConfigs.of(session.services)
    topic = session.guard.topics.create(asked.name, partitions, settings, session, part)
    remembered.put(topic, configs, session, part)
    row.topic_id = uuid.UUID(bytes=topic.uuid)
    describe(session, row, topic.partitions, configs_of(settings, configs))


def validate(session: KafkaSession, asked: Any, row: Row) -> None:
    """Say how a topic would be made. Raises what is wrong with it."""
    partitions, configs, settings = _wanted(session, asked)
    if session.kernel.topic(asked.name, session.principal.tenant) is not None:
        raise TopicExists(f"Topic '{asked.name}' already exists.")
    describe(session, row, partitions or session.kernel.settings.default_partitions, configs_of(settings, configs))


def describe(session: KafkaSession, row: Row, partitions: int, configs: dict[str, str]) -> None:
    """How a topic is made, as far as that can be told before it is durable."""
    hub = session.kernel.settings
    row.num_partitions, row.replication_factor = partitions, REPLICAS
    row.configs = [Row(name=name, value=configs.get(name, default_of(name, hub)), read_only=False, is_sensitive=False,
                       config_source=TOPIC_SOURCE if name in configs else DEFAULT_SOURCE) for name in TOPIC_CONFIGS]


def read_configs(asked: list[Any]) -> dict[str, str]:
    """Raises Refused (INVALID_CONFIG)."""
    configs: dict[str, str] = {}
    for config in asked:
        if config.name in configs:
            raise Refused(INVALID_CONFIG, f"{config.name[:100]} is named twice")
        configs[config.name] = checked(config.name, config.value)
    return configs


def partitions_of(asked: Any, max_partitions: int) -> int | None:
    """How many partitions are wanted; None: the hub's default. Raises Refused."""
    count: int = asked.num_partitions
    if asked.assignments:
        if count != DEFAULT or asked.replication_factor != DEFAULT:
            raise Refused(INVALID_REQUEST, "with an assignment, partitions and replication factor must be -1")
        if (sorted(assignment.partition_index for assignment in asked.assignments)
                != list(range(len(asked.assignments)))
                or any(assignment.broker_ids != [NODE_ID] for assignment in asked.assignments)):
            raise Refused(INVALID_REPLICA_ASSIGNMENT, f"partitions count from 0 and live on node {NODE_ID} alone")
        count = len(asked.assignments)
    elif asked.replication_factor not in (DEFAULT, REPLICAS):
        raise Refused(INVALID_REPLICATION_FACTOR, f"there is one node: the replication factor is {REPLICAS}")
    if count != DEFAULT and not 1 <= count <= max_partitions:
        raise Refused(INVALID_PARTITIONS, f"a topic has 1 to {max_partitions} partitions here")
    return None if count == DEFAULT else count


def create_topics(request: Request) -> Iterator[None]:
    asked = request.decode(CreateTopicsRequest)
    session = request.session
    names = Counter(topic.name for topic in asked.topics)
    creation = Creation(request)
    parts = AskedParts(creation.answer)
    for topic in asked.topics:
        yield
        row = Row(name=topic.name, topic_id=None, error_code=NONE, error_message=None, topic_config_error_code=NONE,
                  num_partitions=-1, replication_factor=-1, configs=None)
        creation.rows.append(row)
        if names[topic.name] > 1:
            refuse(row, Refused(INVALID_REQUEST, "the request names this topic twice"))
        elif asked.validate_only:
            try:
                validate(session, topic, row)
            except REFUSALS as refusal:
                refuse(row, refusal)
        else:
            parts.begin(row, partial(creation.create, topic, row), partial(note, session, row))
    parts.settle()


def note(session: KafkaSession, row: Row) -> None:
    """For the audit topic."""
    session.audit("topic.created", {"topic": row.name, "partitions": row.num_partitions})


CREATE_TOPICS = Api(key=19, name="CreateTopics", first_version=0, last_version=7, first_flexible=5,
                    dispatch=create_topics, message=CreateTopicsRequest)


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
    session.guard.topics.delete(topic.name, session, part)
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
    session.guard.topics.change(asked.name, asked.count, None, session, part)


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
        self.request.session.guard.topics.delete_records(self.before, self.request.session, part)

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
