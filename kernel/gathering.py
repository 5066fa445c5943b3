"""What goes into the next frame, and who waits for it."""
from __future__ import annotations

from typing import NamedTuple

from kernel.burst import Burst, Run
from kernel.frame import StateRecord
from kernel.message import Owner, Stored

Places = list[tuple[Run, int]]
"""Where each message of a submission went: its run and its index in it."""


class Submission(NamedTuple):
    """One call's claim to an answer."""

    owner: Owner
    token: object
    places: Places | None
    fixed: list[tuple[int, int, int]] | None      # positions known beforehand: a repeat's first answer, a producer id


class Repeatable(NamedTuple):
    """A submission that came with an idempotency key."""

    fingerprint: bytes
    places: Places


class Gathering:
    """Everything between two flushes. One is being filled; one may be on its way to the disk."""

    def __init__(self, now_ms: int) -> None:
        self.burst = Burst(now_ms)
        self.submissions: list[Submission] = []
        self.state: list[StateRecord] = []
        self.produced: dict[tuple[int, int], list[tuple[int, Run]]] = {}     # (queue, producer): (sequence, run)
        self.repeatable: dict[str, Repeatable] = {}
        self.topic_changes = 0

    def produced_run(self, queue_id: int, producer_id: int, sequence: int, records: int) -> Run | None:
        """The run of a producer's batch in here, if it is this one."""
        for known, run in self.produced.get((queue_id, producer_id), ()):
            if known == sequence and run.count == records:
                return run
        return None

    @property
    def empty(self) -> bool:
        return not self.burst.runs and not self.submissions and not self.state


def answers(submissions: list[Submission], append_ms: int, error: Exception | None) -> dict[Owner, list[Stored]]:
    """Each owner's answers, in the order of its calls."""
    found: dict[Owner, list[Stored]] = {}
    for owner, token, places, fixed in submissions:
        positions = fixed or []
        if error is not None:
            positions = []
        elif places is not None:
            positions = [(run.queue_id, run.first_offset + i, run.first_id + i) for run, i in places]
        answer = Stored(token, error, append_ms, positions)
        mine = found.get(owner)
        if mine is None:
            found[owner] = [answer]
        else:
            mine.append(answer)
    return found
