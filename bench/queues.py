"""Queues in the kernel alone: many with one message each, and one with many messages.

    python -m bench.queues [--queues 100000] [--backlog 1000000] [--size 100]

Every queue is declared, gets one message, and is then taken from and acked; then one queue gets the whole backlog with
nobody there, and one member with a credit of 2,000 takes and acks all of it. Rates count to the last durable answer;
resident memory is above that of the hub before.
"""
from __future__ import annotations

import argparse
import asyncio
import gc
import time

import psutil

from bench.kernel_rig import Answered, KernelRig, run_on_kernel
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import Queue
from gatehouse.kernel.groups.handing_out import Membership
from gatehouse.kernel.kernel import Kernel
from gatehouse.kernel.message import Leased

BURST = 1_000
CREDIT = 2_000


class Taker:
    """A member that acks what it is given at once."""

    def __init__(self, group: LeasedGroup, acked: Answered, wanted: int, done: asyncio.Event) -> None:
        self._group, self._acked, self._left, self._done = group, acked, wanted, done
        self.membership: Membership | None = None

    def on_leased(self, messages: list[Leased]) -> None:
        self._group.ack([one[:3] for one in messages], self._acked, None)
        self._acked.sent += 1
        self._left -= len(messages)
        if not self._left:
            self._done.set()
        if self.membership is not None:
            self.membership.add_credit(len(messages))

    def on_gone(self) -> None:
        raise AssertionError("the queue is gone")


def resident_mib() -> float:
    gc.collect()
    return float(psutil.Process().memory_info().rss) / (1 << 20)


async def take(kernel: Kernel, queue: Queue, wanted: int, acked: Answered) -> None:
    """Take and ack what the queue holds."""
    done = asyncio.Event()
    group = kernel.groups.queue_group(queue)
    taker = Taker(group, acked, wanted, done)
    taker.membership = group.join(taker, CREDIT)
    await done.wait()
    taker.membership.leave()


async def many(kernel: Kernel, count: int, size: int) -> None:
    """Declare, fill and empty `count` queues."""
    before = resident_mib()
    began = time.perf_counter()
    declared = Answered()
    queues = []
    for n in range(count):
        queues.append(kernel.groups.declare_queue(f"client-{n}", owner=declared))
        if n % BURST == BURST - 1:
            await declared.wait(n + 1)
    rate_declared = count / (time.perf_counter() - began)
    began = time.perf_counter()
    stored = Answered()
    value = b"x" * size
    for at in range(0, count, BURST):
        kernel.append([(kernel.place_queue(queue), value, b"\0", 3, 0) for queue in queues[at:at + BURST]], stored)
        await asyncio.sleep(0)
    await stored.wait(-(-count // BURST))
    rate_in = count / (time.perf_counter() - began)
    grown = resident_mib() - before
    began = time.perf_counter()
    acked = Answered()
    for at in range(0, count, BURST):
        await asyncio.gather(*[take(kernel, queue, 1, acked) for queue in queues[at:at + BURST]])
    await acked.wait(acked.sent)
    rate_out = count / (time.perf_counter() - began)
    print(f"{count} queues: declared {rate_declared:,.0f}/s, one message each in {rate_in:,.0f}/s, "
          f"out and acked {rate_out:,.0f}/s, {grown:,.0f} MiB resident with all of them full", flush=True)


async def backlog(kernel: Kernel, count: int, size: int) -> None:
    """Fill one queue with nobody there, then empty it."""
    queue = kernel.groups.declare_queue("backlog")
    placement = kernel.place_queue(queue)
    before = resident_mib()
    stored = Answered()
    value = b"x" * size
    began = time.perf_counter()
    for n in range(count // BURST):
        kernel.append([(placement, value, b"\0", 3, 0)] * BURST, stored)
        if n % 32 == 31:
            await stored.wait(n - 30)
    await stored.wait(count // BURST)
    rate_in = count / (time.perf_counter() - began)
    grown = resident_mib() - before
    began = time.perf_counter()
    acked = Answered()
    await take(kernel, queue, count // BURST * BURST, acked)
    await acked.wait(acked.sent)
    rate_out = count / (time.perf_counter() - began)
    print(f"{count} messages in one queue: in {rate_in:,.0f}/s, out and acked {rate_out:,.0f}/s, "
          f"{grown:,.0f} MiB resident while they wait (the cache of recent messages is part of it)", flush=True)


async def measure(options: argparse.Namespace, rig: KernelRig) -> None:
    await many(rig.kernel, options.queues, options.size)
    await backlog(rig.kernel, options.backlog, options.size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--backlog", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    run_on_kernel(measure, parser.parse_args())


if __name__ == "__main__":
    main()
