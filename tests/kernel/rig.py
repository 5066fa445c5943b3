"""A kernel in a world of one thread, for tests: append, run, look."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.api import Heard, KernelPort
from gatehouse.kernel.kernel import Kernel
from gatehouse.kernel.log.disk_guard import Reserve
from gatehouse.kernel.log.log import Damage, Log
from gatehouse.kernel.log.memory_log import MemoryLog
from gatehouse.kernel.log.segments import Disk, RealDisk, SegmentLog
from gatehouse.kernel.message import Fetched, Message, Place, Placement, Record, Stored
from gatehouse.kernel.ports import Notices
from gatehouse.kernel.records.batch import encode_headers, records_of
from gatehouse.kernel.settings import JourneySettings, KernelSettings
from gatehouse.kernel.state.projection import Projection
from gatehouse.kernel.state.store import IndexStore, MemoryStore
from gatehouse.kernel.world import World


class Witness:
    """An owner and a subscriber that remembers what it was told."""

    def __init__(self) -> None:
        self.stored: list[Stored] = []
        self.delivered: list[tuple[str, bytes | None, int, int]] = []      # address, value, offset, options

    def on_stored(self, stored: list[Stored]) -> None:
        self.stored += stored

    def on_delivery(self, deliveries: list[tuple[Placement, list[Message], int, int]]) -> None:
        for placement, messages, first_offset, options in deliveries:
            self.delivered += [(placement.address, message[1], first_offset + i, options)
                               for i, message in enumerate(messages)]


class SilentDoor:
    """A door without sessions: whoever asks by its port is answered, and nobody is told."""

    def on_answers(self, answers: list[Stored]) -> Iterator[None]:
        yield from ()

    def on_delivery(self, heard: list[Heard]) -> Iterator[None]:
        yield from ()

    def hearers(self, place: Place) -> tuple[str, int]:
        return "silent", 0


class Told(Notices):
    """Remembers what people should hear of."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.refusing: list[bool] = []
        self.steps: list[int] = []
        self.topics: list[int] = []          # how many there were, each time that few were left
        self.unreadable: list[tuple[int, int, int]] = []

    def on_refusing(self, refusing: bool) -> None:
        self.refusing.append(refusing)

    def on_step(self, by_ms: int) -> None:
        self.steps.append(by_ms)

    def on_topics_short(self) -> None:
        self.topics.append(len(self._rig.kernel.topics()))

    def on_unreadable(self, partition_id: int, offset: int, count: int) -> None:
        self.unreadable.append((partition_id, offset, count))


class Rig:
    """One kernel; `restart` is what a crash and a new start do to it."""

    def __init__(self, folder: Path | None = None, settings: KernelSettings | None = None, routes: Routes | None = None,
                 log: Log | None = None, store: IndexStore | None = None, disk: Disk | None = None,
                 projection: Projection | None = None, reserve: Reserve | None = None,
                 emergency_reserve: Reserve | None = None, wall_ms: int = 1_700_000_000_000, shard: int = 0,
                 journeys: JourneySettings | None = None) -> None:
        self.disk = RealDisk(folder) if folder is not None else disk
        self.settings = settings or KernelSettings(segment_bytes=1 << 20)
        self.routes = routes or Routes()
        self.store: IndexStore = store or MemoryStore()
        self.log: Log = log or self._new_log()
        self.projection = projection
        self.reserve = reserve
        self.emergency_reserve = emergency_reserve
        self.shard = shard
        self.journeys = journeys
        self._traces = 0
        self.world = World(wall_ms)
        self.fatal: list[str] = []
        self.damage: list[Damage] = []
        self.errors: list[Exception] = []
        self.told = Told(self)
        self.witness = Witness()
        self.kernel = self._open()

    def _new_log(self) -> Log:
        return MemoryLog() if self.disk is None else SegmentLog(self.disk, self.settings.segment_bytes)

    def _open(self) -> Kernel:
        kernel = Kernel(loop=self.world.loop, log_worker=self.world.log_worker, reader_worker=self.world.reader_worker,
                        checkpoint_worker=self.world.checkpoint_worker,
                        validation_worker=self.world.validation_worker, log=self.log, store=self.store,
                        routes=self.routes, settings=self.settings, fatal=self.fatal.append,
                        on_damage=self.damage.append, on_error=self.errors.append, notices=self.told,
                        projection=self.projection, new_hub=b"a hub of the rig",
                        new_shard=self.shard, reserve=self.reserve, emergency_reserve=self.emergency_reserve,
                        journeys=self.journeys, new_trace=self._new_trace)
        kernel.open()
        return kernel

    def _new_trace(self) -> bytes:
        self._traces += 1
        return self._traces.to_bytes(16) + self._traces.to_bytes(8)

    def restart(self, *, lose_index: bool = False, step_ms: int = 0) -> None:
        """As after kill -9: what waits in memory is gone. A second later, and the wall clock stepped meanwhile."""
        if self.disk is not None:
            self.log.close()
            self.log = self._new_log()
        if lose_index:
            self.store.write([], (), [(b"", b"\xff" * 32)], sync=True)
        self.world = World(self.world.loop.wall_ms() + 1_000 + step_ms)
        self.witness = Witness()
        self.kernel = self._open()

    def run(self) -> None:
        self.world.run()
        assert not self.errors and not self.fatal, (self.errors, self.fatal)

    def publish(self, address: str, *values: bytes, headers: list[tuple[bytes, bytes | None]] | None = None,
                idempotency_key: str | None = None, attributes: int = 2, tenant: str = "/"
                ) -> list[tuple[int, int, int]]:
        """Append, run until durable, return positions."""
        placement = self.kernel.place(address, tenant=tenant)
        encoded = encode_headers(headers or [])
        self.kernel.append([(placement, value, encoded, attributes, 0) for value in values], self.witness, address,
                           positions=True, idempotency_key=idempotency_key)
        self.run()
        answer = self.witness.stored[-1]
        if answer.error is not None:
            raise answer.error
        return answer.positions

    def port(self) -> KernelPort:
        """For what doors alone ask."""
        return self.kernel.port(SilentDoor())

    def place_routed(self, address: str, partition_ids: tuple[int, ...], may_create: bool = True) -> Placement:
        """Where the address leads, and by reference into these queues, whatever is bound to the address."""
        return self.kernel._places.place_routed(address, partition_ids, "/", may_create)

    def fetch(self, partition_id: int, offset: int = 0, max_bytes: int = 1 << 30) -> Fetched:
        found: list[Fetched] = []
        self.kernel.fetch([(partition_id, offset, max_bytes)], max_bytes, found.extend)
        self.run()
        return found[0]

    def read_partition(self, partition_id: int, offset: int | None = None) -> list[Record]:
        """Every record of a partition from an offset (its start) on."""
        at, high = self.kernel.bounds(partition_id)
        at = at if offset is None else offset
        records: list[Record] = []
        while at < high:
            fetched = self.fetch(partition_id, at)
            assert fetched.error is None, fetched.error
            if not fetched.pieces:
                break
            for piece in fetched.pieces:
                records += [record for record in records_of(piece) if record[0] >= at]
                at = piece.first_offset + piece.count
        return records

    def read(self, topic: str) -> list[Record]:
        """Every record of a topic, partition by partition."""
        found = self.kernel.topic(topic)
        assert found is not None
        return [record for partition_id in found.partition_ids() for record in self.read_partition(partition_id)]

    def values(self, topic: str) -> list[bytes | None]:
        return [record[3] for record in self.read(topic)]
