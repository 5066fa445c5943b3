"""Opening: the index says how far it is complete, the log is replayed from there.

Replay reads heads only and asks no clock and no configuration. An index that is missing is built anew from the first
frame; it is checkpointed on the way, so that memory stays bounded. One that knows of more than the log holds is the
witness of a lost end: it stays as it is, the log goes on behind what it knows of, and `kernel.recovery.leaving_out`
writes to the log what only the index knows.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gatehouse.kernel.ids import shard_of, shards_of
from gatehouse.kernel.index.index import Checkpoint, Index, Positions
from gatehouse.kernel.index.memtable import Memtables
from gatehouse.kernel.log.frame import StateRecord, decode_head
from gatehouse.kernel.log.log import Damage, Frame, Log, is_kept
from gatehouse.kernel.recovery.leaving_out import Loss
from gatehouse.kernel.state.clock import Clock
from gatehouse.kernel.state.state import Kind, StateTable
from gatehouse.kernel.state.views import Views, partitions_of_watermarks
from gatehouse.kernel.state.watermarks import Watermarks

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
