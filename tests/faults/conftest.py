"""Hubs for one test each, forked from one nursery: loading everything takes longer than most of these tests."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.nursery import ForkedHub, Nursery, shared_nursery
from tests.running_hub import DOORS, config_of

Start = Callable[..., ForkedHub]


@pytest.fixture(scope="session")
def nursery() -> Nursery:
    return shared_nursery()


@pytest.fixture
def start(nursery: Nursery, tmp_path: Path) -> Iterator[Start]:
    """Start a hub on the test's folder and wait until it is ready; `orders` as in `sabotage`, `last_door` are
    settings of the last of its doors, `hub` some of the hub itself."""
    started: list[ForkedHub] = []

    def start(kernel: str = "", orders: dict[str, Any] | None = None, doors: tuple[str, ...] = DOORS,
              last_door: str = "", hub: str = "") -> ForkedHub:
        config = (f"[hub]\n{hub}" if hub else "") + config_of(doors, kernel) + last_door
        forked = nursery.start(tmp_path, config, orders)
        started.append(forked)
        assert forked.wait_ready(), forked.log
        return forked

    yield start
    for hub in started:
        hub.kill()
        assert "Traceback" not in hub.log, hub.log
