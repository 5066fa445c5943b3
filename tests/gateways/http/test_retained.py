"""Retained values over HTTP, on a real connection."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.kernel.addresses.filters import parse_filter
from gatehouse.kernel.errors import StorageFailed
from gatehouse.kernel.message import RETAIN, Retained
from tests.gateways.http.kit import Client, run_door

NAMES = [f"line{i}" for i in range(5)]


class Values:
    """Stands in for `Kernel.retained`: what was asked, and two values a page."""

    def __init__(self, addresses: list[str], error: Exception | None = None) -> None:
        self.addresses = addresses
        self.error = error
        self.asked: list[tuple[str, str]] = []

    def retained(self, filter: str, tenant: str, on_done: Any, *, max_values: int = 100, start: str = "") -> None:
        self.asked.append((filter, tenant))
        parse_filter(filter)
        found = [address for address in self.addresses if address >= start]
        page = [Retained(address, "plant", 1, 7, (i, 5, address.encode(), b"value", (), RETAIN | 2, 77))
                for i, address in enumerate(found[:max_values])]
        rest = found[max_values:]
        on_done(page, rest[0] if rest else None, self.error)


def using(client: Client, values: Values) -> Values:
    client.kernel.retained = values.retained  # type: ignore[attr-defined]
    return values


@pytest.mark.parametrize(("headers", "attributes"), [
    ({"X-Retain": "true"}, 2 | RETAIN), ({"X-Retain": "1"}, 2 | RETAIN), ({"X-Retain": "false"}, 2), ({}, 2),
])
def test_publishing_sets_the_mark(headers: dict[str, str], attributes: int) -> None:
    async def test(client: Client) -> None:
        await client.ask("POST", "/v1/publish/plant/a", data=b"x", headers=headers)
        items = {"messages": [{"key": "a", "value": "x", "retain": attributes != 2}]}
        await client.ask("POST", "/v1/topics/plant/messages", json=items)
        assert [message[3] for message in client.kernel.appended] == [attributes] * 2
        assert all(b"retain" not in message[2] for message in client.kernel.appended), "it is no header"
    run_door(test)


def test_the_mark_of_many_stands_in_their_json() -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", "/v1/topics/plant/messages", json={"messages": [{"value": "x"}]},
                                  headers={"X-Retain": "true"})
        assert (answer.status, answer.code) == (400, "invalid_header")
    run_door(test)


def test_one_address() -> None:
    async def test(client: Client) -> None:
        values = using(client, Values(["plant/a b"]))
        answer = await client.ask("GET", "/v1/retained/plant/a%20b")
        assert answer.status == 200
        assert answer.json == {"id": "77", "topic": "plant", "partition": 1, "offset": 0, "key": "plant/a b",
                               "value": "value", "headers": [], "address": "plant/a b", "timestamp": 5, "door": "http",
                               "retain": True}
        assert values.asked == [("plant/a b", "/")]
    run_door(test)


def test_nothing_is_retained() -> None:
    async def test(client: Client) -> None:
        using(client, Values([]))
        answer = await client.ask("GET", "/v1/retained/plant/a")
        assert (answer.status, answer.code) == (404, "nothing_retained")
        page = await client.ask("GET", "/v1/retained/plant/%23")
        assert (page.status, page.json) == (200, {"messages": [], "cursor": None})
    run_door(test)


def test_a_filter_gives_pages() -> None:
    async def test(client: Client) -> None:
        values = using(client, Values(NAMES))
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            answer = await client.ask("GET", f"/v1/retained/+/%23?max=2{'&cursor=' + cursor if cursor else ''}")
            found += [message["address"] for message in answer.json["messages"]]
            assert len(answer.json["messages"]) <= 2
            cursor = answer.json["cursor"]
        assert found == NAMES and set(values.asked) == {("+/#", "/")}
    run_door(test)


def test_a_plus_within_a_level_is_no_wildcard() -> None:
    async def test(client: Client) -> None:
        values = using(client, Values([]))
        await client.ask("GET", "/v1/retained/plant/a%2Bb")
        assert values.asked == [("plant/a%2Bb", "/")]
    run_door(test)


@pytest.mark.parametrize(("path", "status", "code"), [
    ("plant/%00", 400, "invalid_address"), ("plant/+?cursor=%C3", 400, "invalid_parameter"),
    ("plant/+?cursor=x", 400, "invalid_cursor"), ("plant/+?max=0", 400, "invalid_parameter"),
    ("plant/+?page=1", 400, "unknown_parameter"), ("", 400, "invalid_filter"), ("+/" * 512, 400, "invalid_filter"),
])
def test_bad_questions(path: str, status: int, code: str) -> None:
    async def test(client: Client) -> None:
        using(client, Values([]))
        answer = await client.ask("GET", f"/v1/retained/{path}")
        assert (answer.status, answer.code) == (status, code)
    run_door(test)


def test_an_index_that_cannot_be_read() -> None:
    async def test(client: Client) -> None:
        using(client, Values([], StorageFailed("broken")))
        assert (await client.ask("GET", "/v1/retained/plant/a")).code == "storage_failed"
    run_door(test)
