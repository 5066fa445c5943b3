"""Load for the HTTP door: one POST in flight on each of several connections, each answered when it is durable."""
from __future__ import annotations

import selectors
import socket
import time
from base64 import b64encode
from typing import Final

from bench.load_pair import LoadFailed, dial, login

OK: Final = b"HTTP/1.1 201"
END: Final = b"}"                # the answer is one JSON object, which a small answer brings whole


def request(path: str, size: int) -> bytes:
    """A publish of `size` bytes."""
    shown = login()
    authorization = f"Authorization: Basic {b64encode(':'.join(shown).encode()).decode()}\r\n" if shown else ""
    return (f"POST /v1/publish/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
            f"{authorization}Content-Length: {size}\r\n\r\n").encode() + b"x" * size


def run_many(port: int, connections: int, size: int, n: int) -> tuple[int, float]:
    """(messages, seconds). Raises LoadFailed."""
    selector = selectors.DefaultSelector()
    opened: list[tuple[socket.socket, bytes]] = []
    for number in range(connections):
        one = (dial(port), request(f"many/{number}", size))
        selector.register(one[0], selectors.EVENT_READ, one)
        opened.append(one)
    began_s, sent, done = time.perf_counter(), connections, 0
    for connection, body in opened:
        connection.sendall(body)
    while done < n:
        ready = selector.select(10)
        if not ready:
            raise LoadFailed("the server is silent")
        for key, _ in ready:
            connection, body = key.data
            take_answer(connection)
            done += 1
            if sent < n:
                connection.sendall(body)
                sent += 1
    took_s = time.perf_counter() - began_s
    for connection, _ in opened:
        connection.close()
    return done, took_s


def take_answer(connection: socket.socket) -> None:
    """Read one answer. Raises LoadFailed for anything but 201."""
    answer = b""
    while not answer.endswith(END):
        more = connection.recv(4096)
        answer += more
        if not more or not answer.startswith(OK[:len(answer)]):
            raise LoadFailed(f"a publish was answered with {answer[:120]!r}")
