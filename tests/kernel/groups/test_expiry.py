"""Messages that expire where they wait, and partitions that nobody uses."""
from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from gatehouse.kernel.groups.dead_lettering import deaths_of
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import GroupSettings, Queue, QueueSettings
from gatehouse.kernel.groups.handing_out import ENTERED_KEPT
from gatehouse.kernel.groups.queues import COME_BACK_MS
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.records.headers import NEVER
from gatehouse.kernel.state.topics import TopicSettings
from tests.kernel.groups.test_full_disk import FullRig
from tests.kernel.groups.test_groups import handles, join, pop, send, values
from tests.kernel.groups.test_max_length import taken
from tests.kernel.rig import Rig


def group_of(rig: Rig, name: str = "work") -> LeasedGroup:
    queue = rig.kernel.groups.queue(name)
    assert queue is not None
    return rig.kernel.groups.queue_group(queue)


def send_expiring(rig: Rig, queue: Queue, value: bytes, in_ms: int) -> None:
    headers = encode_headers([(b"expires-at", b"%d" % (rig.world.loop.now_ms() + in_ms))])
    rig.kernel.append([(rig.kernel.place_queue(queue), value, headers, 3, 0)], rig.witness)
    rig.run()


def live_timers(rig: Rig) -> int:
    """Timers of this kernel that will do something."""
    return len(rig.world.loop._timers)


# ---- messages

def test_a_queues_messages_expire_when_nobody_takes_them() -> None:
    rig = Rig()
    rig.kernel.groups.declare_queue("late")
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(ttl_ms=1_000, dead_letter="queue:late"))
    group = group_of(rig)
    send(rig, queue, b"1")
    rig.world.advance(600)
    send(rig, queue, b"2", b"3")
    rig.world.advance(500)
    assert group.counts()[:3] == (2, 0, 0)
    assert group.counts().expired == 1
    rig.world.advance(600)
    assert group.counts().ready == 0
    dead = pop(rig, group_of(rig, "late"))
    assert values(dead) == [b"1", b"2", b"3"]
    assert [death["reason"] for death in deaths_of(dead[0][7])] == ["expired"]


@pytest.mark.parametrize("digits", [20, 400, 5_000])
def test_a_number_that_is_no_time_lets_no_message_expire_and_holds_nobody_up(digits: int) -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work")
    group = group_of(rig)
    headers = encode_headers([(b"expires-at", b"1" * digits)])
    places = [rig.kernel.place_queue(queue), rig.kernel.place("t/k")]
    rig.kernel.append([(place, value, headers, 3, 0) for place in places for value in (b"1", b"2")], rig.witness)
    rig.run()
    assert all(when_ms < NEVER for when_ms, _, _ in rig.world.loop._wall_timers)
    assert values(pop(rig, group)) == values(pop(rig, rig.kernel.groups.group("g", "t"))) == [b"1", b"2"]


def test_a_message_expires_by_its_own_word_at_the_head() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work")
    group = group_of(rig)
    send_expiring(rig, queue, b"1", 1_000)
    send_expiring(rig, queue, b"2", 60_000)
    send_expiring(rig, queue, b"3", 1_000)
    rig.world.advance(1_100)
    assert group.counts().expired >= 1
    assert taken(rig, "work") == [b"2"]
    assert group.counts().expired == 2


def test_many_that_expire_at_once_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(ttl_ms=10_000))
    for _ in range(100):
        send(rig, queue, *[b"a value"] * 500)
    rig.world.advance(5_000)
    rig.run()
    group = group_of(rig)
    counts, step = [0], rig.world.loop.step

    def counted() -> bool:
        moved = step()
        counts.append(group.counts().expired)
        return moved

    monkeypatch.setattr(rig.world.loop, "step", counted)
    rig.world.advance(10_000)
    rig.run()
    assert counts[-1] == 50_000
    assert max(after - before for before, after in pairwise(counts)) < 20_000


@pytest.mark.parametrize("crash", [False, True])
def test_messages_that_wait_by_their_own_word_move_on_from_a_queue_that_nobody_uses(crash: bool) -> None:
    """Delays as AMQP clients make them: a queue without consumers, messages that expire, a place for dead letters."""
    rig = Rig()
    rig.kernel.groups.declare_queue("work")
    queue = rig.kernel.groups.declare_queue("wait", QueueSettings(dead_letter="queue:work"))
    send_expiring(rig, queue, b"1", 1_000)
    wait(rig, 60_000)                                       # it rests
    found = pop(rig, group_of(rig))
    assert values(found) == [b"1"]
    group_of(rig).ack(handles(found))
    rig.run()
    if crash:
        rig.restart()
        wait(rig, 60_000)
    send_expiring(rig, queue, b"2", 5_000)
    wait(rig, 4_500)
    assert taken(rig, "work") == []
    wait(rig, 1_000)
    assert taken(rig, "work") == [b"2"]


def test_a_queue_does_not_rest_while_a_message_is_going_to_expire() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work")
    group_of(rig)
    send_expiring(rig, queue, b"1", 100_000)
    wait(rig, 90_000)
    assert rig.kernel.bounds(queue.first_partition_id) == (0, 1)
    wait(rig, 11_000)
    assert rig.kernel.bounds(queue.first_partition_id) == (1, 1)


def test_what_expired_does_not_expire_again_where_it_is_kept() -> None:
    rig = Rig()
    rig.publish("orders/a", b"1", headers=[(b"expires-at", b"%d" % (rig.world.loop.now_ms() + 100))])
    group = rig.kernel.groups.group("billing", "orders")
    rig.world.advance(1_000)
    assert pop(rig, group) == []
    assert group.counts().expired == 1
    rig.world.advance(100_000)
    assert taken(rig, "$dead-letters/billing") == [b"1"]


def test_time_in_a_queue_counts_from_the_entry_not_from_the_timestamp() -> None:
    """A message that waits before it is tried again: refused, kept for a while in a queue without takers, and back."""
    rig = Rig()
    work = rig.kernel.groups.declare_queue("work", QueueSettings(dead_letter="queue:wait", max_attempts=1))
    rig.kernel.groups.declare_queue("wait", QueueSettings(ttl_ms=5_000, dead_letter="queue:work"))
    send(rig, work, b"1")
    for attempt in range(3):
        rig.world.advance(10_000)
        found = pop(rig, group_of(rig))
        assert values(found) == [b"1"]
        assert len(deaths_of(found[0][7])) == 2 * attempt
        group_of(rig).reject(handles(found))
        rig.run()
        rig.world.advance(4_900)
        assert group_of(rig, "wait").counts().ready == 1
        assert pop(rig, group_of(rig)) == []


def test_queues_whose_messages_expire_into_each_other_end() -> None:
    rig = Rig()
    one = rig.kernel.groups.declare_queue("one", QueueSettings(ttl_ms=100, dead_letter="queue:two"))
    rig.kernel.groups.declare_queue("two", QueueSettings(ttl_ms=100, dead_letter="queue:one"))
    group_of(rig, "one"), group_of(rig, "two")
    send(rig, one, b"1")
    for _ in range(20):
        rig.world.advance(200)
    assert [group_of(rig, name).counts().ready for name in ("one", "two")] == [0, 0]
    assert [group_of(rig, name).counts().expired for name in ("one", "two")] == [1, 1]


def test_a_released_message_is_at_the_head_again() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(ttl_ms=1_000))
    group = group_of(rig)
    send(rig, queue, b"1")
    held = pop(rig, group, 1, 60_000)
    rig.world.advance(2_000)
    assert group.counts()[:2] == (0, 1)
    group.release(handles(held), 0)
    rig.run()
    assert group.counts()[:3] == (0, 0, 0)
    assert group.counts().expired == 1


def test_messages_expire_under_members_that_take_no_more() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(ttl_ms=1_000))
    taker, membership = join(rig, group_of(rig), 1)
    send(rig, queue, b"1", b"2", b"3")
    assert taker.values == [b"1"]
    rig.world.advance(1_100)
    assert group_of(rig).counts()[:2] == (0, 1)
    membership.add_credit(5)
    rig.run()
    assert taker.values == [b"1"]


def test_one_timer_serves_however_many_messages_come_and_go() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(ttl_ms=60_000))
    group = group_of(rig)
    send(rig, queue, b"first")
    before = live_timers(rig)
    for number in range(200):
        send(rig, queue, b"%d" % number)
        rig.world.advance(10)
        group.purge() if number % 2 else group.ack(handles(pop(rig, group, 1, 60_000)))
        rig.run()
    assert live_timers(rig) - before < 120, "but for those of 100 pops"


@pytest.mark.parametrize("lose_index", [False, True])
@pytest.mark.parametrize("settings", [QueueSettings(ttl_ms=2_000), QueueSettings()])
def test_what_expired_while_the_hub_was_down_goes_at_the_start(tmp_path: Path, settings: QueueSettings,
                                                               lose_index: bool) -> None:
    """Also of a queue that nobody asks for, by the word of its messages."""
    rig = Rig(tmp_path)
    queue = rig.kernel.groups.declare_queue("work", settings)
    rig.kernel.groups.declare_queue("idle")
    send_expiring(rig, queue, b"1", 2_000)
    rig.world.advance(1_500)
    rig.restart(lose_index=lose_index)
    rig.run()
    rig.world.advance(100)
    start, end = rig.kernel.bounds(queue.first_partition_id)
    assert (start, end) == (1, 1)


def test_what_expires_later_is_waited_for_after_a_start(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    queue = rig.kernel.groups.declare_queue("work")
    send_expiring(rig, queue, b"1", 60_000)
    rig.world.advance(5_000)
    rig.restart()
    rig.world.advance(1_000)
    assert rig.kernel.bounds(queue.first_partition_id) == (0, 1)
    rig.world.advance(60_000)
    assert rig.kernel.bounds(queue.first_partition_id) == (1, 1)


def test_a_start_looks_at_many_queues(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    queues = [rig.kernel.groups.declare_queue(f"queue{number}") for number in range(700)]
    for queue in queues[::2]:
        headers = encode_headers([(b"expires-at", b"%d" % (rig.world.loop.now_ms() + 500))])
        rig.kernel.append([(rig.kernel.place_queue(queue), b"x", headers, 3, 0)], rig.witness)
    rig.run()
    rig.restart()
    rig.run()
    rig.world.advance(1)
    rig.run()
    left = [queue for queue in queues[::2] if rig.kernel.bounds(queue.first_partition_id) != (1, 1)]
    assert left == []
    assert len(rig.kernel.groups.in_memory()) == 350, "the empty ones stay where they are"


def test_a_full_disk_is_not_asked_over_and_over_to_let_messages_go() -> None:
    rig = FullRig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(ttl_ms=500))
    group = group_of(rig)
    send(rig, queue, b"1")
    rig.full_log.full = True
    refused = rig.kernel.statistics()["refused_flushes_total"]
    for _ in range(50):
        rig.world.advance(100)
    assert 2 <= rig.kernel.statistics()["refused_flushes_total"] - refused <= 6
    assert group.counts().ready == 1
    rig.full_log.full = False
    rig.world.advance(2_000)
    assert group.counts().ready == 0


def test_a_topics_messages_are_worth_nothing_after_its_time() -> None:
    rig = Rig()
    rig.kernel.create_topic("orders", partitions=1, settings=TopicSettings(message_ttl_ms=1_000))
    rig.kernel.groups.define("billing", GroupSettings(dead_letters=False))
    rig.publish("orders/a", b"1")
    group = rig.kernel.groups.group("billing", "orders")
    rig.world.advance(1_500)
    rig.publish("orders/a", b"2")
    assert values(pop(rig, group)) == [b"2"]
    rig.kernel.change_topic("orders", settings=TopicSettings())
    rig.publish("orders/a", b"3")
    rig.world.advance(1_500)
    assert values(pop(rig, group)) == [b"3"]


# ---- partitions

UNUSED = QueueSettings(expires_ms=10_000)


def wait(rig: Rig, ms: int) -> None:
    for _ in range(ms // 500):
        rig.world.advance(500)


def test_a_queue_that_nobody_uses_is_deleted() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", UNUSED)
    rig.kernel.groups.bind("orders/#", queue)
    wait(rig, 9_500)
    assert rig.kernel.groups.queue("work") is not None
    send(rig, queue, b"messages are no use")
    wait(rig, 1_000)
    assert rig.kernel.groups.queue("work") is None
    rig.publish("orders/a", b"1")
    rig.restart()
    wait(rig, 1_000)
    assert rig.kernel.groups.queue("work") is None


@pytest.mark.parametrize("use", ["declare", "pop"])
def test_use_puts_it_off(use: str) -> None:
    rig = Rig()
    rig.kernel.groups.declare_queue("work", UNUSED)
    for _ in range(5):
        wait(rig, 7_000)
        if use == "declare":
            rig.kernel.groups.declare_queue("work", UNUSED)
        else:
            pop(rig, group_of(rig))
    wait(rig, 9_500)
    assert rig.kernel.groups.queue("work") is not None
    wait(rig, 1_000)
    assert rig.kernel.groups.queue("work") is None


def test_a_queue_with_a_member_is_in_use() -> None:
    rig = Rig()
    rig.kernel.groups.declare_queue("work", UNUSED)
    taker, membership = join(rig, group_of(rig))
    wait(rig, 60_000)
    membership.leave()
    wait(rig, 9_500)
    assert rig.kernel.groups.queue("work") is not None
    wait(rig, 1_000)
    assert rig.kernel.groups.queue("work") is None


def test_a_start_does_not_count_as_use_but_gives_time_to_come_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.kernel.groups.declare_queue("long", QueueSettings(expires_ms=100 * COME_BACK_MS))
    rig.kernel.groups.declare_queue("short", UNUSED)
    join(rig, group_of(rig, "short"))
    wait(rig, 20_000)
    rig.world.advance(80 * COME_BACK_MS)
    rig.restart()
    wait(rig, 9_000)
    assert rig.kernel.groups.queue("short") is not None
    wait(rig, 2_000)
    assert rig.kernel.groups.queue("short") is None
    for _ in range(18):
        rig.world.advance(COME_BACK_MS)
    assert rig.kernel.groups.queue("long") is not None
    for _ in range(10):
        rig.world.advance(COME_BACK_MS)
    assert rig.kernel.groups.queue("long") is None


def test_a_deletion_that_the_disk_refused_is_tried_again() -> None:
    rig = FullRig()
    rig.kernel.groups.declare_queue("work", UNUSED)
    rig.run()
    rig.full_log.full = True
    wait(rig, 15_000)
    assert rig.kernel.groups.queue("work") is not None
    rig.full_log.full = False
    wait(rig, 3_000)
    assert rig.kernel.groups.queue("work") is None


def test_when_messages_entered_is_kept_of_what_is_not_settled_alone() -> None:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", QueueSettings(ttl_ms=3_600_000))
    group = rig.kernel.groups.queue_group(queue)
    taker, _ = join(rig, group, 10_000)
    send(rig, queue, b"held")
    rig.world.advance(1_000_000)
    for _ in range(3 * ENTERED_KEPT):                # a frame for each
        send(rig, queue, b"")
        group.ack(handles(taker.got[1:]))
        del taker.got[1:]
    prefetcher = group.prefetchers[queue.first_partition_id]
    assert len(prefetcher._entered) <= ENTERED_KEPT + 1
    assert rig.world.loop.wall_ms() - prefetcher.entered_ms(taker.got[0]) == 1_000_000
