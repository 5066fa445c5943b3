"""The journey of a message over a link: both hubs say what they know of it, under one trace id."""
from __future__ import annotations

import random

from gatehouse.gateways.admission.own_topics import ROUTES
from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.journeys.looking import Journey
from gatehouse.kernel.journeys.settings import JourneySettings
from gatehouse.kernel.journeys.standing import LINK, READY, SETTLED
from gatehouse.kernel.message import RELAY
from gatehouse.relay.settings import LinkSettings
from gatehouse.tracing.context import HEADER
from gatehouse.tracing.events import Kind
from tests.kernel.rig import Rig
from tests.relay.network import Network, TestHub


def linked(left_rate: float) -> tuple[Network, TestHub, TestHub]:
    rng = random.Random(1)
    left, right = [
        TestHub(name, [LinkSettings("link", **filters)], rng, routes=Routes((), ROUTES),
                journeys=JourneySettings(rate=rate))
        for name, filters, rate in (("left", {"send": ("plant/#",)}, left_rate),
                                    ("right", {"receive": ("plant/#",), "send": ("plant/#",)}, 0.0))]
    network = Network(left, right, rng=rng)
    network.join(left, right, "link")
    network.settle()
    return network, left, right


def journey_of(hub: Rig, message_id: int) -> Journey:
    answers: list[Journey] = []
    hub.kernel.looking.journey(message_id, "/", lambda journey, error: answers.append(journey))
    hub.run()
    return answers[0]


def test_a_message_shows_at_one_hub_that_it_left_and_at_the_other_whence_it_came() -> None:
    network, left, right = linked(0.0)
    away = left.rig.publish("plant/1", b"x")[0][2]
    other = left.rig.publish("home/1", b"x")[0][2]
    assert [(each.group, each.kind, each.state) for each in journey_of(left.rig, away).standings] == [
        ("link", LINK, READY)], "it has not come there yet"
    network.settle()
    assert [(each.group, each.state) for each in journey_of(left.rig, away).standings] == [("link", SETTLED)]
    assert journey_of(left.rig, other).standings == [], "no link takes it"
    here = right.rig.read("plant")[0]
    came = journey_of(right.rig, here[6])
    assert came.publisher is not None and came.record is not None
    assert (came.publisher.door, came.publisher.client, came.publisher.peer) == (
        RELAY, "link", left.rig.kernel.hub.hex())
    assert dict(came.record[4])[b"relay-origin"] == f"{left.rig.kernel.hub.hex()}/{away}".encode()
    assert came.standings == [], "it does not go back to the hub where it came from"


def test_a_message_that_is_followed_here_is_followed_there_under_the_same_trace() -> None:
    network, left, right = linked(1.0)
    away = left.rig.publish("plant/1", b"x")[0][2]
    network.settle()
    here = right.rig.read("plant")[0]
    assert HEADER in dict(here[4])
    stored = [next(event for event in journey_of(rig, message_id).events if event.kind == Kind.STORED)
              for rig, message_id in ((left.rig, away), (right.rig, here[6]))]
    assert stored[0].trace_id == stored[1].trace_id and any(stored[0].trace_id)
    assert (stored[1].door, stored[1].client) == (RELAY, "link")
