"""Rows as record batches: what the kernel reads in them is what was in the rows."""
from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.kernel.addresses.murmur2 import partition_for
from gatehouse.kernel.message import Piece
from gatehouse.kernel.records.batch import check_batch, records_of
from gatehouse.kernel.records.compression import LZ4, NONE, ZSTD
from gatehouse.spark.encoding import Rows, encode_batch, header_blocks, partitions_of

NOW_MS = 1_700_000_000_000
TEXTS = st.one_of(st.none(), st.binary(max_size=300))
ROWS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=150)


def opened(batch: bytes) -> list[Any]:
    header = check_batch(batch)
    return records_of(Piece(0, header.record_count, True, batch, 0, header.max_ms, 0))


def rows_of(pairs: list[tuple[bytes | None, bytes | None]], headers: pa.Array | None = None,
            times: list[int] | None = None) -> Rows:
    return Rows(pa.array([key for key, _ in pairs], pa.binary()), pa.array([value for _, value in pairs], pa.binary()),
                headers, None if times is None else np.array(times, np.int64))


@given(ROWS, st.sampled_from((NONE, LZ4, ZSTD)))
def test_a_batch_says_what_its_rows_said(pairs: list[tuple[bytes | None, bytes | None]], codec: int) -> None:
    records = opened(encode_batch(rows_of(pairs), NOW_MS, codec))
    assert [(offset, time_ms, key, value, headers, attributes)
            for offset, time_ms, key, value, headers, attributes, _ in records] == [
        (i, NOW_MS, key, value, (), 2) for i, (key, value) in enumerate(pairs)]


@given(st.lists(st.integers(0, 1 << 45), min_size=1, max_size=40))
def test_times_of_the_rows(times: list[int]) -> None:
    records = opened(encode_batch(rows_of([(b"k", b"v")] * len(times), None, times), NOW_MS, NONE))
    assert [record[1] for record in records] == times


def test_headers_of_the_rows() -> None:
    column = pa.array([[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, []],
                      pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    more: list[list[tuple[bytes, bytes | None]]] = [[], [(b"address", b"x/")], []]
    records = opened(encode_batch(rows_of([(b"k", b"v")] * 3, header_blocks(column, more)), NOW_MS, NONE))
    assert [record[4] for record in records] == [((b"a", b"1"), (b"a", None)), ((b"address", b"x/"),), ()]


@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 20_000, 1_100_000])
def test_values_of_any_size(size: int) -> None:
    (record,) = opened(encode_batch(rows_of([(b"k", b"v" * size)]), NOW_MS, NONE))
    assert record[3] == b"v" * size


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=60), st.integers(1, 50))
def test_queues_are_those_of_the_kernel(keys: list[bytes], partitions: int) -> None:
    column = pa.array([b"left out", *keys], pa.binary())[1:]
    assert partitions_of(column, partitions).tolist() == [partition_for(key, partitions) for key in keys]


@given(ROWS)
def test_a_slice_is_encoded_alone(pairs: list[tuple[bytes | None, bytes | None]]) -> None:
    rows = rows_of([(b"not", b"mine"), *pairs])
    part = Rows(rows.key[1:], rows.value[1:], None, None)
    assert [record[2:4] for record in opened(encode_batch(part, NOW_MS, NONE))] == pairs
