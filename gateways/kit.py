"""For tests of doors, ours and plugin authors': a link without a socket and a kernel without a disk.

    hub = FakeHub()                                 # kernel, admission, a clock that stands still
    session, link = hub.open(GATEWAY, GATEWAY.config())
    session.handle_data(b"...")                     # cut anywhere
    hub.kernel.flush()                              # everything appended becomes durable: on_stored, on_delivery
    assert link.take() == b"..."
    hub.advance(ms)                                 # the session's timers run

The fake kernel keeps the facade's promises (completions once per flush and in order, deliveries in append order,
errors at the same places) and none of its durability; every topic has one partition. Only what doors have needed is
here.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.audit import By
from gatehouse.gateways.admission.decision import Decide
from gatehouse.gateways.admission.quota import Quota
from gatehouse.gateways.connections.settings import Framing
from gatehouse.gateways.contract import GatewaySpec, Listen, Services, Session
from gatehouse.kernel.addresses.address import UNROUTED, check_address, join_address
from gatehouse.kernel.addresses.filters import FilterTrie, matches, parse_filter
from gatehouse.kernel.addresses.routes import RouteEntry, Routes
from gatehouse.kernel.delivery.slices import Slices
from gatehouse.kernel.errors import KernelError, MessageTooLarge, OffsetOutOfRange, Stopping, UnknownPartition
from gatehouse.kernel.message import (
    RETAIN,
    Delivery,
    Fetched,
    FirstLevel,
    Headers,
    Message,
    NumberedMessage,
    OnRetained,
    Owner,
    Piece,
    Placement,
    Record,
    Retained,
    Stored,
    Subscriber,
)
from gatehouse.kernel.port import Port
from gatehouse.kernel.records.record import encode_key, read_headers, varint
from gatehouse.kernel.settings import KernelSettings

if TYPE_CHECKING:
    from gatehouse.kernel.api import DoorSide
    from gatehouse.kernel.kernel import Kernel
    from gatehouse.kernel.ports import Loop

LISTEN: Final = Listen("127.0.0.1", 0)
START_MS: Final = 1_700_000_000_000      # where the fake clock stands at first


class FakeLink:
    """A `contract.Link` that keeps what was written. `stalled=True`: the peer takes nothing until `drain()`."""

    def __init__(self, peer: str = "203.0.113.7:50000", certificate: str | None = None,
                 listen: Listen = LISTEN) -> None:
        self.peer = peer
        self.certificate = certificate
        self.certificate_ends_ms = 0
        self.listen = listen
        self.sent = bytearray()
        self.stalled = False
        self.closed = False
        self.reason = ""
        self.paused = False
        self.wake_ms = 0
        self.writes = 0
        self.gone = False
        self._unsent = 0

    @property
    def unsent_bytes(self) -> int:
        return self._unsent

    def write(self, data: bytes, /) -> None:
        assert isinstance(data, bytes), "a link takes bytes"
        if not self.closed:
            self.sent += data
            self.writes += 1
            if self.stalled:
                self._unsent += len(data)

    def write_many(self, parts: list[bytes], /) -> None:
        for part in parts:
            self.write(part)

    def close(self, reason: str = "") -> None:
        if not self.closed:
            self.closed = True
            self.reason = reason

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def wake_at(self, when_ms: int) -> None:
        self.wake_ms = when_ms

    def hand_over(self, door: str, framing: Framing, greeting: bytes, rest: bytes) -> bool:
        """That door is not open."""
        return False

    def take(self) -> bytes:
        """What was written since the last call."""
        taken = bytes(self.sent)
        self.sent.clear()
        return taken

    def drain(self, session: Session) -> None:
        """The peer takes everything, and goes on taking."""
        self.stalled = False
        self._unsent = 0
        session.handle_drained()


class FakePartition:
    """One partition: records from `log_start` on."""

    def __init__(self, partition_id: int) -> None:
        self.partition_id = partition_id
        self.log_start = 0
        self.records: list[Record] = []          # from offset 0 on, whatever log_start says

    def pieces(self, offset: int, max_bytes: int) -> list[Piece]:
        """Records as pieces of up to 100, at least one, as far as `max_bytes` allows."""
        pieces: list[Piece] = []
        size = 0
        while offset < len(self.records) and (not pieces or size < max_bytes):
            records = self.records[offset:offset + 100]
            base_ms = records[0][1]
            data = b"".join(_encode(record, index, base_ms) for index, record in enumerate(records))
            pieces.append(Piece(offset, len(records), False, data, base_ms, max(r[1] for r in records), records[0][6]))
            size += len(data)
            offset += len(records)
        return pieces


ROUTES: Final = Routes([RouteEntry("#", UNROUTED)])
"""Whatever may be published has a topic."""


class _Standing:
    """A loop whose time does not pass, so that no slice comes to its end."""

    def now_ms(self) -> int:
        return 0


def _raise(error: Exception) -> None:
    raise error


def one_turn() -> Slices:
    """For fake kernels: all work is done at once."""
    return Slices(cast("Loop", _Standing()), _raise)


class FakeKernel:
    """The kernel facade as far as doors use it. `flush()` is the group commit; `disk_error` makes the next one fail.

    `read_error` makes every fetch fail.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.epoch = 1
        self.congested = False
        self.settings = KernelSettings()
        self.stopping = False
        self.disk_error: KernelError | None = None
        self.read_error: KernelError | None = None
        self.fetches = 0
        self._retained: dict[tuple[str, str], Retained] = {}
        self.partitions: dict[int, FakePartition] = {}
        self.refused_addresses: dict[str, KernelError] = {}
        self._now_ms = now_ms
        self._placements: dict[tuple[str, str], Placement] = {}
        self._partition_ids: dict[tuple[str, str], int] = {}
        self._first_level = FirstLevel()
        self._filters: FilterTrie[Subscriber] = FilterTrie()
        self._options: dict[tuple[tuple[str, ...], Subscriber, str], int] = {}
        self._pending: list[tuple[list[Message], Owner | None, object, bool]] = []
        self._next_id = 1
        self._relief: list[Callable[[], None]] = []

    # --- where things go ---------------------------------------------------------------------------------------------

    def place(self, address: str, *, tenant: str = "/", may_create: bool = True, maker: str = "") -> Placement:
        check_address(address)
        if address in self.refused_addresses:
            raise self.refused_addresses[address]
        placement = self._placements.get((tenant, address))
        if placement is None:
            topic, key, *_ = ROUTES.route(address)
            partition = self._partition(tenant, topic)
            placement = Placement(tenant, address, topic, partition.partition_id, 0, partition.partition_id, key,
                                  encode_key(key), b"",
                                  self.settings.max_message_bytes, self._first_level)
            self._placements[tenant, address] = placement
        return placement

    def place_in(self, topic: str, key: bytes | None, *, partition: int | None = None, tenant: str = "/",
                 may_create: bool = True, maker: str = "") -> Placement:
        return self.place(join_address(topic, key), tenant=tenant, may_create=may_create)

    def address_of(self, topic: str, key: bytes | None, headers: Headers) -> str:
        return join_address(topic, key)

    def _partition(self, tenant: str, topic: str) -> FakePartition:
        partition_id = self._partition_ids.setdefault((tenant, topic), len(self._partition_ids) + 1)
        return self.partitions.setdefault(partition_id, FakePartition(partition_id))

    def port(self, door: DoorSide) -> Port:
        return Port(cast("Kernel", self), self._append_numbered, door, None)

    def _append_numbered(self, messages: list[NumberedMessage], owner: Owner | None, token: object, positions: bool,
                         placements: dict[int, Placement]) -> None:
        self.append([(placements[message[0]], *message[1:]) for message in messages], owner, token,
                    positions=positions)

    # --- append ------------------------------------------------------------------------------------------------------

    def append(self, messages: list[Message], owner: Owner | None, token: object = None, *, positions: bool = False,
               idempotency_key: str | None = None) -> None:
        if self.stopping:
            raise Stopping("the hub is shutting down")
        for placement, value, _, _, _ in messages:
            if value is not None and len(value) > placement.max_message_bytes:
                raise MessageTooLarge(f"a message of {len(value)} bytes")
        self._pending.append((list(messages), owner, token, positions))

    def flush(self) -> None:
        """Make everything durable that was appended before: owners are answered first, then subscribers told."""
        pending, self._pending = self._pending, []
        error, self.disk_error = self.disk_error, None
        answers: dict[Owner, list[Stored]] = {}
        stretches: list[tuple[Placement, list[Message], int]] = []
        for messages, owner, token, with_positions in pending:
            positions = [] if error is not None else [self._store(message, stretches) for message in messages]
            if owner is not None:
                answers.setdefault(owner, []).append(
                    Stored(token, error, self._now_ms(), positions if with_positions else []))
        for owner, stored in answers.items():
            for _ in owner.on_stored(stored) or ():
                pass
        self._deliver(stretches)

    def _store(self, message: Message, stretches: list[tuple[Placement, list[Message], int]]) -> tuple[int, int, int]:
        placement, value, headers, attributes, timestamp_ms = message
        if attributes & RETAIN and not value:
            self._retained.pop((placement.tenant, placement.address), None)
        partition = self.partitions[placement.partition_id]
        offset, message_id = len(partition.records), self._next_id
        self._next_id += 1
        partition.records.append((offset, timestamp_ms or self._now_ms(), placement.key, value,
                                  read_headers(headers, 0)[0],
                              attributes, message_id))
        if attributes & RETAIN and value:
            self._retained[placement.tenant, placement.address] = Retained(
                placement.address, placement.topic, placement.partition, placement.partition_id, partition.records[-1])
        last = stretches[-1] if stretches else None
        if last is not None and last[0] is placement and last[2] + len(last[1]) == offset:
            last[1].append(message)
        else:
            stretches.append((placement, [message], offset))
        return placement.partition_id, offset, message_id

    def _deliver(self, stretches: list[tuple[Placement, list[Message], int]]) -> None:
        subscribers: dict[Subscriber, list[Delivery]] = {}
        for placement, messages, offset in stretches:
            for subscriber, options in self._targets(placement):
                subscribers.setdefault(subscriber, []).append(
                    (placement, [(0, *message[1:]) for message in messages], offset, options))
        for subscriber, deliveries in subscribers.items():
            for _ in subscriber.on_delivery(deliveries) or ():
                pass

    def _targets(self, placement: Placement) -> tuple[tuple[Subscriber, int], ...]:
        if placement.version != placement.first_level.version:
            levels = tuple(placement.address.split("/"))
            best: dict[Subscriber, int] = {}
            for (pattern, subscriber, tenant), options in self._options.items():
                alone: FilterTrie[int] = FilterTrie()
                alone.insert(pattern, 0)
                if tenant == placement.tenant and alone.match(levels):
                    best[subscriber] = max(options, best.get(subscriber, 0))
            placement.targets = tuple(best.items())
            placement.version = placement.first_level.version
        return placement.targets

    # --- reading -----------------------------------------------------------------------------------------------------

    def fetch(self, wants: list[tuple[int, int, int]], max_bytes: int,
              on_done: Callable[[list[Fetched]], None], *, kept: bool = False, stored: bool = False) -> None:
        self.fetches += 1
        answers: list[Fetched] = []
        for partition_id, offset, partition_bytes in wants:
            partition = self.partitions.get(partition_id)
            if self.read_error is not None:
                answers.append(Fetched(partition_id, self.read_error, 0, 0, []))
            elif partition is None:
                answers.append(Fetched(partition_id, UnknownPartition(str(partition_id)), 0, 0, []))
            elif not partition.log_start <= offset <= len(partition.records):
                error = OffsetOutOfRange(str(offset))
                answers.append(Fetched(partition_id, error, partition.log_start, len(partition.records), []))
            else:
                answers.append(Fetched(partition_id, None, partition.log_start, len(partition.records),
                                       partition.pieces(offset, partition_bytes)))
        on_done(answers)

    def retained(self, filter: str, tenant: str, on_done: OnRetained, *, max_values: int = 100, start: str = ""
                 ) -> None:
        """All at once, and before this returns."""
        if self.read_error is not None:
            on_done([], None, self.read_error)
            return
        pattern = parse_filter(filter)
        entries = [entry for (of_tenant, address), entry in sorted(self._retained.items())
                   if of_tenant == tenant and address >= start and matches(pattern, tuple(address.split("/")))]
        rest = entries[max_values:]
        on_done(entries[:max_values], rest[0].address if rest else None, None)

    def has_expired(self, record: Record, topic: str, tenant: str) -> bool:
        return any(name == b"expires-at" and int(value or b"0") <= self._now_ms() for name, value in record[4])

    def slices(self) -> Slices:
        """Everything in one turn."""
        return one_turn()

    # --- live subscribers --------------------------------------------------------------------------------------------

    def subscribe(self, filter: str, subscriber: Subscriber, options: int = 0, *, tenant: str = "/") -> None:
        self._options[parse_filter(filter), subscriber, tenant] = options
        self._first_level.version += 1

    def unsubscribe(self, filter: str, subscriber: Subscriber, *, tenant: str = "/") -> bool:
        self._first_level.version += 1
        return self._options.pop((parse_filter(filter), subscriber, tenant), None) is not None

    @property
    def subscriptions(self) -> int:
        return len(self._options)

    # --- back-pressure -----------------------------------------------------------------------------------------------

    def on_relief(self, callback: Callable[[], None]) -> None:
        self._relief.append(callback)

    def relieve(self) -> None:
        """No longer congested."""
        self.congested = False
        callbacks, self._relief = self._relief, []
        for callback in callbacks:
            callback()


class RecordingAdmission(Admission):
    """Keeps what the audit topic would be told in `audited`."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.audited: list[tuple[By, str, Mapping[str, Any]]] = []

    def audit(self, by: By, action: str, details: Mapping[str, Any]) -> None:
        self.audited.append((by, action, details))


class FakeHub:
    """What a session is given, and the sessions that were opened."""

    def __init__(self, *, allow_anonymous: bool = True, decision: Decide | None = None,
                 quotas: dict[str, Quota] | None = None) -> None:
        self.clock_ms = START_MS
        self.kernel = FakeKernel(self.now_ms)
        kernel = cast("Kernel", self.kernel)
        self.admission: Admission = RecordingAdmission(kernel, self.now_ms, allow_anonymous=allow_anonymous,
                                                       decision=decision, quotas=quotas)
        self.services = Services("hub", kernel, self.admission, self.now_ms)
        self._open: list[tuple[Session, FakeLink]] = []

    def now_ms(self) -> int:
        return self.clock_ms

    def open(self, spec: GatewaySpec, config: Any) -> tuple[Session, FakeLink]:
        """A peer connects."""
        assert spec.session is not None, "only byte-stream doors have sessions"
        link = FakeLink()
        session = spec.session(link, self.services, config)
        self._open.append((session, link))
        return session, link

    def advance(self, ms: int) -> None:
        """Let time pass; every timer that falls due in it runs at its time, in order."""
        end_ms = self.clock_ms + ms
        while True:
            due = [(link.wake_ms, index) for index, (_, link) in enumerate(self._open)
                   if link.wake_ms and link.wake_ms <= end_ms and not link.closed]
            if not due:
                break
            when_ms, index = min(due)
            session, link = self._open[index]
            self.clock_ms = max(self.clock_ms, when_ms)
            link.wake_ms = 0
            session.handle_timer(self.clock_ms)
        self.clock_ms = end_ms

    def cut(self, session: Session) -> None:
        """The connection is gone."""
        self._open = [(other, link) for other, link in self._open if other is not session]
        session.handle_closed()


def _encode(record: Record, index: int, base_ms: int) -> bytes:
    """A v2 record."""
    _, timestamp_ms, key, value, headers, attributes, _ = record
    body = bytes((attributes,)) + varint(timestamp_ms - base_ms) + varint(index) + encode_key(key)
    body += varint(-1) if value is None else varint(len(value)) + value
    body += varint(len(headers))
    for name, content in headers:
        body += varint(len(name)) + name + (varint(-1) if content is None else varint(len(content)) + content)
    return varint(len(body)) + body
