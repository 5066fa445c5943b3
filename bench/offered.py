"""Offers messages at a steady pace to one topic, over AMQP or HTTP, whatever becomes of them: for hubs that limit it.

    python -m bench.offered amqp|http --port PORT [--topic load] [--rate 5000] [--seconds 60] [--connections 32]

AMQP publishes without confirms and waits where the hub does not read. Over HTTP each connection has one POST in flight,
and 201 and 429 are both answers. What cannot be sent in time is not made good. The loads of `bench.load` want
everything taken; these do not.
"""
from __future__ import annotations

import argparse
import selectors
import socket
import struct
import time

from bench.load_amqp import BODY, CHANNEL, HEADER, Peer, frame, method, short
from bench.load_http import END, request
from bench.load_pair import dial

SIZE = 100
TURN_S = 0.01
DELIVERY_MODE_2 = struct.pack(">HB", 0x1000, 2)


def offer_amqp(port: int, topic: str, rate: int, end_s: float) -> int:
    """Publish at the address TOPIC/a; how many were written."""
    peer = Peer(port)
    one = method(CHANNEL, 60, 40, b"\0\0" + short("amq.topic") + short(f"{topic}.a") + b"\0") + frame(
        HEADER, CHANNEL, struct.pack(">HHQ", 60, 0, SIZE) + DELIVERY_MODE_2) + frame(BODY, CHANNEL, b"x" * SIZE)
    sent, due, began_s = 0, 0.0, time.monotonic()
    peer.socket.settimeout(max(1.0, end_s - began_s))
    while (now_s := time.monotonic()) < end_s:
        due = max(due, (now_s - began_s) * rate - rate * 0.1)       # what is later than that is not made good
        count = int((now_s - began_s) * rate - due)
        if count:
            peer.socket.sendall(one * count)
            sent, due = sent + count, due + count
        time.sleep(TURN_S)
    return sent


def offer_http(port: int, topic: str, rate: int, end_s: float, connections: int) -> tuple[int, int]:
    """POST to TOPIC/NUMBER; (answered 201, answered otherwise)."""
    selector, done, refused = selectors.DefaultSelector(), 0, 0
    wires: dict[int, socket.socket] = {}
    for number in range(connections):
        wire = dial(port)
        wire.setblocking(False)
        wires[wire.fileno()] = wire
        selector.register(wire, selectors.EVENT_READ, [request(f"{topic}/{number}", SIZE), b"", 0.0])
        wire.sendall(request(f"{topic}/{number}", SIZE))
    pause_s = connections / rate
    while (now_s := time.monotonic()) < end_s:
        for key, _ in selector.select(TURN_S):
            state = key.data
            state[1] += wires[key.fd].recv(65_536)
            if state[1].endswith(END):
                taken = state[1].startswith(b"HTTP/1.1 201")
                done, refused = done + taken, refused + (not taken)
                state[1], state[2] = b"", now_s + pause_s
        for key in list(selector.get_map().values()):
            if 0.0 < key.data[2] <= now_s:
                key.data[2] = 0.0
                wires[key.fd].sendall(key.data[0])
    return done, refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("door", choices=("amqp", "http"))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", default="load")
    parser.add_argument("--rate", type=int, default=5_000, help="messages a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--connections", type=int, default=32, help="of HTTP")
    options = parser.parse_args()
    end_s = time.monotonic() + options.seconds
    if options.door == "amqp":
        print(f"amqp offered {offer_amqp(options.port, options.topic, options.rate, end_s):,}")
    else:
        done, refused = offer_http(options.port, options.topic, options.rate, end_s, options.connections)
        print(f"http taken {done:,}, refused {refused:,}")


if __name__ == "__main__":
    main()
