"""Opening: the index says how far it is complete, the log is replayed from there, and a new epoch begins behind it.

    left_out    what an opening leaves out behind frames that are lost
    Recovery    the opening: index, state and memory are as they were when the hub ended
    Beginning   the first frames of the new epoch

Replay reads heads only and asks no clock and no configuration. An index that is missing is built anew from the first
frame; it is checkpointed on the way, so that memory stays bounded. An index that knows of more than the log holds is
the witness of a lost end. It stays as it is, and the log goes on behind what it knows of. The frame that leaves ids out
(`left_out`) writes to the log what only the index knows.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from gatehouse.kernel.groups.group_settings import decode_queue
from gatehouse.kernel.ids import Identity, check_shards, first_id, shard_of, shards_of
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.index.memtable import Checkpoint, Memtables, Positions
from gatehouse.kernel.log.log import Damage, Frame, Log, is_kept
from gatehouse.kernel.message import Entries, StateRecord, decode_head, encode_head
from gatehouse.kernel.records.batch import HEADER_BYTES, MAX_BATCH_RECORDS
from gatehouse.kernel.recovery.resuming import (
    ROOM_COUNTERS,
    ROOM_EPOCHS,
    ROOM_IDS,
    counters_behind,
    counters_record,
)
from gatehouse.kernel.retention.retention import frame_of
from gatehouse.kernel.state.state import (
    Clock,
    Kind,
    StateTable,
    Views,
    Watermarks,
    decode_position,
    encode_position,
    epoch_key,
    heads_record,
    partitions_of_watermarks,
)
from gatehouse.kernel.state.topics import Topics

# --- behind lost frames -------------------------------------------------------------------------------------------

# What may have been given out is never given out again.
#
# Frames that cannot be read gave out offsets, message ids, ids of topics, partitions and producers, and one of them may
# have begun an epoch. How much is not known; how many bytes they had is. So the first frames of the new epoch
# leave out more than fits into those bytes:
#
#     offsets     every partition of which no later frame says how far it got goes on RECORDS_PER_BYTE times the lost
#                 bytes later, MIN_OFFSETS at least where the end is lost
#     the rest    as behind a backup that was put back (see `resume`)
#
# Where the end is lost the index knows more than the log: state whose frame is gone is written to the log again, since
# that alone counts when the index is built anew. A crash in between repeats all of this: it leaves out the more.

RECORDS_PER_BYTE: Final = MAX_BATCH_RECORDS // HEADER_BYTES + 1      # no batch is shorter than its header
MIN_OFFSETS: Final = 1 << 20       # behind a lost end: how much the index did not know of yet cannot be said


class Loss(NamedTuple):
    """Frames that a start could not read."""

    lost_bytes: int
    mentioned: set[int]            # partitions of which later frames say how far they got


def left_out(loss: Loss, *, log: Log, index: Index, topics: Topics, watermarks: Watermarks, state: StateTable
             ) -> Iterator[StateRecord]:  # decision 118
    """The records that leave out what may have been given out, and then state that only the index has."""
    end_is_lost = index.is_marked_lost()
    yield counters_record(counters_behind((topics.next_id, topics.next_partition_id, topics.next_producer_id),
                                          ROOM_COUNTERS))
    by = max(loss.lost_bytes * RECORDS_PER_BYTE, MIN_OFFSETS if end_is_lost else 0)
    for number, page in watermarks.pages_leaping(_partitions(topics, watermarks, state) - loss.mentioned, by).items():
        yield heads_record(number, page)
    if end_is_lost:
        segments = [*log.segments(), *log.kept_segments()]
        for record in index.homeless(segments):
            if record.kind not in (Kind.COUNTERS, Kind.WATERMARKS, Kind.EPOCH):
                yield record


def _partitions(topics: Topics, watermarks: Watermarks, state: StateTable) -> set[int]:
    """All partitions there are."""
    partition_ids = {partition_id for topic in topics.all() for partition_id in topic.partition_ids()}
    partition_ids.update(watermarks.used())
    for key, value in state.scan(Kind.QUEUE):
        partition_ids.update(decode_queue(key, value).partition_ids())
    return partition_ids


# --- the opening --------------------------------------------------------------------------------------------------

LOADED: tuple[Kind, ...] = (Kind.COUNTERS, Kind.EPOCH, Kind.TOPIC, Kind.WATERMARKS, Kind.OFFSET)
"""Kinds of state that are in memory whole; the others are read when they are needed."""


class Recovered(NamedTuple):
    deleted: list[StateRecord]         # deletions that must be in the log once more
    superseded: list[bytes]            # KEPT records that their compacted topic needs no more
    next_id: int
    kept_end: int
    frames: int
    rebuilt: bool                      # the index was built anew from the first frame
    loss: Loss | None                  # frames are lost, and with them what they gave out
    shards: set[int]                   # who gave the ids in the frames, see `kernel.ids`


class Recovery:
    """One opening. Ends with memory as it was when the hub ended."""

    def __init__(self, *, log: Log, index: Index, memtables: Memtables, watermarks: Watermarks, state: StateTable,
                 views: Views, clock: Clock, checkpoint_bytes: int, on_damage: Callable[[Damage], None]) -> None:
        self._log = log
        self._index = index
        self._memtables = memtables
        self._watermarks = watermarks
        self._state = state
        self._clock = clock
        self._checkpoint_bytes = checkpoint_bytes
        self._tell_damage = on_damage
        self._apply = views.apply
        self._loss: Loss | None = None
        self._next_id = self._append_ms = 0
        self._shards: set[int] = set()
        self._frames = 0
        self._complete = 0                               # to where the index is
        self._deleted: list[StateRecord] = []
        self._superseded: list[bytes] = []

    def run(self) -> Recovered:
        positions = self._index.positions()
        self._load()
        self._replay(positions)
        self._go_on_behind(positions)
        self._clock.begin(self._state.get(Kind.CLOCK, b""), self._append_ms)
        return Recovered(self._deleted, self._superseded, self._next_id, self._log.kept_end(), self._frames,
                         positions.main == 0, self._loss, self._shards)

    def _go_on_behind(self, positions: Positions) -> None:
        """Where the log ends before what the index knows of, or did and was not made good."""
        lost = [Damage(end, position, f"the {name} ends before what the index knows of; offsets and ids go on behind "
                       "that")
                for name, end, position in (("log", self._log.end(), positions.main),
                                            ("chain of what is kept", self._log.kept_end(), positions.kept))
                if end < position]
        for damage in lost:
            self._index.mark_lost()
            self._tell_damage(damage)
        if self._index.is_marked_lost():
            self._lose(sum([damage.size_bytes for damage in lost if not is_kept(damage.start)]))
            self._log.advance(positions.main, positions.kept)

    def _on_damage(self, damage: Damage) -> None:
        """Frames that cannot be read gave out offsets and ids that nobody knows, but where later frames of the same
        partitions say how far they got. What the index is complete to, it knows, and it alone."""
        self._tell_damage(damage)
        if damage.end <= self._complete:
            self._index.mark_lost()
        elif not damage.is_known:
            self._lose(damage.size_bytes)

    def _lose(self, lost_bytes: int) -> None:
        before = self._loss.lost_bytes if self._loss is not None else 0
        self._loss = Loss(before + lost_bytes, set())

    def _load(self) -> None:
        for number, page in self._index.head_pages():
            self._watermarks.merge(number, page)
        self._watermarks.dirty.clear()
        for kind in LOADED:
            for key, value in self._state.scan(kind):
                self._apply(StateRecord(kind, key, value))

    def _replay(self, positions: Positions) -> None:
        self._next_id, self._append_ms = positions.next_id, positions.append_ms
        if positions.main:
            self._shards.add(shard_of(positions.next_id))
        self._complete = positions.main
        self._memtables.begin(positions.main)
        self._state.begin()
        for frame in self._log.recover(positions.main, positions.kept, self._on_damage):
            self._frames += 1
            if frame.is_kept:
                self._replay_kept(frame)
            else:
                self._replay_main(frame)
                unwritten_bytes = self._memtables.newest.size_bytes() + self._state.changes.size_bytes
                if unwritten_bytes > self._checkpoint_bytes:
                    self._checkpoint()

    def _replay_main(self, frame: Frame) -> None:
        head = decode_head(frame.head)
        self._memtables.newest.absorb(frame.position, frame.end, head.append_ms, frame.body_bytes,
                                      head.entries)
        self._watermarks.apply(head.entries)
        self._shards.add(shard_of(head.first_id))
        self._shards |= shards_of(head.entries.partition_id)
        if self._loss is not None:
            self._loss.mentioned.update(head.entries.partition_id)
            for record in head.state:
                if record.kind == Kind.WATERMARKS:
                    self._loss.mentioned.update(partitions_of_watermarks(record.key))
        self._state.absorb(frame.position, head.state)
        for record in head.state:
            self._apply(record)
        self._next_id = max(self._next_id, head.first_id + head.id_count)
        self._append_ms = max(self._append_ms, head.append_ms)

    def _replay_kept(self, frame: Frame) -> None:
        """Records that were moved here count by the position they first had.

        One that is older than what the index is complete to, and is not there, was deleted while it was being moved,
        and its deletion forgotten as no copy of it was known. Not so KEPT records, which have been in this chain from
        the first: one that is not there was made after the last checkpoint.
        """
        records = []
        for record in decode_head(frame.head).state:
            held = self._index.held(record.kind, record.key)
            if held is None and record.order < self._complete and record.kind != Kind.KEPT:
                self._deleted.append(StateRecord(record.kind, record.key, None))
                record = record._replace(value=None)
            records.append(record)
            if held is None or held.order <= record.order:
                self._apply(record)
            else:
                self._state.changes.put((record.kind, record.key), (held.order, held.home, held.value))
        self._state.absorb(frame.position, records)

    def _checkpoint(self) -> None:
        pages, consumed = self._watermarks.take_changes()
        memtable = self._memtables.newest
        if self._loss is not None:
            self._index.mark_lost()          # the next start would begin behind what cannot be read
        self._superseded += self._index.write(
            Checkpoint(memtable, self._state.changes, pages,
                       Positions(memtable.end, self._log.kept_end(), self._next_id, self._append_ms),
                       consumed),
            [*self._log.segments(), *self._log.kept_segments()])
        self._memtables.begin(memtable.end)
        self._state.begin()


# --- a new epoch --------------------------------------------------------------------------------------------------

ID_STEP: Final = 1 << 20  # decision 8
"""Message ids begin anew at a multiple of this at every start: none that was ever told is given again."""

ID_STEPS: Final = 2
"""So many multiples on: the last frame of a run may be lost, and have told ids across one. No frame has so many."""


class Beginning:
    """Writes the first frames of an epoch, behind what recovery has found: its number, what the hub was given once, and
    what is left out behind lost frames."""

    def __init__(self, *, log: Log, index: Index, memtables: Memtables, topics: Topics, watermarks: Watermarks,
                 state: StateTable, views: Views, clock: Clock, identity: Identity) -> None:
        self._log = log
        self._index = index
        self._memtables = memtables
        self._topics = topics
        self._watermarks = watermarks
        self._state = state
        self._views = views
        self._clock = clock
        self._identity = identity

    def begin(self, recovered: Recovered) -> None:
        """Write down that a new epoch begins; the identity knows of it. Raises LogFailed, LogFull, ForeignShard."""
        identity, loss = self._identity, recovered.loss
        epoch = self._views.epoch + (ROOM_EPOCHS if loss is not None else 1)
        records = [StateRecord(Kind.EPOCH, b"", epoch.to_bytes(4, "big")), self._clock.begun(), *recovered.deleted]
        records += self._begun(epoch)
        is_new = self._state.get(Kind.HUB, b"") is None
        hub = self._given_once(Kind.HUB, identity.hub, records)
        secret = self._given_once(Kind.SECRET, identity.secret, records)
        new_shard = identity.shard if is_new else 0      # a log from before ids said so is that of shard 0
        shard = int.from_bytes(self._given_once(Kind.SHARD, new_shard.to_bytes(2, "big"), records), "big")
        self._topics.begin(shard)
        check_shards(recovered.shards | self._topics.shards() | self._watermarks.shards(), shard)
        next_id = max(recovered.next_id, first_id(shard)) + (ROOM_IDS if loss is not None else 0)
        identity.begin(hub=hub, secret=secret, shard=shard, epoch=epoch,
                       first_id=(next_id // ID_STEP + ID_STEPS) * ID_STEP)
        self._record(records)
        if loss is not None:
            self._leave_out(loss)
        self._log.sync()
        if loss is not None:
            self._index.forget_lost()

    # decision 179
    def _begun(self, epoch: int) -> list[StateRecord]:
        """Where in the log this epoch begins. What the log has nothing of any more is forgotten."""
        first = self._log.segments()[0].base if self._log.segments() else 0
        positions = {key: decode_position(value) for key, value in self._state.scan(Kind.BEGUN)}
        older = sorted(key for key, position in positions.items() if position < first)
        return [*[StateRecord(Kind.BEGUN, key, None) for key in older[:-1]],
                StateRecord(Kind.BEGUN, epoch_key(epoch), encode_position(self._log.end()))]

    def _given_once(self, kind: Kind, new: bytes, records: list[StateRecord]) -> bytes:
        """What the log says, or what it says from this frame on."""
        stored = self._state.get(kind, b"")
        if stored is None:
            records.append(StateRecord(kind, b"", new))
            return new
        return stored

    def _leave_out(self, loss: Loss) -> None:
        """Go on behind what the lost frames may have given out."""
        records = left_out(loss, log=self._log, index=self._index, topics=self._topics, watermarks=self._watermarks,
                           state=self._state)
        while chosen := frame_of(records)[0]:
            self._record(chosen)
            for record in chosen:
                if record.kind in (Kind.COUNTERS, Kind.WATERMARKS):       # memory knows the others from the index
                    self._views.apply(record)

    def _record(self, records: list[StateRecord]) -> None:
        identity = self._identity
        head = encode_head(identity.epoch, self._clock.append_ms, identity.first_id, 0, Entries(), records)
        position = self._log.append(head, b"")
        self._memtables.absorb(position, self._log.end(), 0, b"", Entries())
        self._state.absorb(position, records)
