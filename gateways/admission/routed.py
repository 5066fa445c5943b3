"""Which topics a filter's messages are stored in, and which filters lead into a topic. Pure.

Rights are given on addresses and on topics; routes decide how the two meet, so both answers come from them. Where a
route's topic holds captures the answer is wider than the truth, never narrower.
"""
from __future__ import annotations

from collections.abc import Sequence

from gatehouse.gateways.admission.patterns import Levels, overlaps
from gatehouse.kernel.addresses.address import UNROUTED, is_address, is_topic_name
from gatehouse.kernel.addresses.filters import MANY, ONE
from gatehouse.kernel.addresses.routes import CAPTURE, RouteEntry, Routes
from gatehouse.kernel.addresses.templates import Template
from gatehouse.kernel.errors import InvalidAddress, Unroutable


class RoutedTopics:
    """Answers from the routes of the configuration."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._configured = [_KnownRoute(entry) for entry in routes.entries if entry.topic != UNROUTED]
        self._known = [*self._configured, *map(_KnownRoute, routes.own)]

    def topics_of(self, wanted: Levels) -> frozenset[str] | None:
        """The topics that messages of these addresses are stored in; none for queues, None: any."""
        if ONE not in wanted and MANY not in wanted:
            return self._topic_of_address("/".join(wanted))
        if wanted[0] in (ONE, MANY):
            return None
        topics = set()
        for route in self._known:
            if overlaps(route.levels, wanted):
                if not route.topic:
                    return None
                topics.add(route.topic)
        if not wanted[0].startswith("$"):
            topics.add(wanted[0] if is_topic_name(wanted[0]) else UNROUTED)
        return frozenset(topics)

    def _topic_of_address(self, address: str) -> frozenset[str]:
        if not is_address(address):
            return frozenset()
        try:
            return frozenset((self._routes.route(address).topic,))
        except Unroutable:                  # nothing new is stored there; what was is
            return frozenset((UNROUTED,))
        except InvalidAddress:              # `$...` that no route takes: a queue, or nothing
            return frozenset()

    def filters_into(self, topic: str) -> Sequence[Levels]:
        """Filters whose addresses together are all that anybody but the hub can have stored in the topic."""
        if topic == UNROUTED:
            return ((MANY,),)
        return [(topic, MANY), *(levels for route in self._configured for levels in route.into(topic))]


class _KnownRoute:
    """One route, and what is asked of it."""

    def __init__(self, entry: RouteEntry) -> None:
        self._names = tuple(_name(level) for level in entry.filter.split("/"))
        self.levels: Levels = tuple(ONE if name else level
                                    for name, level in zip(self._names, entry.filter.split("/"), strict=True))
        self._template = Template(entry.topic, frozenset(name for name in self._names if name))
        self.topic = "" if self._template.names else entry.topic
        """The route's topic; empty where captures decide."""

    def into(self, topic: str) -> list[Levels]:
        """The filters of what the route may bring into this topic: one, or none."""
        if self.topic:
            return [self.levels] if self.topic == topic else []
        if self._template.undo(topic) is None:
            return []
        single = self._template.undo(topic) if len(self._template.names) == 1 else {}
        return [tuple((single or {}).get(name, level) for name, level in zip(self._names, self.levels, strict=True))]


def _name(level: str) -> str:
    capture = CAPTURE.fullmatch(level)
    return capture.group(1) if capture else ""
