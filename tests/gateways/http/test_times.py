"""Times and durations as people write them."""
from __future__ import annotations

import pytest

from gateways.http.times import parse_seconds, parse_time_ms


@pytest.mark.parametrize(("text", "time_ms"), [
    ("0", 0), ("1700000000000", 1_700_000_000_000),
    ("1970-01-01T00:00:00Z", 0), ("2023-11-14T22:13:20Z", 1_700_000_000_000),
    ("2023-11-15T00:13:20+02:00", 1_700_000_000_000), ("2023-11-14t22:13:20.123456789z", 1_700_000_000_123),
    ("2023-11-14 22:13:20.5Z", 1_700_000_000_500), ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
])
def test_times(text: str, time_ms: int) -> None:
    assert parse_time_ms(text) == time_ms


@pytest.mark.parametrize("text", ["", "now", "-1", "2023-11-14", "2023-11-14T22:13:20", "2023-13-14T22:13:20Z", "1e3",
                                  "20231114T221320Z", "1969-12-31T23:59:59Z", "253402300800000", "٣", "2023-W46-2"])
def test_no_times(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_time_ms(text)


def test_seconds() -> None:
    assert parse_seconds("0", 10) == 0
    assert parse_seconds("1.5", 10) == 1.5
    for text in ("", "-1", "11", "1e1", "inf", "nan", "1,5"):
        with pytest.raises(ValueError, match="seconds"):
            parse_seconds(text, 10)
