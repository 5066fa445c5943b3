"""Waiting for what was appended: one future per request, answered for the whole flush by one call from the kernel.

There is no timer per request. All of them have the same deadline, so one sweep looks at those that wait, oldest first.
A request whose client has gone is forgotten when its answer comes or its time is up, whichever is first.
"""
from __future__ import annotations

import asyncio
from typing import Final

from gateways.http.problems import Refusal
from kernel.message import Stored

SWEEP_S: Final = 0.25
"""How late a deadline may be noticed, in seconds."""


class Receipts:
    """The owner of everything that this door appends (`kernel.message.Owner`). The token of an append is its future."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline_s: float) -> None:
        self._loop = loop
        self._deadline_s = deadline_s
        self._pending: dict[asyncio.Future[Stored], float] = {}    # when each was opened, oldest first
        self._sweeping = False

    def __len__(self) -> int:
        return len(self._pending)

    def open(self) -> asyncio.Future[Stored]:
        """A future for one append. It ends in `Stored`, or in the refusal `outcome_unknown` at the deadline."""
        future: asyncio.Future[Stored] = self._loop.create_future()
        self._pending[future] = self._loop.time()
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_later(SWEEP_S, self._sweep)
        return future

    def drop(self, future: asyncio.Future[Stored]) -> None:
        """The append was refused: nothing will answer this future."""
        self._pending.pop(future, None)

    def on_stored(self, stored: list[Stored]) -> None:
        """Called by the kernel once per flush."""
        pending = self._pending
        for answer in stored:
            future = answer.token
            assert isinstance(future, asyncio.Future)
            pending.pop(future, None)
            if not future.done():
                future.set_result(answer)

    def _sweep(self) -> None:
        limit = self._loop.time() - self._deadline_s
        overdue = []
        for future, opened in self._pending.items():
            if opened > limit:
                break
            overdue.append(future)
        for future in overdue:
            del self._pending[future]
            if not future.done():
                future.set_exception(Refusal("outcome_unknown", "it is not durable in time and may still become so; "
                                             "repeat it with the same Idempotency-Key"))
        self._sweeping = bool(self._pending)
        if self._sweeping:
            self._loop.call_later(SWEEP_S, self._sweep)
