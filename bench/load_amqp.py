"""Load for an AMQP 0-9-1 server: one publisher with confirms and a window, one consumer that acknowledges.

Persistent messages go to one durable queue through the default exchange. Deliveries are counted by how their methods
begin, since a message may have a trace context more than another; the consumer acknowledges a quarter of its prefetch
at a time.
"""
from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.synchronize import Event
from typing import Final, NamedTuple

from bench.load_pair import LoadFailed, Read, Written, dial, login, receive_some, run_pair

PROTOCOL_HEADER: Final = b"AMQP\0\0\x09\x01"
CHANNEL: Final = 1
FRAME_MAX: Final = 131_072
METHOD, HEADER, BODY = 1, 2, 3
PERSISTENT: Final = b"\x10\0\2"                # flags: delivery mode alone; 2
CONSUMER_TAG: Final = "ct"
CONFIRM_BYTES: Final = 21                      # a basic.ack frame
CONFIRM_AT: Final = 11                         # where its delivery tag begins
LINGER_S: Final = 0.3
SILENCE_S: Final = 30.0


class Run(NamedTuple):
    """What a run is about."""

    port: int
    queue: str
    queue_type: str
    size: int
    n: int
    window: int


def short(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, class_id: int, method_id: int, arguments: bytes) -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


def content(size: int) -> bytes:
    header = struct.pack(">HHQ", 60, 0, size) + PERSISTENT
    return frame(HEADER, CHANNEL, header) + frame(BODY, CHANNEL, b"x" * size)


class Peer:
    """A connection with one open channel."""

    def __init__(self, port: int) -> None:
        self.socket: socket.socket = dial(port)
        self.rest = b""
        self.socket.sendall(PROTOCOL_HEADER)
        self.wait(10, 10)
        user, password = login() or ("guest", "guest")
        shown = f"\0{user}\0{password}".encode()
        self.ask(10, 11, struct.pack(">I", 0) + short("PLAIN") + struct.pack(">I", len(shown)) + shown
                 + short("en_US"), 30, channel=0)
        self.socket.sendall(method(0, 10, 31, struct.pack(">HIH", 100, FRAME_MAX, 0)))
        self.ask(10, 40, short("/") + short("") + b"\0", 41, channel=0)
        self.ask(20, 10, short(""), 11)

    def ask(self, class_id: int, method_id: int, arguments: bytes, answer_id: int, channel: int = CHANNEL) -> None:
        """Send a method and wait for its answer."""
        self.socket.sendall(method(channel, class_id, method_id, arguments))
        self.wait(class_id, answer_id)

    def wait(self, class_id: int, method_id: int) -> None:
        """Until this method has come; `rest` is what came behind it. Raises LoadFailed."""
        while True:
            while len(self.rest) < 7 or len(self.rest) < 8 + struct.unpack(">I", self.rest[3:7])[0]:
                self.rest += receive_some(self.socket, 1 << 16)
            end = 7 + struct.unpack(">I", self.rest[3:7])[0]
            kind, payload, self.rest = self.rest[0], self.rest[7:end], self.rest[end + 1:]
            came = struct.unpack(">HH", payload[:4]) if kind == METHOD else ()
            if came == (class_id, method_id):
                return
            if came in ((10, 50), (20, 40)):
                raise LoadFailed(f"the server refused: {payload[6:].decode(errors='replace')}")


def consume(run: Run, ready: Event) -> Read:
    peer = Peer(run.port)
    peer.ask(60, 10, struct.pack(">IHB", 0, run.window, 0), 11)
    peer.ask(60, 20, b"\0\0" + short(run.queue) + short(CONSUMER_TAG) + b"\0\0\0\0\0", 21)
    deliver = struct.pack(">HH", 60, 60) + short(CONSUMER_TAG)
    ready.set()
    got, acked, ended_s, buffer, rest = 0, 0, 0.0, bytearray(1 << 20), peer.rest
    try:
        while got < run.n:
            size = peer.socket.recv_into(buffer)
            if not size:
                break
            came, ended_s = rest + buffer[:size], time.perf_counter()
            got, rest = got + came.count(deliver), came[1 - len(deliver):]
            if got - acked >= max(1, run.window // 4) or got == run.n:
                peer.socket.sendall(method(CHANNEL, 60, 80, struct.pack(">QB", got, 1)))
                acked = got
    except TimeoutError:
        pass
    time.sleep(LINGER_S)               # the last acknowledgement is read before the connection ends
    return Read(got, ended_s)


def publish(run: Run, tell: Callable[[Written], None]) -> None:
    peer = Peer(run.port)
    peer.ask(85, 10, b"\0", 11)
    packet = publish_packet(run)
    rest, sent, confirmed = peer.rest, 0, 0
    began_s = time.perf_counter()
    while confirmed < run.n:
        room = min(run.window - (sent - confirmed), run.n - sent)
        if room and (room >= max(1, run.window // 4) or sent + room == run.n):
            peer.socket.sendall(packet * room)
            sent += room
        rest += receive_some(peer.socket, 1 << 16)
        whole = len(rest) // CONFIRM_BYTES
        for i in range(whole):
            tag, multiple = struct.unpack_from(">QB", rest, i * CONFIRM_BYTES + CONFIRM_AT)
            confirmed = max(confirmed, tag) if multiple else confirmed + 1
        rest = rest[whole * CONFIRM_BYTES:]
    tell(Written(began_s, time.perf_counter()))
    time.sleep(LINGER_S)


def run_many(run: Run, connections: int) -> tuple[int, float]:
    """One message in flight on each connection, the next once it is confirmed. Nobody consumes, and the queue is
    emptied at the end. Returns (messages confirmed, seconds). Raises LoadFailed."""
    declare(run)
    peers = [Peer(run.port) for _ in range(connections)]
    packet = publish_packet(run)
    selector = selectors.EpollSelector()
    for peer in peers:
        peer.ask(85, 10, b"\0", 11)
        selector.register(peer.socket, selectors.EVENT_READ, peer.socket)
    began_s = time.perf_counter()
    for peer in peers:
        peer.socket.sendall(packet)
    sent, done = connections, 0
    while done < run.n:
        ready = selector.select(SILENCE_S)
        if not ready:
            raise LoadFailed(f"no answer; {done} of {run.n} are confirmed")
        for key, _ in ready:
            done += len(receive_some(key.data, 64)) // CONFIRM_BYTES
            if sent < run.n:
                key.data.sendall(packet)
                sent += 1
    took_s = time.perf_counter() - began_s
    Peer(run.port).ask(50, 30, b"\0\0" + short(run.queue) + b"\0", 31)
    return done, took_s


def publish_packet(run: Run) -> bytes:
    """A publish of one persistent message to the queue."""
    return method(CHANNEL, 60, 40, b"\0\0" + short("") + short(run.queue) + b"\0") + content(run.size)


def declare(run: Run) -> None:
    """The durable queue."""
    kind = b"" if run.queue_type == "classic" else (
        short("x-queue-type") + b"S" + struct.pack(">I", len(run.queue_type)) + run.queue_type.encode())
    Peer(run.port).ask(50, 10, b"\0\0" + short(run.queue) + b"\x02" + struct.pack(">I", len(kind)) + kind, 11)


def run_pipe(run: Run) -> tuple[Read, Written]:
    """Declare the queue, then publish and consume. Raises LoadFailed."""
    declare(run)
    read, written = run_pair(partial(consume, run), partial(publish, run))
    return read, written
