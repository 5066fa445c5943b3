"""`/v1/connections`: pages, one, closing, and who may."""
from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.connections.open_connections import OpenConnections
from tests.gateways.http.kit import NOW_MS, AuditedAdmission, Client, run_door, until


class Peer:
    """A connection of another door."""

    def __init__(self, peer: str, **told: Any) -> None:
        self.told = {"door": "mqtt", "peer": peer, "listener": "127.0.0.1:1883", "since": 5, "tls": None,
                     "certificate": None, "unsent_bytes": 0, **told}
        self.ended: list[str] = []

    def describe(self) -> dict[str, Any]:
        return self.told

    def end(self, reason: str) -> None:
        self.ended.append(reason)


def connected(*peers: Peer) -> OpenConnections:
    connections = OpenConnections(3)
    for peer in peers:
        peer.told["id"] = connections.add(peer)
    return connections


def test_pages_in_the_order_in_which_they_came() -> None:
    peers = [Peer(f"203.0.113.7:{port}", user="ann", client_id=f"c{port}", subscriptions=2, filters=["a/#"])
             for port in range(5)]

    async def test(client: Client) -> None:
        first = (await client.ask("GET", "/v1/connections?max=3")).json
        assert [one["client_id"] for one in first["connections"]] == ["c0", "c1", "c2"]
        assert first["connections"][0] == {
            "id": "3-1", "door": "mqtt", "peer": "203.0.113.7:0", "listener": "127.0.0.1:1883", "since": 5, "tls": None,
            "certificate": None, "user": "ann", "client_id": "c0", "subscriptions": 2, "unsent_bytes": 0}
        rest = (await client.ask("GET", f"/v1/connections?max=3&cursor={first['cursor']}")).json
        assert [one["id"] for one in rest["connections"]] == ["3-4", "3-5", "3-6"] and rest["cursor"] is None
        asking = rest["connections"][2]
        assert (asking["door"], asking["user"], asking["since"]) == ("http", "anonymous", NOW_MS)
        assert (await client.ask("GET", "/v1/connections?cursor=%21")).code == "invalid_cursor"
    run_door(test, services={"connections": connected(*peers)})


def test_one_with_what_its_door_tells() -> None:
    async def test(client: Client) -> None:
        told = (await client.ask("GET", "/v1/connections/3-1")).json
        assert (told["subscriptions"], told["user"], told["details"]) == (1, "", {"filters": ["a/#"]})
        for unknown in ("3-9", "4-1", "x", "%2F"):
            answer = await client.ask("GET", f"/v1/connections/{unknown}")
            assert (answer.status, answer.code) == (404, "unknown_connection")
    run_door(test, services={"connections": connected(Peer("p:1", subscriptions=1, filters=["a/#"]))})


def test_closing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    peer, audited = Peer("p:1", user="ann"), []
    monkeypatch.setattr(AuditedAdmission, "audit", lambda _, *told: audited.append(told))

    async def test(client: Client) -> None:
        answer = await client.ask("DELETE", "/v1/connections/3-1")
        assert (answer.status, answer.body) == (204, b"")
        assert peer.ended == ["closed by an administrator"]
        [(by, *told)] = audited
        assert (by.name, by.door) == ("anonymous", "http") and by.peer.startswith("127.0.0.1:")
        assert told == ["connection.closed", {
            "id": "3-1", "door": "mqtt", "peer": "p:1", "user": "ann", "client_id": None}]
        assert (await client.ask("DELETE", "/v1/connections/3-9")).status == 404
    run_door(test, services={"connections": connected(peer)})


def test_closing_connections_of_this_door() -> None:
    """An idle one at once; the one that asks, once it has its answer; one whose request does not end, after a grace."""
    async def test(client: Client) -> None:
        host, _, port = client.address.rpartition(":")
        idle, idle_writer = await asyncio.open_connection(host, int(port))
        busy, busy_writer = await asyncio.open_connection(host, int(port))
        busy_writer.write(b"POST /v1/publish/a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab")
        await until(lambda: len(client.service) == 2)
        for one in ("0-1", "0-2", "0-3"):
            assert (await client.ask("DELETE", f"/v1/connections/{one}")).status == 204
        assert await idle.read() == b"" and await busy.read() == b""
        await until(lambda: len(client.service) == 0)
        assert client.service.counts["closed_ended"] == 3
        for writer in (idle_writer, busy_writer):
            writer.close()
    run_door(test)


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/connections"), ("GET", "/v1/connections/3-1"),
                                              ("DELETE", "/v1/connections/3-1")])
def test_it_needs_the_right_to_administer(method: str, path: str) -> None:
    peer = Peer("p:1")

    def admission(kernel: Any) -> Admission:
        return Admission(kernel, lambda: NOW_MS, decision=lambda _, operation, *__: operation != Operation.ADMINISTER)

    async def test(client: Client) -> None:
        answer = await client.ask(method, path)
        assert (answer.status, answer.code) == (403, "not_authorized") and peer.ended == []
    run_door(test, admission=admission, services={"connections": connected(peer)})


def test_streams_are_shown_and_end_in_their_own_words() -> None:
    async def test(client: Client) -> None:
        url = f"http://{client.address}"
        async with (client.session.get(f"{url}/v1/topics/plant/events") as events,
                    client.session.ws_connect(f"{url}/v1/ws") as socket):
            await until(lambda: len(client.service) == 2)
            listed = (await client.ask("GET", "/v1/connections")).json["connections"]
            by_count = {one["subscriptions"]: one["id"] for one in listed[:2]}
            shown = (await client.ask("GET", f"/v1/connections/{by_count[1]}")).json
            assert shown["details"]["path"] == "/v1/topics/plant/events"
            for one in by_count.values():
                assert (await client.ask("DELETE", f"/v1/connections/{one}")).status == 204
            assert (await events.read()).startswith(b"retry: ")
            assert (await socket.receive()).type == aiohttp.WSMsgType.CLOSE and socket.close_code == 1008
        await until(lambda: len(client.service) == 1)
    run_door(test)
