"""A backup in a folder: which files it consists of, and what says so.

    manifest.json        the newest backup that is complete; replaced as a whole
    incomplete.json      a backup is being taken, or was cut off: what of it is here already
    log/ kept/           segments, under the names that they have in a hub's data directory
    catalogue-ID.sqlite  users, rights and whatever else the log does not hold

A file may be longer than its backup says: the rest belongs to one that was cut off, and is not read. So the manifest
holds from the moment it is written until the next one replaces it, whatever happens in between.
"""
from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

from gatehouse import exits
from gatehouse.exits import Refused

VERSION: Final = 1
MANIFEST: Final = "manifest.json"
INCOMPLETE: Final = "incomplete.json"
SEGMENTS: Final = ("log", "kept")
CATALOGUE: Final = "catalogue.sqlite"
INCLUDED: Final = "included"
"""How a manifest begins to tell of a catalogue that is in the backup; of another one it says where it is."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One file of a backup."""

    name: str                  # in a data directory
    file: str                  # in the backup's folder
    bytes: int
    crc32c: int                # of that many bytes
    sealed: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """One backup."""

    name: str                  # of the hub
    hub: str
    lineage: str
    version: str               # of the Gatehouse that wrote it
    format: int                # of the data
    epoch: int
    next_id: int
    created: int               # when the log was cut, in ms since 1970
    catalogue: str
    files: tuple[Copy, ...] = field(default=())

    @property
    def total_bytes(self) -> int:
        return sum(copy.bytes for copy in self.files)


def read(folder: Path, name: str = MANIFEST) -> Manifest | None:
    """The manifest in a folder; None where there is none. Raises Refused for one that cannot be read."""
    file = folder / name
    try:
        document = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Refused(f"{file} cannot be read: {error}", exits.STORAGE) from None
    if not isinstance(document, dict) or document.get("gatehouse_backup") != VERSION:
        raise Refused(f"{file} is no manifest of a backup that this version knows", exits.DATA_FORMAT)
    try:
        copies = tuple(Copy(**copy) for copy in document.pop("files"))
        del document["gatehouse_backup"]
        manifest = Manifest(**document, files=copies)
    except (TypeError, KeyError):
        raise Refused(f"{file} is not as a backup writes it", exits.DATA_FORMAT) from None
    for copy in copies:
        if not is_inside(copy.name) or not is_inside(copy.file):
            raise Refused(f"{file} names a file outside its folder", exits.DATA_FORMAT)
    return manifest


def is_inside(name: str) -> bool:
    """Whether a name from outside is one of the two forms that a backup has: NAME or FOLDER/NAME."""
    path = PurePosixPath(name)
    plain = not path.is_absolute() and ".." not in path.parts and str(path) == name and "\0" not in name
    return plain and (len(path.parts) == 1 or len(path.parts) == 2 and path.parts[0] in SEGMENTS)


def write(folder: Path, manifest: Manifest, name: str = MANIFEST) -> None:
    """Replace it as a whole. Raises OSError."""
    document: dict[str, Any] = {"gatehouse_backup": VERSION, **asdict(manifest)}
    new = folder / f"{name}.new"
    with open_private(new) as file:
        file.truncate(0)
        file.write(json.dumps(document, indent=1).encode())
        sync_file(file)
    new.replace(folder / name)
    sync_folder(folder)


def open_private(path: Path) -> BinaryIO:
    """A file to read and write, made where it is missing, for its owner alone: it holds what proves passwords. Raises
    OSError."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")


def sync_file(file: BinaryIO) -> None:
    """What was written to a file survives a power cut. Raises OSError."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Names made in a folder and removed from it stay so after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One at a time works in a folder. Raises Refused."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Refused(f"another backup or restore is at work in {folder}", exits.DATA_IN_USE) from None
        yield
    finally:
        os.close(descriptor)
