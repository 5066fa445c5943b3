"""Idempotent producers that have been silent for a week are forgotten, as Kafka forgets them.

Every start of a client brings a new producer id, so their states would otherwise only grow. A clock decides, so the
deletions are appended as state first and take effect then. A producer that comes back later begins anew.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.state.clock import Clock
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.producers import Producers, decode_key, decode_state

SILENT_MS: Final = 7 * 24 * 3_600_000      # Kafka's transactional.id.expiration.ms
LOOK_MS: Final = 3_600_000
KEYS_PER_LOOK: Final = 10_000              # bounds one frame; the rest goes at the next look


class ProducerExpiry:
    """`worker` reads the index."""

    def __init__(self, *, loop: Loop, worker: Worker, clock: Clock, index: Index, producers: Producers,
                 committer: Committer, fatal: Callable[[str], None]) -> None:
        self._loop = loop
        self._worker = worker
        self._clock = clock
        self._index = index
        self._producers = producers
        self._committer = committer
        self._fatal = fatal
        self._stopped = False

    def start(self) -> None:
        self._loop.call_at(self._loop.now_ms() + LOOK_MS, self._look)

    def stop(self) -> None:
        self._stopped = True

    def _look(self) -> None:
        if not self._stopped:
            before_ms = self._clock.ages().appended_by(SILENT_MS)
            self._worker.submit(lambda: self._silent(before_ms), self._looked)
            self.start()

    def _silent(self, before_ms: int) -> tuple[int, list[bytes]]:
        """On the checkpoint's thread: the producers that were silent at the last checkpoint."""
        keys: list[bytes] = []
        for key, value in self._index.scan_state(Kind.PRODUCER):
            if decode_state(value).append_ms < before_ms:
                keys.append(key)
                if len(keys) == KEYS_PER_LOOK:
                    break
        return before_ms, keys

    def _looked(self, silent_producers: tuple[int, list[bytes]] | None, error: BaseException | None) -> None:
        if silent_producers is None:
            self._fatal(f"the index cannot be read: {error}")
            return
        before_ms, keys = silent_producers
        producers = self._producers
        records: list[StateRecord] = []
        for key in keys:
            name = decode_key(key)
            state = producers.get(*name)            # it may have written since the checkpoint
            if state is not None and state.append_ms < before_ms:
                producers.put(*name, None)
                records.append(StateRecord(Kind.PRODUCER, key, None))
        try:
            if records:
                self._committer.put_state(records).join(producers)
        except Stopping:
            producers.forget()
