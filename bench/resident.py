"""Resident memory while messages come at a fixed rate for a long time: whether it ends to grow, and at what.

    python -m bench.resident [--rate 20000] [--seconds 600] [--every 30]

One MQTT publisher of QoS 1 and one subscriber, 100 bytes a message. Beside what is resident stands what of it is the
process's own (RssAnon), what the hub says of its index that no checkpoint holds yet, what it holds by holder, and its
log. The slope is that of the second half. The load is one of two minutes again and again, as it remembers every
message; one that fails has said why, and is followed by the next.
"""
from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from statistics import linear_regression
from typing import Final

from bench.measure import LOAD, table
from bench.servers import Server, start_hub, work_folder

MIB: Final = 1 << 20
LOAD_S: Final = 120
SHOWN_MIB: Final = 0.1            # what is less all the time is left out
SHOWN: Final = ("gatehouse_unindexed_bytes", "gatehouse_memory_held_bytes", "gatehouse_log_bytes")
OWN: Final = re.compile(r"RssAnon:\s+(\d+) kB")

Look = tuple[float, float, float, dict[str, float]]
"""Seconds since the start, resident and own MiB, and MiB that the hub tells of, by metric and label."""


def look(server: Server, after_s: float) -> Look:
    own = OWN.search(Path(f"/proc/{server.pid}/status").read_text())
    assert own is not None, "Linux tells it"
    with urllib.request.urlopen(f"http://127.0.0.1:{server.ports['http']}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    said = {name: float(value) / MIB for name, value in [line.rsplit(" ", 1) for line in lines
                                                          if line.startswith(SHOWN)]}
    return after_s, server.resident_bytes() / MIB, int(own[1]) / 1024, said


def measure(server: Server, rate: int, seconds: float, every_s: float) -> list[Look]:
    seen = [look(server, 0.0)]
    began_s = time.monotonic()
    while (left_s := began_s + seconds - time.monotonic()) > 0:
        command = [sys.executable, str(LOAD), "mqtt-rate", "--port", str(server.ports["mqtt"]), "--rate", str(rate),
                   "--seconds", str(min(LOAD_S, left_s))]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as load:
            while load.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    load.wait(max(0.0, began_s + every_s * len(seen) - time.monotonic()))
                    continue
                seen.append(look(server, time.monotonic() - began_s))
                print(f"{seen[-1][0]:.0f} s: {seen[-1][1]:.1f} MiB", file=sys.stderr, flush=True)
        assert server.child.poll() is None, "the hub has ended"
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--every", type=float, default=30, help="seconds between two looks")
    options = parser.parse_args()
    with work_folder() as folder:
        server = start_hub(folder / "hub", doors=("mqtt", "http"))
        try:
            seen = measure(server, options.rate, options.seconds, options.every)
        finally:
            server.stop()
    names = sorted({name for *_, said in seen for name, value in said.items() if value >= SHOWN_MIB})
    print(table(["after s", "resident MiB", "its own", *(name.removeprefix("gatehouse_") for name in names)], [
        [f"{after_s:.0f}", f"{resident:.1f}", f"{own:.1f}", *(f"{said.get(name, 0):.1f}" for name in names)]
        for after_s, resident, own, said in seen]))
    late = seen[len(seen) // 2:]
    if len(late) > 1:
        slope, _ = linear_regression([after_s for after_s, *_ in late], [resident for _, resident, *_ in late])
        print(f"in the second half {slope * 60:+.2f} MiB a minute", flush=True)


if __name__ == "__main__":
    main()
