"""Requests to the hub's HTTP door: one kept connection, credentials, TLS, and retries while the hub is restarting.

Every request may be sent twice: those that write carry an `Idempotency-Key` or say what is to be so afterwards.

A connection belongs to one thread of one process: readers and writers are pickled with a `HubAddress` and open their
own.
"""
from __future__ import annotations

import http.client
import json
import random
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from gatehouse.spark.errors import HubRefused, HubUnreachable, InvalidOption

TIMEOUT_S: Final = 60.0
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
RETRIED: Final = frozenset((408, 429, 502, 503, 504))
"""Answers that say that nothing was done and later it may be, or (504) that the outcome is not known."""


@dataclass(frozen=True, slots=True)
class HubAddress:
    """Where the hub is and who asks. Picklable; the secret is left out of what is printed."""

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    tls_ca: str = ""                 # file of certificates to trust instead of the system's
    tls_cert: str = ""               # file of the client's own certificate
    tls_key: str = field(default="", repr=False)
    tls_verify: bool = True
    retry_s: float = 60.0            # how long a hub that does not answer is tried again

    def headers(self) -> dict[str, str]:
        """What says who asks."""
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user:
            return {"Authorization": "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode()}
        return {}


class Hub:
    """One connection to the hub, opened at the first request and again whenever it broke."""

    def __init__(self, address: HubAddress) -> None:
        parts = urlsplit(address.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidOption(f"'url' is the hub's HTTP door, http://HOST:PORT or https://HOST:PORT, "
                                f"not {address.url!r}")
        self._address = address
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._base = parts.path.rstrip("/")
        self._tls = _tls_context(address) if parts.scheme == "https" else None
        self._headers = address.headers()
        self._connection: http.client.HTTPConnection | None = None
        self.received_bytes = 0          # of bodies

    def post_json(self, path: str, document: Any) -> bytes:
        """The body of the answer to a JSON document."""
        body = json.dumps(document, separators=(",", ":")).encode()
        return self.request("POST", path, body, {"Content-Type": "application/json"})

    def request(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
        """The body of a 2xx answer. Tries again while the hub cannot be reached or says so, up to `retry_s`.

        Raises HubRefused, HubUnreachable.
        """
        end_s = time.monotonic() + self._address.retry_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                status, answer = self._once(method, path, body, {**self._headers, **(headers or {})})
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if time.monotonic() >= end_s:
                    raise HubUnreachable(f"{self._address.url} does not answer {method} {path}: {error!r}") from None
            else:
                if status < 300:
                    return answer
                if status not in RETRIED or time.monotonic() >= end_s:
                    raise _refusal(status, answer)
            time.sleep(pause_s * random.uniform(0.5, 1.0))      # a restarting hub meets its readers spread out
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _once(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._connect()
        connection.request(method, self._base + path, body or None, headers)
        response = connection.getresponse()
        answer = response.read()
        self.received_bytes += len(answer)
        return response.status, answer

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _tls_context(address: HubAddress) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=address.tls_ca or None)
        if address.tls_cert:
            context.load_cert_chain(address.tls_cert, address.tls_key or None)
    except OSError as error:
        raise InvalidOption(f"a TLS file cannot be read: {error}") from None
    if not address.tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _refusal(status: int, answer: bytes) -> HubRefused:
    try:
        problem = json.loads(answer)
        return HubRefused(status, problem["code"], problem["detail"])
    except (ValueError, KeyError, TypeError):
        return HubRefused(status, "unknown", answer[:200].decode("utf-8", "replace"))
