"""A real hub with every door, for stock clients."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.running_hub import RunningHub, config_of


@pytest.fixture
def hub(tmp_path) -> Iterator[RunningHub]:
    """A hub of this test's own."""
    running = RunningHub(tmp_path, config_of())
    try:
        running.wait_ready()
        yield running
        code, said = running.stop()
        assert code == 0
        assert "Traceback" not in said, said
    finally:
        running.kill()
