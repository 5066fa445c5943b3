"""Group commit: one frame at a time goes to the log; what arrives meanwhile gathers into the next.

    append ... append     fill the pending frame, in the order of arrival
    flush                 at the end of the turn, or when the frame before is durable: seal, write, fdatasync on the
                          log's thread
    applied               back on the kernel's thread: memory, then answers, then deliveries; then the next flush

A frame that finds the disk full fails, and with it everything gathered behind it, since that may build on it; where
some of that frees more than it takes, the reserve is given up and the frame is tried again before. Any other failure of
the disk ends the process: what it would answer from here on could not be believed.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from gatehouse.kernel.clock import Clock
from gatehouse.kernel.errors import KernelError, Stopping, StorageFull
from gatehouse.kernel.ids import shard_of
from gatehouse.kernel.log.disk_guard import DiskGuard
from gatehouse.kernel.log.frame import encode_head
from gatehouse.kernel.log.log import Log, LogFull
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.write.batch_builder import Sealed
from gatehouse.kernel.write.pending_frame import PendingFrame

SYNC_INTERVAL_MS: Final = 1_000


class Durable(NamedTuple):
    """A frame that is in the log for good."""

    pending_frame: PendingFrame
    sealed: Sealed
    position: int
    end: int


class Flushed(Protocol):
    """Who makes a pending_frame into a frame and is told what became of it; the kernel."""

    def seal(self, pending_frame: PendingFrame, first_id: int) -> Sealed:
        """Give records their offsets and complete the state records. The frame before has been applied."""

    def applied(self, frame: Durable) -> None: ...

    def answer(self, pending_frame: PendingFrame) -> None:
        """Nothing had to be stored for these; everything before them is durable."""

    def failed(self, pending_frames: list[PendingFrame], error: KernelError) -> None:
        """None of this was stored."""


class Committer:
    """Owns the pending_frame and the flight; see above."""

    def __init__(self, loop: Loop, worker: Worker, log: Log, flushed: Flushed, *, policy: str, epoch: int, next_id: int,
                 pending_bytes: int, disk_guard: DiskGuard, clock: Clock, fatal: Callable[[str], None]) -> None:
        self._loop = loop
        self._clock = clock
        clock.start(self.open_frame)
        self._worker = worker
        self._log = log
        self._flushed = flushed
        self._policy = policy
        self._epoch = epoch
        self._pending_bytes = pending_bytes
        self._disk_guard = disk_guard
        self._fatal = fatal
        self._pending_frame: PendingFrame | None = None
        self._scheduled = False
        self._relief: list[Callable[[], None]] = []
        self._unsynced = False
        self._failed = False
        self._on_idle: Callable[[], None] | None = None
        self.flight: PendingFrame | None = None
        self.next_id = next_id
        self._end = 0                            # of the newest frame in the log
        self._append_ms = 0                      # of the newest frame that was sealed
        self.congested = False
        self.short = False                       # the hub lives from its reserve: no messages are taken
        self.on_congestion: Callable[[bool], None] = lambda congested: None
        self.is_behind: Callable[[], bool] = lambda: False       # set by the kernel: something does not keep pace
        self.flushes = 0
        self.flushed_bytes = 0

    # ---- pending_frame

    def open_frame(self) -> PendingFrame:
        """What the next frame will be made of; a flush is on its way. Raises Stopping after `stop`."""
        if self._on_idle is not None:
            raise Stopping("the hub is shutting down")
        pending_frame = self._pending_frame
        if pending_frame is None:
            now_ms = self._loop.now_ms()
            pending_frame = self._pending_frame = PendingFrame(self._clock.append_time(now_ms), now_ms)
            if self.is_behind():             # once a frame: it changes with frames
                self._become_congested(True)
            if self.flight is None and not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._flush)
        return pending_frame

    def take_id(self) -> int:
        """A message id that no message gets: the next frame gives out those behind it."""
        self.next_id += 1
        return self.next_id - 1

    def pending(self) -> list[PendingFrame]:
        """What is not applied yet: the frame on its way, and the pending one."""
        return [frame for frame in (self.flight, self._pending_frame) if frame is not None]

    def note_size(self) -> None:
        """Call after adding to the pending_frame: too much of it, and publishers are to be left unread."""
        if not self.congested and self._is_large():
            self._become_congested(True)

    def _is_large(self) -> bool:
        return self._pending_frame is not None and self._pending_frame.builder.size_bytes > self._pending_bytes

    def note_behind(self) -> None:
        """Call where `is_behind` may have become true; call `relieve` where it may not be any more."""
        if not self.congested and self.is_behind():
            self._become_congested(True)

    def _become_congested(self, congested: bool) -> None:
        self.congested = congested
        self.on_congestion(congested)

    def become_short(self, short: bool) -> None:
        self.short = short

    def on_relief(self, callback: Callable[[], None]) -> None:
        self._relief.append(callback)

    # ---- flushing

    def _flush(self) -> None:  # decision 1
        self._scheduled = False
        pending_frame = self._pending_frame
        if self._failed or self.flight is not None or pending_frame is None:
            return
        self._pending_frame = None
        if pending_frame.stores_nothing:
            self._flushed.answer(pending_frame)
            self._next()
            return
        pending_frame.state += self._clock.records()
        first_id = self.next_id
        sealed = self._flushed.seal(pending_frame, first_id)
        self.next_id += sealed.id_count
        assert self.next_id >= first_id, "ids rise"
        assert shard_of(self.next_id) == shard_of(first_id), "the shard has no message ids left"
        append_ms = pending_frame.builder.now_ms
        assert append_ms >= self._append_ms, "append time never falls"
        self._append_ms = append_ms
        head = encode_head(self._epoch, append_ms, first_id, sealed.id_count, sealed.entries,
                           pending_frame.state)
        self.flight = pending_frame
        self._submit(pending_frame, sealed, head, False)
        self.relieve()

    def _submit(self, pending_frame: PendingFrame, sealed: Sealed, head: bytes, again: bool) -> None:
        self._worker.submit(partial(self._write, head, sealed.body),
                            partial(self._written, pending_frame, sealed, head, again))

    def _write(self, head: bytes, body: bytes) -> tuple[int, int]:
        """On the log's thread."""
        position = self._log.append(head, body)
        if self._policy == "commit":
            self._log.sync()
        return position, self._log.end()

    def _written(self, pending_frame: PendingFrame, sealed: Sealed, head: bytes, again: bool,
                 place: tuple[int, int] | None,
                 error: BaseException | None) -> None:
        if isinstance(error, LogFull) and not again and any(frame.frees for frame in self.pending()):
            self._disk_guard.lend_emergency_reserve(partial(self._submit, pending_frame, sealed, head, True))
            return
        assert self.flight is pending_frame, "one frame is on its way at a time"
        self.flight = None
        if place is None:
            self._refused(pending_frame, error)
            return
        if self._disk_guard.full:
            self._disk_guard.note_stored()
        assert self._end <= place[0] <= place[1], "positions rise"
        self._end = place[1]
        self.flushes += 1
        self.flushed_bytes += len(sealed.body)
        self._flushed.applied(Durable(pending_frame, sealed, place[0], place[1]))
        if self._policy == "interval":
            self._sync_later()
        self._next()

    def _next(self) -> None:
        if self._pending_frame is not None:
            self._flush()
        elif self._on_idle is not None and self.flight is None:
            self._on_idle()

    def _refused(self, pending_frame: PendingFrame, error: BaseException | None) -> None:
        if not isinstance(error, LogFull):
            self._fail(error)
            return
        self._disk_guard.note_full()
        self._clock.refused()
        failed = [pending_frame]
        if self._pending_frame is not None:
            failed.append(self._pending_frame)
            self._pending_frame = None
        self._flushed.failed(failed, StorageFull(f"the disk is full: {error}"))
        self.relieve()
        self._next()

    def relieve(self) -> None:
        """Publishers are read again, unless there is too much still."""
        if self.congested and not self._is_large() and not self.is_behind():
            self._become_congested(False)
            waiting, self._relief = self._relief, []
            for callback in waiting:
                callback()

    # ---- the relaxed policy

    def _sync_later(self) -> None:
        if not self._unsynced:
            self._unsynced = True
            self._loop.call_at(self._loop.now_ms() + SYNC_INTERVAL_MS, self._sync_now)

    def _sync_now(self) -> None:
        self._unsynced = False
        self._worker.submit(self._log.sync, self._synced)

    def _synced(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException | None) -> None:  # decision 7
        """The process ends; until it has, nothing more goes to the log, whose next sync might say that all is well."""
        self._failed = True
        self._fatal(f"the log failed, nothing more can be promised: {error}")

    # ---- the end

    def stop(self, on_idle: Callable[[], None]) -> None:
        """Take nothing new; call back when everything gathered is flushed and answered."""
        self._on_idle = on_idle
        if self.flight is None and self._pending_frame is None:
            on_idle()
