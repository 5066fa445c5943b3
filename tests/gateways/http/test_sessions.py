"""`/v1/sessions`: pages, one, and ending one."""
from __future__ import annotations

from typing import Any

from gatehouse.kernel.errors import UnknownSession
from gatehouse.kernel.message import Owner, Stored, tell
from gatehouse.kernel.sessions.session_values import NEVER, SessionDescription, Subscribed
from tests.gateways.http.fake_kernel import FakeKernel
from tests.gateways.http.kit import Client, run_door


class Sessions:
    """Some sessions of the tenant `/`; `deleted` are those that were."""

    def __init__(self, *client_ids: str) -> None:
        self._all = {client_id: SessionDescription(
            "/", client_id, "ann", at == 0, 1_000, 9_000 if at else 0, 60_000 if at else NEVER,
            [Subscribed("plant/#", 1, identifier=7)], 3, 2, 1, {"limit": 5, "expired": 0, "denied": 0, "lost": 0})
            for at, client_id in enumerate(client_ids)}

    def page(self, tenant: str, after: str, limit: int) -> list[SessionDescription]:
        return [self._all[name] for name in sorted(self._all) if name > after][:limit]

    def describe(self, tenant: str, client_id: str) -> SessionDescription | None:
        return self._all.get(client_id)

    def delete(self, tenant: str, client_id: str, owner: Owner, token: object) -> None:
        if self._all.pop(client_id, None) is None:
            raise UnknownSession("there is none")
        tell(owner, [Stored(token, None, 0, [])])


def kernel(*client_ids: str) -> FakeKernel:
    fake: Any = FakeKernel()
    fake.sessions = Sessions(*client_ids)
    kernel: FakeKernel = fake
    return kernel


def test_pages_and_one() -> None:
    async def test(client: Client) -> None:
        first = (await client.ask("GET", "/v1/sessions?max=2")).json
        assert [one["client_id"] for one in first["sessions"]] == ["c/0", "c/1"] and first["cursor"]
        rest = (await client.ask("GET", f"/v1/sessions?max=2&cursor={first['cursor']}")).json
        assert [one["client_id"] for one in rest["sessions"]] == ["c/2"] and rest["cursor"] is None
        assert (await client.ask("GET", "/v1/sessions/c%2F1")).json == {
            "client_id": "c/1", "user": "ann", "connected": False, "created": 1_000, "expires": 9_000, "expiry": 60_000,
            "subscriptions": 1, "waiting": 3, "in_flight": 2, "received": 1,
            "dropped": {"limit": 5, "expired": 0, "denied": 0, "lost": 0},
            "filters": [{"filter": "plant/#", "qos": 1, "no_local": False, "retain_as_published": False,
                         "retain_handling": 0, "identifier": 7, "selector": None}]}
        endless = (await client.ask("GET", "/v1/sessions/c%2F0")).json
        assert (endless["connected"], endless["expires"], endless["expiry"]) == (True, None, None)
        assert (await client.ask("GET", "/v1/sessions?cursor=x")).code == "invalid_cursor"
        answer = await client.ask("GET", "/v1/sessions/nobody")
        assert (answer.status, answer.code) == (404, "unknown_session")
    run_door(test, kernel=kernel("c/0", "c/1", "c/2"))


def test_ending_one() -> None:
    async def test(client: Client) -> None:
        assert (await client.ask("DELETE", "/v1/sessions/c")).status == 204
        answer = await client.ask("DELETE", "/v1/sessions/c")
        assert (answer.status, answer.code) == (404, "unknown_session")
    run_door(test, kernel=kernel("c"))
