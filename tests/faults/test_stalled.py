"""A hundred subscribers of a busy topic that take next to nothing: they cost one budget, nobody else waits for them,
and who of them reads again gets everything in order."""
from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

from tests.faults.clients import request
from tests.faults.conftest import Start
from tests.faults.mqtt_peer import PUBLISH, MqttPeer, connect_packet, packet, publish_packet, split_publish, text
from tests.faults.nursery import ForkedHub
from tests.faults.test_peers import SMALL_BUFFERS, connected, resident_bytes

MIB = 1 << 20
STALLED = 100
UNSENT_BYTES = 16 * MIB
GROWTH_BYTES = 96 * MIB          # the budget, 128 KiB and what the C library keeps for each: without one it was 800 MiB
VALUE_BYTES = 2_000
WINDOW = 64
MESSAGES = 8 * 2_048             # 32 MiB
SIP_BYTES = 1_000                # a peer that takes nothing at all is cut off after 30 s
GIVEN_BACK_S = 60


@contextlib.contextmanager
def stalled(port: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(connected(port)) for _ in range(STALLED)]
        for number, peer in enumerate(peers):
            peer.sendall(connect_packet(f"stalled-{number}") + packet(0x82, b"\0\1" + text("busy/#") + b"\1"))
            answers = b""
            while len(answers) < 9:
                answers += peer.recv(9 - len(answers))
            assert answers == b"\x20\2\0\0" + b"\x90\3\0\1\1"
        yield peers


def value_of(number: int) -> bytes:
    return struct.pack(">I", number) + bytes(VALUE_BYTES - 4)


def flood(port: int, first: int, count: int) -> None:
    peer = MqttPeer(port, f"flood-{first}")
    for start in range(first, first + count, WINDOW):
        peer.send(b"".join(publish_packet("busy/k", value_of(start + i), 1 + i) for i in range(WINDOW)))
        for _ in range(WINDOW):
            peer.read()
    peer.close()


def unsent_bytes(hub: ForkedHub) -> int:
    page = request(hub.port("http"), "GET", "/metrics")[1]
    line = next(line for line in page.splitlines() if line.startswith(b"gatehouse_unsent_bytes "))
    return int(float(line.split()[1]))


def test_stalled_subscribers_cost_one_budget_delay_nobody_and_lose_nothing(start: Start) -> None:
    hub = start(f"{SMALL_BUFFERS}\n[hub]\nunsent_bytes = {UNSENT_BYTES}", doors=("mqtt", "http"))
    mqtt = hub.port("mqtt")
    flood(mqtt, 0, MESSAGES)                     # what a hub takes that has much to do, it has by now
    got: list[int] = []
    reader = MqttPeer(mqtt, "reader")
    reader.subscribe("busy/#", qos=0)

    def read() -> None:
        while len(got) < MESSAGES:
            kind, body = reader.read()
            assert kind == PUBLISH
            got.append(struct.unpack_from(">I", split_publish(body)[1])[0])

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    with stalled(mqtt) as peers:
        before, highest = resident_bytes(hub), 0
        sipped = [b""] * STALLED
        for part in range(8):
            flood(mqtt, part * MESSAGES // 8, MESSAGES // 8)
            sipped = [taken + peer.recv(SIP_BYTES) for taken, peer in zip(sipped, peers, strict=True)]
            assert unsent_bytes(hub) <= UNSENT_BYTES + STALLED * (VALUE_BYTES + (128 << 10))
            highest = max(highest, resident_bytes(hub))
        thread.join(120)
        assert got == list(range(MESSAGES)), "who reads is given everything, in order"
        assert highest - before < GROWTH_BYTES
        assert numbers_of(peers[7], sipped[7]) == list(range(MESSAGES)), "who reads again has lost nothing"
    reader.close()
    deadline = time.monotonic() + GIVEN_BACK_S
    while unsent_bytes(hub) or resident_bytes(hub) - before > GROWTH_BYTES // 2:
        assert time.monotonic() < deadline, "what they held is not given back"
        time.sleep(0.1)


def numbers_of(peer: socket.socket, data: bytes) -> list[int]:
    """All that a subscriber gets, as numbers; it acknowledges as it reads."""
    size = len(publish_packet("busy/k", value_of(0), 1))
    numbers: list[int] = []
    while len(numbers) < MESSAGES:
        while len(data) < size:
            data += peer.recv(1 << 20)
        whole = len(data) // size
        ends = [(number + 1) * size - VALUE_BYTES for number in range(whole)]
        numbers += [struct.unpack_from(">I", data, end)[0] for end in ends]
        peer.sendall(b"".join(b"\x40\x02" + data[end - 2:end] for end in ends))
        data = data[whole * size:]
    return numbers
