"""Everything about messages to be delivered later, as the kernel sees it."""
from __future__ import annotations

from collections.abc import Callable

from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.backpressure import Backpressure
from gatehouse.kernel.errors import StorageFailed
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.log.disk_guard import DiskGuard
from gatehouse.kernel.message import Message, Owner, When
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.receipts import Receipts
from gatehouse.kernel.recorder import Recorder
from gatehouse.kernel.scheduling.accepting import Accepting
from gatehouse.kernel.scheduling.book import Book
from gatehouse.kernel.scheduling.delivering import Delivering
from gatehouse.kernel.scheduling.destinations import Destinations
from gatehouse.kernel.scheduling.queries import Page, Queries, Scheduled
from gatehouse.kernel.scheduling.schedule_records import due_of
from gatehouse.kernel.scheduling.sweeping import Sweeping
from gatehouse.kernel.state.clock import Clock
from gatehouse.kernel.state.state import StateTable
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.write.committer import Appending, Committer


class Scheduling:
    """`worker` reads the index."""

    def __init__(self, *, loop: Loop, worker: Worker, index: Index, state: StateTable, topics: Topics, clock: Clock,
                 places: Places, disk_guard: DiskGuard, backpressure: Backpressure, committer: Committer,
                 appending: Appending, max_scheduled: int, fatal: Callable[[str], None],
                 receipts: Receipts, recorder: Recorder | None = None) -> None:
        self._loop = loop
        book = self.book = Book(state, committer, clock.wall_of)
        # hears of a frame first: recalls go before what is due again
        self._queries = Queries(worker=worker, index=index, state=state, clock=clock, book=book, fatal=fatal,
                                recorder=recorder)
        self.destinations = Destinations(places, topics)
        self.delivering = Delivering(loop=loop, worker=worker, index=index, state=state, clock=clock,
                                     committer=committer, backpressure=backpressure, destinations=self.destinations,
                                     book=book, fatal=fatal, receipts=receipts, recorder=recorder)
        self.sweeping = Sweeping(loop=loop, worker=worker, index=index, state=state, book=book, fatal=fatal)
        self._accepting = Accepting(loop=loop, committer=committer, appending=appending, places=places,
                                    disk_guard=disk_guard, book=book, max_scheduled=max_scheduled, receipts=receipts,
                                    recorder=recorder)

    def start(self) -> None:
        """After replay: what fell due meanwhile goes out first, in due order."""
        self.book.load()
        self.delivering.turn()
        self.sweeping.start()

    def stop(self) -> None:
        self.delivering.stop()
        self.sweeping.stop()

    def schedule(self, messages: list[Message], whens: list[When], owner: Owner | None, token: object,
                 idempotency_key: str | None) -> None:
        """See `Kernel.schedule`."""
        self._accepting.schedule(messages, whens, owner, token, idempotency_key)

    def page(self, tenant: str, start: bytes, limit: int, on_done: Callable[[Page | StorageFailed], None]) -> None:
        """What waits, by due time, from b"" or the end of the page before on; a page may be short of its limit."""
        self._queries.page(tenant, start, limit, on_done)

    def show(self, message_id: int, tenant: str, on_done: Callable[[Scheduled | None], None]) -> None:
        """What waits under an id, or what became of it within the last day; None where nothing is known."""
        self._queries.show(message_id, tenant, on_done)

    def recall(self, message_id: int, tenant: str, owner: Owner, token: object = None) -> None:
        """Take back what waits. Answered when that is durable, or with AlreadyDelivered, UnknownScheduled, Stopping.

        What has been recalled already is answered alike. Answers may come in another order than the calls.
        """
        self._queries.recall(message_id, tenant, owner, token)

    def recall_named(self, name: str, tenant: str, owner: Owner, token: object = None) -> None:
        """Take back all that waits under a name, the oldest `RECALLED_AT_ONCE` of it. Answered when that is durable,
        with (0, -1, id) of each; or with UnknownScheduled, Stopping."""
        self._queries.recall_named(name, tenant, owner, token)

    def statistics(self) -> dict[str, int]:
        return {"scheduled": self.book.counts.pending, "scheduled_delivered_total": self.book.delivered}

    def late_ms(self) -> int:
        """How long the next message has been due."""
        clocks = (self.book.timers, self._loop.now_ms()), (self.book.wall_timers, self._loop.wall_ms())
        return max([0, *[now_ms - due_of(timers.keys[0]) for timers, now_ms in clocks if timers.keys]])
