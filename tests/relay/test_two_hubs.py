"""Two hubs and a meeting point in one thread: what arrives, once, in order, whatever is cut or killed."""
from __future__ import annotations

import random

from gatehouse.kernel.log.log import Log
from gatehouse.relay.settings import LinkSettings
from tests.relay.network import Network, TestHub


def pair(seed: int = 1, a: dict | None = None, b: dict | None = None, logs: tuple[Log | None, Log | None] = (None, None)
         ) -> tuple[Network, TestHub, TestHub]:
    rng = random.Random(seed)
    left = TestHub("left", [LinkSettings("link", **(a or {"send": ("plant/#",)}))], rng, log=logs[0])
    right = TestHub("right", [LinkSettings("link", **(b or {"receive": ("plant/#",)}))], rng, log=logs[1])
    network = Network(left, right, rng=rng)
    network.join(left, right, "link")
    network.settle()
    return network, left, right


def test_what_is_published_here_arrives_there() -> None:
    network, left, right = pair()
    assert (left.state("link"), right.state("link")) == ("open", "open")
    left.rig.publish("plant/a", b"1", b"2", headers=[(b"h", b"v")])
    network.settle()
    records = right.rig.read("plant")
    assert [(record[2], record[3]) for record in records] == [(b"a", b"1"), (b"a", b"2")]
    assert (b"h", b"v") in records[0][4]


def test_what_was_stored_before_arrives_too_and_what_is_not_allowed_does_not() -> None:
    network, left, right = pair(a={"send": ("plant/#", "secret/#")})
    left.rig.publish("plant/a", b"1")
    left.rig.publish("secret/a", b"2")
    left.rig.publish("other/a", b"3")
    network.settle()
    assert right.values("plant") == [b"1"]
    assert right.rig.kernel.topic("secret") is None and right.rig.kernel.topic("other") is None


def test_a_crash_on_either_side_loses_and_doubles_nothing() -> None:
    network, left, right = pair(3)
    rng = random.Random(5)
    sent = []
    for number in range(60):
        value = b"%d" % number
        left.rig.publish(f"plant/{number % 5}", value)
        sent.append(value)
        for _ in range(rng.randrange(4)):
            network.turn()
        network.tick()
        match rng.randrange(6):
            case 0:
                left.crash()
            case 1:
                right.crash()
            case 2:
                network.replace_relay()
            case 3:
                network.cut(rng.choice(network.hubs))
    network.settle(400)
    assert right.values("plant") == sorted(sent), (left.links.describe(), right.links.describe())
    for key in range(5):
        mine = [int(value) for record in right.rig.read("plant")
                if record[2] == b"%d" % key for value in [record[3]]]
        assert mine == sorted(mine)


def test_a_burst_keeps_its_order() -> None:
    network, left, right = pair()
    left.rig.publish("plant/a", *[b"%d" % number for number in range(100)])
    network.settle()
    assert [record[3] for record in right.rig.read("plant")] == [b"%d" % number for number in range(100)]
