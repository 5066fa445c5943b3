"""Checkpoints of the index: what gathered in memory goes to the store, on another thread, and is let go of here.

Taken when something has changed for `checkpoint_ms` or `checkpoint_bytes` of log have come. The log is durable up to
what is written, always; the store then says how far it is complete, and the next start replays from there.
A projection (the SQL catalogue) is told of the same step after the store; it holds up nothing but the next checkpoint.

A checkpoint that finds the disk full stays in memory, where it is read, and is written again until it fits: what comes
meanwhile is bounded, since the log finds the disk full too.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from gatehouse.kernel.backpressure import Backpressure
from gatehouse.kernel.ids import Identity
from gatehouse.kernel.index.index import Checkpoint, Index, Positions
from gatehouse.kernel.index.memtable import Memtables
from gatehouse.kernel.log.disk_guard import DiskGuard
from gatehouse.kernel.log.log import Log
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.clock import Clock
from gatehouse.kernel.state.projection import Projection, Step, changed_definitions, whole_definitions
from gatehouse.kernel.state.state import StateTable
from gatehouse.kernel.state.store import StoreFull
from gatehouse.kernel.state.watermarks import Watermarks

BEHIND_BYTES: Final = 64 << 20     # of changed state, beyond what a checkpoint is taken for: publishers wait
FULL_RETRY_MS: Final = 1_000       # the index does not fit on the disk: until it is tried again


class Checkpoints:
    """`log_worker` syncs the log, `worker` writes the index; `next_id` gives the next message id."""

    def __init__(self, *, loop: Loop, log_worker: Worker, worker: Worker, log: Log, index: Index, memtables: Memtables,
                 watermarks: Watermarks, state: StateTable, clock: Clock, disk_guard: DiskGuard,
                 backpressure: Backpressure, settings: KernelSettings, identity: Identity,
                 projection: Projection | None, next_id: Callable[[], int],
                 on_superseded: Callable[[list[bytes]], None], fatal: Callable[[str], None]) -> None:
        """`on_superseded` is told the keys of KEPT records whose LATEST record a checkpoint has replaced."""
        self._loop = loop
        self._log_worker = log_worker
        self._worker = worker
        self._log = log
        self._index = index
        self._memtables = memtables
        self._watermarks = watermarks
        self._state = state
        self._clock = clock
        self._disk_guard = disk_guard
        self._backpressure = backpressure
        self._settings = settings
        self._identity = identity
        self._projection = projection
        self._next_id = next_id
        self._on_superseded = on_superseded
        self._fatal = fatal
        self._frozen_at = Positions(0, 0, 0)               # what the newest checkpoint is complete to
        self._projected = 0                                # up to where a projection can be that missed nothing
        self._timer_set = False
        self._busy = False
        self.full = False                                # the last try did not fit, and there will be another one
        self._waiting: list[Callable[[], None]] = []       # wanted another one, after the one under way
        self._on_end: Callable[[], None] | None = None
        self.kept_end = 0
        self.taken = 0
        self.taken_ms = 0                                  # when the last one was there; 0: none since the start
        self.postponed = 0

    def begin(self, kept_end: int) -> None:
        """Recovery has ended; the kept chain ends there. What it brought is written in time."""
        self.kept_end = kept_end
        self._frozen_at = self._index.positions()
        self._projected = self._frozen_at.main
        self.note()

    def note_kept(self, kept_end: int) -> None:
        """The kept chain ends here now, and its records are in the state's memory."""
        assert kept_end >= self.kept_end, "the kept chain grows"
        self.kept_end = kept_end

    def forget_partitions(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """See `kernel.write.pending_frame.Forgetter`."""
        self._memtables.written.forget_partitions(ranges)
        self._memtables.pages.clear()
        self._worker.submit(partial(self._index.forget_partitions, ranges), self._forgotten)

    def _forgotten(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._fatal(f"the index cannot be written: {error}")

    def note(self) -> None:
        """Something was applied: take a checkpoint in time."""
        size_bytes = self._memtables.newest.size_bytes() + self._state.changes.size_bytes
        if size_bytes >= self._settings.checkpoint_bytes and not self._busy:
            self._start(sync=False, on_done=None)
        elif not self._timer_set:
            self._timer_set = True
            self._loop.call_at(self._loop.now_ms() + self._settings.checkpoint_ms, self._on_timer)
        # decision 18: more has changed since the one under way was begun than memory should hold
        if self._busy and self._state.changes.size_bytes > self._settings.checkpoint_bytes + BEHIND_BYTES:
            self._backpressure.report(self, True)

    @property
    def is_late(self) -> bool:
        """Whether the next one is due before the one under way is written."""
        return self._busy and self._state.changes.size_bytes > self._settings.checkpoint_bytes

    def _on_timer(self) -> None:
        self._timer_set = False
        if self._busy:
            self.note()
        elif self._changed():
            self._start(sync=False, on_done=None)

    def unwritten_bytes(self) -> int:
        """Index and state in memory that no checkpoint holds yet, about."""
        frozen, changes = self._memtables.frozen, self._state.frozen
        gathered = self._memtables.newest.size_bytes() + self._state.changes.size_bytes
        return gathered + (frozen.size_bytes() if frozen else 0) + (changes.size_bytes if changes else 0)

    def take(self, on_done: Callable[[], None]) -> None:
        """Take one now and make it survive a power cut; `on_done` when it does."""
        if self._busy:
            self._waiting.append(partial(self.take, on_done))
        else:
            self._start(sync=True, on_done=on_done)

    def end(self, on_done: Callable[[], None]) -> None:
        """The last one. A disk that is full is not waited for: the next start replays what could not be written."""
        if self.full:
            on_done()
            return
        self._on_end = on_done
        self.take(self._ended)

    def _ended(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    def _changed(self) -> bool:
        return bool(len(self._memtables.newest.position) or self._state.changes.newest or self._watermarks.dirty)

    def _start(self, *, sync: bool, on_done: Callable[[], None] | None) -> None:
        assert not self._busy, "one checkpoint at a time"
        self._busy = True
        checkpoint = self.freeze()
        write = partial(self._write, checkpoint, sync)
        done = partial(self._written, write, on_done)
        if self._settings.fsync == "commit":
            self._worker.submit(write, done)
        else:
            self._log_worker.submit(self._log.sync, lambda _, error: self._synced(write, done, error))

    def _synced(self, write: Callable[[], list[bytes]],
                done: Callable[[list[bytes] | None, BaseException | None], None],
                error: BaseException | None) -> None:
        if error is not None:
            self._fatal(f"the log failed, nothing more can be promised: {error}")
            return
        self._worker.submit(write, done)

    def freeze(self) -> Checkpoint:
        """Take what has gathered away; reads look at it until it is written."""
        assert self._memtables.frozen is None and self._state.frozen is None, "what was frozen before is written"
        memtable, changes = self._memtables.freeze(), self._state.freeze()
        pages, consumed = self._watermarks.take_changes()
        positions = Positions(memtable.end, self.kept_end, self._next_id(), self._clock.append_ms)
        assert all(now >= then for now, then in zip(positions, self._frozen_at, strict=True)), "all of these rise"
        self._frozen_at = positions
        return Checkpoint(memtable, changes, pages, positions, consumed)

    def thaw(self) -> None:
        """What was frozen is in the store."""
        self._memtables.thaw()
        self._state.thaw()

    def _write(self, checkpoint: Checkpoint, sync: bool) -> list[bytes]:
        superseded = self._index.write(checkpoint, [*self._log.segments(), *self._log.kept_segments()], sync=sync)
        memtable = checkpoint.memtable
        memtable.stay_as(self._memtables.written.prepare(memtable.blocks, memtable.end))
        if self._projection is not None:
            start, self._projected = self._projected, checkpoint.positions.main
            self._projection.take(Step(self._identity.hub, self._identity.epoch, start, self._projected,
                                       changed_definitions(checkpoint.changes),
                                       lambda: whole_definitions(self._index.scan_state)))
        return superseded

    def _written(self, write: Callable[[], list[bytes]], on_done: Callable[[], None] | None,
                 superseded: list[bytes] | None, error: BaseException | None) -> None:
        if isinstance(error, StoreFull):
            self.postponed += 1
            self._disk_guard.note_lack()
            self.full = True
            self._loop.call_at(self._loop.now_ms() + FULL_RETRY_MS,
                               lambda: self._worker.submit(write, partial(self._written, write, on_done)))
            self._ended()
            return
        if superseded is None:
            self._fatal(f"the index cannot be written: {error}")
            return
        assert self._busy and self._memtables.frozen is not None, "a checkpoint ends once"
        self._busy = self.full = False
        self.taken += 1
        self.taken_ms = self._loop.now_ms()
        self.thaw()
        self._backpressure.report(self, False)
        self._on_superseded(superseded)
        if on_done is not None:
            on_done()
        if self._waiting and not self._busy:
            self._waiting.pop(0)()
