"""How a frame gets to the end of the log, off the kernel's thread. One frame is on its way at a time.

    WorkerWriter   a job of Python on the log's thread: for every log and disk
    NativeWriter   the log's thread writes and syncs without the interpreter's lock, where that is all there is to do

What is rare stays Python's, and is there once: a new segment, room that has to be allocated, what a failure leaves.
"""
from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from gatehouse.kernel.log.log import Log, LogFailed, Place, Written
from gatehouse.kernel.log.segments import ENVELOPE_BYTES, FRAME_MAGIC, SegmentLog
from gatehouse.kernel.ports import Worker

if TYPE_CHECKING:
    from gatehouse.kernel.log.native_writer import Jobs


class WorkerWriter:
    def __init__(self, worker: Worker, log: Log) -> None:
        self._worker = worker
        self._log = log

    def write(self, head: bytes, body: bytes, sync: bool, done: Written) -> None:
        self._worker.submit(partial(self._write, head, body, sync), done)

    def _write(self, head: bytes, body: bytes, sync: bool) -> Place:
        """On the log's thread."""
        position = self._log.append(head, body)
        if sync:
            self._log.sync()
        return position, self._log.end()


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
