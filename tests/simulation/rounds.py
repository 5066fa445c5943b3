"""Many simulations, one after the other: each seed once, or once per disk operation with the crash there."""
from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from random import Random

from tests.simulation.disk import CrashAt, CrashKind, Moment
from tests.simulation.plan import ABOUT, make_plan
from tests.simulation.simulator import Simulation

LAST_STEPS = 12          # shown of a plan that failed


class Failure(Exception):
    """One simulation failed; the text says what, how far it came, and how to see it again."""


def simulate(seed: int, length: int, crash_at: CrashAt | None = None, crash_kind: CrashKind | None = None,
             about: str = "") -> Simulation:
    """One simulation, of what `ABOUT` names or of everything else. Raises Failure."""
    simulation = Simulation(make_plan(seed, length, ABOUT.get(about)), crash_at, crash_kind)
    try:
        simulation.run()
    except Exception as error:
        where = f" --about {about}" if about else ""
        where += "" if crash_at is None else f" --crash {crash_at.number}:{crash_at.moment}:{crash_kind}"
        steps = "\n".join(f"  {step}" for step in simulation.done[-LAST_STEPS:])
        cause = "".join(traceback.format_exception(error)[-4:])
        raise Failure(f"seed {seed} failed at step {len(simulation.done)} of {length}: {error}\n{cause}"
                      f"the last steps:\n{steps}\nagain: python -m tests.simulation {seed} --rounds 1 --length {length}"
                      f"{where}") from error
    return simulation


def crash_at_every_write(seed: int, length: int, about: str = "") -> int:
    """Run a plan, then again with a crash at each of its disk operations; returns how many there were."""
    operations = simulate(seed, length, about=about).hub.disk.operations
    for number in range(1, operations + 1):
        random = Random(f"{seed} {number}")
        moments: tuple[Moment, ...] = ("before", "during", "after")
        kinds: tuple[CrashKind, ...] = ("power", "power", "kill")
        simulate(seed, length, CrashAt(number, random.choice(moments)), random.choice(kinds), about)
    return operations


def run_rounds(first: int, rounds: int, length: int, *, every_write: bool = False, crash: str | None = None,
               about: str = "", say: Callable[[str], None]) -> None:
    """Raises Failure at the first seed that fails."""
    begun = time.monotonic()
    runs = 0
    for seed in range(first, first + rounds):
        if crash is not None:
            number, moment, kind = crash.split(":")
            simulate(seed, length, CrashAt(int(number), moment), kind, about)  # type: ignore[arg-type]
            runs += 1
        elif every_write:
            runs += 1 + crash_at_every_write(seed, length, about)
        else:
            simulate(seed, length, about=about)
            runs += 1
        if (seed - first) % 10 == 9 or seed == first + rounds - 1:
            took_s = time.monotonic() - begun
            say(f"seeds {first} to {seed}: {runs} simulations, {runs / max(took_s, 0.001):.1f} a second, none failed")
