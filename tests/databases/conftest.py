"""One PostgreSQL server for all of these tests."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.databases.cluster import Cluster, running_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def database(cluster: Cluster) -> str:
    """The URL of an empty database."""
    return cluster.database()
