"""From a request to its call: host, origin, route, answer. Everything that a handler raises ends here as an answer."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.http.accepting import accepts
from gatehouse.gateways.http.author import author
from gatehouse.gateways.http.calls import Running
from gatehouse.gateways.http.door import NAME, Call, Door
from gatehouse.gateways.http.encoding import COMPRESSED_TYPES, TAGGED, choose, encode, matches, tag_of
from gatehouse.gateways.http.errors import answer_to
from gatehouse.gateways.http.hosts import authority_of, is_host
from gatehouse.gateways.http.openapi import routes_of
from gatehouse.gateways.http.preconditions import MATCHED, strong_tag
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.request import Heads, HttpRequest
from gatehouse.gateways.http.response import Answered, Response, add_vary
from gatehouse.gateways.http.routes import build_not_built_table, build_table
from gatehouse.gateways.http.target import split_target
from gatehouse.gateways.http.websocket.handshake import WEBSOCKET, lead_to

if TYPE_CHECKING:
    from gatehouse.gateways.contract import WebSocketRoute
    from gatehouse.gateways.http.declaring import Declared
    from gatehouse.gateways.http.routing import Endpoint
    from gatehouse.gateways.http.session import HttpExchange

CONDITIONAL: Final = TAGGED | MATCHED
"""Paths whose answers have a tag."""

COMPRESSED_HERE_BYTES: Final = 65_536
"""A larger body is compressed on another thread: this much takes a millisecond."""

TARGETS_MAX: Final = 1024
"""Targets whose routes are remembered. Those with an id come once: all are forgotten together."""

READING: Final = frozenset(("GET", "HEAD"))


class Dispatcher:
    """What the sessions of the door share."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.heads = Heads()
        self.idle_ms = round(door.config.idle_timeout_s * 1000)
        self._wall_ms = door.services.wall_ms
        self._built = build_table()
        self._not_built = build_not_built_table()
        self._places: dict[bytes, Place] = {}
        self._cors = door.cors
        self._led: dict[str, tuple[str, WebSocketRoute]] = {
            route.path: (spec.name, route) for spec in door.services.specs for route in spec.websockets}
        door.routes = routes_of(self._built.endpoints)

    @property
    def counts(self) -> Counter[str]:
        """What happened to the door's connections."""
        return self.door.services.listeners[NAME].counts

    def date(self) -> bytes:
        """For the header of an answer."""
        return self.door.date.at(self._wall_ms())

    def begin(self, exchange: HttpExchange, request: HttpRequest) -> None:
        """Begin the call that a request asks for."""
        self.find(request)
        declared = request.declared
        Running(self.door.loop, self.counts, exchange, self.answer(request),
                declared is not None and declared.pipelined).go_on()

    def soon(self, call_back: Callable[[], None]) -> None:
        """Call this in the loop's next turn."""
        self.door.loop.call_soon(call_back)

    def find(self, request: HttpRequest) -> None:
        """Put into the request what its target says."""
        target = request.target
        place = self._places.get(target)
        if place is None:
            if len(self._places) >= TARGETS_MAX:
                self._places.clear()
            place = self._places[target] = self._find(target)
        request.path, request.raw_query, request.endpoint, request.captures = place
        endpoint = request.endpoint
        request.declared = None if endpoint is None else endpoint.handler(request.method)

    def _find(self, target: bytes) -> Place:
        path, raw_query = split_target(target.decode("utf-8", "surrogateescape"))
        match = self._built.find(path) or self._not_built.find(path)
        return (path, raw_query, None, ()) if match is None else (path, raw_query, *match)

    def is_pipelined(self, request: HttpRequest) -> bool:
        """See `Declared.pipelined`."""
        if request.fault is not None:
            return False
        self.find(request)
        return request.declared is not None and request.declared.pipelined

    async def answer(self, request: HttpRequest) -> Answered:
        """Answer one request."""
        head = request.head
        answered: Answered
        try:
            if request.fault is not None:
                raise request.fault
            self._check_browser(request)
            answered = await self._call(request)
        except ConnectionError:
            raise                # the client has gone: there is nobody to answer
        except Exception as error:
            if request.streams:
                raise            # a part of the answer has been sent
            answered = self._refuse(request, error)
        if head.unusual and isinstance(answered, Response):
            if "accept-encoding" in head.fields:
                await self._compress(request, answered)
            if "origin" in head.fields:
                self._cors.add_headers(answered, head.fields["origin"])
        return answered

    def _refuse(self, request: HttpRequest, error: Exception) -> Response:
        """The answer to a request that ended so; it is counted."""
        code = getattr(error, "code", None)
        if code is None:
            self.counts["faults"] += 1
        else:
            self.door.admission.trace.on_event(NAME, code)
        asked = f"{request.method} {request.path}"
        answer = answer_to(error, asked, request.head.authorization, self.door.services.hub_name)
        if "expect" in request.head.fields and not request.complete:
            answer.closes = True         # RFC 9110, 10.1.1: what comes next may be the body or a request
        return answer

    def _check_browser(self, request: HttpRequest) -> None:
        """Refuses what a page of somebody else makes its reader's browser ask for."""
        head, door = request.head, self.door
        host, anonymous = head.host, door.admission.allow_anonymous
        if host and not is_host(host):
            raise Refusal("malformed_request", "Host is no name and port", headers={"Connection": "close"})
        door.hosts.check(host, anonymous)
        if not request.target.startswith(b"/"):
            authority = authority_of(request.target.decode("utf-8", "surrogateescape"))
            if authority is None and request.method != "OPTIONS":
                raise Refusal("malformed_request", "a target is a path (RFC 9112, 3.2)",
                              headers={"Connection": "close"})
            door.hosts.check(authority, anonymous)
        if head.unusual:
            fields = head.fields
            if "origin" in fields:
                self._cors.check(fields["origin"], host or "")
            elif "sec-fetch-site" in fields:
                self._cors.check_site(fields["sec-fetch-site"], request.method, fields)

    async def _compress(self, request: HttpRequest, response: Response) -> None:
        """Large text for who asks for it, a large one on another thread."""
        body = response.body
        if len(body) < self.door.config.compress_above_bytes or "Content-Encoding" in response.headers \
                or "Content-Range" in response.headers or request.method == "HEAD" \
                or COMPRESSED_TYPES.match(response.content_type) is None:
            return
        add_vary(response, "Accept-Encoding")
        coding = choose(request.headers["accept-encoding"])
        if coding is None:
            return
        if len(body) > COMPRESSED_HERE_BYTES:
            response.body = await self.door.loop.run_in_executor(None, encode, body, coding)
        else:
            response.body = encode(body, coding)
        response.set("Content-Encoding", coding)
        tag = response.headers.get("ETag", "W/")
        if not tag.startswith("W/"):
            response.set("ETag", f"W/{tag}")                 # other bytes, the same words

    async def _call(self, request: HttpRequest) -> Answered:
        head, endpoint, handler = request.head, request.endpoint, request.declared
        if self._led and request.path in self._led and (head.upgrade == WEBSOCKET or endpoint is None):
            return lead_to(request, *self._led[request.path])
        if endpoint is None:
            raise Refusal("not_found", f"there is no {request.path[:200]}")
        if handler is None:
            if request.method == "OPTIONS" and self._cors.is_preflight(request.headers):
                return self._cors.preflight(endpoint.allow(), request.headers)
            raise Refusal("method_not_allowed", f"{endpoint.pattern} has no {request.method[:32]}",
                          headers={"Allow": endpoint.allow()})
        if head.unusual:
            self._check_unusual(request, endpoint, handler)
        if head.accept is not None and handler.media and not accepts(head.accept, handler.media):
            # Nothing is done for who does not take what it is answered with.
            raise Refusal("not_acceptable", f"this is answered as {', '.join(sorted(handler.media))}")
        answered = await handler.run(self.door, Call(request, request.captures, request.raw_query, handler))
        if handler.audited and isinstance(answered, Response) and answered.status < 400:
            who = author(request, request.session.user)
            self.door.admission.audit(who, handler.audited, {"call": f"{request.method} {request.path}"})
        if request.method in READING and endpoint.pattern in CONDITIONAL and isinstance(answered, Response):
            return _conditional(request.headers, answered, endpoint.pattern in MATCHED)
        return answered

    def _check_unusual(self, request: HttpRequest, endpoint: Endpoint[Declared], handler: Declared) -> None:
        fields = request.headers
        coding = fields.get("transfer-encoding")
        if coding is not None and coding.strip().lower() != "chunked":
            # What is coded besides would be stored as it is, which nobody who sent it means.
            raise Refusal("not_built", "of transfer codings 'chunked' alone is known here")
        if "if-match" in fields and request.method not in READING and endpoint.pattern not in MATCHED:
            raise Refusal("not_built", "If-Match is for users, rules, topics, groups and webhooks; nothing changed")
        if handler.acts and "sec-fetch-site" in fields:
            self._cors.check_act(fields)


Place = tuple[str, str, "Endpoint[Declared] | None", tuple[str, ...]]
"""What a target says: raw path, raw query, the calls of the path, the path's raw captures."""


def _conditional(fields: Mapping[str, str], response: Response, matched: bool) -> Response:
    """The answer with its tag, or 304 to who has it."""
    if response.status != 200:
        return response
    tag = response.headers.get("ETag") or strong_tag(response.body) if matched else tag_of(response.body)
    if matches(fields.get("if-none-match", ""), tag):
        return Response(status=304, headers={"ETag": tag, "Cache-Control": "no-cache"})
    response.headers = {**response.headers, "ETag": tag, "Cache-Control": "no-cache"}
    return response
