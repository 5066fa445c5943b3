"""The commit log in files: segments of frames, found again after a crash.

    Disk            the few things that the log asks of a disk: RealDisk, or the simulator's, which forgets and tears.
                    Names are relative to one folder; errors are OSError as the operating system gives them
    SegmentReader   reads one segment's file forward
    SegmentChain    a chain: one folder of segments
    SegmentLog      the log: two chains

A chain is a folder of segment files; what else lies in the folder is let be. A log is two chains: the main one and the
one of what is kept.

A start believes frames, not names or headers. Replay reads envelopes and heads; bodies are checked where a crash may
have torn them, in the last segment. Of a file without one whole frame nothing was ever acknowledged, or nothing can be
read: it is moved to `damaged/`, or begun anew where it is a new segment that a crash cut off. What is cut off or passed
over is copied there first (`kernel.log.set_aside`). Nothing is deleted.

A segment file is named by the position of its first byte:

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

Numbers are little-endian. The envelope's CRC covers the body's, so a frame is whole or it is not there. The header adds
nothing to what the name and the frames say: one that is wrong is written anew.
"""
from __future__ import annotations

import contextlib
import os
import re
import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final, NoReturn, Protocol

from crc32c import crc32c

from gatehouse.kernel.log.disk_guard import NO_FILES, NO_ROOM
from gatehouse.kernel.log.log import (
    KEPT_BASE,
    MAX_POSITION,
    Damage,
    Frame,
    LogFailed,
    LogFull,
    Segment,
)
from gatehouse.kernel.log.set_aside import Note, SetAside

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

    def _write_in_pieces(self, parts: Sequence[bytes]) -> None:  # decision 306
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


# --- a segment's file ---------------------------------------------------------------------------------------------

SEGMENT_MAGIC: Final = b"GATESEG1"
FRAME_MAGIC: Final = b"GHF1"
SEGMENT_HEADER_BYTES: Final = 32
ENVELOPE_BYTES: Final = 32
MAX_HEAD_BYTES: Final = 1 << 31            # state records carry values inline
MAX_BODY_BYTES: Final = 1 << 31
READ_WINDOW_BYTES: Final = 1 << 20
FAR: Final = 1 << 50                       # behind the end of a chain: no segment of ours was to begin there
OPEN_FILES: Final = 64                     # segment files kept open for reading
GAP_BYTES: Final = 512                     # between two bodies that are read together: the head of a small frame
TOGETHER_BYTES: Final = 64 << 10           # of one such read: what is larger is worth a call of its own

_SEGMENT_HEADER = struct.Struct("<8sQI12x")
_ENVELOPE = struct.Struct("<4sIIIQ4x")
_CRC = struct.Struct("<I")
_NAME: Final = re.compile(r"(\d{20})\.log", re.ASCII)


def file_name(base: int) -> str:
    return f"{base:020d}.log"


def base_of(name: str) -> int | None:
    """The base that a file's name says; None where it is no name of a segment."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


def encode_header(base: int) -> bytes:
    crc = crc32c(SEGMENT_MAGIC + struct.pack("<Q", base))
    return _SEGMENT_HEADER.pack(SEGMENT_MAGIC, base, crc)


def encode_envelope(head: bytes, body: bytes, place: int) -> bytes:  # decision 2
    front = _ENVELOPE.pack(FRAME_MAGIC, len(head), len(body), crc32c(body), place)
    return front + _CRC.pack(crc32c(head, crc32c(front)))


class Torn(Exception):
    """What lies here is no whole frame."""


class TornBody(Torn):
    """The head is as it was written, the body is not."""

    def __init__(self, frame: Frame) -> None:
        super().__init__("a frame's body does not match its CRC")
        self.frame = frame


class SegmentReader:
    """Reads a segment file forward through a window, so that a thousand small heads cost one system call."""

    def __init__(self, file: ReadFile, base: int) -> None:
        self.file = file
        self.base = base
        self.size = file.size()
        self._data = b""
        self._at = 0

    def take(self, offset: int, size: int) -> bytes:
        start = offset - self._at
        if start < 0 or start + size > len(self._data):
            self._at, start = offset, 0
            self._data = self.file.read(offset, max(size, READ_WINDOW_BYTES))
        return self._data[start:start + size]

    def has_header(self) -> bool:
        return self.file.read(0, SEGMENT_HEADER_BYTES) == encode_header(self.base)

    def frame(self, at: int, *, check_body: bool) -> Frame:
        """The frame at an offset of the file. Raises Torn, TornBody."""
        envelope = self.take(at, ENVELOPE_BYTES)
        if len(envelope) < ENVELOPE_BYTES:
            raise Torn("cut off within an envelope")
        magic, head_len, body_len, body_crc, place = _ENVELOPE.unpack_from(envelope)
        if magic != FRAME_MAGIC or place != self.base + at or head_len > MAX_HEAD_BYTES or body_len > MAX_BODY_BYTES:
            raise Torn("no frame begins here")
        body_at = at + ENVELOPE_BYTES + head_len
        if body_at + body_len > self.size:
            raise Torn("cut off within a frame")
        head = self.take(at + ENVELOPE_BYTES, head_len)
        if crc32c(head, crc32c(envelope[:28])) != _CRC.unpack_from(envelope, 28)[0]:
            raise Torn("a frame's head does not match its CRC")
        frame = Frame(self.base + body_at, head, self.base + body_at + body_len)
        if check_body and crc32c(self.take(body_at, body_len)) != body_crc:
            raise TornBody(frame)
        return frame

    def next_frame(self, at: int) -> int | None:
        """Where the next whole frame begins, looking byte by byte: lengths before it cannot be trusted."""
        while at < self.size:
            chunk = self.file.read(at, READ_WINDOW_BYTES)
            index = chunk.find(FRAME_MAGIC)
            while index >= 0:
                if self._is_frame(chunk, index, at + index):
                    return at + index
                index = chunk.find(FRAME_MAGIC, index + 1)
            at += max(1, len(chunk) - ENVELOPE_BYTES + 1)
        return None

    def _is_frame(self, chunk: bytes, index: int, at: int) -> bool:
        """Whether a frame begins here. Its place is looked at first: a message may hold the four bytes any number of
        times."""
        if index + ENVELOPE_BYTES > len(chunk) or _ENVELOPE.unpack_from(chunk, index)[4] != self.base + at:
            return False
        try:
            self.frame(at, check_body=True)
        except Torn:
            return False
        return True

    def last_byte(self, start: int, stop: int) -> int:
        """The place behind the last byte of a range that is not zero; `start` where all of them are."""
        while stop > start:
            at = max(start, stop - READ_WINDOW_BYTES)
            left = self.file.read(at, stop - at).rstrip(b"\0")
            if left:
                return at + len(left)
            stop = at
        return start


# --- a chain of segments ------------------------------------------------------------------------------------------

class SegmentChain:
    """One folder of segments; see the file's layout above."""

    def __init__(self, disk: Disk, folder: str, bases: range, segment_bytes: int, aside: SetAside) -> None:
        self._disk = disk
        self._folder = folder
        self._range = bases                          # of positions, the whole chain's
        self._segment_bytes = segment_bytes
        self._aside = aside
        self.bases: list[int] = []                   # replaced, never changed: readers are on other threads
        self._lowest_base = bases.start              # of the next segment
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
        # A process that was killed may have left names and frames to the system: they are read here, so they must last.
        named = self._named()
        self._disk.sync_folder(self._folder)
        self._dirty = True
        self.bases = [base for base in named if self._belongs(base)]
        unread = [base for base in named if base not in self.bases]
        self._sizes = {base: self._file_size(base) for base in self.bases[:-1]}
        for i, base in enumerate(self.bases):
            last = i == len(self.bases) - 1
            if last or self.bases[i + 1] > start:
                yield from self._replay(base, max(start, base + SEGMENT_HEADER_BYTES), last,
                                        partial(self._on_damage, base, on_damage))
        if self.bases:
            self._file = self._disk.open_append(self._name(self.bases[-1]))
        self._place(unread, on_damage)

    def _named(self) -> list[int]:
        """What lies in the folder under a segment's name, in order. Anything else is not ours."""
        bases = [base_of(name) for name in self._disk.names(self._folder)]
        return sorted(base for base in bases if base is not None and base in self._range)

    def _belongs(self, base: int) -> bool:
        """Whether the file under this name is a segment of this place: its header says so, or else its frames do, and
        the header is written anew."""
        with closing(self._disk.open_read(self._name(base))) as file:
            reader = SegmentReader(file, base)
            if reader.has_header():
                return True
            if reader.next_frame(SEGMENT_HEADER_BYTES) is None:
                return False
        self._mend_header(base)
        return True

    def _mend_header(self, base: int) -> None:  # decision 117
        with closing(self._disk.open_append(self._name(base))) as file:
            file.overwrite(0, encode_header(base))
            file.sync()
        self._aside.note_mended(f"the header of {self._name(base)} was damaged and is written anew; its frames are "
                                "read as they are")

    def _place(self, unread: list[int], on_damage: Callable[[Damage], None]) -> None:
        """Files without a whole frame: a new segment that a crash cut off is begun anew, under the name that it has."""
        end = self._beyond(self.bases[-1], self._size) if self.bases else self._range.start
        self._lowest_base = max([self._range.start, *[base + 1 for base in [*self.bases, *unread] if base < end + FAR]])
        unborn = -1
        for base in unread:
            is_next = end <= base < end + FAR
            is_empty = self._is_empty(base)
            if not is_empty:
                is_empty = self._move_away(base, is_next, on_damage)
            if is_next and is_empty:
                unborn = base
        if unborn >= 0:
            self._beginning = True                   # what is there of it is no use
            self._begin(unborn)
        elif not self.bases:
            self._begin(self._lowest_base)

    def _is_empty(self, base: int) -> bool:
        with closing(self._disk.open_read(self._name(base))) as file:
            last = SegmentReader(file, base).last_byte(SEGMENT_HEADER_BYTES, file.size())
        return last <= SEGMENT_HEADER_BYTES

    def _move_away(self, base: int, is_next: bool, on_damage: Callable[[Damage], None]) -> bool:
        """Whether a file without a whole frame is out of the way. It is a loss where it fills a gap of the chain."""
        size = self._file_size(base)
        moved = self._aside.move(self._name(base), is_tail=is_next)
        text = f"{self._name(base)} holds no whole frame of its place; {moved}"
        i = bisect_right(self.bases, base) - 1
        before = self.bases[i] + self._sizes.get(self.bases[i], self._size) if i >= 0 else self._range.start
        if not is_next and before <= base < self.bases[-1]:
            on_damage(Damage(base, base + size, text))
        else:
            self._aside.tell(Note(not is_next, text))
        return moved.is_done

    def _on_damage(self, base: int, on_damage: Callable[[Damage], None], damage: Damage) -> None:
        with closing(self._disk.open_read(self._name(base))) as file:
            copied = self._aside.copy(f"{self._folder}-range", SegmentReader(file, base), damage.start - base,
                                      damage.end - base)
        on_damage(damage._replace(reason=f"{damage.reason}; {copied}"))

    def advance(self, position: int) -> None:
        """Give out no position up to this one any more, which a frame without a body may have had. Raises LogFull,
        LogFailed."""
        if self.end() < position:
            self._lowest_base = max(self._lowest_base, position + 1)
            try:
                self._roll()
            except OSError as error:
                self._undo(error)
            assert self.end() > position, "a lost position is never given again"

    def _file_size(self, base: int) -> int:
        with closing(self._disk.open_read(self._name(base))) as file:
            return file.size()

    def _name(self, base: int) -> str:
        return f"{self._folder}/{file_name(base)}"

    def _begin(self, base: int) -> None:
        """The first segment, or one that a crash cut off. Raises LogFull, OSError."""
        try:
            self._create(base)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise LogFull(str(error)) from error
            raise

    def _create(self, base: int) -> None:
        """A new segment at the end of the chain: its header and its name are durable before a frame enters it.

        Where that fails, the file may still be there after a power cut. So no frame may take the positions that it has:
        the next one tries to make this segment again.
        """
        assert base in self._range, f"segment {base} is not of this chain"
        assert not self.bases or base >= self._beyond(self.bases[-1], self._size), "positions rise"
        again, self._beginning = self._beginning, True
        file = self._disk.open_append(self._name(base))
        try:
            if again:
                file.truncate(0)
            file.append([encode_header(base)])
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
        with closing(self._disk.open_read(self._name(base))) as file:
            reader = SegmentReader(file, base)
            first = start - base
            if last and first > reader.size:         # the end is lost: where it is now is not known
                first = SEGMENT_HEADER_BYTES
            for frame in self._replay_file(reader, base, first, last, on_damage):
                if frame.end > start:
                    yield frame

    def _replay_file(self, reader: SegmentReader, base: int, at: int, last: bool,
                     on_damage: Callable[[Damage], None]) -> Iterator[Frame]:
        whole: int | None = 0                        # where the next whole frame begins, once that was looked for
        while at < reader.size:
            try:
                frame = reader.frame(at, check_body=last)
            except Torn as torn:
                # A head that is whole is believed, its length too. Its body may be what a crash has torn.
                frame_end = torn.frame.end - base if isinstance(torn, TornBody) else at + 1
                if whole is not None and whole < frame_end:
                    whole = reader.next_frame(frame_end)
                if whole is None and last:
                    self._aside.copy_tail(f"{self._folder}-tail", reader, at)
                    self._cut(base, at)
                    reader.size = at
                    break
                if isinstance(torn, TornBody):
                    yield torn.frame
                    on_damage(Damage(torn.frame.position, torn.frame.end, str(torn), is_known=True))
                    at = frame_end
                    continue
                stop = reader.size if whole is None else whole
                on_damage(Damage(base + at, base + stop, str(torn)))
                at = stop
                continue
            assert frame.end - base > at, "the next frame lies behind this one"
            at = frame.end - base
            yield frame
        if last:
            self._size = reader.size

    def _cut(self, base: int, size: int) -> None:
        """Drop what a crash left half written, so that it can never be mistaken for something later."""
        assert size >= SEGMENT_HEADER_BYTES, "a segment keeps its header"
        with closing(self._disk.open_append(self._name(base))) as file:
            file.truncate(size)
            file.sync()

    def heads(self, segment: Segment) -> Iterator[Frame]:
        return self._replay(segment.base, segment.base + SEGMENT_HEADER_BYTES, False, lambda damage: None)

    # ---- writing

    def append(self, head: bytes, body: bytes) -> int:
        assert 0 < len(head) <= MAX_HEAD_BYTES and len(body) <= MAX_BODY_BYTES, "what no start would believe"
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

    def room(self, frame_bytes: int) -> tuple[int, int, int] | None:
        """Where somebody else may write the next frame, and then say `note_written` or `cut_back`: the descriptor, the
        offset in the file and the position of its envelope. None where `append` has more to do than to write."""
        if self._beginning or self._file is None or self._size + frame_bytes > self._segment_bytes:
            return None
        descriptor = self._file.descriptor_for(frame_bytes)
        if descriptor is None:
            return None
        self._dirty = True
        return descriptor, self._size, self.bases[-1] + self._size

    def note_written(self, frame_bytes: int, synced: bool) -> None:
        """The frame is there; where `synced`, on the disk, too."""
        if self._file is not None:                   # else the log was closed meanwhile: a disk that was not waited for
            self._file.grown(frame_bytes)
        self._size += frame_bytes
        if synced:
            self._dirty = False

    def cut_back(self, error: OSError) -> tuple[int, int]:
        """The frame could not be written. Raises LogFull or LogFailed, as `append` would have."""
        self._undo(error)

    def _roll(self) -> None:
        """Begin a new segment. The old one is cut to its size and synced first: a later `sync` only sees the new file,
        and only the last segment may end in zeros."""
        assert self._file is not None
        self._file.truncate(self._size)
        self._dirty = True
        self.sync()
        self._create(max(self._beyond(self.bases[-1], self._size), self._lowest_base))

    @staticmethod
    def _beyond(base: int, size: int) -> int:
        """The first position behind a segment: a frame without a body has the segment's very end as its position."""
        return base + size + 1

    def _undo(self, error: OSError) -> NoReturn:
        if error.errno not in NO_ROOM:
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

    def ask(self, position: int, offset: int, size: int) -> None:
        base = self._base_of(position)
        if base >= 0:
            with self._readers_lock, suppress(FileNotFoundError):
                self._reader(base).ask(position - base + offset, size)

    def read(self, position: int, offset: int, size: int) -> bytes:
        base = self._base_of(position)
        if base < 0:
            return b""
        with self._readers_lock:
            try:
                return self._reader(base).read(position - base + offset, size)
            except FileNotFoundError:
                return b""

    def read_many(self, spans: list[tuple[int, int, int]]) -> list[bytes]:  # decision 352
        """As `read` for each of them; those that lie close behind each other come by one call of the system."""
        bodies: list[bytes] = []
        at = 0
        while at < len(spans):
            position, offset, size = spans[at]
            start, stop, first, base = position + offset, position + offset + size, at, self._base_of(position)
            at += 1
            while at < len(spans) and 0 <= spans[at][0] + spans[at][1] - stop <= GAP_BYTES \
                    and stop - start < TOGETHER_BYTES and self._base_of(spans[at][0]) == base:
                stop = spans[at][0] + spans[at][1] + spans[at][2]
                at += 1
            data = self.read(position, offset, stop - start)
            bodies += [data] if at == first + 1 else [
                data[position + offset - start:position + offset + size - start]
                for position, offset, size in spans[first:at]]
        return bodies

    def _base_of(self, position: int) -> int:
        """Where the segment begins that holds a position; -1 where it is gone."""
        bases = self.bases
        i = bisect_right(bases, position) - 1
        return bases[i] if i >= 0 else -1

    def _reader(self, base: int) -> ReadFile:
        file = self._readers.get(base)
        if file is None:
            file = self._readers[base] = self._open_reader(base)
            if len(self._readers) > OPEN_FILES:
                self._readers.popitem(last=False)[1].close()
        else:
            self._readers.move_to_end(base)
        return file

    def _open_reader(self, base: int) -> ReadFile:
        """Where no descriptor is free, one that was kept for another segment is."""
        try:
            return self._disk.open_read(self._name(base))
        except OSError as error:
            if error.errno not in NO_FILES or not self._readers:
                raise
        self._readers.popitem(last=False)[1].close()
        return self._disk.open_read(self._name(base))

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

    def newest_base(self) -> int:
        bases = self.bases
        return bases[-1] if bases else 0

    def end(self) -> int:
        return self.bases[-1] + self._size if self.bases else self._range.start

    def drop(self, segment: Segment) -> None:
        assert segment.base != self.bases[-1], "the segment being written is never dropped"
        assert segment.base in self.bases, "a segment is dropped once"
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


# --- a log of two chains ------------------------------------------------------------------------------------------

class Chain(Protocol):
    """One sequence of frames in segments; its methods are those of `kernel.log.log.Log` for one chain."""

    def recover(self, start: int, on_damage: Callable[[Damage], None]) -> Iterator[Frame]: ...

    def advance(self, position: int) -> None: ...

    def append(self, head: bytes, body: bytes) -> int: ...

    def sync(self) -> None: ...

    def ask(self, position: int, offset: int, size: int) -> None: ...

    def read(self, position: int, offset: int, size: int) -> bytes: ...

    def read_many(self, spans: list[tuple[int, int, int]]) -> list[bytes]: ...

    def heads(self, segment: Segment) -> Iterator[Frame]: ...

    def segments(self) -> list[Segment]: ...

    def drop(self, segment: Segment) -> None: ...

    def newest_base(self) -> int: ...

    def end(self) -> int: ...

    def close(self) -> None: ...


class TwoChains:
    """`kernel.log.log.Log` over a main and a kept chain; positions from KEPT_BASE on are the kept one's."""

    def __init__(self, main: Chain, kept: Chain) -> None:
        self._main = main
        self._kept = kept

    def recover(self, start: int, kept_start: int, on_damage: Callable[[Damage], None]) -> Iterator[Frame]:
        yield from self._kept.recover(kept_start, on_damage)
        yield from self._main.recover(start, on_damage)

    def advance(self, main: int, kept: int) -> None:
        self._main.advance(main)
        self._kept.advance(kept)

    def append(self, head: bytes, body: bytes) -> int:
        position = self._main.append(head, body)
        assert position < KEPT_BASE, "the main chain has used up its positions"
        return position

    def sync(self) -> None:
        self._main.sync()

    def keep(self, head: bytes, body: bytes) -> int:
        position = self._kept.append(head, body)
        assert position >= KEPT_BASE, "kept frames are above all of the main chain"
        return position

    def sync_kept(self) -> None:
        self._kept.sync()

    def ask(self, spans: list[tuple[int, int, int]]) -> None:
        for position, offset, size in spans:
            self._chain(position).ask(position, offset, size)

    def read(self, spans: list[tuple[int, int, int]]) -> list[bytes]:
        if not any(position >= KEPT_BASE for position, _, _ in spans):
            return self._main.read_many(spans)
        return [self._chain(position).read(position, offset, size) for position, offset, size in spans]

    def heads(self, segment: Segment) -> Iterator[Frame]:
        return self._chain(segment.base).heads(segment)

    def segments(self) -> list[Segment]:
        return self._main.segments()

    def kept_segments(self) -> list[Segment]:
        return self._kept.segments()

    def drop(self, segment: Segment) -> None:
        assert segment.base >= KEPT_BASE or segment.base == self._main.segments()[0].base, "only the oldest is dropped"
        self._chain(segment.base).drop(segment)

    def newest_base(self) -> int:
        return self._main.newest_base()

    def end(self) -> int:
        return self._main.end()

    def kept_end(self) -> int:
        return self._kept.end()

    def close(self) -> None:
        self._main.close()
        self._kept.close()

    def _chain(self, position: int) -> Chain:
        return self._kept if position >= KEPT_BASE else self._main


class SegmentLog(TwoChains):  # decision 6
    """`kernel.log.log.Log` over a disk: the folders `log` and `kept`."""

    def __init__(self, disk: Disk, segment_bytes: int = 256 << 20, on_note: Callable[[Note], None] | None = None
                 ) -> None:
        """`on_note` is told what people should know of a start and what is no damage."""
        self.aside = SetAside(disk, on_note)
        self.main_files = SegmentChain(disk, "log", range(KEPT_BASE), segment_bytes, self.aside)
        self._kept_files = SegmentChain(disk, "kept", range(KEPT_BASE, MAX_POSITION), segment_bytes, self.aside)
        super().__init__(self.main_files, self._kept_files)

    def file_of(self, base: int) -> str:
        """The name that a segment's file has, here and in a copy of this log."""
        return (self._kept_files if base >= KEPT_BASE else self.main_files).file_of(base)

    def copy(self, base: int, offset: int, size: int) -> bytes:
        """Bytes of a segment's file as they lie there, its header included. Any thread."""
        return (self._kept_files if base >= KEPT_BASE else self.main_files).read(base, offset, size)
