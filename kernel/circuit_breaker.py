"""A circuit breaker: whether something that may fail is asked at all. Pure; times are hub time in ms.

    CLOSED ──too many of the last outcomes failed──► OPEN ──its time is over──► HALF_OPEN
      ▲                                               ▲                            │
      └────────────── one probe succeeds ─────────────┼──── the probe fails ───────┘

A request is whatever is asked: a POST, a look-up, a message that is handed to a member of a group. An open circuit
costs what it protects one request each time that its time is over. That time doubles with each probe
that fails, up to a longest one, and goes on doubling where a circuit opens again soon after it closed. People may open
a circuit, which then stays open, and close one.
"""
from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

# decision 212: what counts is the answer, not why
WINDOW: Final = 20
"""So many of the newest outcomes are looked at."""


class CircuitState(StrEnum):
    """What becomes of the next request."""

    CLOSED = "closed"          # it is sent
    OPEN = "open"              # it waits
    HALF_OPEN = "half-open"    # one is sent, as a probe, and decides; the others wait


@dataclass(frozen=True, slots=True)
class CircuitSettings:
    """When a circuit opens, and for how long."""

    failures: int = 5
    """It opens with the newest so many failed in a row, or with half of the last `WINDOW`; 0: never by itself."""

    open_ms: int = 60_000
    longest_open_ms: int = 3_600_000

    slow_ms: int = 0
    """What takes longer counts as failed; 0: nothing does."""


class CircuitBreaker:
    """Whether something that may fail is asked: ask `may_pass` before each request, and tell `note` how it ended."""

    def __init__(self, settings: CircuitSettings) -> None:
        self._settings = settings
        self.state = CircuitState.CLOSED
        self.opened = 0                            # times that it opened, by itself or by hand
        self.by_hand = False
        self.reason = ""                           # what the newest failure was, for people
        self.until_ms = 0                          # of an open one: when a probe is due; not by hand
        self._open_ms = settings.open_ms
        self._settled_ms = 0                       # until then one that has closed may be about to open again
        self._outcomes: deque[bool] = deque(maxlen=WINDOW)
        self._in_a_row = 0

    def configure(self, settings: CircuitSettings) -> None:
        """Other settings from now on; one that is open stays so for as long as it was to."""
        self._settings = settings

    def would_pass(self, now_ms: int) -> bool:
        """What `may_pass` would say; nothing changes."""
        return self.state is CircuitState.CLOSED or \
            self.state is CircuitState.OPEN and not self.by_hand and now_ms >= self.until_ms

    def may_pass(self, now_ms: int) -> bool:
        """Whether a request may be sent now. The first one after the time of an open circuit is its probe."""
        if self.state is CircuitState.OPEN and not self.by_hand and now_ms >= self.until_ms:
            self.state = CircuitState.HALF_OPEN
            return True
        return self.state is CircuitState.CLOSED

    @property
    def is_failing(self) -> bool:
        """Whether the newest outcomes are those of a circuit that opens."""
        failures = self._settings.failures
        if not failures:
            return False
        return self._in_a_row >= failures \
            or len(self._outcomes) == WINDOW and self._outcomes.count(False) * 2 >= WINDOW

    def note(self, succeeded: bool, now_ms: int, took_ms: int = 0, reason: str = "", may_open: bool = True) -> bool:
        """How a request ended. Returns whether that opened or closed the circuit. Without `may_open` a circuit that is
        closed stays so, and may be `is_failing`.

        A success that was slow counts as a failure: what is asked has too much to do already. One that was sent before
        the circuit opened says nothing new, unless it succeeded.
        """
        if 0 < self._settings.slow_ms < took_ms:
            succeeded, reason = False, reason or f"an answer took {took_ms / 1000:.1f} s"
        self.reason = "" if succeeded else reason
        if self.by_hand:
            return False
        if succeeded:
            self._in_a_row = 0
            if self.state is not CircuitState.CLOSED:
                open_ms = self._open_ms
                self._close()
                self._open_ms, self._settled_ms = open_ms, now_ms + open_ms
                return True
            self._outcomes.append(True)
            return False
        if self.state is CircuitState.HALF_OPEN:
            self._open_ms = min(self._open_ms * 2, self._settings.longest_open_ms)
            self._open(now_ms)
            return True
        if self.state is CircuitState.OPEN:
            return False
        self._in_a_row += 1
        self._outcomes.append(False)
        return may_open and self.is_failing and self.trip(now_ms)

    def trip(self, now_ms: int, reason: str = "") -> bool:
        """Open as after too many failures; whether that changes anything."""
        if self.state is not CircuitState.CLOSED:
            return False
        self.reason = reason or self.reason
        again = now_ms < self._settled_ms              # it flaps
        self._open_ms = min(self._open_ms * 2, self._settings.longest_open_ms) if again else self._settings.open_ms
        self._open(now_ms)
        return True

    def give_up_probe(self, until_ms: int) -> None:
        """Nobody will learn how the probe ended, or its answer says nothing: the first request from then on is one."""
        if self.state is CircuitState.HALF_OPEN:
            self.state, self.until_ms = CircuitState.OPEN, until_ms

    def open(self) -> None:
        """By hand: until it is closed by hand."""
        if not self.by_hand:
            self.state, self.by_hand, self.until_ms = CircuitState.OPEN, True, 0
            self.opened += 1

    def close(self) -> None:
        """By hand: what failed before is forgotten."""
        self._close()

    def kept(self) -> dict[str, Any]:
        """What of it outlives the hub, where somebody keeps it; see `restore`."""
        return {"until_ms": self.until_ms, "open_ms": self._open_ms, "by_hand": self.by_hand, "reason": self.reason}

    def restore(self, kept: dict[str, Any]) -> None:
        """It is open, as it was kept. The probe of before is not known of: there will be another."""
        self.state, self.by_hand, self.reason = CircuitState.OPEN, bool(kept["by_hand"]), str(kept["reason"])
        self.until_ms = int(kept["until_ms"])
        self._open_ms = max(self._settings.open_ms, min(int(kept["open_ms"]), self._settings.longest_open_ms))

    def _open(self, now_ms: int) -> None:
        self.state = CircuitState.OPEN
        self.until_ms = now_ms + self._open_ms
        self.opened += 1

    def _close(self) -> None:
        self.state = CircuitState.CLOSED
        self.by_hand = False
        self.until_ms = self._in_a_row = 0
        self._open_ms, self._settled_ms = self._settings.open_ms, 0
        self._outcomes.clear()
