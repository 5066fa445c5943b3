"""From a request to its call: host, origin, route, answer. Everything that a handler raises ends here as an answer."""
from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import HttpVersion10, HttpVersion11, web

from gatehouse.gateways.http.accepting import accepts
from gatehouse.gateways.http.answers import SERVER, Created, add_vary
from gatehouse.gateways.http.author import author
from gatehouse.gateways.http.declaring import Declared
from gatehouse.gateways.http.direct import DirectCalls
from gatehouse.gateways.http.door import NAME, Call, Door
from gatehouse.gateways.http.encoding import COMPRESSED_TYPES, TAGGED, choose, encode, matches, tag_of
from gatehouse.gateways.http.errors import answer_to
from gatehouse.gateways.http.hosts import authority_of, is_host
from gatehouse.gateways.http.openapi import routes_of
from gatehouse.gateways.http.preconditions import MATCHED, strong_tag
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.routes import build_not_built_table, build_table
from gatehouse.gateways.http.routes.publish import PUBLISH_PREFIX, publish
from gatehouse.gateways.http.server import speak_our_version
from gatehouse.gateways.http.target import split_target

Mounted = Callable[[web.Request], Awaitable[web.StreamResponse]]


CONDITIONAL: Final = TAGGED | MATCHED
"""Paths whose answers have a tag."""

COMPRESSED_HERE_BYTES: Final = 65_536
"""A larger body is compressed on another thread: this much takes a millisecond."""

class Dispatcher:
    """The server's one request handler; `counts` are the door's."""

    def __init__(self, door: Door, counts: Counter[str]) -> None:
        self._door = door
        self._counts = counts
        self._built = build_table()
        self.direct = DirectCalls(door, self._built, self.refuse)
        self._not_built = build_not_built_table()
        door.routes = routes_of(self._built.endpoints)
        self._cors = door.cors
        self.mounted: Mounted | None = None
        """Answers what the table does not know: the routes of other doors."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        headers = request.headers
        origin = headers.get("Origin")
        try:
            self._check_browser(request, headers, origin)
            response = await self._dispatch(request)
        except ConnectionError:
            raise                # the client has gone: there is nobody to answer
        except Exception as error:
            response = self.refuse(error, f"{request.method} {request.path}", request.headers.get("Authorization"))
            if "Expect" in request.headers and not request.content.is_eof():
                response.force_close()       # RFC 9110, 10.1.1: what comes next may be the body or a request
        if type(response) is not Created:
            response.headers["Server"] = SERVER
            if isinstance(response, web.Response) and "Accept-Encoding" in request.headers:
                await self._compress(request, response)
        if origin is not None:
            self._cors.add_headers(response, origin)
        return response

    def refuse(self, error: Exception, asked: str, authorization: str | None = None) -> web.Response:
        """The answer to a request (`METHOD PATH`) that ended so; it is counted."""
        self._count(error)
        return answer_to(error, asked, authorization, self._door.services.hub_name)

    def _check_browser(self, request: web.Request, headers: Mapping[str, str], origin: str | None) -> None:
        """Refuses what a page of somebody else makes its reader's browser ask for."""
        host = headers.get("Host")
        door = self._door
        if host and not is_host(host):
            raise Refusal("malformed_request", "Host is no name and port", headers={"Connection": "close"})
        door.hosts.check(host, door.admission.allow_anonymous)
        if not request.raw_path.startswith("/"):
            door.hosts.check(authority_of(request.raw_path), door.admission.allow_anonymous)
        if origin is not None:
            self._cors.check(origin, host or "")
        elif "Sec-Fetch-Site" in headers:
            self._cors.check_site(headers["Sec-Fetch-Site"], request)

    async def _compress(self, request: web.Request, response: web.Response) -> None:
        """Large text for who asks for it, a large one on another thread."""
        body = response.body
        if not isinstance(body, bytes) or len(body) < self._door.config.compress_above_bytes \
                or "Content-Encoding" in response.headers or "Content-Range" in response.headers \
                or request.method == "HEAD" or COMPRESSED_TYPES.match(response.content_type) is None:
            return
        add_vary(response, "Accept-Encoding")
        coding = choose(request.headers["Accept-Encoding"])
        if coding is None:
            return
        if len(body) > COMPRESSED_HERE_BYTES:
            response.body = await self._door.loop.run_in_executor(None, encode, body, coding)
        else:
            response.body = encode(body, coding)
        response.headers["Content-Encoding"] = coding
        tag = response.headers.get("ETag", "W/")
        if not tag.startswith("W/"):
            response.headers["ETag"] = f"W/{tag}"            # other bytes, the same words

    @staticmethod
    def _conditional(request: web.Request, response: web.StreamResponse, matched: bool) -> web.StreamResponse:
        """The answer with its tag, or 304 to who has it."""
        if not isinstance(response, web.Response) or not isinstance(response.body, bytes) or response.status != 200:
            return response
        tag = response.headers.get("ETag") or strong_tag(response.body) if matched else tag_of(response.body)
        if matches(request.headers.get("If-None-Match", ""), tag):
            return web.Response(status=304, headers={"ETag": tag, "Cache-Control": "no-cache"})
        response.headers.update({"ETag": tag, "Cache-Control": "no-cache"})
        return response

    def _count(self, error: Exception) -> None:
        """A refusal under its code, the library's under its status, anything else as a fault of ours."""
        code = getattr(error, "code", None)
        if code is None and isinstance(error, web.HTTPException):
            code = f"status_{error.status}"
        if code is None:
            self._counts["faults"] += 1
        else:
            self._door.admission.trace.on_event(NAME, code)

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        if request.version is not HttpVersion11 or "Transfer-Encoding" in request.headers:
            _check_framing(request)
        path, raw_query = split_target(request.raw_path)
        if path.startswith(PUBLISH_PREFIX) and request.method == "POST" and "If-Match" not in request.headers:
            # The hot call: not looked for in the table.
            _check_accept(request, publish)
            return await publish.run(self._door, Call(request, (path[len(PUBLISH_PREFIX):],), raw_query, publish))
        match = self._built.find(path)
        if match is None and self.mounted is not None:
            try:
                return await self.mounted(request)
            except web.HTTPNotFound:
                pass         # not one of theirs either
        match = match or self._not_built.find(path)
        if match is None:
            raise Refusal("not_found", f"there is no {path[:200]}")
        endpoint, captures = match
        handler = endpoint.handler(request.method)
        if handler is not None:
            if "If-Match" in request.headers and request.method not in ("GET", "HEAD") \
                    and endpoint.pattern not in MATCHED:
                raise Refusal("not_built", "If-Match is for users, rules, topics, groups and webhooks; nothing changed")
            _check_accept(request, handler)
            if handler.acts and "Sec-Fetch-Site" in request.headers:
                self._cors.check_act(request.headers)
            response = await handler.run(self._door, Call(request, captures, raw_query, handler))
            if handler.audited and response.status < 400:
                who = author(request, getattr(request.protocol, "user", ""))
                self._door.admission.audit(who, handler.audited, {"call": f"{request.method} {path}"})
            if request.method not in ("GET", "HEAD") or endpoint.pattern not in CONDITIONAL:
                return response
            return self._conditional(request, response, endpoint.pattern in MATCHED)
        if request.method == "OPTIONS" and self._cors.is_preflight(request):
            return self._cors.preflight(endpoint.allow(), request)
        raise Refusal("method_not_allowed", f"{endpoint.pattern} has no {request.method[:32]}",
                      headers={"Allow": endpoint.allow()})


def _check_accept(request: web.Request, declared: Declared) -> None:
    """Nothing is done for who does not take what it is answered with."""
    accept = request.headers.get("Accept")
    if accept and "*/*" not in accept and declared.media and not accepts(accept, declared.media):
        raise Refusal("not_acceptable", f"this is answered as {', '.join(sorted(declared.media))}")


def _check_framing(request: web.Request) -> None:
    """Refuses versions and transfer codings that are not spoken here.

    RFC 9112, 6.1: chunks of a sender that knows HTTP/1.0 only may be understood otherwise by whoever passed them on:
    nothing behind them is read. What is coded besides would be stored as it is, which nobody who sent it means.
    """
    if request.version not in (HttpVersion10, HttpVersion11):
        speak_our_version(request)
        raise Refusal("version_not_supported", "HTTP/1.1 and HTTP/1.0 are spoken here", headers={"Connection": "close"})
    coding = request.headers.get("Transfer-Encoding")
    if coding is not None and request.version == HttpVersion10:
        raise Refusal("malformed_request", "HTTP/1.0 has no Transfer-Encoding", headers={"Connection": "close"})
    if coding is not None and coding.strip().lower() != "chunked":
        raise Refusal("not_built", "of transfer codings 'chunked' alone is known here")
