"""Server-Sent Events over the fake kernel: where they begin, what they say, who may not."""
from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import orjson
import pytest

from gatehouse.gateways.admission.admission import Admission, Denied
from gatehouse.gateways.door_side import UnsentBudget
from gatehouse.gateways.http.routes.events import filter_of
from tests.gateways.http.fake_kernel import NOW_MS
from tests.gateways.http.kit import Client, run_door, until


class Stream:
    """One reader; `next` is its next event as (name, id, document)."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self.last_id = ""

    async def next(self) -> tuple[str, str, Any]:
        name, data = "message", b""
        async for raw in self.response.content:
            line = raw.rstrip(b"\n")
            field, _, value = line.partition(b": ")
            if field == b"event":
                name = value.decode()
            elif field == b"id":
                self.last_id = value.decode()
            elif field == b"data":
                data = value
            elif not line and data:
                return name, self.last_id, orjson.loads(data)
        raise AssertionError("the stream has ended")

    async def values(self, count: int) -> list[str]:
        return [(await self.next())[2]["value"] for _ in range(count)]


async def follow(client: Client, target: str, **headers: str) -> Stream:
    """Open a stream and wait until it is live."""
    response = await client.session.get(f"http://{client.address}{target}", headers=headers)
    assert response.status == 200, await response.text()
    assert response.headers["Content-Type"] == "text/event-stream"
    await until(lambda: any(feed.live for feed in client.door.feeds._feeds.values()))
    return Stream(response)


def test_from_now_on():
    async def test(client):
        client.kernel.publish("plant/a", b"before")
        stream = await follow(client, "/v1/topics/plant/events")
        client.kernel.publish("plant/a", b"after")
        name, _, message = await stream.next()
        assert (name, message["value"], message["address"]) == ("message", "after", "plant/a")
    run_door(test)


def test_a_resumed_stream_loses_and_repeats_nothing():
    async def test(client):
        for number in range(6):
            client.kernel.publish(f"plant/{number % 3}", b"%d" % number)
        stream = await follow(client, "/v1/topics/plant/events?from=earliest")
        seen = await stream.values(4)
        again = await follow(client, "/v1/topics/plant/events?from=earliest", **{"Last-Event-ID": stream.last_id})
        client.kernel.publish("plant/9", b"6")
        assert sorted(seen + await again.values(3)) == ["0", "1", "2", "3", "4", "5", "6"]
    run_door(test)


def test_a_page_resumes_by_the_query():
    async def test(client):
        client.kernel.publish("plant/a", b"1")
        client.kernel.publish("plant/a", b"2")
        stream = await follow(client, "/v1/topics/plant/events?from=earliest")
        await stream.values(1)
        again = await follow(client, f"/v1/topics/plant/events?last_event_id={stream.last_id}")
        assert await again.values(1) == ["2"]
    run_door(test)


def test_a_topic_that_does_not_exist_is_waited_for():
    async def test(client):
        stream = await follow(client, "/v1/topics/later/events")
        client.kernel.publish("later/a", b"first")
        assert await stream.values(1) == ["first"]
    run_door(test)


def test_a_selector_chooses():
    async def test(client):
        stream = await follow(client, "/v1/topics/plant/events?filter=key%20%3D%20%27b%27")
        client.kernel.publish("plant/a", b"no")
        client.kernel.publish("plant/b", b"yes")
        assert await stream.values(1) == ["yes"]
    run_door(test)


def test_what_retention_took_is_told():
    async def test(client):
        client.kernel._partitions_default = 1
        partition_id, _, _ = client.kernel.publish("plant/a", b"0")
        stream = await follow(client, "/v1/topics/plant/events?from=earliest")
        await stream.values(1)
        for number in range(1, 5):
            client.kernel.publish("plant/a", b"%d" % number)
        client.kernel.trim(partition_id, 3)
        again = await follow(client, "/v1/topics/plant/events", **{"Last-Event-ID": stream.last_id})
        name, _, told = await again.next()
        assert (name, told) == ("lost", {"topic": "plant", "partition": 0, "offset": 1, "count": 2})
        assert await again.values(2) == ["3", "4"]
    run_door(test)


def test_thousand_readers_are_given_the_same_bytes():
    async def test(client):
        streams = [await follow(client, "/v1/topics/plant/events") for _ in range(50)]
        await until(lambda: sum(len(feed.live) for feed in client.door.feeds._feeds.values()) == 50)
        assert len(client.door.feeds) == 1
        client.kernel.publish("plant/a", b"x")
        ids = {(await stream.next())[1] for stream in streams}
        assert len(ids) == 1
        for stream in streams:
            stream.response.close()
        await until(lambda: len(client.door.feeds) == 0)
    run_door(test)


def test_signs_of_life():
    async def test(client):
        response = await client.session.get(f"http://{client.address}/v1/topics/plant/events")
        lines = [await response.content.readline() for _ in range(12)]
        assert lines[0] == b"retry: 2000\n"
        assert lines.count(b":\n") >= 2
    run_door(test, heartbeat_s=0.1)


def test_head_answers_without_a_stream():
    async def test(client):
        answer = await client.ask("HEAD", "/v1/topics/plant/events")
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
    run_door(test)


def test_who_asks_with_head_becomes_no_member_that_is_asked():
    class Transactions:
        def join(self, *_, **__):
            raise AssertionError("a HEAD changes nothing")

    async def test(client):
        answer = await client.ask("HEAD", "/v1/transactions/checks?group=shop&wait=20")
        assert (answer.status, answer.body) == (200, b"")
    run_door(test, services={"transactions": Transactions()})


def test_another_origin_may_read_where_it_is_allowed():
    async def test(client):
        stream = await follow(client, "/v1/topics/plant/events", Origin="https://app.example")
        assert stream.response.headers["Access-Control-Allow-Origin"] == "https://app.example"
        refused = await client.ask("GET", "/v1/topics/plant/events", headers={"Origin": "https://x.example"})
        assert refused.code == "origin_not_allowed"
    run_door(test, cors_origins=("https://app.example",))


@pytest.mark.parametrize(("target", "headers", "code"), [
    ("/v1/topics/plant/events?from=yesterday", {}, "invalid_parameter"),
    ("/v1/topics/plant/events?filter=a%20%3D", {}, "invalid_selector"),
    ("/v1/topics/plant/events", {"Last-Event-ID": "nonsense"}, "invalid_cursor"),
    ("/v1/topics/pl%20nt/events", {}, "invalid_topic"),
    ("/v1/events", {}, "invalid_parameter"),
    ("/v1/events?filter=a%2Bb", {}, "invalid_filter"),
    ("/v1/events?filter=a&more=b", {}, "unknown_parameter"),
])
def test_refusals(target, headers, code):
    async def test(client):
        assert (await client.ask("GET", target, headers=headers)).code == code
        assert len(client.door.feeds) == 0
    run_door(test)


def test_who_may_not_read_is_refused_before_anything_waits():
    async def test(client):
        assert (await client.ask("GET", "/v1/topics/plant/events")).code == "not_authenticated"
        assert (await client.ask("GET", "/v1/events?filter=%23")).code == "not_authenticated"
    run_door(test, admission=lambda kernel: Admission(kernel, lambda: NOW_MS, allow_anonymous=False))


def test_a_stopping_hub_ends_the_stream():
    async def test(client):
        stream = await follow(client, "/v1/topics/plant/events")
        client.door.begin_stopping()
        await stream.response.content.read()
    run_door(test)


@pytest.mark.parametrize(("query", "decoded", "meant"), [
    ("filter=plant/+/temp", "plant/ /temp", "plant/+/temp"),
    ("filter=plant/%2B/temp", "plant/+/temp", "plant/+/temp"),
    ("from=latest&filter=a+b/%23", "a b/#", "a b/#"),
    ("filter=plant%2F+%2Ftemp", "plant/ /temp", "plant/+/temp"),
])
def test_plus_is_the_wildcard_where_it_is_a_level(query, decoded, meant):
    assert filter_of(query, decoded) == meant


def registrations(client):
    """Who is connected as whom."""
    return [registration for taken in client.door.admission._registry._by_user.values() for registration in taken]


def test_a_stream_ends_with_its_user_and_its_right():
    async def test(client):
        for end in (lambda registration: registration.session.on_principal_ended("removed"),
                    lambda registration: registration.session.on_rights_changed()):
            stream = await follow(client, "/v1/topics/plant/events")
            (registration,) = registrations(client)
            client.door.admission.may_topic = lambda *_: False          # only the second asks
            end(registration)
            del client.door.admission.may_topic
            await stream.response.content.read()
            await until(lambda: not registrations(client) and not len(client.door.feeds))
    run_door(test)


def test_a_stream_goes_on_while_its_right_is_there():
    async def test(client):
        stream = await follow(client, "/v1/topics/plant/events")
        (registration,) = registrations(client)
        registration.session.on_rights_changed()
        client.kernel.publish("plant/a", b"still")
        assert await stream.values(1) == ["still"]
    run_door(test)


def opening(client, target="/v1/events?filter=plant/%23"):
    """A stream that is asked for and, with the kernel's `hold`, waits for a flush before it begins."""
    return asyncio.ensure_future(client.session.get(f"http://{client.address}{target}"))


def users(client):
    return sum(feed.users for feed in client.door.feeds._feeds.values())


def test_who_hangs_up_while_a_stream_opens_takes_nobody_along():
    async def test(client):
        client.kernel.hold = True
        host, port = client.address.split(":")
        (_, first), (reader, second) = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        for writer in (first, second):                       # and not the session, which would ask again by itself
            writer.write(b"GET /v1/events?filter=plant/%23 HTTP/1.1\r\nHost: hub\r\n\r\n")
        await until(lambda: users(client) == 2)
        first.close()
        await until(lambda: users(client) == 1)
        client.kernel.flush()
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        second.close()
    run_door(test)


@pytest.mark.parametrize(("end", "status"), [
    (lambda registration: registration.session.on_principal_ended("removed"), 401), (lambda registration: None, 403)])
def test_a_right_that_goes_while_a_stream_opens_is_missed(end, status):
    async def test(client):
        client.kernel.hold = True
        stream = opening(client)
        await until(lambda: registrations(client) and users(client))
        for registration in registrations(client):
            end(registration)
        if status == 403:
            client.door.admission.require = denied
        client.kernel.flush()
        assert (await stream).status == status
        await until(lambda: not registrations(client) and not users(client))
    run_door(test)


def denied(*_):
    raise Denied("no")


@pytest.mark.parametrize("more", [True, False])
def test_a_user_who_goes_while_his_reader_looks_at_the_log_is_given_nothing_more(more):
    async def test(client):
        async with await opening(client) as answer:
            await until(lambda: registrations(client))
            (registration,) = registrations(client)
            reader, fetch, asked = registration.session, client.kernel.fetch, []
            await until(lambda: reader in reader._feed.live)
            client.kernel.fetch = lambda *arguments, **options: asked.append((arguments, options))
            reader._feed.leave(reader)
            client.kernel.publish("plant/1", b"behind")
            reader.on_dropped(reader._replay.positions)
            await until(lambda: asked)                       # it waits for the log
            if more:
                reader.on_principal_ended("removed")
            client.kernel.fetch = fetch
            for arguments, options in asked:
                fetch(*arguments, **options)
            if not more:
                assert b"behind" in await answer.content.readuntil(b"behind")
                reader.on_principal_ended("removed")
            assert b"behind" not in await answer.content.read()
            assert not users(client)
    run_door(test)


def test_a_user_who_goes_while_his_feed_reads_is_given_nothing_more():
    async def test(client):
        stream = await follow(client, "/v1/topics/plant/events")
        (registration,) = registrations(client)
        fetch, asked = client.kernel.fetch, []
        client.kernel.fetch = lambda *arguments, **options: asked.append((arguments, options))
        client.kernel.publish("plant/1", b"behind")
        await until(lambda: asked)
        (((wants, max_bytes, on_done, *_), _),), fetched = asked, []
        fetch(wants, max_bytes, fetched.append)
        client.kernel.fetch = fetch
        await until(lambda: fetched)
        registration.session.on_principal_ended("removed")
        on_done(fetched[0])                                  # in the same turn
        assert b"behind" not in await stream.response.content.read()
    run_door(test)


def has_given(feed, partition_id, offset):
    return not feed.live or feed.positions.at(partition_id) > offset and not feed._fetching


@pytest.mark.parametrize("way", ["events", "websocket"])
def test_slow_readers_together_hold_what_the_hub_allows(way):
    budget = UnsentBudget(1 << 20)

    async def test(client):
        if way == "events":
            stream = await follow(client, "/v1/topics/plant/events")
            stream.response.content._protocol.transport.pause_reading()
        else:
            socket = await client.session.ws_connect(f"http://{client.address}/v1/ws")
            await socket.send_str('{"type": "subscribe", "subscription": "s", "topic": "plant", "credit": 1000}')
            await until(lambda: any(feed.live for feed in client.door.feeds._feeds.values()))
            socket._conn.transport.pause_reading()
        (feed,) = client.door.feeds._feeds.values()
        for _ in range(400):
            partition_id, offset, _ = client.kernel.publish("plant/a", b"x" * 65_536)
            await until(partial(has_given, feed, partition_id, offset))
        assert not feed.live, "the reader is slow, and goes on from the log"
        assert budget.used_bytes <= 1 << 20
    run_door(test, services={"unsent": budget}, stream_unsent_bytes=64 << 20)
