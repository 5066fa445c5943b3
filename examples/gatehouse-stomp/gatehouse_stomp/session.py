"""One STOMP connection: CONNECT, SEND, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT. Pure: bytes and times are arguments.

A SEND is answered with its RECEIPT when the message is on disk. A subscription is a live one: what is published while
nobody is connected is not kept for it.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.admission.session_registry import Registration
from gatehouse.gateways.contract import Link, Services
from gatehouse.gateways.properties.from_door import from_door
from gatehouse.gateways.properties.to_door import DoorProperties, Envelope, to_door
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.message import RETAIN, TRANSIENT, Delivery, Message, Stored
from gatehouse.kernel.records.private import public_headers
from gatehouse.kernel.records.record import encode_headers
from gatehouse_stomp.codec import Frame, StompError, decode, encode
from gatehouse_stomp.column import FRAME_HEADERS, STOMP, address_of

NAME: Final = "stomp"
NOT_DONE: Final = frozenset(("ACK", "NACK", "BEGIN", "COMMIT", "ABORT"))


@dataclass(frozen=True, slots=True)
class StompConfig:
    """[gateways.stomp]"""

    connect_timeout_ms: int = field(default=10_000, metadata={
        "min": 100, "help": "Milliseconds from connecting to the end of CONNECT."})
    max_subscriptions: int = field(default=100, metadata={"min": 1, "help": "Subscriptions of one connection."})
    max_unsent_bytes: int = field(default=1 << 20, metadata={
        "min": 1 << 16, "help": "Bytes that a subscriber may leave unread before it is disconnected."})


class Subscription:
    """One SUBSCRIBE: the kernel's `Subscriber`."""

    def __init__(self, session: StompSession, name: str, filter_text: str) -> None:
        self._session = session
        self._name = name
        self.filter = filter_text

    def on_delivery(self, deliveries: list[Delivery]) -> None:
        """Everything of one flush for this subscription, in order."""
        self._session.deliver(self._name, deliveries)


class StompSession:
    """See `gatehouse.gateways.contract.Session`."""

    def __init__(self, link: Link, services: Services, config: StompConfig) -> None:
        self._link = link
        self._services = services
        self._kernel = services.kernel
        self._config = config
        self._rest = b""
        self._principal: Principal | None = None
        self._registration: Registration | None = None
        self._subscriptions: dict[str, Subscription] = {}
        self._unanswered = 0                     # SENDs that are not on disk yet
        self._waits = False                      # for its login, or for its quota: nothing more is taken meanwhile
        self._goodbye: bytes | None = None       # what is said once everything is answered
        self._ended = False
        link.wake_at(services.now_ms() + config.connect_timeout_ms)

    # --- bytes in ----------------------------------------------------------------------------------------------------

    def handle_data(self, data: bytes) -> None:
        data, self._rest = self._rest + data, b""
        at = 0
        frame: Frame | None = None
        try:
            while not (self._waits or self._ended or self._goodbye is not None):
                frame, at = decode(data, at, self._kernel.settings.max_message_bytes)
                if frame is None:
                    break
                self._handle_frame(frame)
        except (StompError, Denied, KernelError) as error:
            asked = None if frame is None else frame.headers.get("receipt")
            self._end_with_error(getattr(error, "code", "protocol_error"), str(error),
                                 [] if asked is None else [("receipt-id", asked)])
        if not self._ended:
            self._rest = data[at:]

    def _handle_frame(self, frame: Frame) -> None:
        if self._principal is None:
            self._connect(frame)
        elif frame.command == "SEND":
            self._send(self._principal, frame)
        elif frame.command == "SUBSCRIBE":
            self._subscribe(self._principal, frame)
        elif frame.command == "UNSUBSCRIBE":
            subscription = self._subscriptions.pop(frame.header("id"), None)
            if subscription is None:
                raise StompError("there is no subscription of this id")
            self._kernel.unsubscribe(subscription.filter, subscription, tenant=self._principal.tenant)
            self._confirm(frame)
        elif frame.command == "DISCONNECT":
            self._goodbye = _receipt(frame)
            self._leave_when_answered()
        else:
            raise StompError(f"{frame.command[:40]} is not done here" if frame.command in NOT_DONE
                             else f"{frame.command[:40]!r} is no command of STOMP 1.2")

    def _connect(self, frame: Frame) -> None:
        if frame.command not in ("CONNECT", "STOMP"):
            raise StompError("the first frame is CONNECT")
        if "1.2" not in frame.headers.get("accept-version", "1.0").split(","):
            raise StompError("STOMP 1.2 is spoken here")
        self._waits = True
        self._link.pause()
        credentials = Credentials(frame.headers.get("login"), frame.headers.get("passcode"),
                                  certificate=self._link.certificate,
                                  certificate_ends_ms=self._link.certificate_ends_ms)
        self._services.admission.authenticate(NAME, self._link.peer, credentials, self._on_login,
                                              lambda: self._ended or self._link.gone)

    def _on_login(self, answer: Principal | NotAuthenticated) -> None:
        self._waits = False
        if self._ended:
            return
        self._link.resume()
        if isinstance(answer, NotAuthenticated):
            self._end_with_error("not_authenticated", str(answer))
            return
        self._principal = answer
        self._registration = self._services.admission.register(answer, NAME, self)
        self._link.wake_at(0)
        self._link.write(encode("CONNECTED", [("version", "1.2"), ("heart-beat", "0,0"), ("server", "gatehouse")]))
        if self._rest:
            self.handle_data(b"")

    # --- SEND --------------------------------------------------------------------------------------------------------

    def _send(self, principal: Principal, frame: Frame) -> None:
        for name in ("transaction", "deliver-at"):
            if name in frame.headers:
                raise StompError(f"the header {name} is not honoured here")
        headers = [(name, value) for name, value in frame.headers.items() if name not in FRAME_HEADERS]
        envelope, problems = from_door(STOMP, DoorProperties(headers=headers), self._services.wall_ms())
        if problems:
            raise StompError(problems[0])
        placement = self._services.admission.place(principal, address_of(frame.header("destination")))
        attributes = self._services.door_numbers.of(NAME) | (RETAIN if envelope.retain else 0)
        message: Message = (placement, frame.body, encode_headers(envelope.headers), attributes, envelope.timestamp_ms)
        self._kernel.append([message], self, _receipt(frame))
        self._unanswered += 1
        slow_ms = self._services.admission.charge(NAME, principal, 1, len(frame.body))
        if slow_ms:
            self._waits = True
            self._link.pause()
            self._link.wake_at(self._services.now_ms() + slow_ms)

    def on_stored(self, stored: list[Stored]) -> None:
        """One flush is on disk, or was refused; `token` is the RECEIPT."""
        self._unanswered -= len(stored)
        for answer in stored:
            if answer.error is not None:
                self._end_with_error(getattr(answer.error, "code", "not_stored"), str(answer.error))
            elif isinstance(answer.token, bytes) and answer.token:
                self._link.write(answer.token)
        self._leave_when_answered()

    # --- SUBSCRIBE ---------------------------------------------------------------------------------------------------

    def _subscribe(self, principal: Principal, frame: Frame) -> None:
        name, filter_text = frame.header("id"), frame.header("destination").removeprefix("/")
        if frame.headers.get("ack", "auto") != "auto":
            raise StompError("ack:auto alone is known here")
        if name in self._subscriptions:
            raise StompError("there is a subscription of this id already")
        if len(self._subscriptions) >= self._config.max_subscriptions:
            raise StompError(f"a connection has at most {self._config.max_subscriptions} subscriptions")
        self._services.admission.require(principal, Operation.CONSUME, filter_text)
        subscription = Subscription(self, name, filter_text)
        self._kernel.subscribe(filter_text, subscription, tenant=principal.tenant)
        self._subscriptions[name] = subscription
        self._confirm(frame)

    def deliver(self, subscription: str, deliveries: list[Delivery]) -> None:
        """Write MESSAGE frames, all of them in one write."""
        if self._ended:
            return
        now_ms = self._services.wall_ms()
        frames: list[bytes] = []
        for placement, messages, offset, _ in deliveries:
            for index, (_, value, headers, attributes, timestamp_ms) in enumerate(messages):
                envelope = Envelope(list(public_headers(headers)), None, timestamp_ms,
                                    durable=not attributes & TRANSIENT, retain=bool(attributes & RETAIN))
                shown = to_door(STOMP, envelope, now_ms).headers
                message_id = f"{placement.topic}-{placement.partition}-{offset + index}"
                frames.append(encode("MESSAGE", [("subscription", subscription), ("message-id", message_id),
                                                 ("destination", "/" + placement.address), *shown], value or b""))
        self._link.write(b"".join(frames))
        flow = self._services.admission.trace.flow(NAME)
        flow.messages_out += len(frames)
        flow.bytes_out += sum(map(len, frames))
        if self._link.unsent_bytes > self._services.unsent.allowed(self._config.max_unsent_bytes):
            self._end_with_error("slow_reader", "messages are not read as fast as they come")

    # --- what others decide ------------------------------------------------------------------------------------------

    def handle_timer(self, now_ms: int) -> None:
        if self._principal is None:
            self._end_with_error("connect_timeout", "no CONNECT came in time")
        elif self._waits:
            self._waits = False
            self._link.resume()
            self.handle_data(b"")

    def handle_drained(self) -> None:
        """Nothing waits for it: a subscriber that is too slow has been disconnected."""

    def handle_stopping(self) -> None:
        self._goodbye = encode("ERROR", [("message", "the hub is stopping")])
        self._leave_when_answered()

    def on_principal_ended(self, reason: str) -> None:
        """See `gatehouse.gateways.admission.session_registry.RegisteredSession`."""
        self._end_with_error("not_authenticated", reason)

    def on_rights_changed(self) -> None:
        """See `gatehouse.gateways.admission.session_registry.RegisteredSession`."""
        for subscription in self._subscriptions.values():
            if not self._services.admission.may(self._owner(), Operation.CONSUME, subscription.filter):
                self._end_with_error("not_authorized", f"the right to read {subscription.filter} was taken away")
                return

    def handle_closed(self) -> None:
        self._finish()

    def describe(self) -> dict[str, Any]:
        user = "" if self._principal is None else self._principal.name
        return {"user": user, "client_id": "", "subscriptions": len(self._subscriptions),
                "filters": sorted(subscription.filter for subscription in self._subscriptions.values())[:20]}

    # --- inside ------------------------------------------------------------------------------------------------------

    def _owner(self) -> Principal:
        assert self._principal is not None, "who has subscribed has logged in"
        return self._principal

    def _confirm(self, frame: Frame) -> None:
        receipt = _receipt(frame)
        if receipt:
            self._link.write(receipt)

    def _leave_when_answered(self) -> None:
        if self._goodbye is not None and not self._unanswered and not self._ended:
            self._link.write(self._goodbye)
            self._end("")

    def _end_with_error(self, event: str, message: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Say what was wrong, and close: STOMP goes on after no error. `event` is a constant name, for the metrics."""
        if not self._ended:
            self._services.admission.trace.on_event(NAME, event)
            self._link.write(encode("ERROR", [("message", message), *headers]))
            self._end(f"{event}: {message}")

    def _end(self, reason: str) -> None:
        self._finish()
        self._link.close(reason)

    def _finish(self) -> None:
        """Take nothing more and owe nothing more. More than once is no mistake."""
        self._ended = True
        subscriptions, self._subscriptions = self._subscriptions, {}
        for subscription in subscriptions.values():
            self._kernel.unsubscribe(subscription.filter, subscription, tenant=self._owner().tenant)
        if self._registration is not None:
            self._registration.leave()


def _receipt(frame: Frame) -> bytes:
    """The RECEIPT that this frame asks for; empty where it asks for none."""
    name = frame.headers.get("receipt")
    return b"" if name is None else encode("RECEIPT", [("receipt-id", name)])
