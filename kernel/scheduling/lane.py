"""What falls due by one of the two clocks: its timers, their messages at hand, and the alarm for the next."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

from gatehouse.kernel.index.index import Index
from gatehouse.kernel.ports import Loop, Timer, Worker
from gatehouse.kernel.scheduling.at_hand import AtHand
from gatehouse.kernel.scheduling.timers import Timers
from gatehouse.kernel.state.state import Kind, StateTable


class Lane:
    """`worker` reads the index; `turn` is called when more has come to hand, or something is due."""

    def __init__(self, *, loop: Loop, worker: Worker, index: Index, state: StateTable, timers: Timers,
                 turn: Callable[[], None], fatal: Callable[[str], None]) -> None:
        self._worker = worker
        self._index = index
        self._state = state
        self._fatal = fatal
        self._turn = turn
        self._call_at = loop.call_at_wall if timers.by_wall else loop.call_at
        self._taken = 0
        self._alarm: tuple[int, Timer] | None = None
        self.now_ms = loop.wall_ms if timers.by_wall else loop.now_ms
        self.timers = timers
        self.at_hand = AtHand(state=state, index=index, worker=worker, timers=timers, on_read=turn, fatal=fatal)

    # ---- timers from the store, messages to hand

    def fill(self) -> None:
        """Have on its way what will be wanted soon."""
        timers, state = self.timers, self._state
        if timers.wants_more:
            timers.begin_extension(state.changes, state.frozen)
            self._worker.submit(partial(self._scan, timers.horizon, timers.quarter), self._scanned)
        self.at_hand.fill(self.now_ms())

    def _scan(self, horizon: bytes, limit: int) -> list[bytes]:
        """On the reading thread."""
        timers = self._index.scan_state(Kind.TIMER, horizon, self.timers.beyond)
        return [key for key, _ in islice(timers, limit)]

    def _scanned(self, keys: list[bytes] | None, error: BaseException | None) -> None:
        if keys is None:
            self._fatal(f"the index cannot be read: {error}")
            return
        self.timers.extend(keys)
        self._turn()

    # ---- what is due

    def due(self, limit: int) -> list[bytes]:
        """The first timers that are due, as far as their messages are at hand."""
        keys = self.timers.due(self.now_ms(), limit)
        return keys[:next((at for at, key in enumerate(keys) if key not in self.at_hand.values), len(keys))]

    def take(self, key: bytes) -> bytes:
        """What waits behind the next of these; `taken` follows."""
        self._taken += 1
        return self.at_hand.pop(key)

    def taken(self) -> None:
        """All that were taken leave the timers."""
        assert 0 <= self._taken <= len(self.timers.keys), "what is taken is among the timers"
        del self.timers.keys[:self._taken]
        self._taken = 0

    # ---- waking up

    def arm(self) -> None:
        """For the next that is due, or whose message has to be read by then; else woken by what is under way."""
        when_ms = self.at_hand.wake_ms() if self.timers.keys else None
        if when_ms is None:
            self.disarm()
        elif self._alarm is None or self._alarm[0] != when_ms:
            self.disarm()
            self._alarm = when_ms, self._call_at(when_ms, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._turn()

    def disarm(self) -> None:
        if self._alarm is not None:
            self._alarm[1].cancel()
            self._alarm = None
