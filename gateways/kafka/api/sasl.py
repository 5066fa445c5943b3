"""SaslHandshake 0 to 1 and SaslAuthenticate 0 to 2: the frames of a login, which is `gateways.kafka.login`."""
from __future__ import annotations

import struct
from typing import Final

from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from gatehouse.gateways.kafka.error_codes import ILLEGAL_SASL_STATE, NONE
from gatehouse.gateways.kafka.request import Api, Request

NEVER: Final = 1 << 15           # a version that is never reached: SaslHandshake is not flexible (KIP-482)

_SIZE = struct.Struct(">i")


class Authenticating:
    """A SaslAuthenticate, until the login has an answer to it."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def answer(self, message: bytes) -> None:
        lifetime_ms = self._request.session.lifetime_ms()
        self._request.answer(SaslAuthenticateResponse, error_code=NONE, error_message=None, auth_bytes=message,
                             session_lifetime_ms=lifetime_ms)

    def fail(self, error: int, text: str) -> None:
        self._request.answer(SaslAuthenticateResponse, error_code=error, error_message=text, auth_bytes=b"",
                             session_lifetime_ms=0)


class RawAuthenticating:
    """A message in a frame of its own. There are no words for a failure: the connection is closed."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def answer(self, message: bytes) -> None:
        self._request.done([_SIZE.pack(len(message)) + message])

    def fail(self, error: int, text: str) -> None:
        self._request.done([])


def take_handshake(request: Request) -> None:
    session = request.session
    asked = request.decode(SaslHandshakeRequest)
    error = session.login.choose(asked.mechanism, request.version)
    offered = [] if error == ILLEGAL_SASL_STATE else list(session.config.sasl_mechanisms)
    request.answer(SaslHandshakeResponse, error_code=error, mechanisms=offered)
    if error != NONE and not session.is_known:
        session.close_when_sent(f"not_authenticated: SaslHandshake for {asked.mechanism[:40]!r} refused with {error}")


def take_authenticate(request: Request) -> None:
    session = request.session
    asked = request.decode(SaslAuthenticateRequest)
    authenticating = Authenticating(request)
    if session.login.mechanism:
        session.login.take(asked.auth_bytes, authenticating)
        return
    authenticating.fail(ILLEGAL_SASL_STATE, "SaslAuthenticate without a SaslHandshake before it")
    if not session.is_known:
        session.close_when_sent("not_authenticated: SaslAuthenticate without a SaslHandshake")


def take_raw(request: Request) -> None:
    """A frame that is nothing but a SASL message."""
    message = request.data[request.at:request.end]
    request.data = b""
    request.session.login.take(message, RawAuthenticating(request))


SASL_HANDSHAKE = Api(key=17, name="SaslHandshake", first_version=0, last_version=1, first_flexible=NEVER,
                     dispatch=take_handshake)
SASL_AUTHENTICATE = Api(key=36, name="SaslAuthenticate", first_version=0, last_version=2, first_flexible=2,
                        dispatch=take_authenticate)
RAW = Api(key=-1, name="a SASL message", first_version=0, last_version=0, first_flexible=NEVER, dispatch=take_raw)
"""Not offered: what a frame after a SaslHandshake 0 is dispatched as."""
