"""`/v1/connections`: who is connected, by whichever door.

    GET /v1/connections?max=&cursor=   {"connections": [{...}], "cursor"}, in the order in which they came
    GET /v1/connections/{id}           one, with what its door tells of it besides
    DELETE /v1/connections/{id}        ends it in its protocol's words; 204 once that is said
"""
from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.http.accounts import ADMINISTERING, administering
from gatehouse.gateways.http.declaring import (
    AFTER,
    CURSOR,
    TEXT,
    TIME_MS,
    WHOLE,
    Answer,
    Named,
    Parameter,
    Whole,
    declare,
    list_of,
    map_of,
    nullable,
    object_of,
)
from gatehouse.gateways.http.door import Door, Routes, author
from gatehouse.gateways.http.exchange import Answered, Call, Response, json_answer
from gatehouse.gateways.http.problems import Refusal

if TYPE_CHECKING:
    from gatehouse.gateways.connections.open_connections import OpenConnection

_ID: Final = re.compile("[0-9]{1,10}-[0-9]{1,19}")
ENDED_BY: Final = "closed by an administrator"
AUDITED: Final = ("id", "door", "peer", "user", "client_id")

_CONNECTION: Final = {
    "id": TEXT, "door": TEXT, "peer": {**TEXT, "description": "HOST:PORT of the other side."},
    "listener": {**TEXT, "description": "The address that it came by, as configured."},
    "since": TIME_MS, "tls": nullable({**TEXT, "description": "The version of TLS that is spoken."}),
    "certificate": nullable({**TEXT, "description": "The user's name in its certificate."}),
    "user": {**TEXT, "description": "Empty until it has logged in; over HTTP, who asked last."},
    "client_id": TEXT, "subscriptions": {**WHOLE, "description": "Filters, or consumers."},
    "unsent_bytes": {**WHOLE, "description": "Written and not yet taken by the other side."}}
NOT_YET: Final = {"user": "", "client_id": "", "subscriptions": 0}
"""What a door does not tell, or not yet."""

LOOKED_IN: Final = ("door", "peer", "user", "client_id")
LOOKED_AT: Final = 250
"""Connections that are described at a time: a millisecond or two."""

CONNECTION: Final = Named("Connection", object_of(_CONNECTION))
DETAILS: Final = {**map_of({}), "description": "What its door tells besides: filters, channels, requests in flight."}
ID: Final = Parameter("id", "The connection's `id`.", example="3-17",
                      text={"type": "string", "pattern": f"^{_ID.pattern}$"})
CONTAINS: Final = Parameter("contains", "Only those with this text in door, peer, user or client id, in whatever case.")
MAX: Final = Whole("max", "Connections in the page.", default=100, lowest=1, highest=1000)


@declare("connections", query=(MAX, AFTER, CONTAINS), needs=ADMINISTERING, problems=("invalid_cursor",), answers=(
    Answer(200, "A page of connections.", object_of({"connections": list_of(CONNECTION), "cursor": CURSOR})),))
async def list_connections(door: Door, call: Call) -> Answered:
    """List connections.

    Of every door, in the order in which they came.
    """
    await administering(door, call)
    query = call.query()
    after = query.get("cursor", "")
    if after and not _ID.fullmatch(after):
        raise Refusal("invalid_cursor", "this cursor was not made here")
    count, wanted = MAX.read(query, door.config), query.get("contains", "").casefold()
    listed: list[dict[str, Any]] = []
    end: str | None = after
    while end is not None and len(listed) < count:
        connections, end = door.services.connections.page(end, min(count - len(listed), LOOKED_AT))
        listed += [summary for summary in (_summary(connection.describe()) for connection in connections)
                   if any(wanted in str(summary[name]).casefold() for name in LOOKED_IN)]
        await asyncio.sleep(0)                       # others have a turn between two looks
    return json_answer({"connections": listed, "cursor": end})


@declare("connections", path=(ID,), needs=ADMINISTERING, problems=("unknown_connection",), answers=(
    Answer(200, "The connection.", object_of({**_CONNECTION, "details": DETAILS})),))
async def get_connection(door: Door, call: Call) -> Answered:
    """Show a connection with what its door tells of it: subscriptions, channels, what waits."""
    await administering(door, call)
    call.query()
    described = _find(door, call).describe()
    details = {name: value for name, value in described.items() if name not in _CONNECTION}
    return json_answer({**_summary(described), "details": details})


@declare("connections", path=(ID,), needs=ADMINISTERING, problems=("unknown_connection",), answers=(
    Answer(204, "It has been told that it is closed."),))
async def close_connection(door: Door, call: Call) -> Answered:
    """Close a connection in its protocol's words. Its client may come back, as after any loss of a connection."""
    principal = await administering(door, call)
    call.query()
    connection = _find(door, call)
    description = connection.describe()
    door.admission.audit(author(call, principal.name), "connection.closed",
                         {name: description.get(name) for name in AUDITED})
    connection.end(ENDED_BY)
    return Response(status=204)


def _find(door: Door, call: Call) -> OpenConnection:
    connection_id = call.topic_name()
    connection = door.services.connections.find(connection_id)
    if connection is None:
        raise Refusal("unknown_connection", f"no connection {connection_id[:50]!r} is open")
    return connection


def _summary(described: dict[str, Any]) -> dict[str, Any]:
    return {name: described.get(name, NOT_YET.get(name)) for name in _CONNECTION}


ROUTES: Routes = (("GET", "/v1/connections", list_connections), ("GET", "/v1/connections/{id}", get_connection),
                  ("DELETE", "/v1/connections/{id}", close_connection))
