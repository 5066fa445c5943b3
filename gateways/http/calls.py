"""Calls that are under way: coroutines that are driven by hand to their first wait, and on.

A call that waits for a `Reply` costs nothing more than that; for anything else a task takes it over.
"""
from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from gatehouse.gateways.http.replies import Receipt, Reply
from gatehouse.gateways.http.response import Answered, Handover
from gatehouse.gateways.http.stream import Stream

if TYPE_CHECKING:
    from collections import Counter

    from gatehouse.gateways.http.session import HttpExchange

log = logging.getLogger("gatehouse.gateways.http")


class Running:
    """A call that is under way. `goes_on_at_once`: within the kernel's call that tells what is durable."""

    __slots__ = ("_coroutine", "_counts", "_exchange", "_goes_on_at_once", "_loop", "_task", "_waits_for")

    def __init__(self, loop: asyncio.AbstractEventLoop, counts: Counter[str], exchange: HttpExchange,
                 coroutine: Coroutine[Any, Any, Answered], goes_on_at_once: bool) -> None:
        self._loop = loop
        self._counts = counts
        self._exchange = exchange
        self._coroutine: Coroutine[Any, Any, Answered] | None = coroutine
        self._goes_on_at_once = goes_on_at_once
        self._waits_for: Reply[Any] | None = None
        self._task: asyncio.Task[None] | None = None

    def go_on(self) -> None:  # decision 132
        """Run the call as far as it comes without waiting."""
        coroutine = self._coroutine
        if coroutine is None:
            return                           # it was cancelled while it was about to go on
        self._waits_for = None
        try:
            waits_for = coroutine.send(None)
        except StopIteration as stop:
            self._coroutine = None
            self._end(stop.value)
        except (Exception, asyncio.CancelledError) as error:
            self._coroutine = None
            self._fail(error)
        else:
            self._wait(coroutine, waits_for)

    def _wait(self, coroutine: Coroutine[Any, Any, Answered], waits_for: object) -> None:
        exchange = self._exchange
        exchange.cancel = self._cancel
        if not isinstance(waits_for, Reply):
            self._coroutine = None
            self._task = self._loop.create_task(self._finish(_TakenOver(coroutine, waits_for)))
            return
        self._waits_for = waits_for
        if self._goes_on_at_once and isinstance(waits_for, Receipt):
            exchange.submitted = True
            waits_for.then(self.go_on)
        else:
            waits_for.then(partial(self._loop.call_soon, self.go_on))

    async def _finish(self, call: _TakenOver) -> None:
        try:
            answered = await call
        except asyncio.CancelledError as error:
            self._fail(error)
            raise
        except Exception as error:
            self._fail(error)
        else:
            self._end(answered)

    def _end(self, answered: Answered) -> None:
        exchange = self._exchange
        if isinstance(answered, Stream):
            answered.finish()
            exchange.session.end_stream(exchange, answered.closes)
        elif isinstance(answered, Handover):
            exchange.session.hand_over(exchange, answered)
        else:
            exchange.session.respond(exchange, answered)

    def _fail(self, error: BaseException) -> None:
        """There is no answer, or a part of one: the client has gone, or the hub has made a mistake."""
        if not isinstance(error, (ConnectionError, asyncio.CancelledError)):
            self._counts["faults"] += 1
            log.error("a call ended without an answer", exc_info=error)
        self._exchange.session.break_off("" if isinstance(error, ConnectionError) else "internal_error")

    def _cancel(self) -> None:
        """See `HttpExchange.cancel`. What only waits for the disk ends by itself, as soon as it is answered."""
        coroutine = self._coroutine
        if self._task is not None:
            self._task.cancel()
        elif coroutine is not None and not isinstance(self._waits_for, Receipt):
            self._coroutine = None
            try:
                waits_for = coroutine.throw(asyncio.CancelledError())
            except (StopIteration, asyncio.CancelledError):
                return
            except Exception as error:
                self._fail(error)
            else:
                self._wait(coroutine, waits_for)


class _TakenOver:
    """A coroutine that has come to its first wait by hand, as a task can go on with it."""

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, Answered], waits_for: object) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Answered]:
        coroutine, waits_for = self._coroutine, self._waits_for
        while True:
            try:
                try:
                    sent = yield waits_for
                except BaseException as error:
                    waits_for = coroutine.throw(error)
                else:
                    waits_for = coroutine.send(sent)
            except StopIteration as stop:
                return cast(Answered, stop.value)
