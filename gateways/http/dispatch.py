"""From a request to its call, the call while it is under way, and from that to its answer. Everything that a handler
raises ends here as an answer.

The calls are a tree of raw path segments, walked without decoding anything; a literal segment wins over a capture:

    /v1/publish/{address...}       the rest of the path, slashes and all
    /v1/topics/{topic}/messages    one segment
    /healthz                       itself

A call is a coroutine that is driven by hand (`Running`) to its first wait, and on. One that waits for a `Reply`, which
somebody gives once (the kernel, a reader, a task), costs nothing more than that; for anything else a task takes it
over.
"""
from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from gatehouse.gateways.admission.audit import Author
from gatehouse.gateways.http.column import HTTP
from gatehouse.gateways.http.exchange import (
    Answered,
    Call,
    Handover,
    Heads,
    Response,
    add_vary,
    answer_to,
    split_target,
)
from gatehouse.gateways.http.problems import Refusal
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
from gatehouse.gateways.http.websocket.handshake import WEBSOCKET, lead_to
from gatehouse.kernel.message import Stored

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from gatehouse.gateways.contract import WebSocketRoute
    from gatehouse.gateways.http.declaring import Declared
    from gatehouse.gateways.http.door import Door

# --- where paths lead -------------------------------------------------------------------------------------------------

Handler = TypeVar("Handler")


class Endpoint(Generic[Handler]):
    """One path with the handler of each of its methods."""

    __slots__ = ("pattern", "handlers")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.handlers: dict[str, Handler] = {}

    def handler(self, method: str) -> Handler | None:
        """The method's handler; HEAD is answered by GET's, whose body the server leaves out."""
        return self.handlers.get("GET" if method == "HEAD" else method)

    def allow(self) -> str:
        """The value of the `Allow` header."""
        methods = set(self.handlers)
        if "GET" in methods:
            methods.add("HEAD")
        return ", ".join(sorted(methods))


class _Node(Generic[Handler]):
    """Where the paths are that begin alike."""

    __slots__ = ("literals", "capture", "rest", "endpoint")

    def __init__(self) -> None:
        self.literals: dict[str, _Node[Handler]] = {}
        self.capture: _Node[Handler] | None = None
        self.rest: Endpoint[Handler] | None = None
        self.endpoint: Endpoint[Handler] | None = None


class RouteTable(Generic[Handler]):
    """Every path of the door."""

    def __init__(self) -> None:
        self._root: _Node[Handler] = _Node()
        self.endpoints: list[Endpoint[Handler]] = []

    def add(self, method: str, pattern: str, handler: Handler) -> None:
        """Declare one call. A pattern and method may be declared once."""
        node = self._root
        segments = pattern.removeprefix("/").split("/")
        last = segments[-1]
        if last.endswith("...}"):
            segments.pop()
        for segment in segments:
            node = self._child(node, segment)
        endpoint = node.rest if last.endswith("...}") else node.endpoint
        if endpoint is None:
            endpoint = Endpoint(pattern)
            self.endpoints.append(endpoint)
            if last.endswith("...}"):
                node.rest = endpoint
            else:
                node.endpoint = endpoint
        if method in endpoint.handlers:
            raise ValueError(f"{method} {pattern} is declared twice")
        endpoint.handlers[method] = handler

    def find(self, raw_path: str) -> tuple[Endpoint[Handler], tuple[str, ...]] | None:
        """The endpoint of a raw path and its raw captures in order, or None."""
        if not raw_path.startswith("/"):
            return None
        segments = raw_path[1:].split("/")
        node = self._root
        captures: list[str] = []
        for at, segment in enumerate(segments):
            if node.rest is not None:
                captures.append("/".join(segments[at:]))
                return node.rest, tuple(captures)
            literal = node.literals.get(segment)
            if literal is not None:
                node = literal
            elif node.capture is not None and segment:
                captures.append(segment)
                node = node.capture
            else:
                return None
        return (node.endpoint, tuple(captures)) if node.endpoint is not None else None

    @staticmethod
    def _child(node: _Node[Handler], segment: str) -> _Node[Handler]:
        if not segment.startswith("{"):
            return node.literals.setdefault(segment, _Node())
        if node.capture is None:
            node.capture = _Node()
        return node.capture


# --- what a call waits for --------------------------------------------------------------------------------------------

T = TypeVar("T")
U = TypeVar("U")


class Reply(Generic[T]):  # decision 132
    """An answer that is waited for by one coroutine; the first one counts. A task takes it for a future of its own
    (`asyncio.isfuture`): that is what `_asyncio_future_blocking` and the methods at the end are for."""

    _asyncio_future_blocking = False
    _done = False
    _error: BaseException | None = None
    _result: T | None = None
    _wake: Callable[[], object] | None = None
    _finish: Callable[[Any], Any] | None = None

    def done(self) -> bool:
        """Whether there is an answer."""
        return self._done

    def set_result(self, result: T) -> None:
        """Answer, unless that was done already."""
        if not self._done:
            self._done = True
            self._result = result
            self._tell()

    def set_exception(self, error: BaseException) -> None:
        """Answer with an error, unless there is an answer."""
        if not self._done:
            self._done = True
            self._error = error
            self._tell()

    def result(self) -> T:
        """The answer. Raises its error; one error may answer a whole flush, and collects nobody's traceback."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        finish = self._finish
        return cast(T, self._result if finish is None else finish(self._result))

    def finished_by(self, finish: Callable[[T], U]) -> Reply[U]:
        """This reply; who waits for it is given what `finish` makes of the answer."""
        self._finish = finish
        return cast("Reply[U]", self)

    def then(self, wake: Callable[[], object]) -> None:
        """Call this once there is an answer. Whoever waits otherwise waits no more."""
        self._wake = wake

    def _tell(self) -> None:
        wake, self._wake = self._wake, None              # they may point at each other
        if wake is not None:
            wake()

    def __await__(self) -> Generator[Any, None, T]:
        if not self._done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    # --- what a task asks of a future ---------------------------------------------------------------------------

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def add_done_callback(self, call_back: Callable[[Any], object], *, context: Context | None = None) -> None:
        soon = partial(asyncio.get_running_loop().call_soon, call_back, self, context=context)
        if self._done:
            soon()
        else:
            self._wake = soon

    def remove_done_callback(self, _: Callable[[Any], object]) -> int:
        self._wake = None
        return 1

    def cancel(self, msg: object = None) -> bool:
        done = self._done
        self.set_exception(asyncio.CancelledError())
        return not done

    def cancelled(self) -> bool:
        return isinstance(self._error, asyncio.CancelledError)

    def exception(self) -> BaseException | None:
        return self._error


class Receipt(Reply[Stored]):
    """What one append ends in: a `Stored` without error, or that error, or `outcome_unknown` at the deadline."""


def reply_of(future: asyncio.Future[T]) -> Reply[T | None]:
    """What a future ends in, for one who may be told something else before."""
    reply: Reply[T | None] = Reply()

    def on_done(done: asyncio.Future[T]) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is None:
            reply.set_result(done.result())
        else:
            reply.set_exception(error)

    future.add_done_callback(on_done)
    return reply


# --- which host is asked ----------------------------------------------------------------------------------------------

ANY_HOST: Final = "*"
LOCALHOST: Final = "localhost"
HOST: Final = re.compile(r"(\[[0-9A-Za-z:.%]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(:[0-9]*)?")
"""`uri-host [ ":" port ]` (RFC 3986, 3.2.2), with room for an IPv6 zone."""

SINGLE_LABEL: Final = re.compile(r"[a-z_][a-z0-9_-]*")
SEEN_MAX: Final = 256
"""Texts of `Host` that are remembered as good: ports make several of one name."""


class Hosts:  # decision 101
    """Which host a request may ask for (RFC 9110, 7.2). This keeps a web page from speaking to a hub that lets
    everybody in. `own_names` are this machine's.

    A page's own name can be led to 127.0.0.1 (DNS rebinding). To the browser the hub is then the page's own server: it
    sends no foreign `Origin`, and lets the page read every answer. Only the name in `Host` is still the page's. So
    while anonymous access is allowed, which only loopback may, and wherever `allowed_hosts` names some, a request must
    ask for an address (no name leads there), a name without a dot (nobody can buy one: `localhost`, a container's),
    this machine's own name, or one of those. Others are answered 421 before anything happens.
    """

    def __init__(self, allowed: Iterable[str], own_names: Iterable[str]) -> None:
        named = frozenset(map(_plain_name, allowed))
        self._any = ANY_HOST in named
        self._always = bool(named)
        self._names = named | {_plain_name(name) for name in own_names if name}
        self._admitted: set[str] = set()
        self._for_anonymous = False          # what was so when they were looked at

    def admit(self, host: str, anonymous_allowed: bool) -> None:
        """Refuses `malformed_request` where it can be no `Host` at all, and what `check` refuses."""
        if anonymous_allowed is not self._for_anonymous or len(self._admitted) >= SEEN_MAX:
            self._admitted.clear()
            self._for_anonymous = anonymous_allowed
        elif host in self._admitted:
            return
        if not is_host(host):
            raise Refusal("malformed_request", "Host is no name and port", headers={"Connection": "close"})
        self.check(host, anonymous_allowed)
        self._admitted.add(host)

    def check(self, host: str | None, anonymous_allowed: bool) -> None:
        """Refuses `host_not_allowed`. `host` is the header as it came; none at all is no browser's."""
        if not self.allows(host, anonymous_allowed):
            raise Refusal("host_not_allowed", f"this hub is not asked by the name {(host or '')[:200]!r}; ask for its "
                                              "address, or name it in gateways.http.allowed_hosts")

    def allows(self, host: str | None, anonymous_allowed: bool) -> bool:
        """Whether it may be asked so."""
        return not host or self._any or not (anonymous_allowed or self._always) or self._is_allowed(host)

    def _is_allowed(self, host: str) -> bool:
        name = name_of(host)
        return (name in self._names or SINGLE_LABEL.fullmatch(name) is not None
                or name.endswith("." + LOCALHOST) or _is_ip_address(name))               # RFC 6761, 6.3


def is_host(text: str) -> bool:
    """Whether it can be a `Host` at all; what cannot is no request (RFC 9112, 3.2)."""
    return HOST.fullmatch(text) is not None


def name_of(host: str) -> str:
    """The name in `NAME:PORT`, as it is compared; empty where it is none (RFC 9110, 7.2)."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        return name if bracket and (not port or _is_port(port)) and ":" in name else ""
    name, colon, port = host.partition(":")
    return _plain_name(name) if not colon or _is_port(colon + port) else ""


def authority_of(target: str) -> str | None:
    """The host of a request target in absolute form, which counts instead of `Host` (RFC 9112, 3.2.2)."""
    scheme, separator, rest = target.partition("://")
    return rest.partition("/")[0].partition("?")[0] if separator and scheme.isalpha() else None


def _plain_name(name: str) -> str:
    """Names are alike whatever their case, and with the root's dot behind them."""
    return name.strip().lower().removesuffix(".")


def _is_port(text: str) -> bool:
    return text.startswith(":") and text.isascii() and (text == ":" or text[1:].isdigit())


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


# --- who leads requests to their calls --------------------------------------------------------------------------------

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

    def __init__(self, door: Door, built: RouteTable[Declared], mounted: RouteTable[Declared]) -> None:
        """`built` are this door's own calls, `mounted` those of other doors."""
        self.door = door
        self.loop = door.loop
        self.heads = Heads()
        self.idle_ms = round(door.config.idle_timeout_s * 1000)
        self._admission = door.admission
        self._wall_ms = door.services.wall_ms
        self._built = built
        self._mounted = mounted
        self._places: dict[bytes, Place] = {}
        self._cors = door.cors
        self._led: dict[str, tuple[str, WebSocketRoute]] = {
            route.path: (spec.name, route) for spec in door.services.specs for route in spec.websockets}
        self._compress_above_bytes = door.config.compress_above_bytes

    @property
    def counts(self) -> Counter[str]:
        """What happened to the door's connections."""
        return self.door.services.listeners[HTTP.name].counts

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
        expect = fields.get("expect", "")
        if expect and not call.http_10 and expect.lower() != "100-continue":
            raise Refusal("expectation_failed", f"nothing is known about Expect: {expect}")
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
            if isinstance(answered, Handover):
                session.hand_over(call, answered)
            else:
                answered.finish()
                session.end_stream(call, answered.closes)
            return
        declared, endpoint = call.declared, call.endpoint
        if declared is not None and declared.audited and answered.status < 400:
            author = Author(session.user, HTTP.name, session.peer)
            self._admission.audit(author, declared.audited, {"call": f"{call.method} {call.path}"})
        if endpoint is not None and endpoint.pattern in CONDITIONAL and call.method in READING:
            answered = _conditional(call.headers, answered, endpoint.pattern in MATCHED)
        if call.head.unusual or call.head.takes_codings and len(answered.body) >= self._compress_above_bytes:
            self._end_unusual(call, answered)
        else:
            session.respond(call, answered)

    def _end_unusual(self, call: Call, response: Response) -> None:
        """Answer a page of another origin, or who takes a compressed answer."""
        fields = call.headers
        if "origin" in fields:
            self._cors.add_headers(response, fields["origin"])
        coding = self._coding_of(call, response) if call.head.takes_codings else None
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
        if len(response.body) < self._compress_above_bytes or "Content-Encoding" in response.headers \
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
            self._admission.trace.on_event(HTTP.name, code)
        answer = answer_to(error, f"{call.method} {call.path}", call.head.authorization, self.door.services.hub_name,
                           call.headers.get("traceparent", "").encode("utf-8", "surrogateescape"))
        if "expect" in call.headers and not call.complete:
            answer.closes = True         # RFC 9110, 10.1.1: what comes next may be the body or a request
        return answer



# --- calls that are under way -------------------------------------------------------------------------------------

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
