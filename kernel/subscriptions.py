"""Live subscribers: who hears of which address, and the hand-over after each flush.

What matches an address is remembered in its placement and looked up again only when a subscription that could matter
has come or gone: each first level counts such changes.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable

from kernel.address import ADDRESS_HEADER, levels_of
from kernel.filters import MANY, ONE, FilterTrie, parse_filter
from kernel.message import Delivery, FirstLevel, Message, Placement, Subscriber
from kernel.record import encode_header


class LightTarget:
    """A light queue among the subscribers: what matches enters it. `chosen` ones a door may leave out, see
    `Placement.routed`."""

    __slots__ = ("queue_id", "chosen", "filters")

    def __init__(self, queue_id: int, chosen: bool) -> None:
        self.queue_id = queue_id
        self.chosen = chosen
        self.filters: dict[str, None] = {}           # what is bound to it

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        """Never called: what matches is in the queue already."""


class Subscriptions:
    def __init__(self) -> None:
        self._trie: FilterTrie[tuple[Subscriber, int]] = FilterTrie()
        self._options: dict[tuple[tuple[str, ...], Subscriber], int] = {}
        self._first_levels: dict[str, FirstLevel] = {}
        self._light_targets: dict[tuple[int, bool], LightTarget] = {}
        self._wild = 0                               # filters that begin with a wildcard
        self._by_first: dict[str, int] = {}          # other filters, by first level
        self.limited: set[int] = set()               # light queues that refuse messages when they are full
        self.version = 0

    def __len__(self) -> int:
        return len(self._options)

    def subscribe(self, filter_text: str, subscriber: Subscriber, options: int) -> None:
        """Raises InvalidFilter. Subscribing again replaces the options."""
        pattern = parse_filter(filter_text)
        self._remove(pattern, subscriber)
        self._options[pattern, subscriber] = options
        self._trie.insert(pattern, (subscriber, options))
        self._count(pattern[0], 1)

    def unsubscribe(self, filter_text: str, subscriber: Subscriber) -> bool:
        """False where there was no such subscription. Raises InvalidFilter."""
        return self._remove(parse_filter(filter_text), subscriber)

    def _remove(self, pattern: tuple[str, ...], subscriber: Subscriber) -> bool:
        options = self._options.pop((pattern, subscriber), None)
        if options is None:
            return False
        self._trie.remove(pattern, (subscriber, options))
        self._count(pattern[0], -1)
        return True

    def _count(self, first: str, by: int) -> None:
        self.version += 1
        if first in (ONE, MANY):
            self._wild += by
            for level in self._first_levels.values():
                level.version += 1
            return
        left = self._by_first.get(first, 0) + by
        if left:
            self._by_first[first] = left
        else:
            del self._by_first[first]
        self.touch((first,))

    def first_level(self, address: str) -> FirstLevel:
        """The change counter that placements of this address share."""
        name = address.partition("/")[0]
        level = self._first_levels.get(name)
        if level is None:
            level = self._first_levels[name] = FirstLevel()
        return level

    def refresh(self, placement: Placement) -> None:
        """Find the placement's targets again: each subscriber once, with its highest options."""
        best: dict[Subscriber, int] = {}
        also: dict[int, None] = dict.fromkeys(placement.routed or ())
        if self._options and placement.light is None:
            for subscriber, options in self._trie.match(levels_of(placement.address)):
                if isinstance(subscriber, LightTarget):
                    if placement.routed is None or not subscriber.chosen:
                        also[subscriber.queue_id] = None
                elif options >= best.get(subscriber, options):
                    best[subscriber] = options
        placement.targets = tuple(best.items())
        placement.also = tuple(also)
        placement.limited = bool(self.limited) and (placement.queue_id in self.limited
                                                    or not self.limited.isdisjoint(also))
        if also and not placement.address_header:      # a light queue knows no topic: the record says its address
            placement.address_header = encode_header(ADDRESS_HEADER, placement.address.encode())
        placement.version = placement.first_level.version

    def touch(self, addresses: Iterable[str] | None = None) -> None:
        """Placements must be looked at again: of these first levels, or all."""
        levels = self._first_levels.values() if addresses is None else \
            [self._first_levels[name] for name in addresses if name in self._first_levels]
        for level in levels:
            level.version += 1

    def may_match(self, first_levels: frozenset[str] | None) -> bool:
        """Whether any filter could match addresses with one of these first levels (None: any)."""
        if not self._options:
            return False
        if self._wild or first_levels is None:
            return True
        return not first_levels.isdisjoint(self._by_first)

    # ---- light queues

    def bind(self, filter_text: str, queue_id: int, chosen: bool) -> None:
        """What matches enters this light queue. Raises InvalidFilter."""
        target = self._light_targets.get((queue_id, chosen)) or LightTarget(queue_id, chosen)
        self.subscribe(filter_text, target, 0)
        self._light_targets[queue_id, chosen] = target
        target.filters[filter_text] = None

    def unbind(self, filter_text: str, queue_id: int, chosen: bool) -> bool:
        """False where there was no such binding. Raises InvalidFilter."""
        target = self._light_targets.get((queue_id, chosen))
        if target is None:
            return False
        target.filters.pop(filter_text, None)
        if not target.filters:
            del self._light_targets[queue_id, chosen]
        return self.unsubscribe(filter_text, target)

    def bindings_of(self, queue_id: int) -> list[tuple[bool, str]]:
        """(chosen, filter) of what leads to a light queue."""
        return [(chosen, filter_text) for chosen in (False, True)
                for target in [self._light_targets.get((queue_id, chosen))] if target is not None
                for filter_text in target.filters]

    @property
    def binds(self) -> bool:
        """Whether any light queue is bound."""
        return bool(self._light_targets)


class Outbox:
    """Collects what one flush delivers, so that each subscriber is called once."""

    def __init__(self) -> None:
        self._by_subscriber: dict[Subscriber, list[Delivery]] = {}

    def add(self, placement: Placement, messages: list[Message], first_offset: int) -> None:
        for subscriber, options in placement.targets:
            mine = self._by_subscriber.get(subscriber)
            if mine is None:
                mine = self._by_subscriber[subscriber] = []
            mine.append((placement, messages, first_offset, options))

    def send(self, on_error: Callable[[Exception], None]) -> None:
        for subscriber, deliveries in self._by_subscriber.items():
            try:
                subscriber.on_delivery(deliveries)
            except Exception as error:      # one subscriber's bug must not cost the others their messages
                on_error(error)
