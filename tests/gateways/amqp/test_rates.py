"""How fast counts grow, from one look to the next."""
from __future__ import annotations

from gatehouse.gateways.amqp.broker import COUNTS_MAX, SAMPLE_MS, Rates


def test_a_rate_is_since_the_look_before() -> None:
    rates = Rates()
    assert rates.of("q", 100, 1_000) == 0.0
    assert rates.of("q", 200, 2_000) == 100.0
    assert rates.of("q", 600, 1_000 + SAMPLE_MS) == 100.0
    assert rates.of("q", 600, 1_000 + 2 * SAMPLE_MS) == 0.0


def test_a_count_that_begins_anew_has_no_rate() -> None:
    rates = Rates()
    rates.of("q", 100, 1_000)
    assert rates.of("q", 5, 9_000) == 0.0 and rates.of("q", 5, 9_000) == 0.0


def test_only_so_many_are_remembered() -> None:
    rates = Rates()
    for number in range(COUNTS_MAX + 10):
        rates.of(number, 1, 1_000)
    assert len(rates._samples) == 10
