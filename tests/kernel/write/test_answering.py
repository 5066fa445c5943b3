"""Thousands who wait for one flush are told over many short turns of the loop: each in the order of its calls."""
from __future__ import annotations

import pytest

from gatehouse.kernel.message import Stored
from gatehouse.kernel.state.topics import TopicSettings
from gatehouse.kernel.world import FakeLoop
from gatehouse.kernel.write.batches import STEP_RECORDS
from gatehouse.kernel.write.committer import SLICE_MS, STEP_OWNERS
from gatehouse.kernel.write.validating import OPEN_HERE_BYTES
from tests.kernel.batches import batch_of
from tests.kernel.delivery.test_slices import step, turns_of
from tests.kernel.rig import Rig

OWNERS = STEP_OWNERS * 20


class Publisher:
    """An owner that takes a tenth of a millisecond for each call."""

    tenths = 0

    def __init__(self, loop: FakeLoop) -> None:
        self.told: list[object] = []
        self._loop = loop

    def on_stored(self, stored: list[Stored]) -> None:
        Publisher.tenths += 1
        self._loop.worked_ms += Publisher.tenths % 10 == 0
        self.told += [one.token for one in stored]


def publish(rig: Rig, owners: list[Publisher], token: str) -> None:
    for owner in owners:
        rig.kernel.append([(rig.kernel.place("plant/a"), b"1", b"\0", 2, 0)], owner, token)


def rig_of_publishers() -> tuple[Rig, list[Publisher]]:
    rig = Rig()
    rig.publish("plant/a", b"0")
    return rig, [Publisher(rig.world.loop) for _ in range(OWNERS)]


def test_publishers_of_one_flush_are_told_over_many_short_turns() -> None:
    rig, owners = rig_of_publishers()
    publish(rig, owners, "first")
    turns = turns_of(rig)
    assert sum(turns) == OWNERS // 10 and max(turns) <= SLICE_MS + STEP_OWNERS // 10 + 1
    assert all(one.told == ["first"] for one in owners)


def test_a_later_flush_waits_for_the_answers_to_an_earlier_one() -> None:
    rig, owners = rig_of_publishers()
    publish(rig, owners, "first")
    while not owners[0].told:
        assert step(rig)
    publish(rig, owners, "second")
    rig.run()
    assert all(one.told == ["first", "second"] for one in owners)


def test_publishers_wait_while_answers_pile_up_and_go_on_after_them() -> None:
    rig, owners = rig_of_publishers()
    rig.kernel._answering.slices.slice_ms = 0
    congested = set()
    for number in range(8):
        publish(rig, owners, f"flush {number}")
        for _ in range(3):
            step(rig)
            congested.add(rig.kernel.congested)
    rig.run()
    assert congested == {False, True} and not rig.kernel.congested
    assert all(one.told == [f"flush {number}" for number in range(8)] for one in owners)


def test_a_hub_that_stops_tells_everybody_first() -> None:
    rig, owners = rig_of_publishers()
    publish(rig, owners, "last")
    ended: list[int] = []
    rig.kernel.close(lambda: ended.append(sum(len(one.told) for one in owners)))
    rig.run()
    assert ended == [OWNERS]


def test_one_owner_that_fails_does_not_cost_the_others_their_answers() -> None:
    rig, owners = rig_of_publishers()
    owners[3].told = None                              # type: ignore[assignment]
    publish(rig, owners, "first")
    rig.world.run()
    assert [type(error) for error in rig.errors] == [TypeError]
    assert all(one.told == ["first"] for one in owners if one is not owners[3])


RECORDS = STEP_RECORDS * 40


@pytest.mark.parametrize("bound", [False, True])
def test_the_records_of_an_opened_batch_are_placed_over_many_turns_and_nothing_overtakes_them(bound: bool) -> None:
    rig = Rig()
    topic = rig.kernel.create_topic("plant", partitions=1, settings=TopicSettings(compact=not bound))
    if bound:
        rig.kernel.groups.bind("plant/#", rig.kernel.groups.declare_queue("all"))
    rig.run()
    partition_id = topic.partition_id(0)
    rig.kernel._validating.slices.slice_ms = 0
    large = batch_of([(b"%d" % number, b"v" * 100, ()) for number in range(RECORDS)])
    assert len(large) > OPEN_HERE_BYTES
    rig.kernel.append_batch(partition_id, large, rig.witness, "large")
    rig.kernel.append_batch(partition_id, batch_of([(b"k", b"small", ())]), rig.witness, "small")
    steps = 0
    while not rig.witness.stored:
        assert step(rig)
        steps += 1
    assert steps > RECORDS // STEP_RECORDS
    rig.run()
    assert [one.token for one in rig.witness.stored] == ["large", "small"]
    assert [one.error for one in rig.witness.stored] == [None, None]
    assert len(rig.read("plant")) == RECORDS + 1
