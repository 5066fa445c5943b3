"""What a guard hands out is charged once for each delivery, and held back while something is overdrawn."""
from __future__ import annotations

from gatehouse.gateways.admission.limits.handing_out import LOOK_AGAIN_MS
from tests.gateways.admission.limits.test_charging import Limited


def test_nothing_is_held_back_where_no_limit_speaks_of_what_goes_out() -> None:
    hub = Limited({"of": "hub", "messages_per_s": 1})
    guard = hub.guard("ann")
    assert not guard.limits_out and guard.hand_out(1_000_000, 1 << 40, "t", "t/a") == 0
    assert guard.out_room()[0] > 1_000_000


def test_what_is_handed_out_is_charged_to_all_that_apply() -> None:
    hub = Limited({"of": "user:ann", "direction": "out", "messages_per_s": 100},
                  {"of": "topic:slow", "direction": "out", "messages_per_s": 1000},
                  {"of": "address:slow/+", "direction": "out", "bytes_per_s": 1000},
                  {"of": "consumers:workers", "direction": "out", "messages_per_s": 10})
    guard = hub.guard("ann")
    assert guard.out_room()[0] == 100
    assert guard.hand_out(5, 100, "slow", "slow/a") == 0
    assert guard.hand_out(5, 100, "slow") == 0, "a whole topic: what any of its addresses matches"
    assert guard.hand_out(5, 100, "other", "other/a") == 0
    assert guard.hand_out(20, 100, consumers="workers") == 1000
    assert [hub.meter(id).messages_taken for id in "0123"] == [35, 10, 10, 20]
    assert guard.out_room() == (0, 0) and guard.out_wait_ms() == 1000
    hub.rig.world.loop.advance(1000)
    assert guard.out_room()[0] == 100


def test_a_limit_of_a_topic_or_of_consumers_holds_back_that_alone_where_the_door_asks_for_it() -> None:
    hub = Limited({"of": "topic:slow", "direction": "out", "messages_per_s": 10},
                  {"of": "consumers:workers", "direction": "out", "messages_per_s": 10})
    guard = hub.guard("ann")
    assert guard.hand_out(15, 0, "slow", "slow/a") == 500 and guard.hand_out(20, 0, consumers="workers") == 1000
    assert (guard.out_wait_ms(), guard.out_room()) == (1000, (0, 0)), "who cannot tell waits for all"
    assert [guard.out_wait_ms(topic) for topic in ("slow", "fast", "")] == [500, 0, 0]
    assert [guard.out_wait_ms("", group) for group in ("workers", "others")] == [1000, 0]
    hub.rig.world.loop.advance(500)
    assert [guard.out_wait_ms(), guard.out_wait_ms("slow"), guard.out_wait_ms("", "workers")] == [500, 0, 500]
    hub.put("0", {"of": "user:ann", "direction": "out", "messages_per_s": 10})
    guard.hand_out(15, 0, "slow", "slow/a")
    assert guard.out_wait_ms("fast") == 500, "a limit of everything"


def test_who_waits_is_told_to_look_again_within_a_second() -> None:
    hub = Limited({"of": "user:*", "direction": "out", "messages_per_s": 1})
    ann, bob = hub.guard("ann"), hub.guard("bob")
    assert ann.hand_out(61, 0) == 60_000 and ann.out_wait_ms() == LOOK_AGAIN_MS
    assert bob.out_room()[0] == 1
    hub.put("0", {"of": "user:*", "direction": "out", "messages_per_s": 100})
    assert ann.out_room()[0] > 0, "what was waited for is another limit now"
    hub.remove("0")
    assert not ann.limits_out


def test_two_connections_of_a_user_share_what_goes_out() -> None:
    hub = Limited({"of": "user:ann", "direction": "out", "messages_per_s": 10})
    one, two = hub.guard("ann"), hub.guard("ann")
    assert one.hand_out(10, 0) == 0
    assert two.hand_out(5, 0) == 500 and one.hand_out(5, 0) == 1000


def share_out(hub: Limited, appetites: dict[str, int], seconds: int) -> dict[str, int]:
    """What each took of a limit that all share, who always takes so much, within that time."""
    guards = {name: hub.guard(name) for name in appetites}
    taken = dict.fromkeys(appetites, 0)
    for _ in range(seconds * 1000):
        for name, guard in guards.items():
            if not guard.out_wait_ms():
                guard.hand_out(appetites[name], 0)
                taken[name] += appetites[name]
        hub.rig.world.loop.advance(1)
    return taken


def test_who_takes_much_at_once_has_no_more_of_it_than_others() -> None:
    hub = Limited({"of": "hub", "direction": "out", "messages_per_s": 100})
    taken = share_out(hub, {"batches": 100, "ann": 2, "bob": 2}, 40)
    assert 3_900 <= sum(taken.values()) <= 4_200
    assert all(0.8 * 4_000 / 3 <= count <= 1.25 * 4_000 / 3 for count in taken.values()), taken


def test_who_takes_much_and_is_alone_has_all_of_it() -> None:
    hub = Limited({"of": "hub", "direction": "out", "messages_per_s": 100})
    taken = share_out(hub, {"batches": 100}, 40)
    assert 3_900 <= taken["batches"] <= 4_200
    taken = share_out(hub, {"batches": 100, "other": 100}, 40)
    assert all(1_800 <= count <= 2_200 for count in taken.values()), taken
