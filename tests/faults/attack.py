"""`python -m tests.faults.attack --kills 200 --seed 1`: everything at once, and every promise checked.

Rounds of a `Campaign` (load through every door, a kill, a restart, a check) while hostile peers are at work
(`hostile`), the wall clock steps, the disk is full now and then, and bits are flipped in files at rest (`bit_flips`). A
message may be lost only if a bit was flipped in the frame that held it.
"""
from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.faults.bit_flips import flip
from tests.faults.campaign import Campaign, Plan
from tests.faults.hostile import Garbage, LoginFlood, PoisonProducer, StalledReaders, make_guard
from tests.faults.nursery import ForkedHub, Nursery

ATTACKED: Final = Plan("checkpoint_ms = 100\nsegment_bytes = 1048576", False, 500, (0.5, 1.5))
CAMPAIGN_ROUNDS: Final = 25        # on one data folder, so that reading all of it stays quick
HOUR_S: Final = 3600
STEPS_S: Final = (-HOUR_S, HOUR_S, -24 * HOUR_S, 30 * 24 * HOUR_S)
FLIPPED_SHARE: Final = 0.5         # of the rounds
STEPPED_SHARE: Final = 0.4
FULL_SHARE: Final = 0.2
MEMORY_MAX: Final = 1 << 30        # resident bytes of a hub


class Attack(Campaign):
    """One data folder under attack. Counts what was done to it."""

    def __init__(self, nursery: Nursery, folder: Path, seed: int) -> None:
        super().__init__(nursery, folder, ATTACKED, seed)
        self.poison = PoisonProducer()
        self.logins = LoginFlood(seed)
        self.garbage = Garbage(seed)
        self.done: Counter[str] = Counter()
        self.peak_bytes = 0
        self.gaps = []

    def _orders(self) -> dict[str, Any]:
        orders = super()._orders()
        if self._random.random() < STEPPED_SHARE:
            step_s = self._random.choice(STEPS_S)
            orders["clock"] = [[0.1, step_s], [0.4, 0]] if self._random.random() < 0.5 else [[0, step_s]]
            self.done["clock steps"] += 1
        if self._random.random() < FULL_SHARE:
            orders["full"] = {"call": self._random.randint(20, 200), "calls": self._random.randint(1, 20)}
            self.done["full disks"] += 1
        return orders

    def _jobs(self, stop: threading.Event) -> list[partial[None]]:
        http, kafka = self.ports["http"], self.ports["kafka"]
        make_guard(http)
        return [*super()._jobs(stop), partial(self.poison.run, kafka, stop), partial(self.logins.flood, http, stop),
                partial(self.logins.log_in, http, stop), partial(StalledReaders.run, self.ports, stop),
                partial(self.garbage.run, self.ports, stop)]

    def _look_at(self, hub: ForkedHub) -> None:
        try:
            resident = int(Path(f"/proc/{hub.pid}/statm").read_text().split()[1]) * 4096
        except (FileNotFoundError, IndexError):
            return
        self.peak_bytes = max(self.peak_bytes, resident)
        assert resident < MEMORY_MAX, f"the hub holds {resident >> 20} MiB"

    def _between(self) -> None:
        super()._between()
        if self._random.random() < FLIPPED_SHARE:
            flipped = flip(self._folder / "data", self._random)
            if flipped is not None:
                self.log.note(f"flipped: {flipped.kind}, {flipped.file.name} at {flipped.at}, "
                              f"{len(flipped.lost)} messages at stake")
                self.done[f"flips: {flipped.kind}"] += 1
                self.done["messages in flipped frames"] += len(flipped.lost)
                self.checker.forgive(flipped.lost)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.attack", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    nursery, done = Nursery(), Counter[str]()
    number = slowest_ms = peak_bytes = 0
    try:
        while done["kills"] < arguments.kills:
            seed, number = arguments.seed * 1000 + number, number + 1
            folder = Path(tempfile.mkdtemp(prefix="gatehouse-attack-"))
            print(f"attack {number}, seed {seed}, in {folder}", flush=True)
            attack = Attack(nursery, folder, seed)
            attack.run(min(CAMPAIGN_ROUNDS, arguments.kills - done["kills"]))
            done += attack.done
            done += Counter({
                "kills": attack.kills, "messages": len(attack.log.operations), "poison batches": attack.poison.refused,
                "wrong logins": attack.logins.wrong, "right logins": attack.logins.right,
                "bytes of garbage": attack.garbage.sent})
            slowest_ms = max(slowest_ms, int(1000 * attack.logins.slowest_s))
            peak_bytes = max(peak_bytes, attack.peak_bytes)
            shutil.rmtree(folder)
    finally:
        nursery.close()
    for what, count in sorted(done.items()):
        print(f"{count:>10} {what}")
    print(f"{slowest_ms:>10} ms, the slowest right login; {peak_bytes >> 20} MiB, the largest hub; every promise kept")


if __name__ == "__main__":
    main()
