"""As much MQTT 3.1.1 as a tester needs, by hand over a blocking socket, so that every byte's fate is known."""
from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Final

CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
SUBACK: Final = 9
PINGRESP: Final = 13

PINGREQ_PACKET: Final = b"\xc0\x00"


def packet(first_byte: int, body: bytes) -> bytes:
    length, left = b"", len(body)
    while True:
        left, low = left >> 7, left & 0x7F
        length += bytes((low | (0x80 if left else 0),))
        if not left:
            return bytes((first_byte,)) + length + body


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded


def connect_packet(client_id: str, keep_alive_s: int = 0) -> bytes:
    return packet(0x10, text("MQTT") + b"\x04\x02" + struct.pack(">H", keep_alive_s) + text(client_id))


def publish_packet(topic: str, payload: bytes, packet_id: int = 0) -> bytes:
    """QoS 1, or QoS 0 without a packet id."""
    if packet_id:
        return packet(0x32, text(topic) + struct.pack(">H", packet_id) + payload)
    return packet(0x30, text(topic) + payload)


class MqttPeer:
    """A connected client. Everything raises OSError once the hub is gone, a time-out included."""

    def __init__(self, port: int, client_id: str, timeout_s: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.send(connect_packet(client_id))
        kind, body = self.read()
        if kind != CONNACK or body[1:] != b"\0":
            raise ConnectionError(f"not let in: {kind} {body!r}")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def subscribe(self, topic_filter: str, qos: int = 1) -> None:
        self.send(packet(0x82, b"\0\1" + text(topic_filter) + bytes((qos,))))
        kind, _ = self.read()
        assert kind == SUBACK

    def read(self) -> tuple[int, bytes]:
        """The next packet: its kind (upper half of the first byte) and body; PUBLISH bodies as `split_publish`
        takes."""
        while True:
            found = self._next()
            if found is not None:
                return found
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("closed by the hub")
            self._buffer += data

    def read_ready(self) -> Iterator[tuple[int, bytes]]:
        """What has come already, after one read."""
        yield self.read()
        while (found := self._next()) is not None:
            yield found

    def _next(self) -> tuple[int, bytes] | None:
        buffer, length, at = self._buffer, 0, 1
        while True:
            if at >= len(buffer):
                return None
            length |= (buffer[at] & 0x7F) << 7 * (at - 1)
            at += 1
            if not buffer[at - 1] & 0x80:
                break
        if len(buffer) < at + length:
            return None
        self._buffer = buffer[at + length:]
        kind, body = buffer[0] >> 4, buffer[at:at + length]
        return kind, buffer[:1] + body if kind == PUBLISH else body

    def close(self) -> None:
        self.socket.close()


def split_publish(body: bytes) -> tuple[str, bytes, int]:
    """Topic, payload and packet id (0 for QoS 0) of a PUBLISH as `read` gives it."""
    flags, end = body[0], 3 + struct.unpack_from(">H", body, 1)[0]
    topic = body[3:end].decode()
    if not flags & 0x06:
        return topic, body[end:], 0
    return topic, body[end + 2:], struct.unpack_from(">H", body, end)[0]
