"""The Python client against a real hub: what it says is stored is stored once, whatever happens on the way."""
from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from gatehouse_client import Batching, Client, HubError, OutcomeUnknown, Retry, SyncClient
from gatehouse_client.door import Answer, HttpDoor
from gatehouse_client.errors import Conflict, InvalidRequest, NotFound, TooLarge, Unavailable
from tests.running_hub import ROOT, RunningHub, config_of, free_port

QUICK = Retry(retries=3, backoff_s=0.02)
PATIENT = Retry(retries=400, backoff_s=0.1, max_backoff_s=0.5)
WAIT_S = 60
PROGRAMS = [program for page in ("docs/client.md", "client/README.md")
            for program in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)]


def url(hub: RunningHub) -> str:
    return f"http://127.0.0.1:{hub.port('http')}"


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(200):
            await test()
    asyncio.run(bounded())


async def values(client: Client, topic: str) -> list[str]:
    return [message.text async for message in client.read(topic)]


class LossyLink:
    """A way to the hub that loses the answers of the first `lost` requests: the hub acted, the client hears nothing."""

    def __init__(self, port: int, lost: int) -> None:
        self.port = port
        self.lost = lost
        self.requests = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hub_reader, hub_writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            with suppress(EOFError):
                while True:
                    hub_writer.write(await self._message(reader))
                    self.requests += 1
                    answer = await self._message(hub_reader)
                    if self.requests <= self.lost:
                        return
                    writer.write(answer)
        finally:
            hub_writer.close()
            writer.close()

    async def _message(self, reader: asyncio.StreamReader) -> bytes:
        """One request or answer, in however many pieces it comes. Raises EOFError."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)\r\n", head, re.IGNORECASE)
        return head + await reader.readexactly(int(length[1]) if length else 0)


class StoppingDoor(HttpDoor):
    """Its second request finds a hub that stops."""

    requests = 0

    async def ask(self, *arguments: Any, **options: Any) -> Answer:
        self.requests += 1
        if self.requests == 2:
            raise Unavailable("the hub stops", "stopping", 503)
        return await super().ask(*arguments, **options)


def test_publish_and_read(hub: RunningHub) -> None:
    async def test() -> None:
        async with Client(url(hub)) as client:
            stored = await client.publish("plant/line1/temp", "21.5", headers=[("Unit", "C"), ("Unit", b"\xff")],
                                          content_type="text/plain", priority=4)
            assert (stored.topic, stored.address) == ("plant", "plant/line1/temp")
            keyed = await client.publish(topic="plant", key=b"\xfe", value=None)
            assert keyed.topic == "plant"
            found = {message.id: message async for message in client.read("plant")}
            message = found[stored.id or ""]
            assert (message.key, message.value, message.door) == (b"line1/temp", b"21.5", "http")
            assert message.headers == (("Unit", b"C"), ("Unit", b"\xff"))
            assert message.properties == {"content_type": "text/plain", "priority": 4}
            assert (found[keyed.id or ""].key, found[keyed.id or ""].value) == (b"\xfe", None)
            assert [topic["name"] for topic in await client.topics()] == ["plant"]
            assert await client.ready()
    run(test)


def test_many_messages_some_of_which_cannot_be(hub: RunningHub) -> None:
    async def test() -> None:
        async with Client(url(hub)) as client:
            results = await client.publish_many([
                client.message("a/x", "1"), client.message("b/+", "2"), client.message(topic="c", key="k", value="3"),
                client.message("a/x", b"x" * (5 << 20)), client.message("a/x", "4")])
            assert [type(result).__name__ for result in results] == [
                "Stored", "InvalidRequest", "Stored", "TooLarge", "Stored"]
            assert await values(client, "a") == ["1", "4"]
            with pytest.raises(TooLarge) as refused:
                await client.publish("a/x", b"x" * (5 << 20))
            assert (refused.value.code, refused.value.status) == ("message_too_large", 413)
            with pytest.raises(NotFound, match="unknown_topic"):
                await values(client, "nothing")
            await client.publish("a/x", "5", idempotency_key="k")
            with pytest.raises(Conflict, match="idempotency_conflict"):
                await client.publish("a/x", "6", idempotency_key="k")
    run(test)


def test_submitted_messages_are_stored_in_their_order(hub: RunningHub) -> None:
    async def test() -> None:
        told: list[int | None] = []
        async with Client(url(hub), batching=Batching(max_messages=100, buffered_messages=300)) as client:
            await client.define_topic("many", partitions=1)
            for number in range(2000):
                await client.submit("many/key", str(number), on_done=lambda future: told.append(future.result().offset))
            bad = await client.submit("many/#", "x")
            await client.flush()
            assert told == list(range(2000))
            assert isinstance(bad.exception(), InvalidRequest)
            assert await values(client, "many") == [str(number) for number in range(2000)]
    run(test)


def test_delayed_messages_are_listed_recalled_and_come(hub: RunningHub) -> None:
    async def test() -> None:
        async with Client(url(hub)) as client:
            late = await client.publish("later/a", "late", delay=3600)
            soon = await client.publish("later/a", "soon", delay=1)
            assert late.offset is None
            assert [waiting["id"] for waiting in await client.scheduled() if waiting["id"] == late.id]
            await client.recall(late.id or "")
            assert (await client.show_scheduled(late.id or ""))["state"] == "recalled"
            group = client.group("g", "later")
            (message,) = await group.pop(wait_s=30)
            assert (message.text, message.id) == ("soon", soon.id)
            with pytest.raises(Conflict, match="already_delivered"):
                await client.recall(soon.id or "")
            with pytest.raises(NotFound):
                await client.recall("77")
            with pytest.raises(InvalidRequest):
                await client.publish("later/a", "x", delay=1e10)
    run(test)


def test_last_values(hub: RunningHub) -> None:
    async def test() -> None:
        async with Client(url(hub)) as client:
            for address in ("last/a/temp", "last/b/temp", "last/b%2Fc/50%", "last/b/rpm"):
                await client.publish(address, "old", retain=True)
                await client.publish(address, f"of {address}", retain=True)
            assert [value.text for value in await client.retained("last/a/temp")] == ["of last/a/temp"]
            assert [value.text for value in await client.retained("last/+/temp")] == ["of last/a/temp",
                                                                                      "of last/b/temp"]
            assert [value.address for value in await client.retained("last/b%2Fc/50%")] == ["last/b%2Fc/50%"]
            assert len(await client.retained("last/#")) == 4
            await client.publish("last/a/temp", None, retain=True)
            assert await client.retained("last/a/temp") == []
    run(test)


def test_oneway_messages_arrive(hub: RunningHub) -> None:
    async def test() -> None:
        async with Client(url(hub)) as client:
            await client.publish_oneway(*(client.message("way/x", str(number)) for number in range(10)))
            await client.publish("way/x", "last")
            assert await values(client, "way") == [*map(str, range(10)), "last"]
            with pytest.raises(HubError, match="invalid_address"):
                await client.publish_oneway(client.message("way/#", "x"))
    run(test)


def test_a_lost_answer_is_asked_for_again_and_stores_once(hub: RunningHub) -> None:
    async def test() -> None:
        for lost in (1, 3):
            link = LossyLink(hub.port("http"), lost)
            async with link.open() as through, Client(through, retry=QUICK) as client:
                stored = await client.publish(f"lossy{lost}/a", "once", expires_in=3600)
                results = await client.publish_many([client.message(f"lossy{lost}/a", "b")] * 3)
                assert link.requests == lost + 2
            async with Client(url(hub)) as client:
                messages = [message async for message in client.read(f"lossy{lost}")]
                assert [message.text for message in messages] == ["once", "b", "b", "b"]
                assert [message.id for message in messages] == [stored.id, *(result.id for result in results)]
    run(test)


def test_an_outcome_that_stays_unknown_can_be_asked_for_later(hub: RunningHub) -> None:
    async def test() -> None:
        link = LossyLink(hub.port("http"), lost=4)
        async with link.open() as through, Client(through, retry=QUICK) as client:
            with pytest.raises(OutcomeUnknown) as unknown:
                await client.publish("unknown/a", "once")
            assert link.requests == 4
            assert unknown.value.idempotency_key
            stored = await client.publish("unknown/a", "once", idempotency_key=unknown.value.idempotency_key)
            assert (stored.offset, await values(client, "unknown")) == (0, ["once"])
    run(test)


def test_what_is_stored_of_several_requests_is_not_stored_again(hub: RunningHub) -> None:
    """The hub stops taking messages between the first request and the second."""
    async def test() -> None:
        async with Client(url(hub)) as client:
            messages = [client.message(topic="parts", key=str(number), value="x" * 1_500_000) for number in range(3)]
            client.door = StoppingDoor(url(hub), user=None, password=None, retry=QUICK, timeout_s=15, connections=1)
            with pytest.raises(OutcomeUnknown, match="2 messages were answered for before this") as unknown:
                await client.publish_many(messages)
            assert unknown.value.code == "stopping"
            await client.publish_many(messages, idempotency_key=unknown.value.idempotency_key)
            assert len(await values(client, "parts")) == 3
            await client.door.close()
    run(test)


def test_the_key_of_a_batch_is_no_key_of_one_of_its_messages(hub: RunningHub) -> None:
    async def test() -> None:
        async with LossyLink(hub.port("http"), lost=4).open() as through, Client(through, retry=QUICK) as client:
            futures = [await client.submit("unknown/b", str(number)) for number in range(2)]
            await client.flush()
            assert [(type(future.exception()), getattr(future.exception(), "idempotency_key", ""))
                    for future in futures] == [(OutcomeUnknown, None)] * 2
    run(test)


def test_a_oneway_message_is_never_repeated(hub: RunningHub) -> None:
    async def test() -> None:
        link = LossyLink(hub.port("http"), lost=1)
        async with link.open() as through, Client(through, retry=QUICK) as client:
            with pytest.raises(OutcomeUnknown):
                await client.publish_oneway(client.message("way/x", "1"))
            assert link.requests == 1
    run(test)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_programs_of_the_pages_run_as_they_stand_there(hub: RunningHub, program: str) -> None:
    assert "http://127.0.0.1:8080" in program
    done = subprocess.run([sys.executable, "-c", program.replace("http://127.0.0.1:8080", url(hub))], text=True,
                          capture_output=True, cwd=ROOT, timeout=200, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    if "consumer" in program:
        shown = [line for line in done.stdout.splitlines() if line.startswith("plant/line2/temp ")]
        assert [line.split()[1] for line in shown] == [str(number) for number in range(1000)]
    elif "transaction" in program:
        assert done.stdout == "Decision.COMMIT ['one book']\n"
    elif "resize" in program:
        assert done.stdout.splitlines() == ["0 picture-7.png", "working on picture-7.png"]


def test_a_hub_without_tls_is_told_from_none(hub: RunningHub) -> None:
    async def test() -> None:
        async with Client(f"https://127.0.0.1:{hub.port('http')}", retry=QUICK) as client:
            with pytest.raises(Unavailable, match="does not speak TLS"):
                await client.publish("a", "x")
    run(test)


def test_no_hub() -> None:
    async def test() -> None:
        async with Client(f"http://127.0.0.1:{free_port()}", retry=QUICK) as client:
            with pytest.raises(Unavailable, match="no hub answers"):
                await client.publish("a", "x")
            assert await client.submit("a", "x")
            future = await client.submit("a", "y")
            await client.flush()
            assert isinstance(future.exception(), Unavailable)
    run(test)


def test_a_hub_that_says_nothing_is_given_up() -> None:
    """The loop's clock is set on when a request has come: that is the client's whole patience at once."""
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked, late_s
        await reader.readuntil(b"\r\n\r\n")
        asked += 1
        late_s += 60
        await reader.read()
        writer.close()

    async def test() -> None:
        asyncio.get_running_loop().time = lambda: time.monotonic() + late_s  # type: ignore[method-assign]
        async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with Client(f"http://127.0.0.1:{port}", retry=Retry(1, 0.01), timeout_s=60) as client:
                with pytest.raises(OutcomeUnknown, match="nothing came within"):
                    await client.publish("a", "x")
            assert asked == 2

    asked = late_s = 0
    run(test)


def restart(hub: RunningHub, folder: Path, config: str) -> RunningHub:
    hub.kill()
    again = RunningHub(folder, config)
    again.wait_ready()
    return again


def test_what_is_published_while_the_hub_is_killed_is_stored_once(tmp_path: Path) -> None:
    config = config_of(("http",), "").replace("127.0.0.1:0", f"127.0.0.1:{free_port()}")
    hub = RunningHub(tmp_path, config)
    hub.wait_ready()
    try:
        with SyncClient(url(hub), retry=PATIENT) as client:
            client.define_topic("safe", partitions=1)
            failed: list[BaseException] = []
            counts = dict.fromkeys("abcd", 0)
            enough = threading.Event()

            def publish(name: str) -> None:
                try:
                    while not enough.is_set():
                        client.publish(f"safe/{name}", f"{name}{counts[name]}")
                        counts[name] += 1
                except BaseException as error:
                    failed.append(error)

            def wait_until_all_have_published(more: int) -> None:
                before = dict(counts)
                while not failed and any(counts[name] < before[name] + more for name in counts):
                    time.sleep(0.01)

            threads = [threading.Thread(target=publish, args=(name,), daemon=True) for name in counts]
            for thread in threads:
                thread.start()
            wait_until_all_have_published(10)
            futures = [client.submit("safe/s", f"s{number}") for number in range(2000)]
            hub = restart(hub, tmp_path, config)
            futures += [client.submit("safe/s", f"s{number}") for number in range(2000, 3000)]
            hub = restart(hub, tmp_path, config)
            wait_until_all_have_published(10)
            enough.set()
            for thread in threads:
                thread.join()
            client.flush()
            assert not failed
            assert sorted(future.result().offset or 0 for future in futures) == [
                future.result().offset or 0 for future in futures]
            found = [message.text for message in client.read("safe")]
        for name, count in (counts | {"s": 3000}).items():
            assert [text for text in found if text[0] == name] == [f"{name}{number}" for number in range(count)]
    finally:
        hub.kill()


def test_threads_share_a_synchronous_client(hub: RunningHub) -> None:
    told, seen = threading.Event(), threading.Event()
    with SyncClient(url(hub)) as client:
        def publish_until_seen() -> None:
            while not seen.wait(0.05):
                client.publish("sync/a", "4")

        future = client.submit("sync/a", "1", on_done=lambda _: told.set())
        assert future.result(timeout=WAIT_S).topic == "sync"
        assert told.wait(WAIT_S)
        client.publish_oneway(client.message("sync/a", "2"))
        assert [type(result).__name__ for result in client.publish_many([client.message("sync/a", "3")])] == ["Stored"]
        assert [message.text for message in client.read("sync")] == ["1", "2", "3"]
        follower = client.read("sync", "latest", follow=True)           # where that is, it asks when it is first used
        publisher = threading.Thread(target=publish_until_seen)
        publisher.start()
        assert next(follower).text == "4"
        seen.set()
        publisher.join()
        assert isinstance(client.submit("sync/#", "x").exception(timeout=WAIT_S), InvalidRequest)
        assert "sync" in [topic["name"] for topic in client.topics()]
        client.delete_topic("sync")
        assert "sync" not in [topic["name"] for topic in client.topics()]
    client.close()      # a second time does no harm


def test_an_iterator_that_is_collected_on_the_clients_own_thread_holds_up_nobody() -> None:
    """Garbage is collected on whatever thread makes some."""
    async def numbers() -> AsyncGenerator[int, None]:
        for number in range(2):
            yield number

    async def collect() -> None:
        iterator.close()

    client = SyncClient()
    iterator = cast(Any, client._iterate(numbers()))
    assert next(iterator) == 0
    asyncio.run_coroutine_threadsafe(collect(), client._loop).result(WAIT_S)
    client.close()
