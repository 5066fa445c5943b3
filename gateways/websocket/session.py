"""A door's session inside a WebSocket: to the connection it is the session, to the door's session it is the link.

    connection ⇄ WebSocketSession (frames) ⇄ _FramedLink ⇄ the door's session (packets)

What is written is one binary frame per write. Back-pressure, timers and limits are the connection's own.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gatehouse.gateways.connections.open_connections import held_by
from gatehouse.gateways.websocket.codec import (
    BINARY,
    CLOSE,
    GOING_AWAY,
    NORMAL,
    PING,
    POLICY,
    PONG,
    Broken,
    Control,
    WebSocketReader,
    encode_close,
    encode_head,
    read_close,
)

if TYPE_CHECKING:
    from gatehouse.gateways.connections.native_sockets import Reader
    from gatehouse.gateways.connections.settings import Framing
    from gatehouse.gateways.contract import Link, Listen, Session


class WebSocketSession:  # decision 98
    """An open WebSocket: its messages are the bytes of a door's session; see `contract.Session`. `make` makes that
    on the link that it is given."""

    def __init__(self, link: Link, make: Callable[[Link], Session]) -> None:
        self._link = link
        self._reader = WebSocketReader()
        self._framed = _FramedLink(link)
        self._inner = make(self._framed)

    def handle_data(self, data: bytes) -> None:
        try:
            frames = self._reader.feed(data)
        except Broken as fault:
            self._framed.end(fault.code, f"websocket: {fault}")
            return
        payload: list[bytes] = []            # of frames that followed each other: the session sees them as one read
        for frame in frames:
            if isinstance(frame, bytes):
                payload.append(frame)
                continue
            self._hand_over(payload)
            payload = []
            if isinstance(frame, Control) and not self._framed.closed:
                self._handle_control(frame)
        self._hand_over(payload)

    def _hand_over(self, payload: list[bytes]) -> None:
        if payload and not self._framed.closed:
            self._inner.handle_data(payload[0] if len(payload) == 1 else b"".join(payload))

    def _handle_control(self, frame: Control) -> None:
        if frame.opcode == PING:
            self._link.write(encode_head(PONG, len(frame.payload)) + frame.payload)
        elif frame.opcode == CLOSE:
            try:
                self._framed.end(read_close(frame.payload), "")      # the same code back (5.5.1)
            except Broken as fault:
                self._framed.end(fault.code, f"websocket: {fault}")

    def handle_drained(self) -> None:
        self._inner.handle_drained()

    def handle_timer(self, now_ms: int) -> None:
        self._inner.handle_timer(now_ms)

    def handle_closed(self) -> None:
        self._inner.handle_closed()

    def handle_stopping(self) -> None:
        self._framed.go_away()
        self._inner.handle_stopping()

    def on_principal_ended(self, reason: str) -> None:
        self._inner.on_principal_ended(reason)

    def held_bytes(self) -> int:
        """What waits here for the rest of a frame's head, and in the session that speaks in the frames."""
        return self._reader.held_bytes + held_by(self._inner)

    def describe(self) -> dict[str, Any]:
        return {**self._inner.describe(), "transport": "websocket"}


class _FramedLink:
    """A `contract.Link` whose writes are binary frames."""

    def __init__(self, link: Link) -> None:
        self.peer = link.peer
        self.listen: Listen = link.listen
        self.certificate = link.certificate
        self.certificate_ends_ms = link.certificate_ends_ms
        self.closed = False
        self.closing_code = NORMAL
        self._link = link
        self.pause = link.pause
        self.resume = link.resume
        self.wake_at = link.wake_at

    @property
    def gone(self) -> bool:
        return self.closed or self._link.gone

    @property
    def unsent_bytes(self) -> int:
        return self._link.unsent_bytes

    @property
    def is_read(self) -> bool:
        return self._link.is_read

    def go_away(self) -> None:
        """From now on a close says that the hub stops."""
        self.closing_code = GOING_AWAY

    def write(self, data: bytes) -> None:
        self._link.write_many([encode_head(BINARY, len(data)), data])

    def write_many(self, parts: list[bytes]) -> None:
        self._link.write_many([encode_head(BINARY, sum([len(part) for part in parts])), *parts])

    def read_through(self, reader: Reader | None) -> bool:
        """What comes here has frames round it."""
        return False

    def hand_over(self, door: str, framing: Framing, greeting: bytes, rest: bytes) -> bool:
        """Nobody goes on from a WebSocket to something else."""
        return False

    def close(self, reason: str = "") -> None:
        """The door's session ends: a close frame says whether all is well, then the connection is closed."""
        self.end(self.closing_code if not reason or self.closing_code == GOING_AWAY else POLICY, reason)

    def end(self, code: int, reason: str) -> None:
        """Say goodbye with this code, and close."""
        if not self.closed:
            self.closed = True
            self._link.write(encode_close(code, reason.partition(":")[0]))
            self._link.close(reason)
