"""One POST of a webhook: to an address that its guard allows, without redirects, with everything bounded.

What a receiver can do to the hub is answer: with a status, headers up to the library's limits, and a body of which
`MAX_ANSWER_BYTES` are read, so that its connection can be used again; beyond them the connection is closed.
`timeout` bounds all of it.
"""
from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import aiohttp
from yarl import URL

from gatehouse.gateways.http.exchange import SERVER

if TYPE_CHECKING:
    from gatehouse.gateways.http.webhooks.definition import Webhook
    from gatehouse.gateways.http.webhooks.guard import TargetGuard

MAX_ANSWER_BYTES: Final = 65_536
ANSWER_S: Final = 2.0
"""What a body is waited for once the status is known: it decides nothing any more."""

MAX_RETRY_AFTER_S: Final = 3600
DNS_S: Final = 10


class Outcome(NamedTuple):
    """What became of one POST."""

    status: int                          # 0: there was no answer
    detail: str                          # for people
    retry_after_s: float | None = None
    answer: bytes = b""                  # what of the body was read
    took_ms: int = 0                     # of one that was answered

    @property
    def delivered(self) -> bool:
        return 200 <= self.status < 300


class Forbidden(OSError):
    """The socket was about to connect to an address that the guard does not allow."""


class WebhookSender:
    """Posts for one webhook to one of its URLs; `close` it."""

    def __init__(self, webhook: Webhook, guard: TargetGuard, url: str) -> None:
        self._url = URL(url, encoded=True)
        self._guard = guard
        self._target = guard.check(url)
        connector = aiohttp.TCPConnector(limit=webhook.concurrency, ttl_dns_cache=DNS_S, socket_factory=self._socket)
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False,
            timeout=aiohttp.ClientTimeout(total=webhook.timeout), read_bufsize=MAX_ANSWER_BYTES,
            headers={"User-Agent": SERVER, "Accept-Encoding": "identity"})

    async def close(self) -> None:
        await self._session.close()

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:  # decision 72
        """The one place where a connection begins: whatever the name resolved to is judged here."""
        family, kind, protocol, _, place = address
        if not self._guard.may_connect(self._target, str(place[0])):
            raise Forbidden(f"{place[0]} is no public address, and webhook_allow does not name it")
        return socket.socket(family, kind, protocol)

    async def post(self, body: bytes, headers: dict[str, str]) -> Outcome:
        """Never raises but for a cancellation."""
        began_s = time.monotonic()
        try:
            async with self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as response:
                took_ms = round((time.monotonic() - began_s) * 1000)
                answer = await self._read(response)
                return Outcome(response.status, f"{response.status}", _retry_after(response.headers.get("Retry-After")),
                               answer, took_ms)
        except TimeoutError:
            return Outcome(0, "no answer in time")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            cause = error.__cause__ or error.__context__
            return Outcome(0, f"{type(error).__name__}: {str(cause or error)[:200]}")

    @staticmethod
    async def _read(response: aiohttp.ClientResponse) -> bytes:
        """A short body, so that the connection can be used again; a longer one ends the connection and is nothing."""
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(ANSWER_S):
                left = MAX_ANSWER_BYTES
                while left > 0 and (chunk := await response.content.readany()):
                    chunks.append(chunk)
                    left -= len(chunk)
                if left > 0:
                    return b"".join(chunks)
        except (TimeoutError, aiohttp.ClientError, ValueError):
            pass                         # the status says enough
        response.close()
        return b""


def _retry_after(value: str | None) -> float | None:
    """Seconds to wait (RFC 9110, 10.2.3; a date is not understood), bounded."""
    if value is None or not value.isascii() or not value.isdigit():
        return None
    return float(min(int(value[:9]), MAX_RETRY_AFTER_S))
