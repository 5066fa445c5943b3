"""Calls that the interface names and this hub does not have yet: refused by name, so that nobody takes a 404 for a
typo."""
from __future__ import annotations

from typing import Final

from aiohttp import web

from gateways.http.door import Call, Door, Routes
from gateways.http.problems import Refusal

NOT_BUILT: Final[tuple[tuple[str, str, str], ...]] = (
    ("GET", "/openapi.json", "the OpenAPI document"),
    ("GET", "/docs", "the page to try the interface"),
    ("GET", "/ui/{path...}", "the console"),
    ("GET", "/mqtt", "MQTT over WebSocket"),
    ("GET", "/v1/topics/{topic}/events", "Server-Sent Events"),
    ("GET", "/v1/events", "Server-Sent Events"),
    ("GET", "/v1/ws", "the WebSocket of messages"),
    ("GET", "/v1/connections", "the list of connections"),
    ("GET", "/v1/trace/{id}", "the trace of a message"),
    ("POST", "/v1/transactions", "transactions"),
    ("GET", "/v1/transactions", "transactions"),
    ("POST", "/v1/transactions/{id}/commit", "transactions"),
    ("POST", "/v1/transactions/{id}/rollback", "transactions"),
    ("GET", "/v1/transactions/checks", "transactions"),
)
"""(method, pattern, what it would be)."""


class _NotBuilt:
    """The handler of one such call."""

    def __init__(self, what: str) -> None:
        self._what = what

    async def __call__(self, door: Door, call: Call) -> web.StreamResponse:
        raise Refusal("not_built", f"{self._what}: not built yet")


ROUTES: Routes = tuple((method, pattern, _NotBuilt(what)) for method, pattern, what in NOT_BUILT)
