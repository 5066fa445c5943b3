"""Notes of handled messages on PostgreSQL, whose writers do not wait for each other as SQLite's do."""
from __future__ import annotations

import asyncio
import threading

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from gatehouse_client import HandledMessages

DEADLINE_S = 30


def test_once_for_each_consumer(database: str) -> None:
    engine, handled = sa.create_engine(database), HandledMessages()
    handled.create(engine)
    handled.create(engine)
    with engine.begin() as connection:
        assert handled.once(connection, "17", "billing")
        assert not handled.once(connection, "17", "billing")
        assert handled.once(connection, "17", "shipping")
    with pytest.raises(RuntimeError), engine.begin() as connection:
        assert handled.once(connection, "18", "billing")
        raise RuntimeError("the work failed")
    with engine.begin() as connection:
        assert handled.once(connection, "18", "billing"), "its note went with its work"
        assert handled.forget(connection, 3600) == 0
        assert handled.forget(connection, -3600) == 3
    engine.dispose()


@pytest.mark.parametrize("first_commits", [True, False])
def test_the_second_waits_for_the_first(database: str, first_commits: bool) -> None:
    engine, handled = sa.create_engine(database), HandledMessages()
    handled.create(engine)
    found: list[bool] = []

    def second() -> None:
        with engine.begin() as connection:
            found.append(handled.once(connection, "17"))

    worker = threading.Thread(target=second)
    with engine.connect() as connection:
        first = connection.begin()
        assert handled.once(connection, "17")
        worker.start()
        worker.join(0.3)
        assert worker.is_alive() and not found, "it does not know yet what becomes of the first"
        first.commit() if first_commits else first.rollback()
    worker.join(DEADLINE_S)
    assert found == [not first_commits]
    engine.dispose()


def test_on_an_asynchronous_connection(database: str) -> None:
    handled = HandledMessages()

    async def run() -> list[bool]:
        engine = create_async_engine(database)
        async with engine.begin() as connection:
            await connection.run_sync(handled.create)
            found = [await connection.run_sync(handled.once, "17", "billing") for _ in range(2)]
        await engine.dispose()
        return found

    assert asyncio.run(run()) == [True, False]
