"""A copying stream with its driver, its workers and its hub killed: every row is there once.

Counted are rows and their sum, never distinct rows: a row that is there twice is as wrong as one that is missing.
"""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from tests.running_hub import ROOT, RunningHub, free_port
from tests.spark.copying import start_copy
from tests.spark.door import HttpDoor

ROWS = 8_000
LINES_BEFORE_KILL = 1
DEADLINE_S = 100
DAEMON = ["pyspark.daemon", "pyspark.worker"]


class Crashing:
    """A hub on a fixed port that can be killed and started again on what it stored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.door = HttpDoor(self.port)
        self.start()

    def start(self) -> None:
        config = f'[gateways.http]\nlisten = ["127.0.0.1:{self.port}"]\n'
        self.hub = RunningHub(self.folder, config)
        self.hub.wait_ready()


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[Crashing]:
    """With rows in topic `plant`."""
    running = Crashing(tmp_path)
    try:
        running.door.publish("plant", ROWS)
        yield running
    finally:
        running.hub.kill()


def check_copy(door: HttpDoor) -> None:
    values = door.values("copy")
    assert (len(values), sum(values)) == (ROWS, ROWS * (ROWS - 1) // 2)


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


def run_driver(crashing: Crashing, kill_after: int | None) -> int:
    """Its exit code; it is killed with all that it started, where told to, after some micro-batches."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (crashing.folder / "driver.log").open("ab") as log:
        driver = subprocess.Popen([sys.executable, "-m", "tests.spark.copying", crashing.door.url,
                                   str(crashing.folder / "checkpoint")], cwd=ROOT, env=environment, stderr=log,
                                  stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert driver.stdout is not None
        lines = 0
        for _ in driver.stdout:
            lines += 1
            if kill_after is not None and lines >= kill_after:
                os.killpg(driver.pid, signal.SIGKILL)
                break
        driver.stdout.close()
        return driver.wait(DEADLINE_S)


@pytest.mark.timeout(300)        # two Sparks are started, one after the other
def test_the_driver_is_killed_in_mid_batch(crashing: Crashing) -> None:
    assert run_driver(crashing, LINES_BEFORE_KILL) == -signal.SIGKILL
    assert 0 < len(crashing.door.values("copy")) < ROWS
    assert run_driver(crashing, None) == 0
    check_copy(crashing.door)


def test_python_workers_are_killed(crashing: Crashing, spark: SparkSession) -> None:
    killed: set[int] = set()
    query = start_copy(spark, crashing.door.url, str(crashing.folder / "checkpoint"), ROWS)
    deadline = time.monotonic() + DEADLINE_S
    while query.isActive and len(killed) < 2 and time.monotonic() < deadline:
        if crashing.door.ask("GET", "/v1/topics/copy")[0] == 200:        # the tasks have begun to write
            for worker in workers()[:1]:
                worker.kill()
                killed.add(worker.pid)
                time.sleep(1.0)          # a task has three tries: do not take them from one and the same
        else:
            time.sleep(0.01)
    query.awaitTermination(DEADLINE_S)
    assert killed
    assert query.exception() is None
    check_copy(crashing.door)


def test_the_hub_is_killed_and_started_again(crashing: Crashing, spark: SparkSession) -> None:
    query = start_copy(spark, crashing.door.url, str(crashing.folder / "checkpoint"))
    crashes = 0

    def crash() -> None:
        nonlocal crashes
        deadline = time.monotonic() + DEADLINE_S
        seen = -1
        while query.isActive and crashes < 2 and time.monotonic() < deadline:
            progress = query.lastProgress
            if progress is not None and progress.batchId > seen:
                seen = progress.batchId
                crashing.hub.kill()
                crashing.start()
                crashes += 1
            time.sleep(0.01)

    thread = threading.Thread(target=crash)
    thread.start()
    query.awaitTermination(DEADLINE_S)
    thread.join(DEADLINE_S)
    assert crashes == 2
    assert query.exception() is None
    check_copy(crashing.door)
