"""aio-pika, asyncio's client: transactions, direct replies, priorities, and refusals that leave the connection open."""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage

from tests.interop.test_amqp import hub
from tests.running_hub import RunningHub

__all__ = ["hub"]                      # a fixture

WAIT_S = 60.0
DIRECT = "amq.rabbitmq.reply-to"


@asynccontextmanager
async def connected(hub: RunningHub) -> AsyncIterator[AbstractConnection]:
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{hub.port('amqp')}/", timeout=WAIT_S)
    async with connection:
        yield connection


def run(hub: RunningHub, what: Callable[[AbstractConnection], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        async with connected(hub) as connection:
            await asyncio.wait_for(what(connection), WAIT_S)
    asyncio.run(within())


async def send(channel: AbstractChannel, queue: str, body: bytes, **properties: Any) -> None:
    await channel.default_exchange.publish(aio_pika.Message(body, **properties), queue)


def test_a_transaction_is_committed_or_rolled_back(hub: RunningHub) -> None:
    async def both(connection: AbstractConnection) -> None:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue(exclusive=True)
        async with channel.transaction():
            await send(channel, queue.name, b"1")
        with pytest.raises(KeyError):
            async with channel.transaction():
                await send(channel, queue.name, b"2")
                raise KeyError
        other = await connection.channel()
        there = await other.declare_queue(queue.name, passive=True)
        assert there.declaration_result.message_count == 1
    run(hub, both)


def test_an_answer_comes_directly(hub: RunningHub) -> None:
    async def call(connection: AbstractConnection) -> None:
        server, client = await connection.channel(), await connection.channel()
        requests = await server.declare_queue(exclusive=True)

        async def answer(message: AbstractIncomingMessage) -> None:
            assert message.reply_to is not None
            await send(server, message.reply_to, message.body[::-1], correlation_id=message.correlation_id)
            await message.ack()

        await requests.consume(answer)
        answers: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        queue = await client.get_queue(DIRECT, ensure=False)
        await queue.consume(answers.put, no_ack=True)
        for number in range(20):
            await send(client, requests.name, b"abc%d" % number, reply_to=DIRECT, correlation_id=str(number))
        got = [await answers.get() for _ in range(20)]
        assert {(message.correlation_id, message.body[::-1]) for message in got} \
            == {(str(number), b"abc%d" % number) for number in range(20)}
    run(hub, call)


def test_the_consumer_of_the_highest_priority_gets_everything_it_takes(hub: RunningHub) -> None:
    async def share(connection: AbstractConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        got: dict[str, list[bytes]] = {"low": [], "high": []}
        everything = asyncio.Event()

        def taker(name: str) -> Callable[[AbstractIncomingMessage], Coroutine[Any, Any, None]]:
            async def take(message: AbstractIncomingMessage) -> None:
                got[name].append(message.body)
                if sum(map(len, got.values())) == 200:
                    everything.set()
            return take

        await queue.consume(taker("low"), no_ack=True, arguments={"x-priority": 1})
        await queue.consume(taker("high"), no_ack=True, arguments={"x-priority": 7})
        for number in range(200):
            await send(channel, queue.name, b"%d" % number)
        await everything.wait()
        assert (len(got["high"]), got["low"]) == (200, [])
    run(hub, share)


def test_a_refusal_ends_the_channel_alone(hub: RunningHub) -> None:
    async def ask(connection: AbstractConnection) -> None:
        channel = await connection.channel()
        with pytest.raises(aio_pika.exceptions.ChannelPreconditionFailed, match="unknown exchange type 'nonsense'"):
            await channel.declare_exchange("e", "nonsense")
        assert not connection.is_closed
        await (await connection.channel()).declare_queue(exclusive=True)
    run(hub, ask)
