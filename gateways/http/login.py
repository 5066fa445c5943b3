"""Who a request says it is from: the `Authorization` header, the challenges to a request that says it wrong, and the
tickets of those that can send none.

    Basic base64(user:password)     RFC 7617; the password may be an API key
    Bearer TOKEN                    RFC 6750; a JWT or an API key

A browser's EventSource or WebSocket logs in by a ticket: a random word that stands for a principal for `ticket_s`
seconds, in this process's memory alone. It ends with the principal, and with the hub. It opens streams and nothing
else, so one that a proxy has logged is worth little.
"""
from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.http.problems import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.admission.session_registry import Registration

TOKEN68: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def read_authorization(value: str) -> Credentials:
    """What the header shows. Raises NotAuthenticated for a scheme that is not known, Refusal for what is malformed."""
    scheme, _, shown = value.partition(" ")
    shown = shown.strip()
    if scheme.lower() == "basic":
        return _basic(shown)
    if scheme.lower() != "bearer":
        raise NotAuthenticated("Authorization: the schemes Basic and Bearer are known here")
    if TOKEN68.fullmatch(shown) is None:
        raise Refusal("invalid_header", "Authorization: Bearer is followed by a token")
    return Credentials(token=shown)


def _basic(encoded: str) -> Credentials:
    try:
        user, colon, password = b64decode(encoded, validate=True).decode().partition(":")
    except (Base64Error, ValueError):
        colon = ""
    if not colon:
        raise Refusal("invalid_header", "Authorization: Basic is followed by base64 of user:password")
    return Credentials(user, password)


def challenges(realm: str, authorization: str | None) -> str:
    """The value of `WWW-Authenticate` (RFC 9110, 11.6.1): both schemes; a token that was shown is not good."""
    quoted = realm.replace("\\", "\\\\").replace('"', '\\"')
    showed_token = authorization is not None and authorization[:7].lower() == "bearer "
    error = ', error="invalid_token"' if showed_token else ""
    basic, bearer = f'Basic realm="{quoted}", charset="UTF-8"', f'Bearer realm="{quoted}"{error}'
    return f"{bearer}, {basic}" if showed_token else f"{basic}, {bearer}"


TICKET_BYTES: Final = 24
MAX_TICKETS: Final = 10_000          # of all principals; the oldest goes
MAX_OF_PRINCIPAL: Final = 100        # so that nobody can push out everybody else's


class _Ticket:
    """One that is good; an `RegisteredSession`, so that it ends with its principal."""

    __slots__ = ("_tickets", "expires_ms", "principal", "registration", "word")

    def __init__(self, tickets: Tickets, word: str, principal: Principal, expires_ms: int) -> None:
        self._tickets = tickets
        self.word = word
        self.principal = principal
        self.expires_ms = expires_ms
        self.registration: Registration | None = None

    def on_principal_ended(self, reason: str) -> None:
        """The ticket's principal has ended: the ticket opens nothing any more."""
        self._tickets.forget(self)

    def on_rights_changed(self) -> None:
        """Does nothing: rights are looked at when the ticket is used."""


class Tickets:
    """All tickets, oldest first."""

    def __init__(self, admission: Admission, door: str, lifetime_s: float, now_ms: Callable[[], int]) -> None:
        self._admission = admission
        self._door = door
        self._lifetime_ms = round(lifetime_s * 1000)
        self._now_ms = now_ms
        self._tickets: dict[str, _Ticket] = {}

    def __len__(self) -> int:
        return len(self._tickets)

    def issue(self, principal: Principal) -> str:
        """A new ticket for the principal."""
        now_ms = self._now_ms()
        self._forget_some(principal, now_ms)
        # decision 70: a random word, no signed one
        ticket = _Ticket(self, token_urlsafe(TICKET_BYTES), principal, now_ms + self._lifetime_ms)
        ticket.registration = self._admission.register(principal, self._door, ticket)
        self._tickets[ticket.word] = ticket
        return ticket.word

    def principal_of(self, word: str) -> Principal:
        """Whom the ticket stands for. Raises NotAuthenticated."""
        ticket = self._tickets.get(word)
        if ticket is None or ticket.expires_ms <= self._now_ms():
            self._admission.trace.on_event(self._door, "not_authenticated")
            raise NotAuthenticated("the ticket is unknown or has expired: ask for a new one")
        return ticket.principal

    def forget(self, ticket: _Ticket) -> None:
        """Forget a ticket, which is no longer valid."""
        self._tickets.pop(ticket.word, None)
        if ticket.registration is not None:
            ticket.registration.leave()

    def _forget_some(self, principal: Principal, now_ms: int) -> None:
        """Forget the tickets that have expired, and the oldest where there are too many, in all or of this
        principal."""
        while self._tickets:
            oldest = next(iter(self._tickets.values()))
            if oldest.expires_ms > now_ms and len(self._tickets) < MAX_TICKETS:
                break
            self.forget(oldest)
        mine = [ticket for ticket in self._tickets.values() if ticket.principal.name == principal.name]
        for ticket in mine[:max(0, len(mine) - MAX_OF_PRINCIPAL + 1)]:
            self.forget(ticket)
