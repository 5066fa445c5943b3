"""Producers with a name that ask for everything at once, say too much, or are silent while the disk is full."""
from __future__ import annotations

from gzip import compress
from pathlib import Path

import pytest

from gatehouse.kernel.errors import (
    GroupIsLeased,
    InvalidAddress,
    InvalidGroup,
    InvalidRecord,
    NoTransaction,
    OtherProducer,
    QueueFull,
    StorageFull,
    TooManyTransactions,
    TransactionEnding,
    TransactionTooLarge,
)
from gatehouse.kernel.groups.group_settings import GroupSettings, QueueSettings
from gatehouse.kernel.halves import producer_transactions
from gatehouse.kernel.halves.producer_transactions import COMMITTED, HELD_OFFSET, IDLE_MS, LAST_EPOCH, OPEN, ROLLED_BACK
from gatehouse.kernel.log.memory_log import MemoryLog
from gatehouse.kernel.message import NOBODY, Origin
from gatehouse.kernel.records.batch import TRANSACTIONAL
from gatehouse.kernel.records.compression import GZIP
from gatehouse.kernel.records.validation import Validated
from gatehouse.kernel.settings import JourneySettings
from gatehouse.kernel.state.topics import TopicSettings
from gatehouse.tracing.context import HEADER
from tests.kernel.batches import encode_record, wrap
from tests.kernel.full_log import FullLog
from tests.kernel.halves.test_producer_transactions import TIMEOUT_MS, Client, batch, known, rig_with
from tests.kernel.rig import Rig


@pytest.mark.parametrize("length", [70_000, 40_000])
def test_a_name_has_a_bound(length: int) -> None:
    rig = Rig()
    with pytest.raises(InvalidGroup):
        Client(rig, "n" * length).identify()
    Client(rig).identify()


def test_a_commit_that_comes_before_its_batches_are_stored_is_asked_again() -> None:
    rig, (a,) = rig_with("a")
    client, witness = Client(rig).identify().begin(a), rig.witness
    producing = rig.kernel.producing

    def hold(validated: Validated) -> bool:
        producing.hold("/", "t", a, validated, witness, "held")
        return True

    rig.kernel.append_batch(a, batch(client.producer_id, client.epoch, 0, b"1"), witness, "batch", hold)
    try:
        producing.end("/", "t", client.producer_id, client.epoch, True, NOBODY, witness, "end")
    except TransactionEnding:
        pass
    rig.run()
    if known(rig).state == OPEN:
        client.end()
    assert rig.values("a") == [b"1"]


def test_a_timeout_on_a_full_disk_is_tried_again_after_a_while() -> None:
    log = FullLog()
    rig, (a,) = rig_with("a", rig=Rig(log=log))
    client = Client(rig).identify().begin(a)
    client.hold(a, b"1")
    log.full = True
    rig.world.advance(TIMEOUT_MS)
    for _ in range(1_000):
        rig.world.advance(10)
    assert 1 <= rig.kernel.committer.refused <= 11
    log.full = False
    rig.world.advance(5_000)
    assert known(rig).state == ROLLED_BACK


def test_no_epoch_is_beyond_what_a_batch_can_say() -> None:
    rig, (a,) = rig_with("a")
    client = Client(rig).identify()
    rig.kernel.producing._producers["/", "t"].epoch = client.epoch = LAST_EPOCH
    for _ in range(3):
        client.begin(a)
        rig.world.advance(TIMEOUT_MS + 1)
        rig.run()
        client.identify(again=True)
        assert client.epoch <= LAST_EPOCH


def test_a_queue_that_goes_while_a_transaction_enters_gets_nothing() -> None:
    rig, (a,) = rig_with("a")
    queue = rig.kernel.groups.declare_queue("q")
    rig.kernel.groups.bind("a/#", queue)
    rig.run()
    client = Client(rig).identify().begin(a)
    for _ in range(20):
        client.hold(a, b"1", b"2")
    rig.kernel.producing._slices.slice_ms = 0
    rig.kernel.producing.end("/", "t", client.producer_id, client.epoch, True, NOBODY, rig.witness, "end")
    for _ in range(30):
        rig.world.loop.step()
    rig.kernel.groups.delete_queue(queue)
    rig.run()
    assert len(rig.values("a")) == 40
    assert rig.kernel.bounds(queue.first_partition_id)[1] == 0


def test_what_cannot_be_retained_is_refused_when_it_is_sent() -> None:
    rig, (a,) = rig_with("a", interpret_headers=True)
    client = Client(rig).identify().begin(a)
    record = encode_record(0, b"x" * 65_533, b"v", headers=[(b"retain", b"true")])
    data = wrap(record, 1, codec=TRANSACTIONAL, producer_id=client.producer_id, epoch=client.epoch, sequence=0)
    with pytest.raises(InvalidAddress):
        client.send(a, data)
    client.hold(a, b"2")
    client.end()
    assert rig.values("a") == [b"2"]


@pytest.mark.parametrize("bound", ["MAX_HELD_RECORDS", "MAX_HELD_BATCHES"])
@pytest.mark.parametrize("restarts", [False, True])
def test_records_and_batches_of_a_transaction_are_bounded(bound: str, restarts: bool, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_transactions, bound, 3)
    rig, (a,) = rig_with("a", rig=Rig(tmp_path))
    client = Client(rig).identify().begin(a)
    for value in (b"1", b"2", b"3"):
        client.hold(a, value)
    if restarts:
        rig.world.advance(10_000)
        rig.restart()
    with pytest.raises(TransactionTooLarge):
        client.hold(a, b"4")
    client.end()
    assert rig.values("a") == [b"1", b"2", b"3"]
    client.begin(a).hold(a, b"4")
    client.end()
    assert len(rig.values("a")) == 4


def test_what_a_transaction_says_of_groups_and_partitions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_transactions, "MAX_NAMED_BYTES", 10_000)
    rig, (a,) = rig_with("a")
    client = Client(rig).identify().begin(a, group="g")
    with pytest.raises(InvalidGroup):
        client.begin(group="g" * 300)
    for refused in (lambda: client.begin(*range(2, 2_000)), lambda: client.offsets("g", {a: (1, bytes(9_000))}),
                    lambda: [client.begin(group=f"{at}" * 50) for at in range(300)]):
        with pytest.raises(TransactionTooLarge):
            refused()
    client.offsets("g", {a: (1, b"m")})
    client.end()
    assert rig.kernel.groups.committed("g") == {a: (1, b"m")}
    assert rig.kernel.producing.moving("g", "/") == set()


def test_what_all_transactions_say_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_transactions, "MAX_ALL_NAMED_BYTES", 3_000)
    rig = Rig()
    clients = [Client(rig, name).identify().begin(group="g") for name in "abc"]
    clients[0].offsets("g", {1: (1, bytes(1_000))})
    with pytest.raises(TooManyTransactions):
        clients[1].offsets("g", {1: (1, bytes(1_000))})
    clients[0].end(commits=False)
    clients[1].offsets("g", {1: (1, bytes(1_000))})


class MeasuredLog(MemoryLog):
    """Remembers how large the bodies of frames were."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def append(self, head: bytes, body: bytes) -> int:
        self.sizes.append(len(body))
        return super().append(head, body)


def test_what_is_large_enters_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one frame would hold them all, and memory what they all hold."""
    monkeypatch.setattr(producer_transactions, "LARGE_FRAME_BYTES", 1_000)
    log = MeasuredLog()
    rig, (a,) = rig_with("a", rig=Rig(log=log))
    clients = [Client(rig, name).identify().begin(a) for name in "abcd"]
    for client in clients:
        client.hold(a, bytes(2_000))
    log.sizes.clear()
    for client in clients:
        rig.kernel.producing.end("/", client.name, client.producer_id, 0, True, NOBODY, rig.witness, client.name)
    rig.run()
    assert [size for size in log.sizes if size] == [log.sizes[0]] * 4
    assert len(rig.values("a")) == 4
    assert all(transaction.state == COMMITTED for transaction in rig.kernel.producing.known("/"))


def test_what_waits_to_enter_is_refused_with_the_frame_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And can be committed once there is room."""
    monkeypatch.setattr(producer_transactions, "LARGE_FRAME_BYTES", 1_000)
    log = FullLog()
    rig, (a,) = rig_with("a", rig=Rig(log=log))
    clients = [Client(rig, name).identify().begin(a) for name in "abc"]
    for client in clients:
        client.hold(a, bytes(2_000))
    log.full = True
    for client in clients:
        rig.kernel.producing.end("/", client.name, client.producer_id, 0, True, NOBODY, rig.witness, client.name)
    rig.run()
    assert sum(stored.error is not None for stored in rig.witness.stored) == 3
    assert rig.values("a") == []
    log.full = False
    rig.world.advance(60)
    for client in clients:
        client.end()
    assert len(rig.values("a")) == 3


def test_others_are_not_read_anew_where_a_frame_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FullLog()
    rig, (a,) = rig_with("a", rig=Rig(log=log))
    idle, client = Client(rig, "idle").identify().begin(a), Client(rig).identify().begin(a)
    idle.hold(a, b"1")
    before = rig.kernel.producing._producers["/", "idle"]
    log.full = True
    with pytest.raises(Exception, match="full"):
        client.hold(a, b"2")
    assert rig.kernel.producing._producers["/", "idle"] is before
    log.full = False
    rig.world.advance(60)
    client.hold(a, b"2")
    client.end()
    idle.end()
    assert rig.values("a") == [b"2", b"1"]


class Room:
    """A reserve that is a part of a full disk."""

    def __init__(self, log: FullLog) -> None:
        self.log = log

    def take(self) -> bool:
        return not self.log.full

    def give_up(self) -> bool:
        self.log.full = False
        return True


def test_a_rollback_has_the_last_of_the_room() -> None:
    log = FullLog()
    rig, (a,) = rig_with("a", rig=Rig(log=log, emergency_reserve=Room(log)))
    client = Client(rig).identify().begin(a)
    client.hold(a, b"1")
    log.full = True
    client.end(commits=False)
    assert known(rig).state == ROLLED_BACK


def test_an_offset_is_not_stable_before_its_commit_is_stored() -> None:
    """Who takes a partition over in this moment would read again what the transaction has answered."""
    rig, (a,) = rig_with("a")
    client = Client(rig).identify().begin(a, group="g")
    client.offsets("g", {a: (1, b"")})
    rig.kernel.producing.end("/", "t", client.producer_id, client.epoch, True, NOBODY, rig.witness, "end")
    while rig.kernel.groups.committed("g") == {}:
        assert rig.kernel.producing.moving("g", "/") == {a}
        assert rig.world.loop.step() or rig.world._step_workers()
    rig.run()
    assert rig.kernel.producing.moving("g", "/") == set()


@pytest.mark.parametrize("holds", [False, True])
def test_a_group_that_leases_by_now_is_not_moved(holds: bool) -> None:
    rig, (a,) = rig_with("a")
    client = Client(rig).identify().begin(a, group="g")
    client.offsets("g", {a: (1, b"")})
    if holds:
        client.hold(a, b"1")
    rig.kernel.groups.define("g", GroupSettings())
    rig.run()
    with pytest.raises(GroupIsLeased):
        client.end()
    assert known(rig).state == OPEN
    client.end(commits=False)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_group_that_was_deleted_does_not_come_back_with_a_commit(restarts: bool, tmp_path: Path) -> None:
    """As in Kafka: what would be committed of it is forgotten with it."""
    rig, (a, b) = rig_with("a", "b", rig=Rig(tmp_path))
    rig.kernel.assigned.commit_offsets("g", {a: (1, b"")}, rig.witness, "committed")
    rig.run()
    client = Client(rig).identify().begin(a, group="g")
    client.begin(group="h")
    for group in ("g", "h"):
        client.offsets(group, {a: (2, b""), b: (3, b"")})
    rig.kernel.groups.delete("g")
    rig.run()
    assert rig.kernel.producing.moving("g", "/") == set()
    if restarts:
        rig.restart()
    client.end()
    assert (rig.kernel.groups.committed("g"), rig.kernel.groups.committed("h")) == ({}, {a: (2, b""), b: (3, b"")})
    client.begin(group="g").offsets("g", {a: (4, b"")})
    client.end()
    assert rig.kernel.groups.committed("g") == {a: (4, b"")}


def test_an_offset_that_was_deleted_does_not_come_back_with_a_commit() -> None:
    rig, (a, b) = rig_with("a", "b")
    client = Client(rig).identify().begin(group="g")
    client.offsets("g", {a: (2, b""), b: (3, b"")})
    rig.kernel.assigned.delete_offsets("g", [a], rig.witness, "deleted")
    rig.run()
    assert rig.kernel.producing.moving("g", "/") == {b}
    client.end()
    assert rig.kernel.groups.committed("g") == {b: (3, b"")}


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_sent_beside_transactions_with_their_id_is_refused(restarts: bool, tmp_path: Path) -> None:
    """It would use up sequences, and the producer's own batches would be taken for those that had come already."""
    rig, (a, b) = rig_with("a", "b", rig=Rig(tmp_path))
    client = Client(rig).identify().begin(a)
    client.hold(a, b"1")
    if restarts:
        rig.restart()

    def beside(partition_id: int, sequence: int) -> None:
        rig.kernel.append_batch(partition_id, batch(client.producer_id, client.epoch, sequence, b"beside",
                                                    transactional=False), rig.witness, "beside")
        rig.run()

    for partition_id, sequence in ((a, 0), (a, 1), (b, 0)):     # the one that is held, and next ones
        with pytest.raises(NoTransaction):
            beside(partition_id, sequence)
    client.hold(a, b"2")
    client.end()
    with pytest.raises(NoTransaction):
        beside(a, 2)
    client.begin(a, b).hold(a, b"3")
    client.hold(b, b"4")
    client.end()
    assert (rig.values("a"), rig.values("b")) == ([b"1", b"2", b"3"], [b"4"])


def test_an_id_that_has_no_name_any_more_is_like_any_other() -> None:
    rig, (a,) = rig_with("a")
    client = Client(rig).identify()
    old_id = client.producer_id
    rig.kernel.producing._producers["/", "t"].epoch = LAST_EPOCH
    client.identify()
    assert client.producer_id != old_id

    def beside(producer_id: int) -> None:
        rig.kernel.append_batch(a, batch(producer_id, 0, 0, b"beside", transactional=False), rig.witness, "beside")
        rig.run()

    with pytest.raises(NoTransaction):
        beside(client.producer_id)
    beside(old_id)
    assert rig.values("a") == [b"beside"]


def test_a_queue_that_refuses_what_is_too_much_refuses_the_commit() -> None:
    rig, (a,) = rig_with("a")
    queue = rig.kernel.groups.declare_queue("q", QueueSettings(max_length=2, overflow="reject"))
    rig.kernel.groups.bind("a/#", queue)
    rig.run()
    client = Client(rig).identify().begin(a)
    client.hold(a, b"1", b"2")
    client.end()
    client.begin(a).hold(a, b"3")
    rig.kernel.producing.end("/", "t", client.producer_id, client.epoch, True, NOBODY, rig.witness, "end")
    rig.run()
    assert isinstance(rig.witness.stored[-1].error, QueueFull)
    assert known(rig).state == OPEN and not known(rig).ending
    assert rig.values("a") == [b"1", b"2"]
    rig.kernel.groups.purge(queue)
    rig.run()
    client.end()
    assert rig.values("a") == [b"1", b"2", b"3"]


def test_what_is_listened_to_is_opened_on_another_thread() -> None:
    """A compressed batch may hold a hundred thousand records: half a second in which nobody else would be served."""
    rig, (a,) = rig_with("a")
    rig.kernel.subscribe("a", rig.witness)
    rig.run()
    client = Client(rig).identify().begin(a)
    records = b"".join(encode_record(at, None, b"v") for at in range(5_000))
    client.send(a, wrap(compress(records), 5_000, codec=TRANSACTIONAL | GZIP, producer_id=client.producer_id,
                        epoch=client.epoch, sequence=0))
    rig.kernel.producing.end("/", "t", client.producer_id, client.epoch, True, NOBODY, rig.witness, "end")
    while not (stored := [stored for stored in rig.witness.stored if stored.token == "end"]):
        jobs = len(rig.world.validation_worker.jobs)
        if jobs:
            break
        assert rig.world.loop.step() or rig.world._step_workers()
    assert not stored, "it is not opened here"
    rig.run()
    assert len(rig.witness.delivered) == len(rig.values("a")) == 5_000


def test_a_hub_that_stops_leaves_a_commit_for_the_next_start(tmp_path: Path) -> None:
    rig, (a,) = rig_with("a", rig=Rig(tmp_path))
    client = Client(rig).identify().begin(a)
    for _ in range(20):
        client.hold(a, b"1", b"2")
    rig.kernel.producing._slices.slice_ms = 0
    rig.kernel.producing.end("/", "t", client.producer_id, client.epoch, True, NOBODY, rig.witness, "end")
    closed: list[bool] = []
    rig.kernel.close(lambda: closed.append(True))
    rig.run()
    assert closed
    rig.restart()
    assert len(rig.values("a")) in (0, 40)
    client.end()
    assert len(rig.values("a")) == 40


@pytest.mark.parametrize("restarts", [False, True])
def test_a_new_name_takes_the_place_of_one_that_is_idle(restarts: bool, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Some programs take a new name for each transaction: they would use up all names within a day."""
    monkeypatch.setattr(producer_transactions, "MAX_NAMES", 3)
    rig, (a,) = rig_with("a", rig=Rig(tmp_path))
    first, second, third = (Client(rig, name).identify() for name in "abc")
    with pytest.raises(TooManyTransactions):
        Client(rig, "d").identify()
    rig.world.advance(IDLE_MS)
    first.begin(a)
    if restarts:
        rig.restart()
    Client(rig, "d").identify()
    assert [transaction.name for transaction in rig.kernel.producing.known("/")] == ["a", "c", "d"]
    with pytest.raises(OtherProducer):
        second.begin(a)
    before = second.producer_id
    assert second.identify(again=True).producer_id != before, "and in the place of the third"
    with pytest.raises(TooManyTransactions):
        third.identify()
    first.end()


def test_a_name_that_made_room_in_a_frame_that_was_refused_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_transactions, "MAX_NAMES", 1)
    log = FullLog()
    rig, (a,) = rig_with("a", rig=Rig(log=log))
    client = Client(rig).identify()
    rig.world.advance(IDLE_MS)
    log.full = True
    with pytest.raises(StorageFull):
        Client(rig, "d").identify()
    log.full = False
    rig.world.advance(60)
    client.begin(a).hold(a, b"1")
    client.end()
    assert rig.values("a") == [b"1"]


def test_a_retained_value_and_what_is_followed_come_with_the_commit() -> None:
    rig, (a,) = rig_with("a", interpret_headers=True, rig=Rig(journeys=JourneySettings(rate=1.0)))
    rig.kernel.subscribe("a", rig.witness)
    rig.run()
    client = Client(rig).identify().begin(a)
    record = encode_record(0, None, b"v", headers=[(b"retain", b"true"), (b"x-trace", b"always")])
    client.send(a, wrap(record, 1, codec=TRANSACTIONAL, producer_id=client.producer_id, epoch=client.epoch, sequence=0))
    retained: list[object] = []
    rig.kernel.retained("a", "/", lambda *answer: retained.append(answer))
    rig.run()
    assert "b'v'" not in repr(retained)
    client.end()
    rig.kernel.retained("a", "/", lambda *answer: retained.append(answer))
    rig.run()
    assert "b'v'" in repr(retained[-1])
    assert [value for _, value, _, _ in rig.witness.delivered] == [b"v"] == rig.values("a")


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_sender_with_the_right_has_a_record_of_a_transaction_followed(asks: bool, restarts: bool, tmp_path: Path
                                                                        ) -> None:
    rig, (a,) = rig_with("a", rig=Rig(tmp_path, journeys=JourneySettings(rate=0.0)))
    client = Client(rig).identify().begin(a)
    rig.kernel.speaker.speaks(Origin("kafka", "edge", traces=True))
    record = encode_record(0, b"k", b"v", headers=[(b"x-trace", b"always" if asks else b"no")])
    client.send(a, wrap(record, 1, codec=TRANSACTIONAL, producer_id=client.producer_id, epoch=client.epoch, sequence=0))
    if restarts:
        rig.world.advance(10_000)
        rig.restart()
    client.end()
    assert (HEADER in dict(rig.read("a")[0][4])) is asks


def test_what_is_opened_on_another_thread_and_not_held_is_answered() -> None:
    rig, (a, b) = rig_with("a", "b")
    client = Client(rig).identify().begin(a)
    record = compress(encode_record(0, b"k", bytes(3_000_000)))
    with pytest.raises(NoTransaction):
        client.send(b, wrap(record, 1, codec=TRANSACTIONAL | GZIP, producer_id=client.producer_id, epoch=client.epoch,
                            sequence=0))
    client.hold(a, b"1")
    client.end()
    assert (rig.values("a"), rig.values("b")) == ([b"1"], [])


def test_a_topic_that_takes_it_no_more_refuses_the_commit() -> None:
    rig, (a, b) = rig_with("a", "b")
    client = Client(rig).identify().begin(a, b)
    client.hold(a, b"1", key=None)
    client.hold(b, b"2")
    rig.kernel.change_topic("a", settings=TopicSettings(compact=True))
    rig.run()
    for _ in range(2):
        client.ask_to_end()
        rig.run()
        assert isinstance(rig.witness.stored[-1].error, InvalidRecord)
        assert known(rig).state == OPEN and not known(rig).ending
    client.end(commits=False)
    client.begin(a, b).hold(a, b"3")
    client.hold(b, b"4")
    client.end()
    assert (rig.values("a"), rig.values("b")) == ([b"3"], [b"4"])


@pytest.mark.parametrize("size_bytes", [100, 3_000_000])
@pytest.mark.parametrize("rate", [0.01, 1.0])
def test_what_is_packed_and_followed_enters(size_bytes: int, rate: float) -> None:
    rig, (a,) = rig_with("a", rig=Rig(journeys=JourneySettings(rate=rate)))
    client = Client(rig).identify()
    records = b"".join(encode_record(at, b"k", bytes(size_bytes // 20)) for at in range(20))
    for turn in range(10):
        client.begin(a)
        for at in (0, 1):
            client.send(a, wrap(compress(records), 20, codec=TRANSACTIONAL | GZIP, producer_id=client.producer_id,
                                epoch=client.epoch, sequence=40 * turn + 20 * at))
        client.ask_to_end()
        rig.world.advance(10_000)
        assert [stored.error for stored in rig.witness.stored if stored.token == "end"][turn:] == [None]
    has_context = [HEADER in dict(record[4]) for record in rig.read("a")]
    assert len(has_context) == 400
    assert any(has_context) is (rate == 1 and size_bytes == 100), "what is large is not opened for it"


def test_the_last_batch_that_has_room_may_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_transactions, "MAX_HELD_BATCHES", 1)
    rig, (a,) = rig_with("a")
    client = Client(rig).identify().begin(a)
    data = batch(client.producer_id, client.epoch, 0, b"1")
    client.send(a, data)
    assert client.send(a, data).positions == [(a, HELD_OFFSET, 0)]
    client.end()
    assert rig.values("a") == [b"1"]
