"""What every call of the HTTP door shares: the kernel and admission behind it, its bounds, and the waiting it does.

One `Door` per running service. Routes are plain functions `(door, call) -> response`; they keep no state of their own.
"""
from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final, TypeVar, cast

from gatehouse.gateways.admission.credentials import NOTHING, Credentials
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.http.answers import Answers
from gatehouse.gateways.http.body import Bodies
from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.cors import Cors
from gatehouse.gateways.http.declaring import Declared
from gatehouse.gateways.http.hosts import Hosts
from gatehouse.gateways.http.live.feeds import Feeds
from gatehouse.gateways.http.login import read_authorization
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.replies import Receipt, Receipts, Reply
from gatehouse.gateways.http.request import Call
from gatehouse.gateways.http.response import Answered, DateHeader, Response
from gatehouse.gateways.http.stream import Stream
from gatehouse.gateways.http.tickets import Tickets
from gatehouse.gateways.http.waiting import registered
from gatehouse.gateways.http.webhooks.webhooks import Webhooks
from gatehouse.kernel.errors import UnknownTopic

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.contract import Services
    from gatehouse.gateways.http.fixed import Fixed
    from gatehouse.gateways.http.openapi import Route
    from gatehouse.kernel.kernel import Kernel
    from gatehouse.kernel.message import Message, Owner, Stored, When
from gatehouse.kernel.message import Origin
from gatehouse.kernel.state.topics import Topic

DOOR: Final = 2
"""This door's number in the attributes of each record that came in here."""

NAME: Final = "http"

NO_PRESET: Final = ("", "")

_PAGE: Final = re.compile("[0-9a-f]{12}")


class KnownLogin:
    """Who has shown himself on a connection, and by what."""

    __slots__ = ("authorization", "ends_ms", "principal", "version")

    def __init__(self, authorization: str | None, principal: Principal, version: object, ends_ms: int) -> None:
        self.authorization = authorization
        self.principal = principal
        self.version = version
        """`Admission.version` at that time: with another one he has to show himself again."""

        self.ends_ms = ends_ms
        """`Admission.ends_ms` at that time; 0: never."""


T = TypeVar("T")

WithPrincipal = Callable[["Door", Call, "Principal"], Awaitable[Answered]]
"""The rest of a call, once it is known who asks."""

Routes = tuple[tuple[str, str, Declared], ...]
"""(method, pattern, handler) of the calls in one file."""


class Door:
    """The running HTTP door."""

    def __init__(self, services: Services, config: HttpConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.services = services
        self.config = config
        self.loop = loop
        self.kernel = cast("Kernel", services.kernel)          # its calls have no numbers yet: decision 149
        self.admission = services.admission
        self._tells = self.kernel.records_journeys
        self.receipts = Receipts(loop, config.request_deadline_s)
        self.bodies = Bodies(config)
        self.cors = Cors(config)
        self.hosts = Hosts(config.allowed_hosts, own_names())
        self.feeds = Feeds(self)
        self.webhooks = Webhooks(self)
        self.answers: dict[str, Answers] = {}
        """Who waits for answers to requests, by tenant."""
        self.tickets = Tickets(services.admission, NAME, config.ticket_s, services.now_ms)
        self.date = DateHeader()
        self.flow = self.admission.trace.flow(NAME)
        self.stopping = False
        self.door_names = services.door_numbers.names
        self.routes: list[Route] = []
        """Every call of this door, for its document."""
        self.changing = asyncio.Lock()
        """Held between looking at what a change asks about users, rules and webhooks, and the change; what the kernel
        defines is changed in the turn in which it is looked at."""
        self.fixed: dict[str, Fixed] = {}
        """Answers made at first use, by path."""
        self.on_stopping: set[Callable[[], None]] = set()
        """Called when the hub stops, for what waits in another way."""

        self._waiters: set[Callable[[None], None]] = set()
        self._relief: asyncio.Future[None] | None = None
        self._slow_until_ms: dict[str, int] = {}               # by the name of who is over quota, however he came

    # --- who asks -------------------------------------------------------------------------------------------

    def known_principal(self, call: Call) -> Principal | None:
        """Who asks, where the same has shown himself on this connection before; None: ask `principal`."""
        session = call.session
        login = session.login
        if login is None or login.version is not self.admission.version \
                or login.authorization != call.head.authorization \
                or 0 < login.ends_ms <= self.services.wall_ms():
            return None
        session.user = login.principal.name
        return login.principal

    def with_principal(self, call: Call, then: WithPrincipal) -> Awaitable[Answered]:
        """What `then` makes of the call and of who asks, who is found as `principal` does."""
        principal = self.known_principal(call)
        return self._ask(call, then) if principal is None else then(self, call, principal)

    async def _ask(self, call: Call, then: WithPrincipal) -> Answered:
        return await then(self, call, await self.principal(call))

    async def principal(self, call: Call, preset: tuple[str, str] = NO_PRESET) -> Principal:
        """Who asks: by what `Authorization` says, else by certificate, else nobody. `preset`: a user and password that
        stand for nobody (`Credentials.preset`). Raises NotAuthenticated."""
        principal = self.known_principal(call)
        if principal is not None:
            return principal
        session, authorization = call.session, call.head.authorization
        version = self.admission.version
        if authorization is not None:
            credentials = read_authorization(authorization)
            if preset is not NO_PRESET and (credentials.user, credentials.password) == preset:
                credentials = replace(credentials, preset=True)
        else:
            certificate = session.certificate
            credentials = NOTHING if certificate is None else Credentials(
                certificate=certificate, certificate_ends_ms=session.certificate_ends_ms)
        answer: Reply[Principal | NotAuthenticated] = Reply()
        self.admission.authenticate(NAME, session.peer, credentials, answer.set_result,
                                    lambda: answer.done() or session.gone)
        who = await answer
        if isinstance(who, NotAuthenticated):
            raise who
        session.user, session.page = who.name, page_of(call)
        session.login = KnownLogin(authorization, who, version, self.admission.ends_ms(who))
        return who

    async def stream_principal(self, call: Call, query: Mapping[str, str]) -> Principal:
        """Who asks for a stream, found as `principal` does; a `ticket` in the query is as good as `Authorization`.
        Raises NotAuthenticated."""
        if "ticket" in query and "authorization" not in call.headers:
            who = self.tickets.principal_of(query["ticket"])
            call.session.user = who.name
            return who
        return await self.principal(call)

    def readable_topic(self, principal: Principal, name: str) -> Topic:
        """A topic that the principal may read whole, which takes the right to everything in it."""
        self.admission.require_topic(principal, Operation.CONSUME, name)
        topic = self.kernel.topic(name, tenant=principal.tenant)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name!r}")
        return topic

    def stream(self, call: Call, headers: dict[str, str], status: int = 200, length: int | None = None
               ) -> Stream:
        """An answer that is written piece by piece, and so has its headers before the dispatcher would add some."""
        answer = Stream(call, headers, status, length)
        if "origin" in call.headers:
            self.cors.add_headers(answer, call.headers["origin"])
        return answer

    # --- writing --------------------------------------------------------------------------------------------

    @property
    def must_wait(self) -> bool:
        """Whether `ready_to_append` has something to look at."""
        return bool(self._slow_until_ms) or self.kernel.congested

    async def ready_to_append(self, principal: Principal) -> None:
        """Returns when a publish may be taken: waits while the kernel is congested. Refuses `over_quota`, `busy`.

        Called before the body is read, so that what waits here holds no memory.
        """
        if self._slow_until_ms:
            self._refuse_over_quota(principal)
        if self.kernel.congested:
            await self._wait_for_relief()

    def append(self, principal: Principal, messages: list[Message], idempotency_key: str | None,
               whens: list[When] | None = None, wait_s: int | None = None) -> Receipt:
        """Append, or schedule; the receipt ends in what the kernel says once it is durable, or in `outcome_unknown` at
        the deadline, or after `wait_s` where that is sooner. Raises what the kernel refuses at once."""
        receipts = self.receipts
        receipt = receipts.open()
        try:
            self.submit(principal, messages, receipts, receipt, idempotency_key, whens)
        except BaseException:
            receipts.drop(receipt)
            raise
        if wait_s is not None:
            receipts.hurry(receipt, wait_s)
        return receipt

    def submit(self, principal: Principal, messages: list[Message], owner: Owner, token: object,
               idempotency_key: str | None, whens: list[When] | None = None) -> None:
        """Append messages, or schedule them. `owner` is told of the outcome, as the kernel tells. Raises what the
        kernel refuses at once."""
        key = self.scoped(principal, idempotency_key)
        if self._tells:
            self.kernel.speaker.speaks(Origin(NAME, principal.name))
        if whens is None:
            self.kernel.append(messages, owner, token, positions=True, idempotency_key=key,
                               judge=self.admission.judge_of_receipts(principal))
        else:
            self.kernel.receipts.require(messages, self.admission.judge_of_receipts(principal))
            self.kernel.schedule(messages, whens, owner, token, idempotency_key=key)
        self.charge(principal, messages)

    async def append_batches(self, principal: Principal, batches: list[tuple[int, bytes]], records: int,
                             idempotency_key: str | None) -> Stored:
        """Append record batches, as (partition id, batch), and wait until they are durable. `records`: how many records
        they hold. Raises what the kernel refuses."""
        receipt = self.receipts.open()
        try:
            self.kernel.append_batches(batches, self.receipts, receipt,
                                       idempotency_key=self.scoped(principal, idempotency_key))
        except BaseException:
            self.receipts.drop(receipt)
            raise
        self._charge_for(principal, records, sum([len(batch) for _, batch in batches]))
        return await receipt

    def append_unconfirmed(self, principal: Principal, messages: list[Message], idempotency_key: str | None,
                           whens: list[When] | None = None) -> None:
        """Append, or schedule, without asking for the outcome (202). Raises what the kernel refuses at once."""
        key = self.scoped(principal, idempotency_key)
        if self._tells:
            self.kernel.speaker.speaks(Origin(NAME, principal.name))
        if whens is None:
            self.kernel.append(messages, None, None, idempotency_key=key,
                               judge=self.admission.judge_of_receipts(principal))
        else:
            self.kernel.receipts.require(messages, self.admission.judge_of_receipts(principal))
            self.kernel.schedule(messages, whens, None, None, idempotency_key=key)
        self.charge(principal, messages)

    async def durable(self, change: Callable[[Receipts, Receipt], T]) -> T:
        """Run a definition's change with an owner and a token, wait until it is durable, return its result."""
        results: list[T] = []
        await self.stored(lambda owner, token: results.append(change(owner, token)))
        return results[0]

    async def stored(self, change: Callable[[Receipts, Receipt], object]) -> Stored:
        """Run a change with an owner and a token and wait for its answer. Raises the answer's error."""
        receipt = self.receipts.open()
        try:
            change(self.receipts, receipt)
        except BaseException:
            self.receipts.drop(receipt)
            raise
        return await receipt

    @staticmethod
    def scoped(principal: Principal, idempotency_key: str | None) -> str | None:
        """Two users may choose the same key: it means something within one principal only."""
        return None if idempotency_key is None else f"{NAME}\0{principal.tenant}\0{principal.name}\0{idempotency_key}"

    def charge(self, principal: Principal, messages: list[Message]) -> None:
        """Count what was taken, and remember for how long its sender is to be slowed."""
        size_bytes = 0
        for message in messages:
            size_bytes += len(message[2]) + len(message[1] or b"")
        self._charge_for(principal, len(messages), size_bytes)

    def _charge_for(self, principal: Principal, count: int, size_bytes: int) -> None:
        slow_ms = self.admission.charge(NAME, principal, count, size_bytes)
        if slow_ms:
            self._slow_until_ms[principal.name] = self.services.now_ms() + slow_ms

    def _refuse_over_quota(self, principal: Principal) -> None:
        """HTTP's way to slow a publisher: 429 until what was overdrawn is made good. The refused cost nothing.

        Whose time is over is forgotten, whoever asks: as long as anybody is slowed, everybody takes the long way.
        """
        now_ms = self.services.now_ms()
        self._slow_until_ms = {name: until_ms for name, until_ms in self._slow_until_ms.items() if until_ms > now_ms}
        wait_ms = self._slow_until_ms.get(principal.name, now_ms) - now_ms
        if not wait_ms:
            return
        raise Refusal("over_quota", f"the quota of {principal.name} is used up for {wait_ms} ms; nothing was stored",
                      headers={"Retry-After": str(ceil(wait_ms / 1000))})

    async def _wait_for_relief(self) -> None:
        await asyncio.sleep(0)       # from here on within a task, which a time-out needs
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

    # --- giving out -----------------------------------------------------------------------------------------

    def counted(self, messages: int, answer: Response) -> Response:
        """An answer that gives out so many messages, entered in the door's counters."""
        self.flow.messages_out += messages
        self.flow.bytes_out += len(answer.body)
        return answer

    # --- waiting for messages -------------------------------------------------------------------------------

    async def wait_for_append(self, principal: Principal, topic: Topic, positions: dict[int, int], timeout_s: float
                              ) -> None:
        """Returns when one of the topic's partitions reaches beyond its position, at the time-out, or when the hub
        stops. Raises NotAuthenticated or Denied where the principal may read it no longer.

        `positions` maps partition ids to next offsets. A waiting call costs a watch and a timer.
        """
        reply: Reply[None] = Reply()
        wake = partial(reply.set_result, None)
        kernel = self.kernel
        watch = kernel.watch(positions.keys(), wake)
        timer = self.loop.call_later(timeout_s, wake)
        may_read = partial(self.admission.require_topic, principal, Operation.CONSUME, topic.name)
        try:
            if all(kernel.bounds(partition)[1] <= at for partition, at in positions.items()):
                with registered(self.admission, NAME, principal, wake, may_read) as guest:
                    await self.unless_stopping(reply)
                guest.check()
        finally:
            timer.cancel()
            watch.cancel()

    async def unless_stopping(self, reply: Reply[T | None]) -> T | None:
        """The answer; None where the hub stops first."""
        if self.stopping:
            reply.set_result(None)
        self._waiters.add(reply.set_result)
        try:
            return await reply
        finally:
            self._waiters.discard(reply.set_result)

    def begin_stopping(self) -> None:
        """Send every long poll home with what it has."""
        self.stopping = True
        for send_home in list(self._waiters):
            send_home(None)
        for end in list(self.on_stopping):
            end()


def page_of(call: Call) -> str:
    """What a page of the console calls itself: its connections are told from others by it, and nothing else."""
    said = call.headers.get("x-console", "")
    return said if _PAGE.fullmatch(said) else ""


def own_names() -> tuple[str, ...]:
    """What this machine calls itself, without asking anybody."""
    name = socket.gethostname()
    return name, name.partition(".")[0]
