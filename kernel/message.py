"""The plain values that cross between doors and kernel: where a message goes, what is appended, what is read.

    Placement   where one address is stored; made by `Kernel.place`, shared by every message to that address
    Message     one message to append, a plain tuple (hot: no class)
    Record      one message as read back, a plain tuple
    Retained    a record that is the value of its address
    Delivery    a run of messages of one placement, handed to a live subscriber after they are durable
    Piece       consecutive records of one partition as they lie in the log, undecoded
"""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

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
