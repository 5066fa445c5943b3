"""What one flush does to the kernel: offsets before it, memory, answers, deliveries and woken readers after it."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernel.burst import Sealed
from kernel.committer import Durable
from kernel.errors import KernelError, Stopping
from kernel.frame import StateRecord
from kernel.gathering import Gathering, answers
from kernel.idempotency import Answer, encode_answer
from kernel.message import Stored
from kernel.producers import KnownBatch, encode_state, producer_key
from kernel.retention import Kept
from kernel.state import Kind
from kernel.topics import Topic
from kernel.views import heads_record

if TYPE_CHECKING:
    from kernel.kernel import Kernel


class _Told:
    """An owner that passes on whether it was stored."""

    def __init__(self, on_done: Callable[[bool], None]) -> None:
        self._on_done = on_done

    def on_stored(self, stored: list[Stored]) -> None:
        self._on_done(stored[0].error is None)


class Flushing:
    """The kernel's side of `committer.Flushed` and of `retention.Ledger`."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.messages = 0
        self.refused = 0

    # ---- before the log

    def seal(self, gathering: Gathering, first_id: int) -> Sealed:
        kernel, burst = self._kernel, gathering.burst
        sealed = burst.seal(kernel._heads.next_offsets([run.queue_id for run in burst.runs]), first_id, kernel.epoch)
        if gathering.produced:
            self._place_sequences(gathering)
        # Before the new answers: a key that is used again after its time has its deletion and its answer in one frame.
        gathering.expired = kernel._window.expired(burst.now_ms)
        for key in gathering.expired:
            gathering.state.append(StateRecord(Kind.IDEMPOTENCY, key.encode(), None))
        if gathering.repeatable:
            self._remember(gathering)
        return sealed

    def _place_sequences(self, gathering: Gathering) -> None:
        """Producers' batches have their offsets now; their states travel in the same frame."""
        producers = self._kernel._producers
        for (queue_id, producer_id), batches in gathering.produced.items():
            state = producers.get(queue_id, producer_id)
            if state is None:
                continue
            placed = {(header.base_sequence, header.producer_epoch): run for header, run in batches}
            found = []
            for batch in state.batches:
                run = placed.get((batch.first_sequence, state.epoch)) if batch.first_offset < 0 else None
                found.append(batch if run is None else
                             KnownBatch(batch.first_sequence, batch.records, run.first_offset, run.first_id))
            state = state._replace(batches=tuple(found))
            producers.put(queue_id, producer_id, state)
            gathering.state.append(StateRecord(Kind.PRODUCER, producer_key(queue_id, producer_id), encode_state(state)))

    def _remember(self, gathering: Gathering) -> None:
        for key, (fingerprint, places) in gathering.repeatable.items():
            positions = [(run.queue_id, run.first_offset + i, run.first_id + i) for run, i in places]
            answer = Answer(fingerprint, gathering.burst.now_ms, positions)
            gathering.state.append(StateRecord(Kind.IDEMPOTENCY, key.encode(), encode_answer(answer)))
            gathering.answered[key] = answer

    # ---- after the log

    def applied(self, frame: Durable) -> None:
        kernel, gathering, sealed = self._kernel, frame.gathering, frame.sealed
        entries, now_ms = sealed.entries, gathering.burst.now_ms
        kernel._heads.apply(entries)
        kernel._reader.tail.absorb(frame.position, frame.end, now_ms, frame.first_id, len(sealed.body), entries)
        kernel._reader.recent.add(frame.position, sealed.body)
        if gathering.state:
            self._apply_state(frame)
        self.messages += sealed.record_count
        self.answer(gathering)
        if gathering.burst.heard:
            kernel._deliveries.deliver(gathering.burst.heard)
        if gathering.burst.runs:
            kernel._watches.touch({run.queue_id for run in gathering.burst.runs})
        kernel._checkpoints.note()

    def _apply_state(self, frame: Durable) -> None:
        kernel, gathering = self._kernel, frame.gathering
        kernel._state.changes.absorb(frame.position, gathering.state)
        for record in gathering.state:
            kernel._views.apply_stored(record)
        kernel._topics.settle(gathering.topic_changes)
        kernel._window.forget(gathering.expired)
        for key, answer in gathering.answered.items():
            kernel._window.put(key, answer)
        if gathering.deleted:
            deleted = gathering.deleted
            kernel._checkpoint_worker.submit(lambda: kernel._index.forget_queues(deleted), self._forgotten)

    def _forgotten(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._kernel._fatal(f"the index cannot be written: {error}")

    def answer(self, gathering: Gathering) -> None:
        self._tell(gathering, None)

    def _tell(self, gathering: Gathering, error: KernelError | None) -> None:
        for owner, stored in answers(gathering.submissions, gathering.burst.now_ms, error).items():
            try:
                owner.on_stored(stored)
            except Exception as fault:       # one owner's bug must not cost the others their answers
                self._kernel._on_error(fault)

    def failed(self, gatherings: list[Gathering], error: KernelError) -> None:
        """Take back what was changed beforehand, then tell everybody."""
        kernel = self._kernel
        self.refused += len(gatherings)
        kernel._producers.forget()
        if kernel._topics.undo():
            kernel._subscriptions.touch()
        for gathering in gatherings:
            self._tell(gathering, error)

    # ---- for retention

    def append_heads(self, pages: dict[int, bytes], on_done: Callable[[bool], None]) -> None:
        try:
            self._kernel._appending.put_state([heads_record(number, page) for number, page in pages.items()],
                                              _Told(on_done), None)
        except Stopping:
            on_done(False)

    def absorb_kept(self, kept: Kept) -> None:
        for position, records in kept.frames:
            self._kernel._state.absorb_kept(position, records)
        self._kernel._checkpoints.kept_end = kept.end

    def checkpoint(self, on_done: Callable[[], None]) -> None:
        self._kernel._checkpoints.take(on_done)

    def topics(self) -> list[Topic]:
        return self._kernel._topics.all()
