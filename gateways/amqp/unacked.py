"""Deliveries of one channel that await their acknowledgement, as runs of consecutive tags. Compiled where it can be.

Tags count up from 1 for the life of the channel. What one flush brought to one consumer is one run; acknowledging all
up to a tag releases whole runs, and only single acknowledgements look inside one.
"""
from __future__ import annotations

from bisect import bisect_right
from typing import Generic, TypeVar

from gatehouse.kernel.message import Handle

S = TypeVar("S")
"""Who the deliveries went to."""

Open = Handle | None
"""None: acknowledged already."""


class Run(Generic[S]):
    def __init__(self, first: int, source: S, handles: list[Open]) -> None:
        self.first: int = first
        self.source: S = source
        self.handles: list[Open] = handles
        self.open: int = len(handles)


class Unacked(Generic[S]):
    def __init__(self) -> None:
        self.next_tag: int = 1
        self.count: int = 0
        self._runs: list[Run[S]] = []

    def give_tags(self, count: int) -> int:
        """Tags for deliveries that need no acknowledgement; returns the first."""
        first = self.next_tag
        self.next_tag = first + count
        return first

    def add(self, source: S, handles: list[Handle]) -> int:
        """Give tags to deliveries; returns the first."""
        first = self.give_tags(len(handles))
        self._runs.append(Run(first, source, [*handles]))
        self.count += len(handles)
        return first

    def take(self, tag: int) -> tuple[S, list[Handle]] | None:
        """The one delivery of this tag, which is no longer awaited; None if it is not."""
        at = bisect_right(self._runs, tag, key=_first) - 1
        if at < 0:
            return None
        run = self._runs[at]
        index = tag - run.first
        handle = run.handles[index] if index < len(run.handles) else None
        if handle is None:
            return None
        run.handles[index] = None
        run.open -= 1
        self.count -= 1
        if run.open == 0:
            del self._runs[at]
        return run.source, [handle]

    def take_through(self, tag: int) -> list[tuple[S, list[Handle]]]:
        """Every delivery up to and with this tag, in order; nothing if this tag itself is not awaited."""
        at = bisect_right(self._runs, tag, key=_first) - 1
        if at < 0:
            return []
        last = self._runs[at]
        index = tag - last.first
        if index >= len(last.handles) or last.handles[index] is None:
            return []
        taken = [(run.source, _open(run.handles)) for run in self._runs[:at]]
        taken.append((last.source, _open(last.handles[:index + 1])))
        del last.handles[:index + 1]
        last.first += index + 1
        last.open = len(last.handles) - last.handles.count(None)
        del self._runs[:at if last.open else at + 1]
        self.count -= sum(len(handles) for _, handles in taken)
        return taken

    def take_runs(self, tag: int, multiple: bool) -> list[Run[S]]:
        """What `take`, `take_through` and (for tag 0 with `multiple`) `take_all` take, for `put_back`."""
        if not multiple:
            taken = self.take(tag)
            return [] if taken is None else [Run(tag, taken[0], [*taken[1]])]
        at = len(self._runs) if tag == 0 else max(bisect_right(self._runs, tag, key=_first), 1)
        before = [(run, run.first, [*run.handles]) for run in self._runs[:at]]
        if tag == 0:
            self.take_all()
        elif not self.take_through(tag):
            return []
        runs: list[Run[S]] = []
        for run, first, handles in before:
            if tag:
                handles = handles[:tag - first + 1]
            taken_run = Run(first, run.source, handles)
            taken_run.open = len(handles) - handles.count(None)
            runs.append(taken_run)
        return runs

    def put_back(self, runs: list[Run[S]]) -> None:
        """These were not settled: they await their acknowledgement again."""
        awaited = [(run.first + at, run.source, handle) for run in [*self._runs, *runs]
                   for at, handle in enumerate(run.handles) if handle is not None]
        awaited.sort(key=_tag)
        self._runs = []
        self.count = len(awaited)
        for tag, source, handle in awaited:
            last = self._runs[-1] if self._runs else None
            if last is not None and last.source is source and last.first + len(last.handles) == tag:
                last.handles.append(handle)
                last.open += 1
            else:
                self._runs.append(Run(tag, source, [handle]))

    def take_all(self) -> list[tuple[S, list[Handle]]]:
        taken = [(run.source, _open(run.handles)) for run in self._runs]
        self._runs = []
        self.count = 0
        return taken


def _first(run: Run[S]) -> int:
    return run.first


def _tag(awaited: tuple[int, S, Handle]) -> int:
    return awaited[0]


def _open(handles: list[Open]) -> list[Handle]:
    return [handle for handle in handles if handle is not None]
