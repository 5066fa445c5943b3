"""DescribeProducers 0: the idempotent producers that partitions know. None of them is in a transaction of Kafka's."""
from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from kafka.protocol.admin import DescribeProducersRequest, DescribeProducersResponse

from gatehouse.gateways.kafka.api.partition_lookup import PartitionLookup
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import NONE
from gatehouse.gateways.kafka.request import Api, Request
from gatehouse.kernel.message import KnownProducer

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


def dispatch(request: Request) -> Iterator[None]:
    lookup = ProducerLookup(request, DescribeProducersResponse)
    for topic in request.decode(DescribeProducersRequest).topics:
        rows = [Row(partition_index=index, error_code=NONE, error_message=None, active_producers=[])
                for index in dict.fromkeys(topic.partition_indexes)]
        lookup.topics.append(Row(name=topic.name, partitions=rows))
        asked = [(row, row.partition_index, Row(current_leader_epoch=NO_EPOCH)) for row in rows]
        yield from lookup.look_up(topic.name, asked)
    lookup.settle()


DESCRIBE_PRODUCERS = Api(key=61, name="DescribeProducers", first_version=0, last_version=0, first_flexible=0,
                         dispatch=dispatch, shows=True, message=DescribeProducersRequest)
