"""Exchanges: from a routing key and headers to destinations, exactly as RabbitMQ's types do it. Pure.

    direct    the binding's key is the routing key
    fanout    every binding
    topic     words between dots; `*` is one word, `#` any number of them, none included; an empty key has no words
    headers   the binding's arguments against the message's headers, as `x-match` says
    x-consistent-hash   one of the bindings, by the hash of the key, or of a header or property (`HashingRouter`)
    x-delayed-message   as the type says that it names, once the message's `x-delay` is over; see `publishing`

A destination is a queue or another exchange. A binding is what it is bound with: source, destination, key, arguments.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from math import log
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from gatehouse.gateways.amqp.errors import precondition
from gatehouse.gateways.amqp.tables import INTEGERS, TYPE_NAMES, Field, Table, described, encode_table, plain
from gatehouse.kernel.addresses.filters import MANY, ONE, FilterTrie

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.policies import Policy

DELAYED: Final = "x-delayed-message"
DELAY: Final = "x-delay"
QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"
WITH_X: Final = "-with-x"
X_MATCHES: Final = ("all", "any", "all" + WITH_X, "any" + WITH_X)
FIRST: Final = "k"             # a level before the words, so that `$` as the first character of a key means nothing

Properties = Mapping[str, Any]
"""A message's properties by name, as `properties.read` gives them."""


class Destination(NamedTuple):
    kind: str                  # QUEUE or EXCHANGE
    name: str


class Binding(NamedTuple):
    """One binding. Hashable, so that the same binding made twice is one."""

    source: str
    destination: Destination
    routing_key: str
    arguments: bytes           # a table as it lies on the wire


HASHING: Final = "x-consistent-hash"
BY_HEADER: Final = "hash-header"
BY_PROPERTY: Final = "hash-property"
PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")
WEIGHT: Final = re.compile(r"[+-]?\d{1,9}", re.ASCII)
DRAWN_BYTES: Final = 8


def binding_of(source: str, destination: Destination, routing_key: str, arguments: Table) -> Binding:
    return Binding(source, destination, routing_key, encode_table(dict(sorted(arguments.items()))))


class Router(Protocol):
    """The bindings of one exchange."""

    def add(self, binding: Binding, arguments: Table) -> None: ...

    def remove(self, binding: Binding) -> None: ...

    def route(self, routing_key: str, headers: Table, properties: Properties) -> Iterable[Destination]:
        """Destinations, perhaps more than once."""

    @property
    def looks_inside(self) -> bool:
        """Whether messages with one routing key may go to different places."""


class DirectRouter:
    looks_inside = False

    def __init__(self) -> None:
        self._by_key: dict[str, dict[Binding, None]] = {}

    def add(self, binding: Binding, arguments: Table) -> None:
        self._by_key.setdefault(binding.routing_key, {})[binding] = None

    def remove(self, binding: Binding) -> None:
        bindings = self._by_key[binding.routing_key]
        del bindings[binding]
        if not bindings:
            del self._by_key[binding.routing_key]

    def route(self, routing_key: str, headers: Table, properties: Properties) -> Iterable[Destination]:
        return [binding.destination for binding in self._by_key.get(routing_key, ())]


class FanoutRouter:
    looks_inside = False

    def __init__(self) -> None:
        self._bindings: dict[Binding, None] = {}

    def add(self, binding: Binding, arguments: Table) -> None:
        self._bindings[binding] = None

    def remove(self, binding: Binding) -> None:
        del self._bindings[binding]

    def route(self, routing_key: str, headers: Table, properties: Properties) -> Iterable[Destination]:
        return [binding.destination for binding in self._bindings]


class TopicRouter:
    looks_inside = False

    def __init__(self) -> None:
        self._trie: FilterTrie[Binding] = FilterTrie()

    def add(self, binding: Binding, arguments: Table) -> None:
        self._trie.insert(_pattern(binding.routing_key), binding)

    def remove(self, binding: Binding) -> None:
        self._trie.remove(_pattern(binding.routing_key), binding)

    def route(self, routing_key: str, headers: Table, properties: Properties) -> Iterable[Destination]:
        levels = (FIRST, *map(_literal, routing_key.split("."))) if routing_key else (FIRST,)
        return [binding.destination for binding in self._trie.match(levels)]


def _pattern(binding_key: str) -> tuple[str, ...]:
    words = binding_key.split(".") if binding_key else []
    return (FIRST, *(ONE if word == "*" else MANY if word == "#" else _literal(word) for word in words))


def _literal(word: str) -> str:
    """`+` and `#` are wildcards in the trie; as words of a key they are what they are."""
    return "\0" + word if word in (ONE, MANY) else word


class HeadersRouter:
    """Looks at every binding for every message: there is no way round it, and such exchanges have few bindings."""

    looks_inside = True

    def __init__(self) -> None:
        self._bindings: dict[Binding, tuple[str, Table]] = {}

    def add(self, binding: Binding, arguments: Table) -> None:
        match = x_match(arguments)
        wanted = {name: field for name, field in arguments.items()
                  if (name != "x-match" if match.endswith(WITH_X) else not name.startswith("x-"))}
        self._bindings[binding] = (match.removesuffix(WITH_X), wanted)

    def remove(self, binding: Binding) -> None:
        del self._bindings[binding]

    def route(self, routing_key: str, headers: Table, properties: Properties) -> Iterable[Destination]:
        destinations = []
        for binding, (match, wanted) in self._bindings.items():
            agreed = [_agrees(field, headers.get(name)) for name, field in wanted.items()]
            if any(agreed) if match == "any" else all(agreed):
                destinations.append(binding.destination)
        return destinations


def x_match(arguments: Table) -> str:
    """How a binding of a headers exchange matches. Raises ChannelFault 406."""
    field = arguments.get("x-match")
    if field is None:
        return X_MATCHES[0]
    if field.type != "S":
        given = plain(field)
        shown = "undefined" if given is None else str(given).lower() if isinstance(given, bool) else given
        raise precondition(f"Invalid x-match field type {TYPE_NAMES[field.type]} (value {shown}); expected longstr")
    value: str = field.value.decode(errors="replace")
    if value not in X_MATCHES:
        shown = f'<<"{value}">>' if value else "<<>>"
        raise precondition(f"Invalid x-match field value {shown}; expected all, any, all-with-x, or any-with-x")
    return value


def _agrees(wanted: Field, header: Field | None) -> bool:
    """A void asks only that the header is there; a value must be the same and of the same type."""
    return header is not None and (wanted.type == "V" or wanted == header)


class HashingRouter:  # decision 195
    """The consistent-hash exchange: each message goes to one of the bindings, those with the same key to the same.

        x-consistent-hash     the routing key is hashed; with the argument `hash-header` that header, with
                              `hash-property` `message_id`, `correlation_id` or `timestamp`
        a binding's key       its weight: a whole number from 1 on

    Every binding draws a number for the key, the larger its weight the better, and the highest wins (rendezvous
    hashing). So a binding that comes or goes moves the keys that it wins or had, and no others. Looks at every binding
    for every message, as a headers exchange does.
    """

    def __init__(self, arguments: Table) -> None:
        """Raises ChannelFault 406."""
        self._header, self._property = _text(arguments, BY_HEADER), _text(arguments, BY_PROPERTY)
        if self._header is not None and self._property is not None:
            raise precondition("hash-header and hash-property are mutually exclusive")
        if self._property is not None and self._property not in PROPERTIES:
            raise precondition(f"Unsupported property: {self._property}")
        self._weights: dict[Binding, tuple[int, bytes]] = {}           # with what its numbers are drawn of
        self.looks_inside = self._header is not None or self._property is not None

    def add(self, binding: Binding, arguments: Table) -> None:
        self._weights[binding] = weight_of(binding), f"{binding.destination.kind} {binding.destination.name}".encode()

    def remove(self, binding: Binding) -> None:
        del self._weights[binding]

    def route(self, routing_key: str, headers: Table, properties: Properties) -> Iterable[Destination]:
        if not self._weights:
            return ()
        hashed = blake2b(self._said(routing_key, headers, properties), digest_size=16).digest()
        best = max(self._weights, key=lambda binding: _draw(hashed, *self._weights[binding]))
        return (best.destination,)

    def _said(self, routing_key: str, headers: Table, properties: Properties) -> bytes:
        """What is hashed; what is not there is as good as empty."""
        if self._property is not None:
            said = properties.get(self._property)
        elif self._header is not None:
            field = headers.get(self._header)
            said = None if field is None else plain(field)
        else:
            said = routing_key
        return b"" if said is None else str(said).encode(errors="replace")


def weight_of(binding: Binding) -> int:
    """Raises ChannelFault 406 where a binding's key is no weight."""
    key = binding.routing_key
    if WEIGHT.fullmatch(key) is None:
        raise precondition("The binding key must be an integer: " + (f'<<"{key}">>' if key else "<<>>"))
    if int(key) < 1:
        raise precondition("The binding key must be greater than 0")
    return int(key)


def _draw(hashed: bytes, weight: int, name: bytes) -> float:
    """A number for a binding: the chance to be the highest is in proportion to its weight."""
    drawn = int.from_bytes(blake2b(name, digest_size=DRAWN_BYTES, key=hashed).digest(), "big")
    return -weight / log((drawn + 0.5) / (1 << 8 * DRAWN_BYTES))


def _text(arguments: Table, name: str) -> str | None:
    field = arguments.get(name)
    if field is None:
        return None
    if field.type != "S":
        raise precondition(f"Invalid argument '{name}': {described(field)}")
    return str(field.value.decode(errors="replace"))


PLAIN: Final[dict[str, Callable[[Table], Router]]] = {
    "direct": lambda _: DirectRouter(), "fanout": lambda _: FanoutRouter(), "topic": lambda _: TopicRouter(),
    "headers": lambda _: HeadersRouter(),
}
ROUTERS: Final[dict[str, Callable[[Table], Router]]] = {
    **PLAIN, HASHING: HashingRouter, DELAYED: lambda arguments: PLAIN[delayed_type(arguments)](arguments),
}
"""Makes the router of an exchange of a type, of its arguments; refuses arguments that cannot be (ChannelFault 406)."""


def delay_in(headers: Table) -> int:
    """For how many ms a delayed-message exchange lets a message with these headers wait."""
    field = headers.get(DELAY)
    return max(0, int(field.value)) if field is not None and field.type in INTEGERS else 0


def waited(delay_ms: int) -> Field:
    """What `x-delay` says to who gets the message, as RabbitMQ's plug-in says it: it has waited, and does not again."""
    return Field("l", -delay_ms)


def delayed_type(arguments: Table) -> str:
    """The type by which an exchange routes what was delayed. Raises ChannelFault 406."""
    field = arguments.get("x-delayed-type")
    if field is None or field.type != "S":
        raise precondition("Invalid argument, 'x-delayed-type' must be an existing exchange type")
    kind: str = field.value.decode(errors="replace")
    if kind not in PLAIN:
        raise precondition("Invalid argument, 'x-delayed-type' must be an existing exchange type")
    return kind


class Exchange:
    """One exchange with the bindings of which it is the source."""

    __slots__ = ("name", "type", "durable", "auto_delete", "internal", "arguments", "declared_alternate", "alternate",
                 "policy", "bindings", "links", "router")

    def __init__(self, name: str, kind: str, *, durable: bool, auto_delete: bool, internal: bool,
                 arguments: Table) -> None:
        self.name = name
        self.type = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments
        alternate = arguments.get("alternate-exchange")
        self.declared_alternate: str | None = None if alternate is None else alternate.value.decode(errors="replace")
        self.alternate = self.declared_alternate       # or what its policy says
        self.policy: Policy | None = None
        self.bindings: dict[Binding, Table] = {}
        self.links = 0                                 # of them, those that lead to exchanges
        self.router: Router = ROUTERS[kind](arguments)

    def bind(self, binding: Binding, arguments: Table) -> bool:
        """False if it was bound so already."""
        if binding in self.bindings:
            return False
        if self.type == "headers":
            x_match(arguments)
        elif self.type == HASHING:
            weight_of(binding)
        self.bindings[binding] = arguments
        self.links += binding.destination.kind == EXCHANGE
        self.router.add(binding, arguments)
        return True

    def unbind(self, binding: Binding) -> bool:
        """False if it was not bound so."""
        if self.bindings.pop(binding, None) is None:
            return False
        self.links -= binding.destination.kind == EXCHANGE
        self.router.remove(binding)
        return True
