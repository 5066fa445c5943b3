"""Tables for people."""
from __future__ import annotations

from gatehouse.cli.tables import FIRST_MS, LAST_MS, cell, pairs, table, time_text


def test_columns_are_aligned_and_numbers_stand_to_the_right():
    assert table(["name", "partitions"],
                 [["plant", 4], ["a", 12]]) == "name   partitions\nplant           4\na              12"


def test_an_empty_table_is_its_heads():
    assert table(["name", "partitions"], []) == "name  partitions"


def test_a_cell_moves_no_cursor_and_is_short():
    assert cell("a\x1b[2Jb\nc") == "a\N{REPLACEMENT CHARACTER}[2Jb\N{REPLACEMENT CHARACTER}c"
    assert len(cell("x" * 500)) == 120
    assert (cell(None), cell(True), cell([1]), cell(1.5)) == ("-", "yes", "[1]", "1.5")


def test_pairs():
    assert pairs({"a": 1, "long": None}) == "a     1\nlong  -"


def test_times_that_no_calendar_has_are_told_as_they_are():
    assert [time_text(time_ms) for time_ms in (FIRST_MS, LAST_MS, FIRST_MS - 1, LAST_MS + 1)] == [
        "0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00", "-62135596800001 ms", "253402300800000 ms"]
