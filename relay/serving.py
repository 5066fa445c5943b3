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
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from aiohttp import WSMsgType, web

from gatehouse.gateways.connections.accepting import Server, accept
from gatehouse.gateways.runtime import peer_name
from gatehouse.gateways.tls.tls import TlsSettings, server_context
from gatehouse.gateways.tls.transport import TlsTransport
from gatehouse.relay.errors import BadFrame
from gatehouse.relay.meeting import GREETING_MS, Meeting
from gatehouse.relay.settings import MeetingSection, MetHub, MetLink
from gatehouse.relay.shelves import DiskShelves

log = logging.getLogger("gatehouse.relay")

PATH: Final = "/v1/relay"
PING_S: Final = 15.0                   # a hub that was not heard of for so long is asked
SILENT_S: Final = 30.0                 # and let go after so long
TICK_S: Final = 5.0
PACE_S: Final = 0.05
CLOSE_S: Final = 2.0
UNPROVED_OF_ADDRESS: Final = 8         # connections of one address that have not proved who they are
UNPROVED: Final = 256                  # and of all: each may hold a frame in memory


class WebSocketMember:
    """`meeting.Member` over one WebSocket. Who is idle costs no task that waits."""

    __slots__ = ("_closing", "_frames", "_socket", "_transport", "_writing", "heard_s", "waiting_bytes")

    def __init__(self, socket: web.WebSocketResponse, transport: asyncio.Transport | None) -> None:
        self._socket = socket
        self._transport = transport
        self.heard_s = time.monotonic()
        self._frames: list[bytes] = []
        self._closing = False
        self._writing: asyncio.Task[None] | None = None
        self.waiting_bytes = 0

    def send(self, frame: bytes) -> None:
        if not self._closing:
            self._frames.append(frame)
            self.waiting_bytes += len(frame)
            self._write()

    def close(self, reason: str) -> None:
        log.info("hub let go: %s", reason)
        self._closing = True
        self._write()

    def _write(self) -> None:
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write_all())

    async def _write_all(self) -> None:
        """Send what is queued, and what comes meanwhile."""
        try:
            while self._frames:
                frames, self._frames = self._frames, []
                for frame in frames:
                    await self._socket.send_bytes(frame)
                    self.waiting_bytes -= len(frame)
            if self._closing:
                await self._socket.close()
        except ConnectionError:                  # it is gone: so is whoever would take the rest
            self._closing = True
        finally:
            self._writing = None

    async def check(self, now_s: float) -> None:
        """A hub that says nothing is asked whether it is there; in the end it is not."""
        silent_s = now_s - self.heard_s
        if silent_s >= SILENT_S and self._transport is not None:
            self._transport.abort()
        elif silent_s >= PING_S:
            with contextlib.suppress(ConnectionError):
                await self._socket.ping()

    async def pong(self, data: bytes) -> None:
        """It asks the same."""
        with contextlib.suppress(ConnectionError):
            await self._socket.pong(data)

    async def end(self) -> None:
        """The connection is over."""
        self._closing = True
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)


class RelayServer:
    """The meeting point's listener. `start` says where it listens. Raises OSError where what it keeps cannot be
    read."""

    def __init__(self, section: MeetingSection, hubs: tuple[MetHub, ...], links: tuple[MetLink, ...]) -> None:
        self._section = section
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="spool")
        shelves = None if section.spool is None else DiskShelves(Path(section.spool), self._work, secrets.token_bytes)
        self.meeting = Meeting(section, hubs, links, secrets.token_bytes, log.info, lambda: int(time.time() * 1000),
                               shelves)
        self._runner: web.ServerRunner | None = None
        self._server: Server | None = None
        self._shaking = 0                                # hands: TLS connections that have only begun
        self._ticking: list[asyncio.Task[None]] = []
        self._members: set[WebSocketMember] = set()
        self._asking: list[asyncio.Task[None]] = []
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
            now_s = time.monotonic()
            self._asking = [asyncio.ensure_future(member.check(now_s)) for member in self._members
                            if now_s - member.heard_s >= PING_S]

    async def start(self) -> str:
        """Raises OSError, TlsFault."""
        make = web.Server(self._answer, access_log=None)
        self._runner = web.ServerRunner(make, shutdown_timeout=CLOSE_S)
        await self._runner.setup()
        host, _, port = self._section.listen.rpartition(":")
        if self._section.cert is not None:
            context = server_context(TlsSettings(self._section.cert, self._section.key or self._section.cert))
            self._server = await accept(host.strip("[]"), int(port),
                                        lambda: TlsTransport(context, GREETING_MS / 1000, self, make))
        else:
            self._server = await accept(host.strip("[]"), int(port), make)
        self._ticking = [asyncio.ensure_future(self._tick()), asyncio.ensure_future(self._pace())]
        return peer_name(self._server.sockets[0].getsockname())

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()
        for task in self._ticking:
            task.cancel()
        self._worker.shutdown(wait=False, cancel_futures=True)

    # ---- handshakes: `gateways.tls.transport.Doorstep`

    def begin_handshake(self, peer: str) -> bool:
        """See `Doorstep`."""
        if self._shaking >= UNPROVED:
            return False
        self._shaking += 1
        return True

    def end_handshake(self, peer: str, reason: str) -> None:
        """See `Doorstep`."""
        self._shaking -= 1
        if reason:
            self.note_broken(peer, reason)

    def note_broken(self, peer: str, reason: str) -> None:
        """See `Doorstep`."""
        log.info("%s: %s", peer, reason)

    def note_held(self, size: int) -> None:
        """See `Doorstep`. One record of each connection at most, which nobody counts here."""

    # ---- who comes

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            raise web.HTTPMethodNotAllowed(request.method, ("GET", "HEAD"))
        if request.path == PATH:
            return await self._on_hub(request)
        if request.path == "/healthz":
            return web.Response(text="ok\n")
        if request.path == "/metrics":
            return self._metrics(request)
        raise web.HTTPNotFound(text=f"hubs come to {PATH}\n")

    async def _on_hub(self, request: web.BaseRequest) -> web.WebSocketResponse:
        address = request.remote or ""
        if self._unproved[address] >= UNPROVED_OF_ADDRESS or self._unproved.total() >= UNPROVED:
            raise web.HTTPServiceUnavailable(text="too many connections have not proved who they are\n")
        socket = web.WebSocketResponse(autoping=False, compress=False, timeout=CLOSE_S,
                                       max_msg_size=self._section.max_frame_bytes + 1024)
        await socket.prepare(request)
        socket.headers.clear()                   # they are sent; a kilobyte of each hub
        self._unproved[address] += 1
        unproved = True
        member = WebSocketMember(socket, request.transport)
        self._members.add(member)
        visit = self.meeting.visit(member, int(time.monotonic() * 1000))
        late = asyncio.get_running_loop().call_later(GREETING_MS / 1000, visit.end_unless_proved)
        try:
            async for message in socket:
                member.heard_s = time.monotonic()
                if message.type is WSMsgType.BINARY:
                    visit.handle_frame(message.data)
                elif message.type is WSMsgType.PING:
                    await member.pong(message.data)
                elif message.type is WSMsgType.PONG:
                    pass
                elif message.type is WSMsgType.ERROR:        # aiohttp has hung up by now
                    visit.refuse(BadFrame.code, f"no frame, or larger than max_frame_bytes: {message.data}")
                else:
                    visit.refuse(BadFrame.code, "a frame that is not binary")
                if unproved and visit.address:
                    unproved = False
                    self._let_in(address)
        finally:
            if unproved:
                self._let_in(address)
            late.cancel()
            visit.handle_closed()
            self._members.discard(member)
            await member.end()
        return socket

    def _let_in(self, address: str) -> None:
        """One connection of an address less that has to prove itself."""
        self._unproved[address] -= 1
        if not self._unproved[address]:
            del self._unproved[address]

    def _metrics(self, request: web.BaseRequest) -> web.Response:
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
