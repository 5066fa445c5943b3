"""Live subscribers: who hears of which address.

What matches an address is remembered in its placement and looked up again only when a subscription that could matter
has come or gone: each first level of each tenant counts such changes. Tenants share nothing, so a filter is tried only
on its own tenant's addresses, and a publish does not pay for other tenants' subscribers.
"""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.addresses.audience import Audience
from gatehouse.kernel.addresses.filters import parse_filter
from gatehouse.kernel.message import Chooser, Delivery, FirstLevel, Message, Placement, Subscriber
from gatehouse.kernel.records.batch import encode_header

CHOSEN_MAX: Final = 1_024              # sets of queues that are remembered of one address; forgotten beyond that


class QueueTarget:
    """A queue among the subscribers: what matches enters it. `chosen` ones a door may leave out, see
    `Placement.routed`."""

    __slots__ = ("partition_id", "chosen", "tenant", "filters")

    def __init__(self, partition_id: int, chosen: bool, tenant: str) -> None:
        self.partition_id = partition_id
        self.chosen = chosen
        self.tenant = tenant
        self.filters: dict[str, None] = {}           # what is bound to it

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        """Never called: what matches is in the partition already."""


class Lasting:
    """Something with a partition of its own among the subscribers: what matches enters it, but for what its sender
    asked no durability of (TRANSIENT), unless the hub is set to keep that."""

    __slots__ = ("partition_id",)

    def __init__(self, partition_id: int) -> None:
        self.partition_id = partition_id

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        """Never called: what matches is in the partition already."""


class Choosing:
    """A door's chooser among the subscribers: it says which queues what matches enters."""

    __slots__ = ("chooser",)

    def __init__(self, chooser: Chooser) -> None:
        self.chooser = chooser

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        """Never called: what matches is in the queues already."""


class Subscriptions:
    """Every subscription and binding of the hub. A filter hears of its own tenant's messages alone."""

    def __init__(self, *, lasting_take_all: bool = False) -> None:
        self.lasting_take_all = lasting_take_all     # what is TRANSIENT enters the partitions of `Lasting`, too
        self._audiences: dict[str, Audience[Subscriber]] = {}
        self._queue_targets: dict[tuple[int, bool], QueueTarget] = {}
        self.limited: set[int] = set()               # queues that refuse messages when they are full
        self.version = 0
        self.count = 0                               # subscriptions and bindings, of all tenants
        self._lasting = 0                            # of them, those of `Lasting`
        self._choosing: dict[tuple[str, str], Choosing] = {}           # by tenant and filter

    def _audience(self, tenant: str) -> Audience[Subscriber]:  # decision 90
        audience = self._audiences.get(tenant)
        if audience is None:
            audience = self._audiences[tenant] = Audience()
        return audience

    def subscribe(self, filter_text: str, subscriber: Subscriber, options: int, tenant: str) -> None:
        """Raises InvalidFilter. Subscribing again replaces the options."""
        if self._audience(tenant).add(parse_filter(filter_text), subscriber, options):
            self.count += 1
        self.version += 1

    def unsubscribe(self, filter_text: str, subscriber: Subscriber, tenant: str) -> bool:
        """False where there was no such subscription. Raises InvalidFilter."""
        self.version += 1
        if not self._audience(tenant).remove(parse_filter(filter_text), subscriber):
            return False
        self.count -= 1
        assert self.count >= 0, "a filter goes once"
        return True

    def first_level(self, address: str, tenant: str) -> FirstLevel:
        """The change counter that placements of this address share."""
        return self._audience(tenant).first_level(address.partition("/")[0])

    def refresh(self, placement: Placement) -> None:
        """Find the placement's targets again: each subscriber once, with its highest options."""
        best: dict[Subscriber, int] = {}
        also: dict[int, None] = dict.fromkeys(placement.routed or ())
        lasting: dict[int, None] = {}
        choosing: dict[Chooser, None] = {}
        audience = self._audiences.get(placement.tenant)
        if audience and placement.queue is None:
            for subscriber, options in audience.match(placement.address):
                if isinstance(subscriber, QueueTarget):
                    if placement.routed is None or not subscriber.chosen:
                        also[subscriber.partition_id] = None
                elif isinstance(subscriber, Lasting):
                    lasting[subscriber.partition_id] = None
                elif isinstance(subscriber, Choosing):
                    if placement.routed is None:
                        choosing[subscriber.chooser] = None
                elif options >= best.get(subscriber, options):
                    best[subscriber] = options
        undecided = self._choose(choosing, placement.address, also) if choosing else ()
        if undecided or placement.choosing:
            placement.choosing, placement.chosen = undecided, None
        placement.targets = tuple(best.items())
        placement.also = placement.fleeting = tuple(also)
        if lasting:
            also.update(lasting)
            placement.also = tuple(also)
            if self.lasting_take_all:
                placement.fleeting = placement.also
        placement.limited = bool(undecided) or bool(self.limited) and (
            placement.partition_id in self.limited or not self.limited.isdisjoint(also))
        if also and not placement.address_header:      # a queue knows no topic: the record says its address
            placement.address_header = encode_header(ADDRESS_HEADER, placement.address.encode())
        placement.version = placement.first_level.version

    # ---- choosers  # decision 228

    @staticmethod
    def _choose(choosing: dict[Chooser, None], address: str, also: dict[int, None]) -> tuple[Chooser, ...]:
        """Ask choosers what an address enters; those that have to see each message are returned."""
        undecided = []
        for chooser in choosing:
            partition_ids = chooser.choose(address)
            if partition_ids is None:
                undecided.append(chooser)
            else:
                also.update(dict.fromkeys(partition_ids))
        return tuple(undecided)

    def choose(self, messages: list[Message]) -> list[Message]:
        """The same messages, each with the placement of just the queues that it enters, where choosers have to see
        it."""
        return [(self._chosen(message), *message[1:]) if message[0].choosing else message for message in messages]

    def _chosen(self, message: Message) -> Placement:
        placement, _, headers, attributes, timestamp_ms = message
        chosen = dict.fromkeys([partition_id for chooser in placement.choosing for partition_id
                                in chooser.choose_for(placement.address, headers, attributes, timestamp_ms)])
        partition_ids = tuple(chosen)
        if placement.chosen is None or len(placement.chosen) > CHOSEN_MAX:
            placement.chosen = {}
        special = placement.chosen.get(partition_ids)
        if special is None:
            special = placement.chosen[partition_ids] = placement.with_queues(partition_ids)
            special.limited = not self.limited.isdisjoint((special.partition_id, *special.also))
            if special.also and not special.address_header:
                special.address_header = encode_header(ADDRESS_HEADER, special.address.encode())
        return special

    def bind_chooser(self, filter_text: str, chooser: Chooser, tenant: str) -> None:
        """Ask this chooser about messages to matching addresses; bound once more, it is asked anew. Raises
        InvalidFilter."""
        key = (tenant, filter_text)
        choosing = self._choosing.get(key)
        if choosing is None:
            choosing = self._choosing[key] = Choosing(chooser)
        self.subscribe(filter_text, choosing, 0, tenant)

    def unbind_chooser(self, filter_text: str, tenant: str) -> None:
        """Undo `bind_chooser`, where it was done."""
        choosing = self._choosing.pop((tenant, filter_text), None)
        if choosing is not None:
            self.unsubscribe(filter_text, choosing, tenant)

    def touch(self) -> None:
        """All placements must be looked at again."""
        for audience in self._audiences.values():
            audience.touch()

    def may_match(self, first_levels: frozenset[str] | None, tenant: str) -> bool:
        """Whether any filter of a tenant could match addresses with one of these first levels (None: any)."""
        audience = self._audiences.get(tenant)
        return audience is not None and audience.may_match(first_levels)

    # ---- queues

    def bind(self, filter_text: str, partition_id: int, chosen: bool, tenant: str) -> None:
        """What matches enters this queue of the tenant. Raises InvalidFilter."""
        target = self._queue_targets.get((partition_id, chosen)) or QueueTarget(partition_id, chosen, tenant)
        assert target.tenant == tenant, "a partition id is one queue's, of one tenant"
        self.subscribe(filter_text, target, 0, tenant)
        self._queue_targets[partition_id, chosen] = target
        target.filters[filter_text] = None

    def unbind(self, filter_text: str, partition_id: int, chosen: bool) -> bool:
        """False where there was no such binding. Raises InvalidFilter."""
        target = self._queue_targets.get((partition_id, chosen))
        if target is None:
            return False
        target.filters.pop(filter_text, None)
        if not target.filters:
            del self._queue_targets[partition_id, chosen]
        return self.unsubscribe(filter_text, target, target.tenant)

    def bindings_of(self, partition_id: int) -> list[tuple[bool, str]]:
        """(chosen, filter) of what leads to a queue."""
        return [(chosen, filter_text) for chosen in (False, True)
                for target in [self._queue_targets.get((partition_id, chosen))] if target is not None
                for filter_text in target.filters]

    @property
    def binds(self) -> bool:
        """Whether anything is bound that messages enter besides their topic."""
        return bool(self._queue_targets) or self._lasting > 0 or bool(self._choosing)

    # ---- sessions

    def bind_lasting(self, filter_text: str, target: Lasting, tenant: str) -> None:
        """What matches, and is not TRANSIENT, enters the target's partition. Raises InvalidFilter."""
        before = self.count
        self.subscribe(filter_text, target, 0, tenant)
        self._lasting += self.count - before

    def unbind_lasting(self, filter_text: str, target: Lasting, tenant: str) -> None:
        """Undo `bind_lasting`, where it was done."""
        if self.unsubscribe(filter_text, target, tenant):
            self._lasting -= 1
