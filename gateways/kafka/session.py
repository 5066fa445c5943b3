"""One Kafka connection: requests in, answers out in the same order. No socket, no clock of its own, no await.

    bytes -> FrameReader -> header -> the API's `dispatch`, in order ... `Request.done` -> write, in order

The rules it keeps:

- At most `max_in_flight` requests wait for answers and at most one of them, the oldest, holds records; while the peer
  does not take its answers, nothing more is dispatched. What was sent beyond that waits undecoded, the peer is paused.
- One turn of the hub's thread takes requests and gives answers of about `TURN_BYTES`; what is more waits for the next,
  so that a peer that sends many large requests at once holds up nobody else.
- A request that is no Kafka (unknown API or version, lengths that lie, too large) ends the connection, as in Kafka;
  ApiVersions of an unknown version is answered, so that the client can fall back.
- Kafka's throttling: an answer says for how long, and the connection is not read for that time.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

from gateways.admission.admission import NotAuthenticated
from gateways.admission.principal import Principal
from gateways.contract import Link, Services
from gateways.kafka.api import APIS
from gateways.kafka.api.api_versions import API_VERSIONS, answer_unknown_version
from gateways.kafka.codec import Frame, FrameReader, Malformed, decode_header, skip_tags
from gateways.kafka.config import KafkaConfig
from gateways.kafka.request import Api, Request
from kernel.message import Stored

DOOR: Final = "kafka"
TURN_BYTES: Final = 1 << 20           # requests and answers of one turn: some tens of milliseconds of the slowest ones
UNSENT_BYTES: Final = 1 << 20         # not taken by the peer: beyond it one answer, of up to fetch_max_bytes, is held
MAX_SHOWN: Final = 200                # characters of a client's name for itself that people are shown


class Token(Protocol):
    """What an append carries, to be told when it is durable."""

    def on_stored(self, stored: Stored) -> None: ...


class KafkaSession:
    """The state of one connection. The door keeps nothing for a client between connections."""

    def __init__(self, link: Link, services: Services, config: KafkaConfig, apis: Mapping[int, Api] = APIS) -> None:
        self.link = link
        self.services = services
        self.kernel = services.kernel
        self.admission = services.admission
        self.config = config
        self.apis = apis
        self.client_id = ""
        self.client_software = ""
        self._principal: Principal | None = None
        self._reader = FrameReader(config.max_request_bytes)
        self._waiting: deque[Request] = deque()      # dispatched and not sent, oldest first
        self._busy = False                           # inside `_turn`
        self._paused = False
        self._closed = False
        self._stopping = False
        self._spent_bytes = 0                        # of this turn
        self._throttled_until_ms = 0
        self._next_turn_ms = 0                       # when to go on, if this turn ended before everything was handled
        self._wake_ms = 0                            # when the oldest request wants `on_timer`
        self._on_timer: Callable[[], None] | None = None

    # ---- what the connection calls

    def handle_data(self, data: bytes) -> None:
        if self._closed or self._stopping:
            return
        self._reader.feed(data)
        self._turn()

    def handle_drained(self) -> None:
        self._turn()

    def handle_timer(self, now_ms: int) -> None:
        if self._throttled_until_ms <= now_ms:
            self._throttled_until_ms = 0
        if self._next_turn_ms <= now_ms:
            self._next_turn_ms = 0
        if self._wake_ms and self._wake_ms <= now_ms:
            self._ring()
        self._arm()
        self._turn()

    def handle_closed(self) -> None:
        self._closed = True
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            if request.on_end is not None:
                request.on_end()

    def handle_stopping(self) -> None:
        """Answers what is in flight: a fetch with what there is, a produce when it is stored. Then closes."""
        self._stopping = True
        self.link.pause()
        self._ring()
        self._turn()

    def describe(self) -> dict[str, Any]:
        return {"client_id": self.client_id, "user": self._principal.name if self._principal else "",
                "client_software": self.client_software, "in_flight": len(self._waiting)}

    # ---- what the APIs use

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def principal(self) -> Principal:
        """Set before the first request other than ApiVersions is dispatched."""
        assert self._principal is not None
        return self._principal

    def on_done(self) -> None:
        """A request has its answer."""
        if not self._busy:
            self._turn()

    def on_stored(self, stored: list[Stored]) -> None:
        """The kernel's answers to what requests of this connection appended; the tokens know which."""
        if self._closed:
            return
        was_busy, self._busy = self._busy, True        # what all of these complete is sent in one go
        for one in stored:
            cast(Token, one.token).on_stored(one)
        self._busy = was_busy
        self._turn()

    def wake_at(self, when_ms: int, on_timer: Callable[[], None] | None) -> None:
        """Call `on_timer` once at that time, or when the hub stops; for the oldest request alone. 0 cancels."""
        self._wake_ms, self._on_timer = when_ms, on_timer
        self._arm()

    def throttle(self, delay_ms: int) -> None:
        """Dispatch nothing for that long."""
        self._throttled_until_ms = max(self._throttled_until_ms, self.services.now_ms() + delay_ms)
        self._arm()

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
        if not self._next_turn_ms:
            self._spent_bytes = 0
        try:
            self._send_done()
            while not self._is_full():
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
            if self._spent_bytes >= TURN_BYTES and not self._next_turn_ms:
                self._end_turn()
            self._set_paused(self._is_full())
            if self._stopping and not self._waiting:
                self.close("stopping")

    def _end_turn(self) -> None:
        """This turn has done enough: what is left, if anything, comes with the next."""
        if self._reader.held_bytes() or self._waiting and self._waiting[0].on_turn is not None:
            self._next_turn_ms = self.services.now_ms() + 1
            self._arm()
        else:
            self._spent_bytes = 0

    def _is_full(self) -> bool:
        """Whether nothing more may be dispatched."""
        return (len(self._waiting) >= self.config.max_in_flight or self._stopping or self._throttled_until_ms > 0
                or not self._may_answer())

    def _may_answer(self) -> bool:
        """Whether there is room for one more answer, in this turn and with the peer."""
        return (self._spent_bytes < TURN_BYTES
                and self.link.unsent_bytes <= min(self.config.fetch_max_bytes, UNSENT_BYTES))

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
        key, version, correlation_id, client_id, at = decode_header(data, at, end)
        api = self.apis.get(key)
        if api is None:
            raise Malformed(f"API {key} is not offered")
        if not api.first_version <= version <= api.last_version:
            if api is not API_VERSIONS:
                raise Malformed(f"{api.name} version {version} is not offered")
            request = Request(self, api, 0, correlation_id, data, at, end)
            self._waiting.append(request)
            answer_unknown_version(request)
            return
        if version >= api.first_flexible:
            at = skip_tags(data, at, end)
        if self._principal is None and api is not API_VERSIONS and not self._authenticate(client_id):
            return
        request = Request(self, api, version, correlation_id, data, at, end)
        self._waiting.append(request)
        api.dispatch(request)

    def _authenticate(self, client_id: bytes | None) -> bool:
        self.client_id = (client_id or b"").decode(errors="replace")[:MAX_SHOWN]
        try:
            self._principal = self.admission.authenticate(DOOR, self.link.peer, None, None)
        except NotAuthenticated as refusal:
            self.close(f"{refusal.code}: {refusal}")
            return False
        return True

    def _ring(self) -> None:
        on_timer, self._on_timer, self._wake_ms = self._on_timer, None, 0
        if on_timer is not None:
            on_timer()

    def _arm(self) -> None:
        due = [when_ms for when_ms in (self._wake_ms, self._throttled_until_ms, self._next_turn_ms) if when_ms]
        self.link.wake_at(min(due) if due else 0)
