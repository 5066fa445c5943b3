"""Whoever gathers is asked once, before the next frame is sealed, and what it appends is in that frame."""
from __future__ import annotations

import pytest

from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.log.log import LogFull
from gatehouse.kernel.message import MANY, NOBODY, SEVERAL, Origin, Speaker
from tests.kernel.rig import Rig


class Gatherer:
    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.placement = rig.kernel.place("t/1")
        self.waiting: list[bytes] = []
        self.asked = 0

    def gather(self, value: bytes) -> None:
        if not self.waiting:
            self.rig.kernel.committer.gather(self.enter, lambda: len(self.waiting))
        self.waiting.append(value)

    def enter(self) -> None:
        self.asked += 1
        waiting, self.waiting = self.waiting, []
        self.append(*waiting)

    def append(self, *values: bytes) -> None:
        self.rig.kernel.append([(self.placement, value, b"\0", 2, 0) for value in values], self.rig.witness, values)


def flushes(rig: Rig) -> int:
    return rig.kernel.committer.flushes


def test_what_is_gathered_is_in_the_frame_that_is_sealed_next() -> None:
    rig = Rig()
    gatherer = Gatherer(rig)
    rig.run()
    before = flushes(rig)
    gatherer.gather(b"1")
    gatherer.append(b"appended")
    gatherer.gather(b"2")
    rig.run()
    assert rig.values("t") == [b"appended", b"1", b"2"]
    assert gatherer.asked == 1 and flushes(rig) == before + 1
    assert [stored.token for stored in rig.witness.stored] == [(b"appended",), (b"1", b"2")]


def test_what_is_gathered_while_a_frame_is_on_its_way_is_in_the_one_behind_it() -> None:
    rig = Rig()
    gatherer = Gatherer(rig)
    rig.run()
    before = flushes(rig)
    gatherer.append(b"first")
    while not rig.kernel.committer.flight:
        assert rig.world.loop.step()
    gatherer.gather(b"second")
    gatherer.gather(b"third")
    assert gatherer.asked == 0
    rig.run()
    assert rig.values("t") == [b"first", b"second", b"third"]
    assert gatherer.asked == 1 and flushes(rig) == before + 2


def test_whoever_enters_nothing_holds_nobody_up() -> None:
    rig = Rig()
    gatherer = Gatherer(rig)
    rig.run()
    asked: list[int] = []
    rig.kernel.committer.gather(lambda: asked.append(1), lambda: 0)
    rig.run()
    gatherer.append(b"x")
    rig.run()
    assert asked == [1] and rig.values("t") == [b"x"]
    done: list[bool] = []
    rig.kernel.close(lambda: done.append(True))
    rig.run()
    assert done


def test_behind_a_frame_that_is_refused_it_is_refused_too() -> None:
    rig = Rig()
    gatherer = Gatherer(rig)
    rig.run()
    append = rig.log.append

    def refusing(head: bytes, body: bytes) -> int:
        rig.log.append = append  # type: ignore[method-assign]
        raise LogFull("no room")

    rig.log.append = refusing  # type: ignore[method-assign]
    gatherer.append(b"refused")
    while not rig.kernel.committer.flight:
        assert rig.world.loop.step()
    gatherer.gather(b"behind")
    rig.run()
    assert gatherer.asked == 1
    assert [stored.error is None for stored in rig.witness.stored] == [False, False]
    gatherer.append(b"later")
    rig.run()
    assert rig.values("t") == [b"later"]


def test_what_was_gathered_when_the_hub_stops_is_stored_and_then_nothing_more() -> None:
    rig = Rig()
    gatherer = Gatherer(rig)
    rig.run()
    gatherer.gather(b"in time")
    done: list[bool] = []
    rig.kernel.close(lambda: done.append(True))
    with pytest.raises(Stopping):
        rig.kernel.committer.gather(lambda: None, lambda: 0)
    rig.run()
    assert done and [stored.error for stored in rig.witness.stored] == [None]


def test_who_speaks_in_turn_is_known_by_the_place_of_a_message() -> None:
    speaker = Speaker()
    first, second, later = Origin("mqtt", "a"), Origin("mqtt", "b"), Origin("http", "c")
    assert speaker.origin_of(7) is NOBODY
    speaker.speak_in_turn([2, 3], [first, second])
    assert [speaker.origin_of(at) for at in range(3)] == [first, first, second]
    assert speaker.origin is MANY, "one of them may have the right to have messages followed"
    speaker.speak_in_turn([2, 3], [first, second], False)
    assert speaker.origin is SEVERAL
    speaker.speaks(later)
    assert [speaker.origin_of(at) for at in range(3)] == [later] * 3
