"""A fetch of many partitions that must be read from the disk: they share what one read takes, and take turns."""
from __future__ import annotations

import pytest

from gatehouse.kernel.background import LOOK_MS, SLICE_BYTES
from gatehouse.kernel.index.reader import LOOK_BYTES
from gatehouse.kernel.log.memory_log import MemoryLog
from gatehouse.kernel.message import COLD_BYTES, Fetched
from tests.gateways.kafka.steps import steps_of
from tests.kernel.rig import Rig

PARTITIONS = 40
MIB = 1 << 20


class AskedLog(MemoryLog):
    """Notes what is asked of the disk exactly, and what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int, int]] = []
        self.got: list[tuple[int, int, int]] = []

    def ask(self, spans: list[tuple[int, int, int]]) -> None:
        self.asked += spans

    def read(self, spans: list[tuple[int, int, int]]) -> list[bytes]:
        self.got += spans
        return super().read(spans)


def stored(value_bytes: int, partitions: int = PARTITIONS, log: MemoryLog | None = None) -> tuple[Rig, range]:
    """A hub that has started anew over so many partitions of one message each, and their ids."""
    rig = Rig(log=log)
    topic = rig.kernel.create_topic("wide", partitions=partitions)
    for partition in range(partitions):
        placement = rig.kernel.place_in("wide", b"k", partition=partition)
        rig.kernel.append([(placement, b"v" * value_bytes, b"\0", 0, 0)], None)
    rig.run()
    rig.restart()
    first = topic.partition_id(0)
    return rig, range(first, first + partitions)


def fetch(rig: Rig, partition_ids: range, max_bytes: int = 50 * MIB) -> list[Fetched]:
    found: list[Fetched] = []
    rig.kernel.fetch([(partition_id, 0, MIB) for partition_id in partition_ids], max_bytes, found.extend)
    rig.run()
    return found


def given(answers: list[Fetched]) -> list[bool]:
    return [bool(answer.pieces) for answer in answers]


def test_small_partitions_come_in_one_fetch() -> None:
    rig, ids = stored(100)
    assert all(given(fetch(rig, ids)))


def test_also_while_somebody_publishes() -> None:
    rig, ids = stored(100)
    rig.publish("elsewhere/x", b"v")
    rig.world.advance(LOOK_MS)
    assert rig.kernel.background.yields()
    answers = fetch(rig, ids)
    many = SLICE_BYTES // LOOK_BYTES
    assert given(answers) == [True] * many + [False] * (PARTITIONS - many)
    assert all(answer.next_offset <= 0 for answer in answers[many:])


def test_only_beside_live_messages_the_disk_reads_nothing_ahead() -> None:
    log = AskedLog()
    rig, ids = stored(100, log=log)
    log.got.clear()
    fetch(rig, ids)
    assert len(log.got) == PARTITIONS and log.asked == []
    rig.publish("elsewhere/x", b"v")
    rig.world.advance(LOOK_MS)
    log.got.clear()
    fetch(rig, ids)
    assert log.asked == log.got != []


def test_large_partitions_share_one_read() -> None:
    rig, ids = stored(COLD_BYTES // 4)
    assert given(fetch(rig, ids)) == [True] * 4 + [False] * (PARTITIONS - 4)


def test_the_fetch_has_a_bound_of_its_own() -> None:
    rig, ids = stored(1_000)
    answers = fetch(rig, ids, 10_000)
    assert given(answers)[:2] == [True, True] and not given(answers)[-1]
    assert given(fetch(rig, ids, 1)) == [True] + [False] * (PARTITIONS - 1)


def test_what_has_no_room_is_not_looked_for() -> None:
    """Ten thousand partitions that wait behind one which must be read from the disk cost little."""
    count = 500
    rig, ids = stored(100, count)
    for partition in range(1, count):
        rig.kernel.append([(rig.kernel.place_in("wide", b"k", partition=partition), b"w", b"\0", 0, 0)], None)
    rig.run()
    found: list[Fetched] = []
    wants = [(ids[0], 0, MIB), *((partition_id, 1, MIB) for partition_id in ids[1:])]
    steps = steps_of(lambda: rig.kernel.fetch(wants, 1, found.extend))
    rig.run()
    assert given(found) == [True] + [False] * (count - 1)
    assert steps < 60 * count


@pytest.mark.parametrize("where", ["memory", "disk", "store"])
def test_nothing_is_read_behind_the_last_record_that_is_wanted(where: str) -> None:
    rig = Rig()
    for number in range(6):
        rig.publish("plant/1", *[b"%d" % number] * 2)
    if where == "store":
        rig.world.advance(10_000)
    if where != "memory":
        rig.restart()
    partition_id = rig.kernel.place("plant/1").partition_id
    given_offsets = {}
    for offset, max_records in ((0, 1), (0, 3), (3, 1), (3, 2), (3, 100), (0, 0)):
        answers: list[Fetched] = []
        rig.kernel.fetch([(partition_id, offset, MIB)], MIB, answers.extend, max_records=max_records)
        rig.run()
        given_offsets[offset, max_records] = [piece.first_offset for piece in answers[0].pieces]
    assert given_offsets == {(0, 1): [0], (0, 3): [0, 2], (3, 1): [2], (3, 2): [2, 4], (3, 100): [2, 4, 6, 8, 10],
                             (0, 0): [0, 2, 4, 6, 8, 10]}
