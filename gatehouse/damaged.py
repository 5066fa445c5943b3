"""The folder `damaged` of a data directory: what a start could not use (`kernel.log.set_aside`), and damaged indexes.

An index that cannot be read is moved there as it is, `index-1`, `index-2` and so on: it is the only other witness of
what the log held. It may be large, so only the newest MAX_INDEXES are kept. One that lies elsewhere, behind a symbolic
link, stays on its disk, beside where it was. Nothing in the folder is ever read by a hub; whoever has looked at it may
delete it, while the hub runs too.
"""
from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final, NamedTuple

from gatehouse.kernel.log.set_aside import DAMAGED, TAIL
from gatehouse.kernel.state.store import MARK

INDEX: Final = "index"
MAX_INDEXES: Final = 2             # each as large as the index of the whole log


class Damaged(NamedTuple):
    """What is in the folder beside tails, which any kill may leave."""

    files: int                 # an index counts as one
    bytes: int


def count_damaged(data: Path) -> Damaged:
    files = size_bytes = 0
    try:
        for entry in (data / DAMAGED).iterdir():
            if TAIL not in entry.name:
                files += 1
                size_bytes += sum(file.stat().st_size for file in (entry.iterdir() if entry.is_dir() else (entry,)))
    except OSError:                # not there, or being deleted by somebody
        pass
    return Damaged(files, size_bytes)


def set_index_aside(data: Path) -> Path:
    """Move the index away; returns where it is. Raises OSError."""
    index = data / INDEX
    link = index.is_symlink()
    index = index.resolve()
    new = _beside(index) if link else _numbered(data / DAMAGED)
    index.rename(new)
    if link:
        index.mkdir(mode=0o700)
    (data / (INDEX + MARK)).unlink(missing_ok=True)
    return new


def _numbered(folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    names = [entry.name.removeprefix(f"{INDEX}-") for entry in folder.glob(f"{INDEX}-*")]
    numbers = sorted(int(name) for name in names if name.isdecimal())
    for number in numbers[:max(0, len(numbers) - MAX_INDEXES + 1)]:
        shutil.rmtree(folder / f"{INDEX}-{number}")
    return folder / f"{INDEX}-{numbers[-1] + 1 if numbers else 1}"


def _beside(index: Path) -> Path:
    """One place."""
    new = index.with_name(index.name + MARK)
    if new.exists():
        shutil.rmtree(new)
    return new
