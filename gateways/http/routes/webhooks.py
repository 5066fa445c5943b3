"""`/v1/webhooks`: which groups' messages are posted where. `docs/webhooks.md` says what a receiver sees."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gatehouse.gateways.http.accounts import ADMINISTERING, administering
from gatehouse.gateways.http.declaring import (
    AFTER,
    CURSOR,
    FLAG,
    TEXT,
    TIME_MS,
    WHOLE,
    Answer,
    Body,
    Named,
    Parameter,
    Whole,
    declare,
    list_of,
    nullable,
    object_of,
    one_of,
)
from gatehouse.gateways.http.door import Door, Routes, read_object
from gatehouse.gateways.http.exchange import Answered, Call, Response, defined_answer, json_answer
from gatehouse.gateways.http.page import decode_name, page_by_name
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.representation import check_conditions
from gatehouse.gateways.http.webhooks.definition import (
    MAX_BATCH,
    MAX_CONCURRENCY,
    MAX_MORE_URLS,
    MAX_TIMEOUT_S,
    MODES,
    read_webhook,
)
from gatehouse.kernel.circuit_breaker import CircuitState

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal

MAX_NAME_CHARS: Final = 128
NAME: Final = Parameter("webhook", "The webhook's name.", example="orders-to-shop",
                        text={"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"})
MAX: Final = Whole("max", "Webhooks in the page.", default=100, lowest=1, highest=1000)
SETTINGS: Final = {
    "url": {**TEXT, "format": "webhook-url", "minLength": 1, "maxLength": 2048},
    "more_urls": list_of({**TEXT, "format": "webhook-url", "minLength": 1, "maxLength": 2048}, maxItems=MAX_MORE_URLS),
    "topic": {**TEXT, "pattern": "^[A-Za-z0-9._-]{0,249}$"}, "group": {**TEXT, "maxLength": 255},
    "checks": {**TEXT, "maxLength": 255}, "mode": one_of(*MODES),
    "concurrency": {"type": "integer", "minimum": 1, "maximum": MAX_CONCURRENCY},
    "max_batch": {"type": "integer", "minimum": 1, "maximum": MAX_BATCH},
    "timeout": {"type": "number", "minimum": 0.1, "maximum": MAX_TIMEOUT_S}, "enabled": FLAG}
STATE: Final = object_of({"delivered": WHOLE, "failed": WHOLE, "posting": WHOLE, "last": TEXT, "connected": FLAG,
                          "circuit": one_of(*CircuitState), "circuit_by_hand": FLAG, "circuit_opened": WHOLE,
                          "circuit_until": nullable(TIME_MS),
                          "targets": list_of(object_of({"url": TEXT, "circuit": one_of(*CircuitState)}))})
WEBHOOK: Final = Named("Webhook", object_of(
    {"name": TEXT, **SETTINGS, "disabled_because": TEXT, "created": TIME_MS, "state": nullable(STATE)},
    {"secret": {**TEXT, "description": "Where it was just made; it is not shown again."}}))
_SECRET: Final = {**TEXT, "format": "webhook-secret", "description": "`whsec_` and base64 of 24 to 64 bytes.",
                  "pattern": "^whsec_({four}){8,20}({four}|{four}{one}{one}==|{one}{one}==|{one}{one}{one}=)?$".replace(
                      "{four}", "[A-Za-z0-9+/]{4}").replace("{one}", "[A-Za-z0-9+/]")}
_NEW: Final = {**{name: piece for name, piece in SETTINGS.items() if name not in ("url", "topic", "group", "checks")},
               "secret": _SECRET, "rotate_secret": FLAG}
_GROUP: Final = {**TEXT, "minLength": 1, "maxLength": 255}
NEW: Final = Named("WebhookInput", {"anyOf": [
    object_of({"url": SETTINGS["url"], "topic": {**TEXT, "pattern": "^[A-Za-z0-9._-]{1,249}$"}},
              {"group": _GROUP, **_NEW}, closed=True),
    object_of({"url": SETTINGS["url"], "checks": {**_GROUP, "description": "The group whose checks it answers."}}, _NEW,
              closed=True)]}, {"url": "https://shop.example/hook", "topic": "orders"})


@declare("webhooks", query=(MAX, AFTER), needs=ADMINISTERING, problems=("invalid_cursor",),
         answers=(Answer(200, "A page of webhooks.", object_of({"webhooks": list_of(WEBHOOK), "cursor": CURSOR})),))
async def list_webhooks(door: Door, call: Call) -> Answered:
    """List webhooks and how they do, by name."""
    principal, query = await administering(door, call), call.query()
    count = MAX.read(query, door.config)
    after = decode_name(query.get("cursor", ""))
    names, cursor = page_by_name([name for name in door.webhooks.names(principal.tenant) if name > after], count, str)
    return json_answer({"webhooks": [door.webhooks.describe(principal.tenant, name) for name in names],
                        "cursor": cursor})


@declare("webhooks", path=(NAME,), needs=ADMINISTERING, problems=("unknown_webhook",),
         answers=(Answer(200, "The webhook.", WEBHOOK),))
async def get_webhook(door: Door, call: Call) -> Answered:
    """Show a webhook and how it does."""
    principal = await administering(door, call)
    call.query()
    tenant, name = principal.tenant, _existing(door, principal, call)
    return defined_answer(door.webhooks.define(tenant, name) or {}, door.webhooks.state(tenant, name))


@declare("webhooks", path=(NAME,), bodies=(Body(NEW),), needs=ADMINISTERING, writes=True, audited="webhook.changed",
         problems=("forbidden_url", "too_many_webhooks", "precondition_failed"),
         answers=(Answer(200, "It is as the document says.", WEBHOOK), Answer(201, "It is made.", WEBHOOK)))
async def put_webhook(door: Door, call: Call) -> Answered:
    """Make a webhook, or make it read as the document says.

    The messages of the group are posted to the URL as CloudEvents, signed. A secret that is made here is shown once.
    `If-Match` with the webhook's `ETag` changes only what was seen, `If-None-Match: *` only makes one.
    """
    principal, name = await administering(door, call), call.topic_name()
    call.query()
    if not name or len(name) > MAX_NAME_CHARS or not name.replace("-", "").replace("_", "").replace(".", "").isalnum() \
            or not name.isascii():
        raise Refusal("invalid_body", f"a webhook's name has letters, digits, '.', '_', '-', up to {MAX_NAME_CHARS}")
    document = await read_object(door, call)
    async with door.changing:
        await administering(door, call)
        check_conditions(call.headers, door.webhooks.define(principal.tenant, name))
        existing = door.webhooks.get(principal.tenant, name)
        webhook, shown = read_webhook(name, document, existing, door.services.wall_ms())
        await door.webhooks.put(principal.tenant, name, webhook)
    answer = door.webhooks.describe(principal.tenant, name)
    if shown:
        answer["secret"] = webhook.secret
    return json_answer(answer, 201 if existing is None else 200, {"Cache-Control": "no-store"})


@declare("webhooks", path=(NAME,), needs=ADMINISTERING,
         writes=True, audited="webhook.deleted", problems=("unknown_webhook", "precondition_failed"),
         answers=(Answer(204, "It is gone; its group stays."),))
async def delete_webhook(door: Door, call: Call) -> Answered:
    """Delete a webhook.

    Its group keeps its progress. `If-Match` with the webhook's `ETag` deletes only what was seen.
    """
    principal = await administering(door, call)
    call.query()
    async with door.changing:
        check_conditions(call.headers, door.webhooks.define(principal.tenant, call.topic_name()))
        await door.webhooks.delete(principal.tenant, _existing(door, principal, call))
    return Response(status=204)


def _existing(door: Door, principal: Principal, call: Call) -> str:
    name = call.topic_name()
    if door.webhooks.get(principal.tenant, name) is None:
        raise Refusal("unknown_webhook", f"there is no webhook {name[:MAX_NAME_CHARS]!r}")
    return name


ROUTES: Routes = (
    ("GET", "/v1/webhooks", list_webhooks),
    ("GET", "/v1/webhooks/{webhook}", get_webhook),
    ("PUT", "/v1/webhooks/{webhook}", put_webhook),
    ("DELETE", "/v1/webhooks/{webhook}", delete_webhook),
)
