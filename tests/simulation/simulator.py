"""Runs a plan against the real kernel, crashes it, starts it again, and checks what it holds against what it said.

    simulation = Simulation(make_plan(seed, length))
    simulation.run()                        # raises Broken, or whatever went wrong

Everything that is random comes from the seed, per step, so leaving out a step does not change what the others do.
"""
from __future__ import annotations

from random import Random
from typing import Final

from kernel.batch import records_of
from kernel.errors import TopicExists, UnknownTopic
from kernel.frame import StateRecord
from kernel.log import LogFailed, LogFull
from kernel.message import Fetched, Record, Stored
from kernel.state import Kind
from kernel.topics import Topic, TopicSettings, encode_topic
from tests.simulation.checker import Attempt, Broken, Ledger
from tests.simulation.clients import Client, Listener, Producer
from tests.simulation.definitions import History
from tests.simulation.disk import BROKEN, FULL, Crash, CrashAt, CrashKind
from tests.simulation.hub import SimHub
from tests.simulation.plan import Plan, Step
from tests.simulation.traffic import TOPICS, Traffic

GROUPS: Final = 2
STALL_MS: Final = 3_000                     # the longest that work in progress waits
STARTS: Final = 5                           # a start that crashes or finds the disk full is tried again this often

Queues = dict[int, tuple[int, int, list[Record]]]


class Simulation:
    def __init__(self, plan: Plan, crash_at: CrashAt | None = None, crash_kind: CrashKind | None = None) -> None:
        self.plan = plan
        self.hub = SimHub(plan.settings, plan.seed)
        self.hub.disk.crash_at = crash_at
        self.ledger = Ledger(plan.settings)
        self.topics: History[tuple[bytes, ...]] = History("topics", ())
        self.offsets: dict[tuple[str, int], History[tuple[int, bytes] | None]] = {}
        self.producer_ids: set[int] = set()
        self.producers: list[Producer] = []
        self.listeners: list[Listener] = []
        self.traffic = Traffic(self)
        self.done: list[Step] = []
        self._crash_kind = crash_kind
        self._random = Random(f"start {plan.seed}")

    # ---- the run

    def run(self) -> None:
        self._guarded(self._start)
        for number, step in enumerate(self.plan.steps):
            self.done.append(step)
            self._random = Random(f"{self.plan.seed} {number}")
            self._guarded(lambda step=step: self.do(step))  # type: ignore[misc]
        self._random = Random(f"end {self.plan.seed}")
        self._guarded(self._finish)

    def _guarded(self, act: object) -> None:
        try:
            act()  # type: ignore[operator]
        except (Crash, LogFull, LogFailed, OSError):         # the last three at a start
            self._crashed(self._crash_kind or self._random.choice(("kill", "power")))
            self._restart()

    def _finish(self) -> None:
        self.hub.disk.space_bytes = 1 << 60
        self.hub.settle(self._random)
        self._listeners_check()
        self.check()
        self.lose_index()

    def _start(self) -> None:
        self.hub.start()
        self.clients = [Client(self.ledger, self._refused) for _ in range(3)]
        self.traffic.begin()
        self.listeners.clear()

    def _crashed(self, kind: CrashKind) -> None:
        self.ledger.crashed()
        self.hub.crash(kind)

    def _restart(self) -> None:
        for _ in range(STARTS):
            try:
                self._start()
                self._found()
                return
            except Crash:
                self._crashed(self._random.choice(("kill", "power")))
            except (LogFull, LogFailed, OSError):
                self.hub.disk.space_bytes = 1 << 60
                self._crashed("kill")
        raise Broken("the hub does not start")

    def _found(self) -> None:
        """A new life: what is there, against what may be."""
        self.topics.found(self.topics_now())
        for (group, queue_id), history in self.offsets.items():
            if self.topic_of(queue_id) is not None:
                history.found(self.hub.kernel.committed(group).get(queue_id))
        self.check()

    def _refused(self) -> None:
        """The disk was full: everything that was not durable is taken back."""
        self.topics.found(self.topics_now())
        for (group, queue_id), history in self.offsets.items():
            if self.topic_of(queue_id) is not None:
                history.found(self.hub.kernel.committed(group).get(queue_id))

    # ---- steps

    def do(self, step: Step) -> None:
        a, b, c, d = step.numbers
        known = {
            "run": lambda: self.hub.run(self._random, a % 40), "settle": self.settle,
            "advance": lambda: self.advance((10, 600, 2_500, 11_000, 31_000)[a % 5], b % 30),
            "create_topic": lambda: self.create_topic(a, b, c), "change_topic": lambda: self.change_topic(a, b, c),
            "delete_topic": lambda: self.delete_topic(a), "commit": lambda: self.commit(a, b, c),
            "subscribe": lambda: self.subscribe(b), "unsubscribe": lambda: self.unsubscribe(a),
            "fetch": lambda: self.fetch(a, b, c, d), "check": self.check, "stop": self.stop,
            "kill": lambda: self.crash("kill"), "cut_power": lambda: self.crash("power"), "lose_index": self.lose_index,
            "fill_disk": lambda: self.fill_disk(a % 3_000, b % 30),
            "break_disk": lambda: self.break_disk(a, b % 12, c),
        }.get(step.verb)
        if known is None:
            getattr(self.traffic, step.verb)(*step.numbers)
        else:
            known()
        self.note()

    def note(self) -> None:
        """Remember what may have changed."""
        self.topics.note(self.topics_now())
        self.ledger.log_end = self.hub.log.end()
        self.ledger.largest_segment = max(
            self.ledger.largest_segment, *[segment.size_bytes for segment in self.hub.log.segments()])
        for topic in self.hub.kernel.topics():
            if topic.settings.retention_ms is not None:
                for queue_id in topic.queue_ids():
                    known = self.ledger.topic_retention_ms.get(queue_id, topic.settings.retention_ms)
                    self.ledger.topic_retention_ms[queue_id] = min(known, topic.settings.retention_ms)

    def settle(self) -> None:
        self.hub.settle(self._random)
        self._listeners_check()

    def advance(self, by_ms: int, steps: int) -> None:
        """Time goes on; what was under way has ended long before, as nothing takes the hub seconds."""
        if by_ms > STALL_MS:
            self.settle()
        self.hub.advance(by_ms)
        self.hub.run(self._random, steps)

    def stop(self) -> None:
        self.settle()
        self.hub.stop(self._random)
        self._restart()

    def crash(self, kind: CrashKind) -> None:
        self._crashed(kind)
        self._restart()

    def fill_disk(self, left_bytes: int, steps: int) -> None:
        """Full for a while."""
        disk = self.hub.disk
        disk.space_bytes = disk.used_bytes() + left_bytes
        for _ in range(3):
            self.traffic.publish(*(self._random.randrange(1 << 16) for _ in range(4)))
            self.note()
            self.hub.run(self._random, steps)
        disk.space_bytes = 1 << 60

    def break_disk(self, which: int, after: int, c: int) -> None:
        """One operation fails, some operations from now; whatever that leads to."""
        disk = self.hub.disk
        disk.faults[disk.operations + 1 + after] = (BROKEN, FULL)[which % 2]
        for _ in range(3):
            self.traffic.publish(*(self._random.randrange(1 << 16) for _ in range(4)))
            self.note()
            self.hub.run(self._random, c % 40)

    def lose_index(self) -> None:
        """With and without the index the hub holds the same."""
        self.hub.settle(self._random)
        self.note()
        before = self.dump()
        self.crash(self._random.choice(("kill", "power")))
        kept = self.dump()
        if kept != before:
            raise Broken(f"a crash at rest changed {difference(before, kept)}")
        self._crashed("kill")
        self.hub.store.delete_folder()
        self._restart()
        rebuilt = self.dump()
        if rebuilt != before:
            raise Broken(f"building the index anew changed {difference(before, rebuilt)}")

    # ---- definitions

    def create_topic(self, a: int, b: int, c: int) -> None:
        client = self.clients[a % 3]
        mark = self.topics.mark + 1
        asking = client.ask(None, lambda stored: self._defined(stored, mark))
        try:
            self.hub.kernel.create_topic(TOPICS[a % len(TOPICS)], queues=1 + b % 3, settings=self._settings(c), owner=client,
                                         token=asking)
        except TopicExists:
            client.take_back(asking)
        self.topics.note(self.topics_now())

    def change_topic(self, a: int, b: int, c: int) -> None:
        client, name = self.clients[a % 3], TOPICS[a % len(TOPICS)]
        mark = self.topics.mark + 1
        asking = client.ask(None, lambda stored: self._defined(stored, mark))
        try:
            found = self.hub.kernel.topic(name)
            queues = None if found is None else min(6, found.queues + b % 2)
            self.hub.kernel.change_topic(name, queues=queues, settings=self._settings(c), owner=client, token=asking)
        except UnknownTopic:
            client.take_back(asking)
        before = self.topics.mark
        self.topics.note(self.topics_now())
        if self.topics.mark == before:                       # the same once more: nothing to wait for
            asking.told = None

    def _settings(self, c: int) -> TopicSettings:
        return TopicSettings(retention_ms=40_000 if c % 8 == 0 else None, max_message_bytes=150_000 if c % 3 == 0 else None)

    def delete_topic(self, a: int) -> None:
        client = self.clients[a % 3]
        mark = self.topics.mark + 1
        asking = client.ask(None, lambda stored: self._defined(stored, mark))
        try:
            self.hub.kernel.delete_topic(TOPICS[a % len(TOPICS)], owner=client, token=asking)
        except UnknownTopic:
            client.take_back(asking)
        self.topics.note(self.topics_now())

    def _defined(self, stored: Stored, mark: int) -> None:
        if stored.error is None:
            self.topics.acknowledged(mark)

    def topics_now(self) -> tuple[bytes, ...]:
        return tuple(encode_topic(topic) for topic in self.hub.kernel.topics())

    def topic_of(self, queue_id: int) -> Topic | None:
        return next((topic for topic in self.hub.kernel.topics() if queue_id in topic.queue_ids()), None)

    def commit(self, a: int, b: int, c: int) -> None:
        queue_id = self.some_queue(b, c)
        if queue_id is None:
            return
        client, group = self.clients[a % 3], f"group-{a % GROUPS}"
        history = self.offsets.setdefault((group, queue_id), History(f"offset of {group} in {queue_id}", None))
        history.note((c, b"%d" % a))
        mark = history.mark

        def told(stored: Stored) -> None:
            if stored.error is None:
                history.acknowledged(mark)

        self.hub.kernel.commit_offsets(group, {queue_id: (c, b"%d" % a)}, client, client.ask(None, told))

    # ---- reading

    def some_queue(self, a: int, b: int) -> int | None:
        topics = self.hub.kernel.topics()
        if not topics:
            return None
        topic = topics[a % len(topics)]
        return topic.queue_id(b % topic.queues)

    def subscribe(self, b: int) -> None:
        listener = Listener(self.ledger, b)
        self.listeners.append(listener)
        self.hub.kernel.subscribe(listener.filter, listener)

    def unsubscribe(self, a: int) -> None:
        if self.listeners:
            gone = self.listeners.pop(a % len(self.listeners))
            assert self.hub.kernel.unsubscribe(gone.filter, gone)

    def sent(self, attempt: Attempt) -> None:
        """A new attempt is on its way: whoever listens now will hear it."""
        for listener in self.listeners:
            listener.owed.append(attempt)

    def _listeners_check(self) -> None:
        there = {queue_id for topic in self.hub.kernel.topics() for queue_id in topic.queue_ids()}
        for listener in self.listeners:
            listener.check(there)

    def fetch(self, a: int, b: int, c: int, d: int) -> None:
        queue_id = self.some_queue(a, b)
        if queue_id is None:
            return
        start, high = self.hub.kernel.bounds(queue_id)
        offset = start + c % (high - start + 1)

        def on_done(found: list[Fetched]) -> None:
            assert found[0].error is None or self.hub.kernel.bounds(queue_id)[0] > offset, found[0].error
            self._take(queue_id, found[0], offset)

        self.hub.kernel.fetch([(queue_id, offset, 1 + d)], 1 + d, on_done)

    def _take(self, queue_id: int, fetched: Fetched, offset: int) -> list[Record]:
        records = [record for piece in fetched.pieces for record in records_of(piece)]
        for record in records:
            self.ledger.see(queue_id, record)
        return [record for record in records if record[0] >= offset]

    def read_queue(self, queue_id: int) -> tuple[int, int, list[Record]]:
        """Log start, high watermark, all records; nothing else moves meanwhile but what reading needs."""
        kernel = self.hub.kernel
        start, high = kernel.bounds(queue_id)
        records: list[Record] = []
        at = start
        while at < high:
            answers: list[Fetched] = []
            kernel.fetch([(queue_id, at, 1 << 30)], 1 << 30, answers.extend)
            while not answers and (self.hub.world.reader_worker.step() or self.hub.world.loop.step()):
                pass
            if kernel.bounds(queue_id)[0] > start:           # retention went on meanwhile
                return self.read_queue(queue_id)
            fetched, = answers
            if fetched.error is not None or not fetched.pieces:
                raise Broken(f"lost: queue {queue_id} from {start} to {high} cannot be read at {at}: {fetched.error!r}")
            records += self._take(queue_id, fetched, at)
            at = fetched.pieces[-1].first_offset + fetched.pieces[-1].count
        return start, high, [record for record in records if record[0] < high]

    def read_all(self) -> Queues:
        return {queue_id: self.read_queue(queue_id) for topic in self.hub.kernel.topics() for queue_id in topic.queue_ids()}

    def check(self) -> None:
        self.ledger.log_end = self.hub.log.end()
        while True:                                          # reading lets a flush that is done be applied: then once more
            before = self.hub.kernel.statistics()["flushes_total"]
            queues = self.read_all()
            if self.hub.kernel.statistics()["flushes_total"] == before:
                break
        self.ledger.check(queues, self.hub.world.loop.now_ms())

    def dump(self) -> dict[str, object]:
        """Everything that a start must find again, at rest."""
        state = self.hub.kernel.parts.state
        kinds = (Kind.COUNTERS, Kind.TOPIC, Kind.PRODUCER, Kind.OFFSET, Kind.IDEMPOTENCY)
        held = sorted(StateRecord(kind, key, value) for kind in kinds for key, value in state.scan(kind))
        return {"topics": self.topics_now(), "queues": self.read_all(), "state": held,
                "offsets": {f"group-{n}": self.hub.kernel.committed(f"group-{n}") for n in range(GROUPS)},
                "idempotency": dict(self.hub.kernel.parts.window._answers)}


def difference(before: dict[str, object], after: dict[str, object]) -> str:
    """What is only in one of them."""
    found = []
    for name, was in before.items():
        now = after[name]
        if isinstance(was, dict) and isinstance(now, dict):
            was, now = sorted(was.items()), sorted(now.items())
        if isinstance(was, (list, tuple)) and isinstance(now, (list, tuple)):
            was, now = [one for one in was if one not in now], [one for one in now if one not in was]
        if was != now:
            found.append(f"{name}: {was!r} to {now!r}"[:1_000])
    return "; ".join(found)
