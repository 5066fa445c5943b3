"""A real hub with every door, for stock clients."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running_hub import DOORS, RunningHub, running_hub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    """A hub of this test's own, which must have nothing to be ashamed of in its log."""
    with running_hub(tmp_path, *DOORS) as running:
        yield running
        code, said = running.stop()
        assert code == 0
        assert "Traceback" not in said, said
