"""Messages for later in the simulator: a plan's steps that schedule and recall, and whether the hub kept its word.

    early      delivered before its time
    late       due for long, the hub at rest, and not there
    doubled    delivered twice, or more often than it repeats
    recalled   delivered though a recall was answered
    lost       acknowledged, not recalled, and nowhere; or what became of it is forgotten within a day of hub time,
               which jumps by decades where a start finds the wall clock set from 1970 to now
    disorder   of two that waited together the later one came first; not where the wall clock was set back behind a time
               that had come before the other was told to wait
    moved      delivered under another id than was told

They go to a topic of a tenant of their own, so that `checker`, which knows what was sent when, need not know of them.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gatehouse.kernel.errors import AlreadyDelivered, KeptFull, StorageFull, UnknownScheduled
from gatehouse.kernel.message import NOW, Fetched, Record, Stored, When
from gatehouse.kernel.records.batch import NO_HEADERS, records_of
from gatehouse.kernel.scheduling.plan import REMEMBERED_MS
from gatehouse.kernel.scheduling.schedule_records import Fate, Pending, Settled
from tests.simulation.checker import Broken
from tests.simulation.clients import SCHEDULED

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

TENANT: Final = "later"
DELAYS_MS: Final = (0, 1, 5, 300, 1_500, 4_000, 20_000, 45_000)
REPEAT: Final = "every 7s; count=3"
REPEATS: Final = 3
LATE_MS: Final = 5_000
RETRIED_MS: Final = 2_000             # after this what the disk refused has been tried again
COMPARED: Final = 30                  # messages of a partition, each with those before it


class Later:
    """One message for later."""

    def __init__(self, number: int, due_ms: int, by_wall: bool, now_ms: int, repeats: bool) -> None:
        self.number = number
        self.due_ms = due_ms                     # by the wall clock, where its sender named the time;
        self.by_wall = by_wall                   # else by hub time
        self.repeats = repeats
        self.sent_ms = now_ms                    # by the same clock
        self.id: int | None = None               # told; then it must be delivered, or recalled
        self.told_ms = 0
        self.told_at = 0                         # which look at the clock was the last before
        self.came_at = 0                         # which look saw that its time had come, by the wall clock; 0: none yet
        self.waited_ms = 0                       # by hub time: it waited still
        self.refused = False
        self.asked = False                       # to recall it
        self.recalled = False
        self.unknown = False                     # said the answer to a recall
        self.seen: set[int] = set()              # offsets: all its deliveries are in one partition

    def on_stored(self, stored: list[Stored]) -> None:
        """Recalls of it, in one life of the hub."""
        for answer in stored:
            if answer.error is None:
                self.recalled = True
            elif isinstance(answer.error, UnknownScheduled):
                self.unknown = True
            elif not isinstance(answer.error, (AlreadyDelivered, StorageFull)):
                raise Broken(f"{self.number} cannot be recalled: {answer.error!r}")


class Call:
    """The owner of one call."""

    def __init__(self, messages: list[Later], scheduled: Scheduled) -> None:
        self._messages = messages
        self._scheduled = scheduled

    def on_stored(self, stored: list[Stored]) -> None:
        for answer in stored:
            if answer.error is not None:
                for one in self._messages:
                    one.refused = True
                continue
            for one, (_, _, message_id) in zip(self._messages, answer.positions, strict=True):
                self._scheduled.waits(one, message_id)


class Scheduled:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._messages: list[Later] = []
        self._ids: set[int] = set()
        self._refused = (0, 0)                   # flushes, and when that was seen
        self._start = 0                          # of the partition: what was before it is dropped
        self._looks = 0                          # at the clock
        self._by_wall: list[Later] = []          # whose times have not been seen to come

    @property
    def _now_ms(self) -> int:
        return self._simulation.hub.world.loop.now_ms()

    def _told_ms(self) -> int:
        """Not before, by either clock."""
        loop = self._simulation.hub.world.loop
        return max(loop.now_ms(), loop.wall_ms())

    def note(self) -> None:
        """Look at the wall clock: whose time has come may be on its way, also if the clock is set back now."""
        self._looks += 1
        wall_ms = self._simulation.hub.world.loop.wall_ms()
        for later in self._by_wall:
            if later.due_ms <= wall_ms:
                later.came_at = self._looks
        self._by_wall = [later for later in self._by_wall if not later.came_at]

    def waits(self, later: Later, message_id: int) -> None:
        if message_id in self._ids:
            raise Broken(f"the id {message_id} was given twice")
        self._ids.add(message_id)
        later.id, later.told_ms, later.told_at, later.waited_ms = message_id, self._told_ms(), self._looks, self._now_ms

    # ---- steps

    def schedule(self, key: int, delay: int, count: int, repeat: int) -> None:
        kernel, now_ms = self._simulation.hub.kernel, self._now_ms
        placement = kernel.place(f"{SCHEDULED}{key % 3}", tenant=TENANT)
        repeats = repeat % 6 == 0
        by_wall = repeat % 4 == 1
        sent_ms = self._simulation.hub.world.loop.wall_ms() if by_wall else now_ms
        batch: list[Later] = []
        whens: list[When] = []
        for i in range(1 + count % 5):
            delay_ms = DELAYS_MS[(delay + i * i) % len(DELAYS_MS)]
            batch.append(Later(len(self._messages), sent_ms + delay_ms, by_wall, sent_ms, repeats))
            self._messages.append(batch[-1])
            if by_wall:
                self._by_wall.append(batch[-1])
            due = (sent_ms + delay_ms, 0) if by_wall else (0, delay_ms)
            whens.append(When(due[0], REPEAT if repeats else "", due[1]) if delay_ms or repeats else NOW)
        size = (10, 100, 3_000)[count % 3]
        messages = [(placement, b"%d:" % one.number + b"x" * size, NO_HEADERS, 1, 0) for one in batch]
        try:
            kernel.schedule(messages, whens, Call(batch, self))
        except KeptFull:
            for one in batch:
                one.refused = True

    def recall(self, which: int, *_: int) -> None:
        waiting = [one for one in self._messages if one.id is not None and not one.recalled
                   and one.due_ms > one.sent_ms]
        if waiting:
            one = waiting[which % len(waiting)]
            one.asked = True
            self._simulation.hub.kernel.scheduling.recall(one.id or 0, TENANT, one)

    # ---- checks

    def check(self, *, rests: bool) -> None:
        """`rests`: the hub has nothing left to do, and its disk is not full."""
        kernel = self._simulation.hub.kernel
        refused = kernel.statistics()["refused_flushes_total"]
        if refused != self._refused[0]:
            self._refused = refused, self._now_ms
        rests = rests and self._now_ms > self._refused[1] + RETRIED_MS
        while True:                              # reading may let a flush be applied: then once more
            before = kernel.statistics()["flushes_total"]
            partitions = self._read()
            shown = {one.number: self._show(one.id) for one in self._messages if one.id is not None}
            if kernel.statistics()["flushes_total"] == before:
                break
        for records in partitions:
            self._see(records)
        for one in self._messages:
            if one.id is not None:
                self._compare(one, shown[one.number], rests)

    def _see(self, records: list[Record]) -> None:
        order: list[Later] = []
        for offset, timestamp_ms, _, value, _, _, message_id in records:
            one = self._messages[int((value or b"").partition(b":")[0])]
            one.seen.add(offset)
            if one.refused:
                raise Broken(f"{one.number} was refused and is delivered")
            if one.by_wall and timestamp_ms < one.due_ms and one.due_ms > one.sent_ms:
                raise Broken(f"early: {one.number} was due at {one.due_ms}, came at {timestamp_ms}")
            if len(one.seen) > (REPEATS if one.repeats else 1):
                raise Broken(f"doubled: {one.number} is at {sorted(one.seen)}")
            if not one.repeats and one.id not in (None, message_id):
                raise Broken(f"moved: {one.number} has id {one.id}, came as {message_id}")
            if one.repeats or one.due_ms <= one.sent_ms:
                continue
            for before in order[-COMPARED:]:
                if one.by_wall == before.by_wall and one.due_ms < before.due_ms and one.id is not None \
                        and one.told_ms < one.due_ms and not 0 < before.came_at <= one.told_at:
                    raise Broken(f"disorder: {before.number}, due at {before.due_ms}, came before {one.number}, due at "
                                 f"{one.due_ms}")
            order.append(one)

    def _compare(self, one: Later, what: Pending | Settled | None, rests: bool) -> None:
        count, dropped = len(one.seen), self._start > 0
        if one.due_ms <= one.sent_ms and not one.repeats:            # at once: nothing was scheduled
            if not count and not dropped:
                raise Broken(f"lost: {one.number} was appended at once and is not there")
            return
        if what is None:
            if not self._may_be_forgotten(one):
                raise Broken(f"lost: {one.number} is unknown")
            return
        if one.unknown:
            raise Broken(f"{one.number} was unknown, and is known")
        if isinstance(what, Pending):
            one.waited_ms = self._now_ms
            if one.recalled:
                raise Broken(f"recalled: {one.number} waits still")
            loop = self._simulation.hub.world.loop
            late_ms = (loop.wall_ms() if what.by_wall else loop.now_ms()) - what.due_ms
            if rests and late_ms > LATE_MS:
                raise Broken(f"late: {one.number} has been due for {late_ms} ms")
            moved = what.by_wall != one.by_wall or what.due_ms < one.due_ms
            if moved or what.due_ms > one.due_ms and not one.repeats:
                raise Broken(f"{one.number} is due at {one.due_ms}, and waits for {what.due_ms}")
        elif what.fate is Fate.RECALLED:
            one.recalled = True                                      # the answer may not have come
        elif one.recalled:
            raise Broken(f"recalled: {one.number} is delivered all the same")
        if count > what.times or count < what.times and not dropped:
            raise Broken(f"{one.number} was delivered {what.times} times, and is there {count} times")

    def _may_be_forgotten(self, one: Later) -> bool:
        """It was settled at some time, and a day has passed since it was known to wait."""
        settled = one.asked or self._start > 0 or len(one.seen) == (REPEATS if one.repeats else 1)
        return settled and self._now_ms - one.waited_ms >= REMEMBERED_MS

    def _show(self, message_id: int | None) -> Any:
        """As it is stored: what is shown is wall time."""
        found: list[Pending | Settled | None] = []
        self._simulation.hub.kernel.scheduling._queries._find(message_id or 0, found.append)
        self._wait_for(found)
        return found[0]

    def _read(self) -> list[list[Record]]:
        """Partition by partition."""
        topic = self._simulation.hub.kernel.topic(SCHEDULED[:-1], TENANT)
        return [self._read_partition(partition_id)
                for partition_id in topic.partition_ids()] if topic is not None else []

    def _read_partition(self, partition_id: int) -> list[Record]:
        kernel = self._simulation.hub.kernel
        records: list[Record] = []
        at, high = kernel.bounds(partition_id)
        self._start = max(self._start, at)
        while at < high:
            answers: list[Fetched] = []
            kernel.fetch([(partition_id, at, 1 << 30)], 1 << 30, answers.extend)
            self._wait_for(answers)
            pieces = answers[0].pieces
            if not pieces:                                           # retention went on meanwhile
                return self._read_partition(partition_id)
            records += [record for piece in pieces for record in records_of(piece) if record[0] >= at]
            at = pieces[-1].first_offset + pieces[-1].count
        return records

    def _wait_for(self, answers: list[Any]) -> None:
        world = self._simulation.hub.world
        while not answers and (world.reader_worker.step() or world.loop.step()):
            pass
