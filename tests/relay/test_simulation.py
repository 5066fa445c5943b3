"""Two kernels, a meeting point and a network that drops, doubles, holds back and cuts; either hub crashes at a write.

Each seed is a run of its own. What must hold at the end: the other hub has exactly what this one has on its disk, each
message once, in the order of its key; what was acknowledged is among it. `GATEHOUSE_EXAMPLES=random` takes other seeds.
"""
from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from gatehouse.kernel.settings import KernelSettings
from gatehouse.relay.settings import LinkSettings
from tests.relay.network import Network, TestHub, carried
from tests.simulation.disk import Crash, SimDisk
from tests.simulation.store import SimStore

RUNS = 40
OTHERS = os.environ.get("GATEHOUSE_EXAMPLES") == "random"
SEEDS = [random.randrange(1 << 30) if OTHERS else seed for seed in range(RUNS)]
ROUNDS = 60
KEYS = 4


def sim_hub(name: str, link: LinkSettings, rng: random.Random, seed: int) -> TestHub:
    disk = SimDisk(random.Random(f"disk {name} {seed}"))
    store = SimStore(random.Random(f"store {name} {seed}"), disk.operate)
    return TestHub(name, [link], rng, disk=disk, store=store,
                   settings=KernelSettings(segment_bytes=1 << 20, checkpoint_ms=500))


class Weather:
    """What the network does to one frame."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.calm = False
        self.held: dict[tuple[str, bool], list[bytes]] = {}

    def __call__(self, hub: TestHub, frame: bytes, up: bool) -> list[bytes]:
        waiting = self.held.pop((hub.name, up), [])
        if self.calm or not carried(frame):
            return [*waiting, frame]
        match self.rng.randrange(40):
            case 0:
                return waiting                                   # lost
            case 1:
                return [*waiting, frame, frame]
            case 2:
                self.held[hub.name, up] = [*waiting, frame]      # comes behind the next
                return []
            case 3:
                hub.cable.cut = True                             # in the middle of what was sent
                return waiting
            case 4:
                changed = bytearray(frame)
                changed[self.rng.randrange(17, len(frame))] ^= 1 << self.rng.randrange(8)
                return [*waiting, bytes(changed)]
        return [frame, *waiting]


def safely(hub: TestHub, rng: random.Random, act) -> bool:
    """Run something that may meet a crash of this hub; False where it did, and the hub is up again."""
    try:
        act()
        return True
    except Crash:
        hub.crash(rng.choice(("kill", "power")))
        return False


@pytest.mark.parametrize("seed", SEEDS)
def test_both_have_the_same_at_the_end(seed: int, tmp_path: Path) -> None:
    """Of every other seed the meeting point keeps letters, and hubs are away for a while."""
    rng = random.Random(seed)
    spool = seed % 2 == 1
    sent = LinkSettings("link", send=("plant/#", "half/x/#"), receive=("back/#",),
                        start=rng.choice(("earliest", "now")), spool=spool)
    left = sim_hub("left", sent, rng, seed)
    right = sim_hub("right", LinkSettings("link", send=("back/#",), receive=("plant/#", "half/#"), spool=spool), rng,
                    seed)
    network = Network(left, right, rng=rng, **({"spool": str(tmp_path)} if spool else {}))
    weather = network.change = Weather(rng)
    weather.calm = True
    network.join(left, right, "link")
    network.settle()
    assert left.state("link") == "open", left.links.describe()
    weather.calm = False
    acknowledged: Counter[bytes] = Counter()
    for number in range(ROUNDS):
        for hub, topics in ((left, ("plant", "half")), (right, ("back",))):
            topic = rng.choice(topics)
            address = f"{topic}/{rng.choice('xy')}/{rng.randrange(KEYS)}" if topic == "half" \
                else f"{topic}/{rng.randrange(KEYS)}"
            values = [b"%s %d.%d" % (topic.encode(), number, at) for at in range(rng.randrange(1, 4))]

            def publish(hub=hub, address=address, values=values) -> None:
                hub.rig.publish(address, *values)

            if safely(hub, rng, publish) and not address.startswith("half/y"):
                acknowledged.update(values)
        if rng.randrange(3) == 0:
            victim = rng.choice(network.hubs)
            victim.rig.disk.crash_after(rng.randrange(1, 12), rng.choice(("before", "during", "after")))
        for _ in range(rng.randrange(6)):
            move(network, rng)
        if rng.randrange(15) == 0:
            network.replace_relay()
        if spool and rng.randrange(4) == 0:
            network.away = [rng.choice(network.hubs)] if not network.away else []
            for hub in network.away:
                network.cut(hub)
        if rng.randrange(20) == 0 and left.rig.kernel.topic("plant") is not None:
            partitions = left.rig.kernel.topic("plant").partitions + rng.randrange(1, 3)
            safely(left, rng, lambda partitions=partitions: widen(left, partitions))
    weather.calm = True
    network.away = []
    for hub in network.hubs:
        hub.rig.disk.crash_at = None
        if hub.state("link") == "stopped":   # else it goes on by itself: its circuit may be open for ten minutes
            hub.links.resume("link")
        hub.rig.run()
    for _ in range(160):
        move(network, rng, 5_000)
    network.settle(30)
    check(network, left, right, acknowledged)


def widen(hub: TestHub, partitions: int) -> None:
    hub.rig.kernel.change_topic("plant", partitions=partitions)
    hub.rig.run()


def move(network: Network, rng: random.Random, by_ms: int = 250) -> None:
    """One turn of each, and time passes; whoever crashes is up again."""
    for hub in list(network.hubs):
        safely(hub, rng, lambda hub=hub: network.turn_of(hub))
    for hub in list(network.hubs):
        safely(hub, rng, lambda hub=hub: network.tick_of(hub, by_ms))


def check(network: Network, left: TestHub, right: TestHub, acknowledged: Counter[bytes]) -> None:
    shown = left.links.describe(), right.links.describe(), left.events[-5:], right.events[-5:]
    for source, target, topics in ((left, right, ("plant", "half")), (right, left, ("back",))):
        for topic in topics:
            if source.rig.kernel.topic(topic) is None:
                continue
            stored = [record for record in source.rig.read(topic) if topic != "half" or record[2].startswith(b"x")]
            came = target.rig.read(topic) if target.rig.kernel.topic(topic) is not None else []
            assert Counter(record[3] for record in came) == Counter(record[3] for record in stored), (topic, shown)
            assert not [value for value, times in Counter(record[3] for record in came).items() if times > 1], topic
            for key in {record[2] for record in came}:
                assert in_order(came, key), (topic, key)
    values = {record[3] for hub in (left, right) for topic in ("plant", "half", "back")
              if hub.rig.kernel.topic(topic) is not None for record in hub.rig.read(topic)}
    assert values >= acknowledged.keys()


def in_order(records, key: bytes) -> bool:
    numbers = [tuple(int(part) for part in record[3].split(b" ")[1].split(b".")) for record in records
               if record[2] == key]
    return numbers == sorted(numbers)
