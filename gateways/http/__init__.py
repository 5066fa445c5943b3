"""The HTTP door: publishing, reading, leasing and whatever there is to administer, as calls, streams and WebSockets.
README.md has all calls, and what it does not do."""
from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.connections.settings import ConnectionSettings
from gatehouse.gateways.contract import CONTRACT, GatewaySpec
from gatehouse.gateways.http.addresses import SPELLING
from gatehouse.gateways.http.column import HTTP
from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.dispatch import Dispatcher
from gatehouse.gateways.http.door import DOOR, NAME, Door
from gatehouse.gateways.http.exchange import date_of, encode_response, problem_answer
from gatehouse.gateways.http.openapi import routes_of
from gatehouse.gateways.http.routes import build_table
from gatehouse.gateways.http.routes.mounted import mounted_table
from gatehouse.gateways.http.session import HttpSession

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services


SPARE: Final = 32
"""Connections that this door may still take, of the hub's own reserve, where all doors together have taken all: for
metrics, health, the console."""


def dispatcher_of(door: Door) -> Dispatcher:
    """What leads the door's requests to its calls, and to those that other doors have mounted."""
    built = build_table()
    door.routes.extend(routes_of(built.endpoints))
    return Dispatcher(door, built, mounted_table(door.services.specs))


def open_door(services: Services) -> None:
    """Make what all sessions share; webhooks begin to post."""
    door = Door(services, services.settings[NAME], asyncio.get_running_loop())
    services.shared[NAME] = dispatcher_of(door)
    door.webhooks.start()


async def stop_door(services: Services) -> None:
    """Send long polls home with what they have, and end the webhooks."""
    door = services.shared[NAME].door
    door.begin_stopping()
    await door.webhooks.stop()


def connection_settings(config: HttpConfig) -> ConnectionSettings:
    """The bounds of connections that the settings say."""
    return ConnectionSettings(write_timeout_ms=round(config.stall_timeout_s * 1000),
                              max_connections=config.max_connections, spare_connections=SPARE,
                              drain_s=config.stop_timeout_s)


def encode_refusal(reason: str) -> bytes:
    """A whole 503 for a connection on which nothing was read yet."""
    answer = problem_answer("busy", "too many connections are open, " + reason.partition(": ")[2],
                            {"Retry-After": "1", "Connection": "close"})
    return encode_response(answer, date_of(round(time.time() * 1000)), closes=True)


GATEWAY: Final = GatewaySpec(name=NAME, contract=CONTRACT, door=DOOR, config=HttpConfig,
                             default_listen=("127.0.0.1:8080",),
                             session=HttpSession, opened=open_door, stopping=stop_door,
                             connection_settings=connection_settings, refusal=encode_refusal, alpn=("http/1.1",),
                             reads_when_congested=True, columns=(HTTP,), spelling=SPELLING)
