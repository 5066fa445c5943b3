"""Who is connected as whom: every open connection has a seat, and is told when its principal ends or its rights change.

    seat = admission.seat(principal, door, occupant)       once per connection, when it has logged in
    seat.leave()                                           at its end; more than once is no mistake
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from gateways.admission.principal import Principal
from kernel.ports import Loop, Timer

TOLD_AT_ONCE: Final = 20                 # connections that are told in one turn: some 0.2 ms each with a few filters


class Occupant(Protocol):
    """What a connection is told. Both are called on the hub's thread, never from within a call of the connection's."""

    def on_principal_ended(self, reason: str) -> None:
        """The user is gone, disabled, expired or has another password, or what it logged in with has run out: close in
        the protocol's words.

        `reason` is for the log, and holds no secret.
        """

    def on_rights_changed(self) -> None:
        """Look at subscriptions and consumers again, and drop what is no longer allowed."""


class Seat:
    """One connection's place."""

    __slots__ = ("_seats", "door", "occupant", "principal", "timer")

    def __init__(self, seats: SessionRegistry, principal: Principal, door: str, occupant: Occupant) -> None:
        self._seats = seats
        self.principal = principal
        self.door = door
        self.occupant = occupant
        self.timer: Timer | None = None      # rings when its principal ends

    def leave(self) -> None:
        self._seats.forget(self)


class SessionRegistry:
    """All of them, by the principal's name. `loop` None (in tests): told at once, and nothing runs out. `ends_ms` says
    when a principal ends as things stand, 0 for never."""

    def __init__(self, loop: Loop | None = None, on_left: Callable[[Seat], None] | None = None,
                 ends_ms: Callable[[Principal], int] = lambda principal: principal.expires_ms) -> None:
        self._loop = loop
        self._ends_ms = ends_ms
        self._on_left = on_left
        self._taken: dict[str, dict[Seat, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._taken.values()))

    def take(self, principal: Principal, door: str, occupant: Occupant) -> Seat:
        seat = Seat(self, principal, door, occupant)
        self._taken.setdefault(principal.name, {})[seat] = None
        self._set_timer(seat)
        return seat

    def forget(self, seat: Seat) -> None:
        self._stop_timer(seat)
        seats = self._taken.get(seat.principal.name)
        if seats is not None:
            seats.pop(seat, None)
            if not seats:
                del self._taken[seat.principal.name]
        if self._on_left is not None:
            self._on_left(seat)

    def end(self, name: str, logins: str, reason: str) -> None:
        """Everybody who is connected as this user, by a login that begins so."""
        self._tell([seat for seat in self._taken.get(name, ()) if seat.principal.login.startswith(logins)],
                   lambda seat: seat.occupant.on_principal_ended(reason))

    def ends_changed(self, name: str) -> None:
        """This user's connections end at another time than before, or no more."""
        for seat in self._taken.get(name, ()):
            self._stop_timer(seat)
            self._set_timer(seat)

    def rights_changed(self, name: str | None = None) -> None:
        """For one user, or for everybody."""
        names = list(self._taken) if name is None else [name]
        self._tell([seat for one in names for seat in self._taken.get(one, ())],
                   lambda seat: seat.occupant.on_rights_changed())

    def _set_timer(self, seat: Seat) -> None:
        ends_ms = self._ends_ms(seat.principal)
        if ends_ms and self._loop is not None:
            what = "what it logged in with" if ends_ms == seat.principal.expires_ms else "the user"
            seat.timer = self._loop.call_at_wall(ends_ms, partial(self._on_expired, seat, f"{what} has expired"))

    def _stop_timer(self, seat: Seat) -> None:
        if seat.timer is not None:
            seat.timer.cancel()
            seat.timer = None

    def _on_expired(self, seat: Seat, why: str) -> None:
        seat.timer = None
        seat.occupant.on_principal_ended(why)

    def _tell(self, seats: Iterable[Seat], tell: Callable[[Seat], None]) -> None:
        """Some in each turn, those that are still there then."""
        waiting = list(seats)

        def go_on() -> None:
            for seat in waiting[:TOLD_AT_ONCE]:
                if seat in self._taken.get(seat.principal.name, ()):
                    tell(seat)
            del waiting[:TOLD_AT_ONCE]
            if waiting:
                schedule(go_on)

        def schedule(callback: Callable[[], None]) -> None:
            if self._loop is None:
                callback()
            else:
                self._loop.call_soon(callback)

        if waiting:
            schedule(go_on)
