"""What every call of the HTTP door shares: the port and admission behind it, its bounds, and the waiting it does,
for the disk, for the rest of a body and for messages.

One `Door` per running service. Routes are plain functions `(door, call) -> response`; they keep no state of their own.
"""
from __future__ import annotations

import asyncio
import math
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import orjson

from gatehouse.gateways.admission.audit import Author
from gatehouse.gateways.admission.credentials import NOTHING, Credentials
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import NotAuthenticated, OverQuota
from gatehouse.gateways.http.config import HttpConfig
from gatehouse.gateways.http.cors import Cors
from gatehouse.gateways.http.declaring import D, Declared, shaped, whole_numbers
from gatehouse.gateways.http.dispatch import Hosts, Receipt, Reply
from gatehouse.gateways.http.exchange import Answered, Call, DateHeader, Response
from gatehouse.gateways.http.live.feeds import Feeds
from gatehouse.gateways.http.login import Tickets, read_authorization
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.representation import decode
from gatehouse.gateways.http.stream import Stream
from gatehouse.gateways.http.webhooks.webhooks import Webhooks
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.message import Stored
from gatehouse.kernel.shedding import WAIT_MS, Rung

if TYPE_CHECKING:
    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.admission.limits.book import LimitBook
    from gatehouse.gateways.admission.limits.meter import Meter
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.contract import Services
    from gatehouse.gateways.door_side import Submitter
    from gatehouse.gateways.http.exchange import Fixed
    from gatehouse.gateways.http.openapi import Route
    from gatehouse.gateways.http.routes.request import Answers
    from gatehouse.kernel.api import Message
    from gatehouse.kernel.message import Place, When
    from gatehouse.kernel.state.topics import Topic

DOOR: Final = 2
"""This door's number in the attributes of each record that came in here."""

NAME: Final = "http"

NO_PRESET: Final = ("", "")

GUARDS_MAX: Final = 4096
"""Principals whose guards are remembered; the oldest goes, and is made anew by use."""

_PAGE: Final = re.compile("[0-9a-f]{12}")


class KnownLogin:
    """Who has shown himself on a connection, and by what."""

    __slots__ = ("authorization", "ends_ms", "guard", "preset", "principal", "version")

    def __init__(self, authorization: str | None, guard: Guard, version: object, ends_ms: int,
                 preset: tuple[str, str]) -> None:
        self.authorization = authorization
        self.guard = guard
        self.principal = guard.logged_in
        self.version = version
        """`Admission.version` at that time: with another one he has to show himself again."""

        self.ends_ms = ends_ms
        """`Admission.ends_ms` at that time; 0: never."""

        self.preset = preset
        """What stood for nobody then."""


T = TypeVar("T")

WithGuard = Callable[["Door", Call, "Guard"], Awaitable[Answered] | Response]
"""The rest of a call, once it is known who asks."""

Routes = tuple[tuple[str, str, Declared], ...]
"""(method, pattern, handler) of the calls in one file."""


class Door:
    """The running HTTP door."""

    def __init__(self, services: Services, config: HttpConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.services = services
        self.config = config
        self.loop = loop
        self.admission = services.admission
        self._limits = services.admission.limits
        self.switchboard = services.door(NAME)
        self.port = self.switchboard.port
        """For what is nobody's own: what it says is given to nobody before admission was asked."""
        self.receipts = Receipts(loop, config.request_deadline_s)
        self.bodies = Bodies(config, self._ask_again)
        services.holders["http_bodies"] = lambda: self.bodies.buffered_bytes
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
        self._guards: dict[Principal, Guard] = {}
        self._slowed = Slowed(self._limits, services.now_ms)

    # --- who asks -------------------------------------------------------------------------------------------

    def known_guard(self, call: Call) -> Guard | None:
        """Who asks, where the same has shown himself on this connection before; None: ask `guard`."""
        session = call.session
        login = session.login
        if login is None or login.version is not self.admission.version \
                or login.authorization != call.head.authorization \
                or 0 < login.ends_ms <= self.services.wall_ms():
            return None
        session.note_user(login.principal.name)
        return login.guard

    def with_guard(self, call: Call, then: WithGuard) -> Awaitable[Answered] | Response:
        """What `then` makes of the call and of who asks, who is found as `guard` does."""
        guard = self.known_guard(call)
        return self._ask(call, then) if guard is None else then(self, call, guard)

    async def _ask(self, call: Call, then: WithGuard) -> Answered:
        answer = then(self, call, await self.guard(call))
        return answer if isinstance(answer, Response) else await answer

    async def principal(self, call: Call, preset: tuple[str, str] = NO_PRESET) -> Principal:
        """Who asks, for what is nothing of the kernel; see `guard`."""
        return (await self.guard(call, preset)).logged_in

    def guard_of(self, principal: Principal) -> Guard:
        """What the principal may do by this door."""
        guard = self._guards.get(principal)
        if guard is None:
            if len(self._guards) >= GUARDS_MAX:
                del self._guards[next(iter(self._guards))]
            guard = self._guards[principal] = self.services.guard(NAME, principal, None)
        return guard

    # decision 215: a call has a guard, as a session of the other doors has
    async def guard(self, call: Call, preset: tuple[str, str] = NO_PRESET) -> Guard:
        """Who asks, and all that he may do: by what `Authorization` says, else by certificate, else nobody. `preset`: a
        user and password that stand for nobody (`Credentials.preset`). Raises NotAuthenticated."""
        guard = self.known_guard(call)
        if guard is not None:
            return guard
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
        guard = self.guard_of(who)
        session.login = KnownLogin(authorization, guard, version, self.admission.ends_ms(who), preset)
        return guard

    # decision 217: who is asked for again after a wait
    async def _ask_again(self, call: Call) -> None:
        """Whether who asked is still let in, now that the rest of the body has come. Raises NotAuthenticated."""
        login = call.session.login
        if login is not None and self.known_guard(call) is None:
            await self.guard(call, login.preset)

    async def stream_guard(self, call: Call, query: Mapping[str, str]) -> Guard:
        """Who asks for a stream, found as `guard` does; a `ticket` in the query is as good as `Authorization`. Raises
        NotAuthenticated."""
        if "ticket" in query and "authorization" not in call.headers:
            who = self.tickets.principal_of(query["ticket"])
            call.session.note_user(who.name)
            return self.guard_of(who)
        return await self.guard(call)

    async def stream_principal(self, call: Call, query: Mapping[str, str]) -> Principal:
        """Who asks for a stream that is nothing of the kernel; see `stream_guard`."""
        return (await self.stream_guard(call, query)).logged_in

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
        return self._slowed.any or self.port.congested or self._limits.publishing_waits

    async def ready_to_append(self, guard: Guard, places: Iterable[int] = (), topic: str = "") -> None:
        """Returns when a publish may be taken: waits while the kernel is congested, or publishing waits. `places` and
        `topic`: where it goes, as far as that is known. Raises OverQuota, refuses `busy`.

        Called before the body is read, so that what waits here holds no memory.
        """
        self.require_quota(guard, places, topic)
        if self.port.congested or self._limits.publishing_waits:
            await self._wait_for_relief()

    def append(self, guard: Guard, messages: list[Message], idempotency_key: str | None,
               whens: list[When] | None = None, wait_s: int | None = None) -> Receipt:
        """Append, or schedule; the receipt ends in what the kernel says once it is durable, or in `outcome_unknown` at
        the deadline, or after `wait_s` where that is sooner. Raises what the kernel refuses at once."""
        if self._slowed.any:
            self._slowed.require(guard, places_of(messages))
        receipts = self.receipts
        receipt = receipts.open()
        try:
            if idempotency_key is not None or whens is not None or not guard.gather(
                    messages, receipts, receipt, size_of(messages), positions=True, refuses=True):
                self.submit(guard, messages, receipts, receipt, idempotency_key, whens)
        except BaseException:
            receipts.drop(receipt)
            raise
        if wait_s is not None:
            receipts.hurry(receipt, wait_s)
        return receipt

    def submit(self, guard: Guard, messages: list[Message], owner: Submitter | None, token: object,
               idempotency_key: str | None, whens: list[When] | None = None) -> None:
        """Append messages, or schedule them. `owner` is told of the outcome, as the kernel tells; None: nobody asks for
        it (202). Raises what the kernel refuses at once."""
        if self._slowed.any:
            self._slowed.require(guard, places_of(messages))
        size_bytes = size_of(messages)
        if whens is None:
            slow_ms = guard.append(messages, owner, token, size_bytes, positions=owner is not None,
                                   idempotency_key=idempotency_key, refuses=True)
        else:
            slow_ms = guard.schedule.add(messages, whens, owner, token, size_bytes, idempotency_key=idempotency_key,
                                     refuses=True)
        if slow_ms:
            self._slowed.add(guard, places_of(messages))       # as few are

    def stored_in(self, place: Place, position: tuple[int, int, int]) -> Place:
        """The place of a message that lies in this position: what is answered again may have been stored before its
        topic got partitions."""
        partition_id, offset, _ = position
        if offset < 0 or partition_id == place.partition_id:
            return place
        for _, numbers in self.port.groups.topics_of([partition_id]):
            return place._replace(partition=numbers[0], partition_id=partition_id)
        return place

    def require_quota(self, guard: Guard, places: Iterable[int] = (), topic: str = "") -> None:
        """Raises OverQuota for who has overdrawn a limit of these places, or of batches to this topic."""
        if self._slowed.any:
            self._slowed.require(guard, places, topic)

    def slow_down(self, guard: Guard, slow_ms: int, places: Iterable[int] = (), topic: str = "") -> None:
        """Remember that who published to these places, or a batch to this topic, is to be slowed; `slow_ms` 0: not."""
        if slow_ms:
            self._slowed.add(guard, places, topic)

    def flush(self, owner: Submitter, token: object) -> None:
        """Answer once everything that was told before is durable. Raises Stopping."""
        with self.switchboard.submission(owner, token) as number:
            self.port.flush(number)

    async def durable(self, change: Callable[[Receipts, Receipt], T]) -> T:
        """Run a definition's change with an owner and a token, wait until it is durable, return its result."""
        results: list[T] = []
        await self.stored(lambda owner, token: results.append(change(owner, token)))
        return results[0]

    async def stored(self, change: Callable[[Receipts, Receipt], object]) -> Stored:
        """Run a change as `change` does and wait for its answer. Raises the answer's error."""
        return await self.change(change)

    def change(self, change: Callable[[Receipts, Receipt], object]) -> Receipt:
        """Run a change with an owner and a token; the receipt ends in its answer."""
        receipt = self.receipts.open()
        try:
            change(self.receipts, receipt)
        except BaseException:
            self.receipts.drop(receipt)
            raise
        return receipt

    async def _wait_for_relief(self) -> None:
        await asyncio.sleep(0)       # from here on within a task, which a time-out needs
        try:
            async with asyncio.timeout(self.config.request_deadline_s):
                while self.port.congested or self._limits.publishing_waits:
                    if self._limits.publishing_waits:
                        self.admission.shedding.counts[Rung.PUBLISHERS] += 1
                        await asyncio.sleep(WAIT_MS / 1000)
                        continue
                    if self._relief is None:
                        self._relief = self.loop.create_future()
                        self.port.on_relief(self._relieved)
                    await asyncio.shield(self._relief)
        except TimeoutError:
            raise Refusal("busy", "the hub has more to do than it can; nothing was stored" if
                          self._limits.publishing_waits else
                          "more is waiting for the disk than it takes; nothing was stored",
                          headers={"Retry-After": "1"}) from None

    def _relieved(self) -> None:
        relief, self._relief = self._relief, None
        if relief is not None and not relief.done():
            relief.set_result(None)

    # --- giving out -----------------------------------------------------------------------------------------

    @property
    def most_unsent(self) -> int:
        """Bytes that may wait for one reader of a stream now."""
        return self.services.unsent.allowed(self.config.stream_unsent_bytes)

    def counted(self, messages: int, answer: Response) -> Response:
        """An answer that gives out so many messages, entered in the door's counters."""
        self.flow.messages_out += messages
        self.flow.bytes_out += len(answer.body)
        return answer

    async def ready_to_hand_out(self, guard: Guard, topic: str = "", consumers: str = "") -> None:
        """Returns when messages of a topic, or of a group of consumers, may be given to this principal. Refuses
        `over_quota` where that is not soon."""
        if guard.limits_out:
            ends = self.loop.time() + self.config.request_deadline_s
            while wait_ms := guard.out_wait_ms(topic, consumers):
                if self.loop.time() + wait_ms / 1000 > ends:
                    raise Refusal("over_quota", f"a limit of what {guard.logged_in.name} is given is used up",
                                  headers={"Retry-After": str(math.ceil(wait_ms / 1000))})
                await asyncio.sleep(wait_ms / 1000)

    async def until_handing_out(self, guard: Guard, topic: str) -> None:
        """Returns when messages of a topic, "" of several, may be given to the reader of a stream."""
        for wait_ms in iter(partial(guard.out_wait_ms, topic), 0):
            await asyncio.sleep(wait_ms / 1000)

    def handed_out(self, guard: Guard, messages: int, answer: Response, topic: str = "", consumers: str = ""
                   ) -> Response:
        """`counted`, and charged to the limits of what goes out."""
        if guard.limits_out:
            guard.hand_out(messages, len(answer.body), topic, consumers=consumers)
        return self.counted(messages, answer)

    # --- waiting for messages -------------------------------------------------------------------------------

    async def wait_for_append(self, guard: Guard, topic: Topic, positions: dict[int, int], timeout_s: float) -> None:
        """Returns when one of the topic's partitions reaches beyond its position, at the time-out, or when the hub
        stops. Raises NotAuthenticated or Denied where the principal may read it no longer.

        `positions` maps partition ids to next offsets. A waiting call costs a watch and a timer.
        """
        reply: Reply[None] = Reply()
        wake = partial(reply.set_result, None)
        watch = guard.watch(list(positions), wake)
        timer = self.loop.call_later(timeout_s, wake)
        may_read = partial(guard.require_topic, Operation.CONSUME, topic.name)
        try:
            if all(guard.bounds(partition)[1] <= at for partition, at in positions.items()):
                with registered(self.admission, NAME, guard.logged_in, wake, may_read) as guest:
                    await self.unless_stopping(reply)
                guest.check()
        finally:
            timer.cancel()
            guard.unwatch(watch)

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


def size_of(messages: list[Message]) -> int:
    """The bytes of values and headers."""
    size_bytes = 0
    for message in messages:
        size_bytes += len(message[2]) + len(message[1] or b"")
    return size_bytes


def places_of(messages: list[Message]) -> set[int]:
    """Where they go."""
    return {message[0] for message in messages}


def author(call: Call, name: str) -> Author:
    """This user, by this request's connection, for the audit topic."""
    return Author(name, NAME, call.session.peer)


def page_of(call: Call) -> str:
    """What a page of the console calls itself: its connections are told from others by it, and nothing else."""
    said = call.headers.get("x-console", "")
    return said if _PAGE.fullmatch(said) else ""


def own_names() -> tuple[str, ...]:
    """What this machine calls itself, without asking anybody."""
    name = socket.gethostname()
    return name, name.partition(".")[0]


# --- what waits for the disk --------------------------------------------------------------------------------------

SWEEP_S: Final = 0.25
"""How late a deadline may be noticed, in seconds: no clock is asked for each append."""


class Receipts:
    """The owner of everything that this door appends (`kernel.message.Owner`). The token of an append is its receipt.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline_s: float) -> None:
        self._loop = loop
        self._sweeps = math.ceil(deadline_s / SWEEP_S) + 1       # one may come just behind the beginning
        self._pending: dict[Receipt, int] = {}      # at which sweep each began to wait, oldest first
        self._sweep_number = 0
        self._sweeping = False

    def __len__(self) -> int:
        return len(self._pending)

    # decision 55: the one door whose calls are coroutines
    def open(self) -> Receipt:
        """The receipt of one append."""
        receipt = Receipt()
        self._pending[receipt] = self._sweep_number
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_later(SWEEP_S, self._sweep)
        return receipt

    def drop(self, receipt: Receipt) -> None:
        """The append was refused: nothing will answer it."""
        self._pending.pop(receipt, None)

    def hurry(self, receipt: Receipt, wait_s: float) -> None:
        """End in the refusal `outcome_unknown` after so many seconds, where that is sooner than the deadline."""
        if wait_s < self._sweeps * SWEEP_S:
            self._loop.call_later(wait_s, receipt.set_exception, overdue())

    def on_stored(self, stored: list[Stored]) -> None:
        """Called by the kernel once per flush."""
        pending = self._pending
        for answer in stored:
            receipt = cast(Receipt, answer.token)
            pending.pop(receipt, None)
            answer.token = None              # they would point at each other
            if answer.error is None:
                receipt.set_result(answer)
            else:
                receipt.set_exception(answer.error)

    def on_gathered(self, token: object, error: Exception | None) -> bool:
        """See `door_side.Gatherer`: every call wants to know where its messages went, so `on_stored` is told."""
        self.on_stored([Stored(token, error, 0, [])])
        return False

    def on_all_gathered(self) -> None:
        """See `door_side.Gatherer`: each call is answered by itself."""

    def enter_alone(self, guard: Guard, messages: list[Message], token: object, size_bytes: int) -> bool:
        """See `door_side.Gatherer`."""
        try:
            guard.append(messages, self, token, size_bytes, positions=True, was_gathered=True)
        except KernelError as error:
            self.on_stored([Stored(token, error, 0, [])])
        return False

    def _sweep(self) -> None:
        self._sweep_number += 1
        limit = self._sweep_number - self._sweeps
        late = []
        for receipt, began in self._pending.items():
            if began > limit:
                break
            late.append(receipt)
        for receipt in late:
            del self._pending[receipt]
            receipt.set_exception(overdue())
        self._sweeping = bool(self._pending)
        if self._sweeping:
            self._loop.call_later(SWEEP_S, self._sweep)


def overdue() -> Refusal:
    """What somebody is told who waits no longer."""
    return Refusal("outcome_unknown", "it is not durable in time and may still become so; repeat it with the same "
                                      "Idempotency-Key")


# --- who is slowed down ---------------------------------------------------------------------------------------

class Slowed:
    """Who has overdrawn which limits, and until when he is refused what these speak of: HTTP's way to slow a publisher
    is 429. What is refused costs nothing."""

    def __init__(self, limits: LimitBook, now_ms: Callable[[], int]) -> None:
        self._limits = limits
        self._now_ms = now_ms
        self._version = -1                                     # of the limits, as the next was written
        self._until_ms: dict[tuple[str, Meter], int] = {}      # by name, however he came, and what was overdrawn

    @property
    def any(self) -> bool:
        """Whether there may be somebody."""
        return bool(self._until_ms)

    def add(self, guard: Guard, places: Iterable[int], topic: str = "") -> None:
        """What was taken has overdrawn some of its limits."""
        now_ms = self._look()
        for meter in guard.charging.meters_of(places, topic):
            if wait_ms := meter.wait_ms(now_ms):
                self._until_ms[guard.logged_in.name, meter] = now_ms + wait_ms

    def require(self, guard: Guard, places: Iterable[int], topic: str = "") -> None:
        """Raises OverQuota where a limit of what goes there was overdrawn by who asks, and is not made good."""
        now_ms = self._look()
        name = guard.logged_in.name
        slowed = [(self._until_ms[name, meter], meter.limit) for meter in guard.charging.meters_of(places, topic)
                  if (name, meter) in self._until_ms]
        if slowed:
            until_ms, limit = max(slowed, key=itemgetter(0))
            raise OverQuota(limit.id, limit.of, until_ms - now_ms)

    def _look(self) -> int:
        """Forget whose time is over, whoever asks: as long as there is anybody, everybody takes the long way. Where
        limits have changed, whoever is over one is told so again."""
        now_ms = self._now_ms()
        if self._version != self._limits.version:
            self._version = self._limits.version
            self._until_ms.clear()
        self._until_ms = {who: until_ms for who, until_ms in self._until_ms.items() if until_ms > now_ms}
        return now_ms


# --- what waits for messages --------------------------------------------------------------------------------------

class Guest:
    """Admission's `RegisteredSession` of one call. `check` is to be asked after every wait."""

    def __init__(self, wake: Callable[[], None], require: Callable[[], object]) -> None:
        self._wake = wake
        self._require = require
        self._ended = ""

    def on_principal_ended(self, reason: str) -> None:
        self._ended = reason
        self._wake()

    def on_rights_changed(self) -> None:
        self._wake()

    def check(self) -> None:
        """Raises NotAuthenticated, or what `require` raises."""
        if self._ended:
            raise NotAuthenticated(f"the login has ended while the call waited: {self._ended}")
        self._require()


@contextmanager
def registered(admission: Admission, door: str, principal: Principal, wake: Callable[[], None],
           require: Callable[[], object]) -> Iterator[Guest]:
    """A registration for as long as the call waits. `require` raises where the right to what is waited for is gone."""
    guest = Guest(wake, require)
    registration = admission.register(principal, door, guest)
    try:
        yield guest
    finally:
        registration.leave()


# --- what waits for the rest of a body ----------------------------------------------------------------------------

class Bodies:
    """Reads bodies for all requests of the door: whole, and bounded in size, in time, and in bytes held for all clients
    together."""

    def __init__(self, config: HttpConfig, ask_again: Callable[[Call], Awaitable[None]]) -> None:
        self._config = config
        self._ask_again = ask_again
        self.buffered_bytes = 0      # of bodies that are not whole yet

    def has_whole(self, call: Call) -> bool:
        """Whether the body came with the head: the common case, and no wait. Refuses `body_too_large`."""
        if call.received_bytes > self._config.max_body_bytes and call.complete:
            raise self._too_large()
        return call.complete

    async def read(self, call: Call) -> bytes:
        """The request's body as sent (no content coding is undone).

        Refuses `body_too_large` before reading where the length is known, `body_too_slow`, `busy`, `malformed_request`.
        Raises NotAuthenticated where who asked is let in no more when it has come.
        """
        if self.has_whole(call):
            return call.take_body()
        if call.length > self._config.max_body_bytes:
            raise self._too_large()
        if call.headers.get("expect") and not call.http_10:
            call.session.ask_for_body()      # RFC 9110, 10.1.1: who expects 100 sends its body only after it
        await asyncio.sleep(0)       # from here on within a task, which a time-out needs
        try:
            async with asyncio.timeout(self._config.body_timeout_s):
                await self._collect(call)
        except TimeoutError:
            raise Refusal("body_too_slow", f"the body did not arrive within {self._config.body_timeout_s:g} s",
                          headers={"Connection": "close"}) from None
        await self._ask_again(call)
        return call.take_body()

    async def read_document(self, call: Call) -> bytes:
        """The body of a request that is a document, its content coding undone. Refuses what `read` and
        `representation.decode` refuse."""
        body, coding = await self.read(call), call.headers.get("content-encoding")
        return body if coding is None else decode(body, coding, self._config.max_body_bytes)

    async def _collect(self, call: Call) -> None:
        held = 0
        try:
            while True:
                self.buffered_bytes += call.received_bytes - held
                held = call.received_bytes
                if held > self._config.max_body_bytes:
                    raise self._too_large()
                if self.buffered_bytes > self._config.max_buffered_bytes:
                    raise Refusal("busy", "too many bodies are being received", headers={"Retry-After": "1"})
                if call.fault is not None:
                    raise call.fault
                if call.complete:
                    return
                more: Reply[None] = Reply()
                call.when_more(partial(more.set_result, None))
                await more
        finally:
            self.buffered_bytes -= held

    def _too_large(self) -> Refusal:
        limit = self._config.max_body_bytes
        return Refusal("body_too_large", f"a body has at most {limit} bytes", max_body_bytes=limit)


async def read(door: Door, call: Call, shape: type[D]) -> D:
    """The document in the body; an empty body is one without fields. Refuses `invalid_body`,
    `unsupported_media_type`."""
    return shaped(await read_object(door, call), shape)


async def read_object(door: Door, call: Call) -> dict[str, Any]:
    """The object in the body; an empty body is an empty one. Refuses `invalid_body`, `unsupported_media_type`."""
    body = await door.bodies.read_document(call)
    if body and call.media != "application/json":
        raise Refusal("unsupported_media_type", "this call takes application/json",
                      headers={"Accept": "application/json"})
    try:
        document = whole_numbers(orjson.loads(body)) if body else {}
    except orjson.JSONDecodeError as error:
        raise Refusal("invalid_body", f"the body is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise Refusal("invalid_body", "the body is an object")
    return document
