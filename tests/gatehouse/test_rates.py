"""What goes through the doors a second, from totals looked at."""
from __future__ import annotations

import pytest

from gatehouse.gateways.admission.trace import Trace
from gatehouse.rates import KEPT, Rates


class FakeLoop:
    """Time that is moved by hand; at most one call is waiting."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waiting = None

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s, callback):
        self.waiting = self.now_s + delay_s, callback
        return self

    def cancel(self) -> None:
        self.waiting = None

    def tick(self, late_s: float = 0.0) -> None:
        when_s, callback = self.waiting
        self.now_s = when_s + late_s
        callback()


@pytest.fixture
def loop():
    return FakeLoop()


@pytest.fixture
def trace():
    return Trace()


@pytest.fixture
def rates(loop, trace):
    rates = Rates(loop, trace)
    rates.start()
    return rates


def came_in(trace: Trace, door: str, messages: int, size_bytes: int) -> None:
    flow = trace.flow(door)
    flow.messages_in += messages
    flow.bytes_in += size_bytes


def test_a_rate_is_the_mean_of_the_last_looks(rates, loop, trace):
    assert rates.current("mqtt")["messages_in"] == 0
    for _ in range(10):
        came_in(trace, "mqtt", 100, 2000)
        trace.flow("mqtt").messages_out += 50
        loop.tick()
    assert rates.current("mqtt") == {"messages_in": 100, "bytes_in": 2000, "messages_out": 50, "bytes_out": 0}
    for _ in range(5):
        loop.tick()
    assert rates.current("mqtt") == {"messages_in": 0, "bytes_in": 0, "messages_out": 0, "bytes_out": 0}
    assert rates.current("nobody")["messages_in"] == 0


def test_a_late_look_counts_for_the_time_it_took(rates, loop, trace):
    came_in(trace, "http", 300, 1)
    loop.tick(late_s=2.0)
    assert rates.current("http")["messages_in"] == 100


def test_history_is_a_value_a_second_for_three_minutes(rates, loop, trace):
    for second in range(KEPT + 50):
        came_in(trace, "http", second, 1)
        loop.tick()
    told = rates.history()
    assert told["interval_s"] == 1.0
    assert told["doors"]["http"]["messages_in"] == [float(second) for second in range(50, KEPT + 50)]
    assert told["doors"]["http"]["messages_out"] == [0.0] * KEPT


def test_a_door_that_is_new_was_at_nothing_before(rates, loop, trace):
    loop.tick()
    came_in(trace, "kafka", 7, 1)
    loop.tick()
    assert rates.history()["doors"]["kafka"]["messages_in"] == [0.0, 7.0]


def test_it_looks_no_more_once_it_is_stopped(rates, loop):
    rates.stop()
    assert loop.waiting is None
