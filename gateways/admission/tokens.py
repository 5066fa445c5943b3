"""JWTs (RFC 7519): what a token says of its bearer, and the issuer's key set: read by another thread, kept, and read
again when it is due. Pure but for what it is handed.

The rules (RFC 8725): algorithms come from the configuration and are asymmetric, never `none`, never HS*, so a
public key is no secret to sign with. A key is used only with the algorithms of its type. Issuer, audience and expiry
are demanded. `nbf` and `iat` in the future are refused, beyond the leeway.

A key set that cannot be read leaves the one from before in use; where that goes on, a circuit opens, and the issuer is
asked once a minute, then less often. Where it has mirrors they are asked in turn, and one that fails is followed by the
next at once (`gateways.circuits`). A token of an unknown key has it read at once, but not more often than `refetch_s`,
whatever tokens come: the waiting ones are answered together.
"""
from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import jwt

from gatehouse.gateways.admission.accounts import check_tenant_name
from gatehouse.gateways.admission.errors import InvalidUser, NotAuthenticated
from gatehouse.gateways.admission.ports import Outside
from gatehouse.gateways.admission.principal import ANONYMOUS, BY_TOKEN, DEFAULT_TENANT, Principal
from gatehouse.gateways.circuits import NOBODY
from gatehouse.kernel.ports import Timer

if TYPE_CHECKING:
    from gatehouse.gateways.circuits import TargetCircuits

MAX_TOKEN_BYTES: Final = 16_384
MAX_KEYS: Final = 100                    # of one key set
KEY_SETS_MAX: Final = 10                 # addresses of one key set
TOKENS_MAX: Final = 10_000               # verified tokens that are remembered until they expire; about 5 MB
MAX_GROUPS: Final = 200                  # that a token may name
MAX_NAME_CHARACTERS: Final = 255
MIN_RSA_BITS: Final = 2048              # RFC 7518, 3.3
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

ALGORITHMS_OF: Final[Mapping[str, frozenset[str]]] = {
    "RSA": frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    "EC": frozenset(("ES256", "ES384", "ES512")), "OKP": frozenset(("EdDSA",))}
ALGORITHMS: Final = frozenset().union(*ALGORITHMS_OF.values())

WAITING_MAX: Final = 1000                # tokens that wait for a key set


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """[auth.jwt]"""

    jwks: str = field(metadata={
        "help": "The issuer's key set: a file, from the folder of the configuration file on, or an https address (http "
                "on loopback)."})
    issuer: str = field(metadata={"help": "What `iss` must be."})
    audience: str = field(metadata={"help": "What `aud` must be, or contain."})
    algorithms: tuple[str, ...] = field(default=("RS256", "ES256", "EdDSA"), metadata={
        "min": 1, "help": "Signatures that are believed: of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, "
                          "ES512, EdDSA. Never `none`, never HS*."})
    leeway_s: int = field(default=30, metadata={
        "min": 0, "max": 300, "help": "How far the issuer's clock may be off, in seconds."})
    user_claim: str = field(default="sub", metadata={"help": "The claim that names the user."})
    groups_claim: str = field(default="", metadata={
        "help": "The claim that names its groups, a list or words with spaces between; empty: tokens name none. "
                "Whoever may issue tokens with the group `admins` may do everything."})
    tenant_claim: str = field(default="", metadata={
        "help": "The claim that names its tenant; empty: the account's, or `/`."})
    refresh_s: int = field(default=3600, metadata={
        "min": 60, "max": 604_800, "help": "How often the key set is read again, in seconds."})
    refetch_s: int = field(default=60, metadata={
        "min": 1, "max": 86_400,
        "help": "A token of an unknown key has the key set read at once, but not more often than this, in seconds."})

    jwks_mirrors: tuple[str, ...] = field(default=(), metadata={
        "help": "Further https addresses of the same key set, asked in turn with `jwks`: where one does not answer the "
                "next is asked at once, and it is left alone for a while."})

    @property
    def key_sets(self) -> tuple[str, ...]:
        """Where the key set is."""
        return (self.jwks, *self.jwks_mirrors)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.algorithms) - ALGORITHMS)
        if unknown:
            raise ValueError(f"algorithms holds {unknown[0]!r}, which is none of {', '.join(sorted(ALGORITHMS))}")
        for name in ("jwks", "issuer", "audience", "user_claim"):
            if not getattr(self, name):
                raise ValueError(f"{name} is needed")
        if "://" in self.jwks:
            _check_address(self.jwks)
        for mirror in self.jwks_mirrors:
            _check_address(mirror)
        if len(set(self.key_sets)) < len(self.key_sets) or len(self.key_sets) > KEY_SETS_MAX:
            raise ValueError(f"jwks and jwks_mirrors are {KEY_SETS_MAX} addresses at most, each of them once")


def _check_address(url: str) -> None:
    """Raises ValueError where a key set that is read from there could be anybody's."""
    parts = urlsplit(url)
    if not parts.hostname or parts.username is not None:
        raise ValueError("jwks is a file, or an https address with a host and no user")
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise ValueError("jwks is read by https; http is for loopback only")


@dataclass(frozen=True, slots=True)
class Claims:
    """The fields of a token that say who its bearer is."""

    user: str
    tenant: str | None
    groups: frozenset[str]
    expires_ms: int


class UnknownKid(Exception):
    """The token names a key that is not in the set: the issuer may have a new one."""


class KeySet:
    """The keys of a JWKS document (RFC 7517), by their ids."""

    def __init__(self, document: bytes) -> None:
        """Raises ValueError."""
        parsed = json.loads(document)
        entries = parsed.get("keys") if isinstance(parsed, dict) else None
        if not isinstance(entries, list) or len(entries) > MAX_KEYS:
            raise ValueError(f"no JWK set, or one of more than {MAX_KEYS} keys")
        self.digest = hashlib.sha256(document).digest()
        self._keys: dict[str | None, list[tuple[frozenset[str], Any]]] = {}
        for entry in entries:
            key = _read_key(entry)
            if key is not None:
                self._keys.setdefault(entry.get("kid"), []).append(key)
        if not self._keys:
            raise ValueError("the JWK set holds no key that could be used: a public one for signatures, RSA from "
                             f"{MIN_RSA_BITS} bits, EC or OKP")

    def find(self, kid: str | None, algorithm: str) -> Any:
        """The key of this id for this algorithm, None where it is for others (RFC 7517, 4.5: keys of several types may
        have one id). A token that names none takes the only one. Raises UnknownKid."""
        if kid is None and len(self._keys) == 1:
            kid = next(iter(self._keys))
        if kid not in self._keys:
            raise UnknownKid
        return next((key for algorithms, key in self._keys[kid] if algorithm in algorithms), None)


def _read_key(entry: Any) -> tuple[frozenset[str], Any] | None:
    """None for a key that verifies no signatures here: one of another use or of an unknown type, one that is too short,
    or one that is no public key. Symmetric ones are never used."""
    if not isinstance(entry, dict) or not isinstance(entry.get("kid", ""), str) or "d" in entry \
            or entry.get("use", "sig") != "sig" or not _verifies(entry.get("key_ops")):
        return None
    try:
        algorithms = ALGORITHMS_OF.get(str(entry.get("kty")), frozenset())
        if "alg" in entry:
            algorithms &= {entry["alg"]}
        if not algorithms:
            return None
        key = jwt.PyJWK(entry, algorithm=_first_algorithm(entry, algorithms)).key
    except (jwt.PyJWTError, ValueError, KeyError, TypeError):
        return None
    is_short = entry["kty"] == "RSA" and key.key_size < MIN_RSA_BITS
    return None if is_short else (algorithms, key)


def _verifies(operations: Any) -> bool:
    """What `key_ops` (RFC 7517, 4.3) allows; nothing said allows it."""
    return operations is None or isinstance(operations, list) and "verify" in operations


def _first_algorithm(entry: Mapping[str, Any], algorithms: frozenset[str]) -> str:
    by_curve = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
    return by_curve.get(str(entry.get("crv")), sorted(algorithms)[0])


def read_claims(token: str, keys: KeySet, settings: JwtSettings, now_s: float) -> Claims:
    """Verify and read a token. Raises NotAuthenticated, and UnknownKid."""
    try:
        header = jwt.get_unverified_header(token)
        kid = header.get("kid")
        algorithm = str(header.get("alg"))
        key = keys.find(kid if isinstance(kid, str) else None, algorithm)
        if key is None or algorithm not in settings.algorithms:
            raise NotAuthenticated("the token is not signed as the configuration says")
        claims = jwt.decode(token, key, algorithms=[algorithm], audience=settings.audience, issuer=settings.issuer,
                            options={"require": ["exp", "iss", "aud"], "verify_exp": False, "verify_nbf": False,
                                     "verify_iat": False, "verify_sub": False})
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise NotAuthenticated(f"the token is not valid: {type(error).__name__}") from None
    return _read(claims, settings, now_s)


def _read(claims: Mapping[str, Any], settings: JwtSettings, now_s: float) -> Claims:
    """Times against the hub's clock, which tests can turn; then who it is."""
    leeway_s = settings.leeway_s
    expires_s = _number(claims, "exp") + leeway_s
    if expires_s <= now_s:
        raise NotAuthenticated("the token has expired")
    for name in ("nbf", "iat"):
        if name in claims and _number(claims, name) > now_s + leeway_s:
            raise NotAuthenticated("the token is not valid yet")
    user = claims.get(settings.user_claim)
    if not isinstance(user, str) or not 0 < len(user) <= MAX_NAME_CHARACTERS or not user.isprintable() \
            or user == ANONYMOUS:
        raise NotAuthenticated("the token names no user")
    tenant = claims.get(settings.tenant_claim) if settings.tenant_claim else None
    if tenant is not None:
        _check_tenant(tenant)
    return Claims(user, tenant, _read_groups(claims, settings.groups_claim), int(expires_s * 1000))


def _check_tenant(tenant: Any) -> None:
    try:
        if not isinstance(tenant, str):
            raise InvalidUser
        check_tenant_name(tenant)
    except InvalidUser:
        raise NotAuthenticated("the token's tenant is no tenant's name") from None


def _number(claims: Mapping[str, Any], name: str) -> float:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e12 < value < 1e12:
        raise NotAuthenticated(f"the token's {name} is no time")
    return float(value)


def _read_groups(claims: Mapping[str, Any], claim: str) -> frozenset[str]:
    groups = claims.get(claim, []) if claim else []
    names = groups.split() if isinstance(groups, str) else groups
    if not isinstance(names, list) or len(names) > MAX_GROUPS or not all(isinstance(name, str) for name in names):
        raise NotAuthenticated("the token's groups are no list of texts")
    return frozenset(names)


class Tokens:
    """Verified tokens and their principals, by hash, until they expire."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._known: dict[bytes, Principal] = {}

    def find(self, token: str) -> Principal | None:
        digest = _digest(token)
        principal = self._known.get(digest)
        if principal is not None and principal.expires_ms <= self._wall_ms():
            del self._known[digest]
            return None
        return principal

    def remember(self, token: str, principal: Principal) -> None:
        if len(self._known) >= TOKENS_MAX:
            del self._known[next(iter(self._known))]
        self._known[_digest(token)] = principal

    def forget_user(self, name: str) -> None:
        self._known = {digest: principal for digest, principal in self._known.items() if principal.name != name}

    def clear(self) -> None:
        self._known.clear()


def principal_of(claims: Claims, home: str | None, tenants: frozenset[str]) -> Principal:
    """Who bears the token; `home` and `tenants` are those of the account of this name, if there is one."""
    return Principal(claims.user, claims.tenant or home or DEFAULT_TENANT, tenants=tenants, groups=claims.groups,
                     expires_ms=claims.expires_ms, login=BY_TOKEN)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


OnClaims = Callable[[Claims | NotAuthenticated], None]


class Issuer:
    """One `[auth.jwt]`, behind `circuits` of its addresses. `on_failure` is told in a sentence, once until it is well
    again; `on_other_keys` when what was verified by the keys of before is to be verified anew."""

    def __init__(self, settings: JwtSettings, outside: Outside, circuits: TargetCircuits,
                 on_failure: Callable[[str], None], on_other_keys: Callable[[], None]) -> None:
        self.settings = settings
        self.failures = 0
        self._outside = outside
        self._circuits = circuits
        self._tries = 0                  # one after the other, of the addresses
        self._on_failure = on_failure
        self._on_other_keys = on_other_keys
        self._keys: KeySet | None = None
        self._fetching = False
        self._fetched_ms = 0             # when the last try ended
        self._failing = False
        self._closed = False
        self._waiting: list[tuple[str, OnClaims]] = []
        self._timer: Timer | None = None
        self._fetch()

    def read_again(self) -> None:
        """Read the key set again: somebody has changed it, and says so."""
        for circuit in dict.fromkeys((self._circuits.whole, *self._circuits.each)):
            if not circuit.by_hand:
                circuit.close()
        self._fetch()

    def on_circuit(self) -> None:
        """People have opened the circuit, or closed it."""
        self._fetch()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._answer_waiting()

    def check(self, token: str, on_claims: OnClaims) -> None:
        """Tell what the token says, before this returns unless the key set has to be read for it."""
        if len(token) > MAX_TOKEN_BYTES:
            on_claims(NotAuthenticated(f"a token of more than {MAX_TOKEN_BYTES} bytes"))
            return
        claims = self._read(token)
        if claims is not None:
            on_claims(claims)
        elif len(self._waiting) < WAITING_MAX and (self._fetching or self._may_fetch()):
            self._waiting.append((token, on_claims))
            self._fetch()
        else:
            on_claims(NotAuthenticated("the token's key is unknown"))

    def _read(self, token: str) -> Claims | NotAuthenticated | None:
        """Read a token's claims with the keys that are known; None where its key is not."""
        if self._keys is None:
            return None
        try:
            return read_claims(token, self._keys, self.settings, self._outside.loop.wall_ms() / 1000)
        except UnknownKid:
            return None
        except NotAuthenticated as refusal:
            return refusal

    def _may_fetch(self) -> bool:
        now_ms = self._outside.loop.now_ms()
        return not self._closed and self._circuits.whole.would_pass(now_ms) and \
            now_ms >= self._fetched_ms + self.settings.refetch_s * 1000

    def _fetch(self) -> None:
        now_ms = self._outside.loop.now_ms()
        if self._fetching or self._closed:
            return
        target = self._circuits.choose(now_ms)
        if target == NOBODY:
            return
        self._fetching = True
        self._tries += 1
        fetch, where = self._outside.fetch, self.settings.key_sets[target]
        self._outside.fetching.submit(lambda: KeySet(fetch(where)), partial(self._on_fetched, target, now_ms))

    def _on_fetched(self, target: int, began_ms: int, keys: KeySet | None, error: BaseException | None) -> None:
        self._fetching = False
        loop = self._outside.loop
        self._fetched_ms = loop.now_ms()
        self._circuits.note(target, keys is not None, self._fetched_ms, self._fetched_ms - began_ms, str(error or ""))
        if keys is not None:
            others = self._keys is not None and self._keys.digest != keys.digest
            self._keys, self._failing = keys, False
            if others:
                self._on_other_keys()
        else:
            self.failures += 1
            if self._tries < len(self.settings.key_sets):
                self._fetch()
                if self._fetching:
                    return
            if not self._failing:
                self._failing = True
                self._on_failure(f"auth.jwt.jwks {self.settings.key_sets[target]} cannot be read: {error}; it is tried "
                                 "again")
        self._tries = 0
        if not self._closed:
            wait_s = self.settings.refetch_s if keys is None else self.settings.refresh_s
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(max(self._fetched_ms + wait_s * 1000, self._circuits.until_ms), self._fetch)
        self._answer_waiting()

    def _answer_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for token, on_claims in waiting:
            on_claims(self._read(token) or NotAuthenticated("the token's key is unknown"))
