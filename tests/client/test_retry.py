"""How long the pauses are."""
from __future__ import annotations

from gatehouse_client.retry import NO_RETRY, Retry


def test_a_pause_doubles_up_to_its_bound_and_half_of_it_is_chance():
    retry = Retry(retries=5, backoff_s=0.5, max_backoff_s=3.0)
    assert [retry.pause_s(attempt, 0.0) for attempt in range(5)] == [0.25, 0.5, 1.0, 1.5, 1.5]
    assert [retry.pause_s(attempt, 1.0) for attempt in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert retry.pause_s(10_000, 1.0) == 3.0


def test_what_the_hub_asks_for_is_the_least():
    assert Retry(backoff_s=0.5).pause_s(0, 0.5, asked_s=7.0) == 7.125
    assert Retry(backoff_s=0.5).pause_s(3, 0.0, asked_s=1.0) == 2.0


def test_no_retry():
    assert NO_RETRY.retries == 0
