"""Who is connected as whom: every open connection has a registration, and is told when its principal ends or its rights
change.

    registration = admission.register(principal, door, session)       once per connection, when it has logged in
    registration.leave()                                              at its end; more than once is no mistake
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from gatehouse.gateways.admission.principal import Principal
from gatehouse.kernel.ports import Loop, Timer

TOLD_AT_ONCE: Final = 20                 # connections that are told in one turn: some 0.2 ms each with a few filters


class RegisteredSession(Protocol):
    """What a connection is told. Both are called on the hub's thread, never from within a call of the connection's."""

    def on_principal_ended(self, reason: str) -> None:
        """The user is gone, disabled, expired or has another password, or what it logged in with has run out: close in
        the protocol's words.

        `reason` is for the log, and holds no secret.
        """

    def on_rights_changed(self) -> None:
        """Look at subscriptions and consumers again, and drop what is no longer allowed."""


class LooksAgain(Protocol):
    """What a connection's guard is told, before the connection is told of its rights."""

    def look_again(self) -> None:
        """Rights have changed."""


class Registration:  # decision 95
    """One connection's place."""

    __slots__ = ("_registry", "door", "guard", "session", "principal", "lasts", "timer")

    def __init__(self, registry: SessionRegistry, principal: Principal, door: str,
                 session: RegisteredSession, guard: LooksAgain | None, lasts: bool) -> None:
        self.lasts = lasts                   # a connection: not a call that waits
        self._registry = registry
        self.principal = principal
        self.door = door
        self.session = session
        self.guard = guard                   # looks again when rights have changed, before the session does
        self.timer: Timer | None = None      # rings when its principal ends

    def leave(self) -> None:
        self._registry.forget(self)


class SessionRegistry:
    """All of them, by the principal's name. `loop` None (in tests): told at once, and nothing runs out. `ends_ms` says
    when a principal ends as things stand, 0 for never."""

    def __init__(self, loop: Loop | None = None,
                 ends_ms: Callable[[Principal], int] = lambda principal: principal.expires_ms) -> None:
        self._loop = loop
        self._ends_ms = ends_ms
        self._by_user: dict[str, dict[Registration, None]] = {}
        self.connections: Counter[tuple[str, str]] = Counter()
        """Those that last, by kind and name as limits have them: ("user", "ann")."""

    def __len__(self) -> int:
        return sum(map(len, self._by_user.values()))

    def take(self, principal: Principal, door: str, session: RegisteredSession,
             guard: LooksAgain | None = None, lasts: bool = False) -> Registration:
        registration = Registration(self, principal, door, session, guard, lasts)
        self._by_user.setdefault(principal.name, {})[registration] = None
        self._count(registration, 1)
        self._set_timer(registration)
        return registration

    def forget(self, registration: Registration) -> None:
        self._stop_timer(registration)
        registrations = self._by_user.get(registration.principal.name)
        if registrations is not None:
            if registration in registrations:
                self._count(registration, -1)
            registrations.pop(registration, None)
            if not registrations:
                del self._by_user[registration.principal.name]

    def _count(self, registration: Registration, by: int) -> None:
        if not registration.lasts:
            return
        principal = registration.principal
        for counted in (("hub", ""), ("door", registration.door), ("tenant", principal.tenant),
                        ("user", principal.name)):
            self.connections[counted] += by
            if not self.connections[counted]:
                del self.connections[counted]

    def end(self, name: str, logins: str, reason: str) -> None:
        """Everybody who is connected as this user, by a login that begins so."""
        self._tell([registration for registration in self._by_user.get(name, ())
                    if registration.principal.login.startswith(logins)],
                   lambda registration: registration.session.on_principal_ended(reason))

    def ends_changed(self, name: str) -> None:
        """This user's connections end at another time than before, or no more."""
        for registration in self._by_user.get(name, ()):
            self._stop_timer(registration)
            self._set_timer(registration)

    def rights_changed(self, name: str | None = None) -> None:
        """For one user, or for everybody."""
        names = list(self._by_user) if name is None else [name]
        self._tell([registration for user in names for registration in self._by_user.get(user, ())],
                   _look_again)

    def _set_timer(self, registration: Registration) -> None:  # decision 89
        ends_ms = self._ends_ms(registration.principal)
        if ends_ms and self._loop is not None:
            what = "what it logged in with" if ends_ms == registration.principal.expires_ms else "the user"
            registration.timer = self._loop.call_at_wall(ends_ms,
                                                         partial(self._on_expired, registration, f"{what} has expired"))

    def _stop_timer(self, registration: Registration) -> None:
        if registration.timer is not None:
            registration.timer.cancel()
            registration.timer = None

    def _on_expired(self, registration: Registration, why: str) -> None:
        registration.timer = None
        registration.session.on_principal_ended(why)

    def _tell(self, registrations: Iterable[Registration], tell: Callable[[Registration], None]) -> None:
        """Some in each turn, those that are still there then."""
        waiting = list(registrations)

        def go_on() -> None:
            for registration in waiting[:TOLD_AT_ONCE]:
                if registration in self._by_user.get(registration.principal.name, ()):
                    tell(registration)
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


def _look_again(registration: Registration) -> None:
    if registration.guard is not None:
        registration.guard.look_again()
    registration.session.on_rights_changed()
