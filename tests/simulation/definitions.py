"""Topics and committed offsets: the steps that change them, and what they may be after a crash.

The log is one line of changes, and a crash cuts it somewhere behind the last acknowledged one. So what is found must be
what was there after some change, not before the last that was acknowledged.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from gatehouse.kernel.errors import TopicExists, UnknownTopic
from gatehouse.kernel.message import Stored
from gatehouse.kernel.state.topics import TopicSettings, encode_topic
from tests.simulation.checker import Broken
from tests.simulation.clients import Asking, Client
from tests.simulation.traffic import TOPICS

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

T = TypeVar("T")

GROUPS: Final = ("group-0", "group-1")
MAX_PARTITIONS: Final = 6


class History(Generic[T]):
    """The states that something went through since it was last known for sure."""

    def __init__(self, what: str, first: T) -> None:
        self._what = what
        self._states = [first]
        self._settled = 0            # number of the first state in the list
        self._durable = 0            # number of the last state that was acknowledged

    @property
    def mark(self) -> int:
        """Number of the newest state: give it to `acknowledged` once something that came after it is."""
        return self._settled + len(self._states) - 1

    @property
    def now(self) -> T:
        return self._states[-1]

    def note(self, state: T) -> None:
        if state != self._states[-1]:
            self._states.append(state)

    def acknowledged(self, mark: int) -> None:
        self._durable = max(self._durable, mark)

    def seen(self, state: T) -> None:
        """It must be one of the states since the last that was acknowledged."""
        possible = self._states[max(0, self._durable - self._settled):]
        if state not in possible:
            raise Broken(f"{self._what}: found {state!r}, possible were {possible!r}")

    def found(self, state: T) -> None:
        """After a crash or a refusal: it must be one of the states, and is known for sure now."""
        self.seen(state)
        self._settled = self.mark + 1
        self._durable = self._settled
        self._states = [state]


class Definitions:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._offsets: dict[tuple[str, int], History[tuple[int, bytes] | None]] = {}
        self._version = (0, -1)
        self.topics: History[tuple[bytes, ...]] = History("topics", ())

    def now(self) -> tuple[bytes, ...]:
        return tuple(encode_topic(topic) for topic in self._simulation.hub.kernel.topics())

    def note(self) -> None:
        """Something may have made a topic."""
        version = (self._simulation.hub.starts, self._simulation.hub.kernel._topics.version)
        if version != self._version:
            self._version = version
            self.topics.note(self.now())

    def found(self) -> None:
        """A new life."""
        self.topics_found()
        self.offsets_found()

    def topics_found(self) -> None:
        """A new life, or the disk was full, and topics that are not durable have just been taken back. By the time at
        which a client hears of that, somebody else may have made one anew."""
        self.topics.found(self.now())

    def offsets_found(self) -> None:
        """A new life, or a client hears that the disk was full, and what was not durable is taken back."""
        there = self._simulation.reading.partition_ids()
        for (group, partition_id), history in self._offsets.items():
            if partition_id in there:
                history.found(self._simulation.hub.kernel.groups.committed(group).get(partition_id))

    # ---- steps

    def create_topic(self, name: int, partitions: int, settings: int, _: int) -> None:
        client, asking = self._ask(name)
        try:
            self._simulation.hub.kernel.create_topic(TOPICS[name % len(TOPICS)], partitions=1 + partitions % 3,
                                                     settings=self._settings(settings), owner=client, token=asking)
        except TopicExists:
            client.take_back(asking)
        self.note()

    def change_topic(self, name: int, more: int, settings: int, _: int) -> None:
        kernel, topic = self._simulation.hub.kernel, TOPICS[name % len(TOPICS)]
        found = kernel.topic(topic)
        if found is None:
            return
        client, asking = self._ask(name)
        before = self.topics.mark
        kernel.change_topic(topic, partitions=min(MAX_PARTITIONS, found.partitions + more % 2),
                            settings=self._settings(settings),
                            owner=client, token=asking)
        self.note()
        if self.topics.mark == before:                       # the same once more: nothing to wait for
            asking.told = None

    def delete_topic(self, name: int, *_: int) -> None:
        """What is on its way over Kafka arrives before: its sequences would go on in the next topic of this name."""
        self._simulation.doors.arrive()
        client, asking = self._ask(name)
        try:
            self._simulation.hub.kernel.delete_topic(TOPICS[name % len(TOPICS)], owner=client, token=asking)
        except UnknownTopic:
            client.take_back(asking)
        self.note()

    def _ask(self, client: int) -> tuple[Client, Asking]:
        """A call that brings the next state of the topics."""
        self.note()
        owner, mark = self._simulation.clients[client % 3], self.topics.mark + 1

        def told(stored: Stored) -> None:
            if stored.error is None:
                self.topics.acknowledged(mark)

        return owner, owner.ask(None, told)

    @staticmethod
    def _settings(number: int) -> TopicSettings:
        return TopicSettings(retention_ms=40_000 if number % 8 == 0 else None,
                             max_message_bytes=150_000 if number % 3 == 0 else None)

    def commit(self, who: int, topic: int, partition: int, _: int) -> None:
        partition_id = self._simulation.reading.some_partition(topic, partition)
        if partition_id is None:
            return
        client, group, offset = self._simulation.clients[who % 3], GROUPS[who % len(GROUPS)], (partition, b"%d" % who)
        history = self._offsets.setdefault((group, partition_id), History(f"offset of {group} in {partition_id}", None))
        history.note(offset)
        mark = history.mark

        def told(stored: Stored) -> None:
            if stored.error is None:
                history.acknowledged(mark)

        self._simulation.hub.kernel.groups.commit_offsets(group, {partition_id: offset}, client, client.ask(None, told))
