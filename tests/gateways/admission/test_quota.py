"""Token buckets: time is an argument, so the whole of it is arithmetic."""
from __future__ import annotations

import pytest

from gatehouse.gateways.admission.quota import Meter, Quota, TokenBucket


def test_a_bucket_begins_full_with_a_second_of_its_rate() -> None:
    bucket = TokenBucket(100, 0)
    assert bucket.take(100, 0) == 0
    assert bucket.take(1, 0) == 11


def test_what_is_owed_is_paid_by_time() -> None:
    bucket = TokenBucket(100, 0)
    wait_ms = bucket.take(600, 0)
    assert wait_ms == 5001
    assert bucket.take(0, wait_ms) == 0


def test_over_a_long_time_the_rate_holds() -> None:
    bucket, now_ms, taken = TokenBucket(1000, 0), 0, 0
    while now_ms < 60_000:
        taken += 77
        now_ms += bucket.take(77, now_ms)
    assert 60_000 <= taken <= 61_200


def test_a_clock_that_is_set_back_fills_nothing_and_breaks_nothing() -> None:
    bucket = TokenBucket(10, 1000)
    assert bucket.take(10, 1000) == 0
    assert bucket.take(1, 0) == 101
    assert bucket.take(0, 200) == 0


def test_idle_time_fills_no_more_than_the_bucket() -> None:
    bucket = TokenBucket(10, 0)
    bucket.take(10, 0)
    assert bucket.take(11, 3_600_000) == 101


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError):
        TokenBucket(0, 0)


def test_the_stricter_of_both_quotas_decides() -> None:
    meter = Meter(Quota(messages_per_s=10, bytes_per_s=100), 0)
    assert meter.charge(10, 10, 0) == 0
    assert meter.charge(0, 190, 0) == 1001
    assert Meter(Quota(), 0).charge(10**9, 10**12, 0) == 0
