"""Limits of a link, of all links of a hub, and of a meeting point: kept, in order, and nobody starves."""
from __future__ import annotations

import random
import time
from functools import partial

import pytest

from gatehouse.relay.frames import Carry
from gatehouse.relay.pacing import LETTER_COST, Pacing, Rates, Waiting, Way
from gatehouse.relay.settings import LEAST_PACE, LinkSettings, MeetingSection, MetLink
from tests.relay.network import Network, TestHub
from tests.relay.test_messages import RECEIVE, SEND, pair

AB, AC = frozenset("ab"), frozenset("ac")
A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def test_what_is_not_limited_passes_at_once() -> None:
    pacing, came = Pacing(0), []
    pacing.configure({AB: 0})
    pacing.take(Way(A, B), Waiting(AB, 1 << 30, partial(came.append, 1)), 0)
    pacing.take(Way(A, B), Waiting(AB, 1 << 30, partial(came.append, 2)), 0)
    assert came == [1, 2] and not len(pacing)


def test_a_limited_link_waits_in_its_order_and_another_does_not() -> None:
    pacing, came = Pacing(0), []
    pacing.configure({AB: 1_000})
    for number in range(5):
        pacing.take(Way(A, B), Waiting(AB, 1_000, partial(came.append, f"b{number}")), 1)
    pacing.take(Way(A, C), Waiting(AC, 1_000, partial(came.append, "c")), 1)
    assert came == ["b0", "c"] and pacing.waiting_bytes(B) == 4 * (1_000 + LETTER_COST) and len(pacing) == 4
    for second in range(1, 5):
        pacing.release(1 + second * 1_000)
    assert came == ["b0", "c", "b1", "b2", "b3", "b4"] and not len(pacing) and not pacing.waiting_bytes(B)


def test_links_take_turns_under_the_limit_of_all() -> None:
    pacing, came = Pacing(1_000), []
    for number in range(3):
        for pair_of, way in ((AB, Way(A, B)), (AC, Way(A, C)), (AB, Way(B, A))):
            pacing.take(way, Waiting(pair_of, 1_000, partial(came.append, (way, number))), 1)
    for second in range(1, 10):
        pacing.release(1 + second * 1_000)
    assert len(came) == 9
    for way in (Way(A, B), Way(A, C), Way(B, A)):
        assert [number for of, number in came if of == way] == [0, 1, 2]
        assert any(of == way for of, _ in came[:4]), "none has to wait for all of another"
    pacing.take(Way(A, B), Waiting(AB, 1_000, partial(came.append, "late")), 10_001)
    pacing.take(Way(A, B), Waiting(AB, 1_000, partial(came.append, "late")), 10_001)
    pacing.forget(B)
    assert not len(pacing) and not pacing.waiting_bytes(B)


def test_letters_that_wait_are_bounded_however_small_they_are() -> None:
    """And what one more costs does not grow with how many there are."""
    network, left, right = pair(SEND, RECEIVE, bytes_per_second=LEAST_PACE, waiting_bytes=1 << 24)
    meeting, to = network.meeting, right.links.identity.address
    assert left.visit is not None
    meeting.carry(left.visit, Carry(to, "", bytes(10 * LEAST_PACE)))
    began_s = time.process_time()
    for _ in range(1 << 16):
        meeting.carry(left.visit, Carry(to, "", b""))
    assert time.process_time() - began_s < 10, "quadratic: half a minute and more"
    assert meeting.counts.bounced["too_slow"] > 0 and len(meeting.pacing) < 1 << 16


@pytest.mark.parametrize("where", ["link", "all"])
def test_a_meeting_point_paces_what_it_carries(where: str) -> None:
    limit = 100_000
    network, left, right = pair(SEND, RECEIVE, **({"bytes_per_second": limit} if where == "all" else {}))
    if where == "link":
        network.allowed = tuple(MetLink(link.hubs, link.topics, bytes_per_second=limit) for link in network.allowed)
        network.meeting.configure(network.met, network.allowed)
    sessions = left.links.describe_link("link")["sessions"]
    for number in range(40):
        left.rig.publish("plant/a", b"%02d" % number + bytes(10_000))
    began_ms = network.wall_ms
    while len(right.rig.read("plant") if right.rig.kernel.topic("plant") else []) < 40:
        assert network.wall_ms < began_ms + 20_000
        network.settle(1)
    assert 2_500 <= network.wall_ms - began_ms <= 8_000
    assert [value[:2] for value in right.values("plant")] == [b"%02d" % number for number in range(40)]
    assert left.links.describe_link("link")["sessions"] == sessions, "nothing began anew"


def test_what_waits_for_a_connection_that_was_replaced_holds_nothing_up() -> None:
    """Its network went away without a word, and the hub has dialled again: nobody is there for the old letters."""
    network, left, right = pair(SEND, RECEIVE, bytes_per_second=LEAST_PACE)
    for number in range(60):
        left.rig.publish(f"plant/{number}", bytes(10_000))
    network.settle(2)
    assert len(network.meeting.pacing)
    assert left.visit is not None
    network.meeting.carry(left.visit, Carry(right.links.identity.address, "plant", bytes(40 * LEAST_PACE)))
    right.links.lost("it went away")
    network.dial(right)
    network.settle(40)
    assert left.state("link") == right.state("link") == "open"


@pytest.mark.parametrize("limit", [{"bytes_per_second": 50_000}, {"messages_per_second": 10}])
def test_all_links_of_a_hub_share_its_limit(limit: dict[str, int]) -> None:
    rng = random.Random(3)
    hub = TestHub("hub", [LinkSettings(name, send=("plant/#",)) for name in ("one", "two")], rng, limit=limit)
    others = [TestHub(name, [LinkSettings(name, receive=("plant/#",))], rng) for name in ("one", "two")]
    network = Network(hub, *others, rng=rng)
    for other in others:
        network.join(hub, other, other.name)
    network.settle()
    for number in range(50):
        hub.rig.publish("plant/a", b"%02d" % number + bytes(5_000))
    network.settle(12)
    came = [len(other.values("plant")) if other.rig.kernel.topic("plant") else 0 for other in others]
    assert 0 < min(came) and sum(came) < 100, came
    network.settle(60)
    assert [len(other.values("plant")) for other in others] == [50, 50]


@pytest.mark.parametrize("rates", [
    Rates(1_000, 0), Rates(1_000, 100), Rates(1_000, 0, Rates(1_000, 0)), Rates(0, 100, Rates(1_000, 100))])
def test_what_several_limits_allow_passes_at_the_pace_of_one(rates: Rates) -> None:
    """A letter may take long: every limit has waited for it when it is over."""
    letters = 0
    for now_ms in range(1_000, 201_000, 200):
        if rates.allow(now_ms):
            rates.spend(20_000, 2_000)
            letters += 1
    assert letters in (10, 11)


def test_a_limit_that_no_letter_passes_in_time_is_refused() -> None:
    for low in (1, LEAST_PACE - 1):
        with pytest.raises(ValueError, match="wait"):
            MeetingSection("name", bytes_per_second=low)
        with pytest.raises(ValueError, match="wait"):
            MetLink(("a", "b"), bytes_per_second=low)
    MetLink(("a", "b"), bytes_per_second=LEAST_PACE)
