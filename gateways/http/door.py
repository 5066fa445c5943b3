"""What every call of the HTTP door shares: the kernel and admission behind it, its bounds, and the waiting it does.

One `Door` per running service. Routes are plain functions `(door, call) -> response`; they keep no state of their own.
"""
from __future__ import annotations

import asyncio
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiohttp import web

from gateways.admission.decision import Operation
from gateways.http.answers import DateHeader
from gateways.http.body import Bodies
from gateways.http.config import HttpConfig
from gateways.http.problems import Refusal
from gateways.http.receipts import Receipts
from gateways.http.target import decode_level, decode_query
from kernel.errors import UnknownTopic

if TYPE_CHECKING:
    from gateways.admission.principal import Principal
    from gateways.contract import Services
    from kernel.message import Message, Stored, When
    from kernel.topics import Topic

DOOR: Final = 2
"""This door's number in the attributes of each record that came in here."""

NAME: Final = "http"


class Call:
    """One request: its raw captures of the path, and its raw query."""

    __slots__ = ("request", "captures", "raw_query")

    def __init__(self, request: web.Request, captures: tuple[str, ...], raw_query: str) -> None:
        self.request = request
        self.captures = captures
        self.raw_query = raw_query

    def query(self, *known: str) -> dict[str, str]:
        """The query parameters; refuses those that the call does not know."""
        return decode_query(self.raw_query, frozenset(known)) if self.raw_query else {}

    def topic_name(self) -> str:
        """The first capture, decoded."""
        return decode_level(self.captures[0])


T = TypeVar("T")

Handler = Callable[["Door", Call], Awaitable[web.StreamResponse]]
Routes = tuple[tuple[str, str, Handler], ...]
"""(method, pattern, handler) of the calls in one file."""


class Door:
    """The running HTTP door."""

    def __init__(self, services: Services, config: HttpConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.services = services
        self.config = config
        self.loop = loop
        self.kernel = services.kernel
        self.admission = services.admission
        self.receipts = Receipts(loop, config.request_deadline_s)
        self.bodies = Bodies(config)
        self.date = DateHeader()
        self.stopping = False
        self.door_names = {spec.door: spec.name for spec in services.specs} | {DOOR: NAME}
        self._waiters: set[asyncio.Future[Any]] = set()
        self._relief: asyncio.Future[None] | None = None
        self._slow_until_ms: dict[Principal, int] = {}

    # --- who asks -------------------------------------------------------------------------------------------

    def principal(self, request: web.Request) -> Principal:
        """Who asks, by HTTP Basic credentials or none. Raises NotAuthenticated."""
        authorization = request.headers.get("Authorization")
        user, password = (None, None) if authorization is None else _credentials(authorization)
        return self.admission.authenticate(NAME, request.remote or "", user, password)

    def readable_topic(self, principal: Principal, name: str) -> Topic:
        """A topic that the principal may read whole, which takes the right to everything in it."""
        self.admission.require(principal, Operation.CONSUME, f"{name}/#")
        topic = self.kernel.topic(name, tenant=principal.tenant)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name!r}")
        return topic

    # --- writing --------------------------------------------------------------------------------------------

    async def ready_to_append(self, principal: Principal) -> None:
        """Returns when a publish may be taken: waits while the kernel is congested. Refuses `over_quota`, `busy`.

        Called before the body is read, so that what waits here holds no memory.
        """
        if self._slow_until_ms:
            self._refuse_over_quota(principal)
        if self.kernel.congested:
            await self._wait_for_relief()

    async def append(self, principal: Principal, messages: list[Message], idempotency_key: str | None,
                     whens: list[When] | None = None) -> Stored:
        """Append, or schedule, and wait until it is durable. Raises what the kernel refuses; `outcome_unknown` at the
        deadline."""
        receipts = self.receipts
        future = receipts.open()
        try:
            key = self._scoped(principal, idempotency_key)
            if whens is None:
                self.kernel.append(messages, receipts, future, positions=True, idempotency_key=key)
            else:
                self.kernel.schedule(messages, whens, receipts, future, idempotency_key=key)
        except BaseException:
            receipts.drop(future)
            raise
        self._charge(principal, messages)
        return _succeeded(await future)

    async def append_batches(self, principal: Principal, batches: list[tuple[int, bytes]], records: int,
                             idempotency_key: str | None) -> Stored:
        """The same for record batches by queue id, which hold so many records."""
        future = self.receipts.open()
        try:
            self.kernel.append_batches(batches, self.receipts, future,
                                       idempotency_key=self._scoped(principal, idempotency_key))
        except BaseException:
            self.receipts.drop(future)
            raise
        self._charge_for(principal, records, sum([len(batch) for _, batch in batches]))
        return _succeeded(await future)

    def append_unconfirmed(self, principal: Principal, messages: list[Message], idempotency_key: str | None,
                           whens: list[When] | None = None) -> None:
        """Append, or schedule, without asking for the outcome (202). Raises what the kernel refuses at once."""
        key = self._scoped(principal, idempotency_key)
        if whens is None:
            self.kernel.append(messages, None, None, idempotency_key=key)
        else:
            self.kernel.schedule(messages, whens, None, None, idempotency_key=key)
        self._charge(principal, messages)

    async def durable(self, change: Callable[[Receipts, asyncio.Future[Stored]], Any]) -> Any:
        """Run a definition's change with an owner and a token, wait until it is durable, return its result."""
        future = self.receipts.open()
        try:
            result = change(self.receipts, future)
        except BaseException:
            self.receipts.drop(future)
            raise
        _succeeded(await future)
        return result

    @staticmethod
    def _scoped(principal: Principal, idempotency_key: str | None) -> str | None:
        """Two users may choose the same key: it means something within one principal only."""
        return None if idempotency_key is None else f"{NAME}\0{principal.tenant}\0{principal.name}\0{idempotency_key}"

    def _charge(self, principal: Principal, messages: list[Message]) -> None:
        size_bytes = 0
        for message in messages:
            size_bytes += len(message[2]) + len(message[1] or b"")
        self._charge_for(principal, len(messages), size_bytes)

    def _charge_for(self, principal: Principal, count: int, size_bytes: int) -> None:
        slow_ms = self.admission.charge(principal, count, size_bytes)
        if slow_ms:
            self._slow_until_ms[principal] = self.services.now_ms() + slow_ms

    def _refuse_over_quota(self, principal: Principal) -> None:
        """HTTP's way to slow a publisher: 429 until what was overdrawn is made good. The refused cost nothing."""
        until_ms = self._slow_until_ms.get(principal)
        if until_ms is None:
            return
        wait_ms = until_ms - self.services.now_ms()
        if wait_ms <= 0:
            del self._slow_until_ms[principal]
            return
        raise Refusal("over_quota", f"the quota of {principal.name} is used up for {wait_ms} ms; nothing was stored",
                      headers={"Retry-After": str(ceil(wait_ms / 1000))})

    async def _wait_for_relief(self) -> None:
        try:
            async with asyncio.timeout(self.config.request_deadline_s):
                while self.kernel.congested:
                    if self._relief is None:
                        self._relief = self.loop.create_future()
                        self.kernel.on_relief(self._relieved)
                    await asyncio.shield(self._relief)
        except TimeoutError:
            raise Refusal("busy", "more is waiting for the disk than it takes; nothing was stored",
                          headers={"Retry-After": "1"}) from None

    def _relieved(self) -> None:
        relief, self._relief = self._relief, None
        if relief is not None and not relief.done():
            relief.set_result(None)

    # --- waiting for messages -------------------------------------------------------------------------------

    async def wait_for_append(self, positions: dict[int, int], timeout_s: float) -> None:
        """Returns when one of the queues reaches beyond its position, at the time-out, or when the hub stops.

        `positions` maps queue ids to next offsets. A waiting call costs a watch, a future and a timer.
        """
        future: asyncio.Future[None] = self.loop.create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        kernel = self.kernel
        watch = kernel.watch(positions.keys(), wake)
        timer = self.loop.call_later(timeout_s, wake)
        try:
            if all(kernel.bounds(queue)[1] <= at for queue, at in positions.items()):
                await self.unless_stopping(future)
        finally:
            timer.cancel()
            watch.cancel()

    async def unless_stopping(self, future: asyncio.Future[T]) -> T | None:
        """What a future ends in; None where the hub stops first, which cancels it."""
        if self.stopping:
            future.cancel()
            return None
        self._waiters.add(future)
        try:
            return await future
        except asyncio.CancelledError:
            if self.stopping and future.cancelled():
                return None
            raise
        finally:
            self._waiters.discard(future)

    def begin_stopping(self) -> None:
        """Send every long poll home with what it has."""
        self.stopping = True
        for future in self._waiters:
            future.cancel()


def _succeeded(stored: Stored) -> Stored:
    """The answer, or its error. One error may answer a whole flush: it does not collect everybody's traceback."""
    if stored.error is not None:
        raise stored.error.with_traceback(None)
    return stored


def _credentials(authorization: str) -> tuple[str, str]:
    """User and password of an `Authorization` header (RFC 7617). Refuses any other scheme."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        raise Refusal("not_built", f"Authorization: the scheme {scheme[:32]!r} is not built yet, use Basic")
    try:
        user, colon, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (Base64Error, ValueError):
        colon = ""
    if not colon:
        raise Refusal("invalid_header", "Authorization: Basic is followed by base64 of user:password")
    return user, password
