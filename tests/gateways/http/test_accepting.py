"""`Accept`: what is answered, and when 406 is."""
from __future__ import annotations

import pytest

from gatehouse.gateways.http.accepting import accepts
from tests.gateways.http.kit import Client, run_door

JSON = frozenset(("application/json",))


@pytest.mark.parametrize(("accept", "taken"), [
    ("application/json", True), ("application/*", True), ("*/*", True), ("text/html, application/json;q=0.5", True),
    ("Application/JSON ; q=0.1", True), ("text/html", False), ("application/json;q=0", False), ("", False),
    ("*/*, application/json;q=0", False), ("application/*;q=0, application/json", True), (";;,,=", False),
    ("application/json;q=2", True), ("text/plain;charset=utf-8, */*;q=0.001", True),
])
def test_what_a_header_takes(accept: str, taken: bool) -> None:
    assert accepts(accept, JSON) is taken


def test_nothing_is_done_for_who_does_not_take_the_answer() -> None:
    async def test(client: Client) -> None:
        html = {"Accept": "text/html"}
        refused = await client.ask("POST", "/v1/publish/plant", data=b"x", headers=html)
        assert (refused.status, refused.code, client.kernel.appended) == (406, "not_acceptable", [])
        assert (await client.ask("GET", "/v1/topics", headers=html)).code == "not_acceptable"
        assert (await client.ask("GET", "/metrics", headers={"Accept": "text/plain"})).status == 200
        assert (await client.ask("GET", "/v1/topics", headers={"Accept": ""})).status == 200
        taken = await client.ask("POST", "/v1/publish/plant", data=b"x", headers={"Accept": "application/json"})
        assert taken.status == 201
        gone = await client.ask("DELETE", "/v1/topics/plant", headers=html)
        assert gone.status == 204, "an answer without a body is no type"
    run_door(test)
