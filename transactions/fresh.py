"""Transactions that have just begun. Most are decided within seconds: until then they share a record. Pure. Hot.

A *batch* is what began with one frame: one state record, with all their half messages. It is deleted when the last of
it is decided. What is undecided after FRESH_MS, half way to its first check, or when there are too many of these, moves
into records of its own. All of a batch is in memory for as long as its record lives: only a start ever reads one.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gatehouse.kernel.halves.half_records import HeldMessage, Row, decode_rows, held, held_of, size_of
from gatehouse.kernel.message import Message
from gatehouse.kernel.write.pending_frame import Run
from gatehouse.transactions.records import Transaction, decode, encode
from gatehouse.transactions.settings import MAX_BY, CheckSettings
from gatehouse.transactions.shared_records import decode_begun
from gatehouse.transactions.states import State
from gatehouse.transactions.timers import Timers

FRESH_MS: Final = 10_000
MAX_FRESH: Final = 50_000
MAX_FRESH_BYTES: Final = 64 << 20
MAX_ADDRESS: Final = 1_000         # characters of the address that is shown
NONE: Final = 1 << 63              # above every id
OPEN: Final = State.OPEN           # decision 357: looked up once


class Origin:
    """Whose transactions these are, and how they are checked: many have all of it in common."""

    __slots__ = ("tenant", "group", "by", "shown_by", "settings", "template")

    def __init__(self, tenant: str, group: str, by: str, settings: CheckSettings) -> None:
        self.tenant = tenant
        self.group = group
        self.by = by
        self.shown_by = by[:MAX_BY]
        self.settings = settings
        self.template = self.encode(OPEN, 0, "")

    # decision 47: a name is a user's within a group
    def key_of(self, name: str) -> str:
        """The key of a name that a sender gave a transaction. It means something for this sender in this group alone:
        nobody collides with or learns of another's."""
        return f"half\0{self.tenant}\0{self.group}\0{len(self.by)}\0{self.by}\0{name}"

    def encode(self, state: State, decided_ms: int, decided_by: str) -> bytes:
        """What those have in common that are decided alike, too."""
        return encode(Transaction(0, state, self.tenant, self.group, self.shown_by, "", 0, 0, self.settings, 0, 0, 0,
                                  0, (), decided_ms, decided_by))


class Begun:
    """A transaction without records of its own."""

    __slots__ = ("id", "origin", "begun_ms", "rows", "size_bytes", "messages", "places", "batch", "state",
                 "decided_ms", "decided_by")

    def __init__(self, origin: Origin, begun_ms: int, rows: list[Row], size_bytes: int,
                 messages: list[Message] | None, places: list[tuple[Run, int]]) -> None:
        self.id = 0                                  # known once sealed, as the batch
        self.origin = origin
        self.begun_ms = begun_ms
        self.rows = rows
        self.size_bytes = size_bytes
        self.messages = messages                     # as they came, where a commit appends them as they are
        self.places = places                         # of each, to be told its id
        self.batch: Batch | None = None
        self.state: State = OPEN
        self.decided_ms = 0
        self.decided_by = ""

    @property
    def group(self) -> str:
        return self.origin.group

    @property
    def by(self) -> str:
        return self.origin.shown_by

    @property
    def address(self) -> str:
        messages = self.messages
        address = messages[0][0].address if messages is not None else held_of(0, self.rows[0]).what.address
        return address[:MAX_ADDRESS]

    @property
    def next_ms(self) -> int:
        return self.begun_ms + self.origin.settings.first_ms

    def decide(self, state: State, decided_ms: int, decided_by: str) -> None:
        self.state, self.decided_ms, self.decided_by = state, decided_ms, decided_by

    def held(self) -> list[HeldMessage]:
        return held(self.id, self.rows)

    def as_begun(self) -> Transaction:
        """Before any decision."""
        origin = self.origin
        return Transaction(self.id, OPEN, origin.tenant, origin.group, origin.shown_by, self.address,
                           self.begun_ms, self.next_ms, origin.settings, len(self.rows), 0, self.size_bytes, 0, (),
                           0, "")

    def transaction(self) -> Transaction:
        """As it is now."""
        if self.state is OPEN:
            return self.as_begun()
        return self.as_begun()._replace(state=self.state, next_ms=0, decided_ms=self.decided_ms,
                                        decided_by=self.decided_by)


# decision 48: one record for all that begin with one frame
class Batch:
    """Transactions that share a record."""

    __slots__ = ("id", "ones", "left", "due_ms", "earliest_ms")

    def __init__(self, first_id: int, transactions: list[Begun], earliest_ms: int = 0) -> None:
        assert transactions, "a batch goes with the last of it"
        self.id = first_id
        self.ones = transactions
        self.left = len(transactions)                # neither decided nor moved
        wait_ms = FRESH_MS
        for transaction in transactions:
            transaction.batch = self
            wait_ms = min(wait_ms, transaction.origin.settings.first_ms // 2)
        self.earliest_ms = earliest_ms               # nobody is asked sooner
        # When what is left moves: before anybody is asked about it.
        self.due_ms = max(transactions[0].begun_ms + wait_ms, earliest_ms - wait_ms)

    def leave(self) -> bool:
        """One of them is decided or moved; whether it was the last."""
        self.left -= 1
        assert self.left >= 0, "a transaction leaves its batch once"
        return not self.left

    def take_back(self) -> None:
        """One that had left is as before: the disk did not take it."""
        self.left += 1


def decode_batch(value: bytes) -> list[Begun]:
    """All that a BEGUN record holds, decided or not."""
    begun_ms, beginnings, page = decode_begun(value)
    first_id, rows = decode_rows(page)
    origins: dict[bytes, Origin] = {}
    transactions: list[Begun] = []
    at = 0
    for template, count in beginnings:
        origin = origins.get(template)
        if origin is None:
            prototype = decode(0, template)
            origin = origins[template] = Origin(prototype.tenant, prototype.group, prototype.by, prototype.settings)
        mine = rows[at:at + count]
        begun = Begun(origin, begun_ms, mine, size_of(mine), None, [])
        assert count > 0, "a transaction has messages"
        begun.id = first_id + at
        at += count
        transactions.append(begun)
    assert at == len(rows), "every message is one transaction's"
    return transactions


class Fresh:
    """What of them is undecided, and all batches whose records are there."""

    def __init__(self, max_count: int = MAX_FRESH, max_bytes: int = MAX_FRESH_BYTES) -> None:
        self.max_count = max_count
        self.max_bytes = max_bytes
        self._known: dict[int, Begun] = {}
        self._batches: dict[int, Batch] = {}         # by id, in order
        self._timers = Timers()
        self._bytes = 0

    def put(self, batch: Batch) -> None:
        assert batch.id not in self._batches, "a batch begins once"
        is_older = batch.id < next(reversed(self._batches), 0)       # a start has come to it after others began
        self._batches[batch.id] = batch
        if is_older:
            self._batches = dict(sorted(self._batches.items()))
        self._timers.add(batch.due_ms, batch.id)
        for begun in batch.ones:
            self.give_back(begun)

    def drop(self, batch: Batch) -> None:
        """Its record has gone."""
        assert not batch.left and self._batches[batch.id] is batch, "nothing of it is undecided"
        del self._batches[batch.id]
        self._timers.discard(batch.due_ms, batch.id)
        batch.ones = []                              # each knows its batch: else all of them are the collector's

    def get(self, transaction_id: int) -> Begun | None:
        return self._known.get(transaction_id)

    def take(self, begun: Begun) -> None:
        """It is being decided or moved."""
        assert self._known[begun.id] is begun, "an id is one transaction's"
        del self._known[begun.id]
        self._bytes -= begun.size_bytes
        assert self._bytes >= 0 and (self._known or not self._bytes), "bytes are those of what is fresh"

    def give_back(self, begun: Begun) -> None:
        assert begun.id not in self._known and begun.state is OPEN, "it comes in once, undecided"
        self._known[begun.id] = begun
        self._bytes += begun.size_bytes

    def __iter__(self) -> Iterator[Begun]:
        return iter(self._known.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of all that is undecided here."""
        return self._bytes

    @property
    def oldest(self) -> int:
        """No transaction below this id has anything to do with a batch that is there."""
        return next(iter(self._batches), NONE)

    # ---- moving

    def next_ms(self) -> int | None:
        """When something should move; 0: now, as there are too many. None: there is nothing."""
        if len(self._known) > self.max_count or self._bytes > self.max_bytes:
            return 0
        return self._timers.next_ms()

    def to_move(self, now_ms: int, limit: int) -> list[Begun]:
        """What should: the oldest where there are too many, and about so many of what is due."""
        too_many = self.next_ms() == 0
        transactions: list[Begun] = []
        for batch in self._batches.values():
            if too_many or batch.due_ms <= now_ms and len(transactions) < limit:
                transactions += [transaction for transaction in batch.ones if transaction.id in self._known]
                too_many = too_many and len(self._known) - len(transactions) > self.max_count
        return transactions
