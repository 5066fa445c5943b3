"""How one connection logs in: SASL messages as bytes, and their exchange, once at first and again before a session ends
(KIP-368).

    nothing asked  --SaslHandshake-->  mechanism chosen  --SaslAuthenticate...-->  logged in  --SaslHandshake--> ...

After a handshake of version 1 messages come as SaslAuthenticate; after version 0, as frames that hold nothing but the
message (before KIP-152). A client that asks for anything else first is who its certificate says, or anonymous.

Rules kept here: messages are looked at one at a time, and the connection waits for admission's word. A login ends after
`MAX_ROUNDS` messages or `login_timeout_ms`. A failure is told, where the protocol has words for it, and ends the
connection. Who logs in again stays who he is and keeps his mechanism.
"""
from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from gatehouse.gateways.admission.admission import LoginsFull, NotAuthenticated
from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.kafka.error_codes import (
    ILLEGAL_SASL_STATE,
    NONE,
    SASL_AUTHENTICATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
)

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.admission.scram import ScramServer
    from gatehouse.gateways.kafka.session import KafkaSession


# --- SASL messages ------------------------------------------------------------------------------------------------

# What a client shows of itself, as bytes. Whether it is true is admission's to say.
#
#     PLAIN          authorization id NUL user NUL password                                     (RFC 4616)
#     OAUTHBEARER    n,a=AUTHORIZATION-ID, ^A auth=Bearer TOKEN ^A KEY=VALUE ^A ... ^A           (RFC 7628)
#     SCRAM-SHA-*    two rounds, see `gateways.admission`                                        (RFC 5802)
#
# An authorization id may be left out or be the user's own name: nobody acts for somebody else.

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (*reversed(SCRAM), OAUTHBEARER, PLAIN)

MAX_TOKEN_BYTES: Final = 64 << 10
"""The most bytes of one SASL message: a JWT with a hundred groups, many times over. Also the largest frame before a
login."""

_BEARER: Final = re.compile(
    rb"n,(?:a=([^\x00-\x1f,]*))?,\x01(?:[A-Za-z]+=[\x20-\x7e\r\n\t]*\x01)*?auth=bearer ([A-Za-z0-9._~+/-]+=*)\x01"
    rb"(?:[A-Za-z]+=[\x20-\x7e\r\n\t]*\x01)*\x01", re.IGNORECASE)


class SaslFault(Exception):
    """What came is no message of the mechanism."""


def read_plain(message: bytes) -> Credentials:
    """Raises SaslFault."""
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise SaslFault("the PLAIN message is not UTF-8") from None
    if len(parts) != 3:
        raise SaslFault("a PLAIN message is an authorization id, a user and a password, with a NUL between them")
    other, user, password = parts
    if not user or not password:
        raise SaslFault("a PLAIN message without user or password")
    if other not in ("", user):
        raise SaslFault("Client requested an authorization id that is different from username")
    return Credentials(user=user, password=password)


def read_bearer(message: bytes) -> tuple[Credentials, str]:
    """The token, and the user that it must be of ("": any). Raises SaslFault."""
    match = _BEARER.fullmatch(message)
    if match is None:
        raise SaslFault("an OAUTHBEARER message is n,,^Aauth=Bearer TOKEN^A^A")
    other = (match[1] or b"").decode(errors="replace").replace("=2C", ",").replace("=3D", "=")
    return Credentials(token=match[2].decode()), other


def bearer_challenge() -> bytes:
    """RFC 7628, 3.2.2: why a token is not good, before the login fails."""
    return json.dumps({"status": "invalid_token"}).encode()


# --- the exchange -------------------------------------------------------------------------------------------------

MAX_ROUNDS: Final = 4          # messages of one login: SCRAM and a failing OAUTHBEARER take two


class Round(Protocol):
    """One SASL message that waits for its answer."""

    def answer(self, message: bytes) -> None:
        """Answer the client's message: it is the other side's turn again, or the login is done."""

    def fail(self, error: int, text: str) -> None:
        """Tell the client."""


class KafkaLogin:
    """The logins of one connection. `done(principal)` is told of every one that succeeds."""

    def __init__(self, session: KafkaSession, done: Callable[[Principal], None]) -> None:
        self.mechanism = ""            # chosen by a handshake; until the login is done SASL messages come
        self.raw = False               # what comes next is a message in a frame of its own
        self.checking = False          # admission has not said yet
        self._session = session
        self._done = done
        self._before: tuple[Principal, str] | None = None      # who logged in by SASL, and how
        self._rounds = 0
        self._scram: ScramServer | None = None
        self._refused = ""             # why a token was not good: told after the client's answer to the challenge

    # ---- requests

    def choose(self, mechanism: str, version: int) -> int:
        """A SaslHandshake; returns Kafka's error for it."""
        session = self._session
        if self.mechanism or session.is_known and (self._before is None or version == 0):
            return ILLEGAL_SASL_STATE
        if mechanism not in session.config.sasl_mechanisms:
            return UNSUPPORTED_SASL_MECHANISM
        if self._before is not None and self._before[1] != mechanism:
            return ILLEGAL_SASL_STATE
        self.mechanism, self.raw = mechanism, version == 0
        self._rounds = 0
        session.login_began()
        return NONE

    def take(self, message: bytes, round: Round) -> None:
        """A SASL message of the login under way."""
        self._rounds += 1
        if self._rounds > MAX_ROUNDS or len(message) > MAX_TOKEN_BYTES:
            self._fail(round, "too many or too long messages")
            return
        try:
            if self.mechanism in SCRAM:
                self._take_scram(message, round)
            elif self._refused:            # RFC 7628, 3.2.3: answered with ^A; whatever came (sarama: text) gave up
                self._fail(round, self._refused)
            elif self.mechanism == PLAIN:
                self._ask(read_plain(message), "", round)
            else:
                self._ask(*read_bearer(message), round)
        except SaslFault as fault:
            self._fail(round, str(fault))

    # ---- mechanisms

    def _ask(self, credentials: Credentials, user: str, round: Round) -> None:
        session = self._session
        self.checking = True

        def told(answer: Principal | NotAuthenticated) -> None:
            self.checking = False
            if session.closed:
                return
            if isinstance(answer, LoginsFull):
                self._not_looked_at(answer)
            elif isinstance(answer, NotAuthenticated):
                self._not_good(str(answer), round)
            elif user not in ("", answer.name):
                self._not_good("the token is another user's", round)
            else:
                self._succeed(answer, b"", round)

        session.admission.authenticate(session.door, session.link.peer, credentials, told,
                                       lambda: session.closed or session.link.gone)

    def _take_scram(self, message: bytes, round: Round) -> None:
        session = self._session
        try:
            if self._scram is None:
                self._scram = session.admission.scram(session.door, session.link.peer, self.mechanism)
                round.answer(self._scram.first(message))
            else:
                answer, principal = self._scram.final(message)
                if self._scram.wait_ms:
                    self.checking = True
                    session.after(self._scram.wait_ms, partial(self._succeed_late, self._scram, answer, round))
                else:
                    self._succeed(principal, answer, round)
        except LoginsFull as error:
            self._not_looked_at(error)
        except NotAuthenticated as error:
            self.checking = True               # refusals are slowed, so that nobody tries passwords by the thousand
            text = str(error)
            session.after(error.delay_ms, lambda: self._refuse_late(text, round))

    def _refuse_late(self, text: str, round: Round) -> None:
        self.checking = False
        self._not_good(text, round)

    def _succeed_late(self, scram: ScramServer, message: bytes, round: Round) -> None:
        """A SCRAM proof was right, after its answer was held back: others, whose proofs were wrong, had made this user
        wait."""
        self.checking = False
        try:
            self._succeed(scram.accepted(), message, round)
        except NotAuthenticated as error:        # not any more
            self._not_good(str(error), round)

    # ---- outcomes

    def _succeed(self, principal: Principal, message: bytes, round: Round) -> None:
        before = self._before[0] if self._before is not None else principal
        if (before.name, before.tenant) != (principal.name, principal.tenant):
            self._fail(round, f"Cannot change principals during re-authentication from User.{before.name}: "
                              f"User.{principal.name}")
            return
        self._before = (principal, self.mechanism)
        try:
            self._done(principal)
        except LoginsFull as full:
            self._not_looked_at(full)
            return
        self._forget()
        round.answer(message)

    def _not_good(self, text: str, round: Round) -> None:
        if self.mechanism == OAUTHBEARER:
            self._refused = text
            round.answer(bearer_challenge())
        else:
            self._fail(round, f"Authentication failed: {text}")

    def _not_looked_at(self, busy: LoginsFull) -> None:
        """Whatever error a client is told in a login it takes for the end; who is merely cut off comes again."""
        self._session.close(f"{busy.code}: {busy}")

    def _fail(self, round: Round, text: str) -> None:
        mechanism = self.mechanism
        self._forget()
        round.fail(SASL_AUTHENTICATION_FAILED, text)
        self._session.close_when_sent(f"not_authenticated: {mechanism}: {text}")

    def _forget(self) -> None:
        self.mechanism, self.raw, self._scram, self._refused = "", False, None, ""
