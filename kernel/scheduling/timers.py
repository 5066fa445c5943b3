"""What falls due before a horizon, in memory and in order; what falls due later is in the store. Pure.

    due .................................... horizon .......................................... years
    in memory, every one                     in the store, but for those a checkpoint still owes it

Keys are those of TIMER records: 16 bytes that sort by time. When few are left, the next are read from the store, from
the horizon on: `begin_extension`, a scan on another thread, `extend`. What came in beyond the horizon since the last
checkpoint is remembered here, as the scan may not see it.
"""
from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Final

from gatehouse.kernel.scheduling.schedule_records import FIRST_FORGET, FIRST_WALL, bound

MAX_KEYS: Final = 32_768
FEW: Final = 16                   # fewer than this are put in their places one by one


class Timers:
    """The timers of one clock. `max_keys` is smaller in tests only."""

    def __init__(self, by_wall: bool = False, max_keys: int = MAX_KEYS) -> None:
        self.by_wall = by_wall
        self.beyond = FIRST_FORGET if by_wall else FIRST_WALL
        self._max_keys = max_keys
        self.quarter = max(1, max_keys // 4)  # fewer are left than this, and this many more are read
        self.keys: list[bytes] = []
        self.horizon = FIRST_WALL if by_wall else b""
        self._newer: list[bytes] = []         # beyond the horizon, since the last checkpoint was begun
        self._older: list[bytes] = []         # the same, in the checkpoint that is being written
        self._mark: object = None             # which state changes `_newer` are part of
        self._unseen: list[bytes] = []        # what a scan that is under way may not see, sorted
        self._during: list[bytes] | None = None          # came beyond the horizon while it is under way

    def __contains__(self, key: bytes) -> bool:
        at = bisect_left(self.keys, key)
        return at < len(self.keys) and self.keys[at] == key

    def add(self, added: list[bytes], changes: object, frozen: object) -> None:
        """Keys that have become durable; `changes` are the state changes they are part of, `frozen` those that a
        checkpoint is writing."""
        self._roll(changes, frozen)
        inside = [key for key in added if key < self.horizon]
        if len(inside) < len(added):
            self._add_beyond([key for key in added if key >= self.horizon])
        if len(inside) < FEW:
            for key in inside:
                insort(self.keys, key)
        else:
            self.keys += inside
            self.keys.sort()
        if len(self.keys) > self._max_keys:
            half = self._max_keys // 2
            assert self.keys[half - 1] <= self.keys[half] < self.horizon, "timers are in order, before the horizon"
            self.horizon = self.keys[half]
            self._add_beyond(self.keys[half:])
            del self.keys[half:]

    def _add_beyond(self, keys: list[bytes]) -> None:
        self._newer += keys
        if self._during is not None:
            self._during += keys

    def _roll(self, changes: object, frozen: object) -> None:
        """Let go of what the store holds by now: a checkpoint is begun only when the one before is written."""
        if changes is not self._mark:
            self._older = self._newer if frozen is self._mark else []
            self._newer, self._mark = [], changes
        elif frozen is None:
            self._older = []

    def discard(self, key: bytes) -> None:
        at = bisect_left(self.keys, key)
        if at < len(self.keys) and self.keys[at] == key:
            del self.keys[at]

    def due(self, by_ms: int, limit: int) -> list[bytes]:
        """The first of those that are due by a time."""
        return self.keys[:min(limit, bisect_right(self.keys, bound(by_ms, self.by_wall)))]

    # ---- from the store

    @property
    def wants_more(self) -> bool:
        return len(self.keys) < self.quarter and self.horizon < self.beyond and self._during is None

    def begin_extension(self, changes: object, frozen: object) -> None:
        """A scan of the store for the first `quarter` keys from the horizon on is about to begin."""
        assert self._during is None, "one scan at a time"
        self._roll(changes, frozen)
        self._older.sort()
        self._newer.sort()
        self._unseen = self._older + self._newer
        self._unseen.sort()                               # two sorted runs: merged, not sorted
        self._during = []

    def extend(self, keys: list[bytes]) -> None:
        """What the scan found, in order; fewer than `quarter` are all there are."""
        at = bisect_left(self._unseen, self.horizon)
        unseen = self._unseen[at:at + self.quarter]
        ends = [part[-1] + b"\0" for part in (keys, unseen) if len(part) >= self.quarter]
        horizon = min([self.beyond, *ends])
        fresh = {key for part in (keys, unseen, self._during or ()) for key in part if self.horizon <= key < horizon}
        assert horizon >= self.horizon, "the horizon moves on"
        self.keys += sorted(fresh)
        assert len(self.keys) == len(fresh) or self.keys[-len(fresh) - 1] < self.horizon, "all before it is in memory"
        self.horizon = horizon
        self._unseen, self._during = [], None

    def unseen_from(self, key: bytes, limit: int) -> list[bytes]:
        """The first keys from one on, in order, of those that a scan of the store may not see; all that are before the
        horizon among them."""
        return sorted({timer for part in (self.keys, self._older, self._newer)
                       for timer in part if timer >= key})[:limit]
