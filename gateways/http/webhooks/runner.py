"""One webhook at work: a member of its group. Takes messages, posts them, settles them by the answer.

    2xx          acknowledged
    410          the receiver wants nothing more (Standard Webhooks): the webhook is disabled, the message stays
    Retry-After  on any other answer: this message comes again then, and nothing is posted until then
    else         the group's retry decides when it comes again, and after how many attempts it is a dead letter

Where too many POSTs fail, the circuit opens: what was taken waits, untried, and one POST at a time asks whether the
receiver is back. A Retry-After is an answer of a receiver that is there. With several URLs each POST goes to one of
them, see `gateways.circuits`.

What goes out is charged to the limits of it, with the webhook as the user; while one is overdrawn nothing is posted.

What is under way when the hub stops or dies is handed out again after the start: receivers tell a repetition by
`webhook-id`.
"""
from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import orjson

from gatehouse.gateways.circuits import NOBODY
from gatehouse.gateways.http.cloud_events import BATCH as BATCH_TYPE
from gatehouse.gateways.http.cloud_events import STRUCTURED as EVENT_TYPE
from gatehouse.gateways.http.cloud_events import to_binary, to_structured
from gatehouse.gateways.http.column import show_user_header
from gatehouse.gateways.http.webhooks.definition import BATCH, BINARY
from gatehouse.gateways.http.webhooks.sender import Outcome, WebhookSender
from gatehouse.gateways.http.webhooks.signing import sign
from gatehouse.kernel.api import ACK, RELEASE, Settling, Taken
from gatehouse.kernel.errors import KernelError, UnknownTopic
from gatehouse.kernel.message import Origin
from gatehouse.kernel.records.batch import public_headers
from gatehouse.tracing.context import STATE, hex_of, in_a_line, traceparent_in

if TYPE_CHECKING:
    from gatehouse.gateways.admission.limits.handing_out import HandingOut
    from gatehouse.gateways.circuits import TargetCircuits
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.webhooks.definition import Webhook
    from gatehouse.gateways.http.webhooks.guard import TargetGuard
    from gatehouse.kernel.message import Handle, Record

log = logging.getLogger("gatehouse.gateways.http")

LOOK_S: Final = 1.0
"""How often a topic is looked for that does not exist yet, or a group that cannot be joined."""

GONE: Final = 410


class Runner:  # decision 72
    """`disable` is called, with the reason and a trace context, when the receiver answers 410. `circuits` outlive the
    runner. What `handing_out` has is charged for each POST: that is, for each try."""

    def __init__(self, door: Door, tenant: str, webhook: Webhook, guard: TargetGuard, circuits: TargetCircuits,
                 handing_out: HandingOut, disable: Callable[[str, bytes], None]) -> None:
        self.webhook = webhook
        self.counts: Counter[str] = Counter()                # delivered, failed
        self.last = Outcome(0, "nothing was posted yet")
        self._door = door
        self._tenant = tenant
        self._disable = disable
        self._circuits = circuits
        self._senders = [WebhookSender(webhook, guard, url) for url in webhook.urls]
        self._handing_out = handing_out
        self._groups = door.port.groups
        self._waiting: list[Taken] = []
        self._posts: set[asyncio.Task[None]] = set()
        self._paused_until = 0.0
        self._resuming: asyncio.TimerHandle | None = None
        self._member = 0
        self._per_post = webhook.max_batch if webhook.mode == BATCH else 1
        self._joining = door.loop.create_task(self._join())

    async def close(self) -> None:
        """Give back what is not settled."""
        self._joining.cancel()
        self._waiting.clear()
        if self._resuming is not None:
            self._resuming.cancel()
        for post in self._posts:
            post.cancel()
        if self._member:
            self._groups.leave(self._member)
        await asyncio.gather(*self._posts, return_exceptions=True)
        self._circuits.give_up_probes(self._door.services.now_ms())
        for sender in self._senders:
            await sender.close()

    def describe(self) -> dict[str, Any]:
        """How it does, since the hub's start."""
        return {"delivered": self.counts["delivered"], "failed": self.counts["failed"], "posting": len(self._posts),
                "last": self.last.detail, "connected": self._member > 0}

    # --- the group --------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        """Take a place in the group, as soon as there is a topic."""
        while not self._member:
            try:
                self._member = self._groups.join(
                    (self.webhook.group, self.webhook.topic), self._tenant, self.webhook.concurrency * self._per_post,
                    True, Origin("http", client=f"webhook of {self.webhook.group}"), self.on_leased, self.on_gone)
            except UnknownTopic:
                self.last = Outcome(0, f"there is no topic {self.webhook.topic!r} yet")
            except KernelError as error:
                self.last = Outcome(0, str(error))
            else:
                return
            await asyncio.sleep(LOOK_S)

    def on_leased(self, messages: list[Taken]) -> None:
        """Messages to post."""
        self._waiting += messages
        self._post_some()

    def on_gone(self) -> None:
        """The topic was deleted: wait for another one of its name."""
        self._waiting.clear()
        self._member = 0
        self._joining = self._door.loop.create_task(self._join())

    # --- posting ----------------------------------------------------------------------------------------------------

    def on_circuit(self) -> None:
        """The circuit was opened or closed by hand."""
        self._post_some()

    def _post_some(self) -> None:
        loop = self._door.loop
        while self._waiting and len(self._posts) < self.webhook.concurrency:
            pause_s = self._paused_until - loop.time()
            if pause_s > 0:
                self._resume_in(pause_s)
                return
            wait_ms = self._handing_out.wait_ms()
            if wait_ms:
                self._resume_in(wait_ms / 1000)
                return
            now_ms = self._door.services.now_ms()
            target = self._circuits.choose(now_ms)
            if target == NOBODY:
                if self._circuits.until_ms > now_ms:
                    self._resume_in((self._circuits.until_ms - now_ms) / 1000)
                return
            messages, self._waiting = self._waiting[:self._per_post], self._waiting[self._per_post:]
            self._charge(messages)
            post = loop.create_task(self._post(messages, target))
            self._posts.add(post)
            post.add_done_callback(self._on_posted)

    def _charge(self, messages: list[Taken]) -> None:
        """What goes out, to all limits that speak of it."""
        if not self._door.admission.limits.limits_out:
            return
        for taken in messages:
            self._handing_out.take(1, len(taken.leased[6] or b""), self.webhook.topic, taken.address,
                                   self.webhook.group)

    def _resume_in(self, wait_s: float) -> None:
        if self._resuming is not None:
            self._resuming.cancel()
        self._resuming = self._door.loop.call_later(wait_s, self._resume)

    def _resume(self) -> None:
        self._resuming = None
        self._post_some()

    def _on_posted(self, post: asyncio.Task[None]) -> None:
        self._posts.discard(post)
        if not post.cancelled():
            fault = post.exception()
            if fault is not None:
                self._door.loop.call_exception_handler({"message": "a webhook failed", "exception": fault})
            self._post_some()

    async def _post(self, messages: list[Taken], target: int) -> None:
        member = self._member
        if not member:
            self._circuits.give_up_probe(target, self._door.services.now_ms())
            return
        try:
            await self._post_to(member, messages, target)
        except Exception:                    # told by `_on_posted`; to the group it is an attempt that failed
            self._circuits.give_up_probe(target, self._door.services.now_ms())           # if it was one
            self.counts["failed"] += len(messages)
            self.last = Outcome(0, "a mistake of the hub; its log says more")
            self._groups.settle_held(member, _handles(messages), Settling(RELEASE))
            raise
        finally:
            self._groups.add_credit(member, len(messages))

    async def _post_to(self, member: int, messages: list[Taken], target: int) -> None:
        body, headers, webhook_id = self._encode(messages)
        context = traceparent_in(messages[0].leased[7])
        if len(messages) == 1 and context:
            headers |= {"traceparent": context.decode(), **_state_of(messages[0].leased[7])}
        now_ms = self._door.services.wall_ms()
        headers |= sign(self.webhook.keys(now_ms), webhook_id, now_ms // 1000, body)
        self.last = outcome = await self._senders[target].post(body, headers)
        note_outcome(self._door, self._circuits, target, self.webhook, outcome, context)
        if outcome.delivered:
            self.counts["delivered"] += len(messages)
            self._door.flow.messages_out += len(messages)
            self._door.flow.bytes_out += len(body)
            self._groups.settle_held(member, _handles(messages), Settling(ACK))
        else:
            self._failed(member, messages, outcome, context)

    def _failed(self, member: int, messages: list[Taken], outcome: Outcome, context: bytes = b"") -> None:
        self.counts["failed"] += len(messages)
        delay_ms: int | None = None
        if outcome.status == GONE:
            delay_ms = 0
        elif outcome.retry_after_s is not None:
            self._paused_until = self._door.loop.time() + outcome.retry_after_s
            delay_ms = round(outcome.retry_after_s * 1000)
        self._groups.settle_held(member, _handles(messages), Settling(RELEASE, delay_ms))
        if outcome.status == GONE:
            self._disable("the receiver answered 410: it wants nothing more", context)

    def _encode(self, messages: list[Taken]) -> tuple[bytes, dict[str, str], str]:
        """(body, headers, webhook-id) of a POST."""
        shown = [self._shown(message) for message in messages]
        webhook_id = f"msg_{shown[0][0][6]}" if len(shown) == 1 else f"msg_{shown[0][0][6]}_{shown[-1][0][6]}"
        record, address = shown[0]
        if self.webhook.mode == BINARY:
            return record[3] or b"", to_binary(record, self.webhook.topic, address), webhook_id
        events = [to_structured(message, self.webhook.topic, where) for message, where in shown]
        if self.webhook.mode == BATCH:
            return orjson.dumps(events), {"Content-Type": BATCH_TYPE}, webhook_id
        return orjson.dumps(events[0]), {"Content-Type": EVENT_TYPE}, webhook_id

    def _shown(self, taken: Taken) -> tuple[Record, str]:
        """The message as a record, and its address."""
        leased, address, _ = taken
        _, offset, _, message_id, timestamp_ms, key, value, headers, attributes = leased
        record = (offset, timestamp_ms, key, value, public_headers(headers), attributes, message_id)
        return record, address or self.webhook.topic


def _state_of(headers: bytes) -> dict[str, str]:
    """`tracestate`, as far as HTTP can carry it; several headers are one list."""
    shown = [show_user_header(name.decode(), value) for name, value in public_headers(headers) if name == STATE]
    states = [state[1] for state in shown if state is not None]
    return {STATE.decode(): ",".join(states)} if states else {}


def _handles(messages: list[Taken]) -> list[Handle]:
    return [message.leased[:3] for message in messages]


def note_outcome(door: Door, circuits: TargetCircuits, target: int, webhook: Webhook, outcome: Outcome,
                 context: bytes = b"") -> None:
    """What a POST says of the receiver. One that names a time to come again, or wants nothing more, is there.
    `context`: the trace context of its first message."""
    now_ms = door.services.now_ms()
    if not outcome.delivered and outcome.retry_after_s is not None:
        circuits.give_up_probe(target, now_ms + round(outcome.retry_after_s * 1000))
    elif outcome.status != GONE and circuits.note(target, outcome.delivered, now_ms, outcome.took_ms, outcome.detail):
        state = circuits.each[target].state
        trace, fields = in_a_line(hex_of(context))
        log.warning("the circuit to %s is %s: %s%s", webhook.urls[target], state, outcome.detail, trace,
                    extra={"fields": fields})
        door.admission.trace.on_event("http", f"webhook_circuit_{state}")
