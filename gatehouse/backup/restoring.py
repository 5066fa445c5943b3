"""Puts a backup in place as the data directory of the same hub.

    check     every file of the backup against its checksum, before anything is written
    copy      into an empty folder, which no hub takes for its own meanwhile
    resume    the log is read as a start reads it, and goes on behind what its hub may have given out since
    format    written last: from now on it is a data directory

The index is not in a backup: the first start builds it from the log.
"""
from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_bytes
from typing import Final, NamedTuple

from crc32c import crc32c

from gatehouse import exits
from gatehouse.backup import manifest as manifests
from gatehouse.backup.manifest import INCOMPLETE, SEGMENTS, Copy, Manifest
from gatehouse.datadir import FORMAT, begin_data_dir
from gatehouse.exits import Refused
from gatehouse.kernel.log.log import Damage, LogFailed, LogFull
from gatehouse.kernel.log.segments import RealDisk, SegmentLog
from gatehouse.kernel.recovery.resuming import LogSummary, look_through, resume

PIECE_BYTES: Final = 1 << 20

OnProgress = Callable[[int], None]


class Restored(NamedTuple):
    """What was put in place."""

    manifest: Manifest
    summary: LogSummary        # as the hub goes on
    damage: list[Damage]       # what the log had lost before it was copied


def find_backup(source: Path) -> tuple[Manifest, bool]:
    """The complete backup in a folder, and whether a later one was cut off. Raises Refused."""
    manifest = manifests.read(source)
    cut_off = (source / INCOMPLETE).exists()
    if manifest is None and cut_off:
        raise Refused(f"the backup in {source} was cut off before it was complete; run `gatehouse backup {source}` "
                      "again, which goes on with it", exits.FAILED)
    if manifest is None:
        raise Refused(f"{source} holds no backup", exits.USAGE)
    if manifest.format > FORMAT:
        raise Refused(f"the backup in {source} has data of format {manifest.format}, this version knows "
                      f"up to {FORMAT}; use Gatehouse {manifest.version} or a newer one", exits.DATA_FORMAT)
    return manifest, cut_off


def verify(source: Path, manifest: Manifest, on_progress: OnProgress) -> None:
    """Read every file of a backup. Raises Refused with all that is wrong."""
    wrong = [f"{copy.file} {fault}" for copy in manifest.files if (fault := _fault(source, copy, on_progress))]
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise Refused(f"the backup in {source} is damaged: {wrong[0]}{more}; nothing was restored", exits.FAILED)


def _fault(source: Path, copy: Copy, on_progress: OnProgress) -> str:
    crc, left = 0, copy.bytes
    try:
        with (source / copy.file).open("rb") as file:
            while left and (piece := file.read(min(PIECE_BYTES, left))):
                crc = crc32c(piece, crc)
                left -= len(piece)
                on_progress(len(piece))
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if left:
        return f"is {left} bytes too short"
    return "" if crc == copy.crc32c else "does not match its checksum"


def restore(source: Path, manifest: Manifest, folder: Path, on_progress: OnProgress) -> Restored:
    """Make `folder` the hub's data directory again. Raises Refused."""
    with begin_data_dir(folder, manifest.format):
        try:
            for name in SEGMENTS:
                (folder / name).mkdir(mode=0o700, exist_ok=True)
            for copy in manifest.files:
                _put(source, folder, copy, on_progress)
            for name in (*SEGMENTS, "."):
                manifests.sync_folder(folder / name)
            return _resume(manifest, folder)
        except (OSError, LogFull, LogFailed) as error:
            raise Refused(f"{folder} cannot be written: {error}; empty it and restore again", exits.STORAGE) from None


def _put(source: Path, folder: Path, copy: Copy, on_progress: OnProgress) -> None:
    left = copy.bytes
    with (source / copy.file).open("rb") as file, manifests.open_private(folder / copy.name) as put:
        while left and (piece := file.read(min(PIECE_BYTES, left))):
            put.write(piece)
            left -= len(piece)
            on_progress(len(piece))
        manifests.sync_file(put)


def _resume(manifest: Manifest, folder: Path) -> Restored:
    damage: list[Damage] = []
    log = SegmentLog(RealDisk(folder))
    try:
        contents = look_through(log, damage.append)
        if contents.hub.hex() != manifest.hub or contents.epoch < manifest.epoch:
            raise Refused(f"the log in the backup is not that of the hub {manifest.hub}; nothing can be restored from "
                          "it", exits.FAILED)
        contents = contents._replace(next_id=max(contents.next_id, manifest.next_id))
        return Restored(manifest, resume(log, contents, manifest.created, time.time_ns() // 1_000_000, token_bytes(32)),
                        damage)
    finally:
        log.close()
