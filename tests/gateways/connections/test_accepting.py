"""Whoever connects gets a transport that does what asyncio's promises, native or the event loop's."""
from __future__ import annotations

import asyncio
import os
import random
import re
import resource
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gatehouse.gateways.connections import accepting
from gatehouse.gateways.connections.accepting import IS_NATIVE, accept
from tests.gateways.connections.test_connection import turns, until

WAIT_S = 120.0
SMALL_BYTES = 1 << 14
PAUSE_S = 1.0               # `native_sockets.ACCEPT_PAUSE_S`


class Peer(asyncio.Protocol):
    """The hub's side of one connection: notes what it is told."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.seen = b""
        self.told: list[str] = []
        self.lost: list[Exception | None] = []
        self.keeps_open = False
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.stage.peers.append(self)
        self.stage.on_made()
        if self.stage.fault == "made":
            raise RuntimeError("cannot begin")

    def data_received(self, data: bytes) -> None:
        self.seen += data
        if data == b"FAIL":
            raise RuntimeError("our own mistake")

    def eof_received(self) -> bool:
        self.told.append("eof")
        return self.keeps_open

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Stage:
    """Something that accepts, and peers of it."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.fault = ""
        self.on_made: Callable[[], object] = bool
        self.peers: list[Peer] = []
        self.faults: list[dict[str, Any]] = []

    async def __aenter__(self) -> Stage:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: self.faults.append(context))
        self.server = await accept(self.host, 0, lambda: Peer(self))
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        for peer in self.peers:
            peer.transport.abort()
        await until(lambda: all(peer.lost for peer in self.peers))

    async def connect(self, receive_bytes: int = 0, host: str = "127.0.0.1") -> tuple[socket.socket, Peer]:
        wire = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_bytes:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        wire.setblocking(False)
        count = len(self.peers)
        await asyncio.get_running_loop().sock_connect(wire, (host, self.port))
        await until(lambda: len(self.peers) > count)
        return wire, self.peers[-1]


async def read(wire: socket.socket, count: int) -> bytes:
    """So many bytes, or what there is before the end."""
    loop, got = asyncio.get_running_loop(), b""
    while len(got) < count:
        part = await loop.sock_recv(wire, min(1 << 16, count - len(got)))
        if not part:
            break
        got += part
    return got


def run(test: Callable[[], Awaitable[None]], *, plain: bool = False) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), WAIT_S)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop if plain else uvloop.new_event_loop) as runner:
        runner.run(bounded())
    assert not accepting._serving, "nothing is served any more, so the epoll is closed"


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_bytes_go_both_ways_and_a_turn_s_writes_in_their_order(plain: bool) -> None:
    async def test() -> None:
        async with Stage() as stage:
            wire, peer = await stage.connect()
            assert peer.transport.get_extra_info("peername") == wire.getsockname()
            assert peer.transport.get_extra_info("nothing", 7) == 7
            await asyncio.get_running_loop().sock_sendall(wire, b"in")
            await until(lambda: peer.seen == b"in")
            for n in range(1000):
                peer.transport.write(b"%d," % n)
            peer.transport.writelines([b"a", b"", bytearray(b"b"), memoryview(b"c")])
            wanted = b"".join(b"%d," % n for n in range(1000)) + b"abc"
            assert await read(wire, len(wanted)) == wanted
            assert peer.transport.get_write_buffer_size() == 0
            wire.close()
            await until(lambda: peer.lost)
            assert peer.told == ["eof"] and peer.lost == [None]
            assert peer.transport.is_closing()
            if IS_NATIVE:                              # uvloop raises: the shared connection writes nothing then
                peer.transport.write(b"late")
                assert peer.transport.get_write_buffer_size() == 0
            left = peer.transport.get_extra_info("socket")
            assert left is None or left.fileno() == -1
    run(test, plain=plain)


def test_a_name_may_stand_for_several_addresses() -> None:
    async def test() -> None:
        async with Stage("") as stage:
            families = {wire.family for wire in stage.server.sockets}
            for host in ["127.0.0.1"] + (["::1"] if socket.AF_INET6 in families and IS_NATIVE else []):
                stage.port = next(wire.getsockname()[1] for wire in stage.server.sockets
                                  if (wire.family == socket.AF_INET6) == (":" in host))
                wire, peer = await stage.connect(host=host)
                assert peer.transport.get_extra_info("peername") == wire.getsockname()
                wire.close()
    run(test)


def test_an_address_that_is_taken_is_refused_whole() -> None:
    async def test() -> None:
        async with Stage() as stage:
            with pytest.raises(OSError, match="while attempting to bind on address"):
                await accept("127.0.0.1", stage.port, lambda: Peer(stage))
            with pytest.raises(OSError):
                await accept("no-such-host.invalid", 0, lambda: Peer(stage))
            wire, _ = await stage.connect()
            wire.close()
    run(test)


def test_who_is_connected_stays_when_nobody_more_is_accepted() -> None:
    async def test() -> None:
        async with Stage() as stage:
            wire, peer = await stage.connect()
            stage.server.close()
            with pytest.raises(OSError):
                await stage.connect()
            peer.transport.write(b"here")
            assert await read(wire, 4) == b"here"
            wire.close()
    run(test)


def test_what_the_peer_does_not_take_is_counted_and_told() -> None:
    async def test() -> None:
        async with Stage() as stage:
            wire, peer = await stage.connect(receive_bytes=4096)
            peer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)
            peer.transport.set_write_buffer_limits(100_000, 1_000)
            sent = b"".join(b"%07d\n" % n for n in range(100_000))
            for at in range(0, len(sent), 1000):
                peer.transport.write(sent[at:at + 1000])
            assert peer.told == ["pause"]
            assert 100_000 < peer.transport.get_write_buffer_size() <= len(sent)
            assert await read(wire, len(sent)) == sent
            await until(lambda: peer.told == ["pause", "resume"])
            await until(lambda: peer.transport.get_write_buffer_size() == 0)
            with pytest.raises(ValueError):
                peer.transport.set_write_buffer_limits(1, 2)
            wire.close()
    run(test)


@pytest.mark.parametrize("how", ["close", "abort", "eof"])
def test_the_end_of_a_transport_with_much_unsent(how: str) -> None:
    async def test() -> None:
        async with Stage() as stage:
            wire, peer = await stage.connect(receive_bytes=4096)
            peer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)
            sent = random.Random(1).randbytes(2_000_000)
            for at in range(0, len(sent), 3001):
                peer.transport.write(sent[at:at + 3001])
            if how == "eof":
                assert peer.transport.can_write_eof()
                peer.transport.write_eof()
                peer.keeps_open = True
            else:
                getattr(peer.transport, how)()
            if how != "eof" and IS_NATIVE:             # uvloop sends it all the same: the shared connection drops it
                peer.transport.write(b"too late")
            got = b""
            try:
                got = await read(wire, len(sent) + 1)
            except ConnectionResetError:
                assert how == "abort"
            if how == "abort":
                assert len(got) < len(sent)
            else:
                assert got == sent, "all of it, and then the end"
            if how == "eof":
                await asyncio.get_running_loop().sock_sendall(wire, b"still read")
                await until(lambda: peer.seen == b"still read")
                peer.transport.close()
            await until(lambda: peer.lost)
            assert peer.lost == [None]
            wire.close()
    run(test)


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_who_is_not_read_is_not_heard_and_loses_nothing(plain: bool) -> None:
    async def test() -> None:
        async with Stage() as stage:
            wire, peer = await stage.connect()
            peer.transport.pause_reading()
            assert not peer.transport.is_reading()
            wire.sendall(b"before the end")
            wire.close()
            await turns(5)
            assert peer.seen == b"" and not peer.told
            peer.transport.resume_reading()
            await until(lambda: peer.lost)
            assert peer.seen == b"before the end" and peer.told == ["eof"]
    run(test, plain=plain)


def is_watched(wire: socket.socket) -> bool:
    """Whether an epoll instance of this process looks at a socket."""
    found = re.compile(rf"^tfd: +{wire.fileno()} ", re.MULTILINE)
    watches = [file for file in Path("/proc/self/fd").iterdir()
               if file.is_symlink() and "eventpoll" in str(file.readlink())]
    return any(found.search((Path("/proc/self/fdinfo") / file.name).read_text()) for file in watches)


def test_a_pause_is_told_to_the_system_when_the_peer_sends() -> None:  # decision 320
    async def test() -> None:
        async with Stage() as stage:
            wire, peer = await stage.connect()
            peer.transport.pause_reading()
            wire_of = peer.transport.get_extra_info("socket")      # how the event loop's own do it is its business
            assert is_watched(wire_of) or not IS_NATIVE, "most pauses are over before"
            peer.transport.resume_reading()
            peer.transport.pause_reading()
            wire.sendall(b"x")
            await until(lambda: not IS_NATIVE or not is_watched(wire_of))
            assert peer.seen == b""
            peer.transport.resume_reading()
            await until(lambda: peer.seen == b"x")
            wire.close()
    run(test)


def test_a_reset_while_nobody_reads_wakes_nobody() -> None:
    """Else the loop would be woken for it again and again."""
    async def test() -> None:
        async with Stage() as stage:
            wire, peer = await stage.connect()
            peer.transport.pause_reading()
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wire.close()
            await turns(5)
            assert not peer.lost
            peer.transport.resume_reading()
            await until(lambda: peer.lost)
            assert isinstance(peer.lost[0], ConnectionResetError) or peer.lost == [None]
    run(test)


@pytest.mark.parametrize("fault", ["made", "data"])
def test_a_protocol_s_mistake_costs_its_own_connection(fault: str) -> None:
    async def test() -> None:
        async with Stage() as stage:
            other, other_peer = await stage.connect()
            stage.fault = fault
            wire, peer = await stage.connect()
            if fault == "data":
                wire.sendall(b"FAIL")
                await until(lambda: peer.lost)
            assert [str(context["exception"]) for context in stage.faults] == [
                "our own mistake" if fault == "data" else "cannot begin"]
            other_peer.transport.write(b"fine")
            assert await read(other, 4) == b"fine"
            wire.close()
            other.close()
    run(test)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_paused_and_cut_every_stream_stays_whole(seed: int) -> None:
    async def one(stage: Stage, chance: random.Random) -> None:
        loop = asyncio.get_running_loop()
        wire, peer = await stage.connect(receive_bytes=chance.choice((0, 4096)))
        out, back = chance.randbytes(chance.randrange(400_000)), chance.randbytes(chance.randrange(400_000))

        async def speak() -> None:
            at = 0
            while at < len(out):
                step = chance.choice((1, 100, 5_000, 70_000))
                await loop.sock_sendall(wire, out[at:at + step])
                at += step
                if chance.random() < 0.2:
                    await asyncio.sleep(0)

        async def answer() -> None:
            at = 0
            while at < len(back):
                step = chance.choice((1, 100, 5_000, 70_000))
                if chance.random() < 0.5:
                    peer.transport.write(back[at:at + step])
                else:
                    peer.transport.writelines([back[at:at + step // 2], back[at + step // 2:at + step]])
                at += step
                if chance.random() < 0.3:
                    peer.transport.pause_reading()
                    await asyncio.sleep(0)
                    peer.transport.resume_reading()

        got, _, _ = await asyncio.gather(read(wire, len(back)), speak(), answer())
        await until(lambda: len(peer.seen) == len(out))
        assert got == back and peer.seen == out
        wire.close()
        await until(lambda: peer.lost)

    async def test() -> None:
        async with Stage() as stage:
            await asyncio.gather(*[one(stage, random.Random(seed * 100 + n)) for n in range(1)])
            for n in range(1, 4):
                await one(stage, random.Random(seed * 100 + n))
    run(test)


def test_many_connect_at_once() -> None:
    async def test() -> None:
        async with Stage() as stage:
            loop = asyncio.get_running_loop()
            wires = [socket.socket() for _ in range(300)]
            for wire in wires:
                wire.setblocking(False)
            await asyncio.gather(*[loop.sock_connect(wire, ("127.0.0.1", stage.port)) for wire in wires])
            await until(lambda: len(stage.peers) == 300)
            assert {peer.transport.get_extra_info("peername")[1] for peer in stage.peers} == {
                wire.getsockname()[1] for wire in wires}
            for wire in wires:
                wire.close()
            await until(lambda: all(peer.lost for peer in stage.peers))
    run(test)


async def connected(port: int, count: int) -> list[socket.socket]:
    wires = [socket.socket() for _ in range(count)]
    for wire in wires:
        wire.setblocking(False)
        wire.connect_ex(("127.0.0.1", port))
    return wires


def test_who_comes_behind_a_crowd_does_not_wait_for_all_of_it() -> None:
    async def test() -> None:
        async with Stage() as stage:
            crowd = await connected(stage.port, 700)
            await until(lambda: len(stage.peers) == len(crowd))
            for wire in crowd:
                wire.send(b"x")
            served: list[int] = []                     # of the crowd, as each of the others was accepted
            stage.on_made = lambda: served.append(sum([bool(peer.seen) for peer in stage.peers]))
            late = await connected(stage.port, 50)
            await until(lambda: len(served) == len(late))
            if IS_NATIVE:                              # the event loop's own transports come in an order of its own
                assert 0 < served[0] < len(crowd), "a system's queue of those who wait is short"
            await until(lambda: all(peer.seen for peer in stage.peers[:len(crowd)]))
            for wire in crowd + late:
                wire.close()
    run(test)


def test_who_has_no_protocol_yet_when_nobody_more_is_accepted_is_let_go() -> None:
    async def test() -> None:
        async with Stage() as stage:
            stage.on_made = stage.server.close
            wires = await connected(stage.port, 300)
            await until(lambda: bool(stage.peers))
            for peer in stage.peers:
                peer.transport.abort()
            for wire in wires:
                with suppress(OSError):
                    assert await asyncio.get_running_loop().sock_recv(wire, 1) == b""
                wire.close()
    run(test)


def test_who_has_to_wait_for_a_descriptor_is_accepted_once_there_is_one() -> None:
    places = 300 + len(os.listdir("/proc/self/fd"))      # what earlier tests have left open is there, too

    async def test() -> None:
        loop = asyncio.get_running_loop()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (places + 128, limits[1]))     # as many as are kept for the log
        try:
            stage = await Stage().__aenter__()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        crowd = await connected(stage.port, places)
        await until(lambda: len(stage.peers) == places)
        late = await connected(stage.port, 40)
        await turns(5)
        if IS_NATIVE:
            assert len(stage.peers) == places
        for wire in crowd:                       # a full turn, in which nobody is looked for a second time
            wire.send(b"x")
        await until(lambda: all(peer.seen for peer in stage.peers[:places]))
        for wire in crowd:
            wire.close()
        full_s = loop.time()
        await until(lambda: len(stage.peers) == places + len(late) and loop.time() > full_s + 2 * PAUSE_S)
        assert not stage.faults
        for wire in late:
            wire.close()
        await stage.__aexit__()
    run(test)
