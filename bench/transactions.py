"""Half messages: half + commit a second beside plain sends, commit latency, and a million that nobody decides about.

    python -m bench.transactions [--n 100000] [--window 1000] [--size 100] [--rate 1000] [--seconds 10] [--open 1000000]

The kernel and the transactions over it, with a real log and index. Every send, half and commit is a call of its own
with its own answer after fdatasync, `--window` of them in flight. Latency is measured at `--rate` transactions a
second. Then come the `--open` transactions of `bench.undecided`.
"""
from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import Final, NamedTuple

from bench import undecided
from bench.kernel_rig import KernelRig
from gatehouse.kernel.message import Message, Stored
from gatehouse.serve import GC_THRESHOLDS, SWITCH_INTERVAL_S, loop_factory
from gatehouse.transactions.coordinator import CheckSettings, Decision, Half, Transactions

KEYS: Final = 1_000
BURST: Final = 1_000
EACH: Final = 100                   # messages of a large transaction
PAUSE_S: Final = 5.0                # for checkpoints
NEVER: Final = CheckSettings(3_600_000, 3_600_000, 15)


class Rate(NamedTuple):
    messages_s: float
    processor_us: float               # of this process, for each message

    def beside(self, plain: Rate) -> str:
        """A half of a line."""
        share = self.messages_s / plain.messages_s
        return (f"plain sends {plain.messages_s:,.0f} messages/s, {plain.processor_us:.1f} µs CPU each; half + commit "
                f"{self.messages_s:,.0f}/s, {self.processor_us:.1f} µs; {share:.2f} of the rate; load average "
                f"{os.getloadavg()[0]:.1f}")


class Load:
    """Sends, or transactions, with so many in flight; `took_s` when all are durable."""

    def __init__(self, rig: KernelRig, transactions: Transactions, size: int) -> None:
        self.kernel, self.transactions = rig.kernel, transactions
        self.places = [self.kernel.place(f"load/k{i}") for i in range(KEYS)]
        self.value = bytes(size)
        self.left = self.pending = 0
        self.halves = self.follows = False         # `follows`: the next is sent when one is done
        self.each = 1
        self.done = asyncio.Event()
        self.latency_s = array("d")

    def message(self, number: int) -> Message:
        return self.places[number % KEYS], self.value, b"\0", 2, 0

    async def run(self, count: int, window: int, *, halves: bool, each: int = 1) -> Rate:
        """So many calls, or transactions, of `each` messages."""
        self.left, self.halves, self.follows, self.each = count, halves, True, each
        self.done.clear()
        began, cpu = time.perf_counter(), time.process_time()
        self.feed(window)
        await self.done.wait()
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        return Rate(count * each / took, cpu / (count * each) * 1e6)

    def feed(self, window: int) -> None:
        for _ in range(min(window, self.left)):
            self.send()

    def send(self) -> None:
        self.left -= 1
        self.pending += 1
        messages = [self.message(self.left + i) for i in range(self.each)]
        if self.halves:
            self.transactions.begin([*map(Half, messages)], group="load", by="load", settings=NEVER, owner=self,
                                    token="begun")
        else:
            self.kernel.append(messages, self, "sent")

    def on_stored(self, stored: list[Stored]) -> None:
        for one in stored:
            assert one.error is None, one.error
            if one.token == "begun":
                self.transactions.decide(one.positions[0][2], Decision.COMMIT, by="load", owner=self,
                                         token=time.perf_counter())
                continue
            if isinstance(one.token, float):       # when a commit began
                self.latency_s.append(time.perf_counter() - one.token)
            self.pending -= 1
            if self.left and self.follows:
                self.send()
        if not self.left and not self.pending:
            self.done.set()

    async def run_slowly(self, rate: int, seconds: int) -> str:
        """Latency of commits at a rate that leaves the machine time."""
        self.latency_s = array("d")
        self.left, self.halves, self.follows = rate * seconds, True, False
        self.done.clear()
        began = time.perf_counter()
        for number in range(self.left):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            self.left -= 1
            self.pending += 1
            self.transactions.begin([Half(self.message(number))], group="load", by="load", settings=NEVER, owner=self,
                                    token="begun")
        await self.done.wait()
        late = sorted(self.latency_s)
        p50, p99 = (late[int(len(late) * part)] * 1000 for part in (0.5, 0.99))
        return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, at most {late[-1] * 1000:.1f} ms"


async def measure_rate(options: argparse.Namespace, folder: Path) -> None:
    rig = KernelRig(folder)
    transactions = Transactions(rig.kernel)
    transactions.open()
    load = Load(rig, transactions, options.size)
    await load.run(10_000, options.window, halves=True)
    large = EACH, max(1, options.window // EACH), options.n // EACH
    for each, window, count in ((1, options.window, options.n), large, (1, 1, 1_000)):
        plain = await load.run(count, window, halves=False, each=each)
        await asyncio.sleep(PAUSE_S)
        halves = await load.run(count, window, halves=True, each=each)
        await asyncio.sleep(PAUSE_S)
        print(f"{window} calls in flight, {each} messages in each: {halves.beside(plain)}", flush=True)
    print(f"commit at {options.rate:,}/s: {await load.run_slowly(options.rate, options.seconds)}", flush=True)
    transactions.stop()
    await rig.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--window", type=int, default=1_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--open", type=int, default=1_000_000)
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-", dir=".") as folder, \
            asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(measure_rate(options, Path(folder)))
    undecided.measure(options.open, options.size)


if __name__ == "__main__":
    main()
