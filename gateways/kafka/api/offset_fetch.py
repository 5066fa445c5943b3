"""OffsetFetch 1 to 10: what groups have committed, of the partitions that are named or of all.

A partition without a commit has offset -1, as in Kafka, and so has one that is not there: a consumer of a topic that is
not made yet, or just deleted, would fail by an error. What is on its way to the disk is not shown yet. A group whose
messages are leased commits nothing: it is refused, as it would be refused to commit.
"""
from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kafka.protocol.consumer.group import OffsetFetchRequest, OffsetFetchResponse

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from gatehouse.gateways.kafka.mapping import Refused, coordinator_code_of
from gatehouse.gateways.kafka.request import Api, Request
from gatehouse.gateways.kafka.topics import find_asked
from gatehouse.kernel.errors import KernelError, UnknownPartition

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession
    from gatehouse.kernel.state.topics import Topic

FIRST_WITH_GROUPS: Final = 8     # the version from which on a request names several groups
FIRST_BY_ID: Final = 10          # the version from which on topics are said by their ids
FIRST_WITH_ERROR: Final = 2      # the version from which on a group has an error of its own
NOTHING: Final = -1
Committed = dict[int, tuple[int, bytes]]


def dispatch(request: Request) -> Iterator[None]:
    asked = request.decode(OffsetFetchRequest)
    session = request.session
    if request.version >= FIRST_WITH_GROUPS:
        groups = {group.group_id: group for group in asked.groups}       # each once, however often it is named
        by_id = request.version >= FIRST_BY_ID
        rows = []
        for group in groups.values():
            rows.append((yield from fetch(session, group, group.topics, by_id)))
        request.answer(OffsetFetchResponse, throttle_time_ms=0, groups=rows)
        return
    answer = yield from fetch(session, asked, asked.topics)
    if request.version < FIRST_WITH_ERROR and answer.error_code != NONE:
        answer.topics = [Row(name=topic.name, partitions=[row_of(index, None, answer.error_code)
                                                          for index in topic.partition_indexes])
                         for topic in asked.topics]
    request.answer(OffsetFetchResponse, throttle_time_ms=0, error_code=answer.error_code, topics=answer.topics)


def fetch(session: KafkaSession, asked: Any, topics: list[Any] | None, by_id: bool = False
          ) -> Generator[None, None, Row]:
    """One group. `topics` None asks for all that it has committed."""
    yield
    name = asked.group_id
    error = check(session, name, asked)
    if error != NONE:
        return Row(group_id=name, topics=[], error_code=error)
    committed = session.kernel.groups.committed(name, session.principal.tenant)
    if topics is None:
        rows = yield from everything(session, committed)
    else:
        rows = []
        for topic in topics:
            rows.append((yield from named(session, topic, committed, by_id)))
    return Row(group_id=name, topics=rows, error_code=NONE)


def check(session: KafkaSession, name: str, asked: Any) -> int:
    """Why this group's offsets are not shown; NONE where they are."""
    if not session.admission.may_group(session.principal, Operation.CONSUME, name):
        return GROUP_AUTHORIZATION_FAILED
    member_id = getattr(asked, "member_id", None)
    try:
        session.kernel.groups.require_commits(name, session.principal.tenant)
        if member_id:
            session.kernel.assigned.require_member(name, member_id, asked.member_epoch, session.principal.tenant)
    except KernelError as refusal:
        return coordinator_code_of(refusal)
    return NONE


def named(session: KafkaSession, asked: Any, committed: Committed, by_id: bool) -> Generator[None, None, Row]:
    """A topic's partitions as they are asked for."""
    yield
    try:
        topic = find_asked(session, asked, by_id)
    except Refused as refusal:
        code = NONE if refusal.code == UNKNOWN_TOPIC_OR_PARTITION else refusal.code
        rows = [row_of(index, None, code) for index in asked.partition_indexes]
    else:
        rows = []
        for index in asked.partition_indexes:
            rows.append(partition_row(topic, index, committed))
            yield
    return Row(name=asked.name, topic_id=getattr(asked, "topic_id", None), partitions=rows)


def partition_row(topic: Topic, index: int, committed: Committed) -> Row:
    try:
        return row_of(index, committed.get(topic.partition_id(index)))
    except UnknownPartition:
        return row_of(index, None)


def everything(session: KafkaSession, committed: Committed) -> Generator[None, None, list[Row]]:
    """All that is committed in topics that the client may read."""
    may = session.admission.may_topic
    rows = []
    for topic in session.guard.topics():
        partitions = [row_of(index, committed[partition_id]) for index, partition_id in enumerate(topic.partition_ids())
                      if partition_id in committed]
        if partitions and may(session.principal, Operation.CONSUME, topic.name):
            rows.append(Row(name=topic.name, topic_id=UUID(bytes=topic.uuid), partitions=partitions))
        yield
    return rows


def row_of(index: int, committed: tuple[int, bytes] | None, error: int = NONE) -> Row:
    offset, metadata = (NOTHING, b"") if committed is None else committed
    return Row(partition_index=index, committed_offset=offset, committed_leader_epoch=NOTHING,
               metadata=metadata.decode(errors="replace"), error_code=error)


OFFSET_FETCH = Api(key=9, name="OffsetFetch", first_version=1, last_version=10, first_flexible=6, dispatch=dispatch,
                   shows=True, message=OffsetFetchRequest)
