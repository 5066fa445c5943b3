"""Space on the disk: who finds none says so, and the reserve is given up where that lets retention free some.

    full        a frame, what retention moves or a checkpoint did not fit; a second later retention looks what it can do
    short       the reserve is given up: no messages are taken, all else is, until it is held again
    lent        its last part is, too: for frames that let go of what the log must keep, half messages that are rolled
                back. Retention moves next to nothing then, which could take up all of it and free nothing
    held        every second while short, once retention has nothing under way and no checkpoint waits, both are tried
                for, the last part first
    refusing    what people are told: from the first refused frame, or from short, on, until both parts are held or
                frames have fitted again for a while. A small one may fit where a large one does not: that is no end

The reserve is a file that holds room on the disk, for the day on which there is none left. To free space the hub must
write a little first: watermarks, deletions, the index. So on a full disk it gives this file up, takes no messages while
it lives from it (else they would have the room at once), lets retention do its work and acknowledgements settle what is
owed, and takes the file again as soon as it fits.
"""
from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from gatehouse.kernel.errors import StorageFull
from gatehouse.kernel.ports import Loop, Notices, Worker

LOOK_MS: Final = 1_000
CALM_MS: Final = 10_000          # nothing is refused for so long, or it goes on: two log lines in that time at most
PIECE_BYTES: Final = 1 << 20
NOT_THERE: Final = frozenset((errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))      # file systems without allocation
DISK_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
NO_FILES: Final = frozenset((errno.EMFILE, errno.ENFILE))      # no descriptor is free, here or on the machine
NO_ROOM: Final = DISK_FULL | NO_FILES                          # what may be tried again later


class Reserve(Protocol):
    """Both calls may block, and come from one thread at a time."""

    def take(self) -> bool:
        """Hold the room; False where it is not there."""

    def give_up(self) -> bool:
        """Let go of it; False where it was not held."""


class NoReserve:
    """Where nothing is to be held back."""

    def take(self) -> bool:
        return True

    def give_up(self) -> bool:
        return False


class ReserveFile:
    """A `Reserve` of `size_bytes` in the data directory; its blocks are allocated and never read."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self._size_bytes = size_bytes

    def take(self) -> bool:
        """Raises OSError for anything but a lack of room."""
        if self._held_bytes() >= self._size_bytes:
            return True
        self.give_up()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._allocate(descriptor)
        except OSError as error:
            self.give_up()
            if error.errno not in DISK_FULL:
                raise
            return False
        finally:
            os.close(descriptor)
        return True

    def _allocate(self, descriptor: int) -> None:
        try:
            os.posix_fallocate(descriptor, 0, self._size_bytes)
        except OSError as error:
            if error.errno not in NOT_THERE:
                raise
            for at in range(0, self._size_bytes, PIECE_BYTES):
                os.pwrite(descriptor, bytes(min(PIECE_BYTES, self._size_bytes - at)), at)

    def give_up(self) -> bool:
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            return False
        return True

    def _held_bytes(self) -> int:
        """What is allocated: a copied file may have holes, one that a crash cut off is too short."""
        try:
            return self._path.stat().st_blocks * 512
        except FileNotFoundError:
            return 0


class DiskGuard:
    """`worker` does what blocks. `look` makes retention look; `is_settled` says that nothing waits for room."""

    def __init__(self, *, loop: Loop, worker: Worker, reserve: Reserve | None, emergency_reserve: Reserve | None,
                 look: Callable[[], None], is_settled: Callable[[], bool], notices: Notices) -> None:
        self._loop = loop
        self._worker = worker
        self._reserve = reserve or NoReserve()
        self._last = emergency_reserve or NoReserve()
        self._look = look
        self._is_settled = is_settled
        self._notices = notices
        self._timer_set = False
        self.full = False                    # since something did not fit, nothing has
        self.short = False
        self.lent = False
        self.kept_full = False               # what is kept beyond retention is at its limit, and nothing of it is dead
        self.refusing = False
        self._refused_lately = False
        self._calm_set = False

    def require(self) -> None:
        """Before messages are taken. Raises StorageFull."""
        if self.short:
            self.refuse()

    @staticmethod
    def refuse() -> None:
        """Raises StorageFull."""
        raise StorageFull("the disk is full; no messages are taken until there is room")

    def open(self) -> None:
        """Hold the reserve, or be short from the beginning. Blocks; raises OSError."""
        if not all(self._take()):
            self._become(True)
            self._look_later()

    def _take(self) -> tuple[bool, bool]:
        """Whether the last part is held, and the rest."""
        last = self._last.take()
        return last, last and self._reserve.take()

    def note_full(self) -> None:
        """A frame did not fit, and whoever sent it was told so."""
        self._refused_lately = True
        self._tell(True)
        self.note_lack()

    def note_lack(self) -> None:
        """What the hub itself writes did not fit."""
        self.full = True
        self._look_later()

    def note_kept_full(self, full: bool) -> None:
        """Whether nothing is taken that retention would have to keep."""
        self.kept_full = full

    def note_stored(self) -> None:
        """A frame fitted."""
        self.full = False
        if self.refusing:
            self._be_calm_later()

    def make(self, then: Callable[[], None]) -> None:  # decision 110
        """Give the reserve up, unless it is; then go on."""
        if not self.full or self.short and not self.lent:
            then()
        else:
            self._worker.submit(self._reserve.give_up, partial(self._given_up, then))

    def _given_up(self, then: Callable[[], None], was_held: bool | None, error: BaseException | None) -> None:
        if error is not None:
            self._notices.on_reserve_failure(error)
        elif was_held:
            self._become(True)
            self._look_later()
        then()

    def lend_emergency_reserve(self, then: Callable[[], None]) -> None:  # decision 112
        """Give up what is held for what frees more than it takes: the last part, else the rest. Go on in any case:
        somebody may just have been trying to take the room."""
        self.note_lack()
        self._worker.submit(lambda: self._last.give_up() or self._reserve.give_up(), partial(self._lent, then))

    def _lent(self, then: Callable[[], None], was_held: bool | None, error: BaseException | None) -> None:
        self.lent = self.lent or was_held is True
        self._given_up(then, was_held, error)

    def _become(self, short: bool) -> None:
        if short == self.short:
            return
        self.short = short
        self._tell(short)

    # ---- what people are told

    def _tell(self, refusing: bool) -> None:
        if refusing != self.refusing:
            self.refusing = refusing
            self._notices.on_refusing(refusing)

    def _be_calm_later(self) -> None:
        if not self._calm_set:
            self._calm_set = True
            self._refused_lately = False
            self._loop.call_at(self._loop.now_ms() + CALM_MS, self._on_calm)

    def _on_calm(self) -> None:
        """What is full now is looked at again once a frame fits, what is short once both parts are held."""
        self._calm_set = False
        if self.full or self.short:
            return
        if self._refused_lately:
            self._be_calm_later()
        else:
            self._tell(False)

    # ---- a second later

    def _look_later(self) -> None:
        if not self._timer_set:
            self._timer_set = True
            self._loop.call_at(self._loop.now_ms() + LOOK_MS, self._on_timer)

    def _on_timer(self) -> None:
        self._timer_set = False
        if self.short and self._is_settled():
            self._worker.submit(self._take, self._tried)
        else:
            self._look()
            if self.short:
                self._look_later()

    def _tried(self, held: tuple[bool, bool] | None, error: BaseException | None) -> None:
        if error is not None:
            self._notices.on_reserve_failure(error)
        last, rest = held or (False, False)
        self.lent = self.lent and not last
        assert last or not rest, "the last part is held first"
        if last and rest:
            self.full = False
            self._become(False)
        else:
            self._look()
            self._look_later()
