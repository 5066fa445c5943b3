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
from gatehouse.kernel.index.checkpoints import Checkpoints
from gatehouse.kernel.log.log import Segment
from gatehouse.kernel.parts import Parts
from gatehouse.kernel.retention.retention import Retention


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


OnCut = Callable[["Cut | None", "KernelError | None"], None]


def cut_chain(segments: list[Segment], end: int) -> list[CutSegment]:
    """A chain's segments up to a position: what was begun later, or added since, is not of it."""
    chain = [segment for segment in segments if segment.base < end]
    return [CutSegment(segment.base, min(segment.size_bytes, end - segment.base), segment is not chain[-1])
            for segment in chain]


class Cutting:
    """Takes cuts, on the kernel's thread."""

    def __init__(self, parts: Parts, retention: Retention, checkpoints: Checkpoints, next_id: Callable[[], int]
                 ) -> None:
        self._parts = parts
        self._retention = retention
        self._checkpoints = checkpoints
        self._next_id = next_id

    def take(self, on_done: OnCut) -> None:  # decision 108
        """Call back with a cut, whose end `release` is told, or with what went wrong."""
        self._retention.hold()
        # Behind a drop that is on its way: the list of segments must not hold one that is about to go.
        self._parts.checkpoint_worker.submit(lambda: None, lambda _, error: self._taken(on_done))

    def _taken(self, on_done: OnCut) -> None:
        parts, log = self._parts, self._parts.log
        chains = (cut_chain(log.kept_segments(), self._checkpoints.kept_end)
                  + cut_chain(log.segments(), parts.reader.memtable.end))
        cut = Cut(parts.loop.wall_ms(), parts.epoch, self._next_id(), tuple(chains))
        assert all(segment.size_bytes > 0 for segment in chains), "no segment begins behind the cut"
        if parts.settings.fsync == "commit":
            on_done(cut, None)
        else:
            parts.log_worker.submit(log.sync, partial(self._synced, cut, on_done))

    def _synced(self, cut: Cut, on_done: OnCut, _: None, error: BaseException | None) -> None:
        if error is not None:
            self.release()
            on_done(None, StorageFailed(str(error)))
            self._parts.fatal(f"the log failed, nothing more can be promised: {error}")
            return
        on_done(cut, None)

    def release(self) -> None:
        """A cut is not needed any more."""
        self._retention.release()
