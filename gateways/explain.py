"""Where an address goes and what it is called on every door. Pure: it asks the routes, not a hub.

    mqtt:plant/line1/temp          a topic name (`mqtt5:` shows what survives of MQTT 5's properties)
    http:plant/line1/temp          a path, with or without `/v1/publish/` before it; percent-encoded
    amqp:plant/line1.temp          EXCHANGE/ROUTING.KEY; without a slash the key on amq.topic; `amqp:/NAME` is a queue
    kafka:plant:line1/temp         TOPIC:KEY, TOPIC/KEY or TOPIC; stored there as given, whatever the routes say
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from gatehouse.gateways.addresses import (
    TOPIC_EXCHANGE,
    AmqpName,
    address_of_amqp,
    address_of_http,
    address_of_mqtt,
    amqp_by_exchange,
    amqp_whole,
    check_http_path,
    http_target,
    http_topic_target,
    mqtt_name,
    parse_kafka_name,
)
from gatehouse.gateways.properties.envelope import DOOR_TITLES, DOORS, FIELDS, HEADER_LIMITS, USER_HEADERS, losses
from gatehouse.kernel.addresses.address import UNROUTED, is_topic_name, levels_of
from gatehouse.kernel.addresses.murmur2 import partition_for
from gatehouse.kernel.addresses.routes import Routed, Routes
from gatehouse.kernel.errors import InvalidAddress, InvalidTopic, Unroutable

COLUMN_OF_DOOR: Final = {"mqtt": "mqtt3", "mqtt5": "mqtt5", "amqp": "amqp", "kafka": "kafka", "http": "http"}
"""The doors that `explain` knows, and the column of the property table that speaks for each."""

PUBLISH_PATH: Final = "/v1/publish/"


class UnknownDoor(ValueError):
    """A door that is not in COLUMN_OF_DOOR."""


@dataclass(slots=True)
class Explanation:
    """Everything that can be said of an address without a hub."""

    door: str
    given: str
    address: str
    decided_by: str = ""
    """In words: the route, or the default rule."""

    route: int | None = None
    """Position in `[[routes]]`, from 0, of the route that decided."""

    topic: str | None = None
    """None: it is stored in no topic."""

    key: bytes | None = None
    partition: int | None = None
    """None where it is stored in no topic, and where a Kafka producer chooses."""

    partitions: int = 0
    needs_header: bool = False
    """Topic and key cannot say the address; it travels in the `address` header."""

    amqp: list[AmqpName] = field(default_factory=list)
    http: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def survives(self) -> dict[str, list[str]]:
        """Per column: the fields of a message from this door that readers there see."""
        column = COLUMN_OF_DOOR[self.door]
        sayable = [row.name for row in FIELDS if row.cells.get(column)] + ([USER_HEADERS] if column != "mqtt3" else [])
        return {door: [name for name in sayable if name not in losses(column, door)] for door in DOORS}

    def lost(self) -> dict[str, list[str]]:
        """Per column: the fields that readers there do not see."""
        return {door: losses(COLUMN_OF_DOOR[self.door], door) for door in DOORS}

    def as_dict(self) -> dict[str, Any]:
        """For programs: JSON's types."""
        key = None if self.key is None else self.key.decode(errors="replace")
        lost = self.lost()
        limits = dict.fromkeys(DOORS, "") if COLUMN_OF_DOOR[self.door] == "mqtt3" else HEADER_LIMITS
        return {
            "door": self.door, "given": self.given, "address": self.address, "topic": self.topic, "key": key,
            "partition": self.partition, "partitions": self.partitions, "route": self.route,
            "decided_by": self.decided_by,
            "needs_header": self.needs_header,
            "doors": {
                "mqtt": {"topic_name": mqtt_name(self.address)},
                "amqp": [name._asdict() for name in self.amqp],
                "kafka": {"topic": self.topic, "key": key},
                "http": self.http,
                "spark": {"topic": self.topic, "key": key, "address": self.address},
            },
            "survives": {door: {"carried": carried, "lost": lost[door], "header_limits": limits[door]}
                         for door, carried in self.survives().items()},
            "notes": self.notes,
        }

    def text(self) -> str:
        """For people: one fact per line, names in one column, nothing that would move a terminal's cursor."""
        rows = list(self._rows())
        width = max(len(name) for name, _ in rows) + 2
        return "\n".join(f"{name.ljust(width)}{_printable(value)}".rstrip() for name, value in rows)

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "address", self.address
        yield "decided by", self.decided_by
        stored = "no topic" if self.topic is None else _topic_and_key(self.topic, self.key)
        yield "stored in", stored
        if self.topic is not None:
            yield "partition", ("chosen by the producer" if self.partition is None
                                else f"{self.partition} of 0 to {self.partitions - 1}")
        for note in self.notes:
            yield "note", note
        yield "", ""
        yield "MQTT", mqtt_name(self.address)
        for name in self.amqp:
            yield "AMQP", _amqp_text(name)
        yield "Kafka", stored
        for path in self.http:
            yield "HTTP", path
        yield "Spark", f"{stored}, address {self.address}" if self.topic is not None else stored
        yield "", ""
        source = DOOR_TITLES[COLUMN_OF_DOOR[self.door]]
        lost = self.lost()
        for door, carried in self.survives().items():
            yield f"{source} to {DOOR_TITLES[door]}", _carried_text(carried, lost[door])


def explain(door: str, spelled: str, routes: Routes, partitions: int) -> Explanation:
    """What becomes of an address given as this door spells it (see above), in a topic of `partitions` partitions.

    Raises UnknownDoor, InvalidAddress, and InvalidTopic (Kafka).
    """
    if door not in COLUMN_OF_DOOR:
        raise UnknownDoor(f"there is no door '{door}' to explain; there are {', '.join(COLUMN_OF_DOOR)}")
    explanation = Explanation(door, spelled, "", partitions=partitions)
    if door == "kafka":
        _explain_record(explanation, routes)
    else:
        explanation.address = _address_of(door, spelled)
        _explain_address(explanation, routes)
    explanation.amqp = [name for name in (amqp_whole(explanation.address), amqp_by_exchange(explanation.address))
                        if name is not None]
    explanation.http = [http_target(explanation.address)]
    if explanation.topic is not None and not explanation.needs_header:
        explanation.http.append(http_topic_target(explanation.topic, explanation.key))
    if explanation.needs_header:
        explanation.notes.append("topic and key cannot say this address: it travels in the header 'address'")
    if any(level in (".", "..") for level in levels_of(explanation.address)):
        explanation.notes.append("many HTTP clients fold the segments '.' and '..': publish by topic and key")
    return explanation


def _address_of(door: str, spelled: str) -> str:
    if door == "http":
        path = spelled.removeprefix(PUBLISH_PATH)
        check_http_path(path)
        return address_of_http(path)
    if door == "amqp":
        exchange, slash, routing_key = spelled.partition("/")
        return address_of_amqp(exchange, routing_key) if slash else address_of_amqp(TOPIC_EXCHANGE, spelled)
    return address_of_mqtt(spelled)


def _explain_address(explanation: Explanation, routes: Routes) -> None:
    try:
        routed = routes.route(explanation.address)
    except InvalidAddress as error:          # the address is fine; no topic takes it
        explanation.decided_by = f"no route: {error}"
        if isinstance(error, Unroutable):
            explanation.notes.append(f"who publishes here is refused; a route gives it a topic, '{UNROUTED}' for "
                                     "example")
        return
    explanation.topic, explanation.key, explanation.needs_header = routed.topic, routed.key, routed.needs_header
    explanation.partition = routed.partition(explanation.partitions)
    explanation.route = None if routed.route is None else routed.route.index
    explanation.decided_by = _reason(routed)
    if routed.topic != UNROUTED:
        explanation.notes.append(_who_makes(routed.topic, explanation.address))


def _explain_record(explanation: Explanation, routes: Routes) -> None:
    topic, key = parse_kafka_name(explanation.given)
    if not is_topic_name(topic):
        raise InvalidTopic(f"'{topic[:60]}' is no topic name: letters, digits, '.', '_', '-', 1 to 249 of them")
    explanation.topic, explanation.key = topic, key
    explanation.address = routes.address_of(topic, key)
    explanation.partition = None if key is None else partition_for(key, explanation.partitions)
    explanation.decided_by = "the producer, who names topic and key"
    if key is None:
        explanation.notes.append("without a key the producer chooses the partition")
    else:
        explanation.notes.append("the partition is the Java client's choice; "
                                 "librdkafka agrees with partitioner=murmur2_random")
    try:
        routed = routes.route(explanation.address)
    except InvalidAddress:
        return
    if (routed.topic, routed.key) != (topic, key):
        explanation.notes.append(f"from other doors this address is stored in "
                                 f"{_topic_and_key(routed.topic, routed.key)}")


def _reason(routed: Routed) -> str:
    if routed.route is None:
        return "the default rule: the first level is the topic, the rest the key"
    which = f"routes[{routed.route.index}], filter {routed.route.entry.filter}"
    return which if routed.topic != UNROUTED else which + ", as it has no topic otherwise"


def _who_makes(topic: str, address: str) -> str:
    """Who has the topic made by publishing here, should it be missing: see `gateways.admission.rights`."""
    whole = f", or publish at {topic}/#" if levels_of(address)[0] == topic else ""
    return f"a missing topic is made for who may create here{whole}"


def _topic_and_key(topic: str, key: bytes | None) -> str:
    return f"topic {topic}, no key" if key is None else f"topic {topic}, key '{key.decode(errors='replace')}'"


def _carried_text(carried: list[str], lost: list[str]) -> str:
    if not lost:
        return "all properties"
    return "only " + ", ".join(carried) if len(carried) < len(lost) else "all but " + ", ".join(lost)


def _amqp_text(name: AmqpName) -> str:
    exchange = f"exchange {name.exchange}" if name.exchange else "the default exchange"
    more = "" if name.x_address is None else ", the address in the header x-address"
    return f"{exchange}, routing key '{name.routing_key}'{more}"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
