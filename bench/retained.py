"""Retained values by filter among a million addresses.

    python -m bench.retained [--n 1000000] [--names 1000] [--size 20] [--rounds 20]

The kernel alone, with a real log and index. Addresses are `plant/LINE/NAME` with `--names` names a line. Each is told
to retain a value of `--size` bytes, a thousand a call, 8 of them in flight. Once all of it is in the index, each filter
is asked for its first page (256 values, as a subscription asks) and for everything, page after page; times are from
the question to the last answer. How late the kernel's thread was meanwhile, at worst, stands beside it.
"""
from __future__ import annotations

import argparse
import asyncio
import os
import time
from statistics import median
from typing import Final

from bench.kernel_rig import Answered, KernelRig, run_on_kernel
from bench.load_mqtt import resident_kib
from gatehouse.kernel.kernel import Kernel
from gatehouse.kernel.message import RETAIN, Retained

BURST: Final = 1_000
IN_FLIGHT: Final = 8
PAGE: Final = 256
TICK_S: Final = 0.001


async def fill(kernel: Kernel, options: argparse.Namespace) -> float:
    """Seconds until all are durable."""
    answered = Answered()
    value = bytes(options.size)
    begun = time.perf_counter()
    for sent in range(0, options.n, BURST):
        kernel.append([(kernel.place(f"plant/{i // options.names}/{i % options.names}"), value, b"\0", 2 | RETAIN, 0)
                       for i in range(sent, sent + BURST)], answered)
        await answered.wait(sent // BURST + 1 - IN_FLIGHT)
        await asyncio.sleep(0)
    await answered.wait(options.n // BURST)
    return time.perf_counter() - begun


async def settled(kernel: Kernel) -> None:
    """All of it is in the index."""
    written = asyncio.Event()
    kernel._checkpoints.take(written.set)
    await written.wait()


async def ask(kernel: Kernel, filter_text: str, start: str) -> tuple[int, str | None]:
    """How many values one page has, and where it goes on."""
    future: asyncio.Future[tuple[int, str | None]] = asyncio.get_running_loop().create_future()

    def on_done(values: list[Retained], after: str | None, error: Exception | None) -> None:
        assert error is None, error
        future.set_result((len(values), after))

    kernel.retained(filter_text, "/", on_done, max_values=PAGE, start=start)
    return await future


async def worst_delay_ms(over: asyncio.Event) -> float:
    """Of a timer of a millisecond, until it is over."""
    worst = 0.0
    while not over.is_set():
        begun = time.perf_counter()
        await asyncio.sleep(TICK_S)
        worst = max(worst, time.perf_counter() - begun - TICK_S)
    return worst * 1000


async def measure_filter(kernel: Kernel, filter_text: str, rounds: int) -> None:
    firsts, wholes, count = [], [], 0
    over = asyncio.Event()
    watch = asyncio.create_task(worst_delay_ms(over))
    for _ in range(rounds):
        begun = time.perf_counter()
        count, after = await ask(kernel, filter_text, "")
        firsts.append(time.perf_counter() - begun)
        while after is not None:
            more, after = await ask(kernel, filter_text, after)
            count += more
        wholes.append(time.perf_counter() - begun)
    over.set()
    print(f"{filter_text:16} {count:>9,} values   first page {median(firsts) * 1000:8.2f} ms   "
          f"all {median(wholes) * 1000:10.2f} ms   loop late {await watch:6.1f} ms")


async def measure(options: argparse.Namespace, rig: KernelRig) -> None:
    before = resident_kib(os.getpid())
    took = await fill(rig.kernel, options)
    await settled(rig.kernel)
    print(f"{options.n:,} addresses in {took:.1f} s: {options.n / took:,.0f} a second; "
          f"{(resident_kib(os.getpid()) - before) / 1024:.0f} MB more resident")
    for filter_text in ("plant/7/7", "plant/7/#", "plant/+/7", "+/+/7", "+/+/nothing", "nothing/#", "#/nothing"):
        await measure_filter(rig.kernel, filter_text, options.rounds)
    await measure_filter(rig.kernel, "#", 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000, help="addresses")
    parser.add_argument("--names", type=int, default=1_000, help="addresses of one line")
    parser.add_argument("--size", type=int, default=20, help="bytes of a value")
    parser.add_argument("--rounds", type=int, default=20, help="of each filter; medians are shown")
    run_on_kernel(measure, parser.parse_args())


if __name__ == "__main__":
    main()
