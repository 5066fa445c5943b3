"""What this door asks of the kernel's light queues, in one place. `gateways.amqp.queues` implements it."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kernel.message import Handle, Leased, Owner, Placement

if TYPE_CHECKING:
    from gateways.amqp.consuming import Consumer
    from gateways.amqp.vhost import AmqpQueue, VirtualHost


class Queues(Protocol):
    """Every call takes effect at once; what it changes is durable with the next flush.

    Handles of a queue that was dropped meanwhile are nobody's: settling them does nothing.
    """

    def open(self, queue: AmqpQueue) -> None:
        """Declare it in the kernel."""

    def drop(self, queue: AmqpQueue) -> None:
        """With everything in it."""

    def purge(self, queue: AmqpQueue) -> int:
        """Settle what is ready; how many messages that was."""

    def ready(self, queue: AmqpQueue) -> int:
        """Messages that nobody holds."""

    def attach(self, consumer: Consumer) -> None:
        """Hand it messages, as many as it has room for, once per flush."""

    def detach(self, consumer: Consumer) -> None:
        """No more; what it holds stays with its channel."""

    def wake(self, consumer: Consumer) -> None:
        """It has room again."""

    def take_one(self, queue: AmqpQueue, holder: object, on_done: Callable[[Leased | None, int], None]) -> None:
        """One message, or None; and how many are ready after it. Answered now or later."""

    def place(self, address: str, vhost: VirtualHost, queues: list[AmqpQueue], priority: int, *, in_topic: bool,
              may_create: bool) -> Placement:
        """Where a message goes that enters these queues and, `in_topic`, the topic of its address. At least one of
        both. Raises KernelError."""

    def address_of(self, leased: Leased) -> str:
        """Of a message that came by another door."""

    def store(self, records: dict[bytes, bytes | None], owner: Owner | None, token: object) -> None:
        """Definitions by key, None: deleted. Answered when these and all changes before are durable."""

    def ack(self, queue: AmqpQueue, handles: list[Handle]) -> None: ...

    def release(self, queue: AmqpQueue, handles: list[Handle]) -> None:
        """Back to their places, to be delivered again first."""

    def reject(self, queue: AmqpQueue, handles: list[Handle]) -> None:
        """Settle them as dead letters of the queue."""
