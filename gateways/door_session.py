"""A session for doors from outside whose clients send whole frames: what every door must do is done here, and a door
says only what its frames mean.

    class SmokeSession(DoorSession):
        door = "smoke"

        def decode(self, data, at): ...            # one frame, or None
        def handle_frame(self, frame): ...         # calls log_in, publish, subscribe, unsubscribe, leave, say
        def on_login(self): ...                    # the client is known: greet it
        def encode_fault(self, text, frame): ...   # the last that a client is told
        def encode_message(self, message): ...     # what a subscriber is sent

Login, pauses, quotas, rights that change, subscribers that do not read, and the end are kept as `docs/doors.md` asks.
The hub's own doors are made of the same parts (`door_side`), written out for speed.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied, NotAuthenticated, TooManyConnections
from gatehouse.gateways.door_side import Pacer, ReceiveBuffer, Timers
from gatehouse.gateways.properties.to_door import Envelope
from gatehouse.gateways.retained_feed import PAGE_VALUES, RetainedFeed
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.message import RETAIN, TRANSIENT
from gatehouse.kernel.records.batch import encode_headers, public_headers

if TYPE_CHECKING:
    from gatehouse.gateways.admission.credentials import Credentials
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.contract import Link, Services
    from gatehouse.gateways.door_side import Delivery, HeardAddress
    from gatehouse.kernel.api import Message
    from gatehouse.kernel.message import Retained, Stored

SHOWN_FILTERS: Final = 20


class ClientFault(Exception):
    """What a client did wrong; the text is what it is told. `code` is a constant name, for the metrics."""

    def __init__(self, text: str, code: str = "protocol_error") -> None:
        super().__init__(text)
        self.code = code


class Told(NamedTuple):
    """One message, as a subscriber is told of it."""

    subscription: str
    """The name that the client gave to its subscription."""

    address: str
    topic: str
    partition: int
    offset: int
    value: bytes
    envelope: Envelope


class DoorSubscription:
    """One live subscription: the switchboard's `LiveListener`."""

    def __init__(self, session: DoorSession, name: str, filter_text: str) -> None:
        self._session = session
        self._name = name
        self.filter = filter_text

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        """Everything of one flush, in order."""
        self._session.deliver(self._name, deliveries)


class DoorSession(ABC):  # decision 154
    """One client of a door from outside, as the hub has it: a `contract.Session`."""

    door: ClassVar[str]
    """The door's name."""

    late: ClassVar[str] = "no login came in time"
    """What a client is told that does not log in."""

    def __init__(self, link: Link, services: Services, *, login_timeout_ms: int, max_subscriptions: int,
                 max_unsent_bytes: int) -> None:
        """`login_timeout_ms` is from connecting to `on_login`; a subscriber that leaves more than `max_unsent_bytes`
        unread is disconnected."""
        self.link = link
        self.services = services
        self._max_subscriptions = max_subscriptions
        self._max_unsent_bytes = max_unsent_bytes
        self._received = ReceiveBuffer()
        self._timers = Timers(link)
        self._pacer = Pacer(link, self._timers, self._received, self)
        self._login_end = self._timers.add(self._on_late)
        self._guard: Guard | None = None
        self._subscriptions: dict[str, DoorSubscription] = {}
        self._retained: RetainedFeed | None = None
        self._unanswered = 0                     # publishes that are not on disk yet
        self._goodbye: bytes | None = None       # what is said once everything is answered
        self._ended = False
        self._login_end.at(services.now_ms() + login_timeout_ms)

    # --- what a door gives -------------------------------------------------------------------------------------------

    @abstractmethod
    def decode(self, data: bytes, at: int) -> tuple[Any, int]:
        """(the frame that begins at this index, or None where it is not all there; where the next one begins). Bounds
        what a frame may have. Raises ClientFault."""

    @abstractmethod
    def handle_frame(self, frame: Any) -> None:
        """Do what a frame asks for. Raises ClientFault; refusals of the hub may pass."""

    @abstractmethod
    def on_login(self) -> None:
        """The client is known from here on."""

    @abstractmethod
    def encode_fault(self, text: str, frame: Any) -> bytes:
        """What a client is told before the connection is closed; `frame` is what it is about, None: nothing that the
        client has sent."""

    @abstractmethod
    def encode_message(self, message: Told) -> bytes:
        """What a subscriber is sent."""

    # --- what a door calls -------------------------------------------------------------------------------------------

    @property
    def is_known(self) -> bool:
        """Whether the client has logged in."""
        return self._guard is not None

    @property
    def guard(self) -> Guard:
        """What the client may do of the hub."""
        assert self._guard is not None, "nothing but a login is taken before the login"
        return self._guard

    def log_in(self, credentials: Credentials) -> None:
        """Ask who this is; nothing more is taken meanwhile. Then `on_login`, or the end."""
        self._pacer.hold()
        self.services.admission.authenticate(self.door, self.link.peer, credentials, self._on_answer,
                                             lambda: self._ended or self.link.gone)

    def publish(self, address: str, value: bytes, envelope: Envelope, answer: bytes = b"") -> None:
        """Store a message; `answer` is written when it is on disk. Raises Denied, KernelError."""
        guard = self.guard
        attributes = self.services.door_numbers.of(self.door) | (RETAIN if envelope.retain else 0) | (
            0 if envelope.durable else TRANSIENT)
        message: Message = (guard.place(address), value, encode_headers(envelope.headers), attributes,
                            envelope.timestamp_ms)
        try:
            slow_ms = guard.append([message], self, answer, len(value))
        except KernelError:
            guard.forget_places()            # what was placed once may be gone: looked up again by who comes back
            raise
        self._unanswered += 1
        if slow_ms:
            self._pacer.pause_until(self.services.now_ms() + slow_ms)

    def subscribe(self, name: str, filter_text: str, *, with_retained: bool = False) -> None:
        """Be told of what is published from now on, and before that of the values that are retained. Raises
        ClientFault, Denied, InvalidFilter."""
        if name in self._subscriptions:
            raise ClientFault("there is a subscription of this id already")
        if len(self._subscriptions) >= self._max_subscriptions:
            raise ClientFault(f"a connection has at most {self._max_subscriptions} subscriptions")
        subscription = DoorSubscription(self, name, filter_text)
        self.guard.subscribe(filter_text, subscription)
        self._subscriptions[name] = subscription
        if with_retained:
            if self._retained is None:
                self._retained = RetainedFeed(self.guard, self._retained_room, self._send_retained)
            self._retained.add(filter_text)

    def unsubscribe(self, name: str) -> None:
        """End a subscription. Raises ClientFault."""
        subscription = self._subscriptions.pop(name, None)
        if subscription is None:
            raise ClientFault("there is no subscription of this id")
        self.guard.unsubscribe(subscription.filter, subscription)
        if self._retained is not None:
            self._retained.remove(subscription.filter)

    def say(self, data: bytes) -> None:
        """Write to the client; nothing for no bytes."""
        if data:
            self.link.write(data)

    def leave(self, goodbye: bytes = b"") -> None:
        """Take nothing more; say goodbye and close when everything is answered."""
        self._goodbye = goodbye
        self._leave_when_answered()

    def fail(self, code: str, text: str, frame: Any = None) -> None:
        """Say what was wrong, and close. `code` is a constant name, for the metrics."""
        if not self._ended:
            self.services.admission.trace.on_event(self.door, code)
            self.link.write(self.encode_fault(text, frame))
            self._end(f"{code}: {text}")

    # --- contract.Session --------------------------------------------------------------------------------------------

    def handle_data(self, data: bytes) -> None:
        if self._pacer.is_held:
            self._received.add(data)
            return
        data = self._received.take(data)
        at, frame = 0, None
        try:
            while not (self._pacer.waits or self._ended or self._goodbye is not None):
                frame, at = self.decode(data, at)
                if frame is None:
                    break
                self.handle_frame(frame)
        except (ClientFault, Denied, KernelError) as error:
            self.fail(error.code, str(error), frame)
        if not self._ended:
            self._received.keep(data, at)

    def handle_drained(self) -> None:
        if self._retained is not None:
            self._retained.pump()

    def handle_timer(self, now_ms: int) -> None:
        self._timers.handle_timer(now_ms)

    def handle_stopping(self) -> None:
        self.leave(self.encode_fault("the hub is stopping", None))

    def handle_closed(self) -> None:
        self._finish()
        self._timers.end()
        self._pacer.end()

    def held_bytes(self) -> int:
        """What has come and waits here for the rest of a frame."""
        return self._received.held_bytes

    def describe(self) -> dict[str, Any]:
        return {"user": "" if self._guard is None else self._guard.logged_in.name, "client_id": "",
                "subscriptions": len(self._subscriptions),
                "filters": sorted(each.filter for each in self._subscriptions.values())[:SHOWN_FILTERS]}

    # --- admission's `RegisteredSession` -----------------------------------------------------------------------------

    def on_principal_ended(self, reason: str) -> None:
        self.fail("not_authenticated", reason)

    def on_rights_changed(self) -> None:
        """A subscription that is no longer allowed ends the connection: it must not seem to go on."""
        for subscription in self._subscriptions.values():
            if not self.guard.may(Operation.CONSUME, subscription.filter):
                self.fail("not_authorized", f"the right to read {subscription.filter} was taken away")
                return

    # --- what the kernel calls ---------------------------------------------------------------------------------------

    def on_stored(self, stored: list[Stored]) -> None:
        """One flush is on disk, or was refused; `token` is what the client is answered."""
        self._unanswered -= len(stored)
        for answer in stored:
            if answer.error is not None:
                self.fail(getattr(answer.error, "code", "not_stored"), str(answer.error))
            elif isinstance(answer.token, bytes):
                self.say(answer.token)
        self._leave_when_answered()

    def deliver(self, name: str, deliveries: list[Delivery]) -> None:
        """Send a subscription's messages, all of them in one write."""
        if self._ended:
            return
        self._write([self.encode_message(_told(name, heard, offset + index, message))
                     for heard, messages, offset, _ in deliveries for index, message in enumerate(messages)])
        if self.link.unsent_bytes > self.services.unsent.allowed(self._max_unsent_bytes):
            self.fail("slow_reader", "messages are not read as fast as they come")

    def _retained_room(self, options: int) -> int:
        return PAGE_VALUES if self.link.unsent_bytes < self.services.unsent.allowed(self._max_unsent_bytes) else 0

    def _send_retained(self, filter_text: str, options: int, value: Retained) -> bool:
        if not self._retained_room(options):
            return False
        offset, timestamp_ms, _, stored, headers, attributes, _ = value.record
        envelope = Envelope(list(headers), None, timestamp_ms, durable=not attributes & TRANSIENT, retain=True)
        self._write([self.encode_message(Told(name, value.address, value.topic, value.partition, offset, stored or b"",
                                              envelope))
                     for name, subscription in self._subscriptions.items() if subscription.filter == filter_text])
        return True

    # --- inside ------------------------------------------------------------------------------------------------------

    def _write(self, frames: list[bytes]) -> None:
        self.link.write(b"".join(frames))
        flow = self.services.admission.trace.flow(self.door)
        flow.messages_out += len(frames)
        flow.bytes_out += sum(map(len, frames))

    def _on_answer(self, answer: Principal | NotAuthenticated) -> None:
        if self._ended:
            return
        self._pacer.release()
        if isinstance(answer, NotAuthenticated):
            self.fail("not_authenticated", str(answer))
            return
        try:
            self._guard = self.services.guard(self.door, answer, self, peer=self.link.peer)
        except TooManyConnections as full:
            self.fail(full.code, str(full))
            return
        self._login_end.at(0)
        self.on_login()
        if self._received.held_bytes:
            self.handle_data(b"")

    def _on_late(self, now_ms: int) -> None:
        self.fail("login_timeout", self.late)

    def _leave_when_answered(self) -> None:
        if self._goodbye is not None and not self._unanswered and not self._ended:
            self.say(self._goodbye)
            self._end("")

    def _end(self, reason: str) -> None:
        self._finish()
        self.link.close(reason)

    def _finish(self) -> None:
        """Take nothing more and owe nothing more. More than once is no mistake."""
        self._ended = True
        self._timers.stop()
        self._received.clear()
        if self._retained is not None:
            self._retained.clear()
        self._subscriptions = {}
        if self._guard is not None:
            self._guard.leave()


def _told(name: str, heard: HeardAddress, offset: int, message: Message) -> Told:
    _, value, headers, attributes, timestamp_ms = message
    envelope = Envelope(list(public_headers(headers)), None, timestamp_ms, durable=not attributes & TRANSIENT,
                        retain=bool(attributes & RETAIN))
    return Told(name, heard.address, heard.topic, heard.partition, offset, value or b"", envelope)
