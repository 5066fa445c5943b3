"""Two processes of one load: a reader that is ready first, then a writer; each answers with what it measured.

The clock is `time.perf_counter`, which all processes of a Linux machine share. Whatever hangs is ended: a load never
outlives its bound.
"""
from __future__ import annotations

import multiprocessing
import os
import socket
import ssl
import time
from collections.abc import Callable
from functools import cache
from multiprocessing.synchronize import Event
from typing import Any, Final, NamedTuple

HOST: Final = "127.0.0.1"
LOGIN: Final = "LOAD_LOGIN"
AUTHORITY: Final = "LOAD_TLS_CA"
SILENCE_S: Final = 20.0          # a server that says nothing for this long has stopped answering
WHOLE_RUN_S: Final = 300.0       # no load takes longer


class Written(NamedTuple):
    """What a writer measured."""

    began_s: float
    ended_s: float


class Read(NamedTuple):
    """What a reader measured."""

    messages: int
    ended_s: float


class LoadFailed(Exception):
    """The server did not do its part; the text says what was missing."""


def login() -> tuple[str, str] | None:
    """(user, password) that loads log in with, from the environment, which all processes of a load share."""
    user, colon, password = os.environ.get(LOGIN, "").partition(":")
    return (user, password) if colon else None


def dial(port: int) -> socket.socket:
    """A connection without Nagle's delay whose calls give up after SILENCE_S; with TLS where the environment names an
    authority."""
    connection = socket.create_connection((HOST, port), timeout=SILENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    authority = os.environ.get(AUTHORITY)
    return connection if not authority else tls_context(authority).wrap_socket(connection, server_hostname=HOST)


@cache
def tls_context(authority: str) -> ssl.SSLContext:
    """What all connections of a load are made with."""
    return ssl.create_default_context(cafile=authority)


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes. Raises LoadFailed when the server closes before."""
    parts: list[bytes] = []
    while size:
        part = connection.recv(size)
        if not part:
            raise LoadFailed("the server closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def receive_some(connection: socket.socket, most: int) -> bytes:
    """At least one byte. Raises LoadFailed when the server closes."""
    part = connection.recv(most)
    if not part:
        raise LoadFailed("the server closed the connection")
    return part


def run_pair(reader: Callable[[Event], Any], writer: Callable[[Callable[[Any], None]], None]) -> tuple[Any, Any]:
    """Start the reader, and once it has set its event the writer; returns what one returned and the other told.

    The writer may live on after that: it is ended when both have answered.
    """
    ready = multiprocessing.Event()
    reading, reader_end = multiprocessing.Pipe(duplex=False)
    writing, writer_end = multiprocessing.Pipe(duplex=False)
    children = [multiprocessing.Process(target=lambda: reader_end.send(reader(ready)))]
    end_s = time.monotonic() + WHOLE_RUN_S
    try:
        children[0].start()
        if not ready.wait(SILENCE_S):
            raise LoadFailed("the reader could not start")
        children.append(multiprocessing.Process(target=writer, args=(writer_end.send,)))
        children[1].start()
        reader_end.close()
        writer_end.close()
        return _answer_of(reading, "reader", end_s), _answer_of(writing, "writer", end_s)
    finally:
        for child in children:
            child.terminate()
            child.join()


def _answer_of(end: Any, who: str, end_s: float) -> Any:
    try:
        if not end.poll(max(0.0, end_s - time.monotonic())):
            raise LoadFailed(f"the {who} did not finish within {WHOLE_RUN_S:.0f} s")
        return end.recv()
    except EOFError:
        raise LoadFailed(f"the {who} failed, see above") from None
