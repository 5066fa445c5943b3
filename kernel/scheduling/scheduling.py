"""Everything about messages to be delivered later, as the kernel sees it, and how they come in."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from gatehouse.kernel.addresses.placing import Places
from gatehouse.kernel.addresses.routes import STATED, stated
from gatehouse.kernel.backpressure import Backpressure
from gatehouse.kernel.errors import InvalidDelay, KeptFull, QueueFull, StorageFailed, TooManyScheduled
from gatehouse.kernel.groups.group_settings import Queue
from gatehouse.kernel.index.index import Index
from gatehouse.kernel.log.disk_guard import DiskGuard
from gatehouse.kernel.message import Message, Owner, When
from gatehouse.kernel.ports import Loop, Worker
from gatehouse.kernel.receipts import Receipts
from gatehouse.kernel.recorder import Recorder
from gatehouse.kernel.scheduling.book import Book, Sweeping
from gatehouse.kernel.scheduling.delivering import Delivering, Destinations
from gatehouse.kernel.scheduling.queries import Page, Queries, Scheduled
from gatehouse.kernel.scheduling.schedule import parse_schedule
from gatehouse.kernel.scheduling.schedule_records import Pending, due_of, name_of
from gatehouse.kernel.state.state import Clock, StateTable
from gatehouse.kernel.state.topics import Topics
from gatehouse.kernel.write.committer import KEPT_FULL, Appending, Committer
from gatehouse.kernel.write.pending_frame import PendingFrame, Run, check
from gatehouse.kernel.write.pending_frame import Places as RunPlaces

MAX_DELAY_MS: Final = 3_653 * 24 * 3_600_000        # ten years
STATE_BYTES: Final = 200                             # of its state beside value and headers, for the kernel's bound


class Due(NamedTuple):
    """When something falls due, as its records say it."""

    due_ms: int
    by_wall: bool                # by the wall clock, else by hub time
    start_ms: int                # of its repetitions, by the same clock


AT_ONCE: Final = Due(0, False, 0)
"""Due now, and once."""


class Scheduling:
    """All of it, as the kernel sees it. `worker` reads the index."""

    def __init__(self, *, loop: Loop, worker: Worker, index: Index, state: StateTable, topics: Topics, clock: Clock,
                 places: Places, disk_guard: DiskGuard, backpressure: Backpressure, committer: Committer,
                 appending: Appending, max_scheduled: int, fatal: Callable[[str], None],
                 receipts: Receipts, recorder: Recorder | None = None) -> None:
        self._loop = loop
        book = self.book = Book(state, committer, clock.wall_of)
        # hears of a frame first: recalls go before what is due again
        self._queries = Queries(worker=worker, index=index, state=state, clock=clock, book=book, fatal=fatal,
                                recorder=recorder)
        self.destinations = Destinations(places, topics)
        self.delivering = Delivering(loop=loop, worker=worker, index=index, state=state, clock=clock,
                                     committer=committer, backpressure=backpressure, destinations=self.destinations,
                                     book=book, fatal=fatal, receipts=receipts, recorder=recorder)
        self.sweeping = Sweeping(loop=loop, worker=worker, index=index, state=state, book=book, fatal=fatal)
        self._accepting = Accepting(loop=loop, committer=committer, appending=appending, places=places,
                                    disk_guard=disk_guard, book=book, max_scheduled=max_scheduled, receipts=receipts,
                                    recorder=recorder)

    def start(self) -> None:
        """After replay: what fell due meanwhile goes out first, in due order."""
        self.book.load()
        self.delivering.turn()
        self.sweeping.start()

    def stop(self) -> None:
        self.delivering.stop()
        self.sweeping.stop()

    def schedule(self, messages: list[Message], whens: list[When], owner: Owner | None, token: object,
                 idempotency_key: str | None) -> None:
        """See `Kernel.schedule`."""
        self._accepting.schedule(messages, whens, owner, token, idempotency_key)

    def page(self, tenant: str, start: bytes, limit: int, on_done: Callable[[Page | StorageFailed], None]) -> None:
        """What waits, by due time, from b"" or the end of the page before on; a page may be short of its limit."""
        self._queries.page(tenant, start, limit, on_done)

    def show(self, message_id: int, tenant: str, on_done: Callable[[Scheduled | None], None]) -> None:
        """What waits under an id, or what became of it within the last day; None where nothing is known."""
        self._queries.show(message_id, tenant, on_done)

    def recall(self, message_id: int, tenant: str, owner: Owner, token: object = None) -> None:
        """Take back what waits. Answered when that is durable, or with AlreadyDelivered, UnknownScheduled, Stopping.

        What has been recalled already is answered alike. Answers may come in another order than the calls.
        """
        self._queries.recall(message_id, tenant, owner, token)

    def recall_named(self, name: str, tenant: str, owner: Owner, token: object = None) -> None:
        """Take back all that waits under a name, the oldest `RECALLED_AT_ONCE` of it. Answered when that is durable,
        with (0, -1, id) of each; or with UnknownScheduled, Stopping."""
        self._queries.recall_named(name, tenant, owner, token)

    def statistics(self) -> dict[str, int]:
        return {"scheduled": self.book.counts.pending, "scheduled_delivered_total": self.book.delivered}

    def late_ms(self) -> int:
        """How long the next message has been due."""
        clocks = (self.book.timers, self._loop.now_ms()), (self.book.wall_timers, self._loop.wall_ms())
        return max([0, *[now_ms - due_of(timers.keys[0]) for timers, now_ms in clocks if timers.keys]])


class Accepting:
    """Messages that are to be delivered later come in; among them may be some that are due at once."""

    def __init__(self, *, loop: Loop, committer: Committer, appending: Appending, places: Places,
                 disk_guard: DiskGuard, book: Book, max_scheduled: int, receipts: Receipts,
                 recorder: Recorder | None = None) -> None:
        self._receipts = receipts
        self._recorder = recorder
        self._loop = loop
        self._committer = committer
        self._appending = appending
        self._places = places
        self._disk_guard = disk_guard
        self._book = book
        self._max_scheduled = max_scheduled

    def schedule(self, messages: list[Message], whens: list[When], owner: Owner | None, token: object,
                 idempotency_key: str | None) -> None:
        """See `Kernel.schedule`."""
        now_ms, wall_ms = self._loop.now_ms(), self._loop.wall_ms()
        firsts = [first_due(when, now_ms, wall_ms) for when in whens]
        waiting = sum([due is not AT_ONCE for due in firsts])
        if waiting and self._disk_guard.kept_full:
            raise KeptFull(KEPT_FULL)
        if waiting and self._book.counts.pending + waiting > self._max_scheduled:
            raise TooManyScheduled(f"{self._book.counts.pending} messages are waiting for their time already")
        add = partial(self._add, whens, firsts)
        if idempotency_key is not None:
            self._appending.append_once(messages, owner, token, idempotency_key, add, whens=whens)
            return
        self._disk_guard.require()
        pending_frame = self._committer.open_frame()
        if check(messages, self._places.refresh):
            messages = self._places.choose(messages)
        places: RunPlaces = []
        add(pending_frame, messages, places)
        pending_frame.wait(owner, token, places)
        self._committer.note_size()

    def _add(self, whens: list[When], firsts: list[Due], pending_frame: PendingFrame, messages: list[Message],
             places: RunPlaces) -> None:
        self._refuse_full(firsts, messages)
        builder = pending_frame.builder
        waiting: list[Message] = []
        runs: list[Run] = []
        untils: list[int] = []
        apart_ms = self._loop.wall_ms() - self._loop.now_ms()
        for message, when, due in zip(messages, whens, firsts, strict=True):
            if due is AT_ONCE:
                self._receipts.add(pending_frame, [message], places)
                continue
            pending = pending_of(message, due, builder.now_ms, when)
            run = self._book.plan_of(pending_frame).accept(pending)
            places.append((run, 0))
            builder.note_bytes(len(pending.headers) + len(pending.value or b"") + STATE_BYTES)
            waiting.append(message)
            runs.append(run)
            untils.append(due.due_ms - apart_ms if due.by_wall else due.due_ms)
        if self._recorder is not None and waiting:
            self._recorder.on_accepted(pending_frame, waiting, runs, untils)

    def _refuse_full(self, firsts: list[Due], messages: list[Message]) -> None:
        """What is due at once enters at once. Raises KeptFull, QueueFull, with nothing done."""
        at_once = [index for index, due in enumerate(firsts) if due is AT_ONCE]
        if not at_once:
            return
        try:
            self._appending.refuse_full([messages[index] for index in at_once])
        except QueueFull as full:
            raise QueueFull(str(full), at_once[full.index], full.queue) from None


def first_due(when: When, now_ms: int, wall_ms: int) -> Due:
    """When it falls due first. Raises InvalidDelay, InvalidSchedule."""
    schedule = parse_schedule(when.repeat) if when.repeat else None
    by_wall = when.due_ms > 0 or schedule is not None and schedule.names_times
    begin_ms = wall_ms if by_wall else now_ms
    start_ms = when.due_ms or begin_ms + when.delay_ms
    due_ms = start_ms
    if schedule is not None:
        next_ms = schedule._replace(start_ms=start_ms).next_after(max(start_ms, begin_ms) - 1, 0, wall_ms - begin_ms)
        if next_ms is None:
            raise InvalidDelay(f"the repetition {when.repeat!r} never falls due")
        due_ms = next_ms
    if due_ms > begin_ms + MAX_DELAY_MS:
        raise InvalidDelay("a message can wait for ten years at most")
    return Due(due_ms, by_wall, start_ms) if due_ms > begin_ms or schedule is not None else AT_ONCE


def pending_of(message: Message, due: Due, accepted_ms: int, when: When) -> Pending:
    """A message that enters no partition yet."""
    says_address = message[2].find(STATED) >= 0
    to, value, headers, attributes, timestamp_ms = stated(message, message[0]) if says_address else message
    topic, partition = to.topic, to.partition if to.fixed_partition else -1
    if isinstance(to.queue, Queue):
        topic, partition = to.queue.name, to.partition_id - to.queue.first_partition_id
    return Pending(due.due_ms, due.by_wall, accepted_ms, due.start_ms, timestamp_ms, 0, attributes, to.tenant,
                   to.address, topic, to.fixed_topic, to.may_create, to.queue is not None, partition, to.routed, to.key,
                   when.repeat, headers, value, name_of(to.tenant, when.name) if when.name else b"")
