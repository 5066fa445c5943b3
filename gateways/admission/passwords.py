"""Passwords: argon2id hashes, SCRAM secrets made beside them, and the memory of what was proven recently. And API keys.

    hash_password, check_password    20 to 30 ms of a core each, without the interpreter's lock: a worker's thread calls
    scram_secrets                    2 * 8,192 rounds of HMAC, some 10 ms
    Proven                           a keyed hash per (user, password) that was right lately: microseconds

The worker's queue is bounded in `attempt`; nothing here logs, and no text of an error holds a password.

An API key is `gh_ID_SECRET`: the id finds the key, the secret proves it; only a hash of the secret is kept. The secret
is 32 random bytes, so that a plain SHA-256 is enough: nobody tries them out, and a check costs microseconds.
"""
from __future__ import annotations

import hashlib
import re
from base64 import b32encode, urlsafe_b64encode
from collections.abc import Callable
from hmac import compare_digest
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from gatehouse.gateways.admission.accounts import ScramSecret, User
from gatehouse.gateways.admission.errors import InvalidUser
from gatehouse.gateways.admission.scram import HASHES, ForbiddenCharacter, make_secret, saslprep

MIN_PASSWORD_CHARACTERS: Final = 8       # NIST SP 800-63B, 5.1.1.1
MAX_PASSWORD_BYTES: Final = 1024         # more is no password, and costs memory while it waits
SCRAM_ITERATIONS: Final = 8192           # RFC 7677, 4 asks for 4096 or more; twice that costs a client milliseconds
SALT_BYTES: Final = 16

PROVEN_MAX: Final = 20_000               # (user, password) pairs that are remembered; about 4 MB
PROVEN_MS: Final = 300_000               # for how long; then the next login checks the password itself again

# OWASP's minimum for argon2id: what one core checks in some 25 ms, at 19 MiB a check.
_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)

# Checked where there is no such user, so that both answers take the same time. The hash of no password that anybody
# could find: its bytes are zeros.
_NOBODY: Final = (f"$argon2id$v=19$m={_HASHER.memory_cost},t={_HASHER.time_cost},p={_HASHER.parallelism}"
                  f"${'A' * 22}${'A' * 43}")

ID_BYTES: Final = 10                     # 16 characters in base 32
SECRET_BYTES: Final = 32
KEY: Final = re.compile(r"gh_([a-z2-7]{16})_([A-Za-z0-9_-]{43})")


def check_new_password(password: str) -> str:
    """The password as it is hashed (RFC 4013: composed, without invisible characters). Raises InvalidUser."""
    try:
        prepared = saslprep(password)
    except ForbiddenCharacter:
        raise InvalidUser("a password holds no control or unassigned characters") from None
    if min(len(password), len(prepared)) < MIN_PASSWORD_CHARACTERS:
        raise InvalidUser(f"a password has at least {MIN_PASSWORD_CHARACTERS} characters")
    if max(len(password), len(prepared.encode())) > MAX_PASSWORD_BYTES:
        raise InvalidUser(f"a password has at most {MAX_PASSWORD_BYTES} bytes")
    return prepared


def hash_password(password: str) -> str:
    """argon2's text, salt and costs in it."""
    return _HASHER.hash(_prepared(password))


def check_password(password_hash: str, password: str) -> bool:
    """Whether the password fits the hash. Takes as long where there is no hash."""
    try:
        return _HASHER.verify(password_hash or _NOBODY, _prepared(password)) and bool(password_hash)
    except (Argon2Error, InvalidHashError):
        return False


def scram_secrets(password: str, random: Callable[[int], bytes]) -> dict[str, ScramSecret]:
    """One SCRAM secret for each mechanism."""
    prepared = _prepared(password).encode()
    return {mechanism: make_secret(mechanism, prepared, random(SALT_BYTES), SCRAM_ITERATIONS) for mechanism in HASHES}


def _prepared(password: str) -> str:
    try:
        return saslprep(password)
    except ForbiddenCharacter:
        return password              # no password that was ever set: it is merely wrong


class Proven:  # decision 85
    """Passwords that were right lately, as hashes under a key that lives as long as this process."""

    def __init__(self, key: bytes, now_ms: Callable[[], int]) -> None:
        self._key = key
        self._now_ms = now_ms
        self._until_ms: dict[bytes, int] = {}

    def _digest(self, user: User, password: str) -> bytes:
        """The key hash of user, stored hash and password. With another password, or a user made anew, nothing that was
        proven before counts."""
        text = f"{user.name}\0{user.password_hash}\0{password}".encode(errors="surrogatepass")
        return hashlib.blake2b(text, key=self._key, digest_size=32).digest()

    def remember(self, user: User, password: str) -> None:
        deadlines = self._until_ms
        digest = self._digest(user, password)
        deadlines.pop(digest, None)                      # to the end of the order: the oldest goes first
        if len(deadlines) >= PROVEN_MAX:
            del deadlines[next(iter(deadlines))]
        deadlines[digest] = self._now_ms() + PROVEN_MS

    def knows(self, user: User, password: str) -> bool:
        until_ms = self._until_ms.get(self._digest(user, password), 0)
        return until_ms > self._now_ms()


def same(digest: str, other: str) -> bool:
    """Whether two hashes are equal, in a time that does not tell where they differ."""
    return compare_digest(digest.encode(), other.encode())


def make_key(random: Callable[[int], bytes]) -> tuple[str, str, str]:
    """(id, hash of the secret, the key as its user gets it, once)."""
    id = b32encode(random(ID_BYTES)).decode().lower()
    secret = urlsafe_b64encode(random(SECRET_BYTES)).rstrip(b"=").decode()
    return id, hash_secret(secret), f"gh_{id}_{secret}"


def read_key(text: str) -> tuple[str, str] | None:
    """(id, hash of the secret) of what looks like a key."""
    match = KEY.fullmatch(text)
    return None if match is None else (match[1], hash_secret(match[2]))


def hash_secret(secret: str) -> str:
    """The hash of a key's secret, as 64 hexadecimal digits."""
    return hashlib.sha256(secret.encode()).hexdigest()
