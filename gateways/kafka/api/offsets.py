"""OffsetCommit 2 to 10 and OffsetFetch 1 to 10: how far a group is, in the group's own offsets, which HTTP and the
command line show and move.

A member commits in its generation; who assigns partitions by itself names no generation, and commits while the group
has no members. Answered when it is durable. Offsets do not expire: a retention time (versions 2 to 4) is kept by
keeping them longer.

Fetched are the offsets of the partitions that are named, or of all. A partition without a commit has offset -1, as in
Kafka, and so has one that is not there: a consumer of a topic that is not made yet, or just deleted, would fail by an
error. What is on its way to the disk is not shown yet. Who wants what transactions leave (`require_stable`) asks again
where an open one moves the offset. A group whose messages are leased commits nothing: it is refused, as it would be
refused to commit. From version 10 on topics are said by their ids.
"""
from __future__ import annotations

from collections.abc import Generator, Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kafka.protocol.consumer.group import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    ILLEGAL_GENERATION,
    INVALID_REQUEST,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSTABLE_OFFSET_COMMIT,
)
from gatehouse.gateways.kafka.mapping import Refused, coordinator_code_of
from gatehouse.gateways.kafka.request import Api, Request, find_asked
from gatehouse.kernel.errors import KernelError, UnknownGroup, UnknownPartition
from gatehouse.kernel.message import Stored
from gatehouse.kernel.state.state import MAX_METADATA_BYTES

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession
    from gatehouse.kernel.state.topics import Topic

FIRST_BY_ID: Final = 10          # the version from which on topics are said by their ids
FIRST_WITHOUT_GROUP: Final = 9   # the version from which on clients know that there may be no such group
NO_OFFSET: Final = -1            # the group begins where its members say
BEGINNING: Final = -2            # KafkaJS commits it to reset a group to the earliest: decision 303


class Commit:
    """One request: the rows of its answer, and the offsets that are committed."""

    __slots__ = ("request", "rows", "topics", "committed", "offsets")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.rows: list[Row] = []            # of topics
        self.topics: list[Topic] = []        # that were there
        self.committed: list[Row] = []       # of partitions that wait for the disk
        self.offsets: dict[int, tuple[int, bytes] | None] = {}

    def add(self, asked: Any) -> Iterator[None]:
        """A topic's partitions; what is wrong with one of them stands in its row."""
        yield
        rows = [Row(partition_index=partition.partition_index, error_code=NONE) for partition in asked.partitions]
        self.rows.append(Row(name=asked.name, topic_id=asked.topic_id, partitions=rows))
        try:
            topic = find_asked(self.request.session, asked, self.request.version >= FIRST_BY_ID)
        except Refused as refusal:
            self.fail(rows, refusal.code)
            return
        self.topics.append(topic)
        bounds = self.request.session.guard.bounds
        for row, partition in zip(rows, asked.partitions, strict=True):
            try:
                partition_id = topic.partition_id(partition.partition_index)
                self.offsets[partition_id] = offset_of(partition, bounds(partition_id)[0])
            except Refused as refusal:
                row.error_code = refusal.code
            except KernelError as refusal:
                row.error_code = coordinator_code_of(refusal)
            else:
                self.committed.append(row)
            yield

    def store(self, asked: Any) -> None:
        """Have the kernel commit what is sound."""
        session = self.request.session
        for topic in self.topics:
            there = session.kernel.topic(topic.name, topic.tenant)
            if there is None or there.id != topic.id:        # deleted since, with what was committed in it
                for partition_id in topic.partition_ids():
                    self.offsets.pop(partition_id, None)
        try:
            session.kernel.assigned.commit_offsets(
                asked.group_id, self.offsets, session, self, asked.member_id, asked.group_instance_id,
                asked.generation_id_or_member_epoch, session.principal.tenant)
            if self.offsets:
                return
        except KernelError as refusal:
            older = isinstance(refusal, UnknownGroup) and self.request.version < FIRST_WITHOUT_GROUP
            self.fail(self.committed, ILLEGAL_GENERATION if older else coordinator_code_of(refusal))
        self.answer()

    def on_stored(self, stored: Stored) -> None:
        if stored.error is not None:
            self.fail(self.committed, coordinator_code_of(stored.error))
        self.answer()

    @staticmethod
    def fail(rows: list[Row], code: int) -> None:
        for row in rows:
            row.error_code = code

    def refuse(self, code: int, topics: list[Any]) -> None:
        """The whole request is refused: each partition says so."""
        self.rows = [Row(name=topic.name, topic_id=topic.topic_id, partitions=[
            Row(partition_index=partition.partition_index, error_code=code) for partition in topic.partitions])
            for topic in topics]
        self.answer()

    def answer(self) -> None:
        self.request.answer(OffsetCommitResponse, throttle_time_ms=0, topics=self.rows)


def offset_of(partition: Any, beginning: int) -> tuple[int, bytes] | None:
    """Offset and metadata of one partition, which begins at `beginning`; None forgets them. Raises Refused."""
    metadata = (partition.committed_metadata or "").encode()
    if len(metadata) > MAX_METADATA_BYTES:
        raise Refused(OFFSET_METADATA_TOO_LARGE, f"{len(metadata)} bytes of metadata, at most {MAX_METADATA_BYTES}")
    offset = beginning if partition.committed_offset == BEGINNING else partition.committed_offset
    if offset == NO_OFFSET:
        return None
    if offset < 0:
        raise Refused(INVALID_REQUEST, "an offset is not negative")
    return offset, metadata


def commit_offsets(request: Request) -> Iterator[None]:
    asked = request.decode(OffsetCommitRequest)
    session, commit = request.session, Commit(request)
    if not session.admission.may_group(session.principal, Operation.CONSUME, asked.group_id):
        commit.refuse(GROUP_AUTHORIZATION_FAILED, asked.topics)
    else:
        for topic in asked.topics:
            yield from commit.add(topic)
        commit.store(asked)


OFFSET_COMMIT = Api(key=8, name="OffsetCommit", first_version=2, last_version=10, first_flexible=8,
                    dispatch=commit_offsets, message=OffsetCommitRequest)


FIRST_WITH_GROUPS: Final = 8     # the version from which on a request names several groups
FIRST_WITH_ERROR: Final = 2      # the version from which on a group has an error of its own
NOTHING: Final = -1
NOTHING_MOVES: Final[AbstractSet[int]] = frozenset()
Committed = dict[int, tuple[int, bytes]]


def fetch_offsets(request: Request) -> Iterator[None]:
    asked = request.decode(OffsetFetchRequest)
    session = request.session
    if request.version >= FIRST_WITH_GROUPS:
        groups = {group.group_id: group for group in asked.groups}       # each once, however often it is named
        by_id = request.version >= FIRST_BY_ID
        rows = []
        for group in groups.values():
            rows.append((yield from fetch(session, group, group.topics, asked.require_stable, by_id)))
        request.answer(OffsetFetchResponse, throttle_time_ms=0, groups=rows)
        return
    answer = yield from fetch(session, asked, asked.topics, getattr(asked, "require_stable", False))
    if request.version < FIRST_WITH_ERROR and answer.error_code != NONE:
        answer.topics = [Row(name=topic.name, partitions=[row_of(index, None, answer.error_code)
                                                          for index in topic.partition_indexes])
                         for topic in asked.topics]
    request.answer(OffsetFetchResponse, throttle_time_ms=0, error_code=answer.error_code, topics=answer.topics)


def fetch(session: KafkaSession, asked: Any, topics: list[Any] | None, only_stable: bool, by_id: bool = False
          ) -> Generator[None, None, Row]:
    """One group. `topics` None asks for all that it has committed; `only_stable`: not what a transaction moves."""
    yield
    name = asked.group_id
    error = check(session, name, asked)
    if error != NONE:
        return Row(group_id=name, topics=[], error_code=error)
    tenant = session.principal.tenant
    committed = session.kernel.groups.committed(name, tenant)
    moving = session.kernel.producing.moving(name, tenant) if only_stable else NOTHING_MOVES
    if topics is None:
        rows = yield from everything(session, committed, moving)
    else:
        rows = []
        for topic in topics:
            rows.append((yield from named(session, topic, committed, moving, by_id)))
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


def named(session: KafkaSession, asked: Any, committed: Committed, moving: AbstractSet[int], by_id: bool
          ) -> Generator[None, None, Row]:
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
            rows.append(partition_row(topic, index, committed, moving))
            yield
    return Row(name=asked.name, topic_id=getattr(asked, "topic_id", None), partitions=rows)


def partition_row(topic: Topic, index: int, committed: Committed, moving: AbstractSet[int]) -> Row:
    try:
        partition_id = topic.partition_id(index)
    except UnknownPartition:
        return row_of(index, None)
    if partition_id in moving:
        return row_of(index, None, UNSTABLE_OFFSET_COMMIT)               # clients ask again
    return row_of(index, committed.get(partition_id))


def everything(session: KafkaSession, committed: Committed, moving: AbstractSet[int]
               ) -> Generator[None, None, list[Row]]:
    """All that is committed in topics that the client may read."""
    may = session.admission.may_topic
    rows = []
    for topic in session.guard.topics.all():
        partitions = [partition_row(topic, index, committed, moving) for index, partition_id
                      in enumerate(topic.partition_ids()) if partition_id in committed or partition_id in moving]
        if partitions and may(session.principal, Operation.CONSUME, topic.name):
            rows.append(Row(name=topic.name, topic_id=UUID(bytes=topic.uuid), partitions=partitions))
        yield
    return rows


def row_of(index: int, committed: tuple[int, bytes] | None, error: int = NONE) -> Row:
    offset, metadata = (NOTHING, b"") if committed is None else committed
    return Row(partition_index=index, committed_offset=offset, committed_leader_epoch=NOTHING,
               metadata=metadata.decode(errors="replace"), error_code=error)


OFFSET_FETCH = Api(key=9, name="OffsetFetch", first_version=1, last_version=10, first_flexible=6,
                   dispatch=fetch_offsets, shows=True, message=OffsetFetchRequest)
