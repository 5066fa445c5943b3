"""How long a reading takes to come back as a statistic: from the HTTP door through Spark to a reader of the results.

    python -m bench.spark_analytics [--readings 60] [--every 0.5]

Each reading has an address of its own, so the first result of that address is its answer. Measured from the moment at
which the reading is sent to the moment at which a long poll of `statistics` has the result; the first ten are not
counted, as Spark is still compiling its plan.
"""
from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Final

from bench.measure import table
from bench.servers import ROOT, start_hub, work_folder
from gatehouse_client.sync import SyncClient

NOT_COUNTED: Final = 10
START_S: Final = 300.0


def start_job(url: str, folder: Path) -> subprocess.Popen[bytes]:
    """The statistics job, with micro-batches one after the other."""
    options = ["--url", url, "--topics", "device", "--checkpoint", str(folder / "checkpoint"), "--trigger-s", "0"]
    return subprocess.Popen([sys.executable, "-m", "gatehouse.cli", "spark", "analytics", *options], cwd=ROOT)


def listen(url: str, answered: dict[str, float], stopped: threading.Event) -> None:
    """Note when the first result of each address comes, until stopped."""
    with SyncClient(url) as client:
        for message in client.read("statistics", follow=True):
            answered.setdefault(message.address.removeprefix("statistics/"), time.monotonic())
            if stopped.is_set():
                return


def measure(url: str, readings: int, every_s: float) -> list[float]:
    """Seconds from sent to answered, of each reading. Raises TimeoutError where Spark does not answer the first."""
    answered: dict[str, float] = {}
    stopped = threading.Event()
    sent: dict[str, float] = {}
    with SyncClient(url) as client:
        client.define_topic("statistics", partitions=1)
        listener = threading.Thread(target=listen, args=(url, answered, stopped), daemon=True)
        listener.start()
        client.publish("device/first", "1")
        wait_for(answered, 1)
        for number in range(readings):
            address = f"device/d{number}"
            sent[address] = time.monotonic()
            client.publish(address, "1")
            time.sleep(every_s)
        wait_for(answered, readings + 1)
        stopped.set()
        client.publish("statistics/end", "1")
    listener.join()
    return [answered[address] - at for address, at in sent.items()]


def wait_for(answered: dict[str, float], count: int) -> None:
    end = time.monotonic() + START_S
    while len(answered) < count:
        if time.monotonic() > end:
            raise TimeoutError(f"{len(answered)} of {count} readings were answered")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readings", type=int, default=60)
    parser.add_argument("--every", type=float, default=0.5, metavar="SECONDS")
    options = parser.parse_args()
    with work_folder() as folder:
        hub = start_hub(folder, doors=("http",))
        url = f"http://127.0.0.1:{hub.ports['http']}"
        job = start_job(url, folder)
        try:
            took = sorted(measure(url, options.readings + NOT_COUNTED, options.every)[NOT_COUNTED:])
        finally:
            job.terminate()
            job.wait()
            hub.stop()
    print(table(["from the HTTP door to the statistics topic", "p50", "p90", "longest"],
                [[f"{len(took)} readings", *(f"{value:.2f} s" for value in
                                            (median(took), took[int(len(took) * 0.9)], took[-1]))]]))


if __name__ == "__main__":
    main()
