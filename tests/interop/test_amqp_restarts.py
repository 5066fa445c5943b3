"""What is due while the hub is down is done by the next one as if it had been there, whichever door opens first."""
from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPConnectionError

from tests.interop.asking import ask
from tests.running_hub import DEADLINE_S, RunningHub, running_hub

TTL_MS = 1_000

# No door listens before a message was given up: at a start that happens now and then before the first one does.
LATE_TO_LISTEN = """
import asyncio, time
from gatehouse.gateways.connections.listener import Listener
from gatehouse.kernel.groups.dead_lettering import DeadLetters

given_up = []
keep, start = DeadLetters.keep, Listener.start

def keep_noted(self, group, messages, reason):
    keep(self, group, messages, reason)
    given_up.extend(messages)

async def start_late(self, addresses):
    end_s = time.monotonic() + 10
    while not given_up and time.monotonic() < end_s:
        await asyncio.sleep(0.01)
    return await start(self, addresses)

DeadLetters.keep, Listener.start = keep_noted, start_late
from gatehouse.cli.main import main
main()
"""


@contextmanager
def channel_of(hub: RunningHub) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", hub.port("amqp"), heartbeat=0))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        with suppress(AMQPConnectionError):        # the hub was killed
            connection.close()


def declare_delay(channel: BlockingChannel) -> None:
    """What enters `delay` is in `due` a second later, by an exchange."""
    channel.exchange_declare("levels", "topic", durable=True)
    channel.queue_declare("delay", durable=True, arguments={
        "x-queue-type": "quorum", "x-message-ttl": TTL_MS, "x-dead-letter-exchange": "levels",
        "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"})
    channel.queue_declare("due", durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_bind("due", "levels", "#")


def wait_until_due(published_s: float) -> None:
    while time.time() < published_s + TTL_MS / 1000:
        time.sleep(0.01)


def next_in(channel: BlockingChannel, queue: str) -> bytes:
    end_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < end_s:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            return bytes(body)
        time.sleep(0.01)
    raise AssertionError(f"nothing came to {queue}")


@pytest.mark.parametrize("doors", [("http", "amqp"), ("amqp", "http")])
def test_what_expires_while_the_hub_is_down_is_a_dead_letter(doors: tuple[str, ...], tmp_path: Path) -> None:
    with running_hub(tmp_path, *doors) as hub, channel_of(hub) as channel:
        declare_delay(channel)
        channel.basic_publish("", "delay", b"paid for")
        published_s = time.time()
        hub.kill()
    wait_until_due(published_s)
    with running_hub(tmp_path, *doors, program=LATE_TO_LISTEN) as hub, channel_of(hub) as channel:
        assert next_in(channel, "due") == b"paid for"


def test_what_expires_in_a_hub_without_the_door_that_knows_where_it_goes_is_kept(tmp_path: Path) -> None:
    with running_hub(tmp_path, "amqp", "http") as hub, channel_of(hub) as channel:
        declare_delay(channel)
        channel.basic_publish("", "delay", b"paid for")
        published_s = time.time()
        hub.kill()
    wait_until_due(published_s)
    with running_hub(tmp_path, "http") as hub:
        end_s = time.monotonic() + DEADLINE_S
        letters: list[object] = []
        while not letters and time.monotonic() < end_s:
            status, answer = ask(hub, "GET", "/v1/dead-letters?group=delay")
            letters = [letter["value"] for letter in answer["messages"]] if status == 200 else []
    assert letters == ["paid for"]
