"""Talks to a running hub through its HTTP door: one kept-alive connection, plain calls, no event loop.

Used by the commands. Every call raises HubError with one line that says what to do; nothing is retried, since only the
caller knows whether a publish may happen twice.
"""
from __future__ import annotations

import http
import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from gatehouse import exits

TIMEOUT_S: Final = 60.0
LONG_POLL_S: Final = 20.0                 # the `wait` of a read that waits for more; well under the timeout
MAX_ANSWER_BYTES: Final = 256 << 20       # an answer larger than this is not one of the hub's pages


class HubError(exits.Refused):
    """The hub refused, or is not there. `code` is its stable error code where it gave one."""

    def __init__(self, text: str, code: str = "", status: int = 0) -> None:
        super().__init__(text, exits.NOT_BUILT if status == http.HTTPStatus.NOT_IMPLEMENTED else exits.FAILED)
        self.code = code
        self.status = status


class HubClient:
    """A connection to the HTTP door at `url`. Not for several threads."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(url if "//" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise HubError(f"{url!r} is no address of a hub; give one like http://127.0.0.1:8080")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, port, timeout=TIMEOUT_S)
        self._prefix = parts.path.rstrip("/")

    def __enter__(self) -> HubClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def publish(self, address: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        """Store one message; returns when it is durable, with where it is."""
        answer = self.request("POST", "/v1/publish/" + quote(address, safe="/"), body, headers)
        return self._object(answer)

    def topics(self) -> list[dict[str, Any]]:
        """Every topic."""
        found = self._object(self.request("GET", "/v1/topics")).get("topics", [])
        return found if isinstance(found, list) else []

    def topic(self, name: str) -> dict[str, Any]:
        """One topic and its settings."""
        return self._object(self.request("GET", "/v1/topics/" + quote(name, safe="")))

    def pages(self, topic: str, start: Mapping[str, str], follow: bool) -> Iterator[list[dict[str, Any]]]:
        """Messages page by page from `start` (the query's `from`, `queue`, `cursor`, ...).

        Ends at the first page that is empty and skipped nothing, or never where `follow`: then an empty page has
        waited for `LONG_POLL_S`.
        """
        query = {name: value for name, value in start.items() if value}
        if follow:
            query["wait"] = str(int(LONG_POLL_S))
        path = f"/v1/topics/{quote(topic, safe='')}/messages"
        while True:
            page = self._object(self.request("GET", f"{path}?{urlencode(query)}"))
            messages = page.get("messages", [])
            if messages:
                yield messages
            elif not follow and not page.get("skipped"):
                return
            cursor = page.get("cursor")
            if not cursor:
                raise HubError("the hub sent a page without a cursor; is it of this version?")
            query["cursor"] = cursor
            for name in ("from", "queue"):
                query.pop(name, None)

    def text(self, path: str) -> tuple[int, str]:
        """Status and body of a page for people or monitors; refusals are answers here."""
        status, body = self._exchange("GET", path, None, {})
        return status, body.decode("utf-8", "replace")

    def request(self, method: str, path: str, body: bytes | None = None,
                headers: Mapping[str, str] | None = None) -> bytes:
        """The body of a good answer. Raises HubError for everything else."""
        status, answer = self._exchange(method, path, body, headers or {})
        if status >= 400:
            raise _refusal(status, answer)
        return answer

    def _exchange(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        try:
            self._connection.request(method, self._prefix + path, body, dict(headers))
            response = self._connection.getresponse()
            answer = response.read(MAX_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise HubError(f"no hub answers at {self.url} ({reason}); start one with `gatehouse serve`, or name it "
                           "with --url") from None
        if len(answer) > MAX_ANSWER_BYTES:
            self._connection.close()
            raise HubError(f"the answer of {self.url} is larger than {MAX_ANSWER_BYTES} bytes")
        return response.status, answer

    def _object(self, answer: bytes) -> dict[str, Any]:
        try:
            value = json.loads(answer)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise HubError(f"{self.url} did not answer like a hub; is it the HTTP door?")
        return value


def _refusal(status: int, answer: bytes) -> HubError:
    """What an application/problem+json says, in one line."""
    try:
        problem = json.loads(answer)
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    text = problem.get("detail") or problem.get("title") or f"it answered {status}"
    code = str(problem.get("code", ""))
    return HubError(f"the hub refused: {text}{f' ({code})' if code else ''}", code, status)
