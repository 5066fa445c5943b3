"""What a limit holds: far more than it allows is offered by four doors at once, while somebody else publishes calmly.

    python -m bench.limits_hold [--seconds 60] [--rate 2000]

The topic `load` has the limit; pipes of MQTT, AMQP and Kafka and posts of HTTP offer as much as they can. Told are how
much was taken in a second (aim: within 5 % of the limit over 10 s), how the hub's memory grew (aim: not), and the p99
of a client that publishes to another topic with QoS 1, alone and beside it (aim: twice as much at most).
"""
from __future__ import annotations

import argparse
import json
import socket
import threading
import time
import urllib.request
from statistics import quantiles
from typing import Any, Final

from bench.guard import DOORS, Options
from bench.measure import LOAD, MeasureFailed, run_load
from bench.servers import Server, start_hub, work_folder

LOADS: Final[tuple[tuple[str, str, Options], ...]] = (
    ("mqtt", "mqtt-pipe", {"qos": 1, "linger": 0.2, "topic": "load/a"}), ("amqp", "amqp-pipe", {"topic": "load"}),
    ("kafka", "kafka-pipe", {"topic": "load"}), ("http", "http-many", {"topic": "load"}))
SETTLE_S: Final = 3.0
CALM_S: Final = 0.005
MANY: Final = 100_000_000


def taken(server: Server) -> tuple[float, int]:
    """When, and how many messages were charged to the limit until then."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.ports['http']}/v1/limits/file-1", timeout=60) as answer:
        document: dict[str, Any] = json.loads(answer.read())
    return time.monotonic(), sum(used["messages"] for used in document["used"])


def publish_calmly(server: Server, seconds: float) -> float:
    """The p99 in ms of a QoS 1 publish and its acknowledgement, one in flight."""
    with socket.create_connection(("127.0.0.1", server.ports["mqtt"])) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.sendall(b"\x10\x10\0\4MQTT\4\2\0\0\0\4calm")
        wire.recv(4)
        took_ms: list[float] = []
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            began_s = time.monotonic()
            wire.sendall(b"\x32\x0b\0\6calm/a\0\1x")
            wire.recv(4)
            took_ms.append((time.monotonic() - began_s) * 1000)
            time.sleep(CALM_S)
    return quantiles(took_ms, n=100)[98]


def offer(server: Server, door: str, mode: str, options: Options) -> None:
    """Publish until the hub is gone."""
    try:
        run_load(LOAD, server, door, mode, **{**options, "n": MANY})
    except MeasureFailed:
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=2_000)
    options = parser.parse_args()
    with work_folder() as folder:
        server = start_hub(folder / "hub", doors=DOORS,
                           more=f'[[limits]]\nof = "topic:load"\nmessages_per_s = {options.rate}\n')
        try:
            alone_ms = publish_calmly(server, options.seconds / 6)
            for load in LOADS:
                threading.Thread(target=offer, args=(server, *load), daemon=True).start()
            time.sleep(SETTLE_S)
            memory_bytes, (began_s, before) = server.resident_bytes(), taken(server)
            beside_ms = publish_calmly(server, options.seconds)
            ended_s, after = taken(server)
            print(f"limit {options.rate:,}/s, taken {(after - before) / (ended_s - began_s):,.0f}/s; memory "
                  f"{memory_bytes >> 20} -> {server.resident_bytes() >> 20} MiB; another's p99 {alone_ms:.1f} -> "
                  f"{beside_ms:.1f} ms", flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
