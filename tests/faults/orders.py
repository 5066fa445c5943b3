"""The order service of `gatehouse.demo.orders`, its billing and the hub, killed again and again: do they agree?

    python -m tests.faults.orders --kills 100 --door mqtt --seed 7

A round lets orders be placed, kills the hub, the shop or both (the billing, too, now and then) at a random time, also
while they start, and starts them again. Two more kills are aimed: at a shop that has not placed its order yet, and at a
hub that is not told yet of an order that is placed. In the end orders and bills must be the same, one for one.
"""
from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import sqlalchemy as sa

from gatehouse.demo.orders.billing import bills
from gatehouse.demo.orders.ledger import MAX_AMOUNT, TABLES, Outcome, engine_of, orders, outcomes
from gatehouse_client import HandledMessages, HubError, SyncClient
from tests.faults.nursery import ForkedHub, Nursery
from tests.running_hub import DOORS, free_port

FORKS: Final = get_context("forkserver")
FORKS.set_forkserver_preload(["gatehouse.demo.orders.__main__", *(
    f"gatehouse.demo.orders.{door}_link" for door in DOORS)])

DEADLINE_S: Final = 90.0
MORE: Final = 20                       # orders placed in peace, at the end
ENDLESS: Final = 1_000_000
CHECKS: Final = "[transactions]\nfirst_check_ms = 2000\ncheck_every_ms = 300\nmax_checks = 1000\n"
TOPICS: Final = ("txn-decide", "txn-half.shop", "txn-check.shop")
VICTIMS: Final = (("hub",), ("shop",), ("hub", "shop"), ("shop", "hub"), ("hub", "billing"), ("shop", "billing"),
                  ("hub", "shop", "billing"))
NOBODY_WRITES: Final = {"sqlite": "begin immediate", "postgresql": "lock table outcomes in exclusive mode"}


Found = TypeVar("Found")


class Tally(NamedTuple):
    """What a campaign has seen."""

    kills: int
    orders: int
    committed: int                     # by a check
    rolled_back: int                   # by a check
    twice: int                         # messages that came again

    def __str__(self) -> str:
        return (f"{self.kills} kills, {self.orders} orders billed once each; asked about {self.committed} that were "
                f"placed and {self.rolled_back} that were not; {self.twice} messages came again")


def act(log: str, arguments: list[str]) -> None:
    """In a process of its own: run a command of the example."""
    from gatehouse.demo.orders.__main__ import orders as command

    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    command.main(arguments, prog_name="orders")


class Campaign:
    """One hub, one shop that uses one door, one billing, and their databases."""

    def __init__(self, nursery: Nursery, folder: Path, door: str, seed: int, databases: tuple[str, str] | None = None
                 ) -> None:
        self._nursery = nursery
        self._folder = folder
        self._door = door
        self._random = random.Random(seed)
        self._ports = {one: free_port() for one in {door, "http"}}
        self._urls = databases or (f"sqlite:///{folder}/shop.sqlite", f"sqlite:///{folder}/billing.sqlite")
        self._engines = [engine_of(url) for url in self._urls]
        self._running: dict[str, Any] = {}
        self._wanted = ENDLESS
        self.kills = 0

    def run(self, kills: int) -> Tally:
        """All of it. AssertionError where anything disagrees."""
        try:
            self._prepare()
            for name in ("shop", "billing"):
                self._start(name)
            for number in range(kills):
                self._round(waits=number == 0 or self._random.random() < 0.8)
            self._leave_to_check("shop", Outcome.ROLLBACK)
            self._leave_to_check("hub", Outcome.COMMIT)
            self._settle()
            return self._agree()
        finally:
            for name in list(self._running):
                self._kill(name)
            for engine in self._engines:
                engine.dispose()

    # ---- the cast

    def _config(self) -> str:
        doors = "".join(f'[gateways.{door}]\nlisten = ["127.0.0.1:{port}"]\n' + (
            f'advertise = "127.0.0.1:{port}"\n' if door == "kafka" else "") for door, port in self._ports.items())
        return f"[kernel]\ncheckpoint_ms = 100\n{CHECKS}{doors}"

    def _start(self, name: str) -> None:
        if name == "hub":
            self._running[name] = self._nursery.start(self._folder, self._config())
            return
        shop, billing = self._urls
        arguments = {
            "shop": ["shop", f"{self._door}://127.0.0.1:{self._ports[self._door]}", "--database", shop,
                     "--orders", str(self._wanted)],
            "billing": ["billing", f"http://127.0.0.1:{self._ports['http']}", "--database", billing]}[name]
        process = FORKS.Process(target=act, args=(str(self._log(name)), arguments))
        process.start()
        self._running[name] = process

    def _kill(self, name: str) -> None:
        """SIGKILL. Whoever has ended by itself, or told of a failure, fails the campaign."""
        victim = self._running.pop(name)
        if isinstance(victim, ForkedHub):
            assert victim.alive, victim.log
            victim.kill()
            assert "Traceback" not in victim.log, victim.log
        else:
            assert victim.exitcode is None, self._log(name).read_text()
            victim.kill()
            victim.join()

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    # ---- what happens

    def _prepare(self) -> None:
        shop, billing = self._engines    # their tables: making them is nothing to be killed at
        TABLES.create_all(shop)
        bills.create(billing)
        HandledMessages().create(billing)
        self._start("hub")
        hub: ForkedHub = self._running["hub"]
        assert hub.wait_ready(), hub.log
        with self._client() as client:
            client.define_topic("orders", interpret_headers=True)
            for topic in TOPICS if self._door == "kafka" else ():
                client.define_topic(topic, partitions=1)

    def _round(self, waits: bool) -> None:
        placed = self._count()
        if waits:
            self._until(lambda: self._count() > placed, "no order is placed")
        time.sleep(self._random.uniform(0, 0.3))
        victims = self._random.choice(VICTIMS)
        for name in victims:
            self._kill(name)
            time.sleep(self._random.choice((0, 0, self._random.uniform(0, 0.05))))
        for name in victims:
            self._start(name)
        self.kills += 1

    def _leave_to_check(self, victim: str, outcome: Outcome) -> None:
        """Strand orders until a check has found this outcome."""
        deadline = time.monotonic() + DEADLINE_S
        with self._client() as client:
            while not self._answered(outcome):
                assert time.monotonic() < deadline, f"no check finds {outcome}; in {self._folder}"
                self._strand(client, victim)

    def _strand(self, client: SyncClient, victim: str) -> None:
        """Kill it while an order waits for the shop's database. The order of a shop that dies is never placed; that of
        a hub is placed, unless its shop is asked before, and the hub is not told: it stays away until nobody tries."""
        with self._engines[0].connect() as connection:
            connection.execute(sa.text(NOBODY_WRITES[connection.dialect.name]))
            waiting = self._until(lambda: self._unplaced(client, connection), "no half message comes")
            away = self._given_up()
            self._kill(victim)
            connection.rollback()
        if victim == "hub":
            self._until(lambda: self._given_up() > away, "the shop does not miss its hub")
        self._start(victim)
        self._until(lambda: waiting.isdisjoint(self._undecided(client)), "transactions stay undecided")

    def _settle(self) -> None:
        """Some orders in peace, then wait until nothing is undecided and everything is billed."""
        self._kill("shop")
        self._wanted = self._count() + MORE
        self._start("shop")
        self._until(lambda: self._count() == self._wanted, "the last orders are not placed")
        with self._client() as client:
            self._until(lambda: not self._undecided(client), "transactions stay undecided")
            self._until(lambda: self._billed(client), "orders stay unbilled")

    def _billed(self, client: SyncClient) -> bool:
        """What has been decided last may be on its way to the log yet: nobody waits for it then, and nobody has it."""
        found = _asked(lambda: client.group("billing").describe()["topics"])
        with self._engines[1].begin() as connection:
            count = connection.execute(sa.select(sa.func.count()).select_from(bills)).scalar_one()
        return count >= self._wanted and bool(found) and all(
            not topic[state] for topic in found for state in ("ready", "leased", "waiting"))

    def _agree(self) -> Tally:
        with self._engines[0].begin() as connection:
            placed = connection.execute(sa.select(orders.c.transaction_id, orders.c.number, orders.c.amount)).all()
            committed = set(connection.execute(sa.select(outcomes.c.transaction_id).where(
                outcomes.c.outcome == "commit")).scalars())
        with self._engines[1].begin() as connection:
            billed = connection.execute(sa.select(bills.c.message_id, bills.c.number, bills.c.amount)).all()
        compare([tuple(row) for row in placed], [tuple(row) for row in billed])
        assert committed == {row[0] for row in placed}
        assert len(placed) == self._wanted and all(row[2] <= MAX_AMOUNT for row in billed)
        return Tally(self.kills, len(placed), self._answered(Outcome.COMMIT), self._answered(Outcome.ROLLBACK),
                     self._log("billing").read_text().count(" came again\n"))

    # ---- looking

    def _count(self) -> int:
        """Orders placed."""
        with self._engines[0].begin() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(orders)).scalar_one())

    def _undecided(self, client: SyncClient) -> set[str]:
        """The ids of the shop's transactions that are open; waits for a hub that does not answer."""
        answer = self._until(lambda: _asked(lambda: (client.transactions(group="shop"),)), "the hub does not answer")
        return {one["id"] for one in answer[0]}

    def _unplaced(self, client: SyncClient, shop: sa.Connection) -> set[str]:
        """Those of them that the shop's database does not know."""
        return self._undecided(client) - set(shop.execute(sa.select(outcomes.c.transaction_id)).scalars())

    def _answered(self, outcome: Outcome) -> int:
        """How often a check found it."""
        return self._log("shop").read_text().count(f": {outcome.value}\n")

    def _given_up(self) -> int:
        """How often the shop has given up the link that it places orders on, and what it was about to say there."""
        return self._log("shop").read_text().count(" placing: the hub is away: ")

    def _until(self, condition: Callable[[], Found], otherwise: str) -> Found:
        """What the condition gives, once that is true."""
        deadline = time.monotonic() + DEADLINE_S
        while not (found := condition()):
            assert time.monotonic() < deadline, f"{otherwise}; in {self._folder}"
            time.sleep(0.02)
        return found

    @contextmanager
    def _client(self) -> Iterator[SyncClient]:
        with SyncClient(f"http://127.0.0.1:{self._ports['http']}") as client:
            yield client


def compare(placed: list[tuple[Any, ...]], billed: list[tuple[Any, ...]]) -> None:
    """Orders and bills, each (transaction, number, amount), agree one for one. AssertionError says what does not."""
    ours, theirs = Counter(placed), Counter(billed)
    assert ours == theirs, f"not billed: {sorted(ours - theirs)}; billed without an order: {sorted(theirs - ours)}"


def _asked(call: Callable[[], Any]) -> Any:
    """What the hub answers; None while it does not."""
    try:
        return call()
    except HubError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.orders", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--door", choices=DOORS, action="append", help="one of them; every door unless given")
    arguments = parser.parse_args()
    nursery = Nursery()
    try:
        for door in arguments.door or DOORS:
            folder = Path(tempfile.mkdtemp(prefix="gatehouse-orders-"))
            began = time.monotonic()
            print(f"{door}, seed {arguments.seed}, in {folder}", flush=True)
            tally = Campaign(nursery, folder, door, arguments.seed).run(arguments.kills)
            print(f"{door}: {tally}; {time.monotonic() - began:.0f} s", flush=True)
            shutil.rmtree(folder)
    finally:
        nursery.close()


if __name__ == "__main__":
    main()
