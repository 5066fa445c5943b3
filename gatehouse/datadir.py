"""The data directory's door: one hub at a time, and a format that this version understands.

    lock      locked (flock) by the hub that runs on it; holds its process id for `gatehouse reload`
    format    the number of the format of everything else in the folder; written once, raised by upgrades

The lock ends with the process, however that ends, so there is nothing to clean up after a crash. What lies beside these
two files belongs to the kernel.
"""
from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from gatehouse import exits

FORMAT: Final = 2

FOR_OWNER: Final = 0o600          # of files; folders 0700: messages, password hashes and the hub's secrets are in them

OURS: Final = ("log", "kept", "index", "damaged", "lock", "format", "reserve", "catalogue.sqlite")
"""How the names of what a hub makes in its data directory begin."""

UNFINISHED: Final = "unfinished restore"
"""What the file says while the folder is being filled: no version takes that for a number."""

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
        _make_private(folder)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, FOR_OWNER)
    except OSError as error:
        raise DataDirError(f"cannot use the data directory {folder}: {error.strerror}", exits.STORAGE) from None
    try:
        _lock(folder, descriptor)
        _check_format(folder, format_number, upgrades)
        _tighten(folder)
    except BaseException:
        os.close(descriptor)
        raise
    return DataDir(folder, descriptor)


def require_empty(folder: Path) -> None:
    """Make a folder where there is none. Raises DataDirError where it holds something."""
    try:
        _make_private(folder)
        names = sorted({entry.name for entry in folder.iterdir()} - {"lost+found"})
    except OSError as error:
        raise DataDirError(f"cannot use the data directory {folder}: {error.strerror}", exits.STORAGE) from None
    if names:
        raise DataDirError(f"{folder} is not empty: it has {names[0]!r}; give an empty folder, nothing is overwritten",
                           exits.USAGE)


@contextmanager
def begin_data_dir(folder: Path, format_number: int) -> Iterator[None]:
    """Fill an empty folder: at the end of the block it is a data directory of this format, and not before.

    Raises DataDirError where it is not empty. Where the block is left by an error, no hub takes what is there.
    """
    require_empty(folder)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, FOR_OWNER)
    try:
        _lock(folder, descriptor)
        _replace(folder, UNFINISHED)
        yield
        _write_format(folder, format_number)
    except OSError as error:
        raise DataDirError(f"{folder} cannot be written: {error}", exits.STORAGE) from None
    finally:
        os.close(descriptor)


def _make_private(folder: Path) -> None:
    """The folder, made where there is none, shut to others: password hashes and the hub's secrets are in it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & stat.S_IRWXO:
        with suppress(PermissionError):          # somebody else's, a volume's mount point say: his to decide
            folder.chmod(mode & ~stat.S_IRWXO)


def _tighten(folder: Path) -> None:
    """Take from everybody else what an earlier version, a copy or a loose umask let them do with what is ours in here.
    """
    for entry in folder.iterdir():
        if entry.name.startswith(OURS):
            _make_owners(entry)
            for path, folders, files in os.walk(entry):
                for name in folders + files:
                    _make_owners(Path(path, name))


def _make_owners(path: Path) -> None:
    with suppress(OSError):                      # somebody else's, or gone by now
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            path.chmod(mode & stat.S_IRWXU)


def _lock(folder: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        raise DataDirError(f"another hub (process {holder or 'unknown'}) runs on {folder}; stop it, or give this one "
                           "another folder with --data", exits.DATA_IN_USE) from None
    number = f"{os.getpid()}\n".encode()
    os.pwrite(descriptor, number, 0)             # first, so that it needs no room where there was a number before
    os.ftruncate(descriptor, len(number))


def _check_format(folder: Path, format_number: int, upgrades: Mapping[int, Upgrade]) -> None:
    file = folder / "format"
    try:
        text = file.read_text()
    except FileNotFoundError:
        _write_format(folder, format_number)
        return
    except (OSError, UnicodeDecodeError) as error:
        raise DataDirError(f"cannot read {file}: {error}", exits.STORAGE) from None
    if text.strip() == UNFINISHED:
        raise DataDirError(f"a restore into {folder} was cut off: empty the folder and restore again",
                           exits.DATA_FORMAT)
    if not text.strip().isdigit():
        raise DataDirError(f"{file} holds no number: {folder} is no data directory of Gatehouse", exits.DATA_FORMAT)
    stored_format = int(text)
    if stored_format > format_number:
        raise DataDirError(f"{folder} has format {stored_format}, this version knows up to {format_number}; use the "
                           "version that wrote it or a newer one", exits.DATA_FORMAT)
    while stored_format < format_number:
        if stored_format not in upgrades:
            raise DataDirError(f"{folder} has format {stored_format}, which this version cannot upgrade",
                               exits.DATA_FORMAT)
        upgrades[stored_format](folder)
        stored_format += 1
        _write_format(folder, stored_format)


def _write_format(folder: Path, number: int) -> None:
    """A crash leaves the old number or the new one."""
    _replace(folder, str(number))


def _replace(folder: Path, text: str) -> None:
    new = folder / "format.new"
    with open(new, "w", opener=partial(os.open, mode=FOR_OWNER)) as file:
        file.write(f"{text}\n")
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
