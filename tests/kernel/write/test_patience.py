"""A frame waits for those who were answered a moment ago, and for nobody in vain for long."""
from __future__ import annotations

import pytest

from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.write.committer import AWAITED_MAX, MOMENT_MS, SKIPPED_MAX, WAITED_BYTES, Patience
from tests.kernel.rig import Rig

TURNS = 8
PATIENT = KernelSettings(gather_turns=TURNS)


def turns_waited(patience: Patience, waiting: int, now_ms: int = 0) -> int:
    """How often it says to wait, while as many wait in every turn."""
    count = 0
    while patience.waits(waiting, now_ms):
        count += 1
        assert count < 100
    return count


def test_it_waits_until_all_are_there_who_were_answered_or_waited() -> None:
    patience = Patience(TURNS)
    patience.on_answered(7, 3, 0)
    assert patience.waits(3, 0) and patience.waits(9, 0)
    assert not patience.waits(10, 0)
    assert not patience.waits(11, 0)                   # and this frame waits no more


@pytest.mark.parametrize(("turns", "answered", "waiting"), [
    (0, 7, 3),                                         # none are to be waited
    (TURNS, 1, 0),                                     # one publisher is alone
    (TURNS, 0, 5),                                     # nobody was answered
    (TURNS, 5, AWAITED_MAX),                           # the frame is large
])
def test_it_does_not_wait_where_that_brings_nothing(turns: int, answered: int, waiting: int) -> None:
    patience = Patience(turns)
    patience.on_answered(answered, waiting, 0)
    assert turns_waited(patience, waiting) == 0


def test_it_waits_for_some_turns_and_for_a_moment_at_most() -> None:
    patience = Patience(TURNS)
    patience.on_answered(4, 4, 0)
    assert turns_waited(patience, 7) == TURNS - 1
    patience.on_answered(4, 4, 0)
    assert patience.waits(4, MOMENT_MS) and not patience.waits(4, MOMENT_MS + 1)


def test_waits_in_vain_become_ever_rarer_and_one_that_is_not_begins_anew() -> None:
    patience = Patience(TURNS)
    skipped = []
    count = 0
    for _ in range(2_000):
        patience.on_answered(4, 0, 0)
        if turns_waited(patience, 1):
            skipped.append(count)
            count = 0
        else:
            count += 1
    assert skipped[:5] == [0, 1, 3, 7, 15] and max(skipped) <= SKIPPED_MAX
    for _ in range(SKIPPED_MAX + 1):
        patience.on_answered(4, 0, 0)
    assert patience.waits(1, 0) and not patience.waits(4, 0)
    patience.on_answered(4, 0, 0)
    assert patience.waits(1, 0)                        # the next one is waited with as well


class Publishers:
    """Some with one message in flight, as a door gathers them."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.placement = rig.kernel.place("t/1")
        self.waiting: list[bytes] = []

    def publish(self, value: bytes) -> None:
        if not self.waiting:
            self.rig.kernel.committer.gather(self._enter, lambda: len(self.waiting))
        self.waiting.append(value)

    def _enter(self) -> None:
        waiting, self.waiting = self.waiting, []
        self.rig.kernel.append([(self.placement, value, b"\0", 2, 0) for value in waiting], self.rig.witness, waiting)


def answered_together(rig: Rig) -> list[int]:
    """How many messages each frame had."""
    return [len(answer.token) for answer in rig.witness.stored if isinstance(answer.token, list)]


def test_publishers_who_are_answered_together_come_into_one_frame_again() -> None:
    rig = Rig(settings=PATIENT)
    publishers = Publishers(rig)
    rig.run()
    for number in range(3):
        publishers.publish(b"%d" % number)
    rig.run()
    publishers.publish(b"a")
    for value in (b"b", b"c"):
        assert rig.world.loop.step()                   # a turn in which nothing is sealed
        publishers.publish(value)
    rig.run()
    assert answered_together(rig) == [3, 3]
    publishers.publish(b"alone")
    rig.run()                                          # the others do not come: it goes without them
    assert answered_together(rig) == [3, 3, 1]


def test_without_patience_whoever_comes_first_goes_first() -> None:
    rig = Rig()
    publishers = Publishers(rig)
    rig.run()
    publishers.publish(b"1")
    publishers.publish(b"2")
    rig.run()
    publishers.publish(b"a")
    assert rig.world.loop.step()
    publishers.publish(b"b")
    rig.run()
    assert answered_together(rig) == [2, 1, 1]


def test_calls_that_are_appended_by_themselves_are_waited_for_as_well_and_large_ones_do_not_wait() -> None:
    rig = Rig(settings=PATIENT)
    placement = rig.kernel.place("t/1")
    committer = rig.kernel.committer

    def append(size: int) -> None:
        rig.kernel.append([(placement, bytes(size), b"\0", 2, 0)], rig.witness, [b""])

    rig.run()
    append(1)
    append(1)
    rig.run()
    before = committer.flushes
    append(1)
    assert rig.world.loop.step()
    append(1)
    rig.run()
    assert committer.flushes == before + 1
    append(WAITED_BYTES)
    assert rig.world.loop.step() and committer.flight is not None
    rig.run()


def test_an_end_does_not_wait() -> None:
    rig = Rig(settings=PATIENT)
    publishers = Publishers(rig)
    rig.run()
    publishers.publish(b"1")
    publishers.publish(b"2")
    rig.run()
    publishers.publish(b"a")
    assert rig.world.loop.step()
    done: list[bool] = []
    rig.kernel.close(lambda: done.append(True))
    with pytest.raises(Stopping):
        rig.kernel.committer.gather(lambda: None, lambda: 0)
    rig.run()
    assert done and answered_together(rig) == [2, 1]
