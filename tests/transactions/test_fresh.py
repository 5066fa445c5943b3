"""Transactions that share a record until they are decided, or move into records of their own."""
from __future__ import annotations

import pytest

from gatehouse.kernel.errors import StorageFull, UnknownTransaction
from gatehouse.kernel.state.state import Kind
from gatehouse.transactions.coordinator import CheckSettings, Query, State, Transaction, TransactionSettings
from gatehouse.transactions.records import BEGUN, ENDED, OPEN
from tests.kernel.full_log import FullLog
from tests.transactions.rig import COMMIT, ROLLBACK, TransactionRig


def records(rig: TransactionRig, prefix: bytes) -> int:
    return len(list(rig.kernel._state.scan(Kind.TRANSACTION, prefix)))


def begin_together(rig: TransactionRig, count: int, checks: CheckSettings | None = None,
                   partitions: int = 1) -> list[int]:
    """So many in one frame, over so many addresses in turn."""
    before = len(rig.witness.stored)
    for number in range(count):
        rig.transactions.begin([rig.half(f"orders/{number % partitions}", b"%d" % number)], group="shop",
                               settings=checks, owner=rig.witness)
    rig.run()
    return [answer.positions[0][2] for answer in rig.witness.stored[before:]]


def decide_together(rig: TransactionRig, ids: list[int]) -> None:
    for one in ids:
        rig.transactions.decide(one, COMMIT, owner=rig.witness)
    rig.run()


def test_what_begins_with_one_frame_is_one_record_until_all_of_it_is_decided():
    rig = TransactionRig()
    ids = begin_together(rig, 10)
    assert (records(rig, BEGUN), records(rig, OPEN)) == (1, 0)
    decide_together(rig, ids[:4])
    decide_together(rig, ids[4:9])
    assert (records(rig, BEGUN), records(rig, ENDED)) == (1, 2)
    rig.rollback(ids[9])
    assert (records(rig, BEGUN), records(rig, ENDED)) == (0, 3)
    assert rig.values("orders") == [b"%d" % number for number in range(9)]


@pytest.mark.parametrize("lose_index", [False, True])
@pytest.mark.parametrize("from_store", [False, True])
def test_a_start_knows_which_of_them_are_over(lose_index: bool, from_store: bool):
    rig = TransactionRig()
    ids = begin_together(rig, 6)
    decide_together(rig, ids[:2])
    rig.add(ids[2], ("orders/0", b"more"))                   # it moves
    rig.commit(ids[2])
    rig.add(ids[3], ("orders/0", b"most"))
    if from_store:
        rig.world.advance(rig.settings.checkpoint_ms + 100)
        rig.run()
    rig.restart(lose_index=lose_index)
    rig.run()
    assert [rig.state(one) for one in ids] == [State.COMMITTED] * 3 + [State.OPEN] * 3
    assert rig.transactions.statistics()["transactions_open"] == 3
    for one in ids[3:]:
        rig.commit(one)
    assert rig.values("orders") == [b"0", b"1", b"2", b"more", b"3", b"most", b"4", b"5"]
    assert (records(rig, BEGUN), records(rig, OPEN)) == (0, 0)
    assert rig.transactions.statistics()["transactions_open_bytes"] == 0


def test_a_decision_is_not_forgotten_while_one_that_began_with_it_is_undecided():
    rig = TransactionRig(TransactionSettings(max_remembered=0))
    first, second = begin_together(rig, 2, CheckSettings(3_600_000, 3_600_000, 15))
    rig.commit(first)
    rig.restart()
    rig.run()
    assert rig.state(first) is State.COMMITTED and rig.state(second) is State.OPEN
    rig.rollback(second)
    rig.advance(20_000, 1_000)
    with pytest.raises(UnknownTransaction):
        rig.commit(first)
    assert rig.values("orders") == [b"0"] and records(rig, ENDED) == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_who_stays_undecided_moves_before_the_first_check(restarts: bool):
    rig = TransactionRig()
    ids = begin_together(rig, 3)
    rig.rollback(ids[1])
    if restarts:
        rig.restart()
    rig.advance(5_500)
    assert (records(rig, BEGUN), records(rig, OPEN)) == (0, 2)
    assert rig.page()[0] == [ids[0], ids[2]]
    asked, _ = rig.join()
    rig.advance(7_000)
    assert sorted(asked.ids) == [ids[0], ids[2]]


@pytest.mark.parametrize("at_once", ["decided", "moved", "asked about"])
def test_what_is_not_durable_yet_is_not_seen_in_the_list(at_once: str):
    rig = TransactionRig()
    one, other = rig.begin(("orders/0", b"a")), rig.begin(("orders/0", b"b"))
    if at_once == "decided":
        rig.transactions.decide(one, COMMIT, owner=rig.witness)
    elif at_once == "moved":
        rig.transactions.add(one, [rig.half("orders/0", b"more")], owner=rig.witness)
    else:
        rig.transactions.check_now(one, owner=rig.witness)
    found: list[tuple[list[Transaction], str | None]] = []
    for group in (None, "shop"):
        rig.transactions.page(Query("/", group=group), found.append)
    for transactions, _ in found:
        assert [(transaction.id, transaction.state) for transaction in transactions] == [(one, State.OPEN),
                                                                                         (other, State.OPEN)]
    rig.run()
    assert rig.page()[0] == ([other] if at_once == "decided" else [one, other])


def test_when_there_are_too_many_the_oldest_move():
    rig = TransactionRig()
    rig.transactions._book.fresh.max_count = 10
    ids = begin_together(rig, 8) + begin_together(rig, 8)
    assert (records(rig, BEGUN), records(rig, OPEN)) == (1, 8)
    assert rig.page()[0] == sorted(ids)
    decide_together(rig, ids)
    assert len(rig.values("orders")) == 16


def test_a_move_that_was_not_stored_leaves_it_as_it_was():
    log = FullLog()
    rig = TransactionRig(log=log)
    one = rig.begin(("orders/0", b"half"))
    log.full = True
    with pytest.raises(StorageFull):
        rig.add(one, ("orders/0", b"more"))
    rig.advance(4_000)
    log.full = False
    rig.advance(2_000)
    assert records(rig, OPEN) == 1
    rig.decide(one, COMMIT)
    assert rig.values("orders") == [b"half"]


def test_commits_together_are_as_few_runs_as_there_are_partitions():
    rig = TransactionRig()
    rig.kernel.create_topic("orders", partitions=4)
    ids = begin_together(rig, 60, partitions=30)
    entries = len(rig.kernel._reader._memtables.newest.entries)
    decide_together(rig, ids)
    assert len(rig.kernel._reader._memtables.newest.entries) - entries <= 4
    assert {record[6] for record in rig.read("orders")} == set(ids)


def test_of_a_foreign_tenant_nothing_moves():
    rig = TransactionRig()
    one = rig.begin(("orders/0", b"half"))
    rig.transactions.add(one, [rig.half("orders/0", b"more")], tenant="other", owner=rig.witness)
    with pytest.raises(UnknownTransaction):
        rig.answer()
    assert records(rig, OPEN) == 0 and rig.rollback(one)
    assert rig.decide(one, ROLLBACK)
