"""Peers that stop reading, or send garbage and huge lengths: they lose their connection, nobody else notices."""
from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.clients import ping, post, produce, publish, request
from tests.faults.conftest import Start
from tests.faults.mqtt_peer import PUBLISH, MqttPeer, connect_packet, packet, publish_packet, split_publish
from tests.faults.nursery import ForkedHub
from tests.faults.readers import read_over_http

MIB = 1 << 20
FLOOD_BYTES = 64 * MIB
VALUE_BYTES = 32 * 1024
HTTP_POST = b"POST /v1/publish/a HTTP/1.1\r\nHost: localhost\r\n"
SMALL_BUFFERS = "recent_bytes = 1048576\ncheckpoint_bytes = 1048576"


def resident_bytes(hub: ForkedHub) -> int:
    for line in Path(f"/proc/{hub.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the hub has no memory")


@contextlib.contextmanager
def connected(port: int, receive_bytes: int = 4096) -> Iterator[socket.socket]:
    """A socket that the system buffers little for, so that not reading from it is soon felt."""
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        peer.settimeout(60)
        peer.connect(("127.0.0.1", port))
        yield peer


def flood(port: int) -> int:
    """Publish FLOOD_BYTES over MQTT, QoS 1; returns how many messages."""
    peer = MqttPeer(port, "flood")
    count, window = FLOOD_BYTES // VALUE_BYTES, 64
    value = bytes(VALUE_BYTES)
    for _ in range(0, count, window):
        peer.send(b"".join(publish_packet("plant/k", value, 1 + i) for i in range(window)))
        for _ in range(window):
            peer.read()
    peer.close()
    return count


def test_a_subscriber_that_stops_reading_costs_no_memory_and_delays_nobody(start: Start) -> None:
    hub = start(SMALL_BUFFERS)
    mqtt = hub.port("mqtt")
    flood(mqtt)                          # what a hub takes that has much to do, it has by now
    got: list[int] = []
    reader = MqttPeer(mqtt, "reader")
    reader.subscribe("plant/#", qos=0)

    def read() -> None:
        while len(got) < FLOOD_BYTES // VALUE_BYTES:
            kind, body = reader.read()
            assert kind == PUBLISH
            got.append(len(split_publish(body)[1]))

    with connected(mqtt) as stuck:
        stuck.sendall(connect_packet("stuck") + packet(0x82, b"\0\1\0\1#\0"))
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        before = resident_bytes(hub)
        sent = flood(mqtt)
        thread.join(120)
        assert len(got) == sent, "who reads is given everything"
        assert resident_bytes(hub) - before < FLOOD_BYTES // 2, "what nobody takes is not kept"
    reader.close()


@pytest.mark.parametrize("door", ["http", "kafka"])
def test_a_reader_that_takes_no_answers_is_not_given_more(start: Start, door: str) -> None:
    """Many requests for much, none of the answers read."""
    hub = start(SMALL_BUFFERS)
    flood(hub.port("mqtt"))
    ask = http_page() if door == "http" else kafka_fetch()
    before = resident_bytes(hub)
    with contextlib.ExitStack() as stack:
        stuck = [stack.enter_context(connected(hub.port(door))) for _ in range(8)]
        for peer in stuck:
            peer.settimeout(0.2)
            with contextlib.suppress(TimeoutError):      # the hub reads no more from it, as it should
                for _ in range(200):
                    peer.sendall(ask)
        highest = 0
        for _ in range(20):
            assert request(hub.port("http"), "GET", "/healthz")[0] == 200
            assert post(hub.port("http"), b"x")[0] == 201
            highest = max(highest, resident_bytes(hub))
            time.sleep(0.05)
    assert highest - before < FLOOD_BYTES * 1.5, "eight readers were owed a hundred times as much"


def http_page() -> bytes:
    return b"GET /v1/topics/plant/messages?max=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n"


def kafka_fetch() -> bytes:
    """Fetch version 4 of 8 MiB from every partition of the topic."""
    topic = b"\0\5plant" + struct.pack(">i", 4) + b"".join(struct.pack(">iqi", partition, 0, 8 * MIB)
                                                           for partition in range(4))
    body = struct.pack(">iiiib", -1, 100, 1, 8 * MIB, 0) + struct.pack(">i", 1) + topic
    head = struct.pack(">hhih", 1, 4, 7, -1)
    return struct.pack(">i", len(head + body)) + head + body


def garbage_of(door: str) -> dict[str, bytes]:
    """What no client sends: noise, lengths that nobody can mean, beginnings without an end."""
    noise = random.Random(door).randbytes(2000)
    if door == "mqtt":
        return {"noise": noise, "a length of five bytes": b"\x10\xff\xff\xff\xff\x7f",
                "256 MB announced": connect_packet("x") + b"\x30\xff\xff\xff\x7f" + bytes(1000),
                "a packet before CONNECT": publish_packet("a", b"b"),
                "a reserved packet": connect_packet("x") + b"\xf3\0",
                "a name longer than its packet": connect_packet("x") + b"\x30\x04\xff\xffab",
                "a wildcard in a name": connect_packet("x") + publish_packet("a/#", b"b"),
                "no UTF-8": connect_packet("x") + b"\x30\x04\0\2\xc3\x28"}
    if door == "kafka":
        return {"noise": b"\x7f" + noise, "2 GB announced": b"\x7f\xff\xff\xff" + bytes(100), "a negative length":
                b"\xff\xff\xff\xff" + bytes(100), "an empty request": b"\0\0\0\0",
                "an unknown key": struct.pack(">ihhih", 10, 9999, 0, 1, -1), "a million topics":
                struct.pack(">ihhihi", 14, 3, 1, 1, -1, 1 << 20), "HTTP": b"GET / HTTP/1.1\r\n\r\n"}
    return {"noise": noise + b"\r\n\r\n", "a line without an end": b"GET /" + b"a" * 100_000,
            "headers without an end": b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 20_000,
            "a length that is no number": HTTP_POST + b"Content-Length: many\r\n\r\n",
            "a body of a terabyte": HTTP_POST + b"Content-Length: 1099511627776\r\n\r\nx",
            "two lengths": HTTP_POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
            "a chunk that is no number": HTTP_POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            "MQTT": connect_packet("x")}


@pytest.mark.parametrize("door", ["mqtt", "http", "kafka"])
def test_garbage_ends_its_own_connection_and_no_other(start: Start, door: str) -> None:
    hub = start()
    other = MqttPeer(hub.port("mqtt"), "other")
    before = resident_bytes(hub)
    for name, garbage in garbage_of(door).items():
        with connected(hub.port(door)) as peer:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                peer.sendall(garbage)
            if name == "noise":
                with contextlib.suppress(OSError):       # the hub may have closed it already
                    peer.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while peer.recv(1 << 16):
                    pass                # closed by the hub: else this times out
        ping(other)
    assert resident_bytes(hub) - before < 32 * MIB
    assert publish(hub.port("mqtt"), b"1") and post(hub.port("http"), b"2")[0] == 201
    assert produce(hub.port("kafka"), b"3") is None
    assert sorted(value for messages in read_over_http(hub.port("http")).values() for _, _, value in messages) == [
        b"1", b"2", b"3"]
    _, metrics = request(hub.port("http"), "GET", "/metrics")
    faults = [line for line in metrics.decode().splitlines() if line.startswith("gatehouse_faults_total")]
    assert faults and all(line.endswith(" 0.0") for line in faults), faults
    other.close()
