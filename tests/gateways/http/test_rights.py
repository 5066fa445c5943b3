"""Rights while a call waits, and the schemes of a login. That every call asks for its right
is tests/interop/test_http_rights.py."""
from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gatehouse.gateways.admission.attempt import Gone, OnAuthenticated, never
from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.stream import Stream
from tests.gateways.accounts import KnownUsers
from tests.gateways.http.fake_kernel import FakeKernel
from tests.gateways.http.kit import NOW_MS, Client, run_door, until
from tests.gateways.http.test_door import basic


def kernel_with_a_topic() -> FakeKernel:
    kernel = FakeKernel()
    kernel.publish("lab/a", b"1")
    return kernel


# ---- while a call waits

def waiting_door(rights: set[Operation]) -> Any:
    return lambda kernel: KnownUsers(kernel, lambda: NOW_MS, decision=lambda who, what, where: what in rights)


@pytest.mark.parametrize("ends", [True, False])
def test_a_long_poll_ends_with_its_principal_or_its_right(ends: bool) -> None:
    rights = {Operation.CONSUME}

    async def test(client: Client) -> None:
        admission = client.door.admission
        assert isinstance(admission, KnownUsers)
        asking = asyncio.create_task(client.ask("GET", "/v1/topics/lab/messages?from=latest&wait=20",
                                                headers=basic("ada", "lovelace")))
        await until(lambda: admission.registered)
        (principal, session), = admission.registered
        assert principal.name == "ada"
        if ends:
            session.on_principal_ended("the user is disabled")
        else:
            rights.clear()
            session.on_rights_changed()
        answer = await asking
        assert answer.status == (401 if ends else 403)

    run_door(test, kernel=kernel_with_a_topic(), admission=waiting_door(rights))


def test_a_stream_of_checks_sees_a_right_that_is_withdrawn_while_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    rights = {Operation.TRANSACT}
    membership = SimpleNamespace(leave=lambda: None, add_credit=lambda count: None)
    transactions = SimpleNamespace(join=lambda *_, **__: membership)
    start = Stream.start

    async def test(client: Client) -> None:
        admission = client.door.admission
        assert isinstance(admission, KnownUsers)

        def withdraw(answer: Stream) -> None:
            (_, session), = admission.registered
            rights.clear()
            session.on_rights_changed()
            start(answer)

        monkeypatch.setattr(Stream, "start", withdraw)
        answer = await client.ask("GET", "/v1/transactions/checks/events?group=shop", headers=basic("ada", "lovelace"))
        assert answer.status == 200 and b"event:" not in answer.body

    run_door(test, admission=waiting_door(rights), services={"transactions": transactions})


def test_a_page_may_be_asked_for_with_the_right_to_the_topic_alone() -> None:
    async def test(client: Client) -> None:
        for path, status in (("/v1/topics/lab/messages", 200), ("/v1/topics/lab2/messages", 403),
                             ("/v1/topics/missing/messages", 404)):
            assert (await client.ask("GET", path, headers=basic("ada", "lovelace"))).status == status
    run_door(test, kernel=kernel_with_a_topic(), admission=lambda kernel: KnownUsers(
        kernel, lambda: NOW_MS, decision=lambda who, what, where: where in ("lab/#", "missing/#")))


def test_a_login_is_held_against_the_peer_as_every_door_names_it() -> None:
    """With its port, and brackets round an address of IPv6: what `network_of` makes a network of."""
    peers: list[str] = []

    class Noting(KnownUsers):
        def authenticate(self, door: str, peer: str, credentials: Credentials, on_done: OnAuthenticated,
                         gone: Gone = never) -> None:
            peers.append(peer)
            super().authenticate(door, peer, credentials, on_done, gone)

    async def test(client: Client) -> None:
        await client.ask("GET", "/v1/topics", headers=basic("ada", "wrong"))
        host, _, port = peers[0].rpartition(":")
        assert host == "127.0.0.1" and port.isdigit()
    run_door(test, admission=lambda kernel: Noting(kernel, lambda: NOW_MS))


def test_a_token_is_asked_for_by_its_own_scheme() -> None:
    async def test(client: Client) -> None:
        good = await client.ask("GET", "/v1/topics", headers={"Authorization": "Bearer header.ada.signature"})
        bad = await client.ask("GET", "/v1/topics", headers={"Authorization": "bearer header.eve.signature"})
        assert (good.status, bad.status) == (200, 401)
        assert bad.headers["WWW-Authenticate"].startswith('Bearer realm="test", error="invalid_token"')
    run_door(test, admission=lambda kernel: KnownUsers(kernel, lambda: NOW_MS))


def test_where_too_many_logins_wait_a_client_is_told_to_come_again() -> None:
    def full(kernel: Any) -> KnownUsers:
        admission = KnownUsers(kernel, lambda: NOW_MS)
        admission.full = True
        return admission

    async def test(client: Client) -> None:
        answer = await client.ask("GET", "/v1/topics", headers=basic("ada", "lovelace"))
        assert (answer.status, answer.json["code"], answer.headers["Retry-After"]) == (503, "busy", "1")
    run_door(test, admission=full)
