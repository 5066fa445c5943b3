"""What this door asks of the kernel's queues, in one place. `gateways.amqp.queues` implements it."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from gatehouse.kernel.message import Handle, Leased, Message, Owner, Placement

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.amqp.consuming import Consumer, ConsumerSource
    from gatehouse.gateways.amqp.exchanges import Binding
    from gatehouse.gateways.amqp.vhost import AmqpQueue, VirtualHost


DeadLetter = Callable[[str, str, str, "Leased", str], "list[Message]"]
"""(virtual host, queue, its dead-letter target, message, the kernel's reason) -> what it becomes"""


class Queues(Protocol):
    """Every call takes effect at once; what it changes is durable with the next flush.

    Handles of a queue that was dropped meanwhile are nobody's: settling them does nothing.
    """

    def open(self, queue: AmqpQueue) -> None:
        """Declare it in the kernel. Raises KernelError."""

    def adopt(self, vhost: VirtualHost, name: str) -> AmqpQueue | None:
        """A queue that another door has made, or None."""

    def on_gone(self, tell: Callable[[str, str], None]) -> None:
        """Tell of every queue that is deleted, by whomever: virtual host, name."""

    def drop(self, queue: AmqpQueue) -> None:
        """With everything in it."""

    def purge(self, queue: AmqpQueue) -> int:
        """Settle what is ready; how many messages that was."""

    def share(self, vhost: VirtualHost, name: str) -> AmqpQueue | None:
        """The leased group `$share/GROUP/FILTER` of all doors, to consume from; None for any other name. Raises
        ChannelFault."""

    def ready(self, queue: AmqpQueue) -> int:
        """Messages that nobody holds, those included that are on their way in."""

    def hear(self, binding: Binding, exchange_type: str, queue: AmqpQueue) -> None:
        """Messages of other doors that fit the binding enter the queue too."""

    def unhear(self, vhost: VirtualHost, binding: Binding) -> None:
        """Undo `hear`."""

    def attach(self, consumer: Consumer) -> None:
        """Hand it messages, as many as it has room for, once per flush."""

    def detach(self, consumer: Consumer) -> None:
        """Give a consumer no more messages; what it holds stays with its channel."""

    def top_up(self, consumer: Consumer) -> None:
        """A consumer's room has changed: it may be given more messages, or fewer."""

    def take_one(self, source: ConsumerSource, on_done: Callable[[Leased | None], None]) -> None:
        """Take one message from a queue, or None where there is none. `on_done` is called now or later."""

    def when_flushed(self, then: Callable[[], None]) -> None:
        """Call when everything published so far is in its queues, or was refused."""

    def place(self, guard: Guard, address: str, queues: list[AmqpQueue], priority: int) -> int:
        """Where a message goes that enters these queues and the topic of its address, or without one the first queue.
        Raises KernelError, Denied."""

    def place_letter(self, queue: AmqpQueue, priority: int) -> Placement:
        """Where a dead letter goes: into this queue."""

    def address_of(self, queue: AmqpQueue, leased: Leased) -> str:
        """The address of a message in a queue that came by another door."""

    def dead_letter_by(self, dead_letter: DeadLetter) -> None:
        """Ask this what a dead letter becomes."""

    def store(self, vhost: VirtualHost, records: dict[str, bytes | None], owner: Owner | None, token: object) -> None:
        """Definitions by name, None: deleted. Answered when these and all changes before are durable."""

    def stored(self) -> Iterable[tuple[str, str, bytes]]:
        """(virtual host, name, value) of the definitions that are durable."""

    def reopen(self, vhost: VirtualHost) -> Iterable[AmqpQueue]:
        """The queues of a virtual host that outlived the hub."""

    def ack(self, queue: AmqpQueue, handles: list[Handle]) -> None: ...

    def release(self, queue: AmqpQueue, handles: list[Handle]) -> None:
        """Back to their places, to be delivered again first; to a group of all doors: when its retry says."""

    def reject(self, queue: AmqpQueue, handles: list[Handle]) -> None:
        """Settle them as dead letters of the queue."""
