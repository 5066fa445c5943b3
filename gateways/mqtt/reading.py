"""Reading the body of an MQTT packet from front to back: numbers, texts, binary data. Pure."""
from __future__ import annotations

from gatehouse.gateways.mqtt.errors import MalformedPacket


class Fields:
    """The fields of one packet's body."""

    __slots__ = ("at", "body")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.at = 0

    def byte(self) -> int:
        """One byte."""
        self.at += 1
        if self.at > len(self.body):
            raise MalformedPacket("a packet shorter than its fields")
        return self.body[self.at - 1]

    def short(self) -> int:
        """Two bytes."""
        at, body = self.at, self.body
        self.at = at + 2
        if self.at > len(body):
            raise MalformedPacket("a packet shorter than its fields")
        return body[at] << 8 | body[at + 1]

    def binary(self) -> bytes:
        """Two bytes of size and as many bytes."""
        size = self.short()
        start = self.at
        self.at += size
        if self.at > len(self.body):
            raise MalformedPacket("a field longer than its packet")
        return self.body[start:self.at]

    def text(self) -> str:
        """The same as text."""
        return decode_text(self.binary())

    def span(self) -> tuple[int, int]:
        """Where the properties begin and end whose length stands here; goes on behind them."""
        size, self.at = variable(self.body, self.at, len(self.body))
        start = self.at
        self.at += size
        if self.at > len(self.body):
            raise MalformedPacket("properties longer than their packet (2.2.2.1)")
        return start, self.at

    def more(self) -> bool:
        """Whether something is left."""
        return self.at < len(self.body)


def decode_text(raw: bytes) -> str:
    """Raises MalformedPacket."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise MalformedPacket("[MQTT-1.5.3-1] text that is not well-formed UTF-8") from None
    if "\0" in text:
        raise MalformedPacket("[MQTT-1.5.3-2] text with a NUL")
    return text


def variable(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A variable byte integer of up to four bytes, and where it ends. Raises MalformedPacket."""
    value = 0
    for shift in (0, 7, 14, 21):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if shift and not byte:
                raise MalformedPacket("[MQTT5-1.5.5-1] a number that is longer than it need be")
            return value, at
    raise MalformedPacket("a number of more than four bytes, or one that is cut off (1.5.5)")
