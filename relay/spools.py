"""What a meeting point keeps for hubs that are away: who may have how much kept, who is given what. No socket.

    SPOOL    a letter for a hub that is not here goes to the disk; HELD once it is synced
    SPOOLED  a hub that asked is given what was kept for it, in order, no more on its way than it said
    TAKEN    what it has is forgotten here

Nothing depends on it: the hub that sent a letter keeps the messages until the other hub itself says that it has them.
So what is too much is bounced, and what has lain here for too long is dropped. That way is then closed until its reader
comes.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gatehouse.relay import frames
from gatehouse.relay.frames import (
    Bounced,
    Held,
    Spool,
    Spooled,
    Spools,
    Taken,
    address_of_key,
)

if TYPE_CHECKING:
    from collections import deque
    from pathlib import Path

    from gatehouse.relay.meeting import Visit
    from gatehouse.relay.settings import MetHub, MetLink


MAX_WINDOW: Final = 16 << 20
MAX_UNWRITTEN: Final = 8 << 20         # of one way that wait for the disk
READ_BYTES: Final = 1 << 20            # of a shelf at a time
HOUR_MS: Final = 3_600_000


class NamedWay(NamedTuple):
    """From one hub to another, by their names in the file."""

    sender: str
    reader: str


ENTRY_COST: Final = 256                # bytes that an entry costs beside its letter, on disk and in memory


class Entry(NamedTuple):
    """One letter that is kept, without the letter."""

    number: int
    kept_ms: int
    sender: bytes
    topic: str
    file: Path
    at: int                            # where the letter begins in the file
    size_bytes: int

    @property
    def cost(self) -> int:
        return self.size_bytes + ENTRY_COST


class Letter(NamedTuple):
    """One that is to be kept."""

    sender: bytes
    topic: str
    payload: bytes
    held: Callable[[bool], None]


class Shelf(Protocol):
    """What is kept for one way, on a disk."""

    id: bytes
    """Another one whenever letters were lost."""

    entries: deque[Entry]
    used_bytes: int
    unwritten_bytes: int
    fault: str

    def keep(self, letter: Letter, now_ms: int) -> None:
        """Write it; `letter.held` is called once it is on the disk, or cannot be."""

    def read(self, entries: list[Entry], then: Callable[[list[bytes] | None], None]) -> None:
        """The letters of these; None where they cannot be read, or are gone."""

    def take(self, number: int) -> int:
        """Forget the letters before this one; returns what they cost."""

    def clear(self) -> None:
        """Forget everything, under another id: what follows is not what went before."""


class Shelves(Protocol):
    """Where shelves are."""

    def open(self, way: NamedWay) -> Shelf:
        """The shelf of one way, with what is on it. Raises OSError."""

    def keep_only(self, ways: set[NamedWay]) -> None:
        """Remove those of ways that are no more. Raises OSError."""


@dataclass(slots=True)
class Kept:
    """One way: its shelf, and what of it is being given."""

    shelf: Shelf
    max_bytes: int
    max_ms: int
    closed: bool = False                 # something became too old: nothing is kept until the reader comes
    window_bytes: int = 0
    on_their_way: int = 0                # bytes that are given and not taken
    given: int = 0                       # the number before which everything is on its way, or taken
    reading: bool = False
    turn: int = 0                        # of the reader's asking: what was read for an older one is not given


class SpoolRoom:
    """Everything that a meeting point keeps, by way. `visits` finds who is here by the name in the file."""

    def __init__(self, shelves: Shelves | None, wall_ms: Callable[[], int], visits: Callable[[str], list[Visit]],
                 tell: Callable[[str], None]) -> None:
        self._shelves = shelves
        self._wall_ms = wall_ms
        self._visits = visits
        self._tell = tell
        self._ways: dict[NamedWay, Kept] = {}
        self._keys: dict[str, tuple[bytes, ...]] = {}
        self._names: dict[bytes, str] = {}
        self.held = 0
        self.given = 0
        self.expired = 0

    def configure(self, hubs: tuple[MetHub, ...], links: tuple[MetLink, ...]) -> None:
        """What the file says from now on; what was kept for who may no longer talk is gone. Raises OSError, and nothing
        has changed."""
        ways: dict[NamedWay, Kept] = {}
        if self._shelves is not None:
            for link in links:
                if link.spool_bytes:
                    for sender, reader in (link.hubs, link.hubs[::-1]):
                        way = NamedWay(sender, reader)
                        ways[way] = self._ways.get(way) or ways.get(way) or Kept(self._shelves.open(way), 0, 0)
            self._shelves.keep_only(set(ways))
            for link in links:
                if link.spool_bytes:
                    for sender, reader in (link.hubs, link.hubs[::-1]):
                        of = ways[NamedWay(sender, reader)]
                        of.max_bytes, of.max_ms = link.spool_bytes, link.spool_hours * HOUR_MS
        self._keys = {hub.name: tuple([address_of_key(bytes.fromhex(key)) for key in hub.keys]) for hub in hubs}
        self._names = {address: name for name, addresses in self._keys.items() for address in addresses}
        before, self._ways = self._ways, ways
        for way in before.keys() | ways.keys():
            self._offer(way)

    # ---- who comes and goes

    def enter(self, visit: Visit) -> None:
        """A hub was let in."""
        for way, kept in self._ways.items():
            if way.reader == visit.name:
                self._forget_asking(kept)
                if kept.closed:
                    kept.closed = False
                    self._offer(way)
            elif way.sender == visit.name:
                self._offer(way)

    def leave(self, visit: Visit) -> None:
        """A hub is gone."""
        for way, kept in self._ways.items():
            if way.reader == visit.name:
                self._forget_asking(kept)

    @staticmethod
    def _forget_asking(kept: Kept) -> None:
        kept.window_bytes = kept.given = kept.on_their_way = 0
        kept.turn += 1

    def _offer(self, way: NamedWay) -> None:
        """Tell the sender of a way what is kept for its reader."""
        kept = self._ways.get(way)
        spool, size = (bytes(frames.SPOOL_BYTES), 0) if kept is None else (
            kept.shelf.id, 0 if kept.closed else kept.max_bytes)
        for visit in self._visits(way.sender):
            if visit.minor >= frames.SPOOL_MINOR:
                for address in self._keys.get(way.reader, ()):
                    visit.member.send(frames.encode(Spools(address, spool, size)))

    # ---- keeping

    def keep(self, visit: Visit, letter: Spool) -> None:
        """A letter for a hub that is away; the meeting has looked at its topic."""
        way = NamedWay(visit.name, self._names.get(letter.peer, ""))
        kept = self._ways.get(way)
        if kept is None or kept.closed or kept.shelf.unwritten_bytes >= MAX_UNWRITTEN \
                or kept.shelf.used_bytes + len(letter.payload) + ENTRY_COST > kept.max_bytes:
            self._bounce(visit, letter.peer)
            return

        def held(done: bool) -> None:
            if not done:
                self._tell(f"what {visit.name} wants kept cannot be written: {kept.shelf.fault or 'it is too late'}")
                self._bounce(visit, letter.peer)
            else:
                self.held += 1
                visit.member.send(frames.encode(Held(letter.peer, letter.number)))
                for reader in self._visits(way.reader):
                    self._give(reader, kept)

        kept.shelf.keep(Letter(visit.address, letter.topic, letter.payload, held), self._wall_ms())

    @staticmethod
    def _bounce(visit: Visit, peer: bytes) -> None:
        visit.member.send(frames.encode(Bounced(
            peer, frames.SPOOL_FULL, "the meeting point keeps no more for this hub now")))

    # ---- giving

    def take(self, visit: Visit, taken: Taken) -> None:
        """A reader says what it has, and how much more it takes."""
        way = NamedWay(self._names.get(taken.peer, ""), visit.name)
        kept = self._ways.get(way)
        if kept is None:
            return
        kept.on_their_way -= kept.shelf.take(min(taken.number, kept.given))
        window_bytes = min(taken.window_bytes, MAX_WINDOW)
        if not window_bytes or not kept.window_bytes:
            self._forget_asking(kept)
        kept.window_bytes = window_bytes
        self._give(visit, kept)

    def _give(self, visit: Visit, kept: Kept) -> None:
        if kept.reading:
            return
        chosen: list[Entry] = []
        size_bytes = 0
        for entry in kept.shelf.entries:
            if entry.number < kept.given:
                continue
            if kept.on_their_way + size_bytes >= kept.window_bytes or size_bytes >= READ_BYTES:
                break
            chosen.append(entry)
            size_bytes += entry.cost
        if not chosen:
            return
        kept.reading, turn = True, kept.turn

        def read(letters: list[bytes] | None) -> None:
            kept.reading = False
            if letters is None:
                self._tell(f"what is kept for {visit.name} cannot be read")
                return
            if turn == kept.turn:
                kept.given = chosen[-1].number + 1
                kept.on_their_way += sum([entry.cost for entry in chosen])
                self.given += len(chosen)
                for entry, letter in zip(chosen, letters, strict=True):
                    visit.member.send(frames.encode(Spooled(entry.sender, entry.number, entry.topic, letter)))
            for reader in self._visits(visit.name):
                self._give(reader, kept)

        kept.shelf.read(chosen, read)

    # ---- time

    def handle_tick(self) -> None:
        """Called now and then: what is too old is dropped."""
        now_ms = self._wall_ms()
        for way, kept in self._ways.items():
            if kept.shelf.entries and kept.shelf.entries[0].kept_ms + kept.max_ms <= now_ms:
                self.expired += len(kept.shelf.entries)
                self._tell(f"{len(kept.shelf.entries)} letters of {way.sender} for {way.reader} are too old: dropped")
                kept.shelf.clear()
                kept.closed = True
                self._forget_asking(kept)
                self._offer(way)

    @property
    def used_bytes(self) -> int:
        return sum([kept.shelf.used_bytes for kept in self._ways.values()])

    def __len__(self) -> int:
        """Letters that are kept."""
        return sum([len(kept.shelf.entries) for kept in self._ways.values()])
