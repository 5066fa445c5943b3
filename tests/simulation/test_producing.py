"""Producers' transactions over crashes, power cuts and full disks: each is there whole or not at all, and once.

Clients do as Kafka's do: one thing at a time, again until it is answered, with the same sequence. Looked at after every
few steps, and at the end, when nothing is open any more:

    torn       a part of a transaction is there, and a part is not; or offsets without the messages, or the other way
    visible    seen though its producer has not asked to commit
    lost       its commit was answered, and it is not there
    undone     its rolling back was answered, and it is there
    doubled    a value is there twice
"""
from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from gatehouse.kernel.errors import KernelError, StorageFull, TransactionEnding
from gatehouse.kernel.halves.producer_transactions import ProducerTransactions
from gatehouse.kernel.message import NOBODY, Fetched, Stored
from gatehouse.kernel.records.batch import TRANSACTIONAL, records_of
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.write.producers import Producers
from tests.kernel.batches import encode_record, wrap
from tests.simulation.disk import FULL, Crash, Fault, Moment
from tests.simulation.hub import SimHub

SEEDS = range(1, 25)
STEPS = 90
NAMES = ("a", "b", "c")
TOPIC = "out"
PARTITIONS = 3
GROUP = "readers"
SETTINGS = KernelSettings(segment_bytes=20_000, checkpoint_bytes=8_000, checkpoint_ms=500)


class Broken(AssertionError):
    pass


def nothing(kind: str, name: str) -> Fault | None:
    return None


def full(kind: str, name: str) -> Fault | None:
    """The disk takes nothing more."""
    return FULL if kind == "append" else None


class Client:
    """One producer: `next` is what it asks for until it is answered."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        self.world = world
        self.name = name
        self.random = random
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[int, int] = {}
        self.transaction = 0                               # the number of the one that is open; 0: none
        self.ask: Callable[[], None] = self.identify
        self.waits = False

    # ---- being answered

    def on_stored(self, stored: list[Stored]) -> None:
        for answer in stored:
            done: Callable[[Stored], None] = answer.token  # type: ignore[assignment]
            self.waits = False
            if isinstance(answer.error, StorageFull | TransactionEnding):
                continue                                   # asked again
            if answer.error is not None:
                raise answer.error
            done(answer)

    def turn(self) -> None:
        """Ask, unless it waits for an answer."""
        if not self.waits:
            self.waits = True
            try:
                self.ask()
            except (StorageFull, TransactionEnding):
                self.waits = False

    def restarted(self) -> None:
        """The hub began anew: nobody will answer what was asked before."""
        self.waits = False

    @property
    def hub(self) -> ProducerTransactions:
        return self.world.hub.kernel.producing

    # ---- what it does, one after the other

    def identify(self) -> None:
        self.hub.identify("/", self.name, 900_000, self.producer_id, self.epoch, self, self.identified)

    def identified(self, answer: Stored) -> None:
        (self.producer_id, self.epoch, _), = answer.positions
        self.sequences = {}
        if self.transaction:
            self.world.rolled_back.add(self.transaction)
            self.transaction = 0
        self.ask = self.begin

    def begin(self) -> None:
        self.hub.begin("/", self.name, self.producer_id, self.epoch, self.world.partition_ids, GROUP, self, self.begun)

    def begun(self, answer: Stored) -> None:
        self.transaction = self.world.new_transaction()
        self.left = self.random.randrange(1, 5)
        self.choose()

    def choose(self) -> None:
        """What comes next in its transaction."""
        if self.left:
            self.left -= 1
            partition_id = self.random.choice(self.world.partition_ids)
            size = self.random.choice((20, 200, 4_000))
            values = [b"%d.%d." % (self.transaction, self.world.new_value(self.transaction, partition_id)) + bytes(size)
                      for _ in range(self.random.randrange(1, 4))]
            self.ask = lambda: self.hold(partition_id, values)
        elif self.random.random() < 0.1:
            self.ask = self.identify
        elif self.random.random() < 0.3:
            self.ask = lambda: self.end(False)
        else:
            self.ask = self.move

    def hold(self, partition_id: int, values: list[bytes]) -> None:
        sequence = self.sequences.get(partition_id, 0)
        records = b"".join(encode_record(at, b"k", value) for at, value in enumerate(values))
        batch = wrap(records, len(values), codec=TRANSACTIONAL, producer_id=self.producer_id, epoch=self.epoch,
                     sequence=sequence)

        def held(answer: Stored) -> None:
            self.sequences[partition_id] = sequence + len(values)
            self.choose()

        def divert(validated: Any) -> bool:
            try:
                self.hub.hold("/", self.name, partition_id, validated, self, held)
            except (StorageFull, TransactionEnding):
                self.waits = False
            return True

        self.world.hub.kernel.append_batch(partition_id, batch, self, held, divert)

    def move(self) -> None:
        offsets = {self.world.partition_ids[NAMES.index(self.name)]: (self.transaction, b"")}
        self.hub.add_offsets("/", self.name, self.producer_id, self.epoch, GROUP, offsets, self, self.moved)

    def moved(self, answer: Stored) -> None:
        self.ask = lambda: self.end(True)

    def end(self, commits: bool) -> None:
        if commits:
            self.world.asked.add(self.transaction)
        self.hub.end("/", self.name, self.producer_id, self.epoch, commits, NOBODY, self,
                     self.committed if commits else self.undone)

    def committed(self, answer: Stored) -> None:
        self.world.committed.add(self.transaction)
        self.transaction, self.ask = 0, self.begin

    def undone(self, answer: Stored) -> None:
        self.world.rolled_back.add(self.transaction)
        self.transaction, self.ask = 0, self.begin


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(f"producing {seed}")
        self.hub = SimHub(SETTINGS, seed)
        self.values: dict[int, dict[int, list[int]]] = {}      # of each transaction, by partition, in their order
        self.asked: set[int] = set()                           # to be committed
        self.committed: set[int] = set()
        self.rolled_back: set[int] = set()
        self.crashes = 0
        self.hub.start()
        topic = self.hub.kernel.create_topic(TOPIC, partitions=PARTITIONS)
        self.partition_ids = list(topic.partition_ids())
        self.hub.settle(self.random)
        self.clients = [Client(self, name, Random(f"{name} {seed}")) for name in NAMES]

    def new_transaction(self) -> int:
        self.values[len(self.values) + 1] = {}
        return len(self.values)

    def new_value(self, transaction: int, partition_id: int) -> int:
        number = sum(map(len, self.values[transaction].values()))
        self.values[transaction].setdefault(partition_id, []).append(number)
        return number

    def run(self) -> None:
        for step in range(STEPS):
            chance = self.random.random()
            if chance < 0.12:
                moment: Moment = self.random.choice(("before", "during", "after"))
                self.hub.disk.crash_after(self.random.randrange(1, 12), moment)
            elif chance < 0.3:
                self.hub.disk.fault_on = self.random.choice((nothing, full))
            self.survive(self.step)
            if step % 6 == 5:
                self.survive(self.look)
        self.hub.disk.crash_at, self.hub.disk.fault_on = None, nothing
        for client in self.clients:                            # what is open is decided
            for _ in range(200):
                if not client.transaction and client.ask == client.begin:
                    break
                client.left = 0
                client.turn()
                self.hub.settle(self.random)
                self.hub.advance(60)
            else:
                raise Broken(f"{client.name} does not come to an end")
        self.look(ends=True)

    def step(self) -> None:
        for client in self.clients:
            if self.random.random() < 0.7:
                client.turn()
            self.hub.run(self.random, self.random.randrange(1, 30))
        self.hub.advance(self.random.choice((0, 1, 60, 600)))

    def survive(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Crash:
            self.hub.crash(self.random.choice(("kill", "power")))
            self.crashes += 1
            self.hub.fatal.clear()
            self.hub.disk.fault_on = nothing                   # a hub does not start on a full disk
            self.hub.start()
            for client in self.clients:
                client.restarted()

    # ---- looking

    def look(self, ends: bool = False) -> None:
        self.hub.settle(self.random)
        seen: dict[int, dict[int, list[int]]] = {}
        for partition_id in self.partition_ids:
            for value in self.read(partition_id):
                transaction, number = map(int, value.split(b".")[:2])
                seen.setdefault(transaction, {}).setdefault(partition_id, []).append(number)
        moved = {offset for offset, _ in self.hub.kernel.groups.committed(GROUP).values()}
        for transaction, values in self.values.items():
            there = seen.get(transaction, {})
            if there and there != values:
                numbers = [number for of_partition in there.values() for number in of_partition]
                how = "doubled" if len(set(numbers)) < len(numbers) else "torn"
                raise Broken(f"{how}: {transaction}, {there} of {values}")
            if there and transaction not in self.asked:
                raise Broken(f"visible: {transaction}")
            if not there and transaction in self.committed:
                raise Broken(f"lost: {transaction}")
            if there and transaction in self.rolled_back:
                raise Broken(f"undone: {transaction}")
            if transaction in moved and not there:
                raise Broken(f"torn: the offsets of {transaction} without its messages")
        latest = {transaction for transaction in self.committed
                  if ends and not any(other > transaction for other in self.committed)}
        if not latest <= moved:
            raise Broken(f"torn: the messages of {latest} without its offsets")

    def read(self, partition_id: int) -> list[bytes]:
        kernel, values = self.hub.kernel, []
        at, end = kernel.bounds(partition_id)
        while at < end:
            read: list[Fetched] = []
            kernel.fetch([(partition_id, at, 1 << 20)], 1 << 20, read.extend)
            self.hub.settle(self.random)
            assert read[0].error is None and read[0].pieces, read[0].error
            for piece in read[0].pieces:
                values += [record[3] or b"" for record in records_of(piece) if record[0] >= at]
                at = piece.first_offset + piece.count
        return values


@pytest.mark.parametrize("seed", SEEDS)
def test_each_transaction_is_there_whole_or_not_at_all(seed: int) -> None:
    world = World(seed)
    world.run()
    assert world.committed and world.rolled_back, "something was done"


def without_its_sequence(patch: pytest.MonkeyPatch) -> None:
    """What is held is not remembered by its producer's sequence."""
    patch.setattr(Producers, "put", lambda *_: None)


def keeping_what_is_rolled_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerTransactions, "_drop", staticmethod(lambda producer, frame: None))


def going_on_after_a_frame_that_was_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerTransactions, "failed", lambda producing, frames: None)


def ending_in_a_frame_of_its_own(patch: pytest.MonkeyPatch) -> None:
    """The batches enter, and what they were held by goes later: a crash in between enters them again."""
    real = ProducerTransactions._require_current

    def later(producing: Any, producer: Any, settle: Any, frame: Any) -> None:
        producing._loop.call_at(producing._loop.now_ms() + 50, lambda: real(
            producing, producer, settle, producing._committer.open_frame()))

    patch.setattr(ProducerTransactions, "_require_current", later)


@pytest.mark.parametrize("mutant", [without_its_sequence, keeping_what_is_rolled_back,
                                    going_on_after_a_frame_that_was_refused, ending_in_a_frame_of_its_own])
def test_a_promise_that_is_not_kept_is_noticed(mutant: Callable[[pytest.MonkeyPatch], None],
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    for seed in SEEDS:
        try:
            World(seed).run()
        except (Broken, KernelError, AssertionError):
            return
    pytest.fail("nobody noticed")
