"""A link that only fails has an open circuit; people open and close it, too."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from gatehouse.kernel.circuit_breaker import CircuitBreaker, CircuitState
from gatehouse.relay import frames
from gatehouse.relay.link import BREAK
from tests.relay.network import Network, TestHub, carried
from tests.relay.test_messages import RECEIVE, SEND, pair


class Shown:
    def __init__(self) -> None:
        self.known: dict[str, tuple[CircuitBreaker, Callable[[], None]]] = {}

    def keep(self, link: str, circuit: CircuitBreaker, on_turned: Callable[[], None]) -> None:
        self.known[link] = circuit, on_turned

    def forget(self, link: str) -> None:
        del self.known[link]


def circuit(hub: TestHub) -> CircuitBreaker:
    return hub.links.links["link"].circuit


def wait(network: Network, minutes: int) -> None:
    for _ in range(minutes * 6):
        network.tick(10_000)
        for _ in range(20):
            network.turn()


@pytest.mark.parametrize("side", [0, 1])
def test_a_link_whose_other_hub_never_answers_opens_its_circuit_and_comes_back(side: int) -> None:
    network, left, right = pair(SEND, RECEIVE)
    deaf = (left, right)[side]
    network.change = lambda hub, frame, up: [] if hub is deaf and not up and carried(frame) else [frame]
    network.cut(deaf)
    left.rig.publish("plant/a", b"1")
    wait(network, 12)
    opened = [hub for hub in (left, right) if circuit(hub).state is not CircuitState.CLOSED]
    assert opened and all(circuit(hub).opened and circuit(hub).reason for hub in opened)
    network.change = lambda hub, frame, up: [frame]
    wait(network, 12)
    assert (left.state("link"), right.state("link")) == ("open", "open")
    assert right.values("plant") == [b"1"]
    assert circuit(left).state is circuit(right).state is CircuitState.CLOSED


@pytest.mark.parametrize("side", [0, 1])
def test_people_open_and_close_it(side: int) -> None:
    network, left, right = pair(SEND, RECEIVE)
    hub, shown = (left, right)[side], Shown()
    hub.links.keep_circuits(shown)
    breaker, on_turned = shown.known["link"]
    breaker.open()
    on_turned()
    left.rig.publish("plant/a", b"1")
    wait(network, 3)
    assert hub.state("link") != "open" and right.rig.kernel.topic("plant") is None
    breaker.close()
    on_turned()
    wait(network, 3)
    assert (left.state("link"), right.state("link")) == ("open", "open")
    assert right.values("plant") == [b"1"]
    hub.links.unlink("link")
    hub.rig.run()
    assert not shown.known


def test_a_link_that_stopped_at_its_probe_goes_on_when_it_is_resumed() -> None:
    network, left, right = pair(SEND, RECEIVE)
    link, now_ms = left.links.links["link"], left.rig.world.loop.now_ms()
    for _ in range(8):
        link.circuit.note(False, now_ms, reason="a test")
    assert link.circuit.may_pass(now_ms + 60_000) and link.circuit.state is CircuitState.HALF_OPEN
    link.stop("a test")
    for hub in (left, right):
        hub.links.resume("link")
    network.settle(12)
    left.rig.publish("plant/a", b"1")
    network.settle(4)
    assert right.values("plant") == [b"1"]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("minutes", [1, 12])
def test_a_link_that_is_resumed_does_not_wait_for_the_other_hub_to_try_again(side: int, minutes: int) -> None:
    """The other hub greeted in vain while the link was paused here, and rests for up to ten minutes by now."""
    network, left, right = pair(SEND, RECEIVE)
    hub, other = (left, right) if side == 0 else (right, left)
    hub.links.pause("link")
    network.cut(other)
    left.rig.publish("plant/a", b"1")
    wait(network, minutes)
    assert other.state("link") != "open"
    hub.links.resume("link")
    network.settle(8)
    assert (left.state("link"), right.state("link")) == ("open", "open")
    assert right.values("plant") == [b"1"]


@pytest.mark.parametrize("side", [0, 1])
def test_a_hub_that_only_receives_greets_soon_however_often_the_other_one_was_paused(side: int) -> None:
    network, left, right = pair(*((SEND, RECEIVE) if side == 0 else (RECEIVE, SEND)))
    sender, reader = (left, right) if side == 0 else (right, left)
    for number in range(12):
        sender.links.pause("link")
        network.settle(1)
        sender.rig.publish("plant/a", b"%d" % number)
        sender.links.resume("link")
        network.settle(8)
        assert len(reader.values("plant")) == number + 1, reader.links.describe_link("link")


@pytest.mark.parametrize("side", [0, 1])
def test_a_meeting_point_that_asks_for_greetings_gets_few(side: int) -> None:
    network, left, right = pair(SEND, RECEIVE)
    hub, other = (left, right) if side == 0 else (right, left)
    asks, greetings = frames.encode(frames.Carry(other.links.identity.address, "", bytes((BREAK,)))), []

    def change(whose: TestHub, frame: bytes, up: bool) -> list[bytes]:
        if carried(frame) and up and whose is hub:
            greetings.append(frame)
        return [] if carried(frame) else [frame]

    network.change = change
    network.cut(other)
    network.settle(2)
    greetings.clear()
    for _ in range(400):
        hub.links.handle_frame(asks)
        network.turn()
        network.tick(25)
    assert len(greetings) <= 20
