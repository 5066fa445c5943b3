"""The kernel's end of a door's port: numbers become placements, and what a flush brings becomes plain values. Hot."""
from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from gatehouse.kernel.api import DoorSide, HalfMessage, Heard, Message
from gatehouse.kernel.errors import KernelError, UnknownPlace, UnknownQueue
from gatehouse.kernel.group_calls import PortGroups
from gatehouse.kernel.halves.half_records import Half
from gatehouse.kernel.message import (
    Allowed,
    Delivery,
    Fetched,
    Headers,
    Judge,
    KnownProducer,
    OnRetained,
    Origin,
    Owner,
    Place,
    Placement,
    Record,
    Stored,
    When,
)
from gatehouse.kernel.message import Message as PlacedMessage
from gatehouse.kernel.records.batch import NO_HEADERS
from gatehouse.kernel.records.headers import asking_among
from gatehouse.kernel.records.validation import Divert
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.topics import Topic, TopicSettings

if TYPE_CHECKING:
    from gatehouse.kernel.addresses.placing import Places
    from gatehouse.kernel.addresses.routes import RouteEntry
    from gatehouse.kernel.addresses.subscriptions import Subscriptions
    from gatehouse.kernel.assigned.assigned_groups import AssignedGroups
    from gatehouse.kernel.backpressure import Backpressure
    from gatehouse.kernel.delivery.deliveries import Watch, Watches
    from gatehouse.kernel.delivery.retained import RetainedValues
    from gatehouse.kernel.errors import StorageFailed
    from gatehouse.kernel.groups.calls import Groups
    from gatehouse.kernel.ids import Identity
    from gatehouse.kernel.journeys.journeys import Journeys
    from gatehouse.kernel.kernel import Kernel
    from gatehouse.kernel.message import Speaker
    from gatehouse.kernel.receipts import Receipts
    from gatehouse.kernel.records.opened import Unreadable
    from gatehouse.kernel.scheduling.queries import Page, Scheduled
    from gatehouse.kernel.scheduling.scheduling import Scheduling
    from gatehouse.kernel.state.topics import Topics
    from gatehouse.kernel.write.idempotency import Idempotency
    from gatehouse.kernel.write.producers import KnownProducers

UNKNOWN: Final = "the place was given to somebody else, or under other rights"


class HalfHolder(Protocol):
    """Transactions: they stand beside the kernel and take placed messages (decision 148)."""

    def checks_for(self, halves: list[Half], group: str) -> Any:
        """How a transaction of these is checked."""

    def begin(self, halves: list[Half], *, group: str, tenant: str, by: str, settings: Any, owner: Owner | None,
              token: object, name: str | None) -> None:
        """Hold half messages as one transaction."""

    def add(self, transaction_id: int, halves: list[Half], *, tenant: str, owner: Owner | None, token: object) -> None:
        """Hold more of them in an open one."""


class MessageAppender(Protocol):
    """See `write.committer.Appending`."""

    def append(self, messages: list[Any], owner: Owner | None, token: object, positions: bool,
               placements: dict[int, Placement] | None = None, judge: Judge | None = None) -> None: ...

    def append_once(self, messages: list[PlacedMessage], owner: Owner | None, token: object, key: str, add: None,
                    judge: Judge | None) -> None: ...


class BatchAppender(Protocol):
    """See `write.batches.Batches`."""

    def append(self, partition_id: int, batch: bytes, owner: Owner | None, token: object, divert: Divert | None,
               judge: Judge | None) -> None: ...

    def append_all(self, batches: list[tuple[int, bytes]], owner: Owner | None, token: object,
                   idempotency_key: str | None) -> None: ...


class Gathers(Protocol):
    """See `write.committer.Committer`."""

    def gather(self, enter: Callable[[], None], waiting: Callable[[], int]) -> None: ...

    def next_offset(self, partition_id: int) -> int: ...


class PartitionReader(Protocol):
    """See `index.reader.Reader`."""

    def bounds(self, partition_id: int) -> tuple[int, int]: ...

    def bounds_of(self, topic: Topic) -> array[int]: ...

    def fetch_public(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None],
                     kept: bool, stored: bool, max_records: int) -> None: ...

    def offset_for_time(self, partition_id: int, timestamp_ms: int, on_done: Callable[[int | None, int], None]
                        ) -> None: ...

    def offset_of_largest_timestamp(self, partition_id: int, on_done: Callable[[int | None, int], None]) -> None: ...

    def end_of_epoch(self, partition_id: int, epoch: int, on_done: Callable[[int], None]) -> None: ...

    def sizes(self, partition_ids: list[int], on_done: Callable[[list[int]], None]) -> None: ...


class LiveFeed(Protocol):
    """See `delivery.deliveries.Deliveries`."""

    @property
    def idle(self) -> bool: ...

    def note_delivered(self, door: str, count: int) -> None: ...


def ask_again(_: str) -> Allowed | None:
    """The judge of a receipt that is asked for among messages of several guards: nobody judges it, and each guard's own
    are appended by themselves then."""
    return None


class Port:  # decision 359
    """See `api.KernelPort`. The kernel's `Owner` and `Subscriber` for all of its door."""

    def __init__(self, door: DoorSide, transactions: HalfHolder | None, *, kernel: Kernel, identity: Identity,
                 backpressure: Backpressure, topics: Topics, places: Places,
                 subscriptions: Subscriptions, speaker: Speaker, journeys: Journeys | None, committer: Gathers,
                 appending: MessageAppender, batches: BatchAppender, idempotency: Idempotency, receipts: Receipts,
                 scheduling: Scheduling, reader: PartitionReader, unreadable: Unreadable, watches: Watches,
                 deliveries: LiveFeed, retained: RetainedValues, known_producers: KnownProducers,
                 groups: Groups, assigned: AssignedGroups) -> None:
        """What is asked or told with messages goes to the part that it is about; the `kernel` itself is asked to make,
        change and delete topics."""
        self._door = door
        self._transactions = transactions
        self._kernel = kernel
        self._identity = identity
        self._backpressure = backpressure
        self._topics = topics
        self._places = places
        self._subscriptions = subscriptions
        self._speaker = speaker
        self._journeys = journeys
        self._committer = committer
        self._appending = appending
        self._batches = batches
        self._idempotency = idempotency
        self._receipts = receipts
        self._scheduling = scheduling
        self._reader = reader
        self._unreadable = unreadable
        self._all_watches = watches
        self._deliveries = deliveries
        self._retained = retained
        self._known_producers = known_producers
        self._guards: dict[int, dict[int, Placement]] = {}       # what each was given, by number
        self._judges: dict[int, Judge] = {}                      # of receipts that are asked for in its name
        self._last_guard = 0
        self._last_place = 0
        self._watches: dict[int, Watch] = {}
        self._last_watch = 0
        self._groups = PortGroups(self, groups, assigned, topics)

    # ---- from definitions

    @property
    def epoch(self) -> int:
        return self._identity.epoch

    @property
    def hub(self) -> bytes:
        return self._identity.hub

    @property
    def settings(self) -> KernelSettings:
        return self._kernel.settings

    @property
    def congested(self) -> bool:
        return self._backpressure.congested

    @property
    def records_journeys(self) -> bool:
        return self._journeys is not None

    def told(self, kind: int, origin: Origin, tenant: str, address: str, reason: str) -> None:
        if self._journeys is not None:
            self._journeys.on_client(kind, origin, tenant, address, reason)

    def address_of_place(self, guard: int, place: int) -> str:
        placement = self._guards[guard].get(place)
        return "" if placement is None else placement.address

    def speaks(self, origin: Origin) -> None:
        self._speaker.speaks(origin)

    def speak_in_turn(self, stops: list[int], origins: list[Origin], traces: bool) -> None:
        self._speaker.speak_in_turn(stops, origins, traces)

    def wall_of(self, hub_ms: int) -> int:
        return self._kernel.wall_of(hub_ms)

    def note_delivered(self, door: str, count: int) -> None:
        self._deliveries.note_delivered(door, count)

    def has_expired(self, record: Record, topic: str, tenant: str) -> bool:
        return self._kernel.has_expired(record, topic, tenant)

    def topic(self, name: str, tenant: str) -> Topic | None:
        return self._topics.get(name, tenant)

    def topic_by_uuid(self, uuid: bytes) -> Topic | None:
        return self._topics.by_uuid(uuid)

    def topics(self, tenant: str) -> list[Topic]:
        return self._topics.of(tenant)

    @property
    def topics_version(self) -> int:
        return self._topics.version

    def topics_for(self, filter: str, tenant: str) -> list[Topic]:
        return self._places.topics_for(filter, tenant)

    @property
    def route_entries(self) -> tuple[RouteEntry, ...]:
        return self._places.routes.entries

    @property
    def delivered(self) -> bool:
        return self._deliveries.idle

    def address_of(self, topic: str, key: bytes | None, headers: Headers) -> str:
        return self._places.routes.address_of(topic, key, headers)

    # ---- places

    def open_guard(self, judge: Judge) -> int:
        self._last_guard += 1
        self._guards[self._last_guard] = {}
        self._judges[self._last_guard] = judge
        return self._last_guard

    def close_guard(self, guard: int) -> None:
        self._guards.pop(guard, None)
        self._judges.pop(guard, None)

    def forget_places(self, guard: int, places: list[int] | None) -> None:
        given = self._guards[guard]
        if places is None:
            given.clear()
        else:
            for place in places:
                given.pop(place, None)

    def place(self, guard: int, address: str, tenant: str, may_create: bool, maker: str) -> int:
        return self._given(guard, self._places.place(address, tenant, may_create, maker))

    def place_in(self, guard: int, topic: str, key: bytes | None, partition: int | None, tenant: str,
                 may_create: bool, maker: str) -> int:
        return self._given(guard, self._places.place_in(topic, key, partition, tenant, may_create, maker))

    def place_queue(self, guard: int, name: str, tenant: str, priority: int) -> int:
        queue = self._groups.queue(name, tenant)
        if queue is None:
            raise UnknownQueue(f"there is no queue {name!r}")
        return self._given(guard, self._places.place_queue(queue, priority, None))

    def place_routed(self, guard: int, address: str, partition_ids: tuple[int, ...], tenant: str, may_create: bool,
                     maker: str) -> int:
        return self._given(guard, self._places.place_routed(address, partition_ids, tenant, may_create, maker))

    # decision 145: numbers are given once, and never again
    def _given(self, guard: int, placement: Placement) -> int:
        self._last_place += 1
        self._guards[guard][self._last_place] = placement
        return self._last_place

    def max_bytes(self, guard: int, place: int) -> int:
        return self._as_it_is(guard, place).max_message_bytes

    def look(self, guard: int, place: int) -> Place:
        return _shown(self._as_it_is(guard, place))

    def _as_it_is(self, guard: int, place: int) -> Placement:
        """Topics may have changed since the place was given, or last appended to."""
        placement = self._placement(guard, place)
        if placement.version != placement.first_level.version:
            with suppress(KernelError):      # what cannot be found again is as it was: an append says why
                self._places.refresh(placement)
        return placement

    def can_be_stored(self, guard: int, place: int) -> bool:
        placement = self._placement(guard, place)
        return (placement.may_create or placement.queue is not None
                or self._topics.get(placement.topic, placement.tenant) is not None)

    def _placement(self, guard: int, place: int) -> Placement:
        placement = self._guards[guard].get(place)
        if placement is None:
            raise UnknownPlace(UNKNOWN)
        return placement

    def _placed(self, guard: int, messages: list[Message]) -> list[PlacedMessage]:
        """Messages as the kernel takes them. Raises UnknownPlace."""
        given = self._guards[guard]
        try:
            return [(given[place], value, headers, attributes, timestamp_ms)
                    for place, value, headers, attributes, timestamp_ms in messages]
        except KeyError:
            raise UnknownPlace(UNKNOWN) from None

    def checks_for(self, guard: int, place: int, group: str) -> Any:
        assert self._transactions is not None, "a port of the hub has transactions"
        message: PlacedMessage = (self._placement(guard, place), None, NO_HEADERS, 0, 0)
        return self._transactions.checks_for([Half(message)], group)

    @property
    def groups(self) -> PortGroups:
        return self._groups

    # ---- told

    def append(self, guard: int, messages: list[Message], number: int, positions: bool, idempotency_key: str | None
               ) -> None:
        if idempotency_key is not None:
            self._appending.append_once(self._placed(guard, messages), self if number else None, number,
                                        idempotency_key, None, self._judges[guard])
            return
        self._appending.append(messages, self if number else None, number, positions, self._guards[guard],
                               self._judges[guard])

    def is_repeated(self, idempotency_key: str) -> bool:
        return self._idempotency.knows(idempotency_key)

    def append_gathered(self, guards: list[int], stops: list[int], messages: list[Message], number: int,
                        positions: bool) -> None:
        placements: dict[int, Placement] = {}
        start = 0
        for guard, stop in zip(guards, stops, strict=True):
            given = self._guards[guard]
            for message in messages[start:stop]:
                place = message[0]
                placement = given.get(place)
                if placement is None:
                    raise UnknownPlace(UNKNOWN)
                placements[place] = placement
            start = stop
        judge = self._judges[guards[0]] if len(set(guards)) == 1 else ask_again
        self._appending.append(messages, self if number else None, number, positions, placements, judge)

    def gather(self, enter: Callable[[], None], waiting: Callable[[], int]) -> None:
        self._committer.gather(enter, waiting)

    def schedule(self, guard: int, messages: list[Message], whens: list[When], number: int,
                 idempotency_key: str | None) -> None:
        placed = self._placed(guard, messages)
        self._require_receipts(guard, placed)
        self._scheduling.schedule(placed, whens, self if number else None, number, idempotency_key)

    def recall_named(self, name: str, tenant: str, number: int) -> None:
        self._scheduling.recall_named(name, tenant, self, number)

    def append_batch(self, partition_id: int, batch: bytes, number: int, divert: Divert | None, guard: int) -> None:
        self._batches.append(partition_id, batch, self if number else None, number, divert, self._judges[guard])

    def append_batches(self, batches: list[tuple[int, bytes]], number: int, idempotency_key: str | None) -> None:
        self._batches.append_all(batches, self if number else None, number, idempotency_key)

    def recall(self, message_id: int, tenant: str, number: int) -> None:
        self._scheduling.recall(message_id, tenant, self, number)

    def begin(self, guard: int, halves: list[HalfMessage], group: str, tenant: str, by: str, checks: Any, number: int,
              name: str | None) -> None:
        assert self._transactions is not None, "a port of the hub has transactions"
        self._transactions.begin(self._held(guard, halves), group=group, tenant=tenant, by=by, settings=checks,
                                 owner=self if number else None, token=number, name=name)

    def add(self, guard: int, transaction_id: int, halves: list[HalfMessage], tenant: str, number: int) -> None:
        assert self._transactions is not None, "a port of the hub has transactions"
        self._transactions.add(transaction_id, self._held(guard, halves), tenant=tenant,
                               owner=self if number else None, token=number)

    def _require_receipts(self, guard: int, placed: list[PlacedMessage]) -> None:
        """Raises ReceiptDenied where one asks for a receipt that its sender may not have. Few ask for one."""
        if asking_among(placed):
            self._receipts.require(placed, self._judges[guard])

    def _held(self, guard: int, halves: list[HalfMessage]) -> list[Half]:
        """Half messages as transactions take them. Raises UnknownPlace, ReceiptDenied."""
        placed = self._placed(guard, [half.message for half in halves])
        self._require_receipts(guard, placed)
        return [Half(message, half.when, half.delay_ms) for message, half in zip(placed, halves, strict=True)]

    def flush(self, number: int) -> None:
        self._appending.append([], self, number, False)

    def subscribe(self, filter: str, tenant: str) -> None:
        self._subscriptions.subscribe(filter, self, 0, tenant)

    def unsubscribe(self, filter: str, tenant: str) -> None:
        self._subscriptions.unsubscribe(filter, self, tenant)

    def create_topic(self, name: str, partitions: int | None, settings: TopicSettings | None, tenant: str, maker: str,
                     number: int) -> Topic:
        return self._kernel.create_topic(name, partitions=partitions, settings=settings, tenant=tenant, maker=maker,
                                         owner=self if number else None, token=number)

    def pace_topics(self, maker: str) -> None:
        self._kernel.pace_topics(maker)

    def change_topic(self, name: str, partitions: int | None, settings: TopicSettings | None, tenant: str, number: int
                     ) -> Topic:
        return self._kernel.change_topic(name, partitions=partitions, settings=settings, tenant=tenant,
                                         owner=self if number else None, token=number)

    def delete_topic(self, name: str, tenant: str, number: int) -> None:
        self._kernel.delete_topic(name, tenant=tenant, owner=self if number else None, token=number)

    def delete_records(self, before: dict[int, int], number: int) -> None:
        self._kernel.delete_records(before, self if number else None, number)

    def new_producer_id(self, number: int) -> None:
        self._kernel.new_producer_id(self, number)

    def note_fault(self, fault: Exception) -> None:
        self._kernel.note_fault(fault)

    def note_unreadable(self, partition_id: int, offset: int, count: int) -> None:
        self._unreadable.note(partition_id, [(offset, offset + count)])

    def on_relief(self, callback: Callable[[], None]) -> None:
        self._backpressure.on_relief(callback)

    # ---- asked

    def bounds(self, partition_id: int) -> tuple[int, int]:
        return self._reader.bounds(partition_id)

    def next_offset(self, partition_id: int) -> int:
        return self._committer.next_offset(partition_id)

    def bounds_of(self, topic: Topic) -> array[int]:
        return self._reader.bounds_of(topic)

    def fetch(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None],
              stored: bool, max_records: int = 0) -> None:
        self._reader.fetch_public(wants, max_bytes, on_done, False, stored, max_records)

    def retained(self, filter: str, tenant: str, on_done: OnRetained, max_values: int, start: str) -> None:
        self._retained.look_up(filter, tenant, max_values, start, on_done)

    def scheduled(self, tenant: str, start: bytes, limit: int, on_done: Callable[[Page | StorageFailed], None]) -> None:
        self._scheduling.page(tenant, start, limit, on_done)

    def show_scheduled(self, message_id: int, tenant: str, on_done: Callable[[Scheduled | None], None]) -> None:
        self._scheduling.show(message_id, tenant, on_done)

    def watch(self, partition_ids: Collection[int], wake: Callable[[], None]) -> int:
        self._last_watch = number = self._last_watch + 1

        def woken() -> None:
            if self._watches.pop(number, None) is not None:     # else it was given up by who was woken before
                wake()

        self._watches[number] = self._all_watches.add(partition_ids, woken)
        return number

    def unwatch(self, number: int) -> None:
        watch = self._watches.pop(number, None)
        if watch is not None:
            watch.cancel()

    def offset_for_time(self, partition_id: int, timestamp_ms: int, on_done: Callable[[int | None, int], None]) -> None:
        self._reader.offset_for_time(partition_id, timestamp_ms, on_done)

    def offset_of_largest_timestamp(self, partition_id: int, on_done: Callable[[int | None, int], None]) -> None:
        self._reader.offset_of_largest_timestamp(partition_id, on_done)

    def end_of_epoch(self, partition_id: int, epoch: int, on_done: Callable[[int], None]) -> None:
        self._reader.end_of_epoch(partition_id, epoch, on_done)

    def sizes(self, partition_ids: list[int], on_done: Callable[[list[int]], None]) -> None:
        self._reader.sizes(partition_ids, on_done)

    def producers_of(self, partition_id: int, on_done: Callable[[list[KnownProducer]], None]) -> None:
        self._known_producers.find(partition_id, on_done)

    # ---- what the kernel calls

    def on_stored(self, stored: list[Stored]) -> Iterator[None]:
        """One flush's answers for the whole door."""
        return self._door.on_answers(stored)

    def hearers(self, placement: Placement) -> tuple[str, int]:
        """See `recorder.Hearing`."""
        return self._door.hearers(_shown(placement))

    def on_delivery(self, deliveries: list[Delivery]) -> Iterator[None]:
        """What of a flush the door has a filter for."""
        heard: list[Heard] = []
        for placement, messages, first_offset, _ in deliveries:
            heard.append((_shown(placement), messages, first_offset))
        return self._door.on_delivery(heard)


def _shown(placement: Placement) -> Place:
    """The placement as doors see it."""
    place = placement.shown
    if place is None or place.partition_id != placement.partition_id:
        place = placement.shown = Place(placement.tenant, placement.address, placement.topic, placement.partition,
                                        placement.partition_id, placement.key)
    return place
