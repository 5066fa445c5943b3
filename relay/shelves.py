"""Letters that a meeting point keeps on its disk for a hub that is away: one shelf for each way between two hubs.

    FOLDER/WAY/id               8 bytes: another one whenever letters were lost
    FOLDER/WAY/NUMBER.letters   entries from that number on: size u32 | crc32 u32 | entry

    entry := number u64 | kept at i64 | from 16 | topic text | letter

What is written is synced before anybody hears that it is held. A start reads every file; what is cut off or does not
check at the end of one is cut away: nobody was told of it. Whatever touches the disk is done by `work`, one after
another.
"""
from __future__ import annotations

import os
import shutil
import zlib
from collections import deque
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from gatehouse.relay.errors import BadFrame
from gatehouse.relay.fields import Fields, i64, text, u32, u64
from gatehouse.relay.frames import ADDRESS_BYTES, SPOOL_BYTES
from gatehouse.relay.spools import ENTRY_COST, Entry, Letter, NamedWay

FILE_BYTES: Final = 8 << 20
"""A file that has so much is followed by another."""

HEAD_BYTES: Final = 8
MAX_ENTRY_BYTES: Final = 1 << 29
SUFFIX: Final = ".letters"
NAME_BYTES: Final = 16

Work = Callable[[Callable[[], Any], Callable[[Any], None]], None]
"""Do the first beside, then call the second with its result, or with the OSError that it raised."""


class DiskShelves:
    """All of a meeting point, in one folder. See `spools.Shelves`."""

    def __init__(self, folder: Path, work: Work, chance: Callable[[int], bytes]) -> None:
        self._folder = folder
        self._work = work
        self._chance = chance

    def open(self, way: NamedWay) -> DiskShelf:
        """Raises OSError."""
        shelf = DiskShelf(self._folder_of(way), self._work, self._chance)
        shelf.load()
        return shelf

    def keep_only(self, ways: set[NamedWay]) -> None:
        """Raises OSError."""
        wanted = {self._folder_of(way) for way in ways}
        if self._folder.is_dir():
            for there in self._folder.iterdir():
                if there.is_dir() and there not in wanted and len(there.name) == 2 * NAME_BYTES:
                    shutil.rmtree(there)

    def _folder_of(self, way: NamedWay) -> Path:
        return self._folder / blake2b("\0".join(way).encode(), digest_size=NAME_BYTES).hexdigest()


class DiskShelf:
    """What is kept for one way. `load` before anything else."""

    def __init__(self, folder: Path, work: Work, chance: Callable[[int], bytes]) -> None:
        self.folder = folder
        self.entries: deque[Entry] = deque()
        self.id = b""
        self.used_bytes = 0                  # what is on its way to the disk included
        self.unwritten_bytes = 0
        self.fault = ""
        self._work = work
        self._chance = chance
        self._next = 0
        self._file: Path | None = None
        self._file_bytes = 0
        self._waiting: list[Letter] = []
        self._writing = False
        self._cleared = 0

    # ---- at the start

    def load(self) -> None:
        """Read what is there. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stamp = self.folder / "id"
        self.id = stamp.read_bytes() if stamp.exists() else b""
        if len(self.id) != SPOOL_BYTES:
            self._write_id(self._chance(SPOOL_BYTES))
        for file in sorted(self.folder.glob("*" + SUFFIX)):
            before = len(self.entries)
            self._load_file(file)
            if len(self.entries) == before:
                file.unlink()

    def _load_file(self, file: Path) -> None:
        data, at = file.read_bytes(), 0
        while len(data) - at >= HEAD_BYTES:
            size, check = int.from_bytes(data[at:at + 4], "big"), int.from_bytes(data[at + 4:at + 8], "big")
            body = data[at + HEAD_BYTES:at + HEAD_BYTES + size]
            if size > MAX_ENTRY_BYTES or len(body) != size or zlib.crc32(body) != check:
                break
            try:
                fields = Fields(body)
                number, kept_ms, sender, topic = fields.u64(), fields.i64(), fields.take(ADDRESS_BYTES), fields.text()
            except BadFrame:
                break
            at += HEAD_BYTES + size
            self._add(Entry(number, kept_ms, sender, topic, file, at - fields.left, fields.left))
            self._next = max(self._next, number + 1)
        if at < len(data):
            os.truncate(file, at)

    def _write_id(self, new: bytes) -> None:
        beside = self.folder / "id.new"
        with beside.open("wb") as file:
            file.write(new)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.folder / "id")
        _sync_folder(self.folder)
        self.id = new

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.used_bytes += entry.cost

    # ---- keeping

    def keep(self, letter: Letter, now_ms: int) -> None:
        """Write it; `letter.held` is called once it is on the disk, or cannot be."""
        self.used_bytes += len(letter.payload) + ENTRY_COST
        self.unwritten_bytes += len(letter.payload) + ENTRY_COST
        self._waiting.append(letter)
        self._write(now_ms)

    def _write(self, now_ms: int) -> None:
        if self._writing or not self._waiting:
            return
        self._writing = True
        letters, self._waiting = self._waiting, []
        if self._file is None or self._file_bytes >= FILE_BYTES:
            self._file, self._file_bytes = self.folder / f"{self._next:020d}{SUFFIX}", 0
        file, at, parts, entries = self._file, self._file_bytes, [], []
        for letter in letters:
            front = u64(self._next) + i64(now_ms) + letter.sender + text(letter.topic)
            body = front + letter.payload
            parts.append(u32(len(body)) + u32(zlib.crc32(body)) + body)
            entries.append(Entry(self._next, now_ms, letter.sender, letter.topic, file, at + HEAD_BYTES + len(front),
                                 len(letter.payload)))
            at += HEAD_BYTES + len(body)
            self._next += 1
        begun, cleared, data = self._file_bytes, self._cleared, b"".join(parts)
        self._file_bytes = at

        def written(error: Any) -> None:
            self._writing = False
            size_bytes = sum([entry.cost for entry in entries])
            self.used_bytes -= size_bytes
            self.unwritten_bytes -= size_bytes
            failed = error is not None or cleared != self._cleared
            if error is not None:
                self.fault = str(error)
                self._file = None            # what was written of it in part is cut away at the next start
            elif not failed:
                self.fault = ""
                for entry in entries:
                    self._add(entry)
            for letter in letters:
                letter.held(not failed)
            self._write(now_ms)

        self._work(lambda: _append(file, begun, data), written)

    # ---- giving

    def read(self, entries: list[Entry], then: Callable[[list[bytes] | None], None]) -> None:
        """The letters of these; None where they cannot be read, or are gone."""
        self._work(lambda: [_read(entry) for entry in entries],
                   lambda letters: then(letters if isinstance(letters, list) else None))

    def take(self, number: int) -> int:
        """Forget the letters before this one; returns what they cost."""
        gone: list[Entry] = []
        while self.entries and self.entries[0].number < number:
            entry = self.entries.popleft()
            self.used_bytes -= entry.cost
            gone.append(entry)
        kept = self.entries[0].file if self.entries else None
        files = {entry.file for entry in gone} - {kept}
        if self._file in files:
            if self._writing:
                files.discard(self._file)
            else:
                self._file = None
        if files:
            self._work(partial(_unlink, files), lambda _: None)
        return sum([entry.cost for entry in gone])

    def clear(self) -> None:
        """Forget everything, under another id: what follows is not what went before."""
        self._cleared += 1
        files = {entry.file for entry in self.entries} | ({self._file} if self._file is not None else set())
        self.used_bytes -= sum([entry.cost for entry in self.entries])
        self.entries.clear()
        self._file = None
        new = self._chance(SPOOL_BYTES)
        self.id = new

        def away() -> None:
            self._write_id(new)
            _unlink(files)

        self._work(away, lambda _: None)


def _append(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b" if at else "wb") as open_file:
        open_file.seek(at)
        open_file.write(data)
        open_file.flush()
        os.fsync(open_file.fileno())
    if not at:
        _sync_folder(file.parent)


def _unlink(files: set[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(entry: Entry) -> bytes:
    with entry.file.open("rb") as file:
        file.seek(entry.at)
        letter = file.read(entry.size_bytes)
    if len(letter) != entry.size_bytes:
        raise OSError(f"{entry.file} is shorter than it was")
    return letter
