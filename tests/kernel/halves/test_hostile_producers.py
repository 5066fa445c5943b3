"""Producers with a name that ask for everything at once, say too much, or are silent while the disk is full."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.errors import InvalidAddress, InvalidGroup, TransactionEnding
from gatehouse.kernel.halves.producer_transactions import LAST_EPOCH, OPEN, ROLLED_BACK
from gatehouse.kernel.message import NOBODY
from gatehouse.kernel.records.validation import Validated
from tests.kernel.batches import encode_record, wrap
from gatehouse.kernel.records.batch import TRANSACTIONAL
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
    record = encode_record(0, b"k/" * 40_000, b"v", headers=[(b"retain", b"true")])
    data = wrap(record, 1, codec=TRANSACTIONAL, producer_id=client.producer_id, epoch=client.epoch, sequence=0)
    with pytest.raises(InvalidAddress):
        client.send(a, data)
    client.hold(a, b"2")
    client.end()
    assert rig.values("a") == [b"2"]
