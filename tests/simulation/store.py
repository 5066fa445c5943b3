"""An index store that may lose its newest writes, in order: RocksDB with its write-ahead log, in memory.

A `write` is cut into small batches, each of them whole or not there. A power cut keeps everything synced and some
number of the batches after it; a kill keeps all, as the write-ahead log is with the system by then.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from gatehouse.kernel.state.store import MemoryStore, StoreCursor
from tests.simulation.disk import CrashKind

BATCH_OPERATIONS = 5         # RocksStore takes 500; a plan writes some dozens


class _Batch:
    """What one write to the database does at once."""

    def __init__(self, puts: Sequence[tuple[bytes, bytes]] = (), deletes: Sequence[bytes] = (),
                 ranges: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self._puts, self._deletes, self._ranges = list(puts), list(deletes), list(ranges)

    def apply(self, store: MemoryStore) -> None:
        store.write(self._puts, self._deletes, self._ranges)


class SimStore:
    """`kernel.state.store.IndexStore`; `operate` runs one batch and may crash instead."""

    def __init__(self, random: Random, operate: Callable[[str, str, Callable[[], None]], None]) -> None:
        self._random = random
        self._operate = operate
        self._now = MemoryStore()
        self._durable = MemoryStore()
        self._pending: list[_Batch] = []

    def get(self, key: bytes) -> bytes | None:
        return self._now.get(key)

    def floor(self, key: bytes, lowest: bytes) -> tuple[bytes, bytes] | None:
        return self._now.floor(key, lowest)

    def scan(self, lowest: bytes, below: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._now.scan(lowest, below)

    def scan_from(self, key: bytes, lowest: bytes, below: bytes) -> Iterator[bytes]:
        return self._now.scan_from(key, lowest, below)

    def cursor(self) -> StoreCursor:
        return self._now.cursor()

    def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = (),
              ranges: Sequence[tuple[bytes, bytes]] = (), *, sync: bool = False) -> None:
        for one in ranges:
            self._write(_Batch(ranges=[one]))
        for at in range(0, len(deletes), BATCH_OPERATIONS):
            self._write(_Batch(deletes=deletes[at:at + BATCH_OPERATIONS]))
        for at in range(0, len(puts), BATCH_OPERATIONS):
            self._write(_Batch(puts=puts[at:at + BATCH_OPERATIONS]))
        if sync:
            self._operate("sync", "index", self._sync)

    def _write(self, batch: _Batch) -> None:
        def apply() -> None:
            batch.apply(self._now)
            self._pending.append(batch)

        self._operate("write", "index", apply)

    def _sync(self) -> None:
        for batch in self._pending:
            batch.apply(self._durable)
        self._pending.clear()

    def close(self) -> None:
        pass

    # ---- what happens to it

    def crash(self, kind: CrashKind) -> None:
        if kind == "power":
            del self._pending[self._random.randrange(len(self._pending) + 1):]
            self._sync()
            self._now = MemoryStore()
            self._now.write(list(self._durable.scan(b"", b"\xff" * 32)))

    def delete_folder(self) -> None:
        """Somebody removes the index while the hub is down."""
        self._now, self._durable, self._pending = MemoryStore(), MemoryStore(), []
