"""Admission for tests of doors: a few users whose answers come when the test says so, and a rule that it can change."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gatehouse.gateways.admission.attempt import Gone, OnAuthenticated, never
from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.admission.errors import LoginsFull, NotAuthenticated
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.admission.session_registry import RegisteredSession, Registration
from gatehouse.gateways.kit import RecordingAdmission


class KnownUsers(RecordingAdmission):
    """Users by password, token and certificate. `late`: answers wait for `tell`."""

    def __init__(self, kernel: Any, now_ms: Callable[[], int], *, allow_anonymous: bool = False,
                 quotas: Any = None, decision: Any = None, passwords: Mapping[str, str] | None = None,
                 tokens: Mapping[str, str] | None = None, expires_ms: int = 0) -> None:
        super().__init__(kernel, now_ms, allow_anonymous=allow_anonymous, quotas=quotas, decision=decision)
        self.passwords = dict(passwords or {"ada": "lovelace", "bob": "builder"})
        self.tokens = dict(tokens or {"header.ada.signature": "ada", "header.bob.signature": "bob"})
        self.certificates = {"ada"}
        self.expires_ms = expires_ms
        self.late = False
        self.full = False
        """No more logins may wait."""
        self.asked: list[Credentials] = []
        self.gone: list[Gone] = []
        self.registered: list[tuple[Principal, RegisteredSession]] = []
        self._answers: list[Callable[[], None]] = []

    def authenticate(self, door: str, peer: str, credentials: Credentials, on_done: OnAuthenticated,
                     gone: Gone = never) -> None:
        self.asked.append(credentials)
        self.gone.append(gone)
        answer = LoginsFull() if self.full else self._answer(credentials)
        if self.late:
            self._answers.append(lambda: on_done(answer))
        else:
            on_done(answer)

    def _answer(self, shown: Credentials) -> Principal | NotAuthenticated:
        if shown.empty:
            return self.anonymous if self.allow_anonymous else NotAuthenticated("credentials are needed")
        name = shown.user if shown.user is not None and self.passwords.get(shown.user) == shown.password else None
        name = name or self.tokens.get(shown.token or "") or (shown.certificate if shown.user is None
                                                              and shown.certificate in self.certificates else None)
        return NotAuthenticated("Invalid username or password") if name is None \
            else Principal(name, expires_ms=self.expires_ms or shown.certificate_ends_ms)

    def tell(self) -> None:
        """Give every answer that waits."""
        answers, self._answers = self._answers, []
        for answer in answers:
            answer()

    def register(self, principal: Principal, door: str, session: RegisteredSession,
                 look_again: Callable[[], None] | None = None) -> Registration:
        self.registered.append((principal, session))
        return super().register(principal, door, session, look_again)

    def connect(self, principal: Principal, door: str, session: RegisteredSession,
                look_again: Callable[[], None] | None = None, replaces: bool = False) -> Registration:
        self.registered.append((principal, session))
        return super().connect(principal, door, session, look_again, replaces)
