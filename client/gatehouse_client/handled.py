"""The consumer's half of a transaction: each message is worked on once, though it may come more than once.

    handled = HandledMessages()                       # the table `handled_messages`
    handled.create(engine)                            # or put `handled.table` among your own migrations

    def bill(message: Message) -> None:
        with engine.begin() as connection:            # the work and the note that it is done: both or neither
            if handled.once(connection, message, "billing"):
                connection.execute(...)

A message that comes again finds its note and is passed over; one whose work was rolled back has none. Of two workers
that have the same message at once, PostgreSQL lets the second wait for the first one's commit; SQLite has one writer.
With an `AsyncConnection`: `await connection.run_sync(handled.once, message, "billing")`.
"""
from __future__ import annotations

import time
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from gatehouse_client.message import Message

MAX_CONSUMER: Final = 200
INSERTS: Final[dict[str, Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class HandledMessages:
    """Notes by consumer and message id, in a table of the caller's database."""

    def __init__(self, table_name: str = "handled_messages", metadata: sa.MetaData | None = None) -> None:
        self.table = sa.Table(
            table_name, metadata if metadata is not None else sa.MetaData(),
            sa.Column("consumer", sa.String(MAX_CONSUMER), primary_key=True),
            sa.Column("message_id", sa.String(20), primary_key=True),
            sa.Column("handled_ms", sa.BigInteger, nullable=False, index=True))

    def create(self, bind: sa.Engine | sa.Connection) -> None:
        """Make the table where it is missing."""
        self.table.create(bind, checkfirst=True)

    def once(self, connection: sa.Connection, message: Message | str, consumer: str = "") -> bool:
        """Note the message in the transaction of this connection; False where it is noted already: pass it over.

        Raises ValueError on a database other than SQLite and PostgreSQL.
        """
        insert = INSERTS.get(connection.dialect.name)
        if insert is None:
            raise ValueError(f"handled messages are kept in SQLite or PostgreSQL, not in {connection.dialect.name}")
        note = insert(self.table).values(
            consumer=consumer, message_id=message if isinstance(message, str) else message.id,
            handled_ms=int(time.time() * 1000))
        noted = note.on_conflict_do_nothing().returning(self.table.c.message_id)     # rowcount is -1 on PostgreSQL
        return connection.execute(noted).first() is not None

    def forget(self, connection: sa.Connection, older_than_s: float) -> int:
        """Delete notes that nobody needs any more: of messages that cannot come again. Returns how many."""
        before_ms = int((time.time() - older_than_s) * 1000)
        return int(connection.execute(self.table.delete().where(self.table.c.handled_ms < before_ms)).rowcount)
