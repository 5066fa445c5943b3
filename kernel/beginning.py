"""The first frames of an epoch: its number, what the hub was given once, and what is left out behind lost frames."""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.ids import check_shards, first_id
from gatehouse.kernel.index.leaving_out import Loss, left_out
from gatehouse.kernel.index.recovery import Recovered
from gatehouse.kernel.log.frame import Entries, StateRecord, encode_head
from gatehouse.kernel.log.resuming import ROOM_EPOCHS, ROOM_IDS
from gatehouse.kernel.parts import Parts
from gatehouse.kernel.retention.retention import frame_of
from gatehouse.kernel.state.state import Kind

ID_STEP: Final = 1 << 20  # decision 8
"""Message ids begin anew at a multiple of this at every start: none that was ever told is given again."""

ID_STEPS: Final = 2
"""So many multiples on: the last frame of a run may be lost, and have told ids across one. No frame has so many."""


def begin_epoch(parts: Parts, recovered: Recovered) -> int:
    """Write down that a new epoch begins; returns its first message id. Raises LogFailed, LogFull, ForeignShard."""
    lost = recovered.loss is not None
    parts.epoch = parts.views.epoch + (ROOM_EPOCHS if lost else 1)
    records = [StateRecord(Kind.EPOCH, b"", parts.epoch.to_bytes(4, "big")), parts.clock.begun(), *recovered.deleted]
    hub = parts.state.get(Kind.HUB, b"")
    if hub is None:
        records.append(StateRecord(Kind.HUB, b"", parts.hub))
    else:
        parts.hub = hub
    secret = parts.state.get(Kind.SECRET, b"")
    if secret is None:
        records.append(StateRecord(Kind.SECRET, b"", parts.secret))
    else:
        parts.secret = secret
    shard = parts.state.get(Kind.SHARD, b"")
    if shard is None:
        if hub is not None:
            parts.shard = 0              # a log from before ids said so
        records.append(StateRecord(Kind.SHARD, b"", parts.shard.to_bytes(2, "big")))
    else:
        parts.shard = int.from_bytes(shard, "big")
    parts.topics.begin(parts.shard)
    check_shards(recovered.shards | parts.topics.shards() | parts.watermarks.shards(), parts.shard)
    next_id = max(recovered.next_id, first_id(parts.shard)) + (ROOM_IDS if lost else 0)
    parts.first_id = (next_id // ID_STEP + ID_STEPS) * ID_STEP
    _record(parts, records)
    if recovered.loss is not None:
        _leave_out(parts, recovered.loss)
    parts.log.sync()
    if recovered.loss is not None:
        parts.index.forget_lost()
    return parts.first_id


def _leave_out(parts: Parts, loss: Loss) -> None:
    """Go on behind what the lost frames may have given out."""
    records = left_out(parts, loss)
    while chosen := frame_of(records)[0]:
        _record(parts, chosen)
        for record in chosen:
            if record.kind in (Kind.COUNTERS, Kind.WATERMARKS):       # memory knows the others from the index
                parts.views.apply(record)


def _record(parts: Parts, records: list[StateRecord]) -> None:
    head = encode_head(parts.epoch, parts.clock.append_ms, parts.first_id, 0, Entries(), records)
    position = parts.log.append(head, b"")
    parts.reader.memtable.absorb(position, parts.log.end(), 0, 0, Entries())
    parts.state.changes.absorb(position, records)
