"""The kernel's queues and groups as this door uses them.

A client's queue is one queue of the same name. Its group is the queue's own, and consumers are members of that. What
AMQP knows of a queue beyond the kernel's settings travels in `QueueSettings.door`.
"""
from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.addresses import QUEUE_LEVEL
from gatehouse.gateways.amqp import codec, mapping
from gatehouse.gateways.amqp.addresses import (
    TOPIC_EXCHANGE,
    address_of_amqp,
    amqp_by_exchange,
    amqp_whole,
    filter_of_binding,
)
from gatehouse.gateways.amqp.arguments import UNLIMITED
from gatehouse.gateways.amqp.dead_letters import DeadLetter, encode_target
from gatehouse.gateways.amqp.errors import ChannelFault, refused
from gatehouse.gateways.amqp.exchanges import Binding
from gatehouse.gateways.amqp.streams import Streams, not_of_streams
from gatehouse.gateways.amqp.tables import INTEGERS, Table, decode_table, encode_table
from gatehouse.gateways.amqp.vhost import AmqpQueue, VirtualHost
from gatehouse.kernel.addresses.address import ADDRESS_HEADER, LEVEL_ESCAPES, escape
from gatehouse.kernel.addresses.filters import MANY
from gatehouse.kernel.addresses.routes import stated_in
from gatehouse.kernel.errors import InvalidFilter, KernelError, Stopping, UnknownTopic
from gatehouse.kernel.groups.cursor import MAX_ATTEMPT
from gatehouse.kernel.groups.group_settings import NOTHING, Queue, QueueSettings
from gatehouse.kernel.groups.sharing import SHARE
from gatehouse.kernel.message import DOOR_MASK, NOBODY, Handle, Leased, Message, Origin, Owner, Placement, Stored
from gatehouse.kernel.records.batch import named_headers

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.amqp.arguments import QueueArguments
    from gatehouse.kernel.api import HubPort, LeasedGroupPort
    from gatehouse.kernel.groups.handing_out import HoldLimit

Bury = Callable[[str, str, str, "Leased", str], "list[Message]"]
"""(virtual host, queue, its dead-letter target, message, the kernel's reason) -> what it becomes"""

ONCE_UNCHECKED: Final = ("x-delivery-limit", "x-consumer-timeout")
SPACE: Final = "amqp"                  # of this door's definitions
OVERFLOWS: Final = {"drop-head": "drop-head", "reject-publish": "reject", "reject-publish-dlx": "reject"}


class KernelQueues:
    """Every call takes effect at once; what it changes is durable with the next flush.

    Handles of a queue that was dropped meanwhile are nobody's: settling them does nothing.
    """

    def __init__(self, kernel: HubPort, wall_ms: Callable[[], int]) -> None:
        self._kernel = kernel
        self._wall_ms = wall_ms
        self._unaltered: Final = not kernel.follows_all
        self.streams = Streams(kernel)
        self._heard: dict[tuple[str, Binding], tuple[Queue, str]] = {}    # what a virtual host's binding hears
        self._filters: dict[tuple[int, str], int] = {}     # (partition id, filter): how many bindings mean it

    # ---- queues

    def open(self, queue: AmqpQueue) -> None:
        """Declare it in the kernel. Raises KernelError, ChannelFault."""
        if queue.settings.is_stream:
            self.streams.open(queue)
            return
        settings = _kernel_settings(queue)
        tenant = queue.vhost.name
        left_over = self._kernel.groups.queue(queue.name, tenant)  # where the disk refused what was to be deleted
        if left_over is not None:
            self._kernel.groups.delete_queue(left_over)
        queue.kernel_queue = self._kernel.groups.declare_queue(queue.name, settings, tenant)

    def note_declared(self, queue: AmqpQueue) -> None:
        """A queue that is there was asked for by a declaration: one that expires when nobody uses it lives on."""
        if queue.kernel_queue is not None and queue.kernel_queue.settings.expires_ms:
            self._kernel.groups.declare_queue(queue.name, queue.kernel_queue.settings, queue.vhost.name)

    def adopt(self, vhost: VirtualHost, name: str) -> AmqpQueue | None:
        """A queue that another door has made, or None."""
        kernel_queue = self._kernel.groups.queue(name, vhost.name)
        if kernel_queue is None or _door_settings(kernel_queue) is not None:
            return None
        queue = AmqpQueue(vhost, name, durable=True, auto_delete=False, owner=None, arguments=Table())
        queue.kernel_queue = kernel_queue
        return queue

    def on_gone(self, tell: Callable[[str, str], None]) -> None:
        """Tell of every queue that is deleted, by whomever: virtual host, name."""
        self._kernel.groups.on_queue_gone(lambda kernel_queue: tell(kernel_queue.tenant, kernel_queue.name))

    def reopen(self, vhost: VirtualHost) -> Iterable[AmqpQueue]:
        """The queues of a virtual host that outlived the hub. A queue that was not durable is deleted."""
        queues = []
        for kernel_queue in self._kernel.groups.queues(vhost.name):
            settings = _door_settings(kernel_queue)
            if settings is None:
                continue
            if not settings["durable"]:
                self._kernel.groups.delete_queue(kernel_queue)
                continue
            queue = _reopened(vhost, kernel_queue.name, settings)
            queue.kernel_queue = kernel_queue
            queues.append(queue)
        return queues

    @staticmethod
    def is_declared(queue: AmqpQueue) -> bool:
        """Whether this door has declared it in the kernel: what others have made has no policy."""
        if queue.stream is not None:
            return queue.stream.is_made
        return isinstance(queue.kernel_queue, Queue) and _door_settings(queue.kernel_queue) is not None

    def change(self, queue: AmqpQueue) -> bool:
        """Let the kernel know what its settings are now. Whether they are others. Raises Stopping."""
        if queue.stream is not None:
            self.streams.change(queue)
            return False
        settings = _kernel_settings(queue)
        if settings == queue.kernel_queue.settings:
            return False
        queue.kernel_queue = self._kernel.groups.change_queue(queue.kernel_queue, settings)
        return True

    def counts(self, queue: AmqpQueue) -> Any:
        """What is ready, leased and waiting in it, and what became of the rest: the kernel's `Counts`."""
        return self.group_of(queue).counts()

    def names_of_others(self, vhost: VirtualHost) -> Iterable[str]:
        """Queues that other doors have made."""
        return [kernel_queue.name for kernel_queue in self._kernel.groups.queues(vhost.name)
                if not kernel_queue.settings.door]

    def drop(self, queue: AmqpQueue) -> None:
        """With everything in it."""
        if queue.settings.is_stream:
            self.streams.drop(queue)
            return
        kernel_queue, queue.kernel_queue = queue.kernel_queue, None
        self._kernel.groups.delete_queue(kernel_queue)

    def purge(self, queue: AmqpQueue) -> int:
        """Settle what is ready; how many messages that was. Raises ConnectionFault 540 for streams."""
        if queue.settings.is_stream:
            raise not_of_streams("queue.purge", queue)
        return self.group_of(queue).purge()

    def ready(self, queue: AmqpQueue) -> int:
        """Messages that nobody holds, those included that are on their way in."""
        if queue.settings.is_stream:
            return self.streams.length(queue)
        if isinstance(queue.kernel_queue, Queue):
            return self._kernel.groups.ready(queue.kernel_queue)
        group = self.group_of(queue)
        return group.ready + group.entering

    def may_drop(self, queue: AmqpQueue) -> bool:
        """Whether what is on its way into it may push out what is there: ask for its head behind that."""
        return queue.settings.drops_head and queue.kernel_queue is not None and self.group_of(queue).entering > 0

    def share(self, vhost: VirtualHost, name: str) -> AmqpQueue | None:
        """What `$share/GROUP/FILTER` leads to, as a queue that is consumed from and nothing else."""
        if not name.startswith(SHARE):
            return None
        queue = AmqpQueue(vhost, name, durable=True, auto_delete=False, owner=None, arguments=Table())
        try:
            queue.kernel_queue = self._kernel.groups.shared_group(name, vhost.name)
        except (InvalidFilter, UnknownTopic) as error:
            raise ChannelFault(404, f"no {queue.where}: {error}") from None
        except KernelError as error:
            raise refused(f"{queue.where}: {error}") from None
        return queue

    def group_of(self, queue: AmqpQueue) -> LeasedGroupPort:
        """Of what a queue is the group: who takes from the queue takes from it."""
        if isinstance(queue.kernel_queue, Queue):
            return self._kernel.groups.queue_group(queue.kernel_queue)
        group: LeasedGroupPort = queue.kernel_queue
        return group

    # ---- what other doors send

    def hear(self, binding: Binding, exchange_type: str, queue: AmqpQueue) -> None:
        """Messages of other doors that fit the binding enter the queue too, if it is no stream."""
        if queue.settings.is_stream:
            return
        kernel_queue, text = queue.kernel_queue, filter_of(binding, exchange_type)
        key = (queue.vhost.name, binding)
        if not text or key in self._heard:
            return
        if (kernel_queue.first_partition_id, text) not in self._filters:
            try:
                self._kernel.groups.bind(text, kernel_queue, chosen=True)
            except InvalidFilter:              # longer than an address can be: nothing can match it
                return
        self._heard[key] = (kernel_queue, text)
        self._filters[kernel_queue.first_partition_id,
                      text] = self._filters.get((kernel_queue.first_partition_id, text), 0) + 1

    def unhear(self, vhost: VirtualHost, binding: Binding) -> None:
        """Undo `hear`."""
        kernel_queue, text = self._heard.pop((vhost.name, binding), (None, ""))
        if kernel_queue is None:
            return
        key = (kernel_queue.first_partition_id, text)
        self._filters[key] -= 1
        if self._filters[key]:
            return
        del self._filters[key]
        still = self._kernel.groups.queue(kernel_queue.name, kernel_queue.tenant)
        if still is not None and still.first_partition_id == kernel_queue.first_partition_id:
            self._kernel.groups.unbind(text, kernel_queue, chosen=True)

    def address_of(self, queue: AmqpQueue, leased: Leased) -> str:
        """The address of a message in a queue that came by another door."""
        if not isinstance(queue.kernel_queue, Queue):
            return self._kernel.groups.address_of_leased(leased)
        said = stated_in(named_headers(leased[7], (ADDRESS_HEADER,)))
        if said is not None:
            return said.decode(errors="replace")
        return f"{QUEUE_LEVEL}/{escape(queue.name, LEVEL_ESCAPES)}"          # put into the queue itself

    def side_of(self, queue: AmqpQueue, leased: Leased) -> bytes:
        """Exchange, routing key and properties of a message in a queue, as bytes."""
        own = mapping.own_side(leased[7], unaltered=self._unaltered) if leased[8] & DOOR_MASK == codec.DOOR else b""
        return own or self.foreign_side(queue, leased)

    def foreign_side(self, queue: AmqpQueue, leased: Leased) -> bytes:
        """The AMQP side of a message of another door.

        It is seen on `amq.topic` where the queue is bound to that, else on the exchange that the first level names.
        """
        address = self.address_of(queue, leased)
        is_on_topic = queue.vhost.hears(queue, TOPIC_EXCHANGE) and not address.startswith(QUEUE_LEVEL)
        name = None if is_on_topic else amqp_by_exchange(address)
        return mapping.foreign_side(name or amqp_whole(address), leased[7], leased[8], leased[4], self._wall_ms())

    # ---- consuming

    def take(self, queue: AmqpQueue, on_done: Callable[[Leased | None], None], hold: HoldLimit | None = None,
             taker: Origin = NOBODY) -> None:
        """Take one message from a queue, behind all that was published to it so far; `on_done` is told of it, or of
        None where there is none, now or later. Raises ConnectionFault 540 for streams."""
        if queue.settings.is_stream:
            raise not_of_streams("basic.get", queue)
        _Taking(self, queue, on_done, hold, taker).begin()

    def take_now(self, queue: AmqpQueue, member: _Taking, hold: HoldLimit | None, taker: Origin) -> None:
        """Give it one message that is in the queue, or none."""
        if queue.kernel_queue is None:
            member.on_gone()
        else:
            self.group_of(queue).take_now(member, hold, taker)

    def ack_durably(self, queue: AmqpQueue, handles: list[Handle], owner: Owner, token: object) -> None:
        """`owner` is told when it is durable."""
        self.group_of(queue).ack(handles, owner, token)

    def reject_durably(self, queue: AmqpQueue, handles: list[Handle], owner: Owner, token: object) -> None:
        """Dead letters of the queue; `owner` is told when that is durable."""
        self.group_of(queue).reject(handles, owner, token)

    def when_flushed(self, then: Callable[[], None]) -> None:
        """Call when everything published so far is in its queues, or was refused."""
        self._kernel.append([], _Flushed(self._kernel, then), None)

    def note_stored(self, owner: Owner, token: object) -> None:
        """Tell the owner when the frame that is being filled is durable."""
        self._kernel.append([], owner, token)

    def ack(self, queue: AmqpQueue, handles: list[Handle]) -> None:
        """Settle them in whichever frame comes next."""
        if queue.kernel_queue is not None:
            self.group_of(queue).ack(handles, lazily=True)

    def when_acked(self, owner: Owner, token: object) -> None:
        """Tell the owner when all that was acknowledged so far, by whomever, is durable. Raises Stopping."""
        self._kernel.groups.when_settled(owner, token=token)

    def release(self, queue: AmqpQueue, handles: list[Handle]) -> None:
        """Back to their places, to be delivered again first; to a group of all doors: when its retry says."""
        if queue.kernel_queue is not None:
            shared = not isinstance(queue.kernel_queue, Queue)
            self.group_of(queue).release(handles, None if shared else 0)

    def reject(self, queue: AmqpQueue, handles: list[Handle]) -> None:
        """Settle them as dead letters of the queue."""
        if queue.kernel_queue is not None:
            self.group_of(queue).reject(handles)

    def read_leased(self, queue: AmqpQueue, handles: list[Handle], on_read: Callable[[list[Leased] | None], None]
                    ) -> None:
        """Read what a consumer holds; None where that cannot be."""
        if queue.kernel_queue is None:
            on_read([])
        else:
            self._kernel.groups.read_leased(self.group_of(queue), handles, on_read)

    def reject_read(self, queue: AmqpQueue, handles: list[Handle], messages: list[Leased]) -> None:
        """As `reject`, of what was read: in the frame that is being filled."""
        if queue.kernel_queue is not None:
            self._kernel.groups.reject_read(self.group_of(queue), handles, messages)

    def dead_letter_by(self, bury: Bury) -> None:
        """Ask this what a dead letter becomes."""
        def route(kernel_queue: Queue, leased: Leased, reason: str) -> list[Message] | None:
            if _door_settings(kernel_queue) is None:
                return None
            target = kernel_queue.settings.dead_letter
            return bury(kernel_queue.tenant, kernel_queue.name, target, leased, reason) if target else []

        self._kernel.groups.route_dead_letters(route)

    # ---- publishing

    def place(self, guard: Guard, address: str, queues: list[AmqpQueue], priority: int) -> int:
        """Where a message goes that enters these queues and the topic of its address, or without one the first queue.
        Raises KernelError, Denied."""
        if not address:
            return guard.place_queue(queues[0].name, priority)
        return guard.place_routed(address, tuple([queue.kernel_queue.partition_id(priority) for queue in queues]))

    def place_letter(self, queue: AmqpQueue, priority: int) -> Placement:
        """Where a dead letter goes: into this queue."""
        if queue.stream is not None:
            return self._kernel.place_in(queue.stream.topic, None, partition=0, tenant=queue.vhost.name)
        return self._kernel.place_queue(queue.kernel_queue, priority)

    def place_in_topic(self, tenant: str, letter: DeadLetter) -> Placement | None:
        """Where a dead letter goes whose exchange has a topic: there, and by reference into its queues. None where that
        topic does not exist."""
        exchange, key = mapping.read_names(letter.names)
        try:
            address = address_of_amqp(exchange, key)
        except KernelError:
            return None
        partition_ids = [queue.kernel_queue.partition_id(letter.priority) for queue in letter.queues
                         if queue.stream is None]
        return self._kernel.place_known(address, tuple(partition_ids), tenant)

    # ---- definitions

    def store(self, vhost: VirtualHost, records: dict[str, bytes | None], owner: Owner | None, token: object) -> None:
        """Definitions by name, None: deleted. Answered when these and all changes before are durable."""
        for name, value in records.items():
            self._kernel.put_definition(SPACE, name, value, vhost.name)
        if owner is not None:
            self._kernel.append([], owner, token)

    def stored(self) -> Iterable[tuple[str, str, bytes]]:
        """(virtual host, name, value) of the definitions that are durable."""
        return self._kernel.definitions(SPACE)


class _Flushed:
    """Who waits until a flush is over and wants nothing else of it; an `Owner`.

    Owners are told before the flush's messages are in their queues: whoever asks once more is told when they are.
    """

    def __init__(self, kernel: HubPort, then: Callable[[], None]) -> None:
        self._kernel = kernel
        self._then = then
        self._is_stored = False

    def on_stored(self, stored: list[Stored]) -> None:
        if self._is_stored:
            self._then()
            return
        self._is_stored = True
        try:
            self._kernel.append([], self, None)
        except Stopping:                       # there is no other flush to come
            self._then()


class _Taking:
    """Takes one message, as a member of the queue's group: where there is none it asks once more, behind the flush of
    what is on its way in."""

    def __init__(self, queues: KernelQueues, queue: AmqpQueue, on_done: Callable[[Leased | None], None],
                 hold: HoldLimit | None, taker: Origin) -> None:
        self._queues = queues
        self._queue = queue
        self._on_done = on_done
        self._hold = hold
        self._taker = taker
        self._is_last = False

    def begin(self) -> None:
        if self._queues.may_drop(self._queue):
            self._ask_again()
        else:
            self._ask()

    def _ask(self) -> None:
        self._queues.take_now(self._queue, self, self._hold, self._taker)

    def _ask_again(self) -> None:
        self._is_last = True
        self._queues.when_flushed(self._ask)

    def on_leased(self, messages: list[Leased]) -> None:
        if messages or self._is_last:
            self._on_done(messages[0] if messages else None)
        else:
            self._ask_again()

    def on_gone(self) -> None:
        self._on_done(None)


# decision 61: bindings as address filters, for what other doors publish
def filter_of(binding: Binding, exchange_type: str) -> str:
    """The addresses of other doors that this binding of a queue is for; empty: none can be said."""
    source, key = binding.source, binding.routing_key
    if exchange_type == "topic":
        return "/".join(filter_of_binding(source, key))
    if exchange_type == "direct":
        return address_of_amqp(source, key)
    if exchange_type == "fanout":
        return f"{escape(source, LEVEL_ESCAPES)}/{MANY}"
    return ""                                  # `hearing` leads what passes these


def _kernel_settings(queue: AmqpQueue) -> QueueSettings:
    of: QueueArguments = queue.settings
    dead_letter = encode_target(of.dead_letter_exchange, of.dead_letter_key)
    door = json.dumps({"amqp": 1, "durable": queue.durable, "auto_delete": queue.auto_delete,
                       "arguments": b64encode(encode_table(queue.arguments)).decode()})
    return QueueSettings(
        priorities=of.priorities + 1, max_length=_limit(of.max_length), max_bytes=_limit(of.max_bytes),
        max_attempts=0 if of.delivery_limit is None else min(of.delivery_limit + 1, MAX_ATTEMPT),
        overflow=OVERFLOWS[of.overflow], ttl_ms=_limit(of.message_ttl_ms), expires_ms=of.expires_ms or 0,
        single_active=of.single_active, dead_letter=dead_letter, door=door)


def _reopened(vhost: VirtualHost, name: str, settings: dict[str, Any]) -> AmqpQueue:
    """A queue as it was declared; without arguments that were not looked at then, and cannot be."""
    read, _ = decode_table(b64decode(settings["arguments"]), 0)
    arguments: Table = {key: field for key, field in read.items()
                        if key not in ONCE_UNCHECKED or field.type in INTEGERS and field.value >= UNLIMITED}
    return AmqpQueue(vhost, name, durable=True, auto_delete=settings["auto_delete"], owner=None, arguments=arguments)


def _limit(given: int | None) -> int:
    """A limit as the kernel has it. RabbitMQ's 0 is a queue that holds nothing, the kernel's 0 is no limit."""
    return 0 if given is None else given or NOTHING


def _door_settings(kernel_queue: Queue) -> dict[str, Any] | None:
    """The settings that this door wrote into a kernel queue; None for a queue of another door."""
    if not kernel_queue.settings.door:
        return None
    settings: dict[str, Any] = json.loads(kernel_queue.settings.door)
    return settings if "amqp" in settings else None
