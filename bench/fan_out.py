"""One publish to a thousand subscribers: deliveries a second of the hub and of mosquitto, over MQTT with QoS 0.

    python -m bench.fan_out [--subscribers 1000] [--n 300] [--rounds 3]

So many connections subscribe to one topic; another publishes 100 bytes, the next when all but a few of the ones before
have reached everybody.
"""
from __future__ import annotations

import argparse
import resource
import selectors
import time
from statistics import median
from typing import Final

from bench.load_mqtt import Shape, connect, subscribe
from bench.load_pair import SILENCE_S, LoadFailed
from bench.measure import table
from bench.servers import Server, start_hub, start_mosquitto, work_folder

SHAPE: Final = Shape("fan/out", 100, 0)
AHEAD: Final = 4                  # publishes that have not reached everybody
READ_BYTES: Final = 1 << 16


def measure(server: Server, subscribers: int, n: int) -> tuple[float, float]:
    """Deliveries a second, and processor µs of the server for each. Raises LoadFailed where some are missing."""
    packet = SHAPE.packet()
    wanted_bytes = n * subscribers * len(packet)
    publisher, selector = connect(server.ports["mqtt"], "publisher"), selectors.DefaultSelector()
    readers = [connect(server.ports["mqtt"], f"reader-{number}") for number in range(subscribers)]
    for reader in readers:
        subscribe(reader, SHAPE.topic, 0)
        reader.setblocking(False)
        selector.register(reader, selectors.EVENT_READ)
    sent = read_bytes = 0
    cpu, began_s = server.cpu(), time.perf_counter()
    while read_bytes < wanted_bytes:
        while sent < n and (sent - AHEAD) * subscribers * len(packet) < read_bytes:
            publisher.sendall(packet)
            sent += 1
        ready = selector.select(SILENCE_S)
        if not ready:
            raise LoadFailed(f"{server.name} delivered {read_bytes / wanted_bytes:.1%}")
        for key, _ in ready:
            read_bytes += len(key.fileobj.recv(READ_BYTES))      # type: ignore[union-attr]
    took_s, used = time.perf_counter() - began_s, server.cpu().since(cpu)
    for connection in (publisher, *readers):
        connection.close()
    selector.close()
    return n * subscribers / took_s, (used.user_s + used.system_s) / (n * subscribers) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscribers", type=int, default=1_000)
    parser.add_argument("--n", type=int, default=300, help="messages")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows = []
    with work_folder() as folder:
        servers = [start_hub(folder / "hub", doors=("mqtt",)), start_mosquitto(folder / "mosquitto")]
        try:
            runs = [[measure(server, options.subscribers, options.n) for server in servers]
                    for _ in range(options.rounds)]
        finally:
            for server in servers:
                server.stop()
    middles = [tuple(map(median, zip(*of_server, strict=True))) for of_server in zip(*runs, strict=True)]
    for server, (rate, processor_us) in zip(servers, middles, strict=True):
        rows.append([server.name, f"{rate:,.0f}", f"{processor_us:.2f}", f"{middles[0][0] / rate:.1f} x"])
    print(table([f"one publish to {options.subscribers:,} subscribers", "deliveries/s", "server's µs each",
                 "hub against it (aim: 4 x)"], rows))


if __name__ == "__main__":
    main()
