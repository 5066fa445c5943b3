"""The port: all that doors may ask of the kernel and tell it, in plain values.

    from definitions   epoch, settings, congested, topic ..., place     answered at once
    asked              fetch, retained, bounds, offset_for_time ...     answered by a call-back, now or later
    told               append, schedule, subscribe, commit ...          answered once per flush, for all of a door

A port belongs to one door. What crosses it is numbers, bytes, texts, errors, and tuples and lists of them, so that
doors could be processes of their own; a test runs their suites through a port that copies every value. What a door's
sessions use of it they use by a guard (`gateways.admission.guard`), which asks for their rights first.
"""
# decision 144: one port for each door, which asks in three ways
from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from gatehouse.kernel.message import (
    NOBODY,
    Chooser,
    Encoded,
    Fetched,
    Handle,
    Headers,
    Judge,
    KnownProducer,
    Leased,
    NumberedMessage,
    OnRetained,
    Origin,
    Owner,
    Piece,
    Place,
    Placement,
    ReadStamp,
    Record,
    Stored,
    When,
    Written,
)
from gatehouse.kernel.message import Message as PlacedMessage
from gatehouse.kernel.ports import Timer
from gatehouse.kernel.records.validation import Divert
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.shedding import Shedding
from gatehouse.kernel.state.topics import Topic, TopicSettings

if TYPE_CHECKING:
    from gatehouse.kernel.addresses.routes import RouteEntry
    from gatehouse.kernel.assigned.assigned_values import (
        Assigned,
        Beat,
        Beaten,
        ConsumerRules,
        DescribedConsumers,
        DescribedGroup,
        GroupLook,
        GroupRules,
        Joined,
        Joining,
    )
    from gatehouse.kernel.errors import KernelError, StorageFailed
    from gatehouse.kernel.groups.group import Counts
    from gatehouse.kernel.groups.group_settings import GroupSettings, Queue, QueueSettings
    from gatehouse.kernel.groups.handing_out import Budget, HoldLimit, Member
    from gatehouse.kernel.halves.producer_transactions import ProducerTransactions
    from gatehouse.kernel.journeys.looking import IsShown, OnFound, OnJourney
    from gatehouse.kernel.journeys.origins import OnCame
    from gatehouse.kernel.journeys.publishers import OnAuthors
    from gatehouse.kernel.journeys.why import OnReason
    from gatehouse.kernel.message import StateRecord
    from gatehouse.kernel.retention.holders import Holder
    from gatehouse.kernel.scheduling.queries import Page, Scheduled
    from gatehouse.kernel.sessions.session_values import (
        Entrusted,
        Owed,
        SessionDescription,
        SessionListener,
        Subscribed,
        Will,
    )
    from gatehouse.kernel.write.committer import Slices

Message = NumberedMessage
"""One message to append, or as it is delivered: (number of its place, value, headers as `record.encode_headers` made
them, attribute bits, timestamp in ms or 0 for append time). What is delivered has any number in front."""

Heard = tuple[Place, "list[Message]", int]
"""Consecutive messages to one address that are durable now: (place, messages, offset of the first)."""

ReceiptsByGroup = Sequence[tuple[str, Sequence[str]]]
"""Receipts of leased messages: (name of their group, texts)."""


class HalfMessage(NamedTuple):
    """A message that waits for a decision, as a door hands it in."""

    message: Message
    when: When | None = None        # once decided: at this time, if that is not over
    delay_ms: int = 0               # or so long after the decision


Source = tuple[str, str]
"""Where messages are taken from: (name of a group, its topic), or (name of a queue, "")."""

ACK: Final = "ack"
EXTEND: Final = "extend"
RELEASE: Final = "release"
REJECT: Final = "reject"
LEAVE: Final = "leave"


class Settling(NamedTuple):
    """What becomes of leased messages."""

    what: str
    """ACK: they are done; EXTEND; RELEASE; REJECT: not to be tried again; LEAVE: their holder has gone, ready."""

    ms: int | None = None
    """EXTEND: for so long; 0 and None: as the group says. RELEASE: ready after so long; None: as its retry says."""


class Taken(NamedTuple):
    """A leased message as it is handed out."""

    leased: Leased
    address: str                    # "" where nobody knows
    receipt: str                    # what its taker settles it by; "" for a member, who settles by the handle


class DoorSide(Protocol):
    """What a port tells its door, of each flush once. Both are done in steps, between which others have their turn:
    whoever takes no step for a while is behind, and publishers wait."""

    def on_answers(self, answers: list[Stored]) -> Iterator[None]:
        """What became of submissions, in their order. The token of each is the number of the submission; the answers
        are the door's to change."""

    def on_delivery(self, heard: list[Heard]) -> Iterator[None]:
        """New messages that match a filter of the door, in append order."""

    def hearers(self, place: Place) -> tuple[str, int]:
        """The door's name, and how many of its sessions hear what goes to a place now; for journeys."""


class HubFacts(Protocol):
    """What everybody who has a port may know of the hub: answered from definitions, or asked."""

    @property
    def epoch(self) -> int:
        """Which start of the hub this is."""

    @property
    def hub(self) -> bytes:
        """Identity of the hub."""

    @property
    def settings(self) -> KernelSettings:
        """Limits and defaults, as they are now."""

    @property
    def congested(self) -> bool:
        """More is pending than is good: stop reading from publishers until `on_relief`."""

    def wall_of(self, hub_ms: int) -> int:
        """A hub time as wall time, for what is shown."""

    def on_relief(self, callback: Callable[[], None]) -> None:
        """Call once, when no longer congested."""

    def address_of(self, topic: str, key: bytes | None, headers: Headers) -> str:
        """The address of a stored record."""

    def bounds(self, partition_id: int) -> tuple[int, int]:
        """(log start offset, high watermark)."""

    def offset_for_time(self, partition_id: int, timestamp_ms: int, on_done: Callable[[int | None, int], None]) -> None:
        """(offset, timestamp) of the first record with at least this timestamp; (None, -1) where there is none."""


class KernelPort(HubFacts, Protocol):
    """One door's. Calls raise their refusals (`kernel.errors`) at once, with nothing taken; what only the disk can say
    is told to the door by the number of the submission. A number of 0 asks for no answer.

    A guard is a number, too: places that one guard was given are unknown in the name of another.
    """

    # ---- from definitions

    @property
    def records_journeys(self) -> bool:
        """Whether `speaks` is to be told."""

    def told(self, kind: int, origin: Origin, tenant: str, address: str, reason: str) -> None:
        """For journeys, of a client: see `tracing.events.OF_CLIENTS`."""

    def address_of_place(self, guard: int, place: int) -> str:
        """The address that was placed; "" where the place is unknown."""

    def speaks(self, origin: Origin) -> None:
        """What is told from here on comes from there; for journeys of messages. Whoever says it says NOBODY behind the
        call that it is about, in the same turn."""

    def speak_in_turn(self, stops: list[int], origins: list[Origin], traces: bool) -> None:
        """Of the messages that are appended next, those before each of these indices come from there. `traces`: some
        of them may have the right to have messages followed."""

    def note_delivered(self, door: str, count: int) -> None:
        """So many messages of what `on_delivery` brought are with the sessions of this door; for the metrics."""

    def has_expired(self, record: Record, topic: str, tenant: str) -> bool:
        """Whether a record of a topic is worth nothing any more: sessions are not given it."""

    def topic(self, name: str, tenant: str) -> Topic | None:
        """A topic by its name."""

    def topic_by_uuid(self, uuid: bytes) -> Topic | None:
        """A topic of any tenant."""

    def topics(self, tenant: str) -> list[Topic]:
        """Every topic of a tenant, sorted by name."""

    @property
    def topics_version(self) -> int:
        """Counts the changes of topics: while it stays the same, so do they."""

    def topics_for(self, filter: str, tenant: str) -> list[Topic]:
        """The topics that can hold messages whose address matches. Raises InvalidFilter."""

    @property
    def route_entries(self) -> tuple[RouteEntry, ...]:
        """The routes as configured: with them a reader of stored records finds their addresses itself."""

    @property
    def delivered(self) -> bool:
        """Whether the doors have been told of everything that is durable."""

    # ---- places

    def open_guard(self, judge: Judge) -> int:
        """A number in whose name places are given. `judge`: where it may have receipts sent."""

    def close_guard(self, guard: int) -> None:
        """It is used no more, and neither are its places."""

    def forget_places(self, guard: int, places: list[int] | None) -> None:
        """These places that the guard was given are unknown from now on; None: all of them."""

    def place(self, guard: int, address: str, tenant: str, may_create: bool, maker: str) -> int:
        """The number of the place where messages for this address are stored; its topic is made where it is missing,
        and counted for its maker.

        Raises InvalidAddress, Unroutable, UnknownQueue; UnknownTopic, CreateDenied, TooManyTopics: so may an append,
        once the topic is gone.
        """

    def place_in(self, guard: int, topic: str, key: bytes | None, partition: int | None, tenant: str,
                 may_create: bool, maker: str) -> int:
        """The number of the place of a key in a topic, given as `place` gives one. Raises UnknownPartition,
        InvalidTopic, and of a missing topic what `place` raises."""

    def place_queue(self, guard: int, name: str, tenant: str, priority: int) -> int:
        """Into a queue alone. Raises UnknownQueue."""

    def place_routed(self, guard: int, address: str, partition_ids: tuple[int, ...], tenant: str, may_create: bool,
                     maker: str) -> int:
        """Where the address leads, and by reference into exactly these queues, besides bindings that are not
        `chosen`. Raises as `place`."""

    def max_bytes(self, guard: int, place: int) -> int:
        """The largest message that is taken there. Raises UnknownPlace."""

    def look(self, guard: int, place: int) -> Place:
        """Where messages to this place are stored, as it is now. Raises UnknownPlace."""

    def can_be_stored(self, guard: int, place: int) -> bool:
        """Whether there is something to store a message in, or it may be made. Raises UnknownPlace."""

    def checks_for(self, guard: int, place: int, group: str) -> Any:
        """How a transaction is checked whose first message goes to a place: `CheckSettings` as configured. Raises
        UnknownPlace."""

    @property
    def groups(self) -> GroupCalls:
        """Groups and queues."""

    # ---- told

    def append(self, guard: int, messages: list[Message], number: int, positions: bool, idempotency_key: str | None
               ) -> None:
        """Store messages, in order, in one frame. A repeated `idempotency_key` gets the first answer and stores
        nothing. Raises UnknownPlace, MessageTooLarge, ReceiptDenied, QueueFull, KeptFull, StorageFull, Stopping,
        IdempotencyConflict."""

    def is_repeated(self, idempotency_key: str) -> bool:
        """Whether what comes under this key now would be given the first answer, and not stored."""

    def append_gathered(self, guards: list[int], stops: list[int], messages: list[Message], number: int,
                        positions: bool) -> None:
        """As `append`, of messages that were gathered of several guards: those before each of these indices have
        places that were given to one. Raises as `append`, with nothing taken of any."""

    def gather(self, enter: Callable[[], None], waiting: Callable[[], int]) -> None:
        """Call `enter` once, before the next frame is sealed: what it appends is in that frame. `waiting`: how many
        want an answer so far. Neither must raise. Raises Stopping."""

    def schedule(self, guard: int, messages: list[Message], whens: list[When], number: int,
                 idempotency_key: str | None) -> None:
        """Append each message when it falls due. Answered with (0, -1, id) of each that waits. Raises InvalidDelay,
        InvalidSchedule, TooManyScheduled and what `append` raises."""

    def recall_named(self, name: str, tenant: str, number: int) -> None:
        """All that waits under a name (`When.name`) will not be delivered; a thousand messages at once. Answered with
        (0, -1, id) of each, or with UnknownScheduled, Stopping."""

    def append_batch(self, partition_id: int, batch: bytes, number: int, divert: Divert | None, guard: int) -> None:
        """Store one record batch v2 as it is. Answered with [(partition id, base offset, first message id)]. Raises, or
        answers with, what `Kernel.append_batch` says."""

    def append_batches(self, batches: list[tuple[int, bytes]], number: int, idempotency_key: str | None) -> None:
        """Store record batches v2 as they are, (partition id, batch) each, in order, all or none of them. Answered as
        `Kernel.append_batches` says, which also says what it raises."""

    def recall(self, message_id: int, tenant: str, number: int) -> None:
        """What waits for its time will not be delivered. Raises UnknownScheduled, AlreadyDelivered, Stopping."""

    def begin(self, guard: int, halves: list[HalfMessage], group: str, tenant: str, by: str, checks: Any, number: int,
              name: str | None) -> None:
        """Hold half messages as one transaction; see `Transactions.begin`. Raises UnknownPlace besides."""

    def add(self, guard: int, transaction_id: int, halves: list[HalfMessage], tenant: str, number: int) -> None:
        """Hold more half messages of an open transaction; see `Transactions.add`. Raises UnknownPlace besides."""

    def flush(self, number: int) -> None:
        """Answer once everything that was told before is durable. Raises Stopping."""

    def subscribe(self, filter: str, tenant: str) -> None:
        """Deliver to this door a tenant's new messages whose address matches. Raises InvalidFilter."""

    def unsubscribe(self, filter: str, tenant: str) -> None:
        """Undo `subscribe`."""

    def create_topic(self, name: str, partitions: int | None, settings: TopicSettings | None, tenant: str, maker: str,
                     number: int) -> Topic:
        """Raises TopicExists, InvalidTopic, TooManyTopics, Stopping."""

    def pace_topics(self, maker: str) -> None:
        """This maker changes a topic; "": whoever has no bound. Raises TooManyTopics."""

    def change_topic(self, name: str, partitions: int | None, settings: TopicSettings | None, tenant: str, number: int
                     ) -> Topic:
        """Add partitions, replace settings. Raises UnknownTopic, InvalidTopic, Stopping."""

    def delete_topic(self, name: str, tenant: str, number: int) -> None:
        """The topic with everything in it. Raises UnknownTopic, Stopping."""

    def delete_records(self, before: dict[int, int], number: int) -> None:
        """By partition id, the offset before which readers are given nothing any more. Raises Stopping."""

    def new_producer_id(self, number: int) -> None:
        """A number that no producer had before, answered as [(producer id, 0, 0)]."""

    def note_fault(self, fault: Exception) -> None:
        """A session failed in what it was told, and the others were told all the same."""

    def note_unreadable(self, partition_id: int, offset: int, count: int) -> None:
        """A reader was not given these: a producer's batch has no sound record there."""

    # ---- asked

    def next_offset(self, partition_id: int) -> int:
        """The offset of what is appended next, behind all that is on its way to the disk."""

    def bounds_of(self, topic: Topic) -> array[int]:
        """Log start offset and high watermark of every partition of a topic, one after the other."""

    def fetch(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None],
              stored: bool, max_records: int = 0) -> None:
        """Read partitions from (partition id, offset, max_bytes of it) on; answers stand in the order of the wants.
        Producers' batches come opened and cut to these bytes, or `stored`: as they are. `max_records`, unless it is 0:
        who asks has no use for more of one partition."""

    def retained(self, filter: str, tenant: str, on_done: OnRetained, max_values: int, start: str) -> None:
        """The values that addresses matching a filter retain, in order, by pages from `start`. Raises InvalidFilter."""

    def scheduled(self, tenant: str, start: bytes, limit: int, on_done: Callable[[Page | StorageFailed], None]) -> None:
        """What waits for its time, what falls due next first, a page at a time from `start` on."""

    def show_scheduled(self, message_id: int, tenant: str, on_done: Callable[[Scheduled | None], None]) -> None:
        """One that waits for its time, or what became of it; None where nothing is known."""

    def watch(self, partition_ids: Collection[int], wake: Callable[[], None]) -> int:
        """Call `wake` once, after a flush that brings records to one of these partitions, or when it is deleted, unless
        `unwatch` is told this number before."""

    def unwatch(self, number: int) -> None:
        """Wake nobody."""

    def offset_of_largest_timestamp(self, partition_id: int, on_done: Callable[[int | None, int], None]) -> None:
        """(offset, timestamp) of the first record with the largest timestamp; (None, -1) in an empty partition."""

    def end_of_epoch(self, partition_id: int, epoch: int, on_done: Callable[[int], None]) -> None:
        """The offset behind the last record that the partition was given up to the end of an epoch; -1: none began."""

    def sizes(self, partition_ids: list[int], on_done: Callable[[list[int]], None]) -> None:
        """The bytes that each of these partitions has in the log, about."""

    def producers_of(self, partition_id: int, on_done: Callable[[list[KnownProducer]], None]) -> None:
        """The idempotent producers that a partition knows, as far as that is durable, by their ids; 10,000 at most."""


class NamedGroups(Protocol):
    """Groups and queues by their names, in plain values."""

    def settings(self, name: str, tenant: str) -> GroupSettings | None: ...
    def all(self, tenant: str) -> list[tuple[str, GroupSettings]]: ...
    def queue(self, name: str, tenant: str) -> Queue | None: ...
    def queues(self, tenant: str) -> list[Queue]: ...


class GroupCalls(NamedGroups, Protocol):  # decision 218
    """Groups and queues of a port, in plain values: definitions, messages that are taken for a time and settled by
    their receipts, members. Numbers are the port's own; a number of 0 asks for no answer. `groups.calls.Groups` says
    what each call does and raises."""

    # ---- from definitions

    def topics(self, name: str, tenant: str) -> list[Topic]: ...

    def offsets(self, name: str, topic: Topic) -> dict[int, int]: ...

    def behind(self, topics: list[Topic], start: int, count: int) -> list[tuple[int, int]] | None:
        """(topic id, messages that are not settled) of up to `count` groups from the number `start` on; None: there
        are no more."""

    def counts(self, source: Source, tenant: str) -> Counts:
        """What is ready, leased and waiting, and what has become of the rest."""

    def unsettled(self, source: Source, tenant: str) -> list[tuple[int, int]]:
        """(partition id, committed offset) of every partition in which something is not settled."""

    def look(self, name: str, tenant: str) -> GroupLook | None:
        """An assigned group as people are shown it; None where it has had no members for a while."""

    def topics_of(self, partition_ids: list[int]) -> list[tuple[Topic, list[int]]]: ...

    def bindings(self, queue: Queue) -> list[tuple[bool, str]]: ...

    def committed(self, queue: Queue, partition_id: int) -> int:
        """The first offset of a partition of a queue that is not settled; -1: the queue is gone."""

    def states(self, queue: Queue, partition_id: int, offsets: list[int]) -> list[tuple[bool, bool]]:
        """For each message of a partition of a queue whether it is settled, and whether somebody holds it."""

    # ---- told

    def open(self, name: str, topic: str, start: str | dict[int, int], tenant: str) -> None:
        """Make a leased group over a topic, where it is missing; a new name begins at `start`, or at offsets."""

    def define(self, name: str, settings: GroupSettings, tenant: str, number: int) -> None: ...
    def delete(self, name: str, tenant: str, number: int) -> None: ...
    def forget(self, name: str, topic: Topic, number: int) -> None: ...

    def rewind(self, name: str, topic: Topic, offsets: dict[int, int], number: int) -> None:
        """Go on from these offsets, by partition id; a group of either kind."""

    def declare_queue(self, name: str, settings: QueueSettings, tenant: str, number: int) -> Queue: ...

    def delete_queue(self, queue: Queue, number: int) -> None: ...

    def purge(self, queue: Queue, number: int) -> int: ...

    def bind(self, filter: str, queue: Queue, number: int) -> None: ...

    def unbind(self, filter: str, queue: Queue, number: int) -> None: ...

    def redrive(self, queue: Queue, letters: list[Record], gaps: list[tuple[int, int]], number: int
                ) -> list[KernelError | None]: ...

    def move(self, queue: Queue, leases: list[Leased], to: str, may_create: bool, maker: str, number: int
             ) -> list[KernelError | None]: ...

    # ---- messages for a time

    def take(self, source: Source, tenant: str, count: int, invisible_ms: int, taker: Origin,
             on_taken: Callable[[list[Taken], KernelError | None], None]) -> tuple[int, bool]:
        """Lease up to `count` messages for so long, 0: as the group says. Answered once there is one, or by `time_up`
        with none. Returns the number of this request, and whether there are messages that must be read first."""

    def time_up(self, request: int) -> None:
        """A request has waited long enough."""

    def give_back(self, request: int, handles: list[Handle]) -> None:
        """What a request was given is ready again."""

    def end_request(self, request: int) -> None:
        """Nobody waits for its answer any more: what is found from now on is ready again."""

    def settle(self, name: str, tenant: str, receipts: list[str], settling: Settling, number: int
               ) -> list[KernelError | None]:
        """Settle messages of a group or queue, of any topic. Answers per receipt why not; the rest is answered once
        it is durable. Raises Stopping."""

    # ---- members

    def join(self, source: Source, tenant: str, credit: int, keeps: bool, taker: Origin,
             on_leased: Callable[[list[Taken]], None], on_gone: Callable[[], None]) -> int:
        """Push messages to `on_leased`, up to `credit` until it is given more; `on_gone`: the group or queue is not
        there any more. `keeps`: they are settled by name, else they are done with once they are handed out. Returns
        the number of the member."""

    def add_credit(self, member: int, count: int) -> None: ...

    def settle_held(self, member: int, handles: list[Handle], settling: Settling) -> None:
        """Settle what a member holds; durable soon, and nobody waits for it."""

    def leave(self, member: int) -> None:
        """What it holds is ready again."""


class Ports(Protocol):
    """Opens ports: the kernel, as whoever opens a door knows it."""

    def port(self, door: DoorSide) -> KernelPort:
        """A port of a door's own."""


# ---- groups, queues and definitions: values and call-backs, and memberships that are held (decision 149)

class MembershipPort(Protocol):
    """A member's place in a leased group."""

    @property
    def credit(self) -> int:
        """How many messages it may be handed."""

    @property
    def untold(self) -> int:
        """How many it was handed of which it has not been told."""

    def add_credit(self, count: int) -> None:
        """It takes so many more messages, or fewer."""

    def retire(self) -> None:
        """It is handed nothing more, and keeps what it holds until it settles that or leaves."""

    def leave(self, delay_ms: int | None = 0) -> None:
        """What it holds is ready again after `delay_ms`; None: as the group's retry says."""


class LeasedGroupPort(Protocol):
    """A leased group, or a queue, as whoever takes from it knows it."""

    @property
    def ready(self) -> int:
        """Messages that may be handed out."""

    @property
    def entering(self) -> int:
        """Messages that are on their way in, and not durable yet."""

    def counts(self) -> Counts:
        """What is ready, leased and waiting, and what has become of the rest."""

    def join(self, member: Member, credit: int, *, keeps: bool = True, budget: Budget | None = None,
             lazily: bool = False, hold: HoldLimit | None = None, priority: int = 0, taker: Origin = NOBODY
             ) -> MembershipPort:
        """Push messages to `member`, up to `credit` until it adds more; see `groups.group.LeasedGroup.join`."""

    def take_now(self, member: Member, hold: HoldLimit | None = None, taker: Origin = NOBODY) -> MembershipPort:
        """One message for `member`, at once or when it has been read; an empty list where there is none."""

    def ack(self, handles: Sequence[Handle], owner: Owner | None = None, token: object = None, *, lazily: bool = False
            ) -> list[KernelError | None]:
        """These are done. Answers per handle why not; `owner` is told when the rest is durable. Raises Stopping."""

    def release(self, handles: Sequence[Handle], delay_ms: int | None = None, owner: Owner | None = None,
                token: object = None) -> list[KernelError | None]:
        """Give these back: ready again after `delay_ms`; None: as the group's retry says."""

    def reject(self, handles: Sequence[Handle], owner: Owner | None = None, token: object = None
               ) -> list[KernelError | None]:
        """These will not be tried again: dead letters."""

    def purge(self) -> int:
        """Settle what is ready; how many messages that was. Raises Stopping."""


class SharedPort(MembershipPort, Protocol):
    """A member's place in the group of `$share/GROUP/FILTER`, which may not be there yet."""

    @property
    def group(self) -> LeasedGroupPort | None:
        """None while its topic does not exist."""

    def wait(self, credit: int) -> bool:
        """Its topic was deleted: have a place again when there is one of that name. False behind a queue."""


class GroupsPort(NamedGroups, Protocol):
    """Groups and queues; see `groups.calls.Groups` for what each call does and raises."""

    def share(self, text: str, member: Member, credit: int, *, keeps: bool = True, tenant: str = "/",
              hold: HoldLimit | None = None, taker: Origin = NOBODY) -> SharedPort: ...

    def shared_group(self, text: str, tenant: str = "/") -> LeasedGroupPort: ...

    def address_of_leased(self, message: Leased) -> str: ...

    def delete(self, name: str, tenant: str = "/", owner: Owner | None = None, token: object = None) -> None: ...

    def declare_queue(self, name: str, settings: QueueSettings | None = None, tenant: str = "/",
                      owner: Owner | None = None, token: object = None) -> Queue: ...

    def change_queue(self, queue: Queue, settings: QueueSettings) -> Queue: ...

    def delete_queue(self, queue: Queue, owner: Owner | None = None, token: object = None) -> None: ...

    def ready(self, queue: Queue) -> int: ...

    def queue_group(self, queue: Queue) -> LeasedGroupPort: ...

    def bind(self, filter: str, queue: Queue, *, chosen: bool = False, owner: Owner | None = None,
             token: object = None) -> None: ...

    def unbind(self, filter: str, queue: Queue, *, chosen: bool = False, owner: Owner | None = None,
               token: object = None) -> None: ...

    def when_settled(self, owner: Owner, token: object) -> None: ...

    def read_leased(self, group: LeasedGroupPort, handles: list[Handle],
                    on_read: Callable[[list[Leased] | None], None]) -> None: ...

    def reject_read(self, group: LeasedGroupPort, handles: list[Handle], messages: list[Leased]) -> None: ...

    def bind_chooser(self, filter: str, chooser: Chooser, tenant: str = "/") -> None: ...

    def unbind_chooser(self, filter: str, tenant: str = "/") -> None: ...

    def on_queue_gone(self, listener: Callable[[Queue], None]) -> None: ...

    def route_dead_letters(self, route: Callable[[Queue, Leased, str], list[PlacedMessage] | None]) -> None: ...

    def require_commits(self, group: str, tenant: str = "/") -> None: ...

    def committed(self, group: str, tenant: str = "/") -> dict[int, tuple[int, bytes]]: ...


class AssignedPort(Protocol):
    """Assigned groups; see `assigned.assigned_groups.AssignedGroups` for what each call does and raises."""

    def join(self, name: str, joining: Joining, rules: GroupRules, on_done: Callable[[Joined | KernelError], None],
             tenant: str = "/") -> None: ...

    def sync(self, name: str, member_id: str, instance_id: str | None, generation: int,
             protocol: tuple[str | None, str | None], assignments: dict[str, bytes],
             on_done: Callable[[Assigned | KernelError], None], tenant: str = "/") -> None: ...

    def heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int, tenant: str = "/"
                  ) -> None: ...

    def leave(self, name: str, leaving: list[tuple[str, str | None]], tenant: str = "/"
              ) -> list[KernelError | None]: ...

    def require_member(self, name: str, member_id: str, epoch: int = -1, tenant: str = "/") -> None: ...

    def beat(self, name: str, beat: Beat, rules: ConsumerRules, may_read: Callable[[str], bool],
             on_done: Callable[[Beaten | KernelError], None], tenant: str = "/", rights: object = None) -> None: ...

    def leave_consumers(self, name: str, beat: Beat, on_done: Callable[[Beaten | KernelError], None],
                        tenant: str = "/") -> None: ...

    def topics_of(self, partition_ids: Iterable[int]) -> list[tuple[Topic, list[int]]]: ...

    def look(self, name: str, tenant: str = "/") -> GroupLook | None: ...

    def describe_consumers(self, name: str, tenant: str = "/") -> DescribedConsumers | None: ...

    def commit_offsets(self, name: str, offsets: Mapping[int, tuple[int, bytes] | None], owner: Owner | None,
                       token: object, member_id: str = "", instance_id: str | None = None, generation: int = -1,
                       tenant: str = "/") -> None: ...

    def delete_offsets(self, name: str, partition_ids: Iterable[int], owner: Owner | None, token: object,
                       tenant: str = "/") -> None: ...

    def describe(self, name: str, tenant: str = "/") -> DescribedGroup | None: ...


class SessionPort(Protocol):
    """A session in the hands of one connection. Once it is another connection's, calls do nothing.

    It begins held. Once `hold(False)` was told, what waits comes by itself: first what was in flight before (`dup`), in
    its order, then the rest, as long as fewer than `window` are unacknowledged and it is not held again.
    """

    @property
    def present(self) -> bool:
        """Whether it was there before."""

    @property
    def publisher(self) -> bytes:
        """An encoded header (`record.add_header`) that says who publishes, for a message of a client that has a
        filter with no-local; b"" where it has none."""

    @property
    def in_flight(self) -> int:
        """How many messages have a packet id."""

    def steps(self, packet_ids: Collection[int]) -> set[int]:
        """What is awaited for those of these that are in flight: 1 PUBACK, 2 PUBREC, 3 PUBCOMP."""

    def received(self) -> list[int]:
        """The packet ids that were taken in and are not released."""

    def subscriptions(self) -> list[Subscribed]:
        """As they are."""

    def subscribe(self, subscribed: Subscribed) -> bool:
        """From here on messages with QoS 1 and 2 that match wait for the session; replaces a subscription with the
        same filter. True where there was none. Messages of QoS 0, and those for filters of QoS 0, do not: a door hears
        of them as ever. Raises InvalidFilter, InvalidSelector, TooManySubscriptions, Stopping."""

    def unsubscribe(self, filter: str) -> bool:
        """What came before is handed out still. False where there was no such subscription. Raises Stopping."""

    def begin_history(self, filter: str, owed: Owed) -> None:
        """What a filter is owed of before it was subscribed, which it just was: the door reads and sends it. What
        waits since then is held back until `end_history`. Raises Stopping."""

    def histories(self) -> dict[str, Owed]:
        """What is owed still, by filter."""

    def move_history(self, filter: str, reached: dict[int, int]) -> None:
        """The client is done with what is before these offsets, by partition id. Durable soon; nobody waits for it."""

    def end_history(self, filter: str) -> None:
        """All of it has been sent: what is newer may follow."""

    def flush(self, owner: Owner, token: object) -> None:
        """Answer once everything that was told is durable. Raises Stopping."""

    def set_window(self, window: int) -> None:
        """So many may be unacknowledged from now on."""

    def hold(self, held: bool) -> None:
        """Hand out nothing more, as the client does not read; False: go on."""

    def acknowledge(self, packet_ids: Collection[int]) -> list[int]:
        """These are done with (PUBACK, PUBCOMP, or a refusal). Durable soon; nobody waits for it. Those that are not in
        flight."""

    def deny(self, packet_ids: Collection[int]) -> None:
        """These were handed out (0: without an id) and are not sent, as rights have changed: done with, and counted."""

    def receive(self, packet_ids: Collection[int], owner: Owner, token: object) -> list[int]:
        """PUBREC came for these; answered once that is durable, and then they may be released (PUBREL). Those that
        are not in flight. Raises Stopping."""

    def take_in(self, packet_id: int) -> bool:
        """A PUBLISH with QoS 2 came with this id. True: it is new, and its message is to be appended in this same
        turn, so that both are in one frame. False: it was taken before. Answer with PUBREC after `flush`. Raises
        TooManyReceived, Stopping."""

    def release(self, packet_ids: Collection[int], owner: Owner, token: object) -> list[int]:
        """PUBREL came for these; answered once that is durable, and then PUBCOMP may leave. Those that were not
        taken in. Raises Stopping."""

    def entrust(self, messages: Sequence[Entrusted], owner: Owner, token: object) -> list[int]:
        """These are in flight from here on, whatever becomes of connection and hub; there is room for them. Their
        packet ids, 0 for one whose lease has ended; they may be sent once the owner was answered. A lease is settled
        when PUBREC comes; where the client refuses it, or the session ends before, it becomes a dead letter. Raises
        Stopping."""

    def owe_retained(self, filter: str, qos: int, start: str | None) -> None:
        """Those of a filter's retained values from this address on are still to be sent; None: none. In the frame
        of what was entrusted in this turn. Raises Stopping."""

    def owed_retained(self) -> dict[str, tuple[int, str]]:
        """Which retained values are still to be sent: QoS and first address, by filter."""

    def sleep(self, expiry_ms: int) -> None:
        """The connection has ended: the session waits so long for its client. 0: it ends."""


class SessionsPort(Protocol):
    """Sessions that outlive their connection, and wills. A session belongs to a user of a tenant: another user is
    refused (SessionRefused), whatever he wants with it."""

    @property
    def keeps_transient(self) -> bool:
        """Whether messages and filters of QoS 0 are a session's, too: nothing else brings them to its client."""

    def attach(self, tenant: str, client_id: str, user: str, listener: SessionListener, *, clean: bool, expiry_ms: int,
             window: int, owner: Owner, token: object) -> SessionPort:
        """The session of a client, which is connected from now on; who had it is told that it is over. `clean`: what
        was there is gone. Answered once it is durable, and then the client may be told of it. Raises SessionRefused,
        TooManySessions, Stopping."""

    def owner_of(self, tenant: str, client_id: str) -> str | None:
        """Whose session it is; None where there is none."""

    def clear(self, tenant: str, client_id: str, user: str) -> bool:
        """End the session that is there, connected or not. False where there is none. Raises SessionRefused,
        Stopping."""

    def delete(self, tenant: str, client_id: str, owner: Owner | None = None, token: object = None) -> None:
        """End a session, whoever it belongs to; its connection is told. Raises UnknownSession, Stopping."""

    def describe(self, tenant: str, client_id: str) -> SessionDescription | None:
        """None where there is no such session."""

    def page(self, tenant: str, after: str, limit: int) -> list[SessionDescription]:
        """Those whose client ids come after this one, sorted."""

    def keep_will(self, will: Will, owner: Owner, token: object) -> None:
        """Publish this when the client's connection breaks, or the hub ends meanwhile; replaces the client's will of
        before, also one that waits for its delay. Answered once it is durable. Raises Stopping."""

    def forget_will(self, tenant: str, client_id: str) -> None:
        """The client has said goodbye, or come back in time: nothing is published."""

    def break_off(self, tenant: str, client_id: str) -> None:
        """The client's connection broke: its will is due after its delay, or with the end of its session."""

    def publish_wills(self, publish: Callable[[Will], bool]) -> None:
        """Who publishes wills when they are due: it appends the message in this same turn, or drops it where its user
        may not publish it. False: not now, as the hub takes no messages. Must not raise."""


class LookingPort(Protocol):
    """What is known of messages; values, and call-backs. See `journeys.looking.Looking`."""

    def find(self, what: str, value: bytes, tenant: str, most: int, on_done: OnFound, first_ms: int,
             last_ms: int, is_shown: IsShown) -> None: ...

    def id_at(self, partition_id: int, offset: int) -> int: ...

    def journey(self, message_id: int, tenant: str, on_done: OnJourney) -> None: ...

    def came(self, origin: bytes, tenant: str, first_ms: int, on_done: OnCame) -> None: ...

    def publishers(self, pieces: Sequence[Piece], on_done: OnAuthors) -> None: ...


class ReasonsPort(Protocol):
    """Why messages are not with a consumer. See `journeys.why.Reasons`."""

    def consumer_of(self, name: str, tenant: str) -> str: ...

    def ask(self, message_id: int, consumer: str, tenant: str, on_done: OnReason) -> None: ...


class HubPort(HubFacts, Ports, Protocol):
    """What doors share of the kernel, beside the port of each: the hub's own notices, and what is above."""

    @property
    def follows_all(self) -> bool:
        """Whether every message is followed, and has a trace context."""

    @property
    def shedding(self) -> Shedding:
        """What is left undone under overload."""

    @property
    def groups(self) -> GroupsPort:
        """Leased groups, and queues."""

    @property
    def assigned(self) -> AssignedPort:
        """Groups whose members get whole partitions."""

    @property
    def producing(self) -> ProducerTransactions:
        """Producers that have a name, and their transactions."""

    @property
    def sessions(self) -> SessionsPort:
        """What clients are owed while they are away."""

    @property
    def looking(self) -> LookingPort:
        """What is known of messages; who asks has the right to what it is about."""

    @property
    def reasons(self) -> ReasonsPort:
        """Why messages are not with a consumer."""

    def statistics(self) -> dict[str, int]:
        """Counters and gauges, by metric name without its prefix."""

    def bulk_turn(self, max_bytes: int, on_turn: Callable[[int], None]) -> None:
        """Call `on_turn` once a read in bulk may go on beside live messages, with how many bytes it takes at most."""

    def slices(self) -> Slices:
        """For work of a door that grows with its clients."""

    def topic(self, name: str, tenant: str = "/") -> Topic | None:
        """A topic by its name."""

    def topics(self, tenant: str = "/") -> list[Topic]:
        """Every topic of a tenant, sorted by name."""

    def bounds_of(self, topic: Topic) -> array[int]:
        """See `KernelPort.bounds_of`."""

    def sizes(self, partition_ids: list[int], on_done: Callable[[list[int]], None]) -> None:
        """See `KernelPort.sizes`."""

    def create_topic(self, name: str, *, partitions: int | None = None, settings: TopicSettings | None = None,
                     tenant: str = "/", owner: Owner | None = None, token: object = None, maker: str = "") -> Topic:
        """See `KernelPort.create_topic`."""

    def change_topic(self, name: str, *, partitions: int | None = None, settings: TopicSettings | None = None,
                     tenant: str = "/") -> Topic:
        """See `KernelPort.change_topic`."""

    def place(self, address: str, *, tenant: str = "/", may_create: bool = True, maker: str = "") -> Placement:
        """Where the hub's own messages go; see `KernelPort.place`."""

    def place_in(self, topic: str, key: bytes | None, *, partition: int | None = None, tenant: str = "/",
                 may_create: bool = True, maker: str = "") -> Placement:
        """As `place`, by topic and key."""

    def place_queue(self, queue: Queue, priority: int = 0, key: bytes | None = None) -> Placement:
        """Into a queue alone."""

    def place_known(self, address: str, partition_ids: tuple[int, ...], tenant: str = "/") -> Placement | None:
        """Where an address leads, and by reference into these queues; None where its topic is not there."""

    def append(self, messages: list[PlacedMessage], owner: Owner | None, token: object = None, *,
               positions: bool = False, idempotency_key: str | None = None) -> None:
        """Store the hub's own messages; see `KernelPort.append`."""

    def schedule(self, messages: list[PlacedMessage], whens: list[When], owner: Owner | None) -> None:
        """Store them when they fall due; see `KernelPort.schedule`."""

    def append_with(self, messages: list[PlacedMessage], records: list[StateRecord], owner: Owner | None,
                    token: object = None, origin: Origin = NOBODY) -> None:
        """Store messages that come from `origin`, who is not there to tell it, and state records in one frame."""

    def delete_topic(self, name: str, *, tenant: str = "/", owner: Owner | None = None, token: object = None) -> None:
        """See `KernelPort.delete_topic`."""

    def fetch_private(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None]
                      ) -> None:
        """As `KernelPort.fetch`, with what doors keep of their own messages in place."""

    def put_definition(self, space: str, name: str, value: bytes | None, tenant: str = "/",
                       owner: Owner | None = None, token: object = None) -> None:
        """Keep some bytes under a name, for ever; None forgets them. Raises Stopping."""

    def definitions(self, space: str) -> list[tuple[str, str, bytes]]:
        """(tenant, name, value) of what is kept in a space, as far as it is durable; in no order."""


class LinkPort(HubFacts, Protocol):
    """What links to other hubs ask of the kernel: the log as it is stored, and messages that are stored together with
    how far they have arrived. See `Kernel` for what each call does and raises."""

    @property
    def topics_version(self) -> int: ...

    @property
    def route_entries(self) -> tuple[RouteEntry, ...]: ...

    def topics(self, tenant: str = "/") -> list[Topic]: ...

    def topic(self, name: str, tenant: str = "/") -> Topic | None: ...

    def topic_of(self, partition_id: int) -> tuple[Topic, int] | None: ...

    def fetch_stored(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None]
                     ) -> None: ...

    def watch(self, partition_ids: Collection[int], wake: Callable[[], None]) -> Timer: ...

    def place(self, address: str, *, tenant: str = "/", may_create: bool = True, maker: str = "") -> Placement: ...

    def place_in(self, topic: str, key: bytes | None, *, partition: int | None = None, tenant: str = "/",
                 may_create: bool = True, maker: str = "") -> Placement: ...

    def append_with(self, messages: list[PlacedMessage], records: list[StateRecord], owner: Owner | None,
                    token: object = None, origin: Origin = NOBODY, encoded: Sequence[Encoded] = ()) -> None: ...

    @property
    def unfollowed(self) -> int: ...

    def link_state(self, kind: int, key: bytes) -> bytes | None: ...

    def keep_retained_clocks(self, stamp_in: ReadStamp) -> None: ...

    def has_retained_clocks(self, partition_id: int) -> bool: ...

    def retained_written(self, address: str, tenant: str) -> Written | None: ...

    def link_states(self, kind: int, prefix: bytes = b"") -> list[tuple[bytes, bytes]]: ...

    def keep_for(self, holder: Holder) -> None: ...

    def forget_kept(self, partition_id: int) -> None: ...
