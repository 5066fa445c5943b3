"""One page of messages: where it begins, what is fetched for it, what it is made of, its JSON, and the cursor that goes
on behind it. Hot. What must wait (for a first message, for the offsets of a time) is the route's, `routes/messages.py`.

Inside a partition, so for every key, messages keep their order. Across partitions a page follows the message ids, which
grow from flush to flush of the hub, as far as the fetched pieces reach. A page always moves on: what cannot be given is
named in it and stepped over.

    lost         offsets before the log's start: retention deleted them before this reader came
    skipped      how many messages a selector passed over
    unreadable   offsets of stored batches at which their producer wrote nothing that makes sense, and offsets that no
                 piece has (the log is damaged there)

The cursor is where a reader is in every partition of a topic, in one opaque URL-safe word: the server keeps no state.

    base64url without padding of
    ┌─────────┬───────────────┬───────────┬──────┬───────┬──────────────────────────────────┬───────────┐
    │ version │ topic uuid    │ partition │ turn │ count │ count x (partition, next offset) │ CRC-32    │
    │ 1 byte  │ 16 bytes      │ +1, 0     │      │       │ partitions ascending             │ 4 bytes   │
    │         │               │ = all     │      │       │                                  │ big-endian│
    └─────────┴───────────────┴───────────┴──────┴───────┴──────────────────────────────────┴───────────┘
    everything from `partition` to the CRC in unsigned LEB128

The checksum tells a cursor from garbage and from one that was cut; it is no secret and proves nothing: what a reader
may see is decided by his rights on every request. `turn` is the partition that is read first, so that full partitions
cannot starve others. `decode_cursor(encode_cursor(x)) == x`, anything else raises ValueError.
"""
from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import a2b_base64
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import merge
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar
from zlib import crc32

from gatehouse.gateways.http.dispatch import Reply
from gatehouse.gateways.http.exchange import decode_number
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.json_messages import door_of, record_to_json
from gatehouse.kernel.errors import CorruptBatch, OffsetOutOfRange, StorageFailed, UnknownPartition
from gatehouse.kernel.message import Fetched, Piece, Record
from gatehouse.kernel.records.batch import missing, records_from, sound_records
from gatehouse.kernel.selectors.selector import Selector
from gatehouse.kernel.state.topics import Topic

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard

MAX_OFFSET: Final = (1 << 63) - 1
EARLIEST: Final = "earliest"
LATEST: Final = "latest"


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
    begin = query.get("from", EARLIEST)
    if begin in (EARLIEST, LATEST):
        side = 0 if begin == EARLIEST else 1
        if isinstance(partitions, range):
            return guard.bounds_of(topic)[side::2].tolist()
        return [guard.bounds(topic.partition_id(number))[side] for number in partitions]
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
    bounds = guard.bounds_of(topic) if cursor.partition is None else None
    for partition in _in_turn(cursor):
        at = cursor.positions[partition]
        if bounds is None:
            first, end = guard.bounds(topic.partition_id(partition))
        else:
            first, end = bounds[2 * partition], bounds[2 * partition + 1]
        if not first <= at == end:
            partitions.append(partition)
            wants.append((topic.partition_id(partition), max(at, first), 0))
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


DAMAGED: Final = (StorageFailed.code, "the log is damaged there")
SENSELESS: Final = (CorruptBatch.code, "the producer's batch has no sound record there")


class PageSource(NamedTuple):
    """One partition of a page: its number, the offset that the reader wants next, and what was fetched from there."""

    partition: int
    position: int
    fetched: Fetched
    compacted: bool = False              # offsets that no piece has are no damage


class _Entry(NamedTuple):
    """One step of a reader through one partition."""

    order: int                           # message id
    partition: int
    next_offset: int                     # the reader's position after this step
    record: Record | None                # None: nothing to show (a control batch), or `unreadable`
    unreadable: dict[str, Any] | None


class Page(NamedTuple):
    """What one request is answered with."""

    records: list[tuple[int, Record]]    # (partition, record)
    positions: dict[int, int]            # next offset by partition
    lost: list[dict[str, Any]]
    unreadable: list[dict[str, Any]]
    skipped: int = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to tell, so that a long poll goes on waiting."""
        return not (self.records or self.lost or self.unreadable)


OpenPiece = Callable[[Piece], list[Record]]

ALL: Final = 1 << 62


def build_page(sources: list[PageSource], max_messages: int, max_bytes: int,
               selects: Callable[[Record], bool] | None = None, open_piece: OpenPiece | None = None) -> Page:
    """Take messages that `selects` wants until there are `max_messages`, or over `max_bytes` of keys and values.

    `open_piece` gives every sound record of a piece, for who has them already; else those that the page has come to are
    decoded.
    """
    page = Page([], {source.partition: max(source.position, source.fetched.log_start_offset) for source in sources},
                [], [])
    for source in sources:
        missing = page.positions[source.partition] - source.position
        if missing:
            page.lost.append({"partition": source.partition, "offset": source.position, "count": missing})
        position, behind = page.positions[source.partition], source.fetched.next_offset
        if not source.fetched.pieces and behind > position:
            if not source.compacted:
                page.unreadable.append(_unreadable(source.partition, position, behind, DAMAGED))
            page.positions[source.partition] = behind
    size_bytes = skipped = 0
    if len(sources) == 1 and selects is None and open_piece is None:
        size_bytes = _take_plain(page, sources[0], max_messages, max_bytes)
        if len(page.records) >= max_messages or size_bytes >= max_bytes:
            return page
    most = max_messages if selects is None else ALL        # a search passes over most of what it looks at
    for entry in merge(*(_entries(source, page.positions[source.partition], most, open_piece) for source in sources)):
        if max(len(page.records), len(page.unreadable)) >= max_messages or size_bytes >= max_bytes:
            break
        page.positions[entry.partition] = entry.next_offset
        if entry.record is not None and selects is not None and not selects(entry.record):
            skipped += 1
        elif entry.record is not None:
            page.records.append((entry.partition, entry.record))
            size_bytes += bytes_of(entry.record)
        elif entry.unreadable is not None:
            page.unreadable.append(entry.unreadable)
    return page._replace(skipped=skipped) if skipped else page


def bytes_of(record: Record) -> int:
    """How many bytes its key and its value have."""
    key, value = record[2], record[3]
    return (0 if key is None else len(key)) + (0 if value is None else len(value))


# decision 353
def _take_plain(page: Page, source: PageSource, max_messages: int, max_bytes: int) -> int:
    """Take the records of the only partition up to the first of which there is more to tell; their bytes."""
    partition, records = source.partition, page.records
    position = page.positions[partition]
    size_bytes = 0
    for piece in source.fetched.pieces:
        end = piece.first_offset + piece.count
        if end <= position:
            continue
        count = min(end - position, max_messages - len(records))
        taken = records_from(piece, position, count) if piece.first_offset <= position else []
        if len(taken) < count or not count:
            break
        for record in taken:
            if size_bytes >= max_bytes:
                break
            records.append((partition, record))
            size_bytes += bytes_of(record)
            position += 1
    page.positions[partition] = position
    return size_bytes


def _entries(source: PageSource, position: int, most: int, open_piece: OpenPiece | None) -> Iterator[_Entry]:
    """The steps of one partition from `position` on; opens a piece only when the page has come to it, and without
    `open_piece` so many of its records at a time."""
    for piece in source.fetched.pieces:
        end = piece.first_offset + piece.count
        if end <= position:
            continue
        if piece.first_offset > position and not source.compacted:
            yield _gap(source.partition, piece.first_id, position, piece.first_offset, DAMAGED)
        first, position = max(position, piece.first_offset), end
        while open_piece is None and first < end:
            taken = records_from(piece, first, min(most, end - first))
            if len(taken) < min(most, end - first):
                break                                # there is more to tell than what these are
            for record in taken:
                yield _Entry(record[6], source.partition, record[0] + 1, record, None)
            first += len(taken)
        if first == end:
            continue
        records = sound_records(piece) if open_piece is None else open_piece(piece)
        gaps = missing(piece, [record[0] for record in records]) if len(records) < piece.count else []
        steps: Iterator[_Entry] = (_Entry(record[6], source.partition, record[0] + 1, record, None)
                                   for record in records
                                   if record[0] >= first)
        if gaps:
            steps = merge(steps, (_gap(source.partition, piece.first_id + start - piece.first_offset, max(start, first),
                                       stop, SENSELESS) for start, stop in gaps if stop > first))
        yield from steps
        if not records and not gaps:                 # control records
            yield _Entry(piece.first_id, source.partition, end, None, None)


def _gap(partition: int, order: int, start: int, stop: int, why: tuple[str, str]) -> _Entry:
    return _Entry(order, partition, stop, None, _unreadable(partition, start, stop, why))


def _unreadable(partition: int, start: int, stop: int, why: tuple[str, str]) -> dict[str, Any]:
    code, detail = why
    return {"partition": partition, "offset": start, "count": stop - start, "code": code, "detail": detail}


class PartitionReader(Protocol):
    """Who reads partitions: a guard, for its principal; or the door's port, where each reader's right was asked
    before."""

    def fetch(self, wants: list[tuple[int, int, int]], max_bytes: int, on_done: Callable[[list[Fetched]], None],
              stored: bool, max_records: int = 0) -> None:
        """See `KernelPort.fetch`."""

    def offset_for_time(self, partition_id: int, timestamp_ms: int, on_done: Callable[[int | None, int], None]) -> None:
        """See `KernelPort.offset_for_time`."""

    def note_unreadable(self, partition_id: int, offset: int, count: int) -> None:
        """See `KernelPort.note_unreadable`."""


def note_unreadable(reader: PartitionReader, page: Page, partition_id_of: Callable[[int], int]) -> None:
    """Tell the kernel what producers' batches did not hold; `partition_id_of` makes a partition id of a page's
    partition."""
    for gap in page.unreadable:
        if gap["code"] == CorruptBatch.code:
            reader.note_unreadable(partition_id_of(gap["partition"]), gap["offset"], gap["count"])


VERSION: Final = 1
MAX_CURSOR_CHARS: Final = 6000
"""Below the limit of a request line (8190), with room for the path."""

MAX_PARTITIONS: Final = 512
"""The most partitions that a cursor within `MAX_CURSOR_CHARS` holds, with offsets below 2^35. Readers of a topic with
more partitions name one of them."""

_UUID_BYTES: Final = 16
_CRC_BYTES: Final = 4
NUMBER_BITS: Final = 64
MAX_PLACE_DIGITS: Final = 9

Row = TypeVar("Row")


# decision 53: the server keeps no state
class Cursor(NamedTuple):
    """Where a reader is. `partition` is the only one that is read, None for all; `positions` are next offsets by
    partition."""

    topic_uuid: bytes
    partition: int | None
    turn: int
    positions: dict[int, int]


def encode_cursor(cursor: Cursor) -> str:
    """The opaque word for a cursor."""
    out = bytearray([VERSION])
    out += cursor.topic_uuid
    _put_number(out, 0 if cursor.partition is None else cursor.partition + 1)
    _put_number(out, cursor.turn)
    _put_number(out, len(cursor.positions))
    for partition in sorted(cursor.positions):
        _put_number(out, partition)
        _put_number(out, cursor.positions[partition])
    out += crc32(out).to_bytes(_CRC_BYTES, "big")
    return urlsafe_b64encode(out).rstrip(b"=").decode()


def decode_cursor(text: str) -> Cursor:
    """The cursor of an opaque word. Raises ValueError where no hub wrote it."""
    data = _checked(text)
    body = data[1 + _UUID_BYTES:]
    partition, at = read_number(body, 0, NUMBER_BITS)
    turn, at = read_number(body, at, NUMBER_BITS)
    count, at = read_number(body, at, NUMBER_BITS)
    if count > MAX_PARTITIONS:
        raise ValueError("too many partitions")
    positions: dict[int, int] = {}
    for _ in range(count):
        number, at = read_number(body, at, NUMBER_BITS)
        positions[number], at = read_number(body, at, NUMBER_BITS)
    if at != len(body) or len(positions) != count:
        raise ValueError("wrong length")
    cursor = Cursor(data[1:1 + _UUID_BYTES], partition - 1 if partition else None, turn, positions)
    if encode_cursor(cursor) != text:
        raise ValueError("not in its one written form")
    return cursor


def _checked(text: str) -> bytes:
    """The bytes of a word without their checksum."""
    if len(text) > MAX_CURSOR_CHARS or not text.isascii():
        raise ValueError("too long or not ASCII")
    plain = text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)
    data = a2b_base64(plain, strict_mode=True)
    if len(data) < 1 + _UUID_BYTES + _CRC_BYTES or data[0] != VERSION:
        raise ValueError("too short or of another version")
    if crc32(data[:-_CRC_BYTES]) != int.from_bytes(data[-_CRC_BYTES:], "big"):
        raise ValueError("wrong checksum")
    return data[:-_CRC_BYTES]


def encode_name(name: str) -> str:
    """The cursor of a list that goes on behind this name."""
    return urlsafe_b64encode(name.encode()).rstrip(b"=").decode()


def decode_name(cursor: str) -> str:
    """The name in such a cursor. Refuses `invalid_cursor`."""
    try:
        name = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode()
    except ValueError:
        name = ""
    if encode_name(name) != cursor:              # the library passes over what is no base64
        raise Refusal("invalid_cursor", "this cursor was not made here")
    return name



def matching(name: str, query: dict[str, Any]) -> bool:
    """Whether a name has the text of `contains` in it, in whatever case."""
    return str(query.get("contains", "")).casefold() in name.casefold()


def page_by_name(rows: list[Row], count: int, name_of: Callable[[Row], str]) -> tuple[list[Row], str | None]:
    """So many of the rows behind a cursor's name, and the cursor of the next page, None at the end."""
    return rows[:count], encode_name(name_of(rows[count - 1])) if len(rows) > count else None


def page_by_place(rows: Sequence[Row], cursor: str, count: int) -> tuple[Sequence[Row], str | None]:
    """So many rows from where a cursor says, "" for the first, and the cursor of the next page, None at the end.
    Refuses `invalid_cursor`."""
    text = decode_name(cursor) or "0"
    if not text.isascii() or not text.isdigit() or len(text) > MAX_PLACE_DIGITS:
        raise Refusal("invalid_cursor", "this cursor was not made here")
    stop = int(text) + count
    return rows[int(text):stop], encode_name(str(stop)) if len(rows) > stop else None


def encode_number(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    out = bytearray()
    _put_number(out, number)
    return bytes(out)


def _put_number(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def read_number(data: bytes, at: int, bits: int) -> tuple[int, int]:
    """A number whose last byte begins below so many bits, and the place after it. Raises ValueError."""
    number = shift = 0
    while at < len(data) and shift < bits:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise ValueError("cut number")
