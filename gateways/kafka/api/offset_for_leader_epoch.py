"""OffsetForLeaderEpoch 2 to 4: where a partition ended when an epoch did, for clients that ask after a restart of the
hub whether what they have read is still so. It is: nothing that was acknowledged is taken back, so an end is never
before what was read; the answer lets them go on.
"""
from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from kafka.protocol.consumer import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

from gatehouse.gateways.kafka.api.partition_lookup import PartitionLookup
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import NONE
from gatehouse.gateways.kafka.request import Api, Request

UNKNOWN: Final = -1


class EpochLookup(PartitionLookup):
    """Ends of epochs."""

    def look_up_one(self, row: Row, partition_id: int, asked: Any) -> None:
        self.expect()
        self.request.session.guard.end_of_epoch(partition_id, asked.leader_epoch,
                                                partial(self.on_end, row, asked.leader_epoch))

    def on_end(self, row: Row, epoch: int, offset: int) -> None:
        if offset >= 0:
            row.leader_epoch, row.end_offset = epoch, offset
        self.settle()


def dispatch(request: Request) -> Iterator[None]:
    lookup = EpochLookup(request, OffsetForLeaderEpochResponse)
    for topic in request.decode(OffsetForLeaderEpochRequest).topics:
        rows = [Row(error_code=NONE, partition=partition.partition, leader_epoch=UNKNOWN, end_offset=UNKNOWN)
                for partition in topic.partitions]
        lookup.topics.append(Row(topic=topic.topic, partitions=rows))
        yield from lookup.look_up(topic.topic, [(row, partition.partition, partition)
                                                for row, partition in zip(rows, topic.partitions, strict=True)])
    lookup.settle()


OFFSET_FOR_LEADER_EPOCH = Api(key=23, name="OffsetForLeaderEpoch", first_version=2, last_version=4, first_flexible=4,
                              dispatch=dispatch, shows=True, message=OffsetForLeaderEpochRequest)
