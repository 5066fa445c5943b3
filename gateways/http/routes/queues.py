"""`/v1/queues`: queues and what waits in them. Doors and bindings declare them; here they are looked at.

    GET /v1/queues?cursor=       {"queues": [{"name", settings...}], "cursor"}
    GET /v1/queues/{queue}       settings, and `ready`, `leased`, `waiting`, `settled`, ...

What is in them is taken as from a group, see `leases.py`.
"""
from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.addresses import queue_address
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.cursor import decode_name, encode_name
from gatehouse.gateways.http.declaring import Answer, Need, declare
from gatehouse.gateways.http.door import Door, Routes
from gatehouse.gateways.http.leases import COUNTS
from gatehouse.gateways.http.parameters import AFTER, CONTAINS, MAX_LISTED, WITH_COUNTS, wants_counts
from gatehouse.gateways.http.progress import matching
from gatehouse.gateways.http.request import Call
from gatehouse.gateways.http.response import Answered, json_answer
from gatehouse.gateways.http.schemas import CURSOR, TEXT, TIME_MS, Named, list_of, object_of, one_of, properties_of
from gatehouse.kernel.errors import UnknownQueue
from gatehouse.kernel.groups.settings import OVERFLOWS, QueueSettings

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.kernel.groups.settings import Queue


_QUEUE: Final = {"name": TEXT, **properties_of(QueueSettings, overflow=one_of(*OVERFLOWS)), "created": TIME_MS}
QUEUE: Final = Named("Queue", object_of(_QUEUE))
LISTED: Final = object_of(_QUEUE, COUNTS)
NEEDS: Final = (Need(Operation.CONSUME, "address"),)


@declare("queues", query=(MAX_LISTED, AFTER, CONTAINS, WITH_COUNTS), needs=NEEDS, problems=("invalid_cursor",),
         answers=(Answer(200, "A page of queues.", object_of({"queues": list_of(LISTED), "cursor": CURSOR})),))
async def list_queues(door: Door, call: Call) -> Answered:
    """List queues.

    Those that the user may take from, by name. With `counts`: and what is ready, leased and waiting in each.
    """
    principal = await door.principal(call)
    query = call.query()
    count, counted = MAX_LISTED.read(query, door.config), wants_counts(query)
    after = decode_name(query["cursor"]) if "cursor" in query else ""
    queues = [queue for queue in door.kernel.groups.queues(tenant=principal.tenant)
              if queue.name > after and matching(queue.name, query)
              and door.admission.may(principal, Operation.CONSUME, queue_address(queue.name))]
    listed = queues[:count]
    counts = [door.kernel.groups.queue_group(queue).counts()._asdict() if counted else {} for queue in listed]
    return json_answer({"queues": [{**_describe(queue), **more} for queue, more in zip(listed, counts, strict=True)],
                        "cursor": encode_name(listed[-1].name) if len(queues) > count else None})


@declare("queues", needs=NEEDS, problems=("unknown_queue",),
         answers=(Answer(200, "The queue.", object_of({**_QUEUE, **COUNTS})),))
async def get_queue(door: Door, call: Call) -> Answered:
    """Show a queue with what is ready, leased and waiting in it."""
    principal = await door.principal(call)
    call.query()
    queue = readable_queue(door, principal, call.topic_name())
    return json_answer({**_describe(queue), **door.kernel.groups.queue_group(queue).counts()._asdict()})


def readable_queue(door: Door, principal: Principal, name: str) -> Queue:
    """A queue that the principal may take from. Raises Denied, UnknownQueue."""
    door.admission.require(principal, Operation.CONSUME, queue_address(name))
    queue = door.kernel.groups.queue(name, tenant=principal.tenant)
    if queue is None:
        raise UnknownQueue(f"there is no queue {name!r}")
    return queue


def _describe(queue: Queue) -> dict[str, Any]:
    return {"name": queue.name, **asdict(queue.settings), "created": queue.created_ms}


ROUTES: Routes = (("GET", "/v1/queues", list_queues), ("GET", "/v1/queues/{queue}", get_queue))
