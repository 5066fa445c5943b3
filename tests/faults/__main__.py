"""`python -m tests.faults --rounds 1000 --seed 7`: kill hubs for as long as it takes. Part of `make soak`."""
from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Final

from tests.faults.campaign import DURABLE, SMALL_SEGMENTS, Campaign
from tests.faults.nursery import Nursery

CAMPAIGN_ROUNDS: Final = 50        # on one data directory, so that reading all of it stays quick


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    nursery = Nursery()
    kills = inside = messages = 0
    try:
        for number, first in enumerate(range(0, arguments.rounds, CAMPAIGN_ROUNDS)):
            seed, plan = arguments.seed * 1000 + number, (DURABLE, SMALL_SEGMENTS)[number % 2]
            folder = Path(tempfile.mkdtemp(prefix="gatehouse-faults-"))
            print(f"campaign {number}, seed {seed}, in {folder}", flush=True)
            campaign = Campaign(nursery, folder, plan, seed)
            campaign.run(min(CAMPAIGN_ROUNDS, arguments.rounds - first))
            kills, inside = kills + campaign.kills, inside + campaign.inside
            messages += len(campaign.log.operations)
            shutil.rmtree(folder)
    finally:
        nursery.close()
    print(f"{kills} kills, {inside} of them at chosen places; {messages} messages, every promise kept")


if __name__ == "__main__":
    main()
