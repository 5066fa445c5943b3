"""ListOffsets 1 to 11: the first and last offset of partitions, and records by their timestamps.

    -1  latest               the high watermark
    -2  earliest             the log start
    -4  earliest local       the same: nothing is tiered
    -5  latest tiered        none: nothing is tiered
    -6  earliest to tier     none, likewise
    -3  largest timestamp    the first record that has it, and the timestamp; -1 and -1 in an empty partition. As exact
                             as the index: messages of other doors count with the time of their append at least
     0  and above            the first record at or after this time

Those below -2 came with later versions: in an older one they are no times, and answered with UNSUPPORTED_VERSION.
"""
from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from gatehouse.gateways.kafka.api.partition_lookup import PartitionLookup
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import NONE, UNSUPPORTED_VERSION
from gatehouse.gateways.kafka.request import Api, Request

LATEST: Final = -1
EARLIEST: Final = -2
LARGEST_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_TO_TIER: Final = -6

FIRST_VERSIONS: Final = {LATEST: 1, EARLIEST: 1, LARGEST_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9,
                         EARLIEST_TO_TIER: 11}
"""The version that each came with."""

NEVER: Final = 1 << 15               # a version that is never reached


class OffsetLookup(PartitionLookup):
    """Offsets by time, and where partitions begin and end."""

    def look_up_one(self, row: Row, partition_id: int, asked: Any) -> None:
        guard = self.request.session.guard
        if asked.timestamp >= 0:
            self.expect()
            guard.offset_for_time(partition_id, asked.timestamp, partial(self.on_looked_up, row))
        elif self.request.version < FIRST_VERSIONS.get(asked.timestamp, NEVER):
            row.error_code = UNSUPPORTED_VERSION
        elif asked.timestamp == LARGEST_TIMESTAMP:
            self.expect()
            guard.offset_of_largest_timestamp(partition_id, partial(self.on_looked_up, row))
        elif asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
            row.offset, row.leader_epoch = guard.bounds(partition_id)[0], self.epoch
        elif asked.timestamp == LATEST:
            row.offset, row.leader_epoch = guard.bounds(partition_id)[1], self.epoch

    def on_looked_up(self, row: Row, offset: int | None, timestamp_ms: int) -> None:
        """A record by its timestamp; None: there is no such record."""
        if offset is not None:
            row.offset, row.timestamp, row.leader_epoch = offset, timestamp_ms, self.epoch
        self.settle()


def dispatch(request: Request) -> Iterator[None]:
    lookup = OffsetLookup(request, ListOffsetsResponse)
    for topic in request.decode(ListOffsetsRequest).topics:
        rows = [Row(partition_index=partition.partition_index, error_code=NONE, old_style_offsets=[], timestamp=-1,
                    offset=-1, leader_epoch=-1) for partition in topic.partitions]
        lookup.topics.append(Row(name=topic.name, partitions=rows))
        yield from lookup.look_up(topic.name, [(row, partition.partition_index, partition)
                                               for row, partition in zip(rows, topic.partitions, strict=True)])
    lookup.settle()


LIST_OFFSETS = Api(key=2, name="ListOffsets", first_version=1, last_version=11, first_flexible=6, dispatch=dispatch,
                   shows=True, message=ListOffsetsRequest)
