"""What is left undone comes in the declared order, whatever the reason, and goes one by one."""
from __future__ import annotations

import pytest

from gatehouse.kernel.shedding import NAMES, Rung, Shedding
from gatehouse.overload import CALM_MS, LOOK_MS, MEMORY_RUNGS, Ladder


def looks(ladder: Ladder, count: int, begin_ms: int = 0, memory: float = 0.0, **others: float) -> list[Rung]:
    return [ladder.look(begin_ms + number * LOOK_MS, memory, others) for number in range(count)]


def test_the_order_is_the_one_that_is_declared() -> None:
    assert list(NAMES.values()) == ["trace_events", "bulk_reads", "qos_0", "new_connections", "publishers"]
    assert [rung for _, rung in MEMORY_RUNGS] == list(NAMES)


@pytest.mark.parametrize(("share", "rung"), [
    (0.0, Rung.NOTHING), (0.79, Rung.NOTHING), (0.8, Rung.TRACE_EVENTS), (0.86, Rung.BULK_READS), (0.9, Rung.QOS_0),
    (0.95, Rung.NEW_CONNECTIONS), (0.999, Rung.NEW_CONNECTIONS), (1.0, Rung.PUBLISHERS), (7.0, Rung.PUBLISHERS)])
def test_memory_says_the_rung_at_once(share: float, rung: Rung) -> None:
    assert Ladder().look(0, share, {}) is rung


def test_one_stall_is_no_overload_and_a_second_look_that_finds_it_is() -> None:
    ladder = Ladder()
    assert looks(ladder, 4, lateness=3.0)[:4] == [Rung.NOTHING, Rung.TRACE_EVENTS, Rung.BULK_READS, Rung.QOS_0]
    ladder = Ladder()
    for begin_ms in range(0, 20 * LOOK_MS, 2 * LOOK_MS):
        assert ladder.look(begin_ms, 0, {"lateness": 9.0}) is Rung.NOTHING
        assert ladder.look(begin_ms + LOOK_MS, 0, {"lateness": 0.2}) is Rung.NOTHING


def test_it_climbs_to_the_last_rung_and_no_further() -> None:
    assert looks(Ladder(), 20, disk=1.0)[-3:] == [Rung.PUBLISHERS] * 3


def test_it_comes_down_one_by_one_and_only_while_it_is_calm() -> None:
    ladder = Ladder()
    ladder.look(0, 1.2, {})
    step = CALM_MS // LOOK_MS
    down = looks(ladder, 6 * step, LOOK_MS)
    assert [down[number * step - 1] for number in range(1, 6)] == [
        Rung.NEW_CONNECTIONS, Rung.QOS_0, Rung.BULK_READS, Rung.TRACE_EVENTS, Rung.NOTHING]


def test_memory_that_swings_about_a_bound_does_not_swing_the_rung() -> None:
    ladder = Ladder()
    assert {ladder.look(number * LOOK_MS, 1.0 if number % 2 else 0.96, {}) for number in range(1, 40)} == {
        Rung.PUBLISHERS}


def test_a_clock_that_is_set_back_keeps_the_rung_and_loses_nothing() -> None:
    ladder = Ladder()
    ladder.look(1_000_000, 1.0, {})
    assert ladder.look(0, 0.1, {}) is Rung.PUBLISHERS
    assert ladder.look(1_000_000 + 10 * CALM_MS, 0.1, {}) is Rung.NEW_CONNECTIONS


def test_what_is_left_undone_is_what_stands_below_and_it_is_counted() -> None:
    shedding = Shedding()
    assert not shedding.leaves(Rung.TRACE_EVENTS) and shedding.left == []
    shedding.level = Rung.QOS_0
    assert shedding.left == ["trace_events", "bulk_reads", "qos_0"]
    assert shedding.leaves(Rung.QOS_0, 3) and not shedding.leaves(Rung.PUBLISHERS)
    assert shedding.counts[Rung.QOS_0] == 3 and shedding.counts[Rung.PUBLISHERS] == 0
