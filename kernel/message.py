"""Messages as plain values, which cross between doors and kernel; and the frame that holds them on disk. Pure. Hot.

    Placement   where one address is stored; made by `Kernel.place`, shared by every message to that address
    Message     one message to append, a plain tuple (hot: no class)
    Record      one message as read back, a plain tuple
    Retained    a record that is the value of its address
    Delivery    a run of messages of one placement, handed to a live subscriber after they are durable
    Piece       consecutive records of one partition as they lie in the log, undecoded
    Entries     what of a frame is whose: which records entered which partitions
    StateRecord the newest truth about one key

A frame has a head, with everything that replay needs to know without opening a batch, and a body, with the column of
authors in front:

     0  version       u16    2
     2  zero          u16
     4  epoch         u32    which start of the hub wrote it
     8  append_ms     i64    append time of every message in the frame
    16  first_id      u64    the first message id that the frame gives out; the others follow in order
    24  id_count      u32    message ids given out
    28  entry_count   u32
    32  state_bytes   u32
    36  zero          u32
    40  entries in columns, each entry_count long:
          partition_id i64, first_offset i64, max_ms i64, message_id i64,
          count u32, byte_offset u32, byte_length u32, crc u32, flags u32
        state records, state_bytes in all, each:
          kind u8, flags u8, key_len u16, value_len u32, order u64, key, value

An entry says that `count` records lying at `byte_offset` of the body entered a partition at `first_offset`. Columns,
because they are written and read whole, by one call each, however many partitions a frame enters. `message_id` is that
of the entry's first record, the others follow; it is one that the frame gives out, or, for a copy of a message, the one
that the message has had all along. `crc` is the CRC-32C of the entry's bytes, so that one entry can be checked without
reading its frame. A state record with the flag DELETED has no value; `order` is 0 but in kept frames, where it is the
position the record first had. Numbers are little-endian.

Version 1, which is read and no longer written, had no column `message_id` and, between `count` and `byte_offset`, a
column first_record u32: the entry's message id was first_id + first_record.

A body whose messages somebody is known to have published begins with the column of authors:

     0  magic         u32
     4  length        u32    of all of it
     8  crc           u32    CRC-32C of what follows
    12  first_id      u64    the first message id that the frame gives out
    20  name_count    u32    names that this frame says
    24  author_count  u32
    28  stretch_count u32
    32  authors       u64 each: where a name stands; the position of a frame's body << 16 and the number of the name in
                      its column, or without a position one of this column
        firsts        u32 each: a stretch of messages begins there, counted from `first_id`
        numbers       u16 each: whose they are, an author of this frame by its number; NOBODY: that is not known
        names         each: door, user, client id, peer; of each its length, u16, and its bytes, UTF-8

A name is said once in a segment of the log, in the frame of its author's first message there, and other frames point
to it: whatever deletes the segment deletes both.
"""
from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from crc32c import crc32c

# --- messages ---------------------------------------------------------------------------------------------------------

# A record's attribute byte is unused in the v2 record format; readers ignore it. Here it says how the message came in.
# decision 57
DOOR_MASK: Final = 0x8F      # low four bits and the highest: the door's number (0 is Kafka, whose clients write 0)
TRANSIENT: Final = 0x10      # the sender asked for no durability (QoS 0, delivery mode 1, acks=0)
RETAIN: Final = 0x20         # the sender asked that the value be kept as the address's last
EXACTLY_ONCE: Final = 0x40   # the sender used QoS 2

Headers = tuple[tuple[bytes, "bytes | None"], ...]
"""Name (UTF-8) and value pairs in order, duplicates kept."""

Message = tuple["Placement", "bytes | None", bytes, int, int]
"""(placement, value, headers as `record.encode_headers` made them, attribute bits, timestamp in ms or 0 for append
time)"""

NumberedMessage = tuple[int, "bytes | None", bytes, int, int]
"""(place, value, headers, attribute bits, timestamp): a message as a door's port has it (`kernel.api`), with the number
of a place in front; what is delivered has any number there."""

Record = tuple[int, int, "bytes | None", "bytes | None", Headers, int, int]
"""(offset, timestamp_ms, key, value, headers, attribute bits, message id)"""

Leased = tuple[Any, int, int, int, int, "bytes | None", "bytes | None", bytes, int]
"""One message handed to a member of a group: (cursor key, offset, attempt from 1, message id, timestamp_ms, key, value,
headers as they stand in the record, attribute bits). The first three are its handle."""

Handle = tuple[Any, int, int]
"""(cursor key, offset, attempt): which lease of which message. A cursor's key is plain: (partition
id, epoch, group)."""


class Encoded(NamedTuple):
    """Messages of one partition as records that are encoded already, but for their place: their offset deltas are 0,
    their times count from `base_ms`. Nobody has to look at them: nobody listens, they enter no queue, and change no
    state."""

    partition_id: int
    record_count: int
    data: bytes
    base_ms: int
    max_ms: int


class Retained(NamedTuple):
    """The value that an address retains: the last message to it with the mark RETAIN."""

    address: str
    topic: str
    partition: int               # number within the topic
    partition_id: int
    record: Record


class Stamp(NamedTuple):
    """When and on which hub a retained value was written, by the hybrid clock; the higher one stays."""

    clock_ms: int
    hub: bytes


class Written(NamedTuple):
    """The newest retained value of an address, or its end, and the record that it came with."""

    stamp: Stamp
    partition_id: int
    offset: int


ReadStamp = Callable[[bytes], Stamp | None]
"""The stamp in the encoded headers of a message of another hub; None: it was written on this hub."""


OnRetained = Callable[[list[Retained], "str | None", "Exception | None"], None]
"""Who asked for retained values is told: values, where to go on (None: there are no more), and what went wrong."""


class Origin:
    """Who tells the kernel something, or takes messages; for journeys. One of a connection is one object."""

    __slots__ = ("door", "user", "client", "peer", "traces", "named_at")

    def __init__(self, door: str = "", user: str = "", client: str = "", peer: str = "", traces: bool = False) -> None:
        self.door: str = door
        self.user: str = user
        self.client: str = client
        self.peer: str = peer
        self.traces: bool = traces       # it has the right to have messages followed
        self.named_at: int = 0           # where the log says who this is, see `records.batch`

    def note_named(self, at: int) -> None:
        """The log says there who this is."""
        self.named_at = at


RELAY: Final = "relay"
"""The door of what comes over a link: the client is the link's name, the peer the hub at the other end."""

SHOWN_ORIGIN: Final = b"relay-origin"
"""Public header of what came over a link: HUB/ID, its identity at the hub that stored it first."""

NOBODY: Final = Origin()
MANY: Final = Origin(traces=True)
SEVERAL: Final = Origin()
"""Several, of whom some may have that right, and of whom none has it; who they are is said in turn."""


class Speaker:
    """Who tells the kernel what it is told now: said before each call by those who know, read where it is recorded."""

    __slots__ = ("origin", "stops", "origins")

    def __init__(self) -> None:
        self.origin: Origin = NOBODY
        self.stops: list[int] = []
        self.origins: list[Origin] = []

    def speaks(self, origin: Origin) -> None:
        """What is told from here on comes from there."""
        self.origin = origin
        self.stops = []

    def speak_in_turn(self, stops: list[int], origins: list[Origin], traces: bool = True) -> None:
        """Of the messages that are told next, those before each of these indices come from there; `traces`: some of
        them may have the right to have messages followed."""
        self.origin, self.stops, self.origins = MANY if traces else SEVERAL, stops, origins

    def origin_of(self, at: int) -> Origin:
        """Where the message at this index of a call comes from."""
        return self.origins[bisect_right(self.stops, at)] if self.stops else self.origin

    def turns(self, count: int) -> list[tuple[int, Origin]]:
        """Who sends the messages of a call before each of these indices, from the turn before on; there are `count`."""
        return list(zip(self.stops, self.origins, strict=True)) if self.stops else [(count, self.origin)]


class When(NamedTuple):
    """When a message is to be delivered."""

    due_ms: int = 0              # by the wall clock; 0, or a time that is over: at once
    repeat: str = ""             # see `kernel.scheduling.schedule`; "": once
    delay_ms: int = 0            # without `due_ms`: so long from now, whatever the wall clock is set to
    name: str = ""               # by which its sender may recall it; "": by its id alone


NOW: Final = When()


class Allowed(NamedTuple):
    """What a sender may at the address of a receipt that he asks for: publish, and have its topic made, as `maker`."""

    may_create: bool
    maker: str


Judge = Callable[[str], "Allowed | None"]
"""Of an address: what the sender may there; None: he may not publish."""


class Subscriber(Protocol):
    """Who is told of new messages the moment they are durable."""

    def on_delivery(self, deliveries: list[Delivery]) -> Iterator[None] | None:
        """Called with what of a flush matches, in append order: once, or more often where a producer's batch is large.
        Must not block or raise. Who has much to do returns the steps of it."""


class Chooser(Protocol):
    """A door's rule that leads messages of other doors to its queues, where no filter says it. A queue is named by its
    first partition id. Must not block or raise."""

    def choose(self, address: str) -> tuple[int, ...] | None:
        """The queues that every message to this address enters; None: it depends on the message."""

    def choose_for(self, address: str, headers: bytes, attributes: int, timestamp_ms: int) -> tuple[int, ...]:
        """The queues that one message to this address enters."""


class FirstLevel:
    """Counts the changes that could alter what matches addresses of one first level."""

    __slots__ = ("version",)

    def __init__(self) -> None:
        self.version = 0


class Place(NamedTuple):
    """A placement as doors see it: where messages to one address are stored, as it is now."""

    tenant: str
    address: str
    topic: str                   # "" where it is a queue alone
    partition: int               # number within the topic
    partition_id: int
    key: bytes | None


class Placement:
    """Where an address is stored. Shared and cached: treat as read-only outside the kernel.

    `targets` holds (subscriber, options) pairs, each subscriber once with the highest options of its matching filters;
    it is refreshed by the kernel at append when `first_level.version` has moved on.
    """

    __slots__ = ("tenant", "address", "topic", "topic_id", "partition", "partition_id", "key", "key_part",
                 "address_header",
                 "max_message_bytes", "compact", "fixed_topic", "fixed_partition", "targets", "also", "fleeting",
                 "routed", "choosing", "chosen", "queue", "limited", "may_create", "maker", "first_level", "version",
                 "topics_version", "shown")

    def __init__(self, tenant: str, address: str, topic: str, topic_id: int, partition: int, partition_id: int,
                 key: bytes | None, key_part: bytes, address_header: bytes, max_message_bytes: int,
                 first_level: FirstLevel) -> None:
        # what each append asks lies together in memory, where this is compiled: a place among many is in no cache
        self.first_level = first_level
        self.version = -1
        self.max_message_bytes = max_message_bytes
        self.limited = False                         # one of the queues that it enters may be full, or `choosing`
        self.compact = False                         # the topic keeps the newest record of every key
        self.partition_id = partition_id             # 64-bit, unique in the hub, never used again
        self.key_part = key_part                     # the key as it stands in a record: varint length, bytes
        self.address_header = address_header         # encoded header to add, or b"" where topic and key say it all
        self.targets: tuple[tuple[Subscriber, int], ...] = ()
        self.also: tuple[int, ...] = ()              # queues that its messages enter besides
        self.fleeting: tuple[int, ...] = self.also   # those of them that take what is TRANSIENT, too
        self.tenant = tenant  # decision 90
        self.address = address
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition                   # number within the topic, from 0
        self.key = key
        self.fixed_topic = False                     # topic and key were asked for, not found by address
        self.fixed_partition = False                 # the partition was asked for by number, not found by key
        self.routed: tuple[int, ...] | None = None   # those of them that a door chose, in place of its bound queues
        self.choosing: tuple[Chooser, ...] = ()      # who says of each of its messages what that enters besides
        self.chosen: dict[tuple[int, ...], Placement] | None = None    # where those go, by what they enter
        self.queue: Any = None                       # the queue it is, where it leads to one alone
        self.may_create = False                      # whoever asked for it may have its topic made anew,
        self.maker = ""                              # for whom that counts; "": the hub itself
        self.topics_version = -1
        self.shown: Place | None = None              # as doors see it

    def with_queues(self, partition_ids: tuple[int, ...]) -> Placement:
        """The same place, whose messages enter these queues, too."""
        place = Placement(self.tenant, self.address, self.topic, self.topic_id, self.partition, self.partition_id,
                          self.key, self.key_part, self.address_header, self.max_message_bytes, self.first_level)
        place.compact, place.fixed_topic, place.fixed_partition = self.compact, self.fixed_topic, self.fixed_partition
        place.targets, place.routed, place.queue = self.targets, self.routed, self.queue
        place.may_create, place.maker = self.may_create, self.maker
        place.version, place.topics_version = self.version, self.topics_version
        others = [partition_id for partition_id in partition_ids if partition_id not in self.also]
        place.also = place.fleeting = (*self.also, *others)
        if self.also is not self.fleeting:
            place.fleeting = (*self.fleeting, *others)
        return place

Delivery = tuple[Placement, "list[NumberedMessage]", int, int]
"""(placement, messages, offset of the first, options of the matching subscription); the offsets are consecutive"""


class Stored:
    """The answer to one `append`: handed to its owner after the flush that made it durable, or with the error."""

    __slots__ = ("token", "error", "append_ms", "positions")

    def __init__(self, token: object, error: Exception | None, append_ms: int,
                 positions: list[tuple[int, int, int]]) -> None:
        self.token = token
        self.error = error
        self.append_ms = append_ms
        self.positions = positions        # per message or batch, where asked for: (partition_id, offset, message id)


class KnownProducer(NamedTuple):
    """An idempotent producer that a partition knows."""

    producer_id: int
    epoch: int
    last_sequence: int
    append_ms: int            # of its last batch, in hub time


# decision 55: once per flush, not a future per message
class Owner(Protocol):
    """Who appended and wants to know when it is durable."""

    def on_stored(self, stored: list[Stored]) -> Iterator[None] | None:
        """Called once per flush with this owner's submissions of it, in order. Must not block or raise. Who has much to
        do returns the steps of it.

        Of producers' batches those for one partition come in order; one that is checked on another thread may be
        answered after others.
        """


def tell(owner: Owner, stored: list[Stored]) -> None:
    """Answer an owner now, apart from any flush."""
    for _ in owner.on_stored(stored) or ():
        pass


class Piece:
    """Consecutive records of one partition, as stored. `batch.records_of` decodes it, `batch.as_batch` makes it
    Kafka's."""

    __slots__ = ("first_offset", "count", "whole", "data", "append_ms", "max_timestamp_ms", "first_id", "position")

    def __init__(self, first_offset: int, count: int, whole: bool, data: bytes, append_ms: int,
                 max_timestamp_ms: int, first_id: int, position: int = 0) -> None:
        self.first_offset = first_offset
        self.count = count
        self.whole = whole                # a record batch as a producer sent it, or opened; else bare v2 records
        self.data = data
        self.append_ms = append_ms
        self.max_timestamp_ms = max_timestamp_ms
        self.first_id = first_id          # message id of the first record; the others follow
        self.position = position          # of the frame that it lies in; 0: that is not known


COLD_BYTES: Final = 4 << 20
"""What one fetch reads from the disk at most: a replay comes in steps, between which live traffic is served."""


class Fetched:
    """The answer for one partition of a fetch."""

    __slots__ = ("partition_id", "error", "log_start_offset", "high_watermark", "pieces", "next_offset")

    def __init__(self, partition_id: int, error: Exception | None, log_start_offset: int, high_watermark: int,
                 pieces: list[Piece]) -> None:
        self.partition_id = partition_id
        self.error = error
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark
        self.pieces = pieces              # the first may begin before the offset that was asked for, as in Kafka
        self.next_offset = -1             # >= 0: nothing is left before this one, pieces or not (a compacted partition)


# --- frames -----------------------------------------------------------------------------------------------------------

HEAD_VERSION: Final = 2
NUMBERED: Final = 1            # the version whose entries number their records within the frame
WHOLE: Final = 1               # entry flag: the bytes are a whole record batch as its producer sent it
DELETED: Final = 1             # state record flag

_HEAD = struct.Struct("<HxxIqQIII4x")
_STATE = struct.Struct("<BBHIQ")
_HEAD_BYTES: Final = 40
_STATE_BYTES: Final = 16
_ENTRY_BYTES: Final = {HEAD_VERSION: 4 * 8 + 5 * 4, NUMBERED: 3 * 8 + 6 * 4}

U32: Final = "I" if array("I").itemsize == 4 else "L"
assert sys.byteorder == "little" and array(U32).itemsize == 4 and array("q").itemsize == 8


class Entries:  # decision 4
    """The entries of a frame, as columns of equal length."""

    __slots__ = ("partition_id", "first_offset", "max_ms", "message_id", "count", "byte_offset", "byte_length", "crc",
                 "flags")

    def __init__(self) -> None:
        self.partition_id = array("q")
        self.first_offset = array("q")
        self.max_ms = array("q")
        self.message_id = array("q")
        self.count = array(U32)
        self.byte_offset = array(U32)
        self.byte_length = array(U32)
        self.crc = array(U32)
        self.flags = array(U32)

    def columns(self) -> tuple[array[int], ...]:
        return (self.partition_id, self.first_offset, self.max_ms, self.message_id, self.count, self.byte_offset,
                self.byte_length, self.crc, self.flags)

    def __len__(self) -> int:
        return len(self.partition_id)


class StateRecord(NamedTuple):
    """The newest truth about one key: what a key and a value hold is `kernel.state.state`'s business."""

    kind: int
    key: bytes
    value: bytes | None        # None: the key is deleted
    order: int = 0             # in kept frames, the position it first had


class Head(NamedTuple):
    epoch: int
    append_ms: int
    first_id: int
    id_count: int
    entries: Entries
    state: list[StateRecord]


class BadHead(Exception):
    """A head whose CRC is right and whose contents make no sense: written by a version this one does not know."""


# decision 1
def encode_head(epoch: int, append_ms: int, first_id: int, id_count: int, entries: Entries,
                state: list[StateRecord]) -> bytes:
    assert len(entries.partition_id) == len(entries.message_id) == len(entries.flags), "columns are of one length"
    records = b"".join([
        _STATE.pack(kind, DELETED if value is None else 0, len(key), len(value or b""), order) + key + (value or b"")
        for kind, key, value, order in state])
    head = _HEAD.pack(HEAD_VERSION, epoch, append_ms, first_id, id_count, len(entries), len(records))
    return b"".join([head, *[column.tobytes() for column in entries.columns()], records])


def decode_head(head: bytes) -> Head:
    """Raises BadHead where the head does not add up."""
    if len(head) < _HEAD_BYTES:
        raise BadHead("a frame head is shorter than its fixed part")
    version, epoch, append_ms, first_id, id_count, entry_count, state_bytes = _HEAD.unpack_from(head)
    if version not in _ENTRY_BYTES:
        raise BadHead(f"a frame head of version {version} is not known here")
    at = len(head) - state_bytes
    if _HEAD_BYTES + entry_count * _ENTRY_BYTES[version] != at:
        raise BadHead("a frame head is not as long as it says")
    entries = _decode_entries(head, entry_count, first_id if version == NUMBERED else None)
    return Head(epoch, append_ms, first_id, id_count, entries, _decode_state(head, at))


def _decode_entries(head: bytes, entry_count: int, first_id: int | None) -> Entries:
    """`first_id` is given where the entries are numbered from it."""
    entries = Entries()
    numbers = array(U32)
    columns = entries.columns() if first_id is None else (
        entries.partition_id, entries.first_offset, entries.max_ms, entries.count, numbers, entries.byte_offset,
        entries.byte_length, entries.crc, entries.flags)
    at = _HEAD_BYTES
    for column in columns:
        size = column.itemsize * entry_count
        column.frombytes(head[at:at + size])
        at += size
    if first_id is not None:
        entries.message_id.extend([first_id + number for number in numbers])
    return entries


def _decode_state(head: bytes, at: int) -> list[StateRecord]:
    state: list[StateRecord] = []
    while at < len(head):
        if at + _STATE_BYTES > len(head):
            raise BadHead("a state record is cut off")
        kind, flags, key_len, value_len, order = _STATE.unpack_from(head, at)
        at += _STATE_BYTES
        key = head[at:at + key_len]
        at += key_len
        value = None if flags & DELETED else head[at:at + value_len]
        at += value_len
        if at > len(head):
            raise BadHead("a state record is cut off")
        state.append(StateRecord(kind, key, value, order))
    return state


COLUMN_MAGIC: Final = 0x89A7F00D
"""Its first byte, 0x0D, is no length of a record and begins no batch: no message can be taken for a column."""

NOBODY_NUMBER: Final = 0xFFFF
MAX_AUTHORS: Final = 60_000
"""Of one frame that are told apart; whose the messages of others are is not known."""

MAX_TEXT_BYTES: Final = 256
"""What is kept of a user's name, a client id, a peer."""

AUTHOR_BITS: Final = 16

_COLUMN: Final = struct.Struct("<IIIQIII")
COLUMN_HEAD_BYTES: Final = 32
_START: Final = struct.Struct("<III")                # the head in two parts, as its checksum begins with the second
_COUNTS: Final = struct.Struct("<QIII")
_LENGTH: Final = struct.Struct("<H")

Stretches = list[tuple[int, "Origin | None"]]
"""Where stretches of messages begin, and who published them."""


class Authors(NamedTuple):
    """What a column of authors says."""

    first_id: int
    names: list[Origin]
    authors: array[int]
    firsts: array[int]
    numbers: array[int]

    def author_of(self, message_id: int) -> int:
        """Where the name of its publisher stands, as in the column; -1 where that is not known."""
        at = bisect_right(self.firsts, message_id - self.first_id) - 1
        if at < 0 or self.numbers[at] >= len(self.authors):
            return -1
        return self.authors[self.numbers[at]]

    def within(self, message_id: int, count: int) -> list[tuple[int, int]]:
        """Of so many messages: from which id on, and where the name of their publisher stands; -1 where that is not
        known."""
        begin = message_id - self.first_id
        if begin < 0:
            return []
        at = max(0, bisect_right(self.firsts, begin) - 1)
        stretches: list[tuple[int, int]] = []
        while at < len(self.firsts) and self.firsts[at] < begin + count:
            number = self.numbers[at]
            stretches.append((max(begin, self.firsts[at]) + self.first_id,
                              self.authors[number] if number < len(self.authors) else -1))
            at += 1
        return stretches


class CorruptAuthors(Exception):
    """These bytes are no column."""


# decision 322
def encode_authors(first_id: int, authors: list[Origin], firsts: bytes, numbers: bytes, since: int
                   ) -> tuple[bytes, list[Origin]]:
    """The column of stretches, as it has them, of these authors. And the names that it says, which `note_names` is to
    be told once the frame has its place. Names that were said before the position `since` are said again."""
    saying: list[Origin] = []
    places = array("Q")
    since <<= AUTHOR_BITS
    for origin in authors:
        if origin.named_at >= since and origin.named_at:
            places.append(origin.named_at)
        else:
            places.append(len(saying))
            saying.append(origin)
    counts = _COUNTS.pack(first_id, len(saying), len(places), len(numbers) // 2)
    rest = places.tobytes() + firsts + numbers
    if saying:
        rest += b"".join([_encode_name(origin) for origin in saying])
    start = _START.pack(COLUMN_MAGIC, COLUMN_HEAD_BYTES + len(rest), crc32c(rest, crc32c(counts)))
    return b"".join((start, counts, rest)), saying


def note_names(saying: list[Origin], position: int) -> None:
    """The column that says these lies at this position, for good."""
    for number, origin in enumerate(saying):
        origin.note_named(position << AUTHOR_BITS | number)


def column_length(start: bytes) -> int:
    """How long the column is that a body begins with, by its first COLUMN_HEAD_BYTES; 0 where it begins with none."""
    if len(start) < COLUMN_HEAD_BYTES:
        return 0
    magic, length = struct.unpack_from("<II", start)
    return int(length) if magic == COLUMN_MAGIC and length >= COLUMN_HEAD_BYTES else 0


def decode_authors(column: bytes) -> Authors:
    """Raises CorruptAuthors."""
    if len(column) < COLUMN_HEAD_BYTES:
        raise CorruptAuthors("a column of authors is longer")
    magic, length, crc, first_id, name_count, author_count, stretch_count = _COLUMN.unpack_from(column)
    if magic != COLUMN_MAGIC or length != len(column) or crc32c(column[12:]) != crc:
        raise CorruptAuthors("this is no column of authors")
    authors, firsts, numbers = array("Q"), array(U32), array("H")
    at = COLUMN_HEAD_BYTES
    for part, count in ((authors, author_count), (firsts, stretch_count), (numbers, stretch_count)):
        end = at + count * part.itemsize
        if end > length:
            raise CorruptAuthors("a column of authors is cut off")
        part.frombytes(column[at:end])
        at = end
    names: list[Origin] = []
    for _ in range(name_count):
        texts: list[str] = []
        for _ in range(4):
            if at + 2 > length:
                raise CorruptAuthors("a name is cut off")
            size = int(_LENGTH.unpack_from(column, at)[0])
            texts.append(column[at + 2:at + 2 + size].decode(errors="replace"))
            at += 2 + size
        names.append(Origin(texts[0], texts[1], texts[2], texts[3]))
    if at != length:
        raise CorruptAuthors("something stands behind the names, or one is cut off")
    return Authors(first_id, names, authors, firsts, numbers)


def _encode_name(origin: Origin) -> bytes:
    parts: list[bytes] = []
    for text in (origin.door, origin.user, origin.client, origin.peer):
        raw = text.encode()[:MAX_TEXT_BYTES]
        parts.append(_LENGTH.pack(len(raw)))
        parts.append(raw)
    return b"".join(parts)
