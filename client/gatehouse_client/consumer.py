"""`Consumer`: runs a handler for every message of a leased group, several at a time.

A handler that returns acks its message, one that raises releases it: it comes again after the group's back-off, and
becomes a dead letter when its attempts are used up. While a handler runs, the message's lease is renewed, however long
it takes. Delivery is at least once: a handler whose lease was lost (the hub was away for too long) may run twice.

Of an ordered group, the hub gives out one message of a key at a time: keys run side by side, each in its order.
"""
from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

from gatehouse_client.errors import Conflict, HubError, NotFound
from gatehouse_client.groups import Group, LeasedQueue
from gatehouse_client.message import Message
from gatehouse_client.settling import ACK, AWAY, PATIENCE, REJECT, Settling, Verdict

log = logging.getLogger("gatehouse_client")

WAIT_S: Final = 20.0                # of one long poll; a hub allows 30 unless told
MAX_POP: Final = 1_000
STOP_TIMEOUT_S: Final = 30.0

Handler = Callable[[Any], Any]
"""Called with a Message, or with a list of them where the consumer has a `batch`. A plain function runs in a thread."""


class RetryLater(Exception):
    """Raised by a handler: give the message back, to come again after `delay_s` instead of the group's back-off."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(f"again in {delay_s:g} s")
        self.delay_s = delay_s


class Reject(Exception):
    """Raised by a handler: the message will never be good, make it a dead letter now."""


class Consumer:
    """Runs `handler` for the messages of `group`. Use it as `async with`, or `await consumer.run()`.

    `concurrency` handlers run at one time, each with one message, or with up to `batch` of them.
    """

    def __init__(self, group: LeasedQueue, handler: Handler, *, concurrency: int = 16, batch: int | None = None,
                 invisible_s: float = 30.0, ordered: bool = False) -> None:
        if concurrency < 1 or (batch is not None and batch < 1) or invisible_s <= 0:
            raise ValueError("concurrency and batch are at least 1, invisible_s is more than 0")
        if ordered and not isinstance(group, Group):
            raise ValueError("only a group can be ordered, a queue has no keys")
        self.group = group
        self._handler = handler
        self._batch = batch
        self._invisible_s = invisible_s
        self._ordered = ordered
        self._limit = concurrency * (batch or 1)
        self._concurrency = concurrency
        self._running: dict[asyncio.Task[None], int] = {}        # handlers with the number of messages of each
        self._freed = asyncio.Event()
        self._fetcher: asyncio.Task[None] | None = None
        self._settling = Settling(group, invisible_s, self._freed.set)
        self._threads = None if inspect.iscoroutinefunction(handler) else ThreadPoolExecutor(
            concurrency, thread_name_prefix="gatehouse-handler")

    @property
    def counts(self) -> dict[str, int]:
        """Messages `running` now, and `acked`, `released`, `rejected`, `lost` since the start."""
        settling = self._settling
        return {"running": sum(self._running.values()), "acked": settling.acked, "released": settling.released,
                "rejected": settling.rejected, "lost": settling.lost}

    # --- start and stop ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Begin to take messages. Raises Conflict where it is `ordered` and the group is defined otherwise."""
        if self._ordered and isinstance(self.group, Group):
            await self._ensure_ordered(self.group)
        self._fetcher = asyncio.create_task(self._fetch())

    async def run(self) -> None:
        """Start, and stop when this call is cancelled. Raises HubError where the hub refuses the group."""
        async with self:
            await self.wait()

    async def wait(self) -> None:
        """Returns when it was stopped. Raises HubError where the hub refused the group."""
        if self._fetcher is not None:
            await asyncio.wait([self._fetcher])
            if not self._fetcher.cancelled():
                self._fetcher.result()

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Take nothing new, let the handlers end, tell the hub. Those that run on after `timeout_s` are cancelled and
        their messages given back; one that runs in a thread cannot be cancelled and runs on."""
        if self._fetcher is not None:
            self._fetcher.cancel()
            await asyncio.gather(self._fetcher, return_exceptions=True)      # `wait` tells what it ended in
        if self._running:
            await asyncio.wait(list(self._running), timeout=timeout_s)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(list(self._running))
        try:
            async with asyncio.timeout(timeout_s):
                await self._settling.drain()
        except TimeoutError:
            log.warning("the hub does not answer; %d messages may come again", self._settling.unsettled)
        self._settling.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    async def _ensure_ordered(self, group: Group) -> None:
        try:
            ordered = (await group.describe()).get("ordered")
        except NotFound:
            ordered = (await group.define(ordered=True)).get("ordered")
        if not ordered:
            raise Conflict(f"the group {group.name!r} is not ordered; define it so: group.define(ordered=True)")

    # --- taking messages -----------------------------------------------------------------------------------------

    async def _fetch(self) -> None:
        attempt = 0
        while True:
            room = await self._room()
            try:
                messages = await self.group.pop(min(room, MAX_POP), invisible_s=self._invisible_s, wait_s=WAIT_S)
            except (*AWAY, NotFound) as error:        # not found: its first message makes a topic
                log.warning("the hub gives no messages, trying again: %s", error)
                await asyncio.sleep(PATIENCE.pause_s(attempt, random.random()))
                attempt += 1
                continue
            except HubError as error:
                log.error("this consumer ends: %s", error)
                raise
            attempt = 0
            self._begin(messages)

    async def _room(self) -> int:
        """How many messages may be taken; waits until there is one. What is not settled yet counts beyond the limit."""
        while True:
            running = self.counts["running"]
            free = self._concurrency - len(self._running)
            room = min(free * (self._batch or 1), 2 * self._limit - running - self._settling.unsettled)
            if room > 0:
                return room
            self._freed.clear()
            await self._freed.wait()

    def _begin(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._settling.hold(message.receipt_handle)
        size = self._batch or 1
        for start in range(0, len(messages), size):
            mine = messages[start:start + size]
            task = asyncio.create_task(self._serve(mine))
            self._running[task] = len(mine)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._freed.set()

    async def _serve(self, messages: Sequence[Message]) -> None:
        """Run the handler and settle its messages by how it ends."""
        verdict: Verdict = 0.0                      # cancelled: somebody else may have them at once
        try:
            verdict = await self._verdict(messages if self._batch is not None else messages[0])
        finally:
            for message in messages:
                self._settling.settle(message.receipt_handle, verdict)

    async def _verdict(self, given: Any) -> Verdict:
        try:
            await self._call(given)
        except RetryLater as later:
            return float(later.delay_s)
        except Reject as rejected:
            log.info("a handler rejected %s: %s", _named(given), rejected)
            return REJECT
        except Exception:
            log.exception("a handler failed for %s; it will be tried again", _named(given))
            return None
        return ACK

    async def _call(self, given: Any) -> None:
        if self._threads is not None:
            result = await asyncio.get_running_loop().run_in_executor(self._threads, self._handler, given)
        else:
            result = self._handler(given)
        if inspect.isawaitable(result):              # of a coroutine function, however it is wrapped
            await result


def _named(given: Message | Sequence[Message]) -> str:
    """A message, or the first of several, for the log."""
    messages = [given] if isinstance(given, Message) else given
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    return f"{messages[0].topic}/{messages[0].partition}/{messages[0].offset}{more}"
