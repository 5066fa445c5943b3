"""Shared filters over topics that are not there yet: whose the first messages are, and what no group may refuse."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.errors import AssignedGroup
from gatehouse.kernel.groups.group_settings import ASSIGNED, GroupSettings
from gatehouse.kernel.message import Leased
from tests.kernel.rig import Rig
from tests.kernel.sessions.client import Client

SHARE = "$share/crew/jobs/#"


class Taker:
    """A member that keeps what it is given."""

    def __init__(self, rig: Rig, share: str = SHARE) -> None:
        self.leased: list[Leased] = []
        self.gone = False
        self.place = rig.kernel.groups.share(share, self, 100)
        rig.run()

    @property
    def values(self) -> list[bytes | None]:
        return sorted((leased[6] for leased in self.leased), key=str)

    def on_leased(self, messages: list[Leased]) -> None:
        self.leased += messages

    def on_gone(self) -> None:
        self.gone = not self.place.wait(100)


@pytest.mark.parametrize("kills", [(), ("asleep",), ("asleep", "made", "sent")])
def test_what_comes_first_of_a_topic_is_also_theirs_who_sleep(tmp_path: Path, kills: tuple[str, ...]) -> None:
    rig = Rig(tmp_path)
    rig.kernel.groups.define("crew", GroupSettings(start="latest"))
    client = Client(rig)
    client.connect()
    client.subscribe(SHARE)
    Taker(rig).place.leave()
    client.sleep()
    for moment in ("asleep", "made", "sent"):
        if moment == "made":
            rig.publish("jobs/0", b"0")
        elif moment == "sent":
            for i in range(1, 10):
                rig.publish(f"jobs/{i}", b"%d" % i)
        if moment in kills:
            rig.restart()
    assert Taker(rig).values == [b"%d" % i for i in range(10)]


def test_a_topic_has_no_group_of_who_does_not_sleep_any_more() -> None:
    rig = Rig()
    client = Client(rig)
    client.connect()
    for each in (SHARE, "$share/crew/other/#", "$share/band/jobs/#"):
        client.subscribe(each)
    client.held.unsubscribe(SHARE)
    rig.publish("jobs/0", b"0")
    assert rig.kernel.groups.topics("crew") == [] and len(rig.kernel.groups.topics("band")) == 1
    rig.kernel.sessions.clear("/", "c1", "ann")
    rig.publish("other/0", b"0")
    assert rig.kernel.groups.topics("crew") == []


def test_the_name_of_an_assigned_group_is_refused_before_its_topic_is_there() -> None:
    rig = Rig()
    rig.kernel.groups.define("crew", GroupSettings(kind=ASSIGNED))
    with pytest.raises(AssignedGroup):
        Taker(rig)


def test_a_name_that_became_an_assigned_groups_keeps_nobody_from_making_the_topic() -> None:
    rig = Rig()
    client = Client(rig)
    client.connect()
    client.subscribe(SHARE)
    taker, other = Taker(rig), Taker(rig, "$share/band/jobs/#")
    rig.kernel.groups.define("crew", GroupSettings(kind=ASSIGNED))
    rig.publish("jobs/0", b"0")
    assert taker.gone and other.values == [b"0"]
    taker.place.leave()


def test_a_place_outlives_its_topic_where_its_member_waits_for_the_next(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    taker, behind_queue = Taker(rig), Taker(rig, "$share/crew/jobs/+")
    rig.publish("jobs/0", b"0")
    rig.kernel.delete_topic("jobs")
    rig.run()
    rig.publish("jobs/0", b"1")
    assert taker.values == [b"0", b"1"] and not behind_queue.place.wait(5)


def test_a_group_that_waited_for_a_topic_is_given_no_history_of_another() -> None:
    rig = Rig()
    rig.publish("old/0", b"old")
    taker = Taker(rig)
    rig.publish("jobs/0", b"0")
    other = Taker(rig, "$share/crew/old/#")
    rig.publish("old/0", b"new")
    assert taker.values == [b"0"] and other.values == [b"new"]
