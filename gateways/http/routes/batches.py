"""`GET /v1/topics/{topic}/batches?queue=&offset=&max_bytes=`: stored batches as they are, for bulk readers.

The body is Kafka record batches (format version 2) one after the other, still compressed as their producers sent
them; how to read them is in `kernel.batch`. The first may begin before `offset`: a reader skips what it did not ask
for.

    X-Log-Start-Offset   the queue's first offset
    X-High-Watermark     the offset after its last message
    X-Next-Offset        where to go on; `offset` itself where the body is empty
"""
from __future__ import annotations

from typing import Final

from aiohttp import web

from gateways.http.door import Call, Door, Routes
from gateways.http.problems import Refusal
from gateways.http.routes.reading import MAX_OFFSET, fetch
from gateways.http.target import decode_number
from kernel.batch import as_batch
from kernel.errors import OffsetOutOfRange, UnknownQueue

LEADER_EPOCH: Final = 0
"""There is one leader; the field lies outside a batch's checksum."""


async def get_batches(door: Door, call: Call) -> web.StreamResponse:
    """Answer the batches from one offset on, at least one where there is one."""
    principal = door.principal(call.request)
    query = call.query("queue", "offset", "max_bytes")
    topic = door.readable_topic(principal, call.topic_name())
    for name in ("queue", "offset"):
        if name not in query:
            raise Refusal("invalid_parameter", f"{name!r} is needed", parameter=name)
    queue = decode_number(query, "queue", 0, 0, MAX_OFFSET)
    if queue >= topic.queues:
        raise UnknownQueue(f"{topic.name} has the queues 0 to {topic.queues - 1}")
    offset = decode_number(query, "offset", 0, 0, MAX_OFFSET)
    max_bytes = decode_number(query, "max_bytes", door.config.max_page_bytes, 1, door.config.max_page_bytes)
    (fetched,) = await fetch(door, [(topic.queue_id(queue), offset, max_bytes)], max_bytes)
    if isinstance(fetched.error, OffsetOutOfRange):
        raise Refusal("offset_out_of_range", str(fetched.error), log_start_offset=fetched.log_start_offset,
                      high_watermark=fetched.high_watermark)
    if fetched.error is not None:
        raise fetched.error
    last = fetched.pieces[-1] if fetched.pieces else None
    headers = {"X-Log-Start-Offset": str(fetched.log_start_offset), "X-High-Watermark": str(fetched.high_watermark),
               "X-Next-Offset": str(offset if last is None else last.first_offset + last.count)}
    body = b"".join([as_batch(piece, LEADER_EPOCH) for piece in fetched.pieces])
    return web.Response(body=body, headers=headers, content_type="application/octet-stream")


ROUTES: Routes = (("GET", "/v1/topics/{topic}/batches", get_batches),)
