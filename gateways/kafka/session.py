"""One Kafka connection: requests in, answers out in the same order. No socket, no clock of its own, no await.

    bytes -> RequestReader -> header -> the API's `dispatch`, in order ... `Request.done` -> write, in order

The rules it keeps:

- What a request shows is as those before it on its connection have left it: it waits for their answers, as in Kafka.
- At most `max_in_flight` requests wait for answers and at most one of them, the oldest, holds records; while the peer
  does not take its answers, nothing more is dispatched. What was sent beyond that waits undecoded, the peer is paused.
- One turn of the hub's thread takes requests and gives answers of about `TURN_BYTES`; what is more waits for the next,
  so that a peer that sends many large requests at once holds up nobody else.
- A request that is long is read beside the loop and gone through in steps, some milliseconds in a turn; until then
  nothing more is dispatched.
- A request that is no Kafka (lengths that lie, too large) ends the connection, as in Kafka; one that is not offered is
  answered so that its client raises, or ends it (`api/api_versions.py`); ApiVersions of an unknown version is answered,
  so that the client can fall back.
- Before a login, or where a client may come without one, nothing but ApiVersions and SASL is answered; while admission
  makes up its mind, nothing is dispatched. A client that is no longer who it was is closed at once.
- Kafka's throttling: an answer says for how long, and the connection is not read for that time.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from gatehouse.gateways.admission.admission import LoginsFull, NotAuthenticated
from gatehouse.gateways.admission.audit import Author
from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.contract import Link, Services
from gatehouse.gateways.door_side import Silence, Timers
from gatehouse.gateways.kafka.api import APIS
from gatehouse.gateways.kafka.api.api_versions import API_VERSIONS, UNOFFERED, answer_unknown_version, encode_unoffered
from gatehouse.gateways.kafka.api.sasl import RAW, SASL_AUTHENTICATE, SASL_HANDSHAKE
from gatehouse.gateways.kafka.api.share_fetch import end_sessions
from gatehouse.gateways.kafka.codec import SMALLEST_REQUEST, Frame, Malformed, RequestReader, decode_header, skip_tags
from gatehouse.gateways.kafka.config import KafkaConfig
from gatehouse.gateways.kafka.fetch_session import FetchSessions
from gatehouse.gateways.kafka.login import MAX_TOKEN_BYTES, KafkaLogin
from gatehouse.gateways.kafka.request import Api, Request
from gatehouse.gateways.kafka.share_session import ShareSessions
from gatehouse.kernel.message import Stored

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import Guard

DOOR: Final = "kafka"
TURN_BYTES: Final = 1 << 20           # requests and answers of one turn: some tens of milliseconds of the slowest ones
UNSENT_BYTES: Final = 1 << 20         # not taken by the peer: beyond it one answer, of up to fetch_max_bytes, is held
MAX_SHOWN: Final = 200                # characters of a client's name for itself that people are shown
LEAST_RECORD_BYTES: Final = 64
LONG_BYTES: Final = 8 << 10           # of a request that may take milliseconds to read
STEPS: Final = 16                     # of a request, between two looks at the clock
SLICE_MS: Final = 5                   # of a turn, for the steps of one request
LATE_PART: Final = 25                 # of a session: clients log in again before its last 25th, Java's at 95 hundredths
BEFORE_LOGIN: Final = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)


class Token(Protocol):
    """What an append carries, to be told when it is durable."""

    def on_stored(self, stored: Stored) -> None: ...


class KafkaSession:
    """The state of one connection. The door keeps nothing for a client between connections."""

    door = DOOR

    def __init__(self, link: Link, services: Services, config: KafkaConfig, apis: Mapping[int, Api] = APIS) -> None:
        self.link = link
        self.services = services
        self.kernel = services.kernel
        self.epoch: Final = services.kernel.epoch
        self.flow: Final = services.admission.trace.flow("kafka")
        self.admission = services.admission
        self.config = config
        self.apis = apis
        self.client_id = ""
        self.client_software = ""
        self.login = KafkaLogin(self, self._become)
        self.fetch_sessions = FetchSessions.of(services)
        self.share_sessions: ShareSessions | None = None
        self._guard: Guard | None = None
        self._asking = False                         # admission has not said yet who this is
        self._reader = RequestReader(config.max_request_bytes)
        self._waiting: deque[Request] = deque()      # dispatched and not sent, oldest first
        self._reading = False                        # the newest is read beside the loop
        self._ready: Request | None = None           # it may be begun
        self._steps: Iterator[None] | None = None    # it is gone through
        self._busy = False                           # inside `_turn`
        self._paused = False
        self._closed = False
        self._last_reason = ""                       # why to close once every answer has left
        self._timers = timers = Timers(link)
        self._throttle = timers.add(self._go_on)     # when requests are dispatched again
        self._next_turn = timers.add(self._go_on)    # when to go on, if this turn ended before everything was handled
        self._login_end = timers.add(self._on_no_login)                # of a login, or of the wait for a first request
        self._silence = Silence(timers, self)
        self._session_end = timers.add(self._on_session_end)           # when this client must have logged in again
        self._session_late_ms = 0                    # when it should have begun to; 0: it need not
        self._holding = timers.add(self._release)    # when to call what is held
        self._held: Callable[[], None] | None = None
        self._request_timer = timers.add(self._ring)                   # when the oldest request wants `on_timer`
        self._on_timer: Callable[[], None] | None = None
        self._stopping = False
        self._spent_bytes = 0                        # of this turn
        self.fetched_each_bytes = LEAST_RECORD_BYTES
        """Of a record that was fetched last under a limit: what is left of messages is asked for as bytes."""

        if not self.admission.allow_anonymous:
            self._reader.take_at_most(min(config.max_request_bytes, MAX_TOKEN_BYTES))
        self._silence.expect(services.now_ms(), config.idle_timeout_ms)
        self.login_began()

    # ---- what the connection calls

    def note_software(self, name: str) -> None:
        """What the client says it is."""
        self.client_software = name

    def handle_data(self, data: bytes) -> None:
        if self._closed or self._stopping:
            return
        self._silence.hear(self.services.now_ms())
        self._reader.feed(data)
        self._turn()

    def handle_drained(self) -> None:
        self._turn()

    def handle_timer(self, now_ms: int) -> None:
        self._timers.handle_timer(now_ms)
        self._turn()

    def handle_closed(self) -> None:
        self._closed = True
        self._ready = self._steps = None
        self._timers.stop()
        self.fetch_sessions.leave(self)
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            if request.on_end is not None:
                request.on_end()
        if self._guard is not None:
            end_sessions(self)
            self._guard.leave()

    def handle_stopping(self) -> None:
        """Answers what is in flight: a fetch with what there is, a produce when it is stored. Then closes."""
        self._stopping = True
        self.link.pause()
        self._ring(0)
        for request in list(self._waiting):
            if request.parts is None and request.on_stopping is not None:
                request.on_stopping()
        self._turn()

    def held_bytes(self) -> int:
        """What has come and waits here: for the rest of a request, or for a limit."""
        return self._reader.held_bytes()

    def describe(self) -> dict[str, Any]:
        return {"client_id": self.client_id, "user": self._guard.principal.name if self._guard else "",
                "client_software": self.client_software, "in_flight": len(self._waiting)}

    # ---- what the APIs use

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def is_known(self) -> bool:
        """Whether anybody has logged in, or was let in without."""
        return self._guard is not None

    @property
    def principal(self) -> Principal:
        """Set before the first request other than ApiVersions is dispatched."""
        return self.guard.principal

    @property
    def guard(self) -> Guard:
        """All that this client may do; there as soon as `principal` is."""
        assert self._guard is not None
        return self._guard

    def advertised(self) -> tuple[str, int]:
        """Host and port by which clients of this listener reach the hub."""
        host, _, port = (self.link.listen.advertise or self.config.advertise).rpartition(":")
        return host.strip("[]"), int(port)

    def on_done(self) -> None:
        """A request has its answer."""
        if not self._busy:
            self._turn()

    def beside(self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Have something done on the thread for what takes long, where there is one."""
        if self.services.beside is not None:
            self.services.beside.submit(job, done)
        else:
            done(job(), None)

    def fail(self, fault: BaseException | None) -> None:
        """What was done beside the loop has failed: nobody would be answered. Raises it."""
        self.close("a mistake of the hub")
        assert fault is not None, "what has no result has an error"
        raise fault

    def on_stored(self, stored: list[Stored]) -> None:
        """The kernel's answers to what requests of this connection appended; the tokens know which. Where the client
        has gone nobody is answered; decisions that it sent are carried out all the same."""
        was_busy, self._busy = self._busy, True        # what all of these complete is sent in one go
        try:
            for answer in stored:
                cast(Token, answer.token).on_stored(answer)
        finally:
            self._busy = was_busy
        self._turn()

    def wake_at(self, when_ms: int, on_timer: Callable[[], None] | None) -> None:
        """Call `on_timer` once at that time, or when the hub stops; for the oldest request alone. 0 cancels."""
        self._on_timer = on_timer
        self._request_timer.at(when_ms)

    def wait_until(self, wait_ms: int) -> int:
        """When a fetch that waits for so long is answered at the latest: while its client can still log in again, which
        it does behind the answer."""
        now_ms = self.services.now_ms()
        until_ms = now_ms + max(0, min(wait_ms, self.config.fetch_max_wait_ms))
        return until_ms if now_ms >= self._session_late_ms else min(until_ms, self._session_late_ms)

    def throttle(self, delay_ms: int) -> None:
        """Dispatch nothing for that long."""
        self._throttle.at(max(self._throttle.when_ms, self.services.now_ms() + delay_ms))

    def close_when_sent(self, reason: str) -> None:
        """Dispatch nothing more, and close once what was dispatched has its answers."""
        self._last_reason = reason
        self.admission.trace.on_event(DOOR, "not_authenticated")

    def login_began(self) -> None:
        """A login has begun, and must be done in time."""
        self._login_end.at(self.services.now_ms() + self.config.login_timeout_ms)

    def after(self, delay_ms: int, then: Callable[[], None]) -> None:
        """Call once, then; one at a time, since a login has one message at a time. Never where the client has gone."""
        if not delay_ms:
            then()
            return
        self._held = then
        self._holding.at(self.services.now_ms() + delay_ms)

    def lifetime_ms(self) -> int:
        """How long the login is good (KIP-368); 0: no end is known."""
        ends_ms = self._session_end.when_ms
        return max(0, ends_ms - self.services.now_ms()) if ends_ms else 0

    def audit(self, action: str, details: Mapping[str, object]) -> None:
        """Say on the audit topic what this client has changed."""
        self.admission.audit(self.author(), action, {**details, "tenant": self.principal.tenant})

    def author(self) -> Author:
        """Who asks, for the audit topic."""
        return Author(self.principal.name, DOOR, self.link.peer)

    # ---- admission's `RegisteredSession`

    def on_principal_ended(self, reason: str) -> None:
        self.close(f"principal_ended: {reason}")

    def on_rights_changed(self) -> None:
        """Every request asks anew: a fetch that waits looks again."""
        self._ring(0)

    def close(self, reason: str) -> None:
        if not self._closed:
            self.handle_closed()
            self.link.close(reason)

    # ---- inside

    def _turn(self) -> None:
        """Send what is done, dispatch what may be, until neither is possible or this turn has done enough."""
        if self._busy or self._closed:
            return
        self._busy = True
        if not self._next_turn.when_ms:
            self._spent_bytes = 0
        try:
            if self._steps is not None and not self._next_turn.when_ms:
                self._step(self._steps)
                if self._closed:
                    return
            self._send_done()
            while self._ready is not None or not self._is_full():
                if self._ready is not None:
                    ready, self._ready = self._ready, None
                    self._begin(ready)
                else:
                    self._reader.take_at_least(0 if self.login.raw else SMALLEST_REQUEST)
                    frame = self._reader.next_frame()
                    if frame is None:
                        break
                    self._dispatch(frame)
                if self._closed:
                    return
                self._send_done()
        except Malformed as fault:
            self.close(f"malformed: {fault}")
        finally:
            self._busy = False
        if not self._closed:
            if self._spent_bytes >= TURN_BYTES and not self._next_turn.when_ms:
                self._end_turn()
            self._set_paused(self._is_full())
            if not self._waiting and (self._stopping or self._last_reason):
                self.close(self._last_reason or "stopping")

    def _end_turn(self) -> None:
        """This turn has done enough: what is left, if anything, comes with the next."""
        if self._reader.held_bytes() or self._waiting and self._waiting[0].on_turn is not None:
            self._next_turn.at(self.services.now_ms() + 1)
        else:
            self._spent_bytes = 0

    def _is_full(self) -> bool:
        """Whether nothing more may be dispatched."""
        return (len(self._waiting) >= self.config.max_in_flight or self._stopping or self._throttle.when_ms > 0
                or self._asking or self._reading or self._steps is not None or self.login.checking
                or self._last_reason != "" or not self._may_answer() or self._is_held())

    def _is_held(self) -> bool:
        """Whether the newest request waits, undecoded, for the answers of those before it."""
        return len(self._waiting) > 1 and self._waiting[-1].api.shows and self._waiting[-1].on_turn is not None

    def _may_answer(self) -> bool:
        """Whether there is room for one more answer, in this turn and with the peer."""
        most = self.services.unsent.allowed(min(self.config.fetch_max_bytes, UNSENT_BYTES))
        return self._spent_bytes < TURN_BYTES and self.link.unsent_bytes <= most

    def _set_paused(self, paused: bool) -> None:
        if paused != self._paused and not self._stopping:
            self._paused = paused
            if paused:
                self.link.pause()
            else:
                self.link.resume()

    def _send_done(self) -> None:
        waiting = self._waiting
        while waiting:
            oldest = waiting[0]
            if oldest.parts is None and oldest.on_turn is not None and self._may_answer():
                on_turn, oldest.on_turn = oldest.on_turn, None
                on_turn()
                if self._closed:
                    return
            if oldest.parts is None:
                return
            waiting.popleft()
            oldest.on_end = None         # it and what answered it point at each other: megabytes would await collection
            if oldest.parts:
                self._spent_bytes += sum([len(part) for part in oldest.parts])
                self.link.write_many(oldest.parts)

    def _dispatch(self, frame: Frame) -> None:
        data, at, end = frame
        self._spent_bytes += end - at
        if self.login.raw:
            request = Request(self, RAW, 0, 0, data, at, end)
            self._waiting.append(request)
            RAW.dispatch(request)
            return
        key, version, correlation_id, client_id, at = decode_header(data, at, end)
        if not self.client_id and client_id:
            self.client_id = client_id.decode(errors="replace")[:MAX_SHOWN]
        api = self.apis.get(key)
        if api is None:
            self._refuse(key, version, correlation_id, f"API {key}")
            return
        if not api.first_version <= version <= api.last_version:
            if api is not API_VERSIONS:
                self._refuse(key, version, correlation_id, f"{api.name} version {version}")
                return
            request = Request(self, api, 0, correlation_id, data, at, end)
            self._waiting.append(request)
            answer_unknown_version(request)
            return
        if version >= api.first_flexible:
            at = skip_tags(data, at, end)
        self._take(Request(self, api, version, correlation_id, data, at, end))

    def _take(self, request: Request) -> None:
        """Dispatch a request, once it is clear who asks. Raises Malformed."""
        api = request.api
        if self.login.mechanism and api not in BEFORE_LOGIN:
            raise Malformed(f"{api.name} during SASL authentication")
        self._waiting.append(request)
        if self._login_end.when_ms and self.admission.allow_anonymous and not self.login.mechanism:
            self._login_end.at(0)                      # it speaks, and need not say who it is
        if self._guard is not None or api in BEFORE_LOGIN:
            if api.shows and len(self._waiting) > 1:   # decision 317
                request.on_turn = partial(self._begin, request)
            else:
                self._begin(request)
        else:
            self._let_in(request)

    # decision 337: read beside the loop, gone through in steps
    def _begin(self, request: Request) -> None:
        """Have a request answered. Raises Malformed."""
        if request.api.message is not None and request.asked is None and request.end - request.at > LONG_BYTES \
                and self.services.beside is not None:
            self._reading = True
            self.beside(request.read, partial(self._on_read, request))
            return
        self._steps = steps = request.api.dispatch(request)
        if steps is not None:
            self._step(steps)

    def _on_read(self, request: Request, asked: Any, error: BaseException | None) -> None:
        """A long request has been read."""
        self._reading = False
        if self._closed:
            return
        if isinstance(error, Malformed):
            self.close(f"malformed: {error}")
        elif error is not None:
            self.fail(error)
        else:
            request.asked = asked
            self._ready = request
            self._turn()

    def _step(self, steps: Iterator[None]) -> None:
        """Go through a request for the time of one turn. Raises Malformed."""
        now_ms = self.services.now_ms
        until_ms = now_ms() + SLICE_MS
        while True:
            for _ in range(STEPS):
                if next(steps, True) or self._closed:
                    self._steps = None
                    return
            if now_ms() >= until_ms:
                self._next_turn.at(now_ms() + 1)
                return

    def _refuse(self, key: int, version: int, correlation_id: int, asked: str) -> None:
        """Answer what is not offered, whoever may ask. Raises Malformed where its answer could not say so."""
        answer = encode_unoffered(key, version, correlation_id)
        if answer is None:
            raise Malformed(f"{asked} is not offered")
        self._take(Request(self, UNOFFERED, version, correlation_id, answer, 0, 0))

    def _let_in(self, request: Request) -> None:
        """Somebody asks without a login: it is who its certificate says, or anonymous."""
        self._asking = True

        def told(answer: Principal | NotAuthenticated) -> None:
            self._asking = False
            if self._closed:
                return
            if isinstance(answer, NotAuthenticated):
                self.close(f"{answer.code}: {answer}")
                return
            try:
                self._become(answer)
            except LoginsFull as full:
                self.close(f"{full.code}: {full}")
                return
            self._ready = request
            self._turn()

        link = self.link
        credentials = Credentials(certificate=link.certificate, certificate_ends_ms=link.certificate_ends_ms)
        self.admission.authenticate(DOOR, link.peer, credentials, told, lambda: self._closed or link.gone)

    def _become(self, principal: Principal) -> None:
        """The connection is this principal's from now on. Raises TooManyConnections."""
        before = self._guard
        self._guard = self.services.guard(DOOR, principal, self, peer=self.link.peer, replaces=before is not None)
        if self.client_id:
            self._guard.limit_client(self.client_id)
        if before is not None:
            before.leave()
        self._reader.take_at_most(self.config.max_request_bytes)
        self._login_end.at(0)
        ends_ms = self._end_of_session(principal)
        self._session_end.at(ends_ms)
        self._session_late_ms = ends_ms and ends_ms - (ends_ms - self.services.now_ms()) // LATE_PART

    def is_excused(self) -> bool:
        """Whether it may be our doing that the client says nothing: it waits for an answer, or is not read."""
        return bool(self._waiting) or self._is_full()

    def _end_of_session(self, principal: Principal) -> int:
        """When to have logged in again; 0: never."""
        if not self.login.mechanism:
            return 0                                   # by certificate, or anonymous
        most_ms = self.config.max_session_ms
        ends_ms, now_ms = self.admission.ends_ms(principal), self.services.now_ms()
        left_ms = max(1, ends_ms - self.services.wall_ms()) if ends_ms else 0
        wishes = [now_ms + left_ms if left_ms else 0, now_ms + most_ms if most_ms else 0]
        return min([wish for wish in wishes if wish], default=0)

    # ---- time

    def _go_on(self, now_ms: int) -> None:
        """Called when a pause is over: the turn that follows takes what has come."""

    def _on_no_login(self, now_ms: int) -> None:
        self.close("login_timeout: no login, or no request, came in time")

    def on_silence(self) -> None:
        """See `door_side.Expecting`."""
        self.close("idle_timeout: the client has asked for nothing")

    def _on_session_end(self, now_ms: int) -> None:
        if not self.login.mechanism:         # else it logs in again, perhaps behind answers that wait: `_login_end`
            self.close("session_expired: the client did not log in again in time")

    def _release(self, now_ms: int) -> None:
        held, self._held = self._held, None
        if held is not None:
            held()

    def _ring(self, now_ms: int) -> None:
        on_timer, self._on_timer = self._on_timer, None
        self._request_timer.at(0)
        if on_timer is not None:
            on_timer()
