"""Popping over a group that answers when the test says so: who hangs up, or may no longer take, has taken nothing."""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from gatehouse.gateways.admission.admission import Admission, Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.http.routes.leases import taking
from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.groups.group_settings import GroupSettings
from gatehouse.kernel.message import Leased
from tests.gateways.http.kit import NOW_MS, Client, run_door

LEASED = cast("Leased", ("partition 1", 0, 1, 7, 0, None, b"1", b"", 0))


SOURCE = ("workers", "orders")


class Group:
    """One pop, and what was given back."""

    has_ready = False
    error = None
    settings = GroupSettings()

    def __init__(self) -> None:
        self.given_back: list[Any] = []
        self.fault: Exception | None = None
        self.cancelled = False

    def pop(self, count: int, invisible_ms: int, on_popped: Callable[[list[Leased]], None], taker: object = None
            ) -> Group:
        self.on_popped = on_popped
        return self

    def on_time(self) -> None:
        """Not in these tests."""

    def cancel(self) -> None:
        self.cancelled = True

    def give_back(self, handles: list[Any]) -> None:
        if self.fault is not None:
            raise self.fault
        self.given_back += handles


class Groups:
    """The one group that there is."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def group(self, name: str, topic: str, tenant: str) -> Group:
        return self._group

    def handles(self, tenant: str, name: str) -> Groups:
        return self

    def encode(self, handle: object) -> str:
        return "receipt"

    def address_of_leased(self, leased: Leased) -> str:
        return "orders"


async def begun(client: Client, group: Group) -> asyncio.Task[list[Leased]]:
    """Somebody asks for one message. `client.kernel` is given the group."""
    client.kernel.groups = Groups(group)                     # type: ignore[attr-defined]
    if client.kernel.topic("orders") is None:
        client.kernel.create_topic("orders")
    guard = client.door.guard_of(client.door.admission.anonymous)

    async def take() -> list[Leased]:
        async with taking(client.door, guard, SOURCE, 1, 1000, 20.0) as (_, taken):
            return [each.leased for each in taken]

    task = asyncio.create_task(take())
    await asyncio.sleep(0)
    return task


def test_what_is_popped_is_taken() -> None:
    async def test(client: Client) -> None:
        group = Group()
        task = await begun(client, group)
        group.on_popped([LEASED])
        assert (await task, group.given_back) == ([LEASED], [])
    run_door(test)


@pytest.mark.parametrize("answer_first", [True, False])
@pytest.mark.parametrize("fault", [None, Stopping("the hub is stopping")])
def test_who_hangs_up_has_taken_nothing(answer_first: bool, fault: Exception | None) -> None:
    """Also when it happens in the very turn in which the answer comes."""
    async def test(client: Client) -> None:
        group = Group()
        group.fault = fault
        task = await begun(client, group)
        if answer_first:
            group.on_popped([LEASED])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if not answer_first:
            group.on_popped([LEASED])
        assert group.given_back == ([] if fault else [LEASED[:3]])
        assert group.cancelled
    run_door(test)


def test_who_may_no_longer_take_has_taken_nothing() -> None:
    async def test(client: Client) -> None:
        group = Group()
        task = await begun(client, group)
        rights.clear()
        group.on_popped([LEASED])
        with pytest.raises(Denied):
            await task
        assert group.given_back == [LEASED[:3]]
    rights = {Operation.CONSUME}
    run_door(test, admission=lambda kernel: Admission(kernel, lambda: NOW_MS,
                                                      decision=lambda who, what, where: what in rights))
