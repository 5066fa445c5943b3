"""Whoever writes a frame leaves the same log, tells the same of a failure, and keeps the order of what it was given: a
job of Python on the log's thread, and natively where the compiled wheel runs."""
from __future__ import annotations

import asyncio
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from crc32c import crc32c

from gatehouse import log_thread
from gatehouse.gateways.runtime import Completions, HubLoop, ThreadWorker
from gatehouse.kernel.log.log import FrameWriter, LogFailed, LogFull, Place
from gatehouse.kernel.log.segments import AHEAD_BYTES, RealDisk, SegmentLog
from gatehouse.kernel.write.committer import WorkerWriter
from tests.running_hub import DEADLINE_S

WAYS = ["worker"] if log_thread.NativeJobs is None else ["worker", "native"]
SEGMENT_BYTES = 64 << 10


class Rig:
    """A log on a real disk, its thread, and a loop that runs while somebody waits."""

    def __init__(self, aio: asyncio.AbstractEventLoop, folder: Path, way: str, segment_bytes: int = SEGMENT_BYTES
                 ) -> None:
        self.aio = aio
        self.log = SegmentLog(RealDisk(folder), segment_bytes)
        assert list(self.log.recover(0, 0, lambda damage: None)) == []
        loop = HubLoop(aio)
        self.worker: log_thread.LogWorker
        self.writer: FrameWriter
        if way == "native":
            self.worker, self.writer = log_thread.begin_log_thread(loop, Completions(aio), self.log)
            assert not isinstance(self.worker, ThreadWorker), "it is there and is used"
        else:
            self.worker = ThreadWorker("log", Completions(aio))
            self.writer = WorkerWriter(self.worker, self.log)

    def wait(self, start: Callable[[Callable[[Any, BaseException | None], None]], None]) -> Any:
        """Run the loop until `start`'s callback has been told. Raises the error that it was told."""
        told = self.aio.create_future()

        def tell(result: Any, error: BaseException | None) -> None:
            if error is None:
                told.set_result(result)
            else:
                told.set_exception(error)

        self.aio.call_soon(start, tell)
        return self.aio.run_until_complete(asyncio.wait_for(told, DEADLINE_S))

    def write(self, head: bytes, body: bytes, sync: bool = True) -> Place:
        place: Place = self.wait(lambda tell: self.writer.write(head, body, sync, tell))
        return place

    def close(self) -> None:
        self.worker.close()
        self.log.close()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def aio(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    loop = request.param()
    yield loop
    loop.close()


@pytest.fixture(params=WAYS)
def rig(request: pytest.FixtureRequest, aio: asyncio.AbstractEventLoop, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(aio, tmp_path, request.param)
    yield rig
    rig.close()


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """This process writes no file beyond a size: to the log that is a full disk, after a part of a write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def frames_of(folder: Path) -> list[tuple[bytes, bytes]]:
    log = SegmentLog(RealDisk(folder), SEGMENT_BYTES)
    frames = list(log.recover(0, 0, lambda damage: pytest.fail(str(damage))))
    found = [(frame.head, *log.read([(frame.position, 0, frame.body_bytes)])) for frame in frames]
    log.close()
    return found


def test_both_ways_leave_the_same_log(aio: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    """Over new segments, room that is allocated, frames without a body, and some larger than a segment."""
    frames = [(b"head %d" % number + bytes(number % 7), os.urandom(size)) for number, size in enumerate(
        [0, 1, 7, 8, 9, 300, 30_000, 20_000, 20_000, 0, SEGMENT_BYTES + 5, 3, AHEAD_BYTES + 1, 100, 40_000] * 2)]
    left: list[dict[str, bytes]] = []
    for way in WAYS:
        folder = tmp_path / way
        rig = Rig(aio, folder, way)
        places = [rig.write(head, body, number % 3 != 0) for number, (head, body) in enumerate(frames)]
        assert [rig.log.read([(position, 0, 1 << 30)])[0][:len(body)] for (position, _), (_, body) in
                zip(places, frames, strict=True)] == [body for _, body in frames]
        assert all(before[1] <= after[0] for before, after in zip(places, places[1:], strict=False))
        assert places[-1][1] == rig.log.end()
        rig.close()
        left.append({file.name: file.read_bytes() for file in (folder / "log").iterdir()})
        assert frames_of(folder) == frames
    assert all(files == left[0] for files in left)


def test_what_is_handed_in_is_done_and_told_in_that_order(rig: Rig) -> None:
    told: list[Any] = []
    rig.write(b"first", b"")                         # there is room now

    def start(tell: Callable[[Any, BaseException | None], None]) -> None:
        rig.writer.write(b"head", b"body", True, lambda place, error: told.append(("frame", error)))
        rig.worker.submit(lambda: told.append("job"), lambda result, error: told.append(("job", error)))
        rig.worker.submit(rig.log.sync, lambda result, error: told.append(("sync", error)))
        rig.worker.submit(lambda: 5, tell)

    assert rig.wait(start) == 5
    assert [one for one in told if one != "job"] == [("frame", None), ("job", None), ("sync", None)]


def test_a_frame_waits_behind_jobs_of_python(rig: Rig) -> None:
    ran: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        assert go_on.wait(DEADLINE_S)
        ran.append("job")

    def start(tell: Callable[[Any, BaseException | None], None]) -> None:
        rig.worker.submit(job, lambda result, error: ran.append("job told"))
        assert begun.wait(DEADLINE_S)
        rig.writer.write(b"head", b"body", True, tell)
        go_on.set()

    place = rig.wait(start)
    assert ran == ["job", "job told"] and place[1] == rig.log.end()


def test_a_full_disk_leaves_the_log_as_it_was(rig: Rig, tmp_path: Path) -> None:
    rig.write(b"first", bytes(100))
    before = rig.log.end()
    (file,) = (tmp_path / "log").iterdir()
    with largest_file(before + 1_000), pytest.raises(LogFull):
        rig.write(b"refused", bytes(2_000))          # a part of it was written
    assert rig.log.end() == before == file.stat().st_size
    with largest_file(before + 1_000):
        rig.write(b"small", bytes(100))
    rig.write(b"large", bytes(2_000))
    rig.close()
    assert frames_of(tmp_path) == [(b"first", bytes(100)), (b"small", bytes(100)), (b"large", bytes(2_000))]


def test_a_disk_that_fails_is_no_full_one(rig: Rig) -> None:
    rig.write(b"first", b"")
    file: Any = rig.log.main_files._file
    kept, file._fd = file._fd, os.open(os.devnull, os.O_RDONLY)          # which takes no write
    try:
        with pytest.raises(LogFailed, match="the log cannot be written"):
            rig.write(b"lost", b"body")
    finally:
        os.close(file._fd)
        file._fd = kept


def test_a_failed_fdatasync_is_told_as_such(rig: Rig) -> None:
    rig.write(b"first", b"")
    file: Any = rig.log.main_files._file
    kept, file._fd = file._fd, os.open(os.devnull, os.O_WRONLY)          # which takes every write, and cannot be synced
    try:
        with pytest.raises(LogFailed, match=r"fdatasync failed: \[Errno \d+\] "):
            rig.write(b"lost", b"body")
    finally:
        os.close(file._fd)
        file._fd = kept


def test_what_was_not_synced_is_synced_later(rig: Rig) -> None:
    """The relaxed policies: `sync` on the log's thread still has something to do."""
    rig.write(b"first", b"", sync=False)
    rig.write(b"second", b"", sync=False)
    chain: Any = rig.log.main_files
    assert chain._dirty
    rig.wait(lambda tell: rig.worker.submit(rig.log.sync, tell))
    assert not chain._dirty
    rig.write(b"third", b"", sync=True)
    assert not chain._dirty


def test_close_writes_what_was_handed_in(rig: Rig, tmp_path: Path) -> None:
    rig.write(b"first", b"")
    rig.writer.write(b"second", b"body", True, lambda place, error: None)
    rig.worker.close()
    assert frames_of(tmp_path) == [(b"first", b""), (b"second", b"body")]


def test_what_is_abandoned_is_forgotten() -> None:
    if log_thread.NativeJobs is not None:
        jobs = log_thread.NativeJobs()
        jobs.submit(lambda: 1, lambda result, error: None)
        jobs.write(-1, 0, 0, b"GHF1", b"head", b"", True, lambda result, error: None)
        assert jobs.busy()
        jobs.abandon()
        jobs.close()
        assert jobs.take() is None and jobs.ended() == [] and not jobs.busy()


def test_a_completion_that_fails_is_reported_and_costs_the_next_nothing(rig: Rig) -> None:
    reported: list[str] = []
    rig.aio.set_exception_handler(lambda _loop, context: reported.append(str(context["exception"])))

    def broken(_result: Any, _error: BaseException | None) -> None:
        raise ValueError("ours")

    def start(tell: Callable[[Any, BaseException | None], None]) -> None:
        rig.worker.submit(lambda: None, broken)
        rig.writer.write(b"head", b"", True, tell)

    rig.wait(start)
    assert reported == ["ours"]


@pytest.mark.parametrize("error", [OSError("disk"), SystemExit(3)])
def test_a_jobs_error_goes_to_whoever_handed_it_in(rig: Rig, error: BaseException) -> None:
    seen: list[BaseException | None] = []

    def fail() -> None:
        raise error

    def start(tell: Callable[[Any, BaseException | None], None]) -> None:
        rig.worker.submit(fail, lambda result, fault: seen.append(fault))
        rig.worker.submit(lambda: None, tell)

    rig.wait(start)
    assert seen == [error]


def test_native_checksums_are_those_of_the_plain_files() -> None:
    if log_thread.NativeJobs is not None:
        from gatehouse.kernel.log import native_writer

        for size in (*range(40), 1_000, 65_537):
            data = os.urandom(size)
            for before in (0, 77, 0xFFFFFFFF):
                plain = crc32c(data, before)
                assert native_writer.crc32c(data, before) == plain
                assert native_writer.crc32c(data, before, True) == plain, "by tables, where there is no instruction"
