"""The commit log as the kernel sees it: frames go in at the end, come back by position, and old segments are dropped.

A frame is a head (small, read at replay) and a body (message bytes, read on demand). A position names where a frame's
body lies: an opaque, ordered 64-bit number, known when `append` returns; nobody but the log does arithmetic on it.

The log has two chains. Frames are appended to the main chain, whose oldest segment is dropped by retention. What is
still owed in a segment about to go is first appended to the kept chain, whose segments go when nothing in them is owed
any more. Positions of kept frames are above all positions of the main chain; order in time is the main chain's alone.

One thread appends to the main chain and one, perhaps another, to the kept chain; everything else may come from any
thread.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

KEPT_BASE: Final = 1 << 62
"""Positions from here on lie in the kept chain."""


MAX_POSITION: Final = 1 << 63
"""All positions are below."""


class LogFull(Exception):
    """The disk took no more, or no descriptor was free for a new segment. The log is as it was before the append, and
    appending may be tried again."""


class LogFailed(Exception):
    """The disk failed in a way after which nothing may be promised: the process must end and recover at its next
    start."""


class Frame(NamedTuple):
    """One frame as replay gives it."""

    position: int
    head: bytes
    end: int             # where the next frame of this chain begins

    @property
    def is_kept(self) -> bool:
        """Whether it lies in the kept chain."""
        return is_kept(self.position)

    @property
    def body_bytes(self) -> int:
        return self.end - self.position


class Segment(NamedTuple):
    """A stretch of the log that is dropped whole."""

    base: int            # no position in it is smaller
    end: int             # every position in it is smaller
    size_bytes: int

    @property
    def is_kept(self) -> bool:
        """Whether it is one of the kept chain."""
        return is_kept(self.base)

    def size_until(self, end: int) -> int:
        """How many of its bytes lie before a position that is in it or behind it."""
        return min(self.size_bytes, end - self.base)


class Damage(NamedTuple):
    """A range that cannot be read."""

    start: int
    end: int
    reason: str
    is_known: bool = False     # what was there is known, offsets and state; only bytes of messages are lost

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    @classmethod
    def of_body(cls, position: int, offset: int, size_bytes: int, reason: str) -> Damage:
        """Of some bytes in the body of the frame at this position."""
        return cls(position + offset, position + offset + size_bytes, reason)


def is_kept(position: int) -> bool:
    """Whether it lies in the kept chain."""
    return position >= KEPT_BASE


class Log(Protocol):
    def recover(self, start: int, kept_start: int, on_damage: Callable[[Damage], None]) -> Iterator[Frame]:
        """Open the log and replay: kept frames from `kept_start`, then the main chain from `start`.

        Run it to its end before anything else: it finds where the log ends and cuts off what a crash left half written.
        A damaged range in the middle is reported and skipped.
        """

    def advance(self, main: int, kept: int) -> None:
        """Give out no positions up to these any more: the chains' ends are lost. Raises LogFull or LogFailed."""

    def append(self, head: bytes, body: bytes) -> int:
        """Write one frame at the end of the main chain; returns its position. Raises LogFull or LogFailed."""

    def sync(self) -> None:
        """On return every appended frame is durable. Raises LogFailed; never call it again after that."""

    def keep(self, head: bytes, body: bytes) -> int:
        """Write one frame at the end of the kept chain. Raises LogFull or LogFailed."""

    def sync_kept(self) -> None: ...

    def ask(self, spans: list[tuple[int, int, int]]) -> None:
        """Before `read`, where others need the disk: have exactly these bytes read, and nothing ahead of them. Any
        thread."""

    def read(self, spans: list[tuple[int, int, int]]) -> list[bytes]:
        """Bytes of bodies by (position, offset within the body, length). Short or empty where they are gone. Any
        thread."""

    def heads(self, segment: Segment) -> Iterator[Frame]:
        """The frames of one segment again."""

    def segments(self) -> list[Segment]:
        """The segments of the main chain, oldest first; the last one is being written."""

    def kept_segments(self) -> list[Segment]: ...

    def drop(self, segment: Segment) -> None:
        """Delete a segment of either chain; of the main chain only the oldest. Never the one being written."""

    def newest_base(self) -> int:
        """Where the segment begins that is being written; 0 where there is none. Any thread."""

    def end(self) -> int:
        """Greater than every position of the main chain: where `recover` may start once all before it is indexed."""

    def kept_end(self) -> int: ...

    def close(self) -> None: ...


Place = tuple[int, int]
"""A frame's position, and the end of the log behind it."""

Written = Callable[["Place | None", "BaseException | None"], None]


class FrameWriter(Protocol):
    def write(self, head: bytes, body: bytes, sync: bool, done: Written) -> None:
        """Append a frame, and `sync` it; then `done(place, None)`, or `done(None, error)` with LogFull or LogFailed, on
        the kernel's thread. What the log's worker was given before is done before, what comes later after it."""
