"""API keys: `gh_ID_SECRET`. The id finds the key, the secret proves it; only a hash of the secret is kept. Pure.

The secret is 32 random bytes, so that a plain SHA-256 is enough: nobody tries them out, and a check costs microseconds.
"""
from __future__ import annotations

import hashlib
import re
from base64 import b32encode, urlsafe_b64encode
from collections.abc import Callable
from typing import Final

ID_BYTES: Final = 10                     # 16 characters in base 32
SECRET_BYTES: Final = 32
KEY: Final = re.compile(r"gh_([a-z2-7]{16})_([A-Za-z0-9_-]{43})")


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
