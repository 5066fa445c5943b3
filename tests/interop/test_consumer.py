"""The client's consumer against a real hub: every message is worked off, in order per key where it must be, also while
the hub is killed under it."""
from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gatehouse_client import Client, Consumer, Reject, Retry, RetryLater, SyncClient
from gatehouse_client.errors import LeaseLost
from gatehouse_client.message import Message
from tests.interop.test_client import LossyLink
from tests.running_hub import RunningHub, config_of, free_port

PATIENT = Retry(retries=400, backoff_s=0.1, max_backoff_s=0.5)


def url(hub: RunningHub) -> str:
    return f"http://127.0.0.1:{hub.port('http')}"


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(200):
            await test()
    asyncio.run(bounded())


async def publish(client: Client, topic: str, count: int, keys: int = 7) -> list[str]:
    values = [f"k{number % keys}:{number}" for number in range(count)]
    await client.publish_many([client.message(topic=topic, key=value.partition(":")[0], value=value)
                               for value in values])
    return values


async def until(condition: Callable[[], bool]) -> None:
    """Look until something is so; the test's own time-out bounds it."""
    while True:
        if condition():
            return
        await asyncio.sleep(0.01)


def test_every_message_is_worked_off_once(hub: RunningHub) -> None:
    async def test() -> None:
        seen: list[str] = []

        async def handler(message: Message) -> None:
            await asyncio.sleep(0)
            seen.append(message.text)

        async with Client(url(hub)) as client:
            values = await publish(client, "jobs", 1000)
            async with (client.consumer("workers", "jobs", handler, concurrency=50) as one,
                        client.consumer("workers", "jobs", handler, concurrency=50) as two):
                await until(lambda: one.counts["acked"] + two.counts["acked"] == 1000)
            assert sorted(seen) == sorted(values)
            counted = (await client.group("workers").describe())["topics"][0]
            assert (counted["ready"], counted["leased"], counted["settled"]) == (0, 0, 1000)
    run(test)


def test_a_slow_handler_keeps_its_message(hub: RunningHub) -> None:
    async def test() -> None:
        seen: list[int] = []

        async def handler(message: Message) -> None:
            seen.append(message.attempt)
            await asyncio.sleep(13)

        async with Client(url(hub)) as client:
            await publish(client, "slow", 3)
            async with (client.consumer("g", "slow", handler, invisible_s=12) as one,
                        client.consumer("g", "slow", handler, invisible_s=12) as two):
                await until(lambda: one.counts["acked"] + two.counts["acked"] == 3)
            assert seen == [1, 1, 1]
            assert one.counts["lost"] + two.counts["lost"] == 0
    run(test)


def test_what_fails_is_tried_again_and_ends_as_a_dead_letter(hub: RunningHub) -> None:
    async def test() -> None:
        attempts: Counter[str] = Counter()

        async def handler(message: Message) -> None:
            attempts[message.text] += 1
            match message.text:
                case "twice" if message.attempt < 2:
                    raise ValueError("not yet")
                case "later" if message.attempt < 2:
                    raise RetryLater(0.05)
                case "never":
                    raise ValueError("never")
                case "poison":
                    raise Reject("poison")

        async with Client(url(hub)) as client:
            group = client.group("g", "tries")
            await group.define(max_attempts=3, retry=[10])
            await client.publish_many([client.message("tries/a", value)
                                       for value in ("good", "twice", "later", "never", "poison")])
            async with client.consumer("g", "tries", handler) as consumer:
                await until(lambda: consumer.counts["acked"] == 3)
                letters: list[str] = []
                while len(letters) < 2:
                    await asyncio.sleep(0.01)
                    letters = [letter["value"] for letter in await group.dead_letters()]
            assert sorted(letters) == ["never", "poison"]
            assert attempts == {"good": 1, "twice": 2, "later": 2, "never": 3, "poison": 1}
    run(test)


def test_all_dead_letters_are_shown_however_large_they_are(hub: RunningHub) -> None:
    """A page of the hub has a MiB at most."""
    async def test() -> None:
        async with Client(url(hub)) as client:
            await client.publish_many([client.message("heavy/x", "x" * 300_000) for _ in range(6)])
            group = client.group("lifters", "heavy")
            messages: list[Message] = []
            while len(messages) < 6:
                messages += await group.pop(wait_s=20)
            assert await group.reject(messages) == [None] * 6
            letters: list[dict[str, Any]] = []
            while len(letters) < 6:                                # they are read before they are buried
                await asyncio.sleep(0.01)
                letters = await group.dead_letters()
            assert [len(await group.dead_letters(count)) for count in (5, 100)] == [5, 6]
    run(test)


def test_an_ack_whose_answer_is_lost_has_been_done(hub: RunningHub) -> None:
    async def test() -> None:
        link = LossyLink(hub.port("http"), lost=1)
        async with link.open() as through, Client(through, retry=Retry(3, 0.02)) as lossy, Client(url(hub)) as client:
            await publish(client, "acks", 3)
            held = await client.group("g", "acks").pop()
            assert [type(result) for result in await lossy.group("g", "acks").ack(held)] == [LeaseLost] * 3
            assert link.requests == 2
            assert (await client.group("g").describe())["topics"][0]["settled"] == 3
    run(test)


def test_messages_whose_pop_was_lost_come_again(hub: RunningHub) -> None:
    async def test() -> None:
        seen: list[str] = []

        async def handler(message: Message) -> None:
            seen.append(message.text)

        link = LossyLink(hub.port("http"), lost=1)
        async with link.open() as through, Client(through) as lossy, Client(url(hub)) as client:
            values = await publish(client, "pops", 3)
            await client.group("g").define(retry=[0])
            async with lossy.consumer("g", "pops", handler, invisible_s=0.5) as consumer:
                await until(lambda: consumer.counts["acked"] == 3)
            assert set(seen) == set(values)
            assert len(seen) == 3 + consumer.counts["lost"], "once for each lease that was given"
            assert link.requests > 1
    run(test)


def test_an_ordered_consumer_keeps_every_keys_order_and_runs_keys_side_by_side(hub: RunningHub) -> None:
    async def test() -> None:
        seen: dict[str, list[int]] = {}
        running: set[str] = set()
        two_run = asyncio.Event()

        async def handler(message: Message) -> None:
            key, _, number = message.text.partition(":")
            assert key not in running
            running.add(key)
            if len(running) > 1:
                two_run.set()
            await two_run.wait()
            await asyncio.sleep(0.001)
            running.discard(key)
            if int(number) == 21 and message.attempt == 1:        # its key waits for the retry, the others go on
                raise RetryLater(0.2)
            seen.setdefault(key, []).append(int(number))

        async with Client(url(hub)) as client:
            await publish(client, "line", 140)
            async with client.consumer("ordered", "line", handler, concurrency=20, ordered=True) as consumer:
                await until(lambda: consumer.counts["acked"] == 140)
            assert seen == {f"k{key}": list(range(key, 140, 7)) for key in range(7)}
    run(test)


def test_a_queue_has_consumers_too(hub: RunningHub) -> None:
    async def test() -> None:
        seen: list[tuple[str, str]] = []

        async def handler(message: Message) -> None:
            seen.append((message.topic, message.text))

        async with Client(url(hub)) as client:
            await publish(client, "dies", 3)
            group = client.group("g", "dies")
            await group.reject(await group.pop())
            queue = client.leased_queue("$dead-letters/g")
            async with Consumer(queue, handler) as consumer:
                await until(lambda: consumer.counts["acked"] == 3)
            assert sorted(seen) == [("$queue/$dead-letters/g", f"k{key}:{key}") for key in range(3)]
            assert await queue.pop() == []
    run(test)


def test_a_consumer_may_be_there_before_its_topic(hub: RunningHub) -> None:
    async def test() -> None:
        came = asyncio.Event()
        async with Client(url(hub)) as client, client.consumer("g", "early", lambda _: came.set()):
            await publish(client, "early", 1)
            await came.wait()
    run(test)


def test_batches_for_a_synchronous_client(hub: RunningHub) -> None:
    seen: list[str] = []
    done = threading.Event()

    def handler(messages: list[Message]) -> None:
        assert 1 <= len(messages) <= 20
        seen.extend(message.text for message in messages)
        if len(seen) >= 100:
            done.set()

    with SyncClient(url(hub)) as client:
        values = [str(number) for number in range(100)]
        client.publish_many([client.message("bulk/a", value) for value in values])
        with client.consumer("g", "bulk", handler, concurrency=1, batch=20) as consumer:
            assert done.wait(60)
        assert (seen, consumer.counts["acked"]) == (values, 100)
        assert client.group("g", "bulk").pop() == []


def test_a_hub_that_is_killed_under_its_consumers_loses_nothing(tmp_path: Path) -> None:
    """Published and worked off while it dies: every message at least once, none after its ack was answered."""
    config = config_of(("http",), "").replace("127.0.0.1:0", f"127.0.0.1:{free_port()}")
    hub = RunningHub(tmp_path, config)
    hub.wait_ready()
    total, kills = 3000, 2
    seen: Counter[str] = Counter()
    enough = [asyncio.Event() for _ in range(kills)]

    async def handler(message: Message) -> None:
        await asyncio.sleep(0.002)
        seen[message.text] += 1
        for number, event in enumerate(enough):
            if len(seen) >= total * (number + 1) // (kills + 2):
                event.set()

    async def work(address: str) -> None:
        nonlocal hub
        async with Client(address, retry=PATIENT) as client:
            await client.group("g").define(invisible_ms=2000, max_attempts=0, retry=[0])
            consumers = [client.consumer("g", "safe", handler, concurrency=16, invisible_s=2) for _ in range(3)]
            for consumer in consumers:
                await consumer.start()
            futures = [asyncio.create_task(client.publish(topic="safe", key=str(number % 50), value=str(number)))
                       for number in range(total)]
            for event in enough:
                await event.wait()
                hub.kill()
                hub = RunningHub(tmp_path, config)
                await asyncio.to_thread(hub.wait_ready)
            await asyncio.gather(*futures)
            await until(lambda: len(seen) == total)
            left = 1
            while left:                          # what was worked off and could not be acked in time comes again
                await asyncio.sleep(0.05)
                counted = (await client.group("g").describe())["topics"][0]
                left = counted["ready"] + counted["leased"] + counted["waiting"]
            for consumer in consumers:
                await consumer.stop()
            offsets = await client.group("g", "safe").offsets()
            assert (sum(row["high_watermark"] for row in offsets), sum(row["lag"] for row in offsets)) == (total, 0)
            acked = sum(consumer.counts["acked"] + consumer.counts["lost"] for consumer in consumers)
            assert total <= acked <= sum(seen.values())

    try:
        asyncio.run(asyncio.wait_for(work(url(hub)), 200))
        assert sorted(map(int, seen)) == list(range(total))
    finally:
        hub.kill()
