"""Which topic and partition each row goes to, and its columns as bytes."""
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.kernel.addresses.address import ADDRESS_HEADER
from gatehouse.kernel.addresses.murmur2 import partition_for
from gatehouse.kernel.addresses.routes import Routed, RouteEntry, Routes
from gatehouse.kernel.errors import InvalidAddress
from gatehouse.spark.answers import Longs
from gatehouse.spark.encoding import Rows, header_blocks, partitions_of
from gatehouse.spark.errors import HubRefused, InvalidRow
from gatehouse.spark.hub import Hub

COLUMNS: Final = ("value", "key", "topic", "address", "partition", "headers", "timestamp")
Placed = list[tuple[int, Rows]]


class Placer:
    """Places rows; asks the hub once per topic how many partitions it has, and makes it where there is none."""

    def __init__(self, hub: Hub, topic: str) -> None:
        self._hub = hub
        self._topic = topic
        self._partitions: dict[str, int] = {}
        self._routes: Routes | None = None

    def place(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Placed]]:
        """By topic, in order of their names: rows by partition, each partition's in the order of the batch."""
        columns = {name: batch.column(name) for name in batch.schema.names}
        unknown = [name for name in columns if name not in COLUMNS]
        if unknown or "value" not in columns:
            raise InvalidRow(f"rows have the columns {', '.join(COLUMNS)}, and at least 'value'; these have "
                             f"{', '.join(columns)}")
        if "address" in columns:
            yield from self._by_address(columns)
            return
        rows = self._rows(columns, columns.get("key"), None)
        for topic, which in self._by_topic(columns, len(batch)):
            yield topic, self._by_partition(topic, rows if which is None else rows.take(which), columns, which)

    # --- rows with a topic and a key

    def _by_topic(self, columns: dict[str, pa.Array], count: int) -> Iterator[tuple[str, Longs | None]]:
        if self._topic:
            yield self._topic, None
            return
        if "topic" not in columns:
            raise InvalidRow("rows need a column 'topic' or 'address', or the option 'topic'")
        names = columns["topic"].dictionary_encode()
        if names.null_count:
            raise InvalidRow(f"{names.null_count} of {count} rows have no topic")
        texts = names.dictionary.to_pylist()
        for number in sorted(range(len(texts)), key=lambda index: str(texts[index])):
            yield texts[number], np.flatnonzero(names.indices.to_numpy() == number)

    def _by_partition(self, topic: str, rows: Rows, columns: dict[str, pa.Array], which: Longs | None) -> Placed:
        partitions = self._partitions_of(topic)
        numbers = partitions_of(pc.fill_null(rows.key, topic.encode()), partitions)
        empty = np.asarray(pc.fill_null(pc.equal(pc.binary_length(rows.key), 0), False))
        if empty.any():
            numbers[empty] = partition_for(topic.encode(),
                                           partitions)      # an empty key is no key: its address is the topic
        own = columns.get("partition")
        if own is not None:
            own = own if which is None else own.take(pa.array(which))
            asked = np.asarray(pc.fill_null(own.cast(pa.int64()), -1))
            if asked.max() >= partitions:
                raise InvalidRow(f"a row asks for partition {asked.max()}; "
                                 f"{topic!r} has the partitions 0 to {partitions - 1}")
            numbers = np.where(asked >= 0, asked, numbers)
        return _group(rows, numbers)

    # --- rows with an address

    def _by_address(self, columns: dict[str, pa.Array]) -> Iterator[tuple[str, Placed]]:
        if any(name in columns for name in ("topic", "key", "partition")) or self._topic:
            raise InvalidRow("an address says topic and key: leave out 'topic', 'key', 'partition' and the option")
        addresses = columns["address"].dictionary_encode()
        if addresses.null_count:
            raise InvalidRow(f"{addresses.null_count} rows have no address")
        index = addresses.indices.to_numpy()
        routed = [self._route(text) for text in addresses.dictionary.to_pylist()]
        keys = pa.array([destination.key for destination in routed], pa.binary()).take(addresses.indices)
        stated = [[(ADDRESS_HEADER, text.encode())] if destination.needs_header else []
                  for text, destination in zip(addresses.dictionary.to_pylist(), routed, strict=True)]
        rows = self._rows(columns, keys, [stated[i] for i in index.tolist()] if any(stated) else None)
        for topic in sorted({destination.topic for destination in routed}):
            partitions = self._partitions_of(topic)
            mine = np.array([destination.partition(partitions) if destination.topic == topic else -1
                             for destination in routed])[index]
            which = np.flatnonzero(mine >= 0)
            yield topic, _group(rows.take(which), mine[which])

    def _route(self, address: str) -> Routed:
        if self._routes is None:
            self._ask([])
        assert self._routes is not None
        try:
            return self._routes.route(address)
        except InvalidAddress as error:
            raise InvalidRow(f"{address!r} is no address to publish to: {error}") from None

    # --- both

    @staticmethod
    def _rows(columns: dict[str, pa.Array], key: pa.Array | None, more: list[Any] | None) -> Rows:
        value = _bytes("value", columns["value"])
        keys = pa.nulls(len(value), pa.binary()) if key is None else _bytes("key", key)
        headers = columns.get("headers")
        if headers is not None and headers.null_count == len(headers):
            headers = None
        if headers is None and more is not None:
            headers = pa.nulls(len(value), pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
        return Rows(keys, value, None if headers is None else header_blocks(headers, more), _times(columns))

    def _partitions_of(self, topic: str) -> int:
        if topic not in self._partitions:
            self._ask([topic])
        if topic not in self._partitions:
            try:
                self._hub.request("PUT", f"/v1/topics/{quote(topic, safe='')}")
            except HubRefused as error:
                raise InvalidRow(f"the topic {topic!r} is not there and cannot be made: {error.detail}") from None
            self._ask([topic])
        return self._partitions[topic]

    def _ask(self, topics: list[str]) -> None:
        answer = json.loads(self._hub.post_json("/v1/batches/positions", {"topics": topics}))
        self._routes = Routes([RouteEntry(**route) for route in answer["routes"]])
        self._partitions |= {topic["name"]: topic["partitions"] for topic in answer["topics"]}


def _group(rows: Rows, numbers: Longs) -> Placed:
    """Rows by partition; each partition's keep their order."""
    order = np.argsort(numbers, kind="stable")
    partitions, firsts = np.unique(numbers[order], return_index=True)
    if len(partitions) == 1:
        return [(int(partitions[0]), rows)]
    ends = [*firsts[1:].tolist(), len(order)]
    return [(partition, rows.take(order[first:end])) for partition, first,
            end in zip(partitions.tolist(), firsts.tolist(), ends,
                                                                             strict=True)]


def _bytes(name: str, column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_binary(kind):
        return column
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.binary())
    raise InvalidRow(f"the column {name!r} is a string or binary, not {kind}; make it one with to_json or cast")


def _times(columns: dict[str, pa.Array]) -> Longs | None:
    column = columns.get("timestamp")
    if column is None:
        return None
    if column.null_count:
        raise InvalidRow(f"{column.null_count} rows have no timestamp; leave the column out for the time of storing")
    return np.asarray(column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64()))
