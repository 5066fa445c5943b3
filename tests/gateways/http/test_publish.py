"""POST /v1/publish/{address} on a real connection over the fake kernel."""
from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.limits.limit import Quota
from gatehouse.kernel.errors import IdempotencyConflict, KernelError, StorageFull
from gatehouse.kernel.message import DOOR_MASK, TRANSIENT
from gatehouse.kernel.records.batch import read_headers
from gatehouse.kernel.shedding import Rung
from tests.gateways.accounts import KnownUsers
from tests.gateways.http.fake_kernel import NOW_MS, FakeKernel
from tests.gateways.http.kit import Client, run_door, until
from tests.gateways.http.test_door import basic


def test_a_message_is_stored_and_answered_with_its_place() -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", "/v1/publish/plant/line1/temp", data=b"21.5", headers={
            "Content-Type": "text/plain", "X-Header-Unit": "C", "X-Priority": "3"})
        assert answer.status == 201
        assert answer.json == {"id": str((1 << 60) + 1), "topic": "plant", "partition": answer.json["partition"],
                               "offset": 0,
                               "address": "plant/line1/temp", "timestamp": NOW_MS}
        placement, value, headers, attributes, timestamp_ms = client.kernel.appended[0]
        assert (placement.key, value, timestamp_ms) == (b"line1/temp", b"21.5", 0)
        assert dict(read_headers(headers, 0)[0]) == {b"content-type": b"text/plain", b"unit": b"C", b"priority": b"3"}
        assert attributes == 2
        assert answer.headers["Server"] == "Gatehouse"
        assert answer.headers["Date"].endswith("GMT")
    run_door(test)


@pytest.mark.parametrize(("path", "address", "topic", "key"), [
    ("plant", "plant", "plant", None), ("plant//temp", "plant//temp", "plant", b"/temp"),
    ("plant/a%2Fb", "plant/a%2Fb", "plant", b"a%2Fb"), ("plant/gr%C3%BCn", "plant/grün", "plant", "grün".encode()),
])
def test_addresses(path: str, address: str, topic: str, key: bytes | None) -> None:
    async def test(client: Client) -> None:
        for _ in range(2):      # the second comes from the cache
            answer = await client.ask("POST", f"/v1/publish/{path}", data=b"x")
            assert (answer.json["address"], answer.json["topic"]) == (address, topic)
        assert client.kernel.appended[1][0] is client.kernel.appended[0][0]
        assert client.kernel.appended[0][0].key == key
    run_door(test)


@pytest.mark.parametrize(("path", "code"), [
    ("", "invalid_address"), ("plant/%00", "invalid_address"), ("plant/%zz", "invalid_address"),
    ("plant/%FF", "invalid_address"), ("$SYS/x", "invalid_address"), ("machine%203/temp", "unroutable"),
    ("plant?qos=1", "unknown_parameter"),
])
def test_addresses_that_are_refused(path: str, code: str) -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", f"/v1/publish/{path}", data=b"x")
        assert (answer.status, answer.code) == (400, code)
        assert client.kernel.appended == []
    run_door(test)


def test_timestamp_and_key() -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", "/v1/publish/plant", data=b"x", headers={
            "X-Timestamp": "2020-01-01T00:00:00Z", "X-Message-Key": "line1"})
        assert answer.json["timestamp"] == 1_577_836_800_000
        assert answer.json["address"] == "plant/line1"
        assert client.kernel.appended[0][0].key == b"line1"
        same = await client.ask("POST", "/v1/publish/plant/line1", data=b"x", headers={"X-Message-Key": "line1"})
        assert same.status == 201
        other = await client.ask("POST", "/v1/publish/plant/line1", data=b"x", headers={"X-Message-Key": "line2"})
        assert (other.status, other.code) == (400, "invalid_header")
    run_door(test)


def test_respond_async_is_accepted_and_marked() -> None:
    async def test(client: Client) -> None:
        client.kernel.hold = True
        answer = await client.ask("POST", "/v1/publish/plant/a", data=b"x", headers={"Prefer": "respond-async"})
        assert answer.status == 202
        assert (answer.json["id"], answer.json["offset"], answer.json["topic"]) == (None, None, "plant")
        assert answer.headers["Preference-Applied"] == "respond-async"
        client.kernel.flush()
        assert client.kernel.appended[0][3] & TRANSIENT
        assert client.kernel.appended[0][3] & DOOR_MASK == 2
    run_door(test)


def test_the_answer_waits_for_the_flush_and_many_share_one() -> None:
    async def test(client: Client) -> None:
        client.kernel.hold = True
        asked = [asyncio.create_task(client.ask("POST", f"/v1/publish/plant/{n}", data=b"x")) for n in range(20)]
        await until(lambda: len(client.door.receipts) == 20)
        assert not any(task.done() for task in asked)
        client.kernel.flush()
        assert {answer.status for answer in await asyncio.gather(*asked)} == {201}
    run_door(test)


def test_the_same_idempotency_key_is_stored_once_per_user() -> None:
    async def test(client: Client) -> None:
        headers = {"Idempotency-Key": "order-7"}
        first = await client.ask("POST", "/v1/publish/plant/a", data=b"x", headers=headers)
        again = await client.ask("POST", "/v1/publish/plant/a", data=b"x", headers=headers)
        assert first.body == again.body
        assert len(client.kernel.appended) == 1
        (key,) = client.kernel._answers
        assert "anonymous" in key
    run_door(test)


def test_past_its_deadline_the_outcome_is_unknown() -> None:
    async def test(client: Client) -> None:
        client.kernel.hold = True
        answer = await client.ask("POST", "/v1/publish/plant", data=b"x")
        assert (answer.status, answer.code) == (504, "outcome_unknown")
        client.kernel.flush()      # the late answer is nobody's
        client.kernel.hold = False
        assert (await client.ask("POST", "/v1/publish/plant", data=b"x")).status == 201
    run_door(test, request_deadline_s=1.0)


@pytest.mark.parametrize(("prefer", "status"), [("wait=0", 504), ("wait=0, respond-async", 202)])
def test_a_client_says_how_long_it_waits(prefer: str, status: int) -> None:
    async def test(client: Client) -> None:
        client.kernel.hold = True
        answer = await client.ask("POST", "/v1/publish/plant", data=b"x", headers={"Prefer": prefer})
        assert answer.status == status
        client.kernel.flush()
        client.kernel.hold = False
        assert (await client.ask("POST", "/v1/publish/plant", data=b"x", headers={"Prefer": "wait=5"})).status == 201
        assert len(client.door.receipts) == 0
    run_door(test)


@pytest.mark.parametrize(("fault", "status"), [
    (StorageFull("the disk is full"), 507), (IdempotencyConflict("another message"), 422)])
def test_what_the_kernel_answers(fault: KernelError, status: int) -> None:
    async def test(client: Client) -> None:
        client.kernel.fault = fault
        answer = await client.ask("POST", "/v1/publish/plant", data=b"x")
        assert (answer.status, answer.code) == (status, fault.code)
    run_door(test)


def test_what_the_kernel_refuses_at_once() -> None:
    async def test(client: Client) -> None:
        large = await client.ask("POST", "/v1/publish/plant", data=b"x" * 200)
        assert (large.status, large.code) == (413, "message_too_large")
        client.kernel.stopping = True
        stopping = await client.ask("POST", "/v1/publish/plant", data=b"x")
        assert (stopping.status, stopping.code) == (503, "stopping")
        assert len(client.door.receipts) == 0
    run_door(test, kernel=FakeKernel(max_message_bytes=100))


def test_while_the_hub_is_congested_publishers_wait_unread() -> None:
    async def test(client: Client) -> None:
        client.kernel.congested = True
        asked = [asyncio.create_task(client.ask("POST", "/v1/publish/plant", data=b"x")) for _ in range(3)]
        await until(lambda: bool(client.kernel._relief))
        assert client.kernel.appended == []
        client.kernel.relieve()
        assert {answer.status for answer in await asyncio.gather(*asked)} == {201}
    run_door(test)


def test_a_publisher_does_not_wait_for_relief_beyond_its_deadline() -> None:
    async def test(client: Client) -> None:
        client.kernel.congested = True
        late = await client.ask("POST", "/v1/publish/plant", data=b"x")
        assert (late.status, late.code, late.headers["Retry-After"]) == (503, "busy", "1")
    run_door(test, request_deadline_s=0.1)


def test_while_publishing_waits_nothing_is_taken_and_everything_else_is_answered() -> None:
    async def test(client: Client) -> None:
        shed(client, Rung.PUBLISHERS)
        asked = asyncio.create_task(client.ask("POST", "/v1/publish/plant", data=b"x"))
        await until(lambda: client.kernel.shedding.counts[Rung.PUBLISHERS] > 0)
        assert (await client.ask("GET", "/v1/topics")).status == 200
        assert client.kernel.appended == [] and not asked.done()
        shed(client, Rung.NOTHING)
        assert (await asked).status == 201
    run_door(test)


def test_where_publishing_waits_for_too_long_it_is_refused() -> None:
    async def test(client: Client) -> None:
        shed(client, Rung.PUBLISHERS)
        late = await client.ask("POST", "/v1/publish/plant", data=b"x")
        assert (late.status, late.code, late.headers["Retry-After"]) == (503, "busy", "1")
    run_door(test, request_deadline_s=0.1)


def shed(client: Client, rung: Rung) -> None:
    client.kernel.shedding.level = rung
    client.door.admission.look_at_overload()


def test_over_its_quota_a_user_is_told_when_to_come_back() -> None:
    now = [NOW_MS]

    def limited(kernel: Any) -> Admission:
        return Admission(kernel, lambda: now[0], quotas={"anonymous": Quota(messages_per_s=2)})

    async def test(client: Client) -> None:
        statuses = [(await client.ask("POST", "/v1/publish/plant", data=b"x")).status for _ in range(4)]
        assert statuses == [201, 201, 201, 429]
        refused = await client.ask("POST", "/v1/publish/plant", data=b"x")
        assert (refused.code, refused.headers["Retry-After"]) == ("over_quota", "1")
        now[0] += 1000
        assert (await client.ask("POST", "/v1/publish/plant", data=b"x")).status == 201
    run_door(test, admission=limited, services={"now_ms": lambda: now[0]})


def test_over_its_quota_a_user_is_refused_whatever_he_logs_in_with_and_the_others_are_not_slowed_for_ever() -> None:
    """Ada, by password and by token, is two principals of one name."""
    now = [NOW_MS]

    async def test(client: Client) -> None:
        async def publish(headers: dict[str, str]) -> int:
            return (await client.ask("POST", "/v1/publish/plant", data=b"x", headers=headers)).status

        ada, token, bob = basic("ada", "lovelace"), {"Authorization": "Bearer header.ada.signature"}, basic(
            "bob", "builder")
        assert [await publish(ada) for _ in range(3)] == [201] * 3
        assert [await publish(token), await publish(ada), await publish(bob)] == [429, 429, 201]
        assert client.door.must_wait
        now[0] += 1000
        assert await publish(bob) == 201 and not client.door.must_wait, "ada never came back"
    run_door(test, services={"now_ms": lambda: now[0]}, admission=lambda kernel: KnownUsers(
        kernel, lambda: now[0], quotas={"ada": Quota(messages_per_s=2)}, decision=lambda *_: True))


def test_an_old_client_is_answered_in_its_version() -> None:
    async def test(client: Client) -> None:
        answer = await client.send(b"POST /v1/publish/plant HTTP/1.0\r\nContent-Length: 1\r\n\r\nx")
        assert answer.startswith(b"HTTP/1.0 201 Created\r\n")
        closed = await client.send(b"POST /v1/publish/plant HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
                                   b"Content-Length: 1\r\n\r\nx")
        assert b"Connection: close\r\n" in closed
        absolute = await client.send(b"POST http://h/v1/publish/plant HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
                                     b"Content-Length: 1\r\n\r\nx")
        assert absolute.startswith(b"HTTP/1.1 201 Created\r\n")
    run_door(test)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def test(client: Client) -> None:
        one = b"POST /v1/publish/plant/%d HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"
        last = b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        answer = await client.send(b"".join(one % n for n in range(50)) + last)
        assert answer.count(b"HTTP/1.1 201 Created") == 50
        assert [message[0].key for message in client.kernel.appended] == [b"%d" % n for n in range(50)]
    run_door(test)


def test_a_compressed_body_is_kept_as_sent() -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", "/v1/publish/plant", data=b"\x1f\x8bnot really", headers={
            "Content-Encoding": "gzip"}, compress=None)
        assert answer.status == 201
        assert client.kernel.appended[0][1] == b"\x1f\x8bnot really"
    run_door(test)


@pytest.mark.parametrize(("path", "words"), [
    ("plant%2Fline1%2Ftemp", "/v1/publish?address="), ("plant%2fx/y", "/v1/publish?address="),
    ("plant/+/temp", "wildcard"), ("+", "wildcard"), ("plant/a+b", "wildcard")])
def test_what_is_hardly_meant_is_refused_with_the_way_out(path: str, words: str) -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", f"/v1/publish/{path}", data=b"x")
        assert (answer.status, answer.code) == (400, "invalid_address") and words in answer.json["detail"]
        assert client.kernel.appended == []
    run_door(test)


@pytest.mark.parametrize(("query", "address"), [
    ("plant/line1/temp", "plant/line1/temp"), ("plant%2Fline1%2Ftemp", "plant/line1/temp"),
    ("plant/a%252Fb", "plant/a%2Fb")])
@pytest.mark.parametrize("content_type", ["text/plain", "application/json"])
def test_one_message_to_an_address_in_the_query(query: str, address: str, content_type: str) -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", f"/v1/publish?address={query}", data=b"[21.5]",
                                  headers={"Content-Type": content_type, "X-Header-Unit": "C"})
        assert (answer.status, answer.json["address"]) == (201, address)
        _, value, headers, _, _ = client.kernel.appended[0]
        assert value == b"[21.5]"
        assert dict(read_headers(headers, 0)[0]) == {b"content-type": content_type.encode(), b"unit": b"C"}
    run_door(test)


@pytest.mark.parametrize("query", ["", "plant/%2B/temp", "plant/%23", "plant/%00"])
def test_what_is_no_address_in_the_query(query: str) -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", f"/v1/publish?address={query}", data=b"x")
        assert (answer.status, answer.code) == (400, "invalid_address")
    run_door(test)
