"""A hub for a module's jobs, and one Spark session for all modules of a worker."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gatehouse.client import HubClient
from spark.jobs.session import make_session
from tests.running_hub import RunningHub, running_hub


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The session; it ends with the process, as other tests may use the same."""
    return make_session("tests", "local[2,3]")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub that this module's tests share, each with topics of its own."""
    with running_hub(tmp_path_factory.mktemp("hub"), "http", "kafka", kernel='fsync = "never"') as running:
        yield running


@pytest.fixture
def url(hub: RunningHub) -> str:
    """Its HTTP door."""
    return f"http://127.0.0.1:{hub.port('http')}"


@pytest.fixture
def client(url: str) -> Iterator[HubClient]:
    """A connection to it."""
    with HubClient(url) as open_client:
        yield open_client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a job keeps its table and its checkpoint."""
    return tmp_path / "archive"
