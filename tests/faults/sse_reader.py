"""A reader of Server-Sent Events over a bare socket: it can stop reading, and resumes as a browser does."""
from __future__ import annotations

import json
import socket
from typing import Any


class SseReader:
    """One connection. `messages` are the data of its events so far, `last_id` what a browser would send back."""

    def __init__(self, port: int, target: str, last_id: str = "", receive_bytes: int = 0) -> None:
        self.messages: list[dict[str, Any]] = []
        self.lost: list[dict[str, Any]] = []
        self.last_id = last_id
        self._buffer = b""
        self._lines = b""
        self._name = "message"
        self._socket = socket.socket()
        if receive_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._socket.settimeout(60)
        self._socket.connect(("127.0.0.1", port))
        resume = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
        self._socket.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{resume}\r\n".encode())
        while b"\r\n\r\n" not in self._buffer:
            self._receive()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head

    def close(self) -> None:
        self._socket.close()

    def read_until(self, count: int) -> None:
        """Read until there are so many messages, or the hub goes (ConnectionError)."""
        self._parse()
        while len(self.messages) < count:
            self._receive()
            self._parse()

    def _receive(self) -> None:
        received = self._socket.recv(65536)
        if not received:
            raise ConnectionResetError("the hub has gone")
        self._buffer += received

    def _parse(self) -> None:
        """Whole chunks (RFC 9112, 7.1) to lines, whole lines to events."""
        while b"\r\n" in self._buffer:
            size_text, _, rest = self._buffer.partition(b"\r\n")
            size = int(size_text, 16)
            if len(rest) < size + 2:
                break
            assert rest[size:size + 2] == b"\r\n"
            if not size:
                raise ConnectionResetError("the stream has ended")
            self._lines += rest[:size]
            self._buffer = rest[size + 2:]
        *lines, self._lines = self._lines.split(b"\n")
        for line in lines:
            field, _, value = line.partition(b": ")
            if field == b"id":
                self.last_id = value.decode()
            elif field == b"event":
                self._name = value.decode()
            elif field == b"data":
                (self.messages if self._name == "message" else self.lost).append(json.loads(value))
