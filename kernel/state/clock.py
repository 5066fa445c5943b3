"""What the kernel knows of its two clocks (see `kernel.ports`), over starts and steps of the wall clock.

    hub time      goes on over a restart where the log ended, and for as long as the wall clock says that the hub was
                  away; where it says a time before the end of the log, the hub counts as having been away for no time
    append time   is wall time, but never falls: behind a step back it stands still until wall time has caught up
    stretches     between two steps the clocks are so far apart: what hub time it was at an append time, and the
                  other way round, is known from these, so that the age of what is stored counts no step

The state record (Kind.CLOCK, one) is in the first frame of every start, in each that follows a step, and in each while
append time stands still. All numbers are i64, big-endian:

    append_ms, hub_ms, wall_ms     of its frame
    hub_ms, wall_ms                where each stretch begins, the oldest first
"""
from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Final

from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.ports import Loop
from gatehouse.kernel.state.state import Kind

STEP_MS: Final = 500
"""Clocks further apart than a stretch says begin another one."""

UNSEEN_MS: Final = 10_000
"""A frame looks for itself whether the clocks are further apart: the loop may not have seen a step yet."""

MAX_STRETCHES: Final = 64
"""What is older than the oldest that is remembered counts as of its distance. A clock is stepped at a start, mostly."""

_TIME = struct.Struct(">qqq")
_STRETCH = struct.Struct(">qq")

Stretch = tuple[int, int]
"""Hub time and wall time at which it begins."""


def _stretch_at(stretches: tuple[Stretch, ...], hub_ms: int) -> int:
    """The moment at which one begins is the last of the one before: what was said then stays said."""
    return max(0, bisect_left(stretches, hub_ms, key=itemgetter(0)) - 1)


class Ages:
    """How old what is stored is, as of one moment. May be asked by any thread."""

    def __init__(self, now_ms: int, stretches: tuple[Stretch, ...]) -> None:
        self._now_ms = now_ms
        self._stretches = stretches

    def appended_by(self, age_ms: int) -> int:
        """What was appended earlier than this append time is older than `age_ms` of hub time."""
        hub_ms = self._now_ms - age_ms
        at = _stretch_at(self._stretches, hub_ms)
        begin_ms, wall_ms = self._stretches[at]
        reached = [wall_ms + end_ms - begin_ms for (begin_ms, wall_ms), (end_ms, _)
                   in zip(self._stretches[:at], self._stretches[1:], strict=False)]
        return max([wall_ms + hub_ms - begin_ms, *reached])


class Clock:  # decision 123
    """`on_step` is told of steps of the wall clock, in ms; negative: back."""

    def __init__(self, loop: Loop, on_step: Callable[[int], None]) -> None:
        self._loop = loop
        self._on_step = on_step
        self.append_ms = 0                               # of the newest frame
        self._stretches: tuple[Stretch, ...] = ()
        self.apart_ms = 0                                # wall time - hub time, where the newest stretch begins
        self._noted = True                               # the distance of the clocks is in the log
        self.steps = 0

    # ---- over a restart

    def begin(self, value: bytes | None, append_ms: int) -> None:
        """A start: `value` is the newest record, `append_ms` that of the newest frame known."""
        wall_ms = self._loop.wall_ms()
        last_append_ms, hub_ms, last_wall_ms = (append_ms, append_ms, append_ms)
        if value is not None:
            last_append_ms, hub_ms, last_wall_ms = _TIME.unpack_from(value)
            self._stretches = tuple(_STRETCH.iter_unpack(value[_TIME.size:]))
        if append_ms > last_append_ms:                   # frames since, and append time did not stand still
            hub_ms += append_ms - last_wall_ms
            last_wall_ms = last_append_ms = append_ms
        self.append_ms = last_append_ms
        self._loop.begin_at(hub_ms + max(0, wall_ms - last_wall_ms))
        if self._stretches:
            self.apart_ms = self._stretches[-1][1] - self._stretches[-1][0]
        self._measure()

    # ---- while it runs

    def start(self, put_state: Callable[[list[StateRecord]], object]) -> None:
        """Note steps in the log, at once: after a crash from there on nobody else would know."""
        self._loop.on_step(partial(self._stepped, put_state))

    def _stepped(self, put_state: Callable[[list[StateRecord]], object], by_ms: int) -> None:
        self.steps += 1
        self._measure()
        self._on_step(by_ms)
        with suppress(Stopping):
            put_state(self.records())

    def _measure(self) -> None:
        """Begin another stretch where the clocks are not as far apart as they were."""
        hub_ms, wall_ms = self._loop.now_ms(), self._loop.wall_ms()
        if not self._stretches or abs(wall_ms - self.wall_of(hub_ms)) >= STEP_MS:
            if self._stretches:            # what comes now is not older than what came before
                self.append_ms = max(self.append_ms, self.wall_of(hub_ms))
            assert not self._stretches or self._stretches[-1][0] <= hub_ms, "hub time never falls"
            self._stretches = (*self._stretches, (hub_ms, wall_ms))[-MAX_STRETCHES:]
            self.apart_ms = wall_ms - hub_ms
            self._noted = False

    def append_time(self, now_ms: int) -> int:
        """For the frame that is begun now, at this hub time."""
        wall_ms = self._loop.wall_ms()
        if abs(wall_ms - now_ms - self.apart_ms) >= UNSEEN_MS:
            self._measure()
        if wall_ms < self.append_ms:
            self._noted = False
        else:
            self.append_ms = wall_ms
        assert self.append_ms >= wall_ms, "append time stands still, it does not lag"
        return self.append_ms

    def records(self) -> list[StateRecord]:
        """What this frame has to say of the clocks; mostly nothing."""
        if self._noted:
            return []
        return [self._record()]

    def begun(self) -> StateRecord:
        """For the first frame of a start."""
        self.append_time(self._loop.now_ms())
        return self._record()

    def _record(self) -> StateRecord:
        self._noted = True
        times = _TIME.pack(self.append_ms, self._loop.now_ms(), self._loop.wall_ms())
        return StateRecord(Kind.CLOCK, b"", times + b"".join([_STRETCH.pack(*stretch) for stretch in self._stretches]))

    def refused(self) -> None:
        """The disk did not take a frame: the next one says it."""
        self._noted = False

    # ---- from one clock to the other

    def ages(self) -> Ages:
        return Ages(self._loop.now_ms(), self._stretches)

    def wall_of(self, hub_ms: int) -> int:
        """What the wall clock said at a hub time, or will say if it is not stepped before; for what is shown."""
        begin_ms, wall_ms = self._stretches[_stretch_at(self._stretches, hub_ms)]
        return wall_ms + hub_ms - begin_ms
