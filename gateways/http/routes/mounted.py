"""Calls at paths that other doors have asked for (`contract.HttpRoute`): who asks is found here, the rest is theirs.

They are no part of this door's interface and of its document: their clients know what they are part of.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import orjson

from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.contract import HttpAnswer
from gatehouse.gateways.http.declaring import Declared
from gatehouse.gateways.http.dispatch import Reply, RouteTable
from gatehouse.gateways.http.exchange import JSON, MAX_PARAMETERS, Answered, Response, decode_levels
from gatehouse.gateways.http.login import challenges
from gatehouse.gateways.http.problems import Refusal

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.contract import GatewaySpec, HttpRoute
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.exchange import Call

METHODS: Final = ("GET", "PUT", "POST", "DELETE")
TAG: Final = "mounted"


class MountedAsk:
    """A call of another door's interface, as that door is given it; see `contract.HttpAsk`."""

    def __init__(self, door: Door, call: Call, principal: Principal, path: tuple[str, ...], query: Mapping[str, str],
                 body: bytes) -> None:
        self._door = door
        self.principal = principal
        self.method = "GET" if call.method == "HEAD" else call.method
        self.path = path
        self.query = query
        self.headers: Mapping[str, str] = call.headers
        self.body = body
        self.peer = call.session.peer

    async def stored(self, change: Callable[[Any, object], object]) -> Any:
        return await self._door.stored(change)

    async def told(self, begin: Callable[[Callable[[Any], None]], object]) -> Any:
        reply: Reply[Any] = Reply()
        begin(reply.set_result)
        return await reply


def mounted_table(specs: Iterable[GatewaySpec]) -> RouteTable[Declared]:
    """The table of all paths that doors have asked for."""
    table: RouteTable[Declared] = RouteTable()
    for route in (route for spec in specs for route in spec.http):
        run = Declared(partial(_run, route), TAG, query=(), headers=(), path=(), bodies=(), answers=(), problems=(),
                       needs=(), writes=False, public=False, audited="", acts=False, pipelined=False)
        for method in METHODS:
            table.add(method, route.path, run)
            table.add(method, route.path + "/{rest...}", run)
    return table


async def _run(route: HttpRoute, door: Door, call: Call) -> Answered:
    try:
        principal = await door.principal(call, route.preset)
        path = tuple(decode_levels(call.captures[0])) if call.captures else ()
        body = await door.bodies.read_document(call)
        answer = await route.serve(door.services, MountedAsk(door, call, principal, path, _query(call), body))
    except Exception as error:
        refused = route.refuse(error)
        if refused is None:
            raise
        code = getattr(error, "code", None)
        if isinstance(code, str):
            door.admission.trace.on_event("http", code)
        if isinstance(error, NotAuthenticated):
            challenge = challenges(door.services.hub_name, call.head.authorization)
            refused = refused._replace(headers={**refused.headers, "WWW-Authenticate": challenge})
        answer = refused
    return _response(answer)


def _query(call: Call) -> dict[str, str]:
    try:
        return dict(parse_qsl(call.raw_query, keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS))
    except ValueError:
        raise Refusal("invalid_parameter", f"the query is not UTF-8 or has over {MAX_PARAMETERS} parameters") from None


def _response(answer: HttpAnswer) -> Response:
    if answer.document is None:
        return Response(answer.body, answer.status, dict(answer.headers), answer.content_type)
    return Response(orjson.dumps(answer.document), answer.status, dict(answer.headers), JSON)
