"""A client of AMQP 0-9-1 that does what no library would: methods in any order, broken frames. Its codec is pika's.

A *step* is what the client does: a `Send` of a method on a channel (with a content behind basic.publish), a `Raw` of
any bytes. The answers to it are texts, so that two servers' can be compared.
"""
from __future__ import annotations

import socket
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from pika import frame, spec
from pika.amqp_object import Method

WAIT_S: Final = 30.0
FRAME_MAX: Final = 131_072
CHANNEL_MAX: Final = 4
SILENT: Final = (spec.Basic.Publish, spec.Basic.Ack, spec.Basic.Nack, spec.Basic.Reject, spec.Connection.CloseOk,
                 spec.Channel.CloseOk, spec.Basic.RecoverAsync)
"""Methods that nothing answers where all is well: a question behind them shows that they are done."""

TOLD: Final = (spec.Basic.Deliver, spec.Basic.Ack, spec.Basic.Nack)
"""Methods that come whenever the server likes."""


@dataclass(frozen=True)
class Send:
    method: Method
    body: bytes | None = None
    properties: spec.BasicProperties = field(default_factory=spec.BasicProperties)
    channel: int = 1
    connection: int = 0                    # which of the client's connections


@dataclass(frozen=True)
class Raw:
    data: bytes
    connection: int = 0


@dataclass(frozen=True)
class Await:
    """Nothing is sent: the next delivery is awaited."""

    connection: int = 0


Step = Send | Raw | Await


class Wire:
    """One connection with channel 1 open."""

    def __init__(self, port: int, *, virtual_host: str = "/", user: str = "guest", password: str = "guest",
                 mechanism: str = "PLAIN", properties: dict[str, Any] | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._came = b""
        self._delivered: deque[Method] = deque()           # deliveries that nobody has awaited yet
        self.is_over = False
        self.ended = ""                        # how the server ended it
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        known = {"capabilities": {"authentication_failure_close": True, "consumer_cancel_notify": True},
                 **(properties or {})}
        start_ok = spec.Connection.StartOk(client_properties=known, mechanism=mechanism,
                                           response=f"\0{user}\0{password}")
        tune_ok = spec.Connection.TuneOk(channel_max=CHANNEL_MAX, frame_max=FRAME_MAX, heartbeat=0)
        self._answers("Connection.Start")
        for methods, until in (((start_ok,), "Connection.Tune"),
                               ((tune_ok, spec.Connection.Open(virtual_host=virtual_host)), "Connection.OpenOk")):
            for method in methods:
                self._put(0, method)
            self._answers(until)
            if self.is_over:
                return
        self._put(1, spec.Channel.Open())
        self._answers("Channel.OpenOk")

    def close(self) -> None:
        self._socket.close()

    def play(self, step: Step) -> list[str]:
        """What the server says to it, up to the answer, or the end of the channel or connection."""
        if self.is_over:
            return ["nothing: the connection is over"]
        try:
            if isinstance(step, Await):
                while not self._delivered and self._read() is not None:
                    pass
                return [shown(self._delivered.popleft())] if self._delivered else ["the connection is cut"]
            if isinstance(step, Raw):
                self._socket.sendall(step.data)
                self._socket.sendall(frame.Method(1, spec.Channel.Flow(active=True)).marshal())
                return self._answers("Channel.FlowOk")
            self._put(step.channel, step.method, step.body, step.properties)
            if isinstance(step.method, SILENT):
                self._put(step.channel, spec.Channel.Flow(active=True))
                return self._answers("Channel.FlowOk")
            return self._answers(None)
        except ConnectionError:
            self.is_over = True
            return ["the connection is cut"]

    # ---- frames

    def _put(self, channel: int, method: Method, body: bytes | None = None,
             properties: spec.BasicProperties | None = None) -> None:
        data = frame.Method(channel, method).marshal()
        if body is not None:
            data += frame.Header(channel, len(body), properties or spec.BasicProperties()).marshal()
            for at in range(0, len(body), FRAME_MAX - 8):
                data += frame.Body(channel, body[at:at + FRAME_MAX - 8]).marshal()
        self._socket.sendall(data)

    def _answers(self, until: str | None) -> list[str]:
        """What comes up to the method of this name, or to the first that is no notice."""
        said: list[str] = []
        while True:
            method = self._read()
            if method is None:
                return [*said, "the connection is cut"]
            if isinstance(method, TOLD):
                continue
            if method.NAME == until:
                return said
            said.append(shown(method))
            if until is None or isinstance(method, (spec.Connection.Close, spec.Channel.Close)):
                return said

    def _read(self) -> Method | None:
        """The next method; None where the connection is over."""
        while True:
            came = self._take()
            if came is None:
                self.is_over = True
                return None
            if not isinstance(came, frame.Method):
                continue
            method = came.method
            if isinstance(method, spec.Basic.Deliver):
                self._delivered.append(method)
            if isinstance(method, spec.Connection.Close):
                self.is_over = True
                self.ended = shown(method)
                self._put(0, spec.Connection.CloseOk())
            elif isinstance(method, spec.Channel.Close):
                self._put(came.channel_number, spec.Channel.CloseOk())
            return method

    def _take(self) -> frame.Frame | None:
        while True:
            used, found = frame.decode_frame(self._came)
            if found is not None:
                self._came = self._came[used:]
                return found
            try:
                data = self._socket.recv(1 << 16)
            except (ConnectionError, TimeoutError):
                return None
            if not data:
                return None
            self._came += data


def shown(method: Method) -> str:
    """A method as one line: how a channel or a connection ended, with code, text and what it was about."""
    if isinstance(method, (spec.Channel.Close, spec.Connection.Close)):
        return (f"{method.NAME} {method.reply_code} {method.reply_text} "
                f"({method.class_id}, {method.method_id})")
    if isinstance(method, spec.Basic.Deliver):
        return f"{method.NAME} exchange {method.exchange} key {method.routing_key}"
    if isinstance(method, spec.Basic.Return):
        return f"{method.NAME} {method.reply_code} {method.reply_text}"
    if isinstance(method, spec.Queue.DeclareOk):
        return f"{method.NAME} messages {method.message_count} consumers {method.consumer_count}"
    if isinstance(method, (spec.Queue.PurgeOk, spec.Queue.DeleteOk)):
        return f"{method.NAME} messages {method.message_count}"
    return str(method.NAME)
