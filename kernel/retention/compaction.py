"""Compacted topics: the newest record of every key outlives retention.

The state record LATEST of a key stands in the frame of the record itself. So when retention comes to a segment, those
of its LATEST records that are still the newest of their key say which of its records must be kept; the others go with
it. Until then a partition shows superseded records too, as Kafka's does before its cleaner comes by.

A key's deletion is kept for `delete_retention_ms`, so that readers learn of it; then it goes as well. A clock decides
that, so it is appended as state. The last record of a partition stays: a reader must find something at its end.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gatehouse.kernel.index.index import Index
from gatehouse.kernel.index.kept import DELETES, Latest, decode_latest, encode_latest, latest_key, partition_of
from gatehouse.kernel.message import Message, StateRecord
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.state.state import Ages, Clock, Kind, StateTable, Watermarks
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.pending_frame import PendingFrame, Run

DELETE_RETENTION_MS: Final = 24 * 3_600_000    # Kafka's delete.retention.ms

LOOK_MS: Final = 600_000
KEYS_PER_LOOK: Final = 10_000                  # bounds one frame; the rest goes at the next look

def latest_records(noted: list[tuple[Message, Run, int]], append_ms: int) -> list[StateRecord]:  # decision 16
    """The newest records of their keys in a sealed frame."""
    newest: dict[bytes, bytes] = {}
    for message, run, at in noted:
        placement, value = message[0], message[1]
        if placement.compact:
            assert 0 <= at < run.count and run.first_offset >= 0, "it is sealed: its offset is known"
            newest[latest_key(run.partition_id, placement.key)] = encode_latest(
                Latest(run.first_offset + at, append_ms, DELETES if value is None else 0))
    return [StateRecord(Kind.LATEST, key, value) for key, value in newest.items()]


def outlived(topics: Topics, key: bytes, latest: Latest, next_offset: int, ages: Ages) -> bool:
    """Whether the newest record of a key need not be kept any longer: its topic is gone or not compacted any more, or
    keeps nothing for so long; or it deletes its key and has said so for long enough."""
    topic_partition = topics.of_partition(partition_of(key))
    if topic_partition is None or not topic_partition[0].settings.compact:
        return True
    settings = topic_partition[0].settings
    if settings.retention_ms is not None and latest.append_ms < ages.appended_by(settings.retention_ms):
        return True
    keep_ms = settings.delete_retention_ms
    too_old_ms = ages.appended_by(DELETE_RETENTION_MS if keep_ms is None else keep_ms)
    return bool(latest.flags & DELETES) and latest.append_ms < too_old_ms and latest.offset < next_offset - 1


class Compaction:
    """Takes part in frames with records of compacted topics, see `kernel.write.pending_frame.Participant`, and forgets
    what is outlived. `worker` reads the index."""

    def __init__(self, *, loop: Loop, worker: Worker, clock: Clock, index: Index, state: StateTable, topics: Topics,
                 watermarks: Watermarks, committer: Committer, fatal: Callable[[str], None]) -> None:
        self._loop = loop
        self._worker = worker
        self._clock = clock
        self._index = index
        self._state = state
        self._topics = topics
        self._watermarks = watermarks
        self._committer = committer
        self._fatal = fatal
        self._stopped = False

    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """Where the newest record of each key is."""
        frame.state += latest_records(frame.builder.noted, frame.builder.now_ms)
        return 0

    def applied(self, frame: PendingFrame) -> None:
        """These records are state like any other."""

    def failed(self, frames: list[PendingFrame]) -> None:
        """Nothing was changed beforehand."""

    def start(self) -> None:
        self._loop.call_at(self._loop.now_ms() + LOOK_MS, self._look)

    def stop(self) -> None:
        self._stopped = True

    def _look(self) -> None:
        if not self._stopped:
            ages = self._clock.ages()
            self._worker.submit(lambda: self._outlived(ages), self._found)
            self.start()

    def _outlived(self, ages: Ages) -> list[tuple[bytes, Latest]]:
        """On the checkpoint's thread: keys that could go as of the last checkpoint."""
        records: list[tuple[bytes, Latest]] = []
        for key, value in self._index.scan_state(Kind.LATEST):
            latest = decode_latest(value)
            if outlived(self._topics, key, latest, self._watermarks.next_offset(partition_of(key)), ages):
                records.append((key, latest))
                if len(records) == KEYS_PER_LOOK:
                    break
        return records

    def _found(self, records: list[tuple[bytes, Latest]] | None, error: BaseException | None) -> None:
        if records is None:
            self._fatal(f"the index cannot be read: {error}")
            return
        # What was written anew since the checkpoint stays.
        gone = [key for key, _ in records if self._state.recent(Kind.LATEST, key) is None]
        self._committer.delete_state([StateRecord(Kind.LATEST, key, None) for key in gone])
