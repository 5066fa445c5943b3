"""A disk on which the index no longer fits: the hub goes on with what is in memory, and writes it when there is
room."""
from __future__ import annotations

from collections.abc import Sequence

import pytest

from gatehouse.kernel.state.store import MemoryStore, StoreFull
from tests.kernel.rig import Rig


class TightStore(MemoryStore):
    """Takes nothing while `full`, but for the first entries of a write."""

    full = False

    def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = (),
              ranges: Sequence[tuple[bytes, bytes]] = (), *, sync: bool = False) -> None:
        if self.full:
            super().write(puts[:2], deletes, ranges)
            raise StoreFull("no room")
        super().write(puts, deletes, ranges, sync=sync)


def full_rig() -> tuple[Rig, TightStore]:
    store = TightStore()
    rig = Rig(store=store)
    rig.publish("t/k", b"before")
    rig.world.advance(5_000)
    store.full = True
    return rig, store


def test_reading_and_writing_go_on_and_the_checkpoint_is_made_up_for() -> None:
    rig, store = full_rig()
    for value in (b"1", b"2"):
        rig.publish("t/k", value)
        for _ in range(5):
            rig.world.advance(1_000)
        assert rig.values("t")[-1] == value
    postponed = rig.kernel.statistics()["postponed_checkpoints_total"]
    assert postponed > 3 and not rig.fatal
    store.full = False
    for _ in range(5):
        rig.world.advance(1_000)
    assert rig.kernel.statistics()["postponed_checkpoints_total"] == postponed
    assert rig.values("t") == [b"before", b"1", b"2"]
    rig.restart()
    assert rig.kernel.recovered_frames <= 1, "the checkpoint is there"
    assert rig.values("t") == [b"before", b"1", b"2"]


@pytest.mark.parametrize("known", [False, True], ids=["not known to be full", "known to be full"])
def test_a_stop_does_not_wait_for_room(known: bool) -> None:
    rig, _ = full_rig()
    rig.publish("t/k", b"1")
    if known:
        rig.world.advance(5_000)
    ended: list[bool] = []
    rig.kernel.close(lambda: ended.append(True))
    rig.run()
    assert ended == [True]


def test_a_crash_with_a_checkpoint_half_written() -> None:
    rig, store = full_rig()
    for i in range(600):
        rig.publish("t/k", b"%d" % i)
    rig.world.advance(5_000)
    rig.restart()
    store.full = False
    assert rig.values("t") == [b"before", *[b"%d" % i for i in range(600)]]
