"""Transactions of producers beside what else the hub does: retention, compaction, retained values."""
from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from gatehouse.kernel.halves.producer_transactions import MAX_TIMEOUT_MS, ROLLED_BACK
from gatehouse.kernel.message import RETAIN
from gatehouse.kernel.records.batch import TRANSACTIONAL
from gatehouse.kernel.settings import KernelSettings
from tests.kernel.batches import encode_record, wrap
from tests.kernel.halves.test_producer_transactions import Client, known, rig_with
from tests.kernel.retention.test_retention import SEGMENT_BYTES, turn_over
from tests.kernel.rig import Rig
from tests.simulation.disk import SimDisk


def small_rig() -> Rig:
    """Whose segments go soon."""
    return Rig(disk=SimDisk(Random(1)), settings=KernelSettings(segment_bytes=SEGMENT_BYTES, default_partitions=1,
                                                               retention_bytes=2 * SEGMENT_BYTES))


@pytest.mark.parametrize("lose_index", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_what_is_held_outlives_the_segments_that_it_came_in(commits: bool, lose_index: bool) -> None:
    rig, (a,) = rig_with("a", rig=small_rig())
    client = Client(rig).identify(timeout_ms=MAX_TIMEOUT_MS).begin(a, group="g")
    client.hold(a, b"1", b"2")
    client.offsets("g", {a: (1, b"")})
    turn_over(rig)
    rig.restart(lose_index=lose_index)
    if commits:
        client.hold(a, b"3")
        client.end()
        assert rig.values("a") == [b"1", b"2", b"3"]
    else:
        rig.world.advance(MAX_TIMEOUT_MS)
        assert known(rig).state == ROLLED_BACK and rig.values("a") == []
    turn_over(rig)
    rig.restart(lose_index=lose_index)
    assert rig.kernel.groups.committed("g") == ({a: (1, b"")} if commits else {})
    assert not rig.damage


@pytest.mark.parametrize("lose_index", [False, True])
def test_the_newest_of_a_key_is_what_was_committed_last(lose_index: bool) -> None:
    rig, (c,) = rig_with("c", rig=small_rig(), compact=True)
    client = Client(rig).identify(timeout_ms=MAX_TIMEOUT_MS).begin(c)
    client.hold(c, b"first", key=b"k")
    client.hold(c, b"second", b"third", key=b"k")
    rig.publish("c/k", b"by another door")
    client.hold(c, b"other", key=b"l")
    turn_over(rig)
    client.end()
    turn_over(rig)
    rig.restart(lose_index=lose_index)
    assert [(record[2], record[3]) for record in rig.read_partition(c)] == [(b"k", b"third"), (b"l", b"other")]


def test_the_retained_value_is_what_was_committed_last() -> None:
    rig, (a,) = rig_with("a", interpret_headers=True)
    client = Client(rig).identify().begin(a)
    retain = [(b"retain", b"true")]
    records = encode_record(0, b"k", b"held", retain) + encode_record(1, b"k", b"held last", retain)
    client.send(a, wrap(records, 2, codec=TRANSACTIONAL, producer_id=client.producer_id, epoch=client.epoch,
                        sequence=0))
    rig.publish("a/k", b"by another door", attributes=2 | RETAIN)
    retained: list[object] = []

    def newest() -> str:
        rig.kernel.retained("a/k", "/", lambda *answer: retained.append(answer))
        rig.run()
        return repr(retained[-1])

    assert "b'by another door'" in newest()
    client.end()
    assert "b'held last'" in newest()


def test_an_operator_sees_how_much_is_open_and_for_how_long(tmp_path: Path) -> None:
    rig, (a,) = rig_with("a", rig=Rig(tmp_path))

    def open_now() -> tuple[int, int, int]:
        """How many, the bytes that they hold, and how long the oldest is open."""
        producing = rig.kernel.producing
        counts = producing.statistics()
        return counts["producer_transactions_open"], counts["producer_transactions_held_bytes"], producing.oldest_ms()

    first, second = Client(rig, "first").identify(), Client(rig, "second").identify()
    assert open_now() == (0, 0, 0)
    first.begin(a)
    first.hold(a, bytes(1_000))
    rig.world.advance(5_000)
    second.begin(a)
    second.hold(a, bytes(1_000))
    rig.restart()
    count, held_bytes, oldest_ms = open_now()
    assert count == 2 and 2_000 < held_bytes < 2_500 and oldest_ms >= 5_000
    first.end()
    assert open_now()[0] == 1 and open_now()[2] < 5_000
    rig.world.advance(MAX_TIMEOUT_MS)
    assert open_now() == (0, 0, 0)


def test_who_reads_up_to_where_partitions_end_sees_each_transaction_whole_and_once() -> None:
    """As Spark's source does: it asks where all partitions end, and reads from the ends that it was told before."""
    rig, ids = rig_with("a", "b")
    clients = [Client(rig, name).identify().begin(*ids) for name in ("one", "other")]
    ends: list[list[int]] = [[0, 0]]

    def look() -> None:
        ends.append([rig.kernel.bounds(partition_id)[1] for partition_id in ids])

    for turn in range(3):
        for client in clients:
            for partition_id in ids:
                client.hold(partition_id, *[b"%s %d %d" % (client.name.encode(), turn, at) for at in range(3)])
            look()
        for client in reversed(clients):
            client.ask_to_end(commits=turn != 1)
        while rig.world.loop.step() or rig.world._step_workers():
            look()
        for client in clients:
            client.begin(*ids)
    assert ends == sorted(ends), "no end goes back"
    assert all(first == second and first % 3 == 0 for first, second in ends), "it is in all of its partitions"
    for at, partition_id in enumerate(ids):
        seen = [record[3] for last, end in pairwise(ends) for record in rig.read_partition(partition_id, last[at])
                if record[0] < end[at]]
        assert seen == [b"%s %d %d" % (name, turn, number) for turn in (0, 2) for name in (b"other", b"one")
                        for number in range(3)]
