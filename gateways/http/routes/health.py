"""`/healthz`, `/readyz`, `/metrics`: for whatever watches the hub. They ask for no user."""
from __future__ import annotations

from typing import Final

from aiohttp import web

from gateways.http.answers import json_answer
from gateways.http.door import Call, Door, Routes
from gateways.http.problems import Refusal

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


async def healthz(door: Door, call: Call) -> web.StreamResponse:
    """The process runs and its loop turns."""
    return json_answer({"status": "ok", "hub": door.services.hub_name})


async def readyz(door: Door, call: Call) -> web.StreamResponse:
    """The hub takes messages."""
    if door.stopping:
        raise Refusal("stopping", "the hub is shutting down", headers={"Retry-After": "1"})
    if not door.services.ready():
        raise Refusal("busy", "the hub is starting", headers={"Retry-After": "1"})
    return json_answer({"status": "ready"})


async def metrics(door: Door, call: Call) -> web.StreamResponse:
    """The Prometheus page."""
    return web.Response(body=door.services.render_metrics(), headers={"Content-Type": METRICS_TYPE})


ROUTES: Routes = (("GET", "/healthz", healthz), ("GET", "/readyz", readyz), ("GET", "/metrics", metrics))
