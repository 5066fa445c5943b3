"""A hub dials the meeting point: a WebSocket over TLS, through an HTTP proxy where there is one, again and again.

aiohttp is imported by who dials: it is a fifth of all that a hub loads at its start, and few hubs have links.
"""
from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from gatehouse.kernel.circuit_breaker import CircuitBreaker, CircuitState
from gatehouse.relay.hub_links import ONLINE, HubLinks
from gatehouse.relay.settings import RelaySection

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

log = logging.getLogger("gatehouse.relay")

TICK_S: Final = 0.2
FIRST_WAIT_S: Final = 0.5
LET_IN_WAIT_S: Final = 2.0
"""The longest, where the meeting point had let the hub in: what is on its way goes on soon."""

REFUSED_WAIT_S: Final = 5.0
"""The longest, where the meeting point answers and refuses this hub: somebody is about to write it into its file."""

LONGEST_WAIT_S: Final = 30.0
STABLE_S: Final = 10.0                 # a connection that lasted so long counts as one that worked
CONNECT_S: Final = 20.0
HEARTBEAT_S: Final = 15.0
MAX_FRAME_BYTES: Final = 1 << 28


class WebSocketWire:
    """`hub_links.Wire` over one WebSocket. Letters are bounded by the other hub's window, so this queue is too."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.reason = ""

    def send(self, frame: bytes) -> None:
        self._frames.put_nowait(frame)

    def close(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._frames.put_nowait(None)

    async def write(self) -> None:
        """Send what is queued until it is closed."""
        while (frame := await self._frames.get()) is not None:
            await self._socket.send_bytes(frame)
        await self._socket.close()


class Dialler:
    """Keeps the connection of a hub to its meeting point, and moves its links on. While the circuit is open nobody
    dials."""

    def __init__(self, links: HubLinks, section: RelaySection, on_fault: Callable[[Exception], None],
                 circuit: CircuitBreaker, now_ms: Callable[[], int]) -> None:
        self._links = links
        self._section = section
        self._on_fault = on_fault
        self._circuit = circuit
        self._now_ms = now_ms
        self._turned = asyncio.Event()
        self._wire: WebSocketWire | None = None
        self._cut_until_ms = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.ensure_future(self._tick())]
        if self._section.url:
            self._tasks.append(asyncio.ensure_future(self._dial()))

    def on_circuit(self) -> None:
        """People have opened the circuit, or closed it. A connection that is there stays."""
        self._turned.set()

    def cut(self, lasts_ms: int) -> None:
        """For a drill: the connection ends, and nobody dials for so long."""
        self._cut_until_ms = self._now_ms() + lasts_ms
        if self._wire is not None:
            self._wire.close("a drill cuts the link")

    async def stop(self) -> None:
        """End the connection; what is on its way comes again when the hub is back."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._links.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                self._links.handle_tick()
                if self._links.state == ONLINE and self._circuit.state is not CircuitState.CLOSED:
                    self._circuit.note(True, self._now_ms())
            except Exception as fault:       # ours: the next tick may go well
                self._on_fault(fault)

    async def _dial(self) -> None:
        import aiohttp

        wait_s, loop = FIRST_WAIT_S, asyncio.get_running_loop()
        tls: ssl.SSLContext | bool | None = None
        while True:
            await self._until_it_may_pass()
            began_s, connections = loop.time(), self._links.connections
            reason = "the meeting point hung up"
            try:
                tls = tls or self._tls()                 # its file may be mended
                reason = await self._connect(tls) or reason
            except (TimeoutError, aiohttp.ClientError, OSError, ssl.SSLError) as error:
                reason = f"the meeting point cannot be reached: {str(error) or type(error).__name__}"
            except Exception as fault:
                self._on_fault(fault)
                reason = "a mistake of the hub"
            if loop.time() - began_s > STABLE_S:
                wait_s = FIRST_WAIT_S
            elif self._links.connections > connections:
                wait_s = min(wait_s, LET_IN_WAIT_S)
            elif self._links.refused:
                wait_s = min(wait_s, REFUSED_WAIT_S)
            self._links.lost(reason)
            why = self._links.fault
            reached = self._links.connections > connections or self._links.refused
            self._circuit.note(reached, self._now_ms(), reason=why)
            again_s = max(wait_s, (self._circuit.until_ms - self._now_ms()) / 1000)
            log.warning("relay: %s; dialling again in %.1f s", why, again_s)
            await asyncio.sleep(wait_s * random.uniform(0.7, 1.0))
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def _until_it_may_pass(self) -> None:
        await asyncio.sleep(max(0, self._cut_until_ms - self._now_ms()) / 1000)
        while not self._circuit.may_pass(now_ms := self._now_ms()):
            self._turned.clear()
            wait_s = (self._circuit.until_ms - now_ms) / 1000 if self._circuit.until_ms else None
            try:
                await asyncio.wait_for(self._turned.wait(), wait_s)
            except TimeoutError:
                pass

    def _tls(self) -> ssl.SSLContext | bool:
        """Raises OSError, which SSLError is."""
        return ssl.create_default_context(cafile=self._section.ca) if self._section.url.startswith("wss:") else True

    async def _connect(self, tls: ssl.SSLContext | bool) -> str:
        """One connection, from its start to its end; why it ended."""
        import aiohttp

        host = urlsplit(self._section.url).hostname or ""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        async with aiohttp.ClientSession(timeout=timeout) as client:
            async with asyncio.timeout(CONNECT_S):               # answers of a proxy and of the meeting point, too
                socket = await client.ws_connect(self._section.url, ssl=tls, proxy=self._section.proxy,
                                                 heartbeat=HEARTBEAT_S, compress=0, max_msg_size=MAX_FRAME_BYTES)
            wire = self._wire = WebSocketWire(socket)
            writing = asyncio.ensure_future(wire.write())
            self._links.connected(wire, host)
            try:
                async for message in socket:
                    if message.type is not aiohttp.WSMsgType.BINARY:
                        return "the meeting point sent a frame that is not binary"
                    self._links.handle_frame(message.data)
            finally:
                self._wire = None
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
                await socket.close()
            return wire.reason
