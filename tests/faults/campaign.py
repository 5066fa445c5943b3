"""Rounds of load, kill, restart and check on one data directory, all decided by a seed.

A round starts the hub, checks what is there, loads it through every door and kills it: at a random time, at a chosen
call inside it (a checkpoint, a new segment, between write and fdatasync, within a frame, ...), or while it starts.
Between rounds the index or the catalogue may be deleted, which must lose nothing.
"""
from __future__ import annotations

import http.client
import random
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.faults.amqp_taker import AmqpTaker
from tests.faults.checker import Checker
from tests.faults.nursery import ForkedHub, Nursery
from tests.faults.oplog import OperationLog, identify
from tests.faults.readers import (
    KafkaFollower,
    follow_over_http,
    follow_over_mqtt,
    read_at_rest,
    read_over_http,
    read_over_kafka,
)
from tests.faults.takers import Takers
from tests.faults.writers import HttpWriter, TopicMaker, writers_of
from tests.running_hub import free_port

OVERLAP: Final = 500               # messages per partition that are read again in every round
JOIN_S: Final = 60.0               # longer than any client waits for an answer
FLUSH_S: Final = 120.0
GIVEN_S: Final = 120.0             # until everybody who reads was given something
NEVER: Final = {"retention": 86_400}        # retention looks at nothing while a whole topic is compared
CERTAIN: Final = {"die": {"at": "disk:sync", "call": 10, "side": "before"}}
TAKERS: Final = 2                  # members of a leased group
PARTITIONS: Final = 4                  # of the topic, as `default_partitions` has it

POINTS: Final = (                  # where a hub is killed from inside: function, calls until then, before or after it
    ("kernel.index.index:Index.write", 3, "before"), ("kernel.index.index:Index.write", 3, "after"),
    ("kernel.state.store:RocksStore._write", 8, "after"),
    ("kernel.state.catalogue:Catalogue.take", 3, "before"), ("kernel.state.catalogue:Catalogue.take", 3, "after"),
    ("disk:write", 200, "before"), ("disk:write", 200, "after"), ("disk:sync", 200, "before"),
    ("disk:sync", 200, "after"), ("kernel.log.segments:SegmentChain._create", 2, "before"),
    ("kernel.log.segments:SegmentChain._create", 2, "after"),
    ("kernel.groups.leasing:Leasing.seal", 100, "before"), ("kernel.groups.leasing:Leasing.seal", 100, "after"))
RETENTION_POINTS: Final = (
    ("kernel.log.segments:SegmentLog.keep", 2, "before"), ("kernel.log.segments:SegmentLog.keep", 2, "after"),
    ("kernel.log.segments:SegmentLog.sync_kept", 2, "after"), ("kernel.index.index:Index.forget_segment", 2, "before"),
    ("kernel.index.index:Index.forget_segment", 2, "after"), ("kernel.log.segments:SegmentLog.drop", 2, "before"),
    ("kernel.log.segments:SegmentLog.drop", 2, "after"))
START_POINTS: Final = (
    ("kernel.recovery.recovery:Recovery._replay_main", 15, "before"),
    ("kernel.recovery.recovery:Beginning.begin", 1, "before"),
    ("kernel.recovery.recovery:Beginning.begin", 1, "after"), ("kernel.index.index:Index.write", 1, "after"),
    ("kernel.state.catalogue:Catalogue.open", 1, "after"))


@dataclass(frozen=True, slots=True)
class Plan:
    """What kind of hub a campaign is about."""

    kernel: str = "checkpoint_ms = 100"
    forgets: bool = False
    message_bytes: int = 100
    load_s: tuple[float, float] = (0.2, 0.7)


DURABLE: Final = Plan()
SMALL_SEGMENTS: Final = Plan(
    "checkpoint_ms = 100\nsegment_bytes = 1048576\nretention_bytes = 3145728\nkept_bytes = 3145728", True, 4000,
    (0.5, 1.0))


class Campaign:
    """One data directory, its writers and what is known of it."""

    def __init__(self, nursery: Nursery, folder: Path, plan: Plan, seed: int) -> None:
        self._nursery = nursery
        self._folder = folder
        self._plan = plan
        self._random = random.Random(seed)
        self.ports = {door: free_port() for door in ("mqtt", "http", "amqp", "kafka")}
        self.log = OperationLog()
        self.checker = Checker(self.log, forgets=plan.forgets)
        self._writers, self._kafka = writers_of(self.log, self.ports["kafka"], plan.message_bytes)
        self._follower = KafkaFollower(self.log, self.ports["kafka"], PARTITIONS)
        self._topics = TopicMaker()
        self._takers = Takers(seed)
        self._amqp = AmqpTaker(self.log, self.ports["amqp"])
        self._faults: list[BaseException] = []
        self.gaps: list[tuple[int, int]] | None = None    # what could not be read; None: everything must be readable
        self.kills = 0
        self.inside = 0                # of them by the hub's own hand

    def config(self) -> str:
        doors = "".join(f'[gateways.{door}]\nlisten = ["127.0.0.1:{port}"]\n' for door, port in self.ports.items())
        return f'[kernel]\n{self._plan.kernel}\n{doors}advertise = "127.0.0.1:{self.ports["kafka"]}"\n'

    def run(self, rounds: int) -> None:
        """All rounds and the end."""
        with self.told():
            for number in range(rounds):
                self.round(number)
            self._die_under_load()
            self.finish()

    @contextmanager
    def told(self) -> Iterator[None]:
        """Leaves the operation log in the folder where a promise is broken."""
        try:
            yield
        except BaseException:
            self.log.write(self._folder / "operations.jsonl")
            raise
        finally:
            self._follower.close()

    # ---- one round

    def round(self, number: int) -> None:
        orders = self._orders()
        self.log.note(f"round {number}: {orders}")
        hub = self.start(orders)
        self._check(hub, whole=self._plan.forgets or number % 10 == 9)
        self._amqp.bind()
        self._load(hub)
        hub.kill()
        self.kills += 1
        assert "Traceback" not in hub.log, hub.log
        self._between()

    def _orders(self) -> dict[str, Any]:
        """How this hub dies, unless it is killed before."""
        orders: dict[str, Any] = {"retention": 0.2} if self._plan.forgets else {}
        kind = self._random.random()
        if kind < 0.15:
            orders["die"] = self._point(START_POINTS)
        elif kind < 0.5:
            orders["die"] = self._point((*POINTS, *(RETENTION_POINTS * 2 if self._plan.forgets else ())))
        elif kind < 0.6:
            orders["tear"] = {"call": self._random.randint(3, 200), "keep": self._random.random()}
        return orders

    def _point(self, points: tuple[tuple[str, int, str], ...]) -> dict[str, Any]:
        at, calls, side = self._random.choice(points)
        return {"at": at, "call": self._random.randint(1, calls), "side": side}

    def start(self, orders: dict[str, Any]) -> ForkedHub:
        """A hub that is ready; those that die on the way there are kills too."""
        for more in (orders, {name: order for name, order in orders.items() if name == "retention"}):
            hub = self._nursery.start(self._folder, self.config(), more)
            if hub.wait_ready():
                return hub
            code = hub.wait_ended()
            assert code == -9 and more is orders, f"the hub ended with {code}: {hub.log}"
            self.kills += 1
            self.inside += 1
            self.log.note("died while starting")
        raise AssertionError("a hub without orders did not start")

    def _check(self, hub: ForkedHub, *, whole: bool) -> None:
        try:
            if whole:
                partitions = read_at_rest(self.ports["http"], self.gaps)
            else:
                partitions = read_over_http(self.ports["http"], self.checker.next_starts(OVERLAP), self.gaps)
            self._topics.check(self.ports["http"])
        except (OSError, http.client.HTTPException):
            assert hub.wait_ended(JOIN_S) == -9, hub.log
            return                     # it died by its orders while it was read
        self.checker.check(partitions, whole=whole)

    def drain(self) -> None:
        """Load, then SIGTERM: the hub answers what it has taken and ends well."""
        end_s = time.monotonic() + self._random.uniform(*self._plan.load_s)
        self._drain_once(lambda: time.monotonic() >= end_s)

    def _drain_once(self, enough: Callable[[], bool]) -> None:
        hub = self.start({})
        self._amqp.bind()
        with self.loaded():
            while not enough():
                time.sleep(0.01)
            assert hub.stop() == 0
        assert "Traceback" not in hub.log, hub.log

    def _die_under_load(self) -> None:
        """By its own hand, for certain: a round's load may end before the hub comes to the place where it is to die."""
        hub = self.start(CERTAIN)
        with self.loaded():
            code = hub.wait_ended(JOIN_S)
        assert code == -9 and "Traceback" not in hub.log, hub.log
        self.kills += 1
        self.inside += 1

    def _load(self, hub: ForkedHub) -> None:
        end_s = time.monotonic() + self._random.uniform(*self._plan.load_s)
        with self.loaded():
            while time.monotonic() < end_s and hub.alive:
                self._look_at(hub)
                time.sleep(0.01)
            if not hub.alive:
                self.inside += 1
                assert hub.wait_ended() == -9, f"the hub ended by itself: {hub.log}"
            hub.kill()

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Writers and readers at work; they end with the hub, or when this does."""
        stop = threading.Event()
        threads = [threading.Thread(target=self._guarded, args=(job,), daemon=True) for job in self._jobs(stop)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
        for thread in threads:
            thread.join(JOIN_S)
            assert not thread.is_alive(), "a client hangs"
        if self._faults:
            raise self._faults[0]

    def _jobs(self, stop: threading.Event) -> list[partial[None]]:
        """Whoever is at work under load, each for a thread of its own."""
        http, mqtt = self.ports["http"], self.ports["mqtt"]
        return [*(partial(writer.run, self.ports, stop) for writer in self._writers),
                partial(self._topics.run, http, stop), partial(self._follower.run, stop),
                partial(follow_over_http, http, self.log, stop), partial(follow_over_mqtt, mqtt, self.log, stop),
                partial(self._amqp.run, stop),
                *(partial(self._takers.run, number, http, stop) for number in range(TAKERS))]

    def _look_at(self, hub: ForkedHub) -> None:
        """Under load, now and then."""

    def _guarded(self, job: partial[None]) -> None:
        try:
            job()
        except BaseException as fault:    # told by the thread that waits for this one
            self._faults.append(fault)

    def _between(self) -> None:
        if self._random.random() < 0.25:
            self.log.note("the index is deleted")
            shutil.rmtree(self._folder / "data" / "index", ignore_errors=True)
        if self._random.random() < 0.1:
            for file in (self._folder / "data").glob("catalogue.sqlite*"):
                file.unlink()

    # ---- the end

    def finish(self) -> None:
        """Everything that was promised to be sent until it is stored; then all is read twice and the hub stopped."""
        deadline_s = time.monotonic() + GIVEN_S
        self._drain_once(lambda: self._all_were_given() or time.monotonic() >= deadline_s)
        assert self._all_were_given(), "somebody was given nothing while there was load"
        hub = self.start(NEVER)
        self._kafka.finish(FLUSH_S)
        for writer in self._writers:
            if isinstance(writer, HttpWriter):
                writer.settle(self.ports)
        over_http = read_over_http(self.ports["http"], gaps=self.gaps)
        assert over_http == read_over_kafka(self.ports["kafka"])
        self.checker.check(over_http, whole=True)
        present = {identify(value) for messages in over_http.values() for _, _, value in messages}
        self._takers.finish(self.ports["http"], present, forgets=self._plan.forgets)
        self._amqp.finish()
        topics = self._topics.check(self.ports["http"])
        assert hub.stop() == 0
        assert "Traceback" not in hub.log, hub.log
        with closing(sqlite3.connect(self._folder / "data" / "catalogue.sqlite")) as catalogue:
            assert {name for name, in catalogue.execute("SELECT name FROM topics")} == topics
        hub = self.start(NEVER)
        assert read_over_http(self.ports["http"], gaps=self.gaps) == over_http, "an orderly stop changes nothing"
        assert hub.stop() == 0

    def _all_were_given(self) -> bool:
        """Whoever reads while there is load: in each round it may have ended too soon for somebody."""
        return bool(self.log.seen and self.log.heard and self._takers.acked and self._amqp.given)

