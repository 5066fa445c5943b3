"""What all sessions of this door share: the virtual hosts, the queues' life, and what of both is durable.

Durable definitions are the kernel's keyed records: `exchange NAME`, `binding SOURCE KIND NAME KEY ARGUMENTS`. A queue's
is the kernel's own record of it, with its arguments.
"""
from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from gateways.addresses import TOPIC_EXCHANGE, amqp_by_exchange, amqp_whole
from gateways.amqp import mapping, records
from gateways.amqp.exchanges import QUEUE, Binding, Destination, Exchange
from gateways.amqp.vhost import AmqpQueue, Change, VirtualHost

if TYPE_CHECKING:
    from gateways.amqp.consuming import Consumer
    from gateways.amqp.ports import Queues
    from gateways.contract import Services
    from kernel.message import Leased, Owner

NAME_BYTES: Final = 16         # of a generated name, before base64: RabbitMQ's have 22 characters too
DOOR_NAME: Final = "amqp"


class Broker:
    """One per hub, found through `Services.shared`."""

    def __init__(self, services: Services, queues: Queues) -> None:
        self.queues = queues
        self.vhosts: dict[str, VirtualHost] = {}
        self._kernel = services.kernel
        self._now_ms = services.now_ms
        self._stored: set[bytes] = set()       # keys of the definitions that are durable
        self._names = 0

    # ---- virtual hosts

    def vhost(self, tenant: str) -> VirtualHost:
        """The tenant's; as it was when the hub last ran."""
        vhost = self.vhosts.get(tenant)
        if vhost is None:
            vhost = self.vhosts[tenant] = VirtualHost(tenant)
        return vhost

    def new_name(self, prefix: str) -> str:
        """A name that nobody has been given before, by this start of the hub or another."""
        self._names += 1
        seed = f"{self._kernel.epoch} {self._names}".encode()
        digest = blake2b(seed, digest_size=NAME_BYTES, key=self._kernel.hub).digest()
        return prefix + urlsafe_b64encode(digest).rstrip(b"=").decode()

    # ---- definitions

    def _records_of(self, vhost: VirtualHost, changes: Iterable[Change]) -> dict[bytes, bytes | None]:
        """What must be written for these changes: value by key, None where it is to be deleted."""
        found: dict[bytes, bytes | None] = {}
        for change in changes:
            if isinstance(change, AmqpQueue) or isinstance(change, Destination) and change.kind == QUEUE:
                continue                       # the kernel writes its queues itself
            if isinstance(change, Exchange):
                key, value = records.exchange_key(vhost.name, change.name), records.encode_exchange(change)
                is_there = change.durable
            elif isinstance(change, Destination):
                key, value, is_there = records.exchange_key(vhost.name, change.name), b"", False
            else:
                key, value = records.binding_key(vhost.name, change), records.encode_binding(change)
                is_there = vhost.is_bound(change) and vhost.is_durable(change)
            if is_there:
                self._stored.add(key)
                found[key] = value
            elif key in self._stored:
                self._stored.discard(key)
                found[key] = None
        return found

    def store(self, vhost: VirtualHost, changes: Iterable[Change], owner: Owner | None, token: object) -> None:
        """Make changes durable; `owner` is told."""
        self.queues.store(self._records_of(vhost, changes), owner, token)

    # ---- queues

    def drop_queue(self, queue: AmqpQueue) -> list[Binding | Destination]:
        """Delete a queue; its consumers are told. Returns what is gone."""
        gone = queue.vhost.delete_queue(queue)
        consumers, queue.consumers = queue.consumers, []
        for consumer in consumers:
            self.queues.detach(consumer)
            consumer.on_gone()
        self.queues.drop(queue)
        return gone

    def foreign_side(self, queue: AmqpQueue, leased: Leased) -> bytes:
        """The AMQP side of a message of another door.

        It is seen on `amq.topic` where the queue is bound to that, else on the exchange that the first level names.
        """
        address = self.queues.address_of(leased)
        name = None if queue.vhost.hears(queue, TOPIC_EXCHANGE) else amqp_by_exchange(address)
        return mapping.foreign_side(name or amqp_whole(address), leased[7], leased[8], leased[4], self._now_ms())

    def add_consumer(self, consumer: Consumer) -> None:
        consumer.queue.consumers.append(consumer)
        self.queues.attach(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        """A queue that deletes itself goes with its last consumer."""
        queue = consumer.queue
        if consumer not in queue.consumers:
            return
        queue.consumers.remove(consumer)
        self.queues.detach(consumer)
        vhost = queue.vhost
        if queue.auto_delete and not queue.consumers and vhost.queues.get(queue.name) is queue:
            self.store(vhost, self.drop_queue(queue), None, None)

    def drop_exclusive(self, vhost: VirtualHost, connection: object) -> None:
        """The connection has ended: what was its alone goes with it."""
        mine = [queue for queue in vhost.queues.values() if queue.owner is connection]
        for queue in mine:
            self.store(vhost, self.drop_queue(queue), None, None)

    @classmethod
    def of(cls, services: Services) -> Broker:
        broker = services.shared.get(DOOR_NAME)
        assert isinstance(broker, cls)
        return broker
