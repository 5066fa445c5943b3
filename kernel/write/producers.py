"""Idempotent producers: a batch sent twice is stored once, a gap is refused.

Per partition and producer id the last five batches are remembered, as Kafka does: a client has at most five requests in
flight. The state travels in the frame of the batch itself, so both are there or neither is.
"""
from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from gatehouse.kernel.errors import FencedProducer, OutOfOrderSequence
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.records.batch import BatchHeader
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.write.pending_frame import PendingFrame

REMEMBERED_BATCHES: Final = 5
CACHED_PRODUCERS: Final = 50_000            # states in memory; the others are read from the store
SEQUENCE_SPACE: Final = 1 << 31             # sequences wrap to 0 after 2^31 - 1

_KEY = struct.Struct(">Qq")
_HEAD = struct.Struct(">hq")
_BATCH = struct.Struct(">iIqQ")


class KnownBatch(NamedTuple):
    """A batch that is stored: its sequences and the position it was answered with."""

    first_sequence: int
    records: int
    first_offset: int
    first_id: int

    @property
    def next_sequence(self) -> int:
        return (self.first_sequence + self.records) % SEQUENCE_SPACE


class ProducerState(NamedTuple):
    epoch: int
    append_ms: int
    batches: tuple[KnownBatch, ...]


def producer_key(partition_id: int, producer_id: int) -> bytes:
    return _KEY.pack(partition_id, producer_id)


def decode_key(key: bytes) -> tuple[int, int]:
    """(partition id, producer id)."""
    partition_id, producer_id = _KEY.unpack(key)
    return partition_id, producer_id


def encode_state(state: ProducerState) -> bytes:
    return _HEAD.pack(state.epoch, state.append_ms) + b"".join(_BATCH.pack(*batch) for batch in state.batches)


def decode_state(value: bytes) -> ProducerState:
    epoch, append_ms = _HEAD.unpack_from(value)
    return ProducerState(epoch, append_ms, tuple(map(KnownBatch._make, _BATCH.iter_unpack(value[_HEAD.size:]))))


def find_duplicate(state: ProducerState, header: BatchHeader) -> KnownBatch | None:
    """The remembered batch that `header` repeats."""
    if state.epoch != header.producer_epoch:
        return None
    for batch in state.batches:
        if batch.first_sequence == header.base_sequence and batch.records == header.record_count:
            return batch
    return None


def check_sequence(state: ProducerState | None, header: BatchHeader) -> None:
    """Raises FencedProducer or OutOfOrderSequence unless the batch is the next one; `find_duplicate` was asked before.

    What came before those that are remembered is out of order too, as in Kafka: a client that is told of a duplicate
    takes all of the batch for stored, and of one that is cut otherwise this time a part may not be.

    An unknown producer may begin anywhere: its earlier state may have expired with its data.
    """
    if state is None:
        return
    if header.producer_epoch < state.epoch:
        raise FencedProducer(f"producer {header.producer_id} wrote with epoch {state.epoch}, "
                             f"this batch has {header.producer_epoch}")
    if header.producer_epoch > state.epoch:
        if header.base_sequence != 0:
            raise OutOfOrderSequence(f"a new epoch of producer {header.producer_id} begins at 0, "
                                     f"not {header.base_sequence}")
        return
    expected = state.batches[-1].next_sequence
    if header.base_sequence != expected:
        raise OutOfOrderSequence(f"producer {header.producer_id} sent sequence {header.base_sequence}, "
                                 f"{expected} is next")


def with_batch(state: ProducerState | None, header: BatchHeader, append_ms: int, batch: KnownBatch) -> ProducerState:
    kept = state.batches[1 - REMEMBERED_BATCHES:] if state is not None and state.epoch == header.producer_epoch else ()
    return ProducerState(header.producer_epoch, append_ms, (*kept, batch))


class Producers:
    """States by (partition id, producer id), read through a bounded cache."""

    def __init__(self, load: Callable[[bytes], bytes | None]) -> None:
        self._load = load
        self._cached: OrderedDict[tuple[int, int], ProducerState | None] = OrderedDict()

    def get(self, partition_id: int, producer_id: int) -> ProducerState | None:
        name = (partition_id, producer_id)
        if name in self._cached:
            self._cached.move_to_end(name)
            return self._cached[name]
        stored = self._load(producer_key(partition_id, producer_id))
        state = None if stored is None else decode_state(stored)
        self.put(partition_id, producer_id, state)
        return state

    def put(self, partition_id: int, producer_id: int, state: ProducerState | None) -> None:
        assert state is None or 0 < len(state.batches) <= REMEMBERED_BATCHES, "the last batches, and at least one"
        self._cached[partition_id, producer_id] = state
        self._cached.move_to_end((partition_id, producer_id))
        if len(self._cached) > CACHED_PRODUCERS:
            self._cached.popitem(last=False)

    def forget(self) -> None:
        """Read everything anew: changes in memory were not stored."""
        self._cached.clear()

    # ---- taking part in a frame; see `kernel.write.pending_frame.Participant`

    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """Producers' batches have their offsets now; their states travel in the same frame."""
        for (partition_id, producer_id), batches in frame.produced.items():
            state = self.get(partition_id, producer_id)
            if state is None:
                continue
            placed = {(header.base_sequence, header.producer_epoch): run for header, run in batches}
            assert all(run.first_offset >= 0 for run in placed.values()), "batches have their offsets by now"
            known_batches = []
            for batch in state.batches:
                run = placed.get((batch.first_sequence, state.epoch)) if batch.first_offset < 0 else None
                known_batches.append(batch if run is None else
                                     KnownBatch(batch.first_sequence, batch.records, run.first_offset, run.first_id))
            state = state._replace(batches=tuple(known_batches))
            self.put(partition_id, producer_id, state)
            frame.state.append(StateRecord(Kind.PRODUCER, producer_key(partition_id, producer_id),
                                           encode_state(state)))
        return 0

    def applied(self, frame: PendingFrame) -> None:
        """Nothing is left to do: the states were in memory already."""

    def failed(self, frames: list[PendingFrame]) -> None:
        """None of these was stored."""
        self.forget()
