"""What other doors publish, as exchanges lead it on where no filter of addresses says it. Pure.

A binding of a queue to a direct, fanout or topic exchange is a filter, which the kernel keeps (`KernelQueues.hear`).
What passes a headers or a hashing exchange, or one exchange on its way to another, is routed here, as the kernel asks:

    all that passes has direct, fanout and topic exchanges    once an address
    something looks at headers or properties                  once a message

An alternate exchange is a net for what AMQP clients send amiss: what other doors send does not get there.
"""
# decision 228
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gatehouse.gateways.amqp import codec, mapping, properties
from gatehouse.gateways.amqp.addresses import TOPIC_EXCHANGE, AmqpName, amqp_by_exchange, amqp_whole
from gatehouse.gateways.amqp.exchanges import EXCHANGE, Binding, Destination, Exchange
from gatehouse.kernel.addresses.address import LEVEL_ESCAPES, escape
from gatehouse.kernel.addresses.filters import MANY
from gatehouse.kernel.groups.group_settings import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gatehouse.gateways.amqp.vhost import AmqpQueue, Change, VirtualHost
    from gatehouse.kernel.api import GroupsPort

FILTERED: Final = ("direct", "fanout", "topic")


class Hearing:
    """One virtual host's; a `Chooser` of the kernel."""

    def __init__(self, vhost: VirtualHost, groups: GroupsPort, wall_ms: Callable[[], int]) -> None:
        self._vhost = vhost
        self._groups = groups
        self._wall_ms = wall_ms
        self._filters: dict[str, str] = {}             # by exchange: the addresses that are asked about

    def follow(self, changes: Iterable[Change]) -> None:
        """These have come or gone: be asked about more addresses, or about fewer, and anew about those from whose
        exchange a message may come there."""
        names = {change.source: None for change in changes if isinstance(change, Binding)}
        for change in changes:
            if isinstance(change, Destination) and change.kind == EXCHANGE:
                names[change.name] = None
        for name in names:
            exchange = self._vhost.exchanges.get(name)
            if exchange is not None and leads_on(exchange):
                self._filters[name] = MANY if name == TOPIC_EXCHANGE else f"{escape(name, LEVEL_ESCAPES)}/{MANY}"
            elif name in self._filters:
                self._groups.unbind_chooser(self._filters.pop(name), self._vhost.name)
        for name in self._leading_to(names):
            if name in self._filters:
                self._groups.bind_chooser(self._filters[name], self, self._vhost.name)

    def _leading_to(self, names: Iterable[str]) -> dict[str, None]:
        """These exchanges, and all that are bound to them, however far."""
        leading = dict.fromkeys(names)
        pending = list(leading)
        while pending:
            for binding in self._vhost.leading_to(Destination(EXCHANGE, pending.pop())):
                if binding.source not in leading:
                    leading[binding.source] = None
                    pending.append(binding.source)
        return leading

    # ---- asked by the kernel

    def choose(self, address: str) -> tuple[int, ...] | None:
        """The queues that every message to this address enters; None: it depends on the message."""
        names = self._names(address)
        if any(exchange.router.looks_inside for name in names
               for exchange in self._vhost.reachable(name.exchange, alternates=False)):
            return None
        return _partition_ids([queue for name in names
                               for queue in self._vhost.route(name.exchange, [name.routing_key], alternates=False)])

    def choose_for(self, address: str, headers: bytes, attributes: int, timestamp_ms: int) -> tuple[int, ...]:
        """The queues that one message enters."""
        queues: list[AmqpQueue] = []
        for name in self._names(address):
            side = mapping.foreign_side(name, headers, attributes, timestamp_ms, self._wall_ms())
            said = properties.read(side[codec.names_end(side):])
            queues += self._vhost.route(name.exchange, [name.routing_key], said.get("headers", {}), said,
                                        alternates=False)
        return _partition_ids(queues)

    def _names(self, address: str) -> list[AmqpName]:
        """The exchanges that are asked about, and the routing keys there."""
        return [name for name in (amqp_whole(address), amqp_by_exchange(address))
                if name is not None and name.exchange in self._filters]


def leads_on(exchange: Exchange) -> bool:
    """Whether an exchange's bindings are more than filters of addresses that lead to queues."""
    return exchange.links > 0 or bool(exchange.bindings) and exchange.type not in FILTERED


def _partition_ids(queues: list[AmqpQueue]) -> tuple[int, ...]:
    """What the kernel calls these queues; a stream has what its own topic gets."""
    return tuple(dict.fromkeys([queue.kernel_queue.first_partition_id for queue in queues
                                if isinstance(queue.kernel_queue, Queue)]))
