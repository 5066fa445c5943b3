"""`/v1/users` and `/v1/acl`, with a real database behind them."""
from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import sqlalchemy as sa

from tests.gateways.admission.kit import Administered
from tests.gateways.http.kit import Client, run_door, until

RULE = {"effect": "allow", "who": "user:ann", "operations": ["publish"], "kind": "address", "pattern": "plant/#",
        "tenant": "/"}


def run(test: Callable[[Client, Administered], Awaitable[None]]) -> None:
    """On a hub that is open to anonymous."""
    rig = Administered(allow_anonymous=True)
    rig.passwords.at_once = True

    async def with_rig(client: Client) -> None:
        await test(client, rig)

    run_door(with_rig, admission=lambda kernel: rig.admission,
             services={"accounts": rig.administration, "now_ms": rig.clock.now_ms})


async def refused(client: Client, method: str, path: str, **options: Any) -> tuple[int, str]:
    answer = await client.ask(method, path, **options)
    return answer.status, answer.code


def test_a_user_from_making_to_deleting() -> None:
    async def test(client: Client, rig: Administered) -> None:
        changes = {"password": "correct horse", "groups": ["ops", "night"], "messages_per_s": 7, "tenants": ["blue"]}
        made = await client.ask("PUT", "/v1/users/ann%2Fb", json=changes)
        assert made.status == 201 and made.json["name"] == "ann/b" and made.json["groups"] == ["night", "ops"]
        assert made.json["has_password"] and b"horse" not in made.body and b"argon2" not in made.body
        changed = await client.ask("PUT", "/v1/users/ann%2Fb", json={"disabled": True})
        assert changed.status == 200 and changed.json["disabled"] and changed.json["messages_per_s"] == 7
        listed = (await client.ask("GET", "/v1/users")).json
        assert listed["users"] == [changed.json] and listed["cursor"] is None
        assert (await client.ask("GET", "/v1/users/ann%2Fb")).json == changed.json
        assert (await client.ask("DELETE", "/v1/users/ann%2Fb")).status == 204
        assert await refused(client, "GET", "/v1/users/ann%2Fb") == (404, "unknown_user")
        assert await refused(client, "DELETE", "/v1/users/ann%2Fb") == (404, "unknown_user")
        assert [(by.name, action) for by, action, _ in rig.audited] == [
            ("anonymous", "user.created"), ("anonymous", "user.changed"), ("anonymous", "user.deleted")]
    run(test)


def test_a_name_is_found_however_it_is_typed() -> None:
    """Some keyboards and file systems make two characters of an accented one; who logs in is told apart by neither."""
    async def test(client: Client, rig: Administered) -> None:
        typed = "/v1/users/e%CC%81va"                            # e, and an accent behind it
        made = await client.ask("PUT", typed, json={"groups": ["ops"]})
        assert (made.status, made.json["name"]) == (201, "\u00e9va")
        assert (await client.ask("GET", typed)).json == (await client.ask("GET", "/v1/users/%C3%A9va")).json
        key = await client.ask("POST", f"{typed}/keys", json={"name": "ingest"})
        assert key.status == 201
        assert (await client.ask("DELETE", f"{typed}/keys/{key.json['id']}")).status == 204
        assert await refused(client, "PUT", typed, json={}, headers={"If-None-Match": "*"}) == (
            412, "precondition_failed")
        assert (await client.ask("DELETE", typed)).status == 204
        assert await refused(client, "GET", "/v1/users/%C3%A9va") == (404, "unknown_user")
        assert await refused(client, "GET", "/v1/users/%E2%80%AE") == (404, "unknown_user")
    run(test)


def test_of_many_who_make_the_same_user_at_once_one_is_told_that_it_is_new() -> None:
    async def test(client: Client, rig: Administered) -> None:
        changing: Any = client.door.changing
        async with changing:                                 # they meet behind a change that takes its time
            asked = [asyncio.create_task(client.ask("PUT", "/v1/users/ann", json={"groups": ["ops"]}))
                     for _ in range(4)]
            await until(lambda: len(changing._waiters or ()) == 4)
        assert sorted([answer.status for answer in await asyncio.gather(*asked)]) == [200, 200, 200, 201]
    run(test)


def test_a_user_whose_name_is_prepared_is_there_already_under_every_spelling() -> None:
    async def test(client: Client, rig: Administered) -> None:
        await client.ask("PUT", "/v1/users/IX", json={"groups": ["night"]})
        only_new = {"If-None-Match": "*"}
        assert await refused(client, "PUT", "/v1/users/%E2%85%A8", json={"groups": []}, headers=only_new) == (
            412, "precondition_failed")                      # U+2168, which SASLprep makes IX of (RFC 4013, 3)
        assert (await client.ask("GET", "/v1/users/IX")).json["groups"] == ["night"]
        assert (await client.ask("PUT", "/v1/users/%E2%85%A8", json={"groups": ["ops"]})).status == 200
        assert await refused(client, "PUT", "/v1/users/%07", headers=only_new) == (400, "invalid_user")
    run(test)


def test_when_a_user_expires() -> None:
    async def test(client: Client, rig: Administered) -> None:
        later_ms = rig.clock.ms + 60_000
        made = await client.ask("PUT", "/v1/users/ann", json={"password": "correct horse", "expires": later_ms})
        assert (made.status, made.json["expires"]) == (201, later_ms)
        ann = {"headers": {"Authorization": "Basic " + b64encode(b"ann:correct horse").decode()}}
        assert (await client.ask("GET", "/v1/topics", **ann)).status == 200
        rig.clock.ms = later_ms
        asked = asyncio.ensure_future(client.ask("GET", "/v1/topics", **ann))
        while not asked.done():
            await asyncio.sleep(0)
            rig.clock.advance(100)
        assert asked.result().status == 401, "on the connection that was let in before"
        for never in (None, 0):
            changed = await client.ask("PUT", "/v1/users/ann", json={"expires": never})
            assert (changed.status, changed.json["expires"]) == (200, None)
            assert (await client.ask("GET", "/v1/topics", **ann)).status == 200
            assert (await client.ask("PUT", "/v1/users/ann", json={"expires": 7})).json["expires"] == 7
    run(test)


def test_pages_of_users() -> None:
    async def test(client: Client, rig: Administered) -> None:
        for name in "cab":
            await client.ask("PUT", f"/v1/users/{name}")
        first = (await client.ask("GET", "/v1/users?max=2")).json
        second = (await client.ask("GET", f"/v1/users?max=2&cursor={first['cursor']}")).json
        assert [user["name"] for user in first["users"] + second["users"]] == ["a", "b", "c"]
        assert second["cursor"] is None
    run(test)


def test_a_key_is_shown_once() -> None:
    async def test(client: Client, rig: Administered) -> None:
        await client.ask("PUT", "/v1/users/ann")
        limits = [{"operations": ["publish"], "kind": "address", "pattern": "plant/#"}]
        made = await client.ask("POST", "/v1/users/ann/keys", json={
            "name": "ingest", "expires": rig.clock.ms + 1000, "restriction": limits})
        assert made.status == 201 and made.json["restriction"] == limits
        shown = await client.ask("GET", "/v1/users/ann")
        assert shown.json["keys"] == [{name: value for name, value in made.json.items() if name != "key"}]
        login = {"Authorization": f"Bearer {made.json['key']}"}
        await client.ask("POST", "/v1/acl", json=RULE)
        assert (await client.ask("POST", "/v1/publish/plant/x", data=b"x", headers=login)).status == 201
        assert await refused(client, "POST", "/v1/publish/other", data=b"x", headers=login) == (403, "not_authorized")
        assert await refused(client, "GET", "/v1/users", headers=login) == (403, "not_authorized")
        assert await refused(client, "DELETE", "/v1/users/bob/keys/" + made.json["id"]) == (404, "unknown_key")
        assert (await client.ask("DELETE", "/v1/users/ann/keys/" + made.json["id"])).status == 204
        assert await refused(client, "DELETE", "/v1/users/ann/keys/" + made.json["id"]) == (404, "unknown_key")
    run(test)


@pytest.mark.parametrize(("path", "document", "status", "code"), [
    ("ann", {"password": "short"}, 400, "invalid_user"), ("ann", {"password": 7}, 400, "invalid_body"),
    ("ann", {"groups": "ops"}, 400, "invalid_body"), ("ann", {"groups": [1]}, 400, "invalid_body"),
    ("ann", {"disabled": 1}, 400, "invalid_body"), ("ann", {"messages_per_s": True}, 400, "invalid_body"),
    ("ann", {"messages_per_s": -1}, 400, "invalid_user"), ("ann", {"password_hash": "x"}, 400, "invalid_body"),
    ("ann", {"expires": -1}, 400, "invalid_body"), ("ann", {"expires": "never"}, 400, "invalid_body"),
    ("ann", {"expires": 1.5}, 400, "invalid_body"), ("ann", {"expires": True}, 400, "invalid_body"),
    ("ann", {"expires": 1 << 53}, 400, "invalid_body"), ("ann", {"tenant": None}, 400, "invalid_body"),
    ("ann", [], 400, "invalid_body"),
    ("anonymous", {}, 400, "invalid_user"), ("x" * 300, {}, 400, "invalid_user"), ("a%0Ab", {}, 400, "invalid_user"),
    ("a%00b", {}, 400, "invalid_address")])
def test_users_that_cannot_be(path: str, document: Any, status: int, code: str) -> None:
    async def test(client: Client, rig: Administered) -> None:
        assert await refused(client, "PUT", f"/v1/users/{path}", json=document) == (status, code)
        assert not rig.accounts.users
    run(test)


@pytest.mark.parametrize(("document", "code"), [
    ({}, "invalid_body"), ({"name": ""}, "invalid_user"), ({"name": "k", "expires": -1}, "invalid_body"),
    ({"name": "k", "expires": "soon"}, "invalid_body"),
    ({"name": "k", "restriction": {}}, "invalid_body"), ({"name": "k", "restriction": [7]}, "invalid_body"),
    ({"name": "k", "restriction": [{"who": "everyone"}]}, "invalid_body"),
    ({"name": "k", "restriction": [{"pattern": "a+"}]}, "invalid_rule"),
    ({"name": "k", "secret": "x"}, "invalid_body")])
def test_keys_that_cannot_be(document: Any, code: str) -> None:
    async def test(client: Client, rig: Administered) -> None:
        await client.ask("PUT", "/v1/users/ann")
        assert await refused(client, "POST", "/v1/users/ann/keys", json=document) == (400, code)
    run(test)


def test_rules() -> None:
    async def test(client: Client, rig: Administered) -> None:
        made = await client.ask("POST", "/v1/acl", json=RULE)
        assert made.status == 201 and made.json == {**RULE, "id": "1", "from_file": False}
        changed = await client.ask("PUT", "/v1/acl/1", json={**RULE, "effect": "deny"})
        assert changed.status == 200 and (await client.ask("GET", "/v1/acl/1")).json == changed.json
        await client.ask("POST", "/v1/acl", json={"who": "group:ops", "kind": "hub"})
        first = (await client.ask("GET", "/v1/acl?max=1")).json
        second = (await client.ask("GET", f"/v1/acl?max=1&cursor={first['cursor']}")).json
        assert [rule["id"] for rule in first["rules"] + second["rules"]] == ["1", "2"] and second["cursor"] is None
        assert (await client.ask("DELETE", "/v1/acl/1")).status == 204
        for method, more in (("GET", {}), ("DELETE", {}), ("PUT", {"json": RULE})):
            assert await refused(client, method, "/v1/acl/1", **more) == (404, "unknown_rule")
        assert await refused(client, "POST", "/v1/acl", json={"who": "ann"}) == (400, "invalid_rule")
        assert await refused(client, "GET", "/v1/acl?cursor=x") == (400, "invalid_cursor")
    run(test)


def test_rules_of_the_file_are_changed_there() -> None:
    async def test(client: Client, rig: Administered) -> None:
        from gatehouse.gateways.admission.rules import read_rule
        rig.admission.configure([read_rule({"who": "user:x", "pattern": "x"}, "file-1")], {}, None)
        assert (await client.ask("GET", "/v1/acl")).json["rules"][0]["from_file"]
        assert await refused(client, "DELETE", "/v1/acl/file-1") == (409, "from_file")
        assert await refused(client, "PUT", "/v1/acl/file-1", json=RULE) == (409, "from_file")
    run(test)


def test_a_verdict_and_its_rule() -> None:
    async def test(client: Client, rig: Administered) -> None:
        rule = (await client.ask("POST", "/v1/acl", json=RULE)).json
        question = {"user": "ann", "operation": "publish", "on": "plant/x"}
        assert (await client.ask("POST", "/v1/acl/test", json=question)).json == {
            "allowed": True, "rule": rule,
            "why": "allowed by the rule: allow user:ann: publish on address plant/# (1)",
            "creates": {"allowed": True, "why": "allowed by the rule: allow user:ann: publish on address plant/# (1)"}}
        denied = (await client.ask("POST", "/v1/acl/test", json={**question, "kind": "topic"})).json
        assert not denied["allowed"] or denied["rule"] == rule
        assert (await client.ask("POST", "/v1/acl/test", json={
            "user": "x", "operation": "administer", "kind": "hub", "groups": ["admins"]})).json["allowed"]
        assert (await client.ask("POST", "/v1/acl/test", json={
            "user": "anonymous", "operation": "publish", "on": "x"})).json["allowed"], "the hub is open"
        for wrong in ({}, {"user": "ann"}, {**question, "operation": "fly"}, {**question, "kind": "door"},
                      {**question, "on": 7}, {**question, "groups": "x"}, {**question, "more": 1},
                      {"user": "ann", "operation": "publish"}):
            assert await refused(client, "POST", "/v1/acl/test", json=wrong) == (400, "invalid_body")
    run(test)


def test_only_administrators() -> None:
    async def test(client: Client, rig: Administered) -> None:
        rule = {"who": "everyone", "pattern": "x"}                                        # of anonymous too
        assert await refused(client, "POST", "/v1/acl", json=rule) == (409, "last_administrator")
        await client.ask("PUT", "/v1/users/root", json={"groups": ["admins"]})
        assert (await client.ask("POST", "/v1/acl", json=rule)).status == 201
        for method, path in (("GET", "/v1/users"), ("GET", "/v1/users/x"), ("PUT", "/v1/users/x"),
                             ("DELETE", "/v1/users/x"), ("POST", "/v1/users/x/keys"), ("DELETE", "/v1/users/x/keys/y"),
                             ("GET", "/v1/acl"), ("POST", "/v1/acl"), ("POST", "/v1/acl/test"), ("GET", "/v1/acl/1"),
                             ("PUT", "/v1/acl/1"), ("DELETE", "/v1/acl/1")):
            assert await refused(client, method, path) == (403, "not_authorized"), path
    run(test)


def test_a_database_that_does_not_answer() -> None:
    async def test(client: Client, rig: Administered) -> None:
        with rig.store._engine.begin() as connection:
            connection.execute(sa.text("DROP TABLE users"))
        assert await refused(client, "PUT", "/v1/users/ann") == (503, "accounts_unavailable")
    run(test)
    run_door(lambda client: _unavailable(client))


async def _unavailable(client: Client) -> None:
    assert await refused(client, "GET", "/v1/users") == (503, "accounts_unavailable")


def test_changes_of_what_was_seen() -> None:
    """RFC 9110, 13.1: two who change the same thing do not undo each other unseen."""
    async def test(client: Client, rig: Administered) -> None:
        only_new = {"If-None-Match": "*"}
        assert (await client.ask("PUT", "/v1/users/ann", json={"groups": ["a"]}, headers=only_new)).status == 201
        assert await refused(client, "PUT", "/v1/users/ann", json={"groups": ["b"]}, headers=only_new) == (
            412, "precondition_failed")
        tag = (await client.ask("GET", "/v1/users/ann")).headers["Etag"]
        assert tag.startswith('"')
        assert (await client.ask("GET", "/v1/users/ann", headers={"If-None-Match": tag})).status == 304
        for wrong in ('"other"', "W/" + tag, "", tag.strip('"')):
            answer = await refused(client, "PUT", "/v1/users/ann", json={"groups": ["b"]}, headers={"If-Match": wrong})
            assert answer == (412, "precondition_failed"), wrong
        seen = {"If-Match": f'"other", {tag}'}
        racing = [client.ask("PUT", "/v1/users/ann", json={"groups": [name]}, headers=seen) for name in "bcdef"]
        assert sorted([answer.status for answer in await asyncio.gather(*racing)]) == [200, 412, 412, 412, 412]
        assert await refused(client, "DELETE", "/v1/users/ann", headers=seen) == (412, "precondition_failed")
        assert (await client.ask("DELETE", "/v1/users/ann", headers={"If-Match": "*"})).status == 204
        assert await refused(client, "DELETE", "/v1/users/ann", headers={"If-Match": "*"}) == (
            412, "precondition_failed")

        rule = (await client.ask("POST", "/v1/acl", json=RULE)).json["id"]
        seen = {"If-Match": (await client.ask("GET", f"/v1/acl/{rule}")).headers["Etag"]}
        assert (await client.ask("PUT", f"/v1/acl/{rule}", json={**RULE, "effect": "deny"}, headers=seen)).status == 200
        assert await refused(client, "PUT", f"/v1/acl/{rule}", json=RULE, headers=seen) == (412, "precondition_failed")
        assert await refused(client, "DELETE", f"/v1/acl/{rule}", headers=seen) == (412, "precondition_failed")
        assert rig.accounts.rules[rule].allows is False
        assert (await client.ask("DELETE", f"/v1/acl/{rule}")).status == 204, "who does not ask is not asked"
    run(test)
