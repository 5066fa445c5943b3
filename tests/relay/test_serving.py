"""The meeting point's listener: who has not proved himself takes little, and anybody may ask how it is."""
from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import aiohttp
import pytest

from gatehouse.gateways.circuits import RELAY
from gatehouse.relay import frames, serving
from gatehouse.relay.frames import Challenge, Hello, Proof, Refused, Welcome
from gatehouse.relay.sealing import Identity
from gatehouse.relay.serving import PATH, UNPROVED_OF_ADDRESS, RelayServer
from gatehouse.relay.settings import MeetingSection, MetHub
from tests.relay.processes import RunningRelay, ask, hub_config, key_of
from tests.running_hub import RunningHub, free_port
from tests.waiting import until


def test_connections_that_prove_nothing_are_few() -> None:
    async def run() -> None:
        server = RelayServer(MeetingSection("127.0.0.1", listen="127.0.0.1:0"), (), ())
        address = await server.start()
        async with aiohttp.ClientSession() as client:
            sockets = [await client.ws_connect(f"http://{address}{PATH}") for _ in range(UNPROVED_OF_ADDRESS)]
            try:
                await client.ws_connect(f"http://{address}{PATH}")
                raise AssertionError("one more was let in")
            except aiohttp.WSServerHandshakeError as error:
                assert error.status == 503
            await sockets[0].send_bytes(b"garbage")
            message = await sockets[0].receive()
            assert b"bad_frame" in message.data
            await sockets[0].receive()
            for _ in range(100):
                try:
                    sockets[0] = await client.ws_connect(f"http://{address}{PATH}")
                    break
                except aiohttp.WSServerHandshakeError:
                    await asyncio.sleep(0.05)
            assert not sockets[0].closed
            async with client.get(f"http://{address}/healthz") as answer:
                assert answer.status == 200
            async with client.get(f"http://{address}/metrics") as answer:
                assert 'gatehouse_relay_refused_total{reason="bad_frame"} 1' in await answer.text()
            for socket in sockets:
                await socket.close()
        await server.stop()

    asyncio.run(run())


def test_a_hub_that_is_silent_is_asked_and_then_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "TICK_S", 0.02)
    monkeypatch.setattr(serving, "PING_S", 0.1)
    monkeypatch.setattr(serving, "SILENT_S", 2.0)

    async def run() -> None:
        server = RelayServer(MeetingSection("127.0.0.1", listen="127.0.0.1:0"), (), ())
        address = await server.start()
        async with aiohttp.ClientSession() as client:
            answering = await client.ws_connect(f"http://{address}{PATH}")
            answers = asyncio.ensure_future(answering.receive())               # pings are answered meanwhile
            silent = await client.ws_connect(f"http://{address}{PATH}", autoping=False)
            assert (await silent.receive()).type is aiohttp.WSMsgType.PING
            while (await silent.receive()).type is aiohttp.WSMsgType.PING:
                pass
            assert silent.closed
            await answering.ping(b"and it is asked back")
            assert not answering.closed and not answers.done()
            answers.cancel()
        await server.stop()

    asyncio.run(run())


@pytest.mark.parametrize("proved", [False, True])
def test_a_frame_that_is_too_large_ends_in_one_line(proved: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Whether the hub has proved who it is or not; and so does a text."""
    hub = Identity(b"a hub's secret" * 3)

    async def greet(socket: aiohttp.ClientWebSocketResponse) -> None:
        await socket.send_bytes(frames.encode(Hello(frames.MAJOR, frames.MINOR, hub.public, b"n" * 32, "hub")))
        challenge = frames.decode(await socket.receive_bytes())
        assert isinstance(challenge, Challenge)
        await socket.send_bytes(frames.encode(Proof(hub.sign(
            frames.what_is_proved(b"n" * 32, challenge.nonce, challenge.name, hub.public)))))
        assert isinstance(frames.decode(await socket.receive_bytes()), Welcome)

    async def run() -> None:
        server = RelayServer(MeetingSection("127.0.0.1", listen="127.0.0.1:0", max_frame_bytes=1 << 16),
                             (MetHub("hub", (hub.public.hex(),)),), ())
        address = await server.start()
        async with aiohttp.ClientSession() as client:
            for sent in (bytes((frames.CARRY,)) + bytes(1 << 17), "a text"):
                caplog.clear()
                socket = await client.ws_connect(f"http://{address}{PATH}")
                if proved:
                    await greet(socket)
                await (socket.send_str(sent) if isinstance(sent, str) else socket.send_bytes(sent))
                async for message in socket:
                    assert message.type is aiohttp.WSMsgType.BINARY
                    assert isinstance(frames.decode(message.data), Refused)
                said = [record.getMessage() for record in caplog.records if "let go" in record.getMessage()]
                assert len(said) == 1 and "bad_frame" in said[0] and "\n" not in said[0], said
        assert server.meeting.counts.carried == 0 and server.meeting.counts.refused == {"bad_frame": 2}
        await server.stop()

    caplog.set_level(logging.INFO, "gatehouse.relay")
    asyncio.run(run())
    assert not [record for record in caplog.records if record.exc_info]


def test_a_hub_that_the_file_names_later_is_soon_let_in(tmp_path: Path) -> None:
    """It was refused for a while: it dials again within seconds, and its circuit stays closed."""
    port = free_port()
    hub = RunningHub(tmp_path, hub_config(f"ws://127.0.0.1:{port}/v1/relay", '[[relay.links]]\nname = "link"\n'))
    relay = RunningRelay(tmp_path, port, {"other": "00" * 32}, [])
    try:
        hub.wait_ready()
        until(lambda: "does not know this hub" in ask(hub, "GET", "/v1/relay")["fault"],
                 lambda: ask(hub, "GET", "/v1/relay"))
        relay.write({"hub": key_of(hub)}, [])
        relay.reload()
        until(lambda: ask(hub, "GET", "/v1/relay")["state"] == "online", lambda: ask(hub, "GET", "/v1/relay"))
        circuit, = [one for one in ask(hub, "GET", "/v1/circuits")["circuits"] if one["id"] == RELAY]
        assert circuit["circuit"] == "closed" and not circuit["opened"]
    finally:
        hub.kill()
        relay.kill()
