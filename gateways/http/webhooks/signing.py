"""Standard Webhooks (specification 1.0.0): how a receiver knows that a POST comes from this hub, whole and new.

    webhook-id          the message's, the same at every attempt: receivers recognise a repetition by it
    webhook-timestamp   seconds since 1970, of this attempt
    webhook-signature   v1,BASE64 of HMAC-SHA256 over ID.TIMESTAMP.BODY; one per secret, with spaces between them

While a secret is being replaced there are two, and a POST is signed with both. Pure but for making secrets.
"""
from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable
from typing import Final

PREFIX: Final = "whsec_"
SECRET_BYTES: Final = 32
MIN_SECRET_BYTES: Final = 24
MAX_SECRET_BYTES: Final = 64


def new_secret() -> str:
    """A secret as receivers are given it."""
    return PREFIX + b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """The key in a secret. ValueError where it is none."""
    try:
        key = b64decode(secret.removeprefix(PREFIX), validate=True) if secret.startswith(PREFIX) else b""
    except Base64Error:
        key = b""
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
        raise ValueError(f"a secret is {PREFIX} and base64 of {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes")
    return key


def sign(keys: Iterable[bytes], webhook_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The three headers of one attempt."""
    signed = f"{webhook_id}.{timestamp_s}.".encode() + body
    signatures = [f"v1,{b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}" for key in keys]
    return {"webhook-id": webhook_id, "webhook-timestamp": str(timestamp_s), "webhook-signature": " ".join(signatures)}
