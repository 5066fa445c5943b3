"""Webhooks over the fake kernel: what is kept of them, whatever happens at the same time."""
from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gatehouse.gateways.circuits import TargetCircuits
from gatehouse.gateways.http.webhooks.definition import Webhook
from gatehouse.gateways.http.webhooks.guard import TargetGuard
from gatehouse.gateways.http.webhooks.runner import Runner
from gatehouse.gateways.http.webhooks.webhooks import SPACE
from gatehouse.kernel.api import RELEASE, Settling, Taken
from gatehouse.kernel.circuit_breaker import CircuitSettings, CircuitState
from tests.gateways.http.kit import Client, run_door, until

KEY = ("/", "shop")
WEBHOOK = {"url": "https://shop.example/hook", "topic": "orders"}


@pytest.mark.parametrize(("method", "kept"), [("PUT", True), ("DELETE", False)])
def test_a_receiver_that_wants_no_more_undoes_no_change_that_is_under_way(method: str, kept: bool) -> None:
    async def test(client: Client) -> None:
        assert (await client.ask("PUT", "/v1/webhooks/shop", json=WEBHOOK)).status == 201
        client.kernel.hold = True
        changing = asyncio.create_task(client.ask(method, "/v1/webhooks/shop",
                                                  json={**WEBHOOK, "concurrency": 7} if kept else None))
        await until(lambda: client.kernel._pending)
        client.door.webhooks._disable(KEY, "410", b"")          # as its runner does
        client.kernel.flush()
        assert (await changing).status == (200 if kept else 204)
        value = client.kernel.defined.get((SPACE, *KEY))
        assert (value is not None) is kept
        if value is not None:
            assert b'"concurrency":7' in value and b'"enabled":true' in value
    run_door(test)


def test_a_receiver_that_wants_no_more_is_posted_to_no_more() -> None:
    async def test(client: Client) -> None:
        await client.ask("PUT", "/v1/webhooks/shop", json=WEBHOOK)
        client.door.webhooks._disable(KEY, "410", b"")
        told = (await client.ask("GET", "/v1/webhooks/shop")).json
        assert (told["enabled"], told["disabled_because"], told["state"]) == (False, "410", None)
        assert b'"enabled":false' in client.kernel.defined[SPACE, *KEY]
    run_door(test)


class OneGroup:
    """The port's groups, with one member: what is released, and the credit that comes back."""

    def __init__(self) -> None:
        self.credit = 0
        self.released: list[Any] = []

    def join(self, source: object, tenant: str, credit: int, *rest: object) -> int:
        self.credit = credit
        return 1

    def add_credit(self, member: int, count: int) -> None:
        self.credit += count

    def settle_held(self, member: int, handles: list[Any], settling: Settling) -> None:
        assert settling.what == RELEASE
        self.released += handles

    def leave(self, member: int) -> None:
        """Nothing is left behind."""


CUT_SHORT = b"\x02"
"""Headers that end too early."""


def taken(offset: int) -> Taken:
    return Taken((1, offset, 1, 7, 0, None, b"v", CUT_SHORT, 0), "orders", "")


def running(client: Client, group: OneGroup, circuits: TargetCircuits) -> Runner:
    door = SimpleNamespace(loop=client.door.loop, services=client.door.services,
                           admission=client.door.admission, port=SimpleNamespace(groups=group))
    webhook = Webhook("https://shop.example/hook", topic="orders", group="shop", concurrency=2)
    return Runner(cast(Any, door), "/", webhook, TargetGuard(()), circuits,
                  client.door.admission.handing_out("http"), lambda reason, context: None)


def test_a_mistake_in_one_post_is_an_attempt_that_failed_and_holds_up_nothing() -> None:
    async def test(client: Client) -> None:
        group, told = OneGroup(), []
        client.door.loop.set_exception_handler(lambda _, context: told.append(context))
        runner = running(client, group, TargetCircuits(CircuitSettings()))
        await until(lambda: group.credit == 2)
        group.credit -= 2
        runner.on_leased([taken(0), taken(1)])
        await until(lambda: len(told) == 2)
        assert group.credit == 2 and group.released == [(1, 0, 1), (1, 1, 1)]
        assert (runner.describe()["failed"], runner.describe()["posting"]) == (2, 0)
        await runner.close()
    run_door(test)


def test_a_probe_that_comes_to_nothing_is_followed_by_another() -> None:
    async def test(client: Client) -> None:
        group, told = OneGroup(), []
        client.door.loop.set_exception_handler(lambda _, context: told.append(context))
        circuits = TargetCircuits(CircuitSettings())
        circuits.whole.trip(client.door.services.now_ms() - 3_600_000)
        runner = running(client, group, circuits)
        await until(lambda: group.credit == 2)
        for probe in (1, 2):
            runner.on_leased([taken(probe)])
            await until(lambda: not runner.describe()["posting"])
            assert len(told) == probe
        runner.on_leased([taken(3)])
        runner.on_gone()                                     # the topic was deleted in the same turn
        await until(lambda: not runner.describe()["posting"])
        assert circuits.whole.state is CircuitState.OPEN
        await runner.close()
    run_door(test)
