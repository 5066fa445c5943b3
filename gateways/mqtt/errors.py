"""What a client did that ends its connection. MQTT 3.1.1 has no other answer: it names no error to the client."""
from __future__ import annotations


class ProtocolError(Exception):
    """The client broke the protocol, or asks for what is not here.

    `code` is stable and goes to the log and the metrics; the text quotes the clause of MQTT 3.1.1.
    """

    code = "protocol_error"


class MalformedPacket(ProtocolError):
    code = "malformed_packet"


class PacketTooLarge(ProtocolError):
    code = "packet_too_large"


class Unsupported(ProtocolError):
    """Legal MQTT that this door does not do."""

    code = "not_supported"
