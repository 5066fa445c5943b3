"""The circuit breaker: when it opens, what passes meanwhile, and how it closes; at times that the test says."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from gatehouse.kernel.circuit_breaker import WINDOW, CircuitBreaker, CircuitSettings, CircuitState

SETTINGS = CircuitSettings(failures=5, open_ms=1_000, longest_open_ms=4_000)


def failing(times: int, now_ms: int = 0) -> CircuitBreaker:
    circuit = CircuitBreaker(SETTINGS)
    for _ in range(times):
        assert circuit.may_pass(now_ms)
        circuit.note(False, now_ms)
    return circuit


def test_it_opens_with_so_many_failures_in_a_row_and_not_before() -> None:
    assert failing(4).state is CircuitState.CLOSED
    circuit = failing(5)
    assert (circuit.state, circuit.until_ms, circuit.opened) == (CircuitState.OPEN, 1_000, 1)
    assert not circuit.may_pass(999)


def test_it_opens_with_half_of_the_last_outcomes_failed_though_never_many_in_a_row() -> None:
    circuit = CircuitBreaker(SETTINGS)
    opened = [circuit.note(number % 2 == 0, 0) for number in range(WINDOW)]
    assert opened.index(True) == WINDOW - 1
    circuit = CircuitBreaker(SETTINGS)
    assert not any(circuit.note(number % 3 != 0, 0) for number in range(300))       # a third is not a half


def test_one_probe_passes_and_its_end_decides() -> None:
    circuit = failing(5)
    assert [circuit.may_pass(1_000) for _ in range(3)] == [True, False, False]
    assert circuit.state is CircuitState.HALF_OPEN
    assert circuit.note(True, 1_001)
    assert circuit.state is CircuitState.CLOSED and circuit.may_pass(1_001)
    assert not circuit.note(False, 1_002)                                           # what was before is forgotten


def test_each_probe_that_fails_doubles_the_time_up_to_the_longest() -> None:
    circuit, now_ms, waits = failing(5), 0, []
    for _ in range(4):
        waits.append(circuit.until_ms - now_ms)
        now_ms = circuit.until_ms
        assert circuit.may_pass(now_ms) and circuit.note(False, now_ms)
    assert waits == [1_000, 2_000, 4_000, 4_000]


def test_a_failure_of_before_says_nothing_new_and_a_success_closes() -> None:
    circuit = failing(5)
    assert not circuit.note(False, 10) and circuit.until_ms == 1_000
    assert circuit.note(True, 20) and circuit.state is CircuitState.CLOSED


def test_a_probe_that_nobody_hears_of_is_followed_by_another() -> None:
    circuit = failing(5)
    assert circuit.may_pass(1_000)
    circuit.give_up_probe(1_500)
    assert not circuit.may_pass(1_499) and circuit.may_pass(1_500)


def test_what_is_opened_by_hand_is_closed_by_hand_alone() -> None:
    circuit = CircuitBreaker(SETTINGS)
    circuit.open()
    assert not circuit.note(True, 10) and not circuit.may_pass(1 << 60)
    circuit.close()
    assert circuit.may_pass(0) and not circuit.by_hand


def test_zero_failures_never_opens_it() -> None:
    circuit = CircuitBreaker(CircuitSettings(failures=0))
    assert not any(circuit.note(False, 0) for _ in range(100))


@given(some.lists(some.tuples(some.booleans(), some.integers(0, 3_000)), max_size=200))
def test_something_is_asked_again_in_time_whatever_happens(outcomes: list[tuple[bool, int]]) -> None:
    """However it went: after the longest time a request passes, and while it is open at most one is under way."""
    circuit, now_ms = CircuitBreaker(SETTINGS), 0
    for succeeded, later_ms in outcomes:
        now_ms += later_ms
        if circuit.may_pass(now_ms):
            circuit.note(succeeded, now_ms)
            assert circuit.state is not CircuitState.HALF_OPEN
    assert circuit.may_pass(now_ms + SETTINGS.longest_open_ms)
