"""The body of a frame: what was laid down in the order of arrival becomes the records of each run, one after the other.

Laid are, for messages: the number of their run, the key as it stands in a record, and behind those the messages
themselves; for a producer's batch: the number of its run, None, its place, and what follows that; for messages that
are encoded (`message.Encoded`): the number of their run, b"", and (records, what their times count from, how many).
Each message becomes a record once, where it stays: nothing of it is encoded, or copied, before its frame is sealed.

Whose they are is said for the messages of a call, and not with each of them.

`encode` and `authors_of` are native in the compiled wheel (native_body.c), and say the same as `encode_plain` and
`authors_plain`.
"""
# decision 279: a message is encoded when its frame is sealed
from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final

from crc32c import crc32c

from gatehouse.kernel.message import Origin
from gatehouse.kernel.records.authors import NOBODY_NUMBER, U32
from gatehouse.kernel.records.record import NULL, read_varint, varint

ENCODED_FIELDS: Final = 3
"""Of (records, what their times count from, how many they are); a message has five."""

Laid = list[Any]
"""See above."""

Body = tuple[bytes, bytes, bytes, bytes]
"""The body; of each run its length; of each its CRC-32C; where each record ends in its run, u32, run by run without
producers' batches, or b""."""

Turn = tuple[int, list[int] | None, Any]
"""From which message on, as they were laid, who published them: (message, None, author), where nobody knows it None; or
(message, stops, authors): those before each of these, counted from it. A producer's batch counts as one message, and so
do messages that are encoded."""

Authorship = tuple[list[Origin], bytes, bytes]
"""Who published messages of a frame; where stretches of messages begin, u32, counted from its first id; whose each of
them is, u16, by his number in the list, or NOBODY_NUMBER."""


def encode_plain(laid: Laid, run_count: int, now_ms: int, front: bytes, with_ends: bool) -> Body:
    """`front` stands before the first run. Times of messages count from `now_ms`; ends are given on wish.
    Raises OverflowError where a body has more than four gigabytes."""
    runs: list[list[bytes]] = [[] for _ in range(run_count)]
    whole: dict[int, bytes] = {}
    key_part = b""
    run: list[bytes] = []
    at = 0
    while at < len(laid):
        item = laid[at]
        at += 1
        if type(item) is int:
            run, key_part = runs[item], laid[at]
            at += 1
            if key_part is None:
                whole[item] = b"".join(laid[at:at + 2])
                at += 2
            continue
        if len(item) == ENCODED_FIELDS:
            records, base_ms, _ = item
            run += _placed(records, base_ms, now_ms, len(run))
            continue
        _, value, headers, attributes, timestamp_ms = item
        before = b"".join((bytes((attributes,)), varint(timestamp_ms - now_ms if timestamp_ms else 0), varint(len(run)),
                           key_part, NULL if value is None else varint(len(value))))
        size = len(before) + len(headers) + (0 if value is None else len(value))
        run.append(b"".join((varint(size), before, b"" if value is None else value, headers)))
    parts = [whole[number] if number in whole else b"".join(run) for number, run in enumerate(runs)]
    ends = array("I")
    if with_ends:
        for run in runs:
            ends.extend(accumulate([len(record) for record in run]))
    return (b"".join([front, *parts] if front else parts), array("I", [len(part) for part in parts]).tobytes(),
            array("I", [crc32c(part) for part in parts]).tobytes(), ends.tobytes())


def _placed(data: bytes, base_ms: int, now_ms: int, number: int) -> list[bytes]:
    """Encoded records with the places and the times of their run."""
    records: list[bytes] = []
    at = 0
    while at < len(data):
        length, at = read_varint(data, at)
        end = at + length
        attributes = data[at:at + 1]
        delta_ms, at = read_varint(data, at + 1)
        record = b"".join((attributes, varint(base_ms + delta_ms - now_ms), varint(number + len(records)),
                           data[at + 1:end]))
        records.append(varint(len(record)) + record)
        at = end
    return records


# decision 298
def authors_plain(laid: Laid, turns: list[Turn], begins: array[int], most: int) -> Authorship:
    """`begins`: by run, where the ids of its messages begin, counted from the frame's first; below 0, they have ids of
    their own and are passed over. Beyond `most` authors nobody is known."""
    numbers: dict[Origin, int] = {}
    parts: list[tuple[int, int]] = []                          # from which message on whose they are
    for first, stops, authors in turns:
        starts = [first] if stops is None else [first, *[first + stop for stop in stops[:-1]]]
        for start, author in zip(starts, [authors] if stops is None else authors, strict=True):
            if author is not None and len(numbers) < most:
                numbers.setdefault(author, len(numbers))
            parts.append((start, NOBODY_NUMBER if author is None else numbers.get(author, NOBODY_NUMBER)))
    if len(parts) == 1 and not parts[0][0]:                    # nearly every frame is one author's
        firsts = array(U32, [begin for begin in begins if begin >= 0][:1])
        return list(numbers), firsts.tobytes(), array("H", [parts[0][1]] * len(firsts)).tobytes()
    of_runs: list[list[int]] = [[] for _ in begins]            # the author's number of each message
    at = part = message = 0
    number = NOBODY_NUMBER
    while at < len(laid):
        if type(laid[at]) is int:
            of_run = of_runs[laid[at]]
            at += 2
            if laid[at - 1] is not None:
                continue
            at += 1                                            # a producer's batch
        item = laid[at]
        at += 1
        while part < len(parts) and parts[part][0] <= message:
            number = parts[part][1]
            part += 1
        message += 1
        of_run += [number] * (item[2] if type(item) is tuple and len(item) == ENCODED_FIELDS else 1)
    firsts = array(U32)
    of_stretches = array("H")
    for begin, of_run in zip(begins, of_runs, strict=True):
        for first, number in enumerate(of_run if begin >= 0 else (), begin):
            if not of_stretches or of_stretches[-1] != number:
                firsts.append(first)
                of_stretches.append(number)
    return list(numbers), firsts.tobytes(), of_stretches.tobytes()


encode: Callable[[Laid, int, int, bytes, bool], Body] = encode_plain
authors_of: Callable[[Laid, list[Turn], array[int], int], Authorship] = authors_plain
try:
    from gatehouse.kernel.write import native_body
    encode, authors_of = native_body.encode_body, native_body.authors_of
except ImportError:
    pass
