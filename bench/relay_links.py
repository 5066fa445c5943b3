"""Many links on one meeting point, all of them idle: what each of them costs it in memory.

    python -m bench.relay_links [--links 1000] [--mesh] [--plain]

Two hubs for each link, 2,000 connections over TLS; or so few hubs that each has a link to each (46 have 1,035), over
their one connection. Their side is a small program that greets as a hub does and then is silent. Memory is what the
meeting point has resident then, less what it had before the first came.
"""
from __future__ import annotations

import argparse
import asyncio
import resource
import ssl
import subprocess
import sys
import time
from math import ceil, sqrt
from pathlib import Path
from secrets import token_bytes
from typing import Final

import aiohttp

from bench.servers import ROOT, Server, ServerFailed, free_ports, work_folder
from gatehouse.relay import frames
from gatehouse.relay.frames import Challenge, Hello, Proof, Welcome
from gatehouse.relay.sealing import Identity
from tests.certificates import Authority

AT_ONCE: Final = 6                    # the meeting point has few from one address prove themselves at once
SETTLE_S: Final = 3.0
AIM_BYTES: Final = 64 << 10


async def greet(client: aiohttp.ClientSession, url: str, tls: ssl.SSLContext | bool, identity: Identity
                ) -> aiohttp.ClientWebSocketResponse:
    """As a hub does. Raises ServerFailed."""
    socket = await client.ws_connect(url, ssl=tls, compress=0, max_msg_size=1 << 20)
    nonce = token_bytes(frames.NONCE_BYTES)
    await socket.send_bytes(frames.encode(Hello(frames.MAJOR, frames.MINOR, identity.public, nonce, "bench")))
    challenge = frames.decode(await socket.receive_bytes())
    if not isinstance(challenge, Challenge):
        raise ServerFailed(f"the meeting point said {challenge}")
    await socket.send_bytes(frames.encode(Proof(identity.sign(
        frames.what_is_proved(nonce, challenge.nonce, challenge.name, identity.public)))))
    welcome = frames.decode(await socket.receive_bytes())
    if not isinstance(welcome, Welcome):
        raise ServerFailed(f"the meeting point said {welcome}")
    return socket


async def read(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Answers pings; what the meeting point says is passed over."""
    async for _ in socket:
        pass


async def measure(server: Server, url: str, tls: ssl.SSLContext | bool, hubs: list[Identity]) -> tuple[int, float]:
    """Bytes that all of them take, and the meeting point's processor time for a second in which nothing is said."""
    before = server.resident_bytes()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        sockets = []
        for at in range(0, len(hubs), AT_ONCE):
            sockets += await asyncio.gather(*[greet(client, url, tls, hub) for hub in hubs[at:at + AT_ONCE]])
        reading = [asyncio.ensure_future(read(socket)) for socket in sockets]
        await asyncio.sleep(SETTLE_S)
        took, began, began_s = server.resident_bytes() - before, server.cpu(), time.monotonic()
        await asyncio.sleep(SETTLE_S)
        spent = server.cpu().since(began)
        idle = (spent.user_s + spent.system_s) / (time.monotonic() - began_s)
        for task in reading:
            task.cancel()
    return took, idle


def pairs_of(hubs: int, mesh: bool) -> list[tuple[int, int]]:
    if mesh:
        return [(one, other) for one in range(hubs) for other in range(one + 1, hubs)]
    return [(number, number + 1) for number in range(0, hubs, 2)]


def start(folder: Path, hubs: list[Identity], pairs: list[tuple[int, int]], plain: bool
          ) -> tuple[Server, str, ssl.SSLContext | bool]:
    port, = free_ports(1)
    authority = Authority(folder)
    pair = authority.server()
    tables = [f'[relay]\nname = "127.0.0.1"\nlisten = "127.0.0.1:{port}"\nmax_hubs = {len(hubs)}\n']
    if not plain:
        tables.append(f'cert = "{pair.cert}"\nkey = "{pair.key}"\n')
    tables += [f'[[hubs]]\nname = "{number}"\nkeys = ["{hub.public.hex()}"]\n' for number, hub in enumerate(hubs)]
    tables += [f'[[links]]\nhubs = ["{one}", "{other}"]\ntopics = ["*"]\n' for one, other in pairs]
    (folder / "relay.toml").write_text("".join(tables))
    with (folder / "relay.log").open("ab") as log:
        child = subprocess.Popen([sys.executable, "-m", "gatehouse.cli", "relay", "serve", "--config",
                                  str(folder / "relay.toml")], cwd=ROOT, stdout=subprocess.PIPE, stderr=log)
    assert child.stdout is not None
    for line in child.stdout:
        if line == b"gatehouse relay ready\n":
            tls = True if plain else ssl.create_default_context(cafile=str(authority.file))
            return (Server("relay", child, folder, {"relay": port}),
                    f"{'ws' if plain else 'wss'}://127.0.0.1:{port}/v1/relay", tls)
    raise ServerFailed("the meeting point did not start: " + (folder / "relay.log").read_text()[-500:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", type=int, default=1000)
    parser.add_argument("--plain", action="store_true", help="without TLS")
    parser.add_argument("--mesh", action="store_true", help="few hubs, each linked with each")
    options = parser.parse_args()
    count = ceil((1 + sqrt(1 + 8 * options.links)) / 2) if options.mesh else 2 * options.links
    hubs, pairs = [Identity(token_bytes(32)) for _ in range(count)], pairs_of(count, options.mesh)
    wanted = 4 * len(hubs) + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))
    with work_folder() as folder:
        server, url, tls = start(folder, hubs, pairs, options.plain)
        try:
            took, idle = asyncio.run(measure(server, url, tls, hubs))
        finally:
            server.stop()
    each = took / len(pairs)
    print(f"{len(pairs)} links of {len(hubs)} hubs: {took / 2**20:.1f} MiB, {each / 1024:.1f} KiB for each link "
          f"(aim: at most {AIM_BYTES >> 10}); {idle * 100:.1f} % of a processor while nothing is said")
    return 0


if __name__ == "__main__":
    sys.exit(main())
