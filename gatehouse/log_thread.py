"""The thread that writes the log: natively where the compiled wheel runs, else as any other worker.

`LogThread` is `kernel.ports.Worker`, and the thread that `NativeWriter` hands frames to: it writes and syncs without
the interpreter's lock, where that is all there is to do. What is rare stays Python's, and is there once: a new segment,
room that has to be allocated, what a failure leaves. Jobs of Python and frames are one line of jobs, done one after the
other; whoever handed them in is told in the same order, by one wake-up of the loop for a burst of them.
"""
from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.runtime import Completions, HubLoop, T, ThreadWorker
from gatehouse.kernel.log.log import FrameWriter, LogFailed, Place, Written
from gatehouse.kernel.log.segments import ENVELOPE_BYTES, FRAME_MAGIC, SegmentLog
from gatehouse.kernel.ports import Worker
from gatehouse.kernel.write.committer import WorkerWriter

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
    """The thread that writes the log, natively: jobs of Python and frames in one line. `loop` is not running on another
    thread."""

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


class NativeWriter:  # decision 222
    """`jobs` are those of `worker`, the log's thread.

    Where the log ends is for the log's thread to know, as its jobs of Python move it. While none of them waits or runs,
    it may be asked here.
    """

    def __init__(self, jobs: Jobs, worker: Worker, log: SegmentLog) -> None:
        self._jobs = jobs
        self._worker = worker
        self._chain = log.main_files
        self._otherwise = WorkerWriter(worker, log)

    def write(self, head: bytes, body: bytes, sync: bool, done: Written) -> None:
        frame_bytes = ENVELOPE_BYTES + len(head) + len(body)
        if not self._jobs.busy():
            room = self._chain.room(frame_bytes)
            if room is not None:
                descriptor, offset, place = room
                self._jobs.write(descriptor, offset, place, FRAME_MAGIC, head, body, sync, partial(
                    self._written, frame_bytes, (place + ENVELOPE_BYTES + len(head), place + frame_bytes), sync, done))
                return
        self._otherwise.write(head, body, sync, done)

    def _written(self, frame_bytes: int, place: Place, sync: bool, done: Written, failed: int, _: None) -> None:
        """`failed`: an errno; below zero of the sync."""
        if failed > 0:
            self._worker.submit(partial(self._chain.cut_back, OSError(failed, os.strerror(failed))), done)
        elif failed < 0:
            done(None, LogFailed(f"fdatasync failed: {OSError(-failed, os.strerror(-failed))}"))
        else:
            self._chain.note_written(frame_bytes, sync)
            done(place, None)


LogWorker = ThreadWorker | LogThread


def begin_log_thread(loop: HubLoop, completions: Completions, log: SegmentLog) -> tuple[LogWorker, FrameWriter]:
    """The log's thread, and what hands frames to it."""
    if NativeJobs is None:
        worker = ThreadWorker(NAME, completions)
        return worker, WorkerWriter(worker, log)
    jobs = NativeJobs()
    thread = LogThread(loop, jobs)
    return thread, NativeWriter(jobs, thread, log)
