"""Backups that are being read: each a cut of the log and a few files beside it, held until it ends. And how such a cut
is taken.

    begin      retention is held back, the log cut, what lies beside it copied into memory
    read       pieces of its files, from any thread; segments are read where they lie
    end        asked for; or nobody has read for IDLE_MS; or the disk is full and retention could free some of it

A hub that ends forgets its backups: whoever reads one begins another, which has nothing to copy but what is new.
"""
from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from gatehouse.kernel.errors import KernelError, StorageFailed, TooManyBackups, UnknownBackup
from gatehouse.kernel.ids import Identity
from gatehouse.kernel.index.memtable import Checkpoints, Memtables
from gatehouse.kernel.log.log import Log, Segment
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.recovery.resuming import lineage_of
from gatehouse.kernel.retention.retention import Hold, Retention
from gatehouse.kernel.write.committer import Committer

# --- a cut of the log ---------------------------------------------------------------------------------------------

# The log as it is at one moment, for whoever copies it while the hub goes on.
#
# A cut is what a crash at that moment would leave behind, so a copy of it is opened as any log is. Its main chain ends
# where everything before has been applied, and is synced; its kept chain holds at least what that needs, since the
# kernel knows of kept records before it appends anything that rests on them. Segments but the newest never change, and
# the newest only grows: nothing needs to stop. Until `release` nothing of it is dropped.

class CutSegment(NamedTuple):
    """A segment as far as it belongs to the cut."""

    base: int
    size_bytes: int
    sealed: bool              # nothing will be added to it


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the log was cut."""

    at_ms: int                # by the wall clock
    epoch: int
    next_id: int              # the first message id that none in the cut has
    segments: tuple[CutSegment, ...]
    hold: Hold                # on retention, until the cut is released


OnCut = Callable[["Cut | None", "KernelError | None"], None]


def cut_chain(segments: list[Segment], end: int) -> list[CutSegment]:
    """A chain's segments up to a position: what was begun later, or added since, is not of it."""
    chain = [segment for segment in segments if segment.base < end]
    return [CutSegment(segment.base, segment.size_until(end), segment is not chain[-1])
            for segment in chain]


class Cutting:
    """Takes cuts, on the kernel's thread."""

    """`log_worker` syncs the log; `worker` is that which drops segments."""

    def __init__(self, *, loop: Loop, log_worker: Worker, worker: Worker, log: Log, memtables: Memtables,
                 retention: Retention, checkpoints: Checkpoints, committer: Committer, identity: Identity,
                 policy: str, fatal: Callable[[str], None]) -> None:
        self._loop = loop
        self._log_worker = log_worker
        self._worker = worker
        self._log = log
        self._memtables = memtables
        self._retention = retention
        self._checkpoints = checkpoints
        self._committer = committer
        self._identity = identity
        self._policy = policy
        self._fatal = fatal

    def take(self, on_done: OnCut, give_way: Callable[[], None]) -> None:  # decision 108
        """Call back with a cut, whose end `release` is told, or with what went wrong. `give_way` is called where the
        disk is full and something that the cut holds would go."""
        hold = self._retention.hold(give_way)
        # Behind a drop that is on its way: the list of segments must not hold one that is about to go.
        self._worker.submit(lambda: None, lambda _, error: self._taken(hold, on_done))

    def _taken(self, hold: Hold, on_done: OnCut) -> None:
        chains = (cut_chain(self._log.kept_segments(), self._checkpoints.kept_end)
                  + cut_chain(self._log.segments(), self._memtables.newest.end))
        cut = Cut(self._loop.wall_ms(), self._identity.epoch, self._committer.next_id, tuple(chains), hold)
        assert all(segment.size_bytes > 0 for segment in chains), "no segment begins behind the cut"
        if self._policy == "commit":
            on_done(cut, None)
        else:
            self._log_worker.submit(self._log.sync, partial(self._synced, cut, on_done))

    def _synced(self, cut: Cut, on_done: OnCut, _: None, error: BaseException | None) -> None:
        if error is not None:
            self.release(cut)
            on_done(None, StorageFailed(str(error)))
            self._fatal(f"the log failed, nothing more can be promised: {error}")
            return
        on_done(cut, None)

    def release(self, cut: Cut) -> None:
        """A cut is not needed any more."""
        self._retention.release(cut.hold)


# --- backups ------------------------------------------------------------------------------------------------------

MAX_BACKUPS: Final = 4             # read at the same time; each may hold all that is beside the log in memory
IDLE_MS: Final = 60_000
PIECE_BYTES: Final = 1 << 20       # the most that one `read` gives


class Copied(Protocol):
    """The log as files, as backups ask it for pieces of them."""

    def file_of(self, base: int) -> str: ...

    def copy(self, base: int, offset: int, size: int) -> bytes: ...


class BackupFile(NamedTuple):
    """One file of a backup."""

    name: str
    size_bytes: int
    sealed: bool               # a later backup has it with the same contents, or not at all
    base: int | None           # of the segment
    content: bytes             # where it is no segment


class Backup:
    """One backup from its beginning to its end."""

    def __init__(self, cut: Cut, files: list[BackupFile], read_ms: int) -> None:
        self.id = secrets.token_hex(8)
        self.cut = cut
        self.files = {file.name: file for file in files}
        self.read_ms = read_ms
        """When somebody was last seen to read it, by hub time."""


OnBegun = Callable[["Backup | None", "KernelError | None"], None]


class Backups:
    """`beside` is run by `worker` and gives the files beside the log; `about` is told with each backup as it is.
    Everything but `read` belongs to the kernel's thread."""

    def __init__(self, *, loop: Loop, worker: Worker, cutting: Cutting, identity: Identity, log: Copied,
                 beside: Callable[[], Mapping[str, bytes]], about: dict[str, Any]) -> None:
        self._loop = loop
        self._worker = worker
        self._cutting = cutting
        self._identity = identity
        self._log = log
        self._beside = beside
        self._about = about
        self._beginning = 0
        self._running: dict[str, Backup] = {}

    def __len__(self) -> int:
        """Backups that are being read."""
        return len(self._running)

    # ---- beginning

    def begin(self, on_begun: OnBegun) -> None:
        """Call back with a new backup, or StorageFailed. Raises TooManyBackups."""
        if len(self._running) + self._beginning >= MAX_BACKUPS:
            raise TooManyBackups(f"{MAX_BACKUPS} backups are being read already")
        self._beginning += 1
        self._cutting.take(partial(self._cut, on_begun), self.end_all)

    def _cut(self, on_begun: OnBegun, cut: Cut | None, error: KernelError | None) -> None:
        if cut is None:
            self._beginning -= 1
            on_begun(None, error)
            return
        self._worker.submit(self._beside, partial(self._begun, on_begun, cut))

    def _begun(self, on_begun: OnBegun, cut: Cut, beside: Mapping[str, bytes] | None, error: BaseException | None
               ) -> None:
        self._beginning -= 1
        if beside is None:
            self._cutting.release(cut)
            on_begun(None, StorageFailed(f"what lies beside the log cannot be copied: {error}"))
            return
        files = [BackupFile(self._log.file_of(segment.base), segment.size_bytes, segment.sealed, segment.base, b"")
                 for segment in cut.segments]
        files += [BackupFile(name, len(content), False, None, content) for name, content in beside.items()]
        backup = Backup(cut, files, self._loop.now_ms())
        self._running[backup.id] = backup
        self._watch(backup)
        on_begun(backup, None)

    def describe(self, backup: Backup) -> dict[str, Any]:
        """What a program is told of a backup that has begun."""
        identity, cut = self._identity, backup.cut
        return {"id": backup.id, **self._about, "hub": identity.hub.hex(), "lineage": lineage_of(identity.secret),
                "epoch": cut.epoch, "next_id": str(cut.next_id), "created": cut.at_ms,
                "files": [{"name": file.name, "bytes": file.size_bytes, "sealed": file.sealed}
                          for file in backup.files.values()]}

    # ---- reading

    def find(self, backup_id: str) -> Backup:
        """A backup that has begun and not ended; whoever asks for it is still there. Raises UnknownBackup."""
        backup = self._running.get(backup_id)
        if backup is None:
            raise UnknownBackup("there is no such backup, or it has ended: nobody read it for "
                                f"{IDLE_MS // 1000} s, the hub was started again, or its disk is full")
        self.note_reader(backup)
        return backup

    def is_running(self, backup: Backup) -> bool:
        """Whether what it consists of is still held."""
        return backup.id in self._running

    def note_reader(self, backup: Backup) -> None:
        """Somebody reads it now."""
        backup.read_ms = self._loop.now_ms()

    def read(self, file: BackupFile, offset: int, size: int) -> bytes:
        """Up to PIECE_BYTES of a file; fewer than asked for at its end, or where the backup has ended. Any thread."""
        size = max(0, min(size, PIECE_BYTES, file.size_bytes - offset))
        return file.content[offset:offset + size] if file.base is None else self._log.copy(file.base, offset, size)

    # ---- ending

    def end(self, backup_id: str) -> None:
        """Let go of a backup. Raises UnknownBackup."""
        self.find(backup_id)
        self._end(backup_id)

    def end_all(self) -> None:
        """Retention must be able to go on."""
        for backup_id in list(self._running):
            self._end(backup_id)

    def _end(self, backup_id: str) -> None:
        self._cutting.release(self._running.pop(backup_id).cut)

    def _watch(self, backup: Backup) -> None:
        self._loop.call_at(backup.read_ms + IDLE_MS, partial(self._look, backup))

    def _look(self, backup: Backup) -> None:
        if backup.id not in self._running:
            return
        if self._loop.now_ms() - backup.read_ms >= IDLE_MS:
            self._end(backup.id)
        else:
            self._watch(backup)
