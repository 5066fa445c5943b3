"""Topics that a full disk refused are taken back before anybody hears of it. What is made after that is another one."""
from __future__ import annotations

import pytest

from gatehouse.kernel.errors import StorageFull
from gatehouse.kernel.message import Stored
from gatehouse.kernel.records.batch import encode_headers
from tests.kernel.full_log import FullLog
from tests.kernel.rig import Rig


class Again:
    """An owner that sends the same message once more, in the very call that refuses it."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.placement = rig.kernel.place("one/k")
        self.topics: list[list[str]] = []             # at each answer
        self.errors: list[type[Exception] | None] = []

    def send(self) -> None:
        self.rig.kernel.append([(self.placement, b"v", encode_headers(()), 1, 0)], self, None)

    def on_stored(self, stored: list[Stored]) -> None:
        for answer in stored:
            self.topics.append(names(self.rig))
            self.errors.append(answer.error and type(answer.error))
            if answer.error is not None:
                self.send()


class Beside:
    """An owner that is told after that one."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.topics: list[list[str]] = []

    def on_stored(self, stored: list[Stored]) -> None:
        self.topics.append(names(self.rig))


def names(rig: Rig) -> list[str]:
    return [topic.name for topic in rig.kernel.topics()]


@pytest.mark.parametrize("room", [False, True], ids=["a crash while it is full", "there is room again"])
def test_who_hears_of_a_refusal_first_may_make_the_topic_anew_before_the_next_hears_of_it(room: bool) -> None:
    log = FullLog()
    rig = Rig(log=log)
    rig.kernel.create_topic("zero")
    rig.run()
    log.full = True
    again = Again(rig)
    beside = Beside(rig)
    refused = rig.kernel.topic("one")
    again.send()
    rig.kernel.create_topic("two", owner=beside)
    while not beside.topics:
        assert rig.world.loop.step() or rig.world.log_worker.step()
    anew = rig.kernel.topic("one")
    assert again.topics == [["zero"]], "nothing that was refused is there when the first hears of it"
    assert beside.topics == [["one", "zero"]], "what has been made since is there when the next hears of it"
    assert refused is not None and anew is not None and anew.id > refused.id and anew.uuid != refused.uuid
    log.full = not room
    for _ in range(20):
        rig.world.loop.step() or rig.world.log_worker.step()
    assert again.errors[0] is StorageFull and (again.errors[-1] is None) == room
    log.full = False                                  # a start needs room
    rig.restart(lose_index=True)
    assert names(rig) == (["one", "zero"] if room else ["zero"])
    if room:
        assert rig.kernel.topic("one") == anew and rig.values("one") == [b"v"]
