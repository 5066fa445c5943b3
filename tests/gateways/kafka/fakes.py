"""What a Kafka session is given in tests beside `gateways.kit`: a kernel in memory whose topics have several
partitions."""
from __future__ import annotations

import struct
import uuid
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, cast

from gatehouse.gateways.contract import Services
from gatehouse.gateways.kafka.config import KafkaConfig
from gatehouse.gateways.kafka.session import KafkaSession
from gatehouse.gateways.kit import FakeLink, RecordingAdmission
from gatehouse.kernel.assigned.assigned_groups import AssignedGroups
from gatehouse.kernel.delivery.deliveries import Watch, Watches
from gatehouse.kernel.errors import (
    CreateDenied,
    GroupIsLeased,
    MessageTooLarge,
    OffsetOutOfRange,
    TopicExists,
    UnknownGroup,
)
from gatehouse.kernel.groups.definitions import LiveGroups
from gatehouse.kernel.groups.group_settings import ASSIGNED, GroupSettings, check_name, named_key
from gatehouse.kernel.halves.producer_transactions import KnownTransaction
from gatehouse.kernel.ids import Identity
from gatehouse.kernel.message import Fetched, FirstLevel, KnownProducer, Owner, Piece, Placement, StateRecord, Stored
from gatehouse.kernel.port import Port
from gatehouse.kernel.records.batch import check_batch, records_of
from gatehouse.kernel.records.validation import Divert, Validated
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.shedding import Shedding
from gatehouse.kernel.state.state import Kind, StateTable, decode_offset, decode_offset_key, offset_record
from gatehouse.kernel.state.store import MemoryStore
from gatehouse.kernel.state.topics import Topic, TopicSettings
from gatehouse.kernel.world import FakeLoop
from tests.gateways.port_over import port_over
from tests.kernel.records.placing import placed

EPOCH = 3
NOW_MS = 1_700_000_000_000


def _raise(error: Exception) -> None:
    raise error


class Link(FakeLink):
    """A link whose answers are cut into frames; `parts` are the buffers as they were written."""

    unsent_bytes = 0

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[bytes] = []

    def write_many(self, parts: list[bytes], /) -> None:
        self.parts += parts
        super().write_many(parts)

    def frames(self) -> list[bytes]:
        """What was written since the last call, as frames without their sizes."""
        written = self.take()
        found, at = [], 0
        while at < len(written):
            size, = struct.unpack_from(">i", written, at)
            found.append(written[at + 4:at + 4 + size])
            at += 4 + size
        assert at == len(written)
        return found


class FakeKernel:
    """Stores at `flush`, fails it when told to. `late` holds reads back until `read`."""

    def __init__(self) -> None:
        self.epoch = EPOCH
        self.records_journeys = False
        self.settings = KernelSettings()
        self.congested = False
        self.shedding = Shedding()
        self.by_name: dict[str, Topic] = {}
        self.partitions: dict[int, list[Piece]] = {}
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}           # of partitions that hold nothing up to there
        self.pending: list[tuple[Callable[[], list[tuple[int, int, int]]], Owner | None, object]] = []
        self.waits = Watches()
        self.late = False
        self.reads: list[Callable[[], None]] = []
        self.next_producer_id = 1000
        self.max_message_bytes = 1 << 20
        self.refusal: Exception | None = None
        self.fetches = 0
        self.offsets: dict[str, dict[int, tuple[int, bytes]]] = {}
        self.leased: set[str] = set()

        self.defined: dict[str, GroupSettings] = {}
        self.loop = FakeLoop(NOW_MS)
        self.live = LiveGroups()
        self.groups = FakeGroups(self)
        self.group_definitions = FakeDefinitions(self)
        definitions: Any = self.group_definitions
        self.kept: dict[tuple[str, str, str], bytes] = {}
        identity = Identity(bytes(16), bytes(32), 0)
        identity.begin(hub=bytes(16), secret=bytes(32), shard=0, epoch=EPOCH, first_id=0)
        self.assigned = AssignedGroups(
            loop=self.loop, state=StateTable(MemoryStore()), topics=cast(Any, FakeTopics(self)),
            definitions=definitions, live=self.live, put_state=self.put_state,
            has_offsets=lambda tenant, name: bool(self.offsets.get(name)), identity=identity, on_error=_raise)
        self.assigned.open()
        self.producing = FakeProducing(self)

    # ---- topics

    def topic(self, name: str, tenant: str = "/") -> Topic | None:
        return self.by_name.get(name)

    def topic_by_uuid(self, topic_id: bytes) -> Topic | None:
        return next((topic for topic in self.by_name.values() if topic.uuid == topic_id), None)

    def topics(self, tenant: str = "/") -> list[Topic]:
        return list(self.by_name.values())

    def create_topic(self, name: str, *, partitions: int | None = None, settings: TopicSettings | None = None,
                     tenant: str = "/", owner: Owner | None = None, token: object = None, maker: str = "") -> Topic:
        if name in self.by_name:
            raise TopicExists(f"topic {name!r} exists already")
        number = len(self.by_name) + 1
        topic = Topic(number, uuid.uuid5(uuid.NAMESPACE_OID, name).bytes, tenant, name,
                      ((number * 1_000_000, partitions or 4),), settings or TopicSettings(), NOW_MS)
        self.by_name[name] = topic
        self.pending.append((list, owner, token))
        return topic

    def pace_topics(self, maker: str) -> None:
        """Everybody may."""

    def change_topic(self, name: str, *, partitions: int | None = None, settings: TopicSettings | None = None,
                     tenant: str = "/", owner: Owner | None = None, token: object = None) -> Topic:
        topic = self.by_name[name]
        more = (partitions or topic.partitions) - topic.partitions
        ranges = (*topic.ranges, (sum(topic.ranges[-1]) + 1000, more)) if more else topic.ranges
        self.by_name[name] = changed = replace(topic, ranges=ranges, settings=settings or topic.settings)
        self.pending.append((list, owner, token))
        return changed

    def delete_topic(self, name: str, *, tenant: str = "/", owner: Owner | None = None, token: object = None) -> None:
        del self.by_name[name]
        self.pending.append((list, owner, token))

    def delete_records(self, before: dict[int, int], owner: Owner | None = None, token: object = None) -> None:
        def store() -> list[tuple[int, int, int]]:
            self.starts.update(before)
            return []
        self.pending.append((store, owner, token))

    def put_definition(self, space: str, name: str, value: bytes | None, tenant: str = "/",
                       owner: Owner | None = None, token: object = None) -> None:
        self.kept.pop((space, tenant, name), None)
        if value is not None:
            self.kept[space, tenant, name] = value
        if owner is not None:
            self.pending.append((list, owner, token))

    def definitions(self, space: str) -> list[tuple[str, str, bytes]]:
        return [(tenant, name, value) for (of, tenant, name), value in self.kept.items() if of == space]

    def address_of(self, topic: str, key: bytes | None, headers: object) -> str:
        return topic

    def place_in(self, topic: str, key: bytes | None, *, partition: int | None = None, tenant: str = "/",
                 may_create: bool = True, maker: str = "") -> Placement:
        found = self.by_name.get(topic)
        if found is None:
            if not may_create:
                raise CreateDenied(f"there is no topic {topic!r}")
            found = self.create_topic(topic)
        return Placement(tenant, topic, topic, found.id, 0, found.partition_id(0), key, b"\x01", b"", 0, FirstLevel())

    def port(self, door: Any, transactions: Any = None) -> Port:
        return port_over(self, door, transactions, self.waits)

    # ---- append

    def append_batch(self, partition_id: int, batch: bytes, owner: Owner | None, token: object = None,
                     divert: Divert | None = None, judge: object = None) -> None:
        if self.refusal is not None:
            raise self.refusal
        if len(batch) > self.max_message_bytes:
            raise MessageTooLarge(f"{len(batch)} bytes")
        header = check_batch(batch)
        if divert is not None:
            records = records_of(Piece(0, header.record_count, True, batch, 0, 0, 0))
            if divert(Validated(batch, header, records, len(batch), [], [])):
                return

        def store() -> list[tuple[int, int, int]]:
            pieces = self.partitions.setdefault(partition_id, [])
            base = self.bounds(partition_id)[1]
            data = placed(batch, base, EPOCH)
            pieces.append(Piece(base, header.record_count, True, data, NOW_MS, header.max_ms, base))
            return [(partition_id, base, base)]

        self.pending.append((store, owner, token))

    def new_producer_id(self, owner: Owner, token: object = None) -> None:
        self.next_producer_id += 1
        given = self.next_producer_id
        self.pending.append((lambda: [(given, 0, 0)], owner, token))

    def add(self, partition_id: int, piece: Piece) -> None:
        """A piece as another door's burst leaves it."""
        self.partitions.setdefault(partition_id, []).append(piece)
        self.wake({partition_id})

    def flush(self, error: Exception | None = None) -> None:
        pending, self.pending = self.pending, []
        answers: dict[int, tuple[Owner, list[Stored]]] = {}
        touched: set[int] = set()
        for store, owner, token in pending:
            positions = [] if error else store()
            touched.update(position[0] for position in positions)
            if owner is not None:
                answers.setdefault(id(owner), (owner, []))[1].append(Stored(token, error, NOW_MS, positions))
        for owner, stored in answers.values():
            for _ in owner.on_stored(stored) or ():
                pass
        self.wake(touched)

    def pass_time(self, by_ms: int) -> None:
        """Groups do what falls due."""
        self.loop.advance(by_ms)
        while self.loop.step():
            pass

    # ---- read

    def bounds(self, partition_id: int) -> tuple[int, int]:
        pieces = self.partitions.get(partition_id)
        end = pieces[-1].first_offset + pieces[-1].count if pieces else self.ends.get(partition_id, 0)
        return self.starts.get(partition_id, 0), end

    def bounds_of(self, topic: Topic) -> array[int]:
        return array("q", [bound for partition_id in topic.partition_ids() for bound in self.bounds(partition_id)])

    def fetch(self, wants: list[tuple[int, int, int]], max_bytes: int,
              on_done: Callable[[list[Fetched]], None], *, stored: bool = False,
              max_records: int = 0) -> None:
        self.fetches += 1
        found, left = [], max_bytes
        for partition_id, offset, most in wants:
            start, high = self.bounds(partition_id)
            fetched = Fetched(partition_id, None, start, high, [])
            found.append(fetched)
            if not start <= offset <= high:
                fetched.error = OffsetOutOfRange(str(offset))
                continue
            pieces = self.partitions.get(partition_id, [])
            fetched.next_offset = high if partition_id in self.ends else -1
            room = most
            for piece in pieces[max(0, bisect_right(pieces, offset, key=lambda one: one.first_offset) - 1):]:
                if fetched.pieces and len(piece.data) > room or left <= 0:
                    break
                fetched.pieces.append(piece)
                room -= len(piece.data)
                left -= len(piece.data)
        if self.late:
            self.reads.append(lambda: on_done(found))
        else:
            on_done(found)

    def read(self) -> None:
        reads, self.reads = self.reads, []
        for read in reads:
            read()

    @property
    def watches(self) -> list[Watch]:
        """Those that have not woken yet."""
        return list(self.waits.waiting)

    def watch(self, partition_ids: Collection[int], wake: Callable[[], None]) -> Watch:
        return self.waits.add(partition_ids, wake)

    def wake(self, partition_ids: set[int]) -> None:
        self.waits.follow(partition_ids)

    def offset_for_time(self, partition_id: int, timestamp_ms: int, on_done: Callable[[int | None, int], None]) -> None:
        records = [record for piece in self.partitions.get(partition_id, []) for record in records_of(piece)]
        found = next(((record[0], record[1]) for record in records if record[1] >= timestamp_ms), (None, -1))
        if self.late:
            self.reads.append(lambda: on_done(*found))
        else:
            on_done(*found)


    def offset_of_largest_timestamp(self, partition_id: int, on_done: Callable[[int | None, int], None]) -> None:
        records = [record for piece in self.partitions.get(partition_id, []) for record in records_of(piece)]
        latest = max(records, key=lambda record: record[1], default=None)
        on_done(*((None, -1) if latest is None else (latest[0], latest[1])))

    def end_of_epoch(self, partition_id: int, epoch: int, on_done: Callable[[int], None]) -> None:
        on_done(self.bounds(partition_id)[1] if epoch <= EPOCH else -1)

    def sizes(self, partition_ids: list[int], on_done: Callable[[list[int]], None]) -> None:
        on_done([sum(len(piece.data) for piece in self.partitions.get(partition_id, []))
                 for partition_id in partition_ids])

    def producers_of(self, partition_id: int, on_done: Callable[[list[KnownProducer]], None]) -> None:
        """Those of what is stored, in the order of their first batches."""
        found: dict[int, KnownProducer] = {}
        for piece in self.partitions.get(partition_id, []):
            header = check_batch(piece.data)
            if header.producer_id >= 0:
                found[header.producer_id] = KnownProducer(
                    header.producer_id, header.producer_epoch, header.base_sequence + header.record_count - 1, NOW_MS)
        on_done(list(found.values()))

    def wall_of(self, hub_ms: int) -> int:
        return hub_ms

    # ---- groups

    def put_state(self, records: list[StateRecord], owner: Owner | None, token: object) -> None:
        def store() -> list[tuple[int, int, int]]:
            for kind, key, value, _ in records:
                if kind == Kind.OFFSET:
                    partition_id, group = decode_offset_key(key)
                    if value is None:
                        self.offsets.get(group, {}).pop(partition_id, None)
                    else:
                        self.offsets.setdefault(group, {})[partition_id] = decode_offset(value)
            return []

        self.pending.append((store, owner, token))


class FakeGroups:
    """Leased groups are those in `kernel.leased`, assigned ones those in `kernel.defined` and with offsets."""

    def __init__(self, kernel: FakeKernel) -> None:
        self.kernel = kernel

    def committed(self, group: str, tenant: str = "/") -> dict[int, tuple[int, bytes]]:
        return self.kernel.offsets.get(group, {})

    def require_commits(self, group: str, tenant: str = "/") -> None:
        if group in self.kernel.leased:
            raise GroupIsLeased(group)
        check_name(group, "group")

    def settings(self, name: str, tenant: str = "/") -> GroupSettings | None:
        offsets = self.kernel.offsets.get(name)
        return self.kernel.group_definitions.get(tenant, name) or (GroupSettings(kind=ASSIGNED) if offsets else None)

    def all(self, tenant: str = "/") -> list[tuple[str, GroupSettings]]:
        kernel = self.kernel
        return [(name, settings) for name in sorted({*kernel.leased, *kernel.defined, *kernel.offsets})
                if (settings := self.settings(name)) is not None]

    def delete(self, name: str, tenant: str = "/", owner: Owner | None = None, token: object = None) -> None:
        if self.settings(name) is None:
            raise UnknownGroup(name)
        self.kernel.live.require_no_members(tenant, name)
        self.kernel.group_definitions.put(tenant, name, None)
        self.kernel.put_state([offset_record(name, partition_id, None)
                               for partition_id in self.kernel.offsets.get(name, {})], owner, token)


class FakeProducing:
    """Producers with a name; what they ask for is noted, and done at `flush`."""

    def __init__(self, kernel: FakeKernel) -> None:
        self.kernel = kernel
        self.asked: list[tuple[Any, ...]] = []
        self.refusal: Exception | None = None
        self.transactions: list[KnownTransaction] = []
        self.moves: set[int] = set()

    def _note(self, owner: Owner | None, token: object, *asked: Any, answer: tuple[int, int, int] | None = None
              ) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append(asked)
        self.kernel.pending.append((lambda: [] if answer is None else [answer], owner, token))

    def identify(self, tenant: str, name: str, timeout_ms: int, producer_id: int, epoch: int, owner: Owner,
                 token: object) -> None:
        self._note(owner, token, "identify", name, timeout_ms, producer_id, epoch, answer=(7, 2, 0))

    def begin(self, tenant: str, name: str, producer_id: int, epoch: int, partition_ids: list[int], group: str | None,
              owner: Owner, token: object) -> None:
        self._note(owner, token, "begin", name, producer_id, epoch, partition_ids, group)

    def hold(self, tenant: str, name: str, partition_id: int, validated: Validated, owner: Owner, token: object
             ) -> None:
        self._note(owner, token, "hold", name, partition_id, validated.header.record_count,
                   answer=(partition_id, -1, 0))

    def add_offsets(self, tenant: str, name: str, producer_id: int, epoch: int, group: str,
                    offsets: dict[int, tuple[int, bytes]], owner: Owner, token: object) -> None:
        self._note(owner, token, "offsets", name, producer_id, epoch, group, offsets)

    def end(self, tenant: str, name: str, producer_id: int, epoch: int, commits: bool, origin: Any, owner: Owner,
            token: object) -> None:
        self._note(owner, token, "end", name, producer_id, epoch, commits)

    def moving(self, group: str, tenant: str) -> set[int]:
        return self.moves

    def known(self, tenant: str) -> list[KnownTransaction]:
        return self.transactions

    def find(self, tenant: str, name: str) -> KnownTransaction | None:
        return next((transaction for transaction in self.transactions if transaction.name == name), None)


class FakeTopics:
    """The topics of the kernel, as consumer groups look at them."""

    def __init__(self, kernel: FakeKernel) -> None:
        self.kernel = kernel

    @property
    def version(self) -> int:
        return sum([topic.partitions + 1 for topic in self.kernel.by_name.values()])

    def get(self, name: str, tenant: str) -> Topic | None:
        return self.kernel.by_name.get(name)

    def of(self, tenant: str) -> list[Topic]:
        return list(self.kernel.by_name.values())

    def of_partition(self, partition_id: int) -> tuple[Topic, int] | None:
        for topic in self.kernel.by_name.values():
            if partition_id in topic.partition_ids():
                return topic, partition_id - topic.ranges[0][0]
        return None


class FakeDefinitions:
    """Groups by name, as `kernel.leased` and `kernel.defined` say."""

    def __init__(self, kernel: FakeKernel) -> None:
        self.kernel = kernel

    def get(self, tenant: str, name: str) -> GroupSettings | None:
        return GroupSettings() if name in self.kernel.leased else self.kernel.defined.get(name)

    def put(self, tenant: str, name: str, settings: GroupSettings | None) -> StateRecord:
        self.kernel.defined.pop(name, None)
        if settings is not None:
            self.kernel.defined[name] = settings
        return StateRecord(Kind.GROUP, named_key(tenant, name), None)


class Peer:
    """A session with its link and kernel, and a clock that stands until it is moved."""

    def __init__(self, kernel: FakeKernel | None = None, *, allow_anonymous: bool = True, quotas: Any = None,
                 decision: Any = None, admission: Any = RecordingAdmission, **settings: Any) -> None:
        self.kernel = kernel or FakeKernel()
        self.link = Link()
        self.now_ms = NOW_MS
        kernel_as_any: Any = self.kernel
        self.services = Services(hub_name="hub", kernel=kernel_as_any, now_ms=lambda: self.now_ms, admission=admission(
            kernel_as_any, lambda: self.now_ms, allow_anonymous=allow_anonymous, quotas=quotas, decision=decision))
        self.session = KafkaSession(self.link, self.services, KafkaConfig(**settings))

    def send(self, data: bytes) -> list[bytes]:
        """Feed bytes; returns the frames that were answered."""
        self.session.handle_data(data)
        return self.link.frames()

    def wait(self, delay_ms: int) -> list[bytes]:
        """Let time pass; returns the frames that were answered."""
        self.now_ms += delay_ms
        self.kernel.pass_time(delay_ms)
        if self.link.wake_ms and self.link.wake_ms <= self.now_ms:
            self.link.wake_ms = 0
            self.session.handle_timer(self.now_ms)
        return self.link.frames()
