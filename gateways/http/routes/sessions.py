"""`/v1/sessions`: sessions that outlive their connections, of the caller's tenant.

    GET /v1/sessions?max=&cursor=    {"sessions": [{...}], "cursor"}, sorted by client id
    GET /v1/sessions/{client}        one, with its filters
    DELETE /v1/sessions/{client}     ends it, and its connection; 204 once that is durable
"""
from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.http.accounts import ADMINISTERING, administering
from gatehouse.gateways.http.declaring import (
    AFTER,
    CURSOR,
    FLAG,
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
from gatehouse.gateways.http.door import Door, Routes
from gatehouse.gateways.http.exchange import Answered, Call, Response, json_answer
from gatehouse.gateways.http.problems import Refusal
from gatehouse.kernel.errors import UnknownSession
from gatehouse.kernel.sessions.session_values import NEVER

if TYPE_CHECKING:
    from gatehouse.kernel.sessions.session_values import SessionDescription, Subscribed

_SESSION: Final = {
    "client_id": TEXT, "user": {**TEXT, "description": "Whose it is."}, "connected": FLAG,
    "created": TIME_MS,
    "expires": nullable({**TIME_MS, "description": "When it ends, if nobody wakes it; null while it is connected, and "
                                                   "of one that waits for ever."}),
    "expiry": nullable({**WHOLE, "description": "Milliseconds that it waits for its client; null: for ever."}),
    "subscriptions": WHOLE, "waiting": {**WHOLE, "description": "Messages that it has not been handed."},
    "in_flight": {**WHOLE, "description": "Messages that were sent and are not acknowledged."},
    "received": {**WHOLE, "description": "Packet ids with QoS 2 that are not released."},
    "dropped": {**map_of(WHOLE), "description": "Messages that it was not given, by reason: `limit` (more waited than "
                                                "`max_session_messages` or `max_session_bytes`), `age` (they waited "
                                                "longer than `max_session_wait_s`), `expired`, `denied`, `lost`."}}
FILTER: Final = object_of({
    "filter": TEXT, "qos": WHOLE, "no_local": FLAG, "retain_as_published": FLAG, "retain_handling": WHOLE,
    "identifier": nullable(WHOLE), "selector": nullable(TEXT)})
SESSION: Final = Named("Session", object_of(_SESSION))
CLIENT: Final = Parameter("client", "The client id.", example="meter-17")
MAX: Final = Whole("max", "Sessions in the page.", default=100, lowest=1, highest=1000)


@declare("sessions", query=(MAX, AFTER), needs=ADMINISTERING, problems=("invalid_cursor",), answers=(
    Answer(200, "A page of sessions.", object_of({"sessions": list_of(SESSION), "cursor": CURSOR})),))
async def list_sessions(door: Door, call: Call) -> Answered:
    """List sessions that outlive their connections, by client id."""
    principal = await administering(door, call)
    query = call.query()
    count = MAX.read(query, door.config)
    described = door.services.kernel.sessions.page(principal.tenant, _client_of(query.get("cursor", "")), count)
    cursor = _cursor_of(described[-1].client_id) if len(described) == count else None
    return json_answer({"sessions": [_document(session) for session in described], "cursor": cursor})


@declare("sessions", path=(CLIENT,), needs=ADMINISTERING, problems=("unknown_session",), answers=(
    Answer(200, "The session.", object_of({**_SESSION, "filters": list_of(FILTER)})),))
async def get_session(door: Door, call: Call) -> Answered:
    """Show a session with its filters, what waits for it and what it was not given."""
    principal = await administering(door, call)
    call.query()
    client_id = call.topic_name()
    session = door.services.kernel.sessions.describe(principal.tenant, client_id)
    if session is None:
        raise UnknownSession(f"there is no session of the client id {client_id[:80]!r}")
    return json_answer({**_document(session), "filters": [_filter(each) for each in session.subscriptions]})


@declare("sessions", path=(CLIENT,), needs=ADMINISTERING, writes=True, audited="session.deleted",
         problems=("unknown_session",), answers=(Answer(204, "It is gone."),))
async def delete_session(door: Door, call: Call) -> Answered:
    """End a session with everything that waits for it.

    A client that is connected with it is disconnected.
    """
    principal = await administering(door, call)
    call.query()
    await door.durable(partial(door.services.kernel.sessions.delete, principal.tenant, call.topic_name()))
    return Response(status=204)


def _cursor_of(client_id: str) -> str:
    return urlsafe_b64encode(client_id.encode()).decode().rstrip("=")


def _client_of(cursor: str) -> str:
    """The client id that a page ended with. Raises Refusal."""
    try:
        return urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except ValueError:
        raise Refusal("invalid_cursor", "this cursor was not made here") from None


def _document(session: SessionDescription) -> dict[str, Any]:
    return {"client_id": session.client_id, "user": session.user, "connected": session.connected,
            "created": session.created_ms, "expires": session.expires_ms or None,
            "expiry": None if session.expiry_ms == NEVER else session.expiry_ms,
            "subscriptions": len(session.subscriptions), "waiting": session.waiting, "in_flight": session.in_flight,
            "received": session.received, "dropped": session.dropped}


def _filter(subscribed: Subscribed) -> dict[str, Any]:
    return {**subscribed._asdict(), "identifier": subscribed.identifier or None,
            "selector": subscribed.selector or None}


ROUTES: Routes = (("GET", "/v1/sessions", list_sessions), ("GET", "/v1/sessions/{client}", get_session),
                  ("DELETE", "/v1/sessions/{client}", delete_session))
