"""One webhook that is asked what became of a group's transactions: a member of the group, by POST.

    2xx with {"decision": "commit"} or {"decision": "rollback"}      decided
    2xx with {"decision": "unknown"}                                 asked again in time, of any member
    410                                                              the webhook is disabled
    anything else: nonsense, another status, no answer in time       counts as unknown

A POST is `application/json`, a check as `gateways.checks` describes it, signed as every webhook's; its `webhook-id`
names transaction and attempt. Every question is in the log before it is posted, and comes again if it is lost. While
the circuit is open it is not posted, which counts as unknown.
"""
from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from gatehouse.gateways.checks import InvalidDecision, describe_check, read_verdict
from gatehouse.gateways.circuits import NOBODY
from gatehouse.gateways.http.webhooks.runner import GONE, note_outcome
from gatehouse.gateways.http.webhooks.sender import Outcome, WebhookSender
from gatehouse.gateways.http.webhooks.signing import sign

if TYPE_CHECKING:
    from gatehouse.gateways.circuits import TargetCircuits
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.webhooks.definition import Webhook
    from gatehouse.gateways.http.webhooks.guard import TargetGuard
    from gatehouse.transactions.coordinator import Check, Decision


class WebhookAsker:
    """A `transactions.members.Member`. `disable` is called, with the reason, when the receiver answers 410."""

    def __init__(self, door: Door, tenant: str, name: str, webhook: Webhook, guard: TargetGuard,
                 circuits: TargetCircuits, disable: Callable[[str, bytes], None]) -> None:
        self.counts: Counter[str] = Counter()                # delivered: decided; failed: not
        self.last = Outcome(0, "nothing was asked yet")
        self._door = door
        self._tenant = tenant
        self._by = f"webhook {name}"
        self._webhook = webhook
        self._disable = disable
        self._circuits = circuits
        self._senders = [WebhookSender(webhook, guard, url) for url in webhook.urls]
        self._posts: set[asyncio.Task[None]] = set()
        self._membership = door.switchboard.transactions.join(webhook.checks, tenant, self, name=self._by,
                                                           credit=webhook.concurrency)

    async def close(self) -> None:
        """Ask no more; what is under way is asked again in time."""
        self._membership.leave()
        for post in self._posts:
            post.cancel()
        await asyncio.gather(*self._posts, return_exceptions=True)
        self._circuits.give_up_probes(self._door.services.now_ms())
        for sender in self._senders:
            await sender.close()

    def describe(self) -> dict[str, Any]:
        """How it does, since the hub's start."""
        return {"delivered": self.counts["delivered"], "failed": self.counts["failed"], "posting": len(self._posts),
                "last": self.last.detail, "connected": True}

    def on_checks(self, checks: list[Check]) -> None:
        """Called by the coordinator; never more than there is credit for."""
        for check in checks:
            post = self._door.loop.create_task(self._ask(check))
            self._posts.add(post)
            post.add_done_callback(self._on_posted)

    def _on_posted(self, post: asyncio.Task[None]) -> None:
        self._posts.discard(post)
        if not post.cancelled():
            self._membership.add_credit(1)
            fault = post.exception()
            if fault is not None:
                self._door.loop.call_exception_handler({"message": "a webhook failed", "exception": fault})

    def on_circuit(self) -> None:
        """The circuit was opened or closed by hand: what is asked next finds it so."""

    async def _ask(self, check: Check) -> None:
        target = self._circuits.choose(self._door.services.now_ms())
        if target == NOBODY:
            self.counts["failed"] += 1
            return
        try:
            body = orjson.dumps(describe_check(check, self._door.door_names))
        except Exception:                    # told by `_on_posted`
            self._circuits.give_up_probe(target, self._door.services.now_ms())
            raise
        now_ms = self._door.services.wall_ms()
        headers = {"Content-Type": "application/json"} | sign(
            self._webhook.keys(now_ms), f"check_{check.id}_{check.attempt}", now_ms // 1000, body)
        self.last = outcome = await self._senders[target].post(body, headers)
        note_outcome(self._door, self._circuits, target, self._webhook, outcome)
        if outcome.status == GONE:
            self._disable("the receiver answered 410: it wants nothing more", b"")
            return
        decision = self._read(outcome)
        if decision is None:
            self.counts["failed"] += 1
            return
        self.counts["delivered"] += 1
        self._door.switchboard.transactions.decide(check.id, decision, tenant=self._tenant, by=self._by)

    def _read(self, outcome: Outcome) -> Decision | None:
        if not outcome.delivered:
            return None
        try:
            document = orjson.loads(outcome.answer)
            return read_verdict(document.get("decision") if isinstance(document, dict) else None)
        except (orjson.JSONDecodeError, InvalidDecision):
            self.last = outcome._replace(detail=f"{outcome.status}, and the answer is no decision")
            return None
