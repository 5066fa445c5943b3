"""One link of a hub: greets the other hub, then both sides send and receive over that session. No socket, no clock.

    absent → greeting → open         the hub whose address is lower speaks first; a later greeting replaces a session
    open   → waiting  → greeting     something went wrong that may be over by itself; the wait grows up to a minute
    any    → stopped                 a gap, a lie, a refusal: until somebody says `resume`
    any    → paused                  somebody said so; is kept

A link whose greetings or sessions only fail has an open circuit: it greets when that lets it, and who greets it is
heard. One that people have opened is silent.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.circuit_breaker import CircuitBreaker, CircuitSettings
from gatehouse.kernel.errors import KernelError
from gatehouse.relay import letters
from gatehouse.relay.errors import (
    BadFrame,
    HistoryLost,
    HistoryParted,
    LinkRefused,
    OutOfTurn,
    PositionAhead,
    PositionGap,
    RelayError,
    WrongKey,
)
from gatehouse.relay.frames import SPOOL_FULL, Frame, Held, Spooled, Spools
from gatehouse.relay.histories import IN, OUT, Losses
from gatehouse.relay.incoming import WINDOW_BYTES, Allowed, Arrivals, Incoming, InCounts
from gatehouse.relay.letters import (
    MAX_POSITIONS,
    TAKES_AES,
    TAKES_HISTORIES,
    TAKES_NEXT_KEYS,
    TAKES_PACKED,
    TAKES_SPOOL_KEYS,
    Batches,
    Letter,
    NextKey,
    Pinned,
    Positions,
    Ready,
    SpoolKey,
    Stopped,
    StoredUntil,
)
from gatehouse.relay.origins import Marks
from gatehouse.relay.outgoing import Outgoing, Said
from gatehouse.relay.pacing import Rates
from gatehouse.relay.passing import Filters
from gatehouse.relay.picking import OutCounts
from gatehouse.relay.pins import Pin
from gatehouse.relay.sealing import (
    ANSWER,
    CONFIRM,
    GREET,
    SEALED,
    SEALED_AES,
    Greeting,
    Identity,
    Session,
    session_of,
)
from gatehouse.relay.settings import LinkSettings
from gatehouse.relay.spooling import Spooling, note_progress

if TYPE_CHECKING:
    from gatehouse.kernel.api import LinkPort

BREAK: Final = 0x17
"""Unsealed: this side has no session; the first to speak greets again, after its wait. Believed by nobody further."""

FIRST_WAIT_MS: Final = 500
LONGEST_WAIT_MS: Final = 60_000
GREETING_MS: Final = 10_000            # a greeting that is not answered by then begins anew
SILENCE_MS: Final = 30_000             # nothing stored of what was said, for so long
KEEP_MS: Final = 1_000                 # between two notes of how far the other hub is

CIRCUIT: Final = CircuitSettings(failures=8, open_ms=60_000, longest_open_ms=600_000)
"""Eight in a row take more than a minute."""

STOPS: Final = (PositionGap, PositionAhead, HistoryParted, HistoryLost, LinkRefused)
"""What people have to look at."""

NOT_ALLOWED: Final = "not_allowed"
"""How the meeting point calls a topic that may not pass."""

ABSENT: Final = "absent"
GREETING: Final = "greeting"
OPEN: Final = "open"
WAITING: Final = "waiting"
STOPPED: Final = "stopped"
PAUSED: Final = "paused"


@dataclass(slots=True)
class LinkCounts:
    """Since the start of the hub."""

    sessions: int = 0
    faults: int = 0
    tampered: int = 0
    bounced: dict[str, int] = field(default_factory=dict)
    out: OutCounts = field(default_factory=OutCounts)
    into: InCounts = field(default_factory=InCounts)


@dataclass(frozen=True, slots=True)
class Around:
    """What all links of a hub share."""

    kernel: LinkPort
    identity: Identity
    arrivals: Arrivals
    marks: Marks
    links: Mapping[str, object]
    chance: Callable[[int], bytes]
    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    carry: Callable[[bytes, str, bytes], None]
    frame: Callable[[Frame], None]
    """To the meeting point itself."""

    allowed: Callable[[LinkSettings], Allowed]
    rights: Callable[[], object]
    """Another object when what `allowed` lets pass may be another."""

    tell: Callable[[str, str, str], None]
    """(link, what happened, details), for the log and the audit topic."""

    rates: Rates
    """Of all links together."""

    max_payload_bytes: Callable[[], int]
    has_aes: bool
    """The processor does AES by itself, which is several times as fast as ChaCha20."""

    next_key: Callable[[], NextKey | None]
    """What is to follow this hub's key."""

    on_next_key: Callable[[str, NextKey], None]
    """(link, what is to follow the other hub's). Raises WrongKey, KernelError."""

    on_pinned: Callable[[str, bytes], None]


class Link:
    """One link of a hub: greets the other hub, then sends and receives over that session."""

    def __init__(self, settings: LinkSettings, pin: Pin, around: Around) -> None:
        self.settings = settings
        self.sends = Filters(settings.send)
        self.pin = pin
        self.peer = pin.peer
        self.counts = LinkCounts()
        self.circuit = CircuitBreaker(CIRCUIT)
        self.state = PAUSED if pin.paused else ABSENT
        self.fault = ""
        self._around = around
        self._speaks_first = around.identity.address < self.peer.address
        self._greeting: Greeting | None = None
        self._greeting_since_ms = 0
        self._session: Session | None = None
        self._outgoing: Outgoing | None = None
        self._incoming: Incoming | None = None
        self.lost_out, self.lost_in = (
            Losses(around.kernel, self.peer.hub, way, partial(around.tell, settings.name)) for way in (OUT, IN))
        self._rates = Rates(settings.bytes_per_second, settings.messages_per_second, around.rates)
        self._there = False
        self._goes_on = False                # people have said so, whatever `on_lost` says
        self.down_since_ms = around.now_ms() # without a session; 0: there is one
        self._wait_ms = FIRST_WAIT_MS
        self._greet_at_ms = 0
        self._opened_ms = 0
        self._their_takes = 0
        self._kept_ms = 0
        self.spooling = Spooling(settings, lambda: self.pin, around, self.lost_out, self._rates, self._new_incoming,
                                 self._say_spool_key, self._stop_told, self._note_tampering)

    # ---- who is there

    def on_presence(self, there: bool) -> None:
        """The meeting point says whether the other hub is connected."""
        self._there = there
        self._end_session()
        self.circuit.give_up_probe(self._around.now_ms())
        if self.state in (STOPPED, PAUSED):
            return
        self.state = ABSENT
        if there:
            self._greet_at_ms = 0
            self._greet()

    def on_disconnected(self) -> None:
        """The meeting point is gone."""
        self.spooling.on_disconnected()
        self.on_presence(False)

    def pause(self) -> None:
        self.state = PAUSED
        self._end_session()
        self.spooling.pause()

    def resume(self, go_on: bool = False) -> None:
        """Go on after a pause or a stop; `go_on`: behind what is lost, too, until the link stops again."""
        self.state, self.fault = ABSENT, ""
        self._goes_on = go_on
        if not self.circuit.by_hand:
            self.circuit.close()
        self._wait_ms = FIRST_WAIT_MS
        if self._there:
            self._greet()

    def on_circuit(self) -> None:
        """People have opened the circuit, or closed it."""
        if self.circuit.by_hand:
            self.spooling.pause()
        self.on_presence(self._there)

    def stop(self, reason: str) -> None:
        """Until somebody resumes it."""
        self._end_session()
        self.spooling.pause()
        self._goes_on = False
        self.state, self.fault = STOPPED, reason

    def _stop_told(self, reason: str) -> None:
        self.stop(reason)
        self._around.tell(self.settings.name, "stopped", reason)

    # ---- time

    def handle_tick(self, now_ms: int) -> None:
        """Called some times a second."""
        around = self._around
        if self._outgoing is not None:
            self._outgoing.handle_tick(now_ms, around.wall_ms())
        if now_ms - self._kept_ms >= KEEP_MS:
            self._kept_ms = now_ms
            self.keep()
            self.spooling.keep()
        self.spooling.handle_tick(now_ms, self.state == ABSENT and not self._there,
                                  self.state not in (STOPPED, PAUSED) and not self.circuit.by_hand)
        outgoing, session = self._outgoing, self._session
        if outgoing is not None and outgoing.waits_since_ms and now_ms - outgoing.waits_since_ms > SILENCE_MS:
            self._fail(OutOfTurn("the other hub has stored nothing for half a minute"))
        elif outgoing is not None and not outgoing.ready and now_ms - self._opened_ms > SILENCE_MS:
            self._fail(OutOfTurn("the other hub has not said for half a minute how far it is"))
        elif session is not None and session.used_up and self.state == OPEN and self._speaks_first:
            self._greet()
        elif self.state == GREETING and now_ms - self._greeting_since_ms > GREETING_MS:
            self._wait(now_ms, "the other hub does not answer")
        elif self.state == WAITING and now_ms >= self._greet_at_ms and self._there and self.circuit.would_pass(now_ms):
            self._greet()

    def keep(self) -> None:
        """How far the other hub is goes into our log. What of it does not is known again when that hub is ready."""
        if self._outgoing is not None:
            note_progress(self._outgoing, self._around.kernel)

    # ---- greeting

    def _greet(self, asked: bool = False) -> None:
        """Speak first, or ask the other hub to; as the circuit lets it, or because the other hub has `asked`."""
        now_ms = self._around.now_ms()
        if not self.circuit.may_pass(now_ms) and not asked:
            self.state = WAITING
            return
        self.state = GREETING
        self._greeting_since_ms = now_ms
        if self._speaks_first:
            self._greeting = self._new_greeting(True)
            self._carry(self._greeting.greet())
        else:
            self._carry(bytes((BREAK,)))

    def _new_greeting(self, first: bool) -> Greeting:
        around = self._around
        return Greeting(around.identity, around.kernel.hub, self.peer, around.chance(32), first)

    def _wait(self, now_ms: int, failed: str = "") -> None:
        """Greet again after a while; `failed`: why it came to that, where something did."""
        self.state = WAITING
        if failed:
            self.circuit.note(False, now_ms, reason=failed)
        else:
            self.circuit.give_up_probe(now_ms)
        self._greet_at_ms = now_ms + self._wait_ms
        self._wait_ms = min(2 * self._wait_ms, LONGEST_WAIT_MS)

    def _carry(self, payload: bytes) -> None:
        self._around.carry(self.peer.address, "", payload)

    # ---- what comes

    def on_carried(self, topic: str, payload: bytes) -> None:
        """A letter of the other hub, or what pretends to be one."""
        if self.state in (STOPPED, PAUSED) or self.circuit.by_hand or not payload:
            return
        try:
            self._hear(topic, payload)
        except (RelayError, KernelError) as error:
            self._fail(error)

    def _hear(self, topic: str, payload: bytes) -> None:
        kind = payload[0]
        if kind in (SEALED, SEALED_AES):
            session = self._session
            if session is not None and session_of(payload) == session.id:
                letter = letters.unpack(session.open(topic, payload), self._around.max_payload_bytes())
                self._on_letter(letters.decode(letter), max(len(letter), len(payload)), topic)
        elif kind == GREET and not self._speaks_first:
            self._greeting = self._new_greeting(False)
            answer = self._greeting.answer(payload)
            self._carry(answer)
        elif kind == ANSWER and self._greeting is not None and self._greeting.first:
            confirm, session = self._greeting.confirm(payload)
            self._greeting = None
            self._carry(confirm)
            self._open(session)
        elif kind == CONFIRM and self._greeting is not None and not self._greeting.first:
            session = self._greeting.confirmed(payload)
            self._greeting = None
            self._open(session)
        elif kind == BREAK and self._speaks_first and self._session is None and self.state != GREETING:
            # decision 310: who asks to be greeted is greeted
            soonest_ms = self._greeting_since_ms + FIRST_WAIT_MS
            if self._around.now_ms() >= soonest_ms:
                self._greet(asked=True)
            else:
                self._greet_at_ms = min(self._greet_at_ms, soonest_ms)
        elif kind == BREAK and self._speaks_first and self._session is not None:
            self._end_session()
            self._wait(self._around.now_ms())

    def _open(self, session: Session) -> None:
        self._end_session()
        around, counts = self._around, self.counts
        self._session = session
        self.state, self.fault, self.down_since_ms = OPEN, "", 0
        self._opened_ms = around.now_ms()
        counts.sessions += 1
        settings = dataclasses.replace(self.settings, on_lost="go_on") if self._goes_on else self.settings
        self._outgoing = Outgoing(around.kernel, settings, self.peer.hub, self.pin.begun_ms, around.marks,
                                  counts.out, self.lost_out, self._rates, self._say, self._fail,
                                  around.max_payload_bytes(), around.now_ms)
        self._outgoing.handle_tick(around.now_ms(), around.wall_ms())
        self._incoming = self._new_incoming(self._stored, self._fail)
        self._incoming.begin()

    def _new_incoming(self, answer: Callable[[int], None], fail: Callable[[RelayError | KernelError], None]
                      ) -> Incoming:
        around = self._around
        return Incoming(around.kernel, self.settings, self.peer.hub, around.arrivals, around.marks, around.links,
                        self.counts.into, self.lost_in, around.allowed(self.settings), around.rights, around.wall_ms,
                        answer, fail, self._say_ready)

    def _say_ready(self) -> None:
        """What arrived before is on the disk: say how far that is."""
        stored = self._around.arrivals.stored_of(self.peer.hub)
        for at in range(0, len(stored), MAX_POSITIONS):
            said = stored[at:at + MAX_POSITIONS]
            self._say("", Positions([(origin.uuid, origin.partition, arrived.next) for origin, arrived in said],
                                    [arrived.last for _, arrived in said]))
        takes = TAKES_PACKED | TAKES_NEXT_KEYS | TAKES_HISTORIES | (TAKES_SPOOL_KEYS if self.settings.spool else 0) \
            | (TAKES_AES if self._around.has_aes else 0)
        self._say("", Ready(WINDOW_BYTES, list(self.settings.receive), takes))
        self.spooling.on_ready_said()

    def _on_letter(self, letter: Letter, size_bytes: int, topic: str) -> None:
        outgoing, incoming = self._outgoing, self._incoming
        assert outgoing is not None and incoming is not None, "a session has both sides"
        match letter:
            case Batches():
                if letter.topic != topic:
                    raise WrongKey("a letter's envelope names another topic than the letter")
                incoming.on_batches(letter, size_bytes)
            case StoredUntil(number):
                self._wait_ms = FIRST_WAIT_MS
                outgoing.on_stored(number)
            case Positions():
                outgoing.on_positions(letter)
            case Ready():
                self.circuit.note(True, self._around.now_ms())
                assert self._session is not None, "a letter is of a session"
                self._session.seals_aes = self._around.has_aes and bool(letter.takes & TAKES_AES)
                outgoing.on_ready(letter)
                self.spooling.on_ready(letter)
                self._their_takes = letter.takes
                self.say_next_key()
            case NextKey():
                self._around.on_next_key(self.settings.name, letter)
            case Pinned(key):
                self._around.on_pinned(self.settings.name, key)
            case SpoolKey():
                self.spooling.on_key(letter)
            case Stopped(code, reason):
                self._stop_told(f"the other hub has stopped: {code}: {reason}")

    # ---- what goes

    def _say(self, topic: str, letter: Letter, packed: bool = False) -> Said:
        assert self._session is not None, "only an open link says something"
        encoded = letters.encode(letter)
        sealed = self._session.seal(topic, letters.pack(encoded) if packed else encoded)
        self._around.carry(self.peer.address, topic, sealed)
        return Said(len(sealed), max(len(encoded), len(sealed)))

    def _stored(self, number: int) -> None:
        self._wait_ms = FIRST_WAIT_MS
        if self._session is not None:
            self._say("", StoredUntil(number))

    # ---- what goes wrong

    def _fail(self, error: RelayError | KernelError) -> None:
        """End the session: for good where people have to look at it, else for a while."""
        self.counts.faults += 1
        self.counts.tampered += isinstance(error, WrongKey)
        name, text = self.settings.name, f"{error.code}: {error}"
        if isinstance(error, STOPS) and self._session is not None:
            self._say("", Stopped(error.code, str(error)))
            self._stop_told(text)
            return
        self._end_session()
        self._greeting = None
        self.fault = text
        if isinstance(error, (WrongKey, BadFrame, OutOfTurn)):
            self._around.tell(name, "faulted", text)
        self._wait(self._around.now_ms(), text)
        if not self._speaks_first:
            self._carry(bytes((BREAK,)))

    def on_bounced(self, code: str, reason: str) -> None:
        """The meeting point did not carry something: what was sealed with it is not whole."""
        self.counts.bounced[code] = self.counts.bounced.get(code, 0) + 1
        if code == SPOOL_FULL:
            self.spooling.on_full(f"{code}: {reason}")
            return
        self.fault = f"{code}: {reason}"
        if self.state in (STOPPED, PAUSED):
            return
        if code == NOT_ALLOWED:
            self._stop_told(self.fault)
            return
        if not self._there:
            return                           # it went while this was on its way, and its absence has ended the session
        self._end_session()
        self._wait(self._around.now_ms(), self.fault)

    def _end_session(self) -> None:
        self.keep()
        for side in (self._outgoing, self._incoming):
            if side is not None:
                side.close()
        self._session = self._outgoing = self._incoming = None
        self.down_since_ms = self.down_since_ms or self._around.now_ms()
        self._their_takes = 0
        self.spooling.on_session_ended()

    # ---- the spool

    def on_spool_frame(self, frame: Spools | Held | Spooled) -> None:
        """What the meeting point keeps for the other hub, has on its disk, or kept for this one."""
        match frame:
            case Spools():
                self.spooling.on_spools(frame)
            case Held():
                self.spooling.on_held(frame)
            case Spooled():
                self.spooling.on_spooled(frame)

    # ---- another key

    def say_next_key(self) -> None:
        """Say what will follow this hub's key, to who can pin it and has not."""
        said = self._around.next_key()
        if said is not None and self._session is not None and self._their_takes & TAKES_NEXT_KEYS \
                and self.pin.next_pinned != said.key.hex():
            self._say("", said)

    def say_pinned(self, key: bytes) -> None:
        """The key that will follow the other hub's is in our log."""
        if self._session is not None:
            self._say("", Pinned(key))

    def _say_spool_key(self, key: SpoolKey) -> None:
        if self._session is not None:
            self._say("", key)

    def _note_tampering(self, text: str) -> None:
        self.counts.tampered += 1
        self.fault = text
        self._around.tell(self.settings.name, "faulted", text)

    # ---- what is shown

    @property
    def outgoing(self) -> Outgoing | None:
        return self._outgoing
