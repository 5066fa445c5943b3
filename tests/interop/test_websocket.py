"""The WebSocket against a running hub: groups over it, and what a client that comes again has missed."""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.running_hub import RunningHub, config_of, free_port, running_hub

Ask = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with running_hub(tmp_path_factory.mktemp("websocket"), "http") as running:
        yield running


class Socket:
    """One client. Answers are told from what subscriptions send by their `id`."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1/ws"
        self.received: list[dict[str, Any]] = []

    async def __aenter__(self) -> Socket:
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(self.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, **frame: Any) -> dict[str, Any]:
        """Send a frame, give its answer; what comes meanwhile is in `received`."""
        await self._socket.send_str(orjson.dumps({"id": 1, **frame}).decode())
        while True:
            answer = await self.next()
            if "id" in answer:
                return answer
            self.received.append(answer)

    async def tell(self, **frame: Any) -> None:
        await self._socket.send_str(orjson.dumps(frame).decode())

    async def next(self) -> dict[str, Any]:
        return orjson.loads(await self._socket.receive_str(timeout=60))


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 120))


def test_pop_and_settle(hub):
    async def test():
        async with Socket(hub.port("http")) as socket:
            await socket.ask(type="publish", messages=[{"address": f"jobs/{number}", "value": str(number)}
                                                       for number in range(4)])
            popped: list[dict[str, Any]] = []
            while len(popped) < 4:
                answer = await socket.ask(type="pop", group="w", topic="jobs", max=4, invisible=200, wait=20)
                popped += answer["messages"]
            handles = [message["receipt_handle"] for message in popped]
            assert sorted(message["value"] for message in popped) == ["0", "1", "2", "3"]
            assert (await socket.ask(type="ack", group="w", receipt_handles=handles[:2]))["type"] == "acked"
            extended = await socket.ask(type="extend", group="w", receipt_handles=handles[2:], invisible=250)
            assert [one["status"] for one in extended["results"]] == [200, 200]
            await socket.ask(type="release", group="w", receipt_handles=handles[2:], delay=0)
            again = await socket.ask(type="pop", group="w", topic="jobs", wait=20, max=4)
            assert again["messages"]
            assert [message["attempt"] for message in again["messages"]] == [2] * len(again["messages"])
            refused = await socket.ask(type="ack", group="w", receipt_handles=[handles[0], "made up"])
            assert [one["code"] for one in refused["results"]] == ["receipt_expired", "unknown_receipt"]
            wrong = await socket.ask(type="pop", group="w", topic="jobs", max="many")
            assert wrong["problem"]["code"] == "invalid_parameter"
    run(test)


def test_a_pop_that_hangs_up_takes_nothing(hub):
    async def test():
        async with Socket(hub.port("http")) as socket:
            await socket.ask(type="publish", messages=[{"address": "calls/1", "value": "1"}])
            popped = await socket.ask(type="pop", group="c", topic="calls", wait=20)
            await socket.ask(type="ack", group="c", receipt_handles=[popped["messages"][0]["receipt_handle"]])
            await socket.tell(type="pop", group="c", topic="calls", wait=20)
        async with Socket(hub.port("http")) as socket:
            await socket.ask(type="publish", messages=[{"address": "calls/2", "value": "2"}])
            popped = await socket.ask(type="pop", group="c", topic="calls", wait=20)
            assert [(message["value"], message["attempt"]) for message in popped["messages"]] == [("2", 1)]
    run(test)


def test_a_filter_over_topics_present_and_future(hub):
    async def test():
        async with Socket(hub.port("http")) as socket:
            await socket.ask(type="publish", messages=[{"address": "hall1/temp", "value": "before"}])
            await socket.ask(type="subscribe", subscription="t", filter="+/temp")
            await socket.ask(type="publish", messages=[
                {"address": "hall1/temp", "value": "1"}, {"address": "hall1/hum", "value": "no"},
                {"address": "hall2/temp", "value": "2"}])
            values = [message["value"] for frame in socket.received for message in frame["messages"]]
            while len(values) < 2:
                values += [message["value"] for message in (await socket.next())["messages"]]
            assert sorted(values) == ["1", "2"]
    run(test)


def hub_on(folder: Path, port: int) -> RunningHub:
    running = RunningHub(folder, config_of(("http",), "").replace('"127.0.0.1:0"', f'"127.0.0.1:{port}"'))
    running.wait_ready()
    return running


def test_a_client_that_comes_again_after_a_crash_has_missed_nothing(tmp_path):
    port, seen = free_port(), []

    async def read_and_publish(first: int, cursor: str | None) -> str:
        """Publish 100 and read part of it, with little credit; the place behind what was read."""
        async with Socket(port) as socket:
            more = {"cursor": cursor} if cursor else {"from": "earliest"}
            await socket.ask(type="subscribe", subscription="s", topic="plant", credit=70, **more)
            for start in range(first, first + 100, 10):
                await socket.ask(type="publish", messages=[
                    {"address": f"plant/{number % 5}", "value": str(number)} for number in range(start, start + 10)])
            frames, got = list(socket.received), 0
            while True:
                for frame in frames:
                    got += len(frame["messages"])
                    seen.extend(message["value"] for message in frame["messages"])
                    cursor = frame["cursor"]
                if got == 70:
                    return str(cursor)
                frames = [await socket.next()]

    async def read_rest(cursor: str) -> None:
        async with Socket(port) as socket:
            await socket.ask(type="subscribe", subscription="s", topic="plant", cursor=cursor)
            frames = list(socket.received)
            while True:
                for frame in frames:
                    seen.extend(message["value"] for message in frame["messages"])
                if len(seen) >= 300:
                    return
                frames = [await socket.next()]

    cursor = None
    for number in range(3):
        hub = hub_on(tmp_path, port)
        try:
            cursor = asyncio.run(read_and_publish(number * 100, cursor))
        finally:
            hub.kill()
    hub = hub_on(tmp_path, port)
    try:
        asyncio.run(read_rest(str(cursor)))
    finally:
        hub.kill()
    assert sorted(seen, key=int) == [str(number) for number in range(300)]
