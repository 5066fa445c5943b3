"""The fetch sessions of all clients of a hub (KIP-227), bounded in number and in what they follow. Pure.

A session ends with its connection, when its client says so, or when another one takes its place: the one that was used
longest ago, if nobody has used it for two minutes, else the smallest of those that are two minutes old, if it is
smaller than the new one: as in Kafka. A client whose session is gone is told FETCH_SESSION_ID_NOT_FOUND, and lists
everything again; one for which there is no room is answered with session 0, and lists everything each time.
"""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.kafka.fetch_session import LAST_EPOCH, FetchSession

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services
    from gatehouse.gateways.kafka.fetch_codec import FetchTopic, Forgotten

MAX_SESSIONS: Final = 1_000          # Kafka's max.incremental.fetch.session.cache.slots
MAX_FOLLOWED: Final = 500_000        # topics and partitions of all sessions: some 100 MB where each is one by one
SAFE_MS: Final = 120_000             # Kafka's min.incremental.fetch.session.eviction.ms
MAX_OF_CONNECTION: Final = 4         # clients have one; more come through a proxy


class FetchSessions:  # decision 224
    """One per hub, in `Services.shared`."""

    def __init__(self, max_sessions: int = MAX_SESSIONS, max_followed: int = MAX_FOLLOWED) -> None:
        self._max_sessions = max_sessions
        self._max_followed = max_followed
        self._by_id: OrderedDict[int, FetchSession] = OrderedDict()        # used longest ago first
        self._of: dict[object, dict[int, None]] = {}                       # ids by connection
        self._last_id = 0
        self.followed = 0

    @classmethod
    def of(cls, services: Services) -> FetchSessions:
        """The hub's."""
        return services.share(__name__, cls)

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, owner: object, by_id: bool, topics: list[FetchTopic], now_ms: int) -> FetchSession | None:
        """A session that follows these topics; None where there is no room for it, or nothing to follow."""
        session = FetchSession(self._next_id(), owner, by_id, now_ms)
        if not session.follow(topics, []) or not session.size or not self._make_room(session, now_ms):
            return None
        mine = self._of.setdefault(owner, {})
        if len(mine) >= MAX_OF_CONNECTION:
            self.close(next(iter(mine)), owner)
            mine = self._of.setdefault(owner, {})
        self._by_id[session.id] = session
        mine[session.id] = None
        self.followed += session.size
        return session

    def find(self, number: int, owner: object) -> FetchSession | None:
        """The session of this connection with that id."""
        session = self._by_id.get(number)
        return session if session is not None and session.owner is owner else None

    def follow(self, session: FetchSession, topics: list[FetchTopic], forgotten: list[Forgotten], most: int,
               now_ms: int) -> bool:
        """Take in what the next fetch of a session says. False: it would be too much, and the session is gone."""
        before = session.size
        sound = session.follow(topics, forgotten)
        self.followed += session.size - before
        session.used_ms = now_ms
        self._by_id.move_to_end(session.id)
        if not sound or session.size > before and (session.size > 2 * most or self.followed > self._max_followed):
            self.close(session.id, session.owner)
            return False
        session.advance()
        return True

    def close(self, number: int, owner: object) -> None:
        """End the session of this connection with that id, where there is each."""
        session = self.find(number, owner)
        if session is not None:
            self._drop(session)

    def leave(self, owner: object) -> None:
        """A connection is gone, and its sessions."""
        ids: Iterable[int] = list(self._of.get(owner, ()))
        for number in ids:
            self.close(number, owner)

    def _drop(self, session: FetchSession) -> None:
        del self._by_id[session.id]
        self.followed -= session.size
        mine = self._of[session.owner]
        del mine[session.id]
        if not mine:
            del self._of[session.owner]

    def _make_room(self, session: FetchSession, now_ms: int) -> bool:
        """Whether there is room for it, perhaps in the place of others: of one that is in use, or of idle ones."""
        while len(self._by_id) >= self._max_sessions or self.followed + session.size > self._max_followed:
            oldest = next(iter(self._by_id.values()), None)
            if oldest is not None and now_ms - oldest.used_ms > SAFE_MS:
                victim: FetchSession | None = oldest
            elif self.followed + session.size <= self._max_followed:
                victim = self._smallest(session, now_ms)
            else:
                victim = None
            if victim is None:
                return False
            self._drop(victim)
        return True

    def _smallest(self, session: FetchSession, now_ms: int) -> FetchSession | None:
        """The smallest of those that are smaller and have been there for a while."""
        smaller = [each for each in self._by_id.values()
                   if each.size < session.size and now_ms - each.opened_ms > SAFE_MS]
        return min(smaller, key=lambda each: (each.size, each.id), default=None)

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id + 1 if self._last_id < LAST_EPOCH else 1
            if self._last_id not in self._by_id:
                return self._last_id
