"""`gatehouse relay serve`: the meeting point as a process, hubs by WebSocket.

    GET /v1/relay     a hub: the protocol of `relay/PROTOCOL.md`
    GET /healthz      200 while it takes hubs
    GET /metrics      who is here and what was carried, for Prometheus; loopback only
"""
from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import secrets
import ssl
import time
from asyncio import sslproto
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, cast

from aiohttp import WSMsgType, web

from gatehouse.relay.meeting import GREETING_MS, Meeting
from gatehouse.relay.settings import MeetingSection, MetHub, MetLink
from gatehouse.relay.shelves import Shelves

log = logging.getLogger("gatehouse.relay")

PATH: Final = "/v1/relay"
HEARTBEAT_S: Final = 15.0
TICK_S: Final = 5.0
PACE_S: Final = 0.05
CLOSE_S: Final = 2.0
UNPROVED_OF_ADDRESS: Final = 8         # connections of one address that have not proved who they are
UNPROVED: Final = 256                  # and of all: each may hold a frame in memory


class WebSocketMember:
    """`meeting.Member` over one WebSocket."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket
        self._frames: deque[bytes | None] = deque()
        self._some = asyncio.Event()
        self.waiting_bytes = 0

    def send(self, frame: bytes) -> None:
        self._frames.append(frame)
        self.waiting_bytes += len(frame)
        self._some.set()

    def close(self, reason: str) -> None:
        log.info("hub let go: %s", reason)
        self._frames.append(None)
        self._some.set()

    async def write(self) -> None:
        """Send what is queued until it is closed."""
        while True:
            while self._frames:
                frame = self._frames.popleft()
                if frame is None:
                    await self._socket.close()
                    return
                await self._socket.send_bytes(frame)
                self.waiting_bytes -= len(frame)
            self._some.clear()
            await self._some.wait()


class MeetingLoop(asyncio.SelectorEventLoop):
    """Every connection under TLS would have 256 KiB of its own to read into, for a moment of each read. Here they share
    them."""

    def __init__(self) -> None:
        super().__init__()
        self._shared = memoryview(bytearray(sslproto.SSLProtocol.max_size))

    def _make_ssl_transport(self, *arguments: Any, **named: Any) -> asyncio.Transport:
        transport: Any = super()._make_ssl_transport(*arguments, **named)      # type: ignore[misc]
        protocol: Any = getattr(transport, "_ssl_protocol", None)
        if hasattr(protocol, "_ssl_buffer"):
            protocol._ssl_buffer, protocol._ssl_buffer_view = self._shared, self._shared
        return cast(asyncio.Transport, transport)


class RelayServer:
    """The meeting point's listener. `start` says where it listens. Raises OSError where what it keeps cannot be
    read."""

    def __init__(self, section: MeetingSection, hubs: tuple[MetHub, ...], links: tuple[MetLink, ...]) -> None:
        self._section = section
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="spool")
        shelves = None if section.spool is None else Shelves(Path(section.spool), self._work, secrets.token_bytes)
        self.meeting = Meeting(section, hubs, links, secrets.token_bytes, log.info, lambda: int(time.time() * 1000),
                               shelves)
        self._runner: web.AppRunner | None = None
        self._ticking: list[asyncio.Task[None]] = []
        self._unproved: Counter[str] = Counter()         # by address

    def _work(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Beside the loop, one after another: the disk may be slow."""
        loop = asyncio.get_running_loop()

        def work() -> None:
            try:
                result = job()
            except OSError as error:
                result = error
            with contextlib.suppress(RuntimeError):          # the loop has ended: so has whoever would hear of it
                loop.call_soon_threadsafe(then, result)

        self._worker.submit(work)

    async def _pace(self) -> None:
        while True:
            await asyncio.sleep(PACE_S)
            self.meeting.handle_pace()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.meeting.spools.handle_tick()

    async def start(self) -> str:
        """Raises OSError, ssl.SSLError."""
        application = web.Application()
        application.router.add_get(PATH, self._on_hub)
        application.router.add_get("/healthz", self._on_health)
        application.router.add_get("/metrics", self._on_metrics)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=CLOSE_S)
        await self._runner.setup()
        host, _, port = self._section.listen.rpartition(":")
        tls = None
        if self._section.cert is not None:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(self._section.cert, self._section.key)
        site = web.TCPSite(self._runner, host.strip("[]") or None, int(port), ssl_context=tls)
        await site.start()
        self._ticking = [asyncio.ensure_future(self._tick()), asyncio.ensure_future(self._pace())]
        address = self._runner.addresses[0]
        return f"{address[0]}:{address[1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        for task in self._ticking:
            task.cancel()
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def _on_hub(self, request: web.Request) -> web.WebSocketResponse:
        address = request.remote or ""
        if self._unproved[address] >= UNPROVED_OF_ADDRESS or self._unproved.total() >= UNPROVED:
            raise web.HTTPServiceUnavailable(text="too many connections have not proved who they are\n")
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, compress=False, timeout=CLOSE_S,
                                       max_msg_size=self._section.max_frame_bytes + 1024)
        await socket.prepare(request)
        self._unproved[address] += 1
        unproved = True
        member = WebSocketMember(socket)
        visit = self.meeting.visit(member, int(time.monotonic() * 1000))
        writing = asyncio.ensure_future(member.write())
        late = asyncio.get_running_loop().call_later(GREETING_MS / 1000, visit.end_unless_proved)
        try:
            async for message in socket:
                if message.type is not WSMsgType.BINARY:
                    break
                visit.handle_frame(message.data)
                if unproved and visit.address:
                    unproved = False
                    self._let_in(address)
        finally:
            if unproved:
                self._let_in(address)
            late.cancel()
            visit.handle_closed()
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        return socket

    def _let_in(self, address: str) -> None:
        """One connection of an address less that has to prove itself."""
        self._unproved[address] -= 1
        if not self._unproved[address]:
            del self._unproved[address]

    async def _on_health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _on_metrics(self, request: web.Request) -> web.Response:
        if not ipaddress.ip_address(request.remote or "0.0.0.0").is_loopback:
            raise web.HTTPForbidden(text="metrics are for this machine\n")
        counts, spools = self.meeting.counts, self.meeting.spools
        lines = [f"gatehouse_relay_hubs {len(self.meeting)}", f"gatehouse_relay_carried_total {counts.carried}",
                 f"gatehouse_relay_carried_bytes_total {counts.carried_bytes}",
                 f"gatehouse_relay_waiting_letters {len(self.meeting.pacing)}",
                 f"gatehouse_relay_spool_letters {len(spools)}", f"gatehouse_relay_spool_bytes {spools.used_bytes}",
                 f"gatehouse_relay_spool_held_total {spools.held}", f"gatehouse_relay_spool_given_total {spools.given}",
                 f"gatehouse_relay_spool_expired_total {spools.expired}"]
        lines += [f'gatehouse_relay_bounced_total{{reason="{reason}"}} {count}' for reason, count in
                  counts.bounced.items()]
        lines += [f'gatehouse_relay_refused_total{{reason="{reason}"}} {count}' for reason, count in
                  counts.refused.items()]
        return web.Response(text="\n".join(lines) + "\n")
