"""Queues that are answered across a link: by an address that who was asked knows, and nobody else."""
from __future__ import annotations

import random

import pytest

from gatehouse.kernel.message import RETAIN
from gatehouse.relay.incoming import PARKED_TOPIC
from gatehouse.relay.settings import LinkSettings
from tests.relay.network import Network, TestHub

ASKS = {"send": ("plant/#",), "receive": ("answers/#",), "replies": "answers/queues"}
SERVES = {"send": ("answers/#",), "receive": ("plant/#",)}


def pair(**asks: object) -> tuple[Network, TestHub, TestHub]:
    rng = random.Random(7)
    left = TestHub("left", [LinkSettings("link", **{**ASKS, **asks})], rng)
    right = TestHub("right", [LinkSettings("link", **SERVES)], rng)
    network = Network(left, right, rng=rng)
    network.join(left, right, "link")
    declare(left, "desk 1")
    network.settle()
    return network, left, right


def declare(hub: TestHub, name: str) -> None:
    hub.rig.kernel.groups.declare_queue(name)
    hub.rig.run()


def in_queue(hub: TestHub, name: str) -> list[tuple[bytes | None, dict[bytes, bytes | None], int]]:
    queue = hub.rig.kernel.groups.queue(name, "/")
    return [(record[3], dict(record[4]), record[5]) for record in hub.rig.read_partition(queue.partition_id(0))]


def ask(network: Network, left: TestHub, right: TestHub, queue: bytes) -> str:
    """Where an answer is wanted, as the other hub is told."""
    left.rig.publish("plant/1", b"?", headers=[(b"a", b"1"), (b"reply-to", b"$queue/" + queue), (b"b", b"2")])
    network.settle()
    headers = right.rig.read("plant")[-1][4]
    assert [name for name, _ in headers][:3] == [b"a", b"reply-to", b"b"]
    return dict(headers)[b"reply-to"].decode()


def test_an_answer_comes_to_the_queue_that_asked() -> None:
    network, left, right = pair()
    address = ask(network, left, right, b"desk 1")
    assert address.startswith("answers/queues/") and address.endswith("/desk 1")
    right.rig.publish(address, b"!", headers=[(b"correlation-id", b"7")], attributes=RETAIN | 2)
    network.settle()
    (value, headers, attributes), = in_queue(left, "desk 1")
    assert (value, headers[b"correlation-id"], attributes & RETAIN) == (b"!", b"7", 0)
    assert left.rig.kernel.topic("answers") is None, "it lies in the queue alone"


def test_what_asks_is_told_the_same_after_a_crash_and_its_own_log_stays_as_it_was() -> None:
    network, left, right = pair()
    address = ask(network, left, right, b"desk 1")
    left.crash()
    right.crash()
    network.settle(20)
    assert ask(network, left, right, b"desk 1") == address
    assert {dict(record[4])[b"reply-to"] for record in left.rig.read("plant")} == {b"$queue/desk 1"}


def test_a_queue_that_is_made_anew_gets_what_comes_then_and_one_that_is_gone_has_it_parked() -> None:
    network, left, right = pair()
    address = ask(network, left, right, b"desk 1")
    right.rig.publish(address, b"1")
    network.settle()
    left.rig.kernel.groups.delete_queue(left.rig.kernel.groups.queue("desk 1", "/"))
    left.rig.run()
    right.rig.publish(address, b"2")
    network.settle()
    assert left.state("link") == "open"
    parked, = left.rig.read(PARKED_TOPIC)
    assert parked[3] == b"2" and dict(parked[4])[b"relay-refused"].startswith(b"unknown_queue: ")
    declare(left, "desk 1")
    right.rig.publish(address, b"3")
    network.settle()
    assert [value for value, _, _ in in_queue(left, "desk 1")] == [b"3"]


def test_nothing_comes_into_a_queue_that_did_not_ask() -> None:
    network, left, right = pair()
    declare(left, "safe")
    address = ask(network, left, right, b"desk 1")
    tag = address.split("/")[2]
    forged = [f"answers/queues/{tag}/safe", f"answers/queues/{'0' * 16}/desk 1", "answers/queues/desk 1",
              f"answers/queues/{tag}", f"answers/queues/{tag}/desk 1/more"]
    for name in forged:
        right.rig.publish(name, b"forged")
    network.settle()
    assert in_queue(left, "safe") == in_queue(left, "desk 1") == []
    assert len(left.rig.read("answers")) == len(forged), "these are messages as any other"
    left.denied.add("$queue/desk 1")
    left.rights = object()
    right.rig.publish(address, b"without the right")
    network.settle()
    assert in_queue(left, "desk 1") == []


@pytest.mark.parametrize("name", [b"$queue/amq.rabbitmq.reply-to.g1h2", b"answers/desk1"])
def test_what_is_no_queue_stays_as_it_is(name: bytes) -> None:
    network, left, right = pair()
    left.rig.publish("plant/1", b"?", headers=[(b"reply-to", name), (b"x", b"$queue/desk 1")])
    network.settle()
    assert dict(right.rig.read("plant")[0][4])[b"reply-to"] == name


def test_without_the_setting_nothing_is_changed() -> None:
    network, left, right = pair(replies="")
    left.rig.publish("plant/1", b"?", headers=[(b"reply-to", b"$queue/desk 1")])
    network.settle()
    assert dict(right.rig.read("plant")[0][4])[b"reply-to"] == b"$queue/desk 1"


@pytest.mark.parametrize("replies", ["other", "answers/+", "answers/#", "answers/../up", "$queue"])
def test_an_address_that_does_not_come_back_is_refused(replies: str) -> None:
    with pytest.raises(ValueError, match="replies"):
        LinkSettings("link", **{**ASKS, "replies": replies})
