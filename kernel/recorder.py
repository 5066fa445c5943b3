"""What the kernel tells of messages as they go their way; `kernel.journeys` writes it down.

Whoever has something to tell is handed a `Recorder` by its constructor, or None where no journeys are recorded. What is
told is about whole batches, and a recorder answers at once: nothing waits for it, and it refuses nothing.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol, runtime_checkable

from gatehouse.kernel.message import Leased, Message, Origin, Placement, Record

# What stands above this file, and is passed on as it is: `groups.cursor.Cursor`, `groups.group.LeasedGroup`,
# `write.pending_frame.PendingFrame` and its runs, `records.validation.Validated`.
Cursor = Any
LeasedGroup = Any
PendingFrame = Any
Run = Any
Validated = Any


@runtime_checkable
class Hearing(Protocol):
    """A live subscriber that can say for how many it hears."""

    def hearers(self, placement: Placement) -> tuple[str, int]:
        """The door's name, and how many of its sessions hear what goes there."""


class Recorder(Protocol):  # decision 202
    """Is told what happens to messages as they go their way."""

    @property
    def followed_in(self) -> AbstractSet[int]:
        """The partitions in which something that is followed lies: of others `on_handed_out`, `on_acked` and
        `on_extended` need not be told."""

    def gap(self) -> int:
        """How many messages pass before one that may be followed; `kernel.write` counts them down."""

    def on_calm(self, shorten: Callable[[int], None]) -> None:
        """Whoever counts down is told here how to do it anew: at most so many messages pass before one that may be
        followed. Gaps that were drawn while many came are shortened when few come."""

    def follow(self, messages: list[Any], placements: dict[int, Placement] | None, at: int, asking: Sequence[int]
               ) -> tuple[bool, int]:
        """Whether some of these messages are followed, of that at `at` and those behind it, and of those that perhaps
        ask for it; and how many pass before the next one. Those that have no trace context are given one, in place."""

    def on_entered(self, frame: PendingFrame, messages: Sequence[Any], placements: dict[int, Placement] | None,
                   places: Sequence[tuple[Run, int]]) -> None:
        """The messages that `follow` was asked of, some of which are followed, are in the pending frame, each in its
        place."""

    def follow_batch(self, topic: str, tenant: str, topic_id: int, validated: Validated, at: int, origin: Origin
                     ) -> tuple[Validated, object, int]:
        """A batch of this producer is about to enter a topic; its record at `at` may be followed. The batch, in
        which those that are followed have a trace context; what `on_batch_entered` is to be told; how many pass
        before the next one."""

    def on_batch_entered(self, frame: PendingFrame, run: Run, followed: object) -> None:
        """That batch is in the pending frame."""

    def write(self, frame: PendingFrame, first_id: int) -> None:
        """The frame is about to be sealed: what is waiting goes into it."""

    def on_handed_out(self, group: LeasedGroup, cursor: Cursor, messages: Sequence[Leased], until_ms: int,
                      taker: Origin) -> None:
        """A member has these, all for the same number of times; `until_ms` is 0 where its end is the lease's."""

    def on_acked(self, group: LeasedGroup, cursor: Cursor, offsets: Sequence[int]) -> None:
        """They are done with, by an ack."""

    def on_extended(self, group: LeasedGroup, cursor: Cursor, offsets: Sequence[int], until_ms: int) -> None:
        """They are leased until this time."""

    def on_lease_ended(self, group: LeasedGroup, cursor: Cursor, offsets: Sequence[int], until_ms: int, is_over: bool
                       ) -> None:
        """They come again, from this time on (0: at once); `is_over`: the lease's time was up. Their leases are known
        to the cursor still."""

    def on_given_up(self, group: LeasedGroup, cursor: Cursor, messages: Sequence[Leased], reason: str) -> None:
        """They end without an ack."""

    def on_moved(self, messages: Sequence[Message], ids: Sequence[int], transaction_id: int, by: str) -> None:
        """Messages with ids of before enter their partitions: those that fell due, or those of a transaction (0: none)
        that `by` commits."""

    def speaking(self) -> Origin:
        """Who speaks now: for whoever tells later."""

    def on_accepted(self, frame: PendingFrame, messages: Sequence[Message], runs: Sequence[Run], untils: Sequence[int]
                    ) -> None:
        """These are in the pending frame and wait for their times, by hub time. Their ids stand in the runs once it is
        sealed."""

    def on_recalled(self, message_id: int, tenant: str, address: str, who: Origin) -> None:
        """What waited is taken back."""

    def on_held(self, frame: PendingFrame, messages: Sequence[Message], runs: Sequence[Run], transaction_id: int
                ) -> None:
        """These are in the pending frame as half messages of a transaction; 0: it begins with them. Their ids stand in
        the runs once it is sealed, and follow each other."""

    def on_checked(self, transaction_id: int, group: str, asked: str, attempt: int) -> None:
        """A member of the group is asked about a transaction; "": nobody was there."""

    def on_kept(self, message_id: int, transaction_id: int, by: str, until_ms: int) -> None:
        """A half message is committed, and waits for its time, by hub time."""

    def on_undone(self, transaction_id: int, by: str) -> None:
        """A transaction is rolled back."""

    def on_unanswered(self, transaction_id: int, group: str, reason: str) -> None:
        """Nobody decided about a transaction: its messages are dead letters, or gone."""

    def on_client(self, kind: int, origin: Origin, tenant: str, address: str, reason: str) -> None:
        """What a client did: a publish refused at an address, a connection, a subscription, or the end of one."""

    def on_redriven(self, letter: Record, placement: Placement, queue: str) -> None:
        """A dead letter of this queue goes back where it came from."""
