"""The meeting point's listener: who has not proved himself takes little, and anybody may ask how it is."""
from __future__ import annotations

import asyncio

import aiohttp

from gatehouse.relay.serving import PATH, UNPROVED_OF_ADDRESS, RelayServer
from gatehouse.relay.settings import MeetingSection


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
