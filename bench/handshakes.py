"""What a TLS handshake takes of the server, by the key of its certificate, and what handing it to a thread would cost.

    python -m bench.handshakes [--count 300]

Both ends in this process, in memory, TLS 1.3 without resumption. `longest` is the longest time for which one call of
OpenSSL holds the thread that makes it, at p99: what a loop that does it itself stands still for. `more by a thread` is
what the processor time of the whole process grows by where each of the server's calls is handed to an executor and
awaited, as a hub on asyncio would. Certificates are made for the run by `openssl`.
"""
from __future__ import annotations

import argparse
import asyncio
import ssl
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Final

from bench.measure import table
from bench.servers import work_folder

KEYS: Final = {"P-256": ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
               "P-384": ("ec", "-pkeyopt", "ec_paramgen_curve:secp384r1"),
               "Ed25519": ("ed25519",), "RSA 2048": ("rsa:2048",), "RSA 4096": ("rsa:4096",)}


class Pair:
    """A client and a server, not yet connected."""

    def __init__(self, client: ssl.SSLContext, server: ssl.SSLContext) -> None:
        self.to_server, self.to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.to_client, self.to_server, server_hostname="localhost")
        self.server = server.wrap_bio(self.to_server, self.to_client, server_side=True)


def step(end: ssl.SSLObject) -> bool:
    """Go on with a handshake; whether it is done."""
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def shake_here(pair: Pair, spells: list[float]) -> None:
    """The server's calls on this thread, each timed."""
    done = [False, False]
    while not all(done):
        done[0] = step(pair.client)
        begun = time.thread_time()
        done[1] = step(pair.server)
        spells.append(time.thread_time() - begun)


async def shake_elsewhere(pair: Pair, pool: ThreadPoolExecutor) -> None:
    """Every call of the server handed to a thread."""
    loop = asyncio.get_running_loop()
    done = [False, False]
    while not all(done):
        done[0] = step(pair.client)
        done[1] = await loop.run_in_executor(pool, step, pair.server)


async def measure(make: Callable[[], Pair], count: int) -> tuple[float, float, float]:
    """(server's processor time of a handshake, longest call at p99, what a thread for it adds), in seconds."""
    spells: list[float] = []
    of_each: list[float] = []
    begun = time.process_time()
    for _ in range(count):
        before = len(spells)
        shake_here(make(), spells)
        of_each.append(sum(spells[before:]))
    here = (time.process_time() - begun) / count
    with ThreadPoolExecutor(1) as pool:
        begun = time.process_time()
        for _ in range(count):
            await shake_elsewhere(make(), pool)
        elsewhere = (time.process_time() - begun) / count
    return median(of_each), sorted(spells)[len(spells) * 99 // 100], elsewhere - here


def contexts(folder: Path, kind: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    cert, key = folder / "hub.pem", folder / "hub.key"
    algorithm, *options = KEYS[kind]
    subprocess.run(["openssl", "req", "-x509", "-newkey", algorithm, *options, "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    return ssl.create_default_context(cafile=str(cert)), server


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=300)
    options = parser.parse_args()
    rows = []
    with work_folder() as folder:
        for kind in KEYS:
            client, server = contexts(folder, kind)
            taken = asyncio.run(measure(lambda client=client, server=server: Pair(client, server),  # type: ignore[misc]
                                        options.count))
            rows.append([kind, *[f"{seconds * 1e6:,.0f}" for seconds in taken]])
    print(table(["certificate", "server µs", "longest call µs, p99", "more by a thread µs"], rows))


if __name__ == "__main__":
    main()
