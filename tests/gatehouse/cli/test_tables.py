"""Tables for people."""
from __future__ import annotations

from gatehouse.cli.tables import cell, pairs, table


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
