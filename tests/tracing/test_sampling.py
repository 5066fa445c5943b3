"""Which messages are looked at, however they come."""
from __future__ import annotations

import pytest

from gatehouse.tracing.sampling import Sampling


def picked(sampling: Sampling, burst: int, bursts: int) -> list[int]:
    """The numbers of messages that are looked at, of so many bursts."""
    at, before, found = sampling.gap(), 0, []
    for _ in range(bursts):
        if at < burst:
            picks, at = sampling.picks(at, burst)
            found += [before + index for pick in picks for index in pick]
        else:
            at -= burst
        before += burst
    return found


@pytest.mark.parametrize("rate", [0.5, 0.1, 0.01, 0.003])
@pytest.mark.parametrize("burst", [1, 7, 100, 10_000])
def test_as_many_are_looked_at_as_the_rate_says_however_they_come(rate: float, burst: int) -> None:
    found = picked(Sampling(rate), burst, 400_000 // burst)
    assert found == sorted(set(found))
    assert len(found) / 400_000 == pytest.approx(rate, rel=0.15)


def test_no_pattern_is_looked_at_always_or_never() -> None:
    found = picked(Sampling(0.01), 1_000, 1_000)
    of_each = [sum(1 for number in found if number % 100 == rest) for rest in range(100)]
    assert max(of_each) < len(found) / 10 and sum(count > 0 for count in of_each) > 90


def test_all_and_none() -> None:
    assert picked(Sampling(1.0), 10, 3) == list(range(30))
    assert picked(Sampling(0.0), 10, 3) == []
    assert Sampling(1.0).picks(0, 1_000) == ([range(1_000)], 0)
