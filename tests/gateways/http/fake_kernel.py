"""A kernel in memory with the facade that the HTTP door uses: routes, topics and records are the real ones, the log
is a list.

A flush comes at the end of the loop's turn, or when the test says so (`hold`). `kernel.congested` and faults are set
by hand.
"""
from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Collection
from typing import Any

from gatehouse.kernel.addresses.address import is_topic_name
from gatehouse.kernel.addresses.routes import Routed, RouteEntry, Routes
from gatehouse.kernel.api import DoorSide
from gatehouse.kernel.delivery.deliveries import Watch, Watches
from gatehouse.kernel.errors import InvalidTopic, MessageTooLarge, OffsetOutOfRange, Stopping, UnknownTopic
from gatehouse.kernel.message import (
    Fetched,
    FirstLevel,
    Message,
    Owner,
    Piece,
    Placement,
    Stored,
    tell,
)
from gatehouse.kernel.port import HalfHolder, Port
from gatehouse.kernel.records.batch import encode_headers, encode_key, varint
from gatehouse.kernel.shedding import Shedding
from gatehouse.kernel.state.topics import Topic, Topics, TopicSettings
from gatehouse.kernel.world import FakeLoop
from gatehouse.kernel.write.committer import Slices
from tests.gateways.port_over import port_over

NOW_MS = 1_700_000_000_000


class FakeKernel:
    """See `gateways.http.door` for what it is asked."""

    def __init__(self, *, default_partitions: int = 2, max_message_bytes: int = 1_000_000) -> None:
        self.epoch = 1
        self.hub = bytes(range(16))
        self.delivered = True
        self.records_journeys = False
        self.defined: dict[tuple[str, str, str], bytes] = {}
        self.congested = False
        self.shedding = Shedding()
        self.stopping = False
        self.hold = False                          # keep what is appended until `flush`
        self.fault: Exception | None = None        # what every append ends in
        self.auto_create = True
        self.appended: list[Message] = []
        self.partitions: dict[int, list[Piece]] = {}
        self.starts: dict[int, int] = {}           # log start offsets that are not 0
        self._partitions_default = default_partitions
        self._max_message_bytes = max_message_bytes
        self._routes = Routes()
        self._topics = Topics()
        self._watches = Watches()
        self._relief: list[Callable[[], None]] = []
        self._gathering: list[Callable[[], None]] = []
        self._pending: list[tuple[list[Message], Owner | None, object, str | None]] = []
        self._answers: dict[str, list[tuple[int, int, int]]] = {}
        self._next_id = (1 << 60) + 1

    def require(self, messages: object, judge: object) -> None:
        """Nobody asks for receipts here, so all may."""

    def port(self, door: DoorSide, transactions: HalfHolder | None = None) -> Port:
        """The real port of a door, over this kernel."""
        return port_over(self, door, transactions, self._watches)

    def slices(self) -> Slices:
        """Everything in one turn: no time passes, so that no slice comes to its end."""
        return Slices(FakeLoop(), self._on_error)

    @staticmethod
    def _on_error(error: Exception) -> None:
        raise error

    # --- placing

    def place(self, address: str, *, tenant: str = "/", may_create: bool = True, maker: str = "") -> Placement:
        return self._placed(address, self._routes.route(address), tenant, may_create)

    def place_in(self, topic: str, key: bytes | None, *, partition: int | None = None, tenant: str = "/",
                 may_create: bool = True, maker: str = "") -> Placement:
        if not is_topic_name(topic):
            raise InvalidTopic(f"{topic!r} is no topic name")
        address = self._routes.address_of(topic, key)
        return self._placed(address, Routed(topic, key, key or address.encode(), False, None), tenant, may_create)

    def refresh(self, placement: Placement) -> None:
        """Nobody changes topics under a place here."""

    def address_of(self, topic: str, key: bytes | None, headers: Any) -> str:
        return self._routes.address_of(topic, key, headers)

    def _placed(self, address: str, routed: Routed, tenant: str, may_create: bool) -> Placement:
        topic = self._topics.get(routed.topic, tenant)
        if topic is None:
            if not (may_create and self.auto_create):
                raise UnknownTopic(f"there is no topic {routed.topic!r}")
            topic = self._topics.create(routed.topic, tenant, self._partitions_default, TopicSettings(), NOW_MS)
        partition = routed.partition(topic.partitions)
        limit = topic.settings.max_message_bytes or self._max_message_bytes
        return Placement(tenant, address, topic.name, topic.id, partition, topic.partition_id(partition), routed.key,
                         encode_key(routed.key), b"", limit, FirstLevel())

    # --- appending

    def on_relief(self, callback: Callable[[], None]) -> None:
        self._relief.append(callback)

    def relieve(self) -> None:
        self.congested = False
        callbacks, self._relief = self._relief, []
        for callback in callbacks:
            callback()

    def append(self, messages: list[Message], owner: Owner | None, token: object = None, *, positions: bool = False,
               idempotency_key: str | None = None, judge: Any = None) -> None:
        if self.stopping:
            raise Stopping("the hub is stopping")
        for placement, value, headers, _, _ in messages:
            if len(value or b"") + len(headers) > placement.max_message_bytes:
                raise MessageTooLarge(f"a message of {placement.topic} has at most {placement.max_message_bytes} bytes")
        self._flush_soon()
        self._pending.append((messages, owner, token, idempotency_key))

    def _flush_soon(self) -> None:
        if not self._pending and not self._gathering and not self.hold:
            asyncio.get_running_loop().call_soon(self.flush)

    def gather(self, enter: Callable[[], None], waiting: Callable[[], int]) -> None:
        """It is called before anything is stored."""
        if self.stopping:
            raise Stopping("the hub is stopping")
        self._flush_soon()
        self._gathering.append(enter)

    def is_repeated(self, idempotency_key: str) -> bool:
        return idempotency_key in self._answers or any(idempotency_key == key for *_, key in self._pending)

    def flush(self) -> None:
        for enter in self._gathering:
            enter()
        self._gathering = []
        pending, self._pending = self._pending, []
        answers: dict[Owner, list[Stored]] = {}
        touched: set[int] = set()
        for messages, owner, token, key in pending:
            positions = self._answers.get(key or "", [])
            if self.fault is None and not positions:
                positions = [self._store(message, touched) for message in messages]
                if key:
                    self._answers[key] = positions
            if owner is not None:
                stored = Stored(token, self.fault, NOW_MS, [] if self.fault is not None else positions)
                answers.setdefault(owner, []).append(stored)
        for owner, stored_list in answers.items():
            tell(owner, stored_list)
        self._watches.follow(touched)

    def _store(self, message: Message, touched: set[int]) -> tuple[int, int, int]:
        placement, value, headers, attributes, timestamp_ms = message
        self.appended.append(message)
        timestamp_ms = timestamp_ms or NOW_MS
        body = (bytes((attributes,)) + varint(timestamp_ms - NOW_MS) + varint(0) + placement.key_part
                + (b"\x01" if value is None else varint(len(value)) + value) + headers)
        offset = self.bounds(placement.partition_id)[1]
        piece = Piece(offset, 1, False, varint(len(body)) + body, NOW_MS, timestamp_ms, self._next_id)
        self._next_id += 1
        self.partitions.setdefault(placement.partition_id, []).append(piece)
        touched.add(placement.partition_id)
        return placement.partition_id, offset, piece.first_id

    def publish(self, address: str, value: bytes, headers: list[tuple[bytes, bytes | None]] | None = None,
                attributes: int = 0, timestamp_ms: int = 0) -> tuple[int, int, int]:
        """Another door's message: stored at once."""
        touched: set[int] = set()
        message = (self.place(address), value, encode_headers(headers or []), attributes, timestamp_ms)
        position = self._store(message, touched)
        self._watches.follow(touched)
        return position

    def trim(self, partition_id: int, offset: int) -> None:
        """Retention: the partition begins there now."""
        self.partitions[partition_id] = [piece for piece in self.partitions[partition_id]
                                         if piece.first_offset >= offset]
        self.starts[partition_id] = offset

    # --- reading

    def bounds(self, partition_id: int) -> tuple[int, int]:
        pieces = self.partitions.get(partition_id, [])
        first = self.starts.get(partition_id, 0)
        return first, pieces[-1].first_offset + pieces[-1].count if pieces else first

    def bounds_of(self, topic: Topic) -> array[int]:
        return array("q", [bound for partition_id in topic.partition_ids() for bound in self.bounds(partition_id)])

    @property
    def route_entries(self) -> tuple[RouteEntry, ...]:
        return self._routes.entries

    def bulk_turn(self, max_bytes: int, on_turn: Callable[[int], None]) -> None:
        on_turn(max_bytes)

    def fetch(self, wants: list[tuple[int, int, int]], max_bytes: int,
              on_done: Callable[[list[Fetched]], None], *, stored: bool = False, max_records: int = 0) -> None:
        done = []
        for partition_id, offset, partition_bytes in wants:
            first, end = self.bounds(partition_id)
            error = None if first <= offset <= end else OffsetOutOfRange(f"the partition holds {first} to {end}")
            pieces: list[Piece] = []
            records = 0
            for piece in self.partitions.get(partition_id, []):
                if piece.first_offset + piece.count > offset and error is None and (not pieces or partition_bytes > 0) \
                        and not 0 < max_records <= records:
                    pieces.append(piece)
                    partition_bytes -= len(piece.data)
                    records += piece.count
            done.append(Fetched(partition_id, error, first, end, pieces))
        asyncio.get_running_loop().call_soon(on_done, done)

    def note_unreadable(self, partition_id: int, offset: int, count: int) -> None:
        """Nobody counts here."""

    def watch(self, partition_ids: Collection[int], wake: Callable[[], None]) -> Watch:
        return self._watches.add(partition_ids, wake)

    def subscribe(self, filter: str, subscriber: object, *, tenant: str = "/") -> None:
        """Nobody is told of anything: what a filter's readers are given is tried with real kernels."""

    def unsubscribe(self, filter: str, subscriber: object, *, tenant: str = "/") -> None:
        """The same."""

    def offset_for_time(self, partition_id: int, timestamp_ms: int, on_done: Callable[[int | None, int], None]) -> None:
        for piece in self.partitions.get(partition_id, []):
            if piece.max_timestamp_ms >= timestamp_ms:
                on_done(piece.first_offset, piece.max_timestamp_ms)
                return
        on_done(None, -1)

    # --- topics

    def topic(self, name: str, tenant: str = "/") -> Topic | None:
        return self._topics.get(name, tenant)

    def topic_by_uuid(self, uuid: bytes) -> Topic | None:
        return self._topics.by_uuid(uuid)

    def topics(self, tenant: str = "/") -> list[Topic]:
        return self._topics.of(tenant)

    def definitions(self, space: str) -> list[tuple[str, str, bytes]]:
        return [(tenant, name, value) for (of, tenant, name), value in self.defined.items() if of == space]

    def put_definition(self, space: str, name: str, value: bytes | None, tenant: str = "/",
                       owner: Owner | None = None, token: object = None) -> None:
        if value is None:
            self.defined.pop((space, tenant, name), None)
        else:
            self.defined[space, tenant, name] = value
        self.append([], owner, token)

    @property
    def topics_version(self) -> int:
        return self._topics.version

    def topics_for(self, filter: str, tenant: str = "/") -> list[Topic]:
        return self._topics.of(tenant)

    def create_topic(self, name: str, *, partitions: int | None = None, settings: TopicSettings | None = None,
                     tenant: str = "/", owner: Owner | None = None, token: object = None, maker: str = "") -> Topic:
        if not is_topic_name(name):
            raise InvalidTopic(f"{name!r} is no topic name")
        topic = self._topics.create(name, tenant, partitions or self._partitions_default, settings or TopicSettings(),
                                    NOW_MS)
        self.append([], owner, token)
        return topic

    def change_topic(self, name: str, *, partitions: int | None = None, settings: TopicSettings | None = None,
                     tenant: str = "/", owner: Owner | None = None, token: object = None) -> Topic:
        topic = self._topics.change(self._topics.require(name, tenant), partitions, settings)
        self.append([], owner, token)
        return topic

    def delete_topic(self, name: str, *, tenant: str = "/", owner: Owner | None = None, token: object = None) -> None:
        topic = self._topics.require(name, tenant)
        for partition_id in topic.partition_ids():
            self.partitions.pop(partition_id, None)
        self._topics.delete(topic)
        self.append([], owner, token)


