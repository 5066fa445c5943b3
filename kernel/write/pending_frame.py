"""What goes into the next frame, and who waits for it."""
from __future__ import annotations

from typing import NamedTuple, Protocol

from gatehouse.kernel.groups.cursor import Cursor
from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.message import Owner, Stored
from gatehouse.kernel.records.batch import BatchHeader
from gatehouse.kernel.write.batch_builder import BatchBuilder, Run

Places = list[tuple[Run, int]]
"""Where each message of a submission went: its run and its index in it."""


class Submission:
    """One call's claim to an answer."""

    __slots__ = ("owner", "token", "places", "fixed")

    def __init__(self, owner: Owner, token: object, places: Places | None,
                 fixed: tuple[int, list[tuple[int, int, int]]] | None) -> None:
        self.owner = owner
        self.token = token
        self.places = places
        self.fixed = fixed                # known beforehand: append time and positions


class Repeatable(NamedTuple):
    """A submission that came with an idempotency key."""

    fingerprint: bytes
    places: Places


# decision 39: ids, and no offset yet
class Reserved(Protocol):
    """State that is complete at seal only, and messages that are part of it and enter no partition yet.

    Those get their ids at seal, after the runs'. One of `applied` and `failed` is called afterwards.
    """

    @property
    def count(self) -> int:
        """Message ids that are needed."""

    def records(self, first_id: int) -> list[StateRecord]:
        """What to store, now that the ids are known: `first_id` and the `count` - 1 after it."""

    def applied(self) -> None:
        """It is durable and in the state's memory; nobody has been told yet."""

    def failed(self) -> None:
        """None of it was stored; nobody has been told yet."""


class PendingFrame:
    """Everything between two flushes. One is being filled; one may be on its way to the disk."""

    def __init__(self, append_ms: int, now_ms: int) -> None:
        self.builder = BatchBuilder(append_ms)
        self.now_ms = now_ms                                 # hub time, as what is to end is counted in
        self.submissions: list[Submission] = []
        self.state: list[StateRecord] = []
        self.reserved: list[Reserved] = []
        self.cursors: dict[Cursor, None] = {}  # of groups, that have changed: sealed into state records
        self.produced: dict[tuple[int, int], list[tuple[BatchHeader, Run]]] = {}     # by partition and producer id
        self.repeatable: dict[str, Repeatable] = {}
        self.answered: dict[str, bytes] = {}                 # encoded, by idempotency key
        self.expired: list[str] = []                         # idempotency keys that leave the window with this frame
        self.deleted: tuple[tuple[int, int], ...] = ()  # partitions of deleted topics, as (first partition id, count)
        self.topic_changes = 0
        self.frees = False                                   # more than it takes: the reserve is there for it
        self.entering_bytes: dict[int, int] = {}             # into queues that refuse what exceeds their bytes

    def produced_run(self, partition_id: int, header: BatchHeader) -> Run | None:
        """The run of this very batch, if it is in here."""
        for produced_header, run in self.produced.get((partition_id, header.producer_id), ()):
            if (produced_header.producer_epoch, produced_header.base_sequence, produced_header.record_count) == \
                    (header.producer_epoch, header.base_sequence, header.record_count):
                return run
        return None

    def delete_partitions(self, first_partition_id: int, count: int) -> None:
        """These partitions go with it."""
        self.deleted += ((first_partition_id, count),)

    @property
    def stores_nothing(self) -> bool:
        """Whether nothing of it goes to the log. It may have answers to give all the same."""
        return not self.builder.runs and not self.state and not self.reserved and not self.cursors


def answers(submissions: list[Submission], append_ms: int, error: Exception | None) -> dict[Owner, list[Stored]]:
    """Each owner's answers, in the order of its calls."""
    owner_answers: dict[Owner, list[Stored]] = {}
    for submission in submissions:
        owner, places = submission.owner, submission.places
        stamp, positions = (append_ms, []) if submission.fixed is None else submission.fixed
        if error is not None:
            positions = []
        elif places is not None:
            positions = [(run.partition_id, run.first_offset + i, run.first_id + i) for run, i in places]
        answer = Stored(submission.token, error, stamp, positions)
        mine = owner_answers.get(owner)
        if mine is None:
            owner_answers[owner] = [answer]
        else:
            mine.append(answer)
    return owner_answers
