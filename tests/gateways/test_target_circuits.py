"""Circuits of a name with several targets: who is isolated, who is asked, and what a name costs that is down."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from gatehouse.gateways.circuits import NOBODY, TargetCircuits
from gatehouse.kernel.circuit_breaker import CircuitSettings, CircuitState

SETTINGS = CircuitSettings(failures=3, open_ms=1_000, longest_open_ms=8_000)


def ask(targets: TargetCircuits, dead: set[int], now_ms: int, times: int = 1) -> list[int]:
    """Whom so many requests went to, one after the other."""
    asked = []
    for _ in range(times):
        target = targets.choose(now_ms)
        if target != NOBODY:
            targets.note(target, target not in dead, now_ms)
        asked.append(target)
    return asked


def isolated(targets: TargetCircuits) -> list[int]:
    return [target for target, circuit in enumerate(targets.each) if circuit.state is not CircuitState.CLOSED]


def test_targets_are_asked_in_turn() -> None:
    assert ask(TargetCircuits(SETTINGS, 3), set(), 0, 6) == [0, 1, 2, 0, 1, 2]


def test_one_that_fails_is_isolated_and_asked_once_when_its_time_is_over() -> None:
    targets = TargetCircuits(SETTINGS, 4)
    ask(targets, {2}, 0, 40)
    assert isolated(targets) == [2] and targets.whole.state is CircuitState.CLOSED
    assert 2 not in ask(targets, {2}, 999, 40)
    assert ask(targets, {2}, 1_000, 40).count(2) == 1
    assert 2 not in ask(targets, {2}, 2_999, 40)
    assert ask(targets, set(), 3_000, 40).count(2) >= 10 and isolated(targets) == []


def test_no_more_than_three_of_ten_are_isolated_while_others_answer() -> None:
    targets = TargetCircuits(SETTINGS, 10)
    dead = {0, 1, 2, 3, 4, 5, 6}
    ask(targets, dead, 0, 400)
    assert len(isolated(targets)) == 3 and targets.whole.state is CircuitState.CLOSED
    asked = ask(targets, dead, 1, 70)
    assert len(set(asked)) == 7 and {7, 8, 9} <= set(asked)


def test_when_all_fail_one_is_tried_at_a_time_and_it_is_the_one_isolated_longest() -> None:
    targets = TargetCircuits(SETTINGS, 3)
    ask(targets, {0, 1, 2}, 0, 20)
    assert targets.whole.state is CircuitState.OPEN and isolated(targets) == [0, 1, 2]
    probes = []
    for now_ms in range(0, 20_000, 100):
        probes += [(now_ms, target) for target in ask(targets, {0, 1, 2}, now_ms, 5) if target != NOBODY]
    assert [now_ms for now_ms, _ in probes] == [1_000, 3_000, 7_000, 15_000]
    assert [target for _, target in probes[:3]] == [0, 1, 2] and probes[3][1] == 0


def test_the_first_that_answers_again_closes_the_name_and_the_rest_are_probed_by_themselves() -> None:
    targets = TargetCircuits(SETTINGS, 3)
    ask(targets, {0, 1, 2}, 0, 20)
    assert ask(targets, {1, 2}, 1_000) == [0]
    assert targets.whole.state is CircuitState.CLOSED and 0 not in isolated(targets)
    ask(targets, {1, 2}, 1_000, 30)
    assert ask(targets, set(), 60_000, 30).count(1) > 5 and isolated(targets) == []


def test_a_name_stopped_by_hand_asks_nobody_and_a_target_stopped_by_hand_is_left_out() -> None:
    targets = TargetCircuits(SETTINGS, 2)
    targets.each[0].open()
    assert ask(targets, set(), 1 << 40, 4) == [1, 1, 1, 1]
    targets.each[1].open()
    assert ask(targets, set(), 1 << 40) == [NOBODY]
    targets.each[1].close()
    targets.whole.open()
    assert ask(targets, set(), 1 << 40) == [NOBODY]


def test_with_one_target_its_circuit_is_that_of_the_name() -> None:
    targets = TargetCircuits(SETTINGS)
    assert targets.each == [targets.whole]
    assert ask(targets, {0}, 0, 5) == [0, 0, 0, NOBODY, NOBODY]
    assert ask(targets, {0}, 1_000, 2) == [0, NOBODY]


def test_a_probe_that_nobody_hears_of_is_followed_by_another() -> None:
    targets = TargetCircuits(SETTINGS, 2)
    ask(targets, {0, 1}, 0, 20)
    target = targets.choose(1_000)
    assert target != NOBODY and targets.choose(1_000) == NOBODY
    targets.give_up_probe(target, 1_500)
    assert targets.choose(1_499) == NOBODY and targets.choose(1_500) != NOBODY


@given(count=some.integers(1, 12), steps=some.lists(some.tuples(
    some.integers(0, 3_000), some.sets(some.integers(0, 11)), some.integers(1, 8)), max_size=60))
def test_whatever_fails_few_are_isolated_while_some_answer_and_all_come_back(
        count: int, steps: list[tuple[int, set[int], int]]) -> None:
    targets, now_ms = TargetCircuits(SETTINGS, count), 0
    for later_ms, dead, times in steps:
        now_ms += later_ms
        ask(targets, dead, now_ms, times)
    for _ in range(200):
        now_ms += 10_000
        ask(targets, set(), now_ms, 2 * count)
    assert isolated(targets) == [] and targets.whole.state is CircuitState.CLOSED
    assert set(ask(targets, set(), now_ms, 2 * count)) == set(range(count))
