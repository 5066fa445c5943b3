"""The messages of the next timers, read from the store on another thread before they fall due."""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Final

from gatehouse.kernel.index.index import Index
from gatehouse.kernel.ports import Worker
from gatehouse.kernel.scheduling.schedule_records import bound, due_of, id_of
from gatehouse.kernel.scheduling.timers import Timers
from gatehouse.kernel.state.state import Kind, StateTable

AHEAD_MS: Final = 5_000                   # messages are read before they fall due: at most this,
LATEST_MS: Final = 2_000                  # and at the latest this; between them until there are
MANY: Final = 256                         # so many to read by one job
WINDOW: Final = 8_192                     # of the next timers' messages are at hand,
FEW: Final = 64                           # and some more where earlier ones come in
WINDOW_BYTES: Final = 16 << 20            # beyond this only the first of them is read, where it is not there
READ_BYTES: Final = 4 << 20               # by one job


class AtHand:
    """`worker` reads the index; `on_read` is called when more has come to hand."""

    def __init__(self, *, state: StateTable, index: Index, worker: Worker, timers: Timers,
                 on_read: Callable[[], None], fatal: Callable[[str], None]) -> None:
        self._state = state
        self._index = index
        self._worker = worker
        self._fatal = fatal
        self._timers = timers
        self._on_read = on_read
        self._checked = b""                           # timers before this are at hand, or being read
        self._reading = False
        self.values: dict[bytes, bytes] = {}          # by timer; empty: nothing waits behind it any more
        self.size_bytes = 0

    # ---- kept in step with the timers

    def added(self, keys: list[bytes]) -> None:
        if keys:
            self._checked = min(self._checked, min(keys))

    def pop(self, key: bytes) -> bytes:
        value = self.values.pop(key, b"")
        self.size_bytes -= len(value)
        assert self.size_bytes >= 0 and (self.values or not self.size_bytes), "bytes are those of the values"
        return value

    def wake_ms(self) -> int | None:
        """When something is to be done about the first timer; None: when what is being read has come."""
        first = self._timers.keys[0]
        if first in self.values:
            return due_of(first)
        return None if self._reading else due_of(first) - LATEST_MS

    # ---- reading

    def fill(self, now_ms: int) -> None:
        """Have what falls due soon at hand, or on its way."""
        keys = self._timers.keys
        if self._reading or not keys:
            return
        first_only = self.size_bytes >= WINDOW_BYTES
        if keys[0] not in self.values:                # whatever came between
            self._checked = keys[0]
        elif first_only:
            return
        at = bisect_left(keys, self._checked)
        soon = bisect_left(keys, bound(now_ms + AHEAD_MS, self._timers.by_wall))
        end = min(soon, at + (1 if first_only else max(FEW, WINDOW - len(self.values))))
        missing: list[bytes] = []
        for place in range(at, end):
            key = keys[place]
            if self.size_bytes >= WINDOW_BYTES and place > at:
                end = place
                break
            if key in self.values:
                continue
            recent = self._state.recent(Kind.SCHEDULED, id_of(key))
            if recent is None:
                missing.append(key)
            else:
                self._keep(key, recent[2] or b"")
        if not missing:
            self._checked = keys[end] if end < len(keys) else self._timers.horizon
        elif len(missing) >= MANY or due_of(missing[0]) <= now_ms + LATEST_MS:
            self._checked = keys[end - 1] + b"\0"
            self._reading = True
            self._worker.submit(partial(self._read, missing), partial(self._done, missing))

    def _read(self, keys: list[bytes]) -> list[bytes]:
        """On the reading thread: what waits behind each; as many of them as may be read at once."""
        values: list[bytes] = []
        total = 0
        for key in keys:
            held = self._index.held(Kind.SCHEDULED, id_of(key))
            values.append(b"" if held is None or held.value is None else held.value)
            total += len(values[-1])
            if total > READ_BYTES:
                break
        return values

    def _done(self, missing: list[bytes], values: list[bytes] | None, error: BaseException | None) -> None:
        self._reading = False
        if values is None:
            self._fatal(f"the index cannot be read: {error}")
            return
        for key, value in zip(missing, values, strict=False):
            if key in self._timers and key not in self.values:
                self._keep(key, value)
        self.added(missing[len(values):])
        self._on_read()

    def _keep(self, key: bytes, value: bytes) -> None:
        assert key not in self.values, "a message comes to hand once"
        self.values[key] = value
        self.size_bytes += len(value)
