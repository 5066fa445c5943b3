"""What of a link goes by the meeting point's spool, on the hub's side: out while the other hub is away, in when this
one comes back. No socket, no clock.

    open     both hubs say keys that letters may be sealed for, and what they take
    away     the sender reads on from what the other hub has, and has it kept; HELD moves SPOOLED, and never SENT
    back     the reader asks for what was kept, stores it as any letter, and says up to where it may go

A letter that leaves a gap is passed over here, and never stops the link: what is missing comes from the other hub
itself.
"""
# decision 248: a spool that is lost loses nothing
from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.state.state import Kind
from gatehouse.relay import letters
from gatehouse.relay.errors import BadFrame, HistoryParted, LinkRefused, OutOfTurn, PositionGap, RelayError, WrongKey
from gatehouse.relay.frames import Held, Spool, Spooled, Spools, Taken
from gatehouse.relay.incoming import Incoming
from gatehouse.relay.letters import TAKES_SPOOL_KEYS, Batches, Ready, SpoolKey
from gatehouse.relay.outgoing import Outgoing, Said
from gatehouse.relay.picking import OutCounts
from gatehouse.relay.spool_keys import (
    KEPT_MS,
    OURS,
    ROTATE_MS,
    THEIRS,
    KeptKey,
    Opener,
    Stretch,
    decode_key,
    key_record,
    number_of,
    public_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gatehouse.kernel.api import LinkPort
    from gatehouse.kernel.message import Stored
    from gatehouse.relay.histories import Losses
    from gatehouse.relay.link import Around
    from gatehouse.relay.pacing import Rates
    from gatehouse.relay.pins import Pin
    from gatehouse.relay.sealing import Peer
    from gatehouse.relay.settings import LinkSettings

WINDOW_BYTES: Final = 1 << 20          # of letters on their way to the spool, or from it
AGAIN_MS: Final = 60_000               # the spool was full, or something else went wrong
KEY_LOOK_MS: Final = 3_600_000


@dataclass(slots=True)
class SpoolCounts:
    """Since the start of the hub."""

    out: OutCounts = field(default_factory=OutCounts)
    taken: int = 0
    passed_over: dict[str, int] = field(default_factory=dict)
    """Letters that were worth nothing, by why."""


class Spooling:
    """What of one link goes by the meeting point's spool. `say` seals and sends a letter in the open session; `stop` is
    the link's."""

    def __init__(self, settings: LinkSettings, pin_now: Callable[[], Pin], around: Around, losses: Losses,
                 rates: Rates,
                 new_incoming: Callable[[Callable[[int], None], Callable[[RelayError | KernelError], None]], Incoming],
                 say_key: Callable[[SpoolKey], None], stop: Callable[[str], None], tampered: Callable[[str], None]
                 ) -> None:
        self.counts = SpoolCounts()
        self.fault = ""
        self._settings = settings
        self._peer = pin_now().peer
        self._pin = pin_now
        self._begun_ms = pin_now().begun_ms
        self._around = around
        self._losses = losses
        self._rates = rates
        self._new_incoming = new_incoming
        self._say_key = say_key
        self._stop = stop
        self._tampered = tampered
        self._offered: Spools | None = None
        self._outgoing: Outgoing | None = None
        self._stretch: Stretch | None = None
        self._base = 0                       # the number of the stretch's first letter
        self._said = 0
        self._out_again_ms = 0
        self._incoming: Incoming | None = None
        self._opener = Opener()
        self._taken = 0
        self._in_again_ms = 0
        self._session = 0                    # counts, so that a key that was durable too late is not said
        self._their_ready: Ready | None = None
        self._ready_said = False
        self._look_ms = 0

    # ---- keys

    def _keys(self, whose: int) -> list[KeptKey]:
        """What is kept of them, the newest last."""
        prefix = self._peer.hub + bytes((whose,))
        keys = [decode_key(key, value) for key, value in self._around.kernel.link_states(Kind.SPOOL_KEY, prefix)
                if key.startswith(prefix)]
        return sorted(keys, key=lambda kept: kept.made_ms)

    def on_ready(self, ready: Ready) -> None:
        """The other hub has said what it takes."""
        self._their_ready = ready
        if self._settings.spool and not ready.takes & TAKES_SPOOL_KEYS:
            self._forget(THEIRS, self._keys(THEIRS))
        self._say_where_both_want()

    def on_ready_said(self) -> None:
        """This hub has said what it takes."""
        self._ready_said = True
        self._say_where_both_want()

    def _say_where_both_want(self) -> None:
        """A key goes to who has heard what this hub takes."""
        ready = self._their_ready
        if self._ready_said and ready is not None and self._settings.spool and ready.takes & TAKES_SPOOL_KEYS:
            self._look_ms = self._around.now_ms()
            self._say_newest()

    def on_session_ended(self) -> None:
        self._session += 1
        self._their_ready, self._ready_said = None, False

    def _say_newest(self) -> None:
        around, wall_ms = self._around, self._around.wall_ms()
        ours = self._keys(OURS)
        newest = ours[-1] if ours else None
        if newest is not None and newest.filters == self._settings.receive and wall_ms - newest.made_ms < ROTATE_MS:
            self._say_key(SpoolKey(newest.number, public_of(newest.key), wall_ms))
            return
        made = KeptKey(int.from_bytes(around.chance(8), "big"), around.chance(32), wall_ms,
                       filters=self._settings.receive)
        session = self._session

        def durable() -> None:
            if session == self._session:
                self._say_key(SpoolKey(made.number, public_of(made.key), around.wall_ms()))

        try:
            around.kernel.append_with([], [key_record(self._peer.hub, OURS, made.number, made)], Then(durable))
        except KernelError:
            return                           # no key is said: nothing is kept for this hub until the next session
        self._forget(OURS, [kept for kept in ours if wall_ms - kept.made_ms > KEPT_MS])

    def on_key(self, said: SpoolKey) -> None:
        """The other hub's newest key."""
        ready = self._their_ready
        if not self._settings.spool or ready is None:
            raise OutOfTurn("the other hub says a key for letters that are kept, and this link keeps none")
        apart_ms = said.now_ms - self._around.wall_ms()
        kept = KeptKey(said.number, said.key, self._around.wall_ms(), apart_ms, ready.takes, tuple(ready.filters))
        old = [older for older in self._keys(THEIRS) if older.number != said.number]
        self._around.kernel.append_with([], [key_record(self._peer.hub, THEIRS, said.number, kept)], None)
        self._forget(THEIRS, old)

    def _forget(self, whose: int, keys: list[KeptKey]) -> None:
        if keys:
            try:
                self._around.kernel.append_with(
                    [], [key_record(self._peer.hub, whose, kept.number, None) for kept in keys], None)
            except KernelError:
                return                       # another time

    # ---- the meeting point

    def on_spools(self, offered: Spools) -> None:
        """What is kept for the other hub, if it is away."""
        if self._offered is not None and self._offered.spool != offered.spool:
            self._end_out()
        self._offered = offered

    def on_disconnected(self) -> None:
        self._offered = None
        self._end_out()
        self._end_in()

    def pause(self) -> None:
        """The link is paused, or has stopped."""
        self._end_out()
        self.pause_in()

    def handle_tick(self, now_ms: int, away: bool, working: bool) -> None:
        """Called some times a second; `away`: the other hub is; `working`: the link is not paused or stopped."""
        offered = self._offered
        if not self._settings.spool or offered is None or not working:
            return
        if self._their_ready is not None and now_ms - self._look_ms >= KEY_LOOK_MS:
            self._say_where_both_want()
        if self._incoming is None and now_ms >= self._in_again_ms:
            self._incoming = self._new_incoming(self._on_stored, self._in_failed)
            self._around.frame(Taken(self._peer.address, self._taken, WINDOW_BYTES))
        if not away:
            self._end_out()
        elif self._outgoing is not None:
            self._outgoing.handle_tick(now_ms, self._around.wall_ms())
        elif offered.max_bytes and now_ms >= self._out_again_ms:
            self._begin_out(offered, now_ms)

    # ---- out

    @property
    def outgoing(self) -> Outgoing | None:
        return self._outgoing

    def _begin_out(self, offered: Spools, now_ms: int) -> None:
        keys, around = self._keys(THEIRS), self._around
        if not keys or not self._settings.send:
            self._out_again_ms = now_ms + AGAIN_MS
            return
        theirs = keys[-1]
        try:
            self._stretch = Stretch(around.identity, theirs, around.chance(32))
        except WrongKey as error:
            self._out_failed(error)
            return
        self._base = self._said
        self._outgoing = outgoing = Outgoing(
            around.kernel, self._settings, self._peer.hub, self._begun_ms, around.marks, self.counts.out, self._losses,
            self._rates, self._say, self._out_failed, around.max_payload_bytes(),
            around.now_ms, offered.spool)
        outgoing.handle_tick(now_ms, around.wall_ms())
        outgoing.on_ready(Ready(WINDOW_BYTES, list(theirs.filters), theirs.takes))

    def _say(self, topic: str, letter: Batches, packed: bool = False) -> Said:
        assert self._stretch is not None, "a stretch is there as long as something is said in it"
        encoded = letters.encode(letter)
        sealed = self._stretch.seal(topic, letters.pack(encoded) if packed else encoded)
        self._around.frame(Spool(self._peer.address, self._said, topic, sealed))
        self._said += 1
        return Said(len(sealed), len(sealed))

    def on_held(self, held: Held) -> None:
        """The meeting point has it on its disk, it says: nothing depends on that."""
        if self._outgoing is not None and self._base <= held.number < self._said:
            self.fault = ""
            self._outgoing.on_stored(held.number - self._base)

    def on_full(self, reason: str) -> None:
        self._end_out()
        self.fault = reason
        self._out_again_ms = self._around.now_ms() + AGAIN_MS

    def _out_failed(self, error: RelayError) -> None:
        self.on_full(f"{error.code}: {error}")

    def keep(self) -> None:
        """How far the spool is goes into our log. What of it does not is kept twice."""
        if self._outgoing is not None:
            note_progress(self._outgoing, self._around.kernel)

    def _end_out(self) -> None:
        if self._outgoing is not None:
            self.keep()
            self._outgoing.close()
        self._outgoing = self._stretch = None

    # ---- in

    def on_spooled(self, spooled: Spooled) -> None:
        """A letter that was kept. Never raises."""
        incoming, number, size_bytes = self._incoming, spooled.number, len(spooled.payload)
        if incoming is None:
            return
        try:
            try:
                letter, apart_ms = self._open(spooled)
                if letter is None:
                    incoming.pass_over(number, size_bytes)
                else:
                    incoming.on_kept(letter, number, size_bytes, apart_ms)
            except PositionGap:
                self._pass_over(incoming, "gap", number, size_bytes)
            except HistoryParted:            # in an open session both sides look at it
                self._pass_over(incoming, "parted", number, size_bytes)
            except (WrongKey, BadFrame) as error:
                self._tampered(f"{error.code}: {error}")
                self._pass_over(incoming, "tampered", number, size_bytes)
        except LinkRefused as error:
            self._stop(f"{error.code}: {error}")
        except (RelayError, KernelError) as error:
            self._in_failed(error)

    def _pass_over(self, incoming: Incoming, why: str, number: int, size_bytes: int) -> None:
        self.counts.passed_over[why] = self.counts.passed_over.get(why, 0) + 1
        incoming.pass_over(number, size_bytes)

    def _open(self, spooled: Spooled) -> tuple[Batches | None, int]:
        """What a letter says; None where it was sealed for a key that is no more, or for other filters."""
        number = number_of(spooled.payload)
        key = self._peer.hub + bytes((OURS,)) + number.to_bytes(8, "big")
        value = self._around.kernel.link_state(Kind.SPOOL_KEY, key)
        ours = None if value is None else decode_key(key, value)
        if ours is None or ours.filters != self._settings.receive:
            why = "unknown_key" if ours is None else "other_filters"
            self.counts.passed_over[why] = self.counts.passed_over.get(why, 0) + 1
            return None, 0
        apart_ms, said = self._opener.open(spooled.topic, spooled.payload, ours,
                                            self._sender(spooled.peer))
        letter = letters.decode(letters.unpack(said, self._around.max_payload_bytes()))
        if not isinstance(letter, Batches) or letter.topic != spooled.topic:
            raise WrongKey("a letter that was kept is none of batches, or its envelope names another topic")
        return letter, apart_ms

    def _sender(self, address: bytes) -> Peer:
        """The other hub, by the key which it had as it sent a letter."""
        return next((peer for peer in self._pin().peers if peer.address == address), self._peer)

    def _on_stored(self, number: int) -> None:
        """That letter is on our disk: the meeting point may forget it."""
        if self._incoming is not None:
            self._taken = number + 1
            self.counts.taken += 1
            self._around.frame(Taken(self._peer.address, self._taken, WINDOW_BYTES))

    def _in_failed(self, error: RelayError | KernelError) -> None:
        self.fault = f"{error.code}: {error}"
        self._in_again_ms = self._around.now_ms() + AGAIN_MS
        self.pause_in()

    def pause_in(self) -> None:
        """Take nothing more for now."""
        if self._incoming is not None:
            self._end_in()
            self._around.frame(Taken(self._peer.address, 0, 0))

    def _end_in(self) -> None:
        if self._incoming is not None:
            self._incoming.close()
        self._incoming = None
        self._taken = 0

    def describe(self) -> dict[str, object]:
        """For people and programs."""
        offered, out = self._offered, self.counts.out
        return {"wanted": self._settings.spool, "offered_bytes": 0 if offered is None else offered.max_bytes,
                "keeping": self._outgoing is not None, "kept_messages": out.messages, "kept_bytes": out.bytes,
                "kept_letters": out.letters, "taken_letters": self.counts.taken,
                "passed_over": dict(self.counts.passed_over), "fault": self.fault}


def note_progress(outgoing: Outgoing, kernel: LinkPort) -> None:
    """How far the other end of an outgoing side is goes into our log, as far as that takes it. A frame that is refused
    gives it back, for the next time."""
    records = outgoing.take_dirty()
    if records:
        try:
            kernel.append_with([], records, Then(ignore, partial(outgoing.put_back, records)))
        except KernelError:
            return


def ignore() -> None:
    """Nothing is to be done once it is durable."""


class Then:
    """An owner that goes on once something is durable; where it could not be stored, `failed` is called instead."""

    def __init__(self, go_on: Callable[[], None], failed: Callable[[], None] = lambda: None) -> None:
        self._go_on = go_on
        self._failed = failed

    def on_stored(self, stored: list[Stored]) -> None:
        """See `kernel.message.Owner`."""
        if any(answer.error is not None for answer in stored):
            self._failed()
        else:
            self._go_on()
