"""Topics made by use: who may make how many, how fast, and who is told when few are left."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gatehouse.kernel.errors import TooManyTopics, TopicExists
from gatehouse.kernel.message import When
from gatehouse.kernel.settings import KernelSettings
from tests.kernel.full_log import FullLog
from tests.kernel.rig import Rig

SLOW = 1_000_000          # a pace that bounds nothing here


def made(rig: Rig, maker: str, names: range, *, partition: bool = False) -> int:
    """How many of so many topics somebody may make."""
    count = 0
    for number in names:
        try:
            if partition:
                rig.kernel.place_in(f"{maker}{number}", b"k", maker=maker)
            else:
                rig.kernel.place(f"{maker}{number}/x", maker=maker)
        except TooManyTopics:
            continue
        count += 1
    return count


def rig_with(**settings: Any) -> Rig:
    return Rig(settings=KernelSettings(**{"auto_topics_per_minute": SLOW, **settings}))


@pytest.mark.parametrize("partition", [False, True])
def test_one_user_does_not_use_up_what_all_may_make(partition: bool) -> None:
    rig = rig_with(max_auto_topics=100, max_auto_topics_per_user=30)
    assert made(rig, "ann", range(10_000), partition=partition) == 30
    assert made(rig, "bob", range(5), partition=partition) == 5
    rig.kernel.place("ann7/another", maker="ann")


def test_who_has_made_a_topic_is_known_after_a_start_and_until_it_is_deleted() -> None:
    rig = rig_with(max_auto_topics_per_user=3)
    assert made(rig, "ann", range(5)) == 3
    rig.run()
    rig.restart()
    assert made(rig, "ann", range(5, 10)) == 0
    rig.kernel.change_topic("ann0", partitions=9)
    rig.kernel.delete_topic("ann1")
    assert made(rig, "ann", range(5, 10)) == 1


def test_what_is_refused_by_the_disk_was_not_made() -> None:
    log = FullLog()
    rig = Rig(log=log, settings=KernelSettings(max_auto_topics_per_user=1))
    log.full = True
    assert made(rig, "ann", range(2)) == 1
    rig.run()
    log.full = False
    assert made(rig, "ann", range(2, 4)) == 1


def test_the_pace_of_one_user() -> None:
    rig = rig_with(auto_topics_per_minute=60)
    assert made(rig, "ann", range(100)) == 60, "at once"
    assert made(rig, "bob", range(1)) == 1
    rig.world.advance(10_000)
    assert made(rig, "ann", range(100, 200)) == 10
    rig.world.advance(3_600_000)
    assert made(rig, "ann", range(200, 400)) == 60
    with pytest.raises(TooManyTopics) as refused:
        rig.kernel.create_topic("one-more", maker="ann")
    assert refused.value.wait_ms == 1000
    rig.world.advance(refused.value.wait_ms)
    rig.kernel.create_topic("one-more", maker="ann")


def test_changing_topics_has_the_same_pace() -> None:
    rig = rig_with(auto_topics_per_minute=2)
    rig.kernel.create_topic("plant", maker="ann")
    rig.kernel.pace_topics("ann")
    with pytest.raises(TooManyTopics) as refused:
        rig.kernel.pace_topics("ann")
    assert refused.value.wait_ms == 30_000
    rig.kernel.pace_topics("bob")
    rig.kernel.pace_topics("")


def test_all_together_are_bounded_and_what_is_created_or_the_hubs_own_is_not_refused() -> None:
    rig = rig_with(max_auto_topics=4)
    assert made(rig, "ann", range(10)) == 4
    with pytest.raises(TooManyTopics, match="max_auto_topics"):
        rig.kernel.place_in("more", b"k", maker="bob")
    rig.kernel.create_topic("created")
    assert rig.kernel.place("created/x", maker="bob").topic == "created"
    with pytest.raises(TooManyTopics):
        rig.kernel.place("letters/x")
    later = rig.kernel.place("created/y")
    rig.kernel.schedule([(later, b"v", b"\0", 0, 0)], [When(delay_ms=1_000)], rig.witness)
    rig.run()
    rig.kernel.delete_topic("created")
    rig.kernel.create_topic("another")
    rig.run()
    rig.world.advance(2_000)
    rig.run()
    assert rig.values("unrouted") == [b"v"], "what the hub has taken is stored"


def test_who_creates_topics_by_name_makes_them_too() -> None:
    rig = rig_with(max_auto_topics_per_user=2)
    for name in ("a", "b"):
        rig.kernel.create_topic(name, maker="ann")
    with pytest.raises(TopicExists):
        rig.kernel.create_topic("a", maker="ann")
    with pytest.raises(TooManyTopics):
        rig.kernel.create_topic("c", maker="ann")
    assert made(rig, "ann", range(1)) == 0
    rig.kernel.create_topic("c")


def test_somebody_is_told_once_that_a_tenth_is_left() -> None:
    rig = rig_with(max_auto_topics=20)
    told = rig.told.topics
    assert (made(rig, "ann", range(17)), told) == (17, [])
    assert (made(rig, "ann", range(17, 20)), told) == (3, [18])
    for number in range(4):
        rig.kernel.delete_topic(f"ann{number}")
    assert (made(rig, "bob", range(2)), told) == (2, [18, 18]), "there was room meanwhile"
    rig.kernel.configure(replace(rig.kernel.settings, max_auto_topics=1000))
    rig.kernel.create_topic("another")
    assert told == [18, 18]
