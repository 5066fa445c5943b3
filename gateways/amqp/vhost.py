"""One virtual host: its exchanges, queues and bindings, the rules of changing them, and where a message goes. Pure.

Changes take effect at once and are returned, so that the caller can make them durable before they are answered.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gatehouse.gateways.amqp.arguments import (
    TAKEN,
    check_field,
    check_queue_arguments,
    check_same,
    check_type,
    queue_type,
    read_queue_arguments,
)
from gatehouse.gateways.amqp.errors import in_use, locked, not_found, precondition, refused
from gatehouse.gateways.amqp.exchanges import (
    EXCHANGE,
    QUEUE,
    ROUTERS,
    Binding,
    Destination,
    Exchange,
    Properties,
    binding_of,
)
from gatehouse.gateways.amqp.policies import Policies, apply_to_queue
from gatehouse.gateways.amqp.tables import Table

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.channel import Consumer
    from gatehouse.gateways.amqp.policies import Policy

RESERVED: Final = "amq."
PREDECLARED: Final = (("amq.direct", "direct"), ("amq.fanout", "fanout"), ("amq.topic", "topic"),
                      ("amq.headers", "headers"), ("amq.match", "headers"))
NO_HEADERS: Final = Table()
NO_PROPERTIES: Final[Properties] = {}


class StreamPlace(NamedTuple):
    """The partition of a topic that a stream is."""

    topic: str
    partition: int
    is_made: bool              # whether the stream has made the topic, which goes with it


class AmqpQueue:
    """A queue as clients see it; its messages are the kernel's."""

    __slots__ = ("name", "durable", "auto_delete", "owner", "arguments", "declared", "settings", "policy",
                 "operator_policy", "kernel_queue", "stream", "consumers", "vhost", "where")

    def __init__(self, vhost: VirtualHost, name: str, *, durable: bool, auto_delete: bool, owner: object | None,
                 arguments: Table) -> None:
        """Its arguments were checked when it was declared."""
        self.vhost = vhost
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner                     # the connection that it is exclusive to
        self.arguments = arguments
        self.where = f"queue '{name}' in vhost '{vhost.name}'"         # for refusals
        self.declared = read_queue_arguments(arguments)
        self.settings = self.declared          # with what its policy says
        self.policy: Policy | None = None
        self.operator_policy: Policy | None = None
        self.kernel_queue: Any = None                 # the kernel's, once it is declared there
        self.stream: StreamPlace | None = None        # what a stream is, once it is declared there
        self.consumers: list[Consumer] = []


Change = Exchange | AmqpQueue | Binding | Destination
"""What must be written: what is new, a binding that is new or gone, or the name of a queue or exchange that is gone."""


class VirtualHost:
    """`adopt` looks for a queue of this name that another door has made, `others` for all such names."""

    def __init__(self, name: str, adopt: Callable[[VirtualHost, str], AmqpQueue | None],
                 others: Callable[[VirtualHost], Iterable[str]] = lambda vhost: ()) -> None:
        self.name = name
        self._adopt = adopt
        self._others = others
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, AmqpQueue] = {}
        self.owned: dict[object, dict[str, AmqpQueue]] = {}
        """Queues by the connection that they are exclusive to, and by name."""

        self.policies = Policies()
        self.operator_policies = Policies()
        self._bound: dict[Destination, dict[Binding, None]] = {}       # bindings by where they lead
        self.version = 0
        """Moves with every change that could alter where a message goes."""

        for exchange, kind in PREDECLARED:
            self.exchanges[exchange] = Exchange(exchange, kind, durable=True, auto_delete=False,
                                                internal=False, arguments={})

    # ---- exchanges

    def require_exchange(self, name: str) -> Exchange:
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise not_found("exchange", name, self.name)
        return exchange

    def declare_exchange(self, name: str, kind: str, *, durable: bool, auto_delete: bool, internal: bool,
                         arguments: Table) -> Exchange | None:
        """The exchange if it is new; None if it was there just so. Raises AmqpError."""
        if kind not in ROUTERS:
            raise precondition(f"unknown exchange type '{kind}'")
        _not_default(name)
        exchange = self.exchanges.get(name)
        if exchange is not None:
            where = f"exchange '{name}' in vhost '{self.name}'"
            check_field("type", exchange.type, kind, where)
            check_field("durable", exchange.durable, durable, where)
            check_field("auto_delete", exchange.auto_delete, auto_delete, where)
            check_field("internal", exchange.internal, internal, where)
            check_same(("alternate-exchange",), exchange.arguments, arguments, where)
            return None
        _not_reserved("exchange", name)
        check_type("alternate-exchange", arguments.get("alternate-exchange"), "S",
                   f"exchange '{name}' in vhost '{self.name}'")
        exchange = Exchange(name, kind, durable=durable, auto_delete=auto_delete, internal=internal,
                            arguments=arguments)
        self.policies.apply_to_exchange(exchange)
        self.exchanges[name] = exchange
        self.version += 1
        return exchange

    def check_exchange(self, name: str) -> None:
        """A passive declare."""
        _not_default(name)
        self.require_exchange(name)

    def delete_exchange(self, name: str, if_unused: bool) -> list[Binding | Destination]:
        """What is gone with it, itself last; nothing if there was none. Raises ChannelFault."""
        _not_default(name)
        if name.startswith(RESERVED):
            raise refused(f"deletion of system exchange '{name}' in vhost '{self.name}' not allowed")
        exchange = self.exchanges.get(name)
        if exchange is None:
            return []
        if if_unused and exchange.bindings:
            raise in_use("exchange", name, self.name, "in use")
        return self._drop_exchange(exchange)

    def _drop_exchange(self, exchange: Exchange) -> list[Binding | Destination]:
        self.version += 1
        del self.exchanges[exchange.name]
        gone: list[Binding | Destination] = []
        for binding in exchange.bindings:
            self._bound[binding.destination].pop(binding, None)
            gone.append(binding)
        place = Destination(EXCHANGE, exchange.name)
        return [*gone, *self._drop_bindings_to(place), place]

    def forget_exchange(self, exchange: Exchange) -> None:
        """Undo the declaration of an exchange, as if it had never been declared."""
        if self.exchanges.get(exchange.name) is exchange:
            self._drop_exchange(exchange)

    # ---- queues

    def names_of_others(self) -> Iterable[str]:
        """Queues that other doors have made."""
        return self._others(self)

    def find_queue(self, name: str) -> AmqpQueue | None:
        """The queue of this name, looked for among other doors' queues too; None where there is none."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self._adopt(self, name)
            if queue is not None:              # nothing that is remembered leads there, or would have: no new version
                self.queues[name] = queue
        return queue

    def require_queue(self, name: str, asker: object) -> AmqpQueue:
        """Raises ChannelFault 404, 405."""
        queue = self.find_queue(name)
        if queue is None:
            raise not_found("queue", name, self.name)
        if queue.owner is not None and queue.owner is not asker:
            raise locked(name, self.name)
        return queue

    def declare_queue(self, name: str, *, durable: bool, auto_delete: bool, owner: object | None, asker: object,
                      arguments: Table, generated: bool = False) -> tuple[AmqpQueue, bool]:
        """(queue, whether it is new). `owner` is the asker for an exclusive queue. Raises AmqpError."""
        queue = self.find_queue(name)
        if queue is not None:
            if queue.owner is not owner or queue.owner is not None and queue.owner is not asker:
                raise locked(name, self.name)
            check_field("durable", queue.durable, durable, queue.where)
            check_field("auto_delete", queue.auto_delete, auto_delete, queue.where)
            check_same(TAKEN[queue_type(queue.arguments)], queue.arguments, arguments, queue.where)
            return queue, False
        if not generated:
            _not_reserved("queue", name)
        check_queue_arguments(arguments, f"queue '{name}' in vhost '{self.name}'")
        queue = AmqpQueue(self, name, durable=durable, auto_delete=auto_delete, owner=owner, arguments=arguments)
        if queue.settings.is_quorum or queue.settings.is_stream:
            _check_lasting(queue, "quorum" if queue.settings.is_quorum else "stream", generated)
        apply_to_queue(queue, self.policies, self.operator_policies)
        self.queues[name] = queue
        if owner is not None:
            self.owned.setdefault(owner, {})[name] = queue
        self.version += 1
        return queue, True

    def delete_queue(self, queue: AmqpQueue) -> list[Binding | Destination]:
        """What is gone with it, itself last."""
        self.version += 1
        del self.queues[queue.name]
        if queue.owner is not None:
            owned = self.owned[queue.owner]
            del owned[queue.name]
            if not owned:
                del self.owned[queue.owner]
        place = Destination(QUEUE, queue.name)
        return [*self._drop_bindings_to(place), place]

    # ---- bindings

    def bind(self, source: str, destination: Destination, routing_key: str, arguments: Table) -> Binding | None:
        """The binding if it is new. The destination is known to exist. Raises ChannelFault."""
        _not_default(source)
        exchange = self.require_exchange(source)
        binding = binding_of(source, destination, routing_key, arguments)
        if not exchange.bind(binding, arguments):
            return None
        self._bound.setdefault(destination, {})[binding] = None
        self.version += 1
        return binding

    def unbind(self, source: str, destination: Destination, routing_key: str,
               arguments: Table) -> list[Binding | Destination]:
        """What is gone; nothing if it was not bound so. An exchange that deletes itself may go too."""
        _not_default(source)
        exchange = self.exchanges.get(source)
        binding = binding_of(source, destination, routing_key, arguments)
        if exchange is None or not exchange.unbind(binding):
            return []
        self._bound[destination].pop(binding, None)
        self.version += 1
        return [binding, *self._drop_unused(exchange)]

    def forget_binding(self, binding: Binding) -> None:
        """Undo a binding, as if it had never been made."""
        self.exchanges[binding.source].unbind(binding)
        self._bound[binding.destination].pop(binding, None)
        self.version += 1

    def _drop_bindings_to(self, place: Destination) -> list[Binding | Destination]:
        """And exchanges that delete themselves without these, and what led to those, however many follow each other."""
        gone: list[Binding | Destination] = []
        places = [place]
        while places:
            for binding in self._bound.pop(places.pop(), {}):
                exchange = self.exchanges.get(binding.source)
                if exchange is not None and exchange.unbind(binding):
                    gone.append(binding)
                    if self._is_unused(exchange):
                        del self.exchanges[exchange.name]
                        places.append(Destination(EXCHANGE, exchange.name))
                        gone.append(places[-1])
        return gone

    def _drop_unused(self, exchange: Exchange) -> list[Binding | Destination]:
        return self._drop_exchange(exchange) if self._is_unused(exchange) else []

    def _is_unused(self, exchange: Exchange) -> bool:
        return exchange.auto_delete and not exchange.bindings and exchange.name in self.exchanges

    def is_durable(self, binding: Binding) -> bool:
        """Whether both ends of it outlive the hub."""
        source = self.exchanges.get(binding.source)
        kind, name = binding.destination
        target = self.queues.get(name) if kind == QUEUE else self.exchanges.get(name)
        return source is not None and source.durable and target is not None and target.durable

    def restore_exchange(self, exchange: Exchange) -> None:
        """Take in an exchange that outlived the hub."""
        self.exchanges[exchange.name] = exchange
        self.version += 1

    def restore_queue(self, queue: AmqpQueue) -> None:
        """Take in a queue that outlived the hub."""
        self.queues[queue.name] = queue
        self.version += 1

    def restore_binding(self, binding: Binding, arguments: Table) -> bool:
        """Take in a binding that outlived the hub, after both its ends; False where one of them is gone. A queue may be
        another door's."""
        kind, name = binding.destination
        is_there = self.find_queue(name) is not None if kind == QUEUE else name in self.exchanges
        if binding.source not in self.exchanges or not is_there:
            return False
        self.exchanges[binding.source].bind(binding, arguments)
        self._bound.setdefault(binding.destination, {})[binding] = None
        self.version += 1
        return True

    def hears(self, queue: AmqpQueue, source: str) -> bool:
        """Whether a queue is bound to this exchange, or to one that is bound to it, however far."""
        places = {Destination(QUEUE, queue.name): None}
        pending = list(places)
        while pending:
            for binding in self._bound.get(pending.pop(), ()):
                if binding.source == source:
                    return True
                place = Destination(EXCHANGE, binding.source)
                if place in self._bound and place not in places:
                    places[place] = None
                    pending.append(place)
        return False

    def bindings_to(self, queue: AmqpQueue) -> list[Binding]:
        """What leads to a queue."""
        return self.leading_to(Destination(QUEUE, queue.name))

    def leading_to(self, place: Destination) -> list[Binding]:
        """The bindings of a destination."""
        return list(self._bound.get(place, ()))

    def is_bound(self, binding: Binding) -> bool:
        source = self.exchanges.get(binding.source)
        return source is not None and binding in source.bindings

    # ---- routing

    def route(self, exchange: str, keys: Iterable[str], headers: Table = NO_HEADERS,
              properties: Properties = NO_PROPERTIES, *, alternates: bool = True) -> list[AmqpQueue]:
        """The queues that a message enters, each once. The exchange is known to exist."""
        names: dict[str, None] = {}
        seen = {exchange}
        pending = [exchange]
        while pending:
            name = pending.pop()
            for kind, to in self._destinations(name, keys, headers, properties, alternates):
                if kind == QUEUE:
                    names[to] = None
                elif to not in seen:
                    seen.add(to)
                    pending.append(to)
        return [self.queues[name] for name in names if name in self.queues]

    def reachable(self, name: str, *, alternates: bool = True) -> list[Exchange]:
        """The exchange and all that a message may pass from it."""
        names: dict[str, None] = {name: None}
        pending = [name]
        while pending:
            exchange = self.exchanges.get(pending.pop())
            if exchange is not None:
                behind = [to for kind, to in (binding.destination for binding in exchange.bindings) if kind == EXCHANGE]
                for to in behind if exchange.alternate is None or not alternates else [*behind, exchange.alternate]:
                    if to not in names:
                        names[to] = None
                        pending.append(to)
        return [self.exchanges[exchange_name] for exchange_name in names if exchange_name in self.exchanges]

    def _destinations(self, name: str, keys: Iterable[str], headers: Table, properties: Properties, alternates: bool
                      ) -> list[Destination]:
        """Where one exchange sends it; what it sends nowhere goes to its alternate exchange."""
        if name == "":
            return [Destination(QUEUE, key) for key in keys if self.find_queue(key) is not None]
        exchange = self.exchanges.get(name)
        if exchange is None:
            return []
        destinations = [place for key in keys for place in exchange.router.route(key, headers, properties)]
        if not destinations and exchange.alternate is not None and alternates:
            return [Destination(EXCHANGE, exchange.alternate)]
        return destinations


def _check_lasting(queue: AmqpQueue, kind: str, generated: bool) -> None:
    """A quorum queue, or a stream, has a name of its own and outlives who declared it. Raises ChannelFault 406."""
    if generated:
        raise precondition(f"Cannot declare a server-named queue for type rabbit_{kind}_queue")
    for name, wrong in (("auto-delete", queue.auto_delete), ("exclusive-owner", queue.owner is not None),
                        ("non-durable", not queue.durable)):
        if wrong:
            raise precondition(f"invalid property '{name}' for {queue.where}")


def _not_default(exchange: str) -> None:
    if exchange == "":
        raise refused("operation not permitted on the default exchange")


def _not_reserved(what: str, name: str) -> None:
    if name.startswith(RESERVED):
        raise refused(f"{what} name '{name}' contains reserved prefix '{RESERVED}*'")
