"""The end of a transaction's block: what the hub is told, and what the caller hears. The hub is a list of answers."""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from gatehouse_client import Client, Decision, HubError
from gatehouse_client.message import Message
from gatehouse_client.transaction import Transaction, TransactionUndecided


class Hub:
    """A client's side of it: holds everything; decides, or fails with what `failures` says."""

    def __init__(self, *failures: Exception | None) -> None:
        self.told: list[str] = []
        self.documents: list[object] = []
        self._failures = list(failures)

    async def hold(self, path: str, body: bytes, *, once: bool) -> dict[str, Any]:
        return {"id": "1", "messages": [{"id": "1"}]}

    async def request(self, method: str, path: str, document: object = None, **_: object) -> dict[str, Any]:
        self.told.append(path.rpartition("/")[2])
        self.documents.append(document)
        failure = self._failures.pop(0) if self._failures else None
        if failure is not None:
            raise failure
        return {}


def gone() -> HubError:
    return HubError("the hub does not answer")


async def run(hub: Hub, block: Callable[[Transaction], Any], **options: Any) -> Transaction:
    async with Transaction(cast(Client, hub), "shop", **options) as transaction:
        await transaction.publish("orders/1", "x")
        await block(transaction)
    return transaction


async def fail(_: Transaction) -> None:
    raise ZeroDivisionError


async def commit(transaction: Transaction) -> None:
    await transaction.commit()


def test_a_group_goes_on_behind_the_last_of_its_messages_in_whatever_order_they_were_told() -> None:
    async def advance(transaction: Transaction) -> None:
        for offset in (3, 5, 4):
            transaction.advance("g", Message("1", "t", 0, offset, None, None, (), "t", 0, "http"))

    hub = Hub()
    asyncio.run(run(hub, advance))
    assert hub.documents == [{"offsets": [{"group": "g", "topic": "t", "partition": 0, "offset": 6}]}]


def test_a_commit_of_which_nothing_was_heard_is_not_rolled_back() -> None:
    """It may have been carried out, and the caller's own work is done: the check-back finds out."""
    hub = Hub(gone())
    with pytest.raises(TransactionUndecided):
        asyncio.run(run(hub, commit))
    assert hub.told == ["commit"]


def test_nor_if_something_else_fails_behind_it() -> None:
    async def try_and_fail(transaction: Transaction) -> None:
        with pytest.raises(TransactionUndecided):
            await transaction.commit()
        raise ZeroDivisionError

    hub = Hub(gone())
    with pytest.raises(ZeroDivisionError):
        asyncio.run(run(hub, try_and_fail))
    assert hub.told == ["commit"]


def test_the_callers_exception_is_what_the_caller_hears() -> None:
    for outcome in (None, lambda: Decision.COMMIT, lambda: 1 / 0, lambda: None):
        with pytest.raises(ZeroDivisionError) as heard:
            asyncio.run(run(Hub(gone()), fail, outcome=outcome))
        assert heard.traceback[-1].name == "fail"


def test_a_block_that_only_settles_and_fails() -> None:
    message = cast(Message, type("Popped", (), {"receipt_handle": "h"}))

    async def settle() -> None:
        async with Transaction(cast(Client, Hub()), "shop") as transaction:
            transaction.ack(message, "billing")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(settle())


def test_a_block_that_is_cancelled_rolls_back() -> None:
    async def cancelled(hub: Hub) -> None:
        started = asyncio.Event()

        async def wait(_: Transaction) -> None:
            started.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(run(hub, wait))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    hub = Hub()
    asyncio.run(cancelled(hub))
    assert hub.told == ["rollback"]
