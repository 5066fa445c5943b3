"""Arrow columns of located records."""
from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from gatehouse.kernel.addresses.routes import RouteEntry
from gatehouse.kernel.message import DOOR_MASK, RETAIN, TRANSIENT, Piece
from gatehouse.kernel.records.compression import GZIP, NONE, ZSTD
from gatehouse.kernel.records.pieces import NOBODY_NUMBER
from gatehouse.spark.answers import Served, join_heads, read_answer
from gatehouse.spark.columns import FIRST_MS, LAST_MS, Columns, HubFacts
from gatehouse.spark.records import locate
from gatehouse.spark.schema import COLUMNS, EXTRA, schema_of
from tests.spark.pieces import NOW_MS, Row, answer_of, batch_of, heads_of, run_of

FACTS = HubFacts({0: "kafka", 1: "mqtt", 2: "http"}, ())
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def rows_of(rows: list[Row], *names: str, facts: HubFacts = FACTS, partition: int = 3) -> list[dict[str, Any]]:
    records, _ = next(locate(heads_of(run_of(rows, 17, 1000))))
    return Columns(names or tuple(COLUMNS), facts).build(records, "plant", partition).to_pylist()


def test_the_arrow_schema_is_what_spark_wants() -> None:
    names = tuple(COLUMNS | EXTRA)
    assert Columns(names, FACTS).schema == to_arrow_schema(schema_of(names), timezone="UTC")


def test_a_row_of_every_column() -> None:
    headers = ((b"content-type", b"text/plain"), (b"unit", b"C"), (b"traceparent", TRACE), (b"priority", b"7"),
               (b"expires-at", b"1700000000500"), (b"reply-to", b"a/b"), (b"id", b"m1"), (b"none", None))
    (row,) = rows_of([(b"line1/temp", b"21.5", headers, 1 | RETAIN | TRANSIENT, -5)])
    time = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert row.pop("envelope") == {
        "id": "m1", "content_encoding": None, "utf8": None, "correlation_id": None, "reply_to": "a/b",
        "expires_at": time.replace(microsecond=500_000), "priority": 7, "deliver_at": None, "retain": True,
        "durable": False, "traceparent": TRACE.decode()}
    assert row.pop("timestamp").timestamp() == (NOW_MS - 5) / 1000
    assert row == {
        "topic": "plant", "partition": 3, "offset": 17, "key": b"line1/temp", "value": b"21.5",
        "headers": [{"key": name.decode(), "value": value} for name, value in headers], "append_time": time,
        "address": "plant/line1/temp", "door": "mqtt", "message_id": 1000, "content_type": "text/plain",
        "principal": None, "trace_id": TRACE[3:35].decode()}


def test_principals_are_those_of_their_stretches() -> None:
    pieces = [run_of([(b"k", b"v", (), 0, 0)] * 3, 10, 100), run_of([(b"k", b"v", (), 0, 0)] * 4, 13, 200)]
    (first, second) = read_answer(answer_of(pieces, pieces, principals=["ann", "edge"], stretches=[
        [(10, 0), (12, 1), (13, NOBODY_NUMBER), (15, 0)], [(10, 1)]]))
    shown = []
    for served in (first, second, Served(join_heads([first.pieces.part(0, 1), first.pieces.part(1, 2)]), 0, 0, "", "",
                                         False, -1)):
        records, _ = next(locate(served.pieces))
        kept = records.only(records.offset != 11)
        shown.append(Columns(("principal",), FACTS).build(kept, "plant", 0).column(0).to_pylist())
    assert shown == [["ann", "edge", None, None, "ann", "ann"], ["edge"] * 6, ["ann", "edge", None, None, "ann", "ann"]]


def test_nulls_are_nulls_and_empty_is_empty() -> None:
    rows = rows_of([(None, None, (), 0, 0), (b"", b"", (), 0, 0), (b"k", b"v", (), 2, 0)], "key", "value", "address",
                   "door", "headers", "content_type")
    assert [row["key"] for row in rows] == [None, b"", b"k"]
    assert [row["value"] for row in rows] == [None, b"", b"v"]
    assert [row["address"] for row in rows] == ["plant", "plant", "plant/k"]
    assert [row["door"] for row in rows] == ["kafka", "kafka", "http"]
    assert [row["headers"] for row in rows] == [[], [], []]
    assert [row["content_type"] for row in rows] == [None, None, None]


def test_what_a_header_says_wrongly_is_null() -> None:
    (row,) = rows_of([(b"k", b"v", ((b"priority", b"high"), (b"expires-at", b"soon"), (b"retain", b"maybe"),
                                    (b"traceparent", b"x")), 0, 0)], "envelope", "trace_id")
    assert row["trace_id"] is None
    envelope = row["envelope"]
    assert (envelope["priority"], envelope["expires_at"], envelope["retain"]) == (None, None, False)


def test_an_address_header_is_believed_as_the_hub_believes_it() -> None:
    rows = rows_of([(b"a", b"", ((b"address", b"plant/"),), 1, 0), (b"a", b"", ((b"address", b"other/x"),), 1, 0),
                    (b"a", b"", (), 1, 0)], "address")
    assert [row["address"] for row in rows] == ["plant/", "plant/a", "plant/a"]


def test_addresses_follow_the_hubs_routes() -> None:
    facts = HubFacts({}, (RouteEntry("fleet/{vehicle}/gps/#", "plant", "{address}", "{vehicle}"),))
    rows = rows_of([(b"fleet/7/gps/x", b"", (), 1, 0), (b"line1", b"", (), 1, 0)], "address", facts=facts)
    assert [row["address"] for row in rows] == ["fleet/7/gps/x", "plant/line1"]


def test_distinct_times_of_one_batch() -> None:
    records, _ = next(locate(heads_of(batch_of([(None, b"1", (), 0, 0), (None, b"2", (), 0, 1500)]))))
    built = Columns(("timestamp", "append_time", "timestampType", "partition"), FACTS).build(records, "plant", 0)
    assert built.column("timestamp").cast(pa.int64()).to_pylist() == [NOW_MS * 1000, (NOW_MS + 1500) * 1000]
    assert built.column("append_time").cast(pa.int64()).to_pylist() == [(NOW_MS + 5) * 1000] * 2
    assert built.column("partition").to_pylist() == [0, 0]


def test_doors_that_the_hub_does_not_name() -> None:
    (row,) = rows_of([(b"k", b"v", (), DOOR_MASK, 0)], "door")
    assert row["door"] == str(DOOR_MASK)


@pytest.mark.parametrize("pattern", ["zb", "zbzb", "bzb", "zwgbb", "bz"])
def test_a_page_of_compressed_batches_and_bare_records(pattern: str) -> None:
    """A producer of Kafka's and a device that share a topic; a page may begin with either and end with either."""
    kafka: list[Row] = [(b"line%d" % i, b"value %d" % i, ((b"unit", b"C"),), 0, i) for i in range(50)]
    device: list[Row] = [(b"line1", b"bare", ((b"unit", b"K"),), 1, 0)]
    codecs = {"z": ZSTD, "g": GZIP, "w": NONE}
    pieces: list[Piece] = []
    wanted: list[Row] = []
    for kind in pattern:
        rows = device if kind == "b" else kafka
        pieces.append(run_of(rows, len(wanted), len(wanted)) if kind == "b" else
                      batch_of(rows, len(wanted), len(wanted), codecs[kind]))
        wanted += rows
    built = [Columns(tuple(COLUMNS), FACTS).build(records, "plant", 0) for records, _ in locate(heads_of(*pieces))]
    rows_built = [row for batch in built for row in batch.to_pylist()]
    assert [(row["key"], row["value"], row["headers"][0]["value"]) for row in rows_built] == [
        (key, value, headers[0][1]) for key, value, headers, _, _ in wanted]
    assert [row["offset"] for row in rows_built] == list(range(len(wanted)))
    assert [row["address"] for row in rows_built] == ["plant/" + (key or b"").decode() for key, *_ in wanted]


@pytest.mark.parametrize("beyond_ms", [LAST_MS + 1, FIRST_MS - 1, (1 << 60), -(1 << 60)])
def test_a_time_beyond_the_years_that_readers_take_is_null(beyond_ms: int) -> None:
    rows = rows_of([(b"k", b"1", (), 0, 0), (b"k", b"2", (), 0, beyond_ms - NOW_MS), (b"k", b"3", (), 0, 5),
                    (b"k", b"4", (), 0, LAST_MS - NOW_MS), (b"k", b"5", (), 0, FIRST_MS - NOW_MS)],
                   "timestamp", "value", "append_time")
    assert [row["value"] for row in rows] == [b"1", b"2", b"3", b"4", b"5"]
    assert [row["timestamp"] is None for row in rows] == [False, True, False, False, False]
    assert rows[3]["timestamp"].year == 9999 and rows[4]["timestamp"].year == 1
    assert all(row["append_time"] is not None for row in rows)


def test_an_expiry_beyond_the_year_9999_is_null() -> None:
    (row,) = rows_of([(b"k", b"v", ((b"expires-at", b"%d" % (LAST_MS + 1)), (b"deliver-at", b"%d" % LAST_MS)), 0, 0)],
                     "envelope")
    assert row["envelope"]["expires_at"] is None and row["envelope"]["deliver_at"].year == 9999
