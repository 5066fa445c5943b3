"""Very many undecided transactions: what is done about them in one turn of the loop is bounded, and nobody waits for
more than that. Counted, not timed: a turn is one callback."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from gatehouse.kernel.errors import Busy
from gatehouse.kernel.halves.halves import Halves
from gatehouse.transactions.checking import BURY, ROUNDS
from gatehouse.transactions.coordinator import CheckSettings, Query, State, TransactionSettings
from gatehouse.transactions.fresh import FRESH_MS
from gatehouse.transactions.loading import GRACE_MS, MAX_WAITING
from tests.transactions.rig import COMMIT, ROLLBACK, Asked, TransactionRig

SLICE = 20
MANY = 1_000
LATER = CheckSettings(3_600_000, 3_600_000, 2)
ONCE = CheckSettings(1_000, 3_600_000, 15)
OVER = CheckSettings(1_000, 1_000, 0)


class ManyRig(TransactionRig):
    """With so many undecided transactions, in the store or in the log alone; `ids` in their order."""

    def __init__(self, count: int, checks: CheckSettings, group: str = "shop", *, stored: bool = True) -> None:
        super().__init__(TransactionSettings(slice=SLICE))
        for number in range(count):
            self.transactions.begin([self.half("orders/1", b"%d" % number)], group=group, settings=checks,
                                    owner=self.witness)
        self.run()
        self.ids = [answer.positions[0][2] for answer in self.witness.stored]
        if stored:
            self.kernel._checkpoints.take(lambda: None)
            self.run()


def turns(rig: TransactionRig) -> Iterator[None]:
    """One callback of the loop after the other, and workers between them, until nothing is left to do."""
    while rig.world.loop.step() or rig.world._step_workers():
        yield


def most(rig: TransactionRig, count: Callable[[], int]) -> int:
    """By how much a number rises in one turn at most."""
    risen, before = 0, count()
    for _ in turns(rig):
        now = count()
        risen, before = max(risen, now - before), now
    return risen


def statistic(rig: TransactionRig, name: str) -> int:
    return rig.transactions.statistics()[name]


# ---- a start


@pytest.mark.parametrize("stored", [True, False])
def test_a_start_reads_them_in_slices(stored: bool) -> None:
    rig = ManyRig(MANY, LATER, stored=stored)
    rig.restart()
    assert statistic(rig, "transactions_open") == 0 and statistic(rig, "transactions_loading") == 1
    assert 0 < most(rig, lambda: statistic(rig, "transactions_open")) <= 2 * SLICE
    assert statistic(rig, "transactions_open") == MANY and statistic(rig, "transactions_loading") == 0
    assert rig.page(limit=1_000)[0] == rig.ids


@pytest.mark.parametrize("stored", [True, False])
def test_a_start_reads_what_is_remembered_in_slices(stored: bool) -> None:
    rig = ManyRig(100, LATER)
    ids = rig.ids
    for one in ids:
        rig.rollback(one)
    if stored:
        rig.forget_memory()
    rig.restart()
    assert 0 < most(rig, lambda: statistic(rig, "transactions_remembered")) <= 2 * SLICE
    assert rig.page(limit=200, state=State.ROLLED_BACK)[0] == ids[::-1]


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("steps", [0, 3, 60, 300])
def test_everything_can_happen_to_what_a_start_has_not_read(stored: bool, steps: int) -> None:
    rig = ManyRig(200, LATER, stored=stored)
    ids = rig.ids
    rig.restart()
    for _ in range(steps):
        rig.world.loop.step() or rig.world._step_workers()
    rig.witness.stored.clear()
    committed, rolled_back, more, asked = (ids[first::20] for first in (0, 5, 7, 11))
    for one in committed:
        rig.transactions.decide(one, COMMIT, owner=rig.witness)
    for one in rolled_back:
        rig.transactions.decide(one, ROLLBACK, owner=rig.witness)
        rig.world.loop.step() or rig.world._step_workers()
    for one in more:
        rig.transactions.add(one, [rig.half("orders/1", b"more")], owner=rig.witness)
    for one in asked:
        rig.transactions.check_now(one, owner=rig.witness)
    rig.transactions.begin([rig.half("orders/1", b"new")], group="shop", settings=LATER, owner=rig.witness, token="new")
    rig.run()
    assert all(answer.error is None for answer in rig.witness.stored) and len(rig.witness.stored) == 41
    new = next(answer.positions[0][2] for answer in rig.witness.stored if answer.token == "new")
    left = [one for one in ids if one not in (*committed, *rolled_back)]
    assert rig.page(limit=300)[0] == [*left, new] and statistic(rig, "transactions_open") == len(left) + 1
    assert sorted(rig.page(limit=300, state=State.COMMITTED)[0]) == committed
    for one in (*left, new):
        rig.rollback(one)
    statistics = rig.transactions.statistics()
    assert statistics["transactions_open"] == statistics["transactions_open_bytes"] == 0
    undecided = rig.transactions._book.undecided
    assert not undecided.of_tenant and not undecided.of_group and not undecided.unasked


def test_a_page_waits_for_what_it_shows_and_not_for_more() -> None:
    rig = ManyRig(MANY, LATER)
    ids = rig.ids
    rig.advance(FRESH_MS + 1_000)                # they have records of their own by now
    rig.restart()
    known: dict[str, int] = {}                   # of how many each page came
    found: dict[str, list[int]] = {}

    def keep(name: str, page: tuple[list[Any], str | None]) -> None:
        found[name] = [one.id for one in page[0]]
        known[name] = statistic(rig, "transactions_open")
    rig.transactions.page(Query("/", limit=10), lambda page: keep("first", page))
    rig.transactions.page(Query("/", after=str(ids[399]), limit=10), lambda page: keep("some", page))
    rig.transactions.page(Query("/", after=str(ids[-11])), lambda page: keep("last", page))
    rig.run()
    assert (found["first"], found["some"], found["last"]) == (ids[:10], ids[400:410], ids[-10:])
    assert known["first"] <= 4 * SLICE < 410 < known["some"] < MANY == known["last"]


def test_only_so_many_pages_wait() -> None:
    rig = ManyRig(MANY, LATER)
    rig.restart()
    answered: list[Any] = []
    for _ in range(MAX_WAITING):
        rig.transactions.page(Query("/"), answered.append)
    with pytest.raises(Busy):
        rig.transactions.page(Query("/"), answered.append)
    rig.run()
    assert len(answered) == MAX_WAITING and all(len(found) == 100 for found, _ in answered)


def test_a_start_within_a_start() -> None:
    """`kill -9` at any turn of the loading."""
    random = Random(7)
    rig = ManyRig(300, ONCE)
    rig.advance(1_200)
    for _ in range(12):
        rig.restart()
        rig.world.loop.advance(random.randrange(2 * GRACE_MS))
        for _ in range(random.randrange(120)):
            rig.world.loop.step() or rig.world._step_workers()
    rig.restart()
    asked, _ = rig.join()
    rig.run()
    assert statistic(rig, "transactions_open") == 300 and sorted(asked.ids) == sorted(rig.ids)


# ---- asking


def test_a_million_due_at_once_are_asked_in_slices() -> None:
    rig = ManyRig(MANY, ONCE)
    rig.world.loop.advance(1_200)
    assert 0 < most(rig, lambda: statistic(rig, "transaction_checks_total")) <= SLICE
    assert statistic(rig, "transaction_checks_unheard_total") == MANY
    asked = Asked()
    rig.transactions.join("shop", "/", asked)
    assert 0 < most(rig, lambda: len(asked.checks)) <= SLICE
    assert sorted(asked.ids) == rig.ids


def test_all_of_the_room_is_used_however_rounds_follow_each_other() -> None:
    rig = ManyRig(200, ONCE)
    rig.advance(1_200)
    asked = Asked()
    rig.transactions.join("shop", "/", asked, credit=5 * SLICE)
    while rig.world.loop.step() | rig.world._step_workers():           # the disk is as fast as the loop
        pass
    assert len(set(asked.ids)) == len(asked.ids) == 5 * SLICE


@pytest.mark.parametrize("checks", [ONCE, OVER])
def test_a_publisher_waits_for_a_few_slices(checks: CheckSettings) -> None:
    rig = ManyRig(MANY, checks)
    rig.join()
    rig.world.loop.advance(1_200)
    waited: list[int] = []

    def made() -> int:
        return statistic(rig, "transaction_checks_total") + statistic(rig, "transactions_expired_total")
    before, sent = 0, False
    for number, _ in enumerate(turns(rig)):
        if not sent and number % 10 == 0:
            before, sent, answers = made(), True, len(rig.witness.stored)
            rig.kernel.append([rig.message("other/1", b"publisher")], rig.witness)
        elif sent and len(rig.witness.stored) > answers:
            waited.append(made() - before)
            sent = False
    assert made() == MANY and len(waited) > 10
    assert max(waited) <= 2 * ROUNDS * SLICE


def test_no_round_begins_while_publishers_are_held_up() -> None:
    rig = ManyRig(MANY, ONCE)
    rig.kernel._backpressure.report(rig, True)
    rig.advance(5_000)
    assert statistic(rig, "transaction_checks_total") == 0
    rig.kernel._backpressure.report(rig, False)
    rig.advance(200)
    assert statistic(rig, "transaction_checks_total") == MANY


# ---- the end of them


@pytest.mark.parametrize("group", ["shop", ""])
def test_a_million_that_are_over_at_once_are_given_up_in_slices(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = ManyRig(MANY, OVER, group)
    ended = 0
    deletions = rig.kernel.halves.deletions

    def counted(transaction_id: int, pages: int) -> Any:
        nonlocal ended
        ended += 1
        return deletions(transaction_id, pages)
    monkeypatch.setattr(Halves, "deletions", staticmethod(counted))
    rig.world.loop.advance(1_200)
    assert 0 < most(rig, lambda: ended) <= SLICE // BURY
    assert ended == MANY == statistic(rig, "transactions_expired_total")
    assert statistic(rig, "transactions_open") == statistic(rig, "transactions_open_bytes") == 0
    letters = rig.kernel.groups.queue("$dead-letters/shop")
    if group:
        assert letters is not None
        found = [record[3] for record in rig.read_partition(letters.first_partition_id)]
        assert sorted(found) == sorted(b"%d" % number for number in range(MANY))
    else:
        assert letters is None


def test_a_crash_at_any_turn_of_giving_them_up() -> None:
    random = Random(3)
    rig = ManyRig(200, OVER)
    while statistic(rig, "transactions_open") or statistic(rig, "transactions_loading"):
        rig.world.loop.advance(GRACE_MS + 1_000)
        for _ in range(random.randrange(250)):
            rig.world.loop.step() or rig.world._step_workers()
        rig.restart()
        for _ in range(random.randrange(100)):
            rig.world.loop.step() or rig.world._step_workers()
    letters = rig.kernel.groups.queue("$dead-letters/shop")
    assert letters is not None
    rig.run()
    found = [record[3] for record in rig.read_partition(letters.first_partition_id)]
    assert sorted(found) == sorted(b"%d" % number for number in range(200))


def test_decisions_are_forgotten_in_slices() -> None:
    rig = ManyRig(200, LATER)
    for one in rig.ids:
        rig.rollback(one)
    rig.world.loop.advance(25 * 3_600_000)
    assert 0 < most(rig, lambda: -statistic(rig, "transactions_remembered")) <= SLICE
    assert statistic(rig, "transactions_remembered") == 0
