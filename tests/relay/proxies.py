"""Two proxies of the tests' own, run as `python -m tests.relay.proxies KIND HOST:PORT [TARGET]`.

    connect   an HTTP proxy that knows CONNECT
    faulty    passes bytes on to TARGET late, and cuts every so many connections in the middle of what they carry
"""
from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress

CHUNK_BYTES = 16 << 10
DELAY_S = 0.02
CUT_AFTER_BYTES = (200_000, 1_000_000)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut_after: int = 0) -> None:
    passed = 0
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            if cut_after:
                await asyncio.sleep(DELAY_S * random.random())
                passed += len(data)
                if passed > cut_after:
                    writer.write(data[:len(data) // 2])
                    break
            writer.write(data)
            await writer.drain()
    writer.close()


async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, cut: int) -> None:
    try:
        there, back = await asyncio.open_connection(host, port)
    except OSError:
        writer.close()
        return
    if not cut:
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    both = [asyncio.ensure_future(pump(reader, back, cut)), asyncio.ensure_future(pump(there, writer, cut))]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED if cut else asyncio.ALL_COMPLETED)
    writer.close()
    back.close()


async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    method, target, _ = head.split(b"\r\n")[0].split(b" ")
    assert method == b"CONNECT"
    host, _, port = target.decode().rpartition(":")
    print(f"CONNECT {host}:{port}", flush=True)
    await joined(reader, writer, host, int(port), 0)


async def run(kind: str, listen: str, target: str) -> None:
    async def on_faulty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = target.rpartition(":")
        await joined(reader, writer, host, int(port), random.randrange(*CUT_AFTER_BYTES))

    host, _, port = listen.rpartition(":")
    server = await asyncio.start_server(on_connect if kind == "connect" else on_faulty, host, int(port))
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else ""))
