"""Tickets: good for streams, for a while, for their principal, and for nothing else."""
from __future__ import annotations

import logging

import pytest

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.http.login import MAX_OF_PRINCIPAL, MAX_TICKETS, Tickets
from tests.gateways.http.fake_kernel import NOW_MS, FakeKernel
from tests.gateways.http.kit import run_door, until


class Clock:
    now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def tickets(clock):
    return Tickets(Admission(FakeKernel(), clock), "http", 60.0, clock)


def test_a_ticket_stands_for_its_principal_until_its_time_is_over(tickets, clock):
    ada = Principal("ada")
    word = tickets.issue(ada)
    assert tickets.principal_of(word) is ada
    clock.now_ms += 59_999
    assert tickets.principal_of(word) is ada
    clock.now_ms += 1
    with pytest.raises(NotAuthenticated):
        tickets.principal_of(word)
    tickets.issue(ada)
    assert len(tickets) == 1


@pytest.mark.parametrize("word", ["", "x", "a" * 10_000])
def test_an_invented_word_is_refused_and_not_repeated(tickets, word):
    with pytest.raises(NotAuthenticated) as refused:
        tickets.principal_of(word)
    assert not word or f"'{word}'" not in str(refused.value)


def test_a_ticket_ends_with_its_principal(tickets):
    ada, bob = Principal("ada"), Principal("bob")
    of_ada, of_bob = tickets.issue(ada), tickets.issue(bob)
    for registration in list(tickets._admission._registry._by_user["ada"]):
        registration.session.on_principal_ended("removed")
    with pytest.raises(NotAuthenticated):
        tickets.principal_of(of_ada)
    assert tickets.principal_of(of_bob) is bob
    assert "ada" not in tickets._admission._registry._by_user


def test_one_user_cannot_push_out_the_others(tickets):
    bob = Principal("bob")
    of_bob = tickets.issue(bob)
    words = [tickets.issue(Principal("ada")) for _ in range(MAX_OF_PRINCIPAL * 3)]
    assert tickets.principal_of(of_bob) is bob
    assert len(tickets) == MAX_OF_PRINCIPAL + 1 <= MAX_TICKETS
    with pytest.raises(NotAuthenticated):
        tickets.principal_of(words[0])
    assert tickets.principal_of(words[-1]).name == "ada"


def test_it_opens_streams_and_nothing_else(caplog):
    caplog.set_level(logging.DEBUG)

    async def test(client):
        ticket = client.door.tickets.issue(Principal("ada", groups=frozenset({"admins"})))
        for target in ("/v1/topics/plant/events", "/v1/events?filter=plant", "/v1/ws"):
            mark = "&" if "?" in target else "?"
            refused = await client.ask("GET", f"{target}{mark}ticket=wrong")
            assert (refused.status, refused.code) == (401, "not_authenticated")
        response = await client.session.get(f"http://{client.address}/v1/topics/plant/events?ticket={ticket}")
        assert response.status == 200
        await until(lambda: any(feed.live for feed in client.door.feeds._feeds.values()))
        socket = await client.session.ws_connect(f"http://{client.address}/v1/ws?ticket={ticket}")
        await socket.close()
        assert (await client.ask("GET", f"/v1/topics?ticket={ticket}")).status in (400, 401)
        assert (await client.ask("POST", f"/v1/publish/a?ticket={ticket}")).status in (400, 401)
        assert (await client.ask("POST", f"/v1/tickets?ticket={ticket}")).status in (400, 401)
        assert ticket not in caplog.text

    run_door(test, admission=lambda kernel: Admission(
        kernel, lambda: NOW_MS, allow_anonymous=False, decision=lambda *_: True))


def test_who_asks_gets_one():
    async def test(client):
        answer = await client.ask("POST", "/v1/tickets")
        assert (answer.status, answer.headers["Cache-Control"]) == (201, "no-store")
        assert answer.json["expires_in"] == 60
        assert (await client.ask("HEAD", f"/v1/topics/plant/events?ticket={answer.json['ticket']}")).status == 200
    run_door(test)
