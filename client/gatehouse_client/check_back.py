"""Being asked what became of transactions: a member of their group.

    class Orders:
        def check(self, half: Half) -> Decision:              # or `async def`
            return Decision.COMMIT if database.has(half.key) else Decision.ROLLBACK

    async with client.check_back("shop", Orders()):
        ...

Any number of programs may be members; each question goes to one of them. A listener that fails, or does not know,
leaves the question to be asked again.
"""
from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from gatehouse_client.door import LONG_POLL_S
from gatehouse_client.errors import HubError, InvalidRequest, NotAuthenticated, NotAuthorized
from gatehouse_client.message import decode_half
from gatehouse_client.retry import Retry
from gatehouse_client.transaction import TRANSACTIONS, Decision, decide

if TYPE_CHECKING:
    from gatehouse_client.client import Client

log = logging.getLogger("gatehouse_client")

PATIENCE: Final = Retry(backoff_s=0.2, max_backoff_s=5.0)
FINAL: Final = (InvalidRequest, NotAuthenticated, NotAuthorized)
"""What asking again does not change."""


@dataclass(frozen=True, slots=True)
class Half:
    """The question what became of a transaction, with its first message."""

    id: str
    group: str
    attempt: int
    age_ms: int
    messages: int
    by: str
    address: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    properties: Mapping[str, Any]


class Listener(Protocol):
    """Who knows what became of the senders' own work."""

    def check(self, half: Half) -> Decision | Awaitable[Decision]:
        """Called in a thread, unless it is `async def`; several at a time."""


class CheckBack:
    """A member of a group for as long as it runs. Made by `Client.check_back`; use it as `async with`."""

    def __init__(self, client: Client, group: str, listener: Listener, *, concurrency: int = 16) -> None:
        self.client = client
        self.group = group
        self.counts = {"asked": 0, "committed": 0, "rolled_back": 0, "unknown": 0}
        self._listener = listener
        self._room = asyncio.Semaphore(concurrency)
        self._concurrency = concurrency
        self._poller: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def start(self) -> None:
        """Be asked from now on."""
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())

    async def wait(self) -> None:
        """Returns never, or raises HubError: the hub does not let this user be asked."""
        assert self._poller is not None, "start it first"
        await asyncio.shield(self._poller)

    async def stop(self) -> None:
        """Be asked no more; what is being looked up is answered."""
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.cancel()
            await asyncio.gather(poller, return_exceptions=True)         # `wait` raises why it ended
        if self._answering:
            await asyncio.wait(list(self._answering))

    async def _poll(self) -> None:
        failures = 0
        while True:
            async with self._room:               # not asked for more than there is room to look up
                pass
            try:
                query = {"group": self.group, "wait": f"{LONG_POLL_S:g}", "max": str(self._concurrency)}
                answer = await self.client.request("GET", f"{TRANSACTIONS}/checks", query=query, wait_s=LONG_POLL_S)
            except FINAL as error:
                log.error("nobody is asked about %r here any more: %s", self.group, error)
                raise
            except HubError as error:
                log.warning("checks of %r: %s", self.group, error)
                await asyncio.sleep(PATIENCE.pause_s(failures, random.random(), error.retry_after_s))
                failures += 1
                continue
            failures = 0
            for document in answer["checks"]:
                await self._room.acquire()
                task = asyncio.create_task(self._answer(_half_of(document)))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    async def _answer(self, half: Half) -> None:
        self.counts["asked"] += 1
        try:
            decision = await self._ask(half)
            if decision is Decision.UNKNOWN:
                self.counts["unknown"] += 1
                return
            await decide(self.client, half.id, decision)
            self.counts["committed" if decision is Decision.COMMIT else "rolled_back"] += 1
        except HubError as error:
            log.warning("transaction %s of %r: %s", half.id, half.group, error)
        except Exception:
            log.exception("the listener of %r failed for transaction %s; it is asked again", half.group, half.id)
        finally:
            self._room.release()

    async def _ask(self, half: Half) -> Decision:
        check = self._listener.check
        decision: Any = check(half) if inspect.iscoroutinefunction(check) else await asyncio.to_thread(check, half)
        if inspect.isawaitable(decision):
            decision = await decision
        if not isinstance(decision, Decision):
            raise TypeError(f"a listener returns a Decision, not {decision!r}")
        return decision


def _half_of(document: Mapping[str, Any]) -> Half:
    message = document["message"]
    key, value, headers, properties = decode_half(message)
    return Half(document["id"], document["group"], document["attempt"], document["age_ms"], document["messages"],
                document["by"], message["address"], message["topic"], key, value, headers, properties)
