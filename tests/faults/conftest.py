"""One nursery for all tests of a worker: loading everything takes longer than most of these tests."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()
