"""Queues that nobody uses for so long (`QueueSettings.expires_ms`) are deleted.

Use is a member, a pop, or a declaration. When a queue was last used is kept with its definition, coarsely: a quarter of
the time may pass before it is written down again. A start gives whoever uses a queue the time to come back.
"""
from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from gatehouse.kernel.groups.settings import Queue

if TYPE_CHECKING:
    from gatehouse.kernel.groups.leasing import Leasing

PARTS: Final = 4                       # of the time, before a use is written down again
SHORTEST_MS: Final = 100               # between two looks at a queue in use
COME_BACK_MS: Final = 60_000           # after a start, or the whole time where that is less
TRY_AGAIN_MS: Final = 1_000            # where the disk did not take the deletion


class Idle:
    def __init__(self, leasing: Leasing) -> None:
        self._leasing = leasing
        self._used: dict[int, int] = {}                # by first partition id

    def watch(self, queue: Queue, used_ms: int) -> None:
        """From now on; it was used last at this time."""
        if queue.first_partition_id not in self._used:
            self._used[queue.first_partition_id] = used_ms
            self._wake(queue, self._leasing.now_ms() + max(1, queue.settings.expires_ms // PARTS))

    def watch_again(self, queue: Queue) -> None:
        """Watch a queue after a start: whoever uses it gets the time to come back."""
        expires_ms = queue.settings.expires_ms
        grace_ms = min(expires_ms, COME_BACK_MS)
        self.watch(queue, max(queue.used_ms, self._leasing.now_ms() + grace_ms - expires_ms))

    def use(self, queue: Queue) -> None:
        """Somebody does."""
        if queue.first_partition_id in self._used:
            self._used[queue.first_partition_id] = self._leasing.now_ms()

    def forget(self, queue: Queue) -> None:
        """It is deleted."""
        self._used.pop(queue.first_partition_id, None)

    def _wake(self, queue: Queue, when_ms: int) -> None:
        self._leasing.deadlines.at(when_ms, partial(self._look, queue.tenant, queue.name, queue.first_partition_id))

    def _look(self, tenant: str, name: str, first_partition_id: int) -> None:
        queue = self._leasing.queues.definitions.get(tenant, name)
        if queue is None or queue.first_partition_id != first_partition_id:
            self._used.pop(first_partition_id, None)
            return
        now_ms, expires_ms = self._leasing.now_ms(), queue.settings.expires_ms
        taken_from = self._leasing.queues.is_taken_from(queue)
        used_ms = now_ms if taken_from else self._used.get(first_partition_id, queue.used_ms)
        if now_ms - used_ms >= expires_ms:
            self._leasing.queues.delete(queue)
            self._wake(queue, now_ms + TRY_AGAIN_MS)
            return
        self._used[first_partition_id] = used_ms
        step_ms = max(expires_ms // PARTS, SHORTEST_MS)
        if used_ms - queue.used_ms >= step_ms:
            self._leasing.queues.redefine(replace(queue, used_ms=used_ms))
        self._wake(queue, now_ms + step_ms if taken_from else min(used_ms + expires_ms, now_ms + step_ms))
