"""The kernel alone: messages a second into a real log, encoding, CRC and fdatasync counted.

    python -m bench.kernel_append [--partitions 16] [--n 2000000] [--size 100] [--burst 1000]

Bursts of unencoded (place, value, headers) tuples, places drawn at random over the partitions, are turned into messages
and appended as fast as the kernel takes them; the clock stops when the last is durable. What finds the place of an
address is a door's, and done before.
"""
from __future__ import annotations

import argparse
import asyncio
import gc
import random
import time

from bench.kernel_rig import KernelRig, run_on_kernel
from gatehouse.kernel.kernel import Kernel
from gatehouse.kernel.message import Placement, Stored
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.write import pending_frame

IN_FLIGHT = 32       # bursts appended and not yet answered: group commit makes frames of them


Unencoded = tuple[Placement, bytes, tuple[tuple[bytes, bytes | None], ...]]      # place, value, headers


class Load:
    def __init__(self, kernel: Kernel, bursts: list[list[Unencoded]], total: int,
                 loop: asyncio.AbstractEventLoop) -> None:
        self.kernel, self.bursts, self.left, self.loop = kernel, bursts, total, loop
        self.pending = 0
        self.sent = 0
        self.done = asyncio.Event()

    def feed(self) -> None:
        while self.left and self.pending < IN_FLIGHT:
            tuples = self.bursts[self.sent % len(self.bursts)]
            self.kernel.append([(to, value, encode_headers(headers), 1, 0) for to, value, headers in tuples], self)
            self.sent += 1
            self.left -= 1
            self.pending += 1

    def on_stored(self, stored: list[Stored]) -> None:
        assert all(one.error is None for one in stored)
        self.pending -= len(stored)
        if not self.left and not self.pending:
            self.done.set()
        else:
            self.loop.call_soon(self.feed)


async def measure(options: argparse.Namespace, rig: KernelRig) -> None:
    kernel = rig.kernel
    draw = random.Random(1)
    value = b"x" * options.size
    topic = kernel.create_topic("load", partitions=options.partitions)
    places = [kernel.place_in("load", b"k%d" % number, partition=number) for number in range(topic.partitions)]
    bursts: list[list[Unencoded]] = [
        [(draw.choice(places), value, ()) for _ in range(options.burst)] for _ in range(64)]
    load = Load(kernel, bursts, options.n // options.burst, asyncio.get_running_loop())
    gc.collect()
    gc.freeze()
    began, cpu = time.perf_counter(), time.process_time()
    load.feed()
    await load.done.wait()
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    n = options.n // options.burst * options.burst
    flushes = kernel.statistics()["flushes_total"]
    print(f"kernel append, {options.partitions} partitions, {options.size} bytes, bursts of {options.burst}, "
          f"{'compiled' if pending_frame.__file__.endswith('.so') else 'plain'}: {n / took:,.0f} msg/s, "
          f"{n * options.size / took / 1e6:,.0f} MB/s, {cpu / n * 1e6:.2f} µs CPU per message, {flushes} flushes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--n", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--burst", type=int, default=1000)
    run_on_kernel(measure, parser.parse_args())


if __name__ == "__main__":
    main()
