"""Group commit: one frame at a time goes to the log; what arrives meanwhile gathers into the next.

    append ... append     gather, in the order of arrival
    flush                 at the end of the turn, or when the frame before is durable: seal, write, fdatasync on the
    log's thread applied               back on the kernel's thread: memory, then answers, then deliveries; then the next
    flush

A frame that finds the disk full fails, and with it everything gathered behind it, since that may build on it; where
some of that frees more than it takes, the reserve is given up and the frame is tried again before. Any other failure of
the disk ends the process: what it would answer from here on could not be believed.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from kernel.appending.burst import Sealed
from kernel.appending.gathering import Gathering
from kernel.clock import Clock
from kernel.errors import KernelError, Stopping, StorageFull
from kernel.log.frame import encode_head
from kernel.log.log import Log, LogFull
from kernel.log.room import Room
from kernel.ports import Loop, Worker

SYNC_INTERVAL_MS: Final = 1_000


class Durable(NamedTuple):
    """A frame that is in the log for good."""

    gathering: Gathering
    sealed: Sealed
    position: int
    end: int


class Flushed(Protocol):
    """Who makes a gathering into a frame and is told what became of it; the kernel."""

    def seal(self, gathering: Gathering, first_id: int) -> Sealed:
        """Give records their offsets and complete the state records. The frame before has been applied."""

    def applied(self, frame: Durable) -> None: ...

    def answer(self, gathering: Gathering) -> None:
        """Nothing had to be stored for these; everything before them is durable."""

    def failed(self, gatherings: list[Gathering], error: KernelError) -> None:
        """None of this was stored."""


class Committer:
    """Owns the gathering and the flight; see above."""

    def __init__(self, loop: Loop, worker: Worker, log: Log, flushed: Flushed, *, policy: str, epoch: int, next_id: int,
                 pending_bytes: int, room: Room, clock: Clock, fatal: Callable[[str], None]) -> None:
        self._loop = loop
        self._clock = clock
        clock.start(self.gather)
        self._worker = worker
        self._log = log
        self._flushed = flushed
        self._policy = policy
        self._epoch = epoch
        self._pending_bytes = pending_bytes
        self._room = room
        self._fatal = fatal
        self._gathering: Gathering | None = None
        self._scheduled = False
        self._relief: list[Callable[[], None]] = []
        self._unsynced = False
        self._failed = False
        self._on_idle: Callable[[], None] | None = None
        self.flight: Gathering | None = None
        self.next_id = next_id
        self.congested = False
        self.short = False                       # the hub lives from its reserve: no messages are taken
        self.on_congestion: Callable[[bool], None] = lambda congested: None
        self.is_behind: Callable[[], bool] = lambda: False       # set by the kernel: others do not keep pace
        self.flushes = 0
        self.flushed_bytes = 0

    # ---- gathering

    def gather(self) -> Gathering:
        """What the next frame will be made of; a flush is on its way. Raises Stopping after `stop`."""
        if self._on_idle is not None:
            raise Stopping("the hub is shutting down")
        gathering = self._gathering
        if gathering is None:
            now_ms = self._loop.now_ms()
            gathering = self._gathering = Gathering(self._clock.append_time(now_ms), now_ms)
            if self.is_behind():             # once a frame: it changes with frames
                self._become_congested(True)
            if self.flight is None and not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._flush)
        return gathering

    def pending(self) -> list[Gathering]:
        """What is not applied yet: the frame on its way, and the one being gathered."""
        return [one for one in (self.flight, self._gathering) if one is not None]

    def note_size(self) -> None:
        """Call after adding to the gathering: too much of it, and publishers are to be left unread."""
        if not self.congested and self._gathering is not None \
                and self._gathering.burst.size_bytes > self._pending_bytes:
            self._become_congested(True)

    def _become_congested(self, congested: bool) -> None:
        self.congested = congested
        self.on_congestion(congested)

    def on_relief(self, callback: Callable[[], None]) -> None:
        self._relief.append(callback)

    # ---- flushing

    def _flush(self) -> None:
        self._scheduled = False
        gathering = self._gathering
        if self._failed or self.flight is not None or gathering is None:
            return
        self._gathering = None
        if gathering.stores_nothing:
            self._flushed.answer(gathering)
            self._next()
            return
        gathering.state += self._clock.records()
        first_id = self.next_id
        sealed = self._flushed.seal(gathering, first_id)
        self.next_id += sealed.id_count
        head = encode_head(self._epoch, gathering.burst.now_ms, first_id, sealed.id_count, sealed.entries,
                           gathering.state)
        self.flight = gathering
        self._submit(gathering, sealed, head, False)
        self.relieve()

    def _submit(self, gathering: Gathering, sealed: Sealed, head: bytes, again: bool) -> None:
        self._worker.submit(partial(self._write, head, sealed.body),
                            partial(self._written, gathering, sealed, head, again))

    def _write(self, head: bytes, body: bytes) -> tuple[int, int]:
        """On the log's thread."""
        position = self._log.append(head, body)
        if self._policy == "commit":
            self._log.sync()
        return position, self._log.end()

    def _written(self, gathering: Gathering, sealed: Sealed, head: bytes, again: bool, place: tuple[int, int] | None,
                 error: BaseException | None) -> None:
        if isinstance(error, LogFull) and not again and any(one.frees for one in self.pending()):
            self._room.lend(partial(self._submit, gathering, sealed, head, True))
            return
        self.flight = None
        if place is None:
            self._refused(gathering, error)
            return
        if self._room.full:
            self._room.note_stored()
        self.flushes += 1
        self.flushed_bytes += len(sealed.body)
        self._flushed.applied(Durable(gathering, sealed, place[0], place[1]))
        if self._policy == "interval":
            self._sync_later()
        self._next()

    def _next(self) -> None:
        if self._gathering is not None:
            self._flush()
        elif self._on_idle is not None and self.flight is None:
            self._on_idle()

    def _refused(self, gathering: Gathering, error: BaseException | None) -> None:
        if not isinstance(error, LogFull):
            self._fail(error)
            return
        self._room.note_full()
        self._clock.refused()
        failed = [gathering]
        if self._gathering is not None:
            failed.append(self._gathering)
            self._gathering = None
        self._flushed.failed(failed, StorageFull(f"the disk is full: {error}"))
        self.relieve()
        self._next()

    def relieve(self) -> None:
        """Publishers are read again, unless there is too much still."""
        if self.congested and not self.is_behind():
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

    def _fail(self, error: BaseException | None) -> None:
        """The process ends; until it has, nothing more goes to the log, whose next sync might say that all is well."""
        self._failed = True
        self._fatal(f"the log failed, nothing more can be promised: {error}")

    # ---- the end

    def stop(self, on_idle: Callable[[], None]) -> None:
        """Take nothing new; call back when everything gathered is flushed and answered."""
        self._on_idle = on_idle
        if self.flight is None and self._gathering is None:
            on_idle()
