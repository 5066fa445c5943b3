"""Starting again: from an index that is behind, ahead in part, or gone."""
from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.kernel.index.index import _META
from gatehouse.kernel.message import Entries, StateRecord, encode_head
from gatehouse.kernel.settings import KernelSettings
from gatehouse.kernel.state.state import Kind, offset_record
from tests.kernel.rig import Rig


@pytest.fixture(params=["memory", "files"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    return Rig(tmp_path if request.param == "files" else None,
               KernelSettings(segment_bytes=1 << 20, default_partitions=1))


def test_replay_over_an_index_that_holds_the_newer_topics_already(rig: Rig) -> None:
    """A power cut may keep all of a checkpoint but its last write, the positions. Found by the simulator, seed 57."""
    rig.publish("t/k", b"old")
    rig.world.advance(5_000)
    positions = rig.store.get(_META)
    assert positions is not None
    for value in (b"1", b"2"):
        rig.kernel.delete_topic("t")
        rig.publish("t/k", value)
    topic = rig.kernel.topic("t")
    rig.world.advance(5_000)
    rig.store.write([(_META, positions)])
    rig.restart()
    assert rig.kernel.topic("t") == topic and rig.kernel.topics() == [topic]
    assert rig.values("t") == [b"2"]


def test_a_copy_of_what_was_deleted_meanwhile_does_not_bring_it_back(rig: Rig) -> None:
    """A crash came after a record was copied, and after its deletion had reached the index, which knew of no copy."""
    partition_id = rig.kernel.place("t/k").partition_id
    rig.kernel.groups.commit_offsets("g", {partition_id: (5, b"")}, None)
    rig.run()
    order = rig.kernel._state.changes.newest[Kind.OFFSET, offset_record("g", partition_id, None).key][0]
    rig.kernel.delete_topic("t")
    rig.run()
    rig.world.advance(5_000)
    copy = offset_record("g", partition_id, (5, b""))
    rig.log.keep(encode_head(1, 0, 0, 0, Entries(), [StateRecord(copy.kind, copy.key, copy.value, order)]), b"")
    rig.log.sync_kept()
    for lose_index in (False, False, True):
        rig.restart(lose_index=lose_index)
        assert rig.kernel.groups.committed("g") == {} and dict(rig.kernel._state.scan(Kind.OFFSET)) == {}
        rig.world.advance(5_000)


def test_a_copy_of_what_was_replaced_meanwhile_is_not_read(rig: Rig) -> None:
    partition_id = rig.kernel.place("t/k").partition_id
    rig.kernel.groups.commit_offsets("g", {partition_id: (5, b"")}, None)
    rig.run()
    order = rig.kernel._state.changes.newest[Kind.OFFSET, offset_record("g", partition_id, None).key][0]
    rig.kernel.groups.commit_offsets("g", {partition_id: (6, b"")}, None)
    rig.run()
    rig.world.advance(5_000)
    copy = offset_record("g", partition_id, (5, b""))
    rig.log.keep(encode_head(1, 0, 0, 0, Entries(), [StateRecord(copy.kind, copy.key, copy.value, order)]), b"")
    rig.log.sync_kept()
    for lose_index in (False, False, True):
        rig.restart(lose_index=lose_index)
        assert rig.kernel.groups.committed("g") == {partition_id: (6, b"")}
        newest = offset_record("g", partition_id, (6, b""))
        assert dict(rig.kernel._state.scan(Kind.OFFSET)) == {newest.key: newest.value}
        rig.world.advance(5_000)
