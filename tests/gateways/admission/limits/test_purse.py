"""What small bursts take out of a purse is charged a little later, and near a limit there is none."""
from __future__ import annotations

import pytest

from gatehouse.gateways.admission.limits.limit import read_limit
from gatehouse.gateways.admission.limits.meter import Meter
from gatehouse.gateways.admission.limits.purse import PART, SET_ASIDE_MS, Purse
from gatehouse.kernel.errors import UnknownPlace
from tests.gateways.admission.limits.test_charging import Limited
from tests.gateways.admission.test_guard import message

HIGH = 100_000


def meter(**amounts: object) -> Meter:
    return Meter(read_limit({"of": "hub", **amounts}, "1"), "", 0)


def test_a_part_of_the_least_that_is_left_is_set_aside_for_a_moment() -> None:
    first, second = meter(messages_per_s=8_000), meter(bytes_per_s=80_000)
    purse = Purse([first], [second])
    assert not purse.take(1, 1, 1, 0) and purse.left(0) == (0, 0), "nothing is set aside yet"
    assert purse.set_aside(0) and purse.left(0) == (8_000 // PART, 80_000 // PART)
    assert purse.take(8_000 // PART - 1, 10, 5, 0)
    assert not purse.take(2, 1, 1, 0) and purse.take(1, 1, 1, SET_ASIDE_MS - 1)
    assert not purse.take(0, 0, 0, SET_ASIDE_MS)
    assert first.messages_taken == second.messages_taken == 0
    purse.settle()
    assert (first.messages_taken, first.bytes_taken) == (1_000, 11)
    assert (second.messages_taken, second.bytes_taken) == (1_000, 6)
    purse.settle()
    assert first.messages_taken == 1_000, "once"


@pytest.mark.parametrize("amounts", [
    {"messages_per_s": 100}, {"operations_per_s": 100}, {"messages_per_s": 0},
    {"messages_per_s": 10 ** 6, "messages_burst": 1}])
def test_where_little_is_left_nothing_is_set_aside(amounts: dict[str, float]) -> None:
    assert not Purse([meter(**amounts)], []).set_aside(0)


def test_what_is_owed_sets_nothing_aside() -> None:
    owing = meter(messages_per_s=HIGH)
    owing.charge(2 * HIGH, 0, 1, 0)
    assert not Purse([owing], []).set_aside(0)


def test_what_was_not_stored_is_an_operation_alone() -> None:
    counted = meter(messages_per_s=HIGH)
    purse = Purse([counted], [])
    purse.set_aside(0)
    purse.take(5, 50, 40, 0)
    purse.give_back(5, 50, 40)
    purse.settle()
    assert counted.messages_taken == counted.bytes_taken == 0


def test_all_is_charged_once_whether_it_was_weighed_or_taken_out_of_a_purse() -> None:
    hub = Limited({"of": "hub", "messages_per_s": HIGH}, {"of": "topic:slow", "messages_per_s": HIGH},
                  {"of": "user:*", "bytes_per_s": 10 ** 9})
    ann, bob = hub.guard("ann"), hub.guard("bob")
    for _ in range(50):
        for guard in (ann, bob):
            guard.append([message(guard.place("slow/a"), b"12345")] * 3, None, None, 20)
            guard.append([message(guard.place("slow/b"), b"1"), message(guard.place("other"), b"1")], None, None, 9)
    assert hub.meter("0").messages_taken == 500 and hub.meter("0").bytes_taken == 2 * 50 * 29
    assert hub.meter("1").messages_taken == 400 and hub.meter("1").bytes_taken == 2 * 50 * 16
    assert [used.messages_taken for used in hub.admission.limits.most_used("2", 9)] == [250, 250]


def test_the_rate_is_exact_over_time() -> None:
    hub = Limited({"of": "hub", "messages_per_s": 5_000})
    guard = hub.guard("ann")
    taken = wait_ms = 0
    for _ in range(10_000):
        hub.rig.world.loop.advance(1)
        wait_ms -= 1
        while wait_ms <= 0 and taken < 10 ** 6:
            wait_ms = guard.append([message(guard.place("slow/a"))] * 7, None, None, 0)
            taken += 7
    assert 55_000 * 0.99 <= taken <= 55_000 * 1.01, "the burst, and ten seconds"


def test_a_refused_append_gives_back_what_it_took_out_of_the_purse() -> None:
    hub = Limited({"of": "hub", "messages_per_s": HIGH})
    guard = hub.guard("ann")
    place = guard.place("slow/a")
    for _ in range(3):
        guard.append([message(place)], None, None, 0)
    with pytest.raises(UnknownPlace):
        guard.append([message(place + 999)], None, None, 0)
    assert hub.meter("0").messages_taken == 3


def test_a_limit_that_changes_is_asked_at_once() -> None:
    hub = Limited({"of": "hub", "messages_per_s": HIGH})
    guard = hub.guard("ann")
    place = guard.place("slow/a")
    for _ in range(3):
        guard.append([message(place)], None, None, 0)
    hub.put("0", {"of": "hub", "messages_per_s": 1})
    assert hub.meter("0").messages_taken == 3
    assert guard.append([message(place)] * 5, None, None, 0) > 0
