"""What a small message waits for beside large ones: the hub and mosquitto, over MQTT.

    python -m bench.beside_large [--sizes 1000000 16000000] [--seconds 5] [--rounds 3]

One connection publishes large messages of QoS 1, one in flight, that nobody reads. Another publishes 100 bytes every
10 ms, and the time to its PUBACK is what counts. The hub acknowledges after `fdatasync`; mosquitto stores nothing.
"""
from __future__ import annotations

import argparse
import threading
import time
from statistics import median
from typing import Final

from bench.load_mqtt import PUBACK_BYTES, Shape, connect
from bench.load_pair import receive
from bench.measure import table
from bench.servers import Server, start_hub, start_mosquitto, work_folder

PAUSE_S: Final = 0.01
SMALL_BYTES: Final = 100


class Beside:
    """Publishes large messages until it is stopped."""

    def __init__(self, port: int, size: int) -> None:
        self.sent = 0
        self._packet = Shape("large", size, 1).packet()
        self._connection = connect(port, "large")
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._connection.sendall(self._packet)
            receive(self._connection, PUBACK_BYTES)
            self.sent += 1

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._connection.close()


def waits_ms(port: int, seconds: float) -> list[float]:
    """Milliseconds from each small message to its PUBACK."""
    packet = Shape("small", SMALL_BYTES, 1).packet()
    waited: list[float] = []
    with connect(port, "small") as connection:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            began_s = time.perf_counter()
            connection.sendall(packet)
            receive(connection, PUBACK_BYTES)
            waited.append((time.perf_counter() - began_s) * 1e3)
            time.sleep(PAUSE_S)
    return waited


def measure(server: Server, size: int, seconds: float) -> tuple[float, float, float]:
    """(median of the small ones in ms, longest, MB/s of the large ones)."""
    port = server.ports["mqtt"]
    beside = Beside(port, size)
    waited = waits_ms(port, seconds)
    sent = beside.sent
    beside.stop()
    return median(waited), max(waited), sent * size / seconds / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000, 16_000_000])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = []
    with work_folder() as folder:
        servers = [start_hub(folder / "hub", doors=("mqtt",)), start_mosquitto(folder / "mosquitto")]
        try:
            for size in options.sizes:
                runs = [[measure(server, size, options.seconds) for server in servers] for _ in range(options.rounds)]
                for at, server in enumerate(servers):
                    p50, longest, rate = (median(column) for column in zip(*(run[at] for run in runs), strict=True))
                    rows.append([f"{server.name}, beside {size:,} bytes", f"{p50:.1f}", f"{longest:.1f}",
                                 f"{rate:,.0f}"])
        finally:
            for server in servers:
                server.stop()
    print(table(["100 bytes", "p50 ms", "longest ms", "large MB/s"], rows))


if __name__ == "__main__":
    main()
