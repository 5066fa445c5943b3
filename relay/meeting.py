"""The meeting point: lets hubs in that its file names, and carries letters between two that may talk. No socket.

It owes nothing: one that is killed and replaced by another with the same file is missed for as long as it takes hubs
to dial again. Where the file says so it keeps letters for hubs that are away (`spools.py`). It sees who talks to whom
about which topic, and how much; what is said is sealed. One hub never waits for another: what a hub does not take in
time is bounced to its sender, whose link begins anew.
"""
# decision 209: the meeting point owes nothing, and knows hubs by their keys
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from gatehouse.relay import frames
from gatehouse.relay.errors import BadFrame, RelayError, WrongKey
from gatehouse.relay.frames import (
    Bounced,
    Carry,
    Challenge,
    Hello,
    Presence,
    Proof,
    Refused,
    Spool,
    Taken,
    Welcome,
    address_of_key,
)
from gatehouse.relay.pacing import Pacing, Waiting, Way
from gatehouse.relay.sealing import verify
from gatehouse.relay.settings import MeetingSection, MetHub, MetLink
from gatehouse.relay.spools import Shelves, SpoolRoom

GREETING_MS: Final = 10_000            # a hub that has not proved itself by then is let go


class Member(Protocol):
    """The connection of one hub."""

    def send(self, frame: bytes) -> None:
        """Queue a frame."""

    @property
    def waiting_bytes(self) -> int:
        """Queued, and not taken by the hub yet."""

    def close(self, reason: str) -> None: ...


@dataclass(slots=True)
class MeetingCounts:
    """What a meeting point has carried, bounced and refused since its start."""

    carried: int = 0
    carried_bytes: int = 0
    bounced: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


class Visit:
    """One connection, from its first byte."""

    __slots__ = ("address", "began_ms", "member", "minor", "name", "_ended", "_hello", "_meeting", "_nonce")

    def __init__(self, meeting: Meeting, member: Member, nonce: bytes, now_ms: int) -> None:
        self.member = member
        self.began_ms = now_ms
        self.address = b""
        self.name = ""
        self.minor = 0
        self._ended = False
        self._meeting = meeting
        self._nonce = nonce
        self._hello: Hello | None = None

    def handle_frame(self, data: bytes) -> None:
        """One frame of the hub. Never raises."""
        if self._ended:
            return                           # it was refused, and what it had sent before it heard is worth nothing
        try:
            frame = frames.decode(data)
            if self.address:
                if isinstance(frame, Carry):
                    self._meeting.carry(self, frame)
                elif isinstance(frame, Spool):
                    self._meeting.keep(self, frame)
                elif isinstance(frame, Taken):
                    self._meeting.spools.take(self, frame)
                else:
                    raise BadFrame("a hub that was let in sends nothing but letters")
            else:
                self._greet(frame)
        except RelayError as error:
            self.refuse(error.code, str(error))

    def _greet(self, frame: frames.Frame) -> None:
        settings = self._meeting.section
        if isinstance(frame, Hello) and self._hello is None:
            self._hello, self.minor = frame, frame.minor
            self.member.send(frames.encode(Challenge(frames.MAJOR, frames.MINOR, self._nonce, settings.name)))
        elif isinstance(frame, Proof) and self._hello is not None:
            hello = self._hello
            verify(hello.key, frame.signature,
                   frames.what_is_proved(hello.nonce, self._nonce, settings.name, hello.key))
            name = self._meeting.name_of(hello.key)
            if name is None:
                raise WrongKey(f"the meeting point does not know this hub ({hello.name!r}); its key is "
                               f"{hello.key.hex()}")
            self.address, self.name = address_of_key(hello.key), name
            self._hello, self._nonce = None, b""         # of no more use, and there are many hubs
            self.member.send(frames.encode(Welcome(settings.max_frame_bytes)))
            self._meeting.enter(self)
        else:
            raise BadFrame("a frame came out of turn")

    def end_unless_proved(self) -> None:
        """It has had time enough."""
        if not self.address:
            self.refuse("too_slow", "nobody has proved who this is")

    def refuse(self, code: str, reason: str) -> None:
        """Say why, and hang up."""
        counts = self._meeting.counts.refused
        counts[code] = counts.get(code, 0) + 1
        self._ended = True
        self._meeting.leave(self)
        self.member.send(frames.encode(Refused(code, reason)))
        self.member.close(f"{code}: {reason}")

    def handle_closed(self) -> None:
        """The connection is gone."""
        self._meeting.leave(self)


class Meeting:
    """Lets hubs in, and carries letters between two that may talk. `chance` gives fresh random bytes. Raises OSError
    where what it keeps cannot be read."""

    def __init__(self, section: MeetingSection, hubs: tuple[MetHub, ...], links: tuple[MetLink, ...],
                 chance: Callable[[int], bytes], tell: Callable[[str], None], wall_ms: Callable[[], int],
                 shelves: Shelves | None = None) -> None:
        self.section = section
        self.counts = MeetingCounts()
        self._chance = chance
        self._tell = tell
        self._visits: dict[bytes, Visit] = {}
        self._names: dict[bytes, str] = {}
        self._links: dict[frozenset[str], tuple[str, ...]] = {}
        self._addresses: dict[bytes, str] = {}
        self._wall_ms = wall_ms
        self.pacing = Pacing(section.bytes_per_second)
        self.spools = SpoolRoom(shelves, wall_ms, self._visits_of, tell)
        self._configure(hubs, links)

    def _visits_of(self, name: str) -> list[Visit]:
        return [visit for visit in self._visits.values() if visit.name == name]

    def _configure(self, hubs: tuple[MetHub, ...], links: tuple[MetLink, ...]) -> None:
        """Raises OSError, with nothing changed."""
        self.spools.configure(hubs, links)
        self._names = {bytes.fromhex(key): hub.name for hub in hubs for key in hub.keys}
        self._links = {}
        limits: dict[frozenset[str], int] = {}
        for link in links:
            pair = frozenset(link.hubs)
            self._links[pair] = (*self._links.get(pair, ()), *link.topics)
            limits[pair] = max(limits.get(pair, 0), link.bytes_per_second)
        self.pacing.configure(limits)
        self._addresses = {address_of_key(key): name for key, name in self._names.items()}

    def configure(self, hubs: tuple[MetHub, ...], links: tuple[MetLink, ...]) -> None:
        """What the file says from now on: who is no longer in it is let go at once. Raises OSError, with nothing
        changed."""
        before = {visit: self._neighbours(visit) for visit in self._visits.values()}
        self._configure(hubs, links)
        for address, visit in list(self._visits.items()):
            if self._addresses.get(address) != visit.name:
                visit.refuse("withdrawn", "the meeting point does not know this hub any more")
        for visit, neighbours in before.items():
            now = self._neighbours(visit) if visit in self._visits.values() else []
            for other, there in [(other, False) for other in neighbours if other not in now] + \
                    [(other, True) for other in now if other not in neighbours]:
                visit.member.send(frames.encode(Presence(other.address, there)))

    def visit(self, member: Member, now_ms: int) -> Visit:
        """Somebody has connected."""
        return Visit(self, member, self._chance(frames.NONCE_BYTES), now_ms)

    def name_of(self, key: bytes) -> str | None:
        return self._names.get(key)

    def __len__(self) -> int:
        return len(self._visits)

    def names(self) -> list[str]:
        """Hubs that are here."""
        return sorted(visit.name for visit in self._visits.values())

    def enter(self, visit: Visit) -> None:
        """It has proved who it is. An older connection of the same hub is let go."""
        older = self._visits.get(visit.address)
        if older is None and len(self._visits) >= self.section.max_hubs:
            visit.address = b""
            visit.refuse("full", "as many hubs are here as may be")
            return
        self._visits[visit.address] = visit
        if older is not None:
            self.pacing.forget(visit.address)
            older.refuse("replaced", "this hub has connected again")
        self._tell(f"hub {visit.name} is here")
        for other in self._neighbours(visit):
            other.member.send(frames.encode(Presence(visit.address, True)))
            visit.member.send(frames.encode(Presence(other.address, True)))
        self.spools.enter(visit)

    def leave(self, visit: Visit) -> None:
        """Its connection is gone."""
        if not visit.address or self._visits.get(visit.address) is not visit:
            return
        del self._visits[visit.address]
        self._tell(f"hub {visit.name} is gone")
        self.spools.leave(visit)
        self.pacing.forget(visit.address)
        for other in self._neighbours(visit):
            other.member.send(frames.encode(Presence(visit.address, False)))

    def _neighbours(self, visit: Visit) -> list[Visit]:
        return [other for other in self._visits.values()
                if other is not visit and frozenset((visit.name, other.name)) in self._links]

    def carry(self, visit: Visit, letter: Carry) -> None:
        """From one hub to another, if the file lets it."""
        other = self._visits.get(letter.peer)
        pair = frozenset((visit.name, "" if other is None else other.name))
        topics = None if other is None else self._links.get(pair)
        size_bytes = len(letter.payload)
        if other is None or topics is None:
            self._bounce(visit, letter, "not_here", "there is no such hub here that this one may talk to")
        elif letter.topic and not allows(topics, letter.topic):
            self._bounce(visit, letter, "not_allowed", f"the topic {letter.topic!r} may not pass here")
        elif other.member.waiting_bytes + self.pacing.waiting_bytes(letter.peer) + size_bytes \
                > self.section.waiting_bytes:
            self._bounce(visit, letter, "too_slow", "the other hub does not take what waits for it here")
        else:
            self.counts.carried += 1
            self.counts.carried_bytes += size_bytes
            frame = frames.encode(Carry(visit.address, letter.topic, letter.payload))
            self.pacing.take(Way(visit.address, letter.peer),
                             Waiting(pair, size_bytes, partial(other.member.send, frame)), self._wall_ms())

    def handle_pace(self) -> None:
        """Called many times a second: what had to wait may pass."""
        if len(self.pacing):
            self.pacing.release(self._wall_ms())

    def keep(self, visit: Visit, letter: Spool) -> None:
        """From one hub for another that is away, if the file lets it."""
        topics = self._links.get(frozenset((visit.name, self._addresses.get(letter.peer, ""))))
        if topics is None:
            self._bounce(visit, letter, "not_here", "there is no such hub here that this one may talk to")
        elif not allows(topics, letter.topic):
            self._bounce(visit, letter, "not_allowed", f"the topic {letter.topic!r} may not pass here")
        else:
            self.spools.keep(visit, letter)

    def _bounce(self, visit: Visit, letter: Carry | Spool, code: str, reason: str) -> None:
        self.counts.bounced[code] = self.counts.bounced.get(code, 0) + 1
        visit.member.send(frames.encode(Bounced(letter.peer, code, reason)))


def allows(topics: tuple[str, ...], topic: str) -> bool:
    """Whether one of these names, or beginnings with `*`, is the topic's."""
    return any(topic == name or name.endswith("*") and topic.startswith(name[:-1]) for name in topics)
