"""When a message expires: its own word, its topic's, whichever is earlier."""
from __future__ import annotations

import pytest

from gatehouse.kernel.message import Headers, Leased
from gatehouse.kernel.records.headers import NEVER, expires_at
from gatehouse.kernel.state.topics import TopicSettings
from tests.kernel.rig import Rig


@pytest.mark.parametrize(("headers", "ttl_ms", "end"), [
    ((), None, NEVER), ((), 50, 1_050), (((b"expires-at", b"1020"),), None, 1_020),
    (((b"expires-at", b"1020"),), 50, 1_020), (((b"expires-at", b"2000"),), 50, 1_050),
    (((b"expires-at", b"soon"),), None, NEVER), (((b"expires-at", None),), 50, 1_050),
    (((b"expires-at", b"9" * 20),), None, NEVER), (((b"expires-at", b""),), None, NEVER),
    (((b"a", b"1"), (b"expires-at", b"7"), (b"expires-at", b"5")), None, 7),
])
def test_the_earlier_of_both(headers: Headers, ttl_ms: int | None, end: int) -> None:
    assert expires_at(headers, 1_000, TopicSettings(message_ttl_ms=ttl_ms)) == end


def test_a_topic_that_is_gone_says_nothing() -> None:
    assert expires_at((), 1_000, None) == NEVER


def test_groups_over_a_topic_are_given_no_expired_messages() -> None:
    rig = Rig()
    rig.kernel.create_topic("t", partitions=1, settings=TopicSettings(message_ttl_ms=1_000))
    group = rig.kernel.groups.group("g", "t")
    rig.publish("t/k", b"old")
    rig.world.advance(2_000)
    rig.publish("t/k", b"new")
    leased: list[Leased] = []
    group.pop(10, 60_000, leased.extend)
    rig.run()
    assert [one[6] for one in leased] == [b"new"]
    rig.kernel.change_topic("t", settings=TopicSettings())
    rig.publish("t/k", b"later")
    rig.world.advance(2_000)
    group.pop(10, 60_000, leased.extend)
    rig.run()
    assert [one[6] for one in leased] == [b"new", b"later"]
    assert rig.values("t") == [b"old", b"new", b"later"], "who reads offsets sees them all"
