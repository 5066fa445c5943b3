"""`/v1/limits`: how much may come in and go out. Needs the right to administer.

    GET, POST /v1/limits                {"limits": [{...}], "cursor"}, those of the configuration first
    GET, PUT, DELETE /v1/limits/{id}    one, with who has taken most under it; those of the configuration
                                        (`from_file`) are changed there

The quotas of users are theirs: `/v1/users`.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.limits.limit import IN, OUT, Limit
from gatehouse.gateways.http.accounts import ADMINISTERING, CHANGES, administrator, changed, changed_if
from gatehouse.gateways.http.declaring import (
    AFTER,
    CURSOR,
    FLAG,
    MAX_LISTED,
    PRINTABLE,
    TEXT,
    WHOLE,
    Answer,
    Body,
    Named,
    Parameter,
    declare,
    list_of,
    map_of,
    object_of,
    one_of,
)
from gatehouse.gateways.http.door import Door, Routes, read_object
from gatehouse.gateways.http.exchange import Answered, Call, Response, defined_answer, json_answer
from gatehouse.gateways.http.page import page_by_place

if TYPE_CHECKING:
    from gatehouse.gateways.admission.administration import Administration
    from gatehouse.gateways.admission.limits.meter import Meter

ID: Final = Parameter("id", "The limit's `id`.", example="7", text={"type": "string", "minLength": 1, "maxLength": 32})
MOST_USED: Final = 20

_OF_CONNECTIONS: Final = {**TEXT, "format": "limit-of-connections", "pattern": "^(hub|(door|tenant|user):.+)$"}
_OF_HUB: Final = {**TEXT, "format": "limit-of-the-hub", "pattern": "^(hub|(door|tenant|group|user):.+)$",
                  "description": "Of what: `hub`, or KIND:NAME; `*` in place of the name: each by itself."}
_OF_A_TENANT: Final = {**TEXT, "format": "limit-of-a-tenant", "pattern": "^(client|address|topic):.+$"}
_OF_YIELDING: Final = {**TEXT, "format": "limit-that-may-yield",
                       "pattern": "^(user:.+|client:.+|user-client:[^/]+/.+)$"}
_OF_CONSUMERS: Final = {**TEXT, "format": "limit-of-consumers", "pattern": "^consumers:.+$"}
_RATE: Final = {"type": "number", "minimum": 0, "maximum": 10 ** 18, "description": "A second; 0: nothing passes."}
_BURST: Final = {"type": "integer", "minimum": 1, "maximum": 10 ** 18,
                 "description": "At once; left out: what comes in a second."}
_CONNECTIONS: Final = {"connections": {**WHOLE, "maximum": 10 ** 18, "description": "Open at once, of the hub, a door, "
                                                                                   "a tenant or a user."}}
_OF_STORED: Final = {**TEXT, "format": "limit-of-what-is-stored", "pattern": "^tenant:.+$"}
_OF_STORED_TOPIC: Final = {**TEXT, "format": "limit-of-a-topic", "pattern": "^topic:.+$"}
_STORED: Final = {
    name: {**WHOLE, "maximum": 10 ** 18, "description": "That may be there at once, of a tenant or in a topic."}
    for name in ("stored_messages", "stored_bytes")}
_RATES: Final = {"messages_per_s": _RATE, "bytes_per_s": _RATE, "operations_per_s": _RATE}
_BURSTS: Final = {"messages_burst": _BURST, "bytes_burst": _BURST, "operations_burst": _BURST}
_DIRECTION: Final = {"direction": one_of(IN, OUT)}
_OBSERVE: Final = {"observe": {**FLAG, "description": "It counts what would be too much, and stops nobody."}}
_YIELDS: Final = {"yields": {**FLAG, "description": "It holds only for those of whom no limit speaks that names user "
                                                    "and client id, the user, or the client id more closely."}}
_TENANT: Final = {"tenant": {**PRINTABLE, "description": "`*`: each by itself."}}
_LIMIT: Final = {"id": TEXT, "of": TEXT, "direction": one_of(IN, OUT), "tenant": TEXT, "observe": FLAG,
                 "from_file": FLAG}
LIMIT: Final = Named("Limit", object_of(_LIMIT, {**_RATES, **_BURSTS, **_CONNECTIONS, **_STORED, **_YIELDS}))
_USED: Final = list_of(object_of({
    "name": TEXT, "messages": WHOLE, "bytes": WHOLE, "refused": WHOLE, "observed": WHOLE, "slowed_ms": WHOLE,
    "left": {**map_of({"type": "integer"}), "description": "Below 0: what is owed."}}))
USED_LIMIT: Final = Named("UsedLimit", object_of({**_LIMIT, "used": _USED},
                                                 {**_RATES, **_BURSTS, **_CONNECTIONS, **_STORED, **_YIELDS}))
_VARIANTS: Final = (({"of": _OF_HUB}, _DIRECTION), ({"of": _OF_A_TENANT}, {**_DIRECTION, **_TENANT}),
                    ({"of": _OF_YIELDING}, {**_DIRECTION, **_YIELDS}),
                    ({"of": _OF_CONSUMERS, "direction": one_of(OUT)}, _TENANT))
NEW_LIMIT: Final = Named("LimitInput", {"anyOf": [
    *[object_of({**needed, name: _RATE}, {**_RATES, f"{name.partition('_')[0]}_burst": _BURST, **more, **_OBSERVE},
                closed=True) for needed, more in _VARIANTS for name in _RATES],
    *[object_of({"of": of, name: _STORED[name]}, {**_STORED, **more, **_OBSERVE}, closed=True)
      for name in _STORED for of, more in ((_OF_STORED, {}), (_OF_STORED_TOPIC, _TENANT))],
    object_of({"of": _OF_CONNECTIONS, **_CONNECTIONS}, _OBSERVE, closed=True)]},
    {"of": "user:ann", "messages_per_s": 50, "messages_burst": 100})


@declare("limits", query=(MAX_LISTED, AFTER), needs=ADMINISTERING, problems=("invalid_cursor", "accounts_unavailable"),
         answers=(Answer(200, "A page of limits.", object_of({"limits": list_of(LIMIT), "cursor": CURSOR})),))
async def list_limits(door: Door, call: Call) -> Answered:
    """List limits: those of the configuration, then the others in the order in which they were made."""
    _, accounts = await administrator(door, call)
    query = call.query()
    page, cursor = page_by_place(accounts.accounts.every_limit(), query.get("cursor", ""),
                                 MAX_LISTED.read(query, door.config))
    return json_answer({"limits": [limit.as_dict() for limit in page], "cursor": cursor})


@declare("limits", bodies=(Body(NEW_LIMIT),), needs=ADMINISTERING, problems=("invalid_limit", *CHANGES),
         answers=(Answer(201, "It holds from now on.", LIMIT),))
async def add_limit(door: Door, call: Call) -> Answered:
    """Add a limit. It holds with the next message, for those who are connected too."""
    by, accounts = await administrator(door, call)
    call.query()
    document = await read_object(door, call)
    limit: Limit = await changed(door, call, lambda on_done: accounts.add_limit(by, document, on_done))
    return json_answer(limit.as_dict(), 201)


@declare("limits", path=(ID,), needs=ADMINISTERING, problems=("unknown_limit", "accounts_unavailable"),
         answers=(Answer(200, "The limit, and who has taken most under it.", USED_LIMIT),))
async def get_limit(door: Door, call: Call) -> Answered:
    """Show a limit, who has taken most under it since the hub started, and what each has left."""
    _, accounts = await administrator(door, call)
    call.query()
    limit = accounts.limit(call.topic_name())
    now_ms = door.services.now_ms()
    used = [_shown(meter, now_ms) for meter in door.admission.limits.most_used(limit.id, MOST_USED)]
    return defined_answer(limit.as_dict(), {"used": used})


@declare("limits", path=(ID,), bodies=(Body(NEW_LIMIT),), needs=ADMINISTERING,
         problems=("invalid_limit", "unknown_limit", "from_file", "precondition_failed", *CHANGES),
         answers=(Answer(200, "It reads as the document says.", LIMIT),))
async def put_limit(door: Door, call: Call) -> Answered:
    """Make a limit read as the document says.

    What was taken under it stays taken. `If-Match` with the limit's `ETag` changes only what was seen.
    """
    by, accounts = await administrator(door, call)
    call.query()
    document = await read_object(door, call)
    limit: Limit = await changed_if(door, call, lambda: _found(accounts, call.topic_name()),
                                    lambda on_done: accounts.replace_limit(by, call.topic_name(), document, on_done))
    return json_answer(limit.as_dict())


@declare("limits", path=(ID,), needs=ADMINISTERING,
         problems=("unknown_limit", "from_file", "precondition_failed", *CHANGES),
         answers=(Answer(204, "Nothing is limited by it any more."),))
async def delete_limit(door: Door, call: Call) -> Answered:
    """Delete a limit. Who waits for it waits no longer."""
    by, accounts = await administrator(door, call)
    call.query()
    await changed_if(door, call, lambda: _found(accounts, call.topic_name()),
                     lambda on_done: accounts.delete_limit(by, call.topic_name(), on_done))
    return Response(status=204)


def _shown(meter: Meter, now_ms: int) -> dict[str, Any]:
    return {"name": meter.name, "messages": meter.messages_taken, "bytes": meter.bytes_taken, "refused": meter.refused,
            "observed": meter.observed, "slowed_ms": meter.slowed_ms, "left": meter.levels(now_ms)}


def _found(accounts: Administration, id: str) -> dict[str, Any] | None:
    """What a request may ask about."""
    return next((limit.as_dict() for limit in accounts.accounts.every_limit() if limit.id == id), None)


ROUTES: Routes = (
    ("GET", "/v1/limits", list_limits), ("POST", "/v1/limits", add_limit), ("GET", "/v1/limits/{id}", get_limit),
    ("PUT", "/v1/limits/{id}", put_limit), ("DELETE", "/v1/limits/{id}", delete_limit))
