"""Where an address goes and what it is called on every door. Pure: it asks the routes, not a hub.

    mqtt:plant/line1/temp          a topic name (`mqtt5:` shows what survives of MQTT 5's properties)
    http:plant/line1/temp          a path, with or without `/v1/publish/` before it; percent-encoded
    amqp:plant/line1.temp          EXCHANGE/ROUTING.KEY; without a slash the key on amq.topic; `amqp:/NAME` is a queue
    kafka:plant:line1/temp         TOPIC:KEY, TOPIC/KEY or TOPIC; stored there as given, whatever the routes say
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gatehouse.gateways.addresses import Place, Record, describe_record
from gatehouse.gateways.properties.envelope import Column, losses, sayable
from gatehouse.kernel.addresses.address import UNROUTED, is_topic_name, levels_of
from gatehouse.kernel.addresses.murmur2 import partition_for
from gatehouse.kernel.addresses.routes import Routed, Routes
from gatehouse.kernel.errors import InvalidAddress, InvalidTopic, Unroutable

if TYPE_CHECKING:
    from gatehouse.gateways.contract import GatewaySpec


class UnknownDoor(ValueError):
    """A door that does not say how it spells addresses, or none at all."""


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

    notes: list[str] = field(default_factory=list)
    specs: tuple[GatewaySpec, ...] = ()
    """Every door that says how it spells addresses, in the order in which they are shown."""

    column: Column | None = None
    """How messages of this door carry properties; None: it does not say."""

    @property
    def place(self) -> Place:
        """What is shown in each door's words."""
        return Place(self.address, self.topic, self.key, self.needs_header)

    @property
    def columns(self) -> list[Column]:
        """Those of all doors."""
        return [column for spec in self.specs for column in spec.columns]

    def survives(self) -> dict[str, list[str]]:
        """Per column: the fields of a message from this door that readers there see."""
        if self.column is None:
            return {}
        lost = self.lost()
        return {target.name: [name for name in sayable(self.column) if name not in lost[target.name]]
                for target in self.columns}

    def lost(self) -> dict[str, list[str]]:
        """Per column: the fields that readers there do not see."""
        return {} if self.column is None else {target.name: losses(self.column, target) for target in self.columns}

    def as_dict(self) -> dict[str, Any]:
        """For programs: JSON's types."""
        key = None if self.key is None else self.key.decode(errors="replace")
        lost = self.lost()
        has_headers = self.column is not None and self.column.show_header is not None
        limits = {column.name: column.header_limits if has_headers else "" for column in self.columns}
        return {
            "door": self.door, "given": self.given, "address": self.address, "topic": self.topic, "key": key,
            "partition": self.partition, "partitions": self.partitions, "route": self.route,
            "decided_by": self.decided_by,
            "needs_header": self.needs_header,
            "doors": {spec.name: spec.spelling.document(self.place) for spec in self.specs if spec.spelling is not None}
                     | {"spark": {"topic": self.topic, "key": key, "address": self.address}},
            "survives": {name: {"carried": carried, "lost": lost[name], "header_limits": limits[name]}
                         for name, carried in self.survives().items()},
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
        stored = "no topic" if self.topic is None else describe_record(self.topic, self.key)
        yield "stored in", stored
        if self.topic is not None:
            yield "partition", ("chosen by the producer" if self.partition is None
                                else f"{self.partition} of 0 to {self.partitions - 1}")
        for note in self.notes:
            yield "note", note
        yield "", ""
        for spec in self.specs:
            if spec.spelling is not None:
                for line in spec.spelling.show(self.place):
                    yield spec.spelling.title, line
        yield "Spark", f"{stored}, address {self.address}" if self.topic is not None else stored
        yield "", ""
        titles, lost = {column.name: column.title for column in self.columns}, self.lost()
        for name, carried in self.survives().items():
            assert self.column is not None, "or nothing would be known of what survives"
            yield f"{self.column.title} to {titles[name]}", _carried_text(carried, lost[name])


def explain(door: str, spelled: str, routes: Routes, partitions: int, specs: Mapping[str, GatewaySpec]) -> Explanation:
    """What becomes of an address given as this door spells it, in a topic of `partitions` partitions.

    `door` is the name of one of the `specs`, or of a column of one (`mqtt5`). Raises UnknownDoor, InvalidAddress, and
    InvalidTopic.
    """
    speaking = [spec for spec in specs.values() if spec.spelling is not None]
    names: dict[str, tuple[GatewaySpec, Column | None]] = {
        column.name: (spec, column) for spec in speaking for column in spec.columns}
    names |= {spec.name: (spec, spec.columns[0] if spec.columns else None) for spec in speaking}
    if door not in names:
        raise UnknownDoor(f"there is no door '{door}' to explain; there are {', '.join(sorted(names))}")
    spec, column = names[door]
    assert spec.spelling is not None, "others were left out"
    explained = Explanation(door, spelled, "", partitions=partitions, specs=tuple(speaking), column=column)
    named = spec.spelling.read(spelled)
    if isinstance(named, Record):
        _explain_record(explained, routes, named)
    else:
        explained.address = named
        _explain_address(explained, routes)
    if explained.needs_header:
        explained.notes.append("topic and key cannot say this address: it travels in the header 'address'")
    if any(level in (".", "..") for level in levels_of(explained.address)):
        explained.notes.append("many HTTP clients fold the segments '.' and '..': publish by topic and key")
    return explained


def _explain_address(explained: Explanation, routes: Routes) -> None:
    try:
        routed = routes.route(explained.address)
    except InvalidAddress as error:          # the address is fine; no topic takes it
        explained.decided_by = f"no route: {error}"
        if isinstance(error, Unroutable):
            explained.notes.append(f"who publishes here is refused; a route gives it a topic, '{UNROUTED}' for example")
        return
    explained.topic, explained.key, explained.needs_header = routed.topic, routed.key, routed.needs_header
    explained.partition = routed.partition(explained.partitions)
    explained.route = None if routed.route is None else routed.route.index
    explained.decided_by = _reason(routed)
    if routed.topic != UNROUTED:
        explained.notes.append(_who_makes(routed.topic, explained.address))


def _explain_record(explained: Explanation, routes: Routes, record: Record) -> None:
    topic, key = record
    if not is_topic_name(topic):
        raise InvalidTopic(f"'{topic[:60]}' is no topic name: letters, digits, '.', '_', '-', 1 to 249 of them")
    explained.topic, explained.key = topic, key
    explained.address = routes.address_of(topic, key)
    explained.partition = None if key is None else partition_for(key, explained.partitions)
    explained.decided_by = "the producer, who names topic and key"
    if key is None:
        explained.notes.append("without a key the producer chooses the partition")
    else:
        explained.notes.append("the partition is the Java client's choice; librdkafka agrees with "
                               "partitioner=murmur2_random")
    try:
        routed = routes.route(explained.address)
    except InvalidAddress:
        return
    if (routed.topic, routed.key) != (topic, key):
        elsewhere = describe_record(routed.topic, routed.key)
        explained.notes.append(f"from other doors this address is stored in {elsewhere}")


def _reason(routed: Routed) -> str:
    if routed.route is None:
        return "the default rule: the first level is the topic, the rest the key"
    which = f"routes[{routed.route.index}], filter {routed.route.entry.filter}"
    return which if routed.topic != UNROUTED else which + ", as it has no topic otherwise"


def _who_makes(topic: str, address: str) -> str:
    """Who has the topic made by publishing here, should it be missing: see `gateways.admission.rights`."""
    whole = f", or publish at {topic}/#" if levels_of(address)[0] == topic else ""
    return f"a missing topic is made for who may create here{whole}"


def _carried_text(carried: list[str], lost: list[str]) -> str:
    if not lost:
        return "all properties"
    return "only " + ", ".join(carried) if len(carried) < len(lost) else "all but " + ", ".join(lost)


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
