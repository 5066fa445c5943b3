"""The HTTP door as a service: builds the server, opens its listeners, and stops without losing what is in flight."""
from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from gatehouse.gateways.connections.ports import Ports
from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.dispatch import Dispatcher
from gatehouse.gateways.http.door import Door
from gatehouse.gateways.http.server import LINGER_S, MAX_HEADERS, MAX_LINE_BYTES, Connections, DoorServer
from gatehouse.gateways.tls.tls import TlsFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gatehouse.gateways.contract import Listen, Services

ALPN: Final = ("http/1.1",)


class HttpService:
    """`contract.Service` of this door."""

    def __init__(self, services: Services, config: HttpConfig, listen: tuple[Listen, ...]) -> None:
        self.services = services
        self._config = config
        self._listen = listen
        self.door: Door | None = None
        self._runner: web.BaseRunner | None = None
        self._ports: Ports | None = None
        self.connections = Connections(config, services)

    async def start(self) -> list[str]:
        """Open the listeners. Raises OSError, TlsFault where one cannot be opened, with none left open."""
        loop = asyncio.get_running_loop()
        self.door = Door(self.services, self._config, loop)
        dispatcher = Dispatcher(self.door, self.connections.counts)
        self._runner = _DoorRunner(self._mounted_routes(), dispatcher, self.connections)
        await self._runner.setup()
        server = self._runner.server
        assert isinstance(server, DoorServer), "the runner has just made it"
        self._ports = Ports(self.connections, server.protocol_for, ALPN)
        try:
            addresses = await self._ports.open(self._listen)
            self.door.webhooks.start()
            return addresses
        except (OSError, TlsFault):
            await self._runner.cleanup()
            raise

    async def relisten(self, listens: Sequence[Listen]) -> tuple[list[str], list[str]]:
        """See `Ports.change`."""
        assert self._ports is not None, "only a door that was started is changed"
        return await self._ports.change(listens)

    def addresses(self) -> list[str]:
        """Where it listens, `HOST:PORT`."""
        return [] if self._ports is None else self._ports.addresses()

    def certificate_ends_s(self) -> float | None:
        """See `Ports.certificate_ends_s`."""
        return None if self._ports is None else self._ports.certificate_ends_s()

    async def stop(self) -> None:
        """Take no new connections, send long polls home, wait for the rest up to `stop_timeout_s`, close."""
        if self.door is not None:
            self.door.begin_stopping()
            await self.door.webhooks.stop()
        if self._ports is not None:
            self._ports.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _mounted_routes(self) -> web.Application:
        """What other doors serve here (a WebSocket, a page), each made with its own settings."""
        app = web.Application()
        for spec in self.services.specs:
            if spec.http_routes is not None:
                app.add_routes(spec.http_routes(self.services, self.services.settings[spec.name]))
        return app

    def __len__(self) -> int:
        """Connections that are open."""
        return len(self.connections.open)

    @property
    def counts(self) -> Counter[str]:
        """What happened to connections since the start, for the metrics."""
        return self.connections.counts


class _DoorRunner(web.AppRunner):
    """The library's runner with this door's server; the application carries the requests' type and mounted routes."""

    __slots__ = ("_dispatcher", "_connections")

    def __init__(self, app: web.Application, dispatcher: Dispatcher, connections: Connections) -> None:
        super().__init__(app, handle_signals=False, shutdown_timeout=connections.config.stop_timeout_s)
        self._dispatcher = dispatcher
        self._connections = connections

    async def _make_server(self) -> web.Server:
        config = self._connections.config
        plain = await super()._make_server()
        if len(self.app.router.routes()):
            self._dispatcher.mounted = plain.request_handler
        return DoorServer(self._dispatcher.answer, self._connections, self._dispatcher.direct,
                          request_factory=plain.request_factory, handler_cancellation=True, access_log=None,
                          keepalive_timeout=config.idle_timeout_s, auto_decompress=False, lingering_time=LINGER_S,
                          max_line_size=MAX_LINE_BYTES, max_field_size=MAX_LINE_BYTES, max_headers=MAX_HEADERS)


def open_service(services: Services, config: Any, listen: tuple[Listen, ...]) -> HttpService:
    """What the gateway's declaration names."""
    return HttpService(services, config, listen)
