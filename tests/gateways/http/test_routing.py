"""The route table: literals before captures, captures raw, `Allow` complete."""
from __future__ import annotations

import pytest

from gatehouse.gateways.http.routes import build_table
from gatehouse.gateways.http.routing import RouteTable


@pytest.fixture
def table() -> RouteTable[str]:
    table: RouteTable[str] = RouteTable()
    table.add("GET", "/v1/topics/{topic}", "get")
    table.add("PUT", "/v1/topics/{topic}", "put")
    table.add("GET", "/v1/topics/{topic}/messages", "messages")
    table.add("POST", "/v1/publish/{address...}", "publish")
    table.add("GET", "/v1/transactions/checks", "checks")
    table.add("POST", "/v1/transactions/{id}/commit", "commit")
    table.add("GET", "/", "root")
    return table


@pytest.mark.parametrize(("path", "handler", "captures"), [
    ("/v1/topics/a%2Fb", "get", ("a%2Fb",)),
    ("/v1/topics/messages/messages", "messages", ("messages",)),
    ("/v1/publish/a//b%2F", "publish", ("a//b%2F",)),
    ("/v1/publish/", "publish", ("",)),
    ("/v1/transactions/checks", "checks", ()),
    ("/v1/transactions/7/commit", "commit", ("7",)),
    ("/", "root", ()),
])
def test_finds(table: RouteTable[str], path: str, handler: str, captures: tuple[str, ...]) -> None:
    found = table.find(path)
    assert found is not None
    assert handler in found[0].handlers.values()
    assert found[1] == captures


@pytest.mark.parametrize("path", ["/v1", "/v1/topics", "/v1/topics/", "/v1/topics//messages", "/v1/topics/a/messages/b",
                                  "/v1/publish", "/V1/topics/a", "*", ""])
def test_finds_nothing(table: RouteTable[str], path: str) -> None:
    assert table.find(path) is None


def test_head_is_answered_by_get(table: RouteTable[str]) -> None:
    found = table.find("/v1/topics/a")
    assert found is not None
    assert found[0].handler("HEAD") == "get"
    assert found[0].handler("POST") is None
    assert found[0].allow() == "GET, HEAD, PUT"


def test_a_call_is_declared_once(table: RouteTable[str]) -> None:
    with pytest.raises(ValueError, match="twice"):
        table.add("GET", "/v1/topics/{name}", "again")


def test_the_door_has_every_call_of_the_interface() -> None:
    declared = {(method, endpoint.pattern) for endpoint in build_table().endpoints for method in endpoint.handlers}
    assert {("POST", "/v1/publish/{address...}"), ("POST", "/v1/topics/{topic}/messages"),
            ("GET", "/v1/topics/{topic}/messages"), ("GET", "/v1/topics/{topic}/batches"), ("GET", "/v1/ws"),
            ("POST", "/v1/groups/{group}/pop"), ("GET", "/v1/transactions/checks"), ("GET", "/metrics")} <= declared
    assert len(declared) >= 52
