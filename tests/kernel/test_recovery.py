"""Starting again: from an index that is behind, ahead in part, or gone."""
from __future__ import annotations

from pathlib import Path

import pytest

from kernel.index import _META
from kernel.settings import KernelSettings
from tests.kernel.rig import Rig


@pytest.fixture(params=["memory", "files"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    return Rig(tmp_path if request.param == "files" else None, KernelSettings(segment_bytes=1 << 20, default_queues=1))


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
