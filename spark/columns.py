"""Arrow columns from located records: only those that are asked for, each by one pass over all records.

Bytes are gathered by Arrow itself: an array whose elements are by turns a value and what lies between two values needs
no copy, and taking every second element copies each value once. What hangs on a key or on headers (address, content
type, envelope) is found once per distinct key or header block of a page, and then taken for each record.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.addresses.routes import RouteEntry, Routes
from gatehouse.kernel.errors import CorruptBatch
from gatehouse.kernel.message import DOOR_MASK, RETAIN, TRANSIENT, Headers
from gatehouse.kernel.records.batch import read_headers
from gatehouse.spark.answers import Longs
from gatehouse.spark.records import Located

TIME: Final = pa.timestamp("us", tz="UTC")
HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
ENVELOPE: Final = pa.struct([
    pa.field("id", pa.string()), pa.field("content_encoding", pa.string()), pa.field("utf8", pa.bool_()),
    pa.field("correlation_id", pa.binary()), pa.field("reply_to", pa.string()), pa.field("expires_at", TIME),
    pa.field("priority", pa.int32()), pa.field("deliver_at", TIME), pa.field("retain", pa.bool_()),
    pa.field("durable", pa.bool_()), pa.field("traceparent", pa.string())])
TYPES: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "key": pa.binary(),
    "value": pa.binary(), "headers": pa.list_(HEADER), "timestamp": TIME, "append_time": TIME, "address": pa.string(),
    "door": pa.string(), "message_id": pa.int64(), "content_type": pa.string(), "principal": pa.string(),
    "trace_id": pa.string(), "envelope": ENVELOPE, "timestampType": pa.int32()}

FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999
"""The years 1 to 9999: what Spark's, Python's and Parquet's readers all take. A time beyond is null."""

MAX_KNOWN: Final = 100_000
"""Addresses that a task remembers."""

CREATE_TIME: Final = 0
"""The Kafka connector's number for a timestamp that the sender gave."""


@dataclass(frozen=True, slots=True)
class HubFacts:
    """What the hub says about itself and a reader needs for its columns. Picklable."""

    doors: Mapping[int, str]
    routes: tuple[RouteEntry, ...]


class Columns:
    """Builds record batches with these columns, always in this order."""

    def __init__(self, names: Sequence[str], facts: HubFacts) -> None:
        self._names = tuple(names)
        self._facts = facts
        self._routes = Routes(facts.routes)
        self._known: dict[tuple[str, bytes | None], str] = {}
        self.schema = pa.schema([pa.field(name, TYPES[name]) for name in names])

    def build(self, records: Located, topic: str, partition: int) -> pa.RecordBatch:
        """One batch of records of one partition."""
        page = _Page(records, topic, partition, self._facts, self._address_of)
        return pa.RecordBatch.from_arrays([page.column(name) for name in self._names], schema=self.schema)

    def addresses(self, records: Located, topic: str) -> pa.DictionaryArray:
        """Each record's address, each distinct one once."""
        return _Page(records, topic, 0, self._facts, self._address_of).addresses()

    def _address_of(self, topic: str, key: bytes | None, headers: Headers) -> str:
        """A record's address; what hangs on the key alone is remembered from page to page."""
        if headers:
            return self._routes.address_of(topic, key, headers)
        address = self._known.get((topic, key))
        if address is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            address = self._known[topic, key] = self._routes.address_of(topic, key)
        return address


class _Page:
    """The columns of some records, made when asked for; what several need is kept."""

    def __init__(self, records: Located, topic: str, partition: int, facts: HubFacts,
                 address_of: Callable[[str, bytes | None, Headers], str]) -> None:
        self._records = records
        self._topic = topic
        self._partition = partition
        self._facts = facts
        self._address_of = address_of
        self._blocks: pa.DictionaryArray | None = None
        self._parsed: list[Headers] = []

    def column(self, name: str) -> pa.Array:
        """One column by its name."""
        records, count = self._records, len(self._records)
        if name == "topic":
            return pa.repeat(pa.scalar(self._topic), count)
        if name == "partition":
            return pa.repeat(pa.scalar(self._partition, pa.int32()), count)
        if name == "timestampType":
            return pa.repeat(pa.scalar(CREATE_TIME, pa.int32()), count)
        if name in ("offset", "message_id"):
            return pa.array(getattr(records, name))
        if name in ("timestamp", "append_time"):
            return _times(records.timestamp_ms if name == "timestamp" else records.append_ms)
        if name in ("key", "value"):
            return _gather(records.buffer, getattr(records, name + "_at"), getattr(records, name + "_length"))
        if name == "principal":
            stretches = pa.array(records.principals.stretches_of(records.offset) + 1)
            return pa.array([None, *records.principals.names], pa.string()).take(stretches)
        made: Callable[[], pa.Array] = getattr(self, "_" + name) if name != "address" else self._address
        return made()

    # --- by door and key

    def _door(self) -> pa.Array:
        numbers, which = np.unique(self._records.attributes & DOOR_MASK, return_inverse=True)
        names = pa.array([self._facts.doors.get(int(number), str(number)) for number in numbers], pa.string())
        return names.take(pa.array(which))

    def _address(self) -> pa.Array:
        addresses = self.addresses()
        return addresses.dictionary.take(addresses.indices)

    def addresses(self) -> pa.DictionaryArray:
        """By key; a record with headers may say its address there."""
        keys = self.column("key").dictionary_encode("encode")
        if self._without_headers():
            texts = [self._address_of(self._topic, key, ()) for key in keys.dictionary.to_pylist()]
            return pa.DictionaryArray.from_arrays(keys.indices, pa.array(texts, pa.string()))
        blocks = self._header_blocks()
        stated = [tuple(pair for pair in headers if pair[0] == ADDRESS_HEADER) for headers in self._parsed]
        both = keys.indices.to_numpy().astype(np.int64) * len(stated) + blocks.indices.to_numpy()
        distinct, which = np.unique(both, return_inverse=True)
        distinct_keys = keys.dictionary.to_pylist()
        texts = [self._address_of(self._topic, distinct_keys[pair // len(stated)], stated[pair % len(stated)])
                 for pair in distinct.tolist()]
        return pa.DictionaryArray.from_arrays(pa.array(which.astype(np.int32)), pa.array(texts, pa.string()))

    # --- by headers

    def _without_headers(self) -> bool:
        records = self._records
        return bool((records.end - records.headers_at == 1).all())

    def _header_blocks(self) -> pa.DictionaryArray:
        """Header blocks as they stand in the records, each distinct one parsed once."""
        if self._blocks is None:
            records = self._records
            blocks = _gather(records.buffer, records.headers_at, records.end - records.headers_at)
            self._blocks = blocks.dictionary_encode()
            self._parsed = [_parse(block) for block in self._blocks.dictionary.to_pylist()]
        return self._blocks

    def _per_block(self, kind: pa.DataType, of: Callable[[Headers], Any]) -> pa.Array:
        """A column that hangs on the headers alone."""
        if self._without_headers():
            empty = of(())
            count = len(self._records)
            return pa.nulls(count, kind) if empty is None else pa.array([empty], kind).take(
                pa.array(np.zeros(count, np.int32)))
        blocks = self._header_blocks()
        return pa.array([of(headers) for headers in self._parsed], kind).take(blocks.indices)

    def _headers(self) -> pa.Array:
        return self._per_block(TYPES["headers"], _header_rows)

    def _content_type(self) -> pa.Array:
        return self._per_block(pa.string(), lambda headers: _text(_first(headers, b"content-type")))

    def _trace_id(self) -> pa.Array:
        return self._per_block(pa.string(), lambda headers: _trace_id(_first(headers, b"traceparent")))

    def _envelope(self) -> pa.Array:
        """The record's own bits beside what the headers say."""
        by_headers = self._per_block(ENVELOPE, _envelope)
        attributes = self._records.attributes
        fields = {field.name: by_headers.field(i) for i, field in enumerate(ENVELOPE)}
        fields["durable"] = pa.array((attributes & TRANSIENT) == 0)
        fields["retain"] = pc.or_kleene(pc.fill_null(fields["retain"], False), pa.array((attributes & RETAIN) != 0))
        return pa.StructArray.from_arrays([fields[field.name] for field in ENVELOPE], fields=list(ENVELOPE))


# --- columns of numbers and bytes ---------------------------------------------------------------------------

def _times(milliseconds: Longs) -> pa.Array:
    beyond = (milliseconds < FIRST_MS) | (milliseconds > LAST_MS)
    if not beyond.any():
        return pa.array(milliseconds * 1000).cast(TIME)
    return pa.array(np.where(beyond, 0, milliseconds) * 1000, mask=beyond).cast(TIME)


def _gather(buffer: bytes, at: Longs, length: Longs) -> pa.Array:
    """The bytes at these places, which lie one after the other in the buffer; a length below 0 is null."""
    count = len(at)
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = at
    bounds[1::2] = at + np.maximum(length, 0)
    between = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(buffer)])
    null = length < 0
    wanted = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=null if null.any() else None)
    return between.take(wanted)


# --- what headers say ---------------------------------------------------------------------------------------

def _parse(block: bytes) -> Headers:
    try:
        return read_headers(block, 0)[0]
    except CorruptBatch:
        return ()          # a record whose headers lie keeps its key and value


def _first(headers: Headers, name: bytes) -> bytes | None:
    return next((value for own, value in headers if own == name), None)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and value.isdigit() and len(value) < 19 else None


def _flag(value: bytes | None) -> bool | None:
    return {b"true": True, b"false": False}.get(value or b"")


def _time(value: bytes | None) -> int | None:
    number = _number(value)
    return None if number is None or number > LAST_MS else number * 1000


def _trace_id(traceparent: bytes | None) -> str | None:
    """The second field of a W3C traceparent."""
    fields = (traceparent or b"").split(b"-")
    return fields[1].decode("ascii", "replace") if len(fields) >= 4 and len(fields[1]) == 32 else None


def _header_rows(headers: Headers) -> list[dict[str, Any]]:
    return [{"key": name.decode("utf-8", "replace"), "value": value} for name, value in headers]


def _envelope(headers: Headers) -> dict[str, Any]:
    first: dict[bytes, bytes | None] = {}
    for name, value in headers:
        first.setdefault(name, value)
    priority = _number(first.get(b"priority"))
    return {"id": _text(first.get(b"id")), "content_encoding": _text(first.get(b"content-encoding")),
            "utf8": _flag(first.get(b"utf8")), "correlation_id": first.get(b"correlation-id"),
            "reply_to": _text(first.get(b"reply-to")), "expires_at": _time(first.get(b"expires-at")),
            "priority": priority if priority is not None and priority < 256 else None,
            "deliver_at": _time(first.get(b"deliver-at")), "retain": _flag(first.get(b"retain")), "durable": None,
            "traceparent": _text(first.get(b"traceparent"))}
