"""Reads that wait together are one job of the worker, within bounds; each has an answer of its own."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.kernel.index.reader import BATCH, BATCH_BYTES, UNDER_WAY, ColdReads
from gatehouse.kernel.world import FakeLoop, FakeWorker

SMALL = 100


class Disk:
    """Reads of so many bytes; a size below 0 cannot be read."""

    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.worker = FakeWorker(self.loop)
        self.reads = ColdReads(self.worker, self.read, lambda size: size)
        self.answers: list[Any] = []

    def read(self, size: int) -> int:
        if size < 0:
            raise OSError(f"{size}")
        return size

    def ask(self, *sizes: int) -> None:
        for size in sizes:
            self.reads.submit(size, lambda read, error: self.answers.append(read if error is None else str(error)))

    def run(self) -> int:
        """How many jobs it took."""
        jobs = 0
        while self.worker.step():
            jobs += 1
            while self.loop.step():
                pass
        return jobs


def test_who_finds_the_worker_idle_waits_for_nobody() -> None:
    disk = Disk()
    disk.ask(SMALL)
    assert len(disk.worker.jobs) == 1


def test_what_waits_goes_together() -> None:
    disk = Disk()
    disk.ask(*range(UNDER_WAY + 2 * BATCH))
    assert disk.run() == UNDER_WAY + 2
    assert disk.answers == [*range(UNDER_WAY + 2 * BATCH)]


def test_a_batch_ends_with_its_bytes_and_the_rest_is_read_next() -> None:
    disk = Disk()
    disk.ask(*[SMALL] * UNDER_WAY, BATCH_BYTES, BATCH_BYTES, SMALL)
    assert disk.run() == UNDER_WAY + 3
    assert sorted(disk.answers) == sorted([*[SMALL] * UNDER_WAY, BATCH_BYTES, BATCH_BYTES, SMALL])


def test_an_error_is_that_of_its_own_read() -> None:
    disk = Disk()
    disk.ask(*[SMALL] * UNDER_WAY, 1, -2, 3)
    disk.run()
    assert disk.answers == [*[SMALL] * UNDER_WAY, 1, "-2", 3]


def test_a_fault_of_who_is_answered_is_not_the_others() -> None:
    disk = Disk()
    disk.ask(*[SMALL] * UNDER_WAY)

    def fail(read: int | None, error: BaseException | None) -> None:
        raise ValueError("a fault of ours")

    disk.reads.submit(SMALL, fail)
    disk.ask(7)
    with pytest.raises(ValueError, match="of ours"):
        disk.run()
    assert disk.answers[-1] == 7
