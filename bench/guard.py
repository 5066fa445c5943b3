"""What users and rights cost: the same loads against a hub that everybody may enter, and against one with a login.

    python -m bench.guard [--rounds 3] [--rules 10000] [--n 100000]

Each load runs against both hubs in turn. The guarded one has so many rules for other users, and one that allows what
the load does; every connection logs in by password. What differs is the login itself and the look-ups behind it: a
verdict is remembered with each address, so that a message costs what it cost before.
"""
from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Final

from bench.measure import LOAD, run_load
from bench.servers import ROOT, Server, start_hub, work_folder

USER: Final = "bench"
PASSWORD: Final = "bench of the guard"
DOORS: Final = ("mqtt", "http", "amqp", "kafka")
RATE: Final = re.compile(r"([\d,]+) msg/s")

Options = dict[str, int | str | float]

LOADS: Final[tuple[tuple[str, str, Options], ...]] = (
    ("mqtt", "mqtt-pipe", {"qos": 1, "linger": 0.2}), ("mqtt", "mqtt-many", {"connections": 100}),
    ("amqp", "amqp-pipe", {"topic": "work"}), ("kafka", "kafka-pipe", {"topic": "batches"}), ("http", "http-many", {}))
"""(door, mode, options). Kafka counts ten messages for one of the others."""


def start_guarded(folder: Path, rules: int) -> Server:
    """A hub with a user and rules. Raises ServerFailed."""
    folder.mkdir()
    (folder / "gateways.toml").write_text(f'[hub]\ndata_dir = "{folder / "data"}"\n[gateways.mqtt]\n')
    made = subprocess.run(
        [sys.executable, "-m", "gatehouse.cli", "users", "create", USER, "--config", str(folder / "gateways.toml"),
         "--password-file", "-"], input=PASSWORD + "\n", text=True, capture_output=True, cwd=ROOT, check=False)
    if made.returncode:
        raise SystemExit(f"the user was not made: {made.stderr}")
    tables = [f'[[acl]]\nwho = "user:{USER}"\npattern = "#"\n', f'[[acl]]\nwho = "user:{USER}"\npattern = "$queue/#"\n']
    tables += [f'[[acl]]\nwho = "user:other{n % 1000}"\npattern = "plant{n}/+/temp/#"\n' for n in range(rules)]
    return start_hub(folder, doors=DOORS, settings={"AUTH__ALLOW_ANONYMOUS": "false"}, more="\n".join(tables))


def rate(server: Server, door: str, mode: str, options: Options, login: bool) -> tuple[float, float]:
    """(messages a second, microseconds of the hub's processor for each)."""
    shown: Options = {"login": f"{USER}:{PASSWORD}"} if login else {}
    said, used = run_load(LOAD, server, door, mode, **options, **shown)
    found = RATE.findall(said)
    if not found:
        raise SystemExit(f"{mode} said {said!r}")
    return float(found[-1].replace(",", "")), (used.user_s + used.system_s) / int(options["n"]) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rules", type=int, default=10_000)
    parser.add_argument("--n", type=int, default=100_000, help="messages of a pipe; HTTP sends a tenth")
    options = parser.parse_args()
    with work_folder() as folder:
        free, guarded = start_hub(folder / "free", doors=DOORS), start_guarded(folder / "guarded", options.rules)
        try:
            for door, mode, more in LOADS:
                n = options.n // 10 if door == "http" else options.n * 10 if door == "kafka" else options.n
                tell(free, guarded, door, mode, {**more, "n": n}, options.rounds)
        finally:
            for server in (free, guarded):
                server.stop()


def tell(free: Server, guarded: Server, door: str, mode: str, options: Options, rounds: int) -> None:
    """One line: both hubs in turn, medians."""
    runs = [(rate(free, door, mode, options, False), rate(guarded, door, mode, options, True)) for _ in range(rounds)]
    (open_rate, open_us), (rate_guarded, us_guarded) = (
        tuple(median(run[which][part] for run in runs) for part in (0, 1)) for which in (0, 1))
    print(f"{mode}: {open_rate:,.0f} msg/s open, {rate_guarded:,.0f} guarded ({rate_guarded / open_rate - 1:+.1%}); "
          f"{open_us:.2f} and {us_guarded:.2f} µs of the hub's processor a message")


if __name__ == "__main__":
    main()
