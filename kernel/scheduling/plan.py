"""What one frame does to schedules: becomes state records at seal, and takes effect when the frame is durable. Pure."""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.scheduling.schedule_records import (
    Fate,
    Pending,
    ScheduleCounts,
    Settled,
    counts_record,
    encode_pending,
    encode_settled,
    forget_record,
    id_key,
    id_of,
    named_key,
    timer_of,
)
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.write.pending_frame import PendingFrame, Run

REMEMBERED_MS: Final = 24 * 3_600_000      # what became of a schedule


class Plan:
    """A `kernel.write.pending_frame.Participant`. `counts` asks for what is durable; it does when this frame is
    sealed."""

    def __init__(self, append_ms: int, now_ms: int, wall_of: Callable[[int], int],
                 counts: Callable[[], ScheduleCounts], on_end: Callable[[Plan, bool], None]) -> None:
        self._append_ms = append_ms
        self._now_ms = now_ms                                    # hub time
        self._wall_of = wall_of                                  # of a hub time
        self._counts = counts
        self._on_end = on_end
        self._accepted: list[tuple[Run, Pending]] = []           # where its id goes, what waits
        self._state: list[StateRecord] = []
        self.open = True                                         # until it is sealed, or given up before that
        self._ended = False                                      # it is known whether it is durable
        self.begun: list[bytes] = []                             # timers this frame adds
        self.taken: list[bytes] = []                             # timers it takes off: their messages are in it
        self.recalled: list[bytes] = []                          # timers it takes off for good
        self._settled: list[bytes] = []                          # ids
        self._kept = 0
        self._forgotten = 0
        self.swept_to = b""
        self.delivered = 0

    # ---- filling

    def accept(self, pending: Pending) -> Run:
        """A message to deliver later; its id stands in what is returned once this is sealed."""
        assert self.open, "its frame is not sealed"
        run = Run(0, self._append_ms)
        self._accepted.append((run, pending))
        return run

    def keep(self, message_id: int, pending: Pending) -> None:
        """Store a message for later that has its id already."""
        assert self.open, "its frame is not sealed"
        key = id_key(message_id)
        self._state.append(StateRecord(Kind.SCHEDULED, key, encode_pending(pending)))
        self._begin(pending, key)
        self._note_name(pending, key, b"")
        self._kept += 1

    def deliver(self, timer: bytes, pending: Pending, next_ms: int | None) -> None:
        """The message of a timer goes out with this frame, and again at `next_ms`."""
        assert self.open and (next_ms is None or next_ms > pending.due_ms), "time goes on"
        self.taken.append(timer)
        self.delivered += 1
        key, times = id_of(timer), pending.times + 1
        self._state.append(StateRecord(Kind.TIMER, timer, None))
        if next_ms is None:
            self._settle(key, pending, Fate.DELIVERED, times)
            return
        after = pending._replace(due_ms=next_ms, times=times)
        self._state.append(StateRecord(Kind.SCHEDULED, key, encode_pending(after)))
        self._begin(after, key)

    def recall(self, timer: bytes, pending: Pending) -> None:
        assert self.open, "its frame is not sealed"
        self.recalled.append(timer)
        self._state.append(StateRecord(Kind.TIMER, timer, None))
        self._settle(id_of(timer), pending, Fate.RECALLED, pending.times)

    def _settle(self, key: bytes, pending: Pending, fate: Fate, times: int) -> None:
        due_ms = pending.due_ms if pending.by_wall else self._wall_of(pending.due_ms)
        what = Settled(fate, times, due_ms, self._append_ms, pending.tenant)
        self._state.append(StateRecord(Kind.SCHEDULED, key, encode_settled(what)))
        self._note_name(pending, key, None)
        self._settled.append(key)

    def _note_name(self, pending: Pending, key: bytes, value: bytes | None) -> None:
        """A message that has a name waits under it from now on; or not any more (None)."""
        if pending.name:
            self._state.append(StateRecord(Kind.NAMED, named_key(pending.name, key), value))

    def forget(self, record: bytes, ids: list[bytes]) -> None:
        """What became of these; `record` is the key of the record that lists them."""
        assert record >= self.swept_to, "what is oldest is forgotten first"
        self._state += [StateRecord(Kind.SCHEDULED, key, None) for key in ids]
        self._state.append(StateRecord(Kind.TIMER, record, None))
        self._forgotten += len(ids)
        self.swept_to = record + b"\0"

    def _begin(self, pending: Pending, key: bytes) -> None:
        timer = timer_of(pending, int.from_bytes(key, "big"))
        self._state.append(StateRecord(Kind.TIMER, timer, b""))
        self.begun.append(timer)

    # ---- from pending_frame to frame

    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """What was accepted gets its ids."""
        assert self.open, "a plan is sealed once"
        self.open = False
        for run, pending in self._accepted:
            run.first_id = first_id
            key = id_key(first_id)
            first_id += 1
            self._state.append(StateRecord(Kind.SCHEDULED, key, encode_pending(pending)))
            self._begin(pending, key)
            self._note_name(pending, key, b"")
        if self._settled:
            self._state.append(forget_record(self._now_ms + REMEMBERED_MS, self._settled))
        counts = self.counts()
        assert counts.pending >= 0, "what is settled was waiting"
        self._state.append(counts_record(counts))
        frame.state += self._state
        return len(self._accepted)

    def counts(self) -> ScheduleCounts:
        """As they are with this frame."""
        pending, settled = self._counts()
        return ScheduleCounts(pending + len(self._accepted) + self._kept - len(self._settled),
                      max(0, settled + len(self._settled) - self._forgotten))

    def applied(self, frame: PendingFrame) -> None:
        """See `Participant.applied`."""
        assert not self.open and not self._ended, "a frame ends once, after it was sealed"
        self._ended = True
        self._on_end(self, True)

    def failed(self, frames: list[PendingFrame]) -> None:
        """See `Participant.failed`."""
        assert not self._ended, "a frame ends once"
        self.open, self._ended = False, True
        self._on_end(self, False)
