"""Opens the index's store. What it holds can be rebuilt from the log: a damaged one is thrown away, not repaired."""
from __future__ import annotations

import logging
import shutil
from pathlib import Path

from kernel.store import IndexStore, RocksStore

log = logging.getLogger("gatehouse")


def open_index(folder: Path) -> IndexStore:
    """The store in this folder, or an empty one in its place where it cannot be opened."""
    try:
        return RocksStore(folder)
    except Exception as error:    # rocksdict raises plain Exception for everything
        if not folder.exists():
            raise OSError(f"cannot make the index in {folder}: {error}") from None
        log.warning("the index in %s cannot be opened (%s); it is rebuilt from the log", folder, error)
        shutil.rmtree(folder)
        return RocksStore(folder)
