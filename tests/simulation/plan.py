"""From a seed: the hub's settings and a list of steps. A step is a verb and numbers; what the numbers mean at that
moment is decided when it is run, so that any step can be left out of a plan and the rest still makes sense.
"""
from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from gatehouse.kernel.settings import KernelSettings

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
    "produce": 12,  # producer, topic, partition, count: the producer's next batch, or those it has no answer for
    "repeat_batch": 3,       # producer, partition: one of its last batches again
    "new_producer": 2,
    "create_topic": 2,       # topic, partitions, setting
    "change_topic": 2,       # topic, partitions, setting
    "delete_topic": 1,       # topic
    "commit": 6,             # group, topic, partition
    "retain": 6,             # client, address, size
    "subscribe": 2,          # listener, filter
    "unsubscribe": 1,        # listener
    "fetch": 6,              # topic, partition, offset, bytes
    "schedule": 8,           # key, delay, count, repeat
    "recall": 3,             # which
    "begin_half": 8,         # key, count, size, group
    "add_half": 2,           # which, key, count, size
    "decide_half": 9,        # which, decision, again
    "join_senders": 2,       # credit
    "leave_senders": 2,      # which
    "check_half": 1,         # which
    "send_work": 10,         # key, count, size: to a topic that groups lease from
    "pop_work": 10,          # group, count, invisible time
    "join_work": 3,          # group, credit
    "leave_work": 1,         # which
    "more_credit": 3,        # which, credit
    "ack_work": 10,          # group, count, first
    "reject_work": 1,        # group, first
    "release_work": 4,       # group, count, first, delay
    "extend_work": 2,        # group, count, first, invisible time
    "mqtt_publish": 10,      # client, address, count, size: QoS 1 over the real door
    "mqtt_subscribe": 2,     # -, filter
    "kafka_fetch": 4,        # topic, partition, offset, bytes; every second producer produces over the Kafka door too
    "cut_wire": 1,
    "run_some": 30,          # how many small steps of loop and workers, in random order
    "settle": 6,             # until nothing is left to do
    "advance": 8,            # by ms
    "set_clock": 2,          # the wall clock, by how much; and whether before the next start
    "check": 2,              # read everything
    "stop": 1,               # a clean stop and a start
    "kill": 1,
    "cut_power": 2,
    "lose_index": 1,         # a clean or dirty end, the index folder is deleted, a start
    "fill_disk": 1,          # bytes left: full for some publishes
    "break_disk": 1,         # which error, after how many operations
}

RETENTION: Final[dict[str, int]] = {
    **WEIGHTS, "publish": 30, "advance": 25, "publish_once": 15, "create_topic": 4, "delete_topic": 3, "commit": 12,
}
"""For plans whose log turns over many times."""


ASSIGNED: Final[dict[str, int]] = {
    "join_member": 40,       # member, protocol
    "sync_member": 40,       # member
    "beat_member": 12,       # member
    "commit_member": 20,     # member, topic, partition, offset
    "leave_member": 3,       # member
    "publish": 6,
    "create_topic": 3,
    "delete_topic": 1,
    "run_some": 40,
    "settle": 10,
    "advance": 12,
    "stop": 2,
    "kill": 3,
    "cut_power": 3,
    "lose_index": 1,
    "fill_disk": 1,
    "break_disk": 1,
}
"""For plans about members of assigned groups."""


SLEEPERS: Final[dict[str, int]] = {
    "wake_device": 30,       # device, window
    "sleep_device": 6,       # device
    "subscribe_device": 15,  # device, filter
    "send_exact": 50,        # device, address
    "read_device": 50,       # device, count
    "publish": 4,
    "run_some": 50,
    "settle": 8,
    "advance": 10,
    "stop": 2,
    "kill": 4,
    "cut_power": 4,
    "lose_index": 1,
    "fill_disk": 2,
    "break_disk": 2,
}
"""For plans about devices with sessions."""


CONSUMERS: Final[dict[str, int]] = {
    "beat_consumer": 80,     # member, what it says
    "leave_consumer": 3,     # member, whether for a while
    "add_partitions": 2,     # topic
    "publish": 4,
    "create_topic": 3,
    "delete_topic": 1,
    "run_some": 40,
    "settle": 12,
    "advance": 12,
    "stop": 2,
    "kill": 3,
    "cut_power": 3,
    "lose_index": 1,
    "fill_disk": 1,
    "break_disk": 1,
}
"""For plans about members of consumer groups, for which the hub assigns."""


ABOUT: Final = {"assigned": ASSIGNED, "consumers": CONSUMERS, "sleepers": SLEEPERS}
"""What a plan can be about alone."""


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
        default_partitions=random.choice((1, 2, 3)),
        idempotency_ms=random.choice((20_000, 3_600_000)),
        max_idempotency_keys=random.choice((6, 1_000)),
        max_message_bytes=200_000,
    )


def turning_over(random: Random) -> KernelSettings:
    """Settings under which little stays in the log."""
    return replace(settings_from(random), segment_bytes=12 << 10, retention_bytes=random.choice((36 << 10, 60 << 10)),
                   retention_ms=random.choice((NEVER, 60_000)), kept_bytes=random.choice((NEVER, 16 << 10)),
                   checkpoint_ms=random.choice((500, 2_000)), idempotency_ms=20_000, max_idempotency_keys=6)


def make_plan(seed: int, length: int, weights: dict[str, int] | None = None) -> Plan:
    """Every third seed is about retention, unless it is said which steps come how often."""
    random = Random(seed)
    weights = weights or (RETENTION if seed % 3 == 0 else WEIGHTS)
    settings = turning_over(random) if seed % 3 == 0 else settings_from(random)
    steps = [Step(verb, (random.randrange(1 << 16), random.randrange(1 << 16), random.randrange(1 << 16),
                         random.randrange(1 << 16)))
             for verb in random.choices(list(weights), list(weights.values()), k=length)]
    return Plan(seed, settings, steps)
