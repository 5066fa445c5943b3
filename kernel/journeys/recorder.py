"""Writes journeys: what happens to followed messages becomes events, messages of the topic `journeys` in the frame that
they tell of.

    a message of some, as it comes in ──► followed from the start: stored, handed out, acked ...
    any message that fails            ──► followed from its first error on, as far as the topic's budget goes
    a copy of a followed one          ──► followed too: a dead letter, what is redriven, what falls due

An event uses up no message id: its record has the id of a message that it tells of, or one of those behind. Where a
frame is refused its events are lost with it, and nothing else is. The hub tells of nothing that concerns the topic
itself.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gatehouse.kernel.addresses.placing import QUEUE_PREFIX, Places
from gatehouse.kernel.errors import KernelError, Stopping, TopicExists
from gatehouse.kernel.journeys.following import Followed, Following
from gatehouse.kernel.journeys.settings import LEVEL, TENANT, TOPIC, JourneySettings
from gatehouse.kernel.journeys.trail import Trail
from gatehouse.kernel.log.disk_guard import DiskGuard
from gatehouse.kernel.message import DOOR_MASK, Leased, Message, Origin, Placement, Record
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.recorder import Hearing, Speaker
from gatehouse.kernel.records.adding_headers import InBatch
from gatehouse.kernel.records.batch import CODEC_MASK
from gatehouse.kernel.records.compression import NONE
from gatehouse.kernel.records.record import NO_HEADERS, add_header, encode_header, named_headers
from gatehouse.kernel.records.trace_marks import asks_in
from gatehouse.kernel.records.validation import Validated, with_contexts
from gatehouse.kernel.shedding import Rung, Shedding
from gatehouse.kernel.state.topics import Topics, TopicSettings
from gatehouse.kernel.state.watermarks import Watermarks
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.pending_frame import PendingFrame, Run, check
from gatehouse.kernel.write.topic_changes import TopicChanges
from gatehouse.tracing.budget import Budget
from gatehouse.tracing.context import HEADER, Context, read
from gatehouse.tracing.events import OF_CLIENTS, Event, Kind, encode
from gatehouse.tracing.sampling import Sampling

if TYPE_CHECKING:
    from gatehouse.kernel.groups.cursor import Cursor
    from gatehouse.kernel.groups.group import LeasedGroup

STEP_MS: Final = 100
"""Messages that are followed from the start are counted for each: a burst of them takes some milliseconds at most."""

OF_CLIENTS_ID: Final = -2
REFUSED_ID: Final = -3
ASKED_ID: Final = -4
"""Budgets beside those of topics: of connections and subscriptions, and of publishes that were refused, and of
messages whose senders ask to have them followed."""

LAZY_MS: Final = 100
"""Events that no frame has taken along get one of their own after this."""

MAX_WAITING: Final = 20_000
"""Events that wait for a frame; what comes beyond is counted and left out."""

MAX_ROUTED: Final = 32
"""Queues that one message enters of which it is told."""

CORRELATION: Final = b"correlation-id"
_WANTED: Final = frozenset((HEADER, CORRELATION))


MAX_PACKED_BYTES: Final = 1 << 20
PACKED_PER_MS: Final = 2_000
"""Of compressed batches, opened: what is packed again so that a record has a trace context. 2 MB a second, and one
batch at a time."""


class FollowedRecord(NamedTuple):
    """Of a producer's batch that has no place yet."""

    at: int
    topic_id: int
    event: Event


class Entered:
    """A followed message in a pending frame: it has no id before that is sealed."""

    __slots__ = ("run", "at", "event", "topic_id", "placement")

    def __init__(self, run: Run, at: int, event: Event, topic_id: int, placement: Placement | None) -> None:
        self.run = run
        self.at = at
        self.event = event
        self.topic_id = topic_id
        self.placement = placement        # None of a producer's record


class FrameJourneys:
    """What of journeys one frame has, until it is durable."""

    __slots__ = ("entered", "written", "copies", "places")

    def __init__(self) -> None:
        self.entered: list[Entered] = []
        self.written: list[Event] = []
        self.copies: list[Run] = []
        self.places: list[tuple[Run, int]] = []


class Journeys:  # decision 198
    """See the module's text, `kernel.recorder.Recorder` and `write.pending_frame.Participant`."""

    def __init__(self, *, settings: JourneySettings, loop: Loop, committer: Committer, topics: Topics,
                 topic_changes: TopicChanges, places: Places, watermarks: Watermarks, trail: Trail, speaker: Speaker,
                 disk_guard: DiskGuard, id_of: Callable[[int, int], int], ids: Callable[[], bytes],
                 door_names: Callable[[int], str], shedding: Shedding, on_error: Callable[[Exception], None]) -> None:
        """`id_of` says which message lies at an offset of a partition, -1 where that is not known; `ids` gives 24
        bytes that nobody had before; `door_names` what the number of a door in an attribute byte means."""
        self._settings = settings
        self._loop = loop
        self._committer = committer
        self._topics = topics
        self._topic_changes = topic_changes
        self._places = places
        self._watermarks = watermarks
        self._trail = trail
        self._speaker = speaker
        self._disk_guard = disk_guard
        self._id_of = id_of
        self._ids = ids
        self._door_names = door_names
        self._shedding = shedding
        self._on_error = on_error
        self._sampling = Sampling(settings.rate, settings.topics)
        self._budget = Budget(settings.errors_per_minute)
        self._asked = Budget(settings.asked_per_minute)
        self.following = Following()
        self._waiting: list[Event] = []
        self._frames: dict[PendingFrame, FrameJourneys] = {}
        self._placements: dict[str, Placement] = {}
        self._contexts: list[Context | None] = []           # of what `follow` found, until `on_entered`
        self._armed = False
        self._stopped = False
        self._packed_ms = self._packed_bytes = 0            # of compressed batches that were opened; what is owed still
        self._step = self._in_step = 0                      # and how many were followed in it
        self._most_in_step = -(-settings.followed_per_second * STEP_MS // 1_000)
        self.events = 0
        """Events that were written, since the start."""

        self.on_event: Callable[[Event], None] | None = None
        """Is told of each event once it is durable; must return at once."""

        self._lost = 0

    @property
    def waiting(self) -> bool:
        """Whether something is to be written with the next frame."""
        return bool(self._waiting)

    @property
    def left_out(self) -> int:
        """Events that were not recorded since the start: beyond a topic's budget, under overload, or lost with a
        refused frame."""
        return self._budget.left_out + self._lost

    def stop(self) -> None:
        """Nothing gets a frame of its own any more."""
        self._stopped = True

    # ---- messages that come in

    def gap(self) -> int:
        """See `Recorder`."""
        return self._sampling.gap()

    def follow(self, messages: list[Any], placements: dict[int, Placement] | None, at: int, asking: Sequence[int]
               ) -> tuple[list[int], int]:
        """See `Recorder`."""
        followed: list[int] = []
        while at < len(messages):
            message = messages[at]
            if self._follows(message[0] if placements is None else placements[message[0]]):
                followed.append(at)
            at += 1 + self._sampling.gap()
        if asking:
            followed = sorted({*followed, *[
                index for index in asking if self._speaker.origin_of(index).traces and asks_in(messages[index][2])
                and self._grants(messages[index][0] if placements is None else placements[messages[index][0]])]})
        self._contexts = []
        for index in followed:
            message = messages[index]
            context = self._context_of(message[2])
            if context is None:
                context = self._new_context()
                headers = add_header(message[2], encode_header(HEADER, context.header()))
                messages[index] = (message[0], message[1], headers, message[3], message[4])
            self._contexts.append(context)
        return followed, at - len(messages)

    def _grants(self, placement: Placement) -> bool:   # decision 243
        """Whether there is room for a message whose sender asks to have it followed, and may ask."""
        return placement.topic_id != self._trail.topic_id and self._asked.spend(ASKED_ID, self._loop.now_ms())

    def _follows(self, placement: Placement) -> bool:
        if placement.topic_id == self._trail.topic_id:
            return False
        return self._chooses(placement.topic or placement.address)

    def _chooses(self, topic: str) -> bool:
        """Whether a message of this topic that is looked at is followed."""
        if not self._sampling.follows(topic) or self._shedding.leaves(Rung.TRACE_EVENTS):
            return False
        if topic in self._settings.topics:
            return True
        step = self._loop.now_ms() // STEP_MS
        if step != self._step:
            self._step, self._in_step = step, 0
        self._in_step += 1
        return self._in_step <= self._most_in_step

    def _new_context(self) -> Context:
        fresh = self._ids()
        return Context(fresh[:16], fresh[16:24], True)

    @staticmethod
    def _context_of(headers: bytes) -> Context | None:
        if headers.find(HEADER) < 0:
            return None
        return next((read(value) for name, value in named_headers(headers, _WANTED) if name == HEADER), None)

    def on_entered(self, frame: PendingFrame, messages: Sequence[Any], placements: dict[int, Placement] | None,
                   places: Sequence[tuple[Run, int]], followed: Sequence[int]) -> None:
        """See `Recorder`."""
        mine = self._frame(frame)
        if mine is None:
            return
        for at, context in zip(followed, self._contexts, strict=True):
            message = messages[at]
            placement: Placement = message[0] if placements is None else placements[message[0]]
            correlation = next((value for name, value in named_headers(message[2], _WANTED) if name == CORRELATION),
                               None) if message[2].find(CORRELATION) >= 0 else None
            run, index = places[at]
            mine.entered.append(Entered(run, index, self._stored(
                placement, self._speaker.origin_of(at), message[3], context, correlation or b""), placement.topic_id,
                placement))

    def _stored(self, placement: Placement, origin: Origin, attributes: int, context: Context | None,
                correlation: bytes) -> Event:
        door = origin.door or self._door_names(attributes & DOOR_MASK)
        return Event(Kind.STORED, partition_id=placement.partition_id, address=placement.address,
                     tenant=placement.tenant if placement.tenant != TENANT else "", door=door, user=origin.user,
                     client=origin.client, peer=origin.peer, key=placement.key or b"", correlation_id=correlation,
                     trace_id=context.trace_id if context is not None else b"",
                     span_id=context.span_id if context is not None else b"")

    # decision 242
    def follow_batch(self, topic: str, tenant: str, topic_id: int, validated: Validated, at: int, origin: Origin
                     ) -> tuple[Validated, object, int]:
        """See `Recorder`."""
        indexes: list[int] = []
        count = validated.header.record_count
        while at < count:
            if topic_id != self._trail.topic_id and self._chooses(topic):
                indexes.append(at)
            at += 1 + self._sampling.gap()
        if validated.traced and topic_id != self._trail.topic_id:
            now_ms = self._loop.now_ms()
            indexes = sorted({*indexes, *[index for index in validated.traced if self._asked.spend(ASKED_ID, now_ms)]})
        if not indexes:
            return validated, None, at - count
        followed: list[FollowedRecord] = []
        event = Event(Kind.STORED, tenant=tenant if tenant != TENANT else "", door=origin.door or self._door_names(0),
                      user=origin.user, client=origin.client, peer=origin.peer)

        def context_of(record: InBatch) -> bytes | None:
            headers = dict(record.headers)
            context = given = read(headers.get(HEADER))
            if context is None:
                context = self._new_context()
            followed.append(FollowedRecord(record.at, topic_id, event._replace(
                address=self._places.routes.address_of(topic, record.key, record.headers), key=record.key or b"",
                correlation_id=headers.get(CORRELATION) or b"", trace_id=context.trace_id,
                span_id=context.span_id)))
            return encode_header(HEADER, context.header()) if given is None else None

        if self._opens(validated):
            return with_contexts(validated, indexes, context_of), followed, at - count
        followed += [FollowedRecord(index, topic_id, event._replace(address=topic)) for index in indexes]
        return validated, followed, at - count

    def _opens(self, validated: Validated) -> bool:
        """Whether a batch is opened, and packed again, for the contexts of its records: one that is not compressed
        always, else as long as packing takes some hundredths of the processor at most."""
        if validated.header.attributes & CODEC_MASK == NONE:
            return True
        if validated.opened_bytes > MAX_PACKED_BYTES:
            return False
        now_ms = self._loop.now_ms()
        self._packed_bytes = max(0, self._packed_bytes - max(0, now_ms - self._packed_ms) * PACKED_PER_MS)
        self._packed_ms = now_ms
        if self._packed_bytes > 0:
            return False
        self._packed_bytes = validated.opened_bytes
        return True

    def on_batch_entered(self, frame: PendingFrame, run: Run, followed: object) -> None:
        """See `Recorder`."""
        mine = self._frame(frame)
        if mine is None:
            return
        assert isinstance(followed, list), "it is what `follow_batch` gave"
        for at, topic_id, event in followed:
            mine.entered.append(Entered(run, at, event._replace(partition_id=run.partition_id), topic_id, None))

    # ---- groups and queues

    def on_handed_out(self, group: LeasedGroup, cursor: Cursor, messages: Sequence[Leased], until_ms: int,
                      taker: Origin) -> None:
        """See `Recorder`."""
        partition_id, attempt = cursor.partition_id, messages[0][2]
        if attempt == 1 and not self.following.any_within(partition_id, messages[0][1], messages[-1][1]):
            return                                        # handed out the first time, they are in order
        offsets = self.following.among(partition_id, [message[1] for message in messages])
        for offset in offsets:
            followed = self.following.at(partition_id, offset)
            assert followed is not None, "what is among them is followed"
            if attempt > 1 and not self._budget.spend(followed.topic_id, self._loop.now_ms(), False):
                followed.leave_out()
                continue
            self._tell(followed, Event(
                Kind.HANDED_OUT, partition_id=partition_id, offset=offset, attempt=attempt, until_ms=until_ms,
                group=group.shown_name, door=taker.door, user=taker.user, client=taker.client, peer=taker.peer))

    def on_acked(self, group: LeasedGroup, cursor: Cursor, offsets: Sequence[int]) -> None:
        """See `Recorder`."""
        self._of_each(Kind.ACKED, group, cursor, offsets, 0)

    def on_extended(self, group: LeasedGroup, cursor: Cursor, offsets: Sequence[int], until_ms: int) -> None:
        """See `Recorder`."""
        self._of_each(Kind.EXTENDED, group, cursor, offsets, until_ms)

    def _of_each(self, kind: Kind, group: LeasedGroup, cursor: Cursor, offsets: Sequence[int], until_ms: int) -> None:
        for offset in self.following.among(cursor.partition_id, offsets):
            followed = self.following.at(cursor.partition_id, offset)
            assert followed is not None, "what is among them is followed"
            self._tell(followed, Event(kind, partition_id=cursor.partition_id, offset=offset,
                                       attempt=cursor.attempt_of(offset), until_ms=until_ms, group=group.shown_name))

    def on_lease_ended(self, group: LeasedGroup, cursor: Cursor,                  # decision 200
                       offsets: Sequence[int], until_ms: int, is_over: bool
                       ) -> None:
        """See `Recorder`."""
        topic_id = group.topic_id
        if topic_id and topic_id == self._trail.topic_id:
            return
        for offset in offsets:
            followed = self.following.at(cursor.partition_id, offset)
            is_first = followed is None or not followed.errors
            if not self._budget.spend(topic_id, self._loop.now_ms(), is_first):
                if followed is not None:
                    followed.fail()
                    followed.leave_out()
                continue
            if followed is None:
                followed = self._follow_late(cursor.partition_id, offset, topic_id)
                if followed is None:
                    continue
            followed.fail()
            kind = Kind.LEASE_OVER if is_over else Kind.RELEASED
            self._tell(followed, Event(kind, partition_id=cursor.partition_id, offset=offset, until_ms=until_ms,
                                       attempt=cursor.attempt_of(offset), group=group.shown_name))

    def _follow_late(self, partition_id: int, offset: int, topic_id: int) -> Followed | None:
        """From here on; None where its id cannot be found."""
        message_id = self._id_of(partition_id, offset)
        return None if message_id < 0 else self._follow_id(message_id, partition_id, offset, topic_id)

    def _follow_id(self, message_id: int, partition_id: int, offset: int, topic_id: int) -> Followed:
        followed = self.following.add(message_id, b"", False, topic_id)
        self.following.place(followed, partition_id, offset)
        return followed

    def on_given_up(self, group: LeasedGroup, cursor: Cursor, messages: Sequence[Leased], reason: str) -> None:
        """See `Recorder`."""
        if group.topic_id and group.topic_id == self._trail.topic_id:
            return
        for message in messages:
            followed = self.following.at(cursor.partition_id, message[1])
            if followed is None:
                if not self._budget.spend(group.topic_id, self._loop.now_ms()):
                    continue
                followed = self._follow_id(message[3], cursor.partition_id, message[1], group.topic_id)
            self._tell(followed, Event(Kind.GIVEN_UP, partition_id=cursor.partition_id, offset=message[1],
                                       attempt=message[2], group=group.shown_name, reason=reason))

    def on_moved(self, messages: Sequence[Message], ids: Sequence[int], is_due: bool) -> None:
        """See `Recorder`."""
        for message, message_id in zip(messages, ids, strict=True):
            placement = message[0]
            followed = self.following.by_id(message_id)
            if followed is None:
                if not self._budget.spend(placement.topic_id, self._loop.now_ms()):
                    continue
                followed = self.following.add(message_id, b"", False, placement.topic_id)
            context = self._context_of(message[2])
            self._tell(followed, Event(
                Kind.FELL_DUE if is_due else Kind.COMMITTED, address=placement.address,
                tenant=placement.tenant if placement.tenant != TENANT else "",
                trace_id=context.trace_id if context is not None else b""))

    def on_redriven(self, letter: Record, placement: Placement, queue: str) -> None:
        """See `Recorder`."""
        followed = self.following.by_id(letter[6])
        if followed is None:
            if not self._budget.spend(placement.topic_id, self._loop.now_ms()):
                return
            followed = self.following.add(letter[6], b"", False, placement.topic_id)
        origin = self._speaker.origin
        self._tell(followed, Event(Kind.REDRIVEN, offset=letter[0], group=QUEUE_PREFIX + queue,
                                   address=placement.address, door=origin.door, user=origin.user, client=origin.client,
                                   peer=origin.peer))

    def on_client(self, kind: int, origin: Origin, tenant: str, address: str, reason: str) -> None:
        """See `Recorder`."""
        if self._budget.spend(REFUSED_ID if kind == Kind.REFUSED else OF_CLIENTS_ID, self._loop.now_ms()):
            self._add(Event(kind, at_ms=self._loop.wall_ms(), tenant=tenant if tenant != TENANT else "",
                            address=address, reason=reason, door=origin.door, user=origin.user, client=origin.client,
                            peer=origin.peer))

    def _tell(self, followed: Followed, event: Event) -> None:
        """This goes into the next frame."""
        if self._add(event._replace(message_id=followed.message_id, at_ms=self._loop.wall_ms(),
                                    number=event.number or followed.left_out)) and not event.number:
            followed.take_left_out()

    def _add(self, event: Event) -> bool:
        """Whether there was room for it."""
        if len(self._waiting) >= MAX_WAITING or self._shedding.leaves(Rung.TRACE_EVENTS):
            self._lost += 1
            return False
        try:
            if not self._has_topic():
                return False
            self._arm()
        except KernelError:
            self._lost += 1
            return False
        self._waiting.append(event)
        return True

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._loop.call_at(self._loop.now_ms() + LAZY_MS, self._on_lazy)

    def _on_lazy(self) -> None:
        """No frame came: what waits gets one, unless the hub is short of room."""
        self._armed = False
        if not self._waiting or self._stopped:
            return
        if self._disk_guard.short:
            self._lost += len(self._waiting)
            self._waiting = []
            return
        try:
            self._put(self._committer.open_frame())
        except Stopping:
            self._stopped = True

    # ---- frames

    def _has_topic(self) -> bool:
        """Whether events can be stored: the topic is made where it is missing. Raises what making one raises."""
        topic = self._topics.get(TOPIC, TENANT)
        if topic is None:
            if self._stopped:
                return False
            self._placements.clear()
            try:
                topic = self._topic_changes.create(
                    TOPIC, TENANT, 1, TopicSettings(retention_ms=self._settings.retention_ms))
            except TopicExists:
                return False
        if topic.id != self._trail.topic_id:
            self._placements.clear()
            self._trail.begin(topic)
        return True

    def _frame(self, frame: PendingFrame) -> FrameJourneys | None:
        """What of journeys this frame has; None where none can be stored."""
        mine = self._frames.get(frame)
        if mine is None:
            try:
                if not self._has_topic():
                    return None
            except KernelError:
                return None
            mine = self._frames[frame] = FrameJourneys()
            frame.join(self)
            frame.has_journeys = True
        return mine

    def write(self, frame: PendingFrame, first_id: int) -> None:
        """See `Recorder`."""
        try:
            self._write(frame, first_id)
        except KernelError as error:                 # the frame is whole without
            self._on_error(error)

    def _write(self, frame: PendingFrame, first_id: int) -> None:
        mine = self._frames.get(frame)
        firsts = self._firsts(frame, first_id) if mine is not None and mine.entered or frame.builder.has_copies else {}
        if frame.builder.has_copies and len(self.following):
            copies = [run for run in frame.builder.runs if run.own_id >= 0
                      and self.following.ids_within(run.own_id, run.count)]
            mine = self._frame(frame) if copies else mine
            if mine is not None:
                mine.copies = copies
        entering: list[Event] = []
        for entered in mine.entered if mine is not None else ():
            first_offset, first = firsts[entered.run]
            event = entered.event._replace(message_id=first + entered.at, offset=first_offset + entered.at,
                                           at_ms=frame.builder.now_ms)
            entering.append(event)
            entering += [Event(Kind.ROUTED, message_id=event.message_id, partition_id=partition_id, at_ms=event.at_ms)
                     for partition_id in (entered.placement.also[:MAX_ROUTED] if entered.placement else ())]
        self._put(frame, entering)

    def _put(self, frame: PendingFrame, entering: Sequence[Event] = ()) -> None:
        """Events into a frame: these, and those that wait."""
        events, self._waiting = [*entering, *self._waiting], []
        if not events:
            return
        mine = self._frame(frame)
        if mine is None:
            self._lost += len(events)
            return
        messages: list[Message] = [(self._placement(event.kind), encode(event), NO_HEADERS, 0, event.at_ms)
                                   for event in events]
        check(messages, self._places.refresh)
        about = next((event.message_id for event in events if event.message_id), 1)
        frame.builder.add_beside(messages, about, mine.places)
        mine.written += events

    def _placement(self, kind: int) -> Placement:
        name = Kind(kind).name.lower().replace("_", "-")
        placement = self._placements.get(name)
        if placement is None:
            placement = self._placements[name] = self._places.place(f"{LEVEL}/{name}", TENANT, False)
        return placement

    def _firsts(self, frame: PendingFrame, first_id: int) -> dict[Run, tuple[int, int]]:
        """First offset and first id of every run, as `BatchBuilder.seal` is about to give them."""
        firsts: dict[Run, tuple[int, int]] = {}
        counts: dict[int, int] = {}
        next_id = first_id
        for run in frame.builder.runs:
            before = counts.get(run.partition_id, 0)
            counts[run.partition_id] = before + run.count
            own = next_id if run.own_id < 0 else run.own_id
            firsts[run] = (self._watermarks.next_offset(run.partition_id) + before, own)
            if run.own_id < 0:
                next_id += run.count
        return firsts

    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """See `Participant`: everything is in it already."""
        return 0

    def applied(self, frame: PendingFrame) -> None:
        """What entered with it is followed from here on, and its events can be found."""
        mine = self._frames.pop(frame, None)
        if mine is None:
            return
        following = self.following
        for entered in mine.entered:
            followed = following.add(entered.run.first_id + entered.at, entered.event.trace_id, True, entered.topic_id)
            following.place(followed, entered.run.partition_id, entered.run.first_offset + entered.at)
            for reference in frame.builder.references:
                if reference.run is entered.run and reference.start <= entered.at < reference.stop:
                    following.place(followed, reference.partition_id,
                                    reference.first_offset + entered.at - reference.start)
            if entered.placement is not None and entered.placement.targets:
                self._tell_delivered(followed, entered, entered.placement)
        for run in mine.copies:
            for message_id in following.ids_within(run.first_id, run.count):
                copied = following.by_id(message_id)
                assert copied is not None, "ids are of what is followed"
                following.place(copied, run.partition_id, run.first_offset + message_id - run.first_id)
        self.events += len(mine.written)
        for (run, at), event in zip(mine.places, mine.written, strict=True):
            self._trail.note(run.first_offset + at, event)
        if self.on_event is not None:
            for event in mine.written:
                self.on_event(event)

    def _tell_delivered(self, followed: Followed, entered: Entered, placement: Placement) -> None:
        """It goes to live subscribers now; how many of each door."""
        for subscriber, _ in placement.targets:
            door, count = subscriber.hearers(placement) if isinstance(subscriber, Hearing) else ("", 0)
            if count:
                offset = entered.run.first_offset + entered.at
                self._tell(followed, Event(Kind.DELIVERED, partition_id=entered.run.partition_id, offset=offset,
                                           number=count, door=door))

    def failed(self, frames: list[PendingFrame]) -> None:
        """Its events are lost with it."""
        for frame in frames:
            mine = self._frames.pop(frame, None)
            if mine is not None:
                self._lost += len(mine.written)

    def resume(self, event: Event) -> None:
        """An event of before the start: what it tells of is followed still."""
        if event.kind in FINAL or not event.partition_id:
            return
        topic_partition = self._topics.of_partition(event.partition_id)
        topic_id = topic_partition[0].id if topic_partition is not None else 0
        followed = self.following.add(event.message_id, event.trace_id, event.kind == Kind.STORED, topic_id)
        self.following.place(followed, event.partition_id, event.offset)

    def statistics(self) -> dict[str, int]:
        """Counters and gauges, by metric name without its prefix."""
        return {"journeys_asked_left_out_total": self._asked.left_out,
                "journey_events_total": self.events, "journey_events_left_out_total": self.left_out,
                "journeys_followed": len(self.following)}


FINAL: Final = frozenset((Kind.REDRIVEN, *OF_CLIENTS))
"""Events that say nothing of where a message lies."""
