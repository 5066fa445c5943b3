"""OffsetForLeaderEpoch 2 to 4: where a partition ended when an epoch did, for clients that ask after a restart of the
hub whether what they have read is still so. It is: nothing that was acknowledged is taken back, so an end is never
before what was read; the answer lets them go on.
"""
from __future__ import annotations

from functools import partial
from typing import Any, Final

from kafka.protocol.consumer import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import FENCED_LEADER_EPOCH, NONE, UNKNOWN_LEADER_EPOCH
from gatehouse.gateways.kafka.mapping import code_of
from gatehouse.gateways.kafka.request import Api, Request
from gatehouse.gateways.kafka.topics import find_topic
from gatehouse.kernel.errors import KernelError

UNKNOWN: Final = -1


class EpochLookup:
    """One request until every partition has its end."""

    __slots__ = ("request", "topics", "pending", "epoch")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.topics: list[Row] = []
        self.pending = 1                     # partitions being looked up; one more while the request is gone through
        self.epoch = request.session.kernel.epoch

    def look_up(self, asked: Any) -> None:
        """A topic's partitions; what is wrong with one of them stands in its row."""
        rows = [Row(error_code=NONE, partition=partition.partition, leader_epoch=UNKNOWN, end_offset=UNKNOWN)
                for partition in asked.partitions]
        self.topics.append(Row(topic=asked.topic, partitions=rows))
        for row, partition in zip(rows, asked.partitions, strict=True):
            try:
                self.look_up_one(row, asked.topic, partition)
            except (KernelError, Denied) as refusal:
                row.error_code = code_of(refusal)

    def look_up_one(self, row: Row, topic: str, asked: Any) -> None:
        """Raises Denied, UnknownTopic, UnknownPartition."""
        session = self.request.session
        partition_id = find_topic(session, topic, Operation.CONSUME).partition_id(asked.partition)
        current = asked.current_leader_epoch
        if current >= 0 and current != self.epoch:
            row.error_code = FENCED_LEADER_EPOCH if current < self.epoch else UNKNOWN_LEADER_EPOCH
            return
        self.pending += 1
        session.guard.end_of_epoch(partition_id, asked.leader_epoch, partial(self.on_end, row, asked.leader_epoch))

    def on_end(self, row: Row, epoch: int, offset: int) -> None:
        if offset >= 0:
            row.leader_epoch, row.end_offset = epoch, offset
        self.settle()

    def settle(self) -> None:
        self.pending -= 1
        if not self.pending:
            self.request.answer(OffsetForLeaderEpochResponse, throttle_time_ms=0, topics=self.topics)


def dispatch(request: Request) -> None:
    lookup = EpochLookup(request)
    for topic in request.decode(OffsetForLeaderEpochRequest).topics:
        lookup.look_up(topic)
    lookup.settle()


OFFSET_FOR_LEADER_EPOCH = Api(key=23, name="OffsetForLeaderEpoch", first_version=2, last_version=4, first_flexible=4,
                              dispatch=dispatch)
