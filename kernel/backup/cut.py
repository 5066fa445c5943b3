"""The log as it is at one moment, for whoever copies it while the hub goes on.

A cut is what a crash at that moment would leave behind, so a copy of it is opened as any log is. Its main chain ends
where everything before has been applied, and is synced; its kept chain holds at least what that needs, since the
kernel knows of kept records before it appends anything that rests on them. Segments but the newest never change, and
the newest only grows: nothing needs to stop. Until `release` nothing of it is dropped.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from gatehouse.kernel.errors import KernelError, StorageFailed
from gatehouse.kernel.identity import Identity
from gatehouse.kernel.index.checkpoints import Checkpoints
from gatehouse.kernel.index.memtable import Memtables
from gatehouse.kernel.log.log import Log, Segment
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.retention.retention import Hold, Retention
from gatehouse.kernel.write.committer import Committer


class CutSegment(NamedTuple):
    """A segment as far as it belongs to the cut."""

    base: int
    size_bytes: int
    sealed: bool              # nothing will be added to it


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the log was cut."""

    at_ms: int
    epoch: int
    next_id: int              # the first message id that none in the cut has
    segments: tuple[CutSegment, ...]
    hold: Hold                # on retention, until the cut is released


OnCut = Callable[["Cut | None", "KernelError | None"], None]


def cut_chain(segments: list[Segment], end: int) -> list[CutSegment]:
    """A chain's segments up to a position: what was begun later, or added since, is not of it."""
    chain = [segment for segment in segments if segment.base < end]
    return [CutSegment(segment.base, segment.size_until(end), segment is not chain[-1])
            for segment in chain]


class Cutting:
    """Takes cuts, on the kernel's thread."""

    """`log_worker` syncs the log; `worker` is that which drops segments."""

    def __init__(self, *, loop: Loop, log_worker: Worker, worker: Worker, log: Log, memtables: Memtables,
                 retention: Retention, checkpoints: Checkpoints, committer: Committer, identity: Identity,
                 policy: str, fatal: Callable[[str], None]) -> None:
        self._loop = loop
        self._log_worker = log_worker
        self._worker = worker
        self._log = log
        self._memtables = memtables
        self._retention = retention
        self._checkpoints = checkpoints
        self._committer = committer
        self._identity = identity
        self._policy = policy
        self._fatal = fatal

    def take(self, on_done: OnCut, give_way: Callable[[], None]) -> None:  # decision 108
        """Call back with a cut, whose end `release` is told, or with what went wrong. `give_way` is called where the
        disk is full and something that the cut holds would go."""
        hold = self._retention.hold(give_way)
        # Behind a drop that is on its way: the list of segments must not hold one that is about to go.
        self._worker.submit(lambda: None, lambda _, error: self._taken(hold, on_done))

    def _taken(self, hold: Hold, on_done: OnCut) -> None:
        chains = (cut_chain(self._log.kept_segments(), self._checkpoints.kept_end)
                  + cut_chain(self._log.segments(), self._memtables.newest.end))
        cut = Cut(self._loop.wall_ms(), self._identity.epoch, self._committer.next_id, tuple(chains), hold)
        assert all(segment.size_bytes > 0 for segment in chains), "no segment begins behind the cut"
        if self._policy == "commit":
            on_done(cut, None)
        else:
            self._log_worker.submit(self._log.sync, partial(self._synced, cut, on_done))

    def _synced(self, cut: Cut, on_done: OnCut, _: None, error: BaseException | None) -> None:
        if error is not None:
            self.release(cut)
            on_done(None, StorageFailed(str(error)))
            self._fatal(f"the log failed, nothing more can be promised: {error}")
            return
        on_done(cut, None)

    def release(self, cut: Cut) -> None:
        """A cut is not needed any more."""
        self._retention.release(cut.hold)
