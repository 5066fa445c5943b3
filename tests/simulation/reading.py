"""The reading half of a plan's steps: fetches and live subscriptions; and reading everything there is."""
from __future__ import annotations

from typing import TYPE_CHECKING

from gatehouse.kernel.message import Fetched, Record
from gatehouse.kernel.records.batch import records_of
from gatehouse.kernel.state.topics import Topic
from tests.simulation.checker import Attempt, Broken, Partitions
from tests.simulation.clients import Listener

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation


class Reading:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._listeners: list[Listener] = []

    def begin(self) -> None:
        """A new life of the hub: live subscriptions are gone."""
        self._listeners.clear()

    def partition_ids(self) -> set[int]:
        """Of all topics."""
        return {partition_id for topic in self._simulation.hub.kernel.topics()
                for partition_id in topic.partition_ids()}

    def some_partition(self, topic: int, partition: int) -> int | None:
        topics = self._simulation.hub.kernel.topics()
        if not topics:
            return None
        found = topics[topic % len(topics)]
        return found.partition_id(partition % found.partitions)

    def topic_of(self, partition_id: int) -> tuple[Topic, int]:
        """The topic that has this partition, and the partition's number in it."""
        return next((topic, number) for topic in self._simulation.hub.kernel.topics()
                    for number, one in enumerate(topic.partition_ids()) if one == partition_id)

    # ---- live

    def subscribe(self, _: int, which: int, *__: int) -> None:
        listener = Listener(self._simulation.ledger, which)
        self._listeners.append(listener)
        self._simulation.hub.kernel.subscribe(listener.filter, listener)

    def unsubscribe(self, which: int, *_: int) -> None:
        if self._listeners:
            gone = self._listeners.pop(which % len(self._listeners))
            assert self._simulation.hub.kernel.unsubscribe(gone.filter, gone)

    def sent(self, attempt: Attempt) -> None:
        """A new attempt is on its way: whoever listens now will hear it."""
        for listener in self._listeners:
            listener.owed.append(attempt)
        self._simulation.doors.sent(attempt)

    def check(self) -> None:
        """At rest."""
        there = self.partition_ids()
        for listener in self._listeners:
            listener.check(there)

    # ---- fetch

    def fetch(self, topic: int, partition: int, from_start: int, max_bytes: int) -> None:
        partition_id = self.some_partition(topic, partition)
        if partition_id is None:
            return
        kernel = self._simulation.hub.kernel
        start, high = kernel.bounds(partition_id)
        offset = start + from_start % (high - start + 1)

        def on_done(found: list[Fetched]) -> None:
            assert found[0].error is None or kernel.bounds(partition_id)[0] > offset, found[0].error
            self._take(partition_id, found[0], offset)

        kernel.fetch([(partition_id, offset, 1 + max_bytes)], 1 + max_bytes, on_done)

    def _take(self, partition_id: int, fetched: Fetched, offset: int) -> list[Record]:
        records = [record for piece in fetched.pieces for record in records_of(piece)]
        for record in records:
            self._simulation.ledger.see(partition_id, record)
        return [record for record in records if record[0] >= offset]

    # ---- everything

    def read_partition(self, partition_id: int) -> tuple[int, int, list[Record]]:
        """Log start, high watermark, all records; nothing else moves meanwhile but what reading needs."""
        kernel, world = self._simulation.hub.kernel, self._simulation.hub.world
        start, high = kernel.bounds(partition_id)
        records: list[Record] = []
        at = start
        while at < high:
            answers: list[Fetched] = []
            kernel.fetch([(partition_id, at, 1 << 30)], 1 << 30, answers.extend)
            while not answers and (world.reader_worker.step() or world.loop.step()):
                pass
            if kernel.bounds(partition_id)[0] > start:           # retention went on meanwhile
                return self.read_partition(partition_id)
            fetched, = answers
            if fetched.error is not None or not fetched.pieces:
                raise Broken(f"lost: partition {partition_id} from {start} to {high} cannot be read at {at}: "
                             f"{fetched.error!r}")
            records += self._take(partition_id, fetched, at)
            at = fetched.pieces[-1].first_offset + fetched.pieces[-1].count
        return start, high, [record for record in records if record[0] < high]

    def read_all(self) -> Partitions:
        """Every partition of every topic, all as of one flush."""
        kernel = self._simulation.hub.kernel
        while True:                                          # reading may let a flush be applied: then once more
            before = kernel.statistics()["flushes_total"]
            partitions = {partition_id: self.read_partition(partition_id)
                          for partition_id in sorted(self.partition_ids())}
            if kernel.statistics()["flushes_total"] == before:
                return partitions
