"""What the jobs' tests share: their hub's address, and a client of it."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gatehouse_client.sync import SyncClient
from tests.running_hub import RunningHub


@pytest.fixture
def url(hub: RunningHub) -> str:
    """The HTTP door of the module's hub; each test has topics of its own."""
    return f"http://127.0.0.1:{hub.port('http')}"


@pytest.fixture
def client(url: str) -> Iterator[SyncClient]:
    """A client of it."""
    with SyncClient(url) as open_client:
        yield open_client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a job keeps its table and its checkpoint."""
    return tmp_path / "archive"
