"""The files that were read are forgotten once no test of the house follows: thousands of trees slow each collection of
garbage."""
from __future__ import annotations

import pytest

from tests.house.parsed import tree_of
from tests.house.test_style import sources


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or not nextitem.nodeid.startswith("tests/house/"):
        tree_of.cache_clear()
        sources.cache_clear()
