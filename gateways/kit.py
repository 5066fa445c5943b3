"""For tests of doors, ours and plugin authors': a link without a socket, and a hub without disk, threads or time that
passes by itself.

    hub = FakeHub()                                 # kernel, transactions, admission, a clock that stands still
    session, link = hub.open(GATEWAY, GATEWAY.config())
    session.handle_data(b"...")                     # cut anywhere
    hub.kernel.flush()                              # everything appended becomes durable: on_stored, on_delivery
    assert link.take() == b"..."
    hub.advance(ms)                                 # timers run, the session's and the hub's

The kernel is the real one: over a log in memory, in a world of one thread (`kernel.world`). A hub opens in less than a
millisecond.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.audit import By
from gatehouse.gateways.admission.decision import Decide
from gatehouse.gateways.admission.limits.limit import Quota
from gatehouse.gateways.connections.settings import Framing
from gatehouse.gateways.contract import GatewaySpec, Listen, Services, Session
from gatehouse.gateways.door_side import FLOOR_BYTES
from gatehouse.gateways.properties.envelope import SELECTOR_NAMES
from gatehouse.kernel.addresses.address import UNROUTED
from gatehouse.kernel.addresses.routes import RouteEntry, Routes
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.kernel import Kernel
from gatehouse.kernel.log.memory_log import MemoryLog
from gatehouse.kernel.message import Fetched, Record
from gatehouse.kernel.records.batch import sound_records
from gatehouse.kernel.settings import JourneySettings, KernelSettings
from gatehouse.kernel.state.store import MemoryStore
from gatehouse.kernel.world import InlineWorker, World
from gatehouse.transactions.coordinator import Transactions

if TYPE_CHECKING:
    from gatehouse.gateways.connections.native_sockets import Reader

LISTEN: Final = Listen("127.0.0.1", 0)
START_MS: Final = 1_700_000_000_000      # where the clock stands at first
ROUTES: Final = (RouteEntry("#", UNROUTED),)
"""Whatever may be published has a topic."""


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
        self.offers = False
        self.reader: Reader | None = None
        self._unsent = 0

    @property
    def unsent_bytes(self) -> int:
        return self._unsent

    @property
    def is_read(self) -> bool:
        return not self.paused and self._unsent <= FLOOR_BYTES

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

    def read_through(self, reader: Reader | None) -> bool:
        """There are no sockets, unless a test reads through `reader` itself."""
        self.reader = reader
        return self.offers

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


class KitLog(MemoryLog):
    """A log in memory whose next write fails with `fault`, where that is set."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: Exception | None = None

    def append(self, head: bytes, body: bytes) -> int:
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        return super().append(head, body)


class KitReader:
    """The kernel's reader, whose fetches are counted and fail while the kernel has a `read_error`. A test may set
    another `fetch_public`."""

    def __init__(self, kernel: KitKernel, reader: Any) -> None:
        self._kernel = kernel
        self.unchanged = reader
        self.fetches = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unchanged, name)

    def fetch_public(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None],
                     kept: bool, stored: bool, max_records: int) -> None:
        self.fetches += 1
        error = self._kernel.read_error
        if error is not None:
            on_done([Fetched(partition_id, error, 0, 0, []) for partition_id, _, _ in wants])
        else:
            self.unchanged.fetch_public(wants, max_bytes, on_done, kept, stored, max_records)


class KitKernel(Kernel):
    """A hub's kernel in the hands of a test. `flush()` is the group commit.

    `read_error` makes every fetch fail, which memory never does by itself. `congest` begins back-pressure, `relieve`
    ends it.
    """

    def __init__(self, world: World, log: KitLog, routes: Routes, settings: KernelSettings,
                 journeys: JourneySettings | None = None) -> None:
        self.world = world
        self.log = log
        self.faults: list[Exception | str] = []      # mistakes of the hub, and why its process would end
        self.read_error: KernelError | None = None
        super().__init__(
            loop=world.loop, log_worker=world.log_worker, reader_worker=InlineWorker(),
            checkpoint_worker=world.checkpoint_worker, validation_worker=world.validation_worker, log=log,
            store=MemoryStore(), routes=routes, settings=settings, fatal=self.faults.append,
            on_damage=lambda damage: self.faults.append(str(damage)), on_error=self.faults.append,
            new_hub=b"a hub of the kit", selector_names=SELECTOR_NAMES, journeys=journeys)
        self.reader = KitReader(self, self._reader)
        self._reader = cast(Any, self.reader)

    def flush(self) -> None:
        """Make everything durable that was appended: owners are answered first, then subscribers told. Raises
        AssertionError where the hub has made a mistake."""
        self.world.run()
        assert not self.faults, self.faults

    def congest(self) -> None:
        """More is pending than is good, until `relieve`."""
        self._backpressure.report(self, True)

    def relieve(self) -> None:
        """No longer congested."""
        self._backpressure.report(self, False)

    @property
    def fetches(self) -> int:
        """How often partitions were read."""
        return self.reader.fetches

    @property
    def subscriptions(self) -> int:
        """How many live subscriptions there are."""
        return self.statistics()["subscriptions"]

    def records(self, topic: str = "", tenant: str = "/") -> list[Record]:
        """Everything that is stored in a topic, or in all, in the order it was stored in."""
        records: list[Record] = []
        for of_tenant in self.topics(tenant):
            if topic in ("", of_tenant.name):
                for partition_id in of_tenant.partition_ids():
                    records += self.records_of(partition_id)
        return sorted(records, key=lambda record: record[6])

    def records_of(self, partition_id: int) -> list[Record]:
        """Everything that is stored in a partition."""
        records: list[Record] = []
        start, end = self.bounds(partition_id)
        while start < end:
            answers: list[Fetched] = []
            wants = [(partition_id, start, 1 << 30)]
            self.reader.unchanged.fetch_public(wants, 1 << 30, answers.extend, False, False, 0)
            self.world.run()
            pieces = answers[0].pieces
            records += [record for piece in pieces for record in sound_records(piece) if record[0] >= start]
            start = pieces[-1].first_offset + pieces[-1].count if pieces else end
        return records


class RecordingAdmission(Admission):
    """Keeps what the audit topic would be told in `audited`."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.audited: list[tuple[By, str, Mapping[str, Any]]] = []

    def audit(self, by: By, action: str, details: Mapping[str, Any]) -> None:
        self.audited.append((by, action, details))


class FakeHub:
    """What a session is given, and the sessions that were opened. One partition a topic, unless settings say otherwise.
    """

    def __init__(self, *, allow_anonymous: bool = True, decision: Decide | None = None,
                 quotas: dict[str, Quota] | None = None, settings: KernelSettings | None = None,
                 routes: tuple[RouteEntry, ...] = ROUTES, journeys: JourneySettings | None = None) -> None:
        self.world = World(START_MS)
        self.log = KitLog()
        self.kernel = KitKernel(self.world, self.log, Routes(list(routes)),
                                settings or KernelSettings(default_partitions=1), journeys)
        self.kernel.open()
        self.transactions = Transactions(self.kernel)
        self.transactions.open()
        self.kernel.flush()
        self.admission: Admission = RecordingAdmission(self.kernel, self.now_ms, allow_anonymous=allow_anonymous,
                                                       decision=decision, quotas=quotas)
        self.services = Services("hub", self.kernel, self.admission, self.now_ms, transactions=self.transactions)
        self._open: list[tuple[Session, FakeLink]] = []

    def now_ms(self) -> int:
        return self.world.loop.now_ms()

    def open_door(self, spec: GatewaySpec) -> None:
        """Open a door, where that has not been done."""
        if spec not in self.services.specs:
            self.services.add(spec)
            self.services.door_numbers.open(spec)
            if spec.opened is not None:
                spec.opened(self.services)

    def open(self, spec: GatewaySpec, config: Any) -> tuple[Session, FakeLink]:
        """A peer connects."""
        assert spec.session is not None, "only byte-stream doors have sessions"
        self.open_door(spec)
        link = FakeLink()
        session = spec.session(link, self.services, config)
        self._open.append((session, link))
        return session, link

    def advance(self, ms: int) -> None:
        """Let time pass; every timer that falls due in it runs at its time, in order."""
        end_ms = self.now_ms() + ms
        while True:
            due = [(link.wake_ms, index) for index, (_, link) in enumerate(self._open)
                   if link.wake_ms and link.wake_ms <= end_ms and not link.closed]
            if not due:
                break
            when_ms, index = min(due)
            session, link = self._open[index]
            self._pass(when_ms)
            link.wake_ms = 0
            session.handle_timer(self.now_ms())
        self._pass(end_ms)

    def _pass(self, until_ms: int) -> None:
        if until_ms > self.now_ms():
            self.world.loop.advance(until_ms - self.now_ms())
            self.kernel.flush()

    def cut(self, session: Session) -> None:
        """The connection is gone."""
        self._open = [(other, link) for other, link in self._open if other is not session]
        session.handle_closed()
