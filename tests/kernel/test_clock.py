"""Somebody sets the wall clock: an hour back and ahead, 1970 to now, while the hub runs and while it does not.

Durations take as long as they take, named times come when the wall clock says so, append time never falls.
"""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.message import Leased, When, decode_head
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Ages, Kind
from gatehouse.kernel.state.topics import TopicSettings
from gatehouse.kernel.write.producers import LOOK_MS
from tests.kernel.batches import batch_of
from tests.kernel.groups.test_groups import handles, pop
from tests.kernel.scheduling.rig import NOW_MS, ScheduleRig

HOUR_MS = 3_600_000
BOOTED_MS = 60_000                     # what a machine says that boots without a clock
TO_1970_MS = BOOTED_MS - NOW_MS
STEPS = [-HOUR_MS, HOUR_MS, TO_1970_MS]


@pytest.fixture(params=["memory", "files"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> ScheduleRig:
    return ScheduleRig(tmp_path if request.param == "files" else None)


def take(rig: ScheduleRig) -> list[Leased]:
    return pop(rig, rig.kernel.groups.group("workers", "work"), 10, 30_000)


def append_times(rig: ScheduleRig) -> list[int]:
    return [decode_head(frame.head).append_ms for segment in rig.log.segments() for frame in rig.log.heads(segment)]


# ---- while it runs

@pytest.mark.parametrize("step_ms", STEPS)
def test_a_lease_ends_in_its_time(step_ms: int) -> None:
    rig = ScheduleRig()
    rig.publish("work/a", b"1")
    taken = take(rig)
    assert len(taken) == 1
    rig.world.step_wall(step_ms)
    rig.world.advance(29_000)
    assert not take(rig)
    rig.world.advance(1_100)
    assert len(take(rig)) == 1


@pytest.mark.parametrize("step_ms", STEPS)
def test_a_released_message_waits_its_time(step_ms: int) -> None:
    rig = ScheduleRig()
    rig.publish("work/a", b"1")
    rig.kernel.groups.group("workers", "work").release(handles(take(rig)), 20_000, rig.witness)
    rig.run()
    rig.world.step_wall(step_ms)
    rig.world.advance(19_000)
    assert not take(rig)
    rig.world.advance(1_100)
    assert len(take(rig)) == 1


@pytest.mark.parametrize("step_ms", STEPS)
def test_a_delay_takes_as_long_as_it_was_said_to(rig: ScheduleRig, step_ms: int) -> None:
    rig.later("t/k", (30_000, b"1"))
    rig.world.step_wall(step_ms)
    rig.advance(29_000, 1_000)
    assert not rig.values("t")
    rig.advance(1_000)
    assert rig.values("t") == [b"1"]


def test_a_named_time_comes_with_a_step_ahead_and_waits_behind_one_back(rig: ScheduleRig) -> None:
    wall_ms = rig.world.loop.wall_ms()
    for due_ms in (wall_ms + HOUR_MS, wall_ms + 2 * HOUR_MS):
        rig.kernel.schedule([rig.message("t/k", b"%d" % due_ms)], [When(due_ms)], rig.witness)
    rig.run()
    rig.world.step_wall(-HOUR_MS)
    rig.advance(HOUR_MS + 60_000, 60_000)
    assert not rig.values("t")
    rig.world.step_wall(HOUR_MS)
    rig.run()
    assert rig.values("t") == [b"%d" % (wall_ms + HOUR_MS)]
    rig.advance(HOUR_MS, 60_000)
    assert len(rig.values("t")) == 2


def test_cron_follows_the_wall_clock_and_an_interval_does_not(rig: ScheduleRig) -> None:
    rig.later("cron/k", (0, b"c"), repeat="0 * * * *")
    rig.later("interval/k", (0, b"i"), repeat="every 1h")
    rig.run()
    before = len(rig.values("cron")), len(rig.values("interval"))
    rig.world.step_wall(HOUR_MS)
    rig.run()
    assert (len(rig.values("cron")), len(rig.values("interval"))) == (before[0] + 1, before[1])


def test_what_waits_is_listed_in_the_order_in_which_it_comes(rig: ScheduleRig) -> None:
    ids = rig.later("t/k", (40_000, b"2"), (80_000, b"4"))
    for value, after_ms in ((b"1", 20_000), (b"3", 60_000)):
        rig.kernel.schedule([rig.message("t/k", value)], [When(rig.world.loop.wall_ms() + after_ms)], rig.witness)
        ids += [rig.answer().positions[0][2]]
    order = [ids[2], ids[0], ids[3], ids[1]]
    assert rig.waiting() == rig.waiting(1) == rig.waiting(3) == order
    rig.world.step_wall(-30_000)                   # what has a name comes later by it
    assert rig.waiting() == rig.waiting(1) == [ids[0], ids[2], ids[1], ids[3]]
    assert rig.show(ids[0]).due_ms == rig.world.loop.wall_ms() + 40_000
    rig.advance(100_000)
    assert rig.values("t") == [b"2", b"1", b"4", b"3"]


@pytest.mark.parametrize("step_ms", [HOUR_MS, -TO_1970_MS])
def test_what_is_young_is_not_dropped_by_a_step_ahead(tmp_path: Path, step_ms: int) -> None:
    settings = KernelSettings(segment_bytes=1 << 14, retention_ms=60_000)
    rig = ScheduleRig(tmp_path, settings, wall_ms=NOW_MS if step_ms == HOUR_MS else BOOTED_MS)
    rig.kernel.create_topic("short", partitions=1, settings=TopicSettings(retention_ms=60_000))
    for _ in range(20):
        rig.publish("t/k", b"x" * 4_000)
        rig.publish("short/k", b"y")
    first = append_times(rig)[0]
    rig.advance(30_000, 1_000)
    rig.world.step_wall(step_ms)
    rig.advance(20_000, 1_000)
    assert len(rig.values("t")) == len(rig.values("short")) == 20 and append_times(rig)[0] == first
    rig.publish("t/k", b"z")
    rig.advance(60_000, 1_000)
    assert len(rig.values("t")) < 20 and not rig.values("short")


@pytest.mark.parametrize("step_ms", STEPS)
def test_an_idempotency_key_is_known_for_its_time(step_ms: int) -> None:
    rig = ScheduleRig(settings=KernelSettings(idempotency_ms=60_000))
    first = rig.publish("t/k", b"v", idempotency_key="key")
    rig.world.step_wall(step_ms)
    rig.world.advance(58_000)
    assert rig.publish("t/k", b"v", idempotency_key="key") == first


def test_a_producer_is_not_forgotten_when_the_clock_comes_from_1970() -> None:
    rig = ScheduleRig(wall_ms=BOOTED_MS)
    partition_id = rig.kernel.create_topic("t", partitions=1).partition_id(0)
    rig.kernel.append_batch(partition_id, batch_of([(None, b"a", ())], 7, 0), None)
    rig.run()
    rig.world.step_wall(-TO_1970_MS)
    rig.advance(2 * LOOK_MS, 60_000)
    assert [key for key, _ in rig.kernel._state.scan(Kind.PRODUCER)]


def test_a_step_is_counted_and_told() -> None:
    rig = ScheduleRig()
    told = rig.told.steps
    rig.world.step_wall(-HOUR_MS)
    rig.world.step_wall(2 * HOUR_MS)
    assert told == [-HOUR_MS, 2 * HOUR_MS] and rig.kernel.statistics()["clock_steps_total"] == 2


# ---- append time

@pytest.mark.parametrize("step_ms", STEPS)
def test_append_time_never_falls(rig: ScheduleRig, step_ms: int) -> None:
    for step in (0, step_ms, 5_000, -step_ms):
        rig.world.step_wall(step)
        for _ in range(3):
            rig.publish("t/k", b"v")
            rig.world.advance(700)
    rig.restart(step_ms=step_ms)
    rig.publish("t/k", b"v")
    times = append_times(rig)
    assert times == sorted(times) and len(times) > 10


def test_append_time_is_known_after_a_start_that_replays_nothing(tmp_path: Path) -> None:
    rig = ScheduleRig(tmp_path)
    rig.world.advance(HOUR_MS)
    rig.publish("t/k", b"v")
    rig.advance(10_000, 1_000)                     # a checkpoint holds all of it
    rig.restart(step_ms=-2 * HOUR_MS)
    rig.publish("t/k", b"v")
    times = append_times(rig)
    assert times == sorted(times)


# ---- over a restart

@pytest.mark.parametrize("step_ms", [-HOUR_MS, TO_1970_MS])
def test_a_lease_is_not_held_longer_by_a_start_with_a_clock_that_is_behind(tmp_path: Path, step_ms: int) -> None:
    rig = ScheduleRig(tmp_path)
    rig.publish("work/a", b"1")
    assert take(rig)
    rig.world.advance(10_000)
    rig.publish("other/a", b"1")
    rig.restart(step_ms=step_ms)
    rig.world.advance(19_000)
    assert not take(rig)
    rig.world.advance(1_100)
    assert len(take(rig)) == 1


@pytest.mark.parametrize("step_ms", [-HOUR_MS, TO_1970_MS])
def test_a_delay_is_not_longer_by_a_start_with_a_clock_that_is_behind(tmp_path: Path, step_ms: int) -> None:
    rig = ScheduleRig(tmp_path)
    rig.later("t/k", (30_000, b"1"))
    rig.restart(step_ms=step_ms)
    rig.world.step_wall(-step_ms)                  # NTP puts it right
    rig.advance(30_000, 1_000)
    assert rig.values("t") == [b"1"]


def test_the_time_away_counts(tmp_path: Path) -> None:
    rig = ScheduleRig(tmp_path)
    rig.later("t/k", (30_000, b"1"))
    rig.restart(step_ms=29_000)
    rig.run()
    assert rig.values("t") == [b"1"]


def test_a_delay_given_in_1970_outlives_ntp_and_a_restart(tmp_path: Path) -> None:
    rig = ScheduleRig(tmp_path, wall_ms=BOOTED_MS)
    rig.later("t/k", (HOUR_MS, b"1"))
    rig.world.step_wall(-TO_1970_MS)
    rig.restart()
    rig.advance(HOUR_MS - 60_000, 60_000)
    assert not rig.values("t")
    rig.advance(60_000, 1_000)
    assert rig.values("t") == [b"1"]


def test_a_plateau_of_append_time_counts_over_a_restart(tmp_path: Path) -> None:
    """The clock went back and the hub went on: its newest frame says how long, though append time stood still."""
    rig = ScheduleRig(tmp_path)
    rig.later("t/k", (30_000, b"1"))
    rig.world.step_wall(-HOUR_MS)
    for _ in range(20):
        rig.world.advance(1_000)
        rig.publish("u/k", b"v")
    rig.restart()
    rig.advance(8_000, 1_000)
    assert not rig.values("t")
    rig.advance(1_500)
    assert rig.values("t") == [b"1"]


def test_a_lost_index_changes_nothing(tmp_path: Path) -> None:
    rig = ScheduleRig(tmp_path)
    rig.world.step_wall(-HOUR_MS)
    rig.later("t/k", (30_000, b"1"))
    now_ms = rig.now_ms
    rig.restart(lose_index=True)
    assert rig.now_ms - now_ms == 1_000
    rig.advance(29_000, 1_000)
    assert rig.values("t") == [b"1"]


def test_a_crash_right_behind_a_step_ahead_ends_nothing_early(tmp_path: Path) -> None:
    """A frame is stored before the loop has seen the step."""
    rig = ScheduleRig(tmp_path)
    rig.later("t/k", (HOUR_MS, b"1"))
    rig.world.loop._wall_ms += 10 * HOUR_MS
    rig.publish("u/k", b"v")
    rig.restart()
    rig.advance(HOUR_MS - 10_000, 10_000)
    assert not rig.values("t")
    rig.advance(10_000, 1_000)
    assert rig.values("t") == [b"1"]


# ---- ages

def test_ages_count_no_step() -> None:
    ages = Ages(10_000, ((0, 100_000), (4_000, 500_000), (6_000, 2_000)))
    assert ages.appended_by(1_000) == 502_000        # wall time was 5,000; append time stood still
    assert ages.appended_by(5_000) == 501_000        # between the steps
    assert ages.appended_by(7_000) == 103_000        # before both
    assert ages.appended_by(20_000) == 90_000        # before everything that is remembered
