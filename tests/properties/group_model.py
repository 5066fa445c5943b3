"""What a leased group is, as plainly as it can be said: its messages, and what has become of each."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

READY: Final = "ready"
LEASED: Final = "leased"
WAITING: Final = "waiting"
ACKED: Final = "acked"
DEAD: Final = "dead"
EXPIRED: Final = "expired"
OPEN: Final = (READY, LEASED, WAITING)

Place = tuple[int, int]
"""(partition id, offset)"""


@dataclass(frozen=True)
class Known:
    """One message in one group."""

    key: bytes | None
    value: bytes
    expires_ms: int                 # 0: never
    state: str = READY
    attempt: int = 0                # how often it was leased
    until_ms: int = 0               # of a lease (0: as long as its holder is there) or of a wait
    holder: int = 0                 # number of the member that has it


class GroupModel:
    """`ordered` and `max_attempts` (0: any) as in the group's settings; `delays_ms` are its retries'."""

    def __init__(self, *, ordered: bool, max_attempts: int, delays_ms: tuple[int, ...]) -> None:
        self.ordered = ordered
        self.max_attempts = max_attempts
        self.delays_ms = delays_ms
        self.messages: dict[Place, Known] = {}

    def copy(self) -> dict[Place, Known]:
        return dict(self.messages)

    def of(self, *states: str) -> list[Place]:
        return sorted(place for place, known in self.messages.items() if known.state in states)

    def _set(self, place: Place, **changes: object) -> None:
        self.messages[place] = replace(self.messages[place], **changes)  # type: ignore[arg-type]

    # ---- what may be handed out

    def free(self, but: Sequence[Place] = ()) -> list[Place]:
        """Ready, and of the ordered first of their key; as if those in `but` were not there."""
        if not self.ordered:
            return [place for place in self.of(READY) if place not in but]
        first: dict[tuple[int, bytes | None], Place] = {}
        for place in self.of(*OPEN):
            if place not in but:
                first.setdefault((place[0], self.messages[place].key), place)
        return [place for place in self.of(READY) if place not in but and
                (self.messages[place].key is None or first[place[0], self.messages[place].key] == place)]

    def spent(self, place: Place, now_ms: int) -> str:
        """What becomes of a ready message instead of being handed out; empty: nothing."""
        known = self.messages[place]
        if known.expires_ms and known.expires_ms <= now_ms:
            return EXPIRED
        return DEAD if 0 < self.max_attempts <= known.attempt else ""

    def available(self, now_ms: int) -> list[Place]:
        return self.free([place for place in self.of(READY) if self.spent(place, now_ms)])

    # ---- what happens to it

    def enter(self, place: Place, key: bytes | None, value: bytes, expires_ms: int) -> None:
        assert place not in self.messages
        self.messages[place] = Known(key, value, expires_ms)

    def lease(self, place: Place, until_ms: int, holder: int) -> None:
        self._set(place, state=LEASED, attempt=self.messages[place].attempt + 1, until_ms=until_ms, holder=holder)

    def is_lease(self, place: Place, attempt: int) -> bool:
        known = self.messages.get(place)
        return known is not None and known.state == LEASED and known.attempt == attempt

    def end(self, place: Place, state: str) -> None:
        self._set(place, state=state, until_ms=0, holder=0)

    def extend(self, place: Place, until_ms: int) -> None:
        self._set(place, until_ms=until_ms, holder=0)

    def release(self, place: Place, now_ms: int, delay_ms: int | None) -> None:
        known = self.messages[place]
        if delay_ms is None:
            delay_ms = self.delays_ms[min(known.attempt, len(self.delays_ms)) - 1]
        if 0 < self.max_attempts <= known.attempt:
            self.end(place, DEAD)
        elif delay_ms:
            self._set(place, state=WAITING, until_ms=now_ms + delay_ms, holder=0)
        else:
            self.end(place, READY)

    def leave(self, holder: int, now_ms: int, delay_ms: int | None) -> None:
        for place in self.of(LEASED):
            if self.messages[place].holder == holder:
                self.release(place, now_ms, delay_ms)

    def tick(self, now_ms: int) -> None:
        """Leases and waits whose time is up."""
        for place in self.of(LEASED, WAITING):
            known = self.messages[place]
            if 0 < known.until_ms <= now_ms:
                if known.state == LEASED:
                    self.release(place, now_ms, 0)
                else:
                    self.end(place, READY)

    def restart(self) -> None:
        """No connection outlives the hub."""
        for place in self.of(LEASED):
            if not self.messages[place].until_ms:
                self.end(place, READY)
