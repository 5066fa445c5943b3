"""The shared connection over real sockets on loopback: both directions of back-pressure, ends, faults, limits."""
from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import uvloop

from gatehouse.gateways.connections.capacity import Capacity
from gatehouse.gateways.connections.listener import RELIEVED_AT_ONCE, Listener
from gatehouse.gateways.connections.settings import ConnectionSettings
from gatehouse.gateways.contract import CONTRACT, GatewaySpec, Link, Listen, Services
from gatehouse.gateways.kit import LISTEN, FakeHub
from gatehouse.gateways.runtime import LINGER_TIMES, STILL_SENDING
from tests.running_hub import free_port

WAIT_S = 120.0              # for what never comes: a machine may stand still for seconds
SENT_BYTES = 1 << 16        # what the system keeps of a flood, whatever it would by itself


class EchoSession:
    """Sends back what it gets; single letters make it do other things."""

    def __init__(self, link: Link, services: Services, config: Any) -> None:
        if config == "broken":
            raise RuntimeError("cannot begin")
        self.link = link
        self.seen = b""
        self.drained = 0
        self.closed = 0
        self.timers: list[int] = []
        self.now_ms = services.now_ms
        config.append(self)

    def handle_data(self, data: bytes) -> None:
        self.seen += data
        match data:
            case b"X":
                raise RuntimeError("our own mistake")
            case b"C":
                self.link.write(b"bye")
                self.link.close("said_goodbye: because")
                self.link.write(b"too late")
            case b"T":
                self.link.wake_at(self.now_ms() + 30)
            case b"P":
                self.link.pause()
            case b"F":
                wire = cast(Any, self.link)._transport.get_extra_info("socket")
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_BYTES)
                for _ in range(64):
                    self.link.write(b"z" * 65536)
            case _:
                self.link.write_many([data[:1], data[1:]])

    def handle_drained(self) -> None:
        self.drained += 1

    def handle_timer(self, now_ms: int) -> None:
        self.timers.append(now_ms)
        self.link.write(b"t")

    def handle_closed(self) -> None:
        self.closed += 1

    def handle_stopping(self) -> None:
        self.link.close("stopping")

    def on_principal_ended(self, reason: str) -> None:
        self.link.write(reason.encode())
        self.link.close("ended")

    def describe(self) -> dict[str, Any]:
        return {"seen": len(self.seen)}


class Stage:
    """A listener on a free port, and what its sessions are."""

    def __init__(self, config: Any = None, settings: ConnectionSettings | None = None, limit: int = 100,
                 listen: Listen = LISTEN) -> None:
        self.hub = FakeHub()
        self.loop = asyncio.get_running_loop()
        self.still_ms: int | None = None
        self.services = Services("hub", self.hub.services.kernel, self.hub.admission, self.now_ms)
        self.sessions: list[EchoSession] = []
        spec = GatewaySpec(name="echo", contract=CONTRACT, config=list, default_listen=(),
                           session=cast(Any, EchoSession))
        self.capacity = Capacity(limit)
        self.listener = Listener(spec, self.services, self.sessions if config is None else config,
                                 capacity=self.capacity, settings=settings)
        self.listen = listen
        self.port = 0

    def now_ms(self) -> int:
        """The loop's time, or where `hold_time` has stopped it."""
        return int(self.loop.time() * 1000) if self.still_ms is None else self.still_ms

    def hold_time(self) -> None:
        """From now on no time passes, however long the machine takes, but what `pass_time` lets pass."""
        self.still_ms = self.now_ms()

    def pass_time(self, ms: int) -> None:
        """So much later every connection looks at its limits."""
        assert self.still_ms is not None
        self.still_ms += ms
        for connection in list(self.listener.connections):
            connection.wake(self.still_ms)

    async def __aenter__(self) -> Stage:
        address, = await self.listener.start([self.listen])
        self.port = int(address.rpartition(":")[2])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.listener.stop(0)

    async def connect(self, receive_bytes: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sock = socket.socket()
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setblocking(False)
        await self.loop.sock_connect(sock, ("127.0.0.1", self.port))
        return await asyncio.open_connection(sock=sock, limit=1 << 16)


def run(test: Callable[[], Awaitable[None]], *, plain: bool = False) -> None:
    """Run on the loop of the product, and where asked on asyncio's own, which the product falls back to."""
    async def bounded() -> None:
        await asyncio.wait_for(test(), WAIT_S)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop if plain else uvloop.new_event_loop) as runner:
        runner.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until it is so; the test's own limit ends what never is."""
    while not condition():
        await turns(1)


async def turns(count: int) -> None:
    """Let whatever is ready happen, a few times over: for what must *not* happen there is nothing to wait for."""
    for _ in range(count):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_bytes_go_in_and_out_and_the_end_is_told_once(plain: bool) -> None:
    async def test() -> None:
        async with Stage() as stage:
            reader, writer = await stage.connect()
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            session, = stage.sessions
            assert session.link.peer == f"127.0.0.1:{writer.get_extra_info('sockname')[1]}"
            connection, = stage.services.connections.page()[0]
            assert connection.describe() == {
                "id": "0-1", "door": "echo", "peer": session.link.peer, "listener": "127.0.0.1:0",
                "since": connection.since_ms, "tls": None, "certificate": None, "unsent_bytes": 0, "seen": 5}
            writer.close()
            await until(lambda: session.closed)
            assert session.closed == 1 and len(stage.listener) == 0 and stage.capacity.open == 0
            session.link.write(b"late")
            session.link.close("late")
            assert session.link.unsent_bytes == 0
    run(test, plain=plain)


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("last", [b"", b"not read any more"])
def test_a_peer_that_is_not_read_and_has_hung_up_is_gone(plain: bool, last: bytes) -> None:
    async def test() -> None:
        async with Stage() as stage:
            _, writer = await stage.connect()
            writer.write(b"P")
            await until(lambda: stage.sessions and stage.sessions[0].seen)
            session, = stage.sessions
            assert not session.link.gone
            writer.write(last)
            writer.close()
            await until(lambda: session.link.gone)
            assert not session.closed, "nobody else has noticed"
            session.link.close("")
            await until(lambda: session.closed)
            assert session.link.gone
    run(test, plain=plain)


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_close_sends_what_is_queued_and_nothing_behind_it(plain: bool) -> None:
    async def test() -> None:
        async with Stage() as stage:
            reader, writer = await stage.connect()
            writer.write(b"C")
            assert await reader.read() == b"bye"
            await until(lambda: stage.sessions[0].closed)
            assert stage.listener.counts["closed_said_goodbye"] == 1
            writer.close()
    run(test, plain=plain)


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("leaves", [True, False])
def test_what_was_sent_and_not_read_does_not_cost_a_peer_the_goodbye(plain: bool, leaves: bool) -> None:
    async def test() -> None:
        async with Stage(settings=ConnectionSettings(linger_ms=1000)) as stage:
            stage.hold_time()
            reader, writer = await stage.connect()
            writer.write(b"C")
            assert await reader.read() == b"bye"
            session, = stage.sessions
            for _ in range(20):                    # a connection that was reset would fail one of these
                writer.write(b"not read" * 1000)
                await writer.drain()
                await turns(1)
            assert session.seen == b"C" and not session.closed
            assert stage.listener.counts["closed_said_goodbye"] == 1
            if leaves:
                writer.close()
            else:
                stage.pass_time(1000)              # in which it has sent something
                stage.pass_time(999)
                await turns(3)
                assert not session.closed
                stage.pass_time(1)
            await until(lambda: session.closed)
    run(test, plain=plain)


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_a_peer_that_sends_on_is_read_on_but_not_for_ever(plain: bool) -> None:
    """Whoever answers thousands of acknowledgements one by one comes late to the goodbye behind them."""
    async def test() -> None:
        async with Stage(settings=ConnectionSettings(linger_ms=1000)) as stage:
            stage.hold_time()
            _, writer = await stage.connect()
            writer.write(b"C")
            await until(lambda: stage.listener.counts["closed_said_goodbye"])
            session, = stage.sessions
            connection, = stage.listener.connections
            for _ in range(LINGER_TIMES - 1):
                writer.write(b"an answer")
                await until(lambda: connection._idle & STILL_SENDING)
                stage.pass_time(1000)
                await turns(3)
                assert not session.closed
            writer.write(b"an answer")
            await until(lambda: connection._idle & STILL_SENDING)
            stage.pass_time(1000)
            await until(lambda: session.closed)
            writer.close()
    run(test, plain=plain)


def test_small_answers_leave_at_once() -> None:
    async def test() -> None:
        async with Stage() as stage:
            await stage.connect()
            await until(lambda: stage.sessions)
            connection, = stage.listener.connections
            assert connection._transport is not None
            sock = connection._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    run(test)


def test_our_own_mistake_costs_one_connection_and_one_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Stage() as stage:
            reader, writer = await stage.connect()
            other_reader, other_writer = await stage.connect()
            writer.write(b"X")
            assert await reader.read() == b""
            other_writer.write(b"fine")
            assert await other_reader.readexactly(4) == b"fine"
            assert stage.listener.counts["faults"] == 1
            assert stage.sessions[0].closed == 1
    with caplog.at_level(logging.INFO, "gatehouse.gateways"):
        run(test)
    assert [record.message for record in caplog.records if record.exc_info] != []
    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_a_session_that_cannot_begin_is_our_mistake_too() -> None:
    async def test() -> None:
        async with Stage(config="broken") as stage:
            reader, _ = await stage.connect()
            assert await reader.read() == b""
            assert stage.listener.counts["faults"] == 1 and stage.capacity.open == 0
    run(test)


def test_a_reset_is_ordinary(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Stage() as stage:
            _, writer = await stage.connect()
            writer.write(b"hello")
            await until(lambda: stage.sessions and stage.sessions[0].seen)
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            await until(lambda: stage.sessions[0].closed)
            assert stage.listener.counts["faults"] == 0
    with caplog.at_level(logging.DEBUG):
        run(test)
    assert not [record for record in caplog.records if record.name != "asyncio"]


def test_connections_are_bounded_over_all_doors() -> None:
    async def test() -> None:
        async with Stage(limit=2) as stage:
            peers = [await stage.connect() for _ in range(2)]
            for reader, writer in peers:
                writer.write(b"in")
                assert await reader.readexactly(2) == b"in"
            refused_reader, _ = await stage.connect()
            assert await refused_reader.read() == b""
            assert stage.listener.counts["refused"] == 1
            writer.close()
            await until(lambda: stage.capacity.open == 1)
            reader, writer = await stage.connect()
            writer.write(b"in")
            assert await reader.readexactly(2) == b"in"
    run(test)


class Bounded(list[EchoSession]):
    """A door's settings, where `EchoSession` looks for a list."""

    max_connections_per_address = 1


def test_connections_of_one_address_are_bounded() -> None:
    async def test() -> None:
        async with Stage(Bounded()) as stage:
            _, held = await stage.connect()
            refused, _ = await stage.connect()
            assert await refused.read() == b""
            counts = stage.listener.counts
            assert (counts["refused"], counts["refused_by_address"], stage.capacity.open) == (1, 1, 1)
            reader, writer = await asyncio.open_connection("127.0.0.1", stage.port, local_addr=("127.0.0.2", 0))
            writer.write(b"in")
            assert await reader.readexactly(2) == b"in"
            held.close()
            await until(lambda: stage.capacity.open == 1)
            reader, writer = await stage.connect()
            writer.write(b"in")
            assert await reader.readexactly(2) == b"in"
    run(test)


SMALL = ConnectionSettings(high_water_bytes=64 * 1024, low_water_bytes=16 * 1024, write_timeout_ms=150)


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_a_peer_that_does_not_read_is_not_read_and_goes_on_when_it_does(plain: bool) -> None:
    async def test() -> None:
        patient = ConnectionSettings(64 * 1024, 16 * 1024, 60_000)
        async with Stage(settings=patient) as stage:
            reader, writer = await stage.connect(receive_bytes=8192)
            writer.write(b"F")
            await until(lambda: stage.sessions and stage.sessions[0].link.unsent_bytes > 64 * 1024)
            writer.write(b"question")
            await turns(50)
            session, = stage.sessions
            assert session.seen == b"F", "a question was read while the answers to the first are not taken"
            await reader.readexactly(64 * 65536)
            assert await reader.readexactly(8) == b"question"
            assert session.drained >= 1 and session.link.unsent_bytes == 0
    run(test, plain=plain)


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_a_slow_peer_is_read_on_where_its_door_says_so_up_to_a_limit(plain: bool) -> None:
    async def test() -> None:
        lenient = ConnectionSettings(64 * 1024, 16 * 1024, write_timeout_ms=60_000, read_on_bytes=6 << 20)
        async with Stage(settings=lenient) as stage:
            reader, writer = await stage.connect(receive_bytes=8192)
            writer.write(b"F")
            await until(lambda: stage.sessions and stage.sessions[0].link.unsent_bytes > 64 * 1024)
            session, = stage.sessions
            writer.write(b"question")
            await until(lambda: session.seen == b"Fquestion")
            for _ in range(64):
                session.link.write(b"z" * 65536)         # more than it may be
            writer.write(b"another")
            await turns(50)
            assert session.seen == b"Fquestion"
            await reader.readexactly(64 * 65536)
            assert await reader.readexactly(8) == b"question"
            await reader.readexactly(64 * 65536)
            assert await reader.readexactly(7) == b"another"
            assert session.link.unsent_bytes == 0
    run(test, plain=plain)


def test_a_peer_that_takes_nothing_is_cut_off_after_the_time_limit() -> None:
    async def test() -> None:
        async with Stage(settings=SMALL) as stage:
            _, writer = await stage.connect(receive_bytes=8192)
            writer.write(b"F")
            await until(lambda: stage.sessions and stage.sessions[0].closed)
            assert stage.listener.counts["closed_write_timeout"] == 1
    run(test)


def test_a_peer_that_takes_slowly_is_not_cut_off() -> None:
    async def test() -> None:
        async with Stage(settings=SMALL) as stage:
            stage.hold_time()
            reader, writer = await stage.connect(receive_bytes=8192)
            writer.write(b"F")
            for _ in range(8):
                await reader.readexactly(8 * 65536)      # more than the peer's own buffers hold
                stage.pass_time(100)
            assert stage.listener.counts["closed_write_timeout"] == 0
    run(test)


def test_a_peer_that_does_not_take_the_goodbye_is_not_waited_for() -> None:
    async def test() -> None:
        async with Stage(settings=SMALL) as stage:
            stage.hold_time()
            _, writer = await stage.connect(receive_bytes=8192)
            writer.write(b"F")
            await until(lambda: stage.sessions and stage.sessions[0].link.unsent_bytes)
            stage.sessions[0].link.close("enough")
            stage.still_ms = None
            await until(lambda: stage.sessions[0].closed)
            assert stage.listener.counts["closed_enough"] == 1
    run(test)


def test_while_the_kernel_is_congested_who_sends_is_not_read() -> None:
    async def test() -> None:
        async with Stage() as stage:
            reader, writer = await stage.connect()
            kernel = stage.hub.kernel
            kernel.congest()
            writer.write(b"first")
            assert await reader.readexactly(5) == b"first"
            writer.write(b"second")
            await turns(50)
            assert stage.sessions[0].seen == b"first"
            kernel.relieve()
            assert await reader.readexactly(6) == b"second"
    run(test)


def test_relief_lets_a_few_in_at_a_time_and_the_rest_when_that_was_not_too_much() -> None:
    async def test() -> None:
        async with Stage() as stage:
            kernel = stage.hub.kernel
            peers = [await stage.connect() for _ in range(RELIEVED_AT_ONCE * 2)]
            kernel.congest()
            for _, writer in peers:
                writer.write(b"1st")
            for reader, _ in peers:
                await reader.readexactly(3)
            for _, writer in peers:
                writer.write(b"2nd")
            kernel.relieve()
            kernel.congest()          # the first few are already too many
            read = lambda: sum(session.seen.endswith(b"2nd") for session in stage.sessions)     # noqa: E731
            await until(lambda: read() >= RELIEVED_AT_ONCE)
            await turns(20)
            assert read() == RELIEVED_AT_ONCE
            kernel.relieve()
            for reader, _ in peers:
                assert await reader.readexactly(3) == b"2nd"
    run(test)


def test_a_peer_that_vanishes_is_noticed_by_the_system() -> None:
    async def test() -> None:
        async with Stage() as stage:
            await stage.connect()
            await until(lambda: stage.sessions)
            connection, = stage.listener.connections
            assert connection._transport is not None
            assert connection._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    run(test)


def test_a_peer_that_half_closes_and_takes_nothing_is_not_kept() -> None:
    async def test() -> None:
        async with Stage(settings=ConnectionSettings(1 << 30, 1 << 20, 150)) as stage:
            _, writer = await stage.connect(receive_bytes=8192)
            writer.write(b"F")
            await until(lambda: stage.sessions and stage.sessions[0].link.unsent_bytes)
            writer.write_eof()
            await until(lambda: stage.sessions[0].closed)
    run(test)


def test_a_session_that_pauses_is_not_read_until_it_resumes() -> None:
    async def test() -> None:
        async with Stage() as stage:
            reader, writer = await stage.connect()
            writer.write(b"P")
            await until(lambda: stage.sessions and stage.sessions[0].seen)
            writer.write(b"later")
            await turns(50)
            link = stage.sessions[0].link
            assert stage.sessions[0].seen == b"P"
            link.pause()
            link.resume()
            assert await reader.readexactly(5) == b"later"
    run(test)


def test_timers_run_once_and_are_forgotten_with_the_connection() -> None:
    async def test() -> None:
        async with Stage() as stage:
            reader, writer = await stage.connect()
            asked = stage.now_ms()
            writer.write(b"T")
            assert await reader.readexactly(1) == b"t"
            session, = stage.sessions
            assert session.timers[0] >= asked + 30
            session.link.wake_at(stage.now_ms() + 1_000_000)
            session.link.wake_at(stage.now_ms() + 2_000_000)
            session.link.wake_at(stage.now_ms() + 500_000)
            assert len(stage.listener.wakeups) == 1
            writer.close()
            await until(lambda: session.closed)
            assert len(stage.listener.wakeups) == 0
    run(test)


def test_stopping_lets_sessions_say_goodbye_and_cuts_who_stays() -> None:
    async def test() -> None:
        stage = Stage(listen=Listen("127.0.0.1", free_port()))       # which nobody else takes once it is free again
        await stage.__aenter__()
        reader, _ = await stage.connect()
        stubborn_reader, _ = await stage.connect()
        await until(lambda: len(stage.sessions) == 2)
        stage.sessions[1].handle_stopping = lambda: None  # type: ignore[method-assign]
        await stage.listener.stop(0.05)
        assert await reader.read() == b"" and await stubborn_reader.read() == b""
        await until(lambda: all(session.closed for session in stage.sessions))
        assert stage.listener.counts["closed_stopping"] == 1 and stage.listener.counts["closed_stopped"] == 1
        with pytest.raises(OSError):
            await stage.connect()
    run(test)


def test_a_port_that_is_taken_leaves_nothing_open() -> None:
    async def test() -> None:
        async with Stage() as stage:
            other = Listener(stage.listener.spec, stage.services, [], capacity=stage.capacity)
            port = free_port()
            with pytest.raises(OSError):
                await other.start([Listen("127.0.0.1", port), Listen("127.0.0.1", stage.port)])
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
    run(test)
