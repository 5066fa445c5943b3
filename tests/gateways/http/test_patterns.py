"""The patterns of the document are true: what matches is read, what is refused for its characters does not match."""
from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.http.declaring import (
    ADDRESS,
    CURSOR_PATTERN,
    GROUP_NAME,
    PRINTABLE,
    REPEAT_PATTERN,
    SELECTOR,
    TOPIC_NAME,
)
from gatehouse.gateways.http.page import Cursor, encode_cursor, encode_name
from gatehouse.kernel.addresses.address import check_address, is_topic_name
from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.errors import InvalidAddress, InvalidSchedule, InvalidSelector, Unroutable
from gatehouse.kernel.groups.group_settings import check_name
from gatehouse.kernel.scheduling.schedule import parse_schedule
from gatehouse.kernel.selectors.selector import parse_selector

SCHEDULES = ("every 10s", "every 1h30m", "every 1d", "R/PT10S", "R5/P1DT12H", "R/P2W", "*/5 8-18 * * MON-FRI", "@daily",
             "0 8 1,15 JAN-MAR *", "every 10s; until=2030-01-01T00:00:00Z", "every 10s ; count=5;until=1893456000000")


def fits(schema: dict[str, Any], text: str) -> bool:
    return re.search(schema["pattern"], text) is not None and len(text) >= schema.get("minLength", 0)


@pytest.mark.parametrize("text", SCHEDULES)
def test_what_is_a_schedule_fits(text: str) -> None:
    parse_schedule(text)
    assert re.search(REPEAT_PATTERN, text)


@pytest.mark.parametrize("text", ["", "every", "every s", "every 10", "hourly", "@never", "R/P1M", "R/PT", "* * * *",
                                  "every 10s; soon", "1 2 3 4 5 6", "\N{SNOWMAN} * * * *"])
def test_what_is_no_schedule_does_not(text: str) -> None:
    with pytest.raises(InvalidSchedule):
        parse_schedule(text)
    assert not re.search(REPEAT_PATTERN, text)


@given(st.from_regex(re.compile(REPEAT_PATTERN, re.ASCII), fullmatch=True).filter(lambda text: "\n" not in text))
def test_what_fits_reads_as_a_schedule(text: str) -> None:
    """But for numbers that are too large, too small or not in a calendar."""
    try:
        parse_schedule(text)
    except InvalidSchedule as error:
        assert "is not as" not in str(error) and "neither until" not in str(error), str(error)


@given(st.from_regex(re.compile(ADDRESS["pattern"]), fullmatch=True).filter(lambda text: "\n" not in text[:251]))
def test_what_fits_is_an_address(text: str) -> None:
    try:
        Routes().route(text)
    except Unroutable:
        assert not is_topic_name(text.partition("/")[0]) or text.startswith("unrouted")
    except InvalidAddress as error:
        assert "at most" in str(error) or "UTF-8" in str(error)


@given(st.text())
def test_what_no_address_holds_does_not_fit(text: str) -> None:
    try:
        check_address(text)
    except InvalidAddress:
        assert not fits(ADDRESS, text)


@given(st.text(), st.dictionaries(st.integers(0, 500), st.integers(0, 1 << 62), max_size=5))
def test_every_cursor_fits(name: str, positions: dict[int, int]) -> None:
    for cursor in (encode_name(name), encode_cursor(Cursor(b"u" * 16, None, 0, positions))):
        assert re.search(CURSOR_PATTERN, cursor)


@given(st.text(min_size=1, max_size=80))
def test_names(text: str) -> None:
    if fits(GROUP_NAME, text):
        check_name(text, "group")
    if text.isprintable():
        assert fits(PRINTABLE, text)
    if is_topic_name(text):
        assert fits(TOPIC_NAME, text)


@given(st.text(max_size=20))
def test_a_selector_that_is_read_fits(text: str) -> None:
    try:
        parse_selector(text)
    except InvalidSelector:
        return
    assert fits(SELECTOR, text)
