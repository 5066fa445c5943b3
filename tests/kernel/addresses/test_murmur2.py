"""murmur2 against Kafka's own known values and against two other clients' implementations."""
from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from gatehouse.kernel.addresses.murmur2 import murmur2, partition_for

# The values that Kafka's own test of its Java client asserts (UtilsTest), signed as Java prints them.
KAFKA_VALUES = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "signed"), KAFKA_VALUES)
def test_kafkas_own_values(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@pytest.mark.parametrize(("key", "signed"), KAFKA_VALUES)
def test_the_sign_is_cleared_not_negated(key: bytes, signed: int) -> None:
    assert partition_for(key, 7) == (signed & 0x7FFFFFFF) % 7


@given(st.binary(max_size=70))
def test_agrees_with_other_clients(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) == kafka_python_murmur2(key)


@given(st.binary(max_size=70), st.integers(1, 5000))
def test_queue_exists(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for(key, partitions) < partitions


def test_one_queue_takes_everything() -> None:
    assert partition_for(b"", 1) == partition_for(b"anything", 1) == 0
