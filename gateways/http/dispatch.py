"""From a request to its call: origin check, route, answer. Everything that a handler raises ends here as an answer."""
from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web

from gateways.http.answers import SERVER, Created
from gateways.http.cors import Cors
from gateways.http.door import NAME, Call, Door
from gateways.http.errors import answer_to
from gateways.http.problems import Refusal
from gateways.http.routes import build_not_built_table, build_table
from gateways.http.routes.publish import PUBLISH_PREFIX, publish
from gateways.http.target import split_target

Mounted = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Dispatcher:
    """The server's one request handler; `counts` are the door's."""

    def __init__(self, door: Door, counts: Counter[str]) -> None:
        self._door = door
        self._counts = counts
        self._built = build_table()
        self._not_built = build_not_built_table()
        self._cors = Cors(door.config.cors_origins)
        self.mounted: Mounted | None = None
        """Answers what the table does not know: the routes of other doors."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        origin = request.headers.get("Origin")
        try:
            if origin is not None:
                self._cors.check(origin, request.headers.get("Host", ""))
            response = await self._dispatch(request)
        except ConnectionError:
            raise                # the client has gone: there is nobody to answer
        except Exception as error:
            response = answer_to(error, request, self._door.services.hub_name)
            self._count(error)
        if type(response) is not Created:
            response.headers["Server"] = SERVER
        if origin is not None:
            self._cors.add_headers(response, origin)
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
        path, raw_query = split_target(request.raw_path)
        if path.startswith(PUBLISH_PREFIX) and request.method == "POST":     # the hot call: not looked for in the table
            return await publish(self._door, Call(request, (path[len(PUBLISH_PREFIX):],), raw_query))
        found = self._built.find(path)
        if found is None and self.mounted is not None:
            try:
                return await self.mounted(request)
            except web.HTTPNotFound:
                pass         # not one of theirs either
        found = found or self._not_built.find(path)
        if found is None:
            raise Refusal("not_found", f"there is no {path[:200]}")
        endpoint, captures = found
        handler = endpoint.handler(request.method)
        if handler is not None:
            return await handler(self._door, Call(request, captures, raw_query))
        if request.method == "OPTIONS" and self._cors.is_preflight(request):
            return self._cors.preflight(endpoint.allow(), request)
        raise Refusal("method_not_allowed", f"{endpoint.pattern} has no {request.method[:32]}",
                      headers={"Allow": endpoint.allow()})
