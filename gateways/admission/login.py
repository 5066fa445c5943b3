"""Who is it? Every way to log in, one outcome: a principal, or a refusal that tells no more than it must.

    nobody        `anonymous`, while that is allowed
    password      remembered as proven: at once; else argon2 in a worker's thread, equal ones checked once
    API key       at once; as a token, or as the password of its user
    JWT           at once, unless the issuer's key set has to be read first; likewise
    certificate   at once: the TLS layer has verified it, the name must be a user's; good for as long as it is

An unknown user costs the same argon2 as a wrong password and gets the same words; refusals are counted per (peer,
user) and answered late (`throttle`).
"""
from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Final

from gateways.admission.accounts import Accounts, ScramSecret, User
from gateways.admission.api_keys import read_key
from gateways.admission.credentials import Credentials
from gateways.admission.errors import NotAuthenticated
from gateways.admission.issuer import Issuer
from gateways.admission.passwords import MAX_PASSWORD_BYTES, SALT_BYTES, SCRAM_ITERATIONS, Proven, check_password, same
from gateways.admission.ports import Outside
from gateways.admission.principal import BY_CERTIFICATE, BY_KEY, BY_PASSWORD, Principal
from gateways.admission.rules import Rule
from gateways.admission.saslprep import ForbiddenCharacter, saslprep
from gateways.admission.scram import HASHES, REFUSED, ScramServer
from gateways.admission.throttle import Throttle, host_of
from gateways.admission.tokens import Claims, Tokens, principal_of
from gateways.admission.trace import Trace

CHECKS_MAX: Final = 2048                 # passwords that wait for the worker: at 25 ms each, nearly a minute
GUESSES_MAX: Final = 8                   # different passwords of one user from one address that are checked at a time
GUEST: Final = ("guest", "guest")        # what AMQP clients send unless told otherwise: RabbitMQ's default account
NONCE_BYTES: Final = 24
NOBODY: Final = b""                      # the secret of no user

OnAuthenticated = Callable[[Principal | NotAuthenticated], None]

Way = tuple[str, str, int]
"""How a user has come: login, tenant, and when that login runs out."""


class Attempt:
    """One try to log in."""

    __slots__ = ("door", "on_done", "peer", "user")

    def __init__(self, door: str, peer: str, user: str, on_done: OnAuthenticated) -> None:
        self.door = door
        self.peer = peer
        self.user = user
        """Whom its failure is counted under."""

        self.on_done = on_done


class Login:
    """All logins of one hub. `outside` None (in tests): there are no users, and refusals are not slowed."""

    def __init__(self, accounts: Accounts, anonymous: Principal, trace: Trace, now_ms: Callable[[], int],
                 wall_ms: Callable[[], int], outside: Outside | None) -> None:
        self.allow_anonymous = True
        self.issuer: Issuer | None = None
        self.tokens = Tokens(wall_ms)
        self._accounts = accounts
        self._anonymous = anonymous
        self._trace = trace
        self._now_ms = now_ms                # delays and throttles,
        self._wall_ms = wall_ms              # what expires at a time
        self._outside = outside
        self._secret = outside.random(32) if outside is not None else bytes(32)
        self._lasting_secret = outside.lasting_secret if outside is not None else bytes(32)
        self._proven = Proven(self._secret, now_ms)
        self._throttle = Throttle()
        self._principals: dict[str, dict[Way, Principal]] = {}                 # by name
        self._checking: dict[bytes, list[Attempt]] = {}                        # who waits for the same password
        self._guesses: Counter[tuple[str, str]] = Counter()          # being checked, of (address, user)

    def authenticate(self, door: str, peer: str, credentials: Credentials, on_done: OnAuthenticated) -> None:
        """See `Admission.authenticate`."""
        user, password, token = credentials.user, credentials.password, credentials.token
        attempt = Attempt(door, peer, "", on_done)
        if credentials.empty:
            self._nobody(attempt)
        elif token is not None:
            self._by_token(attempt, token, None)
        elif password is not None:
            self._by_secret(attempt, user or "", password)
        elif credentials.certificate is not None:
            self._by_certificate(attempt, credentials.certificate, credentials.certificate_ends_ms, user)
        else:
            self._refuse(attempt, "a password is needed")

    def scram(self, door: str, peer: str, mechanism: str) -> ScramServer:
        """See `Admission.scram`."""
        if mechanism not in HASHES:
            raise ValueError(f"{mechanism[:40]!r} is none of {', '.join(HASHES)}")
        outside = self._outside
        nonce = (outside.random(NONCE_BYTES) if outside is not None else bytes(NONCE_BYTES)).hex()
        attempt = Attempt(door, peer, "", lambda _: None)
        shown: list[ScramSecret] = []

        def find(name: str) -> ScramSecret:
            shown.append(self._scram_secret(mechanism, name))
            return shown[0]

        def accept(name: str) -> Principal:
            user = self._let_in(name)
            if user is None or user.scram.get(mechanism) != shown[0]:
                raise refusal(name)          # something has changed between its two messages
            self._throttle.on_success(peer, name)
            return self._principal(user, BY_PASSWORD)

        def admit(name: str) -> int | None:
            now_ms = self._now_ms()
            wait_ms = self._throttle.wait_ms(peer, name, now_ms)
            if wait_ms and outside is not None:
                outside.loop.call_at(now_ms + wait_ms, lambda: self._throttle.waited(peer, name))
            return wait_ms

        def refusal(name: str) -> NotAuthenticated:
            attempt.user = name
            return NotAuthenticated(REFUSED, self._count(attempt))

        return ScramServer(mechanism, nonce, find, accept, refusal, admit)

    def in_tenant(self, principal: Principal, tenant: str) -> Principal:
        """The same user there, who may be there."""
        known = self._principals.get(principal.name, {})
        if principal is not known.get((principal.login, principal.tenant, principal.expires_ms)):
            return principal.elsewhere(tenant, principal.client_id)      # of a token, or known by its client id
        return known.setdefault((principal.login, tenant, principal.expires_ms), principal.elsewhere(tenant, None))

    def forget(self, name: str) -> None:
        """Something of this user has changed: whoever comes next gets a new principal."""
        self._principals.pop(name, None)
        self.tokens.forget_user(name)

    @property
    def statistics(self) -> dict[str, int]:
        return {"passwords_waiting": len(self._checking), "throttled": len(self._throttle)}

    # ---- without a secret

    def _nobody(self, attempt: Attempt) -> None:
        if self.allow_anonymous:
            attempt.on_done(self._anonymous)
        else:
            self._trace.on_event(attempt.door, "not_authenticated")
            attempt.on_done(NotAuthenticated("credentials are needed"))       # not slowed: nothing was tried

    def _by_certificate(self, attempt: Attempt, name: str, ends_ms: int, user_name: str | None) -> None:
        attempt.user = name
        user = self._let_in(name)
        if user is None or user_name not in (None, "", name):
            self._refuse(attempt, "the certificate's name is no user's, or another than the one that was given")
        elif 0 < ends_ms <= self._wall_ms():
            self._refuse(attempt, "the certificate has expired")         # since the handshake
        else:
            attempt.on_done(self._principal(user, BY_CERTIFICATE, ends_ms))

    # ---- tokens and keys

    def _by_token(self, attempt: Attempt, token: str, user_name: str | None) -> None:
        """`user_name` is who must be meant by it, where a door has asked for a user too."""
        attempt.user = user_name or "a token"
        key = read_key(token)
        if key is not None:
            self._by_key(attempt, *key, user_name)
            return
        known = self.tokens.find(token)
        if known is not None and user_name in (None, "", known.name) and not self._keeps_out(known.name):
            attempt.on_done(known)
        elif self.issuer is None:
            self._refuse(attempt, "this hub takes API keys, and no other tokens")
        else:
            self.issuer.check(token, lambda claims: self._on_claims(attempt, token, claims, user_name))

    def _on_claims(self, attempt: Attempt, token: str, claims: Claims | NotAuthenticated,
                   user_name: str | None) -> None:
        if isinstance(claims, NotAuthenticated):
            self._refuse(attempt, str(claims))
            return
        if self._keeps_out(claims.user) or user_name not in (None, "", claims.user):
            self._refuse(attempt, REFUSED)
            return
        user = self._accounts.users.get(claims.user)
        home, tenants = (None, frozenset[str]()) if user is None else (user.tenant, user.tenants | {user.tenant})
        principal = self.tokens.find(token) or principal_of(claims, home, tenants)
        self.tokens.remember(token, principal)
        attempt.on_done(principal)

    def _by_key(self, attempt: Attempt, id: str, secret_hash: str, user_name: str | None) -> None:
        attempt.user = BY_KEY + id
        key = self._accounts.keys.get(id)
        user = self._let_in(key.user) if key is not None else None
        if key is None or user is None or not same(key.secret_hash, secret_hash) \
                or user_name not in (None, "", user.name) or 0 < key.expires_ms <= self._wall_ms():
            self._refuse(attempt, "an unknown, revoked or expired API key")
        else:
            attempt.on_done(self._principal(user, BY_KEY + id, key.expires_ms, key.restriction))

    # ---- passwords

    def _by_secret(self, attempt: Attempt, name: str, password: str) -> None:
        """A password, or what may be carried in its place."""
        if self.allow_anonymous and attempt.door == "amqp" and (name, password) == GUEST \
                and GUEST[0] not in self._accounts.users:
            attempt.on_done(self._anonymous)
        elif read_key(password) is not None or self.issuer is not None and password.count(".") == 2 \
                and password.startswith("eyJ"):                 # {" in base64: the beginning of a JWT
            self._by_token(attempt, password, name)
        else:
            self._by_password(attempt, _prepared(name), password)

    def _by_password(self, attempt: Attempt, name: str, password: str) -> None:
        attempt.user = name
        user = self._let_in(name)
        if user is not None and self._proven.knows(user, password):
            attempt.on_done(self._principal(user, BY_PASSWORD))
            return
        outside = self._outside
        if outside is None or len(password.encode(errors="replace")) > MAX_PASSWORD_BYTES:
            self._refuse(attempt, REFUSED)
            return
        wait_ms = self._throttle.wait_ms(attempt.peer, name, self._now_ms())
        if wait_ms is None:
            self._refuse(attempt, REFUSED)
        elif wait_ms:
            outside.loop.call_at(self._now_ms() + wait_ms, lambda: self._after_waiting(attempt, password))
        else:
            self._check(attempt, user, password, outside)

    def _after_waiting(self, attempt: Attempt, password: str) -> None:
        assert self._outside is not None
        self._throttle.waited(attempt.peer, attempt.user)
        self._check(attempt, self._let_in(attempt.user), password, self._outside)

    def _check(self, attempt: Attempt, user: User | None, password: str, outside: Outside) -> None:
        """By the worker; who comes with the same password meanwhile is told with the first."""
        password_hash = user.password_hash if user is not None else ""
        text = f"{attempt.user}\0{password_hash}\0{password}".encode(errors="surrogatepass")
        same_one = hashlib.blake2b(text, key=self._secret, digest_size=16).digest()
        waiting = self._checking.get(same_one)
        if waiting is not None:
            waiting.append(attempt)
            return
        if len(self._checking) >= CHECKS_MAX:
            self._trace.on_event(attempt.door, "logins_full")
            self._refuse(attempt, "too many logins are waiting")
            return
        guesser = host_of(attempt.peer), attempt.user
        if self._guesses[guesser] >= GUESSES_MAX:
            self._refuse(attempt, REFUSED)
            return
        self._guesses[guesser] += 1
        self._checking[same_one] = [attempt]
        outside.passwords.submit(lambda: check_password(password_hash, password),
                                 lambda right, _: self._on_checked(same_one, user, password, bool(right)))

    def _on_checked(self, same_one: bytes, user: User | None, password: str, right: bool) -> None:
        attempts = self._checking.pop(same_one)
        guesser = host_of(attempts[0].peer), attempts[0].user
        self._guesses[guesser] -= 1
        if not self._guesses[guesser]:
            del self._guesses[guesser]
        current = self._let_in(attempts[0].user)
        right = right and user is not None and current is not None \
            and current.password_hash == user.password_hash              # nothing changed while it was checked
        for attempt in attempts:
            if right and current is not None:
                self._throttle.on_success(attempt.peer, attempt.user)
                self._proven.remember(current, password)
                attempt.on_done(self._principal(current, BY_PASSWORD))
            else:
                self._refuse(attempt, REFUSED)

    def _scram_secret(self, mechanism: str, name: str) -> ScramSecret:
        """The user's; where there is none, one that no password fits, with a salt that is the same each time, also
        after a start, and another for each mechanism: as those are that were made of a password."""
        user = self._let_in(name)
        known = user.scram.get(mechanism) if user is not None else None
        if known is not None:
            return known
        text = f"{mechanism}\0{name}".encode(errors="surrogatepass")
        made_up = hashlib.blake2b(text, key=self._lasting_secret, digest_size=64).digest()
        return ScramSecret(made_up[:SALT_BYTES], SCRAM_ITERATIONS, made_up[SALT_BYTES:], made_up[SALT_BYTES:])

    # ---- outcomes

    def _let_in(self, name: str) -> User | None:
        """The user, if there is one that may log in."""
        user = self._accounts.users.get(name)
        return user if user is not None and user.may_log_in(self._wall_ms()) else None

    def _keeps_out(self, name: str) -> bool:
        """Whether there is such a user that may not log in, by nobody's token either."""
        return name in self._accounts.users and self._let_in(name) is None

    def _principal(self, user: User, login: str, expires_ms: int = 0,
                   restriction: tuple[Rule, ...] | None = None) -> Principal:
        known = self._principals.setdefault(user.name, {})
        way = login, user.tenant, expires_ms
        principal = known.get(way)
        if principal is None:
            if expires_ms:
                self._forget_expired(known)
            principal = known[way] = Principal(user.name, user.tenant, tenants=user.tenants, login=login,
                                               expires_ms=expires_ms, restriction=restriction)
        return principal

    def _forget_expired(self, known: dict[Way, Principal]) -> None:
        """Certificates of hours are many over the years."""
        wall_ms = self._wall_ms()
        for way in [way for way, one in known.items() if 0 < one.expires_ms <= wall_ms]:
            del known[way]

    def _count(self, attempt: Attempt) -> int:
        """One more failure; returns for how many ms it is held back."""
        self._trace.on_event(attempt.door, "not_authenticated")
        return self._throttle.on_failure(attempt.peer, attempt.user, self._now_ms())

    def _refuse(self, attempt: Attempt, why: str) -> None:
        refusal = NotAuthenticated(why, self._count(attempt))
        if self._outside is None:
            attempt.on_done(refusal)
        else:
            self._outside.loop.call_at(self._now_ms() + refusal.delay_ms, lambda: attempt.on_done(refusal))


def _prepared(name: str) -> str:
    try:
        return saslprep(name)
    except ForbiddenCharacter:
        return name                          # nobody is called that
