"""The shop's own database. One row in `outcomes` says what became of a transaction, and it is written once.

Whoever writes it first decides: the shop, in the local transaction that stores the order, or a check, which writes
`rollback` where nothing is written yet. So what is still on its way when the hub asks is given up for good: the local
transaction, when it comes, finds the row and does nothing.
"""
from __future__ import annotations

from enum import Enum
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

MAX_AMOUNT: Final = 900
"""Nobody has more credit than this: the database refuses the order."""

TABLES: Final = sa.MetaData()
INSERTS: Final[dict[str, Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
BUSY_S: Final = 30.0

orders = sa.Table(
    "orders", TABLES,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("amount", sa.BigInteger, sa.CheckConstraint(f"amount <= {MAX_AMOUNT}"), nullable=False),
    sa.Column("transaction_id", sa.String(20), nullable=False, unique=True))

outcomes = sa.Table(
    "outcomes", TABLES,
    sa.Column("transaction_id", sa.String(20), primary_key=True),
    sa.Column("outcome", sa.String(8), nullable=False))


class Outcome(Enum):
    """What became of the local transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


class Placing(Enum):
    """What came of the attempt to place an order."""

    PLACED = "placed"
    NO_CREDIT = "no credit"
    GIVEN_UP = "given up"              # the hub has asked meanwhile, and was told so


def engine_of(url: str) -> sa.Engine:
    """An engine; a SQLite database that others write to is waited for."""
    timeout = {"timeout": BUSY_S} if url.startswith("sqlite") else {}
    return sa.create_engine(url, connect_args=timeout)


class Ledger:
    """Orders and outcomes. Safe to use from several threads and programs."""

    def __init__(self, url: str) -> None:
        self._engine = engine_of(url)
        TABLES.create_all(self._engine)

    def place(self, number: int, amount: int, transaction_id: str) -> Placing:
        """The local transaction: the order and its outcome, or neither."""
        try:
            with self._engine.begin() as connection:
                if not self._decide(connection, transaction_id, Outcome.COMMIT):
                    return Placing.GIVEN_UP
                connection.execute(orders.insert().values(number=number, amount=amount, transaction_id=transaction_id))
        except IntegrityError:
            return Placing.NO_CREDIT
        return Placing.PLACED

    def outcome(self, transaction_id: str) -> Outcome:
        """What became of a transaction, for the check-back; one of which nothing is known is rolled back for ever."""
        with self._engine.begin() as connection:
            self._decide(connection, transaction_id, Outcome.ROLLBACK)
            query = sa.select(outcomes.c.outcome).where(outcomes.c.transaction_id == transaction_id)
            return Outcome(connection.execute(query).scalar_one())

    def _decide(self, connection: sa.Connection, transaction_id: str, outcome: Outcome) -> bool:
        """Write the outcome unless there is one. PostgreSQL waits for whoever is writing it; SQLite has one writer."""
        row = INSERTS[connection.dialect.name](outcomes).values(transaction_id=transaction_id, outcome=outcome.value)
        return connection.execute(row.on_conflict_do_nothing().returning(outcomes.c.outcome)).first() is not None

    def last_number(self) -> int:
        """The highest order number, or 0."""
        with self._engine.begin() as connection:
            return int(connection.execute(sa.select(sa.func.max(orders.c.number))).scalar() or 0)

    def count(self) -> int:
        """Orders placed."""
        with self._engine.begin() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(orders)).scalar_one())
