"""How much may be stored: what a look has found, and what was taken since."""
from __future__ import annotations

import pytest

from gatehouse.gateways.admission.errors import InvalidLimit, NoRoomLeft, OverQuota
from gatehouse.gateways.admission.limits.limit import read_limit
from gatehouse.gateways.admission.limits.meter import LOOK_AGAIN_MS
from gatehouse.gateways.admission.limits.stored import NO_BOUND, StoredBound
from tests.gateways.admission.limits.test_charging import Limited
from tests.gateways.admission.test_guard import Client, message


def test_what_was_taken_since_a_look_began_is_added_to_what_it_found() -> None:
    bound = StoredBound(10, None)
    bound.add(4, 400)
    bound.begin_look()
    bound.add(2, 200)
    assert bound.held() == (6, 600) and bound.is_looking
    bound.end_look(4, 0)
    assert bound.held() == (6, 200) and bound.room() == (4, NO_BOUND - 200) and bound.left() == (4, None)
    bound.add(4, 0)
    assert bound.is_full
    bound.begin_look()
    bound.end_look(0, 0)
    assert not bound.is_full and bound.held() == (0, 0), "retention has freed it"


def test_either_of_messages_and_bytes_may_be_full_and_a_bound_may_change() -> None:
    bound = StoredBound(10, 1_000)
    bound.add(1, 1_000)
    assert bound.is_full and bound.counts_bytes
    bound.change(10, 10 ** 18)
    assert not bound.is_full
    bound.change(1, None)
    assert bound.is_full and not bound.counts_bytes
    assert StoredBound(0, None).is_full


@pytest.mark.parametrize("table", [
    {"of": "user:ann", "stored_messages": 1}, {"of": "hub", "stored_bytes": 1},
    {"of": "topic:t", "stored_bytes": 1, "direction": "out"}, {"of": "topic:t", "stored_bytes": 1.5},
    {"of": "topic:t", "stored_messages": -1}, {"of": "tenant:blue", "stored_messages": 10 ** 18 + 1}])
def test_what_cannot_be_is_refused(table: dict[str, object]) -> None:
    with pytest.raises(InvalidLimit):
        read_limit(table)


def full(of: str = "topic:slow", **more: object) -> Limited:
    """A hub whose topic `slow`, or its tenant, holds as much as it may, by what the kernel knows."""
    hub = Limited({"of": of, "stored_messages": 3, **more})
    guard = hub.guard("ann")
    guard.append([message(guard.place("slow/a"))] * 3, None, None, 0)
    hub.rig.run()
    hub.admission.look_at_stored()
    hub.rig.run()
    assert hub.meter("0").stored is not None and hub.meter("0").stored.held()[0] == 3
    return hub


@pytest.mark.parametrize("of", ["topic:slow", "topic:*", "tenant:/", "tenant:*"])
def test_where_as_much_is_stored_as_may_be_it_is_refused_whatever_the_topic_says(of: str) -> None:
    hub = full(of)
    guard = hub.guard("ann")
    with pytest.raises(OverQuota) as refused:
        guard.append([message(guard.place("slow/a"))], Client(), None, 0, refuses=True)
    assert refused.value.wait_ms == LOOK_AGAIN_MS
    with pytest.raises(NoRoomLeft):
        guard.append_batch("slow", 0, b"batch", 1, Client(), None)
    assert hub.meter("0").refused == 2


def test_a_door_without_a_word_for_it_has_what_comes_wait() -> None:
    hub = full("tenant:/")
    guard = hub.guard("ann")
    assert guard.waits(False) and not guard.waits(True)
    hub.remove("0")
    assert not guard.waits(False)


def test_there_is_room_again_once_a_look_finds_less() -> None:
    hub = full()
    guard, client = hub.guard("ann"), Client()
    topic = hub.rig.kernel.topic("slow")
    assert topic is not None
    hub.rig.kernel.delete_topic("slow")
    hub.rig.run()
    hub.admission.look_at_stored()
    assert guard.append([message(guard.place("slow/a"))], client, None, 0, refuses=True) == 0
    hub.rig.run()
    assert client.stored[0].error is None


def test_bytes_are_those_that_the_index_knows() -> None:
    hub = Limited({"of": "topic:slow", "stored_bytes": 10_000})
    guard = hub.guard("ann")
    guard.append([message(guard.place("slow/a"), b"x" * 3_000)] * 2, None, None, 0)
    hub.rig.run()
    hub.admission.look_at_stored()
    hub.rig.run()
    stored = hub.meter("0").stored
    assert stored is not None and 6_000 <= stored.held()[1] < 7_000
    assert guard.append([message(guard.place("slow/a"), b"x" * 5_000)], None, None, 0) == LOOK_AGAIN_MS
    assert stored.is_full


def test_a_limit_that_only_observes_stops_nobody() -> None:
    hub = full(observe=True)
    guard = hub.guard("ann")
    assert guard.append([message(guard.place("slow/a"))], Client(), None, 0, refuses=True) == 0
    assert not guard.waits(False) and hub.meter("0").observed > 0


def test_what_there_is_when_a_limit_comes_counts() -> None:
    hub = Limited()
    guard = hub.guard("ann")
    guard.append([message(guard.place("slow/a"))] * 5, None, None, 0)
    hub.rig.run()
    hub.put("0", {"of": "topic:slow", "stored_messages": 5})
    assert guard.append([message(guard.place("slow/a"))], None, None, 0) == 0, "nobody has looked yet"
    hub.rig.run()
    hub.admission.look_at_stored()
    assert hub.meter("0").is_full
