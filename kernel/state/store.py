"""The ordered key-value store that checkpoints of the index go to: RocksDB, or memory for tests.

What it holds can always be rebuilt from the log. It must keep its writes in order: after a crash it may have lost the
newest ones (unless they were written with `sync`), never an older one while a newer survived.

RocksDB takes a record of its manifest, the list of its files, that does not end within it for one that a crash cut off.
What is behind it was never written then, and the tables that it lists are deleted. One flipped bit in a length is
enough for that, and the store opens without half of what it had: newer entries would be there and older ones not. So
the manifest is looked at first (`fault_in_manifest`):

    manifest := blocks of 32 KiB; record := crc u32, length u16, type u8, payload, within one block
    crc         CRC-32C of type and payload, masked
"""
from __future__ import annotations

import errno
import os
import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import Final, Protocol

from crc32c import crc32c
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DbClosedError,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
)

from gatehouse.kernel.log.disk_guard import NO_ROOM

BATCH_OPERATIONS: Final = 500       # a write holds the interpreter's lock: many small ones let the loop in between
BLOCK_CACHE_BYTES: Final = 32 << 20
WRITE_BUFFER_BYTES: Final = 16 << 20


class StoreFull(Exception):
    """The disk took no more. What was written before is there and can be read; the same may be written again later."""


class StoreDamaged(Exception):
    """A checksum in the store does not match. Nothing of it can be believed any more; it is built anew from the log."""


class StoreCursor(Protocol):
    """Stands at one entry of a store as it was when the cursor was made; at none before `seek`."""

    def seek(self, key: bytes) -> bytes | None:
        """Go to the first entry at or above a key; returns its key, None where there is none."""

    def next(self) -> bytes | None:
        """Go to the next entry; as `seek`."""

    def value(self) -> bytes: ...


class IndexStore(Protocol):
    def get(self, key: bytes) -> bytes | None: ...

    def floor(self, key: bytes, lowest: bytes) -> tuple[bytes, bytes] | None:
        """The greatest entry not above `key` and not below `lowest`."""

    def scan(self, lowest: bytes, below: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with lowest <= key < below, in order."""

    def scan_from(self, key: bytes, lowest: bytes, below: bytes) -> Iterator[bytes]:
        """Values from the greatest entry not above `key` on, in order, of those with lowest <= key < below; from the
        first of them where there is none."""

    def cursor(self) -> StoreCursor: ...

    def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = (),
              ranges: Sequence[tuple[bytes, bytes]] = (), *, sync: bool = False) -> None:
        """Delete ranges [lowest, below), delete keys, put, in this order; the last put lands last.

        With `sync` everything written so far survives a power cut on return. Raises StoreFull, with a part written.
        """

    def close(self) -> None: ...


NO_SPACE: Final = os.strerror(errno.ENOSPC)
PROBE_BYTES: Final = 4 << 20        # what opening writes is less
OPEN_S: Final = 10.0                # what readers get to end their scans

CORRUPT: Final = "Corruption"        # how RocksDB's own message begins
MARK: Final = ".damaged"             # of a file beside the folder: it is not to be opened again

_FULL: Final = tuple(os.strerror(number) for number in sorted(NO_ROOM))


def is_full(error: Exception) -> bool:
    """Whether RocksDB says that the disk, or what of it is ours, is full. It goes on by itself some seconds after there
    is room again."""
    return any(reason in str(error) for reason in _FULL)


class RocksCursor:
    """A `StoreCursor` over RocksDB. `check` is called where it stands at nothing, which may be the end or damage."""

    def __init__(self, at: RdictIter, check: Callable[[RdictIter], None]) -> None:
        self._at = at
        self._check = check

    def seek(self, key: bytes) -> bytes | None:
        self._at.seek(key)
        return self._key()

    def next(self) -> bytes | None:
        self._at.next()
        return self._key()

    def _key(self) -> bytes | None:
        key: bytes | None = self._at.key()
        if key is None:
            self._check(self._at)
        return key

    def value(self) -> bytes:
        value: bytes = self._at.value()
        return value


class SortedCursor:
    """A `StoreCursor` over a sorted list of keys."""

    def __init__(self, keys: list[bytes], values: Mapping[bytes, bytes]) -> None:
        self._keys = keys
        self._values = values
        self._at = len(keys)

    def seek(self, key: bytes) -> bytes | None:
        self._at = bisect_left(self._keys, key)
        return self._key()

    def next(self) -> bytes | None:
        self._at += 1
        return self._key()

    def _key(self) -> bytes | None:
        return self._keys[self._at] if self._at < len(self._keys) else None

    def value(self) -> bytes:
        return self._values[self._keys[self._at]]


def open_rocks(folder: Path) -> Rdict:
    """Raises plain Exception for everything."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(3)
    options.set_max_background_jobs(1)
    options.set_keep_log_file_num(3)
    blocks = BlockBasedOptions()
    blocks.set_block_cache(Cache(BLOCK_CACHE_BYTES))
    blocks.set_bloom_filter(10, False)
    options.set_block_based_table_factory(blocks)
    return Rdict(str(folder), options)


def open_probe(folder: Path) -> int | None:
    """A file without a name on the folder's disk; None where its file system has no such files."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


class RocksStore:
    """RocksDB in a folder of its own.

    A disk without space is something that it gets over by itself. A quota or a file limit that is reached is not: after
    such an error it takes no more writes until it is opened again, which is tried once a file can be made there.

    A write holds the interpreter's lock until the disk has taken it. So the disk is asked before each, without the
    lock, and what is to be durable is synced without it.

    Its files have checksums, most of which it looks at when it reads a block. One that does not match is told to
    `on_damage` and leaves a mark beside the folder, so that the next start does not open it again.
    """

    def __init__(self, folder: Path, on_damage: Callable[[str], None] | None = None) -> None:
        """Raises plain Exception for everything; StoreDamaged where the mark is there, or not every file is known."""
        self._mark = folder.with_name(folder.name + MARK)
        if self._mark.exists():
            raise StoreDamaged("it was found damaged while it was in use")
        fault = fault_in_manifest(folder)
        if fault:
            raise StoreDamaged(fault)
        self._db = open_rocks(folder)
        self._probe = open_probe(folder)
        self._folder = folder
        self._on_damage = on_damage
        self._stuck = False
        self._opening = Lock()         # held while it is opened again: readers that find it closed wait
        self._refused = False          # the disk has been full, or is damaged: closing cannot write, and says so

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key)
        except DbClosedError:
            value = self._opened().get(key)
        except Exception as error:    # rocksdict raises plain Exception for everything
            self._require_sound(error)
            raise
        return value

    def floor(self, key: bytes, lowest: bytes) -> tuple[bytes, bytes] | None:
        cursor = self._iterator()
        cursor.seek_for_prev(key)
        if not cursor.valid():
            self._check(cursor)
            return None
        floor_key: bytes = cursor.key()
        return (floor_key, cursor.value()) if floor_key >= lowest else None

    def scan(self, lowest: bytes, below: bytes) -> Iterator[tuple[bytes, bytes]]:
        cursor = self._iterator(below)
        cursor.seek(lowest)
        while cursor.valid():
            yield cursor.key(), cursor.value()
            cursor.next()
        self._check(cursor)

    def scan_from(self, key: bytes, lowest: bytes, below: bytes) -> Iterator[bytes]:
        cursor = self._iterator(below)
        cursor.seek_for_prev(key)
        if not cursor.valid():
            self._check(cursor)
        if not cursor.valid() or cursor.key() < lowest:
            cursor.seek(lowest)
        while cursor.valid():
            yield cursor.value()
            cursor.next()
        self._check(cursor)

    def cursor(self) -> RocksCursor:
        return RocksCursor(self._iterator(), self._check)

    def _iterator(self, below: bytes | None = None) -> RdictIter:
        """With a bound it does not walk over what is deleted beyond it. (Of the binding's two bounds the lower one is
        taken for the upper one.)"""
        options = ReadOptions()
        if below is not None:
            options.set_iterate_upper_bound(below)
        try:
            return self._db.iter(options)
        except DbClosedError:
            return self._opened().iter(options)

    def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = (),
              ranges: Sequence[tuple[bytes, bytes]] = (), *, sync: bool = False) -> None:
        if self._stuck:
            self._open_again()
        try:
            for lowest, below in ranges:
                self._wait_for_disk()
                self._db.delete_range(lowest, below)
            self._write([(key, None) for key in deletes])
            self._write(puts)
            if sync:
                self._db.flush_wal(True)
        except Exception as error:    # rocksdict raises plain Exception for everything
            if is_full(error):
                self._refused = True
                self._stuck = NO_SPACE not in str(error)
                raise StoreFull(str(error)) from None
            self._require_sound(error)
            raise

    def _check(self, cursor: RdictIter) -> None:
        """An iterator ends at a damaged block as if there were nothing more."""
        try:
            cursor.status()
        except Exception as error:
            self._require_sound(error)
            raise

    def _require_sound(self, error: Exception) -> None:
        """Raises StoreDamaged where that is what the error means."""
        if CORRUPT in str(error):
            self._refused = True
            with suppress(OSError):
                self._mark.touch(mode=0o600)
            if self._on_damage is not None:
                self._on_damage(str(error))
            raise StoreDamaged(str(error)) from None

    def _open_again(self) -> None:
        """Raises StoreFull while there is no room for that."""
        try:
            room = self._folder.with_name(self._folder.name + ".probe")
            room.write_bytes(bytes(PROBE_BYTES))
        except OSError as error:
            raise StoreFull(str(error)) from None
        finally:
            room.unlink(missing_ok=True)
        with self._opening:
            self._close()
            end_s = monotonic() + OPEN_S
            while True:
                try:
                    self._db = open_rocks(self._folder)
                    self._stuck = False
                    return
                except Exception as error:     # a reader may be in the middle of a scan of the old one
                    if monotonic() > end_s:
                        raise OSError(f"the index cannot be opened again: {error}") from None
                    sleep(0.01)

    def _opened(self) -> Rdict:
        with self._opening:
            return self._db

    def _write(self, changes: Sequence[tuple[bytes, bytes | None]]) -> None:
        for at in range(0, len(changes), BATCH_OPERATIONS):
            batch = WriteBatch(raw_mode=True)
            for key, value in changes[at:at + BATCH_OPERATIONS]:
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
            self._wait_for_disk()
            self._db.write(batch)

    def _wait_for_disk(self) -> None:  # decision 223
        """Return when the disk takes writes. One that is full does: RocksDB will say it."""
        if self._probe is not None:
            with suppress(OSError):
                os.pwrite(self._probe, b"\0", 0)

    def close(self) -> None:
        if self._probe is not None:
            os.close(self._probe)
            self._probe = None
        self._close()

    def _close(self) -> None:
        try:
            self._db.close()
        except Exception:              # what is not in here is replayed from the log
            if not self._refused:
                raise


class MemoryStore:
    """A sorted list of keys."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._values: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def floor(self, key: bytes, lowest: bytes) -> tuple[bytes, bytes] | None:
        i = bisect_right(self._keys, key) - 1
        if i < 0 or self._keys[i] < lowest:
            return None
        return self._keys[i], self._values[self._keys[i]]

    def scan(self, lowest: bytes, below: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key in self._keys[bisect_left(self._keys, lowest):bisect_left(self._keys, below)]:
            yield key, self._values[key]

    def scan_from(self, key: bytes, lowest: bytes, below: bytes) -> Iterator[bytes]:
        floor = self.floor(key, lowest)
        for _, value in self.scan(lowest if floor is None else floor[0], below):
            yield value

    def cursor(self) -> SortedCursor:
        return SortedCursor(self._keys.copy(), self._values)

    def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = (),
              ranges: Sequence[tuple[bytes, bytes]] = (), *, sync: bool = False) -> None:
        for lowest, below in ranges:
            self._delete([key for key, _ in self.scan(lowest, below)])
        self._delete(deletes)
        for key, value in puts:
            if key not in self._values:
                insort(self._keys, key)
            self._values[key] = value

    def _delete(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            if self._values.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    def close(self) -> None:
        pass


BLOCK_BYTES: Final = 32_768
_HEADER = struct.Struct("<IHB")
_UNUSED: Final = 0                        # room at the end that was made beforehand
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_BEGINS: Final = frozenset((_WHOLE, _FIRST))
_ENDS: Final = frozenset((_WHOLE, _LAST))
_TYPES: Final = _BEGINS | _ENDS | {_MIDDLE}


def fault_in_manifest(folder: Path) -> str:  # decision 214
    """What is wrong with the manifest of a store in a folder; "" where nothing is, or where none is. Raises OSError."""
    current = folder / "CURRENT"
    if not current.exists():
        return ""
    manifest = folder / current.read_bytes().decode("ascii", "replace").strip()
    if not manifest.is_file():
        return ""                         # the store says so itself
    return _fault_in(manifest.read_bytes())


def _fault_in(content: bytes) -> str:
    at, inside = 0, False
    while at < len(content):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < _HEADER.size:
            at += left
            continue
        if at + _HEADER.size > len(content):
            return f"the record at {at} of the manifest is cut off"
        crc, length, kind = _HEADER.unpack_from(content, at)
        if kind == _UNUSED and not any(content[at:]):
            break
        start = at + _HEADER.size
        stop = start + length
        if kind not in _TYPES or stop > len(content) or length > left - _HEADER.size:
            return f"the record at {at} of the manifest is no record"
        if _masked(crc32c(content[start - 1:stop])) != crc:
            return f"the record at {at} of the manifest has another checksum"
        if inside is (kind in _BEGINS):
            return f"the record at {at} of the manifest does not follow on the one before"
        inside = kind not in _ENDS
        at = stop
    return "the last record of the manifest has no end" if inside else ""


def _masked(crc: int) -> int:
    """As RocksDB stores checksums, so that one of what holds one is another."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
