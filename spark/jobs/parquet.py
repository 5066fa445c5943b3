"""A folder of Parquet files as the archive keeps it, for readers without Delta.

A micro-batch's files get their names in the commit: `batch-0000000012-0003.parquet`, numbered in the order of the
tasks. A micro-batch that comes again replaces its own files name by name, so nothing is there twice once its commit has
ended. There is no table's log to make a commit one step: a reader may see a part of the newest micro-batch, and an
unfinished one's files begin with a dot, which readers skip. Another query numbers its micro-batches anew and would
replace what is there: `_query` says whose the folder is.
"""
from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gatehouse.spark.jobs.delta import ForeignTable
from gatehouse.spark.jobs.files import WrittenFile

OWNER: Final = "_query"
"""A file with the id of the streaming query. Readers skip what begins with an underscore."""


def claim(folder: Path, application: str, batch_id: int) -> None:
    """The folder is this query's from now on. Raises ForeignTable where it holds the files of another."""
    note = folder / OWNER
    owner = note.read_text() if note.exists() else ""
    if owner == application:
        return
    committed = folder.glob("topic=*/date=*/batch-*.parquet")
    if (owner or batch_id == 0) and any(owner or not file.name.startswith(_prefix(batch_id)) for file in committed):
        raise ForeignTable(f"the files in {folder} were written with another checkpoint: going on would replace them. "
                           "Give the old `checkpoint`, or another folder with `to`")
    folder.mkdir(parents=True, exist_ok=True)
    written = note.with_name(f".{OWNER}")
    written.write_text(application)
    written.replace(note)


def _prefix(batch_id: int) -> str:
    return f"batch-{batch_id:010d}-"


def final_name(batch_id: int, number: int) -> str:
    """Name of a committed file."""
    return f"{_prefix(batch_id)}{number:04d}.parquet"


def commit(folder: Path, files: Iterable[WrittenFile], batch_id: int) -> None:
    """Name a micro-batch's files, and remove what an earlier attempt at it left."""
    kept = set()
    for number, file in enumerate(files):
        source = folder / file.path
        target = source.with_name(final_name(batch_id, number))
        source.replace(target)
        kept.add(target)
    for left in folder.glob(f"topic=*/date=*/{_prefix(batch_id)}*.parquet"):
        if left not in kept:
            left.unlink()
