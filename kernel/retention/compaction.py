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

from gatehouse.kernel.clock import Ages
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.message import Message
from gatehouse.kernel.parts import Parts
from gatehouse.kernel.retention.holders import DELETES, Latest, decode_latest, encode_latest, latest_key, partition_of
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.write.batch_builder import Run

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
    it deletes its key and has said so for long enough."""
    topic_partition = topics.of_partition(partition_of(key))
    if topic_partition is None or not topic_partition[0].settings.compact:
        return True
    keep_ms = topic_partition[0].settings.delete_retention_ms
    too_old_ms = ages.appended_by(DELETE_RETENTION_MS if keep_ms is None else keep_ms)
    return bool(latest.flags & DELETES) and latest.append_ms < too_old_ms and latest.offset < next_offset - 1


class Compaction:
    """Forgets what is outlived. `delete` appends deletions, see `Appending.delete_state`."""

    def __init__(self, parts: Parts, delete: Callable[[list[StateRecord]], None]) -> None:
        self._parts = parts
        self._delete = delete
        self._stopped = False

    def start(self) -> None:
        loop = self._parts.loop
        loop.call_at(loop.now_ms() + LOOK_MS, self._look)

    def stop(self) -> None:
        self._stopped = True

    def _look(self) -> None:
        if not self._stopped:
            ages = self._parts.clock.ages()
            self._parts.checkpoint_worker.submit(lambda: self._outlived(ages), self._found)
            self.start()

    def _outlived(self, ages: Ages) -> list[tuple[bytes, Latest]]:
        """On the checkpoint's thread: keys that could go as of the last checkpoint."""
        parts = self._parts
        records: list[tuple[bytes, Latest]] = []
        for key, value in parts.index.scan_state(Kind.LATEST):
            latest = decode_latest(value)
            if outlived(parts.topics, key, latest, parts.watermarks.next_offset(partition_of(key)), ages):
                records.append((key, latest))
                if len(records) == KEYS_PER_LOOK:
                    break
        return records

    def _found(self, records: list[tuple[bytes, Latest]] | None, error: BaseException | None) -> None:
        if records is None:
            self._parts.fatal(f"the index cannot be read: {error}")
            return
        # What was written anew since the checkpoint stays.
        gone = [key for key, _ in records if self._parts.state.recent(Kind.LATEST, key) is None]
        self._delete([StateRecord(Kind.LATEST, key, None) for key in gone])
