"""The thread that writes the log: natively where the compiled wheel runs, else as any other worker.

`LogThread` is `kernel.ports.Worker`, and the thread that `NativeWriter` hands frames to. Jobs of Python and frames are
one line of jobs, done one after the other; whoever handed them in is told in the same order, by one wake-up of the loop
for a burst of them.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.log.frame_writer import NativeWriter, WorkerWriter
from gatehouse.kernel.log.log import FrameWriter
from gatehouse.kernel.log.segments import SegmentLog
from gatehouse.runtime import Completions, HubLoop, T, ThreadWorker

if TYPE_CHECKING:
    from gatehouse.kernel.log.native_writer import Jobs

NativeJobs: type[Jobs] | None = None
"""None: the plain files."""
try:
    from gatehouse.kernel.log import native_writer
    NativeJobs = native_writer.Jobs
except ImportError:
    pass

NAME: Final = "log"


class LogThread:
    """See above; `loop` is not running on another thread."""

    def __init__(self, loop: HubLoop, jobs: Jobs) -> None:
        self._loop = loop
        self._jobs = jobs
        # A daemon: a job stuck on a dead disk cannot keep a failing hub alive. `close` waits for the normal end.
        self._writing = threading.Thread(target=self._run, name=f"gatehouse-{NAME}", daemon=True)
        loop.aio.add_reader(jobs.fileno(), self._ended)
        self._writing.start()

    def submit(self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        self._jobs.submit(job, done)

    def close(self, abandon: bool = False) -> None:
        """Do what has been handed in, unless it is abandoned, then end the thread; returns when it has ended."""
        if abandon:
            self._jobs.abandon()
        self._jobs.close()
        self._writing.join()
        if not self._loop.aio.is_closed():
            self._loop.aio.remove_reader(self._jobs.fileno())
            self._loop.aio.call_soon(self._ended)

    def _run(self) -> None:
        jobs = self._jobs
        while (taken := jobs.take()) is not None:
            job, done = taken
            try:
                result = job()
            except BaseException as error:       # even SystemExit belongs to whoever submitted the job
                jobs.finish(done, None, error)
            else:
                jobs.finish(done, result, None)
            del taken, job, done                 # an idle thread keeps nothing alive

    def _ended(self) -> None:
        began_s = time.monotonic()
        for done, result, error in self._jobs.ended():
            try:
                done(result, error)
            except Exception as fault:
                self._loop.aio.call_exception_handler({"message": "a completion failed", "exception": fault})
        now_s = time.monotonic()
        self._loop.turns.note(now_s - began_s, now_s)


LogWorker = ThreadWorker | LogThread


def begin_log_thread(loop: HubLoop, completions: Completions, log: SegmentLog) -> tuple[LogWorker, FrameWriter]:
    """The log's thread, and what hands frames to it."""
    if NativeJobs is None:
        worker = ThreadWorker(NAME, completions)
        return worker, WorkerWriter(worker, log)
    jobs = NativeJobs()
    thread = LogThread(loop, jobs)
    return thread, NativeWriter(jobs, thread, log)
