"""`If-Match` and `If-None-Match` of changes: what they compare, and that one of several wins."""
from __future__ import annotations

import asyncio

import pytest

from gatehouse.gateways.http.preconditions import check_conditions, strong_tag
from gatehouse.gateways.http.problems import Refusal
from tests.gateways.http.kit import Client, run_door

DEFINITION = {"name": "a"}
TAG = strong_tag(b'{"name":"a"}')
FULL = strong_tag(b'{"name":"a"}', b'{"name":"a","ready":7}')


@pytest.mark.parametrize("wanted", [TAG, FULL, "*", f'"other", {FULL}', FULL.partition(".")[0] + '.of-before"'])
def test_what_was_seen(wanted: str) -> None:
    check_conditions({"if-match": wanted}, DEFINITION)
    with pytest.raises(Refusal) as refused:
        check_conditions({"if-match": wanted}, None)
    assert refused.value.code == "precondition_failed"


@pytest.mark.parametrize("wanted", ["", '"other"', f"W/{TAG}", f"W/{FULL}", TAG.strip('"'), "." + FULL, '"."'])
def test_what_was_not(wanted: str) -> None:
    with pytest.raises(Refusal):
        check_conditions({"if-match": wanted}, DEFINITION)


@pytest.mark.parametrize(("unwanted", "goes"), [
    ("*", False), (TAG, False), (FULL, False), (f"W/{FULL}", False), ('"other"', True)])
def test_what_must_not_be_there(unwanted: str, goes: bool) -> None:
    check_conditions({"if-none-match": unwanted}, None)
    if goes:
        check_conditions({"if-none-match": unwanted}, DEFINITION)
    else:
        with pytest.raises(Refusal):
            check_conditions({"if-none-match": unwanted}, DEFINITION)


def test_a_topic_is_changed_as_it_was_seen() -> None:
    async def test(client: Client) -> None:
        path, only_new = "/v1/topics/plant", {"If-None-Match": "*"}
        assert (await client.ask("PUT", path, json={"partitions": 2}, headers=only_new)).status == 201
        assert (await client.ask("PUT", path, json={"partitions": 4}, headers=only_new)).code == "precondition_failed"
        seen = {"If-Match": (await client.ask("GET", path)).headers["Etag"]}
        client.kernel.publish("plant/a", b"1")
        assert (await client.ask("GET", path)).headers["Etag"] != seen["If-Match"], "its bounds are others"
        answers = await asyncio.gather(*[
            client.ask("PATCH", path, json={"retention_ms": 1000 + number}, headers=seen) for number in range(10)])
        assert sorted(answer.status for answer in answers) == [200] + [412] * 9
        for method in ("PUT", "PATCH", "DELETE"):
            assert (await client.ask(method, path, headers=seen)).code == "precondition_failed"
        seen = {"If-Match": (await client.ask("GET", path)).headers["Etag"]}
        assert (await client.ask("DELETE", path, headers=seen)).status == 204
        for method in ("PUT", "PATCH", "DELETE"):
            assert (await client.ask(method, path, headers=seen)).code == "precondition_failed"
        assert (await client.ask("GET", path)).code == "unknown_topic"
    run_door(test)


@pytest.mark.parametrize("target", ["/v1/publish/plant/a", "/v1/topics/plant/messages"])
def test_nothing_is_published_on_a_condition(target: str) -> None:
    async def test(client: Client) -> None:
        await client.ask("POST", "/v1/publish/plant/a", data=b"1")
        url = f"http://{client.address}{target}"
        async with client.session.post(url, data=b"2", headers={"If-Match": "*"}) as refused:
            assert (refused.status, (await refused.json(content_type=None))["code"]) == (501, "not_built")
        assert [message[1] for message in client.kernel.appended] == [b"1"]
    run_door(test)
