"""The journey of a message over a link: both hubs say what they know of it, under one trace id."""
from __future__ import annotations

import random

from gatehouse.gateways.admission.own_topics import ROUTES
from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.journeys.looking import LINK, READY, SETTLED, Journey
from gatehouse.kernel.journeys.origins import Came
from gatehouse.kernel.message import RELAY
from gatehouse.kernel.records.batch import encode_headers
from gatehouse.kernel.settings import JourneySettings
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


def came(hub: Rig, origin: str, first_ms: int = 0) -> int | None:
    answers: list[Came | None] = []
    hub.kernel.looking.came(origin.encode(), "/", first_ms, answers.append)
    hub.run()
    return answers[0].message_id if answers[0] is not None else None


def test_a_message_that_came_is_found_by_what_it_was_at_the_other_hub() -> None:
    network, left, right = linked(0.0)
    sent = [left.rig.publish(f"plant/{number % 7}", b"%d" % number)[0][2] for number in range(300)]
    network.settle()
    hub, mine = left.rig.kernel.hub.hex(), {record[3]: record[6] for record in right.rig.read("plant")}
    for number in (0, 150, 299):
        assert came(right.rig, f"{hub}/{sent[number]}") == mine[b"%d" % number]
    assert came(right.rig, f"{hub}/{sent[7]}", right.rig.world.loop.wall_ms() + 60_000) is None, "it came before that"
    assert came(right.rig, f"{hub}/{sent[-1] + 1}") is None
    assert came(left.rig, f"{hub}/{sent[0]}") is None, "here it came by a door"


def test_who_writes_the_header_of_a_link_himself_is_not_believed() -> None:
    network, left, right = linked(0.0)
    sent = left.rig.publish("plant/1", b"x")[0][2]
    origin = f"{left.rig.kernel.hub.hex()}/{sent}"
    forged = encode_headers([(b"relay-origin", origin.encode())])
    placed = [(right.rig.kernel.place("plant/1"), b"forged", forged, 0, 0)] * 3
    right.rig.kernel.append(placed, right.rig.witness, "m")
    right.rig.run()
    assert came(right.rig, origin) is None
    network.settle()
    found = came(right.rig, origin)
    assert found is not None and {record[6]: record[3] for record in right.rig.read("plant")}[found] == b"x"
