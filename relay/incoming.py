"""The receiving side of a link: what the other hub says becomes messages here, each once, in its order.

A section covers offsets of one partition of the other hub. What of them is here already is passed over, what follows is
appended, and how far that is lies in the same frame. A section that begins behind what is here would leave a gap: the
link stops. Nothing is answered before it is on the disk.
"""
# decision 203: every batch names its predecessor, and a gap is never a repetition
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from gatehouse.gateways.admission.errors import Denied
from gatehouse.kernel.addresses.address import ADDRESS_HEADER, UNROUTED, is_address, join_address
from gatehouse.kernel.addresses.routes import stated_in
from gatehouse.kernel.errors import (
    CorruptBatch,
    KeptFull,
    KernelError,
    MessageTooLarge,
    QueueFull,
    Stopping,
    StorageFull,
)
from gatehouse.kernel.message import (
    DOOR_MASK,
    RELAY,
    RETAIN,
    Encoded,
    Headers,
    Message,
    Origin,
    Piece,
    Placement,
    Record,
    Stamp,
    StateRecord,
    Stored,
)
from gatehouse.kernel.records.batch import (
    OpenPiece,
    are_too_many,
    encode_headers,
    open_piece,
    read_headers,
    skip_records,
    split_records,
)
from gatehouse.kernel.records.headers import EXPIRES_HEADER, MAX_DIGITS
from gatehouse.kernel.state.state import Kind
from gatehouse.relay.errors import HistoryParted, LinkRefused, OutOfTurn, PositionGap, RelayError
from gatehouse.relay.histories import DELETED, PARTED, PARTED_MARK, TOPIC_GONE, Last, Loss, Losses, mark_of
from gatehouse.relay.letters import MAX_OFFSET, Batches, Section
from gatehouse.relay.marking import FOR_KERNEL, FOR_LINK, FOR_LINK_APART, Tracks, mark
from gatehouse.relay.origins import MAX_HUBS, Came, Ending, Marks, came_by, clock_said, has_side, without_origin
from gatehouse.relay.passing import Filters
from gatehouse.relay.positions import Arrived, HubPartition, arrived_record, decode_arrived, decode_origin
from gatehouse.relay.replies import Replies
from gatehouse.relay.settings import LinkSettings, renames_of

if TYPE_CHECKING:
    from gatehouse.kernel.api import LinkPort

WINDOW_BYTES: Final = 4 << 20
"""Of letters that may be on their way to this hub, over each link."""

MAX_PLACES: Final = 65_536
CLOCKS_APART_MS: Final = 1_000          # less is the way between the hubs
CLOCK_AHEAD_MS: Final = 24 * 3_600_000
"""So far ahead at most is the clock of another hub's retained value believed: what replaces it counts on from there."""
PARKED_TOPIC: Final = "relay-parked"
WAITING: Final = (KeptFull, QueueFull, Stopping, StorageFull)
"""What may be over by itself: the message is no worse for it."""

Allowed = Callable[[str], None]
"""Raises what speaks against a message at an address: a right that is missing."""


@dataclass(slots=True)
class InCounts:
    """Since the start of the hub."""

    messages: int = 0
    bytes: int = 0
    repeated: int = 0
    not_allowed: int = 0
    loops: int = 0
    other_way: int = 0
    parked: int = 0
    lost_messages: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


class OfLetter(NamedTuple):
    """What of a letter its answer needs."""

    number: int
    size_bytes: int


class Arriving:
    """What a letter brings, until it is appended."""

    def __init__(self, tracks: Tracks, by_tracks: bool) -> None:
        self.messages: list[Message] = []
        self.encoded: list[Encoded] = []             # enters before the messages
        self.advanced: dict[HubPartition, Arrived] = {}
        self.tracks: Tracks = tracks                    # of its topic
        self.by_tracks: bool = by_tracks               # none of it may be followed: messages may go by tracks
        self.met: list[bytes | None] = []            # keys of what became messages


class Course:
    """One section while it is taken."""

    def __init__(self, topic: str, origin: HubPartition, section: Section, arrived: Arrived, ending: Ending,
                 shift_ms: int) -> None:
        self.topic: str = topic
        self.origin: HubPartition = origin
        self.section: Section = section
        self.arrived: Arrived = arrived
        self.ending: Ending = ending
        self.shift_ms: int = shift_ms
        self.for_link: tuple[bytes, ...] = (
            FOR_LINK if -CLOCKS_APART_MS < shift_ms < CLOCKS_APART_MS else FOR_LINK_APART)
        self.at: int = arrived.next                  # the next offset
        self.newest: tuple[int, int, int, bytes | None, bytes | None] | None = None    # offset, id, time, key, value

    def marked(self, piece: Piece) -> int:
        """How many records of a piece may be taken without a look. The newest of a section is looked at."""
        if piece.first_offset < self.at or piece.first_offset + piece.count > self.section.next:
            return 0
        return piece.count - (piece is self.section.pieces[-1])


class Arrivals:
    """How far the partitions of all other hubs have arrived, for all links of this hub."""

    def __init__(self, kernel: LinkPort) -> None:
        self._kernel = kernel
        self._pending: dict[HubPartition, Arrived] = {}
        self._ways: dict[bytes, str] = {}
        self.direct: dict[bytes, str] = {}
        """Hubs at the other end of a link, and its name."""

        newest_ms: dict[bytes, int] = {}
        for key, value in kernel.link_states(Kind.ARRIVED):
            hub, arrived = decode_origin(key).hub, decode_arrived(value)
            if arrived.at_ms >= newest_ms.get(hub, 0):       # the way may have been another one before
                newest_ms[hub], self._ways[hub] = arrived.at_ms, arrived.link

    def get(self, origin: HubPartition) -> Arrived | None:
        """How far a partition is, what is on its way to the disk included."""
        pending = self._pending.get(origin)
        if pending is not None:
            return pending
        value = self._kernel.link_state(Kind.ARRIVED, origin.encoded())
        return None if value is None else decode_arrived(value)

    def advance(self, origin: HubPartition, arrived: Arrived) -> None:
        self._pending[origin] = arrived

    def forget_pending(self) -> None:
        """Some of it was not stored."""
        self._pending.clear()

    def stored_of(self, hub: bytes) -> list[tuple[HubPartition, Arrived]]:
        """What is durable of one hub."""
        return [(decode_origin(key), decode_arrived(value))
                for key, value in self._kernel.link_states(Kind.ARRIVED, hub) if key[:len(hub)] == hub]

    def over(self, link: str, peer_hub: bytes) -> list[tuple[HubPartition, Arrived]]:
        """How far partitions are that came over a link last, and are not of the hub at its other end."""
        origins = {decode_origin(key) for key, _ in self._kernel.link_states(Kind.ARRIVED)} | self._pending.keys()
        of = {origin: self.get(origin) for origin in origins if origin.hub != peer_hub}
        return [(origin, arrived) for origin, arrived in of.items() if arrived is not None and arrived.link == link]

    def way(self, hub: bytes) -> str:
        """The link by which the last of what that hub stored first came from others; "" where none has."""
        return self._ways.get(hub, "")

    # decision 206: what a hub stored first comes over one link at a time
    def is_way(self, hub: bytes, link: str, links: Mapping[str, object]) -> bool:
        """Whether what that hub stored first comes over this link: its own, or else the one that first brought some."""
        direct = self.direct.get(hub)
        if direct is not None:
            return direct == link
        way = self._ways.get(hub)
        if not way or way not in links:
            self._ways[hub] = way = link
        return way == link


class Incoming:
    """The receiving side of a link. Made for one session; `counts` and `arrivals` outlive it."""

    def __init__(self, kernel: LinkPort, settings: LinkSettings, peer_hub: bytes, arrivals: Arrivals,
                 marks: Marks, links: Mapping[str, object], counts: InCounts, losses: Losses, allowed: Allowed,
                 rights: Callable[[], object], wall_ms: Callable[[], int], answer: Callable[[int], None],
                 fail: Callable[[RelayError | KernelError], None], on_ready: Callable[[], None]) -> None:
        self._kernel = kernel
        self._settings = settings
        self._peer_hub = peer_hub
        self._sender = Origin(RELAY, client=settings.name, peer=peer_hub.hex(), traces=True)
        self._arrivals = arrivals
        self._marks = marks
        self._links = links
        self.counts = counts
        self._losses = losses
        self._allowed = allowed
        self._rights_of = rights
        self._rights = rights()
        self._wall_ms = wall_ms
        self._answer = answer
        self._fail = fail
        self._on_ready = on_ready
        self._receive = Filters(settings.receive)
        self._replies = Replies(settings.replies, settings.name, marks)
        self._renames = renames_of(settings.rename)
        self._places: dict[tuple[str, bytes | None, bytes | None], Placement] = {}
        self._tracks: dict[str, Tracks] = {}                               # by topic of the other hub
        self._came_before: dict[tuple[str, int], HubPartition] | None = None                 # by topic and partition
        self._parted: Arrived | None = None
        self._parted_of: HubPartition | None = None
        self._number = 0
        self._unstored_bytes = 0
        self._closed = False

    def begin(self) -> None:
        """Ready once everything that arrived before is on the disk."""
        self._append([], [], None)

    def close(self) -> None:
        self._closed = True

    @property
    def unstored_bytes(self) -> int:
        return self._unstored_bytes

    # ---- batches

    def on_batches(self, letter: Batches, size_bytes: int) -> None:
        """Raises OutOfTurn, PositionGap, HistoryParted, LinkRefused; KernelError where it is to be tried again."""
        if letter.number != self._number:
            raise OutOfTurn(f"letter {letter.number} of batches came where {self._number} is next")
        self._take_letter(letter, OfLetter(letter.number, size_bytes), self._wall_ms() - letter.sent_ms)
        self._number += 1

    def on_kept(self, letter: Batches, number: int, size_bytes: int, apart_ms: int) -> None:
        """A letter that the meeting point kept, by its number there; the clocks are so far apart. Raises as above."""
        self._take_letter(letter, OfLetter(number, size_bytes), apart_ms)

    def pass_over(self, number: int, size_bytes: int) -> None:
        """A letter that is worth nothing: answered behind those that came before it."""
        self._append([], self._take_parted(), OfLetter(number, size_bytes))
        self._unstored_bytes += size_bytes

    def _take_parted(self) -> list[StateRecord]:
        """What follows in a partition is of another history, too, until its sender says that it goes on anew."""
        origin, parted = self._parted_of, self._parted
        if origin is None or parted is None:
            return []
        self._parted_of = self._parted = None
        self._arrivals.advance(origin, parted)
        return [arrived_record(origin, parted)]

    def _take_letter(self, letter: Batches, of_letter: OfLetter, shift_ms: int) -> None:
        if self._unstored_bytes >= WINDOW_BYTES:
            raise OutOfTurn(f"the other hub sent more than the {WINDOW_BYTES} bytes that may be on their way")
        if self._rights is not self._rights_of():
            self._rights = self._rights_of()
            self.forget_places()
        tracks = self._tracks.get(letter.topic)
        if tracks is None:
            tracks = self._tracks[letter.topic] = Tracks()
        tracks.check()
        count = sum([piece.count for section in letter.sections for piece in section.pieces])
        into = Arriving(tracks, self._kernel.unfollowed >= count)
        for section in letter.sections:
            self._take(letter, section, shift_ms, into)
        records = [arrived_record(origin, arrived) for origin, arrived in into.advanced.items()]
        records += self._losses.take_dirty()
        self._append(into.messages, records, of_letter, into.encoded)
        tracks.learn(into.met)
        for origin, arrived in into.advanced.items():
            self._arrivals.advance(origin, arrived)
        self._unstored_bytes += of_letter.size_bytes
        self.counts.bytes += of_letter.size_bytes

    def _append(self, messages: list[Message], records: list[StateRecord], token: OfLetter | None,
                encoded: Sequence[Encoded] = ()) -> None:
        self._kernel.append_with(messages, records, self, token, self._sender, encoded)

    def on_stored(self, stored: list[Stored]) -> None:
        """See `kernel.message.Owner`."""
        newest = -1                          # an answer stands for the letters before it, too
        failed = None
        for answer in stored:
            if answer.error is not None:
                failed = answer.error
                break
            if answer.token is not None:
                assert isinstance(answer.token, OfLetter), "our own token"
                self._unstored_bytes -= answer.token.size_bytes
                newest = answer.token.number
            elif not self._closed:
                self._on_ready()
        if newest >= 0 and not self._closed:
            self._answer(newest)
        if failed is not None:
            self._arrivals.forget_pending()
            self._losses.put_back()
            if not self._closed:
                self._fail(failed if isinstance(failed, KernelError) else StorageFull(str(failed)))

    def _take(self, letter: Batches, section: Section, shift_ms: int, into: Arriving) -> None:
        origin = HubPartition(self._peer_hub, letter.uuid, section.partition)
        arrived = into.advanced.get(origin) or self._arrivals.get(origin)
        others, before = self._others(arrived, section.predecessor)
        if arrived is None:
            if not section.begins:
                raise PositionGap(f"partition {section.partition} of {letter.topic} goes on at offset "
                                  f"{section.predecessor}, and nothing of it has arrived")
            arrived = Arrived(section.predecessor)
            self._note_topic_made_anew(letter, section)
        elif section.anew and section.predecessor < arrived.next:
            self._losses.note(Loss(PARTED, letter.topic, section.partition, section.predecessor,
                                   arrived.next - section.predecessor, self._wall_ms()))
            arrived = Arrived(section.predecessor, arrived.lost)
            for other, passed_on in self._arrivals.over(self._settings.name, self._peer_hub):
                passed_on = into.advanced.get(other, passed_on)      # it may come once more in the new history
                into.advanced[other] = passed_on._replace(others=passed_on.next)
        elif arrived.last is not None and arrived.last.mark == PARTED_MARK:
            raise HistoryParted(f"partition {section.partition} of {letter.topic} goes on in another history")
        elif section.predecessor > arrived.next:
            raise PositionGap(f"partition {section.partition} of {letter.topic} goes on at offset "
                              f"{section.predecessor}, and {arrived.next} is next")
        last = arrived.last
        repeats = section.next <= arrived.next and arrived.at_ms > 0
        if repeats and (last is None or not section.predecessor <= last.offset < section.next):
            self.counts.repeated += sum([piece.count for piece in section.pieces])
            return
        course = Course(letter.topic, origin, section, arrived, self._marks.of(origin), shift_ms)
        for piece in section.pieces:
            self._take_piece(course, piece, into)
        if repeats:
            return
        newest = course.newest
        if newest is not None and arrived.next < course.at == newest[0] + 1:      # it is marked: `histories.py`
            last = Last(newest[0], mark_of(*newest[1:]))
        if section.lost:
            self.counts.lost_messages += section.lost
            self._losses.note(Loss(DELETED, letter.topic, section.partition, arrived.next, section.lost,
                                   self._wall_ms()))
        into.advanced[origin] = Arrived(section.next, min(arrived.lost + section.lost, MAX_OFFSET),
                                        max(self._wall_ms(), 1), letter.topic, self._settings.name, last, others,
                                        before)

    def _others(self, arrived: Arrived | None, begins: int) -> tuple[int, str]:
        """Up to where a partition of the hub at the other end came by another link, and by which. That may have left
        some of it behind: its partitions are others."""
        name = self._settings.name
        if arrived is None:
            way = self._arrivals.way(self._peer_hub)
            return (0, "") if way in ("", name) else (begins, way)
        return (arrived.others, arrived.before) if arrived.link == name else (arrived.next, arrived.link)

    def _take_piece(self, course: Course, piece: Piece, into: Arriving) -> None:
        """All records of a piece: those that need no look together, the others one by one."""
        try:
            opened = open_piece(piece)
        except CorruptBatch:
            return
        if opened is None:
            return                           # marks of transactions
        marked = course.marked(piece)
        passed = 0
        while passed < piece.count:
            if passed < marked:
                taken, behind = self._mark(course, piece, opened, passed, marked - passed, into)
                if taken:
                    passed += taken
                    opened = opened._replace(at=behind)
                    continue
            self._look(course, piece, opened, passed, into)
            there, behind = skip_records(opened.data, opened.at, 1, len(opened.data), len(opened.data))
            if not there:
                return                       # where a length makes no sense nothing behind it can be found
            passed += 1
            opened = opened._replace(at=behind)

    def _mark(self, course: Course, piece: Piece, opened: OpenPiece, passed: int, count: int, into: Arriving
              ) -> tuple[int, int]:
        """Up to so many records that need no look; how many they are, and where the next one lies."""
        tracks, first_offset = into.tracks, piece.first_offset + passed
        taken, behind, gathered = mark(opened, count, first_offset, piece.first_id + passed, tracks.places,
                                       tracks.of if into.by_tracks else {}, tracks.partition_ids, tracks.limit_bytes,
                                       course.for_link, FOR_KERNEL, course.ending, into.messages, into.met)
        for partition_id, of_track, records, max_ms in gathered:
            into.encoded.append(Encoded(partition_id, of_track, records, opened.base_ms, max_ms))
        if taken:
            self.counts.messages += taken
            course.at = first_offset + taken
        return taken, behind

    def _look(self, course: Course, piece: Piece, opened: OpenPiece, passed: int, into: Arriving) -> None:
        """One record, unless it makes no sense. Raises HistoryParted."""
        section, last = course.section, course.arrived.last
        for _, offset, _, message_id, time_ms, key, value, headers, attributes in split_records(
                None, opened.data, opened.at, 1, piece.first_offset + passed, opened.base_ms, piece.first_id + passed,
                opened.fixed_ms, True):
            if offset < course.at or offset >= section.next:
                self.counts.repeated += 1
                if last is not None and offset == last.offset \
                        and last.mark != mark_of(message_id, time_ms, key, value):
                    self._parted_of = course.origin
                    self._parted = course.arrived._replace(last=Last(offset, PARTED_MARK))
                    raise HistoryParted(f"offset {offset} of partition {section.partition} of {course.topic} is "
                                        "another message than the one that came: the other hub was restored")
                return
            course.at = offset + 1
            course.newest = offset, message_id, time_ms, key, value
            try:
                decoded, _ = read_headers(headers, 0)
            except CorruptBatch:
                return                       # no reader is given such a record
            into.tracks.of.pop(key, None)     # what follows of this key must not overtake it
            into.met.append(key)
            self._message(course.topic, course.origin,
                          (offset, time_ms, key, value, decoded, attributes, message_id), piece.whole,
                          piece.append_ms, course.shift_ms, into.messages, into.advanced)

    def _note_topic_made_anew(self, letter: Batches, section: Section) -> None:
        """A topic of that name may have come before, and be another one: people are told how far that was."""
        if self._came_before is None:
            self._came_before = {(arrived.topic, origin.partition): origin
                                 for origin, arrived in self._arrivals.stored_of(self._peer_hub)}
        place = letter.topic, section.partition
        before, self._came_before[place] = self._came_before.get(place), HubPartition(self._peer_hub, letter.uuid,
                                                                                section.partition)
        arrived = None if before is None else self._arrivals.get(before)
        if before is not None and before.uuid != letter.uuid and arrived is not None and arrived.next:
            self._losses.note(Loss(TOPIC_GONE, letter.topic, section.partition, arrived.next, 0, self._wall_ms()))

    # ---- one message

    def _message(self, topic: str, sender: HubPartition, record: Record, whole: bool, append_ms: int, shift_ms: int,
                 messages: list[Message], advanced: dict[HubPartition, Arrived]) -> None:
        offset, time_ms, key, value, headers, attributes, message_id = record
        came = None if whole else came_by(headers)
        if whole:
            attributes &= ~RETAIN
        if has_side(headers):                # it stays there: here the message is as one of another door
            attributes &= ~DOOR_MASK
        if came is None:
            came = Came(sender, offset, message_id)
        elif came.offset >= MAX_OFFSET or not self._is_news(came, advanced):
            return
        else:
            came = came._replace(through=(*came.through, self._peer_hub))
        said = stated_in(headers)
        address = _address_of(topic, key, said)
        if address is None or not self._receive.match(address):
            self.counts.not_allowed += 1
            return
        queue = self._replies.queue_at(address)
        if queue is not None:
            attributes &= ~RETAIN
        stamp = self._stamp(came, headers, append_ms) if attributes & RETAIN else None
        headers = (*_moved_expiry(without_origin(headers), shift_ms), *self._marks.headers(came))
        if stamp is not None:
            headers = (*headers, self._marks.clock(stamp))
        try:
            placement = self._place(topic, key, address, said) if queue is None else self._place_answer(queue)
            encoded = encode_headers(headers if said is None else _without_address(headers))
            if are_too_many(encoded):
                raise MessageTooLarge("a message has too many headers")
            size = len(encoded) + (0 if value is None else len(value))
            if size > placement.max_message_bytes:
                raise MessageTooLarge(f"a message of {size} bytes is more than {placement.topic} takes: "
                                      f"{placement.max_message_bytes}")
        except WAITING:
            raise
        except (KernelError, Denied) as error:
            self._refuse(address, error, record, came, messages)
            return
        messages.append((placement, value, encoded, attributes, max(time_ms, 0)))
        self.counts.messages += 1
        if said is None and queue is None:
            self._tracks[topic].place(key, placement)

    # decision 206: the hub that passes messages on has its own order of them
    def _is_news(self, came: Came, advanced: dict[HubPartition, Arrived]) -> bool:
        """Whether a message that was passed on comes here for the first time. What comes twice by the same way is a
        repetition by the positions of the hub that passes it on; its partitions are others, in no order together."""
        if came.passed(self._kernel.hub) or len(came.through) >= MAX_HUBS:
            self.counts.loops += 1
            return False
        if not self._arrivals.is_way(came.origin.hub, self._settings.name, self._links):
            return self._is_late(came, advanced)
        arrived = advanced.get(came.origin) or self._arrivals.get(came.origin) or Arrived(0, link=self._settings.name)
        others = arrived.others if arrived.link == self._settings.name else arrived.next
        if came.offset < others:
            self.counts.repeated += 1
            return False
        advanced[came.origin] = Arrived(max(arrived.next, came.offset + 1), arrived.lost, max(self._wall_ms(), 1),
                                        arrived.topic, self._settings.name, others=others)
        return True

    def _is_late(self, came: Came, advanced: dict[HubPartition, Arrived]) -> bool:
        """Whether a message comes by the link that was the way, and lies before where the way of now begins."""
        arrived = advanced.get(came.origin) or self._arrivals.get(came.origin)
        name = self._settings.name
        if arrived is not None and (came.offset < arrived.next if arrived.link == name else
                                    came.offset < arrived.others and arrived.before == name):
            return True
        self.counts.other_way += 1
        return False

    def _place(self, topic: str, key: bytes | None, address: str, said: bytes | None) -> Placement:
        """Raises what speaks against it."""
        name = (topic, key, said)
        placement = self._places.get(name)
        if placement is None:
            target = self._renames.rename(address)
            self._allowed(target)
            tenant = self._settings.tenant
            if said is None and target == address and topic != UNROUTED:
                placement = self._kernel.place_in(topic, key, tenant=tenant)
            else:
                placement = self._kernel.place(target, tenant=tenant)
            if len(self._places) >= MAX_PLACES:
                self.forget_places()
            self._places[name] = placement
        return placement

    def _place_answer(self, queue: str) -> Placement:
        """Looked up each time: a queue may be deleted and made anew. Raises as `_place` does."""
        self._allowed(queue)
        return self._kernel.place(queue, tenant=self._settings.tenant, may_create=False)

    def forget_places(self) -> None:
        """Rights have changed, or there are too many."""
        self._places.clear()
        for tracks in self._tracks.values():
            tracks.forget()

    def _refuse(self, address: str, error: KernelError | Denied, record: Record, came: Came,
                messages: list[Message]) -> None:
        """Park a message that cannot be taken. Raises LinkRefused where the link is to stop."""
        reason = error.code
        self.counts.reasons[reason] = self.counts.reasons.get(reason, 0) + 1
        if self._settings.on_refused == "stop":
            raise LinkRefused(f"a message for {address!r} (offset {record[0]}) is refused: {error}")
        parked = self._kernel.place_in(PARKED_TOPIC, self._settings.name.encode(), tenant=self._settings.tenant)
        value, headers = record[3], (
            *_without_address(without_origin(record[4])), *self._marks.headers(came),
            (b"relay-refused", f"{reason}: {error}".encode()[:1000]), (b"relay-address", address.encode()))
        encoded = encode_headers(headers)
        if len(encoded) + len(value or b"") > parked.max_message_bytes or are_too_many(encoded):
            # said, and its value left out
            value, encoded = None, encode_headers(headers[-2:])
        messages.append((parked, value, encoded, record[5] & ~(RETAIN | DOOR_MASK), max(record[1], 0)))
        self.counts.parked += 1

    def _stamp(self, came: Came, headers: Headers, append_ms: int) -> Stamp:
        """When a retained value was written. Where that hub does not say, when it was stored there."""
        said = clock_said(headers)
        if said is None:
            said = Stamp(append_ms, came.origin.hub)
        return said._replace(clock_ms=max(0, min(said.clock_ms, self._wall_ms() + CLOCK_AHEAD_MS)))


def _address_of(topic: str, key: bytes | None, said: bytes | None) -> str | None:
    """The address of a message of the other hub; None where what it says is none."""
    if said is None:
        return join_address(topic, key)
    try:
        address = said.decode()
    except UnicodeDecodeError:
        return None
    return address if is_address(address) else None


def _without_address(headers: Headers) -> Headers:
    return tuple([header for header in headers if header[0] != ADDRESS_HEADER])


# decision 207: what expires has as much time left as it had there, whatever the clocks say
def _moved_expiry(headers: Headers, shift_ms: int) -> Headers:
    """The headers with the end of the message by the clock of this hub."""
    if -CLOCKS_APART_MS < shift_ms < CLOCKS_APART_MS or not any(name == EXPIRES_HEADER for name, _ in headers):
        return headers
    return tuple([(name, str(max(int(value) + shift_ms, 0)).encode())
                  if name == EXPIRES_HEADER and value is not None and value.isdigit() and len(value) < MAX_DIGITS
                  else (name, value) for name, value in headers])
