"""The first frames of an epoch: its number, what the hub was given once, and what is left out behind lost frames."""
from __future__ import annotations

from typing import Final

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
    """Write down that a new epoch begins; returns its first message id. Raises LogFailed, LogFull."""
    lost = recovered.loss is not None
    parts.epoch = parts.views.epoch + (ROOM_EPOCHS if lost else 1)
    parts.first_id = ((recovered.next_id + (ROOM_IDS if lost else 0)) // ID_STEP + ID_STEPS) * ID_STEP
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
