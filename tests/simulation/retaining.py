"""Retained values: the steps that set them, and what they may be at any time.

As committed offsets: a value that was acknowledged is there or a later one is, over crashes, retention and lost
indexes; and it is the very message that was sent.
"""
from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from gatehouse.kernel.errors import KeptFull
from gatehouse.kernel.message import RETAIN, Retained
from gatehouse.kernel.records.batch import encode_headers
from tests.simulation.checker import Attempt, Broken, Sent, value_of
from tests.simulation.definitions import History
from tests.simulation.traffic import ADDRESSES, SIZES

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation


class Retaining:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._values: dict[str, History[bytes | None]] = {}
        self._asked: list[tuple[str, int, Attempt]] = []         # (address, mark, who waits for the answer)

    # ---- steps

    def retain(self, client: int, address: int, size: int, _: int) -> None:
        simulation = self._simulation
        where = ADDRESSES[address % len(ADDRESSES)]
        attempt = simulation.ledger.attempt("plain", f"client-{client % 3}", simulation.hub.world.loop.now_ms())
        placement = simulation.hub.kernel.place(where)
        headers = ((b"address", where.encode()),) if placement.address_header else ()
        value = value_of(attempt.number, 0, SIZES[size % len(SIZES)])
        attempt.messages.append(Sent(where, placement.partition_id, placement.key, value, headers, RETAIN | 1))
        simulation.note()
        owner = simulation.clients[client % 3]
        asking = owner.ask(attempt, lambda stored: None)
        try:
            simulation.hub.kernel.append([(placement, value, encode_headers(()), RETAIN | 1, 0)], owner, asking,
                                         positions=True)
        except KeptFull:
            owner.take_back(asking)
            return
        history = self._values.setdefault(where, History(f"value of {where}", None))
        history.note(value)
        self._asked.append((where, history.mark, attempt))
        simulation.reading.sent(attempt)

    # ---- looking

    def check(self) -> None:
        """At rest: every address has the value that was acknowledged last, or a later one."""
        waiting: list[tuple[str, int, Attempt]] = []
        for where, mark, attempt in self._asked:
            if attempt.acknowledged:
                self._values[where].acknowledged(mark)
            else:
                waiting.append((where, mark, attempt))
        self._asked = waiting
        there = self.now()
        for where in there.keys() - self._values.keys():
            raise Broken(f"invented: {where} retains a value that nobody sent")
        for where, history in self._values.items():
            history.seen(there.get(where))

    def now(self) -> dict[str, bytes | None]:
        """What is retained, read in pages of three."""
        found: dict[str, bytes | None] = {}
        start: str | None = ""
        while start is not None:
            start = self._page(found, start)
        return found

    def _page(self, found: dict[str, bytes | None], start: str) -> str | None:
        answers: list[tuple[list[Retained], str | None, Exception | None]] = []
        self._simulation.hub.kernel.retained("#", "/", lambda *answer: answers.append(answer), max_values=3,
                                             start=start)
        self._simulation.hub.settle(Random(0))
        (values, after, error), = answers
        assert error is None, error
        for value in values:
            self._simulation.ledger.see(value.partition_id, value.record)
            found[value.address] = value.record[3]
        return after
