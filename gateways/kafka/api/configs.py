"""DescribeConfigs 1 to 4, AlterConfigs 0 to 2, IncrementalAlterConfigs 0 to 1, ListConfigResources 0 to 1.

Topics and groups have settings that clients change; the one broker has those of the hub's configuration file, which
are shown and not changed here (`gateways/kafka/configs.py` has all three). `KINDS` says who answers for which kind of
resource.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.protocol.admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.api.membership import require_group
from gatehouse.gateways.kafka.api.metadata import NODE_ID
from gatehouse.gateways.kafka.api.parts import REFUSALS, AskedPart, AskedParts, refuse
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.configs import (
    INT,
    LIST,
    STRING,
    TOPIC_CONFIGS,
    broker_configs,
    checked,
    configs_of,
    default_of,
    settings_of,
)
from gatehouse.gateways.kafka.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_CONFIG,
    INVALID_REQUEST,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
)
from gatehouse.gateways.kafka.kept_configs import (
    GROUP_CONFIGS,
    GroupConfigs,
    RememberedConfigs,
    checked_of_group,
    default_of_group,
)
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.gateways.kafka.request import Api, Request, find_topic
from gatehouse.kernel.errors import UnknownTopic
from gatehouse.kernel.groups.group_settings import check_name

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession

TOPIC: Final = 2
BROKER: Final = 4
GROUP: Final = 32
TOPIC_SOURCE: Final = 1          # set for this topic
BROKER_SOURCE: Final = 4         # the configuration file
DEFAULT_SOURCE: Final = 5
GROUP_SOURCE: Final = 8          # set for this group
FIRST_WITH_KINDS: Final = 1      # ListConfigResources: version 0 asks for client metrics alone, of which there are none

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3

Changes = Callable[[dict[str, str]], dict[str, str]]
"""What is set after a change, of what was set before. Raises Refused."""


Check = Callable[[str, "str | None"], str]


class ConfigKind(NamedTuple):
    """A kind of resource that has settings."""

    describe: Callable[[KafkaSession, str], list[Row]]
    """Rows of all settings. Raises REFUSALS."""

    alter: Callable[[KafkaSession, Any, Changes, bool, AskedPart], None]
    """Change settings as a part of the request asks, or only validate that; ends the part. Raises REFUSALS."""

    names: Callable[[KafkaSession], list[str]]

    checked: Check = checked
    """A setting's value as it is kept. Raises Refused (INVALID_CONFIG)."""


# ---- topics

def describe_topic(session: KafkaSession, name: str) -> list[Row]:
    if not session.guard.sees_topic(name):
        raise Refused(TOPIC_AUTHORIZATION_FAILED, f"{session.principal.name} may not see the topic")
    topic = session.kernel.topic(name, session.principal.tenant)
    if topic is None:
        raise UnknownTopic("This server does not host this topic-partition.")
    configs = configs_of(topic.settings, RememberedConfigs.of(session.services).get(topic))
    return [_topic_row(session, name, configs) for name in TOPIC_CONFIGS]


def _topic_row(session: KafkaSession, name: str, configs: Mapping[str, str]) -> Row:
    config, default = TOPIC_CONFIGS[name], default_of(name, session.kernel.settings)
    is_set = name in configs
    value = configs.get(name, default)
    synonyms = [Row(name=config.server_name or name, value=default, source=DEFAULT_SOURCE)]
    if is_set:
        synonyms.insert(0, Row(name=name, value=value, source=TOPIC_SOURCE))
    return Row(name=name, value=value, read_only=False, is_sensitive=False, synonyms=synonyms,
               config_source=TOPIC_SOURCE if is_set else DEFAULT_SOURCE, config_type=config.type,
               documentation=config.about)


def alter_topic(session: KafkaSession, asked: Any, changes: Changes, validate_only: bool, part: AskedPart) -> None:
    name = asked.resource_name
    topic = find_topic(session, name, Operation.ALTER)
    remembered = RememberedConfigs.of(session.services)
    configs = changes(configs_of(topic.settings, remembered.latest(topic)))
    settings = settings_of(configs, session.kernel.settings, topic.settings)
    settings.check()
    if validate_only:
        part.end()
        return
    session.guard.topics.change(name, None, settings, session, part)
    remembered.put(topic, configs, session, part)
    part.done = partial(session.audit, "topic.changed", {"topic": name, "configs": configs})


def topic_names(session: KafkaSession) -> list[str]:
    return [topic.name for topic in session.guard.topics.all()]


# ---- the broker

def describe_broker(session: KafkaSession, name: str) -> list[Row]:
    if not session.admission.may_hub(session.principal, Operation.ADMINISTER):
        raise Refused(CLUSTER_AUTHORIZATION_FAILED, f"{session.principal.name} may not administer this hub")
    if not name:
        return []                # what is set for all brokers at once: nothing
    if name != str(NODE_ID):
        raise Refused(INVALID_REQUEST, f"Unexpected broker id, expected {NODE_ID} or empty string, but received {name}")
    return [Row(name=config, value=value, read_only=True, is_sensitive=False, config_source=BROKER_SOURCE,
                config_type=type, documentation=about,
                synonyms=[Row(name=config, value=value, source=BROKER_SOURCE)])
            for config, type, value, about in broker_configs(session.kernel.settings, session.config)]


def alter_broker(session: KafkaSession, asked: Any, changes: Changes, validate_only: bool, part: AskedPart) -> None:
    """Nothing is ever set for the broker by clients: so what takes settings back is done, as tools ask that clean up
    behind a reassignment."""
    if not session.admission.may_hub(session.principal, Operation.ADMINISTER):
        raise Refused(CLUSTER_AUTHORIZATION_FAILED, f"{session.principal.name} may not administer this hub")
    if all(getattr(config, "config_operation", SET) == DELETE for config in asked.configs):
        part.end()
        return
    raise Refused(INVALID_CONFIG, "what holds for the whole hub stands in its configuration file, and is changed there")


def broker_names(session: KafkaSession) -> list[str]:
    return [str(NODE_ID)] if session.admission.may_hub(session.principal, Operation.ADMINISTER) else []


# ---- groups

def describe_group(session: KafkaSession, name: str) -> list[Row]:
    require_group(session, Operation.CONSUME, name)
    configs = GroupConfigs.of(session.services).get(session.principal.tenant, name)
    rows = []
    for config, kind in GROUP_CONFIGS.items():
        default = default_of_group(config, session.config)
        synonyms = [Row(name=kind.server_name, value=default, source=BROKER_SOURCE)]
        if config in configs:
            synonyms.insert(0, Row(name=config, value=configs[config], source=GROUP_SOURCE))
        rows.append(Row(name=config, value=configs.get(config, default), read_only=False, is_sensitive=False,
                        synonyms=synonyms, config_source=synonyms[0].source, config_type=STRING if kind.values else INT,
                        documentation=kind.about))
    return rows


def alter_group(session: KafkaSession, asked: Any, changes: Changes, validate_only: bool, part: AskedPart) -> None:
    name = asked.resource_name
    require_group(session, Operation.ALTER, name)
    check_name(name, "group")
    kept, tenant = GroupConfigs.of(session.services), session.principal.tenant
    configs = changes(dict(kept.latest(tenant, name)))
    kept.check(tenant, name, configs, session.config)
    if validate_only:
        part.end()
        return
    kept.put(tenant, name, configs, session, part)
    part.done = partial(session.audit, "group.changed", {"group": name, "configs": configs})


def group_names(session: KafkaSession) -> list[str]:
    return [name for name in GroupConfigs.of(session.services).names(session.principal.tenant)
            if session.admission.may_group(session.principal, Operation.CONSUME, name)]


KINDS: Final[dict[int, ConfigKind]] = {
    TOPIC: ConfigKind(describe_topic, alter_topic, topic_names),
    BROKER: ConfigKind(describe_broker, alter_broker, broker_names),
    GROUP: ConfigKind(describe_group, alter_group, group_names, checked_of_group),
}
"""By Kafka's number. Loggers (8) and client metrics (16) are none of the hub's."""


# ---- DescribeConfigs

def describe_configs(request: Request) -> Iterator[None]:
    """Each resource once, however often it is named: the answer is much larger than the question."""
    asked, session = request.decode(DescribeConfigsRequest), request.session
    rows = {}
    for resource in asked.resources:
        yield
        name = (resource.resource_type, resource.resource_name)
        if name in rows:
            continue
        row = rows[name] = Row(error_code=NONE, error_message=None, resource_type=name[0], resource_name=name[1],
                               configs=[])
        try:
            configs = _kind(resource.resource_type).describe(session, resource.resource_name)
        except REFUSALS as refusal:
            refuse(row, refusal)
            continue
        keys = None if resource.configuration_keys is None else frozenset(resource.configuration_keys)
        row.configs = configs if keys is None else [config for config in configs if config.name in keys]
        for config in row.configs:
            if not asked.include_synonyms:
                config.synonyms = []
            if not asked.include_documentation:
                config.documentation = None
    request.answer(DescribeConfigsResponse, throttle_time_ms=0, results=list(rows.values()))


def _kind(number: int) -> ConfigKind:
    kind = KINDS.get(number)
    if kind is None:
        raise Refused(INVALID_REQUEST, f"Unexpected resource type {number}: nothing of that kind has settings here")
    return kind


# ---- AlterConfigs, IncrementalAlterConfigs

def alter_configs(request: Request) -> Iterator[None]:
    """What is not named goes back to its default."""
    return _alter(request, request.decode(AlterConfigsRequest), AlterConfigsResponse, _replaced)


def incremental_alter_configs(request: Request) -> Iterator[None]:
    """What is not named stays as it is."""
    return _alter(request, request.decode(IncrementalAlterConfigsRequest), IncrementalAlterConfigsResponse, _stepped)


def _alter(request: Request, asked: Any, answer: Any,
           changed: Callable[[Check, list[Any], dict[str, str]], dict[str, str]]) -> Iterator[None]:
    session = request.session
    times = Counter((resource.resource_type, resource.resource_name) for resource in asked.resources)
    rows: dict[tuple[int, str], Row] = {}
    parts = AskedParts(lambda: request.answer(answer, throttle_time_ms=0, responses=list(rows.values())))
    for resource in asked.resources:
        yield
        name = (resource.resource_type, resource.resource_name)
        row = rows[name] = Row(error_code=NONE, error_message=None, resource_type=name[0], resource_name=name[1])
        if times[name] > 1:
            refuse(row, Refused(INVALID_REQUEST, "Each resource must appear at most once."))
            continue
        parts.begin(row, partial(_alter_one, session, resource, changed, asked.validate_only))
    parts.settle()


def _alter_one(session: KafkaSession, resource: Any,
               changed: Callable[[Check, list[Any], dict[str, str]], dict[str, str]], validate_only: bool,
               part: AskedPart) -> None:
    kind = _kind(resource.resource_type)
    changes = partial(changed, kind.checked, resource.configs)
    kind.alter(session, resource, changes, validate_only, part)


def _replaced(checked: Check, asked: list[Any], before: dict[str, str]) -> dict[str, str]:
    _check_once(asked)
    return {config.name: checked(config.name, config.value) for config in asked}


def _stepped(checked: Check, asked: list[Any], before: dict[str, str]) -> dict[str, str]:
    _check_once(asked)
    configs = dict(before)
    for config in asked:
        if config.config_operation == SET:
            configs[config.name] = checked(config.name, config.value)
        elif config.config_operation == DELETE:
            if config.name not in TOPIC_CONFIGS and config.name not in GROUP_CONFIGS:
                raise Refused(INVALID_CONFIG, f"Unknown config name: {config.name[:100]}")
            configs.pop(config.name, None)
        elif config.config_operation in (APPEND, SUBTRACT):
            _step_list(config, configs)
        else:
            raise Refused(INVALID_REQUEST, f"Unknown operation {config.config_operation}")
    return configs


def _step_list(asked: Any, configs: dict[str, str]) -> None:
    """Add to a list, or take from it."""
    config = TOPIC_CONFIGS.get(asked.name)
    if config is None or config.type != LIST:
        raise Refused(INVALID_CONFIG, f"Config value append is not allowed for config key: {asked.name[:100]}")
    before = [part for part in configs.get(asked.name, config.default).split(",") if part]
    named = [part.strip() for part in (asked.value or "").split(",") if part.strip()]
    after = [*before, *named] if asked.config_operation == APPEND else [part for part in before if part not in named]
    configs[asked.name] = checked(asked.name, ",".join(after))


def _check_once(asked: list[Any]) -> None:
    names = Counter(config.name for config in asked)
    if len(names) < len(asked):
        raise Refused(INVALID_REQUEST, "Each config key must appear at most once.")


# ---- ListConfigResources

def list_config_resources(request: Request) -> None:
    asked, session = request.decode(ListConfigResourcesRequest), request.session
    wanted = () if request.version < FIRST_WITH_KINDS else asked.resource_types or tuple(KINDS)
    rows = [Row(resource_name=name, resource_type=number) for number in dict.fromkeys(wanted) if number in KINDS
            for name in KINDS[number].names(session)]
    request.answer(ListConfigResourcesResponse, throttle_time_ms=0, error_code=NONE, config_resources=rows)


DESCRIBE_CONFIGS = Api(key=32, name="DescribeConfigs", first_version=1, last_version=4, first_flexible=4,
                       dispatch=describe_configs, shows=True, message=DescribeConfigsRequest)
ALTER_CONFIGS = Api(key=33, name="AlterConfigs", first_version=0, last_version=2, first_flexible=2,
                    dispatch=alter_configs, message=AlterConfigsRequest)
INCREMENTAL_ALTER_CONFIGS = Api(key=44, name="IncrementalAlterConfigs", first_version=0, last_version=1,
                                first_flexible=1, dispatch=incremental_alter_configs,
                                message=IncrementalAlterConfigsRequest)
LIST_CONFIG_RESOURCES = Api(key=74, name="ListConfigResources", first_version=0, last_version=1, first_flexible=0,
                            dispatch=list_config_resources, shows=True, message=ListConfigResourcesRequest)
