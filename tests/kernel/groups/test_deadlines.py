"""When something happens to groups: what is remembered of times is bounded by what is there."""
from __future__ import annotations

from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.leasing import LOOKED_THROUGH, PAUSE_MS, STEP_MS
from tests.kernel.groups.test_full_disk import FullRig
from tests.kernel.groups.test_groups import handles, pop, send, values
from tests.kernel.rig import Rig

HOUR_MS = 3_600_000


def work(rig: Rig, messages: int) -> LeasedGroup:
    queue = rig.kernel.groups.declare_queue("work")
    send(rig, queue, *[b"%d" % number for number in range(messages)])
    return rig.kernel.groups.queue_group(queue)


def live_timers(rig: Rig) -> int:
    return sum(timer.callback is not None for _, _, timer in rig.world.loop._timers)


def test_retries_before_one_that_waits_long_leave_no_timers_behind() -> None:
    rig = Rig()
    group = work(rig, 2)
    later, again = handles(pop(rig, group))
    group.release([later], HOUR_MS)
    for _ in range(100):
        group.release([again], 10)
        rig.run()
        rig.world.advance(10)
        [again] = handles(pop(rig, group, invisible_ms=5 * HOUR_MS))
    assert live_timers(rig) < 100
    rig.world.advance(HOUR_MS)
    assert values(pop(rig, group)) == [b"0"]


def test_leases_that_were_acked_before_their_time_leave_no_timers_behind() -> None:
    rig = Rig()
    group = work(rig, 2 * LOOKED_THROUGH)
    kept = pop(rig, group, 1, 3 * HOUR_MS)
    for _ in range(2 * LOOKED_THROUGH - 1):
        rig.world.loop.advance(STEP_MS)
        group.ack(handles(pop(rig, group, 1, 3 * HOUR_MS)))
    assert live_timers(rig) < LOOKED_THROUGH + 100
    rig.world.advance(3 * HOUR_MS)
    assert values(pop(rig, group)) == values(kept)


def test_what_waits_is_remembered_once_however_often_a_full_disk_refuses_its_cursor() -> None:
    rig = FullRig()
    group = work(rig, 201)
    group.release(handles(pop(rig, group, 200)), HOUR_MS)
    rig.run()
    rig.full_log.full = True
    for _ in range(20):
        assert pop(rig, group, 1) == []
        rig.world.advance(PAUSE_MS + 100)
    assert len(rig.kernel.leasing.core.deadlines._waits) < LOOKED_THROUGH + 300
    rig.full_log.full = False
    rig.world.advance(HOUR_MS)
    assert len(pop(rig, group, 1_000)) == 201
