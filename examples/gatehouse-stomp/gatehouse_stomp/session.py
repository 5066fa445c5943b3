"""One STOMP connection: CONNECT, SEND, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT. Pure: bytes and times are arguments.

A SEND is answered with its RECEIPT when the message is on disk. A subscription is a live one: what is published while
nobody is connected is not kept for it.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.contract import Link, Services
from gatehouse.gateways.door_session import ClientFault, DoorSession, Told
from gatehouse.gateways.properties.from_door import from_door
from gatehouse.gateways.properties.to_door import DoorProperties, to_door
from gatehouse_stomp.codec import Frame, decode, encode
from gatehouse_stomp.column import FRAME_HEADERS, STOMP, address_of

NOT_DONE: Final = frozenset(("ACK", "NACK", "BEGIN", "COMMIT", "ABORT"))
NOT_HONOURED: Final = frozenset(("transaction", "deliver-at"))


@dataclass(frozen=True, slots=True)
class StompConfig:
    """[gateways.stomp]"""

    connect_timeout_ms: int = field(default=10_000, metadata={
        "min": 100, "help": "Milliseconds from connecting to the end of CONNECT."})
    max_subscriptions: int = field(default=100, metadata={"min": 1, "help": "Subscriptions of one connection."})
    max_unsent_bytes: int = field(default=1 << 20, metadata={
        "min": 1 << 16, "help": "Bytes that a subscriber may leave unread before it is disconnected."})


class StompSession(DoorSession):
    """What STOMP's frames mean."""

    door = "stomp"
    late = "no CONNECT came in time"

    def __init__(self, link: Link, services: Services, config: StompConfig) -> None:
        super().__init__(link, services, login_timeout_ms=config.connect_timeout_ms,
                         max_subscriptions=config.max_subscriptions, max_unsent_bytes=config.max_unsent_bytes)

    def decode(self, data: bytes, at: int) -> tuple[Frame | None, int]:
        return decode(data, at, self.services.kernel.settings.max_message_bytes)

    def handle_frame(self, frame: Frame) -> None:
        if not self.is_known:
            self._connect(frame)
        elif frame.command == "SEND":
            self._send(frame)
        elif frame.command == "SUBSCRIBE":
            if frame.headers.get("ack", "auto") != "auto":
                raise ClientFault("ack:auto alone is known here")
            self.subscribe(frame.header("id"), frame.header("destination").removeprefix("/"),
                           with_retained=frame.headers.get("retained") == "true")
            self.say(_receipt(frame))
        elif frame.command == "UNSUBSCRIBE":
            self.unsubscribe(frame.header("id"))
            self.say(_receipt(frame))
        elif frame.command == "DISCONNECT":
            self.leave(_receipt(frame))
        else:
            raise ClientFault(f"{frame.command[:40]} is not done here" if frame.command in NOT_DONE
                              else f"{frame.command[:40]!r} is no command of STOMP 1.2")

    def _connect(self, frame: Frame) -> None:
        if frame.command not in ("CONNECT", "STOMP"):
            raise ClientFault("the first frame is CONNECT")
        if "1.2" not in frame.headers.get("accept-version", "1.0").split(","):
            raise ClientFault("STOMP 1.2 is spoken here")
        self.log_in(Credentials(frame.headers.get("login"), frame.headers.get("passcode"),
                                certificate=self.link.certificate, certificate_ends_ms=self.link.certificate_ends_ms))

    def on_login(self) -> None:
        self.say(encode("CONNECTED", [("version", "1.2"), ("heart-beat", "0,0"), ("server", "gatehouse")]))

    def _send(self, frame: Frame) -> None:
        for name in sorted(NOT_HONOURED & frame.headers.keys()):
            raise ClientFault(f"the header {name} is not honoured here")
        headers = [(name, value) for name, value in frame.headers.items() if name not in FRAME_HEADERS]
        envelope, problems = from_door(STOMP, DoorProperties(headers=headers), self.services.wall_ms())
        if problems:
            raise ClientFault(problems[0])
        self.publish(address_of(frame.header("destination")), frame.body, envelope, _receipt(frame))

    def encode_message(self, message: Told) -> bytes:
        shown = to_door(STOMP, message.envelope, self.services.wall_ms()).headers
        return encode("MESSAGE", [("subscription", message.subscription),
                                  ("message-id", f"{message.topic}-{message.partition}-{message.offset}"),
                                  ("destination", "/" + message.address), *shown], message.value)

    def encode_fault(self, text: str, frame: Frame | None) -> bytes:
        receipt = None if frame is None else frame.headers.get("receipt")
        return encode("ERROR", [("message", text), *([] if receipt is None else [("receipt-id", receipt)])])


def _receipt(frame: Frame) -> bytes:
    """The RECEIPT that this frame asks for; empty where it asks for none."""
    name = frame.headers.get("receipt")
    return b"" if name is None else encode("RECEIPT", [("receipt-id", name)])
