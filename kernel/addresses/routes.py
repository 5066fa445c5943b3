"""Routes: which topic, key and partition an address goes to, and the way back. Ordered, the first that matches wins.

    filter  fleet/{vehicle}/gps/#     levels, `{name}` captures one, `+` matches one, a trailing `#` becomes {rest}
    topic   positions                 template of the captures
    key     {address}                 template; {address} and {rest} may stand here too. Left out, it is {address}
    partition_key
            {vehicle}                 template; its murmur2 chooses the partition. Left out, the key does

Where no route matches, `address.split_address` decides: the first level is the topic, the rest the key.

Rules kept here:
- Every route can be turned back: its topic and key determine all captures. One that cannot is a RouteProblem.
- Turning back is checked by routing the result again. Where topic and key lead to another address (two routes may
  write the same key), `Routed.needs_header` says so and the address travels in the `address` header.
- The last `address` header is believed, if routing it gives the record's topic.
- `$...` is stored only where a route gives it a topic.
- A route whose topic is `unrouted` is asked last: it takes what has no topic otherwise, under the whole address as key.
- A sender may call a header of its own `address`; it is kept, and the hub's is put behind it, or the message would be
  read back at an address that its sender perhaps may not publish to. (A Kafka producer's batches stay as they are: it
  takes the right to all of a topic to send one, and a header that leads to another topic is not believed.)
"""
from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gatehouse.kernel.addresses.address import (
    ADDRESS_HEADER,
    SHOWN_CHARACTERS,
    UNROUTED,
    check_address,
    is_address,
    is_reserved,
    is_topic_name,
    join_address,
    key_of_text,
    split_address,
    text_of_key,
)
from gatehouse.kernel.addresses.filters import MANY, ONE, InvalidFilter, parse_filter
from gatehouse.kernel.addresses.murmur2 import partition_for
from gatehouse.kernel.addresses.templates import ADDRESS, REST, InvalidTemplate, Template
from gatehouse.kernel.errors import InvalidAddress, Unroutable
from gatehouse.kernel.message import Headers, Placement
from gatehouse.kernel.records.batch import add_header, encode_header, named_headers, varint

CAPTURE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
WHOLE_ADDRESS: Final = "{address}"


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """One `[[routes]]` entry as configured."""

    filter: str
    topic: str
    key: str = WHOLE_ADDRESS
    partition_key: str = ""


@dataclass(frozen=True, slots=True)
class RouteProblem:
    """What is wrong with one entry."""

    index: int
    """Position of the entry in the list, from 0."""

    field: str
    """`filter`, `topic`, `key` or `partition_key`."""

    text: str

    def __str__(self) -> str:
        return f"routes[{self.index}].{self.field} {self.text}"


class InvalidRoutes(ValueError):
    """Routes that cannot be used; `problems` has one line for each."""

    def __init__(self, problems: list[RouteProblem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


class Routed(NamedTuple):
    """Where one address is stored."""

    topic: str
    key: bytes | None
    partition_key: bytes
    """What chooses the partition: the route's partition_key, else the key, else (keyless) the address."""

    needs_header: bool
    """Topic and key lead back to another address, so this one must travel in the `address` header."""

    route: Route | None
    """The route that decided; None: the default rule."""

    def partition(self, partitions: int) -> int:
        """Number of the partition, from 0, in a topic of this many partitions."""
        return partition_for(self.partition_key, partitions)


class Route:
    """One compiled route."""

    def __init__(self, index: int, entry: RouteEntry, levels: tuple[str, ...], names: tuple[str, ...],
                 topic: Template, key: Template, partition_key: Template | None) -> None:
        self.index = index
        self.entry = entry
        self.levels = levels              # filter levels without the trailing '#'; captures are ONE
        self.names = names                # per level: the name of its capture, or ""
        self.has_rest = entry.filter.endswith(MANY)
        self.topic = topic
        self.topic_tells = len(topic.names) <= 1          # two captures in a topic run together: they hold no '/'
        self.key = key
        self.key_tells = key.is_separable()
        self.partition_key = partition_key

    def captures(self, address: str) -> dict[str, str] | None:
        """What the filter captures of this address (with `address` and `rest`); None if it does not match."""
        levels = address.split("/")
        size = len(self.levels)
        if len(levels) < size or (len(levels) > size and not self.has_rest):
            return None
        if is_reserved(address) and (not self.levels or self.levels[0] == ONE):
            return None
        captures = {ADDRESS: address, REST: "/".join(levels[size:])}
        for wanted, name, level in zip(self.levels, self.names, levels, strict=False):
            if wanted not in (ONE, level):
                return None
            if name:
                captures[name] = level
        return captures

    def candidate(self, topic: str, text: str) -> str | None:
        """An address that may have led to this topic and key text; the caller routes it to be sure."""
        if not topic.startswith(self.topic.beginning):
            return None
        of_topic = self.topic.undo(topic) if self.topic_tells else {}
        of_key = self.key.undo(text) if self.key_tells else {}
        if of_topic is None or of_key is None:
            return None
        captures = of_topic | of_key
        if ADDRESS in captures:
            return captures[ADDRESS]
        levels = [captures.get(name) if wanted == ONE else wanted
                  for wanted, name in zip(self.levels, self.names, strict=True)]
        if self.has_rest and captures.get(REST):
            levels.append(captures[REST])
        return "/".join(level or "" for level in levels)


REMEMBERED: Final = 1_024              # addresses of stored records: all are forgotten together
REMEMBERED_BYTES: Final = 256          # of a key; that of a longer one is found each time

Place = tuple[str, "bytes | None", bytes, "Route | None"]
"""Topic, key, what chooses the partition, and the route that decided."""


class Routes:
    """All routes and the default rule."""

    def __init__(self, entries: Sequence[RouteEntry] = (), own: Sequence[RouteEntry] = ()) -> None:
        """`own` are the hub's, of addresses `$...`, and come after all others. Raises InvalidRoutes with every problem
        of every entry."""
        problems: list[RouteProblem] = []
        compiled = [_compile(index, entry, problems) for index, entry in enumerate((*entries, *own))]
        if problems:
            raise InvalidRoutes(problems)
        routes = [route for route in compiled if route is not None]
        self.own = tuple(own)
        self._routes = [route for route in routes[:len(entries)] if route.entry.topic != UNROUTED]
        self._last = [route for route in routes if route.entry.topic == UNROUTED]
        self._with_own = [*self._routes, *routes[len(entries):]]
        self.entries = tuple(entries)
        """As they were given, without the hub's own."""

        self._own_topics = [route.topic for route in routes[len(entries):]]
        self._addresses: dict[tuple[str, bytes | None], str] = {}     # of records, lately

    @property
    def any(self) -> bool:
        """Whether there is more than the default rule, what it leaves, and the hub's own."""
        return bool(self._routes)

    def is_own(self, topic: str) -> bool:
        """Whether a route of the hub's own leads to this topic."""
        return any(own.undo(topic) is not None for own in self._own_topics)

    def route(self, address: str) -> Routed:
        """Raises InvalidAddress for a text that is no address and for `$...` to which no route gives a topic,
        Unroutable for another address without a topic."""
        check_address(address)
        topic, key, partition_key, route = self._place(address)
        needs_header = self.address_of(topic, key) != address
        return Routed(topic, key, partition_key, needs_header, route)

    def unrouted(self, address: str) -> Routed:
        """Where a message for this address goes that was taken, and whose topic has gone."""
        key = key_of_text(address)
        return Routed(UNROUTED, key, key, False, None)

    def address_of(self, topic: str, key: bytes | None, headers: Headers = ()) -> str:
        """The address of a stored record; total. Headers are believed as the rules above say."""
        said = stated_in(headers) if headers else None
        believed = None if said is None else self._believed(topic, said)
        if believed is not None:
            return believed
        address = self._addresses.get((topic, key))
        if address is None:
            address = self._address_by_rule(topic, key)
            if key is None or len(key) <= REMEMBERED_BYTES:
                if len(self._addresses) >= REMEMBERED:
                    self._addresses.clear()
                self._addresses[topic, key] = address
        return address

    def _address_by_rule(self, topic: str, key: bytes | None) -> str:
        text = text_of_key(key)
        if text:
            for route in self._with_own:
                address = route.candidate(topic, text)
                if address is not None and self._leads_to(address, topic, key):
                    return address
        return join_address(topic, key)

    def _place(self, address: str) -> Place:
        try:
            return self._place_by(self._with_own if is_reserved(address) else self._routes, address) \
                or _place_by_default(address)
        except Unroutable:
            place = self._place_by(self._last, address)
            if place is None:
                raise
            return place

    @staticmethod
    def _place_by(routes: Sequence[Route], address: str) -> Place | None:
        """Where the first of these that matches stores it."""
        for route in routes:
            captures = route.captures(address)
            if captures is not None:
                topic = route.topic.render(captures)
                if route.topic.names:
                    _check_rendered(topic, route, address)
                key = key_of_text(route.key.render(captures))
                chooses = key if route.partition_key is None else key_of_text(route.partition_key.render(captures))
                return topic, key, chooses, route
        return None

    def _leads_to(self, address: str, topic: str, key: bytes | None) -> bool:
        if not is_address(address):
            return False
        try:
            return self._place(address)[:2] == (topic, key)
        except InvalidAddress:               # `$...` without a route
            return False

    def _believed(self, topic: str, value: bytes) -> str | None:
        """The address in an `address` header, if routing it gives this topic."""
        try:
            address = value.decode()
            check_address(address)
            return address if self._place(address)[0] == topic else None
        except (UnicodeDecodeError, InvalidAddress):
            return None


def _place_by_default(address: str) -> Place:
    topic, key = split_address(address)
    return topic, key, address.encode() if key is None else key, None


def _check_rendered(topic: str, route: Route, address: str) -> None:
    """Raises InvalidAddress for what captures made of a topic, and is none; Unroutable where a last route may help."""
    if not is_topic_name(topic) or topic == UNROUTED:
        refusal = InvalidAddress if is_reserved(address) else Unroutable
        raise refusal(f"the route {route.entry.filter!r} would store it in {topic[:SHOWN_CHARACTERS]!r}, which is no "
                      "topic that it may name")


def _compile(index: int, entry: RouteEntry, problems: list[RouteProblem]) -> Route | None:
    """None where a problem was added."""
    before = len(problems)

    def complain(field: str, text: str) -> None:
        problems.append(RouteProblem(index, field, text))

    try:
        levels, names = _parse_levels(entry.filter)
    except ValueError as error:
        complain("filter", str(error))
        return None
    captured = frozenset(name for name in names if name)
    wide = captured | {ADDRESS} | ({REST} if entry.filter.endswith(MANY) else set())
    templates: dict[str, Template] = {}
    fields = (("topic", entry.topic, captured), ("key", entry.key, wide), ("partition_key", entry.partition_key, wide))
    for field, text, captures in fields:
        try:
            templates[field] = Template(text, captures)
        except InvalidTemplate as error:
            complain(field, str(error))
    if len(problems) > before:
        return None
    topic, key = templates["topic"], templates["key"]
    if not topic.names and not is_topic_name(entry.topic):
        complain("topic", f"is no topic that a route may name: '{entry.topic}'")
    if entry.topic == UNROUTED and entry.key != WHOLE_ADDRESS:
        complain("key", f"is not '{entry.key}' in the topic {UNROUTED}, but {WHOLE_ADDRESS}")
    undetermined = _undetermined(levels, names, entry.filter.endswith(MANY), topic, key)
    if undetermined:
        complain("key", f"'{entry.key}' cannot be turned back into an address: it does not determine {undetermined}; "
                        "use {address}, or every capture with a '/' between each two")
    if len(problems) > before:
        return None
    return Route(index, entry, levels, names, topic, key, templates["partition_key"] if entry.partition_key else None)


def _parse_levels(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(levels with captures as ONE and without the trailing MANY, name of each level's capture). Raises ValueError."""
    levels: list[str] = []
    names: list[str] = []
    for level in text.split("/"):
        capture = CAPTURE.fullmatch(level)
        name = capture.group(1) if capture else ""
        if name and (name in names or name in (ADDRESS, REST)):
            raise ValueError(f"captures {{{name}}} twice, or a name that is taken: {{{ADDRESS}}} and {{{REST}}} are")
        if not name and ("{" in level or "}" in level):
            raise ValueError(f"has '{level}': a capture is a whole level, {{name}} in letters, digits and underscores")
        levels.append(ONE if name else level)
        names.append(name)
    try:
        parse_filter("/".join(levels))
    except InvalidFilter as error:
        raise ValueError(f"is no filter: {error}") from None
    if MANY in levels[:-1]:
        raise ValueError("has '#' before its last level")
    if levels[-1] == MANY:
        del levels[-1], names[-1]
    return tuple(levels), tuple(names)


def _undetermined(levels: tuple[str, ...], names: tuple[str, ...], has_rest: bool,
                  topic: Template, key: Template) -> str:
    """What of an address topic and key leave open, in words; "" if they determine all of it."""
    determined_names: set[str] = set()
    if len(topic.names) <= 1:
        determined_names.update(topic.names)
    if key.is_separable():
        determined_names.update(key.names)
    if ADDRESS in determined_names:
        return ""
    missing = ["{" + name + "}" for name in names if name and name not in determined_names]
    if has_rest and REST not in determined_names:
        missing.append("{" + REST + "} (the '#')")
    if any(level == ONE and not name for level, name in zip(levels, names, strict=True)):
        missing.append("the '+'")
    return ", ".join(missing)


# --- the address that a record states -----------------------------------------------------------------------------

STATED: Final = varint(len(ADDRESS_HEADER)) + ADDRESS_HEADER
"""What encoded headers hold if one is called so, and perhaps if none is."""


def stated_in(headers: Headers) -> bytes | None:
    """What a record says of its address."""
    return next((value for name, value in reversed(headers) if name == ADDRESS_HEADER), None)


# decision 64: the hub's is put behind the sender's
def stated(message: tuple[Any, bytes | None, bytes, int, int], placement: Placement
           ) -> tuple[Any, bytes | None, bytes, int, int]:
    """A sender's message to a placement that says nothing else of its address than the hub does."""
    where, value, headers, attributes, timestamp_ms = message
    said = named_headers(headers, (ADDRESS_HEADER,))
    address = placement.address.encode()
    if not said or said[-1][1] == address:
        return message
    return where, value, add_header(headers, encode_header(ADDRESS_HEADER, address)), attributes, timestamp_ms
