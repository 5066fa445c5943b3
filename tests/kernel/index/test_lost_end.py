"""Where frames are lost, offsets and ids go on behind what they may have given out: a gap, never a second time."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from gatehouse.kernel.log.segments import SEGMENT_HEADER_BYTES
from gatehouse.kernel.message import decode_head
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.state.topics import TopicSettings
from tests.kernel.groups.test_groups import pop, send, values
from tests.kernel.rig import Rig
from tests.simulation.disk import Crash, SimDisk

SETTINGS = KernelSettings(segment_bytes=20_000, default_partitions=1)


def newest(folder: Path, chain: str = "log") -> Path:
    return sorted((folder / chain).iterdir())[-1]


def filled(folder: Path) -> Rig:
    """Two topics, one of which is only in the oldest segment; all of it in the index."""
    rig = Rig(folder, SETTINGS)
    rig.kernel.create_topic("quiet", partitions=3, settings=TopicSettings(max_message_bytes=7_000))
    rig.publish("quiet/k", b"once")
    for number in range(20):
        rig.publish("busy/k", b"%d" % number + bytes(5_000))
    rig.kernel.groups.commit_offsets("group", {rig.kernel.place("busy/k").partition_id: (19, b"")}, None)
    rig.run()
    rig.world.advance(5_000)
    return rig


def remove(folder: Path) -> None:
    newest(folder).unlink()


def empty(folder: Path) -> None:
    newest(folder).write_bytes(b"")


def halve(folder: Path) -> None:
    data = newest(folder).read_bytes()
    newest(folder).write_bytes(data[:len(data) // 2])


def zero(folder: Path) -> None:
    newest(folder).write_bytes(bytes(newest(folder).stat().st_size))


def remove_all(folder: Path) -> None:
    for file in (folder / "log").iterdir():
        file.unlink()


@pytest.mark.parametrize("rebuilt", [False, True], ids=["index stays", "index is lost later"])
@pytest.mark.parametrize("lose", [remove, empty, halve, zero, remove_all])
def test_a_log_that_lost_its_end_reuses_nothing(tmp_path: Path, lose: Callable[[Path], None], rebuilt: bool) -> None:
    rig = filled(tmp_path)
    quiet, busy = rig.kernel.topic("quiet"), rig.kernel.topic("busy")
    last = rig.publish("busy/k", b"last")[0]
    rig.world.advance(5_000)
    before, epoch, counters = rig.log.end(), rig.kernel.epoch, rig.kernel._topics.counters()
    rig.log.close()
    lose(tmp_path)
    rig.restart()
    assert any("ends before what the index knows of" in damage.reason for damage in rig.damage)
    assert rig.log.end() > before and rig.kernel.epoch > epoch
    if rebuilt:
        rig.world.advance(5_000)
        rig.damage.clear()
        rig.restart(lose_index=True)
    assert rig.kernel.topic("quiet") == quiet and rig.kernel.topic("busy") == busy
    assert rig.kernel.groups.committed("group") == {last[0]: (19, b"")}
    partition_id, offset, message_id = rig.publish("busy/k", b"new")[0]
    assert partition_id == last[0] and offset > last[1] and message_id > last[2]
    assert rig.publish("quiet/k", b"new")[0][1] >= 1
    rig.publish("another/k", b"new")
    assert rig.kernel.topic("another").id > max(quiet.id, busy.id)
    assert rig.kernel._topics.counters() > counters
    found = [(record[0], record[3]) for record in rig.read_partition(partition_id)]
    assert found[-1] == (offset, b"new"), "a reader gets past the gap"
    assert len({number for number, _ in found}) == len(found)


def test_a_group_that_had_read_to_the_end_gets_what_comes_after_a_loss(tmp_path: Path) -> None:
    rig = filled(tmp_path)
    partition_id, offset, _ = rig.publish("busy/k", b"last")[0]
    rig.kernel.groups.commit_offsets("group", {partition_id: (offset + 1, b"")}, None)
    rig.run()
    rig.world.advance(5_000)
    rig.log.close()
    remove(tmp_path)
    rig.restart()
    at = rig.kernel.groups.committed("group")[partition_id][0]
    assert at == offset + 1
    rig.publish("busy/k", b"new")
    assert [record[3] for record in rig.read_partition(partition_id, at)] == [b"new"]


def test_a_reader_before_the_gap_is_told_where_it_ends(tmp_path: Path) -> None:
    """With an index built anew nothing says what was there: a reader must not ask for it for ever."""
    rig = filled(tmp_path)
    rig.log.close()
    remove(tmp_path)
    rig.restart()
    rig.restart(lose_index=True)
    partition_id = rig.kernel.place("busy/k").partition_id
    high = rig.kernel.bounds(partition_id)[1]
    fetched = rig.fetch(partition_id, 20, 100)
    assert fetched.pieces == [] and fetched.next_offset == high > 20


def test_a_lost_end_of_what_is_kept_loses_no_state(tmp_path: Path) -> None:
    rig = Rig(tmp_path, KernelSettings(segment_bytes=20_000, retention_bytes=60_000, default_partitions=1))
    rig.publish("state/k", b"retained", attributes=3)
    for _ in range(40):
        rig.publish("busy/k", bytes(5_000))
    rig.world.advance(15_000)
    rig.world.advance(15_000)
    held = rig.kernel._reader._index.held(Kind.TOPIC, rig.kernel.topic("state").id.to_bytes(8, "big"))
    assert held is not None and held.home >= 1 << 62, "it is in the kept chain"
    topic = rig.kernel.topic("state")
    rig.log.close()
    newest(tmp_path, "kept").unlink()
    rig.restart()
    assert "chain of what is kept ends before" in rig.damage[0].reason
    rig.world.advance(5_000)
    rig.restart(lose_index=True)
    assert rig.kernel.topic("state") == topic
    rig.world.advance(15_000)


def test_state_of_a_segment_that_is_lost_is_written_down_again(tmp_path: Path) -> None:
    rig = filled(tmp_path)
    topic, end = rig.kernel.topic("quiet"), rig.log.end()
    rig.log.close()
    oldest = sorted((tmp_path / "log").iterdir())[0]
    oldest.write_bytes(b"x" * oldest.stat().st_size)
    rig.restart()
    assert len(rig.damage) == 1 and rig.log.end() > end
    rig.world.advance(5_000)
    rig.restart(lose_index=True)
    assert rig.kernel.topic("quiet") == topic
    assert rig.publish("quiet/k", b"new")[0][1] >= 1


@pytest.mark.parametrize("rebuilt", [False, True], ids=["index stays", "index is lost later"])
def test_groups_and_queues_go_on_behind_a_loss(tmp_path: Path, rebuilt: bool) -> None:
    rig = filled(tmp_path)
    queue = rig.kernel.groups.declare_queue("work")
    rig.kernel.groups.declare_queue("unused")
    group = rig.kernel.groups.group("readers", "busy")
    rig.run()
    taken = pop(rig, group)
    group.ack([one[:3] for one in taken], rig.witness)
    send(rig, queue, b"one", b"two")
    rig.world.advance(5_000)
    rig.log.close()
    remove(tmp_path)
    rig.restart()
    if rebuilt:
        rig.world.advance(5_000)
        rig.restart(lose_index=True)
    queue, group = rig.kernel.groups.queue("work"), rig.kernel.groups.group("readers", "busy")
    assert queue is not None and rig.kernel.groups.queue("unused") is not None
    send(rig, queue, b"three")
    rig.publish("busy/k", b"new")
    for leased, expected in ((rig.kernel.groups.queue_group(queue), b"three"), (group, b"new")):
        assert values(pop(rig, leased) or pop(rig, leased))[-1] == expected


def damage_head(file: Path, holding: bytes) -> None:
    """Flip a bit in the head of the frame whose body holds these bytes."""
    data = bytearray(file.read_bytes())
    data[data.rindex(b"GHF1", 0, data.index(holding)) + 33] ^= 1
    file.write_bytes(data)


def test_a_damaged_frame_that_no_index_knows_leaves_a_gap_in_the_queues_that_it_may_have_held(tmp_path: Path) -> None:
    rig = Rig(tmp_path, KernelSettings(default_partitions=1))
    for address in ("t/k", "u/k", "v/k"):
        rig.publish(address, b"first")
    rig.publish("t/k", b"damaged", b"damaged too")
    rig.publish("u/k", b"behind it")
    taken = rig.kernel.epoch, rig.kernel._topics.counters()
    rig.log.close()
    damage_head(newest(tmp_path), b"damaged")
    rig.restart()
    assert len(rig.damage) == 1 and not rig.damage[0].is_known
    assert rig.publish("u/k", b"new")[0][1] == 2, "a later frame says how far this one got"
    assert rig.publish("t/k", b"new")[0][1] >= 3
    assert rig.publish("v/k", b"new")[0][1] >= 3, "it may have been in the frame, too"
    assert (rig.kernel.epoch, rig.kernel._topics.counters()) > taken
    for lose_index in (False, True, True):
        places = [rig.kernel.bounds(rig.kernel.place(address).partition_id) for address in ("t/k", "u/k", "v/k")]
        rig.world.advance(5_000)
        rig.restart(lose_index=lose_index)
        assert places == [rig.kernel.bounds(rig.kernel.place(address).partition_id)
                          for address in ("t/k", "u/k", "v/k")]


def test_a_damaged_body_costs_its_bytes_and_no_offset(tmp_path: Path) -> None:
    rig = Rig(tmp_path, KernelSettings(default_partitions=1))
    rig.publish("t/k", b"damaged")
    rig.publish("t/k", b"behind it")
    rig.log.close()
    data = bytearray(newest(tmp_path).read_bytes())
    data[data.index(b"damaged")] ^= 1
    newest(tmp_path).write_bytes(data)
    rig.restart()
    assert [damage.is_known for damage in rig.damage] == [True]
    partition_id, offset, _ = rig.publish("t/k", b"new")[0]
    assert offset == 2 and [record[3] for record in rig.read_partition(partition_id)] == [b"behind it", b"new"]


@pytest.mark.parametrize("number", range(1, 30))
def test_a_crash_while_the_loss_is_made_good_repeats_it(number: int) -> None:
    disk = SimDisk(Random(number))
    rig = Rig(disk=disk, settings=SETTINGS)
    rig.kernel.create_topic("quiet", partitions=3)
    last = [rig.publish("busy/k", bytes(5_000))[0] for _ in range(20)][-1]
    rig.world.advance(5_000)
    disk.remove(f"log/{rig.log.segments()[-1].base:020d}.log")
    disk.sync_folder("log")
    disk.crash_after(number, "during")
    try:
        rig.restart()
    except Crash:
        disk.crash("power")
        rig.restart()
    disk.crash_at = None
    rig.restart(lose_index=True)
    assert rig.kernel.topic("quiet").partitions == 3
    _, offset, message_id = rig.publish("busy/k", b"new")[0]
    assert offset > last[1] and message_id > last[2]


def test_the_ids_of_a_last_frame_that_was_lost_are_not_given_again(tmp_path: Path) -> None:
    """Nothing tells it from one that a kill left half written. It may have reached beyond a multiple of the step."""
    rig = Rig(tmp_path)
    committer = rig.kernel.committer
    committer.next_id += (1 << 20) - 2
    ids = [rig.publish("t/k", b"%d" % number)[0][2] for number in range(5)]
    rig.log.close()
    data = bytearray(newest(tmp_path).read_bytes())
    frames = [at for at in range(SEGMENT_HEADER_BYTES, len(data)) if data[at:at + 4] == b"GHF1"]
    del data[frames[-4]:]
    newest(tmp_path).write_bytes(data)
    rig.restart()
    assert rig.publish("t/k", b"new")[0][2] > max(ids)


def test_heads_that_were_written_down_are_what_a_frame_says(tmp_path: Path) -> None:
    """What is left out stands in the log as any state does."""
    rig = filled(tmp_path)
    rig.log.close()
    remove(tmp_path)
    rig.restart()
    kinds = {record.kind for segment in rig.log.segments()[-1:] for frame in rig.log.heads(segment)
             for record in decode_head(frame.head).state}
    assert {Kind.EPOCH, Kind.COUNTERS, Kind.WATERMARKS} <= kinds
