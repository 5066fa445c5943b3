"""Who owes the next word and does not say it is not waited for for ever: a meeting point, a proxy, the other hub."""
from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import replace
from pathlib import Path

import pytest

from gatehouse.kernel.circuit_breaker import CircuitBreaker, CircuitSettings
from gatehouse.relay import dialing, frames
from gatehouse.relay.dialing import Dialler
from gatehouse.relay.hub_links import ONLINE
from gatehouse.relay.sealing import SEALED, SEALED_AES
from tests.certificates import Authority
from tests.relay.network import TestHub, carried
from tests.relay.test_messages import RECEIVE, SEND, pair
from tests.running_hub import free_port


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


def test_a_file_of_authorities_that_is_none_is_said_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                   ) -> None:
    monkeypatch.setattr(dialing, "FIRST_WAIT_S", 0.01)
    hub = TestHub("left", [], random.Random(1))
    file = tmp_path / "relay.pem"
    file.write_text("no certificate")
    section = replace(hub.section, url=f"wss://127.0.0.1:{free_port()}/v1/relay", ca=str(file))
    dialler = Dialler(hub.links, section, pytest.fail, CircuitBreaker(CircuitSettings()), lambda: 0)

    async def run() -> None:
        said: asyncio.Queue[str] = asyncio.Queue()
        heard = logging.Handler()
        monkeypatch.setattr(heard, "emit", lambda record: said.put_nowait(record.getMessage()))
        dialing.log.addHandler(heard)
        dialler.start()
        try:
            async with asyncio.timeout(60):
                while "NO_CERTIFICATE" not in await said.get():
                    pass
                assert "NO_CERTIFICATE" in hub.links.fault
                file.write_bytes(Authority(tmp_path).file.read_bytes())
                while "Cannot connect" not in await said.get():
                    pass
        finally:
            dialing.log.removeHandler(heard)
            await dialler.stop()

    asyncio.run(run())


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
