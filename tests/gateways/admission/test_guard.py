"""A guard lets its principal do what its rights say, and nobody gets round them by it."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.admission.guard import Guard
from gatehouse.gateways.admission.limits.limit import Quota
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.admission.rules import ADDRESS, TOPIC, Rule
from gatehouse.gateways.contract import Services
from gatehouse.gateways.door_side import Delivery
from gatehouse.kernel.errors import UnknownPlace
from gatehouse.kernel.message import Fetched, Retained, Stored, When
from gatehouse.kernel.records.batch import NO_HEADERS
from gatehouse.kernel.state.topics import TopicSettings
from tests.kernel.rig import Rig

DOOR = "test"


class Hub:
    """One kernel, and what anybody may do by the rules of a test."""

    def __init__(self, **options: Any) -> None:
        self.rig = Rig()
        self.now_ms = self.rig.world.loop.now_ms
        self.admission = Admission(self.rig.kernel, self.now_ms, **options)
        self.services = Services("hub", self.rig.kernel, self.admission, self.now_ms)

    def allow(self, *rules: tuple[Operation, str, str]) -> None:
        """(operation, user, pattern) is all that is allowed from now on."""
        self.admission.configure([Rule(True, f"user:{user}", frozenset((operation,)), ADDRESS, pattern)
                                  for operation, user, pattern in rules], {}, None)

    def guard(self, name: str, session: Any = None) -> Guard:
        return self.services.guard(DOOR, Principal(name), session)


class Client:
    """What a session is told."""

    def __init__(self) -> None:
        self.stored: list[Stored] = []
        self.values: list[bytes | None] = []
        self.looked_again = 0

    def on_stored(self, stored: list[Stored]) -> None:
        self.stored += stored

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        self.values += [message[1] for _, messages, _, _ in deliveries for message in messages]

    def on_principal_ended(self, reason: str) -> None:
        raise AssertionError("nobody ends")

    def on_rights_changed(self) -> None:
        self.looked_again += 1


PUBLISH, CONSUME, CREATE = Operation.PUBLISH, Operation.CONSUME, Operation.CREATE
PLANT = ((PUBLISH, "ann", "plant/#"), (CREATE, "ann", "plant"), (CONSUME, "bob", "plant/a"))


def message(place: int, value: bytes = b"value") -> tuple[int, bytes, bytes, int, int]:
    return place, value, NO_HEADERS, 1, 0


@pytest.fixture
def hub() -> Hub:
    hub = Hub()
    hub.allow(*PLANT)
    return hub


def test_what_is_allowed_is_stored_answered_and_delivered(hub: Hub) -> None:
    ann, bob, client = hub.guard("ann"), hub.guard("bob"), Client()
    bob.subscribe("plant/a", client)
    assert ann.append([message(ann.place("plant/a"))], client, "token", 5) == 0
    hub.rig.run()
    assert [answer.token for answer in client.stored] == ["token"] and client.values == [b"value"]


def test_what_is_not_allowed_is_denied_at_each_call(hub: Hub) -> None:
    ann, bob, client = hub.guard("ann"), hub.guard("bob"), Client()
    for call in (lambda: bob.place("plant/a"), lambda: bob.place_raw(b"x", "plant/a"), lambda: ann.place("other"),
                 lambda: bob.place_in("plant", b"a", 0), lambda: bob.place_queue("work", 0),
                 lambda: bob.place_routed("plant/a", (1,)), lambda: bob.subscribe("plant/b", client),
                 lambda: bob.subscribe("plant/#", client), lambda: ann.subscribe("plant/a", client),
                 lambda: ann.retained("plant/a", print, max_values=1, start=""),
                 lambda: ann.require_group(Operation.TRANSACT, "orders"),
                 lambda: ann.transactions.join_checks("orders", client, "name", 1),          # type: ignore[arg-type]
                 lambda: ann.transactions.begin([], "orders", None, None, client, None, 0)):
        with pytest.raises(Denied):
            call()
    assert not bob.places


def test_a_topic_is_changed_with_the_right_to_alter_it(hub: Hub) -> None:
    client = Client()
    topic = hub.rig.kernel.create_topic("plant", partitions=1)
    hub.rig.run()
    ann, bob = hub.guard("ann"), hub.guard("bob")
    for call in (lambda: bob.topics.change("plant", 2, None, client, None),
                 lambda: bob.topics.delete("plant", client, None),
                 lambda: bob.topics.delete_records({topic.partition_id(0): 1}, client, None),
                 lambda: bob.topic("plant", Operation.ALTER)):
        with pytest.raises(Denied):
            call()
    hub.admission.configure([Rule(True, "user:ann", frozenset((Operation.ALTER,)), TOPIC, "plant")], {}, None)
    with pytest.raises(Denied):
        ann.topics.delete_records({topic.partition_id(0): 1}, client, None)        # nobody has asked for it by its name
    ann.topic("plant", Operation.ALTER)
    ann.topics.delete_records({topic.partition_id(0): 1}, client, "cut")
    assert ann.topics.change("plant", 2, None, client, "grown").partitions == 2
    ann.topics.delete("plant", client, "gone")
    hub.rig.run()
    assert [(answer.token, answer.error) for answer in client.stored] == [
        ("cut", None), ("grown", None), ("gone", None)]
    assert hub.rig.kernel.topic("plant") is None


def test_a_place_is_good_for_whoever_was_given_it_alone(hub: Hub) -> None:
    ann, bob = hub.guard("ann"), hub.guard("bob")
    place = ann.place("plant/a")
    for other in (bob, hub.guard("eve")):
        for wrong in (place, place + 1, 0, -1):
            with pytest.raises(UnknownPlace):
                other.append([message(wrong)], None, None, 5)
            with pytest.raises(UnknownPlace):
                other.schedule.add([message(wrong)], [When(delay_ms=1000)], None, None, 5)
            with pytest.raises(UnknownPlace):
                other.max_bytes(wrong)
    with pytest.raises(UnknownPlace):
        ann.append([message(place), message(place + 1)], None, None, 5)
    hub.rig.run()
    assert hub.rig.kernel.bounds(hub.rig.kernel.place("plant/a").partition_id) == (0, 0), "nothing of a burst is stored"


def test_a_place_is_looked_at_as_its_topic_is_now(hub: Hub) -> None:
    kernel = hub.rig.kernel
    kernel.create_topic("plant", partitions=1, settings=TopicSettings(max_message_bytes=10))
    hub.rig.run()
    ann = hub.guard("ann")
    places = [ann.place(f"plant/{number}") for number in range(20)]
    assert {(ann.look(place).partition, ann.max_bytes(place)) for place in places} == {(0, 10)}
    kernel.change_topic("plant", partitions=8, settings=TopicSettings(max_message_bytes=1000))
    hub.rig.run()
    assert {ann.max_bytes(place) for place in places} == {1000}
    fresh = [kernel.place(f"plant/{number}") for number in range(20)]
    assert [ann.look(place)[3:5] for place in places] == [(now.partition, now.partition_id) for now in fresh]
    kernel.delete_topic("plant")
    hub.rig.run()
    assert {ann.max_bytes(place) for place in places} == {kernel.settings.max_message_bytes}, "it would be made anew"


def test_a_place_of_other_rights_is_refused_and_judged_anew(hub: Hub) -> None:
    ann = hub.guard("ann")
    place = ann.place_raw(b"plant/a", "plant/a")
    hub.allow((PUBLISH, "ann", "plant/a"))
    with pytest.raises(UnknownPlace):
        ann.append([message(place)], None, None, 5)
    assert not ann.places
    ann.append([message(ann.place("plant/a"))], None, None, 5)
    with pytest.raises(Denied):
        ann.place("plant/b")
    hub.allow()
    with pytest.raises(Denied):
        ann.place("plant/a")


def test_subscriptions_that_are_no_longer_allowed_end_whatever_the_session_does(hub: Hub) -> None:
    hub.allow(*PLANT, (CONSUME, "bob", "plant/b"))
    client = Client()
    ann, bob = hub.guard("ann"), hub.guard("bob", client)
    bob.subscribe("plant/a", client)
    bob.subscribe("plant/b", client)
    hub.allow(*PLANT)
    hub.rig.run()
    ann.append([message(ann.place("plant/a"), b"a"), message(ann.place("plant/b"), b"b")], None, None, 5)
    hub.rig.run()
    assert client.values == [b"a"] and client.looked_again == 1
    bob.leave()
    assert len(hub.services.door(DOOR)) == 0


def test_what_is_appended_counts_whatever_the_door_says(hub: Hub) -> None:
    limited = Hub(quotas={"ann": Quota(messages_per_s=10)})
    by_bytes = Hub(quotas={"ann": Quota(bytes_per_s=1000)})
    by_bytes.allow(*PLANT)
    ann = by_bytes.guard("ann")
    assert ann.append([message(ann.place("plant/a"), bytes(2000))], None, None, 1) > 0
    limited.allow(*PLANT)
    ann = limited.guard("ann")
    place = ann.place("plant/a")
    assert ann.append([message(place)] * 10, None, None, 5) == 0
    assert ann.append([message(place)] * 10, None, None, 5) > 0
    assert ann.schedule.add([message(place)] * 10, [When(delay_ms=1000)] * 10, None, None, 5) > 0


def test_what_was_delivered_is_read_back_and_nothing_beside_it(hub: Hub) -> None:
    hub.rig.kernel.create_topic("plant", partitions=1)
    ann, bob = hub.guard("ann"), hub.guard("bob")
    heard: list[Delivery] = []
    client = Client()
    client.on_delivery = heard.extend                           # type: ignore[method-assign]
    bob.subscribe("plant/a", client)
    ann.append([message(ann.place(f"plant/{level}"), level.encode()) for level in "abac"], None, None, 5)
    hub.rig.run()
    address = heard[0][0]
    answers: list[Any] = []
    bob.read_back([(address.partition_id, 0, 1 << 20)], [address], 1 << 20, answers.extend)
    hub.rig.run()
    assert [record[3] for record in answers[0].records] == [b"a", b"a"]
    other = hub.guard("eve")
    other.read_back([(address.partition_id, 0, 1 << 20)], [address], 1 << 20, answers.extend)
    hub.rig.run()
    assert isinstance(answers[1].answer, Fetched) and not answers[1].records


def test_a_retained_value_is_for_who_may_consume_it(hub: Hub) -> None:
    ann, bob = hub.guard("ann"), hub.guard("bob")
    ann.append([(ann.place("plant/a"), b"kept", NO_HEADERS, 0x21, 0)], None, None, 5)
    hub.rig.run()
    pages: list[list[Retained]] = []
    bob.retained("plant/a", lambda values, after, error: pages.append(values), max_values=10, start="")
    hub.rig.run()
    assert [value.record[3] for value in pages[0]] == [b"kept"]
