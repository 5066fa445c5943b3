"""Transactions of producers: nobody sees a held batch before it is committed, and all of it enters at once."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.errors import (
    FencedProducer,
    InvalidRecord,
    InvalidTimeout,
    KernelError,
    NoTransaction,
    OtherProducer,
    OutOfOrderSequence,
    StorageFull,
    TransactionTooLarge,
)
from gatehouse.kernel.halves import producer_transactions
from gatehouse.kernel.halves.producer_transactions import (
    COMMITTED,
    HELD_OFFSET,
    LAST_EPOCH,
    LOOK_MS,
    NEW,
    OPEN,
    ROLLED_BACK,
    UNUSED_MS,
    KnownTransaction,
)
from gatehouse.kernel.message import NOBODY, Stored
from gatehouse.kernel.records.batch import TRANSACTIONAL, read_header
from gatehouse.kernel.records.validation import Validated
from gatehouse.kernel.state.topics import TopicSettings
from tests.kernel.batches import encode_record, wrap
from tests.kernel.full_log import FullLog
from tests.kernel.rig import Rig

TIMEOUT_MS = 60_000


def batch(producer_id: int, epoch: int, sequence: int, *values: bytes, key: bytes | None = b"k",
          transactional: bool = True) -> bytes:
    """As a producer sends it in a transaction."""
    records = b"".join(encode_record(at, key, value) for at, value in enumerate(values))
    return wrap(records, len(values), codec=TRANSACTIONAL if transactional else 0, producer_id=producer_id,
                epoch=epoch, sequence=sequence)


class Client:
    """A producer with a name, as a door sees it; every call runs until it is answered."""

    def __init__(self, rig: Rig, name: str = "t", tenant: str = "/") -> None:
        self.rig = rig
        self.name = name
        self.tenant = tenant
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[int, int] = {}

    def _answer(self) -> Stored:
        count = len(self.rig.witness.stored)
        self.rig.run()
        answer, = self.rig.witness.stored[count:]
        if answer.error is not None:
            raise answer.error
        return answer

    def identify(self, *, timeout_ms: int = TIMEOUT_MS, again: bool = False) -> Client:
        said = (self.producer_id, self.epoch) if again else (-1, -1)
        self.rig.kernel.producing.identify(self.tenant, self.name, timeout_ms, *said, self.rig.witness, "identify")
        (self.producer_id, self.epoch, _), = self._answer().positions
        self.sequences = {}
        return self

    def begin(self, *partition_ids: int, group: str | None = None) -> Client:
        self.rig.kernel.producing.begin(self.tenant, self.name, self.producer_id, self.epoch, list(partition_ids),
                                        group, self.rig.witness, "begin")
        self._answer()
        return self

    def send(self, partition_id: int, data: bytes) -> Stored:
        """These bytes, as the Kafka door hands them in."""
        witness = self.rig.witness

        def hold(validated: Validated) -> bool:
            self.rig.kernel.producing.hold(self.tenant, self.name, partition_id, validated, witness, "held")
            return True

        self.rig.kernel.append_batch(partition_id, data, witness, "batch", hold)
        return self._answer()

    def hold(self, partition_id: int, *values: bytes, key: bytes | None = b"k") -> Stored:
        sequence = self.sequences.get(partition_id, 0)
        stored = self.send(partition_id, batch(self.producer_id, self.epoch, sequence, *values, key=key))
        self.sequences[partition_id] = sequence + len(values)
        return stored

    def offsets(self, group: str, offsets: dict[int, tuple[int, bytes]]) -> None:
        self.rig.kernel.producing.add_offsets(self.tenant, self.name, self.producer_id, self.epoch, group, offsets,
                                              self.rig.witness, "offsets")
        self._answer()

    def ask_to_end(self, commits: bool = True) -> None:
        """Answered with "end"."""
        self.rig.kernel.producing.end(self.tenant, self.name, self.producer_id, self.epoch, commits, NOBODY,
                                      self.rig.witness, "end")

    def end(self, commits: bool = True) -> Stored:
        self.ask_to_end(commits)
        return self._answer()


def rig_with(*topics: str, rig: Rig | None = None, **settings: bool) -> tuple[Rig, list[int]]:
    """A rig, and the id of the only partition of each topic."""
    rig = rig or Rig()
    ids = [rig.kernel.create_topic(name, partitions=1, settings=TopicSettings(**settings)).partition_id(0)  # type: ignore[arg-type]
           for name in topics]
    rig.run()
    return rig, ids


def known(rig: Rig) -> KnownTransaction:
    transaction, = rig.kernel.producing.known("/")
    return transaction


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_is_held_is_seen_when_it_is_committed(tmp_path: Path, restarts: bool, checkpoint: bool) -> None:
    rig, (a, b) = rig_with("a", "b", rig=Rig(tmp_path))
    client = Client(rig).identify().begin(a, b)
    assert client.hold(a, b"1", b"2").positions == [(a, HELD_OFFSET, 0)]
    client.hold(b, b"3")
    client.hold(a, b"4")
    if checkpoint:
        rig.world.advance(10_000)
    if restarts:
        rig.restart()
    assert rig.values("a") == rig.values("b") == []
    assert rig.kernel.bounds(a) == rig.kernel.bounds(b) == (0, 0)
    rig.publish("a", b"another's")
    assert rig.values("a") == [b"another's"], "and it holds nobody back"
    client.end()
    assert rig.values("a") == [b"another's", b"1", b"2", b"4"]
    assert rig.values("b") == [b"3"]
    assert known(rig).state == COMMITTED
    rig.restart()
    assert rig.values("a") == [b"another's", b"1", b"2", b"4"]
    assert not rig.read("a")[1][5] & TRANSACTIONAL


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_rolled_back_is_never_seen(tmp_path: Path, restarts: bool) -> None:
    rig, (a,) = rig_with("a", rig=Rig(tmp_path))
    client = Client(rig).identify().begin(a)
    client.hold(a, b"1")
    if restarts:
        rig.restart()
    client.end(commits=False)
    client.begin(a)
    client.hold(a, b"2")
    client.end()
    assert rig.values("a") == [b"2"]
    rig.restart()
    assert rig.values("a") == [b"2"]
    assert not list(rig.kernel._state.scan(producer_transactions.Kind.HELD_BATCH))


def test_the_same_end_again_is_answered_alike() -> None:
    rig, (a,) = rig_with("a")
    client = Client(rig).identify().begin(a)
    client.hold(a, b"1")
    client.end()
    client.end()
    assert rig.values("a") == [b"1"]
    with pytest.raises(NoTransaction):
        client.end(commits=False)


def test_nothing_is_taken_without_a_transaction() -> None:
    rig, (a, b) = rig_with("a", "b")
    client = Client(rig).identify()
    for wrong in (lambda: client.end(), lambda: client.hold(a, b"1"), lambda: client.offsets("g", {a: (1, b"")})):
        with pytest.raises(NoTransaction):
            wrong()
    client.begin(a)
    with pytest.raises(NoTransaction):
        client.hold(b, b"1")                     # a partition that it has not named
    with pytest.raises(NoTransaction):
        client.offsets("g", {a: (1, b"")})       # a group that it has not named


def test_a_batch_that_comes_twice_is_held_once(tmp_path: Path) -> None:
    rig, (a,) = rig_with("a", rig=Rig(tmp_path))
    client = Client(rig).identify().begin(a)
    first = batch(client.producer_id, client.epoch, 0, b"1")
    client.send(a, first)
    assert client.send(a, first).positions == [(a, HELD_OFFSET, 0)]
    rig.restart()
    client.send(a, first)
    client.send(a, batch(client.producer_id, client.epoch, 1, b"2"))
    with pytest.raises(OutOfOrderSequence):
        client.send(a, batch(client.producer_id, client.epoch, 7, b"9"))
    client.end()
    client.begin(a)
    client.send(a, batch(client.producer_id, client.epoch, 1, b"2"))           # its answer was lost: it is known
    client.send(a, batch(client.producer_id, client.epoch, 2, b"3"))
    client.end()
    assert rig.values("a") == [b"1", b"2", b"3"]


def test_a_newer_producer_of_the_name_fences_the_older() -> None:
    rig, (a,) = rig_with("a")
    older = Client(rig).identify().begin(a)
    older.hold(a, b"lost")
    newer = Client(rig).identify()
    assert (newer.producer_id, newer.epoch) == (older.producer_id, older.epoch + 1)
    for late in (lambda: older.hold(a, b"late"), lambda: older.begin(a), lambda: older.end(),
                 lambda: older.identify(again=True)):
        with pytest.raises(FencedProducer):
            late()
    newer.begin(a)
    newer.hold(a, b"1")
    newer.end()
    assert rig.values("a") == [b"1"]


def test_a_producer_may_ask_for_its_next_epoch_and_ask_again() -> None:
    rig, (a,) = rig_with("a")
    client = Client(rig).identify().begin(a)
    client.hold(a, b"lost")
    before = client.epoch
    client.identify(again=True)
    assert client.epoch == before + 1 and known(rig).state == ROLLED_BACK
    client.epoch = before                        # the answer was lost
    assert client.identify(again=True).epoch == before + 1
    client.begin(a)
    client.hold(a, b"1")
    client.end()
    assert rig.values("a") == [b"1"]


def test_when_the_epochs_of_an_id_are_used_up_there_is_another(tmp_path: Path) -> None:
    rig, (a,) = rig_with("a", rig=Rig(tmp_path))
    client = Client(rig).identify()
    first, producer = client.producer_id, rig.kernel.producing._producers["/", "t"]
    producer.epoch = LAST_EPOCH
    client.identify()
    assert (client.producer_id != first, client.epoch) == (True, 0)
    client.begin(a)
    client.hold(a, b"1")
    rig.restart()
    client.end()
    assert rig.values("a") == [b"1"]
    client.producer_id = first
    with pytest.raises(OtherProducer):
        client.begin(a)


def test_who_is_silent_is_rolled_back_and_fenced(tmp_path: Path) -> None:
    rig, (a,) = rig_with("a", rig=Rig(tmp_path))
    client = Client(rig).identify().begin(a)
    client.hold(a, b"lost")
    rig.world.advance(TIMEOUT_MS - 1)
    assert known(rig).state == OPEN
    rig.restart()                                # takes a second
    rig.world.advance(1)
    rig.run()
    assert known(rig).state == ROLLED_BACK
    with pytest.raises(FencedProducer):
        client.end()
    client.identify(again=True).begin(a)         # it may go on with another epoch
    client.hold(a, b"1")
    client.end()
    assert rig.values("a") == [b"1"]


def test_a_group_is_moved_by_the_commit_alone(tmp_path: Path) -> None:
    rig, (a, b) = rig_with("a", "b", rig=Rig(tmp_path))
    committed = rig.kernel.groups.committed
    client = Client(rig).identify().begin(group="g")
    client.offsets("g", {a: (3, b"m")})
    rig.restart()
    committed = rig.kernel.groups.committed
    assert committed("g") == {} and rig.kernel.producing.moving("g", "/") == {a}
    client.offsets("g", {b: (4, b"")})
    client.end(commits=False)
    assert committed("g") == {} and rig.kernel.producing.moving("g", "/") == set()
    client.begin(group="g")
    client.offsets("g", {a: (5, b"n")})
    client.end()
    assert committed("g") == {a: (5, b"n")}
    rig.restart()
    assert rig.kernel.groups.committed("g") == {a: (5, b"n")}


def test_a_group_that_was_named_may_be_moved_after_a_start(tmp_path: Path) -> None:
    rig, (a,) = rig_with("a", rig=Rig(tmp_path))
    client = Client(rig).identify().begin(a, group="g")
    rig.restart()
    client.offsets("g", {a: (3, b"")})
    client.end()
    assert rig.kernel.groups.committed("g") == {a: (3, b"")}


def test_a_topic_that_goes_takes_its_part_along() -> None:
    rig, (a, b) = rig_with("a", "b")
    client = Client(rig).identify().begin(a, b, group="g")
    client.hold(a, b"lost")
    client.hold(b, b"1")
    client.offsets("g", {a: (1, b""), b: (2, b"")})
    rig.kernel.delete_topic("a")
    rig.run()
    client.end()
    assert rig.values("b") == [b"1"]
    assert rig.kernel.groups.committed("g") == {b: (2, b"")}


def test_subscribers_and_queues_get_what_is_committed() -> None:
    rig, (a,) = rig_with("a")
    queue = rig.kernel.groups.declare_queue("q")
    rig.kernel.groups.bind("a/#", queue)
    rig.kernel.subscribe("a/#", rig.witness)
    rig.run()
    client = Client(rig).identify().begin(a)
    client.hold(a, b"1", b"2")
    assert rig.witness.delivered == [] and rig.kernel.bounds(queue.first_partition_id)[1] == 0
    client.end()
    assert [value for _, value, _, _ in rig.witness.delivered] == [b"1", b"2"]
    assert rig.kernel.bounds(queue.first_partition_id)[1] == 2


def test_what_a_compacted_topic_refuses_is_refused_when_it_is_sent() -> None:
    rig, (a,) = rig_with("a", compact=True)
    client = Client(rig).identify().begin(a)
    with pytest.raises(InvalidRecord):
        client.hold(a, b"1", key=None)
    client.hold(a, b"2")
    client.end()
    assert rig.values("a") == [b"2"]


def test_the_time_of_the_append_is_that_of_the_commit() -> None:
    rig, (a,) = rig_with("a", log_append_time=True)
    client = Client(rig).identify().begin(a)
    client.hold(a, b"1")
    rig.world.advance(5_000)
    client.end()
    record, = rig.read("a")
    assert record[1] == rig.world.loop.wall_ms()


def test_a_transaction_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_transactions, "MAX_HELD_BYTES", 1_000)
    rig, (a,) = rig_with("a")
    client = Client(rig).identify().begin(a)
    client.hold(a, bytes(600))
    with pytest.raises(TransactionTooLarge):
        client.hold(a, bytes(600))
    client.end()
    assert rig.values("a") == [bytes(600)]


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_no_transaction_lasts_for_ever(timeout_ms: int) -> None:
    with pytest.raises(InvalidTimeout):
        Client(Rig()).identify(timeout_ms=timeout_ms)


def test_names_of_tenants_are_their_own() -> None:
    rig = Rig()
    first, second = Client(rig).identify(), Client(rig, tenant="other").identify()
    assert first.producer_id != second.producer_id
    with pytest.raises(OtherProducer):
        Client(rig, name="nobody").begin()
    assert known(rig)[:4] == ("t", first.producer_id, 0, NEW)


def test_a_name_that_nobody_uses_is_forgotten_after_a_week() -> None:
    rig, (a,) = rig_with("a")
    client = Client(rig).identify().begin(a)
    client.end()
    Client(rig, "open").identify(timeout_ms=900_000)
    rig.world.advance(UNUSED_MS)
    assert len(list(rig.kernel.producing.known("/"))) == 2
    rig.world.advance(2 * LOOK_MS)
    rig.run()
    assert list(rig.kernel.producing.known("/")) == []


def test_a_full_disk_leaves_everything_as_it_was() -> None:
    log = FullLog()
    rig, (a,) = rig_with("a", rig=Rig(log=log))
    client = Client(rig).identify().begin(a)
    client.hold(a, b"1")
    log.full = True
    for refused in (lambda: client.send(a, batch(client.producer_id, client.epoch, 1, b"2")), lambda: client.end()):
        with pytest.raises(StorageFull):
            refused()
    log.full = False
    rig.world.advance(60)
    client.sequences[a] = 1
    client.hold(a, b"2")
    assert rig.values("a") == []
    client.end()
    assert rig.values("a") == [b"1", b"2"]


def test_others_are_served_while_a_large_one_enters() -> None:
    rig, (a,) = rig_with("a")
    client = Client(rig).identify().begin(a)
    for _ in range(200):
        client.hold(a, bytes(1_000), bytes(1_000))
    rig.kernel.producing._slices.slice_ms = 0
    rig.kernel.producing.end("/", "t", client.producer_id, client.epoch, True, NOBODY, rig.witness, "end")
    with pytest.raises(KernelError, match="is being committed"):
        client.end()
    rig.kernel.append([(rig.kernel.place("b"), b"between", b"\0", 0, 0)], rig.witness, "between")
    rig.run()
    order = [stored.token for stored in rig.witness.stored]
    assert order.index("between") < order.index("end")
    assert len(rig.values("a")) == 400
    assert read_header(batch(1, 0, 0, b"x")).producer_id == 1
