"""Idempotent producers: a batch sent twice is stored once, a gap is refused.

Per partition and producer id the last five batches are remembered, as Kafka does: a client has at most five requests in
flight. The state travels in the frame of the batch itself, so both are there or neither is. `KnownProducers` shows who
is remembered, `ProducerExpiry` forgets who has been silent for a week.
"""
from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from gatehouse.kernel.errors import FencedProducer, OutOfOrderSequence, Stopping
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.message import KnownProducer, StateRecord
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.records.batch import BatchHeader
from gatehouse.kernel.state.state import Changed, Clock, Kind, StateTable
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.pending_frame import PendingFrame

# --- what is remembered -------------------------------------------------------------------------------------------

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
    append_ms: int
    """When it was; of one before the last that is known from before a start of the hub, that of the last."""

    @property
    def next_sequence(self) -> int:
        return (self.first_sequence + self.records) % SEQUENCE_SPACE


class ProducerState(NamedTuple):
    epoch: int
    batches: tuple[KnownBatch, ...]

    @property
    def append_ms(self) -> int:
        """Of the last."""
        return self.batches[-1].append_ms


def producer_key(partition_id: int, producer_id: int) -> bytes:
    return _KEY.pack(partition_id, producer_id)


def decode_key(key: bytes) -> tuple[int, int]:
    """(partition id, producer id)."""
    partition_id, producer_id = _KEY.unpack(key)
    return partition_id, producer_id


def encode_state(state: ProducerState) -> bytes:
    return _HEAD.pack(state.epoch, state.append_ms) + b"".join(_BATCH.pack(*batch[:-1]) for batch in state.batches)


def decode_state(value: bytes) -> ProducerState:
    epoch, append_ms = _HEAD.unpack_from(value)
    batches = _BATCH.iter_unpack(value[_HEAD.size:])
    return ProducerState(epoch, tuple([KnownBatch._make((*batch, append_ms)) for batch in batches]))


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


def with_batch(state: ProducerState | None, header: BatchHeader, batch: KnownBatch) -> ProducerState:
    kept = state.batches[1 - REMEMBERED_BATCHES:] if state is not None and state.epoch == header.producer_epoch else ()
    return ProducerState(header.producer_epoch, (*kept, batch))


class Producers:
    """States of producers by (partition id, producer id), read through a bounded cache."""

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
                                     batch._replace(first_offset=run.first_offset, first_id=run.first_id))
            state = state._replace(batches=tuple(known_batches))
            self.put(partition_id, producer_id, state)
            frame.state.append(StateRecord(Kind.PRODUCER, producer_key(partition_id, producer_id),
                                           encode_state(state)))
        return 0

    def applied(self, frame: PendingFrame) -> None:
        """Nothing is left to do: the states were in memory already."""

    def failed(self, frames: list[PendingFrame]) -> None:
        """None of these frames was stored."""
        self.forget()


# --- which producers a partition knows ----------------------------------------------------------------------------

# For people who look: what is durable, and nothing of what is pending.
#
# What the store has is read on another thread; what is newer is in memory.

MAX_FOUND: Final = 10_000            # producers of one partition


class KnownProducers:
    """Finds the producers that a partition knows. `worker` reads the index."""

    def __init__(self, *, worker: Worker, index: Index, state: StateTable) -> None:
        self._worker = worker
        self._index = index
        self._state = state

    def find(self, partition_id: int, on_done: Callable[[list[KnownProducer]], None]) -> None:
        """See `KernelPort.producers_of`."""
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


# --- producers that are forgotten ---------------------------------------------------------------------------------

# Those that have been silent for a week are forgotten, as Kafka forgets them.
#
# Every start of a client brings a new producer id, so their states would otherwise only grow. A clock decides, so the
# deletions are appended as state first and take effect then. A producer that comes back later begins anew.

SILENT_MS: Final = 7 * 24 * 3_600_000      # Kafka's transactional.id.expiration.ms
LOOK_MS: Final = 3_600_000
KEYS_PER_LOOK: Final = 10_000              # bounds one frame; the rest goes at the next look


class ProducerExpiry:
    """Looks for silent producers once an hour, and forgets them. `worker` reads the index."""

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
