"""All links of one hub, behind its one connection to the meeting point. No socket, no clock, no chance of its own.

    connected → HELLO … WELCOME → links greet the hubs that are there
    lost      → every link waits; whoever dials connects again

Invitations too: one is made here, and used by whoever was given it.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.state.state import Kind
from gatehouse.relay import frames
from gatehouse.relay.errors import BadFrame, BadInvitation, KeyNotPinned, RelayError, UnknownLink, WrongKey
from gatehouse.relay.frames import (
    Bounced,
    Carry,
    Challenge,
    Held,
    Hello,
    Presence,
    Proof,
    Refused,
    Spooled,
    Spools,
    Welcome,
)
from gatehouse.relay.incoming import Allowed, Arrivals
from gatehouse.relay.invitations import (
    ID_BYTES,
    JOIN,
    JOINED,
    SECRET_BYTES,
    Invitation,
    check_join,
    check_joined,
    decode_invitation,
    decode_join,
    encode_invitation,
    encode_join,
    encode_joined,
)
from gatehouse.relay.letters import NextKey
from gatehouse.relay.link import Around, Link
from gatehouse.relay.origins import Marks
from gatehouse.relay.owed import Owed
from gatehouse.relay.pacing import Rates
from gatehouse.relay.passing import Filters
from gatehouse.relay.pins import (
    Invited,
    Pin,
    decode_invited,
    decode_pin,
    invited_record,
    pin_record,
)
from gatehouse.relay.positions import arrived_record
from gatehouse.relay.sealing import Identity, verify, what_is_announced
from gatehouse.relay.settings import LinkSettings, RelaySection, renames_of
from gatehouse.relay.spool_keys import KeptKey, decode_key, key_record
from gatehouse.relay.spooling import Then

if TYPE_CHECKING:
    from gatehouse.kernel.api import LinkPort
    from gatehouse.kernel.circuit_breaker import CircuitBreaker

OFFLINE: Final = "offline"
PROVING: Final = "proving"
ONLINE: Final = "online"

IDENTITY: Final = 2                      # whose a kept key is: this hub's own, see `spools`
IN_USE: Final = 0
NEXT: Final = 1
MAX_INVITATIONS: Final = 1_000
CLOCKS_APART_MS: Final = 24 * 3_600_000  # of two hubs, at most, for an invitation to be used
MAX_SPOOLS: Final = 10_000               # of other hubs, that are remembered
JOIN_AGAIN_MS: Final = 5_000
PROVING_MS: Final = 20_000               # a meeting point that has not let this hub in by then is dialled anew
FORGET_MS: Final = 10_000                # between two looks at what is kept for links


class Wire(Protocol):
    """The connection to the meeting point."""

    def send(self, frame: bytes) -> None:
        """Queue a frame."""

    def close(self, reason: str) -> None: ...


class LinkCircuits(Protocol):
    """Where people see circuits."""

    def keep(self, link: str, circuit: CircuitBreaker, on_turned: Callable[[], None]) -> None: ...

    def forget(self, link: str) -> None: ...


class HubLinks:
    """All links of one hub, behind its one connection to the meeting point."""

    def __init__(self, *, kernel: LinkPort, section: RelaySection, settings: Iterable[LinkSettings], secret: bytes,
                 hub_name: str, chance: Callable[[int], bytes], now_ms: Callable[[], int], wall_ms: Callable[[], int],
                 allowed: Callable[[LinkSettings], Allowed], rights: Callable[[], object],
                 tell: Callable[[str, str, str], None], has_aes: bool) -> None:
        """`has_aes`: the processor does AES by itself."""
        self._kernel = kernel
        self._section = section
        self._hub_name = hub_name
        self._chance = chance
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._tell = tell
        self._allowed = allowed
        self._secret = secret
        seeds = {number: kept.key for number, kept in self._seeds()}
        self.identity = Identity(secret, seeds.get(IN_USE))
        self._next = None if NEXT not in seeds else Identity(secret, seeds[NEXT])
        self.settings = {link.name: link for link in settings}
        self._circuits: LinkCircuits | None = None
        self.links: dict[str, Link] = {}
        self.owed = Owed(kernel, self.links, section.owed_messages, now_ms)
        self.state = OFFLINE
        self.fault = ""
        self.connections = 0
        self._fault_was_said = False         # in this connection: why it ended is known
        self.refused = False                 # by the meeting point, in this connection
        self._wire: Wire | None = None
        self._proving_since_ms = 0
        self._nonce = b""
        self._there: set[bytes] = set()
        self._spools: dict[bytes, Spools] = {}
        self._max_frame_bytes = 1 << 16
        self._relay_name = ""
        self._join_at_ms = 0
        self._turn = 0
        self._forget_at_ms = 0
        self.arrivals = Arrivals(kernel)
        marks = Marks(secret)
        if self.settings:
            kernel.keep_retained_clocks(marks.stamp_in)
        self._around = Around(kernel, self.identity, self.arrivals, marks, self.links, chance, now_ms, wall_ms,
                              self._carry, self._frame, allowed, rights, tell,
                              Rates(section.bytes_per_second, section.messages_per_second),
                              lambda: self._max_frame_bytes - 1024, has_aes, self._next_key, self._on_next_key,
                              self._on_pinned)
        self._pins = {key.decode(): decode_pin(value) for key, value in kernel.link_states(Kind.LINK)}
        for name in self.settings:
            self._make(name)

    def _make(self, name: str) -> None:
        pin, settings = self._pins.get(name), self.settings.get(name)
        if pin is not None and settings is not None:
            self.links[name] = link = Link(settings, pin, self._around)
            if self._circuits is not None:
                self._circuits.keep(name, link.circuit, link.on_circuit)
            spools = self._spools.get(link.peer.address)
            if spools is not None:
                link.on_spool_frame(spools)
            if not pin.invitation:
                self.arrivals.direct[pin.peer.hub] = name

    def keep_circuits(self, circuits: LinkCircuits) -> None:
        """Show the circuits of all links there, from now on."""
        self._circuits = circuits
        for name, link in self.links.items():
            circuits.keep(name, link.circuit, link.on_circuit)

    # ---- the connection

    def connected(self, wire: Wire, relay_name: str) -> None:
        """A connection to the meeting point is there."""
        self._wire = wire
        self._fault_was_said = self.refused = False
        self._relay_name = relay_name
        self._nonce = self._chance(frames.NONCE_BYTES)
        self.state = PROVING
        self._proving_since_ms = self._now_ms()
        self._send(Hello(frames.MAJOR, frames.MINOR, self.identity.public, self._nonce, self._hub_name))

    def lost(self, reason: str) -> None:
        """It is gone, or could not be made."""
        self._wire = None
        self._there.clear()
        self._spools.clear()
        if not self._fault_was_said:
            self.fault = reason
        self.state, self._fault_was_said = OFFLINE, False
        for link in self.links.values():
            link.on_disconnected()

    def handle_frame(self, data: bytes) -> None:
        """One frame of the meeting point. Never raises."""
        try:
            self._on_frame(frames.decode(data))
        except RelayError as error:
            self.fault, self._fault_was_said = f"{error.code}: {error}", True
            if self._wire is not None:
                self._wire.close(self.fault)

    def _on_frame(self, frame: frames.Frame) -> None:
        match frame:
            case Carry(peer, topic, payload) if self.state == ONLINE:
                self._on_carried(peer, topic, payload)
            case Presence(peer, there) if self.state == ONLINE:
                (self._there.add if there else self._there.discard)(peer)
                if there:
                    self._follow(peer)
                for link in self._links_to(peer):
                    link.on_presence(there)
                self._join_at_ms = 0
            case Spools(peer) if self.state == ONLINE:
                if peer in self._spools or len(self._spools) < MAX_SPOOLS:
                    self._spools[peer] = frame
                for link in self._links_to(peer):
                    link.on_spool_frame(frame)
            case Held(peer) | Spooled(peer) if self.state == ONLINE:
                for link in self.links.values():
                    if any(pinned.address == peer for pinned in link.pin.peers):
                        link.on_spool_frame(frame)
            case Bounced(peer, code, reason):
                for link in self._links_to(peer):
                    link.on_bounced(code, reason)
            case Challenge(_, _, nonce, name) if self.state == PROVING:
                if name != self._relay_name:
                    raise WrongKey(f"the meeting point calls itself {name!r}, and {self._relay_name!r} was dialled")
                self._send(Proof(self.identity.sign(
                    frames.what_is_proved(self._nonce, nonce, name, self.identity.public))))
            case Welcome(max_frame_bytes) if self.state == PROVING:
                if max_frame_bytes < frames.LEAST_FRAME_BYTES:
                    raise BadFrame(f"the meeting point says that it carries {max_frame_bytes} bytes at most: what is "
                                   "larger would be lost")
                self._max_frame_bytes = max_frame_bytes
                self.state, self.fault = ONLINE, ""
                self.connections += 1
            case Refused(code, reason):
                self.fault, self._fault_was_said = f"the meeting point refuses this hub: {code}: {reason}", True
                self.refused = True
                self._tell("", "refused", self.fault)
            case _:
                raise BadFrame(f"a frame {type(frame).__name__} came out of turn")

    def _links_to(self, peer: bytes) -> list[Link]:
        return [link for link in self.links.values() if link.peer.address == peer]

    def _send(self, frame: frames.Frame) -> None:
        if self._wire is not None:
            self._wire.send(frames.encode(frame))

    def _carry(self, peer: bytes, topic: str, payload: bytes) -> None:
        if self.state == ONLINE:
            self._send(Carry(peer, topic, payload))

    def _frame(self, frame: frames.Frame) -> None:
        if self.state == ONLINE:
            self._send(frame)

    def _on_carried(self, peer: bytes, topic: str, payload: bytes) -> None:
        kind = payload[0] if payload else 0
        if kind in (JOIN, JOINED):
            try:
                if kind == JOIN:
                    self._on_join(peer, payload)
                else:
                    self._on_joined(peer, payload)
            except (RelayError, KernelError) as error:           # a word of that hub: the meeting point only carries it
                self._tell("", "join refused", f"{error.code}: {error}")
        else:
            for link in self._links_to(peer):
                link.on_carried(topic, payload)

    # ---- time

    def handle_tick(self) -> None:
        """Called some times a second."""
        now_ms = self._now_ms()
        links = list(self.links.values())
        self._turn += 1                      # another one is first each time: they share what may go out
        for at in range(len(links)):
            links[(at + self._turn) % len(links)].handle_tick(now_ms)
        if self.state == ONLINE and now_ms >= self._join_at_ms:
            self._join_at_ms = now_ms + JOIN_AGAIN_MS
            for pin in self._pins.values():
                if pin.invitation and pin.peer.address in self._there:
                    invitation = decode_invitation(pin.invitation)
                    self._carry(pin.peer.address, "", encode_join(invitation, self.identity, self._kernel.hub,
                                                                  self._hub_name))
        if self.state == PROVING and self._wire is not None and now_ms - self._proving_since_ms > PROVING_MS:
            self._wire.close("the meeting point does not let this hub in, and does not refuse it")
        if now_ms >= self._forget_at_ms:
            self._forget_at_ms = now_ms + FORGET_MS
            self.owed.forget_sent()

    def close(self) -> None:
        """The hub stops."""
        for link in self.links.values():
            link.on_disconnected()

    # ---- invitations

    def invite(self, link: str, lasts_ms: int) -> str:
        """The text that the other side is given. Raises UnknownLink, BadInvitation, Stopping."""
        if link not in self.settings:
            raise UnknownLink(f"there is no link {link!r} in the configuration: add it under [[relay.links]] first")
        kept = self._kernel.link_states(Kind.INVITATION)
        over = [invited_record(key, None) for key, value in kept if decode_invited(value).ends_ms <= self._wall_ms()]
        if len(kept) - len(over) >= MAX_INVITATIONS:
            raise BadInvitation(f"there are {MAX_INVITATIONS} invitations that nobody has used")
        invitation_id, secret = self._chance(ID_BYTES), self._chance(SECRET_BYTES)
        ends_ms = self._wall_ms() + lasts_ms
        self._kernel.append_with([], [*over, invited_record(invitation_id, Invited(link, secret.hex(), ends_ms))], None)
        self._tell(link, "invited", f"until {ends_ms}")
        return encode_invitation(Invitation(self._section.url, link, self._hub_name, self.identity.public.hex(),
                                            self._kernel.hub.hex(), invitation_id.hex(), secret.hex(), ends_ms))

    def join(self, text: str) -> str:
        """Use an invitation: pin who made it, and have ourselves pinned there. Returns the link's name. Raises
        BadInvitation, UnknownLink, Stopping."""
        invitation = decode_invitation(text)
        name = invitation.link
        if invitation.ends_ms + CLOCKS_APART_MS <= self._wall_ms():      # the hub that made it looks at its own clock
            raise BadInvitation("this invitation is over: ask for another")
        if bytes.fromhex(invitation.hub) == self._kernel.hub:
            raise BadInvitation("this invitation is of this hub: it is for the other one")
        if invitation.url != self._section.url:
            raise BadInvitation(f"this invitation is for the meeting point {invitation.url}, and this hub dials "
                                f"{self._section.url or 'none'} (relay.url)")
        if name not in self.settings:
            raise UnknownLink(f"there is no link {name!r} in the configuration: add it under [[relay.links]] first")
        self._pin(name, Pin(invitation.key, invitation.hub, invitation.name, self._wall_ms(), invitation=text.strip()))
        self._join_at_ms = 0
        return name

    def _pin(self, name: str, pin: Pin, also: tuple[StateRecord, ...] = ()) -> None:
        """Raises BadInvitation where the name is another hub's, or the hub another link's."""
        for other, there in self._pins.items():
            if (other == name) != (there.hub == pin.hub) or other == name and there.key != pin.key:
                raise BadInvitation(f"the link {other!r} is one with another hub, or this hub is at its other end: "
                                    f"take it away first (`gatehouse relay unlink {other}`)")
        self._kernel.append_with([], [pin_record(name, pin), *also], None)
        old = self.links.pop(name, None)
        if old is not None:
            old.on_disconnected()
        self._pins[name] = pin
        self._make(name)
        self._tell(name, "pinned", f"hub {pin.hub}, key {pin.key}")
        if name in self.links and pin.peer.address in self._there and not pin.invitation:
            self.links[name].on_presence(True)

    def _on_join(self, peer: bytes, letter: bytes) -> None:
        """Raises RelayError, KernelError."""
        join = decode_join(letter)
        value = self._kernel.link_state(Kind.INVITATION, join.id)
        pinned = next((pin for pin in self._pins.values() if pin.key == join.key.hex()), None)
        if frames.address_of_key(join.key) != peer:
            raise BadInvitation("the meeting point knows whoever wants to join by another key")
        if value is not None:
            invited = decode_invited(value)
            check_join(join, bytes.fromhex(invited.secret), self.identity.public)
            if invited.ends_ms <= self._wall_ms():
                raise BadInvitation("this invitation is over")
            self._pin(invited.link, Pin(join.key.hex(), join.hub.hex(), join.name, self._wall_ms()),
                      (invited_record(join.id, None),))
        elif pinned is None:
            raise BadInvitation("there is no such invitation, or it was used")
        self._carry(peer, "", encode_joined(join.id, self.identity, join.key))

    def _on_joined(self, peer: bytes, letter: bytes) -> None:
        """Raises RelayError, KernelError."""
        for name, pin in self._pins.items():
            if pin.invitation and pin.peer.address == peer:
                invitation = decode_invitation(pin.invitation)
                if check_joined(letter, bytes.fromhex(pin.key), self.identity.public).hex() == invitation.id:
                    self._keep(name, dataclasses.replace(pin, invitation=""))
                    if name in self.links:
                        self.arrivals.direct[pin.peer.hub] = name
                        self.links[name].on_presence(True)
                return

    # ---- another key

    # decision 249: a key is followed by another that both sides pinned before it is used
    def _seeds(self) -> list[tuple[int, KeptKey]]:
        prefix = self._kernel.hub + bytes((IDENTITY,))
        return [(kept.number, kept) for kept in
                [decode_key(key, value) for key, value in self._kernel.link_states(Kind.SPOOL_KEY, prefix)
                 if key.startswith(prefix)]]

    def _next_key(self) -> NextKey | None:
        if self._next is None:
            return None
        return NextKey(self._next.public, self._next.sign(
            what_is_announced(self._kernel.hub, self.identity.public, self._next.public)))

    def rotate(self) -> dict[str, Any]:
        """Make the key that is to follow this hub's, unless there is one, and have the other hubs pin it. Raises
        Stopping."""
        if self._next is None:
            seed = self._chance(32)
            made = Identity(self._secret, seed)
            self._kernel.append_with([], [key_record(self._kernel.hub, IDENTITY, NEXT,
                                                     KeptKey(NEXT, seed, self._wall_ms()))],
                                     Then(self._say_next, partial(self._unmake, made)))
            self._next = made
            self._tell("", "key made", self._next.public.hex())
        return {"key": self.identity.public.hex(), "next_key": self._next.public.hex(), "waits_for": self._untold()}

    def _say_next(self) -> None:
        for link in self.links.values():
            link.say_next_key()

    def _unmake(self, made: Identity) -> None:
        """A next key could not be stored: there is none."""
        if self._next is made:
            self._next = None
            self._tell("", "key not made", made.public.hex())

    def _untold(self) -> list[str]:
        """Links whose other hub has not pinned what is to follow our key."""
        return [] if self._next is None else sorted(
            name for name, pin in self._pins.items() if pin.next_pinned != self._next.public.hex())

    def use_next_key(self) -> dict[str, Any]:
        """Be known by it from now on: every link begins anew. Raises KeyNotPinned, Stopping."""
        made, waits_for = self._next, self._untold()
        if made is None:
            raise KeyNotPinned("there is no next key: `gatehouse relay rotate` makes one")
        if waits_for:
            raise KeyNotPinned(f"the other hub of {', '.join(waits_for)} has not pinned the next key yet: it has to be "
                               "connected once, or be unlinked")
        seed = dict(self._seeds())[NEXT]
        self._kernel.append_with([], [key_record(self._kernel.hub, IDENTITY, IN_USE, seed._replace(number=IN_USE)),
                                      key_record(self._kernel.hub, IDENTITY, NEXT, None)],
                                 Then(partial(self._use, made)))
        return {"key": made.public.hex(), "next_key": "", "waits_for": []}

    def _use(self, made: Identity) -> None:
        self.identity, self._next = made, None
        self._around = dataclasses.replace(self._around, identity=made)
        for name, link in list(self.links.items()):
            link.on_disconnected()
            self._make(name)
        self._tell("", "key in use", made.public.hex())
        if self._wire is not None:
            self._wire.close("this hub is known by another key now")

    def _on_next_key(self, name: str, said: NextKey) -> None:
        """Raises WrongKey, KernelError."""
        pin = self._pins[name]
        verify(said.key, said.signature,
               what_is_announced(bytes.fromhex(pin.hub), bytes.fromhex(pin.key), said.key))
        new = dataclasses.replace(pin, next_key=said.key.hex())
        self._kernel.append_with([], [pin_record(name, new)], Then(partial(self._say_pinned, name, new, pin.next_key),
                                                                     partial(self._unpin_next, name, pin.next_key)))
        self._pins[name] = self.links[name].pin = new

    def _say_pinned(self, name: str, pin: Pin, before: str) -> None:
        if name in self.links:
            self.links[name].say_pinned(bytes.fromhex(pin.next_key))
        if pin.next_key != before:
            self._tell(name, "next key pinned", pin.next_key)

    def _unpin_next(self, name: str, before: str) -> None:
        """What follows the other hub's key could not be stored: it is not pinned, and is said again."""
        if name in self._pins:
            self._pins[name] = pin = dataclasses.replace(self._pins[name], next_key=before)
            if name in self.links:
                self.links[name].pin = pin

    def _on_pinned(self, name: str, key: bytes) -> None:
        self._keep(name, dataclasses.replace(self._pins[name], next_pinned=key.hex()))

    def _follow(self, peer: bytes) -> None:
        """A hub that is here by the key which was to follow its own."""
        for name, pin in list(self._pins.items()):
            if pin.next_key and frames.address_of_key(bytes.fromhex(pin.next_key)) == peer:
                self._keep(name, dataclasses.replace(pin, key=pin.next_key, next_key="", old_key=pin.key))
                link = self.links.get(name)
                if link is not None:
                    link.on_disconnected()
                    self._make(name)
                self._tell(name, "key followed", f"hub {pin.hub}, key {pin.next_key}")

    # ---- what people say

    def unlink(self, name: str) -> None:
        """Forget who is at the other end; its credentials are worth nothing from now on. Raises UnknownLink."""
        self._require_pin(name)
        self._kernel.append_with([], [pin_record(name, None)], None)
        pin = self._pins.pop(name)
        self.arrivals.direct.pop(pin.peer.hub, None)
        link = self.links.pop(name, None)
        if link is not None:
            link.on_disconnected()
        if self._circuits is not None:
            self._circuits.forget(name)
        self._tell(name, "unlinked", f"hub {pin.hub}")

    def pause(self, name: str) -> None:
        """Raises UnknownLink."""
        self._keep(name, dataclasses.replace(self._require_pin(name), paused=True))
        self._require(name).pause()
        self._tell(name, "paused", "")

    def resume(self, name: str, go_on: bool = False) -> None:
        """Go on after a pause, or after a stop; `go_on`: behind what is lost, too. Raises UnknownLink."""
        self._keep(name, dataclasses.replace(self._require_pin(name), paused=False))
        self._require(name).resume(go_on)
        self._tell(name, "resumed", "behind what is lost" if go_on else "")

    def rewind(self, name: str, topic: str, offset: int | None = None) -> int:
        """Have what came of a topic of the other hub once more, from an offset on, or from the first that it has;
        returns of how many partitions. Raises UnknownLink, and what `append_with` does."""
        link = self._require(name)
        rewound = [(origin, arrived._replace(next=min(arrived.next, offset or 0), last=None))
                   for origin, arrived in self.arrivals.stored_of(link.peer.hub) if arrived.topic == topic]
        if not rewound:
            raise UnknownLink(f"nothing of a topic {topic!r} has come over the link {name!r}")
        self._kernel.append_with([], [arrived_record(*of) for of in rewound],
                                 Then(partial(self._rewound, link), partial(self._not_rewound, link)))
        link.on_presence(False)
        for origin, arrived in rewound:
            self.arrivals.advance(origin, arrived)
        self._tell(name, "rewound", f"{topic} to {offset or 0}")
        return len(rewound)

    def _rewound(self, link: Link) -> None:
        if link.peer.address in self._there:
            link.on_presence(True)

    def _not_rewound(self, link: Link) -> None:
        """It could not be stored, and nothing that was on its way was."""
        self.arrivals.forget_pending()
        self._rewound(link)

    def _keep(self, name: str, pin: Pin) -> None:
        self._kernel.append_with([], [pin_record(name, pin)], None)
        self._pins[name] = pin
        if name in self.links:
            self.links[name].pin = pin

    def _require(self, name: str) -> Link:
        link = self.links.get(name)
        if link is None:
            raise UnknownLink(f"there is no link {name!r} with another hub: see `gatehouse relay invite`")
        return link

    def _require_pin(self, name: str) -> Pin:
        pin = self._pins.get(name)
        if pin is None:
            raise UnknownLink(f"there is no link {name!r} with another hub: see `gatehouse relay invite`")
        return pin

    # ---- what is shown

    def describe(self) -> dict[str, Any]:
        """For people and programs."""
        return {"key": self.identity.public.hex(),
                "next_key": "" if self._next is None else self._next.public.hex(), "url": self._section.url,
                "state": self.state, "fault": self.fault,
                "connections": self.connections,
                "links": [self.describe_link(name) for name in sorted(self.settings.keys() | self._pins.keys())]}

    def describe_link(self, name: str) -> dict[str, Any]:
        """One of them. Raises UnknownLink."""
        link, pin = self.links.get(name), self._pins.get(name)
        if link is None:
            if pin is None and name not in self.settings:
                raise UnknownLink(f"there is no link {name!r}")
            state = "not configured" if pin is not None else "not joined"
            return {"name": name, "state": state, "peer": pin.name if pin is not None else None,
                    "hub": pin.hub if pin is not None else None}
        out, into, fault = link.counts.out, link.counts.into, link.fault
        if link.pin.invitation and decode_invitation(link.pin.invitation).ends_ms <= self._wall_ms():
            fault = "the invitation is over by the clock of this hub, and was not used: ask for another"
        messages, lag_ms = self.owed.lag(link)
        return {
            "name": name, "state": "joining" if link.pin.invitation else link.state, "fault": fault,
            "peer": link.pin.name, "hub": link.pin.hub, "key": link.pin.key, "sessions": link.counts.sessions,
            "send": list(link.settings.send), "receive": list(link.settings.receive),
            "lag": {"messages": messages, "ms": lag_ms,
                    "bytes_on_their_way": link.outgoing.unstored_bytes if link.outgoing is not None else 0},
            "sent": {"messages": out.messages, "bytes": out.bytes, "not_matched": out.not_matched,
                     "not_forwarded": out.not_forwarded, "lost": out.lost_messages,
                     "lost_ranges": [dataclasses.asdict(lost) for lost in link.lost_out.listed]},
            "received": {"messages": into.messages, "bytes": into.bytes, "repeated": into.repeated,
                         "not_allowed": into.not_allowed, "loops": into.loops, "other_way": into.other_way,
                         "parked": into.parked, "lost": into.lost_messages, "refused": dict(into.reasons),
                         "lost_ranges": [dataclasses.asdict(lost) for lost in link.lost_in.listed]},
            "spool": link.spooling.describe(),
            "bounced": dict(link.counts.bounced), "tampered": link.counts.tampered}

    def explain(self, name: str, address: str) -> dict[str, Any]:
        """What a link does with an address, either way; nothing is sent. Raises UnknownLink."""
        settings = self.settings.get(name)
        if settings is None:
            raise UnknownLink(f"there is no link {name!r} in the configuration")
        link = self.links.get(name)
        outgoing = None if link is None else link.outgoing
        taken = None if outgoing is None or not outgoing.ready else outgoing.wants(address)
        received = Filters(settings.receive).match(address)
        return {"address": address, "state": self.describe_link(name)["state"],
                "out": {"sent": Filters(settings.send).match(address), "taken_there": taken},
                "in": {"received": received,
                       "address_here": renames_of(settings.rename).rename(address) if received else None}}
