"""One Spark session for all tests of a test process, and one hub for all tests of a file."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.running_hub import RunningHub, running_hub
from tests.spark.door import HttpDoor
from tests.spark.session import new_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session whose tasks are tried up to three times, two at a time."""
    session = new_session("local[2,3]")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with the HTTP, Kafka and MQTT doors, which must have nothing to be ashamed of in its log."""
    with running_hub(tmp_path_factory.mktemp("hub"), "http", "kafka", "mqtt") as running:
        yield running
        code, said = running.stop()
        assert code == 0
        assert "Traceback" not in said, said


@pytest.fixture
def door(hub: RunningHub) -> HttpDoor:
    """Requests to that hub, which has no topics yet."""
    door = HttpDoor(hub.port("http"))
    door.delete_topics()
    return door


class Reading:
    """Short ways to say what is read from a hub."""

    def __init__(self, session: SparkSession, door: HttpDoor) -> None:
        self.session = session
        self.door = door

    def batch(self, **options: Any) -> DataFrame:
        """A batch; without a subscription, of `plant`."""
        return self._loaded(self.session.read, options)

    def stream(self, **options: Any) -> DataFrame:
        """A stream from the beginning, unless told otherwise."""
        return self._loaded(self.session.readStream, {"startingOffsets": "earliest", **options})

    def _loaded(self, reader: Any, options: dict[str, Any]) -> DataFrame:
        if not options.keys() & {"subscribe", "subscribePattern", "assign", "filter"}:
            options = {**options, "subscribe": "plant"}
        loaded: DataFrame = reader.format("gatehouse").options(url=self.door.url, **options).load()
        return loaded


@pytest.fixture
def reading(spark: SparkSession, door: HttpDoor) -> Reading:
    """What is read from the test's hub."""
    return Reading(spark, door)
