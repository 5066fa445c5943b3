"""The port: all that doors may ask of the kernel and tell it, in plain values.

    from definitions   epoch, settings, congested, topic ..., place     answered at once
    asked              fetch, retained, bounds, offset_for_time ...     answered by a call-back, now or later
    told               append, schedule, subscribe, commit ...          answered once per flush, for all of a door

A port belongs to one door. What crosses it is numbers, bytes, texts, errors, and tuples and lists of them, so that
doors could be processes of their own; a test runs their suites through a port that copies every value. What a door's
sessions use of it they use by a guard (`gateways.admission.guard`), which asks for their rights first.
"""
# decision 148: one port for each door, which asks in three ways
from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple, Protocol

from gatehouse.kernel.message import Fetched, Headers, NumberedMessage, OnRetained, Place, Record, Stored, When
from gatehouse.kernel.records.validation import Divert
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.topics import Topic, TopicSettings

Message = NumberedMessage
"""One message to append, or as it is delivered: (number of its place, value, headers as `record.encode_headers` made
them, attribute bits, timestamp in ms or 0 for append time). What is delivered has any number in front."""


Heard = tuple[Place, "list[Message]", int]
"""Consecutive messages to one address that are durable now: (place, messages, offset of the first)."""



class HalfMessage(NamedTuple):
    """A message that waits for a decision, as a door hands it in."""

    message: Message
    when: When | None = None        # once decided: at this time, if that is not over
    delay_ms: int = 0               # or so long after the decision


class DoorSide(Protocol):
    """What a port tells its door, of each flush once. Both are done in steps, between which others have their turn:
    whoever takes no step for a while is behind, and publishers wait."""

    def on_answers(self, answers: list[Stored]) -> Iterator[None]:
        """What became of submissions, in their order. The token of each is the number of the submission; the answers
        are the door's to change."""

    def on_delivery(self, heard: list[Heard]) -> Iterator[None]:
        """New messages that match a filter of the door, in append order."""


class WatchPort(Protocol):
    """What `KernelPort.watch` began."""

    def cancel(self) -> None:
        """Wake nobody."""


class KernelPort(Protocol):
    """One door's. Calls raise their refusals (`kernel.errors`) at once, with nothing taken; what only the disk can say
    is told to the door by the number of the submission. A number of 0 asks for no answer.

    A guard is a number, too: places that one guard was given are unknown in the name of another.
    """

    # ---- from definitions

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

    def has_expired(self, record: Record, topic: str, tenant: str) -> bool:
        """Whether a record of a topic is worth nothing any more: sessions are not given it."""

    def topic(self, name: str, tenant: str) -> Topic | None:
        """A topic by its name."""

    def topic_by_uuid(self, uuid: bytes) -> Topic | None:
        """A topic of any tenant."""

    def topics(self, tenant: str) -> list[Topic]:
        """Every topic of a tenant, sorted by name."""

    def address_of(self, topic: str, key: bytes | None, headers: Headers) -> str:
        """The address of a stored record."""

    # ---- places

    def open_guard(self) -> int:
        """A number in whose name places are given."""

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
        """The same for a topic and key. Raises UnknownPartition, InvalidTopic, and of a missing topic what `place`
        raises."""

    def place_queue(self, guard: int, name: str, tenant: str, priority: int) -> int:
        """Into a queue alone. Raises UnknownQueue."""

    def place_routed(self, guard: int, address: str, partition_ids: tuple[int, ...], tenant: str, may_create: bool,
                     maker: str) -> int:
        """Where the address leads, and by reference into exactly these queues, besides bindings that are not
        `chosen`. Raises as `place`."""

    def max_bytes(self, guard: int, place: int) -> int:
        """The largest message that is taken there. Raises UnknownPlace."""

    def can_be_stored(self, guard: int, place: int) -> bool:
        """Whether there is something to store a message in, or it may be made. Raises UnknownPlace."""

    def checks_for(self, guard: int, place: int, group: str) -> Any:
        """How a transaction is checked whose first message goes to a place: `CheckSettings` as configured. Raises
        UnknownPlace."""

    # ---- told

    def append(self, guard: int, messages: list[Message], number: int, positions: bool, idempotency_key: str | None
               ) -> None:
        """Store messages, in order, in one frame. A repeated `idempotency_key` gets the first answer and stores
        nothing. Raises UnknownPlace, MessageTooLarge, QueueFull, KeptFull, StorageFull, Stopping,
        IdempotencyConflict."""

    def schedule(self, guard: int, messages: list[Message], whens: list[When], number: int,
                 idempotency_key: str | None) -> None:
        """Append each message when it falls due. Answered with (0, -1, id) of each that waits. Raises InvalidDelay,
        InvalidSchedule, TooManyScheduled and what `append` raises."""

    def append_batch(self, partition_id: int, batch: bytes, number: int, divert: Divert | None) -> None:
        """Store one record batch v2 as it is. Answered with [(partition id, base offset, first message id)]. Raises, or
        answers with, what `Kernel.append_batch` says."""

    def begin(self, guard: int, halves: list[HalfMessage], group: str, tenant: str, by: str, checks: Any, number: int,
              name: str | None) -> None:
        """Hold half messages as one transaction; see `Transactions.begin`. Raises UnknownPlace besides."""

    def flush(self, number: int) -> None:
        """Answer once everything that was told before is durable. Raises Stopping."""

    def subscribe(self, filter: str, tenant: str) -> None:
        """Deliver to this door a tenant's new messages whose address matches. Raises InvalidFilter."""

    def unsubscribe(self, filter: str, tenant: str) -> None:
        """Undo `subscribe`."""

    def create_topic(self, name: str, partitions: int | None, settings: TopicSettings | None, tenant: str, maker: str,
                     number: int) -> Topic:
        """Raises TopicExists, InvalidTopic, TooManyTopics, Stopping."""

    def new_producer_id(self, number: int) -> None:
        """A number that no producer had before, answered as [(producer id, 0, 0)]."""

    def note_fault(self, fault: Exception) -> None:
        """A session failed in what it was told, and the others were told all the same."""

    def note_unreadable(self, partition_id: int, offset: int, count: int) -> None:
        """A reader was not given these: a producer's batch has no sound record there."""

    def on_relief(self, callback: Callable[[], None]) -> None:
        """Call once, when no longer congested."""

    # ---- asked

    def bounds(self, partition_id: int) -> tuple[int, int]:
        """(log start offset, high watermark)."""

    def bounds_of(self, topic: Topic) -> array[int]:
        """Log start offset and high watermark of every partition of a topic, one after the other."""

    def fetch(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None],
              stored: bool) -> None:
        """Read partitions from (partition id, offset, max_bytes of it) on; answers stand in the order of the wants.
        Producers' batches come opened and cut to these bytes, or `stored`: as they are."""

    def retained(self, filter: str, tenant: str, on_done: OnRetained, max_values: int, start: str) -> None:
        """The values that addresses matching a filter retain, in order, a page at a time from `start` on. Raises
        InvalidFilter."""

    def watch(self, partition_ids: Collection[int], wake: Callable[[], None]) -> WatchPort:
        """Call `wake` once, after a flush that brings records to one of these partitions, unless it is cancelled."""

    def offset_for_time(self, partition_id: int, timestamp_ms: int, on_done: Callable[[int | None, int], None]) -> None:
        """(offset, timestamp) of the first record with at least this timestamp; (None, -1) where there is none."""

    def offset_of_largest_timestamp(self, partition_id: int, on_done: Callable[[int | None, int], None]) -> None:
        """(offset, timestamp) of the first record with the largest timestamp; (None, -1) in an empty partition."""


class Ports(Protocol):
    """Opens ports: the kernel, as whoever opens a door knows it."""

    def port(self, door: DoorSide) -> KernelPort:
        """A port of a door's own."""
