"""The WebSocket over the fake kernel: frames that publish and subscribe, credit, bounds, what is refused."""
from __future__ import annotations

from socket import SO_LINGER, SOL_SOCKET
from struct import pack
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType

from gatehouse.gateways.admission.admission import Admission, Denied
from gatehouse.gateways.http.websocket.connection import WebSocketConnection
from tests.gateways.http.fake_kernel import NOW_MS, FakeKernel
from tests.gateways.http.kit import Client, run_door, until


class Socket:
    """One client; `ask` sends a frame and gives the next one that comes back."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, **frame: Any) -> None:
        await self.socket.send_str(orjson.dumps(frame).decode())

    async def next(self) -> dict[str, Any]:
        message = await self.socket.receive()
        assert message.type is WSMsgType.TEXT, message
        return orjson.loads(message.data)

    async def ask(self, **frame: Any) -> dict[str, Any]:
        await self.send(**frame)
        return await self.next()

    async def values(self, count: int) -> list[str]:
        found: list[str] = []
        while len(found) < count:
            frame = await self.next()
            assert frame["type"] == "messages", frame
            found += [message["value"] for message in frame["messages"]]
        return found


async def connect(client: Client, **options: Any) -> Socket:
    return Socket(await client.session.ws_connect(f"http://{client.address}/v1/ws", **options))


async def live(client: Client) -> None:
    await until(lambda: any(feed.live for feed in client.door.feeds._feeds.values()))


def test_a_publish_is_answered_when_it_is_durable():
    async def test(client):
        client.kernel.hold = True
        socket = await connect(client)
        await socket.send(type="publish", id=7, messages=[{"address": "plant/a", "value": "1"},
                                                          {"topic": "plant", "key": "b", "value": "2"}])
        assert (await socket.ask(type="ping", id="p")) == {"type": "pong", "id": "p"}
        client.kernel.flush()
        answer = await socket.next()
        assert (answer["type"], answer["id"]) == ("published", 7)
        assert [(one["status"], one["address"]) for one in answer["messages"]] == [(201, "plant/a"), (201, "plant/b")]
        assert [message[1] for message in client.kernel.appended] == [b"1", b"2"]
    run_door(test)


def test_one_wrong_message_does_not_cost_the_others():
    async def test(client):
        socket = await connect(client)
        answer = await socket.ask(type="publish", messages=[{"address": "plant/a"}, {"address": "a", "colour": 1}])
        assert [one.get("code", one["status"]) for one in answer["messages"]] == [201, "invalid_body"]
        answer = await socket.ask(type="publish", messages=[{"value": "x"}])
        assert answer["messages"][0]["code"] == "invalid_body"
    run_door(test)


def test_an_idempotency_key_answers_again():
    async def test(client):
        socket = await connect(client)
        frame = {"type": "publish", "idempotency_key": "k", "messages": [{"address": "plant/a", "value": "1"}]}
        assert await socket.ask(**frame) == await socket.ask(**frame)
        assert len(client.kernel.appended) == 1
    run_door(test)


def test_credit_is_what_is_sent():
    async def test(client):
        socket = await connect(client)
        answer = await socket.ask(type="subscribe", id=1, subscription="s", topic="plant", credit=2)
        assert (answer["type"], answer["id"]) == ("subscribed", 1)
        await live(client)
        for number in range(5):
            client.kernel.publish("plant/a", b"%d" % number)
        assert await socket.values(2) == ["0", "1"]
        assert (await socket.ask(type="ping"))["type"] == "pong", "nothing is sent without credit"
        await socket.send(type="credit", subscription="s", credit=2)
        assert await socket.values(2) == ["2", "3"]
        await socket.send(type="credit", subscription="s", credit=100)
        assert await socket.values(1) == ["4"]
        await live(client)
        client.kernel.publish("plant/a", b"5")
        assert await socket.values(1) == ["5"]
    run_door(test)


def test_a_cursor_goes_on_behind_what_came():
    async def test(client):
        socket = await connect(client)
        for number in range(4):
            client.kernel.publish("plant/a", b"%d" % number)
        await socket.ask(type="subscribe", subscription="s", topic="plant", credit=3, **{"from": "earliest"})
        frame = await socket.next()
        assert [message["value"] for message in frame["messages"]] == ["0", "1", "2"]
        other = await connect(client)
        await other.ask(type="subscribe", subscription="t", topic="plant", cursor=frame["cursor"])
        assert await other.values(1) == ["3"]
    run_door(test)


@pytest.mark.parametrize("credit", [1, 10])
def test_a_stream_of_too_many_queues_has_no_cursor_however_it_is_sent(credit):
    async def test(client):
        for number in range(700):
            client.kernel.publish(f"wide/{number}", b"x")
        socket = await connect(client)
        answer = await socket.ask(type="subscribe", subscription="s", topic="wide", credit=credit)
        await live(client)
        for number in range(3):
            client.kernel.publish(f"wide/{number}", b"y")
        assert (answer["cursor"], (await socket.next())["cursor"]) == (None, "")
    run_door(test, kernel=FakeKernel(default_partitions=4000))


def test_what_retention_took_is_told():
    async def test(client):
        client.kernel._partitions_default = 1
        partition_id, _, _ = client.kernel.publish("plant/a", b"0")
        first = await connect(client)
        cursor = (await first.ask(type="subscribe", subscription="s", topic="plant"))["cursor"]
        for number in range(1, 5):
            client.kernel.publish("plant/a", b"%d" % number)
        client.kernel.trim(partition_id, 3)
        other = await connect(client)
        await other.ask(type="subscribe", subscription="s", topic="plant", cursor=cursor)
        lost = await other.next()
        assert (lost["type"], lost["ranges"]) == ("lost", [{"topic": "plant", "partition": 0, "offset": 1, "count": 2}])
        assert await other.values(2) == ["3", "4"]
    run_door(test)


def test_unsubscribed_means_closed():
    async def test(client):
        socket = await connect(client)
        await socket.ask(type="subscribe", subscription="s", topic="plant")
        answer = await socket.ask(type="unsubscribe", id=3, subscription="s")
        assert answer == {"type": "unsubscribed", "id": 3, "subscription": "s"}
        await until(lambda: len(client.door.feeds) == 0)
        assert (await socket.ask(type="subscribe", subscription="s", topic="plant"))["type"] == "subscribed"
        await socket.socket.close()
        await until(lambda: len(client.door.feeds) == 0)
    run_door(test)


@pytest.mark.parametrize(("frame", "code"), [
    ({"type": "fly"}, "invalid_frame"),
    ({"type": ["publish"]}, "invalid_frame"),
    ({"id": 1}, "invalid_frame"),
    ({"type": "ping", "id": {"a": 1}}, "invalid_frame"),
    ({"type": "ping", "colour": 1}, "invalid_frame"),
    ({"type": "publish", "messages": []}, "invalid_body"),
    ({"type": "publish"}, "invalid_body"),
    ({"type": "publish", "messages": [{"address": "a"}], "idempotency_key": 3}, "invalid_frame"),
    ({"type": "subscribe", "subscription": "s"}, "invalid_frame"),
    ({"type": "subscribe", "topic": "plant"}, "invalid_frame"),
    ({"type": "subscribe", "subscription": "s", "topic": "plant", "filter": "a"}, "invalid_frame"),
    ({"type": "subscribe", "subscription": "s", "topic": "pl nt"}, "invalid_topic"),
    ({"type": "subscribe", "subscription": "s", "topic": "plant", "cursor": "x"}, "invalid_cursor"),
    ({"type": "subscribe", "subscription": "s", "topic": "plant", "selector": "a ="}, "invalid_selector"),
    ({"type": "subscribe", "subscription": "s", "topic": "plant", "credit": -1}, "invalid_frame"),
    ({"type": "subscribe", "subscription": "s", "topic": "plant", "from": "noon"}, "invalid_parameter"),
    ({"type": "credit", "subscription": "s", "credit": 1}, "invalid_frame"),
    ({"type": "unsubscribe", "subscription": "s"}, "invalid_frame"),
    ({"type": "pop", "group": "g"}, "invalid_frame"),
    ({"type": "pop", "group": "g", "topic": "nowhere"}, "unknown_topic"),
    ({"type": "pop", "topic": "plant"}, "invalid_frame"),
    ({"type": "ack", "group": "g"}, "invalid_body"),
    ({"type": "release", "group": "g", "partition": "q", "receipt_handles": ["x"]}, "invalid_frame"),
])
def test_a_wrong_frame_is_answered_and_the_next_one_read(frame, code):
    async def test(client):
        client.kernel.publish("plant/a", b"0")
        socket = await connect(client)
        answer = await socket.ask(**frame)
        assert (answer["type"], answer["problem"]["code"]) == ("error", code), answer
        assert (await socket.ask(type="ping", id=2))["id"] == 2
        assert len(client.door.feeds) == 0
    run_door(test)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "1", '{"type": "ping", "id": 1e400}', "[" * 5000])
def test_what_is_no_frame_is_answered(text):
    async def test(client):
        socket = await connect(client)
        await socket.socket.send_str(text)
        assert (await socket.next())["problem"]["code"] == "invalid_frame"
    run_door(test)


def test_bytes_end_it():
    async def test(client):
        socket = await connect(client)
        await socket.socket.send_bytes(b"{}")
        message = await socket.socket.receive()
        assert (message.type, message.data) == (WSMsgType.CLOSE, 1003)
    run_door(test)


def test_a_frame_that_is_too_large_ends_it():
    async def test(client):
        socket = await connect(client)
        await socket.socket.send_str('"' + "x" * 5000 + '"')
        message = await socket.socket.receive()
        assert (message.type, message.data) == (WSMsgType.CLOSE, 1009)
    run_door(test, max_body_bytes=4096)


def test_the_sub_protocol_and_compression_are_agreed():
    async def test(client):
        socket = await connect(client, protocols=("other", "gatehouse.v1+json"), compress=15)
        assert socket.socket.protocol == "gatehouse.v1+json"
        await socket.ask(type="subscribe", subscription="s", topic="plant")
        await live(client)
        client.kernel.publish("plant/a", b"x" * 5000)
        client.kernel.publish("plant/a", b"y" * 5000)
        assert await socket.values(2) == ["x" * 5000, "y" * 5000]
    run_door(test)


def test_who_asks_how():
    async def test(client):
        assert (await client.ask("GET", "/v1/ws")).code == "upgrade_required"
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                   "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": "https://evil.example"}
        assert (await client.ask("GET", "/v1/ws", headers=upgrade)).code == "origin_not_allowed"
    run_door(test)


def test_who_may_not_come_in_is_told_before_the_upgrade():
    async def test(client):
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                   "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
        assert (await client.ask("GET", "/v1/ws", headers=upgrade)).code == "not_authenticated"
    run_door(test, admission=lambda kernel: Admission(kernel, lambda: NOW_MS, allow_anonymous=False))


def test_a_stopping_hub_says_so():
    async def test(client):
        socket = await connect(client)
        client.door.begin_stopping()
        message = await socket.socket.receive()
        assert (message.type, message.data) == (WSMsgType.CLOSE, 1001)
    run_door(test)


def registrations(client):
    """Who is connected as whom."""
    return [registration for taken in client.door.admission._registry._by_user.values() for registration in taken]


def test_a_connection_ends_with_its_user():
    async def test(client):
        socket = await connect(client)
        await socket.ask(type="ping")
        (registration,) = registrations(client)
        registration.session.on_principal_ended("removed")
        message = await socket.socket.receive()
        assert (message.type, message.data, message.extra) == (WSMsgType.CLOSE, 1008, "removed")
        await until(lambda: not registrations(client))
    run_door(test)


def test_a_subscription_ends_with_its_right_and_the_connection_stays():
    async def test(client):
        socket = await connect(client)
        await socket.ask(type="subscribe", subscription="s", topic="plant")
        await socket.ask(type="subscribe", subscription="o", topic="other")
        (registration,) = registrations(client)
        client.door.admission.may_topic = lambda principal, operation, topic: topic != "plant"
        registration.session.on_rights_changed()
        del client.door.admission.may_topic
        told = await socket.next()
        assert (told["type"], told["subscription"], told["problem"]["code"]) == ("error", "s", "not_authorized")
        assert (await socket.ask(type="ping", id=9))["id"] == 9
        await until(lambda: len(client.door.feeds) == 1)
    run_door(test)


def test_nothing_comes_behind_the_answer_to_an_unsubscribe():
    async def test(client):
        socket = await connect(client)
        await socket.ask(type="subscribe", subscription="s", topic="plant")
        await live(client)
        (registration,) = registrations(client)
        fetch, asked = client.kernel.fetch, []
        client.kernel.fetch = lambda *arguments, **options: asked.append((arguments, options))
        client.kernel.publish("plant/1", b"behind")
        await until(lambda: asked)
        registration.session._at_once("unsubscribe", {"type": "unsubscribe", "subscription": "s"}, None)
        for arguments, options in asked:                         # what the feed has asked for comes in the next turn
            fetch(*arguments, **options)
        client.kernel.fetch = fetch
        assert (await socket.next())["type"] == "unsubscribed"
        assert (await socket.ask(type="ping"))["type"] == "pong"
    run_door(test)


async def two_that_wait(client: Client) -> tuple[Socket, WebSocketConnection]:
    """A client with two subscriptions that have something for it, and no room to write it; and its session."""
    client.kernel.publish("plant/a", b"1")
    socket = await connect(client)
    (connection,) = client.service.connections
    session: Any = connection._session
    session._full = lambda: False                        # frames are read all the same
    session._link = SimpleNamespace(unsent_bytes=1 << 20, write=connection.write, close=connection.close)
    for name in ("s", "t"):
        await socket.ask(type="subscribe", subscription=name, topic="plant", **{"from": "earliest"})
    assert (await socket.ask(type="ping"))["type"] == "pong"
    await until(lambda: session._drained is not None)
    return socket, session


def test_a_subscription_that_ends_while_it_waits_for_room_takes_no_other_along():
    async def test(client):
        socket, session = await two_that_wait(client)
        assert (await socket.ask(type="unsubscribe", subscription="s"))["type"] == "unsubscribed"
        await until(lambda: users(client) == 1)
        session._link.unsent_bytes = 0
        session.handle_drained()
        frame = await socket.next()
        assert (frame["subscription"], [one["value"] for one in frame["messages"]]) == ("t", ["1"])
        assert (await socket.ask(type="ping", id=2))["id"] == 2
    run_door(test)


def users(client: Client) -> int:
    return sum(feed.users for feed in client.door.feeds._feeds.values())


def test_a_client_that_goes_while_subscriptions_wait_for_room_is_no_fault_of_the_hubs(caplog):
    async def test(client):
        socket, _ = await two_that_wait(client)
        socket.socket.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, pack("ii", 1, 0))
        socket.socket._response.connection.transport.abort()
        await until(lambda: not client.service.connections and not len(client.door.feeds))
    run_door(test)
    assert not caplog.records


def test_a_right_that_goes_while_a_subscription_opens_is_missed():
    async def test(client):
        socket = await connect(client)
        client.kernel.hold = True
        await socket.send(type="subscribe", id=1, subscription="s", filter="plant/#")
        await until(lambda: len(client.door.feeds))
        client.door.admission.require = denied
        client.kernel.flush()
        assert (await socket.next())["problem"]["code"] == "not_authorized"
        assert not len(client.door.feeds)
    run_door(test)


def denied(*_):
    raise Denied("no")
