"""What goes into the next frame, and who waits for it."""
from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol

from gatehouse.kernel.log.frame import StateRecord
from gatehouse.kernel.message import Owner, Stored
from gatehouse.kernel.records.batch import BatchHeader
from gatehouse.kernel.write.batch_builder import BatchBuilder, Run

Places = list[tuple[Run, int]]
"""Where each message of a submission went: its run and its index in it."""


Ranges = tuple[tuple[int, int], ...]
"""Partitions, as (first partition id, count)."""


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


# decision 136: one protocol and a list, for everything that is not a message in a partition
class Participant(Protocol):
    """Whoever has something in a frame beside messages. It joins the frame, is asked for its state records when the
    frame is sealed, and hears what became of them. One of `applied` and `failed` is called afterwards."""

    # decision 39: ids, and no offset yet
    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """Add the state records of this frame to `frame.state`: runs have their offsets and ids now.

        Returns how many message ids are used up by messages that enter no partition yet: `first_id` and those after it.
        """

    def applied(self, frame: PendingFrame) -> None:
        """The frame is durable and in the state's memory; nobody has been told yet."""

    def failed(self, frames: list[PendingFrame]) -> None:
        """None of these was stored, and nobody has been told yet: take back what was changed beforehand. The
        participant has joined at least one of them."""


class Follower(Protocol):
    """Whoever goes on from what a durable frame brought, after its answers."""

    def follow(self, entered: AbstractSet[int]) -> None:
        """Records entered these partitions."""


class Forgetter(Protocol):
    """Whoever knows of partitions, and forgets those that are gone."""

    def forget_partitions(self, ranges: Ranges) -> None:
        """A durable frame has deleted these."""


class PendingFrame:
    """Everything between two flushes. One is being filled; one may be on its way to the disk."""

    def __init__(self, append_ms: int, now_ms: int) -> None:
        self.builder = BatchBuilder(append_ms)
        self.now_ms = now_ms                                 # hub time, as what is to end is counted in
        self.submissions: list[Submission] = []
        self.state: list[StateRecord] = []
        self.participants: dict[Participant, bool] = {}      # and whether it has something that must be stored
        self.giving_ids: list[Participant] = []              # those of them that are sealed before the others
        self.produced: dict[tuple[int, int], list[tuple[BatchHeader, Run]]] = {}     # by partition and producer id
        self.repeatable: dict[str, Repeatable] = {}
        self.answered: dict[str, bytes] = {}                 # encoded, by idempotency key
        self.expired: list[str] = []                         # idempotency keys that leave the window with this frame
        self.deleted: Ranges = ()                            # partitions of topics and queues that are deleted
        self.topic_changes = 0
        self.frees = False                                   # more than it takes: the reserve is there for it
        self.entering_bytes: dict[int, int] = {}             # into queues that refuse what exceeds their bytes

    def join(self, participant: Participant) -> None:
        """It has something that goes into this frame."""
        self.participants[participant] = True

    def join_to_give_ids(self, participant: Participant) -> None:
        """It gives ids to messages that enter no partition yet. What others write may name these ids: it is sealed
        before them."""
        self.join(participant)
        self.giving_ids.append(participant)

    def wait(self, owner: Owner | None, token: object, places: Places | None) -> None:
        """Tell the owner once this is durable, and where these went."""
        if owner is not None:
            self.submissions.append(Submission(owner, token, places, None))

    def answer(self, owner: Owner | None, token: object) -> None:
        """Tell the owner once this is durable."""
        if owner is not None:
            self.submissions.append(Submission(owner, token, None, (self.builder.now_ms, [])))

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
        return not self.builder.runs and not self.state and True not in self.participants.values()


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
