"""What all sessions of this door share: the virtual hosts, the life of queues and consumers, what is durable, and
counts of what was done.
"""
from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.amqp import codec, mapping, records
from gatehouse.gateways.amqp.dead_letters import OVERFLOW, dead_letter, encode_target
from gatehouse.gateways.amqp.direct_reply import DirectReplies
from gatehouse.gateways.amqp.errors import SyntaxFault, precondition
from gatehouse.gateways.amqp.exchanges import QUEUE, Binding, Destination, Exchange
from gatehouse.gateways.amqp.hearing import Hearing
from gatehouse.gateways.amqp.policies import apply_to_queue
from gatehouse.gateways.amqp.vhost import AmqpQueue, Change, VirtualHost
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.message import DOOR_MASK, RETAIN, When

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.channel import Channel, Consumer
    from gatehouse.gateways.amqp.policies import Policy
    from gatehouse.gateways.amqp.queues import KernelQueues
    from gatehouse.gateways.contract import Services
    from gatehouse.kernel.api import Message as NumberedMessage
    from gatehouse.kernel.message import Leased, Message, Owner, Stored

NAME_BYTES: Final = 16         # of a generated name, before base64: RabbitMQ's have 22 characters too
DOOR_NAME: Final = "amqp"
DEFAULT_VHOST: Final = "/"
BEGUN_BYTES_MAX: Final = 256 << 20     # of the parts of contents that have come, on all connections


class Totals:
    """What the door's connections have done since the hub's start, in numbers that only grow: for RabbitMQ's
    dashboards. Whoever does it adds to them, once for a burst. What is `given_back` is delivered again."""

    __slots__ = ("confirmed", "confirming", "nowhere", "dropped", "returned", "consumed_auto", "consumed_manual",
                 "got_auto", "got_manual", "got_nothing", "given_back", "acknowledged", "queues_declared",
                 "queues_created", "queues_deleted", "channels_opened", "channels_closed", "connections_opened",
                 "connections_closed")

    def __init__(self) -> None:
        self.confirming = self.confirmed = 0               # publishes that want a confirm; that have it
        self.nowhere = self.dropped = 0                    # publishes that lead nowhere; those that are not returned
        self.returned = 0                                  # mandatory publishes without a queue
        self.consumed_auto = self.consumed_manual = 0      # deliveries to consumers, by whether they are acknowledged
        self.got_auto = self.got_manual = self.got_nothing = 0     # answers to basic.get
        self.given_back = self.acknowledged = 0            # deliveries
        self.queues_declared = self.queues_created = self.queues_deleted = 0
        self.channels_opened = self.channels_closed = 0
        self.connections_opened = self.connections_closed = 0


SAMPLE_MS: Final = 5_000               # between two samples at least, as in RabbitMQ
COUNTS_MAX: Final = 100_000            # whose samples are remembered; forgotten all at once beyond that


class Samples(NamedTuple):
    """Two looks at a count, the earlier one first."""

    value: int
    at_ms: int
    newer_value: int
    newer_at_ms: int


class Rates:
    """Rates of counts that only grow, as the management interface shows them: since they were asked for before."""

    def __init__(self) -> None:
        self._samples: dict[Hashable, Samples] = {}

    def of(self, name: Hashable, count: int, now_ms: int) -> float:
        """How fast a count grows, a second; 0 where it is looked at for the first time."""
        samples = self._samples.get(name)
        if samples is None or count < samples.newer_value:             # the queue was made anew
            if len(self._samples) >= COUNTS_MAX:
                self._samples.clear()
            self._samples[name] = Samples(count, now_ms, count, now_ms)
            return 0.0
        if now_ms - samples.newer_at_ms >= SAMPLE_MS:
            samples = self._samples[name] = Samples(samples.newer_value, samples.newer_at_ms, count, now_ms)
        past_ms = now_ms - samples.at_ms
        return round((count - samples.value) * 1_000 / past_ms, 1) if past_ms > 0 else 0.0


class Broker:
    """The virtual hosts of the door and all that its sessions share. One per hub, found through `Services.shared`."""

    def __init__(self, services: Services, queues: KernelQueues) -> None:
        self.queues = queues
        self.vhosts: dict[str, VirtualHost] = {}
        self.replies = DirectReplies()
        self.rates = Rates()
        self.totals = Totals()
        self.begun_bytes = 0
        """Of contents that are not whole yet, on all connections."""

        self.begun_bytes_max = BEGUN_BYTES_MAX

        self._kernel = services.kernel
        self._wall_ms = services.wall_ms
        self._stored: dict[str, set[str]] = {}             # names of the definitions that are durable, by virtual host
        self._hearing: dict[str, Hearing] = {}             # what other doors publish, by virtual host
        self._names = 0
        self._storing = 0                                  # changes that may not be on the disk
        self._load()
        queues.dead_letter_by(self._bury)
        queues.on_gone(self._on_gone)

    def note_begun(self, size_bytes: int) -> None:
        """So much more has come of contents that are not whole; less where it is negative."""
        self.begun_bytes += size_bytes

    @classmethod
    def of(cls, services: Services) -> Broker:
        """The one that was made when the door was opened."""
        broker = services.shared[DOOR_NAME]
        assert isinstance(broker, cls)
        return broker

    def vhost(self, tenant: str) -> VirtualHost:
        """The tenant's; as it was when the hub last ran."""
        vhost = self.vhosts.get(tenant)
        if vhost is None:
            vhost = self.vhosts[tenant] = VirtualHost(tenant, self.queues.adopt, self.queues.names_of_others)
            for queue in self.queues.reopen(vhost):
                vhost.restore_queue(queue)
            self._hearing[tenant] = Hearing(vhost, self._kernel.groups, self._wall_ms)
        return vhost

    def _load(self) -> None:
        self.vhost(DEFAULT_VHOST)
        bindings = []
        for tenant, name, value in self.queues.stored():
            self._stored.setdefault(tenant, set()).add(name)
            vhost = self.vhost(tenant)
            if name.startswith(records.EXCHANGE_MARK):
                vhost.restore_exchange(records.decode_exchange(value))
            elif name.startswith(records.STREAM_MARK):
                vhost.restore_queue(records.decode_stream(value, vhost))
            elif name.startswith(records.POLICY_MARK):
                policy = records.decode_policy(value)
                vhost.policies.put(policy.name, policy)
            elif name.startswith(records.OPERATOR_MARK):
                policy = records.decode_policy(value)
                vhost.operator_policies.put(policy.name, policy)
            else:
                bindings.append((vhost, *records.decode_binding(value)))
        for vhost, binding, arguments in bindings:
            if vhost.restore_binding(binding, arguments):
                self._hear(vhost, binding)
        for tenant, hearing in self._hearing.items():
            hearing.follow([binding for vhost, binding, _ in bindings if vhost.name == tenant])
        for vhost in self.vhosts.values():
            self._apply_policies(vhost)

    # ---- policies

    def put_policy(self, vhost: VirtualHost, name: str, policy: Policy | None, owner: Owner | None, token: object, *,
                   of_operators: bool = False) -> None:
        """Make a policy, or one of operators, change it, or (None) forget it; queues and exchanges follow at once.
        `owner` is told when all of it is durable. Raises InvalidPolicy, Stopping."""
        (vhost.operator_policies if of_operators else vhost.policies).put(name, policy)
        self._apply_policies(vhost)
        value = None if policy is None else records.encode_policy(policy)
        self.queues.store(vhost, {records.policy_record(name, of_operators=of_operators): value}, owner, token)

    def _apply_policies(self, vhost: VirtualHost) -> None:
        for exchange in vhost.exchanges.values():
            if vhost.policies.apply_to_exchange(exchange):
                vhost.version += 1
        for queue in vhost.queues.values():
            if self.queues.is_declared(queue):
                apply_to_queue(queue, vhost.policies, vhost.operator_policies)
                if self.queues.change(queue):
                    vhost.version += 1                     # whether times of arrival count may have changed

    def new_name(self, prefix: str) -> str:
        """A name that nobody has been given before, by this start of the hub or another."""
        self._names += 1
        seed = f"{self._kernel.epoch} {self._names}".encode()
        digest = blake2b(seed, digest_size=NAME_BYTES, key=self._kernel.hub).digest()
        return prefix + urlsafe_b64encode(digest).rstrip(b"=").decode()

    # ---- definitions

    def store(self, vhost: VirtualHost, changes: Iterable[Change], owner: Owner | None, token: object) -> None:
        """Make changes durable; `owner` is told."""
        changes = list(changes)
        writes: dict[str, bytes | None] = {}
        for change in changes:
            if isinstance(change, Binding):
                self._note_binding(vhost, change, writes)
            elif isinstance(change, Exchange) and change.durable:
                self._keep(vhost, records.exchange_record(change.name), records.encode_exchange(change), writes)
            elif isinstance(change, AmqpQueue) and change.settings.is_stream:
                self._keep(vhost, records.stream_record(change.name), records.encode_stream(change), writes)
            elif isinstance(change, Destination) and change.kind == QUEUE:
                self._forget(vhost, records.stream_record(change.name), writes)
            elif isinstance(change, Destination):
                self._forget(vhost, records.exchange_record(change.name), writes)
        self._hearing[vhost.name].follow(changes)
        self.queues.store(vhost, writes, owner, token)     # the kernel itself writes its queues
        if changes:
            self.queues.note_stored(self, None)
            self._storing += 1

    @property
    def is_storing(self) -> bool:
        """Whether a change may not be on the disk yet: who finds things as he wants them waits for that, too."""
        return self._storing > 0

    def on_stored(self, stored: list[Stored]) -> None:
        """So many changes are on the disk, or never will be."""
        self._storing -= len(stored)

    def undo(self, vhost: VirtualHost, changes: Iterable[Change]) -> None:
        """What was made is gone again: the disk did not take it. What was deleted stays so until the next start."""
        changes = list(changes)
        for change in changes:
            if isinstance(change, AmqpQueue) and vhost.queues.get(change.name) is change:
                self._let_go(change)
                vhost.delete_queue(change)
            elif isinstance(change, Exchange):
                vhost.forget_exchange(change)
            elif isinstance(change, Binding) and vhost.is_bound(change):
                vhost.forget_binding(change)
                self.queues.unhear(vhost, change)
        self._hearing[vhost.name].follow(changes)

    def _note_binding(self, vhost: VirtualHost, binding: Binding, writes: dict[str, bytes | None]) -> None:
        """Keep a binding that is new, or forget one that is gone."""
        if not vhost.is_bound(binding):
            self._forget(vhost, records.binding_record(binding), writes)
            self.queues.unhear(vhost, binding)
            return
        if vhost.is_durable(binding):
            self._keep(vhost, records.binding_record(binding), records.encode_binding(binding), writes)
        self._hear(vhost, binding)

    def _hear(self, vhost: VirtualHost, binding: Binding) -> None:
        queue = vhost.queues.get(binding.destination.name)
        if binding.destination.kind == QUEUE and queue is not None:
            self.queues.hear(binding, vhost.exchanges[binding.source].type, queue)

    def _keep(self, vhost: VirtualHost, name: str, value: bytes, writes: dict[str, bytes | None]) -> None:
        self._stored.setdefault(vhost.name, set()).add(name)
        writes[name] = value

    def _forget(self, vhost: VirtualHost, name: str, writes: dict[str, bytes | None]) -> None:
        if name in self._stored.get(vhost.name, ()):
            self._stored[vhost.name].discard(name)
            writes[name] = None

    # ---- queues

    def open_queue(self, queue: AmqpQueue) -> None:
        """Declare a new queue in the kernel. Raises ChannelFault, with the queue gone again."""
        try:
            self.queues.open(queue)
        except KernelError as error:
            queue.vhost.delete_queue(queue)
            raise precondition(f"{queue.where}: {error}") from None

    def drop_queue(self, queue: AmqpQueue) -> list[Binding | Destination]:
        """Delete a queue; its consumers are told. Returns what is gone."""
        gone = queue.vhost.delete_queue(queue)
        self.totals.queues_deleted += 1
        self._let_go(queue)
        self.queues.drop(queue)
        return gone

    def take_consumers(self, queue: AmqpQueue, channel: Channel) -> list[Consumer]:
        """Those of one channel are consumers no longer, and are not told."""
        taken = [consumer for consumer in queue.consumers if consumer.channel is channel]
        for consumer in taken:
            queue.consumers.remove(consumer)
            consumer.detach()
        return taken

    def _let_go(self, queue: AmqpQueue) -> None:
        consumers, queue.consumers = queue.consumers, []
        for consumer in consumers:
            consumer.detach()
            consumer.on_gone()

    def _on_gone(self, tenant: str, name: str) -> None:
        """A queue was deleted by another door, or because nobody has used it for so long: drop it here too. Its
        consumers have been told, but for those that still wait for the answer behind which they begin."""
        vhost = self.vhosts.get(tenant)
        queue = vhost.queues.get(name) if vhost is not None else None
        if vhost is not None and queue is not None and queue.kernel_queue is not None:
            consumers, queue.consumers, queue.kernel_queue = queue.consumers, [], None
            for consumer in consumers:
                if not consumer.is_attached and consumer.channel.consumers.get(consumer.tag) is consumer:
                    consumer.on_gone()
            self.totals.queues_deleted += 1
            self.store(vhost, vhost.delete_queue(queue), None, None)

    def unbind_own(self, vhost: VirtualHost, connection: object, may_keep: Callable[[Binding], bool]) -> None:
        """A connection's own queues lose the bindings that it may not keep."""
        for queue in self._queues_of(vhost, connection):
            for binding in vhost.bindings_to(queue):
                if not may_keep(binding):
                    vhost.forget_binding(binding)
                    self.store(vhost, [binding], None, None)

    @staticmethod
    def _queues_of(vhost: VirtualHost, connection: object) -> list[AmqpQueue]:
        return [*vhost.owned.get(connection, {}).values()]

    def drop_exclusive(self, vhost: VirtualHost, connection: object) -> None:
        """Drop the exclusive queues of a connection that has ended."""
        for queue in self._queues_of(vhost, connection):
            self.store(vhost, self.drop_queue(queue), None, None)

    def _bury(self, tenant: str, name: str, target: str, leased: Leased, reason: str) -> list[Message]:
        """What a dead letter of a queue becomes: where the topic of its exchange is there, one message, which queues
        refer to; else one for each queue that it is routed to."""  # decision 190
        vhost = self.vhost(tenant)
        queue = vhost.queues.get(name)
        if queue is None:
            return []
        now_ms = self._wall_ms()
        is_own = mapping.is_letter(leased[7])
        blind = mapping.blind_keys(leased[7])
        try:
            letter = dead_letter(vhost, name, target, self.queues.side_of(queue, leased), reason, now_ms, is_own=is_own,
                                 blind=blind)
        except SyntaxFault:                    # somebody else has written it, and its headers cannot be read
            letter = dead_letter(vhost, name, target, self.queues.foreign_side(queue, leased), reason, now_ms,
                                 is_own=False, blind=[])
        attributes = leased[8] & ~(DOOR_MASK | RETAIN) | codec.DOOR        # no address retains a dead letter
        placement = self.queues.place_in_topic(tenant, letter) if letter.exchange else None
        headers = mapping.headers_of_letter(letter.names, letter.raw, now_ms, public=placement is not None)
        headers = mapping.with_blind_keys(headers, letter.blind)
        into = letter.queues if placement is None else [to for to in letter.queues if to.stream is not None]
        placements = [self.queues.place_letter(to, letter.priority) for to in into]
        if placement is not None:
            placements.insert(0, placement)
        messages: list[Message] = [(place, leased[6], headers, attributes, 0) for place in placements]
        if not letter.delay_ms or not messages:
            return messages
        try:                                   # in the frame that takes it out of its queue
            self._kernel.schedule(messages, [When(delay_ms=letter.delay_ms)] * len(messages), None)
        except KernelError:                    # no more may wait: late is better than never, and early than late
            return messages
        return []

    def bury_refused(self, vhost: VirtualHost, name: str, messages: list[NumberedMessage]) -> None:  # decision 188
        """A full queue has refused these; where it says so they are dead letters. What has no room there either is
        gone."""
        queue = vhost.queues.get(name)
        if queue is None or queue.settings.overflow != "reject-publish-dlx" \
                or queue.settings.dead_letter_exchange is None:
            return
        target = encode_target(queue.settings.dead_letter_exchange, queue.settings.dead_letter_key)
        for _, value, headers, attributes, _ in messages:
            refused: Leased = (None, 0, 1, 0, 0, None, value, headers, attributes)
            for letter in self._bury(vhost.name, name, target, refused, OVERFLOW):
                with suppress(KernelError):
                    self._kernel.append([letter], None)

    # ---- consumers

    def add_consumer(self, consumer: Consumer) -> None:
        """One more of its queue; it is given nothing before it is attached."""
        consumer.queue.consumers.append(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer. A queue that deletes itself goes with its last consumer."""
        queue = consumer.queue
        if consumer not in queue.consumers:
            return
        queue.consumers.remove(consumer)
        consumer.detach()
        vhost = queue.vhost
        if queue.auto_delete and not queue.consumers and vhost.queues.get(queue.name) is queue:
            self.store(vhost, self.drop_queue(queue), None, None)
