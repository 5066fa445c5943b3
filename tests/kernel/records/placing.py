"""A producer's batch as the log has it: with its place written in."""
from __future__ import annotations

from gatehouse.kernel.records.batch import PLACE_BYTES, place_of


def placed(batch: bytes, base_offset: int, leader_epoch: int) -> bytes:
    return place_of(batch, base_offset, leader_epoch) + batch[PLACE_BYTES:]
