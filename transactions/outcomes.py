"""Decisions that are remembered, in columns: some thirty bytes for one with a frame of its own. Pure.

    old    what a start has read, of each tenant
    new    what was decided since: its times rise, and are later than those of `old` unless the clock was set back

An id is looked for among the entries that hold one of the same thousand. What one frame decides has nearly always begun
together, so those are few.
"""
from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import Final

from gatehouse.transactions.shared_records import Ended

SPARE: Final = 4_096                   # taken from the front, and their room kept
THOUSAND: Final = 10                   # bits
BEFORE_ALL: Final = (1 << 62, 0)       # where a list of the newest begins

_decided_ms = attrgetter("decided_ms")


class Row:
    """What one tenant's transactions were decided by, in the order of time; what a frame decided is one entry."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._decided_ms = array("q")
        self._ends = array("Q")        # of each entry, where its ids end
        self._ids = array("Q")
        self._first = 0
        self._gone = 0                         # entries whose room has been given back
        self._by_thousand: dict[int, array[int]] = {}        # numbers of entries, those of `_gone` counted

    def add(self, ended: Ended) -> None:
        assert ended.ids and ended.tenant == self._tenant, "an entry has ids, of its row's tenant"
        number = self._gone + len(self._ends)
        for thousand in {transaction_id >> THOUSAND for transaction_id in ended.ids}:
            entries = self._by_thousand.get(thousand)
            if entries is None:
                entries = self._by_thousand[thousand] = array("Q")
            entries.append(number)
        self._decided_ms.append(ended.decided_ms)
        self._ids.extend(ended.ids)
        self._ends.append(len(self._ids))

    def find(self, transaction_id: int) -> Ended | None:
        for number in self._by_thousand.get(transaction_id >> THOUSAND, ()):
            at = number - self._gone
            if at >= self._first:
                start = self._ends[at - 1] if at else 0
                position = bisect_left(self._ids, transaction_id, start, self._ends[at])
                if position < self._ends[at] and self._ids[position] == transaction_id:
                    return self._entry(at)
        return None

    def __iter__(self) -> Iterator[Ended]:
        for at in range(self._first, len(self._ends)):
            yield self._entry(at)

    def drop_first(self) -> None:
        for thousand in {transaction_id >> THOUSAND for transaction_id in self._entry(self._first).ids}:
            entries = self._by_thousand[thousand]
            entries.remove(self._gone + self._first)
            if not entries:
                del self._by_thousand[thousand]
        self._first += 1
        if self._first > SPARE and self._first > len(self._ends) // 2:
            first, ids = self._first, self._ends[self._first - 1]
            del self._decided_ms[:first], self._ids[:ids]
            self._ends = array("Q", [end - ids for end in self._ends[first:]])
            self._gone += first
            self._first = 0

    def newest(self, until_ms: int) -> Iterator[Ended]:
        """Decisions that were made by a time, newest first. Nothing may change meanwhile."""
        for at in range(bisect_right(self._decided_ms, until_ms) - 1, self._first - 1, -1):
            yield self._entry(at)

    def has(self, ended: Ended) -> bool:
        """Whether it is the first."""
        return self._first < len(self._ends) and self._entry(self._first) == ended

    def _entry(self, at: int) -> Ended:
        start = self._ends[at - 1] if at else 0
        return Ended(self._decided_ms[at], self._tenant, self._ids[start:self._ends[at]])


class Outcomes:
    def __init__(self) -> None:
        self._old: dict[str, Row] = {}
        self._new: dict[str, Row] = {}
        self._met: set[tuple[int, int]] | None = None          # new while a start reads the old ones
        self.count = 0                 # transactions

    def begin_loading(self) -> None:
        """`load` follows, in order, with what may have been added meanwhile among it."""
        self._met = set()

    def loaded(self) -> None:
        assert self._met is not None, "reading ends once"
        self._met = None

    @property
    def is_loading(self) -> bool:
        return self._met is not None

    def __iter__(self) -> Iterator[Ended]:
        """Oldest first."""
        return merge(*self._old.values(), *self._new.values(), key=_decided_ms)

    def load(self, ended: Ended) -> None:
        """The next that a start has read."""
        if self._met is None or (ended.decided_ms, ended.ids[0]) not in self._met:
            self._add(self._old, ended)

    def add(self, ended: Ended) -> None:
        """The newest."""
        if self._met is not None:
            self._met.add((ended.decided_ms, ended.ids[0]))
        self._add(self._new, ended)

    def _add(self, rows: dict[str, Row], ended: Ended) -> None:
        row = rows.get(ended.tenant)
        if row is None:
            row = rows[ended.tenant] = Row(ended.tenant)
        row.add(ended)
        self.count += len(ended.ids)

    def drop(self, ended: Ended) -> None:
        """One of the first."""
        rows = self._old if ended.tenant in self._old and self._old[ended.tenant].has(ended) else self._new
        assert rows[ended.tenant].has(ended), "the first is dropped"
        rows[ended.tenant].drop_first()
        self.count -= len(ended.ids)
        assert self.count >= 0, "what is dropped was remembered"

    def find(self, transaction_id: int) -> Ended | None:
        """What it was decided with, as far as that is known."""
        for rows in (self._new, self._old):
            for row in rows.values():
                ended = row.find(transaction_id)
                if ended is not None:
                    return ended
        return None

    def newest(self, tenant: str, before: tuple[int, int] = BEFORE_ALL) -> Iterator[tuple[Ended, int]]:
        """A tenant's decisions below this (time, id), and what they were decided with, newest first. Nothing may change
        meanwhile."""
        rows = [rows[tenant].newest(before[0]) for rows in (self._new, self._old) if tenant in rows]
        for decided_ms, entries in groupby(merge(*rows, key=_decided_ms, reverse=True), _decided_ms):
            for transaction_id, ended in sorted([(transaction_id, entry) for entry in entries
                                                 for transaction_id in entry.ids], reverse=True):
                if (decided_ms, transaction_id) < before:
                    yield ended, transaction_id
