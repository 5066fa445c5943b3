"""Runs a plan against the real kernel, crashes it, starts it again, and checks what it holds against what it said.

    simulation = Simulation(make_plan(seed, length))
    simulation.run()                        # raises Broken, or whatever went wrong

Everything that is random comes from the seed, per step, so leaving out a step does not change what the others do.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from gatehouse.kernel.log.log import LogFailed, LogFull
from gatehouse.kernel.state.state import Kind
from gatehouse.kernel.write.idempotency import decode_answer
from tests.simulation.assigned import AssignedMembers
from tests.simulation.checker import Broken, Ledger, difference
from tests.simulation.clients import Client, Producer
from tests.simulation.consumers import ConsumerMembers
from tests.simulation.definitions import GROUPS, Definitions
from tests.simulation.disk import BROKEN, FULL, Crash, CrashAt, CrashKind
from tests.simulation.doors import Doors
from tests.simulation.hub import SimHub
from tests.simulation.leasing import Leasing
from tests.simulation.plan import Plan, Step
from tests.simulation.reading import Reading
from tests.simulation.retaining import Retaining
from tests.simulation.scheduled import Scheduled
from tests.simulation.sleepers import Sleepers
from tests.simulation.traffic import Traffic
from tests.simulation.transacting import Transacting

STALL_MS: Final = 3_000                     # the longest that work in progress waits
STARTS: Final = 5                           # a start that crashes or finds the disk full is tried again this often
BOOTED_MS: Final = 60_000                   # what a machine says that boots without a clock
NOW_MS: Final = 1_700_000_000_000
YEAR_2000_MS: Final = 946_684_800_000
SET_MS: Final = (-3_600_000, 3_600_000, -1_000, -40_000, 40_000, 700)
ADVANCES_MS: Final = (10, 600, 2_500, 11_000, 31_000)
RESTARTED_MS: Final = 15_000                # the longest that two starts take, however often they are tried
PLENTY_BYTES: Final = 1 << 60
FLIPPED: Final = 4                          # at a crash, one header of a segment in so many has a bit flipped
HEADER_BYTES: Final = 32                    # of a segment

_DURABLE_STATE: Final = (Kind.COUNTERS, Kind.TOPIC, Kind.PRODUCER, Kind.OFFSET, Kind.IDEMPOTENCY,
                         Kind.RETAINED, Kind.HALF, Kind.TRANSACTION, Kind.MEMBERS, Kind.SUBSCRIPTION, Kind.FLIGHT,
                         Kind.RECEIVED, Kind.CONSUMER_GROUP, Kind.CONSUMER_MEMBER)


class Simulation:
    """`crash_at` and `crash_kind` put one more crash at an operation of the disk."""

    def __init__(self, plan: Plan, crash_at: CrashAt | None = None, crash_kind: CrashKind | None = None) -> None:
        self.plan = plan
        self.hub = SimHub(plan.settings, plan.seed)
        self.hub.disk.crash_at = crash_at
        self.ledger = Ledger(plan.settings, self._hub_ms)
        self.producer_ids: set[int] = set()
        self.producers: list[Producer] = []
        self.traffic = Traffic(self)
        self.reading = Reading(self)
        self.definitions = Definitions(self)
        self.retaining = Retaining(self)
        self.doors = Doors(self)
        self.scheduled = Scheduled(self)
        self.leasing = Leasing(self)
        self.transacting = Transacting(self)
        self.assigned = AssignedMembers(self)
        self.consumers = ConsumerMembers(self)
        self.sleepers = Sleepers(self)
        self.hub.network = self.doors.step
        self.hub.after_step = self.after_step
        self.hub.after_taking_back = self.definitions.topics_found
        self.done: list[Step] = []
        self._crash_kind = crash_kind
        self._flips = 0
        self._random = Random(f"start {plan.seed}")
        self._parts = (self, self.definitions, self.reading, self.traffic, self.retaining, self.doors, self.scheduled,
                       self.leasing, self.transacting, self.assigned, self.consumers, self.sleepers)

    # ---- the run

    def run(self) -> None:
        self._guarded(self._start)
        for number, step in enumerate(self.plan.steps):
            self.done.append(step)
            self._random = Random(f"{self.plan.seed} {number}")
            self._guarded(partial(self.play, step))
        self._random = Random(f"end {self.plan.seed}")
        self._guarded(self._finish)

    def play(self, step: Step) -> None:
        verb: Callable[..., None] = next(
            getattr(part, step.verb) for part in self._parts if step.verb in vars(type(part)))
        verb(*step.numbers)
        self.note()

    def after_step(self) -> None:
        self.definitions.note()
        self.assigned.note()
        self.scheduled.note()

    def note(self) -> None:
        """Remember what may have changed."""
        self.after_step()
        self.ledger.log_end = self.hub.log.end()
        self.ledger.largest_segment = max(
            self.ledger.largest_segment, *[segment.size_bytes for segment in self.hub.log.segments()])
        for topic in self.hub.kernel.topics():
            if topic.settings.retention_ms is not None:
                for partition_id in topic.partition_ids():
                    known = self.ledger.topic_retention_ms.get(partition_id, topic.settings.retention_ms)
                    self.ledger.topic_retention_ms[partition_id] = min(known, topic.settings.retention_ms)

    def _hub_ms(self, append_ms: int) -> int:
        """Of what was stored lately; 0 where append time stands still and does not say."""
        loop = self.hub.world.loop
        return append_ms - loop.wall_ms() + loop.now_ms() if append_ms <= loop.wall_ms() else 0

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except (Crash, LogFull, LogFailed, OSError):         # the last three at a start
            self._crashed(self._crash_kind or self._some_kind())
            self._restart()

    def _some_kind(self) -> CrashKind:
        return "kill" if self._random.randrange(2) else "power"

    def _finish(self) -> None:
        self.hub.disk.space_bytes = PLENTY_BYTES
        self.settle()
        self.hub.advance(max(ADVANCES_MS))                   # whatever waits for its time comes by then, or repeats
        self.settle()
        self.hub.advance(max(ADVANCES_MS))
        self.settle()
        self.check()
        self.transacting.check_end()
        self.leasing.drain()
        self.sleepers.drain()
        self.lose_index()

    # ---- lives

    def _start(self) -> None:
        self.hub.start()
        self.clients = [Client(self.ledger, self.refused, self._has_partition) for _ in range(3)]
        self.reading.begin()
        self.doors.begin()
        self.transacting.begin()

    def _has_partition(self, partition_id: int) -> bool:
        return any(partition_id in topic.partition_ids() for topic in self.hub.kernel.topics())

    def refused(self) -> None:
        """The disk was full, and what was not durable is taken back; topics were looked at before anybody heard."""
        self.definitions.offsets_found()
        self.assigned.found()

    def _crashed(self, kind: CrashKind) -> None:
        self.doors.end()
        self.ledger.crashed()
        self.leasing.crashed()
        self.assigned.crashed()
        self.consumers.crashed()
        self.sleepers.crashed()
        self.hub.crash(kind)
        self._flip_headers()

    def _flip_headers(self) -> None:
        """A header adds nothing to what the frames say: whatever happens to it, nothing may be lost. It has random
        numbers of its own, so that plans are what they were without it."""
        self._flips += 1
        random = Random(f"flips {self.plan.seed} {self._flips}")
        for folder in ("log", "kept"):
            for name in self.hub.disk.names(folder):
                if not random.randrange(FLIPPED):
                    self.hub.disk.flip_header(f"{folder}/{name}", random.randrange(HEADER_BYTES * 8))

    def _restart(self) -> None:
        for _ in range(STARTS):
            try:
                self._start()
                self.definitions.found()
                self.assigned.found()
                self.check()
                return
            except Crash:
                self._crashed(self._some_kind())
            except (LogFull, LogFailed, OSError):
                self.hub.disk.space_bytes = PLENTY_BYTES
                self._crashed("kill")
        raise Broken("the hub does not start")

    # ---- steps; each takes the four numbers of its plan

    def run_some(self, steps: int, *_: int) -> None:
        self.hub.run(self._random, steps % 40)

    def settle(self, *_: int) -> None:
        self.hub.settle(self._random)
        self.reading.check()
        self.doors.check()
        rests = self.hub.disk.space_bytes == PLENTY_BYTES
        self.scheduled.check(rests=rests)
        self.transacting.check(rests=rests)

    def advance(self, which: int, steps: int, *_: int) -> None:
        """Time goes on; what was under way has ended long before, as nothing takes the hub seconds."""
        by_ms = ADVANCES_MS[which % len(ADVANCES_MS)]
        if by_ms > STALL_MS:
            self.settle()
        self.hub.advance(by_ms)
        self.hub.run(self._random, steps % 30)

    def set_clock(self, which: int, later: int, steps: int, _: int) -> None:
        """By an hour or less, to 1970 or from there to now; while the hub runs, or before its next start."""
        wall_ms = self.hub.world.loop.wall_ms()
        by_ms = SET_MS[which % (len(SET_MS) + 1)] if which % (len(SET_MS) + 1) < len(SET_MS) else \
            BOOTED_MS - wall_ms if wall_ms > YEAR_2000_MS else NOW_MS - wall_ms
        if later % 2:
            self.hub.set_by_ms = by_ms
        else:
            self.hub.world.loop.step_wall(max(-wall_ms, by_ms))
            self.hub.run(self._random, steps % 20)

    def stop(self, *_: int) -> None:
        self.settle()
        self.doors.end()
        self.hub.stop(self._random)
        self.leasing.crashed()
        self.assigned.crashed()
        self.consumers.crashed()
        self.sleepers.crashed()
        self._restart()

    def kill(self, *_: int) -> None:
        self._crashed("kill")
        self._restart()

    def cut_power(self, *_: int) -> None:
        self._crashed("power")
        self._restart()

    def fill_disk(self, left_bytes: int, steps: int, *_: int) -> None:
        """Full for a while."""
        disk = self.hub.disk
        disk.space_bytes = disk.used_bytes() + left_bytes % 3_000
        self._publish_some(steps % 30)
        disk.space_bytes = PLENTY_BYTES

    def break_disk(self, which: int, after: int, steps: int, _: int) -> None:
        """One operation fails, some operations from now; whatever that leads to."""
        disk = self.hub.disk
        disk.faults[disk.operations + 1 + after % 12] = (BROKEN, FULL)[which % 2]
        self._publish_some(steps % 40)

    def _publish_some(self, steps: int) -> None:
        for _ in range(3):
            self.traffic.publish(*[self._random.randrange(1 << 16) for _ in range(4)])
            self.note()
            self.hub.run(self._random, steps)

    def lose_index(self, *_: int) -> None:
        """With and without the index the hub holds the same, if it was not away for long by its clock."""
        self.hub.set_by_ms = 0
        self.hub.settle(self._random)
        self.note()
        answered_ms = max(self.hub.world.loop.now_ms() - self.plan.settings.idempotency_ms + RESTARTED_MS,
                          self._too_many_ms())
        before = self.dump(answered_ms)
        self._crashed(self._some_kind())
        self._restart()
        kept = self.dump(answered_ms)
        if kept != before:
            raise Broken(f"a crash at rest changed {difference(before, kept)}")
        self._crashed("kill")
        self.hub.store.delete_folder()
        self._restart()
        rebuilt = self.dump(answered_ms)
        if rebuilt != before:
            raise Broken(f"building the index anew changed {difference(before, rebuilt)}")

    def _too_many_ms(self) -> int:
        """When the newest of the idempotency keys was answered that are too many; 0 where none are. They leave the
        window with the next frame, which may be one of a start."""
        answered_ms = sorted(decode_answer(value).stored_ms for value in
                             self.hub.kernel._idempotency._window._answers.values())
        excess = len(answered_ms) - self.plan.settings.max_idempotency_keys
        return answered_ms[excess - 1] if excess > 0 else 0

    def check(self, *_: int) -> None:
        """Read everything."""
        self.ledger.log_end = self.hub.log.end()
        self.ledger.check(self.reading.read_all(), self.hub.world.loop.now_ms())
        self.retaining.check()
        self.assigned.check()
        self.consumers.check()
        self.scheduled.check(rests=False)
        self.transacting.check(rests=False)

    def dump(self, answered_ms: int) -> dict[str, object]:
        """Everything that a start must find again, at rest. Idempotency keys answered before `answered_ms` may leave
        the window with any frame."""
        kernel = self.hub.kernel
        state = sorted((kind, key, value) for kind in _DURABLE_STATE for key, value in kernel._state.scan(kind)
                       if kind != Kind.IDEMPOTENCY or decode_answer(value).stored_ms > answered_ms)
        return {"topics": self.definitions.now(), "partitions": self.reading.read_all(), "state": state,
                "offsets": {group: kernel.groups.committed(group) for group in GROUPS},
                "idempotency": {key: value for key, value in kernel._idempotency._window._answers.items()
                                if decode_answer(value).stored_ms > answered_ms}}
