"""What a group wants of its topic, and what can be seen of it at any second."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.errors import GroupIsLeased, InvalidSelector
from gatehouse.kernel.groups.group_settings import GroupSettings
from tests.kernel.groups.test_groups import handles, pop, values
from tests.kernel.rig import Rig


@pytest.mark.parametrize(("selector", "expected"), [
    ("unit = 'C'", [b"0", b"2"]),
    ("tags:cold", [b"1"]),
    ("plant/+/temp", [b"0", b"1", b"2"]),
    ("address LIKE '%/power'", [b"3"]),
    ("key = 'b/temp' AND topic = 'plant'", [b"1"]),
])
def test_a_group_gets_what_it_selects_and_the_rest_is_settled(selector: str, expected: list[bytes]) -> None:
    rig = Rig()
    rig.kernel.create_topic("plant", partitions=1)
    rig.kernel.groups.define("billing", GroupSettings(selector=selector))
    rig.publish("plant/a/temp", b"0", headers=[(b"unit", b"C")])
    rig.publish("plant/b/temp", b"1", headers=[(b"unit", b"F"), (b"tags", b"cold")])
    rig.publish("plant/c/temp", b"2", headers=[(b"unit", b"C")])
    rig.publish("plant/a/power", b"3")
    group = rig.kernel.groups.group("billing", "plant")
    found = pop(rig, group)
    assert values(found) == expected
    group.ack(handles(found))
    rig.run()
    assert group.counts()[:3] == (0, 0, 0)
    rig.restart()
    assert pop(rig, rig.kernel.groups.group("billing", "plant")) == []


def test_a_selector_changes_what_comes_from_now_on() -> None:
    rig = Rig()
    rig.kernel.create_topic("plant", partitions=1)
    group = rig.kernel.groups.group("billing", "plant")
    rig.kernel.groups.define("billing", GroupSettings(selector="key = 'a'"))
    rig.publish("plant/a", b"1")
    rig.publish("plant/b", b"2")
    assert values(pop(rig, group)) == [b"1"]
    rig.kernel.groups.define("billing", GroupSettings())
    rig.publish("plant/b", b"3")
    assert values(pop(rig, group)) == [b"3"]


def test_a_selector_that_cannot_be_read_defines_nothing() -> None:
    rig = Rig()
    with pytest.raises(InvalidSelector):
        rig.kernel.groups.define("billing", GroupSettings(selector="unit ="))
    assert rig.kernel.groups.all() == []


def test_offsets_of_a_group_that_leases_are_not_committed() -> None:
    rig = Rig()
    partition_id = rig.publish("orders/a", b"1")[0][0]
    pop(rig, rig.kernel.groups.group("billing", "orders"))
    with pytest.raises(GroupIsLeased):
        rig.kernel.groups.commit_offsets("billing", {partition_id: (1, b"")}, rig.witness)
    rig.run()
    assert rig.kernel.groups.group("billing", "orders").counts().leased == 1


@pytest.mark.parametrize("memory_lost", [False, True])
def test_the_oldest_message_that_is_not_settled_has_an_age(tmp_path: Path, memory_lost: bool) -> None:
    rig = Rig(tmp_path)
    rig.kernel.create_topic("orders", partitions=2)
    began_ms = rig.world.loop.now_ms()
    for number in range(4):
        rig.publish("orders/a", b"%d" % number)
        rig.world.advance(1_000)
    if memory_lost:
        rig.world.advance(5_000)
        rig.restart()
    group = rig.kernel.groups.group("billing", "orders")
    assert group.counts().oldest_ms == began_ms
    found = pop(rig, group)
    group.ack(handles(found[1:3]))
    assert group.counts().oldest_ms == began_ms
    group.ack(handles(found[:1]))
    assert group.counts().oldest_ms == began_ms + 3_000
    group.ack(handles(found[3:]))
    assert group.counts().oldest_ms == 0


def test_a_group_that_has_acked_nothing_is_known_to_read_its_topic() -> None:
    rig = Rig()
    rig.kernel.create_topic("orders", partitions=3)
    rig.kernel.groups.group("idle", "orders")
    rig.run()
    rig.restart()
    assert [topic.name for topic in rig.kernel.groups.topics("idle")] == ["orders"]
    rig.publish("orders/a", b"1")
    rig.publish("orders/b", b"2")
    assert rig.kernel.groups.group("idle", "orders").counts().ready == 2


def test_queues_that_a_topic_gets_later_are_read_too() -> None:
    rig = Rig()
    rig.kernel.create_topic("orders", partitions=1)
    group = rig.kernel.groups.group("billing", "orders")
    rig.run()
    rig.kernel.change_topic("orders", partitions=8)
    for number in range(8):
        rig.publish(f"orders/{number}", b"%d" % number)
    assert sorted(value or b"" for value in values(pop(rig, group))) == [b"%d" % number for number in range(8)]
    assert len(group.prefetchers) > 1
