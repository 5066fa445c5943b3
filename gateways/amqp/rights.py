"""What one connection may do, asked of admission and refused in RabbitMQ's words (403 ACCESS_REFUSED).

    RabbitMQ's right                          asked here
    configure a queue or exchange             create (declare), alter (delete) its address: `$queue/NAME`, `EXCHANGE`
    write to an exchange                      publish at the address of exchange and routing key, and of every copy's
    write to a queue (bind), read (consume)   publish, consume at `$queue/NAME`
    read from an exchange (bind)              consume the filter that the binding is
    see an exchange (passive declare)         any of these at it, or at an address below it
    write to an exchange that is fed          alter it: exchanges bound to it, alternates and dead letters of any key

A queue that is exclusive to the connection is its own: what got into it was allowed there. One with a generated name
may be made by everybody.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.addresses import QUEUE_LEVEL, queue_address
from gatehouse.gateways.admission.audit import Author
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.amqp.addresses import address_of_amqp, filter_of_binding
from gatehouse.gateways.amqp.broker import DOOR_NAME
from gatehouse.gateways.amqp.errors import ChannelFault, refused
from gatehouse.gateways.amqp.vhost import RESERVED
from gatehouse.kernel.addresses.address import LEVEL_ESCAPES, escape
from gatehouse.kernel.addresses.filters import MANY, parse_filter
from gatehouse.kernel.errors import InvalidAddress, InvalidFilter, KernelError
from gatehouse.kernel.groups.sharing import SHARE

if TYPE_CHECKING:
    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.amqp.exchanges import Binding
    from gatehouse.gateways.amqp.vhost import AmqpQueue, VirtualHost

CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"


class AmqpRights:
    """One connection's, which is also what owns its exclusive queues."""

    def __init__(self, admission: Admission, principal: Principal, vhost: VirtualHost, owner: object, peer: str
                 ) -> None:
        self.principal = principal
        self._author = Author(principal.name, DOOR_NAME, peer)
        self._admission = admission
        self._vhost = vhost
        self._owner = owner

    def renew(self, principal: Principal) -> None:
        """The same user, who has shown himself again."""
        self.principal = principal

    def audit(self, action: str, details: Mapping[str, object]) -> None:
        """Say on the audit topic what this connection has changed."""
        self._admission.audit(self._author, action, {**details, "vhost": self._vhost.name})

    # ---- queues; each raises ChannelFault 403

    def require_queue(self, name: str, operation: Operation, access: str) -> None:
        if not self._may_queue(name, operation):
            raise self._refused(access, f"queue '{name}'")

    def require_sight(self, name: str, access: str) -> None:
        """A queue's counts, and whether it is there, are for whoever may do anything with it."""
        if not any(self._may_queue(name, operation)
                   for operation in (Operation.CONSUME, Operation.PUBLISH, Operation.CREATE)):
            raise self._refused(access, f"queue '{name}'")

    def require_source(self, queue: AmqpQueue) -> None:
        """Require the right to take messages from a queue, or as a member of `$share/GROUP/FILTER`."""
        if not self.may_take(queue):
            raise self._refused(READ, f"queue '{queue.name}'")

    def may_take(self, queue: AmqpQueue) -> bool:
        if queue.name.startswith(SHARE):
            return self._admission.may_share(self.principal, queue.name)
        if queue.stream is not None:           # what is in it is its topic's
            return self._admission.may_topic(self.principal, Operation.CONSUME, queue.stream.topic) and (
                queue.name not in self._vhost.queues or self._may_queue(queue.name, Operation.CONSUME))
        return self._owns(queue) or self._may_queue(queue.name, Operation.CONSUME)

    def require_share(self, name: str) -> None:
        """Require the right to a leased group, by its name `$share/GROUP/FILTER`, before the group is made. A name that
        is not valid is let through: it is refused later, as invalid."""
        try:
            allowed = self._admission.may_share(self.principal, name)
        except InvalidFilter:
            return
        if not allowed:
            raise self._refused(READ, f"queue '{name}'")

    def require_change(self, queue: AmqpQueue, operation: Operation, access: str) -> None:
        """Require a right to a queue, as `require_queue` does, unless the queue is the connection's own."""
        if queue.stream is not None and operation is Operation.ALTER \
                and not self._admission.may_topic(self.principal, operation, queue.stream.topic):
            raise self._refused(access, f"queue '{queue.name}'")
        if not self._owns(queue):
            self.require_queue(queue.name, operation, access)

    def require_new_queue(self, queue: AmqpQueue, generated: bool) -> None:
        """Require the right to declare a queue, and to send its dead letters where they would go."""
        if not (generated and self._owns(queue)):  # decision 94
            self.require_queue(queue.name, Operation.CREATE, CONFIGURE)
        if queue.settings.is_stream and not self._admission.may_topic(self.principal, Operation.CREATE, queue.name):
            raise self._refused(CONFIGURE, f"queue '{queue.name}'")
        exchange, key = queue.settings.dead_letter_exchange, queue.settings.dead_letter_key
        if exchange is not None and key is not None:
            self.require_publish(exchange, [key])
        elif exchange is not None:
            self.require_feeding(exchange)

    def _owns(self, queue: AmqpQueue) -> bool:  # decision 94
        return queue.owner is self._owner

    def _may_queue(self, name: str, operation: Operation) -> bool:
        return self._may(operation, queue_address(name))

    # ---- transactions

    # ---- exchanges and bindings

    def sees_exchange(self, name: str) -> bool:
        """Whether the user may know that an exchange is there: who may do anything with it may know. Exchanges that are
        always there are no secret."""
        if not name or name.startswith(RESERVED):
            return True
        level = escape(name, LEVEL_ESCAPES)
        return (any(self._may(operation, level) for operation in (Operation.CREATE, Operation.ALTER))
                or any(self._admission.may_some(self.principal, operation, f"{level}/{MANY}")
                       for operation in (Operation.PUBLISH, Operation.CONSUME)))

    def require_exchange_sight(self, name: str, access: str) -> None:
        if not self.sees_exchange(name):
            raise self._refused(access, f"exchange '{name}'")

    def require_exchange(self, name: str, operation: Operation) -> None:
        """Require the right to declare or delete an exchange."""
        if not self._may(operation, escape(name, LEVEL_ESCAPES)):
            raise self._refused(CONFIGURE, f"exchange '{name}'")

    def require_feeding(self, name: str) -> None:  # decision 92
        """Require the right to send messages of any key to an exchange from elsewhere. The default exchange writes to
        every queue."""
        if not self._may(Operation.ALTER, escape(name, LEVEL_ESCAPES) if name else QUEUE_LEVEL):
            raise self._refused(WRITE, f"exchange '{name}'")

    def require_publish(self, exchange: str, keys: list[str]) -> None:  # decision 92
        for key in keys:
            address = address_of_amqp(exchange, key) if exchange else queue_address(key)
            if not self._may_there(Operation.PUBLISH, address, exchange):
                raise self._refused(WRITE, f"topic '{key}' in exchange '{exchange}'" if exchange else f"queue '{key}'")

    def require_hearing(self, exchange: str, key: str) -> None:
        """Require the right to bind something to an exchange."""
        if not self.may_hear(exchange, key):
            raise self._refused(READ, f"topic '{key}' in exchange '{exchange}'")

    def may_hear(self, exchange: str, key: str) -> bool:
        declaration = self._vhost.exchanges.get(exchange)
        return self.sees_exchange(exchange) if declaration is None \
            else self._may_there(Operation.CONSUME, heard_by(exchange, declaration.type, key), exchange)

    def may_keep(self, binding: Binding) -> bool:
        """Whether a binding of the connection's own queue is still allowed."""
        return self.may_hear(binding.source, binding.routing_key)

    # ---- inside

    def _may(self, operation: Operation, address: str) -> bool:
        try:
            return self._judge(operation, address)
        except (InvalidAddress, InvalidFilter):
            return True                        # nothing can be there: whoever goes on is told so

    def _may_there(self, operation: Operation, address: str, exchange: str) -> bool:
        """Whether an operation is allowed at an address of an exchange. Where the address is invalid: whether the user
        may see the exchange, since a client that goes on learns that it is there."""
        try:
            return self._judge(operation, address)
        except (InvalidAddress, InvalidFilter):
            return self.sees_exchange(exchange)

    def _judge(self, operation: Operation, address: str) -> bool:
        """Raises InvalidAddress, InvalidFilter."""
        if operation is Operation.CONSUME:
            parse_filter(address)
        return self._admission.may(self.principal, operation, address)

    def _refused(self, access: str, what: str) -> ChannelFault:
        return refused(f"{access} access to {what} in vhost '{self._vhost.name}' refused for user "
                       f"'{self.principal.name}'")


def heard_by(exchange: str, exchange_type: str, key: str) -> str:  # decision 92
    """The filter of all addresses that a binding can bring."""
    if exchange_type == "topic":
        return "/".join(filter_of_binding(exchange, key))
    if exchange_type == "direct":
        try:
            return address_of_amqp(exchange, key)
        except KernelError:
            return key
    return f"{escape(exchange, LEVEL_ESCAPES)}/{MANY}"
