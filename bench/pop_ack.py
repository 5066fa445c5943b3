"""Leased groups in the kernel alone: messages popped and acked a second, every answer after fdatasync.

    python -m bench.pop_ack [--n 1000000] [--consumers 1 10 1000] [--batch 1 32] [--partitions 4]

The messages are stored first. Each consumer pops a batch, and when it has it acks it and pops the next at once, without
waiting for the ack's answer; the clock stops when the last ack is durable.
"""
from __future__ import annotations

import argparse
import asyncio
import gc
import time

from bench.kernel_rig import Answered, KernelRig, run_on_kernel
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.handing_out import Pop
from gatehouse.kernel.kernel import Kernel
from gatehouse.kernel.message import Leased

BURST = 1_000


class Consumer:
    """Pops and acks until nothing is left."""

    def __init__(self, group: LeasedGroup, batch: int, acked: Answered, total: list[int], done: asyncio.Event) -> None:
        self._group, self._batch, self._acked, self._left, self._done = group, batch, acked, total, done
        self.waiting: Pop

    def pop(self) -> None:
        self.waiting = self._group.pop(self._batch, 60_000, self.on_popped)

    def on_popped(self, messages: list[Leased]) -> None:
        if self._done.is_set():                # what is left belongs to no measurement
            return
        self._acked.sent += 1
        self._group.ack([one[:3] for one in messages], self._acked, None)
        self._left[0] -= len(messages)
        if self._left[0] > 0:
            self.pop()
        else:
            self._done.set()


async def fill(kernel: Kernel, topic: str, n: int, partitions: int, size: int) -> None:
    """Store `n` messages of `size` bytes, spread over the partitions."""
    kernel.create_topic(topic, partitions=partitions)
    places = [kernel.place_in(topic, b"k%d" % i, partition=i) for i in range(partitions)]
    stored = Answered()
    value = b"x" * size
    for n_burst in range(n // BURST):
        kernel.append([(places[i % partitions], value, b"\0", 1, 0) for i in range(BURST)], stored)
        if n_burst % 32 == 31:
            await stored.wait(n_burst - 30)
    await stored.wait(n // BURST)


async def measure(options: argparse.Namespace, rig: KernelRig) -> None:
    await fill(rig.kernel, "load", options.n, options.partitions, options.size)
    gc.collect()
    gc.freeze()
    for batch in options.batch:
        for consumers in options.consumers:
            n = options.n if batch > 1 else options.n // 5
            group = rig.kernel.groups.group(f"group-{batch}-{consumers}", "load")
            left, done, acked = [n], asyncio.Event(), Answered()
            began, cpu = time.perf_counter(), time.process_time()
            takers = [Consumer(group, batch, acked, left, done) for _ in range(consumers)]
            for taker in takers:
                taker.pop()
            await done.wait()
            await acked.wait(acked.sent)
            for taker in takers:
                taker.waiting.cancel()
            took, cpu = time.perf_counter() - began, time.process_time() - cpu
            print(f"pop and ack, batches of {batch}, {consumers} consumers, {options.partitions} partitions: "
                  f"{n / took:,.0f} msg/s, {cpu / n * 1e6:.2f} µs CPU per message", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--consumers", type=int, nargs="+", default=[1, 10, 1_000])
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 1])
    run_on_kernel(measure, parser.parse_args())


if __name__ == "__main__":
    main()
