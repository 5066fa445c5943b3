"""From an address, or a topic and a key, to the partition that stores it. May create the topic.

Where the topic is missing, `may_create` says whether whoever asks may have it made; a placement remembers that, as its
topic can be deleted while it is in use.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from gatehouse.kernel.addresses.address import ADDRESS_HEADER, KEY_ESCAPES, UNROUTED, is_topic_name, unescape
from gatehouse.kernel.addresses.filters import MANY, ONE, parse_filter
from gatehouse.kernel.addresses.murmur2 import partition_for
from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.addresses.subscriptions import Subscriptions
from gatehouse.kernel.errors import (
    CreateDenied,
    InvalidAddress,
    InvalidTopic,
    KernelError,
    TooManyTopics,
    UnknownQueue,
    UnknownTopic,
    Unroutable,
)
from gatehouse.kernel.message import Headers, Message, Placement
from gatehouse.kernel.records.batch import encode_header, encode_key
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.topics import Topic, Topics

QUEUE_PREFIX: Final = "$queue/"
"""Addresses of queues."""

PROPERTIES_BYTES: Final = 64 << 10
"""What a message in a queue may have beside its value, above `max_message_bytes`: RabbitMQ's limit is of bodies."""


class NamedQueue(Protocol):
    """A queue, as far as messages are placed in it."""

    @property
    def tenant(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def first_partition_id(self) -> int:
        """Another one once it was deleted and made anew."""

    def partition_id(self, priority: int = 0) -> int:
        """The partition of a priority."""


class Places:
    """Makes placements. `create` makes a topic (name, tenant, maker) with default settings in the pending
    frame, or raises TooManyTopics."""

    def __init__(self, routes: Routes, topics: Topics, subscriptions: Subscriptions, settings: KernelSettings,
                 create: Callable[[str, str, str], Topic], find_queue: Callable[[str, str], NamedQueue | None]) -> None:
        self.routes = routes
        self._settings = settings
        self._topics = topics
        self._subscriptions = subscriptions
        self._create = create
        self._find_queue = find_queue

    def place(self, address: str, tenant: str, may_create: bool, maker: str = "") -> Placement:
        """Raises InvalidAddress, Unroutable, UnknownQueue, and where the topic is missing what `_make` raises."""
        if address.startswith(QUEUE_PREFIX):
            name = unescape(address[len(QUEUE_PREFIX):], KEY_ESCAPES)         # as rights to the queue are spelled
            return self.place_queue(self._require_queue(name, tenant), 0, None)
        routed = self.routes.route(address)
        topic = self._topics.get(routed.topic, tenant)
        if topic is None:
            topic = self._create(UNROUTED, tenant, "") if routed.topic == UNROUTED \
                else self._make(routed.topic, tenant, may_create, maker)
        placement = self._placement(topic, routed.partition(topic.partitions), routed.key, address,
                                    address if routed.needs_header else "")
        placement.may_create, placement.maker = may_create, maker
        return placement

    def place_queue(self, queue: NamedQueue, priority: int, key: bytes | None) -> Placement:
        """Into a queue and nowhere else."""
        address = QUEUE_PREFIX + queue.name
        placement = Placement(queue.tenant, address, "", 0, 0, queue.partition_id(priority), key, encode_key(key), b"",
                              self._settings.max_message_bytes + PROPERTIES_BYTES,  # decision 318
                              self._subscriptions.first_level(address, queue.tenant))
        placement.queue = queue
        placement.fixed_partition = True
        placement.topics_version = self._topics.version
        return placement

    def place_again(self, tenant: str, name: str, priority: int, key: bytes | None) -> Placement:
        """Into the queue that has this name by now. Raises UnknownQueue."""
        return self.place_queue(self._require_queue(name, tenant), priority, key)

    def place_routed(self, address: str, partition_ids: tuple[int, ...], tenant: str, may_create: bool, maker: str = ""
                     ) -> Placement:
        """Where the address leads, and by reference into these queues, whatever is bound to the address.

        What no topic takes and these queues do is stored in `unrouted`.
        """
        try:
            placement = self.place(address, tenant, may_create, maker)
        except Unroutable:
            if not partition_ids:
                raise
            placement = self.place_unrouted(address, tenant)
        placement.routed = partition_ids
        return placement

    def place_known(self, address: str, partition_ids: tuple[int, ...], tenant: str) -> Placement | None:
        """As `place_routed`, where the topic of the address is there already; else None, and nothing is made."""
        try:
            routed = self.routes.route(address)
        except KernelError:                    # it leads nowhere
            return None
        topic = self._topics.get(routed.topic, tenant)
        if topic is None or topic.name == UNROUTED:
            return None
        placement = self._placement(topic, routed.partition(topic.partitions), routed.key, address,
                                    address if routed.needs_header else "")
        placement.routed = partition_ids
        self._subscriptions.refresh(placement)
        return placement

    def copied_to(self, placement: Placement, topic: Topic) -> Placement:
        """For a record of a producer's batch: the same message in the queues alone that its address leads to."""
        first, *others = placement.also
        copy = Placement(placement.tenant, placement.address, topic.name, topic.id, placement.partition, first,
                         placement.key, placement.key_part, encode_header(ADDRESS_HEADER, placement.address.encode()),
                         1 << 62, placement.first_level)
        copy.also = copy.fleeting = tuple(others)
        copy.limited = placement.limited
        copy.fixed_partition = True
        copy.version, copy.topics_version = placement.first_level.version, self._topics.version
        return copy

    def _require_queue(self, name: str, tenant: str) -> NamedQueue:
        queue = self._find_queue(name, tenant)
        if queue is None:
            raise UnknownQueue(f"there is no queue {name!r}")
        return queue

    def place_in(self, name: str, key: bytes | None, partition: int | None, tenant: str, may_create: bool,
                 maker: str = ""
                 ) -> Placement:
        """Raises UnknownPartition, InvalidTopic, and where the topic is missing what `_make` raises."""
        topic = self._topics.get(name, tenant)
        if topic is None:
            if not is_topic_name(name):
                raise InvalidTopic(f"{name[:249]!r} is no topic name: letters, digits, '.', '_', '-', at most 249")
            topic = self._make(name, tenant, may_create, maker)
        address = self.routes.address_of(name, key)
        number = self._partition(topic, key, address) if partition is None else partition
        placement = self._placement(topic, number, key, address, "")
        placement.fixed_topic = True
        placement.fixed_partition = partition is not None
        placement.may_create, placement.maker = may_create, maker
        return placement

    def place_unrouted(self, address: str, tenant: str) -> Placement:  # decision 125
        """Where a message is stored that has nowhere else to go: the topic `unrouted`, with the address as key."""
        routed = self.routes.unrouted(address)
        topic = self._topics.get(UNROUTED, tenant) or self._create(UNROUTED, tenant, "")
        placement = self._placement(topic, routed.partition(topic.partitions), routed.key, address, "")
        placement.fixed_topic = placement.may_create = True
        return placement

    def _partition(self, topic: Topic, key: bytes | None, address: str) -> int:
        """The partition that the address routes to, where that leads to this topic and key; else the key's own."""
        try:
            routed = self.routes.route(address)
        except InvalidAddress:               # `$...` without a route
            routed = None
        if routed is not None and (routed.topic, routed.key) == (topic.name, key):
            return routed.partition(topic.partitions)
        return partition_for(address.encode() if key is None else key, topic.partitions)

    def for_record(self, topic: Topic, partition: int, key: bytes | None, headers: Headers) -> Placement:
        """The placement of a record that is stored already, for matching its address."""
        return self._placement(topic, partition, key, self.routes.address_of(topic.name, key, headers), "")

    def topics_for(self, filter: str, tenant: str) -> list[Topic]:
        """The topics that can hold messages whose address matches. Raises InvalidFilter."""
        first, topics = parse_filter(filter)[0], self._topics.of(tenant)
        if first in (ONE, MANY):
            return topics
        return [topic for topic in topics
                if (levels := self.first_levels_of(topic.name)) is None or first in levels]

    def first_levels_of(self, topic: str) -> frozenset[str] | None:
        """The first levels that addresses stored in this topic can have; None: any."""
        if topic == UNROUTED or self.routes.any or self.routes.is_own(topic):
            return None
        return frozenset((topic,))

    def configure(self, settings: KernelSettings) -> None:
        """These settings hold from now on."""
        self._settings = settings

    def choose(self, messages: list[Message]) -> list[Message]:
        """The same messages, each with the placement of just the queues that it enters, where that depends on it."""
        return self._subscriptions.choose(messages)

    def refresh(self, placement: Placement) -> None:
        """Bring a placement up to date: where it leads, and who hears of it. Raises as `place`."""
        if placement.topics_version != self._topics.version:
            self.renew(placement)
        self._subscriptions.refresh(placement)

    def renew(self, placement: Placement) -> None:
        """Topics have changed: find this placement's topic again, making it anew if it was deleted and whoever asked
        for the placement may; or the queue that has the name by now. Raises as `place`, and again until it has
        succeeded."""
        if placement.queue is not None:
            queue = self._require_queue(placement.queue.name, placement.tenant)
            if queue.first_partition_id != placement.queue.first_partition_id:
                priority = placement.partition_id - placement.queue.first_partition_id
                placement.partition_id = queue.partition_id(priority)
            placement.queue = queue
        else:
            self._renew_topic(placement)
        placement.topics_version = self._topics.version

    def _renew_topic(self, placement: Placement) -> None:
        topic = self._topics.get(placement.topic, placement.tenant)
        if topic is not None and topic.id == placement.topic_id and placement.partition < topic.partitions:
            placement.max_message_bytes = self.max_message_bytes(topic)
            placement.compact = topic.settings.compact
            if not placement.fixed_partition:
                placement.partition = self._partition(topic, placement.key, placement.address)
                placement.partition_id = topic.partition_id(placement.partition)
            return
        fresh = self._place_anew(placement)
        for name in ("topic", "topic_id", "partition", "partition_id", "key", "key_part", "address_header",
                     "max_message_bytes", "compact"):
            setattr(placement, name, getattr(fresh, name))

    def _place_anew(self, placement: Placement) -> Placement:
        """Where the same would be placed now."""
        allowed = placement.tenant, placement.may_create, placement.maker
        if placement.fixed_topic:
            partition = placement.partition if placement.fixed_partition else None
            return self.place_in(placement.topic, placement.key, partition, *allowed)
        return self.place(placement.address, *allowed)

    def _make(self, name: str, tenant: str, may_create: bool, maker: str) -> Topic:  # decision 124
        """A topic that is missing. Raises UnknownTopic (none is made by use), CreateDenied, TooManyTopics."""
        if not self._settings.auto_create_topics:
            raise UnknownTopic(f"there is no topic {name!r}, and topics are not made by use here")
        if not may_create:
            raise CreateDenied(f"there is no topic {name!r}, and this user may not create it")
        if not maker and len(self._topics) >= self._settings.max_auto_topics:     # of a maker `create` asks more
            raise TooManyTopics(f"there is no topic {name!r}, and there are as many as use may make "
                                f"(kernel.max_auto_topics, {self._settings.max_auto_topics})")
        return self._create(name, tenant, maker)

    def _placement(self, topic: Topic, partition: int, key: bytes | None, address: str, header: str) -> Placement:
        encoded = encode_header(ADDRESS_HEADER, header.encode()) if header else b""
        placement = Placement(topic.tenant, address, topic.name, topic.id, partition, topic.partition_id(partition),
                              key,
                              encode_key(key), encoded, self.max_message_bytes(topic),
                              self._subscriptions.first_level(address, topic.tenant))
        placement.topics_version = self._topics.version
        placement.compact = topic.settings.compact
        return placement

    def max_message_bytes(self, topic: Topic) -> int:
        """What the topic takes at most."""
        own = topic.settings.max_message_bytes
        return self._settings.max_message_bytes if own is None else own

    def max_record_bytes(self, partition_id: int) -> int:
        """The largest record that the topic of this partition takes."""
        topic_partition = self._topics.of_partition(partition_id)
        return self._settings.max_message_bytes if topic_partition is None \
            else self.max_message_bytes(topic_partition[0])
