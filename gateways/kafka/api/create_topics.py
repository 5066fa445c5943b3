"""CreateTopics 0 to 7: topics with their partitions and the settings that this hub honours; answered when durable."""
from __future__ import annotations

import uuid
from collections import Counter
from typing import Any, Final

from kafka.protocol.admin import CreateTopicsRequest, CreateTopicsResponse

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.api.metadata import NODE_ID
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    NONE,
)
from gatehouse.gateways.kafka.mapping import Refused, code_of, settings_of
from gatehouse.gateways.kafka.request import Api, Request
from gatehouse.kernel.addresses.address import is_topic_name
from gatehouse.kernel.errors import InvalidTopic, KernelError, TopicExists
from gatehouse.kernel.message import Stored
from gatehouse.kernel.state.topics import Topic

DEFAULT: Final = -1              # as many partitions, or replicas, as the hub gives by itself
REPLICAS: Final = 1              # every partition lives on this one node


class Creation:
    """One request until every topic of it is durable."""

    __slots__ = ("request", "validate_only", "rows", "pending")

    def __init__(self, request: Request, validate_only: bool) -> None:
        self.request = request
        self.validate_only = validate_only
        self.rows: list[Row] = []
        self.pending = 1         # topics without an answer; one more while the request is gone through

    def create(self, asked: Any, twice: bool) -> None:
        row = Row(name=asked.name, topic_id=None, error_code=NONE, error_message=None, topic_config_error_code=NONE,
                  num_partitions=-1, replication_factor=-1, configs=None)
        self.rows.append(row)
        try:
            if twice:
                raise Refused(INVALID_REQUEST, "the request names this topic twice")
            topic = self.try_create(asked, NewTopic(self, row))
        except Refused as refusal:
            row.error_code, row.error_message = refusal.code, str(refusal)
        except (KernelError, Denied) as refusal:
            row.error_code, row.error_message = code_of(refusal), str(refusal)
        else:
            row.configs, row.replication_factor = [], REPLICAS
            if topic is not None:
                row.topic_id, row.num_partitions = uuid.UUID(bytes=topic.uuid), topic.partitions
                self.pending += 1

    def try_create(self, asked: Any, token: NewTopic) -> Topic | None:
        """Raises what is wrong with it. None where it would be created, and was only to be checked."""
        session = self.request.session
        if not is_topic_name(asked.name):
            raise InvalidTopic(f"{asked.name[:300]!r} is no legal topic name")
        session.admission.require_topic(session.principal, Operation.CREATE, asked.name)
        partitions = partitions_of(asked, session.config.max_partitions)
        settings = settings_of(asked.configs)
        tenant = session.principal.tenant
        if self.validate_only:
            settings.check()
            if session.kernel.topic(asked.name, tenant) is not None:
                raise TopicExists(f"topic {asked.name!r} exists already")
            return None
        return session.guard.create_topic(asked.name, partitions, settings, session, token)

    def settle(self) -> None:
        self.pending -= 1
        if not self.pending:
            self.request.answer(CreateTopicsResponse, throttle_time_ms=0, topics=self.rows)


class NewTopic:
    """Waits for one topic."""

    __slots__ = ("creation", "row")

    def __init__(self, creation: Creation, row: Row) -> None:
        self.creation = creation
        self.row = row

    def on_stored(self, stored: Stored) -> None:
        if stored.error is not None:
            self.row.error_code, self.row.error_message = code_of(stored.error), str(stored.error)
        else:
            session = self.creation.request.session
            session.audit("topic.created", {"topic": self.row.name, "partitions": self.row.num_partitions})
        self.creation.settle()


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


def dispatch(request: Request) -> None:
    asked = request.decode(CreateTopicsRequest)
    names = Counter(topic.name for topic in asked.topics)
    creation = Creation(request, asked.validate_only)
    for topic in asked.topics:
        creation.create(topic, names[topic.name] > 1)
    creation.settle()


CREATE_TOPICS = Api(key=19, name="CreateTopics", first_version=0, last_version=7, first_flexible=5, dispatch=dispatch)
