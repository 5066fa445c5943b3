"""The truth of a catalogue in SQLite as a small database of its own: users, rights and whatever else the log does not
hold. The projection's tables are in it too, and empty: a start fills them from the log.

Everything is read in one transaction, so the copy is one moment's, and nobody who writes waits for it.
"""
from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from gatehouse.kernel.state.catalogue import BUSY_MS, PROJECTION

_SCHEMA: Final = ("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite!_%' "
                  "ESCAPE '!' ORDER BY type != 'table'")


def copy_truth(file: Path) -> bytes:
    """The copy as the bytes of a database file. Raises sqlite3.Error."""
    projected = set(PROJECTION.tables)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        copy.execute("ATTACH DATABASE ? AS source", (f"{file.absolute().as_uri()}?mode=rw",))
        copy.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        copy.execute("BEGIN")
        for kind, name, sql in copy.execute(_SCHEMA.replace("sqlite_master", "source.sqlite_master")).fetchall():
            copy.execute(sql)
            if kind == "table" and name not in projected:
                quoted = '"' + name.replace('"', '""') + '"'
                copy.execute(f"INSERT INTO main.{quoted} SELECT * FROM source.{quoted}")
        copy.execute("COMMIT")
        return copy.serialize()
