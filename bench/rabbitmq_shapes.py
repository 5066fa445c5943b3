"""The AMQP door beside Debian's rabbitmq-server where there is more than a pipe: connections, queues, waiting messages.

    python -m bench.rabbitmq_shapes [many] [bound] [queues] [waiting] [--short]

    many      100 connections, each with one persistent message in flight; nobody consumes
    bound     publishes to a fanout exchange that 100 queues are bound to, confirmed
    queues    10,000 queues: declared, one message to each, the first basic.get of each, pipelined (the hub: 100,000)
    waiting   a million messages of 100 bytes in one queue: in, out again, and the memory of the server in between

Both servers run through the whole measurement, and are asked in turn: the hub, RabbitMQ with classic, with quorum
queues (`queues` with classic ones alone: 10,000 quorum queues take RabbitMQ minutes).
"""
from __future__ import annotations

import argparse
import selectors
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from bench.load_amqp import CHANNEL, CONFIRM_AT, CONFIRM_BYTES, Peer, content, method, short
from bench.load_pair import receive_some
from bench.measure import table
from bench.rabbitmq import start_rabbitmq
from bench.servers import Server, start_hub, work_folder

SIZE: Final = 100
BOUND_QUEUES: Final = 100
CONNECTIONS: Final = 100
WINDOW: Final = 1000
SHORT: Final = 20                      # what everything is divided by
CLASSIC, QUORUM = "classic", "quorum"

Row = list[str]


# ---- methods

def declare(peer: Peer, queue: str, kind: str) -> None:
    peer.ask(50, 10, declaring(queue, kind), 11)


def declaring(queue: str, kind: str) -> bytes:
    arguments = b"" if kind == CLASSIC else short("x-queue-type") + b"S" + struct.pack(">I", len(kind)) + kind.encode()
    return b"\0\0" + short(queue) + b"\x02" + struct.pack(">I", len(arguments)) + arguments


def publishing(queue: str, exchange: str = "") -> bytes:
    return method(CHANNEL, 60, 40, b"\0\0" + short(exchange) + short(queue) + b"\0") + content(SIZE)


# ---- pipelines

def confirmed_s(peer: Peer, packets: Iterable[bytes], n: int) -> float:
    """Seconds until all of these publishes are confirmed, WINDOW of them under way at most."""
    coming, rest, sent, done = iter(packets), peer.rest, 0, 0
    through, apart = 0, set[int]()     # all up to this tag, and these above it
    began_s = time.perf_counter()
    while done < n:
        room = min(WINDOW - (sent - done), n - sent)
        if room and (room >= WINDOW // 4 or sent + room == n):
            peer.socket.sendall(b"".join([next(coming) for _ in range(room)]))
            sent += room
        rest += receive_some(peer.socket, 1 << 16)
        whole = len(rest) // CONFIRM_BYTES
        for index in range(whole):
            tag, multiple = struct.unpack_from(">QB", rest, index * CONFIRM_BYTES + CONFIRM_AT)
            if multiple:
                through = max(through, tag)
                apart = {single for single in apart if single > through}
            else:
                apart.add(tag)
        while through + 1 in apart:
            through += 1
            apart.remove(through)
        done = through + len(apart)
        rest = rest[whole * CONFIRM_BYTES:]
    return time.perf_counter() - began_s


def answered_s(peer: Peer, packets: Iterable[bytes], n: int, answer_bytes: int) -> float:
    """Seconds until all of these are answered, each with so many bytes."""
    coming, sent, got = iter(packets), 0, len(peer.rest)
    began_s = time.perf_counter()
    while got < n * answer_bytes:
        room = min(WINDOW - (sent - got // answer_bytes), n - sent)
        if room > 0:
            peer.socket.sendall(b"".join([next(coming) for _ in range(room)]))
            sent += room
        got += len(receive_some(peer.socket, 1 << 20))
    peer.rest = b""
    return time.perf_counter() - began_s


def confirming(port: int) -> Peer:
    peer = Peer(port)
    peer.ask(85, 10, b"\0", 11)
    return peer


# ---- what is measured

def many(server: Server, kind: str, part: int) -> list[tuple[str, float]]:
    """Each connection sends its next message when its last is confirmed."""
    n, queue = 100_000 // part, f"many-{kind}"
    port = server.ports["amqp"]
    declare(Peer(port), queue, kind)
    peers = [confirming(port) for _ in range(CONNECTIONS)]
    selector, packet = selectors.DefaultSelector(), publishing(queue)
    for peer in peers:
        selector.register(peer.socket, selectors.EVENT_READ, peer)
    began_s, sent, done = time.perf_counter(), len(peers), 0
    for peer in peers:
        peer.socket.sendall(packet)
    while done < n:
        for key, _ in selector.select():
            peer = key.data
            peer.rest += receive_some(peer.socket, 1 << 12)
            if len(peer.rest) >= CONFIRM_BYTES:
                peer.rest = peer.rest[CONFIRM_BYTES:]
                done += 1
                if sent < n:
                    peer.socket.sendall(packet)
                    sent += 1
    took_s = time.perf_counter() - began_s
    for peer in peers:
        peer.socket.close()
    return [(f"{CONNECTIONS} connections, one in flight", n / took_s)]


def bound(server: Server, kind: str, part: int) -> list[tuple[str, float]]:
    n, exchange, peer = 20_000 // part, f"bound-{kind}", confirming(server.ports["amqp"])
    peer.ask(40, 10, b"\0\0" + short(exchange) + short("fanout") + b"\x02" + bytes(4), 11)
    for number in range(BOUND_QUEUES):
        queue = f"{exchange}-{number}"
        declare(peer, queue, kind)
        peer.ask(50, 20, b"\0\0" + short(queue) + short(exchange) + short("") + b"\0" + bytes(4), 21)
    packet = publishing("", exchange)
    return [(f"publish to {BOUND_QUEUES} bound queues", n / confirmed_s(peer, (packet for _ in range(n)), n))]


def queues(server: Server, kind: str, part: int) -> list[tuple[str, float]]:
    n, peer = (100_000 if server.name == "hub" else 10_000) // part, confirming(server.ports["amqp"])
    names = [f"queue-{number:06d}" for number in range(n)]

    def each(made: Callable[[str], bytes]) -> Iterator[bytes]:
        return (made(name) for name in names)

    declared = len(method(CHANNEL, 50, 11, short(names[0]) + bytes(8)))
    taken = len(method(CHANNEL, 60, 71, bytes(9) + short("") + short(names[0]) + bytes(4)) + content(SIZE))
    return [
        ("queues declared, pipelined", n / answered_s(
            peer, each(lambda name: method(CHANNEL, 50, 10, declaring(name, kind))), n, declared)),
        ("one message to each of them", n / confirmed_s(peer, each(publishing), n)),
        ("the first basic.get of each, pipelined", n / answered_s(
            peer, each(lambda name: method(CHANNEL, 60, 70, b"\0\0" + short(name) + b"\1")), n, taken))]


def waiting(server: Server, kind: str, part: int) -> list[tuple[str, float]]:
    n, queue, peer = 1_000_000 // part, f"waiting-{kind}", confirming(server.ports["amqp"])
    declare(peer, queue, kind)
    before, packet = server.resident_bytes(), publishing(queue)
    in_s = confirmed_s(peer, (packet for _ in range(n)), n)
    grown = server.resident_bytes() - before
    reader = Peer(server.ports["amqp"])
    reader.ask(60, 10, struct.pack(">IHB", 0, 2000, 0), 11)
    deliver = struct.pack(">HH", 60, 60) + short("ct")     # counted: messages that the hub follows have a header more
    began_s = time.perf_counter()
    reader.ask(60, 20, b"\0\0" + short(queue) + short("ct") + b"\0\0\0\0\0", 21)
    came, got, acked = reader.rest, reader.rest.count(deliver), 0
    while got < n:
        came = came[1 - len(deliver):] + receive_some(reader.socket, 1 << 20)
        got += came.count(deliver)
        if got - acked >= 500 or got == n:
            acked = got
            reader.socket.sendall(method(CHANNEL, 60, 80, struct.pack(">QB", acked, 1)))
    return [(f"{n:,} messages into one queue, nobody takes any", n / in_s),
            ("and out of it", n / (time.perf_counter() - began_s)),
            ("memory by then, bytes a message", grown / n)]


SHAPES: Final = {"many": many, "bound": bound, "queues": queues, "waiting": waiting}


def rows_of(hub: Server, rabbit: Server, name: str, part: int) -> list[Row]:
    kinds = (CLASSIC,) if name == "queues" else (CLASSIC, QUORUM)
    measured = [SHAPES[name](hub, CLASSIC, part), *(SHAPES[name](rabbit, kind, part) for kind in kinds)]
    rows = []
    for ours, *theirs in zip(*measured, strict=True):
        rates = [value for _, value in theirs]
        rows.append([ours[0], f"{ours[1]:,.0f}", *(f"{rate:,.0f}" for rate in rates), *[""] * (2 - len(rates)),
                     *(f"{ours[1] / rate:.1f} x" if rate > 0 else "" for rate in rates), *[""] * (2 - len(rates))])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="|".join(SHAPES))
    parser.add_argument("--short", action="store_true", help=f"a {SHORT}th of everything")
    options = parser.parse_args()
    names = options.shapes or list(SHAPES)
    if not SHAPES.keys() >= set(names):
        parser.error(f"there are: {', '.join(SHAPES)}")
    with work_folder() as folder:
        servers: list[Server] = [start_hub(folder / "hub", doors=("amqp",))]
        try:
            servers.append(start_rabbitmq(folder / "rabbitmq"))
            hub, rabbit = servers
            rows = [row for name in names
                    for row in rows_of(hub, rabbit, name, SHORT if options.short else 1)]
        finally:
            for server in servers:
                server.stop()
    print(table(["100-byte messages, persistent", "hub /s", "classic /s", "quorum /s", "to classic", "to quorum"],
                rows))


if __name__ == "__main__":
    main()
