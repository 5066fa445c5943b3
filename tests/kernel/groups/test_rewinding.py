"""Groups are listed, rewound and forgotten; what was done is there after a crash."""
from __future__ import annotations

import pytest

from gatehouse.kernel.errors import ExpiredReceipt, OffsetOutOfRange, UnknownGroup, UnknownPartition, UnknownTopic
from gatehouse.kernel.groups.group import LeasedGroup
from gatehouse.kernel.groups.group_settings import ASSIGNED, GroupSettings
from gatehouse.kernel.message import Leased
from gatehouse.kernel.state.topics import Topic
from tests.kernel.groups.test_groups import handles, pop, values
from tests.kernel.rig import Rig


def rig_with_orders(count: int = 10) -> tuple[Rig, Topic]:
    rig = Rig()
    topic = rig.kernel.create_topic("orders", partitions=1)
    rig.publish("orders/a", *(b"%d" % number for number in range(count)))
    return rig, topic


def rewind(rig: Rig, topic: Topic, offset: int) -> None:
    rig.kernel.groups.rewind("billing", topic, {topic.partition_id(0): offset}, rig.witness, "rewound")
    rig.run()
    assert rig.witness.stored[-1].token == "rewound"


def billing(rig: Rig) -> LeasedGroup:
    return rig.kernel.groups.group("billing", "orders")


def numbers(messages: list[Leased]) -> list[int]:
    return [int(value or b"") for value in values(messages)]


@pytest.mark.parametrize("crash", [False, True])
def test_a_group_goes_back_and_forward(crash: bool) -> None:
    rig, topic = rig_with_orders()
    billing(rig).ack(handles(pop(rig, billing(rig), 6)))
    rig.run()
    for offset in (2, 8, 0, 10):
        rewind(rig, topic, offset)
        if crash:
            rig.restart()
        assert rig.kernel.groups.offsets("billing", topic) == {topic.partition_id(0): offset}
        assert numbers(pop(rig, billing(rig))) == list(range(offset, 10))


def test_a_group_that_nobody_has_used_can_be_rewound() -> None:
    rig, topic = rig_with_orders()
    rewind(rig, topic, 7)
    rig.restart()
    assert numbers(pop(rig, billing(rig))) == [7, 8, 9]


def test_a_rewind_that_cannot_be_makes_no_group() -> None:
    rig = Rig()
    rig.publish("orders/a", b"1")
    topic = rig.kernel.topic("orders")
    assert topic is not None
    for partition_id, offset in ((topic.partition_id(0), 99), (99, 0)):
        with pytest.raises((OffsetOutOfRange, UnknownPartition)):
            rig.kernel.groups.rewind("billing", topic, {partition_id: offset})
    rig.run()
    assert rig.kernel.groups.settings("billing") is None
    rig.kernel.groups.require_commits("billing")                  # the name is free for who commits offsets


def test_leases_and_retries_are_void_after_a_rewind() -> None:
    rig, topic = rig_with_orders(4)
    group = billing(rig)
    held = pop(rig, group, 2)
    waiting = pop(rig, group, 1)
    group.release(handles(waiting), 5_000)
    rewind(rig, topic, 1)
    assert [type(error) for error in group.ack(handles(held))] == [ExpiredReceipt] * 2
    again = pop(rig, group)
    assert numbers(again) == [1, 2, 3]
    assert [one[2] for one in again] == [1, 1, 1]
    group.ack(handles(again))
    rig.world.advance(60_000)
    assert pop(rig, group) == []
    assert group.counts()[:3] == (0, 0, 0)


def test_a_rewind_that_cannot_be_changes_nothing() -> None:
    rig, topic = rig_with_orders()
    held = pop(rig, billing(rig), 3)
    for offsets, error in (({topic.partition_id(0): 11}, OffsetOutOfRange),
                           ({topic.partition_id(0): -1}, OffsetOutOfRange),
                           ({topic.partition_id(0): 0, 99: 0}, UnknownPartition)):
        with pytest.raises(error):
            rig.kernel.groups.rewind("billing", topic, offsets)
    assert billing(rig).ack(handles(held)) == [None] * 3


@pytest.mark.parametrize("crash", [False, True])
def test_a_deleted_group_begins_anew(crash: bool) -> None:
    rig, topic = rig_with_orders()
    rig.kernel.groups.define("billing", GroupSettings(max_attempts=3))
    group = billing(rig)
    held = pop(rig, group, 6)
    group.ack(handles(held[:2] + held[3:4]))
    rig.run()
    rig.kernel.groups.delete("billing", owner=rig.witness, token="deleted")
    rig.run()
    assert rig.witness.stored[-1].token == "deleted"
    if crash:
        rig.restart(lose_index=True)
    assert rig.kernel.groups.all() == []
    assert rig.kernel.groups.settings("billing") is None
    with pytest.raises(UnknownGroup):
        rig.kernel.groups.delete("billing")
    assert numbers(pop(rig, billing(rig))) == list(range(10))
    assert billing(rig).settings == GroupSettings()


@pytest.mark.parametrize("crash", [False, True])
def test_a_group_begins_anew_in_the_topic_that_it_is_forgotten_in(crash: bool) -> None:
    rig, topic = rig_with_orders()
    rig.publish("plant/a", b"1", b"2")
    rig.kernel.groups.define("billing", GroupSettings(max_attempts=3))
    plant = rig.kernel.groups.group("billing", "plant")
    plant.ack(handles(pop(rig, plant, 1)))
    held = pop(rig, billing(rig), 6)
    billing(rig).ack(handles(held[:2] + held[3:4]))
    rig.run()
    rig.kernel.groups.forget("billing", topic, rig.witness, "forgotten")
    rig.run()
    assert rig.witness.stored[-1].token == "forgotten"
    if crash:
        rig.restart(lose_index=True)
    assert [of.name for of in rig.kernel.groups.topics("billing")] == ["plant"]
    with pytest.raises(UnknownTopic):
        rig.kernel.groups.forget("billing", topic)
    assert numbers(pop(rig, rig.kernel.groups.group("billing", "plant"))) == [2]
    assert numbers(pop(rig, billing(rig))) == list(range(10))
    assert billing(rig).settings == GroupSettings(max_attempts=3)


def test_groups_are_listed_with_what_they_read() -> None:
    rig, topic = rig_with_orders()
    rig.publish("plant/a", b"1")
    pop(rig, billing(rig))
    pop(rig, rig.kernel.groups.group("billing", "plant"))
    rig.kernel.groups.define("audit", GroupSettings(ordered=True))
    rig.kernel.groups.commit_offsets("kafka", {topic.partition_id(0): (4, b"")}, rig.witness)
    rig.run()
    for _ in range(2):
        assert [(name, settings.kind) for name, settings in rig.kernel.groups.all()] == [
            ("audit", "leased"), ("billing", "leased"), ("kafka", ASSIGNED)]
        assert [one.name for one in rig.kernel.groups.topics("billing")] == ["orders", "plant"]
        assert rig.kernel.groups.offsets("kafka", topic) == {topic.partition_id(0): 4}
        assert rig.kernel.groups.all("elsewhere") == []
        rig.restart()


def text_of(rig: Rig, message: Leased) -> str:
    return rig.kernel.groups.handles("/", "billing").encode(message[:3])


def found_by(rig: Rig, text: str) -> object:
    return rig.kernel.groups.find("/", "billing", *rig.kernel.groups.handles("/", "billing").decode(text))


@pytest.mark.parametrize("crash", [False, True])
def test_a_handle_from_before_a_rewind_is_never_good_again(crash: bool) -> None:
    """The same message is out again, for the first time as before: to somebody else."""
    rig, topic = rig_with_orders(1)
    old = pop(rig, billing(rig), 1, 60_000)
    text = text_of(rig, old[0])
    assert found_by(rig, text) is not None
    rewind(rig, topic, 0)
    if crash:
        rig.restart()
    new = pop(rig, billing(rig), 1, 60_000)
    assert new[0][1:3] == old[0][1:3]
    assert found_by(rig, text) is None
    assert [type(error) for error in billing(rig).ack(handles(old))] == [ExpiredReceipt]
    if crash:
        rig.restart()
    assert found_by(rig, text) is None
    assert found_by(rig, text_of(rig, new[0])) is not None
    assert billing(rig).counts().leased == 1


def test_a_handle_of_a_deleted_group_is_not_good_in_one_of_its_name() -> None:
    rig, _ = rig_with_orders(1)
    text = text_of(rig, pop(rig, billing(rig), 1, 60_000)[0])
    rig.kernel.groups.delete("billing")
    rig.run()
    again = pop(rig, billing(rig), 1, 60_000)
    assert numbers(again) == [0]
    assert found_by(rig, text) is None
    rig.restart()
    assert found_by(rig, text) is None
    assert found_by(rig, text_of(rig, again[0])) is not None


def test_work_begun_before_a_rewind_is_void() -> None:
    """A read that is under way, and a lease whose time ends later."""
    rig, topic = rig_with_orders(3)
    rig.world.advance(5_000)                         # a checkpoint
    rig.restart()                                    # nothing is in memory: reads take their time
    group = billing(rig)
    found: list[Leased] = []
    group.pop(10, 1_000, found.extend)
    rig.kernel.groups.rewind("billing", topic, {topic.partition_id(0): 2})
    rig.run()
    assert numbers(found) == [2]
    rewind(rig, topic, 0)
    rig.world.advance(2_000)
    assert group.counts()[:3] == (3, 0, 0)
    assert [(one[1], one[2]) for one in pop(rig, group)] == [(0, 1), (1, 1), (2, 1)]


def test_who_lists_groups_while_one_changes_keeps_nothing_of_what_it_was() -> None:
    rig, _ = rig_with_orders()
    groups = rig.kernel.groups
    groups.define("billing", GroupSettings(max_attempts=3))
    rig.run()
    groups.define("billing", GroupSettings(max_attempts=4))
    assert groups.all() == [("billing", GroupSettings(max_attempts=4))]
    rig.run()
    assert groups.settings("billing") == GroupSettings(max_attempts=4)
    groups.delete("billing")
    assert groups.all() == []
    rig.run()
    assert groups.settings("billing") is None
