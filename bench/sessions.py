"""Sessions that outlive their connections: what a sleeping one costs, and how fast one wakes.

    python -m bench.sessions [--sleepers 40000] [--waiting 100000] [--passing 1000000]

The kernel alone, with a real log and index. `--sleepers` sessions with one filter of their own each (`fleet/N/cmd`, QoS
1) fall asleep, behind some whose cost is said apart: what the process has grown by, divided by their number, once all
of it is in the index. Then one more
session sleeps on `plant/#` while `--waiting` messages for it are stored, and wakes: the
time to its first message, and until it has acknowledged the last, 1,000 unacknowledged at a time. And one sleeps on
`+/x/cmd` while `--passing` messages go by that are not for it and 1,000 that are: the same.
"""
from __future__ import annotations

import argparse
import asyncio
import gc
import os
import time
from typing import Final

from bench.kernel_rig import Answered, KernelRig, run_on_kernel
from bench.load_mqtt import resident_kib
from gatehouse.kernel.kernel import Kernel
from gatehouse.kernel.sessions.attached import Attached
from gatehouse.kernel.sessions.session_values import NEVER, Outgoing, Released, Subscribed

BURST: Final = 1_000
IN_FLIGHT: Final = 8
WINDOW: Final = 1_000
AIM_BYTES: Final = 1_024
FIRST: Final = 100_000                 # sessions before those that are measured: the buffers of the index are full then


class Sleeper:
    """One client id; acknowledges whatever it is handed."""

    def __init__(self, kernel: Kernel, client_id: str) -> None:
        self._kernel = kernel
        self._client_id = client_id
        self._wanted = 0
        self._begun = 0.0
        self._came = asyncio.Event()
        self._session: Attached | None = None
        self.count = 0
        self.first_s = 0.0
        self.opened = Answered()

    def on_messages(self, messages: list[Outgoing | Released]) -> None:
        if not self.count:
            self.first_s = time.perf_counter() - self._begun
        self.count += len(messages)
        assert self._session is not None
        self._session.acknowledge([message.packet_id for message in messages])
        if self.count >= self._wanted:
            self._came.set()

    def may_have(self, address: str) -> bool:
        return True

    def on_session_ended(self, reason: str) -> None:
        raise AssertionError(reason)

    def attach(self) -> Attached:
        self._session = self._kernel.sessions.attach("/", self._client_id, "user", self, clean=False, expiry_ms=NEVER,
                                                     window=WINDOW, owner=self.opened, token=None)
        return self._session

    async def sleep_on(self, filter_text: str) -> None:
        self.attach().subscribe(Subscribed(filter_text, 1))
        await self.opened.wait(1)
        assert self._session is not None
        self._session.sleep(NEVER)

    async def wake(self, wanted: int) -> float:
        """Seconds until so many messages have come."""
        self._wanted, self._begun = wanted, time.perf_counter()
        session = self.attach()
        await self.opened.wait(2)
        session.hold(False)
        await self._came.wait()
        return time.perf_counter() - self._begun


async def publish(kernel: Kernel, addresses: list[str], count: int) -> None:
    """So many messages of 100 bytes, over these addresses in turn."""
    answered, places = Answered(), [kernel.place(address) for address in addresses]
    value = bytes(100)
    for sent in range(0, count, BURST):
        kernel.append([(places[at % len(places)], value, b"\0", 2, 0) for at in range(sent, sent + BURST)], answered)
        await answered.wait(sent // BURST + 1 - IN_FLIGHT)
        await asyncio.sleep(0)
    await answered.wait(count // BURST)


async def settled(kernel: Kernel) -> None:
    """All of it is in the index."""
    written = asyncio.Event()
    kernel._checkpoints.take(written.set)
    await written.wait()


async def fall_asleep(kernel: Kernel, kind: str, count: int) -> int:
    """So many sessions with one filter of their own fall asleep: by how many bytes the process has grown."""
    gc.collect()
    before = resident_kib(os.getpid())
    for first in range(0, count, BURST):
        await asyncio.gather(*[Sleeper(kernel, f"{kind}-{at}").sleep_on(f"fleet/{kind}-{at}/cmd")
                               for at in range(first, min(first + BURST, count))])
    await settled(kernel)
    await settled(kernel)
    gc.collect()
    return (resident_kib(os.getpid()) - before) * 1_024


async def measure(options: argparse.Namespace, rig: KernelRig) -> None:
    kernel = rig.kernel
    await settled(kernel)
    first_grown = await fall_asleep(kernel, "first", FIRST)
    each = await fall_asleep(kernel, "meter", options.sleepers) / options.sleepers
    print(f"{options.sleepers:,} sleeping sessions with one filter: {each:,.0f} bytes each (aim: {AIM_BYTES:,}); the "
          f"first {FIRST:,} of this process: {first_grown / FIRST:,.0f} bytes each, with what a hub at work takes once")

    reader = Sleeper(kernel, "reader")
    await reader.sleep_on("plant/#")
    await publish(kernel, ["plant/1/temp"], options.waiting)
    took_s = await reader.wake(options.waiting)
    print(f"woken to {options.waiting:,} waiting messages: the first after {reader.first_s * 1_000:.1f} ms, all "
          f"acknowledged after {took_s:.2f} s, {options.waiting / took_s:,.0f} a second")

    rare = Sleeper(kernel, "rare")
    await rare.sleep_on("+/x/cmd")
    await publish(kernel, [f"line{at % 100}/y/cmd" for at in range(100)], options.passing)
    await publish(kernel, [f"line{at % 100}/x/cmd" for at in range(100)], BURST)
    took_s = await rare.wake(BURST)
    print(f"woken to {BURST:,} among {options.passing:,} others: the first after {rare.first_s * 1_000:.1f} ms, all "
          f"after {took_s * 1_000:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sessions", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sleepers", type=int, default=40_000, help="sessions that sleep")
    parser.add_argument("--waiting", type=int, default=100_000, help="messages that wait for one that wakes")
    parser.add_argument("--passing", type=int, default=1_000_000, help="messages that go by beside those that wait")
    run_on_kernel(measure, parser.parse_args())


if __name__ == "__main__":
    main()
