"""Messages gather while a request is under way; what waits is bounded; everybody is answered."""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gatehouse_client.batching import Batcher, Batching, in_requests
from gatehouse_client.errors import HubError, Unavailable
from gatehouse_client.message import Stored

ETERNAL_S = 3600.0


def stored(offset: int) -> Stored:
    return Stored(str(offset), "t", 0, offset, "t", 0)


class Requests:
    """Answers each batch when the test says so, or at once; `sizes` tells what came."""

    def __init__(self, hold: bool = False) -> None:
        self.batches: list[list[bytes]] = []
        self.fault: BaseException | None = None
        self.came = asyncio.Event()
        self.gate = asyncio.Event()
        if not hold:
            self.gate.set()

    async def send(self, messages: list[bytes]) -> list[Stored | HubError]:
        self.batches.append(messages)
        self.came.set()
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return [HubError("odd") if message == b"bad" else stored(len(message)) for message in messages]

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()
    asyncio.run(bounded())


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_what_comes_during_a_request_is_the_next_one_in_order():
    async def test() -> None:
        requests = Requests(hold=True)
        batcher = Batcher(requests.send, Batching(max_messages=3, delay_s=0))
        first = await batcher.submit(b"0")
        await requests.came.wait()
        rest = [await batcher.submit(b"%d" % number) for number in range(1, 8)]
        assert (requests.sizes, len(batcher)) == ([1], 8)
        requests.gate.set()
        await batcher.drain()
        assert (await first, len(batcher)) == (stored(1), 0)
        assert [future.result() for future in rest] == [stored(1)] * 7
        assert [message for batch in requests.batches for message in batch] == [b"%d" % number for number in range(8)]
        assert requests.sizes == [1, 3, 3, 1]
    run(test)


def test_a_full_batch_does_not_wait_for_the_delay():
    async def test() -> None:
        requests = Requests()
        batcher = Batcher(requests.send, Batching(max_messages=2, max_bytes=100, delay_s=ETERNAL_S))
        by_count = [await batcher.submit(b"a"), await batcher.submit(b"b")]
        assert [await future for future in by_count] == [stored(1)] * 2
        by_bytes = await batcher.submit(b"x" * 101)
        assert await by_bytes == stored(101)
        alone = await batcher.submit(b"a")
        await turns()
        assert not alone.done()
        await batcher.drain()
        assert requests.sizes == [2, 1, 1]
    run(test)


def test_the_delay_ends_a_batch():
    async def test() -> None:
        requests = Requests()
        batcher = Batcher(requests.send, Batching(delay_s=0.01))
        futures = [await batcher.submit(b"a") for _ in range(5)]
        await asyncio.gather(*futures)
        assert requests.sizes == [5]
    run(test)


@pytest.mark.parametrize("batching", [Batching(buffered_messages=4, delay_s=0),
                                      Batching(buffered_bytes=40, delay_s=0)])
def test_a_full_buffer_holds_its_publishers_back(batching):
    async def test() -> None:
        requests = Requests(hold=True)
        batcher = Batcher(requests.send, batching)
        count = 0

        async def publish_all() -> None:
            nonlocal count
            for _ in range(20):
                await batcher.submit(b"0123456789")
                count += 1

        publisher = asyncio.create_task(publish_all())
        await turns(50)
        assert (count, len(batcher)) == (4, 4)
        requests.gate.set()
        await publisher
        await batcher.drain()
        assert sum(requests.sizes) == 20
    run(test)


def test_a_message_larger_than_the_buffer_goes_alone():
    async def test() -> None:
        batcher = Batcher(Requests().send, Batching(buffered_bytes=10, delay_s=0))
        assert await (await batcher.submit(b"x" * 100)) == stored(100)
    run(test)


def test_one_that_is_refused_and_requests_that_fail():
    async def test() -> None:
        requests = Requests()
        batcher = Batcher(requests.send, Batching(delay_s=0))
        good, bad = await batcher.submit(b"good"), await batcher.submit(b"bad")
        await batcher.drain()
        assert good.result() == stored(4)
        assert str(bad.exception()) == "odd"
        requests.fault = Unavailable("away")
        failed = [await batcher.submit(b"a"), await batcher.submit(b"b")]
        await batcher.drain()
        assert [type(future.exception()) for future in failed] == [Unavailable, Unavailable]
        requests.fault = None
        assert await (await batcher.submit(b"back")) == stored(4)
    run(test)


def test_a_fault_of_ours_leaves_nobody_waiting():
    async def test() -> None:
        requests = Requests()
        requests.fault = ZeroDivisionError()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        batcher = Batcher(requests.send, Batching(max_messages=1, delay_s=0))
        futures = [await batcher.submit(b"a"), await batcher.submit(b"b")]
        await batcher.drain()
        assert [future.cancelled() for future in futures] == [True, True]
    run(test)


def test_a_cancelled_future_is_no_hindrance():
    async def test() -> None:
        batcher = Batcher(Requests().send, Batching(delay_s=0))
        cancelled, other = await batcher.submit(b"a"), await batcher.submit(b"b")
        cancelled.cancel()
        assert await other == stored(1)
    run(test)


def test_requests_are_cut_by_count_and_bytes():
    assert in_requests([], 10) == []
    assert [len(request) for request in in_requests([b"x"] * 7, 3)] == [3, 3, 1]
    large = b"x" * (3 << 20)
    assert in_requests([large, b"a", large, large], 10) == [[large, b"a"], [large], [large]]
