"""The order service of docs/transactions.md with PostgreSQL as its database, killed with its hub."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gatehouse.demo.orders.ledger import Ledger, Outcome, Placing
from tests.databases.cluster import Cluster
from tests.faults.nursery import Nursery
from tests.faults.orders import Campaign

KILLS = 8


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("door", ["http", "amqp"])
def test_orders_and_bills_agree(nursery: Nursery, cluster: Cluster, tmp_path: Path, door: str) -> None:
    databases = (cluster.database(), cluster.database())
    tally = Campaign(nursery, tmp_path, door, seed=2, databases=databases).run(KILLS)
    assert tally.kills == KILLS
    assert tally.committed and tally.rolled_back


def test_whoever_comes_first_decides(database: str) -> None:
    ledger, other = Ledger(database), Ledger(database)
    assert ledger.place(1, 10, "7") is Placing.PLACED
    assert other.outcome("7") is Outcome.COMMIT
    assert other.outcome("8") is Outcome.ROLLBACK
    assert ledger.place(2, 10, "8") is Placing.GIVEN_UP
    assert ledger.place(3, 1_000_000, "9") is Placing.NO_CREDIT
    assert ledger.outcome("9") is Outcome.ROLLBACK
    assert ledger.count() == 1
