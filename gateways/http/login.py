"""Who a request says it is from: the `Authorization` header, and the challenges to a request that says it wrong. Pure.

    Basic base64(user:password)     RFC 7617; the password may be an API key
    Bearer TOKEN                    RFC 6750; a JWT or an API key
"""
from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from typing import Final

from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.http.problems import Refusal

TOKEN68: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def read_authorization(value: str) -> Credentials:
    """What the header shows. Raises NotAuthenticated for a scheme that is not known, Refusal for what is malformed."""
    scheme, _, shown = value.partition(" ")
    shown = shown.strip()
    if scheme.lower() == "basic":
        return _basic(shown)
    if scheme.lower() != "bearer":
        raise NotAuthenticated("Authorization: the schemes Basic and Bearer are known here")
    if TOKEN68.fullmatch(shown) is None:
        raise Refusal("invalid_header", "Authorization: Bearer is followed by a token")
    return Credentials(token=shown)


def _basic(encoded: str) -> Credentials:
    try:
        user, colon, password = b64decode(encoded, validate=True).decode().partition(":")
    except (Base64Error, ValueError):
        colon = ""
    if not colon:
        raise Refusal("invalid_header", "Authorization: Basic is followed by base64 of user:password")
    return Credentials(user, password)


def challenges(realm: str, authorization: str | None) -> str:
    """The value of `WWW-Authenticate` (RFC 9110, 11.6.1): both schemes; a token that was shown is not good."""
    quoted = realm.replace("\\", "\\\\").replace('"', '\\"')
    showed_token = authorization is not None and authorization[:7].lower() == "bearer "
    error = ', error="invalid_token"' if showed_token else ""
    basic, bearer = f'Basic realm="{quoted}", charset="UTF-8"', f'Bearer realm="{quoted}"{error}'
    return f"{bearer}, {basic}" if showed_token else f"{basic}, {bearer}"
