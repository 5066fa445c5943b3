"""Fetch sessions (KIP-227): what one client follows, an answer that has only what is new to it, and the sessions of all
clients of a hub. Pure and hot.

A client that has opened a session lists in each fetch what has changed, and is told only of partitions that have
records for it, an error, or other ends than it was told of. What was told counts from when the answer leaves. Those
that were served longest ago are read first, since the bytes of an answer may not do for all of them.
"""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.kafka.codec import (
    FETCH_TOPIC_IDS,
    FetchPartition,
    FetchRows,
    FetchTopic,
    Forgotten,
    encode_count,
    encode_row,
    encode_row_start,
    encode_string,
    encode_uvarint,
)
from gatehouse.gateways.kafka.error_codes import (
    FENCED_LEADER_EPOCH,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from gatehouse.gateways.kafka.fetch_columns import MANY, NOT_TOLD, Column, Columns, partitions_of
from gatehouse.kernel.state.partition_ids import PartitionIds

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from gatehouse.gateways.contract import Services


# --- one session --------------------------------------------------------------------------------------------------

LAST_EPOCH: Final = (1 << 31) - 1
MAX_NAME_BYTES: Final = 249          # of a topic; a longer one names nothing, and is not kept


class Followed:
    """One partition that a client follows, and what the client was told of it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.epoch = -1
        self.offset = 0
        self.most = 0
        self.high: int = NOT_TOLD            # as the client knows it
        self.log_start: int = NOT_TOLD
        self.served = 0                      # the number of the answer that had records of it last


class FollowedTopic:
    """The partitions of one topic: one by one, or in columns from when there were `MANY` of them."""

    def __init__(self, name: bytes) -> None:
        self.name = name                     # or the 16 bytes of its id
        self.few: dict[int, Followed] = {}
        self.many: Columns | None = None

    def size(self) -> int:
        return len(self.few) if self.many is None else len(self.many)

    def follow(self, partitions: list[FetchPartition]) -> None:
        """New ones, or other wishes about those that are followed."""
        if self.many is None and len(self.few) + len(partitions) < MANY:
            for index, epoch, offset, most in partitions:
                followed = self.few.get(index)
                if followed is None:
                    followed = self.few[index] = Followed(index)
                followed.epoch, followed.offset, followed.most = epoch, offset, most
            return
        if self.many is None:
            self.many = self._in_columns()
        if partitions:
            self.many.follow(partitions)

    def _in_columns(self) -> Columns:
        few, self.few = self.few, {}
        many = Columns()
        if few:
            ordered = [few[index] for index in sorted(few)]
            many.follow([(each.index, each.epoch, each.offset, each.most) for each in ordered])
            many.high[:] = [each.high for each in ordered]
            many.log_start[:] = [each.log_start for each in ordered]
            many.served[:] = [each.served for each in ordered]
        return many

    def forget(self, partitions: list[int]) -> None:
        """Follow these no longer."""
        if self.many is not None:
            self.many.forget(partitions)
            return
        for index in partitions:
            self.few.pop(index, None)

    def indexes(self) -> list[int]:
        """The partitions' numbers."""
        if self.many is None:
            return list(self.few)
        indexes: list[int] = self.many.index.tolist()
        return indexes


class FetchSession:
    """What one client follows. `owner` is its connection: nobody else goes on with it."""

    def __init__(self, number: int, owner: object, by_id: bool, now_ms: int) -> None:
        self.id = number
        self.owner = owner
        self.by_id = by_id                   # topics are named by their ids
        self.epoch = 1                       # of the fetch that comes next
        self.topics: dict[bytes, FollowedTopic] = {}
        self.size = 0                        # topics and partitions
        self.answers = 0
        self.opened_ms = now_ms
        self.used_ms = now_ms

    def follow(self, topics: list[FetchTopic], forgotten: list[Forgotten]) -> bool:
        """Take in what a fetch says. False: there is a topic that cannot be, and the session is of no use any more."""
        for name, partitions, block in topics:
            if len(name) > MAX_NAME_BYTES:
                return False
            if block is not None:
                partitions = partitions_of(block)
            if not partitions:
                continue
            topic = self.topics.get(name)
            if topic is None:
                topic = self.topics[name] = FollowedTopic(name)
                self.size += 1
            before = topic.size()
            topic.follow(partitions)
            self.size += topic.size() - before
        for name, indexes in forgotten:
            topic = self.topics.get(name)
            if topic is not None and indexes:
                before = topic.size()
                topic.forget(indexes)
                self.size += topic.size() - before
                if not topic.size():
                    del self.topics[name]
                    self.size -= 1
        return True

    def advance(self) -> None:
        """The fetch of this epoch is here."""
        self.epoch = self.epoch + 1 if self.epoch < LAST_EPOCH else 1


class TopicRows:
    """One topic of an answer: where its head and its end stand among the rows, and how many partitions it has."""

    def __init__(self, topic: FollowedTopic, at: int) -> None:
        self.topic = topic
        self.at = at
        self.end = at
        self.count = 0


class Wish:
    """One partition that has something to read."""

    def __init__(self, of: TopicRows, at: int, index: int, place: int, followed: Followed | None, served: int,
                 want: tuple[int, int, int]) -> None:
        self.of = of
        self.at = at                         # its row
        self.index = index
        self.place = place                   # in the topic's columns, where it has some
        self.followed = followed
        self.served = served
        self.want = want
        self.high: int = NOT_TOLD
        self.log_start: int = NOT_TOLD
        self.is_told = False
        self.has_records = False


def _served(wish: Wish) -> int:
    return wish.served


class SessionRows(FetchRows):
    """The answer to a fetch of a session while it is put together; see `FetchRows`. `whole`: with every partition."""

    def __init__(self, version: int, read_committed: bool, leader_epoch: int, session: FetchSession, whole: bool
                 ) -> None:
        super().__init__(version, read_committed, leader_epoch)
        self.session = session
        self.whole = whole
        self._topics: list[TopicRows] = []
        self._wishes: list[Wish] = []
        self._by_row: dict[int, Wish] = {}
        self._told_few: list[tuple[Followed, int, int]] = []
        self._told_many: list[tuple[Columns, tuple[Column, Column, Column]]] = []
        self._watched: list[tuple[FollowedTopic, PartitionIds]] = []

    def begin_topic(self, topic: FollowedTopic) -> TopicRows:
        """Begin a topic. Its head is written when it is known how many partitions follow."""
        of = TopicRows(topic, len(self.rows))
        self._topics.append(of)
        self.rows.append(b"")
        return of

    def end_topic(self, of: TopicRows) -> None:
        of.end = len(self.rows)
        self.rows.append(b"")

    def refuse_topic(self, of: TopicRows, error: int) -> None:
        """Every partition with one error."""
        for index in of.topic.indexes():
            self._add(index, error, -1, -1)
            of.count += 1

    def look_at_few(self, of: TopicRows, partition_ids: PartitionIds, bounds: Callable[[int], tuple[int, int]]
                    ) -> None:
        """Each partition of a topic against what it holds. `bounds` gives a partition's log start and high
        watermark."""
        count = len(partition_ids)
        for followed in of.topic.few.values():
            index, offset, epoch = followed.index, followed.offset, followed.epoch
            if index < 0 or index >= count:
                self._add(index, UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
                of.count += 1
                continue
            self._there += 1
            partition_id = partition_ids[index]
            start, high = bounds(partition_id)
            error = NONE
            if epoch >= 0 and epoch != self.leader_epoch:
                error = FENCED_LEADER_EPOCH if epoch < self.leader_epoch else UNKNOWN_LEADER_EPOCH
            elif offset < start or offset > high:
                error = OFFSET_OUT_OF_RANGE
            if error != NONE:
                self.errors += 1
                self._tell(of, followed, error, high, start)
            elif offset < high:
                self._wish(Wish(of, len(self.rows), index, -1, followed, followed.served,
                                (partition_id, offset, followed.most)))
            elif self.whole or high != followed.high or start != followed.log_start:
                self._tell(of, followed, NONE, high, start)
        self._watched.append((of.topic, partition_ids))

    def look_at_many(self, of: TopicRows, many: Columns, partition_ids: PartitionIds,
                     bounds: npt.NDArray[np.int64]) -> None:
        """As `look_at_few`; `bounds` holds (log start, high watermark) rows by partition."""
        looked = many.look(self.version, bounds, self.leader_epoch, self.read_committed, self.whole)
        for index in looked.missing:
            self._add(index, UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        of.count += looked.row_count + len(looked.missing)
        if looked.row_count:
            self.rows.append(looked.rows)
            self._told_many.append((many, looked.told_ends))
        self._there += looked.there
        self.errors += looked.errors
        self.more = self.more or looked.more
        for place, index, offset, most, served in looked.wants:
            self._wish(Wish(of, len(self.rows), index, place, None, served, (partition_ids[index], offset, most)))
        self._watched.append((of.topic, partition_ids))

    def _tell(self, of: TopicRows, followed: Followed, error: int, high: int, log_start: int) -> None:
        self._add(followed.index, error, high, log_start)
        self._told_few.append((followed, high if error == NONE else NOT_TOLD, log_start))
        of.count += 1

    def _wish(self, wish: Wish) -> None:
        self._wishes.append(wish)
        self._by_row[wish.at] = wish
        self.rows.append(b"")

    def arrange(self) -> None:
        """All topics have been looked at: whoever was served longest ago is read first."""
        if len(self._wishes) > 1:
            self._wishes.sort(key=_served)
        self.places = [(wish.at, wish.index) for wish in self._wishes]
        self.wants = [wish.want for wish in self._wishes]

    def wanted_topics(self) -> list[FollowedTopic]:
        """The topic of each of `wants`."""
        return [wish.of.topic for wish in self._wishes]

    def partition_ids(self) -> Collection[int]:
        """The partitions that are followed and there; the whole topic where that is half of it or more."""
        if len(self._watched) == 1:
            topic, partition_ids = self._watched[0]
            size = topic.size()
            if size >= MANY and size * 2 >= len(partition_ids):
                return partition_ids
        ids: set[int] = set()
        for topic, partition_ids in self._watched:
            count = len(partition_ids)
            ids.update([partition_ids[index] for index in topic.indexes() if 0 <= index < count])
        return ids

    def fill(self, place: tuple[int, int], error: int, high_watermark: int, log_start: int,
             batches: list[bytes]) -> None:
        """What the kernel gave for one of `wants`; it may be nothing, where others have filled the answer."""
        at, index = place
        wish = self._by_row[at]
        wish.high, wish.log_start = high_watermark if error == NONE else NOT_TOLD, log_start
        if error == NONE and batches:
            size = 0
            for batch in batches:
                size += len(batch)
            self.rows[at] = encode_row_start(self.version, index, high_watermark, log_start, self.read_committed, size)
            self.filled.append((at, batches))
            wish.has_records = True
        elif error != NONE or self.whole or self._is_new(wish):
            self.rows[at] = encode_row(self.version, index, error, high_watermark, log_start, self.read_committed)
        else:
            return
        wish.is_told = True
        wish.of.count += 1

    @staticmethod
    def _is_new(wish: Wish) -> bool:
        """Whether the client knows of other ends."""
        followed, many = wish.followed, wish.of.topic.many
        if followed is not None:
            return followed.high != wish.high or followed.log_start != wish.log_start
        assert many is not None
        return bool(many.high[wish.place] != wish.high or many.log_start[wish.place] != wish.log_start)

    def encode(self, correlation_id: int, throttle_ms: int, session_id: int = 0) -> list[bytes]:
        """The whole answer. The client knows from now on what it says."""
        for of in self._topics:
            if of.count:
                self.topics += 1
                name = of.topic.name
                self.rows[of.at] = name + encode_uvarint(of.count + 1) if self.version >= FETCH_TOPIC_IDS \
                    else encode_string(name, self.flexible) + encode_count(of.count, self.flexible)
                if self.flexible:
                    self.rows[of.end] = b"\0"
        self.filled.sort(key=_row_of)
        self._tell_all()
        return super().encode(correlation_id, throttle_ms, session_id)

    def _tell_all(self) -> None:
        session = self.session
        session.answers += 1
        for one_of_few, high, log_start in self._told_few:
            one_of_few.high, one_of_few.log_start = high, log_start
        for columns, ends in self._told_many:
            columns.tell(ends)
        for wish in self._wishes:
            if not wish.is_told:
                continue
            followed, many = wish.followed, wish.of.topic.many
            if followed is not None:
                followed.high, followed.log_start = wish.high, wish.log_start
                if wish.has_records:
                    followed.served = session.answers
            elif many is not None:
                many.serve(wish.place, wish.high, wish.log_start, session.answers if wish.has_records else 0)


def _row_of(filled: tuple[int, list[bytes]]) -> int:
    return filled[0]


# --- all sessions of a hub ----------------------------------------------------------------------------------------

# They are bounded in number and in what they follow.
#
# A session ends with its connection, when its client says so, or when another one takes its place. As in Kafka, that is
# the one that was used longest ago, if nobody has used it for two minutes; else the smallest of those that are two
# minutes old, if it is smaller than the new one. A client whose session is gone is told FETCH_SESSION_ID_NOT_FOUND, and
# lists everything again. One for which there is no room is answered with session 0, and lists everything each time.

MAX_SESSIONS: Final = 1_000          # Kafka's max.incremental.fetch.session.cache.slots
MAX_FOLLOWED: Final = 500_000        # topics and partitions of all sessions: some 100 MB where each is one by one
SAFE_MS: Final = 120_000             # Kafka's min.incremental.fetch.session.eviction.ms
MAX_OF_CONNECTION: Final = 4         # clients have one; more come through a proxy


class FetchSessions:  # decision 224
    """The fetch sessions of one hub, in `Services.shared`."""

    def __init__(self, max_sessions: int = MAX_SESSIONS, max_followed: int = MAX_FOLLOWED) -> None:
        self._max_sessions = max_sessions
        self._max_followed = max_followed
        self._by_id: OrderedDict[int, FetchSession] = OrderedDict()        # used longest ago first
        self._of: dict[object, dict[int, None]] = {}                       # ids by connection
        self._last_id = 0
        self.followed = 0

    @classmethod
    def of(cls, services: Services) -> FetchSessions:
        """The hub's."""
        return services.share(__name__, cls)

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, owner: object, by_id: bool, topics: list[FetchTopic], now_ms: int) -> FetchSession | None:
        """A session that follows these topics; None where there is no room for it, or nothing to follow."""
        session = FetchSession(self._next_id(), owner, by_id, now_ms)
        if not session.follow(topics, []) or not session.size or not self._make_room(session, now_ms):
            return None
        mine = self._of.setdefault(owner, {})
        if len(mine) >= MAX_OF_CONNECTION:
            self.close(next(iter(mine)), owner)
            mine = self._of.setdefault(owner, {})
        self._by_id[session.id] = session
        mine[session.id] = None
        self.followed += session.size
        return session

    def find(self, number: int, owner: object) -> FetchSession | None:
        """The session of this connection with that id."""
        session = self._by_id.get(number)
        return session if session is not None and session.owner is owner else None

    def follow(self, session: FetchSession, topics: list[FetchTopic], forgotten: list[Forgotten], most: int,
               now_ms: int) -> bool:
        """Take in what the next fetch of a session says. False: it would be too much, and the session is gone."""
        before = session.size
        sound = session.follow(topics, forgotten)
        self.followed += session.size - before
        session.used_ms = now_ms
        self._by_id.move_to_end(session.id)
        if not sound or session.size > before and (session.size > 2 * most or self.followed > self._max_followed):
            self.close(session.id, session.owner)
            return False
        session.advance()
        return True

    def close(self, number: int, owner: object) -> None:
        """End the session of this connection with that id, where there is each."""
        session = self.find(number, owner)
        if session is not None:
            self._drop(session)

    def leave(self, owner: object) -> None:
        """A connection is gone, and its sessions."""
        ids: Iterable[int] = list(self._of.get(owner, ()))
        for number in ids:
            self.close(number, owner)

    def _drop(self, session: FetchSession) -> None:
        del self._by_id[session.id]
        self.followed -= session.size
        mine = self._of[session.owner]
        del mine[session.id]
        if not mine:
            del self._of[session.owner]

    def _make_room(self, session: FetchSession, now_ms: int) -> bool:
        """Whether there is room for it, perhaps in the place of others: of one that is in use, or of idle ones."""
        while len(self._by_id) >= self._max_sessions or self.followed + session.size > self._max_followed:
            oldest = next(iter(self._by_id.values()), None)
            if oldest is not None and now_ms - oldest.used_ms > SAFE_MS:
                victim: FetchSession | None = oldest
            elif self.followed + session.size <= self._max_followed:
                victim = self._smallest(session, now_ms)
            else:
                victim = None
            if victim is None:
                return False
            self._drop(victim)
        return True

    def _smallest(self, session: FetchSession, now_ms: int) -> FetchSession | None:
        """The smallest of those that are smaller and have been there for a while."""
        smaller = [each for each in self._by_id.values()
                   if each.size < session.size and now_ms - each.opened_ms > SAFE_MS]
        return min(smaller, key=lambda each: (each.size, each.id), default=None)

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id + 1 if self._last_id < LAST_EPOCH else 1
            if self._last_id not in self._by_id:
                return self._last_id
