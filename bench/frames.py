"""What a small frame costs beside its sync: one message is appended when the one before is durable.

    python -m bench.frames [--n 5000] [--in-flight 1] [--size 100] [--on /dev/shm]

The kernel alone, on a real log, in the current folder or `--on` another disk; memory is one that takes no time. `bare`
is the same bytes written and synced by a thread that does nothing else, in the same run: what the disk itself takes of
the processor.
"""
from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import threading
import time
from array import array

from bench.kernel_rig import KernelRig, run_on_kernel
from gatehouse.kernel.message import Stored

ROUNDS = 5
FRAME_BYTES = 300           # of a frame with one message of 100 bytes, about


class Load:
    """So many messages in flight; the next follows when one is answered."""

    def __init__(self, rig: KernelRig, size: int) -> None:
        self.kernel = rig.kernel
        self.place = rig.kernel.place("load/k")
        self.value = bytes(size)
        self.left = self.pending = 0
        self.done = asyncio.Event()
        self.took_s = array("d")
        self.sent_s = 0.0

    async def run(self, count: int, in_flight: int) -> None:
        self.left = count
        self.done.clear()
        for _ in range(in_flight):
            self.send()
        await self.done.wait()

    def send(self) -> None:
        self.left -= 1
        self.pending += 1
        self.sent_s = time.perf_counter()
        self.kernel.append([(self.place, self.value, b"\0", 2, 0)], self, None)

    def on_stored(self, stored: list[Stored]) -> None:
        self.took_s.append(time.perf_counter() - self.sent_s)
        for one in stored:
            assert one.error is None, one.error
            self.pending -= 1
            if self.left:
                self.send()
        if not self.left and not self.pending:
            self.done.set()


def bare_us(count: int) -> tuple[float, float]:
    """Processor time and time of a write with its sync, in µs."""
    with tempfile.NamedTemporaryFile(prefix="gatehouse-bench-", dir=".") as file:
        os.posix_fallocate(file.fileno(), 0, count * FRAME_BYTES)
        took = array("d")
        used: list[float] = []

        def write() -> None:
            began = time.thread_time()
            for number in range(count):
                at = time.perf_counter()
                os.pwrite(file.fileno(), bytes(FRAME_BYTES), number * FRAME_BYTES)
                os.fdatasync(file.fileno())
                took.append(time.perf_counter() - at)
            used.append(time.thread_time() - began)

        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    return used[0] / count * 1e6, statistics.median(took) * 1e6


async def measure(options: argparse.Namespace, rig: KernelRig) -> None:
    load = Load(rig, options.size)
    await load.run(1_000, options.in_flight)
    rows = []
    for _ in range(ROUNDS):
        bare, bare_took = bare_us(options.n // 5)
        flushes = rig.kernel.statistics()["flushes_total"]
        load.took_s = array("d")
        began, cpu = time.perf_counter(), time.process_time()
        await load.run(options.n, options.in_flight)
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        flushes = rig.kernel.statistics()["flushes_total"] - flushes
        rows.append((cpu / flushes * 1e6, bare, statistics.median(load.took_s) * 1e6, bare_took, options.n / took))
    cpu_us, bare, took_us, bare_took, rate = [statistics.median(column) for column in zip(*rows, strict=True)]
    print(f"{options.in_flight} in flight: {cpu_us:.0f} µs of processor a frame, {bare:.0f} of them the bare "
          f"write and sync; answered in {took_us:.0f} µs, bare {bare_took:.0f}; {rate:,.0f} messages/s; "
          f"load average {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=5_000)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--on", default=".")
    options = parser.parse_args()
    os.chdir(options.on)
    run_on_kernel(measure, options)


if __name__ == "__main__":
    main()
