"""What the sessions of every door are made of, written once: bytes that come in and time that passes, what waits to go
out, and the door's end of its port. Pure. Hot.

    ReceiveBuffer   the bytes of a packet that is not all there yet
    Timers          several wishes of one session over the one wake-up of its link
    Pacer           when the peer is not read, and when the session goes on with what has come
    Silence         the end of a peer that says nothing for too long
    UnsentBudget    what all connections of all doors together hold for peers that do not take it
    Gathering       what sessions publish a few at a time, on its way into one append
    Switchboard     which session an answer or a delivery is for; one per door

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

The switchboard is the door's end of its port, made with `Services.door`.

    guard ──► switchboard ──► port          submissions get numbers, filters are counted
    session ◄── switchboard ◄── port        once per flush: each session is called once for all of it

The port knows a filter once, however many sessions have it: what matches an address is found here, and remembered until
a subscription that could matter has come or gone. Work that grows with sessions is done in steps, which the port takes
as the loop has time.

What sessions publish a few at a time is gathered, and enters the kernel as one append:

    a read of each session ──► Guard.gather ──► Gathering ──► one append as the next frame is sealed
    PUBACK of each session ◄── Gatherer.on_gathered ◄──────── one answer for all of it

A connection with one message in flight brings one with each read. What a call costs is then the cost of a message,
unless the calls of many connections are one. Messages are decoded and judged when they come, and enter the frame that
is sealed next; nothing is answered earlier or later for it. The rules:

- What is told of this door otherwise (`Guard.append`, a subscription, a departure) comes after what was gathered before
  it: whoever tells it calls `settle` first.
- Each message keeps the places of its own guard: what one was given is unknown in the name of another.
- Where the kernel refuses an append, nothing of it was taken: each session appends its own part again by itself, in
  order, and finds out what is wrong with it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, cast

from gatehouse.kernel.addresses.audience import Audience
from gatehouse.kernel.addresses.filters import parse_filter
from gatehouse.kernel.api import Heard, KernelPort, Message, Ports
from gatehouse.kernel.errors import KernelError, Stopping
from gatehouse.kernel.message import NOBODY, FirstLevel, Origin, Place, Stored

if TYPE_CHECKING:
    from types import TracebackType

    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.admission.places import GivenPlaces
    from gatehouse.gateways.contract import Link
    from gatehouse.transactions.api import HalfMessages


# --- what comes in, and time ------------------------------------------------------------------------------------------

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


# --- what waits to go out ---------------------------------------------------------------------------------------------

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


# --- messages of many sessions as one append --------------------------------------------------------------------------

# decision 220: the frame is the batch, not the connection's read


PART_MESSAGES: Final = 16              # more than that of one session costs little by itself
PART_BYTES: Final = 16 << 10           # as it came
GATHERED_MESSAGES: Final = 2_048       # of all sessions; places that are forgotten meanwhile are good for 4,096 others
GATHERED_BYTES: Final = 256 << 10      # the kernel does not see them yet, and must not count itself idle for long
STEP_PARTS: Final = 64                 # answered before the clock is read: 0.2 ms


class Gatherer(Protocol):
    """A session whose messages may be gathered."""

    def on_gathered(self, token: object, error: Exception | None) -> bool:
        """A part of this session is durable, or why not. True: `on_all_gathered` is to be called once all are told that
        are told now. Must not block or raise."""

    def on_all_gathered(self) -> None:
        """See `on_gathered`: parts of this session that are answered together may have one answer."""

    def on_stored(self, stored: list[Stored]) -> None:
        """Parts of this session whose positions were wanted are durable, or why not."""

    def enter_alone(self, guard: Guard, messages: list[Message], token: object, size_bytes: int) -> bool:
        """Append this part by itself: what it was gathered with is refused. It is answered by `on_stored`, or the
        session ends. True: its guard is to forget its places afterwards."""


class OneRead:
    """What one read of one session brought."""

    __slots__ = ("gatherer", "guard", "places", "positions", "size_bytes", "stop", "token")

    def __init__(self, guard: Guard, places: GivenPlaces, gatherer: Gatherer, token: object, stop: int,
                 size_bytes: int, positions: bool) -> None:
        self.guard = guard
        self.places = places           # while somebody holds them the numbers of them are known
        self.gatherer = gatherer
        self.token = token             # None: nobody wants an answer
        self.stop = stop               # index behind its last message
        self.size_bytes = size_bytes
        self.positions = positions     # are wanted

    def fail(self, fault: Exception) -> None:
        """Nothing of it was taken, by a mistake of the hub."""
        if self.positions:
            self.gatherer.on_stored([Stored(self.token, fault, 0, [])])
        elif self.token is not None and self.gatherer.on_gathered(self.token, fault):
            self.gatherer.on_all_gathered()


class Gathered:
    """Messages that enter as one append, and whose they are. The switchboard's `Submitter`."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.parts: list[OneRead] = []
        self.size_bytes: int = 0
        self.is_answered: bool = False
        self.is_mixed: bool = False            # places of several guards
        self.positions: bool = False           # are wanted by some

    def on_stored(self, stored: list[Stored]) -> None:
        """See `Submitter`: all at once. The switchboard takes the steps of `answer`."""
        for _ in self.answer(stored[0], None):
            pass

    def answer(self, stored: Stored, switchboard: Switchboard | None) -> Iterator[None]:
        """Tell each session of its part, in order."""
        error = stored.error
        count = start = 0
        finishing: list[Gatherer] = []
        for part in self.parts:
            begin, start = start, part.stop
            if part.token is None:
                continue
            count += 1
            if count % STEP_PARTS == 0:
                yield
            try:
                if part.positions:
                    part.gatherer.on_stored([Stored(part.token, error, stored.append_ms,
                                                    stored.positions[begin:part.stop])])
                    continue
                if part.gatherer.on_gathered(part.token, error):
                    finishing.append(part.gatherer)
            except Exception as fault:         # one session's bug must not cost the others their answers
                if switchboard is None:
                    raise
                switchboard.port.note_fault(fault)
        for gatherer in finishing:
            try:
                gatherer.on_all_gathered()
            except Exception as fault:
                if switchboard is None:
                    raise
                switchboard.port.note_fault(fault)


class Gathering:
    """What sessions of one door have published a few at a time, until it enters the kernel as one append."""

    def __init__(self, switchboard: Switchboard) -> None:
        self._switchboard: Switchboard = switchboard
        self._gathered: Gathered = Gathered()
        self._is_announced: bool = False               # to the kernel, for the next frame
        self.waits: bool = False
        """Whether something waits for the next frame."""

    @property
    def size_bytes(self) -> int:
        """The bytes of what waits."""
        return self._gathered.size_bytes

    def add(self, guard: Guard, places: GivenPlaces, messages: list[Message], gatherer: Gatherer, token: object,
            size_bytes: int, positions: bool) -> bool:
        """Take a part. False: it is too much, or the hub stops; it is to be appended by itself."""
        count = len(messages)
        if count > PART_MESSAGES or size_bytes > PART_BYTES:
            return False
        gathered = self._gathered
        parts = gathered.parts
        if not parts:
            if not self._is_announced:
                try:
                    self._switchboard.port.gather(self._enter, self._waiting)
                except Stopping:
                    return False
                self._is_announced = True
            self.waits = True
        elif parts[0].places is not places:
            gathered.is_mixed = True
        into = gathered.messages
        if count == 1:
            into.append(messages[0])
        else:
            into.extend(messages)
        parts.append(OneRead(guard, places, gatherer, token, len(into), size_bytes, positions))
        if positions:
            gathered.positions = True
        gathered.size_bytes += size_bytes
        if token is not None:
            gathered.is_answered = True
        if gathered.size_bytes >= GATHERED_BYTES or len(into) >= GATHERED_MESSAGES:
            self.settle()
        return True

    def _waiting(self) -> int:
        """How many parts are gathered."""
        return len(self._gathered.parts)

    def _enter(self) -> None:
        """The next frame is about to be sealed."""
        self._is_announced = False
        try:
            self.settle()
        except Exception as fault:
            self._switchboard.port.note_fault(fault)

    def settle(self) -> None:
        """Append what was gathered, now."""
        if not self.waits:
            return
        gathered, self._gathered = self._gathered, Gathered()
        self.waits = False
        switchboard, messages, parts = self._switchboard, gathered.messages, gathered.parts
        port = switchboard.port
        number = switchboard.submit(gathered, None) if gathered.is_answered else 0
        first = parts[0].guard
        if first.tells:                                  # decision 261
            port.speak_in_turn([part.stop for part in parts], [part.guard.origin for part in parts],
                               gathered.is_mixed or first.origin.traces)
        try:
            try:
                self._append(port, gathered, number)
            finally:
                if first.tells:
                    port.speaks(NOBODY)
        except KernelError:
            switchboard.take_back(number)
            self._append_each(gathered)
            return
        except Exception as fault:
            switchboard.take_back(number)
            port.note_fault(fault)
            for part in parts:
                part.fail(fault)
            return
        first.count_in(len(messages), gathered.size_bytes)

    @staticmethod
    def _append(port: KernelPort, gathered: Gathered, number: int) -> None:
        messages, parts = gathered.messages, gathered.parts
        if gathered.is_mixed:
            port.append_gathered([part.places.guard for part in parts], [part.stop for part in parts], messages, number,
                                 gathered.positions)
        else:
            port.append(parts[0].places.guard, messages, number, gathered.positions, None)

    def _append_each(self, gathered: Gathered) -> None:
        forgetting: list[Guard] = []
        start = 0
        for part in gathered.parts:
            messages = gathered.messages[start:part.stop]
            start = part.stop
            try:
                if part.gatherer.enter_alone(part.guard, messages, part.token, part.size_bytes):
                    forgetting.append(part.guard)
            except Exception as fault:
                self._switchboard.port.note_fault(fault)
                part.fail(fault)
        for guard in forgetting:
            guard.forget_places()


# --- sessions and filters ---------------------------------------------------------------------------------------------

STEP_MESSAGES: Final = 64              # counted for each who gets them, handed over before the clock is read
STEP_PAIRS: Final = 1024               # of stretch and session are made before that: 0.2 ms
STEP_OWNERS: Final = 16                # told of their submissions before that: 0.2 to 0.4 ms
HEARD_MAX: Final = 65_536              # addresses whose sessions are remembered; forgotten all at once beyond that
TOPICS_MIN: Final = 1_024              # partitions whose topics are remembered before it is looked which are gone


class HeardAddress:
    """An address that sessions of this door hear, as its messages are delivered. Theirs to read."""

    __slots__ = ("address", "first_level", "key", "partition", "partition_id", "sessions", "tenant", "topic", "version")

    def __init__(self, place: Place, first_level: FirstLevel) -> None:
        self.tenant = place.tenant
        self.address = place.address
        self.sessions: tuple[tuple[LiveListener, int], ...] = ()       # with the highest options of their filters
        self.first_level = first_level
        self.version = -1
        self.move(place)

    def move(self, place: Place) -> None:
        """The address's messages are stored at this place now."""
        self.topic = place.topic
        self.partition = place.partition               # number within the topic
        self.partition_id = place.partition_id
        self.key = place.key


Delivery = tuple[HeardAddress, "list[Message]", int, int]
"""(address, messages, offset of the first, options of the session's filter); the offsets are consecutive."""


class LiveListener(Protocol):
    """Who is told of new messages the moment they are durable."""

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        """What of a flush matches its filters, in append order: called once, or more often where much comes at once.
        Must not block or raise."""


class Submitter(Protocol):
    """Who told the kernel something and wants to know when it is durable."""

    def on_stored(self, stored: list[Stored]) -> None:
        """What was submitted, of one flush, in order. Must not block or raise."""


class Submission:
    """What is told within it; see `Switchboard.submission`. No generator: there is one for each that asks alone."""

    __slots__ = ("_switchboard", "_number", "_origin")

    def __init__(self, switchboard: Switchboard, number: int, origin: Origin) -> None:
        self._switchboard = switchboard
        self._number = number
        self._origin = origin

    def __enter__(self) -> int:
        if self._origin is not NOBODY:                   # decision 321
            self._switchboard.port.speaks(self._origin)
        return self._number

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
                 ) -> None:
        if isinstance(error, Exception):
            self._switchboard.take_back(self._number)
        if self._origin is not NOBODY:
            self._switchboard.port.speaks(NOBODY)


class Switchboard:
    """Tells the sessions of one door what its port says. `port` is for guards; what it has here it has by numbers of
    sessions' own."""

    def __init__(self, ports: Ports, transactions: HalfMessages | None, door: str = "") -> None:
        self.door = door                       # its name, for journeys
        self.port: KernelPort = ports.port(self)
        self.gathering: Gathering = Gathering(self)
        self._transactions = transactions      # None in tests that need none
        self._last = 0
        self._submitted: dict[int, tuple[Submitter, object]] = {}
        self._audiences: dict[str, Audience[LiveListener]] = {}
        self._counts: dict[tuple[str, str], int] = {}          # sessions with a filter, by tenant and filter
        self._heard: dict[tuple[str, str], HeardAddress] = {}
        self._topics: dict[int, tuple[str, str]] = {}          # tenant and topic of each partition that was heard
        self._topics_most = TOPICS_MIN
        self._judges: dict[LiveListener, Callable[[str], bool]] = {}
        self._judged_under: object = None

    @property
    def transactions(self) -> HalfMessages:
        """Half messages."""
        assert self._transactions is not None, "every hub has transactions"
        return self._transactions

    # ---- submissions

    def submit(self, owner: Submitter | None, token: object) -> int:
        """A number for what is told next; `take_back` where it was refused. 0: nobody wants an answer."""
        if owner is None:
            return 0
        self._last += 1
        self._submitted[self._last] = owner, token
        return self._last

    def take_back(self, number: int) -> None:
        """Nothing will be answered."""
        self._submitted.pop(number, None)

    def submission(self, owner: Submitter | None, token: object, origin: Origin = NOBODY) -> Submission:
        """A number under which `owner` is answered, unless what is told with it is refused. What is told meanwhile
        comes from `origin`, and nothing that is told later does."""
        return Submission(self, self.submit(owner, token), origin)

    def on_answers(self, answers: list[Stored]) -> Iterator[None]:
        """See `api.DoorSide`."""
        by_owner: dict[Submitter, list[Stored]] = {}
        submitted = self._submitted
        for answer in answers:
            owner, answer.token = submitted.pop(cast(int, answer.token))
            mine = by_owner.get(owner)
            if mine is None:
                by_owner[owner] = [answer]
            else:
                mine.append(answer)
        for count, (owner, stored) in enumerate(by_owner.items()):
            if count and count % STEP_OWNERS == 0:
                yield
            if isinstance(owner, Gathered):
                for _ in owner.answer(stored[0], self):
                    yield
                continue
            try:
                owner.on_stored(stored)
            except Exception as fault:         # one session's bug must not cost the others their answers
                self.port.note_fault(fault)

    # ---- live subscribers  # decision 146

    def subscribe(self, filter_text: str, listener: LiveListener, options: int, tenant: str) -> None:
        """Raises InvalidFilter. Subscribing again replaces the options."""
        pattern = parse_filter(filter_text)
        audience = self._audiences.get(tenant)
        if audience is None:
            audience = self._audiences[tenant] = Audience()
        if audience.add(pattern, listener, options):
            key = (tenant, filter_text)
            count = self._counts.get(key, 0)
            if not count:
                self.port.subscribe(filter_text, tenant)
            self._counts[key] = count + 1

    def unsubscribe(self, filter_text: str, listener: LiveListener, tenant: str) -> None:
        """Undo `subscribe`, where there was one. Raises InvalidFilter."""
        audience = self._audiences.get(tenant)
        if audience is None or not audience.remove(parse_filter(filter_text), listener):
            return
        key = (tenant, filter_text)
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
            self.port.unsubscribe(filter_text, tenant)

    # decision 331: an address is judged when it is looked up, no message is

    def judge(self, listener: LiveListener, may_hear: Callable[[str], bool], tenant: str) -> None:
        """From now on a listener is told of those addresses alone that it `may_hear`."""
        self._judges[listener] = may_hear
        if tenant in self._audiences:
            self._audiences[tenant].touch()

    def judge_no_more(self, listener: LiveListener) -> None:
        """The listener is told of nothing any more."""
        del self._judges[listener]

    def rights_changed(self, version: object) -> None:
        """Each address is judged again. `version`: of the rights, whose change more than one may tell."""
        if self._judges and version is not self._judged_under:
            self._judged_under = version
            for audience in self._audiences.values():
                audience.touch()

    def __len__(self) -> int:
        """How many filters sessions have."""
        return sum(self._counts.values())

    def topic_of(self, partition_id: int, tenant: str) -> str | None:
        """The topic of a partition of which something was delivered; for a while also where it is gone."""
        of, topic = self._topics.get(partition_id, ("", ""))
        return topic if of == tenant else None

    def hearers(self, place: Place) -> tuple[str, int]:
        """See `api.DoorSide`."""
        return self.door, len(self._hearing(place).sessions)

    def on_delivery(self, heard: list[Heard]) -> Iterator[None]:
        """See `api.DoorSide`."""
        by_session: dict[LiveListener, list[Delivery]] = {}
        count = pairs = 0
        heard_before = self._heard
        for place, messages, first_offset in heard:
            address = heard_before.get(place[:2])
            if address is None or address.version != address.first_level.version or address.partition_id != place[4]:
                address = self._hearing(place)
            count += len(messages)
            delivery: Delivery | None = None
            for session, options in address.sessions:
                if delivery is None or delivery[3] != options:
                    delivery = (address, messages, first_offset, options)
                mine = by_session.get(session)
                if mine is None:
                    by_session[session] = [delivery]
                else:
                    mine.append(delivery)
            pairs += 1 + len(address.sessions)
            if pairs >= STEP_PAIRS:
                pairs = 0
                yield
        step = max(1, STEP_MESSAGES // max(1, count))
        for number, (session, deliveries) in enumerate(by_session.items()):
            if number and not number % step:
                yield
            try:
                session.on_delivery(deliveries)
            except Exception as fault:         # one session's bug must not cost the others their messages
                self.port.note_fault(fault)
        if self.door and by_session:
            self.port.note_delivered(self.door, count)

    def _note_topic(self, place: Place) -> None:
        """Something was heard of this partition. Those of topics that are gone are forgotten now and then."""
        topics = self._topics
        if len(topics) >= self._topics_most:
            topics = self._topics = {partition_id: name for partition_id, name in topics.items()
                                     if self._is_there(partition_id, *name)}
            self._topics_most = max(TOPICS_MIN, 2 * len(topics))
        topics[place.partition_id] = place.tenant, place.topic

    def _is_there(self, partition_id: int, tenant: str, name: str) -> bool:
        topic = self.port.topic(name, tenant)
        return topic is not None and any(first <= partition_id < first + count for first, count in topic.ranges)

    def _hearing(self, place: Place) -> HeardAddress:
        """Who hears an address, looked up again where that may have changed."""
        key = (place.tenant, place.address)
        address = self._heard.get(key)
        if address is None:
            if len(self._heard) >= HEARD_MAX:
                self._heard.clear()
            audience = self._audiences.get(place.tenant)
            if audience is None:               # the last one has gone, and the kernel was told after this flush
                audience = self._audiences[place.tenant] = Audience()
            address = self._heard[key] = HeardAddress(place, audience.first_level(place.address.partition("/")[0]))
            self._note_topic(place)
        elif address.partition_id != place.partition_id:
            address.move(place)
            self._note_topic(place)
        if address.version != address.first_level.version:
            best: dict[LiveListener, int] = {}
            for session, options in self._audiences[place.tenant].match(place.address):
                if options >= best.get(session, options):
                    best[session] = options
            for session in self._judges.keys() & best.keys() if self._judges else ():
                if not self._judges[session](place.address):
                    del best[session]
            address.sessions = tuple(best.items())
            address.version = address.first_level.version
        return address
