"""Record batches as they are. `/v1/topics/{topic}/batches`: out of one partition and into several.

`GET ?partition=&offset=&max_bytes=`: stored batches, for readers of one partition; `/v1/batches/fetch` is for many.

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

`/v1/batches`: out of many partitions of many topics in one request, without state in the server.

`POST /v1/batches/positions`: where topics begin and end, and where in them a time is; for who may read a topic whole,
or write anywhere in it.

    {"topics": ["plant", "fleet"], "times": {"plant": {"0": 1700000000000}}}

    {"topics": [{"name": "plant", "uuid": "6f0c...", "partitions": 4, "log_start_offsets": [0, ...],
                 "high_watermarks": [17, ...], "offsets_for_times": {"0": 12}}, ...],
     "missing": ["fleet"], "doors": {"0": "kafka", ...}, "routes": [{"filter", "topic", "key", "partition_key"}, ...]}

`offsets_for_times` has the first offset whose message is at or after the time, null where there is none yet. `doors`
names the door numbers in records' attribute bytes, `routes` is what gives a record its address; both are the hub's.

`POST /v1/batches/fetch`: stored pieces of partitions as they lie in the log, still compressed as their producers sent
them.

    {"ranges": [{"topic": "plant", "uuid": "6f0c...", "partition": 0, "offset": 17, "end": 4711}, ...],
     "max_bytes": 1048576, "principals": true}

Each range gets its share, in their order, until `max_bytes` are reached; a range that got less than all of it is asked
for again from where it ended. At least one piece is given where there is one. `uuid` may be left out; with it, a topic
that was deleted and made again is told apart. With `principals` the answer says who published: to an administrator
everybody, to others themselves. The answer:

    u32 length of the head | head, JSON | pieces, see `kernel.records.pieces`

    {"ranges": [{"pieces": 3, "log_start_offset": 0, "high_watermark": 17},
                {"pieces": 1, "log_start_offset": 0, "high_watermark": 90, "compacted": true, "next_offset": 40},
                {"pieces": 0, "code": "unknown_topic", "detail": "..."}, ...],
     "principals": ["ann", ...]}                       and with each range how many "stretches" it has

The first piece of a range may begin before its offset, the last may end behind its end: a reader skips what it did not
ask for. Pieces follow each other without a gap, unless the topic is `compacted`: then newer records of the same keys
stand further on, and where `next_offset` is given nothing is left before it. A range's `code` is one of the problem
codes.
"""
from __future__ import annotations

import struct
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias
from uuid import UUID

import orjson
from msgspec import UNSET, Meta, UnsetType

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.declaring import (
    BINARY,
    MESSAGE_ID,
    TEXT,
    WHOLE,
    Answer,
    Body,
    Document,
    Named,
    Need,
    Setting,
    Whole,
    declare,
    list_of,
    map_of,
    nullable,
    object_of,
)
from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.door import Door, Routes, read
from gatehouse.gateways.http.exchange import Answered, Call, Response, json_answer
from gatehouse.gateways.http.mapping import read_idempotency_key
from gatehouse.gateways.http.message_schemas import IDEMPOTENCY_KEY
from gatehouse.gateways.http.page import MAX_OFFSET
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.routes.messages import fetch_in_bulk, offset_at
from gatehouse.kernel.errors import KernelError, OffsetOutOfRange, UnknownPartition, UnknownTopic
from gatehouse.kernel.records.batch import as_batch, read_header
from gatehouse.kernel.records.pieces import encode_pieces, encode_principals

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.kernel.message import Fetched, Piece, Stretches
    from gatehouse.kernel.state.topics import Topic

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
    await door.ready_to_hand_out(guard, topic.name)
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
    await door.ready_to_append(guard, topic=name)
    batches = read_batches(await door.bodies.read(call))
    counts = [read_header(batch).record_count for _, batch in batches]
    door.require_quota(guard, topic=name)
    stored = await door.stored(lambda owner, token: door.slow_down(
        guard, guard.append_batches(topic, batches, sum(counts), owner, token, key, refuses=True), topic=name))
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


MAX_TOPICS: Final = 1_000
"""Topics in one request for positions."""

MAX_TIMES: Final = 10_000
"""Partitions whose times are looked up by one request; each is a look at the disk."""

MAX_RANGES: Final = 10_000
"""Ranges in one fetch."""

MIN_SHARE_BYTES: Final = 65_536
"""The least share of one range, in bytes, in an answer with many ranges: what lies behind a short range's end is read
in vain."""

_HEAD_BYTES = struct.Struct("<I")


_OFFSETS: Final = list_of(WHOLE)
_ROUTE: Final = object_of(dict.fromkeys(("filter", "topic"), TEXT),
                          dict.fromkeys(("key", "partition_key"), nullable(TEXT)))
_Offset: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_OFFSET)]


class AskedPositions(Document):
    """Topics, and times in them."""

    EXAMPLE = {"topics": ["plant"], "times": {"plant": {"0": 1_700_000_000_000}}}
    topics: Annotated[list[str], Meta(max_length=MAX_TOPICS)]
    times: Annotated[dict[str, dict[Annotated[str, Meta(pattern="^[0-9]{1,9}$")], _Offset]],
                     Meta(description="Milliseconds since 1970 by topic and partition.")] = {}

    def __post_init__(self) -> None:
        if sum(len(of_topic) for of_topic in self.times.values()) > MAX_TIMES:
            raise ValueError(f"at most {MAX_TIMES} times are looked up at once")


class AskedRange(Document):
    """What is asked for of one partition."""

    topic: str
    partition: _Offset
    offset: _Offset
    end: _Offset
    uuid: UUID | None = None


class AskedRanges(Document):
    """What is asked for, in this order."""

    EXAMPLE = {"ranges": [{"topic": "plant", "partition": 0, "offset": 0, "end": 100}]}
    ranges: Annotated[list[AskedRange], Meta(min_length=1, max_length=MAX_RANGES)]
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_OFFSET)] | UnsetType = UNSET
    principals: Annotated[bool, Meta(description="Whether it is asked who published.")] = False


POSITIONS: Final = Named("Positions", object_of({
    "topics": list_of(object_of(
        {"name": TEXT, "uuid": TEXT, "partitions": WHOLE, "log_start_offsets": _OFFSETS, "high_watermarks": _OFFSETS},
        {"offsets_for_times": map_of({"type": ["integer", "null"]})})),
    "missing": list_of(TEXT), "routes": list_of(_ROUTE), "doors": map_of(TEXT)}))


@declare("bulk", bodies=(Body(AskedPositions),), answers=(Answer(200, "What there is of them.", POSITIONS),),
         needs=(Need(Operation.CONSUME, "topic"),), problems=("unknown_partition", "storage_failed"))
async def post_positions(door: Door, call: Call) -> Answered:
    """Show where topics begin and end, and where in them a time is.

    The right to publish to all of a topic will do as well.
    """
    guard = await door.guard(call)
    call.query()
    asked = await read(door, call, AskedPositions)
    topics, missing = [], []
    for name in asked.topics:
        topic = _visible_topic(guard, name)
        if topic is None:
            missing.append(name)
        else:
            topics.append(await _positions(guard, topic, asked.times.get(name)))
    routes = [{"filter": entry.filter, "topic": entry.topic, "key": entry.key, "partition_key": entry.partition_key}
              for entry in door.port.route_entries]
    return json_answer({"topics": topics, "missing": missing, "routes": routes,
                        "doors": {str(number): name for number, name in door.door_names.items()}})


def _visible_topic(guard: Guard, name: str) -> Topic | None:
    """None where there is none. Raises Denied for who may neither read nor write all of it."""
    writes = guard.may_topic(Operation.PUBLISH, name)
    try:
        return guard.topic(name, Operation.PUBLISH if writes else Operation.CONSUME)
    except UnknownTopic:
        return None


async def _positions(guard: Guard, topic: Topic, times: dict[str, int] | None) -> dict[str, Any]:
    bounds = guard.bounds_of(topic)
    answer = {"name": topic.name, "uuid": str(UUID(bytes=topic.uuid)), "partitions": topic.partitions,
              "log_start_offsets": bounds[0::2].tolist(), "high_watermarks": bounds[1::2].tolist()}
    if times is not None:
        asked = {partition: offset_at(guard, topic.partition_id(int(partition)), time_ms) for partition,
                 time_ms in times.items()}
        answer["offsets_for_times"] = {partition: await reply for partition, reply in asked.items()}
    return answer


@declare("bulk", bodies=(Body(AskedRanges),), needs=(Need(Operation.CONSUME, "topic"),),
         answers=(Answer(200, "The length of the head as u32, the head as JSON, the pieces.", BINARY,
                         "application/octet-stream"),), problems=("storage_failed", "over_quota"))
async def post_fetch(door: Door, call: Call) -> Answered:
    """Read stored pieces of many partitions of many topics.

    Still compressed as their producers sent them, until `max_bytes` are reached. A range that got less than all of it
    is asked for again from where it ended. What is wrong with a range stands in its head.
    """
    guard = await door.guard(call)
    call.query()
    asked = await read(door, call, AskedRanges)
    ranges, max_bytes = asked.ranges, door.config.max_bulk_bytes
    if asked.max_bytes is not UNSET:
        max_bytes = min(asked.max_bytes, max_bytes)
    heads: list[dict[str, Any]] = []
    compacted: list[bool] = []
    wants: list[tuple[int, int]] = []
    topics: dict[tuple[str, UUID | None], Topic | dict[str, Any]] = {}
    for asked_range in ranges:
        name = (asked_range.topic, asked_range.uuid)
        topic = topics[name] if name in topics else topics.setdefault(name, _topic(guard, asked_range))
        if isinstance(topic, dict):
            heads.append(topic)
        elif asked_range.partition >= topic.partitions:
            heads.append(_refused("unknown_partition", f"{topic.name} has the partitions 0 to {topic.partitions - 1}"))
        else:
            heads.append({})
            compacted.append(topic.settings.compact)
            wants.append((topic.partition_id(asked_range.partition), asked_range.offset))
    share = max(MIN_SHARE_BYTES, max_bytes // max(1, len(wants)))
    await door.ready_to_hand_out(guard)
    fetched = await fetch_in_bulk(door, guard, [(partition_id, offset, share) for partition_id, offset in wants],
                                  max_bytes)
    served = zip(fetched, compacted, strict=True)
    pieces: list[Piece] = []
    for i, asked_range in enumerate(ranges):
        if not heads[i]:
            heads[i] = _serve(*next(served), asked_range, pieces)
    answer: dict[str, Any] = {"ranges": heads}
    columns = b""
    if asked.principals:
        answer["principals"], counts, columns = encode_principals(await _publishers(door, guard, heads, pieces))
        for range_head, count in zip(heads, counts, strict=True):
            range_head["stretches"] = count
    head = orjson.dumps(answer)
    body = b"".join([_HEAD_BYTES.pack(len(head)), head, *encode_pieces(pieces), columns])
    return door.handed_out(guard, sum([piece.count for piece in pieces]),
                           Response(body, content_type="application/octet-stream"))


# decision 290
async def _publishers(door: Door, guard: Guard, heads: list[dict[str, Any]], pieces: list[Piece]
                      ) -> list[list[tuple[int, str]]]:
    """Of each range, from which offset on it is whose, as far as this guard's principal may know; "": that is not
    told."""
    reply: Reply[list[Stretches]] = Reply()
    door.services.kernel.looking.publishers(pieces, reply.set_result)
    principal = guard.logged_in
    sees_all = door.admission.may_hub(principal, Operation.ADMINISTER)
    of_pieces = iter(zip(pieces, await reply, strict=True))
    of_ranges: list[list[tuple[int, str]]] = []
    for head in heads:
        whose: list[tuple[int, str]] = []
        for piece, stretches in islice(of_pieces, head["pieces"]):
            if not stretches or stretches[0][0] > piece.first_offset:
                whose.append((piece.first_offset, ""))
            whose += [(first, author.user if author is not None and (sees_all or author.user == principal.name) else "")
                     for first, author in stretches]
        of_ranges.append(whose)
    return of_ranges


def _topic(guard: Guard, asked_range: AskedRange) -> Topic | dict[str, Any]:
    """The topic of a range, or what its head says instead."""
    try:
        topic = guard.topic(asked_range.topic, Operation.CONSUME)
    except (KernelError, Denied) as error:
        return _refused(error.code, str(error))
    if asked_range.uuid is not None and topic.uuid != asked_range.uuid.bytes:
        return _refused("topic_replaced", f"{asked_range.topic!r} was deleted and made again")
    return topic


def _serve(fetched: Fetched, compacted: bool, asked_range: AskedRange, pieces: list[Piece]) -> dict[str, Any]:
    """The head of one range; its pieces are added to `pieces`."""
    if fetched.error is not None:
        code = getattr(fetched.error, "code", "internal_error")
        return {**_refused(code, str(fetched.error)), "log_start_offset": fetched.log_start_offset,
                "high_watermark": fetched.high_watermark}
    mine = [piece for piece in fetched.pieces if piece.first_offset < asked_range.end]
    pieces += mine
    head: dict[str, Any] = {"pieces": len(mine), "log_start_offset": fetched.log_start_offset,
                            "high_watermark": fetched.high_watermark}
    if compacted:
        head["compacted"] = True
        if fetched.next_offset >= 0:
            head["next_offset"] = fetched.next_offset
    return head


def _refused(code: str, detail: str) -> dict[str, Any]:
    return {"pieces": 0, "code": code, "detail": detail}


ROUTES: Routes = (
    ("GET", "/v1/topics/{topic}/batches", get_batches),
    ("POST", "/v1/topics/{topic}/batches", post_batches),
    ("POST", "/v1/batches/positions", post_positions),
    ("POST", "/v1/batches/fetch", post_fetch),
)
