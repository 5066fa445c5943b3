"""Background work beside live messages: it rests, users take turns, and alone it is not slowed down."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from gatehouse.kernel.background import (
    FIRST_SHARE,
    LEAST_SHARE,
    LIGHT_BYTES_PER_S,
    LISTEN_MS,
    LIVE_MS,
    LONGEST_REST_MS,
    LOOK_MS,
    PAUSE_MS,
    SLICE_BYTES,
    Background,
    LiveWork,
)
from gatehouse.kernel.world import FakeLoop, FakeWorker


class Hub:
    """A controller, one worker with two users, and live messages that a test makes."""

    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.worker = FakeWorker(self.loop)
        self.messages = self.waited_ms = self.size_bytes = self.newest_ms = 0
        self.hurried = False
        self.background = Background(self.loop)
        self.replay = self.background.worker(self.worker, "replay")
        self.bulk = self.background.worker(self.worker, "bulk")
        self.background.begin(lambda: LiveWork(
            self.messages, self.waited_ms, self.size_bytes, self.newest_ms), lambda: self.hurried)
        self.ended: list[str] = []

    def publish(self, waited_ms: int = 1, size_bytes: int = 100) -> None:
        """A message becomes durable, and that is seen."""
        self.messages += 1
        self.size_bytes += size_bytes
        self.waited_ms += waited_ms
        for _ in range(LOOK_MS):                    # no timer comes late
            self.loop.advance(1)
            self.turn()
        self.newest_ms = self.loop.now_ms()
        self.background.yields()

    def ask(self, name: str, of: str = "replay") -> None:
        worker = self.replay if of == "replay" else self.bulk
        worker.submit(lambda: name, self.on_done)

    def on_done(self, result: Any, error: BaseException | None) -> None:
        self.ended.append(str(error) if result is None else result)

    def turn(self) -> None:
        while self.loop.step():
            pass

    def work(self, took_ms: int) -> bool:
        """One job takes so long; whether there was one."""
        self.turn()
        if not self.worker.step():
            return False
        self.loop.advance(took_ms)
        self.turn()
        return True


@pytest.fixture
def hub() -> Hub:
    return Hub()


def test_alone_every_job_is_handed_on_at_once_and_whole(hub: Hub) -> None:
    for number in range(5):
        hub.ask(str(number))
    assert len(hub.worker.jobs) == 5
    assert hub.background.slice_bytes(4 << 20) == 4 << 20
    while hub.work(took_ms=50):
        pass
    assert hub.ended == ["0", "1", "2", "3", "4"]
    assert hub.background.rested_ms == 0


def test_beside_live_messages_one_job_runs_at_a_time_and_the_worker_rests(hub: Hub) -> None:
    hub.publish()
    assert hub.background.slice_bytes(4 << 20) == SLICE_BYTES
    for number in range(3):
        hub.ask(str(number))
    assert len(hub.worker.jobs) == 1
    assert hub.background.waiting == 2
    assert hub.work(took_ms=10)
    rest_ms = round(10 * (1 / FIRST_SHARE - 1))
    hub.loop.advance(rest_ms - 1)
    assert not hub.work(took_ms=10)
    hub.loop.advance(1)
    assert hub.work(took_ms=10)
    assert hub.background.rested_ms == rest_ms
    assert hub.background.jobs == {"replay": 2, "bulk": 0}


def test_users_of_one_worker_take_turns(hub: Hub) -> None:
    hub.publish()
    for number in range(4):
        hub.ask(f"replay {number}")
    hub.ask("bulk 0", of="bulk")
    hub.ask("bulk 1", of="bulk")
    while hub.work(took_ms=0):
        pass
    assert hub.ended == ["replay 0", "replay 1", "bulk 0", "replay 2", "bulk 1", "replay 3"]


def test_what_was_published_long_before_somebody_looked_holds_up_nobody(hub: Hub) -> None:
    hub.messages += 1
    hub.newest_ms = hub.loop.now_ms()
    hub.loop.advance(LIVE_MS)
    assert not hub.background.yields()


def test_when_nobody_publishes_any_more_what_waits_goes_on_at_once(hub: Hub) -> None:
    hub.publish()
    for number in range(5):
        hub.ask(str(number))
    assert hub.work(took_ms=LIVE_MS)
    for _ in range(4):
        assert hub.work(took_ms=LIVE_MS)
    assert hub.background.rested_ms == 0


def test_who_is_hurried_does_not_rest(hub: Hub) -> None:
    hub.publish()
    hub.hurried = True
    for number in range(3):
        hub.ask(str(number))
    while hub.work(took_ms=20):
        pass
    assert len(hub.ended) == 3
    assert hub.background.rested_ms == 0


def test_the_share_falls_where_live_messages_suffer_and_grows_where_not(hub: Hub) -> None:
    share = partial(getattr, hub.background, "share")
    hub.publish()                                   # something may have run before
    hub.publish(waited_ms=2)                        # nothing did: calm
    assert share() == FIRST_SHARE
    for _ in range(3):
        hub.ask("one")
        while not hub.work(took_ms=1):
            hub.loop.advance(LOOK_MS)
        hub.publish(waited_ms=2)
    assert share() > FIRST_SHARE
    for _ in range(10):
        hub.ask("one")
        while not hub.work(took_ms=1):
            hub.loop.advance(LOOK_MS)
        hub.publish(waited_ms=9)
    assert share() == LEAST_SHARE


def test_who_lags_behind_much_may_do_as_much_more(hub: Hub) -> None:
    hub.publish(size_bytes=LIGHT_BYTES_PER_S // 100)
    assert hub.background.allowed == FIRST_SHARE
    hub.publish(size_bytes=4 * LIGHT_BYTES_PER_S * LOOK_MS // 1_000)
    assert hub.background.allowed == pytest.approx(4 * FIRST_SHARE)
    hub.publish(size_bytes=100 * LIGHT_BYTES_PER_S)
    assert hub.background.allowed == 1


def test_a_rest_has_an_end_whatever_a_job_took(hub: Hub) -> None:
    hub.publish()
    hub.ask("long")
    hub.ask("next")
    hub.worker.step()
    for _ in range(50):
        hub.publish()                               # while it runs
    hub.turn()
    hub.loop.advance(LONGEST_REST_MS)
    assert hub.work(took_ms=0)
    assert hub.ended == ["long", "next"]


def test_where_something_always_runs_all_of_it_pauses_to_listen(hub: Hub) -> None:
    hub.publish()
    longest_ms = 0
    for _ in range(2 * LISTEN_MS // LOOK_MS):
        hub.ask("one")
        waited_ms = 0
        while not hub.work(took_ms=1):
            hub.messages += 1
            hub.waited_ms += 1
            hub.loop.advance(1)
            waited_ms += 1
        longest_ms = max(longest_ms, waited_ms)
        hub.publish()
    assert longest_ms == pytest.approx(PAUSE_MS, abs=LOOK_MS)


def test_a_stopping_kernel_waits_for_no_rest(hub: Hub) -> None:
    hub.publish()
    for number in range(4):
        hub.ask(str(number))
    assert hub.work(took_ms=30)
    hub.background.stop()
    while hub.work(took_ms=30):
        pass
    assert hub.ended == ["0", "1", "2", "3"]


def test_a_fault_of_who_is_answered_does_not_stop_the_lane(hub: Hub) -> None:
    def fail(result: object, error: BaseException | None) -> None:
        raise ValueError("not ours")

    hub.publish()
    hub.replay.submit(lambda: "one", fail)
    hub.ask("two")
    hub.worker.step()
    with pytest.raises(ValueError, match="not ours"):
        hub.turn()
    assert hub.work(took_ms=0)
    assert hub.ended == ["two"]


def test_errors_of_jobs_reach_who_asked(hub: Hub) -> None:
    def broken() -> None:
        raise OSError("no disk")

    for live in (False, True):
        if live:
            hub.publish()
        submit: Callable[..., None] = hub.replay.submit
        submit(broken, hub.on_done)
        assert hub.work(took_ms=0)
    assert hub.ended == ["no disk", "no disk"]
