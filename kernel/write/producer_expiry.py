"""Idempotent producers that have been silent for a week are forgotten, as Kafka forgets them.

Every start of a client brings a new producer id, so their states would otherwise only grow. A clock decides, so the
deletions are appended as state first and take effect then. A producer that comes back later begins anew.
"""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.parts import Parts
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.write.appending import Appending
from gatehouse.kernel.write.producers import decode_key, decode_state

SILENT_MS: Final = 7 * 24 * 3_600_000      # Kafka's transactional.id.expiration.ms
LOOK_MS: Final = 3_600_000
KEYS_PER_LOOK: Final = 10_000              # bounds one frame; the rest goes at the next look


class ProducerExpiry:
    def __init__(self, parts: Parts, appending: Appending) -> None:
        self._parts = parts
        self._appending = appending
        self._stopped = False

    def start(self) -> None:
        loop = self._parts.loop
        loop.call_at(loop.now_ms() + LOOK_MS, self._look)

    def stop(self) -> None:
        self._stopped = True

    def _look(self) -> None:
        if not self._stopped:
            before_ms = self._parts.clock.ages().appended_by(SILENT_MS)
            self._parts.checkpoint_worker.submit(lambda: self._silent(before_ms), self._looked)
            self.start()

    def _silent(self, before_ms: int) -> tuple[int, list[bytes]]:
        """On the checkpoint's thread: the producers that were silent at the last checkpoint."""
        keys: list[bytes] = []
        for key, value in self._parts.index.scan_state(Kind.PRODUCER):
            if decode_state(value).append_ms < before_ms:
                keys.append(key)
                if len(keys) == KEYS_PER_LOOK:
                    break
        return before_ms, keys

    def _looked(self, silent_producers: tuple[int, list[bytes]] | None, error: BaseException | None) -> None:
        if silent_producers is None:
            self._parts.fatal(f"the index cannot be read: {error}")
            return
        before_ms, keys = silent_producers
        producers = self._parts.producers
        records: list[StateRecord] = []
        for key in keys:
            name = decode_key(key)
            state = producers.get(*name)            # it may have written since the checkpoint
            if state is not None and state.append_ms < before_ms:
                producers.put(*name, None)
                records.append(StateRecord(Kind.PRODUCER, key, None))
        try:
            if records:
                self._appending.put_state(records, None, None)
        except Stopping:
            producers.forget()
