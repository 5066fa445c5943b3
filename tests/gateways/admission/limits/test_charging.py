"""A guard's messages are weighed against every limit that applies, and charged once."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.admission.errors import OverQuota
from gatehouse.gateways.admission.limits.limit import read_limit
from gatehouse.gateways.admission.limits.meter import Meter
from gatehouse.kernel.api import HalfMessage
from gatehouse.kernel.message import When
from gatehouse.kernel.state.topics import FAIL, TopicSettings
from gatehouse.transactions.coordinator import Transactions
from tests.gateways.admission.test_guard import Client, Hub, message


class Limited(Hub):
    """A hub where everybody may do everything, within limits. `fast` is a topic that fails at a limit."""

    def __init__(self, *tables: dict[str, Any]) -> None:
        super().__init__(decision=lambda *_: True)
        transactions = Transactions(self.rig.kernel)
        transactions.open()
        self.services.transactions = transactions
        self.rig.kernel.create_topic("fast", settings=TopicSettings(at_limit=FAIL))
        for number, table in enumerate(tables):
            self.put(str(number), table)

    def put(self, id: str, table: dict[str, Any]) -> None:
        before = self.admission.accounts.limits.get(id)
        limit = self.admission.accounts.limits[id] = read_limit(table, id)
        self.admission.on_limit_changed(before, limit)

    def remove(self, id: str) -> None:
        self.admission.on_limit_changed(self.admission.accounts.limits.pop(id), None)

    def meter(self, id: str) -> Meter:
        return self.admission.limits.most_used(id, 1)[0]


def test_nothing_is_looked_up_where_there_are_no_limits() -> None:
    hub = Limited()
    guard = hub.guard("ann")
    assert not guard.limited
    assert guard.append([message(guard.place("slow/a"))] * 9, None, None, 0) == 0


def test_slow_takes_what_is_too_much_and_says_for_how_long_to_wait() -> None:
    hub = Limited({"of": "user:ann", "messages_per_s": 10})
    guard = hub.guard("ann")
    assert guard.limited and guard.room()[0] == 10
    assert guard.append([message(guard.place("slow/a"))] * 30, None, None, 0, refuses=True) == 2000
    bob = hub.guard("bob")
    assert bob.append([message(bob.place("slow/a"))] * 30, None, None, 0) == 0


def test_fail_refuses_what_is_too_much_and_a_refusal_is_an_operation() -> None:
    hub = Limited({"of": "user:ann", "messages_per_s": 10, "operations_per_s": 100})
    guard, client = hub.guard("ann"), Client()
    place, slow = guard.place("fast/a"), guard.place("slow/a")
    guard.append([message(place)] * 20, None, None, 0, refuses=True)
    with pytest.raises(OverQuota) as refused:
        guard.append([message(place), message(slow)], client, "token", 0, refuses=True)
    assert refused.value.places == {place} and refused.value.wait_ms == 1000
    assert hub.meter("0").levels(hub.now_ms()) == {"messages": -10, "operations": 98}
    assert guard.append([message(place)], None, None, 0) == 1100, "a door without a word for it is slowed"
    hub.rig.world.loop.advance(1100)
    assert guard.append([message(place)], None, None, 0, refuses=True) == 0, "the next is refused"
    hub.rig.run()
    assert not client.stored


def test_all_that_apply_are_asked_before_any_is_charged() -> None:
    hub = Limited({"of": "hub", "messages_per_s": 100}, {"of": "address:fast/#", "messages_per_s": 1},
                  {"of": "address:+/a", "messages_per_s": 5})
    guard = hub.guard("ann")
    place = guard.place("fast/a")
    guard.append([message(place)] * 3, None, None, 0)
    before = [hub.meter(id).levels(hub.now_ms()) for id in "012"]
    with pytest.raises(OverQuota):
        guard.append([message(place)], None, None, 0, refuses=True)
    assert before == [hub.meter(id).levels(hub.now_ms()) for id in "012"] == [
        {"messages": 97}, {"messages": -2}, {"messages": 2}]


def test_each_place_is_charged_for_its_own() -> None:
    hub = Limited({"of": "topic:slow", "messages_per_s": 100, "bytes_per_s": 1000}, {"of": "address:slow/a",
                                                                                    "messages_per_s": 100})
    guard = hub.guard("ann")
    a, b, other = guard.place("slow/a"), guard.place("slow/b"), guard.place("other")
    guard.append([message(a, b"12345"), message(b, b"123"), message(other, b"1")] * 2, None, None, 99)
    assert hub.meter("0").levels(hub.now_ms()) == {"messages": 96, "bytes": 984}
    assert hub.meter("1").levels(hub.now_ms()) == {"messages": 98}


def test_a_limit_of_nothing_refuses_whatever_the_topic_says() -> None:
    hub = Limited({"of": "user:ann", "messages_per_s": 0})
    guard = hub.guard("ann")
    with pytest.raises(OverQuota):
        guard.append([message(guard.place("slow/a"))], None, None, 0)
    with pytest.raises(OverQuota):
        guard.append_batch("fast", 0, b"batch", 1, Client(), None)
    hub.put("0", {"of": "user:ann", "messages_per_s": 10 ** 18})
    hub.rig.world.loop.advance(1)
    assert guard.append([message(guard.place("slow/a"))] * 1000, None, None, 0) == 0


def test_observe_counts_and_stops_nobody() -> None:
    hub = Limited({"of": "user:ann", "messages_per_s": 1, "observe": True},
                  {"of": "topic:fast", "messages_per_s": 0, "observe": True})
    guard = hub.guard("ann")
    for _ in range(3):
        assert guard.append([message(guard.place("fast/a"))] * 5, None, None, 0, refuses=True) == 0
    assert hub.meter("0").observed == 3 and hub.meter("0").messages_taken == 15


def test_a_limit_that_goes_while_somebody_waits_holds_no_longer() -> None:
    hub = Limited({"of": "user:ann", "messages_per_s": 1})
    guard = hub.guard("ann")
    assert guard.append([message(guard.place("slow/a"))] * 61, None, None, 0) == 60_000
    hub.remove("0")
    assert not guard.limited
    assert guard.append([message(guard.place("slow/a"))] * 61, None, None, 0) == 0
    hub.put("0", {"of": "user:*", "messages_per_s": 1})
    assert guard.append([message(guard.place("slow/a"))] * 2, None, None, 0) == 1000


def test_scheduled_and_half_messages_are_charged_when_they_come() -> None:
    hub = Limited({"of": "user:ann", "messages_per_s": 10})
    guard, client = hub.guard("ann"), Client()
    place = guard.place("slow/a")
    assert guard.schedule.add([message(place)] * 15, [When(delay_ms=5)] * 15, client, None, 0) == 500
    halves = [HalfMessage(message(place))] * 5
    begin = guard.transactions.begin
    assert begin(halves, "shop", None, None, client, None, None) == 0, "they were counted with what they came in"
    assert begin(halves, "shop", None, None, client, None, 100) == 1000


def test_a_principal_in_a_group_shares_what_the_group_has() -> None:
    hub = Limited({"of": "group:ops", "messages_per_s": 10}, {"of": "door:test", "messages_per_s": 1000})
    hub.admission.configure((), {"ops": ["ann", "bob"]}, None)
    ann, bob, eve = hub.guard("ann"), hub.guard("bob"), hub.guard("eve")
    assert ann.append([message(ann.place("slow/a"))] * 10, None, None, 0) == 0
    assert bob.append([message(bob.place("slow/a"))] * 10, None, None, 0) == 1000
    assert eve.append([message(eve.place("slow/a"))] * 10, None, None, 0) == 0
    assert hub.meter("1").messages_taken == 30
