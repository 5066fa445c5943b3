"""What of a peer goes on while its messages wait for a limit. Pure: time is an argument.

A limit slows down what a peer publishes, and nothing else: its acknowledgements, pings and subscriptions are taken as
they come, so what it consumes goes on and no keep-alive ends it. A door says of each unit of its protocol what it is:

    GOES      taken as it comes
    LAST      the peer's goodbye: it waits for everything, and nothing behind it is read meanwhile
    BEHIND    taken as it comes, unless something of its stream waits: then behind that
    COUNTS    a message begins: it waits where nothing may be taken, or something of its stream waits. Doors add what
              tells messages apart that must not be taken together

Messages are taken in pieces of what the limits have left (`Guard.room`), so that little is overdrawn, and each is
weighed when it is taken. Whoever has more than `WAITING_BYTES` waiting here is not read.
"""
# decision 238: a slowed peer is read, and its messages wait
from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from gatehouse.gateways.admission.limits.meter import LOOK_AGAIN_MS
from gatehouse.gateways.door_side import Pacer, ReceiveBuffer, Timers
from gatehouse.kernel.shedding import PUBLISHERS, WAIT_MS

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Link
    from gatehouse.kernel.shedding import Shedding

GOES: Final = 0
BEHIND: Final = 1
LAST: Final = 2
COUNTS: Final = 3

WAITING_BYTES: Final = 256 << 10
"""How much of one peer may wait before it is not read; and one read more."""

HELD_MS: Final = 20
"""How often is looked while the session itself waits for something, before its messages are taken."""

PIECES_PER_TURN: Final = 64
"""Pieces that one turn takes: what is refused is refused soon, and others have their turn."""

HELD_BYTES: Final = 16 << 10
"""What a peer may have waiting here while publishing waits because the hub has too much to do: less than
WAITING_BYTES, as everybody has it."""

SPARE_PART: Final = 8
SPARE_MS: Final = 20
"""Where limits have much left, an eighth of it may be read for so long before they are asked again."""

SMALLEST_BYTES: Final = 5
"""No message of any door is smaller: what has no more bytes than this for each that may be taken is not looked at."""

NOTHING: Final[deque[Any]] = deque()
"""What waits of nearly every peer, which is never slowed down: a deque of its own takes 760 bytes."""


class Publisher(Protocol):
    """What of a `Guard` is asked here."""

    @property
    def shedding(self) -> Shedding: ...

    @property
    def limited(self) -> bool: ...

    @property
    def is_new_to_limits(self) -> bool: ...

    @property
    def limits_version(self) -> int: ...

    def waits(self, refuses: bool) -> bool: ...

    def room(self) -> tuple[int, int]: ...


class Unit(NamedTuple):
    """One whole packet or frame."""

    kind: int
    stream: int
    data: bytes


Sort = Callable[[bytes, int], tuple[int, int, int]]
"""(size, kind, stream) of the unit at a place; a size beyond the data or of 0: it is not all there. Never raises: what
is no unit is one of the kind `LAST`, which breaks the protocol when it is taken."""


class Slowing:
    """What of one connection waits for a limit, and what goes on. `take` is called with whole units, never raises, and
    returns those of them that it has not used."""

    def __init__(self, link: Link, guard: Publisher, timers: Timers, pacer: Pacer, now_ms: Callable[[], int],
                 sort: Sort, take: Callable[[bytes], bytes], refuses: Callable[[], bool] = bool) -> None:
        """`refuses`: whether the peer can be told that what it publishes is refused."""
        self.guard = guard
        """Of whoever publishes now."""

        self._link = link
        self._pacer = pacer
        self._now_ms = now_ms
        self._sort = sort
        self._take = take
        self._timer = timers.add(self._on_due)
        self._waiting: deque[Unit] = NOTHING
        self._waiting_bytes = 0
        self._held: dict[int, int] = {}          # units that wait, by stream
        self._until_ms = 0
        self._spare_bytes = 0                    # reads that need not be looked at, for a moment
        self._spare_until_ms = 0
        self._version = -1
        self._is_full = False
        self._is_last = False                    # the peer has said goodbye
        self.is_held = False
        """Whether what waits does because the hub has too much to do, or as much is stored as may be."""

        self._refuses = refuses

    def publishes_as(self, guard: Publisher) -> None:
        """Somebody else publishes from now on."""
        self.guard = guard

    @property
    def is_full(self) -> bool:
        """Whether the peer is not read, as so much of it waits."""
        return self._is_full

    @property
    def waits(self) -> bool:
        """Whether something of the peer waits, or would."""
        return bool(self._waiting) or self._until_ms > 0

    def is_needed(self, data: bytes) -> bool:
        """Whether a read is to be fed here."""
        if self._waiting or self._until_ms:
            return True
        if not self.guard.limited:
            return False
        if self.guard.is_new_to_limits:      # who only consumes sends acknowledgements and nothing else
            return data != b"" and self._sort(data, 0)[1] >= COUNTS
        size, now_ms = len(data), self._now_ms()
        if size <= self._spare_bytes and now_ms < self._spare_until_ms and self._version == self.guard.limits_version:
            self._spare_bytes -= size
            return False
        messages, size_bytes = self.guard.room()
        size_bytes = min(size_bytes, messages * SMALLEST_BYTES)
        self._spare_bytes, self._spare_until_ms = size_bytes // SPARE_PART, now_ms + SPARE_MS
        self._version = self.guard.limits_version
        return size > size_bytes

    def wait(self, wait_ms: int) -> None:
        """Something was taken that overdrew a limit."""
        if wait_ms > 0:
            self._until_ms = max(self._until_ms, self._now_ms() + wait_ms)
            self._version = self.guard.limits_version
            self._arm()

    def feed(self, data: bytes) -> tuple[bytes, int]:
        """Take what may go on now; returns what is no whole unit yet, and the size of the unit that it is of, 0 where
        that is not known."""
        going: list[bytes] = []
        messages, size_bytes = self._room()
        first = -1
        pos = size = 0
        while pos < len(data):
            size, kind, stream = self._sort(data, pos)
            if size == 0 or pos + size > len(data):
                break
            unit = Unit(kind, stream, data[pos:pos + size])
            pos += size
            if kind == GOES or kind == BEHIND and stream not in self._held or kind == LAST and not self._waiting:
                going.append(unit.data)
            elif kind >= COUNTS and stream not in self._held and messages > 0 and size_bytes > 0 and (
                    first in (-1, kind)):
                first = kind
                messages -= 1
                size_bytes -= size
                going.append(unit.data)
            else:
                messages = 0                     # whatever is behind waits too, of other streams as well
                self._keep(unit)
                if kind == LAST:
                    self._is_last = True
        if going:
            self._put_back(self._take(b"".join(going)))
        self._arm()
        self._check_full()
        return data[pos:], size if pos < len(data) else 0

    @property
    def waiting_bytes(self) -> int:
        """How much of the peer's waits."""
        return self._waiting_bytes

    def on_closed(self) -> None:
        """Nothing that waits is wanted any more."""
        self._waiting.clear()
        self._held.clear()
        self._waiting_bytes = self._until_ms = 0

    def _room(self) -> tuple[int, int]:
        if self._until_ms or self._waiting or self._pacer.waits or not self._may_publish():
            return 0, 0
        return self.guard.room()

    def _may_publish(self) -> bool:
        """Whether the hub has anybody publish; else it is asked again in a while."""
        self.is_held = self.guard.waits(self._refuses())
        if self.is_held:
            self.guard.shedding.leaves(PUBLISHERS)
            self.wait(WAIT_MS)
        return not self.is_held

    def _keep(self, unit: Unit) -> None:
        if self._waiting is NOTHING:
            self._waiting = deque()
        self._waiting.append(unit)
        self._waiting_bytes += len(unit.data)
        self._held[unit.stream] = self._held.get(unit.stream, 0) + 1

    def _put_back(self, left: bytes) -> None:
        """What was to be taken and was not: it is before everything that waits, and taken with the next piece."""
        units: list[Unit] = []
        pos = 0
        while pos < len(left):
            size, kind, stream = self._sort(left, pos)
            units.append(Unit(kind, stream, left[pos:pos + size]))
            pos += size
            self._held[stream] = self._held.get(stream, 0) + 1
        self._waiting = deque([*units, *self._waiting])
        self._waiting_bytes += len(left)

    def _arm(self) -> None:
        if not self._waiting and not self._until_ms:
            self._timer.at(0)
            return
        now_ms = self._now_ms()
        if self._until_ms:
            self._timer.at(max(1, min(self._until_ms, now_ms + LOOK_AGAIN_MS)))
        else:
            self._timer.at(now_ms + (HELD_MS if self._pacer.is_held else 1))

    def _check_full(self) -> None:
        if self._waiting and (self._is_last or self._waiting_bytes > (HELD_BYTES if self.is_held else WAITING_BYTES)):
            self._is_full = True
            self._link.pause()
        elif self._is_full:
            self._is_full = False
            if not self._pacer.waits:
                self._link.resume()

    def _on_due(self, now_ms: int) -> None:
        if self._version != self.guard.limits_version or now_ms >= self._until_ms:
            self._until_ms = 0
        for _ in range(PIECES_PER_TURN):
            if not self._waiting or self._until_ms or self._pacer.waits or not self._may_publish():
                break
            self._put_back(self._take(self._piece()))
        self._arm()
        self._check_full()

    def _piece(self) -> bytes:
        """What may be taken now of what waits: at least one message."""
        messages, size_bytes = self.guard.room()
        first = -1
        going: list[bytes] = []
        while self._waiting:
            kind, stream, data = self._waiting[0]
            if kind >= COUNTS:
                if first != -1 and (kind != first or messages <= 0 or size_bytes <= 0):
                    break
                first = kind
                messages -= 1
                size_bytes -= len(data)
            self._waiting.popleft()
            self._waiting_bytes -= len(data)
            self._held[stream] -= 1
            if not self._held[stream]:
                del self._held[stream]
            going.append(data)
        return b"".join(going)


class SlowedSession(ABC):
    """A session of a door, as far as what its peer sends is kept, paced, and slowed down once a limit speaks of it."""

    def __init__(self, link: Link, now_ms: Callable[[], int]) -> None:
        self._link = link
        self._now_ms = now_ms
        self._received = ReceiveBuffer()
        self._timers = Timers(link)
        self._pacer = Pacer(link, self._timers, self._received, self)
        self._slowing: Slowing | None = None

    @abstractmethod
    def handle_data(self, data: bytes) -> None:
        """Take what has come: `data` last, nothing where the session goes on."""

    @abstractmethod
    def _sorting(self) -> Sort:
        """What says of each unit of the protocol what it is."""

    @abstractmethod
    def _take_sorted(self, data: bytes) -> bytes:
        """Take whole units; returns those that have to wait for something else than a limit."""

    @abstractmethod
    def _can_be_refused(self) -> bool:
        """Whether the peer can be told that what it publishes is refused."""

    def _slows(self, guard: Publisher) -> Slowing:
        """What slows the peer down from now on."""
        if self._slowing is None:
            self._slowing = Slowing(self._link, guard, self._timers, self._pacer, self._now_ms, self._sorting(),
                                    self._take_sorted, self._can_be_refused)
        return self._slowing

    def _takes_slowly(self, data: bytes, guard: Publisher) -> bool:
        """Take of a read what may be taken now, and keep the rest; False where that may be all of it."""
        slowing = self._slows(guard)
        if not slowing.is_needed(data):
            return False
        rest, needed = slowing.feed(data)
        self._received.keep(rest, 0, needed)
        return True
