"""What one frame does to transactions: state records at seal, and what takes effect when it is durable. Pure. Hot."""
from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from gatehouse.kernel.halves.half_records import PAGE_BYTES, Row, cut_pages, encode_page, half_key
from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.write.pending_frame import PendingFrame, Run
from gatehouse.transactions.fresh import Batch, Begun, Origin
from gatehouse.transactions.records import Transaction, encode, open_key
from gatehouse.transactions.shared_records import Ended, Ending, begun_key, encode_begun, encode_ended, ending_of
from gatehouse.transactions.states import State

NEW: Final = 0                    # id of a transaction that has none yet
OPEN: Final = State.OPEN          # decision 357: looked up once


class Hold(NamedTuple):
    """Half messages that came together, of a transaction with records of its own."""

    runs: list[Run]                          # one each, that is told its id
    pages: list[list[Row]]
    first_page: int
    transaction: Transaction                 # as it is with them


class Change(NamedTuple):
    """What a frame makes of a transaction that had records of its own."""

    before: Transaction
    after: Transaction


class Plan:
    """What one frame does to transactions: a `kernel.write.pending_frame.Participant`."""

    def __init__(self, now_ms: int, wall_ms: int, most: int, on_end: Callable[[Plan, bool], None]) -> None:
        self.now_ms = now_ms
        self.wall_ms = wall_ms                           # the same moment, as it is told
        self._most = most                                # transactions that share a record
        self._on_end = on_end
        self._begins: list[Begun] = []
        self._holds: list[Hold] = []
        self._left: list[Begun] = []                     # their batches, once sealed
        self.begun: list[Transaction] = []               # with records of their own; known once sealed
        self.batches: list[Batch] = []                   # of the others; known once sealed
        self.emptied: list[Batch] = []                   # whose records are deleted; known once sealed
        self.decided: dict[int, Begun] = {}
        self.moved: list[tuple[Begun, Transaction]] = []
        self.changes: dict[int, Change] = {}
        self.told: list[Callable[[bool], None]] = []     # called at the end with whether it is durable
        self.ended: list[Ended] = []                     # known once sealed
        self.forgotten: list[Ended] = []
        self._is_sealed = self._is_over = False
        self.count = 0
        self.new_count = 0                               # transactions that begin with this frame,
        self.new_bytes = 0                               # and half messages of any

    # ---- filling

    def begin(self, begun: Begun) -> None:
        """It shares a record with others."""
        assert begun.rows and not begun.id, "its messages get their ids with this frame"
        self._begins.append(begun)
        self.count += len(begun.rows)
        self.new_bytes += begun.size_bytes
        self.new_count += 1

    def hold(self, hold: Hold, size_bytes: int) -> None:
        assert len(hold.runs) == sum([len(page) for page in hold.pages]), "each message is told its id"
        self._holds.append(hold)
        self.count += len(hold.runs)
        self.new_bytes += size_bytes
        self.new_count += hold.transaction.id == NEW

    def change(self, before: Transaction, after: Transaction) -> None:
        change = self.changes.get(after.id)
        assert change is None or change.after == before, "each change begins where the one before ended"
        self.changes[after.id] = Change(before if change is None else change.before, after)

    def move(self, begun: Begun) -> Transaction:
        """It gets records of its own."""
        after = begun.transaction()._replace(pages=len(cut_pages(begun.rows)))
        self.moved.append((begun, after))
        return after

    # ---- from pending_frame to frame

    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """What begins gets its ids."""
        assert not self._is_sealed, "a plan is sealed once"
        self._is_sealed = True
        records = frame.state
        behind = first_id + self.count
        for transactions in self._together():
            records.append(self._record_of_batch(transactions, first_id))
            for transaction in transactions:
                first_id += len(transaction.rows)
        for hold in self._holds:
            records += self._records_of_hold(hold, first_id)
            first_id += len(hold.runs)
        assert first_id == behind, "as many ids are used as were asked for"
        for begun, after in self.moved:
            records.append(StateRecord(Kind.TRANSACTION, open_key(after.id), encode(after)))
            records += _pages(after.id, 0, after.id, cut_pages(begun.rows))
        self._leave([begun for begun, _ in self.moved] + list(self.decided.values()))
        records += [StateRecord(Kind.TRANSACTION, begun_key(batch.id), None) for batch in self.emptied]
        for transaction_id, change in self.changes.items():
            value = encode(change.after) if change.after.state is OPEN else None
            records.append(StateRecord(Kind.TRANSACTION, open_key(transaction_id), value))
        records += self._records_of_ends()
        records += [StateRecord(Kind.TRANSACTION, ended.key, None) for ended in self.forgotten]
        return self.count

    def _together(self) -> list[list[Begun]]:
        """What begins, as batches. Ordered by partition: messages that are committed together and follow each other
        there have ids that do, and are one run."""
        batches: list[list[Begun]] = []
        size_bytes = 0
        # decision 49: partition by partition
        for begun in sorted(self._begins, key=_partition_id):
            if not batches or size_bytes >= PAGE_BYTES or len(batches[-1]) >= self._most:
                batches.append([])
                size_bytes = 0
            batches[-1].append(begun)
            size_bytes += begun.size_bytes
        return batches

    def _record_of_batch(self, transactions: list[Begun], first_id: int) -> StateRecord:
        self.batches.append(Batch(first_id, transactions))
        rows: list[Row] = []
        for transaction in transactions:
            transaction.id = first_id + len(rows)
            for number, (run, _) in enumerate(transaction.places, transaction.id):
                run.first_id = number
            transaction.places = []
            rows += transaction.rows
        value = encode_begun(self.now_ms, [(transaction.origin.template, len(transaction.rows))
                                           for transaction in transactions], encode_page(first_id, rows))
        return StateRecord(Kind.TRANSACTION, begun_key(first_id), value)

    def _records_of_hold(self, hold: Hold, first_id: int) -> list[StateRecord]:
        transaction = hold.transaction
        if transaction.id == NEW:
            transaction = transaction._replace(id=first_id)
            self.begun.append(transaction)
        for number, run in enumerate(hold.runs, first_id):
            run.first_id = number
        records = _pages(transaction.id, hold.first_page, first_id, hold.pages)
        if hold.transaction.id == NEW:
            records.append(StateRecord(Kind.TRANSACTION, open_key(transaction.id), encode(transaction)))
        return records

    def _leave(self, transactions: list[Begun]) -> None:
        """These transactions leave the batches that they began in: a batch's record goes with the last of them."""
        self._left = transactions
        for transaction in transactions:
            batch = transaction.batch
            assert batch is not None, "it has been stored"
            if batch.leave():
                self.emptied.append(batch)

    # decision 48: and one for all that it decides
    def _records_of_ends(self) -> list[StateRecord]:
        by_tenant: dict[str, list[Ending]] = {}
        for change in self.changes.values():
            if change.after.state is not OPEN:
                by_tenant.setdefault(change.after.tenant, []).append(ending_of(change.after))
        templates: dict[tuple[Origin, State, str], bytes] = {}
        for begun in self.decided.values():
            name = begun.origin, begun.state, begun.decided_by
            template = templates.get(name)
            if template is None:
                template = templates[name] = begun.origin.encode(begun.state, begun.decided_ms, begun.decided_by)
            by_tenant.setdefault(begun.origin.tenant, []).append(
                (begun.id, begun.begun_ms, len(begun.rows), begun.size_bytes, begun.address, template))
        records: list[StateRecord] = []
        for tenant, endings in by_tenant.items():
            ended, record = encode_ended(self.now_ms, tenant, endings)
            self.ended.append(ended)
            records.append(record)
        return records

    def applied(self, frame: PendingFrame) -> None:
        """See `Participant.applied`."""
        assert self._is_sealed and not self._is_over, "a frame ends once, after it was sealed"
        self._is_over = True
        self._on_end(self, True)

    def failed(self, frames: list[PendingFrame]) -> None:
        """See `Participant.failed`."""
        assert not self._is_over, "a frame ends once"
        self._is_over = True
        for begun in self._left:
            if begun.batch is not None:
                begun.batch.take_back()
        self._on_end(self, False)


def _partition_id(begun: Begun) -> int:
    return begun.messages[0][0].partition_id if begun.messages is not None else 0


def _pages(transaction_id: int, first_page: int, first_id: int, pages: list[list[Row]]) -> list[StateRecord]:
    records: list[StateRecord] = []
    for page, rows in enumerate(pages, first_page):
        records.append(StateRecord(Kind.HALF, half_key(transaction_id, page), encode_page(first_id, rows)))
        first_id += len(rows)
    return records
