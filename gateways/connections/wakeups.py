"""One loop timer for all connections: who wants to be woken when, in buckets of `TICK_MS`.

A connection has at most one entry, and a packet never re-arms anything: a session that is woken before its time is up
(a keep-alive whose peer has spoken since) asks again from `handle_timer`. Ten thousand idle connections with a
keep-alive of a minute cost about a hundred dictionary operations a second and one timer of the event loop.
"""
from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Final, Protocol

TICK_MS: Final = 10      # how much later than asked a wake-up may come
TURN_MS: Final = 50      # for so long sleepers are woken in one turn of the loop; the rest waits for the next


class Sleeper(Protocol):
    def wake(self, now_ms: int) -> None:
        """The time asked for has come. Must not raise."""


class Wakeups:
    """Buckets of sleepers by due time. `now_ms` is hub time; `loop` only serves the nearest bucket."""

    __slots__ = ("_loop", "_now_ms", "_buckets", "_ticks", "_timer", "_timer_tick")

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        self._loop = loop
        self._now_ms = now_ms
        self._buckets: dict[int, set[Sleeper]] = {}
        self._ticks: list[int] = []                  # heap of the keys of `_buckets`
        self._timer: asyncio.TimerHandle | None = None
        self._timer_tick = 0

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self._buckets.values())

    def add(self, when_ms: int, sleeper: Sleeper) -> int:
        """Wake `sleeper` at `when_ms` or up to `TICK_MS` later; returns the tick, for `discard`."""
        tick = -(-when_ms // TICK_MS)
        bucket = self._buckets.get(tick)
        if bucket is None:
            self._buckets[tick] = {sleeper}
            heapq.heappush(self._ticks, tick)
            if self._timer is None or tick < self._timer_tick:
                self._arm()
        else:
            bucket.add(sleeper)
        return tick

    def discard(self, tick: int, sleeper: Sleeper) -> None:
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.discard(sleeper)      # an emptied bucket stays until its tick: cheaper than mending the heap

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ticks:
            self._timer_tick = self._ticks[0]
            delay_ms = max(0, self._timer_tick * TICK_MS - self._now_ms())
            self._timer = self._loop.call_later(delay_ms / 1000, self._run)

    def _run(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        due: list[tuple[int, set[Sleeper]]] = []
        while self._ticks and self._ticks[0] * TICK_MS <= now_ms:
            tick = heapq.heappop(self._ticks)
            due.append((tick, self._buckets.pop(tick)))
        is_over = False                  # who asks again for now comes in the next turn: sockets are looked at between
        for tick, bucket in due:
            while bucket and not is_over:
                bucket.pop().wake(now_ms)
                is_over = self._now_ms() - now_ms >= TURN_MS
            for sleeper in bucket:       # decision 343: at its own tick, so whoever asks again is behind it
                self.add(tick * TICK_MS, sleeper)
        if self._timer is None:          # a sleeper that asked again has armed it
            self._arm()
