"""DescribeLogDirs 1 to 4, AlterReplicaLogDirs 1 to 2: the one log, and how much of it each partition has, for who may
administer the hub. All partitions are where they must be: to move one there does nothing, elsewhere is nothing."""
from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from kafka.protocol.admin import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    LOG_DIR_NOT_FOUND,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from gatehouse.gateways.kafka.request import Api, Request

LOG: Final = "log"               # all topics share one; where it lies on the disk is nobody's business
UNKNOWN: Final = -1


# ---- DescribeLogDirs

def describe(request: Request) -> None:
    asked, session = request.decode(DescribeLogDirsRequest), request.session
    wanted = None if asked.topics is None else {topic.topic: set(topic.partitions) for topic in asked.topics}
    topics = [topic for topic in session.guard.topics() if wanted is None or topic.name in wanted]

    def on_sizes(sizes: list[int]) -> None:
        left = iter(sizes)
        rows = []
        for topic in topics:
            of_topic = list(islice(left, topic.partitions))
            rows.append(Row(name=topic.name, partitions=[
                _partition(index, size) for index, size in enumerate(of_topic)
                if wanted is None or index in wanted[topic.name]]))
        _answer(request, rows, NONE)

    try:
        session.guard.sizes(topics, on_sizes)
    except Denied:
        _answer(request, None, CLUSTER_AUTHORIZATION_FAILED)


def _partition(index: int, size_bytes: int) -> Row:
    return Row(partition_index=index, partition_size=size_bytes, offset_lag=0, is_future_key=False)


def _answer(request: Request, topics: list[Row] | None, error: int) -> None:
    results = [] if topics is None else [Row(error_code=NONE, log_dir=LOG, topics=topics, total_bytes=UNKNOWN,
                                             usable_bytes=UNKNOWN, is_cordoned=False)]
    request.answer(DescribeLogDirsResponse, throttle_time_ms=0, error_code=error, results=results)


# ---- AlterReplicaLogDirs

def alter(request: Request) -> Iterator[None]:
    asked, session = request.decode(AlterReplicaLogDirsRequest), request.session
    may = session.admission.may_hub(session.principal, Operation.ADMINISTER)
    results: dict[str, list[Row]] = {}
    for directory in asked.dirs:
        for topic in directory.topics:
            there = session.kernel.topic(topic.name, session.principal.tenant) if may else None
            for index in topic.partitions:
                if not may:
                    error = CLUSTER_AUTHORIZATION_FAILED
                elif directory.path != LOG:
                    error = LOG_DIR_NOT_FOUND
                else:
                    is_known = there is not None and 0 <= index < there.partitions
                    error = NONE if is_known else UNKNOWN_TOPIC_OR_PARTITION
                results.setdefault(topic.name, []).append(Row(partition_index=index, error_code=error))
                yield
    request.answer(AlterReplicaLogDirsResponse, throttle_time_ms=0, results=[
        Row(topic_name=name, partitions=rows) for name, rows in results.items()])


ALTER_LOG_DIRS = Api(key=34, name="AlterReplicaLogDirs", first_version=1, last_version=2, first_flexible=2,
                     dispatch=alter, message=AlterReplicaLogDirsRequest)
DESCRIBE_LOG_DIRS = Api(key=35, name="DescribeLogDirs", first_version=1, last_version=4, first_flexible=2,
                        dispatch=describe, shows=True, message=DescribeLogDirsRequest)
