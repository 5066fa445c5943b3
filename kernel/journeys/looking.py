"""Looks a message up: what was recorded of it, what the log says where nothing was, and where it stands now with each
group, queue and link.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol

from gatehouse.kernel.errors import StorageFailed
from gatehouse.kernel.groups.cursor import ENDLESS_MS, Cursor
from gatehouse.kernel.groups.group_settings import ASSIGNED, LEASED
from gatehouse.kernel.groups.leasing import Leasing
from gatehouse.kernel.index.reader import Reader
from gatehouse.kernel.journeys.following import Following
from gatehouse.kernel.journeys.origins import Origins
from gatehouse.kernel.journeys.publishers import OnAuthors, Publishers
from gatehouse.kernel.journeys.trail import EXTENT, TENANT, Trail, hash_of, named, of_id, of_message, of_trace
from gatehouse.kernel.message import Fetched, Headers, Origin, Piece, Record
from gatehouse.kernel.records.batch import public_record, sound_records
from gatehouse.kernel.state.state import Views, Watermarks
from gatehouse.kernel.state.topics import Topic, Topics
from gatehouse.tracing.events import BEGINNINGS, NAMING, OF_CLIENTS, WAITS, WITH_ADDRESS, Event, Kind, cut

# --- where a message stands ---------------------------------------------------------------------------------------

# With each group and queue that reads its partition, and with each link, at this second.

SETTLED: Final = "settled"
IS_LEASED: Final = "leased"
WAITING: Final = "waiting"
READY: Final = "ready"
QUEUE: Final = "queue"
LINK: Final = "link"


class Standing(NamedTuple):
    """Where one message stands with one group, queue or link."""

    group: str
    kind: str                # `leased`, `assigned`, `queue`, or `link`
    state: str               # one of the words above
    attempts: int = 0
    until_ms: int = 0        # of a lease, or of what waits, by hub time
    user: str = ""           # who has it leased, where that is known
    peer: str = ""


class Links(Protocol):
    """Links to other hubs."""

    def passed_on(self, topic: Topic, partition: int, offset: int, address: str, headers: Headers
                  ) -> list[tuple[str, bool]]:
        """The links by which this message goes out, and whether the hub at the other end has it."""


def link_standings(links: Links, topic: Topic, partition: int, offset: int, address: str, headers: Headers
                   ) -> list[Standing]:
    """Where a message stands with every link by which it goes out."""
    return [Standing(name, LINK, SETTLED if is_there else READY)
            for name, is_there in links.passed_on(topic, partition, offset, address, headers)]


def standings(leasing: Leasing, views: Views, partition_id: int, offset: int) -> list[Standing]:
    """Where a message stands with every group that is known to read its partition."""
    standing_of = [_leased(group.shown_name, LEASED if group.queue is None else QUEUE, prefetcher.cursor, offset)
             for group, prefetcher in leasing.cursors.readers.get(partition_id, ())]
    names = {standing.group for standing in standing_of}
    for group_name, offsets in views.offsets.items():
        committed = offsets.get(partition_id)
        if committed is not None and group_name not in names:
            standing_of.append(Standing(group_name, ASSIGNED, SETTLED if offset < committed[0] else READY))
    return standing_of


def _leased(name: str, kind: str, cursor: Cursor, offset: int) -> Standing:
    lease = cursor.lease_at(offset)
    if cursor.is_settled(offset):
        return Standing(name, kind, SETTLED)
    if lease is not None:
        taker = getattr(lease.holder, "taker", None)
        until_ms = 0 if lease.until_ms == ENDLESS_MS else lease.until_ms
        return Standing(name, kind, IS_LEASED, lease.attempt, until_ms, getattr(taker, "user", ""),
                        getattr(taker, "peer", ""))
    until_ms = cursor.waits_until(offset)
    return Standing(name, kind, WAITING if until_ms else READY, cursor.attempt_of(offset), until_ms)


# --- what is known of a message -----------------------------------------------------------------------------------

FIELD_OF: Final[dict[str, Callable[[Event], bytes]]] = {
    "key": lambda event: event.key, "address": lambda event: event.address.encode(),
    "correlation": lambda event: event.correlation_id, "told-user": lambda event: event.user.encode(),
    "told-client": lambda event: event.client.encode(), "told-address": lambda event: event.address.encode()}
"""What of an event is compared with what is looked for."""

MAX_EVENTS: Final = 1_000            # of one journey that are shown
FIRST_EVENTS: Final = 500            # of these, where there are more; the others are the last ones
SKEW_MS: Final = 60_000              # by which events may lie behind later ones
MAX_PARTITIONS: Final = 20_000       # that are searched for a message of which nothing was recorded


@dataclass(slots=True)
class Location:
    """Where a message lies, as far as that is known."""

    partition_id: int
    offset: int
    topic: str = ""                  # "" where it is a queue's partition, or one that is gone
    partition: int = 0
    queue: str = ""
    tenant: str | None = None        # None: nobody knows whose it was


@dataclass(slots=True)
class Journey:
    """What is known of one message. `record` is None where retention has passed it."""

    message_id: int
    events: list[Event] = field(default_factory=list)
    place: Location | None = None
    record: Record | None = None
    publisher: Origin | None = None              # where no event says who published it; None: that is not recorded
    standings: list[Standing] = field(default_factory=list)
    places: dict[int, Location] = field(default_factory=dict)       # by partition id, of every event

    def lies_at(self, place: Location) -> None:
        """The message was stored at this place first, as far as that is known."""
        self.place = place
        self.places.setdefault(place.partition_id, place)

    def holds(self, record: Record) -> None:
        """The message itself, which is there still."""
        self.record = record

    def comes_from(self, publisher: Origin | None) -> None:
        """Who published it, as the log says."""
        self.publisher = publisher

    @property
    def tenant(self) -> str | None:
        """Whose it is; None where nobody can tell."""
        stored = next((event.tenant or "/" for event in self.events
                       if event.kind in WITH_ADDRESS or event.kind in NAMING and event.address), None)
        return stored if self.place is None or self.place.tenant is None else self.place.tenant

    @property
    def is_known(self) -> bool:
        """Whether anything is known of it."""
        return bool(self.events) or self.record is not None

    @property
    def is_held(self) -> bool:
        """Whether it is in no partition: it waits for its time or a decision, or was taken back."""
        last = self.events[-1] if self.events and self.place is None else None
        return last is not None and (last.kind in WAITS or last.kind == Kind.COMMITTED and last.until_ms > 0)


OnJourney = Callable[[Journey, "StorageFailed | None"], None]
OnFound = Callable[[list[Event], "StorageFailed | None"], None]
IsShown = Callable[[Event], bool]


class Looking:
    """Finds messages and what happened to them, in the recorded events and in the log."""

    def __init__(self, *, trail: Trail, reader: Reader, topics: Topics, watermarks: Watermarks, views: Views,
                 leasing: Leasing, following: Following | None, publishers: Publishers,
                 address_of: Callable[[str, bytes | None, Headers], str], origins: Origins) -> None:
        self._trail = trail
        self._reader = reader
        self._topics = topics
        self._watermarks = watermarks
        self._views = views
        self._leasing = leasing
        self._following = following
        self._publishers = publishers
        self._address_of = address_of
        self.came = origins.find
        """Where a message lies that came over a link: see `Origins.find`."""

        self._links: Links | None = None

    def ask_links(self, links: Links) -> None:
        """Whether a message has left by a link, these know."""
        self._links = links

    def find(self, what: str, value: bytes, tenant: str, most: int, on_done: OnFound, first_ms: int = 0,
             last_ms: int = EXTENT, is_shown: IsShown = lambda event: True) -> None:
        """The newest `most` events of this time that are found by a `key`, an `address`, a `trace` id or a
        `correlation` id of a tenant; a trace id is no tenant's. What `is_shown` says no to is none of them. Of long
        values the beginnings are compared, which is what events keep."""
        kept = value if what in ("trace", "key", "correlation") else cut(value).decode(errors="replace").encode()

        def matches(event: Event) -> list[Event]:
            if not first_ms <= event.at_ms <= last_ms or not is_shown(event):
                return []
            if what == "trace":
                return [said for said in [event.of_trace(value)] if said is not None]
            if cut(FIELD_OF[what](event)) != cut(kept) or (event.tenant or TENANT) != tenant \
                    or (event.kind in OF_CLIENTS) != what.startswith("told-"):
                return []
            return [event.nth(at) for at in range(max(0, event.rows - most), event.rows)] if event.rows else [event]

        wanted = of_trace(value) if what == "trace" else [hash_of(what, named(tenant, cut(value)))]

        def look(before: int | None, _: int) -> None:
            self._trail.find(wanted, matches, most,
                             lambda events, error: on_done([event for _, event in events], error), newest=True,
                             before=EXTENT if before is None else before)

        if last_ms == EXTENT or self._trail.partition_id < 0:
            look(None, 0)
        else:                                # so that newer ones are not read in vain: a look-up reads so many at most
            self._reader.offset_for_time(self._trail.partition_id, last_ms + SKEW_MS, look)

    def id_at(self, partition_id: int, offset: int) -> int:
        """The message at an offset; -1 where that is not known."""
        return self._reader.id_of(partition_id, offset)

    def find_in(self, partition_ids: Sequence[int], message_id: int, on_done: Callable[[tuple[int, int] | None], None]
                ) -> None:
        """Where a message, or a copy of it, lies among these partitions; see `Reader.find_id`."""
        self._reader.find_id(list(partition_ids), message_id, on_done)

    def publishers(self, pieces: Sequence[Piece], on_done: OnAuthors) -> None:
        """Who published what was fetched; see `Publishers.find_all`."""
        self._publishers.find_all(pieces, on_done)

    def journey(self, message_id: int, tenant: str, on_done: OnJourney) -> None:
        """Everything about a message. Where nothing was recorded it is looked for in the partitions of this tenant."""
        self._trail.find(of_id(message_id), of_message(message_id), MAX_EVENTS,
                         partial(self._on_first, message_id, tenant, on_done), message_id=message_id)

    def _on_first(self, message_id: int, tenant: str, on_done: OnJourney, events: list[tuple[int, Event]],
                  error: StorageFailed | None) -> None:
        """Where that are not all, what became of it stands in the last ones."""
        if error is not None or len(events) < MAX_EVENTS:
            self._on_events(message_id, tenant, on_done, events, error)
            return
        first = events[:FIRST_EVENTS]

        def on_last(last: list[tuple[int, Event]], error: StorageFailed | None) -> None:
            behind = [each for each in last if each[0] > first[-1][0]]
            self._on_events(message_id, tenant, on_done, [*first, *behind], error)

        self._trail.find(of_id(message_id), of_message(message_id), MAX_EVENTS - FIRST_EVENTS, on_last, newest=True,
                         message_id=message_id)

    def _on_events(self, message_id: int, tenant: str, on_done: OnJourney, events: list[tuple[int, Event]],
                   error: StorageFailed | None) -> None:
        journey = Journey(message_id, [event for _, event in events])
        if error is not None:
            on_done(journey, error)
            return
        journey.events.sort(key=lambda event: event.at_ms)
        for event in journey.events:
            if event.partition_id and event.partition_id not in journey.places:
                journey.places[event.partition_id] = self._place(event.partition_id, event.offset)
        first = next((event for event in journey.events if event.partition_id and event.kind != Kind.ROUTED), None)
        if first is not None:
            self._at(journey, on_done, (first.partition_id, first.offset))
            return
        followed = None if self._following is None else self._following.by_id(message_id)
        if followed is not None and followed.places:     # it was held, and fell due or was committed
            self._at(journey, on_done, followed.places[0])
            return
        if journey.is_held:
            on_done(journey, None)
            return
        partition_ids = [partition_id for topic in self._topics.of(tenant) if topic.id != self._trail.topic_id
                         for partition_id in topic.partition_ids() if self._watermarks.next_offset(partition_id)]
        partition_ids += [partition_id for queue in self._leasing.queues.definitions.every() if queue.tenant == tenant
                          for partition_id in queue.partition_ids() if self._watermarks.next_offset(partition_id)]
        self._reader.find_id(partition_ids[:MAX_PARTITIONS], message_id, partial(self._at, journey, on_done))

    def _at(self, journey: Journey, on_done: OnJourney, where: tuple[int, int] | None) -> None:
        if where is None:
            on_done(journey, None)
            return
        partition_id, offset = where
        journey.lies_at(self._place(partition_id, offset))
        of_each = [(event.partition_id, event.offset) for event in reversed(journey.events) if event.partition_id]
        newest: dict[int, int] = {}
        followed = None if self._following is None else self._following.by_id(journey.message_id)
        now = [] if followed is None else list(reversed(followed.places))
        for of_partition, at in [*now, *of_each, where]:
            newest.setdefault(of_partition, at)
        for of_partition, at in newest.items():
            journey.standings.extend(standings(self._leasing, self._views, of_partition, at))
        self._reader.fetch_kept([(partition_id, offset, 1)], 1, partial(self._on_record, journey, offset, on_done))

    def _on_record(self, journey: Journey, offset: int, on_done: OnJourney, answers: list[Fetched]) -> None:
        for piece in answers[0].pieces:
            for record in sound_records(piece):
                if record[0] == offset and record[6] == journey.message_id:
                    journey.holds(public_record(record))
        error = answers[0].error if isinstance(answers[0].error, StorageFailed) else None
        place = journey.place
        topic = None if place is None or not place.topic else self._topics.get(place.topic, place.tenant or TENANT)
        if self._links is not None and topic is not None and place is not None and journey.record is not None:
            _, _, key, _, headers, _, _ = journey.record
            journey.standings.extend(link_standings(
                self._links, topic, place.partition, place.offset, self._address_of(topic.name, key, headers), headers))
        if error is not None or place is None or any(event.kind in BEGINNINGS for event in journey.events):
            on_done(journey, error)
            return

        def on_publisher(publisher: Origin | None) -> None:
            journey.comes_from(publisher)
            on_done(journey, None)

        self._publishers.find(place.partition_id, place.offset, journey.message_id, on_publisher)

    def _place(self, partition_id: int, offset: int) -> Location:
        topic_partition = self._topics.of_partition(partition_id)
        if topic_partition is not None:
            topic, partition = topic_partition
            return Location(partition_id, offset, topic.name, partition, "", topic.tenant)
        for queue in self._leasing.queues.definitions.every():
            if partition_id in queue.partition_ids():
                return Location(partition_id, offset, "", partition_id - queue.first_partition_id, queue.name,
                             queue.tenant)
        return Location(partition_id, offset)
