"""The body of a frame: what was laid down in the order of arrival becomes the records of each run, one after the other.

Laid are, for messages: the number of their run, the key as it stands in a record, and behind those the messages
themselves; for a producer's batch: the number of its run, None, its place, and what follows that; for messages that
are encoded (`message.Encoded`): the number of their run, b"", and (records, what their times count from). Each message
becomes a record once, where it stays: nothing of it is encoded, or copied, before its frame is sealed.

`encode` is native in the compiled wheel (native_writer.c), and says the same as `encode_plain`.
"""
# decision 279: a message is encoded when its frame is sealed
from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final

from crc32c import crc32c

from gatehouse.kernel.records.record import NULL, read_varint, varint

ENCODED_FIELDS: Final = 2
"""Of (records, what their times count from); a message has five."""

Laid = list[Any]
"""See above."""

Body = tuple[bytes, bytes, bytes, bytes]
"""The body; of each run its length; of each its CRC-32C; where each record ends in its run, u32, run by run without
producers' batches, or b""."""


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
            records, base_ms = item
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


encode: Callable[[Laid, int, int, bytes, bool], Body] = encode_plain
try:
    from gatehouse.kernel.log import native_writer
    encode = native_writer.encode_body
except ImportError:
    pass
