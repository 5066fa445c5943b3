"""`/v1/topics/{topic}/batches`: record batches as they are, out of one partition and into several.

`GET ?partition=&offset=&max_bytes=`: stored batches, for readers of one partition; `bulk.py` is for many.

The body is Kafka record batches (format version 2) one after the other, still compressed as their producers sent
them; how to read them is in `kernel.records.batch`. The first may begin before `offset`: a reader skips what it
did not ask for.

    X-Log-Start-Offset   the partition's first offset
    X-High-Watermark     the offset after its last message
    X-Next-Offset        where to go on; `offset` itself where the body is empty

`POST`: batches to store, all of them or none, for writers of many rows. The writer has put each record into its key's
partition (murmur2) and says with each batch which partition that is; rights are the topic's. Records are held against
what their batch claims before any is stored; the batches of one body open to 64 MiB at most. With an `Idempotency-Key`
a repetition is recognised by the records, whenever their batches were made.

    body := (partition u32 | length u32 | record batch)*      little-endian, `application/octet-stream`

201 with `{"batches": [{"partition": 0, "offset": 17, "count": 1000, "id": "281474976710657"}, ...]}`.
"""
from __future__ import annotations

import struct
from typing import Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.declaring import (
    BINARY,
    MESSAGE_ID,
    WHOLE,
    Answer,
    Body,
    Named,
    Need,
    Setting,
    Whole,
    declare,
    list_of,
    object_of,
)
from gatehouse.gateways.http.door import Door, Routes
from gatehouse.gateways.http.mapping import read_idempotency_key
from gatehouse.gateways.http.message_schemas import IDEMPOTENCY_KEY
from gatehouse.gateways.http.page import MAX_OFFSET
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.request import Call
from gatehouse.gateways.http.response import Answered, Response, json_answer
from gatehouse.gateways.http.routes.reading import fetch_in_bulk
from gatehouse.kernel.errors import OffsetOutOfRange, UnknownPartition
from gatehouse.kernel.records.batch import as_batch, read_header

BINARY_TYPE: Final = "application/octet-stream"
MAX_BATCHES: Final = 10_000
"""In one body."""

_PREFIX = struct.Struct("<II")

LEADER_EPOCH: Final = 0
"""The leader epoch of every batch. There is one leader; the field lies outside a batch's checksum."""


PARTITION: Final = Whole("partition", "Of which partition of the topic.", required=True, highest=MAX_OFFSET)
OFFSET: Final = Whole("offset", "The first offset that is wanted.", required=True, highest=MAX_OFFSET)
MAX_BYTES: Final = Whole("max_bytes", "Read so much from the log; a larger batch is still given.", lowest=1,
                         default=MAX_OFFSET, highest=Setting("max_page_bytes"))
STORED: Final = Named("StoredBatches", object_of({"batches": list_of(object_of(
    {"partition": WHOLE, "offset": WHOLE, "count": WHOLE, "id": MESSAGE_ID}))}))


@declare("bulk", query=(PARTITION, OFFSET, MAX_BYTES), needs=(Need(Operation.CONSUME, "topic"),),
         answers=(Answer(200, "Kafka record batches (format version 2), one behind the other.", BINARY, BINARY_TYPE, {
             "X-Log-Start-Offset": "The partition's first offset.",
             "X-High-Watermark": "The offset after its last message.",
             "X-Next-Offset": "Where to go on; `offset` itself where the body is empty."}),),
         problems=("unknown_topic", "unknown_partition", "offset_out_of_range", "storage_failed", "over_quota"))
async def get_batches(door: Door, call: Call) -> Answered:
    """Read stored batches of one partition as they are.

    Still compressed as their producers sent them, at least one where there is one. The first may begin before `offset`.
    """
    guard = await door.guard(call)
    query = call.query()
    topic = guard.topic(call.topic_name(), Operation.CONSUME)
    partition = PARTITION.read(query, door.config)
    if partition >= topic.partitions:
        raise UnknownPartition(f"{topic.name} has the partitions 0 to {topic.partitions - 1}")
    offset = OFFSET.read(query, door.config)
    max_bytes = MAX_BYTES.read(query, door.config)
    await door.ready_to_hand_out(guard)
    (fetched,) = await fetch_in_bulk(door, guard, [(topic.partition_id(partition), offset, max_bytes)], max_bytes)
    if isinstance(fetched.error, OffsetOutOfRange):
        raise Refusal("offset_out_of_range", str(fetched.error), log_start_offset=fetched.log_start_offset,
                      high_watermark=fetched.high_watermark)
    if fetched.error is not None:
        raise fetched.error
    last = fetched.pieces[-1] if fetched.pieces else None
    headers = {"X-Log-Start-Offset": str(fetched.log_start_offset), "X-High-Watermark": str(fetched.high_watermark),
               "X-Next-Offset": str(offset if last is None else last.first_offset + last.count)}
    body = b"".join([as_batch(piece, LEADER_EPOCH) for piece in fetched.pieces])
    answer = Response(body, headers=headers, content_type=BINARY_TYPE)
    return door.handed_out(guard, sum([piece.count for piece in fetched.pieces]), answer, topic.name)


@declare("bulk", headers=(IDEMPOTENCY_KEY,), bodies=(Body(
             BINARY, BINARY_TYPE, "Partition and length as u32, little-endian, and a record batch; again for each."),),
         needs=(Need(Operation.PUBLISH, "topic"),), writes=True, answers=(Answer(201, "All are durable.", STORED),),
         problems=("invalid_body", "unknown_topic", "unknown_partition", "corrupt_batch", "invalid_record",
                   "invalid_timestamp", "unsupported_batch", "message_too_large", "idempotency_conflict", "over_quota"))
async def post_batches(door: Door, call: Call) -> Answered:
    """Store batches in partitions of one topic, all of them or none.

    The writer has put each record into its key's partition (murmur2) and says with each batch which partition that is.
    """
    guard = await door.guard(call)
    call.query()
    name = call.topic_name()
    guard.require_topic(Operation.PUBLISH, name)
    given = call.headers.get("idempotency-key")
    key = None if given is None else read_idempotency_key(given.encode("utf-8", "surrogateescape"))
    topic = guard.topic(name, Operation.PUBLISH)
    await door.ready_to_append(guard)
    batches = read_batches(await door.bodies.read(call))
    counts = [read_header(batch).record_count for _, batch in batches]
    stored = await door.stored(lambda owner, token: door.slow_down(
        guard, guard.append_batches(topic, batches, sum(counts), owner, token, key, refuses=True)))
    return json_answer({"batches": [
        {"partition": partition, "offset": offset, "count": count, "id": str(first_id)}
        for (partition, _), count, (_, offset, first_id) in zip(batches, counts, stored.positions, strict=True)]}, 201)


def read_batches(body: bytes) -> list[tuple[int, bytes]]:  # decision 104
    """(partition, batch) pairs of a body. Refuses `invalid_body`."""
    batches = []
    at = 0
    while at < len(body):
        start = at + _PREFIX.size
        partition, length = _PREFIX.unpack_from(body, at) if start <= len(body) else (0, 0)
        at = start + length
        if not length or at > len(body):
            raise Refusal("invalid_body", "a body is (partition u32, length u32, record batch), once for each batch")
        batches.append((partition, body[start:at]))
    if not 0 < len(batches) <= MAX_BATCHES:
        raise Refusal("invalid_body", f"a body has 1 to {MAX_BATCHES} batches, this one {len(batches)}")
    return batches


ROUTES: Routes = (
    ("GET", "/v1/topics/{topic}/batches", get_batches),
    ("POST", "/v1/topics/{topic}/batches", post_batches),
)
