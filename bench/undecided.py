"""A million half messages that nobody decides about: memory, start, checks, and what the loop does meanwhile.

    python -m bench.undecided [--open 1000000] [--size 100] [--timeouts]

1. They are begun, and checked once with nobody there to ask.
2. A process of its own starts on them: each step of the start, what is answered while they are loaded, memory.
3. A member joins and is asked about all of them, beside a publisher of 500 messages a second, one after the other.
4. As many are begun that are not checked, and a process whose clock is ahead starts on those: all are over at once, and
   become dead letters of their group. With `--timeouts` they have no group, and only this is done.

"Waiting" is time in which a thread could have run and had no processor (/proc/self/task/ID/schedstat): what is left of
a step beyond that and its own time is the disk. A stall is how late a timer of the loop ran.
"""
from __future__ import annotations

import argparse
import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from threading import get_native_id
from typing import Any, Final, NamedTuple

from bench.kernel_rig import KernelRig
from bench.load_mqtt import resident_kib
from gatehouse.kernel.message import Stored
from gatehouse.serve import GC_THRESHOLDS, SWITCH_INTERVAL_S, loop_factory
from gatehouse.transactions.coordinator import Check, CheckSettings, Half, Query, Transaction, Transactions

BURST: Final = 1_000
PUBLISHED_S: Final = 500            # messages a second beside what is measured
STALL_S: Final = 0.005              # between two looks at how late the loop is
REST_S: Final = 5.0                 # for checkpoints, and of measuring publishers alone
WAIT_MS: Final = 3_600_000
GROUP: Final = "bench"
CHECKED: Final = CheckSettings(1_000, WAIT_MS, 15)
UNCHECKED: Final = CheckSettings(WAIT_MS, WAIT_MS, 0)


class Clock(NamedTuple):
    """Times of this thread, in seconds."""

    wall: float
    cpu: float
    waiting: float

    @classmethod
    def now(cls) -> Clock:
        ran = Path(f"/proc/self/task/{get_native_id()}/schedstat").read_text().split()
        return cls(time.perf_counter(), time.thread_time(), int(ran[1]) / 1e9)

    def since(self, before: Clock) -> str:
        wall, cpu, waiting = (mine - other for mine, other in zip(self, before, strict=True))
        return f"{wall:.2f} s ({cpu:.2f} CPU, {waiting:.2f} waiting)"


def resident_mb() -> float:
    return resident_kib(os.getpid()) / 1024


class Begun:
    """Begins transactions in bursts; waits while the kernel asks for that."""

    def __init__(self, rig: KernelRig, transactions: Transactions, settings: CheckSettings, group: str) -> None:
        self._kernel, self._transactions = rig.kernel, transactions
        self._settings, self._group = settings, group
        self._pending = 0
        self._changed = asyncio.Event()

    async def begin(self, count: int, size: int) -> None:
        place = self._kernel.place("load/k")
        while count or self._pending:
            while count and self._pending < 4 * BURST and not self._kernel.congested:
                for _ in range(min(BURST, count)):
                    self._transactions.begin([Half((place, bytes(size), b"\0", 2, 0))], group=self._group,
                                             by="bench", settings=self._settings, owner=self)
                    count -= 1
                    self._pending += 1
            self._changed.clear()
            if self._pending:
                await self._changed.wait()
            else:
                await asyncio.sleep(0.05)

    def on_stored(self, stored: list[Stored]) -> None:
        self._pending -= len(stored)
        self._changed.set()


class Asked:
    """A member that counts."""

    def __init__(self) -> None:
        self.count = 0
        self.first = 0.0

    def on_checks(self, checks: list[Check]) -> None:
        self.first = self.first or time.perf_counter()
        self.count += len(checks)


class Beside:
    """Publishes one message after the other, and looks how late the loop is; `line` says what it saw since the last."""

    def __init__(self, rig: KernelRig) -> None:
        self._kernel = rig.kernel
        self._place = rig.kernel.place("beside/k")
        self._late_s, self._answered_s = array("d"), array("d")
        self._done = asyncio.Event()
        self._began = Clock.now()
        self._cpu_s = time.process_time()
        self._checkpoints = 0
        self._tasks = [asyncio.create_task(self._look()), asyncio.create_task(self._publish())]

    async def _look(self) -> None:
        while True:
            due = time.perf_counter() + STALL_S
            await asyncio.sleep(STALL_S)
            self._late_s.append(time.perf_counter() - due)

    async def _publish(self) -> None:
        while True:
            began = time.perf_counter()
            if not self._kernel.congested:
                self._done.clear()
                self._kernel.append([(self._place, b"beside", b"\0", 2, 0)], self)
                await self._done.wait()
                self._answered_s.append(time.perf_counter() - began)
            await asyncio.sleep(max(0.0, began + 1 / PUBLISHED_S - time.perf_counter()))

    def on_stored(self, stored: list[Stored]) -> None:
        self._done.set()

    def line(self) -> str:
        late, answered = sorted(self._late_s), sorted(self._answered_s)
        now, cpu_s, checkpoints = Clock.now(), time.process_time(), self._kernel.statistics()["checkpoints_total"]
        text = (f"    {now.since(self._began)} of the loop, {cpu_s - self._cpu_s:.2f} CPU of the process; publish p50 "
                f"{_part(answered, 0.5):.1f} ms, p99 {_part(answered, 0.99):.1f}, longest {_part(answered, 1):.1f} "
                f"({len(answered)}); loop late p99 {_part(late, 0.99):.1f} ms, longest {_part(late, 1):.1f}; "
                f"{checkpoints - self._checkpoints} checkpoints; load average {os.getloadavg()[0]:.1f}")
        self._late_s, self._answered_s = array("d"), array("d")
        self._began, self._cpu_s, self._checkpoints = now, cpu_s, checkpoints
        return text

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()


def _part(values: list[float], part: float) -> float:
    """In milliseconds."""
    return values[min(len(values) - 1, int(len(values) * part))] * 1000 if values else 0.0


async def until_true(happened: Callable[[], bool]) -> None:
    while not happened():                            # noqa: ASYNC110 - it is looked at, not told
        await asyncio.sleep(0.02)


async def begin(options: argparse.Namespace, folder: Path, settings: CheckSettings) -> None:
    """So many; each checked once of nobody where the settings say so."""
    rig = KernelRig(folder)
    transactions = Transactions(rig.kernel)
    transactions.open()
    before_mb, began = resident_mb(), time.perf_counter()
    group = "" if options.timeouts else GROUP
    await Begun(rig, transactions, settings, group).begin(options.open, options.size)
    took = time.perf_counter() - began
    print(f"{options.open:,} begun, {options.open / took:,.0f} a second", flush=True)
    if settings.max_checks:
        await until_true(lambda: transactions.statistics()["transaction_checks_total"] >= options.open)
        print(f"all checked of nobody {time.perf_counter() - began:.0f} s after the first began", flush=True)
    await asyncio.sleep(REST_S)
    gc.collect()
    print(f"resident {before_mb:.0f} MB before, {resident_mb():.0f} MB with them", flush=True)
    transactions.stop()
    await rig.close()


async def start(options: argparse.Namespace, folder: Path, ahead_ms: int = 0
                ) -> tuple[KernelRig, Transactions, Beside]:
    """With a clock that is ahead, whatever waits has been waiting for longer."""
    before_mb, began = resident_mb(), Clock.now()
    rig = KernelRig(folder, ahead_ms)
    opened = Clock.now()
    transactions = Transactions(rig.kernel)
    transactions.open()
    doors = Clock.now()
    print(f"start: store and kernel {opened.since(began)}, transactions {doors.since(opened)}; then doors open",
          flush=True)
    beside = Beside(rig)
    page: list[list[Transaction]] = []
    transactions.page(Query("/", limit=100), lambda found: page.append(found[0]))
    await until_true(lambda: bool(page))
    print(f"first page of a hundred after {time.perf_counter() - doors.wall:.2f} s", flush=True)
    await until_true(lambda: not transactions.statistics()["transactions_loading"])
    print(f"all known after {Clock.now().since(doors)}\n{beside.line()}", flush=True)
    gc.collect()
    print(f"resident {before_mb:.0f} MB before, {resident_mb():.0f} MB with all known", flush=True)
    return rig, transactions, beside


async def ask(options: argparse.Namespace, folder: Path) -> None:
    rig, transactions, beside = await start(options, folder)
    await asyncio.sleep(REST_S)
    print(f"at rest\n{beside.line()}", flush=True)
    asked = Asked()
    joined = time.perf_counter()
    transactions.join(GROUP, "/", asked, name="bench")
    await until_true(lambda: asked.count >= options.open)
    took = time.perf_counter() - joined
    print(f"a member joins and is asked about all: {asked.count / took:,.0f} checks/s, the first after "
          f"{(asked.first - joined) * 1000:.0f} ms; resident {resident_mb():.0f} MB\n{beside.line()}", flush=True)
    await asyncio.sleep(REST_S)
    print(f"and {REST_S:.0f} s after\n{beside.line()}", flush=True)
    beside.stop()
    transactions.stop()
    await rig.close()


async def expire(options: argparse.Namespace, folder: Path) -> None:
    rig, transactions, beside = await start(options, folder, 2 * WAIT_MS)
    await until_true(lambda: transactions.statistics()["transactions_expired_total"] > 0)
    beside.line()
    began = time.perf_counter()
    await until_true(lambda: transactions.statistics()["transactions_expired_total"] == options.open)
    print(f"all over at once: {options.open / (time.perf_counter() - began):,.0f}/s given up; resident "
          f"{resident_mb():.0f} MB\n{beside.line()}", flush=True)
    beside.stop()
    transactions.stop()
    await rig.close()


PHASES: Final[dict[str, Callable[[argparse.Namespace, Path], Coroutine[Any, Any, None]]]] = {
    "begin": partial(begin, settings=CHECKED), "ask": ask, "begin-unchecked": partial(begin, settings=UNCHECKED),
    "expire": expire}


def run(phase: str, options: argparse.Namespace, folder: Path) -> None:
    """One phase, as the hub would run."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(PHASES[phase](options, folder))


def measure(count: int, size: int, *, timeouts: bool = False) -> None:
    """Every phase in a process of its own."""
    more = [f"--open={count}", f"--size={size}", *(["--timeouts"] if timeouts else [])]
    for phases in (("begin", "ask"), ("begin-unchecked", "expire"))[timeouts:]:
        with tempfile.TemporaryDirectory(prefix="gatehouse-bench-", dir=".") as folder:
            for phase in phases:
                subprocess.run([sys.executable, "-m", "bench.undecided", "--phase", phase, "--folder", folder, *more],
                               check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--open", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--timeouts", action="store_true", help="transactions without a group")
    parser.add_argument("--phase", choices=PHASES, help="this one alone, in --folder")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.phase is None:
        measure(options.open, options.size, timeouts=options.timeouts)
    else:
        run(options.phase, options, options.folder)


if __name__ == "__main__":
    main()
