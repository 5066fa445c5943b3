"""A folder of Parquet files as the archive keeps it, for readers without Delta.

A micro-batch's files get their names in the commit: `batch-0000000012-0003.parquet`, numbered in the order of the
tasks. A micro-batch that comes again replaces its own files name by name, so nothing is there twice once its commit has
ended. There is no table's log to make a commit one step: a reader may see a part of the newest micro-batch, and an
unfinished one's files begin with a dot, which readers skip.
"""
from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gatehouse.spark.jobs.files import WrittenFile


def final_name(batch_id: int, number: int) -> str:
    """Name of a committed file."""
    return f"batch-{batch_id:010d}-{number:04d}.parquet"


def commit(folder: Path, files: Iterable[WrittenFile], batch_id: int) -> None:
    """Name a micro-batch's files, and remove what an earlier attempt at it left."""
    kept = set()
    for number, file in enumerate(files):
        source = folder / file.path
        target = source.with_name(final_name(batch_id, number))
        source.replace(target)
        kept.add(target)
    for left in folder.glob(f"topic=*/date=*/batch-{batch_id:010d}-*.parquet"):
        if left not in kept:
            left.unlink()
