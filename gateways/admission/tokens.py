"""JWTs (RFC 7519): the issuer's key set, and what a token says of its bearer. Pure but for what it is handed.

The rules (RFC 8725): algorithms come from the configuration and are asymmetric, never `none`, never HS*, so a
public key is no secret to sign with. A key is used only with the algorithms of its type. Issuer, audience and expiry
are demanded. `nbf` and `iat` in the future are refused, beyond the leeway.
"""
from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import jwt

from gatehouse.gateways.admission.accounts import check_tenant_name
from gatehouse.gateways.admission.errors import InvalidUser, NotAuthenticated
from gatehouse.gateways.admission.principal import ANONYMOUS, BY_TOKEN, DEFAULT_TENANT, Principal

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
