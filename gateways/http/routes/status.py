"""`GET /v1/status`: what the hub says of itself; `GET /v1/status/events`: the same every second. And `/healthz`,
`/readyz`, `/metrics`, for whatever watches the hub, which ask for no user.

    {"hub", "version", "ready", "now", "started", "you": {"user", "tenant", "anonymous", "administrator"},
     and for an administrator: "doors", "log", "pending", "checkpoint", "loop", "groups", ..., see `gatehouse.status`}

The stream's events are called `status`; the first one an administrator gets is `history`: the doors' rates of the last
minutes. However many listen, the document is made once a second, and not at all while nobody does. A reader that is
slow misses events; one that takes nothing is cut off like any other.
"""
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import orjson

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.declaring import (
    FLAG,
    NUMBER,
    TEXT,
    TICKET,
    TIME_MS,
    WHOLE,
    Answer,
    Named,
    declare,
    list_of,
    nullable,
    object_of,
    one_of,
)
from gatehouse.gateways.http.dispatch import reply_of
from gatehouse.gateways.http.door import NAME, Door, Routes
from gatehouse.gateways.http.exchange import Answered, Call, Response, json_answer
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.stream import Stream

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.contract import Status

INTERVAL_S: Final = 1.0
NO_STORE: Final = {"Cache-Control": "no-store"}
HEADERS: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-store, no-transform",
                  "X-Accel-Buffering": "no"}


_FLOW: Final = ("messages_in", "bytes_in", "messages_out", "bytes_out")
DOOR: Final = object_of({
    "door": TEXT, "listen": list_of(TEXT), "connections": WHOLE, "accepted": WHOLE, "refused": WHOLE, "faults": WHOLE,
    **dict.fromkeys(_FLOW, WHOLE), "rates": object_of(dict.fromkeys(_FLOW, NUMBER))})
FOR_ADMINISTRATORS: Final = {
    "epoch": WHOLE, "doors": list_of(DOOR),
    "log": object_of(dict.fromkeys(("bytes", "segments", "kept_bytes", "retention_bytes", "kept_limit_bytes",
                                    "dropped_segments", "damaged_ranges", "mended_headers", "set_aside_files",
                                    "set_aside_bytes", "disk_free_bytes", "disk_bytes"), WHOLE)
                     | {"full": FLAG}),
    "pending": object_of({"bytes": WHOLE, "congested": FLAG}),
    "checkpoint": object_of({"age_ms": nullable(WHOLE), "taken": WHOLE, "postponed": WHOLE, "unindexed_bytes": WHOLE}),
    "loop": object_of({"stall_recent_ms": NUMBER, "stall_worst_ms": NUMBER}), "memory_bytes": WHOLE,
    "overload": object_of({"level": WHOLE, "left_undone": list_of(TEXT), "memory_budget_bytes": WHOLE,
                           "memory_share": NUMBER, "held_bytes": object_of({}), "shed": object_of({})}),
    "circuits": object_of({**dict.fromkeys(("closed", "open", "half_open"), WHOLE),
                           "not_closed": list_of(object_of({"tenant": TEXT, "id": TEXT, "circuit": TEXT,
                                                            "by_hand": FLAG, "opened": WHOLE,
                                                            "until": nullable(TIME_MS), "reason": TEXT}))}),
    "topics": WHOLE, "subscriptions": WHOLE, "scheduled": WHOLE,
    "groups": object_of(dict.fromkeys(("active", "ready", "leased", "waiting"), WHOLE)),
    "transactions": object_of(dict.fromkeys(("open", "open_bytes", "members", "committed", "rolled_back", "expired"),
                                            WHOLE))}
STATUS: Final = Named("Status", object_of(
    {"hub": TEXT, "version": TEXT, "ready": FLAG, "now": TIME_MS, "started": TIME_MS,
     "you": object_of({"user": TEXT, "tenant": TEXT, "anonymous": FLAG, "administrator": FLAG})}, FOR_ADMINISTRATORS))


@declare("hub", answers=(Answer(200, "How it is.", STATUS),))
async def get_status(door: Door, call: Call) -> Answered:
    """How the hub is: doors, rates, log, disk, groups.

    Whoever is no administrator is told less.
    """
    principal = await door.principal(call)
    call.query()
    source = _source(door)
    document = await source.document() if _may_administer(door, principal) else source.summary()
    return json_answer({**document, "you": _describe(door, principal)}, headers=NO_STORE)


@declare("hub", query=(TICKET,), answers=(Answer(200, "Events until somebody hangs up.", TEXT, "text/event-stream"),))
async def stream_status(door: Door, call: Call) -> Answered:
    """How the hub is, every second, as Server-Sent Events.

    The events are called `status`; before the first, an administrator is sent the doors' rates of the last minutes as
    `history`.
    """
    query = call.query()
    principal = await door.stream_principal(call, query)
    source = _source(door)
    if call.method == "HEAD":
        return Response(headers=HEADERS)
    answer = door.stream(call, HEADERS)
    reader = StatusReader(door, principal)
    registration = door.admission.register(principal, NAME, reader)
    try:
        document = await Pulse.of(door).newest(source)     # comes with the headers: a page can show something at once
        answer.start()
        await reader.send(answer, source, document)
    finally:
        registration.leave()
    return answer


class StatusReader:
    """One who listens, and its principal's `RegisteredSession`."""

    def __init__(self, door: Door, principal: Principal) -> None:
        self._door = door
        self._principal = principal
        self._ended = False

    async def send(self, answer: Stream, source: Status, first: dict[str, Any]) -> None:
        """From this document on, until the hub stops or the principal ends."""
        before = _event("history", source.history()) if _may_administer(self._door, self._principal) else b""
        document: dict[str, Any] | None = first
        while document is not None and not self._ended:
            seen = document if _may_administer(self._door, self._principal) else source.summary()
            answer.write(before + _event("status", {**seen, "you": _describe(self._door, self._principal)}))
            before = b""
            await answer.drained()
            document = await Pulse.of(self._door).next(source)

    def on_principal_ended(self, reason: str) -> None:
        """The stream ends; whoever comes again is asked who he is."""
        self._ended = True

    def on_rights_changed(self) -> None:
        """Nothing to do: every event is made for the rights of its second."""


class Pulse:  # decision 77
    """Makes the document of each second once, for all who wait for it."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._newest: asyncio.Future[dict[str, Any]] | None = None
        self._made_s = 0.0
        self._next: asyncio.Task[dict[str, Any]] | None = None

    @classmethod
    def of(cls, door: Door) -> Pulse:
        """The door's."""
        return door.services.share(__name__, lambda: cls(door))

    async def newest(self, source: Status) -> dict[str, Any]:
        """The last second's document; a new one where nobody has asked for that long."""
        if self._newest is None or self._door.loop.time() - self._made_s >= INTERVAL_S:
            return await self._make(source)
        return await asyncio.shield(self._newest)

    async def next(self, source: Status) -> dict[str, Any] | None:
        """The next second's document; None when the hub stops."""
        if self._next is None or self._next.done():
            self._next = asyncio.ensure_future(self._make_later(source))
        return await self._door.unless_stopping(reply_of(self._next))

    async def _make_later(self, source: Status) -> dict[str, Any]:
        previous = self._newest
        await asyncio.sleep(self._made_s + INTERVAL_S - self._door.loop.time())
        newest = self._newest
        if newest is None or (newest is previous and not self._door.stopping):
            return await self._make(source)
        return await asyncio.shield(newest)                         # somebody who came had it made

    async def _make(self, source: Status) -> dict[str, Any]:
        self._made_s = self._door.loop.time()
        self._newest = asyncio.ensure_future(source.document())     # who asks meanwhile waits for the same
        return await asyncio.shield(self._newest)


def _source(door: Door) -> Status:
    source = door.services.status
    if source is None:
        raise Refusal("not_built", "this hub does not tell its state")
    return source


def _may_administer(door: Door, principal: Principal) -> bool:
    return door.admission.may_hub(principal, Operation.ADMINISTER)


def _describe(door: Door, principal: Principal) -> dict[str, Any]:
    return {"user": principal.name, "tenant": principal.tenant, "anonymous": principal.anonymous,
            "administrator": _may_administer(door, principal)}


def _event(name: str, document: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(document))


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


ROUTES: Routes = (("GET", "/v1/status", get_status), ("GET", "/v1/status/events", stream_status),
                  ("GET", "/healthz", healthz), ("GET", "/readyz", readyz), ("GET", "/metrics", metrics))
