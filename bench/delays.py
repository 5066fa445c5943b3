"""A million messages for later: how fast they come in, what they cost in memory, how late they go out.

    python -m bench.delays [--n 1000000] [--over-s 60] [--load 20000] [--size 100]

The kernel alone, with a real log and index. Bursts of 1,000 are scheduled, 32 of them in flight. They fall due evenly
over `--over-s` seconds, beginning a while after the last could be stored; meanwhile `--load` ordinary messages a second
are appended. Lateness is from the due time to the delivery to a live subscriber, which is after fdatasync; how long the
ordinary ones waited for their answers is shown beside it.
"""
from __future__ import annotations

import argparse
import asyncio
import gc
import os
import time
from array import array
from typing import Final

from bench.kernel_rig import KernelRig, run_on_kernel
from bench.load_mqtt import resident_kib
from gatehouse.kernel.kernel import Kernel
from gatehouse.kernel.message import Delivery, Message, Stored, When

IN_FLIGHT: Final = 32
BURST: Final = 1_000
EXPECTED_RATE: Final = 20_000      # scheduled a second at least: the first falls due when all should be in
LOAD_TICK_S: Final = 0.01
KEYS: Final = 1_000


def resident_mb() -> float:
    return resident_kib(os.getpid()) / 1024


class Delays:
    def __init__(self, kernel: Kernel, options: argparse.Namespace) -> None:
        self.kernel, self.options = kernel, options
        kernel.create_topic("load", partitions=16)
        self.places = [kernel.place(f"delayed/k{i}") for i in range(KEYS)]
        self.begin_ms = now_ms() + options.n * 1000 // EXPECTED_RATE + 5_000
        self.sent = self.stored = 0
        self.all_in = asyncio.Event()
        self.all_out = asyncio.Event()
        self.late_ms = array("q")
        self.ordinary = Ordinary()

    # ---- in

    def feed(self) -> None:
        options = self.options
        while self.sent < options.n and self.sent - self.stored < IN_FLIGHT * BURST and not self.kernel.congested:
            messages: list[Message] = []
            whens = []
            for i in range(self.sent, self.sent + BURST):
                due_ms = self.begin_ms + (i * 7919 % options.n) * options.over_s * 1000 // options.n
                value = due_ms.to_bytes(8, "big") + bytes(options.size - 8)
                messages.append((self.places[i % KEYS], value, b"\0", 2, 0))
                whens.append(When(due_ms))
            self.kernel.schedule(messages, whens, self)
            self.sent += BURST
        if self.kernel.congested and self.sent == self.stored:
            self.kernel.on_relief(self.feed)

    def on_stored(self, stored: list[Stored]) -> None:
        assert all(one.error is None for one in stored)
        self.stored += BURST * len(stored)
        if self.stored >= self.options.n:
            self.all_in.set()
        else:
            asyncio.get_running_loop().call_soon(self.feed)

    # ---- out

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        told_ms = now_ms()
        for _, messages, _, _ in deliveries:
            self.late_ms.extend([told_ms - int.from_bytes((message[1] or b"")[:8], "big") for message in messages])
        if len(self.late_ms) >= self.options.n:
            self.all_out.set()

    async def load(self) -> None:
        to = [self.kernel.place(f"load/k{i}") for i in range(100)]
        each = int(self.options.load * LOAD_TICK_S)
        while not self.all_out.is_set():
            self.kernel.append([(to[i % 100], bytes(100), b"\0", 2, 0) for i in range(each)], self.ordinary, now_ms())
            await asyncio.sleep(LOAD_TICK_S)


class Ordinary:
    """Who appends what is not for later: how long each answer took."""

    def __init__(self) -> None:
        self.late_ms = array("q")

    def on_stored(self, stored: list[Stored]) -> None:
        self.late_ms.extend([now_ms() - int(str(one.token)) for one in stored])


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def spread(late_ms: array[int]) -> str:
    late = sorted(late_ms)
    p50, p99, p999 = [late[int(len(late) * part)] for part in (0.5, 0.99, 0.999)]
    return f"p50 {p50} ms, p99 {p99} ms, p99.9 {p999} ms, at most {late[-1]} ms"


async def measure(options: argparse.Namespace, rig: KernelRig) -> None:
    kernel = rig.kernel
    gc.collect()
    gc.freeze()
    delays, before_mb = Delays(kernel, options), resident_mb()
    began = time.perf_counter()
    delays.feed()
    await delays.all_in.wait()
    took, busy_mb = time.perf_counter() - began, resident_mb()
    kernel.subscribe("delayed/#", delays)
    await asyncio.sleep(max(0, delays.begin_ms / 1000 - time.time() - 1))
    waiting_mb = resident_mb()
    print(f"{options.n} scheduled, {options.size} bytes: {options.n / took:,.0f} msg/s; resident {before_mb:.0f} MB "
          f"before, {busy_mb:.0f} MB when all were in, {waiting_mb:.0f} MB while they waited", flush=True)
    load = asyncio.ensure_future(delays.load())
    await delays.all_out.wait()
    await load
    print(f"due at {options.n // options.over_s:,}/s beside {options.load:,} msg/s: late by {spread(delays.late_ms)}; "
          f"{sum(one < 0 for one in delays.late_ms)} too early; resident {resident_mb():.0f} MB")
    print(f"answers to the ordinary ones: {spread(delays.ordinary.late_ms)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--over-s", type=int, default=60)
    parser.add_argument("--load", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=100)
    run_on_kernel(measure, parser.parse_args())


if __name__ == "__main__":
    main()
