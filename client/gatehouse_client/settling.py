"""Acks and releases of a consumer, gathered: while one request is under way, the next one fills. And the renewal of
leases of what is still in hand.

Nothing is given up while the hub is away: a handle stays good over a restart of the hub, so an ack that could not be
delivered is tried until the hub answers. What it answers for each handle is final.
"""
from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gatehouse_client.errors import HubError, HubFault, OutcomeUnknown, OverQuota, Unavailable
from gatehouse_client.groups import MAX_HANDLES
from gatehouse_client.retry import Retry

if TYPE_CHECKING:
    from gatehouse_client.groups import LeasedQueue

log = logging.getLogger("gatehouse_client")

AWAY: Final = (Unavailable, OutcomeUnknown, OverQuota, HubFault)
"""The hub does not take it now; it may later, and so may its disk."""

ACK: Final = "ack"
REJECT: Final = "reject"
Verdict = str | float | None
"""What becomes of a message: ACK, REJECT, or a release after so many seconds (None: as the group's retry says)."""

PATIENCE: Final = Retry(backoff_s=0.2, max_backoff_s=5.0)


class Settling:
    """The leases of one consumer: `hold` them, `settle` them. `on_answered` is called when some are settled."""

    def __init__(self, group: LeasedQueue, invisible_s: float, on_answered: Callable[[], None]) -> None:
        self._group = group
        self._invisible_s = invisible_s
        self._on_answered = on_answered
        self._held: dict[str, None] = {}                  # receipt handles whose leases are kept alive
        self._waiting: dict[Verdict, list[str]] = {}
        self._sender: asyncio.Task[None] | None = None
        self._renewer: asyncio.Task[None] | None = None
        self.unsettled = 0                                # handed in and not answered yet
        self.acked = self.released = self.rejected = self.lost = 0

    def hold(self, handle: str) -> None:
        """Extend this lease until it is settled."""
        self._held[handle] = None
        if self._renewer is None:
            self._renewer = asyncio.create_task(self._renew())

    def settle(self, handle: str, verdict: Verdict) -> None:
        """Tell the hub what became of it, soon."""
        self._waiting.setdefault(verdict, []).append(handle)
        self.unsettled += 1
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())

    async def drain(self) -> None:
        """Returns when the hub has answered for everything that was settled before."""
        while self._sender is not None:
            await asyncio.wait([self._sender])

    def close(self) -> None:
        """Nothing more is sent; leases that are held run out."""
        for task in (self._sender, self._renewer):
            if task is not None:
                task.cancel()

    async def _send(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                for verdict, handles in waiting.items():
                    for start in range(0, len(handles), MAX_HANDLES):
                        await self._tell(verdict, handles[start:start + MAX_HANDLES])
        finally:
            self._sender = None

    async def _tell(self, verdict: Verdict, handles: list[str]) -> None:
        results = await self._persistently(verdict, handles)
        for handle in handles:
            self._held.pop(handle, None)
        lost = sum(result is not None for result in results)
        self.unsettled -= len(handles)
        self.lost += lost
        if verdict == ACK:
            self.acked += len(handles) - lost
        elif verdict == REJECT:
            self.rejected += len(handles) - lost
        else:
            self.released += len(handles) - lost
        if lost:
            reason = next(result for result in results if result is not None)
            log.warning("%d of %d messages were not this consumer's any more: %s", lost, len(handles), reason)
        self._on_answered()

    async def _persistently(self, verdict: Verdict, handles: list[str]) -> list[HubError | None]:
        """What the hub says about each, however long it is away."""
        attempt = 0
        while True:
            try:
                return await self._ask(verdict, handles)
            except AWAY as error:
                log.warning("the hub does not take what became of messages, trying again: %s", error)
            except HubError as error:
                return [error] * len(handles)
            await asyncio.sleep(PATIENCE.pause_s(attempt, random.random()))
            attempt += 1

    async def _ask(self, verdict: Verdict, handles: list[str]) -> list[HubError | None]:
        if verdict == ACK:
            return await self._group.ack(handles)
        if verdict == REJECT:
            return await self._group.reject(handles)
        return await self._group.release(handles, verdict if isinstance(verdict, float) else None)

    async def _renew(self) -> None:
        """Three times within each lease: one lost request does not lose the lease."""
        while True:
            await asyncio.sleep(self._invisible_s / 3)
            handles = list(self._held)
            try:
                results = await self._group.extend(handles, self._invisible_s) if handles else []
            except HubError as error:
                log.warning("leases could not be renewed: %s", error)
                continue
            for handle, result in zip(handles, results, strict=True):
                if result is not None:
                    self._held.pop(handle, None)
