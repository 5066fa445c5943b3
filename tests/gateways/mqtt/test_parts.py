"""A filter that reaches further than its client's rights: what of it may be read is sent, by every way, and no more."""
from __future__ import annotations

import random
from itertools import product

import pytest

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.rules import ADDRESS, EVERYONE, GROUP, KINDS, TOPIC, Rule
from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import reasons
from gatehouse.kernel.addresses.address import levels_of
from gatehouse.kernel.addresses.filters import matches, parse_filter
from tests.gateways.mqtt.conversations import connect
from tests.gateways.mqtt.five import Client, publish_packet, subscribe_packet
from tests.gateways.mqtt.test_durable import leave, messages, publish, sleeper
from tests.gateways.mqtt.test_history import subscribe, values

CONSUME = frozenset((Operation.CONSUME,))
PUBLISH = Rule(True, EVERYONE, frozenset((Operation.PUBLISH, Operation.CREATE)), ADDRESS, "#")
PLANT = Rule(True, EVERYONE, CONSUME, ADDRESS, "plant/#")
SECRET = Rule(False, EVERYONE, CONSUME, ADDRESS, "plant/secret/#")
ADDRESSES = "plant/1", "plant/secret/1", "fleet/1"


def hub_with(*rules: Rule) -> FakeHub:
    hub = FakeHub()
    put_rules(hub, *rules)
    return hub


def put_rules(hub: FakeHub, *rules: Rule) -> None:
    hub.admission.configure([PUBLISH, *rules], {}, None)
    hub.kernel.flush()


def publish_everywhere(hub: FakeHub, round: str = "") -> None:
    for address in ADDRESSES:
        publish(hub, address, f"{address}{round}".encode())


@pytest.mark.parametrize(("topic_filter", "reason"), [
    ("#", 1), ("plant/#", 1), ("+/1", 1), ("plant/1", 1), ("plant/secret/#", reasons.NOT_AUTHORIZED),
    ("plant/secret/1", reasons.NOT_AUTHORIZED), ("fleet/#", reasons.NOT_AUTHORIZED), ("$SYS/#", reasons.NOT_AUTHORIZED),
    ("$share/g/#", reasons.NOT_AUTHORIZED), ("$from/earliest/fleet/#", reasons.NOT_AUTHORIZED)])
def test_a_filter_is_granted_where_some_of_it_may_be_read(topic_filter: str, reason: int) -> None:
    hub = hub_with(PLANT, SECRET, Rule(True, EVERYONE, KINDS[GROUP], GROUP, "*"),
                   Rule(True, EVERYONE, CONSUME, ADDRESS, "$SYS/broker/uptime"))
    suback = Client(hub).ask(subscribe_packet(1, (topic_filter, 1)))[0]
    assert suback.reasons == [reason]
    in_part = topic_filter in ("#", "plant/#", "+/1")
    assert ("granted in part" in str(suback.properties.values.get(0x1F))) is in_part, "the client is told"


def test_a_right_to_a_topic_is_a_part() -> None:
    hub = hub_with(Rule(True, EVERYONE, CONSUME, TOPIC, "pl*"), Rule(False, EVERYONE, CONSUME, TOPIC, "fleet"))
    client = Client(hub)
    assert client.subscribe(("#", 1), ("fleet/#", 1), ("other/#", 1)) == [1, 0x87, 0x87]
    publish_everywhere(hub)
    assert values(messages(client)) == [b"plant/1", b"plant/secret/1"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_comes_live_is_what_may_be_read(qos: int) -> None:
    hub = hub_with(PLANT, SECRET)
    client = Client(hub)
    assert client.subscribe(("#", qos), ("plant/secret/1", 2), ("plant/1", 0)) == [qos, 0x87, 0]
    publish_everywhere(hub)
    assert values(messages(client)) == [b"plant/1"]


def test_retained_values_are_those_that_may_be_read() -> None:
    hub = hub_with(PLANT, SECRET)
    sender = Client(hub, "sender")
    many = [f"plant/secret/{number}" for number in range(600)]         # pages of which nothing is left
    for at, address in enumerate([*many, "plant/0", "plant/z", "fleet/1"], 1):
        sender.send(publish_packet(address, address.encode(), at, qos=1, retain=True))
    hub.kernel.flush()
    client = Client(hub)
    assert client.subscribe(("#", 0)) == [0]
    assert sorted(values(messages(client))) == [b"plant/0", b"plant/z"]


def test_a_history_is_what_may_be_read() -> None:
    hub = hub_with(PLANT, SECRET)
    publish_everywhere(hub)
    client = Client(hub)
    assert subscribe(client, ("#", 1), begin="earliest") == [1]
    publish_everywhere(hub, " live")
    assert values(messages(client)) == [b"plant/1", b"plant/1 live"]


def test_a_sleeping_session_is_handed_what_may_be_read_when_it_wakes() -> None:
    hub = hub_with(PLANT, SECRET)
    leave(sleeper(hub, ("#", 1)))
    publish_everywhere(hub)
    put_rules(hub, PLANT, SECRET, Rule(True, EVERYONE, CONSUME, ADDRESS, "fleet/#"))
    publish_everywhere(hub, " later")
    client = sleeper(hub)
    assert values(messages(client)) == [b"plant/1", b"fleet/1", b"plant/1 later", b"fleet/1 later"]


def test_a_right_that_goes_or_comes_counts_from_then_on() -> None:
    hub = hub_with(Rule(True, EVERYONE, CONSUME, ADDRESS, "#"))
    clients = [Client(hub, "passing"), sleeper(hub), Client(hub, "other")]
    assert [client.subscribe(("#", 1)) for client in clients] == [[1], [1], [1]]
    publish_everywhere(hub)
    assert [values(messages(client)) for client in clients] == [[b"plant/1", b"plant/secret/1", b"fleet/1"]] * 3
    put_rules(hub, PLANT, SECRET)
    publish_everywhere(hub)
    assert [values(messages(client)) for client in clients] == [[b"plant/1"]] * 3
    put_rules(hub, PLANT)
    publish_everywhere(hub)
    assert [values(messages(client)) for client in clients] == [[b"plant/1", b"plant/secret/1"]] * 3
    put_rules(hub)
    assert [client.session.describe()["filters"] for client in clients] == [[], [], []]
    put_rules(hub, PLANT)
    publish_everywhere(hub)
    assert [values(messages(client)) for client in clients] == [[], [], []], "a subscription that has ended stays so"


def test_a_3_1_1_client_cannot_be_told_and_the_log_says_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    hub = hub_with(PLANT, SECRET)
    session, link = connect(hub)
    link.take()
    session.handle_data(b"\x82\6\0\1\0\1#\0")
    assert link.take() == b"\x90\3\0\1\0"
    assert "subscribe_in_part" in caplog.text and "'#' is granted in part" in caplog.text
    publish_everywhere(hub)
    assert link.take() == b"\x30\x10\0\7plant/1plant/1"


def test_nothing_is_kept_of_a_client_that_has_left() -> None:
    hub = hub_with(PLANT, SECRET)
    client = Client(hub)
    client.subscribe(("#", 1))
    switchboard = hub.services.door("mqtt")
    assert len(switchboard._judges) == 1
    leave(client)
    assert not switchboard._judges


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_rules_a_client_has_what_a_filter_for_each_address_would_give_it(seed: int) -> None:
    choice = random.Random(seed)
    words = "a", "b", "c"
    addresses = ["/".join(levels) for size in (1, 2, 3) for levels in product(words, repeat=size)]

    def pattern() -> str:
        levels = [choice.choice((*words, "+")) for _ in range(choice.randint(1, 3))]
        return "/".join([*levels, "#"] if choice.random() < 0.4 else levels)

    def rules() -> list[Rule]:
        kinds = [(choice.random() < 0.6, pattern()) for _ in range(choice.randint(1, 5))]
        return [Rule(allows, EVERYONE, CONSUME, ADDRESS, text) for allows, text in kinds]

    hub = hub_with(*rules())
    client = sleeper(hub) if seed % 2 else Client(hub)
    wanted = [text for text in (pattern() for _ in range(3)) if client.subscribe((text, 0))[0] == 0]
    for _ in range(3):
        guard = hub.services.guard("mqtt", hub.admission.anonymous, None)
        for address in addresses:
            publish(hub, address, address.encode())
        may = {address for address in addresses if guard.may_consume(address)}
        had = [text for text in wanted if text in client.session.describe()["filters"]]
        assert values(messages(client)) == [address.encode() for address in addresses if address in may and any(
            matches(parse_filter(text), levels_of(address)) for text in had)]
        for text in wanted:
            if text not in had:
                assert not any(matches(parse_filter(text), levels_of(address)) for address in may)
        wanted = had
        put_rules(hub, *rules())
