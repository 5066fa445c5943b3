"""A queue gets other settings while it holds messages and somebody takes from it: they count from that moment on."""
from __future__ import annotations

import pytest

from gatehouse.kernel.errors import InvalidQueue, QueueFull, UnknownQueue
from gatehouse.kernel.groups.group_settings import Queue, QueueSettings
from tests.kernel.groups.test_groups import join, pop, send, values
from tests.kernel.rig import Rig


def made(settings: QueueSettings, *payloads: bytes) -> tuple[Rig, Queue]:
    rig = Rig()
    queue = rig.kernel.groups.declare_queue("work", settings)
    send(rig, queue, *payloads)
    return rig, queue


def change(rig: Rig, queue: Queue, settings: QueueSettings) -> Queue:
    changed = rig.kernel.groups.change_queue(queue, settings)
    rig.run()
    return changed


def left(rig: Rig) -> list[bytes | None]:
    queue = rig.kernel.groups.queue("work")
    assert queue is not None
    return values(pop(rig, rig.kernel.groups.queue_group(queue)))


@pytest.mark.parametrize("in_memory", [True, False])
def test_what_is_too_much_goes_at_once(in_memory: bool) -> None:
    rig, queue = made(QueueSettings(), b"1", b"2", b"3")
    if not in_memory:
        rig.restart()
    change(rig, queue, QueueSettings(max_length=2))
    assert rig.kernel.groups.queue_group(queue).counts().ready == 2
    assert left(rig) == [b"2", b"3"]


def test_a_limit_that_has_gone_drops_nothing_more() -> None:
    rig, queue = made(QueueSettings(max_bytes=3), b"1", b"2", b"3")
    changed = change(rig, queue, QueueSettings())
    send(rig, changed, b"4", b"5")
    assert left(rig) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_full_queue_begins_to_refuse() -> None:
    rig, queue = made(QueueSettings(), b"1", b"2")
    placement = rig.kernel.place_queue(queue)
    changed = change(rig, queue, QueueSettings(max_length=2, overflow="reject"))
    with pytest.raises(QueueFull):
        rig.kernel.append([(placement, b"3", b"\0", 3, 0)], rig.witness)          # placed before
    change(rig, changed, QueueSettings(max_length=3, overflow="reject"))
    rig.kernel.append([(placement, b"3", b"\0", 3, 0)], rig.witness)


def test_messages_begin_to_expire_and_cease_to() -> None:
    rig, queue = made(QueueSettings(), b"1")
    changed = change(rig, queue, QueueSettings(ttl_ms=5_000))
    rig.world.advance(4_000)
    changed = change(rig, changed, QueueSettings(ttl_ms=60_000))
    rig.world.advance(4_000)
    assert rig.kernel.groups.queue_group(changed).counts().ready == 1
    change(rig, changed, QueueSettings(ttl_ms=9_000))
    rig.world.advance(2_000)
    rig.run()
    assert rig.kernel.groups.queue_group(changed).counts() [:3] == (0, 0, 0)
    assert rig.kernel.groups.queue_group(changed).counts().expired == 1


def test_a_time_to_live_that_comes_later_counts_from_when_a_message_entered() -> None:
    rig, queue = made(QueueSettings(), b"1")
    old_ms = rig.world.loop.wall_ms() - 60_000
    placement = rig.kernel.place_queue(queue)
    rig.kernel.append([(placement, b"2", b"\0", 3, old_ms)], rig.witness)                # a dead letter keeps its time
    taker, _ = join(rig, rig.kernel.groups.queue_group(queue), 1)                        # the second is read ahead
    changed = change(rig, queue, QueueSettings(ttl_ms=5_000))
    rig.kernel.append([(rig.kernel.place_queue(changed), b"3", b"\0", 3, old_ms)], rig.witness)
    rig.run()
    assert taker.values == [b"1"]
    assert left(rig) == [b"2", b"3"]
    rig.restart()
    rig.world.advance(40_000)
    assert left(rig) == []


def test_an_unused_queue_goes_and_stays() -> None:
    rig, queue = made(QueueSettings())
    changed = change(rig, queue, QueueSettings(expires_ms=10_000))
    rig.world.advance(5_000)
    changed = change(rig, changed, QueueSettings())
    rig.world.advance(60_000)
    rig.run()
    assert rig.kernel.groups.queue("work") == changed
    change(rig, changed, QueueSettings(expires_ms=10_000))
    rig.world.advance(30_000)
    rig.run()
    assert rig.kernel.groups.queue("work") is None


def test_a_shorter_time_for_an_unused_queue_counts_at_once() -> None:
    rig, queue = made(QueueSettings(expires_ms=24 * 3_600_000))
    changed = change(rig, queue, QueueSettings(expires_ms=60_000))
    rig.world.advance(50_000)
    assert rig.kernel.groups.queue("work") == changed
    rig.world.advance(11_000)
    assert rig.kernel.groups.queue("work") is None


def test_who_takes_goes_on_and_is_given_up_by_the_new_limit() -> None:
    rig, queue = made(QueueSettings(), b"1", b"2")
    taker, membership = join(rig, rig.kernel.groups.queue_group(queue), 1)
    change(rig, queue, QueueSettings(max_attempts=1))
    assert [message[6] for message in taker.got] == [b"1"]
    membership.leave()
    rig.run()
    assert left(rig) == [b"2"]


def test_a_start_finds_what_was_durable() -> None:
    rig, queue = made(QueueSettings(), b"1", b"2")
    change(rig, queue, QueueSettings(max_length=1))
    rig.restart()
    found = rig.kernel.groups.queue("work")
    assert found is not None
    assert found.settings == QueueSettings(max_length=1)
    rig.kernel.groups.change_queue(found, QueueSettings(max_length=9))
    rig.restart()                                                                 # before it was durable
    found = rig.kernel.groups.queue("work")
    assert found is not None
    assert found.settings == QueueSettings(max_length=1)
    send(rig, found, b"3")
    assert left(rig) == [b"3"]


def test_what_cannot_be_changes_nothing() -> None:
    rig, queue = made(QueueSettings(), b"1")
    for settings in (QueueSettings(priorities=2), QueueSettings(ttl_ms=-2)):
        with pytest.raises(InvalidQueue):
            rig.kernel.groups.change_queue(queue, settings)
    rig.kernel.groups.delete_queue(queue)
    with pytest.raises(UnknownQueue):
        rig.kernel.groups.change_queue(queue, QueueSettings(max_length=1))
