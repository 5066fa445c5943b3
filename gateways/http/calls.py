"""Calls that are under way: coroutines that are driven by hand to their first wait, and on.

A call that waits for a `Reply` costs nothing more than that; for anything else a task takes it over.
"""
from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from gatehouse.gateways.http.replies import Receipt, Reply
from gatehouse.gateways.http.response import Answered

if TYPE_CHECKING:
    from gatehouse.gateways.http.dispatch import Dispatcher
    from gatehouse.gateways.http.request import Call

class Running:
    """A call that is under way."""

    _waits_for: Reply[Any] | None = None
    _task: asyncio.Task[None] | None = None

    def __init__(self, dispatcher: Dispatcher, call: Call, coroutine: Coroutine[Any, Any, Answered]) -> None:
        self._dispatcher = dispatcher
        self._call = call
        self._coroutine: Coroutine[Any, Any, Answered] | None = coroutine

    def go_on(self) -> None:  # decision 132
        """Run the call as far as it comes without waiting."""
        coroutine = self._coroutine
        if coroutine is None:
            return                           # it was cancelled while it was about to go on
        try:
            waits_for = coroutine.send(None)
        except StopIteration as stop:
            self._over()
            self._dispatcher.end(self._call, stop.value)
        except (Exception, asyncio.CancelledError) as error:
            self._over()
            self._dispatcher.fail(self._call, error)
        else:
            self._wait(coroutine, waits_for)

    def _over(self) -> None:
        """The call has come to its end: the two point at each other no more."""
        self._coroutine = None
        self._call.ends_by(None)

    def _wait(self, coroutine: Coroutine[Any, Any, Answered], waits_for: object) -> None:
        call = self._call
        if call.cancel is None:
            call.ends_by(self._cancel)
        if not isinstance(waits_for, Reply):
            self._coroutine = None
            self._task = self._dispatcher.loop.create_task(self._finish(_TakenOver(coroutine, waits_for)))
            return
        self._waits_for = waits_for
        if type(waits_for) is Receipt and call.declared is not None and call.declared.pipelined:
            call.submit()
            waits_for.then(self.go_on)       # within the kernel's call: what follows only says what was stored
        else:
            waits_for.then(partial(self._dispatcher.loop.call_soon, self.go_on))

    async def _finish(self, taken_over: _TakenOver) -> None:
        try:
            answered = await taken_over
        except asyncio.CancelledError as error:
            self._dispatcher.fail(self._call, error)
            raise
        except Exception as error:
            self._dispatcher.fail(self._call, error)
        else:
            self._dispatcher.end(self._call, answered)

    def _cancel(self) -> None:
        """See `Call.cancel`. What only waits for the disk ends by itself, as soon as it is answered."""
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
                self._dispatcher.fail(self._call, error)
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
