"""Messages for later: they come at their time, in due order, once, with their id, whatever happens meanwhile."""
from __future__ import annotations

from collections import deque

import pytest

from gatehouse.kernel.errors import (
    AlreadyDelivered,
    IdempotencyConflict,
    InvalidDelay,
    QueueFull,
    StorageFull,
    TooManyScheduled,
    UnknownScheduled,
)
from gatehouse.kernel.groups.group_settings import QueueSettings
from gatehouse.kernel.index.memtable import Checkpoints
from gatehouse.kernel.message import When
from gatehouse.kernel.scheduling.delivering import READ_BYTES, WINDOW_BYTES
from gatehouse.kernel.scheduling.plan import REMEMBERED_MS
from gatehouse.kernel.scheduling.schedule_records import Fate, Pending, Settled
from gatehouse.kernel.scheduling.scheduling import MAX_DELAY_MS
from gatehouse.kernel.settings import KernelSettings
from tests.kernel.full_log import FullLog
from tests.kernel.scheduling.rig import ScheduleRig


@pytest.fixture
def rig() -> ScheduleRig:
    return ScheduleRig()


def test_it_comes_when_it_falls_due_with_its_id_and_no_earlier(rig: ScheduleRig) -> None:
    rig.kernel.subscribe("plant/#", rig.witness)
    [message_id] = rig.later("plant/k", (5_000, b"v"))
    assert rig.witness.stored[-1].positions == [(0, -1, message_id)]
    rig.advance(4_999)
    assert rig.values("plant") == [] and rig.witness.delivered == []
    rig.advance(1)
    assert rig.witness.delivered == [("plant/k", b"v", 0, 0)]
    [(offset, timestamp_ms, key, value, headers, attributes, found_id)] = rig.read("plant")
    assert (offset, timestamp_ms, key, value, found_id) == (0, rig.now_ms, b"k", b"v", message_id)
    assert (headers, attributes) == (((b"unit", b"C"),), 2)
    assert rig.publish("plant/k", b"next")[0][2] != message_id


def test_all_come_in_due_order(rig: ScheduleRig) -> None:
    delays = [(n * 7919 % 3_000 + 1, b"%d" % (n * 7919 % 3_000 + 1)) for n in range(1_500)]
    rig.later("t/k", *delays)
    rig.advance(3_001)
    assert rig.values("t") == [b"%d" % due for due in sorted(due for due, _ in delays)]


def test_what_is_over_is_appended_at_once(rig: ScheduleRig) -> None:
    rig.kernel.schedule([rig.message("t/k", b"a"), rig.message("t/k", b"b"), rig.message("t/k", b"c")],
                        [When(), When(rig.now_ms + 50), When(rig.now_ms - 1)], rig.witness)
    positions = rig.answer().positions
    assert [offset for _, offset, _ in positions] == [0, -1, 1] and rig.values("t") == [b"a", b"c"]
    rig.advance(50)
    assert rig.values("t") == [b"a", b"c", b"b"]
    assert rig.read("t")[2][6] == positions[1][2]


@pytest.mark.parametrize("key", [None, "once"])
def test_what_is_over_finds_a_queue_that_is_full(rig: ScheduleRig, key: str | None) -> None:
    """What has no room now is refused, with all of its call; what waits is let in when it falls due, or not."""
    rig.kernel.groups.declare_queue("q", QueueSettings(max_length=1, overflow="reject"))
    rig.run()
    room = rig.kernel.place("$queue/q"), b"1", b"", 0, 0
    waits, over = When(delay_ms=50), When()
    with pytest.raises(QueueFull) as refused:
        rig.kernel.schedule([room, room, room], [waits, over, over], rig.witness, idempotency_key=key)
    assert refused.value.index == 2
    assert rig.waiting() == []
    rig.kernel.schedule([room, room], [waits, over], rig.witness, idempotency_key=key)
    assert len(rig.answer().positions) == 2
    with pytest.raises(QueueFull):
        rig.kernel.schedule([room], [over], rig.witness)


@pytest.mark.parametrize("lose_index", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_fell_due_during_a_stop_comes_at_start_in_due_order(rig: ScheduleRig, lose_index: bool,
                                                                checkpoint: bool) -> None:
    ids = rig.later("t/k", (500, b"1"), (90_000, b"4"), (800, b"2"), (900, b"3"))
    if checkpoint:
        rig.advance(3_000 if lose_index else 400)
    rig.restart(lose_index=lose_index)
    rig.run()
    assert rig.values("t") == [b"1", b"2", b"3"]
    assert [record[6] for record in rig.read("t")] == [ids[0], ids[2], ids[3]]
    assert rig.waiting() == [ids[1]]
    rig.restart(lose_index=lose_index)
    rig.advance(90_000, 1_000)
    assert rig.values("t") == [b"1", b"2", b"3", b"4"]
    assert rig.kernel.statistics()["scheduled"] == 0


def test_a_checkpoint_that_a_start_begins_hides_nothing(rig: ScheduleRig, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = rig.later("t/k", (500, b"1"), (5_000, b"2"))
    start = Checkpoints._start
    monkeypatch.setattr(Checkpoints, "note", lambda self: self._busy or start(self, sync=False, on_done=None))
    rig.restart()
    monkeypatch.undo()
    rig.advance(100)
    assert rig.values("t") == [b"1"] and rig.waiting() == ids[1:]
    rig.advance(5_000)
    assert rig.values("t") == [b"1", b"2"]


def test_more_than_memory_holds_comes_from_the_store(rig: ScheduleRig) -> None:
    rig.kernel.scheduling.book.timers._max_keys, rig.kernel.scheduling.book.timers.quarter = 40, 10
    values = []
    for n in range(0, 600, 30):
        delays = [5_000 + (n + i) * 7919 % 3_000 for i in range(30)]
        rig.later("t/k", *[(delay, b"%d" % (rig.now_ms + delay)) for delay in delays])
        values += [b"%d" % (rig.now_ms + delay) for delay in delays]
        rig.advance(100)
    assert len(rig.kernel.scheduling.book.timers.keys) <= 40
    assert len(rig.waiting(7)) == 600
    rig.advance(9_000)
    assert rig.values("t") == sorted(values) and rig.waiting() == []


def test_it_goes_where_its_address_leads_by_then(rig: ScheduleRig) -> None:
    rig.kernel.create_topic("t", partitions=1)
    rig.later("t/k", (100, b"v"))
    rig.kernel.change_topic("t", partitions=50)
    rig.advance(100)
    record = rig.publish("t/k", b"now")[0]
    assert [one[3] for one in rig.read_partition(record[0])] == [b"v", b"now"]


def test_topic_key_and_queue_that_were_asked_for_are_kept(rig: ScheduleRig) -> None:
    topic = rig.kernel.create_topic("t", partitions=8)
    to = rig.kernel.place_in("t", b"\xff", partition=5)
    rig.kernel.schedule([(to, None, b"\0", 2, 7)], [When(rig.now_ms + 10)], rig.witness)
    rig.advance(10)
    [(_, timestamp_ms, key, value, *_)] = rig.read_partition(topic.partition_id(5))
    assert (timestamp_ms, key, value) == (7, b"\xff", None)


def test_queues_get_theirs_alone_and_by_reference(rig: ScheduleRig) -> None:
    jobs = rig.kernel.groups.declare_queue("jobs", QueueSettings(priorities=3))
    rig.kernel.schedule([(rig.kernel.place_queue(jobs, 2, b"k"), b"alone", b"\0", 2, 0),
                         (rig.place_routed("t/k", (jobs.partition_id(1),)), b"too", b"\0", 2, 0),
                         rig.message("$queue/jobs", b"named")], [When(rig.now_ms + 10)] * 3, rig.witness)
    rig.run()
    rig.restart()
    rig.run()
    found = [[(record[2], record[3]) for record in rig.read_partition(partition_id)]
             for partition_id in jobs.partition_ids()]
    assert found == [[(None, b"named")], [(b"k", b"too")], [(b"k", b"alone")]] and rig.values("t") == [b"too"]


def test_what_is_for_a_queue_that_is_gone_goes_to_unrouted(rig: ScheduleRig) -> None:
    jobs = rig.kernel.groups.declare_queue("jobs")
    rig.later("$queue/jobs", (100, b"v"))
    rig.kernel.groups.delete_queue(jobs)
    rig.advance(100)
    assert [(record[2], record[3]) for record in rig.read("unrouted")] == [(b"$queue/jobs", b"v")]


def test_what_has_nowhere_to_go_goes_to_unrouted() -> None:
    rig = ScheduleRig(settings=KernelSettings(auto_create_topics=False))
    rig.kernel.create_topic("t", partitions=2)
    rig.later("t/k", (100, b"v"))
    rig.kernel.schedule([(rig.kernel.place_in("t", b"k"), b"w", b"\0", 2, 0)], [When(rig.now_ms + 101)], rig.witness)
    rig.kernel.delete_topic("t")
    rig.advance(101)
    assert [(record[2], record[3]) for record in rig.read("unrouted")] == [(b"t/k", b"v"), (b"t/k", b"w")]


def test_a_full_disk_leaves_it_in_place_and_is_tried_again() -> None:
    log = FullLog()
    rig = ScheduleRig(log=log)
    ids = rig.later("t/k", (100, b"1"), (200, b"2"))
    log.full = True
    rig.advance(300)
    with pytest.raises(StorageFull):
        rig.later("t/k", (1, b"refused"))
    with pytest.raises(StorageFull):
        rig.recall(ids[1])
    assert rig.values("t") == [] and rig.waiting() == ids
    log.full = False
    rig.advance(1_100)
    assert rig.values("t") == [b"1", b"2"] and rig.waiting() == []
    assert [record[6] for record in rig.read("t")] == ids


def test_large_messages_that_are_due_behind_a_full_disk_are_not_all_in_memory() -> None:
    log = FullLog()
    rig = ScheduleRig(log=log)
    ids = [rig.later("t/k", (100 + n, b"%d" % n + bytes(900 << 10)))[0] for n in range(40)]
    rig.restart()
    log.full = True
    rig.advance(20_000, 500)
    at_hand = rig.kernel.scheduling.delivering.lanes[0].at_hand
    assert len(rig.kernel.scheduling.book.timers.keys) == 40
    assert at_hand.size_bytes <= WINDOW_BYTES + READ_BYTES + (1 << 20)
    log.full = False
    rig.advance(20_000, 500)
    assert [record[6] for record in rig.read("t")] == ids and (at_hand.values, at_hand.size_bytes) == ({}, 0)


def test_recall_says_what_is_true(rig: ScheduleRig) -> None:
    first, second, third = rig.later("t/k", (100, b"1"), (200, b"2"), (90_000, b"3"))
    rig.recall(second)
    rig.recall(second)
    rig.advance(150)
    for _ in range(2):
        with pytest.raises(AlreadyDelivered):
            rig.recall(first)
        with pytest.raises(UnknownScheduled):
            rig.recall(12345)
        with pytest.raises(UnknownScheduled):
            rig.recall(third, tenant="other")
        assert rig.show(first).fate is Fate.DELIVERED and rig.show(second).fate is Fate.RECALLED
        assert isinstance(rig.show(third), Pending) and rig.show(third, "other") is None and rig.show(1) is None
        rig.advance(3_000)                               # beyond a checkpoint: from the store
        rig.restart()
    rig.recall(third)
    rig.advance(100_000, 10_000)
    assert rig.values("t") == [b"1"] and rig.kernel.statistics()["scheduled"] == 0


def test_recall_in_the_turn_in_which_it_falls_due_has_one_outcome(rig: ScheduleRig) -> None:
    first, second = rig.later("t/k", (100, b"1"), (101, b"2"))
    rig.world.loop.advance(100)
    rig.kernel.scheduling.recall(first, "/", rig.witness, "before")     # the timer is ready, and has not run
    rig.run()
    assert rig.witness.stored[-1].error is None and rig.values("t") == []
    rig.world.loop.advance(1)
    while rig.world.loop.step():
        pass                                                 # on its way to the disk
    rig.kernel.scheduling.recall(second, "/", rig.witness, "late")
    rig.run()
    assert isinstance(rig.witness.stored[-1].error, AlreadyDelivered) and rig.values("t") == [b"2"]


def test_recall_while_a_repetition_is_on_its_way_to_the_disk_takes_back_the_rest(rig: ScheduleRig) -> None:
    [schedule] = rig.later("t/k", (1_000, b"tick"), repeat="every 1s")
    rig.world.loop.advance(1_000)
    while rig.world.loop.step():
        pass
    rig.kernel.scheduling.recall(schedule, "/", rig.witness, "meanwhile")
    rig.run()
    answer = rig.witness.stored[-1]
    assert (answer.token, answer.error) == ("meanwhile", None)
    rig.advance(5_000)
    assert rig.values("t") == [b"tick"] and rig.show(schedule).fate is Fate.RECALLED


def test_recall_of_what_the_disk_then_refuses_does_not_say_that_it_was_delivered() -> None:
    log = FullLog()
    rig = ScheduleRig(log=log)
    [one] = rig.later("t/k", (1_000, b"v"))
    log.full = True
    rig.world.loop.advance(1_000)
    while rig.world.loop.step():
        pass
    with pytest.raises(StorageFull):
        rig.recall(one)
    log.full = False
    rig.recall(one)
    rig.advance(5_000)
    assert rig.values("t") == [] and rig.show(one).fate is Fate.RECALLED


def test_recall_while_the_last_repetition_is_on_its_way_to_the_disk_is_too_late(rig: ScheduleRig) -> None:
    [schedule] = rig.later("t/k", (1_000, b"tick"), repeat="every 1s; count=1")
    rig.world.loop.advance(1_000)
    while rig.world.loop.step():
        pass
    rig.kernel.scheduling.recall(schedule, "/", rig.witness, "late")
    rig.run()
    assert isinstance(rig.witness.stored[-1].error, AlreadyDelivered) and rig.values("t") == [b"tick"]


def test_repetitions_are_messages_of_their_own_under_one_schedule(rig: ScheduleRig) -> None:
    [schedule] = rig.later("t/k", (1_000, b"tick"), repeat="every 2s; count=3")
    rig.advance(3_500)
    shown = rig.show(schedule)
    assert (shown.times, shown.due_ms) == (2, rig.now_ms + 1_500)
    rig.restart()                                            # a second later
    rig.advance(10_000)
    found = rig.read("t")
    assert [record[3] for record in found] == [b"tick"] * 3
    assert len({record[6] for record in found} | {schedule}) == 4
    assert [record[1] - found[0][1] for record in found] == [0, 2_000, 4_000]
    what = rig.show(schedule)
    assert isinstance(what, Settled) and (what.fate, what.times) == (Fate.DELIVERED, 3)


def test_repetitions_missed_during_a_stop_are_delivered_once(rig: ScheduleRig) -> None:
    [schedule] = rig.later("t/k", (0, b"tick"), repeat="R/PT10S")
    start_ms = rig.now_ms
    rig.advance(100)
    rig.restart(step_ms=95_000)
    rig.run()
    assert len(rig.values("t")) == 2
    assert rig.show(schedule).due_ms == start_ms + 100_000
    rig.recall(schedule)
    rig.advance(30_000, 1_000)
    assert len(rig.values("t")) == 2


def test_a_cron_expression_says_when_first(rig: ScheduleRig) -> None:
    [schedule] = rig.later("t/k", (0, b"tick"), repeat="*/5 * * * *")
    due_ms = rig.show(schedule).due_ms
    assert due_ms % 300_000 == 0 and 0 <= due_ms - rig.now_ms < 300_000
    rig.advance(600_000, 10_000)
    assert [record[1] for record in rig.read("t")] == [due_ms, due_ms + 300_000]


def test_what_cannot_be_is_refused_and_nothing_stored() -> None:
    rig = ScheduleRig(settings=KernelSettings(max_scheduled=2))
    with pytest.raises(InvalidDelay, match="ten years"):
        rig.later("t/k", (1, b"ok"), (MAX_DELAY_MS + 1, b"late"))
    with pytest.raises(InvalidDelay, match="never falls due"):
        rig.later("t/k", (1, b"v"), repeat="every 5s; until=2001-01-01T00:00:00Z")
    with pytest.raises(TooManyScheduled):
        rig.later("t/k", (1, b"1"), (1, b"2"), (1, b"3"))
    assert rig.waiting() == []
    rig.later("t/k", (100, b"1"), (MAX_DELAY_MS, b"2"))
    with pytest.raises(TooManyScheduled):
        rig.later("t/k", (1, b"3"))
    rig.advance(100)
    rig.later("t/k", (1, b"3"))


def test_a_repeated_idempotency_key_gets_the_first_answer(rig: ScheduleRig) -> None:
    ids = rig.later("t/k", (100, b"v"), key="once")
    rig.advance(10)
    assert rig.later("t/k", (100, b"v"), key="once") == ids and rig.waiting() == ids
    rig.advance(3_000)
    rig.restart()
    assert rig.later("t/k", (100, b"v"), key="once") == ids
    with pytest.raises(IdempotencyConflict):
        rig.later("t/k", (101, b"v"), key="once")
    with pytest.raises(IdempotencyConflict):
        rig.later("t/k", (0, b"v"), key="once")
    rig.advance(1_000)
    assert rig.values("t") == [b"v"]


def test_a_repeated_key_gets_its_first_answer_while_others_are_remembered(rig: ScheduleRig) -> None:
    ids = [rig.later("t/k", (100, b"v"), key=key) for key in ("once", "twice")]
    rig.advance(10)
    assert [rig.later("t/k", (100, b"v"), key=key) for key in ("once", "twice")] == ids


def test_pages_by_due_time_from_memory_and_store(rig: ScheduleRig) -> None:
    early = rig.later("t/k", *[(60_000 + n, b"%d" % n) for n in range(10)])
    rig.advance(3_000)
    late = rig.later("t/k", *[(30_000 + n, b"%d" % n) for n in range(10)])
    rig.recall(early[3])
    expected = late + early[:3] + early[4:]
    assert rig.waiting() == expected and rig.waiting(1) == expected and rig.waiting(4) == expected
    assert rig.page(b"", 50, tenant="other") == ([], None)


def test_pages_go_on_while_the_wall_clock_is_corrected_a_little(rig: ScheduleRig) -> None:
    """By less than a step; two readings of the clocks are a millisecond apart now and then anyway."""
    ids = rig.later("t/k", *[(60_000 + n, b"%d" % n) for n in range(6)])
    first, start = rig.page(b"", 3)
    assert start is not None
    rig.world.loop.step_wall(-1)
    second, start = rig.page(start, 3)
    assert [one.id for one in (*first, *second)] == ids


def test_what_became_of_it_is_forgotten_after_a_day(rig: ScheduleRig) -> None:
    first, second = rig.later("t/k", (100, b"1"), (REMEMBERED_MS, b"2"))
    rig.advance(3_000)
    assert rig.show(first) is not None
    rig.advance(REMEMBERED_MS + 10_000, 600_000)
    rig.advance(70_000, 1_000)
    assert rig.show(first) is None and rig.show(second).fate is Fate.DELIVERED
    with pytest.raises(UnknownScheduled):
        rig.recall(first)
    rig.restart(lose_index=True)
    assert rig.show(first) is None and rig.kernel.scheduling.book.counts == (0, 1)


def test_no_more_than_a_million_are_remembered(rig: ScheduleRig) -> None:
    rig.kernel.scheduling.sweeping.max_settled = 3
    ids = rig.later("t/k", *[(100 * n, b"%d" % n) for n in range(1, 10)])
    rig.advance(3_000)
    rig.advance(130_000, 1_000)
    known = [message_id for message_id in ids if rig.show(message_id) is not None]
    assert known == ids[-3:] and rig.kernel.scheduling.book.counts == (0, 3)


def test_publishers_wait_while_checkpoints_do_not_keep_pace(rig: ScheduleRig) -> None:
    rig.kernel._checkpoints.behind_bytes = 1 << 10
    rig.kernel.configure(rig.settings)
    rig.kernel._checkpoints._settings = KernelSettings(checkpoint_bytes=1 << 10)
    relieved: list[bool] = []
    jobs, rig.world.checkpoint_worker.jobs = rig.world.checkpoint_worker.jobs, deque()
    for n in range(3):
        rig.kernel.schedule([rig.message("t/k", b"x" * 2_000)], [When(rig.now_ms + 60_000 + n)], rig.witness)
        while rig.world.loop.step() or rig.world.log_worker.step():
            pass
    assert rig.kernel.congested and not relieved
    rig.kernel.on_relief(lambda: relieved.append(True))
    jobs.extend(rig.world.checkpoint_worker.jobs)
    rig.world.checkpoint_worker.jobs = jobs
    rig.run()
    assert relieved and not rig.kernel.congested and len(rig.waiting()) == 3


def test_memory_is_let_go_of(rig: ScheduleRig) -> None:
    ids = rig.later("t/k", *[(500 + n, b"%d" % n) for n in range(20)])
    rig.run()
    for message_id in ids[::2]:
        rig.recall(message_id)
    rig.advance(2_000)
    delivering, book = rig.kernel.scheduling.delivering, rig.kernel.scheduling.book
    at_hand = delivering.lanes[0].at_hand
    assert (at_hand.values, at_hand.size_bytes, book.settling, book.timers.keys) == ({}, 0, {}, [])
