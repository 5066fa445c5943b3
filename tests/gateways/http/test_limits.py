"""`/v1/limits`, with a real database behind it."""
from __future__ import annotations

import asyncio

import pytest
from yarl import URL

from gatehouse.gateways.admission.limits.limit import read_limit
from gatehouse.kernel.state.topics import FAIL
from tests.gateways.admission.kit import Administered
from tests.gateways.http.kit import Client, run_door, until
from tests.gateways.http.test_session import Begins
from tests.gateways.http.test_users import refused, run

LIMIT = {"of": "user:anonymous", "messages_per_s": 2}
SHOWN = {**LIMIT, "direction": "in", "tenant": "/", "observe": False, "from_file": False}


def test_a_limit_from_making_to_deleting() -> None:
    async def test(client: Client, rig: Administered) -> None:
        made = await client.ask("POST", "/v1/limits", json=LIMIT)
        assert (made.status, made.json) == (201, {**SHOWN, "id": "1"})
        listed = (await client.ask("GET", "/v1/limits")).json
        assert listed == {"limits": [made.json], "cursor": None}
        changed = await client.ask("PUT", "/v1/limits/1", json={**LIMIT, "messages_per_s": 3.5, "messages_burst": 9})
        assert changed.json == {**SHOWN, "id": "1", "messages_per_s": 3.5, "messages_burst": 9}
        assert (await client.ask("GET", "/v1/limits/1")).json == {**changed.json, "used": []}
        assert (await client.ask("DELETE", "/v1/limits/1")).status == 204
        for method, more in (("GET", {}), ("PUT", {"json": LIMIT}), ("DELETE", {})):
            assert await refused(client, method, "/v1/limits/1", **more) == (404, "unknown_limit")
        assert [action for _, action, _ in rig.audited] == ["limit.added", "limit.changed", "limit.removed"]
        assert len(rig.admission.limits) == 0
    run(test)


def test_what_is_no_limit() -> None:
    async def test(client: Client, rig: Administered) -> None:
        for document in ({}, {"of": "user:ann"}, {"of": "user:ann", "messages_per_s": 1, "colour": "red"}):
            assert await refused(client, "POST", "/v1/limits", json=document) == (400, "invalid_limit")
        assert await refused(client, "GET", "/v1/limits?cursor=x") == (400, "invalid_cursor")
        rig.admission.configure((), {}, None, limits=[read_limit(LIMIT, "file-1")])
        assert await refused(client, "DELETE", "/v1/limits/file-1") == (409, "from_file")
        assert await refused(client, "PUT", "/v1/limits/file-1", json=LIMIT) == (409, "from_file")
        assert (await client.ask("GET", "/v1/limits")).json["limits"] == [{**SHOWN, "id": "file-1", "from_file": True}]
        rig.admission.configure((), {}, None)
        assert len(rig.admission.limits) == 0, "a reload without it"
    run(test)


def test_only_what_was_seen_is_changed() -> None:
    async def test(client: Client, rig: Administered) -> None:
        await client.ask("POST", "/v1/limits", json=LIMIT)
        tag = (await client.ask("GET", "/v1/limits/1")).headers["Etag"]
        await client.ask("PUT", "/v1/limits/1", json={**LIMIT, "messages_per_s": 3})
        for method, more in (("PUT", {"json": LIMIT}), ("DELETE", {})):
            assert await refused(client, method, "/v1/limits/1", headers={"If-Match": tag}, **more) == (
                412, "precondition_failed")
        tag = (await client.ask("GET", "/v1/limits/1")).headers["Etag"]
        assert (await client.ask("DELETE", "/v1/limits/1", headers={"If-Match": tag})).status == 204
    run(test)


def test_who_has_taken_most_is_shown() -> None:
    async def test(client: Client, rig: Administered) -> None:
        await client.ask("POST", "/v1/limits", json=LIMIT)
        for _ in range(3):
            assert (await client.ask("POST", "/v1/publish/plant/a", data=b"12345")).status == 201
        used = (await client.ask("GET", "/v1/limits/1")).json["used"]
        assert [(one["name"], one["messages"], one["left"]) for one in used] == [("anonymous", 3, {"messages": -1})]
        over = await client.ask("POST", "/v1/publish/plant/a", data=b"12345")
        assert (over.status, over.code, over.headers["Retry-After"]) == (429, "over_quota", "1")
        await client.ask("DELETE", "/v1/limits/1")
        rig.clock.advance(600)
        assert (await client.ask("POST", "/v1/publish/plant/a", data=b"12345")).status == 201
    run(test)


def test_what_a_topic_does_at_a_limit_is_a_setting_of_it() -> None:
    async def test(client: Client, rig: Administered) -> None:
        made = await client.ask("PUT", "/v1/topics/fast", json={"at_limit": FAIL})
        assert (made.status, made.json["at_limit"]) == (201, FAIL)
        assert (await client.ask("PATCH", "/v1/topics/fast", json={"at_limit": "slow"})).json["at_limit"] == "slow"
        for value in ("drop", None, 1, True):
            assert await refused(client, "PUT", "/v1/topics/fast", json={"at_limit": value}) == (400, "invalid_body")
    run(test)


def test_a_topic_that_fails_refuses_and_a_repetition_costs_nothing() -> None:
    async def test(client: Client, rig: Administered) -> None:
        await client.ask("PUT", "/v1/topics/fast", json={"at_limit": FAIL})
        await client.ask("POST", "/v1/limits", json={"of": "topic:fast", "messages_per_s": 2})
        for _ in range(3):
            made = await client.ask("POST", "/v1/publish/fast/a", data=b"1", headers={"Idempotency-Key": "one"})
            assert made.status == 201
        for _ in range(2):
            assert (await client.ask("POST", "/v1/publish/fast/a", data=b"2")).status == 201
        over = await client.ask("POST", "/v1/publish/fast/a", data=b"3")
        assert (over.status, over.code, over.headers["Retry-After"]) == (429, "over_quota", "1")
        assert (await client.ask("POST", "/v1/publish/other/a", data=b"3")).status == 201, "another topic"
        repeated = await client.ask("POST", "/v1/publish/fast/a", data=b"1", headers={"Idempotency-Key": "one"})
        assert repeated.json == made.json
        rig.clock.advance(500)
        assert (await client.ask("POST", "/v1/publish/fast/a", data=b"3")).status == 201
    run(test)


def test_what_is_given_out_waits_and_is_refused_where_that_would_be_long() -> None:
    async def test(client: Client, rig: Administered) -> None:
        for _ in range(5):
            await client.ask("POST", "/v1/publish/plant/a", data=b"1")
        await client.ask("POST", "/v1/limits", json={"of": "topic:plant", "direction": "out", "messages_per_s": 1,
                                                     "messages_burst": 2})
        first = await client.ask("GET", "/v1/topics/plant/messages?from=earliest")
        assert len(first.json["messages"]) == 5
        asked = asyncio.ensure_future(client.ask("GET", "/v1/topics/plant/messages?from=earliest"))
        while not asked.done():
            await asyncio.sleep(0.01)
            rig.clock.advance(100)
        assert len(asked.result().json["messages"]) == 5
        await client.ask("PUT", "/v1/limits/1", json={"of": "topic:plant", "direction": "out", "messages_per_s": 0})
        assert (await client.ask("GET", "/v1/topics/plant/messages?from=earliest")).status == 200, "it was not known"
        await client.ask("DELETE", "/v1/limits/1")
        assert (await client.ask("GET", "/v1/topics/plant/messages?from=earliest")).status == 200
    run(test)


def test_what_of_a_topic_is_given_out_too_fast_holds_back_no_other() -> None:
    async def test(client: Client, rig: Administered) -> None:
        for address in ("plant/a", "other/a"):
            for _ in range(5):
                await client.ask("POST", f"/v1/publish/{address}", data=b"1")
        await client.ask("POST", "/v1/limits", json={"of": "topic:plant", "direction": "out", "messages_per_s": 0.01,
                                                     "messages_burst": 1})
        assert (await client.ask("GET", "/v1/topics/plant/messages?from=earliest")).status == 200
        over = await client.ask("GET", "/v1/topics/plant/messages?from=earliest")
        assert (over.status, over.code) == (429, "over_quota")
        assert (await client.ask("GET", "/v1/topics/other/messages?from=earliest")).status == 200
    run(test)


@pytest.mark.parametrize("target", ["topics/plant/events?", "events?filter=plant/%2B&"])
def test_a_stream_of_one_topic_is_charged_to_it(target: str) -> None:
    async def test(client: Client, rig: Administered) -> None:
        for _ in range(5):
            await client.ask("POST", "/v1/publish/plant/a", data=b"1")
        await client.ask("POST", "/v1/limits", json={"of": "topic:plant", "direction": "out", "messages_per_s": 1})
        url = URL(f"http://{client.address}/v1/{target}from=earliest", encoded=True)
        async with client.session.get(url) as stream:
            await until(lambda: rig.admission.limits.most_used("1", 1))
            assert rig.admission.limits.most_used("1", 1)[0].messages_taken == 5
            assert stream.status == 200
    run(test)


def test_a_pop_over_websocket_keeps_to_what_may_go_out() -> None:
    async def test(client: Client, rig: Administered) -> None:
        for _ in range(3):
            await client.ask("POST", "/v1/publish/plant/a", data=b"1")
        await client.ask("POST", "/v1/limits", json={**LIMIT, "direction": "out", "messages_per_s": 0.01,
                                                     "messages_burst": 1})
        assert (await client.ask("GET", "/v1/topics/plant/messages?from=earliest")).status == 200
        async with client.session.ws_connect(f"http://{client.address}/v1/ws") as socket:
            await socket.send_json({"type": "pop", "group": "g", "topic": "plant"})
            assert (await socket.receive_json())["problem"]["code"] == "over_quota"
    run(test)


def test_a_limit_of_a_topic_slows_what_goes_to_that_topic_and_nothing_else() -> None:
    async def with_rig(client: Client) -> None:
        async def publish(address: str) -> int:
            return (await client.ask("POST", f"/v1/publish/{address}", data=b"1")).status

        async def many(*addresses: str) -> int:
            messages = [{"address": address, "value": "1"} for address in addresses]
            return (await client.ask("POST", "/v1/publish", json={"messages": messages})).status

        async def half(address: str) -> int:
            return (await client.ask("POST", f"/v1/transactions?group=shop&address={address}", data=b"1")).status

        for of in ("topic:plant", "address:fleet/7/#"):
            await client.ask("POST", "/v1/limits", json={"of": of, "messages_per_s": 1})
        assert [await publish("plant/a"), await publish("plant/b")] == [201, 201]
        over = await client.ask("POST", "/v1/publish/plant/a", data=b"1")
        assert (over.status, over.code, over.headers["Retry-After"]) == (429, "over_quota", "1")
        assert [await publish("fleet/7/gps"), await publish("fleet/7/gps"), await publish("fleet/7")] == [201, 201, 429]
        assert [await publish("fleet/8"), await many("fleet/8", "other"), await half("fleet/8")] == [201, 201, 201]
        assert [await many("plant/a"), await many("other", "plant/a"), await half("plant/a")] == [429, 429, 429]
        rig.clock.advance(1000)
        assert [await publish("plant/a"), await publish("fleet/7/gps")] == [201, 201]
        await client.ask("POST", "/v1/limits", json={**LIMIT, "messages_per_s": 1})
        assert [await publish("other"), await publish("other"), await publish("another")] == [201, 201, 429]
    rig = Administered(allow_anonymous=True)
    run_door(with_rig, admission=lambda kernel: rig.admission, services={
        "accounts": rig.administration, "now_ms": rig.clock.now_ms, "transactions": Begins()})
