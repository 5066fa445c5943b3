"""The few things the log asks of a disk, and the real disk. The simulator has another one, which forgets and tears.

Names are relative to one folder. Errors are OSError as the operating system gives them.
"""
from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

AHEAD_BYTES: Final = 4 << 20      # allocated beyond what is written: once in so many bytes, and little to look through
LARGE_BYTES: Final = 4 << 20      # what is more is written in pieces; there is never room allocated for it
PIECE_BYTES: Final = 1 << 20


class AppendFile(Protocol):
    """A file that only grows."""

    def append(self, parts: Sequence[bytes]) -> None:
        """Write all parts at the end, or raise; after an error the end is unknown until `truncate`.

        A crash may leave zeros behind the end.
        """

    def descriptor_for(self, size: int) -> int | None:
        """Where somebody else may write so many bytes at the end, and then call `grown`, or `truncate` where that
        failed. None where only `append` can: there is no room allocated for them, or no descriptor."""

    def grown(self, size: int) -> None:
        """So many bytes were written there."""

    def sync(self) -> None:
        """fdatasync: on return, what was appended survives a power cut."""

    def overwrite(self, offset: int, data: bytes) -> None:
        """Write over bytes that are there."""

    def truncate(self, size: int) -> None:
        """Nothing is behind `size` any more, zeros included."""

    def close(self) -> None: ...


class ReadFile(Protocol):
    def ask(self, offset: int, size: int) -> None:
        """Have the system read exactly these bytes, and nothing that it guesses to come next; `read` follows."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only at the end of the file."""

    def size(self) -> int: ...

    def close(self) -> None: ...


class Disk(Protocol):
    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted; the folder is made where it is missing."""

    def open_append(self, name: str) -> AppendFile:
        """Open at its end, made where it is missing."""

    def open_read(self, name: str) -> ReadFile: ...

    def remove(self, name: str) -> None: ...

    def move(self, name: str, new_name: str) -> None:
        """To a name that no file has, in a folder that is there."""

    def sync_folder(self, folder: str) -> None:
        """On return, files made in and removed from the folder stay so after a power cut."""


class RealAppendFile:  # decision 111
    """Room is allocated ahead of what is written: then `fdatasync` need not store a new length each time, which is a
    third of its cost (`python -m bench.preallocation`). Behind the end there are zeros until `truncate` or `close`."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._end = self._allocated = os.fstat(self._fd).st_size
        self._large_at: int | None = None            # where something large begins that is not synced

    def append(self, parts: Sequence[bytes]) -> None:
        size = sum([len(part) for part in parts])
        if self._end + size > self._allocated:
            self._allocate(size)
        if size > LARGE_BYTES:
            self._write_in_pieces(parts)
        else:
            self._write(parts)

    def _write_in_pieces(self, parts: Sequence[bytes]) -> None:  # decision 320
        """The disk has a piece while the next is copied into the page cache."""
        if self._large_at is None:
            self._large_at = self._end
        for part in parts:
            whole = memoryview(part)
            for at in range(0, len(part), PIECE_BYTES):
                start = self._end
                self._write([whole[at:at + PIECE_BYTES]])
                os.posix_fadvise(self._fd, start, self._end - start, os.POSIX_FADV_DONTNEED)

    def _write(self, parts: Sequence[bytes | memoryview]) -> None:
        written = os.pwritev(self._fd, parts, self._end)
        self._end += written
        for part in parts:
            if written >= len(part):
                written -= len(part)
                continue
            rest = memoryview(part)[written:]
            written = 0
            while rest:
                taken = os.pwrite(self._fd, rest, self._end)
                self._end += taken
                rest = rest[taken:]

    def _allocate(self, size: int) -> None:
        """A disk that has no room for it may still have some for what is to be written: that is for `append` to say."""
        wanted = self._end + size + AHEAD_BYTES
        with contextlib.suppress(OSError):
            os.posix_fallocate(self._fd, self._allocated, wanted - self._allocated)
        self._allocated = wanted

    def descriptor_for(self, size: int) -> int | None:
        return self._fd if self._end + size <= self._allocated else None

    def grown(self, size: int) -> None:
        self._end += size

    def sync(self) -> None:
        os.fdatasync(self._fd)
        if self._large_at is not None:               # its pages are for the next one
            os.posix_fadvise(self._fd, self._large_at, self._end - self._large_at, os.POSIX_FADV_DONTNEED)
            self._large_at = None

    def overwrite(self, offset: int, data: bytes) -> None:
        os.pwrite(self._fd, data, offset)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._end = self._allocated = size
        self._large_at = None

    def close(self) -> None:
        """Give back what was allocated and not used."""
        try:
            if self._allocated > self._end:
                os.ftruncate(self._fd, self._end)
        finally:
            os.close(self._fd)


class RealReadFile:
    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def ask(self, offset: int, size: int) -> None:
        os.posix_fadvise(self._fd, offset, size, os.POSIX_FADV_WILLNEED)

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        while 0 < len(data) < size:
            more = os.pread(self._fd, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        os.close(self._fd)


class RealDisk:
    """A folder of the file system."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, folder: str) -> list[str]:
        path = self._root / folder
        if not path.is_dir():
            path.mkdir(mode=0o700, parents=True)
            self._sync(path.parent)
        return sorted(entry.name for entry in path.iterdir() if entry.is_file())

    def open_append(self, name: str) -> RealAppendFile:
        return RealAppendFile(self._root / name)

    def open_read(self, name: str) -> RealReadFile:
        return RealReadFile(self._root / name)

    def remove(self, name: str) -> None:
        os.unlink(self._root / name)

    def move(self, name: str, new_name: str) -> None:
        os.rename(self._root / name, self._root / new_name)

    def sync_folder(self, folder: str) -> None:
        self._sync(self._root / folder)

    @staticmethod
    def _sync(path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
