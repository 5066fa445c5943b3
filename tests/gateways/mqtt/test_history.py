"""History first, then live: a SUBSCRIBE with `from`, `$from/TIME/FILTER`, and a selector of what comes."""
from __future__ import annotations

import random

import pytest

from gatehouse.gateways.kit import FakeHub
from gatehouse.gateways.mqtt import reasons
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.mqtt.history import Begin, begin_of
from gatehouse.gateways.mqtt.packets import RETAIN_AS_PUBLISHED
from gatehouse.gateways.mqtt.properties import SUBSCRIPTION_ID, USER, Packet
from tests.gateways.mqtt.five import (
    Client,
    Seen,
    ack_packet,
    packet,
    publish_packet,
    subscribe_packet,
    unsubscribe_packet,
)
from tests.gateways.mqtt.test_durable import PUBACK, leave, messages, publish, sleeper

NOW_MS = 1_700_000_000_000


def asked(begin: str | None = None, selector: str | None = None, identifier: int = 0) -> list[tuple[int, object]]:
    return ([(USER, ("from", begin))] if begin is not None else []) \
        + ([(USER, ("selector", selector))] if selector is not None else []) \
        + ([(SUBSCRIPTION_ID, identifier)] if identifier else [])


def subscribe(client: Client, *filters: tuple[str, int], begin: str | None = None, selector: str | None = None,
              identifier: int = 0) -> list[int]:
    seen = client.ask(subscribe_packet(7, *filters, properties=asked(begin, selector, identifier)))
    assert seen[0].kind is Packet.SUBACK, "SUBACK comes before the history"
    client.behind = seen[1:]
    return seen[0].reasons


def values(seen: list[Seen]) -> list[bytes]:
    return [each.value for each in seen]


def confirm(client: Client, seen: list[Seen]) -> None:
    client.send(*[ack_packet(PUBACK, each.packet_id) for each in seen if each.qos])


# ---- what is asked for

@pytest.mark.parametrize(("text", "offsets", "begin"), [
    ("earliest", True, Begin(0)), ("17", True, Begin(17)), ("1700000000000", False, Begin(0, NOW_MS)),
    ("2023-11-14T22:13:20Z", True, Begin(0, NOW_MS)), ("2023-11-14T22:13:20Z", False, Begin(0, NOW_MS)),
    ("latest", True, None), ("", True, None), ("-1", True, None), ("yesterday", False, None), ("9" * 19, True, None),
    ("\u0661", True, None),
])
def test_where_a_history_begins(text: str, offsets: bool, begin: Begin | None) -> None:
    assert begin_of(text, offsets=offsets) == begin


@pytest.mark.parametrize(("topic_filter", "properties", "reason"), [
    ("plant/#", asked("soon"), reasons.IMPLEMENTATION),
    ("plant/#", asked(selector="tag ="), reasons.IMPLEMENTATION),
    ("$share/g/plant/#", asked("earliest"), reasons.IMPLEMENTATION),
    ("$share/g/plant/#", asked(selector="a = 'b'"), reasons.IMPLEMENTATION),
    ("$from/soon/plant/#", [], reasons.IMPLEMENTATION),
    ("$from/earliest", [], reasons.BAD_FILTER),
    ("$from/earliest/$share/g/plant/#", [], reasons.IMPLEMENTATION),
    ("$from/earliest/$SYS/#", [], reasons.IMPLEMENTATION),
])
def test_what_cannot_be_done_is_refused(topic_filter: str, properties: list[tuple[int, object]], reason: int) -> None:
    client = Client(FakeHub())
    [suback] = client.ask(subscribe_packet(1, (topic_filter, 1), properties=properties))
    assert suback.reasons == [reason]


# ---- history, then live

def test_history_comes_first_then_what_is_new() -> None:
    hub = FakeHub()
    publish(hub, "plant/1", b"a", b"b", qos=2)
    publish(hub, "plant/2", b"c")
    publish(hub, "other/2", b"x")
    client = Client(hub)
    assert subscribe(client, ("plant/#", 2), begin="earliest", identifier=5) == [2]
    seen = messages(client)
    assert sorted((each.topic, each.value, each.qos, each.retain) for each in seen) == [
        ("plant/1", b"a", 2, False), ("plant/1", b"b", 2, False), ("plant/2", b"c", 1, False)]
    assert all(each.properties.subscription_ids == [5] for each in seen)
    publish(hub, "plant/1", b"d")
    publish(hub, "plant/3", b"e")
    assert values(messages(client)) == [b"d", b"e"]


def test_an_offset_counts_in_the_partition_of_the_address() -> None:
    hub = FakeHub()
    publish(hub, "plant/1", b"a", b"b", b"c")
    client = Client(hub)
    subscribe(client, ("plant/1", 1), begin="1")
    assert values(messages(client)) == [b"b", b"c"]
    ahead = Client(hub, "ahead")
    subscribe(ahead, ("plant/1", 1), begin="500")
    publish(hub, "plant/1", b"d")
    assert values(messages(ahead)) == [b"d"], "an offset that is not there yet is the end"


def test_a_time_and_a_client_of_3_1_1() -> None:
    hub = FakeHub()
    publish(hub, "plant/1", b"a")
    hub.advance(10_000)
    begin_ms = hub.services.wall_ms()
    publish(hub, "plant/1", b"b", b"c")
    client = Client(hub)
    subscribe(client, (f"$from/{begin_ms}/plant/#", 1))
    assert values(messages(client)) == [b"b", b"c"]
    [unsuback] = client.ask(unsubscribe_packet(3, "plant/#"))
    assert unsuback.reasons == [reasons.SUCCESS], "it is a subscription to the filter"
    late = Client(hub, "late")
    subscribe(late, (f"$from/{begin_ms + 3_600_000}/plant/+", 0))
    publish(hub, "plant/1", b"d")
    assert values(messages(late)) == [b"d"]
    [unsuback] = late.ask(unsubscribe_packet(3, "$from/earliest/plant/+"))
    assert unsuback.reasons == [reasons.SUCCESS]


def test_a_history_needs_no_retained_value_and_has_no_retain() -> None:
    hub = FakeHub()
    Client(hub, "p").ask(publish_packet("plant/1", b"kept", 1, retain=True))
    client = Client(hub)
    subscribe(client, ("plant/#", 1), begin="earliest")
    assert [(each.value, each.retain) for each in messages(client)] == [(b"kept", False)]


def test_the_receive_maximum_paces_a_history() -> None:
    hub = FakeHub()
    publish(hub, "plant/1", *[b"%d" % n for n in range(100)])
    client = Client(hub, config=MqttConfig(max_inflight=7))
    subscribe(client, ("plant/#", 1), begin="earliest")
    got: list[bytes] = []
    while seen := messages(client):
        assert len(seen) <= 7
        got += values(seen)
        confirm(client, seen)
    assert got == [b"%d" % n for n in range(100)]


def test_unsubscribe_ends_a_history() -> None:
    hub = FakeHub()
    publish(hub, "plant/1", *[b"%d" % n for n in range(20)])
    client = Client(hub, config=MqttConfig(max_inflight=5))
    subscribe(client, ("plant/#", 1), begin="earliest")
    seen = messages(client)
    client.ask(unsubscribe_packet(3, "plant/#"))
    confirm(client, seen)
    assert len(seen) == 5 and messages(client) == []


def test_a_filter_that_comes_again_begins_its_history_again() -> None:
    hub = FakeHub()
    publish(hub, "plant/1", b"a")
    client = Client(hub)
    for _ in range(2):
        subscribe(client, ("plant/#", 1), begin="earliest")
        assert values(messages(client)) == [b"a"]
    subscribe(client, ("plant/#", 1))
    publish(hub, "plant/1", b"b")
    assert values(messages(client)) == [b"b"]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_no_gap_and_no_doubles_while_others_publish(seed: int, durable: bool) -> None:
    """Publishes gather, are on their way to the disk, and are handed out, while the filter comes."""
    chance = random.Random(seed)
    hub = FakeHub()
    sender = Client(hub, "sender")
    sent: list[bytes] = []

    def send_some() -> None:
        for _ in range(chance.randint(1, 30)):
            sent.append(b"%d" % len(sent))
            sender.send(publish_packet("plant/1", sent[-1], len(sent), qos=1))

    for _ in range(5):
        send_some()
        hub.kernel.flush()
    client = sleeper(hub) if durable else Client(hub)
    send_some()
    for _ in range(chance.randint(0, 4)):
        hub.world.loop.step()
    client.send(subscribe_packet(7, ("plant/#", 1), properties=asked("earliest")))
    got: list[bytes] = []
    for _ in range(12):
        send_some()
        for _ in range(chance.randint(0, 20)):
            hub.world.loop.step()
        if chance.random() < 0.5:
            hub.kernel.flush()
        seen = [each for each in client.take() if each.kind is Packet.PUBLISH]
        got += values(seen)
        confirm(client, seen)
    while seen := messages(client):
        got += values(seen)
        confirm(client, seen)
    assert got == sent


# ---- with a session that outlives its connection

def test_a_history_survives_a_sleep_and_what_is_new_waits_behind_it() -> None:
    hub = FakeHub()
    publish(hub, "plant/1", *[b"%d" % n for n in range(10)])
    slow = MqttConfig(max_inflight=4)
    client = sleeper(hub, config=slow)
    subscribe(client, ("plant/#", 1), begin="earliest")
    seen = messages(client)
    publish(hub, "plant/1", b"new")
    confirm(client, seen[:3])
    hub.kernel.flush()
    got = values(seen[:3])
    leave(client)
    publish(hub, "plant/1", b"newer")
    client = sleeper(hub, config=slow)
    assert client.connack.session_present
    while seen := messages(client):
        got += values(seen)
        confirm(client, seen)
    assert got == [b"%d" % n for n in range(10)] + [b"new", b"newer"]
    leave(client)
    client = sleeper(hub)
    publish(hub, "plant/1", b"newest")
    assert values(messages(client)) == [b"newest"], "the history is done with"


@pytest.mark.parametrize("is_found", [False, True])
def test_a_history_from_a_time_is_not_one_from_the_beginning_where_its_connection_ends(is_found: bool) -> None:
    hub = FakeHub()
    publish(hub, "plant/1", b"before")
    hub.advance(10_000)
    publish(hub, "plant/1", b"a")
    client = sleeper(hub)
    client.link.stalled = True
    client.link.write(packet(0xD0, b"") * 200_000)
    client.send(subscribe_packet(7, ("plant/#", 1), properties=asked("2023-11-14T22:13:25Z")))
    if is_found:
        hub.kernel.flush()
    leave(client)
    publish(hub, "plant/1", b"new")
    assert values(messages(sleeper(hub))) == [b"a", b"new"]


def test_what_is_not_acknowledged_of_a_history_comes_again() -> None:
    hub = FakeHub()
    publish(hub, "plant/1", b"a", b"b", b"c")
    client = sleeper(hub)
    subscribe(client, ("plant/#", 1), begin="earliest")
    seen = messages(client)
    assert values(seen) == [b"a", b"b", b"c"]
    confirm(client, seen[1:2])
    hub.kernel.flush()
    leave(client)
    assert values(messages(sleeper(hub))) == [b"a", b"b", b"c"], "what lies behind the oldest comes too"


def test_unsubscribing_forgets_what_a_session_was_owed() -> None:
    hub = FakeHub()
    publish(hub, "plant/1", b"a", b"b")
    client = sleeper(hub)
    subscribe(client, ("plant/#", 1), begin="earliest")
    messages(client)
    client.ask(unsubscribe_packet(3, "plant/#"))
    leave(client)
    assert messages(sleeper(hub)) == []


# ---- selectors

def test_a_selector_chooses_of_history_retained_values_and_what_is_new() -> None:
    hub = FakeHub()
    sender = Client(hub, "s")

    def send(value: bytes, colour: str, *, retain: bool = False, topic: str = "plant/1") -> None:
        sender.ask(publish_packet(topic, value, 1, retain=retain, properties=[(USER, ("colour", colour))]))

    send(b"1", "red")
    send(b"2", "blue")
    client = Client(hub)
    assert subscribe(client, ("plant/#", 1), begin="earliest", selector="colour = 'red'") == [1]
    send(b"3", "blue")
    send(b"4", "red")
    assert values(messages(client)) == [b"1", b"4"]
    send(b"5", "red", retain=True, topic="plant/2")
    send(b"6", "blue", retain=True, topic="plant/3")
    other = Client(hub, "other")
    subscribe(other, ("plant/+", 0), selector="colour = 'red'")
    assert [(each.value, each.retain) for each in messages(other)] == [(b"5", True)]


def test_of_overlapping_filters_those_that_take_a_message_say_its_qos() -> None:
    hub = FakeHub()
    client = Client(hub)
    subscribe(client, ("plant/#", 1), selector="level > 3")
    subscribe(client, ("plant/1", 0))
    for level in (1, 9):
        Client(hub, "s").ask(publish_packet("plant/1", b"%d" % level, 1, properties=[(USER, ("level", str(level)))]))
    Client(hub, "s").ask(publish_packet("plant/2", b"x", 1, properties=[(USER, ("level", "2"))]))
    assert [(each.value, each.qos) for each in messages(client)] == [(b"1", 0), (b"9", 1)]


def test_a_selector_chooses_of_what_waits_for_a_session() -> None:
    hub = FakeHub()
    client = sleeper(hub)
    subscribe(client, ("plant/#", 1), selector="colour = 'red'")
    leave(client)
    for value, colour in ((b"1", "red"), (b"2", "blue"), (b"3", "red")):
        Client(hub, "s").ask(publish_packet("plant/1", value, 1, properties=[(USER, ("colour", colour))]))
    client = sleeper(hub)
    assert values(messages(client)) == [b"1", b"3"]
    subscribe(client, ("plant/#", 1))
    Client(hub, "s").ask(publish_packet("plant/1", b"4", 1, properties=[(USER, ("colour", "blue"))]))
    assert values(messages(client)) == [b"4"], "the filter came again without a selector"


def test_rights_that_are_taken_away_end_a_history() -> None:
    allowed = {"yes": True}
    hub = FakeHub(decision=lambda who, operation, address: allowed["yes"] or "plant" not in address)
    publish(hub, "plant/1", *[b"%d" % n for n in range(10)])
    client = Client(hub, config=MqttConfig(max_inflight=2))
    subscribe(client, ("plant/#", 1), begin="earliest")
    seen = messages(client)
    allowed["yes"] = False
    client.session.on_rights_changed()                                                      # type: ignore[attr-defined]
    confirm(client, seen)
    assert len(seen) == 2 and messages(client) == []


@pytest.mark.parametrize("config", [MqttConfig(), MqttConfig(max_inflight=1)])
def test_a_filter_whose_selector_does_not_take_a_message_says_nothing_of_it(config: MqttConfig) -> None:
    """Neither its identifier nor how RETAIN is handed on; live, and where a message waits for the window."""
    client = Client(FakeHub(), "reader", config)
    subscribe(client, ("plant/#", 1 | RETAIN_AS_PUBLISHED), selector="kind = 'a'", identifier=1)
    subscribe(client, ("plant/+", 1), identifier=2)
    other = Client(client.hub, "other")
    other.ask(*[publish_packet("plant/1", b"%d" % at, at, retain=True, properties=[(USER, ("kind", kind))])
                for at, kind in enumerate("aba", 1)])
    got = []
    while seen := client.received():
        got += [(each.value, each.properties.subscription_ids, each.retain) for each in seen]
        confirm(client, seen)
    assert got == [(b"1", [1, 2], True), (b"2", [2], False), (b"3", [1, 2], True)]
