"""The commit log in files: segments of frames, found again after a crash.

A chain is a folder of segment files named by the position of their first byte. A segment file:

     0  magic       8 bytes  b"GATESEG1"
     8  base        u64      the position of byte 0, as in the name
    16  crc         u32      CRC-32C of the 16 bytes before
    20  zero        12 bytes
    32  frames, one after another:

     0  magic       4 bytes  b"GHF1"
     4  head_len    u32
     8  body_len    u32
    12  body_crc    u32      CRC-32C of the body
    16  place       u64      the position of this envelope: a stale frame of another time never looks valid
    24  zero        u32
    28  crc         u32      CRC-32C of the 28 bytes before and the head
    32  head, then body

The last segment may end in zeros: room that was allocated ahead, or that a crash left unwritten. No frame begins with
a zero, so they are cut off like any half-written frame.

Numbers are little-endian. The envelope's CRC covers the body's, so a frame is whole or it is not there. Replay reads
envelopes and heads; bodies are checked where a crash may have torn them, in the last segment.
"""
from __future__ import annotations

import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Final

from crc32c import crc32c

from kernel.log.chains import TwoChains
from kernel.log.disk import AppendFile, Disk, ReadFile
from kernel.log.log import KEPT_BASE, Damage, Frame, LogFailed, LogFull, Segment
from kernel.log.reserve import DISK_FULL

SEGMENT_MAGIC: Final = b"GATESEG1"
FRAME_MAGIC: Final = b"GHF1"
SEGMENT_HEADER_BYTES: Final = 32
ENVELOPE_BYTES: Final = 32
MAX_HEAD_BYTES: Final = 1 << 31            # state records carry values inline
MAX_BODY_BYTES: Final = 1 << 31
READ_WINDOW_BYTES: Final = 1 << 20
OPEN_FILES: Final = 64                      # segment files kept open for reading

_SEGMENT_HEADER = struct.Struct("<8sQI12x")
_ENVELOPE = struct.Struct("<4sIIIQ4x")
_CRC = struct.Struct("<I")


def encode_envelope(head: bytes, body: bytes, place: int) -> bytes:
    front = _ENVELOPE.pack(FRAME_MAGIC, len(head), len(body), crc32c(body), place)
    return front + _CRC.pack(crc32c(head, crc32c(front)))


class _Window:
    """Reads a file forward through a window, so that a thousand small heads cost one system call."""

    def __init__(self, file: ReadFile) -> None:
        self.file = file
        self.size = file.size()
        self._data = b""
        self._at = 0

    def take(self, offset: int, size: int) -> bytes:
        start = offset - self._at
        if start < 0 or start + size > len(self._data):
            self._at, start = offset, 0
            self._data = self.file.read(offset, max(size, READ_WINDOW_BYTES))
        return self._data[start:start + size]


class _Torn(Exception):
    """What lies here is no whole frame."""


class SegmentChain:
    """One folder of segments; see the file's layout above."""

    def __init__(self, disk: Disk, folder: str, base: int, segment_bytes: int) -> None:
        self._disk = disk
        self._folder = folder
        self._first_base = base
        self._segment_bytes = segment_bytes
        self.bases: list[int] = []                   # replaced, never changed: readers are on other threads
        self._sizes: dict[int, int] = {}             # of the segments that are finished
        self._size = 0                               # of the segment being written
        self._file: AppendFile | None = None
        self._dirty = False
        self._beginning = False                      # a new segment could not be made: the old one takes nothing more
        self._readers: OrderedDict[int, ReadFile] = OrderedDict()
        self._readers_lock = Lock()
        self._bases_lock = Lock()                    # a new segment and a dropped one may come from two threads

    # ---- opening

    def recover(self, start: int, on_damage: Callable[[Damage], None]) -> Iterator[Frame]:
        self.bases = [int(name[:-4]) for name in self._disk.names(self._folder) if name.endswith(".log")]
        # A process that was killed may have left names and frames to the system: they are read here, so they must last.
        self._disk.sync_folder(self._folder)
        self._dirty = True
        if self.bases and not self._is_segment(self.bases[-1]):
            self._remove_unborn()
        if not self.bases:
            self._create(max(self._first_base, start))
            return
        self._sizes = {base: self._file_size(base) for base in self.bases[:-1]}
        for i, base in enumerate(self.bases):
            last = i == len(self.bases) - 1
            if not last and self.bases[i + 1] <= start:
                continue
            yield from self._replay(base, max(start, base + SEGMENT_HEADER_BYTES), last, on_damage)
        self._file = self._disk.open_append(self._name(self.bases[-1]))

    def _remove_unborn(self) -> None:
        """A crash came between a segment's creation and its header's sync: nothing in it was ever acknowledged."""
        base = self.bases.pop()
        self._disk.remove(self._name(base))
        self._disk.sync_folder(self._folder)

    def _is_segment(self, base: int) -> bool:
        file = self._disk.open_read(self._name(base))
        header = file.read(0, SEGMENT_HEADER_BYTES)
        file.close()
        return header == self._header(base)

    def _file_size(self, base: int) -> int:
        file = self._disk.open_read(self._name(base))
        size = file.size()
        file.close()
        return size

    @staticmethod
    def _header(base: int) -> bytes:
        crc = crc32c(SEGMENT_MAGIC + struct.pack("<Q", base))
        return _SEGMENT_HEADER.pack(SEGMENT_MAGIC, base, crc)

    def _name(self, base: int) -> str:
        return f"{self._folder}/{base:020d}.log"

    def _create(self, base: int) -> None:
        """A new segment at the end of the chain: its header and its name are durable before a frame enters it.

        Where that fails, the file may still be there after a power cut. So no frame may take the positions that it has:
        the next one tries to make this segment again.
        """
        again, self._beginning = self._beginning, True
        file = self._disk.open_append(self._name(base))
        try:
            if again:
                file.truncate(0)
            file.append([self._header(base)])
            file.sync()
            self._disk.sync_folder(self._folder)
        except OSError:
            file.close()
            self._disk.remove(self._name(base))
            raise
        self._beginning = False
        if self._file is not None:
            self._file.close()
        with self._bases_lock:
            if self.bases:
                self._sizes[self.bases[-1]] = self._size
            self._file, self._size = file, SEGMENT_HEADER_BYTES
            self.bases = [*self.bases, base]

    # ---- replay

    def _replay(self, base: int, start: int, last: bool, on_damage: Callable[[Damage], None]) -> Iterator[Frame]:
        file = self._disk.open_read(self._name(base))
        try:
            yield from self._replay_file(_Window(file), base, start - base, last, on_damage)
        finally:
            file.close()

    def _replay_file(self, window: _Window, base: int, at: int, last: bool,
                     on_damage: Callable[[Damage], None]) -> Iterator[Frame]:
        while at < window.size:
            try:
                frame = self._frame(window, base, at, check_body=last)
            except _Torn as torn:
                resume = self._next_frame(window, base, at + 1)
                if resume is None and last:
                    self._cut(base, at)
                    window.size = at
                    break
                stop = window.size if resume is None else resume
                on_damage(Damage(base + at, base + stop, str(torn)))
                at = stop
                continue
            at = frame.end - base
            yield frame
        if last:
            self._size = window.size

    def _frame(self, window: _Window, base: int, at: int, *, check_body: bool) -> Frame:
        envelope = window.take(at, ENVELOPE_BYTES)
        if len(envelope) < ENVELOPE_BYTES:
            raise _Torn("cut off within an envelope")
        magic, head_len, body_len, body_crc, place = _ENVELOPE.unpack_from(envelope)
        if magic != FRAME_MAGIC or place != base + at or head_len > MAX_HEAD_BYTES or body_len > MAX_BODY_BYTES:
            raise _Torn("no frame begins here")
        body_at = at + ENVELOPE_BYTES + head_len
        if body_at + body_len > window.size:
            raise _Torn("cut off within a frame")
        head = window.take(at + ENVELOPE_BYTES, head_len)
        if crc32c(head, crc32c(envelope[:28])) != _CRC.unpack_from(envelope, 28)[0]:
            raise _Torn("a frame's head does not match its CRC")
        if check_body and crc32c(window.take(body_at, body_len)) != body_crc:
            raise _Torn("a frame's body does not match its CRC")
        return Frame(base + body_at, head, base + body_at + body_len)

    def _next_frame(self, window: _Window, base: int, at: int) -> int | None:
        """Where the next whole frame begins, looking byte by byte: lengths before it cannot be trusted."""
        while at < window.size:
            chunk = window.file.read(at, READ_WINDOW_BYTES)
            found = chunk.find(FRAME_MAGIC)
            if found < 0:
                at += max(1, len(chunk) - len(FRAME_MAGIC) + 1)
                continue
            try:
                self._frame(window, base, at + found, check_body=True)
            except _Torn:
                at += found + 1
                continue
            return at + found
        return None

    def _cut(self, base: int, size: int) -> None:
        """Drop what a crash left half written, so that it can never be mistaken for something later."""
        file = self._disk.open_append(self._name(base))
        file.truncate(size)
        file.sync()
        file.close()

    def heads(self, segment: Segment) -> Iterator[Frame]:
        return self._replay(segment.base, segment.base + SEGMENT_HEADER_BYTES, False, lambda damage: None)

    # ---- writing

    def append(self, head: bytes, body: bytes) -> int:
        frame_bytes = ENVELOPE_BYTES + len(head) + len(body)
        try:
            if self._beginning or self._size + frame_bytes > self._segment_bytes and self._size > SEGMENT_HEADER_BYTES:
                self._roll()
            assert self._file is not None
            before = self._size
            self._dirty = True
            self._file.append([encode_envelope(head, body, self.bases[-1] + before), head, body])
        except OSError as error:
            self._undo(error)
        self._size = before + frame_bytes
        return self.bases[-1] + before + ENVELOPE_BYTES + len(head)

    def _roll(self) -> None:
        """Begin a new segment. The old one is cut to its size and synced first: a later `sync` only sees the new file,
        and only the last segment may end in zeros."""
        assert self._file is not None
        self._file.truncate(self._size)
        self._dirty = True
        self.sync()
        self._create(self._beyond(self.bases[-1], self._size))

    @staticmethod
    def _beyond(base: int, size: int) -> int:
        """The first position behind a segment: a frame without a body has the segment's very end as its position."""
        return base + size + 1

    def _undo(self, error: OSError) -> None:
        if error.errno not in DISK_FULL:
            raise LogFailed(f"the log cannot be written: {error}") from error
        try:
            assert self._file is not None
            self._file.truncate(self._size)
        except OSError as second:
            raise LogFailed(f"the log cannot be cut back after a full disk: {second}") from second
        raise LogFull(str(error)) from error

    def sync(self) -> None:
        if not self._dirty:
            return
        assert self._file is not None
        try:
            self._file.sync()
        except OSError as error:
            raise LogFailed(f"fdatasync failed: {error}") from error
        self._dirty = False

    # ---- reading and dropping

    def read(self, position: int, offset: int, size: int) -> bytes:
        bases = self.bases
        i = bisect_right(bases, position) - 1
        if i < 0:
            return b""
        base = bases[i]
        with self._readers_lock:
            try:
                return self._reader(base).read(position - base + offset, size)
            except FileNotFoundError:
                return b""

    def _reader(self, base: int) -> ReadFile:
        file = self._readers.get(base)
        if file is None:
            file = self._readers[base] = self._disk.open_read(self._name(base))
            if len(self._readers) > OPEN_FILES:
                self._readers.popitem(last=False)[1].close()
        else:
            self._readers.move_to_end(base)
        return file

    def _close_reader(self, base: int) -> None:
        file = self._readers.pop(base, None)
        if file is not None:
            file.close()

    def file_of(self, base: int) -> str:
        """The name of a segment's file, from the disk's root on."""
        return self._name(base)

    def segments(self) -> list[Segment]:
        with self._bases_lock:
            sizes = [self._sizes[base] for base in self.bases[:-1]] + [self._size]
            return [Segment(base, self._beyond(base, size), size) for base, size in zip(self.bases, sizes, strict=True)]

    def end(self) -> int:
        return self.bases[-1] + self._size if self.bases else self._first_base

    def drop(self, segment: Segment) -> None:
        assert segment.base != self.bases[-1], "the segment being written is never dropped"
        with self._bases_lock:
            self.bases = [base for base in self.bases if base != segment.base]
            del self._sizes[segment.base]
        with self._readers_lock:
            self._close_reader(segment.base)
        self._disk.remove(self._name(segment.base))
        self._disk.sync_folder(self._folder)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        with self._readers_lock:
            for base in list(self._readers):
                self._close_reader(base)


class SegmentLog(TwoChains):
    """`kernel.log.log.Log` over a disk: the folders `log` and `kept`."""

    def __init__(self, disk: Disk, segment_bytes: int = 256 << 20) -> None:
        self._main_files = SegmentChain(disk, "log", 0, segment_bytes)
        self._kept_files = SegmentChain(disk, "kept", KEPT_BASE, segment_bytes)
        super().__init__(self._main_files, self._kept_files)

    def file_of(self, base: int) -> str:
        """The name that a segment's file has, here and in a copy of this log."""
        return (self._kept_files if base >= KEPT_BASE else self._main_files).file_of(base)

    def copy(self, base: int, offset: int, size: int) -> bytes:
        """Bytes of a segment's file as they lie there, its header included. Any thread."""
        return (self._kept_files if base >= KEPT_BASE else self._main_files).read(base, offset, size)
