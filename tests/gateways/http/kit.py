"""Runs a real HTTP door over the fake kernel for one test: `run_door(test)` where test is a coroutine function of a
`Client`."""
from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

import aiohttp
import orjson
from yarl import URL

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.audit import Author, By
from gatehouse.gateways.connections.listener import Listener
from gatehouse.gateways.contract import Listen, Services
from gatehouse.gateways.http import GATEWAY, open_door
from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.dispatch import Dispatcher
from gatehouse.gateways.http.door import Door
from tests.gateways.http.conformity import check_answer
from tests.gateways.http.fake_kernel import NOW_MS, FakeKernel

TEST_TIMEOUT_S = 120.0         # for what never comes: a machine may stand still for seconds


class Client:
    """A door that is running, and a way to ask it."""

    def __init__(self, kernel: FakeKernel, services: Services, address: str, session: aiohttp.ClientSession) -> None:
        self.kernel = kernel
        self.services = services
        self.service: Listener = services.listeners["http"]
        self.address = address
        self.session = session

    @property
    def door(self) -> Door:
        """What the running calls share."""
        dispatcher: Dispatcher = self.services.shared["http"]
        return dispatcher.door

    async def ask(self, method: str, target: str, **options: Any) -> Answer:
        """One request; the target goes out as it is written."""
        url = URL(f"http://{self.address}{target}", encoded=True)
        async with self.session.request(method, url, **options) as response:
            answer = Answer(response.status, dict(response.headers), await response.read())
        if "Content-Encoding" not in answer.headers:
            check_answer(method, target, answer.status, answer.headers, answer.body)
        return answer

    async def send(self, data: bytes) -> bytes:
        """Raw bytes on a connection of their own; what comes back until the door closes it."""
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        try:
            return await reader.read()
        finally:
            writer.close()


class Answer:
    """A response that has been read."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a problem document, checked to be one."""
        assert self.headers["Content-Type"] == "application/problem+json", (self.status, self.headers, self.body)
        assert self.json["status"] == self.status
        return cast(str, self.json["code"])


class AuditedAdmission(Admission):
    """Keeps what the audit topic would be told."""

    audited: list[tuple[str, str]]

    def audit(self, by: By, action: str, details: Mapping[str, Any]) -> None:
        self.__dict__.setdefault("audited", []).append((by.name if isinstance(by, Author) else by, action))


def run_door(test: Callable[[Client], Awaitable[None]], *, kernel: FakeKernel | None = None,
             admission: Callable[[Any], Admission] | None = None, services: dict[str, Any] | None = None,
             **settings: Any) -> None:
    """Open a door on a free port, run the test, stop the door."""
    config = HttpConfig(**{"allowed_hosts": ("*",), **settings})
    asyncio.run(_run(test, kernel or FakeKernel(), admission, services or {}, config))


async def _run(test: Callable[[Client], Awaitable[None]], kernel: FakeKernel,
               admission: Callable[[Any], Admission] | None, services: dict[str, Any], config: HttpConfig) -> None:
    fake = cast(Any, kernel)
    if "transactions" in services:           # they stand beside the kernel, and doors have ports of both
        services["transactions"].port = partial(kernel.port, transactions=services["transactions"])
    admitted = admission(fake) if admission is not None else AuditedAdmission(fake, lambda: NOW_MS)
    given = Services(**{"hub_name": "test", "kernel": fake, "admission": admitted, "now_ms": hub_ms,
                        "wall_ms": services.get("now_ms", lambda: NOW_MS), "specs": (GATEWAY,),
                        **services})
    given.settings = {**given.settings, "http": config}
    listener = await open_listener(given, Listen("127.0.0.1", 0))
    (address,) = listener.addresses()
    try:
        plain = aiohttp.ClientSession(auto_decompress=False, headers={"Accept-Encoding": "identity"})
        async with plain as session, asyncio.timeout(TEST_TIMEOUT_S):
            await test(Client(kernel, given, address, session))
    finally:
        await listener.stop(config.stop_timeout_s)


async def open_listener(services: Services, *listens: Listen) -> Listener:
    """The HTTP door, open as `gatehouse serve` opens it."""
    open_door(services)
    listener = Listener(GATEWAY, services, services.settings["http"], capacity=services.capacity)
    services.listeners["http"] = listener
    await listener.start(listens)
    return listener


def hub_ms() -> int:
    """Hub time: timers need one that moves."""
    return time.monotonic_ns() // 1_000_000


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until something is so; the test's own time-out bounds it."""
    while True:
        if condition():
            return
        await asyncio.sleep(0)
