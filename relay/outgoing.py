"""The sending side of a link: reads what is stored, in order, and says it to the other hub as long as that has room.

    ready   the other hub has said how far it is, and how much may be on its way
    read    partitions with something new are read ahead, some at a time
    say     topic after topic, one letter each: a large topic does not hold up a small one
    stored  the other hub has it on its disk: how far that is goes into our log, some times a second

Where the other hub has more than our log knows of, what it had last is compared with what lies here before anything
follows: a hub that was restored from an older copy has another history (`histories.py`).

Order per key: a partition is read in its order. Where partitions were added to a topic, a key may have moved, so that
topic's partitions are merged by the time and id under which each piece was stored.
"""
# decision 204: pieces go as they are stored, and topics that grew are merged by time
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.kernel.message import Fetched, Piece, StateRecord
from gatehouse.kernel.records.batch import cut, sound_records
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.state.topics import Topic
from gatehouse.relay.errors import HistoryLost, HistoryParted, LinkRefused, OutOfTurn, PositionAhead, RelayError
from gatehouse.relay.histories import DELETED, PARTED, SENT_AGAIN, TOO_LARGE, TOPIC_GONE, Last, Loss, Losses, mark_of
from gatehouse.relay.letters import PIECE_BYTES, TAKES_HISTORIES, TAKES_PACKED, Batches, Positions, Ready, Section
from gatehouse.relay.origins import Marks
from gatehouse.relay.pacing import Rates
from gatehouse.relay.picking import OutCounts, Picking, split
from gatehouse.relay.positions import (
    HubPartition,
    Sent,
    decode_origin,
    decode_sent,
    decode_spooled,
    sent_record,
    spooled_record,
)
from gatehouse.relay.settings import LinkSettings, is_open

if TYPE_CHECKING:
    from gatehouse.kernel.api import LinkPort
    from gatehouse.kernel.ports import Timer

LETTER_BYTES: Final = 128 << 10        # of pieces, at which a letter is closed: the last one may go beyond
LARGEST_LETTER_BYTES: Final = 1 << 20  # the same, on the widest way
LETTERS: Final = 2                     # that fill the window
READ_BYTES: Final = 512 << 10          # of one partition at a time
READ_AT_ONCE: Final = 8                # partitions of one look at the log, and topics
AHEAD_BYTES: Final = 2 << 20           # read and not said yet, of a topic whose partitions are not merged
SKIPPED: Final = 4_096                 # offsets that do not match before the other hub is told of them
SKIPPED_MS: Final = 5_000              # or so long after the last letter

LEAST_BYTES: Final = 256 << 10         # two letters: one is stored while the other travels
LATE_MS: Final = 2                     # so much later than the shortest time is aimed at, or half as much again as that
USUAL: Final = 16                      # letters that make what is usual
DRAIN_MS: Final = 10_000               # between two looks at the shortest time


class Said(NamedTuple):
    """How large a letter was."""

    sent_bytes: int
    window_bytes: int
    """What it takes of the window: as it is before it is packed."""


Say = Callable[[str, Batches, bool], Said]
"""Seal and send a letter about a topic, packed or as it is."""


@dataclass(slots=True)
class Reading:
    """One partition on its way out."""

    partition: int
    partition_id: int
    next: int                          # to be read
    said: int                          # up to where the other hub has been told
    stored: int                        # up to where it has it
    begins: bool                       # it has heard nothing of this partition
    ahead: deque[Piece] = field(default_factory=deque)
    high: int = 0
    lost: int = 0                      # offsets to be told as lost with the next section
    anew: bool = False                 # what follows is another history than the one that it has
    last: Last | None = None           # what it had last: to be compared with what lies here, before anything follows
    rewound: bool = False              # it had more, and asks for the first that there is


@dataclass(slots=True)
class Stream:
    """One topic on its way out."""

    topic: Topic
    passes_whole: bool
    readings: dict[int, Reading]
    unstored_bytes: int = 0
    ahead_bytes: int = 0
    fetching: bool = False
    turn: int = 0                      # which partition is next

    @property
    def merged(self) -> bool:
        return len(self.topic.ranges) > 1


@dataclass(frozen=True, slots=True)
class OnItsWay:
    """A letter that is not stored there yet."""

    number: int
    size_bytes: int
    messages: int
    said_ms: int
    stream: Stream
    ends: list[tuple[Reading, int]]


class Outgoing:
    """The sending side of a link. Made for one session; `counts` and `rates` outlive it."""

    def __init__(self, kernel: LinkPort, settings: LinkSettings, peer_hub: bytes, begun_ms: int, marks: Marks,
                 counts: OutCounts, losses: Losses, rates: Rates, say: Say,
                 fail: Callable[[RelayError], None], max_letter_bytes: int, clock: Callable[[], int],
                 spool: bytes = b"") -> None:
        """`spool`: of the meeting point, where that keeps the letters; what it has does not count as sent."""
        self._kernel = kernel
        self._settings = settings
        self._peer_hub = peer_hub
        self._begun_ms = begun_ms
        self._pick_as = partial(Picking, kernel, settings, peer_hub, marks, counts)
        self._picking = self._pick_as([])      # the other hub has not said yet what it takes
        self.counts = counts
        self._losses = losses
        self._rates = rates
        self._say = say
        self._fail = fail
        self._clock = clock                    # hub time, in ms
        self._piece_bytes = max_letter_bytes // 2          # at most, of a piece
        self._positions: dict[tuple[bytes, int], tuple[int, Last | None]] = {}
        self._knows_histories = False          # the other hub does
        self._topics_version = -1
        self._watch: Timer | None = None
        self._watched: set[int] = set()
        self._fetches = 0                      # on their way
        self._pumping = False
        self._came = False                     # something was read
        self._closed = False
        self._number = 0
        self._window_bytes = 0
        self._window = Window(0)
        self._packs = False                    # letters are compressed
        self._unstored_bytes = 0
        self._on_their_way: deque[OnItsWay] = deque()
        self._stored_ms = 0                    # when the other hub last stored something
        self._dirty: dict[tuple[bytes, int], int] = {}
        self._began: dict[tuple[bytes, int], int] = {}         # where partitions began over this link
        self._gone: list[tuple[bytes, int]] = []               # what was noted of topics that are no more
        self._refused: list[StateRecord] = []                  # by a full disk
        self._spool = spool
        self._spooled: dict[tuple[bytes, int], int] = {}
        self._last_said_ms = 0
        self._now_ms = self._wall_ms = 0
        self.streams: dict[bytes, Stream] = {}
        self.ready = False

    # ---- what the other hub says

    def on_positions(self, said: Positions) -> None:
        """How far it is in partitions of ours."""
        for at, (uuid, partition, next_offset) in enumerate(said.positions):
            self._positions[uuid, partition] = next_offset, said.last[at] if said.last else None

    def on_ready(self, ready: Ready) -> None:
        """It has said all of them."""
        if self.ready:
            raise OutOfTurn("the other hub was ready before")
        self._window_bytes = ready.window_bytes
        self._window = Window(ready.window_bytes)
        self._picking = self._pick_as(ready.filters)
        self._packs = self._settings.compress == "zstd" and bool(ready.takes & TAKES_PACKED)
        self._knows_histories = bool(ready.takes & TAKES_HISTORIES)
        self.ready = True
        self.pump()

    def on_stored(self, number: int) -> None:
        """That letter, and those before it, are on its disk."""
        if number >= self._number:
            raise OutOfTurn(f"the other hub has stored letter {number}, which was not sent")
        dirty = self._spooled if self._spool else self._dirty
        self._stored_ms = self._now_ms = self._clock()
        while self._on_their_way and self._on_their_way[0].number <= number:
            letter = self._on_their_way.popleft()
            self._unstored_bytes -= letter.size_bytes
            letter.stream.unstored_bytes -= letter.size_bytes
            self._window.on_stored(letter.size_bytes, self._now_ms - letter.said_ms, self._now_ms)
            for reading, end in letter.ends:
                if end > reading.stored:
                    reading.stored = end
                    dirty[letter.stream.topic.uuid, reading.partition] = end
        self.pump()

    # ---- time

    def handle_tick(self, now_ms: int, wall_ms: int) -> None:
        """Called some times a second."""
        self._now_ms, self._wall_ms = now_ms, wall_ms
        self.pump()

    def take_dirty(self) -> list[StateRecord]:
        """How far the other hub is, or the meeting point's spool, as far as that is not in our log."""
        records, self._refused = self._refused, []             # older ones first: the newest of a name counts
        records += self._losses.take_dirty()
        records += [sent_record(self._peer_hub, uuid, partition, self._sent(uuid, partition, end))
                    for (uuid, partition), end in self._dirty.items()]
        records += [sent_record(self._peer_hub, *gone, None) for gone in self._gone]
        records += [spooled_record(self._peer_hub, uuid, partition, end, self._spool)
                    for (uuid, partition), end in self._spooled.items()]
        self._dirty.clear()
        self._gone.clear()
        self._spooled.clear()
        return records

    def put_back(self, records: list[StateRecord]) -> None:
        """These were taken, and could not be stored."""
        self._refused += records

    def _sent(self, uuid: bytes, partition: int, end: int) -> Sent:
        stream = self.streams.get(uuid)
        return Sent(end, self._began.get((uuid, partition)), "" if stream is None else stream.topic.name)

    def close(self) -> None:
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def wants(self, address: str) -> bool:
        """Whether the other hub has said that it takes this address."""
        return self._picking.wants(address)

    @property
    def unstored_bytes(self) -> int:
        return self._unstored_bytes

    @property
    def oldest_said_ms(self) -> int:
        """When the oldest letter that is not stored there was said; 0: none is on its way."""
        return self._on_their_way[0].said_ms if self._on_their_way else 0

    @property
    def waits_since_ms(self) -> int:
        """Since when nothing of what is on its way has been stored; 0: nothing is. A narrow way takes its time for each
        letter."""
        return max(self.oldest_said_ms, self._stored_ms) if self._on_their_way else 0

    # decision 323: letters are as large as the way is wide
    @property
    def _letter_bytes(self) -> int:
        """Of pieces, at which a letter is closed."""
        return min(max(self._window.bytes // LETTERS, LETTER_BYTES), LARGEST_LETTER_BYTES, self._piece_bytes)

    # ---- out

    def pump(self) -> None:
        """Say and read what can be now."""
        if self._pumping or not self.ready or self._closed:
            return
        self._pumping = True
        self._now_ms = self._clock()
        try:
            self._look_for_topics()
            self._came = True
            while self._came and not self._closed:
                while not self._closed and self._is_open() and self._say_next():
                    pass
                self._came = False
                self._read_ahead()                       # what is in memory comes before this returns
        except RelayError as error:
            self.close()
            self._fail(error)
        finally:
            self._pumping = False

    def _is_open(self) -> bool:
        return (self._unstored_bytes < self._window_bytes and is_open(self._settings.hours, self._wall_ms)
                and self._rates.allow(self._now_ms))

    def _look_for_topics(self) -> None:
        kernel = self._kernel
        if self._topics_version == kernel.topics_version:
            return
        looked_before, self._topics_version = self._topics_version >= 0, kernel.topics_version
        if self._watch is not None:
            self._watch.cancel()
            self._watch, self._watched = None, set()
        topics = {topic.uuid: topic for topic in kernel.topics(self._settings.tenant) if self.sends(topic)}
        gone = {uuid: self.streams.pop(uuid) for uuid in self.streams.keys() - topics.keys()}
        if (gone or not looked_before) and not self._spool:
            self._list_topics_that_are_gone(gone)
        for uuid, topic in topics.items():
            stream = self.streams.get(uuid)
            if stream is None:
                stream = self.streams[uuid] = Stream(topic, self._picking.sends_all(topic), {})
            stream.topic = topic
            for partition in range(len(stream.readings), topic.partitions):
                stream.readings[partition] = self._begin(topic, partition)

    def sends(self, topic: Topic) -> bool:
        """Whether something of a topic may pass, as far as both hubs have said."""
        return self._picking.sends(topic)

    def _list_topics_that_are_gone(self, streams: dict[bytes, Stream]) -> None:
        """Topics that are gone and were on their way to the other hub: what it does not have of them is lost. How much
        that is, is known of those that were there a moment ago."""
        there = {topic.uuid for topic in self._kernel.topics(self._settings.tenant)}
        for key, value in self._kernel.link_states(Kind.SENT, self._peer_hub):
            hub, uuid, partition = decode_origin(key)
            sent = decode_sent(value)
            if hub == self._peer_hub and uuid not in there and sent.topic and (uuid, partition) not in self._gone:
                self._gone.append((uuid, partition))
                self._dirty.pop((uuid, partition), None)
                reading = streams[uuid].readings.get(partition) if uuid in streams else None
                first, end = (sent.next, sent.next) if reading is None else (reading.stored, reading.high)
                if end:
                    self._losses.note(Loss(TOPIC_GONE, sent.topic, partition, first, max(end - first, 0),
                                           self._wall_ms))

    def _begin(self, topic: Topic, partition: int) -> Reading:
        """Where a partition goes on. Raises PositionAhead."""
        partition_id, place = topic.partition_id(partition), (topic.uuid, partition)
        start, high = self._kernel.bounds(partition_id)
        name = HubPartition(self._peer_hub, topic.uuid, partition).encoded()
        value = self._kernel.link_state(Kind.SENT, name)
        sent = None if value is None else decode_sent(value)
        if sent is not None and sent.began is not None:
            self._began[place] = sent.began
        theirs, last = self._positions.get(place, (None, None))
        if theirs is not None:
            reading = Reading(partition, partition_id, theirs, theirs, theirs, False, high=high)
            if theirs > high:
                self._part(topic, reading, PositionAhead(
                    f"the other hub has partition {partition} of {topic.name} up to offset {theirs}, and here it ends "
                    f"at {high}"))
            elif sent is None or sent.next < theirs:             # it came by a spool, was not noted, or this is a copy
                if last is not None and start <= last.offset < theirs:
                    reading.last, reading.next = last, last.offset
                else:
                    self._dirty[place] = theirs
            elif theirs < sent.next:
                reading.rewound = not theirs
                self._losses.note(Loss(SENT_AGAIN, topic.name, partition, theirs, sent.next - theirs, self._wall_ms))
            return reading
        if sent is None:
            at = self._began[place] = self._beginning(topic, partition)
            self._dirty[place] = at
        elif self._spool or sent.began is None or sent.began >= sent.next:
            at = min(sent.next, high)
        else:                                                    # the other hub is a copy from before this link
            at = min(sent.began, high)
            self._losses.note(Loss(SENT_AGAIN, topic.name, partition, at, sent.next - at, self._wall_ms))
        kept = self._kernel.link_state(Kind.SPOOLED, name) if self._spool else None
        spooled = None if kept is None else decode_spooled(kept, self._spool)
        if spooled is not None and at < spooled <= high:
            return Reading(partition, partition_id, spooled, spooled, spooled, False, high=high)
        has_some = sent is not None and sent.began != sent.next      # or had: who was restored since is no beginner
        return Reading(partition, partition_id, at, at, at, not (self._spool and has_some), high=high)

    def _beginning(self, topic: Topic, partition: int) -> int:
        """The offset at which a partition goes out first; one that was added since the link has sent the topic is no
        old one."""
        start, high = self._kernel.bounds(topic.partition_id(partition))
        first = HubPartition(self._peer_hub, topic.uuid, 0).encoded()
        old = topic.created_ms < self._begun_ms and (
            not partition or self._kernel.link_state(Kind.SENT, first) is None)
        return high if old and self._settings.start == "now" else start if old else 0

    # decision 273: two histories of a partition are told apart before anything follows
    def _part(self, topic: Topic, reading: Reading, error: RelayError) -> None:
        """The other hub has a history that this one does not know: go on from the last place that both know. Raises the
        error where the link is to stop instead, or the other hub would take what follows for a repetition."""
        if self._settings.on_lost == "stop" or not self._knows_histories:
            raise error
        name = HubPartition(self._peer_hub, topic.uuid, reading.partition)
        value = self._kernel.link_state(Kind.SENT, name.encoded())
        at = self._beginning(topic, reading.partition) if value is None else decode_sent(value).next
        at = min(at, reading.high)
        self._losses.note(Loss(PARTED, topic.name, reading.partition, at, reading.said - at, self._wall_ms))
        reading.next = reading.said = reading.stored = at
        reading.anew = True

    def _has_parted(self, topic: Topic, reading: Reading, last: Last, answer: Fetched) -> bool:
        """Compare what the other hub had last with what lies here. Raises HistoryParted."""
        for piece in answer.pieces:
            if piece.first_offset <= last.offset < piece.first_offset + piece.count:
                for offset, time_ms, key, value, _, _, message_id in sound_records(piece):
                    if offset == last.offset and mark_of(message_id, time_ms, key, value) != last.mark:
                        self._part(topic, reading, HistoryParted(
                            f"the other hub has another message at offset {offset} of partition {reading.partition} of "
                            f"{topic.name}: one of the two hubs was restored from an older copy"))
                        return True
        self._dirty[topic.uuid, reading.partition] = reading.next = reading.said
        return False

    # ---- reading

    # decision 274: a topic's reads wait for no other topic's
    def _read_ahead(self) -> None:
        if self._closed:
            return
        idle: set[int] = set()
        streams = []
        for stream in self.streams.values():
            if stream.fetching or stream.ahead_bytes >= AHEAD_BYTES and not stream.merged:
                continue
            wants = False
            for reading in stream.readings.values():
                if not reading.ahead:
                    reading.high = self._kernel.bounds(reading.partition_id)[1]
                    if reading.next < reading.high:
                        wants = True
                    else:
                        idle.add(reading.partition_id)
            if wants:
                streams.append(stream)
        streams.sort(key=lambda stream: stream.unstored_bytes)
        for stream in streams[:max(READ_AT_ONCE - self._fetches, 0)]:
            self._fetch(stream)
        self._wait_for_more(idle)

    def _fetch(self, stream: Stream) -> None:
        chosen = [reading for reading in stream.readings.values()
                  if not reading.ahead and reading.next < reading.high][:READ_AT_ONCE]
        stream.fetching = True
        self._fetches += 1
        self._kernel.fetch_stored([(reading.partition_id, reading.next, READ_BYTES) for reading in chosen],
                                  READ_AT_ONCE * READ_BYTES, lambda answers: self._on_read(stream, chosen, answers))

    def _on_read(self, stream: Stream, chosen: list[Reading], answers: list[Fetched]) -> None:
        stream.fetching = False
        self._fetches -= 1
        if self._closed:
            return
        try:
            for reading, answer in zip(chosen, answers, strict=True):
                if stream.topic.uuid in self.streams:
                    self._take(stream, reading, answer)
        except RelayError as error:
            self.close()
            self._fail(error)
            return
        self._came = True
        self.pump()

    def _take(self, stream: Stream, reading: Reading, answer: Fetched) -> None:
        """What was read of one partition."""
        if answer.error is not None:
            raise HistoryLost(f"partition {reading.partition} of {stream.topic.name} cannot be read: {answer.error}")
        last, reading.last = reading.last, None
        if last is not None and self._has_parted(stream.topic, reading, last, answer):
            return
        for piece in answer.pieces:
            end = piece.first_offset + piece.count
            if end <= reading.next:
                continue
            self._note_gap(stream, reading, piece.first_offset)
            reading.ahead.extend(cut(piece, self._letter_bytes))
            stream.ahead_bytes += len(piece.data)
            reading.next = end
        if answer.next_offset > reading.next:
            self._note_gap(stream, reading, answer.next_offset)
            reading.next = answer.next_offset

    def _note_gap(self, stream: Stream, reading: Reading, offset: int) -> None:
        """What lies before this offset is gone. Raises HistoryLost."""
        count = offset - reading.next
        if count <= 0 or stream.topic.settings.compact or reading.rewound and not reading.next:
            return
        if self._settings.on_lost == "stop":
            raise HistoryLost(f"offsets {reading.next} to {offset - 1} of partition {reading.partition} of "
                              f"{stream.topic.name} are no longer stored (set `on_lost`, or rewind the link)")
        self._note_lost(stream, reading, DELETED, reading.next, count)

    def _note_lost(self, stream: Stream, reading: Reading, why: str, offset: int, count: int) -> None:
        """The other hub is told, and people are."""
        reading.lost += count
        self.counts.lost_messages += count
        self._losses.note(Loss(why, stream.topic.name, reading.partition, offset, count, self._wall_ms))

    def _wait_for_more(self, idle: set[int]) -> None:
        """Be woken by what comes to these partitions; the others are read, or said, already."""
        if idle <= self._watched:
            return
        if self._watch is not None:
            self._watch.cancel()
        self._watched = idle
        self._watch = self._kernel.watch(idle, self._woken)

    def _woken(self) -> None:
        self._watch, self._watched = None, set()
        self.pump()

    # ---- saying

    def _say_next(self) -> bool:
        """One letter of the topic that has least on its way; False where nothing can be said. A topic that has nothing
        on its way has room beside all that fill the window."""
        room = self._window.allows(self._unstored_bytes)
        streams = [stream for stream in self.streams.values()
                   if (room or not stream.unstored_bytes) and self._may_say(stream)]
        if not streams:
            return False
        stream = min(streams, key=lambda candidate: candidate.unstored_bytes)
        sections, messages = self._sections(stream)
        if sections:
            self._letter(stream, sections, messages)
        return True

    def _may_say(self, stream: Stream) -> bool:
        if stream.merged:
            return any(reading.ahead for reading in stream.readings.values()) and all(
                reading.ahead or reading.next >= reading.high for reading in stream.readings.values())
        return any(reading.ahead or self._is_far_behind(reading) for reading in stream.readings.values())

    def _is_far_behind(self, reading: Reading) -> bool:
        """Whether the other hub has not been told for long of offsets that do not match."""
        skipped = reading.next - reading.said
        return skipped >= SKIPPED or skipped > 0 and self._now_ms - self._last_said_ms >= SKIPPED_MS

    def _sections(self, stream: Stream) -> tuple[list[Section], int]:
        """What one letter holds, and how many messages that are."""
        sections: list[Section] = []
        size_bytes = messages = 0
        letter_bytes = self._letter_bytes
        while size_bytes < letter_bytes:
            reading = self._next_reading(stream)
            if reading is None:
                break
            pieces: list[Piece] = []
            while reading.ahead and size_bytes < letter_bytes:
                piece = reading.ahead.popleft()
                stream.ahead_bytes -= len(piece.data)
                if len(piece.data) > self._piece_bytes and piece.count > 1:
                    self._put_back(stream, reading, split(piece))
                    continue
                passing = self._picking.pick(stream.topic, stream.passes_whole, reading.partition_id, reading.said,
                                             piece)
                passing_bytes = sum([len(part.data) + PIECE_BYTES for part in passing])
                if passing_bytes > self._piece_bytes and piece.count > 1:    # it was compressed, or is many parts now
                    self._put_back(stream, reading, split(piece))
                    continue
                if passing and len(passing[0].data) > self._piece_bytes:
                    self._lose(stream, reading, piece)
                    passing, passing_bytes = [], 0
                size_bytes += passing_bytes
                messages += sum([part.count for part in passing])
                pieces += passing
                if stream.merged:
                    break
            end = reading.next if not reading.ahead else reading.ahead[0].first_offset
            if not pieces and reading.begins and not reading.lost and not reading.anew:
                self._begin_behind(stream, reading, end)
            elif pieces or self._has_skipped(reading, end):
                sections.append(Section(reading.partition, reading.begins, reading.said, end, reading.lost, pieces,
                                        reading.anew))
                reading.said, reading.begins, reading.lost, reading.anew = end, False, 0, False
            elif not reading.ahead and not stream.merged:
                continue
        return sections, messages

    # decision 313: of a topic of which nothing passes nothing is said
    def _begin_behind(self, stream: Stream, reading: Reading, end: int) -> None:
        """Nothing of a partition matched so far, and the other hub has not heard of it: it begins there."""
        reading.said = reading.stored = end
        if not self._spool:                      # of a spool it would be noted that something is there
            place = stream.topic.uuid, reading.partition
            self._began[place] = self._dirty[place] = end

    def _has_skipped(self, reading: Reading, end: int) -> bool:
        return end - reading.said >= SKIPPED or end > reading.said and self._now_ms - self._last_said_ms >= SKIPPED_MS

    def _next_reading(self, stream: Stream) -> Reading | None:
        readings = [reading for reading in stream.readings.values() if reading.ahead]
        if stream.merged:
            if not readings or not self._may_say(stream):
                return None
            return min(readings, key=lambda reading: (reading.ahead[0].append_ms, reading.ahead[0].first_id))
        if readings:
            stream.turn += 1
            return readings[stream.turn % len(readings)]
        return next((reading for reading in stream.readings.values() if self._is_far_behind(reading)), None)

    def _letter(self, stream: Stream, sections: list[Section], messages: int) -> None:
        letter = Batches(self._number, self._wall_ms, stream.topic.uuid, stream.topic.name, sections)
        said = self._say(stream.topic.name, letter, self._packs)
        size_bytes = said.window_bytes
        self._number += 1
        ends = [(stream.readings[section.partition], section.next) for section in sections]
        self._on_their_way.append(OnItsWay(letter.number, size_bytes, messages, self._now_ms, stream, ends))
        self._unstored_bytes += size_bytes
        stream.unstored_bytes += size_bytes
        self._last_said_ms = self._now_ms
        self.counts.letters += 1
        self.counts.messages += messages
        self.counts.bytes += said.sent_bytes
        self._rates.spend(said.sent_bytes, messages)

    def _put_back(self, stream: Stream, reading: Reading, pieces: list[Piece]) -> None:
        """Smaller pieces instead of one."""
        reading.ahead.extendleft(reversed(pieces))
        stream.ahead_bytes += sum([len(piece.data) for piece in pieces])

    def _lose(self, stream: Stream, reading: Reading, piece: Piece) -> None:
        """A message that the meeting point does not carry, as it is too large. Raises LinkRefused."""
        text = (f"a message of {len(piece.data)} bytes in partition {reading.partition} of {stream.topic.name}, offset "
                f"{piece.first_offset}, is more than the meeting point carries (max_frame_bytes)")
        if self._settings.on_lost == "stop":
            raise LinkRefused(text)
        self._note_lost(stream, reading, TOO_LARGE, piece.first_offset, 1)


# decision 274: a bulk topic fills the way, and not what lies before it; 311: what letters usually take is not late
class Window:
    """How much of a session is on its way at once: as much as keeps the way full, or what is urgent waits behind it.
    `most` is what the reader said.

    The time from a letter to its STORED is that of the way and of the reader's disk, and of what was on its way before
    it. So where it grows beyond the shortest that was seen, less is sent, and where it does not, more. Where as little
    as may be is on its way and letters take long all the same, nothing waits before them: a disk, a processor or the
    way itself takes now less, now more. What they usually take then is not late. What was sent while the window held
    nothing back says nothing about how wide it may be: it does not grow then. Now and then nothing is said until all is
    stored: what the next letter takes is the shortest time, by the way as it is then.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.bytes = self._least = min(LEAST_BYTES, most)
        self._shortest_ms: int | None = None
        self._usual_ms = 0.0                 # of letters while the window is as small as may be
        self._drain_at_ms = 0
        self._draining = False
        self._held_back = False              # something, since the way was last empty

    def allows(self, on_their_way: int) -> bool:
        """Whether more may be said, beside so many bytes that are not stored yet."""
        if self._draining:
            if on_their_way:
                return False
            self._draining, self._shortest_ms = False, None
            self._usual_ms /= 2              # where it is not so any more, the window finds out
        if not on_their_way:
            self._held_back = False
        if on_their_way < self.bytes:
            return True
        self._held_back = True
        return False

    def on_stored(self, size_bytes: int, took_ms: int, now_ms: int) -> None:
        """A letter is stored, so long after it was said."""
        if self._shortest_ms is None or took_ms < self._shortest_ms:
            if self._shortest_ms is None:
                self._drain_at_ms = now_ms + DRAIN_MS
            self._shortest_ms = took_ms
        if self.bytes == self._least:
            self._usual_ms += (took_ms - self._usual_ms) / USUAL
        if took_ms > max(self._shortest_ms + max(LATE_MS, self._shortest_ms * 3 // 2), self._usual_ms):
            self.bytes = max(self.bytes - size_bytes // 8, self._least)
        elif self._held_back:
            self.bytes = min(self.bytes + size_bytes // 8, self._most)
        if now_ms >= self._drain_at_ms:
            self._draining = True
