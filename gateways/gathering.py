"""What sessions of one door publish a few at a time is gathered, and enters the kernel as one append. Hot.

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
# decision 220: the frame is the batch, not the connection's read
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from gatehouse.kernel.errors import KernelError, Stopping
from gatehouse.kernel.message import NOBODY, Stored

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.admission.places import GivenPlaces
    from gatehouse.gateways.switchboard import Switchboard
    from gatehouse.kernel.api import KernelPort, Message

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
    """One door's."""

    def __init__(self, switchboard: Switchboard) -> None:
        self._switchboard: Switchboard = switchboard
        self._gathered: Gathered = Gathered()
        self._is_announced: bool = False               # to the kernel, for the next frame
        self.waits: bool = False
        """Whether something waits for the next frame."""

    @property
    def size_bytes(self) -> int:
        """Of what waits."""
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
        first.charge_gathered(len(messages), gathered.size_bytes)

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
