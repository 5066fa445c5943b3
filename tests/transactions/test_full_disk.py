"""A disk that half messages have filled: what frees some of it is possible while nothing else is."""
from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gatehouse.kernel.errors import StorageFull
from gatehouse.kernel.settings import KernelSettings
from gatehouse.transactions.coordinator import CheckSettings, State
from tests.kernel.full_log import FullLog
from tests.kernel.sim_reserve import SimReserve
from tests.simulation.disk import SimDisk
from tests.transactions.rig import ROLLBACK, TransactionRig

SEGMENT_BYTES = 64 << 10
SILENT = CheckSettings(86_400_000, 86_400_000, 15)


class FullRig(TransactionRig):
    """On a disk that can be filled, with room held for what frees some."""

    def __init__(self, retention_bytes: int = 1 << 30) -> None:
        self.space = SimDisk(Random(1))
        self.held = SimReserve(self.space, 16 << 10)
        self.last = SimReserve(self.space, 32 << 10, "last")
        settings = KernelSettings(segment_bytes=SEGMENT_BYTES, default_partitions=1, retention_bytes=retention_bytes,
                                  checkpoint_ms=100)
        super().__init__(disk=self.space, settings=settings, reserve=self.held, emergency_reserve=self.last)

    def fill(self, count: int = 20, group: str = "shop") -> list[int]:
        """So many transactions, and then not a byte more than is there."""
        begun = [self.begin(("t/k", b"%d" % i + bytes(3_000)), group=group, checks=SILENT) for i in range(count)]
        self.advance(200)
        self.space.space_bytes = self.space.used_bytes()
        with pytest.raises(StorageFull):
            self.begin(("t/k", b"no"), checks=SILENT)
        return begun

    def make_room(self) -> None:
        self.space.space_bytes = 1 << 30
        self.advance(3_000, 1_000)

    @property
    def is_short(self) -> bool:
        return self.kernel._disk_guard.short


def test_what_half_messages_have_filled_is_rolled_back() -> None:
    rig = FullRig()
    begun = rig.fill()
    for one in begun[:10]:
        rig.rollback(one)
    assert (rig.last.given_up, rig.held.given_up) == (1, 0), "the last part, and no more of the reserve"
    assert [rig.state(one) for one in begun] == [State.ROLLED_BACK] * 10 + [State.OPEN] * 10
    rig.restart()
    assert [rig.state(one) for one in begun] == [State.ROLLED_BACK] * 10 + [State.OPEN] * 10
    rig.make_room()
    assert not rig.is_short and rig.last.is_held
    rig.commit(begun[-1])
    assert rig.values("t") == [b"19" + bytes(3_000)]


def test_nobody_else_has_the_room_that_was_lent() -> None:
    rig = FullRig()
    begun = rig.fill()
    rig.rollback(begun[0])
    with pytest.raises(StorageFull):
        rig.publish("t/k", b"small")
    with pytest.raises(StorageFull):
        rig.begin(("t/k", b"small"), checks=SILENT)
    rig.rollback(begun[1])
    rig.make_room()
    rig.publish("t/k", b"after")
    assert rig.values("t") == [b"after"]


def test_a_commit_without_room_is_refused_and_stays_open() -> None:
    rig = FullRig()
    begun = rig.fill()
    with pytest.raises(StorageFull):
        rig.commit(begun[0])
    assert rig.state(begun[0]) is State.OPEN and not rig.last.given_up
    rig.rollback(begun.pop())
    with pytest.raises(StorageFull):
        for one in begun:                            # what was lent has room for the first of these
            rig.commit(one)
    assert 0 < len(rig.values("t")) < len(begun)
    assert [rig.state(one) for one in begun].count(State.OPEN) == len(begun) - len(rig.values("t"))
    rig.make_room()
    for one in begun:
        rig.commit(one)
    assert rig.values("t") == [b"%d" % i + bytes(3_000) for i in range(len(begun))]


def test_a_rollback_behind_a_message_that_does_not_fit() -> None:
    """The frame on its way is refused, and what is gathered behind it would be, too."""
    rig = FullRig()
    begun = rig.fill()
    rig.transactions.begin([rig.half("t/k", bytes(100))], group="shop", owner=rig.witness, token="begin",
                           settings=SILENT)
    while not rig.world.log_worker.jobs:
        rig.world.loop.step()
    rig.transactions.decide(begun[0], ROLLBACK, by="the sender", owner=rig.witness, token="rollback")
    rig.run()
    assert [one.error for one in rig.witness.stored if one.token == "rollback"] == [None]


def test_retention_does_not_fill_what_is_held_for_rollbacks() -> None:
    """Half messages are moved before their segment goes; that alone can take up all that there is."""
    rig = FullRig(retention_bytes=2 * SEGMENT_BYTES)
    begun = rig.fill(100)
    rig.advance(30_000, 1_000)
    assert rig.held.given_up and rig.is_short
    for one in begun:
        rig.rollback(one)
    rig.advance(30_000, 1_000)
    assert not rig.is_short and rig.held.is_held and rig.last.is_held, "what they had is free again"
    rig.publish("t/k", b"after")
    assert rig.values("t") == [b"after"]


def test_one_that_nobody_is_asked_about_expires() -> None:
    rig = FullRig()
    rig.fill(10)
    rig.space.space_bytes = 1 << 30
    timed = rig.begin(("t/k", b"x"), group="", checks=CheckSettings(2_000, 2_000, 0))
    asked = rig.begin(("t/k", b"y"), group="silent", checks=CheckSettings(1_000, 1_000, 1))
    rig.advance(1_500)
    rig.space.space_bytes = rig.space.used_bytes()
    rig.advance(5_000)
    assert rig.state(timed) is State.EXPIRED
    rig.make_room()
    assert rig.state(asked) is State.EXPIRED, "its dead letter had to have room"


class Lent:
    """Room that a log which says it is full has again once it is given up."""

    def __init__(self, log: FullLog) -> None:
        self.log = log
        self.held = True

    def take(self) -> bool:
        self.held = not self.log.full
        return self.held

    def give_up(self) -> bool:
        was_held, self.held = self.held, False
        self.log.full = self.log.full and not was_held
        return was_held


@pytest.mark.parametrize("what", ["fresh", "with records of its own"])
def test_a_rollback_is_tried_again_once(what: str) -> None:
    log = FullLog()
    lent: Any = Lent(log)
    rig = TransactionRig(log=log, emergency_reserve=lent)
    begun = [rig.begin(("t/k", b"x"), checks=SILENT) for _ in range(2)]
    if what != "fresh":
        rig.advance(11_000)
    log.full = True
    rig.rollback(begun[0])
    log.full = True
    with pytest.raises(StorageFull):
        rig.rollback(begun[1])
    assert [rig.state(one) for one in begun] == [State.ROLLED_BACK, State.OPEN]
    log.full = False
    rig.commit(begun[1])
    assert rig.values("t") == [b"x"]
