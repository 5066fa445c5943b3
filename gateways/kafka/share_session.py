"""What one member of a share group has in hand by one connection (KIP-932): the partitions that it asks for, and the
messages that it was given and has not settled. Pure: time is an argument.

The epoch of a session counts its requests, so that none is carried out twice. A session ends with its connection: what
it holds goes back to its group at once.
"""
from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, Final, NamedTuple

from gatehouse.gateways.kafka.error_codes import (
    INVALID_RECORD_STATE,
    INVALID_REQUEST,
    INVALID_SHARE_SESSION_EPOCH,
    SHARE_SESSION_LIMIT_REACHED,
    SHARE_SESSION_NOT_FOUND,
)
from gatehouse.gateways.kafka.mapping import Refused

OPENS: Final = 0                 # session epochs that mean something
CLOSES: Final = -1
MAX_EPOCH: Final = 0x7FFFFFFF    # behind it comes 1

GAP: Final = 0                   # what a client says of a message: there is none,
ACCEPT: Final = 1                # it is done,
RELEASE: Final = 2               # it is for somebody else,
REJECT: Final = 3                # it is for nobody,
RENEW: Final = 4                 # it takes longer

MAX_SESSIONS: Final = 100        # of one connection: Java's client has one
MAX_TOPICS: Final = 1_000        # that one session asks for
MAX_HELD: Final = 2_000          # messages that one member may hold: who settles nothing is given nothing more
MAX_BATCHES: Final = 2 * MAX_HELD        # of offsets that one request settles, with the gaps between them
MAX_TYPES: Final = 5 * MAX_HELD          # that one request says of them: of each, or of each in a stretch

PartitionName = tuple[bytes, int]
"""(uuid of the topic, partition number)"""


class Held(NamedTuple):
    """A message that the member was given."""

    receipt: str
    until_ms: int                # then it may be somebody else's


class HeldAt(NamedTuple):
    """A message that the member was given, and where it lies."""

    name: PartitionName
    offset: int
    held: Held


class ShareSession:
    """One member's."""

    __slots__ = ("epoch", "ended", "asked", "size", "held", "count", "turn", "each_bytes",
                 "_look_ms")

    def __init__(self) -> None:
        self.ended = False                                           # nothing more is given to it
        self.epoch = 0                                               # of its newest request
        self.asked: dict[bytes, set[int]] = {}                       # partitions by the uuid of their topic
        self.size = 0                                                # how many partitions these are
        self.held: dict[PartitionName, dict[int, Held]] = {}         # by offset
        self.count = 0                                               # of what is held
        self.turn = 0                                                # which topic is asked first
        self.each_bytes = 0                                          # of a message, as it was given last; 0: not known
        self._look_ms = 0

    # ---- partitions

    def ask(self, uuid: bytes, partitions: list[int], room: int) -> None:
        """The member asks for these, too. Raises Refused, with nothing noted, where there is room for so many more and
        no others."""
        new = set(partitions).difference(self.asked.get(uuid, ()))
        if not new:
            return
        if len(new) > room or uuid not in self.asked and len(self.asked) >= MAX_TOPICS:
            raise Refused(INVALID_REQUEST, f"a share session asks for {MAX_TOPICS} topics at most, and for {room} "
                                           "partitions more")
        self.size += len(new)
        self.asked.setdefault(uuid, set()).update(new)

    def forget(self, uuid: bytes, partitions: list[int]) -> None:
        """The member asks for these no more; what it holds of them stays with it."""
        mine = self.asked.get(uuid)
        if mine is None:
            return
        before = len(mine)
        mine.difference_update(partitions)
        self.size -= before - len(mine)
        if not mine:
            del self.asked[uuid]

    def in_turn(self) -> list[bytes]:
        """The topics that are asked for, another one first each time."""
        uuids = list(self.asked)
        self.turn = (self.turn + 1) % max(1, len(uuids))
        return uuids[self.turn:] + uuids[:self.turn]

    # ---- messages

    def hold(self, name: PartitionName, offset: int, held: Held) -> None:
        """The member is given a message; one that it had lost is its own again."""
        of = self.held.setdefault(name, {})
        self.count += offset not in of
        of[offset] = held
        self._look_ms = min(self._look_ms or held.until_ms, held.until_ms)

    def note_size(self, count: int, size_bytes: int) -> None:
        """So many messages, which the member was given together, took so many bytes."""
        self.each_bytes = max(1, size_bytes // count)

    def drop_overdue(self, now_ms: int) -> None:
        """Forget what the member has kept for too long: its group has it again."""
        if not self._look_ms or now_ms < self._look_ms:
            return
        for name, of in list(self.held.items()):
            self.held[name] = kept = {offset: held for offset, held in of.items() if held.until_ms > now_ms}
            self.count -= len(of) - len(kept)
            if not kept:
                del self.held[name]
        self._look_ms = min([held.until_ms for of in self.held.values() for held in of.values()], default=0)

    def settled(self, name: PartitionName, batches: list[Any], renews: bool) -> dict[int, list[int]]:
        """The offsets of each kind that a client settles of a partition, by what it says of them. Raises Refused, with
        nothing settled, where it says what cannot be, or holds one of them no more."""
        of = self.held.get(name, {})
        offsets = sorted(of)
        kinds: dict[int, list[int]] = {}
        behind = -1
        for batch in batches:
            first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
            if not behind < first <= last or len(types) not in (1, last - first + 1):
                raise Refused(INVALID_REQUEST, "offsets are settled in order, each once, with one type or a type each")
            behind = last
            if not all(GAP <= kind <= (RENEW if renews else REJECT) for kind in types):
                raise Refused(INVALID_REQUEST, f"a message is settled by {GAP} to {REJECT}, or kept on by {RENEW}")
            if len(types) == 1:
                mine = offsets[bisect_left(offsets, first):bisect_right(offsets, last)]
                if len(mine) <= last - first and types[0] != GAP:
                    raise Refused(INVALID_RECORD_STATE, f"not all of {first} to {last} are this member's")
                kinds.setdefault(types[0], []).extend(mine)
                continue
            for offset, kind in enumerate(types, first):
                if offset in of:
                    kinds.setdefault(kind, []).append(offset)
                elif kind != GAP:
                    raise Refused(INVALID_RECORD_STATE, f"{offset} is not this member's")
        return kinds

    def take(self, name: PartitionName, offsets: list[int], until_ms: int = 0) -> list[HeldAt]:
        """What is settled; it is the member's no more, unless it keeps it on until then."""
        of = self.held[name]
        settled = [HeldAt(name, offset, of[offset]) for offset in offsets]
        if until_ms:
            of.update({offset: of[offset]._replace(until_ms=until_ms) for offset in offsets})
            return settled
        for offset in offsets:
            del of[offset]
        self.count -= len(offsets)
        if not of:
            del self.held[name]
        return settled

    def put_back(self, settled: list[HeldAt]) -> None:
        """The hub could not do what was said of these: they are the member's still, and it may say so again."""
        for name, offset, held in settled:
            if not self.ended and offset not in self.held.get(name, ()):
                self.hold(name, offset, held)

    def end(self) -> list[str]:
        """Give nothing more to it; the receipts of everything that it held."""
        self.ended = True
        return self.take_all()

    def take_all(self) -> list[str]:
        """The receipts of everything that is held."""
        receipts = [held.receipt for of in self.held.values() for held in of.values()]
        self.held, self.count = {}, 0
        return receipts


class ShareSessions:
    """All of one connection, by group and member."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def enter(self, group: str, member_id: str, epoch: int, may_open: bool) -> tuple[ShareSession, list[str]]:
        """The session that a request with this epoch goes on with, and receipts of what an older one held in its
        place. Raises Refused."""
        name = (group, member_id)
        session = self._sessions.get(name)
        if epoch == OPENS:
            if not may_open:
                raise Refused(INVALID_SHARE_SESSION_EPOCH, "a session is opened by a fetch")
            if session is None and len(self._sessions) >= MAX_SESSIONS:
                raise Refused(SHARE_SESSION_LIMIT_REACHED, f"a connection has {MAX_SESSIONS} share sessions at most")
            old = [] if session is None else session.end()
            session = self._sessions[name] = ShareSession()
            session.epoch = 1
            return session, old
        if session is None:
            raise Refused(SHARE_SESSION_NOT_FOUND, "this connection has no such share session")
        if epoch == CLOSES:
            session.ended = True
            del self._sessions[name]
        elif epoch != session.epoch:
            raise Refused(INVALID_SHARE_SESSION_EPOCH, f"the session's next request has epoch {session.epoch}")
        else:
            session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        return session, []

    def room(self, of: ShareSession, most: int) -> int:
        """How many partitions more this session may ask for, where that is `most` for all of them together."""
        return most - sum([session.size for session in {of, *self._sessions.values()}])

    def end(self) -> list[tuple[str, list[str]]]:
        """(group, receipts) of what each member holds: the connection is gone."""
        sessions, self._sessions = self._sessions, {}
        return [(name[0], session.end()) for name, session in sessions.items()]
