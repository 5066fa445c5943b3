"""Writes journeys: what happens to followed messages becomes events, messages of the topic `journeys` in the frame that
they tell of.

    a message of some, as it comes in ──► followed from the start: stored, handed out, acked ...
    any message that fails            ──► followed from its first error on, as far as the topic's budget goes
    a copy of a followed one          ──► followed too: a dead letter, what is redriven, what falls due

What happens to many alike is one event: what was stored of a call for one place, what was handed out or acked together.
An event uses up no message id: its record has the id of a message that it tells of, or one of those behind. Where a
frame is refused its events are lost with it, and nothing else is. The hub tells of nothing that concerns the topic
itself.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gatehouse.kernel.addresses.placing import QUEUE_PREFIX, Places
from gatehouse.kernel.errors import CorruptBatch, KernelError, Stopping, TopicExists
from gatehouse.kernel.journeys.entering import (
    CORRELATION_BIT,
    KEY_BIT,
    MAX_SENDERS,
    STEP_BIT,
    TRACE_BIT,
    Contexts,
    FollowedRows,
    Sender,
    Sending,
    grouped,
    rows_of,
    stored_event,
    with_contexts,
)
from gatehouse.kernel.journeys.following import Followed, FollowedPiece, FollowedStretch, Following, even, evenly
from gatehouse.kernel.journeys.held import HeldJourneys, HeldRows
from gatehouse.kernel.journeys.trail import TENANT, TOPIC, Found, Trail, found_by, hash_of, named, names_of
from gatehouse.kernel.log.disk_guard import DiskGuard
from gatehouse.kernel.message import DOOR_MASK, Leased, Message, Origin, Placement, Record, Speaker
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.recorder import Hearing
from gatehouse.kernel.records.batch import CODEC_MASK, NO_HEADERS, named_headers, read_headers
from gatehouse.kernel.records.compression import NONE
from gatehouse.kernel.records.headers import asks_for_trace
from gatehouse.kernel.records.validation import InBatch, Validated
from gatehouse.kernel.records.validation import with_contexts as batch_with_contexts
from gatehouse.kernel.settings import JourneySettings
from gatehouse.kernel.shedding import TRACE_EVENTS, Shedding
from gatehouse.kernel.state.state import Watermarks
from gatehouse.kernel.state.topics import Topics, TopicSettings
from gatehouse.kernel.write.committer import DURABLE_MS, Committer
from gatehouse.kernel.write.pending_frame import PendingFrame, Run, check
from gatehouse.kernel.write.topic_changes import TopicChanges
from gatehouse.tracing.context import HEADER, Context, only_context
from gatehouse.tracing.events import FIELDS, HALF, OF_CLIENTS, Event, Kind, cut, decode, encode, text
from gatehouse.tracing.sampling import Budget, Sampling

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

CALM_MS: Final = 1_000
"""Where nothing was looked at for so long, gaps are those of single messages again."""

LAZY_MS: Final = 100
"""Events that no frame has taken along get one of their own after this."""

MAX_WAITING: Final = 20_000
"""Events that wait for a frame; what comes beyond is counted and left out."""

MAX_ROUTED: Final = 32
"""Queues that one message enters of which it is told."""

HELD: Final = Kind.HELD
CORRELATION: Final = b"correlation-id"
_CONTEXT: Final = frozenset((HEADER,))

PACKED_PER_MS: Final = 2_000
ROWS_PER_MS: Final = 1
MAX_PACKED_BYTES: Final = 1 << 20
"""Of producers' batches that are made anew so that records have a trace context: one at a time, and then none until
what it cost is paid, at 2 MB and 1,000 followed records a second. A compressed one of more bytes is not opened."""

assert [1 << FIELDS.index(name) for name in ("trace_id", "key", "correlation_id", "step")] == [
    TRACE_BIT, KEY_BIT, CORRELATION_BIT, STEP_BIT]


class OfBatch(NamedTuple):
    """Followed records of a producer's batch that has no place yet. `number` of their first trace; 0: their own
    context, or none."""

    first: int
    rows: int
    step: int
    sender: Sender
    topic_id: int
    number: int = 0
    context: Context | None = None
    correlation: bytes = b""


class WrittenEvent(NamedTuple):
    """An event as it goes into a frame."""

    kind: int
    value: bytes
    at_ms: int
    by: Found
    rows: int


class Example(NamedTuple):
    """A followed message, for whoever wonders what took so long."""

    trace_id: bytes
    took_ms: int                 # from its door to the disk
    at_ms: int                   # by the wall clock


class FrameJourneys:
    """What of journeys one frame has, until it is durable."""

    __slots__ = ("rows", "held", "written", "copies", "places")

    def __init__(self) -> None:
        self.rows: list[FollowedRows] = []
        self.held: list[HeldRows] = []
        self.written: list[WrittenEvent] = []
        self.copies: list[Run] = []
        self.places: list[tuple[Run, int]] = []

    def add(self, rows: FollowedRows) -> None:
        """These are in it."""
        if not self.rows or not self.rows[-1].goes_on_with(rows):
            self.rows.append(rows)


class Journeys:  # decision 198
    """Writes what happens to followed messages: a `kernel.recorder.Recorder`, and a `Participant` of its frames."""

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
        self._trace_contexts = Contexts(ids()[:HALF])
        self._door_names = door_names
        self._shedding = shedding
        self._on_error = on_error
        self._sampling = Sampling(settings.rate, settings.topics)
        self._budget = Budget(settings.errors_per_minute)
        self._asked = Budget(settings.asked_per_minute)
        self.following = Following()
        self.followed_in: AbstractSet[int] = self.following.partitions
        """See `Recorder`."""

        self._held = HeldJourneys(loop=loop, following=self.following, budget=self._budget, add=self._add)
        self._waiting: list[WrittenEvent] = []
        """What is to be written with the next frame."""

        self._frames: dict[PendingFrame, FrameJourneys] = {}
        self._placements: dict[int, Placement] = {}
        self._sendings: list[Sending] = []                      # of what `follow` found, until `on_entered`
        self._senders: dict[tuple[Placement, Origin, str], Sender] = {}
        self._armed = False
        self._stopped = False
        self._counters: list[Callable[[int], None]] = []    # whoever counts down: see `Recorder.on_calm`
        self._looked_ms = 0
        self._calms = False
        self._opened_ms = self._owed_ms = 0                 # of batches that were made anew; what is to be paid still
        self._step = self._in_step = 0                      # and how many were followed in it
        self._most_in_step = -(-settings.followed_per_second * STEP_MS // 1_000)
        self.events = 0
        """Events that were written, since the start."""

        self._on_event: Callable[[Event], None] | None = None
        self.examples: dict[int, Example] = {}
        """By the number of its bound in DURABLE_MS, the newest followed message that took as long."""

        self._lost = 0

    def tell_of_each(self, on_event: Callable[[Event], None]) -> None:
        """Have this told of each event once it is durable; it must return at once."""
        self._on_event = on_event

    @property
    def follows_all(self) -> bool:
        """Whether every message is, of topics without a rate of their own."""
        return self._settings.rate >= 1

    @property
    def left_out(self) -> int:
        """Events that were not recorded since the start: beyond a topic's budget, under overload, where nothing can be
        stored, of messages that are gone, or lost with a refused frame. What is told is one of these, or an event."""
        return self._budget.left_out + self._lost

    def stop(self) -> None:
        """Nothing gets a frame of its own any more."""
        self._stopped = True

    # ---- messages that come in

    def gap(self) -> int:
        """See `Recorder`."""
        return self._sampling.gap()

    def on_calm(self, shorten: Callable[[int], None]) -> None:
        """See `Recorder`."""
        self._counters.append(shorten)

    def _picks(self, at: int, count: int) -> tuple[list[range], int]:
        """Which of so many are looked at."""
        self._looked_ms = self._loop.now_ms()
        picks, left = self._sampling.picks(at, count, self._looked_ms)
        if not self._calms and self._sampling.is_together:
            self._calms = True
            self._loop.call_at(self._looked_ms + CALM_MS, self._calm)
        return picks, left

    def _calm(self) -> None:
        """Perhaps few come now: the long gap that was drawn before would take hours."""
        self._calms = False
        if self._loop.now_ms() - self._looked_ms < CALM_MS:
            self._calms = True
            self._loop.call_at(self._looked_ms + CALM_MS, self._calm)
            return
        self._sampling.calm()
        for shorten in self._counters:
            shorten(self._sampling.gap())

    # decision 262
    def follow(self, messages: list[Any], placements: dict[int, Placement] | None, at: int, asking: Sequence[int]
               ) -> tuple[bool, int]:
        """See `Recorder`."""
        picks, left = self._picks(at, len(messages))
        turns = self._speaker.turns(len(messages))
        sendings = self._chosen(grouped(messages, placements, picks, turns)) if picks else []
        if asking:
            chosen = {index for sending in sendings for index in sending.indexes}
            asked = [index for index in asking if index not in chosen and self._speaker.origin_of(index).traces
                     and asks_for_trace(messages[index][2])
                     and self._grants(messages[index][0] if placements is None else placements[messages[index][0]])]
            sendings += grouped(messages, placements, [asked], turns)
        self._sendings = with_contexts(messages, sendings, self._trace_contexts) if sendings else []
        return bool(sendings), left

    def _grants(self, placement: Placement) -> bool:   # decision 243
        """Whether there is room for a message whose sender asks to have it followed, and may ask."""
        return placement.topic_id != self._trail.topic_id and self._asked.spend(ASKED_ID, self._loop.now_ms())

    def _chosen(self, sendings: list[Sending]) -> list[Sending]:
        """Of messages that are looked at, those that are followed."""
        if self._shedding.leaves(TRACE_EVENTS):
            return []
        chosen: list[Sending] = []
        for sending in sendings:
            placement = sending.placement
            if placement.topic_id == self._trail.topic_id:
                continue
            indexes = self._choose(placement.topic or placement.address, sending.indexes)
            if indexes:
                sending.keep(indexes)
                chosen.append(sending)
        return chosen

    def _choose(self, topic: str, indexes: list[int]) -> list[int]:
        """Which messages of one topic are followed."""
        if not self._sampling.is_even:
            indexes = [index for index in indexes if self._sampling.follows(topic)]
            if topic in self._settings.topics:
                return indexes
        step = self._loop.now_ms() // STEP_MS
        if step != self._step:
            self._step, self._in_step = step, 0
        room = self._most_in_step - self._in_step
        if room < len(indexes):
            indexes = indexes[:max(0, room)]
        self._in_step += len(indexes)
        return indexes

    @staticmethod
    def _context_of(headers: bytes) -> Context | None:
        if headers.find(HEADER) < 0:
            return None
        return only_context(named_headers(headers, _CONTEXT))

    def on_entered(self, frame: PendingFrame, messages: Sequence[Any], placements: dict[int, Placement] | None,
                   places: Sequence[tuple[Run, int]]) -> None:
        """See `Recorder`."""
        sendings, self._sendings = self._sendings, []
        mine = self._frame(frame)
        if mine is None:
            return
        for sending in sendings:
            origin = sending.origin
            door = origin.door or self._door_names(messages[sending.indexes[0]][3] & DOOR_MASK)
            for rows in rows_of(sending, places, self._sender_of(sending.placement, origin, door)):
                mine.add(rows)

    def _sender_of(self, placement: Placement, origin: Origin, door: str) -> Sender:
        sender = self._senders.get((placement, origin, door))
        if sender is None:
            if len(self._senders) >= MAX_SENDERS:
                self._senders.clear()
            sender = self._senders[placement, origin, door] = sender_of(
                placement.tenant, placement.address, placement.key or b"", origin, door)
        return sender

    # decision 242
    def follow_batch(self, topic: str, tenant: str, topic_id: int, validated: Validated, at: int, origin: Origin
                     ) -> tuple[Validated, object, int]:
        """See `Recorder`."""
        count = validated.header.record_count
        picks, left = self._picks(at, count)
        if topic_id == self._trail.topic_id:
            return validated, None, left
        chosen: list[list[int]] = []
        if picks and not self._shedding.leaves(TRACE_EVENTS):
            chosen = [self._choose(topic, list(pick)) for pick in picks]
        asked: list[int] = []
        if validated.traced:
            now_ms = self._loop.now_ms()
            asked = [index for index in validated.traced if self._asked.spend(ASKED_ID, now_ms)]
        indexes = [index for pick in chosen for index in pick]
        if asked:
            indexes = sorted({*indexes, *asked})
        if not indexes:
            return validated, None, left
        door = origin.door or self._door_names(0)
        if self._opens(validated, len(indexes), bool(asked)):
            given = indexes if self._sampling.rate_of(topic) >= 1 else asked              # decision 335
            validated, followed = self._opened(topic, tenant, topic_id, validated, indexes, set(given), origin, door)
            return validated, followed, left
        sender = sender_of(tenant, topic, b"", origin, door)
        lying = even(indexes)
        parts = [lying] if lying is not None else evenly(indexes)
        return validated, [OfBatch(part[0], len(part), part.step, sender, topic_id) for part in parts], left

    def _opened(self, topic: str, tenant: str, topic_id: int, validated: Validated, indexes: list[int], given: set[int],
                origin: Origin, door: str) -> tuple[Validated, list[OfBatch]]:
        """A batch whose records at these indexes are followed; those among `given` have a trace context then."""
        followed: list[OfBatch] = []

        def context_of(record: InBatch) -> bytes | None:
            headers = dict(record.headers)
            context = only_context(record.headers)
            number = 0 if context is not None else self._trace_contexts.take(1)
            address = self._places.routes.address_of(topic, record.key, record.headers)
            sender = sender_of(tenant, address, record.key or b"", origin, door)
            followed.append(OfBatch(record.at, 1, 1, sender, topic_id, number, context,
                                    headers.get(CORRELATION) or b""))
            return self._trace_contexts.header(number) if number and record.at in given else None

        return batch_with_contexts(validated, indexes, context_of), followed

    def _opens(self, validated: Validated, rows: int, is_asked: bool) -> bool:  # decision 263
        """Whether a batch is opened for its records that are followed, and perhaps made anew: as long as that takes
        some hundredths of the processor at most; where a sender asks for it always, unless it is compressed."""
        is_packed = validated.header.attributes & CODEC_MASK != NONE
        if is_asked and not is_packed:
            return True
        if is_packed and validated.opened_bytes > MAX_PACKED_BYTES:
            return False
        now_ms = self._loop.now_ms()
        self._owed_ms = max(0, self._owed_ms - max(0, now_ms - self._opened_ms))
        self._opened_ms = now_ms
        if self._owed_ms > 0:
            return False
        self._owed_ms = validated.opened_bytes // PACKED_PER_MS + rows // ROWS_PER_MS
        return True

    def on_batch_entered(self, frame: PendingFrame, run: Run, followed: object) -> None:
        """See `Recorder`."""
        mine = self._frame(frame)
        if mine is None:
            return
        assert isinstance(followed, list), "it is what `follow_batch` gave"
        for part in followed:
            rows = FollowedRows(run, part.first, part.rows, part.step, part.sender, part.topic_id, None)
            rows.number, rows.context, rows.correlation = part.number, part.context, part.correlation
            mine.rows.append(rows)

    # ---- groups and queues

    def on_handed_out(self, group: LeasedGroup, cursor: Cursor, messages: Sequence[Leased], until_ms: int,
                      taker: Origin) -> None:
        """See `Recorder`."""
        partition_id, attempt = cursor.partition_id, messages[0][2]
        if attempt == 1:                                  # handed out the first time, they are in order
            lowest, highest = messages[0][1], messages[-1][1]
            if not self.following.any_within(partition_id, lowest, highest):
                return
            offsets: Sequence[int] = range(lowest, highest + 1)
            if len(offsets) != len(messages):
                offsets = [message[1] for message in messages]
        else:
            offsets = [message[1] for message in messages]
            lowest, highest = min(offsets), max(offsets)
        event = Event(Kind.HANDED_OUT, partition_id=partition_id, attempt=attempt, until_ms=until_ms,
                      group=group.shown_name, door=taker.door, user=taker.user, client=taker.client, peer=taker.peer)
        if attempt == 1:
            for piece in self.following.pieces(partition_id, offsets, lowest, highest):
                self._tell_piece(piece, event)
        else:
            for piece in self.following.pieces(partition_id, offsets, lowest, highest):
                for offset in range(piece.offset, piece.offset + piece.rows * piece.step, piece.step):
                    self.following.at(partition_id, offset)          # from here on apart
        by_offset: dict[int, Leased] = {}
        for offset, followed in self.following.among(partition_id, offsets, lowest, highest):
            if attempt > 1 and not self._budget.spend(followed.topic_id, self._loop.now_ms(), False):
                followed.leave_out()
                continue
            noted = event._replace(offset=offset)
            if not followed.is_named:
                by_offset = by_offset or {message[1]: message for message in messages}
                noted = self._named(followed, noted, by_offset[offset])
            self._tell(followed, noted)

    def on_acked(self, group: LeasedGroup, cursor: Cursor, offsets: Sequence[int]) -> None:
        """See `Recorder`."""
        self._of_each(Kind.ACKED, group, cursor, offsets, 0)

    def on_extended(self, group: LeasedGroup, cursor: Cursor, offsets: Sequence[int], until_ms: int) -> None:
        """See `Recorder`."""
        self._of_each(Kind.EXTENDED, group, cursor, offsets, until_ms)

    def _of_each(self, kind: Kind, group: LeasedGroup, cursor: Cursor, offsets: Sequence[int], until_ms: int) -> None:
        partition_id = cursor.partition_id
        if not self.following.any_within(partition_id, cursor.committed, cursor.next - 1) or not offsets:
            return                                        # of all that is out nothing is followed
        lowest, highest = min(offsets), max(offsets)
        if not self.following.any_within(partition_id, lowest, highest):
            return
        event = Event(kind, partition_id=partition_id, until_ms=until_ms, group=group.shown_name)
        for piece in self.following.pieces(partition_id, offsets, lowest, highest):
            if not self._budget.left_out:                 # what failed is followed apart: all of these did not
                self._tell_piece(piece, event._replace(attempt=cursor.attempt_of(piece.offset)))
                continue
            for part, attempt in by_attempt(cursor, piece):
                self._tell_piece(part, event._replace(attempt=attempt))
        for offset, followed in self.following.among(partition_id, offsets, lowest, highest):
            self._tell(followed, event._replace(offset=offset, attempt=cursor.attempt_of(offset)))

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
                    self._lost += 1
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
        followed = self.following.add(message_id, topic_id)
        followed.is_named = False
        self.following.place(followed, partition_id, offset)
        return followed

    def _named(self, followed: Followed, event: Event, message: Leased) -> Event:    # decision 292
        """The event, and what the message is found by; nothing before said that."""
        followed.name()
        topic_partition = self._topics.of_partition(event.partition_id)
        if topic_partition is None:
            return event                              # of a queue: it is found by its id
        topic, key = topic_partition[0], message[5]
        try:
            headers, _ = read_headers(message[7], 0)
        except CorruptBatch:                          # of a producer's batch, whose records nobody looked into
            headers = ()
        said = dict(reversed(headers))
        context = only_context(headers)
        return event._replace(
            address=self._places.routes.address_of(topic.name, key, headers), key=key or b"",
            tenant=topic.tenant if topic.tenant != TENANT else "", correlation_id=said.get(CORRELATION) or b"",
            trace_id=context.trace_id if context is not None else b"")

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
            event = Event(Kind.GIVEN_UP, partition_id=cursor.partition_id, offset=message[1], attempt=message[2],
                          group=group.shown_name, reason=reason)
            self._tell(followed, event if followed.is_named else self._named(followed, event, message))

    def on_moved(self, messages: Sequence[Message], ids: Sequence[int], transaction_id: int, by: str) -> None:
        """See `Recorder`."""
        if transaction_id:
            self._held.forget(transaction_id)
        for message, message_id in zip(messages, ids, strict=True):
            placement = message[0]
            followed = self.following.by_id(message_id)
            if followed is None:
                if not self._budget.spend(placement.topic_id, self._loop.now_ms()):
                    continue
                followed = self.following.add(message_id, placement.topic_id)
            context = self._context_of(message[2])
            self._tell(followed, Event(
                Kind.COMMITTED if transaction_id else Kind.FELL_DUE, address=placement.address, user=by,
                transaction=transaction_id,
                tenant=placement.tenant if placement.tenant != TENANT else "",
                trace_id=context.trace_id if context is not None else b""))

    # ---- what waits for its time, or for a decision

    def speaking(self) -> Origin:
        """See `Recorder`."""
        return self._speaker.origin

    def on_accepted(self, frame: PendingFrame, messages: Sequence[Message], runs: Sequence[Run], untils: Sequence[int]
                    ) -> None:
        """See `Recorder`."""
        self._hold(frame, Kind.ACCEPTED, messages, runs, untils, 0)

    def on_held(self, frame: PendingFrame, messages: Sequence[Message], runs: Sequence[Run], transaction_id: int
                ) -> None:
        """See `Recorder`."""
        self._hold(frame, HELD, messages, runs, (), transaction_id)

    def _hold(self, frame: PendingFrame, kind: Kind, messages: Sequence[Message], runs: Sequence[Run],
              untils: Sequence[int], transaction_id: int) -> None:
        if self._shedding.leaves(TRACE_EVENTS):
            self._lost += len(messages)
            return
        held = self._held.choose(kind, messages, runs, untils, transaction_id, self._speaker.origin,
                                 self._trail.topic_id)
        mine = self._frame(frame) if held else None
        if mine is not None:
            mine.held.extend(held)
        else:
            self._lost += sum([len(rows.runs) for rows in held])

    def on_recalled(self, message_id: int, tenant: str, address: str, who: Origin) -> None:
        """See `Recorder`."""
        self._held.recall(message_id, tenant, address, who)

    def on_checked(self, transaction_id: int, group: str, asked: str, attempt: int) -> None:
        """See `Recorder`."""
        self._held.check(transaction_id, group, asked, attempt)

    def on_kept(self, message_id: int, transaction_id: int, by: str, until_ms: int) -> None:
        """See `Recorder`."""
        self._held.keep(message_id, Event(Kind.COMMITTED, transaction=transaction_id, user=by, until_ms=until_ms))

    def on_undone(self, transaction_id: int, by: str) -> None:
        """See `Recorder`."""
        self._held.decide(transaction_id, Event(Kind.ROLLED_BACK, user=by))

    def on_unanswered(self, transaction_id: int, group: str, reason: str) -> None:
        """See `Recorder`."""
        self._held.decide(transaction_id, Event(Kind.GIVEN_UP, group=group, reason=reason))

    def on_redriven(self, letter: Record, placement: Placement, queue: str) -> None:
        """See `Recorder`."""
        followed = self.following.by_id(letter[6])
        if followed is None:
            if not self._budget.spend(placement.topic_id, self._loop.now_ms()):
                return
            followed = self.following.add(letter[6], placement.topic_id)
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

    def _tell_piece(self, piece: FollowedPiece, event: Event) -> None:
        """Write an event of messages that are followed alike."""
        self._add(event._replace(
            message_id=piece.message_id, offset=piece.offset, at_ms=self._loop.wall_ms(),
            rows=piece.rows if piece.rows > 1 else 0, step=piece.step if piece.rows > 1 and piece.step > 1 else 0))

    def _add(self, event: Event) -> bool:
        """Whether there was room for it."""
        if len(self._waiting) >= MAX_WAITING or self._shedding.leaves(TRACE_EVENTS):
            self._lost += max(1, event.rows)
            return False
        try:
            if not self._has_topic():
                self._lost += max(1, event.rows)
                return False
            self._arm()
        except KernelError:
            self._lost += max(1, event.rows)
            return False
        self._waiting.append(WrittenEvent(event.kind, encode(event), event.at_ms, found_by(event), max(1, event.rows)))
        self._committer.ask_recorder()
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
            self._lost += sum([each.rows for each in self._waiting])
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
        if frame.builder.has_copies and len(self.following):
            copies = [run for run in frame.builder.runs if run.own_id >= 0
                      and self.following.ids_within(run.own_id, run.count)]
            mine = self._frame(frame) if copies else mine
            if mine is not None:
                mine.copies = copies
        entering: list[WrittenEvent] = []
        if mine is not None and mine.rows:
            firsts = self._firsts(frame, first_id)
            for rows in mine.rows:
                self._enter(entering, rows, firsts[rows.run], frame.builder.now_ms)
        self._put(frame, entering)

    def _enter(self, entering: list[WrittenEvent], rows: FollowedRows, firsts: tuple[int, int], now_ms: int) -> None:
        """The events that these were stored, and entered queues."""
        first_offset, first_id = firsts
        low = first_id + rows.first
        high = low + (rows.rows - 1) * rows.step
        names = rows.sender.names
        trace_id, own, number = b"", b"", rows.number
        if number:
            own = self._trace_contexts.own
            trace_id = self._trace_contexts.trace_id(number)
        elif rows.context is not None:
            trace_id = rows.context.trace_id
            names = (*names, hash_of("trace", trace_id))
        if rows.correlation:
            names = (*names, hash_of("correlation", named(rows.sender.tenant, cut(rows.correlation))))
        by = Found(low, high, own, number, number + rows.rows - 1, names)
        entering.append(WrittenEvent(Kind.STORED, stored_event(rows, first_id, first_offset, trace_id), now_ms, by,
                                rows.rows))
        for partition_id in rows.placement.also[:MAX_ROUTED] if rows.placement is not None else ():
            event = Event(Kind.ROUTED, message_id=low, partition_id=partition_id,
                          rows=rows.rows if rows.rows > 1 else 0, step=rows.step if rows.step > 1 else 0)
            entering.append(WrittenEvent(Kind.ROUTED, encode(event), now_ms, Found(low, high), rows.rows))

    def _put(self, frame: PendingFrame, entering: Sequence[WrittenEvent] = ()) -> None:
        """Events into a frame: these, and those that wait."""
        waiting, self._waiting = self._waiting, []
        written = [*entering, *waiting]
        if not written:
            return
        mine = self._frame(frame)
        if mine is None:
            self._lost += sum([each.rows for each in written])
            return
        try:
            messages = self._messages(written)
        except KernelError:                          # somebody has bounded the topic's messages: those that fit
            written = [each for each in written if self._fits(each)]
            messages = self._messages(written)
        if not written:
            return
        about = next((each.by.low for each in written if each.by.low), 1)
        frame.builder.add_beside(messages, about, mine.places)
        mine.written += written

    def _messages(self, written: Sequence[WrittenEvent]) -> list[Message]:
        messages: list[Message] = [(self._placement(each.kind), each.value, NO_HEADERS, 0, each.at_ms)
                                   for each in written]
        check(messages, self._places.refresh)
        return messages

    def _fits(self, each: WrittenEvent) -> bool:
        try:
            self._messages([each])
        except KernelError:
            self._lost += each.rows
            return False
        return True

    def _placement(self, kind: int) -> Placement:
        placement = self._placements.get(kind)
        if placement is None:
            name = Kind(kind).name.lower().replace("_", "-")
            # the first partition, however many somebody gives the topic: the trail looks there
            placement = self._placements[kind] = self._places.place_in(TOPIC, name.encode(), 0, TENANT, False)
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
        if mine.rows:
            last = mine.rows[-1]
            if last.number or last.context is not None:
                self._note_example(last.context.trace_id if last.context is not None
                                   else self._trace_contexts.trace_id(last.number + last.rows - 1),
                                   max(0, self._loop.now_ms() - frame.now_ms))
            self._follow_rows(mine.rows, frame)
        for held in mine.held:
            self._held.follow(held)
        for run in mine.copies:
            for message_id in following.ids_within(run.first_id, run.count):
                copied = following.by_id(message_id)
                assert copied is not None, "ids are of what is followed"
                following.place(copied, run.partition_id, run.first_offset + message_id - run.first_id)
        start, count = 0, len(mine.places)
        while start < count:                          # run by run: what is found as one is read as one
            run = mine.places[start][0]
            stop = start + 1
            while stop < count and mine.places[stop][0] is run:
                stop += 1
            self._trail.note([(run.first_offset + mine.places[at][1], mine.written[at].by)
                              for at in range(start, stop)])
            start = stop
        for each in mine.written:
            self.events += each.rows
            if self._on_event is not None:
                self._on_event(decode(each.value, each.at_ms))

    def _follow_rows(self, entered: list[FollowedRows], frame: PendingFrame) -> None:
        """What entered with a frame, run by run."""
        by_run: dict[Run, list[FollowedRows]] = {}
        for rows in entered:
            by_run.setdefault(rows.run, []).append(rows)
        for run, parts in by_run.items():
            lying: Sequence[Sequence[int]] = [parts[0].lying()]
            if len(parts) > 1:                            # told apart, and followed together all the same
                lying = evenly(sorted([at for rows in parts for at in rows.lying()]))
            for part in lying:
                stretch = self.following.add_stretch(run.first_id + part[0], parts[0].topic_id, shifted(part))
                self.following.view(stretch, run.partition_id, run.first_offset + part[0], 0, part[-1] - part[0])
                if frame.builder.references:
                    self._follow_references(stretch, run, part, frame)
        for rows in entered:
            if rows.placement is not None and rows.placement.targets:
                self._tell_delivered(rows, rows.placement)

    def _follow_references(self, stretch: FollowedStretch, run: Run, lying: Sequence[int], frame: PendingFrame) -> None:
        first = lying[0]
        for reference in frame.builder.references:
            if reference.run is run:
                low, high = max(first, reference.start), min(lying[-1], reference.stop - 1)
                if low <= high:
                    self.following.view(stretch, reference.partition_id,
                                        reference.first_offset + low - reference.start, low - first, high - first)

    def _note_example(self, trace_id: bytes, took_ms: int) -> None:
        self.examples[bisect_left(DURABLE_MS, took_ms)] = Example(trace_id, took_ms, self._loop.wall_ms())

    def _tell_delivered(self, rows: FollowedRows, placement: Placement) -> None:
        """They go to live subscribers now; how many of each door."""
        run = rows.run
        piece = FollowedPiece(run.first_id + rows.first, run.first_offset + rows.first, rows.rows, rows.step,
                              rows.topic_id)
        for subscriber, _ in placement.targets:
            door, count = subscriber.hearers(placement) if isinstance(subscriber, Hearing) else ("", 0)
            if count:
                self._tell_piece(piece, Event(Kind.DELIVERED, partition_id=run.partition_id, number=count, door=door))

    def failed(self, frames: list[PendingFrame]) -> None:
        """Its events are lost with it."""
        for frame in frames:
            mine = self._frames.pop(frame, None)
            if mine is not None:
                self._lost += sum([each.rows for each in mine.written]) + sum([len(rows.runs) for rows in mine.held])

    def resume(self, event: Event) -> None:
        """An event of before the start: what it tells of is followed still."""
        if event.kind in FINAL:
            return
        if not event.partition_id:
            self._held.resume(event)
            return
        topic_partition = self._topics.of_partition(event.partition_id)
        topic_id = topic_partition[0].id if topic_partition is not None else 0
        following = self.following
        if not event.rows:
            following.place(following.add(event.message_id, topic_id), event.partition_id, event.offset)
        elif event.kind == Kind.STORED:
            rows = range(0, event.rows * (event.step or 1), event.step or 1)
            following.view(following.add_stretch(event.message_id, topic_id, rows), event.partition_id, event.offset, 0,
                           rows[-1])
        elif event.kind != Kind.ROUTED:
            following.lie_at(event.message_id, event.last_id, event.partition_id, event.offset)

    def statistics(self) -> dict[str, int]:
        """Counters and gauges, by metric name without its prefix."""
        return {"journeys_asked_left_out_total": self._asked.left_out,
                "journey_events_total": self.events, "journey_events_left_out_total": self.left_out,
                "journeys_followed": len(self.following)}


FINAL: Final = frozenset((Kind.REDRIVEN, *OF_CLIENTS))
"""Events that say nothing of where a message lies."""


def sender_of(tenant: str, address: str, key: bytes, origin: Origin, door: str) -> Sender:
    """What events of this sender and place have in common."""
    shown = tenant if tenant != TENANT else ""
    fields, texts = 0, b""
    for name, said in (("address", address), ("tenant", shown), ("door", door), ("user", origin.user),
                       ("client", origin.client), ("peer", origin.peer)):
        if said:
            fields |= 1 << FIELDS.index(name)
            texts += text(said.encode())
    encoded = b""
    if key:
        fields |= KEY_BIT
        encoded = text(key)
    return Sender(fields, texts, encoded, names_of(shown, address, key, b""), shown)


def shifted(indexes: Sequence[int]) -> Sequence[int]:
    """Rising indexes, each less by the first of them."""
    if isinstance(indexes, range):
        return range(0, indexes[-1] - indexes[0] + 1, indexes.step)
    return [at - indexes[0] for at in indexes]


def by_attempt(cursor: Cursor, piece: FollowedPiece) -> list[tuple[FollowedPiece, int]]:
    """Messages that were handed out equally often, nearly always all of them."""
    attempts = [cursor.attempt_of(offset)
                for offset in range(piece.offset, piece.offset + piece.rows * piece.step, piece.step)]
    parts: list[tuple[FollowedPiece, int]] = []
    start = 0
    while start < piece.rows:
        stop = start + 1
        while stop < piece.rows and attempts[stop] == attempts[start]:
            stop += 1
        behind = start * piece.step
        parts.append((piece._replace(message_id=piece.message_id + behind, offset=piece.offset + behind,
                                     rows=stop - start), attempts[start]))
        start = stop
    return parts
