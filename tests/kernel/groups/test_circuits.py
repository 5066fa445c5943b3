"""A group whose members only fail is paused: what opens its circuit, what is held back, and what a start keeps."""
from __future__ import annotations

import pytest

from gatehouse.kernel.circuit_breaker import CircuitBreaker, CircuitState
from gatehouse.kernel.errors import InvalidGroup
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import GroupSettings, Pausing, Retry, decode_group, encode_group
from tests.kernel.groups.test_full_disk import FullRig
from tests.kernel.groups.test_groups import handles, join, pop, values
from tests.kernel.rig import Rig

AT_ONCE = Retry(delays_ms=(0,))
SETTINGS = GroupSettings(retry=AT_ONCE, max_attempts=0, pausing=Pausing(3, 1_000, 4_000))


class Shown:
    """Who shows the circuits of groups."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], CircuitBreaker] = {}

    def on_kept(self, tenant: str, name: str, breaker: CircuitBreaker, on_turned: object) -> None:
        self.kept[tenant, name] = breaker
        self.on_turned = on_turned

    def on_forgotten(self, tenant: str, name: str) -> None:
        del self.kept[tenant, name]

    def turn(self, is_open: bool) -> None:
        breaker = self.kept["/", "billing"]
        (breaker.open if is_open else breaker.close)()
        assert callable(self.on_turned)
        self.on_turned()


def follow(rig: Rig) -> Shown:
    shown = Shown()
    rig.kernel.leasing.core.circuits.follow(shown)
    return shown


def billing(rig: Rig, settings: GroupSettings = SETTINGS, count: int = 9) -> LeasedGroup:
    if count:
        rig.publish("orders/a", *[b"%d" % number for number in range(count)])
    rig.kernel.groups.define("billing", settings)
    group = rig.kernel.groups.group("billing", "orders")
    rig.run()
    return group


def fail(rig: Rig, group: LeasedGroup, times: int = 3) -> None:
    for _ in range(times):
        held = pop(rig, group, 1)
        assert len(held) == 1
        group.release(handles(held), 0)
        rig.run()


def test_it_opens_with_so_many_failures_and_hands_out_nothing_until_its_time_is_over() -> None:
    rig = Rig()
    shown = follow(rig)
    group = billing(rig)
    fail(rig, group)
    assert shown.kept["/", "billing"].state is CircuitState.OPEN and group.is_paused
    assert pop(rig, group) == [] and group.ready == 9
    rig.world.advance(1_000)
    probe = pop(rig, group)
    assert values(probe) == [b"0"]
    assert pop(rig, group) == []                              # it alone is out
    group.ack(handles(probe))
    rig.run()
    assert not group.is_paused and len(pop(rig, group)) == 8


def test_a_member_waits_and_is_handed_one_message_and_then_all_without_asking_again() -> None:
    rig = Rig()
    group = billing(rig)
    fail(rig, group)
    taker, _ = join(rig, group)
    assert taker.got == []
    rig.world.advance(1_000)
    assert taker.values == [b"0"]
    group.ack(handles(taker.got))
    rig.run()
    assert taker.values == [b"%d" % number for number in range(9)]


def test_each_probe_that_fails_doubles_the_pause_up_to_the_longest() -> None:
    rig = Rig()
    group = billing(rig)
    fail(rig, group)
    taker, _ = join(rig, group)
    probes = []
    for _ in range(16):
        rig.world.advance(500)
        probes.append(len(taker.got))
        if taker.got:
            group.release(handles([taker.got.pop()]), 0)
            rig.run()
    assert [at for at, probe in enumerate(probes, 1) if probe] == [2, 6, 14]


def test_a_refusal_and_a_lease_that_ran_out_are_failures_and_so_is_who_goes_away_but_once() -> None:
    rig = Rig()
    group = billing(rig)
    _, leaving = join(rig, group, 5)
    leaving.leave()                                           # with five messages: one failure
    rig.run()
    assert not group.is_paused
    group.reject(handles(pop(rig, group, 1)))
    rig.run()
    assert not group.is_paused
    pop(rig, group, 1, 1_000)
    rig.world.advance(1_100)
    assert group.is_paused


def test_half_of_the_last_outcomes_is_enough_though_never_many_in_a_row() -> None:
    rig = Rig()
    group = billing(rig, count=30)
    for number in range(20):
        assert not group.is_paused
        held = pop(rig, group, 1)
        if number % 2:
            group.ack(handles(held))
        else:
            group.release(handles(held), 0)
        rig.run()
    fail(rig, group, 1)
    assert group.is_paused


def test_what_was_out_when_it_opened_says_nothing_new_unless_it_is_acked() -> None:
    rig = Rig()
    group = billing(rig)
    before = pop(rig, group, 2)
    fail(rig, group)
    rig.world.advance(1_000)
    assert len(pop(rig, group)) == 1
    group.release(handles(before[:1]), 0)                     # not the probe
    rig.run()
    assert group.is_paused
    group.ack(handles(before[1:]))
    rig.run()
    assert not group.is_paused


def test_a_probe_whose_cursor_goes_on_elsewhere_is_followed_by_another() -> None:
    rig = Rig()
    group = billing(rig)
    fail(rig, group)
    rig.world.advance(1_000)
    assert values(pop(rig, group)) == [b"0"]
    topic = rig.kernel.topic("orders")
    assert topic is not None
    moved = next(iter(group.prefetchers))
    rig.kernel.groups.rewind("billing", topic, {moved: 5})
    rig.run()
    assert values(pop(rig, group)) == [b"5"]
    assert pop(rig, group) == []


def test_it_is_open_after_a_start_for_as_long_as_it_was_to_be() -> None:
    rig = Rig()
    group = billing(rig)
    fail(rig, group)
    rig.restart()                                             # a second later: its time is over
    shown = follow(rig)
    assert shown.kept["/", "billing"].state is CircuitState.OPEN
    group = rig.kernel.groups.group("billing", "orders")
    assert len(pop(rig, group)) == 1 and pop(rig, group) == []
    rig.restart(lose_index=True)
    taker, _ = join(rig, rig.kernel.groups.group("billing", "orders"))
    rig.world.advance(100)
    assert len(taker.got) <= 1


def test_one_that_has_closed_is_closed_after_a_start() -> None:
    rig = Rig()
    group = billing(rig)
    fail(rig, group)
    rig.world.advance(1_000)
    group.ack(handles(pop(rig, group)))
    rig.run()
    rig.restart()
    assert len(pop(rig, rig.kernel.groups.group("billing", "orders"))) == 8


def test_it_is_opened_and_closed_by_hand_and_stays_open_over_a_start() -> None:
    rig = Rig()
    shown = follow(rig)
    billing(rig)
    shown.turn(True)
    rig.run()
    rig.restart()
    shown = follow(rig)
    group = rig.kernel.groups.group("billing", "orders")
    taker, _ = join(rig, group)
    rig.world.advance(10_000_000)
    assert taker.got == [] and shown.kept["/", "billing"].by_hand
    shown.turn(False)
    rig.run()
    assert len(taker.got) == 9


def test_without_the_setting_it_opens_never_and_what_is_open_closes_with_it() -> None:
    rig = Rig()
    shown = follow(rig)
    group = billing(rig, GroupSettings(retry=AT_ONCE, max_attempts=0))
    fail(rig, group, 50)
    assert not group.is_paused and not shown.kept
    rig.kernel.groups.define("billing", SETTINGS)
    fail(rig, group)
    assert group.is_paused and shown.kept
    rig.kernel.groups.define("billing", GroupSettings(max_attempts=0))
    rig.run()
    assert not group.is_paused and not shown.kept and len(pop(rig, group)) == 9
    rig.restart()
    assert not follow(rig).kept


def test_a_group_that_is_deleted_leaves_no_circuit() -> None:
    rig = Rig()
    shown = follow(rig)
    fail(rig, billing(rig))
    rig.kernel.groups.delete("billing")
    rig.run()
    assert not shown.kept
    rig.restart()
    assert not follow(rig).kept


def test_topics_and_shared_filters_of_one_name_are_paused_together() -> None:
    rig = Rig()
    group = billing(rig)
    rig.publish("bills/a", b"1")
    other = rig.kernel.groups.group("billing", "bills")
    shared = rig.kernel.groups.shared_group("$share/billing/plant/+/x")
    rig.run()
    rig.publish("plant/a/x", b"2")
    fail(rig, group)
    assert pop(rig, other) == [] and pop(rig, shared) == []
    rig.world.advance(1_000)
    probes = [pop(rig, each) for each in (shared, other)]
    assert [len(probe) for probe in probes] == [1, 0]
    shared.ack(handles(probes[0]))
    rig.run()
    assert len(pop(rig, other)) == 1


def test_who_acks_nothing_closes_it_by_taking_one() -> None:
    rig = Rig()
    group = billing(rig)
    fail(rig, group)
    taker, _ = join(rig, group, keeps=False)
    assert taker.got == []
    rig.world.advance(1_000)
    assert len(taker.got) == 9 and not group.is_paused


def test_a_disk_that_is_full_keeps_it_for_the_next_frame() -> None:
    rig = FullRig()
    group = billing(rig)
    held = pop(rig, group, 3)
    with rig.full():
        group.release(handles(held), 0)
    assert group.is_paused
    rig.after_the_pause()
    rig.publish("orders/a", b"more")
    rig.restart()
    assert follow(rig).kept["/", "billing"].state is CircuitState.OPEN


@pytest.mark.parametrize("pausing", [Pausing(-1), Pausing(1_001), Pausing(3, 99), Pausing(3, 1_000, 0),
                                     Pausing(3, 1_000, 24 * 3_600_000 + 1)])
def test_settings_have_bounds(pausing: Pausing) -> None:
    with pytest.raises(InvalidGroup):
        GroupSettings(pausing=pausing).check()


def test_settings_are_read_as_they_were_written_and_those_of_before_have_none() -> None:
    assert decode_group(encode_group(SETTINGS)) == SETTINGS
    assert decode_group(b'{"ordered": true}').pausing == Pausing()
