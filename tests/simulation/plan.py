"""From a seed: the hub's settings and a list of steps. A step is a verb and numbers; what the numbers mean at that moment is
decided when it is run, so that any step can be left out of a plan and the rest still makes sense.
"""
from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from kernel.settings import KernelSettings

NEVER: Final = 1 << 50


class Step(NamedTuple):
    verb: str
    numbers: tuple[int, int, int, int]

    def __str__(self) -> str:
        return f"{self.verb} {' '.join(map(str, self.numbers))}"


WEIGHTS: Final[dict[str, int]] = {
    "publish": 20,           # client, address, count, size
    "scatter": 6,            # client, count, size: one call, many addresses
    "publish_once": 8,       # client, address, size: with an idempotency key
    "repeat_once": 5,        # which: the same key and message again
    "produce": 12,           # producer, topic, queue, count: the producer's next batch, or those it has no answer for
    "repeat_batch": 3,       # producer, queue: one of its last batches again
    "new_producer": 2,
    "create_topic": 2,       # topic, queues, setting
    "change_topic": 2,       # topic, queues, setting
    "delete_topic": 1,       # topic
    "commit": 6,             # group, topic, queue
    "subscribe": 2,          # listener, filter
    "unsubscribe": 1,        # listener
    "fetch": 6,              # topic, queue, offset, bytes
    "run": 30,               # how many small steps of loop and workers, in random order
    "settle": 6,             # until nothing is left to do
    "advance": 8,            # by ms
    "check": 2,              # read everything
    "stop": 1,               # a clean stop and a start
    "kill": 1,
    "cut_power": 2,
    "lose_index": 1,         # a clean or dirty end, the index folder is deleted, a start
    "fill_disk": 1,          # bytes left; "free_disk" comes by itself some steps later
}


class Plan(NamedTuple):
    seed: int
    settings: KernelSettings
    steps: list[Step]


def settings_from(random: Random) -> KernelSettings:
    segment_bytes = random.choice((16 << 10, 64 << 10, 1 << 20))
    return KernelSettings(
        segment_bytes=segment_bytes,
        retention_bytes=random.choice((NEVER, NEVER, 4 * segment_bytes)),
        retention_ms=random.choice((NEVER, NEVER, 60_000)),
        kept_bytes=random.choice((NEVER, 2 * segment_bytes)),
        checkpoint_bytes=random.choice((4 << 10, 64 << 20)),
        checkpoint_ms=random.choice((500, 2_000, 30_000)),
        recent_bytes=random.choice((1 << 10, 1 << 20)),
        default_queues=random.choice((1, 2, 3)),
        idempotency_ms=random.choice((20_000, 3_600_000)),
        max_idempotency_keys=random.choice((6, 1_000)),
        max_message_bytes=200_000,
    )


def make_plan(seed: int, length: int, **fixed: object) -> Plan:
    """`fixed` replaces settings."""
    random = Random(seed)
    settings = settings_from(random)
    if fixed:
        values = {name: getattr(settings, name) for name in KernelSettings.__slots__}
        settings = KernelSettings(**{**values, **fixed})
    verbs, weights = list(WEIGHTS), list(WEIGHTS.values())
    steps = []
    for verb in random.choices(verbs, weights, k=length):
        steps.append(Step(verb, (random.randrange(1 << 16), random.randrange(1 << 16), random.randrange(1 << 16),
                                 random.randrange(1 << 16))))
    return Plan(seed, settings, steps)
