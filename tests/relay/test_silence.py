"""Who owes the next word and does not say it is not waited for for ever: a meeting point, a proxy, the other hub."""
from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from gatehouse.kernel.circuit_breaker import CircuitBreaker, CircuitSettings
from gatehouse.relay import dialing, frames
from gatehouse.relay.dialing import Dialler
from gatehouse.relay.hub_links import ONLINE
from gatehouse.relay.sealing import SEALED, SEALED_AES
from tests.relay.network import TestHub, carried
from tests.relay.test_messages import RECEIVE, SEND, pair


@pytest.mark.parametrize("silent", ["meeting point", "proxy"])
def test_who_takes_a_connection_and_does_not_answer_is_dialled_again(silent: str, monkeypatch: pytest.MonkeyPatch
                                                                    ) -> None:
    monkeypatch.setattr(dialing, "CONNECT_S", 0.1)
    monkeypatch.setattr(dialing, "FIRST_WAIT_S", 0.01)
    faults: list[Exception] = []

    async def run() -> None:
        came, again = [], asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            came.append(await reader.readline())
            if len(came) == 2:
                again.set()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        hub = TestHub("left", [], random.Random(1))
        section = replace(hub.section, url=f"ws://{address}/v1/relay") if silent == "meeting point" \
            else replace(hub.section, proxy=f"http://{address}")
        dialler = Dialler(hub.links, section, faults.append, CircuitBreaker(CircuitSettings()), lambda: 0)
        dialler.start()
        async with asyncio.timeout(60):
            await again.wait()
        await dialler.stop()
        server.close()
        assert came[0].startswith(b"GET" if silent == "meeting point" else b"CONNECT")

    asyncio.run(run())
    assert not faults


def test_a_meeting_point_that_neither_lets_a_hub_in_nor_refuses_it_is_dialled_again() -> None:
    network, left, right = pair(SEND, RECEIVE)
    network.change = lambda hub, frame, up: [] if hub is left and not up else [frame]
    network.cut(left)
    network.settle(4)
    assert left.links.state != ONLINE
    network.change = lambda hub, frame, up: [frame]
    left.rig.publish("plant/a", b"1")
    for _ in range(30):
        network.tick(1_000)
        network.turn()
    network.settle(8)
    assert right.values("plant") == [b"1"]


@pytest.mark.parametrize("side", [0, 1])
def test_a_hub_that_has_greeted_and_does_not_say_how_far_it_is_is_greeted_again(side: int) -> None:
    network, left, right = pair(*((SEND, RECEIVE) if side == 0 else (RECEIVE, SEND)))
    sender, reader = (left, right) if side == 0 else (right, left)

    def drop(hub: TestHub, frame: bytes, up: bool) -> list[bytes]:
        sealed = carried(frame) and frames.decode(frame).payload[0] in (SEALED, SEALED_AES)
        return [] if sealed and up and hub is reader else [frame]

    network.change = drop
    network.cut(sender)
    network.settle(12)
    assert sender.state("link") == "open"
    sender.rig.publish("plant/a", b"1")
    network.change = lambda hub, frame, up: [frame]
    for _ in range(35):
        network.tick(1_000)
        network.turn()
    network.settle(8)
    assert reader.values("plant") == [b"1"]
    assert ("link", "faulted") in [event[:2] for event in sender.events]
