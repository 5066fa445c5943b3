"""What requests ask about partitions one by one, each answered when every partition has its row.

OffsetForLeaderEpoch 2 to 4: where a partition ended when an epoch did, for clients that ask after a restart of the hub
whether what they have read is still so. It is: nothing that was acknowledged is taken back, so an end is never before
what was read; the answer lets them go on.

DescribeProducers 0: the idempotent producers that partitions know. None is shown in a transaction: what that holds is
in no partition.

ListOffsets 1 to 11: the first and last offset of partitions, and records by their timestamps.

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

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from kafka.protocol.admin import DescribeProducersRequest, DescribeProducersResponse
from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

from gatehouse.gateways.admission.admission import Denied
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import FENCED_LEADER_EPOCH, NONE, UNKNOWN_LEADER_EPOCH, UNSUPPORTED_VERSION
from gatehouse.gateways.kafka.mapping import code_of
from gatehouse.gateways.kafka.request import Api, Request, find_topic
from gatehouse.kernel.errors import KernelError
from gatehouse.kernel.message import KnownProducer


class PartitionLookup:
    """One request until every partition has its answer. `response` is the schema of that."""

    def __init__(self, request: Request, response: Any) -> None:
        self.request = request
        self.topics: list[Row] = []
        self.epoch = request.session.epoch
        self._response = response
        self._pending = 1                    # partitions being looked up; one more while the request is gone through

    def look_up(self, topic_name: str, asked: Sequence[tuple[Row, int, Any]]) -> Iterator[None]:
        """The partitions of a topic: (row, number, what is asked). What is wrong with one stands in its row."""
        yield
        session = self.request.session
        try:
            topic, version = find_topic(session, topic_name, Operation.CONSUME), session.guard.version
        except (KernelError, Denied) as refusal:
            for row, _, _ in asked:
                row.error_code = code_of(refusal)
            return
        for row, number, partition in asked:
            pending = self._pending
            try:
                if session.guard.version is not version:           # rights have changed since the last step
                    topic, version = find_topic(session, topic_name, Operation.CONSUME), session.guard.version
                partition_id = topic.partition_id(number)
                current = partition.current_leader_epoch
                if current >= 0 and current != self.epoch:
                    row.error_code = FENCED_LEADER_EPOCH if current < self.epoch else UNKNOWN_LEADER_EPOCH
                else:
                    self.look_up_one(row, partition_id, partition)
            except (KernelError, Denied) as refusal:
                row.error_code, self._pending = code_of(refusal), pending
            yield

    def look_up_one(self, row: Row, partition_id: int, asked: Any) -> None:
        """Fill a row, now or after `expect`, which a `settle` ends."""
        raise NotImplementedError

    def expect(self) -> None:
        """One row is filled later."""
        self._pending += 1

    def settle(self) -> None:
        """That row is filled, or all of the request was gone through."""
        self._pending -= 1
        if not self._pending:
            self.request.answer(self._response, throttle_time_ms=0, topics=self.topics)


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


def end_epochs(request: Request) -> Iterator[None]:
    lookup = EpochLookup(request, OffsetForLeaderEpochResponse)
    for topic in request.decode(OffsetForLeaderEpochRequest).topics:
        rows = [Row(error_code=NONE, partition=partition.partition, leader_epoch=UNKNOWN, end_offset=UNKNOWN)
                for partition in topic.partitions]
        lookup.topics.append(Row(topic=topic.topic, partitions=rows))
        yield from lookup.look_up(topic.topic, [(row, partition.partition, partition)
                                                for row, partition in zip(rows, topic.partitions, strict=True)])
    lookup.settle()


OFFSET_FOR_LEADER_EPOCH = Api(key=23, name="OffsetForLeaderEpoch", first_version=2, last_version=4, first_flexible=4,
                              dispatch=end_epochs, shows=True, message=OffsetForLeaderEpochRequest)


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


def list_offsets(request: Request) -> Iterator[None]:
    lookup = OffsetLookup(request, ListOffsetsResponse)
    for topic in request.decode(ListOffsetsRequest).topics:
        rows = [Row(partition_index=partition.partition_index, error_code=NONE, old_style_offsets=[], timestamp=-1,
                    offset=-1, leader_epoch=-1) for partition in topic.partitions]
        lookup.topics.append(Row(name=topic.name, partitions=rows))
        yield from lookup.look_up(topic.name, [(row, partition.partition_index, partition)
                                               for row, partition in zip(rows, topic.partitions, strict=True)])
    lookup.settle()


LIST_OFFSETS = Api(key=2, name="ListOffsets", first_version=1, last_version=11, first_flexible=6, dispatch=list_offsets,
                   shows=True, message=ListOffsetsRequest)


MAX_PRODUCERS: Final = 10_000    # of one answer
NO_EPOCH: Final = -1             # that a client believes in, or of a coordinator of transactions
NO_OFFSET: Final = -1


class ProducerLookup(PartitionLookup):
    """Producers of partitions."""

    left = MAX_PRODUCERS

    def look_up_one(self, row: Row, partition_id: int, asked: Any) -> None:
        self.expect()
        self.request.session.guard.producers_of(partition_id, partial(self.on_found, row))

    def on_found(self, row: Row, producers: list[KnownProducer]) -> None:
        services = self.request.session.services
        row.active_producers = [
            Row(producer_id=producer.producer_id, producer_epoch=producer.epoch, last_sequence=producer.last_sequence,
                last_timestamp=services.wall_of(producer.append_ms), coordinator_epoch=NO_EPOCH,
                current_txn_start_offset=NO_OFFSET) for producer in producers[:self.left]]
        self.left -= len(row.active_producers)
        self.settle()


def describe_producers(request: Request) -> Iterator[None]:
    lookup = ProducerLookup(request, DescribeProducersResponse)
    for topic in request.decode(DescribeProducersRequest).topics:
        rows = [Row(partition_index=index, error_code=NONE, error_message=None, active_producers=[])
                for index in dict.fromkeys(topic.partition_indexes)]
        lookup.topics.append(Row(name=topic.name, partitions=rows))
        asked = [(row, row.partition_index, Row(current_leader_epoch=NO_EPOCH)) for row in rows]
        yield from lookup.look_up(topic.name, asked)
    lookup.settle()


DESCRIBE_PRODUCERS = Api(key=61, name="DescribeProducers", first_version=0, last_version=0, first_flexible=0,
                         dispatch=describe_producers, shows=True, message=DescribeProducersRequest)
