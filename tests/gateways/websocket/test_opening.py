"""A WebSocket listener of a door's own: the request that opens it, by clause of RFC 6455, and what opens nothing."""
from __future__ import annotations

import pytest

from gatehouse.gateways.contract import Listen
from gatehouse.gateways.kit import FakeHub, FakeLink
from gatehouse.gateways.mqtt import GATEWAY, SUBPROTOCOLS
from gatehouse.gateways.mqtt.config import MqttConfig
from gatehouse.gateways.websocket.codec import BINARY
from gatehouse.gateways.websocket.opening import HEAD_BYTES_MAX, OPENING_MS, WebSocketOpening, accept_of
from tests.gateways.websocket.test_websocket import frame

REQUEST = {"Host": "hub:8083", "Upgrade": "websocket", "Connection": "keep-alive, Upgrade",
           "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13",
           "Sec-WebSocket-Protocol": "mqtt"}
CONNECT = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c"


def opening(*origins: str) -> tuple[WebSocketOpening, FakeLink, FakeHub]:
    hub = FakeHub()
    link = FakeLink(listen=Listen("127.0.0.1", 0, websocket=True, origins=origins))
    session = WebSocketOpening(link, lambda framed: GATEWAY.session(framed, hub.services, MqttConfig()), SUBPROTOCOLS,
                               hub.services.now_ms())
    return session, link, hub


def request(first: str = "GET /any/path HTTP/1.1", **changed: str | None) -> bytes:
    fields = {**REQUEST, **{name.replace("_", "-"): value for name, value in changed.items()}}
    return "\r\n".join([first, *[f"{name}: {value}" for name, value in fields.items() if value is not None], "", ""]
                       ).encode()


def test_1_3_the_example_of_the_specification() -> None:
    assert accept_of("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize("protocol", ["mqtt", "mqttv3.1", "other, mqtt"])
@pytest.mark.parametrize("chunk", [1, 10_000])
def test_4_2_2_the_door_speaks_behind_the_answer(protocol: str, chunk: int) -> None:
    session, link, _ = opening()
    data = request(Sec_WebSocket_Protocol=protocol) + frame(BINARY, CONNECT)
    for at in range(0, len(data), chunk):
        session.handle_data(data[at:at + chunk])
    head, _, rest = link.take().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ") and b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
    assert b"Sec-WebSocket-Protocol: mqtt" in head
    assert rest == b"\x82\x04\x20\x02\x00\x00"
    assert session.describe()["transport"] == "websocket" and session.describe()["client_id"] == "c"


@pytest.mark.parametrize(("data", "status"), [
    (request("POST / HTTP/1.1"), 405),
    (request("GET / HTTP/2"), 405),
    (request(Upgrade=None), 426),
    (request(Connection="close"), 426),
    (request(Sec_WebSocket_Version="8"), 426),
    (request(Sec_WebSocket_Key="short"), 400),
    (request(Host=None), 400),
    (request(Sec_WebSocket_Protocol=None), 400),
    (request(Sec_WebSocket_Protocol="soap"), 400),
    (request(Origin="https://evil.example"), 403),
    (request(Origin="null"), 403),
    (b"GET / HTTP/1.1\r\nno field\r\n\r\n", 400),
    (request(Host="hub\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="), 400),
    (b"x" * (HEAD_BYTES_MAX + 1), 431),
    (b"\r\n\r\n", 405),
])
def test_4_2_1_what_opens_nothing_is_told_why(data: bytes, status: int) -> None:
    session, link, _ = opening("https://app.example")
    session.handle_data(data)
    assert link.closed and link.take().startswith(b"HTTP/1.1 %d " % status), link.reason


@pytest.mark.parametrize("changed", [
    {"Connection": "Upgrade\r\nConnection: keep-alive"},
    {"Sec_WebSocket_Protocol": "mqtt\r\nSec-WebSocket-Protocol: soap"},
    {"Cookie": "town=Z\u00fcrich"},
])
def test_5_3_fields_may_come_in_several_lines_and_have_any_bytes(changed: dict[str, str]) -> None:
    """As on the HTTP door. Browsers send the cookies of their pages to every port of a host."""
    session, link, _ = opening()
    session.handle_data(request(**changed))
    assert link.take().startswith(b"HTTP/1.1 101 "), link.reason


@pytest.mark.parametrize("origins", [("https://app.example",), ("*",)])
def test_10_2_a_page_whose_origin_is_named_is_let_in(origins: tuple[str, ...]) -> None:
    session, link, _ = opening(*origins)
    session.handle_data(request(Origin="https://App.example"))
    assert link.take().startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize(("listen", "origin", "host", "allowed"), [
    ("127.0.0.1", "http://localhost:8083", "localhost:8083", True),
    ("127.0.0.1", "http://127.0.0.1:8083", "127.0.0.1:8083", True),
    ("127.0.0.1", "http://[::1]:8083", "[::1]:8083", True),
    ("127.0.0.1", "http://[::1]", "[::1]", True),
    ("127.0.0.1", "http://localhost:3000", "localhost:8083", False),
    ("127.0.0.1", "http://evil.example:8083", "evil.example:8083", False),
    ("0.0.0.0", "http://hub.example:8083", "hub.example:8083", True),
    ("0.0.0.0", "http://evil.example", "hub.example:8083", False),
])
def test_10_2_the_address_itself_is_no_other_site(listen: str, origin: str, host: str, allowed: bool) -> None:
    session, link, _ = opening()
    link.listen = Listen(listen, 0, websocket=True)
    session.handle_data(request(Origin=origin, Host=host))
    assert link.take().startswith(b"HTTP/1.1 101 " if allowed else b"HTTP/1.1 403 ")


def test_who_sends_no_request_is_not_waited_for() -> None:
    session, link, hub = opening()
    session.handle_data(b"GET ")
    assert link.wake_ms == hub.services.now_ms() + OPENING_MS
    session.handle_timer(link.wake_ms)
    assert link.closed and link.reason.startswith("connect_timeout")
    session.handle_data(request())
    assert link.take() == b""


def test_a_hub_that_stops_waits_for_nobody_who_has_not_opened() -> None:
    session, link, _ = opening()
    session.handle_stopping()
    assert link.closed
    session.handle_closed()
