"""Which idempotent producers a partition knows, for people who look: what is durable, and nothing of what is pending.

What the store has is read on another thread; what is newer is in memory.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from gatehouse.kernel.index.index import Index
from gatehouse.kernel.message import KnownProducer
from gatehouse.kernel.ports import Worker
from gatehouse.kernel.state.state import Changed, Kind, StateTable
from gatehouse.kernel.write.producers import SEQUENCE_SPACE, decode_key, decode_state

MAX_FOUND: Final = 10_000            # producers of one partition


class KnownProducers:
    """`worker` reads the index."""

    def __init__(self, *, worker: Worker, index: Index, state: StateTable) -> None:
        self._worker = worker
        self._index = index
        self._state = state

    def find(self, partition_id: int, on_done: Callable[[list[KnownProducer]], None]) -> None:
        """See `Kernel.producers_of`."""
        changed = self._state.changed(Kind.PRODUCER)
        self._worker.submit(partial(self._read, partition_id, changed), partial(_found, on_done))

    def _read(self, partition_id: int, changed: Changed) -> list[KnownProducer]:
        """On the reading thread."""
        lowest, below = (number.to_bytes(8, "big") for number in (partition_id, partition_id + 1))
        values: dict[bytes, bytes | None] = {}
        for key, value in self._index.scan_state(Kind.PRODUCER, lowest, below):
            values[key] = value
            if len(values) == MAX_FOUND:
                break
        for key in changed.keys():
            newest = changed.get(key)
            if newest is not None and key.startswith(lowest) and (key in values or len(values) < MAX_FOUND):
                values[key] = newest[2]
        return [_known(key, value) for key, value in sorted(values.items()) if value is not None]


def _known(key: bytes, value: bytes) -> KnownProducer:
    state = decode_state(value)
    last_sequence = (state.batches[-1].next_sequence - 1) % SEQUENCE_SPACE
    return KnownProducer(decode_key(key)[1], state.epoch, last_sequence, state.append_ms)


def _found(on_done: Callable[[list[KnownProducer]], None], producers: list[KnownProducer] | None,
           error: BaseException | None) -> None:
    on_done(producers or [])
