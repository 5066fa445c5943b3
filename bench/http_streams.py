"""The HTTP door by the second: posts by wrk, streams to a thousand readers, the WebSocket.

    python -m bench.http_streams [--readers 1000] [--seconds 5]

Posts: wrk, 64 connections, one message of 100 bytes a request, or JSON lists of 100; each answered after `fdatasync`.
Fan-out: every reader has a connection of its own; a message says when it was sent, every 50th reader says when it came.
WebSocket: one connection publishes with 1,000 frames in flight, one subscribes. The load is one process.
"""
from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
import uvloop

from bench.load_pair import login
from bench.servers import Server, start_hub, work_folder

SAMPLED: Final = 50
WINDOW: Final = 1_000
VALUE: Final = re.compile(rb'"value":"(\d+)')
MESSAGE: Final = "x" * 100
WRK: Final = """\
wrk.method = "POST"
wrk.headers["Content-Type"] = "{kind}"
{login}wrk.body = '{body}'
"""


class Reader(asyncio.Protocol):
    """Counts what comes, and where it is asked to takes the times out of it."""

    def __init__(self, request: bytes, latencies: list[float] | None, on_data: Callable[[Reader, bytes], None] | None
                 ) -> None:
        self.count = 0
        self.transport: Any = None
        self._request = request
        self._latencies = latencies
        self._on_data = on_data

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.count += data.count(b'"value":"')
        if self._latencies is not None:
            now = time.time_ns()
            self._latencies += [(now - int(sent)) / 1e6 for sent in VALUE.findall(data)]
        if self._on_data is not None:
            self._on_data(self, data)


def get(path: str) -> bytes:
    """A request with the login that the load is given."""
    shown = login()
    authorization = f"Authorization: Basic {b64encode(':'.join(shown).encode()).decode()}\r\n" if shown else ""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}\r\n".encode()


async def publish(session: aiohttp.ClientSession, count: int) -> None:
    """Messages that say when they were sent, stored together."""
    body = orjson.dumps({"messages": [{"key": str(number), "value": f"{time.time_ns()}"} for number in range(count)]})
    async with session.post("/v1/topics/fan/messages", data=body, headers={"Content-Type": "application/json"}) as done:
        assert done.status == 201, await done.text()


async def until(condition: Callable[[], bool]) -> None:
    """Until it is so, for 20 s at most: what has not come by then is shown as missing."""
    for _ in range(1_000):
        if condition():
            return
        await asyncio.sleep(0.02)


def _enough(latencies: list[float], count: int) -> bool:
    return len(latencies) >= count


async def fan_out(server: Server, readers: int, rate: int, batch: int, seconds: float) -> str:
    """One row: events a second, milliseconds from publish to event, processor time of the hub."""
    loop, port = asyncio.get_running_loop(), server.ports["http"]
    latencies: list[float] = []
    followers: list[Reader] = []
    for number in range(readers):
        sampled = latencies if number % SAMPLED == 0 else None
        _, reader = await loop.create_connection(
            partial(Reader, get("/v1/topics/fan/events"), sampled, None), "127.0.0.1", port)
        followers.append(reader)
    await asyncio.sleep(1.0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", auth=_auth()) as session:
        before, began, sent = server.cpu(), time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            await publish(session, batch)
            sent += batch
            await asyncio.sleep(max(0.0, began + sent / rate - time.perf_counter()))
        took = time.perf_counter() - began
        await until(lambda: sum(one.count for one in followers) >= sent * readers)
    used = server.cpu().since(before)
    arrived = sum(one.count for one in followers)
    for one in followers:
        one.transport.close()
    latencies.sort()
    return (f"| SSE, {readers:,} readers, {sent / took:,.0f} msg/s in batches of {batch} | {arrived / took:,.0f} | "
            f"{_at(latencies, 0.5)} | {_at(latencies, 0.99)} | "
            f"{1e6 * (used.user_s + used.system_s) / max(1, arrived):.1f} | {arrived / (sent * readers):.0%} |")


async def long_poll(server: Server, readers: int, rounds: int) -> str:
    """The same for readers that ask again and again."""
    loop, port = asyncio.get_running_loop(), server.ports["http"]
    latencies: list[float] = []
    cursor = re.compile(rb'"cursor":"([^"]+)"')

    def ask_again(reader: Reader, data: bytes) -> None:
        found = cursor.search(data)
        if found is not None:
            reader.transport.write(get(f"/v1/topics/fan/messages?cursor={found[1].decode()}&wait=30"))

    followers = []
    for _ in range(readers):
        _, reader = await loop.create_connection(
            partial(Reader, get("/v1/topics/fan/messages?from=latest&wait=30"), latencies, ask_again), "127.0.0.1",
            port)
        followers.append(reader)
    await asyncio.sleep(2.0)
    before = server.cpu()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", auth=_auth()) as session:
        for number in range(rounds):
            await publish(session, 1)
            await until(partial(_enough, latencies, (number + 1) * readers))
            await asyncio.sleep(0.3)
    used = server.cpu().since(before)
    for one in followers:
        one.transport.close()
    latencies.sort()
    return (f"| long poll, {readers:,} readers, {rounds} messages one by one | | {_at(latencies, 0.5)} | "
            f"{_at(latencies, 0.99)} | {1e6 * (used.user_s + used.system_s) / max(1, len(latencies)):.1f} | "
            f"{len(latencies) / (rounds * readers):.0%} |")


async def web_socket(server: Server, batch: int, seconds: float) -> str:
    """One connection publishes, one subscribes."""
    url = f"http://127.0.0.1:{server.ports['http']}/v1/ws"
    async with aiohttp.ClientSession(auth=_auth()) as session, session.ws_connect(url) as sink, \
            session.ws_connect(url) as source:
        await sink.send_str('{"type":"subscribe","id":1,"subscription":"s","topic":"ws","credit":1000000}')
        await sink.receive()
        counts = {"delivered": 0}

        async def drain() -> None:
            async for message in sink:
                counts["delivered"] += message.data.count('"value":"')

        draining = asyncio.create_task(drain())
        frame = orjson.dumps({"type": "publish", "id": 1, "messages": [
            {"address": f"ws/{number}", "value": MESSAGE} for number in range(batch)]}).decode()
        window = max(4, WINDOW // batch)
        before, began, sent, answered = server.cpu(), time.perf_counter(), 0, 0
        for _ in range(window):
            await source.send_str(frame)
            sent += 1
        while answered < sent:
            await source.receive()
            answered += 1
            if time.perf_counter() - began < seconds:
                await source.send_str(frame)
                sent += 1
        took, used = time.perf_counter() - began, server.cpu().since(before)
        await asyncio.sleep(1.0)
        draining.cancel()
    stored = answered * batch
    return (f"| WebSocket, {batch} a frame | {answered / took:,.0f} | {stored / took:,.0f} | "
            f"{1e6 * (used.user_s + used.system_s) / stored:.1f} | {counts['delivered'] / stored:.0%} |")


def wrk(server: Server, folder: Path, batch: int, seconds: float) -> str:
    """Posts, one or a list a request."""
    shown = login()
    script = folder / "post.lua"
    body = MESSAGE if batch == 1 else orjson.dumps({"messages": [{"value": MESSAGE}] * batch}).decode()
    basic = b64encode(":".join(shown).encode()).decode() if shown else ""
    script.write_text(WRK.format(
        kind="text/plain" if batch == 1 else "application/json", body=body,
        login=f'wrk.headers["Authorization"] = "Basic {basic}"\n' if shown else ""))
    path = "/v1/publish/posts/a" if batch == 1 else "/v1/topics/posts/messages"
    before = server.cpu()
    command = ["wrk", "-t1", "-c64", f"-d{seconds:.0f}", "--latency", "-s", str(script),
               f"http://127.0.0.1:{server.ports['http']}{path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + 30)
    used = server.cpu().since(before)
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)[1])       # type: ignore[index]
    p50, p99 = (re.search(rf"{percent}%\s+(\S+)", done.stdout)[1] for percent in (50, 99))      # type: ignore[index]
    refused = " **refused**" if "Non-2xx" in done.stdout else ""
    return (f"| POST, {batch} a request | {rate:,.0f} | {rate * batch:,.0f} | {p50} | {p99} | "
            f"{1e6 * (used.user_s + used.system_s) / (rate * seconds * batch):.1f} |{refused}")


def _auth() -> aiohttp.BasicAuth | None:
    shown = login()
    return aiohttp.BasicAuth(*shown) if shown else None


def _at(sorted_ms: list[float], share: float) -> str:
    return f"{sorted_ms[int(len(sorted_ms) * share)]:.1f}" if sorted_ms else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    with work_folder() as folder:
        server = start_hub(folder / "hub", doors=("http",))
        try:
            if shutil.which("wrk") is None:
                print("wrk is not installed: on Debian, apt-get install wrk")
            else:
                print("| posts | requests/s | msg/s | p50 | p99 | hub µs a message |")
                print("|---|---:|---:|---:|---:|---:|")
                for batch in (1, 100):
                    print(wrk(server, folder, batch, options.seconds), flush=True)
            print("\n| WebSocket | frames/s | msg/s | hub µs a message | delivered |")
            print("|---|---:|---:|---:|---:|")
            for batch in (1, 100):
                print(uvloop.run(web_socket(server, batch, options.seconds)), flush=True)
            print("\n| fan-out | events/s | p50 ms | p99 ms | hub µs an event | arrived |")
            print("|---|---:|---:|---:|---:|---:|")
            for rate, batch in ((20, 1), (100, 10)):
                print(uvloop.run(fan_out(server, options.readers, rate, batch, options.seconds)), flush=True)
            print(uvloop.run(long_poll(server, options.readers, 10)), flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
