"""`python -m tests.fuzz --seconds 3600 --seed 7`: hostile bytes at every door. `make fuzz` runs it.

Where the hub shows a fault, the cases before it are tried again one by one, and those that show it too are written to
the folder that `--keep` names, as files that `tests/fuzz/test_seeds.py` plays from `tests/fuzz/seeds/DOOR/` ever after.
`--case N` sends one case alone.
"""
from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from tests.fuzz.mutations import Conversation
from tests.fuzz.runner import Fuzz, HubFault
from tests.fuzz.seeds import write_seed
from tests.running_hub import DOORS

TOGETHER: Final = 40                         # cases that are tried again at a time, before they are tried one by one


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("doors", nargs="*", default=list(DOORS), metavar="DOOR")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each door; doors run side by side")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="this case alone")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"), help="where cases that show a fault go")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(len(arguments.doors)) as pool:
        runs = [pool.submit(fuzz, door, arguments.seed, arguments.seconds, arguments.case, arguments.keep)
                for door in arguments.doors]
        results = [run.result() for run in runs]
    return 0 if all(results) else 1


def fuzz(door: str, seed: int, seconds: float, only: int | None, keep: Path) -> bool:
    """One door; whether its hub kept well. Goes on after a fault with the cases behind it, until the time is over."""
    end_s, number, well = time.monotonic() + seconds, 0, True
    while True:
        with tempfile.TemporaryDirectory(prefix="gatehouse-fuzz-") as folder:
            run = Fuzz(door, seed, Path(folder))
            try:
                if only is not None:
                    run.play([run.case(only)])
                else:
                    run.run(max(0.0, end_s - time.monotonic()), number)
                print(f"{door}, seed {seed}: {run.cases} conversations, {run.sent} bytes, {len(run.canaries)} messages "
                      f"beside them, none lost", flush=True)
            except HubFault as fault:
                well = False
                print(f"{door}: {fault}", file=sys.stderr, flush=True)
                _find(run, keep)
        number += run.cases + len(run.recent)
        if only is not None or time.monotonic() >= end_s:
            return well


def _find(run: Fuzz, keep: Path) -> None:
    """Which of the last cases shows the fault when it comes alone."""
    cases = [run.case(number) for number in run.recent]
    for at in range(0, len(cases), TOGETHER):
        if not _is_well(run, cases[at:at + TOGETHER]):
            for number, conversation in zip(run.recent[at:at + TOGETHER], cases[at:at + TOGETHER], strict=True):
                if not _is_well(run, [conversation]):
                    file = write_seed(keep / run.door, f"{run.seed}-{number}", conversation)
                    print(f"{run.door}: case {number} shows it: {file}", file=sys.stderr, flush=True)


def _is_well(run: Fuzz, cases: list[Conversation]) -> bool:
    with tempfile.TemporaryDirectory(prefix="gatehouse-fuzz-") as folder:
        try:
            Fuzz(run.door, run.seed, Path(folder)).play(cases)
        except HubFault:
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
