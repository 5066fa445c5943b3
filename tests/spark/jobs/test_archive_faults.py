"""The archive while everything around it is killed: driver, Python workers, hub. Every row is counted, never distinct
ones: what the hub acknowledged is in the table once.
"""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from gatehouse.spark.jobs import delta
from gatehouse.spark.jobs.archive import Archive
from gatehouse.spark.jobs.settings import ArchiveSettings
from gatehouse_client.errors import HubError
from gatehouse_client.message import Stored
from gatehouse_client.retry import NO_RETRY
from gatehouse_client.sync import SyncClient
from tests.running_hub import COMMAND_LINE, ROOT, RunningHub, free_port
from tests.spark.session import WORKERS

DEADLINE_S = 400
MESSAGES = 500
QUICK_START = WORKERS | {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""A job that is killed after some seconds never earns back what an optimising compiler costs."""

PAUSE_S = 0.3
TASK_MODULES = ("pyspark.daemon pyspark.worker", "pyspark.daemon pyspark.sql.worker.write_into_data_source")
"""What Spark starts for tasks: one reads from the source, the other writes files."""


class Writer:
    """Publishes numbered messages, each batch until it is acknowledged, the same however often."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        with SyncClient(self._url, retry=NO_RETRY) as client:
            while not self._stopped.wait(PAUSE_S):
                first = self.acknowledged
                batch = [client.message(f"plant/line{number % 7}", str(number))
                         for number in range(first, first + MESSAGES)]
                try:
                    results = client.publish_many(batch, idempotency_key=f"first-{first}")
                except HubError:
                    continue    # the hub is down: this batch again, under its key
                assert all(isinstance(result, Stored) for result in results)
                self.acknowledged += MESSAGES


class RunningArchive:
    """`gatehouse spark archive` in a process group of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self._log = (folder.parent / "archive.log").open("a")
        options = ["--url", url, "--topics", "plant", "--to", str(folder), "--max-rows", "3000", "--trigger-s", "0",
                   "--master", "local[2,3]", "--compact-files", "4"]
        self.process = subprocess.Popen([sys.executable, "-c", COMMAND_LINE, "spark", "archive", *options], cwd=ROOT,
                                        stdout=self._log, stderr=self._log, start_new_session=True,
                                        env=os.environ | QUICK_START)

    def kill(self) -> None:
        """The driver, its JVM and its workers at once, as when a machine is lost."""
        family = [self.process.pid, *(child.pid for child in psutil.Process(self.process.pid).children(recursive=True))]
        for member in family:
            signal_if_there(member)
        self.process.wait(DEADLINE_S)
        self._log.close()

    def kill_workers(self) -> int:
        """The processes that run our Python in tasks; how many there were."""
        workers = [child for child in psutil.Process(self.process.pid).children(recursive=True)
                   if command_of(child).endswith(TASK_MODULES)]
        for worker in workers:
            signal_if_there(worker.pid)
        return len(workers)


def command_of(process: psutil.Process) -> str:
    """Its command line; empty where it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def signal_if_there(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return    # its parent's death was its own


def wait_until(condition: Callable[[], bool], archive: RunningArchive | None = None) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        assert archive is None or archive.process.poll() is None, "the archive ended"
        time.sleep(0.02)


def version(folder: Path) -> int:
    table = delta.open_table(folder)
    return -1 if table is None else table.version()


@pytest.mark.timeout(1800)
def test_what_was_acknowledged_is_in_the_table_once(spark: SparkSession, tmp_path: Path):
    folder = tmp_path / "archive"
    config = f'[gateways.http]\nlisten = ["127.0.0.1:{free_port()}"]\n'
    hub = RunningHub(tmp_path, config)
    hub.wait_ready()
    url = f"http://127.0.0.1:{hub.port('http')}"
    archive = RunningArchive(url, folder)
    try:
        with Writer(url) as writer:
            wait_until(lambda: version(folder) >= 1, archive)      # 0 made the table
            archive.kill()
            before = version(folder)
            archive = RunningArchive(url, folder)
            wait_until(lambda: version(folder) > before, archive)
            wait_until(lambda: archive.kill_workers() > 0, archive)
            before = version(folder)
            wait_until(lambda: version(folder) > before, archive)
            hub.kill()
            hub = RunningHub(tmp_path, config)
            hub.wait_ready()
            before = version(folder)
            wait_until(lambda: version(folder) > before + 1, archive)
        archive.process.send_signal(signal.SIGTERM)
        assert archive.process.wait(DEADLINE_S) == 0
        settings = ArchiveSettings(url=url, topics=("plant",), to=str(folder))
        assert Archive(settings).start(spark, once=True).awaitTermination(DEADLINE_S)
    finally:
        hub.kill()
        if archive.process.poll() is None:
            archive.kill()
    check_once(folder, writer.acknowledged)


def check_once(folder: Path, acknowledged: int) -> None:
    """Each acknowledged number once; those of the batch in flight when the writer stopped once or not at all."""
    table = DeltaTable(str(folder)).to_pyarrow_table(columns=["partition", "offset", "value"])
    found = Counter(int(value) for value in table.column("value").to_pylist())
    assert acknowledged > 0
    assert set(found) >= set(range(acknowledged))
    assert set(found) <= set(range(acknowledged + MESSAGES))
    assert set(found.values()) == {1}
    places = Counter(zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True))
    assert set(places.values()) == {1}
