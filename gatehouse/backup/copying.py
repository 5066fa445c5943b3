"""Copies a backup from its source into a folder: what an earlier backup in there has already is not copied again.

A segment that has grown is added to behind what is there; a new catalogue is a new file. So the backup that the folder
holds stays whole until the new one is, and one that is cut off (a kill, a full disk, a hub that went away) costs
nothing but what it had copied; most of that is found and used by the next.
"""
from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from crc32c import crc32c

from gatehouse import exits
from gatehouse.backup import manifest as manifests
from gatehouse.backup.manifest import CATALOGUE, INCOMPLETE, MANIFEST, SEGMENTS, Copy, Manifest
from gatehouse.backup.sources import PIECE_BYTES, Part, Source
from gatehouse.exits import Refused

OVERLAP_BYTES: Final = 65_536      # of a segment that has grown, compared before it is added to
NOTE_BYTES: Final = 64 << 20       # copied between two notes of what is there: more than that is not copied twice

OnProgress = Callable[[int], None]
"""Called with the bytes that a step has dealt with."""


class Done(NamedTuple):
    """A backup that was taken."""

    manifest: Manifest
    copied_bytes: int
    was_incomplete: bool       # the one before was cut off


class Copying:  # decision 108
    """One backup into one folder."""

    def __init__(self, source: Source, folder: Path, on_progress: OnProgress) -> None:
        self._source = source
        self._folder = folder
        self._on_progress = on_progress
        self._copied_bytes = 0

    def run(self) -> Done:
        """Raises Refused, and what the source raises."""
        plan = self._source.plan
        try:
            earlier, cut_off = manifests.read(self._folder), manifests.read(self._folder, INCOMPLETE)
            self._check(earlier)
            self._check(cut_off)
            copies = [copy for manifest in (cut_off, earlier) if manifest is not None for copy in manifest.files]
            now = Manifest(**plan.about)
            for name in SEGMENTS:
                (self._folder / name).mkdir(mode=0o700, exist_ok=True)
            noted_bytes = -NOTE_BYTES
            for part in plan.parts:
                if self._copied_bytes - noted_bytes >= NOTE_BYTES:
                    manifests.write(self._folder, replace(now, files=tuple({*now.files, *copies})), INCOMPLETE)
                    noted_bytes = self._copied_bytes
                now = replace(now, files=(*now.files, self._copy(part, copies)))
            for name in SEGMENTS:
                manifests.sync_folder(self._folder / name)
            manifests.write(self._folder, now)
            (self._folder / INCOMPLETE).unlink()
            self._clear({copy.file for copy in now.files})
            manifests.sync_folder(self._folder)
        except OSError as error:
            raise self._failed(error) from None
        return Done(now, self._copied_bytes, cut_off is not None)

    def _failed(self, error: OSError) -> Refused:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            left_bytes = sum(part.bytes for part in self._source.plan.parts) - self._copied_bytes
            return Refused(f"{self._folder} is full, up to {left_bytes} bytes are missing: make room and run the same "
                           "again, it goes on where it was; the backup that was complete before still is",
                           exits.STORAGE)
        return Refused(f"{self._folder} cannot be written: {error}", exits.STORAGE)

    def _check(self, earlier: Manifest | None) -> None:
        """Only a later moment of the same hub may be added."""
        about = self._source.plan.about
        if earlier is None:
            return
        if earlier.hub != about["hub"]:
            raise Refused(f"{self._folder} holds backups of another hub ({earlier.name or earlier.hub}); give a folder "
                          "of its own to each", exits.FAILED)
        if earlier.lineage != about["lineage"] or earlier.epoch > about["epoch"]:
            raise Refused(f"{self._folder} holds a backup of another course of this hub, which has been put back from "
                          "a backup since; give a new folder", exits.FAILED)

    # ---- one file

    def _copy(self, part: Part, copies: list[Copy]) -> Copy:
        name = part.name
        if name == CATALOGUE:
            path = PurePosixPath(CATALOGUE)
            name = f"{path.stem}-{self._source.plan.id}{path.suffix}"
        path_here = self._folder / name
        size_here = path_here.stat().st_size if path_here.exists() else 0
        have, crc = max([(copy.bytes, copy.crc32c) for copy in copies if copy.file == name and copy.bytes <= size_here],
                        default=(0, 0))
        if have > part.bytes:
            raise self._other_course(part.name)
        if have < part.bytes or not path_here.exists():
            crc = self._append(part, path_here, have, crc)
        self._on_progress(have)
        return Copy(part.name, name, part.bytes, crc, part.sealed)

    def _append(self, part: Part, path: Path, have: int, crc: int) -> int:
        with manifests.open_private(path) as file:
            if have:
                overlap = min(OVERLAP_BYTES, have)
                file.seek(have - overlap)
                if file.read(overlap) != self._source.read(part.name, have - overlap, overlap):
                    raise self._other_course(part.name)
            file.truncate(have)
            file.seek(have)
            at = have
            while at < part.bytes:
                piece = self._source.read(part.name, at, min(PIECE_BYTES, part.bytes - at))
                if not piece:
                    raise Refused(f"{part.name} ends before the hub said it would", exits.FAILED)
                file.write(piece)
                crc = crc32c(piece, crc)
                at += len(piece)
                self._copied_bytes += len(piece)
                self._on_progress(len(piece))
            manifests.sync_file(file)
        return crc

    def _other_course(self, name: str) -> Refused:
        return Refused(f"{name} in {self._folder} is not what the hub had at that time: it was damaged, or the hub "
                       "lost something or was put back from elsewhere; give a new folder", exits.FAILED)

    # ---- afterwards

    def _clear(self, wanted: set[str]) -> None:
        """Take away what only earlier backups had."""
        candidates = [file for name in SEGMENTS for file in (self._folder / name).glob("*.log")]
        candidates += self._folder.glob("catalogue-*.sqlite")
        for file in candidates:
            if file.relative_to(self._folder).as_posix() not in wanted:
                file.unlink()


def open_folder(folder: Path) -> None:
    """Make the folder, or see that it is one for backups. Raises Refused."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = {entry.name for entry in folder.iterdir()} - {"lost+found"}
    except OSError as error:
        raise Refused(f"{folder} cannot be used: {error.strerror}", exits.STORAGE) from None
    if names and not names & {MANIFEST, INCOMPLETE, f"{INCOMPLETE}.new"}:
        raise Refused(f"{folder} is not empty and holds no backup; give a folder of its own", exits.USAGE)
