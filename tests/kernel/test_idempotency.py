"""The deduplication window: what leaves it, and when."""
from __future__ import annotations

import pytest

from kernel.errors import StorageFull
from kernel.settings import KernelSettings
from kernel.state import Kind
from tests.kernel.full_log import FullLog
from tests.kernel.rig import Rig


def remembered(rig: Rig) -> list[str]:
    return sorted(key.decode() for key, _ in rig.kernel.parts.state.scan(Kind.IDEMPOTENCY))


def test_more_keys_than_are_remembered_push_out_the_oldest() -> None:
    rig = Rig(settings=KernelSettings(max_idempotency_keys=3))
    for n in range(6):
        rig.publish("t/k", b"v", idempotency_key=f"key-{n}")
    rig.publish("t/k", b"after")
    assert remembered(rig) == ["key-3", "key-4", "key-5"]


def test_a_key_whose_deletion_could_not_be_stored_is_deleted_later() -> None:
    """Found by the simulator, seed 198."""
    log = FullLog()
    rig = Rig(log=log)
    rig.publish("t/k", b"v", idempotency_key="key")
    rig.world.advance(rig.settings.idempotency_ms + 1)
    log.full = True
    with pytest.raises(StorageFull):
        rig.publish("t/k", b"lost")
    log.full = False
    rig.publish("t/k", b"stored")
    assert remembered(rig) == []
