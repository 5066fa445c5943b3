"""What of the log goes to the other hub of a link: which topics; and of a stored piece all, as it lies there, or some.

A piece is opened only where records of it may not pass, or go out otherwise than they are stored: what came over
another link, a retained value, an address that only routes of this hub say, a queue that asks.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.admission.own_topics import AUDIT_TOPIC, CHECKS, HELD
from gatehouse.kernel.addresses.address import ADDRESS_HEADER, UNROUTED, join_address
from gatehouse.kernel.message import DOOR_MASK, RETAIN, Piece, Record
from gatehouse.kernel.records.batch import encode_headers, encode_key, encode_record, public_record, sound_records
from gatehouse.relay.origins import CLOCK_HEADER, ORIGIN_HEADER, Came, Marks
from gatehouse.relay.passing import Filters
from gatehouse.relay.replies import Replies
from gatehouse.relay.settings import LinkSettings

if TYPE_CHECKING:
    from gatehouse.kernel.api import LinkPort
    from gatehouse.kernel.state.topics import Topic

OWN_TOPICS: Final = (CHECKS, HELD)


def is_own(topic: str) -> bool:
    """Whether a topic is about the hub itself: nothing of it ever goes over a link."""
    return topic == AUDIT_TOPIC or topic.startswith(OWN_TOPICS)


@dataclass(slots=True)
class OutCounts:
    """Since the start of the hub."""

    messages: int = 0
    bytes: int = 0
    letters: int = 0
    not_matched: int = 0
    not_forwarded: int = 0
    lost_messages: int = 0


class Picking:
    """What of the log one session of a link says; `wanted`: filters of what the other hub takes."""

    def __init__(self, kernel: LinkPort, settings: LinkSettings, peer_hub: bytes, marks: Marks, counts: OutCounts,
                 wanted: list[str]) -> None:
        self._kernel = kernel
        self._forwards = settings.forward
        self._peer_hub = peer_hub
        self._marks = marks
        self._counts = counts
        self._send = Filters(settings.send)
        self._wanted = Filters(wanted)
        self._replies = Replies(settings.replies, settings.name, marks)

    # ---- topics

    def wants(self, address: str) -> bool:
        """Whether the other hub has said that it takes this address."""
        return self._wanted.match(address)

    def sends(self, topic: Topic) -> bool:
        """Whether something of a topic may pass."""
        name = topic.name
        if is_own(name):
            return False
        return self._has_routes or name == UNROUTED or self._send.may_match(name) and self._wanted.may_match(name)

    def sends_all(self, topic: Topic) -> bool:
        """Whether all of it may, as far as its addresses go."""
        name = topic.name
        return (not self._has_routes and name != UNROUTED and self._send.covers(name) and self._wanted.covers(name))

    @property
    def _has_routes(self) -> bool:
        """Whether topic and key alone may not say an address."""
        return any(entry.topic != UNROUTED for entry in self._kernel.route_entries)

    # ---- records

    def pick(self, topic: Topic, whole_topic: bool, partition_id: int, said_until: int, piece: Piece) -> list[Piece]:
        """What of a piece goes out: itself, where all of it does. `said_until`: what lies before is there already."""
        came_over_a_link = not piece.whole and piece.data.find(ORIGIN_HEADER) >= 0
        has_clocks = not piece.whole and self._kernel.has_retained_clocks(partition_id)
        asks = not piece.whole and self._replies.asks(piece.data)
        if whole_topic and piece.first_offset >= said_until and not came_over_a_link and not has_clocks and not asks:
            return [piece]
        has_routes = self._has_routes
        parts: list[Piece] = []
        records: list[Record] = []
        changed = has_routes
        for record in sound_records(piece):
            came = self._marks.came_by(record[4]) if came_over_a_link else None
            if record[0] < said_until or not self._passes(topic, record, came):
                continue
            if records and (record[0], record[6]) != (records[-1][0] + 1, records[-1][6] + 1):
                parts.append(_piece_of(records, piece))
                records = []
            if came_over_a_link and came is None:
                changed, record = True, _without_forged(record)
            if asks and (headers := self._replies.to_address(record[4])) is not record[4]:
                changed, record = True, (*record[:4], headers, *record[5:])
            if has_clocks and record[5] & RETAIN:
                changed, record = True, self._with_clock(topic, partition_id, record)
            records.append(self._with_address(topic, record) if has_routes else record)
        if len(records) == piece.count and not parts and not changed:
            return [piece]
        return [*parts, _piece_of(records, piece)] if records else parts

    def _passes(self, topic: Topic, record: Record, came: Came | None) -> bool:
        address = self._kernel.address_of(topic.name, record[2], record[4])
        if not self._send.match(address) or not self._wanted.match(address):
            self._counts.not_matched += 1
            return False
        if came is not None and (not self._forwards or came.passed(self._peer_hub)):
            self._counts.not_forwarded += 1
            return False
        return True

    def _with_clock(self, topic: Topic, partition_id: int, record: Record) -> Record:
        """A retained value, or its end, that says when it was written, if it is the newest of its address. Of another
        one the reader takes the time at which it was stored: the newest follows."""
        offset, time_ms, key, value, headers, attributes, message_id = record
        written = self._kernel.retained_written(self._kernel.address_of(topic.name, key, headers), topic.tenant)
        headers = tuple([header for header in headers if header[0] != CLOCK_HEADER])
        if written is not None and written[1:] == (partition_id, offset):
            headers = (*headers, self._marks.clock(written.stamp))
        return offset, time_ms, key, value, headers, attributes, message_id

    def _with_address(self, topic: Topic, record: Record) -> Record:
        """A record that says its address, where only routes of this hub would."""
        address = self._kernel.address_of(topic.name, record[2], record[4])
        if address == join_address(topic.name, record[2]):
            return record
        offset, time_ms, key, value, headers, attributes, message_id = record
        headers = (*[header for header in headers if header[0] != ADDRESS_HEADER], (ADDRESS_HEADER, address.encode()))
        return offset, time_ms, key, value, headers, attributes, message_id


def split(piece: Piece) -> list[Piece]:
    """A piece as one for each of its records; of a producer's batch those that make sense."""
    return [_piece_of([record], piece) for record in sound_records(piece)]


def _without_forged(record: Record) -> Record:
    """A record that came by a door and says that it came over a link."""
    offset, time_ms, key, value, headers, attributes, message_id = record
    headers = tuple([header for header in headers if header[0] != ORIGIN_HEADER])
    return offset, time_ms, key, value, headers, attributes, message_id


def _as_it_came(record: Record) -> Record:
    """A record of a producer's batch, without what a hub alone says of a message: the reader believes a piece."""
    public = public_record(record)
    attributes = record[5] & ~RETAIN if public is record else record[5] & ~(RETAIN | DOOR_MASK)
    return *public[:5], attributes, record[6]


def _piece_of(records: list[Record], piece: Piece) -> Piece:
    """Consecutive records of a piece as one of their own."""
    if piece.whole:
        records = [_as_it_came(record) for record in records]
    body = b"".join([
        encode_record(attributes, time_ms - piece.append_ms, encode_key(key), value, encode_headers(headers))
        for _, time_ms, key, value, headers, attributes, _ in records])
    return Piece(records[0][0], len(records), False, body, piece.append_ms, max([record[1] for record in records]),
                 records[0][6])
