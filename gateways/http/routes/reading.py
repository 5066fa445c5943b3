"""`GET /v1/topics/{topic}/messages`: a page of messages and the cursor for the next; nothing is kept in the server.

    from      earliest (unless told otherwise), latest, an RFC 3339 time, or with `partition` an offset
    partition only this partition
    cursor    go on where the page that gave it ended, instead of `from`
    max       messages in the page, 100 unless told otherwise
    wait      seconds to wait while there is nothing; the answer comes with the first flush that touches the topic
    filter    only messages that this selector wants (`kernel.selectors`); give it again with every cursor
    values    `json`: values that are JSON are shown as such

What a page could not give is named in it: `lost` (deleted by retention before this reader came) and `unreadable`. How
many messages the filter passed over is `skipped`: a page that has no messages but skipped some is not the end. What the
filter names and none of them has is in `unknown_names`: a name that is written wrong passes over everything.
"""
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import orjson

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.cloud_events import BATCH, asks_for, to_structured
from gatehouse.gateways.http.declaring import (
    CURSOR_IN,
    MAX_MESSAGES,
    MOMENT,
    SELECTOR,
    TEXT,
    VALUES,
    WAIT,
    WHOLE,
    Answer,
    Named,
    Need,
    Parameter,
    Whole,
    declare,
    list_of,
    object_of,
    wants_json,
)
from gatehouse.gateways.http.door import Door, Routes
from gatehouse.gateways.http.message_schemas import MESSAGE, MESSAGE_EXAMPLE
from gatehouse.gateways.http.page import (
    MAX_PARTITIONS,
    Cursor,
    Page,
    PageSource,
    build_page,
    decode_cursor,
    encode_cursor,
    note_unreadable,
)
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.replies import Reply
from gatehouse.gateways.http.request import Call
from gatehouse.gateways.http.response import Answered, Response, json_answer
from gatehouse.gateways.http.routes.cloud_events import EVENT
from gatehouse.gateways.http.target import decode_number
from gatehouse.gateways.json_messages import door_of, record_to_json
from gatehouse.gateways.properties.envelope import SELECTOR_NAMES, Kind
from gatehouse.gateways.properties.values import normalize
from gatehouse.kernel.errors import InvalidSelector, OffsetOutOfRange, UnknownPartition, UnknownTopic
from gatehouse.kernel.selectors.selector import Selector, parse_selector

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.http.page import PartitionReader
    from gatehouse.kernel.message import Fetched, Record
    from gatehouse.kernel.state.topics import Topic

MAX_OFFSET: Final = (1 << 63) - 1

BYTES_BEFORE: Final = 8_192
BYTES_BEFORE_ALL: Final = 65_536
BYTES_PER_MESSAGE: Final = 1_024
"""What a page reads from the log: room in each partition, and in all of them, for pieces that begin before the reader,
and for messages of common size. The first piece is read in any case. A page of larger messages has fewer of them. A
search reads as if there were many partitions: it passes over most of what it reads."""

SEARCH_S: Final = 1.0
"""How long a call that does not wait looks for the first message that its filter wants, before it says how far it
got."""


A_TIME: Final = "2026-01-31T12:00:00Z"
EDGE_OR_TIME: Final = {"type": "string", "pattern": f"^(earliest|latest|{MOMENT})$"}
OFFSET: Final = {"type": "string", "pattern": "^[0-9]{1,19}$"}
FROM: Final = Parameter("from", "`earliest`, `latest`, an RFC 3339 time, or with `partition` an offset.",
                        example="earliest",
                        text={"type": "string", "pattern": f"^(earliest|latest|[0-9]{{1,18}}|{MOMENT})$"})
PARTITION: Final = Whole("partition", "Only this partition of the topic.")
CONTINUE: Final = Parameter("cursor", "Go on where the page that gave it ended, instead of `from`.",
                            text=CURSOR_IN)
FILTER: Final = Parameter("filter", "Only messages that this selector wants, see docs/selectors.md; it is given again "
                          "with every cursor.", text=SELECTOR)

GAP: Final = {"partition": WHOLE, "offset": WHOLE, "count": WHOLE}
PAGE: Final = Named("MessagePage", object_of(
    {"messages": list_of(MESSAGE), "cursor": {**TEXT, "description": "Where the next page begins."}},
    {"lost": {**list_of(object_of(GAP)), "description": "What retention deleted before this reader came."},
     "skipped": {**WHOLE, "description": "How many messages the filter passed over."},
     "unknown_names": {**list_of(TEXT), "description": "What the filter names and no message that was looked at has."},
     "unreadable": list_of(object_of({**GAP, "code": TEXT, "detail": TEXT}))}),
    {"messages": [MESSAGE_EXAMPLE], "cursor": "AW8MX3pQ"})


@declare("read", query=(FROM, PARTITION, CONTINUE, MAX_MESSAGES, WAIT, FILTER, VALUES),
         needs=(Need(Operation.CONSUME, "topic"),),
         answers=(Answer(200, "A page, in which every partition's messages keep their order.", PAGE),
                  Answer(200, "The same as CloudEvents.", list_of(EVENT), BATCH, headers={
                      "X-Cursor": "Of a page of CloudEvents, where the next page begins.",
                      "X-Skipped": "How many messages the filter passed over.",
                      "X-Lost": "How many messages could not be given."})),
         problems=("unknown_topic", "unknown_partition", "invalid_cursor", "invalid_selector", "topic_replaced",
                   "offset_out_of_range", "storage_failed", "over_quota"))
async def get_messages(door: Door, call: Call) -> Answered:
    """Read a page of a topic's messages.

    With the cursor for the next page; the server keeps nothing. A page without messages that `skipped` some is not the
    end: its cursor goes on. Who accepts `application/cloudevents-batch+json` is given CloudEvents, and what else a
    page says in headers.
    """
    guard = await door.guard(call)
    query = call.query()
    selector = read_selector(query["filter"], FILTER.name) if "filter" in query else None
    parsed = wants_json(query)
    topic = guard.topic(call.topic_name(), Operation.CONSUME)
    max_messages = MAX_MESSAGES.read(query, door.config)
    wait_s = WAIT.read(query, door.config)
    cursor = await _start_of(door, guard, topic, query)
    selection = None if selector is None else Selection(guard, topic, selector)
    await door.ready_to_hand_out(guard)
    page = await _search(door, guard, topic, cursor, max_messages, wait_s, selection)
    if asks_for(call.headers.get("accept", ""), BATCH):
        return door.handed_out(guard, len(page.records), _events(guard, topic, cursor, page), topic.name)
    return door.handed_out(guard, len(page.records),
                           json_answer(_document(door, guard, topic, cursor, page, parsed, selection)), topic.name)


# decision 53: cut into answers
async def _search(door: Door, guard: Guard, topic: Topic, cursor: Cursor, max_messages: int, wait_s: float,
                  selection: Selection | None) -> Page:
    """The first page from the cursor on that has something to tell, or the last when time is up."""
    page = await _read(door, guard, topic, cursor, max_messages, selection)
    deadline, skipped = door.loop.time() + wait_s, page.skipped
    search_deadline = max(deadline, door.loop.time() + SEARCH_S)
    while page.empty and not door.stopping:
        moved = page.positions != cursor.positions            # skipped some, or what is read is nothing to show
        left_s = (search_deadline if moved else deadline) - door.loop.time()
        if left_s <= 0:
            break
        cursor = cursor._replace(positions=page.positions)
        if moved:
            await asyncio.sleep(0)                            # a search gives way to everybody else at every step
        else:
            ends = {topic.partition_id(partition): at for partition, at in page.positions.items()}
            await door.wait_for_append(guard, topic, ends, left_s)
        require_still(guard, topic)
        page = await _read(door, guard, topic, cursor, max_messages, selection)
        skipped += page.skipped
    return page._replace(skipped=skipped)


# decision 217: the right is asked for again after a wait
def require_still(guard: Guard, topic: Topic) -> None:
    """Before a topic is read further. Raises UnknownTopic where it has been deleted, Denied."""
    try:
        guard.topic_by_uuid(topic.uuid, Operation.CONSUME)
    except UnknownTopic:
        raise UnknownTopic(f"the topic {topic.name!r} has been deleted") from None


def read_selector(text: str, parameter: str) -> Selector:
    """The selector that a parameter, or a field of a frame, holds. Refuses `invalid_selector`, with the position."""
    try:
        return parse_selector(text, SELECTOR_NAMES)
    except InvalidSelector as error:
        raise Refusal(error.code, str(error), parameter=parameter, position=error.position,
                      expected=error.expected) from None


# --- where to begin -----------------------------------------------------------------------------------------

async def _start_of(door: Door, guard: Guard, topic: Topic, query: dict[str, str]) -> Cursor:
    partition = PARTITION.find(query, door.config)
    if "cursor" in query:
        if "from" in query:
            raise Refusal("invalid_parameter", "give 'from' or 'cursor', not both", parameter="from")
        return _continued(topic, query["cursor"], partition)
    if partition is not None and partition >= topic.partitions:
        raise UnknownPartition(f"{topic.name} has the partitions 0 to {topic.partitions - 1}")
    if partition is None and topic.partitions > MAX_PARTITIONS:
        raise Refusal("invalid_parameter", f"{topic.name} has {topic.partitions} partitions; name one with 'partition'",
                      parameter="partition")
    partitions = range(topic.partitions) if partition is None else (partition,)
    offsets = await named_offsets(guard, topic, partitions, partition, query)
    return Cursor(topic.uuid, partition, 0, dict(zip(partitions, offsets, strict=True)))


def _continued(topic: Topic, text: str, partition: int | None) -> Cursor:
    """The cursor of an earlier page, with the partitions that the topic has got since."""
    try:
        cursor = decode_cursor(text)
    except ValueError as error:
        raise Refusal("invalid_cursor", f"this cursor was not made here: {error}") from None
    if cursor.topic_uuid != topic.uuid:
        raise Refusal("topic_replaced", f"this cursor belongs to an earlier topic {topic.name!r}; begin with 'from'")
    if partition is not None and partition != cursor.partition:
        raise Refusal("invalid_parameter", "the cursor belongs to a page of other partitions", parameter="partition")
    if any(number >= topic.partitions for number in cursor.positions):
        raise Refusal("invalid_cursor", f"{topic.name} has no such partition")
    if cursor.partition is None:
        grown = {number: 0 for number in range(topic.partitions) if number not in cursor.positions}
        return cursor._replace(positions=cursor.positions | grown) if grown else cursor
    return cursor


async def named_offsets(guard: Guard, topic: Topic, partitions: range | tuple[int, ...], partition: int | None,
                        query: dict[str, str]) -> list[int]:
    """The offset of each partition that `from` names."""
    begin = query.get("from", "earliest")
    bounds = [guard.bounds(topic.partition_id(number)) for number in partitions]
    if begin == "earliest":
        return [first for first, _ in bounds]
    if begin == "latest":
        return [end for _, end in bounds]
    if begin.isascii() and begin.isdigit():
        if partition is None:
            raise Refusal("invalid_parameter",
                          f"a number is an offset and needs a 'partition'; a time is like {A_TIME}",
                          parameter="from")
        return [_offset_within(decode_number(query, "from", 0, 0, MAX_OFFSET), *bounds[0])]
    time_ms = time_of(begin, ", or with 'partition' an offset")
    asked = [offset_at(guard, topic.partition_id(number), time_ms) for number in partitions]
    offsets = [await reply for reply in asked]
    return [end if at is None else at for at, (_, end) in zip(offsets, bounds, strict=True)]


def time_of(text: str, more: str = "") -> int:
    """The time that `from` names, in ms. Refuses `invalid_parameter`; `more` is what it could have been besides."""
    # An unescaped + in a query is a space; in a time it can only have been the zone's sign.
    time = normalize(Kind.TIME, (text[:19] + text[19:].replace(" ", "+")).encode())
    if time is None:
        raise Refusal("invalid_parameter", f"'from' is earliest, latest, a time like {A_TIME} (RFC 3339){more}",
                      parameter="from")
    return int(time)


def _offset_within(offset: int, first: int, end: int) -> int:
    if not first <= offset <= end:
        raise Refusal("offset_out_of_range", f"the partition holds the offsets {first} to {end}, the next",
                      log_start_offset=first, high_watermark=end)
    return offset


def offset_at(reader: PartitionReader, partition_id: int, time_ms: int) -> Reply[int | None]:
    """The first offset at or after a time, None where there is none yet."""
    reply: Reply[int | None] = Reply()
    reader.offset_for_time(partition_id, time_ms, lambda offset, _: reply.set_result(offset))
    return reply


# --- one page -----------------------------------------------------------------------------------------------

async def _read(door: Door, guard: Guard, topic: Topic, cursor: Cursor, max_messages: int,
                selection: Selection | None) -> Page:
    wants, partitions = [], []
    for partition in _in_turn(cursor):
        partition_id, at = topic.partition_id(partition), cursor.positions[partition]
        first, end = guard.bounds(partition_id)
        if not first <= at == end:
            partitions.append(partition)
            wants.append((partition_id, max(at, first)))
    before = BYTES_BEFORE_ALL if selection is not None else min(BYTES_BEFORE_ALL, BYTES_BEFORE * len(wants))
    budget = min(door.config.max_page_bytes, before + max_messages * BYTES_PER_MESSAGE)
    share = max(1, budget // max(1, len(wants)))
    fetched = await fetch(guard, [(partition_id, at, share) for partition_id, at in wants], budget,
                          max_records=0 if selection is not None else max_messages) if wants else []
    for (_, at), answer in zip(wants, fetched, strict=True):
        _check_fetched(at, answer)
    sources = [PageSource(partition, cursor.positions[partition], answer, topic.settings.compact)
               for partition, answer in zip(partitions, fetched, strict=True)]
    page = build_page(sources, max_messages, door.config.max_page_bytes, selection)
    note_unreadable(guard, page, topic.partition_id)
    return page._replace(positions=cursor.positions | page.positions)


class Selection:
    """Whether a selector wants records of a topic, and which of its names none of them has had."""

    def __init__(self, guard: Guard, topic: Topic, selector: Selector) -> None:
        self._guard = guard
        self._topic = topic
        self._selector = selector
        self._unseen = set(range(len(selector.names)))
        self._looked = False

    def __call__(self, record: Record) -> bool:
        _, timestamp_ms, key, value, headers, _, _ = record
        selector, topic = self._selector, self._topic.name
        address = self._guard.address_of(topic, key, headers) if selector.reads_address else ""
        slots = selector.slots_of(headers, key, address, topic, timestamp_ms, value)
        self._looked = True
        if self._unseen:
            self._unseen.difference_update([slot for slot in self._unseen if slots[slot] is not None])
        return selector.wants(slots)

    @property
    def unknown_names(self) -> list[str]:
        """Names in the selector that no message had, as they are written; none where no message was looked at."""
        return [self._selector.names[slot] for slot in sorted(self._unseen)] if self._looked else []


def _in_turn(cursor: Cursor) -> list[int]:
    """The cursor's partitions, beginning with the one whose turn it is: what is read last may find the page full."""
    partitions = list(cursor.positions)
    first = sum(1 for partition in partitions if partition < cursor.turn)
    return partitions[first:] + partitions[:first]


def _check_fetched(offset: int, fetched: Fetched) -> None:
    """Raises what a fetch ended in, but for what retention took in the meantime: the page tells that."""
    error = fetched.error
    if isinstance(error, OffsetOutOfRange):
        if offset > fetched.high_watermark:
            _offset_within(offset, fetched.log_start_offset, fetched.high_watermark)
    elif error is not None:
        raise error


async def fetch(reader: PartitionReader, wants: list[tuple[int, int, int]], max_bytes: int, *, stored: bool = False,
                max_records: int = 0) -> list[Fetched]:
    """`KernelPort.fetch` as something to wait for."""
    reply: Reply[list[Fetched]] = Reply()
    reader.fetch(wants, max_bytes, reply.set_result, stored, max_records)
    return await reply


async def fetch_in_bulk(door: Door, guard: Guard, wants: list[tuple[int, int, int]], max_bytes: int) -> list[Fetched]:
    """Stored batches as they are, when their turn has come: live messages go first."""
    turn: Reply[int] = Reply()
    door.services.kernel.bulk_turn(max_bytes, turn.set_result)
    return await fetch(guard, wants, await turn, stored=True)


def _events(guard: Guard, topic: Topic, cursor: Cursor, page: Page) -> Response:
    """The page as a batch of CloudEvents; what else a page says stands in headers."""
    events = [to_structured(record, topic.name, guard.address_of(topic.name, record[2], record[4]))
              for _, record in page.records]
    missing = sum(gap["count"] for gap in (*page.lost, *page.unreadable))
    headers = {"X-Cursor": _next_cursor(topic, cursor, page), "X-Skipped": str(page.skipped), "X-Lost": str(missing),
               "Vary": "Accept"}
    return Response(orjson.dumps(events), headers=headers, content_type=BATCH)


def _next_cursor(topic: Topic, cursor: Cursor, page: Page) -> str:
    turn = (cursor.turn + 1) % topic.partitions if page.records else cursor.turn
    return encode_cursor(cursor._replace(turn=turn, positions=page.positions))


def _document(door: Door, guard: Guard, topic: Topic, cursor: Cursor, page: Page, parsed: bool,
              selection: Selection | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "messages": [record_to_json(record, topic.name, partition,
                                    guard.address_of(topic.name, record[2], record[4]),
                                    door.door_names.get(door_of(record[5]), str(door_of(record[5]))), parsed=parsed)
                     for partition, record in page.records],
        "cursor": _next_cursor(topic, cursor, page),
    }
    if page.lost:
        document["lost"] = page.lost
    if page.skipped:
        document["skipped"] = page.skipped
    if selection is not None and selection.unknown_names:
        document["unknown_names"] = selection.unknown_names
    if page.unreadable:
        document["unreadable"] = page.unreadable
    return document


ROUTES: Routes = (("GET", "/v1/topics/{topic}/messages", get_messages),)
