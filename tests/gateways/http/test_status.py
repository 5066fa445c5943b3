"""What the hub says of itself: once for all who listen, and no more than they may know."""
from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.routes import status
from tests.gateways.http.kit import Client, run_door, until

SUMMARY = {"hub": "test", "version": "0.1.0", "ready": True, "now": 2, "started": 1}


class FakeStatus:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def summary(self) -> dict[str, Any]:
        return dict(SUMMARY)

    async def document(self) -> dict[str, Any]:
        self.asked += 1
        return {**SUMMARY, "doors": [], "topics": self.asked}

    def history(self) -> dict[str, Any]:
        return {"interval_s": 1.0, "doors": {"mqtt": {"messages_in": [1.0], "messages_out": [2.0]}}}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "INTERVAL_S", 0.02)


class Reader:
    """Reads the stream of events of one answer."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def next(self) -> tuple[str, Any]:
        event = await self._answer.content.readuntil(b"\n\n")
        if not event:
            raise EOFError
        name, data = event.decode().removesuffix("\n\n").split("\n")
        return name.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))


def deny_administering(client: Client) -> None:
    decide = client.door.admission._decide
    client.door.admission._decide = lambda *asked: (    # type: ignore[method-assign]
        asked[1] is not Operation.ADMINISTER and decide(*asked))


def test_an_administrator_is_told_everything() -> None:
    async def test(client: Client) -> None:
        told = await client.ask("GET", "/v1/status")
        assert (told.status, told.headers["Cache-Control"]) == (200, "no-store")
        assert told.json == {**SUMMARY, "doors": [], "topics": 1, "you": {
            "user": "anonymous", "tenant": "/", "anonymous": True, "administrator": True}}
    run_door(test, services={"status": FakeStatus()})


def test_others_are_told_less() -> None:
    async def test(client: Client) -> None:
        deny_administering(client)
        told = (await client.ask("GET", "/v1/status")).json
        assert told.pop("you")["administrator"] is False
        assert told == SUMMARY
        async with client.session.get(f"http://{client.address}/v1/status/events") as answer:
            name, told = await Reader(answer).next()
            assert (name, told.keys()) == ("status", SUMMARY.keys() | {"you"})
    run_door(test, services={"status": FakeStatus()})


def test_a_hundred_readers_cost_what_one_does_and_none_costs_nothing() -> None:
    source = FakeStatus()

    async def test(client: Client) -> None:
        await asyncio.sleep(0.1)
        assert source.asked == 0
        began_s = client.door.loop.time()
        answers = [await client.session.get(f"http://{client.address}/v1/status/events") for _ in range(100)]
        readers = [Reader(answer) for answer in answers]
        assert {(await reader.next())[0] for reader in readers} == {"history"}
        for _ in range(3):
            assert len({(await reader.next())[0] for reader in readers}) == 1
        assert source.asked <= 3 + (client.door.loop.time() - began_s) / status.INTERVAL_S
        for answer in answers:
            answer.close()
        await until(lambda: not client.door.admission._registry._by_user)
        begun = status.Pulse.of(client.door)._next              # what the last of them have waited for
        assert begun is not None
        await begun
        asked = source.asked
        await asyncio.sleep(0.1)
        assert source.asked == asked
    run_door(test, services={"status": source}, max_connections=200)


def test_who_comes_while_the_document_is_made_is_told_it_too() -> None:
    class Slow(FakeStatus):
        async def document(self) -> dict[str, Any]:
            await asyncio.sleep(0.05)
            return await super().document()

    async def test(client: Client) -> None:
        url = f"http://{client.address}/v1/status/events"
        for answer in await asyncio.gather(*(client.session.get(url) for _ in range(5))):
            reader = Reader(answer)
            assert (await reader.next())[0] == "history"
            name, told = await reader.next()
            assert (name, told["doors"]) == ("status", [])
            answer.close()
    run_door(test, services={"status": Slow()})


def test_the_stream_ends_with_its_user_and_with_the_hub() -> None:
    async def test(client: Client) -> None:
        answer = await client.session.get(f"http://{client.address}/v1/status/events")
        reader = Reader(answer)
        await reader.next()
        (registration,) = [registration for registrations in client.door.admission._registry._by_user.values()
                           for registration in registrations]
        registration.session.on_principal_ended("disabled")
        with pytest.raises(EOFError):
            while True:
                await reader.next()
        other = Reader(await client.session.get(f"http://{client.address}/v1/status/events"))
        await other.next()
        client.door.begin_stopping()
        with pytest.raises(EOFError):
            while True:
                await other.next()
        assert not client.door.admission._registry._by_user
    run_door(test, services={"status": FakeStatus()})


def test_a_ticket_opens_the_stream_and_nothing_is_sent_to_who_asks_for_the_head_alone() -> None:
    async def test(client: Client) -> None:
        ticket = (await client.ask("POST", "/v1/tickets")).json["ticket"]
        answer = await client.session.get(f"http://{client.address}/v1/status/events?ticket={ticket}")
        assert answer.headers["Content-Type"] == "text/event-stream"
        answer.close()
        assert (await client.ask("GET", "/v1/status/events?ticket=invented")).code == "not_authenticated"
        head = await client.ask("HEAD", "/v1/status/events")
        assert (head.status, head.headers["Content-Type"], head.body) == (200, "text/event-stream", b"")
    run_door(test, services={"status": FakeStatus()})


def test_a_hub_that_cannot_tell() -> None:
    async def test(client: Client) -> None:
        for path in ("/v1/status", "/v1/status/events"):
            assert (await client.ask("GET", path)).code == "not_built"
    run_door(test)
