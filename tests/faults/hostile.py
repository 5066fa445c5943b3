"""Peers that wish a hub ill, beside load that must not notice: see `attack`. Each runs until told to stop.

    PoisonProducer   Kafka batches with right checksums whose inside lies; each must be refused
    StalledReaders   subscribers on every door that never read
    LoginFlood       wrong passwords from many addresses, and beside them one right login, whose slowest answer counts
    Garbage          bytes that are no protocol, half requests, claims of huge lengths
"""
from __future__ import annotations

import base64
import http.client
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from crc32c import crc32c

from tests.faults.mqtt_peer import MqttPeer
from tests.faults.writers import TOPIC
from tests.fuzz.corpus import batch, produce
from tests.fuzz.framing import BATCH_ATTRIBUTES_AT, BATCH_CRC_AT, BATCH_HEADER_BYTES, BATCH_LENGTH_COVERS_FROM, pack

ZSTD: Final = 4
STALLED: Final = 10                # subscribers of each kind
RECEIVE_BYTES: Final = 4096        # what a stalled reader's socket takes at most
NETWORKS: Final = 100              # addresses that wrong logins come from
FLOOD_PAUSE_S: Final = 0.025       # forty a second
LOGIN_PAUSE_S: Final = 0.3
ANSWER_S: Final = 20.0
GUARD: Final = "guard"
GUARD_PASSWORD: Final = "a right password"
CLAIMED: Final = 2_000_000_000
BOMB_BYTES: Final = 60_000_000
TINY_RECORDS: Final = 1_000_000

_RESPONSE_ERROR_AT: Final = 4 + 4 + 4 + 2 + len(TOPIC) + 4 + 4      # size, correlation, topics, name, partitions, index


def with_header(data: bytes, *, count: int | None = None, last_delta: int | None = None, attributes: int | None = None,
                records: bytes | None = None) -> bytes:
    """A batch with other fields, its length and CRC made right again."""
    whole = bytearray(data if records is None else data[:BATCH_HEADER_BYTES] + records)
    for value, code, at in ((count, ">i", 57), (last_delta, ">i", 23), (attributes, ">h", 21)):
        if value is not None:
            struct.pack_into(code, whole, at, value)
    struct.pack_into(">i", whole, 8, len(whole) - BATCH_LENGTH_COVERS_FROM)
    struct.pack_into(">I", whole, BATCH_CRC_AT, crc32c(bytes(whole[BATCH_ATTRIBUTES_AT:])))
    return bytes(whole)


def record(delta: int, value: bytes) -> bytes:
    """A v2 record without key and headers."""
    body = b"\0\0" + varint(delta) + varint(-1) + varint(len(value)) + value + b"\0"
    return varint(len(body)) + body


def varint(number: int) -> bytes:
    """Zigzag, then seven bits a byte."""
    left, out = number << 1 ^ number >> 63, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*out, left))


def poisons() -> dict[str, bytes]:
    """Batches that a producer must not get stored, by what is wrong with them."""
    sound, packed = batch(0, 10), batch(ZSTD, 10)
    tiny = record(0, b"")
    return {
        "a claimed count, compressed": with_header(packed, count=CLAIMED, last_delta=CLAIMED - 1),
        "a claimed count": with_header(sound, count=CLAIMED, last_delta=CLAIMED - 1),
        "a count one too large": with_header(sound, count=11, last_delta=10),
        "a count one too small": with_header(sound, count=9, last_delta=8),
        "garbage": with_header(sound, records=b"\xff" * 200),
        "garbage, compressed": with_header(packed, records=pack(ZSTD, b"\xff" * 200)),
        "compressed garbage": with_header(packed, records=b"\xff" * 200),
        "equal deltas": with_header(sound, count=2, last_delta=1, records=record(0, b"a") + record(0, b"b")),
        "deltas backwards": with_header(sound, count=2, last_delta=1, records=record(1, b"a") + record(0, b"b")),
        "bytes behind": with_header(sound, records=sound[BATCH_HEADER_BYTES:] + b"\0\0\0"),
        "a bomb": with_header(packed, count=1, last_delta=0, records=pack(ZSTD, record(0, bytes(BOMB_BYTES)))),
        "tiny records": with_header(packed, count=TINY_RECORDS, last_delta=TINY_RECORDS - 1,
                                    records=pack(ZSTD, tiny * TINY_RECORDS)),
    }


class PoisonProducer:
    """`refused` counts; an acknowledged one is a broken promise."""

    def __init__(self) -> None:
        self.refused = 0
        self._poisons = list(poisons().items())

    def run(self, port: int, stop: threading.Event) -> None:
        try:
            with socket.create_connection(("127.0.0.1", port), ANSWER_S) as connection:
                while not stop.wait(0.02):
                    what, data = self._poisons[self.refused % len(self._poisons)]
                    connection.sendall(produce(TOPIC.encode(), data))
                    size = struct.unpack(">i", _read(connection, 4))[0]
                    answer = _read(connection, size)
                    code = struct.unpack_from(">h", answer, _RESPONSE_ERROR_AT)[0]
                    assert code != 0, f"a batch with {what} was taken"
                    self.refused += 1
        except OSError:
            pass


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the hub is gone")
        data += more
    return data


class StalledReaders:
    """Open many subscriptions and take nothing of them."""

    @staticmethod
    def run(ports: dict[str, int], stop: threading.Event) -> None:
        held: list[socket.socket] = []
        try:
            for number in range(STALLED):
                peer = MqttPeer(ports["mqtt"], f"stalled-{number}")
                peer.subscribe(f"{TOPIC}/#", qos=number % 2)
                peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
                held.append(peer.socket)
                stream = socket.create_connection(("127.0.0.1", ports["http"]), ANSWER_S)
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
                stream.sendall(f"GET /v1/topics/{TOPIC}/events?from=earliest HTTP/1.1\r\n"
                               "Host: localhost\r\n\r\n".encode())
                held.append(stream)
        except OSError:
            pass
        stop.wait()
        for connection in held:
            connection.close()


class LoginFlood:
    """`wrong` and `right` count; `slowest_s` is the longest that a right login took."""

    def __init__(self, seed: int) -> None:
        self.wrong = 0
        self.right = 0
        self.slowest_s = 0.0
        self._random = random.Random(seed)

    def flood(self, port: int, stop: threading.Event) -> None:
        """Made-up names from many networks; nobody waits for the answers."""
        waiting: list[socket.socket] = []
        while not stop.wait(FLOOD_PAUSE_S):
            number = self._random.randrange(NETWORKS)
            try:
                peer = socket.create_connection(("127.0.0.1", port), ANSWER_S, (f"127.1.{number}.1", 0))
                peer.sendall(_login_request(f"nobody-{self._random.random()}", "wrong"))
            except OSError:
                break
            self.wrong += 1
            waiting.append(peer)
            if len(waiting) > NETWORKS:
                waiting.pop(0).close()
        for peer in waiting:
            peer.close()

    def log_in(self, port: int, stop: threading.Event) -> None:
        """One user with the right password, from a network of his own."""
        while not stop.is_set():
            began_s = time.monotonic()
            try:
                with socket.create_connection(("127.0.0.1", port), ANSWER_S, ("127.2.0.1", 0)) as peer:
                    peer.sendall(_login_request(GUARD, GUARD_PASSWORD))
                    status = int(peer.recv(64).split()[1])
            except (OSError, IndexError):
                return
            assert status in (200, 503, 504), f"the right password is answered {status}"
            if status == 200:
                self.right += 1
                self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
            stop.wait(LOGIN_PAUSE_S)


def _login_request(name: str, password: str) -> bytes:
    credentials = base64.b64encode(f"{name}:{password}".encode()).decode()
    return (f"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {credentials}\r\n"
            "Connection: close\r\n\r\n").encode()


def make_guard(port: int) -> None:
    """The user who logs in while others flood. There already: nothing changes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    with suppress(OSError, http.client.HTTPException):
        connection.request("PUT", f"/v1/users/{GUARD}", f'{{"password": "{GUARD_PASSWORD}"}}',
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status in (200, 201, 503, 507), (answer.status, body)
    connection.close()


class Garbage:
    """`sent` counts bytes."""

    def __init__(self, seed: int) -> None:
        self.sent = 0
        self._random = random.Random(seed)
        self._makers: tuple[Callable[[], bytes], ...] = (
            lambda: self._random.randbytes(self._random.randint(1, 500)),
            lambda: b"\x7f\xff\xff\xff" + self._random.randbytes(20),
            lambda: b"\x30\xff\xff\xff\x7f" + self._random.randbytes(20),
            lambda: b"AMQP\0\0\x09\x01\x01\0\0\x7f\xff\xff\xff" + self._random.randbytes(20),
            lambda: b"POST /v1/publish/x HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n" + bytes(20),
            lambda: b"GET /" + b"a" * self._random.randint(1, 20_000))

    def run(self, ports: dict[str, int], stop: threading.Event) -> None:
        while not stop.wait(0.02):
            data = self._random.choice(self._makers)()
            port = self._random.choice(list(ports.values()))
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as peer:
                peer.sendall(data)
                self.sent += len(data)
                peer.settimeout(0.02)
                peer.recv(64)
