"""What a client did that ends its connection. MQTT 3.1.1 names no error to the client; MQTT 5 does, in DISCONNECT."""
from __future__ import annotations

from gatehouse.gateways.mqtt import reasons


class ProtocolError(Exception):
    """The client broke the protocol, or asks for what is not here.

    `code` is stable and goes to the log and the metrics; the text quotes the clause. `reason_code` is what MQTT 5 says.
    """

    code = "protocol_error"

    def __init__(self, text: str, reason_code: int = 0) -> None:
        super().__init__(text)
        self.reason_code = reason_code or reasons.reason_of(self.code)


class MalformedPacket(ProtocolError):
    code = "malformed_packet"


class PacketTooLarge(ProtocolError):
    code = "packet_too_large"


class Unsupported(ProtocolError):
    """Legal MQTT that this door does not do."""

    code = "not_supported"


class InvalidPublish(Exception):
    """An MQTT 5 PUBLISH that breaks no rule of the protocol, and is not stored: its sender is told by reason code."""

    code = "invalid_publish"


class ReservedTopic(InvalidPublish):
    """A topic that begins with `$` and says nothing that is known."""

    code = "reserved"


class InvalidPayload(InvalidPublish):
    """The payload is no UTF-8, though its format indicator says so."""

    code = "invalid_payload"


class InvalidDelivery(InvalidPublish):
    """The user property `delay` or `deliver-at` names no time."""

    code = "invalid_delivery"


class InvalidRecallPublish(Exception):
    """A PUBLISH to `$recall` names neither a key nor an id of a delayed message."""

    code = "invalid_recall"
