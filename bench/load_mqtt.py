"""Load for an MQTT 3.1.1 server: what writes, what reads, many connections, idle ones, a fixed rate.

All packets of a run have one size, so most of the work is counting bytes; where packet ids must be answered, they are
picked from a whole chunk at once by slices. A message costs this load far less than a server, which is the point.
"""
from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.synchronize import Event
from typing import Final, NamedTuple

from bench.load_pair import SILENCE_S, LoadFailed, Read, Written, dial, login, receive, receive_some, run_pair

CONNACK_OK: Final = b"\x20\x02\x00"           # and a return code
PUBACK_BYTES: Final = 4
PACKET_IDS: Final = 60_000                    # used in turn; far more than are ever in flight
SEND_BYTES: Final = 1 << 16
RECEIVE_BYTES: Final = 1 << 18
TICK_S: Final = 0.002                         # how often a fixed rate sends what is due
STAMP: Final = struct.Struct(">Q")            # nanoseconds, at the start of a payload


class Shape(NamedTuple):
    """What all messages of a run look like."""

    topic: str
    size: int
    qos: int

    def packet(self, packet_id: int = 1, value: bytes = b"") -> bytes:
        """A PUBLISH; the payload is padded to the run's size."""
        name = self.topic.encode()
        identifier = packet_id.to_bytes(2, "big") if self.qos else b""
        body = len(name).to_bytes(2, "big") + name + identifier + value.ljust(self.size, b"m")
        return bytes([0x30 | self.qos << 1]) + remaining_length(len(body)) + body

    def bytes_each(self) -> int:
        return len(self.packet())


def remaining_length(size: int) -> bytes:
    """[MQTT-2.2.3]: seven bits a byte, lowest first."""
    digits = bytearray()
    while size > 127:
        digits.append(size & 127 | 128)
        size >>= 7
    digits.append(size)
    return bytes(digits)


def connect(port: int, client_id: str) -> socket.socket:
    """A clean session without keep alive. Raises LoadFailed where it is refused."""
    connection = dial(port)
    name = client_id.encode()
    shown = login() or ()
    flags = 0xC2 if shown else 0x02
    body = b"\x00\x04MQTT\x04" + bytes((flags,)) + b"\x00\x00" + len(name).to_bytes(2, "big") + name
    body += b"".join([len(one).to_bytes(2, "big") + one.encode() for one in shown])
    connection.sendall(b"\x10" + remaining_length(len(body)) + body)
    answer = receive(connection, 4)
    if answer != CONNACK_OK + b"\x00":
        raise LoadFailed(f"CONNECT was answered with {answer.hex()}")
    return connection


def subscribe(connection: socket.socket, topic: str, qos: int) -> None:
    name = topic.encode()
    body = b"\x00\x01" + len(name).to_bytes(2, "big") + name + bytes([qos])
    connection.sendall(b"\x82" + remaining_length(len(body)) + body)
    answer = receive(connection, 5)
    if answer[4] != qos:
        raise LoadFailed(f"SUBSCRIBE was answered with {answer.hex()}")


class PacketCutter:
    """Cuts a stream of PUBLISH packets of one size; answers those of QoS 1."""

    def __init__(self, shape: Shape) -> None:
        self.stride = shape.bytes_each()
        self.value_at = self.stride - shape.size
        self._rest = b""

    def feed(self, chunk: bytes) -> tuple[bytes, int]:
        """The bytes of whole packets, and how many those are."""
        joined = self._rest + chunk
        count = len(joined) // self.stride
        self._rest = joined[count * self.stride:]
        return joined, count

    def acknowledgements(self, packets: bytes, count: int) -> bytes:
        """A PUBACK for each: its packet id are the two bytes before the payload."""
        answers = bytearray(b"\x40\x02\x00\x00" * count)
        end = count * self.stride
        answers[2::4] = packets[self.value_at - 2:end:self.stride]
        answers[3::4] = packets[self.value_at - 1:end:self.stride]
        return bytes(answers)


# ---- pipe: one writer, one reader -----------------------------------------------------------------------------------

def read_pipe(port: int, shape: Shape, n: int, ready: Event) -> Read:
    """Read `n` messages, or as many as come before the server falls silent. The shape's QoS is that of the delivery."""
    connection = connect(port, f"reader-{os.getpid()}")
    subscribe(connection, shape.topic, shape.qos)
    ready.set()
    counted = _count_acknowledged(connection, shape, n) if shape.qos else _count(connection, shape, n)
    messages, ended_s = 0, time.perf_counter()
    try:
        for count in counted:
            messages, ended_s = count, time.perf_counter()
    except TimeoutError:
        pass    # what is missing shows in the number
    return Read(messages, ended_s)


def _count(connection: socket.socket, shape: Shape, n: int) -> Iterator[int]:
    stride, got = shape.bytes_each(), 0
    space = bytearray(RECEIVE_BYTES)
    while got < n * stride:
        more = connection.recv_into(space)
        if not more:
            raise LoadFailed("the server closed the connection")
        got += more
        yield got // stride


def _count_acknowledged(connection: socket.socket, shape: Shape, n: int) -> Iterator[int]:
    cutter, got = PacketCutter(shape), 0
    while got < n:
        packets, count = cutter.feed(receive_some(connection, RECEIVE_BYTES))
        if count:
            connection.sendall(cutter.acknowledgements(packets, count))
            got += count
        yield got


def write_pipe(port: int, shape: Shape, n: int, window: int, linger_s: float, tell: Callable[[Written], None]) -> None:
    """Write `n` messages; with QoS 1 at most `window` without their PUBACK. Stays connected for a while after that."""
    connection = connect(port, f"writer-{os.getpid()}")
    began_s = time.perf_counter()
    if shape.qos:
        began_s = _write_acknowledged(connection, shape, n, window)
    else:
        several = shape.packet() * max(1, SEND_BYTES // shape.bytes_each())
        whole, left = divmod(n * shape.bytes_each(), len(several))
        for _ in range(whole):
            connection.sendall(several)
        connection.sendall(several[:left])
    tell(Written(began_s, time.perf_counter()))
    _linger(connection, linger_s)


def _write_acknowledged(connection: socket.socket, shape: Shape, n: int, window: int) -> float:
    """Returns when the first byte went out."""
    stride = shape.bytes_each()
    packets = memoryview(b"".join([shape.packet(packet_id) for packet_id in range(1, PACKET_IDS + 1)]))
    sent = answered_bytes = 0
    began_s = time.perf_counter()
    while answered_bytes < n * PUBACK_BYTES:
        free = min(window - sent + answered_bytes // PUBACK_BYTES, n - sent)
        if free >= min(max(1, window // 4), n - sent) and free:     # few large writes, never an empty window
            first = sent % PACKET_IDS
            free = min(free, PACKET_IDS - first)
            connection.sendall(packets[first * stride:(first + free) * stride])
            sent += free
        answered_bytes += len(receive_some(connection, SEND_BYTES))
    return began_s


def _linger(connection: socket.socket, seconds: float) -> None:
    """Stay connected: some servers let go of what a closed connection has sent."""
    connection.settimeout(max(seconds, 0.001))
    try:
        connection.recv(1)
    except TimeoutError:
        pass    # nothing was expected


def run_pipe(port: int, topic: str, size: int, qos: int, sub_qos: int, n: int, window: int,
             linger_s: float) -> tuple[Read, Written]:
    reader = partial(read_pipe, port, Shape(topic, size, min(qos, sub_qos)), n)
    return run_pair(reader, partial(write_pipe, port, Shape(topic, size, qos), n, window, linger_s))


# ---- many: one message in flight on each of many connections --------------------------------------------------------

class Many(NamedTuple):
    """What `run_many` measured."""

    connects_per_s: float
    messages: int
    took_s: float


def run_many(port: int, connections: int, size: int, n: int) -> Many:
    """QoS 1, each connection writing to an address of its own, its next message when the last is acknowledged."""
    began_s = time.perf_counter()
    opened = [connect(port, f"many-{number}") for number in range(connections)]
    connects_per_s = connections / (time.perf_counter() - began_s)
    selector = selectors.EpollSelector()
    packets = [Shape(f"many/{number}", size, 1).packet() for number in range(connections)]
    for connection, packet in zip(opened, packets, strict=True):
        selector.register(connection, selectors.EVENT_READ, (connection, packet))
    began_s = time.perf_counter()
    for connection, packet in zip(opened, packets, strict=True):
        connection.sendall(packet)
    sent, done = connections, 0
    while done < n:
        ready = selector.select(SILENCE_S)
        if not ready:
            raise LoadFailed(f"no answer; {done} of {n} are acknowledged")
        for key, _ in ready:
            connection, packet = key.data
            done += len(receive_some(connection, 64)) // PUBACK_BYTES
            if sent < n:
                connection.send(packet)
                sent += 1
    return Many(connects_per_s, done, time.perf_counter() - began_s)


# ---- idle: connections that only exist ------------------------------------------------------------------------------

def resident_kib(pid: int) -> int:
    """Memory of a process that is in RAM."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def run_idle(port: int, connections: int, seconds: float, pid: int | None) -> tuple[float, float]:
    """(connects a second, KiB resident for each; 0 where no pid is given)."""
    before_kib = resident_kib(pid) if pid else 0
    began_s = time.perf_counter()
    opened = [connect(port, f"idle-{number}") for number in range(connections)]
    connects_per_s = len(opened) / (time.perf_counter() - began_s)
    _linger(opened[0], seconds)
    return connects_per_s, (resident_kib(pid) - before_kib) / connections if pid else 0.0


# ---- rate: how late messages are at a rate that the server should keep up with --------------------------------------

def read_rate(port: int, shape: Shape, n: int, ready: Event) -> list[int]:
    """Nanoseconds from send to delivery of each message."""
    connection = connect(port, f"rate-reader-{os.getpid()}")
    subscribe(connection, shape.topic, 1)
    cutter = PacketCutter(shape)
    stamps = struct.Struct(f">{cutter.value_at}xQ{shape.size - STAMP.size}x")
    ready.set()
    late_ns: list[int] = []
    try:
        while len(late_ns) < n:
            chunk = receive_some(connection, RECEIVE_BYTES)
            now_ns = time.perf_counter_ns()
            packets, count = cutter.feed(chunk)
            late_ns += [now_ns - sent_ns for sent_ns, in stamps.iter_unpack(packets[:count * cutter.stride])]
            connection.sendall(cutter.acknowledgements(packets, count))
    except TimeoutError:
        pass    # what is missing shows in the number
    return late_ns


class Stamped:
    """Makes the packets that are due at once: one stamp, packet ids that follow one another."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.stride = shape.bytes_each()
        self.id_at = self.stride - shape.size - 2
        identifiers = b"".join([number.to_bytes(2, "big") for number in range(1, PACKET_IDS + 1)])
        self.highs, self.lows = identifiers[0::2], identifiers[1::2]

    def packets(self, first: int, count: int, now_ns: int) -> bytearray:
        """Messages number `first` and following; at most up to the last packet id."""
        block = bytearray(self.shape.packet(1, STAMP.pack(now_ns)) * count)
        at = first % PACKET_IDS
        block[self.id_at::self.stride] = self.highs[at:at + count]
        block[self.id_at + 1::self.stride] = self.lows[at:at + count]
        return block


def write_rate(port: int, shape: Shape, rate: int, n: int, tell: Callable[[list[int]], None]) -> None:
    """Send what is due every TICK_S; tells nanoseconds from send to PUBACK of each message."""
    connection = connect(port, f"rate-writer-{os.getpid()}")
    selector = selectors.EpollSelector()
    selector.register(connection, selectors.EVENT_READ)
    stamped = Stamped(shape)
    sent_ns: list[int] = []
    late_ns: list[int] = []
    answered_bytes = 0
    began_s = time.perf_counter()
    give_up_s = began_s + n / rate + SILENCE_S
    while len(late_ns) < n and time.perf_counter() < give_up_s:
        first = len(sent_ns)
        due = min(n, int((time.perf_counter() - began_s) * rate)) - first
        due = min(due, PACKET_IDS - first % PACKET_IDS)
        if due > 0:
            now_ns = time.perf_counter_ns()
            connection.sendall(stamped.packets(first, due, now_ns))
            sent_ns += [now_ns] * due
        if selector.select(TICK_S):
            answered_bytes += len(receive_some(connection, SEND_BYTES))
            now_ns = time.perf_counter_ns()
            late_ns += [now_ns - sent for sent in sent_ns[len(late_ns):answered_bytes // PUBACK_BYTES]]
    tell(late_ns)


def run_rate(port: int, topic: str, size: int, rate: int, seconds: float) -> tuple[list[int], list[int]]:
    """(send to PUBACK, send to delivery), each in nanoseconds per message."""
    shape, n = Shape(topic, max(size, STAMP.size), 1), int(rate * seconds)
    delivered, acknowledged = run_pair(partial(read_rate, port, shape, n), partial(write_rate, port, shape, rate, n))
    return acknowledged, delivered
