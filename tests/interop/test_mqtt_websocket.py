"""MQTT over WebSocket at /mqtt of the HTTP door: paho, and a client that cuts frames where it likes."""
from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import aiohttp
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.certificates import Authority
from tests.running_hub import RunningHub

WAIT_S = 60
CONNECT = b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03abc"
SUBSCRIBE = b"\x82\x08\x00\x01\x00\x03a/#\x00"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[RunningHub]:
    running = RunningHub(tmp_path_factory.mktemp("ws"), f"""
        [gateways.mqtt]
        listen = ["127.0.0.1:0", {{ address = "127.0.0.1:0", websocket = true }}]
        [gateways.amqp]
        listen = ["127.0.0.1:0"]
        [gateways.http]
        listen = ["127.0.0.1:0", {{ address = "127.0.0.1:0", tls = {authority.server().toml()} }}]
    """)
    try:
        running.wait_ready()
        yield running
    finally:
        running.kill()


def ports(hub: RunningHub) -> tuple[int, int]:
    plain, encrypted = [int(line.rpartition(":")[2]) for line in hub.lines if line.startswith("http listens on ")]
    return plain, encrypted


@pytest.mark.parametrize("place", ["own listener", "root of the HTTP door"])
@pytest.mark.parametrize("protocol", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])
def test_paho_at_other_places(hub: RunningHub, place: str, protocol: MQTTProtocolVersion) -> None:
    received: Queue[bytes] = Queue()
    subscribed = threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2, "elsewhere", transport="websockets", protocol=protocol,
                         reconnect_on_failure=False)
    own = place == "own listener"
    client.ws_set_options(path="/anything" if own else "/")
    client.on_message = lambda _, __, message: received.put(message.payload)
    client.on_subscribe = lambda *_: subscribed.set()
    mqtt_ports = [int(line.rpartition(":")[2]) for line in hub.lines if line.startswith("mqtt listens on ")]
    client.connect("localhost", mqtt_ports[1] if own else ports(hub)[0])
    client.loop_start()
    client.subscribe("elsewhere/#", 2)
    assert subscribed.wait(WAIT_S)
    client.publish("elsewhere/x", b"y" * 70_000, 2).wait_for_publish(WAIT_S)
    assert received.get(timeout=WAIT_S) == b"y" * 70_000
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize("tls", [False, True], ids=["ws", "wss"])
def test_paho(hub: RunningHub, authority: Authority, tls: bool) -> None:
    received: Queue[tuple[str, bytes]] = Queue()
    subscribed = threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2, "ws-client", transport="websockets", reconnect_on_failure=False)
    client.ws_set_options(path="/mqtt")
    client.connect_timeout = WAIT_S
    if tls:
        client.tls_set_context(ssl.create_default_context(cafile=str(authority.file)))
    client.on_message = lambda _, __, message: received.put((message.topic, message.payload))
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect("localhost", ports(hub)[tls])
    client.loop_start()
    client.subscribe("ws/#", 1)
    assert subscribed.wait(WAIT_S)
    payloads = [b"", b"x" * 100, b"y" * 70000, b"z" * 300000]
    for number, payload in enumerate(payloads):
        client.publish(f"ws/{number}", payload, 1).wait_for_publish(WAIT_S)
    assert [received.get(timeout=WAIT_S) for _ in payloads] == [(f"ws/{n}", one) for n, one in enumerate(payloads)]

    other = paho.Client(CallbackAPIVersion.VERSION2, "tcp-client", reconnect_on_failure=False)
    other.connect("127.0.0.1", hub.port("mqtt"))
    other.loop_start()
    other.publish("ws/tcp", b"from tcp", 1).wait_for_publish(WAIT_S)
    assert received.get(timeout=WAIT_S) == ("ws/tcp", b"from tcp")
    for one in (client, other):
        one.disconnect()
        one.loop_stop()
    assert "Traceback" not in hub.log()


async def until_packet(ws: aiohttp.ClientWebSocketResponse, size: int) -> bytes:
    received = b""
    while len(received) < size:
        message = await ws.receive(WAIT_S)
        assert message.type == aiohttp.WSMsgType.BINARY, message
        received += message.data
    return received


def talk(test: object) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            await test(session)    # type: ignore[operator]
    asyncio.run(asyncio.wait_for(run(), WAIT_S))


def test_packets_cut_anywhere_and_several_in_a_frame(hub: RunningHub) -> None:
    """[MQTT-6.0.0-2]"""
    async def test(session: aiohttp.ClientSession) -> None:
        async with session.ws_connect(f"http://127.0.0.1:{ports(hub)[0]}/mqtt", protocols=["mqtt"]) as ws:
            assert ws.protocol == "mqtt"
            for byte in CONNECT + SUBSCRIBE:
                await ws.send_bytes(bytes((byte,)))
            assert await until_packet(ws, 9) == b"\x20\x02\x00\x00" + b"\x90\x03\x00\x01\x00"
            await ws.ping(b"are you there")
            publish = b"\x30\x06\x00\x03a/bc"
            await ws.send_bytes(publish * 3 + b"\xc0\x00")
            answer = await until_packet(ws, 2 + 3 * len(publish))
            assert answer.count(publish) == 3 and b"\xd0\x00" in answer
            await ws.send_bytes(b"\xe0\x00")         # DISCONNECT
            assert (await ws.receive()).type == aiohttp.WSMsgType.CLOSE and ws.close_code == 1000
    talk(test)


@pytest.mark.parametrize(("sent", "text", "code"), [
    (b"GET / HTTP/1.1\r\n", False, 1008), ("text", True, 1003), (CONNECT + CONNECT, False, 1008)])
def test_close_codes(hub: RunningHub, sent: bytes | str, text: bool, code: int) -> None:
    async def test(session: aiohttp.ClientSession) -> None:
        async with session.ws_connect(f"http://127.0.0.1:{ports(hub)[0]}/mqtt", protocols=["mqtt"]) as ws:
            await (ws.send_str(sent) if isinstance(sent, str) else ws.send_bytes(sent))
            while (await ws.receive()).type == aiohttp.WSMsgType.BINARY:
                pass
            assert ws.close_code == code
    talk(test)


def test_what_is_no_handshake(hub: RunningHub) -> None:
    async def test(session: aiohttp.ClientSession) -> None:
        url = f"http://127.0.0.1:{ports(hub)[0]}/mqtt"
        good = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": "mqtt"}
        for change, status in (({"Upgrade": "h2c"}, 426), ({"Sec-WebSocket-Version": "8"}, 426),
                               ({"Sec-WebSocket-Key": "short"}, 400), ({"Sec-WebSocket-Protocol": "chat"}, 400),
                               ({"Origin": "https://evil.example"}, 403)):
            async with session.get(url, headers={**good, **change}) as answer:
                assert answer.status == status, (change, await answer.text())
                assert answer.content_type == "application/problem+json"
        async with session.post(url) as answer:
            assert answer.status == 405
        async with session.get(url) as answer:
            assert answer.status == 426
            assert (answer.headers["Upgrade"], answer.headers["Connection"]) == ("websocket", "Upgrade")
    talk(test)


def test_frames_right_behind_the_request_and_a_connection_that_is_listed(hub: RunningHub) -> None:
    """A client that does not wait for the answer, in one write; seen as a connection of the MQTT door."""
    plain = ports(hub)[0]
    with socket.create_connection(("127.0.0.1", plain), timeout=WAIT_S) as sock:
        frame = b"\x82" + bytes((0x80 | len(CONNECT),)) + b"\0\0\0\0" + CONNECT
        sock.sendall(b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                     b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                     b"Sec-WebSocket-Protocol: mqtt\r\n\r\n" + frame)
        answer = b""
        while not answer.endswith(b"\x82\x04\x20\x02\x00\x00"):
            got = sock.recv(1000)
            assert got, answer
            answer += got
        assert answer.startswith(b"HTTP/1.1 101 ") and b"ICX+Yqv66kxgM0FcWaLWlFLwTAI=" in answer
        with urllib.request.urlopen(f"http://127.0.0.1:{plain}/v1/connections") as page:
            mine = f"127.0.0.1:{sock.getsockname()[1]}"
            one, = [one for one in json.load(page)["connections"] if one["peer"] == mine]
        assert (one["client_id"], one["door"]) == ("abc", "mqtt")
        with urllib.request.urlopen(f"http://127.0.0.1:{plain}/v1/connections/{one['id']}") as page:
            assert json.load(page)["details"]["transport"] == "websocket"
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{plain}/v1/connections/{one['id']}",
                                                      method="DELETE")).close()
        goodbye = sock.makefile("rb").read()
        assert goodbye[:1] == b"\x88" and struct.unpack(">H", goodbye[2:4]) == (1008,)
        assert len(goodbye) == 2 + goodbye[1], "and nothing behind it"


def test_amqp_over_websocket(hub: RunningHub) -> None:
    async def test(session: aiohttp.ClientSession) -> None:
        async with session.ws_connect(f"http://127.0.0.1:{ports(hub)[0]}/amqp", protocols=["amqp"]) as ws:
            await ws.send_bytes(b"AMQP\x00\x00\x09\x01")
            start = await until_packet(ws, 11)
            assert start[:1] == b"\x01" and start[7:11] == b"\x00\x0a\x00\x0a"     # connection.start
    talk(test)


def test_the_hub_says_that_it_goes_away(tmp_path: Path) -> None:
    running = RunningHub(tmp_path, '[gateways.mqtt]\nlisten = ["127.0.0.1:0"]\n'
                                   '[gateways.http]\nlisten = ["127.0.0.1:0"]\n')
    try:
        running.wait_ready()

        async def test(session: aiohttp.ClientSession) -> None:
            async with session.ws_connect(f"http://127.0.0.1:{running.port('http')}/mqtt", protocols=["mqtt"]) as ws:
                await ws.send_bytes(CONNECT)
                await until_packet(ws, 4)
                running.process.terminate()
                assert (await ws.receive()).type == aiohttp.WSMsgType.CLOSE and ws.close_code == 1001
        talk(test)
        assert running.ended()[0] == 0
    finally:
        running.kill()
