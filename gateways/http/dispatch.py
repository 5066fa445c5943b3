"""From a request to its call, the call while it is under way, and from that to its answer. Everything that a handler
raises ends here as an answer.

A call is a coroutine that is driven by hand (`Running`) to its first wait, and on. One that waits for a `Reply` costs
nothing more than that; for anything else a task takes it over.
"""
from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from gatehouse.gateways.http.door import NAME, Door, author
from gatehouse.gateways.http.openapi import routes_of
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.replies import Receipt, Reply
from gatehouse.gateways.http.representation import (
    COMPRESSED_TYPES,
    MATCHED,
    TAGGED,
    WEAK,
    accepts,
    choose,
    encode,
    matches,
    strong_tag,
    tag_of,
)
from gatehouse.gateways.http.request import Call, Endpoint, Heads, authority_of, split_target
from gatehouse.gateways.http.response import Answered, Handover, Response, add_vary, answer_to
from gatehouse.gateways.http.routes import build_table
from gatehouse.gateways.http.routes.mounted import mounted_table
from gatehouse.gateways.http.stream import Stream
from gatehouse.gateways.http.websocket.handshake import WEBSOCKET, lead_to

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from gatehouse.gateways.contract import WebSocketRoute
    from gatehouse.gateways.http.declaring import Declared

log = logging.getLogger("gatehouse.gateways.http")

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
        self.loop = door.loop
        self.heads = Heads()
        self.idle_ms = round(door.config.idle_timeout_s * 1000)
        self._admission = door.admission
        self._wall_ms = door.services.wall_ms
        self._built = build_table()
        self._mounted = mounted_table(door.services.specs)
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

    def soon(self, call_back: Callable[[], None]) -> None:
        """Call this in the loop's next turn."""
        self.loop.call_soon(call_back)

    # --- from a request to its call -----------------------------------------------------------------------------

    def begin(self, call: Call) -> None:
        """Begin the call that a request asks for."""
        self.find(call)
        try:
            running = self._run(call)
        except Exception as error:
            self.fail(call, error)
            return
        if isinstance(running, Reply):
            if running.done():
                self._end_with(call, running)
            else:                            # it does nothing more than wait for this
                call.submitted = call.declared is not None and call.declared.pipelined
                running.then(partial(self._end_with, call, running))
        elif isinstance(running, (Response, Handover)):
            self.end(call, running)
        else:
            Running(self, call, cast("Coroutine[Any, Any, Answered]", running)).go_on()

    def _end_with(self, call: Call, reply: Reply[Any]) -> None:
        try:
            answered = reply.result()
        except Exception as error:
            self.fail(call, error)
        else:
            self.end(call, answered)

    def find(self, call: Call) -> None:
        """Put into the call what its target says."""
        target = call.target
        place = self._places.get(target)
        if place is None:
            if len(self._places) >= TARGETS_MAX:
                self._places.clear()
            place = self._places[target] = self._find(target)
        call.path, call.raw_query, call.captures, endpoint = place
        if endpoint is not None:
            call.endpoint = endpoint
            call.declared = endpoint.handler(call.method)

    def _find(self, target: bytes) -> Place:
        path, raw_query = split_target(target.decode("utf-8", "surrogateescape"))
        match = self._built.find(path) or self._mounted.find(path)
        return (path, raw_query, (), None) if match is None else (path, raw_query, match[1], match[0])

    def is_pipelined(self, call: Call) -> bool:
        """See `Declared.pipelined`."""
        if call.fault is not None:
            return False
        self.find(call)
        return call.declared is not None and call.declared.pipelined

    def _run(self, call: Call) -> Awaitable[Answered] | Response | Handover:
        """The call: a coroutine that has not begun yet, or what it waits for; or its answer where it needs none. Raises
        what it is refused for."""
        if call.fault is not None:
            raise call.fault
        head, handler = call.head, call.declared
        self._check_browser(call)
        if self._led and call.path in self._led and (head.upgrade == WEBSOCKET or call.endpoint is None):
            return lead_to(call, *self._led[call.path])
        if handler is None:
            return self._answer_without(call)
        if head.unusual:
            self._check_unusual(call, handler)
        if head.accept is not None and handler.media and not accepts(head.accept, handler.media):
            # Nothing is done for who does not take what it is answered with.
            raise Refusal("not_acceptable", f"this is answered as {', '.join(sorted(handler.media))}")
        return handler.run(self.door, call)

    def _answer_without(self, call: Call) -> Response:
        """What a method is told that the path has not."""
        endpoint = call.endpoint
        if endpoint is None:
            raise Refusal("not_found", f"there is no {call.path[:200]}")
        if call.method == "OPTIONS" and self._cors.is_preflight(call.headers):
            return self._cors.preflight(endpoint.allow(), call.headers)
        raise Refusal("method_not_allowed", f"{endpoint.pattern} has no {call.method[:32]}",
                      headers={"Allow": endpoint.allow()})

    def _check_browser(self, call: Call) -> None:
        """Refuses what a page of somebody else makes its reader's browser ask for."""
        head = call.head
        hosts, host, anonymous = self.door.hosts, head.host, self._admission.allow_anonymous
        if host:
            hosts.admit(host, anonymous)
        if not call.target.startswith(b"/"):
            authority = authority_of(call.target.decode("utf-8", "surrogateescape"))
            if authority is None and call.method != "OPTIONS":
                raise Refusal("malformed_request", "a target is a path (RFC 9112, 3.2)",
                              headers={"Connection": "close"})
            hosts.check(authority, anonymous)
        if head.unusual:
            fields = head.fields
            if "origin" in fields:
                self._cors.check(fields["origin"], host or "")
            elif "sec-fetch-site" in fields:
                self._cors.check_site(fields["sec-fetch-site"], call.method, fields)

    def _check_unusual(self, call: Call, handler: Declared) -> None:
        fields, endpoint = call.headers, call.endpoint
        coding = fields.get("transfer-encoding")
        if coding is not None and coding.strip().lower() != "chunked":
            # What is coded besides would be stored as it is, which nobody who sent it means.
            raise Refusal("not_built", "of transfer codings 'chunked' alone is known here")
        if call.method not in READING and ("if-match" in fields or "if-none-match" in fields) \
                and (endpoint is None or endpoint.pattern not in MATCHED):
            raise Refusal("not_built", "If-Match and If-None-Match are for users, rules, limits, topics, groups and "
                                       "webhooks; nothing changed")
        if handler.acts and "sec-fetch-site" in fields:
            self._cors.check_act(fields)

    # --- from a call to its answer ------------------------------------------------------------------------------

    def end(self, call: Call, answered: Answered) -> None:
        """A call has come to its end."""
        session = call.session
        if not isinstance(answered, Response):
            if isinstance(answered, Stream):
                answered.finish()
                session.end_stream(call, answered.closes)
            else:
                session.hand_over(call, answered)
            return
        declared, endpoint = call.declared, call.endpoint
        if declared is not None and declared.audited and answered.status < 400:
            self._admission.audit(author(call, session.user), declared.audited, {"call": f"{call.method} {call.path}"})
        if endpoint is not None and endpoint.pattern in CONDITIONAL and call.method in READING:
            answered = _conditional(call.headers, answered, endpoint.pattern in MATCHED)
        if call.head.unusual:
            self._end_unusual(call, answered)
        else:
            session.respond(call, answered)

    def _end_unusual(self, call: Call, response: Response) -> None:
        """Answer a page of another origin, or who takes a compressed answer."""
        fields = call.headers
        if "origin" in fields:
            self._cors.add_headers(response, fields["origin"])
        coding = self._coding_of(call, response) if "accept-encoding" in fields else None
        if coding is None:
            call.session.respond(call, response)
        elif len(response.body) > COMPRESSED_HERE_BYTES:
            encoding = self.loop.run_in_executor(None, encode, response.body, coding)
            encoding.add_done_callback(lambda done: self._respond_encoded(call, response, coding, done.result()))
        else:
            self._respond_encoded(call, response, coding, encode(response.body, coding))

    def _coding_of(self, call: Call, response: Response) -> str | None:
        """How large text is compressed for who asks for it; None: not at all. What has a strong tag never is: other
        bytes would have another one, and changes (`If-Match`) ask by it."""
        if len(response.body) < self.door.config.compress_above_bytes or "Content-Encoding" in response.headers \
                or "Content-Range" in response.headers or call.method == "HEAD" \
                or not response.headers.get("ETag", WEAK).startswith(WEAK) \
                or COMPRESSED_TYPES.match(response.content_type) is None:
            return None
        add_vary(response, "Accept-Encoding")
        return choose(call.headers["accept-encoding"])

    @staticmethod
    def _respond_encoded(call: Call, response: Response, coding: str, body: bytes) -> None:
        response.body = body
        response.set("Content-Encoding", coding)
        call.session.respond(call, response)

    def fail(self, call: Call, error: BaseException) -> None:
        """A call has ended by an error: it is answered with that, if it can be answered still."""
        session = call.session
        if isinstance(error, (ConnectionError, asyncio.CancelledError)):
            session.break_off("")            # the client has gone: there is nobody to answer
        elif call.streams:
            self.counts["faults"] += 1
            log.error("%s %s failed within its answer", call.method, call.path, exc_info=error)
            session.break_off("internal_error")
        elif isinstance(error, Exception):
            self.end(call, self._refuse(call, error))

    def _refuse(self, call: Call, error: Exception) -> Response:
        """The answer to a request that ended so; it is counted."""
        code = getattr(error, "code", None)
        if code is None:
            self.counts["faults"] += 1
        else:
            self._admission.trace.on_event(NAME, code)
        answer = answer_to(error, f"{call.method} {call.path}", call.head.authorization, self.door.services.hub_name,
                           call.headers.get("traceparent", "").encode("utf-8", "surrogateescape"))
        if "expect" in call.headers and not call.complete:
            answer.closes = True         # RFC 9110, 10.1.1: what comes next may be the body or a request
        return answer



# --- calls that wait for them -------------------------------------------------------------------------------------

class Running:
    """A call that is under way."""

    _waits_for: Reply[Any] | None = None
    _task: asyncio.Task[None] | None = None

    def __init__(self, dispatcher: Dispatcher, call: Call, coroutine: Coroutine[Any, Any, Answered]) -> None:
        self._dispatcher = dispatcher
        self._call = call
        self._coroutine: Coroutine[Any, Any, Answered] | None = coroutine

    def go_on(self) -> None:  # decision 132
        """Run the call as far as it comes without waiting."""
        coroutine = self._coroutine
        if coroutine is None:
            return                           # it was cancelled while it was about to go on
        try:
            waits_for = coroutine.send(None)
        except StopIteration as stop:
            self._over()
            self._dispatcher.end(self._call, stop.value)
        except (Exception, asyncio.CancelledError) as error:
            self._over()
            self._dispatcher.fail(self._call, error)
        else:
            self._wait(coroutine, waits_for)

    def _over(self) -> None:
        """The call has come to its end: the two point at each other no more."""
        self._coroutine = None
        self._call.ends_by(None)

    def _wait(self, coroutine: Coroutine[Any, Any, Answered], waits_for: object) -> None:
        call = self._call
        if call.cancel is None:
            call.ends_by(self._cancel)
        if not isinstance(waits_for, Reply):
            self._coroutine = None
            self._task = self._dispatcher.loop.create_task(self._finish(_TakenOver(coroutine, waits_for)))
            return
        self._waits_for = waits_for
        if type(waits_for) is Receipt and call.declared is not None and call.declared.pipelined:
            call.submit()
            waits_for.then(self.go_on)       # within the kernel's call: what follows only says what was stored
        else:
            waits_for.then(partial(self._dispatcher.loop.call_soon, self.go_on))

    async def _finish(self, taken_over: _TakenOver) -> None:
        try:
            answered = await taken_over
        except asyncio.CancelledError as error:
            self._dispatcher.fail(self._call, error)
            raise
        except Exception as error:
            self._dispatcher.fail(self._call, error)
        else:
            self._dispatcher.end(self._call, answered)

    def _cancel(self) -> None:
        """See `Call.cancel`. What only waits for the disk ends by itself, as soon as it is answered."""
        coroutine = self._coroutine
        if self._task is not None:
            self._task.cancel()
        elif coroutine is not None and not isinstance(self._waits_for, Receipt):
            self._coroutine = None
            try:
                waits_for = coroutine.throw(asyncio.CancelledError())
            except (StopIteration, asyncio.CancelledError):
                return
            except Exception as error:
                self._dispatcher.fail(self._call, error)
            else:
                self._wait(coroutine, waits_for)


class _TakenOver:
    """A coroutine that has come to its first wait by hand, as a task can go on with it."""

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, Answered], waits_for: object) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Answered]:
        coroutine, waits_for = self._coroutine, self._waits_for
        while True:
            try:
                try:
                    sent = yield waits_for
                except BaseException as error:
                    waits_for = coroutine.throw(error)
                else:
                    waits_for = coroutine.send(sent)
            except StopIteration as stop:
                return cast(Answered, stop.value)


Place = tuple[str, str, tuple[str, ...], "Endpoint[Declared] | None"]
"""What a target says: raw path, raw query, the path's raw captures, its calls."""


def _conditional(fields: Mapping[str, str], response: Response, matched: bool) -> Response:
    """The answer with its tag, or 304 to who has it."""
    if response.status != 200:
        return response
    tag = response.headers.get("ETag") or strong_tag(response.body) if matched else tag_of(response.body)
    if matches(fields.get("if-none-match", ""), tag):
        return Response(status=304, headers={"ETag": tag, "Cache-Control": "no-cache"})
    response.headers = {**response.headers, "ETag": tag, "Cache-Control": "no-cache"}
    return response
