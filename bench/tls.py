"""What TLS costs: handshakes a second, messages a second of each door beside none, memory of a connection.

    python -m bench.tls [--rounds 3] [--handshakes 1000] [--idle 2000] [--load PATH]

One hub with a plain listener and one with TLS 1.3 per door, asked in turn; `load.py` with and without `--tls`, on the
other processor. A handshake is that of an MQTT client of this process, one after the other; the hub's share is its
processor time. Certificates are made for the run by `openssl`.
"""
from __future__ import annotations

import argparse
import re
import socket
import ssl
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final, NamedTuple

from bench.measure import LOAD, LOAD_HELP, MeasureFailed, number, run_load, table
from bench.servers import Server, start_hub, work_folder

DOORS: Final = ("mqtt", "http", "amqp", "kafka")
KEYS: Final = {"P-256": ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"), "RSA 2048": ("rsa:2048",)}
RATES: Final = re.compile(r"end to end ([\d,]+) msg/s|connections[^:]*: ([\d,]+) msg/s")
KIB: Final = re.compile(r"([\d.]+) KiB resident each")
LOADS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("mqtt", "mqtt-pipe", {"n": 300_000}),
    ("mqtt", "mqtt-pipe", {"n": 300_000, "qos": 1, "sub_qos": 1}),
    ("mqtt", "mqtt-many", {"n": 40_000, "connections": 200}),
    ("amqp", "amqp-pipe", {"n": 100_000}),
    ("kafka", "kafka-pipe", {"n": 1_000_000, "topic": "batches"}),
    ("http", "http-many", {"n": 20_000}),
)


class Cost(NamedTuple):
    """Messages a second, and the hub's processor time for each, in µs."""

    rate: float
    used_us: float


def make_certificate(folder: Path, kind: str) -> tuple[Path, Path]:
    """Files of a self-signed certificate for the loopback, and of its key."""
    name = kind.replace(" ", "-")
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    algorithm, *options = KEYS[kind]
    subprocess.run(["openssl", "req", "-x509", "-newkey", algorithm, *options, "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    return cert, key


def measure_handshakes(server: Server, cert: Path, count: int, resumed: bool) -> Cost:
    """Connections that shake hands, get a CONNACK and leave."""
    context = ssl.create_default_context(cafile=str(cert))
    session: ssl.SSLSession | None = None
    before, began_s = server.cpu(), perf_counter()
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", server.ports["mqtt-tls"])) as sock:
            tls = context.wrap_socket(sock, server_hostname="127.0.0.1", session=session if resumed else None)
            tls.sendall(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00")
            if len(tls.recv(4)) != 4:
                raise MeasureFailed("no CONNACK")
            session = tls.session            # read after data came: tickets of TLS 1.3 come behind the handshake
            tls.close()
    took_s, used = perf_counter() - began_s, server.cpu().since(before)
    return Cost(count / took_s, (used.user_s + used.system_s) / count * 1e6)


def measure_connects(server: Server, count: int) -> Cost:
    """The same without TLS."""
    before, began_s = server.cpu(), perf_counter()
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", server.ports["mqtt"])) as sock:
            sock.sendall(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00")
            sock.recv(4)
    took_s, used = perf_counter() - began_s, server.cpu().since(before)
    return Cost(count / took_s, (used.user_s + used.system_s) / count * 1e6)


def measure_load(load: Path, server: Server, *, door: str, mode: str, n: int, **options: int | str) -> Cost:
    text, used = run_load(load, server, door, mode, n=n, **options)
    found = RATES.search(text)
    if found is None:
        raise MeasureFailed(f"cannot read {text!r}")
    return Cost(number(found[1] or found[2]), (used.user_s + used.system_s) / n * 1e6)


def medians(costs: list[Cost]) -> Cost:
    return Cost(median(cost.rate for cost in costs), median(cost.used_us for cost in costs))


def in_turn(rounds: int, *measures: Callable[[], Cost]) -> list[Cost]:
    """Each of them in every round; medians."""
    taken = [[measure() for measure in measures] for _ in range(rounds)]
    return [medians(list(costs)) for costs in zip(*taken, strict=True)]


def tell_handshakes(folder: Path, count: int) -> None:
    rows = []
    for kind in KEYS:
        cert, key = make_certificate(folder, kind)
        server = start_hub(folder / f"hub-{cert.stem}", doors=("mqtt",), tls=(cert, key))
        try:
            measure_handshakes(server, cert, 50, False)
            plain = measure_connects(server, count)
            full, resumed = [measure_handshakes(server, cert, count, again) for again in (False, True)]
        finally:
            server.stop()
        for name, cost in (("without TLS", plain), (f"{kind}, TLS 1.3", full), (f"{kind}, resumed", resumed)):
            rows.append([name, f"{cost.rate:,.0f}", f"{cost.used_us:,.0f}"])
    print(table(["connect, CONNECT, CONNACK, close", "a second, one client", "hub µs each"], rows), flush=True)


def tell_loads(folder: Path, options: argparse.Namespace, cert: Path, key: Path) -> None:
    server = start_hub(folder / "hub", doors=DOORS, tls=(cert, key))
    rows = []
    try:
        for door, mode, given in LOADS:
            measure = partial(measure_load, options.load, server, mode=mode, **given)
            plain, tls = in_turn(options.rounds, partial(measure, door=door),
                                 partial(measure, door=f"{door}-tls", tls=str(cert)))
            name = mode + (" QoS 1" if given.get("qos") else "")
            rows.append([name, f"{plain.rate:,.0f}", f"{tls.rate:,.0f}", f"{tls.rate / plain.rate:.2f}",
                         f"{plain.used_us:.1f}", f"{tls.used_us:.1f}"])
    finally:
        server.stop()
    print("\n" + table(["load", "plain msg/s", "TLS msg/s", "ratio", "plain hub µs", "TLS hub µs"], rows), flush=True)


def tell_memory(folder: Path, options: argparse.Namespace, cert: Path, key: Path) -> None:
    rows = []
    for name, more in (("plain", {}), ("TLS", {"tls": str(cert)})):
        server = start_hub(folder / f"idle-{name}", doors=("mqtt",), tls=(cert, key))
        try:
            text, _ = run_load(options.load, server, "mqtt-tls" if more else "mqtt", "mqtt-idle",
                               connections=options.idle, seconds=2, pid=server.pid, **more)
        finally:
            server.stop()
        found = KIB.search(text)
        rows.append([name, found[1] if found else "?"])
    print("\n" + table([f"{options.idle:,} idle MQTT connections", "KiB each"], rows), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--handshakes", type=int, default=1000)
    parser.add_argument("--idle", type=int, default=2000)
    parser.add_argument("--load", type=Path, default=LOAD, help=LOAD_HELP)
    options = parser.parse_args()
    with work_folder() as folder:
        tell_handshakes(folder, options.handshakes)
        cert, key = make_certificate(folder, "P-256")
        tell_loads(folder, options, cert, key)
        tell_memory(folder, options, cert, key)


if __name__ == "__main__":
    main()
