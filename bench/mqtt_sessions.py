"""QoS 2, and sessions whose client comes back, beside mosquitto.

    python -m bench.mqtt_sessions [--n 100000] [--waiting 100000] [--passing 10000000] [--rounds 1]

    QoS 2 pipe    one writer, one reader, all four packets both ways: messages a second until the reader has sent its
                  last PUBCOMP
    waiting       a session sleeps while so many messages of QoS 1 are sent for it, and comes back: when the first is
                  there, and how many a second come until it has acknowledged the last
    among others  a session sleeps on `+/x/cmd` over 10,000 topics, while so many messages pass that are not for it, and
                  1,000 that are: the same

The hub has all of it on disk, sessions too; mosquitto keeps it in memory, without a limit of what it queues.
"""
from __future__ import annotations

import argparse
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.synchronize import Event
from statistics import median
from typing import Final, NamedTuple

from bench.load_mqtt import PACKET_IDS, RECEIVE_BYTES, SEND_BYTES, PacketCutter, Shape, connect, remaining_length
from bench.load_mqtt import subscribe as subscribe_to
from bench.load_pair import LoadFailed, Read, Written, dial, receive, receive_some, run_pair
from bench.measure import table
from bench.servers import Server, start_hub, start_mosquitto, work_folder

PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70
ACK_BYTES: Final = 4
WINDOW: Final = 2_000
AMONG: Final = 1_000                   # messages for the session among those that are not
TOPICS: Final = 10_000
MANY_TOPICS: Final = {"KERNEL__MAX_AUTO_TOPICS": "20000", "KERNEL__AUTO_TOPICS_PER_MINUTE": "1000000",
                      "KERNEL__DEFAULT_PARTITIONS": "1"}
VALUE_BYTES: Final = 100
ROUND: Final = 10_000                  # messages that are sent before their PUBACKs are read


# ---- QoS 2 ----------------------------------------------------------------------------------------------------------

def _run_of(data: bytes, at: int, stride: int, first: int) -> int:
    """How many whole packets of one size that begin with this byte follow one another from `at` on."""
    count = (len(data) - at) // stride
    firsts = data[at:at + count * stride:stride]
    return count - len(firsts.lstrip(bytes((first,))))


def _answers(first: int, highs: bytes, lows: bytes) -> bytes:
    answers = bytearray(bytes((first, 2, 0, 0)) * len(highs))
    answers[2::ACK_BYTES], answers[3::ACK_BYTES] = highs, lows
    return bytes(answers)


def read_exactly_once(port: int, shape: Shape, n: int, ready: Event) -> Read:
    """Answers PUBLISH with PUBREC and PUBREL with PUBCOMP, until `n` are complete or the server falls silent."""
    connection = connect(port, f"reader-{os.getpid()}")
    subscribe_to(connection, shape.topic, 2)
    ready.set()
    stride = shape.bytes_each()
    id_at = stride - shape.size - 2
    complete, rest, ended_s = 0, b"", time.perf_counter()
    try:
        while complete < n:
            data, at, answers = rest + receive_some(connection, RECEIVE_BYTES), 0, []
            while True:
                publishes = _run_of(data, at, stride, 0x34)
                end = at + publishes * stride
                answers.append(_answers(PUBREC, data[at + id_at:end:stride], data[at + id_at + 1:end:stride]))
                releases = _run_of(data, end, ACK_BYTES, PUBREL)
                at = end + releases * ACK_BYTES
                answers.append(_answers(PUBCOMP, data[end + 2:at:ACK_BYTES], data[end + 3:at:ACK_BYTES]))
                complete += releases
                if not publishes and not releases:
                    break
            rest = data[at:]
            connection.sendall(b"".join(answers))
            ended_s = time.perf_counter()
    except TimeoutError:
        pass    # what is missing shows in the number
    return Read(complete, ended_s)


def write_exactly_once(port: int, shape: Shape, n: int, tell: Callable[[Written], None]) -> None:
    """At most WINDOW messages are without PUBCOMP."""
    connection = connect(port, f"writer-{os.getpid()}")
    stride = shape.bytes_each()
    packets = memoryview(b"".join([shape.packet(packet_id) for packet_id in range(1, PACKET_IDS + 1)]))
    sent = complete = 0
    rest = b""
    began_s = time.perf_counter()
    while complete < n:
        free = min(WINDOW - sent + complete, n - sent)
        if free >= min(WINDOW // 4, n - sent) and free:
            first = sent % PACKET_IDS
            count = min(free, PACKET_IDS - first)              # ids go round
            connection.sendall(packets[first * stride:(first + count) * stride])
            sent += count
        data = rest + receive_some(connection, SEND_BYTES)
        whole = len(data) // ACK_BYTES * ACK_BYTES
        rest = data[whole:]
        firsts = data[:whole:ACK_BYTES]
        complete += firsts.count(PUBCOMP)
        if firsts.count(PUBREC):
            received = [at for at, first in enumerate(firsts) if first == PUBREC]
            connection.sendall(_answers(PUBREL, bytes([data[at * ACK_BYTES + 2] for at in received]),
                                        bytes([data[at * ACK_BYTES + 3] for at in received])))
    tell(Written(began_s, time.perf_counter()))


def pipe(server: Server, n: int) -> tuple[float, float, float]:
    """(messages a second, which share arrived, microseconds of the server's processor for each)."""
    port, shape = server.ports["mqtt"], Shape("exact/pipe", VALUE_BYTES, 2)
    before = server.cpu()
    read, written = run_pair(partial(read_exactly_once, port, shape, n), partial(write_exactly_once, port, shape, n))
    used = server.cpu().since(before)
    return read.messages / (read.ended_s - written.began_s), read.messages / n, (used.user_s + used.system_s) / n * 1e6


# ---- sessions -------------------------------------------------------------------------------------------------------

class Woken(NamedTuple):
    """What a client that came back saw."""

    first_s: float
    all_s: float


def come(port: int, client_id: str) -> socket.socket:
    """A client of 3.1.1 without clean session."""
    connection, name = dial(port), client_id.encode()
    body = b"\0\4MQTT\4\0\0\0" + len(name).to_bytes(2, "big") + name
    connection.sendall(b"\x10" + remaining_length(len(body)) + body)
    if receive(connection, 4)[3]:
        raise LoadFailed("the session is refused")
    return connection


def fall_asleep(port: int, client_id: str, topic_filter: str) -> None:
    connection = come(port, client_id)
    subscribe_to(connection, topic_filter, 1)
    connection.sendall(b"\xe0\0")
    connection.close()


def publish(port: int, topics: list[str], count: int) -> None:
    """So many with QoS 1, over these topics in turn."""
    connection = connect(port, f"sender-{os.getpid()}")
    packets = [Shape(topic, VALUE_BYTES, 1).packet() for topic in topics]
    round_of = b"".join([packets[at % len(packets)] for at in range(ROUND)])
    whole, left = divmod(count, ROUND)
    for piece in [round_of] * whole + [b"".join([packets[at % len(packets)] for at in range(left)])]:
        for at in range(0, len(piece), SEND_BYTES * 4):
            connection.sendall(piece[at:at + SEND_BYTES * 4])
        receive(connection, (ROUND if piece is round_of else left) * ACK_BYTES)
    connection.close()


def wake(port: int, client_id: str, topic: str, count: int) -> Woken:
    """Come back and acknowledge everything; all topics have one length."""
    cutter, got, first_s = PacketCutter(Shape(topic, VALUE_BYTES, 1)), 0, 0.0
    began_s = time.perf_counter()
    connection = come(port, client_id)
    while got < count:
        packets, whole = cutter.feed(receive_some(connection, RECEIVE_BYTES))
        if whole:
            first_s = first_s or time.perf_counter() - began_s
            connection.sendall(cutter.acknowledgements(packets, whole))
            got += whole
    woken = Woken(first_s, time.perf_counter() - began_s)
    connection.close()
    return woken


def waiting(server: Server, count: int) -> Woken:
    port = server.ports["mqtt"]
    fall_asleep(port, "waits", "plant/1/temp")
    publish(port, ["plant/1/temp"], count)
    return wake(port, "waits", "plant/1/temp", count)


def among_others(server: Server, passing: int) -> Woken:
    port = server.ports["mqtt"]
    lines = [f"line{at:04}" for at in range(TOPICS)]
    fall_asleep(port, "rare", "+/x/cmd")
    publish(port, [f"{line}/y/cmd" for line in lines], passing)
    publish(port, [f"{line}/x/cmd" for line in lines[:AMONG]], AMONG)
    return wake(port, "rare", f"{lines[0]}/x/cmd", AMONG)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.mqtt_sessions", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100_000, help="messages of the pipe")
    parser.add_argument("--waiting", type=int, default=100_000, help="messages that wait for a session")
    parser.add_argument("--passing", type=int, default=10_000_000, help="messages beside those that wait")
    parser.add_argument("--rounds", type=int, default=1, help="of the pipe, the servers in turn")
    options = parser.parse_args()
    rows = []
    with work_folder() as folder:
        servers = [start_hub(folder / "hub", doors=("mqtt",), settings=MANY_TOPICS),
                   start_mosquitto(folder / "mosquitto")]
        try:
            runs = [[pipe(server, options.n) for server in servers] for _ in range(options.rounds)]
            for at, server in enumerate(servers):
                rate, share, cpu_us = (median(run[at][part] for run in runs) for part in range(3))
                back, rare = waiting(server, options.waiting), among_others(server, options.passing)
                rows.append([server.name, f"{rate:,.0f}" + ("" if share == 1 else f" ({share:.1%} arrived)"),
                             f"{cpu_us:.1f}", f"{back.first_s * 1e3:.1f}", f"{options.waiting / back.all_s:,.0f}",
                             f"{rare.first_s * 1e3:.1f}", f"{rare.all_s * 1e3:.0f}"])
        finally:
            for server in servers:
                server.stop()
    print(table(["100-byte messages", "QoS 2 pipe, msg/s", "µs of the server each",
                 f"{options.waiting:,} waiting: first, ms", "msg/s",
                 f"{AMONG:,} among {options.passing:,}: first, ms", "all, ms"], rows))


if __name__ == "__main__":
    main()
