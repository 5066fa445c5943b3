"""One WebSocket client: its frames are read one by one, answered in the order in which they are done.

A publish costs no task and no coroutine: the connection is the kernel's `Owner`, and all that one flush made durable is
answered by one write. What waits for something (pop, settle) is a task, at most `MAX_REQUESTS` of them; then, and while
answers are not taken, or publishers have to wait, nothing more is read.
"""
from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.door_side import FLOOR_BYTES
from gatehouse.gateways.http.declaring import VALUES, wants_json
from gatehouse.gateways.http.door import NAME
from gatehouse.gateways.http.exchange import problem_document
from gatehouse.gateways.http.live.scope import Wanted
from gatehouse.gateways.http.mapping import Publication, read_idempotency_key
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.routes.events import begin, checked_topic, may_follow, require_follow, selector_of
from gatehouse.gateways.http.routes.messages import Batch, items_of, prepare, results_of
from gatehouse.gateways.http.transacting import group_name
from gatehouse.gateways.http.websocket.frames import Frame, check_fields, credit_in, id_of, name_in, read_frame, text_in
from gatehouse.gateways.http.websocket.requests import REQUESTS
from gatehouse.gateways.http.websocket.subscription import Listening, Subscription
from gatehouse.gateways.websocket.codec import (
    CLOSE,
    GOING_AWAY,
    INVALID_PAYLOAD,
    NORMAL,
    PING,
    POLICY,
    PONG,
    Broken,
    Control,
    Deflated,
    MessageReader,
    encode_close,
    encode_head,
    encode_text,
    read_close,
)
from gatehouse.kernel.message import NOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.contract import Link, Session
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.websocket.handshake import Deflate
    from gatehouse.kernel.message import Stored

MAX_REQUESTS: Final = 256
MAX_UNANSWERED: Final = 4_096            # publish frames that wait for the disk
MAX_SUBSCRIPTIONS: Final = 256
DEFAULT_CREDIT: Final = 1_000
DEFAULT_CHECKS: Final = 100
CLOSE_TIMEOUT_MS: Final = 2_000          # what a client is given to answer our close frame
HEARTBEATS: Final = 2                    # of the door's, after which a silent client is pinged; it has half as long
CLOSE_TEXT_BYTES: Final = 120

Id = str | int | None


def open_connection(door: Door, principal: Principal, deflate: Deflate | None, link: Link,
                    _: Callable[[Link], Session]) -> WebSocketConnection:
    """A `connections.settings.Framing`, but for what is known of the client."""
    return WebSocketConnection(door, principal, deflate, link)


# decision 69: owner of what it publishes: no task for it
class WebSocketConnection:
    """`contract.Session`, `kernel.message.Owner` of what it publishes, `RegisteredSession` of its principal's
    registration."""

    def __init__(self, door: Door, principal: Principal, deflate: Deflate | None, link: Link) -> None:
        self.door = door
        self.principal = principal
        self.guard = door.guard_of(principal)
        self._link = link
        self._reader = MessageReader(door.config.max_body_bytes, deflate is not None,
                                     deflate is None or deflate.client_keeps)
        self._window_bits = 0 if deflate is None else deflate.window_bits
        self._frames: deque[bytes | Deflated] = deque()      # read and not yet looked at
        self._out: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscriptions: dict[str, Subscription] = {}
        self._listening: dict[str, Listening] = {}           # by group
        self._unanswered = 0
        self._waits = False                  # for the kernel, before the next frame is looked at
        self._paused = False
        self._ended = False                  # nothing that comes is looked at any more
        self._gone = False
        self._drained: asyncio.Future[None] | None = None
        self._now_ms = door.services.now_ms
        self._silence_ms = round(door.config.heartbeat_s * HEARTBEATS * 1000)
        self._heard_ms = self._now_ms()
        self._ends_ms = 0                    # when the client has had its time to answer a close frame; 0: not yet
        self._registration = door.admission.register(principal, NAME, self)
        door.on_stopping.add(self.handle_stopping)
        link.wake_at(self._heard_ms + self._silence_ms)

    # --- what the shared connection calls ---------------------------------------------------------------------------

    def handle_data(self, data: bytes) -> None:
        self._heard_ms = self._now_ms()
        try:
            parts = self._reader.feed(data)
        except Broken as fault:
            self._close(fault.code, str(fault))
            return
        for part in parts:
            if isinstance(part, Control):
                self._on_control(part)
            elif not self._ended:
                self._frames.append(part)
        self._go_on()

    def held_bytes(self) -> int:
        """What has come and waits: for the rest of its message, or to be looked at."""
        return self._reader.held_bytes + sum([
            len(frame.payload if isinstance(frame, Deflated) else frame) for frame in self._frames])

    def handle_drained(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)
        self._go_on()

    def handle_timer(self, now_ms: int) -> None:
        if self._ends_ms:
            self._link.close("")
            return
        if self._paused:
            self._heard_ms = now_ms          # it may have spoken
        silent_ms = now_ms - self._heard_ms
        if silent_ms >= self._silence_ms * 3 // 2:
            self._link.close("heartbeat_timeout")
            return
        if silent_ms >= self._silence_ms:
            self._link.write(encode_head(PING, 0))
            self._link.wake_at(self._heard_ms + self._silence_ms * 3 // 2)
        else:
            self._link.wake_at(self._heard_ms + self._silence_ms)

    def handle_closed(self) -> None:
        self._ended = self._gone = True
        self._frames.clear()
        self.door.on_stopping.discard(self.handle_stopping)
        self._registration.leave()
        for subscription in list(self._subscriptions.values()):
            subscription.end()
        for listening in self._listening.values():
            listening.end()
        for task in self._tasks:
            task.cancel()
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(ConnectionResetError("the client has gone"))
            self._drained.exception()        # nobody may wait for it

    def handle_stopping(self) -> None:
        self._close(GOING_AWAY, "the hub is stopping")

    def on_principal_ended(self, reason: str) -> None:
        """Close the connection with code 1008, a policy that was violated (RFC 6455, 7.4.1)."""
        self._close(POLICY, reason)

    def describe(self) -> dict[str, Any]:
        """The connection's state, for people."""
        return {"user": self.principal.name, "protocol": "websocket", "subscriptions": len(self._subscriptions),
                "filters": [subscription.describe() for subscription in self._subscriptions.values()]}

    # --- reading ----------------------------------------------------------------------------------------------------

    def _on_control(self, frame: Control) -> None:
        if frame.opcode == PING and not self._ended:
            self._link.write(encode_head(PONG, len(frame.payload)) + frame.payload)
        elif frame.opcode == CLOSE:
            if self._ends_ms:
                self._link.close("")         # it answers ours
                return
            try:
                read_close(frame.payload)
            except Broken as fault:
                self._close(fault.code, str(fault))
                return
            self._end(NORMAL, "")
            self._link.close("")

    def _go_on(self) -> None:
        """Look at the frames that have come, as long as there is room for what they ask."""
        frames = self._frames
        while frames and not (self._waits or self._ended or self._full()):
            self._on_text(frames.popleft())
        if bool(frames) != self._paused and not self._gone:
            self._paused = bool(frames)
            if frames:
                self._link.pause()
            else:
                self._link.resume()

    def _on_text(self, data: bytes | Deflated) -> None:
        frame_id: Id = None
        try:
            frame = read_frame(self._reader.inflate(data) if isinstance(data, Deflated) else data)
            frame_id = id_of(frame)
            kind = check_fields(frame)
            if kind == "publish":
                if self.door.must_wait:
                    self._waits = True
                    self._start_task(self._publish_later(frame, frame_id))
                else:
                    self._publish(frame, frame_id)
            elif kind in REQUESTS:
                self._start(frame_id, REQUESTS[kind](self, frame))
            elif kind == "subscribe":
                self._start(frame_id, self._subscribe(frame))
            else:
                self._at_once(kind, frame, frame_id)
        except Broken as fault:
            self._close(fault.code, str(fault))
        except UnicodeDecodeError:           # RFC 6455, 8.1
            self._close(INVALID_PAYLOAD, "text that is not UTF-8")
        except Exception as error:           # everything that a frame can raise is answered, and the next one is read
            self._answer_error(frame_id, error)

    def _full(self) -> bool:
        return len(self._tasks) >= MAX_REQUESTS or self._unanswered >= MAX_UNANSWERED \
            or self._link.unsent_bytes > max(FLOOR_BYTES, self.door.most_unsent)

    def _at_once(self, kind: str, frame: Frame, frame_id: Id) -> None:
        if kind == "ping":
            self.answer({"type": "pong", "id": frame_id})
            return
        if kind in ("checks", "unlisten"):
            self._listen(kind, frame, frame_id)
            return
        subscription = self._subscriptions.get(name_in(frame, "subscription"))
        if subscription is None:
            raise Refusal("invalid_frame", "there is no such subscription")
        if kind == "credit":
            subscription.add_credit(credit_in(frame))
        else:
            subscription.end()
            self._subscriptions.pop(subscription.name, None)
            self.answer({"type": "unsubscribed", "id": frame_id, "subscription": subscription.name})

    def _listen(self, kind: str, frame: Frame, frame_id: Id) -> None:
        """Let the client be asked about the transactions of a group, or be asked more checks ahead, or no more."""
        group = group_name(frame.get("group"))
        listening = self._listening.get(group)
        if kind == "unlisten":
            if listening is not None:
                del self._listening[group]
                listening.end()
            self.answer({"type": "unlistened", "id": frame_id, "group": group})
            return
        self.door.admission.require_group(self.principal, Operation.TRANSACT, group)
        credit = credit_in(frame, DEFAULT_CHECKS)
        if listening is None and len(self._listening) >= MAX_SUBSCRIPTIONS:
            raise Refusal("too_many_requests", f"a connection listens to at most {MAX_SUBSCRIPTIONS} groups")
        self.answer({"type": "listening", "id": frame_id, "group": group})
        if listening is None:
            self._listening[group] = Listening(self, group, credit)
        else:
            listening.add_credit(credit)

    # --- publishing -------------------------------------------------------------------------------------------------

    async def _publish_later(self, frame: Frame, frame_id: Id) -> None:
        """Publish once the kernel has room; the frames behind it wait, too."""
        try:
            await self.door.ready_to_append(self.guard)
            self._publish(frame, frame_id)
        except Exception as error:           # the same as in `_on_text`
            self._answer_error(frame_id, error)
        finally:
            self._waits = False

    def _publish(self, frame: Frame, frame_id: Id) -> None:
        request = Publication()
        if frame.get("idempotency_key") is not None:
            request.idempotency_key = read_idempotency_key(text_in(frame, "idempotency_key").encode())
        items = items_of(frame.get("messages"), self.door.config.max_request_messages)
        batch = prepare(self.door, self.guard, None, items, request)
        if not batch.messages:
            self._answer_published(frame_id, batch, None)
            return
        whens = batch.whens if any(when is not NOW for when in batch.whens) else None
        self.door.submit(self.guard, batch.messages, self, (frame_id, batch), request.idempotency_key, whens)
        self._unanswered += 1

    def on_stored(self, stored: list[Stored]) -> None:
        """One flush is durable, or was refused."""
        self._unanswered -= len(stored)
        for answer in stored:
            frame_id, batch = cast(tuple[Id, Batch], answer.token)
            if answer.error is not None:
                self._answer_error(frame_id, answer.error.with_traceback(None))
            else:
                self._answer_published(frame_id, batch, answer)
        self._go_on()

    def _answer_published(self, frame_id: Id, batch: Batch, stored: Stored | None) -> None:
        self.answer({"type": "published", "id": frame_id, "messages": results_of(self.door, batch, stored, 201)})

    # --- what takes a while -----------------------------------------------------------------------------------------

    def _start(self, frame_id: Id, doing: Awaitable[Frame]) -> None:
        self._start_task(self._finish(frame_id, doing))

    def _start_task(self, doing: Coroutine[Any, Any, None]) -> None:
        task = self.door.loop.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._on_finished)

    async def _finish(self, frame_id: Id, doing: Awaitable[Frame]) -> None:
        try:
            answer = await doing
        except Exception as error:           # the same as in `_on_text`
            self._answer_error(frame_id, error)
        else:
            self.answer({"type": answer.pop("type"), "id": frame_id, **answer})

    def _on_finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._go_on()

    async def _subscribe(self, frame: Frame) -> Frame:
        name = name_in(frame, "subscription")
        topic, pattern, condition = text_in(frame, "topic"), text_in(frame, "filter"), text_in(frame, "selector")
        credit = credit_in(frame, DEFAULT_CREDIT)
        if bool(topic) == bool(pattern):
            raise Refusal("invalid_frame", "a subscription has a 'topic' or a 'filter'")
        whole = checked_topic(topic) if topic else None
        wanted = Wanted(self.principal.tenant, whole, pattern or None, condition, False,
                        wants_json({VALUES.name: text_in(frame, VALUES.name) or "text"}))
        require_follow(self.door, self.principal, wanted)
        feed = self.door.feeds.open(wanted, selector_of(condition, "selector"))
        try:
            positions = await begin(self.door, feed, text_in(frame, "from") or None, text_in(frame, "cursor"))
            require_follow(self.door, self.principal, wanted)        # the right may have gone while this waited
            if name in self._subscriptions:
                raise Refusal("invalid_frame", f"there is a subscription {name!r} already")
            if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
                raise Refusal("too_many_requests", f"a connection has at most {MAX_SUBSCRIPTIONS} subscriptions")
        except BaseException:
            self.door.feeds.close(feed)
            raise
        cursor = positions.word().decode() or None
        self._subscriptions[name] = Subscription(self.door, self, name, feed, positions, credit,
                                                 partial(may_follow, self.door, self.principal, wanted))
        return {"type": "subscribed", "subscription": name, "cursor": cursor}

    def forget(self, subscription: Subscription) -> None:
        """Forget a subscription that has ended."""
        if self._subscriptions.get(subscription.name) is subscription:
            del self._subscriptions[subscription.name]

    # --- writing ----------------------------------------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for the client to take them."""
        return self._link.unsent_bytes

    async def drained(self) -> None:
        """Returns once the client has taken most of what was written. Raises ConnectionError where it has gone."""
        if self._gone:
            raise ConnectionResetError("the client has gone")
        if self._link.unsent_bytes > FLOOR_BYTES:
            if self._drained is None:
                self._drained = self.door.loop.create_future()
            await asyncio.shield(self._drained)              # several subscriptions may wait, and any may end

    def answer(self, frame: Frame) -> None:
        """Send one frame."""
        self.send(orjson.dumps(frame))

    def _answer_error(self, frame_id: Id, error: Exception) -> None:
        self.answer({"type": "error", "id": frame_id, "problem": problem_document(error)})

    def send(self, payload: bytes) -> None:
        """Queue a frame; those of one turn leave in one write."""
        if not self._out:
            self.door.loop.call_soon(self._flush)
        encoded = encode_text(payload, self._window_bits)
        self.door.flow.bytes_out += len(encoded)
        self._out.append(encoded)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if not self._ended:
            self._link.write(b"".join(out))

    # --- the end ----------------------------------------------------------------------------------------------------

    def on_rights_changed(self) -> None:
        """Subscriptions that are no longer allowed end, and so does listening."""
        for listening in list(self._listening.values()):
            if not listening.allowed():
                listening.end()
                del self._listening[listening.group]
                problem = problem_document(Refusal("not_authorized", "the right to transact was taken away"))
                self.answer({"type": "error", "group": listening.group, "problem": problem})
        for subscription in list(self._subscriptions.values()):
            if not subscription.allowed():
                subscription.end()
                problem = problem_document(Refusal("not_authorized", "the right to read this was taken away"))
                self.answer({"type": "error", "subscription": subscription.name, "problem": problem})

    def _close(self, code: int, reason: str) -> None:
        """Say goodbye; the client has a moment to say so, too (RFC 6455, 7.1.1)."""
        if not self._ended:
            self._end(code, reason)
            self._ends_ms = self._now_ms() + CLOSE_TIMEOUT_MS
            self._link.wake_at(self._ends_ms)
            if self._paused:
                self._paused = False
                self._link.resume()

    def _end(self, code: int, reason: str) -> None:
        self._flush()
        self._ended = True
        self._frames.clear()
        self._link.write(encode_close(code, reason[:CLOSE_TEXT_BYTES]))
