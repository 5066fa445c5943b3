"""The data directory's door: one hub at a time, and a format that this version understands.

    lock      locked (flock) by the hub that runs on it; holds its process id for `gatehouse reload`
    format    the number of the format of everything else in the folder; written once, raised by upgrades

The lock ends with the process, however that ends, so there is nothing to clean up after a crash. What lies beside these
two files belongs to the kernel.
"""
from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from gatehouse import exits

FORMAT: Final = 2

Upgrade = Callable[[Path], None]

def _read_as_it_is(_folder: Path) -> None:
    """The newer version reads what the older one wrote; the number only keeps the older one away from the newer's."""


# What brings a folder from the format that is the key to the next one. Format 1 is the first; 2 has frame heads of
# version 2 and state records of more kinds.
UPGRADES: Final[Mapping[int, Upgrade]] = {1: _read_as_it_is}


class DataDirError(exits.Refused):
    """This data directory cannot be used."""


class DataDir:
    """A data directory that is ours until `close`."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor

    def close(self) -> None:
        """Let the next hub have it."""
        os.close(self._descriptor)


def open_data_dir(folder: Path, format_number: int = FORMAT, upgrades: Mapping[int, Upgrade] = UPGRADES) -> DataDir:
    """Lock the folder, making it where there is none, and bring it to this format. Raises DataDirError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise DataDirError(f"cannot use the data directory {folder}: {error.strerror}", exits.STORAGE) from None
    try:
        _lock(folder, descriptor)
        _check_format(folder, format_number, upgrades)
    except BaseException:
        os.close(descriptor)
        raise
    return DataDir(folder, descriptor)


def _lock(folder: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        raise DataDirError(f"another hub (process {holder or 'unknown'}) runs on {folder}; stop it, or give this one "
                           "another folder with --data", exits.DATA_IN_USE) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _check_format(folder: Path, format_number: int, upgrades: Mapping[int, Upgrade]) -> None:
    file = folder / "format"
    try:
        text = file.read_text()
    except FileNotFoundError:
        _write_format(folder, format_number)
        return
    except (OSError, UnicodeDecodeError) as error:
        raise DataDirError(f"cannot read {file}: {error}", exits.STORAGE) from None
    if not text.strip().isdigit():
        raise DataDirError(f"{file} holds no number: {folder} is no data directory of Gatehouse", exits.DATA_FORMAT)
    found = int(text)
    if found > format_number:
        raise DataDirError(f"{folder} has format {found}, this version knows up to {format_number}; use the version "
                           "that wrote it or a newer one", exits.DATA_FORMAT)
    while found < format_number:
        if found not in upgrades:
            raise DataDirError(f"{folder} has format {found}, which this version cannot upgrade", exits.DATA_FORMAT)
        upgrades[found](folder)
        found += 1
        _write_format(folder, found)


def _write_format(folder: Path, number: int) -> None:
    """Replace the file as a whole: a crash leaves the old number or the new one."""
    new = folder / "format.new"
    with new.open("w") as file:
        file.write(f"{number}\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / "format")
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def running_process(folder: Path) -> int | None:
    """The process id of the hub that runs on this folder; None where none does."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        text = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdigit() else None
    else:
        return None
    finally:
        os.close(descriptor)
