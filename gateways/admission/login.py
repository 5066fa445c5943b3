"""Who is it? Every way to log in, one outcome: a principal, or a refusal that tells no more than it must.

    nobody        `anonymous`, while that is allowed
    password      remembered as proven: at once; else argon2 in a worker's thread, when its turn comes (`attempt`)
    API key       at once; as a token, or as the password of its user
    JWT           at once, unless the issuer's key set has to be read first; likewise
    certificate   at once: the TLS layer has verified it, the name must be a user's; good for as long as it is

An unknown user stands in the same queue, costs the same argon2 as a wrong password and gets the same words; failures
are counted per network and user, answered late and looked at later each time (`throttle`). Who has hung up when its
turn comes costs no argon2.
"""
from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from gatehouse.gateways.admission.accounts import Accounts, ScramSecret, User
from gatehouse.gateways.admission.attempt import (
    Attempt,
    Check,
    CheckQueue,
    Gone,
    Key,
    OnAuthenticated,
    RecentLogins,
    never,
)
from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.admission.errors import LoginsFull, NotAuthenticated
from gatehouse.gateways.admission.passwords import (
    MAX_PASSWORD_BYTES,
    SALT_BYTES,
    SCRAM_ITERATIONS,
    Proven,
    check_password,
    read_key,
    same,
)
from gatehouse.gateways.admission.ports import Outside
from gatehouse.gateways.admission.principal import BY_CERTIFICATE, BY_KEY, BY_PASSWORD, Principal
from gatehouse.gateways.admission.rules import Rule
from gatehouse.gateways.admission.scram import HASHES, REFUSED, ScramServer, name_form
from gatehouse.gateways.admission.throttle import Throttle
from gatehouse.gateways.admission.tokens import Claims, Issuer, Tokens, principal_of
from gatehouse.gateways.admission.trace import Trace
from gatehouse.kernel.ports import Timer

SAME_MAX: Final = 1024                   # logins that wait for the outcome of one check
NONCE_BYTES: Final = 24
NOBODY: Final = b""                      # the secret of no user

Way = tuple[str, str, int]
"""How a user has come: login, tenant, and when that login runs out."""


class Login:
    """All logins of one hub. `outside` None (in tests): there are no users, and refusals are not slowed."""

    def __init__(self, accounts: Accounts, anonymous: Principal, trace: Trace, now_ms: Callable[[], int],
                 wall_ms: Callable[[], int], outside: Outside | None, allow_anonymous: bool = True) -> None:
        self.allow_anonymous = allow_anonymous
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
        self._recent = RecentLogins()
        self._queue = CheckQueue(self._throttle, self._recent)
        self._timer: Timer | None = None                                       # for who waits until its delay is over
        self._timer_ms = 0
        self._checks: dict[tuple[Key, bytes], Check] = {}                      # that wait or are under way
        self._principals: dict[str, dict[Way, Principal]] = {}                 # by name

    def let_anonymous_in(self, allowed: bool) -> bool:
        """Whether peers without credentials are let in from now on; returns whether they were before."""
        before, self.allow_anonymous = self.allow_anonymous, allowed
        return before

    def authenticate(self, door: str, peer: str, credentials: Credentials, on_done: OnAuthenticated,
                     gone: Gone = never) -> None:
        """See `Admission.authenticate`."""
        user, password, token = credentials.user, credentials.password, credentials.token
        attempt = Attempt(door, peer, "", on_done, gone)
        if credentials.empty or credentials.preset and self.allow_anonymous and user not in self._accounts.users:
            self._nobody(attempt)
        elif token is not None:
            self._by_token(attempt, token, None)
        elif password is not None:
            self._by_secret(attempt, user or "", password)
        elif credentials.certificate is not None:
            self._by_certificate(attempt, credentials.certificate, credentials.certificate_ends_ms, user)
        else:
            self._refuse(attempt, "a password is needed")

    def scram(self, door: str, peer: str, mechanism: str, on_refused: Callable[[NotAuthenticated], None]
              ) -> ScramServer:
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
            self._succeeded(attempt.network, name)
            return self._principal(user, BY_PASSWORD)

        def admit(name: str) -> int:
            now_ms = self._now_ms()
            is_known = self._recent.knows(attempt.network, name)
            held = self._throttle.hold_proof(attempt.network, name, is_known, now_ms)
            if held is None:
                self._trace.on_event(door, "logins_full")
                raise LoginsFull
            if held.wait_ms and outside is not None:
                outside.loop.call_at(now_ms + held.wait_ms, held.release)
            return held.wait_ms

        def refusal(name: str) -> NotAuthenticated:
            attempt.user = name
            self._trace.on_event(door, "not_authenticated")
            refused = NotAuthenticated(REFUSED, self._failed(attempt))
            on_refused(refused)
            return refused

        return ScramServer(mechanism, nonce, find, accept, refusal, admit)

    def in_tenant(self, principal: Principal, tenant: str) -> Principal:
        """The principal of a user who logged in, but in another tenant, where the user must be allowed."""
        principals = self._principals.get(principal.name, {})
        if principal is not principals.get((principal.login, principal.tenant, principal.expires_ms)):
            return principal.elsewhere(tenant, principal.client_id)      # of a token, or known by its client id
        return principals.setdefault((principal.login, tenant, principal.expires_ms), principal.elsewhere(tenant, None))

    def forget(self, name: str) -> None:
        """Something of this user has changed: whoever comes next gets a new principal."""
        self._principals.pop(name, None)
        self.tokens.forget_user(name)

    @property
    def statistics(self) -> dict[str, int]:
        return {"passwords_waiting": len(self._queue), "throttled": len(self._throttle)}

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
        """Log in by a token. `user_name`: whom the token must name, where a door has asked for a user too."""
        attempt.user = user_name or "a token"
        key = read_key(token)
        if key is not None:
            self._by_key(attempt, *key, user_name)
            return
        principal = self.tokens.find(token)
        if principal is not None and user_name in (None, "", principal.name) and not self._keeps_out(principal.name):
            attempt.on_done(principal)
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
        """Log in by a password, or by what may be carried in its place."""
        if read_key(password) is not None or self.issuer is not None and password.count(".") == 2 \
                and password.startswith("eyJ"):                 # {" in base64: the beginning of a JWT
            self._by_token(attempt, password, name)
        else:
            self._by_password(attempt, name_form(name), password)

    def _by_password(self, attempt: Attempt, name: str, password: str) -> None:
        attempt.user = name
        user = self._let_in(name)
        if user is not None and self._proven.knows(user, password):
            attempt.on_done(self._principal(user, BY_PASSWORD))
        elif self._outside is None or len(password.encode(errors="replace")) > MAX_PASSWORD_BYTES:
            self._refuse(attempt, REFUSED)
        else:
            self._wait(attempt, user, password)

    def _wait(self, attempt: Attempt, user: User | None, password: str) -> None:
        """Let an attempt wait for its turn, together with those that showed the same password from the same network."""
        digest = self._digest(attempt.user, user, password)
        key = self._queue.key_of(attempt.network, attempt.user)
        waiting = self._checks.get((key, digest))
        if waiting is not None:
            self._join(attempt, waiting)
            return
        now_ms = self._now_ms()
        check = Check(attempt, password, digest, now_ms)
        without_place = self._queue.add(check, now_ms)
        self._checks[check.key, digest] = check
        if without_place is not None:
            self._turn_away(without_place)
        self._go_on()

    def _join(self, attempt: Attempt, check: Check) -> None:
        if len(check.attempts) < SAME_MAX:
            check.attempts.append(attempt)
        else:
            self._trace.on_event(attempt.door, "logins_full")
            attempt.on_done(LoginsFull())

    def _digest(self, name: str, user: User | None, password: str) -> bytes:
        """The key hash of everything that decides about a password: user name, stored hash, password."""
        password_hash = user.password_hash if user is not None else ""
        text = f"{name}\0{password_hash}\0{password}".encode(errors="surrogatepass")
        return hashlib.blake2b(text, key=self._secret, digest_size=16).digest()

    def _turn_away(self, check: Check) -> None:
        """Refuse a check that has no place in the queue. Nothing was looked at, so nothing is held against anybody."""
        del self._checks[check.key, check.digest]
        for attempt in check.attempts:
            self._trace.on_event(attempt.door, "logins_full")
            attempt.on_done(LoginsFull())

    def _go_on(self) -> None:
        """Begin the checks that may begin, and come again when a delay is over."""
        while (check := self._queue.take(self._now_ms())) is not None:
            self._begin(check)
        wake_ms = self._queue.wake_ms
        if wake_ms == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = wake_ms
        assert self._outside is not None
        self._timer = self._outside.loop.call_at(wake_ms, self._on_timer) if wake_ms else None

    def _on_timer(self) -> None:
        self._timer, self._timer_ms = None, 0
        self._go_on()

    def _begin(self, check: Check) -> None:
        """Check a password in a worker, unless nobody waits for the answer any more, or it has been found meanwhile."""
        assert self._outside is not None
        self._drop_gone(check)
        user = self._let_in(check.user)
        proven = user is not None and self._proven.knows(user, check.password)
        if not check.attempts or proven:
            self._end(check)
            if user is not None:
                self._admit(check, user)
            return
        password_hash, password = user.password_hash if user is not None else "", check.password
        self._outside.passwords.submit(lambda: check_password(password_hash, password),
                                       lambda right, _: self._on_checked(check, password_hash, bool(right)))

    def _drop_gone(self, check: Check) -> None:
        """Drop the attempts of clients that have hung up. Each is told so: its connection, which was not read
        meanwhile, ends."""
        attempts, check.attempts = check.attempts, []
        for attempt in attempts:
            if attempt.gone():
                self._trace.on_event(attempt.door, "login_gone")
                attempt.on_done(NotAuthenticated("the client has gone"))
            else:
                check.attempts.append(attempt)

    def _on_checked(self, check: Check, password_hash: str, right: bool) -> None:
        user = self._let_in(check.user)
        if right and user is not None and user.password_hash == password_hash:    # nothing changed while it was checked
            self._succeeded(check.network, check.user)
            self._proven.remember(user, check.password)
            self._end(check)
            self._admit(check, user)
        else:
            delay_ms = self._failed(check)           # one guess, however many have shown it
            self._end(check)
            for attempt in check.attempts:
                self._trace.on_event(attempt.door, "not_authenticated")
                self._tell_late(attempt, NotAuthenticated(REFUSED, delay_ms))
        self._go_on()

    def _end(self, check: Check) -> None:
        """Remove a check that is over from the queue."""
        del self._checks[check.key, check.digest]
        self._queue.done(check, self._now_ms())

    def _admit(self, check: Check, user: User) -> None:
        for attempt in check.attempts:
            attempt.on_done(self._principal(user, BY_PASSWORD))

    def _scram_secret(self, mechanism: str, name: str) -> ScramSecret:
        """The user's SCRAM secret. Where there is none: a secret that no password fits. Its salt is the same each time,
        also after a start, and another for each mechanism, as with secrets that were made of a password."""
        user = self._let_in(name)
        secret = user.scram.get(mechanism) if user is not None else None
        if secret is not None:
            return secret
        text = f"{mechanism}\0{name}".encode(errors="surrogatepass")
        made_up = hashlib.blake2b(text, key=self._lasting_secret, digest_size=64).digest()
        return ScramSecret(made_up[:SALT_BYTES], SCRAM_ITERATIONS, made_up[SALT_BYTES:], made_up[SALT_BYTES:])

    # ---- outcomes

    def _let_in(self, name: str) -> User | None:
        """The user, if there is one that may log in."""
        user = self._accounts.users.get(name)
        return user if user is not None and user.may_log_in(self._wall_ms()) else None

    def _keeps_out(self, name: str) -> bool:
        """Whether a user of this name exists but may not log in; then a token for it is refused, too."""
        return name in self._accounts.users and self._let_in(name) is None

    def is_gone(self, name: str) -> bool:
        """Whether nobody may come by this name: its user is kept out, or there is none and no token may name one."""
        if name == self._anonymous.name:
            return not self.allow_anonymous
        return self._keeps_out(name) or self.issuer is None and name not in self._accounts.users

    def _principal(self, user: User, login: str, expires_ms: int = 0,
                   restriction: tuple[Rule, ...] | None = None) -> Principal:
        principals = self._principals.setdefault(user.name, {})
        way = login, user.tenant, expires_ms
        principal = principals.get(way)
        if principal is None:
            if expires_ms:
                self._forget_expired(principals)
            principal = principals[way] = Principal(user.name, user.tenant, tenants=user.tenants, login=login,
                                                    expires_ms=expires_ms, restriction=restriction)
        return principal

    def _forget_expired(self, principals: dict[Way, Principal]) -> None:
        """Forget principals whose login has run out: certificates that last for hours are many over the years."""
        wall_ms = self._wall_ms()
        for way in [way for way, principal in principals.items() if 0 < principal.expires_ms <= wall_ms]:
            del principals[way]

    def _succeeded(self, network: str, name: str) -> None:
        """A password, or a proof of it, was looked at and is right."""
        self._throttle.on_success(network, name, self._recent.knows(network, name), self._now_ms())
        self._recent.remember(network, name)

    def _failed(self, guess: Attempt | Check) -> int:
        """Count one failure more; returns for how many ms the answer is held back."""
        self._recent.forget(guess.network, guess.user)
        return self._throttle.on_failure(guess.network, guess.user, self._now_ms())

    def _refuse(self, attempt: Attempt, why: str) -> None:
        self._trace.on_event(attempt.door, "not_authenticated")
        self._tell_late(attempt, NotAuthenticated(why, self._failed(attempt)))

    def _tell_late(self, attempt: Attempt, refusal: NotAuthenticated) -> None:
        if self._outside is None:
            attempt.on_done(refusal)
        else:
            self._outside.loop.call_at(self._now_ms() + refusal.delay_ms, lambda: attempt.on_done(refusal))
