"""A real Celery application with workers of its own: nothing of it knows that the broker is no RabbitMQ."""
from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.interop.asking import ask
from tests.running_hub import ROOT, RunningHub, running_hub
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::celery.exceptions.DuplicateTaskNameWarning")   # it is loaded twice

WAIT_S = 120
APP = "tests.interop.celery_app"


class Workers:
    """Celery workers as processes of their own, and the application as a client sees it."""

    def __init__(self, hub: RunningHub, folder: Path, backend: str) -> None:
        os.environ["BROKER_URL"] = f"amqp://guest:guest@127.0.0.1:{hub.port('amqp')}//"
        os.environ["RESULT_BACKEND"] = backend
        self.app: ModuleType = importlib.reload(importlib.import_module(APP))
        self.hub = hub
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        name = f"worker{len(self._processes)}"
        log = (self._folder / f"{name}.log").open("wb")
        worker = subprocess.Popen([sys.executable, "-m", "celery", "-A", APP, "worker", "--concurrency", "2",
                                   "--hostname", f"{name}@%h", "--loglevel", "INFO"], stdout=log, stderr=log, cwd=ROOT,
                                  start_new_session=True)
        self._processes.append(worker)
        until(lambda: b"ready." in (self._folder / f"{name}.log").read_bytes())

    def kill(self) -> None:
        """The worker that was started first, with its children."""
        os.killpg(self._processes[0].pid, signal.SIGKILL)
        self._processes[0].wait()

    def end(self) -> None:
        for worker in self._processes:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


@pytest.fixture(scope="module", params=["rpc", "file"])
def workers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """One worker; results come by queues (`rpc`), or by files, which chords need."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "results").mkdir()
    with running_hub(folder, "amqp", "http") as hub:
        backend = "rpc://" if request.param == "rpc" else f"file://{folder / 'results'}"
        running = Workers(hub, folder, backend)
        try:
            running.start()
            yield running
        finally:
            running.end()


def result(of: Any) -> Any:
    return of.get(timeout=WAIT_S)


def test_tasks_groups_and_chains(workers: Workers) -> None:
    from celery import chain, group
    add = workers.app.add
    assert result(add.delay(2, 3)) == 5
    assert result(group(add.s(number, number) for number in range(20))()) == [2 * number for number in range(20)]
    assert result(chain(add.s(1, 2), add.s(10), add.s(100))()) == 113


def test_retries_come_by_native_delayed_delivery(workers: Workers) -> None:
    assert result(workers.app.third_time.delay()) == 2
    names = {queue["name"] for queue in ask(workers.hub, "GET", "/v1/queues")[1]["queues"]}
    assert {f"celery_delayed_{level}" for level in range(28)} <= names


@pytest.mark.parametrize("seconds", [1, 2, 3, 5])
def test_an_eta_over_several_levels_is_kept(workers: Workers, seconds: int) -> None:
    began_s = time.monotonic()
    assert result(workers.app.add.apply_async((1, 1), countdown=seconds)) == 2
    assert time.monotonic() - began_s >= seconds - 0.5


@pytest.mark.parametrize("workers", ["file"], indirect=True)          # Celery's rpc backend has no chords
def test_a_chord(workers: Workers) -> None:
    from celery import chord
    add, total = workers.app.add, workers.app.total
    assert result(chord([add.s(number, number) for number in range(10)], total.s())()) == 90


def test_what_a_killed_worker_was_doing_is_done_by_another(workers: Workers, tmp_path: Path) -> None:
    path = tmp_path / "noted"
    done = workers.app.noted.delay(str(path))
    until(path.exists)
    workers.kill()
    path.with_suffix(".go").touch()
    workers.start()
    result(done)
    assert path.read_text().splitlines() == ["begun", "begun", "done"]
