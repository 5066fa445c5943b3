"""What a page of messages is made of: where it begins, what is fetched for it, and its JSON. Hot.

What must wait (for a first message, for the offsets of a time) is the route's, `routes/reading.py`.
"""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

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
from gatehouse.gateways.http.request import decode_number
from gatehouse.gateways.json_messages import door_of, record_to_json
from gatehouse.kernel.errors import OffsetOutOfRange, UnknownPartition
from gatehouse.kernel.message import Fetched, Record
from gatehouse.kernel.selectors.selector import Selector
from gatehouse.kernel.state.topics import Topic

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard

# --- where to begin -----------------------------------------------------------------------------------------

MAX_OFFSET: Final = (1 << 63) - 1


def cursor_at_hand(guard: Guard, topic: Topic, query: dict[str, str], partition: int | None, a_time: str
                   ) -> Cursor | None:
    """Where the page begins; None where it begins at a time. `a_time` is an example of one."""
    if "cursor" in query:
        if "from" in query:
            raise Refusal("invalid_parameter", "give 'from' or 'cursor', not both", parameter="from")
        return _cursor_of(topic, query["cursor"], partition)
    if partition is not None and partition >= topic.partitions:
        raise UnknownPartition(f"{topic.name} has the partitions 0 to {topic.partitions - 1}")
    if partition is None and topic.partitions > MAX_PARTITIONS:
        raise Refusal("invalid_parameter", f"{topic.name} has {topic.partitions} partitions; name one with 'partition'",
                      parameter="partition")
    partitions = partitions_of(topic, partition)
    offsets = offsets_at_hand(guard, topic, partitions, query, a_time)
    return None if offsets is None else Cursor(topic.uuid, partition, 0, dict(zip(partitions, offsets, strict=True)))


def partitions_of(topic: Topic, partition: int | None) -> range | tuple[int, ...]:
    """Those that are read: this one, or all."""
    return range(topic.partitions) if partition is None else (partition,)


def _cursor_of(topic: Topic, text: str, partition: int | None) -> Cursor:
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


def offsets_at_hand(guard: Guard, topic: Topic, partitions: range | tuple[int, ...], query: dict[str, str],
                    a_time: str) -> list[int] | None:
    """The offset of each partition that `from` names; None where it is a time, which has to be looked up. The number of
    an offset needs the only partition; `a_time` is an example for who forgot it."""
    begin = query.get("from", "earliest")
    if begin == "earliest":
        return [guard.bounds(topic.partition_id(number))[0] for number in partitions]
    if begin == "latest":
        return [guard.bounds(topic.partition_id(number))[1] for number in partitions]
    if not (begin.isascii() and begin.isdigit()):
        return None
    if isinstance(partitions, range):
        raise Refusal("invalid_parameter", f"a number is an offset and needs a 'partition'; a time is like {a_time}",
                      parameter="from")
    first, end = guard.bounds(topic.partition_id(partitions[0]))
    return [offset_within(decode_number(query, "from", 0, 0, MAX_OFFSET), first, end)]


def offset_within(offset: int, first: int, end: int) -> int:
    """The offset. Refuses `offset_out_of_range` where the partition has it not, and it is not the next one."""
    if not first <= offset <= end:
        raise Refusal("offset_out_of_range", f"the partition holds the offsets {first} to {end}, the next",
                      log_start_offset=first, high_watermark=end)
    return offset


# --- one page -----------------------------------------------------------------------------------------------

BYTES_BEFORE: Final = 8_192
BYTES_BEFORE_ALL: Final = 65_536
BYTES_PER_MESSAGE: Final = 1_024
"""What a page reads from the log: room in each partition, and in all of them, for pieces that begin before the reader,
and for messages of common size. The first piece is read in any case. A page of larger messages has fewer of them. A
search reads as if there were many partitions: it passes over most of what it reads."""


def read_page(guard: Guard, topic: Topic, cursor: Cursor, max_messages: int, max_bytes: int,
              selection: Selection | None) -> Reply[Page]:
    """The page from the cursor on, or what reading it was refused for; there at once where all of it is in memory."""
    wants: list[tuple[int, int, int]] = []
    partitions: list[int] = []
    for partition in _in_turn(cursor):
        partition_id, at = topic.partition_id(partition), cursor.positions[partition]
        first, end = guard.bounds(partition_id)
        if not first <= at == end:
            partitions.append(partition)
            wants.append((partition_id, max(at, first), 0))
    before = BYTES_BEFORE_ALL if selection is not None else min(BYTES_BEFORE_ALL, BYTES_BEFORE * len(wants))
    budget = min(max_bytes, before + max_messages * BYTES_PER_MESSAGE)
    share = max(1, budget // max(1, len(wants)))
    wants = [(partition_id, at, share) for partition_id, at, _ in wants]
    reply: Reply[list[Fetched]] = Reply()
    if wants:
        guard.fetch(wants, budget, reply.set_result, False, 0 if selection is not None else max_messages)
    else:
        reply.set_result([])
    return reply.finished_by(partial(_page_of, guard, topic, cursor, partitions, wants, max_messages, max_bytes,
                                     selection))


def _page_of(guard: Guard, topic: Topic, cursor: Cursor, partitions: list[int], wants: list[tuple[int, int, int]],
             max_messages: int, max_bytes: int, selection: Selection | None, fetched: list[Fetched]) -> Page:
    sources: list[PageSource] = []
    for i, answer in enumerate(fetched):
        _check_fetched(wants[i][1], answer)
        sources.append(PageSource(partitions[i], cursor.positions[partitions[i]], answer, topic.settings.compact))
    page = build_page(sources, max_messages, max_bytes, selection)
    if page.unreadable:
        note_unreadable(guard, page, topic.partition_id)
    if len(cursor.positions) == len(sources) == 1:
        return page
    return page._replace(positions=cursor.positions | page.positions)           # of those at their end nothing was read


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
    first = sum([partition < cursor.turn for partition in partitions])
    return partitions[first:] + partitions[:first]


def _check_fetched(offset: int, fetched: Fetched) -> None:
    """Raises what a fetch ended in, but for what retention took in the meantime: the page tells that."""
    error = fetched.error
    if isinstance(error, OffsetOutOfRange):
        if offset > fetched.high_watermark:
            offset_within(offset, fetched.log_start_offset, fetched.high_watermark)
    elif error is not None:
        raise error


def next_cursor(topic: Topic, cursor: Cursor, page: Page) -> str:
    """Where the page behind this one begins."""
    turn = (cursor.turn + 1) % topic.partitions if page.records else cursor.turn
    return encode_cursor(Cursor(cursor.topic_uuid, cursor.partition, turn, page.positions))


# --- its JSON -----------------------------------------------------------------------------------------------

def page_to_json(door_names: dict[int, str], guard: Guard, topic: Topic, cursor: Cursor, page: Page, parsed: bool,
                 selection: Selection | None) -> dict[str, Any]:
    """The page as what orjson writes."""
    messages: list[dict[str, Any]] = []
    addresses: dict[bytes | None, str] = {}              # of keys without headers
    name = topic.name
    for partition, record in page.records:
        _, _, key, _, headers, attributes, _ = record
        address = None if headers else addresses.get(key)
        if address is None:
            address = guard.address_of(name, key, headers)
            if not headers:
                addresses[key] = address
        door = door_of(attributes)
        messages.append(record_to_json(record, name, partition, address, door_names.get(door) or str(door),
                                       parsed=parsed))
    document: dict[str, Any] = {"messages": messages, "cursor": next_cursor(topic, cursor, page)}
    if page.lost:
        document["lost"] = page.lost
    if page.skipped:
        document["skipped"] = page.skipped
    if selection is not None and selection.unknown_names:
        document["unknown_names"] = selection.unknown_names
    if page.unreadable:
        document["unreadable"] = page.unreadable
    return document
