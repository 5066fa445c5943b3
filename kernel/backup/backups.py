"""Backups that are being read: each a cut of the log and a few files beside it, held until it ends.

    begin      retention is held back, the log cut, what lies beside it copied into memory
    read       pieces of its files, from any thread; segments are read where they lie
    end        asked for; or nobody has read for IDLE_MS; or the disk is full and retention could free some of it

A hub that ends forgets its backups: whoever reads one begins another, which has nothing to copy but what is new.
"""
from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from gatehouse.kernel.backup.cut import Cut, Cutting
from gatehouse.kernel.errors import KernelError, StorageFailed, TooManyBackups, UnknownBackup
from gatehouse.kernel.identity import Identity
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.recovery.resuming import lineage_of

MAX_BACKUPS: Final = 4             # read at the same time; each may hold all that is beside the log in memory
IDLE_MS: Final = 60_000
PIECE_BYTES: Final = 1 << 20       # the most that one `read` gives


class Copied(Protocol):
    """The log as files."""

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

    def __init__(self, cut: Cut, files: list[BackupFile]) -> None:
        self.id = secrets.token_hex(8)
        self.cut = cut
        self.files = {file.name: file for file in files}
        self.read_ms = cut.at_ms


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
        backup = Backup(cut, files)
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
