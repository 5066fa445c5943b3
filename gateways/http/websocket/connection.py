"""One WebSocket client: its frames are read one by one, answered in the order in which they are done.

A publish costs no task and no future: the connection is the kernel's `Owner`, and all that one flush made durable is
answered by one write. What waits for something (pop, settle) is a task, at most `MAX_REQUESTS` of them; then, and while
answers are not taken, or publishers have to wait, nothing more is read.
"""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import orjson
from aiohttp import WSCloseCode, WSMsgType, web

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.door import NAME
from gatehouse.gateways.http.errors import problem_document
from gatehouse.gateways.http.live.scope import Wanted
from gatehouse.gateways.http.mapping import Publication, read_idempotency_key
from gatehouse.gateways.http.parameters import VALUES, wants_json
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.routes.events import begin, checked_topic, may_follow, require_follow, selector_of
from gatehouse.gateways.http.routes.messages import Batch, items_of, prepare, results_of
from gatehouse.gateways.http.routes.transactions import group_name
from gatehouse.gateways.http.websocket.frames import Frame, check_fields, credit_in, id_of, name_in, read_frame, text_in
from gatehouse.gateways.http.websocket.listening import Listening
from gatehouse.gateways.http.websocket.requests import REQUESTS
from gatehouse.gateways.http.websocket.subscription import Subscription
from gatehouse.gateways.http.websocket.wire import encode_text
from gatehouse.kernel.message import NOW

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.http.door import Door
    from gatehouse.gateways.http.server import DoorProtocol
    from gatehouse.kernel.message import Stored

MAX_REQUESTS: Final = 256
MAX_UNANSWERED: Final = 4_096            # publish frames that wait for the disk
MAX_SUBSCRIPTIONS: Final = 256
DEFAULT_CREDIT: Final = 1_000
DEFAULT_CHECKS: Final = 100

Id = str | int | None


# decision 69: owner of what it publishes: no task for it
class WebSocketConnection:
    """`kernel.message.Owner` of what it publishes, `RegisteredSession` of its principal's registration."""

    def __init__(self, door: Door, principal: Principal, request: web.Request, socket: web.WebSocketResponse) -> None:
        self.door = door
        self.principal = principal
        self.socket = socket
        self._transport = request.transport
        self._protocol = cast("DoorProtocol", request.protocol)
        self._window_bits = int(socket.compress)
        self._out: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscriptions: dict[str, Subscription] = {}
        self._listening: dict[str, Listening] = {}           # by group
        self._unanswered = 0
        self._room: asyncio.Future[None] | None = None
        self._closing: asyncio.Task[bool] | None = None      # kept, or nobody would

    async def run(self) -> None:
        """Serve the client until it goes, or must go."""
        registration = self.door.admission.register(self.principal, NAME, self)
        self.door.on_stopping.add(self._on_stopping)
        self._protocol.stream = self
        try:
            await self._read()
        finally:
            self._protocol.stream = None
            self.door.on_stopping.discard(self._on_stopping)
            registration.leave()
            for subscription in list(self._subscriptions.values()):
                subscription.end()
            for listening in self._listening.values():
                listening.end()
            for task in self._tasks:
                task.cancel()

    def describe(self) -> dict[str, Any]:
        """The connection's state, for people."""
        return {"user": self.principal.name, "protocol": "websocket", "subscriptions": len(self._subscriptions),
                "filters": [subscription.describe() for subscription in self._subscriptions.values()]}

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        receive = self.socket.receive
        while not self.socket.closed:
            message = await receive()
            if message.type is WSMsgType.TEXT:
                await self._on_text(message.data)
            elif message.type is WSMsgType.BINARY:
                await self.socket.close(code=WSCloseCode.UNSUPPORTED_DATA, message=b"frames are JSON text")
            else:
                return

    async def _on_text(self, data: bytes) -> None:
        frame_id: Id = None
        try:
            frame = read_frame(data)
            frame_id = id_of(frame)
            kind = check_fields(frame)
            if kind == "publish":
                if self.door.must_wait:
                    await self.door.ready_to_append(self.principal)
                self._publish(frame, frame_id)
            elif kind in REQUESTS:
                self._start(frame_id, REQUESTS[kind](self, frame))
            elif kind == "subscribe":
                self._start(frame_id, self._subscribe(frame))
            else:
                self._at_once(kind, frame, frame_id)
        except UnicodeDecodeError:           # RFC 6455, 8.1
            await self.socket.close(code=WSCloseCode.INVALID_TEXT, message=b"text that is not UTF-8")
        except Exception as error:           # everything that a frame can raise is answered, and the next one is read
            self._answer_error(frame_id, error)
        while self._full():
            self._room = self.door.loop.create_future()
            await self._room
        if self.unsent_bytes > self.door.config.stream_unsent_bytes:
            await self.drained()

    def _full(self) -> bool:
        return len(self._tasks) >= MAX_REQUESTS or self._unanswered >= MAX_UNANSWERED

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

    def _publish(self, frame: Frame, frame_id: Id) -> None:
        request = Publication()
        if frame.get("idempotency_key") is not None:
            request.idempotency_key = read_idempotency_key(text_in(frame, "idempotency_key").encode())
        items = items_of(frame.get("messages"), self.door.config.max_request_messages)
        batch = prepare(self.door, self.principal, None, items, request)
        if not batch.messages:
            self._answer_published(frame_id, batch, None)
            return
        whens = batch.whens if any(when is not NOW for when in batch.whens) else None
        self.door.submit(self.principal, batch.messages, self, (frame_id, batch), request.idempotency_key, whens)
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
        self._make_room()

    def _answer_published(self, frame_id: Id, batch: Batch, stored: Stored | None) -> None:
        self.answer({"type": "published", "id": frame_id, "messages": results_of(batch, stored, 201)})

    # --- what takes a while -----------------------------------------------------------------------------------------

    def _start(self, frame_id: Id, doing: Awaitable[Frame]) -> None:
        task = self.door.loop.create_task(self._finish(frame_id, doing))
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
        self._make_room()

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done() and not self._full():
            self._room.set_result(None)

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
        transport = self._transport
        return 0 if transport is None else transport.get_write_buffer_size()

    async def drained(self) -> None:
        """See `DoorProtocol.drained`."""
        await self._protocol.drained()

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
        transport = self._transport
        if transport is not None and not transport.is_closing() and not self.socket.closed:
            transport.write(b"".join(out))

    # --- the end ----------------------------------------------------------------------------------------------------

    def on_principal_ended(self, reason: str) -> None:
        """Close the connection with code 1008, a policy that was violated (RFC 6455, 7.4.1)."""
        self._close(WSCloseCode.POLICY_VIOLATION, reason)

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

    def _on_stopping(self) -> None:
        self._close(WSCloseCode.GOING_AWAY, "the hub is stopping")

    def _close(self, code: WSCloseCode, reason: str) -> None:
        self._closing = self.door.loop.create_task(self.socket.close(code=code, message=reason.encode()[:120]))
