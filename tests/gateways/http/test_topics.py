"""Topics: create, show, change, delete, list; and their stored batches."""
from __future__ import annotations

from typing import Any, cast

import pytest

from gatehouse.kernel.errors import StorageFull
from gatehouse.kernel.message import Piece
from gatehouse.kernel.records.batch import check_batch, records_of
from tests.gateways.http.fake_kernel import NOW_MS, FakeKernel
from tests.gateways.http.kit import AuditedAdmission, Client, run_door

OTHER_SETTINGS = {"retention_bytes": None, "log_append_time": False,
                  "at_limit": "slow",
                  "message_ttl_ms": None, "compact": False, "delete_retention_ms": None, "interpret_headers": False}


def test_put_creates_and_then_replaces() -> None:
    async def test(client: Client) -> None:
        made = await client.ask("PUT", "/v1/topics/plant", json={"partitions": 3, "retention_ms": 60000})
        assert (made.status, made.headers["Location"]) == (201, "/v1/topics/plant")
        assert made.json == {"name": "plant", "uuid": made.json["uuid"], "partitions": 3, "retention_ms": 60000,
                             **OTHER_SETTINGS, "max_message_bytes": None, "created": NOW_MS}
        same = await client.ask("PUT", "/v1/topics/plant", json={"partitions": 3, "retention_ms": 60000})
        assert (same.status, same.json) == (200, made.json)
        replaced = await client.ask("PUT", "/v1/topics/plant", json={"max_message_bytes": 10})
        assert replaced.status == 200
        assert (replaced.json["retention_ms"], replaced.json["max_message_bytes"]) == (None, 10)
        assert replaced.json["partitions"] == 3
        assert (await client.ask("POST", "/v1/publish/plant", data=b"x" * 11)).status == 413
    run_door(test)


def test_patch_changes_what_it_names() -> None:
    async def test(client: Client) -> None:
        await client.ask("PUT", "/v1/topics/plant", json={"partitions": 3, "retention_ms": 60000})
        changed = await client.ask("PATCH", "/v1/topics/plant", json={"partitions": 5})
        assert (changed.status, changed.json["partitions"], changed.json["retention_ms"]) == (200, 5, 60000)
        back = await client.ask("PATCH", "/v1/topics/plant", json={"retention_ms": None})
        assert (back.json["partitions"], back.json["retention_ms"]) == (5, None)
        unchanged = await client.ask("PATCH", "/v1/topics/plant", data=b"")
        assert unchanged.json == back.json
        fewer = await client.ask("PATCH", "/v1/topics/plant", json={"partitions": 2})
        assert (fewer.status, fewer.code) == (409, "partitions_remain")
        assert (await client.ask("PATCH", "/v1/topics/nowhere", json={})).code == "unknown_topic"
    run_door(test)


def test_get_shows_bounds_and_delete_forgets() -> None:
    async def test(client: Client) -> None:
        await client.ask("PUT", "/v1/topics/plant", json={"partitions": 1})
        client.kernel.publish("plant/a", b"x")
        shown = await client.ask("GET", "/v1/topics/plant")
        assert shown.json["bounds"] == [{"partition": 0, "log_start_offset": 0, "high_watermark": 1}]
        gone = await client.ask("DELETE", "/v1/topics/plant")
        assert (gone.status, gone.body) == (204, b"")
        for method in ("GET", "DELETE"):
            assert (await client.ask(method, "/v1/topics/plant")).code == "unknown_topic"
    run_door(test)


def test_the_list_goes_on_behind_its_cursor() -> None:
    async def test(client: Client) -> None:
        for name in ("c", "a", "b"):
            await client.ask("PUT", f"/v1/topics/{name}", json={"partitions": 1})
        first = await client.ask("GET", "/v1/topics?max=2")
        assert [topic["name"] for topic in first.json["topics"]] == ["a", "b"]
        rest = await client.ask("GET", f"/v1/topics?max=2&cursor={first.json['cursor']}")
        assert ([topic["name"] for topic in rest.json["topics"]], rest.json["cursor"]) == (["c"], None)
        for garbage in ("%C3%BC", "!!!!", "YQ=", "YQ==", "Y", "YR", "Yg%20"):
            assert (await client.ask("GET", f"/v1/topics?cursor={garbage}")).code == "invalid_cursor"
    run_door(test)


@pytest.mark.parametrize(("document", "code"), [
    ({"partitions": 0}, "invalid_body"), ({"partitions": "3"}, "invalid_body"), ({"partitions": True}, "invalid_body"),
    ({"compact": 1}, "invalid_body"), ({"compact": None}, "invalid_body"),
    ({"message_ttl_ms": True}, "invalid_body"),
    ({"retention_bytes": 0}, "invalid_body"), ({"retention": 1}, "invalid_body"),
    ({"retention_ms": -1}, "invalid_body"),
    ({"partitions": 1_000_001}, "invalid_topic"), ([], "invalid_body"),
])
def test_settings_that_are_refused(document: Any, code: str) -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("PUT", "/v1/topics/plant", json=document)
        assert (answer.status, answer.code) == (400, code)
        assert client.kernel.topic("plant") is None
    run_door(test)


def test_other_refusals() -> None:
    async def test(client: Client) -> None:
        assert (await client.ask("PUT", "/v1/topics/a%2Fb", json={})).code == "invalid_topic"
        assert (await client.ask("PUT", "/v1/topics/plant", data=b"partitions=3")).code == "unsupported_media_type"
        broken = await client.ask("PUT", "/v1/topics/plant", data=b"{", headers={"Content-Type": "application/json"})
        assert broken.code == "invalid_body"
        nested = await client.ask("PUT", "/v1/topics/plant", data=b'{"partitions": %b}' % (b"[" * 1000 + b"]" * 1000),
                                  headers={"Content-Type": "application/json"})
        assert nested.code == "invalid_body"
        client.kernel.fault = StorageFull("no space")
        assert (await client.ask("PUT", "/v1/topics/plant", json={})).status == 507
    run_door(test)


def test_batches_are_kafkas_and_can_be_read_in_a_row() -> None:
    kernel = FakeKernel(default_partitions=1)
    for number in range(5):
        kernel.publish(f"plant/{number}", b"%d" % number)

    async def test(client: Client) -> None:
        offset, seen = 1, []
        for _ in range(5):
            answer = await client.ask("GET", f"/v1/topics/plant/batches?partition=0&offset={offset}&max_bytes=1")
            assert (answer.status, answer.headers["Content-Type"]) == (200, "application/octet-stream")
            assert (answer.headers["X-Log-Start-Offset"], answer.headers["X-High-Watermark"]) == ("0", "5")
            if not answer.body:
                break
            header = check_batch(answer.body)
            whole = Piece(header.base_offset, header.record_count, True, answer.body, 0, 0, 0)
            seen += [record[3] for record in records_of(whole)]
            offset = int(answer.headers["X-Next-Offset"])
        assert seen == [b"1", b"2", b"3", b"4"]
        assert (offset, int(answer.headers["X-Next-Offset"])) == (5, 5)
        at_once = await client.ask("GET", "/v1/topics/plant/batches?partition=0&offset=0")
        assert at_once.headers["X-Next-Offset"] == "5"
    run_door(test, kernel=kernel)


@pytest.mark.parametrize(("query", "status", "code"), [
    ("", 400, "invalid_parameter"), ("?partition=0", 400, "invalid_parameter"),
    ("?partition=1&offset=0", 404, "unknown_partition"),
    ("?partition=0&offset=9", 416, "offset_out_of_range"),
    ("?partition=0&offset=0&max_bytes=0", 400, "invalid_parameter"),
])
def test_batches_refusals(query: str, status: int, code: str) -> None:
    async def test(client: Client) -> None:
        await client.ask("PUT", "/v1/topics/plant", json={"partitions": 1})
        answer = await client.ask("GET", "/v1/topics/plant/batches" + query)
        assert (answer.status, answer.code) == (status, code)
        if status == 416:
            assert (answer.json["log_start_offset"], answer.json["high_watermark"]) == (0, 0)
    run_door(test)


def test_changes_are_audited_and_refusals_are_not() -> None:
    async def test(client: Client) -> None:
        await client.ask("PUT", "/v1/topics/a", json={})
        await client.ask("PATCH", "/v1/topics/a", json={"partitions": 0})
        await client.ask("DELETE", "/v1/topics/a")
        await client.ask("DELETE", "/v1/topics/a")
        audited = cast(AuditedAdmission, client.door.admission).audited
        assert audited == [("anonymous", "topic.changed"), ("anonymous", "topic.deleted")]
    run_door(test)
