"""Where messages are stored, who may have a topic made for them, and what no topic takes."""
from __future__ import annotations

from functools import partial

import pytest

from gatehouse.kernel.addresses.routes import RouteEntry, Routes
from gatehouse.kernel.errors import CreateDenied, TooManyTopics, UnknownTopic, Unroutable
from gatehouse.kernel.message import Placement, When
from gatehouse.kernel.settings import KernelSettings
from tests.kernel.rig import Rig
from tests.kernel.scheduling.test_scheduling import ScheduleRig


@pytest.fixture
def rig() -> Rig:
    return Rig()


def topics(rig: Rig) -> list[str]:
    return sorted(topic.name for topic in rig.kernel.topics())


def append(rig: Rig, placement: Placement, value: bytes) -> None:
    rig.kernel.append([(placement, value, b"\0", 0, 0)], rig.witness)
    rig.run()


@pytest.mark.parametrize("place", ["place", "place_in", "place_routed"])
def test_who_may_not_create_does_not_make_a_deleted_topic_anew(rig: Rig, place: str) -> None:
    """From a placement that was made while the topic was there, however often it is tried."""
    rig.kernel.create_topic("t")
    made = {"place": partial(rig.kernel.place, "t/k"), "place_in": partial(rig.kernel.place_in, "t", b"k"),
            "place_routed": partial(rig.place_routed, "t/k", ())}[place](may_create=False)
    append(rig, made, b"1")
    rig.kernel.delete_topic("t")
    rig.run()
    for _ in range(2):
        with pytest.raises(CreateDenied):
            append(rig, made, b"2")
    assert topics(rig) == []
    rig.kernel.create_topic("t")
    append(rig, made, b"3")
    assert rig.values("t") == [b"3"]


def test_who_may_create_makes_the_topic_that_was_asked_for_anew() -> None:
    """Not the one that routes would lead its address to."""
    rig = Rig(routes=Routes([RouteEntry("t/k", "elsewhere")]))
    placement = rig.kernel.place_in("t", b"k")
    append(rig, placement, b"1")
    rig.kernel.delete_topic("t")
    rig.run()
    append(rig, placement, b"2")
    assert topics(rig) == ["t"] and rig.values("t") == [b"2"]


def test_a_missing_topic_is_made_for_who_may_alone(rig: Rig) -> None:
    for place in (partial(rig.kernel.place, "t/k"), partial(rig.kernel.place_in, "t", b"k")):
        with pytest.raises(CreateDenied):
            place(may_create=False)
    with pytest.raises(CreateDenied):
        rig.kernel.place_in("unrouted", b"t/k", may_create=False)
    assert topics(rig) == []
    rig.kernel.place("t/k")
    assert rig.kernel.place("t/x", may_create=False).topic == "t"


def test_use_makes_so_many_topics_and_no_more() -> None:
    rig = Rig(settings=KernelSettings(max_auto_topics=2))
    for address in ("a/1", "b/1"):
        rig.publish(address, b"v")
    for place in (partial(rig.kernel.place, "c/1"), partial(rig.kernel.place_in, "c", b"1")):
        with pytest.raises(TooManyTopics, match="kernel.max_auto_topics, 2"):
            place()
    assert topics(rig) == ["a", "b"]


def test_where_topics_are_not_made_by_use_a_missing_one_is_unknown_to_everybody() -> None:
    rig = Rig(settings=KernelSettings(auto_create_topics=False))
    for may_create in (True, False):
        with pytest.raises(UnknownTopic):
            rig.kernel.place("t/k", may_create=may_create)


@pytest.mark.parametrize("address", ["machine 3/temp", "/plant", "plant%2Fline1", "unrouted/x", "unrouted"])
def test_what_has_no_topic_is_refused(rig: Rig, address: str) -> None:
    with pytest.raises(Unroutable):
        rig.kernel.place(address)
    assert topics(rig) == []


def test_what_has_no_topic_is_stored_where_a_route_asks_for_it() -> None:
    rig = Rig(routes=Routes([RouteEntry("#", "unrouted")]), settings=KernelSettings(max_auto_topics=2))
    for address in ("machine 3/temp", "plant/x", "/plant", "unrouted/x"):
        rig.publish(address, b"v")
    assert sorted(record[2] or b"" for record in rig.read("unrouted")) == [b"/plant", b"machine 3/temp", b"unrouted/x"]
    with pytest.raises(TooManyTopics):
        rig.kernel.place("fleet/1")


def test_queues_get_what_no_topic_takes(rig: Rig) -> None:
    """Who chose them means them; the topic `unrouted` holds what they refer to."""
    work = rig.kernel.groups.declare_queue("work")
    placement = rig.place_routed("my exchange/k", (work.first_partition_id,), may_create=False)
    append(rig, placement, b"v")
    assert [record[3] for record in rig.read_partition(work.first_partition_id)] == [b"v"] == rig.values("unrouted")
    rig.kernel.delete_topic("unrouted")
    rig.run()
    append(rig, placement, b"w")
    assert rig.values("unrouted") == [b"w"]
    with pytest.raises(Unroutable):
        rig.place_routed("my exchange/k", ())


@pytest.mark.parametrize(("may_create", "stored_in"), [(True, "t"), (False, "unrouted")])
def test_what_falls_due_makes_a_deleted_topic_anew_only_for_who_may(may_create: bool, stored_in: str) -> None:
    rig = ScheduleRig()
    rig.kernel.create_topic("t")
    for place in (partial(rig.kernel.place, "t/k"), partial(rig.kernel.place_in, "t", b"k")):
        rig.kernel.schedule([(place(may_create=may_create), b"v", b"\0", 2, 0)], [When(rig.now_ms + 10)], rig.witness)
    rig.run()
    rig.restart()
    rig.kernel.delete_topic("t")
    rig.advance(10)
    assert rig.values(stored_in) == [b"v", b"v"] and topics(rig) == [stored_in]


