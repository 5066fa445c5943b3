"""Topics are made, changed and deleted: at once in memory, so that the next message can be placed, and with the pending
frame in the log. A frame that is refused takes it back."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from gatehouse.kernel.addresses.subscriptions import Subscriptions
from gatehouse.kernel.message import Owner, StateRecord
from gatehouse.kernel.state.state import Kind, decode_offset_key, offset_record
from gatehouse.kernel.state.topics import Topic, Topics, TopicSettings, encode_topic, topic_key
from gatehouse.kernel.write.committer import Committer
from gatehouse.kernel.write.pending_frame import PendingFrame, Submission


class TopicChanges:
    """Takes part in each frame that changes topics; see `kernel.write.pending_frame.Participant`."""

    def __init__(self, topics: Topics, subscriptions: Subscriptions, committer: Committer) -> None:
        self._topics = topics
        self._subscriptions = subscriptions
        self._committer = committer

    def create(self, name: str, tenant: str, partitions: int, settings: TopicSettings, owner: Owner | None = None,
               token: object = None, maker: str = "") -> Topic:
        """Raises TopicExists, InvalidTopic, Stopping. The name has been checked."""
        pending_frame = self._committer.open_frame()
        topic = self._topics.create(name, tenant, partitions, settings, pending_frame.builder.now_ms, maker)
        self._define(pending_frame, topic.id, topic, owner, token)
        return topic

    def change(self, topic: Topic, partitions: int | None, settings: TopicSettings | None, owner: Owner | None,
               token: object) -> Topic:
        """Raises InvalidTopic, Stopping."""
        pending_frame = self._committer.open_frame()
        changed = self._topics.change(topic, partitions, settings)
        self._define(pending_frame, topic.id, changed, owner, token)
        self._subscriptions.touch()
        return changed

    def delete(self, topic: Topic, offsets: Mapping[str, Mapping[int, tuple[int, bytes]]], owner: Owner | None,
               token: object) -> None:
        """With what groups have committed in it; `offsets` by group and partition id are what is durable of that.
        Raises Stopping."""
        pending_frame = self._committer.open_frame()
        self._topics.delete(topic)
        self._define(pending_frame, topic.id, None, owner, token)
        pending_frame.deleted += topic.ranges
        names = {offset_record(group, partition_id, None) for group, of_group in offsets.items()
                 for partition_id in _within(topic, of_group)}
        for pending in self._committer.pending():                    # committed, and not known to be durable yet
            names.update(record._replace(value=None) for record in pending.offsets()
                         if list(_within(topic, (decode_offset_key(record.key)[0],))))
        pending_frame.state += sorted(names, key=lambda record: record.key)
        self._subscriptions.touch()

    def new_producer_id(self, owner: Owner, token: object) -> None:
        """See `Kernel.new_producer_id`."""
        pending_frame = self._committer.open_frame()
        producer_id = self.next_producer_id(pending_frame)
        pending_frame.submissions.append(Submission(owner, token, None,
                                                    (pending_frame.builder.now_ms, [(producer_id, 0, 0)])))

    def next_producer_id(self, pending_frame: PendingFrame) -> int:
        """One that nobody has, from the moment at which this frame is durable."""
        producer_id = self._topics.new_producer_id()
        pending_frame.state.append(self._counters())
        return producer_id

    def _define(self, pending_frame: PendingFrame, topic_id: int, topic: Topic | None, owner: Owner | None,
                token: object) -> None:
        value = None if topic is None else encode_topic(topic)
        pending_frame.state.append(StateRecord(Kind.TOPIC, topic_key(topic_id), value))
        pending_frame.state.append(self._counters())
        pending_frame.topic_changes += 1
        pending_frame.join(self)
        pending_frame.answer(owner, token)

    def _counters(self) -> StateRecord:
        return StateRecord(Kind.COUNTERS, b"", self._topics.counters())

    # ---- taking part in a frame

    def seal(self, frame: PendingFrame, first_id: int) -> int:
        """The records are in it already."""
        return 0

    def applied(self, frame: PendingFrame) -> None:
        """These changes will not be taken back any more."""
        self._topics.settle(frame.topic_changes)

    def failed(self, frames: list[PendingFrame]) -> None:
        """Topics are as they were."""
        if self._topics.undo():
            self._subscriptions.touch()


def _within(topic: Topic, partition_ids: Collection[int]) -> Iterator[int]:
    """Those that are partitions of the topic; a topic has few partitions, or a group has committed in few."""
    for first, count in topic.ranges:
        if count < len(partition_ids):
            yield from (partition_id for partition_id in range(first, first + count) if partition_id in partition_ids)
        else:
            yield from (partition_id for partition_id in partition_ids if first <= partition_id < first + count)
