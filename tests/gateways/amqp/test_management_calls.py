"""Calls of the management interface on the real kernel: what they publish, and whose caller or queue goes meanwhile."""
from __future__ import annotations

import json
from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Generator
from typing import Any, cast

import pytest

from gatehouse.gateways.amqp.management import hub as hub_calls
from gatehouse.gateways.amqp.management import messages
from gatehouse.gateways.amqp.management.asking import Asking, ManagementError
from gatehouse.gateways.contract import HttpAnswer
from tests.gateways.amqp.fakes import Client
from tests.gateways.amqp.test_with_kernel import KernelHub, fill, taken

TAKE = {"count": 10, "ackmode": "ack_requeue_true", "encoding": "auto"}


class _Pause:
    def __await__(self) -> Generator[None]:
        yield


class Ask:
    """A call that waits until the test goes on with it."""

    query: dict[str, str] = {}
    peer = "test"

    def __init__(self, client: Client, document: object = TAKE) -> None:
        self.principal = client.session.identity.principal
        self.body = json.dumps(document).encode()

    async def told(self, begin: Callable[[Callable[[Any], None]], object]) -> Any:
        heard: list[Any] = []
        begin(heard.append)
        await _Pause()
        return heard[0]

    async def stored(self, change: Callable[[Any, object], object]) -> Any:
        await self.told(lambda tell: change(_Owner(tell), None))


class _Owner:
    def __init__(self, tell: Callable[[Any], None]) -> None:
        self.on_stored = tell


@pytest.fixture
def hub() -> KernelHub:
    return KernelHub()


@pytest.mark.parametrize("flushed", [False, True])
def test_what_is_taken_for_a_caller_that_goes_is_ready_again(hub: KernelHub, flushed: bool) -> None:
    client = hub.client()
    fill(client, "q", b"1", b"2")
    hub.restart()                                          # so that it is read from the disk
    client = hub.client()
    call = messages.get(Asking(hub.services, cast(Any, Ask(client))), "/", "q")
    call.send(None)
    if flushed:
        hub.kernel.flush()
    with pytest.raises(CancelledError):
        call.throw(CancelledError())
    hub.kernel.flush()
    assert taken(client) == [b"1", b"2"]


def test_a_probe_whose_caller_goes_leaves_nothing_taken(hub: KernelHub) -> None:
    client = hub.client()
    call = hub_calls.aliveness(Asking(hub.services, cast(Any, Ask(client))), "/")
    for _ in range(3):                                     # declared, sent, and then taken
        call.send(None)
        hub.kernel.flush()
    with pytest.raises(CancelledError):
        call.throw(CancelledError())
    hub.kernel.flush()
    assert taken(client, "aliveness-test") == [b"test_message"]


def test_a_queue_that_is_deleted_while_it_is_taken_from_is_not_there(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "q")
    call = messages.get(Asking(hub.services, cast(Any, Ask(client))), "/", "q")
    call.send(None)
    client.ask("queue.delete", queue="q")
    with pytest.raises(ManagementError) as refused:
        call.send(None)
    assert refused.value.answer.status == 404


def publishing(hub: KernelHub, client: Client, **properties: Any) -> Coroutine[Any, Any, HttpAnswer]:
    document = {"payload": "x", "payload_encoding": "string", "routing_key": "q", "properties": properties}
    return messages.publish(Asking(hub.services, cast(Any, Ask(client, document))), "/", "amq.default")


def test_a_publish_that_may_be_repeated_is_stored_once(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "q")
    for _ in range(2):
        call = publishing(hub, client, message_id="one", headers={"x-idempotent": True})
        call.send(None)
        hub.kernel.flush()
        with pytest.raises(StopIteration):
            call.send(None)
    assert taken(client) == [b"x"]


def test_a_property_that_is_too_long_is_refused_and_not_cut(hub: KernelHub) -> None:
    client = hub.client()
    fill(client, "q")
    with pytest.raises(ManagementError) as refused:
        publishing(hub, client, type="\u00e9" * 128).send(None)
    assert refused.value.answer.status == 400
