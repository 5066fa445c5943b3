"""The meeting point's listener: who has not proved himself takes little, and anybody may ask how it is."""
from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from gatehouse.gateways.circuits import RELAY
from gatehouse.relay.serving import PATH, UNPROVED_OF_ADDRESS, RelayServer
from gatehouse.relay.settings import MeetingSection
from tests.relay.processes import RunningRelay, ask, hub_config, key_of, wait_for
from tests.running_hub import RunningHub, free_port


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


def test_a_hub_that_the_file_names_later_is_soon_let_in(tmp_path: Path) -> None:
    """It was refused for a while: it dials again within seconds, and its circuit stays closed."""
    port = free_port()
    hub = RunningHub(tmp_path, hub_config(f"ws://127.0.0.1:{port}/v1/relay", '[[relay.links]]\nname = "link"\n'))
    relay = RunningRelay(tmp_path, port, {"other": "00" * 32}, [])
    try:
        hub.wait_ready()
        wait_for(lambda: "does not know this hub" in ask(hub, "GET", "/v1/relay")["fault"],
                 lambda: ask(hub, "GET", "/v1/relay"))
        relay.write({"hub": key_of(hub)}, [])
        relay.reload()
        wait_for(lambda: ask(hub, "GET", "/v1/relay")["state"] == "online", lambda: ask(hub, "GET", "/v1/relay"))
        circuit, = [one for one in ask(hub, "GET", "/v1/circuits")["circuits"] if one["id"] == RELAY]
        assert circuit["circuit"] == "closed" and not circuit["opened"]
    finally:
        hub.kill()
        relay.kill()
