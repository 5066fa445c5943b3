"""A large transaction that nobody decides about: how long it holds up the loop when it becomes dead letters.

    python -m bench.large [--messages 10000] [--size 100] [--times 5]

To one address, and to as many addresses as messages, beside a publisher of 500 messages a second.
"""
from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from bench.kernel_rig import KernelRig
from bench.undecided import Beside, until_true
from gatehouse.serve import GC_THRESHOLDS, SWITCH_INTERVAL_S, loop_factory
from gatehouse.transactions.coordinator import CheckSettings, Half, Transactions

OVER: Final = CheckSettings(1_000, 1_000, 0)


async def measure(folder: Path, messages: int, size: int, times: int) -> None:
    rig = KernelRig(folder)
    transactions = Transactions(rig.kernel)
    transactions.open()
    beside = Beside(rig)
    for places in (1, messages):
        for _ in range(times):
            over = transactions.statistics()["transactions_expired_total"] + 1
            to = [rig.kernel.place(f"load/k{number}") for number in range(places)]
            halves = [Half((to[number % places], bytes(size), b"\0", 2, 0)) for number in range(messages)]
            transactions.begin(halves, group="bench", by="bench", settings=OVER, owner=None)
            await asyncio.sleep(OVER.first_ms / 2_000)
            beside.line()
            await until_true(partial(_has_given_up, transactions, over))
            print(f"{messages:,} messages to {places:,} addresses become dead letters\n{beside.line()}", flush=True)
    beside.stop()
    transactions.stop()
    await rig.close()


def _has_given_up(transactions: Transactions, count: int) -> bool:
    return transactions.statistics()["transactions_expired_total"] >= count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-", dir=".") as folder, \
            asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(measure(Path(folder), options.messages, options.size, options.times))


if __name__ == "__main__":
    main()
