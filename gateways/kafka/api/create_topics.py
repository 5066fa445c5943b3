"""CreateTopics 0 to 7: topics are made, and answered when they are durable. Making topics has a pace: `pacing.py`."""
from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
)

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.api.configs import DEFAULT_SOURCE, TOPIC_SOURCE
from gatehouse.gateways.kafka.api.metadata import NODE_ID
from gatehouse.gateways.kafka.api.pacing import Pace
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
)
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.gateways.kafka.remembered import RememberedConfigs
from gatehouse.gateways.kafka.request import Api, Request
from gatehouse.kernel.addresses.address import is_topic_name
from gatehouse.kernel.errors import InvalidTopic, TopicExists

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession


DEFAULT: Final = -1              # as many partitions, or replicas, as the hub gives by itself
REPLICAS: Final = 1              # every partition lives on this one node
FIRST_THROTTLED: Final = 6       # clients know THROTTLING_QUOTA_EXCEEDED from this version on


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


def create(session: KafkaSession, asked: Any, row: Row, part: AskedPart) -> None:
    """Make a topic. Raises what is wrong with it."""
    if not is_topic_name(asked.name):
        raise InvalidTopic(f"{asked.name[:300]!r} is no legal topic name")
    session.admission.require_topic(session.principal, Operation.CREATE, asked.name)
    partitions = partitions_of(asked, session.config.max_partitions)
    configs = read_configs(asked.configs)
    settings = settings_of(configs, session.kernel.settings)
    settings.check()
    remembered = RememberedConfigs.of(session.services)
    topic = session.guard.create_topic(asked.name, partitions, settings, session, part)
    remembered.put(topic, configs, session, part)
    row.topic_id = uuid.UUID(bytes=topic.uuid)
    describe(session, row, topic.partitions, configs_of(settings, configs))


def validate(session: KafkaSession, asked: Any, row: Row) -> None:
    """Say how a topic would be made. Raises what is wrong with it."""
    if not is_topic_name(asked.name):
        raise InvalidTopic(f"{asked.name[:300]!r} is no legal topic name")
    session.admission.require_topic(session.principal, Operation.CREATE, asked.name)
    partitions = partitions_of(asked, session.config.max_partitions)
    configs = read_configs(asked.configs)
    settings = settings_of(configs, session.kernel.settings)
    settings.check()
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


def dispatch(request: Request) -> Iterator[None]:
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


CREATE_TOPICS = Api(key=19, name="CreateTopics", first_version=0, last_version=7, first_flexible=5, dispatch=dispatch,
                    message=CreateTopicsRequest)
