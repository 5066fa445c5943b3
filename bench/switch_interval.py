"""How long a worker's fdatasync takes to be known on a busy event loop, for several thread switch intervals.

    python -m bench.switch_interval

The loop runs bursts of 2 ms of pure Python work, as it does under load; beside it one worker writes 4 KiB and syncs,
again and again. The worker needs the interpreter lock for an instant after each sync, and the default interval of 5 ms
is longer than any burst, so that it starves. `gatehouse/serve.py` takes the interval that this shows to be best.
"""
from __future__ import annotations

import os
import sys
import tempfile
import time
from typing import Final

import uvloop

from gatehouse.gateways.runtime import Completions, ThreadWorker

INTERVALS_MS: Final = (5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.02)
BURST_S: Final = 0.002
SECONDS: Final = 2.0


class Run:
    """One interval's measurement."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.worker = ThreadWorker("sync", Completions(self.loop))
        self.file = tempfile.TemporaryFile(dir=".")
        self.latencies_s: list[float] = []
        self.worked = 0
        self.submitted_s = 0.0
        self.end_s = time.perf_counter() + SECONDS

    def measure(self) -> None:
        self.loop.call_soon(self.submit)
        self.loop.call_soon(self.burst)
        self.loop.run_forever()
        self.worker.close()
        self.file.close()

    def submit(self) -> None:
        self.submitted_s = time.perf_counter()
        self.worker.submit(self.sync, self.synced)

    def sync(self) -> None:
        os.write(self.file.fileno(), bytes(4096))
        os.fdatasync(self.file.fileno())

    def synced(self, _result: None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        now_s = time.perf_counter()
        self.latencies_s.append(now_s - self.submitted_s)
        if now_s < self.end_s:
            self.submit()
        else:
            self.loop.stop()

    def burst(self) -> None:
        start_s = time.perf_counter()
        while time.perf_counter() - start_s < BURST_S:
            for _ in range(50):
                self.worked += 1
        if start_s < self.end_s:
            self.loop.call_soon(self.burst)


def main() -> None:
    print("interval  syncs    median        p99   work of the loop")
    for interval_ms in INTERVALS_MS:
        sys.setswitchinterval(interval_ms / 1000)
        run = Run()
        run.measure()
        ordered = sorted(run.latencies_s)
        median_ms, p99_ms = (ordered[int(len(ordered) * part)] * 1000 for part in (0.5, 0.99))
        print(f"{interval_ms:5.2f} ms {len(ordered):6d} {median_ms:6.1f} ms {p99_ms:7.1f} ms {run.worked / 1e6:8.1f} M")


if __name__ == "__main__":
    main()
