"""Everything about messages to be delivered later, as the kernel sees it."""
from __future__ import annotations

from kernel.appending import Appending
from kernel.committer import Committer
from kernel.parts import Parts
from kernel.scheduling.accepting import Accepting
from kernel.scheduling.book import Book
from kernel.scheduling.delivering import Delivering
from kernel.scheduling.queries import Queries
from kernel.scheduling.records import due_of
from kernel.scheduling.sweeping import Sweeping
from kernel.scheduling.timers import Timers


class Scheduling:
    def __init__(self, parts: Parts, committer: Committer, appending: Appending) -> None:
        self._parts = parts
        self._book = Book(parts, committer, Timers())
        self._delivering = Delivering(parts, committer, appending, self._book)
        self.sweeping = Sweeping(parts, self._book)
        self.accepting = Accepting(parts, committer, appending, self._book)
        self.queries = Queries(parts, self._book)

    def start(self) -> None:
        """After replay: what fell due meanwhile goes out first, in due order."""
        self._book.load()
        self._delivering.turn()
        self.sweeping.start()

    def stop(self) -> None:
        self._delivering.stop()
        self.sweeping.stop()

    def statistics(self) -> dict[str, int]:
        keys = self._book.timers.keys
        late_ms = self._parts.loop.now_ms() - due_of(keys[0]) if keys else 0
        return {"scheduled": self._book.counts.pending, "scheduled_delivered_total": self._book.delivered,
                "scheduled_late_ms": max(0, late_ms)}
