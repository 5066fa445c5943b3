"""What one flush does to the kernel: offsets before it, memory, answers, deliveries and woken readers after it."""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kernel.appending.answering import Answering
from kernel.appending.burst import Sealed
from kernel.appending.committer import Durable
from kernel.appending.gathering import Gathering
from kernel.appending.idempotency import Answer, encode_answer
from kernel.appending.producers import KnownBatch, encode_state, producer_key
from kernel.delivery.retained import retained_records
from kernel.errors import KernelError
from kernel.index.checkpoints import Checkpoints
from kernel.leasing.leasing import Leasing
from kernel.log.frame import StateRecord
from kernel.parts import Parts
from kernel.retention.compaction import latest_records
from kernel.state.state import Kind

IN_MEMORY: Final = frozenset((Kind.HEADS, Kind.OFFSET, Kind.QUEUE, Kind.GROUP))
"""Kinds whose records take effect in memory when they are durable."""


class Flushing:
    """The kernel's side of `committer.Flushed`."""

    def __init__(self, parts: Parts, checkpoints: Checkpoints, leasing: Leasing) -> None:
        self._parts = parts
        self._leasing = leasing
        self._checkpoints = checkpoints
        self._heads = parts.heads
        self._reader = parts.reader
        self.answering = Answering(parts.loop, parts.on_error)
        self.on_deleted: Callable[[tuple[tuple[int, int], ...]], None] = lambda ranges: None
        self.messages = 0
        self.refused = 0

    # ---- before the log

    def seal(self, gathering: Gathering, first_id: int) -> Sealed:
        burst = gathering.burst
        next_offsets = self._heads.next_offsets(burst.partition_ids())
        sealed = burst.seal(next_offsets, first_id, self._parts.epoch)
        for one in gathering.reserved:
            gathering.state += one.records(first_id + sealed.id_count)
            sealed.id_count += one.count
        if gathering.produced:
            self._place_sequences(gathering)
        # Before the new answers: a key that is used again after its time has its deletion and its answer in one frame.
        gathering.expired = self._parts.window.expired(gathering.now_ms)
        for key in gathering.expired:
            gathering.state.append(StateRecord(Kind.IDEMPOTENCY, key.encode(), None))
        if gathering.repeatable:
            self._remember(gathering)
        if burst.noted:
            gathering.state += retained_records(burst.noted, burst.now_ms)
            gathering.state += latest_records(burst.noted, burst.now_ms)
        self._leasing.seal(gathering)
        return sealed

    def _place_sequences(self, gathering: Gathering) -> None:
        """Producers' batches have their offsets now; their states travel in the same frame."""
        producers = self._parts.producers
        for (partition_id, producer_id), batches in gathering.produced.items():
            state = producers.get(partition_id, producer_id)
            if state is None:
                continue
            placed = {(header.base_sequence, header.producer_epoch): run for header, run in batches}
            found = []
            for batch in state.batches:
                run = placed.get((batch.first_sequence, state.epoch)) if batch.first_offset < 0 else None
                found.append(batch if run is None else
                             KnownBatch(batch.first_sequence, batch.records, run.first_offset, run.first_id))
            state = state._replace(batches=tuple(found))
            producers.put(partition_id, producer_id, state)
            gathering.state.append(StateRecord(Kind.PRODUCER, producer_key(partition_id, producer_id),
                                               encode_state(state)))

    def _remember(self, gathering: Gathering) -> None:
        for key, (fingerprint, places) in gathering.repeatable.items():
            positions = [(run.partition_id, run.first_offset + i, run.first_id + i) for run, i in places]
            answer = encode_answer(Answer(fingerprint, gathering.burst.now_ms, gathering.now_ms, positions))
            gathering.state.append(StateRecord(Kind.IDEMPOTENCY, key.encode(), answer))
            gathering.answered[key] = answer

    # ---- after the log

    def applied(self, frame: Durable) -> None:
        gathering, sealed, reader = frame.gathering, frame.sealed, self._reader
        entries, now_ms = sealed.entries, gathering.burst.now_ms
        self._heads.apply(entries)
        reader.tail.absorb(frame.position, frame.end, now_ms, len(sealed.body), entries)
        reader.recent.add(frame.position, sealed.body)
        if gathering.state:
            self._apply_state(frame)
        for one in gathering.reserved:
            one.applied()
        self.messages += sealed.record_count
        self.answer(gathering)
        if gathering.burst.heard:
            self._parts.deliveries.deliver(gathering.burst.heard)
        if gathering.burst.runs:
            entered = set(entries.partition_id)
            self._parts.watches.touch(entered)
            self._leasing.applied(entered)
        self._checkpoints.note()

    def _apply_state(self, frame: Durable) -> None:
        parts, gathering = self._parts, frame.gathering
        parts.state.changes.absorb(frame.position, gathering.state)
        for record in gathering.state:
            if record.kind in IN_MEMORY:
                parts.views.apply_stored(record)
                if record.kind in (Kind.QUEUE, Kind.GROUP):
                    self._leasing.settle(record)
        parts.topics.settle(gathering.topic_changes)
        parts.window.forget(gathering.expired)
        for key, answer in gathering.answered.items():
            parts.window.put(key, answer)
        if gathering.deleted:
            deleted = gathering.deleted
            parts.checkpoint_worker.submit(lambda: parts.index.forget_partitions(deleted), self._forgotten)
            self.on_deleted(deleted)

    def _forgotten(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._parts.fatal(f"the index cannot be written: {error}")

    def answer(self, gathering: Gathering) -> None:
        self.answering.tell(gathering, None)

    def failed(self, gatherings: list[Gathering], error: KernelError) -> None:
        """Take back what was changed beforehand, then tell everybody."""
        parts = self._parts
        self.refused += len(gatherings)
        parts.producers.forget()
        undone = parts.topics.undo()
        if undone:
            parts.subscriptions.touch()
        for topic in undone:
            if parts.topics.by_uuid(topic.uuid) is None:
                self._leasing.forget_topic(topic)
        self._leasing.failed(gatherings)
        for gathering in gatherings:
            for one in gathering.reserved:
                one.failed()
            self.answering.tell(gathering, error)
