"""A copying stream with its driver, its workers and its hub killed in the middle of a micro-batch: every row is there
once.

Counted are rows and their sum, never distinct rows: a row that is there twice is as wrong as one that is missing.
"""
from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.running_hub import ROOT, RunningHub, free_port
from tests.spark.copying import ROWS_PER_BATCH, start_copy
from tests.spark.door import HttpDoor
from tests.spark.gate import Gate

ROWS = 2 * ROWS_PER_BATCH
TASKS = 2
DEADLINE_S = 400
DAEMON = ["pyspark.daemon", "pyspark.worker"]


class Crashing:
    """A hub on a fixed port that can be killed and started again on what it stored, and a gate before it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = str(folder / "checkpoint")
        self._port = free_port()
        self.door = HttpDoor(self._port)
        self.gate = Gate(self._port)
        self.start()

    def start(self) -> None:
        config = f'[gateways.http]\nlisten = ["127.0.0.1:{self._port}"]\n'
        self.hub = RunningHub(self.folder, config)
        self.hub.wait_ready()

    def copied(self) -> int:
        """Rows that the hub has acknowledged so far, to whomever."""
        status, answer = self.door.ask("GET", "/v1/topics/copy")
        return 0 if status == 404 else sum(one["high_watermark"] for one in answer["bounds"])

    def copy_until(self, rows: int) -> None:
        """Let writes through until more rows than these are there."""
        while self.copied() <= rows:
            self.gate.let_one()


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[Crashing]:
    """With rows in topic `plant`."""
    running = Crashing(tmp_path)
    try:
        running.door.publish("plant", ROWS)
        yield running
    finally:
        running.gate.close()
        running.hub.kill()


def check_copy(door: HttpDoor) -> None:
    values = door.values("copy")
    assert (len(values), sum(values)) == (ROWS, ROWS * (ROWS - 1) // 2)


def check_end(query: StreamingQuery, door: HttpDoor) -> None:
    assert query.awaitTermination(DEADLINE_S)
    check_copy(door)


def workers() -> list[psutil.Process]:
    """The Python processes of this process's Spark that run tasks: children of its Python daemon for workers.

    Those that plan are children of other daemons. Spark does not try them again.
    """
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            parent = child.parent()
            if parent is not None and all(one.cmdline()[-2:] == DAEMON for one in (child, parent)):
                found.append(child)
        except psutil.NoSuchProcess:
            continue                  # it ended while we looked
    return found


@contextmanager
def driver(crashing: Crashing) -> Iterator[subprocess.Popen[bytes]]:
    """A driver that copies; killed at the end with all that it started."""
    command = [sys.executable, "-m", "tests.spark.copying", crashing.gate.url, crashing.checkpoint]
    with (crashing.folder / "driver.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=dict(os.environ), stdout=log,
                                   stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.timeout(900)
def test_the_driver_is_killed_in_mid_batch(crashing: Crashing, spark: SparkSession) -> None:
    with driver(crashing):
        crashing.copy_until(ROWS_PER_BATCH)
    crashing.gate.drop_held()
    assert ROWS_PER_BATCH < crashing.copied() < ROWS
    crashing.gate.open()
    check_end(start_copy(spark, crashing.gate.url, crashing.checkpoint), crashing.door)


@pytest.mark.timeout(900)
def test_python_workers_are_killed(crashing: Crashing, spark: SparkSession) -> None:
    query = start_copy(spark, crashing.gate.url, crashing.checkpoint, ROWS)
    crashing.gate.let_one()
    crashing.gate.wait_held(TASKS)
    killed = workers()
    assert len(killed) >= TASKS
    for worker in killed:
        worker.kill()
    crashing.gate.drop_held()
    crashing.gate.open()
    check_end(query, crashing.door)


@pytest.mark.timeout(900)
def test_the_hub_is_killed_and_started_again(crashing: Crashing, spark: SparkSession) -> None:
    """Each time a task has not heard that what it wrote is stored, and writes it again to the hub that comes after."""
    query = start_copy(spark, crashing.gate.url, crashing.checkpoint)
    for rows in (0, ROWS_PER_BATCH):
        crashing.copy_until(rows)
        crashing.gate.let_one(answer_lost=True)
        crashing.hub.kill()
        crashing.start()
    crashing.gate.open()
    check_end(query, crashing.door)
