"""DescribeCluster 0 to 2, DescribeTopicPartitions 0, DescribeQuorum 0 to 2, ElectLeaders 0 to 2,
AlterPartitionReassignments 0 to 1, ListPartitionReassignments 0, DescribeLogDirs 1 to 4, AlterReplicaLogDirs 1 to 2:
what tools ask about many nodes and their disks, answered as the one node with one log that there is.

Every partition is led by node 1, which is its only replica: no election is needed, and a reassignment to anything else
is refused. So is the quorum of Kafka's controllers, whose offsets count the starts of the hub. How much of the log each
partition has is shown to who may administer the hub. All partitions are where they must be: to move one there does
nothing, elsewhere is nothing.
"""
from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.admission.own_topics import is_for_administrators
from gatehouse.gateways.kafka.acl_mapping import NOT_ASKED, as_bits, cluster_operations, topic_operations
from gatehouse.gateways.kafka.api.metadata import NO_NODES, NO_UUID, NODE_ID, NODES
from gatehouse.gateways.kafka.api.parts import REFUSALS, refuse
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    ELECTION_NOT_NEEDED,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_TOPIC,
    LOG_DIR_NOT_FOUND,
    MISMATCHED_ENDPOINT_TYPE,
    NO_REASSIGNMENT_IN_PROGRESS,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_ENDPOINT_TYPE,
)
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.gateways.kafka.request import Api, Request, find_topic
from gatehouse.kernel.addresses.address import is_topic_name

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession
    from gatehouse.kernel.state.topics import Topic

BROKERS: Final = 1               # endpoint types
CONTROLLERS: Final = 2
QUORUM: Final = ("__cluster_metadata", 0)
UNKNOWN: Final = -1
MAX_PARTITIONS: Final = 2_000    # of one answer, as Kafka's `max.request.partition.size.limit`


def describe_cluster(request: Request) -> None:
    asked, session = request.decode(DescribeClusterRequest), request.session
    error, text = NONE, None
    if asked.endpoint_type == CONTROLLERS:
        error, text = MISMATCHED_ENDPOINT_TYPE, "this is a broker's address"
    elif asked.endpoint_type != BROKERS:
        error, text = UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {asked.endpoint_type}"
    host, port = session.advertised()
    brokers = [Row(broker_id=NODE_ID, host=host, port=port, rack=None, is_fenced=False)]
    operations = cluster_operations(session) if asked.include_cluster_authorized_operations else NOT_ASKED
    request.answer(DescribeClusterResponse, throttle_time_ms=0, error_code=error, error_message=text,
                   endpoint_type=BROKERS, cluster_id=session.services.hub_name, controller_id=NODE_ID,
                   brokers=brokers if error == NONE else [], authorized_operations=operations)


def describe_topic_partitions(request: Request) -> Iterator[None]:
    """Topics in the order of their names, from the cursor on, as many partitions as one answer may have."""
    asked, session = request.decode(DescribeTopicPartitionsRequest), request.session
    names = sorted({topic.name for topic in asked.topics}) \
        or [topic.name for topic in session.guard.topics.all()]
    first = 0
    if asked.cursor is not None:
        names = [name for name in names if name >= asked.cursor.topic_name]
        first = max(0, asked.cursor.partition_index) if names[:1] == [asked.cursor.topic_name] else 0
    left = max(1, min(asked.response_partition_limit, MAX_PARTITIONS))
    rows: list[Row] = []
    cursor = None
    for name in names:
        if left <= 0:
            cursor = Row(topic_name=name, partition_index=0)
            break
        row, rest = _described(session, name, first, left)
        yield
        rows.append(row)
        left -= max(1, len(row.partitions))
        first = 0
        if rest is not None:
            cursor = Row(topic_name=name, partition_index=rest)
            break
    request.answer(DescribeTopicPartitionsResponse, throttle_time_ms=0, topics=rows, next_cursor=cursor)


def _described(session: KafkaSession, name: str, first: int, most: int) -> tuple[Row, int | None]:
    """A topic from one of its partitions on, and the first partition that did not go in; None: all of them did."""
    row = Row(error_code=NONE, name=name, topic_id=NO_UUID, is_internal=False, partitions=[],
              topic_authorized_operations=as_bits(()))
    topic: Topic | None = None
    if not is_topic_name(name):
        row.error_code = INVALID_TOPIC
    elif not session.guard.sees_topic(name):
        row.error_code = TOPIC_AUTHORIZATION_FAILED
    else:
        topic = session.kernel.topic(name, session.principal.tenant)
        if topic is None:
            row.error_code = UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        return row, None
    stop = min(topic.partitions, first + most)
    epoch = session.epoch
    row.topic_id = uuid.UUID(bytes=topic.uuid)
    row.is_internal = is_for_administrators(topic.name, topic.tenant)
    row.topic_authorized_operations = as_bits(topic_operations(session, name))
    row.partitions = [Row(error_code=NONE, partition_index=index, leader_id=NODE_ID, leader_epoch=epoch,
                          replica_nodes=NODES, isr_nodes=NODES, eligible_leader_replicas=NO_NODES,
                          last_known_elr=NO_NODES, offline_replicas=NO_NODES) for index in range(first, stop)]
    return row, stop if stop < topic.partitions else None


def describe_quorum(request: Request) -> Iterator[None]:
    asked, session = request.decode(DescribeQuorumRequest), request.session
    if not session.admission.may_hub(session.principal, Operation.ADMINISTER):
        request.answer(DescribeQuorumResponse, error_code=CLUSTER_AUTHORIZATION_FAILED,
                       error_message="Cluster authorization failed.", topics=[], nodes=[])
        return
    host, port = session.advertised()
    end = session.epoch
    only = Row(replica_id=NODE_ID, replica_directory_id=NO_UUID, log_end_offset=end, last_fetch_timestamp=UNKNOWN,
               last_caught_up_timestamp=session.services.now_ms())
    rows = []
    for topic in asked.topics:
        partitions: list[Row] = []
        rows.append(Row(topic_name=topic.topic_name, partitions=partitions))
        yield
        for partition in topic.partitions:
            row = Row(partition_index=partition.partition_index, error_code=NONE, error_message=None,
                      leader_id=NODE_ID, leader_epoch=session.epoch, high_watermark=end, current_voters=[only],
                      observers=[])
            partitions.append(row)
            if (topic.topic_name, row.partition_index) != QUORUM:
                row.error_code, row.error_message = UNKNOWN_TOPIC_OR_PARTITION, "No quorum leads this partition."
                row.leader_id = row.leader_epoch = row.high_watermark = UNKNOWN
                row.current_voters = []
            yield
    node = Row(node_id=NODE_ID, listeners=[Row(name="CONTROLLER", host=host, port=port)])
    request.answer(DescribeQuorumResponse, error_code=NONE, error_message=None, topics=rows, nodes=[node])


def elect_leaders(request: Request) -> Iterator[None]:
    asked, session = request.decode(ElectLeadersRequest), request.session
    if not session.admission.may_hub(session.principal, Operation.ADMINISTER):
        request.answer(ElectLeadersResponse, throttle_time_ms=0, error_code=CLUSTER_AUTHORIZATION_FAILED,
                       replica_election_results=[])
        return
    rows = []
    for topic in asked.topic_partitions or ():             # of all partitions none needs an election: none is named
        partitions = [Row(partition_id=index, error_code=NONE, error_message=None) for index in topic.partitions]
        rows.append(Row(topic=topic.topic, partition_result=partitions))
        yield
        there = session.kernel.topic(topic.topic, session.principal.tenant)
        for row in partitions:
            if there is None or not 0 <= row.partition_id < there.partitions:
                row.error_code, row.error_message = UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
            else:
                row.error_code = ELECTION_NOT_NEEDED
                row.error_message = "Leader election not needed for topic partition."
            yield
    request.answer(ElectLeadersResponse, throttle_time_ms=0, error_code=NONE, replica_election_results=rows)


def alter_reassignments(request: Request) -> Iterator[None]:
    asked, session = request.decode(AlterPartitionReassignmentsRequest), request.session
    error, text = NONE, None
    rows = []
    if not session.admission.may_hub(session.principal, Operation.ADMINISTER):
        error, text = CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
    else:
        for topic in asked.topics:
            partitions = []
            for partition in topic.partitions:
                partitions.append(_reassigned(session, topic.name, partition))
                yield
            rows.append(Row(name=topic.name, partitions=partitions))
            yield
    request.answer(AlterPartitionReassignmentsResponse, throttle_time_ms=0, error_code=error, error_message=text,
                   allow_replication_factor_change=asked.allow_replication_factor_change, responses=rows)


def _reassigned(session: KafkaSession, topic: str, asked: Any) -> Row:
    row = Row(partition_index=asked.partition_index, error_code=NONE, error_message=None)
    try:
        find_topic(session, topic, Operation.ALTER).partition_id(asked.partition_index)
        if asked.replicas is None:
            raise Refused(NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        if asked.replicas != NODES:
            raise Refused(INVALID_REPLICA_ASSIGNMENT, f"every partition lives on node {NODE_ID} alone")
    except REFUSALS as refusal:
        refuse(row, refusal)
    return row


def list_reassignments(request: Request) -> None:
    """None is ever in progress."""
    request.decode(ListPartitionReassignmentsRequest)
    request.answer(ListPartitionReassignmentsResponse, throttle_time_ms=0, error_code=NONE, error_message=None,
                   topics=[])


ELECT_LEADERS = Api(key=43, name="ElectLeaders", first_version=0, last_version=2, first_flexible=2,
                    dispatch=elect_leaders, message=ElectLeadersRequest)
ALTER_REASSIGNMENTS = Api(key=45, name="AlterPartitionReassignments", first_version=0, last_version=1,
                          first_flexible=0, dispatch=alter_reassignments, message=AlterPartitionReassignmentsRequest)
LIST_REASSIGNMENTS = Api(key=46, name="ListPartitionReassignments", first_version=0, last_version=0,
                         first_flexible=0, dispatch=list_reassignments, message=ListPartitionReassignmentsRequest)
DESCRIBE_QUORUM = Api(key=55, name="DescribeQuorum", first_version=0, last_version=2, first_flexible=0,
                      dispatch=describe_quorum, message=DescribeQuorumRequest)
DESCRIBE_CLUSTER = Api(key=60, name="DescribeCluster", first_version=0, last_version=2, first_flexible=0,
                       dispatch=describe_cluster, message=DescribeClusterRequest)
DESCRIBE_TOPIC_PARTITIONS = Api(key=75, name="DescribeTopicPartitions", first_version=0, last_version=0,
                                first_flexible=0, dispatch=describe_topic_partitions, shows=True,
                                message=DescribeTopicPartitionsRequest)


LOG: Final = "log"               # all topics share one; where it lies on the disk is nobody's business


def describe_log_dirs(request: Request) -> None:
    asked, session = request.decode(DescribeLogDirsRequest), request.session
    wanted = None if asked.topics is None else {topic.topic: set(topic.partitions) for topic in asked.topics}
    topics = [topic for topic in session.guard.topics.all() if wanted is None or topic.name in wanted]

    def on_sizes(sizes: list[int]) -> None:
        left = iter(sizes)
        rows = []
        for topic in topics:
            of_topic = list(islice(left, topic.partitions))
            rows.append(Row(name=topic.name, partitions=[
                _partition_size(index, size) for index, size in enumerate(of_topic)
                if wanted is None or index in wanted[topic.name]]))
        _answer_sizes(request, rows, NONE)

    try:
        session.guard.topics.sizes(topics, on_sizes)
    except Denied:
        _answer_sizes(request, None, CLUSTER_AUTHORIZATION_FAILED)


def _partition_size(index: int, size_bytes: int) -> Row:
    return Row(partition_index=index, partition_size=size_bytes, offset_lag=0, is_future_key=False)


def _answer_sizes(request: Request, topics: list[Row] | None, error: int) -> None:
    results = [] if topics is None else [Row(error_code=NONE, log_dir=LOG, topics=topics, total_bytes=UNKNOWN,
                                             usable_bytes=UNKNOWN, is_cordoned=False)]
    request.answer(DescribeLogDirsResponse, throttle_time_ms=0, error_code=error, results=results)


def alter_log_dirs(request: Request) -> Iterator[None]:
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
                     dispatch=alter_log_dirs, message=AlterReplicaLogDirsRequest)
DESCRIBE_LOG_DIRS = Api(key=35, name="DescribeLogDirs", first_version=1, last_version=4, first_flexible=2,
                        dispatch=describe_log_dirs, shows=True, message=DescribeLogDirsRequest)
