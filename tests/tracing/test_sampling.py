"""Which messages are looked at, however they come."""
from __future__ import annotations

from itertools import pairwise

import pytest

from gatehouse.tracing.sampling import Sampling


def picked(sampling: Sampling, burst: int, bursts: int, burst_ms: float = 1_000) -> list[int]:
    """The numbers of messages that are looked at, of so many bursts, one each `burst_ms`."""
    at, before, found = sampling.gap(), 0, []
    for number in range(bursts):
        if at < burst:
            picks, at = sampling.picks(at, burst, int(number * burst_ms))
            found += [before + index for pick in picks for index in pick]
        else:
            at -= burst
        before += burst
    return found


@pytest.mark.parametrize("rate", [0.1, 0.01, 0.003])
@pytest.mark.parametrize("burst", [1, 7, 100, 10_000])
@pytest.mark.parametrize("burst_ms", [5, 10_000])
def test_as_many_are_looked_at_as_the_rate_says_however_they_come(rate: float, burst: int, burst_ms: float) -> None:
    bursts = 300_000 // min(burst, 100)
    found = picked(Sampling(rate), burst, bursts, burst_ms)
    assert all(after > before for before, after in pairwise(found))
    assert len(found) / (burst * bursts) == pytest.approx(rate, rel=0.1)


def test_no_pattern_is_looked_at_always_or_never() -> None:
    found = picked(Sampling(0.01), 1_000, 1_000)
    of_each = [sum(1 for number in found if number % 100 == rest) for rest in range(100)]
    assert max(of_each) < len(found) / 10 and sum(count > 0 for count in of_each) > 90


def test_all_and_none() -> None:
    assert picked(Sampling(1.0), 10, 3) == list(range(30))
    assert picked(Sampling(0.0), 10, 3) == []
    assert Sampling(1.0).picks(0, 1_000, 0) == ([range(1_000)], 0)


def test_where_many_come_those_that_are_looked_at_lie_together() -> None:
    sampling = Sampling(0.01)
    found = picked(sampling, 1_000, 1_000, burst_ms=1)                       # a million messages in a second
    groups = 1 + sum(after != before + 1 for before, after in pairwise(found))
    assert sampling.is_together and groups < 250 and len(found) == pytest.approx(10_000, rel=0.15)
    sampling.calm()
    assert not sampling.is_together and max(sampling.gap() for _ in range(100)) < 200


def test_where_few_come_each_is_looked_at_alone() -> None:
    sampling = Sampling(0.01)
    found = picked(sampling, 1, 100_000, burst_ms=10)
    beside = sum(after == before + 1 for before, after in pairwise(found))
    assert not sampling.is_together and beside < len(found) / 20
