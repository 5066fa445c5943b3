"""Reads from the disk that wait for one worker are handed to it together: many small ones cost one change of threads.

    submit ─► the worker has nothing to do: at once, alone
           └► else: with those that wait, `BATCH` of them and `BATCH_BYTES` at most

What a batch has no room for waits for the next. An error is that of the read which has it.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from gatehouse.kernel.ports import Worker

Plan = TypeVar("Plan")
Read = TypeVar("Read")

BATCH: Final = 64
BATCH_BYTES: Final = 128 << 10         # after so much the worker belongs to others, see `background.SLICE_BYTES`
UNDER_WAY: Final = 2                   # batches: one is read while the answers of another are taken


class ColdReads(Generic[Plan, Read]):  # decision 268
    """`read` reads on the worker's thread; `size_of` says how many bytes that was."""

    def __init__(self, worker: Worker, read: Callable[[Plan], Read], size_of: Callable[[Read], int]) -> None:
        self._worker = worker
        self._read = read
        self._size_of = size_of
        self._waiting: deque[tuple[Plan, Callable[[Read | None, BaseException | None], None]]] = deque()
        self._under_way = 0

    def submit(self, plan: Plan, done: Callable[[Read | None, BaseException | None], None]) -> None:
        """Read it; then call `done`, as a `Worker` does."""
        self._waiting.append((plan, done))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._under_way < UNDER_WAY:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._under_way += 1
            self._worker.submit(partial(self._read_batch, [plan for plan, _ in batch]), partial(self._done, batch))

    def _read_batch(self, plans: list[Plan]) -> list[Read]:
        """On the reading thread: the first of these, as far as there is room."""
        reads: list[Read] = []
        size_bytes = 0
        for plan in plans:
            if size_bytes >= BATCH_BYTES:
                break
            try:
                read = self._read(plan)
            except Exception:
                if not reads:
                    raise
                break                          # it is the first of the next batch, and fails there
            reads.append(read)
            size_bytes += self._size_of(read)
        return reads

    def _done(self, batch: list[tuple[Plan, Callable[[Read | None, BaseException | None], None]]],
              reads: list[Read] | None, error: BaseException | None) -> None:
        self._under_way -= 1
        answers: list[Read | None] = [None] if reads is None else [*reads]
        self._waiting.extendleft(reversed(batch[len(answers):]))
        self._go_on()
        fault: Exception | None = None
        for (_, done), answer in zip(batch, answers, strict=False):
            try:
                done(answer, error)
            except Exception as raised:        # the others are answered all the same
                fault = fault or raised
        if fault is not None:
            raise fault
