"""One hub in the simulator: the real kernel over a disk, an index store and a clock that all obey the test."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from gatehouse.kernel.addresses.routes import RouteEntry, Routes
from gatehouse.kernel.ids import SHARD_BITS
from gatehouse.kernel.kernel import Kernel
from gatehouse.kernel.log.log import Damage
from gatehouse.kernel.log.segments import SegmentLog
from gatehouse.kernel.message import decode_head
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.world import Restless, World
from gatehouse.kernel.write.pending_frame import PendingFrame
from gatehouse.transactions.coordinator import Transactions
from tests.simulation.disk import Crash, CrashKind, SimDisk
from tests.simulation.store import SimStore
from tests.simulation.transacting import SETTINGS

ROUTES: Final = Routes([RouteEntry("#", "unrouted")])
MAX_STEPS: Final = 20_000          # of loop and workers until nothing is left to do; more is an endless loop


class DatedLog(SegmentLog):
    """Sees to it that append time never falls. `dated`: position and append time of the frames of the main chain."""

    def __init__(self, disk: SimDisk, segment_bytes: int, dated: list[tuple[int, int]]) -> None:
        super().__init__(disk, segment_bytes)
        self._dated = dated

    def append(self, head: bytes, body: bytes) -> int:
        position = super().append(head, body)
        append_ms = decode_head(head).append_ms
        while self._dated and self._dated[-1][0] >= position:        # a crash took them
            self._dated.pop()
        assert not self._dated or self._dated[-1][1] <= append_ms, f"append time fell to {append_ms}: {self._dated[-1]}"
        self._dated.append((position, append_ms))
        return position


class SimHub:
    """Disk and store outlive the kernel; `start` and `crash` alternate."""

    def __init__(self, settings: KernelSettings, seed: int) -> None:
        self.settings = settings
        self.disk = SimDisk(Random(f"disk {seed}"))
        self.store = SimStore(Random(f"store {seed}"), self.disk.operate)
        self.shard = Random(f"shard {seed}").choice((0, 1, (1 << SHARD_BITS) - 1))
        self.world = World()
        self.damage: list[Damage] = []
        self.errors: list[Exception] = []
        self.fatal: list[str] = []
        self.starts = 0
        self.set_by_ms = 0                       # of the wall clock, before the next start
        self._dated: list[tuple[int, int]] = []
        self.network: Callable[[Random], bool] = lambda random: False
        self.after_step: Callable[[], None] = lambda: None
        self.after_taking_back: Callable[[], None] = lambda: None    # of topics, before any owner hears of it

    def start(self) -> None:
        """Recover. Raises Crash where one is due, LogFull where the disk is."""
        self.world = World(max(0, self.world.loop.wall_ms() + 1_000 + self.set_by_ms))
        self.set_by_ms = 0
        self.starts += 1
        self.log = DatedLog(self.disk, self.settings.segment_bytes, self._dated)
        self.kernel = Kernel(
            loop=self.world.loop, log_worker=self.world.log_worker, reader_worker=self.world.reader_worker,
            checkpoint_worker=self.world.checkpoint_worker, validation_worker=self.world.validation_worker,
            log=self.log, store=self.store, routes=ROUTES, settings=self.settings, fatal=self._end,
            on_damage=self.damage.append, on_error=self.errors.append, new_shard=self.shard)
        self.kernel.deliveries.slices.slice_ms = 0     # all the turns of the loop that there can be
        self.kernel.open()
        self._watch_taking_back()
        self.kernel.background.stop()     # what the simulator reads waits for workers, not for time
        self.transactions = Transactions(self.kernel, SETTINGS)
        self.transactions.open()

    def _watch_taking_back(self) -> None:
        """Owners may make a topic anew as soon as they hear of a refusal: what was there before that is seen here."""
        changes = self.kernel._topic_changes
        failed = changes.failed

        def taken_back(frames: list[PendingFrame]) -> None:
            failed(frames)
            self.after_taking_back()

        changes.failed = taken_back  # type: ignore[method-assign]

    def _end(self, message: str) -> None:
        """The process ends, as it does in the real hub."""
        self.fatal.append(message)
        raise Crash(message)

    def crash(self, kind: CrashKind) -> None:
        self.disk.crash(kind)
        self.store.crash(kind)

    def step(self, random: Random) -> bool:
        """One small thing that is ready, whichever; False where nothing is."""
        order: list[Callable[[], bool]] = [self.world.loop.step, *(worker.step for worker in self.world.workers),
                                           partial(self.network, random)]
        random.shuffle(order)
        moved = any(step() for step in order)
        self.after_step()
        return moved

    def run(self, random: Random, steps: int) -> None:
        for _ in range(steps):
            if not self.step(random):
                break
        self._check()

    def settle(self, random: Random) -> None:
        """Until nothing is left to do."""
        for _ in range(MAX_STEPS):
            if not self.step(random):
                self._check()
                return
        raise Restless(f"still busy after {MAX_STEPS} steps")

    def advance(self, by_ms: int) -> None:
        self.world.loop.advance(by_ms)

    def stop(self, random: Random) -> None:
        """The clean way."""
        closed: list[bool] = []
        self.transactions.stop()
        self.kernel.close(lambda: closed.append(True))
        self.settle(random)
        assert closed, "the kernel does not close"
        self.log.close()

    def _check(self) -> None:
        assert not self.errors, f"our own fault: {self.errors[0]!r}"
        assert not self.damage, f"damage where nothing was damaged: {self.damage[0]}"
