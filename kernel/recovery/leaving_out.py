"""Going on behind what is lost: what may have been given out is never given out again.

Frames that cannot be read gave out offsets, message ids, ids of topics, partitions and producers, and one of them may
have begun an epoch. How much is not known; how many bytes they had is. So the first frames of the new epoch
leave out more than fits into those bytes:

    offsets     every partition of which no later frame says how far it got goes on RECORDS_PER_BYTE times the lost
                bytes later, MIN_OFFSETS at least where the end is lost
    the rest    as behind a backup that was put back (`kernel.recovery.resuming`)

Where the end is lost the index knows more than the log: state whose frame is gone is written to the log again, since
that alone counts when the index is built anew. A crash in between repeats all of this: it leaves out the more.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from gatehouse.kernel.groups.group_settings import decode_queue
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.log.log import Log
from gatehouse.kernel.records.batch import HEADER_BYTES, MAX_BATCH_RECORDS
from gatehouse.kernel.recovery.resuming import ROOM_COUNTERS, counters_behind, counters_record
from gatehouse.kernel.state.state import Kind, StateTable
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.state.views import heads_record
from gatehouse.kernel.state.watermarks import Watermarks

RECORDS_PER_BYTE: Final = MAX_BATCH_RECORDS // HEADER_BYTES + 1      # no batch is shorter than its header
MIN_OFFSETS: Final = 1 << 20       # behind a lost end: how much the index did not know of yet cannot be said


class Loss(NamedTuple):
    """Frames that a start could not read."""

    lost_bytes: int
    mentioned: set[int]            # partitions of which later frames say how far they got


def left_out(loss: Loss, *, log: Log, index: Index, topics: Topics, watermarks: Watermarks, state: StateTable
             ) -> Iterator[StateRecord]:  # decision 118
    """The records that leave out what may have been given out, and then state that only the index has."""
    end_is_lost = index.is_marked_lost()
    yield counters_record(counters_behind((topics.next_id, topics.next_partition_id, topics.next_producer_id),
                                          ROOM_COUNTERS))
    by = max(loss.lost_bytes * RECORDS_PER_BYTE, MIN_OFFSETS if end_is_lost else 0)
    for number, page in watermarks.pages_leaping(_partitions(topics, watermarks, state) - loss.mentioned, by).items():
        yield heads_record(number, page)
    if end_is_lost:
        segments = [*log.segments(), *log.kept_segments()]
        for record in index.homeless(segments):
            if record.kind not in (Kind.COUNTERS, Kind.WATERMARKS, Kind.EPOCH):
                yield record


def _partitions(topics: Topics, watermarks: Watermarks, state: StateTable) -> set[int]:
    """All partitions there are."""
    partition_ids = {partition_id for topic in topics.all() for partition_id in topic.partition_ids()}
    partition_ids.update(watermarks.used())
    for key, value in state.scan(Kind.QUEUE):
        partition_ids.update(decode_queue(key, value).partition_ids())
    return partition_ids
