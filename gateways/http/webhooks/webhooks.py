"""All webhooks: kept as definitions in the log, where a start and a backup find them, and at work while enabled.

Not tables in SQL beside the catalogue: a webhook is nothing without its group's progress, which is in the log. Kept
together they are durable together, and there is no second database to restore to the same moment.
"""
from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.circuits import TargetCircuits
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.webhooks.definition import Webhook, decode_webhook
from gatehouse.gateways.http.webhooks.guard import TargetGuard
from gatehouse.kernel.circuit_breaker import CircuitSettings
from gatehouse.kernel.errors import Stopping
from gatehouse.tracing.context import hex_of, in_a_line

if TYPE_CHECKING:
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.webhooks.asker import WebhookAsker
    from gatehouse.gateways.http.webhooks.runner import Runner

log = logging.getLogger("gatehouse.gateways.http")

DOOR: Final = "http"
SPACE: Final = "webhook"
MAX_WEBHOOKS: Final = 1_000

Key = tuple[str, str]
"""(tenant, name)"""


def circuit_id(name: str, target: int | None = None) -> str:
    """The id of a webhook's circuit, or of that of one of several targets; see `gateways.circuits`."""
    return f"webhook:{name}" if target is None else f"webhook:{name}:{target + 1}"


class Webhooks:
    """All webhooks of the hub, by tenant and name. Started once the hub is ready; stopped before the kernel."""

    def __init__(self, door: Door) -> None:
        self.guard = TargetGuard(door.config.webhook_allow)
        self._door = door
        self._known: dict[Key, Webhook] = {}
        self._runners: dict[Key, Runner | WebhookAsker] = {}
        self._circuits: dict[Key, TargetCircuits] = {}
        self._circuit_settings = CircuitSettings(
            door.config.webhook_failures, round(door.config.webhook_open_s * 1000),
            slow_ms=round(door.config.webhook_slow_s * 1000))
        self._closing: set[asyncio.Task[None]] = set()
        self._being_kept: Counter[Key] = Counter()           # changes that are not durable yet

    def start(self) -> None:
        """Put to work what is kept."""
        for tenant, name, value in self._door.services.kernel.definitions(SPACE):
            key = (tenant, name)
            self._known[key] = decode_webhook(value)
            self._run(key)

    async def stop(self) -> None:
        """Give back what is under way."""
        runners, self._runners = list(self._runners.values()), {}
        await asyncio.gather(*(runner.close() for runner in runners), *self._closing, return_exceptions=True)

    def names(self, tenant: str) -> list[str]:
        """The names of a tenant's webhooks, sorted."""
        return sorted(name for of, name in self._known if of == tenant)

    def get(self, tenant: str, name: str) -> Webhook | None:
        """The webhook of this name as it is kept; None where there is none."""
        return self._known.get((tenant, name))

    def define(self, tenant: str, name: str) -> dict[str, Any] | None:
        """The definition of a webhook as it is kept, for people. None where there is no such webhook."""
        webhook = self.get(tenant, name)
        return None if webhook is None else {"name": name, **webhook.describe()}

    def state(self, tenant: str, name: str) -> dict[str, Any]:
        """The state of a webhook at work, for people."""
        runner, circuits = self._runners.get((tenant, name)), self._circuits.get((tenant, name))
        if runner is None or circuits is None:
            return {"state": None}
        circuit = circuits.whole
        until_ms = self._door.services.wall_of(circuit.until_ms) if circuit.until_ms else None
        return {"state": {**runner.describe(), "circuit": circuit.state, "circuit_by_hand": circuit.by_hand,
                          "circuit_opened": circuit.opened, "circuit_until": until_ms,
                          "targets": [{"url": url, "circuit": each.state} for url, each in zip(
                              self._known[tenant, name].urls, circuits.each, strict=True)]}}

    def describe(self, tenant: str, name: str) -> dict[str, Any]:
        """The definition and the state of a webhook, for people."""
        return {**(self.define(tenant, name) or {}), **self.state(tenant, name)}

    def _on_turned(self, key: Key) -> None:
        runner = self._runners.get(key)
        if runner is not None:
            runner.on_circuit()

    def _forget_circuit(self, key: Key) -> None:
        self._hide_circuits(key)
        self._circuits.pop(key, None)

    def _hide_circuits(self, key: Key) -> None:
        circuits = self._circuits.get(key)
        if circuits is not None:
            for target in (None, *range(len(circuits.each))):
                self._door.services.circuits.forget(circuit_id(key[1], target), key[0])

    def _show_circuits(self, key: Key, circuits: TargetCircuits) -> None:
        tenant, name = key
        shown, turned = self._door.services.circuits, partial(self._on_turned, key)
        shown.keep(circuit_id(name), circuits.whole, turned, tenant)
        if len(circuits.each) > 1:
            for target, circuit in enumerate(circuits.each):
                shown.keep(circuit_id(name, target), circuit, turned, tenant)

    async def put(self, tenant: str, name: str, webhook: Webhook) -> None:
        """Keep it, and put it to work once it is durable. Refuses `forbidden_url`, `too_many_webhooks`."""
        for url in webhook.urls:
            self.guard.check(url)
        if (tenant, name) not in self._known and len(self._known) >= MAX_WEBHOOKS:
            raise Refusal("too_many_webhooks", f"there are {MAX_WEBHOOKS} webhooks already")
        await self._keep(tenant, name, webhook.encode())
        before = self._known.get((tenant, name))
        if before is not None and before.urls != webhook.urls:
            self._forget_circuit((tenant, name))
        self._known[tenant, name] = webhook
        self._run((tenant, name))

    async def delete(self, tenant: str, name: str) -> None:
        """Forget it; its group stays, with its progress."""
        await self._keep(tenant, name, None)
        self._known.pop((tenant, name), None)
        self._forget_circuit((tenant, name))
        self._halt((tenant, name))

    async def _keep(self, tenant: str, name: str, value: bytes | None) -> None:  # decision 72
        put = partial(self._door.services.kernel.put_definition, SPACE, name, value, tenant)
        self._being_kept[tenant, name] += 1
        try:
            await self._door.durable(lambda owner, token: put(owner, token))
        finally:
            self._being_kept[tenant, name] -= 1

    def _run(self, key: Key) -> None:
        self._halt(key)
        webhook = self._known[key]
        if not webhook.enabled or self._door.stopping:
            return
        try:
            self._runners[key] = self._runner(key, webhook)
        except Refusal as error:             # `webhook_allow` is narrower than it was
            self._known[key] = replace(webhook, disabled_because=error.detail)
            log.warning("the webhook %s is not run: %s", key[1], error.detail)

    def _runner(self, key: Key, webhook: Webhook) -> Runner | WebhookAsker:
        """Raises Refusal where its URL is not allowed."""
        # With them comes aiohttp, a fifth of all that a hub loads at its start, and few hubs have webhooks.
        from gatehouse.gateways.http.webhooks.asker import WebhookAsker
        from gatehouse.gateways.http.webhooks.runner import Runner

        tenant, name = key
        disable = partial(self._disable, key)
        circuits = self._circuits.setdefault(key, TargetCircuits(self._circuit_settings, len(webhook.urls)))
        self._show_circuits(key, circuits)
        if webhook.checks:
            return WebhookAsker(self._door, tenant, name, webhook, self.guard, circuits, disable)
        handing_out = self._door.admission.handing_out(DOOR)
        handing_out.renew(f"webhook {name}", (), tenant, "")
        return Runner(self._door, tenant, webhook, self.guard, circuits, handing_out, disable)

    def _halt(self, key: Key) -> None:
        self._hide_circuits(key)
        runner = self._runners.pop(key, None)
        if runner is not None:
            closing = self._door.loop.create_task(runner.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _disable(self, key: Key, reason: str, context: bytes) -> None:
        webhook = self._known.get(key)
        if webhook is None or self._being_kept[key]:         # somebody is just saying otherwise, or has deleted it
            return
        self._known[key] = disabled = replace(webhook, enabled=False, disabled_because=reason)
        self._halt(key)
        trace, fields = in_a_line(hex_of(context))
        log.warning("the webhook %s is disabled: %s%s", key[1], reason, trace, extra={"fields": fields})
        try:
            self._door.services.kernel.put_definition(SPACE, key[1], disabled.encode(), key[0])
        except Stopping:
            pass                             # the receiver will say so again
