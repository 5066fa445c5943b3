"""A kernel alone on a real disk, for measurements: event loop, threads, log and index as the hub has them."""
from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from gatehouse.gateways.runtime import Completions, HubLoop, ThreadWorker
from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.kernel import Kernel
from gatehouse.kernel.log.segments import RealDisk, SegmentLog
from gatehouse.kernel.message import Stored
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.store import RocksStore
from gatehouse.log_thread import begin_log_thread
from gatehouse.serve import GC_THRESHOLDS, SWITCH_INTERVAL_S, loop_factory


class KernelRig:
    """One kernel over a folder, whose clock is so much ahead; `close` it."""

    def __init__(self, folder: Path, ahead_ms: int = 0) -> None:
        loop = asyncio.get_running_loop()
        completions, clock = Completions(loop), HubLoop(loop, lambda: time.time_ns() + ahead_ms * 1_000_000)
        self._log, self._store = SegmentLog(RealDisk(folder)), RocksStore(folder / "index")
        log_worker, frame_writer = begin_log_thread(clock, completions, self._log)
        reader_worker, checkpoint_worker, validation_worker = [
            ThreadWorker(name, completions) for name in ("reader", "checkpoint", "validation")]
        self._workers = log_worker, reader_worker, checkpoint_worker, validation_worker
        self.kernel = Kernel(loop=clock, log_worker=log_worker, reader_worker=reader_worker,
                             checkpoint_worker=checkpoint_worker, validation_worker=validation_worker,
                             log=self._log, store=self._store, routes=Routes(), settings=KernelSettings(),
                             fatal=sys.exit, on_damage=print, on_error=print, frame_writer=frame_writer)
        self.kernel.open()

    async def close(self) -> None:
        closed = asyncio.Event()
        self.kernel.close(closed.set)
        await closed.wait()
        for worker in self._workers:
            worker.close()
        self._log.close()
        self._store.close()


class Answered:
    """An owner that counts what is stored; `wait` for so many answers."""

    def __init__(self) -> None:
        self.answers = 0
        self.sent = 0                  # what the measurement has asked for, where it counts that here
        self._wanted = 0
        self._reached = asyncio.Event()

    def on_stored(self, stored: list[Stored]) -> None:
        assert all(one.error is None for one in stored), stored[0].error
        self.answers += len(stored)
        if self.answers >= self._wanted:
            self._reached.set()

    async def wait(self, answers: int) -> None:
        self._wanted = answers
        if self.answers < answers:
            self._reached.clear()
            await self._reached.wait()


def run_on_kernel(measure: Callable[[argparse.Namespace, KernelRig], Coroutine[Any, Any, None]],
                  options: argparse.Namespace) -> None:
    """Run a measurement as the hub would run: its loop, its garbage collection, its switch interval."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)

    async def with_kernel(folder: Path) -> None:
        rig = KernelRig(folder)
        await measure(options, rig)
        await rig.close()

    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-", dir=".") as folder, \
            asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(with_kernel(Path(folder)))
