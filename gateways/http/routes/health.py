"""`/healthz`, `/readyz`, `/metrics`: for whatever watches the hub. They ask for no user."""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.http.declaring import TEXT, Answer, declare, object_of, one_of
from gatehouse.gateways.http.door import Door, Routes
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.request import Call
from gatehouse.gateways.http.response import Answered, Response, json_answer

OPENMETRICS: Final = "application/openmetrics-text"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@declare("hub", public=True, answers=(Answer(200, "It is.", object_of({"status": one_of("ok"), "hub": TEXT})),))
async def healthz(door: Door, call: Call) -> Answered:
    """Is the hub alive?

    The process runs and its loop turns.
    """
    call.query()
    return json_answer({"status": "ok", "hub": door.services.hub_name})


@declare("hub", public=True, answers=(Answer(200, "It does.", object_of({"status": one_of("ready")})),),
         problems=("stopping",))
async def readyz(door: Door, call: Call) -> Answered:
    """Does the hub take new work?

    It does on a full disk, too: what is read and acknowledged there makes room. `GET /v1/status` says `full` then. It
    does not while the disk keeps messages waiting for longer than `ready_flush_s`.
    """
    call.query()
    if door.stopping:
        raise Refusal("stopping", "the hub is shutting down", headers={"Retry-After": "1"})
    why = door.services.unready()
    if why:
        raise Refusal("busy", why, headers={"Retry-After": "1"})
    return json_answer({"status": "ready"})


@declare("hub", public=True, answers=(Answer(200, "Every metric, as text.", TEXT, "text/plain"),))
async def metrics(door: Door, call: Call) -> Answered:
    """The metrics, for Prometheus.

    Who asks for `application/openmetrics-text`, as Prometheus does, is told with the buckets of a histogram which
    followed message was counted there last.
    """
    call.query()
    if OPENMETRICS in call.headers.get("accept", "").lower():
        return Response(door.services.render_openmetrics(), content_type=OPENMETRICS_TYPE)
    return Response(door.services.render_metrics(), content_type=METRICS_TYPE)


ROUTES: Routes = (("GET", "/healthz", healthz), ("GET", "/readyz", readyz), ("GET", "/metrics", metrics))
