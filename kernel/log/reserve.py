"""A file that holds room on the disk, for the day on which there is none left.

To free space the hub must write a little first: watermarks, deletions, the index. So on a full disk it gives this
file up, takes no messages while it lives from it (else they would have the room at once), lets retention do its work
and acknowledgements settle what is owed, and takes the file again as soon as it fits.
"""
from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final, Protocol

PIECE_BYTES: Final = 1 << 20
NOT_THERE: Final = frozenset((errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))      # file systems without allocation
DISK_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


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
