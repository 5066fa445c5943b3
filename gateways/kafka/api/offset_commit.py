"""OffsetCommit 2 to 10: how far a group is, in the group's own offsets, which HTTP and the command line show and move.

A member commits in its generation; who assigns partitions by itself names no generation, and commits while the group
has no members. Answered when it is durable. Offsets do not expire: a retention time (versions 2 to 4) is kept by
keeping them longer. From version 10 on topics are said by their ids.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetCommitResponse

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.kafka.cold import Row
from gatehouse.gateways.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    ILLEGAL_GENERATION,
    INVALID_REQUEST,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
)
from gatehouse.gateways.kafka.mapping import Refused, coordinator_code_of
from gatehouse.gateways.kafka.request import Api, Request
from gatehouse.gateways.kafka.topics import find_asked
from gatehouse.kernel.errors import KernelError, UnknownGroup
from gatehouse.kernel.message import Stored
from gatehouse.kernel.state.state import MAX_METADATA_BYTES

if TYPE_CHECKING:
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


def dispatch(request: Request) -> Iterator[None]:
    asked = request.decode(OffsetCommitRequest)
    session, commit = request.session, Commit(request)
    if not session.admission.may_group(session.principal, Operation.CONSUME, asked.group_id):
        commit.refuse(GROUP_AUTHORIZATION_FAILED, asked.topics)
    else:
        for topic in asked.topics:
            yield from commit.add(topic)
        commit.store(asked)


OFFSET_COMMIT = Api(key=8, name="OffsetCommit", first_version=2, last_version=10, first_flexible=8, dispatch=dispatch,
                    message=OffsetCommitRequest)
