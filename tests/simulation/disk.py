"""A disk in memory that knows what is synced, forgets what is not, and fails where it is told to.

Every change is an *operation* with a number from 1: making a file, append, overwrite, sync, truncate, remove, move,
sync of a folder. A crash or an error can be put before, within or after any of them. Two kinds of crash:

    kill         the process dies; what it wrote is still in the system's memory, synced or not
    power cut    a file keeps what was synced and perhaps a part of the rest, torn or with garbage; a file whose making
    or
                 removal was not synced with its folder is there or not

"Perhaps" is decided by the generator of random numbers, so a seed repeats it.
"""
from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, NamedTuple

CrashKind = Literal["kill", "power"]
Moment = Literal["before", "during", "after"]


class Crash(BaseException):
    """The process is no more. No code of the hub catches it."""


class CrashAt(NamedTuple):
    """Crash at an operation."""

    number: int
    moment: Moment


class Fault(NamedTuple):
    """Fail an operation with an error of the operating system."""

    errno: int
    what: str


FULL = Fault(errno.ENOSPC, "no space left on device")
BROKEN = Fault(errno.EIO, "input/output error")


class _Inode:
    """A file's contents: as the system sees them, and as far as they are on the platter."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""

    def sync(self) -> None:
        self.durable = bytes(self.data)

    def cut_power(self, random: Random) -> None:
        kept = self._survivor(random)
        self.data, self.durable = bytearray(kept), bytes(kept)

    def _survivor(self, random: Random) -> bytes:
        durable, data = self.durable, bytes(self.data)
        if data == durable:
            return durable
        if not data.startswith(durable):                    # cut off, and perhaps written on
            return random.choice((durable, data))
        pending = data[len(durable):]
        fate = random.randrange(5)
        if fate == 0:
            return durable
        if fate == 1:
            return data
        kept = pending[:random.randrange(len(pending) + 1)]
        if fate == 2:                                       # the length came through, a block of the contents did not
            return durable + kept + bytes(len(pending) - len(kept))
        if fate == 3:
            return durable + kept + random.randbytes(random.randrange(64))
        return durable + kept


class _Folder:
    def __init__(self) -> None:
        self.names: dict[str, _Inode] = {}
        self._durable: dict[str, _Inode] = {}
        self._states: dict[str, list[_Inode | None]] = {}    # of each name since the last sync: any may come through

    def put(self, name: str, inode: _Inode | None) -> None:
        self._states.setdefault(name, [self._durable.get(name)]).append(inode)
        if inode is None:
            del self.names[name]
        else:
            self.names[name] = inode

    def sync(self) -> None:
        self._durable = dict(self.names)
        self._states.clear()

    def cut_power(self, random: Random) -> None:
        for name in sorted(self._states):
            found = random.choice(self._states[name])
            self.names.pop(name, None)
            if found is not None:
                self.names[name] = found
        for name in sorted(self.names):
            self.names[name].cut_power(random)
        self.sync()


class SimAppendFile:
    def __init__(self, disk: SimDisk, name: str, inode: _Inode) -> None:
        self._disk = disk
        self._name = name
        self._inode = inode

    def append(self, parts: Sequence[bytes]) -> None:
        data = b"".join(parts)

        def part() -> None:
            self._inode.data += data[:self._disk.random.randrange(len(data) + 1)]

        def whole() -> None:
            self._inode.data += data

        if self._disk.used_bytes() + len(data) > self._disk.space_bytes:
            part()
            raise OSError(FULL.errno, FULL.what)
        self._disk.operate("append", self._name, whole, part)

    def descriptor_for(self, size: int) -> int | None:
        return None

    def grown(self, size: int) -> None:
        raise AssertionError("nobody else writes to this disk")

    def sync(self) -> None:
        def part() -> None:                                  # some of it is on the platter, and it may be torn
            self._inode.durable = self._inode._survivor(self._disk.random)

        self._disk.operate("sync", self._name, self._inode.sync, part)

    def overwrite(self, offset: int, data: bytes) -> None:
        def part() -> None:
            done = self._disk.random.randrange(len(data) + 1)
            self._inode.data[offset:offset + done] = data[:done]

        def whole() -> None:
            self._inode.data[offset:offset + len(data)] = data

        self._disk.operate("overwrite", self._name, whole, part)

    def truncate(self, size: int) -> None:
        def whole() -> None:
            del self._inode.data[size:]

        self._disk.operate("truncate", self._name, whole)

    def close(self) -> None:
        pass


class SimReadFile:
    def __init__(self, disk: SimDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode

    def ask(self, offset: int, size: int) -> None:
        """It is there."""

    def read(self, offset: int, size: int) -> bytes:
        if self._disk.read_fault is not None:
            raise OSError(*self._disk.read_fault)
        return bytes(self._inode.data[offset:offset + size])

    def size(self) -> int:
        return len(self._inode.data)

    def close(self) -> None:
        pass


class SimDisk:
    """`kernel.log.segments.Disk`; see the file's text."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.operations = 0
        self.history: list[str] = []                         # what each operation was, for people
        self.crash_at: CrashAt | None = None
        self.faults: dict[int, Fault] = {}                   # by operation number
        self.fault_on: Callable[[str, str], Fault | None] = lambda kind, name: None
        self.read_fault: Fault | None = None
        self.space_bytes = 1 << 60
        self._folders: dict[str, _Folder] = {}

    # ---- `Disk`

    def names(self, folder: str) -> list[str]:
        return sorted(self._folder(folder).names)

    def open_append(self, name: str) -> SimAppendFile:
        folder, _, short = name.partition("/")
        if short not in self._folder(folder).names:
            def make() -> None:
                self._folder(folder).put(short, _Inode())

            self.operate("make", name, make)
        return SimAppendFile(self, name, self._folder(folder).names[short])

    def open_read(self, name: str) -> SimReadFile:
        return SimReadFile(self, self._inode(name))

    def remove(self, name: str) -> None:
        folder, _, short = name.partition("/")
        self._inode(name)

        def whole() -> None:
            self._folder(folder).put(short, None)

        self.operate("remove", name, whole)

    def move(self, name: str, new_name: str) -> None:
        """A power cut before both folders are synced may leave it under both names, or under none."""
        folder, _, short = name.partition("/")
        new_folder, _, new_short = new_name.partition("/")
        inode = self._inode(name)

        def whole() -> None:
            self._folder(new_folder).put(new_short, inode)
            self._folder(folder).put(short, None)

        self.operate("move", name, whole)

    def sync_folder(self, folder: str) -> None:
        self.operate("sync_folder", folder, self._folder(folder).sync)

    # ---- what happens to it

    def operate(self, kind: str, name: str, whole: Callable[[], None], part: Callable[[], None] | None = None) -> None:
        """One operation: `whole` does it, `part` does some of it."""
        self.operations += 1
        self.history.append(f"{self.operations}: {kind} {name}")
        if self.crash_at is not None and self.crash_at.number == self.operations:
            if self.crash_at.moment == "during" and part is not None:
                part()
            if self.crash_at.moment == "after":
                whole()
            raise Crash(self.history[-1])
        fault = self.faults.get(self.operations) or self.fault_on(kind, name)
        if fault is not None:
            if part is not None:
                part()
            raise OSError(fault.errno, fault.what)
        whole()

    def crash_after(self, operations: int, moment: Moment) -> None:
        """Crash so many operations from now."""
        self.crash_at = CrashAt(self.operations + operations, moment)

    def crash(self, kind: CrashKind) -> None:
        """What the next start will find."""
        self.crash_at = None
        if kind == "power":
            for name in sorted(self._folders):
                self._folders[name].cut_power(self.random)

    def flip(self, name: str, offset: int, bit: int = 0) -> None:
        """Rot: one bit of a synced byte."""
        inode = self._inode(name)
        durable = bytearray(inode.durable)
        for held in (inode.data, durable):
            held[offset] ^= 1 << bit
        inode.durable = bytes(durable)

    def flip_header(self, name: str, bit: int) -> None:
        """Rot in the first bytes of a file, where it has them."""
        if bit // 8 < len(self._inode(name).durable):
            self.flip(name, bit // 8, bit % 8)

    def used_bytes(self) -> int:
        return sum(len(inode.data) for folder in self._folders.values() for inode in folder.names.values())

    def _folder(self, name: str) -> _Folder:
        return self._folders.setdefault(name, _Folder())

    def _inode(self, name: str) -> _Inode:
        folder, _, short = name.partition("/")
        found = self._folder(folder).names.get(short)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, f"there is no file {name}")
        return found
