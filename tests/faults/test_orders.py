"""The order service of docs/transactions.md, killed with its hub: as many bills as orders, whichever door it uses.

`make soak` runs the same with a hundred kills for each door.
"""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.demo.orders.ledger import Ledger, Outcome, Placing
from gatehouse.demo.orders.link import DecisionRefused, LinkLost, check_decided, connect_to
from gatehouse.demo.orders.shop import amount_of
from tests.faults.nursery import Nursery
from tests.faults.orders import Campaign, compare
from tests.running_hub import DOORS

KILLS = 8


@pytest.mark.timeout(300)
@pytest.mark.parametrize("door", DOORS)
def test_orders_and_bills_agree(nursery: Nursery, tmp_path: Path, door: str) -> None:
    tally = Campaign(nursery, tmp_path, door, seed=1).run(KILLS)
    assert tally.kills == KILLS
    assert tally.committed and tally.rolled_back, "nothing was left to the check-back"


@pytest.mark.parametrize("billed", [
    [("1", 1, 10)], [("1", 1, 10), ("2", 2, 20), ("2", 2, 20)], [("1", 1, 10), ("2", 2, 20), ("3", 3, 30)],
    [("1", 1, 10), ("2", 2, 21)], [("1", 1, 10), ("4", 2, 20)]], ids=["lost", "doubled", "made up", "changed", "other"])
def test_what_does_not_agree_is_found(billed: list[tuple[str, int, int]]) -> None:
    placed = [("1", 1, 10), ("2", 2, 20)]
    compare(placed, placed[::-1])
    with pytest.raises(AssertionError):
        compare(placed, billed)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(f"sqlite:///{tmp_path}/shop.sqlite")


def test_a_check_that_comes_first_decides(ledger: Ledger) -> None:
    assert ledger.outcome("7") is Outcome.ROLLBACK
    assert ledger.place(1, 10, "7") is Placing.GIVEN_UP
    assert ledger.outcome("7") is Outcome.ROLLBACK
    assert ledger.count() == 0


def test_an_order_that_comes_first_decides(ledger: Ledger) -> None:
    assert ledger.place(1, 10, "7") is Placing.PLACED
    assert ledger.outcome("7") is Outcome.COMMIT
    assert (ledger.count(), ledger.last_number()) == (1, 1)


def test_an_order_that_the_database_refuses_leaves_nothing(ledger: Ledger) -> None:
    assert ledger.place(5, amount_of(5), "7") is Placing.NO_CREDIT
    assert ledger.outcome("7") is Outcome.ROLLBACK
    assert ledger.count() == 0


@pytest.mark.parametrize("url", ["smtp://127.0.0.1:25", "http://127.0.0.1", "mqtt", ""])
def test_a_door_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match="DOOR"):
        connect_to(url)


def test_a_decision_that_the_hub_refuses_for_good_ends_the_shop() -> None:
    check_decided({"id": "7", "state": "committed"})
    with pytest.raises(DecisionRefused):
        check_decided({"id": "7", "code": "already_decided", "state": "committed"})
    with pytest.raises(LinkLost):
        check_decided({"id": "7", "code": "busy"})
