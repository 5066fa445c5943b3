"""Gathers messages that are published without waiting for each: while one request is under way, the next one fills.

One request at a time, so messages are stored in the order in which they were submitted. A batch leaves when it is
full (by count or bytes) or has been gathered for `delay_s`. What waits is bounded: `submit` then waits for room.
"""
from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from gatehouse_client.errors import HubError
from gatehouse_client.message import Stored

Result = Stored | HubError
Send = Callable[[list[bytes]], Awaitable[list[Result]]]

MAX_REQUEST_BYTES: Final = 4 << 20        # of one request's messages; the hub takes 8 MiB unless told otherwise


@dataclass(frozen=True, slots=True)
class Batching:
    """When a batch leaves, and how much may wait; one message may be larger than the bytes of a batch."""

    max_messages: int = 1_000
    max_bytes: int = 1 << 20
    delay_s: float = 0.005
    buffered_messages: int = 10_000
    buffered_bytes: int = 16 << 20


class Batcher:
    """What has been submitted and is not answered yet. For one loop."""

    def __init__(self, send: Send, batching: Batching) -> None:
        self._send = send
        self._batching = batching
        self._waiting: deque[tuple[bytes, asyncio.Future[Stored]]] = deque()
        self._waiting_bytes = 0
        self._sent_messages = 0                     # under way, still counted as buffered
        self._sent_bytes = 0
        self._submitted = 0                         # messages, ever
        self._answered = 0
        self._draining = 0                          # calls of `drain` that wait: nothing lingers for their sake
        self._hurry = asyncio.Event()               # a batch is full, or somebody waits for it
        self._changed: list[asyncio.Future[None]] = []    # those who wait for the next answer
        self._sender: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Messages that are not answered yet."""
        return len(self._waiting) + self._sent_messages

    async def submit(self, message: bytes) -> asyncio.Future[Stored]:
        """Take one encoded message; returns once there is room for it, with the future of where it is stored."""
        while self._full(len(message)):
            self._hurry.set()
            await self._next_answer()
        future: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        self._waiting.append((message, future))
        self._waiting_bytes += len(message)
        self._submitted += 1
        if len(self._waiting) >= self._batching.max_messages or self._waiting_bytes >= self._batching.max_bytes:
            self._hurry.set()
        if self._sender is None:
            self._sender = asyncio.create_task(self._run())
        return future

    async def drain(self) -> None:
        """Returns when everything that was submitted before has been answered, well or not."""
        target = self._submitted
        self._draining += 1
        self._hurry.set()
        try:
            while self._answered < target:
                await self._next_answer()
        finally:
            self._draining -= 1

    async def _next_answer(self) -> None:
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed.append(changed)
        await changed

    def _full(self, size_bytes: int) -> bool:
        held_bytes = self._waiting_bytes + self._sent_bytes
        return len(self) >= self._batching.buffered_messages or (
            held_bytes > 0 and held_bytes + size_bytes > self._batching.buffered_bytes)

    async def _run(self) -> None:  # decision 79
        try:
            while self._waiting:
                await self._gather()
                await self._send_batch(self._take())
        finally:
            self._sender = None
            self._give_up()

    async def _gather(self) -> None:
        """Wait for a full batch, but not longer than the delay."""
        if not self._hurry.is_set() and not self._draining:
            try:
                async with asyncio.timeout(self._batching.delay_s):
                    await self._hurry.wait()
            except TimeoutError:
                pass    # it leaves with what there is
        self._hurry.clear()

    def _take(self) -> list[tuple[bytes, asyncio.Future[Stored]]]:
        batch: list[tuple[bytes, asyncio.Future[Stored]]] = []
        size_bytes = 0
        while self._waiting and len(batch) < self._batching.max_messages and (
                not batch or size_bytes + len(self._waiting[0][0]) <= self._batching.max_bytes):
            batch.append(self._waiting.popleft())
            size_bytes += len(batch[-1][0])
        self._waiting_bytes -= size_bytes
        self._sent_messages, self._sent_bytes = len(batch), size_bytes
        if len(self._waiting) >= self._batching.max_messages or self._waiting_bytes >= self._batching.max_bytes:
            self._hurry.set()
        return batch

    async def _send_batch(self, batch: list[tuple[bytes, asyncio.Future[Stored]]]) -> None:
        try:
            results = await self._send([message for message, _ in batch])
        except HubError as error:
            results = [error] * len(batch)
        except BaseException:
            self._cancel(batch)
            raise
        for (_, future), result in zip(batch, results, strict=True):
            _settle(future, result)
        self._note_answered(len(batch))

    def _give_up(self) -> None:
        """The sender was cancelled, or failed for a reason that is not the hub's: nobody waits for ever."""
        left = list(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._cancel(left)

    def _cancel(self, batch: list[tuple[bytes, asyncio.Future[Stored]]]) -> None:
        for _, future in batch:
            future.cancel()
        self._note_answered(len(batch))

    def _note_answered(self, count: int) -> None:
        self._sent_messages = self._sent_bytes = 0
        self._answered += count
        changed, self._changed = self._changed, []
        for waiter in changed:
            if not waiter.done():
                waiter.set_result(None)


def _settle(future: asyncio.Future[Stored], result: Result) -> None:
    if future.done():                # its caller has cancelled it
        return
    if isinstance(result, HubError):
        future.set_exception(result)
    else:
        future.set_result(result)


def in_requests(messages: list[bytes], max_messages: int) -> list[list[bytes]]:
    """Encoded messages cut into requests that a hub takes; a message that is larger alone stands alone."""
    requests: list[list[bytes]] = []
    size_bytes = MAX_REQUEST_BYTES
    for message in messages:
        if size_bytes + len(message) > MAX_REQUEST_BYTES or len(requests[-1]) >= max_messages:
            requests.append([])
            size_bytes = 0
        requests[-1].append(message)
        size_bytes += len(message)
    return requests
