"""SASL mechanisms as bytes: what a client shows of itself. Pure; whether it is true is admission's to say.

    PLAIN          authorization id NUL user NUL password                                     (RFC 4616)
    OAUTHBEARER    n,a=AUTHORIZATION-ID, ^A auth=Bearer TOKEN ^A KEY=VALUE ^A ... ^A           (RFC 7628)
    SCRAM-SHA-*    two rounds, see `gateways.admission`                                        (RFC 5802)

An authorization id may be left out or be the user's own name: nobody acts for somebody else.
"""
from __future__ import annotations

import json
import re
from typing import Final

from gatehouse.gateways.admission.credentials import Credentials

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
