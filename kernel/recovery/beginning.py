"""The first frames of an epoch: its number, what the hub was given once, and what is left out behind lost frames."""
from __future__ import annotations

from typing import Final

from gatehouse.kernel.identity import Identity
from gatehouse.kernel.ids import check_shards, first_id
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.index.memtable import Memtables
from gatehouse.kernel.log.frame import Entries, StateRecord, encode_head
from gatehouse.kernel.log.log import Log
from gatehouse.kernel.recovery.leaving_out import Loss, left_out
from gatehouse.kernel.recovery.recovery import Recovered
from gatehouse.kernel.recovery.resuming import ROOM_EPOCHS, ROOM_IDS
from gatehouse.kernel.retention.retention import frame_of
from gatehouse.kernel.state.clock import Clock
from gatehouse.kernel.state.state import Kind, StateTable
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.state.views import Views, decode_position, encode_position, epoch_key
from gatehouse.kernel.state.watermarks import Watermarks

ID_STEP: Final = 1 << 20  # decision 8
"""Message ids begin anew at a multiple of this at every start: none that was ever told is given again."""

ID_STEPS: Final = 2
"""So many multiples on: the last frame of a run may be lost, and have told ids across one. No frame has so many."""


class Beginning:
    """Writes them, behind what recovery has found."""

    def __init__(self, *, log: Log, index: Index, memtables: Memtables, topics: Topics, watermarks: Watermarks,
                 state: StateTable, views: Views, clock: Clock, identity: Identity) -> None:
        self._log = log
        self._index = index
        self._memtables = memtables
        self._topics = topics
        self._watermarks = watermarks
        self._state = state
        self._views = views
        self._clock = clock
        self._identity = identity

    def begin(self, recovered: Recovered) -> None:
        """Write down that a new epoch begins; the identity knows of it. Raises LogFailed, LogFull, ForeignShard."""
        identity, loss = self._identity, recovered.loss
        epoch = self._views.epoch + (ROOM_EPOCHS if loss is not None else 1)
        records = [StateRecord(Kind.EPOCH, b"", epoch.to_bytes(4, "big")), self._clock.begun(), *recovered.deleted]
        records += self._begun(epoch)
        is_new = self._state.get(Kind.HUB, b"") is None
        hub = self._given_once(Kind.HUB, identity.hub, records)
        secret = self._given_once(Kind.SECRET, identity.secret, records)
        new_shard = identity.shard if is_new else 0      # a log from before ids said so is that of shard 0
        shard = int.from_bytes(self._given_once(Kind.SHARD, new_shard.to_bytes(2, "big"), records), "big")
        self._topics.begin(shard)
        check_shards(recovered.shards | self._topics.shards() | self._watermarks.shards(), shard)
        next_id = max(recovered.next_id, first_id(shard)) + (ROOM_IDS if loss is not None else 0)
        identity.begin(hub=hub, secret=secret, shard=shard, epoch=epoch,
                       first_id=(next_id // ID_STEP + ID_STEPS) * ID_STEP)
        self._record(records)
        if loss is not None:
            self._leave_out(loss)
        self._log.sync()
        if loss is not None:
            self._index.forget_lost()

    # decision 179
    def _begun(self, epoch: int) -> list[StateRecord]:
        """Where in the log this epoch begins. What the log has nothing of any more is forgotten."""
        first = self._log.segments()[0].base if self._log.segments() else 0
        positions = {key: decode_position(value) for key, value in self._state.scan(Kind.BEGUN)}
        older = sorted(key for key, position in positions.items() if position < first)
        return [*[StateRecord(Kind.BEGUN, key, None) for key in older[:-1]],
                StateRecord(Kind.BEGUN, epoch_key(epoch), encode_position(self._log.end()))]

    def _given_once(self, kind: Kind, new: bytes, records: list[StateRecord]) -> bytes:
        """What the log says, or what it says from this frame on."""
        stored = self._state.get(kind, b"")
        if stored is None:
            records.append(StateRecord(kind, b"", new))
            return new
        return stored

    def _leave_out(self, loss: Loss) -> None:
        """Go on behind what the lost frames may have given out."""
        records = left_out(loss, log=self._log, index=self._index, topics=self._topics, watermarks=self._watermarks,
                           state=self._state)
        while chosen := frame_of(records)[0]:
            self._record(chosen)
            for record in chosen:
                if record.kind in (Kind.COUNTERS, Kind.WATERMARKS):       # memory knows the others from the index
                    self._views.apply(record)

    def _record(self, records: list[StateRecord]) -> None:
        identity = self._identity
        head = encode_head(identity.epoch, self._clock.append_ms, identity.first_id, 0, Entries(), records)
        position = self._log.append(head, b"")
        self._memtables.absorb(position, self._log.end(), 0, b"", Entries())
        self._state.absorb(position, records)
