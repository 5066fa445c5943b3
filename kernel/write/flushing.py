"""What one flush does to the kernel: offsets before it, memory, answers, deliveries and woken readers after it."""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gatehouse.kernel.delivery.retained import retained_records
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.groups.leasing import Leasing
from gatehouse.kernel.index.checkpoints import Checkpoints
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.parts import Parts
from gatehouse.kernel.retention.compaction import latest_records
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.write.answering import Answering
from gatehouse.kernel.write.batch_builder import Sealed
from gatehouse.kernel.write.committer import Durable
from gatehouse.kernel.write.idempotency import Answer, encode_answer
from gatehouse.kernel.write.pending_frame import PendingFrame
from gatehouse.kernel.write.producers import KnownBatch, encode_state, producer_key

IN_MEMORY: Final = frozenset((Kind.WATERMARKS, Kind.OFFSET, Kind.QUEUE, Kind.GROUP))
"""Kinds whose records take effect in memory when they are durable."""


class Flushing:
    """The kernel's side of `committer.Flushed`."""

    def __init__(self, parts: Parts, checkpoints: Checkpoints, leasing: Leasing) -> None:
        self._parts = parts
        self._leasing = leasing
        self._checkpoints = checkpoints
        self._watermarks = parts.watermarks
        self._reader = parts.reader
        self.answering = Answering(parts.loop, parts.on_error)
        self.on_deleted: Callable[[tuple[tuple[int, int], ...]], None] = lambda ranges: None
        self.messages = 0
        self.refused = 0

    # ---- before the log

    def seal(self, pending_frame: PendingFrame, first_id: int) -> Sealed:
        builder = pending_frame.builder
        next_offsets = self._watermarks.next_offsets(builder.partition_ids())
        sealed = builder.seal(next_offsets, first_id, self._parts.epoch)
        for reservation in pending_frame.reserved:
            count = reservation.count
            pending_frame.state += reservation.records(first_id + sealed.id_count)
            assert reservation.count == count >= 0, "what is reserved stays so while it is sealed"
            sealed.id_count += count
        if pending_frame.produced:
            self._place_sequences(pending_frame)
        # Before the new answers: a key that is used again after its time has its deletion and its answer in one frame.
        pending_frame.expired = self._parts.window.expired(pending_frame.now_ms)
        for key in pending_frame.expired:
            pending_frame.state.append(StateRecord(Kind.IDEMPOTENCY, key.encode(), None))
        if pending_frame.repeatable:
            self._remember(pending_frame)
        if builder.noted:
            pending_frame.state += retained_records(builder.noted, builder.now_ms)
            pending_frame.state += latest_records(builder.noted, builder.now_ms)
        self._leasing.seal(pending_frame)
        return sealed

    def _place_sequences(self, pending_frame: PendingFrame) -> None:
        """Producers' batches have their offsets now; their states travel in the same frame."""
        producers = self._parts.producers
        for (partition_id, producer_id), batches in pending_frame.produced.items():
            state = producers.get(partition_id, producer_id)
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
            producers.put(partition_id, producer_id, state)
            pending_frame.state.append(StateRecord(Kind.PRODUCER, producer_key(partition_id, producer_id),
                                               encode_state(state)))

    def _remember(self, pending_frame: PendingFrame) -> None:
        for key, (fingerprint, places) in pending_frame.repeatable.items():
            positions = [(run.partition_id, run.first_offset + i, run.first_id + i) for run, i in places]
            answer = encode_answer(Answer(fingerprint, pending_frame.builder.now_ms, pending_frame.now_ms, positions))
            pending_frame.state.append(StateRecord(Kind.IDEMPOTENCY, key.encode(), answer))
            pending_frame.answered[key] = answer

    # ---- after the log

    def applied(self, frame: Durable) -> None:
        pending_frame, sealed, reader = frame.pending_frame, frame.sealed, self._reader
        entries, now_ms = sealed.entries, pending_frame.builder.now_ms
        self._watermarks.apply(entries)
        reader.memtable.absorb(frame.position, frame.end, now_ms, len(sealed.body), entries)
        reader.recent.add(frame.position, sealed.body)
        if pending_frame.state:
            self._apply_state(frame)
        for reservation in pending_frame.reserved:
            reservation.applied()
        self.messages += sealed.record_count
        self.answer(pending_frame)
        if pending_frame.builder.heard:
            self._parts.deliveries.deliver(pending_frame.builder.heard)
        if pending_frame.builder.runs:
            entered = set(entries.partition_id)
            self._parts.watches.touch(entered)
            self._leasing.applied(entered)
        self._checkpoints.note()

    def _apply_state(self, frame: Durable) -> None:
        parts, pending_frame = self._parts, frame.pending_frame
        parts.state.changes.absorb(frame.position, pending_frame.state)
        for record in pending_frame.state:
            if record.kind in IN_MEMORY:
                parts.views.apply_stored(record)
                if record.kind in (Kind.QUEUE, Kind.GROUP):
                    self._leasing.settle(record)
        parts.topics.settle(pending_frame.topic_changes)
        parts.window.forget(pending_frame.expired)
        for key, answer in pending_frame.answered.items():
            parts.window.put(key, answer)
        if pending_frame.deleted:
            deleted = pending_frame.deleted
            parts.checkpoint_worker.submit(lambda: parts.index.forget_partitions(deleted), self._forgotten)
            self.on_deleted(deleted)

    def _forgotten(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._parts.fatal(f"the index cannot be written: {error}")

    def answer(self, pending_frame: PendingFrame) -> None:
        self.answering.tell(pending_frame, None)

    def failed(self, pending_frames: list[PendingFrame], error: KernelError) -> None:
        """Take back what was changed beforehand, then tell everybody."""
        parts = self._parts
        self.refused += len(pending_frames)
        parts.producers.forget()
        undone = parts.topics.undo()
        if undone:
            parts.subscriptions.touch()
        for topic in undone:
            if parts.topics.by_uuid(topic.uuid) is None:
                self._leasing.forget_topic(topic)
        self._leasing.failed(pending_frames)
        for pending_frame in pending_frames:
            for reservation in pending_frame.reserved:
                reservation.failed()
            self.answering.tell(pending_frame, error)
