"""ListOffsets 1 to 10: the first and last offset of partitions, and records by their timestamps.

    -1  latest               the high watermark
    -2  earliest             the log start
    -4  earliest local       the same: nothing is tiered
    -5  latest tiered        none: nothing is tiered
    -3  largest timestamp    the first record that has it, and the timestamp; -1 and -1 in an empty partition. As exact
                             as the index: messages of other doors count with the time of their append at least
     0  and above            the first record at or after this time
"""
from __future__ import annotations

from functools import partial
from typing import Any, Final

from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import FENCED_LEADER_EPOCH, NONE, UNKNOWN_LEADER_EPOCH, UNSUPPORTED_VERSION
from gatehouse.gateways.kafka.mapping import code_of
from gatehouse.gateways.kafka.request import Api, Request
from gatehouse.gateways.kafka.topics import find_topic
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.state.topics import Topic

LATEST: Final = -1
EARLIEST: Final = -2
LARGEST_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5


class Lookup:
    """One request until every partition has its offset."""

    __slots__ = ("request", "topics", "pending", "epoch")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.topics: list[Row] = []
        self.pending = 1                     # partitions being looked up; one more while the request is gone through
        self.epoch = request.session.kernel.epoch

    def look_up(self, asked: Any) -> None:
        """A topic's partitions."""
        rows = [Row(partition_index=partition.partition_index, error_code=NONE, old_style_offsets=[], timestamp=-1,
                    offset=-1, leader_epoch=-1) for partition in asked.partitions]
        self.topics.append(Row(name=asked.name, partitions=rows))
        try:
            topic = find_topic(self.request.session, asked.name, Operation.CONSUME)
        except (KernelError, Denied) as refusal:
            for row in rows:
                row.error_code = code_of(refusal)
            return
        for row, partition in zip(rows, asked.partitions, strict=True):
            try:
                self.look_up_one(row, topic, partition)
            except KernelError as refusal:
                row.error_code = code_of(refusal)

    def look_up_one(self, row: Row, topic: Topic, asked: Any) -> None:
        guard = self.request.session.guard
        partition_id = topic.partition_id(asked.partition_index)
        if asked.current_leader_epoch >= 0 and asked.current_leader_epoch != self.epoch:
            row.error_code = FENCED_LEADER_EPOCH if asked.current_leader_epoch < self.epoch else UNKNOWN_LEADER_EPOCH
        elif asked.timestamp >= 0:
            self.pending += 1
            guard.offset_for_time(partition_id, asked.timestamp, partial(self.on_looked_up, row))
        elif asked.timestamp == LARGEST_TIMESTAMP:
            self.pending += 1
            guard.offset_of_largest_timestamp(partition_id, partial(self.on_looked_up, row))
        elif asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
            row.offset, row.leader_epoch = guard.bounds(partition_id)[0], self.epoch
        elif asked.timestamp == LATEST:
            row.offset, row.leader_epoch = guard.bounds(partition_id)[1], self.epoch
        elif asked.timestamp != LATEST_TIERED:
            row.error_code = UNSUPPORTED_VERSION

    def on_looked_up(self, row: Row, offset: int | None, timestamp_ms: int) -> None:
        """A record by its timestamp; None: there is no such record."""
        if offset is not None:
            row.offset, row.timestamp, row.leader_epoch = offset, timestamp_ms, self.epoch
        self.settle()

    def settle(self) -> None:
        self.pending -= 1
        if not self.pending:
            self.request.answer(ListOffsetsResponse, throttle_time_ms=0, topics=self.topics)


def dispatch(request: Request) -> None:
    lookup = Lookup(request)
    for topic in request.decode(ListOffsetsRequest).topics:
        lookup.look_up(topic)
    lookup.settle()


LIST_OFFSETS = Api(key=2, name="ListOffsets", first_version=1, last_version=10, first_flexible=6, dispatch=dispatch)
