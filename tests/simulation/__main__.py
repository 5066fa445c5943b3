"""`make sim SEED=7 ROUNDS=100`: simulate from one seed on; on failure say how to see it again."""
from __future__ import annotations

import argparse
import sys

from tests.simulation.plan import ABOUT
from tests.simulation.rounds import Failure, run_rounds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("first", nargs="?", type=int, help="the first seed")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--rounds", type=int, default=100, help="seeds to run, one after the other")
    parser.add_argument("--length", type=int, default=200, help="steps of a plan")
    parser.add_argument("--every-write", action="store_true", help="crash at each operation of the disk in turn")
    parser.add_argument("--crash", help="crash at one operation only: NUMBER:before|during|after:kill|power")
    parser.add_argument("--about", choices=ABOUT, default="", help="plans about members of such groups alone")
    asked = parser.parse_args()
    first = asked.seed if asked.first is None else asked.first
    try:
        run_rounds(first, asked.rounds, asked.length, every_write=asked.every_write, crash=asked.crash,
                   about=asked.about, say=print)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
