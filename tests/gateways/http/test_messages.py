"""POST /v1/topics/{topic}/messages."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.admission.places import GivenPlaces
from gatehouse.gateways.http.config import HttpConfig
from gatehouse.kernel.errors import StorageFull
from gatehouse.kernel.records.batch import read_headers
from tests.gateways.http.fake_kernel import FakeKernel
from tests.gateways.http.kit import Answer, Client, run_door


async def post(client: Client, document: Any, **headers: str) -> Answer:
    return await client.ask("POST", "/v1/topics/plant/messages", json=document,
                            headers={name.replace("_", "-"): value for name, value in headers.items()})


def test_one_raw_body_with_a_key() -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", "/v1/topics/plant/messages?key=line1/temp", data=b"\xff")
        assert (answer.status, answer.json["address"]) == (201, "plant/line1/temp")
        assert client.kernel.appended[0][0].key == b"line1/temp"
        keyless = await client.ask("POST", "/v1/topics/plant/messages", data=b"x")
        assert keyless.json["address"] == "plant"
        empty = await client.ask("POST", "/v1/topics/plant/messages?key=", data=b"x")
        assert empty.status == 201
        assert client.kernel.appended[2][0].key == b""
        by_header = await client.ask("POST", "/v1/topics/plant/messages", data=b"x", headers={"X-Message-Key": "k"})
        assert by_header.json["address"] == "plant/k"
        both = await client.ask("POST", "/v1/topics/plant/messages?key=a", data=b"x", headers={"X-Message-Key": "b"})
        assert (both.status, both.code) == (400, "invalid_parameter")
    run_door(test)


def test_many_messages_are_one_append() -> None:
    async def test(client: Client) -> None:
        answer = await post(client, {"messages": [{"key": "a", "value": "1"}, {"value_base64": "/w=="}, {"key": "a"}]})
        assert answer.status == 201
        results = answer.json["messages"]
        assert [result["address"] for result in results] == ["plant/a", "plant", "plant/a"]
        assert [result["status"] for result in results] == [201, 201, 201]
        assert results[0]["partition"] == results[2]["partition"]
        assert results[2]["offset"] > results[0]["offset"]
        assert [message[1] for message in client.kernel.appended] == [b"1", b"\xff", None]
    run_door(test)


def test_a_place_outlives_as_many_others_as_a_body_may_name() -> None:
    async def test(client: Client) -> None:
        port, most = client.door.port, HttpConfig().max_request_messages
        given = GivenPlaces(port, lambda address: None, places_max=3)
        for number in range(2 * most):
            given.remember(number, port.place(given.guard, f"plant/{number}", "/", True, ""))
        first = given.by_name[2 * most - 3]              # the next to leave
        for number in range(2 * most, 3 * most - 1):
            given.remember(number, port.place(given.guard, f"plant/{number}", "/", True, ""))
            assert port.look(given.guard, first).address == f"plant/{2 * most - 3}"
    run_door(test)


def test_some_are_refused_and_the_others_stored() -> None:
    async def test(client: Client) -> None:
        answer = await post(client, {"messages": [{"value": "a"}, {"value": "b" * 200}, {"vlaue": "c"},
                                                  {"specversion": "1.0"}, {"value": "d"}]})
        assert answer.status == 207
        results = answer.json["messages"]
        assert [result["status"] for result in results] == [201, 413, 400, 400, 201]
        codes = [result.get("code") for result in results]
        assert codes == [None, "message_too_large", "invalid_body", "invalid_body", None]
        assert [message[1] for message in client.kernel.appended] == [b"a", b"d"]
    run_door(test, kernel=FakeKernel(max_message_bytes=100))


@pytest.mark.parametrize(("messages", "status", "code"), [
    ([{"specversion": "1.0"}], 400, "invalid_body"), ([{"value": "b" * 200}] * 2, 413, "message_too_large"),
    ([{"vlaue": "c"}, {"value": "b" * 200}], 422, "nothing_stored")])
@pytest.mark.parametrize("prefer", ["respond-async", "wait=5"])
def test_where_nothing_is_stored_the_answer_is_no_success(messages: list[Any], status: int, code: str, prefer: str
                                                         ) -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", "/v1/topics/plant/messages", json={"messages": messages},
                                  headers={"Prefer": prefer})
        assert (answer.status, answer.code) == (status, code)
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert [result["status"] >= 400 for result in answer.json["messages"]] == [True] * len(messages)
        assert client.kernel.appended == []
    run_door(test, kernel=FakeKernel(max_message_bytes=100))


@pytest.mark.parametrize(("value", "stored"), [
    (21.5, b"21.5"), (0, b"0"), (False, b"false"), ({"temp": [1, None]}, b'{"temp":[1,null]}'), ([], b"[]")])
def test_any_json_is_a_value(value: Any, stored: bytes) -> None:
    async def test(client: Client) -> None:
        answer = await post(client, {"messages": [{"value": value}, {"value": value, "content_type": "text/plain"},
                                                  {"value": "21.5"}]})
        assert answer.status == 201
        assert [message[1] for message in client.kernel.appended] == [stored, stored, b"21.5"]
        types = [dict(read_headers(message[2], 0)[0]).get(b"content-type") for message in client.kernel.appended]
        assert types == [b"application/json", b"text/plain", None]
    run_door(test)


def test_what_no_value_can_be() -> None:
    async def test(client: Client) -> None:
        deep = b'{"messages": [{"value": %b1%b}]}' % (b"[" * 900, b"]" * 900)
        for body in (deep, b'{"messages": [{"value": [1], "value_base64": "AA=="}]}'):
            answer = await client.ask("POST", "/v1/topics/plant/messages", data=body,
                                      headers={"Content-Type": "application/json"})
            assert (answer.status, answer.code) == (400, "invalid_body")
    run_door(test)


@pytest.mark.parametrize(("body", "code"), [
    (b"", "invalid_body"), (b"{", "invalid_body"), (b"[]", "invalid_body"), (b"{}", "invalid_body"),
    (b'{"messages":{}}', "invalid_body"), (b'{"messages":[]}', "invalid_body"),
    (b'{"messages":[{},{},{},{},{},{}]}', "invalid_body"), (b'{"messages":[{}],"more":1}', "invalid_body"),
    (b'{"messages":[{"value":"\\ud800"}]}', "invalid_body"),
])
def test_documents_that_are_refused_whole(body: bytes, code: str) -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", "/v1/topics/plant/messages", data=body,
                                  headers={"Content-Type": "application/json; charset=utf-8"})
        assert (answer.status, answer.code) == (400, code)
        assert client.kernel.appended == []
    run_door(test, max_request_messages=5)


@pytest.mark.parametrize(("headers", "status", "code"), [
    ({"X-Priority": "1"}, 400, "invalid_header"), ({"X-Message-Key": "1"}, 400, "invalid_header"),
    ({"X-Timestamp": "1"}, 400, "invalid_header"), ({"X-Header-A": "1"}, 400, "invalid_header"),
    ({"Content-Encoding": "br"}, 415, "unsupported_media_type"), ({"Content-Encoding": "gzip"}, 400, "invalid_body"),
    ({"X-Delay": "1"}, 400, "invalid_header"),
    ({"X-Repeat": "every 5s"}, 400, "invalid_header"),
])
def test_what_a_json_body_cannot_have_beside_it(headers: dict[str, str], status: int, code: str) -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", "/v1/topics/plant/messages", data=b'{"messages":[{}]}',
                                  headers={"Content-Type": "application/json"} | headers)
        assert (answer.status, answer.code) == (status, code)
    run_door(test)


def test_the_requests_trace_reaches_messages_without_their_own() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"

    async def test(client: Client) -> None:
        await post(client, {"messages": [{}, {"traceparent": trace + "0"}]}, traceparent=trace + "1")
        traces = [dict(read_headers(message[2], 0)[0])[b"traceparent"] for message in client.kernel.appended]
        assert traces == [(trace + "1").encode(), (trace + "0").encode()]
    run_door(test)


def test_async_and_idempotent() -> None:
    async def test(client: Client) -> None:
        answer = await post(client, {"messages": [{"value": "a"}]}, Prefer="respond-async")
        assert (answer.status, answer.json["messages"][0]["id"]) == (202, None)
        first = await post(client, {"messages": [{"value": "a"}]}, Idempotency_Key="k")
        again = await post(client, {"messages": [{"value": "a"}]}, Idempotency_Key="k")
        assert first.json == again.json
        assert len(client.kernel.appended) == 2
    run_door(test)


def test_faults_of_the_whole() -> None:
    async def test(client: Client) -> None:
        assert (await client.ask("POST", "/v1/topics/a%20b/messages", data=b"x")).code == "invalid_topic"
        client.kernel.auto_create = False
        assert (await client.ask("POST", "/v1/topics/plant/messages", data=b"x")).status == 404
        client.kernel.auto_create = True
        client.kernel.fault = StorageFull("no space")
        assert (await post(client, {"messages": [{"value": "a"}]})).status == 507
    run_door(test)


async def publish(client: Client, *messages: Any) -> Answer:
    return await client.ask("POST", "/v1/publish", json={"messages": messages})


def test_every_message_of_a_publish_says_where_it_goes() -> None:
    async def test(client: Client) -> None:
        answer = await publish(client, {"address": "plant/line1/temp", "value": "1"},
                               {"topic": "fleet", "key_base64": "/w==", "value": "2"}, {"topic": "fleet"},
                               {"address": "plant/a%2Fb", "value": None})
        assert answer.status == 201
        assert [result["topic"] for result in answer.json["messages"]] == ["plant", "fleet", "fleet", "plant"]
        keys = [message[0].key for message in client.kernel.appended]
        assert keys == [b"line1/temp", b"\xff", None, b"a%2Fb"]
        in_path = await client.ask("POST", "/v1/publish/plant/a%252Fb", data=b"")
        assert client.kernel.appended[-1][0].address == in_path.json["address"] == "plant/a%252Fb"
    run_door(test)


@pytest.mark.parametrize("message", [
    {}, 5, {"address": 5}, {"address": []}, {"topic": None}, {"topic": 7}, {"address": "a/b", "topic": "a"},
    {"address": "a/b", "key": "c"}, {"address": "a", "key_base64": ""}, {"address": "a", "qos": 1}])
def test_a_message_that_does_not_say_where_it_goes_is_refused(message: Any) -> None:
    async def test(client: Client) -> None:
        answer = await publish(client, message, {"address": "plant/b", "value": "b"})
        assert (answer.status, answer.json["messages"][0]["code"]) == (207, "invalid_body")
        assert [stored[1] for stored in client.kernel.appended] == [b"b"]
    run_door(test)


def test_a_publish_of_many_is_json() -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", "/v1/publish", data=b"21.5", headers={"Content-Type": "text/plain"})
        assert (answer.status, answer.code) == (415, "unsupported_media_type")
    run_door(test)


def test_a_topic_is_not_taken_for_another_ones_key():
    async def test(client):
        await post(client, {"messages": [{"key": "b"}]})
        answer = await client.ask("POST", "/v1/publish", headers={"Content-Type": "application/json"},
                                  data=b'{"messages":[{"topic":"plant\\u0000b"}]}')
        assert answer.json["messages"][0]["code"] == "invalid_topic"
        assert len(client.kernel.appended) == 1
    run_door(test)
