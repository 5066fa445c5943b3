"""Tells the hub every two seconds how large the archive's table is: the page reads it there, like everything else."""
from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from gatehouse.spark.jobs import delta
from gatehouse_client.errors import HubError
from gatehouse_client.sync import SyncClient

ADDRESS: Final = "events/archive/size"
EVERY_S: Final = 2.0


def size_of(folder: Path) -> dict[str, Any] | None:
    """Rows, files, bytes and commits of the table, from its log alone; None while there is no table."""
    table = delta.open_table(folder)
    if table is None:
        return None
    actions = pa.table(table.get_add_actions(flatten=True))
    rows: dict[str, int] = {}
    for topic, count in zip(actions.column("partition.topic").to_pylist(), actions.column("num_records").to_pylist(),
                            strict=True):
        rows[topic] = rows.get(topic, 0) + count
    return {"rows": sum(rows.values()), "by_topic": rows, "files": actions.num_rows,
            "bytes": sum(actions.column("size_bytes").to_pylist()), "version": table.version()}


class TableWatch:
    """Looks from its own thread until stopped."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._hub = SyncClient(url)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="table")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._hub.close()

    def _run(self) -> None:
        last_size = None
        while not self._stopped.wait(EVERY_S):
            size = size_of(self._folder)
            if size is None or size == last_size:
                continue
            try:
                self._hub.publish(ADDRESS, json.dumps(size), content_type="application/json")
                last_size = size
            except HubError:
                continue    # the hub is away: told again when it is back
