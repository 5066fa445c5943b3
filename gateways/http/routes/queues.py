"""`/v1/queues`: light queues and what waits in them. Doors and bindings declare them; here they are looked at.

    GET /v1/queues?cursor=       {"queues": [{"name", settings...}], "cursor"}
    GET /v1/queues/{queue}       settings, and `ready`, `leased`, `waiting`, `settled`, ...

What is in them is taken as from a group, see `leases.py`.
"""
from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from gateways.admission.decision import Operation
from gateways.http.answers import json_answer
from gateways.http.cursor import decode_name, encode_name
from gateways.http.door import Call, Door, Routes
from kernel.errors import UnknownQueue
from kernel.placing import LIGHT

if TYPE_CHECKING:
    from gateways.admission.principal import Principal
    from kernel.leasing.settings import LightQueue

MAX_LISTED: Final = 1_000
"""Queues in one answer."""


async def list_queues(door: Door, call: Call) -> web.StreamResponse:
    """The queues that the principal may read, by name; `cursor` goes on behind the last name, null at the end."""
    principal = door.principal(call.request)
    query = call.query("cursor")
    after = decode_name(query["cursor"]) if "cursor" in query else ""
    queues = [queue for queue in door.kernel.queues(tenant=principal.tenant) if queue.name > after
              and door.admission.may(principal, Operation.CONSUME, LIGHT + queue.name)]
    listed = queues[:MAX_LISTED]
    return json_answer({"queues": [_describe(queue) for queue in listed],
                        "cursor": encode_name(listed[-1].name) if len(queues) > MAX_LISTED else None})


async def get_queue(door: Door, call: Call) -> web.StreamResponse:
    """One queue with its counts."""
    principal = door.principal(call.request)
    call.query()
    queue = readable_queue(door, principal, call.topic_name())
    return json_answer({**_describe(queue), **door.kernel.queue_group(queue).counts()._asdict()})


def readable_queue(door: Door, principal: Principal, name: str) -> LightQueue:
    """A light queue that the principal may take from. Raises Denied, UnknownQueue."""
    door.admission.require(principal, Operation.CONSUME, LIGHT + name)
    queue = door.kernel.queue(name, tenant=principal.tenant)
    if queue is None:
        raise UnknownQueue(f"there is no queue {name!r}")
    return queue


def _describe(queue: LightQueue) -> dict[str, Any]:
    return {"name": queue.name, **asdict(queue.settings), "created": queue.created_ms}


ROUTES: Routes = (("GET", "/v1/queues", list_queues), ("GET", "/v1/queues/{queue}", get_queue))
