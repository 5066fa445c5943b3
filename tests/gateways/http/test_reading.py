"""GET /v1/topics/{topic}/messages: pages, cursors, where to begin, waiting."""
from __future__ import annotations

import asyncio
from array import array
from typing import Any
from urllib.parse import quote

import pytest

from gatehouse.gateways.http.page import Cursor, decode_cursor, encode_cursor
from gatehouse.gateways.http.routes import messages
from gatehouse.kernel.message import Piece
from gatehouse.kernel.records.batch import CONTROL
from gatehouse.kernel.state.topics import Topic
from tests.gateways.http.fake_kernel import NOW_MS, FakeKernel
from tests.gateways.http.kit import Answer, Client, run_door, until
from tests.kernel.batches import wrap

MESSAGES = "/v1/topics/plant/messages"


def filled(count: int = 10, partitions: int = 2) -> FakeKernel:
    kernel = FakeKernel(default_partitions=partitions)
    for number in range(count):
        kernel.publish(f"plant/{number}", b"%d" % number, timestamp_ms=NOW_MS + number * 1000)
    return kernel


async def page(client: Client, query: str = "") -> Any:
    answer = await client.ask("GET", MESSAGES + query)
    assert answer.status == 200, answer.body
    return answer.json


def values(document: Any) -> list[str]:
    return [message["value"] for message in document["messages"]]


def test_pages_follow_each_other_in_order() -> None:
    async def test(client: Client) -> None:
        seen: list[str] = []
        query = "?max=3"
        for _ in range(4):
            document = await page(client, query)
            seen += values(document)
            query = f"?max=3&cursor={document['cursor']}"
        assert seen == [str(number) for number in range(10)]
        assert values(await page(client, query)) == []
        client.kernel.publish("plant/a", b"next")
        assert values(await page(client, query)) == ["next"]
    run_door(test, kernel=filled())


def test_a_cursor_may_name_another_partition_than_it_has_offsets_of() -> None:
    """No hub writes one, but its checksum is no secret."""
    async def test(client: Client) -> None:
        topic = client.kernel.topic("plant", "/")
        assert topic is not None
        expected = [message["value"] for message in (await page(client, "?partition=1"))["messages"]]
        for positions in ({1: 0}, {}):
            cursor = encode_cursor(Cursor(topic.uuid, 0, 0, positions))
            assert values(await page(client, f"?cursor={cursor}")) == (expected if positions else [])
    run_door(test, kernel=filled())


together = FakeKernel.bounds_of


def test_a_page_of_many_partitions_asks_for_their_bounds_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(client: Client) -> None:
        asked: list[Topic] = []

        def bounds_of(kernel: FakeKernel, topic: Topic) -> array[int]:
            asked.append(topic)
            return together(kernel, topic)

        monkeypatch.setattr(FakeKernel, "bounds_of", bounds_of)
        document = await page(client, "?from=earliest")
        assert len(values(document)) == 10 and len(asked) == 2
        assert values(await page(client, f"?cursor={document['cursor']}")) == [] and len(asked) == 3
        assert values(await page(client, "?from=latest")) == []
    run_door(test, kernel=filled(partitions=12))


def test_a_message_as_json() -> None:
    async def test(client: Client) -> None:
        client.kernel.publish("plant/line1", b"\xff", [(b"unit", b"C"), (b"content-type", b"x/y")], attributes=1)
        (message,) = (await page(client))["messages"]
        assert message == {
            "id": str((1 << 60) + 1), "topic": "plant", "partition": message["partition"], "offset": 0, "key": "line1",
            "value_base64": "/w==", "headers": [["unit", "C"]], "address": "plant/line1", "timestamp": NOW_MS,
            "door": "mqtt", "content_type": "x/y"}
    run_door(test)


@pytest.mark.parametrize(("query", "expected"), [
    ("", 10), ("?from=earliest", 10), ("?from=latest", 0), (f"?from={'2023-11-14T22:13:25Z'}", 5),
    ("?from=2023-11-15T00:13:25%2B02:00", 5), ("?from=2023-11-15T00:13:25+02:00", 5), ("?from=2030-01-01T00:00:00Z", 0),
    ("?max=1", 1),
])
def test_where_to_begin(query: str, expected: int) -> None:
    async def test(client: Client) -> None:
        assert len((await page(client, query))["messages"]) == expected
    run_door(test, kernel=filled())


def test_one_queue_and_its_offsets() -> None:
    async def test(client: Client) -> None:
        whole = await page(client, "?partition=1")
        assert {message["partition"] for message in whole["messages"]} == {1}
        rest = await page(client, "?partition=1&from=2")
        assert rest["messages"] == whole["messages"][2:]
        client.kernel.publish("plant/x", b"x")
        client.kernel.publish("plant/y", b"y")
        client.kernel.publish("plant/z", b"z")
        more = await page(client, f"?partition=1&cursor={whole['cursor']}")
        assert {message["partition"] for message in more["messages"]} <= {1}
    run_door(test, kernel=filled())


@pytest.mark.parametrize(("query", "status", "code"), [
    ("?from=3", 400, "invalid_parameter"), ("?from=yesterday", 400, "invalid_parameter"),
    ("?partition=2", 404, "unknown_partition"), ("?partition=-1", 400, "invalid_parameter"),
    ("?partition=0&from=99", 416, "offset_out_of_range"),
    ("?max=0", 400, "invalid_parameter"), ("?max=1001", 400, "invalid_parameter"),
    ("?max=1&max=2", 400, "invalid_parameter"), ("?wait=31", 400, "invalid_parameter"),
    ("?wait=x", 400, "invalid_parameter"), ("?cursor=garbage", 400, "invalid_cursor"),
    ("?cursor=", 400, "invalid_cursor"), ("?form=earliest", 400, "unknown_parameter"),
    ("?filter=a+%3D", 400, "invalid_selector"),
])
def test_refusals(query: str, status: int, code: str) -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("GET", MESSAGES + query)
        assert (answer.status, answer.code) == (status, code)
    run_door(test, kernel=filled())


def test_cursor_refusals() -> None:
    async def test(client: Client) -> None:
        topic = client.kernel.topic("plant")
        assert topic is not None
        for cursor, query, status, code in (
            (Cursor(bytes(16), None, 0, {0: 0, 1: 0}), "", 410, "topic_replaced"),
            (Cursor(topic.uuid, None, 0, {7: 0}), "", 400, "invalid_cursor"),
            (Cursor(topic.uuid, 0, 0, {0: 0}), "&partition=1", 400, "invalid_parameter"),
            (Cursor(topic.uuid, 0, 0, {0: 0}), "&from=latest", 400, "invalid_parameter"),
            (Cursor(topic.uuid, 0, 0, {0: 1 << 40}), "", 416, "offset_out_of_range"),
        ):
            answer = await client.ask("GET", f"{MESSAGES}?cursor={encode_cursor(cursor)}{query}")
            assert (answer.status, answer.code) == (status, code)
        assert (await client.ask("GET", "/v1/topics/nowhere/messages")).code == "unknown_topic"
        assert client.kernel.topic("nowhere") is None
    run_door(test, kernel=filled())


def test_queues_that_the_topic_gets_later_are_read_from_their_beginning() -> None:
    async def test(client: Client) -> None:
        cursor = (await page(client, "?from=latest"))["cursor"]
        assert (await client.ask("PATCH", "/v1/topics/plant", json={"partitions": 8})).status == 200
        for number in range(30):
            client.kernel.publish(f"plant/{number}", b"%d" % number)
        document = await page(client, f"?cursor={cursor}")
        assert values(document) == [str(number) for number in range(30)]
        assert set(decode_cursor(document["cursor"]).positions) == set(range(8))
    run_door(test, kernel=filled())


def test_what_retention_took_is_told() -> None:
    async def test(client: Client) -> None:
        cursor = (await page(client, "?max=2"))["cursor"]
        topic = client.kernel.topic("plant")
        assert topic is not None
        client.kernel.trim(topic.partition_id(0), 5)
        document = await page(client, f"?cursor={cursor}&max=2")
        assert document["lost"] == [{"partition": 0, "offset": 2, "count": 3}]
        following = await page(client, f"?cursor={document['cursor']}")
        assert "lost" not in following
        assert values(document) + values(following) == ["5", "6", "7", "8", "9"]
    run_door(test, kernel=filled(partitions=1))


def test_a_long_poll_is_answered_by_the_next_message() -> None:
    async def test(client: Client) -> None:
        asked = asyncio.create_task(client.ask("GET", MESSAGES + "?from=latest&wait=20"))
        await until(lambda: client.kernel._watches.waiting)
        assert not asked.done()
        client.kernel.publish("plant/a", b"now")
        assert values((await asked).json) == ["now"]
        assert not client.kernel._watches.waiting
    run_door(test, kernel=filled())


def test_a_long_poll_ends_with_its_time_and_its_cursor_goes_on() -> None:
    async def test(client: Client) -> None:
        document = await page(client, "?from=latest&wait=0.05")
        assert document["messages"] == []
        client.kernel.publish("plant/a", b"now")
        assert values(await page(client, f"?cursor={document['cursor']}&wait=20")) == ["now"]
        assert not client.kernel._watches.waiting
    run_door(test, kernel=filled())


async def select(client: Client, selector: str, query: str = "") -> Any:
    return await page(client, f"?filter={quote(selector)}{query}")


@pytest.mark.parametrize(("selector", "expected"), [
    ("n > 3 AND unit = 'C'", ["4", "6", "8"]), ("tags:even", ["0", "2", "4", "6", "8"]), ("headers:unit=F, n=3", ["3"]),
    ("key IN ('1', '2')", ["1", "2"]), ("plant/7", ["7"]), ("address LIKE '%/5'", ["5"]), ("topic <> 'plant'", []),
    (f"timestamp >= {NOW_MS + 8000}", ["8", "9"]), ("content_type = 'text/5'", ["5"]), ("missing = 1", []),
])
def test_only_what_a_selector_wants(selector: str, expected: list[str]) -> None:
    async def test(client: Client) -> None:
        kernel = client.kernel
        for number in range(10):
            kernel.publish(f"plant/{number}", b"%d" % number, [
                (b"n", b"%d" % number), (b"unit", b"F" if number % 2 else b"C"), (b"content-type", b"text/%d" % number),
                (b"tags", b"odd" if number % 2 else b"even")], timestamp_ms=NOW_MS + number * 1000)
        document = await select(client, selector)
        assert values(document) == expected
        assert document.get("skipped", 0) == 10 - len(expected)
    run_door(test)


@pytest.mark.parametrize(("selector", "expected"), [
    ("value.temp > 4", ["5", "6"]), ("value.rooms.0.name = 'hall' AND value.on", ["5"]), ("value.temp IS NULL", ["7"]),
    ('"value.temp" > 0', []), ("value LIKE '%hall%'", ["5"]), ("value = 'no json'", ["7"])])
def test_a_selector_looks_into_json_values(selector: str, expected: list[str]) -> None:
    async def test(client: Client) -> None:
        for key, value in (("5", b'{"temp": 5, "on": true, "rooms": [{"name": "hall"}]}'), ("6", b'{"temp": 6}'),
                           ("7", b"no json")):
            client.kernel.publish(f"plant/{key}", value)
        assert [message["key"] for message in (await select(client, selector))["messages"]] == expected
    run_door(test)


def test_what_a_filter_names_and_no_message_has_is_told() -> None:
    async def test(client: Client) -> None:
        client.kernel.publish("plant/1", b'{"temp": 5}', [(b"unit", b"C")])
        document = await select(client, "unti = 'C' OR value.tmep > 20 OR value.temp > 20 OR unit = 'F' OR key = '9'")
        assert (document["skipped"], document["unknown_names"]) == (1, ["unti", "value.tmep"])
        assert "unknown_names" not in await select(client, "unit = 'F'")
        assert "unknown_names" not in await select(client, "unti = 'C'", f"&cursor={document['cursor']}"), "not looked"
    run_door(test)


VALUES = ((b'{"temp":\n 5}', {"value_json": {"temp": 5}}), (b"null", {"value_json": None}),
          (b'"a"', {"value_json": "a"}), (b"a", {"value": "a"}), (b"\xff", {"value_base64": "/w=="}),
          (b"NaN", {"value": "NaN"}), (b"", {"value": ""}), (b"[" * 2000, {"value": "[" * 2000}))


def test_a_reader_may_ask_for_parsed_values() -> None:
    async def test(client: Client) -> None:
        for value, _ in VALUES:
            client.kernel.publish("plant/1", value)
        found = (await page(client, "?values=json"))["messages"]
        assert [{name: one[name] for name in one if name.startswith("value")} for one in found] == [
            shown for _, shown in VALUES]
        assert [one["value"] for one in (await page(client, "?values=text"))["messages"][:2]] == [
            '{"temp":\n 5}', "null"]
        answer = await client.ask("GET", MESSAGES + "?values=xml")
        assert (answer.status, answer.code) == (400, "invalid_parameter")
    run_door(test)


def test_a_number_that_is_parsed_keeps_its_digits() -> None:
    async def test(client: Client) -> None:
        client.kernel.publish("plant/1", b"123456789012345678901234567890")
        async with client.session.get(f"http://{client.address}{MESSAGES}?values=json") as answer:
            assert b'"value_json":123456789012345678901234567890' in await answer.read()
    run_door(test)


def test_a_selector_across_pages() -> None:
    async def test(client: Client) -> None:
        seen: list[str] = []
        query = "&max=2"
        for _ in range(4):
            document = await select(client, "key > 3", query)
            seen += values(document)
            query = f"&max=2&cursor={document['cursor']}"
        assert seen == ["4", "5", "6", "7", "8", "9"]
        assert "skipped" not in document
    run_door(test, kernel=filled())


def test_a_selector_that_wants_nothing_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "SEARCH_S", 3600.0)

    async def test(client: Client) -> None:
        document = await select(client, "missing = 1")
        assert (document["messages"], document["skipped"]) == ([], 10)
        assert "skipped" not in await select(client, "missing = 1", f"&cursor={document['cursor']}")
    run_door(test, kernel=filled())


def test_what_is_nothing_to_show_does_not_end_a_page() -> None:
    async def test(client: Client) -> None:
        document = await page(client, "?max=1")
        assert values(document) == ["behind"]
        assert values(await page(client, f"?max=1&cursor={document['cursor']}")) == []
    kernel = FakeKernel(default_partitions=1)
    partition_id = kernel.place("plant/1").partition_id
    kernel.partitions[partition_id] = [Piece(offset, 1, True, wrap(b"\0", 1, codec=CONTROL), NOW_MS, NOW_MS, offset + 1)
                                       for offset in range(3)]
    kernel.publish("plant/1", b"behind")
    run_door(test, kernel=kernel)


def test_a_selector_that_cannot_be_read() -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("GET", MESSAGES + "?filter=" + quote("temp > 'x'"))
        assert (answer.status, answer.code) == (400, "invalid_selector")
        assert answer.json["detail"].startswith("at character 8: expected a number: only numbers are compared by >")
        assert (answer.json["parameter"], answer.json["position"]) == ("filter", 7)
    run_door(test, kernel=filled())


def test_a_long_poll_waits_for_a_message_that_the_selector_wants() -> None:
    async def test(client: Client) -> None:
        asked = asyncio.create_task(select(client, "key = 'b'", "&wait=20"))
        await until(lambda: client.kernel._watches.waiting)
        client.kernel.publish("plant/a", b"no")
        await until(lambda: client.kernel._watches.waiting)
        assert not asked.done()
        client.kernel.publish("plant/b", b"yes")
        document = await asked
        assert (values(document), document["skipped"]) == (["yes"], 11)
    run_door(test, kernel=filled())


def test_one_call_searches_on_beyond_what_one_read_brings() -> None:
    async def test(client: Client) -> None:
        for number in range(30):
            client.kernel.publish("plant/big", bytes(20_000), [(b"n", b"%d" % number)])
        document = await select(client, "n = 29", "&max=1")
        assert (len(document["messages"]), document["skipped"]) == (1, 29)
    run_door(test)


def test_a_search_that_takes_too_long_says_how_far_it_got(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "SEARCH_S", 0.0)

    async def test(client: Client) -> None:
        for number in range(30):
            client.kernel.publish("plant/big", bytes(20_000), [(b"n", b"%d" % number)])
        document, calls, skipped = await select(client, "n = 29", "&max=1"), 1, 0
        while not document["messages"]:
            skipped += document["skipped"]
            document, calls = await select(client, "n = 29", f"&max=1&cursor={document['cursor']}"), calls + 1
        assert skipped + document.get("skipped", 0) == 29
        assert calls > 2
    run_door(test)


def test_a_client_that_goes_away_is_waited_for_no_more() -> None:
    async def test(client: Client) -> None:
        asked = asyncio.create_task(client.ask("GET", MESSAGES + "?from=latest&wait=20"))
        await until(lambda: client.kernel._watches.waiting)
        asked.cancel()
        await until(lambda: not client.kernel._watches.waiting)
        assert not client.door._waiters
    run_door(test, kernel=filled())


def test_many_long_polls_are_woken_by_one_message() -> None:
    async def test(client: Client) -> None:
        host, _, port = client.address.rpartition(":")
        request = f"GET {MESSAGES}?from=latest&wait=20 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode()
        connections = [await asyncio.open_connection(host, int(port)) for _ in range(300)]
        for _, writer in connections:
            writer.write(request)
        door = client.door
        await until(lambda: len(door._waiters) == 300)
        client.kernel.publish("plant/a", b"now")
        answers = await asyncio.gather(*(reader.read() for reader, _ in connections))
        assert all(b'"value":"now"' in answer for answer in answers)
        for _, writer in connections:
            writer.close()
    run_door(test, kernel=filled())


@pytest.mark.parametrize("query", ["", "&partition=0"])
def test_the_cursor_of_an_empty_page_stays_at_the_end_of_the_only_partition(query: str) -> None:
    async def test(client: Client) -> None:
        for begin in ("?from=latest", "?from=latest&wait=0.01"):
            cursor = (await page(client, begin + query))["cursor"]
            assert decode_cursor(cursor).positions == {0: 10}
            document = await page(client, f"?cursor={cursor}{query}")
            assert values(document) == []
            assert document["cursor"] == cursor
        client.kernel.publish("plant/a", b"next")
        assert values(await page(client, f"?cursor={cursor}{query}")) == ["next"]
    run_door(test, kernel=filled(partitions=1))


def test_a_long_poll_of_the_only_partition_is_answered_by_the_next_message() -> None:
    async def test(client: Client) -> None:
        asking = asyncio.create_task(page(client, "?from=latest&wait=5"))
        await until(lambda: client.kernel._watches.waiting)
        client.kernel.publish("plant/a", b"next")
        assert values(await asyncio.wait_for(asking, 2)) == ["next"]
    run_door(test, kernel=filled(partitions=1))


def test_stopping_sends_long_polls_home_with_their_cursor() -> None:
    answers: list[Answer] = []

    async def test(client: Client) -> None:
        asked = asyncio.create_task(client.ask("GET", MESSAGES + "?from=latest&wait=20"))
        await until(lambda: client.kernel._watches.waiting)
        await client.service.stop(10)
        answers.append(await asked)
    run_door(test, kernel=filled())
    assert answers[0].status == 200
    assert decode_cursor(answers[0].json["cursor"]).partition is None


def test_a_head_request_has_no_body() -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("HEAD", MESSAGES)
        assert (answer.status, answer.body) == (200, b"")
        assert int(answer.headers["Content-Length"]) > 100
    run_door(test, kernel=filled())


def test_a_wide_topic_is_read_queue_by_partition() -> None:
    async def test(client: Client) -> None:
        assert (await client.ask("PUT", "/v1/topics/wide", json={"partitions": 600})).status == 201
        answer = await client.ask("GET", "/v1/topics/wide/messages")
        assert (answer.status, answer.code, answer.json["parameter"]) == (400, "invalid_parameter", "partition")
        assert (await client.ask("GET", "/v1/topics/wide/messages?partition=599")).status == 200
    run_door(test)
