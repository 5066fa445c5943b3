"""`/v1/circuits`: people see what the hub depends on, and turn it off and on."""
from __future__ import annotations

from gatehouse.gateways.admission.decision import Operation
from gatehouse.kernel.circuit_breaker import CircuitBreaker, CircuitSettings
from tests.gateways.http.kit import Client, run_door

WEBHOOK = {"url": "https://shop.example/hook", "topic": "orders"}
CLOSED = {"circuit": "closed", "by_hand": False, "opened": 0, "until": None, "reason": ""}


def test_circuits_are_listed_opened_and_closed() -> None:
    async def test(client: Client) -> None:
        circuit = CircuitBreaker(CircuitSettings())
        turned: list[bool] = []
        client.door.services.circuits.keep("issuer:jwt", circuit, lambda: turned.append(True))
        assert (await client.ask("PUT", "/v1/webhooks/shop", json=WEBHOOK)).status == 201
        listed = (await client.ask("GET", "/v1/circuits?max=1")).json
        assert listed["circuits"] == [{"id": "issuer:jwt", **CLOSED}]
        rest = (await client.ask("GET", f"/v1/circuits?cursor={listed['cursor']}")).json
        assert rest == {"circuits": [{"id": "webhook:shop", **CLOSED}], "cursor": None}
        opened = await client.ask("PUT", "/v1/circuits/issuer:jwt", json={"circuit": "open"})
        assert opened.json == {"id": "issuer:jwt", **CLOSED, "circuit": "open", "by_hand": True, "opened": 1}
        assert not circuit.may_pass(1 << 50)
        closed = await client.ask("PUT", "/v1/circuits/issuer:jwt", json={"circuit": "closed"})
        assert closed.json["circuit"] == "closed"
        assert turned == [True, True]
    run_door(test)


def test_a_webhook_shows_its_circuit_and_has_none_while_it_is_disabled() -> None:
    async def test(client: Client) -> None:
        await client.ask("PUT", "/v1/webhooks/shop", json=WEBHOOK)
        await client.ask("PUT", "/v1/circuits/webhook:shop", json={"circuit": "open"})
        assert (await client.ask("GET", "/v1/webhooks/shop")).json["state"]["circuit"] == "open"
        await client.ask("PUT", "/v1/circuits/webhook:shop", json={"circuit": "closed"})
        assert (await client.ask("GET", "/v1/circuits/webhook:shop")).json["circuit"] == "closed"
        await client.ask("PUT", "/v1/webhooks/shop", json={**WEBHOOK, "enabled": False})
        assert (await client.ask("GET", "/v1/circuits/webhook:shop")).code == "unknown_circuit"
        await client.ask("PUT", "/v1/webhooks/shop", json=WEBHOOK)
        await client.ask("DELETE", "/v1/webhooks/shop")
        assert (await client.ask("GET", "/v1/circuits")).json == {"circuits": [], "cursor": None}
    run_door(test)


def test_what_is_wrong_is_refused() -> None:
    async def test(client: Client) -> None:
        assert (await client.ask("GET", "/v1/circuits/issuer:jwt")).code == "unknown_circuit"
        turned = await client.ask("PUT", "/v1/circuits/issuer:jwt", json={"circuit": "closed"})
        assert turned.code == "unknown_circuit"
        assert (await client.ask("PUT", "/v1/circuits/issuer:jwt", json={"circuit": "half"})).code == "invalid_body"
        decide = client.door.admission._decide
        client.door.admission._decide = lambda *asked: (    # type: ignore[method-assign]
            asked[1] is not Operation.ADMINISTER and decide(*asked))
        assert (await client.ask("GET", "/v1/circuits")).status == 403
    run_door(test)
