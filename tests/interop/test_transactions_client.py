"""Transactions with the Python client and the command line, around a database of the caller's own."""
from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from gatehouse.cli.main import cli
from gatehouse_client import Client, Decision, Half, HandledMessages, HubError, SyncClient
from tests.running_hub import CLOCKS_APART_MS, DEADLINE_S, RunningHub, running_hub
from tests.waiting import until


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), "http") as hub:
        yield hub


@pytest.fixture
def client(hub: RunningHub) -> Iterator[SyncClient]:
    with SyncClient(url_of(hub)) as client:
        yield client


def url_of(hub: RunningHub) -> str:
    return f"http://127.0.0.1:{hub.port('http')}"


def values(client: SyncClient, topic: str) -> list[str]:
    try:
        return sorted(message.text for message in client.read(topic))
    except HubError as error:
        assert error.code == "unknown_topic", error
        return []


def test_the_end_of_the_block_commits(client: SyncClient) -> None:
    with client.transaction("shop") as transaction:
        first = transaction.publish(topic="done", key="1", value="a")
        transaction.publish("done/2", "b")
        assert transaction.id == first
        assert values(client, "done") == []
    assert values(client, "done") == ["a", "b"]


def test_an_exception_rolls_back(client: SyncClient) -> None:
    with pytest.raises(ZeroDivisionError), client.transaction("shop") as transaction:
        transaction.publish(topic="undone", value="a")
        1 / 0                                                            # noqa: B018
    assert transaction.decision is Decision.ROLLBACK
    assert client.show_transaction(transaction.id)["state"] == "rolled_back"
    assert values(client, "undone") == []


@pytest.mark.parametrize("found", Decision)
def test_an_exception_that_leaves_the_outcome_open_is_looked_up(client: SyncClient, found: Decision) -> None:
    topic = f"open-{found.value}"
    with pytest.raises(ConnectionError), client.transaction("open", outcome=lambda: found) as transaction:
        transaction.publish(topic=topic, value="a")
        raise ConnectionError("the database went away while it committed")
    state = client.show_transaction(transaction.id)["state"]
    assert state == {"commit": "committed", "rollback": "rolled_back", "unknown": "open"}[found.value]
    assert values(client, topic) == (["a"] if found is Decision.COMMIT else [])


def test_a_program_that_died_is_spoken_for_by_its_group(client: SyncClient) -> None:
    dead = [client.client.transaction("orders", check={"after": 0.05, "every": 0.1, "times": 1_000}) for _ in range(3)]
    for number, transaction in enumerate(dead):
        client.wait(transaction.publish(topic="spoken", key=str(number), value=str(number)))
    asked: list[Half] = []

    class Orders:
        def check(self, half: Half) -> Decision:
            asked.append(half)
            if half.key == b"2" and half.attempt < 3:
                return Decision.UNKNOWN
            if half.key == b"1" and half.attempt < 2:
                raise RuntimeError("the database does not answer")
            return Decision.ROLLBACK if half.key == b"1" else Decision.COMMIT

    with client.check_back("orders", Orders()) as check_back:
        until(lambda: not client.transactions(group="orders"))
    assert values(client, "spoken") == ["0", "2"]
    assert check_back.counts["committed"] >= 2 and check_back.counts["rolled_back"] >= 1     # a slow one is asked again
    assert {half.value for half in asked} == {b"0", b"1", b"2"}


def test_an_asynchronous_listener(hub: RunningHub) -> None:
    class Orders:
        async def check(self, half: Half) -> Decision:
            await asyncio.sleep(0)
            return Decision.COMMIT

    async def run() -> str:
        async with Client(url_of(hub)) as client, client.check_back("async", Orders()):
            transaction = client.transaction("async", check={"after": 0.05})
            await transaction.publish(topic="async", value="x")
            async with asyncio.timeout(DEADLINE_S):
                return (await anext(client.read("async", follow=True))).text

    assert asyncio.run(run()) == "x"


def test_consume_and_produce_in_one_piece(client: SyncClient) -> None:
    client.publish("in/1", "order")
    group = client.group("through", "in")
    (message,) = group.pop(wait_s=20)
    with client.transaction("shop") as transaction:
        transaction.publish(topic="out", value="bill for " + message.text)
        transaction.ack(message, "through")
        transaction.advance("counting", message)
    (progress,) = group.describe()["topics"]
    assert (progress["leased"], progress["settled"], values(client, "out")) == (0, 1, ["bill for order"])
    with pytest.raises(HubError) as refused, client.transaction("shop") as second:
        second.publish(topic="out", value="twice")
        second.ack(message, "through")
    assert refused.value.code == "receipt_expired"
    assert values(client, "out") == ["bill for order"]


def test_a_delay_counts_from_the_commit(client: SyncClient) -> None:
    with client.transaction("shop") as transaction:
        one = transaction.publish(topic="delayed", value="x", delay=3600)
        committing_ms = int(time.time() * 1000)
    late_ms = client.show_scheduled(one)["due"] - committing_ms - 3_600_000
    assert -CLOCKS_APART_MS <= late_ms <= 60_000


def test_messages_that_come_twice_are_worked_on_once(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'own.sqlite'}")
    handled = HandledMessages()
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
        assert handled.forget(connection, -1) == 3
        assert handled.once(connection, "17", "billing")


def test_two_workers_with_the_same_message(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'own.sqlite'}", connect_args={"timeout": DEADLINE_S})
    handled = HandledMessages("notes")
    handled.create(engine)
    found: list[bool] = []

    def work() -> None:
        with engine.begin() as connection:
            found.append(handled.once(connection, "17"))

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(found) == [False] * 7 + [True]
    with sqlite3.connect(tmp_path / "own.sqlite") as database:
        assert database.execute("select count(*) from notes").fetchone() == (1,)


def test_the_command_line(client: SyncClient, hub: RunningHub) -> None:
    ids = []
    for value in "abc":
        transaction = client.client.transaction("by-hand")
        client.wait(transaction.publish(topic="by-hand", value=value))
        ids.append(transaction.id)

    def call(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["transactions", *arguments, "--url", url_of(hub)], catch_exceptions=False)
        return done.output

    listed = [json.loads(line) for line in call("list", "--group", "by-hand", "--json").splitlines()]
    assert [one["id"] for one in listed] == ids
    assert "by-hand" in call("list", "--max", "2", "--group", "by-hand")
    assert "nobody of the group by-hand" in call("check", ids[0])

    class Ignorant:
        def check(self, half: Half) -> Decision:
            return Decision.UNKNOWN

    with client.check_back("by-hand", Ignorant()):               # is away between two questions
        until(lambda: call("check", ids[0]).startswith("asked "))
        until(lambda: json.loads(call("check", ids[0], "--json"))["to"])
    assert "committed" in call("commit", ids[0])
    assert json.loads(call("rollback", ids[1], "--json"))["state"] == "rolled_back"
    assert "nobody was there" in call("show", ids[0])
    assert [one["id"] for one in client.transactions(state="committed", group="by-hand")] == ids[:1]
    assert values(client, "by-hand") == ["a"]
