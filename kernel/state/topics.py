"""Topic definitions: names, partitions, settings, each under an id that is never used again.

Pure bookkeeping over state records. A change is made here at once, so that the next message can be placed; its record
goes into the pending frame, and `undo` takes it back where that frame could not be stored.
"""
from __future__ import annotations

import json
import struct
import uuid
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from typing import Final

from gatehouse.kernel.errors import InvalidTopic, TopicExists, UnknownPartition, UnknownTopic
from gatehouse.kernel.ids import first_id, shards_of
from gatehouse.kernel.state.partition_ids import PartitionIds

SLOW: Final = "slow"
FAIL: Final = "fail"
# decision 236
AT_LIMIT: Final = (SLOW, FAIL)

MAX_PARTITIONS: Final = 1_000_000          # of one topic

_COUNTERS = struct.Struct(">QQQ")
_ID = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What may differ per topic and be changed while it is in use; None means the hub's own setting."""

    retention_ms: int | None = field(default=None, metadata={
        "help": "how long messages are kept, in ms; left out: as the hub's `retention_hours` says"})
    retention_bytes: int | None = field(default=None, metadata={
        "help": "how much of a partition is kept at least, in bytes as they are stored; left out: as much as the hub "
                "keeps of everything"})
    max_message_bytes: int | None = field(default=None, metadata={
        "help": "the largest message that is taken; left out: the hub's `max_message_bytes`"})
    message_ttl_ms: int | None = field(default=None, metadata={
        "help": "messages older than so many ms count as expired, for those who are given no expired ones; left out: "
                "none does by its age alone"})
    compact: bool = field(default=False, metadata={
        "help": "the newest message of every key outlives retention; with `retention_ms` or `retention_bytes` beside "
                "it, it goes by those too"})
    delete_retention_ms: int | None = field(default=None, metadata={
        "help": "how long a compacted topic keeps a key's deletion (a null value), in ms; left out: a day, as Kafka"})
    log_append_time: bool = field(default=False, metadata={
        "help": "what Kafka producers send has the time at which it was stored, whatever they say"})
    interpret_headers: bool = field(default=False, metadata={
        "help": "Kafka producers' batches are opened for what their headers ask for (`retain`)"})
    at_limit: str = field(default=SLOW, metadata={
        "choices": AT_LIMIT,
        "help": "what becomes of messages for which a limit has nothing left: `slow`, their sender is slowed down, or "
                "`fail`, they are refused, where the sender's protocol has a word for that"})

    @property
    def keeps_less(self) -> bool:
        """Whether its messages go before those of the hub."""
        return self.retention_ms is not None or self.retention_bytes is not None

    def check(self) -> None:
        """Raises InvalidTopic for values that cannot be."""
        if self.at_limit not in AT_LIMIT:
            raise InvalidTopic(f"at_limit is {' or '.join(AT_LIMIT)}, not {str(self.at_limit)[:40]!r}")
        for name, value in asdict(self).items():
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                raise InvalidTopic(f"{name} must be at least 1, not {value}")


@dataclass(frozen=True, slots=True)
class Topic:
    """A stored stream of several partitions (Kafka's partitions)."""

    id: int
    uuid: bytes
    tenant: str
    name: str
    ranges: tuple[tuple[int, int], ...]          # (first partition id, count), in the order they were added
    settings: TopicSettings
    created_ms: int
    maker: str = ""
    """For whom it counts, see `addresses.makers`; nobody, where an administrator or the hub made it."""

    @property
    def partitions(self) -> int:
        return self.ranges[0][1] if len(self.ranges) == 1 else sum(count for _, count in self.ranges)

    def partition_id(self, partition: int) -> int:
        """The 64-bit id of one partition of the topic. Raises UnknownPartition."""
        first, count = self.ranges[0]                    # where nearly all are
        if 0 <= partition < count:
            return first + partition
        try:
            return PartitionIds(self.ranges)[partition]
        except IndexError:
            raise UnknownPartition(
                f"topic {self.name} has partitions 0 to {self.partitions - 1}, not {partition}") from None

    def partition_ids(self) -> PartitionIds:
        return PartitionIds(self.ranges)


def encode_topic(topic: Topic) -> bytes:
    made = {"maker": topic.maker} if topic.maker else {}
    ranges = [(str(first), count) for first, count in topic.ranges]
    return json.dumps({"id": str(topic.id), "uuid": topic.uuid.hex(), "tenant": topic.tenant, "name": topic.name,
                       "ranges": ranges, "settings": asdict(topic.settings),
                       "created_ms": topic.created_ms, **made}).encode()


def decode_topic(value: bytes) -> Topic:
    read = json.loads(value)                     # ids were numbers once: `int` takes both
    settings = {name: value for name, value in read["settings"].items() if name in TopicSettings.__slots__}
    return Topic(int(read["id"]), bytes.fromhex(read["uuid"]), read["tenant"], read["name"],
                 tuple((int(first), count) for first, count in read["ranges"]), TopicSettings(**settings),
                 read["created_ms"], read.get("maker", ""))


def topic_key(topic_id: int) -> bytes:
    return _ID.pack(topic_id)


def topic_id_of(key: bytes) -> int:
    """The topic that a TOPIC record is about."""
    return int(_ID.unpack(key)[0])


class Topics:
    """All topics of the hub by name and by id."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], Topic] = {}
        self._by_uuid: dict[bytes, Topic] = {}
        self._by_id: dict[int, Topic] = {}
        self._made: Counter[str] = Counter()                 # topics by their maker
        self._ranges: list[tuple[int, int, int]] = []        # (first partition id, first partition, topic id), sorted
        self.version = 0                                     # of the definitions
        self.compacted = 0                                   # topics that are
        self.next_id = self.next_partition_id = self.next_producer_id = 1
        self._undo: list[tuple[Topic | None, Topic | None]] = []        # (before, after) of changes not yet durable

    # ---- looking up

    def get(self, name: str, tenant: str) -> Topic | None:
        return self._by_name.get((tenant, name))

    def require(self, name: str, tenant: str) -> Topic:
        topic = self._by_name.get((tenant, name))
        if topic is None:
            raise UnknownTopic(f"there is no topic {name!r}")
        return topic

    def by_uuid(self, topic_uuid: bytes) -> Topic | None:
        return self._by_uuid.get(topic_uuid)

    def by_id(self, topic_id: int) -> Topic | None:
        return self._by_id.get(topic_id)

    def of_partition(self, partition_id: int) -> tuple[Topic, int] | None:
        """The topic that a partition id belongs to, and the partition's number in it."""
        i = bisect_right(self._ranges, partition_id, key=itemgetter(0)) - 1
        if i < 0:
            return None
        first_id, first_partition, topic_id = self._ranges[i]
        topic = self._by_id[topic_id]
        partition = first_partition + partition_id - first_id
        first_range = topic.ranges[0]
        if first_range[0] == first_id and partition < first_range[1]:      # of the first range, as nearly all are
            return topic, partition
        there = partition < topic.partitions and topic.partition_id(partition) == partition_id
        return (topic, partition) if there else None

    def is_compacted(self, partition_id: int) -> bool:
        """Whether the partition belongs to a compacted topic."""
        topic_partition = self.of_partition(partition_id) if self.compacted else None
        return topic_partition is not None and topic_partition[0].settings.compact

    def of(self, tenant: str) -> list[Topic]:
        return sorted((topic for topic in self._by_name.values() if topic.tenant == tenant),
                      key=lambda topic: topic.name)

    def all(self) -> list[Topic]:
        return list(self._by_id.values())

    def made_by(self, maker: str) -> int:
        """How many topics of this maker exist."""
        return self._made[maker]

    def __len__(self) -> int:
        return len(self._by_id)

    # ---- changing; each returns what to record

    def create(self, name: str, tenant: str, partitions: int, settings: TopicSettings, now_ms: int, maker: str = ""
               ) -> Topic:
        """Raises TopicExists, InvalidTopic. The name has been checked."""
        if (tenant, name) in self._by_name:
            raise TopicExists(f"topic {name!r} exists already")
        settings.check()
        topic = Topic(self.next_id, uuid.uuid5(uuid.NAMESPACE_OID, f"{tenant}\0{name}\0{self.next_id}\0{now_ms}").bytes,
                      tenant, name, self._new_range(partitions), settings, now_ms, maker)
        self.next_id += 1
        self._change(None, topic)
        return topic

    def change(self, topic: Topic, partitions: int | None, settings: TopicSettings | None) -> Topic:
        """More partitions, other settings. Raises InvalidTopic where partitions would be taken away."""
        ranges = topic.ranges
        if partitions is not None and partitions != topic.partitions:
            if partitions < topic.partitions:
                raise InvalidTopic(f"topic {topic.name!r} has {topic.partitions} partitions; "
                                   "they can be added, not removed")
            if partitions > MAX_PARTITIONS:
                raise InvalidTopic(f"a topic has at most {MAX_PARTITIONS} partitions, not {partitions}")
            ranges = (*ranges, *self._new_range(partitions - topic.partitions))
        if settings is not None:
            settings.check()
        changed = replace(topic, ranges=ranges, settings=settings if settings is not None else topic.settings)
        self._change(topic, changed)
        return changed

    def delete(self, topic: Topic) -> None:
        self._change(topic, None)

    def counters(self) -> bytes:
        """The value of the COUNTERS state record."""
        counters = (self.next_id, self.next_partition_id, self.next_producer_id)
        assert len(shards_of(counters)) == 1, f"a shard has no ids left: {counters}"
        return _COUNTERS.pack(*counters)

    def new_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def new_partition_ids(self, count: int) -> int:
        """The first of `count` partition ids that nobody had before; record the counters."""
        assert count > 0, "somebody wants partitions"
        self.next_partition_id += count
        return self.next_partition_id - count

    def _new_range(self, partitions: int) -> tuple[tuple[int, int], ...]:
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise InvalidTopic(f"a topic has 1 to {MAX_PARTITIONS} partitions, not {partitions}")
        return ((self.new_partition_ids(partitions), partitions),)

    def touch(self) -> None:
        """Placements are looked at again, though no topic has changed."""
        self.version += 1

    def _change(self, before: Topic | None, after: Topic | None) -> None:
        self._undo.append((before, after))
        self._set(before, after)

    def _set(self, before: Topic | None, after: Topic | None) -> None:
        self.version += 1
        if before is not None:
            for first_id, _ in before.ranges:
                at = bisect_left(self._ranges, first_id, key=itemgetter(0))
                assert self._ranges[at][0] == first_id and self._ranges[at][2] == before.id, "a range is of one topic"
                del self._ranges[at]
            # Replay over an index that holds newer topics already brings back an older one of the same name
            # for a while.
            if self._by_name.get((before.tenant, before.name)) is before:
                del self._by_name[before.tenant, before.name]
            del self._by_uuid[before.uuid]
            del self._by_id[before.id]
            self.compacted -= before.settings.compact
            self._made[before.maker] -= 1
            assert self.compacted >= 0 and self._made[before.maker] >= 0, "counts are those of the topics"
            if not self._made[before.maker]:
                del self._made[before.maker]
        if after is not None:
            assert after.id not in self._by_id and after.uuid not in self._by_uuid, "an id names one topic"
            self._by_name[after.tenant, after.name] = after
            self._by_uuid[after.uuid] = after
            self._by_id[after.id] = after
            self.compacted += after.settings.compact
            self._made[after.maker] += 1
            first_partition = 0
            for first_id, count in after.ranges:
                insort(self._ranges, (first_id, first_partition, after.id))
                first_partition += count

    def settle(self, changes: int) -> None:
        """The first `changes` changes made since the last call are durable."""
        assert 0 <= changes <= len(self._undo), "a change is settled once"
        del self._undo[:changes]

    def undo(self) -> list[Topic]:
        """Take back every change that is not durable; returns the topics whose definition is another one now."""
        touched: list[Topic] = []
        while self._undo:
            before, after = self._undo.pop()
            self._set(after, before)
            touched += [topic for topic in (before, after) if topic is not None]
        return touched

    # ---- replay

    def begin(self, shard: int) -> None:
        """Recovery is over: every id that is given from here on is of this shard."""
        lowest = first_id(shard) + 1
        self.next_id, self.next_partition_id, self.next_producer_id = map(
            max, (self.next_id, self.next_partition_id, self.next_producer_id), (lowest, lowest, lowest))

    def shards(self) -> set[int]:
        """The shards that gave what ids there are, and will give the next."""
        return (shards_of(self._by_id) | shards_of([first for first, _, _ in self._ranges])
                | shards_of((self.next_id, self.next_partition_id, self.next_producer_id)))

    def apply_counters(self, value: bytes) -> None:
        self.next_id, self.next_partition_id, self.next_producer_id = map(
            max, _COUNTERS.unpack(value), (self.next_id, self.next_partition_id, self.next_producer_id))

    def apply(self, key: bytes, value: bytes | None) -> None:
        """A TOPIC state record during replay."""
        before = self._by_id.get(topic_id_of(key))
        self._set(before, None if value is None else decode_topic(value))
