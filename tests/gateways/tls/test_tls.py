"""TLS under the shared connection, over real sockets: handshakes good and bad, both directions, ends, limits."""
from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from time import time_ns
from typing import Any, Final, cast

import pytest

from gatehouse.gateways.connections.settings import ConnectionSettings
from gatehouse.gateways.contract import Listen
from gatehouse.gateways.runtime import WRITER_SLOW
from gatehouse.gateways.tls import transport as tls_transport
from gatehouse.gateways.tls.certificates import validity
from gatehouse.gateways.tls.tls import TlsFault, TlsSettings, server_context
from tests.certificates import Authority, Pair
from tests.gateways.connections.test_connection import Stage, run, turns, until

DAY: Final = timedelta(days=1)
both_loops = pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])


class Place:
    """What a test's certificates are."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.server = self.authority.server()
        self.revoked = self.authority.revoke()

    def listen(self, **settings: object) -> Listen:
        settings.setdefault("handshake_timeout_s", 600.0)
        tls = TlsSettings(str(self.server.cert), str(self.server.key), **settings)    # type: ignore[arg-type]
        return Listen("127.0.0.1", 0, tls)

    def client(self, pair: Pair | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.file))
        if pair is not None:
            context.load_cert_chain(pair.cert, pair.key)
        return context


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def connect(stage: Stage, context: ssl.SSLContext, receive_bytes: int = 0
                  ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sock = socket.socket()
    if receive_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.setblocking(False)
    await stage.loop.sock_connect(sock, ("127.0.0.1", stage.port))
    return await asyncio.open_connection(sock=sock, limit=1 << 16, ssl=context, server_hostname="localhost")


async def raw(stage: Stage) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", stage.port)


def run_stage(test: Callable[[Stage], Awaitable[None]], listen: Listen, *, plain: bool = False,
              settings: ConnectionSettings | None = None, limit: int = 100) -> None:
    async def staged() -> None:
        async with Stage(listen=listen, settings=settings, limit=limit) as stage:
            await test(stage)
            await until(lambda: stage.capacity.open == len(stage.listener.connections))
    run(staged, plain=plain)


@both_loops
def test_bytes_go_in_and_out_and_the_end_is_told_once(place: Place, plain: bool) -> None:
    async def test(stage: Stage) -> None:
        reader, writer = await connect(stage, place.client())
        sent = bytes(range(256)) * 2000          # many records, and more than one read
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        session, = stage.sessions
        connection, = stage.services.connections.page()[0]
        told = connection.describe()
        assert (told["tls"], told["certificate"], told["peer"]) == ("TLSv1.3", None, session.link.peer)
        writer.close()
        await until(lambda: session.closed)
        assert session.closed == 1 and len(stage.services.connections) == 0
        assert stage.listener.counts["tls_handshakes"] == 1
        session.link.write(b"late")
    run_stage(test, place.listen(), plain=plain)


@both_loops
def test_what_is_decrypted_is_offered_to_a_reader_first(place: Place, plain: bool) -> None:
    taken: list[bytes] = []

    class Plain:
        def offer(self, data: bytes) -> bool:
            if data.startswith(b"plain"):
                taken.append(data)
            return data.startswith(b"plain")

    async def test(stage: Stage) -> None:
        reader, writer = await connect(stage, place.client())
        writer.write(b"before")
        assert await reader.readexactly(6) == b"before"
        session, = stage.sessions
        assert session.link.read_through(cast(Any, Plain()))
        writer.write(b"plain 1")
        await until(lambda: taken == [b"plain 1"])
        writer.write(b"else")
        assert await reader.readexactly(4) == b"else", "what it does not take comes to the session, as ever"
        assert session.link.read_through(None)
        writer.write(b"plain 2")
        assert await reader.readexactly(7) == b"plain 2"
        writer.close()
        await until(lambda: session.closed)
        assert taken == [b"plain 1"] and not session.link.read_through(cast(Any, Plain())), "it has gone"
    run_stage(test, place.listen(), plain=plain)


@both_loops
def test_the_hub_says_close_notify_after_its_last_bytes(place: Place, plain: bool) -> None:
    async def test(stage: Stage) -> None:
        reader, writer = await connect(stage, place.client())
        writer.write(b"C")
        assert await reader.read() == b"bye"     # an end without close_notify raises here on neither loop; so look
        assert stage.listener.counts["closed_said_goodbye"] == 1
        writer.close()
    run_stage(test, place.listen(), plain=plain)


def test_close_notify_is_on_the_wire(place: Place) -> None:
    async def test(stage: Stage) -> None:
        sock = socket.create_connection(("127.0.0.1", stage.port))
        context = place.client()

        def talk() -> bytes:
            with context.wrap_socket(sock, server_hostname="localhost", suppress_ragged_eofs=False) as tls:
                tls.sendall(b"C")
                return tls.recv(100) + tls.recv(100)    # the second raises SSLEOFError unless close_notify came
        assert await asyncio.to_thread(talk) == b"bye"
    run_stage(test, place.listen())


@both_loops
def test_a_byte_at_a_time(place: Place, plain: bool) -> None:
    """A handshake and records cut anywhere."""
    async def test(stage: Stage) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = place.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
        reader, writer = await raw(stage)
        received = b""

        async def dribble() -> None:
            for byte in outgoing.read():
                writer.write(bytes((byte,)))
                await asyncio.sleep(0)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await dribble()
                incoming.write(await reader.read(7))
        tls.write(b"hello")
        await dribble()
        while len(received) < 5:
            try:
                received += tls.read(100)
            except ssl.SSLWantReadError:
                incoming.write(await reader.read(7))
        assert received == b"hello"
        writer.close()
    run_stage(test, place.listen(), plain=plain)


@both_loops
def test_what_has_come_of_a_record_that_is_not_all_there_is_counted_until_it_is(place: Place, plain: bool) -> None:
    async def test(stage: Stage) -> None:
        held = stage.listener._services.connections
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = place.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
        reader, writer = await raw(stage)
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        hello = outgoing.read()
        writer.write(hello[:100])
        await until(lambda: held.held_bytes() == 100)
        writer.write(hello[100:])
        while True:
            incoming.write(await reader.read(1 << 16))
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                continue
        writer.write(outgoing.read())
        await until(lambda: held.held_bytes() == 0)
        tls.write(bytes(10_000))
        record = outgoing.read()
        writer.write(record[:6_000])
        await until(lambda: 5_500 < held.held_bytes() <= 6_000)
        writer.write(record[6_000:])
        await until(lambda: held.held_bytes() == 0)
        tls.write(bytes(10_000))
        writer.write(outgoing.read()[:3_000])
        await until(lambda: held.held_bytes() == 3_000)
        writer.transport.abort()
        await until(lambda: held.held_bytes() == 0)
    run_stage(test, place.listen(), plain=plain)


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    """What came until the end, which is a reset where the rest of what was sent lay unread."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def refused(stage: Stage, reason: str) -> None:
    """It ended, was counted once, and nothing is left."""
    await until(lambda: stage.listener.counts[f"closed_{reason}"])
    assert stage.listener.counts[f"closed_{reason}"] == 1
    assert stage.sessions == [] and stage.capacity.open == 0 and stage.listener.counts["tls_handshakes"] == 0


@both_loops
def test_a_handshake_that_never_ends_is_ended(place: Place, plain: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def test(stage: Stage) -> None:
        reader, writer = await raw(stage)
        writer.write(b"\x16\x03\x01")
        assert await read_to_end(reader) == b""
        await refused(stage, "tls_timeout")
        writer.close()
    run_stage(test, place.listen(handshake_timeout_s=0.1), plain=plain)
    assert [record.levelname for record in caplog.records if "tls_timeout" in record.message] == ["INFO"]
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(("sent", "what"), [
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "an HTTP request"), (b"AMQP\x00\x00\x09\x01", "an AMQP client"),
    (b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00", "an MQTT client")])
def test_what_came_to_a_tls_port_is_said_in_words(place: Place, caplog: pytest.LogCaptureFixture, sent: bytes,
                                                  what: str) -> None:
    caplog.set_level("INFO")

    async def test(stage: Stage) -> None:
        reader, writer = await raw(stage)
        writer.write(sent)
        await read_to_end(reader)
        await refused(stage, "tls_not_spoken")
        writer.close()
    run_stage(test, place.listen(), plain=True)
    assert [record for record in caplog.records if f"{what} came to a TLS port" in record.message]


@both_loops
@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                  b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00",
                                  b"AMQP\x00\x00\x09\x01", b"\x00" * 100, b"\xff" * 70000])
def test_plain_bytes_where_tls_is_spoken(place: Place, plain: bool, sent: bytes) -> None:
    async def test(stage: Stage) -> None:
        reader, writer = await raw(stage)
        writer.write(sent)
        answer = await read_to_end(reader)
        assert answer[:1] in (b"", b"\x15")      # an alert or nothing
        await refused(stage, "tls_not_spoken")
        writer.close()
    run_stage(test, place.listen(), plain=plain)


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_peer_that_leaves_during_its_handshake(place: Place, end: str) -> None:
    async def test(stage: Stage) -> None:
        _, writer = await raw(stage)
        await until(lambda: stage.capacity.open == 1)
        if end == "reset":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()
        await refused(stage, "tls_broken_off")
    run_stage(test, place.listen())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(("kind", "alert", "reason"), [
    ("foreign", "unknown ca", "tls_bad_certificate"),
    ("expired", "certificate expired", "tls_bad_certificate"),
    ("early", "bad certificate", "tls_bad_certificate"),
    ("none", "certificate required|handshake failure", "tls_no_certificate"),
])
def test_a_client_certificate_that_is_no_good(place: Place, tmp_path: Path, version: ssl.TLSVersion, kind: str,
                                              alert: str, reason: str) -> None:
    """The peer is told why, by TLS's own alert."""
    (tmp_path / "other").mkdir()
    pair = {
        "foreign": lambda: Authority(tmp_path / "other", "Other Authority").issue("eve"),
        "expired": lambda: place.authority.issue("eve", begins=-2 * DAY, ends=-DAY),
        "early": lambda: place.authority.issue("eve", begins=DAY),
        "none": lambda: None,
    }[kind]()

    async def test(stage: Stage) -> None:
        context = place.client(pair)
        context.maximum_version = version
        with pytest.raises(ssl.SSLError, match=f"(?i){alert}"):
            reader, writer = await connect(stage, context)
            writer.write(b"hello")
            await reader.read()          # TLS 1.3: a client hears of it after its own part of the handshake
        await refused(stage, reason)
    run_stage(test, place.listen(client_ca=str(place.authority.file), client_required=True))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("ends", ["the certificate", "the list"])
def test_a_session_is_resumed_for_as_long_as_the_clients_certificate_and_the_list_are_good(
        place: Place, version: ssl.TLSVersion, ends: str) -> None:
    """OpenSSL looks at neither again."""
    pair = place.authority.issue("sensor-7", ends=10 * DAY if ends == "the certificate" else 30 * DAY)
    revoked = place.authority.revoke(ends=10 * DAY) if ends == "the list" else None
    context = place.client(pair)
    context.maximum_version = version

    def visit(port: int, session: ssl.SSLSession | None) -> tuple[bytes, bool | None, ssl.SSLSession | None]:
        with socket.create_connection(("127.0.0.1", port)) as plain, \
                context.wrap_socket(plain, server_hostname="localhost", session=session) as wrapped:
            wrapped.sendall(b"echo")
            return wrapped.recv(4), wrapped.session_reused, wrapped.session

    async def test(stage: Stage) -> None:
        began_ms = time_ns() // 1_000_000
        stage.listener.wall_ms = lambda: began_ms
        said, _, session = await asyncio.to_thread(visit, stage.port, None)
        assert said == b"echo"
        stage.listener.wall_ms = lambda: began_ms + 9 * DAY // timedelta(milliseconds=1)
        assert (await asyncio.to_thread(visit, stage.port, session))[:2] == (b"echo", True)
        stage.listener.wall_ms = lambda: began_ms + 11 * DAY // timedelta(milliseconds=1)
        with suppress(OSError):
            assert (await asyncio.to_thread(visit, stage.port, session))[0] == b""
        await until(lambda: stage.listener.counts["closed_tls_bad_certificate"])
        assert stage.listener.counts["tls_handshakes"] == len(stage.sessions) == 2
    run_stage(test, place.listen(client_ca=str(place.authority.file), client_crl=revoked and str(revoked)))


@both_loops
@pytest.mark.parametrize("rule", ["cn", "san_dns", "{ou}/{cn}"])
def test_the_name_in_a_clients_certificate(place: Place, plain: bool, rule: str) -> None:
    pair = place.authority.issue("sensor-7", dns="s7.plant.example", unit="line1")

    async def test(stage: Stage) -> None:
        stage.services.certificate_user = rule
        _, writer = await connect(stage, place.client(pair))
        await until(lambda: stage.sessions)
        assert stage.sessions[0].link.certificate == {
            "cn": "sensor-7", "san_dns": "s7.plant.example", "{ou}/{cn}": "line1/sensor-7"}[rule]
        ends_ms = validity(pair.cert)[1].timestamp() * 1000
        assert stage.sessions[0].link.certificate_ends_ms == ends_ms
        writer.close()
    run_stage(test, place.listen(client_ca=str(place.authority.file)), plain=plain)


def test_a_certificate_nobody_asked_for_names_nobody(place: Place) -> None:
    """Without client_ca nothing is verified, so nothing is believed."""
    pair = place.authority.issue("admin")

    async def test(stage: Stage) -> None:
        _, writer = await connect(stage, place.client(pair))
        await until(lambda: stage.sessions)
        link = stage.sessions[0].link
        assert (link.certificate, link.certificate_ends_ms) == (None, 0)
        writer.close()
    run_stage(test, place.listen())


def test_old_versions_and_a_client_that_does_not_trust_the_hub(place: Place) -> None:
    async def test(stage: Stage) -> None:
        def refuse() -> None:                    # in a thread: asyncio's client hangs up without the alert
            with socket.create_connection(("127.0.0.1", stage.port)) as sock, pytest.raises(ssl.SSLError):
                ssl.create_default_context().wrap_socket(sock, server_hostname="localhost")
        await asyncio.to_thread(refuse)
        await until(lambda: stage.listener.counts["closed_tls_refused_by_peer"] == 1)
        old = place.client()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError):
            await connect(stage, old)
        await until(lambda: stage.listener.counts["closed_tls_nothing_in_common"] == 1)
    run_stage(test, place.listen(min_version="1.3"))


@both_loops
def test_a_peer_that_takes_nothing_is_not_read_and_then_cut(place: Place, plain: bool) -> None:
    async def test(stage: Stage) -> None:
        stage.hold_time()
        reader, writer = await connect(stage, place.client(), receive_bytes=4096)
        writer.write(b"F")               # four MiB come back
        session_ready = lambda: stage.sessions and stage.sessions[0].link.unsent_bytes > 1 << 20    # noqa: E731
        await until(session_ready)
        session, = stage.sessions
        writer.write(b"hello")
        await turns(30)
        assert session.seen == b"F", "a peer that is slow to read is not read"
        stage.still_ms = None
        await until(lambda: session.closed)
        assert stage.listener.counts["closed_write_timeout"] == 1
        writer.transport.abort()
    run_stage(test, place.listen(), plain=plain, settings=ConnectionSettings(write_timeout_ms=200))


@both_loops
def test_a_slow_peer_that_goes_on_reading_is_kept(place: Place, plain: bool) -> None:
    async def test(stage: Stage) -> None:
        stage.hold_time()
        reader, writer = await connect(stage, place.client(), receive_bytes=4096)
        writer.write(b"F")
        for _ in range(8):
            await reader.readexactly(8 * 65536)          # more than the peer's own buffers hold
            stage.pass_time(150)
        session, = stage.sessions
        await until(lambda: session.drained)
        writer.write(b"on")
        assert await reader.readexactly(2) == b"on"
        writer.close()
    run_stage(test, place.listen(), plain=plain, settings=ConnectionSettings(write_timeout_ms=200))


def test_pausing_a_session_holds_back_what_was_decrypted_no_longer_than_it_wants(place: Place) -> None:
    async def test(stage: Stage) -> None:
        _, writer = await connect(stage, place.client())
        writer.write(b"P")
        await until(lambda: stage.sessions and stage.sessions[0].seen == b"P")
        session, = stage.sessions
        writer.write(b"later")
        await turns(20)
        assert session.seen == b"P"
        session.link.resume()
        await until(lambda: session.seen == b"Plater")
        writer.close()
    run_stage(test, place.listen())


@both_loops
def test_what_has_ended_holds_nothing(place: Place, plain: bool) -> None:
    """Done, failed or cut: OpenSSL's state goes with the connection and awaits no collection of garbage."""
    def alive() -> int:
        return sum(type(one) is tls_transport.TlsTransport for one in gc.get_objects())

    async def test(stage: Stage) -> None:
        gc.collect()
        gc.disable()
        before = alive()
        try:
            for _ in range(5):
                _, writer = await connect(stage, place.client())
                _, other = await raw(stage)
                other.write(b"no TLS")
                _, third = await raw(stage)
                await until(lambda: stage.capacity.open >= 2)
                for one in (writer, other, third):
                    one.close()
                await until(lambda: stage.capacity.open == 0)
            await until(lambda: alive() == before)
        finally:
            gc.enable()
    run_stage(test, place.listen(), plain=plain)


def test_handshakes_count_against_the_limit(place: Place) -> None:
    async def test(stage: Stage) -> None:
        reader, writer = await raw(stage)
        await until(lambda: stage.capacity.open == 1)
        second, other = await raw(stage)
        with pytest.raises(ConnectionResetError):
            assert await second.read() == b""
            raise ConnectionResetError   # a plain end is as good
        assert stage.listener.counts["refused"] == 1
        writer.close()
        other.close()
        await until(lambda: stage.capacity.open == 0)
        _, writer = await connect(stage, place.client())
        await until(lambda: stage.sessions)
        writer.close()
        await until(lambda: stage.capacity.open == 0)
    run_stage(test, place.listen(), limit=1)


def test_garbage_after_the_handshake_ends_the_connection(place: Place) -> None:
    async def test(stage: Stage) -> None:
        sock = socket.create_connection(("127.0.0.1", stage.port))
        tls = await asyncio.to_thread(lambda: place.client().wrap_socket(sock, server_hostname="localhost"))
        await until(lambda: stage.sessions)
        descriptor = tls.detach()
        with socket.socket(fileno=descriptor) as bare:
            bare.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
            await until(lambda: stage.sessions[0].closed)
        assert stage.listener.counts["closed_tls_failed"] == 1 and stage.sessions[0].seen == b""
    run_stage(test, place.listen())


@both_loops
def test_a_peer_that_does_not_take_its_alert_is_not_waited_for(place: Place, plain: bool,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_transport, "ALERT_S", 0.1)

    async def test(stage: Stage) -> None:
        reader, writer = await connect(stage, place.client(), receive_bytes=4096)
        writer.transport.pause_reading()
        writer.write(b"F")                   # four MiB come back, and are not taken
        await until(lambda: stage.sessions and stage.sessions[0].link.unsent_bytes > 1 << 20)
        connection, = stage.listener.connections
        connection.release(WRITER_SLOW)      # as if it were less, so that the peer is read
        wire = writer.get_extra_info("socket")
        descriptor = socket.fromfd(wire.fileno(), wire.family, wire.type)
        descriptor.send(b"\x17\x03\x03\x00\x20" + b"x" * 32)
        await until(lambda: stage.sessions[0].closed)
        assert stage.listener.counts["closed_tls_failed"] == 1
        descriptor.close()
        writer.transport.abort()
    run_stage(test, place.listen(), plain=plain)


def test_other_certificates_and_authorities_from_now_on(place: Place, tmp_path: Path) -> None:
    """A change of the listener: who is connected stays, who comes next sees what is new, a bad file changes nothing."""
    (tmp_path / "next").mkdir()

    async def test(stage: Stage) -> None:
        reader, writer = await connect(stage, place.client())
        renewed = Place(tmp_path / "next")
        assert await stage.listener.relisten([renewed.listen()]) == ([], [])
        with pytest.raises(ssl.SSLError):
            await connect(stage, place.client())
        _, second = await connect(stage, renewed.client())
        writer.write(b"still here")
        assert await reader.readexactly(10) == b"still here"
        renewed.server.key.write_text("no key at all")
        with pytest.raises(TlsFault, match="no certificate and key"):
            await stage.listener.relisten([renewed.listen()])
        _, third = await connect(stage, renewed.client())
        for one in (writer, second, third):
            one.close()
        await until(lambda: not stage.listener.connections)
    run_stage(test, place.listen())


def test_addresses_come_and_go_and_plain_becomes_tls(place: Place) -> None:
    async def test(stage: Stage) -> None:
        plain, encrypted = Listen("127.0.0.1", 0), place.listen()
        opened, given_up = await stage.listener.relisten([plain, encrypted])
        assert len(opened) == 1 and given_up == []
        reader, writer = await raw(stage)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        stage_port, stage.port = stage.port, int(opened[0].rpartition(":")[2])
        _, second = await connect(stage, place.client())
        assert await stage.listener.relisten([encrypted]) == ([], opened)
        with pytest.raises(ConnectionRefusedError):
            await raw(stage)
        stage.port = stage_port
        _, third = await connect(stage, place.client())
        writer.write(b"again")
        assert await reader.readexactly(5) == b"again"
        for one in (writer, second, third):
            one.close()
        await until(lambda: not stage.listener.connections)
    run_stage(test, Listen("127.0.0.1", 0))


@pytest.mark.parametrize(("break_it", "setting", "text"), [
    (lambda place: place.server.cert.unlink(), "cert", "cannot read .*server.pem: No such file"),
    (lambda place: place.server.key.unlink(), "key", "cannot read .*server.key: No such file"),
    (lambda place: place.server.cert.write_text("x"), "cert", "are no certificate and key in PEM"),
    (lambda place: place.authority.issue("x", file="x").key.replace(place.server.key), "key", "is not the key of"),
    (lambda place: place.authority.file.unlink(), "client_ca", "cannot read .*: No such file"),
    (lambda place: place.authority.file.write_text("x"), "client_ca", "holds no certificates in PEM"),
    (lambda place: place.revoked.unlink(), "client_crl", "cannot read .*: No such file"),
    (lambda place: place.revoked.write_text("x"), "client_crl", "holds no revocation lists in PEM"),
    (lambda place: place.revoked.write_text(place.revoked.read_text()[:100]), "client_crl", "no revocation lists in"),
    (lambda place: place.revoked.write_text(place.revoked.read_text() + place.authority.file.read_text()),
     "client_crl", "something else than revocation lists"),
])
def test_files_that_cannot_be_used(place: Place, break_it: Callable[[Place], None], setting: str, text: str) -> None:
    break_it(place)
    tls = place.listen(client_ca=str(place.authority.file), client_crl=str(place.revoked)).tls
    assert tls is not None
    with pytest.raises(TlsFault, match=text) as caught:
        server_context(tls)
    assert caught.value.setting == setting


def test_a_key_with_a_pass_phrase_is_refused_and_nobody_is_asked(place: Place) -> None:
    from cryptography.hazmat.primitives import serialization
    key = serialization.load_pem_private_key(place.server.key.read_bytes(), None)
    protection = serialization.BestAvailableEncryption(b"secret")
    place.server.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                                   protection))
    tls = place.listen().tls
    assert tls is not None
    with pytest.raises(TlsFault, match="is protected by a pass phrase"):
        server_context(tls)


def test_what_a_context_allows(place: Place) -> None:
    tls = place.listen().tls
    assert tls is not None
    context = server_context(tls, ["http/1.1"])
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_COMPRESSION and context.options & ssl.OP_NO_RENEGOTIATION
    assert context.verify_mode == ssl.CERT_NONE
