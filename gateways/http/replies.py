"""What a call waits for: an answer that somebody gives once. What is appended is answered for a whole flush by one call
from the kernel.

There is no timer per append. All have the same deadline, so one sweep looks at those that wait, oldest first. A request
whose client has gone is forgotten when its answer comes or its time is up, whichever is first.

Who waits for long is known to admission meanwhile, and woken when its principal ends or its rights change.
"""
from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.http.problems import Refusal
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.message import Stored

if TYPE_CHECKING:
    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.gateways.admission.guard import Guard
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.kernel.api import Message

SWEEP_S: Final = 0.25
"""How late a deadline may be noticed, in seconds: no clock is asked for each append."""

T = TypeVar("T")
U = TypeVar("U")


class Reply(Generic[T]):  # decision 132
    """An answer that is waited for by one coroutine; the first one counts. A task takes it for a future of its own
    (`asyncio.isfuture`): that is what `_asyncio_future_blocking` and the methods at the end are for."""

    _asyncio_future_blocking = False
    _done = False
    _error: BaseException | None = None
    _result: T | None = None
    _wake: Callable[[], object] | None = None
    _finish: Callable[[Any], Any] | None = None

    def done(self) -> bool:
        """Whether there is an answer."""
        return self._done

    def set_result(self, result: T) -> None:
        """Answer, unless that was done already."""
        if not self._done:
            self._done = True
            self._result = result
            self._tell()

    def set_exception(self, error: BaseException) -> None:
        """Answer with an error, unless there is an answer."""
        if not self._done:
            self._done = True
            self._error = error
            self._tell()

    def result(self) -> T:
        """The answer. Raises its error; one error may answer a whole flush, and collects nobody's traceback."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        finish = self._finish
        return cast(T, self._result if finish is None else finish(self._result))

    def finished_by(self, finish: Callable[[T], U]) -> Reply[U]:
        """This reply; who waits for it is given what `finish` makes of the answer."""
        self._finish = finish
        return cast("Reply[U]", self)

    def then(self, wake: Callable[[], object]) -> None:
        """Call this once there is an answer. Whoever waits otherwise waits no more."""
        self._wake = wake

    def _tell(self) -> None:
        wake, self._wake = self._wake, None              # they may point at each other
        if wake is not None:
            wake()

    def __await__(self) -> Generator[Any, None, T]:
        if not self._done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    # --- what a task asks of a future ---------------------------------------------------------------------------

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def add_done_callback(self, call_back: Callable[[Any], object], *, context: Context | None = None) -> None:
        soon = partial(asyncio.get_running_loop().call_soon, call_back, self, context=context)
        if self._done:
            soon()
        else:
            self._wake = soon

    def remove_done_callback(self, _: Callable[[Any], object]) -> int:
        self._wake = None
        return 1

    def cancel(self, msg: object = None) -> bool:
        done = self._done
        self.set_exception(asyncio.CancelledError())
        return not done

    def cancelled(self) -> bool:
        return isinstance(self._error, asyncio.CancelledError)

    def exception(self) -> BaseException | None:
        return self._error


class Receipt(Reply[Stored]):
    """What one append ends in: a `Stored` without error, or that error, or `outcome_unknown` at the deadline."""


class Receipts:
    """The owner of everything that this door appends (`kernel.message.Owner`). The token of an append is its receipt.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline_s: float) -> None:
        self._loop = loop
        self._sweeps = math.ceil(deadline_s / SWEEP_S) + 1       # one may come just behind the beginning
        self._pending: dict[Receipt, int] = {}      # at which sweep each began to wait, oldest first
        self._sweep_number = 0
        self._sweeping = False

    def __len__(self) -> int:
        return len(self._pending)

    # decision 55: the one door whose calls are coroutines
    def open(self) -> Receipt:
        """The receipt of one append."""
        receipt = Receipt()
        self._pending[receipt] = self._sweep_number
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_later(SWEEP_S, self._sweep)
        return receipt

    def drop(self, receipt: Receipt) -> None:
        """The append was refused: nothing will answer it."""
        self._pending.pop(receipt, None)

    def hurry(self, receipt: Receipt, wait_s: float) -> None:
        """End in the refusal `outcome_unknown` after so many seconds, where that is sooner than the deadline."""
        if wait_s < self._sweeps * SWEEP_S:
            self._loop.call_later(wait_s, receipt.set_exception, overdue())

    def on_stored(self, stored: list[Stored]) -> None:
        """Called by the kernel once per flush."""
        pending = self._pending
        for answer in stored:
            receipt = cast(Receipt, answer.token)
            pending.pop(receipt, None)
            answer.token = None              # they would point at each other
            if answer.error is None:
                receipt.set_result(answer)
            else:
                receipt.set_exception(answer.error)

    def on_gathered(self, token: object, error: Exception | None) -> bool:
        """See `switchboard.Gatherer`: every call wants to know where its messages went, so `on_stored` is told."""
        self.on_stored([Stored(token, error, 0, [])])
        return False

    def on_all_gathered(self) -> None:
        """See `switchboard.Gatherer`: each call is answered by itself."""

    def enter_alone(self, guard: Guard, messages: list[Message], token: object, size_bytes: int) -> bool:
        """See `switchboard.Gatherer`."""
        try:
            guard.append(messages, self, token, size_bytes, positions=True, was_gathered=True)
        except KernelError as error:
            self.on_stored([Stored(token, error, 0, [])])
        return False

    def _sweep(self) -> None:
        self._sweep_number += 1
        limit = self._sweep_number - self._sweeps
        late = []
        for receipt, began in self._pending.items():
            if began > limit:
                break
            late.append(receipt)
        for receipt in late:
            del self._pending[receipt]
            receipt.set_exception(overdue())
        self._sweeping = bool(self._pending)
        if self._sweeping:
            self._loop.call_later(SWEEP_S, self._sweep)


def reply_of(future: asyncio.Future[T]) -> Reply[T | None]:
    """What a future ends in, for one who may be told something else before."""
    reply: Reply[T | None] = Reply()

    def on_done(done: asyncio.Future[T]) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is None:
            reply.set_result(done.result())
        else:
            reply.set_exception(error)

    future.add_done_callback(on_done)
    return reply


def overdue() -> Refusal:
    """What somebody is told who waits no longer."""
    return Refusal("outcome_unknown", "it is not durable in time and may still become so; repeat it with the same "
                                      "Idempotency-Key")


class Guest:
    """Admission's `RegisteredSession` of one call. `check` is to be asked after every wait."""

    def __init__(self, wake: Callable[[], None], require: Callable[[], object]) -> None:
        self._wake = wake
        self._require = require
        self._ended = ""

    def on_principal_ended(self, reason: str) -> None:
        self._ended = reason
        self._wake()

    def on_rights_changed(self) -> None:
        self._wake()

    def check(self) -> None:
        """Raises NotAuthenticated, or what `require` raises."""
        if self._ended:
            raise NotAuthenticated(f"the login has ended while the call waited: {self._ended}")
        self._require()


@contextmanager
def registered(admission: Admission, door: str, principal: Principal, wake: Callable[[], None],
           require: Callable[[], object]) -> Iterator[Guest]:
    """A registration for as long as the call waits. `require` raises where the right to what is waited for is gone."""
    guest = Guest(wake, require)
    registration = admission.register(principal, door, guest)
    try:
        yield guest
    finally:
        registration.leave()
