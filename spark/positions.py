"""Where topics begin and end, asked of the hub, and where a query is to begin and to end."""
from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from gatehouse.kernel.addresses.address import UNROUTED, is_topic_name
from gatehouse.kernel.addresses.filters import MANY, ONE, InvalidFilter, parse_filter
from gatehouse.kernel.addresses.routes import RouteEntry
from gatehouse.spark.columns import HubFacts
from gatehouse.spark.errors import InvalidOption
from gatehouse.spark.hub import Hub
from gatehouse.spark.options import EARLIEST, LATEST, SPECIAL, AtTime, Place, ReadOptions, Subscription

TOPICS_PER_REQUEST: Final = 1_000


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """One topic as it is just now. Partitions that are not read are left out of `partitions`."""

    name: str
    uuid: str
    partitions: tuple[int, ...]
    log_starts: Mapping[int, int]
    ends: Mapping[int, int]
    at_times: Mapping[int, int | None]


class Positions:
    """Answers by asking; keeps nothing but what the hub said last about itself."""

    def __init__(self, hub: Hub, subscription: Subscription) -> None:
        self._hub = hub
        self._subscription = subscription
        self._times: AtTime | None = None
        self.facts = HubFacts({}, ())

    # --- what there is

    def bounds(self, times: AtTime | None = None) -> dict[str, TopicBounds]:
        """Every topic of the subscription that exists, by name; with `times`, also where those are."""
        names = self._names()
        topics: dict[str, TopicBounds] = {}
        for first in range(0, len(names), TOPICS_PER_REQUEST):
            topics |= self._ask(names[first:first + TOPICS_PER_REQUEST], times)
        return topics

    def _ask(self, names: list[str], times: AtTime | None) -> dict[str, TopicBounds]:
        request: dict[str, Any] = {"topics": names}
        if times is not None:
            request["times"] = self._asked_times(names, times)
        answer = json.loads(self._hub.post_json("/v1/batches/positions", request))
        self.facts = HubFacts({int(number): name for number, name in answer["doors"].items()},
                              tuple(RouteEntry(**route) for route in answer["routes"]))
        return {topic["name"]: self._read(topic) for topic in answer["topics"]}

    def _asked_times(self, names: list[str], times: AtTime) -> dict[str, dict[str, int]]:
        if times.everywhere_ms is None:
            return {name: {str(partition): time for partition, time in times.by_partition_ms[name].items()}
                    for name in names if name in times.by_partition_ms}
        topics = self._ask(names, None)
        return {name: {str(partition): times.everywhere_ms for partition in topic.partitions} for name,
                topic in topics.items()}

    def _read(self, topic: dict[str, Any]) -> TopicBounds:
        assigned = self._subscription.assigned.get(topic["name"])
        partitions = tuple(range(topic["partitions"])) if assigned is None else assigned
        missing = [partition for partition in partitions if partition >= topic["partitions"]]
        if missing:
            raise InvalidOption(f"'assign' names the partitions {missing} of {topic['name']!r}, "
                                f"which has {topic['partitions']}")
        return TopicBounds(topic["name"], topic["uuid"], partitions,
                           {partition: topic["log_start_offsets"][partition] for partition in partitions},
                           {partition: topic["high_watermarks"][partition] for partition in partitions},
                           {int(partition): at for partition, at in topic.get("offsets_for_times", {}).items()})

    def _names(self) -> list[str]:
        """The topics that the subscription means now. A filter with a literal first level means one topic."""
        wanted = self._subscription
        if wanted.topics or wanted.assigned:
            return list(wanted.topics or wanted.assigned)
        if wanted.pattern:
            pattern = re.compile(wanted.pattern)
            return [name for name in self._listed() if pattern.fullmatch(name)]
        first = _levels(wanted.filter)[0]
        if first in (ONE, MANY) or self._routed():
            return list(self._listed())
        return [first if is_topic_name(first) and first != UNROUTED else UNROUTED]

    def _routed(self) -> bool:
        self._ask([], None)
        return any(route.topic != UNROUTED for route in self.facts.routes)

    def _listed(self) -> Iterable[str]:
        cursor = ""
        while True:
            answer = json.loads(self._hub.request("GET", "/v1/topics" + (f"?cursor={quote(cursor)}" if cursor else "")))
            yield from (topic["name"] for topic in answer["topics"])
            cursor = answer["cursor"]
            if not cursor:
                return

    # --- where to begin and end

    def resolve(self, place: Place, *,
                ending: bool = False) -> tuple[dict[str, dict[int, int]], dict[str, TopicBounds]]:
        """Offsets by topic and partition of a place, and the bounds that they were found in."""
        topics = self.bounds(place if isinstance(place, AtTime) else None)
        self._check_exists(topics)
        return {name: _offsets(topic, place, ending) for name, topic in topics.items()}, topics

    def _check_exists(self, topics: Mapping[str, TopicBounds]) -> None:
        missing = [name for name in (self._subscription.topics or self._subscription.assigned) if name not in topics]
        if missing:
            raise InvalidOption(f"there is no topic {', '.join(map(repr, missing))} on the hub")


def _offsets(topic: TopicBounds, place: Place, ending: bool) -> dict[int, int]:
    if place == EARLIEST:
        return dict(topic.log_starts)
    if place == LATEST:
        return dict(topic.ends)
    if isinstance(place, AtTime):
        if place.everywhere_ms is None:
            _named(topic, place.by_partition_ms)
        offsets = {partition: topic.at_times.get(partition) for partition in topic.partitions}
        return {partition: topic.ends[partition] if at is None else at for partition, at in offsets.items()}
    assert not isinstance(place, str)
    return _given(topic, place, ending)


def _given(topic: TopicBounds, place: Mapping[str, Mapping[int, int]], ending: bool) -> dict[int, int]:
    """Offsets as the reader said them."""
    offsets = {}
    for partition, offset in _named(topic, place).items():
        if offset < 0 and SPECIAL.get(offset) is None:
            raise InvalidOption(f"an offset is a whole number from 0, -2 (earliest) or -1 (latest), not {offset}")
        if offset < 0:
            offset = topic.ends[partition] if SPECIAL[offset] == LATEST else topic.log_starts[partition]
        if offset > topic.ends[partition]:
            where = "end at" if ending else "begin at"
            raise InvalidOption(f"cannot {where} {offset}: "
                                f"partition {partition} of {topic.name!r} ends at {topic.ends[partition]}")
        offsets[partition] = offset
    return offsets


def _named(topic: TopicBounds, place: Mapping[str, Mapping[int, int]]) -> Mapping[int, int]:
    """What a JSON says of a topic; all partitions must be there, as the Kafka connector wants it."""
    given = place.get(topic.name)
    if given is None or set(given) != set(topic.partitions):
        raise InvalidOption(f"the JSON of offsets or times has to name every partition of {topic.name!r}: "
                            f"{list(topic.partitions)}")
    return given


def _levels(text: str) -> tuple[str, ...]:
    try:
        return parse_filter(text)
    except InvalidFilter as error:
        raise InvalidOption(f"'filter': {error}") from None


def filter_levels(options: ReadOptions) -> tuple[str, ...]:
    """The levels of the address filter, () where there is none. Raises InvalidOption."""
    return _levels(options.subscription.filter) if options.subscription.filter else ()
