"""What a start cuts off the log or cannot place is put into the folder `damaged` first. Nothing reads it there.

    log-tail-POSITION-CRC       what lay behind the last whole frame, up to the last byte that is not zero
    log-range-POSITION-CRC      a range between frames that cannot be read
    log-file-NAME               a file with a segment's name that holds no frame of its place, moved as it was
    kept-...                    the same of the kept chain

A tail is what any kill or power cut may leave: a frame that was not yet whole, so that nobody was told of it. A last
frame that was acknowledged and damaged later looks the same. So tails are kept for whoever misses something, the newest
MAX_TAILS of them, and are no alarm. Of everything else the first is worth the most, since one bad disk damages more and
more: where MAX_FILES or MAX_BYTES are reached, nothing is added, which is said, until somebody empties the folder.

The names say what is in a file, so the same damage found by the next start is not copied again.
"""
from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

if TYPE_CHECKING:
    from gatehouse.kernel.log.segments import Disk, SegmentReader

DAMAGED: Final = "damaged"
TAIL: Final = "-tail-"                 # in the names of tails
MAX_FILES: Final = 100                 # beside tails: some dozen incidents, and a folder that people can look through
MAX_BYTES: Final = 1 << 30             # of these, about: four segments
MAX_TAILS: Final = 8                   # one comes with each kill, and only the last few can still be missed
MAX_TAIL_BYTES: Final = 64 << 20       # of one tail: some frames of the largest size
PIECE_BYTES: Final = 1 << 20
MAX_NOTES: Final = 100                 # told in one start


class Put(NamedTuple):
    """What became of something that was to be set aside; `str` is how it is told."""

    is_done: bool
    text: str

    def __str__(self) -> str:
        return self.text


class Note(NamedTuple):
    """Something that a start did and that is no loss."""

    is_warning: bool           # else it is what any kill may leave
    text: str


class SetAside:  # decision 117
    """The folder `damaged` of one data directory. `on_note` is told what people should know and what is no damage."""

    def __init__(self, disk: Disk, on_note: Callable[[Note], None] | None) -> None:
        self._disk = disk
        self._on_note = on_note
        self._known: dict[str, int] | None = None        # what is in the folder, and its sizes
        self._notes = 0
        self.mended = 0                    # headers that were written anew

    def copy(self, kind: str, reader: SegmentReader, start: int, stop: int) -> Put:
        """Copy a range of a segment's file, without zeros at its end."""
        stop = reader.last_byte(start, stop)
        if stop == start:
            return Put(True, "it is all zeros")
        name = f"{kind}-{reader.base + start:020d}-{_crc_of(reader, start, stop):08x}"
        try:
            sizes = self._sizes()
            if sizes.get(name) == stop - start:
                return Put(True, f"a copy is in {DAMAGED}/{name}")
            if TAIL in name:
                self._make_room_for_tail(sizes)
            elif not _has_room(sizes, stop - start):
                return Put(False, f"no copy was made, {DAMAGED}/ is full")
            self._copy(f"{DAMAGED}/{name}", reader, start, stop)
            sizes[name] = stop - start
        except OSError as error:
            return Put(False, f"no copy could be made: {error}")
        return Put(True, f"a copy is in {DAMAGED}/{name}")

    def copy_tail(self, kind: str, reader: SegmentReader, start: int) -> None:
        """What is cut off the end of a chain."""
        stop = reader.last_byte(start, reader.size)
        if stop > start:
            put = self.copy(kind, reader, start, min(stop, start + MAX_TAIL_BYTES))
            self.tell(Note(False, f"behind the end of the log {stop - start} bytes are cut off that are no whole "
                                   f"frame, as a kill leaves them; {put}"))

    def move(self, name: str, *, is_tail: bool) -> Put:
        """Take a file away from among the segments, as it is. `is_tail`: behind the end of its chain."""
        folder, _, short = name.partition("/")
        new = f"{folder}{TAIL if is_tail else '-'}file-{short}"
        try:
            sizes = self._sizes()
            while new in sizes:
                new += "+"
            with closing(self._disk.open_read(name)) as file:
                size = file.size()
            if is_tail:
                self._make_room_for_tail(sizes)
            elif not _has_room(sizes, size):
                return Put(False, f"it stays where it is, {DAMAGED}/ is full")
            self._disk.move(name, f"{DAMAGED}/{new}")
            self._disk.sync_folder(DAMAGED)
            self._disk.sync_folder(folder)
            sizes[new] = size
        except OSError as error:
            return Put(False, f"it could not be moved: {error}")
        return Put(True, f"it is {DAMAGED}/{new} now")

    def note_mended(self, text: str) -> None:
        """A header was written anew."""
        self.mended += 1
        self.tell(Note(True, text))

    def tell(self, note: Note) -> None:
        """What people should know, up to MAX_NOTES of it."""
        self._notes += 1
        if self._on_note is not None and self._notes <= MAX_NOTES:
            self._on_note(note)

    def _sizes(self) -> dict[str, int]:
        if self._known is None:
            self._known = {}
            for name in self._disk.names(DAMAGED):
                with closing(self._disk.open_read(f"{DAMAGED}/{name}")) as file:
                    self._known[name] = file.size()
        return self._known

    def _make_room_for_tail(self, sizes: dict[str, int]) -> None:
        """The oldest goes: positions grow, and so do the names."""
        tails = sorted([name for name in sizes if TAIL in name], key=lambda name: name.split("-")[-2:])
        for name in tails[:max(0, len(tails) - MAX_TAILS + 1)]:
            self._disk.remove(f"{DAMAGED}/{name}")
            del sizes[name]

    def _copy(self, name: str, reader: SegmentReader, start: int, stop: int) -> None:
        with closing(self._disk.open_append(name)) as file:
            file.truncate(0)                   # what a crash left of the same copy
            try:
                for at in range(start, stop, PIECE_BYTES):
                    file.append([reader.file.read(at, min(PIECE_BYTES, stop - at))])
            except OSError:                    # a full disk needs what room there is for something better
                file.truncate(0)
                raise
            file.sync()
        self._disk.sync_folder(DAMAGED)


def _has_room(sizes: dict[str, int], size: int) -> bool:
    mine = [held for name, held in sizes.items() if TAIL not in name]
    return len(mine) < MAX_FILES and sum(mine) + size <= MAX_BYTES


def _crc_of(reader: SegmentReader, start: int, stop: int) -> int:
    crc = 0
    for at in range(start, stop, PIECE_BYTES):
        crc = crc32c(reader.file.read(at, min(PIECE_BYTES, stop - at)), crc)
    return crc
