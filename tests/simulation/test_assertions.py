"""Mistakes in the kernel that one of its own assertions finds, before anybody could be told something wrong.

Each mutant makes one mistake. The simulator must stop at the assertion that is named here, and at nothing else before.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gatehouse.gateways.runtime import broken_promise
from gatehouse.kernel.index.memtable import Checkpoints
from gatehouse.kernel.index.reader import Reader
from gatehouse.kernel.log.segments import SegmentLog
from gatehouse.kernel.message import StateRecord
from gatehouse.kernel.retention.retention import Retention
from gatehouse.kernel.retention.segment_scan import SegmentScanner
from gatehouse.kernel.scheduling.delivering import Delivering, Lane
from gatehouse.kernel.scheduling.plan import Plan
from gatehouse.kernel.state.state import Clock
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.write.pending_frame import PendingFrame
from gatehouse.transactions.members import Membership
from tests.simulation.rounds import Failure, simulate

SEEDS: list[int] = [*range(1, 41)]

Patch = Callable[[pytest.MonkeyPatch], None]


def positions_that_fall(patch: pytest.MonkeyPatch) -> None:
    real = SegmentLog.append
    patch.setattr(SegmentLog, "append", lambda log, head, body: real(log, head, body) - len(head) - 100)


def append_time_that_falls(patch: pytest.MonkeyPatch) -> None:
    real = Clock._stepped

    def stepped(clock: Any, put_state: Callable[[list[StateRecord]], object], by_ms: int) -> None:
        real(clock, put_state, by_ms)
        clock.append_ms = clock._loop.wall_ms()
        put_state([clock._record()])

    patch.setattr(Clock, "_stepped", stepped)


def checkpoints_side_by_side(patch: pytest.MonkeyPatch) -> None:
    def note(checkpoints: Any) -> None:
        if checkpoints._changed():
            checkpoints._start(sync=False, on_done=None)

    patch.setattr(Checkpoints, "note", note)


def settling_a_change_that_is_on_its_way(patch: pytest.MonkeyPatch) -> None:
    real = Topics.settle
    patch.setattr(Topics, "settle", lambda topics, changes: real(topics, changes + 1))


def dropping_a_segment_in_the_middle(patch: pytest.MonkeyPatch) -> None:
    real = Retention._due_main

    def due_main(retention: Any, ages: Any, complete: int) -> Any:
        segments = retention._log.segments()
        due = real(retention, ages, complete)
        return segments[1] if due is not None and len(segments) > 2 and segments[1].end <= complete else due

    patch.setattr(Retention, "_due_main", due_main)


def moving_state_without_its_order(patch: pytest.MonkeyPatch) -> None:
    real = SegmentScanner.cut

    def cut(scanner: Any, *arguments: Any) -> Iterator[StateRecord]:
        return (record._replace(order=0) for record in real(scanner, *arguments))

    patch.setattr(SegmentScanner, "cut", cut)


def keeping_records_under_other_offsets(patch: pytest.MonkeyPatch) -> None:
    real = SegmentScanner._open

    def opened(scanner: Any, position: int, append_ms: int, entries: Any, i: int) -> Iterator[Any]:
        return ((record[0] + entries.count[i], *record[1:]) for record in
                real(scanner, position, append_ms, entries, i))

    patch.setattr(SegmentScanner, "_open", opened)


def repeating_without_going_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Delivering, "_next_ms", lambda delivering, pending: pending.due_ms)


def telling_schedules_twice(patch: pytest.MonkeyPatch) -> None:
    real = Plan.applied

    def applied(plan: Any, frame: PendingFrame) -> None:
        real(plan, frame)
        real(plan, frame)

    patch.setattr(Plan, "applied", applied)


def taking_more_than_is_due(patch: pytest.MonkeyPatch) -> None:
    real = Lane.take

    def take(lane: Any, key: bytes) -> bytes:
        lane._taken += 1
        return real(lane, key)

    patch.setattr(Lane, "take", take)


def reading_less_than_was_asked_for(patch: pytest.MonkeyPatch) -> None:
    real = Reader._read_cold
    patch.setattr(Reader, "_read_cold", lambda reader, plans: real(reader, plans)[1:])


def asking_who_has_no_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "has_room", property(lambda membership: True))


CAUGHT_BY: list[tuple[Patch, str]] = [
    (positions_that_fall, "frames are taken in in the order of the log"),
    (append_time_that_falls, "append time never falls"),
    (checkpoints_side_by_side, "one checkpoint at a time"),
    (settling_a_change_that_is_on_its_way, "a change is settled once"),
    (dropping_a_segment_in_the_middle, "only the oldest is dropped"),
    (moving_state_without_its_order, "a kept record says where it was first"),
    (keeping_records_under_other_offsets, "a record has an offset of its entry"),
    (repeating_without_going_on, "time goes on"),
    (telling_schedules_twice, "a frame ends once, after it was sealed"),
    (taking_more_than_is_due, "what is taken is among the timers"),
    (reading_less_than_was_asked_for, "an answer for each that was asked"),
    (asking_who_has_no_room, "who is asked has room"),
]


@pytest.mark.parametrize(("mistake", "promise"), CAUGHT_BY, ids=lambda part: getattr(part, "__name__", ""))
def test_a_mistake_is_stopped_by_an_assertion(mistake: Patch, promise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises(Failure) as failure:
        for seed in SEEDS:
            simulate(seed, 120)
    assert broken_promise(failure.value.__cause__) == promise, str(failure.value)
