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
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, NamedTuple

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
from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.door import Door, Routes
from gatehouse.gateways.http.exchange import Answered, Call, Response, json_answer
from gatehouse.gateways.http.message_schemas import EVENT, MESSAGE, MESSAGE_EXAMPLE
from gatehouse.gateways.http.page import (
    Cursor,
    Page,
    Selection,
    cursor_at_hand,
    next_cursor,
    offsets_at_hand,
    page_to_json,
    partitions_of,
    read_page,
)
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.properties.envelope import SELECTOR_NAMES, Kind
from gatehouse.gateways.properties.values import normalize
from gatehouse.kernel.errors import InvalidSelector, UnknownTopic
from gatehouse.kernel.selectors.selector import Selector, parse_selector
from gatehouse.kernel.state.topics import Topic

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.http.page import PartitionReader
    from gatehouse.kernel.message import Fetched

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
def get_messages(door: Door, call: Call) -> Awaitable[Answered] | Response:
    """Read a page of a topic's messages.

    With the cursor for the next page; the server keeps nothing. A page without messages that `skipped` some is not the
    end: its cursor goes on. Who accepts `application/cloudevents-batch+json` is given CloudEvents, and what else a
    page says in headers.
    """
    return door.with_guard(call, _get_messages)


class _Wanted(NamedTuple):
    """What a call asks for."""

    topic: Topic
    max_messages: int
    wait_s: float
    parsed: bool
    selection: Selection | None


# decision 353: without a coroutine where nothing is waited for
def _get_messages(door: Door, call: Call, guard: Guard) -> Awaitable[Answered] | Response:
    query = call.query()
    selector = read_selector(query["filter"], FILTER.name) if "filter" in query else None
    parsed = "values" in query and wants_json(query)
    topic = guard.topic(call.topic_name(), Operation.CONSUME)
    wanted = _Wanted(topic, MAX_MESSAGES.read(query, door.config),
                     WAIT.read(query, door.config) if "wait" in query else 0.0, parsed,
                     None if selector is None else Selection(guard, topic, selector))
    cursor = cursor_at_hand(guard, topic, query, PARTITION.find(query, door.config), A_TIME)
    if cursor is None or guard.limits_out:
        return _get_later(door, call, guard, wanted, cursor, query)
    reading = read_page(guard, topic, cursor, wanted.max_messages, door.config.max_page_bytes, wanted.selection)
    if reading.done():
        page = reading.result()
        if not page.empty or not wanted.wait_s and page.positions == cursor.positions:
            return _answer(door, call, guard, wanted, cursor, page)
        return _search_on(door, call, guard, wanted, cursor, page)
    return _await_page(door, call, guard, wanted, cursor, reading)


async def _get_later(door: Door, call: Call, guard: Guard, wanted: _Wanted, cursor: Cursor | None,
                     query: dict[str, str]) -> Answered:
    """Where it begins, or whether anything may be handed out yet, is waited for."""
    if cursor is None:
        cursor = await _cursor_by_time(door, guard, wanted.topic, query)
    await door.ready_to_hand_out(guard, wanted.topic.name)
    return await _await_page(door, call, guard, wanted, cursor,
                             read_page(guard, wanted.topic, cursor, wanted.max_messages, door.config.max_page_bytes,
                                       wanted.selection))


async def _await_page(door: Door, call: Call, guard: Guard, wanted: _Wanted, cursor: Cursor, reading: Reply[Page]
                      ) -> Answered:
    page = await reading
    return await _search_on(door, call, guard, wanted, cursor, page) if page.empty \
        else _answer(door, call, guard, wanted, cursor, page)


async def _search_on(door: Door, call: Call, guard: Guard, wanted: _Wanted, cursor: Cursor, page: Page) -> Answered:
    page = await _search(door, guard, wanted, cursor, page)
    return _answer(door, call, guard, wanted, cursor, page)


def _answer(door: Door, call: Call, guard: Guard, wanted: _Wanted, cursor: Cursor, page: Page) -> Response:
    topic = wanted.topic
    if call.head.takes_events and asks_for(call.headers["accept"], BATCH):
        answer = _events(guard, topic, cursor, page)
    else:
        answer = json_answer(page_to_json(door.door_names, guard, topic, cursor, page, wanted.parsed,
                                          wanted.selection))
    return door.handed_out(guard, len(page.records), answer, topic.name)


# decision 53: cut into answers
async def _search(door: Door, guard: Guard, wanted: _Wanted, cursor: Cursor, page: Page) -> Page:
    """The first page from the cursor on that has something to tell, or the last when time is up; `page` is the first of
    all."""
    topic = wanted.topic
    deadline, skipped = door.loop.time() + wanted.wait_s, page.skipped
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
        page = await read_page(guard, topic, cursor, wanted.max_messages, door.config.max_page_bytes, wanted.selection)
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

async def _cursor_by_time(door: Door, guard: Guard, topic: Topic, query: dict[str, str]) -> Cursor:
    partition = PARTITION.find(query, door.config)
    partitions = partitions_of(topic, partition)
    offsets = await named_offsets(guard, topic, partitions, query)
    return Cursor(topic.uuid, partition, 0, dict(zip(partitions, offsets, strict=True)))


async def named_offsets(guard: Guard, topic: Topic, partitions: range | tuple[int, ...], query: dict[str, str]
                        ) -> list[int]:
    """The offset of each partition that `from` names."""
    at_hand = offsets_at_hand(guard, topic, partitions, query, A_TIME)
    if at_hand is not None:
        return at_hand
    time_ms = time_of(query["from"], ", or with 'partition' an offset")
    ends = [guard.bounds(topic.partition_id(number))[1] for number in partitions]
    asked = [offset_at(guard, topic.partition_id(number), time_ms) for number in partitions]
    offsets = [await reply for reply in asked]
    return [end if at is None else at for at, end in zip(offsets, ends, strict=True)]


def time_of(text: str, more: str = "") -> int:
    """The time that `from` names, in ms. Refuses `invalid_parameter`; `more` is what it could have been besides."""
    # An unescaped + in a query is a space; in a time it can only have been the zone's sign.
    time = normalize(Kind.TIME, (text[:19] + text[19:].replace(" ", "+")).encode())
    if time is None:
        raise Refusal("invalid_parameter", f"'from' is earliest, latest, a time like {A_TIME} (RFC 3339){more}",
                      parameter="from")
    return int(time)


def offset_at(reader: PartitionReader, partition_id: int, time_ms: int) -> Reply[int | None]:
    """The first offset at or after a time, None where there is none yet."""
    reply: Reply[int | None] = Reply()
    reader.offset_for_time(partition_id, time_ms, lambda offset, _: reply.set_result(offset))
    return reply


# --- one page -----------------------------------------------------------------------------------------------

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
    headers = {"X-Cursor": next_cursor(topic, cursor, page), "X-Skipped": str(page.skipped), "X-Lost": str(missing),
               "Vary": "Accept"}
    return Response(orjson.dumps(events), headers=headers, content_type=BATCH)


ROUTES: Routes = (("GET", "/v1/topics/{topic}/messages", get_messages),)
