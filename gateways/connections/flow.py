"""Flow control of connections, both ways: what every session has to write about bytes that come in and time that
passes, written once; and the budget of all bytes that wait to go out. Pure.

    ReceiveBuffer   the bytes of a packet that is not all there yet
    Timers          several wishes of one session over the one wake-up of its link
    Pacer           when the peer is not read, and when the session goes on with what has come
    Silence         the end of a peer that says nothing for too long
    UnsentBudget    what all connections of all doors together hold for peers that do not take it

A session is fed like this, and hands back what it did not use:

    def handle_data(self, data):
        data = self._received.take(data)
        ...                                        # whole packets, from index 0 to index `pos`
        self._received.keep(data, pos, size)       # `size` of the packet at `pos`, 0 where that is not known

Where a read holds whole packets and nothing was kept, both calls return at once: nothing is copied.

The budget, `hub.unsent_bytes`, is charged with what a slow peer has not taken (the shared connection and the HTTP door
do that) and with messages that wait in memory for one (MQTT's backlog). One connection may hold a part of what is left,
so the largest are the first that get nothing more and go on from the log, and the rest is there for those who come
later. Whoever keeps up holds nothing, and is not slowed by those who do not: a last piece (`FLOOR_BYTES`, and as much
for what is owed from the log) is everybody's, whatever is left.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Link


# --- what comes in, and time --------------------------------------------------------------------------------------

SMALL_PART_BYTES: Final = 8192         # pieces are merged up to this, so that a peer that sends single bytes does not
                                       # make an object of each


NO_PARTS: Final[list[bytes]] = []      # of a buffer that keeps nothing, as nearly all of them: nobody writes to it


class ReceiveBuffer:  # decision 150
    """What has come from a peer and could not be used yet. How much that may be, the session's decoder bounds."""

    def __init__(self) -> None:
        self.held_bytes = 0            # what is kept
        self._needed_bytes = 0         # how much must be there before it is worth looking; 0: look in any case
        self._parts = NO_PARTS

    def take(self, data: bytes) -> bytes:
        """Everything that has come, `data` last, in one piece; nothing is kept any more.

        Empty, with everything kept, while fewer bytes have come than `keep` was told.
        """
        if not self.held_bytes:
            return data
        self.add(data)
        if self.held_bytes < self._needed_bytes:
            return b""
        data = b"".join(self._parts)
        self.clear()
        return data

    def add(self, data: bytes) -> None:
        """Keep what came, behind what is kept, without looking at it."""
        if not data:
            return
        parts = self._parts
        if not parts:
            self._parts = [data]
        elif len(parts[-1]) + len(data) <= SMALL_PART_BYTES:
            parts[-1] += data
        else:
            parts.append(data)
        self.held_bytes += len(data)

    def keep(self, data: bytes, pos: int, needed_bytes: int = 0) -> None:
        """Keep `data[pos:]` of what `take` gave. `needed_bytes` is the size of the packet that begins there, where it
        is known; with 0 the next `take` gives whatever there is then."""
        if pos < len(data):
            rest = data[pos:]
            self._parts = [rest]
            self.held_bytes = len(rest)
            self._needed_bytes = needed_bytes

    def take_all(self) -> bytes:
        """Everything that is kept, whatever `keep` was told; nothing is kept any more."""
        if not self.held_bytes:
            return b""
        data = b"".join(self._parts)
        self.clear()
        return data

    def clear(self) -> None:
        """Forget what is kept."""
        self._parts = NO_PARTS
        self.held_bytes = self._needed_bytes = 0


class Timer:
    """One wish of a session. `when_ms` is 0 while there is none."""

    def __init__(self, timers: Timers) -> None:
        self.when_ms = 0
        self._timers = timers
        timers.take(self)

    def at(self, when_ms: int) -> None:
        """Be called then, once, in hub time; this replaces an earlier wish. 0: not at all."""
        self.when_ms = when_ms
        self._timers.arm()

    def run(self, now_ms: int) -> None:
        """Call what was wished, if it is due."""
        if 0 < self.when_ms <= now_ms:
            self.when_ms = 0
            self.on_due(now_ms)

    def on_due(self, now_ms: int) -> None:
        """The time wished for has come."""

    def end(self) -> None:
        """Call nobody any more."""
        self.when_ms = 0


class CallingTimer(Timer):
    """One that calls a function. Made by `Timers.add`."""

    def __init__(self, timers: Timers, call: Callable[[int], None]) -> None:
        super().__init__(timers)
        self._call = call

    def on_due(self, now_ms: int) -> None:
        """See `Timer.on_due`."""
        self._call(now_ms)

    def end(self) -> None:
        """See `Timer.end`."""
        self.when_ms = 0
        self._call = _not_due


def _not_due(now_ms: int) -> None:
    """What a timer calls that has ended."""


class Timers:
    """The timers of one session, in the order in which they were made. Nothing else of it may call `Link.wake_at`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._timers: tuple[Timer, ...] = ()
        self._armed_ms = 0             # what the link was told
        self._running = False

    def add(self, on_due: Callable[[int], None]) -> Timer:
        """A timer more, which calls `on_due(now_ms)`. Timers that are due together run in the order they were added."""
        return CallingTimer(self, on_due)

    def take(self, timer: Timer) -> None:
        """A timer more, which was just made."""
        self._timers = (*self._timers, timer)

    def handle_timer(self, now_ms: int) -> None:
        """Run what is due: what `Session.handle_timer` does."""
        self._armed_ms = 0
        self._running = True
        try:
            for timer in self._timers:
                timer.run(now_ms)
        finally:
            self._running = False
        self.arm()

    def stop(self) -> None:
        """The session is over: nothing is due any more, not even what is due now."""
        for timer in self._timers:
            timer.when_ms = 0

    def end(self) -> None:  # decision 297
        """The connection has ended: nobody is called any more."""
        for timer in self._timers:
            timer.end()
        self._timers = ()

    def arm(self) -> None:
        """Tell the link the first of all wishes, where that has changed."""
        if self._running:
            return
        first_ms = 0
        for timer in self._timers:
            when_ms = timer.when_ms
            if when_ms and (not first_ms or when_ms < first_ms):
                first_ms = when_ms
        if first_ms != self._armed_ms:
            self._armed_ms = first_ms
            self._link.wake_at(first_ms)


class Paced(Protocol):
    """A session, as its pacer knows it."""

    def handle_data(self, data: bytes) -> None:
        """See `contract.Session`; with b"" it goes on with what has come already."""


class Pacer(Timer):  # decision 319
    """When the peer is not read: until a time, and for as long as something is waited for. Then `session` goes on with
    what has come already."""

    def __init__(self, link: Link, timers: Timers, received: ReceiveBuffer, session: Paced) -> None:
        super().__init__(timers)
        self._link = link
        self._received = received
        self._session: Paced | None = session
        self._holds = 0

    @property
    def waits(self) -> bool:
        """Whether the session is to take nothing just now."""
        return self._holds > 0 or self.when_ms > 0

    @property
    def is_held(self) -> bool:
        """Whether something is waited for that has no time."""
        return self._holds > 0

    def pause_until(self, when_ms: int) -> None:
        """Read nothing and take nothing until then; a time that has passed means the next turn, so that others have
        theirs. An earlier time than one before changes nothing."""
        self._link.pause()
        self.at(max(self.when_ms, when_ms, 1))

    def hold(self) -> None:
        """Read nothing and take nothing until `release` or `go_on`, which is called as often."""
        self._holds += 1
        self._link.pause()

    def release(self) -> None:
        """What was waited for is there. The caller itself goes on with what has come."""
        self._holds -= 1
        if not self.waits:
            self._link.resume()

    def go_on(self, now_ms: int) -> None:
        """What was waited for is there. What has come is taken in the next turn: whoever calls may be in the middle of
        a packet."""
        self.release()
        if not self.waits and self._received.held_bytes:
            self.pause_until(now_ms)

    def end(self) -> None:
        """The connection has ended: nobody is called any more."""
        self.when_ms = 0
        self._session = None

    def on_due(self, now_ms: int) -> None:
        """See `Timer.on_due`."""
        if not self._holds and self._session is not None:
            self._link.resume()
            self._session.handle_data(b"")


class Expecting(Protocol):
    """A session whose peer is to say something now and then."""

    def on_silence(self) -> None:
        """The peer has said nothing for too long."""

    def is_excused(self) -> bool:
        """Whether it may be the hub's own doing that nothing was heard: the peer has as long again then."""


class Silence(Timer):
    """Ends a peer that says nothing for too long. To hear it costs one assignment: no timer moves."""

    def __init__(self, timers: Timers, session: Expecting) -> None:
        super().__init__(timers)
        self.heard_ms = 0
        self._limit_ms = 0
        self._session: Expecting | None = session
        self._idle_ms: Callable[[], int] | None = None

    def hear(self, now_ms: int) -> None:
        """Something came."""
        self.heard_ms = now_ms

    def asks(self, idle_ms: Callable[[], int]) -> None:
        """Something else hears the peer too, and says for how long it has heard nothing."""
        self._idle_ms = idle_ms

    def expect(self, now_ms: int, limit_ms: int) -> None:
        """From now on the peer says something every `limit_ms`; 0: it need not."""
        self.heard_ms = now_ms
        self._limit_ms = limit_ms
        self.at(now_ms + limit_ms if limit_ms else 0)

    def end(self) -> None:
        """The connection has ended: nobody is called any more."""
        self.when_ms = 0
        self._session = self._idle_ms = None

    def on_due(self, now_ms: int) -> None:
        """See `Timer.on_due`."""
        if self._idle_ms is not None:
            self.heard_ms = max(self.heard_ms, now_ms - self._idle_ms())
        session = self._session
        if session is not None and now_ms - self.heard_ms >= self._limit_ms:
            if not session.is_excused():
                session.on_silence()
                return
            self.heard_ms = now_ms
        self.at(self.heard_ms + self._limit_ms)


# --- what waits to go out -----------------------------------------------------------------------------------------

UNSENT_BYTES: Final = 64 << 20
"""The default size of the budget: with a thousand subscribers that stall at once about a tenth of a small machine's
memory."""

PART: Final = 4
"""One connection may hold this part of what is left: n of them together n / (n + 4) of the budget."""

FLOOR_BYTES: Final = 64 << 10
"""A connection that holds more is slow, and is told when its peer has taken nearly all of it."""

MUCH_BYTES: Final = 16 << 20
"""So many bytes are worth giving back to the system once they are no longer held."""


class UnsentBudget:  # decision 121
    """One per hub, in `Services`. `used_bytes` is at most `limit_bytes`, and twice `FLOOR_BYTES` and a message more
    for each peer that is slow."""

    def __init__(self, limit_bytes: int = UNSENT_BYTES, on_released: Callable[[], None] | None = None) -> None:
        """`on_released` is called when most of much is held no more."""
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._on_released = on_released
        self._most_bytes = 0                                     # held since then

    def charge(self, by: int) -> None:
        """Charge the budget with so many bytes more; a negative number gives bytes back."""
        used = self.used_bytes = self.used_bytes + by
        if used > self._most_bytes:
            self._most_bytes = used
        elif self._most_bytes >= MUCH_BYTES and used < self._most_bytes // 4:
            self._most_bytes = used
            if self._on_released is not None:
                self._on_released()

    def part(self) -> int:
        """What one connection may hold now, in bytes."""
        return max(0, (self.limit_bytes - self.used_bytes) // PART)

    def allowed(self, most: int) -> int:
        """How many unsent bytes a connection may have: at most `most`. Where nothing of the budget is left it is one
        more than `FLOOR_BYTES`, so that the connection counts as slow, and is therefore told when it is slow no
        longer."""
        return min(most, max(FLOOR_BYTES + 1, self.part()))
