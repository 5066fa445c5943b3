"""Token buckets: time is an argument and every number is whole, so the whole of it is arithmetic."""
from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.admission.limits.bucket import LONGEST_WAIT_MS, QUANTUM_MS, TokenBucket


def test_a_bucket_begins_full_with_its_burst() -> None:
    bucket = TokenBucket(100, 100, 0)
    assert bucket.take(100, 0) == 0
    assert bucket.take(1, 0) == 10


def test_what_is_owed_is_paid_by_time() -> None:
    bucket = TokenBucket(100, 100, 0)
    wait_ms = bucket.take(600, 0)
    assert wait_ms == 5000
    assert bucket.wait_ms(wait_ms - 1) == 1
    assert bucket.wait_ms(wait_ms) == 0


def test_over_a_long_time_the_rate_holds() -> None:
    bucket, now_ms, taken = TokenBucket(1000, 1000, 0), 0, 0
    while now_ms < 60_000:
        taken += 77
        now_ms += bucket.take(77, now_ms)
    assert 60_000 <= taken <= 61_200


def test_those_who_share_a_bucket_take_turns() -> None:
    """Each waits for as long as was said when it took, and takes one then: none is left out."""
    bucket = TokenBucket(50, 50, 0)
    taken, until_ms = [0] * 5, [0] * 5
    for now_ms in range(10_000):
        for one in range(5):
            if now_ms >= until_ms[one]:
                taken[one] += 1
                until_ms[one] = now_ms + bucket.take(1, now_ms)
    assert max(taken) - min(taken) <= 12, taken         # the burst of the first second is whoever's comes first
    assert 545 <= sum(taken) <= 555


def test_a_clock_that_is_set_back_fills_nothing_and_breaks_nothing() -> None:
    bucket = TokenBucket(10, 10, 1000)
    assert bucket.take(10, 1000) == 0
    assert bucket.take(1, 0) == 100
    assert bucket.wait_ms(100) == 0


def test_a_clock_that_jumps_ahead_fills_no_more_than_the_bucket() -> None:
    bucket = TokenBucket(10, 10, 0)
    bucket.take(10, 0)
    assert bucket.level(1 << 60) == 10


def test_a_rate_of_nothing_gives_nothing_and_is_waited_for_no_longer_than_the_longest() -> None:
    bucket = TokenBucket(0, 5, 0)
    assert bucket.is_closed
    assert bucket.wait_ms(0) == bucket.take(1, 10 ** 9) == LONGEST_WAIT_MS
    assert bucket.room(10 ** 9) <= 0


def test_the_largest_rate_there_is_gives_everything() -> None:
    bucket = TokenBucket(10 ** 18, 10 ** 18, 0)
    assert bucket.take(10 ** 18, 0) == 0
    assert bucket.take(10 ** 12, 1) == 0


def test_a_small_part_of_a_token_a_second() -> None:
    bucket = TokenBucket(0.25, 1, 0)
    assert bucket.take(1, 0) == 0
    assert bucket.take(1, 0) == 4000


def test_a_bucket_that_is_empty_gives_a_quantum_at_once() -> None:
    bucket = TokenBucket(10_000, 10_000, 0)
    bucket.take(20_000, 0)
    assert bucket.room(0) == 10_000 * QUANTUM_MS // 1000


def test_another_rate_keeps_what_is_owed() -> None:
    bucket = TokenBucket(10, 10, 0)
    assert bucket.take(30, 0) == 2000
    bucket.change(20, 20, 0)
    assert bucket.wait_ms(0) == 1000
    bucket.change(20, 2, 2000)
    assert bucket.level(2000) == 2


STEPS = st.lists(st.tuples(st.integers(-50, 5_000), st.integers(0, 5_000)), max_size=60)


@given(st.integers(1, 10 ** 6), st.integers(1, 10 ** 6), STEPS)
def test_a_bucket_is_what_a_plain_model_says(per_s: int, burst: int, steps: list[tuple[int, int]]) -> None:
    """The model: fractions, and no cleverness."""
    bucket, level, at_ms, now_ms = TokenBucket(per_s, burst, 0), Fraction(burst), 0, 0
    for elapsed_ms, amount in steps:
        now_ms += elapsed_ms
        level = min(Fraction(burst), level + Fraction(per_s * max(0, now_ms - at_ms), 1000)) - amount
        at_ms = now_ms
        wait_ms = bucket.take(amount, now_ms)
        owed_ms = -level * 1000 / per_s
        assert wait_ms == (0 if level >= 0 else min(LONGEST_WAIT_MS, -(-owed_ms.numerator // owed_ms.denominator)))
