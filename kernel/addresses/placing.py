"""From an address, or a topic and a key, to the queue that stores it. May create the topic.

Where the topic is missing, `may_create` says whether whoever asks may have it made; a placement remembers that, as its
topic can be deleted while it is in use.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kernel.addresses.address import ADDRESS_HEADER, KEY_ESCAPES, UNROUTED, is_topic_name, unescape
from kernel.addresses.murmur2 import queue_for
from kernel.addresses.routes import Routes
from kernel.delivery.subscriptions import Subscriptions
from kernel.errors import (
    CreateDenied,
    InvalidAddress,
    InvalidTopic,
    TooManyTopics,
    UnknownQueue,
    UnknownTopic,
    Unroutable,
)
from kernel.leasing.settings import LightQueue
from kernel.message import Headers, Placement
from kernel.records.record import encode_header, encode_key
from kernel.settings import KernelSettings
from kernel.state.topics import Topic, Topics

LIGHT: Final = "$queue/"
"""Addresses of light queues."""


class Places:
    """Makes placements. `create` makes a topic (name, tenant, maker) with default settings in the frame being
    gathered, or raises TooManyTopics."""

    def __init__(self, routes: Routes, topics: Topics, subscriptions: Subscriptions, settings: KernelSettings,
                 create: Callable[[str, str, str], Topic], light: Callable[[str, str], LightQueue | None]) -> None:
        self.routes = routes
        self.settings = settings
        self._topics = topics
        self._subscriptions = subscriptions
        self._create = create
        self._light = light

    def place(self, address: str, tenant: str, may_create: bool, maker: str = "") -> Placement:
        """Raises InvalidAddress, Unroutable, UnknownQueue, and where the topic is missing what `_make` raises."""
        if address.startswith(LIGHT):
            name = unescape(address[len(LIGHT):], KEY_ESCAPES)         # as rights to the queue are spelled
            return self.place_light(self._require_light(name, tenant), 0, None)
        routed = self.routes.route(address)
        topic = self._topics.get(routed.topic, tenant)
        if topic is None:
            topic = self._make(routed.topic, tenant, may_create, maker)
        placement = self._placement(topic, routed.queue(topic.queues), routed.key, address,
                                    address if routed.needs_header else "")
        placement.may_create, placement.maker = may_create, maker
        return placement

    def place_light(self, queue: LightQueue, priority: int, key: bytes | None) -> Placement:
        """Into a light queue and nowhere else."""
        address = LIGHT + queue.name
        placement = Placement(queue.tenant, address, "", 0, 0, queue.queue_id(priority), key, encode_key(key), b"",
                              self.settings.max_message_bytes,
                              self._subscriptions.first_level(address, queue.tenant))
        placement.light = queue
        placement.fixed_queue = True
        placement.topics_version = self._topics.version
        return placement

    def place_again(self, tenant: str, name: str, priority: int, key: bytes | None) -> Placement:
        """Into the light queue that has this name by now. Raises UnknownQueue."""
        return self.place_light(self._require_light(name, tenant), priority, key)

    def place_routed(self, address: str, queue_ids: tuple[int, ...], tenant: str, may_create: bool, maker: str = ""
                     ) -> Placement:
        """Where the address leads, and by reference into these light queues, whatever is bound to the address.

        What no topic takes and these queues do is stored in `unrouted`.
        """
        try:
            placement = self.place(address, tenant, may_create, maker)
        except Unroutable:
            if not queue_ids:
                raise
            placement = self.place_unrouted(address, tenant)
        placement.routed = queue_ids
        return placement

    def copied_to(self, placement: Placement, topic: Topic) -> Placement:
        """For a record of a producer's batch: the same message in the light queues alone that its address leads to."""
        first, *others = placement.also
        copy = Placement(placement.tenant, placement.address, topic.name, topic.id, placement.queue, first,
                         placement.key, placement.key_part, encode_header(ADDRESS_HEADER, placement.address.encode()),
                         1 << 62, placement.first_level)
        copy.also = tuple(others)
        copy.limited = placement.limited
        copy.fixed_queue = True
        copy.version, copy.topics_version = placement.first_level.version, self._topics.version
        return copy

    def _require_light(self, name: str, tenant: str) -> LightQueue:
        queue = self._light(name, tenant)
        if queue is None:
            raise UnknownQueue(f"there is no queue {name!r}")
        return queue

    def place_in(self, name: str, key: bytes | None, queue: int | None, tenant: str, may_create: bool, maker: str = ""
                 ) -> Placement:
        """Raises UnknownQueue, InvalidTopic, and where the topic is missing what `_make` raises."""
        topic = self._topics.get(name, tenant)
        if topic is None:
            if not is_topic_name(name):
                raise InvalidTopic(f"{name[:249]!r} is no topic name: letters, digits, '.', '_', '-', at most 249")
            topic = self._make(name, tenant, may_create, maker)
        address = self.routes.address_of(name, key)
        number = self._queue(topic, key, address) if queue is None else queue
        placement = self._placement(topic, number, key, address, "")
        placement.fixed_topic = True
        placement.fixed_queue = queue is not None
        placement.may_create, placement.maker = may_create, maker
        return placement

    def place_unrouted(self, address: str, tenant: str) -> Placement:
        """Where a message is stored that has nowhere else to go: the topic `unrouted`, with the address as key."""
        routed = self.routes.unrouted(address)
        topic = self._topics.get(UNROUTED, tenant) or self._make(UNROUTED, tenant, True, "")
        placement = self._placement(topic, routed.queue(topic.queues), routed.key, address, "")
        placement.fixed_topic = placement.may_create = True
        return placement

    def _queue(self, topic: Topic, key: bytes | None, address: str) -> int:
        """The queue that the address routes to, where that leads to this topic and key; else the key's own."""
        try:
            routed = self.routes.route(address)
        except InvalidAddress:               # `$...` without a route
            routed = None
        if routed is not None and (routed.topic, routed.key) == (topic.name, key):
            return routed.queue(topic.queues)
        return queue_for(address.encode() if key is None else key, topic.queues)

    def for_record(self, topic: Topic, queue: int, key: bytes | None, headers: Headers) -> Placement:
        """The placement of a record that is stored already, for matching its address."""
        return self._placement(topic, queue, key, self.routes.address_of(topic.name, key, headers), "")

    def first_levels_of(self, topic: str) -> frozenset[str] | None:
        """The first levels that addresses stored in this topic can have; None: any."""
        if topic == UNROUTED or self.routes.any or self.routes.is_own(topic):
            return None
        return frozenset((topic,))

    def renew(self, placement: Placement) -> None:
        """Topics have changed: find this placement's topic again, making it anew if it was deleted and whoever asked
        for the placement may. Raises as `place`, and again until it has succeeded."""
        if isinstance(placement.light, LightQueue):
            queue = self._require_light(placement.light.name, placement.tenant)
            if queue.first_queue_id != placement.light.first_queue_id:
                raise UnknownQueue(f"queue {queue.name!r} was deleted and made anew")
            placement.light = queue
        else:
            self._renew_topic(placement)
        placement.topics_version = self._topics.version

    def _renew_topic(self, placement: Placement) -> None:
        topic = self._topics.get(placement.topic, placement.tenant)
        if topic is not None and topic.id == placement.topic_id and placement.queue < topic.queues:
            placement.max_message_bytes = self.max_message_bytes(topic)
            placement.compact = topic.settings.compact
            if not placement.fixed_queue:
                placement.queue = self._queue(topic, placement.key, placement.address)
                placement.queue_id = topic.queue_id(placement.queue)
            return
        fresh = self._place_anew(placement)
        for name in ("topic", "topic_id", "queue", "queue_id", "key", "key_part", "address_header",
                     "max_message_bytes", "compact"):
            setattr(placement, name, getattr(fresh, name))

    def _place_anew(self, placement: Placement) -> Placement:
        """Where the same would be placed now."""
        allowed = placement.tenant, placement.may_create, placement.maker
        if placement.fixed_topic:
            queue = placement.queue if placement.fixed_queue else None
            return self.place_in(placement.topic, placement.key, queue, *allowed)
        return self.place(placement.address, *allowed)

    def _make(self, name: str, tenant: str, may_create: bool, maker: str) -> Topic:
        """A topic that is missing. `unrouted` is the hub's to make, whoever publishes.

        Raises UnknownTopic where topics are not made by use, CreateDenied, TooManyTopics.
        """
        if name == UNROUTED:
            return self._create(name, tenant, "")
        if not self.settings.auto_create_topics:
            raise UnknownTopic(f"there is no topic {name!r}, and topics are not made by use here")
        if not may_create:
            raise CreateDenied(f"there is no topic {name!r}, and this user may not create it")
        if not maker and len(self._topics) >= self.settings.max_auto_topics:     # of a maker `create` asks more
            raise TooManyTopics(f"there is no topic {name!r}, and there are as many as use may make "
                                f"(kernel.max_auto_topics, {self.settings.max_auto_topics})")
        return self._create(name, tenant, maker)

    def _placement(self, topic: Topic, queue: int, key: bytes | None, address: str, header: str) -> Placement:
        encoded = encode_header(ADDRESS_HEADER, header.encode()) if header else b""
        placement = Placement(topic.tenant, address, topic.name, topic.id, queue, topic.queue_id(queue), key,
                              encode_key(key), encoded, self.max_message_bytes(topic),
                              self._subscriptions.first_level(address, topic.tenant))
        placement.topics_version = self._topics.version
        placement.compact = topic.settings.compact
        return placement

    def max_message_bytes(self, topic: Topic) -> int:
        """What the topic takes at most."""
        own = topic.settings.max_message_bytes
        return self.settings.max_message_bytes if own is None else own

    def max_record_bytes(self, queue_id: int) -> int:
        """The same by queue."""
        found = self._topics.of_queue(queue_id)
        return self.settings.max_message_bytes if found is None else self.max_message_bytes(found[0])
