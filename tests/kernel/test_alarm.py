"""An alarm rings once, at the time it was set to last, or by the earliest of several."""
from __future__ import annotations

from gatehouse.kernel.alarm import Alarm
from gatehouse.kernel.world import World


class Bell:
    def __init__(self) -> None:
        self.world = World(1_700_000_000_000)
        self.began_ms = self.world.loop.now_ms()
        self.rung: list[int] = []
        self.alarm = Alarm(self.world.loop.call_at, self._ring)

    def _ring(self) -> None:
        assert self.alarm.when_ms is None, "whoever is called may set it anew"
        self.rung.append(self.world.loop.now_ms() - self.began_ms)

    def at(self, in_ms: int) -> None:
        self.alarm.ring_at(self.began_ms + in_ms)

    def by(self, in_ms: int) -> None:
        self.alarm.ring_by(self.began_ms + in_ms)

    def wait(self, ms: int) -> list[int]:
        for _ in range(ms):
            self.world.advance(1)
        return self.rung


def test_it_rings_once() -> None:
    bell = Bell()
    bell.at(5)
    assert bell.wait(20) == [5] and bell.alarm.when_ms is None


def test_it_is_set_to_another_time_earlier_or_later() -> None:
    bell = Bell()
    for in_ms in (5, 9, 9, 7):
        bell.at(in_ms)
    assert bell.alarm.when_ms == bell.began_ms + 7
    assert bell.wait(20) == [7]


def test_by_the_earliest_of_several_times() -> None:
    bell = Bell()
    for in_ms in (7, 9, 5, 5, 6):
        bell.by(in_ms)
    assert bell.wait(20) == [5]
    bell.by(25)
    assert bell.wait(20) == [5, 25], "what it rang for is over"


def test_a_cancelled_one_does_not_ring_until_it_is_set_again() -> None:
    bell = Bell()
    bell.alarm.cancel()
    bell.at(5)
    bell.alarm.cancel()
    assert bell.wait(10) == [] and bell.alarm.when_ms is None
    bell.by(15)
    assert bell.wait(10) == [15]
