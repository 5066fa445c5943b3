"""Waiting for what was appended: everybody who waits is answered for the whole flush by one call from the kernel.

There is no timer per request. All of them have the same deadline, so one sweep looks at those that wait, oldest first.
A request whose client has gone is forgotten when its answer comes or its time is up, whichever is first.
"""
from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast

from gatehouse.gateways.http.problems import Refusal
from gatehouse.kernel.message import Stored

SWEEP_S: Final = 0.25
"""How late a deadline may be noticed, in seconds."""


class Waiting(Protocol):
    """Who waits for one append: a future of a call, or an exchange (`direct.py`)."""

    def done(self) -> bool: ...

    def set_result(self, result: Stored, /) -> None: ...

    def set_exception(self, exception: Refusal, /) -> None: ...


class Receipts:
    """The owner of everything that this door appends (`kernel.message.Owner`). The token of an append is who waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline_s: float) -> None:
        self._loop = loop
        self._deadline_s = deadline_s
        self._pending: dict[Waiting, float] = {}    # when each began to wait, oldest first
        self._sweeping = False

    def __len__(self) -> int:
        return len(self._pending)

    # decision 55: the one door with futures
    def open(self) -> asyncio.Future[Stored]:
        """A future for one append. It ends in `Stored`, or in the refusal `outcome_unknown` at the deadline."""
        future: asyncio.Future[Stored] = self._loop.create_future()
        self.expect(future)
        return future

    def expect(self, waiting: Waiting) -> None:
        """Wait for one append on behalf of somebody who is no future, with the same deadline as `open`."""
        self._pending[waiting] = self._loop.time()
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_later(SWEEP_S, self._sweep)

    def drop(self, waiting: Waiting) -> None:
        """The append was refused: nothing will answer it."""
        self._pending.pop(waiting, None)

    @staticmethod
    def overdue() -> Refusal:
        """What somebody is told who waits no longer."""
        return Refusal("outcome_unknown", "it is not durable in time and may still become so; repeat it with the same "
                                          "Idempotency-Key")

    def on_stored(self, stored: list[Stored]) -> None:
        """Called by the kernel once per flush."""
        pending = self._pending
        for answer in stored:
            waiting = cast(Waiting, answer.token)
            pending.pop(waiting, None)
            if not waiting.done():
                waiting.set_result(answer)

    def _sweep(self) -> None:
        limit = self._loop.time() - self._deadline_s
        overdue = []
        for waiting, began in self._pending.items():
            if began > limit:
                break
            overdue.append(waiting)
        for waiting in overdue:
            del self._pending[waiting]
            if not waiting.done():
                waiting.set_exception(self.overdue())
        self._sweeping = bool(self._pending)
        if self._sweeping:
            self._loop.call_later(SWEEP_S, self._sweep)
