"""A few seeds of the simulator with every run of the tests; `make sim SEED=…` runs as many as there is time for.

And whether it would notice: with a promise taken out of the kernel it must fail.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest

from gatehouse.kernel.delivery.retained import RetainedValues
from gatehouse.kernel.groups.cursor import Cursor
from gatehouse.kernel.groups.dead_lettering import DeadLetters
from gatehouse.kernel.groups.leasing import Core, Cursors
from gatehouse.kernel.groups.policy import Ordering
from gatehouse.kernel.halves.halves import Halves
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.kernel import Kernel
from gatehouse.kernel.log.log import Frame
from gatehouse.kernel.log.segments import SegmentChain
from gatehouse.kernel.message import StateRecord, Stored
from gatehouse.kernel.port import Port
from gatehouse.kernel.retention.retention import Kept, Retention
from gatehouse.kernel.scheduling import book as book_module
from gatehouse.kernel.scheduling.book import Book
from gatehouse.kernel.scheduling.delivering import AtHand
from gatehouse.kernel.scheduling.plan import Plan
from gatehouse.kernel.scheduling.schedule_records import decode
from gatehouse.kernel.scheduling.timers import Timers
from gatehouse.kernel.state.state import Kind, StateChanges, StateTable, Watermarks
from gatehouse.kernel.state.topics import Topic, Topics, TopicSettings
from gatehouse.kernel.write.committer import WorkerWriter
from gatehouse.kernel.write.idempotency import Window
from gatehouse.kernel.write.pending_frame import PendingFrame
from gatehouse.kernel.write.producers import Producers
from gatehouse.kernel.write.topic_changes import TopicChanges
from gatehouse.transactions.access import Access
from gatehouse.transactions.book import Book as TransactionBook
from gatehouse.transactions.checking import Checking
from gatehouse.transactions.coordinator import Decision, Transactions
from gatehouse.transactions.plan import Plan as TransactionPlan
from gatehouse.transactions.records import ENDED, open_key
from tests.simulation.disk import SimDisk
from tests.simulation.plan import make_plan
from tests.simulation.rounds import Failure, crash_at_every_write, run_rounds, simulate

ROOT: Final = Path(__file__).resolve().parents[2]

# In the last four something happens between a decision and its frame, or to a transaction with an id that ends in 0.
SEEDS_TO_NOTICE = [*range(1, 61), 80, 135, 148, 450]
NOTICED_BY = {
    "without_cutting_off_what_is_torn": 17, "without_deletions_of_copied_keys": 3, "without_producers_states": 8,
    "without_the_idempotency_window": 2, "acknowledging_over_mqtt_at_once": 4, "without_the_timers_of_a_replay": 3,
    "recalling_without_taking_off_the_timer": 2, "without_copies_of_dead_letters": 14,
    "without_keys_that_are_taken_at_a_start": 7, "refusing_by_what_is_not_stored": 2,
    "reading_what_is_about_to_change": 24, "without_dead_letters_of_silence": 3,
    "keeping_topics_that_a_full_disk_refused": 2, "taking_back_topics_that_are_durable": 3,
    "making_refused_topics_anew_unasked": 2, "committing_what_is_rolled_back": 55,
    "answering_acks_before_they_are_stored": 2,
}
"""The first seed that notices a mutant, where it is not 1: tried first, the others where plans have changed since."""


@pytest.mark.parametrize("seed", range(1, 25))
def test_a_random_plan(seed: int) -> None:
    simulate(seed, 120)


def test_nobody_is_asked_about_what_was_decided_while_the_question_waited_for_its_turn() -> None:
    simulate(5094, 200)


def test_a_topic_that_a_full_disk_refused_is_made_anew_before_the_next_client_hears_of_it() -> None:
    simulate(5512, 200)


@pytest.mark.parametrize("seed", [5513, 5674])
def test_messages_for_later_whose_times_had_come_before_the_clock_was_set_back(seed: int) -> None:
    simulate(seed, 200)


def test_an_mqtt_session_that_ended_acknowledges_nothing_more() -> None:
    simulate(5719, 200)


def test_idempotency_keys_that_are_too_many_leave_with_the_frame_of_a_start() -> None:
    simulate(5722, 200)


@pytest.mark.parametrize("seed", [3, 4, 5, 26])    # in 3 segments go; 26: half messages; `make soak`: more
def test_a_crash_at_every_write(seed: int) -> None:
    assert crash_at_every_write(seed, 30) > 20


def test_a_seed_gives_the_same_run_again() -> None:
    first, second = simulate(7, 80), simulate(7, 80)
    assert make_plan(7, 80) == make_plan(7, 80)
    assert first.hub.disk.history == second.hub.disk.history and first.ledger.seen == second.ledger.seen


def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentChain, "sync", lambda chain: None)
    with pytest.raises(Failure, match=r"again: python -m tests\.simulation \d+ --rounds 1 --length 100"):
        run_rounds(1, 40, 100, say=lambda line: None)


# ---- with a promise taken out

Patch = Callable[[pytest.MonkeyPatch], None]


def without_fdatasync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SegmentChain, "sync", lambda chain: None)


def without_sync_of_folders(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimDisk, "sync_folder", lambda disk, folder: None)


# The sync of a new segment's header is not among these: the sync of the first frame covers it, and a segment without
# frames may vanish.


def without_sync_of_kept_frames(patch: pytest.MonkeyPatch) -> None:
    real = SegmentChain.sync
    patch.setattr(SegmentChain, "sync", lambda chain: None if chain._folder == "kept" else real(chain))


def answering_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    def write(writer: Any, head: bytes, body: bytes, sync: bool) -> tuple[int, int]:
        return writer._log.append(head, body), writer._log.end()

    patch.setattr(WorkerWriter, "_write", write)


def with_a_frame_left_out_of_replay(patch: pytest.MonkeyPatch) -> None:
    real = SegmentChain._replay_file

    def replay(*arguments: Any) -> Iterator[Frame]:
        frames = real(*arguments)
        yield from islice(frames, 2)
        next(frames, None)
        yield from frames

    patch.setattr(SegmentChain, "_replay_file", replay)


def without_cutting_off_what_is_torn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SegmentChain, "_cut", lambda chain, base, size: None)


def without_moving_state(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Retention, "_keep",
                  lambda retention, departure: Kept([], retention._log.kept_end(), False,
                                                    retention._starts_behind(departure.scan), [], None))


def without_new_starts_of_partitions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Watermarks, "pages_starting_at", lambda watermarks, starts: {})


def without_deletions_of_copied_keys(patch: pytest.MonkeyPatch) -> None:
    real = StateChanges.absorb

    def absorb(changes: StateChanges, position: int, records: Any) -> None:
        real(changes, position, records)
        changes.copied.clear()

    patch.setattr(StateChanges, "absorb", absorb)


def without_producers_states(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Producers, "get", lambda producers, partition_id, producer_id: None)


def without_the_idempotency_window(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Window, "get", lambda window, key, now_ms: None)


def without_retained_values_that_left_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RetainedValues, "_scan_store", lambda values, lookup: ({}, None))


def with_positions_written_before_the_entries(patch: pytest.MonkeyPatch) -> None:
    real = Index.write

    def write(index: Any, checkpoint: Any, segments: Any, *, sync: bool = False) -> list[bytes]:
        from gatehouse.kernel.index.index import _META, _POSITIONS

        index._store.write([(_META, _POSITIONS.pack(*checkpoint.positions))])
        return real(index, checkpoint, segments, sync=sync)

    patch.setattr(Index, "write", write)


def acknowledging_over_mqtt_at_once(patch: pytest.MonkeyPatch) -> None:
    with_ports(patch, HastyMessages)


def answering_kafka_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    with_ports(patch, HastyBatches)


def with_ports(patch: pytest.MonkeyPatch, hasty: type[HastyPort]) -> None:
    """The door itself and its port may be compiled: what they call of their own cannot be replaced."""
    real = Kernel.port
    patch.setattr(Kernel, "port", lambda kernel, door, transactions=None: hasty(real(kernel, door, transactions), door))


class HastyPort:
    """A port that answers some calls before anything is durable."""

    def __init__(self, port: Port, door: Any) -> None:
        self._port = port
        self._door = door

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def answer(self, number: int, positions: list[Any]) -> None:
        if number:
            for _ in self._door.on_answers([Stored(number, None, 0, positions)]):
                pass


class HastyMessages(HastyPort):
    def append(self, guard: int, messages: Any, number: int, positions: bool, key: str | None) -> None:
        self._port.append(guard, messages, 0, positions, key)
        self.answer(number, [])

    def append_gathered(self, guards: list[int], stops: list[int], messages: Any, number: int, positions: bool) -> None:
        self._port.append_gathered(guards, stops, messages, 0, positions)
        self.answer(number, [])


class HastyBatches(HastyPort):
    def append_batch(self, partition_id: int, batch: bytes, number: int, divert: Any, guard: int) -> None:
        self._port.append_batch(partition_id, batch, 0, divert, guard)
        self.answer(number, [(partition_id, self._port.bounds(partition_id)[1], -1)])


def without_records(patch: pytest.MonkeyPatch, of: type[Any], stays: Callable[[Any, StateRecord], bool]) -> None:
    """Of those that a participant adds to a frame, only some are written."""
    real = of.seal

    def seal(participant: Any, frame: PendingFrame, first_id: int) -> Any:
        before = len(frame.state)
        count = real(participant, frame, first_id)
        frame.state[before:] = [record for record in frame.state[before:] if stays(participant, record)]
        return count

    patch.setattr(of, "seal", seal)


def without_saying_what_was_delivered(patch: pytest.MonkeyPatch) -> None:
    without_records(patch, Plan, lambda plan, record: not plan.taken
                    or record.kind == Kind.TIMER and record.value is not None)


def without_the_timers_of_a_replay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(book_module, "_timers_in", lambda changes: [])


def recalling_without_taking_off_the_timer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Book, "waiting", lambda book, timer, value: decode(value) if value else None)
    patch.setattr(Timers, "discard", lambda timers, key: None)
    patch.setattr(AtHand, "pop", lambda at_hand, key: at_hand.values.get(key, b""))


def without_pages_of_leases(patch: pytest.MonkeyPatch) -> None:
    real = Cursors._records
    patch.setattr(Cursors, "_records", lambda cursors, cursor: [record for record in real(cursors, cursor)
                                                                if record.kind != Kind.LEASES])


def without_floors_of_leases(patch: pytest.MonkeyPatch) -> None:
    real = Cursors._records
    patch.setattr(Cursors, "_records", lambda cursors, cursor: [record for record in real(cursors, cursor)
                                                                if record.kind != Kind.OFFSET])


def without_copies_of_dead_letters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeadLetters, "_copies", lambda letters, group, message, reason: [])


def answering_acks_before_they_are_stored(patch: pytest.MonkeyPatch) -> None:
    def answer(core: Core, owner: Any, token: object) -> None:
        if owner is not None:
            owner.on_stored([Stored(token, None, 0, [])])

    patch.setattr(Core, "answer", answer)


def without_keys_that_are_taken_at_a_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ordering, "on_loaded", lambda ordering, prefetcher: None)


def forgetting_which_leases_run_at_a_start(patch: pytest.MonkeyPatch) -> None:
    real = Cursor.load

    def load(cursor: Cursor, pages: Any, end: int) -> list[Any]:
        for lease in real(cursor, pages, end):
            offsets = lease.offsets
            for offset in offsets:
                del cursor._out[offset]
            lease.end()
            cursor._load_again(offsets)
        return []

    patch.setattr(Cursor, "load", load)


def without_the_ends_of_transactions(patch: pytest.MonkeyPatch) -> None:
    without_records(patch, TransactionPlan, lambda plan, record: record.kind != Kind.TRANSACTION
                    or record.value is not None and not record.key.startswith(ENDED))


def without_moving_what_stays_undecided(patch: pytest.MonkeyPatch) -> None:
    """They are taken from those that began with them, and get no records of their own."""
    without_records(patch, TransactionPlan,
                    lambda plan, record: record.key not in {open_key(begun.id) for begun, _ in plan.moved})


def answering_decisions_before_they_are_stored(patch: pytest.MonkeyPatch) -> None:
    real = Transactions.decide

    def decide(transactions: Any, transaction_id: int, decision: Decision, *, owner: Any, **more: Any) -> None:
        real(transactions, transaction_id, decision, **more)
        owner.on_stored([Stored(None, None, transactions._kernel._loop.now_ms(), [])])

    patch.setattr(Transactions, "decide", decide)


def refusing_by_what_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionBook, "when_settled", lambda book, transaction_id, tell: tell(True))


def reading_what_is_about_to_change(patch: pytest.MonkeyPatch) -> None:
    def take(access: Any, transaction_id: int) -> bool:
        free = transaction_id not in access._taken
        access._taken.setdefault(transaction_id, deque())
        return free

    patch.setattr(Access, "take", take)


def without_checks_in_the_log(patch: pytest.MonkeyPatch) -> None:
    real = Checking._check
    patch.setattr(Checking, "_check", lambda *arguments: real(*arguments)._replace(checks=()))


def without_what_is_open_at_a_start(patch: pytest.MonkeyPatch) -> None:
    real = StateTable.scan
    patch.setattr(StateTable, "scan", lambda table, kind, prefix=b"": iter(
        () if kind == Kind.TRANSACTION else real(table, kind, prefix)))


def committing_without_offsets(patch: pytest.MonkeyPatch) -> None:
    real = Transactions.decide
    patch.setattr(Transactions, "decide", lambda *arguments, offsets, **more: real(*arguments, **more))


def without_dead_letters_of_silence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Halves, "dead_letter", lambda *arguments: None)


def keeping_topics_that_a_full_disk_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TopicChanges, "failed", lambda changes, frames: None)


def taking_back_topics_that_are_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Topics, "settle", lambda topics, changes: None)


def making_refused_topics_anew_unasked(patch: pytest.MonkeyPatch) -> None:
    real = Topics.undo

    def undo(topics: Topics) -> list[Topic]:
        touched = real(topics)
        if touched and topics.get(touched[0].name, touched[0].tenant) is None:
            topics.create(touched[0].name, touched[0].tenant, 1, TopicSettings(), 0)
        return touched

    patch.setattr(Topics, "undo", undo)


def committing_what_is_rolled_back(patch: pytest.MonkeyPatch) -> None:
    """The messages of every tenth roll-back get out."""
    real = Transactions.decide

    def decide(transactions: Any, transaction_id: int, decision: Decision, **more: Any) -> None:
        one = transactions._book.fresh.get(transaction_id)
        if decision is Decision.ROLLBACK and transaction_id % 10 == 0 and one is not None:
            halves = transactions._kernel.halves
            halves.release(halves.gather(), one.held(), "")
        real(transactions, transaction_id, decision, **more)

    patch.setattr(Transactions, "decide", decide)


MUTANTS: Final = {broken.__name__: broken for broken in (
    without_fdatasync, without_sync_of_folders, without_sync_of_kept_frames, answering_before_the_sync,
    with_a_frame_left_out_of_replay, without_cutting_off_what_is_torn, without_moving_state,
    without_new_starts_of_partitions, without_deletions_of_copied_keys, without_producers_states,
    without_the_idempotency_window, without_retained_values_that_left_memory,
    with_positions_written_before_the_entries, acknowledging_over_mqtt_at_once, answering_kafka_before_it_is_stored,
    without_saying_what_was_delivered, without_the_timers_of_a_replay, recalling_without_taking_off_the_timer,
    without_pages_of_leases, without_floors_of_leases, without_copies_of_dead_letters,
    answering_acks_before_they_are_stored, without_keys_that_are_taken_at_a_start,
    forgetting_which_leases_run_at_a_start, without_the_ends_of_transactions, without_moving_what_stays_undecided,
    answering_decisions_before_they_are_stored, refusing_by_what_is_not_stored, reading_what_is_about_to_change,
    without_checks_in_the_log, without_what_is_open_at_a_start, committing_without_offsets,
    without_dead_letters_of_silence, keeping_topics_that_a_full_disk_refused, taking_back_topics_that_are_durable,
    making_refused_topics_anew_unasked, committing_what_is_rolled_back,)}


@pytest.fixture(scope="session")
def plain() -> Iterator[subprocess.Popen[str]]:
    """A process on the plain files, which forks for each name that it reads: see `take_out`."""
    asked = f"from {__name__} import take_out; take_out()"
    with subprocess.Popen([sys.executable, "-c", asked], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_promise_is_noticed(plain: subprocess.Popen[str], name: str) -> None:
    """In a process on the plain files: what is compiled calls its own directly, and nothing of it can be replaced."""
    assert plain.stdin is not None and plain.stdout is not None
    plain.stdin.write(f"{name}\n")
    plain.stdin.flush()
    assert json.loads(plain.stdout.readline()) == ""


def take_out() -> None:
    """Say of each mutant named on standard input what went wrong: nothing, where the simulator fails."""
    for line in sys.stdin:
        reading, writing = os.pipe()
        if (pid := os.fork()) == 0:
            wrong = ""
            try:
                require_failure(MUTANTS[line.strip()])
            except BaseException:
                wrong = traceback.format_exc()
            os.write(writing, wrong.encode()[:4096])
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answer:
            wrong = answer.read()
        os.waitpid(pid, 0)
        print(json.dumps(wrong), flush=True)


def require_failure(broken: Patch) -> None:
    """The simulator fails with this promise taken out, at one of the seeds at least."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Failure):
        broken(patch)
        for seed in (NOTICED_BY.get(broken.__name__, 1), *SEEDS_TO_NOTICE):
            simulate(seed, 120)
