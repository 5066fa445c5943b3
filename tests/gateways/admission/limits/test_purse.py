"""What small bursts take out of a purse is charged a little later, and near a limit there is none."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.gateways.admission.limits.limit import read_limit
from gatehouse.gateways.admission.limits.meter import Meter
from gatehouse.gateways.admission.limits.purse import MOST_BYTES, PART, SET_ASIDE_MS, Purse
from gatehouse.kernel.errors import KernelError, UnknownPlace
from tests.gateways.admission.limits.test_charging import Limited
from tests.gateways.admission.test_guard import Client, message
from tests.kernel.batches import batch_of

HIGH = 100_000


def meter(**amounts: object) -> Meter:
    return meter_of({"of": "hub", **amounts})


def meter_of(table: dict[str, object]) -> Meter:
    return Meter(read_limit(table, "1"), "", 0)


def test_a_part_of_the_least_that_is_left_is_reserved_in_all() -> None:
    first, second = meter(messages_per_s=8_000), meter(bytes_per_s=80_000)
    purse = Purse([first], [second])
    assert not purse.take(1, 1, 1) and purse.left() == (0, 0), "nothing is set aside yet"
    assert purse.set_aside(0) and purse.left() == (8_000 // PART, 80_000 // PART)
    assert first.levels(0) == {"messages": 7_000} and second.levels(0) == {"bytes": 70_000}
    assert purse.take(8_000 // PART - 1, 10, 5)
    assert not purse.take(2, 1, 1) and purse.take(1, 1, 1)
    assert first.messages_taken == second.messages_taken == 0
    purse.settle()
    assert (first.messages_taken, first.bytes_taken) == (1_000, 11)
    assert (second.messages_taken, second.bytes_taken) == (1_000, 6)
    assert first.levels(0) == {"messages": 7_000} and second.levels(0) == {"bytes": 80_000 - 6}
    purse.settle()
    assert first.messages_taken == 1_000, "once"


def test_what_is_given_back_fills_no_bucket_beyond_its_burst() -> None:
    one = meter(messages_per_s=8_000)
    purse = Purse([one], [])
    assert purse.set_aside(0)
    assert one.levels(10_000) == {"messages": 8_000}
    purse.settle()
    assert one.levels(10_000) == {"messages": 8_000}


def test_however_many_purses_there_are_they_hold_no_more_than_there_is() -> None:
    hub = Limited({"of": "hub", "messages_per_s": 2_000}, {"of": "user:*", "messages_per_s": 2_000})
    guards = [hub.guard(f"user{number}") for number in range(200)]
    waits = taken = 0
    for _ in range(50):
        for guard in guards:
            if not waits:
                waits = guard.append([message(guard.place("slow/a"))] * 4, None, None, 0)
                taken += 4
    hub.admission.limits.settle()
    assert hub.meter("0").messages_taken == taken <= 2_000 + 4 and waits


def test_what_others_have_set_aside_and_not_used_is_given_back_to_who_finds_little() -> None:
    hub = Limited({"of": "hub", "messages_per_s": 1_000}, {"of": "user:*", "messages_per_s": 10_000})
    idle = [hub.guard(f"idle{number}") for number in range(8)]
    for guard in idle:
        guard.append([message(guard.place("slow/a"))], None, None, 0)
    busy = hub.guard("busy")
    place = busy.place("slow/a")
    hub.rig.world.loop.advance(SET_ASIDE_MS)
    assert busy.append([message(place)] * 500, None, None, 0) == 0
    assert busy.append([message(place)] * 480, None, None, 0) == 0, "of 1,000 only eight are with others"


def test_a_part_is_set_aside_of_what_is_stored_too() -> None:
    stored = meter_of({"of": "topic:slow", "stored_messages": 800})
    first, second = Purse([stored], []), Purse([stored], [])
    assert first.set_aside(0) and stored.stored is not None and stored.stored.held() == (100, MOST_BYTES)
    assert second.set_aside(0) and first.take(40, 400, 400)
    first.settle()
    second.settle()
    assert stored.stored.held() == (40, 400)


def test_a_burst_to_places_of_the_same_meters_is_taken_as_one() -> None:
    hub = Limited({"of": "topic:*", "messages_per_s": HIGH}, {"of": "hub", "messages_per_s": HIGH})
    guard = hub.guard("ann")
    burst = [message(guard.place(f"slow/{number}"), b"1") for number in range(9)]
    guard.append(burst, None, None, 9)
    charging = guard.charging
    assert charging.take(burst, 9)
    assert not charging.take([*burst, message(guard.place("other/1"), b"1")], 10), "another topic, other meters"
    hub.admission.limits.settle()
    assert hub.meter("1").messages_taken == hub.meter("0").messages_taken == 18


def test_a_place_that_is_new_has_the_purse_of_its_meters() -> None:
    hub = Limited({"of": "topic:*", "messages_per_s": HIGH}, {"of": "hub", "messages_per_s": HIGH})
    guard = hub.guard("ann")
    guard.append([message(guard.place("slow/a"), b"1")], None, None, 1)
    assert guard.charging.take([message(guard.place("slow/b"), b"1")], 1)
    assert not guard.charging.take([message(guard.place("other/a"), b"1")], 1), "which has none yet"
    assert not guard.charging.take([message(4_711, b"1")], 1), "weighing says that there is no such place"


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
    purse.take(5, 50, 40)
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


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["take", "undo", "settle", "set aside"]),
                          st.integers(1, 60)), max_size=60), st.sampled_from([0, 100, 1_000, 10 ** 18]))
def test_whatever_is_taken_and_given_back_nothing_is_lost_and_nothing_made(steps: list[tuple[int, str, int]],
                                                                        burst: int) -> None:
    shared, own = meter(messages_per_s=burst), [meter(bytes_per_s=1_000) for _ in range(3)]
    purses = [Purse([shared], [one]) for one in own]
    taken = [0, 0, 0]
    for which, what, amount in steps:
        purse = purses[which]
        if what == "set aside":
            purse.set_aside(0)
        elif what == "settle":
            purse.settle()
        elif purse.take(amount, amount, amount // 2):
            if what == "undo":
                purse.give_back(amount, amount, amount // 2)
            else:
                taken[which] += amount
        assert shared.levels(0)["messages"] >= 0
    for purse in purses:
        purse.settle()
    assert shared.messages_taken == sum(taken) and shared.levels(0)["messages"] == burst - sum(taken)
    assert [one.messages_taken for one in own] == taken
    assert sum(one.levels(0)["bytes"] + one.bytes_taken for one in own) == 3_000


def test_batches_are_taken_out_of_a_purse_too_and_given_back_where_they_are_refused() -> None:
    hub = Limited({"of": "topic:*", "messages_per_s": HIGH}, {"of": "hub", "messages_per_s": HIGH})
    hub.rig.kernel.create_topic("slow")
    guard, client = hub.guard("ann"), Client()
    batch = batch_of([(b"k", b"v", ())] * 3)
    for number in range(20):
        assert guard.append_batch("slow", 0, batch, 3, client, number) == 0
    charging = guard.charging
    assert charging.take_batch("slow", 3, 100)
    charging.give_back()
    with pytest.raises(KernelError):
        guard.append_batch("slow", 0, b"no batch", 3, client, 99)
    hub.admission.limits.settle()
    assert hub.meter("0").messages_taken == hub.meter("1").messages_taken == 60
