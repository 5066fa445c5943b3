"""Popping over a group that answers when the test says so: who hangs up, or may no longer take, has taken nothing."""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.http.routes.leases import take
from gatehouse.kernel.errors import Stopping
from gatehouse.kernel.message import Leased
from tests.gateways.http.kit import Client, run_door

LEASED = cast("Leased", ("partition 1", 0, 1, 7, 0, None, b"1", b"", 0))


class Group:
    """One pop, and what was given back."""

    ready = False
    error = None

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

    def release(self, handles: list[Any], delay_ms: int) -> None:
        if self.fault is not None:
            raise self.fault
        self.given_back += handles


async def begun(client: Client, group: Group, require: Callable[[], object] = lambda: None
                ) -> asyncio.Task[list[Leased]]:
    task = asyncio.create_task(take(client.door, Principal("ada"), cast(Any, group), 1, 1000, 20.0, require))
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

        def require() -> None:
            raise Denied("no")
        task = await begun(client, group, require)
        group.on_popped([LEASED])
        with pytest.raises(Denied):
            await task
        assert group.given_back == [LEASED[:3]]
    run_door(test)
