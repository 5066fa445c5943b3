"""One request to the HTTP door of a hub, repeated where that is safe.

A request may be repeated when it never left (nobody listens), when the hub says that it did nothing (429, 503), or when
it is *repeatable*: it reads, it comes with an `Idempotency-Key`, or doing it twice is doing it once (an ack). After the
last attempt `OutcomeUnknown` says that one of them may have taken effect. What a DELETE does not find that was sent
before, without an answer, it has deleted.

Connections are kept and made anew as needed: a hub that comes back is found by the next attempt. Long polls have
connections of their own, so that however many wait, an ack finds one.
"""
from __future__ import annotations

import asyncio
import os
import random
import ssl
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import aiohttp
import orjson
from yarl import URL

from gatehouse_client.errors import HubError, InvalidRequest, NotFound, OutcomeUnknown, OverQuota, Unavailable, error_of
from gatehouse_client.retry import Retry

LONG_POLL_S: Final = 20.0                 # the `wait` of a call that waits for more; a hub allows 30 unless told
MAX_ANSWER_BYTES: Final = 256 << 20       # an answer larger than this is not one of the hub's
MAX_RETRY_AFTER_S: Final = 60.0
NOTHING_DONE: Final = (Unavailable, OverQuota)
"""After these any request may be repeated."""


class Lost(aiohttp.ClientError):
    """The connection ended before the answer."""


async def send_once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """A middleware of aiohttp, which else repeats some requests without a word. Raises Lost."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise Lost(str(error)) from None


ONLY_ONCE: Final = (send_once,)


class Answer(NamedTuple):
    """What the hub answered to one request."""

    status: int
    body: bytes

    def document(self) -> dict[str, Any]:
        """The JSON object in it. Raises HubError where there is none."""
        try:
            value = orjson.loads(self.body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise HubError("this is no answer of a hub; is it the HTTP door?", status=self.status)
        return value


class HttpDoor:
    """A hub's HTTP door at `url`. Opened by its first request, on the running loop."""

    def __init__(self, url: str, *, user: str | None, password: str | None, retry: Retry, timeout_s: float,
                 connections: int, tls: ssl.SSLContext | None = None) -> None:
        self.url = url.rstrip("/") if "//" in url else f"http://{url.rstrip('/')}"
        _check_url(self.url)
        self._login = None if user is None else aiohttp.encode_basic_auth(user, password or "")
        self._retry = retry
        self._timeout_s = timeout_s
        self._connections = connections
        self._tls = tls
        self._sessions: dict[bool, aiohttp.ClientSession] = {}       # by whether it is for long polls

    async def close(self) -> None:
        """Close every connection. A request after this opens new ones."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    async def ask(self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: bytes | None = None,
                  headers: Mapping[str, str] | None = None, repeatable: bool = False, wait_s: float = 0.0,
                  retry: Retry | None = None) -> Answer:
        """A good answer (below 400). Raises HubError for everything else; `wait_s` is what the hub may take longer."""
        retry = retry or self._retry
        url = URL(self.url + path + _query(query), encoded=True)
        unknown: HubError | None = None
        attempt = 0
        while True:
            try:
                return await self._once(method, url, body, headers, wait_s)
            except NOTHING_DONE as error:
                if attempt == retry.retries:
                    raise unknown or error from None         # what an earlier attempt did is not known either
                asked_s = error.retry_after_s
            except OutcomeUnknown as error:
                unknown = error
                if attempt == retry.retries or not repeatable:
                    raise
                asked_s = 0.0
            except NotFound:
                if method != "DELETE" or unknown is None:
                    raise
                return Answer(204, b"")
            await asyncio.sleep(retry.pause_s(attempt, random.random(), asked_s))
            attempt += 1

    async def _once(self, method: str, url: URL, body: bytes | None, headers: Mapping[str, str] | None,
                    wait_s: float) -> Answer:
        timeout_s = self._timeout_s + wait_s
        session = self._sessions.get(wait_s > 0) or self._open(wait_s > 0)
        try:
            async with asyncio.timeout(timeout_s), session.request(
                    method, url, data=body, headers=headers,
                    middlewares=ONLY_ONCE if method == "DELETE" else None) as response:
                if (response.content_length or 0) > MAX_ANSWER_BYTES:
                    raise HubError(f"the answer of {self.url} is larger than {MAX_ANSWER_BYTES} bytes")
                answer = Answer(response.status, await response.read())
        except aiohttp.ClientConnectorCertificateError as error:
            why = getattr(error.certificate_error, "verify_message", "") or "it is not trusted"
            raise Unavailable(f"the certificate of {self.url} is no good: {why}") from None
        except aiohttp.ClientConnectorSSLError:
            raise Unavailable(f"what answers at {self.url} does not speak TLS, or none that is spoken here") from None
        except aiohttp.ClientConnectorError as error:
            number = error.os_error.errno
            reason = os.strerror(number) if number and number > 0 else str(error)
            raise Unavailable(f"no hub answers at {self.url} ({reason})") from None
        except TimeoutError:
            raise OutcomeUnknown(f"no hub answers at {self.url} (nothing came within {timeout_s:g} s)") from None
        except (aiohttp.ClientError, OSError) as error:
            raise OutcomeUnknown(f"no hub answers at {self.url} ({str(error) or type(error).__name__})") from None
        if answer.status >= 400:
            raise _refusal(answer, _retry_after(response.headers))
        return answer

    def _open(self, waiting: bool) -> aiohttp.ClientSession:
        session = self._sessions[waiting] = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0 if waiting else self._connections, ssl=self._tls or True),
            auto_decompress=False,
            headers={"Accept-Encoding": "identity",      # compressing costs the hub more than the network saves
                     **({} if self._login is None else {"Authorization": self._login})},
            timeout=aiohttp.ClientTimeout(total=None), cookie_jar=aiohttp.DummyCookieJar())
        return session


def path_of(*levels: str) -> str:
    """A path of these names, each percent-encoded for itself."""
    return "/" + "/".join(quote(level, safe="") for level in levels)


def _query(query: Mapping[str, str] | None) -> str:
    if not query:
        return ""
    return "?" + "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query.items())


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds of a `Retry-After`; the form with a date is not used by hubs and counts as none."""
    text = headers.get("Retry-After", "")
    return min(float(text), MAX_RETRY_AFTER_S) if text.isascii() and text.isdigit() else 0.0


def _refusal(answer: Answer, retry_after_s: float) -> HubError:
    try:
        problem = orjson.loads(answer.body)
    except ValueError:
        problem = None
    error = error_of(answer.status, problem if isinstance(problem, dict) else {})
    error.retry_after_s = retry_after_s
    return error


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise InvalidRequest(f"{url!r} is no address of a hub; give one like http://127.0.0.1:8080")
