"""Rights that are taken away hold for what waits: of what has not left yet, what may not be read is dropped."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.rules import ADDRESS, EVERYONE, GROUP, KINDS, Rule
from gatehouse.gateways.contract import Session
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt.config import MqttConfig
from tests.gateways.mqtt.five import Client, publish_packet, subscribe_packet, unsubscribe_packet
from tests.gateways.mqtt.test_durable import messages, sleeper
from tests.gateways.mqtt.test_entrusted import entrusted
from tests.gateways.mqtt.test_history import subscribe, values
from tests.gateways.mqtt.test_outbox import received, send, subscriber
from tests.gateways.mqtt.test_parts import CONSUME, PLANT, PUBLISH, SECRET, hub_with, put_rules
from tests.gateways.mqtt.test_window import acks

IN_MEMORY = MqttConfig(max_inflight=1, max_unsent_bytes=100)
IN_THE_LOG = MqttConfig(max_inflight=1, max_unsent_bytes=100, max_waiting_bytes=0)
MEMBERS = Rule(True, EVERYONE, KINDS[GROUP], GROUP, "*")
BOTH = b"plant/1", b"plant/secret/1"


def dropped(hub: FakeHub) -> int:
    return hub.admission.trace.counts["mqtt", "dropped_denied"]


def all_that_waits(session: Session, link: Any) -> list[bytes]:
    """Acknowledge until nothing comes any more."""
    got: list[bytes] = []
    while True:
        batch = received(link)
        if not batch:
            return got
        got += [payload for payload, _ in batch]
        session.handle_data(acks(*[packet_id for _, packet_id in batch if packet_id]))


@pytest.mark.parametrize("config", [IN_MEMORY, IN_THE_LOG])
@pytest.mark.parametrize("topic_filter", ["plant/#", "plant/secret/1"])
def test_what_waits_for_the_window(config: MqttConfig, topic_filter: str) -> None:
    hub = hub_with(PLANT)
    session, link = subscriber(hub, topic_filter, 1, config)
    for number in range(6):
        for topic in BOTH:
            send(hub, b"%s %d" % (topic, number), topic=topic)
    put_rules(hub, PLANT, SECRET)
    [first, *rest] = all_that_waits(session, link)
    all_of_it = topic_filter == "plant/#"
    assert first == (b"plant/1 0" if all_of_it else b"plant/secret/1 0"), "it has left before"
    assert rest == ([b"plant/1 %d" % number for number in range(1, 6)] if all_of_it else [])
    assert dropped(hub) == 6 - (not all_of_it) and not link.closed
    assert session.describe() == {**session.describe(), "waiting_bytes": 0, "waiting_ranges": 0, "in_flight": 0}
    send(hub, b"later", topic=b"plant/1")
    assert all_that_waits(session, link) == ([b"later"] if all_of_it else [])


@pytest.mark.parametrize("config", [IN_MEMORY, IN_THE_LOG])
def test_what_waits_for_the_socket(config: MqttConfig) -> None:
    hub = hub_with(PLANT)
    session, link = subscriber(hub, "plant/#", 0, config)
    link.stalled = True
    send(hub, b"x" * 100, topic=b"plant/1", qos=0)
    for number in range(6):
        for topic in BOTH:
            send(hub, b"%s %d" % (topic, number), topic=topic, qos=number % 2)
    put_rules(hub, PLANT, SECRET)
    assert [len(payload) for payload, _ in received(link)] == [100]
    link.drain(session)
    assert all_that_waits(session, link) == [b"plant/1 %d" % number for number in range(6)]
    assert dropped(hub) == 6
    put_rules(hub, PLANT)
    send(hub, b"again", topic=b"plant/secret/1", qos=0)
    assert all_that_waits(session, link) == [b"again"], "a right that is given back is one"


def test_what_is_dropped_is_held_for_no_longer() -> None:
    hub = hub_with(PLANT)
    _, link = subscriber(hub, "plant/#", 1, IN_MEMORY)
    for number in range(6):
        send(hub, b"%d" % number, topic=b"plant/secret/1")
    put_rules(hub, PLANT, SECRET)
    send(hub, b"at once", topic=b"plant/1", qos=0)
    assert [payload for payload, _ in received(link)] == [b"0", b"at once"], "nothing waits that it would overtake"


def test_rights_that_change_while_the_log_is_read() -> None:
    hub = hub_with(PLANT)
    session, link = subscriber(hub, "plant/#", 1, IN_THE_LOG)
    for number in range(6):
        for topic in BOTH:
            send(hub, b"%s %d" % (topic, number), topic=topic)
    answers: list[Callable[[], None]] = []
    fetch = hub.kernel.reader.fetch_public

    def later(wants: Any, max_bytes: int, on_done: Callable[[Any], None], *how: Any) -> None:
        fetch(wants, max_bytes, lambda answer: answers.append(lambda: on_done(answer)), *how)

    hub.kernel.reader.fetch_public = later  # type: ignore[method-assign]
    assert [payload for payload, _ in received(link)] == [b"plant/1 0"]
    session.handle_data(acks(1))
    assert answers, "the log is asked"
    put_rules(hub, PLANT, SECRET)
    hub.kernel.reader.fetch_public = fetch  # type: ignore[method-assign]
    answers.pop()()
    assert all_that_waits(session, link) == [b"plant/1 %d" % number for number in range(1, 6)]
    assert dropped(hub) == 6 and not link.closed


def test_a_history() -> None:
    hub = hub_with(PLANT)
    for number in range(6):
        for topic in BOTH:
            send(hub, b"%s %d" % (topic, number), topic=topic)
    client = Client(hub, "reader", MqttConfig(max_inflight=1))
    assert subscribe(client, ("plant/#", 1), begin="earliest") == [1]
    put_rules(hub, PLANT, SECRET)
    assert values(messages(client)) == [b"plant/1 0"]
    got = []
    for packet_id in range(1, 8):
        client.send(acks(packet_id))
        got += values(messages(client))
    assert got == [b"plant/1 %d" % number for number in range(1, 6)]
    assert dropped(hub) == 6


def step_until(hub: FakeHub, condition: Callable[[], bool]) -> None:
    """A step of the hub or of its disk after the other."""
    for _ in range(1_000):
        if condition():
            return
        if not hub.kernel.world.loop.step():
            for worker in hub.kernel.world.workers:
                worker.step()
    pytest.fail("it never is")


@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_whose_packet_ids_are_on_their_way_to_the_disk(qos: int) -> None:
    hub = hub_with(PLANT)
    client = sleeper(hub, ("plant/#", qos))
    sender = Client(hub, "sender")
    sender.send(*[publish_packet(topic.decode(), topic, at, qos=qos) for at, topic in enumerate(BOTH, 1)])
    step_until(hub, lambda: client.session.describe()["in_flight"] == 2)
    assert not client.take()
    put_rules(hub, PLANT, SECRET)
    [seen] = messages(client)
    assert seen.value == b"plant/1" and client.session.describe()["in_flight"] == 1
    session = hub.kernel.sessions.describe("/", "c")
    assert session is not None and session.dropped["denied"] == 1


@pytest.mark.parametrize("topic_filter", ["plant/#", "$share/g/plant/#"])
def test_what_is_entrusted_to_a_session_and_on_its_way_to_the_disk(topic_filter: str) -> None:
    hub = hub_with(PLANT, Rule(True, EVERYONE, KINDS[GROUP], GROUP, "*"))
    client = sleeper(hub)
    sender = Client(hub, "sender")
    retained = publish_packet("plant/secret/1", b"kept", 1, qos=2, retain=True)
    if not topic_filter.startswith("$"):
        sender.ask(retained)
    client.send(subscribe_packet(1, (topic_filter, 2)))
    if topic_filter.startswith("$"):
        hub.kernel.flush()
        sender.send(retained)
    step_until(hub, lambda: client.session.describe()["in_flight"] == 1)
    put_rules(hub, PLANT, SECRET, Rule(True, EVERYONE, KINDS[GROUP], GROUP, "*"))
    assert messages(client) == []
    hub.advance(3_000)
    assert (entrusted(hub), client.session.describe()["in_flight"]) == (0, 0)


def test_of_operations_that_are_not_consuming_nothing_is_dropped() -> None:
    hub = hub_with(PLANT)
    session, link = subscriber(hub, "plant/#", 1, IN_MEMORY)
    for number in range(3):
        send(hub, b"%d" % number, topic=b"plant/secret/1")
    put_rules(hub, PLANT, Rule(False, EVERYONE, frozenset((Operation.PUBLISH,)), ADDRESS, "plant/secret/#"),
              Rule(True, EVERYONE, CONSUME, ADDRESS, "other"))
    assert all_that_waits(session, link) == [b"0", b"1", b"2"]
    assert not dropped(hub)


def change_later(hub: FakeHub, *rules: Rule) -> None:
    """Rights change, and connections are told in turns that follow, as many of them are in a hub that runs."""
    hub.admission._registry._loop = hub.world.loop
    hub.admission.configure([PUBLISH, *rules], {}, None)


@pytest.mark.parametrize("config", [IN_MEMORY, IN_THE_LOG])
def test_what_waits_for_a_client_that_has_not_been_told_yet(config: MqttConfig) -> None:
    hub = hub_with(PLANT)
    session, link = subscriber(hub, "plant/#", 1, config)
    for topic in BOTH * 3:
        send(hub, topic, topic=topic)
    change_later(hub, PLANT, SECRET)
    assert all_that_waits(session, link) == [b"plant/1"] * 3
    assert dropped(hub) == 3 and not link.closed


@pytest.mark.parametrize("left", [(PLANT, SECRET), ()])
def test_retained_values_whose_client_has_not_been_told_of_its_rights_yet(left: tuple[Rule, ...]) -> None:
    hub = hub_with(PLANT)
    sender = Client(hub, "sender")
    for at, topic in enumerate(("plant/1", "plant/secret/1", "plant/2", "plant/secret/2", "plant/z"), 1):
        sender.send(publish_packet(topic, topic.encode(), at, qos=1, retain=True))
    hub.kernel.flush()
    client = Client(hub, "c", MqttConfig(max_inflight=1))
    assert client.subscribe(("plant/#", 1)) == [1]
    got = values(messages(client))
    change_later(hub, *left)
    for packet_id in range(1, 6):
        client.send(acks(packet_id))
        got += values(messages(client))
    assert not client.link.closed
    assert got == ([b"plant/1", b"plant/2", b"plant/z"] if left else [b"plant/1"])


@pytest.mark.parametrize("left", [(PLANT,), (PLANT, SECRET, MEMBERS), (MEMBERS,)])
def test_what_waits_of_a_shared_subscription_whose_client_has_not_been_told_yet(left: tuple[Rule, ...]) -> None:
    hub = hub_with(PLANT, MEMBERS)
    session, link = subscriber(hub, "$share/g/plant/#", 1, IN_MEMORY)
    for number in range(3):
        send(hub, b"%d" % number, topic=b"plant/secret/1")
    change_later(hub, *left)
    assert all_that_waits(session, link) == [b"0"], "it has left before"
    assert not link.closed


@pytest.mark.parametrize("topic_filter", ["$txn/check/g", "$txn/half/g", "$txn/decided"])
def test_what_is_told_of_half_messages_takes_the_right_to_them_in_a_session_too(topic_filter: str) -> None:
    hub = hub_with(PLANT, MEMBERS)
    sleeper(hub, (topic_filter, 1)).ask(b"\xe0\x00")
    client = sleeper(hub)
    assert client.session.describe()["filters"] == [topic_filter], "it is resumed"
    assert client.ask(unsubscribe_packet(2, topic_filter))[0].reasons == [0]
    assert client.ask(subscribe_packet(3, (topic_filter, 1)))[0].reasons == [1]
    client.ask(b"\xe0\x00")
    put_rules(hub, PLANT)
    client = sleeper(hub)
    kept = [] if topic_filter.endswith("/g") else [topic_filter]
    assert client.session.describe()["filters"] == kept
    described = hub.kernel.sessions.describe("/", "c")
    assert described is not None and [each.filter for each in described.subscriptions] == kept
